//! Who is in the cluster, and where its groups are, as the transport and the faces know it.
//!
//! The driver's thread has the node, which knows; it shows here whatever has changed. Everybody
//! else reads what it showed last, which may be a moment old.

use fermata_protocol::base::{Cluster, Group, NodeInfo, NodeName, SegmentId, SiteId};
use fermata_protocol::node::Here;
use fermata_protocol::registry::Standing;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;

/// What is known at a moment.
#[derive(Debug)]
pub(crate) struct Known {
    /// The names of all sites, by [`SiteId`].
    pub(crate) sites: Vec<String>,
    /// The nodes that are heard, by name.
    pub(crate) nodes: Vec<NodeInfo>,
    /// Those that were, and are no more.
    out: BTreeSet<NodeName>,
    /// The labels of those, as far as they are kept.
    former: BTreeSet<String>,
    /// Those that hand over what they lead.
    drains: BTreeSet<NodeName>,
    /// The groups that own segments, by their arcs.
    pub(crate) groups: Vec<Group>,
}

impl Known {
    /// What a cluster begins with.
    pub(crate) fn beginning(cluster: &Cluster) -> Known {
        let mut nodes = cluster.nodes.clone();
        nodes.sort_by_key(|node| node.name);
        Known {
            sites: cluster.sites.clone(),
            nodes,
            out: BTreeSet::new(),
            former: BTreeSet::new(),
            drains: BTreeSet::new(),
            groups: cluster.groups.clone(),
        }
    }

    /// What a node knows.
    pub(crate) fn of(here: &Here) -> Known {
        let registry = here.registry();
        let known = registry.all();
        let out = known.filter(|(_, node)| node.standing != Standing::Present);
        let out: Vec<_> = out.collect();
        let former = out.iter().map(|(_, node)| node.label.clone()).collect();
        let drains = registry.present().filter(|(_, node)| node.drains);
        Known {
            sites: registry.sites().to_vec(),
            nodes: here.directory.infos().cloned().collect(),
            former,
            out: out.iter().map(|(name, _)| *name).collect(),
            drains: drains.map(|(name, _)| name).collect(),
            groups: here.directory.groups().cloned().collect(),
        }
    }

    /// A node that is heard.
    pub(crate) fn node(&self, name: NodeName) -> Option<&NodeInfo> {
        let at = self.nodes.binary_search_by_key(&name, |node| node.name);
        at.ok().map(|at| &self.nodes[at])
    }

    /// Whether a node was in the cluster, and is not any more.
    pub(crate) fn is_out(&self, name: NodeName) -> bool {
        self.out.contains(&name)
    }

    /// Whether a node hands over what it leads.
    pub(crate) fn drains(&self, name: NodeName) -> bool {
        self.drains.contains(&name)
    }

    /// Whether a node gives what it keeps for clients to others: it drains, and another does not.
    pub(crate) fn hands_over(&self, name: NodeName) -> bool {
        let stays = |node: &NodeInfo| node.name != name && !self.drains(node.name);
        self.drains(name) && self.nodes.iter().any(stays)
    }

    /// The name of a site.
    pub(crate) fn site(&self, site: SiteId) -> &str {
        let name = self.sites.get(usize::from(site.0));
        name.map_or("", String::as_str)
    }

    /// The group that owns a segment.
    pub(crate) fn group_of(&self, segment: SegmentId) -> Option<&Group> {
        self.groups.iter().find(|group| group.owns(segment))
    }
}

/// What is known now.
#[derive(Debug)]
pub(crate) struct Roster(watch::Sender<Arc<Known>>);

impl Roster {
    /// What a cluster begins with.
    pub(crate) fn new(cluster: &Cluster) -> Roster {
        Roster(watch::Sender::new(Arc::new(Known::beginning(cluster))))
    }

    /// What is known now.
    pub(crate) fn known(&self) -> Arc<Known> {
        self.0.borrow().clone()
    }

    /// Whether a node of this label is in the cluster.
    pub(crate) fn has(&self, label: &str) -> bool {
        let known = self.0.borrow();
        let mut nodes = known.nodes.iter();
        nodes.any(|node| node.label == label && !known.is_out(node.name))
    }

    /// Whether a node of this label was in the cluster, and is not any more, as far as is known.
    pub(crate) fn had(&self, label: &str) -> bool {
        self.0.borrow().former.contains(label)
    }

    /// From now on this is known.
    pub(crate) fn show(&self, known: Arc<Known>) {
        self.0.send_replace(known);
    }

    /// Tells of whatever is shown from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Known>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::Addresses;

    #[test]
    fn nodes_are_found_whatever_their_order_in_the_file() {
        let node = |name: u32| NodeInfo {
            name: NodeName(name),
            label: format!("n{name}"),
            site: SiteId(0),
            addresses: Addresses::default(),
        };
        let cluster = Cluster {
            nodes: [3, 1, 2].map(node).to_vec(),
            ..Cluster::default()
        };
        let known = Roster::new(&cluster).known();
        for name in 1..=3 {
            let found = known.node(NodeName(name)).map(|node| node.name);
            assert_eq!(found, Some(NodeName(name)));
        }
        assert!(known.node(NodeName(4)).is_none());
    }
}
