//! Messages between coordinators, beyond registers and locks.

use crate::base::{Epoch, SegmentId};
use crate::command::Command;
use crate::lock::{Outcome, Rejection};
use crate::register::{KeyRange, Listed};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Between the node that a client asked and a member of a group, or the catalogue's keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The keys that you have in stores of one epoch, in order.
    Keys {
        /// Repeated in the answer.
        call: u64,
        /// The first segment whose store is meant.
        from: SegmentId,
        /// The last one.
        to: SegmentId,
        /// The epoch of the stores.
        store: Epoch,
        /// They are not the present ones, and some keys may not have moved from them.
        past: bool,
        /// Which keys.
        range: KeyRange,
    },
    /// The answer to `Keys`, of one who knows what these stores have.
    KeysAre {
        /// From the question.
        call: u64,
        /// In order; all that there are, if fewer than were asked for.
        keys: Vec<Listed>,
    },
    /// Propose a command in the log of the group that keeps the catalogue. Its leader answers.
    Propose {
        /// Repeated in the answer.
        call: u64,
        /// The command, to the group's own state.
        command: Command,
    },
    /// The command was applied, or not taken.
    Proposed {
        /// From the question.
        call: u64,
        /// Its outcome.
        result: Result<Outcome, Rejection>,
    },
    /// Send me the catalogue, if you lead the log that it comes from: so that a name which nobody
    /// has heard of can be told from one that is new.
    Catalogue {
        /// Repeated in the answer.
        call: u64,
    },
    /// The answer to `Catalogue`, of the leader alone, which has sent the catalogue before.
    CatalogueIs {
        /// From the question.
        call: u64,
        /// How often it has been changed: a node that knows an older one has missed what was sent.
        version: u64,
    },
}
