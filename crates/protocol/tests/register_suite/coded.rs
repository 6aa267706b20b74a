//! Rules of coded values, by name.

use crate::world::{BOUND, Clock, Letter, World, register_key, section_key};
use bytes::Bytes;
use fermata_protocol::base::{LockRef, NodeName, Planted, SessionId, StoragePolicy, Tag, Terms};
use fermata_protocol::register::{Ask, Holder, Message, Op, OpEnd, OpId};

/// A value of two bytes is coded, too.
fn terms(faults: u8, delta: u8) -> Terms {
    Terms {
        faults,
        delta,
        whole_below: 0,
    }
}

fn world(storage: StoragePolicy, n: usize, planted: Planted) -> World {
    let mut world = World::new(n, 3, 1, planted);
    world.storage = storage;
    world
}

fn coded(n: usize, faults: u8, delta: u8) -> World {
    let storage = StoragePolicy::Coded(terms(faults, delta));
    world(storage, n, Planted::NONE)
}

/// A clock without an error, but for its bound.
const SOUND: Clock = Clock {
    offset: 0,
    drift: 0,
    sound: true,
};

fn value(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn write(writer: u128, text: &str) -> Op {
    Op::Write {
        key: register_key(),
        writer,
        value: value(text),
    }
}

fn read() -> Op {
    Op::Read {
        key: register_key(),
        moves: false,
    }
}

fn sweep(writer: u128) -> Op {
    Op::Sweep {
        key: register_key(),
        writer,
    }
}

fn is_store(letter: &Letter) -> bool {
    let ask = |ask: &Ask| matches!(ask, Ask::Store { .. });
    matches!(&letter.message, Message::Ask { ask: found, .. } if ask(found))
}

fn run(world: &mut World, op: Op) -> OpEnd {
    run_at(world, 0, op)
}

fn run_at(world: &mut World, caller: usize, op: Op) -> OpEnd {
    world.run_without(caller, op, &[])
}

/// A writer that dies when its store has reached `nodes`; nobody hears their answers.
fn dying_write(world: &mut World, writer: u128, nodes: &[usize]) {
    world.start(0, write(writer, &format!("value {writer}")));
    for i in 0..world.nodes.len() {
        world.flush(i);
    }
    while world.deliver_one(|l| !is_store(l)) {
        (0..world.nodes.len()).for_each(|i| world.flush(i));
    }
    for node in nodes {
        assert!(world.deliver_one(|l| is_store(l) && l.to == NodeName(*node as u32)));
        world.flush(*node);
    }
    world.replace_caller(0);
    world.bag.clear();
}

fn found(outcome: OpEnd) -> Option<Bytes> {
    match outcome {
        OpEnd::Value { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

/// n = 5, f = 1, δ = 1: with more than δ dead writers TREAS-OPT has lost the value, as published,
/// and says so; where tags are made final it is still there.
#[test]
fn dead_writers_beyond_delta_lose_a_value_of_treas_opt_and_none_of_coded() {
    let schedule = |storage| {
        let mut w = world(storage, 5, Planted::NONE);
        assert!(matches!(
            run(&mut w, write(99, "first")),
            OpEnd::Stored { .. }
        ));
        for node in 0..5 {
            dying_write(&mut w, 1 + node as u128, &[node]);
        }
        [run(&mut w, read()), run(&mut w, read())]
    };
    let lost = schedule(StoragePolicy::TreasOpt(terms(1, 1)));
    assert_eq!(lost, [OpEnd::Undecodable, OpEnd::Undecodable]);
    for outcome in schedule(StoragePolicy::Coded(terms(1, 3))) {
        assert_eq!(found(outcome), value("first"));
    }
}

/// F8e: what a reader may still need is kept for a grace time, so that it collects once.
#[test]
fn a_reader_beside_a_stream_of_writes_collects_once() {
    let mut w = coded(5, 1, 3);
    run(&mut w, write(50, "first"));
    let reader = NodeName(100);
    let id = w.start(0, read());
    let asks = |w: &World| {
        let reads = |l: &&Letter| {
            let read = matches!(
                &l.message,
                Message::Ask {
                    ask: Ask::Read { .. },
                    ..
                }
            );
            l.from == reader && read
        };
        w.bag.iter().filter(reads).count()
    };
    assert_eq!(asks(&w), 5);
    for node in 0..5 {
        // A whole write between any two answers: a new final tag each time.
        let writer = 60 + node as u128;
        let write = w.start(1, write(writer, &format!("value {writer}")));
        loop {
            (0..5).for_each(|i| w.flush(i));
            if !w.deliver_one(|l| l.from != reader && l.to != reader) {
                break;
            }
        }
        assert!(matches!(w.outcome(write, 1), Some(OpEnd::Stored { .. })));
        let node = NodeName(node as u32);
        if w.deliver_one(|l| l.from == reader && l.to == node) {
            w.flush(node.0 as usize);
            assert!(w.deliver_one(|l| l.from == node && l.to == reader));
        }
        w.advance(w.timing.retry / 8);
    }
    w.bag.retain(|l| l.from != reader || is_store(l));
    w.settle();
    assert!(matches!(w.outcome(id, 0), Some(OpEnd::Value { .. })));
}

#[test]
fn a_sweep_makes_room_where_unfinished_writes_fill_all_replicas() {
    let mut w = coded(3, 1, 1);
    dying_write(&mut w, 1, &[0, 1, 2]);
    dying_write(&mut w, 2, &[0, 1, 2]);
    let busy = run(&mut w, write(3, "more"));
    assert!(matches!(busy, OpEnd::Busy { .. }), "{busy:?}");
    // One that dies halfway takes room of its own.
    for _ in 0..5 {
        w.start(0, sweep(9));
        while w.deliver_one(|l| !is_store(l)) {
            (0..3).for_each(|i| w.flush(i));
        }
        assert!(w.deliver_one(is_store));
        w.replace_caller(0);
        w.bag.clear();
    }
    let swept = run(&mut w, sweep(9));
    assert!(matches!(swept, OpEnd::Stored { .. }), "{swept:?}");
    let stored = run(&mut w, write(3, "more"));
    assert!(matches!(stored, OpEnd::Stored { .. }), "{stored:?}");
    assert_eq!(found(run(&mut w, read())), value("more"));
}

/// n = 3, f = 1, δ = 1: 0 holds writes 1 and 2, 1 holds writes 1 and 3, 2 is down. A reader that
/// finds 3 cannot store it at 0.
#[test]
fn a_reader_sweeps_where_it_cannot_complete_what_it_found() {
    let mut w = coded(3, 1, 1);
    dying_write(&mut w, 1, &[0, 1]);
    dying_write(&mut w, 2, &[0]);
    dying_write(&mut w, 3, &[1]);
    assert_eq!(found(w.run_without(0, read(), &[2])), value("value 3"));
    let stored = w.run_without(0, write(4, "more"), &[2]);
    assert!(matches!(stored, OpEnd::Stored { .. }), "{stored:?}");
}

/// The same with a writer: it says `Busy`, so that somebody sweeps, although the one replica that
/// is full is not enough to refuse it.
#[test]
fn a_writer_that_one_full_replica_stops_is_told() {
    let mut w = coded(3, 1, 1);
    dying_write(&mut w, 1, &[0]);
    dying_write(&mut w, 2, &[0]);
    let busy = w.run_without(0, write(3, "more"), &[2]);
    assert!(matches!(busy, OpEnd::Busy { .. }), "{busy:?}");
}

/// Sixteen writers where a member keeps parts of one, in sixteen orders: the members are filled by
/// different ones. How many of them say that they are done.
fn done_of_a_crowd(planted: Planted) -> usize {
    let mut done = 0;
    for seed in 1..=16 {
        let mut w = World::new(5, 4, seed, planted);
        w.storage = StoragePolicy::Coded(terms(1, 1));
        if seed > 8 {
            run_at(&mut w, 3, write(99, "before"));
        }
        let begin = |w: &mut World, i: usize| {
            let caller = i % 4;
            (
                w.start(caller, write(i as u128 + 1, &i.to_string())),
                caller,
            )
        };
        let ids: Vec<(OpId, usize)> = (0..16).map(|i| begin(&mut w, i)).collect();
        // All know which tags there are before any of them stores.
        while w.deliver_one(|l| !is_store(l)) {
            (0..5).for_each(|i| w.flush(i));
        }
        while !w.bag.is_empty() {
            let at = w.rng.below(w.bag.len() as u64) as usize;
            let letter = w.bag.swap_remove(at);
            w.deliver(letter);
            (0..5).for_each(|i| w.flush(i));
        }
        for _ in 0..20 {
            w.advance(w.timing.beat);
            w.settle();
        }
        for (id, caller) in ids {
            let stored = matches!(w.outcome(id, caller), Some(OpEnd::Stored { .. }));
            done += usize::from(stored);
        }
        if done == 16 * seed as usize {
            assert!(found(run(&mut w, read())).is_some());
        }
    }
    done
}

/// G51: none waits for room that only another one can make.
#[test]
fn writers_beyond_delta_all_complete() {
    assert_eq!(done_of_a_crowd(Planted::NONE), 16 * 16);
}

/// More puts in flight than δ, which reach the replicas in opposite orders: none waits for room
/// that only another one can make.
#[test]
fn pipelined_puts_beyond_delta_all_complete() {
    let mut w = coded(5, 1, 1);
    w.history = vec![crate::world::Command::Enqueue];
    w.nodes.iter_mut().for_each(|n| n.applied = 1);
    let put = |number: u64| Op::Put {
        key: section_key(),
        tag: Tag::critical(LockRef(1), 0, number, SessionId(7)),
        value: value(&format!("put {number}")),
        counter_above: true,
    };
    let ids: Vec<OpId> = (1..=12).map(|number| w.start(0, put(number))).collect();
    for node in [2, 3] {
        let to = NodeName(node);
        let last = |w: &World| w.bag.iter().rposition(|l| l.to == to);
        while let Some(at) = last(&w) {
            let letter = w.bag.remove(at);
            w.deliver(letter);
        }
    }
    w.settle();
    for id in ids {
        let outcome = w.outcome(id, 0);
        assert!(matches!(outcome, Some(OpEnd::Stored { .. })), "{outcome:?}");
    }
}

/// Sweeps without end that die when their stores are at enough members to give the value, and at no
/// quorum: each carries on what the one before has left, and leaves no version of its own.
#[test]
fn sweeps_that_die_one_after_the_other_fill_no_replica() {
    let mut w = coded(5, 1, 1);
    dying_write(&mut w, 1, &[0, 1, 2, 3]);
    dying_write(&mut w, 2, &[0, 1, 2, 4]);
    dying_write(&mut w, 3, &[0]);
    for _ in 0..50 {
        w.start(0, sweep(9));
        while w.deliver_one(|l| !is_store(l)) {
            (0..5).for_each(|i| w.flush(i));
        }
        for node in 0..3 {
            w.deliver_one(|l| is_store(l) && l.to == NodeName(node));
        }
        w.replace_caller(0);
        w.bag.clear();
    }
    let swept = run(&mut w, sweep(9));
    assert!(matches!(swept, OpEnd::Stored { .. }), "{swept:?}");
    let stored = run(&mut w, write(4, "more"));
    assert!(matches!(stored, OpEnd::Stored { .. }), "{stored:?}");
}

/// A sweep finds that it may carry another one on, and then hears members of which too few have
/// what that has stored: it takes a tag of its own for what it has found.
#[test]
fn a_sweep_that_finds_less_than_it_was_to_carry_on_begins_anew() {
    let mut w = coded(5, 1, 3);
    run(&mut w, write(1, "one"));
    dying_write(&mut w, 2, &[0, 1, 2]);
    w.start(0, sweep(9));
    while w.deliver_one(|l| !is_store(l)) {
        (0..5).for_each(|i| w.flush(i));
    }
    for node in 0..3 {
        assert!(w.deliver_one(|l| is_store(l) && l.to == NodeName(node)));
    }
    w.replace_caller(0);
    w.bag.clear();
    let id = w.start(1, sweep(9));
    w.reach(1, &[0, 1, 2, 3]);
    for _ in 0..4 {
        w.reach(1, &[1, 2, 3, 4]);
    }
    let swept = w.outcome(id, 1);
    assert!(matches!(swept, Some(OpEnd::Stored { .. })), "{swept:?}");
    for _ in 0..3 {
        w.settle();
        w.advance(w.timing.retry);
    }
    assert_eq!(found(w.run_without(2, read(), &[0])), value("one"));
}

/// F8d: beside a member that lacks the tag.
#[test]
fn a_reader_stores_nothing_where_it_hears_that_what_it_found_is_final() {
    let mut w = coded(5, 1, 3);
    run(&mut w, write(1, "one"));
    w.start(0, write(2, "two"));
    w.settle_without(&[4]);
    let id = w.start(1, read());
    w.reach(1, &[4, 1, 2, 3]);
    assert_eq!(w.outcome(id, 1).map(found), Some(value("two")));
}

/// Two members of four have clocks far ahead, and take what a writer with such a clock stores; the
/// others refuse it, and every sweep of it. When its time has come the key can be used again.
#[test]
fn a_key_comes_back_when_the_clocks_are_right_again() {
    const AHEAD: u64 = 900_000_000;
    let fast = Some(Clock {
        offset: AHEAD as i64,
        drift: 0,
        sound: false,
    });
    let mut w = coded(4, 1, 1);
    w.node_clocks = vec![fast, fast, Some(SOUND), Some(SOUND)];
    w.caller_clocks[0] = fast;
    let refused = run(&mut w, write(1, "ahead"));
    assert!(matches!(refused, OpEnd::Unavailable { .. }), "{refused:?}");
    let before = w.now;
    for _ in 0..50 {
        let swept = run_at(&mut w, 1, sweep(9));
        assert!(!matches!(swept, OpEnd::Stored { .. }), "{swept:?}");
    }
    assert!(w.now - before < AHEAD, "its time has not come");
    w.node_clocks = vec![Some(SOUND); 4];
    w.advance(AHEAD);
    let stored = run_at(&mut w, 1, write(2, "more"));
    let swept = match stored {
        OpEnd::Busy { .. } => run_at(&mut w, 1, sweep(9)),
        stored => stored,
    };
    assert!(matches!(swept, OpEnd::Stored { .. }), "{swept:?}");
    assert!(matches!(run_at(&mut w, 1, read()), OpEnd::Value { .. }));
}

/// No replica has an interval clock, and one writer's stands in another century: it is refused by
/// the replicas' wall clocks, which need not be exact.
#[test]
fn a_clock_of_another_century_pushes_no_key_there() {
    let clock = |offset: i64| {
        Some(Clock {
            offset,
            drift: 0,
            sound: false,
        })
    };
    for bad in [2_000_000_000, 3_000_000_000_000_000] {
        let mut w = coded(3, 1, 3);
        w.caller_clocks[0] = clock(bad);
        let refused = run(&mut w, write(1, "ahead"));
        assert!(matches!(refused, OpEnd::Unavailable { .. }), "{refused:?}");
        w.caller_clocks[0] = None;
        let stored = run(&mut w, write(2, "now"));
        let OpEnd::Stored { tag } = stored else {
            panic!("{stored:?}");
        };
        assert!(tag.sequence < crate::world::BEGINNING, "{tag:?}");
        w.wall -= 300_000_000;
        w.caller_clocks[0] = Some(SOUND);
        let stored = run(&mut w, write(3, "right"));
        assert!(matches!(stored, OpEnd::Stored { .. }), "{stored:?}");
    }
}

/// A coordinator's retry sweeps under the same name elsewhere, and may find another value.
#[test]
fn two_sweeps_of_one_name_have_two_tags() {
    let mut w = coded(3, 1, 3);
    dying_write(&mut w, 1, &[0]);
    let ids = [w.start(0, sweep(9)), w.start(1, sweep(9))];
    w.settle();
    for _ in 0..20 {
        w.advance(150_000);
        w.settle();
    }
    let outcomes = [w.outcome(ids[0], 0), w.outcome(ids[1], 1)];
    let [
        Some(OpEnd::Stored { tag: a }),
        Some(OpEnd::Stored { tag: b }),
    ] = outcomes
    else {
        panic!("{outcomes:?}");
    };
    assert_ne!(a, b);
}

/// Nobody but one writer has a clock, whose tag has not passed yet: the others fence.
#[test]
fn who_has_no_clock_need_not_wait_for_a_time_to_pass() {
    let mut w = coded(3, 1, 3);
    w.caller_clocks[0] = Some(SOUND);
    let first = w.start(0, write(1, "one"));
    w.settle();
    assert_eq!(w.outcome(first, 0), None, "its time has not passed");
    for (caller, op) in [(1, write(2, "two")), (2, read())] {
        let id = w.start(caller, op);
        w.settle();
        let outcome = w.outcome(id, caller);
        let ended = matches!(outcome, Some(OpEnd::Stored { .. } | OpEnd::Value { .. }));
        assert!(ended, "{outcome:?}");
    }
}

/// A writer's clock is given up, since it was proven wrong, while the writer waits for its tag's
/// time: it fences instead. What is written then comes after it, whoever writes it.
#[test]
fn a_writer_that_loses_its_clock_while_it_waits_fences() {
    for reads in [false, true] {
        let mut w = coded(3, 1, 3);
        w.caller_clocks = vec![Some(SOUND); 3];
        w.node_clocks = vec![Some(SOUND); 3];
        let first = w.start(0, write(1, "one"));
        w.settle();
        assert_eq!(w.outcome(first, 0), None, "its time has not passed");
        let (caller, id) = match reads {
            true => (1, w.start(1, read())),
            false => (0, first),
        };
        w.settle();
        // Nobody's clock is relied on any more.
        w.caller_clocks = vec![None; 3];
        w.node_clocks = vec![None; 3];
        let mut ended = None;
        for _ in 0..20 {
            w.advance(50_000);
            w.settle();
            ended = ended.or(w.outcome(id, caller));
        }
        let right = matches!(
            ended,
            Some(OpEnd::Stored { tag } | OpEnd::Value { tag, .. }) if reads || tag.writer == 1
        );
        assert!(right, "{ended:?}");
        // A tag of the same time, of a slow clock within its bound: it is late, and so refused.
        w.caller_clocks[2] = Some(Clock {
            offset: -(BOUND as i64) * 20,
            drift: 0,
            sound: false,
        });
        let late = run_at(&mut w, 2, write(2, "two"));
        assert!(matches!(late, OpEnd::Past { .. }), "{late:?}");
        w.caller_clocks[2] = None;
        w.outcomes.clear();
        assert_eq!(found(run(&mut w, read())), value("one"));
    }
}

/// A writer has stored, and gives its clock up while it waits for its tag's time; another one has
/// written meanwhile. What is swept up then is that write, and not the first one again.
#[test]
fn a_writer_that_loses_its_clock_does_not_write_twice() {
    let mut w = coded(3, 1, 3);
    w.caller_clocks = vec![Some(SOUND); 3];
    w.node_clocks = vec![Some(SOUND); 3];
    let ids = [1, 2].map(|writer| {
        let id = w.start(
            writer - 1,
            write(writer as u128, &format!("value {writer}")),
        );
        w.settle();
        w.advance(1_000);
        id
    });
    w.caller_clocks[0] = None;
    w.node_clocks = vec![None; 3];
    for _ in 0..20 {
        w.advance(50_000);
        w.settle();
    }
    for (caller, id) in ids.into_iter().enumerate() {
        let stored = w.outcome(id, caller);
        assert!(matches!(stored, Some(OpEnd::Stored { .. })), "{stored:?}");
    }
    assert_eq!(found(run_at(&mut w, 2, read())), value("value 2"));
}

/// A writer without a clock has met a time, and is about to fence; a sweep is faster.
#[test]
fn a_writer_whose_fence_is_refused_takes_a_higher_tag() {
    let mut w = coded(3, 1, 3);
    w.caller_clocks[0] = Some(SOUND);
    w.start(0, write(1, "one"));
    w.settle();
    let id = w.start(1, write(2, "two"));
    w.reach(1, &[0, 1]);
    let late: Vec<Letter> = w.bag.extract_if(.., |l| l.from == NodeName(101)).collect();
    let swept = run_at(&mut w, 2, sweep(9));
    assert!(matches!(swept, OpEnd::Stored { .. }), "{swept:?}");
    w.bag.extend(late);
    for _ in 0..4 {
        w.settle();
        w.advance(w.timing.retry);
    }
    let stored = w.outcome(id, 1);
    assert!(matches!(stored, Some(OpEnd::Stored { .. })), "{stored:?}");
    assert_eq!(found(run_at(&mut w, 2, read())), value("two"));
}

/// A writer that names two values alike: the second one is refused, not mixed with the first.
fn write_under_a_name_used_before(planted: Planted) -> [Option<Bytes>; 2] {
    let mut w = world(StoragePolicy::Coded(terms(1, 3)), 3, planted);
    run(&mut w, write(7, "one"));
    let before = found(run(&mut w, read()));
    let again = run(&mut w, write(7, "two"));
    if planted == Planted::NONE {
        assert!(matches!(again, OpEnd::Unavailable { .. }), "{again:?}");
    }
    [before, found(run(&mut w, read()))]
}

#[test]
fn a_tag_names_one_value() {
    let [before, after] = write_under_a_name_used_before(Planted::NONE);
    assert_eq!(before, after);
}

/// One replica's bytes change and nothing tells but the part's own sum.
fn read_of_changed_bytes(storage: StoragePolicy, planted: Planted) -> OpEnd {
    let mut w = world(storage, 5, planted);
    run(&mut w, write(7, "the value"));
    w.nodes[0].disk.alter(|key| key[0] == b'r' && key[13] >= 2);
    run(&mut w, read())
}

#[test]
fn changed_bytes_are_noticed_and_the_others_suffice() {
    for storage in [StoragePolicy::Replicated, StoragePolicy::Coded(terms(1, 3))] {
        let outcome = read_of_changed_bytes(storage, Planted::NONE);
        assert_eq!(found(outcome), value("the value"));
    }
}

/// G20: a reader has two parts of a write that died, and hears that a higher tag is final: that of
/// a sweep that has passed the write over. So the write is not final. What that reader returns, and
/// what two later ones do.
fn read_of_what_a_sweep_passed_over(planted: Planted) -> [Option<Bytes>; 3] {
    let mut w = world(StoragePolicy::Coded(terms(1, 3)), 4, planted);
    run(&mut w, write(50, "old"));
    w.advance(2_000_000);
    w.settle();
    dying_write(&mut w, 60, &[0, 3]);
    let reader = NodeName(101);
    let id = w.start(1, read());
    let answers = |w: &mut World, node: u32| {
        let node = NodeName(node);
        assert!(w.deliver_one(|l| l.from == reader && l.to == node));
        w.flush(node.0 as usize);
        assert!(w.deliver_one(|l| l.from == node && l.to == reader));
    };
    answers(&mut w, 0);
    answers(&mut w, 3);
    let sweeper = NodeName(100);
    let swept = w.start(0, sweep(9));
    let without_3 = |l: &Letter| {
        (l.from == sweeper && l.to != NodeName(3)) || (l.to == sweeper && l.from != NodeName(3))
    };
    loop {
        (0..4).for_each(|i| w.flush(i));
        if !w.deliver_one(without_3) {
            break;
        }
    }
    assert!(matches!(w.outcome(swept, 0), Some(OpEnd::Stored { .. })));
    answers(&mut w, 1);
    for _ in 0..4 {
        w.settle();
        w.advance(w.timing.retry);
    }
    let first = found(w.outcome(id, 1).expect("the read has ended"));
    let [second, third] = [3, 0].map(|without| found(w.run_without(2, read(), &[without])));
    [first, second, third]
}

#[test]
fn a_higher_final_tag_makes_none_below_it_final() {
    let [first, second, third] = read_of_what_a_sweep_passed_over(Planted::NONE);
    assert_eq!(first, second, "what was read is read again");
    assert_eq!(first, third, "what was read is read again");
}

/// G21: a sweep has fenced 0 and 1 and found "old", and dies; its stores come late. 0 forgets its
/// fence and must not take the write of a dead writer below it from 2. What is read before the
/// stores arrive, and after.
fn repaired_beside_a_dead_sweep(storage: StoragePolicy, planted: Planted) -> [Option<Bytes>; 2] {
    let mut w = world(storage, 3, planted);
    run(&mut w, write(50, "old"));
    w.advance(2_000_000);
    w.settle();
    dying_write(&mut w, 60, &[2]);
    w.start(0, sweep(9));
    let sweeper = NodeName(100);
    let before_stores = |l: &Letter| {
        let two = NodeName(2);
        !is_store(l) && (l.from == sweeper && l.to != two || l.to == sweeper && l.from != two)
    };
    loop {
        (0..3).for_each(|i| w.flush(i));
        if !w.deliver_one(before_stores) {
            break;
        }
    }
    let late: Vec<Letter> = w.bag.extract_if(.., |l| is_store(l)).collect();
    assert!(!late.is_empty(), "the sweep stores");
    w.replace_caller(0);
    w.bag.clear();
    assert!(w.damage(0, |_| true) > 0);
    let ask = Ask::Read {
        holder: None,
        entering: false,
        fence: None,
        eventual: false,
        values: true,
    };
    w.ask(0, &register_key(), ask);
    for _ in 0..8 {
        w.advance(w.timing.lengthened(w.timing.request));
        w.settle();
        w.upkeep();
        w.settle();
    }
    assert!(w.nodes[0].replica.counts().repairs > 0, "it is repaired");
    let first = found(w.run_without(1, read(), &[1]));
    w.bag.extend(late);
    w.settle();
    [first, found(w.run_without(2, read(), &[]))]
}

#[test]
fn a_repair_takes_nothing_below_a_fence_that_was_forgotten() {
    for storage in [StoragePolicy::Replicated, StoragePolicy::Coded(terms(1, 3))] {
        let [first, later] = repaired_beside_a_dead_sweep(storage, Planted::NONE);
        assert_eq!(first, later, "{storage:?}");
    }
}

fn settles(letter: &Letter) -> bool {
    let settles = |ask: &Ask| matches!(ask, Ask::Settle { .. });
    matches!(&letter.message, Message::Ask { ask, .. } if settles(ask))
}

/// Two holders' processes name two values alike, and each reaches some of the members: none of the
/// two can be decoded, so that nobody may be told that their tag is final, for what is below it is
/// all that there is.
#[test]
fn a_put_under_a_name_used_before_is_told_to_nobody_as_final() {
    let mut w = coded(5, 1, 3);
    w.history = vec![crate::world::Command::Enqueue];
    w.nodes.iter_mut().for_each(|n| n.applied = 1);
    let put = |number: u64, text: &str| Op::Put {
        key: section_key(),
        tag: Tag::critical(LockRef(1), 0, number, SessionId(7)),
        value: value(text),
        counter_above: true,
    };
    let before = run(&mut w, put(1, "before"));
    assert!(matches!(before, OpEnd::Stored { .. }), "{before:?}");
    w.start(0, put(2, "one"));
    w.reach(0, &[0, 1]);
    w.replace_caller(0);
    w.bag.clear();
    let again = w.start(1, put(2, "two"));
    w.reach(1, &[0, 1, 2, 3]);
    assert_eq!(w.outcome(again, 1), Some(OpEnd::StaleSequence));
    assert!(!w.bag.iter().any(settles), "it is told to be final");
    w.bag.retain(settles);
    for _ in 0..3 {
        w.settle();
        w.advance(w.timing.retry);
    }
    let holder = Holder {
        lock_ref: LockRef(1),
        generation: 0,
    };
    let key = section_key();
    let got = run(&mut w, Op::Get { key, holder });
    assert_eq!(found(got), value("before"));
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use fermata_protocol::base::Bug;

    #[test]
    fn two_values_under_one_tag_are_caught() {
        let bug = Planted::only(Bug::TwoValuesUnderOneTag);
        let [before, after] = write_under_a_name_used_before(bug);
        assert_ne!(before, after);
    }

    #[test]
    fn a_lower_tag_taken_as_final_is_caught() {
        let bug = Planted::only(Bug::LowerTagTakenAsFinal);
        let [first, second, third] = read_of_what_a_sweep_passed_over(bug);
        assert_eq!(first, value("value 60"));
        assert_eq!([second, third], [value("old"), value("old")]);
    }

    #[test]
    fn a_repair_without_a_quorum_is_caught() {
        for storage in [StoragePolicy::Replicated, StoragePolicy::Coded(terms(1, 3))] {
            let bug = Planted::only(Bug::RepairWithoutQuorum);
            let [first, later] = repaired_beside_a_dead_sweep(storage, bug);
            assert_eq!(first, value("value 60"), "{storage:?}");
            assert_eq!(later, value("old"), "{storage:?}");
        }
    }

    #[test]
    fn a_crowd_without_order_is_caught() {
        assert!(done_of_a_crowd(Planted::only(Bug::CrowdWithoutOrder)) < 16 * 16);
    }

    #[test]
    fn an_ignored_checksum_is_caught() {
        let bug = Planted::only(Bug::ChecksumIgnored);
        let wrong = read_of_changed_bytes(StoragePolicy::Replicated, bug);
        assert_ne!(found(wrong), value("the value"));
        let mixed = read_of_changed_bytes(StoragePolicy::Coded(terms(1, 3)), bug);
        assert_ne!(found(mixed), value("the value"));
    }
}
