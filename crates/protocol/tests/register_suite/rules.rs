//! Each rule by name.

use crate::world::{Command, Letter, STORE, World, register_key, section_key};
use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Epoch, EventualTag, Keyspace, LockRef, Planted, Seat, SessionId, Tag,
};
use fermata_protocol::register::{
    Answer, Ask, Content, Holder, KeyRange, Message, Op, OpEnd, keys, policy,
};

pub(crate) fn world(n: usize) -> World {
    World::new(n, 2, 1, Planted::NONE)
}

fn bytes(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn content(tag: Tag, text: &str) -> Content {
    let key = match tag.lock_ref > LockRef(0) {
        true => section_key(),
        false => register_key(),
    };
    policy::whole_copy(&key, tag, &Bytes::copy_from_slice(text.as_bytes()))
}

fn eventual_content(text: &str) -> Content {
    let value = Bytes::copy_from_slice(text.as_bytes());
    policy::whole_copy(&section_key(), Tag::ZERO, &value)
}

pub(crate) fn put(lock_ref: u64, number: u64) -> Tag {
    Tag::critical(LockRef(lock_ref), 0, number, SessionId(7))
}

pub(crate) fn synch(lock_ref: u64, attempt: u32) -> Tag {
    Tag::synch(
        LockRef(lock_ref),
        0,
        Epoch::FIRST,
        Ballot::default(),
        attempt,
    )
}

fn holder(lock_ref: u64) -> Holder {
    Holder {
        lock_ref: LockRef(lock_ref),
        generation: 0,
    }
}

fn store(tag: Tag, text: &str) -> Ask {
    Ask::Store {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: content(tag, text),
    }
}

fn fenced(tag: Tag) -> Ask {
    Ask::Read {
        holder: None,
        entering: true,
        fence: Some(tag),
        eventual: true,
        values: true,
    }
}

fn read(holder: Option<Holder>, entering: bool) -> Ask {
    Ask::Read {
        holder,
        entering,
        fence: None,
        eventual: true,
        values: true,
    }
}

fn eventual_put(w: &mut World, text: &str) -> Ask {
    Ask::EventualPut {
        name: w.name(),
        content: eventual_content(text),
    }
}

/// An eventual put of the section key, directly at one replica.
pub(crate) fn put_at(w: &mut World, i: usize, text: &str) -> Option<Answer> {
    let ask = eventual_put(w, text);
    w.ask(i, &section_key(), ask)
}

/// Refs 1 … `count` are enqueued, and every replica has applied that.
pub(crate) fn enqueue(world: &mut World, count: usize) {
    world.history = vec![Command::Enqueue; count];
    apply_all(world);
}

pub(crate) fn remove(world: &mut World, lock_ref: u64) {
    world.history.push(Command::Remove(lock_ref));
    apply_all(world);
}

pub(crate) fn apply_all(world: &mut World) {
    let applied = world.history.len();
    world.nodes.iter_mut().for_each(|n| n.applied = applied);
}

pub(crate) fn put_op(tag: Tag, text: &str) -> Op {
    Op::Put {
        key: section_key(),
        tag,
        value: bytes(text),
        counter_above: false,
    }
}

pub(crate) fn run(world: &mut World, op: Op) -> Option<OpEnd> {
    let id = world.start(0, op);
    world.settle();
    world.outcome(id, 0)
}

#[test]
fn a_fence_is_durable_before_it_is_answered() {
    let mut w = world(3);
    let key = section_key();
    w.start(
        0,
        Op::Synch {
            key: key.clone(),
            tag: synch(3, 1),
            adopts: true,
        },
    );
    assert!(w.deliver_one(|l| l.to.0 == 0));
    assert!(
        !w.bag.iter().any(|l| l.from.0 == 0),
        "the answer left before the flush"
    );
    w.crash(0);
    assert_eq!(w.inspect(0, &key).expect("sound").fence, Tag::ZERO);
    w.ask(0, &key, fenced(synch(3, 1)));
    w.crash(0);
    assert_eq!(w.inspect(0, &key).expect("sound").fence, synch(3, 1));
    let refused = w.ask(0, &key, store(put(2, 9), "late"));
    assert_eq!(refused, Some(Answer::Past { tag: synch(3, 1) }));
}

#[test]
fn an_older_attempt_is_past_once_a_newer_one_has_read() {
    let mut w = world(3);
    let key = section_key();
    w.ask(0, &key, fenced(synch(3, 2)));
    let past = Some(Answer::Past { tag: synch(3, 2) });
    assert_eq!(w.ask(0, &key, fenced(synch(3, 1))), past);
    assert_eq!(w.ask(0, &key, store(synch(3, 1), "old")), past);
    assert_eq!(
        w.ask(0, &key, store(synch(3, 2), "new")),
        Some(Answer::Stored)
    );
    assert_eq!(w.ask(0, &key, store(synch(3, 1), "old")), past);
}

/// Every section up to the floor is over, and of a deleted key nothing may be left that says so: a
/// synch that comes late from down there would carry something older on.
#[test]
fn a_fence_at_or_below_the_floor_is_refused_and_leaves_nothing() {
    let (mut w, key) = (world(1), section_key());
    w.history = vec![Command::Nothing; 3];
    w.history.push(Command::Floor(3));
    apply_all(&mut w);
    let floor = Tag {
        lock_ref: LockRef(3),
        ..Tag::ZERO
    };
    let past = Some(Answer::Past { tag: floor });
    for lock_ref in [1, 3] {
        assert_eq!(w.ask(0, &key, fenced(synch(lock_ref, 1))), past);
        assert!(w.cells(0).is_empty(), "the fence was set");
    }
    let above = w.ask(0, &key, fenced(synch(4, 1)));
    assert!(matches!(above, Some(Answer::Cells { .. })), "{above:?}");
    assert_eq!(w.inspect(0, &key).expect("sound").fence, synch(4, 1));
}

#[test]
fn raising_a_fence_or_putting_eventually_does_not_rewrite_the_value() {
    let mut w = world(1);
    let key = section_key();
    enqueue(&mut w, 1);
    w.ask(0, &key, store(put(1, 1), &"x".repeat(1 << 20)));
    remove(&mut w, 1);
    let before = w.written;
    w.ask(0, &key, fenced(synch(1, 1)));
    put_at(&mut w, 0, "small");
    w.ask(0, &key, fenced(synch(9, 1)));
    assert!(w.written - before < 1_000, "{} bytes", w.written - before);
}

#[test]
fn a_tag_names_one_value_and_storing_it_again_changes_nothing() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    assert_eq!(
        w.ask(0, &key, store(put(1, 2), "two")),
        Some(Answer::Stored)
    );
    assert_eq!(
        w.ask(0, &key, store(put(1, 2), "two")),
        Some(Answer::Stored)
    );
    let other = w.ask(0, &key, store(put(1, 2), "other"));
    assert_eq!(other, Some(Answer::Outranked { tag: put(1, 2) }));
    let lower = w.ask(0, &key, store(put(1, 1), "one"));
    assert_eq!(lower, Some(Answer::Outranked { tag: put(1, 2) }));
    let got = run(
        &mut w,
        Op::Get {
            key,
            holder: holder(1),
        },
    );
    assert_eq!(
        got,
        Some(OpEnd::Value {
            value: bytes("two"),
            tag: put(1, 2)
        })
    );
}

#[test]
fn a_put_below_the_sections_numbers_is_stale_unless_the_counter_is_above() {
    let mut w = world(3);
    enqueue(&mut w, 1);
    run(&mut w, put_op(put(1, 7), "seven"));
    assert_eq!(
        run(&mut w, put_op(put(1, 1), "one")),
        Some(OpEnd::StaleSequence)
    );
    let pipelined = Op::Put {
        key: section_key(),
        tag: put(1, 6),
        value: bytes("six"),
        counter_above: true,
    };
    assert_eq!(
        run(&mut w, pipelined),
        Some(OpEnd::Stored { tag: put(1, 6) })
    );
    let clash = run(&mut w, put_op(put(1, 7), "another seven"));
    assert_eq!(clash, Some(OpEnd::StaleSequence));
}

#[test]
fn a_waiting_ref_writes_nothing_until_it_holds() {
    let mut w = world(3);
    enqueue(&mut w, 2);
    let id = w.start(0, put_op(put(2, 1), "early"));
    w.settle();
    assert_eq!(w.outcome(id, 0), None, "a replica may lag behind the grant");
    remove(&mut w, 1);
    w.advance(w.timing.beat);
    w.settle();
    assert_eq!(w.outcome(id, 0), Some(OpEnd::Stored { tag: put(2, 1) }));
}

#[test]
fn a_ref_that_goes_on_waiting_is_no_holder() {
    let mut w = world(3);
    enqueue(&mut w, 2);
    let id = w.start(
        0,
        Op::Get {
            key: section_key(),
            holder: holder(2),
        },
    );
    w.settle();
    w.advance(w.timing.retry);
    let refused = w.outcome(id, 0);
    assert_eq!(
        refused,
        Some(OpEnd::NotHolder {
            may_have_taken_effect: false
        })
    );
}

#[test]
fn a_ref_above_what_is_applied_is_believed_and_a_past_one_is_not() {
    let mut w = world(3);
    let key = section_key();
    assert_eq!(
        w.ask(0, &key, store(put(5, 1), "new")),
        Some(Answer::Stored)
    );
    enqueue(&mut w, 1);
    remove(&mut w, 1);
    let past = w.ask(1, &key, store(put(1, 1), "late"));
    assert_eq!(past, Some(Answer::Past { tag: Tag::ZERO }));
    let past = w.ask(1, &key, read(Some(holder(1)), true));
    assert_eq!(past, Some(Answer::Past { tag: Tag::ZERO }));
}

#[test]
fn a_later_sections_tag_makes_an_earlier_holder_past() {
    let mut w = world(3);
    enqueue(&mut w, 1);
    for i in 0..2 {
        w.ask(i, &section_key(), store(synch(2, 1), "next"));
    }
    let got = run(
        &mut w,
        Op::Get {
            key: section_key(),
            holder: holder(1),
        },
    );
    assert_eq!(
        got,
        Some(OpEnd::Past {
            may_have_taken_effect: false
        })
    );
}

#[test]
fn a_resumed_generation_makes_the_earlier_one_past() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    w.ask(0, &key, store(put(1, 7), "seven"));
    let resumed = Tag::synch(LockRef(1), 1, Epoch::FIRST, Ballot::default(), 1);
    assert!(matches!(
        w.ask(0, &key, fenced(resumed)),
        Some(Answer::Cells { .. })
    ));
    let late = w.ask(0, &key, store(put(1, 8), "late"));
    assert_eq!(late, Some(Answer::Past { tag: resumed }));
}

#[test]
fn an_entry_is_read_while_the_ref_still_waits_here() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 2);
    let waiting = w.ask(0, &key, read(Some(holder(2)), false));
    assert_eq!(waiting, Some(Answer::NotHolder));
    let entering = w.ask(0, &key, read(Some(holder(2)), true));
    assert!(matches!(entering, Some(Answer::Cells { .. })));
}

#[test]
fn past_is_definite_only_when_every_member_refused_the_first_transmission() {
    let mut w = world(3);
    enqueue(&mut w, 1);
    for i in 0..3 {
        w.ask(i, &section_key(), fenced(synch(2, 1)));
    }
    let all = run(&mut w, put_op(put(1, 1), "late"));
    assert_eq!(
        all,
        Some(OpEnd::Past {
            may_have_taken_effect: false
        })
    );

    let mut w = world(3);
    enqueue(&mut w, 1);
    let id = w.start(0, put_op(put(1, 1), "half"));
    w.reach(0, &[2]);
    for i in 0..2 {
        w.ask(i, &section_key(), fenced(synch(2, 1)));
    }
    w.settle();
    let half = w.outcome(id, 0);
    assert_eq!(
        half,
        Some(OpEnd::Past {
            may_have_taken_effect: true
        })
    );
}

#[test]
fn a_synch_finds_the_acknowledged_put_and_stores_it_at_a_quorum() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    let id = w.start(0, put_op(put(1, 1), "acknowledged"));
    w.reach(0, &[1, 2]);
    assert_eq!(w.outcome(id, 0), Some(OpEnd::Stored { tag: put(1, 1) }));
    let tag = synch(2, 1);
    let id = w.start(
        1,
        Op::Synch {
            key: key.clone(),
            tag,
            adopts: true,
        },
    );
    w.reach(1, &[0, 1]);
    w.reach(1, &[0, 1]);
    let value = bytes("acknowledged");
    assert_eq!(w.outcome(id, 1), Some(OpEnd::Synched { value, tag }));
    assert_eq!(w.inspect(0, &key).expect("sound").tag, tag);
}

#[test]
fn a_get_writes_back_what_its_own_section_left_at_one_replica() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    w.start(0, put_op(put(1, 1), "half"));
    w.reach(0, &[0]);
    w.bag.clear();
    let id = w.start(
        1,
        Op::Get {
            key: key.clone(),
            holder: holder(1),
        },
    );
    w.reach(1, &[0, 1]);
    w.reach(1, &[1]);
    let half = Some(OpEnd::Value {
        value: bytes("half"),
        tag: put(1, 1),
    });
    assert_eq!(w.outcome(id, 1), half);
    assert_eq!(w.inspect(1, &key).expect("sound").tag, put(1, 1));
}

/// A get is about to complete what a synch of its own section has left, and a later synch of that
/// section is faster.
#[test]
fn a_get_reads_again_where_a_later_synch_of_its_section_has_fenced() {
    let mut w = world(3);
    let (key, text) = (section_key(), "one");
    enqueue(&mut w, 1);
    w.ask(0, &key, store(synch(1, 1), text));
    let get = Op::Get {
        key: key.clone(),
        holder: holder(1),
    };
    let id = w.start(1, get);
    w.reach(1, &[0, 1]);
    let tag = synch(1, 2);
    for i in [1, 2] {
        w.ask(i, &key, fenced(tag));
        assert_eq!(w.ask(i, &key, store(tag, text)), Some(Answer::Stored));
    }
    w.settle();
    w.advance(w.timing.retry);
    w.settle();
    let value = bytes(text);
    assert_eq!(w.outcome(id, 1), Some(OpEnd::Value { value, tag }));
}

/// A peer may say anything.
#[test]
fn an_answer_to_what_nobody_asked_counts_for_nothing() {
    let mut w = world(3);
    let key = register_key();
    let id = w.start(0, Op::Read { key, moves: false });
    for Letter { from, to, message } in std::mem::take(&mut w.bag) {
        let Message::Ask { call, store, .. } = message else {
            panic!("{message:?}");
        };
        let message = Message::Answer {
            call,
            store,
            seat: Seat(to.0 as u8),
            answer: Answer::Stored,
        };
        let (from, to) = (to, from);
        w.deliver(Letter { from, to, message });
    }
    assert_eq!(w.outcome(id, 0), None);
}

#[test]
fn an_eventual_put_is_refused_while_the_key_is_or_may_be_locked() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    assert_eq!(put_at(&mut w, 0, "x"), Some(Answer::Locked));
    w.nodes[1].applied = 0;
    assert!(matches!(
        put_at(&mut w, 1, "y"),
        Some(Answer::EventualStored { .. })
    ));
    w.nodes[2].applied = 0;
    w.ask(2, &key, store(put(1, 1), "holder's"));
    assert_eq!(put_at(&mut w, 2, "z"), Some(Answer::Locked));
    let mut lagging = world(1);
    lagging.ask(0, &key, fenced(synch(4, 1)));
    assert_eq!(put_at(&mut lagging, 0, "z"), Some(Answer::Locked));
}

#[test]
fn an_eventual_put_is_above_every_section_that_is_over_and_below_the_next() {
    let mut w = world(1);
    let key = section_key();
    enqueue(&mut w, 1);
    w.ask(0, &key, store(put(1, 1), "critical"));
    remove(&mut w, 1);
    put_at(&mut w, 0, "eventual");
    let newer = run(&mut w, Op::EventualGet { key: key.clone() });
    assert_eq!(
        newer,
        Some(OpEnd::Value {
            value: bytes("eventual"),
            tag: Tag::ZERO
        })
    );
    w.history.push(Command::Enqueue);
    apply_all(&mut w);
    let adopted = run(
        &mut w,
        Op::Synch {
            key: key.clone(),
            tag: synch(3, 1),
            adopts: true,
        },
    );
    assert_eq!(adopted, Some(synched("eventual", synch(3, 1))));
    let kept = w.inspect(0, &key).expect("sound").eventual;
    assert!(kept.is_some(), "section 3 has written nothing");
    w.ask(0, &key, store(put(3, 1), "third"));
    assert_eq!(
        w.inspect(0, &key).expect("sound").eventual,
        kept,
        "hidden below section 3"
    );
    let third = run(&mut w, Op::EventualGet { key: key.clone() });
    assert_eq!(third, Some(value("third")));
    w.ask(0, &key, Ask::Settle { tag: synch(3, 1) });
    assert_eq!(w.inspect(0, &key).expect("sound").eventual, kept);
    w.ask(0, &key, Ask::Settle { tag: put(3, 1) });
    assert_eq!(
        w.inspect(0, &key).expect("sound").eventual,
        None,
        "the put of section 3 is final"
    );
    let late = EventualTag {
        applied: 2,
        clock: 1 << 50,
        ..EventualTag::default()
    };
    w.ask(
        0,
        &key,
        Ask::EventualSpread {
            tag: late,
            content: eventual_content("late"),
        },
    );
    assert_eq!(w.inspect(0, &key).expect("sound").eventual, None);
}

#[test]
fn an_entry_tells_of_an_eventual_value_only_where_it_must_be_adopted() {
    let mut w = world(3);
    let key = section_key();
    put_at(&mut w, 0, "eventual");
    w.settle();
    enqueue(&mut w, 1);
    let entry = run(
        &mut w,
        Op::Entry {
            key: key.clone(),
            holder: Some(holder(1)),
        },
    );
    let Some(OpEnd::Entry {
        value: None,
        eventual: Some((_, value)),
        ..
    }) = entry
    else {
        panic!("{entry:?}");
    };
    assert_eq!(value, bytes("eventual"));
    w.ask(1, &key, store(synch(1, 1), "newer"));
    w.ask(2, &key, store(synch(1, 1), "newer"));
    let entry = run(
        &mut w,
        Op::Entry {
            key,
            holder: Some(holder(1)),
        },
    );
    assert!(
        matches!(entry, Some(OpEnd::Entry { eventual: None, .. })),
        "{entry:?}"
    );
}

#[test]
fn eventual_tags_grow_although_the_wall_clock_goes_back_and_the_node_restarts() {
    let mut w = world(3);
    let key = section_key();
    let mut last = EventualTag::default();
    for round in 0..6 {
        w.wall = 1_000_000 - round * 100_000;
        let Some(Answer::EventualStored { tag }) = put_at(&mut w, 0, "x") else {
            panic!("stored");
        };
        assert!(tag > last);
        last = tag;
        if round % 2 == 1 {
            w.crash(0);
        }
    }
    w.settle();
    assert_eq!(
        w.inspect(2, &key).expect("sound").eventual,
        Some(last),
        "spread to the others"
    );
}

#[test]
fn an_eventual_get_goes_on_to_the_next_member_when_the_nearest_is_silent() {
    let mut w = world(3);
    let key = section_key();
    put_at(&mut w, 1, "x");
    let id = w.start(0, Op::EventualGet { key });
    w.bag.clear();
    w.advance(w.timing.retry);
    w.settle();
    let value = Some(OpEnd::Value {
        value: bytes("x"),
        tag: Tag::ZERO,
    });
    assert_eq!(w.outcome(id, 0), value);
}

#[test]
fn a_damaged_record_voids_the_answer_and_is_learnt_from_the_others() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    run(&mut w, put_op(put(1, 1), "one"));
    assert!(w.damage(0, |_| true) > 0);
    assert_eq!(w.ask(0, &key, read(None, false)), Some(Answer::Void));
    assert_eq!(w.ask(0, &key, store(put(1, 2), "two")), Some(Answer::Void));
    w.advance(w.timing.lengthened(w.timing.request));
    let asked = w.bag.len();
    w.advance(1);
    assert_eq!(w.bag.len(), asked, "the others have time to answer");
    w.settle();
    assert_eq!(w.nodes[0].replica.counts().repairs, 1);
    let cells = w.ask(0, &key, read(None, false));
    assert!(matches!(cells, Some(Answer::Cells { versions, .. }) if versions[0].tag == put(1, 1)));
}

/// The others do not know the forgotten fence yet; copying them at once would lose the put.
#[test]
fn a_forgotten_promise_is_waited_out_before_the_record_is_learnt_again() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    for i in 0..3 {
        w.ask(i, &key, store(put(1, 1), "old"));
    }
    let tag = synch(2, 1);
    let takes_over = w.start(
        1,
        Op::Synch {
            key: key.clone(),
            tag,
            adopts: true,
        },
    );
    w.reach(1, &[0]);
    w.damage(0, |_| true);
    assert_eq!(w.ask(0, &key, read(None, false)), Some(Answer::Void));
    w.advance(2 * w.timing.retry);
    while w.deliver_one(|l| l.from.0 < 3 && l.to.0 < 3) {
        (0..3).for_each(|i| w.flush(i));
    }
    let preempted = w.start(0, put_op(put(1, 2), "new"));
    w.reach(0, &[0, 2]);
    assert_eq!(
        w.outcome(preempted, 0),
        None,
        "acknowledged over a forgotten fence"
    );
    w.reach(1, &[1, 2]);
    w.reach(1, &[1, 2]);
    let value = bytes("new");
    assert_ne!(
        w.outcome(takes_over, 1),
        Some(OpEnd::Synched { value, tag })
    );
    w.settle();
    w.advance(w.timing.retry);
    let past = Some(OpEnd::Past {
        may_have_taken_effect: true,
    });
    assert_eq!(w.outcome(preempted, 0), past);
}

#[test]
fn a_retry_heals_a_damaged_content_under_the_same_tag() {
    let mut w = world(3);
    let key = section_key();
    enqueue(&mut w, 1);
    w.ask(0, &key, store(put(1, 1), "one"));
    w.damage(0, |record| record[13] == 1);
    assert_eq!(
        w.ask(0, &key, store(put(1, 1), "one")),
        Some(Answer::Stored)
    );
    assert!(matches!(
        w.ask(0, &key, read(None, false)),
        Some(Answer::Cells { .. })
    ));
}

#[test]
fn a_repeated_answer_counts_once() {
    let mut w = world(3);
    let id = w.start(
        0,
        Op::Read {
            key: register_key(),
            moves: false,
        },
    );
    assert!(w.deliver_one(|l| l.to.0 == 0));
    w.flush(0);
    let answer = w
        .bag
        .iter()
        .find(|l| l.from.0 == 0)
        .cloned()
        .expect("answered");
    w.deliver(answer.clone());
    w.deliver(answer);
    assert_eq!(w.outcome(id, 0), None);
}

#[test]
fn a_write_that_is_retried_completes_its_first_tag() {
    let mut w = world(3);
    let key = register_key();
    let write = |writer| Op::Write {
        key: register_key(),
        writer,
        value: bytes("mine"),
    };
    w.start(0, write(5));
    w.reach(0, &[0, 1]);
    w.reach(0, &[0]);
    let first = w.inspect(0, &key).expect("sound").tag;
    assert_eq!(first.writer, 5);
    w.bag.clear();
    let id = w.start(1, write(5));
    w.reach(1, &[0, 2]);
    w.reach(1, &[2]);
    w.settle();
    assert_eq!(w.outcome(id, 1), Some(OpEnd::Stored { tag: first }));
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads() {
    let mut w = world(3);
    enqueue(&mut w, 1);
    run(&mut w, put_op(put(1, 1), "one"));
    w.nodes.iter_mut().for_each(|n| n.writable = false);
    let got = run(
        &mut w,
        Op::Get {
            key: section_key(),
            holder: holder(1),
        },
    );
    assert_eq!(
        got,
        Some(OpEnd::Value {
            value: bytes("one"),
            tag: put(1, 1)
        })
    );
    let again = run(&mut w, put_op(put(1, 1), "one"));
    assert_eq!(again, Some(OpEnd::Stored { tag: put(1, 1) }));
    let id = w.start(0, put_op(put(1, 2), "two"));
    w.settle();
    w.advance(w.timing.retry);
    assert!(matches!(w.outcome(id, 0), Some(OpEnd::DiskFull { .. })));
    assert_eq!(put_at(&mut w, 0, "x"), Some(Answer::DiskFull));
}

#[test]
fn without_a_quorum_an_operation_ends_at_its_deadline() {
    let mut w = world(3);
    enqueue(&mut w, 1);
    let write = w.start(0, put_op(put(1, 1), "one"));
    let read = w.start(
        1,
        Op::Get {
            key: section_key(),
            holder: holder(1),
        },
    );
    w.reach(0, &[0]);
    w.reach(1, &[0]);
    w.advance(w.timing.request);
    let unavailable = |may| {
        Some(OpEnd::Unavailable {
            may_have_taken_effect: may,
        })
    };
    assert_eq!(w.outcome(write, 0), unavailable(true));
    assert_eq!(w.outcome(read, 1), unavailable(false));
    assert!(
        w.callers
            .iter()
            .all(|c| c.under_way().next().is_none() && c.wake().is_none())
    );
}

#[test]
fn only_the_silent_are_asked_again() {
    let mut w = world(3);
    w.start(
        0,
        Op::Read {
            key: register_key(),
            moves: false,
        },
    );
    w.reach(0, &[2]);
    w.bag.clear();
    w.advance(w.timing.retry);
    let mut asked: Vec<u32> = w.bag.iter().map(|l| l.to.0).collect();
    asked.sort_unstable();
    assert_eq!(asked, [0, 1]);
}

#[test]
fn what_is_too_large_or_for_other_keys_is_neither_stored_nor_answered() {
    let mut w = world(1);
    w.limits.value_most = 8;
    assert_eq!(
        w.ask(0, &section_key(), store(put(1, 1), "much too large")),
        None
    );
    assert_eq!(w.ask(0, &register_key(), store(put(1, 1), "x")), None);
    let put = eventual_put(&mut w, "x");
    assert_eq!(w.ask(0, &register_key(), put), None);
    let counts = w.nodes[0].replica.counts();
    assert_eq!((counts.ignored_limit, counts.ignored_purpose), (1, 2));
    assert!(w.cells(0).is_empty());
}

#[test]
fn one_replica_alone_is_a_quorum() {
    let mut w = world(1);
    let write = Op::Write {
        key: register_key(),
        writer: 9,
        value: bytes("x"),
    };
    assert!(matches!(run(&mut w, write), Some(OpEnd::Stored { .. })));
    let read = run(
        &mut w,
        Op::Read {
            key: register_key(),
            moves: false,
        },
    );
    assert!(matches!(read, Some(OpEnd::Value { value, .. }) if value == bytes("x")));
}

#[test]
fn keys_lists_live_keys_in_order() {
    let mut w = world(1);
    for name in ["b", "a", "c", "other"] {
        let mut key = section_key();
        key.key = Bytes::copy_from_slice(name.as_bytes());
        let content = policy::whole_copy(&key, Tag::ZERO, &Bytes::from_static(b"x"));
        let put = Ask::EventualPut {
            name: w.name(),
            content,
        };
        w.ask(0, &key, put);
        if name == "b" {
            let (name, content) = (w.name(), Content::Tombstone);
            w.ask(0, &key, Ask::EventualPut { name, content });
        }
    }
    let list = |after: Option<&'static [u8]>, limit, deleted| {
        let range = KeyRange {
            keyspace: Keyspace::SECTIONS,
            prefix: Bytes::new(),
            after: after.map(Bytes::from_static),
            limit,
            deleted,
        };
        let listed = keys(&w.nodes[0].disk, STORE, &range).into_iter();
        listed.map(|of| (of.key, of.live)).collect::<Vec<_>>()
    };
    let [a, b, c, other] = ["a", "b", "c", "other"].map(Bytes::from);
    let live = |key: &Bytes| (key.clone(), true);
    assert_eq!(list(None, 9, false), [live(&a), live(&c), live(&other)]);
    assert_eq!(list(None, 3, true), [live(&a), (b, false), live(&c)]);
    assert_eq!(list(Some(b"a"), 1, false), [live(&c)]);
}

pub(crate) fn value(text: &'static str) -> OpEnd {
    OpEnd::Value {
        value: Some(Bytes::from_static(text.as_bytes())),
        tag: Tag::ZERO,
    }
}

pub(crate) fn synched(text: &'static str, tag: Tag) -> OpEnd {
    OpEnd::Synched {
        value: Some(Bytes::from_static(text.as_bytes())),
        tag,
    }
}
