//! Messages between coordinators, beyond registers and locks.

use crate::base::KeyspaceId;
use crate::command::Command;
use crate::lock::{Outcome, Rejection};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Between the node that a client asked and a member of another group, or the catalogue's keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The keys of a keyspace that your group holds, in order.
    Keys {
        /// Repeated in the answer.
        call: u64,
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Only keys that start so.
        prefix: Bytes,
        /// Only keys above this.
        after: Option<Bytes>,
        /// At most so many.
        limit: u32,
    },
    /// The answer to `Keys`.
    KeysAre {
        /// From the question.
        call: u64,
        /// In order.
        keys: Vec<Bytes>,
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
