//! A group that goes on as two, as far as the child's own log is concerned (Harmony §4.3).
//!
//! **Problem.** The group's log decides that it splits, and ends with that. Whoever is to have a
//! seat in the child creates the child's log from that end; but the others of the group go on, and
//! drop what has ended, perhaps before any of the child's members but one has come so far.
//!
//! **Idea.** The state in which the child's log begins is part of the parent's own, which is handed
//! on from log to log, until an entry of the child's is chosen. Who has the parent's state gives it
//! to whoever lacks it: so the child begins as long as the parent goes on. Its segments' logs are
//! handed over like those of a group whose members change ([`super::epochs`]).

use super::logs::env;
use super::{Here, Step};
use crate::base::{Bug, GroupId, LogId, NodeName, Scope, Seat};
use crate::command::{Body, GroupCommand};
use crate::group::GroupState;
use crate::paxos::Heir;
use crate::ring::Message;
use crate::wire;
use alloc::vec::Vec;

/// The log with which a group begins that has split off.
fn first_log(child: &GroupState) -> LogId {
    LogId {
        group: child.location().id(),
        scope: Scope::Group,
        epoch: child.location().epoch(),
    }
}

/// Gives that log to its members.
fn heir(child: &GroupState) -> Heir {
    let view = child.location().group.view.clone();
    Heir::new(first_log(child), view, Seat(0), wire::encode(child))
}

impl Here {
    /// What is to be given on of a group that has split off from this one.
    pub(super) fn child_of(&self, group: GroupId) -> Option<&GroupState> {
        let room = self.groups.get(&group)?;
        let child = room.state.child();
        child.filter(|_| !self.config.planted.has(Bug::ChildForgotten))
    }

    /// Creates the log of a group that has split off, where this node has a seat in it and has
    /// never had that log.
    pub(super) fn begin_child(&mut self, child: &GroupState, step: &mut Step<'_>) {
        let id = first_log(child);
        self.learn_location(child.location(), step);
        let view = &child.location().group.view;
        if view.seat_of(self.id.name).is_some() && !self.has_or_had(id) {
            let log = self.create(id, view, Seat(0), wire::encode(child), step);
            self.replace_group(id.group, log, child.clone(), step);
        }
    }

    /// With what a child begins, for a node that asks for the child's log.
    pub(super) fn heir_of(&self, id: LogId) -> Option<Heir> {
        let parents = self.groups.keys();
        let mut children = parents.filter_map(|parent| self.child_of(*parent));
        children.find(|child| first_log(child) == id).map(heir)
    }

    /// Gives the beginning of a child to its members, where this node leads the parent, until the
    /// child is known to go on by itself.
    pub(super) fn follow_children(&mut self, step: &mut Step<'_>) {
        let led = self.groups.iter().filter(|(_, room)| room.log.is_primary());
        let led: Vec<GroupId> = led.map(|(group, _)| *group).collect();
        for parent in led {
            let Some(child) = self.child_of(parent) else {
                continue;
            };
            let (id, begins) = (first_log(child), child.location());
            let known = self.directory.location(id.group);
            if known.is_some_and(|known| known.is_later_than(begins)) {
                let begun = GroupCommand::ChildBegun(id.group);
                self.propose_own(parent, Body::Group(begun), step);
                continue;
            }
            let me = self.id.name;
            let members = begins.group.view.nodes().filter(|node| *node != me);
            let members: Vec<NodeName> = members.collect();
            let mut heir = heir(child);
            for node in members {
                let (group, segment) = (id.group, None);
                step.fx.send(node, Message::Where { group, segment });
                heir.on_join(node, None, &mut env(&self.config, step));
            }
        }
    }

    /// The parent's state, which has come from elsewhere, has a child of which this node is a
    /// member.
    pub(super) fn run_child(&mut self, parent: GroupId, step: &mut Step<'_>) {
        if let Some(child) = self.child_of(parent).cloned() {
            self.begin_child(&child, step);
        }
    }
}
