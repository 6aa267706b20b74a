//! How far others are, and who leads groups by that, where the cluster's settings say so (R15).
//!
//! Each beat that is answered is a round trip. A node knows its own alone; who leads a group asks
//! nobody: in the answer to a beat each member says how far its nearest quorum is. Nothing depends
//! on it, and nothing of it is durable: a new leader looks anew.

use super::{Here, Step};
use crate::base::{Ballot, Bug, GroupId, LogId, Micros, NodeName, Now, Scope, Seat, Slot, View};
use crate::policy::{Leading, leader_latency, quorum_distance};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A leader looks so often whether another member is nearer to a quorum, microseconds.
const LOOK: Micros = 60_000_000;
/// The part of a new round trip in what is known of them.
const PART: u64 = 8;

/// What a node knows of distances.
#[derive(Debug, Default)]
pub(super) struct Distances {
    /// Round trips to other nodes, smoothed, microseconds.
    trips: BTreeMap<NodeName, Micros>,
    /// Of the groups that this node leads.
    led: BTreeMap<GroupId, Led>,
    /// When it looks next.
    next: Micros,
}

/// A group that this node leads.
#[derive(Debug, Default)]
struct Led {
    /// In which ballot.
    ballot: Ballot,
    /// How far its members say that their nearest quorum is.
    told: BTreeMap<NodeName, Micros>,
    leading: Leading,
}

impl Distances {
    /// A beat that was sent then has just been answered.
    pub(super) fn measure(&mut self, from: NodeName, sent: Micros, now: Now) {
        let trip = now.monotonic.saturating_sub(sent);
        let known = self.trips.entry(from).or_insert(trip);
        *known = *known - *known / PART + trip / PART;
    }

    /// The round trip to another node, microseconds.
    pub(super) fn to(&self, name: NodeName) -> Option<Micros> {
        self.trips.get(&name).copied()
    }

    /// Who should lead a group instead of this node.
    pub(super) fn wished(&self, group: GroupId) -> Option<NodeName> {
        self.led.get(&group)?.leading.wish
    }
}

impl Here {
    /// Round trips to the other members of a group that are heard.
    pub(super) fn trips_in(&self, view: &View, now: Now) -> Vec<Micros> {
        let others = view.nodes().filter(|name| *name != self.id.name);
        let heard = others.filter(|name| self.is_alive(*name, now));
        heard
            .filter_map(|name| self.seen.distances.to(name))
            .collect()
    }

    fn own_distance(&self, view: &View, now: Now) -> Option<Micros> {
        quorum_distance(self.trips_in(view, now).into_iter(), view.len())
    }

    /// What to answer to a beat of somebody who leads these logs.
    pub(super) fn distances_to_tell(
        &self,
        leads: &[(LogId, Ballot, Slot)],
        step: &Step<'_>,
    ) -> Vec<(GroupId, Micros)> {
        if !self.registry.settings().nearest_leads {
            return Vec::new();
        }
        let groups = leads.iter().filter(|(id, ..)| id.scope == Scope::Group);
        let distance = |(id, ..): &(LogId, Ballot, Slot)| {
            let log = &self.groups.get(&id.group)?.log;
            let same = log.id() == *id;
            let far = same.then(|| self.own_distance(log.view(), step.now))?;
            Some((id.group, far?))
        };
        groups.filter_map(distance).collect()
    }

    /// A member of groups says how far its quorums are.
    pub(super) fn note_distances(&mut self, from: NodeName, distances: &[(GroupId, Micros)]) {
        for (group, far) in distances {
            let room = self.groups.get(group);
            let ballot = room.and_then(|room| {
                room.log.view().seat_of(from)?;
                room.log.leadership()
            });
            let Some(ballot) = ballot else { continue };
            let led = self.seen.distances.led.entry(*group).or_default();
            if led.ballot != ballot {
                *led = Led {
                    ballot,
                    ..Led::default()
                };
            }
            led.told.insert(from, *far);
        }
    }

    /// Looks whether another member is nearer to a quorum, for the groups that this node leads
    /// (R15). The log is handed over like any that another seat should lead.
    pub(super) fn look_at_leaders(&mut self, step: &Step<'_>) {
        let now = step.now.monotonic;
        if !self.registry.settings().nearest_leads {
            (self.seen.distances.led, self.seen.distances.next) = (BTreeMap::new(), now);
            return;
        }
        if now < self.seen.distances.next {
            return;
        }
        self.seen.distances.next = now + LOOK;
        let mut trips = core::mem::take(&mut self.seen.distances.trips);
        trips.retain(|name, _| self.directory.has(*name));
        self.seen.distances.trips = trips;
        let mut led = core::mem::take(&mut self.seen.distances.led);
        led.retain(|group, led| {
            let room = self.groups.get(group);
            room.and_then(|room| room.log.leadership()) == Some(led.ballot)
        });
        for (group, led) in &mut led {
            led.leading = self.look_at(*group, led, step);
        }
        self.seen.distances.led = led;
    }

    fn look_at(&self, group: GroupId, led: &Led, step: &Step<'_>) -> Leading {
        let Some(log) = self.groups.get(&group).map(|room| &room.log) else {
            return Leading::default();
        };
        let seats = (0..log.view().len() as u8).map(Seat);
        let distance = |seat: Seat| {
            let name = log.view().node_at(seat)?;
            let far = match seat == log.seat() {
                true => self.own_distance(log.view(), step.now)?,
                false => *led
                    .told
                    .get(&name)
                    .filter(|_| self.is_steady(log, seat, step.now))?,
            };
            Some((name, far))
        };
        let distances: Vec<(NodeName, Micros)> = seats.filter_map(distance).collect();
        let before = match self.config.planted.has(Bug::NearestAtOnce) {
            true => u32::MAX,
            false => led.leading.beaten,
        };
        leader_latency(self.id.name, &distances, before)
    }
}
