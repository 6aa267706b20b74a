//! Registers are atomic: tags follow real time, and a read returns the value of its tag.

use crate::world::{World, register_key};
use bytes::Bytes;
use fermata_protocol::base::{Planted, Tag};
use fermata_protocol::register::{Op, OpId, Outcome};
use std::collections::BTreeMap;

struct Done {
    began: usize,
    ended: usize,
    tag: Tag,
    write: bool,
}

#[derive(Clone)]
struct Under {
    began: usize,
    written: Option<u128>,
}

/// One schedule. `damage`: now and then one replica's records are damaged, while no other's are.
fn run(n: usize, seed: u64, planted: Planted, damage: bool) -> Result<(), String> {
    let mut world = World::new(n, 3, seed, planted);
    let mut open: BTreeMap<(usize, OpId), Under> = BTreeMap::new();
    let (mut done, mut writers) = (Vec::<Done>::new(), 0u128);
    for step in 0..120 {
        let caller = world.rng.below(3) as usize;
        if !open.keys().any(|(c, _)| *c == caller) && world.chance(60) {
            let write = world.chance(50);
            let op = if write {
                writers += 1;
                Op::Write {
                    key: register_key(),
                    writer: writers,
                    value: Some(value_of(writers)),
                }
            } else {
                Op::Read {
                    key: register_key(),
                }
            };
            let id = world.start(caller, op);
            let written = write.then_some(writers);
            open.insert(
                (caller, id),
                Under {
                    began: step,
                    written,
                },
            );
        }
        if damage && world.chance(3) && world.nodes.iter().all(|n| !n.disk.is_damaged()) {
            let i = world.rng.below(n as u64) as usize;
            let all = world.chance(50);
            world.damage(i, |key| key[0] == b'r' && (all || key[13] == 1));
        }
        if damage && world.chance(6) {
            world.advance(5_000_000);
        }
        world.disturb();
        for (caller, id, outcome) in std::mem::take(&mut world.outcomes) {
            let under = open
                .remove(&(caller, id))
                .expect("one outcome for each operation");
            let tag = match outcome {
                Outcome::Value { value, tag } => {
                    let expected = (tag != Tag::ZERO).then(|| value_of(tag.writer));
                    if value != expected {
                        return Err("a read returned another tag's value".into());
                    }
                    tag
                }
                Outcome::Stored { tag } => tag,
                Outcome::Unavailable { .. } => continue,
                other => panic!("not an outcome of a register: {other:?}"),
            };
            if under.written.is_some_and(|w| w != tag.writer) {
                return Err("a write completed another's tag".into());
            }
            done.push(Done {
                began: under.began,
                ended: step,
                tag,
                write: under.written.is_some(),
            });
        }
    }
    check(&done)
}

fn check(done: &[Done]) -> Result<(), String> {
    for a in done {
        for b in done.iter().filter(|b| a.ended < b.began) {
            if b.tag < a.tag || (b.write && b.tag == a.tag) {
                return Err(format!("{:?} after {:?} had completed", b.tag, a.tag));
            }
        }
    }
    Ok(())
}

fn value_of(writer: u128) -> Bytes {
    Bytes::from(format!("value {writer}"))
}

#[test]
fn registers_of_three_and_five_replicas_are_atomic() {
    for seed in 0..1_500 {
        run(3, seed, Planted::NONE, false).unwrap_or_else(|e| panic!("n 3, seed {seed}: {e}"));
    }
    for seed in 0..500 {
        run(5, seed, Planted::NONE, false).unwrap_or_else(|e| panic!("n 5, seed {seed}: {e}"));
    }
}

#[test]
fn registers_stay_atomic_while_damaged_records_are_learnt_again() {
    for seed in 0..1_000 {
        run(3, seed, Planted::NONE, true).unwrap_or_else(|e| panic!("n 3, seed {seed}: {e}"));
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::run;
    use fermata_protocol::base::{Bug, Planted};

    #[test]
    fn a_quorum_one_too_small_is_caught() {
        for n in [3, 5] {
            let bug = Planted::only(Bug::RegisterQuorumTooSmall);
            assert!(
                (0..2_000).any(|seed| run(n, seed, bug, false).is_err()),
                "n {n}"
            );
        }
    }

    #[test]
    fn a_read_without_write_back_is_caught() {
        let bug = Planted::only(Bug::ReadWithoutWriteBack);
        assert!((0..5_000).any(|seed| run(3, seed, bug, false).is_err()));
    }
}
