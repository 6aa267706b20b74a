//! Identities. None of them is ever used twice.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);
    };
}

id!(
    /// The number of a node. The registry gives it to one incarnation, once: a lost disk comes back
    /// under another name.
    NodeName(u32)
);
id!(
    /// 128 random bits drawn when a data directory is created and stored in it. A directory that is
    /// empty, older or foreign never answers under a known incarnation (F8c).
    Incarnation(u128)
);
id!(
    /// A place whose nodes are close to each other and fail together.
    SiteId(u16)
);
id!(
    /// A cluster. Drawn at random when the cluster file is made; nodes of two clusters never talk.
    ClusterId(u128)
);
id!(
    /// A group of nodes that owns one arc of the ring.
    GroupId(u128)
);
id!(
    /// A segment: all addresses with the same prefix. The number is the prefix itself.
    SegmentId(u32)
);
id!(
    /// The index of a member in a view, 0 … n−1.
    Seat(u8)
);
id!(
    /// A client's session: 128 bits, the hash of a secret that only the client and the node that it
    /// asks know. Its name alone lets nobody act in its sections (G49).
    SessionId(u128)
);

impl GroupId {
    /// The group that owns no segment: it keeps what the cluster as a whole agrees on.
    pub const META: GroupId = GroupId(0);

    /// The group that splits off from this one as it goes on in that epoch: 127 bits of a hash,
    /// below a bit that is set, so that it is none of those that a cluster file numbers from 1. Two
    /// groups never split off in the same epoch of one.
    #[must_use]
    pub fn child(self, epoch: Epoch) -> GroupId {
        let half = |seed: u64| {
            let parts = [self.0 as u64, (self.0 >> 64) as u64, epoch.0];
            let mixed = parts.iter().fold(seed, |hash, part| mix(hash ^ part));
            u128::from(mixed)
        };
        GroupId(half(1) << 64 | half(2) | 1 << 127)
    }
}

/// A bijection of 64 bits that spreads every bit of its argument over all of them (the finalizer of
/// SplitMix64).
const fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl SessionId {
    /// The session of these bits, which are random or the hash of a secret. Its highest bit is set:
    /// the ids without it are left to a face that says something in those it makes up.
    pub const fn drawn(bits: u128) -> SessionId {
        SessionId(bits | 1 << 127)
    }
}
id!(
    /// A keyspace, given by the catalogue and never reused.
    KeyspaceId(u32)
);

/// A node as a durable memory: its name and the incarnation of its data directory. Quorums count
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// What the cluster calls it.
    pub name: NodeName,
    /// Which memory that is.
    pub incarnation: Incarnation,
}

/// A group's logical time: it grows by one with every change of its view.
///
/// The upper 16 bits count adoptions, the lower 48 changes; compared as one number.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch in which a cluster starts.
    pub const FIRST: Epoch = Epoch(1);

    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// What a log orders: the group's own state, or one segment of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// The group's own log: members, arc, catalogue.
    Group,
    /// The log of one segment: lock queues and, later, segment data.
    Segment(SegmentId),
}

/// One replicated log. Logs are many and mortal: each is created from an initial state and a base,
/// ended by a `Stop`, and deleted as a whole; its successor has the next epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogId {
    /// The group that keeps it.
    pub group: GroupId,
    /// What it orders.
    pub scope: Scope,
    /// The epoch in which it began.
    pub epoch: Epoch,
}
