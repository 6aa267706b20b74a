//! Stores that end: sealed, read for the last time, deleted (F15).

use crate::world::{Command, World, register_key, section_key, view_of};
use bytes::Bytes;
use fermata_protocol::base::{
    Address, Ballot, Epoch, EventualTag, KeyId, LockRef, Planted, SessionId, Tag, TagRule,
};
use fermata_protocol::register::{
    Answer, Ask, Content, Holder, Moved, Op, OpEnd, OpId, StoreAsk, policy,
};
use std::collections::{BTreeMap, BTreeSet};

const NEXT: Epoch = Epoch(2);

fn world(n: usize) -> World {
    World::new(n, 2, 1, Planted::NONE)
}

fn content(key: &KeyId, tag: Tag, text: &str) -> Content {
    let value = Bytes::copy_from_slice(text.as_bytes());
    policy::whole_copy(key, tag, &value)
}

fn put(lock_ref: u64, number: u64) -> Tag {
    Tag::critical(LockRef(lock_ref), 0, number, SessionId(7))
}

fn store(tag: Tag, text: &str) -> Ask {
    store_of(&section_key(), tag, text)
}

fn store_of(key: &KeyId, tag: Tag, text: &str) -> Ask {
    Ask::Store {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        content: content(key, tag, text),
    }
}

fn sealed_read(next: Epoch) -> Ask {
    let values = true;
    Ask::SealedRead { next, values }
}

fn plain_read() -> Ask {
    Ask::Read {
        holder: None,
        entering: true,
        fence: None,
        eventual: true,
        values: true,
    }
}

fn sealed(next: Epoch) -> Option<Answer> {
    Some(Answer::Sealed { next })
}

fn moved_mark(answer: Option<Answer>) -> Option<Tag> {
    match answer {
        Some(Answer::Cells {
            moved: Moved::Marked(marked),
            ..
        }) => marked.mark,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_seal_is_for_ever_and_the_higher_next_epoch_is_kept() {
    let (mut w, key) = (world(1), section_key());
    w.ask(0, &key, store(put(1, 1), "one"));
    let before = w.cells(0);
    let seal = |next| StoreAsk::Seal { next: Epoch(next) };
    assert_eq!(w.ask_store(0, seal(3)), sealed(Epoch(3)));
    assert_eq!(w.ask_store(0, seal(3)), sealed(Epoch(3)));
    assert_eq!(w.ask_store(0, seal(2)), sealed(Epoch(3)), "given up");
    assert_eq!(w.ask_store(0, seal(5)), sealed(Epoch(5)), "adopted");
    w.crash(0);
    w.nodes[0].writable = false;
    let fence = Ask::Read {
        holder: None,
        entering: true,
        fence: Some(put(9, 1)),
        eventual: true,
        values: true,
    };
    for ask in [store(put(1, 2), "two"), plain_read(), fence, Ask::Inspect] {
        assert_eq!(w.ask(0, &key, ask), sealed(Epoch(5)));
    }
    let mark = Ask::MarkMoved { tag: put(1, 1) };
    assert_eq!(w.ask(0, &key, mark), sealed(Epoch(5)));
    assert_eq!(w.cells(0), before);
}

#[test]
fn a_full_disk_takes_a_seal() {
    let mut w = world(1);
    w.nodes[0].writable = false;
    let next = NEXT;
    assert_eq!(w.ask_store(0, StoreAsk::Seal { next }), sealed(NEXT));
    w.crash(0);
    assert_eq!(w.ask(0, &section_key(), plain_read()), sealed(NEXT));
}

#[test]
fn a_sealed_read_seals_first_and_shows_both_cells_and_the_fence() {
    let (mut w, key) = (world(1), section_key());
    w.ask(0, &key, store(put(1, 1), "one"));
    w.nodes[0].applied = 0;
    let tag = Tag::synch(LockRef(4), 0, Epoch::FIRST, Ballot::default(), 1);
    let fenced = Ask::Read {
        holder: None,
        entering: true,
        fence: Some(tag),
        eventual: false,
        values: false,
    };
    w.ask(0, &key, fenced);
    let Some(Answer::Cells {
        versions,
        fence,
        eventual: None,
        moved: Moved::All,
        ..
    }) = w.ask(0, &key, sealed_read(NEXT))
    else {
        panic!("the cells");
    };
    let found = &versions[0];
    let at = (found.tag, found.origin, fence);
    assert_eq!(at, (put(1, 1), EventualTag::of_section(LockRef(1)), tag));
    assert_eq!(found.content, content(&key, put(1, 1), "one"));
    assert_eq!(w.ask(0, &key, plain_read()), sealed(NEXT));
    let again = w.ask(0, &key, sealed_read(Epoch(7)));
    assert!(matches!(again, Some(Answer::Cells { .. })));
    assert_eq!(w.ask(0, &key, plain_read()), sealed(Epoch(7)));
}

#[test]
fn a_deleted_store_is_moved_and_never_empty() {
    let (mut w, key) = (world(1), section_key());
    w.ask(0, &key, store(put(1, 1), "one"));
    let next = NEXT;
    w.ask_store(0, StoreAsk::Seal { next });
    let moved = Some(Answer::Moved { next });
    assert_eq!(w.ask_store(0, StoreAsk::Delete { next }), moved);
    assert!(w.cells(0).is_empty());
    w.crash(0);
    for ask in [plain_read(), sealed_read(Epoch(9)), store(put(1, 2), "two")] {
        assert_eq!(w.ask(0, &key, ask), moved);
    }
    for ask in [
        StoreAsk::Delete { next },
        StoreAsk::Seal { next },
        StoreAsk::List {
            next,
            after: None,
            limit: 1,
            eventual: false,
        },
    ] {
        assert_eq!(w.ask_store(0, ask), moved);
    }
    assert!(w.cells(0).is_empty());
}

#[test]
fn a_delete_that_is_not_durable_has_not_happened() {
    let (mut w, key) = (world(1), section_key());
    w.ask(0, &key, store(put(1, 1), "one"));
    let before = w.cells(0);
    let next = NEXT;
    w.ask_store(0, StoreAsk::Seal { next });
    w.tell_store(0, StoreAsk::Delete { next });
    assert!(w.cells(0).is_empty());
    w.crash(0);
    assert_eq!(w.cells(0), before);
    assert_eq!(w.ask(0, &key, plain_read()), sealed(NEXT));
}

#[test]
fn a_damaged_status_voids_everything_until_the_delete() {
    let (mut w, key, next) = (world(1), section_key(), NEXT);
    w.ask(0, &key, store(put(1, 1), "one"));
    w.ask_store(0, StoreAsk::Delete { next });
    w.damage(0, |key| key[0] == b's');
    w.crash(0);
    for ask in [plain_read(), store(put(1, 2), "two")] {
        assert_eq!(w.ask(0, &key, ask), Some(Answer::Void));
    }
    // Not that the key's own record is damaged.
    let sealed_read = w.ask(0, &key, sealed_read(NEXT));
    assert_eq!(sealed_read, Some(Answer::Elsewhere));
    let seal = w.ask_store(0, StoreAsk::Seal { next });
    assert_eq!(seal, Some(Answer::Void));
    let moved = Some(Answer::Moved { next });
    assert_eq!(w.ask_store(0, StoreAsk::Delete { next }), moved);
    assert_eq!(w.ask(0, &key, plain_read()), moved);
}

/// A world whose registers have begun a second epoch, while the first is a source still.
fn second(n: usize) -> World {
    let mut w = world(n);
    w.views.push(view_of(NEXT, 0..n));
    w.created.push((0..n).collect());
    w
}

#[test]
fn the_moved_mark_only_rises_is_durable_and_no_write_sets_it() {
    let (mut w, key) = (second(3), section_key());
    w.history = vec![Command::Enqueue];
    w.nodes.iter_mut().for_each(|n| n.applied = 1);
    let ask = |w: &mut World, i, ask| w.ask_in(NEXT, i, &key, ask);
    let marked = |w: &mut World, i| moved_mark(ask(w, i, plain_read()));
    ask(&mut w, 0, store(put(1, 1), "one"));
    assert_eq!(marked(&mut w, 0), None);
    let mark = |tag| Ask::MarkMoved { tag };
    for tag in [put(1, 1), Tag::ZERO, put(1, 1)] {
        assert_eq!(ask(&mut w, 0, mark(tag)), Some(Answer::Marked));
        w.crash(0);
        assert_eq!(marked(&mut w, 0), Some(put(1, 1)));
    }
    ask(&mut w, 0, store(put(1, 2), "two"));
    assert_eq!(marked(&mut w, 0), Some(put(1, 1)));
    w.nodes[1].writable = false;
    let full = ask(&mut w, 1, mark(Tag::ZERO));
    assert_eq!(full, Some(Answer::DiskFull));
    // A head that is learnt again learns the mark, too.
    w.damage(1, |_| true);
    w.nodes[1].writable = true;
    ask(&mut w, 2, mark(put(1, 1)));
    ask(&mut w, 1, store(put(1, 2), "two"));
    w.damage(1, |_| true);
    ask(&mut w, 1, plain_read());
    w.advance(w.timing.request + w.timing.retry);
    w.settle();
    assert_eq!(marked(&mut w, 1), Some(put(1, 1)));
}

#[test]
fn without_an_open_source_a_mark_means_nothing_and_nothing_is_carried() {
    let (mut w, key) = (second(1), section_key());
    let carry = |tag, text| Ask::Carry {
        tag,
        origin: EventualTag::of_section(tag.lock_ref),
        fence: tag,
        content: content(&section_key(), tag, text),
    };
    let answer = w.ask_in(NEXT, 0, &key, carry(put(1, 1), "one"));
    assert_eq!(answer, Some(Answer::Stored));
    w.ask_in(NEXT, 0, &key, Ask::MarkMoved { tag: put(1, 1) });
    w.closed.push(Epoch::FIRST);
    w.known[0] = 1;
    let answer = w.ask_in(NEXT, 0, &key, plain_read());
    assert!(
        matches!(
            answer,
            Some(Answer::Cells {
                moved: Moved::All,
                ..
            })
        ),
        "{answer:?}"
    );
    let answer = w.ask_in(NEXT, 0, &key, carry(put(1, 2), "two"));
    assert_eq!(answer, Some(Answer::Closed));
    let mut other = section_key();
    other.key = Bytes::from_static(b"other");
    let before = w.nodes[0].disk.records().count();
    w.ask_in(NEXT, 0, &other, Ask::MarkMoved { tag: Tag::ZERO });
    assert_eq!(w.nodes[0].disk.records().count(), before, "no trace");
}

/// The write may come to nothing, and then the value stands again (G26). What lies below a floor of
/// which the giver does not know may be older than a delete that was buried.
#[test]
fn a_harvested_value_is_taken_where_a_write_hides_it_and_not_from_below_an_unknown_floor() {
    let (mut w, key) = (second(1), section_key());
    let tag = |clock| EventualTag {
        clock,
        ..EventualTag::default()
    };
    let harvest = |clock, floor| Ask::Harvest {
        tag: tag(clock),
        content: content(&section_key(), Tag::ZERO, "eventual"),
        floor: LockRef(floor),
    };
    let eventual = |w: &mut World, key: &KeyId| match w.ask_in(NEXT, 0, key, plain_read()) {
        Some(Answer::Cells { eventual, .. }) => eventual.map(|(tag, _)| tag),
        other => panic!("{other:?}"),
    };
    w.ask_in(NEXT, 0, &key, store(put(1, 1), "one"));
    for clock in [7, 5] {
        let answer = w.ask_in(NEXT, 0, &key, harvest(clock, 0));
        assert_eq!(answer, Some(Answer::EventualStored { tag: tag(clock) }));
        assert_eq!(eventual(&mut w, &key), Some(tag(7)), "the newer one stays");
    }
    w.history
        .extend([Command::Enqueue, Command::Remove(1), Command::Floor(1)]);
    w.nodes[0].applied = w.history.len();
    let answer = w.ask_in(NEXT, 0, &key, harvest(9, 0));
    assert!(matches!(answer, Some(Answer::Past { .. })), "{answer:?}");
    assert_eq!(eventual(&mut w, &key), Some(tag(7)));
    let answer = w.ask_in(NEXT, 0, &key, harvest(9, 1));
    assert_eq!(answer, Some(Answer::EventualStored { tag: tag(9) }));
    assert_eq!(eventual(&mut w, &key), Some(tag(9)));
}

#[test]
fn a_mover_walks_all_keys_by_address_in_bounded_parts() {
    let mut w = world(1);
    let mut expected: Vec<(Address, KeyId)> = Vec::new();
    for number in 0..700 {
        let mut key = register_key();
        key.key = Bytes::from(format!("key {number}"));
        let tag = Tag {
            sequence: 1,
            writer: 1,
            ..Tag::ZERO
        };
        w.ask(0, &key, store_of(&key, tag, "x"));
        expected.push((Address::of(key.keyspace, TagRule::Whole, &key.key), key));
    }
    expected.sort();
    for limit in [1, 100, 300, 5_000] {
        let (mut found, mut done) = (Vec::new(), None);
        loop {
            let after = done.clone();
            let next = NEXT;
            let ask = StoreAsk::List {
                next,
                after,
                limit,
                eventual: false,
            };
            let Some(Answer::Listed { keys, more }) = w.ask_store(0, ask) else {
                panic!("a list");
            };
            assert!(keys.len() <= limit as usize);
            done = keys.last().cloned().or(done);
            found.extend(keys);
            if !more {
                break;
            }
        }
        assert_eq!(found, expected, "limit {limit}");
    }
    assert_eq!(w.ask(0, &section_key(), plain_read()), sealed(NEXT));
}

#[test]
fn one_sealed_member_ends_an_operation_and_its_doubt_is_kept() {
    let mut w = world(3);
    let next = NEXT;
    w.ask_store(1, StoreAsk::Seal { next });
    let moved = |may_have_taken_effect, under| {
        Some(OpEnd::Moved {
            next: Some(NEXT),
            under,
            may_have_taken_effect,
        })
    };
    let tag = Tag {
        sequence: 1,
        writer: 5,
        ..Tag::ZERO
    };
    let write = Op::Write {
        key: register_key(),
        writer: 5,
        value: None,
    };
    let id = w.start(0, write.clone());
    w.reach(0, &[1]);
    assert_eq!(
        w.outcome(id, 0),
        moved(false, None),
        "nothing was stored yet"
    );
    let id = w.start(0, write);
    w.reach(0, &[0, 2]);
    w.reach(0, &[0]);
    w.reach(0, &[1]);
    assert_eq!(w.outcome(id, 0), moved(true, Some(tag)));
    w.ask_store(2, StoreAsk::Delete { next });
    let read = Op::Read {
        key: register_key(),
        moves: false,
    };
    let id = w.start(0, read);
    w.reach(0, &[2]);
    assert_eq!(w.outcome(id, 0), moved(false, None));
}

#[test]
fn what_is_under_repair_when_its_store_is_sealed_stays_as_it_is() {
    let mut w = world(3);
    let (key, next) = (register_key(), NEXT);
    let tag = Tag {
        sequence: 1,
        writer: 1,
        ..Tag::ZERO
    };
    for i in 0..3 {
        w.ask(i, &key, store_of(&key, tag, "x"));
    }
    w.damage(0, |_| true);
    assert_eq!(w.ask(0, &key, plain_read()), Some(Answer::Void));
    w.ask_store(0, StoreAsk::Seal { next });
    w.advance(w.timing.request + w.timing.retry);
    w.settle();
    assert!(w.nodes[0].disk.is_damaged());
    assert_eq!(w.ask(0, &key, sealed_read(NEXT)), Some(Answer::Void));
}

/// What is watched while a store is sealed under load.
struct Watch {
    world: World,
    open: BTreeMap<(usize, OpId), bool>,
    /// Tags acknowledged in the store, by key.
    acked: BTreeSet<(bool, Tag)>,
    /// What sealed members have shown, by key: no two answers differ.
    shown: BTreeMap<(bool, usize), Tag>,
    /// The cells of each sealed store.
    frozen: BTreeMap<usize, Vec<(Bytes, Bytes)>>,
    numbers: u64,
}

fn key_of(section: bool) -> KeyId {
    match section {
        true => section_key(),
        false => register_key(),
    }
}

impl Watch {
    fn write(&mut self, caller: usize) {
        self.numbers += 1;
        let value = Some(Bytes::from(format!("{}", self.numbers)));
        let section = self.world.chance(50);
        let key = key_of(section);
        let op = match section {
            // One section, with as many puts in flight as its writer likes.
            true => Op::Put {
                key,
                tag: put(1, self.numbers),
                value,
                counter_above: true,
            },
            false => Op::Write {
                key,
                writer: u128::from(self.numbers),
                value,
            },
        };
        let id = self.world.start(caller, op);
        self.open.insert((caller, id), section);
    }

    /// A sealed read of a member, whose answer may be held, lost, or belong to a life that ends.
    fn look(&mut self, section: bool) {
        let i = self.world.rng.below(3) as usize;
        self.world.tell(i, &key_of(section), sealed_read(NEXT));
        if self.world.chance(50) {
            self.world.flush(i);
        }
        self.frozen.entry(i).or_insert(self.world.cells(i));
    }

    fn hear(&mut self) -> Result<(), String> {
        for (i, key, answer) in self.world.overheard() {
            let Answer::Cells { versions, .. } = answer else {
                continue;
            };
            let tag = versions.last().map_or(Tag::ZERO, |v| v.tag);
            let at = (key == section_key(), i);
            let before = *self.shown.entry(at).or_insert(tag);
            if before != tag {
                return Err(format!("sealed member {i} showed {before:?}, then {tag:?}"));
            }
        }
        for (caller, id, outcome) in std::mem::take(&mut self.world.outcomes) {
            let section = self.open.remove(&(caller, id)).expect("one outcome each");
            if let OpEnd::Stored { tag } = outcome {
                self.acked.insert((section, tag));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        for (section, tag) in &self.acked {
            let members: Vec<usize> = (0..3)
                .filter(|i| self.shown.get(&(*section, *i)).is_some_and(|t| t < tag))
                .collect();
            if members.len() >= 2 {
                return Err(format!(
                    "{tag:?} was acknowledged, and sealed members {members:?} do not have it"
                ));
            }
        }
        Ok(())
    }
}

/// Writes race with seals, crashes and lost, late and repeated messages.
fn run(seed: u64, planted: Planted) -> Result<usize, String> {
    let mut world = World::new(3, 2, seed, planted);
    world.history = vec![Command::Enqueue];
    world.nodes.iter_mut().for_each(|n| n.applied = 1);
    let mut watch = Watch {
        world,
        open: BTreeMap::new(),
        acked: BTreeSet::new(),
        shown: BTreeMap::new(),
        frozen: BTreeMap::new(),
        numbers: 0,
    };
    for step in 0..160 {
        if watch.world.chance(50) {
            let caller = watch.world.rng.below(2) as usize;
            watch.write(caller);
        }
        if step > 30 && watch.world.chance(6) {
            let section = watch.world.chance(50);
            watch.look(section);
        }
        if step > 30 && watch.world.chance(5) {
            let i = watch.world.rng.below(3) as usize;
            let section = watch.world.chance(50);
            let tag = put(1, watch.numbers);
            watch
                .world
                .tell(i, &key_of(section), Ask::MarkMoved { tag });
        }
        let lives = watch.world.lives.clone();
        watch.world.disturb();
        // I6: what was sealed stays as it was, unless the seal itself was lost with a crash.
        for (i, before) in lives.iter().enumerate() {
            if watch.world.lives[i] != *before && !watch.world.is_sealed(i) {
                watch.frozen.remove(&i);
            }
            if let Some(frozen) = watch.frozen.get(&i)
                && *frozen != watch.world.cells(i)
            {
                return Err(format!("sealed member {i} has changed"));
            }
        }
        watch.hear()?;
    }
    watch.check()?;
    let both = watch.shown.keys().filter(|(section, _)| *section).count();
    Ok(both.min(watch.acked.len()))
}

#[test]
fn what_a_sealed_quorum_does_not_show_is_never_acknowledged() {
    let mut useful = 0;
    for seed in 0..2_000 {
        let shown = run(seed, Planted::NONE).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        useful += u64::from(shown >= 2);
    }
    assert!(
        useful > 500,
        "few schedules come to a sealed quorum: {useful}"
    );
}

/// A holder in a section of the store's epoch is stopped by the seal, not by a refusal as past.
#[test]
fn a_holder_is_told_to_go_on_in_the_next_epoch() {
    let mut w = world(3);
    w.history = vec![Command::Enqueue];
    w.nodes.iter_mut().for_each(|n| n.applied = 1);
    let next = NEXT;
    for i in 0..3 {
        w.ask_store(i, StoreAsk::Seal { next });
    }
    let holder = Holder {
        lock_ref: LockRef(1),
        generation: 0,
    };
    let key = section_key();
    let id = w.start(0, Op::Get { key, holder });
    w.settle();
    let moved = OpEnd::Moved {
        next: Some(NEXT),
        under: None,
        may_have_taken_effect: false,
    };
    assert_eq!(w.outcome(id, 0), Some(moved));
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::run;
    use fermata_protocol::base::{Bug, Planted};

    #[test]
    fn a_seal_that_is_answered_before_it_is_durable_is_caught() {
        let bug = Planted::only(Bug::SealNotDurable);
        assert!((0..2_000).any(|seed| run(seed, bug).is_err()));
    }

    #[test]
    fn a_sealed_store_that_changes_is_caught() {
        let bug = Planted::only(Bug::SealedStoreChanges);
        assert!((0..200).any(|seed| run(seed, bug).is_err()));
    }
}
