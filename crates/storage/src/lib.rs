//! Durable ordered bytes for one Fermata node.
//!
//! **Problem.** A node may answer only after what it promises is on stable storage, one disk flush
//! must serve all logs and registers of the node, a full disk must only make it say "not now", and
//! a rotten sector must never turn an acknowledged write into an older one. All this has to run
//! unchanged on a simulated disk, so that the simulator tests the code the server runs.
//!
//! **Idea.** A write-ahead log in front of a table. [`Store::append`] puts a [`Batch`] into the
//! memtable (visible at once) and encodes it into a buffer; [`Store::take_flush`] hands out all
//! that was appended since the last time as one [`Flush`], whose `run` is one write and one
//! `fdatasync` on whatever thread the caller likes; [`Store::flushed`] takes the result and moves
//! [`Store::durable`]. When the log has grown, the memtable is frozen and a [`Checkpoint`] moves it
//! into the table, sorted files that are merged now and then, while new batches go on; then the
//! covered log segments go.
//!
//! ```text
//!  append ─► active memtable ─► frozen memtable ─► table          get and scan look left to right
//!     └────► pending bytes ─► Flush::run ─► wal-N                 one Flush outstanding at most
//! ```
//!
//! The store knows nobody: keys and values are byte strings. It has no threads, no clock and no
//! randomness; the only blocking calls are [`Store::open`], `Flush::run`, `Checkpoint::run`, and
//! reads of the table that miss the system's cache.
//!
//! **Invariants.**
//!
//! * **S1, prefix.** After any crash the contents are those after batches `1..=n`, in order and
//!   each whole, for some `n` that is at least `durable()` of the time of the crash.
//! * **S2, void, not old.** A stored value whose checksum fails reads as [`Void`], never as absent
//!   and never as a former value, until the key is written again; restarts do not change that.
//! * **S3, refuse.** Damage that could hide which keys were written (a record's header, a segment's
//!   header, the table's keys, a missing file) makes [`Store::open`] fail, or the store, where it
//!   is met later; only what can be the torn end of a flush that nobody had an answer from is
//!   dropped.
//! * **S4, one outstanding.** A flush starts only after the one before it is durable. Hence a later
//!   flush in the log proves that an earlier one was complete, which is what S3 judges by. So does
//!   a mark at the segment's start, which each flush leaves when it is durable: it outlives the end
//!   of the log (G52).
//! * **S5, full is not broken.** A full disk fails a flush or a checkpoint in a way that can be
//!   repeated at the same place; reads go on. So does a lack of descriptors, which only the birth
//!   of a segment meets: nothing was written then. Every other write error, and every failed sync,
//!   is final: after it the page cache cannot be trusted and the node has to stop.
//!
//! The bytes are described in `docs/formats/wal.md`, with what is assumed of the medium.
//!
//! ```
//! use fermata_storage::{Batch, MemDisk, Options, Store};
//! use std::sync::Arc;
//!
//! let disk = Arc::new(MemDisk::new());
//! let (mut store, recovery) = Store::open(disk, Options::default()).unwrap();
//! assert!(recovery.void.is_empty());
//! let lsn = store.append(Batch::new().put("key", "value"));
//! assert_eq!(store.get(b"key").unwrap().unwrap(), "value");
//! assert!(store.durable() < lsn);
//!
//! let flush = store.take_flush().unwrap();
//! store.flushed(flush.run()); // on a thread that may block
//! assert_eq!(store.durable(), lsn);
//! if let Some(checkpoint) = store.take_checkpoint() {
//!     store.checkpointed(checkpoint.run()); // likewise
//! }
//! ```

mod batch;
mod checksum;
mod disk;
mod mem_disk;
mod memtable;
mod scan;
mod store;
mod table;
mod wal;

pub use batch::{Batch, MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Op};
pub use disk::{Disk, File, FileDisk, Lack};
pub use mem_disk::MemDisk;
pub use store::{
    Checkpoint, CheckpointDone, Lsn, OpenError, Options, Persisted, Recovery, Stats, Store, Void,
};
pub use wal::{Flush, FlushDone};
