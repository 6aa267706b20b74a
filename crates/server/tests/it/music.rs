//! MUSIC's own clients, and what ONAP's server does wrong, on the native engine. The same lists run
//! on Cassandra and `ZooKeeper` in the tests of the command line.

#[path = "../music/better.rs"]
mod better;
#[path = "../music/clients.rs"]
mod clients;
#[macro_use]
#[path = "../music/list.rs"]
mod list;

use crate::common::{Choice, Client, Session, TestCluster, eventually};
use better::{ROWS, critical, define};
use clients::{encoded, keyspace, start, start_on};
use fermata_api::v1;
use fermata_api::v1::enter_event::Event;
use fermata_server::config::ClientsConfig;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_stream::StreamExt;

/// Nodes of one cluster, which serve.
pub(crate) struct Stage(TestCluster);

impl Stage {
    pub(crate) async fn start(nodes: u32) -> Stage {
        Stage::with(nodes, Choice::default()).await
    }

    /// One node that takes values of so many bytes.
    pub(crate) async fn limited(value_bytes: usize) -> Stage {
        let limits = fermata_server::config::LimitsConfig {
            value_bytes: Some(value_bytes),
            ..Default::default()
        };
        let choice = Choice {
            limits,
            ..Choice::default()
        };
        Stage::with(1, choice).await
    }

    async fn with(nodes: u32, choice: Choice) -> Stage {
        let cluster = TestCluster::start_with(nodes, choice).await;
        for at in 0..nodes as usize {
            cluster.client(at).await;
        }
        Stage(cluster)
    }

    /// Where a node's REST is.
    pub(crate) fn rest(&self, at: usize) -> String {
        self.0.node(at).rest.clone()
    }

    /// Ends a node without any word or flush.
    pub(crate) async fn kill(&mut self, at: usize) {
        self.0.kill(at).await;
    }

    /// Stops a node as its operator does, and starts it again.
    pub(crate) async fn restart(&mut self, at: usize) {
        self.0.stop(at).await;
        self.0.restart(at).await;
        self.0.client(at).await;
    }
}

fn run(check: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(check);
}

every_music_check!(run);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_nobody_is_told_that_a_lock_is_gone() {
    let (mut cluster, nodes) = start(3).await;
    let node = &nodes[0];
    define(node, json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"})).await;
    let (mine, yours) = (node.lock("ks.t.k").await, nodes[1].lock("ks.t.k").await);
    node.acquire(&mine).await;
    cluster.kill(1).await;
    cluster.kill(2).await;
    for id in [mine.clone(), yours, "$ks.active.lock$1".into()] {
        let path = format!("/locks/acquire/{id}");
        let (status, answer) = node.call("GET", &path, Value::Null).await;
        // A holder may be told that it holds as long as its lease lasts.
        assert!(
            status == 200 || answer.get("message").is_some(),
            "{id}: {answer}"
        );
    }
    let path = format!("{ROWS}?k=k");
    let said = node
        .no("PUT", &path, critical(json!({"v": 1}), &mine))
        .await;
    assert!(said.contains("may have taken effect"), "{said}");
}

/// G56. Each lock has to be spoken of within its lease once its home has gone, and a client may ask
/// for one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_many_locks_keeps_them_all_when_their_home_stops() {
    let (mut cluster, nodes) = start(3).await;
    define(&nodes[0], json!({"k": "text", "PRIMARY KEY": "(k)"})).await;
    let mut locks = Vec::new();
    for number in 0..8 {
        let id = nodes[0].lock(&format!("ks.t.k{number}")).await;
        nodes[0].acquire(&id).await;
        locks.push(id);
    }
    cluster.0.stop(0).await;
    for id in &locks {
        let path = format!("/locks/acquire/{id}");
        let (status, answer) = nodes[1].call("GET", &path, Value::Null).await;
        assert!(status == 200 || answer.get("message").is_some(), "{answer}");
    }
    for id in &locks {
        nodes[1].acquire(id).await;
    }
}

/// A node that drains becomes the home of no more locks: their clients would have to change it
/// soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_draining_node_is_asked_for_has_its_home_elsewhere() {
    let (cluster, nodes) = start(3).await;
    define(&nodes[0], json!({"k": "text", "PRIMARY KEY": "(k)"})).await;
    cluster.0.drain(1, 0, true).await;
    let mut asked = cluster.0.client(0).await;
    nodes[0].lock("ks.free.moved").await;
    let key = v1::Key {
        keyspace: "music".into(),
        key: "l\0ks\0free\0moved".into(),
    };
    let queue = v1::QueueRequest {
        header: Session::new(62).header(),
        key: Some(key),
    };
    let queue = asked.queue(queue).await.unwrap().into_inner();
    // A lock's session has its home in its second to fifth byte.
    let homes: Vec<&[u8]> = queue.entries.iter().map(|e| &e.session[1..5]).collect();
    assert_eq!(homes, [2_u32.to_be_bytes()]);
}

/// A critical write of `v`, which must be done.
async fn written(node: &clients::Music, id: &str, v: u64) {
    let path = format!("{ROWS}?k=k");
    node.ok("PUT", &path, critical(json!({"v": v}), id)).await;
}

/// A node that drains gives its locks to others, and no call fails by it: neither while they move,
/// nor once their former home has stopped, whichever node is asked. Nothing that was acknowledged
/// is lost, and a lock of which nobody speaks moves, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_node_that_drains_move_and_no_call_fails() {
    let (mut cluster, nodes) = start(3).await;
    define(
        &nodes[0],
        json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"}),
    )
    .await;
    let mine = nodes[0].lock("ks.t.k").await;
    nodes[0].acquire(&mine).await;
    let day = json!({"leasePeriod": 86_400_000});
    let quiet = nodes[0].ok("POST", "/locks/create/ks.t.quiet", day).await["lock"]["lock"]
        .as_str()
        .unwrap()
        .to_owned();
    nodes[0].acquire(&quiet).await;
    let (waits, drained) = (nodes[0].lock("ks.t.k").await, AtomicBool::new(false));
    let work = async {
        let mut v = 0;
        while !drained.load(Ordering::Relaxed) || v < 20 {
            v += 1;
            written(&nodes[v as usize % 3], &mine, v).await;
        }
        v
    };
    let drain = async {
        cluster.0.drain(1, 0, true).await;
        eventually!(cluster.0.sessions(0).await == 0);
        drained.store(true, Ordering::Relaxed);
    };
    let (mut v, ()) = tokio::join!(work, drain);
    cluster.0.stop(0).await;
    for at in [1, 2, 1, 2] {
        v += 1;
        written(&nodes[at], &mine, v).await;
        let get = critical(Value::Null, &mine);
        let got = nodes[at].ok("PUT", "/keyspaces/ks/tables/t/rows/criticalget?k=k", get);
        assert_eq!(got.await["result"]["row 0"]["v"], json!(v));
        nodes[at].acquire(&quiet).await;
    }
    let release = format!("/locks/release/{mine}");
    nodes[1].ok("DELETE", &release, Value::Null).await;
    nodes[2].acquire(&waits).await;
}

/// What a home knows of the unit is no answer once the lock is somebody else's: neither to a write
/// that would change nothing, nor to a condition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_past_holder_is_answered_nothing_from_memory() {
    let (_cluster, nodes) = start(3).await;
    define(
        &nodes[0],
        json!({"k": "text", "v": "int", "PRIMARY KEY": "(k)"}),
    )
    .await;
    // A condition that no longer fails, and a write that would change nothing.
    for (key, conditions, v) in [("a", json!({"v": 2}), 3), ("b", Value::Null, 1)] {
        let (path, name) = (format!("{ROWS}?k={key}"), format!("ks.t.{key}"));
        let mine = nodes[0].lock(&name).await;
        nodes[0].acquire(&mine).await;
        let one = critical(json!({"v": 1}), &mine);
        nodes[0].ok("PUT", &path, one).await;
        // The home hears of this at its next renewal.
        let delete = format!("/locks/delete/{name}");
        nodes[1].ok("DELETE", &delete, Value::Null).await;
        let yours = nodes[1].lock(&name).await;
        nodes[1].acquire(&yours).await;
        let two = critical(json!({"v": 2}), &yours);
        nodes[1].ok("PUT", &path, two).await;
        let mut late = critical(json!({"v": v}), &mine);
        late["conditions"] = conditions;
        let said = nodes[0].no("PUT", &path, late).await;
        assert!(said.contains("does not exist"), "{said}");
    }
}

/// A lock is a session that the node keeps, until it is released, left, or ended by somebody else;
/// a call that is a section of its own needs no place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_bounded_and_their_places_come_back() {
    let clients = ClientsConfig {
        sessions: Some(2),
        ..ClientsConfig::default()
    };
    let choice = Choice {
        clients,
        ..Choice::default()
    };
    let (cluster, nodes) = start_on(Stage::with(1, choice).await, 1);
    let node = &nodes[0];
    node.ok("POST", "/keyspaces/ks", keyspace()).await;
    let day = json!({"leasePeriod": 86_400_000});
    let (mine, yours) = (node.lock("ks.t.mine").await, "/locks/create/ks.t.yours");
    let yours = node.ok("POST", yours, day).await["lock"]["lock"].clone();
    let full = |said: &str| said.contains("clients.sessions");
    let said = node.no("POST", "/locks/create/ks.t.x", Value::Null).await;
    assert!(full(&said), "{said}");
    let fields = json!({"fields": {"k": "text", "PRIMARY KEY": "k"}});
    node.ok("POST", "/keyspaces/ks/tables/t", fields).await;
    let release = format!("/locks/release/{mine}");
    node.ok("DELETE", &release, Value::Null).await;
    node.lock("ks.t.x").await;
    // Its session finds out by its renewals that it is over.
    let number: u64 = yours
        .as_str()
        .unwrap()
        .rsplit_once('$')
        .unwrap()
        .1
        .parse()
        .unwrap();
    let path = "/v1/keyspaces/music/keys/l%00ks%00t%00yours/release";
    let forced = json!({"lock_ref": number});
    // It may be answered before the lease has run out, which is not renewed any more.
    let _released = node.beside("POST", path, forced).await;
    eventually!({
        let (status, answer) = node.call("POST", "/locks/create/ks.t.y", Value::Null).await;
        assert!(
            status == 200 || full(&answer["error"].to_string()),
            "{answer}"
        );
        status == 200
    });
    drop(cluster);
}

/// A client's own section on the key of a lock of this interface.
async fn own_section(client: &mut Client, who: &mut Session, name: &str) -> v1::Held {
    let enter = v1::EnterRequest {
        header: who.header(),
        keys: vec![v1::Key {
            keyspace: "music".into(),
            key: format!("l\0ks\0t\0{name}").into(),
        }],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        ..v1::EnterRequest::default()
    };
    let mut events = client.enter(enter).await.unwrap().into_inner();
    while let Some(event) = events.next().await {
        if let Some(Event::Entered(entered)) = event.unwrap().event {
            return entered.keys[0].held.clone().unwrap();
        }
    }
    panic!("the stream ended before the entry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_done_to_a_section_that_is_no_lock() {
    let (cluster, nodes) = start(1).await;
    let (node, mut client) = (&nodes[0], cluster.0.client(0).await);
    node.ok("POST", "/keyspaces/ks", keyspace()).await;
    // The hashes of the last two secrets begin as the sessions of locks and of promotions do.
    for secret in [91, 81_567, 112_160] {
        let mut holder = Session::new(secret);
        let name = format!("k{secret}");
        let held = own_section(&mut client, &mut holder, &name).await;
        let id = encoded(&format!("$ks.t.{name}${}", held.lock_ref));
        for (method, path) in [
            ("GET", format!("/locks/acquire/{id}")),
            ("POST", format!("/locks/promote/{id}")),
            ("DELETE", format!("/locks/release/{id}")),
            ("DELETE", format!("/locks/delete/{id}")),
        ] {
            let said = node.no(method, &path, Value::Null).await;
            assert!(said.contains("not a lock of this"), "{path}: {said}");
        }
        // By its name, all locks are ended, and there are none.
        let path = format!("/locks/delete/ks.t.{name}");
        node.ok("DELETE", &path, Value::Null).await;
        let put = v1::CriticalPutRequest {
            header: holder.header(),
            held: Some(held),
            sequence: 1,
            value: Some("v".into()),
            leave: vec![],
        };
        client.critical_put(put).await.unwrap();
    }
}
