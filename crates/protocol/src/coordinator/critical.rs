//! One critical operation, and `put_and_leave`.
//!
//! The guard is MUSIC's `lsPeek`: an operation of a ref that does not hold its key is refused
//! before anything is sent. It knows more than a local peek, which may lag: a grant that passed
//! this coordinator counts, and where nothing is known the primary is asked once. Replicas refuse
//! by tag and fence what it lets through by mistake (F1); the guard is worth its code because a
//! refusal here is definite, and a shared section is kept from writing.
//!
//! `put_and_leave` sends the leave beside the put, and answers when both are at quorums. The leave
//! is dirty and names the put (F5: the next holder then synchs), until the primary hears that the
//! put has its quorum. If the put fails, nothing is left to do. Where the ref is past already, the
//! request may be the retry of one that has left: the leave's record, found by its identity, says
//! whether the put was done. If it does not know, the put is sent again, and fences decide.

use super::desk::Desk;
use super::leave::{Background, Leaves, Left, commands, segment_of};
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::topology::AppliedRef;
use super::{Client, Cx, Event, Job, Step, Target};
use crate::base::tag::GENERATION_SPAN;
use crate::base::{Bug, Micros, SegmentId, SessionId, Tag};
use crate::command::LockCommand;
use crate::request::{Code, Critical, Held, Leaving, Mode, QueueEntry, Refusal, Reply};
use crate::{lock, register};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The job of `Critical`.
pub(super) fn critical(
    held: Held,
    operation: Critical,
    leave: Vec<(Held, Leaving)>,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let segment = segment_of(&held.key, cx)?;
    match &operation {
        Critical::Put { number, value } => {
            if *number == 0 || *number >= GENERATION_SPAN {
                return Err(refuse::bad(
                    "writes of a section are numbered from 1, up to 2^40",
                ));
            }
            refuse::write_fits(&held.key, value.as_ref(), cx)?;
        }
        Critical::Get if !leave.is_empty() => {
            return Err(refuse::bad(
                "only a put can leave its section in the same request",
            ));
        }
        Critical::Get => {}
    }
    let mut job = Operate {
        leaves: !leave.is_empty(),
        segment,
        held,
        operation,
        leave,
        doing: Doing::Guard,
        sent: false,
        unsure: false,
        stored: false,
        leaving: None,
        left: None,
        past: None,
    };
    if job.leaves {
        job.leave.retain(|(held, _)| held.key != job.held.key);
        job.leave.push((job.held.clone(), Leaving::Dirty));
        commands(&job.leave, None, client.session, cx)?;
    }
    Ok(Box::new(job))
}

#[derive(Debug)]
enum Doing {
    Guard,
    Operating,
    Paused(Micros),
    /// The operation has ended; the leave has not.
    Leaving,
}

#[derive(Debug)]
struct Operate {
    segment: SegmentId,
    held: Held,
    operation: Critical,
    /// The keys to leave, the put's own among them.
    leave: Vec<(Held, Leaving)>,
    /// Whether this is a `put_and_leave`.
    leaves: bool,
    doing: Doing,
    /// The register room has seen the operation.
    sent: bool,
    /// An earlier attempt of this job may have taken effect.
    unsure: bool,
    /// The put is at its quorum.
    stored: bool,
    /// The leave, once it was sent, until it has its answers.
    leaving: Option<Leaves>,
    /// The answers.
    left: Option<Left>,
    /// The ref is past for the operation: what to say where the record of the leave says nothing
    /// better.
    past: Option<Refusal>,
}

impl Operate {
    fn what(&self) -> &'static str {
        match self.operation {
            Critical::Get => "the critical get",
            Critical::Put { .. } => "the critical put",
        }
    }

    fn puts(&self) -> bool {
        matches!(self.operation, Critical::Put { .. })
    }

    fn tag(&self, client: &Client) -> Option<Tag> {
        let Critical::Put { number, .. } = self.operation else {
            return None;
        };
        let (lock_ref, generation) = (self.held.lock_ref, self.held.generation);
        let tag = Tag::critical(lock_ref, generation, number, client.session);
        Some(tag)
    }

    /// The leave that travels beside the put, or comes after it. While nothing is known of the put
    /// it is dirty, and names it.
    fn leave_commands(
        &self,
        client: &Client,
        cx: &Cx<'_>,
    ) -> Result<Vec<(SegmentId, LockCommand)>, Refusal> {
        let put = self.tag(client).map(|tag| (&self.held.key, tag));
        if !self.stored {
            return commands(&self.leave, put, client.session, cx);
        }
        let mut keys = self.leave.clone();
        for (held, leaving) in &mut keys {
            if held.key == self.held.key {
                *leaving = Leaving::Clean(put.map(|(_, tag)| tag));
            }
        }
        commands(&keys, None, client.session, cx)
    }

    fn guard(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let held = &self.held;
        let state = cx
            .topology
            .applied_ref(&held.key, held.lock_ref, held.generation);
        let passed = desk
            .passes
            .seen(self.segment, held.lock_ref, held.generation, &held.key);
        match (state, passed) {
            (AppliedRef::Past, _) => self.refused_past(client, desk, cx),
            (AppliedRef::Head(mode, session), _) | (_, Some((mode, session))) => {
                self.go((mode, session), client, desk, cx)
            }
            (AppliedRef::Waiting | AppliedRef::Unknown, None) => {
                let question = Question::Queue(held.key.clone());
                let target = Target::Segment(self.segment);
                desk.submit
                    .ask(client.task, target, question, client.deadline, true, cx);
                Step::Open
            }
        }
    }

    fn peeked(
        &mut self,
        entries: &[QueueEntry],
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        let entry = entries.iter().find(|e| e.lock_ref == self.held.lock_ref);
        match entry {
            Some(entry) if entry.generation != self.held.generation => {
                self.refused_past(client, desk, cx)
            }
            Some(entry) if entry.holds => {
                let Held {
                    key,
                    lock_ref,
                    generation,
                } = &self.held;
                let passes = &mut desk.passes;
                let whose = (entry.mode, entry.session);
                passes.remember(self.segment, (*lock_ref, *generation), whose, key);
                self.go(whose, client, desk, cx)
            }
            Some(_) => Step::refuse(Refusal::not_holder(self.what())),
            None => self.refused_past(client, desk, cx),
        }
    }

    fn go(
        &mut self,
        (mode, session): (Mode, SessionId),
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        if session != client.session && !cx.env.planted.asks_no_session() {
            return Step::refuse(Refusal::anothers(self.what()));
        }
        if mode == Mode::Shared && matches!(self.operation, Critical::Put { .. }) {
            let text = "a shared section may not write; leave it and enter an exclusive one";
            return Step::refuse(Refusal::definite(Code::ReadOnlySection, text));
        }
        self.operate(client, desk, cx)
    }

    fn operate(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let Held {
            key,
            lock_ref,
            generation,
        } = self.held.clone();
        let op = match &self.operation {
            Critical::Get => register::Op::Get {
                key,
                holder: register::Holder {
                    lock_ref,
                    generation,
                },
            },
            Critical::Put { number, value } => register::Op::Put {
                key,
                tag: Tag::critical(lock_ref, generation, *number, client.session),
                value: value.clone(),
                // Only the client knows: where it has issued higher numbers, it takes
                // `StaleSequence` for success.
                counter_above: false,
            },
        };
        if !desk.operate(client, (self.segment, &self.held.key), op, cx) {
            return self.pause(Desk::shortly(cx));
        }
        self.sent = true;
        self.doing = Doing::Operating;
        if self.leaves && self.leaving.is_none() && self.left.is_none() {
            return self.send_leave(client, desk, cx);
        }
        Step::Open
    }

    fn send_leave(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match self.leave_commands(client, cx) {
            Ok(leaves) => {
                let mut leaves = Leaves::new(leaves);
                let deadline = cx.after(cx.env.timing.request);
                leaves.begin(client.task, client, deadline, desk, cx);
                self.leaving = Some(leaves);
                if cx.env.planted.has(Bug::LeavingPutSaidEarly) {
                    self.tell_done(client, desk, cx);
                }
                Step::Open
            }
            Err(refusal) => Step::refuse(Refusal {
                may_have_taken_effect: self.sent,
                ..refusal
            }),
        }
    }

    fn pause(&mut self, until: Micros) -> Step {
        self.doing = Doing::Paused(until);
        Step::Open
    }

    fn operated(
        &mut self,
        outcome: register::OpEnd,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        let over = cx.env.now.monotonic >= client.deadline;
        match outcome {
            register::OpEnd::Value { value, tag } => Step::reply(Reply::Value { value, tag }),
            register::OpEnd::Stored { .. } if self.leaves => {
                self.stored = true;
                self.doing = Doing::Leaving;
                self.tell_done(client, desk, cx);
                self.conclude(client, desk, cx)
            }
            register::OpEnd::Stored { tag } => Step::reply(Reply::Done { tag: Some(tag) }),
            register::OpEnd::Past {
                may_have_taken_effect,
            } => {
                let Held {
                    lock_ref,
                    generation,
                    ..
                } = self.held;
                desk.passes.forget(self.segment, lock_ref, generation, None);
                if (may_have_taken_effect || self.unsure) && self.puts() {
                    self.past = Some(Refusal::past_unsure(self.what()));
                }
                self.refused_past(client, desk, cx)
            }
            // Replicas may not have applied the enqueue yet,
            register::OpEnd::NotHolder {
                may_have_taken_effect,
            } if !over => {
                self.unsure |= may_have_taken_effect;
                self.pause(Desk::shortly(cx))
            }
            // or are changing their epoch.
            register::OpEnd::Moved {
                next,
                may_have_taken_effect,
                ..
            } if !over => {
                self.unsure |= may_have_taken_effect;
                self.pause(Desk::after_move((self.segment, &self.held.key), next, cx))
            }
            other => {
                let mut refusal = refuse::failed(self.what(), &other, &self.held.key, cx);
                refusal.may_have_taken_effect |= self.unsure;
                self.fail(refusal, client, desk, cx)
            }
        }
    }

    fn fail(
        &mut self,
        mut refusal: Refusal,
        client: &Client,
        desk: &mut Desk,
        cx: &Cx<'_>,
    ) -> Step {
        refusal.may_have_taken_effect &= self.sent && self.puts();
        if self.leaving.is_some() || matches!(self.left, Some(Left::Failed(_))) {
            self.leave_later(client, desk, cx);
        }
        Step::refuse(refusal)
    }

    /// Goes on leaving when this request has its answer.
    fn leave_later(&self, client: &Client, desk: &mut Desk, cx: &Cx<'_>) {
        if let Ok(leaves) = self.leave_commands(client, cx) {
            desk.spawn(client, Box::new(Background::new(leaves, cx)));
        }
    }

    /// Tells the primary that the put beside the leave is at its quorum.
    fn tell_done(&self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) {
        if let Some(tag) = self.tag(client) {
            let (segment, key) = (self.segment, self.held.key.clone());
            let done = lock::Message::PutDone { segment, key, tag };
            desk.submit.tell(Target::Segment(segment), done, cx);
        }
    }

    /// The ref is past. With a leave, its record tells whether this request has ended it.
    fn refused_past(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let refusal = self
            .past
            .take()
            .unwrap_or_else(|| Refusal::past(self.what()));
        if !self.leaves {
            return Step::refuse(refusal);
        }
        self.past = Some(refusal);
        self.doing = Doing::Leaving;
        if self.leaving.is_none() && self.left.is_none() {
            return self.send_leave(client, desk, cx);
        }
        self.conclude(client, desk, cx)
    }

    /// Answers once both the put and the leave have ended.
    fn conclude(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let Some(left) = self.left.take() else {
            return Step::Open;
        };
        let refusal = self.past.take();
        match (left, refusal) {
            // The put has its quorum; if somebody ended the section since, its synch adopts the
            // put.
            (Left::All(_) | Left::Gone, None) => Step::reply(Reply::Left),
            (Left::Failed(refusal), None) => {
                self.leave_later(client, desk, cx);
                Step::refuse(Refusal {
                    may_have_taken_effect: true,
                    ..refusal
                })
            }
            (Left::All(parts), Some(_)) if parts.contains(&(self.segment, true)) => {
                Step::reply(Reply::Left)
            }
            // An earlier transmission of this request has left, and its put was under way then: the
            // fences know whether it still may be.
            (Left::All(parts), Some(_)) if !self.sent => {
                self.left = Some(Left::All(parts));
                self.unsure = true;
                self.operate(client, desk, cx)
            }
            (Left::Failed(_), Some(_)) => Step::refuse(Refusal::past_unsure(self.what())),
            (Left::All(_) | Left::Gone, Some(refusal)) => Step::refuse(refusal),
            (Left::Going, _) => Step::Open,
        }
    }

    fn asked(
        &mut self,
        ask: u64,
        answer: PrimaryAnswer,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        match self.doing {
            Doing::Guard => match answer {
                PrimaryAnswer::Queue(entries, _) => self.peeked(&entries, client, desk, cx),
                other => {
                    let refusal = refuse::unanswered(self.what(), &other);
                    self.fail(refusal, client, desk, cx)
                }
            },
            Doing::Operating | Doing::Paused(_) | Doing::Leaving => {
                let Some(leaves) = &mut self.leaving else {
                    return Step::Open;
                };
                let left = leaves.on(ask, answer);
                if matches!(left, Left::Going) {
                    return Step::Open;
                }
                (self.leaving, self.left) = (None, Some(left));
                self.stored |= cx.env.planted.has(Bug::LeavingPutNotAwaited);
                if !self.stored && !matches!(self.doing, Doing::Leaving) {
                    return Step::Open;
                }
                if self.stored {
                    // Whom it was told before may not have led.
                    self.tell_done(client, desk, cx);
                }
                self.conclude(client, desk, cx)
            }
        }
    }
}

impl Job for Operate {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => self.guard(client, desk, cx),
            Event::Asked { ask, answer } => self.asked(ask, answer, client, desk, cx),
            Event::Register(outcome) => self.operated(outcome, client, desk, cx),
            Event::Timer if matches!(self.doing, Doing::Paused(_)) => {
                if cx.env.now.monotonic >= client.deadline {
                    let refusal = refuse::unavailable(self.what(), self.unsure);
                    self.fail(refusal, client, desk, cx)
                } else {
                    self.operate(client, desk, cx)
                }
            }
            Event::News => self.operate(client, desk, cx),
            // A get is of no use any more; a put and its leave go on.
            Event::Cancelled if matches!(self.operation, Critical::Get) => Step::Close(None),
            _ => Step::Open,
        }
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        match self.doing {
            Doing::Paused(at) => Some(at.min(client.deadline)),
            // Questions and quorum operations have their own deadlines.
            _ => None,
        }
    }

    fn awaits(&self, segment: SegmentId) -> bool {
        self.segment == segment && matches!(self.doing, Doing::Paused(_))
    }
}
