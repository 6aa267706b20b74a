//! A graceful stop: what the node leads is handed over, and sections go on elsewhere.

use crate::common::{Choice, Session, TestCluster, enter, key, read, register};
use fermata_api::v1;
use fermata_api::v1::session_reply::Reply;
use fermata_api::v1::session_request::Operation;
use fermata_server::config::TimingConfig;
use tokio_stream::StreamExt;

/// Elections take longer than any request waits, so that only a hand-over lets a request through.
fn no_elections() -> Choice {
    let timing = TimingConfig {
        beat_ms: Some(50),
        lease_ms: Some(400),
        election_ms: Some(120_000),
        stagger_ms: Some(60_000),
        ..TimingConfig::default()
    };
    Choice {
        timing,
        ..Choice::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_goes_on_after_a_graceful_stop_without_an_election() {
    let mut cluster = TestCluster::start_with(3, no_elections()).await;
    let mut clients = Vec::new();
    for at in 0..3 {
        clients.push(cluster.client(at).await);
    }
    // Keys of all segments, so that each node is the primary of some.
    let mut session = Session::new(41);
    let mut sections = Vec::new();
    for i in 0..16 {
        let entered = enter(&mut clients[1], &mut session, &format!("k{i}"))
            .await
            .unwrap();
        sections.push(entered.keys[0].held.clone().unwrap());
    }
    // A node that has just started supports nobody for a lease: it may have promised it to another.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    cluster.stop(0).await;
    for held in &sections {
        let put = v1::CriticalPutRequest {
            header: session.header(),
            held: Some(held.clone()),
            sequence: 1,
            value: Some("after".into()),
            leave: vec![v1::Leaving {
                held: Some(held.clone()),
                clean: true,
                tag: None,
            }],
        };
        let done = clients[1].critical_put(put).await.unwrap().into_inner();
        assert!(done.left);
    }
    let mut other = Session::new(42);
    for i in 0..16 {
        let entered = enter(&mut clients[2], &mut other, &format!("k{i}"))
            .await
            .unwrap();
        assert_eq!(entered.keys[0].value.as_deref(), Some(&b"after"[..]));
    }
    cluster.restart(0).await;
    cluster.client(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_streams_are_told_that_the_node_stops() {
    let mut cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(43);
    let follow = v1::EnterRequest {
        header: session.header(),
        keys: vec![key("s")],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        follow: true,
        lease_us: Some(60_000_000),
        ..v1::EnterRequest::default()
    };
    let mut events = client.enter(follow.clone()).await.unwrap().into_inner();
    assert!(events.next().await.unwrap().is_ok());
    let (requests, sent) = tokio::sync::mpsc::channel(4);
    let waiting = v1::EnterRequest {
        header: Session::new(44).header(),
        ..follow
    };
    let frame = v1::SessionRequest {
        id: 1,
        operation: Some(Operation::Enter(waiting)),
    };
    requests.send(frame).await.unwrap();
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut replies = client.session(sent).await.unwrap().into_inner();
    assert_eq!(replies.next().await.unwrap().unwrap().id, 1);
    cluster.stop(0).await;
    let code = |status: &tonic::Status| status.code();
    let ended = loop {
        if let Err(status) = events.next().await.unwrap() {
            break status;
        }
    };
    assert_eq!(code(&ended), tonic::Code::Unavailable, "{ended}");
    let ended = loop {
        if let Err(status) = replies.next().await.unwrap() {
            break status;
        }
    };
    assert_eq!(code(&ended), tonic::Code::Unavailable, "{ended}");
}

/// Between a node that goes and the next one no request is lost: a client with a stream is told who
/// drains, and when the node stops; what it has sent before it ends the stream is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_a_stream_is_told_and_what_was_sent_is_done() {
    let mut cluster = TestCluster::start(3).await;
    let (requests, sent) = tokio::sync::mpsc::channel(4);
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut client = cluster.client(0).await;
    let mut replies = client.session(sent).await.unwrap().into_inner();
    let drain = v1::Drain {
        node: 1,
        drains: true,
    };
    let change = v1::ChangeRingRequest {
        header: Session::new(45).header(),
        change: Some(v1::change_ring_request::Change::Drain(drain)),
    };
    cluster.client(1).await.change_ring(change).await.unwrap();
    let (mut leaves, mut listed) = (false, false);
    while !(leaves && listed) {
        match replies.next().await.unwrap().unwrap().reply {
            Some(Reply::Leaving(_)) => leaves = true,
            Some(Reply::Cluster(info)) => listed = info.nodes.iter().any(|n| n.drains),
            other => panic!("{other:?}"),
        }
    }
    let goes_on = async {
        while !matches!(
            replies.next().await.unwrap().unwrap().reply,
            Some(Reply::Leaving(_))
        ) {}
        let write = v1::WriteRequest {
            header: Session::new(46).header(),
            key: Some(register("last")),
            value: Some("sent".into()),
        };
        let operation = Some(Operation::Write(write));
        let frame = v1::SessionRequest { id: 7, operation };
        requests.send(frame).await.unwrap();
        drop(requests);
        let answer = replies.next().await.unwrap().unwrap();
        assert!(
            matches!(answer.reply, Some(Reply::Done(_))) && answer.id == 7,
            "{answer:?}"
        );
        assert!(replies.next().await.is_none(), "the stream ends in order");
    };
    tokio::join!(cluster.stop(0), goes_on);
    let mut other = cluster.client(1).await;
    let found = read(&mut other, &mut Session::new(47), "last").await;
    assert_eq!(found.as_deref(), Some(&b"sent"[..]));
}
