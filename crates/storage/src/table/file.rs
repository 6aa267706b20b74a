//! One sorted file of the table: written once, from its first key to its last, and never changed.
//!
//! Entries lie in blocks of some KiB. A block is the *head*, which has the keys, and then the
//! values. What must not be missed has a checksum outside of itself: the index at the file's end
//! has those of all heads, the file's last bytes that of the index. So a key that is not found is
//! not there, whatever the medium has done. A value's checksum stands in its head, so that a bad
//! value is void alone. The bytes are described in `docs/formats/wal.md`.
//!
//! Index and filter of every file are in memory; blocks are read when they are asked for, and the
//! system's page cache is the only cache.

use super::fields::{Fields, put_bytes};
use crate::checksum::crc32c;
use crate::disk::{Disk, File, Lack, final_if_full};
use crate::memtable::{Entry, Memtable};
use crate::store::OpenError;
use bytes::Bytes;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Version of the format.
pub(super) const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"FERMRUN\0";
/// Magic, version, checksum, where the index begins.
const TAIL: usize = 24;
/// A block ends when it is this long; a longer value has a block to itself.
const BLOCK: usize = 16 << 10;
/// So many blocks have first keys that stand for the others.
const SAMPLE: usize = 16;
/// Unit of writes.
const CHUNK: usize = 256 << 10;
/// So much is written between two syncs: the log's flushes wait behind no more than that.
const SYNC_EVERY: u64 = 1 << 20;
/// So much space is given back at a time.
const GIVE_BACK: u64 = 4 << 20;
/// Bits of the filter per key, and how many of them a key sets: one absent key in a hundred passes.
const BITS: usize = 10;
const PROBES: u64 = 6;

const KIND_VALUE: u8 = 0;
const KIND_VOID: u8 = 1;
const KIND_DELETED: u8 = 2;

/// The name of the file with a number.
pub(super) fn name(number: u64) -> String {
    format!("run-{number:016}")
}

/// Whether this is the name of one of these files.
pub(super) fn is_name(other: &str) -> bool {
    let number = other.strip_prefix("run-").map(str::parse);
    matches!(number, Some(Ok(number)) if name(number) == other)
}

/// An open file.
pub(super) struct Sorted {
    file: Arc<dyn File>,
    pub(super) number: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Number of entries.
    pub(super) entries: u64,
    index: Vec<BlockAt>,
    /// Ranges deleted from whatever is older, disjoint and in order; `None` is no bound.
    pub(super) ranges: Vec<(Bytes, Option<Bytes>)>,
    filter: Bytes,
}

/// A block's place.
struct BlockAt {
    first: Bytes,
    offset: u64,
    /// Bytes of the head, and of all.
    head: u32,
    len: u32,
    /// Checksum of the head.
    crc: u32,
}

/// A block that was read.
pub(super) struct Block {
    bytes: Bytes,
    entries: Vec<Place>,
}

/// Where an entry lies in its block.
struct Place {
    kind: u8,
    key: Range<usize>,
    value: Range<usize>,
    crc: u32,
}

/// The places of a block's entries, as its head has them; none for one that makes no sense.
struct Places<'a> {
    head: &'a [u8],
    left: Fields<'a>,
    /// Where the next value begins.
    value: usize,
}

impl<'a> Places<'a> {
    fn of(head: &'a [u8]) -> Places<'a> {
        Places {
            head,
            left: Fields(head),
            value: head.len(),
        }
    }

    fn read(&mut self) -> Option<Place> {
        let kind = self.left.take(1)?[0];
        let (len, crc) = (self.left.u32()? as usize, self.left.u32()?);
        let key = self.left.bytes()?.len();
        let end = self.head.len() - self.left.0.len();
        let value = self.value..self.value + len;
        self.value = value.end;
        Some(Place {
            kind,
            key: end - key..end,
            value,
            crc,
        })
    }
}

impl Iterator for Places<'_> {
    type Item = Option<Place>;

    fn next(&mut self) -> Option<Option<Place>> {
        (!self.left.0.is_empty()).then(|| self.read())
    }
}

impl Place {
    /// What lies there in a block. A bad value is void.
    fn entry(&self, block: &Bytes) -> Entry {
        match (self.kind, block.get(self.value.clone())) {
            (KIND_DELETED, _) => Entry::Deleted,
            (KIND_VALUE, Some(value)) if crc32c(&[value]) == self.crc => {
                Entry::Value(block.slice_ref(value))
            }
            _ => Entry::Void,
        }
    }
}

impl Block {
    fn parse(bytes: Bytes, head: usize) -> Option<Block> {
        let mut places = Places::of(bytes.get(..head)?);
        let entries = places.by_ref().collect::<Option<Vec<Place>>>()?;
        (places.value == bytes.len()).then_some(Block { bytes, entries })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.entries[at].key.clone()]
    }

    /// Key and entry, which share the block's memory.
    pub(super) fn entry(&self, at: usize) -> (Bytes, Entry) {
        let place = &self.entries[at];
        let key = self.bytes.slice(place.key.clone());
        (key, place.entry(&self.bytes))
    }

    /// The first entry whose key is at or after this one.
    pub(super) fn seek(&self, key: &[u8]) -> usize {
        self.entries
            .partition_point(|place| &self.bytes[place.key.clone()] < key)
    }
}

impl Sorted {
    /// Gives the space of a file without a name back, piece by piece where it is `gentle`: a disk
    /// that is told of much space at once lets flushes wait until it has taken note.
    pub(super) fn give_back(self, gentle: bool) {
        let pieces = 0..self.len.div_ceil(GIVE_BACK);
        for piece in pieces.rev().filter(|_| gentle) {
            let cut = self.file.set_len(piece * GIVE_BACK);
            // The file has nothing that anybody could miss, and goes in any case.
            let _ = cut.and_then(|()| self.file.sync_behind());
        }
    }

    /// Opens the file with a number.
    pub(super) fn open(disk: &dyn Disk, number: u64) -> Result<Sorted, OpenError> {
        let file = disk.open(&name(number))?;
        let len = file.len()?;
        let Some(end) = len.checked_sub(TAIL as u64) else {
            return Err(OpenError::table(damaged(number)));
        };
        let mut tail = [0; TAIL];
        file.read_at(end, &mut tail)?;
        let mut fields = Fields(&tail);
        let (magic, version) = (fields.take(8), fields.u32());
        let (Some(crc), Some(from)) = (fields.u32(), fields.u64()) else {
            unreachable!("the tail has four fields");
        };
        if let Some(found) = version.filter(|version| *version != VERSION)
            && magic == Some(MAGIC)
        {
            return Err(OpenError::Version {
                file: name(number),
                found,
                supported: VERSION,
            });
        }
        if magic != Some(MAGIC) || from > end {
            return Err(OpenError::table(damaged(number)));
        }
        let mut meta = vec![0; (end - from) as usize];
        file.read_at(from, &mut meta)?;
        if crc != seal(number, from, &meta) {
            return Err(OpenError::table(damaged(number)));
        }
        let parsed = Sorted::parse(file, number, len, meta.into());
        parsed.ok_or_else(|| OpenError::table(damaged(number)))
    }

    /// A file whose last part is `meta`, which its index shares.
    fn parse(file: Arc<dyn File>, number: u64, len: u64, meta: Bytes) -> Option<Sorted> {
        let mut fields = Fields(&meta);
        let bytes = |fields: &mut Fields<'_>| fields.bytes().map(|part| meta.slice_ref(part));
        let entries = fields.u64()?;
        let (blocks, ranges) = (fields.u32()?, fields.u32()?);
        let mut index = Vec::new();
        for _ in 0..blocks {
            index.push(BlockAt {
                first: bytes(&mut fields)?,
                offset: fields.u64()?,
                head: fields.u32()?,
                len: fields.u32()?,
                crc: fields.u32()?,
            });
        }
        let ranges = (0..ranges).map(|_| {
            let (from, to) = (bytes(&mut fields)?, bytes(&mut fields)?);
            Some((from, (!to.is_empty()).then_some(to)))
        });
        let ranges = ranges.collect::<Option<_>>()?;
        let filter = bytes(&mut fields)?;
        Some(Sorted {
            file,
            number,
            len,
            entries,
            index,
            ranges,
            filter,
        })
    }

    /// What this file knows of a key. Of its block no more is made out than what comes before it.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Entry>> {
        if self.may_have(key)
            && let Some((block, head)) = self.read(self.block_of(key))?
        {
            for place in Places::of(&block[..head]) {
                let place = place.ok_or_else(|| damaged(self.number))?;
                match block[place.key.clone()].cmp(key) {
                    Ordering::Less => {}
                    Ordering::Equal => return Ok(Some(place.entry(&block))),
                    Ordering::Greater => break,
                }
            }
        }
        Ok(self.covered(key).map(|_| Entry::Deleted))
    }

    /// Some of its keys, evenly spread: those at which blocks begin. Few of them say little, and
    /// then all keys of the blocks that are as short as most are read.
    pub(super) fn sample(&self) -> io::Result<Vec<Bytes>> {
        let mut keys: Vec<Bytes> = self.index.iter().map(|block| block.first.clone()).collect();
        let few = (0..self.index.len()).filter(|_| self.index.len() < SAMPLE);
        for at in few.filter(|at| self.index[*at].len as usize <= 2 * BLOCK) {
            if let Some(block) = self.block(at)? {
                let key = |entry| block.bytes.slice_ref(block.key(entry));
                keys.extend((1..block.len()).map(key));
            }
        }
        Ok(keys)
    }

    /// False if it has no entry of the key.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let bits = self.filter.len() as u64 * 8;
        bits > 0 && probes(hash(key), bits).all(|bit| self.filter[bit / 8] & 1 << (bit % 8) != 0)
    }

    /// Up to where a range deletion hides this key, and all that follow, in what is older; the
    /// inner `None` is no bound.
    pub(super) fn covered(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        let after = self.ranges.partition_point(|(from, _)| &from[..] <= key);
        let (_, to) = &self.ranges[after.checked_sub(1)?];
        to.as_ref()
            .is_none_or(|to| key < &to[..])
            .then_some(to.as_ref())
    }

    /// The number of the block that has a key, if any has it.
    pub(super) fn block_of(&self, key: &[u8]) -> usize {
        let after = self.index.partition_point(|block| &block.first[..] <= key);
        after.saturating_sub(1)
    }

    /// Bytes of the blocks between two keys, about.
    pub(super) fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let begin = self.index.partition_point(|block| &block.first[..] < from);
        let blocks = &self.index[begin..];
        let end = to.map_or(blocks.len(), |to| {
            blocks.partition_point(|block| &block.first[..] < to)
        });
        blocks[..end].iter().map(|block| u64::from(block.len)).sum()
    }

    /// Reads a block; `None` behind the last one.
    pub(super) fn block(&self, at: usize) -> io::Result<Option<Block>> {
        let Some((bytes, head)) = self.read(at)? else {
            return Ok(None);
        };
        let parsed = Block::parse(bytes, head);
        parsed.map(Some).ok_or_else(|| damaged(self.number))
    }

    /// The bytes of a block, and how many of them are its head, which is as it was written.
    fn read(&self, at: usize) -> io::Result<Option<(Bytes, usize)>> {
        let Some(block) = self.index.get(at) else {
            return Ok(None);
        };
        let (head, mut bytes) = (block.head as usize, vec![0; block.len as usize]);
        self.file.read_at(block.offset, &mut bytes)?;
        match bytes.get(..head) {
            Some(found) if crc32c(&[found]) == block.crc => Ok(Some((bytes.into(), head))),
            _ => Err(damaged(self.number)),
        }
    }
}

fn damaged(number: u64) -> io::Error {
    let sentence = format!("{} has damaged keys", name(number));
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

/// The checksum of a file's index, which no other file's has.
fn seal(number: u64, from: u64, meta: &[u8]) -> u32 {
    crc32c(&[&number.to_le_bytes(), &from.to_le_bytes(), meta])
}

fn hash(key: &[u8]) -> u64 {
    // splitmix64's end, since the bits of a checksum are not independent.
    let z = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, key);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bits of a filter that a key sets.
fn probes(hash: u64, bits: u64) -> impl Iterator<Item = usize> {
    let step = hash >> 32 | 1;
    (0..PROBES).map(move |turn| (hash.wrapping_add(turn.wrapping_mul(step)) % bits) as usize)
}

/// A file being written.
pub(super) struct Writer<'a> {
    disk: &'a dyn Disk,
    number: u64,
    file: Arc<dyn File>,
    /// Others go before at the disk.
    gentle: bool,
    /// What has no place in the file yet, and where it begins.
    buffer: Vec<u8>,
    offset: u64,
    unsynced: u64,
    /// The block under way: its head, its values, and their length.
    first: Option<Bytes>,
    head: Vec<u8>,
    values: Vec<Bytes>,
    values_len: usize,
    index: Vec<BlockAt>,
    hashes: Vec<u64>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(disk: &'a dyn Disk, number: u64, gentle: bool) -> io::Result<Writer<'a>> {
        Ok(Writer {
            disk,
            number,
            file: disk.open(&name(number))?,
            gentle,
            buffer: Vec::new(),
            offset: 0,
            unsynced: 0,
            first: None,
            head: Vec::new(),
            values: Vec::new(),
            values_len: 0,
            index: Vec::new(),
            hashes: Vec::new(),
        })
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.offset + (self.buffer.len() + self.head.len() + self.values_len) as u64
    }

    /// Adds an entry, in the order of keys.
    pub(super) fn add(&mut self, key: &Bytes, entry: &Entry) -> io::Result<()> {
        let (kind, value) = match entry {
            Entry::Value(value) => (KIND_VALUE, value.clone()),
            Entry::Void => (KIND_VOID, Bytes::new()),
            Entry::Deleted => (KIND_DELETED, Bytes::new()),
        };
        if self.head.len() + self.values_len + value.len() > BLOCK {
            self.end_block()?;
        }
        self.first
            .get_or_insert_with(|| Bytes::copy_from_slice(key));
        self.head.push(kind);
        self.head.extend((value.len() as u32).to_le_bytes());
        self.head.extend(crc32c(&[&value]).to_le_bytes());
        put_bytes(&mut self.head, key);
        self.values_len += value.len();
        self.values.push(value);
        self.hashes.push(hash(key));
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let Some(first) = self.first.take() else {
            return Ok(());
        };
        self.index.push(BlockAt {
            first,
            offset: self.offset + self.buffer.len() as u64,
            head: self.head.len() as u32,
            len: (self.head.len() + self.values_len) as u32,
            crc: crc32c(&[&self.head]),
        });
        self.buffer.append(&mut self.head);
        for value in std::mem::take(&mut self.values) {
            // A long value is not copied.
            if value.len() >= CHUNK {
                self.write_out()?;
                self.write(&value)?;
            } else {
                self.buffer.extend_from_slice(&value);
            }
        }
        self.values_len = 0;
        if self.buffer.len() >= CHUNK {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            let synced = match self.gentle {
                true => self.file.sync_behind(),
                false => self.file.sync(),
            };
            synced.map_err(final_if_full)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Ends the file with the ranges of a memtable and makes it durable, but for its name. Where it
    /// does not fit, or what was `added` did not, the file goes.
    pub(super) fn finish(mut self, added: io::Result<()>, ranges: &Memtable) -> io::Result<Sorted> {
        let ended = added.and_then(|()| self.end(ranges));
        if ended.as_ref().is_err_and(|error| Lack::of(error).is_some()) {
            self.disk.remove(&name(self.number))?;
        }
        let made = Sorted::parse(self.file, self.number, self.offset, ended?);
        Ok(made.expect("what was written reads back"))
    }

    /// Writes what is left of the file, and returns its index.
    fn end(&mut self, ranges: &Memtable) -> io::Result<Bytes> {
        self.end_block()?;
        let from = self.offset + self.buffer.len() as u64;
        let mut meta = Vec::new();
        meta.extend((self.hashes.len() as u64).to_le_bytes());
        meta.extend((self.index.len() as u32).to_le_bytes());
        meta.extend((ranges.ranges().count() as u32).to_le_bytes());
        for block in &self.index {
            put_bytes(&mut meta, &block.first);
            meta.extend(block.offset.to_le_bytes());
            meta.extend(block.head.to_le_bytes());
            meta.extend(block.len.to_le_bytes());
            meta.extend(block.crc.to_le_bytes());
        }
        for (from, to) in ranges.ranges() {
            put_bytes(&mut meta, from);
            put_bytes(&mut meta, to.map_or(&[][..], |to| to));
        }
        let mut filter = vec![0_u8; (self.hashes.len() * BITS).div_ceil(8)];
        let bits = filter.len() as u64 * 8;
        for hash in &self.hashes {
            probes(*hash, bits).for_each(|bit| filter[bit / 8] |= 1 << (bit % 8));
        }
        put_bytes(&mut meta, &filter);
        self.buffer.extend_from_slice(&meta);
        self.buffer.extend(MAGIC);
        self.buffer.extend(VERSION.to_le_bytes());
        self.buffer
            .extend(seal(self.number, from, &meta).to_le_bytes());
        self.buffer.extend(from.to_le_bytes());
        self.write_out()?;
        self.file.sync().map_err(final_if_full)?;
        Ok(meta.into_boxed_slice().into())
    }

    /// Gives the file up, and its space back.
    pub(super) fn abandon(self) -> io::Result<()> {
        self.disk.remove(&name(self.number))
    }
}
