//! The files of a development cluster, all readable and all of a kind that anybody could write:
//!
//! ```text
//! DIR/dev.json            the plan: what makes the cluster resume
//! DIR/cluster.toml        the cluster file, the same for all nodes
//! DIR/ohio-1.toml         a node's configuration: `fermata server --config` takes it
//! DIR/ohio-1.log          its output
//! DIR/ohio-1/             its data
//! DIR/tls/                certificates and keys, with `--tls`
//! ```

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fermata_server::config::TlsConfig;
use fermata_server::config::{ClockConfig, ClusterConfig, GroupConfig, NodeConfig, ServerConfig};
use fermata_server::wan::Profile;
use fermata_tls::{Files, Name};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, PlannedNode};
use crate::certs::{self, AUTHORITY_DAYS, Desk};
use crate::exit::Failure;

/// Where one node's files are.
pub(super) struct NodeFiles {
    pub(super) config: PathBuf,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
}

/// `dev.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    plan: Plan,
}

/// Where certificates are.
const TLS: &str = "tls";
/// What clients show.
const CLIENT: &str = "client";

/// Of `dev.json`.
const VERSION: u32 = 1;

fn plan_path(folder: &Path) -> PathBuf {
    folder.join("dev.json")
}

/// The plan stored in `folder`, if there is one.
///
/// # Errors
/// It cannot be read, or `folder` has other things in it and no plan.
pub(super) fn load_plan(folder: &Path) -> Result<Option<Plan>, Failure> {
    let path = plan_path(folder);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut entries = std::fs::read_dir(folder)
                .map_err(|error| Failure::local(folder.display(), error))?;
            if entries.next().is_some() {
                return Err(Failure::usage(format!(
                    "{} is neither empty nor a cluster of `fermata dev`: choose another --data",
                    folder.display()
                )));
            }
            return Ok(None);
        }
        Err(error) => return Err(Failure::local(path.display(), error)),
    };
    let stored: Stored =
        serde_json::from_str(&text).map_err(|error| Failure::local(path.display(), error))?;
    if stored.version != VERSION {
        return Err(Failure::usage(format!(
            "{} has version {}, this program reads version {VERSION}",
            path.display(),
            stored.version
        )));
    }
    Ok(Some(stored.plan))
}

/// Stores the plan, whole or not at all.
pub(super) fn store_plan(folder: &Path, plan: &Plan) -> Result<(), Failure> {
    let stored = Stored {
        version: VERSION,
        plan: plan.clone(),
    };
    let text = serde_json::to_string_pretty(&stored).map_err(Failure::internal)?;
    replace(&plan_path(folder), &text)
}

/// Writes the cluster file and a configuration per node.
pub(super) fn write(
    plan: &Plan,
    nodes: &[PlannedNode],
    folder: &Path,
) -> Result<Vec<NodeFiles>, Failure> {
    let cluster = folder.join("cluster.toml");
    replace(&cluster, &as_toml(&cluster_config(plan, nodes))?)?;
    let desk = plan.tls.then(|| desk(plan, folder)).transpose()?;
    let mut files = Vec::new();
    for node in nodes {
        let path = |end: &str| folder.join(format!("{}{end}", node.label));
        let (config, data, log) = (path(".toml"), path(""), path(".log"));
        let server = ServerConfig {
            node: node.label.clone(),
            data_dir: match plan.engine.is_default() {
                true => data.clone(),
                // What it keeps is in the engine's stores.
                false => Default::default(),
            },
            address: None,
            reach: Default::default(),
            join: Default::default(),
            listen_peer: None,
            listen_grpc: None,
            listen_rest: None,
            insecure: false,
            rtt: plan.rtt.clone(),
            log_format: Default::default(),
            log_level: Default::default(),
            cluster_file: Some(cluster.clone()),
            timing: Default::default(),
            limits: Default::default(),
            clients: Default::default(),
            clock: ClockConfig {
                bound_us: plan.clock_bound_us,
                ..ClockConfig::default()
            },
            tls: match &desk {
                Some(desk) => certificates(desk, plan, node)?,
                None => TlsConfig::default(),
            },
            jwt: Default::default(),
            audit: Default::default(),
            engine: plan.engine_of(node),
            cluster: None,
        };
        // Now, so that a mistake is one sentence here and not a death in a log.
        server.resolve().map_err(Failure::usage)?;
        replace(&config, &as_toml(&server)?)?;
        files.push(NodeFiles { config, data, log });
    }
    Ok(files)
}

/// What clients of a cluster show that speaks TLS, and whom they trust.
pub(super) fn client(plan: &Plan, folder: &Path) -> Option<Files> {
    let [ca, certificate, key] = certs::paths(&folder.join(TLS), CLIENT);
    plan.tls.then_some(Files {
        ca,
        own: Some((certificate, key)),
    })
}

/// The cluster's authority, which is kept with it; and what it signs for clients.
fn desk(plan: &Plan, folder: &Path) -> Result<Desk, Failure> {
    let dir = folder.join(TLS);
    let [ca, ..] = certs::paths(&dir, CLIENT);
    let desk = match ca.exists() {
        true => Desk::open(&dir)?,
        false => Desk::make(&dir, "fermata dev", AUTHORITY_DAYS)?,
    };
    let client = Name::Client {
        cluster: cluster_id(plan)?,
        name: CLIENT.to_owned(),
    };
    desk.sign(&client, &[], None, true)?;
    Ok(desk)
}

/// A node's certificate, made anew at each start.
fn certificates(desk: &Desk, plan: &Plan, node: &PlannedNode) -> Result<TlsConfig, Failure> {
    let name = Name::Node {
        cluster: cluster_id(plan)?,
        label: node.label.clone(),
    };
    let hosts = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let files = desk.sign(&name, &hosts, None, true)?;
    let (certificate, key) = files.own.unzip();
    Ok(TlsConfig {
        ca: Some(files.ca),
        certificate,
        key,
        ..TlsConfig::default()
    })
}

fn cluster_id(plan: &Plan) -> Result<u128, Failure> {
    u128::from_str_radix(&plan.cluster_id, 16).map_err(Failure::internal)
}

fn cluster_config(plan: &Plan, nodes: &[PlannedNode]) -> ClusterConfig {
    // Numbers of nodes start at 1, as people count.
    let number = |index: u16| u32::from(index) + 1;
    let node = |node: &PlannedNode| NodeConfig {
        name: number(node.index),
        label: node.label.clone(),
        site: plan.sites[usize::from(node.site)].clone(),
        peer: node.peer.to_string(),
        grpc: node.grpc.to_string(),
        rest: node.rest.to_string(),
    };
    let groups = plan.groups().into_iter().enumerate();
    let group = |(index, group): (usize, super::plan::PlannedGroup)| GroupConfig {
        id: format!("{:032x}", index + 1),
        from: group.from,
        to: group.to,
        members: group.nodes.iter().map(|&index| number(index)).collect(),
    };
    ClusterConfig {
        id: plan.cluster_id.clone(),
        segment_bits: plan.segment_bits,
        lowest_ref: 1,
        sites: plan.sites.clone(),
        nodes: nodes.iter().map(node).collect(),
        groups: groups.map(group).collect(),
    }
}

fn as_toml(value: &impl Serialize) -> Result<String, Failure> {
    toml::to_string(value).map_err(Failure::internal)
}

/// Writes beside the file and renames, so that a reader finds the old text or the new one.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| Failure::local(format_args!("writing {}", path.display()), error))
}

/// What the sites of a delay profile are called; none where it names no sites.
///
/// # Errors
/// No such profile.
pub(super) fn profile_sites(rtt: Option<&str>) -> Result<Vec<String>, Failure> {
    let name = rtt.unwrap_or("none");
    let profile = Profile::named(name).map_err(Failure::usage)?;
    let names: &[&str] = match name {
        "l1" => &["ohio", "ohio-b", "virginia"],
        "lUs" => &["ohio", "california", "oregon"],
        "lUsEu" => &["ohio", "california", "frankfurt"],
        _ => {
            let sites = profile.sites().unwrap_or(0);
            return Ok((1..=sites).map(|number| format!("site{number}")).collect());
        }
    };
    Ok(names.iter().map(|&name| name.to_owned()).collect())
}

/// 128 random bits from the operating system.
pub(crate) fn random_id() -> Result<u128, Failure> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Failure::local("/dev/urandom", error))?;
    Ok(u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::plan::Wishes;

    fn plan(sites: u8, nodes_per_site: u8) -> Plan {
        let wishes = Wishes {
            sites: Some(sites),
            nodes_per_site: Some(nodes_per_site),
            ..Wishes::default()
        };
        Plan::new(&wishes, &[], 0xabc).unwrap()
    }

    #[test]
    fn what_is_written_is_what_a_server_reads() {
        for (sites, nodes) in [(1, 1), (2, 2), (3, 2), (5, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let plan = plan(sites, nodes);
            let planned = plan.nodes_at(7100).unwrap();
            let written = write(&plan, &planned, folder.path()).unwrap();
            for (node, files) in planned.iter().zip(written) {
                let read = ServerConfig::load(&files.config).unwrap();
                let resolved = read.resolve().unwrap();
                assert_eq!(resolved.listen_grpc, node.grpc);
                assert_eq!(resolved.config.cluster.groups.len(), plan.groups().len());
            }
        }
    }

    #[test]
    fn a_plan_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load_plan(folder.path()).unwrap().is_none());
        let plan = plan(3, 1);
        store_plan(folder.path(), &plan).unwrap();
        assert_eq!(load_plan(folder.path()).unwrap(), Some(plan));
    }

    #[test]
    fn a_strange_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("thesis.tex"), "dear").unwrap();
        assert_eq!(
            load_plan(folder.path()).unwrap_err().exit,
            crate::exit::Exit::Usage
        );
    }

    #[test]
    fn profiles_name_their_sites() {
        assert_eq!(profile_sites(Some("lUsEu")).unwrap()[2], "frankfurt");
        assert!(profile_sites(None).unwrap().is_empty());
        assert!(profile_sites(Some("/no/such/file")).is_err());
    }
}
