//! The largest values through every face, and what is larger.

use crate::common::{Choice, Session, TestCluster, key, read, register, write};
use crate::http::Rest;
use fermata_api::v1::session_request::Operation;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use fermata_server::config::{LimitsConfig, TimingConfig};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio_stream::StreamExt;

const MAX: usize = 16 << 20;
const RAW: [(&str, &str); 2] = [
    ("content-type", "application/octet-stream"),
    ("accept", "application/octet-stream"),
];

/// Sixteen MiB through unoptimised code take their time.
async fn patient() -> TestCluster {
    let timing = TimingConfig {
        request_ms: Some(60_000),
        ..TimingConfig::default()
    };
    let choice = Choice {
        timing,
        ..Choice::default()
    };
    TestCluster::start_with(3, choice).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_value_passes_and_a_larger_one_is_refused_by_name() {
    let cluster = patient().await;
    let mut clients = Vec::new();
    for at in 0..3 {
        let client = cluster.client(at).await;
        clients.push(
            client
                .max_decoding_message_size(70 << 20)
                .max_encoding_message_size(70 << 20),
        );
    }
    let mut session = Session::new(61);
    let value: Vec<u8> = (0..MAX).map(|i| (i * 31 + i / 251) as u8).collect();
    write(&mut clients[0], &mut session, "g", value.clone())
        .await
        .unwrap();
    assert!(read(&mut clients[1], &mut session, "g").await.unwrap() == value);
    let rest = Rest(cluster.node(2).rest.clone());
    let path = |key: &str| format!("/v1/keyspaces/registers/keys/{key}?consistency=linearizable");
    let (status, _, body) = rest.send("GET", &path("g"), &RAW, b"").await;
    assert!(status == 200 && body == value);
    let (status, _, body) = rest.send("PUT", &path("r"), &RAW, &value).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    assert!(read(&mut clients[0], &mut session, "r").await.unwrap() == value);
    // As JSON.
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(&value);
    let body = serde_json::json!({ "value_base64": base64 });
    assert_eq!(rest.json("PUT", &path("j"), body).await.0, 200);
    let (status, answer) = rest.json("GET", &path("j"), serde_json::Value::Null).await;
    assert!(status == 200 && answer["value_base64"] == base64);
    // One byte more.
    let mut more = value.clone();
    more.push(0);
    let status = write(&mut clients[0], &mut session, "g", more.clone()).await;
    let refusal = errors::from_status(&status.unwrap_err());
    assert_eq!(refusal.code, Code::TooLarge);
    assert!(!refusal.may_have_taken_effect);
    assert!(refusal.detail.contains("16777216"), "{}", refusal.detail);
    let (status, kind, body) = rest.send("PUT", &path("g"), &RAW, &more).await;
    let body = String::from_utf8(body).unwrap();
    assert_eq!((status, kind.as_str()), (413, "application/problem+json"));
    assert!(body.contains("16777216"), "{body}");
    let (status, _, body) = rest
        .send("PUT", &path("g"), &RAW, &vec![0; 2 * MAX + (128 << 10)])
        .await;
    let body = String::from_utf8(body).unwrap();
    assert!(
        status == 413 && body.contains("value_bytes"),
        "{status} {body}"
    );
    // A key that is too long, and a message that is longer than any request.
    let long = write(&mut clients[0], &mut session, &"k".repeat(1_025), vec![]).await;
    let refusal = errors::from_status(&long.unwrap_err());
    assert_eq!(refusal.code, Code::TooLarge);
    assert!(refusal.detail.contains("1024"), "{}", refusal.detail);
    let huge = write(&mut clients[0], &mut session, "g", vec![0; 66 << 20]).await;
    let status = huge.unwrap_err();
    assert!(status.message().contains("limit"), "{status}");
    assert!(read(&mut clients[2], &mut session, "g").await.unwrap() == value);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_are_refused_by_name() {
    let cluster = TestCluster::start(1).await;
    let rest = Rest(cluster.node(0).rest.clone());
    for (change, word) in [
        (json!({"value_bytes": 0}), "1 to 33554432"),
        (json!({"key_bytes": 32_769}), "1 to 32768"),
        (json!({"move_rate": 5}), "as many as it can"),
        (json!({"value_bytes": 5, "key_bytes": 5}), "one setting"),
        (json!({}), "one setting"),
    ] {
        let (status, said) = rest.json("PATCH", "/v1/settings", change).await;
        let said = said.to_string();
        assert!(status == 400 && said.contains(word), "{status} {said}");
    }
}

/// Writes so many bytes until that is answered so, since a node may not know of a setting yet; what
/// it says then.
async fn until(rest: &Rest, status: u16, bytes: usize) -> String {
    let end = Instant::now() + Duration::from_secs(30);
    let path = "/v1/keyspaces/registers/keys/b?consistency=linearizable";
    loop {
        let (answer, _, body) = rest.send("PUT", path, &RAW, &vec![8; bytes]).await;
        let body = String::from_utf8_lossy(&body).into_owned();
        if answer == status {
            return body;
        }
        assert!(Instant::now() < end, "{answer} {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Keys that are longer than a key may be by now are listed, page by page.
async fn lists_what_is_long(rest: &Rest) {
    let settle = async |bytes: u64| {
        let change = json!({ "key_bytes": bytes });
        let (status, said) = rest.json("PATCH", "/v1/settings", change).await;
        assert_eq!(status, 200, "{said}");
    };
    settle(1).await;
    let list = "/v1/keyspaces/registers/keys?limit=1&prefix=long";
    let (status, page) = rest.json("GET", list, json!(null)).await;
    assert!(status == 200 && page["more"] == true, "{page}");
    let next = format!("{list}&cursor={}", page["cursor"].as_str().unwrap());
    let (status, page) = rest.json("GET", &next, json!(null)).await;
    assert!(
        status == 200 && page["keys"][0]["key"] == "long-b",
        "{page}"
    );
    settle(1_024).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_value_is_another_while_everything_goes_on() {
    let cluster = patient().await;
    let rest = [0, 2].map(|at| Rest(cluster.node(at).rest.clone()));
    for node in &rest {
        until(node, 200, 1).await;
    }
    let path = |keyspace: &str, key: &str| {
        format!("/v1/keyspaces/{keyspace}/keys/{key}?consistency=linearizable")
    };
    let settle = async |change| rest[0].json("PATCH", "/v1/settings", change).await;
    let coded = json!({
        "name": "coded", "purpose": "registers",
        "storage": "coded", "faults": 1, "delta": 3,
    });
    let (status, said) = rest[0].json("POST", "/v1/keyspaces", coded).await;
    assert_eq!(status, 201, "{said}");
    let large = vec![7; 200_000];
    let (status, ..) = rest[0]
        .send("PUT", &path("registers", "a"), &RAW, &large)
        .await;
    assert_eq!(status, 200);
    for key in ["long-a", "long-b"] {
        let (status, ..) = rest[0]
            .send("PUT", &path("registers", key), &RAW, b"v")
            .await;
        assert_eq!(status, 200);
    }
    // Lower: the other node refuses what is longer once it knows, and what is there stays.
    let (status, said) = settle(json!({"value_bytes": 100_000})).await;
    assert_eq!(status, 200, "{said}");
    let said = until(&rest[1], 413, 100_001).await;
    assert!(
        said.contains("100000") && said.contains("value_bytes"),
        "{said}"
    );
    // Not even read to its end: longer than a value, and than the keys of a section.
    let said = until(&rest[1], 413, 5 << 20).await;
    assert!(said.contains("4259840"), "{said}");
    lists_what_is_long(&rest[0]).await;
    let (status, _, body) = rest[1]
        .send("GET", &path("registers", "a"), &RAW, b"")
        .await;
    assert!(status == 200 && body == large);
    let (_, said) = rest[1].json("GET", "/v1/status", json!(null)).await;
    assert_eq!(said["settings"]["value_bytes"], 100_000, "{said}");
    // Higher than the nodes' files say.
    let (status, said) = settle(json!({"value_bytes": 32 << 20})).await;
    assert_eq!(status, 200, "{said}");
    until(&rest[1], 200, 20 << 20).await;
    // Four versions of so long a value are more than a frame holds.
    let long = vec![9; 20 << 20];
    let (status, _, body) = rest[1].send("PUT", &path("coded", "c"), &RAW, &long).await;
    let said = String::from_utf8_lossy(&body);
    assert!(
        status == 413 && said.contains("how keyspace coded is stored"),
        "{status} {said}"
    );
    let fits = &long[..15 << 20];
    let (status, ..) = rest[1].send("PUT", &path("coded", "c"), &RAW, fits).await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_a_message_that_is_too_long_says_so() {
    let cluster = TestCluster::start(1).await;
    let client = cluster.client(0).await;
    let mut client = client.max_encoding_message_size(70 << 20);
    let mut session = Session::new(62);
    // It ends with that status, after what came before is answered.
    let frame = |id, key: &str, value: Vec<u8>, session: &mut Session| v1::SessionRequest {
        id,
        operation: Some(Operation::Write(v1::WriteRequest {
            header: session.header(),
            key: Some(register(key)),
            value: Some(value.into()),
        })),
    };
    let frames = vec![
        frame(1, "a", vec![1], &mut session),
        frame(2, "b", vec![0; 66 << 20], &mut session),
    ];
    let replies = client.session(tokio_stream::iter(frames)).await.unwrap();
    let replies: Vec<_> = replies.into_inner().collect().await;
    assert_eq!(replies.len(), 2);
    assert!(replies[0].is_ok() && replies[1].is_err());
    assert_eq!(read(&mut client, &mut session, "a").await.unwrap(), [1]);
    assert_eq!(read(&mut client, &mut session, "b").await, None);
}

/// Keys of `entered` that came without their values.
fn omitted(entered: &v1::Entered) -> usize {
    entered.keys.iter().filter(|k| k.omitted).count()
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn long(name: &str) -> String {
    name.repeat(30_000)
}

/// A cluster whose entries carry two of six values.
async fn narrow(session: &mut Session) -> TestCluster {
    let limits = LimitsConfig {
        grant_bytes: Some(64 << 10),
        ..LimitsConfig::default()
    };
    let choice = Choice {
        limits,
        ..Choice::default()
    };
    let cluster = TestCluster::start_with(3, choice).await;
    let mut client = cluster.client(0).await;
    for name in NAMES {
        let write = v1::WriteRequest {
            header: session.header(),
            key: Some(key(name)),
            value: Some(long(name).into()),
        };
        client.write(write).await.unwrap();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_over_more_than_an_answer_holds_is_entered_over_grpc() {
    let mut session = Session::new(63);
    let cluster = narrow(&mut session).await;
    let mut client = cluster.client(0).await;
    let request = v1::EnterRequest {
        header: session.header(),
        keys: NAMES.map(key).to_vec(),
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        follow: false,
        lease_us: None,
        ..v1::EnterRequest::default()
    };
    let mut events = client.enter(request).await.unwrap().into_inner();
    let entered = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let Some(v1::enter_event::Event::Entered(entered)) = event {
            break entered;
        }
    };
    assert_eq!((entered.keys.len(), omitted(&entered)), (6, 4));
    let mut leaving = Vec::new();
    for (name, entered) in NAMES.iter().zip(entered.keys) {
        assert_eq!(entered.omitted, entered.value.is_none());
        let get = v1::CriticalGetRequest {
            header: session.header(),
            held: entered.held.clone(),
        };
        let got = client.critical_get(get).await.unwrap().into_inner();
        assert!(got.value.unwrap() == long(name));
        leaving.push(v1::Leaving {
            held: entered.held,
            clean: true,
            tag: None,
        });
    }
    let leave = v1::LeaveRequest {
        header: session.header(),
        keys: leaving,
    };
    client.leave(leave).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_over_more_than_an_answer_holds_is_entered_over_rest() {
    let cluster = narrow(&mut Session::new(64)).await;
    cluster.client(1).await;
    let rest = Rest(cluster.node(1).rest.clone());
    let keys: Vec<_> = NAMES
        .iter()
        .map(|k| serde_json::json!({ "key": k }))
        .collect();
    let body = serde_json::json!({ "keys": keys, "wait_ms": 20_000 });
    let (status, section) = rest.json("POST", "/v1/sections", body).await;
    assert_eq!(status, 201, "{section}");
    let told = section["keys"].as_array().unwrap();
    let left_out = told.iter().filter(|k| k["omitted"] == true);
    assert_eq!((told.len(), left_out.count()), (6, 4));
    let id = section["id"].as_str().unwrap();
    for (name, key) in NAMES.iter().zip(told) {
        assert_eq!(key["key"], *name);
        assert_eq!(key.get("value").is_none(), key["omitted"] == true);
        let path = format!("/v1/sections/{id}/keys/{name}");
        let (status, got) = rest.json("GET", &path, serde_json::Value::Null).await;
        assert!(status == 200 && got["value"] == long(name));
    }
    let path = format!("/v1/sections/{id}");
    assert_eq!(
        rest.json("DELETE", &path, serde_json::Value::Null).await.0,
        200
    );
}
