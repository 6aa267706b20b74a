//! From one epoch of a group to the next, with the same members or with others (Harmony §4.2.1).
//!
//! **Problem.** Members change while clients work. Nothing that was acknowledged may be lost by it,
//! nothing may be served by two sets of members at once, and no two may wait for each other.
//!
//! **Idea.** The group alone decides, in its own log: the first chosen `Next` that is allowed. That
//! ends the group's log, and each segment's. A segment's log ends with a `Stop` that names who
//! leads next, and an acceptor of a `Stop` to other members seals the segment's store in the batch
//! of its vote: when the `Stop` is chosen, a majority of the old store is sealed. The next log
//! begins with the state in which the former one has ended.
//!
//! * Who has a seat in the next view creates the next log from its own state, and drops the former
//!   one in that batch. Who lacks that state is given it ([`super::late`]).
//! * Who has no seat there keeps the ended log, *closing*, for others: votes, entries, and the
//!   initial state of what follows. It asks whether the log may go. Who has any later log of the
//!   scope in which an entry is chosen, and in which the asker has no seat, says so; the asker
//!   notes that epoch with the removal, durably, and creates no log up to it: what comes late of an
//!   earlier one would be a second memory under the same name.
//! * The view of a log is that of the group's state, or of what a member of it was given: as
//!   chosen, never as somebody believed. Who knows of the end of a log and not of what follows
//!   waits.
//!
//! What a node knows of where groups are ([`Location`]) comes from the group's log, its own or
//! another's, and only ever goes on. It is durable, since what a member says of the sources of a
//! store must hold after a restart, too.
//!
//! **Departure.** The paper changes members by a transaction with both neighbours; here a neighbour
//! without a majority hinders nobody.

use super::agenda::Room;
use super::logs::env;
use super::records::At;
use super::{Closing, Here, Node, Segment, Step};
use crate::base::{
    Bug, Epoch, GroupId, Location, LogId, NodeName, Scope, Seat, SegmentId, StoragePolicy, View,
};
use crate::command::{Body, Command, GroupCommand};
use crate::lock::{LastWords, PrimaryEnv};
use crate::paxos::{Heir, Log, Stop};
use crate::register::{Place, Source, StoreId};
use crate::registry::Registry;
use crate::ring::Message;
use crate::segment::SegmentState;
use crate::sessions::Sessions;
use crate::wire::{self, record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

impl Here {
    /// Takes over where a group is, if that is news, durably. All its logs here are run: they may
    /// have to end, and operations have other sources.
    pub(super) fn learn_location(&mut self, location: &Location, step: &mut Step<'_>) {
        if !self.directory.learn(location) {
            return;
        }
        self.location_changed = true;
        let changed = self.directory.changed();
        step.fx
            .put(record::node("locations"), wire::encode(&changed));
        for segment in location.group.segments() {
            let owner = self.directory.location_of(segment).map(Location::id);
            if owner != Some(location.id()) {
                continue;
            }
            if let Some(room) = self.segments.get_mut(&segment) {
                let store = room.place.store.epoch;
                room.place.sources = sources(location, segment, store, &self.registry);
                self.agenda.run(Room::Segment(segment));
            } else {
                self.news.insert(segment);
                self.seal_sources(segment, location.store());
                // It may be followed here.
                self.agenda.run(Room::Segment(segment));
            }
        }
        self.agenda.run(Room::Group(location.id()));
    }

    /// Who is out of the cluster has changed: nobody waits for these in an earlier store.
    pub(super) fn renew_sources(&mut self) {
        for (segment, room) in &mut self.segments {
            if let Some(location) = self.directory.location_of(*segment) {
                let store = room.place.store.epoch;
                room.place.sources = sources(location, *segment, store, &self.registry);
            }
        }
    }

    /// A node has asked for a store that is not the segment's present one, taking it for that: it
    /// is told where the group is.
    pub(super) fn redirect(&self, from: NodeName, store: StoreId, step: &mut Step<'_>) {
        let location = self.directory.location_of(store.segment);
        if let Some(location) = location.filter(|at| at.store() > store.epoch) {
            self.tell_location(from, location, step);
        }
    }

    /// A node has asked for a segment's primary here, where it has no seat.
    pub(super) fn direct(&self, from: NodeName, segment: SegmentId, step: &mut Step<'_>) {
        if !self.segments.contains_key(&segment)
            && let Some(location) = self.directory.location_of(segment)
        {
            self.tell_location(from, location, step);
        }
    }

    /// A node has asked a group something here, where it has no seat.
    pub(super) fn direct_to(&self, from: NodeName, group: GroupId, step: &mut Step<'_>) {
        let silent = self.config.planted.has(Bug::FormerMemberSilent);
        if let Some(location) = self.directory.location(group).filter(|_| !silent) {
            self.tell_location(from, location, step);
        }
    }

    /// Where the log of a scope is now, whichever group has it.
    pub(super) fn location_at(&self, id: LogId) -> Option<&Location> {
        match id.scope {
            Scope::Group => self.directory.location(id.group),
            Scope::Segment(segment) => self.directory.location_of(segment),
        }
    }

    pub(super) fn tell_location(&self, to: NodeName, location: &Location, step: &mut Step<'_>) {
        if !location.is_beginning() && to != self.id.name {
            step.fx.send(to, Message::Location(location.clone()));
        }
    }

    /// The registers of a segment, for a log of these members.
    pub(super) fn place_in(&self, segment: SegmentId, view: &View, store: Epoch) -> Place {
        let seats = self.nearest_first(view.nodes());
        let order = seats.iter().filter_map(|n| view.seat_of(*n)).collect();
        let location = self.directory.location_of(segment);
        Place {
            store: StoreId {
                segment,
                epoch: store,
            },
            view: View {
                epoch: store,
                ..view.clone()
            },
            order,
            storage: StoragePolicy::Replicated,
            sources: location
                .map_or_else(Vec::new, |at| sources(at, segment, store, &self.registry)),
        }
    }

    /// The stores that end with a log of which this node has voted for the end.
    pub(super) fn note_ending(&mut self, segment: SegmentId) {
        let Some(room) = self.segments.get(&segment) else {
            return;
        };
        let moves = room.log.ending().filter(|stop| stop.moves);
        if let Some(stop) = moves.filter(|_| !self.config.planted.has(Bug::StopWithoutSeal)) {
            let place = &room.place;
            if place.store.epoch < stop.next {
                self.to_seal
                    .push((place.store, stop.next, place.view.clone()));
            }
        }
    }

    /// A log of the segment is created here, or there is none: all earlier stores are sealed in
    /// that batch, also those that this node has never written to. What has become of the segment
    /// is chosen, and no log here is interrupted by it.
    fn seal_sources(&mut self, segment: SegmentId, store: Epoch) {
        let Some(location) = self.directory.location_of(segment) else {
            return;
        };
        let earlier = location.pasts(segment).iter();
        for past in earlier.filter(|past| past.epoch < store) {
            let view = location.view_of(past.epoch);
            let own = view.filter(|view| view.seat_of(self.id.name).is_some());
            if let Some(view) = own {
                let epoch = past.epoch;
                let past = StoreId { segment, epoch };
                self.to_seal.push((past, store, view));
            }
        }
    }

    /// How this node would end a log of that epoch, once its group has decided to go on in the
    /// next: in its own name, if it has a seat there.
    fn stop_of(&self, id: LogId) -> Option<Stop> {
        let location = self.location_at(id)?;
        if location.epoch() != id.epoch.next() {
            return None;
        }
        let view = &location.group.view;
        let first = match view.seat_of(self.id.name) {
            Some(_) => self.id.name,
            None => self.first_but_this(id, view)?,
        };
        Some(Stop {
            group: location.id(),
            next: id.epoch.next(),
            first,
            moves: id.scope != Scope::Group && location.store() == location.epoch(),
            format: location.format(),
        })
    }

    /// Who should lead what follows a log, if not this node: the nearest member that is heard. One
    /// that has a seat here, or follows, begins the next log from its own state, and any other from
    /// what this node gives it, which is as quick where one message takes it.
    fn first_but_this(&self, id: LogId, view: &View) -> Option<NodeName> {
        let order = self.nearest_first(view.nodes());
        let own = self.log(Room::of(id));
        let state = match id.scope {
            Scope::Segment(segment) => self.segments.get(&segment).map(|r| wire::size(&r.state)),
            Scope::Group => self.groups.get(&id.group).map(|r| wire::size(&r.state)),
        };
        let small = state.is_some_and(|bytes| bytes <= self.config.limits.chunk);
        let follows = |n: NodeName| own.is_some_and(|log| log.is_followed_by(n));
        let seated = |n: NodeName| own.is_some_and(|log| log.view().seat_of(n).is_some());
        let quick = |n: &&NodeName| small || seated(**n) || follows(**n);
        let heard = |n: &&NodeName| self.alive.contains_key(n);
        let quickest = order.iter().filter(quick).find(heard);
        let first = quickest.or(order.iter().find(heard)).or(order.first());
        first.copied()
    }

    /// The members of what follows a log that has ended; none while this node does not know them,
    /// or knows of later ones alone.
    fn view_after(&self, id: LogId, stop: Stop) -> Option<View> {
        let location = self.location_at(id)?;
        let follows = location.id() == stop.group && location.epoch() == stop.next;
        follows.then(|| location.group.view.clone())
    }

    /// Whether a log that has ended is no longer this node's to go on with: it has no seat in the
    /// present view of the group.
    fn is_left(&self, id: LogId, stop: Stop) -> bool {
        let location = self.location_at(id);
        location.is_some_and(|at| {
            at.epoch() >= stop.next && at.group.view.seat_of(self.id.name).is_none()
        })
    }

    /// Keeps a log for others that has ended here, with the initial state of what follows it where
    /// that is known.
    fn close(&mut self, room: Room, (log, format): (Log, u16), stop: Stop, state: bytes::Bytes) {
        let id = log.id();
        let next = stop.successor_of(id);
        let heir = self.view_after(id, stop).map(|view| {
            let first = view.seat_of(stop.first).unwrap_or_default();
            Heir::new(next, view, first, state)
        });
        // It may not have voted for the end.
        let location = self.location_at(id);
        if let (Scope::Segment(segment), Some(store)) = (id.scope, location.map(Location::store)) {
            self.seal_sources(segment, store);
        }
        if let Room::Segment(segment) = room {
            self.news.insert(segment);
        }
        self.closing.insert(room, Closing { log, format, heir });
        self.agenda.run(room);
    }

    /// Gives what follows a log that was led here until it ended, if it was, to those who had no
    /// seat among its members.
    fn welcome(&mut self, room: Room, led: Option<&View>, step: &mut Step<'_>) {
        let Some(before) = led else { return };
        let mut cx = env(&self.config, step);
        if let Some(closing) = self.closing.get_mut(&room) {
            if let Some(heir) = &mut closing.heir {
                heir.welcome(before, &mut cx);
            }
            return;
        }
        let log = match room {
            Room::Segment(segment) => self.segments.get_mut(&segment).map(|room| &mut room.log),
            Room::Group(group) => self.groups.get_mut(&group).map(|room| &mut room.log),
        };
        if let Some(log) = log {
            log.welcome(before, &mut cx);
        }
    }

    /// The seat that leads the first ballot of a log that follows.
    pub(super) fn first_after(view: &View, stop: Stop) -> Seat {
        view.seat_of(stop.first).unwrap_or_default()
    }

    /// Puts a segment's log in the place of what this node has of it: nothing, or a former one,
    /// which is dropped. A primary of the old one ends when the segment is run.
    pub(super) fn replace_segment(
        &mut self,
        segment: SegmentId,
        log: Log,
        state: SegmentState,
        step: &mut Step<'_>,
    ) {
        let id = log.id();
        self.seal_sources(segment, state.store());
        let place = self.place_in(segment, log.view(), state.store());
        let closed = self.closing.remove(&Room::Segment(segment));
        let gone = match self.segments.get_mut(&segment) {
            Some(room) => {
                room.state = state;
                room.place = place;
                Some(core::mem::replace(&mut room.log, log).id())
            }
            None => {
                self.segments
                    .insert(segment, Segment::new(log, state, place));
                closed.map(|closing| closing.log.id())
            }
        };
        self.drop_log(gone, id, step);
        self.news.insert(segment);
        self.agenda.run(Room::Segment(segment));
    }

    /// Forgets a log in the batch that has created a later one.
    pub(super) fn drop_log(&mut self, gone: Option<LogId>, present: LogId, step: &mut Step<'_>) {
        if let Some(gone) = gone {
            assert!(gone.epoch < present.epoch, "epochs ascend");
            Log::delete(gone, step.fx);
        }
        let room = Room::of(present);
        let joining = self.joining.get(&room);
        if joining.is_some_and(|joining| joining.id().epoch <= present.epoch) {
            self.joining.remove(&room);
        }
    }

    /// Logs here that no seat of this node follows, by whom to ask whether they may go.
    fn left(&self) -> BTreeMap<NodeName, Vec<(LogId, LogId)>> {
        let mut asks: BTreeMap<NodeName, Vec<(LogId, LogId)>> = BTreeMap::new();
        let closing = self.closing.values().map(|closing| &closing.log);
        let segments = self.segments.values().map(|room| &room.log);
        let groups = self.groups.values().map(|room| &room.log);
        for log in closing.chain(segments).chain(groups) {
            let id = log.id();
            let Some(location) = self.location_at(id) else {
                continue;
            };
            let view = &location.group.view;
            if location.epoch() > id.epoch && view.seat_of(self.id.name).is_none() {
                let next = LogId {
                    epoch: id.epoch.next(),
                    ..id
                };
                let by = log.stopped().map_or(next, |stop| stop.successor_of(id));
                for node in view.nodes() {
                    asks.entry(node).or_default().push((id, by));
                }
            }
        }
        asks
    }

    /// Groups that have gone on without this node, as far as it knows, and whom to ask where they
    /// are: those of logs that are not their last here, and of stores that wait for their end.
    fn lost_sight(&self, step: &Step<'_>) -> BTreeSet<(NodeName, GroupId, Option<SegmentId>)> {
        let rooms = self.rooms().into_iter();
        let mut asks = BTreeSet::new();
        for log in rooms.filter_map(|room| self.log(room)) {
            let id = log.id();
            let location = self.location_at(id);
            let later = location.filter(|at| at.epoch() > id.epoch);
            // Who told of the later one may have retired; its members may have gone on, too.
            let later = later.filter(|_| !self.config.planted.asks_nobody_later());
            let ask = match later {
                Some(later) => Some(&later.group.view),
                None => log.stopped().map(|_| log.view()),
            };
            let ask = ask.into_iter().flat_map(View::nodes);
            let what = self.what_of(id);
            asks.extend(ask.map(|node| (node, what.0, what.1)));
        }
        let changed = self.directory.locations().any(|at| !at.is_beginning());
        let stores = changed.then(|| record::stores(step.memory));
        for store in stores.into_iter().flatten() {
            let location = self.directory.location_of(store.segment);
            let location = location.filter(|at| !at.is_beginning());
            let Some(location) = location else { continue };
            let view = &location.group.view;
            if view.seat_of(self.id.name).is_none() {
                let (group, segment) = self.what_at(store.segment, location);
                asks.extend(view.nodes().map(|node| (node, group, segment)));
            }
        }
        // All whom this node takes for the members are silent, and may be gone: anybody may know.
        let peers = self.peers().into_iter();
        let heard: Vec<NodeName> = peers.filter(|peer| self.hears(*peer, step)).collect();
        let turn = step.now.monotonic / self.config.timing.retry.max(1);
        if let Some(peer) = heard.get(turn as usize % heard.len().max(1)) {
            let meta = self.directory.location(GroupId::META);
            let meta = meta.map(|at| (at, GroupId::META, None));
            let runs = self.directory.runs().map(|(run, at)| {
                let (group, segment) = self.what_at(*run.start(), at);
                (at, group, segment)
            });
            for (location, group, segment) in meta.into_iter().chain(runs) {
                let mut members = location.group.view.nodes();
                if !members.any(|member| self.hears(member, step)) {
                    asks.insert((*peer, group, segment));
                }
            }
        }
        asks.retain(|(node, ..)| *node != self.id.name);
        asks
    }

    /// What to ask for where a log is: its group, unless the segment may be another's.
    fn what_of(&self, id: LogId) -> (GroupId, Option<SegmentId>) {
        match (id.scope, self.location_at(id)) {
            (Scope::Segment(segment), Some(location)) => self.what_at(segment, location),
            _ => (id.group, None),
        }
    }

    /// The same of a segment that is there, as far as this node knows.
    fn what_at(&self, segment: SegmentId, at: &Location) -> (GroupId, Option<SegmentId>) {
        let present = self.directory.location(at.id());
        let present = present.is_some_and(|present| present.group.owns(segment));
        (at.id(), (!present).then_some(segment))
    }

    /// Asks for what should not stay, and reports what has begun: from time to time, since answers
    /// and questions may be lost.
    pub(super) fn follow_up(&mut self, step: &mut Step<'_>) {
        if self.next_follow_up > step.now.monotonic {
            return;
        }
        self.next_follow_up = step.now.monotonic + self.config.timing.retry;
        for (node, logs) in self.left() {
            step.fx.send(node, Message::Ended { logs });
        }
        for (node, group, segment) in self.lost_sight(step) {
            step.fx.send(node, Message::Where { group, segment });
        }
        self.follow_children(step);
        self.follow_on(step);
        self.fill_on(step);
        self.bring_all_about(step);
        self.follow_settings(step);
        self.follow_format(step);
        self.replace_dead(step);
        self.seat_spares(step);
        self.look_at_leaders(step);
        let rooms = self.segments.iter();
        let begun = rooms.filter(|(_, room)| room.primary.is_some());
        let begun: Vec<SegmentId> = begun.map(|(segment, _)| *segment).collect();
        self.report_started(&begun, step);
    }

    /// Has the groups that this node leads go on in logs of the cluster's format, with the same
    /// members.
    fn follow_format(&mut self, step: &mut Step<'_>) {
        let format = self.registry.settings().format;
        let groups = self.groups.iter();
        let former = groups.filter(|(_, room)| room.state.format() < format);
        let behind = former.filter_map(|(group, room)| {
            let location = room.state.location();
            let next = View {
                epoch: location.epoch().next(),
                ..location.group.view.clone()
            };
            // Without a quorum proposals would pile up.
            let may = room.log.has_lease(step.now, &self.config.timing)
                && !room.state.is_decided()
                && location.check_next(&next, 0, false).is_ok();
            may.then_some((*group, next))
        });
        let behind: Vec<(GroupId, View)> = behind.collect();
        for (group, view) in behind {
            if self.config.planted.has(Bug::FormatNotFollowed) {
                continue;
            }
            let pressing = false;
            let next = GroupCommand::Next {
                view,
                pressing,
                format,
            };
            self.propose_own(group, Body::Group(next), step);
        }
    }

    /// Tells the members of a group that its segments have begun in the present epoch, if the group
    /// does not know yet. This node leads them.
    pub(super) fn report_started(&self, segments: &[SegmentId], step: &mut Step<'_>) {
        let mut news: BTreeMap<GroupId, Vec<SegmentId>> = BTreeMap::new();
        for segment in segments {
            let room = self.segments.get(segment);
            let room = room.filter(|room| room.log.has_entries());
            let Some(id) = room.map(|room| room.log.id()) else {
                continue;
            };
            let location = self.directory.location(id.group);
            let unknown = location
                .is_some_and(|at| at.epoch() == id.epoch && at.unstarted().contains(segment));
            if unknown {
                news.entry(id.group).or_default().push(*segment);
            }
        }
        for (group, segments) in news {
            let Some(location) = self.directory.location(group) else {
                continue;
            };
            let epoch = location.epoch();
            for node in location.group.view.nodes() {
                let segments = segments.clone();
                step.fx.send(
                    node,
                    Message::Started {
                        group,
                        epoch,
                        segments,
                    },
                );
            }
        }
    }

    /// Has it decided that segments have begun, where this node leads the group.
    fn on_started(
        &mut self,
        group: GroupId,
        epoch: Epoch,
        segments: Vec<SegmentId>,
        step: &mut Step<'_>,
    ) {
        let Some(room) = self.groups.get_mut(&group) else {
            return;
        };
        let location = room.state.location();
        let unknown = |segment: &SegmentId| {
            location.unstarted().contains(segment) && !room.reported.contains(segment)
        };
        let segments: Vec<SegmentId> = segments.into_iter().filter(unknown).collect();
        if !room.log.is_primary() || location.epoch() != epoch || segments.is_empty() {
            return;
        }
        room.reported.extend(&segments);
        let body = Body::Group(GroupCommand::Started { epoch, segments });
        self.propose_own(group, body, step);
    }

    /// Proposes a command of the protocol itself to a group that this node leads. One that is not
    /// taken is proposed again on the next occasion: its effect is the same whenever it comes.
    pub(super) fn propose_own(&mut self, group: GroupId, body: Body, step: &mut Step<'_>) {
        if let Some(room) = self.groups.get_mut(&group) {
            let epoch = room.log.id().epoch;
            let command = Command::new(Sessions::OWN, 0, 0, epoch, body);
            let taken = room
                .log
                .propose(command, &mut env(&self.config, step))
                .is_ok();
            if !taken {
                room.reported.clear();
            }
            self.agenda.touch(Room::Group(group));
        }
    }

    /// A primary has ended the log before one that this node is to lead.
    fn on_last_words(&mut self, log: LogId, words: LastWords) {
        if let Scope::Segment(segment) = log.scope
            && self.directory.location_of(segment).is_some()
        {
            self.words.insert(segment, (log, words));
        }
    }

    /// A node asks whether logs may go. Of those whose successor is lacking here it is asked for
    /// that.
    fn on_ended(&mut self, from: NodeName, logs: Vec<(LogId, LogId)>, step: &mut Step<'_>) {
        let mut retire = Vec::new();
        for (id, by) in logs {
            match self.log(Room::of(id)) {
                Some(log) if log.id().epoch > id.epoch => {
                    let seatless = log.view().seat_of(from).is_none();
                    let early = self.config.planted.has(Bug::RetireeDropsLog);
                    let (epoch, gone) = (log.id().epoch, log.has_entries() && seatless);
                    if early || gone && self.outlives_records(from, id, step) {
                        retire.push((id, epoch));
                    }
                }
                _ => self.join(from, by, step),
            }
        }
        if !retire.is_empty() {
            step.fx.promise(from, Message::Retire { logs: retire });
        }
    }

    /// Whether nobody needs what a node has of a log's records, which has no seat any more.
    fn outlives_records(&mut self, node: NodeName, id: LogId, step: &mut Step<'_>) -> bool {
        let Scope::Segment(segment) = id.scope else {
            return true;
        };
        self.note_former(segment, node);
        self.are_records_complete(segment, step)
    }

    fn is_in_use(&self, id: LogId) -> bool {
        self.log(Room::of(id)).is_some_and(|log| log.id() == id)
    }

    /// Creates no log of a scope up to this epoch.
    pub(super) fn retired(&self, id: LogId) -> Epoch {
        self.retired.get(&Room::of(id)).copied().unwrap_or_default()
    }
}

/// The members of a log, if this node leads it.
fn led(log: &Log) -> Option<View> {
    log.leadership().map(|_| log.view().clone())
}

/// The earlier stores that operations on the registers of a segment read through to.
fn sources(
    location: &Location,
    segment: SegmentId,
    store: Epoch,
    registry: &Registry,
) -> Vec<Source> {
    let pasts = location.pasts(segment).iter();
    let open = pasts.filter(|past| past.open && past.epoch < store);
    let source = |epoch: Epoch| {
        let view = location.view_of(epoch)?;
        let seats = (0..).map(Seat).zip(view.nodes());
        let out = seats.filter(|(_, name)| registry.is_out(*name));
        let out = out.map(|(seat, _)| seat).collect();
        let store = StoreId { segment, epoch };
        Some(Source { store, view, out })
    };
    open.filter_map(|past| source(past.epoch)).collect()
}

impl Node {
    pub(super) fn on_ring(&mut self, from: NodeName, message: Message, step: &mut Step<'_>) {
        match message {
            Message::Location(location) => self.here.learn_location(&location, step),
            Message::Ended { logs } => self.here.on_ended(from, logs, step),
            Message::Retire { logs } => {
                for (id, by) in logs {
                    self.retire_log(id, by, step);
                }
            }
            Message::LastWords { log, words } => self.here.on_last_words(log, words),
            Message::Started {
                group,
                epoch,
                segments,
            } => self.here.on_started(group, epoch, segments, step),
            Message::Moved {
                group,
                segment,
                source,
            } => self.on_moved(group, GroupCommand::Moved { segment, source }, step),
            Message::Harvested {
                group,
                segment,
                source,
                seat,
            } => {
                let done = GroupCommand::Harvested {
                    segment,
                    source,
                    seat,
                };
                self.on_moved(group, done, step);
            }
            Message::Knows { version, epoch } => {
                self.here.on_knows(from, version, epoch, step);
            }
            Message::Invite(location) => self.here.on_invite(from, &location, step),
            Message::Warm { group, epoch } => self.here.on_warm(from, group, epoch, step),
            Message::Where { group, segment } => {
                let directory = &self.here.directory;
                let location = match segment {
                    Some(segment) => directory.location_of(segment),
                    None => directory.location(group),
                };
                if let Some(location) = location {
                    self.here.tell_location(from, location, step);
                }
            }
        }
    }

    /// Nobody needs a log of this node any more: it goes, and none of its scope up to `by` is
    /// created here, whatever comes late.
    fn retire_log(&mut self, id: LogId, by: Epoch, step: &mut Step<'_>) {
        if id.epoch >= by || !self.here.is_in_use(id) {
            return;
        }
        match id.scope {
            Scope::Segment(segment) => {
                self.end_primary(segment, step);
                self.here.segments.remove(&segment);
            }
            Scope::Group => drop(self.here.groups.remove(&id.group)),
        }
        self.here.closing.remove(&Room::of(id));
        self.here.agenda.wish(Room::of(id), None);
        if let Scope::Segment(segment) = id.scope {
            let location = self.here.location_at(id);
            let store = location.map_or(by, Location::store);
            self.here.seal_sources(segment, store);
            // It may follow the present log by now.
            if !self.here.needs_records(segment) {
                self.here.drop_records(segment, step);
            }
        }
        Log::delete(id, step.fx);
        if !self.here.config.planted.has(Bug::RetiredRevives) {
            self.here.retired.insert(Room::of(id), by);
            step.fx.put(record::retired(id), wire::encode(&by));
        }
    }

    /// Ends what the primary of a segment does, if this node has it.
    pub(super) fn end_primary(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        if let Some(ended) = room.primary.take() {
            // What was never proposed has no effect, and whoever asked may be told just that.
            let dropped = room.log.take_dropped();
            let mut cx = PrimaryEnv {
                env: env(&self.here.config, step),
                registers: &mut self.caller,
                place: &room.place,
                catalogue: &self.here.catalogue,
                leased: false,
                segment,
            };
            let dropped: Vec<_> = dropped.iter().map(|c| (c.session, c.number)).collect();
            ended.step_down(&dropped, &mut cx);
        }
        self.here.drop_clerk(segment, step);
    }

    /// Stops a segment's log when its group has decided the next view, and goes on with what
    /// follows.
    ///
    /// Every member wants the log ended, not the primary alone: where there is none, the next
    /// leader ends the log with its first own entry.
    pub(super) fn stop_segment(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get(&segment) else {
            return;
        };
        let id = room.log.id();
        let Some(stop) = room.log.stopped() else {
            if let Some(stop) = self.here.stop_of(id) {
                self.here.close_leases(segment, true, step);
                // Not through the agenda, which would come back here until the window has room.
                if let Some(room) = self.here.segments.get_mut(&segment) {
                    room.log
                        .propose_stop(stop, &mut env(&self.here.config, step));
                }
            }
            return;
        };
        let left = self.here.is_left(id, stop);
        let view = self.here.view_after(id, stop);
        if !left && view.is_none() {
            return;
        }
        let planted = self.here.config.planted;
        let led = led(&room.log);
        if left {
            self.end_primary(segment, step);
            if let Some(mut room) = self.here.segments.remove(&segment) {
                // The others hear of the end while there is somebody to say it.
                room.log.flush(&mut env(&self.here.config, step));
                self.here.end_records(segment, At::of(&room.state));
                let ended = (room.log, room.state.format());
                let state = wire::encode(&room.state.succeed(stop, planted));
                self.here.close(Room::Segment(segment), ended, stop, state);
                self.here
                    .welcome(Room::Segment(segment), led.as_ref(), step);
            }
            return;
        }
        let (Some(view), Some(room)) = (view, self.here.segments.get_mut(&segment)) else {
            return;
        };
        room.log.flush(&mut env(&self.here.config, step));
        let state = core::mem::take(&mut room.state).succeed(stop, planted);
        let next = stop.successor_of(id);
        let first = Here::first_after(&view, stop);
        let start = wire::encode(&state);
        let log = self.here.create(next, &view, first, start, step);
        self.here.replace_segment(segment, log, state, step);
        self.here
            .welcome(Room::Segment(segment), led.as_ref(), step);
    }

    /// The first chosen `Next` that is allowed decides, and ends the group's log; its segments stop
    /// then.
    pub(super) fn stop_group(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(room) = self.here.groups.get(&group) else {
            return;
        };
        let id = room.log.id();
        if !room.state.is_decided() {
            let location = room.state.location();
            let known = self.here.directory.location(group);
            if known.is_none_or(|known| location.is_later_than(known)) {
                let location = location.clone();
                self.here.learn_location(&location, step);
            }
            self.here.run_child(group, step);
            return;
        }
        let state = room.state.clone().succeed();
        self.here.learn_location(state.location(), step);
        let child = state.child().cloned();
        if let Some(child) = &child {
            self.here.learn_location(child.location(), step);
        }
        let Some(room) = self.here.groups.get_mut(&group) else {
            return;
        };
        let Some(stop) = room.log.stopped() else {
            if let Some(stop) = self.here.stop_of(id)
                && let Some(room) = self.here.groups.get_mut(&group)
            {
                room.log
                    .propose_stop(stop, &mut env(&self.here.config, step));
            }
            return;
        };
        // The others hear of the end while there is somebody to say it.
        room.log.flush(&mut env(&self.here.config, step));
        let led = led(&room.log);
        let start = wire::encode(&state);
        if self.here.is_left(id, stop) {
            if let Some(room) = self.here.groups.remove(&group) {
                let ended = (room.log, room.state.format());
                self.here.close(Room::Group(group), ended, stop, start);
            }
        } else if let Some(view) = self.here.view_after(id, stop) {
            let first = Here::first_after(&view, stop);
            let next = stop.successor_of(id);
            let log = self.here.create(next, &view, first, start, step);
            self.here.replace_group(group, log, state, step);
        }
        if let Some(child) = child {
            self.here.begin_child(&child, step);
        }
        self.here.welcome(Room::Group(group), led.as_ref(), step);
    }

    /// Seals what ended in this step, in its batch.
    pub(super) fn seal_ended(&mut self, step: &mut Step<'_>) {
        for (store, next, view) in core::mem::take(&mut self.here.to_seal) {
            let at = super::topology::AtSegment::new(&self.here, store);
            let mut cx = env(&self.here.config, step);
            self.replica.seal_own(store, next, &view, &at, &mut cx);
        }
    }
}
