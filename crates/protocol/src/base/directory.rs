//! What a node knows of its cluster: who its nodes are, and which group owns which segment.
//!
//! **Problem.** A cluster file says what a cluster began with. What has become of it since then
//! stands in no file, and every room of a node asks for it with every request.
//!
//! **Idea.** One value answers, by name and by segment. It is made from the cluster file, and
//! learns where groups are from then on: by a node's own logs, and from others.

use super::config::{Cluster, Group, NodeInfo};
use super::ids::{ClusterId, Epoch, GroupId, NodeName, SegmentId, SiteId};
use super::location::Location;
use super::tag::LockRef;
use super::view::View;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Nodes by name, groups by segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    cluster: ClusterId,
    segment_bits: u8,
    lowest_ref: LockRef,
    nodes: BTreeMap<NodeName, NodeInfo>,
    /// Of the group that owns no segment.
    meta: Location,
    /// By the last segment of their arcs, which are disjoint.
    locations: BTreeMap<SegmentId, Location>,
    least: u8,
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

    /// No view has fewer members: every keyspace has a shape for this many, and for more.
    pub fn least(&self) -> u8 {
        self.least
    }

    /// Where all groups are: the meta-group, then the others in the order of their arcs.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        core::iter::once(&self.meta).chain(self.locations.values())
    }

    /// Where the group is that owns a segment. Every request asks for it, and a cluster may have
    /// hundreds.
    pub fn location_of(&self, segment: SegmentId) -> Option<&Location> {
        let (_, location) = self.locations.range(segment..).next()?;
        location.group.owns(segment).then_some(location)
    }

    /// Where a group is.
    pub fn location(&self, group: GroupId) -> Option<&Location> {
        self.locations().find(|at| at.id() == group)
    }

    /// The groups that own segments, in the order of their arcs.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.locations.values().map(|at| &at.group)
    }

    /// The group that owns a segment.
    pub fn group_of(&self, segment: SegmentId) -> Option<&Group> {
        self.location_of(segment).map(|at| &at.group)
    }

    /// The group that keeps what the cluster as a whole agrees on.
    pub fn meta(&self) -> &Group {
        &self.meta.group
    }

    /// From now on these are the nodes.
    pub fn name_nodes(&mut self, nodes: impl Iterator<Item = NodeInfo>) {
        self.nodes = nodes.map(|node| (node.name, node)).collect();
    }

    /// Takes a later location of a group over; whether it is one.
    pub fn learn(&mut self, location: &Location) -> bool {
        let same = |at: &&mut Location| at.id() == location.id();
        let all = core::iter::once(&mut self.meta).chain(self.locations.values_mut());
        let Some(known) = all.into_iter().find(same) else {
            return false;
        };
        let later = location.is_later_than(known);
        if later {
            *known = location.clone();
        }
        later
    }
}

impl From<&Cluster> for Directory {
    fn from(file: &Cluster) -> Directory {
        let nodes = file.nodes.iter().map(|node| (node.name, node.clone()));
        let locations = file.groups.iter();
        let locations = locations.map(|group| (group.to, Location::beginning(group)));
        let sizes = file.groups.iter().map(|group| group.view.len());
        let first = file.groups.first().map(|group| &group.view);
        let meta = Group {
            id: GroupId::META,
            from: SegmentId(1),
            to: SegmentId(0),
            view: View {
                group: GroupId::META,
                epoch: Epoch::FIRST,
                seats: first.map_or_else(Vec::new, |view| view.seats.clone()),
            },
        };
        Directory {
            cluster: file.id,
            segment_bits: file.segment_bits,
            lowest_ref: file.lowest_ref,
            nodes: nodes.collect(),
            meta: Location::beginning(&meta),
            locations: locations.collect(),
            // A view has at most 13 members.
            least: sizes.min().unwrap_or(1) as u8,
        }
    }
}
