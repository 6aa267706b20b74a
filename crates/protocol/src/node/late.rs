//! Members that were away while a log of theirs ended.
//!
//! A node keeps one log of each scope: the one of the highest epoch that it knows the initial state
//! of. A peer that speaks of an older one is told so, and one that speaks of a later one is asked
//! for it. The answer is that log's snapshot, with which this node's replica is created; see
//! [`paxos::Joining`] for why that is truthful, and for what the old log is kept until then.
//!
//! In the ordinary course of a change of epoch nobody asks: the primary that ends the log says so
//! before it drops it, each member creates the successor from its own state, and who had no seat is
//! given it by that primary.

use super::agenda::Room;
use super::logs::{env, read_state};
use super::{GroupLog, Here, Step};
use crate::base::{Bug, Epoch, GroupId, LockRef, LogId, NodeName, Scope, Seat, Slot, View};
use crate::group::GroupState;
use crate::message::Message;
use crate::paxos::{self, Joining, Log, Recovered};
use crate::segment::SegmentState;

impl Here {
    /// The epoch of the log of a scope in force here, whichever group has it; none without a seat.
    fn epoch_of(&self, id: LogId) -> Option<Epoch> {
        Some(self.log(Room::of(id))?.id().epoch)
    }

    /// Whether a log is here, or a later one, or none up to it may be created.
    pub(super) fn has_or_had(&self, id: LogId) -> bool {
        self.epoch_of(id).is_some_and(|own| own >= id.epoch) || self.retired(id) >= id.epoch
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
        // A log that was retired is as good as one that ended: nothing up to it is created.
        let own = self.epoch_of(id);
        let past = own.unwrap_or_else(|| self.retired(id));
        match message {
            M::Succeeded { group, by } if by > past => {
                let next = LogId {
                    group,
                    epoch: by,
                    ..id
                };
                self.join(from, next, step);
            }
            M::Succeeded { .. } => {}
            M::Birth { view, first, chunk } if id.epoch > past => {
                self.on_birth(from, id, (view, first), chunk, step);
            }
            M::Birth { .. } => {}
            message if Some(id.epoch) == own => return Some(message),
            // A node that asks for a later log does not have that log, either.
            M::Join { resume } if id.epoch > past => self.on_join(from, id, resume, step),
            _ if id.epoch > past => self.join(from, id, step),
            M::Prepare { .. } | M::Accept { .. } | M::Fetch { .. } | M::Join { .. } => {
                self.say_succeeded(from, id, past, step);
            }
            _ => {}
        }
        None
    }

    /// A node asks for a log of which this one knows how it begins, having no seat in it.
    fn on_join(
        &mut self,
        from: NodeName,
        id: LogId,
        resume: Option<(Slot, u64)>,
        step: &mut Step<'_>,
    ) {
        let closing = self.closing.get_mut(&Room::of(id));
        let heir = closing.and_then(|closing| closing.heir.as_mut());
        if let Some(heir) = heir.filter(|heir| heir.id() == id) {
            heir.on_join(from, resume, &mut env(&self.config, step));
        } else if let Some(mut heir) = self.heir_of(id) {
            heir.on_join(from, resume, &mut env(&self.config, step));
        }
    }

    /// A peer leads a log that is not here.
    pub(super) fn on_foreign_beat(&mut self, from: NodeName, id: LogId, step: &mut Step<'_>) {
        let past = self.epoch_of(id).unwrap_or_else(|| self.retired(id));
        if id.epoch > past {
            self.join(from, id, step);
        } else if id.epoch < past {
            self.say_succeeded(from, id, past, step);
        }
    }

    /// Tells a node that a later log has succeeded this one. If it is here the node may fetch it:
    /// our copy need not be durable for that, since it began with what had been chosen. Who has
    /// retired it says where the group is, and no more: a node asks whoever answers first, and
    /// would ask in vain.
    fn say_succeeded(&self, to: NodeName, log: LogId, by: Epoch, step: &mut Step<'_>) {
        let here = self.log(Room::of(log)).map(|log| log.id().group);
        let offers = self.config.planted.has(Bug::RetiredOffers);
        let group = here.or(offers.then_some(log.group));
        if let Some(group) = group.filter(|_| to != self.id.name) {
            let message = paxos::Message::Succeeded { group, by };
            step.fx.send(to, Message::Paxos { log, message });
        }
        // It may have no seat there.
        if let Some(location) = self.location_at(log) {
            self.tell_location(to, location, step);
        }
    }

    /// A segment's log waits for the group's: what is known of where the group is says which
    /// earlier stores its registers have.
    fn may_join(&self, id: LogId) -> bool {
        let location = self.directory.location(id.group);
        id.scope == Scope::Group || location.is_some_and(|at| at.epoch() >= id.epoch)
    }

    /// Asks a peer for a later log, unless one is being asked. A silent peer may be lost with the
    /// log that it spoke of, so after a while any later log will do.
    pub(super) fn join(&mut self, peer: NodeName, id: LogId, step: &mut Step<'_>) {
        if !self.may_join(id) {
            return;
        }
        let mut cx = env(&self.config, step);
        let joining = self
            .joining
            .entry(Room::of(id))
            .or_insert_with(|| Joining::new(id));
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
        let room = Room::of(id);
        let asked = self.joining.get(&room).map(|joining| joining.id().epoch);
        if asked.is_none_or(|epoch| epoch < id.epoch) && self.may_join(id) {
            // Who ends a log gives the next one unasked to those who had no seat.
            let given = Joining::given(id, from, &env(&self.config, step));
            self.joining.insert(room, given);
        }
        let Some(joining) = self.joining.get_mut(&room).filter(|j| j.id() == id) else {
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
                if let Some(state) = state.map(|s: SegmentState| match empty {
                    true => SegmentState::beginning(LockRef(1), s.store(), s.format()),
                    false => s,
                }) {
                    self.replace_segment(segment, log, state, step);
                }
            }
        }
    }

    /// Puts a group's log in the place of what this node has of it: nothing, or a former one, which
    /// is dropped. Those who wait for a command in the old one are told when the group is run.
    pub(super) fn replace_group(
        &mut self,
        group: GroupId,
        log: Log,
        state: GroupState,
        step: &mut Step<'_>,
    ) {
        let id = log.id();
        let closed = self.closing.remove(&Room::Group(group));
        let gone = match self.groups.get_mut(&group) {
            Some(room) => {
                room.state = state;
                room.reported.clear();
                room.warm.clear();
                Some(core::mem::replace(&mut room.log, log).id())
            }
            None => {
                self.groups.insert(group, GroupLog::new(log, state));
                closed.map(|closing| closing.log.id())
            }
        };
        self.drop_log(gone, id, step);
        self.agenda.run(Room::Group(group));
    }
}
