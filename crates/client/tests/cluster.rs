//! The library against real nodes in this process.

mod common;

use common::Cluster;
use fermata_client::{Client, Code, Enter, Error, LostReason, Mode, Options};
use std::time::Duration;

fn number(value: Option<fermata_client::Bytes>) -> u64 {
    value.map_or(0, |bytes| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.parse().expect("a number")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_sees_what_the_one_before_it_wrote() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    assert_eq!(one.nodes().len(), 3, "the others are found");
    assert_eq!(two.nodes()[0].site, "s2", "the own site comes first");

    let section = one.enter("default", &["k", "l"], Enter::default()).await;
    let section = section.expect("entered");
    assert_eq!(section.entry_value("k"), None);
    let puts = [
        section.put("k", "1"),
        section.put("l", "2"),
        section.put("k", "3"),
    ];
    for put in puts {
        put.await.expect("a quorum");
    }
    assert_eq!(section.get("k").await.expect("held"), Some("3".into()));
    let first = section.lock_ref("k").expect("a ref");
    section.delete("l").await.expect("a quorum");
    section.leave();

    let section = two.enter("default", &["k", "l"], Enter::default()).await;
    let section = section.expect("entered");
    assert_eq!(section.entry_value("k"), Some("3".into()));
    assert_eq!(section.get("l").await.expect("held"), None);
    assert!(section.lock_ref("k").expect("a ref") > first);
    section.put_and_leave("k", "4").await.expect("left");

    let enter = Enter {
        mode: Mode::Shared,
        ..Enter::default()
    };
    let section = one.enter("default", &["k"], enter).await.expect("entered");
    assert_eq!(section.entry_value("k"), Some("4".into()));
    let refused = section.put("k", "5").await.expect_err("shared");
    assert_eq!(refused.code(), Code::ReadOnlySection);
    section.leave_and_wait().await.expect("left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_although_a_node_stops() {
    let mut cluster = Cluster::start().await;
    let mut workers = Vec::new();
    for at in 0..3 {
        let client = cluster.client(at).await;
        workers.push(tokio::spawn(async move {
            for _ in 0..5 {
                increment(&client).await;
            }
        }));
    }
    cluster.stop(1).await;
    for worker in workers {
        worker.await.expect("no panic");
    }
    let client = cluster.client(2).await;
    let section = client
        .enter("default", &["counter"], Enter::default())
        .await;
    let counted = number(section.expect("entered").entry_value("counter"));
    assert_eq!(counted, 15);
}

async fn increment(client: &Client) {
    let section = client
        .enter("default", &["counter"], Enter::default())
        .await;
    let section = section.expect("entered");
    let next = number(section.get("counter").await.expect("held")) + 1;
    section
        .put_and_leave("counter", next.to_string())
        .await
        .expect("left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_and_a_waiter_that_is_removed_learns_of_it() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(2).await);
    let enter = Enter {
        lease: Some(Duration::from_secs(2)),
        ..Enter::default()
    };
    let held = one.enter("default", &["k"], enter).await.expect("entered");
    let brief = Enter {
        wait: Some(Duration::from_millis(200)),
        ..Enter::default()
    };
    let over = two.enter("default", &["k"], brief).await.expect_err("held");
    assert_eq!(over.code(), Code::WaitOver);
    // Its place in the queue is given up in the background.
    while two.queue("default", "k").await.expect("a primary").0.len() > 1 {}

    let waiting = two.clone();
    let waiting = tokio::spawn(async move {
        let enter = waiting.enter("default", &["k"], Enter::default()).await;
        enter.map(drop)
    });
    let waiter = loop {
        let (queue, _) = two.queue("default", "k").await.expect("a primary");
        let holder = queue.iter().find(|entry| entry.holds).expect("a holder");
        assert_eq!(Some(holder.lock_ref), held.lock_ref("k"));
        if let Some(waiter) = queue.iter().find(|entry| !entry.holds) {
            break waiter.lock_ref;
        }
    };
    let release = one.release("default", "k", waiter);
    release.await.expect("released");
    let removed = waiting.await.expect("no panic").expect_err("removed");
    assert_eq!(removed.code(), Code::NoLongerHolder);
    held.put("k", "still here").await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_is_resumed_by_another_client() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    let section = one.enter("default", &["k"], Enter::default()).await;
    let section = section.expect("entered");
    section.put("k", "before").await.expect("a quorum");
    let mut held = section.held();
    held[0].key = two.key("default", "k");
    let resumed = two.resume(held).await.expect("resumed");
    assert_eq!(resumed.entry_value("k"), Some("before".into()));
    let refused = section.put("k", "stale").await.expect_err("taken over");
    assert_eq!(refused.code(), Code::NoLongerHolder);
    // By the refusal or by a heartbeat, whichever came first.
    let lost = section.lost().await;
    assert!(matches!(lost, LostReason::Refused | LostReason::Gone));
    resumed.put_and_leave("k", "after").await.expect("left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_without_a_section() {
    let cluster = Cluster::start().await;
    let client = cluster.client(0).await;
    let value = Some("v".into());
    client
        .write("registers", "r", value.clone())
        .await
        .expect("a quorum");
    assert_eq!(
        client.read("registers", "r").await.expect("a quorum"),
        value
    );
    client
        .put("default", "e", "soon")
        .await
        .expect("one replica");
    assert_eq!(
        client.get("default", "e").await.expect("one replica"),
        Some("soon".into())
    );
    let keys = client
        .keys("default", "", None, 10)
        .await
        .expect("a listing");
    assert_eq!(keys, ["e"]);
    let names = client.keyspaces().await.expect("the catalogue");
    assert!(names.iter().any(|k| k.name == "registers"));
    let unknown = client
        .get("nowhere", "k")
        .await
        .expect_err("no such keyspace");
    assert_eq!(unknown.code(), Code::NoSuchKeyspace);
    assert!(!unknown.may_have_taken_effect());
    let status = client.status(Some(0)).await.expect("a node");
    assert_eq!(client.site_name(status.site), client.nodes()[0].site);
    client.inspect("default", "e", None).await.expect("a node");
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
