//! What a coordinator wants to know of the cluster and of its own node: answered by the node from
//! memory, never by asking anybody.

use crate::base::{
    Address, Cluster, Directory, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, LockRef, Micros,
    NodeName, Reach, SegmentId, SessionId, Timestamp,
};
use crate::catalogue::Catalogue;
use crate::register::Place;
use crate::registry::Registry;
use crate::request::{Mode, NodeStatus};
use alloc::vec::Vec;

/// Whose primary is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The log of a segment.
    Segment(SegmentId),
    /// A group's own log; that of the meta-group keeps the keyspace catalogue.
    Group(GroupId),
}

/// What this node's replica of a segment has applied of one lock ref on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppliedRef {
    /// At the head, in this generation, which is that session's.
    Head(Mode, SessionId),
    /// In the queue, behind others.
    Waiting,
    /// It was in the queue and left it, or the generation is an older one: final.
    Past,
    /// Not a member, or not applied so far.
    Unknown,
}

/// The stores of one epoch of segments that lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStore {
    /// The epoch.
    pub epoch: Epoch,
    /// The segments, in order; one at least.
    pub segments: Vec<SegmentId>,
    /// They are earlier stores, and open: some keys may not have moved from them.
    pub past: bool,
    /// Segments of them have an earlier store that is open.
    pub over_past: bool,
    /// Who has them: those that live first, the nearest first.
    pub members: Vec<NodeName>,
}

/// Who is in the cluster, and where its groups are.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    /// What the cluster began with.
    pub cluster: &'a Cluster,
    /// Who is in it.
    pub registry: &'a Registry,
    /// Where its groups are.
    pub directory: &'a Directory,
}

/// The cluster as the node knows it. Everything here may be stale but
/// [`Topology::applied_ref`]'s `Past`, which comes from applied commands and is final.
pub trait Topology {
    /// This node.
    fn me(&self) -> NodeName;
    /// The catalogue as known here.
    fn catalogue(&self) -> &Catalogue;
    /// A keyspace of it.
    fn keyspace(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.catalogue().get(id)
    }
    /// Where a key lies on the ring; none without such a keyspace.
    fn address(&self, key: &KeyId) -> Option<Address>;
    /// The segment of a key; none without such a keyspace.
    fn segment(&self, key: &KeyId) -> Option<SegmentId>;
    /// The register replicas of a key of a segment, nearest first; none where no group is known to
    /// own the segment.
    fn place(&self, segment: SegmentId, key: &KeyId) -> Option<Place>;
    /// How many of the key's members this node is in touch with, for people: it may be a lease
    /// old. None: nothing is known of it.
    fn reach(&self, _key: &KeyId) -> Option<Reach> {
        None
    }
    /// Who is believed to lead.
    fn primary(&self, target: Target) -> Option<NodeName>;
    /// Whether a node has been heard within a lease: one that has not is asked where no other can
    /// be.
    fn hears(&self, node: NodeName) -> bool;
    /// Whether a node has room on its disk, as far as it has said.
    fn has_room(&self, node: NodeName) -> bool;
    /// How long ago a node was heard for the last time; none: not since this one started.
    fn last_heard(&self, node: NodeName) -> Option<Micros>;
    /// Who may lead, nearest first.
    fn members(&self, target: Target) -> Vec<NodeName>;
    /// The epoch in force, as known here.
    fn epoch(&self, target: Target) -> Epoch;
    /// What this node has applied of a ref.
    fn applied_ref(&self, key: &KeyId, lock_ref: LockRef, generation: u32) -> AppliedRef;
    /// Members of every group, for what must fit them all.
    fn group_sizes(&self) -> Vec<usize>;
    /// The ref at the head of a key's queue and when it was enqueued (the primary's wall clock,
    /// microseconds since 1970), as applied here: for people, since it may be stale.
    fn head(&self, key: &KeyId) -> Option<(LockRef, u64)>;
    /// Up to which time this node answers reads of a segment's ledger; none: of no time.
    fn closed(&self, _segment: SegmentId) -> Option<Timestamp> {
        None
    }
    /// All stores that may have keys.
    fn key_stores(&self) -> Vec<KeyStore>;
    /// Whether a format is above all that this node's program reads.
    fn is_newer(&self, format: u16) -> bool;
    /// Who is in the cluster, and where its groups are.
    fn ring(&self) -> Ring<'_>;
    /// This node's state; the coordinator fills in the requests that are open.
    fn status(&self) -> NodeStatus;
}
