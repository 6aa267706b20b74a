//! Rules of tags that are times, by name: clocks that were wrong, and what they have left behind.

use crate::world::{BEGINNING, BOUND, Clock, World, register_key};
use bytes::Bytes;
use fermata_protocol::base::{
    BOUND_MAX, EventualTag, Interval, LockRef, NodeName, Now, Planted, StoragePolicy, Tag, Terms,
    Timing, WALL_BOUND,
};
use fermata_protocol::node::clock_watch::ClockWatch;
use fermata_protocol::register::{Answer, Ask, Op, OpEnd, policy};

/// Values of every length are coded.
const CODED: StoragePolicy = StoragePolicy::Coded(Terms {
    faults: 1,
    delta: 3,
    whole_below: 0,
});

/// A tag that is a time, microseconds since 1970.
fn at(sequence: u64, writer: u128) -> Tag {
    Tag {
        lock_ref: LockRef(0),
        sequence,
        writer,
    }
}

/// The store of a value of this text at member `i`.
fn store_at(w: &mut World, i: usize, tag: Tag, text: &str) -> Option<Answer> {
    let (key, place) = (register_key(), w.place());
    let value = Bytes::copy_from_slice(text.as_bytes());
    let mut parts = policy::encode(w.storage, place.shape(), &key, tag, Some(&value));
    let ask = Ask::Store {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: parts.swap_remove(i),
    };
    w.ask(i, &key, ask)
}

fn tags(w: &mut World, i: usize) -> Vec<Tag> {
    match w.ask(i, &register_key(), Ask::Survey) {
        Some(Answer::Surveyed(held)) => held.tags,
        other => panic!("no survey: {other:?}"),
    }
}

/// Its bound is the widest and its error the greatest that it can be: true time is the latest that
/// it says.
fn slowest(monotonic: u64) -> Now {
    let wall = BEGINNING + monotonic;
    Now {
        monotonic,
        wall,
        interval: Some(Interval {
            earliest: wall - 2 * BOUND_MAX,
            latest: wall,
        }),
    }
}

/// How long after a proof at `proven` a right clock is not relied on; what it says then.
fn quiet_time(proven: u64) -> (u64, Interval) {
    const STEP: u64 = 500_000;
    let (mut watch, timing) = (ClockWatch::default(), Timing::default());
    let before = watch.read(slowest(proven), &timing, Planted::NONE);
    assert!(before.interval.is_some(), "it is relied on");
    let far = Interval {
        earliest: before.wall + WALL_BOUND,
        latest: before.wall + WALL_BOUND,
    };
    watch.on_frame(NodeName(3), Some(far), slowest(proven), &timing);
    for step in 1..10_000 {
        let now = slowest(proven + step * STEP);
        if let Some(interval) = watch.read(now, &timing, Planted::NONE).interval {
            return (step * STEP, interval);
        }
    }
    panic!("a clock is relied on again");
}

/// While nobody relies on its clock replicas judge by their wall clocks, and take times that are
/// far ahead. When clocks are relied on again the last of those has passed, by the slowest clock
/// too: else an acknowledged write of one round would be outranked by what came before it.
#[test]
fn a_clock_is_relied_on_again_when_what_was_taken_without_it_has_passed() {
    let mut w = World::new(3, 1, 1, Planted::NONE);
    w.storage = CODED;
    w.wall = slowest(w.now).wall;
    let proven = w.now;
    let furthest = w.wall + WALL_BOUND;
    for i in 0..3 {
        let beyond = store_at(&mut w, i, at(furthest + 1, 9), "beyond");
        assert_eq!(beyond, Some(Answer::ClockSkew));
        let far = store_at(&mut w, i, at(furthest, 9), "far ahead");
        assert_eq!(far, Some(Answer::Stored));
    }
    let (quiet, interval) = quiet_time(proven);
    w.advance(quiet);
    w.caller_clocks[0] = Some(Clock {
        offset: -(BOUND as i64),
        drift: 0,
        sound: true,
    });
    let (key, value) = (register_key(), Some(Bytes::from_static(b"later")));
    let write = Op::Write {
        key: key.clone(),
        writer: 1,
        value: value.clone(),
    };
    let written = w.run_without(0, write, &[]);
    assert!(matches!(written, OpEnd::Stored { .. }), "{written:?}");
    let read = w.run_without(0, Op::Read { key, moves: false }, &[]);
    assert!(
        matches!(&read, OpEnd::Value { value: found, .. } if *found == value),
        "{read:?}"
    );
    // Not before the last of them has passed, and no longer than it must be.
    assert_eq!(interval.earliest, furthest, "after {quiet} microseconds");
}

/// A member's clock was ahead, and so was a writer's: what that wrote lies far above what any right
/// clock gives. A time below it is refused, for nobody would read it, until that time has come;
/// what is counted, from what is seen, outranks it or is older.
#[test]
fn a_time_below_one_that_cannot_have_come_is_refused_until_it_has() {
    const AHEAD: u64 = 900_000_000;
    let clock = |offset| {
        Some(Clock {
            offset,
            drift: 0,
            sound: false,
        })
    };
    for storage in [StoragePolicy::Replicated, CODED] {
        let mut w = World::new(3, 1, 1, Planted::NONE);
        w.storage = storage;
        w.node_clocks[0] = clock(AHEAD as i64);
        let wrong = at(w.wall + AHEAD, 1);
        let taken = store_at(&mut w, 0, wrong, "ahead");
        assert_eq!(taken, Some(Answer::Stored));
        w.node_clocks[0] = clock(0);
        let right = at(w.wall, 2);
        let refused = store_at(&mut w, 0, right, "right");
        assert_eq!(refused, Some(Answer::ClockSkew), "{storage:?}");
        assert_eq!(tags(&mut w, 0), [wrong], "{storage:?}: it was stored");
        let counted = store_at(&mut w, 0, at(5, 3), "counted");
        assert_eq!(counted, Some(Answer::Stored), "{storage:?}");
        w.advance(AHEAD);
        let late = store_at(&mut w, 0, right, "right");
        assert_eq!(late, Some(Answer::Stored), "{storage:?}");
    }
}
