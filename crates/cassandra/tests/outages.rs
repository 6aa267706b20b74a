//! The store while nodes go and come: what was acknowledged stays, and errors say what they leave
//! open.

mod common;

use bytes::Bytes;
use common::{RUNTIME, settings};
use fermata_cassandra::CassandraStore;
use fermata_engine::cells::Critical;
use fermata_engine::scalar::Scalar;
use fermata_engine::{DataStore, LockStore, StoreError, Swapped, Version};
use fermata_peers::{System, trio};
use fermata_protocol::base::{EventualTag, KeyId, KeyspaceId, LockRef};
use std::time::Duration;

fn key() -> KeyId {
    KeyId {
        keyspace: KeyspaceId(1),
        key: Bytes::from_static(b"k"),
    }
}

/// Adds one to the row; repeats what is unknown until a read settles it.
async fn step(store: &CassandraStore, state: &str) -> Version {
    let state = Bytes::copy_from_slice(state.as_bytes());
    loop {
        let row = match LockStore::read(store, &key()).await {
            Ok(row) => row,
            Err(_) => continue,
        };
        if let Some(row) = &row
            && row.state == state
        {
            return row.version;
        }
        let expected = row.map(|row| row.version);
        if let Ok(Swapped::Applied(version)) = store.swap(&key(), expected, state.clone()).await {
            return version;
        }
    }
}

async fn put(store: &CassandraStore, number: u64) -> Result<(), StoreError> {
    let lock_ref = LockRef(1_700_000_000);
    let scalar = Scalar::of_put(lock_ref, 0, number).expect("room");
    let value = Some(Bytes::from(format!("{number}")));
    let origin = EventualTag::of_section(lock_ref);
    store
        .write(&key(), scalar, &Critical { origin, value })
        .await
}

async fn value(store: &CassandraStore) -> Option<Bytes> {
    loop {
        if let Ok(cells) = DataStore::read(store, &key()).await {
            return cells.critical.and_then(|(_, cell)| cell.value);
        }
    }
}

#[test]
fn a_quorum_serves_and_less_says_so() {
    let Some(cluster) = trio(System::Cassandra) else {
        return;
    };
    let keyspace = format!("outages_{}", std::process::id());
    let settings = settings(&cluster.endpoints(), 3, &keyspace);
    RUNTIME.block_on(async {
        let store = CassandraStore::connect(settings.clone())
            .await
            .expect("a store");
        assert!(LockStore::describe(&store).contains("commit at ANY"));
        assert_eq!(step(&store, "all up").await, Version(1));
        put(&store, 1).await.expect("a write");

        cluster.kill_node(3).expect("killed");
        assert_eq!(step(&store, "two up").await, Version(2));
        while put(&store, 2).await.is_err() {}
        assert_eq!(value(&store).await.as_deref(), Some(&b"2"[..]));
        let other = CassandraStore::connect(settings.clone())
            .await
            .expect("a quorum is enough");
        let about = LockStore::describe(&other);
        assert!(
            about.contains("commit at QUORUM") && about.contains("nodes that are down"),
            "{about}"
        );

        cluster.kill_node(2).expect("killed");
        while LockStore::health(&store).await.is_ok() {}
        let unhealthy = DataStore::health(&store).await.expect_err("one of three");
        assert!(
            unhealthy.contains("no quorum of the replicas"),
            "{unhealthy}"
        );
        let lost = store
            .swap(&key(), Some(Version(2)), Bytes::from_static(b"lost"))
            .await;
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        assert!(matches!(put(&store, 3).await, Err(StoreError::Unknown(_))));
        // Until it has heard that they are down, it waits for them.
        loop {
            let health = DataStore::health(&store).await;
            if health.is_err_and(|why| why.contains("coordinator sees 1")) {
                break;
            }
        }
        let mut hasty = settings.clone();
        hasty.timeouts.start = Duration::from_secs(15);
        let refused = CassandraStore::connect(hasty)
            .await
            .expect_err("one of three");
        assert!(refused.contains("no quorum of its replicas"), "{refused}");

        cluster.start_node(2).expect("up again");
        while LockStore::health(&store).await.is_err() {}
        let settled = loop {
            if let Ok(row) = LockStore::read(&store, &key()).await {
                break row.expect("a row");
            }
        };
        let state = &settled.state;
        assert!(state == "two up" || state == "lost", "{settled:?}");
        assert_eq!(
            step(&store, "two up again").await,
            Version(settled.version.0 + 1)
        );
        let kept = value(&store).await;
        assert!(
            kept.as_deref() == Some(b"2") || kept.as_deref() == Some(b"3"),
            "{kept:?}"
        );
        cluster.start_node(3).expect("up again");
    });
}
