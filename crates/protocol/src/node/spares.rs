//! A node without a seat is given one in a group of those that a leader leads, where the cluster's
//! settings say so (R14): which, a [policy](crate::policy) says. What the leader goes by it has
//! seen itself; of groups that others lead it knows nothing, and takes none for the better one.

use super::policies::Change;
use super::{Here, Step};
use crate::base::{Bug, GroupId, Micros, NodeName};
use crate::policy::{self, Joinable, Survival};
use crate::settings::Join;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// How often a leader looks for nodes without a seat, microseconds.
const ROUND: Micros = 10_000_000;
/// Leaders look at different times, in so many parts of a round: of two that see the same node,
/// one has invited it before the other looks.
const TURNS: u64 = 8;
/// Groups that are compared in one round.
const SAMPLE: usize = 8;
/// Within so long members are not to die, microseconds: an hour.
const HORIZON: Micros = 3_600_000_000;
/// Who is silent for so long has died, where the settings do not say, microseconds.
const DEAD: Micros = 300_000_000;
/// Lifetimes that are remembered.
const LIFETIMES_MAX: usize = 256;

/// What a node knows of those that may be given seats, and of groups that may give them. Nothing
/// of it is durable.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Who has said that it has a seat in a group that owns segments, or is about to.
    seated: BTreeSet<NodeName>,
    /// When it looks next; none: it has not begun.
    next: Option<Micros>,
    /// Of each group the commands that its segments have had, and how many lately.
    operations: BTreeMap<GroupId, (u64, u64)>,
    /// Since when nodes are known to live, and when they were last heard.
    lives: BTreeMap<NodeName, (Micros, Micros)>,
    /// How long those have lived that were seen to die, the last ones.
    lifetimes: VecDeque<Micros>,
}

impl Spares {
    /// A node says whether it has a seat.
    pub(super) fn note_seated(&mut self, name: NodeName, seated: bool) {
        match seated {
            true => drop(self.seated.insert(name)),
            false => drop(self.seated.remove(&name)),
        }
    }

    /// Whether a node has said last that it has a seat.
    pub(super) fn is_seated(&self, name: NodeName) -> bool {
        self.seated.contains(&name)
    }

    fn age(&self, name: NodeName, now: Micros) -> Micros {
        let life = self.lives.get(&name);
        life.map_or(0, |(since, _)| now.saturating_sub(*since))
    }
}

impl Here {
    /// Whether this node has a seat in a group that owns segments, or is about to.
    pub(super) fn is_seated(&self) -> bool {
        let own = |at: &&crate::base::Location| at.group.view.seat_of(self.id.name).is_some();
        let seats = self.directory.locations().filter(own).map(|at| at.id());
        let invited = self.invitations.keys().copied();
        let mut groups = seats.chain(invited);
        groups.any(|group| group != GroupId::META)
    }

    /// Has nodes that have no seat given one, in the groups that this node leads.
    pub(super) fn seat_spares(&mut self, step: &mut Step<'_>) {
        let now = step.now.monotonic;
        let turn = u64::from(self.id.name.0) % TURNS * ROUND / TURNS;
        let next = *self.seen.spares.next.get_or_insert(now + turn);
        if now < next {
            return;
        }
        self.seen.spares.next = Some(now + ROUND);
        self.count_operations();
        self.note_lives(now);
        let Some(join) = self.registry.settings().join else {
            return;
        };
        let mut groups = self.joinable(step);
        let from = (now / ROUND) as usize % groups.len().max(1);
        groups.rotate_left(from);
        groups.truncate(SAMPLE);
        for spare in self.spares(step) {
            let Some(group) = self.group_for(spare, join, &groups) else {
                return;
            };
            // One change of a group at a time.
            groups.retain(|other| other.group != group);
            self.give_seat(group, spare, step);
        }
    }

    fn group_for(&self, spare: NodeName, join: Join, groups: &[Joinable]) -> Option<GroupId> {
        let far = self.seen.distances.to(spare).unwrap_or(Micros::MAX);
        match join {
            Join::Load => policy::join_load(groups),
            Join::Latency => policy::join_latency(groups, far),
            Join::Resilient => {
                let lived = self.seen.spares.lifetimes.iter().copied();
                let known = Survival::observed(lived);
                policy::join_resilient(groups, &known, HORIZON, far)
            }
        }
    }

    /// Who is heard, has room, does not drain, and has no seat in a group that owns segments, as it
    /// says itself and as far as this node knows.
    fn spares(&self, step: &Step<'_>) -> Vec<NodeName> {
        let planted = self.config.planted;
        let seated = |name: NodeName| {
            let mut owners = self
                .directory
                .locations()
                .filter(|at| at.id() != GroupId::META);
            owners.any(|at| at.group.view.seat_of(name).is_some())
                || self.seen.spares.is_seated(name) && !planted.has(Bug::SeatedJoins)
        };
        let present = self.registry.present();
        let may = present.filter(|(name, node)| {
            let drains = node.drains && !planted.has(Bug::DrainingJoins);
            let room = self.has_room(*name) || planted.has(Bug::FullJoins);
            !drains && room && self.hears(*name, step) && !seated(*name)
        });
        may.map(|(name, _)| name).collect()
    }

    /// The groups that this node leads, where nothing else changes.
    fn joinable(&self, step: &Step<'_>) -> Vec<Joinable> {
        let now = step.now;
        let led = self.groups.iter().filter(|(group, room)| {
            let location = room.state.location();
            let settled = location.all_pasts().all(|(_, past)| !past.open);
            // Without a quorum proposals would pile up.
            let leads = room.log.is_primary() && room.log.has_lease(now, &self.config.timing);
            let quiet = room.wanted.is_none() && !room.state.is_decided();
            **group != GroupId::META && leads && quiet && settled && location.unstarted().is_empty()
        });
        let joinable = led.map(|(group, room)| {
            let view = &room.state.location().group.view;
            let operations = self.seen.spares.operations.get(group);
            let age = |name| match name == self.id.name {
                true => now.monotonic,
                false => self.seen.spares.age(name, now.monotonic),
            };
            Joinable {
                group: *group,
                seats: view.len(),
                operations: operations.map_or(0, |(_, lately)| *lately),
                trips: self.trips_in(view, now),
                ages: view.nodes().map(age).collect(),
            }
        });
        joinable.collect()
    }

    fn give_seat(&mut self, group: GroupId, spare: NodeName, step: &mut Step<'_>) {
        let Some(location) = self.directory.location(group) else {
            return;
        };
        let members = location.group.view.nodes();
        let names: Vec<NodeName> = members.chain([spare]).collect();
        self.want(Change { group, names }, step);
    }

    /// Counts the commands of each group's segments; those of earlier rounds fade.
    fn count_operations(&mut self) {
        let mut sums: BTreeMap<GroupId, u64> = BTreeMap::new();
        for room in self.segments.values() {
            *sums.entry(room.log.id().group).or_default() += room.state.commands();
        }
        let before = core::mem::take(&mut self.seen.spares.operations);
        let lately = |(group, sum): (GroupId, u64)| {
            // Of a group that has just come nothing is known of lately.
            let (had, lately) = before.get(&group).copied().unwrap_or((sum, 0));
            (group, (sum, lately / 2 + sum.saturating_sub(had)))
        };
        self.seen.spares.operations = sums.into_iter().map(lately).collect();
    }

    /// Notes who has come to live, and who has died: was taken out, or is silent for long.
    fn note_lives(&mut self, now: Micros) {
        let dead_after = match self.registry.settings().dead_after {
            0 => DEAD,
            after => after,
        };
        let Spares { lives, seated, .. } = &mut self.seen.spares;
        for name in self.directory.nodes() {
            // One whose connection has ended is heard no more, until it is.
            if let Some(heard) = self.alive.get(&name)
                && heard + dead_after > now
            {
                let life = lives.entry(name).or_insert((*heard, *heard));
                life.1 = life.1.max(*heard);
            }
        }
        let directory = &self.directory;
        let lives_on = |name: &NodeName, life: &(Micros, Micros)| {
            directory.has(*name) && life.1 + dead_after > now
        };
        let dead = lives.iter().filter(|(name, life)| !lives_on(name, life));
        let lived: Vec<Micros> = dead.map(|(_, (since, last))| last - since).collect();
        lives.retain(|name, life| lives_on(name, life));
        seated.retain(|name| directory.has(*name));
        self.seen.spares.lifetimes.extend(lived);
        let more = self
            .seen
            .spares
            .lifetimes
            .len()
            .saturating_sub(LIFETIMES_MAX);
        self.seen.spares.lifetimes.drain(..more);
    }
}
