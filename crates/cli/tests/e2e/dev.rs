//! `fermata dev` and the key commands on real processes.

use std::process::Stdio;

use crate::support::{ByHand, Dev, Ports, eventually, fermata, status, text};
use rustix::process::{Signal, kill_process};

/// Everything that a newcomer tries first.
fn tour(sites: &str) {
    let dev = Dev::start(&["--sites", sites]);
    let folder = dev.folder();
    assert_eq!(dev.nodes.len().to_string(), sites);
    for how in [&[][..], &["--wait"]] {
        let run = |args: &[&str]| {
            let output = dev.run(&[args, how].concat());
            (status(&output), text(&output.stdout))
        };
        assert_eq!(run(&["put", "k", "hello"]).0, 0);
        assert_eq!(run(&["get", "k"]), (0, "hello".to_owned()));
        assert_eq!(run(&["put", "k", "-5"]).0, 0);
        assert_eq!(run(&["get", "k"]), (0, "-5".to_owned()));
        assert_eq!(run(&["del", "k"]).0, 0);
        assert_eq!(run(&["get", "k"]).0, 1);
    }
    assert_eq!(status(&dev.run(&["put", "--eventual", "e", "1"])), 0);
    eventually("the put is seen", || {
        text(&dev.run(&["get", "--eventual", "e"]).stdout) == "1"
    });
    assert_eq!(text(&dev.run(&["get", "e"]).stdout), "1", "and adopted");
    let increment = dev.run(&["lock", "n", "--", "sh", "-c", &increment("n")]);
    assert_eq!(status(&increment), 0, "{}", text(&increment.stderr));
    assert_eq!(text(&dev.run(&["get", "n"]).stdout), "1");
    let health = dev.run(&["status"]);
    assert_eq!(status(&health), 0, "{}", text(&health.stdout));
    assert_eq!(dev.stop(), Some(0));
    assert!(!folder.exists(), "a temporary directory is removed");
}

/// A shell command that adds 1 to `key` inside a section.
fn increment(key: &str) -> String {
    let fermata = env!("CARGO_BIN_EXE_fermata");
    format!("v=$({fermata} get {key}); {fermata} put {key} $((v+1))")
}

#[test]
fn one_site_serves() {
    tour("1");
}

#[test]
fn two_sites_serve() {
    tour("2");
}

#[test]
fn three_sites_serve() {
    tour("3");
}

#[test]
fn five_sites_serve() {
    tour("5");
}

#[test]
fn two_groups_over_three_sites_serve() {
    let dev = Dev::start(&["--nodes-per-site", "2", "--segments", "4"]);
    assert_eq!(dev.nodes.len(), 6);
    for number in 0..20 {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        assert_eq!(status(&dev.run(&["put", &key, &value])), 0);
        assert_eq!(text(&dev.run(&["get", &key]).stdout), value);
    }
    assert_eq!(
        status(&dev.run(&["lock", "key1", "key2", "key3", "--", "true"])),
        0
    );
}

#[test]
fn no_acknowledged_increment_is_lost_when_a_node_is_killed_and_restarted() {
    const ALL: usize = 30;
    let dev = Dev::start(&[]);
    let started: Vec<_> = (0..ALL)
        .map(|number| {
            let site = dev.nodes[number % 3]["site"].as_str().expect("announced");
            dev.client()
                .args([
                    "--site",
                    site,
                    "lock",
                    "counter",
                    "--",
                    "sh",
                    "-c",
                    &increment("counter"),
                ])
                .stderr(Stdio::piped())
                .spawn()
                .expect("fermata lock starts")
        })
        .collect();
    // In the middle: some are done, some are not.
    eventually("the first increment", || {
        !dev.run(&["get", "counter"]).stdout.is_empty()
    });
    kill_process(dev.pid(1), Signal::KILL).expect("the node runs");
    let again = || {
        let config = dev.config(1);
        let mut server = fermata();
        server.arg("server").arg("--config").arg(config);
        server
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    std::thread::sleep(std::time::Duration::from_secs(1));
    let _node = ByHand(again());
    let (mut acknowledged, mut unknown) = (0, 0);
    for child in started {
        let output = child.wait_with_output().expect("it ends");
        match status(&output) {
            0 => acknowledged += 1,
            75 | 76 => unknown += 1,
            // Certainly nothing was changed.
            69 | 73 => {}
            other => panic!("status {other}: {}", text(&output.stderr)),
        }
    }
    let counter: usize = text(&dev.run(&["get", "counter"]).stdout)
        .parse()
        .expect("a number");
    assert!(
        (acknowledged..=acknowledged + unknown).contains(&counter),
        "{acknowledged} acknowledged, {unknown} unknown, but the counter is {counter}"
    );
    assert!(
        acknowledged >= ALL / 2,
        "only {acknowledged} were acknowledged"
    );
}

#[test]
fn a_directory_is_resumed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("cluster");
    let path = path.to_str().expect("it is text");
    let dev = Dev::start(&["--data", path, "--sites", "3"]);
    assert_eq!(status(&dev.run(&["put", "k", "kept"])), 0);
    assert_eq!(
        status(&dev.run(&["lock", "s", "--", "sh", "-c", &increment("s")])),
        0
    );
    assert_eq!(dev.stop(), Some(0));

    let other = fermata()
        .args(["dev", "--data", path, "--sites", "5"])
        .output()
        .expect("runs");
    assert_eq!(status(&other), 2);
    assert!(
        text(&other.stderr).contains("3 sites"),
        "{}",
        text(&other.stderr)
    );

    // On other ports, since those are not part of what a cluster is.
    let dev = Dev::start(&["--data", path]);
    assert_eq!(text(&dev.run(&["get", "k"]).stdout), "kept");
    assert_eq!(text(&dev.run(&["get", "s"]).stdout), "1");
    assert_eq!(dev.stop(), Some(0));
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    let ports = Ports::free();
    let base = ports.base;
    let _taken = std::net::TcpListener::bind(("127.0.0.1", base + 11)).expect("it is free");
    let output = fermata()
        .args(["dev", "--base-port", &base.to_string()])
        .output()
        .expect("runs");
    let said = text(&output.stderr);
    assert_eq!(status(&output), 74);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains(&(base + 11).to_string()) && said.contains("--base-port"),
        "{said}"
    );
}

#[test]
fn nodes_end_when_their_parent_is_killed() {
    let dev = Dev::start(&["--sites", "1"]);
    let folder = dev.folder();
    let node = dev.pid(0);
    // Drop would stop it gently.
    let config = dev.config(0);
    assert!(config.exists());
    dev.kill();
    eventually("the node has ended", || {
        rustix::process::test_kill_process(node).is_err()
    });
    std::fs::remove_dir_all(folder).expect("nobody uses it");
}
