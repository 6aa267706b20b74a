//! What a group's leader wants unasked, where the cluster's settings say so: it proposes what a
//! [policy](crate::policy) wishes, like anybody else who asks for it.

use super::Here;
use super::Step;
use super::distances::Distances;
use super::spares::Spares;
use crate::base::{Bug, GroupId, Member, Micros, NodeName, SiteId, View};
use crate::command::{Body, Command, GroupCommand};
use crate::policy::{self, Candidate};
use crate::sessions::Sessions;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What a node has seen of others, by which policies decide.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Since when nothing was heard of nodes that are in the cluster.
    silent: BTreeMap<NodeName, Micros>,
    /// When those were heard for the last time whose connections have ended.
    pub(super) gone: BTreeMap<NodeName, Micros>,
    /// Of nodes that may be given seats, and of groups that may give them.
    pub(super) spares: Spares,
    /// How far others are.
    pub(super) distances: Distances,
    /// Those without room on their disks, as they said last.
    pub(super) full: BTreeSet<NodeName>,
}

/// The members with which a group is to go on.
pub(super) struct Change {
    pub(super) group: GroupId,
    pub(super) names: Vec<NodeName>,
}

impl Here {
    /// Has the seats of nodes that were silent for long given to others, in the groups that this
    /// node leads (R13).
    pub(super) fn replace_dead(&mut self, step: &mut Step<'_>) {
        let after = self.registry.settings().dead_after;
        if after == 0 {
            self.seen.silent.clear();
            return;
        }
        let now = step.now.monotonic;
        let present = self.registry.present().map(|(name, _)| name);
        let silent: Vec<NodeName> = present.filter(|name| !self.hears(*name, step)).collect();
        let for_ever = self.config.planted.has(Bug::DeadForEver);
        self.seen
            .silent
            .retain(|name, _| for_ever || silent.contains(name));
        for name in silent {
            self.seen.silent.entry(name).or_insert(now);
        }
        let wait = match self.config.planted.has(Bug::DeadAtOnce) {
            true => 0,
            false => after,
        };
        let dead = self
            .seen
            .silent
            .iter()
            .filter(|(_, since)| *since + wait <= now);
        let dead: Vec<NodeName> = dead.map(|(name, _)| *name).collect();
        let led = self.groups.iter().filter(|(_, room)| room.log.is_primary());
        let led: Vec<GroupId> = led.map(|(group, _)| *group).collect();
        for group in led {
            if let Some(change) = dead
                .iter()
                .find_map(|dead| self.without_dead(group, *dead, step))
            {
                self.want(change, step);
            }
        }
    }

    /// How a group that is settled goes on without a dead member.
    fn without_dead(&self, group: GroupId, dead: NodeName, step: &Step<'_>) -> Option<Change> {
        let location = self.groups.get(&group)?.state.location();
        let settled = location.all_pasts().all(|(_, past)| !past.open);
        let view = &location.group.view;
        let members: Vec<(NodeName, SiteId)> = view
            .seats
            .iter()
            .map(|member| (member.name, member.site))
            .collect();
        let candidates = self.candidates(group, view, step);
        let least = usize::from(self.directory.least());
        let names = policy::replace_dead(&members, dead, &candidates, least).filter(|_| settled)?;
        Some(Change { group, names })
    }

    /// Whether a node has room on its disk, as far as it has said.
    pub(super) fn has_room(&self, name: NodeName) -> bool {
        match name == self.id.name {
            true => self.writable,
            false => !self.seen.full.contains(&name),
        }
    }

    /// Who may be given a seat: who is heard, has room, and does not drain. In the meta-group
    /// anybody; else who has no seat in a group that owns segments.
    fn candidates(&self, group: GroupId, view: &View, step: &Step<'_>) -> Vec<Candidate> {
        let seats = |name: NodeName| {
            let owners = self
                .directory
                .locations()
                .filter(|at| at.id() != GroupId::META);
            let views = owners.map(|at| &at.group.view);
            views.filter(|view| view.seat_of(name).is_some()).count()
        };
        let present = self.registry.present();
        let may = present.filter(|(name, node)| {
            let seated = group != GroupId::META
                && self.seen.spares.is_seated(*name)
                && !self.config.planted.has(Bug::SeatedReplaces);
            let able = !node.drains && !seated && self.has_room(*name) && self.hears(*name, step);
            able && view.seat_of(*name).is_none()
        });
        let candidates = may.map(|(name, node)| Candidate {
            name,
            site: node.site,
            seats: seats(name),
        });
        candidates
            .filter(|candidate| group == GroupId::META || candidate.seats == 0)
            .collect()
    }

    /// Asks for a change, like anybody else.
    pub(super) fn want(&mut self, change: Change, step: &mut Step<'_>) {
        let Change { group, names } = change;
        let Some(location) = self.groups.get(&group).map(|room| room.state.location()) else {
            return;
        };
        let epoch = location.epoch().next();
        let seat = |name: &NodeName| Member {
            name: *name,
            site: self.directory.site_of(*name),
            public_key: None,
        };
        let view = View {
            group,
            epoch,
            seats: names.iter().map(seat).collect(),
        };
        let next = GroupCommand::Next {
            view,
            pressing: false,
            format: self.registry.settings().format,
        };
        let command = Command::new(Sessions::OWN, 0, 0, epoch, Body::Group(next));
        self.want_members(group, (self.id.name, 0), command, step);
    }
}
