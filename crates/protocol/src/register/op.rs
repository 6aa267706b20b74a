//! What can be asked of the caller, and how it ends.

use super::is_synch;
use super::message::{Holder, StoreId};
use crate::base::{
    Epoch, EventualTag, KeyId, LockRef, Seat, SegmentId, SessionId, Shape, StoragePolicy, Tag, View,
};
use crate::io::Env;
use crate::request::Inspection;
use alloc::vec::Vec;
use bytes::Bytes;

/// The name of one operation at its caller; never reused while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Whose an operation is. It comes back with the end, so that nobody else keeps a table of what is
/// under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A task of the node's coordinator.
    Task(u64),
    /// The primary of a segment, about this key.
    Primary(SegmentId, KeyId, Errand),
    /// The upkeep of registers: nobody waits.
    Upkeep,
    /// What moves a key from this earlier store.
    Mover(StoreId, KeyId),
}

/// What a primary starts an operation for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// A value read while this enqueue is being agreed, by session and number.
    Ahead((SessionId, u64)),
    /// The grant of a ref.
    Grant(LockRef),
    /// Settling a key in the name of the front of its batch of readers, with the flag it clears.
    Front(LockRef, Option<u64>),
}

/// Where an operation goes: one segment at one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The store.
    pub store: StoreId,
    /// The members; its epoch is the store's.
    pub view: View,
    /// Seats to ask, nearest first; seats left out come after.
    pub order: Vec<Seat>,
    /// How the keyspace stores values.
    pub storage: StoragePolicy,
    /// Earlier stores of the segment that may have what this one lacks.
    pub sources: Vec<Source>,
}

impl Place {
    /// Quorums and codes here.
    pub fn shape(&self) -> Shape {
        super::shape_in(self.storage, &self.view)
    }

    /// Whether the node at this seat was no member of an open source: it cannot tell of a key that
    /// has not moved.
    pub(super) fn is_stranger(&self, seat: Seat) -> bool {
        let node = self.view.node_at(seat);
        let was = |source: &Source| node.is_some_and(|node| source.view.seat_of(node).is_some());
        !self.sources.iter().all(was)
    }
}

/// An open source of a store: some keys may not have moved from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The earlier store.
    pub store: StoreId,
    /// Who its members are, and which seats they have: parts of a code are of these.
    pub view: View,
    /// Seats of nodes that are out of the cluster: nobody will ever hear these.
    pub out: Vec<Seat>,
}

/// A quorum operation, or one at a single replica. Values are within the limits: the caller's duty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A holder's read (MUSIC `criticalGet`). Ends in `Value`, `Past` or `NotHolder`. Where the q
    /// answers disagree on a write of this very section, the highest is stored at q before it is
    /// returned; a lower section's last write is at q already, or the synch has put it there.
    Get {
        /// The key.
        key: KeyId,
        /// Who reads.
        holder: Holder,
    },
    /// A holder's write: one round (MUSIC `criticalPut`). Ends in `Stored`, `Past`, `NotHolder`,
    /// `StaleSequence` or `DiskFull`.
    Put {
        /// The key.
        key: KeyId,
        /// From [`Tag::critical`]; a retry repeats it.
        tag: Tag,
        /// None deletes.
        value: Option<Bytes>,
        /// The client is known to have issued higher numbers in this section than the tag's, so
        /// that being outranked at q replicas is success, not a counter begun anew (F16).
        counter_above: bool,
    },
    /// Both cells at q, without a fence: what a grant carries. Ends in `Entry` or `Past`.
    Entry {
        /// The key.
        key: KeyId,
        /// The ref that is to be granted; none where it is not known yet.
        holder: Option<Holder>,
    },
    /// The fenced read of both cells under `tag`, then the latest value stored under `tag` at q
    /// (F1: late puts are refused; F4: only an attempt that has stored grants). Also adopts a newer
    /// eventual value (F6: by a cell of its own). Ends in `Synched`, `Past` or `DiskFull`; only
    /// `Synched` grants.
    Synch {
        /// The key.
        key: KeyId,
        /// From [`Tag::synch`]; never used for two attempts.
        tag: Tag,
        /// Whether a newer eventual value is taken over.
        adopts: bool,
    },
    /// A register's linearizable read (ABD). Ends in `Value`.
    Read {
        /// The key.
        key: KeyId,
        /// Not for the value, but so that the key moves: it ends when q members of the store have
        /// what may be in its sources.
        moves: bool,
    },
    /// A register's linearizable write: the highest tag of q, then one above it at q. Ends in
    /// `Stored` or `DiskFull`. A first round that finds this very writer completes its tag.
    Write {
        /// The key.
        key: KeyId,
        /// Session and request number, folded; not 0. A retry repeats it.
        writer: u128,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Goes on in this epoch with the write of a register that the seal of an earlier one has
    /// interrupted, under its own tag (V5). Ends as `Write`; in `Past` where a fence above its
    /// tag has come.
    Cross {
        /// The key.
        key: KeyId,
        /// The tag that `Moved` has told.
        tag: Tag,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// Settles what unfinished writes of a register have left: reads q replicas with a fence above
    /// every tag seen, and stores the highest value under the fence's tag, which is then final
    /// (F8g: dead writers' parts are swept). Ends in `Stored` or `DiskFull`. A write that it fences
    /// out ends in `Past`.
    Sweep {
        /// The key.
        key: KeyId,
        /// Not 0, and no other operation's.
        writer: u128,
    },
    /// An eventual read at one replica, or of enough that their parts give the value. Ends in
    /// `Value` with a zero tag.
    EventualGet {
        /// The key.
        key: KeyId,
    },
    /// An eventual write at one replica, at most once: sent to one replica after the other only as
    /// long as each refuses it for good, and never to the same one twice. Ends in `EventualStored`,
    /// `Locked`, `DiskFull`, or `Unavailable` with an unknown effect. Started again only where it
    /// certainly had none.
    EventualPut {
        /// The key.
        key: KeyId,
        /// None deletes.
        value: Option<Bytes>,
    },
    /// What one replica holds. Ends in `Inspection`.
    Inspect {
        /// The key.
        key: KeyId,
    },
}

impl Op {
    /// The key operated on.
    pub fn key(&self) -> &KeyId {
        match self {
            Op::Get { key, .. }
            | Op::Put { key, .. }
            | Op::Entry { key, .. }
            | Op::Synch { key, .. }
            | Op::Read { key, .. }
            | Op::Write { key, .. }
            | Op::Cross { key, .. }
            | Op::Sweep { key, .. }
            | Op::EventualGet { key }
            | Op::EventualPut { key, .. }
            | Op::Inspect { key } => key,
        }
    }

    /// Whether this is the synch that writes under `tag`.
    pub(super) fn is_synch_of(&self, tag: Tag) -> bool {
        matches!(self, Op::Synch { tag: own, .. } if *own == tag)
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpEnd {
    /// `Get`, `Read`, `EventualGet`.
    Value {
        /// None where absent or deleted.
        value: Option<Bytes>,
        /// Its tag; zero for an eventual read.
        tag: Tag,
    },
    /// `Entry`.
    Entry {
        /// The critical cell's value.
        value: Option<Bytes>,
        /// The critical cell's tag.
        tag: Tag,
        /// The eventual cell, only where it is newer than the critical one: it must be adopted by a
        /// `Synch` before the grant, or is hidden (F6).
        eventual: Option<(EventualTag, Option<Bytes>)>,
    },
    /// `Entry`: a synch that may never end has fenced this store above the value, so that it cannot
    /// move here from an earlier epoch. Only a `Synch` grants it.
    Unmoved,
    /// `Put`, `Write`, `Cross`: at q replicas, durably.
    Stored {
        /// The write's tag.
        tag: Tag,
    },
    /// `Synch`: at q replicas, durably.
    Synched {
        /// The latest value.
        value: Option<Bytes>,
        /// The synch's own tag.
        tag: Tag,
    },
    /// `EventualPut`: at one replica, durably.
    EventualStored {
        /// The tag given.
        tag: EventualTag,
    },
    /// `EventualPut`: somebody holds or waits for the key. Nothing was stored, nor will be.
    Locked,
    /// The ref is past, or a later attempt of its synch is under way.
    Past {
        /// False only where every member refused the first and only transmission to it. A caller
        /// that repeats an earlier operation must not rely on it.
        may_have_taken_effect: bool,
    },
    /// More than n − q replicas say that the ref waits or was never given.
    NotHolder {
        /// See [`OpEnd::Past`].
        may_have_taken_effect: bool,
    },
    /// Every one of q replicas has a higher number of this section, or another value under this one
    /// (F16: its client has lost its counter).
    StaleSequence,
    /// More than n − q replicas take no writes.
    DiskFull {
        /// See [`OpEnd::Past`].
        may_have_taken_effect: bool,
    },
    /// More than n − q replicas have so many unfinished writes of the key that they take no more.
    Busy {
        /// See [`OpEnd::Past`].
        may_have_taken_effect: bool,
    },
    /// Answers of q replicas came, and gave no value that may be returned: more writes were under
    /// way or have died than the policy bears.
    Undecodable,
    /// `Inspect`.
    Inspection(Inspection),
    /// The members have gone on to another epoch, which is given where it is known. The operation
    /// is over; start it again there, under the same tag or writer. Reads and synchs start over.
    Moved {
        /// The epoch to go to.
        next: Option<Epoch>,
        /// The tag of a register's write that may be stored somewhere. It goes on there by `Cross`:
        /// under a second tag it might come twice.
        under: Option<Tag>,
        /// See [`OpEnd::Past`].
        may_have_taken_effect: bool,
    },
    /// No quorum by the deadline.
    Unavailable {
        /// See [`OpEnd::Past`].
        may_have_taken_effect: bool,
    },
}

/// What the caller of an operation owes.
pub(super) fn assert_duties(op: &Op, place: &Place, env: &Env<'_>) {
    assert_eq!(
        place.store.epoch, place.view.epoch,
        "a place is of one epoch"
    );
    match op {
        Op::Put { tag, value, .. } => {
            assert!(
                tag.lock_ref > LockRef(0) && !is_synch(*tag),
                "a put has a section's tag"
            );
            assert_size(value, env);
        }
        Op::Synch { tag, .. } => assert!(is_synch(*tag), "a synch has a synch's tag"),
        Op::Write { writer, value, .. } => {
            assert!(*writer != 0, "a writer has a name");
            assert_size(value, env);
        }
        Op::Cross { tag, value, .. } => {
            assert!(tag.writer != 0, "a write has a name");
            assert_size(value, env);
        }
        Op::Sweep { writer, .. } => assert!(*writer != 0, "a sweep has a name"),
        Op::EventualPut { value, .. } => assert_size(value, env),
        _ => {}
    }
}

fn assert_size(value: &Option<Bytes>, env: &Env<'_>) {
    let bytes = value.as_ref().map_or(0, Bytes::len);
    assert!(
        bytes <= env.limits.value_most,
        "a value over the limit is refused before it comes here"
    );
}
