//! The code that runs one client request against primaries and replicas: MUSIC's "replica" of
//! Figure 1. Any node can be the coordinator of any request.
//!
//! # The problem
//! A request such as `enter` or a critical `put` takes several messages to several nodes, any of
//! which may be lost, late or answered by a node that is no longer what it was. The client may
//! repeat the request at another coordinator while this one is still at it.
//!
//! # The idea
//! Nothing that decides safety lives here. A coordinator is volatile: it may forget everything at
//! any instant. Its messages carry their own protection: a command its identity (`session`,
//! `number`), by which it takes effect once (F2); a critical write its tag, the same at every
//! coordinator, and its lock ref, by which replicas refuse a past holder (F1: by a fence; M2: not
//! by a coordinator's clock). The coordinator's guard before a critical operation (MUSIC's
//! `lsPeek`) saves wasted work and gives clear refusals; it is not what makes sections exclusive.
//!
//! Each request is a `Job`: a small machine that is given events and, one day, ends with a reply.
//! The jobs share a `Desk`: reliable submission of commands (`submit`), register
//! operations, grants, the grants that passed here, and jobs to be spawned.
//!
//! # Numbers of commands
//! A request may issue several commands. The `step`-th of request `number` is the session's command
//! `4 · number + step`; every retry of the request, anywhere, gives it the same number, so that a
//! retried `put_and_leave` learns from the segment's record how its ref left (F5: clean or dirty).
//! One request never issues the same step twice in one segment, and segments keep their records
//! apart.
//!
//! # Invariants
//! * A leave is clean only if the client says so, or if the put that decides it was acknowledged by
//!   a quorum here, or if this coordinator alone could have used the ref (F5). A coordinator that
//!   gives up on an `enter` leaves *dirty*: the client may have repeated the request elsewhere,
//!   been granted there, and have a put in flight. Leaving a queue before the head sets no flag, so
//!   this costs a synch only where the grant was already on its way.
//! * A ref is left only by the client's word, or when this coordinator knows that it gave up on it.
//!   A grant that nobody here waits for is somebody else's business.
//! * Every open request has a deadline; every table is bounded.
//! * A definite refusal speaks for this transmission of the request. A client that sent the request
//!   before, without an answer, must take the whole as unknown.

mod acquire;
mod critical;
mod desk;
mod enter;
mod leave;
mod listing;
pub mod message;
mod refuse;
mod release;
mod ring;
mod simple;
mod single;
mod snapshot;
mod submit;
#[cfg(test)]
mod tests;
mod timers;
mod topology;
mod transact;

pub(crate) use listing::bounded;
pub use message::Message;
pub use topology::{AppliedRef, KeyStore, Ring, Target, Topology};

use crate::base::{KeyId, LockRef, Micros, NodeName, SegmentId, SessionId, SiteId};
use crate::io::{CallId, Env};
use crate::ledger;
use crate::lock::{self, Grant};
use crate::register;
use crate::request::{Code, Operation, Refusal, Reply, Request};
use crate::sessions::Sessions;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use core::fmt::Debug;
use desk::Desk;
use submit::{Answered, PrimaryAnswer};
use timers::Timers;

/// Commands that one request may issue in one segment.
const STEPS: u64 = 4;
/// Request numbers above this have no command numbers.
const NUMBER_MAX: u64 = u64::MAX / STEPS - 1;

/// The step of a request that joins or takes over a queue, or is its only command.
const STEP_FIRST: u64 = 0;
/// The step of a request that leaves.
const STEP_LEAVE: u64 = 1;
/// The step of a request that gives a waiting ref up. Not that of its leave, which may still come.
const STEP_GIVE_UP: u64 = 2;

/// The number of a request's `step`-th command; see the module's page.
fn command_number(number: u64, step: u64) -> u64 {
    number * STEPS + step
}

type TaskId = u64;

/// What a coordinator is stepped with.
pub struct Cx<'a> {
    /// What every machine is given.
    pub env: Env<'a>,
    /// The node's quorum operations.
    pub registers: &'a mut register::Caller,
    /// The cluster as this node knows it.
    pub topology: &'a dyn Topology,
}

impl Cx<'_> {
    fn after(&self, pause: Micros) -> Micros {
        self.env.now.monotonic.saturating_add(pause)
    }
}

/// A ref that is past.
#[derive(Clone, Copy, Debug)]
struct Lost {
    segment: SegmentId,
    lock_ref: LockRef,
    /// In this generation and all before.
    generation: u32,
    /// In all generations: it was removed.
    removed: bool,
    /// For this session alone, which was told so of a ref that may be another's (G49).
    only: Option<SessionId>,
}

/// What a job is told.
#[derive(Clone, Debug)]
enum Event {
    /// Its first event.
    Start,
    /// One of its questions to a primary ended.
    Asked { ask: u64, answer: PrimaryAnswer },
    /// One of its register operations ended.
    Register(register::OpEnd),
    /// The keys of a store.
    Keys {
        call: u64,
        keys: alloc::vec::Vec<register::Listed>,
    },
    /// The keeper of the catalogue has sent it, in this version.
    Catalogue { version: u64 },
    /// A grant that it waits for.
    Granted(Grant),
    /// A ref that it watches is past.
    Lost(Lost),
    /// The client went away.
    Cancelled,
    /// The time it asked for has come.
    Timer,
    /// What it awaits ([`Job::awaits`]) is known.
    News,
}

/// What a job says to an event.
#[derive(Debug)]
enum Step {
    /// More is to come.
    Open,
    /// The end, with the last reply, if anybody is to have one.
    Close(Option<Reply>),
}

impl Step {
    fn reply(reply: Reply) -> Step {
        Step::Close(Some(reply))
    }

    fn refuse(refusal: Refusal) -> Step {
        Step::reply(Reply::Refused(refusal))
    }
}

/// Who is served.
#[derive(Clone, Debug)]
struct Client {
    task: TaskId,
    call: Option<CallId>,
    session: SessionId,
    number: u64,
    /// Which transmission of the request this is, of those that may have an effect, from 0.
    attempt: u32,
    answered_through: u64,
    site: SiteId,
    /// When a request that has no quorum is given up.
    deadline: Micros,
    /// The section is this request's own: nobody else can be in it, so that it may be left although
    /// it holds.
    alone: bool,
}

impl Client {
    /// An answer after which the request stays open.
    fn tell(&self, reply: Reply, cx: &mut Cx<'_>) {
        if let Some(call) = self.call {
            cx.env.fx.reply(call, reply);
        }
    }
}

/// One request, or something that the coordinator owes to a request that is gone.
trait Job: Debug {
    /// Handles one event.
    fn on(&mut self, event: Event, client: &Client, desk: &mut Desk, cx: &mut Cx<'_>) -> Step;

    /// When the job wants a [`Event::Timer`].
    fn wake(&self, client: &Client) -> Option<Micros> {
        Some(client.deadline)
    }

    /// The same for a job that waits for a time on another clock.
    fn wake_at(&self, client: &Client, _cx: &Cx<'_>) -> Option<Micros> {
        self.wake(client)
    }

    /// Whether it cannot go on until this node knows better where a segment's registers are, or who
    /// leads it.
    fn awaits(&self, _segment: SegmentId) -> bool {
        false
    }

    /// Gives back what the job has registered at the desk.
    fn close(&mut self, _client: &Client, _desk: &mut Desk) {}
}

#[derive(Debug)]
struct Task {
    client: Client,
    job: Box<dyn Job>,
}

/// All client requests that are open at one node.
#[derive(Debug)]
pub struct Coordinator {
    desk: Desk,
    tasks: BTreeMap<TaskId, Task>,
    calls: BTreeMap<CallId, TaskId>,
    timers: Timers,
}

impl Coordinator {
    /// A coordinator that issues commands of its own under `session`, which nobody else uses, now
    /// or in an earlier life of the node: 128 bits drawn at this start.
    /// Its questions are named from `calls` on, which is drawn, too: what comes late and answers a
    /// question of an earlier life is no answer to one of this life (G62).
    pub fn new(session: SessionId, calls: u64) -> Coordinator {
        Coordinator {
            desk: Desk::new(session, calls),
            tasks: BTreeMap::new(),
            calls: BTreeMap::new(),
            timers: Timers::default(),
        }
    }

    /// Requests open here.
    pub fn open(&self) -> usize {
        self.calls.len()
    }

    /// A client's request. It is answered by replies to `call`; all refusals say whether the
    /// request may have taken effect.
    pub fn on_request(&mut self, call: CallId, request: Request, cx: &mut Cx<'_>) {
        if self.calls.len() >= cx.env.limits.requests {
            let text = format!(
                "too many requests are open at this node ({}, limits.requests); try again, or at \
                 another node",
                cx.env.limits.requests
            );
            let refusal = Refusal::definite(Code::Busy, text);
            return cx.env.fx.reply(call, Reply::Refused(refusal));
        }
        if request.number > NUMBER_MAX || request.answered_through > NUMBER_MAX {
            let text = "request numbers end at 2^62; open a new session";
            let refusal = Refusal::definite(Code::BadRequest, text);
            return cx.env.fx.reply(call, Reply::Refused(refusal));
        }
        let client = Client {
            task: self.desk.next_task(),
            call: Some(call),
            session: request.session,
            number: request.number,
            attempt: request.attempt,
            answered_through: request.answered_through,
            site: request.site,
            deadline: cx.after(cx.env.timing.request),
            alone: false,
        };
        let open = self.calls.len() as u64;
        match job_for(request.operation, &client, open, &mut self.desk, cx) {
            Ok(job) => {
                self.calls.insert(call, client.task);
                self.start(client, job, cx);
            }
            Err(refusal) => cx.env.fx.reply(call, Reply::Refused(refusal)),
        }
    }

    /// The client of `call` went away. Commands that may have changed something are carried on in
    /// the background; a wait for a lock is given up, unless it was to leave its ref waiting or may
    /// be repeated (G6: its client may hold elsewhere; G47: one that is gone keeps no place).
    pub fn on_cancel(&mut self, call: CallId, cx: &mut Cx<'_>) {
        let Some(id) = self.calls.remove(&call) else {
            return;
        };
        if let Some(task) = self.tasks.get_mut(&id) {
            task.client.call = None;
        }
        self.run(id, Event::Cancelled, cx);
        self.drain(cx);
    }

    /// Has a section of its own on a key that is flagged and wanted by nobody, so that the key is
    /// synched and the flag cleared (F18). If nothing comes of it within one request time, whoever
    /// leads then tries it again.
    pub fn synchronize(&mut self, key: KeyId, site: SiteId, cx: &mut Cx<'_>) {
        let nobody = Client {
            task: self.desk.next_task(),
            call: None,
            session: Sessions::OWN,
            number: 0,
            attempt: 0,
            answered_through: 0,
            site,
            deadline: cx.after(cx.env.timing.request),
            alone: true,
        };
        // A keyspace that this node has not heard of yet: later.
        if let Ok(job) = single::synch(key, &nobody, &mut self.desk, cx) {
            self.start(nobody, job, cx);
        }
    }

    /// A primary's answer or push. Questions to primaries are not for a coordinator.
    pub fn on_lock(&mut self, from: NodeName, message: lock::Message, cx: &mut Cx<'_>) {
        match message {
            lock::Message::Granted(grant) => {
                let target = Target::Segment(grant.segment);
                self.desk.submit.leads(target, from);
                self.granted(grant, cx);
            }
            lock::Message::Lost {
                segment,
                lock_ref,
                generation,
                ..
            } => self.desk.lost.push(Lost {
                segment,
                lock_ref,
                generation,
                removed: true,
                only: None,
            }),
            lock::Message::Submitted {
                call,
                result: Ok(lock::Outcome::Enqueued { lock_ref }),
                ..
            } if self.desk.gave_up_call(call).is_some() => {
                self.desk.leave_given_up(call, lock_ref, cx);
            }
            answer => {
                if let Some(answered) = self.desk.submit.on_lock(from, answer, cx) {
                    self.answered(answered, cx);
                }
            }
        }
        self.drain(cx);
    }

    /// A message of a group's member. Those that ask are for the node, not for its coordinator, and
    /// are ignored here.
    pub fn on_coordinator(&mut self, from: NodeName, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::KeysAre { call, keys } => {
                if let Some(task) = self.desk.listing(call) {
                    self.run(task, Event::Keys { call, keys }, cx);
                }
            }
            Message::Proposed { call, result } => {
                if let Some(answered) = self.desk.submit.on_proposed(from, call, result, cx) {
                    self.answered(answered, cx);
                }
            }
            Message::CatalogueIs { call, version } => {
                if let Some(task) = self.desk.listing(call) {
                    self.run(task, Event::Catalogue { version }, cx);
                }
            }
            Message::Propose { .. } | Message::Catalogue { .. } | Message::Keys { .. } => {}
        }
        self.drain(cx);
    }

    /// A segment's answer about its ledger.
    pub fn on_ledger(&mut self, from: NodeName, message: ledger::Message, cx: &mut Cx<'_>) {
        if let ledger::Message::Found { call, result } = message
            && let Some(answered) = self.desk.submit.on_found(from, call, result, cx)
        {
            self.answered(answered, cx);
        }
        self.drain(cx);
    }

    /// A register operation has ended that was started for a task, which may be gone by now.
    pub fn on_register(&mut self, task: u64, outcome: register::OpEnd, cx: &mut Cx<'_>) {
        self.run(task, Event::Register(outcome), cx);
        self.drain(cx);
    }

    /// The time of [`Coordinator::wake`] has come.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        while let Some(answered) = self.desk.submit.tick(cx) {
            self.answered(answered, cx);
        }
        let mut due = alloc::vec::Vec::new();
        while let Some(task) = self.timers.take_due(cx.env.now.monotonic) {
            due.push(task);
        }
        for task in due {
            self.run(task, Event::Timer, cx);
        }
        self.drain(cx);
    }

    /// This node has come to know where the registers of these segments are, or who leads them:
    /// whoever was refused for lack of that need not wait for its next try.
    pub fn on_news(&mut self, segments: &BTreeSet<SegmentId>, cx: &mut Cx<'_>) {
        self.desk.submit.on_news(segments, cx);
        let awaits = |task: &Task| segments.iter().any(|segment| task.job.awaits(*segment));
        let tasks = self.tasks.iter().filter(|(_, task)| awaits(task));
        let tasks: alloc::vec::Vec<TaskId> = tasks.map(|(id, _)| *id).collect();
        for id in tasks {
            self.run(id, Event::News, cx);
        }
        self.drain(cx);
    }

    /// When the coordinator wants to be stepped next, on the boot-time clock.
    pub fn wake(&self) -> Option<Micros> {
        let wishes = [self.timers.next(), self.desk.submit.wake()];
        wishes.into_iter().flatten().min()
    }

    fn start(&mut self, client: Client, job: Box<dyn Job>, cx: &mut Cx<'_>) {
        let id = client.task;
        self.tasks.insert(id, Task { client, job });
        self.run(id, Event::Start, cx);
        self.drain(cx);
    }

    fn answered(&mut self, answered: Answered, cx: &mut Cx<'_>) {
        let Answered { task, ask, answer } = answered;
        self.run(task, Event::Asked { ask, answer }, cx);
    }

    fn granted(&mut self, grant: Grant, cx: &mut Cx<'_>) {
        let waiting = self.desk.waiting_for(&grant);
        if waiting.is_empty() {
            self.desk.granted_to_nobody(&grant, cx);
        }
        for task in waiting {
            self.run(task, Event::Granted(grant.clone()), cx);
        }
    }

    /// Gives a task an event. It is out of the table meanwhile, since its job works on the desk; an
    /// event for a task that has ended comes too late, and is nobody's.
    fn run(&mut self, id: TaskId, event: Event, cx: &mut Cx<'_>) {
        let Some(mut task) = self.tasks.remove(&id) else {
            return;
        };
        match task.job.on(event, &task.client, &mut self.desk, cx) {
            Step::Open => {
                self.timers.set(id, task.job.wake_at(&task.client, cx));
                self.tasks.insert(id, task);
            }
            Step::Close(reply) => {
                task.job.close(&task.client, &mut self.desk);
                self.desk.submit.close_all(id);
                self.timers.set(id, None);
                if let Some(call) = task.client.call {
                    self.calls.remove(&call);
                    if let Some(reply) = reply {
                        cx.env.fx.reply(call, reply);
                    }
                }
            }
        }
    }

    /// Tells those who watch a ref that it is past, unless it is so for another session only.
    fn tell_lost(&mut self, lost: Lost, cx: &mut Cx<'_>) {
        let (segment, lock_ref) = (lost.segment, lost.lock_ref);
        let passes = &mut self.desk.passes;
        passes.forget(segment, lock_ref, lost.generation, lost.only);
        for task in self.desk.watching(segment, lock_ref) {
            let session = self.tasks.get(&task).map(|task| task.client.session);
            if lost.only.is_none() || lost.only == session {
                self.run(task, Event::Lost(lost), cx);
            }
        }
    }

    /// Starts what jobs have spawned and tells who watches a lost ref, until nothing is left. Jobs
    /// leave that at the desk, for they cannot run one another.
    fn drain(&mut self, cx: &mut Cx<'_>) {
        loop {
            if let Some((client, job)) = self.desk.spawned.pop() {
                let id = client.task;
                self.tasks.insert(id, Task { client, job });
                self.run(id, Event::Start, cx);
            } else if let Some(lost) = self.desk.lost.pop() {
                self.tell_lost(lost, cx);
            } else {
                return;
            }
        }
    }
}

/// The machine that runs an operation, while `open` others are open.
fn job_for(
    operation: Operation,
    client: &Client,
    open: u64,
    desk: &mut Desk,
    cx: &Cx<'_>,
) -> Result<Box<dyn Job>, Refusal> {
    match operation {
        Operation::Enter {
            keys,
            mode,
            wait,
            follow,
            lease,
            may_return,
            label,
        } => {
            let wish = enter::Wish {
                mode: Some(mode),
                wait,
                follow,
                may_return,
            };
            enter::enter(keys, (mode, lease, label), wish, client, cx)
        }
        Operation::Resume { held, of } => enter::resume(held, of, client, cx),
        Operation::Critical {
            held,
            operation,
            leave,
        } => critical::critical(held, operation, leave, client, cx),
        Operation::Leave { keys } => leave::leave(&keys, client, cx),
        Operation::Renew { held } => simple::renew(held, false, cx),
        Operation::Relinquish { held } => simple::renew(held, true, cx),
        Operation::Release { key, lock_ref } => release::release(key, lock_ref, client, cx),
        Operation::Get { .. }
        | Operation::Put { .. }
        | Operation::Read { .. }
        | Operation::Write { .. }
        | Operation::Inspect { .. } => single::register_job(operation, client, desk, cx),
        Operation::Keys {
            keyspace,
            prefix,
            after,
            limit,
        } => listing::keys(keyspace, prefix, after, limit, cx),
        Operation::Queue { key } => simple::queue(key, cx),
        Operation::Transact(transaction) => transact::transact(transaction, cx),
        Operation::Resolve { key, number } => transact::resolve(key, number, cx),
        Operation::Snapshot { parts, when } => snapshot::snapshot(parts, when, cx),
        Operation::CreateKeyspace(keyspace) => simple::create(keyspace, client, cx),
        Operation::ChangeKeyspace {
            keyspace,
            lease,
            section_max,
        } => Ok(simple::change(keyspace, (lease, section_max), client, cx)),
        Operation::DeleteKeyspace { keyspace } => Ok(simple::delete(keyspace, client, cx)),
        Operation::ChangeSettings(change) => simple::settle(change, client, cx),
        Operation::Admit { newcomer, formats } => ring::admit(newcomer, &formats, client, cx),
        Operation::ChangeRing(change) => ring::change(change, client, cx),
        Operation::Ring => Ok(ring::ring()),
        Operation::Keyspaces => {
            let all = cx.topology.catalogue().all().to_vec();
            Ok(simple::known(Reply::Keyspaces(all)))
        }
        Operation::Catalogue => Ok(simple::catalogue(simple::Sought::Keyspaces)),
        Operation::Access => Ok(simple::catalogue(simple::Sought::Access)),
        Operation::ChangeAccess { after, policy } => {
            Ok(simple::change_access(after, policy, client, cx))
        }
        Operation::Status => {
            let mut status = cx.topology.status();
            status.requests = open;
            Ok(simple::known(Reply::Status(Box::new(status))))
        }
    }
}
