//! Messages between a coordinator and the primary of a segment.

use crate::base::{Epoch, KeyId, LockRef, Micros, NodeName, SegmentId, SessionId, Tag};
use crate::command::Command;
use crate::ledger::Verdict;
use crate::request::{EntryValue, QueueEntry, RefState, Refusal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The result of a command, computed when it is applied and kept with the session (F2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// `Enqueue`: the ref.
    Enqueued {
        /// The ref.
        lock_ref: LockRef,
    },
    /// `Leave`: the ref left; whether cleanly on all its keys.
    Left {
        /// No flag was set, or the put that was under way is known to be at its quorum.
        clean: bool,
    },
    /// `Release` or `SynchDone`, or a group command.
    Done,
    /// `Resume`: the new generation.
    Resumed {
        /// The generation.
        generation: u32,
    },
    /// The ref, or that generation of it, was not in the queue: nothing changed.
    Gone,
    /// Refused when applied: nothing changed.
    Refused(Refusal),
    /// `Admit`: the node's name.
    Admitted(NodeName),
    /// A command of a ledger was applied: what came of it is a record, since it depends on records.
    Ledger,
    /// The same with what came of it, for whoever asked.
    Executed(Box<Verdict>),
}

/// Why a primary did not take a command. All but `Overtaken` promise that it will not take effect
/// through this submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// Not the primary; perhaps that node is.
    NotPrimary(Option<NodeName>),
    /// Not this segment's group or epoch; ask again with that epoch, if given.
    Elsewhere(Option<Epoch>),
    /// Too many commands are waiting, or the key's queue is full.
    Busy,
    /// The disk takes no writes.
    DiskFull,
    /// The ref's holder still has a lease; a forced release must wait (F10). Microseconds.
    Leased(Micros),
    /// A keyspace of its keys was deleted.
    NoSuchKeyspace,
    /// The primary lost its ballot while the command was in flight: it may have been chosen. Submit
    /// it again, to whoever leads now.
    Overtaken,
    /// Too few of the members that a group is to have are heard, or know its logs.
    NotReady,
    /// A node that is to have a seat in a group has no room on its disk.
    NoRoom,
    /// The timestamp is too far ahead of the primary's clock.
    ClockSkew,
}

/// One key's latest value at a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    /// The key.
    pub key: KeyId,
    /// Its value, if it fits the grant's bound ([`Limits::grant`](crate::base::Limits::grant)).
    pub value: EntryValue,
    /// The tag of the value.
    pub tag: Tag,
}

/// What whoever waits is told of a ref that has come to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The session.
    pub session: SessionId,
    /// The request that enqueued or resumed.
    pub number: u64,
    /// The segment.
    pub segment: SegmentId,
    /// The ref.
    pub lock_ref: LockRef,
    /// Its generation.
    pub generation: u32,
    /// Every key of the ref in this segment, with its latest value or without.
    pub latest: Vec<Latest>,
    /// The first lease.
    pub lease: Micros,
}

/// Between a coordinator and a primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Propose a command.
    Submit {
        /// Repeated in the answer.
        call: u64,
        /// To this segment.
        segment: SegmentId,
        /// The command. An `Enqueue` or `Resume` also asks for grants and losses to be pushed to
        /// the sender from now on.
        command: Command,
    },
    /// The command was applied, or not taken.
    Submitted {
        /// From the question.
        call: u64,
        /// Its outcome.
        result: Result<Outcome, Rejection>,
        /// For an `Enqueue` that must wait: refs ahead.
        ahead: u32,
    },
    /// The ref holds all its keys of this segment; comes instead of `Submitted` where it is at once
    /// so.
    Granted(Grant),
    /// The ref is past.
    Lost {
        /// The session.
        session: SessionId,
        /// The segment.
        segment: SegmentId,
        /// The ref.
        lock_ref: LockRef,
        /// Its generation.
        generation: u32,
    },
    /// Keep these refs alive; grants and losses are pushed to the sender from now on.
    Renew {
        /// Repeated in the answer.
        call: u64,
        /// The segment.
        segment: SegmentId,
        /// The session.
        session: SessionId,
        /// Refs and generations.
        refs: Vec<(LockRef, u32)>,
        /// The sender has not yet passed the grant of these refs on to a client: push them again.
        again: Vec<LockRef>,
        /// The client of these refs, which has entered them, does nothing more: it gives its leases
        /// back, and keeps its places for another lease.
        relinquishes: bool,
    },
    /// The state of each ref asked for, in order.
    Renewed {
        /// From the question.
        call: u64,
        /// Or why not.
        result: Result<Vec<RefState>, Rejection>,
    },
    /// The put beside which a holder leaves, or has left, is at its quorum. Not answered, and
    /// losing it costs time alone: the next holder's synch finds the put.
    PutDone {
        /// The segment.
        segment: SegmentId,
        /// The key.
        key: KeyId,
        /// The put.
        tag: Tag,
    },
    /// The queue of a key, from the primary's memory under its lease.
    Queue {
        /// Repeated in the answer.
        call: u64,
        /// The segment.
        segment: SegmentId,
        /// The key.
        key: KeyId,
    },
    /// The queue.
    QueueIs {
        /// From the question.
        call: u64,
        /// Entries, head first, and the flag.
        result: Result<(Vec<QueueEntry>, Option<u64>), Rejection>,
    },
    /// The sender leads the segment, or is about to, and was asked before it did. Losing it costs
    /// time alone.
    Leads {
        /// The segment.
        segment: SegmentId,
    },
}

impl Message {
    /// The segment whose primary this asks, if it asks one.
    pub(crate) fn asks_about(&self) -> Option<SegmentId> {
        match self {
            Message::Submit { segment, .. }
            | Message::Renew { segment, .. }
            | Message::PutDone { segment, .. }
            | Message::Queue { segment, .. } => Some(*segment),
            Message::Submitted { .. }
            | Message::Granted(_)
            | Message::Lost { .. }
            | Message::Leads { .. }
            | Message::Renewed { .. }
            | Message::QueueIs { .. } => None,
        }
    }
}
