//! Messages of ledgers, and of the cluster's time. None is sent before the cluster goes by the
//! format [`LEDGERS`](crate::wire::LEDGERS).

use super::{Found, Part};
use crate::base::{Ballot, Epoch, Micros, SegmentId, Timestamp};
use crate::lock::Rejection;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// What was there at a time? To any member: it answers at once if that time is closed there;
    /// else the primary answers, once nothing at or below it can be written any more.
    Read {
        /// Repeated in the answer.
        call: u64,
        /// The segment.
        segment: SegmentId,
        /// The time.
        at: Timestamp,
        /// What of it.
        parts: Vec<Part>,
    },
    /// The answer to `Read`.
    Found {
        /// From the question.
        call: u64,
        /// In the order of the parts, perhaps not all of them: the others are to be asked for
        /// again.
        result: Result<Vec<Found>, Rejection>,
    },
    /// Who has applied this command knows all that is ever written at or below this time (L3).
    Closed {
        /// The segment.
        segment: SegmentId,
        /// The time.
        at: Timestamp,
        /// The number of the command in the segment's history.
        position: u64,
    },
    /// The cluster's time, to a node whose beat has just come (L36).
    Time {
        /// From the beat.
        sent: Micros,
        /// Whose time it is: the epoch and ballot of the meta-group's log.
        of: (Epoch, Ballot),
        /// What it read when the beat came, microseconds since 1970.
        reading: u64,
        /// For how long no other reference reads anything, microseconds from then on.
        valid: Micros,
    },
}
