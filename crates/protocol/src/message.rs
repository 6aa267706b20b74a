//! What nodes say to each other. Every room has its own messages; this enum is their union, and
//! [`Envelope`] what travels.

use crate::base::{Ballot, ClusterId, GroupId, Interval, LogId, Micros, NodeId, Slot};
use crate::catalogue::Catalogue;
use crate::registry::Registry;
use crate::{coordinator, ledger, lock, paxos, records, register, ring};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What travels between two nodes: many messages of all segments in one frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The sender.
    pub from: NodeId,
    /// The sender's interval clock when it sent, where it has one: read after everything in
    /// `messages` was said, and told also while the sender does not rely on it.
    pub interval: Option<Interval>,
    /// In the order sent.
    pub messages: Vec<Message>,
}

/// A message of any room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A replicated log.
    Paxos {
        /// Which log.
        log: LogId,
        /// What.
        message: paxos::Message,
    },
    /// A register replica or its caller.
    Register(register::Message),
    /// A segment's primary or its caller.
    Lock(lock::Message),
    /// Between coordinators, beyond registers and locks.
    Coordinator(coordinator::Message),
    /// A node's hello and its registry of incarnations.
    Hello(Hello),
    /// All that one node has to say to another at its beat.
    Beat(Beat),
    /// The answer to a beat.
    BeatAck(BeatAck),
    /// The keyspace catalogue, higher version wins.
    Catalogue(Catalogue),
    /// Where groups are, and what becomes of logs.
    Ring(ring::Message),
    /// Who is in the cluster, higher version wins.
    Registry(Registry),
    /// Parts of a segment's state that are records.
    Records(records::Message),
    /// Ledgers, and the cluster's time.
    Ledger(ledger::Message),
}

/// Who a node is and whom it knows. A node of the cluster file answers nothing and counts nobody
/// before it knows the incarnation of every node there, and one that has joined before it knows
/// that it was admitted; its knowledge is durable, and another incarnation under a known name is
/// refused (F8c).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The sender's cluster.
    pub cluster: ClusterId,
    /// The nodes that the sender knows, itself among them if it is in the cluster.
    pub registry: Registry,
    /// Whether the sender knows every node of the cluster file, durably.
    pub complete: bool,
    /// Whether the receiver shall answer with its own hello.
    pub answer: bool,
}

/// One message per pair of nodes and beat, for all logs and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The sender's boot-time clock; repeated in the answer.
    pub sent: Micros,
    /// The logs that the sender leads: ballot and last chosen slot.
    pub leads: Vec<(LogId, Ballot, Slot)>,
    /// The version of the sender's catalogue.
    pub catalogue: u64,
    /// The version of the sender's registry.
    pub registry: u64,
    /// Whether the sender's disk takes writes: only then it may lead.
    pub writable: bool,
    /// Whether the sender has a seat in a group that owns segments, or is about to have one.
    pub seated: bool,
}

/// The answer to a beat: the logs whose lease it extends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeatAck {
    /// From the beat.
    pub sent: Micros,
    /// The sender of this answer follows these ballots and will promise no other for one lease.
    pub follows: Vec<(LogId, Ballot)>,
    /// Of these, the logs of which it is fetching a snapshot, from whomever: it is given none of
    /// them (G32).
    pub behind: Vec<LogId>,
    /// Logs in which it has promised a higher ballot.
    pub deposed: Vec<(LogId, Ballot)>,
    /// Of the groups whose own logs the beat's sender leads, where the nearest to a quorum is to:
    /// the round trip from the sender of this answer to its nearest quorum, microseconds.
    pub distances: Vec<(GroupId, Micros)>,
    /// The version of the sender's catalogue.
    pub catalogue: u64,
}

impl From<ledger::Message> for Message {
    fn from(m: ledger::Message) -> Message {
        Message::Ledger(m)
    }
}

impl From<records::Message> for Message {
    fn from(m: records::Message) -> Message {
        Message::Records(m)
    }
}

impl From<ring::Message> for Message {
    fn from(m: ring::Message) -> Message {
        Message::Ring(m)
    }
}

impl From<register::Message> for Message {
    fn from(m: register::Message) -> Message {
        Message::Register(m)
    }
}

impl From<lock::Message> for Message {
    fn from(m: lock::Message) -> Message {
        Message::Lock(m)
    }
}

impl From<coordinator::Message> for Message {
    fn from(m: coordinator::Message) -> Message {
        Message::Coordinator(m)
    }
}
