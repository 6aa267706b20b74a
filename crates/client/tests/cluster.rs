//! The library against real nodes in this process, on the native engine. The same checks run on
//! Cassandra and `ZooKeeper` in the tests of the command line.

#[macro_use]
mod checks;
mod common;

use checks::entered;
use common::Cluster;
use fermata_client::{Bytes, Client, Code, EntryValue, Error, Keyspace, Options};
use fermata_protocol::base::{StoragePolicy, Terms};
use fermata_server::config::LimitsConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn run(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(check);
}

every_client_check!(run);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sections_registers_and_eventual_puts_are_the_same_under_every_policy() {
    let mut cluster = Cluster::with(5, LimitsConfig::default()).await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    let terms = Terms {
        faults: 1,
        delta: 2,
        whole_below: 64,
    };
    let policies = [
        ("replicated", StoragePolicy::Replicated),
        ("coded", StoragePolicy::Coded(terms)),
        ("treas-opt", StoragePolicy::TreasOpt(terms)),
        ("oreas", StoragePolicy::Oreas(terms)),
        ("ares", StoragePolicy::Ares(terms)),
    ];
    for (name, storage) in policies {
        for template in Keyspace::built_in() {
            let end = template.purpose.name();
            let keyspace = Keyspace {
                name: format!("{name}-{end}"),
                storage,
                ..template
            };
            one.create_keyspace(keyspace).await.expect("possible");
        }
        everything(&one, &two, name, 0).await;
    }
    cluster.stop(4).await;
    for (name, _) in policies {
        everything(&two, &one, name, 1).await;
    }
}

/// Long enough to be cut into parts.
fn long(text: &str, round: u32) -> Bytes {
    format!("{text} {round} ").repeat(100).into()
}

/// A section of several keys that another takes over, a register, and an eventual key.
async fn everything(one: &Client, two: &Client, name: &str, round: u32) {
    let sections = format!("{name}-sections");
    let section = entered(one, &sections, &["k", "l"]).await;
    section.put("k", long("first", round)).await.expect("put");
    section.put("l", long("other", round)).await.expect("put");
    section.put("k", long("k", round)).await.expect("put");
    let got = section.get("k").await.expect("held");
    assert_eq!(got, Some(long("k", round)), "{name}");
    section.leave();

    let section = entered(two, &sections, &["l", "k"]).await;
    let value = Some(EntryValue::Value(long("k", round)));
    assert_eq!(section.entry_value("k"), value, "{name}");
    section.delete("k").await.expect("deleted");
    section.leave_and_wait().await.expect("left");
    one.put(&sections, "e", long("e", round))
        .await
        .expect("put");
    let value = Some(EntryValue::Value(long("e", round)));
    loop {
        let section = entered(two, &sections, &["k", "e"]).await;
        assert_eq!(section.entry_value("k"), Some(EntryValue::Absent), "{name}");
        let seen = section.entry_value("e") == value;
        section.leave_and_wait().await.expect("left");
        if seen {
            break; // It reaches every member in the end.
        }
    }

    let registers = format!("{name}-registers");
    let written = Some(long("r", round));
    let write = one.write(&registers, "r", written.clone());
    write.await.expect("a quorum");
    assert_eq!(two.read(&registers, "r").await.expect("read"), written);
    two.write(&registers, "r", None).await.expect("a quorum");
    assert_eq!(one.read(&registers, "r").await.expect("read"), None);
}

/// A holder counts up in one key, many puts under way at a time, and readers at every site look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_beside_a_holder_are_linearizable_and_wait_for_nobody() {
    const PUTS: u64 = 600;
    let cluster = Cluster::start().await;
    let client = cluster.client(0).await;
    let section = entered(&client, "default", &["k"]).await;
    section.put("k", "1").await.expect("a quorum");
    // What must be seen by whoever begins now: acknowledged, or shown to somebody.
    let seen = Arc::new(AtomicU64::new(1));
    let mut readers = tokio::task::JoinSet::new();
    for at in 0..3 {
        let (client, seen) = (cluster.client(at).await, seen.clone());
        readers.spawn(async move {
            let mut reads = 0;
            while seen.load(Ordering::SeqCst) < PUTS {
                let least = seen.load(Ordering::SeqCst);
                let value = client.read_beside("default", "k").await.expect("a value");
                let value = checks::number(value);
                assert!(value >= least, "{value} after {least}");
                seen.fetch_max(value, Ordering::SeqCst);
                reads += 1;
            }
            reads
        });
    }
    let mut puts = std::collections::VecDeque::new();
    for number in 2..=PUTS {
        puts.push_back((number, section.put("k", number.to_string())));
        if puts.len() == 8 || number == PUTS {
            let waited = if number == PUTS { puts.len() } else { 1 };
            for (number, put) in puts.drain(..waited) {
                put.await.expect("a quorum");
                seen.fetch_max(number, Ordering::SeqCst);
            }
        }
    }
    while let Some(reads) = readers.join_next().await {
        assert!(reads.expect("linearizable") > 0);
    }
    let value = client.read_beside("default", "k").await.expect("a value");
    assert_eq!(checks::number(value), PUTS);
    section.leave_and_wait().await.expect("left");
    let value = client.read_beside("default", "k").await.expect("a value");
    assert_eq!(checks::number(value), PUTS, "nobody holds it");
    let value = client.read_beside("registers", "r").await.expect("a value");
    assert_eq!(value, None, "nobody can");
}

#[tokio::test]
async fn a_client_without_a_cluster_says_so() {
    let nobody = Client::connect(Options::new(Vec::<String>::new())).await;
    assert!(matches!(nobody, Err(Error::Options(_))));
    let options = Options {
        request_timeout: Duration::from_millis(300),
        ..Options::new(["http://127.0.0.1:1"])
    };
    let client = Client::connect(options)
        .await
        .expect("it may come up later");
    let error = client.get("default", "k").await.expect_err("nobody there");
    assert_eq!(error.code(), Code::Unavailable);
    let written = client.write("registers", "r", None).await;
    assert!(!written.expect_err("nobody there").may_have_taken_effect());
}
