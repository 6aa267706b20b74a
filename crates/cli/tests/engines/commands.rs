//! The command line against nodes on the engines.

use crate::nodes::{Nodes, json, on_cassandra, on_zookeeper, run, says};
use fermata_server::config::LimitsConfig;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::Stdio;

const FERMATA: &str = env!("CARGO_BIN_EXE_fermata");

/// How a command that must fail ended, and what it said.
fn fails(nodes: &Nodes, args: &[&str]) -> (i32, String) {
    let output = run(nodes, args);
    let code = output.status.code().expect("it was not killed");
    assert_ne!(code, 0, "{args:?}");
    (code, String::from_utf8(output.stderr).expect("text"))
}

async fn every_command() {
    let nodes = Nodes::start(2, LimitsConfig::default()).await;
    says(&nodes, &["put", "k", "old"]);
    assert_eq!(says(&nodes, &["get", "k"]), "old");
    says(&nodes, &["put", "e", "it's \"$1\"/é"]);
    assert_eq!(says(&nodes, &["get", "e"]), "it's \"$1\"/é");
    says(&nodes, &["del", "e"]);
    assert_eq!(fails(&nodes, &["get", "e"]).0, 1);
    // A section's command and its children, over several keys.
    let script = format!(
        "{FERMATA} get k; {FERMATA} put k new; {FERMATA} put l \"$FERMATA_LOCK_REF\"; \
         {FERMATA} get e || exit 7"
    );
    let (code, _) = fails(&nodes, &["lock", "k", "l", "--", "sh", "-c", &script]);
    assert_eq!(code, 7, "another key is not the section's");
    assert_eq!(says(&nodes, &["get", "k"]), "new");
    assert!(says(&nodes, &["get", "l"]).parse::<u64>().is_ok());
    let rest = crate::http::Rest(nodes.node(1).rest.clone());
    let (_, keys) = rest
        .json("GET", "/v1/keyspaces/default/keys", Value::Null)
        .await;
    assert!(
        keys.to_string().contains("\"k\"") && keys.to_string().contains("\"l\""),
        "{keys}"
    );
    // Keyspaces.
    let create = ["keyspace", "create", "jobs", "--lease", "5s"];
    says(&nodes, &create);
    let (code, said) = fails(&nodes, &create);
    assert!(code == 65 && said.contains("same terms: use it"), "{said}");
    let (code, said) = fails(&nodes, &["keyspace", "create", "jobs"]);
    assert!(code == 65 && said.contains("(lease)"), "{said}");
    let (code, said) = fails(&nodes, &["keyspace", "create", "Jobs!"]);
    assert!(code == 65 && said.contains("a-z"), "{said}");
    let coded = ["keyspace", "create", "coded", "--purpose", "registers"];
    let coded = [&coded[..], &["--storage", "coded", "--f", "1"]].concat();
    let (code, said) = fails(&nodes, &coded);
    assert!(code == 65 && said.trim().lines().count() == 1, "{said}");
    assert!(says(&nodes, &["keyspace", "list"]).contains("jobs"));
    assert!(says(&nodes, &["keyspace", "describe", "jobs"]).contains("5.0"));
    says(&nodes, &["--keyspace", "jobs", "put", "j", "1"]);
    let (code, said) = fails(&nodes, &["--keyspace", "none", "get", "j"]);
    assert_eq!(code, 65, "{said}");
    assert_eq!(nodes_stop(nodes), [Some(0), Some(0)]);
}

fn nodes_stop(mut nodes: Nodes) -> [Option<i32>; 2] {
    [nodes.stop(0), nodes.stop(1)]
}

async fn a_queue_is_shown_and_a_waiter_enters_with_the_latest_value() {
    let nodes = Nodes::start(2, LimitsConfig::default()).await;
    let holding = |script: &str| {
        let mut command = nodes.client();
        command.args(["lock", "k", "--", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut first = holding(&format!("{FERMATA} put k first; echo in; exec cat"));
    let mut said = [0; 3];
    let out = first.stdout.as_mut().expect("it is piped");
    out.read_exact(&mut said).expect("it is in");
    // What waits for a key in vain says so, and leaves nobody behind.
    for (one, status) in [(&["get", "k"][..], 69), (&["put", "k", "late"], 65)] {
        let (code, said) = fails(&nodes, &[one, &["--timeout", "5s"]].concat());
        assert!(code == status && said.contains("locked"), "{code} {said}");
    }
    let second = holding(&format!("{FERMATA} get k"));
    let queue = loop {
        let queue = json(&nodes, &["locks", "k"]);
        if queue["entries"].as_array().expect("entries").len() == 2 {
            break queue;
        }
    };
    let holds = |at: usize| queue["entries"][at]["holds"].as_bool();
    assert_eq!((holds(0), holds(1)), (Some(true), Some(false)), "{queue}");
    assert!(says(&nodes, &["locks", "k"]).contains("holds"));
    drop(first.stdin.take());
    assert!(first.wait().expect("it ends").success());
    let second = second.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&second.stdout), "first");
    assert!(says(&nodes, &["locks", "k"]).contains("nobody"));
}

async fn a_recorded_run_is_linearizable() {
    let nodes = Nodes::start(2, LimitsConfig::default()).await;
    let folder = tempfile::tempdir().expect("a directory");
    let history = folder.path().join("history.jsonl");
    let history = history.to_str().expect("a path of ASCII");
    let load = ["bench", "load", "--reads", "0.5", "--clients", "3"];
    let rest = ["--keys", "3", "--size", "128", "--seconds", "1"];
    run(&nodes, &[&load[..], &rest, &["--record", history]].concat());
    let report = json(&nodes, &["check", history]);
    assert!(report["operations"].as_u64() > Some(0), "{report}");
}

async fn a_state_says_what_is_true_of_an_engine() {
    let nodes = Nodes::start(2, LimitsConfig::default()).await;
    says(&nodes, &["put", "k", "v"]);
    let said = says(&nodes, &["status"]);
    for word in ["n1", "n2", "s1", "well", "Cassandra", "engines_"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    for word in ["hears", "Storage", "walk", "segment", "clock"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
    let state = json(&nodes, &["status"]);
    assert_eq!(state["nodes"][0]["health"], "well", "{state}");
    let engine = state["nodes"][1]["engine"].as_str();
    assert!(
        engine.is_some_and(|line| line.contains("Cassandra")),
        "{state}"
    );
    // Neither do its logs tell of each connection, nor its figures of what it has not.
    let said = nodes.said(0);
    assert!(
        said.contains("started") && !said.contains("sharding"),
        "{said}"
    );
    let rest = crate::http::Rest(nodes.node(0).rest.clone());
    let (_, _, metrics) = rest.send("GET", "/metrics", &[], b"").await;
    let metrics = String::from_utf8(metrics).expect("text");
    assert!(metrics.contains("fermata_requests_total"), "{metrics}");
    for native in ["wal", "flush", "peer", "clock", "logs", "upkeep", "disk"] {
        assert!(!metrics.contains(native), "{native}: {metrics}");
    }
}

/// The stores take less than the default limit.
async fn the_largest_value_is_what_the_stores_take() {
    let nodes = Nodes::start(1, LimitsConfig::default()).await;
    let state = json(&nodes, &["status"]);
    let engine = state["nodes"][0]["engine"].as_str().expect("a line");
    let (_, most) = engine.split_once("values of at most ").expect("a bound");
    let most = most.split_once(' ').and_then(|(most, _)| most.parse().ok());
    let most: usize = most.expect("a number");
    let writes = |size: usize| {
        let mut command = nodes.client();
        command.args(["put", "k", "-"]).stdin(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut input = child.stdin.take().expect("it is piped");
        input.write_all(&vec![b'v'; size]).expect("it reads");
        drop(input);
        child.wait_with_output().expect("it ends")
    };
    let done = writes(most);
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{error}");
    let refused = writes(most + 1);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(65), "{error}");
    assert!(error.contains(&format!("at most {most} bytes")), "{error}");
    assert_eq!(says(&nodes, &["get", "k"]).len(), most);
}

mod cassandra {
    #[test]
    fn the_largest_value_is_what_the_stores_take() {
        super::on_cassandra(super::the_largest_value_is_what_the_stores_take());
    }

    #[test]
    fn every_command() {
        super::on_cassandra(super::every_command());
    }

    #[test]
    fn a_queue_is_shown_and_a_waiter_enters_with_the_latest_value() {
        super::on_cassandra(super::a_queue_is_shown_and_a_waiter_enters_with_the_latest_value());
    }

    #[test]
    fn a_recorded_run_is_linearizable() {
        super::on_cassandra(super::a_recorded_run_is_linearizable());
    }

    #[test]
    fn a_state_says_what_is_true_of_an_engine() {
        super::on_cassandra(super::a_state_says_what_is_true_of_an_engine());
    }
}

mod zookeeper {
    #[test]
    fn every_command() {
        super::on_zookeeper(super::every_command());
    }

    #[test]
    fn a_queue_is_shown_and_a_waiter_enters_with_the_latest_value() {
        super::on_zookeeper(super::a_queue_is_shown_and_a_waiter_enters_with_the_latest_value());
    }
}
