//! What the library is held to, whatever engine its nodes run on: the module above has a `Cluster`
//! of them.

use super::Cluster;
use fermata_client::{Bytes, Change, Client, Code, Condition, Enter, EntryValue, LostReason, Mode};
use fermata_client::{Options, Section, Version};
use fermata_server::config::LimitsConfig;
use std::time::Duration;

/// Makes a test of every check: `$run` is given its future, and runs it or says why it cannot.
macro_rules! every_client_check {
    ($run:path) => {
        every_client_check! { $run,
            a_section_sees_what_the_one_before_it_wrote
            no_increment_is_lost_although_a_node_stops
            a_change_is_done_under_its_condition_alone
            no_increment_by_compare_and_set_is_lost
            a_wait_ends_and_a_waiter_that_is_removed_learns_of_it
            a_section_is_resumed_by_another_client
            operations_without_a_section
            values_that_did_not_come_with_the_entry_are_read_when_they_are_wanted
            what_is_too_large_is_refused_by_name_and_disturbs_nobody
            a_resume_outlasts_the_request_time_where_the_old_lease_does
        }
    };
    ($run:path, $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                $run(crate::checks::$check());
            }
        )*
    };
}

pub(crate) async fn entered(client: &Client, keyspace: &str, keys: &[&str]) -> Section {
    let section = client.enter(keyspace, keys, Enter::default()).await;
    section.expect("entered")
}

pub(crate) fn number(value: Option<Bytes>) -> u64 {
    value.map_or(0, |bytes| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.parse().expect("a number")
    })
}

async fn increment(client: &Client) {
    let section = entered(client, "default", &["counter"]).await;
    let next = number(section.get("counter").await.expect("held")) + 1;
    section
        .put_and_leave("counter", next.to_string())
        .await
        .expect("left");
}

pub(crate) async fn a_section_sees_what_the_one_before_it_wrote() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    assert_eq!(one.nodes().len(), 3, "the others are found");
    assert_eq!(two.nodes()[0].site, "s2", "the own site comes first");

    let section = entered(&one, "default", &["k", "l"]).await;
    assert_eq!(section.entry_value("k"), Some(EntryValue::Absent));
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

    let section = entered(&two, "default", &["k", "l"]).await;
    assert_eq!(
        section.entry_value("k"),
        Some(EntryValue::Value("3".into()))
    );
    assert_eq!(section.get("l").await.expect("held"), None);
    assert!(section.lock_ref("k").expect("a ref") > first);
    section.put_and_leave("k", "4").await.expect("left");

    let enter = Enter {
        mode: Mode::Shared,
        ..Enter::default()
    };
    let section = one.enter("default", &["k"], enter).await.expect("entered");
    assert_eq!(
        section.entry_value("k"),
        Some(EntryValue::Value("4".into()))
    );
    let refused = section.put("k", "5").await.expect_err("shared");
    assert_eq!(refused.code(), Code::ReadOnlySection);
    section.leave_and_wait().await.expect("left");
}

pub(crate) async fn no_increment_is_lost_although_a_node_stops() {
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
    let section = entered(&client, "default", &["counter"]).await;
    let counted = number(section.get("counter").await.expect("held"));
    assert_eq!(counted, 15);
}

pub(crate) async fn a_change_is_done_under_its_condition_alone() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    let wait = Duration::from_secs(60);
    let some = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let version = |text: &str| Version::of(text.as_bytes());
    let done = |text: &str| Change::Done(Some(version(text)));
    use Condition::{Absent, Present, Value};
    let steps = [
        (some("1"), Present, Change::Failed(None)),
        (some("1"), Value("".into()), Change::Failed(None)),
        (some("1"), Absent, done("1")),
        (some("2"), Absent, Change::Failed(some("1"))),
        (some("2"), Value("2".into()), Change::Failed(some("1"))),
        (
            None,
            Condition::Version(version("2")),
            Change::Failed(some("1")),
        ),
        (some("2"), Condition::Version(version("1")), done("2")),
        (some("3"), Value("2".into()), done("3")),
        (some(""), Present, done("")),
        (None, Value("".into()), Change::Done(None)),
    ];
    for (at, (value, condition, expected)) in steps.into_iter().enumerate() {
        let (client, other) = if at % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let now = match &expected {
            Change::Done(_) => value.clone(),
            Change::Failed(found) => found.clone(),
        };
        let changed = client.write_if("default", "k", value, &condition, wait);
        assert_eq!(changed.await.expect("a quorum"), expected, "{condition:?}");
        assert_eq!(other.read("default", "k").await.expect("a quorum"), now);
    }
    let held = entered(&one, "default", &["k"]).await;
    let brief = Duration::from_millis(200);
    let over = two.write_if("default", "k", some("4"), &Absent, brief);
    let over = over.await.expect_err("held");
    assert_eq!(over.code(), Code::WaitOver);
    assert!(!over.may_have_taken_effect(), "{over}");
    held.leave_and_wait().await.expect("left");
    assert_eq!(one.read("default", "k").await.expect("a quorum"), None);
    let register = one.write_if("registers", "k", some("1"), &Absent, wait);
    let refused = register.await.expect_err("no sections");
    assert_eq!(refused.code(), Code::WrongPurpose);
    assert!(
        refused.to_string().contains("no section in which"),
        "{refused}"
    );
    assert_eq!(one.read("registers", "k").await.expect("a quorum"), None);
}

pub(crate) async fn no_increment_by_compare_and_set_is_lost() {
    let cluster = Cluster::start().await;
    let mut workers = Vec::new();
    for at in 0..3 {
        let client = cluster.client(at).await;
        workers.push(tokio::spawn(async move {
            let (mut now, mut done) = (None, 0);
            while done < 5 {
                let condition = now.clone().map_or(Condition::Absent, Condition::Value);
                let next = Bytes::from((number(now) + 1).to_string());
                let wait = Duration::from_secs(60);
                let value = Some(next.clone());
                let change = client.write_if("default", "counter", value, &condition, wait);
                match change.await.expect("a quorum") {
                    Change::Done(_) => (now, done) = (Some(next), done + 1),
                    Change::Failed(found) => now = found,
                }
            }
        }));
    }
    for worker in workers {
        worker.await.expect("no panic");
    }
    let counted = cluster.client(0).await.read("default", "counter").await;
    assert_eq!(number(counted.expect("a quorum")), 15);
}

pub(crate) async fn a_wait_ends_and_a_waiter_that_is_removed_learns_of_it() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(2).await);
    let enter = Enter {
        lease: Some(Duration::from_secs(60)),
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

pub(crate) async fn a_section_is_resumed_by_another_client() {
    let cluster = Cluster::start().await;
    let (one, two) = (cluster.client(0).await, cluster.client(1).await);
    let section = entered(&one, "default", &["k"]).await;
    section.put("k", "before").await.expect("a quorum");
    let mut held = section.held();
    held[0].key = two.key("default", "k");
    // Knowing what is held is not enough.
    let stranger = two.resume(held.clone(), two.secret()).await;
    let stranger = stranger.expect_err("another's section");
    assert_eq!(stranger.code(), Code::NotHolder);
    assert!(!stranger.may_have_taken_effect());
    assert!(!section.is_lost());
    let resumed = two.resume(held, one.secret()).await.expect("resumed");
    assert_eq!(
        resumed.entry_value("k"),
        Some(EntryValue::Value("before".into()))
    );
    let refused = section.put("k", "stale").await.expect_err("taken over");
    assert_eq!(refused.code(), Code::NoLongerHolder);
    // By the refusal or by a heartbeat, whichever came first.
    let lost = section.lost().await;
    assert!(matches!(lost, LostReason::Refused | LostReason::Gone));
    resumed.put_and_leave("k", "after").await.expect("left");
}

/// The keys with `f` above `f1`, one a page.
async fn all_pages(client: &Client) -> Vec<Bytes> {
    let mut pages = client.pages("default", "f", Some(b"f1"));
    let mut all = Vec::new();
    loop {
        let page = pages.next(1).await.expect("a listing");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

pub(crate) async fn operations_without_a_section() {
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
    for key in ["f1", "f2", "f3", "g"] {
        client.put("default", key, "v").await.expect("one replica");
    }
    // The replica that is asked may hear of them last.
    while all_pages(&client).await != ["f2", "f3"] {}
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

pub(crate) async fn values_that_did_not_come_with_the_entry_are_read_when_they_are_wanted() {
    let limits = LimitsConfig {
        grant_bytes: Some(10_000),
        ..LimitsConfig::default()
    };
    let cluster = Cluster::with(3, limits).await;
    let keys = ["a", "b", "c", "d", "e", "f"];
    let value = |key: &str, round: u8| vec![key.as_bytes()[0] ^ round; 4_000];
    for round in 0..3 {
        let client = cluster.client(usize::from(round)).await;
        let section = entered(&client, "default", &keys).await;
        let omitted = |key: &&&str| section.entry_value(key) == Some(EntryValue::Omitted);
        let beyond = keys.iter().filter(omitted).count();
        assert_eq!(beyond, if round == 0 { 0 } else { 4 });
        for key in keys {
            let before = (round > 0).then(|| value(key, round - 1).into());
            assert_eq!(section.get(key).await.expect("held"), before, "{key}");
            section.put(key, value(key, round)).await.expect("a quorum");
            let after = section.get(key).await.expect("held");
            assert_eq!(after, Some(value(key, round).into()));
        }
        section.leave_and_wait().await.expect("left");
        // A linearizable read is a section of the node's own.
        let read = client.read("default", "f").await.expect("a quorum");
        assert_eq!(read, Some(value("f", round).into()));
    }
}

pub(crate) async fn what_is_too_large_is_refused_by_name_and_disturbs_nobody() {
    let limits = LimitsConfig {
        value_bytes: Some(1_000),
        ..LimitsConfig::default()
    };
    let cluster = Cluster::with(3, limits).await;
    let client = cluster.client(0).await;
    // It takes a busy machine a while to copy and to refuse all these bytes.
    let enter = Enter {
        lease: Some(Duration::from_secs(60)),
        ..Enter::default()
    };
    let section = client.enter("default", &["k"], enter).await;
    let section = section.expect("entered");
    // More than these nodes take, than any node takes, and than they read in one message.
    for size in [1_001, 3 << 20, 32 << 20, (32 << 20) + 1, 40 << 20] {
        for refused in [
            client.put("default", "other", vec![0; size]).await,
            section.put("k", vec![0; size]).await,
        ] {
            let error = refused.expect_err("too large");
            assert_eq!(error.code(), Code::TooLarge, "{size}: {error}");
            assert!(!error.may_have_taken_effect(), "{size}: {error}");
        }
    }
    let long = client.read("registers", vec![b'k'; 40_000]).await;
    assert_eq!(long.expect_err("too long").code(), Code::TooLarge);
    section.put("k", vec![1; 1_000]).await.expect("a quorum");
    assert!(!section.is_lost());
    section.leave_and_wait().await.expect("left");
}

pub(crate) async fn a_resume_outlasts_the_request_time_where_the_old_lease_does() {
    let cluster = Cluster::start().await;
    let one = cluster.client(0).await;
    let enter = Enter {
        lease: Some(Duration::from_secs(8)),
        ..Enter::default()
    };
    let section = one.enter("default", &["k"], enter).await.expect("entered");
    section.put("k", "before").await.expect("a quorum");
    let held = section.held();
    let impatient = Options {
        request_timeout: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(1),
        ..Options::new([cluster.endpoint(1)])
    };
    let two = Client::connect(impatient).await.expect("a client");
    let named = |client: &Client| {
        let mut held = held.clone();
        held[0].key = client.key("default", "k");
        held
    };
    let resumed = two.resume(named(&two), one.secret()).await;
    let resumed = resumed.expect("resumed");
    assert_eq!(resumed.get("k").await.expect("held"), Some("before".into()));
    // The generation before is gone, whoever asks for it.
    let three = cluster.client(2).await;
    let error = three
        .resume(named(&three), one.secret())
        .await
        .expect_err("resumed already");
    assert_eq!(error.code(), Code::NoLongerHolder);
    assert!(error.to_string().contains("gone"), "{error}");
    resumed.leave_and_wait().await.expect("left");
}
