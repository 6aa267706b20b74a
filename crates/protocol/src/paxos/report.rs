//! What one acceptor reports in phase 1, piece by piece.
//!
//! **Problem.** An acceptor may hold more votes than a frame does, and a candidate needs all of
//! them (P3).
//!
//! **Idea.** The acceptor answers `Prepare` with the votes that follow the slot asked for, as many
//! as a window takes, and says whether there are more; it remembers nothing of it. The candidate
//! asks on from where it has got to. A piece that is lost is asked for again, one that is repeated
//! says nothing new, and one that leaves a gap is not taken.
//!
//! **Why the pieces are one report.** From its promise on, before the first piece, the acceptor
//! votes in no lower ballot; so what it has not reported yet does not change, but by being learned
//! as chosen. Then it may be reported no longer, and the piece says up to where: the highest such
//! slot of all pieces is the report's.

use super::{Accepted, Entry};
use crate::base::{Ballot, Slot};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// One answer to a `Prepare`.
pub(super) struct Piece {
    /// The slot asked for: what is reported follows it.
    pub(super) above: Slot,
    pub(super) chosen: Slot,
    pub(super) accepted: Vec<Accepted>,
    /// Whether the acceptor has voted above the last slot of this piece.
    pub(super) more: bool,
}

/// What has come so far from one acceptor.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Everything up to here is chosen, as far as the acceptor knows, and was perhaps not reported.
    pub(super) chosen: Slot,
    /// Everything up to here that was not chosen was reported.
    upto: Slot,
    /// Nothing is missing.
    pub(super) whole: bool,
    pub(super) votes: BTreeMap<Slot, (Ballot, Entry)>,
}

impl Report {
    /// The slot after which the candidate, which has everything up to `chosen`, wants to know more.
    pub(super) fn above(&self, chosen: Slot) -> Slot {
        self.upto.max(chosen)
    }

    /// Takes a piece unless it leaves a gap; whether it said anything new.
    pub(super) fn add(&mut self, piece: Piece, chosen: Slot) -> bool {
        if self.whole || piece.above > self.above(chosen) {
            return false;
        }
        let before = self.upto;
        self.chosen = self.chosen.max(piece.chosen);
        for vote in piece.accepted {
            self.upto = self.upto.max(vote.slot);
            self.votes.insert(vote.slot, (vote.ballot, vote.entry));
        }
        self.whole = !piece.more;
        self.whole || self.upto > before
    }
}
