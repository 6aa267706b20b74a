//! The durable form of one key's registers at one replica: three records (see `wire::record`). The
//! head is read and written by every operation and is small; contents are read only when a value is
//! wanted, and are not copied on the way out.
//!
//! All three are written in one atomic batch, so a head that disagrees with a content is damage,
//! and damage is never taken for absence: everything that reads here can answer [`Void`].

use super::message::{Coding, Content, Fragment, Store};
use super::policy;
use crate::base::{Address, EventualTag, KeyId, LockRef, Seat, Tag};
use crate::io::{Effects, Memory, Void};
use crate::wire::record::{self, CellPart};
use crate::wire::{decode, encode};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Where a key's records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) store: Store,
    pub(crate) address: Address,
    pub(crate) key: KeyId,
}

impl At {
    fn record(&self, part: CellPart) -> Bytes {
        record::cell(self.store, part, self.address, &self.key)
    }
}

/// Everything about a key's registers but the contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Of the critical or register cell.
    pub(crate) tag: Tag,
    /// The section that gave the value: below the tag's where a synch has carried it on.
    pub(crate) origin: LockRef,
    /// Names the value beside the tag.
    pub(crate) digest: u64,
    /// Bytes of the whole value; none where absent or deleted.
    pub(crate) length: Option<u64>,
    /// Writes below it are refused for ever.
    pub(crate) fence: Tag,
    /// Of the eventual cell.
    pub(crate) eventual: Option<EventualTag>,
    /// Whether the eventual cell holds a value, not a delete.
    pub(crate) eventual_live: bool,
    /// Up to where the key is known to have moved into this epoch: no write sets it.
    pub(crate) moved: Option<Tag>,
}

impl Head {
    /// Whether an eventual read of this replica takes the eventual cell: its put was made after the
    /// section of the critical cell was over (F6).
    pub(crate) fn eventual_is_newer(&self) -> bool {
        self.eventual.is_some_and(|e| e.applied >= self.origin.0)
    }

    /// Whether an eventual read finds a value.
    pub(crate) fn is_live(&self) -> bool {
        if self.eventual_is_newer() {
            self.eventual_live
        } else {
            self.length.is_some()
        }
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
    },
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
        let head = match memory.get(&at.record(CellPart::Head))? {
            None => Head::default(),
            Some(bytes) => decode(&bytes).map_err(|_| Void)?,
        };
        Ok(Cell { at, memory, head })
    }

    /// A head that replaces a void one.
    pub(crate) fn replacing(memory: &'a dyn Memory, at: &'a At, head: Head) -> Cell<'a> {
        Cell { at, memory, head }
    }

    /// The content of the critical or register cell.
    pub(crate) fn critical(&self) -> Result<Content, Void> {
        if self.head.tag == Tag::ZERO {
            return Ok(Content::Absent);
        }
        let content = self.content(CellPart::Critical, &self.head.tag)?;
        if policy::digest_of(&content) == self.head.digest {
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
        Ok(Some((tag, self.content(CellPart::Eventual, &tag)?)))
    }

    fn content<T>(&self, part: CellPart, tag: &T) -> Result<Content, Void>
    where
        T: for<'de> Deserialize<'de> + PartialEq,
    {
        let bytes = self.memory.get(&self.at.record(part))?.ok_or(Void)?;
        let ((stored, shape), rest): ((T, Shape), _) =
            postcard::take_from_bytes(&bytes).map_err(|_| Void)?;
        if stored != *tag {
            return Err(Void);
        }
        let content = match shape {
            Shape::Absent => Content::Absent,
            Shape::Tombstone => Content::Tombstone,
            Shape::Value {
                coding,
                seat,
                length,
                digest,
            } => Content::Value(Fragment {
                coding,
                seat,
                length,
                digest,
                bytes: bytes.slice(bytes.len() - rest.len()..),
            }),
        };
        Ok(content)
    }

    /// Sets the critical or register cell, and drops an eventual value that the new section
    /// outranks.
    pub(crate) fn put_critical(
        &mut self,
        fx: &mut Effects,
        (tag, origin): (Tag, LockRef),
        content: &Content,
    ) {
        self.head.tag = tag;
        self.head.origin = origin;
        self.head.digest = policy::digest_of(content);
        self.head.length = match content {
            Content::Value(fragment) => Some(fragment.length),
            Content::Absent | Content::Tombstone => None,
        };
        fx.put(self.at.record(CellPart::Critical), body(&tag, content));
        if self.head.eventual.is_some() && !self.head.eventual_is_newer() {
            self.head.eventual = None;
            self.head.eventual_live = false;
            fx.delete(self.at.record(CellPart::Eventual));
        }
        self.put_head(fx);
    }

    /// Sets the eventual cell.
    pub(crate) fn put_eventual(&mut self, fx: &mut Effects, tag: EventualTag, content: &Content) {
        self.head.eventual = Some(tag);
        self.head.eventual_live = matches!(content, Content::Value(_));
        fx.put(self.at.record(CellPart::Eventual), body(&tag, content));
        self.put_head(fx);
    }

    /// Removes both contents and writes the head.
    pub(crate) fn clear(&self, fx: &mut Effects) {
        fx.delete(self.at.record(CellPart::Critical));
        fx.delete(self.at.record(CellPart::Eventual));
        self.put_head(fx);
    }

    /// Writes the head alone.
    pub(crate) fn put_head(&self, fx: &mut Effects) {
        fx.put(self.at.record(CellPart::Head), encode(&self.head));
    }
}

fn body<T: Serialize>(tag: &T, content: &Content) -> Bytes {
    let (shape, bytes) = match content {
        Content::Absent => (Shape::Absent, &[][..]),
        Content::Tombstone => (Shape::Tombstone, &[][..]),
        Content::Value(fragment) => (
            Shape::Value {
                coding: fragment.coding,
                seat: fragment.seat,
                length: fragment.length,
                digest: fragment.digest,
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
