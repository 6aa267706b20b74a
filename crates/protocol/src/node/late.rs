//! Members that were away while a log of theirs ended.
//!
//! A node keeps one log of each scope: the one of the highest epoch that it knows the initial state
//! of. A peer that speaks of an older one is told so, and one that speaks of a later one is asked
//! for it. The answer is that log's snapshot, with which this node's replica is created; see
//! [`paxos::Joining`] for why that is truthful, and for what the old log is kept until then.
//!
//! In the ordinary course of a change of epoch nobody asks: the primary that ends the log says so
//! before it drops it, and each member creates the successor from its own state.

use super::agenda::Room;
use super::logs::{env, read_state};
use super::{Here, Step};
use crate::base::{Bug, Epoch, GroupId, LogId, NodeName, Scope, Seat, SegmentId, View};
use crate::group::GroupState;
use crate::message::Message;
use crate::paxos::{self, Joining, Log, Recovered};
use crate::segment::SegmentState;

impl Here {
    /// The epoch of the log of a scope in force here; none without a seat.
    fn epoch_of(&self, id: LogId) -> Option<Epoch> {
        let log = self.log(Room::of(id))?;
        (log.id().group == id.group).then(|| log.id().epoch)
    }

    /// Takes what is said of logs that are not here, or no longer; the rest is handed back.
    pub(super) fn on_news(
        &mut self,
        from: NodeName,
        id: LogId,
        message: paxos::Message,
        step: &mut Step<'_>,
    ) -> Option<paxos::Message> {
        use paxos::Message as M;
        let own = self.epoch_of(id)?;
        match message {
            M::Succeeded { by } if by > own => self.join(from, LogId { epoch: by, ..id }, step),
            M::Succeeded { .. } => {}
            M::Birth { view, first, chunk } if id.epoch > own => {
                self.on_birth(from, id, (view, first), chunk, step);
            }
            M::Birth { .. } => {}
            message if id.epoch == own => return Some(message),
            // A node that asks for a later log does not have that log, either.
            M::Join { .. } if id.epoch > own => {}
            _ if id.epoch > own => self.join(from, id, step),
            M::Prepare { .. } | M::Accept { .. } | M::Fetch { .. } | M::Join { .. } => {
                self.say_succeeded(from, id, own, step);
            }
            _ => {}
        }
        None
    }

    /// A peer leads a log that is not here.
    pub(super) fn on_foreign_beat(&mut self, from: NodeName, id: LogId, step: &mut Step<'_>) {
        match self.epoch_of(id) {
            Some(own) if id.epoch > own => self.join(from, id, step),
            Some(own) if id.epoch < own => self.say_succeeded(from, id, own, step),
            _ => {}
        }
    }

    /// Tells a node that a later log has succeeded this one; the node may fetch that log from here.
    /// Our copy need not be durable for that, since it began with what had been chosen.
    fn say_succeeded(&self, to: NodeName, log: LogId, by: Epoch, step: &mut Step<'_>) {
        if to != self.id.name {
            let message = paxos::Message::Succeeded { by };
            step.fx.send(to, Message::Paxos { log, message });
        }
    }

    /// Asks a peer for a later log, unless one is being asked. A silent peer may be lost with the
    /// log that it spoke of, so after a while any later log will do.
    fn join(&mut self, peer: NodeName, id: LogId, step: &mut Step<'_>) {
        let mut cx = env(&self.config, step);
        let key = (id.group, id.scope);
        let joining = self.joining.entry(key).or_insert_with(|| Joining::new(id));
        let overdue = joining.overdue(&cx);
        if id.epoch > joining.id().epoch || (overdue && id != joining.id()) {
            *joining = Joining::new(id);
        } else if !overdue {
            return;
        }
        joining.ask(peer, &mut cx);
    }

    fn on_birth(
        &mut self,
        from: NodeName,
        id: LogId,
        born: (View, Seat),
        chunk: paxos::Chunk,
        step: &mut Step<'_>,
    ) {
        let key = (id.group, id.scope);
        let Some(joining) = self.joining.get_mut(&key).filter(|j| j.id() == id) else {
            return;
        };
        let ends = (from, self.id.name);
        let mut cx = env(&self.config, step);
        // A useless answer counts as none: another node is asked again.
        if let Ok(Some(recovered)) = joining.on_birth(ends, born, chunk, &mut cx) {
            self.replace(recovered, step);
        }
    }

    /// The log of a later epoch has come with its state.
    fn replace(&mut self, recovered: Recovered, step: &mut Step<'_>) {
        let Recovered { log, state, .. } = recovered;
        let id = log.id();
        let empty = self.config.planted.has(Bug::LateReplicaEmpty);
        match id.scope {
            Scope::Group => {
                if let Some(state) = read_state(id, &state, step) {
                    self.replace_group(id.group, log, state, step);
                }
            }
            Scope::Segment(segment) => {
                let state = read_state(id, &state, step);
                if let Some(state) = state.map(|s| if empty { SegmentState::default() } else { s })
                {
                    self.replace_segment(segment, log, state, step);
                }
            }
        }
    }

    /// Puts a segment's log of a later epoch in the place of the present one, which is dropped. A
    /// primary of the old one ends when the segment is run.
    pub(super) fn replace_segment(
        &mut self,
        segment: SegmentId,
        log: Log,
        state: SegmentState,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.segments.get_mut(&segment) else {
            return;
        };
        let id = log.id();
        let gone = core::mem::replace(&mut room.log, log).id();
        room.state = state;
        self.drop_log(gone, id, step);
        self.agenda.run(Room::Segment(segment));
    }

    /// Puts a group's log of a later epoch in the place of the present one, which is dropped. Those
    /// who wait for a command in the old one are told when the group is run.
    pub(super) fn replace_group(
        &mut self,
        group: GroupId,
        log: Log,
        state: GroupState,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.groups.get_mut(&group) else {
            return;
        };
        let id = log.id();
        let gone = core::mem::replace(&mut room.log, log).id();
        room.state = state;
        self.drop_log(gone, id, step);
        self.agenda.run(Room::Group(group));
    }

    /// Forgets a log in the batch that has created a later one.
    fn drop_log(&mut self, gone: LogId, present: LogId, step: &mut Step<'_>) {
        assert!(gone.epoch < present.epoch, "epochs ascend");
        Log::delete(gone, step.fx);
        let key = (present.group, present.scope);
        let joined = |j: &Joining| j.id().epoch <= present.epoch;
        if self.joining.get(&key).is_some_and(joined) {
            self.joining.remove(&key);
        }
    }
}
