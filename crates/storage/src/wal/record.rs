//! One batch as bytes, written once and checked on the way back.

use super::{u32_at, u64_at};
use crate::batch::{Batch, MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Op};
use crate::checksum::crc32c;
use bytes::Bytes;

const MAGIC: u32 = u32::from_le_bytes(*b"FRec");
/// Length of a record's head.
pub(super) const HEAD: usize = 40;
/// Records start at multiples of this.
pub(super) const ALIGN: usize = 8;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const DELETE_RANGE: u8 = 3;

/// Records appended and not yet taken by a flush, already in their final form but for what depends
/// on the place in the log.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    /// Where in `bytes` each record starts.
    starts: Vec<usize>,
}

impl Pending {
    /// Reuses a buffer whose contents are no longer needed.
    pub(crate) fn with_buffer(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self {
            bytes,
            starts: Vec::new(),
        }
    }

    /// Adds a record and returns its length in bytes. Values are copied here and nowhere else.
    ///
    /// # Panics
    ///
    /// If a key, a value or the batch is longer than the limits in [`crate::batch`].
    pub(crate) fn push(&mut self, lsn: u64, batch: &Batch) -> u64 {
        let start = self.bytes.len();
        self.starts.push(start);
        self.bytes.resize(start + HEAD, 0);
        let mut values = 0;
        for op in &batch.0 {
            encode_op(&mut self.bytes, op);
            if let Op::Put { value, .. } = op {
                values += value.len();
            }
        }
        let ops = self.bytes.len() - start - HEAD;
        assert!(
            ops + values <= MAX_BATCH_BYTES,
            "batch of {} bytes is too long",
            ops + values
        );
        let crc = crc32c(&[&lsn.to_le_bytes(), &self.bytes[start + HEAD..]]);
        self.bytes.extend_from_slice(&crc.to_le_bytes());
        self.bytes.reserve(values + ALIGN);
        for op in &batch.0 {
            if let Op::Put { value, .. } = op {
                self.bytes.extend_from_slice(value);
            }
        }
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
        let head = &mut self.bytes[start..start + HEAD];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        head[4..8].copy_from_slice(&(batch.0.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&lsn.to_le_bytes());
        head[24..32].copy_from_slice(&(values as u64).to_le_bytes());
        head[32..36].copy_from_slice(&(ops as u32).to_le_bytes());
        (self.bytes.len() - start) as u64
    }

    /// Length of all records in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Number of records.
    pub(crate) fn records(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Binds the records to their place: they are the flush that begins at `offset` of `segment`.
    pub(crate) fn seal(mut self, segment: u64, offset: u64) -> Vec<u8> {
        for start in self.starts {
            let head = &mut self.bytes[start..start + HEAD];
            head[16..24].copy_from_slice(&offset.to_le_bytes());
            let crc = head_crc(segment, offset + start as u64, head);
            head[36..40].copy_from_slice(&crc.to_le_bytes());
        }
        self.bytes
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
