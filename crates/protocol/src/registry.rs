//! Who is in the cluster: names, and the memories behind them.
//!
//! **Problem.** A quorum argument counts memories. Nodes come and go, disks are lost, and what was
//! sent by one that is gone may arrive at any time.
//!
//! **Idea.** One state machine gives names, in the log of the meta-group. A name is given to one
//! incarnation of a data directory, once; numbers ascend. Who has lost its disk, or has left, keeps
//! its name for ever, and is heard no more; a new disk comes under a new name. So a view, which is
//! a list of names, is a list of memories, and no node has to remember more than this table.
//!
//! **Departure.** Harmony's processes have addresses alone (§4.1), and one that comes back is the
//! one that was there. Here who comes back with nothing is somebody else.

use crate::base::{
    Addresses, Bug, Cluster, Incarnation, NodeId, NodeInfo, NodeName, Planted, SiteId,
};
use crate::request::{Code, Refusal};
use crate::settings::{Setting, Settings};
use crate::wire;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Nodes of a cluster at most, at one time.
pub const PRESENT_MAX: usize = 1_000;
/// Names that a cluster gives at most: each takes some 25 bytes for ever.
pub const NAMES_MAX: usize = 65_536;
/// Bytes of a label, or of a site's name, at most.
pub const LABEL_MAX: usize = 64;
/// So many nodes that are gone still have their labels: for whoever gives a command again.
pub const FORMER_MAX: usize = 64;
/// Sites of a cluster at most.
pub const SITES_MAX: usize = 1_000;

/// Whether a node is heard. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// It is heard, whether it has a seat or not.
    Present,
    /// It has left: it has no seat, and nothing that anybody needs.
    Gone,
    /// Its disk is lost, and all that was there alone.
    Lost,
}

impl Standing {
    pub(crate) fn told(self) -> &'static str {
        match self {
            Standing::Present => "is in the cluster",
            Standing::Gone => "has left it",
            Standing::Lost => "was given up as lost",
        }
    }
}

/// A node, as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The memory that the name stands for.
    pub incarnation: Incarnation,
    /// What people call it, or called it, as long as it is one of the last [`FORMER_MAX`] that are
    /// gone; then empty. A node that is there may have it anew.
    pub label: String,
    /// Where it is.
    pub site: SiteId,
    /// Whether it is heard.
    pub standing: Standing,
    /// Where it is reached; empty once it is gone.
    pub addresses: Addresses,
    /// It hands over what it leads, and is to lead nothing: it is about to stop, or to leave.
    pub drains: bool,
}

/// Who asks to be in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomer {
    /// The memory of its data directory.
    pub incarnation: Incarnation,
    /// What people call it, unlike all others that are there.
    pub label: String,
    /// The name of its site, which may be a new one.
    pub site: String,
    /// Where it is reached.
    pub addresses: Addresses,
}

impl Newcomer {
    /// Bytes of what it says.
    pub(crate) fn bytes(&self) -> usize {
        self.label.len() + self.site.len() + self.addresses.bytes()
    }
}

/// All names that were ever given, as of some number of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    /// 0 while the nodes of the cluster file have yet to meet.
    version: u64,
    /// A digest of the cluster file and of the settings, which the first nodes have alike.
    file: u64,
    /// Names below are those of the cluster file.
    first: NodeName,
    /// Above all that were given.
    next: NodeName,
    sites: Vec<String>,
    nodes: BTreeMap<NodeName, Registered>,
    settings: Settings,
}

impl Registry {
    /// Nobody has met anybody yet, and all have these settings of their files.
    pub fn beginning(file: &Cluster, settings: Settings) -> Registry {
        let names = file.nodes.iter().map(|node| node.name.0);
        let next = NodeName(names.max().unwrap_or(0).saturating_add(1));
        Registry {
            version: 0,
            file: fermata_codec::checksum(0, &wire::encode(&(file, settings))),
            first: next,
            next,
            sites: file.sites.clone(),
            nodes: BTreeMap::new(),
            settings,
        }
    }

    /// A node of the cluster file has been met, for the first time.
    pub(crate) fn meet(&mut self, node: &NodeInfo, incarnation: Incarnation) {
        self.nodes.entry(node.name).or_insert_with(|| Registered {
            incarnation,
            label: node.label.clone(),
            site: node.site,
            standing: Standing::Present,
            addresses: node.addresses.clone(),
            drains: false,
        });
    }

    /// All nodes of the cluster file have met: from now on the meta-group says who is there.
    pub(crate) fn found(&mut self) {
        self.version = self.version.max(1);
    }

    /// The number of changes, from 1; 0 while the nodes of the cluster file have yet to meet.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What is known under a name.
    pub fn get(&self, name: NodeName) -> Option<&Registered> {
        self.nodes.get(&name)
    }

    /// Names that were given.
    pub fn names(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes that were ever there, by name.
    pub fn all(&self) -> impl Iterator<Item = (NodeName, &Registered)> {
        self.nodes.iter().map(|(name, node)| (*name, node))
    }

    /// The nodes that are heard, by name.
    pub fn present(&self) -> impl Iterator<Item = (NodeName, &Registered)> {
        self.all()
            .filter(|(_, node)| node.standing == Standing::Present)
    }

    /// Whether this is the memory that its name stands for, and is heard.
    pub fn knows(&self, node: NodeId) -> bool {
        self.get(node.name).is_some_and(|known| {
            known.incarnation == node.incarnation && known.standing == Standing::Present
        })
    }

    /// The name of a memory, whatever its standing.
    pub fn name_of(&self, incarnation: Incarnation) -> Option<NodeName> {
        let mut all = self.nodes.iter();
        let found = all.find(|(_, node)| node.incarnation == incarnation);
        found.map(|(name, _)| *name)
    }

    /// Whether the node was in the cluster, and is not any more.
    pub(crate) fn is_out(&self, name: NodeName) -> bool {
        let known = self.get(name);
        known.is_some_and(|known| known.standing != Standing::Present)
    }

    /// Whether a name is one of the cluster file's.
    pub(crate) fn is_first(&self, name: NodeName) -> bool {
        name < self.first
    }

    /// The names of all sites, by [`SiteId`].
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// The name of a node's site.
    pub fn site_name(&self, site: SiteId) -> &str {
        self.sites
            .get(usize::from(site.0))
            .map_or("", String::as_str)
    }

    /// What all nodes count alike.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The cluster is to have another setting.
    ///
    /// # Errors
    /// Refused, with the reason; nothing was changed.
    pub(crate) fn settle(&mut self, change: Setting, planted: Planted) -> Result<(), Refusal> {
        self.settings.settle(change, planted).map_err(refusal)?;
        self.version += 1;
        Ok(())
    }

    /// Every node that is in the cluster has this version, and goes by its settings.
    pub(crate) fn settled(&mut self, version: u64) {
        // Another one may have been admitted since, who has said nothing.
        let all = version == self.version;
        self.version += u64::from(all && self.settings.settled());
    }

    /// A digest of what the first nodes have alike.
    pub(crate) fn digest(&self) -> u64 {
        self.file
    }

    /// Whether both began with the same cluster file, and the same settings.
    pub(crate) fn has_file_of(&self, other: &Registry) -> bool {
        self.file == other.file
    }

    /// Whether everybody that this table names is named alike in another.
    pub(crate) fn is_part_of(&self, other: &Registry) -> bool {
        let alike = |(name, node): (&NodeName, &Registered)| {
            let theirs = other.get(*name);
            theirs.is_some_and(|theirs| theirs.incarnation == node.incarnation)
        };
        self.nodes.iter().all(alike)
    }

    /// Another memory under a known name: what nobody may do.
    pub(crate) fn replace(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.get_mut(&node.name) {
            known.incarnation = node.incarnation;
        }
    }

    /// Gives a memory a name; one that has a name gets the same again.
    ///
    /// # Errors
    /// Refused, with the bound that is full, or the label that is another's; nothing was changed.
    pub(crate) fn admit(
        &mut self,
        newcomer: &Newcomer,
        planted: Planted,
    ) -> Result<NodeName, Refusal> {
        let (incarnation, label, site) = (newcomer.incarnation, &newcomer.label, &newcomer.site);
        let known = self.name_of(incarnation);
        if let Some(name) = known.filter(|_| !planted.has(Bug::NamedTwice)) {
            return match self.nodes[&name].standing {
                Standing::Present => Ok(name),
                gone => Err(refusal(format!(
                    "the node was in the cluster and {}: a data directory is not used again; \
                     start with a new one",
                    gone.told()
                ))),
            };
        }
        for (what, text) in [("label", label), ("site", site)] {
            if !is_label(text) {
                return Err(refusal(format!(
                    "a node's {what} is 1 to {LABEL_MAX} bytes without control characters; choose \
                     another"
                )));
            }
        }
        self.check_addresses(&newcomer.addresses, None)?;
        if let Some((name, _)) = self.present().find(|(_, node)| node.label == *label) {
            return Err(refusal(format!(
                "node {} has the label {label:?}; choose another",
                name.0
            )));
        }
        let full = |what, most| Err(refusal(format!("a cluster has at most {most} {what}")));
        if self.present().count() >= PRESENT_MAX {
            return full("nodes", PRESENT_MAX);
        }
        if self.nodes.len() >= NAMES_MAX || self.next.0 == u32::MAX {
            return full("nodes, those counted that have left it", NAMES_MAX);
        }
        let at = self.sites.iter().position(|known| known == site);
        if at.is_none() && self.sites.len() >= SITES_MAX {
            return full("sites", SITES_MAX);
        }
        let at = at.unwrap_or_else(|| {
            self.sites.push(site.clone());
            self.sites.len() - 1
        });
        let mut name = self.next;
        if planted.has(Bug::NameGivenAgain) {
            // That of one that is gone, if there is one.
            let gone = |(_, node): &(&NodeName, &Registered)| node.standing != Standing::Present;
            name = self.nodes.iter().find(gone).map_or(name, |(name, _)| *name);
        }
        self.next = NodeName(self.next.0.max(name.0 + 1));
        let node = Registered {
            incarnation,
            label: label.clone(),
            // There are at most `SITES_MAX`.
            site: SiteId(at as u16),
            standing: Standing::Present,
            addresses: newcomer.addresses.clone(),
            drains: false,
        };
        self.nodes.insert(name, node);
        self.version += 1;
        Ok(name)
    }

    /// A node is heard no more. Who is gone may still turn out to be lost.
    ///
    /// # Errors
    /// Refused, if there is no such node, or it is known to be lost; nothing was changed.
    pub(crate) fn dismiss(&mut self, name: NodeName, standing: Standing) -> Result<(), Refusal> {
        let known = self.nodes.get_mut(&name);
        let known = known.ok_or_else(|| refusal(format!("there is no node {}", name.0)))?;
        if known.standing >= standing {
            let what = known.standing.told();
            return Err(refusal(format!("node {} {what}", name.0)));
        }
        known.standing = standing;
        known.addresses = Addresses::default();
        known.drains = false;
        self.version += 1;
        self.forget_former(name);
        Ok(())
    }

    /// Where more nodes that are gone have labels than may have, the one of the lowest name has
    /// none any more, but for this one.
    fn forget_former(&mut self, last: NodeName) {
        let is_former = |(name, node): &(&NodeName, &mut Registered)| {
            node.standing != Standing::Present && !node.label.is_empty() && **name != last
        };
        let mut former = self.nodes.iter_mut().filter(is_former);
        let lowest = former.next();
        if let Some((_, node)) = lowest
            && former.count() + 2 > FORMER_MAX
        {
            node.label = String::new();
        }
    }

    /// A node hands over what it leads, or does so no more.
    ///
    /// # Errors
    /// Refused, if there is no such node; nothing was changed.
    pub(crate) fn drain(&mut self, name: NodeName, drains: bool) -> Result<(), Refusal> {
        let known = self.present_mut(name)?;
        let news = core::mem::replace(&mut known.drains, drains) != drains;
        self.version += u64::from(news);
        Ok(())
    }

    /// A node is reached elsewhere.
    ///
    /// # Errors
    /// Refused, if there is no such node, or an address is another's; nothing was changed.
    pub(crate) fn readdress(
        &mut self,
        name: NodeName,
        addresses: &Addresses,
    ) -> Result<(), Refusal> {
        self.check_addresses(addresses, Some(name))?;
        let known = self.present_mut(name)?;
        let news = known.addresses != *addresses;
        known.addresses.clone_from(addresses);
        self.version += u64::from(news);
        Ok(())
    }

    fn present_mut(&mut self, name: NodeName) -> Result<&mut Registered, Refusal> {
        let known = self.nodes.get_mut(&name);
        let known = known.filter(|known| known.standing == Standing::Present);
        known.ok_or_else(|| refusal(format!("there is no node {}", name.0)))
    }

    /// Two nodes at one address would each be taken for the other.
    fn check_addresses(&self, of: &Addresses, own: Option<NodeName>) -> Result<(), Refusal> {
        if !of.is_plain() {
            return Err(refusal(format!(
                "an address is host:port, at most {} bytes without spaces; choose another",
                Addresses::MAX
            )));
        }
        let mut others = self.present().filter(|(name, _)| Some(*name) != own);
        let same = |(_, node): &(NodeName, &Registered)| {
            !of.peer.is_empty() && node.addresses.peer == of.peer
        };
        match others.find(same) {
            Some((name, node)) => Err(refusal(format!(
                "node {}, {}, is reached by its peers at {}, too; choose another address",
                name.0, node.label, of.peer
            ))),
            None => Ok(()),
        }
    }
}

fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn refusal(why: String) -> Refusal {
    Refusal::definite(Code::BadRequest, format!("{why}; nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ClusterId, Limits, LockRef, Timing};
    use alloc::borrow::ToOwned as _;
    use alloc::vec;

    fn file() -> Cluster {
        let node = |name: u32| NodeInfo {
            name: NodeName(name),
            label: format!("n{name}"),
            site: SiteId(0),
            addresses: Addresses::default(),
        };
        Cluster {
            id: ClusterId(7),
            segment_bits: 0,
            lowest_ref: LockRef(1),
            sites: vec!["here".to_owned()],
            nodes: (1..=3).map(node).collect(),
            groups: vec![],
        }
    }

    fn founded() -> Registry {
        let file = file();
        let mut registry = Registry::beginning(
            &file,
            Settings::beginning(&Timing::default(), &Limits::default(), wire::VERSION),
        );
        for node in &file.nodes {
            registry.meet(node, Incarnation(node.name.0.into()));
        }
        registry.found();
        registry
    }

    fn newcomer(incarnation: u128, (label, site): (&str, &str)) -> Newcomer {
        Newcomer {
            incarnation: Incarnation(incarnation),
            label: label.to_owned(),
            site: site.to_owned(),
            addresses: Addresses::default(),
        }
    }

    fn admit(registry: &mut Registry, incarnation: u128, label: &str) -> Result<u32, String> {
        let newcomer = newcomer(incarnation, (label, "here"));
        let admitted = registry.admit(&newcomer, Planted::NONE);
        admitted
            .map(|name| name.0)
            .map_err(|refusal| refusal.detail)
    }

    #[test]
    fn a_memory_gets_one_name_and_a_name_one_memory() {
        let mut registry = founded();
        assert_eq!(admit(&mut registry, 10, "a"), Ok(4));
        assert_eq!(admit(&mut registry, 10, "a"), Ok(4));
        assert_eq!(registry.version(), 2);
        assert_eq!(registry.dismiss(NodeName(4), Standing::Gone), Ok(()));
        assert!(admit(&mut registry, 10, "a").is_err_and(|why| why.contains("not used again")));
        assert_eq!(admit(&mut registry, 11, "a"), Ok(5), "its label is free");
        let [old, new] = [(4, 10), (5, 11)].map(|(name, incarnation)| NodeId {
            name: NodeName(name),
            incarnation: Incarnation(incarnation),
        });
        assert!(!registry.knows(old) && registry.knows(new));
        assert!(!registry.knows(NodeId {
            incarnation: old.incarnation,
            ..new
        }));
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let mut registry = founded();
        let before = registry.clone();
        let long = "l".repeat(LABEL_MAX + 1);
        for label in ["n2", "", "a\tb", &long] {
            assert!(admit(&mut registry, 10, label).is_err(), "{label:?}");
        }
        let site = registry.admit(&newcomer(10, ("a", "")), Planted::NONE);
        assert!(site.is_err());
        assert!(registry.dismiss(NodeName(9), Standing::Gone).is_err());
        assert_eq!(registry, before);
    }

    #[test]
    fn who_is_out_stays_out_and_may_turn_out_to_be_lost() {
        let mut registry = founded();
        let name = NodeName(2);
        assert_eq!(registry.dismiss(name, Standing::Gone), Ok(()));
        assert!(registry.dismiss(name, Standing::Gone).is_err());
        assert_eq!(registry.dismiss(name, Standing::Lost), Ok(()));
        for standing in [Standing::Present, Standing::Gone, Standing::Lost] {
            assert!(registry.dismiss(name, standing).is_err(), "{standing:?}");
        }
    }

    #[test]
    fn what_all_know_is_settled_unless_another_node_was_admitted_since() {
        let mut registry = Registry::beginning(
            &file(),
            Settings::beginning(&Timing::default(), &Limits::default(), wire::VERSION),
        );
        registry.found();
        let next = Setting::Format(wire::VERSION + 1);
        registry.settle(next, Planted::NONE).expect("the next one");
        let all = registry.version();
        let admitted = registry.admit(&newcomer(9, ("n9", "here")), Planted::NONE);
        admitted.expect("a name");
        registry.settled(all);
        assert_eq!(
            registry.settings().format,
            wire::VERSION,
            "n9 has said nothing"
        );
        registry.settled(registry.version());
        assert_eq!(registry.settings().format, wire::VERSION + 1);
    }

    #[test]
    fn the_last_that_are_gone_have_their_labels() {
        let mut registry = founded();
        let mut names = Vec::new();
        for n in 0..=FORMER_MAX as u128 {
            let name = admit(&mut registry, n + 10, &format!("a{n}")).expect("there is room");
            names.push(NodeName(name));
        }
        // The lowest name goes last, and has its label all the same.
        for name in names.iter().skip(1).chain(names.first()) {
            assert_eq!(registry.dismiss(*name, Standing::Gone), Ok(()));
        }
        let label = |name: NodeName| registry.get(name).expect("a name").label.as_str();
        assert_eq!(label(names[0]), "a0");
        assert_eq!(label(names[1]), "");
        assert_eq!(label(names[2]), "a2");
        let former = names.iter().filter(|name| !label(**name).is_empty());
        assert_eq!(former.count(), FORMER_MAX);
    }

    #[test]
    fn a_cluster_has_so_many_nodes_names_and_sites() {
        let mut registry = founded();
        for n in 3..PRESENT_MAX as u128 {
            assert!(admit(&mut registry, n + 10, &format!("a{n}")).is_ok());
        }
        assert!(admit(&mut registry, 5, "more").is_err_and(|why| why.contains("1000 nodes")));
        let mut registry = founded();
        for n in 1..SITES_MAX as u128 {
            let (label, site) = (format!("a{n}"), format!("s{n}"));
            let name = registry.admit(&newcomer(n + 10, (&label, &site)), Planted::NONE);
            let name = name.expect("there is room");
            assert_eq!(registry.dismiss(name, Standing::Lost), Ok(()));
        }
        let more = registry.admit(&newcomer(5, ("more", "and one")), Planted::NONE);
        assert!(more.is_err_and(|refusal| refusal.detail.contains("1000 sites")));
        while registry.nodes.len() < NAMES_MAX {
            let name = registry.next;
            let mut node = registry.nodes[&NodeName(4)].clone();
            node.incarnation = Incarnation(u128::from(name.0) + 100_000);
            registry.nodes.insert(name, node);
            registry.next = NodeName(name.0 + 1);
        }
        assert!(admit(&mut registry, 5, "more").is_err_and(|why| why.contains("65536")));
    }
}
