//! Eventual puts act at most once (G16): at the caller, at the replica, and under an adversary.

use crate::world::{Command, Letter, STORE, World, section_key};
use bytes::Bytes;
use fermata_protocol::base::{EventualTag, NodeName, Planted, Tag};
use fermata_protocol::register::{
    Answer, Ask, Life, Message, Op, OpEnd, OpId, PutName, StoreAsk, policy,
};
use std::collections::{BTreeMap, BTreeSet};

fn world(n: usize) -> World {
    World::new(n, 2, 1, Planted::NONE)
}

fn put_op(text: &'static str) -> Op {
    Op::EventualPut {
        key: section_key(),
        value: Some(Bytes::from_static(text.as_bytes())),
    }
}

fn put(since: u64, number: u64, text: &'static str) -> Ask {
    let value = Bytes::from_static(text.as_bytes());
    Ask::EventualPut {
        name: PutName {
            life: Life { since, draw: 1 },
            number,
        },
        content: policy::whole_copy(&section_key(), Tag::ZERO, &value),
    }
}

fn eventual(w: &mut World, i: usize) -> Option<EventualTag> {
    w.inspect(i, &section_key()).expect("sound").eventual
}

fn puts_in(w: &World) -> Vec<NodeName> {
    let put = |l: &&Letter| {
        matches!(
            l.message,
            Message::Ask {
                ask: Ask::EventualPut { .. },
                ..
            }
        )
    };
    w.bag.iter().filter(put).map(|l| l.to).collect()
}

const UNKNOWN: Option<OpEnd> = Some(OpEnd::Unavailable {
    may_have_taken_effect: true,
});

#[test]
fn a_silent_member_is_not_asked_again_and_no_other_is() {
    let mut w = world(3);
    let id = w.start(0, put_op("x"));
    assert_eq!(puts_in(&w), [NodeName(0)]);
    for _ in 0..8 {
        w.advance(w.timing.retry);
        assert_eq!(puts_in(&w), [NodeName(0)]);
    }
    w.advance(w.timing.request);
    assert_eq!(w.outcome(id, 0), UNKNOWN);
    w.settle();
    assert!(eventual(&mut w, 0).is_some(), "late, and once");
}

#[test]
fn what_has_refused_for_good_is_passed_over() {
    let mut w = world(3);
    w.nodes[0].writable = false;
    w.damage(1, |_| true);
    let id = w.start(0, put_op("x"));
    w.settle();
    assert!(matches!(
        w.outcome(id, 0),
        Some(OpEnd::EventualStored { .. })
    ));
    for node in &mut w.nodes {
        node.writable = false;
    }
    let id = w.start(0, put_op("y"));
    w.settle();
    let may_have_taken_effect = false;
    let full = OpEnd::DiskFull {
        may_have_taken_effect,
    };
    assert_eq!(w.outcome(id, 0), Some(full));
}

#[test]
fn a_name_is_taken_once_whatever_came_of_it() {
    let (key, locked) = (section_key(), Some(Answer::Locked));
    let mut w = world(1);
    w.history = vec![Command::Enqueue];
    w.nodes[0].applied = 1;
    assert_eq!(w.ask(0, &key, put(5, 1, "x")), locked);
    w.nodes[0].writable = false;
    w.nodes[0].applied = 0;
    assert_eq!(w.ask(0, &key, put(5, 2, "x")), Some(Answer::DiskFull));
    w.nodes[0].writable = true;
    w.crash(0);
    let life = Life { since: 5, draw: 1 };
    for number in [1, 2] {
        let again = w.ask(0, &key, put(5, number, "x"));
        assert_eq!(again, Some(Answer::Late { life }));
    }
    assert!(w.cells(0).is_empty());
    let stored = w.ask(0, &key, put(5, 3, "x"));
    assert!(matches!(stored, Some(Answer::EventualStored { .. })));
    assert_eq!(w.ask(0, &key, put(5, 3, "x")), Some(Answer::Late { life }));
}

#[test]
fn an_earlier_process_of_the_sender_comes_too_late() {
    let (key, mut w) = (section_key(), world(1));
    let stored = |answer| matches!(answer, Some(Answer::EventualStored { .. }));
    assert!(stored(w.ask(0, &key, put(8, 1, "new"))));
    let tag = eventual(&mut w, 0);
    let life = Life { since: 8, draw: 1 };
    let late = Some(Answer::Late { life });
    assert_eq!(w.ask(0, &key, put(7, 9, "old")), late);
    assert_eq!(eventual(&mut w, 0), tag);
    w.damage(0, |key| key[0] == b'p');
    assert!(!stored(w.ask(0, &key, put(8, 1, "again"))), "forgotten");
    assert!(!stored(w.ask(0, &key, put(8, 2, "next"))));
    assert_eq!(eventual(&mut w, 0), tag);
    assert!(stored(w.ask(0, &key, put(w.wall + 1, 1, "above"))));
}

#[test]
fn a_sender_whose_clock_has_gone_back_goes_on_after_one_put() {
    let mut w = world(1);
    w.wall = 900;
    let first = w.start(0, put_op("x"));
    w.settle();
    assert!(w.outcome(first, 0).is_some());
    w.wall = 300;
    w.restart_caller(0);
    let refused = w.start(0, put_op("y"));
    w.settle();
    assert_eq!(w.outcome(refused, 0), UNKNOWN);
    let next = w.start(0, put_op("z"));
    w.settle();
    assert!(matches!(
        w.outcome(next, 0),
        Some(OpEnd::EventualStored { .. })
    ));
}

#[test]
fn a_put_to_a_store_that_has_ended_had_no_effect() {
    let mut w = world(3);
    let next = STORE.epoch.next();
    w.ask_store(0, StoreAsk::Seal { next });
    let id = w.start(0, put_op("x"));
    w.settle();
    let moved = OpEnd::Moved {
        next: Some(next),
        under: None,
        may_have_taken_effect: false,
    };
    assert_eq!(w.outcome(id, 0), Some(moved));
}

/// Puts of two callers among lost, repeated and late messages, crashes and restarts of callers: how
/// often each put got a tag that became durable. With an outcome that says that nothing was stored:
/// never.
fn run(seed: u64, planted: Planted) -> Result<(), String> {
    let mut w = World::new(3, 2, seed, planted);
    let mut open: BTreeMap<(usize, OpId), Bytes> = BTreeMap::new();
    let mut nothing = BTreeSet::new();
    for number in 0..150 {
        let caller = w.rng.below(2) as usize;
        if w.chance(40) {
            let value = Bytes::from(format!("{number}"));
            let (key, some) = (section_key(), Some(value.clone()));
            let id = w.start(caller, Op::EventualPut { key, value: some });
            open.insert((caller, id), value);
        }
        if w.chance(4) {
            w.restart_caller(caller);
            open.retain(|(c, _), _| *c != caller);
        }
        if w.chance(20) {
            let command = match w.chance(50) {
                true => Command::Enqueue,
                false => Command::Remove(w.history.len() as u64),
            };
            w.history.push(command);
            let node = w.rng.below(3) as usize;
            w.nodes[node].applied = w.history.len();
        }
        let node = w.rng.below(3) as usize;
        w.nodes[node].writable = w.rng.below(5) > 0;
        w.wall = w.wall.saturating_sub(w.rng.below(40_000));
        w.disturb();
        for (caller, id, outcome) in std::mem::take(&mut w.outcomes) {
            let definite = matches!(
                outcome,
                OpEnd::Locked
                    | OpEnd::DiskFull {
                        may_have_taken_effect: false
                    }
                    | OpEnd::Unavailable {
                        may_have_taken_effect: false
                    }
            );
            let value = open.remove(&(caller, id)).filter(|_| definite);
            nothing.extend(value);
        }
    }
    w.settle();
    let mut times: BTreeMap<Bytes, u32> = BTreeMap::new();
    for (value, _) in &w.spread {
        *times.entry(value.clone()).or_default() += 1;
    }
    match times.iter().find(|(v, n)| **n > 1 || nothing.contains(*v)) {
        Some((value, n)) => Err(format!("put {value:?} was stored {n} times")),
        None => Ok(()),
    }
}

#[test]
fn every_put_is_stored_at_most_once() {
    for seed in 0..2_000 {
        run(seed, Planted::NONE).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_put_that_is_repeated_is_caught() {
    let bug = Planted::only(fermata_protocol::base::Bug::EventualPutRepeated);
    assert!((0..200).any(|seed| run(seed, bug).is_err()));
}
