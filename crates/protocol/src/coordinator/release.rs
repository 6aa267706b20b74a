//! A forced release (MUSIC `forcedRelease`).
//!
//! **Problem.** The primary takes no release before the holder's lease has run out (F10). The
//! section may end sooner, because its holder leaves or is released by somebody else, and nobody
//! who waits for that wants to sit out the lease, or to hear then that there was nothing to
//! release.
//!
//! **Idea.** What is asked for is that the ref be out of its queue. A primary that says `Leased`
//! has noted who asks, and tells when the ref is past, whatever ended it. That is the good end of a
//! release. Its word may be lost, and a new primary has not noted anything: so the command is sent
//! again every two retry times, which ends the lease there, too. The asker is told `Queued` while
//! it waits, so that a client does not take this node for dead.
//!
//! **Invariants.**
//! * `Done` is said only of a ref that has been removed. A generation that is past is not enough:
//!   the ref of a section that was resumed lives on.
//! * `NoLongerHolder` and `NotHolder` are said only by a release that no primary has answered with
//!   `Leased`: the ref was past, or not given yet, when it came. The sentence claims nothing of
//!   earlier transmissions of the same request.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::topology::AppliedRef;
use super::{Client, Cx, Event, Job, STEP_FIRST, Step, Target};
use crate::base::{KeyId, LockRef, Micros, SegmentId};
use crate::command::{Command, LockCommand};
use crate::lock::Outcome;
use crate::request::{Code, Refusal, Reply};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The job of `Release`: it waits for the holder's lease as long as the request may last (F10).
pub(super) fn release(
    key: KeyId,
    lock_ref: LockRef,
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let segment = super::leave::segment_of(&key, cx)?;
    let epoch = Desk::epoch(cx.topology, segment);
    let body = LockCommand::Release {
        lock_ref,
        key: Some(key.clone()),
    };
    Ok(Box::new(Release {
        segment,
        key,
        lock_ref,
        command: Desk::command(client, STEP_FIRST, epoch, body),
        leased: false,
        removed: false,
    }))
}

#[derive(Debug)]
struct Release {
    segment: SegmentId,
    key: KeyId,
    lock_ref: LockRef,
    command: Command,
    /// A primary found it in the queue, with a lease.
    leased: bool,
    /// A primary has told that it is past.
    removed: bool,
}

impl Release {
    /// It was in the queue when the release came, and is not any more.
    fn ended(&self) -> bool {
        self.leased && self.removed
    }

    fn answered(&mut self, answer: PrimaryAnswer, client: &Client, cx: &mut Cx<'_>) -> Step {
        let done = Step::reply(Reply::Done { tag: None });
        match answer {
            PrimaryAnswer::Leased => {
                self.leased = true;
                if self.ended() {
                    return done;
                }
                let reply = Reply::Queued {
                    held: Vec::new(),
                    ahead: 0,
                };
                client.tell(reply, cx);
                Step::Open
            }
            PrimaryAnswer::Outcome { outcome, .. } => match outcome {
                Outcome::Done => done,
                Outcome::Gone if self.leased => done,
                // A repeated release has the outcome of its first time, so this one ended nothing.
                Outcome::Gone => Step::refuse(self.gone(cx)),
                Outcome::Refused(refusal) => Step::refuse(refusal),
                _ => Step::refuse(refuse::nonsense("the forced release")),
            },
            other => Step::refuse(refuse::unanswered("the forced release", &other)),
        }
    }

    /// What to say of a ref that no queue has. Refs are positions in the segment's history: one
    /// beyond what this node has applied was not given yet, as far as anybody here knows.
    fn gone(&self, cx: &Cx<'_>) -> Refusal {
        let state = cx.topology.applied_ref(&self.key, self.lock_ref, 0);
        if matches!(state, AppliedRef::Past) {
            let text = "there is nothing left to release: the lock ref is past, it was left, \
                        released or expired before, or it was never given";
            Refusal::definite(Code::NoLongerHolder, text)
        } else {
            let text = "there is nothing to release: no queue has this lock ref, and none has \
                        given it yet; the key's queue shows those that live";
            Refusal::definite(Code::NotHolder, text)
        }
    }
}

impl Job for Release {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => {
                // From the first: the word that it is past may overtake the one of its lease.
                desk.watch(self.segment, self.lock_ref, client.task);
                let (target, deadline) = (Target::Segment(self.segment), client.deadline);
                let question = Question::Command(self.command.clone());
                desk.submit
                    .ask(client.task, target, question, deadline, true, cx);
                Step::Open
            }
            Event::Asked { answer, .. } => self.answered(answer, client, cx),
            Event::Lost(lost) if lost.removed => {
                self.removed = true;
                if self.ended() {
                    return Step::reply(Reply::Done { tag: None });
                }
                Step::Open
            }
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        // The submission has its own deadline.
        None
    }

    fn close(&mut self, client: &Client, desk: &mut Desk) {
        desk.watch_no_more(self.segment, self.lock_ref, client.task);
    }
}
