//! The atoms of one trace: refs, writes and reads, each under a name that says what it is in the
//! run. Their orders are the code's: a ref of the model is a lock ref with its generation, a write
//! is its tag.

use fermata_protocol::base::{EventualTag, KeyId, LockRef, Tag};
use std::collections::BTreeMap;

/// A ref of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefId {
    /// The lock ref.
    pub lock_ref: LockRef,
    /// How often resumed.
    pub generation: u32,
}

/// A write of the model, in the order of tags: by ref, then by tag; eventual values behind all
/// writes of their ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId {
    /// None: the old value, or eventual values from before all refs.
    pub of: Option<RefId>,
    /// The eventual cell's tag; none in the critical cell.
    pub eventual: Option<EventualTag>,
    /// The critical cell's tag; zero for the old value and for eventual ones.
    pub tag: Tag,
}

/// What a write is in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The value before all sections.
    Start,
    /// A critical put.
    Put,
    /// A synch.
    Attempt,
    /// A put without a lock.
    Eventual,
}

/// A quorum read of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId {
    /// For which ref.
    pub reader: RefId,
    /// What for.
    pub purpose: Purpose,
    /// Distinguishes reads of one ref.
    pub number: u64,
}

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A grant by the primary that saw the ref become head.
    First,
    /// Another grant.
    Again,
    /// A critical get.
    Get,
}

impl Purpose {
    /// All, with the names of their sigs.
    pub const SIGS: [(Purpose, &'static str); 3] = [
        (Purpose::First, "First"),
        (Purpose::Again, "Again"),
        (Purpose::Get, "Get"),
    ];
}

/// The bits of a tag's sequence number that are not the generation.
const NUMBER_BITS: u32 = 40;

/// The ref that a tag belongs to.
pub fn ref_of(tag: Tag) -> RefId {
    RefId {
        lock_ref: tag.lock_ref,
        generation: (tag.sequence >> NUMBER_BITS) as u32,
    }
}

/// Whether a tag of a section is a synch's.
pub fn is_synch(tag: Tag) -> bool {
    tag.lock_ref > LockRef(0) && tag.sequence.trailing_zeros() >= NUMBER_BITS
}

impl RefId {
    /// Its name.
    pub fn name(self) -> String {
        match self.generation {
            0 => format!("r{}", self.lock_ref.0),
            generation => format!("r{}.{generation}", self.lock_ref.0),
        }
    }
}

impl WriteId {
    /// The value before all sections.
    pub const START: WriteId = WriteId {
        of: None,
        eventual: None,
        tag: Tag::ZERO,
    };

    /// The write of a tag in the critical cell.
    pub fn of_tag(tag: Tag) -> WriteId {
        match tag == Tag::ZERO {
            true => WriteId::START,
            false => WriteId {
                of: Some(ref_of(tag)),
                eventual: None,
                tag,
            },
        }
    }

    /// What it is.
    pub fn sort(self) -> Sort {
        match (self.eventual, self.of) {
            (Some(_), _) => Sort::Eventual,
            (None, None) => Sort::Start,
            (None, Some(_)) if is_synch(self.tag) => Sort::Attempt,
            (None, Some(_)) => Sort::Put,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        let of = self.of.map_or("r0".to_owned(), RefId::name);
        match self.sort() {
            Sort::Start => "Start".to_owned(),
            Sort::Put => {
                let number = self.tag.sequence & ((1 << NUMBER_BITS) - 1);
                format!("put{}:{of}", number)
            }
            // Epoch, round, seat and attempt, as in the tag.
            Sort::Attempt => {
                let (epoch, by) = (self.tag.writer >> 64, self.tag.writer as u64);
                let (round, seat) = (by >> 32, by >> 28 & 15);
                format!("synch{epoch}.{round}.{seat}.{}:{of}", by & 0xfff_ffff)
            }
            Sort::Eventual => {
                let e = self.eventual.unwrap_or_default();
                format!("eventual{}.{}.{}:{of}", e.applied, e.clock, e.counter)
            }
        }
    }
}

impl ReadId {
    /// Its name.
    pub fn name(self) -> String {
        let what = match self.purpose {
            Purpose::First => "first",
            Purpose::Again => "again",
            Purpose::Get => "get",
        };
        format!("{what}{}:{}", self.number, self.reader.name())
    }
}

/// What has a name in a trace.
pub trait Named {
    /// The name; of a pair, both.
    fn named(&self) -> String;
}

impl Named for RefId {
    fn named(&self) -> String {
        self.name()
    }
}

impl Named for WriteId {
    fn named(&self) -> String {
        self.name()
    }
}

impl Named for ReadId {
    fn named(&self) -> String {
        self.name()
    }
}

impl<A: Named, B: Named> Named for (A, B) {
    fn named(&self) -> String {
        format!("{} {}", self.0.named(), self.1.named())
    }
}

/// The values that writes carry, as far as the run shows them: their digests, 0 for nothing.
#[derive(Debug, Default)]
pub struct Values(BTreeMap<WriteId, u64>);

impl Values {
    /// A write was seen with a value. False: with another one than before.
    pub fn seen(&mut self, write: WriteId, digest: u64) -> bool {
        let digest = plain(digest);
        *self.0.entry(write).or_insert(digest) == digest
    }

    /// A value of this digest.
    pub fn named(&self, digest: u64) -> Option<WriteId> {
        let mut found = self.0.iter().filter(|(w, _)| w.sort() != Sort::Attempt);
        found.find(|(_, d)| **d == digest).map(|(w, _)| *w)
    }

    /// The digest of a value, where it was seen.
    pub fn of(&self, write: WriteId) -> Option<u64> {
        match write.sort() {
            Sort::Start => Some(0),
            _ => self.0.get(&write).copied(),
        }
    }
}

/// Absent and deleted are both nothing.
fn plain(digest: u64) -> u64 {
    if digest <= 1 { 0 } else { digest }
}

/// The digest of a value as clients see it.
pub fn digest(value: Option<&[u8]>) -> u64 {
    value.map_or(0, fermata_protocol::register::policy::digest)
}

/// A key for people.
pub fn key_name(key: &KeyId) -> String {
    crate::show::key(key).replace(' ', "")
}
