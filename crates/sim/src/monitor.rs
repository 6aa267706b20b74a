//! Watches replicas after every step, and clients' leases: invariants that a history cannot show.
//!
//! The observed variables: every register head written (decoded from the durable records), every
//! lock state (read from the running node), every client's leases. History variables are kept
//! beside them and survive crashes.

use crate::checkers::Violation;
use crate::checkers::{agreement, begin, data_store, durability, leases, tags};
use crate::client::Client;
use crate::disk::Flushed;
use crate::history::History;
use crate::machine::{Machine, Stepped};
use crate::network::{ClientId, Parcel};
use fermata_protocol::Message;
use fermata_protocol::base::{Cluster, NodeName};
use std::collections::BTreeMap;

/// All watchers of one world.
#[derive(Debug)]
pub struct Monitor {
    on: bool,
    clocks_trusted: bool,
    tags: tags::Tags,
    agreement: agreement::Agreement,
    begin: begin::Begin,
    data_store: data_store::DataStore,
    durability: durability::Durability,
    leases: leases::Leases,
    /// Sections of the history seen so far.
    sections: usize,
    /// Ends of operations seen so far.
    ended: usize,
}

impl Monitor {
    /// Watches, or not: benchmarks do not need it.
    pub fn new(on: bool) -> Monitor {
        Monitor {
            on,
            clocks_trusted: true,
            tags: tags::Tags::default(),
            agreement: agreement::Agreement::default(),
            begin: begin::Begin::default(),
            data_store: data_store::DataStore::default(),
            durability: durability::Durability::default(),
            leases: leases::Leases::default(),
            sections: 0,
            ended: 0,
        }
    }

    /// Whether boot-time clocks stay within their stated bound: leases promise nothing otherwise.
    pub fn trust_clocks(&mut self, trust: bool) {
        self.clocks_trusted = trust;
    }

    /// A node was stepped.
    pub fn after_step(
        &mut self,
        (now, name): (u64, NodeName),
        done: &Stepped,
        machines: &BTreeMap<NodeName, Machine>,
        clients: &[Client],
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        let machine = &machines[&name];
        self.durability.wrote(name, done);
        let heads = tags::heads(&done.writes);
        self.tags.wrote(name, &heads, found);
        let moved = self.agreement.after_step(machine, found);
        self.data_store
            .after_step(name, &heads, &moved, machines, found);
        if self.clocks_trusted {
            self.leases.after_step(now, machine, &moved, clients, found);
        }
    }

    /// Something was sent.
    pub fn sent(&mut self, parcel: &Parcel, found: &mut Vec<Violation>) {
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
    pub fn flushed(&mut self, name: NodeName, result: Flushed) {
        if self.on
            && let Flushed::Through(lsn) = result
        {
            self.durability.flushed(name, lsn);
        }
    }

    /// A process has started on the disk that was left.
    pub fn restarted(
        &mut self,
        name: NodeName,
        machines: &BTreeMap<NodeName, Machine>,
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        let machine = &machines[&name];
        self.durability.restarted(machine, found);
        self.tags.restarted(machine);
        self.data_store.restarted(machine);
        self.agreement.restarted(name);
    }

    /// A disk rots: what it held may be void from now on.
    pub fn rotten(&mut self, name: NodeName) {
        self.durability.forget(name);
        self.data_store.rotten(name);
    }

    /// A disk is gone.
    pub fn wiped(&mut self, name: NodeName) {
        self.durability.forget(name);
        self.tags.forget(name);
        self.data_store.forget(name);
    }

    /// A client did something.
    pub fn after_client(
        &mut self,
        (now, client): (u64, ClientId),
        clients: &[Client],
        history: &History,
        cluster: &Cluster,
        found: &mut Vec<Violation>,
    ) {
        if !self.on {
            return;
        }
        for section in &history.sections[self.sections..] {
            self.data_store.entered(section, found);
        }
        self.sections = history.sections.len();
        for id in &history.ended[self.ended..] {
            self.durability
                .acknowledged(&history.ops[id.0], cluster, found);
        }
        self.ended = history.ended.len();
        if self.clocks_trusted {
            self.leases.after_client(now, client, clients, found);
        }
    }
}
