//! What a node knows of its cluster: who its nodes are, and which group owns which segment.
//!
//! **Problem.** A cluster file says what a cluster began with. What has become of it since then
//! stands in no file, and every room of a node asks for it with every request.
//!
//! **Idea.** One value answers, by name and by segment. It is made from the cluster file; a node
//! that learns of a change puts another in its place.

use super::config::{Cluster, Group, NodeInfo};
use super::ids::{ClusterId, GroupId, NodeName, SegmentId, SiteId};
use super::tag::LockRef;
use alloc::collections::BTreeMap;

/// Nodes by name, groups by segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    cluster: ClusterId,
    segment_bits: u8,
    lowest_ref: LockRef,
    nodes: BTreeMap<NodeName, NodeInfo>,
    /// By the last segment of their arcs, which are disjoint.
    groups: BTreeMap<SegmentId, Group>,
    catalogue: Option<GroupId>,
}

impl Directory {
    /// The cluster that nodes of others do not talk to.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The ring has 2^bits segments.
    pub fn segment_bits(&self) -> u8 {
        self.segment_bits
    }

    /// No ref is below.
    pub fn lowest_ref(&self) -> LockRef {
        self.lowest_ref
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeName> + '_ {
        self.nodes.keys().copied()
    }

    /// Whether the cluster has a node of that name.
    pub fn has(&self, name: NodeName) -> bool {
        self.nodes.contains_key(&name)
    }

    /// What people call a node; `?` for one that is not known.
    pub fn label(&self, name: NodeName) -> &str {
        self.nodes.get(&name).map_or("?", |node| &node.label)
    }

    /// Where a node is; the first site for one that is not known.
    pub fn site_of(&self, name: NodeName) -> SiteId {
        let node = self.nodes.get(&name);
        node.map(|node| node.site).unwrap_or_default()
    }

    /// All groups, in the order of their arcs.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// The group that owns a segment. Every request asks for it, and a cluster may have hundreds.
    pub fn group_of(&self, segment: SegmentId) -> Option<&Group> {
        let (_, group) = self.groups.range(segment..).next()?;
        (group.from <= segment).then_some(group)
    }

    /// The group whose own log orders the keyspace catalogue.
    pub fn catalogue_group(&self) -> Option<&Group> {
        let keeps = |group: &&Group| Some(group.id) == self.catalogue;
        self.groups.values().find(keeps)
    }
}

impl From<&Cluster> for Directory {
    fn from(file: &Cluster) -> Directory {
        let nodes = file.nodes.iter().map(|node| (node.name, node.clone()));
        let groups = file.groups.iter().map(|group| (group.to, group.clone()));
        Directory {
            cluster: file.id,
            segment_bits: file.segment_bits,
            lowest_ref: file.lowest_ref,
            nodes: nodes.collect(),
            groups: groups.collect(),
            catalogue: file.groups.first().map(|group| group.id),
        }
    }
}
