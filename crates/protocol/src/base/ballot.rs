//! Ballots and slots of a replicated log.

use super::ids::Seat;
use serde::{Deserialize, Serialize};

/// A ballot: a round and the seat that leads it. Ballot 0 of a log belongs to the seat named in the
/// log's creation, which therefore needs no phase 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// Grows with every attempt to lead.
    pub round: u32,
    /// The seat that leads this ballot.
    pub seat: Seat,
}

impl Ballot {
    /// The ballot by which `seat` outbids `self`.
    pub fn next_for(self, seat: Seat) -> Ballot {
        Ballot {
            round: self.round + 1,
            seat,
        }
    }
}

/// A position in one log, counted from 1. It holds one entry, which may be a batch of commands.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot after this one.
    pub fn next(self) -> Slot {
        Slot(self.0 + 1)
    }
}
