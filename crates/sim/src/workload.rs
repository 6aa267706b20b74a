//! What clients do: the loops that users write, with the mistakes that users make.
//!
//! A worker makes rounds. In a round it enters a section and reads, modifies and writes, or uses
//! registers, eventual values or writes of their own; at the end of a section it leaves, or puts
//! and leaves, or says nothing more. Every value is written once in a history, so that a read names
//! the write that it saw.

use crate::dice::Dice;
use crate::history::{Heard, OpId, SectionIx};
use crate::kind::VALUE_MAX;
use crate::network::ClientId;
use crate::world::World;
use bytes::Bytes;
use fermata_protocol::base::{Address, KeyId, Keyspace, KeyspaceId, Purpose, SegmentId, TagRule};
use fermata_protocol::client::Call;
use fermata_protocol::request::Mode;
use std::collections::BTreeSet;

/// What the workers of one run work on.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Keys of sections.
    pub sections: Vec<KeyId>,
    /// Keys of registers.
    pub registers: Vec<KeyId>,
    /// How long a silent holder keeps its section, microseconds.
    pub lease: u64,
    /// How many in a hundred sections only read.
    pub shared_percent: u64,
    /// Some sections last longer than their keyspace allows.
    pub lingers: bool,
    /// Bytes of the names of keys, at least.
    names: usize,
}

impl Ground {
    /// Two keys of the first one's segment, too: sections of several keys within one segment.
    pub fn crowd(&mut self, bits: u8) {
        let segment = segment_of(&self.sections[0], bits);
        let names = (0..).map(|i| KeyId {
            keyspace: Keyspace::SECTIONS,
            key: long(format!("c{i}"), self.names),
        });
        let beside = names.filter(|k| segment_of(k, bits) == segment);
        self.sections.extend(beside.take(2));
    }

    /// Keys of a keyspace whose sections are short.
    pub fn hurry(&mut self, keyspace: KeyspaceId) {
        for key in &mut self.sections {
            key.keyspace = keyspace;
        }
        self.lingers = true;
    }

    /// Keys of one more keyspace.
    pub fn extend(&mut self, purpose: Purpose, keyspace: KeyspaceId, bits: u8, count: usize) {
        let letter = format!("{}.", keyspace.0);
        let keys = spread(keyspace, &letter, (bits, self.names), count);
        match purpose {
            Purpose::Sections => self.sections.extend(keys),
            Purpose::Registers => self.registers.extend(keys),
            // Clients name the keys of ledgers as they go.
            Purpose::Ledger { .. } => {}
        }
    }

    /// Keys that lie in different segments where there are enough: names are tried in order. They
    /// have so many bytes at least.
    pub fn new(bits: u8, sections: usize, registers: usize, lease: u64, names: usize) -> Ground {
        let ring = (bits, names);
        Ground {
            sections: spread(Keyspace::SECTIONS, "k", ring, sections),
            registers: spread(Keyspace::REGISTERS, "r", ring, registers),
            lease,
            shared_percent: 15,
            lingers: false,
            names,
        }
    }
}

/// The segment of a key.
pub fn segment_of(key: &KeyId, bits: u8) -> SegmentId {
    Address::of(key.keyspace, TagRule::Whole, &key.key).segment(bits)
}

fn spread(
    keyspace: KeyspaceId,
    letter: &str,
    (bits, names): (u8, usize),
    count: usize,
) -> Vec<KeyId> {
    let mut taken = BTreeSet::new();
    let mut keys = Vec::new();
    for i in 0..10_000 {
        if keys.len() == count {
            break;
        }
        let key = long(format!("{letter}{i}"), names);
        let key = KeyId { keyspace, key };
        if taken.insert(segment_of(&key, bits)) || taken.len() == 1 << bits {
            keys.push(key);
        }
    }
    keys
}

/// What a worker does next in its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Get,
    Put,
    /// Several puts at once, not waited for one by one.
    Burst,
    /// Wait for all that is open.
    Barrier,
    Think,
}

/// How a worker ends its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Leave,
    LeaveWaiting,
    PutAndLeave,
    /// It dies with operations open.
    Die,
    /// It says nothing more and forgets the section, alive.
    Forget,
    /// It dies, and its successor resumes from what was written down.
    Resume,
    /// The same, and it gives its lease back before.
    HandOn,
}

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Waits for one operation, after which the round is over.
    Single(OpId),
    Entering(OpId),
    In {
        section: SectionIx,
        moves: Vec<Move>,
        ending: Ending,
    },
    Dead {
        resumes: Option<SectionIx>,
    },
    Done,
}

/// One client's loop.
#[derive(Clone, Debug)]
pub struct Worker {
    client: ClientId,
    stage: Stage,
    /// Operations that the worker waits for before it goes on.
    waits: BTreeSet<OpId>,
    rounds: u64,
    written: u64,
    life: u32,
    /// It does nothing before this true time.
    rest_until: u64,
    dice: Dice,
    ground: Ground,
    /// How many in a hundred rounds are sections.
    sections_percent: u64,
    /// How many in a hundred writes and puts are deletes.
    deletes_percent: u64,
}

impl Worker {
    /// A worker for a client; `rounds` of work.
    pub fn new(client: ClientId, rounds: u64, ground: Ground, mut dice: Dice) -> Worker {
        let sections_percent = [45, 70, 90][dice.below(3) as usize];
        let deletes_percent = [4, 15, 40][dice.below(3) as usize];
        Worker {
            client,
            stage: Stage::Idle,
            waits: BTreeSet::new(),
            rounds,
            written: 0,
            life: 0,
            rest_until: dice.between(1_000_000, 3_000_000),
            dice,
            ground,
            sections_percent,
            deletes_percent,
        }
    }

    /// All rounds are over.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether it waits for a key with more unfinished writes than its policy bears.
    pub fn is_excused(&self, world: &World) -> bool {
        let excused = |key: &KeyId| world.monitor.is_excused(key, &world.history.catalogue);
        self.waits.iter().any(|op| {
            let what = &world.history.ops[op.0].what;
            match what {
                crate::history::What::Enter { keys, .. } => keys.iter().any(excused),
                _ => what.key().is_some_and(excused),
            }
        })
    }

    /// What the worker waits for, for people.
    pub fn state(&self) -> String {
        format!(
            "client {}: {:?}, waits for {:?}",
            self.client.0, self.stage, self.waits
        )
    }

    /// When the worker wants to act although nothing ended.
    pub fn rests_until(&self) -> u64 {
        self.rest_until
    }

    /// Goes on as far as it can.
    pub fn act(&mut self, world: &mut World) {
        let client = &world.clients[self.client.0 as usize];
        if client.life != self.life {
            self.reborn(world);
        }
        if !world.clients[self.client.0 as usize].alive {
            return;
        }
        self.waits.retain(|op| *world.outcome(*op) == Heard::Open);
        if world.now < self.rest_until || !self.waits.is_empty() {
            return;
        }
        match self.stage.clone() {
            Stage::Done => {}
            Stage::Idle if self.rounds == 0 => self.stage = Stage::Done,
            Stage::Idle => self.begin(world),
            Stage::Single(_) => self.rest(world),
            Stage::Entering(op) => self.entered(world, op),
            Stage::In {
                section,
                moves,
                ending,
            } => self.go_on(world, section, moves, ending),
            Stage::Dead { resumes } => self.resume(world, resumes),
        }
    }

    /// Somebody killed the client, or this worker did, and it is another process now.
    fn reborn(&mut self, world: &World) {
        let client = &world.clients[self.client.0 as usize];
        self.life = client.life;
        self.waits.clear();
        let resumes = match &self.stage {
            Stage::In { section, .. } if self.dice.chance(50) => Some(*section),
            Stage::Dead { resumes } => *resumes,
            _ => None,
        };
        if self.stage != Stage::Done {
            self.stage = Stage::Dead { resumes };
        }
    }

    fn rest(&mut self, world: &World) {
        self.rounds = self.rounds.saturating_sub(1);
        self.stage = Stage::Idle;
        let longest = if self.dice.chance(10) {
            4_000_000
        } else {
            500_000
        };
        self.rest_until = world.now + 1 + self.dice.below(longest);
    }

    fn begin(&mut self, world: &mut World) {
        if self.dice.chance(self.sections_percent) {
            self.begin_section(world);
        } else {
            self.begin_single(world);
        }
    }

    fn begin_section(&mut self, world: &mut World) {
        let most = if self.dice.chance(25) { 3 } else { 1 };
        let count = self.dice.between(1, most) as usize;
        let keys = self.dice.subset(&self.ground.sections, count);
        if self.dice.chance(4) && self.take_over(world) {
            return;
        }
        let shared = self.dice.chance(self.ground.shared_percent);
        let mode = if shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let wait = if self.dice.chance(80) {
            60_000_000
        } else {
            3_000_000
        };
        let lease = Some(self.ground.lease);
        let op = world.call(
            self.client,
            Call::Enter {
                keys,
                mode,
                wait,
                lease,
            },
        );
        self.waits.insert(op);
        self.stage = Stage::Entering(op);
    }

    /// Goes on in a section that another client is in, as one that believes it dead does. False:
    /// there is none.
    fn take_over(&mut self, world: &mut World) -> bool {
        let mine = self.client;
        let open = world.history.sections.iter().rev().take(8);
        let others = open.filter(|s| s.client != mine && s.over.is_none());
        let all: Vec<_> = others.map(|s| (s.held.clone(), s.session)).collect();
        let Some((held, session)) = self.dice.pick(&all).cloned() else {
            return false;
        };
        // Who has no secret but its own is refused.
        let of = match self.dice.chance(25) {
            true => world.clients[mine.0 as usize].session().id(),
            false => session,
        };
        let op = world.call(self.client, Call::Resume { held, of });
        self.waits.insert(op);
        self.stage = Stage::Entering(op);
        true
    }

    fn begin_single(&mut self, world: &mut World) {
        let section_key = self.dice.pick(&self.ground.sections).cloned();
        let register = self.dice.pick(&self.ground.registers).cloned();
        let (Some(key), Some(register)) = (section_key, register.clone().or(register)) else {
            return self.rest(world);
        };
        let call = match self.dice.below(20) {
            0..=5 => Call::Write {
                key: register,
                value: self.value(),
            },
            6..=12 => Call::Read { key: register },
            13 | 14 => Call::Put {
                key,
                value: self.value(),
            },
            15 => Call::Get { key },
            16 => Call::Write {
                key,
                value: self.value(),
            },
            17 => Call::Read { key },
            _ => Call::Queue { key },
        };
        let op = world.call(self.client, call);
        self.waits.insert(op);
        self.stage = Stage::Single(op);
    }

    /// A value that was never written before in this history; at times a delete.
    fn value(&mut self) -> Option<Bytes> {
        self.written += 1;
        if self.dice.chance(self.deletes_percent) {
            return None;
        }
        let name = format!("v{}.{}", self.client.0, self.written);
        Some(padded(name, &mut self.dice))
    }

    fn entered(&mut self, world: &mut World, op: OpId) {
        let done = matches!(world.outcome(op), Heard::Done(_));
        let section = world.history.ops[op.0].section.filter(|_| done);
        let Some(section) = section else {
            return self.rest(world);
        };
        let shared = world.history.sections[section.0].mode == Mode::Shared;
        let mut moves = Vec::new();
        if self.ground.lingers && !shared && self.dice.chance(30) {
            // As long as it may, and longer.
            moves = [Move::Put, Move::Think].repeat(10);
        }
        for _ in 0..self.dice.between(0, 4) {
            let put = if self.dice.chance(50) {
                Move::Burst
            } else {
                Move::Put
            };
            moves.push(match self.dice.below(10) {
                0..=3 => Move::Get,
                4..=7 if !shared => put,
                8 => Move::Barrier,
                _ => Move::Think,
            });
        }
        let ending = match self.dice.below(20) {
            0..=7 => Ending::Leave,
            8..=11 => Ending::LeaveWaiting,
            12..=15 if !shared => Ending::PutAndLeave,
            16 => Ending::Die,
            17 => Ending::Forget,
            18 => Ending::Resume,
            19 => Ending::HandOn,
            _ => Ending::Leave,
        };
        self.stage = Stage::In {
            section,
            moves,
            ending,
        };
        self.act(world);
    }

    fn go_on(
        &mut self,
        world: &mut World,
        section: SectionIx,
        mut moves: Vec<Move>,
        ending: Ending,
    ) {
        let client = &world.clients[self.client.0 as usize];
        let lost = world.history.sections[section.0].over.is_some();
        let Some(name) = client.name_of(section).filter(|_| !lost) else {
            return self.rest(world);
        };
        let held = &world.history.sections[section.0].held;
        let keys: Vec<KeyId> = held.iter().map(|h| h.key.clone()).collect();
        let Some(key) = self.dice.pick(&keys).cloned() else {
            return self.rest(world);
        };
        let Some(next) = moves.pop() else {
            return self.end(world, section, key, ending);
        };
        self.stage = Stage::In {
            section,
            moves,
            ending,
        };
        match next {
            Move::Get => {
                let op = world.call(self.client, Call::CriticalGet { section: name, key });
                self.waits.insert(op);
            }
            Move::Put => {
                let value = self.value();
                let op = world.call(
                    self.client,
                    Call::CriticalPut {
                        section: name,
                        key,
                        value,
                    },
                );
                if self.dice.chance(80) {
                    self.waits.insert(op);
                }
            }
            Move::Burst => {
                for _ in 0..self.dice.between(2, 4) {
                    let Some(key) = self.dice.pick(&keys).cloned() else {
                        break;
                    };
                    let value = self.value();
                    world.call(
                        self.client,
                        Call::CriticalPut {
                            section: name,
                            key,
                            value,
                        },
                    );
                }
            }
            Move::Barrier => self.wait_for_all(world, section),
            Move::Think => {
                let lingers = self.ground.lingers && self.dice.chance(30);
                let longest = if lingers { 6_000_000 } else { 1_500_000 };
                self.rest_until = world.now + 1 + self.dice.below(longest);
            }
        }
        self.act(world);
    }

    fn wait_for_all(&mut self, world: &World, section: SectionIx) {
        let ops = world.history.ops.iter().enumerate();
        let open = ops.filter(|(_, op)| {
            op.section == Some(section) && op.client == self.client && op.outcome == Heard::Open
        });
        self.waits.extend(open.map(|(i, _)| OpId(i)));
    }

    fn end(&mut self, world: &mut World, section: SectionIx, key: KeyId, ending: Ending) {
        let client = &world.clients[self.client.0 as usize];
        let Some(name) = client.name_of(section) else {
            return self.rest(world);
        };
        let op = match ending {
            Ending::Leave => world.call(
                self.client,
                Call::Leave {
                    section: name,
                    wait: false,
                },
            ),
            Ending::LeaveWaiting => world.call(
                self.client,
                Call::Leave {
                    section: name,
                    wait: true,
                },
            ),
            Ending::PutAndLeave => {
                let value = self.value();
                world.call(
                    self.client,
                    Call::PutAndLeave {
                        section: name,
                        key,
                        value,
                    },
                )
            }
            Ending::Die | Ending::Resume => {
                let writes = world.history.sections[section.0].mode == Mode::Exclusive;
                if writes && self.dice.chance(60) {
                    let value = self.value();
                    world.call(
                        self.client,
                        Call::CriticalPut {
                            section: name,
                            key,
                            value,
                        },
                    );
                }
                return self.die(world, section, ending);
            }
            Ending::HandOn => {
                world.call(self.client, Call::Relinquish { section: name });
                return self.die(world, section, ending);
            }
            Ending::Forget => {
                // Heartbeats go on until the end of the world: only a forced release helps.
                let held = world.history.sections[section.0].held.clone();
                world.history.over(world.now, section);
                let at = world.now + self.dice.between(500_000, 4_000_000);
                let who = self.client;
                world.at(at, move |w| release_all(w, who, held));
                return self.rest(world);
            }
        };
        self.waits.insert(op);
        self.stage = Stage::Single(op);
        // Some operations end at once.
        self.act(world);
    }

    fn die(&mut self, world: &mut World, section: SectionIx, ending: Ending) {
        let resumes = [Ending::Resume, Ending::HandOn].contains(&ending);
        let resumes = resumes.then_some(section);
        self.stage = Stage::Dead { resumes };
        let who = self.client;
        let dies = world.now + self.dice.below(60_000);
        let comes_back = dies + self.dice.between(50_000, 3_000_000);
        world.at(dies, move |w| w.kill_client(who));
        world.at(comes_back, move |w| w.restart_client(who));
        self.rest_until = comes_back;
    }

    fn resume(&mut self, world: &mut World, resumes: Option<SectionIx>) {
        let client = &world.clients[self.client.0 as usize];
        let Some(section) = resumes else {
            return self.rest(world);
        };
        let known = &world.history.sections[section.0];
        // What was handed on is nobody's; else it is as was written down.
        let notes = client.notes(section).filter(|_| known.over.is_none());
        let held = notes.unwrap_or(&known.held).clone();
        let of = known.session;
        let op = world.call(self.client, Call::Resume { held, of });
        self.waits.insert(op);
        self.stage = Stage::Entering(op);
    }
}

/// A value of any of several lengths, below [`WHOLE_BELOW`] and above it.
pub fn padded(name: String, dice: &mut Dice) -> Bytes {
    let length = [0, 0, 40, 41, VALUE_MAX][dice.below(5) as usize];
    long(name, length)
}

/// A name of so many bytes at least.
fn long(name: String, length: usize) -> Bytes {
    Bytes::from(format!("{name:~<length$}"))
}

/// Values shorter than this are kept whole in the keyspaces of the simulator, bytes.
pub const WHOLE_BELOW: u32 = 32;

/// Somebody ends a forgotten section by force, and tries again until it is over.
fn release_all(world: &mut World, who: ClientId, held: Vec<fermata_protocol::request::Held>) {
    if !world.clients[who.0 as usize].alive {
        // Nobody renews it any more.
        return;
    }
    for one in held {
        let call = Call::Release {
            key: one.key.clone(),
            lock_ref: one.lock_ref,
        };
        let op = world.call(who, call);
        world.at(world.now + 15_000_000, move |w| {
            if !matches!(w.outcome(op), Heard::Done(_)) {
                release_all(w, who, vec![one]);
            }
        });
    }
}

/// Reads everything at the end: every key is entered and every register read, by one client that
/// waits for each.
#[derive(Clone, Debug)]
pub struct Audit {
    client: ClientId,
    sections: Vec<KeyId>,
    registers: Vec<KeyId>,
    open: Option<OpId>,
    left: Option<SectionIx>,
    lease: u64,
    /// The register that was read last is still to be written.
    writes: Option<KeyId>,
    /// Keys that were given up: see [`Audit::act`].
    pub given_up: usize,
}

impl Audit {
    /// An audit by a client.
    pub fn new(client: ClientId, ground: &Ground) -> Audit {
        Audit {
            client,
            sections: ground.sections.clone(),
            registers: ground.registers.clone(),
            open: None,
            left: None,
            lease: ground.lease,
            writes: None,
            given_up: 0,
        }
    }

    /// Goes on: true when all is read, and every register written once more. A key with more
    /// unfinished writes than its policy bears is tried once.
    pub fn act(&mut self, world: &mut World) -> bool {
        if let Some(op) = self.open {
            match world.outcome(op) {
                Heard::Open => return false,
                Heard::Failed(_) | Heard::Unknown(_) => self.failed(world),
                _ => self.succeeded(world, op),
            }
            self.open = None;
            if let Some(section) = self.left.take() {
                let name = world.clients[self.client.0 as usize].name_of(section);
                if let Some(section) = name {
                    let call = Call::Leave {
                        section,
                        wait: true,
                    };
                    self.open = Some(world.call(self.client, call));
                    return false;
                }
            }
        }
        // Keyspaces are deleted beside the audit, too.
        let catalogue = &world.history.catalogue;
        self.sections.retain(|key| !catalogue.is_deleted(key));
        self.registers.retain(|key| !catalogue.is_deleted(key));
        self.writes.take_if(|key| catalogue.is_deleted(key));
        let call = if let Some(key) = self.sections.last() {
            let (keys, mode) = (vec![key.clone()], Mode::Exclusive);
            Call::Enter {
                keys,
                mode,
                wait: 60_000_000,
                lease: Some(self.lease),
            }
        } else if let Some(key) = self.writes.clone() {
            // Unique: keys differ.
            let value = format!("audit.{}.{}", key.keyspace.0, crate::show::key(&key));
            let value = Some(long(value, 60));
            Call::Write { key, value }
        } else if let Some(key) = self.registers.last() {
            Call::Read { key: key.clone() }
        } else {
            return true;
        };
        self.open = Some(world.call(self.client, call));
        false
    }

    fn succeeded(&mut self, world: &World, op: OpId) {
        match &world.history.ops[op.0].what {
            crate::history::What::Enter { .. } => {
                self.sections.pop();
                self.left = world.history.ops[op.0].section;
            }
            crate::history::What::Read(_) => self.writes = self.registers.pop(),
            crate::history::What::Write(..) => self.writes = None,
            _ => {}
        }
    }

    fn failed(&mut self, world: &World) {
        let excused = |key: &KeyId| world.monitor.is_excused(key, &world.history.catalogue);
        if let Some(key) = self.sections.last() {
            if excused(key) {
                self.sections.pop();
                self.given_up += 1;
            }
        } else if self.writes.is_none() && self.registers.last().is_some_and(excused) {
            // What cannot be read can still be written, and then be read.
            self.writes = self.registers.pop();
            self.given_up += 1;
        }
    }

    /// What is still to be read, for people.
    pub fn missing(&self) -> String {
        let keys = self
            .sections
            .iter()
            .chain(&self.registers)
            .map(crate::show::key);
        keys.collect::<Vec<_>>().join(" ")
    }
}
