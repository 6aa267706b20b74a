//! Commands: what a replicated log orders. They carry nothing of the protocol that orders them, and
//! their results are computed when they are applied, from the log's state alone.

use crate::base::{Epoch, Keyspace, LockRef, Micros, NodeName, SessionId, SiteId, View};
use crate::base::{KeyId, Tag};
use crate::request::Mode;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// One command with its identity. `(session, number)` takes effect once per segment, also across
/// snapshots and changes of view (F2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Who issued it; the node's own session for commands of the protocol itself.
    pub session: SessionId,
    /// The request's number in the session.
    pub number: u64,
    /// Every request of the session up to this number has its answer: replies may be forgotten.
    pub answered_through: u64,
    /// The epoch in which it was first proposed.
    pub epoch: Epoch,
    /// What to do.
    pub body: Body,
}

/// What to do, by kind of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// To a segment's lock queues.
    Lock(LockCommand),
    /// To the group's own state.
    Group(GroupCommand),
}

/// Who waits, for people and for pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The coordinator that asked.
    pub node: NodeName,
    /// The client's site.
    pub site: SiteId,
    /// The proposing primary's wall clock, microseconds since 1970.
    pub since: u64,
    /// How long the holder may be silent, microseconds.
    pub lease: Micros,
    /// The longest section, microseconds.
    pub section_max: Micros,
}

/// A command to a segment's lock queues. Its number in the segment's history is the lock ref that
/// an enqueue gives, the position that a forced release sets the flag to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockCommand {
    /// Join the queues of all these keys with one ref (MUSIC `lsGenerateAndEnqueue`).
    Enqueue {
        /// Keys of this segment, in order, without repetition.
        keys: Vec<KeyId>,
        /// Exclusive or shared.
        mode: Mode,
        /// Who waits.
        origin: Origin,
    },
    /// The holder, or a waiter, leaves (MUSIC `releaseLock`).
    Leave {
        /// Its ref.
        lock_ref: LockRef,
        /// The generation that leaves; an older one leaves nothing.
        generation: u32,
        /// Keys whose last write was acknowledged, with its tag if there was one. The ref's other
        /// keys are left dirty.
        clean: Vec<(KeyId, Option<Tag>)>,
        /// Only a waiting ref leaves; one that holds stays. So says a coordinator that gives up:
        /// the client may have gone on elsewhere and be in the section by now.
        waiting_only: bool,
    },
    /// End a section by force (MUSIC `forcedRelease`): removes the ref from all its queues, and
    /// sets the flag of every key of which it was an exclusive head, in this very command.
    Release {
        /// The ref.
        lock_ref: LockRef,
    },
    /// The synch of the flag set at `flag` has completed (F18).
    SynchDone {
        /// The key.
        key: KeyId,
        /// Only this position's flag is cleared.
        flag: u64,
    },
    /// The holder goes on without its counter: a new generation of the same ref, and a synch that
    /// fences the old one (F16).
    Resume {
        /// The ref.
        lock_ref: LockRef,
        /// The generation that the caller knows; only the present one can be resumed.
        generation: u32,
        /// Who waits now.
        origin: Origin,
    },
}

/// A command to a group's own state. `Split`, `Decide`, `Vote` and `Take` have
/// their places reserved; a group of this version refuses them without effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupCommand {
    /// The next view. The first chosen one of an epoch decides, and ends the group's log.
    Next(View),
    /// Add a keyspace; its id is given when applied.
    CreateKeyspace(Keyspace),
    /// Reserved.
    Split(Vec<u8>),
    /// Reserved.
    Decide(Vec<u8>),
    /// Reserved.
    Vote(Vec<u8>),
    /// Reserved.
    Take(Vec<u8>),
}
