//! Parts of a segment's state that are records in the store.
//!
//! **Problem.** A [`SegmentState`](crate::segment::SegmentState) is small: it is encoded whole for
//! each snapshot, and is sent whole to whoever lags. What a ledger keeps is larger than memory.
//!
//! **Idea.** Such parts are *records* at each member: ordered bytes, which a command of the log
//! changes blindly, in the batch of the step that applies it, with the command's position. The
//! small state says only which command changed a record last. A member whose small state has come
//! from another one lacks what was changed in between, and *fills*: it is told what was changed
//! since its position, or, where nobody remembers that any more, all records, piece by piece, and
//! then what was changed since the first piece.
//!
//! **Rules.**
//! * *Position with the data*: records and the position up to which they are as the log has them
//!   are one batch. A command at or below it changes nothing, so that a log may be replayed.
//! * *Who lacks anything writes nothing of its own*: a change beside a gap would look like no gap.
//!   What is applied meanwhile is remembered, or asked for.
//! * *A piece replaces its range*, in one batch with how far the fill has come.
//! * *No piece is older than another*: only who is at the highest position of any piece, and at the
//!   filler's own, answers. A fill is complete where nothing was changed since at a position that
//!   is not below either.
//! * *Who fills answers nobody else*, is not warm, and counts for nobody as one that has them.
//! * *Who leaves keeps its records* until a majority of the members have them all; and until then
//!   no command that changes any is taken in the epoch, so that whoever has all remains of use.
//!
//! **Departures.** None: the papers have states that fit a message.

#[cfg(feature = "planted-bugs")]
mod puts;
mod work;

#[cfg(feature = "planted-bugs")]
pub use self::puts::Puts;
pub use self::work::{Order, Ordered, Work};

use crate::base::{Epoch, SegmentId};
use crate::io::{Effects, Memory, Void};
use crate::wire::{decode, encode, record};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Records read at once.
const PAGE: usize = 64;

/// One record, as a command leaves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The part, from [`record::FIRST_PART`] on, and the key in it.
    pub name: Bytes,
    /// The value; none: there is no such record.
    pub value: Option<Bytes>,
}

/// How far the records of a segment are here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// They are as the command with this number has left them; while they are filled, as far as
    /// they were before.
    pub at: u64,
    /// What was changed above this position is known here, key by key.
    pub floor: u64,
    /// They are being filled.
    pub filling: Option<Filling>,
}

/// A change: the number of the command, and which of its changes. All changes up to one are those
/// of earlier commands, and of this one up to that.
pub type Mark = (u64, u32);

/// The last change of a command.
pub(crate) const fn last_of(position: u64) -> Mark {
    (position, u32::MAX)
}

/// How far a fill has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// The first name that is still to come; none: all ranges have come.
    pub cursor: Option<Bytes>,
    /// What was changed after this is still to come.
    pub since: Option<Mark>,
    /// The highest position of anything that has come.
    pub seen: u64,
}

impl Standing {
    /// All is to be filled anew. `at` least of this position, for this replica may have promised
    /// it.
    pub(crate) fn anew(at: u64) -> Standing {
        Standing {
            at,
            floor: at,
            filling: Some(Filling {
                cursor: Some(record::first_part()),
                since: None,
                seen: at,
            }),
        }
    }

    /// Whether these are all records, where a command with this number changed one last.
    pub(crate) fn is_full(&self, recorded: u64) -> bool {
        self.filling.is_none() && self.at >= recorded
    }

    /// Where a filler goes on: since when it wants to know what was changed; none while ranges are
    /// still to come.
    pub(crate) fn since(&self) -> Option<Mark> {
        match &self.filling {
            None => Some(last_of(self.at)),
            Some(Filling {
                cursor: None,
                since,
                ..
            }) => *since,
            Some(_) => None,
        }
    }

    /// The highest position of anything here.
    pub(crate) fn seen(&self) -> u64 {
        let filled = self.filling.as_ref().map_or(0, |filling| filling.seen);
        filled.max(self.at)
    }

    /// Puts it in the batch of what it tells of.
    pub(crate) fn put(&self, segment: SegmentId, fx: &mut Effects) {
        fx.put(record::standing(segment), encode(self));
    }
}

/// How far the records of each segment are at this node; of a damaged note nothing is known.
pub(crate) fn standings(memory: &dyn Memory) -> BTreeMap<SegmentId, Standing> {
    let segments = record::segments_with_parts(memory).into_iter();
    let read = |segment: SegmentId| {
        let standing = memory.get(&record::standing(segment)).ok().flatten();
        let standing = standing.and_then(|bytes| decode(&bytes).ok());
        (segment, standing.unwrap_or_else(|| Standing::anew(0)))
    };
    segments.map(read).collect()
}

/// Puts what a command with this number changes, and remembers which names that were.
pub(crate) fn put(segment: SegmentId, position: u64, changes: Vec<Change>, fx: &mut Effects) {
    for (n, change) in (0..).zip(changes) {
        fx.put(record::changed(segment, position, n), change.name.clone());
        set(segment, change, fx);
    }
}

/// Sets one record.
pub(crate) fn set(segment: SegmentId, change: Change, fx: &mut Effects) {
    let key = record::part(segment, &change.name);
    match change.value {
        Some(value) => fx.put(key, value),
        None => fx.delete(key),
    }
}

/// A run of records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Each with its name, in order.
    pub(crate) records: Vec<(Bytes, Bytes)>,
    /// The first name that is not in it; none: there are no more.
    pub(crate) to: Option<Bytes>,
}

/// The records from a name on, as many as fit so many bytes, and one at least.
///
/// # Errors
/// One of them is damaged.
pub(crate) fn piece(
    segment: SegmentId,
    from: &Bytes,
    room: usize,
    memory: &dyn Memory,
) -> Result<Piece, Void> {
    let (mut next, end) = (record::part(segment, from), record::parts(segment).1);
    let (mut records, mut bytes) = (Vec::new(), 0);
    loop {
        let page = memory.scan(&next, &end, PAGE);
        let last = page.len() < PAGE;
        for (key, value) in page {
            let (name, value) = (record::name_of(&key), value?);
            bytes += name.len() + value.len();
            if bytes > room && !records.is_empty() {
                return Ok(Piece {
                    records,
                    to: Some(name),
                });
            }
            next = after(&key);
            records.push((name, value));
        }
        if last {
            return Ok(Piece { records, to: None });
        }
    }
}

/// What was changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// As it is now.
    pub(crate) records: Vec<Change>,
    /// The last change that was looked at; none: there are no more.
    pub(crate) upto: Option<Mark>,
}

/// What was changed after some change, as much as fits so many bytes, and one record at least.
///
/// # Errors
/// Something of it is damaged.
pub(crate) fn changed(
    segment: SegmentId,
    since: Mark,
    room: usize,
    memory: &dyn Memory,
) -> Result<Changed, Void> {
    let (mut next, end) = record::changed_since(segment, since);
    let (mut names, mut records, mut bytes) = (BTreeSet::new(), Vec::new(), 0);
    let mut last = since;
    loop {
        let page = memory.scan(&next, &end, PAGE);
        let ends = page.len() < PAGE;
        for (key, name) in page {
            let name = name?;
            if !names.contains(&name) {
                let value = memory.get(&record::part(segment, &name))?;
                bytes += name.len() + value.as_ref().map_or(0, Bytes::len);
                if bytes > room && !records.is_empty() {
                    let upto = Some(last);
                    return Ok(Changed { records, upto });
                }
                names.insert(name.clone());
                records.push(Change { name, value });
            }
            (last, next) = (record::mark_of(&key).ok_or(Void)?, after(&key));
        }
        if ends {
            let upto = None;
            return Ok(Changed { records, upto });
        }
    }
}

fn after(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

/// Between members of a segment, former and next ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The records from a name on?
    Fill {
        /// The segment.
        segment: SegmentId,
        /// The name.
        from: Bytes,
        /// What was changed after this is to be remembered until it is asked for.
        since: Option<Mark>,
        /// Not from who is below this position.
        seen: u64,
    },
    /// They are these, and there are no others from one name up to the other.
    Piece {
        /// The segment.
        segment: SegmentId,
        /// From the question.
        from: Bytes,
        /// The first name that is not in it; none: there are no more.
        to: Option<Bytes>,
        /// Each with its name, in order.
        records: Vec<(Bytes, Bytes)>,
        /// The sender's position.
        position: u64,
    },
    /// What was changed after some change?
    Since {
        /// The segment.
        segment: SegmentId,
        /// The change.
        since: Mark,
        /// Not from who is below this position.
        seen: u64,
    },
    /// These were, and are now so.
    Changes {
        /// The segment.
        segment: SegmentId,
        /// From the question.
        since: Mark,
        /// Up to there; the last of the sender's position: that is all.
        upto: Mark,
        /// Each once.
        records: Vec<Change>,
        /// The sender's position.
        position: u64,
    },
    /// The sender cannot say: it lags, or fills, or has no such records.
    Refused {
        /// The segment.
        segment: SegmentId,
        /// It does not remember what was changed after this.
        forgotten: Option<Mark>,
    },
    /// Does the receiver have all records of a segment, in this epoch or a later one?
    Complete {
        /// The segment.
        segment: SegmentId,
        /// The epoch of its log.
        epoch: Epoch,
        /// Up to this command at least.
        recorded: u64,
    },
    /// The sender has.
    IsComplete {
        /// The segment.
        segment: SegmentId,
        /// The epoch.
        epoch: Epoch,
    },
}
