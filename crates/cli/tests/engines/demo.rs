//! `fermata dev` and the demonstrations on the engines: one process per site, faults and all.

use crate::nodes::{fermata, fresh, on_cassandra, on_zookeeper, stores};
use crate::ports::Ports;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use tokio::sync::Mutex;

/// What says where the stores are.
fn options(engine: &str) -> Vec<String> {
    let stores = stores().expect("they were asked for before");
    let mut options = vec!["--engine".to_owned(), engine.to_owned()];
    options.push("--contact-points".into());
    options.push(stores.cassandra.endpoints()[0].to_string());
    options.extend(["--data-center".into(), "dc1".into()]);
    options.extend(["--replication".into(), "dc1=1".into()]);
    options.push("--allow-few-replicas".into());
    // Values of one engine are refused to another.
    let keyspace = if engine == "cassandra" {
        "shown"
    } else {
        "shown_beside"
    };
    options.extend(["--engine-keyspace".into(), fresh(keyspace)]);
    if engine.starts_with("zookeeper") {
        options.push("--zookeeper".into());
        options.push(stores.zookeeper.endpoints()[0].to_string());
    }
    options
}

/// Held by an example: it has bounds of time, and a small machine.
static TURN: Mutex<()> = Mutex::const_new(());

async fn holds(example: &str, engine: &str) {
    let _turn = TURN.lock().await;
    let ports = Ports::free();
    let output = fermata()
        .args(["demo", example, "--json", "--base-port"])
        .arg(ports.base.to_string())
        .args(options(engine))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{errors}");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["held"], true);
    let faults = report["faults"].as_array();
    assert!(faults.is_some_and(|faults| faults.len() > 4), "{said}");
}

/// A cluster of processes that a person starts, uses and stops.
async fn is_developed_on(engine: &str) {
    let ports = Ports::free();
    let mut dev = fermata()
        .args(["dev", "--json", "--base-port"])
        .arg(ports.base.to_string())
        .args(options(engine))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let announced = dev.stdout.take().expect("it is piped");
    let mut announced = serde_json::Deserializer::from_reader(announced).into_iter();
    let announced: Value = announced.next().expect("a word").expect("JSON");
    let nodes = announced["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    let says = |args: &[&str]| {
        let command = fermata().args(args).output().expect("it runs");
        let error = String::from_utf8_lossy(&command.stderr);
        assert!(command.status.success(), "{args:?}: {error}");
        String::from_utf8(command.stdout).expect("text")
    };
    let at = |node: usize| nodes[node]["grpc"].as_str().expect("an address");
    says(&["put", "k", "v", "--endpoint", at(0)]);
    assert_eq!(says(&["get", "k", "--endpoint", at(2)]), "v");
    let pid = Pid::from_raw(dev.id() as i32).expect("a child");
    kill_process(pid, Signal::INT).expect("it runs");
    assert!(dev.wait().expect("a child").success());
}

#[test]
fn homing_holds_on_cassandra() {
    on_cassandra(holds("homing", "cassandra"));
}

#[test]
fn homing_holds_on_zookeeper() {
    on_zookeeper(holds("homing", "zookeeper+cassandra"));
}

#[test]
fn portal_holds_on_cassandra() {
    on_cassandra(holds("portal", "cassandra"));
}

#[test]
fn portal_holds_on_zookeeper() {
    on_zookeeper(holds("portal", "zookeeper+cassandra"));
}

#[test]
fn is_developed_on_both() {
    on_cassandra(is_developed_on("cassandra"));
    on_zookeeper(is_developed_on("zookeeper+cassandra"));
}
