//! What the tests share: small options and short ways to drive a store.

use fermata_storage::{Batch, Disk, MemDisk, OpenError, Options, Persisted, Recovery, Store};
use std::sync::Arc;

/// Segments of four sectors of records or so, so that every test sees many of them.
pub(crate) fn small() -> Options {
    Options {
        segment_bytes: 4096,
        checkpoint_bytes: 8192,
        verify_table: true,
    }
}

/// No checkpoint ever.
pub(crate) fn log_only() -> Options {
    Options {
        checkpoint_bytes: u64::MAX,
        ..small()
    }
}

pub(crate) fn try_open(
    disk: &Arc<MemDisk>,
    options: Options,
) -> Result<(Store, Recovery), OpenError> {
    Store::open(disk.clone(), options)
}

pub(crate) fn open(disk: &Arc<MemDisk>, options: Options) -> (Store, Recovery) {
    try_open(disk, options).expect("opens")
}

pub(crate) fn put(store: &mut Store, key: &str, value: impl Into<Vec<u8>>) -> u64 {
    store.append(Batch::new().put(key.to_owned(), value.into()))
}

/// Flushes all there is; all of it must succeed.
pub(crate) fn flush(store: &mut Store) {
    while let Some(flush) = store.take_flush() {
        let done = flush.run();
        assert!(
            matches!(done.outcome(), Persisted::Done),
            "{:?}",
            done.outcome()
        );
        store.flushed(done);
    }
    assert_eq!(store.durable(), store.last());
}

/// Runs the checkpoint that is due.
pub(crate) fn checkpoint(store: &mut Store) {
    let done = store.take_checkpoint().expect("a checkpoint is due").run();
    assert!(
        matches!(done.outcome(), Persisted::Done),
        "{:?}",
        done.outcome()
    );
    store.checkpointed(done);
}

/// All keys with their values, `None` for void ones.
pub(crate) fn contents(store: &Store) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    store
        .scan(b"", b"")
        .map(|(k, v)| (k.to_vec(), v.ok().map(|v| v.to_vec())))
        .collect()
}

/// All bytes of a file.
pub(crate) fn read(disk: &MemDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).expect("opens");
    let mut bytes = vec![0; file.len().expect("len") as usize];
    file.read_at(0, &mut bytes).expect("reads");
    bytes
}

/// Where `needle` is in a file; it must be there exactly once.
pub(crate) fn find(disk: &MemDisk, name: &str, needle: &[u8]) -> u64 {
    let bytes = read(disk, name);
    let mut hits = bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, part)| *part == needle);
    let (at, _) = hits.next().expect("the needle is there");
    assert!(hits.next().is_none(), "the needle is there twice");
    at as u64
}

/// The names of the table's files, but for the one that says which count.
pub(crate) fn runs(disk: &MemDisk) -> Vec<String> {
    let mut names = disk.list().expect("lists");
    names.retain(|name| name.starts_with("run-"));
    names
}
