//! The store on nodes with settings of their own: old Paxos, where quorum reads decide; no stamps.

mod common;

use bytes::Bytes;
use common::{RUNTIME, settings, spec, start};
use fermata_cassandra::Store;
use fermata_engine::{LockStore, Row, Swapped, Version};
use fermata_peers::Paxos;
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::time::Duration;

#[test]
fn old_paxos_has_to_be_allowed_and_works_then() {
    let mut spec = spec(1, 62);
    spec.paxos = Paxos::V1;
    let Some(cluster) = start(&spec) else {
        return;
    };
    let points = cluster.endpoints();
    let mut settings = settings(&points, 1, "old");
    settings.allow_few_replicas = true;
    RUNTIME.block_on(async {
        let refused = Store::connect(settings.clone()).await.expect_err("v1");
        assert!(
            refused.contains(&format!("the node {} runs Paxos v1", points[0])),
            "{refused}"
        );
        settings.allow_paxos_v1 = true;

        let store = Store::connect(settings.clone()).await.expect("a store");
        let about = LockStore::describe(&store);
        assert!(
            about.contains("Paxos v1") && about.contains("warning"),
            "{about}"
        );
        swaps_are_seen(&store).await;

        // More copies than there are nodes: no quorum.
        settings.keyspace = "too_many".to_owned();
        settings.replication = [("dc1".to_owned(), 3)].into();
        settings.timeouts.start = Duration::from_secs(10);
        let refused = Store::connect(settings).await.expect_err("no quorum");
        let sentence = "the keyspace too_many has no quorum of its replicas";
        assert!(refused.contains(sentence), "{refused}");
    });
    cluster.stop();
}

#[test]
fn a_node_that_takes_no_stamps_is_refused() {
    let mut spec = spec(1, 64).with("user_timestamps_enabled", "false");
    spec.paxos = Paxos::V2;
    let Some(cluster) = start(&spec) else {
        return;
    };
    let points = cluster.endpoints();
    let mut settings = settings(&points, 1, "stampless");
    settings.allow_few_replicas = true;
    let refused = RUNTIME
        .block_on(Store::connect(settings))
        .expect_err("no stamps");
    let part = format!(
        "the node {} refuses writes that bring their stamps",
        points[0]
    );
    assert!(refused.contains(&part), "{refused}");
    cluster.stop();
}

async fn swaps_are_seen(store: &Store) {
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
        let Some(row) = LockStore::read(store, &key).await.expect("a read") else {
            panic!("the row is gone");
        };
        let swap = store.swap(&key, Some(row.version), state(i));
        let _ = tokio::time::timeout(Duration::from_millis(2), swap).await;
        let settled = LockStore::read(store, &key).await.expect("a read");
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(LockStore::read(store, &key).await, Ok(settled));
    }
}
