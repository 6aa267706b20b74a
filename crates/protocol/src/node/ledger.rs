//! Ledgers at this node: transactions and reads that its primaries take, reads at closed times that
//! any of its replicas answers, and the cluster's time.

use super::{Here, Node, Step};
use crate::base::{
    Ballot, Bug, Epoch, GroupId, Interval, Micros, NodeName, Now, Purpose, SegmentId, Timestamp,
};
use crate::command::{Body, Command, GroupCommand, LedgerCommand, SegmentCommand};
use crate::io::Void;
use crate::ledger::{
    self, Closing, ClusterTime, Found, Fresh, Hours, Item, Message, Part, Reader, Reading, Verdict,
};
use crate::lock::{self, Outcome, Primary, Rejection};
use crate::sessions::Sessions;
use crate::wire;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How often primaries close times that are ahead, microseconds.
const CLOSES: Micros = 10_000;

/// Parts of one read at most.
const PARTS: usize = 4_096;

/// Commands that wait at one node until they may be taken.
const ORDERS: usize = 1_024;

/// A command of a ledger that waits until it is known that enough members have all records.
#[derive(Debug)]
struct Order {
    from: NodeName,
    call: u64,
    segment: SegmentId,
    command: Command,
    /// When it is refused.
    until: Micros,
}

/// What a node keeps for ledgers beside its segments.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    /// What waits, oldest first.
    orders: Vec<Order>,
    /// What is known of the cluster's time.
    time: ClusterTime,
    /// The highest limit of it that was proposed here, and in which term.
    limit: (Option<(Epoch, Ballot)>, u64),
    /// What this step has changed, by segment.
    fresh: BTreeMap<SegmentId, Fresh>,
    /// When times that are ahead are closed next; none: nowhere are any.
    next_close: Option<Micros>,
}

impl Ledgers {
    /// When the node is to be stepped for them.
    pub(super) fn wake(&self) -> Option<Micros> {
        self.next_close
    }

    /// A keyspace is used that closes so far ahead.
    fn note_lead(&mut self, lead: Micros, now: Micros) {
        if lead > 0 {
            self.next_close.get_or_insert(now);
        }
    }

    /// A step begins: the store shows all that the last one has changed.
    pub(super) fn begin_step(&mut self) {
        self.fresh.clear();
    }

    /// What a command has changed in this step.
    pub(super) fn fresh(&mut self, segment: SegmentId) -> &mut Fresh {
        self.fresh.entry(segment).or_default()
    }

    /// Reads the records of a segment as they are by now.
    pub(super) fn reader<'a>(&'a self, segment: SegmentId, step: &'a Step<'_>) -> Reader<'a> {
        Reader {
            segment,
            memory: step.memory,
            fresh: self.fresh.get(&segment),
        }
    }
}

/// A command of the protocol itself.
fn own(body: Body) -> Command {
    Command::new(Sessions::OWN, 0, 0, Epoch::FIRST, body)
}

impl Here {
    /// The cluster's time at this node.
    pub(super) fn time(&self, now: Now) -> Option<Interval> {
        let (timing, planted) = (&self.config.timing, self.config.planted);
        self.ledgers.time.now(now, timing, planted)
    }

    /// The reference reads its own clock.
    pub(super) fn read_time(&mut self, now: Now) {
        if let Some(reading) = self.time_reading(now) {
            self.ledgers.time.read_here(reading, now);
        }
    }

    fn time_reading(&self, now: Now) -> Option<((Epoch, Ballot), u64, Micros)> {
        let room = self.groups.get(&GroupId::META)?;
        let lease = room.log.lease_until(now, &self.config.timing);
        let (timing, planted) = (&self.config.timing, self.config.planted);
        let limit = room.state.limit();
        self.ledgers
            .time
            .reading((lease, limit), now, timing, planted)
    }

    /// A beat has come: the reference says what it reads.
    pub(super) fn tell_time(&self, to: NodeName, sent: Micros, step: &mut Step<'_>) {
        if let Some((of, reading, valid)) = self.time_reading(step.now) {
            let time = Message::Time {
                sent,
                of,
                reading,
                valid,
            };
            step.fx.send(to, time);
        }
    }

    /// Begins or ends to be the reference of the cluster's time, and states how far it may go.
    pub(super) fn keep_time(&mut self, step: &mut Step<'_>) {
        let room = self.groups.get(&GroupId::META);
        let leads = |room: &&super::GroupLog| room.log.has_begun() && room.state.has_limit();
        let led = room.filter(leads);
        let term = led.and_then(|room| Some((room.log.id().epoch, room.log.leadership()?)));
        let stated = led.map_or(0, |room| room.state.limit());
        let planted = self.config.planted;
        self.ledgers.time.lead(term, stated, step.now, planted);
        if term != self.ledgers.limit.0 {
            self.ledgers.limit = (term, 0);
        }
        let wanted = self.catalogue.all().iter().any(|k| k.purpose.is_ledger());
        let Some(runs) = self.ledgers.time.runs_at(step.now).filter(|_| wanted) else {
            return;
        };
        let lease = self.config.timing.lease;
        let proposed = stated.max(self.ledgers.limit.1);
        if proposed < runs.saturating_add(lease / 2) && self.writable {
            let limit = runs.saturating_add(lease);
            self.ledgers.limit.1 = limit;
            let body = Body::Group(GroupCommand::Limit(limit));
            self.propose_own(GroupId::META, body, step);
        }
    }

    /// Whether a keyspace of these is known to be deleted, and by how much they close ahead.
    fn terms<'a>(&self, items: impl Iterator<Item = Item<'a>>) -> (bool, Micros) {
        let (mut dead, mut lead) = (false, 0);
        for item in items {
            let keyspace = match item {
                Item::Key(key) => key.keyspace,
                Item::Span(span) => span.keyspace,
            };
            dead |= self.catalogue.is_dead(keyspace);
            let known = self.catalogue.get(keyspace);
            if let Some(Purpose::Ledger { lead: ahead }) = known.map(|known| known.purpose) {
                lead = lead.max(ahead);
            }
        }
        (dead, lead)
    }

    fn hours(&self, segment: SegmentId, step: &Step<'_>) -> Hours {
        let room = self.segments.get(&segment);
        let clerk = room.and_then(|room| room.clerk.as_ref());
        Hours {
            now: step.now,
            time: step.time,
            ahead: self.config.timing.lease + clerk.map_or(0, ledger::Clerk::lead),
        }
    }

    fn state_limit(&mut self, segment: SegmentId, limit: Option<Timestamp>, step: &mut Step<'_>) {
        if let Some(limit) = limit {
            let body = Body::Segment(SegmentCommand::Limit(limit));
            self.propose(segment, Vec::from([own(body)]), step);
        }
    }

    /// What is there at a time, if all that is ever written up to it is applied here.
    fn found(
        &mut self,
        segment: SegmentId,
        (at, parts): (Timestamp, &[Part]),
        step: &mut Step<'_>,
    ) -> Result<Vec<Found>, Rejection> {
        let room = self.config.limits.transaction;
        let answer = ledger::answer(parts, at, room, &self.ledgers.reader(segment, step));
        let answer: Result<Vec<Found>, Void> = answer;
        self.unless_damaged(segment, answer, step)
            .ok_or(Rejection::Busy)
    }

    /// The time up to which this node's replica of a segment answers.
    pub(super) fn closed(&self, segment: SegmentId) -> Option<Timestamp> {
        let room = self.segments.get(&segment)?;
        let filling = self.config.planted.has(Bug::FillerAnswers);
        let full = self.has_records(segment) || filling;
        full.then(|| room.closed.peek(room.state.commands()))
    }

    /// Answers a read from what is closed here.
    fn read_closed(
        &mut self,
        segment: SegmentId,
        (at, parts): (Timestamp, &[Part]),
        step: &mut Step<'_>,
    ) -> Option<Result<Vec<Found>, Rejection>> {
        let closed = self.closed(segment)?;
        (at <= closed).then(|| self.found(segment, (at, parts), step))
    }

    /// What came of a command of a ledger that was applied before.
    fn verdict_of(
        &mut self,
        segment: SegmentId,
        command: &Command,
        step: &mut Step<'_>,
    ) -> Result<Verdict, Rejection> {
        let name = ledger::outcome_name(command.session, command.number);
        let reader = self.ledgers.reader(segment, step);
        let known = reader.get(&name).and_then(|bytes| {
            let verdict = wire::decode::<Verdict>(&bytes.ok_or(Void)?).map_err(|_| Void)?;
            let (Verdict::Done { at, then, .. }, Body::Ledger(body)) = (&verdict, &command.body)
            else {
                return Ok(verdict);
            };
            let LedgerCommand::Transact {
                most, transaction, ..
            } = body
            else {
                return Ok(verdict);
            };
            let (at, then) = (*at, *then);
            let done = ledger::again(transaction, then, (at, *most as usize), &reader)?;
            Ok(Verdict::Done { at, then, done })
        });
        self.unless_damaged(segment, known, step)
            .ok_or(Rejection::Busy)
    }

    /// The primary of a segment is about to hand its log over, or to end it: it says which times it
    /// has used, so that the next one need not begin above the limit (L4).
    pub(super) fn end_clerk(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.segments.get_mut(&segment) else {
            return;
        };
        let used = room.clerk.as_mut().and_then(ledger::Clerk::end);
        if let Some(used) = used {
            let body = Body::Segment(SegmentCommand::Used(used));
            self.propose(segment, Vec::from([own(body)]), step);
        }
    }

    /// Refuses the reads that wait at a primary which has ended.
    pub(super) fn drop_clerk(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.segments.get_mut(&segment) else {
            return;
        };
        let ended = room.clerk.take();
        for reading in ended.into_iter().flat_map(ledger::Clerk::into_waiting) {
            answer(&reading, Err(Rejection::NotPrimary(None)), step);
        }
    }

    /// What a primary has closed, at one of the segment's replicas.
    fn note_closed(&mut self, segment: SegmentId, closing: Closing) {
        let planted = self.config.planted;
        if let Some(room) = self.segments.get_mut(&segment) {
            room.closed.note(closing, room.state.commands(), planted);
            room.closed.at(room.state.commands());
        }
    }

    /// The primaries here state limits and close times: all of them with each beat, and those that
    /// close ahead in between.
    pub(super) fn close_times(&mut self, beats: bool, step: &mut Step<'_>) {
        let due = self
            .ledgers
            .next_close
            .is_some_and(|at| at <= step.now.monotonic);
        if !beats && !due {
            return;
        }
        if beats {
            self.watch_orders(step);
        }
        let ahead = |room: &super::Segment| room.clerk.as_ref().is_some_and(|c| c.lead() > 0);
        let clerks = self
            .segments
            .iter()
            .filter(|(_, room)| room.clerk.is_some());
        let clerks = clerks.filter(|(_, room)| beats || ahead(room));
        let clerks: Vec<SegmentId> = clerks.map(|(segment, _)| *segment).collect();
        let mut next = false;
        for segment in clerks {
            next |= self.close_time(segment, step);
        }
        self.ledgers.next_close = next.then(|| step.now.monotonic + CLOSES);
    }

    /// Refuses what has waited too long. While a ledger is used it stays known who has its records.
    fn watch_orders(&mut self, step: &mut Step<'_>) {
        let now = step.now.monotonic;
        let orders = core::mem::take(&mut self.ledgers.orders);
        let (late, orders): (Vec<Order>, _) = orders.into_iter().partition(|o| o.until <= now);
        self.ledgers.orders = orders;
        for order in late {
            refuse(order.from, order.call, Rejection::Busy, step);
        }
        let used = |room: &super::Segment| room.clerk.as_ref().is_some_and(|c| c.is_used(now));
        let used = self.segments.iter().filter(|(_, room)| used(room));
        let mut asked: BTreeSet<SegmentId> = used.map(|(segment, _)| *segment).collect();
        asked.extend(self.ledgers.orders.iter().map(|order| order.segment));
        for segment in asked {
            self.are_records_complete(segment, step);
        }
    }

    /// A command waits until it is known that enough members have all records, which are being
    /// asked: as if it had been on its way for longer.
    fn hold(&mut self, order: Order, step: &mut Step<'_>) {
        let limits = &self.config.limits;
        let bytes = self.ledgers.orders.iter().map(|o| o.command.bytes());
        let bytes = bytes.sum::<usize>() + order.command.bytes();
        if self.ledgers.orders.len() >= ORDERS || bytes > limits.proposals_bytes {
            return refuse(order.from, order.call, Rejection::Busy, step);
        }
        self.ledgers.orders.push(order);
    }

    /// The same for one segment; whether it closes ahead.
    fn close_time(&mut self, segment: SegmentId, step: &mut Step<'_>) -> bool {
        let hours = self.hours(segment, step);
        let full = self.has_records(segment);
        let Some(room) = self.segments.get_mut(&segment) else {
            return false;
        };
        let Some(clerk) = &mut room.clerk else {
            return false;
        };
        let (state, view) = (&room.state, room.log.view().clone());
        let limit = clerk.renew(&hours).filter(|_| self.writable);
        let closing = clerk.close(state.ledger().limit(), state.commands(), &hours);
        let ahead = clerk.lead() > 0 && clerk.is_used(step.now.monotonic);
        self.state_limit(segment, limit, step);
        if let Some(Closing { at, position }) = closing.filter(|_| full) {
            self.note_closed(segment, Closing { at, position });
            for node in view.nodes().filter(|node| *node != self.id.name) {
                let closed = Message::Closed {
                    segment,
                    at,
                    position,
                };
                step.fx.send(node, closed);
            }
        }
        ahead
    }
}

/// The answer to a command.
pub(super) fn submitted(call: u64, result: Result<Outcome, Rejection>) -> lock::Message {
    lock::Message::Submitted {
        call,
        result,
        ahead: 0,
    }
}

/// Refuses a command.
fn refuse(from: NodeName, call: u64, why: Rejection, step: &mut Step<'_>) {
    step.fx.send(from, submitted(call, Err(why)));
}

/// Answers a read.
fn answer(reading: &Reading, result: Result<Vec<Found>, Rejection>, step: &mut Step<'_>) {
    let call = reading.call;
    step.fx.send(reading.from, Message::Found { call, result });
}

impl Node {
    pub(super) fn on_ledger(&mut self, from: NodeName, message: Message, step: &mut Step<'_>) {
        match message {
            Message::Read {
                call,
                segment,
                at,
                parts,
            } => {
                self.here.direct(from, segment, step);
                if let Err(why) = self.on_read((from, call), segment, (at, parts), step) {
                    let result = Err(why);
                    step.fx.send(from, Message::Found { call, result });
                }
            }
            Message::Closed {
                segment,
                at,
                position,
            } => self.here.note_closed(segment, Closing { at, position }),
            Message::Time {
                sent,
                of,
                reading,
                valid,
            } => {
                let Here {
                    ledgers, config, ..
                } = &mut self.here;
                let reading = (of, reading, valid);
                let (timing, planted) = (&config.timing, config.planted);
                ledgers.time.heard(reading, sent, step.now, timing, planted);
            }
            answer @ Message::Found { .. } => self.coordinate(step, |coordinator, cx| {
                coordinator.on_ledger(from, answer, cx);
            }),
        }
    }

    fn on_read(
        &mut self,
        (from, call): (NodeName, u64),
        segment: SegmentId,
        (at, parts): (Timestamp, Vec<Part>),
        step: &mut Step<'_>,
    ) -> Result<(), Rejection> {
        if parts.len() > PARTS {
            return Err(Rejection::Busy);
        }
        if let Some(result) = self.here.read_closed(segment, (at, &parts), step) {
            step.fx.send(from, Message::Found { call, result });
            return Ok(());
        }
        if let Some(why) = self.here.why_not_primary(segment) {
            return Err(why);
        }
        if !self.here.has_records(segment) {
            return Err(Rejection::Busy);
        }
        let (dead, lead) = self.here.terms(parts.iter().map(Part::item));
        if dead {
            return Err(Rejection::NoSuchKeyspace);
        }
        let hours = self.here.hours(segment, step);
        let patience = self.here.config.timing.request;
        let room = self.here.segments.get_mut(&segment);
        let clerk = room.and_then(|room| room.clerk.as_mut());
        // Its log is of a former format: it goes on in another one soon.
        let clerk = clerk.ok_or(Rejection::Busy)?;
        clerk.note_use(lead, step.now.monotonic);
        let limit = clerk.read((from, call), at, parts, patience, &hours)?;
        self.here.state_limit(segment, limit, step);
        self.answer_reads(segment, step);
        self.here.ledgers.note_lead(lead, step.now.monotonic);
        Ok(())
    }

    /// Answers the reads that waited for what is applied by now, and refuses those that have waited
    /// too long.
    pub(super) fn answer_reads(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let Some(room) = self.here.segments.get_mut(&segment) else {
            return;
        };
        let Some(clerk) = &mut room.clerk else {
            return;
        };
        let ready = clerk.ready(room.state.ledger().limit());
        for late in clerk.give_up(step.now.monotonic) {
            answer(&late, Err(Rejection::Busy), step);
        }
        for reading in ready {
            let found = match self.here.has_records(segment) {
                true => self.here.found(segment, (reading.at, &reading.parts), step),
                false => Err(Rejection::Busy),
            };
            answer(&reading, found, step);
        }
    }

    /// A coordinator submits a command of a ledger to a segment that is led here. It gets its
    /// timestamp, unless it has taken effect or is under way; then it goes the way of all commands.
    pub(super) fn on_order(
        &mut self,
        (from, call): (NodeName, u64),
        segment: SegmentId,
        mut command: Command,
        step: &mut Step<'_>,
    ) {
        if !self.here.has_what_it_changes(segment) {
            return refuse(from, call, Rejection::Busy, step);
        }
        let mut waiting = self.here.ledgers.orders.iter();
        let asks = !waiting.any(|order| order.segment == segment);
        if !self.here.may_change_records(segment, asks, step) {
            let order = Order {
                from,
                call,
                segment,
                command,
                until: step.now.monotonic + self.here.config.timing.retry,
            };
            return self.here.hold(order, step);
        }
        let id = (command.session, command.number);
        let planted = self.here.config.planted;
        let room = self.here.segments.get(&segment);
        let known = room.and_then(|room| room.state.outcome(id.0, id.1, planted));
        let result = match known {
            Some(Outcome::Ledger) => self.here.verdict_of(segment, &command, step),
            None => match self.assign(segment, &mut command, step) {
                Ok(()) => {
                    self.with_primary(segment, step, |primary, state, cx| {
                        primary.on_submit(from, call, command, state, cx);
                    });
                    let room = self.here.segments.get_mut(&segment);
                    if let Some(room) = room
                        && !room.primary.as_ref().is_some_and(|p| p.awaits(id))
                        && let Some(clerk) = &mut room.clerk
                    {
                        clerk.ended(id);
                    }
                    return;
                }
                Err(why) => Err(why),
            },
            Some(other) => return step.fx.promise(from, submitted(call, Ok(other))),
        };
        let result = result.map(|verdict| Outcome::Executed(Box::new(verdict)));
        step.fx.promise(from, submitted(call, result));
    }

    /// A member has said that it has all records of a segment: what waits for that goes on.
    pub(super) fn resume_orders(&mut self, segment: SegmentId, step: &mut Step<'_>) {
        let waits = |order: &Order| order.segment == segment;
        let waiting = self.here.ledgers.orders.iter().any(waits);
        // An answer is no reason to ask again: that would never end.
        let asks = self.here.config.planted.has(Bug::AnswersAskAgain);
        if !waiting || !self.here.may_change_records(segment, asks, step) {
            return;
        }
        let orders = core::mem::take(&mut self.here.ledgers.orders);
        let (ready, others): (Vec<Order>, _) = orders.into_iter().partition(waits);
        self.here.ledgers.orders = others;
        for order in ready {
            let submit = lock::Message::Submit {
                call: order.call,
                segment,
                command: order.command,
            };
            self.on_lock(order.from, submit, step);
        }
    }

    /// Gives a transaction its timestamp, unless it has one.
    fn assign(
        &mut self,
        segment: SegmentId,
        command: &mut Command,
        step: &mut Step<'_>,
    ) -> Result<(), Rejection> {
        let id = (command.session, command.number);
        let Body::Ledger(LedgerCommand::Transact {
            at, transaction, ..
        }) = &mut command.body
        else {
            return Ok(());
        };
        let room = self.here.segments.get(&segment);
        let primary = room.and_then(|room| room.primary.as_ref());
        if primary.is_some_and(|primary| Primary::awaits(primary, id)) {
            return Ok(());
        }
        let (dead, lead) = self.here.terms(transaction.items());
        if dead {
            return Err(Rejection::NoSuchKeyspace);
        }
        let hours = self.here.hours(segment, step);
        let room = self.here.segments.get_mut(&segment);
        let clerk = room.and_then(|room| room.clerk.as_mut());
        let clerk = clerk.ok_or(Rejection::Busy)?;
        clerk.note_use(lead, step.now.monotonic);
        let (given, limit) = clerk.assign(id, transaction, *at, &hours)?;
        *at = given;
        self.here.state_limit(segment, limit, step);
        self.here.ledgers.note_lead(lead, step.now.monotonic);
        Ok(())
    }

    /// A command was applied that may have been one of a ledger.
    pub(super) fn order_applied(&mut self, segment: SegmentId, command: &Command) {
        if let Body::Ledger(_) = command.body
            && let Some(room) = self.here.segments.get_mut(&segment)
            && let Some(clerk) = &mut room.clerk
        {
            clerk.ended((command.session, command.number));
        }
    }
}
