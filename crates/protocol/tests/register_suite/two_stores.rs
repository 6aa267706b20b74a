//! Registers over two stores: the schedule for each rule that chance seldom meets (V1 to V5, V12).

use crate::atomicity::terms;
use crate::moving::value_of;
use crate::rules::{enqueue, put, put_op, remove, synch, value};
use crate::world::{BOUND, Clock, World, fenced, register_key, section_key, view_of};
use fermata_protocol::base::{Epoch, EventualTag, Planted, Seat, StoragePolicy, Tag};
use fermata_protocol::register::{Answer, Ask, Holder, Op, OpEnd, OpId, Place, StoreAsk, policy};

/// Nodes 0 to 2 are the first epoch, 3 to 5 the second, to which the first is a source; of the
/// first `value` is at a quorum under a tag of its own, which is a time that has not come.
struct Two {
    world: World,
    /// The tag of the value.
    tag: Tag,
}

const SECOND: Epoch = Epoch(2);
const THIRD: Epoch = Epoch(3);
/// So far ahead is the tag of the value, microseconds.
const AHEAD: u64 = BOUND / 2;

fn two(planted: Planted) -> Two {
    let mut world = World::new(6, 3, 1, planted);
    world.storage = StoragePolicy::Oreas(terms(1, 1));
    world.views = vec![view_of(Epoch::FIRST, 0..3), view_of(SECOND, 3..6)];
    world.created = vec![(0..3).collect(), (3..6).collect()];
    let slow = Clock {
        offset: -(BOUND as i64),
        drift: 0,
        sound: true,
    };
    world.node_clocks = vec![Some(slow); 6];
    world.caller_clocks = vec![Some(slow); 3];
    let tag = Tag {
        sequence: world.wall + AHEAD,
        writer: 7,
        ..Tag::ZERO
    };
    for i in 0..2 {
        let store = store_of(&world, i, tag, 7);
        world.ask(i, &register_key(), store);
    }
    Two { world, tag }
}

/// Stores a writer's value at a seat.
fn store_of(world: &World, seat: usize, tag: Tag, writer: u128) -> Ask {
    let members = world.views[0].len();
    let shape = world.storage.shape(members).expect("it fits");
    let (key, value) = (register_key(), value_of(writer));
    let mut parts = policy::encode(world.storage, shape, &key, tag, Some(&value));
    Ask::Store {
        tag,
        origin: EventualTag::default(),
        content: parts.swap_remove(seat),
    }
}

impl Two {
    /// The tag of a write that was begun above the value, and of a sweep that passes it over.
    fn passed_over(&self) -> (Tag, Tag) {
        let write = Tag {
            sequence: self.tag.sequence + 1,
            writer: 9,
            ..Tag::ZERO
        };
        let sweep = Tag {
            sequence: write.sequence + 1,
            ..self.tag
        };
        (write, sweep)
    }

    fn seal(&mut self) {
        for i in 0..3 {
            self.world.seal_in(Epoch::FIRST, i, SECOND);
        }
    }

    fn start(&mut self, caller: usize, op: Op) -> OpId {
        let place = self.world.place_in(SECOND, self.world.closed.len());
        self.world.start_at(caller, op, &place)
    }

    /// Everything reaches everybody until the operation has ended.
    fn end(&mut self, caller: usize, id: OpId) -> OpEnd {
        for _ in 0..100 {
            self.world.settle();
            if let Some(outcome) = self.world.outcome(id, caller) {
                return outcome;
            }
            self.world.advance(150_000);
        }
        panic!("an operation ends at its deadline");
    }

    /// What a reader that moves the key ends with where these nodes are heard.
    fn walk(&mut self, place: &Place, heard: &[usize]) -> OpEnd {
        let key = register_key();
        let walk = Op::Read { key, moves: true };
        let walk = self.world.start_at(0, walk, place);
        self.end_hearing(0, walk, heard)
    }

    /// The same as [`Two::end`] where these nodes alone are heard.
    fn end_hearing(&mut self, caller: usize, id: OpId, heard: &[usize]) -> OpEnd {
        for _ in 0..100 {
            self.world.reach(caller, heard);
            if let Some(end) = self.world.outcome(id, caller) {
                return end;
            }
            self.world.advance(150_000);
        }
        panic!("an operation ends at its deadline");
    }

    fn read(&mut self, caller: usize) -> OpEnd {
        let (key, moves) = (register_key(), false);
        let id = self.start(caller, Op::Read { key, moves });
        self.end(caller, id)
    }

    fn close(&mut self) {
        self.world.closed.push(Epoch::FIRST);
        self.world.known = vec![1; self.world.known.len()];
    }

    fn write(&mut self, caller: usize) -> OpEnd {
        let id = self.start(
            caller,
            Op::Write {
                key: register_key(),
                writer: 9,
                value: Some(value_of(9)),
            },
        );
        self.end(caller, id)
    }
}

/// A read has heard the members of its epoch, to which nothing has moved yet. Then everything
/// moves, and the sources are deleted, before it asks them.
fn read_beside_a_delete(planted: Planted) -> OpEnd {
    let mut two = two(planted);
    two.seal();
    let read = || Op::Read {
        key: register_key(),
        moves: false,
    };
    let late = two.start(0, read());
    two.world.reach(0, &[4, 5]);
    let walk = two.start(1, read());
    for _ in 0..5 {
        two.world.reach(1, &[0, 1, 2, 3, 4, 5]);
        two.world.advance(BOUND);
    }
    let walked = two.world.outcome(walk, 1);
    assert!(
        matches!(walked, Some(OpEnd::Value { value: Some(_), .. })),
        "{walked:?}"
    );
    two.close();
    for i in 0..3 {
        let next = SECOND;
        two.world
            .tell_in(Epoch::FIRST, i, StoreAsk::Delete { next });
        two.world.flush(i);
    }
    two.world.reach(0, &[0, 1, 2]);
    two.end(0, late)
}

#[test]
fn a_deleted_store_is_not_an_empty_one() {
    let end = read_beside_a_delete(Planted::NONE);
    assert!(
        matches!(end, OpEnd::Value { value: Some(_), .. }),
        "{end:?}"
    );
}

/// A sweep in the first epoch has promised at a quorum that no write below its tag counts. The
/// value moves. Then somebody writes in one round, by a clock that is slow.
fn write_after_a_sweep_has_moved(planted: Planted) -> OpEnd {
    let mut two = two(planted);
    let fence = Tag {
        sequence: two.tag.sequence + 1,
        ..two.tag
    };
    let store = store_of(&two.world, 2, two.tag, 7);
    two.world.ask(2, &register_key(), store);
    for i in 0..2 {
        two.world.ask(i, &register_key(), fenced(fence));
    }
    two.seal();
    // All have the value, so that nobody sweeps; a walk carries it all the same.
    two.start(
        0,
        Op::Read {
            key: register_key(),
            moves: true,
        },
    );
    for _ in 0..4 {
        two.world.reach(0, &[0, 1, 2, 3, 4, 5]);
    }
    let carried = |w: &mut World, i| {
        let answer = w.ask_in(SECOND, i, &register_key(), fenced(Tag::ZERO));
        matches!(answer, Some(Answer::Past { tag }) if tag >= two.tag)
    };
    assert!((3..6).all(|i| carried(&mut two.world, i)), "it has moved");
    two.world.replace_caller(0);
    two.close();
    two.write(1)
}

#[test]
fn a_promise_moves_with_the_value() {
    let end = write_after_a_sweep_has_moved(Planted::NONE);
    assert!(matches!(end, OpEnd::Past { .. }), "{end:?}");
}

/// A write beside a source, by a slow clock, after the value there had been written: whether above
/// it.
fn write_beside_a_source(planted: Planted) -> bool {
    let mut two = two(planted);
    two.seal();
    match two.write(1) {
        OpEnd::Stored { tag } => tag > two.tag,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_beside_a_source_is_above_what_is_there() {
    assert!(write_beside_a_source(Planted::NONE));
}

/// A write that has reached one member is passed over by a sweep, which returns what it finds; then
/// the epoch ends, and the write goes on.
fn write_that_was_passed_over(planted: Planted) -> OpEnd {
    let mut two = two(planted);
    let (tag, fence) = two.passed_over();
    let store = store_of(&two.world, 2, tag, 7);
    two.world.ask(2, &register_key(), store);
    for i in 0..2 {
        two.world.ask(i, &register_key(), fenced(fence));
        let store = store_of(&two.world, i, fence, 7);
        two.world.ask(i, &register_key(), store);
    }
    two.seal();
    let id = two.start(
        1,
        Op::Cross {
            key: register_key(),
            tag,
            value: Some(value_of(9)),
        },
    );
    two.end(1, id)
}

#[test]
fn a_write_that_was_passed_over_does_not_go_on() {
    let end = write_that_was_passed_over(Planted::NONE);
    let past = OpEnd::Past {
        may_have_taken_effect: true,
    };
    assert_eq!(end, past);
}

/// Such a write has been stored by members before the sweep's promise moves to them; then the
/// source is closed, and deleted or silent.
fn write_that_was_stored_before(deleted: bool, planted: Planted) -> OpEnd {
    let mut two = two(planted);
    let (tag, fence) = two.passed_over();
    let key = register_key();
    for i in 0..2 {
        two.world.ask(i, &key, fenced(fence));
        let store = store_of(&two.world, i, fence, 7);
        two.world.ask(i, &key, store);
    }
    two.seal();
    let cross = Op::Cross {
        key: key.clone(),
        tag,
        value: Some(value_of(9)),
    };
    let id = two.start(1, cross);
    two.world.reach(1, &[3, 4, 5]);
    let place = two.world.place_in(SECOND, 0);
    let walked = two.walk(&place, &[0, 1, 2, 3, 4, 5]);
    assert!(matches!(walked, OpEnd::Value { .. }), "{walked:?}");
    two.close();
    for i in (0..3).filter(|_| deleted) {
        let next = SECOND;
        two.world
            .tell_in(Epoch::FIRST, i, StoreAsk::Delete { next });
        two.world.flush(i);
    }
    let heard = if deleted { 0..6 } else { 3..6 };
    two.end_hearing(1, id, &heard.collect::<Vec<usize>>())
}

#[test]
fn what_was_stored_before_a_promise_came_does_not_count() {
    let past = OpEnd::Past {
        may_have_taken_effect: true,
    };
    for deleted in [true, false] {
        let end = write_that_was_stored_before(deleted, Planted::NONE);
        assert_eq!(end, past, "deleted: {deleted}");
    }
}

/// A write that crosses is at all members when another one ends above it; no clock tells its caller
/// that its own time has passed, so that it sweeps. What is read then.
fn read_after_a_crossing(planted: Planted) -> OpEnd {
    let mut two = two(planted);
    let (tag, _) = two.passed_over();
    two.world.caller_clocks[1] = None;
    two.seal();
    let key = register_key();
    let cross = Op::Cross {
        key: key.clone(),
        tag,
        value: Some(value_of(9)),
    };
    let id = two.start(1, cross);
    two.world.reach(1, &[0, 1, 2, 3, 4, 5]);
    let later = Tag {
        sequence: tag.sequence + 5,
        writer: 8,
        ..tag
    };
    for i in 3..6 {
        let store = store_of(&two.world, i - 3, later, 8);
        two.world.ask_in(SECOND, i, &key, store);
    }
    let mut rounds = 0..8;
    let ended = rounds.find_map(|_| {
        two.world.reach(1, &[0, 1, 2, 3, 4, 5]);
        two.world.outcome(id, 1)
    });
    assert!(ended.is_none_or(|end| end == OpEnd::Stored { tag }));
    two.world.replace_caller(1);
    two.read(0)
}

#[test]
fn a_write_that_crosses_is_stored_once() {
    let end = read_after_a_crossing(Planted::NONE);
    let latest = Some(value_of(8));
    assert!(
        matches!(&end, OpEnd::Value { value, .. } if *value == latest),
        "{end:?}"
    );
}

/// Three members and three that follow them, by sound clocks, with a value at two of the former.
fn two_by_sound_clocks(planted: Planted) -> Two {
    let mut world = World::new(6, 3, 1, planted);
    world.storage = StoragePolicy::Coded(terms(1, 1));
    world.views = vec![view_of(Epoch::FIRST, 0..3), view_of(SECOND, 3..6)];
    world.created = vec![(0..3).collect(), (3..6).collect()];
    let tag = Tag {
        sequence: 7,
        writer: 7,
        ..Tag::ZERO
    };
    for i in 0..2 {
        world.ask(i, &register_key(), store_of(&world, i, tag, 7));
    }
    Two { world, tag }
}

/// A value is at C alone. A sweep has missed it, and has stored the one before at A alone when the
/// epoch ends. What two reads return, of which the first does not hear A, and the second does.
fn reads_beside_a_sweep(planted: Planted) -> [OpEnd; 2] {
    let mut two = two_by_sound_clocks(planted);
    let (passed, sweep) = two.passed_over();
    let key = register_key();
    let store = store_of(&two.world, 2, passed, 9);
    two.world.ask(2, &key, store);
    for i in 0..2 {
        two.world.ask(i, &key, fenced(sweep));
    }
    let store = store_of(&two.world, 0, sweep, 7);
    two.world.ask(0, &key, store);
    two.seal();
    [(1, [3, 4]), (0, [4, 5])].map(|(caller, present)| {
        let read = Op::Read {
            key: key.clone(),
            moves: false,
        };
        let id = two.start(caller, read);
        two.world.reach(caller, &[caller, caller + 1]);
        let end = (0..4).find_map(|_| {
            two.world.reach(caller, &present);
            two.world.outcome(id, caller)
        });
        // Its mark is told to nobody.
        two.world.replace_caller(caller);
        end.expect("it hears enough")
    })
}

#[test]
fn what_a_sweep_has_passed_over_is_swept_before_it_is_returned() {
    let [first, second] = reads_beside_a_sweep(Planted::NONE);
    let value = |end: &OpEnd| match end {
        OpEnd::Value { value, .. } => value.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(&first), value(&second), "{first:?}, {second:?}");
}

/// A write has heard one member before the key came there, and then one that knows of the mark
/// alone. What became of it, and of a read after it.
fn write_beside_a_mark(planted: Planted) -> (Tag, Option<OpEnd>, OpEnd) {
    let mut two = two_by_sound_clocks(planted);
    let tag = two.tag;
    two.seal();
    let write = two.start(
        0,
        Op::Write {
            key: register_key(),
            writer: 9,
            value: Some(value_of(9)),
        },
    );
    two.world.reach(0, &[3]);
    let read = |moves| Op::Read {
        key: register_key(),
        moves,
    };
    let walk = two.start(1, read(true));
    for _ in 0..5 {
        two.world.reach(1, &[0, 1, 3, 5]);
    }
    let walked = two.world.outcome(walk, 1);
    assert!(
        matches!(walked, Some(OpEnd::Value { value: Some(_), .. })),
        "{walked:?}"
    );
    two.world
        .ask_in(SECOND, 4, &register_key(), Ask::MarkMoved { tag });
    for _ in 0..5 {
        two.world.reach(0, &[3, 4]);
    }
    let written = two.world.outcome(write, 0);
    let later = two.start(2, read(false));
    let later = two.end(2, later);
    (tag, written, later)
}

#[test]
fn a_write_that_meets_a_mark_is_above_what_has_moved() {
    let (moved, written, _) = write_beside_a_mark(Planted::NONE);
    assert!(matches!(written, Some(OpEnd::Stored { tag }) if tag > moved));
}

/// The last value of a section that is over is at two members of the first epoch, and another ref
/// holds.
fn two_of_sections(planted: Planted) -> Two {
    let mut two = Two {
        world: World::new(6, 3, 1, planted),
        tag: put(1, 1),
    };
    two.world.views = vec![view_of(Epoch::FIRST, 0..3), view_of(SECOND, 3..6)];
    two.world.created = vec![(0..3).collect(), (3..6).collect()];
    enqueue(&mut two.world, 2);
    let place = two.world.place_in(Epoch::FIRST, 0);
    let written = two.world.start_at(0, put_op(two.tag, "last"), &place);
    two.world.reach(0, &[0, 1]);
    let stored = Some(OpEnd::Stored { tag: two.tag });
    assert_eq!(two.world.outcome(written, 0), stored);
    two.world.bag.clear();
    remove(&mut two.world, 1);
    two.seal();
    two
}

/// A synch for the holder has died that had fenced so many members of the second epoch. What the
/// read of a grant ends with.
fn read_of_a_grant(fenced_at: usize, planted: Planted) -> OpEnd {
    let (mut two, key) = (two_of_sections(planted), section_key());
    for i in (3..6).take(fenced_at) {
        two.world.ask_in(SECOND, i, &key, fenced(synch(2, 1)));
    }
    let holder = Some(Holder::of(put(2, 1)));
    let id = two.start(1, Op::Entry { key, holder });
    two.end(1, id)
}

#[test]
fn a_grant_reads_through_what_has_not_moved() {
    let entry = OpEnd::Entry {
        value: Some("last".into()),
        tag: put(1, 1),
        eventual: None,
    };
    assert_eq!(read_of_a_grant(0, Planted::NONE), entry);
}

/// Nobody of the second epoch was there before: the first one that says so has said it for all.
#[test]
fn who_was_in_no_source_is_not_asked_of_what_has_not_moved() {
    let mut two = two_of_sections(Planted::NONE);
    let get = two.start(1, Op::EventualGet { key: section_key() });
    two.world.reach(1, &[3]);
    two.world.reach(1, &[0, 1, 3, 4]);
    assert_eq!(two.world.outcome(get, 1), Some(value("last")));
}

/// The holder was granted by a read, and then a synch in its name has died that had fenced the
/// second epoch. What its get ends with, which hears one member of the first with the value, and
/// one without it.
fn get_beside_a_dead_synch(planted: Planted) -> OpEnd {
    let (mut two, key) = (two_of_sections(planted), section_key());
    for i in 3..6 {
        two.world.ask_in(SECOND, i, &key, fenced(synch(2, 1)));
    }
    let holder = Holder::of(put(2, 1));
    let id = two.start(1, Op::Get { key, holder });
    two.end_hearing(1, id, &[1, 2, 3, 4, 5])
}

#[test]
fn a_holder_gets_what_a_dead_synch_keeps_from_moving() {
    let found = OpEnd::Value {
        value: Some("last".into()),
        tag: put(1, 1),
    };
    assert_eq!(get_beside_a_dead_synch(Planted::NONE), found);
}

#[test]
fn what_a_dead_synch_keeps_from_moving_is_synched_before_it_is_granted() {
    assert_eq!(read_of_a_grant(3, Planted::NONE), OpEnd::Unmoved);
}

#[cfg(feature = "planted-bugs")]
/// Five members and five that follow them: a value at all of the former, and then a dead write at
/// each, as many as leave no two parts of anything. What a walk ends with that hears all but the
/// first `away` of them, of which `out` are known to be out of the cluster.
fn walk_over_dead_writes(away: usize, out: usize, planted: Planted) -> (Two, OpEnd) {
    let mut world = World::new(15, 3, 1, planted);
    world.storage = StoragePolicy::TreasOpt(terms(1, 1));
    let views = [(Epoch::FIRST, 0..5), (SECOND, 5..10), (THIRD, 10..15)];
    world.views = views.map(|(epoch, nodes)| view_of(epoch, nodes)).into();
    world.created = vec![(0..5).collect(), (5..10).collect(), (10..15).collect()];
    let tag = |sequence| Tag {
        sequence,
        writer: u128::from(sequence),
        ..Tag::ZERO
    };
    for seat in 0..5 {
        for sequence in [1, 2 + seat as u64] {
            let store = store_of(&world, seat, tag(sequence), sequence.into());
            world.ask(seat, &register_key(), store);
        }
        world.seal_in(Epoch::FIRST, seat, SECOND);
    }
    let mut place = world.place_in(SECOND, 0);
    place.sources[0].out = (0..out).map(|seat| Seat(seat as u8)).collect();
    let mut two = Two { world, tag: tag(6) };
    let end = two.walk(&place, &(away..10).collect::<Vec<_>>());
    (two, end)
}

/// V12: it moves as what it is, once nobody else is to be heard; a write ends that.
#[test]
fn what_nobody_can_read_moves_and_goes_on_with_a_write() {
    for away in 0..2 {
        let (mut two, end) = walk_over_dead_writes(away, away, Planted::NONE);
        assert!(
            matches!(end, OpEnd::Value { value: None, tag } if tag.sequence == 6),
            "{end:?}"
        );
        two.close();
        assert_eq!(two.read(1), OpEnd::Undecodable);
        let written = two.write(1);
        assert!(matches!(written, OpEnd::Stored { .. }), "{written:?}");
        let end = two.read(2);
        assert!(
            matches!(&end, OpEnd::Value { value: Some(found), .. } if *found == value_of(9)),
            "{end:?}"
        );
    }
}

/// What a read gives after a write has gone on in the next store, under the tag that had moved.
fn write_over_what_has_moved(planted: Planted) -> OpEnd {
    let (mut two, _) = walk_over_dead_writes(0, 0, planted);
    two.close();
    for seat in 0..5 {
        let store = store_of(&two.world, seat, two.tag, two.tag.writer);
        two.world.ask_in(SECOND, 5 + seat, &register_key(), store);
    }
    two.read(1)
}

/// V12: its parts replace what says that there are too few.
#[test]
fn a_write_goes_on_under_the_tag_that_nobody_could_read() {
    let end = write_over_what_has_moved(Planted::NONE);
    assert!(
        matches!(&end, OpEnd::Value { value: Some(found), .. } if *found == value_of(6)),
        "{end:?}"
    );
}

/// V12: members change again before the first source is closed, and after it.
#[test]
fn what_nobody_can_read_moves_again() {
    for closed in 0..2 {
        let (mut two, _) = walk_over_dead_writes(0, 0, Planted::NONE);
        if closed == 1 {
            two.close();
        }
        for seat in 5..10 {
            two.world.seal_in(SECOND, seat, THIRD);
        }
        let place = two.world.place_in(THIRD, closed);
        let end = two.walk(&place, &(0..15).collect::<Vec<_>>());
        assert!(
            matches!(end, OpEnd::Value { value: None, tag } if tag == two.tag),
            "{end:?}"
        );
        let read = Op::Read {
            key: register_key(),
            moves: false,
        };
        two.world.closed = vec![Epoch::FIRST, SECOND];
        two.world.known = vec![2; 15];
        let place = two.world.place_in(THIRD, 2);
        let id = two.world.start_at(1, read, &place);
        assert_eq!(two.end(1, id), OpEnd::Undecodable);
    }
}

/// Who is away may have the part that is missing.
#[test]
fn what_a_member_that_is_away_may_give_is_not_given_up() {
    let (_, end) = walk_over_dead_writes(1, 0, Planted::NONE);
    assert_eq!(end, OpEnd::Undecodable);
}
mod planted {
    use super::*;
    use fermata_protocol::base::Bug;

    #[test]
    fn what_nobody_can_read_does_not_move() {
        let planted = Planted::only(Bug::UndecodableNotCarried);
        assert_eq!(walk_over_dead_writes(0, 0, planted).1, OpEnd::Undecodable);
    }

    #[test]
    fn a_write_does_not_go_on_over_what_has_moved() {
        let end = write_over_what_has_moved(Planted::only(Bug::UndecodableStays));
        assert_eq!(end, OpEnd::Undecodable);
    }

    #[test]
    fn what_was_passed_over_is_carried() {
        let [first, second] = reads_beside_a_sweep(Planted::only(Bug::PassedIsCarried));
        let value = |end: OpEnd| match end {
            OpEnd::Value { value, .. } => value,
            other => panic!("{other:?}"),
        };
        assert_ne!(value(first), value(second));
    }

    #[test]
    fn a_write_below_a_mark_is_lost() {
        let (moved, written, later) = write_beside_a_mark(Planted::only(Bug::WriteBelowMark));
        assert!(matches!(written, Some(OpEnd::Stored { tag }) if tag < moved));
        assert!(
            matches!(later, OpEnd::Value { tag, .. } if tag == moved),
            "{later:?}"
        );
    }

    #[test]
    fn a_deleted_store_that_looks_empty_is_caught() {
        let end = read_beside_a_delete(Planted::only(Bug::EmptyAfterDelete));
        assert!(matches!(end, OpEnd::Value { value: None, .. }), "{end:?}");
    }

    #[test]
    fn a_fence_that_is_left_behind_is_caught() {
        let bug = Planted::only(Bug::FenceLeftBehind);
        let end = write_after_a_sweep_has_moved(bug);
        assert!(matches!(end, OpEnd::Stored { .. }), "{end:?}");
    }

    #[test]
    fn a_write_of_one_round_beside_a_source_is_caught() {
        let bug = Planted::only(Bug::OneRoundBesideSource);
        assert!(!write_beside_a_source(bug));
    }

    #[test]
    fn a_get_that_waits_for_what_never_moves_is_caught() {
        let end = get_beside_a_dead_synch(Planted::only(Bug::GetsCarryOthers));
        assert!(matches!(end, OpEnd::Unavailable { .. }), "{end:?}");
    }

    #[test]
    fn a_grant_of_what_never_moves_is_caught() {
        let end = read_of_a_grant(3, Planted::only(Bug::HeldBackIsGranted));
        assert_ne!(end, OpEnd::Unmoved);
    }

    #[test]
    fn a_write_that_was_stored_before_a_promise_came_is_caught() {
        let end = write_that_was_stored_before(true, Planted::only(Bug::CrossedBeforeCounts));
        assert!(matches!(end, OpEnd::Stored { .. }), "{end:?}");
    }

    #[test]
    fn a_write_that_is_stored_again_is_caught() {
        let end = read_after_a_crossing(Planted::only(Bug::CrossedIsStoredAgain));
        let former = Some(value_of(9));
        assert!(
            matches!(&end, OpEnd::Value { value, .. } if *value == former),
            "{end:?}"
        );
    }

    #[test]
    fn a_write_that_crosses_a_fence_is_caught() {
        let end = write_that_was_passed_over(Planted::only(Bug::CrossesBlindly));
        assert!(matches!(end, OpEnd::Stored { .. }), "{end:?}");
    }
}
