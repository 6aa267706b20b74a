//! A cluster does not outlive its owner, even one that is killed and so drops nothing.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fermata_peers::{Cluster, Spec, System, testable};

/// Set for a copy of this program that owns a cluster, and is killed.
const OWNER: &str = "FERMATA_PEERS_TEST_OWNER";

/// What the killed copy does: it owns a cluster, says where, and waits.
#[test]
fn owner() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let mut spec = Spec::new(System::Zookeeper, 1);
    spec.quick = true;
    let cluster = Cluster::start(&spec).expect("it serves");
    let pid = cluster.nodes()[0].pid.expect("it is up");
    println!("\nOWNS {pid} {}", cluster.folder().display());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_cluster_ends_with_its_owner_even_if_that_is_killed() {
    if !testable(System::Zookeeper) {
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let mut owner = Command::new(program)
        .args(["owner", "--exact", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs");
    let output = BufReader::new(owner.stdout.take().expect("piped"));
    let mut lines = output.lines().map_while(Result::ok);
    let owned = lines.find_map(|line| line.strip_prefix("OWNS ").map(str::to_owned));
    owner.kill().expect("it is ours");
    owner.wait().expect("it is ours");
    let owned = owned.expect("its cluster served");
    let (pid, folder) = owned.split_once(' ').expect("two words");
    let process = PathBuf::from("/proc").join(pid);
    // Whoever becomes the parent of what the owner left may take its time to bury it.
    let is_there = || {
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    let start = Instant::now();
    while (is_there() || PathBuf::from(folder).exists()) && start.elapsed().as_secs() < 60 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_there(), "process {pid} is left");
    assert!(!PathBuf::from(folder).exists(), "{folder} is left");
}
