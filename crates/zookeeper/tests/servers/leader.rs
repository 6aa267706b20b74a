//! A leader that is killed while updates are on their way: nothing is applied twice, nothing that
//! was acknowledged is lost.

use crate::common::{TIMEOUT, alone, key, store};
use bytes::Bytes;
use fermata_engine::{LockStore, Row, StoreError, Swapped};
use fermata_peers::Cluster;
use fermata_zookeeper::ZookeeperStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const WRITERS: u32 = 8;
const EACH: u32 = 60;

/// The ids in a row, four bytes each.
fn ids(row: &Row) -> Vec<u32> {
    let words = row.state.chunks_exact(4);
    words
        .map(|w| u32::from_be_bytes(w.try_into().unwrap()))
        .collect()
}

/// What a writer saw go wrong.
#[derive(Default)]
struct Seen {
    unknown: AtomicU32,
    applied_unknown: AtomicU32,
    done: AtomicU32,
}

/// Reads until somebody answers.
async fn row(store: &ZookeeperStore) -> Row {
    loop {
        match store.read(&key(b"k")).await {
            Ok(row) => return row.expect("the row stays"),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Adds an id to the row, once, whatever happens.
async fn append(store: &ZookeeperStore, id: u32, seen: &Seen) {
    let mut present = row(store).await;
    loop {
        let mut state = present.state.to_vec();
        state.extend(id.to_be_bytes());
        let swap = store
            .swap(&key(b"k"), Some(present.version), state.into())
            .await;
        match swap {
            Ok(Swapped::Applied(_)) => return,
            Ok(Swapped::Refused(Some(row))) => present = row,
            Ok(Swapped::Refused(None)) => present = row(store).await,
            Err(StoreError::Refused(_)) => sleep(Duration::from_millis(20)).await,
            Err(StoreError::Unknown(_)) => {
                seen.unknown.fetch_add(1, Ordering::Relaxed);
                // In it now, or never.
                present = row(store).await;
                if ids(&present).contains(&id) {
                    seen.applied_unknown.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

fn leader(cluster: &Cluster) -> u8 {
    let since = Instant::now();
    loop {
        let nodes = cluster.nodes();
        let leads = nodes
            .iter()
            .find(|node| node.says.as_deref() == Ok("leader"));
        if let Some(leads) = leads {
            return leads.number;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "nobody leads");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_twice_when_the_leader_dies() {
    let Some(ensemble) = alone().await else {
        return;
    };
    let (cluster, all) = (ensemble.cluster, &ensemble.servers);
    let seen = Arc::new(Seen::default());
    let first = store(all, "leader", TIMEOUT).await;
    let made = first
        .swap(&key(b"k"), None, Bytes::from_static(&[0; 4]))
        .await;
    assert!(matches!(made, Ok(Swapped::Applied(_))));
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut nearest = all.clone();
        nearest.rotate_left(writer as usize % all.len());
        let store = store(&nearest, "leader", TIMEOUT).await;
        let seen = seen.clone();
        writers.push(tokio::spawn(async move {
            for n in 0..EACH {
                append(&store, 1 + writer * EACH + n, &seen).await;
                seen.done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for killing in 1..=2 {
        while seen.done.load(Ordering::Relaxed) < killing * WRITERS * EACH / 4 {
            sleep(Duration::from_millis(5)).await;
        }
        let victim = leader(cluster);
        tokio::task::block_in_place(|| {
            cluster.kill_node(victim).unwrap();
            cluster.start_node(victim).unwrap();
        });
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let last = row(&first).await;
    let mut found = ids(&last);
    found.sort_unstable();
    assert_eq!(found, (0..=WRITERS * EACH).collect::<Vec<_>>());
    eprintln!(
        "{} updates with unknown outcome, {} of them applied",
        seen.unknown.load(Ordering::Relaxed),
        seen.applied_unknown.load(Ordering::Relaxed)
    );
}
