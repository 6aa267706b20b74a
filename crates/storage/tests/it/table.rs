//! The table: merges, and what comes back in a quiet hour, beside a plain map; power loss at every
//! change, damage of every byte, a full disk at every step.

use crate::common::{checkpoint, contents, find, flush, open, put, read, runs, small, try_open};
use fermata_storage::{Batch, Disk, MemDisk, OpenError, Options, Persisted, Store, Void};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A checkpoint after each KiB or so, so that there is much to merge.
fn busy() -> Options {
    Options {
        checkpoint_bytes: 1000,
        ..small()
    }
}

fn disk() -> Arc<MemDisk> {
    Arc::new(MemDisk::new())
}

/// The n-th batch of a fixed history: puts, deletions, deleted ranges.
fn batch(model: &mut Model, turn: u64) -> Batch {
    let key = |number: u64| format!("key{:02}", number % 40);
    let (name, value) = (key(turn * 7), vec![turn as u8; 60 + turn as usize % 50]);
    model.insert(name.clone().into(), value.clone());
    let batch = Batch::new().put(name, value);
    match turn % 5 {
        2 => {
            model.remove(key(turn * 3).as_bytes());
            batch.delete(key(turn * 3))
        }
        4 => {
            let (from, to) = (key(turn), format!("{}~", key(turn + 1)));
            model.retain(|key, _| key[..] < *from.as_bytes() || key[..] >= *to.as_bytes());
            batch.delete_range(from, to)
        }
        _ => batch,
    }
}

/// Does all that is due; false if that failed.
fn work(store: &mut Store, quiet: bool) -> bool {
    if let Some(flush) = store.take_flush() {
        store.flushed(flush.run());
    }
    while let Some(due) = store.take_checkpoint() {
        store.checkpointed(due.run());
    }
    while let Some(step) = quiet.then(|| store.take_tidying()).flatten() {
        store.checkpointed(step.run());
    }
    store.failure().is_none()
}

fn as_model(store: &Store) -> Model {
    let there = contents(store).into_iter();
    there
        .map(|(key, value)| (key, value.expect("is not void")))
        .collect()
}

#[test]
fn what_was_merged_is_what_was_written() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let mut model = Model::new();
    let mut most = 0;
    for turn in 0..600 {
        store.append(batch(&mut model, turn));
        assert!(work(&mut store, turn % 97 == 0));
        assert_eq!(as_model(&store), model, "turn {turn}");
        let read = |number| store.get(format!("key{number:02}").as_bytes()).unwrap();
        let read = (0..40).map(read).filter(Option::is_some);
        assert_eq!(read.count(), model.len());
        most = most.max(runs(&disk).len());
    }
    // Five tiers at most, and what is under way.
    assert!((4..40).contains(&most), "{most}");
    let (store, _) = open(&Arc::new(disk.crash(1)), busy());
    assert_eq!(as_model(&store), model);
}

#[test]
fn power_may_fail_at_every_change_of_merges_and_tidying() {
    const TURNS: u64 = 150;
    let mut models = vec![Model::new()];
    let mut batches = Vec::new();
    for turn in 0..TURNS {
        let mut model = models[turn as usize].clone();
        batches.push(batch(&mut model, turn));
        models.push(model);
    }
    let mut changes = 0;
    for fuse in 0.. {
        let disk = disk();
        disk.fail_after(Some(fuse));
        let mut durable = 0;
        if let Ok((mut store, _)) = try_open(&disk, busy()) {
            for (turn, batch) in batches.iter().enumerate() {
                store.append(batch.clone());
                if !work(&mut store, turn % 40 == 39) {
                    break;
                }
            }
            durable = store.durable();
        }
        for seed in 0..6 {
            // The power fails now, or the process is killed and the power fails during its next
            // start, after some changes.
            let killed = Arc::new(disk.as_ref().clone());
            if seed > 2 {
                killed.fail_after(Some(seed - 3));
                let _ = try_open(&killed, busy());
            }
            let after = Arc::new(killed.crash(fuse * 6 + seed));
            let (mut store, recovery) = open(&after, busy());
            assert!(recovery.last >= durable, "fuse {fuse}");
            assert_eq!(
                as_model(&store),
                models[recovery.last as usize],
                "fuse {fuse}"
            );
            // A merge that was cut off is gone on with.
            let mut model = models[recovery.last as usize].clone();
            for turn in 0..10 {
                store.append(batch(&mut model, turn));
                assert!(work(&mut store, turn == 9));
            }
            assert_eq!(as_model(&store), model, "fuse {fuse}");
            assert!(runs(&after).len() < 10, "{:?}", runs(&after));
        }
        if durable == TURNS {
            changes = fuse;
            break;
        }
    }
    assert!(changes > 600, "{changes}");
}

/// Flips every byte of every file of a table of several runs.
#[test]
fn no_damaged_byte_of_the_table_shows_a_wrong_value_or_a_wrong_absence() {
    let origin = disk();
    let (mut store, _) = open(&origin, busy());
    let mut model = Model::new();
    for turn in 0..120 {
        store.append(batch(&mut model, turn));
        assert!(work(&mut store, false));
    }
    drop(store);
    let unverified = Options {
        verify_table: false,
        ..busy()
    };
    let (mut refused, mut failed, mut void, mut unharmed) = (0, 0, 0, 0);
    let files = runs(&origin).into_iter().chain(["table".to_owned()]);
    for file in files {
        let len = read(&origin, &file).len() as u64;
        for at in 0..len {
            let disk = Arc::new(origin.as_ref().clone());
            disk.corrupt(&file, at);
            let store = match try_open(&disk, unverified) {
                Ok((store, _)) => store,
                Err(
                    OpenError::Table(_) | OpenError::Version { .. } | OpenError::Missing { .. },
                ) => {
                    refused += 1;
                    continue;
                }
                Err(other) => panic!("{file}, byte {at}: {other}"),
            };
            let mut met = false;
            for number in 0..40 {
                let key = format!("key{number:02}");
                match store.get(key.as_bytes()) {
                    Ok(value) => {
                        assert_eq!(value.as_deref(), model.get(key.as_bytes()).map(|v| &v[..]))
                    }
                    Err(Void) => met = true,
                }
            }
            match store.failure() {
                Some(_) => {
                    assert!(contents(&store).is_empty());
                    failed += 1;
                }
                None if met => void += 1,
                None => unharmed += 1,
            }
            let verified = try_open(&disk, busy());
            assert!(!met || verified.is_err() || !verified.unwrap().1.void.is_empty());
        }
    }
    assert!(
        refused > 100 && failed > 100 && void > 100 && unharmed > 100,
        "{refused} {failed} {void} {unharmed}"
    );
}

#[test]
fn a_file_that_is_too_short_is_refused() {
    let origin = disk();
    let (mut store, _) = open(&origin, busy());
    let mut model = Model::new();
    for turn in 0..60 {
        store.append(batch(&mut model, turn));
        assert!(work(&mut store, false));
    }
    drop(store);
    for name in runs(&origin).into_iter().chain(["table".to_owned()]) {
        for len in 0..read(&origin, &name).len() as u64 {
            let disk = Arc::new(origin.as_ref().clone());
            disk.open(&name).unwrap().set_len(len).unwrap();
            let refusal = try_open(&disk, busy()).err();
            assert!(
                matches!(refusal, Some(OpenError::Table(_))),
                "{name}, {len}: {refusal:?}"
            );
        }
    }
}

#[test]
fn a_void_value_stays_void_when_it_is_merged() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    put(&mut store, "lost", "the value that rots");
    for turn in 0..3 {
        put(&mut store, &format!("first{turn}"), vec![1; 900]);
        flush(&mut store);
    }
    checkpoint(&mut store);
    drop(store);
    let file = runs(&disk).remove(0);
    disk.corrupt(&file, find(&disk, &file, b"the value that rots"));
    let (mut store, recovery) = open(&disk, busy());
    assert_eq!(recovery.void, ["lost"]);
    for turn in 0..30 {
        put(&mut store, &format!("other{turn}"), vec![2; 900]);
        assert!(work(&mut store, true));
    }
    assert!(!runs(&disk).contains(&file), "it was merged");
    assert_eq!(store.get(b"lost"), Err(Void));
    drop(store);
    let (mut store, recovery) = open(&disk, busy());
    assert_eq!(recovery.void, ["lost"]);
    put(&mut store, "lost", "again");
    assert_eq!(store.get(b"lost").unwrap().unwrap(), "again");
}

#[test]
fn the_space_of_what_is_deleted_comes_back_in_a_quiet_hour() {
    for by_range in [false, true] {
        let disk = disk();
        let options = Options {
            checkpoint_bytes: 64 << 10,
            ..small()
        };
        let (mut store, _) = open(&disk, options);
        let key = |number: u32| format!("key{:05}", number * 7919 % 4000);
        for number in 0..4000 {
            put(&mut store, &key(number), vec![1; 1000]);
            assert!(work(&mut store, false));
        }
        assert!(work(&mut store, true));
        let all = store.stats().table_bytes;
        match by_range {
            true => {
                store.append(Batch::new().delete_range("key00000", "key02000"));
            }
            false => (0..4000).filter(|n| n % 2 == 0).for_each(|number| {
                store.append(Batch::new().delete(key(number)));
            }),
        }
        assert!(work(&mut store, true));
        let left = store.stats().table_bytes;
        assert!(left * 20 < all * 11, "{left} of {all}");
        assert_eq!(contents(&store).len(), 2000);
        // Nothing is left to do, and quiet hours stay quiet.
        assert!(store.take_tidying().is_none());
        store.append(Batch::new().delete_range("", ""));
        assert!(work(&mut store, true));
        assert_eq!((store.stats().table_bytes, runs(&disk).len()), (0, 0));
    }
}

#[test]
fn a_full_disk_puts_a_merge_off_and_loses_nothing() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let mut model = Model::new();
    let mut full = 0;
    for turn in 0..400 {
        disk.set_full(turn % 3 == 1);
        store.append(batch(&mut model, turn));
        if let Some(flush) = store.take_flush() {
            store.flushed(flush.run());
        }
        for step in [store.take_checkpoint(), None] {
            let Some(step) = step.or_else(|| store.take_tidying()) else {
                continue;
            };
            let done = step.run();
            full += usize::from(matches!(done.outcome(), Persisted::Full(_)));
            store.checkpointed(done);
        }
        assert_eq!(store.failure(), None);
        assert_eq!(as_model(&store), model, "turn {turn}");
    }
    assert!(full > 10, "{full}");
    disk.set_full(false);
    assert!(work(&mut store, true) && work(&mut store, true));
    drop(store);
    let (store, _) = open(&disk, busy());
    assert_eq!(as_model(&store), model);
}

#[test]
fn a_disk_that_gets_full_on_the_way_keeps_nothing_of_what_did_not_fit() {
    let mut outcomes = [0, 0];
    for room in 0..40 {
        let disk = disk();
        let (mut store, _) = open(&disk, busy());
        let mut model = Model::new();
        for turn in 0..60 {
            store.append(batch(&mut model, turn));
            if let Some(flush) = store.take_flush() {
                store.flushed(flush.run());
            }
            let Some(due) = store.take_checkpoint() else {
                continue;
            };
            let (before, counted) = (runs(&disk).len(), store.stats().table_bytes);
            disk.full_after(room);
            let done = due.run();
            let is_full = matches!(done.outcome(), Persisted::Full(_));
            store.checkpointed(done);
            disk.set_full(false);
            let is_counted = |name: &String| read(&disk, name).len() as u64;
            let there = runs(&disk).iter().map(is_counted).sum::<u64>();
            assert_eq!(there, store.stats().table_bytes, "room for {room}");
            assert!(!is_full || (runs(&disk).len(), there) == (before, counted));
            outcomes[usize::from(is_full)] += 1;
            assert_eq!(as_model(&store), model);
        }
        assert_eq!(store.failure(), None);
        drop(store);
        let (store, _) = open(&disk, busy());
        assert_eq!(as_model(&store), model);
    }
    assert!(outcomes[0] > 100 && outcomes[1] > 20, "{outcomes:?}");
}

#[test]
fn a_check_behind_the_start_finds_what_is_damaged() {
    let origin = disk();
    let options = Options {
        checkpoint_bytes: 8 << 20,
        segment_bytes: 32 << 20,
        verify_table: false,
    };
    let (mut store, _) = open(&origin, options);
    for number in 0..40_u8 {
        let value = [b"value of ", &[number][..], &[1; 1 << 20]].concat();
        put(&mut store, &format!("key{number:02}"), value);
        assert!(work(&mut store, true));
    }
    drop(store);
    // The last value of the table, and its first key.
    for (needle, is_key) in [(&b"value of \x1f"[..], false), (b"key00", true)] {
        let disk = Arc::new(origin.as_ref().clone());
        let holds = |name: &String| read(&disk, name).windows(needle.len()).any(|w| w == needle);
        let file = runs(&disk)
            .into_iter()
            .find(holds)
            .expect("it is in the table");
        let bytes = read(&disk, &file);
        let at = bytes.windows(needle.len()).position(|part| part == needle);
        disk.corrupt(&file, at.expect("it is there") as u64);
        let (mut store, recovery) = open(&disk, options);
        assert_eq!((recovery.void.len(), store.stats().void), (0, 0));
        let mut steps = 0;
        while let Some(step) = store.take_check() {
            store.checkpointed(step.run());
            steps += 1;
        }
        match is_key {
            true => assert!(steps == 1 && store.failure().is_some()),
            false => assert!(steps > 1 && store.stats().void == 1, "{steps}"),
        }
    }
}

#[test]
fn a_directory_without_its_table_is_refused_and_left_as_it_is() {
    let former = OpenError::Version {
        file: "table.redb".to_owned(),
        found: 1,
        supported: 2,
    };
    let gone = OpenError::Missing {
        file: "table".to_owned(),
    };
    for (files, refusal) in [
        (&["table.redb"][..], &former),
        (
            &["table.new", "table.redb", "wal-0000000000000001"],
            &former,
        ),
        (&["wal-0000000000000001"], &gone),
        (&["run-0000000000000001"], &gone),
    ] {
        let disk = disk();
        for name in files {
            disk.open(name).unwrap();
        }
        let said = try_open(&disk, small())
            .err()
            .map(|error| error.to_string());
        assert_eq!(said, Some(refusal.to_string()));
        assert_eq!(disk.list().unwrap(), files);
    }
}

#[test]
fn a_directory_that_was_not_synced_is_final_whatever_the_reason() {
    let mut failed = 0;
    for syncs in 0..40 {
        let disk = disk();
        let (mut store, _) = open(&disk, busy());
        disk.full_at_dir_sync(Some(syncs));
        let mut models = vec![Model::new()];
        for turn in 0..30 {
            let mut model = models[turn as usize].clone();
            store.append(batch(&mut model, turn));
            models.push(model);
            if !work(&mut store, turn % 10 == 9) {
                failed += 1;
                break;
            }
        }
        assert_eq!(store.stats().full, 0, "a sync is no matter of space");
        let durable = store.durable();
        drop(store);
        disk.full_at_dir_sync(None);
        for after in [disk.as_ref().clone(), disk.crash(syncs)] {
            let (store, recovery) = open(&Arc::new(after), busy());
            assert!(recovery.last >= durable);
            assert_eq!(as_model(&store), models[recovery.last as usize]);
        }
    }
    assert!(failed > 10, "{failed}");
}

#[test]
fn what_is_new_and_hides_nothing_is_not_worth_a_merge_of_all() {
    let disk = disk();
    let options = Options {
        checkpoint_bytes: 64 << 10,
        ..small()
    };
    let (mut store, _) = open(&disk, options);
    let fill = |store: &mut Store, numbers: std::ops::Range<u32>| {
        for number in numbers {
            put(
                store,
                &format!("key{:05}", number * 7919 % 10_007),
                vec![1; 1000],
            );
            assert!(work(store, false));
        }
    };
    fill(&mut store, 0..4000);
    store.append(Batch::new().delete_range("key0", "key01"));
    assert!(work(&mut store, true));
    let before = runs(&disk);
    fill(&mut store, 4000..4800);
    assert!(work(&mut store, true));
    let after = runs(&disk);
    assert!(
        before.iter().all(|file| after.contains(file)),
        "{before:?} {after:?}"
    );
    // The same again hides what is there.
    fill(&mut store, 4000..4800);
    assert!(work(&mut store, true));
    let after = runs(&disk);
    assert!(
        !before.iter().any(|file| after.contains(file)),
        "{before:?} {after:?}"
    );
}

/// However much there is to merge, a checkpoint that is due waits for one file of it at most.
#[test]
fn what_is_done_at_a_time_is_one_file() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let mut model = Model::new();
    let (mut last, mut merges) = (runs(&disk), 0);
    for turn in 0..600 {
        store.append(batch(&mut model, turn));
        flush(&mut store);
        while let Some(due) = store.take_checkpoint() {
            let checkpoints = store.stats().checkpoints;
            // What is being read stays, whatever is removed meanwhile.
            let mut scan = store.scan(b"", b"").map(|(key, _)| key.to_vec());
            let mut keys = Vec::from_iter(scan.next());
            let done = due.run();
            keys.extend(scan);
            assert!(keys.iter().eq(model.keys()));
            store.checkpointed(done);
            let now = runs(&disk);
            let made = now.iter().filter(|name| !last.contains(name)).count();
            assert!(made <= 1, "turn {turn}: {last:?} {now:?}");
            merges += usize::from(store.stats().checkpoints == checkpoints);
            last = now;
        }
    }
    assert!(merges > 100, "{merges}");
}

/// Whoever takes the result of work at the table answers clients, too: it must not be the last who
/// has a large file open, and the disk is told of its space piece by piece.
#[test]
fn removed_files_are_given_back_by_the_next_work_at_the_table() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let (mut seen, mut given_back) = (BTreeMap::new(), 0);
    for turn in 0..400 {
        store.append(batch(&mut Model::new(), turn));
        flush(&mut store);
        while let Some(step) = store.take_checkpoint() {
            let had = disk.list().unwrap();
            for name in had.iter().filter(|name| name.starts_with("run-")) {
                let file = disk.open(name).unwrap();
                seen.entry(name.clone()).or_insert(file);
            }
            let done = step.run();
            // Those that were removed before this step have no bytes left, those that it removed
            // have them all.
            seen.retain(|name, file| {
                let is_removed = !had.contains(name);
                assert_eq!(file.len().unwrap() == 0, is_removed, "{name}");
                given_back += usize::from(is_removed);
                !is_removed
            });
            store.checkpointed(done);
        }
    }
    assert!(given_back > 10, "{given_back} files were given back");
    assert!(seen.keys().all(|name| disk.list().unwrap().contains(name)));
}

/// Work that is far behind does not leave the disk to others: it gives files back whole.
#[test]
fn files_are_given_back_at_once_where_work_is_behind() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let (mut seen, mut whole) = (BTreeMap::new(), 0);
    for turn in 0..120 {
        // A checkpoint is due each time, before any merge, until very many of these are.
        store.append(Batch::new().put(format!("key{}", turn % 9), vec![turn; 1100]));
        flush(&mut store);
        let step = store.take_checkpoint().expect("one is always due");
        let had = disk.list().unwrap();
        for name in had.iter().filter(|name| name.starts_with("run-")) {
            let file = disk.open(name).unwrap();
            seen.entry(name.clone()).or_insert(file);
        }
        store.checkpointed(step.run());
        seen.retain(|name, file| {
            let is_removed = !had.contains(name);
            whole += usize::from(is_removed && file.len().unwrap() > 0);
            !is_removed
        });
    }
    assert!(whole > 10, "{whole} files kept their length");
}

#[test]
fn a_merge_that_finds_no_descriptor_is_put_off() {
    let disk = disk();
    let (mut store, _) = open(&disk, busy());
    let mut put_off = 0;
    for turn in 0..40 {
        store.append(Batch::new().put(format!("key{}", turn % 9), vec![turn; 1100]));
        flush(&mut store);
        checkpoint(&mut store);
        disk.set_crowded(true);
        if let Some(step) = store.take_checkpoint() {
            let before = disk.list().unwrap();
            let done = step.run();
            assert!(matches!(done.outcome(), Persisted::Done));
            put_off += usize::from(runs(&disk).len() > 1 && disk.list().unwrap() == before);
            store.checkpointed(done);
        }
        disk.set_crowded(false);
    }
    assert!(put_off > 10, "{put_off} merges were put off");
    assert!(work(&mut store, true));
    assert_eq!(as_model(&store).len(), 9);
}

#[test]
fn a_scan_reads_nothing_of_what_a_range_deletion_hides() {
    // The deletion is in memory, or in a run of its own.
    for at_rest in [false, true] {
        let disk = disk();
        let options = Options {
            checkpoint_bytes: 1 << 20,
            ..small()
        };
        let (mut store, _) = open(&disk, options);
        let key = |number: u32| format!("key{number:05}");
        for number in 0..1_200 {
            put(&mut store, &key(number), vec![1; 1_000]);
        }
        flush(&mut store);
        checkpoint(&mut store);
        store.append(Batch::new().delete_range("key00010", "key01190"));
        // A key within it that is newer.
        put(&mut store, &key(600), vec![2; 1 << 20]);
        flush(&mut store);
        if at_rest {
            checkpoint(&mut store);
        }
        let oldest = runs(&disk).remove(0);
        for number in (100..1_100).step_by(100) {
            let at = find(&disk, &oldest, key(number + 3).as_bytes());
            disk.corrupt(&oldest, at);
        }
        let numbers = (0..10).chain([600]).chain(1_190..1_200);
        let expected: Vec<_> = numbers.map(|number| key(number).into_bytes()).collect();
        let found = contents(&store).into_iter();
        let found: Vec<_> = found
            .map(|(key, value)| {
                assert!(value.is_some(), "{key:?} is void");
                key
            })
            .collect();
        assert_eq!(found, expected, "{at_rest}");
    }
}
