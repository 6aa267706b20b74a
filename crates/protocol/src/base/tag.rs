//! Tags: the vector timestamps that order writes (MUSIC §III, CassandrEAS §II).

use super::ballot::Ballot;
use super::ids::{Epoch, NodeName, SessionId};
use serde::{Deserialize, Serialize};

/// The number of one critical section on a key, also its fencing token: the number of the enqueue
/// command in the whole history of the key's segment, over all its logs (F2). From 1; 0 is
/// "no section yet".
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LockRef(pub u64);

/// The tag of one write, totally ordered: by section, then by sequence number, then by writer.
///
/// * A critical write: the section's lock ref, the client's sequence number, the client's session.
///   A retry, at whichever coordinator, repeats the tag.
/// * A synch: the lock ref, the first number of the section's generation, and the ballot and
///   attempt of the primary that runs it (F4: no two attempts share a tag).
/// * A register keyspace: lock ref 0, a logical counter or a time, the writing session and request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Tag {
    /// The section, or 0 in a register keyspace.
    pub lock_ref: LockRef,
    /// `generation · 2^40 + number`; see [`Tag::sequence`].
    pub sequence: u64,
    /// Breaks ties; names the value.
    pub writer: u128,
}

/// Sequence numbers of one generation of a section: a section has at most 2^40 writes.
pub const GENERATION_SPAN: u64 = 1 << 40;

impl Tag {
    /// The tag of a key that was never written.
    pub const ZERO: Tag = Tag {
        lock_ref: LockRef(0),
        sequence: 0,
        writer: 0,
    };

    /// The tag of the `number`-th write (from 1) of a section's `generation`, by `session`.
    pub fn critical(lock_ref: LockRef, generation: u32, number: u64, session: SessionId) -> Tag {
        assert!(
            number > 0 && number < GENERATION_SPAN,
            "faces refuse other numbers"
        );
        Tag {
            lock_ref,
            sequence: Tag::sequence(generation, number),
            writer: session.0,
        }
    }

    /// The tag of a synch for a section's `generation`, unique by the log's epoch, the primary's
    /// ballot in it, and the attempt (below 2^28). Ballots restart with every log, so the epoch
    /// comes first.
    pub fn synch(
        lock_ref: LockRef,
        generation: u32,
        epoch: Epoch,
        ballot: Ballot,
        attempt: u32,
    ) -> Tag {
        assert!(
            attempt < 1 << 28 && ballot.seat.0 < 16,
            "a synch's tag names its attempt"
        );
        let by = u64::from(ballot.round) << 32 | u64::from(ballot.seat.0) << 28;
        let writer = u128::from(epoch.0) << 64 | u128::from(by | u64::from(attempt));
        let sequence = Tag::sequence(generation, 0);
        Tag {
            lock_ref,
            sequence,
            writer,
        }
    }

    /// The sequence field for a write `number` of `generation`. A resumed section has a higher
    /// generation, so its synch fences out what its earlier life still has in flight.
    pub fn sequence(generation: u32, number: u64) -> u64 {
        u64::from(generation) * GENERATION_SPAN + number
    }
}

/// The tag of an eventual put: what the accepting replica had applied of the segment's history, in
/// whose state the key was unlocked; then the last writer by a hybrid clock (F6: it has a cell of
/// its own).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct EventualTag {
    /// Commands applied: above every section known to be over, below every later one.
    pub applied: u64,
    /// Hybrid clock, microseconds.
    pub clock: u64,
    /// The accepting node.
    pub node: NodeName,
    /// Distinguishes puts within one tick.
    pub counter: u32,
}

impl EventualTag {
    /// Where a section's own write stands among eventual puts: below those made when the section
    /// was over, whose clocks are above 0, and above all others.
    pub fn of_section(lock_ref: LockRef) -> EventualTag {
        EventualTag {
            applied: lock_ref.0,
            ..EventualTag::default()
        }
    }

    /// Whether this is where a section's own write stands, not a put.
    pub fn is_of_section(self) -> bool {
        self == EventualTag::of_section(LockRef(self.applied))
    }
}
