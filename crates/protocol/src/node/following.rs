//! A node that is to have a seat follows the group's logs before it has it.
//!
//! Whoever leads the group has it decided who its members are, and asks first: it *invites* those
//! that have no seat yet, who follow the group's log and its segments' ([`Learner`]), and say that
//! they are *warm* when they know all that was chosen lately. It proposes the view when a quorum
//! of it, for every policy in use, is heard, and has a seat or is warm. Nothing unsafe follows
//! where it is wrong: a member that knows nothing is given its logs when it has its seat
//! ([`super::late`]). A change that is *pressing* is not waited for.

use super::agenda::Room;
use super::logs::{env, read_state};
use super::{Here, Node, Step};
use crate::base::{Bug, Epoch, GroupId, Location, LogId, Micros, NodeName, Scope, View};
use crate::command::Command;
use crate::coordinator;
use crate::group::GroupState;
use crate::lock::Rejection;
use crate::paxos::{self, Learned, Learner, Stop};
use crate::ring::Message;
use crate::segment::SegmentState;
use crate::wire;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Retry times for which an invitation holds, and for which a change waits for its new members.
const PATIENCE: u64 = 8;

/// A log that is followed here without a seat.
#[derive(Debug)]
pub(super) struct Following {
    learner: Learner,
    /// What it orders, as far as it is known here.
    state: Option<State>,
}

#[derive(Debug)]
enum State {
    Segment(Box<SegmentState>),
    Group(Box<GroupState>),
}

/// A group that has invited this node.
#[derive(Debug)]
pub(super) struct Invitation {
    /// Who is to be told that this node is warm.
    by: NodeName,
    until: Micros,
    /// It has been told.
    warm: bool,
}

/// A view that somebody wants and that waits for its new members.
#[derive(Debug)]
pub(super) struct Wanted {
    command: Command,
    view: View,
    /// Who asks, and by which call.
    pub(super) by: (NodeName, u64),
    until: Micros,
}

impl Here {
    /// Follows the logs of a group that is about to give this node a seat.
    pub(super) fn on_invite(&mut self, from: NodeName, location: &Location, step: &mut Step<'_>) {
        self.learn_location(location, step);
        let group = location.id();
        let Some(known) = self.directory.location(group) else {
            return;
        };
        let view = known.group.view.clone();
        let seated = |name| view.seat_of(name).is_some();
        if view.epoch != location.epoch() || seated(self.id.name) || !seated(from) {
            return;
        }
        let scopes = known.group.segments().map(Scope::Segment);
        let scopes: Vec<Scope> = scopes.chain([Scope::Group]).collect();
        let invitation = Invitation {
            by: from,
            until: step.now.monotonic + PATIENCE * self.config.timing.retry,
            warm: false,
        };
        self.invitations.insert(group, invitation);
        for scope in scopes {
            let epoch = view.epoch;
            let id = LogId {
                group,
                scope,
                epoch,
            };
            let room = Room::of(id);
            let known = self.following.get(&room).map(|f| f.learner.id());
            if known != Some(id) {
                let mut cx = env(&self.config, step);
                let learner = Learner::new(id, view.clone(), from, &mut cx);
                let state = None;
                self.following.insert(room, Following { learner, state });
            }
        }
        self.say_warm(group, step);
    }

    /// Tells whoever invited this node, once, that it knows all that was chosen lately.
    fn say_warm(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(location) = self.directory.location(group) else {
            return;
        };
        let epoch = location.epoch();
        let segments = location.group.segments().map(Room::Segment);
        let cx = env(&self.config, step);
        let level = |room: Room| {
            let following = self.following.get(&room);
            following.is_some_and(|f| f.learner.id().epoch == epoch && f.learner.is_level(&cx))
        };
        let warm = segments.chain([Room::Group(group)]).all(level);
        if let Some(invitation) = self.invitations.get_mut(&group)
            && warm
            && !invitation.warm
        {
            invitation.warm = true;
            let by = invitation.by;
            step.fx.send(by, Message::Warm { group, epoch });
        }
    }

    /// Takes what is said of a log that is followed here; the rest is handed back.
    pub(super) fn on_followed(
        &mut self,
        from: NodeName,
        id: LogId,
        message: paxos::Message,
        step: &mut Step<'_>,
    ) -> Option<paxos::Message> {
        let room = Room::of(id);
        let followed = self.following.get_mut(&room);
        let Some(following) = followed.filter(|following| following.learner.id() == id) else {
            return Some(message);
        };
        if matches!(message, paxos::Message::Succeeded { .. }) {
            // With a seat in what follows this node is given it.
            self.following.remove(&room);
            return None;
        }
        let mut cx = env(&self.config, step);
        match following.learner.on_message(from, message, &mut cx) {
            Learned::Nothing => {}
            Learned::State(bytes) => {
                let state = match id.scope {
                    Scope::Segment(_) => {
                        read_state(id, &bytes, step).map(|state| State::Segment(Box::new(state)))
                    }
                    Scope::Group => {
                        read_state(id, &bytes, step).map(|state| State::Group(Box::new(state)))
                    }
                };
                following.state = state;
            }
            Learned::Commands(commands) => {
                let planted = self.config.planted;
                for command in commands {
                    match &mut following.state {
                        Some(State::Segment(state)) => drop(state.apply(&command, planted)),
                        Some(State::Group(state)) => drop(state.apply(&command, planted)),
                        None => {}
                    }
                }
            }
        }
        self.agenda.run(room);
        self.say_warm(id.group, step);
        None
    }

    /// Asks again for what is followed; what nobody has invited this node to any more it forgets.
    pub(super) fn follow_on(&mut self, step: &mut Step<'_>) {
        let now = step.now.monotonic;
        self.invitations.retain(|_, invited| invited.until > now);
        let invitations = &self.invitations;
        // One that has ended is about to go on.
        self.following.retain(|_, following| {
            let invited = invitations.contains_key(&following.learner.id().group);
            invited || following.learner.stopped().is_some()
        });
        let mut cx = env(&self.config, step);
        for following in self.following.values_mut() {
            following.learner.again(&mut cx);
        }
    }

    /// A log that was followed has ended, with its state here, and what follows is known: then no
    /// seat in it is left to wait for.
    fn outgrown(&mut self, room: Room, step: &mut Step<'_>) -> Option<(LogId, Stop, State)> {
        let following = self.following.get(&room)?;
        let id = following.learner.id();
        if let Some(State::Group(state)) = &following.state
            && state.decided().is_some()
        {
            let next = (**state).clone().succeed();
            self.learn_location(next.location(), step);
        }
        let location = self.directory.location(id.group)?;
        if location.epoch() == id.epoch {
            return None;
        }
        let stop = self.following.get(&room)?.learner.stopped();
        let view = &location.group.view;
        let next = stop.is_none_or(|stop| stop.next == location.epoch());
        if !next || view.seat_of(self.id.name).is_none() {
            self.following.remove(&room);
            return None;
        }
        let stop = stop?;
        let state = self.following.remove(&room)?.state?;
        Some((id, stop, state))
    }

    /// Proposes a view once its new members follow, or refuses it; until then it is kept.
    pub(super) fn want_view(
        &mut self,
        by: (NodeName, u64),
        command: Command,
        view: View,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.groups.get_mut(&view.group) else {
            return;
        };
        let id = (command.session, command.number);
        let until = step.now.monotonic + PATIENCE * self.config.timing.retry;
        match &mut room.wanted {
            Some(wanted) if (wanted.command.session, wanted.command.number) == id => {
                wanted.by = by;
            }
            Some(_) => refuse(by, Rejection::Busy, step),
            None => {
                let group = view.group;
                room.wanted = Some(Wanted {
                    command,
                    view,
                    by,
                    until,
                });
                self.bring_about(group, step);
            }
        }
    }

    /// A node that was invited knows what was chosen lately.
    pub(super) fn on_warm(
        &mut self,
        from: NodeName,
        group: GroupId,
        epoch: Epoch,
        step: &mut Step<'_>,
    ) {
        if let Some(room) = self.groups.get_mut(&group)
            && room.log.id().epoch == epoch
            && room.wanted.is_some()
        {
            room.warm.insert(from, step.now.monotonic);
            self.bring_about(group, step);
        }
    }

    /// Invites again whom a wanted view waits for, and gives up in time.
    pub(super) fn bring_all_about(&mut self, step: &mut Step<'_>) {
        let wanted = self.groups.iter().filter(|(_, room)| room.wanted.is_some());
        let wanted: Vec<GroupId> = wanted.map(|(group, _)| *group).collect();
        for group in wanted {
            self.bring_about(group, step);
        }
    }

    fn bring_about(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(wanted) = self.groups.get_mut(&group).and_then(|r| r.wanted.take()) else {
            return;
        };
        let readiness = self.readiness(&wanted.view, step);
        let over = wanted.until <= step.now.monotonic;
        if readiness.all || (over && readiness.quorum) {
            return self.propose_to_log(group, wanted.by, wanted.command, step);
        }
        if over {
            return refuse(wanted.by, Rejection::NotReady, step);
        }
        if let Some(location) = self.groups.get(&group).map(|room| room.state.location()) {
            for node in readiness.cold {
                step.fx.send(node, Message::Invite(location.clone()));
            }
        }
        if let Some(room) = self.groups.get_mut(&group) {
            room.wanted = Some(wanted);
        }
    }

    /// Whether a view could go on at once.
    fn readiness(&self, view: &View, step: &Step<'_>) -> Readiness {
        let heard: Vec<NodeName> = view.nodes().filter(|n| self.hears(*n, step)).collect();
        let warm = |node: &NodeName| {
            let room = self.groups.get(&view.group);
            room.is_some_and(|room| {
                let seated = room.log.view().seat_of(*node).is_some();
                let lately = PATIENCE * self.config.timing.retry;
                let since = room.warm.get(node);
                seated || since.is_some_and(|at| at + lately > step.now.monotonic)
            })
        };
        let (warm, cold): (Vec<NodeName>, Vec<NodeName>) = heard.into_iter().partition(warm);
        let shapes = self.catalogue.all().iter();
        let quorums = shapes.filter_map(|k| k.storage.shape(view.len()).ok());
        let quorum = quorums.map(|shape| shape.quorum).max().unwrap_or_default();
        let quorum = warm.len() >= quorum.max(view.majority());
        Readiness {
            all: quorum && cold.is_empty(),
            quorum,
            cold,
        }
    }

    /// Whether a view is to wait for its new members before it is proposed.
    pub(super) fn waits_for_members(&self, view: &View, step: &Step<'_>) -> bool {
        let Some(room) = self.groups.get(&view.group) else {
            return false;
        };
        let location = room.state.location();
        let may = location
            .check_next(view, self.directory.least(), false)
            .is_ok();
        may && !self.readiness(view, step).all && !self.config.planted.has(Bug::NextUnheard)
    }
}

/// Whether a quorum of a view, for every policy in use, is heard and knows the logs.
struct Readiness {
    quorum: bool,
    /// So is everybody else that is heard.
    all: bool,
    /// Those who are heard and do not know the logs.
    cold: Vec<NodeName>,
}

pub(super) fn refuse((node, call): (NodeName, u64), why: Rejection, step: &mut Step<'_>) {
    let result = Err(why);
    step.fx
        .send(node, coordinator::Message::Proposed { call, result });
}

impl Node {
    /// Goes on as a member after a log that it has followed, from the state that it knows.
    pub(super) fn take_seat(&mut self, room: Room, step: &mut Step<'_>) {
        let Some((id, stop, state)) = self.here.outgrown(room, step) else {
            return;
        };
        let next = LogId {
            epoch: stop.next,
            ..id
        };
        let location = self.here.directory.location(id.group);
        let Some(view) = location.map(|at| at.group.view.clone()) else {
            return;
        };
        if self.here.has_or_had(next) {
            return;
        }
        let first = Here::first_after(&view, stop);
        match (state, room) {
            (State::Group(state), Room::Group(group)) => {
                let state = state.succeed();
                let start = wire::encode(&state);
                let log = self.here.create(next, &view, first, start, step);
                self.here.replace_group(group, log, state, step);
            }
            (State::Segment(state), Room::Segment(segment)) => {
                let state = state.succeed(stop, self.here.config.planted);
                let start = wire::encode(&state);
                let log = self.here.create(next, &view, first, start, step);
                self.here.replace_segment(segment, log, state, step);
            }
            _ => {}
        }
    }
}
