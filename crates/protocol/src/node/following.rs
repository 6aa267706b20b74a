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
use crate::base::{Bug, Epoch, GroupId, Location, LogId, Micros, NodeName, Scope, SegmentId, View};
use crate::command::{Body, Command, GroupCommand};
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
pub(super) const PATIENCE: u64 = 8;

/// A log that is followed here without a seat.
#[derive(Debug)]
pub(super) struct Following {
    learner: Learner,
    /// What it orders, as far as it is known here.
    state: Option<State>,
    /// Where it has ended and nobody invites this node any more, it is kept until then.
    until: Micros,
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

/// What somebody wants of a group, and waits for members.
#[derive(Debug)]
pub(super) struct Wanted {
    command: Command,
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
                let following = Following {
                    learner,
                    state: None,
                    until: step.now.monotonic,
                };
                self.following.insert(room, following);
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
            let level =
                following.is_some_and(|f| f.learner.id().epoch == epoch && f.learner.is_level(&cx));
            level && self.is_filled(room)
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

    fn is_filled(&self, room: Room) -> bool {
        let cold = self.config.planted.has(Bug::WarmUnfilled);
        match room {
            Room::Segment(segment) => cold || self.has_records(segment),
            Room::Group(_) => true,
        }
    }

    /// All records of a segment are here: this node may be warm now.
    pub(super) fn filled(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let following = self.following.get(&Room::Segment(segment));
        if let Some(group) = following.map(|following| following.learner.id().group) {
            self.say_warm(group, step);
        }
    }

    /// The state of a segment whose log is followed here.
    pub(super) fn followed(&self, segment: SegmentId) -> Option<&SegmentState> {
        match &self.following.get(&Room::Segment(segment))?.state {
            Some(State::Segment(state)) => Some(state),
            _ => None,
        }
    }

    /// The segments whose logs are followed here.
    pub(super) fn followed_segments(&self) -> impl Iterator<Item = SegmentId> {
        self.following.keys().filter_map(|room| match room {
            Room::Segment(segment) => Some(*segment),
            Room::Group(_) => None,
        })
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
                for command in commands {
                    self.apply_followed(room, &command, step);
                }
            }
        }
        self.agenda.run(room);
        self.say_warm(id.group, step);
        None
    }

    fn apply_followed(&mut self, room: Room, command: &Command, step: &mut Step<'_>) {
        let planted = self.config.planted;
        let following = self.following.get_mut(&room);
        match following.and_then(|following| following.state.as_mut()) {
            Some(State::Segment(state)) => {
                let before = state.recorded();
                let applied = state.apply(command, planted);
                if let (Room::Segment(segment), false) = (room, applied.work.is_empty()) {
                    let at = (applied.position, before);
                    self.record(segment, at, applied.work, step);
                }
            }
            Some(State::Group(state)) => drop(state.apply(command, planted)),
            None => {}
        }
    }

    /// Asks again for what is followed; what nobody has invited this node to any more it forgets.
    pub(super) fn follow_on(&mut self, step: &mut Step<'_>) {
        let now = step.now.monotonic;
        self.invitations.retain(|_, invited| invited.until > now);
        let invitations = &self.invitations;
        let patience = PATIENCE * self.config.timing.retry;
        self.following.retain(|_, following| {
            let invited = invitations.contains_key(&following.learner.id().group);
            if invited {
                following.until = now + patience;
            }
            // One that has ended is about to go on, but perhaps without this node.
            let ended = following.learner.stopped().is_some();
            invited || ended && following.until > now
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
            && state.is_decided()
        {
            let next = (**state).clone().succeed();
            self.learn_location(next.location(), step);
        }
        let location = self.location_at(id)?;
        if location.epoch() == id.epoch {
            return None;
        }
        let stop = self.following.get(&room)?.learner.stopped();
        let view = &location.group.view;
        let at = (location.id(), location.epoch());
        let next = stop.is_none_or(|stop| (stop.group, stop.next) == at);
        if !next || view.seat_of(self.id.name).is_none() {
            self.following.remove(&room);
            return None;
        }
        let stop = stop?;
        let state = self.following.remove(&room)?.state?;
        Some((id, stop, state))
    }

    /// Proposes how a group goes on once its next members follow, or refuses it; until then it is
    /// kept.
    pub(super) fn want_members(
        &mut self,
        group: GroupId,
        by: (NodeName, u64),
        command: Command,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.groups.get_mut(&group) else {
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
                room.wanted = Some(Wanted { command, by, until });
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
        if self.seats_without_room(group, &wanted.command) {
            return refuse(wanted.by, Rejection::NoRoom, step);
        }
        let readiness = self.readiness(group, &wanted.command, step);
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

    /// Whether somebody is to have a seat who has none and, by now, no room on its disk.
    fn seats_without_room(&self, group: GroupId, command: &Command) -> bool {
        let present = self.groups.get(&group).map(|room| room.log.view());
        let seated = |name| present.is_some_and(|view| view.seat_of(name).is_some());
        let mut names = next_views(command).into_iter().flat_map(View::nodes);
        let full = names.any(|name| !seated(name) && !self.has_room(name));
        // Who is chosen in spite of that would be refused here.
        let planted = [Bug::FilledIsSeated, Bug::FullJoins];
        full && !planted.iter().any(|bug| self.config.planted.has(*bug))
    }

    /// Whether a group could go on as a command has it at once.
    fn readiness(&self, group: GroupId, command: &Command, step: &Step<'_>) -> Readiness {
        let views = next_views(command).into_iter();
        let each = views.map(|view| self.readiness_of(group, view, step));
        let none = Readiness {
            quorum: true,
            all: true,
            cold: Vec::new(),
        };
        each.fold(none, |all, view| Readiness {
            quorum: all.quorum && view.quorum,
            all: all.all && view.all,
            cold: [all.cold, view.cold].concat(),
        })
    }

    fn readiness_of(&self, group: GroupId, view: &View, step: &Step<'_>) -> Readiness {
        let heard: Vec<NodeName> = view.nodes().filter(|n| self.hears(*n, step)).collect();
        let warm = |node: &NodeName| {
            let room = self.groups.get(&group);
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

    /// Whether a command that decides how a group goes on is to wait for its next members before it
    /// is proposed. One that will not be allowed is refused at once.
    pub(super) fn waits_for_members(
        &self,
        group: GroupId,
        command: &Command,
        step: &Step<'_>,
    ) -> bool {
        let Some(room) = self.groups.get(&group) else {
            return false;
        };
        let (location, least) = (room.state.location(), self.directory.least());
        let may = match &command.body {
            Body::Group(GroupCommand::Next { view, pressing, .. }) => {
                !pressing && location.check_next(view, least, false).is_ok()
            }
            Body::Group(GroupCommand::Split { split, .. }) => {
                location.check_split(split, least).is_ok()
            }
            _ => false,
        };
        let ready = |planted: bool| planted || self.readiness(group, command, step).all;
        let ready = ready(self.config.planted.has(Bug::NextUnheard));
        let asks = !self.config.planted.has(Bug::ReadyIsSeated);
        may && (!ready || asks && self.seats_without_room(group, command))
    }
}

/// The views in which a group goes on.
fn next_views(command: &Command) -> Vec<&View> {
    match &command.body {
        Body::Group(GroupCommand::Next { view, .. }) => Vec::from([view]),
        Body::Group(GroupCommand::Split { split, .. }) => Vec::from([&split.view, &split.child]),
        _ => Vec::new(),
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
        let next = stop.successor_of(id);
        let location = self.here.location_at(id);
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
