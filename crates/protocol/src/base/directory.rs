//! What a node knows of its cluster: who its nodes are, and which group owns which segment.
//!
//! **Problem.** A cluster file says what a cluster began with. What has become of it since then
//! stands in no file, and every room of a node asks for it with every request.
//!
//! **Idea.** One value answers, by name and by segment. It is made from the cluster file, and
//! learns where groups are from then on: by a node's own logs, and from others. Each segment is
//! where the latest location that has ever claimed it says: of those of one group the one with more
//! changes, of several groups' the one with the highest epoch, since epochs rise along a segment's
//! history, whichever groups have it. So a segment that a group has given away, and of which
//! nothing more is known here, is looked for where it was last, and whoever was there knows more.

use super::config::{Cluster, Group, NodeInfo};
use super::ids::{ClusterId, Epoch, GroupId, NodeName, SegmentId, SiteId};
use super::location::Location;
use super::tag::LockRef;
use super::view::View;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Nodes by name, groups by segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    cluster: ClusterId,
    segment_bits: u8,
    lowest_ref: LockRef,
    nodes: BTreeMap<NodeName, NodeInfo>,
    /// The latest of each group.
    locations: BTreeMap<GroupId, Location>,
    /// By the last segment of each run of segments. The runs are disjoint, and leave none out.
    runs: BTreeMap<SegmentId, Run>,
    least: u8,
    /// How often it has learnt anything.
    changes: u64,
}

/// Segments that lie side by side, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    from: SegmentId,
    at: Owner,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// Where the group is.
    Present(GroupId),
    /// Where it was: by its latest location it has these segments no more, and whose they are is
    /// not known.
    Former(Box<Location>),
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

    /// The same with all that is known of each.
    pub fn infos(&self) -> impl ExactSizeIterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    /// How often it has learnt anything since it was made: for whoever keeps a copy.
    pub fn changes(&self) -> u64 {
        self.changes
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

    /// Where all groups are, as far as is known.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.locations.values()
    }

    /// Where each segment is, in order: locations of groups, or of what a group was when it had
    /// segments of which nothing more is known.
    pub fn runs(&self) -> impl Iterator<Item = (RangeInclusive<SegmentId>, &Location)> {
        let runs = self.runs.iter();
        runs.filter_map(|(to, run)| Some((run.from..=*to, self.owner(&run.at)?)))
    }

    /// What there is to remember of where groups are and were, in the order in which
    /// [`Directory::learn`] takes it.
    pub fn changed(&self) -> Vec<&Location> {
        let runs = self.runs.values();
        let former = runs.filter_map(|run| match &run.at {
            Owner::Former(location) => Some(&**location),
            Owner::Present(_) => None,
        });
        let mut all: Vec<&Location> = former.collect();
        all.sort_by_key(|at| at.epoch());
        all.extend(self.locations());
        all.retain(|at| !at.is_beginning());
        all
    }

    fn owner<'a>(&'a self, at: &'a Owner) -> Option<&'a Location> {
        match at {
            Owner::Present(group) => self.locations.get(group),
            Owner::Former(location) => Some(location),
        }
    }

    /// Where the group is that owns a segment. Every request asks for it, and a cluster may have
    /// hundreds.
    pub fn location_of(&self, segment: SegmentId) -> Option<&Location> {
        let (_, run) = self.runs.range(segment..).next()?;
        self.owner(&run.at).filter(|_| run.from <= segment)
    }

    /// Where a group is.
    pub fn location(&self, group: GroupId) -> Option<&Location> {
        self.locations.get(&group)
    }

    /// The groups that own segments, in the order of their arcs.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.runs().map(|(_, at)| &at.group)
    }

    /// The group that owns a segment.
    pub fn group_of(&self, segment: SegmentId) -> Option<&Group> {
        self.location_of(segment).map(|at| &at.group)
    }

    /// The group that keeps what the cluster as a whole agrees on.
    pub fn meta(&self) -> &Group {
        &self.locations[&GroupId::META].group
    }

    /// From now on these are the nodes.
    pub fn name_nodes(&mut self, nodes: impl Iterator<Item = NodeInfo>) {
        self.nodes = nodes.map(|node| (node.name, node)).collect();
        self.changes += 1;
    }

    /// Takes a later location of a group over, or one of a group that is new here; whether it is
    /// one.
    pub fn learn(&mut self, location: &Location) -> bool {
        let group = location.id();
        let former = self.locations.get(&group);
        if former.is_some_and(|known| !location.is_later_than(known)) {
            return false;
        }
        let same_arc = former.is_some_and(|known| {
            (known.group.from, known.group.to) == (location.group.from, location.group.to)
        });
        self.changes += 1;
        let former = self.locations.insert(group, location.clone());
        if !same_arc {
            let runs = core::mem::take(&mut self.runs);
            for (to, Run { from, at }) in runs {
                for (from, to, at) in self.divide((from, to), at, former.as_ref(), location) {
                    self.runs.insert(to, Run { from, at });
                }
            }
            self.join_runs();
        }
        true
    }

    /// What becomes of a run when a group's arc has changed.
    fn divide(
        &self,
        (from, to): (SegmentId, SegmentId),
        at: Owner,
        former: Option<&Location>,
        location: &Location,
    ) -> Vec<(SegmentId, SegmentId, Owner)> {
        let group = location.id();
        let own = at == Owner::Present(group);
        let outside = match (own, former) {
            (true, Some(former)) => Owner::Former(Box::new(former.clone())),
            _ => at.clone(),
        };
        let of_it = self.owner(&at).map(|known| (known.id(), known.epoch()));
        let wins = own || of_it.is_some_and(|(_, epoch)| epoch < location.epoch());
        let arc = &location.group;
        let inside = match wins {
            true => Owner::Present(group),
            false => at,
        };
        let mut parts = Vec::new();
        if from < arc.from {
            let last = to.min(SegmentId(arc.from.0 - 1));
            parts.push((from, last, outside.clone()));
        }
        let (first, last) = (from.max(arc.from), to.min(arc.to));
        if first <= last {
            parts.push((first, last, inside));
        }
        if to > arc.to {
            parts.push((from.max(SegmentId(arc.to.0 + 1)), to, outside));
        }
        parts
    }

    /// Makes one run of two of the same owner.
    fn join_runs(&mut self) {
        let mut joined: Vec<(SegmentId, Run)> = Vec::new();
        for (to, run) in core::mem::take(&mut self.runs) {
            match joined.last_mut() {
                Some((end, last)) if last.at == run.at => *end = to,
                _ => joined.push((to, run)),
            }
        }
        self.runs = joined.into_iter().collect();
    }
}

impl From<&Cluster> for Directory {
    fn from(file: &Cluster) -> Directory {
        let nodes = file.nodes.iter().map(|node| (node.name, node.clone()));
        let run = |group: &Group| {
            let (from, at) = (group.from, Owner::Present(group.id));
            (group.to, Run { from, at })
        };
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
            locations: core::iter::once(&meta)
                .chain(&file.groups)
                .map(|group| (group.id, Location::beginning(group)))
                .collect(),
            runs: file.groups.iter().map(run).collect(),
            // A view has at most 13 members.
            least: sizes.min().unwrap_or(1) as u8,
            changes: 0,
        }
    }
}
