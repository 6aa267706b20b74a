//! `fermata server init`: the files of a new cluster.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fermata_server::ServerConfig;
use fermata_server::config::{ClientCertificates, ClusterConfig, NodeConfig, TlsConfig};
use fermata_tls::Name;
use serde::Serialize;

use crate::certs::{self, AUTHORITY_DAYS, Desk};
use crate::commands::cert::hosts;
use crate::dev::random_id;
use crate::exit::Failure;
use crate::output;

/// Where a node listens unless told otherwise: for gRPC, then REST and peers at the next two.
const PORT: u16 = 7100;

/// See `fermata server init --help`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    /// One for each machine: what people call the node, its site, and at which host others reach
    /// it. It takes three ports from PORT on (7100): for gRPC, REST and peers.
    #[arg(long = "node", value_name = "LABEL@SITE=HOST[:PORT]", required = true)]
    nodes: Vec<String>,
    /// Where the files go; created if absent.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The ring has 2^N segments, for ever: a few times as many as there will be nodes.
    #[arg(long, value_name = "N", default_value_t = 6)]
    segment_bits: u8,
    /// Have the nodes listen beyond loopback in clear, where whoever reaches them may do anything.
    #[arg(long, conflicts_with = "tls")]
    insecure: bool,
    /// Have the nodes speak TLS alone: makes an authority, and certificates for each node and for
    /// one client, in DIR/tls.
    #[arg(long)]
    tls: bool,
}

/// What the certificate of the first client is called.
const CLIENT: &str = "admin";

/// Writes the cluster's file and one for each node.
pub(crate) fn run(args: &InitArgs) -> Result<(), Failure> {
    let nodes = args.nodes.iter().zip(1..);
    let nodes = nodes.map(|(text, name)| node(text, name));
    let nodes = nodes
        .collect::<Result<Vec<NodeConfig>, String>>()
        .map_err(Failure::usage)?;
    let mut taken = BTreeSet::new();
    for address in nodes
        .iter()
        .flat_map(|node| [&node.grpc, &node.rest, &node.peer])
    {
        if !taken.insert(address) {
            return Err(Failure::usage(format!(
                "two nodes would listen at {address}, and each takes three ports: give them others"
            )));
        }
    }
    let cluster = ClusterConfig {
        id: format!("{:032x}", random_id()?),
        segment_bits: args.segment_bits,
        lowest_ref: 1,
        sites: sites_of(&nodes),
        nodes: nodes.clone(),
        groups: Vec::new(),
    };
    let configs = nodes.iter().map(|node| ServerConfig {
        cluster_file: Some("cluster.toml".into()),
        insecure: args.insecure,
        tls: match args.tls {
            true => tls_of(&node.label),
            false => TlsConfig::default(),
        },
        ..ServerConfig::new(&node.label, PathBuf::from(&node.label), cluster.clone())
    });
    let configs: Vec<ServerConfig> = configs.collect();
    // Now, so that a mistake is one sentence here and not a death on some machine.
    for config in &configs {
        let whole = ServerConfig {
            cluster_file: None,
            ..config.clone()
        };
        whole.resolve().map_err(Failure::usage)?;
    }
    if args.tls {
        check_labels(&nodes)?;
    }
    let failed = |error| Failure::local(args.dir.display(), error);
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    let mut written = vec![new_file(&args.dir, "cluster", &cluster)?];
    let mut copied = "cluster.toml and its own file".to_owned();
    if args.tls {
        let tls = certificates(&args.dir.join(TLS), &cluster)?;
        written.push(tls.display().to_string());
        copied = "cluster.toml, its own file and, in tls, ca.pem, LABEL.pem and LABEL.key".into();
    }
    for config in configs {
        let config = ServerConfig {
            cluster: None,
            ..config
        };
        written.push(new_file(&args.dir, &config.node.clone(), &config)?);
    }
    output::text(format!(
        "wrote {}\ncopy {copied} to each machine; there: fermata server --config LABEL.toml",
        written.join(" ")
    ))
}

/// The sites, in the order in which nodes name them.
fn sites_of(nodes: &[NodeConfig]) -> Vec<String> {
    let mut sites: Vec<String> = Vec::new();
    for node in nodes {
        if !sites.contains(&node.site) {
            sites.push(node.site.clone());
        }
    }
    sites
}

/// Refuses labels that cannot be those of certificates, before anything is written.
fn check_labels(nodes: &[NodeConfig]) -> Result<(), Failure> {
    for node in nodes {
        certs::check(&node.label)?;
        if node.label == CLIENT {
            let sentence = format!("{CLIENT:?} is the first client: choose another label");
            return Err(Failure::usage(sentence));
        }
    }
    Ok(())
}

/// Where certificates are, beside a node's file.
const TLS: &str = "tls";

fn tls_of(label: &str) -> TlsConfig {
    let [ca, certificate, key] = certs::paths(Path::new(TLS), label);
    TlsConfig {
        ca: Some(ca),
        certificate: Some(certificate),
        key: Some(key),
        clients: ClientCertificates::default(),
    }
}

/// An authority, and what it signs for all nodes and one client.
fn certificates(dir: &Path, cluster: &ClusterConfig) -> Result<PathBuf, Failure> {
    let id = u128::from_str_radix(&cluster.id, 16).map_err(Failure::internal)?;
    let desk = Desk::make(dir, &format!("Fermata {}", cluster.id), AUTHORITY_DAYS)?;
    for node in &cluster.nodes {
        let name = Name::Node {
            cluster: id,
            label: node.label.clone(),
        };
        desk.sign(&name, &hosts([&node.grpc, &node.rest]), None, false)?;
    }
    let client = Name::Client {
        cluster: id,
        name: CLIENT.to_owned(),
    };
    desk.sign(&client, &[], None, false)?;
    Ok(dir.to_owned())
}

/// `LABEL@SITE=HOST[:PORT]`.
fn node(text: &str, name: u32) -> Result<NodeConfig, String> {
    let wrong = || format!("--node {text:?} is not LABEL@SITE=HOST[:PORT], as in a1@ohio=10.0.0.1");
    let (named, at) = text.split_once('=').ok_or_else(wrong)?;
    let (label, site) = named.split_once('@').ok_or_else(wrong)?;
    // An address of version 6 has colons of its own, in brackets.
    let (host, port) = match at.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
        _ => (at, PORT),
    };
    // A label names a file.
    let plain = |text: &str| !text.is_empty() && !text.contains(['/', '\\', '=', '@']);
    if !plain(label) || !plain(site) || host.is_empty() || port > u16::MAX - 2 {
        return Err(wrong());
    }
    let at = |more: u16| format!("{host}:{}", port + more);
    Ok(NodeConfig {
        name,
        label: label.to_owned(),
        site: site.to_owned(),
        grpc: at(0),
        rest: at(1),
        peer: at(2),
    })
}

/// Writes a file that is not there yet: another cluster's is not overwritten.
fn new_file(dir: &Path, name: &str, what: &impl Serialize) -> Result<String, Failure> {
    let path = dir.join(format!("{name}.toml"));
    if path.exists() {
        let sentence = format!("{} is there already: choose another --dir", path.display());
        return Err(Failure::usage(sentence));
    }
    let text = toml::to_string(what).map_err(Failure::internal)?;
    std::fs::write(&path, text).map_err(|error| Failure::local(path.display(), error))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dir: &Path, nodes: &[&str]) -> InitArgs {
        InitArgs {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            dir: dir.to_owned(),
            segment_bits: 4,
            insecure: false,
            tls: false,
        }
    }

    #[test]
    fn with_certificates_nodes_listen_anywhere_and_show_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = ["a@ohio=10.0.0.1", "b@oregon=10.0.0.2"];
        let secured = InitArgs {
            tls: true,
            ..args(dir.path(), &nodes)
        };
        run(&secured).unwrap();
        for label in ["a", "b"] {
            let read = ServerConfig::load(&dir.path().join(format!("{label}.toml"))).unwrap();
            let tls = read.resolve().unwrap().tls.expect("it has certificates");
            tls.read().unwrap();
        }
    }

    #[test]
    fn what_is_written_is_what_servers_read() {
        let dir = tempfile::tempdir().unwrap();
        let nodes = [
            "a@ohio=127.0.0.1",
            "b@oregon=127.0.0.1:7200",
            "c@ohio=[::1]:7300",
        ];
        run(&args(dir.path(), &nodes)).unwrap();
        for (label, grpc) in [("a", 7100), ("b", 7200), ("c", 7300)] {
            let read = ServerConfig::load(&dir.path().join(format!("{label}.toml"))).unwrap();
            let resolved = read.resolve().unwrap();
            assert_eq!(resolved.listen_grpc.port(), grpc);
            assert_eq!(resolved.own.label, label);
            assert_eq!(resolved.config.cluster.groups[0].view.len(), 3);
        }
        let again = run(&args(dir.path(), &nodes)).unwrap_err();
        assert!(again.sentence.contains("there already"), "{again}");
    }

    #[test]
    fn a_mistake_is_said_and_nothing_is_written() {
        let wrong = [
            &["a=127.0.0.1"][..],
            &["a@ohio"],
            &["a@ohio=127.0.0.1:port"],
            &["a@ohio=127.0.0.1:65534"],
            &["../a@ohio=127.0.0.1"],
            &["a@ohio=127.0.0.1", "a@ohio=127.0.0.1:7200"],
            &["a@ohio=10.0.0.1"],
        ];
        for nodes in wrong {
            let dir = tempfile::tempdir().unwrap();
            let failure = run(&args(dir.path(), nodes)).expect_err(nodes[0]);
            assert_eq!(failure.exit, crate::exit::Exit::Usage, "{failure}");
            assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{nodes:?}");
        }
    }
}
