//! Coded keyspaces that have lost their quorum while the logs still have theirs: what commands say
//! of it, and how an operator sees it.

use std::process::Output;

use rustix::process::Signal;

use crate::support::{Dev, eventually, json, status, text};

/// Five nodes, `f = 1`, and two of them killed: three are a majority, and one too few.
struct Short {
    dev: Dev,
}

impl Short {
    fn new() -> Short {
        let dev = Dev::start(&["--sites", "5"]);
        let coded = ["--storage", "coded", "--f", "1", "--whole-below", "0"];
        for (name, purpose) in [("coded", "registers"), ("codedlocks", "sections")] {
            let create = ["keyspace", "create", name, "--purpose", purpose];
            let created = dev.run(&[&create[..], &coded].concat());
            assert_eq!(status(&created), 0, "{}", text(&created.stderr));
        }
        let before = dev.run(&["--keyspace", "codedlocks", "put", "k", "v"]);
        assert_eq!(status(&before), 0, "{}", text(&before.stderr));
        for node in [3, 4] {
            dev.signal(node, Signal::KILL);
        }
        let short = Short { dev };
        eventually("the living miss the others", || {
            let status = short.dev.json(&["status"]);
            let keyspaces = status["keyspaces"].as_array().expect("an array");
            let coded = keyspaces.iter().find(|k| k["keyspace"] == "coded");
            let has_primaries = !status.to_string().contains("without primary");
            coded.is_some_and(|k| k["available"] == false) && has_primaries
        });
        short
    }

    fn run(&self, args: &[&str]) -> Output {
        self.dev.run(args)
    }
}

const SHORTAGE: &str = "3 of the key's 5 members are in reach, and keyspace `codedlocks` \
                        (coded, f = 1) needs 4";

#[test]
fn a_section_keyspace_without_its_quorum_is_unavailable_and_says_why() {
    let short = Short::new();
    let space = ["--keyspace", "codedlocks", "--timeout", "3s"];
    // A write may still find its key granted when its client goes away.
    for (command, exit) in [
        (&["get", "k"][..], 69),
        (&["put", "k", "w"], 69),
        (&["put", "--wait", "k", "w"], 76),
    ] {
        let failed = short.run(&[&space, command].concat());
        let said = text(&failed.stderr);
        assert_eq!(status(&failed), exit, "{command:?}: {said}");
        assert!(said.contains(SHORTAGE), "{said}");
        assert_eq!(said.matches("needs 4").count(), 1, "once: {said}");
    }
    // Were its wait the bound, this would last for a day.
    let lock = ["lock", "--wait", "24h", "k", "--", "true"];
    let failed = short.run(&[&space, &lock[..]].concat());
    let said = text(&failed.stderr);
    assert_eq!(status(&failed), 69, "{said}");
    assert!(
        said.contains(SHORTAGE) && said.contains("COMMAND was not run"),
        "{said}"
    );
    assert!(!said.contains("taken effect"), "{said}");
    // What was given up is out of the queue.
    let queue = short.dev.json(&["--keyspace", "codedlocks", "locks", "k"]);
    assert_eq!(queue["entries"], serde_json::json!([]), "{queue}");
}

#[test]
fn a_write_without_its_quorum_says_once_what_is_missing_and_that_it_may_be_done() {
    let short = Short::new();
    let write = ["--keyspace", "coded", "--timeout", "4s", "put", "k", "v"];
    let failed = short.run(&write);
    let said = text(&failed.stderr);
    assert_eq!(status(&failed), 76, "{said}");
    assert!(
        said.contains("3 of the key's 5 members are in reach"),
        "{said}"
    );
    assert_eq!(said.matches("needs 4").count(), 1, "{said}");
    assert_eq!(said.matches("taken effect").count(), 1, "{said}");
    assert!(!said.contains("number"), "{said}");
    let failed = short.run(&[&write[..], &["--json"]].concat());
    let error = &json(&failed.stderr)["error"];
    assert_eq!(error["code"], "unavailable");
    assert_eq!(error["may_have_taken_effect"], true);
    // A read changes nothing.
    let failed = short.run(&[
        "--json",
        "--keyspace",
        "coded",
        "--timeout",
        "3s",
        "get",
        "k",
    ]);
    assert_eq!(status(&failed), 69);
    let error = &json(&failed.stderr)["error"];
    assert_eq!(error["may_have_taken_effect"], false);
    let sentence = error["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("needs 4"), "{sentence}");
}

#[test]
fn status_healthz_and_metrics_show_which_keyspaces_have_lost_their_quorum() {
    let short = Short::new();
    let said = text(&short.run(&["status"]).stdout);
    let lost = "coded: 3 of 5 members, needs 4: unavailable";
    assert!(said.contains(lost), "{said}");
    assert!(
        !said.contains("registers: 3"),
        "only those that lack it: {said}"
    );
    let status = short.dev.json(&["status"]);
    let keyspaces = status["keyspaces"].as_array().expect("an array");
    let of = |name: &str| {
        let found = keyspaces.iter().find(|k| k["keyspace"] == name);
        found.expect("all keyspaces are there")
    };
    assert_eq!(of("coded")["heard"], 3);
    assert_eq!(of("coded")["members"], 5);
    assert_eq!(of("coded")["needed"], 4);
    assert_eq!(of("registers")["available"], true);
    // The node is well, and says what is not.
    eventually("the node has looked", || {
        let health = short.get("/healthz");
        health.starts_with("HTTP/1.1 200")
            && health.contains("\r\n\r\nok\n")
            && health.contains(lost)
    });
    let metrics = short.get("/metrics");
    for line in [
        "fermata_keyspace_available{keyspace=\"coded\"} 0",
        "fermata_keyspace_spare_members{keyspace=\"coded\"} -1",
        "fermata_keyspace_available{keyspace=\"registers\"} 1",
        "fermata_keyspace_spare_members{keyspace=\"registers\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let node = short.get("/v1/status");
    assert!(
        node.contains(r#""reach":{"heard":3,"members":5,"needed":4}"#),
        "{node}"
    );
}

impl Short {
    /// A page of the first node's REST face, with its head.
    fn get(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let address = self.dev.nodes[0]["rest"].as_str().expect("announced");
        let mut stream = std::net::TcpStream::connect(address).expect("the node listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("it answers");
        page
    }
}
