//! The program against a cluster in this process: a leader is killed, then a node is stopped.

#[path = "../../../crates/client/tests/common/mod.rs"]
mod common;

use common::Cluster;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A process, and what it says.
struct Leader {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Leader {
    fn start(cluster: &Cluster) -> Leader {
        let nodes = [0, 1, 2].map(|at| cluster.endpoint(at).replace("http://", ""));
        let mut process = Command::new(env!("CARGO_BIN_EXE_leader"))
            .env("FERMATA_ENDPOINTS", nodes.join(","))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let says = process.stdout.take().expect("a pipe");
        let says = BufReader::new(says).lines();
        Leader { process, says }
    }

    /// Its next line; the number behind `words` in it.
    async fn says(&mut self, words: &str) -> u64 {
        let line = self.says.next_line().await.expect("text").expect("a line");
        let number = line.strip_prefix(words).unwrap_or_else(|| panic!("{line}"));
        let number = number.split(',').next().expect("a number");
        number.parse().expect("a number")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_leader_begins_from_the_last_step() {
    let mut cluster = Cluster::start().await;
    let client = cluster.client(0).await;
    let mut first = Leader::start(&cluster);
    assert_eq!(first.says("leading from step ").await, 0);
    let mut second = Leader::start(&cluster);
    for step in 1..=3 {
        assert_eq!(first.says("step ").await, step);
    }
    first.process.kill().await.expect("it runs");
    let from = second.says("leading from step ").await;
    assert!(from >= 3, "{from}");
    assert_eq!(second.says("step ").await, from + 1);
    cluster.stop(2).await;
    for step in 2..=10 {
        assert_eq!(second.says("step ").await, from + step);
    }
    second.process.kill().await.expect("it runs");
    let last = client.read("default", "leader").await.expect("a quorum");
    let last = last.expect("a value");
    let last: u64 = String::from_utf8_lossy(&last).parse().expect("a number");
    assert!(last >= from + 10, "{last}");
}
