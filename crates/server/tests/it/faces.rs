//! What faces offer beside the operations themselves: reflection, health, one port for both, the
//! cluster's description, cancellation, the events of a resumed section.

use crate::common::{Choice, Session, TestCluster, enter, eventually, key, read, register, write};
use crate::http::Rest;
use fermata_api::v1;
use fermata_api::v1::session_reply::Reply;
use fermata_api::v1::session_request::Operation;
use serde_json::{Value, json};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

async fn channel(cluster: &TestCluster) -> tonic::transport::Channel {
    let url = format!("http://{}", cluster.node(0).grpc);
    let endpoint = tonic::transport::Channel::from_shared(url).unwrap();
    endpoint.connect().await.unwrap()
}

/// One port for gRPC and REST, and what both say there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_port_serves_both_faces_with_reflection_and_health() {
    let choice = Choice {
        one_port: true,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(1, choice).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(71);
    write(&mut client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    assert_eq!(cluster.node(0).grpc, cluster.node(0).rest);
    let rest = Rest(cluster.node(0).rest.clone());
    let path = "/v1/keyspaces/registers/keys/k?consistency=linearizable";
    assert_eq!(rest.json("GET", path, Value::Null).await.1["value"], "v");
    assert_eq!(rest.json("GET", "/v1/nothing", Value::Null).await.0, 404);
    assert_eq!(rest.send("GET", "/healthz", &[], b"").await.0, 200);
    // Reflection names the services.
    let mut reflection = ServerReflectionClient::new(channel(&cluster).await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let answers = reflection.server_reflection_info(tokio_stream::iter([ask]));
    let mut answers = answers.await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("{answer:?}");
    };
    let names: Vec<String> = list.service.into_iter().map(|s| s.name).collect();
    for name in ["fermata.v1.Fermata", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|n| n == name), "{names:?}");
    }
    // Health of the service by name, and of one that is not there.
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel(&cluster).await);
    let mut check = async |service: &str| {
        let asked = tonic_health::pb::HealthCheckRequest {
            service: service.into(),
        };
        health.check(asked).await.map(|a| a.into_inner().status)
    };
    assert_eq!(check("fermata.v1.Fermata").await.unwrap(), 1);
    let missing = check("fermata.v1.Nothing").await.unwrap_err();
    assert_eq!(missing.code(), tonic::Code::NotFound);
    let cluster_info = client
        .cluster(v1::ClusterRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!((cluster_info.node, cluster_info.nodes.len()), (1, 1));
    assert_eq!(cluster_info.nodes[0].grpc, cluster.node(0).grpc);
    assert_eq!(cluster_info.sites, ["s1"]);
    assert_eq!(cluster_info.cluster.len(), 16);
}

/// Older tools know reflection by its first name alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_has_its_older_name_too_and_a_status_its_version() {
    use tonic_reflection::pb::v1alpha::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "fermata.v1.Fermata".into(),
        )),
    };
    let mut reflection = ServerReflectionClient::new(channel(&cluster).await);
    let answers = reflection.server_reflection_info(tokio_stream::iter([ask]));
    let mut answers = answers.await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response;
    let found = matches!(answer, Some(MessageResponse::FileDescriptorResponse(_)));
    assert!(found, "{answer:?}");
    let asked = v1::StatusRequest {
        header: Session::new(74).header(),
    };
    let status = client.status(asked).await.unwrap().into_inner();
    assert_eq!(status.version, env!("CARGO_PKG_VERSION"));
    // So has what is scraped, and what the process takes.
    let info = format!(
        "fermata_build_info{{version=\"{}\",wire=\"{}\"}}",
        status.version,
        fermata_protocol::wire::VERSION
    );
    assert_eq!(cluster.metric(0, &info).await, 1.0);
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_threads",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    ] {
        assert!(cluster.metric(0, name).await > 0.0, "{name}");
    }
}

/// Who holds a key for long is told with its label, by the key's primary alone, while it holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_a_key_for_long_is_in_the_metrics_of_its_primary() {
    let cluster = TestCluster::start(3).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let enter = json!({
        "keys": [{"key": "k"}], "wait_ms": 20_000, "lease_ms": 60_000, "label": "ann@vm:7"
    });
    let (_, section) = rest.json("POST", "/v1/sections", enter).await;
    let queue = "/v1/keyspaces/default/keys/k/queue";
    let (_, queue) = rest.json("GET", queue, Value::Null).await;
    let entry = &queue["entries"][0];
    let series = format!(
        "fermata_section_start_time_seconds{{keyspace=\"default\",key=\"k\",lock_ref=\"{}\",\
         site={},label=\"ann@vm:7\"}}",
        entry["lock_ref"], entry["site"]
    );
    let since = entry["since_us"].as_f64().unwrap() / 1e6;
    let told = async || {
        let mut told = vec![];
        for at in 0..3 {
            told.push(cluster.metric(at, &series).await);
        }
        told.retain(|at| *at > 0.0);
        told
    };
    eventually!(told().await == [since]);
    let section = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    assert_eq!(rest.json("DELETE", &section, Value::Null).await.0, 200);
    eventually!(told().await.is_empty());
}

/// Health follows the quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_quorum_says_so() {
    let mut cluster = TestCluster::start(3).await;
    for at in 0..3 {
        cluster.client(at).await;
    }
    cluster.stop(1).await;
    cluster.kill(2).await;
    let rest = Rest(cluster.node(0).rest.clone());
    loop {
        let (status, kind, _) = rest.send("GET", "/healthz", &[], b"").await;
        if status == 503 {
            assert_eq!(kind, "application/problem+json");
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // It is there all the same, not to be started again, and tells what it knows.
    assert_eq!(rest.send("GET", "/readyz", &[], b"").await.0, 503);
    assert_eq!(rest.send("GET", "/livez", &[], b"").await.0, 200);
    assert_eq!(rest.json("GET", "/v1/status", Value::Null).await.0, 200);
    cluster.restart(1).await;
    cluster.client(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_is_not_answered_and_its_id_is_free() {
    let cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut holder = Session::new(72);
    let entered = enter(&mut client, &mut holder, "k").await.unwrap();
    let mut session = Session::new(73);
    let (requests, sent) = tokio::sync::mpsc::channel(16);
    let mut replies = client
        .session(ReceiverStream::new(sent))
        .await
        .unwrap()
        .into_inner();
    let send = async |id, operation| {
        let operation = Some(operation);
        requests
            .send(v1::SessionRequest { id, operation })
            .await
            .unwrap();
    };
    let wait = v1::EnterRequest {
        header: session.header(),
        keys: vec![key("k")],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 60_000_000,
        follow: false,
        lease_us: None,
        ..v1::EnterRequest::default()
    };
    send(7, Operation::Enter(wait.clone())).await;
    let queued = replies.next().await.unwrap().unwrap();
    assert!(matches!(
        (queued.id, queued.reply),
        (7, Some(Reply::Event(_)))
    ));
    // The same id again while it is open; cancelled, twice, and an id that never was.
    send(7, Operation::Enter(wait)).await;
    let refused = loop {
        let reply = replies.next().await.unwrap().unwrap();
        if let Some(Reply::Refusal(refusal)) = reply.reply {
            break refusal;
        }
    };
    assert_eq!(refused.code, "bad_request");
    for id in [7, 7, 99] {
        send(id, Operation::Cancel(v1::Nothing {})).await;
    }
    let read_again = v1::ReadRequest {
        header: session.header(),
        key: Some(register("r")),
    };
    send(7, Operation::Read(read_again)).await;
    loop {
        let reply = replies.next().await.unwrap().unwrap();
        assert_eq!(reply.id, 7);
        match reply.reply {
            Some(Reply::Event(_)) => {} // on its way when it was cancelled
            Some(Reply::Value(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    let leave = v1::LeaveRequest {
        header: holder.header(),
        keys: vec![v1::Leaving {
            held: entered.keys[0].held.clone(),
            clean: true,
            tag: None,
        }],
    };
    client.leave(leave).await.unwrap();
    assert_eq!(read(&mut client, &mut holder, "r").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_section_has_events() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let body = json!({"keys": [{"key": "e"}], "wait_ms": 20_000, "lease_ms": 6_000});
    let (_, section) = rest.json("POST", "/v1/sections", body).await;
    let old = format!("/v1/sections/{}", section["id"].as_str().unwrap());
    let (status, resumed) = rest
        .json("POST", &format!("{old}/resume"), Value::Null)
        .await;
    assert_eq!(status, 200, "{resumed}");
    let id = format!("/v1/sections/{}", resumed["id"].as_str().unwrap());
    let path = format!("{id}/events");
    let end = async {
        // The new generation writes and leaves; the old one may no longer.
        let put = format!("{id}/keys/e");
        let (status, done) = rest.json("PUT", &put, json!({"value": "1"})).await;
        assert_eq!(status, 200, "{done}");
        let put = format!("{old}/keys/e");
        let (status, stale) = rest.json("PUT", &put, json!({"value": "0"})).await;
        assert_eq!(status, 409, "{stale}");
        rest.json("DELETE", &id, Value::Null).await.0
    };
    let ((status, kind, events), left) = tokio::join!(rest.send("GET", &path, &[], b""), end);
    assert_eq!(
        (status, left, kind.as_str()),
        (200, 200, "text/event-stream")
    );
    let events = String::from_utf8(events).unwrap();
    assert!(events.contains("event: left"), "{events}");
}
