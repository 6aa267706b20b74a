//! Which logs a step has to do with. A node may keep a thousand logs and a step touches one or two:
//! whatever a step does to all of them is the cost of every message.
//!
//! A log is *run* when it may have delivered something, begun to lead, or ended. It is *touched*
//! when anything at all was done with it: then it is flushed once, at the end of the step, and its
//! wish to be ticked is read anew. Wishes of logs that were not touched stand.

use crate::base::{GroupId, LogId, Micros, Scope, SegmentId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A log of this node, with what belongs to it, whatever its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    /// Of a segment.
    Segment(SegmentId),
    /// A group's own.
    Group(GroupId),
}

impl Room {
    /// Of the log, whatever its epoch.
    pub(super) fn of(id: LogId) -> Room {
        match id.scope {
            Scope::Group => Room::Group(id.group),
            Scope::Segment(segment) => Room::Segment(segment),
        }
    }
}

/// What is to be done for which log.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    to_run: BTreeSet<Room>,
    touched: BTreeSet<Room>,
    wishes: BTreeSet<(Micros, Room)>,
    wished: BTreeMap<Room, Micros>,
}

impl Agenda {
    /// The log may have moved on.
    pub(super) fn run(&mut self, room: Room) {
        self.to_run.insert(room);
    }

    /// Something was done with the log that it need not be run for.
    pub(super) fn touch(&mut self, room: Room) {
        self.touched.insert(room);
    }

    /// Takes a log that is to be run; it is touched by that.
    pub(super) fn next_run(&mut self) -> Option<Room> {
        let room = self.to_run.pop_first()?;
        self.touched.insert(room);
        Some(room)
    }

    /// Takes a log that was touched.
    pub(super) fn next_touched(&mut self) -> Option<Room> {
        self.touched.pop_first()
    }

    /// Replaces a log's wish.
    pub(super) fn wish(&mut self, room: Room, wish: Option<Micros>) {
        let known = self.wished.get(&room).copied();
        if known == wish {
            return;
        }
        if let Some(old) = known {
            self.wishes.remove(&(old, room));
            self.wished.remove(&room);
        }
        if let Some(new) = wish {
            self.wishes.insert((new, room));
            self.wished.insert(room, new);
        }
    }

    /// Logs that want to be ticked by now.
    pub(super) fn due(&self, now: Micros) -> Vec<Room> {
        let due = self.wishes.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, room)| *room).collect()
    }

    /// The earliest wish.
    pub(super) fn next(&self) -> Option<Micros> {
        self.wishes.first().map(|(at, _)| *at)
    }
}
