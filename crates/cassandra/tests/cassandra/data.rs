//! Data cells: the highest stamp wins, in whatever order writes come.

use crate::common::RUNTIME;
use crate::{fresh, key, known, odd_keys, settings, three, with_store};
use bytes::Bytes;
use fermata_cassandra::CassandraStore;
use fermata_engine::cells::{Critical, Eventual};
use fermata_engine::scalar::Scalar;
use fermata_engine::{Cells, DataStore};
use fermata_protocol::base::{EventualTag, KeyId, KeyspaceId, LockRef};

/// Refs as they are: the first is made from the clock.
const REF: u64 = 1_700_000_000;

fn scalar(lock_ref: u64, number: u64) -> Scalar {
    Scalar::of_put(LockRef(REF + lock_ref), 0, number).expect("room")
}

fn critical(lock_ref: u64, value: Option<&[u8]>) -> Critical {
    Critical {
        origin: EventualTag::of_section(LockRef(REF + lock_ref)),
        value: value.map(Bytes::copy_from_slice),
    }
}

fn eventual(clock: u64, value: Option<&[u8]>) -> Eventual {
    let tag = EventualTag {
        applied: 3,
        clock,
        ..EventualTag::default()
    };
    Eventual {
        tag,
        value: value.map(Bytes::copy_from_slice),
    }
}

async fn read(store: &CassandraStore, key: &KeyId) -> Cells {
    known(async || DataStore::read(store, key).await).await
}

async fn read_near(store: &CassandraStore, key: &KeyId) -> Cells {
    known(async || store.read_near(key).await).await
}

async fn write(store: &CassandraStore, key: &KeyId, at: Scalar, value: &Critical) {
    known(async || store.write(key, at, value).await).await;
}

async fn offer(store: &CassandraStore, key: &KeyId, value: &Eventual) {
    known(async || store.offer(key, value).await).await;
}

/// The keys of keyspace 7.
async fn page(
    store: &CassandraStore,
    prefix: &str,
    after: Option<&[u8]>,
    limit: usize,
) -> Vec<(Bytes, Cells)> {
    let keys = async || {
        store
            .keys(KeyspaceId(7), prefix.as_bytes(), after, limit)
            .await
    };
    known(keys).await.keys
}

/// Near replicas hear of eventual writes sooner or later.
async fn near(store: &CassandraStore, key: &KeyId, wanted: &Cells) {
    while read_near(store, key).await != *wanted {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[test]
fn what_was_never_written_has_no_cells() {
    with_store(async |store| {
        assert_eq!(read(&store, &key("nothing")).await, Cells::default());
        assert_eq!(store.read_near(&key("nothing")).await, Ok(Cells::default()));
    });
}

#[test]
fn the_highest_scalar_wins_in_any_order() {
    with_store(async |store| {
        let writes = [scalar(1, 1), scalar(1, 2), scalar(2, 1)];
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        for order in orders {
            let key = key(format!("order {order:?}"));
            let mut highest = None;
            for i in order {
                let value = critical(i as u64, Some(format!("value {i}").as_bytes()));
                write(&store, &key, writes[i], &value).await;
                highest = highest.max(Some(i));
                let top = highest.expect("one was written");
                let value = critical(top as u64, Some(format!("value {top}").as_bytes()));
                let found = read(&store, &key).await.critical;
                assert_eq!(found, Some((writes[top], value)), "{order:?} after {i}");
            }
        }
    });
}

#[test]
fn a_write_repeated_is_the_same_write() {
    with_store(async |store| {
        let key = key("repeated");
        let value = critical(1, Some(b"v"));
        for _ in 0..3 {
            write(&store, &key, scalar(1, 1), &value).await;
        }
        assert_eq!(
            read(&store, &key).await.critical,
            Some((scalar(1, 1), value))
        );
    });
}

#[test]
fn a_delete_is_a_value_that_outranks_what_is_lower_and_nothing_else() {
    with_store(async |store| {
        let key = key("deleted");
        write(&store, &key, scalar(3, 1), &critical(3, Some(b"old"))).await;
        write(&store, &key, scalar(5, 1), &critical(5, None)).await;
        let found = read(&store, &key).await.critical;
        assert_eq!(
            found,
            Some((scalar(5, 1), critical(5, None))),
            "and its scalar is kept"
        );
        write(&store, &key, scalar(4, 9), &critical(4, Some(b"late"))).await;
        assert_eq!(read(&store, &key).await.critical, found);
        write(&store, &key, scalar(6, 1), &critical(6, Some(b"new"))).await;
        let found = read(&store, &key).await.critical;
        assert_eq!(found, Some((scalar(6, 1), critical(6, Some(b"new")))));
    });
}

#[test]
fn eventual_writes_are_ordered_by_their_clocks() {
    with_store(async |store| {
        let key = key("eventual");
        for (clock, value, wins) in [
            (1_000, Some(&b"first"[..]), true),
            (3_000, Some(b"third"), true),
            (2_000, Some(b"second, late"), false),
            (5_000, None, true),
            (4_000, Some(b"fourth, late"), false),
        ] {
            let before = read_near(&store, &key).await;
            let cell = eventual(clock, value);
            offer(&store, &key, &cell).await;
            let after = Cells {
                critical: None,
                eventual: Some(cell),
            };
            near(&store, &key, if wins { &after } else { &before }).await;
        }
        let cell = eventual(5_000, None);
        assert_eq!(
            read(&store, &key).await,
            Cells {
                critical: None,
                eventual: Some(cell)
            }
        );
    });
}

#[test]
fn the_two_cells_do_not_touch_each_other() {
    with_store(async |store| {
        let key = key("two");
        let (above, below) = (
            critical(1, Some(b"critical")),
            eventual(7, Some(b"eventual")),
        );
        offer(&store, &key, &below).await;
        write(&store, &key, scalar(1, 1), &above).await;
        let both = Cells {
            critical: Some((scalar(1, 1), above)),
            eventual: Some(below),
        };
        near(&store, &key, &both).await;
        assert_eq!(read(&store, &key).await, both);
    });
}

#[test]
fn values_may_be_anything_up_to_a_mebibyte() {
    with_store(async |store| {
        for length in [0, 1, 4_096, 65_537, 1 << 20] {
            let key = key(format!("length {length}"));
            let bytes: Vec<u8> = (0..length).map(|i: usize| (i * 31 % 251) as u8).collect();
            let value = critical(1, Some(&bytes));
            write(&store, &key, scalar(1, 1), &value).await;
            assert_eq!(
                read(&store, &key).await.critical,
                Some((scalar(1, 1), value))
            );
        }
    });
}

#[test]
fn odd_keys_have_cells_of_their_own() {
    with_store(async |store| {
        let keys = odd_keys("data");
        for key in &keys {
            write(&store, key, scalar(1, 1), &critical(1, Some(&key.key))).await;
        }
        for key in &keys {
            let value = critical(1, Some(&key.key));
            assert_eq!(
                read(&store, key).await.critical,
                Some((scalar(1, 1), value))
            );
        }
    });
}

/// Writes keys of several keyspaces, some deleted; what a listing of keyspace 7 has to show.
async fn fill(store: &CassandraStore) -> Vec<String> {
    let id = |keyspace, key: &str| KeyId {
        keyspace: KeyspaceId(keyspace),
        key: Bytes::copy_from_slice(key.as_bytes()),
    };
    let value = critical(1, Some(b"v"));
    // Keyspaces whose rows lie beside, or begin alike.
    for (keyspace, name) in [(8, "a/1"), (0x0700_0000, "a/2"), (6, "")] {
        write(store, &id(keyspace, name), scalar(1, 1), &value).await;
    }
    let mut names: Vec<String> = (0..200).map(|i| format!("a/{i:03}")).collect();
    names.extend(["", "a", "b", "ä"].map(String::from));
    for name in &names {
        write(store, &id(7, name), scalar(1, 1), &value).await;
    }
    let deleted = critical(2, None);
    write(store, &id(7, "a/007"), scalar(2, 1), &deleted).await;
    for (name, value) in [("a/100x", Some(&b"e"[..])), ("a/100y", None)] {
        offer(store, &id(7, name), &eventual(5, value)).await;
    }
    names.retain(|name| name != "a/007");
    names.push("a/100x".into());
    names.sort();
    names
}

#[test]
fn keys_are_listed_in_their_order_without_what_is_deleted() {
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let store = CassandraStore::connect(settings(points, &fresh("listing")))
            .await
            .expect("a store");
        let names = fill(&store).await;
        let list = async |prefix: &str, after: Option<&str>, limit| {
            let after = after.map(str::as_bytes);
            let page = page(&store, prefix, after, limit).await;
            let keys = page.into_iter();
            keys.map(|(key, _)| String::from_utf8(key.to_vec()).expect("UTF-8"))
                .collect::<Vec<_>>()
        };
        // The nearest replica gets the last writes sooner or later.
        while list("", None, 1_000).await != names {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let prefixed: Vec<String> = names
            .iter()
            .filter(|name| name.starts_with("a/"))
            .cloned()
            .collect();
        assert_eq!(list("a/", None, 1_000).await, prefixed);
        assert_eq!(list("nothing", None, 10).await, [""; 0]);
        assert_eq!(list("a/", None, 0).await, [""; 0]);
        // Page after page, nothing twice and nothing left out.
        let mut paged: Vec<String> = Vec::new();
        loop {
            let page = list("a/", paged.last().map(String::as_str), 30).await;
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 30);
            paged.extend(page);
        }
        assert_eq!(paged, prefixed);
    });
}

#[test]
fn listings_of_large_values_return_them() {
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        let store = CassandraStore::connect(settings(points, &fresh("heavy")))
            .await
            .expect("a store");
        let value = critical(1, Some(&vec![7; 256 << 10]));
        for i in 0..24 {
            write(&store, &key(format!("{i:02}")), scalar(1, 1), &value).await;
        }
        let mut found = page(&store, "", None, 5).await;
        while found.len() < 5 || found[4].0 != "04" {
            found = page(&store, "", None, 5).await;
        }
        for (_, cells) in found {
            assert_eq!(cells.critical, Some((scalar(1, 1), value.clone())));
        }
    });
}

#[test]
fn a_clock_that_no_stamp_can_be_is_refused() {
    with_store(async |store| {
        let refused = store.offer(&key("clock"), &eventual(u64::MAX, None)).await;
        let refused = refused.expect_err("too large");
        assert!(
            matches!(refused, fermata_engine::StoreError::Refused(_)),
            "{refused}"
        );
        assert_eq!(DataStore::health(&store).await, Ok(()));
    });
}
