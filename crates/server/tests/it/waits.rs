//! Those who wait for a lock: who hangs up, and whose lease is shorter than the wait.

use crate::common::{Client, Session, TestCluster, eventually, key};
use crate::http::Rest;
use fermata_api::v1;
use fermata_api::v1::enter_event::Event;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tonic::Streaming;

const HOUR_US: u64 = 3_600_000_000;

fn enter(session: &mut Session, lease_us: u64) -> v1::EnterRequest {
    v1::EnterRequest {
        header: session.header(),
        keys: vec![key("k")],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        lease_us: Some(lease_us),
        ..v1::EnterRequest::default()
    }
}

async fn next(events: &mut Streaming<v1::EnterEvent>) -> Event {
    let event = events.next().await.expect("more is to come");
    event.expect("no refusal").event.expect("an event")
}

/// The stream's section, whatever it is told before.
async fn entered(events: &mut Streaming<v1::EnterEvent>) -> v1::Held {
    loop {
        if let Event::Entered(mut entered) = next(events).await {
            return entered.keys.remove(0).held.expect("its ref");
        }
    }
}

pub(crate) async fn leave(client: &mut Client, session: &mut Session, held: v1::Held) {
    let leaving = v1::Leaving {
        held: Some(held),
        clean: true,
        tag: None,
    };
    let request = v1::LeaveRequest {
        header: session.header(),
        keys: vec![leaving],
    };
    client.leave(request).await.unwrap();
}

/// Waits until the queue of `k` is so.
pub(crate) async fn queue_of(rest: &Rest, wanted: impl Fn(&[Value]) -> bool) {
    let queue = "/v1/keyspaces/default/keys/k/queue";
    eventually!({
        let (_, queue) = rest.json("GET", queue, Value::Null).await;
        queue["entries"].as_array().is_some_and(|all| wanted(all))
    });
}

/// Begins to enter `k`, without a secret of its own.
pub(crate) async fn enter_by_http(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = r#"{"keys": [{"key": "k"}], "wait_ms": 3600000, "lease_ms": 3600000}"#;
    let head = "POST /v1/sections HTTP/1.1\r\nHost: n\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A holder, and somebody who waits for an hour at most and hangs up: its place goes while the
/// holder is still there, and whoever comes next is behind the holder alone. `hang_up` waits, until
/// it is in the queue, and then is gone.
async fn nobody_waits_for_the_gone(cluster: &TestCluster, id: u128, hang_up: impl AsyncFnOnce()) {
    let rest = Rest(cluster.node(1).rest.clone());
    let mut client = cluster.client(1).await;
    let (mut first, mut last) = (Session::new(id), Session::new(id + 1));
    let request = enter(&mut first, HOUR_US);
    let mut events = client.enter(request).await.unwrap().into_inner();
    let held = entered(&mut events).await;
    hang_up().await;
    queue_of(&rest, |all| all.len() == 1).await;
    let request = enter(&mut last, HOUR_US);
    let mut events = client.enter(request).await.unwrap().into_inner();
    leave(&mut client, &mut first, held).await;
    let held = entered(&mut events).await;
    leave(&mut client, &mut last, held).await;
    queue_of(&rest, |all| all.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_hangs_up_does_not_keep_its_place() {
    let cluster = TestCluster::start(3).await;
    let rest = Rest(cluster.node(0).rest.clone());
    nobody_waits_for_the_gone(&cluster, 70, async || {
        let mut client = cluster.client(0).await;
        let request = enter(&mut Session::new(75), HOUR_US);
        let mut events = client.enter(request).await.unwrap().into_inner();
        assert!(matches!(next(&mut events).await, Event::Queued(_)));
        queue_of(&rest, |all| all.len() == 2).await;
    })
    .await;
    nobody_waits_for_the_gone(&cluster, 80, async || {
        let _stream = enter_by_http(&rest.0).await;
        queue_of(&rest, |all| all.len() == 2).await;
    })
    .await;
}

/// The holder is silent, and its section ends with its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_lasts_longer_than_the_lease_that_it_asks_for() {
    let cluster = TestCluster::start(3).await;
    let mut client = cluster.client(0).await;
    for (id, lease_us) in [(90, 100_000), (92, 700_000)] {
        let request = enter(&mut Session::new(id), 2_000_000);
        let mut holder = client.enter(request).await.unwrap().into_inner();
        entered(&mut holder).await;
        let mut session = Session::new(id + 1);
        let request = enter(&mut session, lease_us);
        let mut events = client.enter(request).await.unwrap().into_inner();
        entered(&mut events).await;
    }
    let rest = Rest(cluster.node(1).rest.clone());
    let enter = |lease: u32| json!({"keys": [{"key": "k"}], "wait_ms": 20_000, "lease_ms": lease});
    for lease in [2_000, 300] {
        let (status, section) = rest.json("POST", "/v1/sections", enter(lease)).await;
        assert_eq!(status, 201, "{section}");
    }
}
