//! What all tests on real servers share.

use fermata_cassandra::Settings;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Sessions belong to the runtime that they were opened on, so all tests share one.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// Settings for a keyspace with a copy in each of the data centers dc1 to dc`nodes`, seen from dc1.
pub(crate) fn settings(points: &[SocketAddr], nodes: u8, keyspace: &str) -> Settings {
    let points = points.iter().map(SocketAddr::to_string);
    let replication = (1..=nodes).map(|i| (format!("dc{i}"), 1));
    let mut settings = Settings::new(points, "dc1", keyspace, replication);
    settings.timeouts.request = Duration::from_secs(25);
    settings
}
