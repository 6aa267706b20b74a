//! Who knows key and lock ref of a section, which are public, but not the secret of its session, is
//! refused in everything, and the section goes on. Who has the secret takes it over.

use crate::common::{Client, Session, TestCluster, enter, key};
use crate::http::Rest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

/// The code of a call that is refused, and certainly changed nothing.
fn denied<T>(answer: Result<T, tonic::Status>) {
    let Err(status) = answer else {
        panic!("a stranger was served");
    };
    let refusal = errors::from_status(&status);
    assert_eq!(refusal.code, Code::NotHolder, "{refusal:?}");
    assert!(!refusal.may_have_taken_effect);
}

async fn resume(
    client: &mut Client,
    who: &mut Session,
    held: v1::Held,
    secret: u128,
) -> Result<v1::Held, tonic::Status> {
    let resume = v1::ResumeRequest {
        header: who.header(),
        held: vec![held],
        secret: secret.to_be_bytes().to_vec().into(),
    };
    let mut events = client.resume(resume).await?.into_inner();
    while let Some(event) = events.next().await {
        if let Some(v1::enter_event::Event::Entered(entered)) = event?.event {
            return Ok(entered.keys[0].held.clone().unwrap());
        }
    }
    panic!("the stream ended before the entry");
}

fn put(
    who: &mut Session,
    held: &v1::Held,
    sequence: u64,
    value: &'static str,
) -> v1::CriticalPutRequest {
    v1::CriticalPutRequest {
        header: who.header(),
        held: Some(held.clone()),
        sequence,
        value: Some(value.into()),
        leave: vec![],
    }
}

fn leave(who: &mut Session, held: &v1::Held) -> v1::LeaveRequest {
    let keys = vec![v1::Leaving {
        held: Some(held.clone()),
        clean: true,
        tag: None,
    }];
    let header = who.header();
    v1::LeaveRequest { header, keys }
}

async fn value(client: &mut Client, who: &mut Session, held: &v1::Held) -> Option<Vec<u8>> {
    let get = v1::CriticalGetRequest {
        header: who.header(),
        held: Some(held.clone()),
    };
    let found = client.critical_get(get).await.unwrap().into_inner();
    found.value.map(|value| value.to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_is_acted_in_with_its_sessions_secret_alone() {
    let cluster = TestCluster::start(3).await;
    let (mut here, mut there) = (cluster.client(0).await, cluster.client(1).await);
    let (mut holder, mut stranger) = (Session::new(91), Session::new(92));
    let entered = enter(&mut here, &mut holder, "k").await.unwrap();
    let held = entered.keys[0].held.clone().unwrap();
    here.critical_put(put(&mut holder, &held, 1, "v1"))
        .await
        .unwrap();
    // The queue names key, ref and session, of which none is the secret.
    let queue = v1::QueueRequest {
        header: stranger.header(),
        key: Some(key("k")),
    };
    let shown = here.queue(queue).await.unwrap().into_inner().entries[0].clone();
    assert_eq!(shown.lock_ref, held.lock_ref);
    assert_ne!(shown.session, holder.id.to_be_bytes().to_vec());
    let session = u128::from_be_bytes(shown.session[..].try_into().unwrap());
    for client in [&mut here, &mut there] {
        let get = v1::CriticalGetRequest {
            header: stranger.header(),
            held: Some(held.clone()),
        };
        denied(client.critical_get(get).await);
        denied(
            client
                .critical_put(put(&mut stranger, &held, 9, "stolen"))
                .await,
        );
        let mut last = put(&mut stranger, &held, 9, "stolen");
        last.leave = leave(&mut stranger, &held).keys;
        denied(client.critical_put(last).await);
        denied(client.leave(leave(&mut stranger, &held)).await);
        for secret in [stranger.id, session] {
            denied(resume(client, &mut stranger, held.clone(), secret).await);
        }
        let renew = v1::RenewRequest {
            header: stranger.header(),
            held: vec![held.clone()],
            relinquish: false,
        };
        let renewed = client.renew(renew).await.unwrap().into_inner();
        let gone = v1::ref_state::State::Gone(v1::Nothing {});
        assert_eq!(renewed.states[0].state, Some(gone));
        assert_eq!(value(client, &mut holder, &held).await.unwrap(), b"v1");
    }
    here.critical_put(put(&mut holder, &held, 2, "v2"))
        .await
        .unwrap();
    // With the secret it is taken over, and is the other session's from then on.
    here.leave(leave(&mut holder, &held)).await.unwrap();
    let (mut first, mut second) = (Session::new(93), Session::new(94));
    let short = v1::EnterRequest {
        header: first.header(),
        keys: vec![key("k")],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        lease_us: Some(1_000_000),
        ..v1::EnterRequest::default()
    };
    let mut events = here.enter(short).await.unwrap().into_inner();
    let held = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let Some(v1::enter_event::Event::Entered(entered)) = event {
            break entered.keys[0].held.clone().unwrap();
        }
    };
    let next = resume(&mut there, &mut second, held, first.id)
        .await
        .unwrap();
    assert_eq!(next.generation, 1);
    denied(here.leave(leave(&mut first, &next)).await);
    there.leave(leave(&mut second, &next)).await.unwrap();
}

/// The name of the same section with another secret, which is first in it, a varint.
fn forged(id: &str) -> String {
    let bytes = URL_SAFE_NO_PAD.decode(id).unwrap();
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    URL_SAFE_NO_PAD.encode([&[7], &bytes[end + 1..]].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sections_name_with_another_secret_opens_nothing() {
    let cluster = TestCluster::start(1).await;
    cluster.client(0).await;
    let rest = Rest(cluster.node(0).rest.clone());
    let body = json!({"keys": [{"key": "k"}], "wait_ms": 20_000, "counting": "client"});
    let (status, section) = rest.json("POST", "/v1/sections", body).await;
    assert_eq!(status, 201, "{section}");
    let name = section["id"].as_str().unwrap();
    let (own, other) = (
        format!("/v1/sections/{name}"),
        format!("/v1/sections/{}", forged(name)),
    );
    let put = async |id: &str, sequence: &str, value: &str| {
        let headers = [
            ("fermata-sequence", sequence),
            ("content-type", "application/json"),
        ];
        let body = json!({ "value": value }).to_string();
        let path = format!("{id}/keys/k");
        let (status, _, answer) = rest.send("PUT", &path, &headers, body.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        (status, answer)
    };
    assert_eq!(put(&own, "1", "v1").await.0, 200);
    let (status, refused) = put(&other, "9", "stolen").await;
    assert_eq!(
        (status, refused["code"].as_str()),
        (409, Some("not_holder"))
    );
    for (method, path) in [
        ("GET", format!("{other}/keys/k")),
        ("GET", other.clone()),
        ("POST", format!("{other}/renew")),
        ("POST", format!("{other}/resume")),
        ("DELETE", other),
    ] {
        let (status, refused) = rest.json(method, &path, Value::Null).await;
        let code = refused["code"].as_str();
        assert_eq!(
            (status, code),
            (409, Some("not_holder")),
            "{method} {path}: {refused}"
        );
    }
    assert_eq!(put(&own, "2", "v2").await.0, 200);
    let (_, state) = rest.json("GET", &own, Value::Null).await;
    assert_eq!(state["state"], "entered", "{state}");
    let (_, found) = rest
        .json("GET", &format!("{own}/keys/k"), Value::Null)
        .await;
    assert_eq!(found["value"], "v2");
    assert_eq!(rest.json("DELETE", &own, Value::Null).await.0, 200);
}
