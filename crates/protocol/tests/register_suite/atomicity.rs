//! Registers are atomic: tags follow real time, a read returns the value of its tag, and what a
//! sweep carries on under its own tag is never older than what had completed.

use crate::world::{BOUND, Clock, World, register_key};
use bytes::Bytes;
use fermata_protocol::base::{Planted, StoragePolicy, Tag, Terms};
use fermata_protocol::register::{Op, OpEnd, OpId};
use std::collections::BTreeMap;

/// Which interval clocks a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    None,
    /// Everybody, within the bound.
    All,
    /// Some callers and replicas, within the bound.
    Some,
    /// Everybody, some beyond the bound.
    Wrong,
}

/// A kind of schedule.
#[derive(Clone, Copy, Debug)]
struct Case {
    storage: StoragePolicy,
    n: usize,
    planted: Planted,
    /// Now and then one replica's records are damaged, while no other's are.
    damage: bool,
    clocks: Clocks,
}

/// An operation that has completed.
struct Done {
    began: usize,
    ended: usize,
    tag: Tag,
    write: bool,
    /// The tag of the write whose value it is; unknown of a sweep.
    source: Option<Tag>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write(u128),
    Read,
    Sweep,
}

/// Writers of sweeps; those of writes are smaller.
const SWEEPS: u128 = 1 << 90;

struct Run {
    case: Case,
    world: World,
    open: BTreeMap<(usize, OpId), (usize, Kind)>,
    done: Vec<Done>,
    /// The source of every tag that an operation has ended with.
    sources: BTreeMap<Tag, Tag>,
    names: u128,
}

impl Run {
    fn new(case: Case, seed: u64) -> Run {
        let mut world = World::new(case.n, 3, seed, case.planted);
        world.storage = case.storage;
        for i in 0..case.n {
            world.node_clocks[i] = clock(&mut world, case.clocks);
        }
        for i in 0..3 {
            world.caller_clocks[i] = clock(&mut world, case.clocks);
        }
        Run {
            case,
            world,
            open: BTreeMap::new(),
            done: Vec::new(),
            sources: BTreeMap::new(),
            names: 0,
        }
    }

    fn step(&mut self, step: usize) -> Result<(), String> {
        let world = &mut self.world;
        let caller = world.rng.below(3) as usize;
        if self.case.storage != StoragePolicy::Replicated && world.chance(4) {
            world.replace_caller(caller);
            self.open.retain(|(of, _), _| *of != caller);
        }
        if !self.open.keys().any(|(c, _)| *c == caller) && world.chance(60) {
            self.start(caller, step);
        }
        let world = &mut self.world;
        let n = self.case.n as u64;
        if self.case.damage {
            if world.chance(3) && world.nodes.iter().all(|n| !n.disk.is_damaged()) {
                let i = world.rng.below(n) as usize;
                let all = world.chance(50);
                world.damage(i, |key| key[0] == b'r' && (all || key[13] >= 1));
            }
            if world.chance(6) {
                world.advance(5_000_000);
            }
        }
        if self.case.clocks != Clocks::None {
            let by = world.rng.below(BOUND / 2);
            world.advance(by);
        }
        world.disturb();
        self.collect(step)
    }

    fn start(&mut self, caller: usize, step: usize) {
        let key = register_key();
        let (op, kind) = match self.world.rng.below(100) {
            0..8 => {
                self.names += 1;
                let writer = SWEEPS + self.names;
                (Op::Sweep { key, writer }, Kind::Sweep)
            }
            8..54 => {
                self.names += 1;
                let writer = self.names;
                let value = Some(value_of(writer));
                (Op::Write { key, writer, value }, Kind::Write(writer))
            }
            _ => (Op::Read { key, moves: false }, Kind::Read),
        };
        let id = self.world.start(caller, op);
        self.open.insert((caller, id), (step, kind));
    }

    fn collect(&mut self, step: usize) -> Result<(), String> {
        for (caller, id, outcome) in std::mem::take(&mut self.world.outcomes) {
            let under = self.open.remove(&(caller, id));
            let (began, kind) = under.expect("one outcome for each operation");
            if let Some((tag, source)) = self.completed(kind, outcome)? {
                self.done.push(Done {
                    began,
                    ended: step,
                    tag,
                    write: matches!(kind, Kind::Write(_)),
                    source,
                });
            }
        }
        Ok(())
    }

    /// The tag that an operation has ended with, and its source.
    fn completed(
        &mut self,
        kind: Kind,
        outcome: OpEnd,
    ) -> Result<Option<(Tag, Option<Tag>)>, String> {
        match (kind, outcome) {
            (Kind::Read, OpEnd::Value { value, tag }) => {
                let source = self.source(value.as_ref());
                let known = *self.sources.entry(tag).or_insert(source);
                if known != source || (self.is_of_a_write(tag) && source != tag) {
                    return Err("a read returned another tag's value".into());
                }
                Ok(Some((tag, Some(source))))
            }
            (Kind::Write(writer), OpEnd::Stored { tag }) => {
                if tag.writer != writer {
                    return Err("a write completed another's tag".into());
                }
                Ok(Some((tag, Some(tag))))
            }
            (Kind::Sweep, OpEnd::Stored { tag }) => Ok(Some((tag, None))),
            (Kind::Read, OpEnd::Undecodable) if self.case.storage.finalizes() => {
                Err("a read is stuck".into())
            }
            (
                _,
                OpEnd::Unavailable { .. }
                | OpEnd::Undecodable
                | OpEnd::Busy { .. }
                | OpEnd::Past { .. },
            ) => Ok(None),
            (_, other) => panic!("not an outcome of a register: {other:?}"),
        }
    }

    fn is_of_a_write(&self, tag: Tag) -> bool {
        tag.writer != 0 && tag.writer <= self.names
    }

    /// The tag of the write of a value: each makes one.
    fn source(&self, value: Option<&Bytes>) -> Tag {
        let Some(value) = value else { return Tag::ZERO };
        let mut writers = 1..=self.names;
        let writer = writers.find(|w| value_of(*w) == *value);
        let tags = &self.world.tags[&writer.expect("every value was written by somebody")];
        assert_eq!(tags.len(), 1, "a write has one tag");
        *tags.first().expect("one")
    }

    /// All callers die, f replicas fall silent, and a read and a write must still complete.
    fn end(&mut self, step: usize) -> Result<(), String> {
        let silent = self.world.some_silent();
        self.open.clear();
        for caller in 0..3 {
            self.world.replace_caller(caller);
        }
        for began in [step, step + 1] {
            let key = register_key();
            let outcome = self
                .world
                .run_without(0, Op::Read { key, moves: false }, &silent);
            match self.completed(Kind::Read, outcome.clone())? {
                Some((tag, source)) => self.done.push(Done {
                    began,
                    ended: began,
                    tag,
                    write: false,
                    source,
                }),
                None => {
                    return Err(format!(
                        "with {silent:?} silent a read ended in {outcome:?}"
                    ));
                }
            }
        }
        let sweep = Op::Sweep {
            key: register_key(),
            writer: SWEEPS,
        };
        match self.world.run_without(0, sweep, &silent) {
            OpEnd::Stored { .. } => Ok(()),
            other => Err(format!("with {silent:?} silent a sweep ended in {other:?}")),
        }
    }

    fn check(&self) -> Result<(), String> {
        for a in &self.done {
            for b in self.done.iter().filter(|b| a.ended < b.began) {
                if b.tag < a.tag || (b.write && b.tag == a.tag) {
                    return Err(format!("{:?} after {:?} had completed", b.tag, a.tag));
                }
                if let (Some(a), Some(later)) = (a.source, b.source)
                    && (later < a || (b.write && later == a))
                {
                    return Err(format!("the value of {later:?} after that of {a:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A clock of such a world; none where somebody has none.
pub(crate) fn clock(world: &mut World, clocks: Clocks) -> Option<Clock> {
    let bound = BOUND as i64;
    let some = match clocks {
        Clocks::None => false,
        Clocks::Some => world.chance(50),
        Clocks::All | Clocks::Wrong => true,
    };
    let offset = match world.rng.below(4) {
        0 => bound,
        1 => -bound,
        _ => world.rng.below(2 * BOUND) as i64 - bound,
    };
    let drift = world.rng.below(2_000) as i64 - 1_000;
    let wrong = clocks == Clocks::Wrong && world.chance(40);
    some.then_some(Clock {
        offset: if wrong { 6 * offset } else { offset },
        drift,
        sound: !wrong,
    })
}

/// One schedule.
fn run(case: Case, seed: u64) -> Result<(), String> {
    let mut run = Run::new(case, seed);
    const STEPS: usize = 120;
    for step in 0..STEPS {
        run.step(step)?;
    }
    // Policies with a bound on concurrent writes may lose a value to dead writers.
    let lasting = matches!(
        case.storage,
        StoragePolicy::Replicated | StoragePolicy::Coded(_)
    );
    if lasting && !case.damage {
        run.end(STEPS)?;
    }
    run.check()
}

fn value_of(writer: u128) -> Bytes {
    Bytes::from(format!("value {writer}"))
}

/// The terms under which a value of two bytes is coded.
pub(crate) fn terms(faults: u8, delta: u8) -> Terms {
    Terms {
        faults,
        delta,
        whole_below: 0,
    }
}

fn case(storage: StoragePolicy, n: usize) -> Case {
    Case {
        storage,
        n,
        planted: Planted::NONE,
        damage: false,
        clocks: Clocks::None,
    }
}

fn all_pass(case: Case, seeds: u64) {
    for seed in 0..seeds {
        run(case, seed).unwrap_or_else(|e| panic!("{case:?}, seed {seed}: {e}"));
    }
}

/// n and f.
const SIZES: [(usize, u8); 3] = [(3, 1), (5, 1), (5, 2)];

#[test]
fn whole_copies_are_atomic_with_sweeps() {
    all_pass(case(StoragePolicy::Replicated, 3), 1_500);
    all_pass(case(StoragePolicy::Replicated, 5), 500);
}

#[test]
fn coded_registers_are_atomic_with_sweeps_and_dying_writers() {
    for (n, f) in SIZES {
        all_pass(case(StoragePolicy::Coded(terms(f, 3)), n), 1_200);
        all_pass(case(StoragePolicy::Coded(terms(f, 1)), n), 400);
    }
}

#[test]
fn the_published_policies_are_atomic_with_sweeps_and_dying_writers() {
    for (n, f) in SIZES {
        all_pass(case(StoragePolicy::TreasOpt(terms(f, 1)), n), 400);
        all_pass(case(StoragePolicy::Oreas(terms(f, 1)), n), 400);
        all_pass(case(StoragePolicy::Ares(terms(f, 1)), n), 400);
    }
}

#[test]
fn writes_of_one_round_and_readers_that_wait_are_atomic() {
    for (n, f) in SIZES {
        for clocks in [Clocks::All, Clocks::Some] {
            for storage in [
                StoragePolicy::Coded(terms(f, 3)),
                StoragePolicy::Oreas(terms(f, 2)),
            ] {
                let case = Case {
                    clocks,
                    ..case(storage, n)
                };
                all_pass(case, 300);
            }
        }
    }
}

/// Beyond its bound a clock makes writes vanish: what the bound promises is needed.
#[test]
fn clocks_beyond_their_bound_break_writes_of_one_round() {
    let case = Case {
        clocks: Clocks::Wrong,
        ..case(StoragePolicy::Coded(terms(1, 3)), 3)
    };
    assert!((0..2_000).any(|seed| run(case, seed).is_err()));
}

#[test]
fn registers_stay_atomic_while_damaged_records_are_learnt_again() {
    for (storage, n, seeds) in [
        (StoragePolicy::Replicated, 3, 800),
        (StoragePolicy::Coded(terms(1, 3)), 3, 700),
        (StoragePolicy::Coded(terms(1, 3)), 5, 700),
    ] {
        let case = Case {
            damage: true,
            ..case(storage, n)
        };
        all_pass(case, seeds);
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::{Case, Clocks, case, run, terms};
    use fermata_protocol::base::{Bug, Planted, StoragePolicy};

    fn caught(bug: Bug, case: Case, seeds: u64) {
        let case = Case {
            planted: Planted::only(bug),
            ..case
        };
        let found = (0..seeds).find_map(|seed| Some((seed, run(case, seed).err()?)));
        assert!(found.is_some(), "{bug:?} survived {seeds} schedules");
        println!("{bug:?} caught by {found:?}");
    }

    fn coded(n: usize) -> Case {
        case(StoragePolicy::Coded(terms(1, 3)), n)
    }

    #[test]
    fn a_quorum_one_too_small_is_caught() {
        for n in [3, 5] {
            let case = case(StoragePolicy::Replicated, n);
            caught(Bug::RegisterQuorumTooSmall, case, 2_000);
        }
    }

    #[test]
    fn a_read_without_write_back_is_caught() {
        let replicated = case(StoragePolicy::Replicated, 3);
        caught(Bug::ReadWithoutWriteBack, replicated, 5_000);
        caught(Bug::ReadWithoutWriteBack, coded(5), 5_000);
    }

    #[test]
    fn a_majority_of_coded_parts_is_caught() {
        caught(Bug::CodedQuorumMajority, coded(5), 2_000);
    }

    #[test]
    fn parts_of_two_tags_decoded_together_are_caught() {
        caught(Bug::PartsOfTwoTags, coded(5), 2_000);
    }

    #[test]
    fn a_tag_told_final_before_it_is_stored_is_caught() {
        caught(Bug::FinalBeforeStored, coded(5), 5_000);
    }

    #[test]
    fn a_drop_that_is_not_noted_is_caught() {
        caught(Bug::DropNotNoted, coded(5), 20_000);
    }

    #[test]
    fn a_corrupt_part_taken_for_missing_is_caught() {
        let case = Case {
            damage: true,
            ..coded(5)
        };
        caught(Bug::CorruptCountsAsMissing, case, 20_000);
    }

    #[test]
    fn a_sweep_without_a_fence_is_caught() {
        caught(Bug::SweepWithoutFence, coded(5), 20_000);
    }

    #[test]
    fn a_reader_that_does_not_wait_is_caught() {
        let case = Case {
            clocks: Clocks::All,
            ..case(StoragePolicy::Oreas(terms(1, 2)), 3)
        };
        caught(Bug::ReaderDoesNotWait, case, 20_000);
    }
}
