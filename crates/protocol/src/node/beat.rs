//! Beats: one message per pair of nodes, whatever the number of logs. A beat says which logs its
//! sender leads; the answer extends their leases. Both say how new the sender's catalogue and
//! registry are. An answer also bounds the trip, by which interval clocks are compared
//! ([`super::clock_watch`]).

use super::agenda::Room;
use super::{Here, Node, Step};
use crate::base::{Bug, GroupId, Interval, LogId, NodeId, NodeName};
use crate::catalogue::Catalogue;
use crate::io::{Effects, Env};
use crate::message::{Beat, BeatAck, Message};
use crate::paxos::{Follow, Log};
use crate::wire::{self, record};
use alloc::vec::Vec;

impl Node {
    pub(super) fn beat(&mut self, step: &mut Step<'_>) {
        self.start_when_ready(step);
        self.place_primaries(step);
        self.here.clocks.on_beat(step.now.monotonic);
        self.greeted.clear();
        for peer in self.here.peers() {
            if self.here.started {
                let leads = self.here.leads_with(peer);
                let catalogue = self.here.catalogue.version();
                let registry = self.here.registry.version();
                let sent = step.now.monotonic;
                let writable = self.here.writable;
                let seated = self.here.is_seated();
                step.fx.send(
                    peer,
                    Message::Beat(Beat {
                        sent,
                        leads,
                        catalogue,
                        registry,
                        writable,
                        seated,
                    }),
                );
            } else {
                self.say_hello(peer, true, step);
            }
        }
    }

    /// A frame has come whose messages follow.
    pub(super) fn on_heard(&mut self, from: NodeId, theirs: Option<Interval>, step: &Step<'_>) {
        if self.here.started && self.here.knows(from) {
            let Here { clocks, config, .. } = &mut self.here;
            clocks.on_frame(from.name, theirs, step.now, &config.timing);
        }
    }

    pub(super) fn on_beat(&mut self, from: NodeName, beat: Beat, step: &mut Step<'_>) {
        if beat.writable {
            self.here.seen.full.remove(&from);
        } else {
            self.here.seen.full.insert(from);
            self.here.steady.insert(from, step.now.monotonic);
        }
        self.here.seen.spares.note_seated(from, beat.seated);
        let distances = self.here.distances_to_tell(&beat.leads, step);
        let (mut follows, mut behind, mut deposed) = (Vec::new(), Vec::new(), Vec::new());
        for (id, ballot, chosen) in beat.leads {
            let verdict = self.here.with_log(id, step, |log, cx| {
                let seat = log.view().seat_of(from)?;
                let verdict = log.on_beat(seat, ballot, chosen, cx);
                behind.extend(log.fetches_snapshot().then_some(id));
                Some(verdict)
            });
            match verdict.flatten() {
                Some(Follow::Follows(ballot)) => follows.push((id, ballot)),
                Some(Follow::Deposed(promised)) => deposed.push((id, promised)),
                Some(Follow::Ignored) => self.ignore("beat that makes no sense"),
                None => self.here.on_foreign_beat(from, id, step),
            }
        }
        let catalogue = self.here.catalogue.version();
        let ack = BeatAck {
            sent: beat.sent,
            follows,
            behind,
            deposed,
            distances,
            catalogue,
        };
        step.fx.send(from, Message::BeatAck(ack));
        self.here.tell_time(from, beat.sent, step);
        self.here.share_catalogue(from, beat.catalogue, step.fx);
        self.here.share_registry(from, beat.registry, step.fx);
    }

    pub(super) fn on_beat_ack(&mut self, from: NodeName, ack: BeatAck, step: &mut Step<'_>) {
        let Here { clocks, config, .. } = &mut self.here;
        clocks.on_answer(from, ack.sent, step.now, &config.timing);
        self.here.seen.distances.measure(from, ack.sent, step.now);
        self.here.note_distances(from, &ack.distances);
        for (id, ballot) in ack.follows {
            self.here.with_log(id, step, |log, cx| {
                if let Some(seat) = log.view().seat_of(from) {
                    log.on_beat_ack(seat, ballot, ack.sent, cx);
                    log.note_behind(seat, ack.behind.contains(&id));
                }
            });
        }
        for (id, promised) in ack.deposed {
            self.here.with_log(id, step, |log, cx| {
                if let Some(seat) = log.view().seat_of(from) {
                    log.on_deposed(seat, promised, cx);
                }
            });
        }
        self.here.share_catalogue(from, ack.catalogue, step.fx);
    }
}

impl Here {
    /// A peer is taken for dead until it is heard: it is not asked where another can be, and what
    /// it led is led by another as soon as its lease is over.
    pub(super) fn on_gone(&mut self, peer: NodeName, step: &mut Step<'_>) {
        if let Some(heard) = self.alive.remove(&peer) {
            self.seen.gone.insert(peer, heard);
        }
        let groups = self.groups.values().map(|g| g.log.id());
        let segments = self.segments.values().map(|s| s.log.id());
        for id in groups.chain(segments).collect::<Vec<_>>() {
            self.with_log(id, step, |log, cx| {
                if let Some(seat) = log.view().seat_of(peer) {
                    log.on_gone(seat, cx);
                }
            });
        }
    }

    /// The logs that this node leads and `peer` has a seat in.
    fn leads_with(&self, peer: NodeName) -> Vec<(LogId, crate::base::Ballot, crate::base::Slot)> {
        let lead = |log: &Log| {
            log.view().seat_of(peer)?;
            let (ballot, chosen) = log.beat()?;
            Some((log.id(), ballot, chosen))
        };
        let groups = self.groups.values().filter_map(|g| lead(&g.log));
        groups
            .chain(self.segments.values().filter_map(|s| lead(&s.log)))
            .collect()
    }

    pub(super) fn share_catalogue(&self, peer: NodeName, version: u64, fx: &mut Effects) {
        if version < self.catalogue.version() {
            fx.send(peer, Message::Catalogue(self.catalogue.clone()));
        }
    }

    /// Sends the catalogue to a node that asks for it, if this node leads the log that it comes
    /// from: it then has heard of every creation, change and deletion that was answered.
    pub(super) fn send_catalogue(&self, to: NodeName, call: u64, step: &mut Step<'_>) {
        let Some(room) = self.groups.get(&GroupId::META) else {
            return self.direct_to(to, GroupId::META, step);
        };
        let leased = room.log.has_lease(step.now, &self.config.timing);
        if !leased && !self.config.planted.has(Bug::KeeperWithoutLease) {
            return;
        }
        self.share_catalogue(to, 0, step.fx);
        let version = self.catalogue.version();
        let answer = crate::coordinator::Message::CatalogueIs { call, version };
        step.fx.send(to, answer);
    }

    /// Takes a newer catalogue over.
    pub(super) fn learn_catalogue(&mut self, catalogue: Catalogue, fx: &mut Effects) {
        if catalogue.version() > self.catalogue.version() {
            self.catalogue = catalogue.bounded();
            fx.put(record::node("catalogue"), wire::encode(&self.catalogue));
        }
    }

    /// Runs something of one log, and notes that it may have moved on; none without a replica.
    pub(super) fn with_log<T>(
        &mut self,
        id: LogId,
        step: &mut Step<'_>,
        act: impl FnOnce(&mut Log, &mut Env<'_>) -> T,
    ) -> Option<T> {
        let room = Room::of(id);
        let (log, mut cx) = self.log_in(room, step)?;
        let result = (log.id() == id).then(|| act(log, &mut cx))?;
        self.agenda.run(room);
        Some(result)
    }
}
