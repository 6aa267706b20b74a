//! What a start refuses, each in one sentence that says what to set; and what it does not.

use crate::common::RUNTIME;
use crate::{fresh, operator, settings, three};
use bytes::Bytes;
use fermata_cassandra::{CassandraStore, Settings};
use fermata_engine::{LockStore, Swapped, Version};
use std::net::SocketAddr;
use std::time::Duration;

const TABLE: &str =
    "gc_grace_seconds = 864000 AND default_time_to_live = 0 AND read_repair = 'BLOCKING'";
const LOCK: &str = "k blob PRIMARY KEY, v bigint, s blob";
const THREE: &str = "{'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1, 'dc3': 1}";

/// What a start with these settings says.
fn refusal(settings: Settings) -> String {
    let refused = RUNTIME.block_on(CassandraStore::connect(settings));
    let refused = refused.expect_err("a refusal");
    assert!(
        !refused.contains('\n') && refused.len() < 700,
        "not one sentence: {refused}"
    );
    refused
}

/// An operator makes the keyspace in a way of his own, and a start is tried.
fn refused_after(name: &str, statements: &[&str], parts: &[&str]) {
    let Some(points) = three() else {
        return;
    };
    let keyspace = fresh(name);
    let statements: Vec<String> = statements
        .iter()
        .map(|text| text.replace("KS", &keyspace))
        .collect();
    operator(points[0], &statements);
    let refused = refusal(settings(points, &keyspace));
    for part in parts {
        assert!(
            refused.contains(&part.replace("KS", &keyspace)),
            "no '{part}' in: {refused}"
        );
    }
}

fn create(replication: &str) -> String {
    format!("CREATE KEYSPACE KS WITH replication = {replication}")
}

fn table(columns: &str, options: &str) -> String {
    format!("CREATE TABLE KS.lock ({columns}) WITH {options}")
}

#[test]
fn contact_points_that_are_down() {
    if three().is_none() {
        return;
    }
    let nobody: SocketAddr = ([127, 0, 61, 250], 9).into();
    let mut settings = settings(&[nobody], "unreached");
    settings.timeouts.start = Duration::from_secs(20);
    let refused = refusal(settings);
    assert!(
        refused.contains("127.0.61.250:9") && refused.contains("contact_points"),
        "{refused}"
    );
}

#[test]
fn one_contact_point_that_answers_is_enough() {
    let Some(points) = three() else {
        return;
    };
    let nobody: SocketAddr = ([127, 0, 61, 250], 9).into();
    let settings = settings(&[nobody, points[1]], &fresh("one_point"));
    let store = RUNTIME
        .block_on(CassandraStore::connect(settings))
        .expect("a store");
    assert!(LockStore::describe(&store).contains("nodes: 3"));
}

#[test]
fn a_data_center_that_is_none() {
    let Some(points) = three() else {
        return;
    };
    let mut settings = settings(points, &fresh("no_center"));
    settings.data_center = "ohio".to_owned();
    let refused = refusal(settings);
    assert!(
        refused.contains("'ohio'") && refused.contains("dc1, dc2, dc3"),
        "{refused}"
    );
}

#[test]
fn a_replication_to_a_data_center_that_is_none() {
    let Some(points) = three() else {
        return;
    };
    let mut settings = settings(points, &fresh("no_center"));
    settings.replication.insert("ohio".to_owned(), 1);
    let refused = refusal(settings);
    assert!(
        refused.contains("replication names data center 'ohio'"),
        "{refused}"
    );
}

#[test]
fn an_absent_keyspace_that_is_not_to_be_created() {
    let Some(points) = three() else {
        return;
    };
    let mut settings = settings(points, &fresh("absent"));
    settings.create_schema = false;
    let refused = refusal(settings.clone());
    assert!(
        refused.contains("create it with CREATE KEYSPACE"),
        "{refused}"
    );
    settings.create_schema = true;
    settings.replication.clear();
    assert!(refusal(settings).contains("no replication is set"));
}

#[test]
fn a_replication_other_than_the_configured_one() {
    refused_after(
        "other_copies",
        &[&create(
            "{'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1}",
        )],
        &["dc1: 1, dc2: 1", "dc3: 1", "ALTER KEYSPACE KS"],
    );
}

#[test]
fn too_few_replicas_in_all() {
    let Some(points) = three() else {
        return;
    };
    let keyspace = fresh("few");
    let mut settings = settings(points, &keyspace);
    settings.replication = [("dc1".to_owned(), 1)].into();
    assert!(refusal(settings.clone()).contains("allow_few_replicas"));
    let one = create("{'class': 'NetworkTopologyStrategy', 'dc1': 1}").replace("KS", &keyspace);
    operator(points[0], &[one]);
    settings.replication.clear();
    assert!(refusal(settings.clone()).contains("has 1 replicas in all"));
    settings.allow_few_replicas = true;
    RUNTIME
        .block_on(CassandraStore::connect(settings))
        .expect("a store");
}

#[test]
fn a_replication_without_data_centers() {
    refused_after(
        "simple",
        &[&create(
            "{'class': 'SimpleStrategy', 'replication_factor': 3}",
        )],
        &[
            "SimpleStrategy",
            "ALTER KEYSPACE KS WITH replication = {'class': 'NetworkTopology",
        ],
    );
}

#[test]
fn writes_that_are_not_durable() {
    refused_after(
        "not_durable",
        &[&format!("{} AND durable_writes = false", create(THREE))],
        &[
            "durable_writes off",
            "ALTER KEYSPACE KS WITH durable_writes = true",
        ],
    );
}

#[test]
fn columns_of_another_program() {
    let missing = table("k blob PRIMARY KEY, v bigint", TABLE);
    refused_after(
        "less",
        &[&create(THREE), &missing],
        &["KS.lock", "another keyspace"],
    );
    let typed = table("k text PRIMARY KEY, v bigint, s blob", TABLE);
    refused_after(
        "typed",
        &[&create(THREE), &typed],
        &["k text partition_key", "(k blob"],
    );
    let more = table("k blob PRIMARY KEY, v bigint, s blob, t int", TABLE);
    refused_after("more", &[&create(THREE), &more], &["t int regular"]);
}

#[test]
fn rows_that_vanish() {
    let ttl = table(LOCK, "default_time_to_live = 60");
    refused_after(
        "ttl",
        &[&create(THREE), &ttl],
        &["ALTER TABLE KS.lock", "time_to_live = 0"],
    );
}

#[test]
fn paxos_state_that_vanishes() {
    let grace = table(LOCK, "gc_grace_seconds = 60");
    refused_after(
        "grace",
        &[&create(THREE), &grace],
        &["gc_grace_seconds = 60", "= 864000"],
    );
}

#[test]
fn reads_that_repair_nothing() {
    let none = table(LOCK, "read_repair = 'NONE'");
    refused_after(
        "repair",
        &[&create(THREE), &none],
        &["read_repair = 'NONE'", "'BLOCKING'"],
    );
}

#[test]
fn options_that_were_altered_later() {
    let Some(points) = three() else {
        return;
    };
    let keyspace = fresh("altered");
    let settings = settings(points, &keyspace);
    RUNTIME
        .block_on(CassandraStore::connect(settings.clone()))
        .expect("a store");
    let alter = format!("ALTER TABLE {keyspace}.data WITH default_time_to_live = 60");
    operator(points[0], &[alter]);
    let refused = refusal(settings);
    assert!(
        refused.contains(&format!("the table {keyspace}.data")),
        "{refused}"
    );
}

#[test]
fn a_lock_row_from_the_future_hides_updates() {
    let Some(points) = three() else {
        return;
    };
    let keyspace = fresh("future");
    let settings = settings(points, &keyspace);
    RUNTIME
        .block_on(CassandraStore::connect(settings.clone()))
        .expect("a store");
    let late = i64::MAX / 2;
    operator(
        points[0],
        &[format!(
            "UPDATE {keyspace}.lock USING TIMESTAMP {late} SET v = 1 WHERE k = 0x00"
        )],
    );
    let refused = refusal(settings);
    assert!(
        refused.contains("does not show an update that was applied"),
        "{refused}"
    );
}

#[test]
fn a_lock_row_with_a_time_to_live() {
    let Some(points) = three() else {
        return;
    };
    let keyspace = fresh("mortal");
    let settings = settings(points, &keyspace);
    let store = RUNTIME
        .block_on(CassandraStore::connect(settings.clone()))
        .expect("a store");
    // A row that only S1 has written, then one that has lost its columns.
    let key = crate::key("mortal");
    RUNTIME.block_on(async {
        let swapped = store.swap(&key, None, Bytes::from_static(b"s")).await;
        assert_eq!(swapped, Ok(Swapped::Applied(Version(1))));
    });
    let delete = |key: &str| format!("DELETE v, s FROM {keyspace}.lock WHERE k = {key}");
    operator(
        points[0],
        &[delete("0x00"), delete("0x000000076d6f7274616c")],
    );
    let refused = refusal(settings);
    assert!(refused.contains("has lost its version"), "{refused}");
    let refused = RUNTIME
        .block_on(LockStore::read(&store, &key))
        .expect_err("no state");
    assert!(
        refused.sentence().contains("has lost its state"),
        "{refused}"
    );
}

#[test]
fn two_stores_start_at_once_on_an_empty_server() {
    let Some(points) = three() else {
        return;
    };
    RUNTIME.block_on(async {
        for round in 0..3 {
            let keyspace = fresh(&format!("at_once_{round}"));
            let starts = ["dc1", "dc2", "dc3"].map(|dc| {
                let mut settings = settings(points, &keyspace);
                settings.data_center = dc.to_owned();
                tokio::spawn(CassandraStore::connect(settings))
            });
            let mut stores = Vec::new();
            for start in starts {
                stores.push(start.await.expect("no panic").expect("a store"));
            }
            // They see one and the same table.
            let key = crate::key("at once");
            let mut version = None;
            for (i, store) in stores.iter().enumerate() {
                let state = Bytes::from(format!("{i}"));
                match store.swap(&key, version, state).await {
                    Ok(Swapped::Applied(new)) => version = Some(new),
                    other => panic!("{other:?}"),
                }
            }
            for store in &stores {
                let row = LockStore::read(store, &key)
                    .await
                    .expect("a read")
                    .expect("a row");
                assert_eq!((row.version, &row.state[..]), (Version(3), &b"2"[..]));
            }
        }
    });
}

#[test]
fn a_start_on_what_an_earlier_one_has_made() {
    let Some(points) = three() else {
        return;
    };
    let settings = settings(points, &fresh("again"));
    RUNTIME.block_on(async {
        let key = crate::key("kept");
        let store = CassandraStore::connect(settings.clone())
            .await
            .expect("a store");
        let swapped = store.swap(&key, None, Bytes::from_static(b"s")).await;
        assert_eq!(swapped, Ok(Swapped::Applied(Version(1))));
        let mut settings = settings;
        settings.create_schema = false;
        settings.replication.clear();
        let again = CassandraStore::connect(settings).await.expect("a store");
        let row = LockStore::read(&again, &key).await.expect("a read");
        assert_eq!(row.map(|row| row.version), Some(Version(1)));
    });
}
