//! Sites whose packets are lost, and come through again: three processes in network namespaces of
//! their own. Needs Linux, root and `ip`; `cargo xtask test --deep` runs it.
//!
//! Packets from one node to another are lost by an entry for the other's address in the table of
//! neighbours that names a card which nobody has: what is sent is sent, and nothing comes back.

#[path = "../common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NODES: [u8; 3] = [1, 2, 3];
const BRIDGE: &str = "fermata-br";

fn ip(words: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(words.split(' ')).stderr(Stdio::null());
    command.status().expect("ip can be run").success()
}

fn must(words: &str) {
    assert!(ip(words), "ip {words}: failed; is this root?");
}

fn address(node: u8) -> String {
    format!("10.213.7.{node}")
}

/// The namespaces, and a bridge between them that this process reaches, too.
struct Net;

impl Net {
    fn up() -> Net {
        // What an earlier run left.
        Net::down();
        must(&format!("link add {BRIDGE} type bridge"));
        let net = Net;
        must(&format!("addr add {}/24 dev {BRIDGE}", address(254)));
        must(&format!("link set {BRIDGE} up"));
        for node in NODES {
            let (space, card) = (format!("fermata-{node}"), format!("fermata-v{node}"));
            must(&format!("netns add {space}"));
            must(&format!(
                "link add {card} type veth peer name eth0 netns {space}"
            ));
            must(&format!("link set {card} master {BRIDGE} up"));
            must(&format!(
                "-n {space} addr add {}/24 dev eth0",
                address(node)
            ));
            must(&format!("-n {space} link set eth0 up"));
            must(&format!("-n {space} link set lo up"));
        }
        net
    }

    fn down() {
        for node in NODES {
            ip(&format!("netns del fermata-{node}"));
        }
        ip(&format!("link del {BRIDGE}"));
    }

    /// Whatever `from` sends to `to` is lost from now on.
    fn cut(from: u8, to: u8) {
        let nobody = "lladdr 02:00:00:00:66:66 dev eth0 nud permanent";
        must(&format!(
            "-n fermata-{from} neigh replace {} {nobody}",
            address(to)
        ));
    }

    fn heal(from: u8, to: u8) {
        must(&format!(
            "-n fermata-{from} neigh del {} dev eth0",
            address(to)
        ));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        Net::down();
    }
}

/// A node's process.
struct Node(Child);

impl Node {
    fn start(node: u8, folder: &std::path::Path) -> Node {
        let fermata = common::fermata();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("fermata-{node}")]);
        command.arg(fermata.get_program());
        command.args(["server", "--insecure", "--node", &format!("n{node}")]);
        command.arg("--cluster-file");
        command.arg(folder.join("cluster.toml"));
        command
            .arg("--data-dir")
            .arg(folder.join(format!("n{node}")));
        let log = std::fs::File::create(folder.join(format!("n{node}.log")));
        command.stderr(log.expect("a log")).stdin(Stdio::null());
        Node(command.spawn().expect("a node starts"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

fn cluster_file() -> String {
    let mut text = String::from(
        "id = \"000000000000000000000000000000fe\"\nsegment_bits = 3\n\
         sites = [\"s1\", \"s2\", \"s3\"]\n",
    );
    for node in NODES {
        let at = address(node);
        text += &format!(
            "[[nodes]]\nname = {node}\nlabel = \"n{node}\"\nsite = \"s{node}\"\n\
             peer = \"{at}:7102\"\ngrpc = \"{at}:7100\"\nrest = \"{at}:7101\"\n"
        );
    }
    text
}

/// What a node says of itself; none while it does not answer.
fn ask(node: u8, path: &str) -> Option<String> {
    let socket = format!("{}:7101", address(node))
        .parse()
        .expect("an address");
    let second = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&socket, second).ok()?;
    stream.set_read_timeout(Some(second)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

/// The other nodes that a node hears.
fn hears(node: u8) -> usize {
    let status = ask(node, "/v1/status").and_then(|s| serde_json::from_str(&s).ok());
    let status: serde_json::Value = status.unwrap_or_default();
    let alive = status["alive"].as_array().cloned().unwrap_or_default();
    let others = alive
        .iter()
        .filter(|name| name.as_u64() != Some(node.into()));
    others.count()
}

/// Waits until every node hears so many others; no figure rests on the limit.
fn until_heard(by: &[u8], others: usize) {
    let start = Instant::now();
    while by.iter().any(|node| hears(*node) != others) {
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "nobody came back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cut_site_is_heard_again_when_its_packets_come_through() {
    let net = Net::up();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("cluster.toml"), cluster_file()).expect("a file");
    let nodes = NODES.map(|node| Node::start(node, folder.path()));
    until_heard(&NODES, 2);
    let both: &[(u8, u8)] = &[(3, 1), (3, 2), (1, 3), (2, 3)];
    for (what, ways) in [("both ways", both), ("one way", &both[..2])] {
        for seconds in [20, 60, 115] {
            for (from, to) in ways {
                Net::cut(*from, *to);
            }
            std::thread::sleep(Duration::from_secs(seconds));
            for (from, to) in ways {
                Net::heal(*from, *to);
            }
            let healed = Instant::now();
            until_heard(&NODES, 2);
            let after = healed.elapsed().as_secs_f64();
            println!("cut {what} for {seconds} s: all hear all {after:.2} s after the healing");
        }
    }
    let ended = ask(1, "/metrics").unwrap_or_default();
    let silent = "fermata_peer_connections_ended_total{reason=\"silent\"}";
    assert!(ended.contains(silent), "{ended}");
    drop((nodes, net));
}
