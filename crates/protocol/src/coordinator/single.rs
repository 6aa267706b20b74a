//! Operations on one key outside the client's own sections.
//!
//! * Eventual `get` and `put`, `inspect`, and `read` and `write` of registers: one register
//!   operation each. A write is done at most once: a write that another node, or an earlier try,
//!   may have stored is covered by a later one, after it was read, and would then be read once
//!   more. So a repeated `write` of a register is refused, unknown, before anything is sent (G19).
//! * `write` in a section keyspace is a section of its own (MUSIC's CP put; F7: a write beside a
//!   lock breaks it): enqueue, put
//!   number 1, leave. It is answered when the put has its quorum; the leave is on its way. Its
//!   commands are the client's, so that a retry, at whichever node, takes the same ref, writes
//!   under the same tag, and learns from the leave's record that it has been done.
//! * `read` in a section keyspace is a shared section of its own; the grant carries the value. It
//!   changes nothing, so every attempt is the coordinator's own affair, under its own session.
//! * A key that stays flagged because nobody enters it gets such a shared section, too, for which
//!   nobody waits: its synch clears the flag (F18).

use super::acquire::{Acquire, Progress};
use super::desk::Desk;
use super::leave::{Background, Leaves, Left};
use super::refuse;
use super::{Client, Cx, Event, Job, Step};
use crate::base::{Bug, KeyId, Keyspace, Label, LockRef, Micros, Purpose, SegmentId, Tag};
use crate::command::LockCommand;
use crate::register;
use crate::request::{Code, EntryValue, Mode, Operation, Refusal, Reply};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;

/// The jobs of `Get`, `Put`, `Read`, `Write` and `Inspect`.
pub(super) fn register_job(
    operation: Operation,
    client: &Client,
    desk: &mut Desk,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let (what, key, op) = match operation {
        Operation::Get { key } => {
            refuse::checked(&key, Some(Purpose::Sections), cx)?;
            ("the get", key.clone(), register::Op::EventualGet { key })
        }
        Operation::Put { key, value } => {
            refuse::checked(&key, Some(Purpose::Sections), cx)?;
            refuse::write_fits(&key, value.as_ref(), cx)?;
            (
                "the put",
                key.clone(),
                register::Op::EventualPut { key, value },
            )
        }
        Operation::Read { key } => {
            if refuse::checked(&key, None, cx)?.purpose == Purpose::Sections {
                return section(key, Use::Read, client, desk, cx);
            }
            refuse::checked(&key, Some(Purpose::Registers), cx)?;
            (
                "the read",
                key.clone(),
                register::Op::Read { key, moves: false },
            )
        }
        Operation::Write { key, value } => {
            refuse::write_fits(&key, value.as_ref(), cx)?;
            if refuse::checked(&key, None, cx)?.purpose == Purpose::Sections {
                return section(key, Use::Write(value), client, desk, cx);
            }
            refuse::checked(&key, Some(Purpose::Registers), cx)?;
            if client.attempt > 0 && !cx.env.planted.has(Bug::RegisterWriteRepeated) {
                return Err(refuse::write_repeated(&key, cx));
            }
            // The same for every retry, and nobody else's: sessions are random 128-bit numbers. 0
            // is nobody's name.
            let writer = (client.session.0 ^ u128::from(client.number)).max(1);
            let op = register::Op::Write {
                key: key.clone(),
                writer,
                value,
            };
            ("the write", key, op)
        }
        Operation::Inspect { key } => {
            refuse::checked(&key, None, cx)?;
            ("the inspection", key.clone(), register::Op::Inspect { key })
        }
        _ => return Err(refuse::bad("the operation is not one on a single key")),
    };
    let segment = cx.topology.segment(&key);
    let segment = segment.ok_or_else(|| refuse::bad("the key has no place on the ring"))?;
    Ok(Box::new(One {
        what,
        segment,
        key,
        op,
        again: None,
        sweeping: None,
    }))
}

/// One register operation.
#[derive(Debug)]
struct One {
    what: &'static str,
    segment: SegmentId,
    key: KeyId,
    op: register::Op,
    again: Option<Micros>,
    /// What the client is told once the sweep that was started for it has ended.
    sweeping: Option<Refusal>,
}

impl One {
    fn writes(&self) -> bool {
        matches!(
            self.op,
            register::Op::Write { .. }
                | register::Op::Cross { .. }
                | register::Op::EventualPut { .. }
        )
    }

    /// Unfinished writes fill the replicas: they are swept, and the client told to try again.
    fn sweep(&mut self, busy: Refusal, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let writer = !(client.session.0 ^ u128::from(client.number));
        let op = register::Op::Sweep {
            key: self.key.clone(),
            writer: writer.max(1),
        };
        if !desk.operate(client, (self.segment, &self.key), op, cx) {
            return Step::refuse(busy);
        }
        self.sweeping = Some(busy);
        Step::Open
    }

    /// Tells a client that waits what is missing, before the time for an answer is over, which may
    /// be longer than its own. It is tried all the same: what is known of the members may be old.
    fn look(&self, client: &Client, cx: &mut Cx<'_>) {
        let quorum = matches!(
            self.op,
            register::Op::Read { .. } | register::Op::Write { .. } | register::Op::Cross { .. }
        );
        let shortage = refuse::shortage(&self.key, cx).filter(|_| quorum);
        if let Some(shortage) = shortage {
            let why = refuse::stalled(self.what, &shortage);
            client.tell(Reply::Stalled { why }, cx);
        }
    }

    fn operate(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let begun = desk.operate(client, (self.segment, &self.key), self.op.clone(), cx);
        self.again = (!begun).then(|| Desk::shortly(cx));
        Step::Open
    }
}

impl Job for One {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let over = cx.env.now.monotonic >= client.deadline;
        match event {
            Event::Start => {
                self.look(client, cx);
                self.operate(client, desk, cx)
            }
            Event::Timer if over => Step::refuse(refuse::unavailable(self.what, false)),
            Event::Timer | Event::News if self.again.is_some() => self.operate(client, desk, cx),
            Event::Cancelled if !self.writes() => Step::Close(None),
            Event::Register(outcome) => match outcome {
                _ if self.sweeping.is_some() => {
                    let busy = self.sweeping.take();
                    Step::refuse(busy.expect("there is one"))
                }
                register::OpEnd::Busy { .. } => {
                    let busy = refuse::failed(self.what, &outcome, &self.key, cx);
                    self.sweep(busy, client, desk, cx)
                }
                // No ref is past here, for there is none: a sweep has fenced it.
                register::OpEnd::Past {
                    may_have_taken_effect,
                } => {
                    let unsure = may_have_taken_effect && self.writes();
                    Step::refuse(refuse::swept_out(self.what, unsure))
                }
                register::OpEnd::Value { value, tag } => Step::reply(Reply::Value { value, tag }),
                register::OpEnd::Stored { tag } => Step::reply(Reply::Done { tag: Some(tag) }),
                register::OpEnd::EventualStored { .. } => Step::reply(Reply::Done { tag: None }),
                register::OpEnd::Inspection(inspection) => Step::reply(Reply::Inspect(inspection)),
                // Reads start over. A write that may be stored goes on under its own tag, where it
                // has one, and under no other: stored twice, it would return above later writes
                // (G16, G19).
                register::OpEnd::Moved {
                    may_have_taken_effect,
                    under,
                    next,
                } if !over && (under.is_some() || !(may_have_taken_effect && self.writes())) => {
                    self.cross(under);
                    self.again = Some(Desk::after_move((self.segment, &self.key), next, cx));
                    Step::Open
                }
                other => {
                    let mut refusal = refuse::failed(self.what, &other, &self.key, cx);
                    refusal.may_have_taken_effect &= self.writes();
                    if refusal.may_have_taken_effect && refusal.code == Code::Unavailable {
                        refusal = match self.op {
                            register::Op::EventualPut { .. } => refuse::put_unsure(),
                            _ => refuse::write_unsure(&self.key, cx),
                        };
                    }
                    Step::refuse(refusal)
                }
            },
            _ => Step::Open,
        }
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        self.again.map(|at| at.min(client.deadline))
    }

    fn awaits(&self, segment: SegmentId) -> bool {
        self.segment == segment && self.again.is_some()
    }
}

impl One {
    /// A write of a register that may be stored under this tag goes on as that.
    fn cross(&mut self, under: Option<Tag>) {
        if let (register::Op::Write { key, value, .. }, Some(tag)) = (&self.op, under) {
            let (key, value) = (key.clone(), value.clone());
            self.op = register::Op::Cross { key, tag, value };
        }
    }
}

/// What a section of the coordinator's own is for.
#[derive(Debug)]
enum Use {
    Read,
    /// Only for the synch of its grant.
    Synch,
    Write(Option<Bytes>),
}

/// The job that synchs a key by a section of the coordinator's own, for `nobody`.
pub(super) fn synch(
    key: KeyId,
    nobody: &Client,
    desk: &mut Desk,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    section(key, Use::Synch, nobody, desk, cx)
}

/// The lease of such a section: none for the keyspace's, which is never exceeded.
///
/// A section of one request is over with it, and its coordinator renews it as long as it is at
/// work: an abandoned one need not keep the key for as long as a client's. It may be short, since
/// nothing but cached gets hangs on a lease (F10), and here are none: an end that comes too soon
/// sets the flag, and the next holder's synch fences the put (F1). But it outlasts the silence
/// after which a client asks another node, where the repeated request finds its ref.
fn lease(key: &KeyId, cx: &Cx<'_>) -> Option<Micros> {
    let short = (cx.env.timing.request / 2).max(Keyspace::LEASE_MIN);
    let longest = cx.topology.keyspace(key.keyspace)?.lease;
    (short < longest).then_some(short)
}

fn section(
    key: KeyId,
    purpose: Use,
    client: &Client,
    desk: &mut Desk,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    let (owner, mode) = match purpose {
        Use::Read | Use::Synch => (desk.own.client(client), Mode::Shared),
        Use::Write(_) => (client.clone(), Mode::Exclusive),
    };
    let owner = Client {
        alone: true,
        ..owner
    };
    let keys = [key.clone()];
    let segment = super::leave::segment_of(&key, cx);
    let commands = super::enter::enqueues(&keys, mode, (lease(&key, cx), Label::NONE), &owner, cx);
    let (Ok(segment), Ok(commands)) = (segment, commands) else {
        desk.own.done(owner.number);
        return Err(refuse::bad("the key has no place on the ring"));
    };
    Ok(Box::new(Section {
        segment,
        key,
        purpose,
        owner,
        acquire: Acquire::new(commands, Some(mode)),
        doing: Doing::Acquiring,
        unsure: false,
    }))
}

#[derive(Debug)]
enum Doing {
    Acquiring,
    /// When the put, or the get of a value that the grant left out, is tried again; none: it is
    /// under way.
    Operating(Option<Micros>),
    /// The ref was past at once: has an earlier transmission done it?
    Probing(Leaves),
}

#[derive(Debug)]
struct Section {
    segment: SegmentId,
    key: KeyId,
    purpose: Use,
    /// Under whose identity the commands are issued.
    owner: Client,
    acquire: Acquire,
    doing: Doing,
    /// An earlier attempt of the put may have taken effect.
    unsure: bool,
}

impl Section {
    fn what(&self) -> &'static str {
        match self.purpose {
            Use::Read => "the read",
            Use::Synch => "the synchronization",
            Use::Write(_) => "the write",
        }
    }

    /// Leaves in the background, cleanly with the tag of the write, or because nothing was written.
    fn leave(&self, tag: Option<Tag>, client: &Client, desk: &mut Desk, cx: &Cx<'_>) {
        let Some((held, _, _)) = self.acquire.latest(&self.key) else {
            return;
        };
        let leave = LockCommand::Leave {
            lock_ref: held.lock_ref,
            generation: held.generation,
            of: self.owner.session,
            clean: [(self.key.clone(), tag)].into(),
            put: None,
            waiting_only: false,
        };
        let leaves = [(self.segment, leave)].into();
        let job = match self.purpose {
            Use::Read | Use::Synch => Background::private(leaves, cx),
            Use::Write(_) => Background::new(leaves, cx),
        };
        desk.spawn(client, Box::new(job));
    }

    /// The tag of the write, once the ref is known.
    fn tag(&self) -> Option<Tag> {
        let (held, _, _) = self.acquire.latest(&self.key)?;
        Some(Tag::critical(
            held.lock_ref,
            held.generation,
            1,
            self.owner.session,
        ))
    }

    fn entered(&mut self, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let Some((held, value, tag)) = self.acquire.latest(&self.key) else {
            return Step::refuse(refuse::nonsense(self.what()));
        };
        let op = match (&self.purpose, value) {
            (Use::Synch, _) => {
                self.leave(None, client, desk, cx);
                return Step::Close(None);
            }
            (Use::Read, EntryValue::Omitted) => register::Op::Get {
                key: self.key.clone(),
                holder: register::Holder {
                    lock_ref: held.lock_ref,
                    generation: held.generation,
                },
            },
            (Use::Read, value) => {
                self.leave(None, client, desk, cx);
                let value = value.known().flatten().cloned();
                return Step::reply(Reply::Value { value, tag });
            }
            (Use::Write(value), _) => register::Op::Put {
                key: self.key.clone(),
                tag: Tag::critical(held.lock_ref, held.generation, 1, self.owner.session),
                value: value.clone(),
                counter_above: false,
            },
        };
        if matches!(self.doing, Doing::Acquiring) {
            self.acquire.keep(cx);
        }
        let begun = desk.operate(client, (self.segment, &self.key), op, cx);
        self.doing = Doing::Operating((!begun).then(|| Desk::shortly(cx)));
        Step::Open
    }

    fn operated(
        &mut self,
        outcome: register::OpEnd,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        match outcome {
            register::OpEnd::Value { value, tag } if matches!(self.purpose, Use::Read) => {
                self.leave(None, client, desk, cx);
                Step::reply(Reply::Value { value, tag })
            }
            register::OpEnd::Stored { tag } => {
                self.leave(Some(tag), client, desk, cx);
                Step::reply(Reply::Done { tag: Some(tag) })
            }
            register::OpEnd::NotHolder {
                may_have_taken_effect,
            } if cx.env.now.monotonic < client.deadline => {
                self.unsure |= may_have_taken_effect;
                self.doing = Doing::Operating(Some(Desk::shortly(cx)));
                Step::Open
            }
            register::OpEnd::Moved {
                next,
                may_have_taken_effect,
                ..
            } if cx.env.now.monotonic < client.deadline => {
                self.unsure |= may_have_taken_effect;
                let again = Desk::after_move((self.segment, &self.key), next, cx);
                self.doing = Doing::Operating(Some(again));
                Step::Open
            }
            // Perhaps an earlier transmission, at another node, has written and left.
            register::OpEnd::Past { .. } => {
                let refusal = match self.purpose {
                    Use::Read | Use::Synch => Refusal::past(self.what()),
                    Use::Write(_) => Refusal::past_unsure(self.what()),
                };
                self.failed(refusal, client, desk, cx)
            }
            other => {
                self.acquire.give_up(&self.owner, desk, cx);
                let mut refusal = refuse::failed(self.what(), &other, &self.key, cx);
                refusal.may_have_taken_effect |= self.unsure;
                Step::refuse(refusal)
            }
        }
    }

    /// The ref is past although nobody here has left it. A write may be the retry of one that did
    /// all it had to do: the record of its leave tells.
    fn failed(
        &mut self,
        refusal: Refusal,
        client: &Client,
        desk: &mut Desk,
        cx: &mut Cx<'_>,
    ) -> Step {
        if refusal.code != Code::NoLongerHolder || !matches!(self.purpose, Use::Write(_)) {
            self.acquire.give_up(&self.owner, desk, cx);
            return Step::refuse(refusal);
        }
        let held = self.acquire.held();
        let leave = LockCommand::Leave {
            lock_ref: held.first().map_or(LockRef(0), |h| h.lock_ref),
            generation: held.first().map_or(0, |h| h.generation),
            of: self.owner.session,
            clean: [].into(),
            put: None,
            waiting_only: false,
        };
        let mut leaves = Leaves::new([(self.segment, leave)].into());
        let deadline = cx.after(cx.env.timing.request);
        leaves.begin(client.task, client, deadline, desk, cx);
        self.doing = Doing::Probing(leaves);
        Step::Open
    }

    /// Tells the client that its request waits, so that it does not take this node for dead. The
    /// ref is this request's own affair.
    fn queued(&self, client: &Client, cx: &mut Cx<'_>) -> Step {
        let (held, ahead) = (Vec::new(), self.acquire.ahead());
        client.tell(Reply::Queued { held, ahead }, cx);
        if let Some(shortage) = self.acquire.stalls(cx) {
            let why = refuse::stalled(self.what(), &shortage);
            client.tell(Reply::Stalled { why }, cx);
        }
        Step::Open
    }

    /// Its time is over, or its client has gone.
    fn over(&mut self, gone: bool, desk: &mut Desk, cx: &Cx<'_>) -> Step {
        if matches!(self.doing, Doing::Operating(_)) {
            self.acquire.give_up(&self.owner, desk, cx);
            return Step::refuse(refuse::unavailable(self.what(), self.unsure));
        }
        let Some(shortage) = self.acquire.stalls(cx) else {
            self.acquire.give_up(&self.owner, desk, cx);
            return Step::refuse(self.acquire.wait_over(cx));
        };
        // A client that lives repeats what had no quorum: a write that found its ref left could not
        // tell whether it had been done. The ref's lease is short.
        if gone || !matches!(self.purpose, Use::Write(_)) {
            self.acquire.give_up(&self.owner, desk, cx);
        }
        let why = refuse::stalled(self.what(), &shortage);
        Step::refuse(Refusal::definite(Code::Unavailable, why))
    }
}

impl Job for Section {
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step {
        let over = cx.env.now.monotonic >= client.deadline;
        match (&mut self.doing, event) {
            (Doing::Acquiring, Event::Start) => {
                let own = Client {
                    task: client.task,
                    ..self.owner.clone()
                };
                self.acquire.begin(&own, desk, cx);
                Step::Open
            }
            (Doing::Acquiring, Event::Cancelled) => self.over(true, desk, cx),
            (Doing::Acquiring, Event::Timer) if over && self.acquire.waits() => {
                self.over(false, desk, cx)
            }
            (Doing::Acquiring, event) => {
                let goes_on = matches!(event, Event::Timer) && self.acquire.waits();
                match self.acquire.on(event, client, desk, cx) {
                    Progress::Nothing if goes_on => self.queued(client, cx),
                    Progress::Nothing => Step::Open,
                    Progress::Queued => self.queued(client, cx),
                    Progress::Entered => self.entered(client, desk, cx),
                    Progress::Failed(refusal) => self.failed(refusal, client, desk, cx),
                }
            }
            (Doing::Operating(_), Event::Register(outcome)) => {
                self.operated(outcome, client, desk, cx)
            }
            (Doing::Operating(again), Event::Timer) => {
                let again = again.filter(|at| over || *at <= cx.env.now.monotonic);
                if cx.env.now.monotonic >= self.acquire.wake() {
                    self.acquire.renew(client, desk, cx);
                }
                match again {
                    Some(_) if over => self.over(false, desk, cx),
                    Some(_) => self.entered(client, desk, cx),
                    None => Step::Open,
                }
            }
            (Doing::Operating(Some(_)), Event::News) => self.entered(client, desk, cx),
            (Doing::Operating(_), Event::Asked { ask, .. }) => {
                self.acquire.renewed(ask);
                Step::Open
            }
            (Doing::Probing(leaves), Event::Asked { ask, answer }) => {
                let left = leaves.on(ask, answer);
                match left {
                    Left::Going => Step::Open,
                    Left::All(parts) if parts.iter().all(|(_, clean)| *clean) => {
                        Step::reply(Reply::Done { tag: self.tag() })
                    }
                    _ => Step::refuse(Refusal::past_unsure(self.what())),
                }
            }
            _ => Step::Open,
        }
    }

    fn wake(&self, client: &Client) -> Option<Micros> {
        match &self.doing {
            Doing::Acquiring if self.acquire.waits() => {
                Some(self.acquire.wake().min(client.deadline))
            }
            Doing::Acquiring => Some(self.acquire.wake()),
            Doing::Operating(again) => {
                let again = again.map_or(Micros::MAX, |at| at.min(client.deadline));
                Some(self.acquire.wake().min(again))
            }
            Doing::Probing(_) => None,
        }
    }

    fn close(&mut self, client: &Client, desk: &mut Desk) {
        self.acquire.close(client, desk);
        if !matches!(self.purpose, Use::Write(_)) {
            desk.own.done(self.owner.number);
        }
    }

    fn awaits(&self, segment: SegmentId) -> bool {
        match &self.doing {
            Doing::Acquiring => self.acquire.awaits(segment),
            Doing::Operating(again) => self.segment == segment && again.is_some(),
            Doing::Probing(_) => false,
        }
    }
}
