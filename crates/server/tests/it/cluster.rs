//! Whole nodes on loopback: sections, registers, restarts, the session stream.

use crate::common::{Choice, Client, Session, TestCluster, enter, key};
use fermata_api::v1::session_reply::Reply;
use fermata_api::v1::session_request::Operation;
use fermata_api::{errors, v1};
use fermata_protocol::Code;
use tokio_stream::StreamExt;

async fn increment(client: &mut Client, session: &mut Session, name: &str) -> u64 {
    let entered = enter(client, session, name).await.unwrap();
    let old = entered.keys[0].value.as_ref().map_or(0, |v| {
        std::str::from_utf8(v).unwrap().parse::<u64>().unwrap()
    });
    let held = entered.keys[0].held.clone();
    let put = v1::CriticalPutRequest {
        header: session.header(),
        held: held.clone(),
        sequence: 1,
        value: Some((old + 1).to_string().into()),
        leave: vec![v1::Leaving {
            held,
            clean: true,
            tag: None,
        }],
    };
    let done = client.critical_put(put).await.unwrap().into_inner();
    assert!(done.left);
    old + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_serves_sections_and_registers_and_keeps_them_over_a_restart() {
    let mut cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(1);
    for expected in 1..=3 {
        assert_eq!(
            increment(&mut client, &mut session, "counter").await,
            expected
        );
    }
    let register = v1::Key {
        keyspace: "registers".into(),
        key: "r".into(),
    };
    let write = v1::WriteRequest {
        header: session.header(),
        key: Some(register.clone()),
        value: Some("kept".into()),
    };
    client.write(write).await.unwrap();
    cluster.stop(0).await;
    cluster.restart(0).await;
    let mut client = cluster.client(0).await;
    let read = v1::ReadRequest {
        header: session.header(),
        key: Some(register),
    };
    assert_eq!(
        client.read(read).await.unwrap().into_inner().value.unwrap(),
        "kept"
    );
    assert_eq!(increment(&mut client, &mut session, "counter").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_lose_no_increment_while_one_restarts() {
    let mut cluster = TestCluster::start(3).await;
    let mut clients = Vec::new();
    for at in 0..3 {
        clients.push(cluster.client(at).await);
    }
    let mut session = Session::new(2);
    let mut count = 0;
    for round in 0..6 {
        for client in clients.iter_mut().take(2) {
            count += 1;
            assert_eq!(increment(client, &mut session, "counter").await, count);
        }
        match round {
            1 => cluster.stop(2).await,
            3 => cluster.restart(2).await,
            _ => {}
        }
    }
    cluster.client(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_stream_answers_many_requests() {
    let cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(3);
    // More than may be open at once: the stream waits, and refuses none.
    let mut frames: Vec<v1::SessionRequest> = (0..5_000u64)
        .map(|id| {
            let write = v1::WriteRequest {
                header: session.header(),
                key: Some(v1::Key {
                    keyspace: "registers".into(),
                    key: format!("k{}", id % 100).into(),
                }),
                value: Some("v".into()),
            };
            v1::SessionRequest {
                id,
                operation: Some(Operation::Write(write)),
            }
        })
        .collect();
    frames.push(v1::SessionRequest {
        id: 1_000,
        operation: None,
    });
    let replies = client
        .session(tokio_stream::iter(frames))
        .await
        .unwrap()
        .into_inner();
    let replies: Vec<v1::SessionReply> = replies.map(Result::unwrap).collect().await;
    let done = replies
        .iter()
        .filter(|r| matches!(r.reply, Some(Reply::Done(_))))
        .count();
    let refused = replies
        .iter()
        .filter(|r| matches!(r.reply, Some(Reply::Refusal(_))))
        .count();
    assert_eq!((done, refused), (5_000, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_is_known_everywhere_once_created() {
    let cluster = TestCluster::start(3).await;
    let mut first = cluster.client(0).await;
    let mut other = cluster.client(1).await;
    let mut session = Session::new(4);
    let keyspace = v1::Keyspace {
        name: "jobs".into(),
        purpose: v1::Purpose::Registers.into(),
        ..v1::Keyspace::default()
    };
    let create = v1::CreateKeyspaceRequest {
        header: session.header(),
        keyspace: Some(keyspace),
    };
    first.create_keyspace(create.clone()).await.unwrap();
    let write = v1::WriteRequest {
        header: session.header(),
        key: Some(v1::Key {
            keyspace: "jobs".into(),
            key: "k".into(),
        }),
        value: Some("v".into()),
    };
    other.write(write).await.unwrap();
    let again = v1::CreateKeyspaceRequest {
        header: session.header(),
        ..create
    };
    let status = other.create_keyspace(again).await.unwrap_err();
    assert_eq!(errors::from_status(&status).code, Code::KeyspaceExists);
}

/// Over REST, and the name means the new one at every node once there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_is_deleted_and_made_again_under_its_name() {
    let cluster = TestCluster::start(3).await;
    let at = |node: usize| crate::http::Rest(cluster.node(node).rest.clone());
    let key = "/v1/keyspaces/jobs/keys/k?consistency=linearizable";
    let jobs = serde_json::json!({"name": "jobs", "purpose": "registers"});
    let nothing = serde_json::Value::Null;
    let mut ids = Vec::new();
    for round in 0..3 {
        let (status, said) = loop {
            let (status, said) = at(round).json("POST", "/v1/keyspaces", jobs.clone()).await;
            // It may be about to start.
            if status != 503 {
                break (status, said);
            }
        };
        assert_eq!(status, 201, "{said}");
        for node in [1, 2, 0] {
            // It may not have heard of it yet, and of the one before.
            loop {
                let (status, said) = at(node).json("GET", key, nothing.clone()).await;
                assert_ne!(status, 200, "{said}");
                if status == 404 && said["code"] != "no_such_keyspace" {
                    break;
                }
            }
        }
        let value = serde_json::json!({"value": "v"});
        let (status, said) = at(round).json("PUT", key, value).await;
        assert_eq!(status, 200, "{said}");
        let times = serde_json::json!({"lease_ms": 200});
        let (status, said) = at(round).json("PATCH", "/v1/keyspaces/jobs", times).await;
        assert_eq!(status, 200, "{said}");
        let (_, all) = at(round)
            .json("GET", "/v1/keyspaces", nothing.clone())
            .await;
        let all = all["keyspaces"].as_array().unwrap();
        let known = all.iter().find(|k| k["name"] == "jobs").unwrap();
        assert_eq!(known["lease_ms"], 200);
        ids.push(known["id"].as_u64());
        let other = at((round + 1) % 3);
        let (status, said) = other
            .json("DELETE", "/v1/keyspaces/jobs", nothing.clone())
            .await;
        assert_eq!(status, 200, "{said}");
        let (status, said) = other.json("GET", key, nothing.clone()).await;
        assert_eq!(
            (status, &said["code"]),
            (404, &"no_such_keyspace".into()),
            "{said}"
        );
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_with_a_lease_that_nobody_can_wait_for_is_refused() {
    let cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(7);
    for (lease_us, section_max_us) in [(u64::MAX, u64::MAX), (1, 0), (0, u64::MAX), (0, 1)] {
        let create = v1::CreateKeyspaceRequest {
            header: session.header(),
            keyspace: Some(v1::Keyspace {
                name: "odd".into(),
                purpose: v1::Purpose::Sections.into(),
                lease_us,
                section_max_us,
                ..v1::Keyspace::default()
            }),
        };
        let status = client.create_keyspace(create).await.unwrap_err();
        let refusal = errors::from_status(&status);
        assert_eq!(refusal.code, Code::BadRequest);
        assert!(refusal.detail.contains("ms"), "{}", refusal.detail);
    }
    let rest = crate::http::Rest(cluster.node(0).rest.clone());
    let odd = serde_json::json!({
        "name": "odd", "purpose": "sections", "lease_ms": u64::MAX / 1_000,
        "section_max_ms": u64::MAX / 1_000,
    });
    let (status, said) = rest.json("POST", "/v1/keyspaces", odd).await;
    assert_eq!(status, 400, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_refused_and_change_nothing() {
    let cluster = TestCluster::start(1).await;
    let mut client = cluster.client(0).await;
    let mut session = Session::new(5);
    let refused = |status: tonic::Status| errors::from_status(&status);
    let get = v1::GetRequest {
        header: None,
        key: Some(key("k")),
    };
    assert_eq!(
        refused(client.get(get).await.unwrap_err()).code,
        Code::BadRequest
    );
    let nowhere = v1::Key {
        keyspace: "nowhere".into(),
        key: "k".into(),
    };
    let get = v1::GetRequest {
        header: session.header(),
        key: Some(nowhere),
    };
    assert_eq!(
        refused(client.get(get).await.unwrap_err()).code,
        Code::NoSuchKeyspace
    );
    let long = v1::Key {
        keyspace: "default".into(),
        key: vec![7; 2_000].into(),
    };
    let put = v1::PutRequest {
        header: session.header(),
        key: Some(long),
        value: Some("v".into()),
    };
    let refusal = refused(client.put(put).await.unwrap_err());
    assert_eq!(
        (refusal.code, refusal.may_have_taken_effect),
        (Code::TooLarge, false)
    );
    let put = v1::PutRequest {
        header: session.header(),
        key: Some(key("k")),
        value: Some(vec![0; 20 << 20].into()),
    };
    client.put(put).await.unwrap_err();
    let wrong = v1::ReadRequest {
        header: session.header(),
        key: Some(v1::Key {
            keyspace: "registers".into(),
            key: "k".into(),
        }),
    };
    assert_eq!(client.read(wrong).await.unwrap().into_inner().value, None);
    let get = v1::GetRequest {
        header: session.header(),
        key: Some(key("k")),
    };
    assert_eq!(client.get(get).await.unwrap().into_inner().value, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_delays_between_its_sites_serves() {
    let cluster = TestCluster::start_with(
        3,
        Choice {
            rtt: Some("lUs"),
            ..Choice::default()
        },
    )
    .await;
    let mut session = Session::new(6);
    for at in 0..3 {
        let mut client = cluster.client(at).await;
        assert_eq!(
            increment(&mut client, &mut session, "counter").await,
            at as u64 + 1
        );
    }
}
