//! Real servers for the tests: one cluster per test program, started when first asked for.

use fermata_cassandra::{Settings, Store};
use fermata_peers::{Cluster, Consistency, Cql, Spec, System};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// Contact points of a cluster that runs already, for whoever works on these tests: with it they
/// start in a second. It has three data centers, dc1 to dc3, a node in each, and Paxos v2.
const RUNNING: &str = "FERMATA_TEST_CASSANDRA";

/// Sessions belong to the runtime that they were opened on, so all tests share one.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// What the servers are, or why there are none.
struct Servers {
    points: Vec<SocketAddr>,
    /// Kept, for with it the servers end.
    _cluster: Option<Cluster>,
}

/// Starts servers; none, and loud words, where this machine lacks what they need.
fn start(spec: Spec) -> Option<Servers> {
    if let Some(missing) = fermata_peers::missing(System::Cassandra) {
        eprintln!("NOT RUN: every test of this program needs a real Cassandra: {missing}");
        return None;
    }
    let cluster = Cluster::start(&spec).expect("Cassandra starts");
    Some(Servers {
        points: cluster.endpoints(),
        _cluster: Some(cluster),
    })
}

/// Three nodes, each a data center.
pub fn three() -> Option<&'static [SocketAddr]> {
    static THREE: OnceLock<Option<Servers>> = OnceLock::new();
    let servers = THREE.get_or_init(|| {
        if let Ok(points) = std::env::var(RUNNING) {
            let points = points
                .split(',')
                .map(|point| point.parse().expect("IP:PORT"));
            return Some(Servers {
                points: points.collect(),
                _cluster: None,
            });
        }
        let mut spec = Spec::new(System::Cassandra, 3);
        spec.base = Some(Ipv4Addr::new(127, 0, 61, 1));
        spec.quick = true;
        spec.dcs = true;
        spec.paxos = fermata_peers::Paxos::V2;
        spec.purging = Some(fermata_peers::Purging::Repaired);
        spec.commitlog = fermata_peers::Commitlog::Group;
        start(spec)
    });
    servers.as_ref().map(|servers| &servers.points[..])
}

/// Settings for a keyspace on the three nodes, as seen from dc1.
pub fn settings(points: &[SocketAddr], keyspace: &str) -> Settings {
    let points = points.iter().map(SocketAddr::to_string);
    let replication = [("dc1", 1), ("dc2", 1), ("dc3", 1)];
    let mut settings = Settings::new(points, "dc1", keyspace, replication);
    // Whatever the machine is busy with besides.
    settings.timeouts.request = Duration::from_secs(20);
    settings
}

/// A name of a keyspace that no other run has used.
pub fn fresh(name: &str) -> String {
    format!("{name}_{}", std::process::id())
}

/// Runs a test with a store that all tests of the program share; each takes keys of its own.
#[allow(
    clippy::allow_attributes,
    dead_code,
    reason = "not every test program has such tests"
)]
pub fn with_store<F: Future<Output = ()>>(test: impl FnOnce(Store) -> F) {
    static STORE: OnceCell<Store> = OnceCell::const_new();
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let store = STORE
            .get_or_init(async || {
                let settings = settings(points, &fresh("shared"));
                Store::connect(settings).await.expect("a store")
            })
            .await;
        test(store.clone()).await;
    });
}

/// Statements of an operator, one after the other.
pub fn operator(point: SocketAddr, statements: &[String]) {
    let mut cql = Cql::connect(point).expect("a connection");
    for statement in statements {
        cql.query(statement, Consistency::All)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}
