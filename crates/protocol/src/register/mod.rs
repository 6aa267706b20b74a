//! Quorum registers: where values live.
//!
//! **Problem.** A value must survive the loss of any minority of a group's members and be read back
//! as it was last written, although writers die midway, holders of critical sections are wrongly
//! taken for dead, and messages come late.
//!
//! **Idea.** Every member of a view keeps, per key, one value under a totally ordered [`Tag`]. A
//! write stores at a quorum under a tag of its own; a read takes the highest tag of a quorum, and
//! two quorums meet (ABD; MUSIC §III). Inside a critical section the tag is `(lock ref, sequence
//! number, session)`, so one round writes and a retry repeats itself. A new section after a forced
//! release first *synchs*: it reads a quorum with a **fence**, the tag under which it then writes
//! the value back. A member durably refuses every write below a fence before it answers, as an
//! acceptor of Paxos does with a ballot, so that a write acknowledged to the last holder is either
//! seen by the synch or refused (F1), and each attempt of a synch has a fence of its own (F4).
//!
//! **Two cells.** A key of a section keyspace has a critical cell C and an eventual cell E, so that
//! an eventual put can neither change what a holder reads nor be hidden for ever (F6). An eventual
//! put is durable at one replica only, and acts at most once (`once`).
//!
//! **Epochs.** A store is of one epoch. It is sealed when the segment goes on in another, and
//! deleted when everything has moved there (`status`). Until then it is a *source* of the later
//! one, and operations read it, too (V1 to V5, docs/protocols/register.md). Who seals, and who
//! says that everything has moved, is not this room's matter.
//!
//! **Messages.** [`Message::Ask`] and, for whole stores, [`Message::AskStore`]; to both
//! [`Message::Answer`]. Every answer leaves when
//! what it is based on is durable. [`Replica`] answers, [`Caller`] asks.
//!
//! **Invariants.**
//! * I1. At a replica, the tag of C and the fence of a key never decrease, through restarts too.
//! * I2. A tag names one value: a replica never replaces a content by another under an equal tag.
//! * I3. A replica stores nothing into C below its fence.
//! * I4. A phase of an operation counts answers of one epoch, one call and distinct members; a void
//!   answer counts for nothing (F8c).
//! * I5. No answer is counted after the operation's deadline, which is at most `timing.request`
//!   ahead. A replica that lost a record waits that long before it learns it again: by then nobody
//!   relies on what it had promised and forgotten, unless a quorum of the others knows it too.
//! * I6. A sealed store never changes until it is deleted, and a deleted one is never empty.
//! * I7. An eventual put is stored by at most one replica, once.
//!
//! **Departures.** MUSIC's synch reads without a fence and writes with the coordinator's clock,
//! which loses acknowledged writes (F1: no fence; F4: attempts that share a tag); its eventual put
//! shares the cell with the critical one (F6: it overwrites, or is hidden for ever).

mod caller;
mod cell;
mod listing;
pub mod message;
mod once;
mod op;
pub mod policy;
mod reading;
mod repair;
mod replica;
mod running;
mod settled;
mod status;
mod upkeep;

pub use caller::Caller;
pub(crate) use listing::Keeps;
pub use listing::{KeyRange, Listed, keys};
pub use message::{
    Answer, Ask, Coding, Content, Fragment, Holder, Marked, Message, Moved, StoreAsk, StoreId,
    Survey, Version,
};
pub use once::{Life, PutName};
pub use op::{Errand, Op, OpEnd, OpId, Owner, Place, Source};
pub(crate) use policy::reseated;
pub use replica::{Counts, Replica};
pub use upkeep::{SegmentViews, Tally, UpkeepCounts};

use crate::base::tag::GENERATION_SPAN;
use crate::base::{Address, KeyId, Keyspace, KeyspaceId, LockRef, Shape, StoragePolicy, Tag, View};
use crate::catalogue::Catalogue;
use crate::io::Memory;
use bytes::Bytes;

/// What the applied state of a key's lock queue says of a ref. Only chosen and applied commands
/// count: they alone say who is past (F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderState {
    /// It holds the key, in this generation.
    Head,
    /// It waits, or was never given although its number has been applied.
    Waiting,
    /// It left, beside a put that the queue knows to be still under way: whether that, and what
    /// lies below it, is too late is for fences to say.
    Leaving,
    /// It left, was released by force, or was resumed in a higher generation.
    Past,
    /// Its number, or its generation's, is above what is applied here.
    Unknown,
}

/// What a replica must know of one segment: the node answers from its own applied state.
pub trait SegmentView {
    /// The members of the store that the ask names; none where this node has no such store.
    fn members(&self) -> Option<&View>;
    /// Earlier stores of the segment from which some keys may not have moved into this one, as far
    /// as is applied and noted here: which never says of one that is open that it is closed.
    fn sources(&self) -> &[Source] {
        &[]
    }
    /// Whether an earlier store may still have anything of the segment: an open source, or what a
    /// member of a closed one took of eventual puts. Once it was told that none has, that is so for
    /// good, after a restart, too.
    fn has_past(&self) -> bool {
        !self.sources().is_empty()
    }
    /// Whether this node does not have the store yet, and answers from earlier ones alone.
    fn is_before(&self) -> bool {
        false
    }
    /// Commands of the segment's history that are applied here.
    fn applied(&self) -> u64;
    /// What the applied queue says of a ref.
    fn holder_state(&self, key: &KeyId, holder: Holder) -> HolderState;
    /// Whether anybody holds or waits for the key.
    fn busy(&self, key: &KeyId) -> bool;
    /// The keyspaces, as this node knows them.
    fn catalogue(&self) -> &Catalogue;
    /// One of them.
    fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.catalogue().get(id)
    }
    /// Whether the disk takes writes.
    fn writable(&self) -> bool;
    /// All refs up to here are past, as far as is applied here (F8f: deletes are forgotten below).
    fn floor(&self) -> LockRef;
}

impl Holder {
    /// The section that a critical tag was made in.
    pub fn of(tag: Tag) -> Holder {
        Holder {
            lock_ref: tag.lock_ref,
            generation: (tag.sequence / GENERATION_SPAN) as u32,
        }
    }

    /// Sections are ordered by ref, then by how often they were resumed.
    fn rank(self) -> (LockRef, u32) {
        (self.lock_ref, self.generation)
    }
}

/// Whether `tag` is a synch's: the first number of a generation of a section.
fn is_synch(tag: Tag) -> bool {
    tag.lock_ref > LockRef(0) && tag.sequence.is_multiple_of(GENERATION_SPAN)
}

/// The least sequence number of a register's tag that is taken for a time, microseconds since 1970:
/// what is smaller was counted.
const PHYSICAL_MIN: u64 = 1 << 48;

/// Whether `tag` may be a time that has not come yet.
fn is_physical(tag: Tag) -> bool {
    tag.lock_ref == LockRef(0) && tag.sequence >= PHYSICAL_MIN
}

/// What a policy amounts to in a view.
///
/// # Panics
/// Where the policy is impossible there: a keyspace is created, and a view chosen, only if they
/// fit.
fn shape_in(policy: StoragePolicy, view: &View) -> Shape {
    let shape = policy.shape(view.len());
    shape.expect("a keyspace's policy fits its groups")
}

/// The value of this node's own copy of a critical cell, if the cell holds exactly `tag` and no
/// newer eventual value: the tag that a clean leave states names the true value (F3d: an
/// unclean one does not). Only
/// where a copy is the whole value.
pub fn local_critical(
    memory: &dyn Memory,
    place: &Place,
    address: Address,
    key: &KeyId,
    tag: Tag,
) -> Option<Option<Bytes>> {
    let at = cell::At {
        store: place.store,
        address,
        key: key.clone(),
    };
    let cell = cell::Cell::load(memory, &at).ok()?;
    if cell.head.tag() != tag || cell.head.eventual_is_newer() {
        return None;
    }
    policy::decode(&[&cell.critical().ok()?]).ok()
}
