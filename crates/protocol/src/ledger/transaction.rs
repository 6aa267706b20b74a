//! What a transaction asks, and what it is told.

use crate::base::{KeyId, KeyspaceId, Micros, Timestamp};
use crate::request::Refusal;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keys of one range in a transaction at most.
pub const RANGE_MAX: u32 = 1_000;

/// A one-shot transaction: `then` if all comparisons hold, `or_else` if not, at one moment. It
/// reads what was there just before it; it does not see what it writes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// What has to hold for `then`.
    pub compare: Vec<Compare>,
    /// What is done if all of it does.
    pub then: Vec<Act>,
    /// What is done if not.
    pub or_else: Vec<Act>,
}

/// A comparison with what is under one key. A key that is absent, or was deleted, has no value, the
/// number 0, and the version 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    /// The key.
    pub key: KeyId,
    /// What has to hold of it.
    pub condition: Condition,
}

/// What may have to hold of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// It has a value, or it has none.
    Exists(bool),
    /// Its version, that is the timestamp of the transaction that wrote it last.
    Version(Relation, Timestamp),
    /// Its value, byte by byte; one that is absent equals nothing, and is below every value.
    Value(Relation, Bytes),
    /// Its value as a decimal number.
    Number(Relation, i64),
}

/// How the left side, which is what is there, has to stand to the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// =
    Equal,
    /// !=
    NotEqual,
    /// <
    Less,
    /// <=
    AtMost,
    /// >
    Greater,
    /// >=
    AtLeast,
}

impl Relation {
    /// Whether `left` stands so to `right`.
    pub fn holds<T: Ord>(self, left: &T, right: &T) -> bool {
        match self {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::Less => left < right,
            Relation::AtMost => left <= right,
            Relation::Greater => left > right,
            Relation::AtLeast => left >= right,
        }
    }
}

/// The keys of one keyspace from one on, in order, up to another one that is not among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// Whose keys.
    pub keyspace: KeyspaceId,
    /// The first key that may be in it.
    pub from: Bytes,
    /// The first key above it; none: to the end.
    pub to: Option<Bytes>,
}

impl Span {
    /// All keys that begin so.
    pub fn prefix(keyspace: KeyspaceId, prefix: &Bytes) -> Span {
        // The next prefix of the same length, without trailing bytes that cannot grow.
        let last = prefix.iter().rposition(|byte| *byte < u8::MAX);
        let to = last.map(|last| {
            let mut next = prefix[..=last].to_vec();
            next[last] += 1;
            Bytes::from(next)
        });
        let from = prefix.clone();
        Span { keyspace, from, to }
    }

    /// What of it is above a key.
    #[must_use]
    pub fn above(&self, key: &Bytes) -> Span {
        let mut from = key.to_vec();
        from.push(0);
        let from = Bytes::from(from).max(self.from.clone());
        Span {
            from,
            ..self.clone()
        }
    }

    /// Whether a key is in it.
    pub fn has(&self, key: &KeyId) -> bool {
        self.keyspace == key.keyspace && self.reaches(&key.key)
    }

    /// Whether the key of that name would be.
    pub fn reaches(&self, key: &Bytes) -> bool {
        *key >= self.from && self.to.as_ref().is_none_or(|to| key < to)
    }

    /// Whether a key may be in both.
    pub fn meets(&self, other: &Span) -> bool {
        let before = |a: &Span, b: &Span| a.to.as_ref().is_some_and(|to| *to <= b.from);
        self.keyspace == other.keyspace && !before(self, other) && !before(other, self)
    }

    /// Bytes of its ends.
    fn bytes(&self) -> usize {
        self.from.len() + self.to.as_ref().map_or(0, Bytes::len)
    }
}

/// One thing that a transaction does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Read a key: [`Done::Value`].
    Get(KeyId),
    /// Read the first keys of a range, of one tag: [`Done::Range`].
    Range {
        /// The range.
        span: Span,
        /// So many at most, 1 to [`RANGE_MAX`].
        limit: u32,
    },
    /// Write a key: [`Done::Put`].
    Put {
        /// The key.
        key: KeyId,
        /// Its value from then on.
        value: Bytes,
    },
    /// Delete a key, whether or not it is there: [`Done::Deleted`].
    Delete(KeyId),
    /// Delete the keys of a range, of one tag, [`RANGE_MAX`] at most: [`Done::Deleted`].
    DeleteRange(Span),
    /// Add to a decimal number, which is 0 where the key is absent: [`Done::Added`].
    Add {
        /// The key.
        key: KeyId,
        /// What is added; it may be negative.
        by: i64,
        /// The transaction does nothing and is refused if the sum would be less.
        least: Option<i64>,
        /// Or more.
        most: Option<i64>,
    },
}

/// Keys or ranges that something names.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// One key.
    Key(&'a KeyId),
    /// All keys of a range.
    Span(&'a Span),
}

impl Item<'_> {
    /// Bytes of the longest key that it names.
    pub fn longest(&self) -> usize {
        match self {
            Item::Key(key) => key.key.len(),
            Item::Span(span) => span.from.len().max(span.to.as_ref().map_or(0, Bytes::len)),
        }
    }

    /// Whether a key may be among both.
    pub fn meets(&self, other: &Item<'_>) -> bool {
        match (self, other) {
            (Item::Key(a), Item::Key(b)) => a == b,
            (Item::Key(key), Item::Span(span)) | (Item::Span(span), Item::Key(key)) => {
                span.has(key)
            }
            (Item::Span(a), Item::Span(b)) => a.meets(b),
        }
    }
}

impl Act {
    /// What it is about.
    pub fn item(&self) -> Item<'_> {
        match self {
            Act::Get(key) | Act::Put { key, .. } | Act::Delete(key) | Act::Add { key, .. } => {
                Item::Key(key)
            }
            Act::Range { span, .. } | Act::DeleteRange(span) => Item::Span(span),
        }
    }

    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        !matches!(self, Act::Get(_) | Act::Range { .. })
    }

    fn bytes(&self) -> usize {
        let value = match self {
            Act::Put { value, .. } => value.len(),
            _ => 0,
        };
        let named = match self.item() {
            Item::Key(key) => key.key.len(),
            Item::Span(span) => span.bytes(),
        };
        size_of::<Act>() + named + value
    }
}

impl Transaction {
    /// What is done if all comparisons hold, or if not.
    pub fn branch(&self, then: bool) -> &[Act] {
        match then {
            true => &self.then,
            false => &self.or_else,
        }
    }

    /// What both branches do.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.then.iter().chain(&self.or_else)
    }

    /// All that it names, whatever becomes of it.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let compared = self.compare.iter().map(|compare| Item::Key(&compare.key));
        compared.chain(self.acts().map(Act::item))
    }

    /// All that it may change.
    pub fn written(&self) -> impl Iterator<Item = Item<'_>> {
        let writes = self.acts().filter(|act| act.writes());
        writes.map(Act::item)
    }

    /// Whether it changes nothing, whatever it finds.
    pub fn only_reads(&self) -> bool {
        !self.acts().any(Act::writes)
    }

    /// Bytes that it takes, encoded or in memory.
    pub fn bytes(&self) -> usize {
        let compared = self.compare.iter().map(|compare| {
            let value = match &compare.condition {
                Condition::Value(_, value) => value.len(),
                _ => 0,
            };
            size_of::<Compare>() + compare.key.key.len() + value
        });
        let acts = self.acts().map(Act::bytes);
        compared.chain(acts).sum()
    }
}

/// A value, and the timestamp of the transaction that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// Its version.
    pub version: Timestamp,
}

/// What came of one [`Act`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// Of a get: what was there, if anything was.
    Value(Option<Versioned>),
    /// Of a range.
    Range(Found),
    /// Of a put.
    Put,
    /// Of a delete: how many keys were there.
    Deleted(u32),
    /// Of an add: the sum.
    Added(i64),
}

/// Keys of a range, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The keys, with what is there.
    pub keys: Vec<(Bytes, Versioned)>,
    /// Whether there may be more of them above the last one.
    pub more: bool,
}

/// What a transaction has come to, where it was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It was carried out.
    Done {
        /// When: its place in the order of all transactions, and the version of what it wrote.
        at: Timestamp,
        /// Whether all comparisons held.
        then: bool,
        /// One for each act of its branch, in order. None: what it read is not kept any more.
        done: Option<Vec<Done>>,
    },
    /// It changed nothing, and never will.
    Refused(Refusal),
    /// Its timestamp was overtaken (L7): it changed nothing under this number, and is worth another
    /// one.
    Void,
    /// Somebody has asked what came of it before it was applied: it never takes effect.
    Never,
}

impl Verdict {
    /// As it is kept: what was read can be read again at its time.
    pub(crate) fn without_reads(&self) -> Verdict {
        match self {
            Verdict::Done { at, then, .. } => Verdict::Done {
                at: *at,
                then: *then,
                done: None,
            },
            other => other.clone(),
        }
    }
}

/// Which moment a snapshot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// The present: everything that was told to anybody before it was asked for.
    Now,
    /// This one, which has passed.
    At(Timestamp),
    /// The latest one that the nearest replicas can show.
    Recent {
        /// Not so many microseconds ago, or more.
        staleness: Micros,
        /// And not before this: a transaction that whoever asks knows of.
        after: Timestamp,
    },
}

/// What a snapshot asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// One key: [`Found`] has it, or nothing.
    Key(KeyId),
    /// The first keys of a range.
    Range {
        /// The range.
        span: Span,
        /// So many at most.
        limit: u32,
    },
}

impl Part {
    /// What it is about.
    pub fn item(&self) -> Item<'_> {
        match self {
            Part::Key(key) => Item::Key(key),
            Part::Range { span, .. } => Item::Span(span),
        }
    }
}
