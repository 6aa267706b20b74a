//! Real servers for the tests, and settings for them.

use fermata_cassandra::Settings;
use fermata_peers::{Cluster, Commitlog, Spec, System};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Sessions belong to the runtime that they were opened on, so all tests share one.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// How long servers try.
const BUSY: &str = "20s";

/// What every test asks for: `nodes` nodes from 127.0.`net`.1 on, each with a data center of its
/// own, small, and sure of what they acknowledge.
pub(crate) fn spec(nodes: u8, net: u8) -> Spec {
    let mut spec = Spec::new(System::Cassandra, nodes);
    spec.base = Some(Ipv4Addr::new(127, 0, net, 1));
    spec.quick = true;
    spec.dcs = true;
    spec.commitlog = Commitlog::Group;
    // Whatever the machine is busy with besides.
    for what in ["read", "write", "range"] {
        spec = spec.with(&format!("{what}_request_timeout"), BUSY);
    }
    spec.with("cas_contention_timeout", BUSY)
}

/// Starts servers; none, and loud words, where this machine lacks what they need.
pub(crate) fn start(spec: &Spec) -> Option<Cluster> {
    if let Some(missing) = fermata_peers::missing(System::Cassandra) {
        eprintln!("NOT RUN: every test of this program needs a real Cassandra: {missing}");
        return None;
    }
    Some(Cluster::start(spec).expect("Cassandra starts"))
}

/// Settings for a keyspace with a copy in each of the data centers dc1 to dc`nodes`, seen from dc1.
pub(crate) fn settings(points: &[SocketAddr], nodes: u8, keyspace: &str) -> Settings {
    let points = points.iter().map(SocketAddr::to_string);
    let replication = (1..=nodes).map(|i| (format!("dc{i}"), 1));
    let mut settings = Settings::new(points, "dc1", keyspace, replication);
    settings.timeouts.request = Duration::from_secs(25);
    settings
}
