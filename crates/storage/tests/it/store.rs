//! The store on a healthy disk: layers, sizes, real files.

use crate::common::{checkpoint, contents, flush, log_only, open, put, small};
use fermata_storage::{Batch, FileDisk, MemDisk, Options, Store};
use std::io::ErrorKind;
use std::sync::Arc;

#[test]
fn parts_may_move_to_other_threads() {
    fn moves<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    moves::<fermata_storage::Flush>();
    moves::<fermata_storage::FlushDone>();
    moves::<fermata_storage::Checkpoint>();
    moves::<fermata_storage::CheckpointDone>();
    shared::<Store>();
    shared::<MemDisk>();
    shared::<FileDisk>();
}

#[test]
fn reads_merge_all_three_layers() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(
        &disk,
        Options {
            checkpoint_bytes: 0,
            ..small()
        },
    );
    store.append(
        Batch::new()
            .put("a", "t")
            .put("b", "t")
            .put("c", "t")
            .put("e", "t"),
    );
    flush(&mut store);
    checkpoint(&mut store);
    store.append(
        Batch::new()
            .delete_range("b", "d")
            .put("c", "f")
            .put("d", "f"),
    );
    flush(&mut store);
    let running = store.take_checkpoint().expect("due");
    store.append(Batch::new().delete("d").delete_range("e", "").put("f", "a"));
    let expect = ["a=t", "c=f", "f=a"];
    let seen = |store: &Store| -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        contents(store)
            .iter()
            .map(|(k, v)| text(k) + "=" + &text(v.as_ref().unwrap()))
            .collect()
    };
    assert_eq!(seen(&store), expect);
    let done = running.run();
    // The table has moved on, the view of it has not.
    assert_eq!(seen(&store), expect);
    store.checkpointed(done);
    assert_eq!(seen(&store), expect);
    for (key, present) in [
        ("a", true),
        ("b", false),
        ("c", true),
        ("d", false),
        ("e", false),
    ] {
        assert_eq!(
            store.get(key.as_bytes()).unwrap().is_some(),
            present,
            "{key}"
        );
    }
    flush(&mut store);
    checkpoint(&mut store);
    assert_eq!(seen(&store), expect);
    let keys: Vec<_> = store.scan(b"b", b"f").map(|(key, _)| key).collect();
    assert_eq!(keys, ["c"]);
    assert_eq!(store.scan(b"f", b"b").count(), 0);
}

#[test]
fn batches_appended_during_a_flush_go_with_the_next_one() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, small());
    assert!(store.take_flush().is_none());
    put(&mut store, "a", "1");
    let first = store.take_flush().expect("a flush");
    put(&mut store, "b", "2");
    assert!(store.take_flush().is_none(), "one at a time");
    store.flushed(first.run());
    assert_eq!((store.durable(), store.last()), (1, 2));
    put(&mut store, "c", "3");
    let second = store.take_flush().expect("a flush");
    assert_eq!(second.records(), 2);
    store.flushed(second.run());
    let stats = store.stats();
    assert_eq!((stats.flushes, stats.records, store.durable()), (2, 3, 3));
}

#[test]
fn no_checkpoint_runs_ahead_of_the_log() {
    let disk = Arc::new(MemDisk::new());
    let options = Options {
        checkpoint_bytes: 0,
        ..small()
    };
    let (mut store, _) = open(&disk, options);
    put(&mut store, "a", "1");
    assert!(
        store.take_checkpoint().is_none(),
        "not even taken by a flush"
    );
    let running = store.take_flush().expect("a flush");
    assert!(store.take_checkpoint().is_none(), "not durable yet");
    put(&mut store, "b", "2");
    store.flushed(running.run());
    let due = store.take_checkpoint().expect("due");
    store.checkpointed(due.run());
    let (again, recovery) = open(&Arc::new(disk.crash(3)), options);
    assert_eq!((recovery.last, recovery.replayed), (1, 0));
    assert_eq!(contents(&again).len(), 1);
}

#[test]
fn flushes_go_on_beside_a_checkpoint_on_another_thread() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, small());
    let mut running = None;
    let mut done = 0;
    for i in 0..300_u32 {
        put(
            &mut store,
            &format!("key{}", i % 40),
            i.to_string().repeat(60),
        );
        flush(&mut store);
        if running.is_none() {
            running = store
                .take_checkpoint()
                .map(|taken| std::thread::spawn(|| taken.run()));
        }
        if i % 10 == 9
            && let Some(thread) = running.take()
        {
            store.checkpointed(thread.join().unwrap());
            done += 1;
        }
    }
    let checkpoints = store.stats().checkpoints;
    assert!(
        checkpoints > 3 && done > checkpoints,
        "{checkpoints} of {done}"
    );
    let again = open(&Arc::new(disk.crash(7)), small()).0;
    assert_eq!(contents(&again), contents(&store));
}

#[test]
fn covered_segments_go_and_the_log_stays_short() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, small());
    for i in 0..200_u32 {
        put(&mut store, &format!("key{}", i % 10), vec![1; 500]);
        flush(&mut store);
        if let Some(checkpoint) = store.take_checkpoint() {
            store.checkpointed(checkpoint.run());
        }
    }
    let stats = store.stats();
    assert!(
        stats.wal_bytes < 4 * 8192 && stats.checkpoints > 5,
        "{stats:?}"
    );
}

#[test]
fn empty_and_very_long_values_and_empty_keys_and_batches_work() {
    let disk = Arc::new(MemDisk::new());
    let (mut store, _) = open(&disk, log_only());
    let long: Vec<u8> = (0..16 << 20).map(|i: u32| (i >> 7) as u8).collect();
    store.append(
        Batch::new()
            .put("", "empty key")
            .put("empty", "")
            .put("long", long.clone()),
    );
    store.append(Batch::new());
    flush(&mut store);
    put(&mut store, "after", "1");
    flush(&mut store);
    drop(store);
    for checkpoint_bytes in [u64::MAX, 0] {
        let options = Options {
            checkpoint_bytes,
            ..small()
        };
        let (mut store, recovery) = open(&disk, options);
        assert_eq!(recovery.last, 3);
        if let Some(checkpoint) = store.take_checkpoint() {
            store.checkpointed(checkpoint.run());
        }
        assert_eq!(store.get(b"").unwrap().unwrap(), "empty key");
        assert_eq!(store.get(b"empty").unwrap().unwrap(), "");
        assert!(store.get(b"long").unwrap().unwrap() == long);
        assert_eq!(store.get(b"after").unwrap().unwrap(), "1");
    }
}

#[test]
fn real_files_keep_what_is_durable_and_are_locked() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FileDisk::open(directory.path()).unwrap());
    let second = FileDisk::open(directory.path()).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::WouldBlock);
    assert!(second.to_string().contains("in use by another process"));

    let (mut store, _) = Store::open(disk, small()).unwrap();
    for i in 0..100_u32 {
        put(&mut store, &format!("key{i:03}"), i.to_string().repeat(100));
        flush(&mut store);
        if let Some(checkpoint) = store.take_checkpoint() {
            store.checkpointed(checkpoint.run());
        }
    }
    assert!(store.stats().checkpoints > 0);
    drop(store);
    let disk = Arc::new(FileDisk::open(directory.path()).unwrap());
    let (store, recovery) = Store::open(disk, small()).unwrap();
    assert_eq!((recovery.last, store.is_new()), (100, false));
    assert_eq!(store.scan(b"key010", b"key020").count(), 10);
    assert_eq!(store.get(b"key042").unwrap().unwrap(), "42".repeat(100));
}
