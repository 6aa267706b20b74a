//! MUSIC's own clients, and what ONAP's server does wrong, on the native engine. The same lists run
//! on Cassandra and `ZooKeeper` in the tests of the command line.

#[path = "../music/better.rs"]
mod better;
#[path = "../music/clients.rs"]
mod clients;
#[macro_use]
#[path = "../music/list.rs"]
mod list;

use crate::common::{Choice, TestCluster};
use better::{ROWS, critical, define};
use clients::start;
use serde_json::{Value, json};

/// Nodes of one cluster, which serve.
pub(crate) struct Stage(TestCluster);

impl Stage {
    pub(crate) async fn start(nodes: u16) -> Stage {
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

    async fn with(nodes: u16, choice: Choice) -> Stage {
        let cluster = TestCluster::start_with(nodes, choice).await;
        for at in 0..usize::from(nodes) {
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
