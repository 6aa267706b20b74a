//! What the small state of a segment has of its ledger.

use crate::base::{Bug, Planted, Timestamp};
use serde::{Deserialize, Serialize};

/// Part of a segment's state, from the format [`LEDGERS`](crate::wire::LEDGERS) on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerState {
    /// No primary up to here has assigned, promised or closed anything above this (L1).
    limit: Timestamp,
}

impl LedgerState {
    /// See the field.
    pub fn limit(&self) -> Timestamp {
        self.limit
    }

    /// A primary has stated another limit.
    pub(crate) fn raise(&mut self, limit: Timestamp) {
        self.limit = self.limit.max(limit);
    }

    /// A primary that hands its log over has used nothing above this (L4): all that it has assigned
    /// stands before it in the log.
    pub(crate) fn lower(&mut self, used: Timestamp) {
        self.limit = self.limit.min(used);
    }

    /// The next log goes on from here: what was promised in this one binds that one, too.
    #[must_use]
    pub(crate) fn succeed(self, planted: Planted) -> LedgerState {
        match planted.has(Bug::LimitEndsWithLog) {
            true => LedgerState::default(),
            false => self,
        }
    }
}
