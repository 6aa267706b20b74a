//! The interval clock: what it saves, and what is noticed when it is wrong.

use crate::common::{Choice, Client, Session, TestCluster};
use fermata_api::v1;
use fermata_server::config::ClockConfig;
use serde_json::Value;
use std::time::Duration;

const BOUND: u64 = 5_000;

/// Three nodes, each with this offset and the same bound; none: without an interval clock.
async fn start(bound: Option<u64>, offsets: [i64; 3]) -> TestCluster {
    let clock = |offset| ClockConfig {
        bound_us: Some(bound.unwrap_or(0)),
        test_offset_us: offset,
    };
    let choice = Choice {
        clocks: offsets.map(clock).to_vec(),
        ..Choice::default()
    };
    TestCluster::start_with(3, choice).await
}

/// Questions that a node has asked members about registers: rounds of reading, of storing.
async fn asks(cluster: &TestCluster, at: usize) -> (f64, f64) {
    let of = |ask| format!("fermata_register_asks_total{{ask=\"{ask}\"}}");
    let read = cluster.metric(at, &of("read")).await;
    (read, cluster.metric(at, &of("store")).await)
}

async fn status(client: &mut Client, session: &mut Session) -> v1::ClockStatus {
    let request = v1::StatusRequest {
        header: session.header(),
    };
    let status = client.status(request).await.unwrap().into_inner();
    status.clock.unwrap()
}

fn coded_key(name: &str) -> v1::Key {
    v1::Key {
        keyspace: "coded".into(),
        key: name.as_bytes().to_vec().into(),
    }
}

/// A keyspace whose values are coded; 1 of 3 may fail.
async fn create_coded(client: &mut Client, session: &mut Session) {
    let keyspace = v1::Keyspace {
        name: "coded".into(),
        purpose: v1::Purpose::Registers.into(),
        storage: v1::StoragePolicy::Coded.into(),
        terms: Some(v1::StorageTerms {
            faults: 1,
            ..v1::StorageTerms::default()
        }),
        ..v1::Keyspace::default()
    };
    let create = v1::CreateKeyspaceRequest {
        header: session.header(),
        keyspace: Some(keyspace),
    };
    client.create_keyspace(create).await.unwrap();
}

async fn write(client: &mut Client, session: &mut Session, name: &str, value: &str) {
    let write = v1::WriteRequest {
        header: session.header(),
        key: Some(coded_key(name)),
        value: Some(value.to_owned().into()),
    };
    client.write(write).await.unwrap();
}

async fn read(client: &mut Client, session: &mut Session, name: &str) -> String {
    let read = v1::ReadRequest {
        header: session.header(),
        key: Some(coded_key(name)),
    };
    let value = client.read(read).await.unwrap().into_inner().value;
    String::from_utf8(value.unwrap().to_vec()).unwrap()
}

/// How many rounds of reading and of storing a write took; several writes, all alike.
async fn rounds_of_a_write(cluster: &TestCluster, session: &mut Session) -> (bool, bool) {
    let mut client = cluster.client(0).await;
    let before = asks(cluster, 0).await;
    for i in 0..10 {
        write(&mut client, session, &format!("k{i}"), "v").await;
    }
    let after = asks(cluster, 0).await;
    (after.0 - before.0 >= 30.0, after.1 - before.1 >= 30.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coded_write_takes_one_round_with_a_bound() {
    let cluster = start(Some(BOUND), [0; 3]).await;
    let (mut client, mut session) = (cluster.client(0).await, Session::new(71));
    create_coded(&mut client, &mut session).await;
    let before = asks(&cluster, 0).await;
    assert_eq!(
        rounds_of_a_write(&cluster, &mut session).await,
        (false, true)
    );
    let after = asks(&cluster, 0).await;
    assert_eq!(after.0, before.0, "no member was asked what it has");
    let mut other = cluster.client(1).await;
    assert_eq!(read(&mut other, &mut session, "k3").await, "v");
    let clock = status(&mut client, &mut session).await;
    assert_eq!(clock.state(), v1::ClockState::Trusted);
    assert!(clock.bound_us.unwrap() >= BOUND && clock.violations == 0);
    assert_eq!(cluster.metric(0, "fermata_clock_interval").await, 1.0);
    let bound = cluster.metric(0, "fermata_clock_bound_seconds").await;
    assert!(bound >= 0.005, "{bound}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coded_write_takes_two_rounds_without_a_bound_and_that_is_said() {
    let cluster = start(None, [0; 3]).await;
    let (mut client, mut session) = (cluster.client(0).await, Session::new(72));
    create_coded(&mut client, &mut session).await;
    assert_eq!(
        rounds_of_a_write(&cluster, &mut session).await,
        (true, true)
    );
    let clock = status(&mut client, &mut session).await;
    assert_eq!(
        (clock.state(), clock.bound_us),
        (v1::ClockState::Unspecified, None)
    );
    assert_eq!(cluster.metric(0, "fermata_clock_interval").await, 0.0);
    let rest = crate::http::Rest(cluster.node(0).rest.clone());
    let (_, said) = rest.json("GET", "/v1/status", Value::Null).await;
    let line = said["clock"]["detail"].as_str().unwrap();
    assert!(
        line.contains("two round trips") && !line.contains('\n'),
        "{line}"
    );
}

/// One clock is a minute off, far beyond its bound: every node notices, gives its own up, and goes
/// on in two rounds; nothing that is acknowledged then is lost.
async fn a_wrong_clock_is_noticed(offset: i64) {
    let cluster = start(Some(BOUND), [0, 0, offset]).await;
    let mut session = Session::new(73);
    for at in 0..3 {
        let mut client = cluster.client(at).await;
        loop {
            let clock = status(&mut client, &mut session).await;
            if clock.state() == v1::ClockState::Violated {
                assert!(clock.violations > 0);
                let wrong = if at == 2 { 1..=2 } else { 3..=3 };
                assert!(wrong.contains(&clock.against.unwrap()), "{clock:?}");
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(cluster.metric(at, "fermata_clock_interval").await, 0.0);
        assert!(cluster.metric(at, "fermata_clock_violations_total").await > 0.0);
    }
    let mut client = cluster.client(0).await;
    create_coded(&mut client, &mut session).await;
    assert_eq!(
        rounds_of_a_write(&cluster, &mut session).await,
        (true, true)
    );
    let mut wrong = cluster.client(2).await;
    write(&mut wrong, &mut session, "k0", "of the wrong clock").await;
    write(&mut client, &mut session, "k0", "later").await;
    assert_eq!(read(&mut wrong, &mut session, "k0").await, "later");
    assert_eq!(read(&mut client, &mut session, "k0").await, "later");
    write(&mut wrong, &mut session, "k0", "last").await;
    assert_eq!(read(&mut client, &mut session, "k0").await, "last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_clock_is_noticed() {
    a_wrong_clock_is_noticed(60_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_clock_is_noticed() {
    a_wrong_clock_is_noticed(-60_000_000).await;
}
