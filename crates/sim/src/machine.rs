//! One machine: clocks, a disk, and at times a process with a node in it.
//!
//! The process is the server's own driver ([`fermata_driver`]) in virtual time: what has happened
//! waits in its mailbox, is handled in rounds, and what the driver wants done is done here or by
//! the [world](crate::world). A round takes no time, or, in some kinds of seeds, a little; then
//! what comes meanwhile is handled together.

use crate::checkers::driver::Said;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::disk::{Disk, Flushed};
use crate::link::Link;
use crate::network::ClientId;
use fermata_driver::{Action, Driver, Event, Recall, Shell};
use fermata_protocol::base::{Bug, Config, Incarnation, NodeId, NodeName, Now, SegmentId};
use fermata_protocol::io::{Effects, Happened, Input, Memory, Write};
use fermata_protocol::records::Change;
use fermata_protocol::{CallId, Message, Node, Output};
use fermata_storage::Lsn;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Processes of a twin have numbers from here on: an event names its process by the number.
pub const TWIN_BOOT: u32 = 1 << 31;

/// Who waits for the answers of an open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The client.
    pub client: ClientId,
    /// Its process.
    pub life: u32,
    /// Its name of the exchange.
    pub exchange: u64,
}

/// One machine.
pub struct Machine {
    /// What its node is told at every start.
    pub config: Config,
    /// Its site.
    pub site: u16,
    /// Its clocks.
    pub clock: Clock,
    /// Its disk.
    pub disk: Disk,
    /// Counts processes: an event for an earlier one is ignored.
    pub boot: u32,
    /// While set, the process does nothing; what arrives waits.
    pub paused: bool,
    /// What waits for peers, where connections are slow.
    pub links: BTreeMap<NodeName, Link>,
    /// How long a round takes, microseconds, from and to.
    pub round: (u64, u64),
    /// So many outputs may wait for a stuck log.
    pub held_max: usize,
    /// The process was told that it will be stopped.
    pub retiring: bool,
    /// It will not come back: its disk was lost, or its directory was refused.
    pub lost: Option<String>,
    /// The true time for which a wake is scheduled.
    pub wake_at: Option<u64>,
    /// Ticks in a row after each of which the node wanted another one at once.
    pub restless: u32,
    /// Steps are recorded, for [`crate::model`].
    pub watched: bool,
    driver: Option<Driver>,
    mailbox: VecDeque<Event>,
    /// The round that was closed last takes until then.
    busy_until: u64,
    calls: BTreeMap<CallId, Caller>,
    callers: BTreeSet<(Caller, CallId)>,
    next_call: u64,
    dice: Dice,
}

/// What a turn of the driver gave: it has stepped the node once, or closed a round.
#[derive(Default)]
pub struct Stepped {
    /// The node was stepped.
    pub stepped: bool,
    /// What leaves, and what is told of the disk.
    pub actions: Vec<Action>,
    /// What the node was stepped with, if it has said that to itself.
    pub own: Option<Message>,
    /// What the step wrote, for those who watch.
    pub writes: Vec<Write>,
    /// The number after which the writes are durable.
    pub written: Lsn,
    /// What is durable, as far as the driver knows now.
    pub durable: Lsn,
    /// What the step said.
    pub said: Vec<Said>,
    /// What the commands that were applied have changed of segments' records, by their numbers.
    pub changed: Vec<(SegmentId, u64, Vec<Change>)>,
    /// What the node was told of its disk: whether it takes writes.
    pub told: Option<bool>,
    /// A flush has begun and takes so long.
    pub flush: Option<u64>,
    /// The input with all that came of it, if the machine is watched.
    pub turn: Option<Turn>,
}

/// One input of a node, and what the node did at once.
#[derive(Debug)]
pub struct Turn {
    /// What came.
    pub input: Input,
    /// What it wants to say, now or once its writes are durable.
    pub outputs: Vec<Output>,
    /// What it wrote.
    pub writes: Vec<Write>,
    /// Commands that its segments have applied.
    pub applied: Vec<Happened>,
}

/// What the driver acts through.
struct Hands {
    id: NodeId,
    now: Now,
    watched: bool,
    done: Stepped,
}

impl Shell for Hands {
    fn now(&mut self) -> Now {
        self.now
    }

    fn act(&mut self, action: Action) {
        self.done.actions.push(action);
    }

    fn steps(&mut self, input: &Input) {
        if let Input::Message { from, message } = input
            && *from == self.id
        {
            self.done.own = Some(message.clone());
        }
        if let Input::Writable(writable) = input {
            self.done.told = Some(*writable);
        }
        self.done.turn = self.watched.then(|| Turn {
            input: input.clone(),
            outputs: Vec::new(),
            writes: Vec::new(),
            applied: Vec::new(),
        });
    }

    fn stepped(&mut self, effects: &mut Effects, written: Lsn) {
        self.done.stepped = true;
        self.done.writes.clone_from(&effects.writes);
        self.done.written = written;
        let applied = effects.applied.iter();
        let changes = applied.filter(|happened| !happened.applied.work.changes.is_empty());
        self.done.changed.extend(changes.map(|happened| {
            let applied = &happened.applied;
            (
                happened.segment,
                applied.position,
                applied.work.changes.clone(),
            )
        }));
        self.done.said = effects.outputs.iter().map(Said::of).collect();
        if let Some(turn) = &mut self.done.turn {
            turn.outputs.clone_from(&effects.outputs);
            turn.writes.clone_from(&effects.writes);
            turn.applied = std::mem::take(&mut effects.applied);
        }
    }
}

impl Machine {
    /// A machine that is switched off, with an empty disk.
    pub fn new(config: Config, site: u16, clock: Clock, disk: Disk, dice: Dice) -> Machine {
        Machine {
            config,
            site,
            clock,
            disk,
            boot: 0,
            paused: false,
            links: BTreeMap::new(),
            round: (0, 0),
            held_max: fermata_driver::HELD_MAX,
            retiring: false,
            lost: None,
            wake_at: None,
            restless: 0,
            watched: false,
            driver: None,
            mailbox: VecDeque::new(),
            busy_until: 0,
            calls: BTreeMap::new(),
            callers: BTreeSet::new(),
            next_call: 1,
            dice,
        }
    }

    /// Another machine with a copy of this one's directory and with its identity; it is off. Its
    /// processes count from [`TWIN_BOOT`].
    pub fn twin(&mut self) -> Machine {
        let dice = self.dice.fork();
        let (config, clock) = (self.config.clone(), self.clock.clone());
        let mut twin = Machine::new(config, self.site, clock, self.disk.copy(), dice);
        twin.boot = TWIN_BOOT;
        (twin.round, twin.held_max) = (self.round, self.held_max);
        twin
    }

    /// Its role.
    pub fn name(&self) -> NodeName {
        self.config.name
    }

    /// Its role and memory.
    pub fn id(&self) -> NodeId {
        NodeId {
            name: self.config.name,
            incarnation: self.disk.incarnation,
        }
    }

    /// The node of the running process.
    pub fn node(&self) -> Option<&Node> {
        self.driver.as_ref().map(Driver::node)
    }

    /// The durable memory of the running process, as its node reads it.
    pub fn memory(&self) -> Option<Recall<'_>> {
        self.driver.as_ref().map(|driver| Recall(driver.store()))
    }

    /// Whether a process runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.driver.is_some()
    }

    /// Starts a process: what came of its first step.
    ///
    /// # Errors
    /// The sentence for the operator, when the directory is refused; then the machine is lost,
    /// unless its disk is full, which ends.
    pub fn start(&mut self, now: u64) -> Result<Stepped, String> {
        assert!(self.driver.is_none(), "one process at a time");
        let seed = self.dice.draw();
        let at = self.clock.read(now);
        let (config, id) = (self.config.clone(), self.id());
        let opened = self.disk.open();
        let started = opened.and_then(|store| Driver::recover(config, id, store, at, seed));
        match started {
            Ok(mut driver) => {
                driver.hold_at_most(self.held_max);
                self.driver = Some(driver);
                self.boot += 1;
                (self.paused, self.retiring) = (false, false);
                self.wake_at = None;
                Ok(self.act(now, |driver, hands| driver.start(hands)))
            }
            Err(why) => {
                self.lost = Some(why.clone()).filter(|_| !self.disk.is_full());
                Err(why)
            }
        }
    }

    /// The process dies; with `power`, so does everything that was not flushed. Callers whose
    /// connection breaks are returned.
    pub fn stop(&mut self, power: bool) -> Vec<Caller> {
        self.paused = false;
        self.mailbox.clear();
        self.links.clear();
        self.busy_until = 0;
        self.calls.clear();
        self.wake_at = None;
        self.boot += 1;
        let mut dice = self.dice.fork();
        if power {
            self.disk.crash(&mut dice);
        } else {
            self.disk.close();
        }
        self.driver = None;
        let mut broken: Vec<Caller> = self.callers.iter().map(|(caller, _)| *caller).collect();
        self.callers.clear();
        broken.dedup();
        broken
    }

    /// The disk is lost while the machine is off. A machine with an empty disk is another member,
    /// which nobody knows; only the planted bug gives it its old name.
    pub fn wipe(&mut self) {
        assert!(
            self.driver.is_none(),
            "a disk is replaced while the machine is off"
        );
        let fresh = Incarnation(self.dice.wide());
        let same = self.config.planted.has(Bug::LostDiskRejoins);
        let incarnation = if same { self.disk.incarnation } else { fresh };
        self.disk.wipe(incarnation);
    }

    /// Something has happened to the process; it is told when it next looks.
    pub fn post(&mut self, event: Event) {
        self.mailbox.push_back(event);
    }

    /// Handles one more thing of a round; none: the process does nothing, or nothing is left.
    pub fn go_on(&mut self, now: u64) -> Option<Stepped> {
        if self.paused || now < self.busy_until || self.driver.is_none() {
            return None;
        }
        if let Some(event) = self.mailbox.pop_front() {
            let mut done = self.act(now, |driver, hands| driver.handle(event, hands));
            // What a scenario injected is not what the node said to itself.
            done.own = None;
            return Some(done);
        }
        let mut went_on = false;
        let done = self.act(now, |driver, hands| {
            let more = driver.go_on(hands);
            went_on = !matches!(more, Ok(false));
            more.map(drop)
        });
        went_on.then_some(done)
    }

    /// Ends the round; none: the process does nothing.
    pub fn close_round(&mut self, now: u64) -> Option<Stepped> {
        if self.paused || now < self.busy_until {
            return None;
        }
        let (from, to) = self.round;
        if to > 0 && !self.driver.as_ref().is_some_and(Driver::is_draining) {
            self.busy_until = now + self.dice.between(from, to);
        }
        Some(self.act(now, |driver, hands| {
            driver.close_round(hands);
            Ok(())
        }))
    }

    /// Lets the driver do something, and does what it wants done with the disk.
    fn act(
        &mut self,
        now: u64,
        act: impl FnOnce(&mut Driver, &mut Hands) -> Result<(), String>,
    ) -> Stepped {
        let mut hands = Hands {
            id: self.id(),
            now: self.clock.read(now),
            watched: self.watched,
            done: Stepped::default(),
        };
        let Some(driver) = &mut self.driver else {
            return hands.done;
        };
        if let Err(why) = act(driver, &mut hands) {
            self.lost = Some(why);
        }
        let mut done = hands.done;
        done.durable = driver.store().durable();
        for action in std::mem::take(&mut done.actions) {
            match action {
                Action::Flush(flush) => {
                    done.flush = Some(self.disk.begin_flush(flush, &mut self.dice));
                }
                Action::Checkpoint(checkpoint) => {
                    self.mailbox
                        .push_back(Event::Checkpointed(checkpoint.run()));
                }
                Action::Raise => self.mailbox.push_back(Event::Raised(self.disk.raise())),
                other => done.actions.push(other),
            }
        }
        done
    }

    /// Whether something waits for the process, which could look at it.
    pub fn has_mail(&self, now: u64) -> bool {
        !self.mailbox.is_empty() && !self.paused && now >= self.busy_until
    }

    /// The flush under way has ended: what became of it. The process is told.
    pub fn flushed(&mut self) -> Flushed {
        let (result, done) = self.disk.end_flush();
        self.mailbox.push_back(Event::Flushed(done));
        result
    }

    /// The process ends in an orderly way: from now on it only flushes.
    pub fn drain(&mut self) {
        (self.paused, self.busy_until) = (false, 0);
        if let Some(driver) = &mut self.driver {
            driver.drain();
        }
    }

    /// Whether a process that retires has waited for what it should wait for.
    pub fn may_end(&self, now: u64) -> bool {
        let reading = self.clock.read(now).monotonic;
        let driver = self.driver.as_ref();
        driver.is_none_or(|driver| driver.may_end(reading, !self.calls.is_empty()))
    }

    /// Opens a call for one transmission of a client's exchange.
    pub fn open_call(&mut self, caller: Caller) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, caller);
        self.callers.insert((caller, call));
        call
    }

    /// Ends the calls of an exchange because nobody listens any more.
    pub fn close_calls(&mut self, caller: Caller) -> Vec<CallId> {
        let range = (caller, CallId(0))..=(caller, CallId(u64::MAX));
        let calls: Vec<CallId> = self.callers.range(range).map(|(_, call)| *call).collect();
        for call in &calls {
            self.callers.remove(&(caller, *call));
            self.calls.remove(call);
        }
        calls
    }

    /// Who waits for the answers of a call.
    pub fn caller(&self, call: CallId) -> Option<Caller> {
        self.calls.get(&call).copied()
    }

    /// All calls of one client process.
    pub fn calls_of(&self, client: ClientId) -> Vec<Caller> {
        let all = self.callers.iter().filter(|(c, _)| c.client == client);
        let mut callers: Vec<Caller> = all.map(|(c, _)| *c).collect();
        callers.dedup();
        callers
    }

    /// The true time at which the process wants to look around next.
    pub fn wakes(&self, now: u64) -> Option<u64> {
        if self.paused {
            return None;
        }
        let driver = self.driver.as_ref()?;
        let at = match self.mailbox.is_empty() {
            true => self.clock.true_time_of(now, driver.wake()?),
            false => now,
        };
        Some(at.max(self.busy_until))
    }

    /// What the node would read from its durable memory now.
    pub fn recall(&self, key: &[u8]) -> Option<bytes::Bytes> {
        self.memory()?.get(key).ok().flatten()
    }

    /// One bit of the directory rots.
    pub fn rot(&mut self, dice: &mut Dice) {
        let written = self.driver.as_ref().map(|d| d.store().stats().wal_bytes);
        self.disk.rot(written, dice);
    }
}
