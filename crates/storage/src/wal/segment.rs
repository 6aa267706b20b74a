//! Segment files: their names, their header, their mark, and how one is born.

use super::{SECTOR, u32_at, u64_at};
use crate::checksum::crc32c;
use crate::disk::{Disk, File, final_if_full};
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FERMWAL\0";
/// Version of the log's format: the newest one.
pub(super) const VERSION: u32 = USED_BEFORE;
/// That of a segment which is zeros behind its records.
const FRESH: u32 = 2;
/// That of a segment whose file was another one before.
const USED_BEFORE: u32 = 3;
/// Where records start: the header has its sector to itself, so that no flush ever rewrites it, and
/// so has the mark.
pub(crate) const RECORDS_START: u64 = 2 * SECTOR as u64;
const HEADER: usize = 48;
/// Where the mark is.
pub(super) const MARK_AT: usize = SECTOR;
const MARK: usize = 12;
/// Name of a segment that is being made.
const UNFINISHED: &str = "segment.new";
/// Beginning of a spare's name.
const SPARE: &str = "spare-";

/// The fixed facts of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) number: u64,
    /// Sequence number of its first record.
    pub(super) first: u64,
    /// Length of the file.
    pub(super) size: u64,
    /// Behind the records is what an older segment left, and not zeros.
    pub(super) used_before: bool,
}

/// Why a segment's header cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Version(u32),
    Corrupt,
}

impl Header {
    fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        let version = if self.used_before { USED_BEFORE } else { FRESH };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..40].copy_from_slice(&self.size.to_le_bytes());
        let crc = crc32c(&[&out[..40]]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header of the segment that is named `number`.
    pub(super) fn decode(bytes: &[u8], number: u64) -> Result<Self, BadHeader> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return Err(BadHeader::Corrupt);
        }
        // Before the checksum, whose place a later version may have moved.
        let version = u32_at(bytes, 8);
        if ![FRESH, USED_BEFORE].contains(&version) {
            return Err(BadHeader::Version(version));
        }
        let header = Self {
            number: u64_at(bytes, 16),
            first: u64_at(bytes, 24),
            size: u64_at(bytes, 32),
            used_before: version == USED_BEFORE,
        };
        let good = u32_at(bytes, 40) == crc32c(&[&bytes[..40]]);
        if !good || header.number != number || header.size < RECORDS_START || header.first == 0 {
            return Err(BadHeader::Corrupt);
        }
        Ok(header)
    }
}

/// A segment's mark: everything before `end` is durable there.
fn mark(number: u64, end: u64) -> [u8; MARK] {
    let mut out = [0; MARK];
    out[..8].copy_from_slice(&end.to_le_bytes());
    let crc = crc32c(&[&number.to_le_bytes(), &out[..8]]);
    out[8..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Writes the mark. Nobody waits until it is durable: the next flush's sync makes it so, or the
/// system's own writing, where no flush comes.
pub(super) fn write_mark(file: &dyn File, number: u64, end: u64) -> io::Result<()> {
    file.write_at(MARK_AT as u64, &mark(number, end))
}

/// Where the segment is durable up to, at least; none where the mark is damaged: it is made with
/// the segment, and sectors are written whole.
pub(super) fn read_mark(bytes: &[u8], number: u64) -> Option<u64> {
    let end = u64_at(bytes, MARK_AT);
    (bytes[MARK_AT..][..MARK] == mark(number, end)).then_some(end)
}

/// The file name of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("wal-{number:016}")
}

/// The number of the segment with this file name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("wal-")?;
    let plain = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// The file name of a segment that is kept to be written over.
pub(super) fn spare_name(number: u64) -> String {
    format!("{SPARE}{number:016}")
}

/// True if this file holds nothing: a segment whose making a crash has cut short, or a spare.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name == UNFINISHED || name.starts_with(SPARE)
}

/// Makes a segment, reserved to its end, of its header and what `flush` writes, over the spare of
/// that number if there is one. It gets its name only when it is whole and synced, so that a named
/// segment without a good header is always damage, never a crash; the caller makes the name last.
pub(super) fn create(
    disk: &dyn Disk,
    header: Header,
    spare: Option<u64>,
    flush: impl FnOnce(&dyn File) -> io::Result<()>,
) -> io::Result<Arc<dyn File>> {
    let unfinished = spare.map_or(UNFINISHED.to_owned(), spare_name);
    let made = (|| {
        let file = disk.open(&unfinished)?;
        if spare.is_none() {
            file.set_len(0)?;
        }
        file.allocate(header.size)?;
        let mut start = [0; RECORDS_START as usize];
        start[..HEADER].copy_from_slice(&header.encode());
        start[MARK_AT..][..MARK].copy_from_slice(&mark(header.number, RECORDS_START));
        file.write_at(0, &start)?;
        flush(&*file)?;
        file.sync().map_err(final_if_full)?;
        disk.rename(&unfinished, &name(header.number))?;
        Ok(file)
    })();
    if made.is_err() {
        // Give the space back to a disk that may just be full. If this fails too, the next attempt
        // or the next start removes the file.
        let _ = disk.remove(&unfinished);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_every_flipped_bit_shows() {
        for used_before in [false, true] {
            let header = Header {
                number: 7,
                first: 99,
                size: 1 << 24,
                used_before,
            };
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes, 7), Ok(header));
            assert_eq!(Header::decode(&bytes, 8), Err(BadHeader::Corrupt));
            for bit in 0..44 * 8 {
                let mut bad = bytes;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::decode(&bad, 7).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_mark_reads_back_and_every_flipped_bit_shows() {
        let mut bytes = [0; RECORDS_START as usize];
        assert_eq!(read_mark(&bytes, 7), None);
        bytes[MARK_AT..][..MARK].copy_from_slice(&mark(7, 4_711));
        assert_eq!(
            (read_mark(&bytes, 7), read_mark(&bytes, 8)),
            (Some(4_711), None)
        );
        for bit in 0..MARK * 8 {
            let mut bad = bytes;
            bad[MARK_AT + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_mark(&bad, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn names_read_back_and_others_are_not_ours() {
        assert_eq!(number(&name(12)), Some(12));
        for other in ["wal-12", "wal-+000000000000012", "table", "segment.new"] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
