//! One machine: clocks, a disk, and at times a process with a node in it.
//!
//! This is the loop of the protocol crate's contract, on virtual time: step, append, release what
//! may leave now, flush, release what waited for the flush.

use crate::clock::Clock;
use crate::dice::Dice;
use crate::disk::{Disk, Flushed};
use crate::network::ClientId;
use fermata_protocol::base::{Bug, Config, Incarnation, NodeId, NodeName};
use fermata_protocol::io::{Effects, Happened, Input, Memory, Write};
use fermata_protocol::{CallId, Node, Output, When};
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
    node: Option<Node>,
    inbox: VecDeque<Input>,
    waiting: VecDeque<(Lsn, Output)>,
    calls: BTreeMap<CallId, Caller>,
    callers: BTreeSet<(Caller, CallId)>,
    next_call: u64,
    dice: Dice,
}

/// What a step gave.
#[derive(Debug, Default)]
pub struct Stepped {
    /// May leave now.
    pub outputs: Vec<Output>,
    /// What the step wrote, for those who watch.
    pub writes: Vec<Write>,
    /// The number after which the writes are durable.
    pub written: Lsn,
    /// A flush has begun and takes so long.
    pub flush: Option<u64>,
    /// Each input with all that came of it, if the machine is watched.
    pub turns: Vec<Turn>,
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
            retiring: false,
            lost: None,
            wake_at: None,
            restless: 0,
            watched: false,
            node: None,
            inbox: VecDeque::new(),
            waiting: VecDeque::new(),
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
        self.node.as_ref()
    }

    /// Whether a process runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.node.is_some()
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The sentence for the operator, when the directory is refused; then the machine is lost.
    pub fn start(&mut self, now: u64) -> Result<(), String> {
        assert!(self.node.is_none(), "one process at a time");
        let started = self.disk.open().and_then(|()| {
            let memory = self.disk.memory().expect("just opened");
            let seed = self.dice.draw();
            let at = self.clock.read(now);
            Node::recover(self.config.clone(), self.id(), &memory, at, seed)
        });
        match started {
            Ok(node) => {
                self.node = Some(node);
                self.boot += 1;
                (self.paused, self.retiring) = (false, false);
                self.wake_at = None;
                Ok(())
            }
            Err(why) => {
                self.lost = Some(why.clone());
                Err(why)
            }
        }
    }

    /// The process dies; with `power`, so does everything that was not flushed. Callers whose
    /// connection breaks are returned.
    pub fn stop(&mut self, power: bool) -> Vec<Caller> {
        self.node = None;
        self.paused = false;
        self.inbox.clear();
        self.waiting.clear();
        self.calls.clear();
        self.wake_at = None;
        self.boot += 1;
        let mut dice = self.dice.fork();
        if power {
            self.disk.crash(&mut dice);
        } else {
            self.disk.close();
        }
        let mut broken: Vec<Caller> = self.callers.iter().map(|(caller, _)| *caller).collect();
        self.callers.clear();
        broken.dedup();
        broken
    }

    /// The disk is lost while the machine is off. A machine with an empty disk is another member,
    /// which nobody knows; only the planted bug gives it its old name.
    pub fn wipe(&mut self) {
        assert!(
            self.node.is_none(),
            "a disk is replaced while the machine is off"
        );
        let fresh = Incarnation(self.dice.wide());
        let same = self.config.planted.has(Bug::LostDiskRejoins);
        let incarnation = if same { self.disk.incarnation } else { fresh };
        self.disk.wipe(incarnation);
    }

    /// Hands an input to the node, or keeps it while the process is paused.
    pub fn step(&mut self, now: u64, input: Input) -> Stepped {
        if self.paused {
            self.inbox.push_back(input);
            return Stepped::default();
        }
        let mut done = Stepped::default();
        self.step_once(now, input, &mut done);
        done.flush = self.disk.start_flush(&mut self.dice);
        done
    }

    /// The process goes on after a pause.
    pub fn go_on(&mut self, now: u64) -> Stepped {
        self.paused = false;
        let mut done = Stepped::default();
        for input in std::mem::take(&mut self.inbox) {
            self.step_once(now, input, &mut done);
        }
        self.step_once(now, Input::Tick, &mut done);
        done.flush = self.disk.start_flush(&mut self.dice);
        done
    }

    fn step_once(&mut self, now: u64, input: Input, done: &mut Stepped) {
        let Some(node) = &mut self.node else { return };
        let mut effects = Effects::new();
        let memory = self.disk.memory().expect("a running process has its store");
        let seen = self.watched.then(|| input.clone());
        node.step(self.clock.read(now), input, &memory, &mut effects);
        if let Some(input) = seen {
            done.turns.push(Turn {
                input,
                outputs: effects.outputs.clone(),
                writes: effects.writes.clone(),
                applied: std::mem::take(&mut effects.applied),
            });
        }
        if let Some(why) = effects.halt {
            self.lost = Some(why);
        }
        done.writes.extend(effects.writes.iter().cloned());
        let written = self.disk.append(effects.writes);
        done.written = written;
        let early = self.config.planted.has(Bug::AckBeforeFlush);
        for output in effects.outputs {
            let (Output::Send { when, .. } | Output::Reply { when, .. }) = &output;
            if *when == When::Now || early || written <= self.disk.durable() {
                done.outputs.push(output);
            } else {
                self.waiting.push_back((written, output));
            }
        }
    }

    /// The flush under way has ended. What waited for it may leave now.
    pub fn flushed(&mut self, now: u64) -> (Flushed, Stepped) {
        let mut done = Stepped::default();
        let was_full = self.disk.full;
        let result = self.disk.end_flush();
        self.disk.full = result == Flushed::Full;
        if let Flushed::Through(durable) = result {
            while self.waiting.front().is_some_and(|(lsn, _)| *lsn <= durable) {
                done.outputs
                    .extend(self.waiting.pop_front().map(|(_, output)| output));
            }
        }
        if self.disk.full != was_full && result != Flushed::Broken {
            let input = Input::Writable(!self.disk.full);
            let more = self.step(now, input);
            done.outputs.extend(more.outputs);
            done.writes.extend(more.writes);
            done.turns.extend(more.turns);
            done.written = more.written;
            done.flush = more.flush;
        } else if result != Flushed::Full {
            done.flush = self.disk.start_flush(&mut self.dice);
        }
        (result, done)
    }

    /// Tries a flush again that met a full disk.
    pub fn flush_again(&mut self) -> Option<u64> {
        self.disk.start_flush(&mut self.dice)
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

    /// The true time at which the node wants to be stepped next.
    pub fn wakes(&self, now: u64) -> Option<u64> {
        let reading = self.node.as_ref()?.wake()?;
        Some(self.clock.true_time_of(now, reading))
    }

    /// What the node would read from its durable memory now.
    pub fn recall(&self, key: &[u8]) -> Option<bytes::Bytes> {
        self.disk.memory()?.get(key).ok().flatten()
    }
}
