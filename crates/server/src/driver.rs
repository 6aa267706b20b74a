//! The real loop: one thread owns the node and its store, and steps the node with whatever happens.
//!
//! **Problem.** The contract of `fermata_protocol`: one input at a time; what a step writes is
//! visible before the next step; outputs marked durable leave only after everything written so far
//! is on disk. A flush takes as long as thousands of steps, so steps must not wait for flushes, and
//! one flush should serve all steps of its time.
//!
//! **Idea.** The thread takes all waiting events at once, steps the node with each, and only then
//! hands one flush to the flush thread and one batch of messages per peer to the transport. While a
//! flush runs, the next events are stepped; their writes gather for the next flush. Outputs that
//! wait for a flush stand in one queue in order, each with the number of the last write before it.
//!
//! ```text
//!  mailbox ─► step, step, step ─┬─ now ──────────────────────────► peers, clients
//!     ▲                         └─ durable ─► held (lsn, output) ─► peers, clients, itself
//!     └──────── flush thread: write, fdatasync ◄── one flush ┘
//! ```
//!
//! **Invariants.** D1: an output in `held` leaves after `store.durable()` has reached its number,
//! and after all held before it. D2: at most one flush and one checkpoint are out. D3: a full disk,
//! or a lack of descriptors, is told to the node once when it begins and once when it ends, which
//! is when the reserve ([`crate::ballast`]) is there again; any other failure of the disk ends the
//! loop. D4: while the log is stuck, messages to peers that would have to wait are lost beyond a
//! bound, as they are when a connection breaks; answers to clients are bounded by the open
//! requests.
//!
//! **Stop.** A node that is told to stop retires: it hands over what it leads, so that nobody waits
//! for an election, goes on answering for a moment, flushes, and ends.

use crate::ballast::Ballast;
use crate::clock::{self, Clock};
use crate::mailbox::{Call, Event, Mailbox};
use crate::metrics::Metrics;
use crate::transport::Peers;
use crate::worker::Worker;
use bytes::Bytes;
use fermata_protocol::base::{Config, Micros, NodeId, NodeName};
use fermata_protocol::io::{Effects, Input, Memory, Output, Void, When, Write};
use fermata_protocol::request::{ClockState, ClockStatus};
use fermata_protocol::{CallId, Message, Node, Reply, register};
use fermata_storage::{Batch, Checkpoint, Flush, Lack, Lsn, Op, Persisted, Store};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A full disk is tried again after this long.
const FULL_RETRY: Micros = 500_000;
/// The loop looks around at least this often.
const IDLE: Micros = 100_000;
/// A message that nobody waits for travels with the next one to the same peer, or after this long.
const UNHURRIED: Micros = 2_000;
/// Most outputs that wait for a stuck log; then messages to peers are lost.
const HELD_MAX: usize = 65_536;
/// How long a node that retires stays for what it leads to be taken over.
const HANDOVER: Micros = 300_000;
/// How long it stays for requests that are open and brief.
const GRACE: Micros = 3_000_000;

/// The store as the protocol reads it.
pub(crate) struct StoreMemory<'a>(pub(crate) &'a Store);

impl Memory for StoreMemory<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        self.0.get(key).map_err(|_| Void)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let found = self.0.scan(from, to).take(limit);
        found
            .map(|(key, value)| (key, value.map_err(|_| Void)))
            .collect()
    }

    fn is_durable(&self, key: &[u8]) -> bool {
        self.0.is_durable(key)
    }
}

/// What a driver is made of.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) id: NodeId,
    pub(crate) seed: u64,
    pub(crate) store: Store,
    pub(crate) ballast: Ballast,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) peers: Peers,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Arc<Clock>,
    /// Set once the node knows every node of its cluster and answers.
    pub(crate) started: Arc<AtomicBool>,
}

pub(crate) struct Driver {
    node: Node,
    id: NodeId,
    store: Store,
    mailbox: Arc<Mailbox>,
    peers: Peers,
    metrics: Arc<Metrics>,
    clock: Arc<Clock>,
    /// What the log says of the interval clock.
    clock_told: Option<ClockStatus>,
    flusher: Worker<Flush>,
    chores: Worker<Chore>,
    calls: HashMap<CallId, Call>,
    /// Outputs that wait for a flush; see D1.
    held: VecDeque<(Lsn, Output)>,
    /// Messages of the node to itself that may be stepped.
    own: VecDeque<Message>,
    /// Messages of this round, per peer.
    round: BTreeMap<NodeName, Vec<Message>>,
    /// Since when `round` holds nothing but messages that nobody waits for.
    unhurried: Option<Micros>,
    /// When the log is tried again, while a flush did not fit.
    stuck_until: Option<Micros>,
    /// When the reserve is tried again, while the node takes its disk to be full.
    full_until: Option<Micros>,
    /// Whether the reserve is being made.
    raising: bool,
    checkpoint_after: Micros,
    /// Since when it retires.
    retiring: Option<Micros>,
    abandoned: bool,
    started: Arc<AtomicBool>,
}

/// Work on the disk that may take long.
enum Chore {
    Checkpoint(Checkpoint),
    Raise,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Driver {
    /// The node over its store, on the thread that will run it.
    ///
    /// # Errors
    /// One sentence: the store does not fit the configuration, or a thread cannot be started.
    pub(crate) fn recover(parts: Parts) -> Result<Driver, String> {
        let Parts {
            config,
            id,
            seed,
            store,
            ballast,
            mailbox,
            peers,
            metrics,
            clock,
            started,
        } = parts;
        let node = Node::recover(config, id, &StoreMemory(&store), clock.now(), seed)?;
        let failed = |e: std::io::Error| format!("cannot start a thread: {e}");
        let (back, reserve) = (mailbox.clone(), ballast.clone());
        let flusher = Worker::start("flush", move |flush: Flush| {
            let begun = Instant::now();
            let done = flush.run();
            if matches!(done.outcome(), Persisted::Full(Lack::Space)) {
                reserve.release();
            }
            back.put(Event::Flushed(done, begun.elapsed()));
        });
        let flusher = flusher.map_err(failed)?;
        let back = mailbox.clone();
        let chores = Worker::start("checkpoint", move |chore| {
            back.put(match chore {
                Chore::Checkpoint(checkpoint) => Event::Checkpointed(checkpoint.run()),
                Chore::Raise => Event::Ballast(ballast.raise()),
            });
        });
        let chores = chores.map_err(failed)?;
        Ok(Driver {
            id: node.id(),
            node,
            store,
            mailbox,
            peers,
            metrics,
            clock,
            clock_told: None,
            flusher,
            chores,
            calls: HashMap::new(),
            held: VecDeque::new(),
            own: VecDeque::new(),
            round: BTreeMap::new(),
            unhurried: None,
            stuck_until: None,
            full_until: None,
            raising: false,
            checkpoint_after: 0,
            retiring: None,
            abandoned: false,
            started,
        })
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// One sentence: why the node cannot go on.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let mut events = Vec::new();
        self.raise();
        self.step(Input::Tick)?;
        loop {
            for event in events.drain(..) {
                self.handle(event)?;
            }
            self.tick()?;
            while let Some(message) = self.own.pop_front() {
                let from = self.id;
                self.step(Input::Message { from, message })?;
            }
            self.flush();
            self.release_round();
            self.tell_clock();
            self.started
                .store(self.node.is_started(), Ordering::Relaxed);
            if self.abandoned {
                return Ok(());
            }
            if self.may_end() {
                return self.drain();
            }
            let patience = self.patience();
            self.mailbox.take(&mut events, patience);
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Frame {
                from,
                interval,
                messages,
                permit: _permit,
            } => {
                self.step(Input::Heard { from, interval })?;
                for message in messages {
                    self.step(Input::Message { from, message })?;
                }
            }
            Event::Gone(peer) => self.step(Input::Gone(peer))?,
            Event::Request(call, request, asker) => {
                self.calls.insert(call, asker);
                self.step(Input::Request {
                    call,
                    request: *request,
                })?;
            }
            Event::Cancel(call) => {
                // A node that retires ends calls itself: their clients have not gone, and ask again
                // at another node.
                if self.calls.remove(&call).is_some() && self.retiring.is_none() {
                    self.step(Input::Cancel(call))?;
                }
            }
            Event::Flushed(done, took) => {
                self.metrics.flush_seconds.record(took.as_secs_f64());
                let lack = match done.outcome() {
                    Persisted::Full(lack) => Some(*lack),
                    _ => None,
                };
                self.store.flushed(done);
                self.after_flush(lack)?;
            }
            Event::Checkpointed(done) => {
                if matches!(done.outcome(), Persisted::Full(_)) {
                    self.checkpoint_after = clock::monotonic() + FULL_RETRY;
                }
                self.store.checkpointed(done);
            }
            Event::Ballast(raised) => self.after_raise(raised)?,
            Event::Retire if self.retiring.is_none() => {
                self.retiring = Some(clock::monotonic());
                self.step(Input::Retire)?;
            }
            Event::Retire => {}
            Event::Abandon => self.abandoned = true,
        }
        Ok(())
    }

    fn after_flush(&mut self, lack: Option<Lack>) -> Result<(), String> {
        let Some(lack) = lack else {
            self.stuck_until = None;
            self.release_held();
            return Ok(());
        };
        // Where it is space, the flush thread has given the reserve back: what did not fit is tried
        // again at once.
        let pause = self.stuck_until.map_or(0, |_| FULL_RETRY);
        self.stuck_until = Some(clock::monotonic() + pause);
        self.lacks(lack)
    }

    fn after_raise(&mut self, raised: std::io::Result<()>) -> Result<(), String> {
        self.raising = false;
        if let Err(error) = raised {
            if let Some(lack) = Lack::of(&error) {
                return self.lacks(lack);
            }
            tracing::warn!(%error, "no space is kept in reserve");
        }
        if self.stuck_until.is_none() && self.full_until.take().is_some() {
            tracing::info!("the disk takes writes again");
            self.metrics.writable.set(1.0);
            self.step(Input::Writable(true))?;
        }
        Ok(())
    }

    /// Nothing can be written for now: the node is told, the first time.
    fn lacks(&mut self, lack: Lack) -> Result<(), String> {
        let next = clock::monotonic() + FULL_RETRY;
        if self.full_until.replace(next).is_some() {
            return Ok(());
        }
        tracing::error!("{lack}: reads go on, writes are refused");
        self.metrics.writable.set(0.0);
        self.step(Input::Writable(false))
    }

    /// Asks for the reserve, which is also how it shows that there is space again.
    fn raise(&mut self) {
        if !self.raising {
            self.raising = true;
            // The worker lives as long as its sender.
            self.chores.send(Chore::Raise);
        }
    }

    /// Whether a node that retires has waited for what it should wait for.
    fn may_end(&self) -> bool {
        let Some(since) = self.retiring else {
            return false;
        };
        let gone = clock::monotonic().saturating_sub(since);
        let brief = || self.calls.values().any(|call| !call.lasting);
        let alone = self.peers.is_empty();
        gone >= GRACE || ((alone || gone >= HANDOVER) && !brief())
    }

    fn tick(&mut self) -> Result<(), String> {
        let wake = self.node.wake();
        let due = wake.is_some_and(|at| at <= clock::monotonic());
        if due { self.step(Input::Tick) } else { Ok(()) }
    }

    fn patience(&self) -> Duration {
        let now = clock::monotonic();
        let mut until = now + IDLE;
        let unhurried = self.unhurried.map(|since| since + UNHURRIED);
        let wishes = [
            self.node.wake(),
            self.stuck_until,
            self.full_until,
            unhurried,
        ];
        for at in wishes.into_iter().flatten() {
            until = until.min(at);
        }
        if self.retiring.is_some() {
            until = until.min(now + IDLE / 10);
        }
        if self.own.is_empty() {
            Duration::from_micros(until.saturating_sub(now))
        } else {
            Duration::ZERO
        }
    }

    /// Steps the node once and sorts what it wants done.
    fn step(&mut self, input: Input) -> Result<(), String> {
        let mut fx = Effects::new();
        self.node
            .step(self.clock.now(), input, &StoreMemory(&self.store), &mut fx);
        self.metrics.steps.increment(1);
        if !fx.writes.is_empty() {
            self.store.append(batch(fx.writes));
        }
        if let Some(why) = fx.halt {
            return Err(why);
        }
        if let Some(failure) = self.store.failure() {
            return Err(format!("the disk failed: {failure}"));
        }
        let last = self.store.last();
        for output in fx.outputs {
            if when(&output) == When::Now || self.store.durable() >= last {
                self.release(output);
            } else if self.held.len() < HELD_MAX || !self.may_be_lost(&output) {
                self.held.push_back((last, output));
            } else {
                self.metrics.lost.increment(1);
            }
        }
        Ok(())
    }

    /// Whether an output may be lost rather than held (D4).
    fn may_be_lost(&self, output: &Output) -> bool {
        self.stuck_until.is_some() && matches!(output, Output::Send { .. })
    }

    /// Lets an output go whose time has come.
    fn release(&mut self, output: Output) {
        if let Output::Send { message, .. } = &output
            && let Message::Register(register::Message::Ask { ask, .. }) = message
        {
            self.metrics.asked(ask);
        }
        match output {
            Output::Send { to, message, .. } if to == self.id.name => self.own.push_back(message),
            Output::Send { to, message, .. } => self.round.entry(to).or_default().push(message),
            Output::Reply { call, reply, .. } => self.answer(call, reply),
        }
    }

    fn answer(&mut self, call: CallId, reply: Reply) {
        let Some(asker) = self.calls.get(&call) else {
            return; // cancelled meanwhile
        };
        if asker.tell(reply, &self.metrics) {
            self.calls.remove(&call);
        }
    }

    /// Lets go what waited for the flushes that are done (D1).
    fn release_held(&mut self) {
        let durable = self.store.durable();
        while self.held.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            if let Some((_, output)) = self.held.pop_front() {
                self.release(output);
            }
        }
    }

    /// Hands the round's messages to the transport, but for those that nobody waits for where there
    /// are no others to the peer: a frame of their own would wake it for nothing.
    fn release_round(&mut self) {
        let now = clock::monotonic();
        let all = self.unhurried.is_some_and(|since| since + UNHURRIED <= now);
        let round = std::mem::take(&mut self.round).into_iter();
        let (later, ready): (BTreeMap<_, Vec<_>>, BTreeMap<_, _>) =
            round.partition(|(_, messages)| !all && messages.iter().all(is_unhurried));
        for (to, messages) in ready {
            self.peers.send(to, messages);
        }
        self.unhurried = (!later.is_empty()).then(|| self.unhurried.unwrap_or(now));
        self.round = later;
        self.metrics.open_requests.set(self.calls.len() as f64);
        self.metrics.held_outputs.set(self.held.len() as f64);
    }

    /// Says in metrics and, when it changes, in the log what becomes of the interval clock.
    fn tell_clock(&mut self) {
        let status = self.node.clock();
        self.metrics.clock(&status);
        let told = self.clock_told.replace(status);
        if told.is_some_and(|told| (told.state, told.against) == (status.state, status.against)) {
            return;
        }
        let (bound_us, source) = (status.bound, self.clock.source());
        let line = status.state.sentence();
        if status.state == ClockState::Violated {
            let against = status.against.map(|n| n.0);
            tracing::error!(?bound_us, source, ?against, "{line}");
        } else {
            tracing::info!(?bound_us, source, "{line}");
        }
    }

    fn flush(&mut self) {
        let now = clock::monotonic();
        if self.stuck_until.is_none_or(|until| until <= now)
            && let Some(flush) = self.store.take_flush()
        {
            self.metrics.flushes.increment(1);
            self.metrics.records.increment(flush.records());
            // The worker lives as long as its sender.
            self.flusher.send(flush);
        }
        if let Some(until) = &mut self.full_until
            && *until <= now
        {
            *until = now + FULL_RETRY;
            self.measure();
            if self.stuck_until.is_none() {
                self.raise();
            }
        }
        if self.checkpoint_after <= now
            && let Some(checkpoint) = self.store.take_checkpoint()
        {
            self.measure();
            self.chores.send(Chore::Checkpoint(checkpoint));
        }
    }

    /// Sizes of the store; asks the disk.
    fn measure(&self) {
        let stats = self.store.stats();
        self.metrics.wal_bytes.set(stats.wal_bytes as f64);
        self.metrics.table_bytes.set(stats.table_bytes as f64);
        self.metrics.unsaved_bytes.set(stats.unsaved_bytes as f64);
    }

    /// A graceful stop: what was written becomes durable, and what waited for that is sent.
    fn drain(mut self) -> Result<(), String> {
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(5);
        while self.store.durable() < self.store.last() && Instant::now() < end {
            self.mailbox.take(&mut events, Duration::from_millis(10));
            for event in events.drain(..) {
                if let Event::Flushed(..) | Event::Checkpointed(..) = event {
                    self.handle(event)?;
                }
            }
            self.flush();
        }
        self.release_held();
        self.release_round();
        if self.store.durable() < self.store.last() {
            let why = "stopped before the last writes were durable: the disk is full or slow; \
                       nothing that was acknowledged is lost";
            return Err(why.into());
        }
        Ok(())
    }
}

fn when(output: &Output) -> When {
    match output {
        Output::Send { when, .. } | Output::Reply { when, .. } => *when,
    }
}

/// Whether nobody waits for what comes of a message, and losing it costs space alone.
fn is_unhurried(message: &Message) -> bool {
    let Message::Register(register::Message::Ask { ask, .. }) = message else {
        return false;
    };
    matches!(ask, register::Ask::Settle { .. })
}

fn batch(writes: Vec<Write>) -> Batch {
    let op = |write| match write {
        Write::Put { key, value } => Op::Put { key, value },
        Write::Delete { key } => Op::Delete { key },
        Write::DeleteRange { from, to } => Op::DeleteRange { from, to },
    };
    Batch(writes.into_iter().map(op).collect())
}
