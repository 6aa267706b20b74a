//! Reading the log back: what was durable, what was torn, what is damaged.

use super::record::{ALIGN, Change, HEAD, Head};
use super::segment::{self, BadHeader, Header, MARK_AT, VERSION};
use super::{RECORDS_START, SECTOR, SegmentInfo, Tail};
use crate::disk::{Disk, File};
use crate::memtable::{Entry, Memtable};
use crate::store::OpenError;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// What the log holds.
pub(crate) struct Recovered {
    /// All batches after the table's last one.
    pub(crate) memtable: Memtable,
    /// Bytes of the records in it.
    pub(crate) bytes: u64,
    /// The segments that stay, oldest first.
    pub(crate) segments: VecDeque<SegmentInfo>,
    /// Where the next flush goes, if there is a segment.
    pub(crate) tail: Option<Tail>,
    /// The last batch in table or log.
    pub(crate) last: u64,
    /// Batches applied to the memtable.
    pub(crate) replayed: u64,
    /// Bytes of the torn end of the last flush.
    pub(crate) torn: u64,
}

/// Reads the log after `table_lsn`, the last batch that the table holds. On success the torn end is
/// zeroed, covered segments are removed, and all that was read is durable.
pub(crate) fn recover(
    disk: &dyn Disk,
    names: &[String],
    table_lsn: u64,
) -> Result<Recovered, OpenError> {
    let mut out = Recovered {
        memtable: Memtable::default(),
        bytes: 0,
        segments: VecDeque::new(),
        tail: None,
        last: table_lsn,
        replayed: 0,
        torn: 0,
    };
    let segments = live_segments(disk, names, table_lsn)?;
    if segments.is_empty() && table_lsn > 0 {
        return Err(OpenError::Missing {
            file: "every log segment".to_owned(),
        });
    }
    let Some(first) = segments.first() else {
        return Ok(out);
    };
    // Counts on from the first record kept; those up to `table_lsn` are checked but not applied.
    let mut last = first.header.first - 1;
    let count = segments.len();
    for (i, segment) in segments.into_iter().enumerate() {
        if segment.header.first != last + 1 {
            return Err(OpenError::corrupt(segment.header.number, 0));
        }
        let is_last = i + 1 == count;
        let mut reader = SegmentReader::new(&segment, is_last)?;
        reader.read(table_lsn, &mut last, &mut out)?;
        out.segments.push_back(SegmentInfo {
            number: segment.header.number,
            last,
            used: reader.at as u64,
            size: segment.header.size,
        });
        if is_last {
            out.torn = reader.wipe(&*segment.file)?;
            // A process may have died after its write and before its sync: what was just read is
            // then in the page cache alone.
            segment.file.sync()?;
            let (number, end) = (segment.header.number, reader.at as u64);
            segment::write_mark(&*segment.file, number, end)?;
            segment.file.sync()?;
            let size = segment.header.size;
            let used_before = segment.header.used_before;
            out.tail = Some(Tail {
                segment: number,
                file: segment.file,
                offset: end,
                written: if used_before { size } else { end },
                size,
            });
        }
    }
    if last < table_lsn {
        // The table never gets ahead of the durable log, so the log has lost its end.
        let end = out
            .segments
            .back()
            .map_or((0, 0), |segment| (segment.number, segment.used));
        return Err(OpenError::corrupt(end.0, end.1));
    }
    out.last = last;
    disk.sync_dir()?;
    Ok(out)
}

struct Segment {
    file: Arc<dyn File>,
    header: Header,
}

/// Opens the segments that hold batches after `table_lsn` and removes those before them. A crash
/// may have undone some of the removals of a checkpoint, in any order, so gaps among the covered
/// ones mean nothing.
fn live_segments(
    disk: &dyn Disk,
    names: &[String],
    table_lsn: u64,
) -> Result<Vec<Segment>, OpenError> {
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment::number(name))
        .collect();
    numbers.sort_unstable();
    let mut files = Vec::with_capacity(numbers.len());
    for number in &numbers {
        let file = disk.open(&segment::name(*number))?;
        let len = file.len()?;
        let mut bytes = vec![0; len.min(RECORDS_START) as usize];
        file.read_at(0, &mut bytes)?;
        let header = Header::decode(&bytes, *number).and_then(|header| {
            if header.size == len {
                Ok(header)
            } else {
                Err(BadHeader::Corrupt)
            }
        });
        files.push((*number, file, header));
    }
    // The last one that starts within the table, or right after it, covers all before it.
    let starts_within = |header: &Result<Header, BadHeader>| {
        header
            .as_ref()
            .is_ok_and(|header| header.first <= table_lsn + 1)
    };
    let start = files
        .iter()
        .rposition(|(_, _, header)| starts_within(header))
        .unwrap_or(0);
    let mut live: Vec<Segment> = Vec::new();
    for (i, (number, file, header)) in files.into_iter().enumerate() {
        if i < start {
            disk.remove(&segment::name(number))?;
            continue;
        }
        let header = header.map_err(|bad| match bad {
            BadHeader::Version(found) => OpenError::Version {
                file: segment::name(number),
                found,
                supported: VERSION,
            },
            BadHeader::Corrupt => OpenError::corrupt(number, 0),
        })?;
        let expected = live
            .last()
            .map_or(number, |before| before.header.number + 1);
        if number != expected {
            return Err(OpenError::Missing {
                file: segment::name(expected),
            });
        }
        live.push(Segment { file, header });
    }
    match live.first() {
        Some(first) if first.header.first > table_lsn + 1 => Err(OpenError::Missing {
            file: segment::name(first.header.number - 1),
        }),
        _ => Ok(live),
    }
}

/// One segment in memory, and how far it has been read.
struct SegmentReader {
    number: u64,
    bytes: Bytes,
    at: usize,
    /// Everything before is durable, as the mark says.
    marked: usize,
    /// Everything before is durable, as the mark says and the good heads from the first place in
    /// doubt on: where the last of their flushes began. `None` as long as nothing is in doubt.
    durable: Option<usize>,
    is_last: bool,
    /// What is behind the records is another segment's, and not zeros.
    used_before: bool,
}

impl SegmentReader {
    fn new(segment: &Segment, is_last: bool) -> Result<Self, OpenError> {
        let number = segment.header.number;
        let mut bytes = vec![0; segment.header.size as usize];
        segment.file.read_at(0, &mut bytes)?;
        let marked = segment::read_mark(&bytes, number)
            .ok_or_else(|| OpenError::corrupt(number, MARK_AT as u64))?;
        Ok(Self {
            number,
            bytes: bytes.into(),
            at: RECORDS_START as usize,
            marked: marked as usize,
            durable: None,
            is_last,
            used_before: segment.header.used_before,
        })
    }

    /// Applies records in order up to the end of the segment, or to its torn end.
    fn read(
        &mut self,
        table_lsn: u64,
        last: &mut u64,
        out: &mut Recovered,
    ) -> Result<(), OpenError> {
        loop {
            let Some(head) = Head::decode(&self.bytes, self.number, self.at) else {
                return self.check_end(HEAD);
            };
            if head.lsn != *last + 1 {
                // The head is whole and belongs here, so records are missing.
                return Err(self.corrupt());
            }
            let Some(changes) = head.changes(&self.bytes, self.at) else {
                return self.check_end(head.values_at(self.at) - self.at);
            };
            if self.torn_value(&changes) {
                return Ok(());
            }
            let next = head.end(self.at);
            *last = head.lsn;
            if head.lsn > table_lsn {
                apply(&mut out.memtable, changes);
                out.replayed += 1;
                out.bytes += (next - self.at) as u64;
            }
            self.at = next;
        }
    }

    /// Judges the place where no record is, by its first `len` bytes: the end of the log, torn or
    /// not, or damage.
    fn check_end(&mut self, len: usize) -> Result<(), OpenError> {
        if !self.is_last {
            // Whether records are missing shows in the next segment's first sequence number; but
            // something that was a record here, and the last one, must not pass for padding.
            return if self.used_before || self.zeros_until_end() {
                Ok(())
            } else {
                Err(self.corrupt())
            };
        }
        if self.durable() > self.at {
            return Err(self.corrupt());
        }
        if self.was_never_written(self.at, self.at + len) {
            Ok(())
        } else {
            Err(self.corrupt())
        }
    }

    /// True if the record here is torn within a value; a bad value that is no tear is void.
    fn torn_value(&mut self, changes: &[Change]) -> bool {
        changes.iter().any(|change| match change {
            Change::Put {
                value: None,
                span: (from, to),
                ..
            } => self.is_last && self.durable() <= self.at && self.was_never_written(*from, *to),
            _ => false,
        })
    }

    /// True if some sector that `from..to` touches was never written, as far as can be told: if it
    /// is all zeros, as far as it lies at or after the current record, or if older records may be
    /// what is left there.
    fn was_never_written(&self, from: usize, to: usize) -> bool {
        if self.used_before {
            return true;
        }
        let mut sector = from / SECTOR * SECTOR;
        while sector < to && sector < self.bytes.len() {
            let end = (sector + SECTOR).min(self.bytes.len());
            if self.bytes[sector.max(self.at)..end]
                .iter()
                .all(|byte| *byte == 0)
            {
                return true;
            }
            sector += SECTOR;
        }
        // A segment may be full to its last byte: then there is no place for a record to be torn.
        self.bytes.len() - self.at < HEAD && self.zeros_until_end()
    }

    fn zeros_until_end(&self) -> bool {
        self.bytes[self.at..].iter().all(|byte| *byte == 0)
    }

    /// Up to where the segment is durable for certain; sought in all that follows, once.
    fn durable(&mut self) -> usize {
        if let Some(known) = self.durable {
            return known;
        }
        let begun = self.heads().map(|(_, head)| head.flush_start as usize);
        let found = begun.fold(self.marked, usize::max);
        self.durable = Some(found);
        found
    }

    /// The good heads at and behind the current place, and where they are.
    fn heads(&self) -> impl Iterator<Item = (usize, Head)> {
        let places = (self.at..self.bytes.len()).step_by(ALIGN);
        places.filter_map(|at| Some((at, Head::decode(&self.bytes, self.number, at)?)))
    }

    /// Zeros all from the current place on, and returns how many bytes of a torn flush were there:
    /// up to the last one that was not zero, or, among what an older segment left, to the end of
    /// the last record that has its head.
    fn wipe(&self, file: &dyn File) -> io::Result<u64> {
        let tail = &self.bytes[self.at..];
        let left = tail
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        if left > 0 {
            file.write_at(self.at as u64, &vec![0; left])?;
        }
        if !self.used_before {
            return Ok(left as u64);
        }
        let ends = self.heads().map(|(at, head)| head.end(at));
        Ok(ends.max().map_or(0, |end| (end - self.at) as u64))
    }

    fn corrupt(&self) -> OpenError {
        OpenError::corrupt(self.number, self.at as u64)
    }
}

fn apply(memtable: &mut Memtable, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Put { key, value, .. } => {
                memtable.set(key, value.map_or(Entry::Void, Entry::Value));
            }
            Change::Delete { key } => memtable.set(key, Entry::Deleted),
            Change::DeleteRange { from, to } => memtable.delete_range(from, to),
        }
    }
}
