//! What a client asks of a node and what it is told: the vocabulary of every face (gRPC, REST, the
//! command line), of the client's session machine, and of the simulator's workloads.
//!
//! A request is identified by `(session, number)`. Sending it again, to any node, is safe if it
//! says so (`attempt`): a command takes effect once, a critical write keeps its tag (MUSIC §III-B),
//! and a write of a register, which nobody would know again, is refused (G19). An eventual put is
//! not sent again once it may have arrived (G16).

use crate::base::{
    Addresses, Cluster, Epoch, EventualTag, GroupId, KeyId, Keyspace, KeyspaceId, Label, LockRef,
    Micros, NodeName, Reach, SegmentId, SessionId, SiteId, Tag, Timestamp,
};
use crate::catalogue::{Access, Catalogue};
use crate::ledger::{Found, Part, Transaction, Verdict, When};
use crate::register::{Tally, UpkeepCounts};
use crate::registry::{Newcomer, Registry, Standing};
use crate::settings::{Setting, Settings};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::RangeInclusive;
use serde::{Deserialize, Serialize};

pub(crate) use crate::refusal::before_this;
pub use crate::refusal::{Code, Refusal};

/// One request of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Who asks.
    pub session: SessionId,
    /// Grows with every request of the session; a retry repeats it.
    pub number: u64,
    /// Which transmission this is, of those that may have an effect: 0 as long as every earlier one
    /// certainly has none, else at least 1. A write of a register is not done for a repetition.
    pub attempt: u32,
    /// Every request of the session up to this number has its answer: nobody will retry it.
    pub answered_through: u64,
    /// The client's site, for queue listings and placement.
    pub site: SiteId,
    /// What is asked.
    pub operation: Operation,
}

/// Exclusive or shared (MUSIC as ONAP offers it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of readers together; no writes.
    Shared,
}

/// One key of a section, as its holder names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// The key.
    pub key: KeyId,
    /// The section's lock ref on it.
    pub lock_ref: LockRef,
    /// How often the section was resumed: 0 at first.
    pub generation: u32,
}

/// How a leaving holder left one key (F5: clean if its highest write was acknowledged).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Leaving {
    /// The write with the highest sequence number issued on the key in this section was
    /// acknowledged by a quorum: here is its tag, none where nothing was written.
    Clean(Option<Tag>),
    /// Some later write was not acknowledged, or it is not known: the next holder must synch.
    Dirty,
}

/// A critical operation on one held key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Critical {
    /// The latest value.
    Get,
    /// The `number`-th write of the section, over all its keys, from 1. `None` deletes.
    Put {
        /// The client's sequence number; a retry repeats it.
        number: u64,
        /// The new value, or none for a delete.
        value: Option<Bytes>,
    },
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Enter a section over one or more keys of section keyspaces. Answers: [`Reply::Queued`] any
    /// number of times, then [`Reply::Entered`] or a refusal. Repeating the request polls it.
    Enter {
        /// All or none; the node locks them in (address, keyspace, key) order.
        keys: Vec<KeyId>,
        /// Exclusive or shared.
        mode: Mode,
        /// Give up after this long; 0 answers with the first `Queued`, and leaves the ref waiting.
        wait: Micros,
        /// Keep the request open after `Entered`, to be told [`Reply::Lost`].
        follow: bool,
        /// How long a silent holder keeps the section; none takes the keyspace's lease.
        lease: Option<Micros>,
        /// The request may be repeated, here or at another node, although this transmission is
        /// closed. Without, closing it before the entry gives up the wait (G6: who may return may
        /// hold elsewhere).
        may_return: bool,
        /// What people see in the queue.
        label: Label,
    },
    /// One operation inside a section.
    Critical {
        /// The key operated on.
        held: Held,
        /// What to do.
        operation: Critical,
        /// Leave these keys once the put has its quorum; dirty if it fails (`put_and_leave`). The
        /// entry of `held.key` is ignored: the put decides it. Empty: do not leave.
        leave: Vec<(Held, Leaving)>,
    },
    /// Leave a section.
    Leave {
        /// All keys of the section, each with how it was left.
        keys: Vec<(Held, Leaving)>,
    },
    /// Keep waiting refs and held sections alive (F10). Any node relays; the primary
    /// grants.
    Renew {
        /// Live refs.
        held: Vec<Held>,
    },
    /// Give back the leases of sections that were entered: their client does nothing more in them,
    /// and whoever resumes them need not wait for it (G14). Their places in the queues stay for
    /// another lease. Answers like `Renew`.
    Relinquish {
        /// Refs in which nothing is open.
        held: Vec<Held>,
    },
    /// Go on in a section without its counter, or take it over: a new generation (F16).
    /// Answers like `Enter`.
    Resume {
        /// All keys of the section.
        held: Vec<Held>,
        /// Whose section it is so far: another's is not resumed (G49). Clients prove it by the
        /// session's secret.
        of: SessionId,
    },
    /// End somebody's section, or remove a waiting ref (MUSIC `forcedRelease`).
    Release {
        /// The key.
        key: KeyId,
        /// The ref to end.
        lock_ref: LockRef,
    },
    /// Eventual read at one replica, in a section keyspace.
    Get {
        /// The key.
        key: KeyId,
    },
    /// Eventual write at one replica, in a section keyspace; refused while the key is locked.
    Put {
        /// The key.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Linearizable read: of a register, or the critical value in a section keyspace by a section
    /// of its own.
    Read {
        /// The key.
        key: KeyId,
    },
    /// Linearizable write: of a register, or in a section keyspace as a section of its own (MUSIC's
    /// CP put).
    Write {
        /// The key.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Keys of a keyspace in order, as one replica of each group knows them: may be stale.
    Keys {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Only keys that start so.
        prefix: Bytes,
        /// Only keys above this.
        after: Option<Bytes>,
        /// At most so many.
        limit: u32,
    },
    /// A key's lock queue, from the primary's memory under its lease.
    Queue {
        /// The key.
        key: KeyId,
    },
    /// A transaction on keys of a ledger, all of one segment: [`Reply::Transacted`].
    Transact(Transaction),
    /// What came of the transaction that this session asked for under a number, on the segment of a
    /// key: [`Reply::Resolved`]. If it was not done by now, it never is.
    Resolve {
        /// A key that it names.
        key: KeyId,
        /// The number of its request.
        number: u64,
    },
    /// Keys and ranges of a ledger as they were at one moment: [`Reply::Snapshot`].
    Snapshot {
        /// What.
        parts: Vec<Part>,
        /// Which moment.
        when: When,
    },
    /// What this node's replica holds of a key: for support.
    Inspect {
        /// The key.
        key: KeyId,
    },
    /// Create a keyspace; its id in the argument is ignored.
    CreateKeyspace(Keyspace),
    /// Change a keyspace for whoever enters from now on: who holds or waits keeps its terms.
    ChangeKeyspace {
        /// Which.
        keyspace: KeyspaceId,
        /// The lease from now on, microseconds; none: as it is.
        lease: Option<Micros>,
        /// The longest section, microseconds; none: as it is.
        section_max: Option<Micros>,
    },
    /// Delete a keyspace and all that is in it. Its id, and what was under it, never comes back.
    DeleteKeyspace {
        /// Which.
        keyspace: KeyspaceId,
    },
    /// Replace the access policy, if the present one is that of the change `after`.
    ChangeAccess {
        /// [`Access::version`] as whoever asks has read it.
        after: u64,
        /// At most [`POLICY_MAX`](crate::catalogue::POLICY_MAX) bytes.
        policy: Bytes,
    },
    /// The access policy, with every change that was answered before.
    Access,
    /// Change what all nodes count alike: begun once this is answered, and over when every node
    /// knows ([`NodeStatus::settings`]).
    ChangeSettings(Setting),
    /// Give a new data directory a name.
    Admit {
        /// Who asks.
        newcomer: Newcomer,
        /// The formats that its program reads.
        formats: RangeInclusive<u16>,
    },
    /// Change who is in the cluster, or who has a seat in a group.
    ChangeRing(RingChange),
    /// Who is in the cluster, and where its groups are, as this node knows it, or its members told
    /// it just now.
    Ring,
    /// The catalogue as this node knows it.
    Keyspaces,
    /// The catalogue as its keeper knows it: with every creation, change and deletion that was
    /// answered before.
    Catalogue,
    /// This node's state: for support.
    Status,
}

/// What is to be another, of who is in the cluster and has a seat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingChange {
    /// A group goes on with these members: with others than it has now it moves its values to them.
    /// Begun once this is answered, and over when the group has no earlier stores ([`RingGroup`]).
    Members {
        /// The group.
        group: GroupId,
        /// Its epoch, as whoever asks knows it: refused where it has gone on since.
        after: Epoch,
        /// Its members from then on, in the order of their seats.
        members: Vec<NodeName>,
        /// A member is lost: nobody waits for the values of two earlier epochs.
        pressing: bool,
    },
    /// A node hands over what it leads and is to lead nothing, or may lead again.
    Drain {
        /// Which.
        name: NodeName,
        /// Whether it does.
        drains: bool,
    },
    /// A node is reached elsewhere.
    Readdress {
        /// Which.
        name: NodeName,
        /// Where.
        addresses: Addresses,
    },
    /// A node is heard no more, for good. Refused for one that a group needs, unless it is lost.
    Dismiss {
        /// Which.
        name: NodeName,
        /// Its disk is lost with all that was there alone.
        lost: bool,
    },
}

/// An answer. All but `Queued`, `Stalled` and `Entered { follow }` end the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Waiting; told again when the position changes much or on every poll.
    Queued {
        /// The refs given so far: all keys of the segments entered and the one waited for.
        held: Vec<Held>,
        /// Refs ahead on the key waited for.
        ahead: u32,
    },
    /// As things are it cannot be done, or the lock not be granted: too few of the keys' members
    /// are in reach. Told again as long as it is so; `Queued` takes it back.
    Stalled {
        /// One sentence, which the request's refusal would say.
        why: String,
    },
    /// In the section.
    Entered {
        /// Every key, with its latest value as far as it fits the answer (see [`EntryValue`]).
        keys: Vec<Entered>,
        /// Lease, microseconds, counted from when the client first sent this request.
        lease: Micros,
    },
    /// The section is over: preempted, expired or left.
    Lost {
        /// The key that ended it.
        held: Held,
    },
    /// A value, or none.
    Value {
        /// None: absent or deleted.
        value: Option<Bytes>,
        /// Its tag (zero for a value of the eventual cell).
        tag: Tag,
    },
    /// Done, durable as the operation promises.
    Done {
        /// The write's tag, where there is one.
        tag: Option<Tag>,
    },
    /// `put_and_leave`: the put has its quorum and the leave is agreed.
    Left,
    /// The state of each ref asked for, in the order asked.
    Renewed {
        /// One per ref.
        states: Vec<RefState>,
    },
    /// Keys in order.
    Keys(Vec<Bytes>),
    /// A key's lock queue, head first.
    Queue {
        /// The entries.
        entries: Vec<QueueEntry>,
        /// Whether the next holder must synch: the position of the command that said so.
        flag: Option<u64>,
    },
    /// A transaction was carried out: [`Verdict::Done`].
    Transacted(Verdict),
    /// What came of a transaction.
    Resolved(Verdict),
    /// Keys and ranges as they were.
    Snapshot {
        /// At this moment.
        at: Timestamp,
        /// One for each part; with `more` where an answer holds no more: what is above the last key
        /// is read at the same moment.
        found: Vec<Found>,
    },
    /// What one replica holds of a key.
    Inspect(Inspection),
    /// The catalogue.
    Keyspaces(Vec<Keyspace>),
    /// The access policy.
    Access(Access),
    /// The node's state.
    Status(Box<NodeStatus>),
    /// A data directory has its name.
    Admitted(Box<Admitted>),
    /// The ring.
    Ring(Box<RingStatus>),
    /// Refused or failed.
    Refused(Refusal),
}

/// One key at entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entered {
    /// The key and its ref.
    pub held: Held,
    /// The latest value.
    pub value: EntryValue,
}

/// The latest value of a key as a grant, or an entry's answer, carries it.
///
/// A section may have many keys with large values, and a message has a bound
/// ([`Limits::grant`](crate::base::Limits::grant)): a value that does not fit is left out, and the
/// holder reads it by a critical get, which finds the same value, since only the holder changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryValue {
    /// There is none: never written, or deleted.
    Absent,
    /// The value.
    Value(Bytes),
    /// There may be one: it did not fit the message. To be read by a critical get.
    Omitted,
}

impl EntryValue {
    /// The value, where it is known; `Some(None)` where it is known that there is none.
    pub fn known(&self) -> Option<Option<&Bytes>> {
        match self {
            EntryValue::Absent => Some(None),
            EntryValue::Value(value) => Some(Some(value)),
            EntryValue::Omitted => None,
        }
    }

    /// Whether it did not fit.
    pub fn is_omitted(&self) -> bool {
        matches!(self, EntryValue::Omitted)
    }

    /// Takes the value's bytes out of `room`, or leaves the value out where they do not fit.
    #[must_use]
    pub(crate) fn within(self, room: &mut usize) -> EntryValue {
        match &self {
            EntryValue::Value(value) if value.len() > *room => EntryValue::Omitted,
            EntryValue::Value(value) => {
                *room -= value.len();
                self
            }
            EntryValue::Absent | EntryValue::Omitted => self,
        }
    }
}

impl From<Option<Bytes>> for EntryValue {
    fn from(value: Option<Bytes>) -> EntryValue {
        value.map_or(EntryValue::Absent, EntryValue::Value)
    }
}

/// What the primary says of one ref.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefState {
    /// Waiting behind so many.
    Queued {
        /// Refs ahead.
        ahead: u32,
    },
    /// Holding, with a lease of so many microseconds from when the client sent the request; 0 when
    /// the section has reached its maximum length and will not be renewed.
    Holding {
        /// Microseconds.
        lease: Micros,
    },
    /// Not in the queue: never was, left, or released.
    Gone,
    /// The keyspace of its key was deleted.
    Deleted,
    /// The primary could not be reached: nothing is known.
    Unknown,
    /// Whoever asks may not hold it any more: the node that was asked says so, and renews nothing.
    Denied,
}

/// One waiting or holding ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// The ref.
    pub lock_ref: LockRef,
    /// How often resumed.
    pub generation: u32,
    /// Whose.
    pub session: SessionId,
    /// Exclusive or shared.
    pub mode: Mode,
    /// The client's site.
    pub site: SiteId,
    /// Wall clock of the primary when it took the command, microseconds since 1970. For people.
    pub since: u64,
    /// Whether it holds the key now.
    pub holds: bool,
    /// What its client calls itself.
    pub label: Label,
}

/// One replica's cells of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// The replica.
    pub node: NodeName,
    /// The key's segment.
    pub segment: SegmentId,
    /// The epoch of its registers.
    pub epoch: Epoch,
    /// Tag of the critical or register cell.
    pub tag: Tag,
    /// Below this tag it refuses writes.
    pub fence: Tag,
    /// Bytes of the value; none: absent or deleted.
    pub bytes: Option<u64>,
    /// Tag of the eventual cell, if any.
    pub eventual: Option<EventualTag>,
    /// Commands of the segment's history that it has applied.
    pub applied: u64,
}

/// One node's view of one log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Empty for the group's own log.
    pub segment: Option<SegmentId>,
    /// The epoch.
    pub epoch: Epoch,
    /// Who leads, as far as this node knows.
    pub primary: Option<NodeName>,
    /// Slots chosen and applied here.
    pub applied: u64,
    /// Commands in the whole history.
    pub commands: u64,
    /// Keys with a queue or a flag.
    pub busy_keys: u64,
}

/// What a node makes of its interval clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClockState {
    /// Its machine gives no bound on the clock's error.
    #[default]
    Absent,
    /// The bound is too large to be trusted.
    TooWide,
    /// Some time ago a peer's clock, or an earlier reading of its own, contradicted it.
    Violated,
    /// It is relied on.
    Trusted,
}

impl ClockState {
    /// All, in order.
    pub const ALL: [ClockState; 4] = [
        ClockState::Absent,
        ClockState::TooWide,
        ClockState::Violated,
        ClockState::Trusted,
    ];

    /// Its stable name on every face.
    pub fn name(self) -> &'static str {
        match self {
            ClockState::Absent => "absent",
            ClockState::TooWide => "too_wide",
            ClockState::Violated => "violated",
            ClockState::Trusted => "trusted",
        }
    }

    /// What it means, for people.
    pub fn sentence(self) -> &'static str {
        match self {
            ClockState::Absent => {
                "no interval clock: the machine gives no bound on its clock's error; \
                 linearizable writes take two round trips"
            }
            ClockState::TooWide => {
                "no interval clock: the bound on the clock's error is above 1 s; \
                 linearizable writes take two round trips"
            }
            ClockState::Violated => {
                "the interval clock is given up: a clock was further off than its bound; \
                 linearizable writes take two round trips until 17 minutes after the last sign of \
                 it, or a restart"
            }
            ClockState::Trusted => {
                "interval clock: linearizable writes of coded keyspaces take one round trip"
            }
        }
    }
}

/// A node's interval clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// Whether it is relied on.
    pub state: ClockState,
    /// The bound on its error of the last reading, microseconds, relied on or not; none: the
    /// machine gives none.
    pub bound: Option<Micros>,
    /// Proofs that some clock was beyond its bound, since the node's start, at most one per beat.
    pub violations: u64,
    /// While violated: the node whose clock contradicts this one's, which of the two is wrong is
    /// not known; none: this node's own clock was stepped.
    pub against: Option<NodeName>,
}

/// One node's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeName,
    /// What people call it.
    pub label: String,
    /// Its site.
    pub site: SiteId,
    /// Whether its disk takes writes.
    pub writable: bool,
    /// Its interval clock.
    pub clock: ClockStatus,
    /// Peers heard within the last lease.
    pub alive: Vec<NodeName>,
    /// Its logs.
    pub logs: Vec<LogStatus>,
    /// Requests open here.
    pub requests: u64,
    /// Members of each group of the cluster: what a storage policy must fit.
    pub group_sizes: Vec<u8>,
    /// The durations that all nodes count alike, as it knows them; none with another engine.
    pub settings: Option<Settings>,
    /// What it stores of each keyspace, in the order of the catalogue.
    pub storage: Vec<StorageStatus>,
    /// What it has done for its registers since it started.
    pub upkeep: Box<UpkeepStatus>,
    /// What it moves out of earlier stores.
    pub moving: MovingStatus,
    /// Connections that it has refused or ended since it started; whoever has the sockets tells it.
    pub closed: Box<[ClosedStatus]>,
    /// Sessions that it keeps for clients, MUSIC's locks included; whoever keeps them tells it.
    pub sessions: u64,
    /// How its connections are secured; whoever has the sockets tells it.
    pub security: SecurityStatus,
    /// The version of its program; whoever answers for it tells it.
    pub version: String,
    /// Sections that are long in the queues of segments which it leads, the first
    /// [`HeldStatus::MOST`]; for whoever watches the node, and not told to clients.
    pub held: Box<[HeldStatus]>,
}

/// How the connections of one node are secured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityStatus {
    /// They are over TLS; else in clear.
    pub tls: bool,
    /// It listens beyond loopback in clear.
    pub exposed: bool,
    /// Seconds until a certificate that it uses, or an authority, is over; below zero it is.
    pub ends_in: Option<i64>,
}

/// A ref that holds its keys of one segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStatus {
    /// The keyspace of its first key.
    pub keyspace: String,
    /// Its first key.
    pub key: Bytes,
    /// The ref.
    pub lock_ref: LockRef,
    /// Its client's site.
    pub site: SiteId,
    /// What its client calls itself.
    pub label: Label,
    /// Wall clock of the primary when it was enqueued, microseconds since 1970.
    pub since: u64,
}

impl HeldStatus {
    /// So many of a node are told at most, whoever holds what: the first of each segment, and of
    /// these those that were enqueued first.
    pub const MOST: usize = 20;
    /// How long ago one was enqueued that is told, microseconds. Those that come and go are no
    /// news, and would be forgotten names in whatever keeps them.
    pub const LONG: Micros = 10_000_000;
}

/// Connections that one node has refused or ended for one cause, since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedStatus {
    /// Where: `peer`, between nodes; `grpc` or `rest`, of clients.
    pub face: String,
    /// Why, in a stable word.
    pub cause: String,
    /// The same in a sentence.
    pub detail: String,
    /// How many.
    pub count: u64,
    /// How long ago the last one was.
    pub last: Micros,
    /// Who was at its other end: `node` and its number, or an address; empty: not known.
    pub who: String,
}

/// What one node stores of one keyspace, as of its last walk over its stores, and whether the
/// keyspace has its quorum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageStatus {
    /// The keyspace's name.
    pub keyspace: String,
    /// What is there, and what the storage policy's formula gives.
    pub at_rest: Tally,
    /// How many members the node is in touch with, now, in the group that is the nearest to losing
    /// the keyspace's quorum; none: not told.
    pub reach: Option<Reach>,
}

/// What a node has done for its registers since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpkeepStatus {
    /// How long ago the last walk over all stores was completed; none yet.
    pub walked: Option<Micros>,
    /// Of the walk.
    pub upkeep: UpkeepCounts,
    /// Damaged records rebuilt from the others' parts.
    pub rebuilt: u64,
    /// Answers that were void because a record was damaged.
    pub voids: u64,
}

/// What a node moves out of earlier stores of the segments that it leads, as of its last beat. All
/// is zero where there are none, or nobody needs anything of them any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovingStatus {
    /// Earlier stores whose keys have not all moved.
    pub stores: u32,
    /// How long keys have been moving, or did until all had, microseconds.
    pub took: Micros,
    /// Keys that have moved in that time, or were seen to have moved before.
    pub keys: u64,
    /// Bytes of their values, each counted whole and once.
    pub bytes: u64,
    /// About how many keys have yet to move; none: that cannot be told.
    pub keys_left: Option<u64>,
}

/// What a node that has just been admitted begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Its name.
    pub name: NodeName,
    /// What the cluster began with.
    pub cluster: Cluster,
    /// Who is in it, as the node that answers knows it: it may not know the newcomer yet.
    pub registry: Registry,
    /// The keyspaces and the access policy, as that node knows them: a newcomer that knew of none
    /// would let everybody in.
    pub catalogue: Catalogue,
}

/// Who is in the cluster, and where its groups are, as one node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingStatus {
    /// The node that says so.
    pub node: NodeName,
    /// How often the cluster has changed who is in it, as far as it knows.
    pub version: u64,
    /// No group has fewer members.
    pub least: u8,
    /// All nodes that are there; those that were given up while a group needs something of them;
    /// and the last ones that have left.
    pub nodes: Vec<RingNode>,
    /// All groups, by their arcs; the meta-group, which owns no segment, first.
    pub groups: Vec<RingGroup>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingNode {
    /// Its number.
    pub name: NodeName,
    /// What people call it; empty for one that is gone for long.
    pub label: String,
    /// The name of its site.
    pub site: String,
    /// Whether it is in the cluster.
    pub standing: Standing,
    /// It hands over what it leads.
    pub drains: bool,
    /// Where it is reached.
    pub addresses: Addresses,
    /// Whether the node that says so has heard it within a lease.
    pub heard: bool,
    /// It has said last that its disk has no room.
    pub full: bool,
    /// How long before it says so it has heard it for the last time; none: not since its start.
    pub last_heard: Option<Micros>,
}

/// A group and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingGroup {
    /// Which; that of number 0 is the meta-group.
    pub id: GroupId,
    /// The first segment of its arc; above `to` where it has none.
    pub from: SegmentId,
    /// The last segment, included.
    pub to: SegmentId,
    /// The epoch of its logs.
    pub epoch: Epoch,
    /// Its members, by seat.
    pub members: Vec<NodeName>,
    /// Who leads its log, as far as is known; none, where the node that says so has no seat there.
    pub leader: Option<NodeName>,
    /// Segments whose log of this epoch is not known to have an entry yet.
    pub unstarted: u32,
    /// The earlier stores that somebody may still need something of, oldest first.
    pub sources: Vec<RingSource>,
}

/// Earlier stores of a group, of one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSource {
    /// Their epoch.
    pub epoch: Epoch,
    /// Who has them, by seat.
    pub members: Vec<NodeName>,
    /// Segments of which some keys may not have moved.
    pub open: u32,
    /// Members that have yet to give on eventual values, each with the segments in which.
    pub owed: Vec<(NodeName, u32)>,
}
