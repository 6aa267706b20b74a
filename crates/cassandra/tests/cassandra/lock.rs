//! Lock rows: what a compare-and-set promises.

use crate::common::RUNTIME;
use crate::{fresh, key, known, odd_keys, settings, three, with_store};
use bytes::Bytes;
use fermata_cassandra::CassandraStore;
use fermata_engine::{LockStore, Row, StoreError, Swapped, Version};
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::time::Duration;

fn row(version: i64, state: &str) -> Row {
    Row {
        version: Version(version),
        state: Bytes::copy_from_slice(state.as_bytes()),
    }
}

async fn read(store: &CassandraStore, key: &KeyId) -> Option<Row> {
    known(async || LockStore::read(store, key).await).await
}

/// What comes of a swap to a state that no other has: where nobody knows, the row says it.
async fn swap(store: &CassandraStore, key: &KeyId, expected: Option<i64>, state: &str) -> Swapped {
    let (expected, state) = (
        expected.map(Version),
        Bytes::copy_from_slice(state.as_bytes()),
    );
    known(async || {
        let swapped = store.swap(key, expected, state.clone()).await;
        if !matches!(swapped, Err(StoreError::Unknown(_))) {
            return swapped;
        }
        match read(store, key).await {
            Some(row) if row.state == state => Ok(Swapped::Applied(row.version)),
            row if row.as_ref().map(|row| row.version) == expected => swapped,
            row => Ok(Swapped::Refused(row)),
        }
    })
    .await
}

#[test]
fn a_swap_is_applied_on_the_version_that_it_names_and_on_no_other() {
    with_store(async |store| {
        let key = key("swap");
        assert_eq!(read(&store, &key).await, None);
        let refused = swap(&store, &key, Some(1), "x").await;
        assert_eq!(refused, Swapped::Refused(None), "no row yet");
        assert_eq!(read(&store, &key).await, None);

        assert_eq!(
            swap(&store, &key, None, "one").await,
            Swapped::Applied(Version(1))
        );
        assert_eq!(read(&store, &key).await, Some(row(1, "one")));
        let refused = swap(&store, &key, None, "again").await;
        assert_eq!(refused, Swapped::Refused(Some(row(1, "one"))));

        assert_eq!(
            swap(&store, &key, Some(1), "two").await,
            Swapped::Applied(Version(2))
        );
        for stale in [1, 3] {
            let refused = swap(&store, &key, Some(stale), "stale").await;
            assert_eq!(refused, Swapped::Refused(Some(row(2, "two"))), "{stale}");
        }
        assert_eq!(read(&store, &key).await, Some(row(2, "two")));
    });
}

#[test]
fn an_empty_state_is_refused_for_it_stands_for_none() {
    with_store(async |store| {
        let key = key("empty state");
        let refused = store.swap(&key, None, Bytes::new()).await;
        assert!(
            matches!(refused, Err(StoreError::Refused(_))),
            "{refused:?}"
        );
        assert_eq!(read(&store, &key).await, None);
    });
}

/// An update that nobody waits for any more may not have begun when the row is read. What a read
/// then says of it has to hold for good all the same.
#[test]
fn a_read_settles_what_became_of_an_update_without_answer() {
    with_store(async |store| {
        for round in 0..40 {
            let key = key(format!("settled {}", round / 8));
            let found = read(&store, &key).await;
            let expected = found.as_ref().map(|row| row.version);
            let state = Bytes::from(format!("{round}"));
            let patience = Duration::from_micros(300 * (round % 8));
            let swap = store.swap(&key, expected, state);
            let answered = tokio::time::timeout(patience, swap).await.is_ok();
            let settled = read(&store, &key).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
            assert_eq!(
                read(&store, &key).await,
                settled,
                "{round}, answered: {answered}"
            );
        }
    });
}

#[test]
fn a_key_whose_first_update_was_lost_is_as_good_as_new() {
    with_store(async |store| {
        for i in 0..8 {
            let key = key(format!("stillborn {i}"));
            let swap_lost = store.swap(&key, None, Bytes::from_static(b"lost"));
            let _ = tokio::time::timeout(Duration::from_micros(100 * i), swap_lost).await;
            match read(&store, &key).await {
                Some(found) => assert_eq!(found, row(1, "lost")),
                None => {
                    let applied = swap(&store, &key, None, "first").await;
                    let Swapped::Applied(version) = applied else {
                        panic!("{applied:?}");
                    };
                    assert_eq!(read(&store, &key).await, Some(row(version.0, "first")));
                    let refused = swap(&store, &key, None, "again").await;
                    assert_eq!(refused, Swapped::Refused(Some(row(version.0, "first"))));
                }
            }
        }
    });
}

#[test]
fn a_peek_shows_a_state_that_the_row_had_and_catches_up() {
    with_store(async |store| {
        let key = key("peek");
        let states = ["a", "b", "c", "d"];
        let mut seen = Version(0);
        for (version, state) in (0..).zip(states) {
            let expected = (version > 0).then_some(version);
            assert!(matches!(
                swap(&store, &key, expected, state).await,
                Swapped::Applied(_)
            ));
            if let Some(found) = store.peek(&key).await.expect("a peek") {
                let at = usize::try_from(found.version.0).expect("a version") - 1;
                assert_eq!(found.state, states[at]);
            }
        }
        // The nearest replica gets it sooner or later, by itself.
        while seen.0 < 4 {
            store
                .changed(&key, Some(seen), Duration::from_secs(60))
                .await;
            seen = store
                .peek(&key)
                .await
                .expect("a peek")
                .map_or(seen, |row| row.version);
        }
        assert_eq!(store.peek(&key).await.expect("a peek"), Some(row(4, "d")));
    });
}

/// Swaps until one is applied; how many tries it took.
async fn insist(store: &CassandraStore, key: &KeyId, who: usize) -> Version {
    loop {
        let found = LockStore::read(store, key).await;
        let Ok(found) = found else {
            continue;
        };
        let state = Bytes::from(format!("{who}"));
        match store
            .swap(key, found.map(|row| row.version), state.clone())
            .await
        {
            Ok(Swapped::Applied(version)) => return version,
            Ok(Swapped::Refused(_)) => {}
            // Contention between coordinators: whether it was applied is in the row. Nobody else
            // writes this state, and each writes it once.
            Err(_) => loop {
                match LockStore::read(store, key).await {
                    Ok(Some(row)) if row.state == state => return row.version,
                    Ok(_) => break,
                    Err(_) => {}
                }
            },
        }
    }
}

#[test]
fn of_concurrent_swaps_exactly_one_is_applied_per_version() {
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let keyspace = fresh("contended");
        let mut stores = Vec::new();
        for dc in ["dc1", "dc2", "dc3"] {
            let mut settings = settings(points, &keyspace);
            settings.data_center = dc.to_owned();
            stores.push(CassandraStore::connect(settings).await.expect("a store"));
        }
        let key = key("contended");
        let rounds = 12;
        for round in 0..rounds {
            let expected = (round > 0).then_some(Version(round));
            let tries = stores.iter().enumerate().map(|(who, store)| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(async move {
                    let state = Bytes::from(format!("{round} by {who}"));
                    store.swap(&key, expected, state).await
                })
            });
            let mut applied = Vec::new();
            let mut unknown = Vec::new();
            for (who, task) in tries.collect::<Vec<_>>().into_iter().enumerate() {
                match task.await.expect("no panic") {
                    Ok(Swapped::Applied(version)) => {
                        assert_eq!(version, Version(round + 1));
                        applied.push(who);
                    }
                    Ok(Swapped::Refused(_)) => {}
                    Err(_) => unknown.push(who),
                }
            }
            // A serial read settles what was unknown, at every site alike.
            let mut found = None;
            for store in &stores {
                let row = loop {
                    match LockStore::read(store, &key).await {
                        Ok(row) => break row,
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                };
                assert!(
                    found.is_none() || found == Some(row.clone()),
                    "sites disagree"
                );
                found = Some(row);
            }
            let row = found.flatten();
            if row.as_ref().map(|row| row.version) != Some(Version(round + 1)) {
                assert!(applied.is_empty(), "acknowledged, and not there");
                // All were lost to contention, and none happened.
                swap(&stores[0], &key, (round > 0).then_some(round), "by hand").await;
                continue;
            }
            let state = row.expect("a row").state;
            let winner = state
                .last()
                .map(|digit| usize::from(digit - b'0'))
                .expect("a name");
            assert!(applied.len() <= 1, "{applied:?} of one version");
            assert!(
                applied == [winner] || unknown.contains(&winner),
                "{winner}, {applied:?}"
            );
        }
    });
}

#[test]
fn every_swap_takes_the_version_of_its_own() {
    with_store(async |store| {
        let key = key("insist");
        let tasks = (0..8).map(|who| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move { insist(&store, &key, who).await })
        });
        let mut versions = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            versions.push(task.await.expect("no panic").0);
        }
        versions.sort_unstable();
        versions.dedup();
        assert_eq!(versions.len(), 8, "{versions:?}");
    });
}

#[test]
fn who_waits_hears_of_a_change_and_of_none() {
    with_store(async |store| {
        let key = key("changed");
        // Nothing happens: the patience ends it.
        store.changed(&key, None, Duration::from_millis(30)).await;
        let waiter = {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                store.changed(&key, None, Duration::from_secs(600)).await;
                store.peek(&key).await.expect("a peek")
            })
        };
        swap(&store, &key, None, "new").await;
        assert_eq!(waiter.await.expect("no panic"), Some(row(1, "new")));
        // Already so: it ends at once, although the patience is long.
        store.changed(&key, None, Duration::from_secs(600)).await;
        // A version that is only older than what was seen is no news.
        store
            .changed(&key, Some(Version(9)), Duration::from_millis(30))
            .await;
    });
}

#[test]
fn odd_keys_have_lock_rows_of_their_own() {
    with_store(async |store| {
        let keys = odd_keys("lock");
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(
                swap(&store, key, None, &i.to_string()).await,
                Swapped::Applied(Version(1))
            );
        }
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(
                read(&store, key).await,
                Some(row(1, &i.to_string())),
                "{key:?}"
            );
        }
    });
}

#[test]
fn the_empty_key_of_each_keyspace_is_a_key() {
    with_store(async |store| {
        let first = KeyId {
            keyspace: KeyspaceId(0),
            key: Bytes::new(),
        };
        let second = KeyId {
            keyspace: KeyspaceId(1),
            key: Bytes::new(),
        };
        assert_eq!(
            swap(&store, &first, None, "first").await,
            Swapped::Applied(Version(1))
        );
        assert_eq!(read(&store, &second).await, None);
        assert_eq!(
            swap(&store, &second, None, "second").await,
            Swapped::Applied(Version(1))
        );
        assert_eq!(read(&store, &first).await, Some(row(1, "first")));
    });
}

#[test]
fn a_state_may_be_large() {
    with_store(async |store| {
        let key = key("large state");
        let state = "Z".repeat(256 << 10);
        let swapped = swap(&store, &key, None, &state).await;
        assert_eq!(swapped, Swapped::Applied(Version(1)));
        assert_eq!(read(&store, &key).await, Some(row(1, &state)));
    });
}

#[test]
fn a_healthy_cluster_says_so_and_what_it_is() {
    with_store(async |store| {
        assert_eq!(LockStore::health(&store).await, Ok(()));
        let about = LockStore::describe(&store);
        for part in [
            "Cassandra 5.",
            "nodes: 3 in dc1, dc2, dc3",
            "dc3: 1",
            "Paxos v2",
        ] {
            assert!(about.contains(part), "{about}");
        }
    });
}
