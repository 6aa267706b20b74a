//! The faces over another engine than the native one: here one of a few operations, in memory.

use crate::common::{Client, Session, eventually, healthy, key, read, write};
use crate::http::Rest;
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::v1::sessions_client::SessionsClient;
use fermata_api::{errors, v1};
use fermata_engine::{Answers, Boxed, Service};
use fermata_protocol::base::{KeyId, Keyspace, LockRef, NodeName, SiteId};
use fermata_protocol::catalogue::Access;
use fermata_protocol::request::{
    ClockStatus, Entered, Held, Mode, MovingStatus, NodeStatus, Operation, SecurityStatus,
};
use fermata_protocol::{Code, Refusal, Reply, Request, base::Tag};
use fermata_server::config::{EngineConfig, EngineKind, LimitsConfig};
use fermata_server::local::{self, free};
use fermata_server::{
    ClusterConfig, Faces, Listeners, NodeConfig, ServerConfig, StartError, run_engine_on, run_on,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

/// What the engine's requests wait for and have come to.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Requests that wait.
    waiting: usize,
    /// Requests that were given up.
    given_up: usize,
    /// Requests that wait may go on.
    go: bool,
    /// The stores have lost their quorum.
    ill: bool,
    /// A shared section was left.
    left: bool,
}

/// `read`, `write` and shared sections work; `put` waits until it may go on, an exclusive `enter`
/// is queued for ever, and `get` ends without an answer.
#[derive(Default)]
struct Small {
    values: Mutex<HashMap<KeyId, bytes::Bytes>>,
    seen: watch::Sender<Seen>,
}

/// A request that waits.
struct Waiting(Arc<Small>, bool);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.seen.send_modify(|seen| {
            seen.waiting -= 1;
            seen.given_up += usize::from(!self.1);
        });
    }
}

impl Small {
    async fn until(&self, is: impl FnMut(&Seen) -> bool) {
        self.seen.subscribe().wait_for(is).await.unwrap();
    }

    async fn wait(self: Arc<Small>) {
        self.seen.send_modify(|seen| seen.waiting += 1);
        let mut waiting = Waiting(self.clone(), false);
        self.until(|seen| seen.go).await;
        waiting.1 = true;
    }

    async fn answer(self: Arc<Small>, operation: Operation, answers: &Answers) -> Option<Reply> {
        Some(match operation {
            Operation::Write { key, value } => {
                let mut values = self.values.lock().unwrap();
                value.map(|value| values.insert(key, value));
                Reply::Done { tag: None }
            }
            Operation::Read { key } => Reply::Value {
                value: self.values.lock().unwrap().get(&key).cloned(),
                tag: Tag::ZERO,
            },
            Operation::Put { .. } => {
                self.wait().await;
                Reply::Done { tag: None }
            }
            Operation::Enter {
                keys,
                mode: Mode::Shared,
                ..
            } => grants(keys, answers).await,
            Operation::Leave { .. } => {
                self.seen.send_modify(|seen| seen.left = true);
                Reply::Left
            }
            Operation::Enter { .. } => {
                let queued = Reply::Queued {
                    held: vec![],
                    ahead: 1,
                };
                answers.send(queued).unwrap();
                let _waiting = Waiting(self.clone(), false);
                self.seen.send_modify(|seen| seen.waiting += 1);
                std::future::pending().await
            }
            Operation::Get { .. } => return None,
            Operation::Access => Reply::Access(Access::default()),
            Operation::Keyspaces | Operation::Catalogue => {
                Reply::Keyspaces(Keyspace::built_in().into())
            }
            Operation::Status => Reply::Status(Box::new(NodeStatus {
                node: NodeName(1),
                label: "one".into(),
                site: SiteId(0),
                writable: true,
                clock: ClockStatus::default(),
                alive: vec![],
                logs: vec![],
                requests: 7,
                group_sizes: vec![],
                settings: None,
                storage: vec![],
                upkeep: Box::default(),
                moving: MovingStatus::default(),
                closed: Box::default(),
                sessions: 0,
                security: SecurityStatus::default(),
                version: String::new(),
                held: Box::default(),
            })),
            _ => Reply::Refused(Refusal::definite(Code::WrongPurpose, "not here")),
        })
    }
}

/// Grants keys, whose place changes more often before than a connection has room for what is not
/// read.
async fn grants(keys: Vec<KeyId>, answers: &Answers) -> Reply {
    let held = |key| Held {
        key,
        lock_ref: LockRef(1),
        generation: 0,
    };
    let held: Vec<Held> = keys.into_iter().map(held).collect();
    for ahead in (1..200).rev() {
        let held = held.clone();
        answers.send(Reply::Queued { held, ahead }).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let entered = |held| Entered {
        held,
        value: None.into(),
    };
    let (keys, lease) = (held.into_iter().map(entered).collect(), 3_600_000_000);
    Reply::Entered { keys, lease }
}

impl Service for Small {
    fn serve(self: Arc<Self>, request: Request, answers: Answers) -> Boxed<'static, ()> {
        Box::pin(async move {
            if let Some(reply) = self.answer(request.operation, &answers).await {
                answers.send(reply).unwrap();
            }
        })
    }

    fn health(&self) -> Boxed<'_, Result<(), String>> {
        let ill = self.seen.borrow().ill;
        Box::pin(async move {
            match ill {
                true => Err("Cassandra: 1 of 3 copies, needs 2".into()),
                false => Ok(()),
            }
        })
    }

    fn describe(&self) -> String {
        "a few operations in memory".into()
    }
}

/// A node over it.
struct Node {
    engine: Arc<Small>,
    client: Client,
    grpc: String,
    rest: Rest,
    stop: oneshot::Sender<()>,
    done: JoinHandle<Result<(), StartError>>,
}

/// A configuration of a node that gets its sockets from the test.
fn config(grpc: String, rest: String) -> ServerConfig {
    let node = NodeConfig {
        name: 1,
        label: "one".into(),
        site: "ohio".into(),
        peer: String::new(),
        grpc,
        rest,
    };
    let cluster = ClusterConfig {
        id: format!("{:032x}", 0xfe),
        segment_bits: 3,
        lowest_ref: 1,
        sites: vec!["ohio".into()],
        nodes: vec![node],
        groups: vec![],
    };
    ServerConfig {
        engine: EngineConfig {
            kind: EngineKind::Cassandra,
            contact_points: vec!["127.0.0.1".into()],
            ..EngineConfig::default()
        },
        ..ServerConfig::new("", "".into(), cluster)
    }
}

impl Node {
    async fn start(limits: LimitsConfig) -> Node {
        let ((grpc, grpc_at), (rest, rest_at)) = (free().await.unwrap(), free().await.unwrap());
        let config = ServerConfig {
            limits,
            ..config(grpc_at.clone(), rest_at.clone())
        };
        let engine = Arc::new(Small::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let faces = Faces {
            grpc,
            rest: Some(rest),
        };
        let shutdown = async {
            let _ = stopped.await;
        };
        let resolved = config.resolve().unwrap();
        let done = tokio::spawn(run_engine_on(resolved, faces, engine.clone(), shutdown));
        Node {
            client: healthy(&grpc_at).await,
            grpc: grpc_at,
            rest: Rest(rest_at),
            engine,
            stop,
            done,
        }
    }

    /// Begins a put, which waits; ended when dropped.
    fn put(&self, number: u64) -> JoinHandle<Result<tonic::Response<v1::Done>, tonic::Status>> {
        let mut client = self.client.clone();
        let mut session = Session { id: 5, number };
        let put = v1::PutRequest {
            header: session.header(),
            key: Some(key("waits")),
            value: Some("v".into()),
        };
        tokio::spawn(async move { client.put(put).await })
    }

    async fn metrics(&self) -> String {
        let (_, _, body) = self.rest.send("GET", "/metrics", &[], b"").await;
        String::from_utf8(body).unwrap()
    }
}

fn enter(session: &mut Session) -> v1::EnterRequest {
    v1::EnterRequest {
        header: session.header(),
        keys: vec![key("k")],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        follow: true,
        lease_us: None,
        ..v1::EnterRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_faces_serve_an_engine() {
    let mut node = Node::start(LimitsConfig::default()).await;
    let mut session = Session::new(1);
    write(&mut node.client, &mut session, "k", b"v".to_vec())
        .await
        .unwrap();
    let value = read(&mut node.client, &mut session, "k").await;
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    let path = "/v1/keyspaces/registers/keys/k?consistency=linearizable";
    let null = serde_json::Value::Null;
    let (_, answer) = node.rest.json("GET", path, null.clone()).await;
    assert_eq!(answer["value"], "v");
    // What the engine ends without an answer has one; what it refuses is refused.
    let path = "/v1/keyspaces/default/keys/k";
    let (status, answer) = node.rest.json("GET", path, null.clone()).await;
    assert_eq!((status, &answer["code"]), (503, &"unavailable".into()));
    assert_eq!(answer["may_have_taken_effect"], true);
    let refused = node.client.keys(v1::KeysRequest {
        header: session.header(),
        keyspace: "default".into(),
        prefix: Default::default(),
        after: None,
        limit: 1,
    });
    assert!(refused.await.unwrap_err().message().contains("not here"));
    // Names come from its catalogue.
    let path = "/v1/keyspaces/nowhere/keys/k";
    let (_, answer) = node.rest.json("GET", path, null.clone()).await;
    assert_eq!(answer["code"], "no_such_keyspace");
    // State, description, and what is counted.
    let (_, status) = node.rest.json("GET", "/v1/status", null).await;
    assert_eq!(
        (&status["requests"], &status["healthy"]),
        (&7.into(), &true.into())
    );
    let cluster = node.client.cluster(v1::ClusterRequest::default()).await;
    assert_eq!(cluster.unwrap().into_inner().sites, ["ohio"]);
    let metrics = node.metrics().await;
    for line in [
        r#"fermata_requests_total{operation="write",code="ok"} 1"#,
        r#"fermata_requests_total{operation="read",code="ok"} 2"#,
        r#"fermata_requests_total{operation="get",code="unavailable"} 1"#,
        r#"fermata_requests_total{operation="keys",code="wrong_purpose"} 1"#,
        r#"fermata_request_seconds_count{operation="write"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_gives_its_requests_up() {
    let mut node = Node::start(LimitsConfig::default()).await;
    let mut session = Session::new(2);
    let mut events = node
        .client
        .enter(enter(&mut session))
        .await
        .unwrap()
        .into_inner();
    let queued = events.next().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(queued, v1::enter_event::Event::Queued(_)));
    drop(events);
    node.engine.until(|seen| seen.given_up == 1).await;
    // On a stream: one by its id, the others with the stream.
    let (requests, sent) = tokio::sync::mpsc::channel(4);
    let answers = node.client.session(ReceiverStream::new(sent)).await;
    let mut answers = answers.unwrap().into_inner();
    let send = async |id, operation| {
        let operation = Some(operation);
        let frame = v1::SessionRequest { id, operation };
        requests.send(frame).await.unwrap();
    };
    for id in [1, 2] {
        send(id, Wire::Enter(enter(&mut session))).await;
        assert_eq!(answers.next().await.unwrap().unwrap().id, id);
    }
    send(1, Wire::Cancel(v1::Nothing {})).await;
    node.engine.until(|seen| seen.given_up == 2).await;
    drop((requests, answers));
    node.engine.until(|seen| seen.given_up == 3).await;
    assert_eq!(node.engine.seen.borrow().waiting, 0);
    let metrics = node.metrics().await;
    assert!(!metrics.contains(r#"operation="enter""#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_a_quorum_makes_its_node_unhealthy() {
    let node = Node::start(LimitsConfig::default()).await;
    let check = async || node.rest.send("GET", "/healthz", &[], b"").await;
    assert_eq!(check().await.2, b"ok\n");
    node.engine.seen.send_modify(|seen| seen.ill = true);
    let sentence = loop {
        let (status, _, body) = check().await;
        if status == 503 {
            break String::from_utf8(body).unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(sentence.contains("1 of 3 copies"), "{sentence}");
    node.engine.seen.send_modify(|seen| seen.ill = false);
    while check().await.0 != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_what_is_brief_and_gives_up_what_is_not() {
    let mut node = Node::start(LimitsConfig::default()).await;
    let entering = node.client.enter(enter(&mut Session::new(3))).await;
    let mut events = entering.unwrap().into_inner();
    assert!(events.next().await.unwrap().is_ok());
    let put = node.put(1);
    node.engine.until(|seen| seen.waiting == 2).await;
    node.stop.send(()).unwrap();
    // The stop has begun once the face takes no more connections.
    while tokio::net::TcpStream::connect(&node.rest.0).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(!put.is_finished());
    node.engine.seen.send_modify(|seen| seen.go = true);
    put.await.unwrap().unwrap();
    let ended = events.next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unavailable, "{ended}");
    node.done.await.unwrap().unwrap();
    node.engine.until(|seen| seen.given_up == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_requests_are_bounded_and_come_back() {
    let limits = LimitsConfig {
        requests: Some(1),
        ..LimitsConfig::default()
    };
    let mut node = Node::start(limits).await;
    // The node itself asks its engine now and then, which may take the one place.
    let mut number = 0;
    let waits = loop {
        number += 1;
        let put = node.put(number);
        let mut seen = node.engine.seen.subscribe();
        tokio::select! {
            _ = seen.wait_for(|seen| seen.waiting == 1) => break put,
            () = async { while !put.is_finished() { tokio::task::yield_now().await } } => {}
        }
    };
    let refused = node.put(number + 1).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("limits.requests"), "{refused}");
    // Who hangs up gives the place back.
    waits.abort();
    node.engine.until(|seen| seen.waiting == 0).await;
    let mut session = Session::new(6);
    while write(&mut node.client, &mut session, "k", b"v".to_vec())
        .await
        .is_err()
    {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_native_engine_does_not_run_what_is_meant_for_another() {
    let at = "127.0.0.1:0".to_owned();
    let resolved = config(at.clone(), at).resolve().unwrap();
    let refused = Listeners::bind(&resolved).await.unwrap_err();
    assert!(
        refused.to_string().contains("engine cassandra"),
        "{refused}"
    );
    let (_, listeners) = local::cluster(1, 3).await.unwrap();
    let refused = run_on(
        resolved,
        listeners.into_iter().next().unwrap(),
        None,
        std::future::pending(),
    )
    .await;
    assert_eq!(refused.unwrap_err().exit_code(), 2);
}

/// G47: its node has the entry for the stream, and nobody reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_whose_entry_nobody_has_read_is_left() {
    let node = Node::start(LimitsConfig::default()).await;
    let narrow = Channel::from_shared(format!("http://{}", node.grpc)).unwrap();
    let narrow = narrow.initial_stream_window_size(1).connect().await;
    let mut stub = SessionsClient::new(narrow.unwrap());
    let open = v1::OpenSessionRequest {
        idle_us: 3_600_000_000,
        ..v1::OpenSessionRequest::default()
    };
    let secret = stub.open(open).await.unwrap().into_inner().secret;
    let get = v1::SectionKeyRequest {
        secret: secret.clone(),
        section: 1,
        key: Some(key("k")),
    };
    let enter = v1::EnterSectionRequest {
        secret,
        keys: vec![key("k")],
        mode: v1::Mode::Shared.into(),
        ..v1::EnterSectionRequest::default()
    };
    let unread = stub.enter(enter).await.unwrap();
    // Here nobody can get, but who is in the section is told so by the engine.
    eventually!({
        let refused = stub.get(get.clone()).await.unwrap_err();
        errors::from_status(&refused).code == Code::WrongPurpose
    });
    drop(unread);
    node.engine.until(|seen| seen.left).await;
}
