//! What members do for their registers while nobody asks: after any schedule, once all are up and
//! have had time, every member stores exactly its part of the final value and nothing else; and a
//! deleted key whose trace was removed never comes back.

use crate::rules::put_at;
use crate::world::{Command, Letter, World, fenced, register_key, section_key};
use bytes::Bytes;
use fermata_protocol::base::{
    Ballot, Epoch, EventualTag, KeyId, Keyspace, LockRef, NodeName, Planted, Seat, SessionId,
    StoragePolicy, Tag, Terms,
};
use fermata_protocol::register::{
    Answer, Ask, Content, Message, Op, OpEnd, Survey, Version, policy,
};

fn put(lock_ref: u64, number: u64) -> Tag {
    Tag::critical(LockRef(lock_ref), 0, number, SessionId(7))
}

fn synch(lock_ref: u64) -> Tag {
    Tag::synch(LockRef(lock_ref), 0, Epoch::FIRST, Ballot::default(), 1)
}

fn copy(tag: Tag, text: &str) -> Content {
    let value = Bytes::copy_from_slice(text.as_bytes());
    policy::whole_copy(&section_key(), tag, &value)
}

fn repair(tag: Tag, text: &str, floor: u64) -> Ask {
    Ask::Repair {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: copy(tag, text),
        floor: LockRef(floor),
    }
}

fn survey(world: &mut World, i: usize, key: &KeyId) -> Survey {
    match world.ask(i, key, Ask::Survey) {
        Some(Answer::Surveyed(held)) => held,
        other => panic!("no survey: {other:?}"),
    }
}

fn all_apply(world: &mut World) {
    for node in &mut world.nodes {
        node.applied = world.history.len();
    }
}

fn versions(world: &mut World, i: usize, key: &KeyId) -> Vec<Version> {
    let ask = Ask::Read {
        holder: None,
        entering: false,
        fence: None,
        eventual: false,
        values: true,
    };
    match world.ask(i, key, ask) {
        Some(Answer::Cells { versions, .. }) => versions,
        other => panic!("no cells: {other:?}"),
    }
}

/// Storage at rest is what the formula says, at every member.
fn assert_at_rest(world: &mut World, key: &KeyId, about: &str) {
    let all: Vec<_> = (0..world.nodes.len())
        .map(|i| versions(world, i, key))
        .collect();
    let Some(top) = all.iter().filter_map(|v| v.last()).map(|v| v.tag).max() else {
        return;
    };
    let contents: Vec<&Content> = all
        .iter()
        .flatten()
        .filter(|v| v.tag == top)
        .map(|v| &v.content)
        .collect();
    let value = policy::decode(&contents).unwrap_or_else(|_| panic!("{about}: no value"));
    let shape = world.place().shape();
    let parts = policy::encode(world.storage, shape, key, top, value.as_ref());
    for (i, (held, part)) in all.iter().zip(&parts).enumerate() {
        let tags: Vec<Tag> = held.iter().map(|v| v.tag).collect();
        assert_eq!(tags, [top], "{about}: member {i} holds other versions");
        assert_eq!(
            held[0].content, *part,
            "{about}: member {i} holds another part"
        );
        let tally = world.nodes[i].replica.storage()[&key.keyspace];
        assert_eq!(
            tally.bytes, tally.expected,
            "{about}: member {i} stores more or less"
        );
        assert_eq!(
            tally.versions,
            tally.keys + tally.dead,
            "{about}: member {i}"
        );
    }
}

fn coded(faults: u8) -> StoragePolicy {
    StoragePolicy::Coded(Terms {
        faults,
        delta: 3,
        whole_below: 0,
    })
}

/// Writers that die anywhere, replicas that crash and miss everything; then all are up.
fn registers(storage: StoragePolicy, n: usize, seed: u64) {
    let mut world = World::new(n, 3, seed, Planted::NONE);
    world.storage = storage;
    for writer in 1..=12u128 {
        let caller = world.rng.below(3) as usize;
        if world.chance(30) {
            world.replace_caller(caller);
        }
        let value = world
            .chance(85)
            .then(|| Bytes::from(format!("a value of writer {writer}")));
        let key = register_key();
        world.start(caller, Op::Write { key, writer, value });
        for _ in 0..world.rng.below(8) {
            world.disturb();
        }
    }
    for caller in 0..3 {
        world.replace_caller(caller);
    }
    world.settle();
    world.rest(10);
    assert_at_rest(
        &mut world,
        &register_key(),
        &format!("{storage:?}, n {n}, seed {seed}"),
    );
}

#[test]
fn registers_at_rest_hold_one_part_each_and_no_garbage() {
    for seed in 0..150 {
        registers(StoragePolicy::Replicated, 3, seed);
        registers(coded(1), 3, seed);
        registers(coded(1), 5, seed);
    }
}

/// Sections whose holders die or lose messages, each followed by a synch; the last one ends
/// cleanly, with a value or a delete.
fn sections(storage: StoragePolicy, n: usize, seed: u64) {
    let mut world = World::new(n, 1, seed, Planted::NONE);
    world.storage = storage;
    let key = section_key();
    for section in 0..4u64 {
        let last = section == 3;
        world.history.push(Command::Enqueue);
        let lock_ref = world.history.len() as u64;
        all_apply(&mut world);
        let mut op = Op::Synch {
            key: key.clone(),
            tag: synch(lock_ref),
            adopts: true,
        };
        for step in 0..3 {
            let id = world.start(0, op);
            for _ in 0..world.rng.below(8) {
                world.disturb();
            }
            if last || step == 0 {
                world.settle();
                world.advance(world.timing.retry);
                world.settle();
                let outcome = world.outcome(id, 0);
                assert!(
                    matches!(outcome, Some(OpEnd::Synched { .. } | OpEnd::Stored { .. })),
                    "{outcome:?}"
                );
            }
            let value = world
                .chance(70)
                .then(|| Bytes::from(format!("value {section} {step}")));
            let (key, tag) = (key.clone(), put(lock_ref, step + 1));
            op = Op::Put {
                key,
                tag,
                value,
                counter_above: true,
            };
        }
        world.replace_caller(0);
        world.history.push(Command::Remove(lock_ref));
        // A member misses the end of everything now and then.
        if world.chance(50) {
            let i = world.rng.below(n as u64) as usize;
            world.crash(i);
        }
        all_apply(&mut world);
    }
    world.settle();
    world.rest(6);
    assert_at_rest(
        &mut world,
        &key,
        &format!("{storage:?}, n {n}, seed {seed}"),
    );
}

#[test]
fn sections_at_rest_hold_one_part_each_and_no_garbage() {
    for seed in 0..150 {
        sections(StoragePolicy::Replicated, 3, seed);
        sections(coded(1), 5, seed);
    }
}

/// Stores a copy of `text` at member `i` under a tag of a register, or of a section that holds the
/// key, as far as that member knows.
fn store_copy(world: &mut World, i: usize, key: &KeyId, tag: Tag, text: &str) {
    let value = Bytes::copy_from_slice(text.as_bytes());
    let copy = policy::whole_copy(key, tag, &value);
    let ask = Ask::Store {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: policy::reseated(key, tag, &copy, Seat(i as u8)),
    };
    assert_eq!(world.ask(i, key, ask), Some(Answer::Stored));
}

/// A section that holds the key deletes it at member `i`.
fn delete(world: &mut World, i: usize, tag: Tag) {
    let ask = Ask::Store {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: Content::Tombstone,
    };
    assert_eq!(world.ask(i, &section_key(), ask), Some(Answer::Stored));
}

/// A section's value at all of three members but one, which was down; the section is over.
fn missed(planted: Planted) -> World {
    let mut world = World::new(3, 1, 1, planted);
    world.history = vec![Command::Enqueue, Command::Remove(1)];
    all_apply(&mut world);
    for i in [0, 1] {
        world.nodes[i].applied = 1;
        store_copy(&mut world, i, &section_key(), put(1, 1), "v");
    }
    all_apply(&mut world);
    world
}

#[test]
fn a_member_that_was_down_is_given_what_it_missed_although_the_section_is_past() {
    let mut world = missed(Planted::NONE);
    assert!(survey(&mut world, 2, &section_key()).tags.is_empty());
    world.rest(4);
    assert_eq!(survey(&mut world, 2, &section_key()).tags, [put(1, 1)]);
    assert_at_rest(&mut world, &section_key(), "three members");
    let counts = world.nodes[2].replica.upkeep_counts();
    assert_eq!(counts.taken, 1, "{counts:?}");
}

#[test]
fn what_fewer_than_a_quorum_hold_is_given_to_nobody() {
    let mut world = missed(Planted::NONE);
    world.nodes[1].applied = 1;
    store_copy(&mut world, 1, &section_key(), put(1, 2), "w");
    all_apply(&mut world);
    world.rest(4);
    assert_eq!(survey(&mut world, 0, &section_key()).tags, [put(1, 1)]);
    assert!(survey(&mut world, 2, &section_key()).tags.is_empty());
}

#[test]
fn an_eventual_value_that_two_of_three_hold_is_given_to_the_third() {
    let (mut world, key) = (World::new(3, 1, 1, Planted::NONE), section_key());
    put_at(&mut world, 0, "e");
    assert!(world.deliver_one(|l| l.to == NodeName(1)));
    world.bag.clear();
    let held = survey(&mut world, 1, &key).eventual;
    assert!(held > survey(&mut world, 2, &key).eventual);
    world.rest(4);
    assert_eq!(survey(&mut world, 2, &key).eventual, held);
}

/// G66: a section's last value has become final by the parts of three of four members; one was told
/// so, and dropped what was below. Another one loses its disk. What the fourth member, which missed
/// the value, holds once they have had time.
fn final_at_a_lost_disk(told: usize, planted: Planted) -> Vec<Tag> {
    let (mut world, key) = (World::new(4, 1, 1, planted), section_key());
    world.storage = coded(1);
    let shape = world.place().shape();
    world.history = vec![Command::Enqueue, Command::Remove(1)];
    for (number, at) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1, 3])] {
        let (tag, value) = (put(1, number), Bytes::from(format!("value {number}")));
        let parts = policy::encode(world.storage, shape, &key, tag, Some(&value));
        for i in at {
            world.nodes[*i].applied = 1;
            let ask = Ask::Store {
                tag,
                origin: EventualTag::of_section(tag.lock_ref),
                content: parts[*i].clone(),
            };
            assert_eq!(world.ask(*i, &key, ask), Some(Answer::Stored));
        }
    }
    world.tell(told, &key, Ask::Settle { tag: put(1, 2) });
    world.advance(2 * world.timing.retry);
    assert_eq!(survey(&mut world, told, &key).tags, [put(1, 2)]);
    all_apply(&mut world);
    world.bag.clear();
    for _ in 0..4 {
        for _ in 0..12 {
            world.advance(world.timing.retry);
            world.upkeep();
            while world.deliver_one(|l| l.to != NodeName(3) && l.from != NodeName(3)) {}
            world.bag.clear();
            (0..3).for_each(|i| world.flush(i));
        }
        world.advance(world.timing.upkeep);
    }
    survey(&mut world, 2, &key).tags
}

#[test]
fn what_one_member_knows_to_be_final_is_given_to_those_that_lack_it() {
    for told in [0, 1] {
        let tags = final_at_a_lost_disk(told, Planted::NONE);
        assert_eq!(tags, [put(1, 2)], "member {told} knows");
    }
}

#[test]
fn a_key_in_use_is_left_alone() {
    let mut world = missed(Planted::NONE);
    world.history.push(Command::Enqueue);
    all_apply(&mut world);
    world.rest(3);
    assert_eq!(world.nodes[0].replica.upkeep_counts().looks, 0);
}

/// A write is at one member of three, and may be under way: until when nobody else completes it.
#[test]
fn a_register_is_left_alone_for_as_long_as_its_writer_may_live() {
    let mut world = World::new(3, 1, 1, Planted::NONE);
    world.timing.upkeep = world.timing.beat;
    let tag = Tag {
        lock_ref: LockRef(0),
        sequence: 1,
        writer: 1,
    };
    store_copy(&mut world, 0, &register_key(), tag, "v");
    while world.nodes[0].replica.upkeep_counts().settled == 0 {
        world.advance(world.timing.beat);
        world.upkeep();
        world.settle();
        assert!(world.now < 2 * world.timing.request);
    }
    assert!(world.now > world.timing.request);
}

/// A repair that was sent before a synch set its fence; none where it was taken.
fn late_repair_below_a_fence(planted: Planted) -> Option<Answer> {
    let mut world = missed(planted);
    world.ask(2, &section_key(), fenced(synch(2)));
    world
        .ask(2, &section_key(), repair(put(1, 1), "v", 0))
        .filter(|a| *a != Answer::Stored)
}

#[test]
fn a_repair_below_a_fence_is_refused() {
    let refused = late_repair_below_a_fence(Planted::NONE);
    assert!(matches!(refused, Some(Answer::Past { .. })), "{refused:?}");
}

#[test]
fn a_repair_never_lowers_a_tag_and_never_replaces_a_value() {
    let mut world = missed(Planted::NONE);
    let key = section_key();
    let higher = world.ask(0, &key, repair(put(1, 2), "w", 0));
    assert_eq!(higher, Some(Answer::Stored));
    let lower = world.ask(0, &key, repair(put(1, 1), "v", 0));
    assert!(matches!(lower, Some(Answer::Outranked { .. })), "{lower:?}");
    let other = world.ask(0, &key, repair(put(1, 2), "x", 0));
    assert!(matches!(other, Some(Answer::Outranked { .. })), "{other:?}");
}

/// A key that was written, and deleted while member 2 was down; then the floor rises as wanted.
/// The letters that upkeep sent meanwhile to member 2 are kept by the network and come last.
fn deleted(planted: Planted, member_comes_back: bool) -> World {
    let mut world = missed(planted);
    world.nodes[2].applied = 1;
    store_copy(&mut world, 2, &section_key(), put(1, 1), "v");
    world.history.extend([Command::Enqueue, Command::Remove(3)]);
    for i in [0, 1] {
        world.nodes[i].applied = 3;
        delete(&mut world, i, put(3, 1));
        world.nodes[i].applied = 4;
    }
    let away = |l: &Letter| l.to == NodeName(2) || l.from == NodeName(2);
    for round in 0..8 {
        if round % 2 == 1 {
            world
                .history
                .push(Command::Floor(world.history.len() as u64));
        }
        for _ in 0..6 {
            world.advance(world.timing.retry);
            world.upkeep();
            for _ in 0..200 {
                for i in 0..3 {
                    world.flush(i);
                }
                if !member_comes_back {
                    world.bag.retain(|l| !away(l));
                }
                if !world.deliver_one(|l| l.to != NodeName(99)) {
                    break;
                }
            }
        }
        for i in 0..3 {
            if member_comes_back || i < 2 {
                world.nodes[i].applied = world.history.len();
            }
        }
        world.advance(world.timing.upkeep);
    }
    world
}

fn latest(world: &mut World) -> Option<Bytes> {
    let op = Op::Entry {
        key: section_key(),
        holder: None,
    };
    let id = world.start(0, op);
    world.reach(0, &[0, 2]);
    match world.outcome(id, 0) {
        Some(OpEnd::Entry { value, .. }) => value,
        other => panic!("not read: {other:?}"),
    }
}

#[test]
fn a_delete_leaves_no_trace_once_all_members_have_it_and_the_floor_has_passed() {
    let mut world = deleted(Planted::NONE, true);
    for i in 0..3 {
        assert!(world.cells(i).is_empty(), "member {i}");
        assert!(world.nodes[i].replica.upkeep_counts().buried > 0);
    }
    assert_eq!(latest(&mut world), None);
    // What is left of the first section comes now.
    let old = world.ask(1, &section_key(), repair(put(1, 1), "v", 0));
    assert!(matches!(old, Some(Answer::Past { .. })), "{old:?}");
    let store = Ask::Store {
        tag: synch(3),
        origin: EventualTag::of_section(LockRef(1)),
        content: copy(synch(3), "v"),
    };
    let old = world.ask(1, &section_key(), store);
    assert!(matches!(old, Some(Answer::Past { .. })), "{old:?}");
    assert!(world.cells(1).is_empty());
    // Also after a restart that has applied less.
    world.flush(1);
    world.crash(1);
    world.nodes[1].applied = 0;
    let old = world.ask(1, &section_key(), repair(put(1, 1), "v", 0));
    assert!(matches!(old, Some(Answer::Past { .. })), "{old:?}");
}

/// Three of five members have removed a delete's trace, and the word of it has not come to the
/// others.
#[test]
fn a_trace_that_fewer_than_a_quorum_keep_goes() {
    let mut world = World::new(5, 1, 1, Planted::NONE);
    world.history = vec![Command::Enqueue];
    all_apply(&mut world);
    for i in [3, 4] {
        delete(&mut world, i, put(1, 1));
    }
    world.history.push(Command::Remove(1));
    for _ in 0..3 {
        world
            .history
            .push(Command::Floor(world.history.len() as u64));
        all_apply(&mut world);
        world.rest(2);
    }
    for i in 0..5 {
        assert!(world.cells(i).is_empty(), "member {i}");
    }
}

/// G69: two of three members have removed a delete's trace, and the third has taken an eventual put
/// before the word of it, which then spreads. Tags that each member ends with.
fn trace_under_a_value(planted: Planted) -> Vec<Vec<Tag>> {
    let mut world = World::new(3, 1, 1, planted);
    world.history = vec![Command::Enqueue];
    all_apply(&mut world);
    delete(&mut world, 2, put(1, 1));
    let floor = Command::Floor(1);
    world.history.extend([Command::Remove(1), floor]);
    all_apply(&mut world);
    let tag = EventualTag {
        applied: 3,
        clock: 1,
        ..EventualTag::default()
    };
    let content = copy(Tag::ZERO, "e");
    for i in 0..3 {
        let content = content.clone();
        world.ask(i, &section_key(), Ask::EventualSpread { tag, content });
    }
    world.rest(4);
    (0..3)
        .map(|i| {
            let held = survey(&mut world, i, &section_key());
            assert_eq!(held.eventual, Some(tag), "member {i}");
            held.tags
        })
        .collect()
}

#[test]
fn a_trace_that_one_member_keeps_under_a_later_value_is_given_to_all() {
    assert_eq!(trace_under_a_value(Planted::NONE), [[put(1, 1)]; 3]);
}

/// F8f: an eventual value that a section had adopted and deleted comes when every trace of it is
/// gone. What is found then where it came to.
fn late_spread(planted: Planted) -> Option<EventualTag> {
    let mut world = deleted(planted, true);
    assert!(world.cells(2).is_empty());
    let tag = EventualTag {
        applied: 2,
        clock: 1,
        ..EventualTag::default()
    };
    let content = copy(Tag::ZERO, "e");
    world.ask(2, &section_key(), Ask::EventualSpread { tag, content });
    let seen = world.inspect(2, &section_key()).expect("sound");
    seen.eventual
}

#[test]
fn an_eventual_value_below_the_floor_is_not_taken() {
    assert_eq!(late_spread(Planted::NONE), None);
}

#[test]
fn a_trace_stays_while_one_member_is_down_and_nothing_comes_back_with_it() {
    let mut world = deleted(Planted::NONE, false);
    assert!(!world.cells(0).is_empty() && !world.cells(1).is_empty());
    assert_eq!(latest(&mut world), None);
}

/// G22: a synch has fenced a member that lacks the delete, and was given up: that member can be
/// given nothing below its fence, and must not be taken for one that holds the delete. What is
/// found where that member answers.
fn deleted_beside_a_fence(planted: Planted) -> Option<Bytes> {
    let mut world = deleted(planted, false);
    world.nodes[2].applied = world.history.len();
    let lock_ref = world.history.len() as u64 + 1;
    let over = [Command::Enqueue, Command::Remove(lock_ref)];
    world.history.extend(over);
    all_apply(&mut world);
    let answer = world.ask(2, &section_key(), fenced(synch(lock_ref)));
    assert!(matches!(answer, Some(Answer::Cells { .. })), "{answer:?}");
    for _ in 0..3 {
        let floor = world.history.len() as u64;
        world.history.push(Command::Floor(floor));
        all_apply(&mut world);
        world.rest(2);
    }
    latest(&mut world)
}

#[test]
fn a_trace_stays_while_a_fence_hides_a_member_that_lacks_it() {
    assert_eq!(deleted_beside_a_fence(Planted::NONE), None);
}

/// Looks at keys stay open for as long as a silent member may answer, more of them than may be open
/// at once: the walk goes on where it was, and ends.
#[test]
fn a_walk_ends_while_a_member_is_silent() {
    let mut world = World::new(3, 1, 1, Planted::NONE);
    let keys = 150;
    for n in 0..keys {
        let key = KeyId {
            key: Bytes::from(format!("k{n}")),
            ..register_key()
        };
        let tag = Tag {
            lock_ref: LockRef(0),
            sequence: 1,
            writer: 1,
        };
        for i in [0, 1] {
            store_copy(&mut world, i, &key, tag, "v");
        }
    }
    for _ in 0..400 {
        world.advance(world.timing.beat);
        world.upkeep();
        while world.deliver_one(|l| l.to != NodeName(2) && l.from != NodeName(2)) {}
        world.bag.clear();
    }
    let replica = &world.nodes[0].replica;
    assert!(replica.upkeep_counts().rounds > 0, "no walk has ended");
    assert_eq!(replica.storage()[&Keyspace::REGISTERS].keys, keys);
}

#[test]
fn register_keyspaces_keep_the_traces_of_deletes() {
    let mut world = World::new(3, 1, 1, Planted::NONE);
    let (key, value) = (register_key(), None);
    world.start(
        0,
        Op::Write {
            key,
            writer: 1,
            value,
        },
    );
    world.settle();
    world.history.push(Command::Floor(1));
    all_apply(&mut world);
    world.rest(6);
    assert_eq!(survey(&mut world, 0, &register_key()).tags.len(), 1);
    let tally = world.nodes[0].replica.storage()[&Keyspace::REGISTERS];
    assert_eq!((tally.keys, tally.dead), (0, 1));
}

#[test]
fn nothing_is_sent_while_the_disk_is_full_and_all_is_even() {
    let mut world = missed(Planted::NONE);
    for node in &mut world.nodes {
        node.writable = false;
    }
    world.rest(3);
    assert_eq!(world.nodes[0].replica.upkeep_counts().looks, 0);
    for node in &mut world.nodes {
        node.writable = true;
    }
    world.rest(5);
    let given = world.nodes[0].replica.upkeep_counts().given;
    world.rest(3);
    assert_eq!(world.nodes[0].replica.upkeep_counts().given, given);
    let writes = |l: &Letter| {
        matches!(
            &l.message,
            Message::Ask {
                ask: Ask::Repair { .. },
                ..
            }
        )
    };
    assert!(!world.bag.iter().any(writes));
}

/// A part whose bytes change where nobody reads it, under every policy's layout of records.
#[test]
fn a_value_that_rots_is_rebuilt_by_the_walk() {
    for (storage, n) in [(StoragePolicy::Replicated, 3), (coded(1), 5)] {
        let mut world = World::new(n, 1, 1, Planted::NONE);
        world.storage = storage;
        let (key, value) = (register_key(), Some(Bytes::from_static(b"a longer value")));
        world.start(
            0,
            Op::Write {
                key,
                writer: 1,
                value,
            },
        );
        world.settle();
        world.rest(2);
        world.nodes[1]
            .disk
            .alter(|key| key[0] == b'r' && key[13] >= 2);
        world.rest(8);
        assert_at_rest(&mut world, &register_key(), &format!("{storage:?}"));
        assert_eq!(world.nodes[1].replica.counts().repairs, 1, "{storage:?}");
    }
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use fermata_protocol::base::Bug;

    #[test]
    fn a_trace_that_goes_early_brings_the_deleted_value_back() {
        let mut world = deleted(Planted::only(Bug::TombstoneBuriedEarly), false);
        assert_eq!(latest(&mut world), Some(Bytes::from_static(b"v")));
    }

    #[test]
    fn a_fenced_member_taken_as_a_holder_brings_the_deleted_value_back() {
        let bug = Planted::only(Bug::FencedTakenAsHolder);
        let back = deleted_beside_a_fence(bug);
        assert_eq!(back, Some(Bytes::from_static(b"v")));
    }

    #[test]
    fn what_is_final_by_count_alone_stays_at_fewer_than_a_quorum() {
        let tags = final_at_a_lost_disk(0, Planted::only(Bug::FinalByCountAlone));
        assert_eq!(tags, [put(1, 1)]);
    }

    #[test]
    fn a_trace_under_a_later_value_that_stays_is_at_one_member() {
        let tags = trace_under_a_value(Planted::only(Bug::TraceUnderValueStays));
        assert_eq!(tags, [vec![], vec![], vec![put(1, 1)]]);
    }

    #[test]
    fn a_repair_that_is_not_sent_leaves_a_member_without_it() {
        let mut world = missed(Planted::only(Bug::RepairNotSent));
        world.rest(4);
        assert!(survey(&mut world, 2, &section_key()).tags.is_empty());
    }

    #[test]
    fn an_eventual_value_without_regard_to_the_floor_comes_back() {
        assert!(late_spread(Planted::only(Bug::SpreadWithoutFloor)).is_some());
    }

    #[test]
    fn a_repair_below_a_fence_is_caught() {
        let bug = Planted::only(Bug::RepairBelowFence);
        assert_eq!(late_repair_below_a_fence(bug), None);
    }

    #[test]
    fn a_repair_without_regard_to_the_floor_brings_the_deleted_value_back() {
        let mut world = deleted(Planted::only(Bug::RepairWithoutFloor), true);
        assert!(world.cells(2).is_empty());
        world.ask(2, &section_key(), repair(put(1, 1), "v", 0));
        assert_eq!(latest(&mut world), Some(Bytes::from_static(b"v")));
    }
}
