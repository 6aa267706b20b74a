//! Segments that are written over segments that the table has covered.

use crate::common::{checkpoint, contents, flush, open, put, read, small, try_open};
use fermata_storage::{Disk, Lack, MemDisk, OpenError, Options, Persisted, Store, Void};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a segment's mark is, and its length.
const MARK: (u64, usize) = (512, 12);

/// The log's segments, or its spares, in order.
fn names(disk: &MemDisk, begin: &str) -> Vec<String> {
    let mut names = disk.list().expect("lists");
    names.retain(|name| name.starts_with(begin));
    names.sort();
    names
}

fn newest(disk: &MemDisk) -> String {
    names(disk, "wal-").pop().expect("there is a segment")
}

/// Whether a segment's header says that its file was used before.
fn was_used(disk: &MemDisk, name: &str) -> bool {
    read(disk, name)[8] == 3
}

/// Puts until the newest segment was written over an older one and has a few flushes in it; every
/// key is put once. Says how many there are.
fn fill(store: &mut Store, disk: &MemDisk) -> usize {
    for n in 0..1_000 {
        let begun = names(disk, "wal-");
        put(store, &format!("k{n:04}"), format!("<{n:04}>").repeat(50));
        flush(store);
        while let Some(due) = store.take_checkpoint() {
            store.checkpointed(due.run());
        }
        let same = begun == names(disk, "wal-");
        if same && was_used(disk, &newest(disk)) && marked(disk) > 2_000 {
            return n + 1;
        }
    }
    panic!("no segment was written over");
}

/// How far the newest segment is durable, as its mark says.
fn marked(disk: &MemDisk) -> u64 {
    let bytes = read(disk, &newest(disk));
    u64::from_le_bytes(bytes[512..520].try_into().expect("eight bytes"))
}

fn filled() -> (Arc<MemDisk>, Store, usize) {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, small());
    let keys = fill(&mut store, &disk);
    (disk, store, keys)
}

#[test]
fn covered_segments_are_written_over_by_those_of_their_length() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, small());
    let (mut most, mut used) = (0, [false; 2]);
    for n in 0..400 {
        let len = if n % 10 == 0 { 5_000 } else { 300 };
        put(&mut store, &format!("k{}", n % 7), vec![b'v'; len]);
        flush(&mut store);
        while let Some(due) = store.take_checkpoint() {
            store.checkpointed(due.run());
        }
        most = most.max(names(&disk, "wal-").len() + names(&disk, "spare-").len());
        let spares = names(&disk, "spare-");
        let bytes: usize = spares.iter().map(|name| read(&disk, name).len()).sum();
        assert!(bytes <= 4 * 4096, "{bytes} bytes of spares");
        for name in names(&disk, "wal-") {
            let len = read(&disk, &name).len();
            used[usize::from(len > 4096)] |= was_used(&disk, &name);
        }
    }
    assert_eq!(used, [true; 2], "short ones and long ones");
    // The log between two checkpoints, and as much again.
    assert!(most <= 10, "{most} files");
    let before = contents(&store);
    drop(store);
    let (store, recovery) = open(&disk, small());
    assert_eq!((contents(&store), recovery.torn_bytes), (before, 0));
    assert_eq!(names(&disk, "spare-"), [""; 0], "a start begins without");
}

#[test]
fn whatever_power_leaves_of_a_flush_nothing_older_comes_back() {
    let (origin, mut store, keys) = filled();
    let name = newest(&origin);
    for n in 0..3 {
        put(&mut store, &format!("new{n}"), vec![b'n'; 400]);
    }
    let mut last = BTreeMap::<u64, u32>::new();
    origin.fail_after(Some(1));
    let done = store.take_flush().expect("a flush").run();
    assert!(matches!(done.outcome(), Persisted::Fatal(_)));
    assert_eq!(newest(&origin), name, "the flush is in the segment");
    for seed in 0..300 {
        let after = Arc::new(origin.crash(seed));
        let (mut store, recovery) = open(&after, small());
        let found = contents(&store);
        assert!(recovery.void.is_empty());
        assert_eq!(found.len() as u64, recovery.last);
        assert!(
            found.len() >= keys,
            "seed {seed}: {} of {keys}",
            found.len()
        );
        *last.entry(recovery.last).or_default() += 1;
        // What is appended now is found by the next start, and nothing else.
        put(&mut store, "next", "n");
        flush(&mut store);
        let (again, recovery) = open(&Arc::new(after.crash(seed)), small());
        assert_eq!(recovery.torn_bytes, 0, "seed {seed}");
        assert_eq!(contents(&again).len(), found.len() + 1, "seed {seed}");
    }
    assert!(last.len() > 2, "seeds tear at several places: {last:?}");
}

#[test]
fn power_may_fail_at_every_change_of_a_segment_that_is_written_over() {
    for fuse in 0..400 {
        let disk = Arc::new(MemDisk::new());
        let (mut store, _) = open(&disk, small());
        let keys = fill(&mut store, &disk);
        disk.fail_after(Some(fuse));
        let mut n = keys;
        let mut failed = false;
        while !failed && n < keys + 60 {
            put(
                &mut store,
                &format!("k{n:04}"),
                format!("<{n:04}>").repeat(50),
            );
            n += 1;
            let done = store.take_flush().expect("a flush").run();
            failed = !matches!(done.outcome(), Persisted::Done);
            store.flushed(done);
            while let Some(due) = store.take_checkpoint().filter(|_| !failed) {
                let done = due.run();
                failed = !matches!(done.outcome(), Persisted::Done);
                store.checkpointed(done);
            }
        }
        let durable = store.durable();
        for after in [disk.as_ref().clone(), disk.crash(fuse)] {
            let after = Arc::new(after);
            after.fail_after(None);
            let (store, recovery) = open(&after, small());
            assert!(recovery.last >= durable, "fuse {fuse}");
            let found = contents(&store);
            assert_eq!(found.len() as u64, recovery.last, "fuse {fuse}");
            for (n, (key, value)) in found.iter().enumerate() {
                assert_eq!(*key, format!("k{n:04}").into_bytes(), "fuse {fuse}");
                let expect = format!("<{n:04}>").repeat(50).into_bytes();
                assert_eq!(value.as_deref(), Some(&expect[..]), "fuse {fuse}");
            }
        }
        if !failed {
            return;
        }
    }
    panic!("the fuse was never long enough");
}

/// The first spare is written over at once, by the next flush.
#[test]
fn power_may_fail_while_the_first_spare_is_written_over() {
    for fuse in 0..60 {
        let disk = Arc::new(MemDisk::new());
        let (mut store, _) = open(&disk, small());
        let mut n = 0;
        let mut append = |store: &mut Store| {
            put(store, &format!("k{n:04}"), vec![b'v'; 3_000]);
            n += 1;
        };
        let due = loop {
            append(&mut store);
            flush(&mut store);
            if let Some(due) = store.take_checkpoint() {
                break due;
            }
        };
        disk.fail_after(Some(fuse));
        store.checkpointed(due.run());
        append(&mut store);
        let mut failed = store.failure().is_some();
        if !failed {
            let done = store.take_flush().expect("a flush").run();
            store.flushed(done);
            failed = store.failure().is_some();
        }
        let durable = store.durable();
        for seed in 0..20 {
            let after = Arc::new(disk.crash(seed));
            let (store, recovery) = open(&after, small());
            assert!(recovery.last >= durable, "fuse {fuse}, seed {seed}");
            assert_eq!(contents(&store).len() as u64, recovery.last);
        }
        if !failed {
            assert!(was_used(&disk, &newest(&disk)));
            return;
        }
    }
    panic!("the fuse was never long enough");
}

/// The mark vouches for a flush, and where it was not yet written a head behind it; without either
/// the last flush is in doubt, which here is all that rot can hide.
#[test]
fn rot_shows_wherever_a_mark_or_a_head_vouches_for_it() {
    let (origin, store, keys) = filled();
    drop(store);
    let name = newest(&origin);
    let last = format!("<{:04}>", keys - 1);
    let place = |key: usize| {
        let bytes = read(&origin, &name);
        let needle = format!("k{key:04}").into_bytes();
        let at = bytes.windows(5).position(|part| part == needle);
        at.expect("the key is in the newest segment") as u64
    };
    let value = {
        let bytes = read(&origin, &name);
        let found = bytes.windows(6).position(|part| part == last.as_bytes());
        found.expect("the value is in the newest segment") as u64
    };
    let key = format!("k{:04}", keys - 1);
    // With its mark.
    let rotten = Arc::new(origin.as_ref().clone());
    rotten.corrupt(&name, value);
    let (store, recovery) = open(&rotten, small());
    assert_eq!(recovery.void, std::slice::from_ref(&key));
    assert_eq!(store.get(key.as_bytes()), Err(Void));
    let rotten = Arc::new(origin.as_ref().clone());
    rotten.corrupt(&name, place(keys - 1));
    let refused = try_open(&rotten, small()).err().expect("is refused");
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused}");
    // With the mark of the flush before, as power may leave it: the flush before is in no doubt.
    let old = Arc::new(origin.as_ref().clone());
    let bytes = marks_before(&old, &name, place(keys - 1));
    old.open(&name).unwrap().write_at(MARK.0, &bytes).unwrap();
    let (store, recovery) = open(&Arc::new(old.as_ref().clone()), small());
    assert_eq!((contents(&store).len(), recovery.torn_bytes), (keys, 0));
    let rotten = Arc::new(old.as_ref().clone());
    rotten.corrupt(&name, place(keys - 2));
    assert!(try_open(&rotten, small()).is_err());
    let rotten = Arc::new(old.as_ref().clone());
    rotten.corrupt(&name, value);
    let (store, recovery) = open(&rotten, small());
    assert!(recovery.torn_bytes > 0);
    assert_eq!(contents(&store).len(), keys - 1);
}

/// The mark as it was before the flush of the record with this key was done.
fn marks_before(disk: &MemDisk, name: &str, key: u64) -> Vec<u8> {
    let bytes = read(disk, name);
    let magic = bytes[..key as usize]
        .windows(4)
        .rposition(|part| part == b"FRec");
    let begun = magic.expect("a record has a head") as u64;
    let number: u64 = name["wal-".len()..].parse().expect("a number");
    let mut covered = number.to_le_bytes().to_vec();
    covered.extend(begun.to_le_bytes());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &covered) as u32;
    let mut mark = begun.to_le_bytes().to_vec();
    mark.extend(crc.to_le_bytes());
    assert_eq!(mark.len(), MARK.1);
    mark
}

#[test]
fn a_full_disk_has_the_space_of_spares() {
    let disk = Arc::new(MemDisk::new());
    let options = Options {
        checkpoint_bytes: 8192,
        ..small()
    };
    let (mut store, _) = open(&disk, options);
    fill(&mut store, &disk);
    while names(&disk, "spare-").is_empty() {
        put(&mut store, "more", vec![b'm'; 500]);
        flush(&mut store);
        while let Some(due) = store.take_checkpoint() {
            store.checkpointed(due.run());
        }
    }
    disk.set_full(true);
    // Not of a spare's length: it needs space.
    put(&mut store, "long", vec![b'l'; 20_000]);
    let done = store.take_flush().expect("a flush").run();
    assert!(matches!(done.outcome(), Persisted::Full(Lack::Space)));
    store.flushed(done);
    assert_eq!(names(&disk, "spare-"), [""; 0]);
    disk.set_full(false);
    flush(&mut store);
    assert!(store.get(b"long").unwrap().is_some());
    checkpoint(&mut store);
}
