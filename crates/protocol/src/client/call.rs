//! What a driver says to a session and what it is told.

use crate::base::{
    KeyId, Keyspace, KeyspaceId, Label, LockRef, Micros, Planted, SessionId, Tag, Timestamp,
};
use crate::catalogue::Access;
use crate::ledger::{Found, Part, Transaction, Verdict, When};
use crate::registry::Newcomer;
use crate::request::{
    Admitted, Entered, Held, Inspection, Mode, NodeStatus, QueueEntry, Refusal, Request,
    RingChange, RingStatus,
};
use crate::settings::Setting;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::RangeInclusive;

/// The driver's name for one user operation; never reused while that operation is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The session's name for one section; never reused in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionId(pub u64);

/// A node as the driver can reach it: an index into the driver's own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(pub u32);

/// What became of a transmission whose connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// It certainly never left: there was no connection.
    NotSent,
    /// It may have been received.
    Broken,
}

/// How patient a session is. All durations in microseconds.
#[derive(Clone, Debug)]
pub struct Options {
    /// An operation that has no final answer after this fails as `Unavailable`. An enter that
    /// has a place in the queue may take its `wait` in addition.
    pub request: Micros,
    /// A transmission without any answer for this long is repeated at another endpoint.
    pub attempt: Micros,
    /// First pause before a refused transmission is repeated; doubles up to `backoff_max`.
    pub backoff: Micros,
    /// See `backoff`.
    pub backoff_max: Micros,
    /// An endpoint that failed is chosen last for this long.
    pub suspicion: Micros,
    /// Before a section's lease is known, it is renewed as if it were this long.
    pub assumed_lease: Micros,
    /// A leave waits so long for the section's writes in flight, to be clean; then it is dirty.
    pub leave_grace: Micros,
    /// Bound on the rate error of the boot-time clock, parts per million (F10: leases are shortened
    /// by it).
    pub drift_ppm: u64,
    /// Whether a get under a valid lease is answered from memory. Needs a clock within `drift_ppm`.
    /// Without, no value is kept.
    pub cached_gets: bool,
    /// Operations open at once; more are refused as `Busy`.
    pub open: usize,
    /// Whether a node that does not know a keyspace has asked the catalogue's keeper before it says
    /// so: then no other node is asked.
    pub keyspaces_are_looked_up: bool,
    /// What people see of its sections in the queues.
    pub label: Label,
    /// What is wrong on purpose: nothing, outside the simulator's tests.
    pub planted: Planted,
}

impl Options {
    /// The options of a session that a node keeps for a client which keeps none itself: its only
    /// endpoint is the node, which knows its keyspaces, and values stay out of the node's memory.
    #[must_use]
    pub fn hosted(self) -> Options {
        Options {
            open: 256,
            cached_gets: false,
            keyspaces_are_looked_up: true,
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            request: 30_000_000,
            attempt: 3_000_000,
            backoff: 50_000,
            backoff_max: 1_000_000,
            suspicion: 2_000_000,
            assumed_lease: 3_000_000,
            leave_grace: 1_000_000,
            drift_ppm: 1_000,
            cached_gets: true,
            open: 65_536,
            keyspaces_are_looked_up: false,
            label: Label::NONE,
            planted: Planted::NONE,
        }
    }
}

/// One user operation. Refusals that any of them can get: `Unavailable`, `Busy`, `BadRequest`,
/// `NoSuchKeyspace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Enter a section (MUSIC `createLockRef` and `acquireLock`). Answers [`Success::Entered`];
    /// with a `wait` of 0 perhaps [`Success::Waiting`], after which [`Call::Poll`] asks again.
    Enter {
        /// At least one; repetitions count once.
        keys: Vec<KeyId>,
        /// Exclusive or shared.
        mode: Mode,
        /// Give up (`WaitOver`) after this long, microseconds; 0 does not wait.
        wait: Micros,
        /// How long the section survives the client's silence, microseconds; none takes the
        /// keyspace's lease.
        lease: Option<Micros>,
    },
    /// Ask again for a section that waits since [`Success::Waiting`]. Where nobody can say how it
    /// stands (`Unavailable`, `Busy`), it waits on, to be polled again.
    Poll {
        /// The section.
        section: SectionId,
    },
    /// Go on in a section without its counter, or take it over: a new generation (F16).
    /// Answers [`Success::Entered`].
    Resume {
        /// All keys of the section.
        held: Vec<Held>,
        /// The session that it is of: the driver knows its secret.
        of: SessionId,
    },
    /// Do nothing more in a section, and leave its place to whoever resumes it, who then need not
    /// wait for its lease. Answers [`Success::Done`] once that was said, or that it may not have
    /// been (`Unavailable`): then the resumption waits. The section takes no more operations, and
    /// is refused (`Busy`) while it has some open.
    Relinquish {
        /// The section.
        section: SectionId,
    },
    /// The latest value of a held key (MUSIC `criticalGet`).
    CriticalGet {
        /// The section.
        section: SectionId,
        /// One of its keys.
        key: KeyId,
    },
    /// A write of a held key (MUSIC `criticalPut`).
    CriticalPut {
        /// The section.
        section: SectionId,
        /// One of its keys.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// A write, and the section's end with it. Answers [`Success::Left`]. Whatever the answer, the
    /// section is over.
    PutAndLeave {
        /// The section.
        section: SectionId,
        /// One of its keys.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Leave a section (MUSIC `releaseLock`), after its operations issued so far. Retried in the
    /// background; the section takes no more operations.
    Leave {
        /// The section.
        section: SectionId,
        /// Whether the answer waits until the leave is agreed; else it comes at once.
        wait: bool,
    },
    /// Eventual read (MUSIC `get`).
    Get {
        /// The key.
        key: KeyId,
    },
    /// Eventual write (MUSIC `put`): takes effect at most once. It is not sent again once it may
    /// have reached a node.
    Put {
        /// The key.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Linearizable read.
    Read {
        /// The key.
        key: KeyId,
    },
    /// Linearizable write.
    Write {
        /// The key.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// End somebody's section (MUSIC `forcedRelease`).
    Release {
        /// The key.
        key: KeyId,
        /// The ref to end.
        lock_ref: LockRef,
    },
    /// Keys in order.
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
    /// A key's lock queue.
    Queue {
        /// The key.
        key: KeyId,
    },
    /// See [`Operation::Transact`](crate::Operation::Transact). Answers [`Success::Transacted`].
    Transact(Transaction),
    /// See [`Operation::Resolve`](crate::Operation::Resolve). Answers [`Success::Resolved`].
    Resolve {
        /// A key that it names.
        key: KeyId,
        /// The number of its request.
        number: u64,
    },
    /// See [`Operation::Snapshot`](crate::Operation::Snapshot). Answers [`Success::Snapshot`].
    Snapshot {
        /// What.
        parts: Vec<Part>,
        /// Which moment.
        when: When,
    },
    /// What one replica holds of a key.
    Inspect {
        /// The key.
        key: KeyId,
        /// Which node is asked; none: any.
        at: Option<Endpoint>,
    },
    /// Create a keyspace; its id in the argument is ignored.
    CreateKeyspace(Keyspace),
    /// See [`Operation::ChangeKeyspace`](crate::Operation::ChangeKeyspace).
    ChangeKeyspace {
        /// Which.
        keyspace: KeyspaceId,
        /// The lease from now on, microseconds; none: as it is.
        lease: Option<Micros>,
        /// The longest section, microseconds; none: as it is.
        section_max: Option<Micros>,
    },
    /// See [`Operation::DeleteKeyspace`](crate::Operation::DeleteKeyspace).
    DeleteKeyspace {
        /// Which.
        keyspace: KeyspaceId,
    },
    /// See [`Operation::ChangeAccess`](crate::Operation::ChangeAccess).
    ChangeAccess {
        /// The version of the policy that it is to follow.
        after: u64,
        /// The policy.
        policy: Bytes,
    },
    /// The access policy, with every change that was answered before.
    Access,
    /// See [`Operation::ChangeSettings`](crate::Operation::ChangeSettings).
    ChangeSettings(Setting),
    /// See [`Operation::Admit`](crate::Operation::Admit). Answers [`Success::Admitted`].
    Admit {
        /// Who asks.
        newcomer: Newcomer,
        /// The formats that its program reads.
        formats: RangeInclusive<u16>,
    },
    /// See [`Operation::ChangeRing`](crate::Operation::ChangeRing).
    ChangeRing(RingChange),
    /// Who is in the cluster, and where its groups are, as a node knows it.
    Ring,
    /// The catalogue.
    Keyspaces,
    /// The state of one node.
    Status {
        /// Which; none: any.
        at: Option<Endpoint>,
    },
}

/// The good end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Success {
    /// In the section.
    Entered {
        /// Its name.
        section: SectionId,
        /// Every key with its latest value.
        keys: Vec<Entered>,
    },
    /// In the queue; the session keeps the place alive until polled or left.
    Waiting {
        /// Its name.
        section: SectionId,
        /// Its refs so far, in key order.
        held: Vec<Held>,
        /// Refs ahead.
        ahead: u32,
    },
    /// A value, or none.
    Value {
        /// None: absent or deleted.
        value: Option<Bytes>,
        /// Its tag, where a node answered.
        tag: Option<Tag>,
    },
    /// Done, durable as the operation promises.
    Done {
        /// The write's tag, where there is one.
        tag: Option<Tag>,
    },
    /// The section is left (for a leave that is not waited for: will be).
    Left,
    /// Keys in order.
    Keys(Vec<Bytes>),
    /// A key's lock queue, head first.
    Queue {
        /// The entries.
        entries: Vec<QueueEntry>,
        /// Whether the next holder must synch.
        flag: Option<u64>,
    },
    /// A transaction was carried out: [`Verdict::Done`].
    Transacted(Verdict),
    /// What came of a transaction.
    Resolved(Verdict),
    /// Keys and ranges as they were at a moment.
    Snapshot {
        /// The moment.
        at: Timestamp,
        /// One for each part.
        found: Vec<Found>,
    },
    /// What one replica holds of a key.
    Inspect(Inspection),
    /// The catalogue.
    Keyspaces(Vec<Keyspace>),
    /// The access policy.
    Access(Access),
    /// A node's state.
    Status(Box<NodeStatus>),
    /// A data directory has its name.
    Admitted(Box<Admitted>),
    /// The ring.
    Ring(Box<RingStatus>),
}

/// Why a section is over although its holder did not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostReason {
    /// The primary said, by push or to a heartbeat, that the ref has left the queue: the lease ran
    /// out, the section reached its longest time, or somebody released it by force.
    Gone,
    /// A critical operation was refused because the ref, or its generation, is past.
    Refused,
    /// The keyspace of one of its keys was deleted.
    Deleted,
    /// Whoever holds it may not any more: the cluster has said so, and would renew no lease.
    Denied,
}

/// What the driver must do or tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Send the request, and hand in every reply to it with its number.
    Send {
        /// To whom.
        endpoint: Endpoint,
        /// What.
        request: Request,
    },
    /// Nobody listens any more to this request at that endpoint.
    Close {
        /// Where it was sent.
        endpoint: Endpoint,
        /// Its number.
        number: u64,
    },
    /// The operation has ended; its ticket is free.
    Done {
        /// Which.
        ticket: Ticket,
        /// How.
        result: Result<Success, Refusal>,
    },
    /// The enter of this ticket waits in the queue.
    Queued {
        /// Which.
        ticket: Ticket,
        /// Refs ahead on the key waited for.
        ahead: u32,
    },
    /// The section is over. Operations not yet sent are refused; those in flight end by themselves.
    SectionLost {
        /// Which.
        section: SectionId,
        /// Why.
        reason: LostReason,
    },
    /// The section's lease has run out by this client's clock: others may end it now. Operations go
    /// on and are safe; only cached gets stop until a renewal comes through.
    LeaseExpired {
        /// Which.
        section: SectionId,
    },
}
