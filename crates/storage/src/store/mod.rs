//! The store: layers above, log beside, table below.

mod checkpoint;
mod types;
mod unflushed;

use self::unflushed::Unflushed;
use crate::batch::Batch;
use crate::disk::Disk;
use crate::memtable::{Entry, Memtable};
use crate::scan::Scan;
use crate::table::{Snapshot, Table};
use crate::wal::{self, Flush, FlushDone, Pending, RECORDS_START, SegmentInfo, Spares, Tail};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

pub use checkpoint::{Checkpoint, CheckpointDone};
pub use types::{Lsn, OpenError, Options, Persisted, Recovery, Stats, Void};

/// Segment files are a multiple of this.
const SEGMENT_UNIT: u64 = 4096;
/// A longer buffer is not kept for reuse.
const SPARE_MAX: usize = 4 << 20;

/// Durable ordered bytes; see the crate's text for how the calls play together.
pub struct Store {
    disk: Arc<dyn Disk>,
    options: Options,
    table: Arc<Table>,
    /// The table without the checkpoint that is being written, which `frozen` stands for.
    snapshot: Snapshot,
    active: Memtable,
    /// Bytes of the records of `active`.
    active_bytes: u64,
    frozen: Option<Frozen>,
    /// A [`Checkpoint`] is outstanding.
    checkpointing: bool,
    /// Steps of merges that are due before a checkpoint is.
    owed: u64,
    /// Nothing was to be tidied, and no checkpoint was done since.
    tidy: bool,
    /// From here on the table was not read since `open`; `None` if all of it was.
    unchecked: Option<Bytes>,
    /// Batches after `taken`; they are all of `last - taken`.
    pending: Pending,
    /// The keys of batches that are not durable.
    unflushed: Unflushed,
    /// The buffer of a flush that is done, for the one after the next.
    spare: Vec<u8>,
    last: Lsn,
    taken: Lsn,
    durable: Lsn,
    flushing: bool,
    /// A flush that met a full disk and comes first again.
    retry: Option<Flush>,
    /// `None` until the first flush of a new directory.
    tail: Option<Tail>,
    /// Oldest first; the last one is `tail`'s.
    segments: VecDeque<SegmentInfo>,
    spares: Arc<Spares>,
    /// The first error that ended this store's trust in its disk.
    failure: OnceLock<String>,
    is_new: bool,
    stats: Stats,
}

/// Bytes of a segment, but for one whose first flush is longer.
fn segment_bytes(options: &Options) -> u64 {
    options.segment_bytes.next_multiple_of(SEGMENT_UNIT)
}

/// A memtable on its way into the table.
struct Frozen {
    memtable: Arc<Memtable>,
    /// The last batch in it.
    last: Lsn,
    /// Bytes of its records.
    bytes: u64,
}

impl Store {
    /// Opens the directory and replays the log. Blocks. A disk serves one store at a time: drop the
    /// old one, with its flush and checkpoint, before opening it again (or open a copy of it, as
    /// [`crate::MemDisk::crash`] gives).
    ///
    /// # Errors
    ///
    /// See [`OpenError`]. A refusal to open has changed nothing but leftovers of an unfinished
    /// creation and log segments that the table covers, which are removed.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), OpenError> {
        let names = disk.list()?;
        let (table, table_lsn) = Table::open(&disk, &names, options.checkpoint_bytes)?;
        for name in names.iter().filter(|name| wal::is_unfinished(name)) {
            disk.remove(name)?;
        }
        let log = wal::recover(&*disk, &names, table_lsn)?;
        let snapshot = table.snapshot();
        let mut void = if options.verify_table {
            snapshot.verify(&[], u64::MAX).map_err(OpenError::table)?.0
        } else {
            Vec::new()
        };
        void.retain(|key| log.memtable.get(key).is_none());
        let lost = log
            .memtable
            .entries()
            .filter(|(_, entry)| **entry == Entry::Void);
        void.extend(lost.map(|(key, _)| key.clone()));
        void.sort_unstable();
        let recovery = Recovery {
            last: log.last,
            replayed: log.replayed,
            torn_bytes: log.torn,
            void,
        };
        let store = Self {
            disk,
            options,
            table: Arc::new(table),
            owed: 0,
            tidy: snapshot.is_one_run(),
            unchecked: (!options.verify_table && !snapshot.is_empty()).then(Bytes::new),
            snapshot,
            active: log.memtable,
            active_bytes: log.bytes,
            frozen: None,
            checkpointing: false,
            pending: Pending::default(),
            unflushed: Unflushed::default(),
            spare: Vec::new(),
            last: log.last,
            taken: log.last,
            durable: log.last,
            flushing: false,
            retry: None,
            tail: log.tail,
            segments: log.segments,
            spares: Arc::new(Spares::new(
                segment_bytes(&options),
                options.checkpoint_bytes,
            )),
            failure: OnceLock::new(),
            is_new: log.last == 0,
            stats: Stats {
                void: recovery.void.len() as u64,
                ..Stats::default()
            },
        };
        Ok((store, recovery))
    }

    /// True if no batch was ever durable here before this `open`.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The value of a key with all appended batches applied, durable or not.
    ///
    /// # Errors
    ///
    /// [`Void`] if a durable record of the key is corrupt, or the table cannot be read at all,
    /// which [`Self::failure`] then tells.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        for memtable in self.memtables() {
            match memtable.get(key) {
                Some(Entry::Value(value)) => return Ok(Some(value.clone())),
                Some(Entry::Deleted) => return Ok(None),
                Some(Entry::Void) => return Err(Void),
                None => {}
            }
        }
        match self.snapshot.get(key) {
            Ok(found) => found.transpose(),
            Err(error) => {
                self.fail(&error);
                Err(Void)
            }
        }
    }

    /// All keys `k` with `from <= k < to` in order, as [`Self::get`] sees them; an empty `to` means
    /// no upper bound. If the table cannot be read, the last item is a void one; from then on
    /// scans are empty.
    pub fn scan<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = (Bytes, Result<Bytes, Void>)> + use<'a> {
        let on_error = |error: &io::Error| self.fail(error);
        // Who goes on behind each void key would meet this one for ever.
        let most = self.failure.get().map_or(usize::MAX, |_| 0);
        Scan::new(self.memtables(), &self.snapshot, from, to, on_error).take(most)
    }

    fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(self.frozen.as_ref().map(|frozen| &*frozen.memtable))
    }

    /// Adds a batch: atomic, visible at once, and durable as soon as [`Self::durable`] has reached
    /// the returned number.
    ///
    /// # Panics
    ///
    /// If the batch exceeds [`crate::MAX_KEY_BYTES`], [`crate::MAX_VALUE_BYTES`] or
    /// [`crate::MAX_BATCH_BYTES`]: a user's input must be checked before.
    pub fn append(&mut self, batch: Batch) -> Lsn {
        self.last += 1;
        self.active_bytes += self.pending.push(self.last, &batch);
        self.unflushed.wrote(self.last, &batch);
        self.active.apply(batch);
        self.last
    }

    /// Takes everything appended and not yet taken. `None` if there is nothing, if a flush is
    /// outstanding, or if the store has failed. After a full disk it is the same flush again.
    pub fn take_flush(&mut self) -> Option<Flush> {
        if self.flushing || self.failure.get().is_some() {
            return None;
        }
        let flush = match self.retry.take() {
            Some(flush) => flush,
            None if self.pending.records() == 0 => return None,
            None => self.next_flush(),
        };
        self.flushing = true;
        Some(flush)
    }

    fn next_flush(&mut self) -> Flush {
        let next = Pending::with_buffer(std::mem::take(&mut self.spare));
        let pending = std::mem::replace(&mut self.pending, next);
        assert_eq!(
            pending.records(),
            self.last - self.taken,
            "every batch is taken once"
        );
        let need = pending.len();
        let (file, segment, offset, written, size) = match &self.tail {
            Some(tail) if tail.offset + need <= tail.size => (
                Some(tail.file.clone()),
                tail.segment,
                tail.offset,
                tail.written,
                tail.size,
            ),
            tail => {
                let segment = tail.as_ref().map_or(1, |tail| tail.segment + 1);
                let size = (RECORDS_START + need).next_multiple_of(segment_bytes(&self.options));
                (None, segment, RECORDS_START, RECORDS_START, size)
            }
        };
        let first = self.taken + 1;
        self.taken = self.last;
        // Here the memtable ends exactly with this flush; once that is durable, so is all of it.
        if self.active_bytes >= self.options.checkpoint_bytes {
            self.freeze();
        }
        let bytes = pending.seal(segment, offset);
        let (disk, last) = (self.disk.clone(), self.taken);
        Flush {
            disk,
            spares: self.spares.clone(),
            file,
            segment,
            offset,
            written,
            size,
            first,
            last,
            bytes,
        }
    }

    /// Takes the result of the outstanding flush.
    ///
    /// # Panics
    ///
    /// If none is outstanding.
    pub fn flushed(&mut self, done: FlushDone) {
        assert!(self.flushing, "a flush result without an outstanding flush");
        self.flushing = false;
        let FlushDone { flush, outcome } = done;
        match outcome {
            Persisted::Done => self.advance(flush),
            Persisted::Full(_) => {
                self.stats.full += 1;
                self.retry = Some(flush);
            }
            Persisted::Fatal(error) => self.fail(&error),
        }
    }

    fn advance(&mut self, flush: Flush) {
        assert_eq!(flush.first, self.durable + 1, "flushes follow one another");
        self.durable = flush.last;
        self.unflushed.flushed(self.durable);
        self.stats.flushes += 1;
        self.stats.records += flush.records();
        let offset = flush.offset + flush.bytes.len() as u64;
        let info = SegmentInfo {
            number: flush.segment,
            last: flush.last,
            used: offset,
            size: flush.size,
        };
        match self.segments.back_mut() {
            Some(back) if back.number == info.number => *back = info,
            _ => self.segments.push_back(info),
        }
        let file = flush.file.expect("a flush that is done has its file");
        self.tail = Some(Tail {
            segment: flush.segment,
            file,
            offset,
            written: flush.written,
            size: flush.size,
        });
        let buffer = flush.bytes.into_buffer();
        if buffer.capacity() <= SPARE_MAX {
            self.spare = buffer;
        }
    }

    /// The last batch appended; 0 if there never was one.
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// The last batch that is durable, with all before it.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Whether the last write of a key is durable: what [`Self::get`] says now is not taken back.
    pub fn is_durable(&self, key: &[u8]) -> bool {
        self.unflushed.is_durable(key, self.durable)
    }

    /// Why this store has to be given up: a disk error other than "full". The node must stop; after
    /// restart everything durable is there.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn fail(&self, error: &dyn std::error::Error) {
        // Only the first counts; what follows is its echo.
        let _ = self.failure.set(format!(
            "the data directory can no longer be trusted ({error}): stop the node and check the \
             disk; what was not acknowledged may or may not have taken effect"
        ));
    }

    /// Counters since `open`, and sizes now.
    pub fn stats(&self) -> Stats {
        Stats {
            wal_bytes: self.segments.iter().map(|segment| segment.used).sum(),
            table_bytes: self.table.bytes(),
            unsaved_bytes: self.active_bytes
                + self.frozen.as_ref().map_or(0, |frozen| frozen.bytes),
            ..self.stats
        }
    }
}
