//! Servers of a test's own, where the trio that all share does not do.

use fermata_peers::{Cluster, Commitlog, Spec, System, testable};

/// How long servers try.
const BUSY: &str = "20s";

/// What tests on servers of their own ask for: `nodes` nodes, each with a data center of its own,
/// small, and sure of what they acknowledge.
pub(crate) fn spec(nodes: u8) -> Spec {
    let mut spec = Spec::new(System::Cassandra, nodes);
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
    testable(System::Cassandra).then(|| Cluster::start(spec).expect("Cassandra starts"))
}
