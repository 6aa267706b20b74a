//! One critical operation, and `put_and_leave`.
//!
//! The guard is MUSIC's `lsPeek`: an operation of a ref that does not hold its key is refused
//! before anything is sent. It knows more than a local peek, which may lag: a grant that passed
//! this coordinator counts, and where nothing is known the primary is asked once. Replicas refuse
//! by tag and fence what it lets through by mistake (F1); the guard is worth its code because a
//! refusal here is definite, and a shared section is kept from writing.
//!
//! `put_and_leave` leaves cleanly only after the put has its quorum; when the put fails, the ref is
//! left dirty in the background (F5: the next holder then synchs). Where the ref is past already,
//! the request may be the retry of one that has left: the leave's record, found by its identity,
//! decides.

use super::desk::Desk;
use super::leave::{Background, Leaves, Left, commands, segment_of};
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::topology::AppliedRef;
use super::{Client, Cx, Event, Job, Step, Target};
use crate::base::tag::GENERATION_SPAN;
use crate::base::{Micros, SegmentId, SessionId, Tag};
use crate::register;
use crate::request::{Code, Critical, Held, Leaving, Mode, QueueEntry, Refusal, Reply};
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
            refuse::value_fits(value.as_ref(), cx)?;
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
        past: None,
    };
    if job.leaves {
        job.leave.retain(|(held, _)| held.key != job.held.key);
        commands(&job.leaving(Leaving::Dirty), client.session, cx)?;
    }
    Ok(Box::new(job))
}

#[derive(Debug)]
enum Doing {
    Guard,
    Operating,
    Paused(Micros),
    Leaving(Leaves),
    /// The ref is past: did an earlier transmission of this request leave it?
    Probing(Leaves),
}

#[derive(Debug)]
struct Operate {
    segment: SegmentId,
    held: Held,
    operation: Critical,
    /// The other keys to leave.
    leave: Vec<(Held, Leaving)>,
    /// Whether this is a `put_and_leave`.
    leaves: bool,
    doing: Doing,
    /// The register room has seen the operation.
    sent: bool,
    /// An earlier attempt of this job may have taken effect.
    unsure: bool,
    /// What to say where a probe finds nothing.
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

    fn leaving(&self, own: Leaving) -> Vec<(Held, Leaving)> {
        let mut keys = self.leave.clone();
        keys.push((self.held.clone(), own));
        keys
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
            return self.pause(cx);
        }
        self.sent = true;
        self.doing = Doing::Operating;
        Step::Open
    }

    fn pause(&mut self, cx: &Cx<'_>) -> Step {
        self.doing = Doing::Paused(cx.after(cx.env.timing.retry / 8 + 1));
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
            register::OpEnd::Stored { tag } if self.leaves => {
                self.leave_clean(tag, client, desk, cx)
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
            // Replicas may not have applied the enqueue yet, or are changing their epoch.
            register::OpEnd::NotHolder {
                may_have_taken_effect,
            }
            | register::OpEnd::Moved {
                may_have_taken_effect,
                ..
            } if !over => {
                self.unsure |= may_have_taken_effect;
                self.pause(cx)
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
        if self.sent
            && self.leaves
            && let Ok(leaves) = commands(&self.leaving(Leaving::Dirty), client.session, cx)
        {
            desk.spawn(client, Box::new(Background::new(leaves, cx)));
        }
        Step::refuse(refusal)
    }

    fn leave_clean(&mut self, tag: Tag, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match commands(&self.leaving(Leaving::Clean(Some(tag))), client.session, cx) {
            Ok(leaves) => {
                let mut leaves = Leaves::new(leaves);
                let deadline = cx.after(cx.env.timing.request);
                leaves.begin(client.task, client, deadline, desk, cx);
                self.doing = Doing::Leaving(leaves);
                Step::Open
            }
            Err(refusal) => Step::refuse(Refusal {
                may_have_taken_effect: true,
                ..refusal
            }),
        }
    }

    /// The ref is past. With a leave, its record tells whether this request has ended it.
    fn refused_past(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let refusal = self
            .past
            .take()
            .unwrap_or_else(|| Refusal::past(self.what()));
        if self.leaves
            && let Ok(leaves) = commands(&self.leaving(Leaving::Dirty), client.session, cx)
        {
            let mut leaves = Leaves::new(leaves);
            let deadline = cx.after(cx.env.timing.request);
            leaves.begin(client.task, client, deadline, desk, cx);
            self.past = Some(refusal);
            self.doing = Doing::Probing(leaves);
            return Step::Open;
        }
        Step::refuse(refusal)
    }

    fn left(&mut self, left: Left, client: &Client, desk: &mut Desk, cx: &Cx<'_>) -> Step {
        match left {
            Left::Going => Step::Open,
            // The put has its quorum; if somebody ended the section since, its synch adopts the
            // put.
            Left::All(_) | Left::Gone => Step::reply(Reply::Left),
            Left::Failed(refusal) => {
                let Critical::Put { number, .. } = self.operation else {
                    return Step::refuse(refusal);
                };
                let Held {
                    lock_ref,
                    generation,
                    ..
                } = self.held;
                let tag = Tag::critical(lock_ref, generation, number, client.session);
                if let Ok(leaves) =
                    commands(&self.leaving(Leaving::Clean(Some(tag))), client.session, cx)
                {
                    desk.spawn(client, Box::new(Background::new(leaves, cx)));
                }
                Step::refuse(Refusal {
                    may_have_taken_effect: true,
                    ..refusal
                })
            }
        }
    }

    fn probed(&mut self, left: Left) -> Step {
        let refusal = self.past.clone();
        let refusal = refusal.unwrap_or_else(|| Refusal::past(self.what()));
        match left {
            Left::Going => Step::Open,
            Left::All(parts) if parts.contains(&(self.segment, true)) => Step::reply(Reply::Left),
            // It has left, but dirty: its put had no confirmation.
            Left::All(_) => Step::refuse(Refusal::past_unsure(self.what())),
            Left::Gone => Step::refuse(refusal),
            Left::Failed(_) => Step::refuse(Refusal::past_unsure(self.what())),
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
        match &mut self.doing {
            Doing::Guard => match answer {
                PrimaryAnswer::Queue(entries, _) => self.peeked(&entries, client, desk, cx),
                other => {
                    let refusal = refuse::unanswered(self.what(), &other);
                    self.fail(refusal, client, desk, cx)
                }
            },
            Doing::Leaving(leaves) => {
                let left = leaves.on(ask, answer);
                self.left(left, client, desk, cx)
            }
            Doing::Probing(leaves) => {
                let left = leaves.on(ask, answer);
                self.probed(left)
            }
            Doing::Operating | Doing::Paused(_) => Step::Open,
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
}
