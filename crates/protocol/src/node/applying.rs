//! What logs have delivered is applied to the states that they order, and primaries begin and end.

use super::agenda::Room;
use super::following::refuse;
use super::logs::read_state;
use super::usage::Usage;
use super::{Node, Step};
use crate::base::{GroupId, SegmentId, Slot};
use crate::command::Command;
use crate::coordinator;
use crate::ledger::Clerk;
use crate::lock::{LastWords, Outcome, Primary, Rejection};
use crate::paxos::Log;
use crate::ring;
use alloc::vec::Vec;

impl Node {
    /// Applies what a segment's log has delivered, and starts or ends its primary.
    pub(super) fn run_segment(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        self.take_seat(Room::Segment(segment), step);
        self.install_segment(segment, step);
        let empty = |log: &Log| log.delivered() == Slot(0);
        let room = self.here.segments.get(&segment);
        let empty_before = room.is_some_and(|room| empty(&room.log));
        while let Some(commands) = self.next_commands(segment) {
            for command in commands {
                // Each by itself: a primary is told of the state right after it.
                let planted = self.here.config.planted;
                let room = self
                    .here
                    .segments
                    .get_mut(&segment)
                    .expect("it delivered an entry");
                let before = room.state.recorded();
                let mut applied = room.state.apply(&command, planted);
                let work = core::mem::take(&mut applied.work);
                if !work.is_empty() {
                    let at = (applied.position, before);
                    let done = self.here.record(segment, at, work, step);
                    if let Some((changes, verdict)) = done {
                        applied.work.changes = changes;
                        let executed = verdict.map(|done| Outcome::Executed(done.into()));
                        applied.outcome = executed.unwrap_or(applied.outcome);
                    }
                }
                #[cfg(feature = "planted-bugs")]
                self.here
                    .note_applied(segment, (&command, &applied), step.fx);
                if !applied.repeated {
                    self.here.count_use(segment, &command, step.now);
                }
                self.order_applied(segment, &command);
                self.with_primary(segment, step, |primary, state, cx| {
                    primary.applied(&command, &applied, state.queues(), cx);
                });
            }
        }
        self.answer_reads(segment, step);
        self.lead_or_follow(segment, step);
        let room = self.here.segments.get(&segment);
        if room.is_some_and(|room| empty_before && !empty(&room.log) && room.primary.is_some()) {
            self.here.report_started(&[segment], step);
        }
        self.stop_segment(segment, step);
        let Some(room) = self.here.segments.get(&segment) else {
            return;
        };
        if room.log.needs_snapshot(&self.here.config.limits) {
            self.here.truncate(Room::Segment(segment), step);
        }
    }

    fn next_commands(&mut self, segment: SegmentId) -> Option<Vec<Command>> {
        let room = self.here.segments.get_mut(&segment)?;
        Some(room.log.next_commands()?.1)
    }

    /// A snapshot has come from a peer: it is the state now.
    fn install_segment(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        if let Some((_, state)) = room.log.take_installed()
            && let Some(state) = read_state(room.log.id(), &state, step)
        {
            room.state = state;
        }
    }

    /// A primary that has led until now knows that the end of its log is chosen: it tells whoever
    /// leads the next one first what it knows of those that hold.
    fn say_last_words(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get(&segment) else {
            return;
        };
        let (Some(stop), Some(primary)) = (room.log.stopped(), &room.primary) else {
            return;
        };
        if room.log.leadership() != Some(primary.ballot()) {
            return;
        }
        let log = stop.successor_of(room.log.id());
        let frame = self.here.config.limits.frame;
        let words = primary.last_words(room.state.queues(), frame);
        if stop.first == self.here.id.name {
            self.here.words.insert(segment, (log, words));
        } else if !words.is_empty() {
            let words = ring::Message::LastWords { log, words };
            step.fx.send(stop.first, words);
        }
    }

    /// The primary of a segment exists exactly while its log leads with one ballot. It begins when
    /// everything recovered is applied, so that it finds each ref that an earlier one may have
    /// granted.
    fn lead_or_follow(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        let elected = room.log.leadership();
        let leads = elected.filter(|_| room.log.has_begun());
        let primary = room.primary.as_ref().map(Primary::ballot);
        if elected != room.elected {
            room.elected = elected;
            if elected.is_some() && leads.is_none() {
                // Who is far away need not wait for the first entry to be told.
                self.here.tell_askers(segment, step);
            }
        }
        if leads == primary {
            return;
        }
        self.say_last_words(segment, step);
        self.end_primary(segment, step);
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        if let Some(ballot) = leads {
            let (id, config) = (room.log.id(), &self.here.config);
            let said = self.here.words.remove(&segment);
            let words = LastWords::believed(said, (id, ballot), config.planted);
            let known = (step.now, words);
            let begins = Primary::new(segment, (id.epoch, ballot), &room.state, known, config);
            room.primary = Some(begins);
            let limit = room.state.ledger().limit();
            let orders = room.state.has_ledger();
            room.clerk = orders.then(|| Clerk::new(limit, config.planted));
            room.usage = Usage::new(config.timing.usage, step.now.monotonic);
            // What it proposes first.
            self.with_primary(segment, step, |primary, state, cx| {
                primary.begin(state.queues(), cx);
            });
            self.here.report_started(&[segment], step);
            self.here.tell_askers(segment, step);
            // So that the first command that changes records need not wait for it.
            self.here.are_records_complete(segment, step);
            self.here.news.insert(segment);
        }
    }

    /// Applies what a group's log has delivered.
    pub(super) fn run_group(&mut self, group: GroupId, step: &mut Step<'_>) {
        self.take_seat(Room::Group(group), step);
        self.install_group(group, step);
        let mut answers = Vec::new();
        while let Some(room) = self.here.groups.get_mut(&group) {
            let Some((_, commands)) = room.log.next_commands() else {
                break;
            };
            for command in commands {
                let outcome = room.state.apply(&command, self.here.config.planted);
                if let Some((node, call)) = room.waiting.remove(&(command.session, command.number))
                {
                    let result = outcome.ok_or(Rejection::Overtaken);
                    answers.push((node, coordinator::Message::Proposed { call, result }));
                }
            }
        }
        self.learn_meta(group, step);
        if group == GroupId::META {
            self.here.keep_time(step);
        }
        for (node, answer) in answers {
            // Whoever has changed the catalogue knows it by the time that it is answered.
            self.here.share_catalogue(node, 0, step.fx);
            step.fx.promise(node, answer);
        }
        self.stop_group(group, step);
        let Some(room) = self.here.groups.get_mut(&group) else {
            return;
        };
        if !room.log.is_primary() {
            let dropped = room.log.take_dropped();
            room.reported.clear();
            if let Some(wanted) = room.wanted.take() {
                refuse(wanted.by, Rejection::NotPrimary(None), step);
            }
            for (id, (node, call)) in core::mem::take(&mut room.waiting) {
                let never = dropped.iter().any(|c| (c.session, c.number) == id);
                let result = Err(match never {
                    true => Rejection::NotPrimary(None),
                    false => Rejection::Overtaken,
                });
                step.fx
                    .send(node, coordinator::Message::Proposed { call, result });
            }
        }
        if room.log.needs_snapshot(&self.here.config.limits) {
            self.here.truncate(Room::Group(group), step);
        }
    }

    /// Takes over what the meta-group has decided, and tells everybody, if this node leads it.
    fn learn_meta(&mut self, group: GroupId, step: &mut Step<'_>) {
        let room = self.here.groups.get(&group);
        let Some((room, meta)) = room.and_then(|room| Some((room, room.state.meta()?))) else {
            return;
        };
        let leads = room.log.is_primary();
        let newer = meta.catalogue().version() > self.here.catalogue.version();
        let catalogue = newer.then(|| meta.catalogue().clone());
        let newer = meta.registry().version() > self.here.registry.version();
        let registry = newer.then(|| meta.registry().clone());
        if let Some(registry) = &registry {
            self.here.learn_registry(registry, step.fx);
        }
        let told = catalogue.is_some();
        if let Some(catalogue) = catalogue {
            self.here.learn_catalogue(catalogue, step.fx);
        }
        for peer in self.here.peers().into_iter().filter(|_| leads) {
            if told {
                self.here.share_catalogue(peer, 0, step.fx);
            }
            if registry.is_some() {
                self.here.share_registry(peer, 0, step.fx);
            }
        }
    }

    fn install_group(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(room) = self.here.groups.get_mut(&group) else {
            return;
        };
        if let Some((_, state)) = room.log.take_installed()
            && let Some(state) = read_state(room.log.id(), &state, step)
        {
            room.state = state;
        }
    }
}

#[cfg(feature = "planted-bugs")]
impl super::logs::Here {
    /// A segment has applied a command.
    fn note_applied(
        &self,
        segment: SegmentId,
        (command, applied): (&Command, &crate::segment::Applied),
        fx: &mut crate::io::Effects,
    ) {
        if let Some(room) = self.segments.get(&segment) {
            fx.note_applied(segment, command, applied, room.state.queues());
        }
    }
}
