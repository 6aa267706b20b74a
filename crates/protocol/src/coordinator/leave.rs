//! Leaving: one command per segment, all at once, each sent until it is answered.
//!
//! A leave is found again by its identity: repeated by a retry of its request, it answers as it did
//! the first time, also when the ref is long past (F5: clean or dirty, as it was). A leave that is
//! owed to a request which has its answer already (a `write`'s, or that of an `enter` that gave up)
//! may come after the session has forgotten that request; it is then issued once more under the
//! coordinator's own session, which is harmless, because a ref leaves only once.

use super::desk::Desk;
use super::refuse;
use super::submit::{PrimaryAnswer, Question};
use super::{Client, Cx, Event, Job, STEP_GIVE_UP, STEP_LEAVE, Step, Target};
use crate::base::{Bug, KeyId, LockRef, Micros, Purpose, SegmentId, SessionId, Tag};
use crate::catalogue;
use crate::command::LockCommand;
use crate::lock::Outcome;
use crate::request::{Code, Held, Leaving, Refusal, Reply};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many request times a background leave is tried. By then the lease has ended the section.
const BACKGROUND: u64 = 16;

/// What came of leaving everywhere.
#[derive(Debug)]
pub(super) enum Left {
    /// Some segment has not answered yet.
    Going,
    /// Every segment has; by segment, whether it set no flag.
    All(Vec<(SegmentId, bool)>),
    /// Some ref was past before.
    Gone,
    /// Some segment refused or did not answer.
    Failed(Refusal),
}

#[derive(Debug)]
struct SegmentLeave {
    segment: SegmentId,
    leave: LockCommand,
    ask: u64,
    result: Option<Result<Outcome, Refusal>>,
}

/// The leaves of one request.
#[derive(Debug)]
pub(super) struct Leaves {
    parts: Vec<SegmentLeave>,
}

impl Leaves {
    /// Nothing is sent yet.
    pub(super) fn new(leaves: Vec<(SegmentId, LockCommand)>) -> Leaves {
        let part = |(segment, leave)| SegmentLeave {
            segment,
            leave,
            ask: 0,
            result: None,
        };
        Leaves {
            parts: leaves.into_iter().map(part).collect(),
        }
    }

    /// Submits all for a client, or again those that have no result.
    pub(super) fn begin(
        &mut self,
        task: super::TaskId,
        client: &Client,
        deadline: Micros,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) {
        for part in self.parts.iter_mut().filter(|p| p.result.is_none()) {
            let epoch = Desk::epoch(cx.topology, part.segment);
            let gives_up = matches!(
                part.leave,
                LockCommand::Leave {
                    waiting_only: true,
                    ..
                }
            );
            let step = if gives_up { STEP_GIVE_UP } else { STEP_LEAVE };
            let command = Desk::command(client, step, epoch, part.leave.clone());
            let target = Target::Segment(part.segment);
            let question = Question::Command(command);
            part.ask = desk.submit.ask(task, target, question, deadline, true, cx);
            if let LockCommand::Leave {
                lock_ref,
                generation,
                of,
                ..
            } = part.leave
            {
                let passes = &mut desk.passes;
                passes.forget(part.segment, lock_ref, generation, Some(of));
            }
        }
    }

    /// Takes an answer.
    pub(super) fn on(&mut self, ask: u64, answer: PrimaryAnswer) -> Left {
        if let Some(part) = self.parts.iter_mut().find(|p| p.ask == ask) {
            part.result = Some(match answer {
                PrimaryAnswer::Outcome { outcome, .. } => Ok(outcome),
                other => Err(refuse::unanswered("leaving the section", &other)),
            });
        }
        self.state()
    }

    fn state(&self) -> Left {
        let mut clean = Vec::new();
        let (mut gone, mut failed) = (false, None);
        for part in &self.parts {
            match &part.result {
                None => return Left::Going,
                Some(Ok(Outcome::Left { clean: c })) => clean.push((part.segment, *c)),
                Some(Ok(Outcome::Gone)) => gone = true,
                Some(Ok(Outcome::Refused(refusal)) | Err(refusal)) => {
                    failed = Some(refusal.clone());
                }
                Some(Ok(_)) => failed = Some(refuse::nonsense("leaving the section")),
            }
        }
        match (failed, gone) {
            (Some(refusal), _) => Left::Failed(refusal),
            (None, true) => Left::Gone,
            (None, false) => Left::All(clean),
        }
    }

    /// Forgets the results that only say that the session has forgotten the request; whether there
    /// were any.
    fn forgotten(&mut self) -> bool {
        let mut any = false;
        for part in &mut self.parts {
            if let Some(Ok(Outcome::Refused(refusal))) = &part.result
                && refusal.code == Code::Forgotten
            {
                part.result = None;
                any = true;
            }
        }
        any
    }
}

/// The leave commands of the keys of a section of session `of`, one per segment; `put` is a last
/// write that is under way.
///
/// # Errors
/// No keys, too many, unknown keyspaces, or two refs in one segment, which no section has.
pub(super) fn commands(
    keys: &[(Held, Leaving)],
    put: Option<(&KeyId, Tag)>,
    of: SessionId,
    cx: &Cx<'_>,
) -> Result<Vec<(SegmentId, LockCommand)>, Refusal> {
    refuse::section_fits(keys.len(), cx)?;
    type Clean = Vec<(KeyId, Option<Tag>)>;
    let mut by: BTreeMap<SegmentId, (LockRef, u32, Clean)> = BTreeMap::new();
    for (held, leaving) in keys {
        // The ref is ended for it, and the section's other keys are left as ever.
        if keys.len() > 1 && cx.topology.catalogue().is_dead(held.key.keyspace) {
            continue;
        }
        let segment = segment_of(&held.key, cx)?;
        let part = by.entry(segment);
        let part = part.or_insert((held.lock_ref, held.generation, Vec::new()));
        if (part.0, part.1) != (held.lock_ref, held.generation) {
            return Err(refuse::bad(
                "a section has one lock ref per segment; leave each alone",
            ));
        }
        let clean = match leaving {
            Leaving::Clean(tag) => *tag,
            Leaving::Dirty if cx.env.planted.has(Bug::DirtyLeaveTakenAsClean) => None,
            Leaving::Dirty => continue,
        };
        part.2.retain(|(key, _)| *key != held.key);
        part.2.push((held.key.clone(), clean));
    }
    if let (true, Some((held, _))) = (by.is_empty(), keys.first()) {
        return Err(catalogue::unknown(held.key.keyspace));
    }
    let under_way = put.filter(|(key, _)| keys.iter().any(|(held, _)| held.key == **key));
    let command = |(segment, (lock_ref, generation, clean))| {
        let here = |(key, tag): (&KeyId, Tag)| {
            (cx.topology.segment(key) == Some(segment)).then(|| (key.clone(), tag))
        };
        let leave = LockCommand::Leave {
            lock_ref,
            generation,
            of,
            clean,
            put: under_way.and_then(here),
            waiting_only: false,
        };
        (segment, leave)
    };
    Ok(by.into_iter().map(command).collect())
}

/// The segment of a key that can be locked.
pub(super) fn segment_of(key: &KeyId, cx: &Cx<'_>) -> Result<SegmentId, Refusal> {
    refuse::checked(key, Some(Purpose::Sections), cx)?;
    let segment = cx.topology.segment(key);
    segment.ok_or_else(|| refuse::bad("the key's keyspace has no segments"))
}

/// The job of `Leave`.
pub(super) fn leave(
    keys: &[(Held, Leaving)],
    client: &Client,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let leaves = Leaves::new(commands(keys, None, client.session, cx)?);
    Ok(Box::new(Leave { leaves }))
}

#[derive(Debug)]
struct Leave {
    leaves: Leaves,
}

impl Job for Leave {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start => {
                let (task, deadline) = (client.task, client.deadline);
                self.leaves.begin(task, client, deadline, desk, cx);
                Step::Open
            }
            Event::Asked { ask, answer } => match self.leaves.on(ask, answer) {
                Left::Going => Step::Open,
                Left::All(_) => Step::reply(Reply::Done { tag: None }),
                Left::Gone => Step::refuse(Refusal::past("leaving the section")),
                Left::Failed(refusal) => Step::refuse(refusal),
            },
            _ => Step::Open,
        }
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        // The submissions have their own deadline.
        None
    }
}

/// A leave that nobody waits for.
#[derive(Debug)]
pub(super) struct Background {
    leaves: Leaves,
    deadline: Micros,
    own: Option<Client>,
    /// Issued under the coordinator's own session from the first.
    private: bool,
}

impl Background {
    /// Leaves on behalf of the client that it is spawned for.
    pub(super) fn new(leaves: Vec<(SegmentId, LockCommand)>, cx: &Cx<'_>) -> Background {
        Background {
            leaves: Leaves::new(leaves),
            deadline: cx.after(BACKGROUND.saturating_mul(cx.env.timing.request)),
            own: None,
            private: false,
        }
    }

    /// Leaves a ref of the coordinator's own.
    pub(super) fn private(leaves: Vec<(SegmentId, LockCommand)>, cx: &Cx<'_>) -> Background {
        Background {
            private: true,
            ..Background::new(leaves, cx)
        }
    }

    fn begin_own(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) {
        let own = desk.own.client(client);
        self.leaves
            .begin(client.task, &own, self.deadline, desk, cx);
        self.own = Some(own);
    }
}

impl Job for Background {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        match event {
            Event::Start if self.private => self.begin_own(client, desk, cx),
            Event::Start => {
                self.leaves
                    .begin(client.task, client, self.deadline, desk, cx);
            }
            Event::Asked { ask, answer } => {
                if matches!(self.leaves.on(ask, answer), Left::Going) {
                    return Step::Open;
                }
                if self.own.is_some() || !self.leaves.forgotten() {
                    return Step::Close(None);
                }
                self.begin_own(client, desk, cx);
            }
            _ => {}
        }
        Step::Open
    }

    fn wake(&self, _client: &Client) -> Option<Micros> {
        None
    }

    fn close(&mut self, _client: &Client, desk: &mut Desk) {
        if let Some(own) = &self.own {
            desk.own.done(own.number);
        }
        desk.spawned_ended();
    }
}
