//! The lowest layer: a `redb` B-tree in one file, written by checkpoints only.
//!
//! **One bad value, one void key.** Each entry carries a checksum of its key and one of its value.
//! Commits are two-phase with a saved allocator state ("quick repair"), so opening after a crash
//! walks no tree; `redb`'s own page checksums, which could only refuse the whole file or fall back
//! to an older commit, play no part.
//!
//! **A full disk.** `redb` closes its database for good after any I/O error, and that includes
//! "no space left", while our readers must go on. So [`TableFile`], which stands between `redb` and
//! the file, never shows it that error. From the first write that does not fit, it queues all
//! writes, length changes *and syncs* in memory, in order, and answers reads through the queue. The
//! file then looks as if the power had failed at that write: whole, at the commit before. Later
//! [`TableFile::drain`] replays the queue in order, syncs included, and the checkpoint is done. The
//! queue is bounded by one checkpoint, since the next one waits for it.

use crate::checksum::crc32c;
use crate::disk::{Disk, File, is_full};
use crate::memtable::{Entry, Memtable, bounds};
use crate::store::{OpenError, Void};
use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The table's file.
const NAME: &str = "table.redb";
/// Its name while it is made.
const UNFINISHED: &str = "table.new";
/// Version of the entries' format.
const VERSION: u64 = 1;

const ENTRIES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("entries");
const FACTS: TableDefinition<'static, &str, u64> = TableDefinition::new("facts");
const FACT_LSN: &str = "lsn";
const FACT_VERSION: &str = "version";

/// Bytes before the value in an entry: checksum of the key, checksum of the rest, kind.
const PREFIX: usize = 9;
const KIND_VALUE: u8 = 0;
const KIND_VOID: u8 = 1;

/// The open table.
pub(crate) struct Table {
    db: Database,
    file: Arc<TableFile>,
}

/// An unchanging view of the table.
pub(crate) struct Snapshot(ReadOnlyTable<&'static [u8], &'static [u8]>);

/// Which half of a checkpoint's work is done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is durable.
    Done,
    /// The disk is full; [`Table::drain`] carries on.
    Full,
}

impl Table {
    /// Opens the table, which is made if the directory has neither table nor log.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        names: &[String],
        cache_bytes: usize,
    ) -> Result<(Self, u64), OpenError> {
        if names.iter().any(|name| name == UNFINISHED) {
            disk.remove(UNFINISHED)?;
        }
        if !names.iter().any(|name| name == NAME) {
            if names.iter().any(|name| name.starts_with("wal-")) {
                return Err(OpenError::Missing {
                    file: NAME.to_owned(),
                });
            }
            let table = Self::open_file(disk.open(UNFINISHED)?, cache_bytes)?;
            table
                .write(&Memtable::default(), 0)
                .map_err(OpenError::table)?;
            table.close()?;
            disk.rename(UNFINISHED, NAME)?;
        }
        disk.sync_dir()?;
        let table = Self::open_file(disk.open(NAME)?, cache_bytes)?;
        // The process before may have died between a write and its sync.
        table.file.file.sync()?;
        if table.file.is_stalled() {
            return Err(full().into());
        }
        let lsn = table.facts()?;
        Ok((table, lsn))
    }

    fn open_file(file: Arc<dyn File>, cache_bytes: usize) -> Result<Self, OpenError> {
        let file = Arc::new(TableFile {
            file,
            queue: RwLock::default(),
        });
        let db = redb::Builder::new()
            .set_cache_size(cache_bytes)
            .create_with_backend(Backend(file.clone()))
            .map_err(OpenError::table)?;
        Ok(Self { db, file })
    }

    fn close(self) -> Result<(), OpenError> {
        let Self { db, file } = self;
        db.close().map_err(OpenError::table)?;
        if file.is_stalled() {
            return Err(full().into());
        }
        Ok(file.file.sync()?)
    }

    /// Checks the version and returns the last batch that the table holds.
    fn facts(&self) -> Result<u64, OpenError> {
        let transaction = self.db.begin_read().map_err(OpenError::table)?;
        let facts = transaction.open_table(FACTS).map_err(OpenError::table)?;
        let fact = |name: &str| match facts.get(name) {
            Ok(Some(value)) => Ok(value.value()),
            Ok(None) => Err(OpenError::Table(format!("{NAME} lacks its fact '{name}'"))),
            Err(error) => Err(OpenError::table(error)),
        };
        let version = fact(FACT_VERSION)?;
        if version != VERSION {
            let found = u32::try_from(version).unwrap_or(u32::MAX);
            let supported = VERSION as u32;
            return Err(OpenError::Version {
                file: NAME.to_owned(),
                found,
                supported,
            });
        }
        fact(FACT_LSN)
    }

    /// Applies a memtable that ends with batch `lsn`, in one transaction.
    pub(crate) fn write(&self, memtable: &Memtable, lsn: u64) -> Result<Written, redb::Error> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for (from, to) in memtable.ranges() {
                // `bounds` reads an empty end as none; a range here is never empty itself.
                if let Some(range) = bounds(from, to.map_or(&[][..], |to| to)) {
                    entries.retain_in::<&[u8], _>(range, |_, _| false)?;
                }
            }
            for (key, entry) in memtable.entries() {
                let (kind, value) = match entry {
                    Entry::Deleted => {
                        entries.remove(&key[..])?;
                        continue;
                    }
                    Entry::Value(value) => (KIND_VALUE, &value[..]),
                    Entry::Void => (KIND_VOID, &[][..]),
                };
                let mut slot = entries.insert_reserve(&key[..], PREFIX + value.len())?;
                let slot: &mut [u8] = slot.as_mut();
                slot[..4].copy_from_slice(&crc32c(&[key]).to_le_bytes());
                slot[4..8].copy_from_slice(&crc32c(&[&[kind], value]).to_le_bytes());
                slot[8] = kind;
                slot[PREFIX..].copy_from_slice(value);
            }
            let mut facts = transaction.open_table(FACTS)?;
            facts.insert(FACT_VERSION, VERSION)?;
            facts.insert(FACT_LSN, lsn)?;
        }
        transaction.commit()?;
        Ok(if self.file.is_stalled() {
            Written::Full
        } else {
            Written::Done
        })
    }

    /// Writes what a full disk has held up.
    pub(crate) fn drain(&self) -> io::Result<Written> {
        self.file.drain()
    }

    /// The table as of its last commit.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, redb::Error> {
        Ok(Snapshot(self.db.begin_read()?.open_table(ENTRIES)?))
    }

    /// Length of the file in bytes.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Snapshot {
    /// The value of a key. The outer error is the disk's.
    pub(crate) fn get(
        &self,
        key: &[u8],
    ) -> Result<Option<Result<Bytes, Void>>, redb::StorageError> {
        Ok(self
            .0
            .get(key)?
            .map(|stored| decode(key, stored.value()).map(Bytes::copy_from_slice)))
    }

    /// Entries of `from..to` in order; an empty `to` is no bound.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = Result<(Bytes, Result<Bytes, Void>), redb::StorageError>> + use<>
    {
        let range = bounds(from, to).map(|range| self.0.range::<&[u8]>(range));
        let (entries, error) = match range {
            Some(Ok(entries)) => (Some(entries), None),
            Some(Err(error)) => (None, Some(Err(error))),
            None => (None, None),
        };
        let decoded = entries.into_iter().flatten().map(|entry| {
            let (key, stored) = entry?;
            let key = key.value();
            let value = decode(key, stored.value()).map(Bytes::copy_from_slice);
            Ok((Bytes::copy_from_slice(key), value))
        });
        error.into_iter().chain(decoded)
    }

    /// Reads every entry, returns the void keys, and refuses a table with a damaged key: then the
    /// key that stood there is unknown, and would read as absent.
    pub(crate) fn verify(&self) -> Result<Vec<Bytes>, OpenError> {
        let mut void = Vec::new();
        let mut before: Option<Bytes> = None;
        for entry in self.0.range::<&[u8]>(..).map_err(OpenError::table)? {
            let (key, stored) = entry.map_err(OpenError::table)?;
            let (key, stored) = (key.value(), stored.value());
            let good = stored.len() >= PREFIX && stored[..4] == crc32c(&[key]).to_le_bytes();
            if !good || before.as_ref().is_some_and(|before| &before[..] >= key) {
                return Err(OpenError::Table(format!("{NAME} has a damaged key")));
            }
            let key = Bytes::copy_from_slice(key);
            if decode(&key, stored).is_err() {
                void.push(key.clone());
            }
            before = Some(key);
        }
        Ok(void)
    }
}

fn decode<'a>(key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], Void> {
    if stored.len() < PREFIX
        || stored[..4] != crc32c(&[key]).to_le_bytes()
        || stored[4..8] != crc32c(&[&stored[8..]]).to_le_bytes()
        || stored[8] != KIND_VALUE
    {
        return Err(Void);
    }
    Ok(&stored[PREFIX..])
}

fn full() -> io::Error {
    io::Error::new(
        io::ErrorKind::StorageFull,
        "no space for the table; nothing was lost",
    )
}

/// A sync that fails is final whatever its reason, so its error must not look like a full disk.
fn final_if_full(error: io::Error) -> io::Error {
    if is_full(&error) {
        io::Error::other(error)
    } else {
        error
    }
}

/// The table's file, with what a full disk holds up. See the module text.
struct TableFile {
    file: Arc<dyn File>,
    /// Empty unless the disk is full.
    queue: RwLock<VecDeque<Step>>,
}

enum Step {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl TableFile {
    fn queue(&self) -> RwLockReadGuard<'_, VecDeque<Step>> {
        self.queue
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn queue_mut(&self) -> RwLockWriteGuard<'_, VecDeque<Step>> {
        self.queue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn is_stalled(&self) -> bool {
        !self.queue().is_empty()
    }

    /// Does a step at once, or queues it if the disk is full. `redb` has one writer, so no step
    /// slips in between the look and the deed but a write that no sync has made durable yet.
    fn step(
        &self,
        now: impl FnOnce(&dyn File) -> io::Result<()>,
        later: impl FnOnce() -> Step,
    ) -> io::Result<()> {
        if !self.is_stalled() {
            match now(&*self.file) {
                Err(error) if is_full(&error) => {}
                result => return result,
            }
        }
        self.queue_mut().push_back(later());
        Ok(())
    }

    fn perform(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Write(offset, data) => self.file.write_at(*offset, data),
            Step::SetLen(len) => self.file.set_len(*len),
            Step::Sync => self.file.sync().map_err(final_if_full),
        }
    }

    /// Performs the queue in order as far as space allows. Readers wait meanwhile, which only a
    /// node that comes back from a full disk ever sees.
    fn drain(&self) -> io::Result<Written> {
        let mut queue = self.queue_mut();
        while let Some(step) = queue.front() {
            match self.perform(step) {
                Ok(()) => {
                    queue.pop_front();
                }
                Err(error) if is_full(&error) => {
                    return Ok(Written::Full);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Written::Done)
    }

    fn len(&self) -> io::Result<u64> {
        let mut len = self.file.len()?;
        for step in self.queue().iter() {
            match step {
                Step::Write(offset, data) => len = len.max(offset + data.len() as u64),
                Step::SetLen(to) => len = *to,
                Step::Sync => {}
            }
        }
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let queue = self.queue();
        if queue.is_empty() {
            drop(queue);
            return self.file.read_at(offset, out);
        }
        let there = self
            .file
            .len()?
            .saturating_sub(offset)
            .min(out.len() as u64) as usize;
        if there > 0 {
            self.file.read_at(offset, &mut out[..there])?;
        }
        out[there..].fill(0);
        let end = offset + out.len() as u64;
        for step in queue.iter() {
            match step {
                Step::Write(at, data) => {
                    let from = offset.max(*at);
                    let to = end.min(at + data.len() as u64);
                    if from < to {
                        out[(from - offset) as usize..(to - offset) as usize]
                            .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
                    }
                }
                // Bytes that were cut off come back as zeros.
                Step::SetLen(len) if *len < end => {
                    out[len.saturating_sub(offset) as usize..].fill(0);
                }
                Step::SetLen(_) | Step::Sync => {}
            }
        }
        Ok(())
    }
}

/// What `redb` sees.
struct Backend(Arc<TableFile>);

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fermata_storage::table::Backend")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.step(|file| file.set_len(len), || Step::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0
            .step(|file| file.sync().map_err(final_if_full), || Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.step(
            |file| file.write_at(offset, data),
            || Step::Write(offset, data.to_vec()),
        )
    }
}
