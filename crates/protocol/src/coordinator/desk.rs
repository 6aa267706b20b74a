//! What the jobs of a coordinator share: questions to primaries, register operations, who waits for
//! which grant, which grants have passed, and what is owed to requests that are gone.

use super::leave::Background;
use super::submit::Submitter;
use super::topology::Topology;
use super::{Client, Cx, Grant, Job, Lost, TaskId};
use crate::base::{Epoch, KeyId, LockRef, Micros, SegmentId, SessionId};
use crate::command::{Body, Command, LockCommand};
use crate::register::{self, Owner};
use crate::request::Mode;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Grants remembered, so that a holder's operations pass the guard without asking.
const PASSES: usize = 65_536;
/// Enqueues remembered that were given up before their answer.
const GIVEN_UP: usize = 4_096;
/// Background jobs at a time; the lease ends one that is dropped beyond.
const SPAWNED: usize = 16_384;

/// The identity of an enqueue: session, command number, segment.
type Enqueue = (SessionId, u64, SegmentId);

/// See the module's page.
#[derive(Debug)]
pub(super) struct Desk {
    /// Questions to primaries.
    pub(super) submit: Submitter,
    /// Grants that passed here.
    pub(super) passes: Passes,
    /// The coordinator's own session.
    pub(super) own: Own,
    /// Jobs to be started when the present event is done.
    pub(super) spawned: Vec<(Client, Box<dyn Job>)>,
    /// Refs that turned out to be past, to be told to those who watch them.
    pub(super) lost: Vec<Lost>,
    waiting: BTreeSet<(Enqueue, TaskId)>,
    watched: BTreeSet<(SegmentId, LockRef, TaskId)>,
    listings: BTreeMap<u64, TaskId>,
    given_up: GivenUp,
    tasks: TaskId,
    calls: u64,
    background: usize,
}

impl Desk {
    pub(super) fn new(session: SessionId, calls: u64) -> Desk {
        Desk {
            submit: Submitter::new(calls),
            passes: Passes::default(),
            own: Own::new(session),
            spawned: Vec::new(),
            lost: Vec::new(),
            waiting: BTreeSet::new(),
            watched: BTreeSet::new(),
            listings: BTreeMap::new(),
            given_up: GivenUp::default(),
            tasks: 0,
            calls,
            background: 0,
        }
    }

    /// A name for a new task.
    pub(super) fn next_task(&mut self) -> TaskId {
        self.tasks += 1;
        self.tasks
    }

    /// Starts a quorum operation; false where nobody is known to keep the segment.
    pub(super) fn operate(
        &mut self,
        client: &Client,
        (segment, key): (SegmentId, &KeyId),
        op: register::Op,
        cx: &mut Cx<'_>,
    ) -> bool {
        let place = cx.topology.place(segment, key);
        if let Some(place) = &place {
            let owner = Owner::Task(client.task);
            cx.registers
                .start(op, owner, place, client.deadline, &mut cx.env);
        }
        place.is_some()
    }

    /// When an operation goes on that has ended because its epoch has: at once, if this node knows
    /// where the next one is.
    pub(super) fn after_move(
        (segment, key): (SegmentId, &KeyId),
        next: Option<Epoch>,
        cx: &Cx<'_>,
    ) -> Micros {
        let place = cx.topology.place(segment, key);
        let known = place.is_some_and(|at| next.is_some_and(|next| at.store.epoch >= next));
        match known {
            true => cx.env.now.monotonic,
            false => Desk::shortly(cx),
        }
    }

    /// When an operation is tried again that could not begin, or for which members lacked
    /// something.
    pub(super) fn shortly(cx: &Cx<'_>) -> Micros {
        cx.after(cx.env.timing.retry / 8 + 1)
    }

    /// Registers a task for the grant of an enqueue or a resume. A job that gave up on the same
    /// command before has no say in it any more.
    pub(super) fn wait_for(&mut self, enqueue: Enqueue, task: TaskId) {
        self.given_up.take(&enqueue);
        self.waiting.insert((enqueue, task));
    }

    /// Takes the registration back.
    pub(super) fn wait_no_more(&mut self, enqueue: Enqueue, task: TaskId) {
        self.waiting.remove(&(enqueue, task));
    }

    /// Who waits for a grant.
    pub(super) fn waiting_for(&self, grant: &Grant) -> Vec<TaskId> {
        let enqueue = (grant.session, grant.number, grant.segment);
        let range = (enqueue, 0)..=(enqueue, u64::MAX);
        self.waiting.range(range).map(|(_, task)| *task).collect()
    }

    /// Registers a task for the loss of a ref.
    pub(super) fn watch(&mut self, segment: SegmentId, lock_ref: LockRef, task: TaskId) {
        self.watched.insert((segment, lock_ref, task));
    }

    /// Takes the registration back.
    pub(super) fn watch_no_more(&mut self, segment: SegmentId, lock_ref: LockRef, task: TaskId) {
        self.watched.remove(&(segment, lock_ref, task));
    }

    /// Who watches a ref.
    pub(super) fn watching(&self, segment: SegmentId, lock_ref: LockRef) -> Vec<TaskId> {
        let range = (segment, lock_ref, 0)..=(segment, lock_ref, u64::MAX);
        self.watched
            .range(range)
            .map(|(_, _, task)| *task)
            .collect()
    }

    /// Who waits for something here, and whose operations run: none once all tasks have ended.
    #[cfg(test)]
    pub(super) fn registered(&self) -> usize {
        self.waiting.len() + self.watched.len() + self.listings.len() + self.background
    }

    /// A call number of a question about keys.
    pub(super) fn list(&mut self, task: TaskId) -> u64 {
        self.calls += 1;
        self.listings.insert(self.calls, task);
        self.calls
    }

    /// Whose question about keys that is.
    pub(super) fn listing(&self, call: u64) -> Option<TaskId> {
        self.listings.get(&call).copied()
    }

    /// Forgets a question about keys.
    pub(super) fn list_no_more(&mut self, call: u64) {
        self.listings.remove(&call);
    }

    /// Runs a job after the present event, for a client that is not there.
    pub(super) fn spawn(&mut self, client: &Client, job: Box<dyn Job>) {
        if self.background >= SPAWNED {
            return;
        }
        self.background += 1;
        let client = Client {
            task: self.next_task(),
            call: None,
            ..client.clone()
        };
        self.spawned.push((client, job));
    }

    /// A spawned job has ended.
    pub(super) fn spawned_ended(&mut self) {
        self.background = self.background.saturating_sub(1);
    }

    /// Nobody here will use the ref that this enqueue may have been given. `asked` is the question
    /// that carries it, which its task is about to close.
    pub(super) fn give_up(&mut self, client: &Client, enqueue: Enqueue, asked: Option<u64>) {
        self.given_up.insert(enqueue, client, asked);
    }

    /// Whether another task here waits for the same enqueue: the client has repeated its request.
    pub(super) fn shared(&self, enqueue: Enqueue, task: TaskId) -> bool {
        let range = (enqueue, 0)..=(enqueue, u64::MAX);
        self.waiting.range(range).any(|(_, other)| *other != task)
    }

    /// The enqueue that was given up while this question was open.
    pub(super) fn gave_up_call(&self, call: u64) -> Option<Enqueue> {
        self.given_up.calls.get(&call).copied()
    }

    /// The answer came after all: the ref is left.
    pub(super) fn leave_given_up(&mut self, call: u64, lock_ref: LockRef, cx: &Cx<'_>) {
        if let Some(enqueue) = self.gave_up_call(call)
            && let Some(client) = self.given_up.take(&enqueue)
        {
            self.leave_dirty(&client, enqueue.2, lock_ref, 0, cx);
        }
    }

    /// A grant that nobody waits for: left if it was given up here, otherwise none of our business.
    pub(super) fn granted_to_nobody(&mut self, grant: &Grant, cx: &Cx<'_>) {
        let enqueue = (grant.session, grant.number, grant.segment);
        if let Some(client) = self.given_up.take(&enqueue) {
            let generation = grant.generation;
            self.leave_dirty(&client, grant.segment, grant.lock_ref, generation, cx);
        }
    }

    /// Gives a ref up in the background. One that holds by now is kept, if its client may be in the
    /// section through another node: then only the client's word or the lease ends it.
    pub(super) fn leave_dirty(
        &mut self,
        client: &Client,
        segment: SegmentId,
        lock_ref: LockRef,
        generation: u32,
        cx: &Cx<'_>,
    ) {
        let leave = LockCommand::Leave {
            lock_ref,
            generation,
            of: client.session,
            clean: Vec::new(),
            put: None,
            waiting_only: !client.alone,
        };
        let job = Background::new([(segment, leave)].into(), cx);
        self.spawn(client, Box::new(job));
    }

    /// A command of a client's request.
    pub(super) fn command(client: &Client, step: u64, epoch: Epoch, body: LockCommand) -> Command {
        Command::new(
            client.session,
            super::command_number(client.number, step),
            super::command_number(client.answered_through, super::STEPS - 1),
            epoch,
            Body::Lock(body),
        )
    }

    /// The epoch that a command to `segment` is first proposed in, as known here.
    pub(super) fn epoch(topology: &dyn Topology, segment: SegmentId) -> Epoch {
        topology.epoch(super::Target::Segment(segment))
    }
}

/// The coordinator's own session: commands that no client's record may decide.
#[derive(Debug)]
pub(super) struct Own {
    session: SessionId,
    next: u64,
    open: BTreeSet<u64>,
}

impl Own {
    fn new(session: SessionId) -> Own {
        Own {
            session,
            next: 0,
            open: BTreeSet::new(),
        }
    }

    /// A client that is this coordinator itself, with a fresh number; give it back with
    /// [`Own::done`] when nothing under it will be sent again.
    pub(super) fn client(&mut self, like: &Client) -> Client {
        self.next += 1;
        self.open.insert(self.next);
        let oldest = self.open.first().copied().unwrap_or(self.next);
        Client {
            session: self.session,
            number: self.next,
            answered_through: oldest.saturating_sub(1),
            ..like.clone()
        }
    }

    /// The number has its answer.
    pub(super) fn done(&mut self, number: u64) {
        self.open.remove(&number);
    }
}

/// A grant that passed here.
#[derive(Debug)]
struct Pass {
    session: SessionId,
    generation: u32,
    mode: Mode,
    keys: Vec<KeyId>,
}

/// Grants that passed here, a bounded number of the latest.
#[derive(Debug, Default)]
pub(super) struct Passes {
    of: BTreeMap<(SegmentId, LockRef), Pass>,
    order: VecDeque<(SegmentId, LockRef)>,
}

impl Passes {
    /// A primary says that the ref, which is of `session` in this generation, holds `key`.
    pub(super) fn remember(
        &mut self,
        segment: SegmentId,
        (lock_ref, generation): (LockRef, u32),
        (mode, session): (Mode, SessionId),
        key: &KeyId,
    ) {
        let at = (segment, lock_ref);
        if let Some(pass) = self.of.get_mut(&at) {
            if pass.generation < generation {
                (pass.generation, pass.session) = (generation, session);
                pass.keys.clear();
            }
            if !pass.keys.contains(key) {
                pass.keys.push(key.clone());
            }
            return;
        }
        // The order list may name passes that were forgotten since: they count until they reach
        // its end, which bounds both.
        while self.order.len() >= PASSES {
            if let Some(oldest) = self.order.pop_front() {
                self.of.remove(&oldest);
            }
        }
        self.order.push_back(at);
        let keys = [key.clone()].into();
        let pass = Pass {
            session,
            generation,
            mode,
            keys,
        };
        self.of.insert(at, pass);
    }

    /// Whether the ref was seen to hold `key` in this very generation, how, and whose it is.
    pub(super) fn seen(
        &self,
        segment: SegmentId,
        lock_ref: LockRef,
        generation: u32,
        key: &KeyId,
    ) -> Option<(Mode, SessionId)> {
        let pass = self.of.get(&(segment, lock_ref))?;
        let known = pass.generation == generation && pass.keys.contains(key);
        known.then_some((pass.mode, pass.session))
    }

    /// The ref is past in this generation, or is so for a session, if one is named.
    pub(super) fn forget(
        &mut self,
        segment: SegmentId,
        lock_ref: LockRef,
        generation: u32,
        only: Option<SessionId>,
    ) {
        let at = (segment, lock_ref);
        let of = |pass: &Pass| only.is_none_or(|session| session == pass.session);
        let past = |pass: &Pass| pass.generation <= generation && of(pass);
        if self.of.get(&at).is_some_and(past) {
            self.of.remove(&at);
        }
    }
}

/// Enqueues that were given up before their ref was known.
#[derive(Debug, Default)]
struct GivenUp {
    of: BTreeMap<Enqueue, (Client, Option<u64>)>,
    calls: BTreeMap<u64, Enqueue>,
    order: VecDeque<Enqueue>,
}

impl GivenUp {
    fn insert(&mut self, enqueue: Enqueue, client: &Client, asked: Option<u64>) {
        while self.order.len() >= GIVEN_UP {
            if let Some(oldest) = self.order.pop_front() {
                self.take(&oldest);
            }
        }
        if let Some(call) = asked {
            self.calls.insert(call, enqueue);
        }
        self.order.push_back(enqueue);
        self.of.insert(enqueue, (client.clone(), asked));
    }

    fn take(&mut self, enqueue: &Enqueue) -> Option<Client> {
        let (client, asked) = self.of.remove(enqueue)?;
        if let Some(call) = asked {
            self.calls.remove(&call);
        }
        Some(client)
    }
}
