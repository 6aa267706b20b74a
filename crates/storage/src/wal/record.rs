//! One batch as bytes, written once and checked on the way back.

use super::{u32_at, u64_at};
use crate::batch::{Batch, MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Op};
use crate::checksum::crc32c;
use crate::disk::File;
use bytes::Bytes;
use std::io;

const MAGIC: u32 = u32::from_le_bytes(*b"FRec");
/// Length of a record's head.
pub(super) const HEAD: usize = 40;
/// Records start at multiples of this.
pub(super) const ALIGN: usize = 8;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// A value of at least so many bytes is written from where it is, not copied beside its record.
const LARGE: usize = 16 << 10;

/// Bytes on their way to the disk: small things gathered in one buffer, and large values between
/// them as they are.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    small: Vec<u8>,
    /// Large values, each before the rest of `small` from this place on, in order.
    large: Vec<(usize, Bytes)>,
    /// Length of all of it.
    len: usize,
}

impl Gathered {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes all of it in order.
    pub(super) fn write(&self, file: &dyn File, mut at: u64) -> io::Result<()> {
        for piece in self.pieces() {
            file.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.large.iter().map(|(at, _)| *at));
        let ends = self.large.iter().map(|(at, _)| *at);
        let ends = ends.chain(std::iter::once(self.small.len()));
        let small = starts.zip(ends).map(|(from, to)| &self.small[from..to]);
        let large = self.large.iter().map(|(_, value)| &value[..]);
        let large = large.chain(std::iter::once(&[][..]));
        let pieces = small.zip(large).flat_map(|(small, large)| [small, large]);
        pieces.filter(|piece| !piece.is_empty())
    }

    /// The buffer, for reuse.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.small
    }

    fn add(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    fn add_value(&mut self, value: &Bytes) {
        if value.len() < LARGE {
            self.add(value);
        } else {
            self.large.push((self.small.len(), value.clone()));
            self.len += value.len();
        }
    }
}

/// Records appended and not yet taken by a flush, already in their final form but for what depends
/// on the place in the log.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    gathered: Gathered,
    /// Where each record starts: in `gathered.small`, and in all of it.
    starts: Vec<(usize, usize)>,
}

impl Pending {
    /// Reuses a buffer whose contents are no longer needed.
    pub(crate) fn with_buffer(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            gathered: Gathered {
                small: bytes,
                ..Gathered::default()
            },
            starts: Vec::new(),
        }
    }

    /// Adds a record and returns its length in bytes. Small values are copied here and nowhere
    /// else, large ones are not copied.
    ///
    /// # Panics
    ///
    /// If a key, a value or the batch is longer than the limits in [`crate::batch`].
    pub(crate) fn push(&mut self, lsn: u64, batch: &Batch) -> u64 {
        let out = &mut self.gathered;
        let (start, begun) = (out.small.len(), out.len);
        self.starts.push((start, begun));
        out.small.resize(start + HEAD, 0);
        let mut values = 0;
        for op in &batch.0 {
            encode_op(&mut out.small, op);
            if let Op::Put { value, .. } = op {
                values += value.len();
            }
        }
        let ops = out.small.len() - start - HEAD;
        out.len += HEAD + ops;
        assert!(
            ops + values <= MAX_BATCH_BYTES,
            "batch of {} bytes is too long",
            ops + values
        );
        let crc = crc32c(&[&lsn.to_le_bytes(), &out.small[start + HEAD..]]);
        out.add(&crc.to_le_bytes());
        for op in &batch.0 {
            if let Op::Put { value, .. } = op {
                out.add_value(value);
            }
        }
        let padding = out.len.next_multiple_of(ALIGN) - out.len;
        out.add(&[0; ALIGN][..padding]);
        let head = &mut out.small[start..start + HEAD];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&(batch.0.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&lsn.to_le_bytes());
        head[24..32].copy_from_slice(&(values as u64).to_le_bytes());
        head[32..36].copy_from_slice(&(ops as u32).to_le_bytes());
        (out.len - begun) as u64
    }

    /// Length of all records in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.gathered.len as u64
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Binds the records to their place: they are the flush that begins at `offset` of `segment`.
    pub(crate) fn seal(mut self, segment: u64, offset: u64) -> Gathered {
        for (start, begun) in self.starts {
            let head = &mut self.gathered.small[start..start + HEAD];
            head[16..24].copy_from_slice(&offset.to_le_bytes());
            let crc = head_crc(segment, offset + begun as u64, head);
            head[36..40].copy_from_slice(&crc.to_le_bytes());
        }
        self.gathered
    }
}

/// The checksum covers the place, so that a copy of a record inside a value, or what an older file
/// left on the medium, is not taken for a record.
fn head_crc(segment: u64, offset: u64, head: &[u8]) -> u32 {
    crc32c(&[&segment.to_le_bytes(), &offset.to_le_bytes(), &head[..36]])
}

fn encode_op(out: &mut Vec<u8>, op: &Op) {
    let check = |key: &Bytes| {
        assert!(
            key.len() <= MAX_KEY_BYTES,
            "key of {} bytes is too long",
            key.len()
        );
        (key.len() as u32).to_le_bytes()
    };
    match op {
        Op::Put { key, value } => {
            assert!(
                value.len() <= MAX_VALUE_BYTES,
                "value of {} bytes is too long",
                value.len()
            );
            out.push(PUT);
            out.extend_from_slice(&check(key));
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(&crc32c(&[value]).to_le_bytes());
            out.extend_from_slice(key);
        }
        Op::Delete { key } => {
            out.push(DELETE);
            out.extend_from_slice(&check(key));
            out.extend_from_slice(key);
        }
        Op::DeleteRange { from, to } => {
            out.push(DELETE_RANGE);
            out.extend_from_slice(&check(from));
            out.extend_from_slice(&check(to));
            out.extend_from_slice(from);
            out.extend_from_slice(to);
        }
    }
}

/// A record's head whose checksum is right, and whose record lies within the segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    ops: u32,
    pub(super) lsn: u64,
    /// Where in the segment its flush began.
    pub(super) flush_start: u64,
    ops_len: usize,
    values_len: usize,
}

impl Head {
    /// Reads the head at `at` of a segment's bytes; `None` if there is none.
    pub(super) fn decode(bytes: &[u8], segment: u64, at: usize) -> Option<Self> {
        let head = bytes.get(at..at.checked_add(HEAD)?)?;
        if u32_at(head, 0) != MAGIC || u32_at(head, 36) != head_crc(segment, at as u64, head) {
            return None;
        }
        let head = Self {
            ops: u32_at(head, 4),
            lsn: u64_at(head, 8),
            flush_start: u64_at(head, 16),
            ops_len: u32_at(head, 32) as usize,
            values_len: usize::try_from(u64_at(head, 24)).ok()?,
        };
        let end = at
            .checked_add(HEAD + 4 + head.ops_len)?
            .checked_add(head.values_len)?;
        (end <= bytes.len()).then_some(head)
    }

    /// Where the list of changes ends, with its checksum, and the values begin.
    pub(super) fn values_at(&self, at: usize) -> usize {
        at + HEAD + self.ops_len + 4
    }

    /// Where the next record may start.
    pub(super) fn end(&self, at: usize) -> usize {
        (self.values_at(at) + self.values_len).next_multiple_of(ALIGN)
    }

    /// Reads the changes of the record at `at`; `None` if their list is damaged.
    pub(super) fn changes(&self, bytes: &Bytes, at: usize) -> Option<Vec<Change>> {
        let list = bytes.slice(at + HEAD..at + HEAD + self.ops_len);
        let crc = u32_at(bytes, at + HEAD + self.ops_len);
        if crc != crc32c(&[&self.lsn.to_le_bytes(), &list]) {
            return None;
        }
        let mut reader = Reader { list, at: 0 };
        let mut value_at = self.values_at(at);
        let values_end = value_at + self.values_len;
        let mut changes = Vec::with_capacity(self.ops.min(1 << 16) as usize);
        for _ in 0..self.ops {
            changes.push(match reader.u8()? {
                PUT => {
                    let (key, len, crc) = (reader.u32()?, reader.u32()? as usize, reader.u32()?);
                    let key = reader.bytes(key)?;
                    let end = value_at.checked_add(len).filter(|end| *end <= values_end)?;
                    let value = bytes.slice(value_at..end);
                    let good = crc32c(&[&value]) == crc;
                    let span = (value_at, end);
                    value_at = end;
                    Change::Put {
                        key,
                        value: good.then_some(value),
                        span,
                    }
                }
                DELETE => {
                    let key = reader.u32()?;
                    Change::Delete {
                        key: reader.bytes(key)?,
                    }
                }
                DELETE_RANGE => {
                    let (from, to) = (reader.u32()?, reader.u32()?);
                    Change::DeleteRange {
                        from: reader.bytes(from)?,
                        to: reader.bytes(to)?,
                    }
                }
                _ => return None,
            });
        }
        Some(changes)
    }
}

/// One change as read back.
#[derive(Debug)]
pub(super) enum Change {
    /// `value` is `None` if its checksum is wrong; `span` is where in the segment it lies.
    Put {
        key: Bytes,
        value: Option<Bytes>,
        span: (usize, usize),
    },
    Delete {
        key: Bytes,
    },
    DeleteRange {
        from: Bytes,
        to: Bytes,
    },
}

struct Reader {
    list: Bytes,
    at: usize,
}

impl Reader {
    fn bytes(&mut self, len: u32) -> Option<Bytes> {
        let end = self.at.checked_add(len as usize)?;
        if end > self.list.len() {
            return None;
        }
        let out = self.list.slice(self.at..end);
        self.at = end;
        Some(out)
    }

    fn u8(&mut self) -> Option<u8> {
        let byte = *self.list.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn u32(&mut self) -> Option<u32> {
        let end = self
            .at
            .checked_add(4)
            .filter(|end| *end <= self.list.len())?;
        let number = u32_at(&self.list, self.at);
        self.at = end;
        Some(number)
    }
}
