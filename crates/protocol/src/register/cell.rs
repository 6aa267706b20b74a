//! The durable form of one key's registers at one replica: a head, a content per version, and an
//! eventual content (see `wire::record`). The head is read and written by every operation and is
//! small; contents are read only when a value is wanted, and are not copied on the way out.
//!
//! All are written in one atomic batch, so a head that disagrees with a content is damage,
//! and damage is never taken for absence: everything that reads here can answer [`Void`].

use super::message::{Coding, Content, Fragment, StoreId};
use super::policy;
use crate::base::{Address, EventualTag, Kept, KeyId, Seat, Tag};
use crate::io::{Effects, Memory, Void};
use crate::wire::record::{self, CellRecord};
use crate::wire::{decode, encode};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Where a key's records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) store: StoreId,
    pub(crate) address: Address,
    pub(crate) key: KeyId,
}

impl At {
    pub(super) fn record(&self, kind: CellRecord) -> Bytes {
        record::cell(self.store, kind, self.address, &self.key)
    }
}

/// One write's trace: everything but its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trace {
    pub(crate) tag: Tag,
    /// Where the value stands among eventual puts; see [`super::message::Ask::Store`].
    pub(crate) origin: EventualTag,
    /// Names the value beside the tag.
    pub(crate) digest: u64,
    /// Bytes of the whole value; none where absent or deleted.
    pub(crate) length: Option<u64>,
    /// Bytes of it that are stored here.
    pub(crate) stored: u64,
    /// In which record its content is.
    slot: u8,
}

impl Trace {
    /// Whether a section has written this value, after the eventual put was made.
    fn outranks(&self, eventual: EventualTag) -> bool {
        self.origin.is_of_section() && eventual < self.origin
    }
}

/// Everything about a key's registers but the contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The critical or register cell, by tag, lowest first. One where values are kept whole; in
    /// coded keyspaces also those that are not known to be final, and others for a while.
    versions: Vec<Trace>,
    /// The highest final tag for which lower versions were dropped (F8b: durable with the drop).
    pub(crate) dropped: Tag,
    /// Writes below it are refused for ever.
    pub(crate) fence: Tag,
    /// Of the eventual cell.
    pub(crate) eventual: Option<EventualTag>,
    /// Whether the eventual cell holds a value, not a delete.
    pub(crate) eventual_live: bool,
    /// Bytes that the eventual cell stores here.
    pub(crate) eventual_stored: u64,
    /// Up to where the key is known to have moved into this epoch: no write sets it.
    pub(crate) moved: Option<Tag>,
}

impl Head {
    /// A head without versions.
    pub(crate) fn with(fence: Tag, dropped: Tag) -> Head {
        Head {
            fence,
            dropped,
            ..Head::default()
        }
    }

    /// The highest tag here; zero where never written.
    pub(crate) fn tag(&self) -> Tag {
        self.versions.last().map_or(Tag::ZERO, |v| v.tag)
    }

    /// Where the value of the highest tag stands among eventual puts.
    pub(crate) fn origin(&self) -> EventualTag {
        self.versions
            .last()
            .map_or_else(Default::default, |v| v.origin)
    }

    /// Bytes of the value of the highest tag; none where absent or deleted.
    pub(crate) fn length(&self) -> Option<u64> {
        self.versions.last().and_then(|v| v.length)
    }

    /// Bytes of values, or parts of values, that are stored here.
    pub(crate) fn stored(&self) -> u64 {
        self.versions.iter().map(|v| v.stored).sum::<u64>() + self.eventual_stored
    }

    /// All versions, lowest first.
    pub(crate) fn versions(&self) -> &[Trace] {
        &self.versions
    }

    /// The version of exactly this tag.
    pub(crate) fn version(&self, tag: Tag) -> Option<&Trace> {
        self.versions.iter().find(|v| v.tag == tag)
    }

    /// Whether an eventual read of this replica takes the eventual cell: its put is after the
    /// origin of the critical cell (F6: two cells; G24: an adoption is no write).
    pub(crate) fn eventual_is_newer(&self) -> bool {
        self.eventual.is_some_and(|e| e > self.origin())
    }

    /// Whether a section's write hides an eventual value here, so that an offer of it is declined:
    /// whoever offers keeps its own. An adoption never does (G24).
    pub(crate) fn outranks(&self, eventual: EventualTag) -> bool {
        self.versions.last().is_some_and(|v| v.outranks(eventual))
    }

    /// Whether there is an eventual value that a section's write hides. It stays: the write may be
    /// incomplete, and be replaced by what was below it (G26). See [`Cell::drop_outranked`].
    pub(crate) fn hides_eventual(&self) -> bool {
        self.eventual.is_some_and(|e| self.outranks(e))
    }

    /// Whether an eventual read finds a value.
    pub(crate) fn is_live(&self) -> bool {
        if self.eventual_is_newer() {
            self.eventual_live
        } else {
            self.length().is_some()
        }
    }

    /// Whether the key was written, and has no value: not where a fence alone has come.
    pub(crate) fn is_deleted(&self) -> bool {
        let written = !self.versions.is_empty() || self.eventual.is_some();
        written && !self.is_live()
    }

    /// A record that no version uses.
    fn free_slot(&self) -> u8 {
        let used = |slot: &u8| self.versions.iter().any(|v| v.slot == *slot);
        let mut all = 0..u8::MAX;
        all.find(|slot| !used(slot)).expect("versions are bounded")
    }
}

/// What stands before a content's bytes in its record.
#[derive(Serialize, Deserialize)]
enum Shape {
    Absent,
    Tombstone,
    Value {
        coding: Coding,
        seat: Seat,
        length: u64,
        digest: u64,
        sum: u64,
    },
    Undecodable,
}

/// One key's registers as they were when the step began, with the changes of this step.
pub(crate) struct Cell<'a> {
    at: &'a At,
    memory: &'a dyn Memory,
    pub(crate) head: Head,
}

impl<'a> Cell<'a> {
    /// Reads the head.
    pub(crate) fn load(memory: &'a dyn Memory, at: &'a At) -> Result<Cell<'a>, Void> {
        let head = match memory.get(&at.record(CellRecord::Head))? {
            None => Head::default(),
            Some(bytes) => decode(&bytes).map_err(|_| Void)?,
        };
        Ok(Cell { at, memory, head })
    }

    /// A head that replaces a void one.
    pub(crate) fn replacing(memory: &'a dyn Memory, at: &'a At, head: Head) -> Cell<'a> {
        Cell { at, memory, head }
    }

    /// The content of the highest tag.
    pub(crate) fn critical(&self) -> Result<Content, Void> {
        let highest = self.head.versions.last();
        highest.map_or(Ok(Content::Absent), |trace| self.content_of(trace))
    }

    /// The content of one version.
    pub(crate) fn content_of(&self, trace: &Trace) -> Result<Content, Void> {
        let content = self.content(CellRecord::Version(trace.slot), &trace.tag)?;
        if policy::digest_of(&content) == trace.digest {
            Ok(content)
        } else {
            Err(Void)
        }
    }

    /// The eventual cell.
    pub(crate) fn eventual(&self) -> Result<Option<(EventualTag, Content)>, Void> {
        let Some(tag) = self.head.eventual else {
            return Ok(None);
        };
        Ok(Some((tag, self.content(CellRecord::Eventual, &tag)?)))
    }

    /// Whether every content is there, and is what it says.
    pub(crate) fn is_sound(&self) -> bool {
        let key = &self.at.key;
        let sound = |content: Result<Content, Void>, tag: Tag| {
            content.is_ok_and(|content| policy::is_sound(&content, key, tag))
        };
        let mut versions = self.head.versions.iter();
        versions.all(|trace| sound(self.content_of(trace), trace.tag))
            && self.eventual().is_ok_and(|eventual| {
                eventual.is_none_or(|(_, content)| sound(Ok(content), Tag::ZERO))
            })
    }

    fn content<T>(&self, kind: CellRecord, tag: &T) -> Result<Content, Void>
    where
        T: for<'de> Deserialize<'de> + PartialEq,
    {
        let bytes = self.memory.get(&self.at.record(kind))?.ok_or(Void)?;
        let ((stored, shape), rest): ((T, Shape), _) =
            postcard::take_from_bytes(&bytes).map_err(|_| Void)?;
        if stored != *tag {
            return Err(Void);
        }
        let content = match shape {
            Shape::Absent => Content::Absent,
            Shape::Tombstone => Content::Tombstone,
            Shape::Undecodable => Content::Undecodable,
            Shape::Value {
                coding,
                seat,
                length,
                digest,
                sum,
            } => Content::Value(Fragment {
                coding,
                seat,
                length,
                digest,
                sum,
                bytes: bytes.slice(bytes.len() - rest.len()..),
            }),
        };
        Ok(content)
    }

    /// Adds a version, or replaces the one of its tag, and keeps what `kept` says of all. An
    /// eventual value that it outranks is hidden, and stays (G26).
    pub(crate) fn put_version(
        &mut self,
        fx: &mut Effects,
        (tag, origin): (Tag, EventualTag),
        content: &Content,
        kept: Kept,
    ) {
        let before = core::mem::take(&mut self.head.versions);
        let others = before.iter().filter(|v| v.tag != tag);
        let mut versions: Vec<Trace> = others.copied().collect();
        let at = versions.partition_point(|v| v.tag < tag);
        let count = match kept {
            Kept::Highest => 1,
            Kept::Several(count) => count,
            Kept::FromFinal(_) => usize::MAX,
        };
        let surplus = (versions.len() + 1).saturating_sub(count);
        assert!(at >= surplus, "a version is added where it is kept");
        versions.drain(..surplus);
        self.head.versions = versions;
        let trace = Trace {
            tag,
            origin,
            digest: policy::digest_of(content),
            length: match content {
                Content::Value(fragment) => Some(fragment.length),
                // There is a value, which nobody knows: this is no delete.
                Content::Undecodable => Some(0),
                Content::Absent | Content::Tombstone => None,
            },
            stored: policy::stored_bytes(content) as u64,
            slot: self.head.free_slot(),
        };
        self.head.versions.insert(at - surplus, trace);
        self.delete_unused(fx, &before);
        let record = self.at.record(CellRecord::Version(trace.slot));
        fx.put(record, body(&tag, content));
        self.put_head(fx);
    }

    /// Drops the eventual value where the version of `tag`, which q members hold or have held,
    /// outranks it.
    ///
    /// That is final (G26). Let v be the version and w any with a higher tag. If w is a put of a
    /// section, its origin is that section, which is v's or a later one. If w is a synch, its fence
    /// is at q members, and one of those has stored v: before the fence, which refuses v since. So
    /// the synch has found v or something between v and w, and carries that on, or adopts an
    /// eventual value that is newer. By induction over tags w's origin is no lower than v's, and
    /// above the eventual value: no read that meets v's members takes that any more.
    pub(crate) fn drop_outranked(&mut self, fx: &mut Effects, tag: Tag) {
        let eventual = self.head.eventual;
        let version = self.head.version(tag);
        if eventual.is_some_and(|e| version.is_some_and(|v| v.outranks(e))) {
            self.head.eventual = None;
            self.head.eventual_live = false;
            self.head.eventual_stored = 0;
            fx.delete(self.at.record(CellRecord::Eventual));
            self.put_head(fx);
        }
    }

    /// Drops the versions below a final tag, and notes durably that it has; the highest stays, so
    /// that tags here never decrease. False where there was nothing to drop.
    /// `notes`: false in a planted bug alone.
    pub(crate) fn drop_below(&mut self, fx: &mut Effects, tag: Tag, notes: bool) -> bool {
        let before = self.head.versions.clone();
        let highest = self.head.tag();
        self.head.versions.retain(|v| v.tag >= tag.min(highest));
        if self.head.versions.len() == before.len() {
            return false;
        }
        if notes {
            self.head.dropped = self.head.dropped.max(tag);
        }
        self.delete_unused(fx, &before);
        self.put_head(fx);
        true
    }

    /// Removes the records of versions that were here `before` and that no version uses now.
    fn delete_unused(&self, fx: &mut Effects, before: &[Trace]) {
        for old in before {
            if !self.head.versions.iter().any(|v| v.slot == old.slot) {
                fx.delete(self.at.record(CellRecord::Version(old.slot)));
            }
        }
    }

    /// Sets the eventual cell.
    pub(crate) fn put_eventual(&mut self, fx: &mut Effects, tag: EventualTag, content: &Content) {
        self.head.eventual = Some(tag);
        self.head.eventual_live = matches!(content, Content::Value(_));
        self.head.eventual_stored = policy::stored_bytes(content) as u64;
        fx.put(self.at.record(CellRecord::Eventual), body(&tag, content));
        self.put_head(fx);
    }

    /// Removes all contents and writes the head. `slots` are removed too: a head that replaces a
    /// damaged one does not know which are used.
    pub(crate) fn clear(&mut self, fx: &mut Effects, slots: core::ops::Range<u8>) {
        self.head.versions.clear();
        self.head.eventual = None;
        for slot in slots {
            fx.delete(self.at.record(CellRecord::Version(slot)));
        }
        fx.delete(self.at.record(CellRecord::Eventual));
        self.put_head(fx);
    }

    /// Removes every record of the key.
    pub(crate) fn bury(&mut self, fx: &mut Effects) {
        let before = core::mem::take(&mut self.head).versions;
        self.delete_unused(fx, &before);
        fx.delete(self.at.record(CellRecord::Eventual));
        fx.delete(self.at.record(CellRecord::Head));
    }

    /// Writes the head alone.
    pub(crate) fn put_head(&self, fx: &mut Effects) {
        fx.put(self.at.record(CellRecord::Head), encode(&self.head));
    }
}

fn body<T: Serialize>(tag: &T, content: &Content) -> Bytes {
    let (shape, bytes) = match content {
        Content::Absent => (Shape::Absent, &[][..]),
        Content::Tombstone => (Shape::Tombstone, &[][..]),
        Content::Undecodable => (Shape::Undecodable, &[][..]),
        Content::Value(fragment) => (
            Shape::Value {
                coding: fragment.coding,
                seat: fragment.seat,
                length: fragment.length,
                digest: fragment.digest,
                sum: fragment.sum,
            },
            &fragment.bytes[..],
        ),
    };
    let start = encode(&(tag, shape));
    let mut out = Vec::with_capacity(start.len() + bytes.len());
    out.extend_from_slice(&start);
    out.extend_from_slice(bytes);
    out.into()
}
