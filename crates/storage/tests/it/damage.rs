//! Torn ends, rotten bytes, full disks, power loss at every single change.

use crate::common::{
    checkpoint, contents, find, flush, log_only, open, put, read, runs, small, try_open,
};
use fermata_storage::{Batch, Disk, Lack, MemDisk, OpenError, Options, Persisted, Void};
use std::sync::Arc;

const FIRST: &str = "wal-0000000000000001";

fn disk() -> Arc<MemDisk> {
    Arc::new(MemDisk::new())
}

#[test]
fn what_is_durable_survives_and_what_is_not_may_go() {
    for seed in 0..50 {
        let before = disk();
        let (mut store, recovery) = open(&before, small());
        assert!(store.is_new() && recovery.last == 0);
        put(&mut store, "durable", "1");
        flush(&mut store);
        put(&mut store, "appended", "2");
        let after = Arc::new(before.crash(seed));
        let (store, recovery) = open(&after, small());
        assert!(!store.is_new());
        assert_eq!((recovery.last, recovery.replayed), (1, 1));
        assert_eq!(
            contents(&store),
            [(b"durable".to_vec(), Some(b"1".to_vec()))]
        );
    }
}

#[test]
fn a_torn_flush_is_dropped_from_the_first_bad_record_on() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let before = disk();
        let (mut store, _) = open(&before, log_only());
        put(&mut store, "old", "o");
        flush(&mut store);
        for i in 0..5 {
            put(&mut store, &format!("new{i}"), vec![7; 400]);
        }
        // Persisted, and the power fails before the sync: the sync is the change after the write.
        before.fail_after(Some(1));
        let done = store.take_flush().expect("a flush").run();
        assert!(matches!(done.outcome(), Persisted::Fatal(_)));
        let after = Arc::new(before.crash(seed));
        let (mut store, recovery) = open(&after, log_only());
        let found = contents(&store);
        assert_eq!(found.len() as u64, recovery.last);
        assert_eq!(found[found.len() - 1].0, b"old");
        lengths.insert(found.len());
        // The place is clean: what comes now is found by the next start, and nothing else.
        put(&mut store, "next", "n");
        flush(&mut store);
        let (again, recovery) = open(&Arc::new(after.crash(seed)), log_only());
        assert_eq!(recovery.torn_bytes, 0);
        assert_eq!(contents(&again).len(), found.len() + 1);
    }
    assert!(
        lengths.len() > 3,
        "seeds tear at several places: {lengths:?}"
    );
}

#[test]
fn a_corrupt_value_voids_its_key_and_only_that_until_it_is_written_again() {
    let disk = disk();
    let (mut store, _) = open(
        &disk,
        Options {
            checkpoint_bytes: 256,
            ..small()
        },
    );
    store.append(
        Batch::new()
            .put("a", "aaaa-first")
            .put("b", "bbbb-only")
            .put("c", "cccc-only"),
    );
    flush(&mut store);
    store.append(Batch::new().put("a", "aaaa-second").put("d", ""));
    flush(&mut store);
    drop(store);
    disk.corrupt(FIRST, find(&disk, FIRST, b"bbbb-only"));
    // In the last flush too: rot is not a tear.
    disk.corrupt(FIRST, find(&disk, FIRST, b"aaaa-second"));
    for round in 0..3 {
        let (mut store, recovery) = open(&disk, small());
        assert_eq!(recovery.void, ["a", "b"], "round {round}");
        assert_eq!(store.get(b"a"), Err(Void));
        assert_eq!(store.get(b"b"), Err(Void));
        assert_eq!(store.get(b"c").unwrap().unwrap(), "cccc-only");
        assert_eq!(store.get(b"d").unwrap().unwrap(), "");
        assert_eq!(contents(&store)[0], (b"a".to_vec(), None));
        if round == 1 {
            // From here on the void is in the table.
            drop(store);
            let (mut store, _) = open(
                &disk,
                Options {
                    checkpoint_bytes: 0,
                    ..small()
                },
            );
            checkpoint(&mut store);
            assert_eq!(store.get(b"a"), Err(Void));
        } else if round == 2 {
            put(&mut store, "a", "again");
            store.append(Batch::new().delete("b"));
            flush(&mut store);
        }
    }
    let (store, recovery) = open(&disk, small());
    assert!(recovery.void.is_empty());
    assert_eq!(store.get(b"a").unwrap().unwrap(), "again");
    assert_eq!(store.get(b"b"), Ok(None));
}

#[test]
fn a_corrupt_value_in_the_table_voids_its_key() {
    let disk = disk();
    let (mut store, _) = open(
        &disk,
        Options {
            checkpoint_bytes: 0,
            ..small()
        },
    );
    store.append(Batch::new().put("a", "aaaa-value").put("b", "bbbb-value"));
    flush(&mut store);
    checkpoint(&mut store);
    drop(store);
    let file = runs(&disk).remove(0);
    disk.corrupt(&file, find(&disk, &file, b"aaaa-value"));
    let (store, recovery) = open(&disk, small());
    assert_eq!(recovery.void, ["a"]);
    assert_eq!((recovery.replayed, recovery.last), (0, 1));
    assert_eq!(store.get(b"a"), Err(Void));
    assert_eq!(store.get(b"b").unwrap().unwrap(), "bbbb-value");
    drop(store);
    let unverified = Options {
        verify_table: false,
        ..small()
    };
    let (store, recovery) = open(&disk, unverified);
    assert!(recovery.void.is_empty());
    assert_eq!(store.get(b"a"), Err(Void));
}

#[test]
fn every_damaged_byte_of_the_log_refuses_or_voids_and_never_shows_an_older_value() {
    let origin = disk();
    let (mut store, _) = open(&origin, log_only());
    for i in 0..3 {
        put(&mut store, "key", format!("value-{i}"));
        put(&mut store, &format!("other-{i}"), vec![i; 30]);
        flush(&mut store);
    }
    let last = store.last();
    drop(store);
    let written = read(&origin, FIRST)
        .iter()
        .rposition(|byte| *byte != 0)
        .unwrap() as u64;
    let (mut refused, mut void, mut unharmed) = (0, 0, 0);
    for at in 0..=written {
        let disk = Arc::new(origin.as_ref().clone());
        disk.corrupt(FIRST, at);
        match try_open(&disk, log_only()) {
            Err(OpenError::Corrupt { segment, offset }) => {
                assert!(segment == FIRST && offset <= at);
                refused += 1;
            }
            Err(OpenError::Version { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other}"),
            Ok((store, recovery)) => {
                assert_eq!(recovery.last, last, "byte {at}");
                if recovery.void.is_empty() && store.get(b"key").unwrap().unwrap() == "value-2" {
                    unharmed += 1;
                } else {
                    assert_eq!(recovery.void.len(), 1, "byte {at}");
                    void += 1;
                }
            }
        }
    }
    // Padding and overwritten values do no harm; all values of keys that count are void.
    assert!(
        refused > 250 && void > 90 && unharmed > 10,
        "{refused} {void} {unharmed}"
    );
}

#[test]
fn a_sector_of_zeros_is_a_tear_only_where_no_later_flush_follows() {
    let lose = |origin: &MemDisk, sector: u64| {
        let disk = Arc::new(origin.clone());
        let file = disk.open(FIRST).unwrap();
        file.write_at(sector * 512, &[0; 512]).unwrap();
        file.sync().unwrap();
        try_open(&disk, log_only())
    };
    let disk = disk();
    let (mut store, _) = open(&disk, log_only());
    put(&mut store, "z", "");
    flush(&mut store);
    put(&mut store, "a", vec![1; 1500]);
    // Durable, and the power fails before its mark.
    disk.fail_after(Some(2));
    let done = store.take_flush().expect("a flush").run();
    assert!(matches!(done.outcome(), Persisted::Fatal(_)));
    disk.fail_after(None);
    drop(store);
    // Sector 2 has the head, sectors 3 and 4 are within the value.
    for sector in 3..=4 {
        let (store, recovery) = lose(&disk, sector).unwrap();
        assert!(recovery.last == 1 && recovery.torn_bytes > 0 && contents(&store).len() == 1);
    }
    let (mut store, _) = open(&disk, log_only());
    put(&mut store, "b", vec![2; 600]);
    flush(&mut store);
    drop(store);
    let refusal = lose(&disk, 2).err();
    assert!(
        matches!(refusal, Some(OpenError::Corrupt { offset: 1024, .. })),
        "{refusal:?}"
    );
    for sector in 3..=4 {
        let (_, recovery) = lose(&disk, sector).unwrap();
        assert_eq!((recovery.last, recovery.torn_bytes), (3, 0));
        assert_eq!(recovery.void, ["a"]);
    }
}

/// Small flushes, so that a block of the medium holds many of them. Whatever zeros it reads as,
/// more than the last flush is never missed: the mark in the first block says how far they went.
#[test]
fn a_block_or_a_whole_tail_of_zeros_hides_no_flush_but_the_last() {
    const SIZE: u64 = 16 << 10;
    let options = Options {
        segment_bytes: SIZE,
        ..log_only()
    };
    for flushes in [20, 150] {
        let origin = disk();
        let (mut store, _) = open(&origin, options);
        for i in 0..flushes {
            put(&mut store, "key", format!("value-{i}"));
            flush(&mut store);
        }
        drop(store);
        let lose = |from: u64, len: u64, seed: u64| {
            // With the last mark or without it, as the power failed before it was written.
            let disk = Arc::new(origin.crash(seed));
            let file = disk.open(FIRST).unwrap();
            file.write_at(from, &vec![0; len as usize]).unwrap();
            file.sync().unwrap();
            match try_open(&disk, options) {
                Err(OpenError::Corrupt { .. }) => {}
                Err(other) => panic!("{other}"),
                Ok((store, recovery)) => {
                    assert!(recovery.last + 1 >= flushes, "{flushes}: {from} {len}");
                    let newest = format!("value-{}", recovery.last - 1);
                    assert_eq!(store.get(b"key").unwrap().unwrap(), newest);
                }
            }
        };
        for unit in [512, 4096] {
            for (from, seed) in (0..SIZE).step_by(unit).zip(0..) {
                lose(from, unit as u64, seed);
                lose(from, SIZE - from, seed);
            }
        }
    }
}

/// A process that was killed between its write and its sync has left what the next one reads, makes
/// durable, and tells. That is no torn end any more.
#[test]
fn what_was_read_at_a_start_is_not_missed_either() {
    let disk = disk();
    let (mut store, _) = open(&disk, log_only());
    for i in 0..3 {
        put(&mut store, "key", format!("value-{i}"));
        flush(&mut store);
    }
    drop(store);
    let (store, recovery) = open(&disk, log_only());
    assert_eq!(recovery.last, 3);
    drop(store);
    let end = find(&disk, FIRST, b"value-2");
    let file = disk.open(FIRST).unwrap();
    file.write_at(end / 512 * 512, &[0; 512]).unwrap();
    let refusal = try_open(&disk, log_only()).err();
    assert!(
        matches!(refusal, Some(OpenError::Corrupt { .. })),
        "{refusal:?}"
    );
}

#[test]
fn a_missing_file_refuses() {
    let origin = disk();
    let (mut store, _) = open(&origin, small());
    for i in 0..8 {
        put(&mut store, &format!("key{i}"), vec![1; 1500]);
        flush(&mut store);
    }
    drop(store);
    let names = origin.list().unwrap();
    assert!(names.len() > 3, "{names:?}");
    // The loss of the newest segment alone cannot be seen, as the format's page says.
    for name in &names[..names.len() - 2] {
        let disk = Arc::new(origin.as_ref().clone());
        disk.remove(name).unwrap();
        let refusal = try_open(&disk, small())
            .err()
            .map(|error| error.to_string());
        assert!(refusal.is_some_and(|line| line.contains("missing") && !line.contains('\n')));
    }
    let disk = Arc::new(origin.as_ref().clone());
    disk.remove("table").unwrap();
    assert!(matches!(
        try_open(&disk, small()),
        Err(OpenError::Missing { .. })
    ));
}

#[test]
fn removals_of_a_checkpoint_that_a_crash_undid_do_no_harm() {
    let disk = disk();
    let (mut store, _) = open(&disk, small());
    for i in 0..8 {
        put(&mut store, &format!("key{i}"), vec![1; 1500]);
        flush(&mut store);
    }
    let before = disk.as_ref().clone();
    checkpoint(&mut store);
    let expected = contents(&store);
    drop(store);
    let gone: Vec<_> = before.list().unwrap();
    let kept = disk.list().unwrap();
    let gone: Vec<_> = gone
        .into_iter()
        .filter(|name| !kept.contains(name))
        .collect();
    assert!(gone.len() >= 2, "{gone:?}");
    for name in &gone[..gone.len() - 1] {
        // This one is back, those after it are not, and its contents do not matter.
        for bytes in [read(&before, name), vec![7; 4096]] {
            let disk = Arc::new(disk.as_ref().clone());
            disk.open(name).unwrap().write_at(0, &bytes).unwrap();
            assert_eq!(contents(&open(&disk, small()).0), expected);
            assert!(!disk.list().unwrap().contains(name));
        }
    }
}

#[test]
fn what_a_killed_process_wrote_is_durable_once_it_has_been_read() {
    for seed in 0..20 {
        let disk = disk();
        let (mut store, _) = open(&disk, log_only());
        put(&mut store, "a", "1");
        flush(&mut store);
        put(&mut store, "b", vec![2; 1000]);
        disk.fail_after(Some(1));
        let done = store.take_flush().expect("a flush").run();
        assert!(matches!(done.outcome(), Persisted::Fatal(_)));
        // Killed before the sync; the page cache is still there.
        disk.fail_after(None);
        let (_, recovery) = open(&disk, log_only());
        assert_eq!(recovery.last, 2);
        let (_, recovery) = open(&Arc::new(disk.crash(seed)), log_only());
        assert_eq!(recovery.last, 2);
    }
}

#[test]
fn another_version_of_the_format_is_named() {
    let disk = disk();
    let (mut store, _) = open(&disk, small());
    put(&mut store, "key", "value");
    flush(&mut store);
    drop(store);
    disk.corrupt(FIRST, 8);
    let refusal = try_open(&disk, small()).err();
    assert!(matches!(
        refusal,
        Some(OpenError::Version {
            found: 0x12,
            supported: 3,
            ..
        })
    ));
}

#[test]
fn a_full_disk_delays_a_flush_and_reads_go_on() {
    let disk = disk();
    let (mut store, _) = open(&disk, log_only());
    put(&mut store, "a", vec![1; 3000]);
    flush(&mut store);
    disk.set_full(true);
    put(&mut store, "b", vec![2; 3000]);
    for _ in 0..3 {
        let done = store.take_flush().expect("the same flush again").run();
        assert!(matches!(done.outcome(), Persisted::Full(_)));
        store.flushed(done);
        assert_eq!((store.durable(), store.failure()), (1, None));
        assert_eq!(store.get(b"b").unwrap().unwrap().len(), 3000);
        // What comes meanwhile waits for the flush after.
        put(&mut store, "c", vec![3; 10]);
    }
    disk.set_full(false);
    let first = store.take_flush().expect("a flush");
    assert_eq!(first.last(), 2);
    store.flushed(first.run());
    assert_eq!(store.durable(), 2);
    flush(&mut store);
    assert_eq!(store.stats().full, 3);
    let (again, recovery) = open(&Arc::new(disk.crash(1)), log_only());
    assert_eq!(recovery.last, 5);
    assert_eq!(contents(&again), contents(&store));
}

#[test]
fn a_lack_of_descriptors_delays_the_next_segment_and_breaks_nothing() {
    let disk = disk();
    let (mut store, _) = open(&disk, log_only());
    put(&mut store, "a", vec![1; 3000]);
    flush(&mut store);
    disk.set_crowded(true);
    // Longer than what is left of the segment.
    put(&mut store, "b", vec![2; log_only().segment_bytes as usize]);
    for _ in 0..2 {
        let done = store.take_flush().expect("the same flush again").run();
        assert!(matches!(done.outcome(), Persisted::Full(Lack::Files)));
        store.flushed(done);
        assert_eq!((store.durable(), store.failure()), (1, None));
        assert_eq!(store.get(b"a").unwrap().unwrap().len(), 3000);
    }
    disk.set_crowded(false);
    flush(&mut store);
    assert_eq!(store.durable(), 2);
    let (again, recovery) = open(&Arc::new(disk.crash(1)), log_only());
    assert_eq!(recovery.last, 2);
    assert_eq!(contents(&again), contents(&store));
}

#[test]
fn a_full_disk_delays_a_checkpoint_and_reads_and_restarts_go_on() {
    let disk = disk();
    let options = Options {
        checkpoint_bytes: 4 << 20,
        segment_bytes: 16 << 20,
        ..small()
    };
    let (mut store, _) = open(&disk, options);
    for i in 0..2 {
        for j in 0..50 {
            put(&mut store, &format!("key{j}"), vec![i; 100_000]);
        }
        flush(&mut store);
        disk.set_full(i == 1);
        if i == 0 {
            checkpoint(&mut store);
        }
    }
    for _ in 0..2 {
        let done = store.take_checkpoint().expect("due").run();
        assert!(
            matches!(done.outcome(), Persisted::Full(_)),
            "{:?}",
            done.outcome()
        );
        store.checkpointed(done);
        assert_eq!(store.get(b"key7").unwrap().unwrap(), vec![1; 100_000]);
        let wrong = contents(&store)
            .into_iter()
            .filter(|(_, v)| *v != Some(vec![1; 100_000]));
        assert_eq!(wrong.count(), 0);
    }
    for seed in 0..10 {
        let (again, _) = open(&Arc::new(disk.crash(seed)), options);
        assert_eq!(contents(&again), contents(&store));
    }
    disk.set_full(false);
    checkpoint(&mut store);
    let (again, recovery) = open(&Arc::new(disk.crash(1)), options);
    assert_eq!(recovery.replayed, 0);
    assert_eq!(contents(&again), contents(&store));
}

#[test]
fn power_may_fail_at_every_change_of_creation_flush_and_checkpoint() {
    let mut length = None;
    for fuse in 0.. {
        let disk = disk();
        disk.fail_after(Some(fuse));
        let (mut durable, mut appended) = (0, 0);
        if let Ok((mut store, _)) = try_open(&disk, small()) {
            for i in 0..12_u64 {
                store.append(
                    Batch::new()
                        .put("same", i.to_string())
                        .put(i.to_string(), vec![9; 900]),
                );
                appended = store.last();
                if let Some(flush) = store.take_flush() {
                    store.flushed(flush.run());
                }
                if let Some(checkpoint) = store.take_checkpoint() {
                    store.checkpointed(checkpoint.run());
                }
                durable = store.durable();
                if store.failure().is_some() {
                    break;
                }
            }
            if durable == 12 {
                assert!(store.stats().checkpoints > 0);
                length = Some(fuse);
            }
        }
        for seed in 0..4 {
            let after = Arc::new(disk.crash(seed));
            let (mut store, recovery) = open(&after, small());
            assert!(
                recovery.last >= durable && recovery.last <= appended,
                "fuse {fuse}"
            );
            assert_eq!(
                contents(&store).len() as u64,
                recovery.last + recovery.last.min(1)
            );
            if let Some(newest) = recovery.last.checked_sub(1) {
                assert_eq!(store.get(b"same").unwrap().unwrap(), newest.to_string());
            }
            put(&mut store, "after", "1");
            flush(&mut store);
            let (store, _) = open(&Arc::new(after.crash(seed)), small());
            assert_eq!(store.get(b"after").unwrap().unwrap(), "1");
        }
        if length.is_some() {
            break;
        }
    }
    assert!(length.is_some_and(|length| length > 60), "{length:?}");
}

#[test]
fn making_a_segment_may_be_cut_twice() {
    // First the process is killed, and its unfinished file is removed at the next start; then the
    // power fails, with all these changes of names still to be kept or lost.
    for (killed, cut) in (0..9).flat_map(|killed| (0..9).map(move |cut| (killed, cut))) {
        let disk = disk();
        for fuse in [killed, cut] {
            disk.fail_after(None);
            let (mut store, _) = open(&disk, log_only());
            put(&mut store, "key", "value");
            disk.fail_after(Some(fuse));
            let done = store.take_flush().expect("a flush").run();
            store.flushed(done);
        }
        for seed in 0..200 {
            let (store, recovery) = open(&Arc::new(disk.crash(seed)), log_only());
            assert_eq!(contents(&store).len() as u64, recovery.last.min(1));
        }
    }
}

#[test]
fn two_runs_make_the_same_disk() {
    let run = || {
        let disk = disk();
        let (mut store, _) = open(
            &disk,
            Options {
                checkpoint_bytes: 2000,
                ..small()
            },
        );
        for i in 0..200_u32 {
            put(
                &mut store,
                &format!("key{}", i * 7919 % 101),
                vec![i as u8; 300],
            );
            flush(&mut store);
            if let Some(checkpoint) = store.take_checkpoint() {
                store.checkpointed(checkpoint.run());
            }
        }
        drop(store);
        let files = disk
            .list()
            .unwrap()
            .into_iter()
            .map(|name| (read(&disk, &name), name));
        (disk.changes(), files.collect::<Vec<_>>())
    };
    assert!(run() == run());
}
