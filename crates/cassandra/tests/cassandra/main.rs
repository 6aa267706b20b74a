//! The store on three real nodes of Cassandra, each a data center of its own.

#[path = "../common/mod.rs"]
mod common;
mod data;
mod lock;
#[cfg(feature = "paper")]
mod paper;
mod starts;

use bytes::Bytes;
use common::RUNTIME;
use fermata_cassandra::{CassandraStore, Settings};
use fermata_engine::StoreError;
use fermata_peers::{Cluster, Consistency, Cql, System, trio};
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::net::SocketAddr;
use std::sync::LazyLock;
use tokio::sync::OnceCell;

/// The servers of this program.
fn three() -> Option<&'static [SocketAddr]> {
    static POINTS: LazyLock<Option<Vec<SocketAddr>>> =
        LazyLock::new(|| trio(System::Cassandra).map(Cluster::endpoints));
    POINTS.as_deref()
}

/// Settings for a keyspace on the three nodes.
fn settings(points: &[SocketAddr], keyspace: &str) -> Settings {
    common::settings(points, 3, keyspace)
}

/// A name of a keyspace that no other run has used.
fn fresh(name: &str) -> String {
    format!("{name}_{}", std::process::id())
}

/// Runs a test with a store that all tests of the program share; each takes keys of its own.
fn with_store<F: Future<Output = ()>>(test: impl FnOnce(CassandraStore) -> F) {
    static STORE: OnceCell<CassandraStore> = OnceCell::const_new();
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let store = STORE
            .get_or_init(async || {
                let settings = settings(points, &fresh("shared"));
                CassandraStore::connect(settings).await.expect("a store")
            })
            .await;
        test(store.clone()).await;
    });
}

/// What comes of what may be done twice, which is asked again while nobody knows: servers on a busy
/// machine wait for each other no longer than they are told to.
async fn known<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> T {
    for _ in 0..9 {
        match ask().await {
            Err(StoreError::Unknown(_)) => {}
            answer => return answer.expect("an answer"),
        }
    }
    ask().await.expect("an answer, in ten times")
}

/// Statements of an operator, one after the other.
fn operator(point: SocketAddr, statements: &[String]) {
    let mut cql = Cql::connect(point).expect("a connection");
    for statement in statements {
        cql.query(statement, Consistency::All)
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// A key of the keyspace of most tests.
fn key(key: impl AsRef<[u8]>) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(7),
        key: Bytes::copy_from_slice(key.as_ref()),
    }
}

/// Keys that somebody's quoting, splitting or measuring might not survive.
fn odd_keys(name: &str) -> Vec<KeyId> {
    let mut keys: Vec<Vec<u8>> = [
        "'",
        "\"",
        "''; DROP TABLE lock; --",
        ".",
        "..",
        "/",
        "a/b",
        "$",
        "$$",
        "%",
        "\\",
        " ",
        "ü",
        "\n",
        "\0",
        "a\0b",
        "?",
        ":k",
    ]
    .iter()
    .map(|odd| format!("{name}{odd}").into_bytes())
    .collect();
    keys.push([name.as_bytes(), &[0xff, 0xfe, 0x80]].concat());
    keys.push([name.as_bytes(), &[b'x'; 1_000]].concat());
    keys.iter().map(key).collect()
}
