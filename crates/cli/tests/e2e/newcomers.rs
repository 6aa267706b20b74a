//! Nodes that join the cluster of a test.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use crate::support::{ByHand, Dev, Ports, eventually, fermata, status, text};

/// Nodes that join the cluster of `dev`.
pub(crate) struct Newcomers {
    pub(crate) ports: Ports,
    pub(crate) folder: tempfile::TempDir,
    /// Whom they ask.
    pub(crate) seed: String,
}

impl Newcomers {
    pub(crate) fn of(dev: &Dev) -> Newcomers {
        let seeds: Vec<&str> = dev
            .nodes
            .iter()
            .filter_map(|n| n["grpc"].as_str())
            .collect();
        Newcomers {
            ports: Ports::free(),
            folder: tempfile::tempdir().expect("a folder"),
            seed: seeds.join(","),
        }
    }

    pub(crate) fn command(&self, number: u16, site: &str) -> Command {
        let at = |port: u16| format!("127.0.0.1:{}", self.ports.base + 10 * number + port);
        let mut server = fermata();
        server
            .args(["server", "--join", &self.seed, "--site", site])
            .args(["--label", &format!("new-{number}")])
            .arg("--data-dir")
            .arg(self.folder.path().join(number.to_string()))
            .args([
                "--listen-grpc",
                &at(0),
                "--listen-rest",
                &at(1),
                "--listen-peer",
                &at(2),
            ])
            .stderr(Stdio::null());
        server
    }

    pub(crate) fn start(&self, number: u16, site: &str) -> ByHand {
        ByHand(self.command(number, site).spawn().expect("a node starts"))
    }

    /// Starts a node, which the nodes of `dev` hear when this returns.
    pub(crate) fn join(&self, dev: &Dev, number: u16, site: &str) -> ByHand {
        let node = self.start(number, site);
        let label = format!("new-{number}");
        eventually("the node takes part", || hears(dev, &label));
        node
    }

    /// A node that does not start: its exit status and what it says.
    pub(crate) fn refused(&self, number: u16, site: &str) -> (i32, String) {
        ended(self.command(number, site))
    }

    /// A client of these nodes alone.
    pub(crate) fn client(&self, numbers: &[u16]) -> Command {
        let at = |n: &u16| format!("127.0.0.1:{}", self.ports.base + 10 * n);
        let all: Vec<String> = numbers.iter().map(at).collect();
        let mut command = fermata();
        command.env("FERMATA_ENDPOINTS", all.join(","));
        command
    }
}

/// How a node ends that should not start, and what it says.
pub(crate) fn ended(mut command: Command) -> (i32, String) {
    let mut node = ByHand(command.stderr(Stdio::piped()).spawn().expect("it runs"));
    let mut ended = None;
    eventually("the node is refused", || {
        ended = node.0.try_wait().expect("it can be waited for");
        ended.is_some()
    });
    let mut said = String::new();
    let mut stderr = node.0.stderr.take().expect("stderr is piped");
    stderr.read_to_string(&mut said).expect("text");
    let exit = ended.and_then(|ended| ended.code());
    (exit.expect("it was not killed"), said)
}

pub(crate) fn run(mut command: Command, args: &[&str]) -> Output {
    command.args(args).output().expect("fermata runs")
}

pub(crate) fn well(output: &Output) {
    assert_eq!(status(output), 0, "{}", text(&output.stderr));
}

pub(crate) fn ring(dev: &Dev) -> serde_json::Value {
    dev.json(&["ring"])
}

/// Whether a node is known and heard.
pub(crate) fn hears(dev: &Dev, label: &str) -> bool {
    let ring = ring(dev);
    let mut nodes = ring["nodes"].as_array().expect("nodes").iter();
    nodes.any(|node| node["label"] == label && node["heard"] == true)
}

/// A client of one node of `dev`.
pub(crate) fn run_at(dev: &Dev, node: usize) -> Command {
    let mut command = fermata();
    command.env(
        "FERMATA_ENDPOINTS",
        dev.nodes[node]["grpc"].as_str().expect("an address"),
    );
    command
}
