//! The checks of every start, on every node: its version and its settings.
//!
//! A node's settings are its own and are told by it alone, so each node is asked. A node that is
//! down cannot be: then the rest decides, with a warning, and updates commit at `QUORUM`, which
//! needs nothing of it but Paxos v2.

use crate::driver::{What, brief, bytes, duration, of_database, rows, statement};
use crate::levels::Levels;
use crate::schema::join;
use crate::settings::Settings;
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError};
use scylla::policies::load_balancing::NodeIdentifier;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The settings that are looked at.
const NAMES: [&str; 16] = [
    "paxos_variant",
    "paxos_state_purging",
    "commitlog_sync",
    "commitlog_sync_period",
    "user_timestamps_enabled",
    "minimum_timestamp_fail_threshold",
    "maximum_timestamp_fail_threshold",
    "minimum_timestamp_warn_threshold",
    "maximum_timestamp_warn_threshold",
    "hinted_handoff_enabled",
    "max_hint_window",
    "cas_contention_timeout",
    "write_request_timeout",
    "read_request_timeout",
    "max_mutation_size",
    "native_transport_max_frame_size",
];

/// What a statement and a mutation have in them beside one value, in bytes, at most: its key, its
/// stamp, names.
const BESIDE_VALUE: u64 = 64 << 10;
/// The largest mutation, and the largest frame, of a node that does not tell: Cassandra's defaults.
const LARGEST: u64 = 16 << 20;

/// A node of the cluster that answered.
#[derive(Debug)]
pub(crate) struct Node {
    /// For statements to it alone.
    pub(crate) id: NodeIdentifier,
    /// `127.0.0.1:9042`.
    pub(crate) address: String,
    /// Its release.
    pub(crate) version: String,
    settings: BTreeMap<String, String>,
}

/// The cluster as it was found.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// Nodes that answered, by their identities, the lowest first.
    pub(crate) nodes: Vec<Node>,
    /// Addresses of those that did not.
    pub(crate) down: Vec<String>,
    /// Data centers, and how many nodes each has.
    pub(crate) centers: BTreeMap<String, u32>,
}

/// What the settings of all nodes come to.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) levels: Levels,
    pub(crate) warnings: Vec<String>,
    /// The largest value that every node takes, in bytes.
    pub(crate) value_max: usize,
}

/// Asks every node.
///
/// # Errors
/// One sentence: the data center is none, a node is too old or does not tell its settings.
pub(crate) async fn survey(session: &Session, settings: &Settings) -> Result<Cluster, String> {
    let state = session.get_cluster_state();
    let mut infos = state.get_nodes_info().to_vec();
    infos.sort_by_key(|node| node.host_id);
    let mut cluster = Cluster::default();
    for info in &infos {
        if let Some(center) = &info.datacenter {
            *cluster.centers.entry(center.clone()).or_default() += 1;
        }
        let address = format!("{}:{}", info.address.ip(), info.address.port());
        let id = NodeIdentifier::HostId(info.host_id);
        match ask(session, settings, &id, &address).await? {
            Some((version, found)) => {
                cluster.nodes.push(Node {
                    id,
                    address,
                    version,
                    settings: found,
                });
            }
            None => cluster.down.push(address),
        }
    }
    if !cluster.centers.contains_key(&settings.data_center) {
        return Err(format!(
            "the cluster has no data center '{}': set data_center to one of {}",
            settings.data_center,
            join(cluster.centers.keys())
        ));
    }
    if let Some(dc) = settings
        .replication
        .keys()
        .find(|dc| !cluster.centers.contains_key(*dc))
    {
        return Err(format!(
            "the replication names data center '{dc}', and the cluster has none of that name: it \
             has {}",
            join(cluster.centers.keys())
        ));
    }
    if cluster.nodes.is_empty() {
        return Err(format!(
            "no node of Cassandra at {} answers statements: check that they have finished starting",
            cluster.down.join(", ")
        ));
    }
    Ok(cluster)
}

/// One node's version and settings; none: it is down.
async fn ask(
    session: &Session,
    settings: &Settings,
    id: &NodeIdentifier,
    address: &str,
) -> Result<Option<(String, BTreeMap<String, String>)>, String> {
    let what = What::Reads("the read of its settings");
    let text = "SELECT release_version FROM system.local";
    let result = match session.query_unpaged(statement(text, Some(id)), &[]).await {
        Ok(result) => result,
        Err(_) => return Ok(None),
    };
    let version = rows(what, result)
        .map_err(|error| error.to_string())?
        .pop()
        .and_then(|mut row| row.text("release_version"))
        .ok_or_else(|| format!("the node {address} of Cassandra does not tell its version"))?;
    if !is_recent(&version) {
        return Err(format!(
            "the node {address} runs Cassandra {version}, whose conditional updates are not safe: \
             upgrade it to 4.1 or later"
        ));
    }
    let names = NAMES.map(|name| format!("'{name}'")).join(", ");
    let text = format!("SELECT name, value FROM system_views.settings WHERE name IN ({names})");
    let result = match session.query_unpaged(statement(&text, Some(id)), &[]).await {
        Ok(result) => result,
        Err(error) => return Err(untold(address, settings, &error)),
    };
    let found = rows(what, result)
        .map_err(|error| error.to_string())?
        .into_iter()
        .filter_map(|mut row| Some((row.text("name")?, row.text("value")?)))
        .filter(|(_, value)| !value.is_empty() && !value.eq_ignore_ascii_case("null"))
        .collect();
    Ok(Some((version, found)))
}

fn untold(address: &str, settings: &Settings, error: &ExecutionError) -> String {
    let role = settings.username.as_deref().unwrap_or("ROLE");
    match of_database(error) {
        Some((DbError::Unauthorized, _)) => format!(
            "the role {role} may not read the settings of node {address}: GRANT SELECT ON KEYSPACE \
             system_views TO {role}"
        ),
        _ => format!(
            "the node {address} of Cassandra does not tell its settings: {}",
            brief(error)
        ),
    }
}

/// Whether a release is 4.1 or later.
fn is_recent(version: &str) -> bool {
    let mut parts = version
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let major = parts.next().unwrap_or(0);
    (major, parts.next().unwrap_or(0)) >= (4, 1)
}

impl Node {
    fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn is_v2(&self) -> bool {
        self.get("paxos_variant")
            .is_some_and(|variant| variant.starts_with("v2"))
    }

    /// Refuses settings with which acknowledged writes would be refused, or lost, later on.
    fn check(&self) -> Result<(), String> {
        let address = &self.address;
        if self.get("user_timestamps_enabled") == Some("false") {
            return Err(format!(
                "the node {address} refuses writes that bring their stamps: set \
                 user_timestamps_enabled: true there"
            ));
        }
        for name in [
            "minimum_timestamp_fail_threshold",
            "maximum_timestamp_fail_threshold",
        ] {
            if let Some(value) = self.get(name) {
                return Err(format!(
                    "the node {address} refuses stamps that are far from its clock ({name}: \
                     {value}), and those of sections are: remove {name} there"
                ));
            }
        }
        Ok(())
    }

    /// The largest value that it takes.
    fn value_max(&self) -> u64 {
        let told = |name| self.get(name).and_then(bytes).unwrap_or(LARGEST);
        let most = told("max_mutation_size").min(told("native_transport_max_frame_size"));
        most.saturating_sub(BESIDE_VALUE).max(1)
    }

    /// What an operator should know of its settings.
    fn warnings(&self, settings: &Settings) -> Vec<String> {
        let address = &self.address;
        let mut warnings = Vec::new();
        if self.get("commitlog_sync") == Some("periodic") {
            let period = self.get("commitlog_sync_period").unwrap_or("some time");
            warnings.push(format!(
                "the node {address} acknowledges writes before they are on its disk \
                 (commitlog_sync: periodic, {period}): a power cut at a quorum of nodes loses \
                 acknowledged updates; batch or group do not"
            ));
        }
        for name in [
            "minimum_timestamp_warn_threshold",
            "maximum_timestamp_warn_threshold",
        ] {
            if let Some(value) = self.get(name) {
                warnings.push(format!(
                    "the node {address} warns of stamps that are far from its clock ({name}: \
                     {value}), as those of sections are: remove {name} there"
                ));
            }
        }
        if self.get("hinted_handoff_enabled") == Some("false") {
            warnings.push(format!(
                "the node {address} keeps no hints for nodes that are down: what they miss is \
                 repaired by reads and by repairs only"
            ));
        }
        let slowest = [
            "cas_contention_timeout",
            "write_request_timeout",
            "read_request_timeout",
        ]
        .iter()
        .filter_map(|name| self.get(name).and_then(duration))
        .max()
        .unwrap_or(Duration::ZERO);
        if settings.timeouts.request < slowest + Duration::from_secs(1) {
            warnings.push(format!(
                "statements are given up after {:?}, before the node {address} gives them up after \
                 {slowest:?}: set the request timeout to at least a second more",
                settings.timeouts.request
            ));
        }
        warnings
    }
}

impl Cluster {
    /// Judges the settings of all nodes together.
    ///
    /// # Errors
    /// One sentence that names the first node that will not do.
    pub(crate) fn judge(&self, settings: &Settings) -> Result<Verdict, String> {
        for node in &self.nodes {
            node.check()?;
        }
        let v1 = self.nodes.iter().find(|node| !node.is_v2());
        let v2 = self.nodes.iter().find(|node| node.is_v2());
        if let (Some(old), Some(new)) = (v1, v2) {
            return Err(format!(
                "the node {} runs Paxos v1 and the node {} v2, and updates of one row by both are \
                 not safe: set paxos_variant: v2 on every node",
                old.address, new.address
            ));
        }
        if let (Some(old), false) = (v1, settings.allow_paxos_v1) {
            return Err(format!(
                "the node {} runs Paxos v1: set paxos_variant: v2 on every node, or allow_paxos_v1 \
                 here, at a trip more per update and without safety while replicas change",
                old.address
            ));
        }
        let repaired = |node: &Node| node.get("paxos_state_purging") == Some("repaired");
        let levels = if v1.is_some() {
            Levels::V1
        } else if self.down.is_empty() && self.nodes.iter().all(repaired) {
            Levels::Repaired
        } else {
            Levels::Legacy
        };
        let mut warnings: Vec<String> = self
            .nodes
            .iter()
            .flat_map(|node| node.warnings(settings))
            .collect();
        if !self.down.is_empty() {
            warnings.push(format!(
                "the settings of nodes that are down could not be checked: {}; start again when \
                 they are up",
                self.down.join(", ")
            ));
        }
        if v1.is_some() {
            warnings.push(
                "Paxos v1 is allowed: updates cost a trip more, and are not safe while replicas of \
                 a key are added or replaced"
                    .to_owned(),
            );
        }
        let value_max = self.nodes.iter().map(Node::value_max).min();
        Ok(Verdict {
            levels,
            warnings,
            value_max: value_max.map_or(1, |max| usize::try_from(max).unwrap_or(usize::MAX)),
        })
    }

    /// All releases that run.
    pub(crate) fn versions(&self) -> String {
        let versions: BTreeSet<&String> = self.nodes.iter().map(|node| &node.version).collect();
        join(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, pairs: &[(&str, &str)]) -> Node {
        let settings = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Node {
            id: NodeIdentifier::NodeAddress(([127, 0, 0, 1], 9042).into()),
            address: address.to_owned(),
            version: "5.0.9".to_owned(),
            settings,
        }
    }

    fn settings() -> Settings {
        Settings::new(["127.0.0.1"], "dc1", "fermata", [("dc1", 3)])
    }

    fn judged(nodes: Vec<Node>, settings: &Settings) -> Result<Verdict, String> {
        Cluster {
            nodes,
            ..Cluster::default()
        }
        .judge(settings)
    }

    const V1: [(&str, &str); 1] = [("paxos_variant", "v1")];
    const V2: [(&str, &str); 1] = [("paxos_variant", "v2")];
    const REPAIRED: [(&str, &str); 2] =
        [("paxos_variant", "v2"), ("paxos_state_purging", "repaired")];

    #[test]
    fn levels_follow_the_weakest_node() {
        let levels = |nodes| judged(nodes, &settings()).unwrap().levels;
        assert_eq!(
            levels(vec![node("a", &REPAIRED), node("b", &REPAIRED)]),
            Levels::Repaired
        );
        assert_eq!(
            levels(vec![node("a", &REPAIRED), node("b", &V2)]),
            Levels::Legacy
        );
        let down = Cluster {
            nodes: vec![node("a", &REPAIRED)],
            down: vec!["b".into()],
            ..Cluster::default()
        };
        let verdict = down.judge(&settings()).unwrap();
        assert_eq!(verdict.levels, Levels::Legacy);
        assert!(verdict.warnings[0].contains("could not be checked"));
    }

    #[test]
    fn paxos_v1_is_refused_and_mixtures_always() {
        let allowed = Settings {
            allow_paxos_v1: true,
            ..settings()
        };
        let refused = judged(vec![node("a", &V1)], &settings()).unwrap_err();
        assert!(refused.contains("the node a runs Paxos v1"), "{refused}");
        assert_eq!(
            judged(vec![node("a", &V1)], &allowed).unwrap().levels,
            Levels::V1
        );
        let mixed = judged(vec![node("a", &V2), node("b", &V1)], &allowed).unwrap_err();
        assert!(
            mixed.contains("the node b runs Paxos v1 and the node a v2"),
            "{mixed}"
        );
        assert!(
            judged(vec![node("a", &[])], &settings()).is_err(),
            "not told: v1"
        );
    }

    #[test]
    fn guards_against_stamps_are_refused() {
        for (name, value) in [
            ("user_timestamps_enabled", "false"),
            ("minimum_timestamp_fail_threshold", "1d"),
            ("maximum_timestamp_fail_threshold", "1h"),
        ] {
            let node = node("a", &[("paxos_variant", "v2"), (name, value)]);
            let refused = judged(vec![node], &settings()).unwrap_err();
            assert!(
                refused.contains("the node a") && refused.contains(name),
                "{refused}"
            );
        }
    }

    #[test]
    fn values_are_as_large_as_the_smallest_node_takes() {
        let value_max = |pairs: &[(&str, &str)]| {
            let pairs = [&V2[..], pairs].concat();
            let nodes = vec![node("a", &V2), node("b", &pairs)];
            judged(nodes, &settings()).unwrap().value_max
        };
        assert_eq!(value_max(&[]), (16 << 20) - (64 << 10));
        let small = [("max_mutation_size", "1024KiB")];
        assert_eq!(value_max(&small), (1 << 20) - (64 << 10));
        let frames = [("native_transport_max_frame_size", "2MiB")];
        assert_eq!(value_max(&frames), (2 << 20) - (64 << 10));
    }

    #[test]
    fn what_is_worth_a_word_is_a_warning() {
        let node = node(
            "a",
            &[
                ("paxos_variant", "v2"),
                ("commitlog_sync", "periodic"),
                ("minimum_timestamp_warn_threshold", "1d"),
                ("hinted_handoff_enabled", "false"),
                ("write_request_timeout", "10s"),
            ],
        );
        let warnings = judged(vec![node], &settings()).unwrap().warnings;
        assert_eq!(warnings.len(), 4, "{warnings:?}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, recent) in [
            ("4.1.0", true),
            ("4.1-beta1", true),
            ("5.0.9", true),
            ("10.0", true),
            ("4.0.12", false),
            ("3.11.3", false),
            ("", false),
        ] {
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }
}
