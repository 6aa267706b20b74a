//! What `fermata dev` starts: sites, nodes, groups, ports. Pure.

use std::net::{Ipv4Addr, SocketAddr};

use fermata_server::EngineConfig;
use serde::{Deserialize, Serialize};

/// Ports per node: gRPC, REST, peers, and room for later ones.
const PORTS_PER_NODE: u16 = 10;

/// Members of one group.
const GROUP_NODES_MAX: u16 = 13;

/// A development cluster. What is stored of it makes it resume; ports are chosen at each start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// 128 random bits in hexadecimal.
    pub(crate) cluster_id: String,
    /// Names of the sites.
    pub(crate) sites: Vec<String>,
    /// Nodes at each site.
    pub(crate) nodes_per_site: u8,
    /// The ring has 2^bits segments.
    pub(crate) segment_bits: u8,
    /// Delays between sites: a profile's name or a file.
    pub(crate) rtt: String,
    /// What the clocks' error is promised to be at most, microseconds; none: the kernel is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock_bound_us: Option<u64>,
    /// Whether nodes speak TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls: bool,
    /// The engine, if not the native one; but for a password.
    #[serde(default, skip_serializing_if = "EngineConfig::is_default")]
    pub(crate) engine: EngineConfig,
}

/// One node of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedNode {
    /// Its number.
    pub(crate) index: u16,
    /// What people call it.
    pub(crate) label: String,
    /// Index of its site.
    pub(crate) site: u16,
    /// Where its peers find it.
    pub(crate) peer: SocketAddr,
    /// Where gRPC listens.
    pub(crate) grpc: SocketAddr,
    /// Where REST listens.
    pub(crate) rest: SocketAddr,
}

/// One group of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedGroup {
    /// First segment of its arc.
    pub(crate) from: u32,
    /// Last segment of its arc, included.
    pub(crate) to: u32,
    /// Indices of its nodes, by seat.
    pub(crate) nodes: Vec<u16>,
}

/// What a person asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) sites: Option<u8>,
    pub(crate) nodes_per_site: Option<u8>,
    pub(crate) segments: Option<u32>,
    pub(crate) rtt: Option<String>,
    pub(crate) clock_bound_us: Option<u64>,
    pub(crate) tls: bool,
    pub(crate) engine: EngineConfig,
}

impl Wishes {
    /// The data centers with copies, where they are to be the sites.
    fn centers(&self) -> Option<Vec<String>> {
        let named = self.engine.data_center.is_none() && self.sites.is_none();
        let centers: Vec<String> = self.engine.replication.keys().cloned().collect();
        (named && centers.len() > 1).then_some(centers)
    }
}

impl Plan {
    /// A new plan. `profile_sites` are the names of the sites of the delay profile, if it has any.
    ///
    /// # Errors
    /// A sentence: what cannot be, and what to do.
    pub(crate) fn new(
        wishes: &Wishes,
        profile_sites: &[String],
        cluster_id: u128,
    ) -> Result<Plan, String> {
        let rtt = wishes.rtt.clone().unwrap_or_else(|| "none".to_owned());
        let centers = wishes.centers();
        let profile_sites = centers.as_deref().unwrap_or(profile_sites);
        let sites = match (wishes.sites, profile_sites) {
            (None, []) => numbered_sites(3),
            (Some(count), []) => numbered_sites(count),
            (None, names) => names.to_vec(),
            (Some(count), names) if usize::from(count) <= names.len() => {
                names[..usize::from(count)].to_vec()
            }
            (Some(count), names) => {
                return Err(format!(
                    "the delays `{rtt}` are between {} sites, not {count}: leave out --sites or \
                     give other delays",
                    names.len()
                ));
            }
        };
        let plan = Plan {
            cluster_id: format!("{cluster_id:032x}"),
            sites,
            nodes_per_site: wishes.nodes_per_site.unwrap_or(1),
            segment_bits: segment_bits(wishes.segments.unwrap_or(16))?,
            rtt,
            clock_bound_us: wishes.clock_bound_us,
            tls: wishes.tls,
            engine: wishes.engine.clone(),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Takes a stored plan up again.
    ///
    /// # Errors
    /// A sentence, when what is wished for contradicts what is stored.
    pub(crate) fn resumed(mut self, wishes: &Wishes) -> Result<Plan, String> {
        let sites = wishes.sites.map(usize::from).unwrap_or(self.sites.len());
        let nodes = wishes.nodes_per_site.unwrap_or(self.nodes_per_site);
        let bits = match wishes.segments {
            Some(segments) => segment_bits(segments)?,
            None => self.segment_bits,
        };
        if (sites, nodes, bits) != (self.sites.len(), self.nodes_per_site, self.segment_bits) {
            return Err(format!(
                "the directory holds a cluster of {} sites with {} nodes each and {} segments: \
                 leave out --sites, --nodes-per-site and --segments, or choose another directory",
                self.sites.len(),
                self.nodes_per_site,
                1_u32 << self.segment_bits
            ));
        }
        if wishes.engine.kind != self.engine.kind && !wishes.engine.is_default() {
            return Err(format!(
                "the directory holds a cluster of engine {}: leave out --engine, or choose another \
                 directory",
                self.engine.kind.name()
            ));
        }
        if !wishes.engine.is_default() {
            self.engine.clone_from(&wishes.engine);
        }
        if let Some(rtt) = &wishes.rtt {
            self.rtt.clone_from(rtt);
        }
        self.clock_bound_us = wishes.clock_bound_us.or(self.clock_bound_us);
        self.tls |= wishes.tls;
        self.check()?;
        Ok(self)
    }

    /// The engine of a node: at a site that is a data center with copies, that one is its nearest.
    pub(crate) fn engine_of(&self, node: &PlannedNode) -> EngineConfig {
        let mut engine = self.engine.clone();
        let site = &self.sites[usize::from(node.site)];
        if engine.data_center.is_none() && engine.replication.contains_key(site) {
            engine.data_center = Some(site.clone());
        }
        engine
    }

    fn check(&self) -> Result<(), String> {
        let group = self.group_nodes();
        if group > GROUP_NODES_MAX {
            return Err(format!(
                "a group of {group} nodes is too large: at most {GROUP_NODES_MAX} nodes together \
                 while there are fewer than three sites"
            ));
        }
        let groups = self.nodes().count() as u32 / u32::from(group.max(1));
        if groups > 1 << self.segment_bits {
            return Err(format!(
                "{groups} groups need as many segments: give --segments {}",
                groups.next_power_of_two()
            ));
        }
        Ok(())
    }

    /// Members of each group.
    fn group_nodes(&self) -> u16 {
        let sites = self.sites.len() as u16;
        if sites >= 3 {
            sites
        } else {
            sites * u16::from(self.nodes_per_site)
        }
    }

    /// (index, site, number within the site) of each node: the first nodes of all sites, then the
    /// second ones, so that the first ports are those of different sites.
    fn nodes(&self) -> impl Iterator<Item = (u16, u16, u16)> + use<> {
        let sites = self.sites.len() as u16;
        let all = sites * u16::from(self.nodes_per_site);
        (0..all).map(move |index| (index, index % sites, index / sites + 1))
    }

    /// The nodes with their ports.
    ///
    /// # Errors
    /// A sentence, when there are not enough ports above `base_port`.
    pub(crate) fn nodes_at(&self, base_port: u16) -> Result<Vec<PlannedNode>, String> {
        let port = |index: u16, offset: u16| {
            let above = index.checked_mul(PORTS_PER_NODE)?.checked_add(offset)?;
            let port = base_port.checked_add(above).filter(|_| base_port > 0)?;
            Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        };
        let node = |(index, site, number): (u16, u16, u16)| {
            Some(PlannedNode {
                index,
                label: format!("{}-{number}", self.sites[usize::from(site)]),
                site,
                grpc: port(index, 0)?,
                rest: port(index, 1)?,
                peer: port(index, 2)?,
            })
        };
        let nodes: Option<Vec<PlannedNode>> = self.nodes().map(node).collect();
        nodes.ok_or_else(|| {
            format!(
                "there are not enough ports from {base_port} on for {} nodes: choose another \
                 --base-port",
                self.nodes().count()
            )
        })
    }

    /// The groups. From three sites on, the i-th nodes of all sites are a group, and the groups
    /// share the ring equally; below, one group has all nodes.
    pub(crate) fn groups(&self) -> Vec<PlannedGroup> {
        let size = self.group_nodes();
        let all: Vec<u16> = self.nodes().map(|(index, ..)| index).collect();
        let members: Vec<&[u16]> = all.chunks(usize::from(size)).collect();
        let (segments, count) = (1_u64 << self.segment_bits, members.len() as u64);
        let start = |group: u64| (segments * group / count) as u32;
        let group = |(index, nodes): (usize, &&[u16])| PlannedGroup {
            from: start(index as u64),
            to: start(index as u64 + 1) - 1,
            nodes: nodes.to_vec(),
        };
        members.iter().enumerate().map(group).collect()
    }
}

fn numbered_sites(count: u8) -> Vec<String> {
    (1..=count).map(|number| format!("site{number}")).collect()
}

fn segment_bits(segments: u32) -> Result<u8, String> {
    if segments.is_power_of_two() && segments <= 1 << 16 {
        Ok(segments.trailing_zeros() as u8)
    } else {
        Err("--segments is a power of two, at most 65536".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sites: u8, nodes_per_site: u8) -> Plan {
        let wishes = Wishes {
            sites: Some(sites),
            nodes_per_site: Some(nodes_per_site),
            ..Wishes::default()
        };
        Plan::new(&wishes, &[], 7).unwrap()
    }

    #[test]
    fn three_sites_with_two_nodes_are_two_groups_over_all_sites() {
        let plan = plan(3, 2);
        let nodes = plan.nodes_at(7100).unwrap();
        assert_eq!(nodes.len(), 6);
        let groups = plan.groups();
        assert_eq!(groups.len(), 2);
        assert_eq!((groups[0].from, groups[0].to), (0, 7));
        assert_eq!((groups[1].from, groups[1].to), (8, 15));
        for group in &groups {
            let mut sites: Vec<u16> = (group.nodes.iter())
                .map(|&index| nodes[usize::from(index)].site)
                .collect();
            sites.sort_unstable();
            assert_eq!(sites, [0, 1, 2]);
        }
        assert_eq!(nodes[3].label, "site1-2");
    }

    #[test]
    fn arcs_cover_the_ring_without_overlap() {
        for nodes_per_site in 1..=7 {
            let groups = plan(3, nodes_per_site).groups();
            assert_eq!(groups.len(), usize::from(nodes_per_site));
            assert_eq!(groups[0].from, 0);
            assert_eq!(groups[groups.len() - 1].to, 15);
            assert!(groups.windows(2).all(|pair| pair[0].to + 1 == pair[1].from));
        }
    }

    #[test]
    fn fewer_sites_are_one_group() {
        assert_eq!(plan(1, 1).groups().len(), 1);
        assert_eq!(plan(2, 2).groups()[0].nodes, [0, 1, 2, 3]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wish = |sites, nodes, segments| {
            let wishes = Wishes {
                sites: Some(sites),
                nodes_per_site: Some(nodes),
                segments: Some(segments),
                ..Wishes::default()
            };
            Plan::new(&wishes, &[], 0)
        };
        assert!(wish(2, 7, 16).is_err());
        assert!(wish(3, 3, 2).is_err());
        assert!(wish(3, 1, 3).is_err());
        assert!(wish(3, 1, 0).is_err());
        assert!(plan(3, 1).nodes_at(65_520).is_err());
        assert!(plan(3, 1).nodes_at(0).is_err());
    }

    #[test]
    fn a_profile_names_the_sites() {
        let names = ["ohio".to_owned(), "oregon".to_owned()];
        let mut wishes = Wishes {
            rtt: Some("lUs".into()),
            ..Wishes::default()
        };
        assert_eq!(Plan::new(&wishes, &names, 0).unwrap().sites, names);
        wishes.sites = Some(3);
        assert!(Plan::new(&wishes, &names, 0).is_err());
    }

    #[test]
    fn a_stored_plan_is_resumed_unless_contradicted() {
        let stored = plan(3, 2);
        let nothing = Wishes::default();
        assert_eq!(stored.clone().resumed(&nothing).unwrap(), stored);
        let bound = Wishes {
            clock_bound_us: Some(5_000),
            ..Wishes::default()
        };
        let bounded = stored.clone().resumed(&bound).unwrap();
        assert_eq!(bounded.clone().resumed(&nothing).unwrap(), bounded);
        assert_eq!(bounded.clock_bound_us, Some(5_000));
        let other = Wishes {
            sites: Some(5),
            ..Wishes::default()
        };
        assert!(stored.resumed(&other).is_err());
    }
}
