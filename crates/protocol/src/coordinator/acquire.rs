//! Joining the queues of one or several segments, one after the other, until all are held.
//!
//! Keys are locked in (address, keyspace, key) order, and a segment is joined only when the one
//! before has granted all its keys (F19, several keys): a client that waits holds nothing that
//! somebody before it in that order waits for. While it waits, every ref is renewed, and refs whose
//! grant has not arrived are named: a new primary learns where to push, and a lost push is
//! repeated.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::{Client, Cx, Event, Grant, Lost, Target};
use crate::base::{Bug, KeyId, LockRef, Micros, SegmentId};
use crate::command::{Body, Command, LockCommand};
use crate::lock::Outcome;
use crate::request::{EntryValue, Held, Mode, RefState, Refusal};
use alloc::string::String;
use alloc::vec::Vec;

/// The keys of one segment.
#[derive(Debug)]
struct SegmentAcquire {
    segment: SegmentId,
    keys: Vec<KeyId>,
    command: Command,
    lock_ref: Option<LockRef>,
    generation: u32,
    ahead: u32,
    grant: Option<Grant>,
    ask: Option<u64>,
    renewal: Option<u64>,
}

/// What an event has changed.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing that the client is told.
    Nothing,
    /// The ref waited for is known, or its place has changed.
    Queued,
    /// Everything is held.
    Entered,
    /// It cannot be had.
    Failed(Refusal),
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct Acquire {
    parts: Vec<SegmentAcquire>,
    current: usize,
    /// None where a resume does not know it; the guard of later operations then asks.
    mode: Option<Mode>,
    renew_at: Micros,
    /// Bytes of values kept of the grants so far ([`crate::base::Limits::grant`]).
    kept: usize,
}

impl Acquire {
    /// One command per segment, in the order in which they are to be submitted. The command is an
    /// enqueue, or a resume of the ref it names.
    pub(super) fn new(
        commands: Vec<(SegmentId, Vec<KeyId>, Command)>,
        mode: Option<Mode>,
    ) -> Acquire {
        let part = |(segment, keys, command)| SegmentAcquire {
            segment,
            keys,
            command,
            lock_ref: None,
            generation: 0,
            ahead: 0,
            grant: None,
            ask: None,
            renewal: None,
        };
        Acquire {
            parts: commands.into_iter().map(part).collect(),
            current: 0,
            mode,
            renew_at: Micros::MAX,
            kept: 0,
        }
    }

    /// Submits the first command.
    pub(super) fn begin(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) {
        let Some(part) = self.parts.get_mut(self.current) else {
            return;
        };
        let enqueue = (part.command.session, part.command.number, part.segment);
        desk.wait_for(enqueue, client.task);
        let target = Target::Segment(part.segment);
        let question = Question::Command(part.command.clone());
        let deadline = cx.after(cx.env.timing.request);
        part.ask = Some(
            desk.submit
                .ask(client.task, target, question, deadline, false, cx),
        );
        self.renew_at = cx.after(self.period(cx));
    }

    /// Handles an event, of which some may be another machine's.
    pub(super) fn on(
        &mut self,
        event: Event,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Progress {
        match event {
            Event::Asked { ask, answer } => self.answered(ask, answer, client, desk, cx),
            Event::Granted(grant) => self.granted(grant, client, desk, cx),
            Event::Lost(Lost {
                segment,
                lock_ref,
                generation,
                ..
            }) => {
                let lost = |p: &SegmentAcquire| {
                    p.segment == segment
                        && p.lock_ref == Some(lock_ref)
                        && p.generation == generation
                };
                if self.parts.iter().any(lost) {
                    Progress::Failed(Refusal::past("the wait for the lock"))
                } else {
                    Progress::Nothing
                }
            }
            Event::Timer if cx.env.now.monotonic >= self.renew_at => {
                self.renew(client, desk, cx);
                Progress::Nothing
            }
            Event::News => {
                self.renew(client, desk, cx);
                Progress::Nothing
            }
            _ => Progress::Nothing,
        }
    }

    /// Whether only the grant of a ref in this segment is missing, which a new primary does not
    /// know where to send.
    pub(super) fn awaits(&self, segment: SegmentId) -> bool {
        let waits = |p: &SegmentAcquire| p.lock_ref.is_some() && p.grant.is_none();
        let mut parts = self.parts.iter().filter(|p| p.segment == segment);
        parts.any(waits)
    }

    fn answered(
        &mut self,
        ask: u64,
        answer: PrimaryAnswer,
        client: &Client,
        desk: &mut Desk,
        cx: &Cx<'_>,
    ) -> Progress {
        let asked = |p: &&mut SegmentAcquire| p.ask == Some(ask) || p.renewal == Some(ask);
        let Some(part) = self.parts.iter_mut().find(asked) else {
            return Progress::Nothing;
        };
        if part.renewal == Some(ask) {
            part.renewal = None;
            return part.renewed(answer);
        }
        let PrimaryAnswer::Outcome { outcome, ahead } = answer else {
            return Progress::Failed(refuse::unanswered("entering the section", &answer));
        };
        part.ask = None;
        match outcome {
            Outcome::Enqueued { lock_ref } => {
                part.lock_ref = Some(lock_ref);
                part.ahead = ahead;
                desk.watch(part.segment, lock_ref, client.task);
                Progress::Queued
            }
            Outcome::Resumed { generation } => {
                if let Body::Lock(LockCommand::Resume { lock_ref, .. }) = part.command.body {
                    part.lock_ref = Some(lock_ref);
                    desk.watch(part.segment, lock_ref, client.task);
                }
                part.generation = generation;
                part.ahead = ahead;
                self.renew_at = cx.after(self.period(cx));
                Progress::Queued
            }
            Outcome::Gone => {
                let resumes = matches!(part.command.body, Body::Lock(LockCommand::Resume { .. }));
                Progress::Failed(match resumes {
                    true => refuse::generation_past(),
                    false => Refusal::past("the wait for the lock"),
                })
            }
            Outcome::Refused(refusal) => Progress::Failed(refusal),
            outcome => {
                let other = PrimaryAnswer::Outcome { outcome, ahead };
                Progress::Failed(refuse::unanswered("entering the section", &other))
            }
        }
    }

    fn granted(
        &mut self,
        mut grant: Grant,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Progress {
        let same = |p: &&mut SegmentAcquire| {
            p.segment == grant.segment
                && p.command.session == grant.session
                && p.command.number == grant.number
        };
        let mode = self.mode;
        let Some(part) = self.parts.iter_mut().find(same) else {
            return Progress::Nothing;
        };
        let covered = |key: &KeyId| grant.latest.iter().any(|l| l.key == *key);
        if part.grant.is_some() || !part.keys.iter().all(covered) {
            return Progress::Nothing;
        }
        if let Some(ask) = part.ask.take() {
            desk.submit.close(ask);
        }
        for (key, mode) in part.keys.iter().zip(core::iter::repeat(mode)) {
            let Some(mode) = mode else { break };
            let passes = &mut desk.passes;
            let at = (grant.lock_ref, grant.generation);
            passes.remember(grant.segment, at, (mode, grant.session), key);
        }
        desk.watch(part.segment, grant.lock_ref, client.task);
        part.lock_ref = Some(grant.lock_ref);
        part.generation = grant.generation;
        // Each grant is within the bound; all of them together are the client's one answer.
        let mut room = cx.env.limits.grant.saturating_sub(self.kept);
        let before = room;
        for latest in &mut grant.latest {
            let value = core::mem::replace(&mut latest.value, EntryValue::Omitted);
            latest.value = value.within(&mut room);
        }
        self.kept += before - room;
        part.grant = Some(grant);
        while self
            .parts
            .get(self.current)
            .is_some_and(|p| p.grant.is_some())
        {
            self.current += 1;
            if self
                .parts
                .get(self.current)
                .is_some_and(|p| p.ask.is_none() && p.grant.is_none())
            {
                self.begin(client, desk, cx);
            }
        }
        if self.current == self.parts.len() {
            self.renew_at = Micros::MAX;
            Progress::Entered
        } else {
            Progress::Nothing
        }
    }

    /// An answer to a renewal of what is held: how it stands is learnt by whoever uses it.
    pub(super) fn renewed(&mut self, ask: u64) {
        if let Some(part) = self.parts.iter_mut().find(|p| p.renewal == Some(ask)) {
            part.renewal = None;
        }
    }

    /// How often the refs are renewed: thrice within the shortest lease, so that one message may be
    /// late (G48).
    fn period(&self, cx: &Cx<'_>) -> Micros {
        let slow = 2 * cx.env.timing.retry;
        if cx.env.planted.has(Bug::RenewedWhateverLease) {
            return slow;
        }
        let lease = |p: &SegmentAcquire| match &p.command.body {
            Body::Lock(
                LockCommand::Enqueue { origin, .. } | LockCommand::Resume { origin, .. },
            ) => Some(origin.lease),
            _ => None,
        };
        let shortest = self.parts.iter().filter_map(lease).min();
        shortest.map_or(slow, |lease| slow.min(lease / 3))
    }

    /// Keeps every ref alive and asks for grants that have not arrived.
    pub(super) fn renew(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) {
        self.renew_at = cx.after(self.period(cx));
        for part in &mut self.parts {
            let (Some(lock_ref), None) = (part.lock_ref, part.renewal) else {
                continue;
            };
            let waits = part.grant.is_none();
            let question = Question::Renew {
                session: part.command.session,
                refs: [(lock_ref, part.generation)].into(),
                again: waits.then_some(lock_ref).into_iter().collect(),
                relinquishes: false,
            };
            let target = Target::Segment(part.segment);
            let deadline = cx.after(4 * cx.env.timing.retry);
            let ask = desk
                .submit
                .ask(client.task, target, question, deadline, true, cx);
            part.renewal = Some(ask);
        }
    }

    /// When the refs want to be renewed.
    pub(super) fn wake(&self) -> Micros {
        self.renew_at
    }

    /// Whether the ref waited for is known, so that only its grant is missing.
    pub(super) fn waits(&self) -> bool {
        self.parts
            .get(self.current)
            .is_some_and(|p| p.lock_ref.is_some())
    }

    /// Refs ahead of the one waited for.
    pub(super) fn ahead(&self) -> u32 {
        self.parts.get(self.current).map_or(0, |p| p.ahead)
    }

    /// Why the lock that is waited for cannot be granted as things are: too few members are in
    /// reach to read the latest value of one of its keys. So it is behind others, too: they hold,
    /// or wait for the same.
    pub(super) fn stalls(&self, cx: &Cx<'_>) -> Option<String> {
        let part = self.parts.get(self.current)?;
        part.lock_ref?;
        part.keys.iter().find_map(|key| refuse::shortage(key, cx))
    }

    /// The refusal of a wait that is over: who stands before the ref waited for.
    pub(super) fn wait_over(&self, cx: &Cx<'_>) -> Refusal {
        let part = self.parts.get(self.current);
        let keys = part.map_or(&[][..], |p| &p.keys);
        let own = part.and_then(|p| p.lock_ref);
        let mut heads = keys.iter().filter_map(|k| cx.topology.head(k));
        let head = heads.find(|(head, _)| Some(*head) != own);
        let head = head.map(|(head, since)| (head, cx.env.now.wall.saturating_sub(since)));
        Refusal::wait_over(self.ahead(), head)
    }

    /// From now on what is held is kept alive, too, whoever calls [`Acquire::renew`] at the time of
    /// [`Acquire::wake`].
    pub(super) fn keep(&mut self, cx: &Cx<'_>) {
        self.renew_at = cx.after(self.period(cx));
    }

    /// Keys whose refs are known.
    pub(super) fn held(&self) -> Vec<Held> {
        let of = |p: &SegmentAcquire| {
            let (lock_ref, generation) = (p.lock_ref, p.generation);
            let held = |key: &KeyId| {
                Some(Held {
                    key: key.clone(),
                    lock_ref: lock_ref?,
                    generation,
                })
            };
            p.keys.iter().filter_map(held).collect::<Vec<Held>>()
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// The ref and latest value of a key that is held.
    pub(super) fn latest(&self, key: &KeyId) -> Option<(Held, EntryValue, crate::base::Tag)> {
        for part in &self.parts {
            let Some(grant) = &part.grant else { continue };
            if let Some(latest) = grant.latest.iter().find(|l| l.key == *key) {
                let held = Held {
                    key: key.clone(),
                    lock_ref: grant.lock_ref,
                    generation: grant.generation,
                };
                return Some((held, latest.value.clone(), latest.tag));
            }
        }
        None
    }

    /// The shortest lease. Every lease was granted after the client sent its request, from which
    /// the client counts; so waiting for other segments does not shorten it.
    pub(super) fn lease(&self) -> Micros {
        let leases = self
            .parts
            .iter()
            .filter_map(|p| p.grant.as_ref())
            .map(|g| g.lease);
        leases.min().unwrap_or(0)
    }

    /// Leaves every ref in the background, dirty (see the invariants of [`super`]), and remembers
    /// the enqueue whose ref is not known; but not if the client has repeated the request here.
    pub(super) fn give_up(&self, client: &Client, desk: &mut Desk, cx: &Cx<'_>) {
        for part in &self.parts {
            let enqueue = (part.command.session, part.command.number, part.segment);
            if desk.shared(enqueue, client.task) {
                continue;
            }
            if let Some(lock_ref) = part.lock_ref {
                desk.leave_dirty(client, part.segment, lock_ref, part.generation, cx);
            } else if part.ask.is_some() {
                desk.give_up(client, enqueue, part.ask);
            }
        }
    }

    /// Gives back what is registered at the desk.
    pub(super) fn close(&mut self, client: &Client, desk: &mut Desk) {
        for part in &self.parts {
            let enqueue = (part.command.session, part.command.number, part.segment);
            desk.wait_no_more(enqueue, client.task);
            if let Some(lock_ref) = part.lock_ref {
                desk.watch_no_more(part.segment, lock_ref, client.task);
            }
        }
    }
}

impl SegmentAcquire {
    fn renewed(&mut self, answer: PrimaryAnswer) -> Progress {
        let PrimaryAnswer::States(states) = answer else {
            return Progress::Nothing;
        };
        match states.first() {
            Some(RefState::Gone) => Progress::Failed(Refusal::past("the wait for the lock")),
            Some(RefState::Queued { ahead }) if *ahead != self.ahead => {
                self.ahead = *ahead;
                Progress::Queued
            }
            // At the head: what is missing is the grant.
            Some(RefState::Holding { .. }) if self.ahead > 0 && self.grant.is_none() => {
                self.ahead = 0;
                Progress::Queued
            }
            _ => Progress::Nothing,
        }
    }
}
