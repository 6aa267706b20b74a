//! Changes under a condition, over REST and gRPC: compare-and-set on a key.

use crate::common::{TestCluster, eventually, key, register};
use crate::http::Rest;
use fermata_api::condition::Version;
use fermata_api::v1::sessions_client::SessionsClient;
use fermata_api::v1::write_if_request::Condition;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A key's path, and its strong read.
const KEY: &str = "/v1/keyspaces/default/keys/k";
const READ: &str = "/v1/keyspaces/default/keys/k?consistency=linearizable";

fn etag(value: &str) -> String {
    format!("\"{}\"", Version::of(value.as_bytes()))
}

/// Status, entity tag and body of a request.
async fn ask(
    rest: &Rest,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Option<String>, Value) {
    let answer = rest.whole(method, path, headers, body.as_bytes()).await;
    let (status, headers, body) = answer.unwrap();
    let tag = headers
        .get("etag")
        .map(|tag| tag.to_str().unwrap().to_owned());
    (
        status,
        tag,
        serde_json::from_slice(&body).unwrap_or(Value::Null),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_over_rest_is_done_under_its_condition_alone() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let (one, two) = (etag("1"), etag("2"));
    let list = format!("{two}, {one}");
    let weak = format!("W/{one}");
    let steps = [
        ("PUT", "If-Match", "*", "1", 412, None),
        ("DELETE", "If-Match", &one, "", 412, None),
        ("PUT", "If-None-Match", "*", "1", 200, Some("1")),
        ("PUT", "If-None-Match", "*", "2", 412, Some("1")),
        ("PUT", "If-Match", &weak, "2", 412, Some("1")),
        ("PUT", "If-Match", &two, "2", 412, Some("1")),
        ("DELETE", "If-None-Match", &list, "", 412, Some("1")),
        ("PUT", "If-None-Match", &two, "1", 200, Some("1")),
        ("PUT", "If-Match", &list, "2", 200, Some("2")),
        ("PUT", "If-Match", "*", "1", 200, Some("1")),
        ("DELETE", "If-Match", &one, "", 200, None),
    ];
    for (method, name, wanted, value, status, now) in steps {
        let body = match value {
            "" => String::new(),
            value => json!({ "value": value }).to_string(),
        };
        let (told, _, said) = ask(&rest, (method, KEY), &[(name, wanted)], &body).await;
        let step = format!("{method} {name}: {wanted}: {said}");
        assert_eq!(told, status, "{step}");
        // What the key has now is told, be it by this change or not.
        let version = now.map(|now: &str| Version::of(now.as_bytes()).to_string());
        assert_eq!(said["version"].as_str(), version.as_deref(), "{step}");
        match status {
            412 => assert_eq!(said["code"], "condition_failed", "{step}"),
            _ => assert_eq!(said["done"], true, "{step}"),
        }
        let (status, tag, read) = ask(&rest, ("GET", READ), &[], "").await;
        assert_eq!(status, if now.is_some() { 200 } else { 404 }, "{step}");
        assert_eq!(read["value"].as_str(), now, "{step}");
        assert_eq!(tag, now.map(etag), "{step}");
    }
    let (_, queue) = rest.json("GET", &format!("{KEY}/queue"), Value::Null).await;
    assert!(queue["flag"].is_null(), "it left cleanly: {queue}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_known_is_not_sent_again() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let put = json!({ "value": "v" }).to_string();
    assert_eq!(ask(&rest, ("PUT", READ), &[], &put).await.0, 200);
    let (known, other) = (etag("v"), etag("w"));
    for path in [KEY, READ] {
        for (name, wanted, status) in [
            ("If-None-Match", &*known, 304),
            ("If-None-Match", "*", 304),
            ("If-None-Match", &other, 200),
            ("If-Match", &known, 200),
            ("If-Match", &other, 412),
        ] {
            for method in ["GET", "HEAD"] {
                let (told, tag, said) = ask(&rest, (method, path), &[(name, wanted)], "").await;
                assert_eq!(told, status, "{method} {path} {name}: {wanted}");
                let empty = status == 304 || method == "HEAD";
                assert_eq!(said.is_null(), empty, "{said}");
                let tagged = (status != 412).then(|| known.clone());
                assert_eq!(tag, tagged, "{method} {path} {name}: {wanted}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_under_a_condition_is_refused_and_nothing_happens() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let only_absent = [("If-None-Match", "*")];
    let [absent] = only_absent;
    let secret = ("fermata-secret", "000000000000000000000000000000ab");
    let number = ("fermata-number", "1");
    let registers = "/v1/keyspaces/registers/keys/k";
    let (eventual, waits) = ("?consistency=eventual", "?wait_ms=1");
    let put = json!({ "value": "v" }).to_string();
    for (path, headers, status, said) in [
        (registers.into(), &[absent][..], 409, "no section in which"),
        (format!("{KEY}{eventual}"), &[absent], 400, "linearizable"),
        (format!("{KEY}{waits}"), &[], 400, "wait_ms"),
        (
            KEY.into(),
            &[absent, secret, number],
            400,
            "a session of its own",
        ),
        (KEY.into(), &[("If-Match", "v")], 400, "entity tags"),
    ] {
        let (told, _, problem) = ask(&rest, ("PUT", &path), headers, &put).await;
        assert_eq!(told, status, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{detail}");
        assert_eq!(problem["may_have_taken_effect"], false, "{problem}");
    }
    // A holder is waited for as long as is asked.
    let section = json!({"keys": [{"key": "k"}], "wait_ms": 20_000});
    let (_, section) = rest.json("POST", "/v1/sections", section).await;
    for waits in ["?wait_ms=0", waits] {
        let path = format!("{KEY}{waits}");
        let (told, _, problem) = ask(&rest, ("PUT", &path), &[absent], &put).await;
        assert_eq!(
            (told, &problem["code"]),
            (408, &json!("wait_over")),
            "{problem}"
        );
        assert_eq!(problem["may_have_taken_effect"], false, "{problem}");
    }
    let long = format!("{KEY}?wait_ms=60000");
    let waiting = ask(&rest, ("PUT", &long), &only_absent, &put);
    let leave = async {
        let queue = format!("{KEY}/queue");
        eventually!({
            let (_, queue) = rest.json("GET", &queue, Value::Null).await;
            queue["entries"].as_array().unwrap().len() == 2
        });
        assert_eq!(rest.json("GET", KEY, Value::Null).await.0, 404);
        let id = section["id"].as_str().unwrap();
        rest.json("DELETE", &format!("/v1/sections/{id}"), Value::Null)
            .await
    };
    let ((told, _, done), (left, _)) = tokio::join!(waiting, leave);
    assert_eq!((told, left), (200, 200), "{done}");
    let read = format!("{registers}?consistency=linearizable");
    assert_eq!(rest.json("GET", &read, Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_in_line_changes_nothing() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let section = json!({"keys": [{"key": "k"}], "wait_ms": 20_000});
    let (_, section) = rest.json("POST", "/v1/sections", section).await;
    let queue = format!("{KEY}/queue");
    let waiting = async || {
        let (_, queue) = rest.json("GET", &queue, Value::Null).await;
        queue["entries"].as_array().unwrap().len() - 1
    };
    let gone = Rest(rest.0.clone());
    let put = tokio::spawn(async move {
        let path = format!("{KEY}?wait_ms=60000");
        let put = json!({ "value": "v" }).to_string();
        ask(&gone, ("PUT", &path), &[("If-None-Match", "*")], &put).await
    });
    eventually!(waiting().await == 1);
    put.abort();
    eventually!(waiting().await == 0);
    let id = section["id"].as_str().unwrap();
    let leave = format!("/v1/sections/{id}");
    assert_eq!(rest.json("DELETE", &leave, Value::Null).await.0, 200);
    assert_eq!(rest.json("GET", READ, Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synch_keeps_the_version() {
    let cluster = TestCluster::start(3).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let put = json!({ "value": "v" }).to_string();
    let absent = [("If-None-Match", "*")];
    assert_eq!(ask(&rest, ("PUT", KEY), &absent, &put).await.0, 200);
    let (_, before, was) = ask(&rest, ("GET", READ), &[], "").await;
    // A holder that is put out may have had a write in flight.
    let section = json!({"keys": [{"key": "k"}], "wait_ms": 20_000, "lease_ms": 1_000});
    let (_, section) = rest.json("POST", "/v1/sections", section).await;
    let lock_ref = &section["keys"][0]["lock_ref"];
    let release = json!({ "lock_ref": lock_ref });
    let (status, _) = rest.json("POST", &format!("{KEY}/release"), release).await;
    assert_eq!(status, 200);
    let (_, after, is) = ask(&rest, ("GET", READ), &[], "").await;
    let lock_ref = |read: &Value| read["tag"]["lock_ref"].as_u64().unwrap();
    assert!(
        lock_ref(&is) > lock_ref(&was),
        "{was} was written again: {is}"
    );
    assert_eq!(before, after);
    let again = json!({ "value": "w" }).to_string();
    let same = before.unwrap();
    let (status, ..) = ask(&rest, ("PUT", KEY), &[("If-Match", &same)], &again).await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_over_grpc_is_done_under_its_condition_alone() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let uri = format!("http://{}", cluster.node(0).grpc);
    let mut stub = SessionsClient::connect(uri).await.unwrap();
    let version = |value: &str| Version::of(value.as_bytes()).to_string();
    let nothing = v1::Nothing {};
    let steps = [
        (Some("1"), Condition::Present(nothing), false, None),
        (Some("1"), Condition::Absent(nothing), true, Some("1")),
        (Some("2"), Condition::Absent(nothing), false, Some("1")),
        (
            Some("2"),
            Condition::Version(version("2")),
            false,
            Some("1"),
        ),
        (Some("2"), Condition::Version(version("1")), true, Some("2")),
        (None, Condition::Equal("1".into()), false, Some("2")),
        (None, Condition::Equal("2".into()), true, None),
    ];
    for (value, condition, done, now) in steps {
        let asked = v1::WriteIfRequest {
            key: Some(key("k")),
            value: value.map(Into::into),
            condition: Some(condition.clone()),
            wait_us: None,
        };
        let told = stub.write_if(asked).await.unwrap().into_inner();
        let expected = v1::WrittenIf {
            done,
            version: now.map(version),
            found: now.filter(|_| !done).map(Into::into),
        };
        assert_eq!(told, expected, "{condition:?}");
    }
    for (key, condition, code) in [
        (
            Some(register("k")),
            Some(Condition::Absent(nothing)),
            Code::WrongPurpose,
        ),
        (Some(key("k")), None, Code::BadRequest),
        (
            Some(key("k")),
            Some(Condition::Version("1".into())),
            Code::BadRequest,
        ),
        (None, Some(Condition::Absent(nothing)), Code::BadRequest),
    ] {
        let asked = v1::WriteIfRequest {
            key,
            condition,
            ..v1::WriteIfRequest::default()
        };
        let refused = errors::from_status(&stub.write_if(asked).await.unwrap_err());
        assert_eq!(refused.code, code, "{}", refused.detail);
        assert!(!refused.may_have_taken_effect);
    }
}

/// What clients have asked of a node so far. Left out is what nobody waits for: renewals, and what
/// the node asks itself.
async fn asked(rest: &Rest) -> Vec<String> {
    let (_, _, text) = rest.send("GET", "/metrics", &[], b"").await;
    let text = String::from_utf8(text).unwrap();
    let prefix = "fermata_requests_total{operation=\"";
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let own = ["status\"", "list_keyspaces\"", "renew\""];
    let mut asked: Vec<String> = lines
        .filter(|line| own.iter().all(|own| !line.starts_with(own)))
        .map(str::to_owned)
        .collect();
    asked.sort();
    asked
}

/// From beside a key's primary each of both is one round trip to a quorum, as the laboratory counts
/// them in virtual time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_under_a_condition_is_an_enter_and_a_put_that_leaves() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let uri = format!("http://{}", cluster.node(0).grpc);
    let mut stub = SessionsClient::connect(uri).await.unwrap();
    for done in 1..=4 {
        let value = done.to_string();
        if done % 2 == 1 {
            let put = json!({ "value": value }).to_string();
            let (absent, last) = (("If-None-Match", "*"), etag("2"));
            let condition = if done == 1 {
                absent
            } else {
                ("If-Match", &*last)
            };
            assert_eq!(ask(&rest, ("PUT", KEY), &[condition], &put).await.0, 200);
        } else {
            let asked = v1::WriteIfRequest {
                key: Some(key("k")),
                value: Some(value.into()),
                condition: Some(Condition::Present(v1::Nothing {})),
                wait_us: None,
            };
            assert!(stub.write_if(asked).await.unwrap().into_inner().done);
        }
        let both = ["enter", "put_and_leave"];
        let both = both.map(|operation| format!("{operation}\",code=\"ok\"}} {done}"));
        assert_eq!(asked(&rest).await, both);
    }
}

/// What the counters have done.
#[derive(Default)]
struct Counted {
    done: AtomicU64,
    unknown: AtomicU64,
}

/// Increments until so many are done, at the first of these nodes that answers.
async fn count(nodes: Vec<String>, most: u64, counted: Arc<Counted>) {
    let path = "/v1/keyspaces/short/keys/counter";
    let read = format!("{path}?consistency=linearizable");
    let (mut own, mut at) = (0, 0);
    while own < most {
        let rest = Rest(nodes[at % nodes.len()].clone());
        let Some((status, headers, body)) = rest.whole("GET", &read, &[], b"").await else {
            at += 1;
            continue;
        };
        if !matches!(status, 200 | 404) {
            at += 1;
            continue;
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        let now = body["value"]
            .as_str()
            .map_or(0, |now| now.parse::<u64>().unwrap());
        let condition = match headers.get("etag") {
            Some(tag) => ("if-match", tag.to_str().unwrap()),
            None => ("if-none-match", "*"),
        };
        let next = json!({ "value": (now + 1).to_string() }).to_string();
        match rest.whole("PUT", path, &[condition], next.as_bytes()).await {
            Some((200, ..)) => {
                own += 1;
                counted.done.fetch_add(1, Ordering::SeqCst);
            }
            Some((_, _, body)) => {
                let problem: Value = serde_json::from_slice(&body).unwrap();
                let unknown = problem["may_have_taken_effect"] == true;
                counted.unknown.fetch_add(unknown.into(), Ordering::SeqCst);
            }
            // It died with the change in its hands.
            None => drop(counted.unknown.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_or_done_twice_although_a_node_is_killed() {
    let mut cluster = TestCluster::start(3).await;
    cluster.client(0).await;
    let nodes: Vec<String> = (0..3).map(|at| cluster.node(at).rest.clone()).collect();
    // What a dead node holds is soon free.
    let short = json!({"name": "short", "purpose": "sections", "lease_ms": 1_000});
    let (status, _) = Rest(nodes[0].clone())
        .json("POST", "/v1/keyspaces", short)
        .await;
    assert_eq!(status, 201);
    let counted = Arc::new(Counted::default());
    let mut workers = Vec::new();
    for at in [0, 0, 1, 2, 2] {
        let mut own = nodes.clone();
        own.rotate_left(at);
        workers.push(tokio::spawn(count(own, 6, counted.clone())));
    }
    eventually!(counted.done.load(Ordering::SeqCst) > 5);
    cluster.kill(2).await;
    for worker in workers {
        worker.await.unwrap();
    }
    let path = "/v1/keyspaces/short/keys/counter?consistency=linearizable";
    let (_, value) = Rest(nodes[0].clone()).json("GET", path, Value::Null).await;
    let value: u64 = value["value"].as_str().unwrap().parse().unwrap();
    let done = counted.done.load(Ordering::SeqCst);
    let unknown = counted.unknown.load(Ordering::SeqCst);
    assert_eq!(done, 30);
    assert!(
        (done..=done + unknown).contains(&value),
        "{value}, {unknown} unknown"
    );
}
