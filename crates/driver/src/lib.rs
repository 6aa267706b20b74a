//! The driver: all that a shell decides around a node, without threads, sockets and clocks.
//!
//! **Problem.** The contract of `fermata_protocol`: one input at a time; what a step writes is
//! visible before the next step; outputs marked durable leave only after everything written so far
//! is on disk. A flush takes as long as thousands of steps, so steps must not wait for flushes, and
//! one flush should serve all steps of its time. And a disk may be full, and a peer may not read.
//! What is decided there can break every promise of the protocol, so it has to be under test where
//! the protocol is: in the simulator, and it must be the server's own.
//!
//! **Idea.** [`Driver`] owns the node and its store. A shell hands it what has happened
//! ([`Driver::handle`]), lets it go on with what follows by itself ([`Driver::go_on`]), and ends
//! the round ([`Driver::close_round`]): only then one flush and one batch of messages per peer
//! leave. While a flush runs, the next events are stepped; their writes gather for the next flush.
//! Outputs that wait for a flush stand in one queue in order, each with the number of the last
//! write before it. What is to be done is told to the [`Shell`], which does it: the server with
//! threads and sockets, the simulator in virtual time. [`outgoing`] is what waits for one peer.
//!
//! ```text
//!  events ─► step, step, step ─┬─ now ──────────────────────────► peers, clients
//!     ▲                        └─ durable ─► held (lsn, output) ─► peers, clients, itself
//!     └────────── the shell: write, fdatasync ◄── one flush ┘
//! ```
//!
//! **Invariants.** D1: an output in `held` leaves after `store.durable()` has reached its number,
//! and after all held before it. D2: at most one flush and one checkpoint are out. D3: a full disk,
//! or a lack of descriptors, is told to the node once when it begins and once when it ends, which
//! is when the [reserve](ballast) is there again; any other failure of the disk ends the node. D4:
//! while the log is stuck, messages to peers that would have to wait are lost beyond a bound, as
//! they are when a connection breaks; answers to clients are bounded by the open requests. D5: a
//! message leaves with the round in which it may; one that nobody waits for may wait for company,
//! but not for long.
//!
//! **Stop.** A node that is told to stop retires: it hands over what it leads, so that nobody waits
//! for an election, and goes on answering until it [may end](Driver::may_end). Then the shell
//! [drains](Driver::drain) it: what was written becomes durable, and what waited for that leaves.

pub mod ballast;
mod memory;
pub mod outgoing;

pub use memory::{Recall, batch};

use fermata_protocol::base::{Bug, Config, Micros, NodeId, NodeName, Now, Planted};
use fermata_protocol::io::{Effects, Input, Output, When};
use fermata_protocol::{CallId, Message, Node, Reply, register};
use fermata_storage::{Checkpoint, CheckpointDone, Flush, FlushDone, Lack, Lsn, Persisted, Store};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// A full disk is tried again after this long.
const FULL_RETRY: Micros = 500_000;
/// A message that nobody waits for travels with the next one to the same peer, or after this long.
const UNHURRIED: Micros = 2_000;
/// How long a node that retires stays for what it leads to be taken over.
const HANDOVER: Micros = 300_000;
/// How long it stays for requests that are open and brief.
const GRACE: Micros = 3_000_000;
/// An hour is quiet, and then the table is tidied up, where so few batches were written in such a
/// time.
const QUIET: (Lsn, Micros) = (1_000, 10_000_000);
/// Most outputs that wait for a stuck log; then messages to peers are lost.
pub const HELD_MAX: usize = 65_536;

/// What has happened.
pub enum Event {
    /// To the node.
    Input(Input),
    /// A flush came back.
    Flushed(FlushDone),
    /// A checkpoint came back.
    Checkpointed(CheckpointDone),
    /// The reserve was made, or not.
    Raised(std::io::Result<()>),
}

/// What a shell has to do.
pub enum Action {
    /// Run it where it may block, and hand back what came of it. Where it met a lack of space, the
    /// reserve is released before.
    Flush(Flush),
    /// Likewise.
    Checkpoint(Checkpoint),
    /// Make the reserve where that may block, and say what came of it.
    Raise,
    /// Send to a peer, in order, soon; or lose some.
    Send(NodeName, Vec<Message>),
    /// Answer a client, or forget the answer if the call was cancelled.
    Answer(CallId, Reply),
    /// Tell the operator: nothing can be written for now.
    Full(Lack),
    /// Tell the operator: the disk takes writes again.
    Writable,
    /// Count a message to this peer that was lost because the log is stuck (D4).
    Lost(NodeName),
}

/// Whoever runs a driver.
pub trait Shell {
    /// The time of the next step.
    fn now(&mut self) -> Now;
    /// What is to be done, in order.
    fn act(&mut self, action: Action);
    /// The node is about to be stepped with this.
    fn steps(&mut self, _input: &Input) {}
    /// This came of it, and its writes are durable with the store's batch of this number.
    fn stepped(&mut self, _effects: &mut Effects, _written: Lsn) {}
}

/// One node and its store; see the crate's text.
pub struct Driver {
    node: Node,
    id: NodeId,
    store: Store,
    planted: Planted,
    held_max: usize,
    /// Outputs that wait for a flush; see D1.
    held: VecDeque<(Lsn, Output)>,
    /// Messages of the node to itself that may be stepped.
    own: VecDeque<Message>,
    /// Messages of this round, per peer.
    round: BTreeMap<NodeName, Vec<Message>>,
    /// Since when `round` holds nothing but messages that nobody waits for.
    unhurried: Option<Micros>,
    /// The node was asked in this round whether its time has come.
    ticked: bool,
    flushing: bool,
    /// When the log is tried again, while a flush did not fit.
    stuck_until: Option<Micros>,
    /// When the reserve is tried again, while the node takes its disk to be full.
    full_until: Option<Micros>,
    /// Whether the reserve is being made.
    raising: bool,
    checkpoint_after: Micros,
    /// A checkpoint is out.
    at_table: bool,
    /// When it was last asked whether the hour is quiet, the last batch then, and whether it is and
    /// something is left to be tidied up.
    quiet: (Micros, Lsn, bool),
    /// Since when it retires.
    retiring: Option<Micros>,
    draining: bool,
}

impl Driver {
    /// The node over its store.
    ///
    /// # Errors
    /// One sentence: the store does not fit the configuration.
    pub fn recover(
        config: Config,
        id: NodeId,
        store: Store,
        now: Now,
        seed: u64,
    ) -> Result<Driver, String> {
        let planted = config.planted;
        let node = Node::recover(config, id, &Recall(&store), now, seed)?;
        Ok(Driver {
            id: node.id(),
            node,
            at_table: false,
            quiet: (now.monotonic, store.last(), false),
            store,
            planted,
            held_max: HELD_MAX,
            held: VecDeque::new(),
            own: VecDeque::new(),
            round: BTreeMap::new(),
            unhurried: None,
            ticked: false,
            flushing: false,
            stuck_until: None,
            full_until: None,
            raising: false,
            checkpoint_after: 0,
            retiring: None,
            draining: false,
        })
    }

    /// So many outputs may wait for a stuck log, and not [`HELD_MAX`].
    pub fn hold_at_most(&mut self, outputs: usize) {
        self.held_max = outputs;
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Outputs that wait for a flush.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The first thing that a driver is told.
    ///
    /// # Errors
    /// See [`Self::handle`].
    pub fn start(&mut self, shell: &mut dyn Shell) -> Result<(), String> {
        self.raise(shell);
        self.step(Input::Tick, shell)
    }

    /// Something has happened.
    ///
    /// # Errors
    /// One sentence: why the node cannot go on.
    pub fn handle(&mut self, event: Event, shell: &mut dyn Shell) -> Result<(), String> {
        match event {
            Event::Input(_) if self.draining => Ok(()),
            // A node that retires ends calls itself: their clients have not gone, and ask again at
            // another node.
            Event::Input(Input::Cancel(_)) if self.retiring.is_some() => Ok(()),
            Event::Input(Input::Retire) if self.retiring.is_some() => Ok(()),
            Event::Input(input) => {
                if matches!(input, Input::Retire) {
                    self.retiring = Some(shell.now().monotonic);
                }
                self.step(input, shell)
            }
            Event::Flushed(done) => {
                let lack = match done.outcome() {
                    Persisted::Full(lack) => Some(*lack),
                    _ => None,
                };
                self.flushing = false;
                self.store.flushed(done);
                self.trust()?;
                self.after_flush(lack, shell)
            }
            Event::Checkpointed(done) => {
                if matches!(done.outcome(), Persisted::Full(_)) {
                    self.checkpoint_after = shell.now().monotonic + FULL_RETRY;
                }
                self.at_table = false;
                self.store.checkpointed(done);
                self.trust()
            }
            Event::Raised(raised) => self.after_raise(raised, shell),
        }
    }

    /// Steps the node once with what follows by itself: its time has come, or it has said something
    /// to itself. False: nothing does, for now.
    ///
    /// # Errors
    /// See [`Self::handle`].
    pub fn go_on(&mut self, shell: &mut dyn Shell) -> Result<bool, String> {
        if self.draining {
            return Ok(false);
        }
        if !self.ticked {
            self.ticked = true;
            let now = shell.now().monotonic;
            if self.node.wake().is_some_and(|at| at <= now) {
                self.step(Input::Tick, shell)?;
                return Ok(true);
            }
        }
        let Some(message) = self.own.pop_front() else {
            return Ok(false);
        };
        let from = self.id;
        self.step(Input::Message { from, message }, shell)?;
        Ok(true)
    }

    /// All that has happened was handled: what was written is flushed, and messages leave.
    pub fn close_round(&mut self, shell: &mut dyn Shell) {
        self.ticked = false;
        let now = shell.now().monotonic;
        self.begin_flush(now, shell);
        self.release_round(now, shell);
    }

    /// When a round is due although nothing happens, on the clock of [`Shell::now`].
    pub fn wake(&self) -> Option<Micros> {
        let stuck = self.stuck_until.filter(|_| !self.flushing);
        let unhurried = self.unhurried_until();
        let wishes = [self.node.wake(), stuck, self.full_until, unhurried];
        wishes.into_iter().flatten().min()
    }

    /// How long messages wait that nobody waits for (D5).
    fn unhurried_until(&self) -> Option<Micros> {
        let since = self.unhurried?;
        (!self.planted.has(Bug::UnhurriedForEver)).then_some(since + UNHURRIED)
    }

    /// Whether a node that retires has waited for what it should wait for; `brief`: requests are
    /// open that will soon be answered.
    pub fn may_end(&self, now: Micros, brief: bool) -> bool {
        let Some(since) = self.retiring else {
            return false;
        };
        let gone = now.saturating_sub(since);
        // There is nobody to hand over to.
        let alone = self.node.here().directory.nodes().len() == 1;
        gone >= GRACE || ((alone || gone >= HANDOVER) && !brief)
    }

    /// From now on the node is not stepped, and what was written is flushed.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether it was told to [`Self::drain`].
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether all that was written is durable.
    pub fn is_durable(&self) -> bool {
        self.store.durable() >= self.store.last()
    }

    fn trust(&self) -> Result<(), String> {
        match self.store.failure() {
            Some(failure) => Err(format!("the disk failed: {failure}")),
            None => Ok(()),
        }
    }

    fn after_flush(&mut self, lack: Option<Lack>, shell: &mut dyn Shell) -> Result<(), String> {
        let Some(lack) = lack else {
            self.stuck_until = None;
            self.release_held(shell);
            return Ok(());
        };
        // Where it is space, the reserve was given back: what did not fit is tried again at once.
        let pause = self.stuck_until.map_or(0, |_| FULL_RETRY);
        self.stuck_until = Some(shell.now().monotonic + pause);
        self.lacks(lack, shell)
    }

    fn after_raise(
        &mut self,
        raised: std::io::Result<()>,
        shell: &mut dyn Shell,
    ) -> Result<(), String> {
        self.raising = false;
        // Without a reserve for another reason a node does what it can.
        if let Some(lack) = raised.err().and_then(|error| Lack::of(&error)) {
            return self.lacks(lack, shell);
        }
        let stuck = self.stuck_until.is_some() || self.planted.has(Bug::FullForEver);
        if !stuck && self.full_until.take().is_some() {
            shell.act(Action::Writable);
            return self.step(Input::Writable(true), shell);
        }
        Ok(())
    }

    /// Nothing can be written for now: the node is told, the first time (D3).
    fn lacks(&mut self, lack: Lack, shell: &mut dyn Shell) -> Result<(), String> {
        let next = shell.now().monotonic + FULL_RETRY;
        let told = self.full_until.replace(next).is_some();
        if told && !self.planted.has(Bug::FullToldAgain) {
            return Ok(());
        }
        shell.act(Action::Full(lack));
        self.step(Input::Writable(false), shell)
    }

    /// Asks for the reserve, which is also how it shows that there is space again.
    fn raise(&mut self, shell: &mut dyn Shell) {
        if !self.raising {
            self.raising = true;
            shell.act(Action::Raise);
        }
    }

    /// Steps the node once and sorts what it wants done.
    fn step(&mut self, input: Input, shell: &mut dyn Shell) -> Result<(), String> {
        if self.draining {
            return Ok(());
        }
        let mut fx = Effects::new();
        shell.steps(&input);
        let memory = Recall(&self.store);
        self.node.step(shell.now(), input, &memory, &mut fx);
        let last = self.store.last() + u64::from(!fx.writes.is_empty());
        shell.stepped(&mut fx, last);
        if !fx.writes.is_empty() {
            self.store.append(memory::batch(fx.writes));
        }
        if let Some(why) = fx.halt {
            // What it was told is what keeps it from starting again.
            if let Some(flush) = self.store.take_flush() {
                self.store.flushed(flush.run());
            }
            return Err(why);
        }
        self.trust()?;
        let durable = self.store.durable() >= last || self.planted.has(Bug::AckBeforeFlush);
        for output in fx.outputs {
            if durable || when(&output) == When::Now {
                self.release(output, shell);
            } else if let Some(to) = self.is_lost(&output) {
                shell.act(Action::Lost(to));
            } else {
                self.held.push_back((last, output));
            }
        }
        Ok(())
    }

    /// To whom an output is lost rather than held, if it is (D4).
    fn is_lost(&self, output: &Output) -> Option<NodeName> {
        let stuck = self.stuck_until.is_some() || self.planted.has(Bug::LostUnlessStuck);
        match output {
            Output::Send { to, .. } if stuck && self.held.len() >= self.held_max => Some(*to),
            _ => None,
        }
    }

    /// Lets an output go whose time has come.
    fn release(&mut self, output: Output, shell: &mut dyn Shell) {
        match output {
            Output::Send { to, message, .. } if to == self.id.name => self.own.push_back(message),
            Output::Send { to, message, .. } => self.round.entry(to).or_default().push(message),
            Output::Reply { call, reply, .. } => shell.act(Action::Answer(call, reply)),
        }
    }

    /// Lets go what waited for the flushes that are done (D1).
    fn release_held(&mut self, shell: &mut dyn Shell) {
        let early = self.planted.has(Bug::OutputsLeaveEarly);
        let durable = if early {
            Lsn::MAX
        } else {
            self.store.durable()
        };
        if self.planted.has(Bug::OutputsOutOfOrder) {
            self.held
                .make_contiguous()
                .sort_by_key(|(lsn, _)| (*lsn > durable, Reverse(*lsn)));
        }
        while self.held.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            if let Some((_, output)) = self.held.pop_front() {
                self.release(output, shell);
            }
        }
    }

    /// Hands the round's messages over, but for those that nobody waits for where there are no
    /// others to the peer: a frame of their own would wake it for nothing.
    fn release_round(&mut self, now: Micros, shell: &mut dyn Shell) {
        let all = self.unhurried_until().is_some_and(|until| until <= now);
        let round = std::mem::take(&mut self.round).into_iter();
        let (later, ready): (BTreeMap<_, Vec<_>>, BTreeMap<_, _>) =
            round.partition(|(_, messages)| !all && messages.iter().all(is_unhurried));
        for (to, messages) in ready {
            shell.act(Action::Send(to, messages));
        }
        self.unhurried = (!later.is_empty()).then(|| self.unhurried.unwrap_or(now));
        self.round = later;
    }

    fn begin_flush(&mut self, now: Micros, shell: &mut dyn Shell) {
        if self.stuck_until.is_none_or(|until| until <= now)
            && let Some(flush) = self.store.take_flush()
        {
            self.flushing = true;
            shell.act(Action::Flush(flush));
        }
        if let Some(until) = &mut self.full_until
            && *until <= now
        {
            *until = now + FULL_RETRY;
            if self.stuck_until.is_none() {
                self.raise(shell);
            }
        }
        if self.checkpoint_after <= now
            && let Some(checkpoint) = self.table_work(now)
        {
            self.at_table = true;
            shell.act(Action::Checkpoint(checkpoint));
        }
    }

    /// What is to be done at the table: what is due, then what the start has left, then, where
    /// little else is to be done, what can wait.
    fn table_work(&mut self, now: Micros) -> Option<Checkpoint> {
        if self.at_table || self.draining {
            return None;
        }
        let due = self.store.take_checkpoint();
        if due.is_some() {
            return due;
        }
        let (batches, time) = QUIET;
        let (since, last, _) = self.quiet;
        if now >= since + time {
            let last_now = self.store.last();
            self.quiet = (now, last_now, last_now - last < batches);
        }
        let check = self.store.take_check();
        if check.is_some() || !self.quiet.2 {
            return check;
        }
        let tidying = self.store.take_tidying();
        self.quiet.2 = tidying.is_some();
        tidying
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
