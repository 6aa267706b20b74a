//! Watches replicas after every step, and clients' leases: invariants that a history cannot show.
//!
//! The observed variables: every register head written (decoded from the durable records), every
//! lock state (read from the running node), every client's leases. History variables are kept
//! beside them and survive crashes.

use crate::catalogue::Catalogue;
use crate::checkers::Violation;
use crate::checkers::{
    agreement, begin, data_store, driver, durability, eventual, formats, gone, leases, names,
    places, read_lease, records, stuck, tags,
};
use crate::client::Client;
use crate::disk::Flushed;
use crate::history::{History, OpId};
use crate::machine::{Machine, Stepped};
use crate::network::{ClientId, Parcel};
use bytes::Bytes;
use fermata_protocol::Message;
use fermata_protocol::base::{Cluster, KeyId, NodeName};
use fermata_protocol::wire::record;
use std::collections::BTreeMap;

/// All watchers of one world.
#[derive(Debug)]
pub struct Monitor {
    on: bool,
    clocks_trusted: bool,
    /// Where keys are, and were.
    pub places: places::Places,
    tags: tags::Tags,
    eventual: eventual::Eventual,
    agreement: agreement::Agreement,
    begin: begin::Begin,
    data_store: data_store::DataStore,
    drivers: driver::Drivers,
    durability: durability::Durability,
    formats: formats::Formats,
    leases: leases::Leases,
    names: names::Names,
    records: records::Records,
    /// Coded reads.
    stuck: stuck::Stuck,
    /// Operations of the history seen so far.
    ops: usize,
    /// Sections of the history seen so far.
    sections: usize,
    /// Ends of operations seen so far.
    ended: usize,
}

impl Monitor {
    /// Watches, or not: benchmarks do not need it.
    pub fn new(on: bool, cluster: &Cluster) -> Monitor {
        Monitor {
            on,
            clocks_trusted: true,
            places: places::Places::new(cluster),
            tags: tags::Tags::default(),
            eventual: eventual::Eventual::default(),
            agreement: agreement::Agreement::default(),
            begin: begin::Begin::default(),
            data_store: data_store::DataStore::default(),
            drivers: driver::Drivers::default(),
            durability: durability::Durability::default(),
            formats: formats::Formats::default(),
            leases: leases::Leases::default(),
            names: names::Names::default(),
            records: records::Records::default(),
            stuck: stuck::Stuck::default(),
            ops: 0,
            sections: 0,
            ended: 0,
        }
    }

    /// Whether boot-time clocks stay within their stated bound: leases promise nothing otherwise.
    pub fn trust_clocks(&mut self, trust: bool) {
        self.clocks_trusted = trust;
    }

    /// Whether reads of the key may find no value now: see [`stuck`].
    pub fn is_excused(&self, key: &KeyId, catalogue: &Catalogue) -> bool {
        self.stuck.is_excused(key, catalogue)
    }

    /// Reads so far that found no value, where that is no violation.
    pub fn beyond_delta(&self) -> u64 {
        self.stuck.beyond_delta
    }

    /// A driver has stepped its node, or closed a round.
    pub fn turned(&mut self, name: NodeName, done: &Stepped, found: &mut Vec<Violation>) {
        if self.on {
            self.drivers.turned(name, done, found);
        }
    }

    /// A driver has done all that it could at this moment.
    pub fn rests(&mut self, name: NodeName, now: u64, found: &mut Vec<Violation>) {
        if self.on {
            self.drivers.rests(name, now, found);
        }
    }

    /// A node was stepped.
    pub fn after_step(
        &mut self,
        (now, name): (u64, NodeName),
        done: &Stepped,
        machines: &BTreeMap<NodeName, Machine>,
        clients: &[Client],
        catalogue: &Catalogue,
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        let machine = &machines[&name];
        self.places.learn(machine);
        self.names.after_step(machine, found);
        let world = (&self.places, catalogue);
        self.durability.wrote(name, done);
        gone::wrote(machine, &done.writes, found);
        let mut heads = tags::heads(&done.writes);
        heads.retain(|head| !catalogue.is_deleted(&head.key));
        self.tags.wrote(name, &heads, catalogue, found);
        self.eventual.wrote(machine, &heads, world, found);
        let mut removed = tags::removed(&done.writes);
        let of = |place: &Bytes| record::key_of(place);
        removed.retain(|place| of(place).is_none_or(|key| !catalogue.is_deleted(&key)));
        self.tags.removed(name, &removed, catalogue, found);
        self.eventual.removed(name, &removed);
        let emptied = tags::emptied(&done.writes);
        self.eventual.emptied(name, &emptied);
        self.data_store
            .removed(name, &removed, &emptied, world, found);
        self.stuck.removed(&removed);
        self.stuck.emptied(name, &emptied);
        let moved = self.agreement.after_step(machine, found);
        self.data_store
            .after_step(&heads, &moved, machine, world, found);
        self.formats.after_step(name, machines, found);
        self.records.after_step(machine, done, found);
        if self.clocks_trusted {
            read_lease::after_step((now, name), machines, found);
            self.leases.after_step(now, machine, &moved, clients, found);
        }
    }

    /// Something was sent.
    pub fn sent(&mut self, parcel: &Parcel, found: &mut Vec<Violation>) {
        if self.on {
            self.stuck.sent(parcel);
        }
        if let Parcel::Peer {
            message: Message::Paxos { log, message },
            ..
        } = parcel
            && self.on
        {
            self.begin.sent(*log, message, found);
        }
    }

    /// A flush of a node ended.
    pub fn flushed(
        &mut self,
        name: NodeName,
        result: Flushed,
        catalogue: &Catalogue,
        found: &mut Vec<Violation>,
    ) {
        if self.on
            && let Flushed::Through(lsn) = result
        {
            let mut heads = self.durability.flushed(name, lsn);
            heads.retain(|head| !catalogue.is_deleted(&head.key));
            self.eventual.flushed(name, &heads, catalogue);
            self.stuck
                .flushed(name, &heads, (&self.places, catalogue), found);
        }
    }

    /// A process has started on the disk that was left, and has done its first step.
    pub fn restarted(
        &mut self,
        name: NodeName,
        first: &Stepped,
        machines: &BTreeMap<NodeName, Machine>,
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        let machine = &machines[&name];
        self.durability.restarted(machine, first, found);
        self.tags.restarted(machine);
        self.eventual.restarted(machine);
        self.stuck.restarted(machine);
        self.data_store.restarted(machine);
        self.agreement.restarted(name);
        self.drivers.restarted(name);
        self.records.restarted(machine, found);
    }

    /// A disk rots: what it held may be void from now on.
    pub fn rotten(&mut self, name: NodeName) {
        self.durability.forget(name);
        self.tags.rotten(name);
        self.eventual.rotten(name);
        self.stuck.forget(name);
        self.data_store.rotten(name);
    }

    /// A node has been taken out of the cluster.
    pub fn left(&mut self, name: NodeName) {
        self.data_store.left(name);
    }

    /// A disk is gone.
    pub fn wiped(&mut self, name: NodeName) {
        self.durability.forget(name);
        self.tags.forget(name);
        self.eventual.forget(name);
        self.stuck.forget(name);
        self.data_store.forget(name);
    }

    /// Nobody asks anything, and all keys but these are at rest.
    pub fn at_rest(
        &self,
        machines: &BTreeMap<NodeName, Machine>,
        catalogue: &Catalogue,
        restless: &[KeyId],
        found: &mut Vec<Violation>,
    ) {
        let rests = |key: &KeyId| !restless.contains(key) && !catalogue.is_deleted(key);
        if self.on {
            let world = (&self.places, catalogue);
            self.eventual.at_rest(machines, world, rests, found);
        }
    }

    /// What of segments' records is not as it should be at rest.
    pub fn records_left(&self, machines: &BTreeMap<NodeName, Machine>) -> Option<String> {
        self.records.left(machines, &self.places)
    }

    /// When each number was written to a ledger's key.
    pub fn written(&self) -> &crate::checkers::ledger::Written {
        &self.records.written
    }

    /// A client did something.
    pub fn after_client(
        &mut self,
        (now, client): (u64, ClientId),
        clients: &[Client],
        history: &History,
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        let catalogue = &history.catalogue;
        for section in &history.sections[self.sections..] {
            self.data_store
                .entered(section, (&self.places, catalogue), found);
        }
        self.sections = history.sections.len();
        for (i, op) in history.ops.iter().enumerate().skip(self.ops) {
            self.stuck.began(OpId(i), op);
        }
        self.ops = history.ops.len();
        for id in &history.ended[self.ended..] {
            let op = &history.ops[id.0];
            let key = op.what.key();
            let promised = key.is_none_or(|key| !self.stuck.is_excused(key, catalogue));
            if key.is_some_and(|key| catalogue.is_deleted(key)) {
                continue;
            }
            let world = (&self.places, catalogue);
            self.durability.acknowledged(op, promised, world, found);
            self.stuck.ended(*id, op, catalogue, found);
        }
        self.ended = history.ended.len();
        if self.clocks_trusted {
            self.leases.after_client(now, client, clients, found);
        }
    }
}
