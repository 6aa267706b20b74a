//! The store on nodes with settings of their own: old Paxos, where quorum reads decide; no stamps;
//! roles, and several nodes in one data center.

mod common;
#[path = "common/own.rs"]
mod own;

use bytes::Bytes;
use common::{RUNTIME, settings};
use fermata_cassandra::CassandraStore;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_peers::Paxos;
use fermata_protocol::base::{KeyId, KeyspaceId};
use own::{spec, start};
use scylla::client::session_builder::SessionBuilder;
use std::time::Duration;

#[test]
fn old_paxos_has_to_be_allowed_and_works_then() {
    let mut spec = spec(1);
    spec.paxos = Paxos::V1;
    let Some(cluster) = start(&spec) else {
        return;
    };
    let points = cluster.endpoints();
    let mut settings = settings(&points, 1, "old");
    settings.allow_few_replicas = true;
    RUNTIME.block_on(async {
        let refused = CassandraStore::connect(settings.clone())
            .await
            .expect_err("v1");
        assert!(
            refused.contains(&format!("the node {} runs Paxos v1", points[0])),
            "{refused}"
        );
        settings.allow_paxos_v1 = true;
        // There is one, so none has to be named.
        settings.data_center.clear();

        let store = CassandraStore::connect(settings.clone())
            .await
            .expect("a store");
        let about = LockStore::describe(&store);
        assert!(
            about.contains("Paxos v1") && about.contains("warning"),
            "{about}"
        );
        swaps_are_seen(&store).await;

        // More copies than there are nodes: refused before anything is made.
        settings.keyspace = "too_many".to_owned();
        settings.replication = [("dc1".to_owned(), 3)].into();
        let refused = CassandraStore::connect(settings.clone()).await;
        let refused = refused.expect_err("one node");
        assert!(refused.contains("which has 1 nodes"), "{refused}");
        settings.replication.clear();
        let absent = CassandraStore::connect(settings)
            .await
            .expect_err("no keyspace");
        assert!(absent.contains("does not exist"), "{absent}");
    });
    cluster.stop();
}

#[test]
fn a_node_that_takes_no_stamps_is_refused() {
    let mut spec = spec(1).with("user_timestamps_enabled", "false");
    spec.paxos = Paxos::V2;
    let Some(cluster) = start(&spec) else {
        return;
    };
    let points = cluster.endpoints();
    let mut settings = settings(&points, 1, "stampless");
    settings.allow_few_replicas = true;
    let refused = RUNTIME
        .block_on(CassandraStore::connect(settings))
        .expect_err("no stamps");
    let part = format!(
        "the node {} refuses writes that bring their stamps",
        points[0]
    );
    assert!(refused.contains(&part), "{refused}");
    cluster.stop();
}

/// Says something as the role that every new cluster has.
async fn as_operator(point: &str, statements: &[&str]) {
    let session = SessionBuilder::new()
        .known_node(point)
        .user("cassandra", "cassandra");
    let session = session.build().await.expect("a session");
    for statement in statements {
        let said = session.query_unpaged(*statement, ()).await;
        said.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[test]
fn roles_are_let_in_and_two_nodes_of_one_data_center_serve() {
    let mut spec = spec(2)
        .with("authenticator", "PasswordAuthenticator")
        .with("authorizer", "CassandraAuthorizer");
    spec.dcs = false;
    spec.paxos = Paxos::V2;
    let Some(cluster) = start(&spec) else {
        return;
    };
    let points = cluster.endpoints();
    let operator = points[0].to_string();
    let mut settings = settings(&points, 1, "roles");
    settings.replication = [("dc1".to_owned(), 2)].into();
    settings.allow_few_replicas = true;
    RUNTIME.block_on(async {
        let refused = CassandraStore::connect(settings.clone())
            .await
            .expect_err("nobody");
        assert!(refused.contains("asks for a role"), "{refused}");
        settings.username = Some("cassandra".to_owned());
        settings.password = Some("cassandra".to_owned());
        // The servers make that role a while after they have started.
        let store = loop {
            match CassandraStore::connect(settings.clone()).await {
                Ok(store) => break store,
                Err(error) if error.contains("did not accept") => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        swaps_are_seen(&store).await;
        let app = "CREATE ROLE app WITH PASSWORD = 'sesame' AND LOGIN = true";
        as_operator(&operator, &[app, "GRANT ALL ON KEYSPACE roles TO app"]).await;
        settings.username = Some("app".to_owned());
        settings.password = Some("sesame".to_owned());
        let refused = CassandraStore::connect(settings.clone())
            .await
            .expect_err("a right");
        let grant = "GRANT SELECT ON KEYSPACE system_views TO app";
        assert!(refused.contains(grant), "{refused}");
        as_operator(&operator, &[grant]).await;
        // Rights are remembered for a moment.
        let store = loop {
            match CassandraStore::connect(settings.clone()).await {
                Ok(store) => break store,
                Err(error) if error.contains(grant) => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let health = LockStore::health(&store).await;
        assert_eq!(health, Ok(()));
        settings.password = Some("wrong".to_owned());
        let refused = CassandraStore::connect(settings)
            .await
            .expect_err("a password");
        assert!(
            refused.contains("did not accept") && !refused.contains("wrong"),
            "{refused}"
        );
    });
    cluster.stop();
}

async fn swaps_are_seen(store: &CassandraStore) {
    let key = KeyId {
        keyspace: KeyspaceId(1),
        key: Bytes::from_static(b"k"),
    };
    let state = |i: i64| Bytes::from(format!("{i}"));
    for i in 1..=5 {
        let expected = (i > 1).then_some(Version(i - 1));
        let swapped = store.swap(&key, expected, state(i)).await;
        assert_eq!(swapped, Ok(Swapped::Applied(Version(i))));
        let row = Row {
            version: Version(i),
            state: state(i),
        };
        assert_eq!(LockStore::read(store, &key).await, Ok(Some(row)));
    }
    // An update that nobody waits for any more: a read settles what became of it, once and for all.
    for i in 6..=15 {
        let row = settled(store, &key).await;
        let swap = store.swap(&key, Some(row.version), state(i));
        let _ = tokio::time::timeout(Duration::from_millis(2), swap).await;
        let row = settled(store, &key).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(settled(store, &key).await, row);
    }
}

/// What a read finds. Servers that meet the abandoned update may take their time over the read,
/// too: one that did not learn what became of it says so, and may be repeated.
async fn settled(store: &CassandraStore, key: &KeyId) -> Row {
    let mut why = None;
    for _ in 0..20 {
        match LockStore::read(store, key).await {
            Ok(row) => return row.expect("the row is there"),
            Err(StoreError::Unknown(unknown)) => why = Some(unknown),
            Err(error) => panic!("a read: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no read ends: {why:?}");
}
