//! The small types of the store's interface.

use crate::disk::Lack;
use crate::wal;
use bytes::Bytes;
use std::fmt;
use std::io;

/// Log sequence number: batches count from 1 without gaps; 0 is before the first.
pub type Lsn = u64;

/// How a store is laid out and when it tidies up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of a log segment; a flush that is longer gets one of several times this. At least one
    /// sector.
    pub segment_bytes: u64,
    /// A checkpoint is due when the records since the last one are this long; 0: after each flush.
    pub checkpoint_bytes: u64,
    /// Read the whole table at `open`, to list its void keys and to refuse damage that hides keys.
    /// Without it [`crate::Store::take_check`] does that later; no read is wrong meanwhile.
    pub verify_table: bool,
}

impl Default for Options {
    /// 16 MiB segments, a checkpoint every 64 MiB, the table read behind the start.
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            checkpoint_bytes: 64 << 20,
            verify_table: false,
        }
    }
}

/// The stored value of a key is corrupt. Nothing may be concluded about the key, neither a value
/// nor its absence, until it is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Void;

impl fmt::Display for Void {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored value of this key is corrupt: repair it from other replicas")
    }
}

impl std::error::Error for Void {}

/// What `open` found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last batch.
    pub last: Lsn,
    /// Batches read from the log, which the table did not hold.
    pub replayed: u64,
    /// Length of the torn end of the last flush, which was dropped: nobody had an answer from it.
    pub torn_bytes: u64,
    /// Keys whose value is void, in order. Without `Options::verify_table`, those in the log only.
    pub void: Vec<Bytes>,
}

/// What became of a flush or a checkpoint.
#[derive(Debug)]
pub enum Persisted {
    /// It is durable.
    Done,
    /// Something is lacking that may be there later. Nothing is broken; take it again then.
    Full(Lack),
    /// The disk cannot be trusted any more: stop the node. It may or may not have taken effect.
    Fatal(io::Error),
}

/// Why a directory cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The disk said so. Trying again may help.
    Io(io::Error),
    /// A file was written by another version of the format.
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u32,
        /// The version that this build reads and writes.
        supported: u32,
    },
    /// Acknowledged records of the log are damaged.
    Corrupt {
        /// File name of the segment.
        segment: String,
        /// Where in it the damage begins, in bytes.
        offset: u64,
    },
    /// A file is gone.
    Missing {
        /// Its name.
        file: String,
    },
    /// The table is damaged.
    Table(String),
}

impl OpenError {
    pub(crate) fn corrupt(segment: u64, offset: u64) -> Self {
        Self::Corrupt {
            segment: wal::name(segment),
            offset,
        }
    }

    /// What reading the table met.
    pub(crate) fn table(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Table(error.to_string()),
            _ => Self::Io(error),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What to do about a data directory that cannot be trusted.
const REPLACE: &str = "refusing to start, since acknowledged writes may be lost; leave this \
                       node down, the others go on while they are a majority";

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot open the data directory: {error}"),
            Self::Version {
                file,
                found,
                supported,
            } => write!(
                f,
                "{file} has format version {found}, this build knows {supported}: use a build that \
                 knows it; nothing was changed"
            ),
            Self::Corrupt { segment, offset } => {
                write!(f, "{segment} is damaged at byte {offset}: {REPLACE}")
            }
            Self::Missing { file } => write!(f, "{file} is missing: {REPLACE}"),
            Self::Table(what) => write!(f, "the table is damaged ({what}): {REPLACE}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Counters since `open`, and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of header and records in all log segments.
    pub wal_bytes: u64,
    /// Length of the table's files.
    pub table_bytes: u64,
    /// Bytes of records that the table does not hold yet; memory use is of this order. It grows
    /// without bound if checkpoints are not run, or meet a full disk.
    pub unsaved_bytes: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Batches in them; divided by `flushes`, the size of a group commit.
    pub records: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Void keys that were found by reading all, at `open` or since.
    pub void: u64,
    /// Flushes and checkpoints that met a full disk.
    pub full: u64,
}
