//! Critical sections on one key over an atomic lock history: no acknowledged put is lost, a holder
//! reads the latest state, and no put of a preempted holder is acknowledged once the next one is
//! in.
//!
//! The test plays the lock room by the rules of F1, F4, F5 and F18: one synch attempt
//! after the other, each with a higher tag, and whichever reaches its quorum first grants.

use crate::world::{Command, World, section_key};
use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Epoch, LockRef, Planted, SessionId, StoragePolicy, Tag, Terms,
};
use fermata_protocol::register::{Holder, Op, OpEnd, OpId};
use std::collections::BTreeMap;

const CLIENTS: usize = 3;

#[derive(Clone, Debug, Default)]
enum Client {
    #[default]
    Idle,
    Waiting(u64),
    In(Section),
}

#[derive(Clone, Debug)]
struct Section {
    lock_ref: u64,
    puts: u64,
    /// Numbers of puts that have no answer yet.
    open: Vec<u64>,
    last_acked: bool,
    /// What a get must return; unknown while puts are open or the last one failed.
    view: Option<Option<Bytes>>,
}

#[derive(Clone, Debug)]
enum Under {
    Entry(u64),
    Synch(u64),
    Get {
        lock_ref: u64,
        expected: Option<Bytes>,
    },
    Put(u64, u64),
    Eventual,
}

struct Play {
    world: World,
    clients: Vec<Client>,
    open: BTreeMap<(usize, OpId), Under>,
    queue: Vec<u64>,
    flag: bool,
    attempts: u32,
    values: u64,
    /// Values of critical puts, with their tags.
    origin: BTreeMap<Bytes, Tag>,
    /// The highest acknowledged put.
    acked: Tag,
    /// The highest ref that has entered, and the origin of the value it entered with.
    entered: u64,
    adopted: Tag,
}

impl Play {
    fn new(storage: StoragePolicy, n: usize, seed: u64, planted: Planted) -> Play {
        let mut world = World::new(n, CLIENTS, seed, planted);
        world.storage = storage;
        Play {
            world,
            clients: vec![Client::Idle; CLIENTS],
            open: BTreeMap::new(),
            queue: Vec::new(),
            flag: false,
            attempts: 0,
            values: 0,
            origin: BTreeMap::new(),
            acked: Tag::ZERO,
            entered: 0,
            adopted: Tag::ZERO,
        }
    }

    fn command(&mut self, command: Command) -> u64 {
        self.world.history.push(command);
        self.world.history.len() as u64
    }

    fn start(&mut self, client: usize, op: Op, under: Under) {
        let id = self.world.start(client, op);
        self.open.insert((client, id), under);
    }

    /// Where a value comes from, as a tag: an eventual one lies above all sections up to its
    /// position.
    fn origin(&self, value: Option<&Bytes>) -> Tag {
        let Some(value) = value else { return Tag::ZERO };
        if let Some(tag) = self.origin.get(value) {
            return *tag;
        }
        let put = self.world.eventual.iter().find(|(v, _)| v == value);
        let (_, tag) = put.expect("every value was put by somebody");
        Tag {
            lock_ref: LockRef(tag.applied),
            sequence: u64::MAX,
            writer: u128::from(tag.clock),
        }
    }

    fn fresh_value(&mut self) -> Bytes {
        self.values += 1;
        Bytes::from(format!("value {}", self.values))
    }

    fn act(&mut self, i: usize) -> Result<(), String> {
        match self.clients[i].clone() {
            Client::Idle => {
                if self.world.chance(50) {
                    let lock_ref = self.command(Command::Enqueue);
                    self.queue.push(lock_ref);
                    self.clients[i] = Client::Waiting(lock_ref);
                } else if self.world.chance(15) {
                    let value = Some(self.fresh_value());
                    let key = section_key();
                    self.start(i, Op::EventualPut { key, value }, Under::Eventual);
                }
            }
            Client::Waiting(lock_ref) => self.enter(i, lock_ref),
            Client::In(section) => self.inside(i, section),
        }
        Ok(())
    }

    fn enter(&mut self, i: usize, lock_ref: u64) {
        if !self.queue.contains(&lock_ref) {
            self.clients[i] = Client::Idle;
            return;
        }
        if self.queue[0] != lock_ref {
            return;
        }
        let mine = |u: &Under| match u {
            Under::Entry(r) | Under::Synch(r) => *r == lock_ref,
            _ => false,
        };
        let running = self.open.values().filter(|u| mine(u)).count();
        if self.flag {
            // A second attempt, as of a new primary, while the first is still under way.
            if running == 0 || (running == 1 && self.world.chance(30)) {
                // Only the first may adopt: it may have granted already (G5).
                self.synch(i, lock_ref, running == 0);
            }
        } else if running == 0 {
            let holder = Some(holder(lock_ref));
            let key = section_key();
            self.start(i, Op::Entry { key, holder }, Under::Entry(lock_ref));
        }
    }

    fn synch(&mut self, i: usize, lock_ref: u64, adopts: bool) {
        self.attempts += 1;
        let tag = Tag::synch(
            LockRef(lock_ref),
            0,
            Epoch::FIRST,
            Ballot::default(),
            self.attempts,
        );
        let key = section_key();
        self.start(i, Op::Synch { key, tag, adopts }, Under::Synch(lock_ref));
    }

    fn inside(&mut self, i: usize, mut section: Section) {
        let dice = self.world.rng.below(100);
        let key = section_key();
        if dice < 40 && section.open.len() < 2 {
            section.puts += 1;
            let value = self.fresh_value();
            let session = SessionId(i as u128 + 1);
            let tag = Tag::critical(LockRef(section.lock_ref), 0, section.puts, session);
            self.origin.insert(value.clone(), tag);
            section.open.push(section.puts);
            section.last_acked = false;
            section.view = None;
            let under = Under::Put(section.lock_ref, section.puts);
            let op = Op::Put {
                key,
                tag,
                value: Some(value),
                counter_above: true,
            };
            self.start(i, op, under);
        } else if dice < 70 {
            if let Some(expected) = section.view.clone() {
                let lock_ref = section.lock_ref;
                let op = Op::Get {
                    key,
                    holder: holder(lock_ref),
                };
                self.start(i, op, Under::Get { lock_ref, expected });
            }
        } else if dice < 82 {
            if self.queue.first() == Some(&section.lock_ref) {
                self.command(Command::Remove(section.lock_ref));
                self.queue.remove(0);
                self.flag |= !section.last_acked;
            }
            self.clients[i] = Client::Idle;
            return;
        }
        self.clients[i] = Client::In(section);
    }

    fn grant(&mut self, i: usize, lock_ref: u64, value: Option<Bytes>) -> Result<(), String> {
        let waits = matches!(self.clients[i], Client::Waiting(r) if r == lock_ref);
        if !waits || self.queue.first() != Some(&lock_ref) {
            return Ok(());
        }
        self.entered = self.entered.max(lock_ref);
        self.adopted = self.origin(value.as_ref());
        if self.adopted < self.acked {
            return Err(format!("{lock_ref} entered without an acknowledged put"));
        }
        self.clients[i] = Client::In(Section {
            lock_ref,
            puts: 0,
            open: Vec::new(),
            last_acked: true,
            view: Some(value),
        });
        Ok(())
    }

    fn finished(&mut self, i: usize, under: Under, outcome: OpEnd) -> Result<(), String> {
        match (under, outcome) {
            (
                Under::Entry(r),
                OpEnd::Entry {
                    value, eventual, ..
                },
            ) => {
                let head = self.queue.first() == Some(&r);
                if eventual.is_some() && head && !self.flag {
                    self.synch(i, r, true);
                } else if !self.flag {
                    self.grant(i, r, value)?;
                }
            }
            (Under::Synch(r), OpEnd::Synched { value, .. }) => {
                self.grant(i, r, value)?;
                if self.queue.first() == Some(&r) {
                    self.flag = false;
                }
            }
            (Under::Put(r, number), OpEnd::Stored { tag }) => self.put_acked(i, r, number, tag)?,
            (Under::Get { lock_ref, expected }, OpEnd::Value { value, .. }) => {
                // A holder that was preempted and has not been told still sees the last state of
                // its own section, and no other's.
                let in_section = matches!(&self.clients[i],
                    Client::In(s) if s.lock_ref == lock_ref && s.view.as_ref() == Some(&expected));
                if in_section && self.entered == lock_ref && value != expected {
                    return Err(format!("{lock_ref} read {value:?}, not {expected:?}"));
                }
            }
            (Under::Put(r, number), OpEnd::Unavailable { .. } | OpEnd::Busy { .. }) => {
                self.put_failed(i, r, number);
            }
            (Under::Put(r, _) | Under::Get { lock_ref: r, .. }, OpEnd::Past { .. }) => {
                if self.queue.first() == Some(&r) {
                    return Err(format!("{r} holds the key and was told that it is past"));
                }
                self.end(i, r);
            }
            (Under::Put(r, number), OpEnd::NotHolder { .. }) => self.put_failed(i, r, number),
            (Under::Put(..), other @ OpEnd::StaleSequence) => panic!("{other:?}"),
            (_, OpEnd::Undecodable) if self.lasting() => {
                return Err("answers of a quorum gave no value".into());
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the policy has no bound on writes under way.
    fn lasting(&self) -> bool {
        matches!(
            self.world.storage,
            StoragePolicy::Replicated | StoragePolicy::Coded(_)
        )
    }

    /// Everybody dies but the replicas, f of which fall silent: a last section's synch must end,
    /// with nothing lost.
    fn last_section(&mut self) -> Result<(), String> {
        let silent = self.world.some_silent();
        while let Some(past) = self.queue.pop() {
            self.command(Command::Remove(past));
        }
        let lock_ref = self.command(Command::Enqueue);
        let key = section_key();
        let epoch = Epoch::FIRST;
        let attempt = self.attempts + 1;
        let tag = Tag::synch(LockRef(lock_ref), 0, epoch, Ballot::default(), attempt);
        let op = Op::Synch {
            key,
            tag,
            adopts: true,
        };
        match self.world.run_without(0, op, &silent) {
            OpEnd::Synched { value, .. } if self.origin(value.as_ref()) >= self.acked => Ok(()),
            other => Err(format!("with {silent:?} silent the last synch: {other:?}")),
        }
    }

    fn put_acked(&mut self, i: usize, r: u64, number: u64, tag: Tag) -> Result<(), String> {
        let Client::In(section) = &mut self.clients[i] else {
            return Ok(());
        };
        if section.lock_ref != r {
            return Ok(());
        }
        if self.entered > r && tag > self.adopted {
            return Err(format!(
                "a put of {r} was acknowledged after {} entered",
                self.entered
            ));
        }
        self.acked = self.acked.max(tag);
        section.open.retain(|n| *n != number);
        if number == section.puts {
            section.last_acked = true;
            let value = self
                .origin
                .iter()
                .find(|(_, t)| **t == tag)
                .map(|(v, _)| v.clone());
            section.view = Some(value);
        }
        Ok(())
    }

    fn put_failed(&mut self, i: usize, r: u64, number: u64) {
        if let Client::In(section) = &mut self.clients[i]
            && section.lock_ref == r
        {
            section.open.retain(|n| *n != number);
        }
    }

    fn end(&mut self, i: usize, r: u64) {
        if matches!(&self.clients[i], Client::In(s) if s.lock_ref == r) {
            self.clients[i] = Client::Idle;
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let i = self.world.rng.below(CLIENTS as u64) as usize;
        if self.world.chance(60) {
            self.act(i)?;
        }
        if self.world.chance(5) && !self.queue.is_empty() {
            let r = self.queue.remove(0);
            self.command(Command::Remove(r));
            self.flag = true;
        }
        if self.world.chance(5) {
            self.command(Command::Nothing);
        }
        let n = self.world.nodes.len() as u64;
        let node = self.world.rng.below(n) as usize;
        let known = self.world.nodes[node].applied as u64;
        let ahead = self.world.history.len() as u64 - known;
        self.world.nodes[node].applied += self.world.rng.below(ahead + 1) as usize;
        self.world.disturb();
        for (i, id, outcome) in std::mem::take(&mut self.world.outcomes) {
            let under = self
                .open
                .remove(&(i, id))
                .expect("one outcome for each operation");
            self.finished(i, under, outcome)?;
        }
        Ok(())
    }
}

fn holder(lock_ref: u64) -> Holder {
    Holder {
        lock_ref: LockRef(lock_ref),
        generation: 0,
    }
}

fn run(n: usize, seed: u64, planted: Planted) -> Result<u64, String> {
    run_on(StoragePolicy::Replicated, n, seed, planted, false)
}

/// One schedule. `damage`: now and then one replica's records are damaged, while no other's are.
fn run_on(
    storage: StoragePolicy,
    n: usize,
    seed: u64,
    planted: Planted,
    damage: bool,
) -> Result<u64, String> {
    let mut play = Play::new(storage, n, seed, planted);
    for _ in 0..200 {
        let world = &mut play.world;
        if damage && world.chance(4) && world.nodes.iter().all(|n| !n.disk.is_damaged()) {
            let i = world.rng.below(n as u64) as usize;
            let all = world.chance(50);
            world.damage(i, |key| key[0] == b'r' && (all || key[13] >= 1));
        }
        if damage && world.chance(8) {
            world.advance(5_000_000);
        }
        play.step()?;
    }
    if play.lasting() && !damage {
        play.last_section()?;
    }
    Ok(play.entered)
}

#[test]
fn sections_of_three_and_five_replicas_lose_nothing() {
    let mut entered = 0;
    for seed in 0..2_000 {
        let sections = run(3, seed, Planted::NONE);
        entered += u64::from(sections.unwrap_or_else(|e| panic!("n 3, seed {seed}: {e}")) > 1);
    }
    for seed in 0..500 {
        run(5, seed, Planted::NONE).unwrap_or_else(|e| panic!("n 5, seed {seed}: {e}"));
    }
    assert!(
        entered > 1_000,
        "the schedules seldom come to a second section: {entered}"
    );
}

#[test]
fn sections_lose_nothing_while_damaged_records_are_learnt_again() {
    for seed in 0..2_000 {
        run_on(StoragePolicy::Replicated, 3, seed, Planted::NONE, true)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn coded_sections_lose_nothing() {
    let terms = |faults| Terms {
        faults,
        delta: 3,
        whole_below: 0,
    };
    for (n, f) in [(3, 1), (5, 1), (5, 2)] {
        let policies = [
            (StoragePolicy::Coded(terms(f)), 400),
            (StoragePolicy::Ares(terms(f)), 150),
        ];
        for (policy, all) in policies {
            let mut entered = 0;
            for seed in 0..all {
                let sections = run_on(policy, n, seed, Planted::NONE, false)
                    .unwrap_or_else(|e| panic!("{policy:?}, n {n}, seed {seed}: {e}"));
                entered += u64::from(sections > 1);
            }
            assert!(
                3 * entered > all,
                "{policy:?}, n {n}: seldom a second section: {entered}"
            );
        }
    }
    for n in [3, 5] {
        for seed in 0..200 {
            run_on(StoragePolicy::Coded(terms(1)), n, seed, Planted::NONE, true)
                .unwrap_or_else(|e| panic!("damage, n {n}, seed {seed}: {e}"));
        }
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::run;
    use fermata_protocol::base::{Bug, Planted};

    fn caught(bug: Bug, seeds: u64) {
        let found = (0..seeds).find(|seed| run(3, *seed, Planted::only(bug)).is_err());
        assert!(found.is_some(), "{bug:?} survived {seeds} schedules");
        println!("{bug:?} caught by seed {found:?}");
    }

    #[test]
    fn a_synch_without_a_fence_is_caught() {
        caught(Bug::SynchWithoutFence, 20_000);
    }

    #[test]
    fn a_fence_on_the_ref_alone_is_caught() {
        caught(Bug::FenceOnRefOnly, 20_000);
    }

    #[test]
    fn writes_of_a_past_holder_are_caught() {
        caught(Bug::PastWriteAccepted, 20_000);
    }

    #[test]
    fn an_eventual_put_in_the_critical_cell_is_caught() {
        caught(Bug::EventualPutInCriticalCell, 20_000);
    }

    #[test]
    fn a_quorum_one_too_small_is_caught() {
        caught(Bug::RegisterQuorumTooSmall, 20_000);
    }
}
