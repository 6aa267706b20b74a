//! The write-ahead log: segments of records, flushed in order.
//!
//! `docs/formats/wal.md` has the bytes. In short: a segment `wal-N` is a file of fixed length, with
//! a header in its first sector, a mark in its second and what was flushed to it; behind that are
//! zeros, or, where the file was a segment before, what that one left ([`spares`]). A flush writes
//! its records as one contiguous region right after the flush before it, or at the start of a new
//! segment; it never spans segments. A record is one batch: a head with its own
//! checksum, the list of changes with all keys under a second one, and the values, each under its
//! own. Log sequence numbers grow by one per record, without gaps, over all segments.
//!
//! **Torn or rotten?** After the last good record recovery finds something that is not a record.
//! Three facts tell the end of a flush that was cut by a crash from damage to acknowledged data:
//!
//! * every head says where its flush began, and a flush begins only when the one before is
//!   durable: a good head further on, of a flush that began after the bad place, proves damage;
//! * the mark says how far the segment was durable, one flush late at most: a gap before it is
//!   damage, though nothing but zeros be left (G52);
//! * before a flush the place was all zeros, and sectors are written whole or not at all: a torn
//!   record has a whole sector of zeros in it; a rotten one does not. In a file that was used
//!   before nothing tells the two apart, and what no mark and no head vouches for is torn.
//!
//! Anything that cannot be a tear is damage: a bad value makes its key void, all else refuses to
//! open.

mod flush;
mod record;
mod recover;
mod segment;
mod spares;

pub(crate) use flush::Tail;
pub use flush::{Flush, FlushDone};
pub(crate) use record::Pending;
pub(crate) use recover::recover;
pub(crate) use segment::{RECORDS_START, is_unfinished, name};
pub(crate) use spares::Spares;

/// Bytes that the medium writes whole or not at all.
const SECTOR: usize = 512;

/// A segment that exists durably.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentInfo {
    /// Its number, one more than the one before.
    pub(crate) number: u64,
    /// The last record in it, or the one before its first if it has none.
    pub(crate) last: u64,
    /// Bytes of header and records.
    pub(crate) used: u64,
    /// Length of its file in bytes.
    pub(crate) size: u64,
}

/// Reads a little-endian number of `N` bytes at `at`; the caller has checked the length.
fn le<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(le(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(le(bytes, at))
}
