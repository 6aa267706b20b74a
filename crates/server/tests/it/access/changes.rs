//! What was asked is judged by what its caller may do when it is done.

use super::{Choice, Code, Session, Stage, audited, end, eventually, follow, key, rule, shown};
use fermata_access::Right;
use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_server::ClientsConfig;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

const JOB: &str = "/v1/keyspaces/default/keys/jobs%2F1";

impl Stage {
    /// What the application may do from now on, as every node knows it.
    async fn allow(&self, rights: &[Right]) {
        let rules = vec![rule("default", "jobs/", rights)];
        self.change(|policy| drop(policy.roles.insert("app".into(), rules.clone())))
            .await;
    }

    /// Enters `jobs/1` as an administrator, with a value, and says under which id.
    async fn hold(&self) -> String {
        let admin = Some(&self.admin);
        let value = json!({"value": "before"});
        assert_eq!(self.ask(admin, "PUT", JOB, &value).await, 200);
        let enter = json!({"keys": [{"key": "jobs/1"}], "wait_ms": 20_000});
        let (status, section) = self.asked(admin, "POST", "/v1/sections", &enter).await;
        assert_eq!(status, 201, "{section}");
        section["id"].as_str().unwrap().to_owned()
    }

    async fn leave(&self, section: &str) {
        let path = format!("/v1/sections/{section}");
        let left = self.asked(Some(&self.admin), "DELETE", &path, &Value::Null);
        let (status, said) = left.await;
        assert!(status < 300, "{status} {said}");
    }
}

/// Who waited with the right to read, and has lost it, enters without the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_shows_what_may_be_read_by_then() {
    let stage = Stage::start(1, Choice::default()).await;
    stage.allow(&[Right::Lock, Right::Read]).await;
    let section = stage.hold().await;
    let channel = stage.channel(0).await;
    let mut waits = follow(&channel, &stage.app, 1).await;
    // It is in the queue.
    waits.next().await.unwrap().unwrap();
    stage.allow(&[Right::Lock]).await;
    stage.leave(&section).await;
    let entered = loop {
        let event = waits.next().await.unwrap().unwrap();
        if let Some(v1::enter_event::Event::Entered(entered)) = event.event {
            break entered;
        }
    };
    let told = format!("{entered:?}");
    assert!(!told.contains("before"), "{told}");
}

/// A change under a condition that waited is not made for who may not write any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_waited_is_judged_again() {
    let stage = Stage::start(1, Choice::default()).await;
    stage.allow(&[Right::Write, Right::Read]).await;
    let section = stage.hold().await;
    let put = async {
        let shown = format!("Bearer {}", stage.app.reveal());
        let headers = [("authorization", &*shown), ("if-match", "*")];
        let path = format!("{JOB}?wait_ms=60000");
        stage
            .rest
            .send("PUT", &path, &headers, br#"{"value":"after"}"#)
            .await
            .0
    };
    let lose = async {
        let queue = "/v1/keyspaces/default/keys/jobs%2F1/queue";
        let admin = Some(&stage.admin);
        let waiting = async || {
            let (_, queue) = stage.asked(admin, "GET", queue, &Value::Null).await;
            queue["entries"].as_array().map_or(0, Vec::len)
        };
        eventually!(waiting().await == 2);
        stage.allow(&[Right::Read]).await;
        stage.leave(&section).await;
    };
    let (status, ()) = tokio::join!(put, lose);
    assert_eq!(status, 403);
    let (_, now) = stage
        .asked(Some(&stage.admin), "GET", JOB, &Value::Null)
        .await;
    assert_eq!(now["value"], "before", "{now}");
}

/// What ends or keeps a place does not say which keyspaces there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_does_not_say_which_keyspaces_there_are() {
    let stage = Stage::start(1, Choice::default()).await;
    let hidden = json!({ "name": "hidden", "purpose": "sections" });
    let admin = Some(&stage.admin);
    assert_eq!(
        stage.ask(admin, "POST", "/v1/keyspaces", &hidden).await,
        201
    );
    let channel = stage.channel(0).await;
    let held = |keyspace: &str| v1::Held {
        key: Some(v1::Key {
            keyspace: keyspace.into(),
            ..key("k")
        }),
        lock_ref: 7,
        generation: 0,
    };
    let mut said = Vec::new();
    for (number, keyspace) in [(1, "hidden"), (2, "absent")] {
        let mut client = FermataClient::new(channel.clone());
        let renew = |relinquish| v1::RenewRequest {
            header: Session::new(number).header(),
            held: vec![held(keyspace)],
            relinquish,
        };
        let renewed = client.renew(shown(Some(&stage.app), renew(false))).await;
        let relinquished = client.renew(shown(Some(&stage.app), renew(true))).await;
        let leave = v1::LeaveRequest {
            header: Session::new(number).header(),
            keys: vec![v1::Leaving {
                held: Some(held(keyspace)),
                ..v1::Leaving::default()
            }],
        };
        let left = client.leave(shown(Some(&stage.app), leave)).await;
        let told = |why: tonic::Status| (why.code(), why.message().to_owned());
        said.push((
            renewed.map(tonic::Response::into_inner).map_err(told),
            relinquished.map(tonic::Response::into_inner).map_err(told),
            left.map(tonic::Response::into_inner).map_err(told),
        ));
    }
    assert_eq!(said[0], said[1]);
}

/// Before its issuer's keys could be read a word is neither good nor bad.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_waits_for_its_issuers_keys() {
    let choice = Choice {
        change: Some(Box::new(|config| {
            config.jwt.issuer = "https://id".into();
            config.jwt.audience = "fermata".into();
            config.jwt.keys = "/no/such/file".into();
        })),
        ..Choice::default()
    };
    let stage = Stage::start(1, choice).await;
    let word = "Bearer eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhcHAifQ.AAAA";
    let shown = [("authorization", word)];
    let (status, _, said) = stage.rest.send("GET", JOB, &shown, b"").await;
    assert_eq!(status, 503, "{}", String::from_utf8_lossy(&said));
    // Over streams it is no reason to end anything.
    let channel = stage.channel(0).await;
    let mut request = tonic::Request::new(v1::StatusRequest {
        header: Session::new(1).header(),
    });
    let value = word.parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    let refused = FermataClient::new(channel).status(request).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unavailable);
}

/// A log that was moved away is followed by another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_log_that_is_moved_away_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.log");
    let stage = Stage::start(1, audited(&file)).await;
    let admin = Some(&stage.admin);
    let create = async |name: &str| {
        let made = json!({ "name": name, "purpose": "sections" });
        assert_eq!(stage.ask(admin, "POST", "/v1/keyspaces", &made).await, 201);
    };
    create("first").await;
    let has = |name: &str| {
        std::fs::read_to_string(&file)
            .unwrap_or_default()
            .contains(name)
    };
    eventually!(has("first"));
    std::fs::rename(&file, dir.path().join("moved")).unwrap();
    create("second").await;
    eventually!(has("second"));
    assert!(!has("first"));
    // Streams are as good as their tokens, and no better, with a log or without.
    let channel = stage.channel(0).await;
    let holder = follow(&channel, &stage.app, 1).await;
    stage
        .change(|policy| drop(policy.tokens.remove(&stage.app.id())))
        .await;
    assert_eq!(end(holder).await, Code::Unauthenticated);
}

/// Whoever watches what everybody may holds no place that others want.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_nobody_holds_no_place() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let choice = Choice {
        clients: ClientsConfig {
            connections: Some(8),
            ..ClientsConfig::default()
        },
        ..Choice::default()
    };
    let stage = Stage::start(1, choice).await;
    let mut watching = Vec::new();
    for _ in 0..16 {
        let uri = format!("http://{}", stage.cluster.node(0).grpc);
        // The last ones find no place until somebody has been quiet for a while.
        let channel = Channel::from_shared(uri).unwrap().connect_lazy();
        let mut client = HealthClient::new(channel);
        let asked = HealthCheckRequest::default();
        let Ok(watch) = client.watch(asked).await else {
            break;
        };
        let mut watch = watch.into_inner();
        watch.next().await.unwrap().unwrap();
        watching.push(watch);
    }
    let asks = async || {
        let channel = stage.channel(0).await;
        let get = v1::GetRequest {
            header: Session::new(1).header(),
            key: Some(key("config/a")),
        };
        let got = FermataClient::new(channel)
            .get(shown(Some(&stage.app), get))
            .await;
        got.is_ok()
    };
    eventually!(asks().await);
    drop(watching);
}

/// What arrives counts, and not only what has arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_counts_against_a_quota_while_it_arrives() {
    let choice = Choice {
        clients: ClientsConfig {
            body_ms: Some(1_000),
            ..ClientsConfig::default()
        },
        ..Choice::default()
    };
    let stage = Stage::start(1, choice).await;
    stage
        .change(|policy| {
            let app = policy.principals.get_mut("app").unwrap();
            app.quota.bytes_in_flight = Some(100_000);
        })
        .await;
    let begins = async |bytes: usize| {
        let mut stream = TcpStream::connect(&stage.rest.0).await.unwrap();
        let token = stage.app.reveal();
        let head = format!(
            "PUT {JOB} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
             content-type: application/octet-stream\r\ncontent-length: 4000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![0; bytes]).await.unwrap();
        let mut heard = [0; 12];
        stream.read_exact(&mut heard).await.unwrap();
        String::from_utf8_lossy(&heard).into_owned()
    };
    assert_eq!(begins(200_000).await, "HTTP/1.1 429");
    // One that is within it is refused for its own sake: the rest never comes.
    assert_eq!(begins(100).await, "HTTP/1.1 408");
}

/// Rules of MUSIC's keyspace are about its rows, whose own keys are for who has all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_behind_musics_rows_are_for_who_has_all() {
    let stage = Stage::start(1, Choice::default()).await;
    let rights = [Right::Read, Right::List, Right::Write, Right::Lock];
    let rules = |prefix: &str| vec![rule("music", prefix, &rights)];
    let allow = async |prefix: &str| {
        let rules = rules(prefix);
        stage
            .change(|policy| drop(policy.roles.insert("app".into(), rules.clone())))
            .await;
    };
    allow("r").await;
    let app = Some(&stage.app);
    let (list, one) = (
        "/v1/keyspaces/music/keys?prefix=r",
        "/v1/keyspaces/music/keys/r%00shop",
    );
    for path in [list, one] {
        assert_eq!(
            stage.ask(app, "GET", path, &Value::Null).await,
            403,
            "{path}"
        );
    }
    allow("").await;
    assert_eq!(stage.ask(app, "GET", list, &Value::Null).await, 200);
    assert_eq!(stage.ask(app, "GET", one, &Value::Null).await, 404);
}
