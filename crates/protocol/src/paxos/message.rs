//! Messages of one replicated log.

use crate::base::{Ballot, Epoch, GroupId, LogId, NodeName, Seat, Slot, View};
use crate::command::Command;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Nothing: fills a hole.
    Noop,
    /// The first own entry of every ballot. Commands born below the last `Begin` applied are void.
    Begin {
        /// The ballot that begins.
        ballot: Ballot,
    },
    /// Commands, in order.
    Commands {
        /// The ballot in which they were first proposed.
        birth: Ballot,
        /// At most what the limits of a batch allow.
        commands: Vec<Command>,
    },
    /// The log ends here: every later slot is a no-op by definition.
    Stop(Stop),
}

/// A number that was once reserved beside votes, and nobody has used: what it was for is in the log
/// now ([`SegmentCommand::Limit`](crate::command::SegmentCommand::Limit)). It is 0 wherever it is
/// written, nobody reads it, and it goes with format 9, whose nodes expect it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved(u64, u16);

/// The end of a log, and where its state goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The group of the successor log.
    pub group: GroupId,
    /// Its epoch.
    pub next: Epoch,
    /// The owner of the successor's ballot 0.
    pub first: NodeName,
    /// The successor has other seats, and with them other stores: an acceptor of this entry seals
    /// the present one in the batch of its vote.
    pub moves: bool,
    /// The successor's format.
    pub format: u16,
}

impl Stop {
    /// The log that follows one that ends so.
    pub fn successor_of(&self, ended: LogId) -> LogId {
        LogId {
            group: self.group,
            epoch: self.next,
            ..ended
        }
    }
}

impl Entry {
    /// Bytes that it takes at most, encoded or in memory: what bounds count it with.
    pub fn bytes(&self) -> usize {
        let commands = match self {
            Entry::Commands { commands, .. } => commands.iter().map(Command::bytes).sum(),
            Entry::Noop | Entry::Begin { .. } | Entry::Stop(_) => 0,
        };
        2 * size_of::<Accepted>() + commands
    }
}

/// One accepted slot, as an acceptor keeps and reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Which slot.
    pub slot: Slot,
    /// The ballot in which it was accepted.
    pub ballot: Ballot,
    /// The entry.
    pub entry: Entry,
}

/// Between the replicas of one log. Sender and receiver are seats of the log's view, but for
/// `Fetch` and `Join` of a node that follows without one, and what answers these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Phase 1a for all slots; sent again for each piece of the answer.
    Prepare {
        /// The ballot.
        ballot: Ballot,
        /// The proposer wants no votes up to here: it has them chosen, or reported.
        above: Slot,
    },
    /// Phase 1b: promises `ballot` for all slots, and reports a piece of the votes.
    Promise {
        /// The ballot promised.
        ballot: Ballot,
        /// From the question.
        above: Slot,
        /// Everything up to here is chosen and may no longer be reported slot by slot: a proposer
        /// that is behind must catch up first, and must not read "nothing reported" as free.
        chosen: Slot,
        /// Accepted slots above both, in order, as many as a window takes.
        accepted: Vec<Accepted>,
        /// Whether there are more above the last one.
        more: bool,
        /// Nothing.
        reserved: Reserved,
    },
    /// Phase 2a.
    Accept {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// The entry.
        entry: Entry,
        /// Everything up to here is chosen.
        chosen: Slot,
        /// Nothing.
        reserved: Reserved,
    },
    /// Phase 2b.
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
    },
    /// Everything up to here is chosen: said at once when no proposal follows that would say it, so
    /// that the members know of a hand-over before the new holder's writes reach them.
    Chosen {
        /// The leader's ballot.
        ballot: Ballot,
        /// Chosen up to here.
        chosen: Slot,
    },
    /// Phase 1a or 2a refused: a higher ballot is promised.
    Refused {
        /// The ballot refused.
        ballot: Ballot,
        /// The ballot promised.
        promised: Ballot,
    },
    /// Phase 1a refused for now: the acceptor is bound by another's read lease.
    Leased {
        /// The ballot refused.
        ballot: Ballot,
        /// The ballot that holds the lease.
        holder: Ballot,
    },
    /// The holder of the lease gives it back: acceptors may promise at once.
    Release {
        /// Its ballot.
        ballot: Ballot,
        /// The seat that it would like to lead.
        successor: Option<Seat>,
    },
    /// A lagging replica asks for what was chosen from here on.
    Fetch {
        /// First slot wanted.
        from: Slot,
        /// Bytes of a snapshot it already has, and the slot of that snapshot.
        resume: Option<(Slot, u64)>,
    },
    /// Chosen entries in order.
    Entries {
        /// First slot.
        from: Slot,
        /// The entries.
        entries: Vec<Entry>,
        /// The sender has chosen up to here.
        chosen: Slot,
    },
    /// A part of a snapshot.
    Chunk(Chunk),
    /// A node that has no replica of this log asks for what it takes to create one, or to follow.
    Join {
        /// Bytes of a snapshot it already has, and the slot of that snapshot.
        resume: Option<(Slot, u64)>,
    },
    /// What it takes to create a replica late, of which the snapshot may come in several parts.
    Birth {
        /// The log's members.
        view: View,
        /// The owner of its ballot 0.
        first: Seat,
        /// A part of the sender's snapshot; that of slot 0 is the initial state.
        chunk: Chunk,
    },
    /// The log of the envelope has ended, and the sender has the one of a later epoch instead.
    Succeeded {
        /// Whose log it is: a segment's may be another group's by then.
        group: GroupId,
        /// That epoch.
        by: Epoch,
    },
    /// To a node without a seat that would follow the log: who leads tells what is chosen.
    Led {
        /// Probably that node.
        by: NodeName,
    },
}

/// A part of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The snapshot is the state after this slot.
    pub slot: Slot,
    /// Where this part begins.
    pub offset: u64,
    /// Bytes of the whole.
    pub total: u64,
    /// Digest of the whole.
    pub digest: u64,
    /// The part.
    pub data: Bytes,
}
