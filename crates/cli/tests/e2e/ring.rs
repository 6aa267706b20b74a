//! Nodes join, get seats, are drained, removed and replaced, beside commands that go on: until none
//! of the first nodes is left, and no acknowledged increment is lost.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::newcomers::{Newcomers, ring, run, run_at, well};
use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};

/// Increments by a command inside a section; prints nothing.
const COUNT: &str = "v=$(\"$0\" get counter || echo 0); \"$0\" put counter $((v + 1))";

/// Holds until a file is there, and puts something then; prints nothing.
const HOLD: &str = "until [ -e \"$1\" ]; do sleep 0.1; done; \"$0\" put held to-the-end";

/// Adds 1 to the counter, again and again, as a script would.
fn counters(client: impl Fn() -> Command, some: usize) -> Vec<Child> {
    let binary = fermata().get_program().to_owned();
    let one = |_| {
        let mut lock = client();
        lock.args([
            "--timeout",
            "60s",
            "lock",
            "--wait",
            "60s",
            "counter",
            "--",
            "sh",
            "-c",
        ])
        .arg(COUNT)
        .arg(&binary)
        .stdout(Stdio::null());
        lock.spawn().expect("fermata runs")
    };
    (0..some).map(one).collect()
}

/// All of them did it.
fn counted(counters: Vec<Child>) -> u64 {
    let done = counters.len() as u64;
    for mut counter in counters {
        let ended = counter.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
    }
    done
}

/// Replaces a node whose disk is lost: what goes with it is told before that is agreed to, and what
/// became of it after.
fn give_up(client: impl Fn() -> Command, old: &str, new: &str) {
    let lost = ["node", "replace", old, new, "--lost", "--yes"];
    let mut before = String::new();
    eventually("the node is silent", || {
        let asked = run(client(), &lost[..5]);
        before = text(&asked.stderr);
        status(&asked) == 2
    });
    for part in [
        "in the group of segments 0 to 15, 16 segments",
        "eventual puts in the keyspace default that",
        "for the last time",
        "--yes is missing",
        "nothing was changed",
    ] {
        assert!(before.contains(part), "{part}: {before}");
    }
    let mut after = String::new();
    eventually("the node is given up", || {
        let ended = run(client(), &lost);
        after = text(&ended.stderr);
        status(&ended) == 0
    });
    // It may be given again.
    well(&run(client(), &lost));
    for part in [
        "16 segments went on without the store of",
        "has got everything that others had, and no earlier store is open",
        "alone had are gone",
    ] {
        assert!(after.contains(part), "{part}: {after}");
    }
}

#[test]
fn every_node_is_replaced_while_a_counter_goes_on() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let sites: Vec<String> = ring(&dev)["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| node["site"].as_str().expect("a site").to_owned())
        .collect();
    // Somebody who is in a section from before the first change until after the last.
    let over = new.folder.path().join("over");
    let mut holder = dev.client();
    holder.args(["lock", "held", "--", "sh", "-c", HOLD]);
    holder.arg(fermata().get_program()).arg(&over);
    let mut holder = holder.spawn().expect("fermata runs");
    eventually("it holds", || {
        status(&dev.run(&["lock", "--wait", "0s", "held", "--", "true"])) != 0
    });
    let mut total = counted(counters(|| dev.client(), 3));
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(new.join(&dev, number, &sites[usize::from(number)]));
    }
    let list = text(&dev.run(&["node", "list"]).stdout);
    assert!(list.contains("new-2") && list.contains("spare"), "{list}");
    let labels = json(&dev.run(&["node", "list", "--json"]).stdout);
    let first: Vec<String> = (0..3)
        .map(|at| labels[at]["label"].as_str().expect("a label").to_owned())
        .collect();
    let beside = counters(|| dev.client(), 6);
    well(&dev.run(&["node", "add", "new-0"]));
    well(&dev.run(&["node", "remove", &first[0]]));
    well(&run(run_at(&dev, 1), &["node", "remove", &first[0]]));
    total += counted(beside);
    // Whoever is out says so, and ends, if it has not by itself.
    dev.end_node(0);
    let beside = counters(|| run_at(&dev, 1), 6);
    well(&run(
        run_at(&dev, 1),
        &["node", "replace", &first[1], "new-1"],
    ));
    total += counted(beside);
    // A disk is lost.
    dev.signal(2, Signal::KILL);
    let beside = counters(|| new.client(&[0, 1, 2]), 6);
    give_up(|| new.client(&[0]), &first[2], "new-2");
    total += counted(beside);
    // None of the first nodes is in the cluster any more.
    let left = json(&run(new.client(&[0]), &["node", "list", "--json"]).stdout);
    let left: Vec<&str> = left
        .as_array()
        .expect("nodes")
        .iter()
        .filter_map(|n| n["label"].as_str())
        .collect();
    assert_eq!(left, ["new-0", "new-1", "new-2"]);
    dev.kill();
    std::fs::write(&over, "").expect("it is written");
    let ended = holder.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    let held = run(new.client(&[1]), &["get", "held"]);
    assert_eq!(text(&held.stdout).trim(), "to-the-end");
    total += counted(counters(|| new.client(&[0, 1, 2]), 3));
    let value = run(new.client(&[2]), &["get", "counter"]);
    assert_eq!(text(&value.stdout).trim(), total.to_string());
    drop(nodes);
}

#[test]
fn how_much_has_moved_is_told_until_nobody_owes_anything() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let load = "bench load --reads 0 --clients 8 --size 1000 --keys 200 --seconds 2";
    eventually("every key is written", || {
        well(&dev.run(&load.split(' ').collect::<Vec<_>>()));
        let keys = dev.run(&["keys", "--keyspace", "registers"]);
        text(&keys.stdout).lines().count() == 200
    });
    assert!(ring(&dev)["moving"].is_null());
    let node = new.join(&dev, 0, "here");
    // Keys move without this one; what it alone may have is waited for.
    dev.signal(2, Signal::STOP);
    let mut add = dev.client();
    add.args(["node", "add", "new-0"]).stderr(Stdio::piped());
    let add = add.spawn().expect("fermata runs");
    eventually("all keys have moved", || {
        let ring = ring(&dev);
        let groups = ring["groups"].as_array().expect("groups").iter();
        let mut sources = groups
            .filter_map(|group| group["sources"].as_array())
            .flatten();
        let owed = |of: &serde_json::Value| of["open"] == 0 && of["owed"][0]["segments"] == 16;
        sources.any(owed) && ring["moving"]["keys"].as_u64() >= Some(200)
    });
    let moving = &ring(&dev)["moving"];
    assert_eq!(moving["keys"], 200, "{moving}");
    assert_eq!(moving["bytes"], 200_000, "{moving}");
    assert_eq!(moving["keys_left"], 0, "{moving}");
    assert!(moving["took_us"].as_u64() > Some(0), "{moving}");
    let shown = text(&dev.run(&["ring"]).stdout);
    assert!(
        shown.contains("owed by") && shown.contains("(16)"),
        "{shown}"
    );
    assert!(shown.contains("200 keys, 195 KiB moved in"), "{shown}");
    dev.signal(2, Signal::CONT);
    let added = add.wait_with_output().expect("it ends");
    well(&added);
    let told = text(&added.stderr);
    assert!(told.contains("segments to move"), "{told}");
    eventually("nobody owes anything", || ring(&dev)["moving"].is_null());
    drop(node);
}

#[test]
fn who_drains_leads_nothing_until_it_is_to_lead_again() {
    let dev = Dev::start(&[]);
    let order = json(&dev.run(&["node", "restart-order", "--json"]).stdout);
    assert_eq!(order.as_array().map(Vec::len), Some(3));
    let label = order[2].as_str().expect("a label").to_owned();
    // Whoever has no seat does not know who leads: it is asked twice.
    let new = Newcomers::of(&dev);
    let _spare = new.join(&dev, 0, "here");
    for _ in 0..2 {
        well(&run(new.client(&[0]), &["node", "drain", &label]));
    }
    let shown = json(&run(new.client(&[0]), &["ring", "--json"]).stdout);
    let mut groups = shown["groups"].as_array().expect("groups").iter();
    let known = |group: &serde_json::Value| !group["leader"].is_null();
    assert!(!groups.any(known), "{shown:#}");
    well(&dev.run(&["put", "k", "v"]));
    let drains = |dev: &Dev| {
        let ring = ring(dev);
        let mut nodes = ring["nodes"].as_array().expect("nodes").iter();
        nodes.any(|node| node["label"] == *label && node["drains"] == true)
    };
    assert!(drains(&dev));
    let order = json(&dev.run(&["node", "restart-order", "--json"]).stdout);
    assert_eq!(order[0], *label, "who leads nothing goes first");
    well(&dev.run(&["node", "undrain", &label]));
    eventually("it may lead again", || !drains(&dev));
}

#[test]
fn what_groups_do_unasked_is_shown_and_changed() {
    let dev = Dev::start(&[]);
    let policy = |rest: &[&str]| dev.run(&[&["ring", "policy"], rest].concat());
    let shown = text(&policy(&["show"]).stdout);
    assert!(shown.contains("never"), "{shown}");
    let refused = policy(&["set", "--dead-after", "9s"]);
    assert_eq!(status(&refused), 65);
    let said = text(&refused.stderr);
    assert!(said.contains("10 s to 2592000 s"), "{said}");
    well(&policy(&["set", "--dead-after", "5m"]));
    assert_eq!(dev.json(&["settings"])["dead_after_ms"], 300_000);
    assert_eq!(status(&policy(&["set"])), 2, "nothing is named");
    // Options may stand on either side of a verb, but for those that ask for something else.
    well(&dev.run(&["ring", "--timeout", "20s", "policy", "show", "--json"]));
    well(&dev.run(&["settings", "--timeout", "20s", "set", "dead_after", "5m"]));
    for wrong in [
        &["ring", "--watch", "policy", "show"][..],
        &["settings", "--lease", "2s", "set", "dead_after", "5m"],
    ] {
        assert_eq!(status(&dev.run(wrong)), 2, "{wrong:?}");
    }
    well(&policy(&["set", "--join", "load", "--leader", "latency"]));
    let settings = dev.json(&["settings"]);
    assert_eq!(settings["dead_after_ms"], 300_000, "it was not named");
    assert_eq!(settings["join"], "load");
    assert_eq!(settings["nearest_leads"], true);
    well(&policy(&["off"]));
    let settings = dev.json(&["settings"]);
    assert_eq!(settings["dead_after_ms"], 0);
    assert_eq!(settings["join"], serde_json::Value::Null);
    assert_eq!(settings["nearest_leads"], false);
}

#[test]
fn a_directory_keeps_its_name_and_one_that_is_out_is_refused() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    drop(new.start(0, "elsewhere"));
    let started = new.join(&dev, 0, "elsewhere");
    assert_eq!(ring(&dev)["nodes"].as_array().map(Vec::len), Some(4));
    // Its files are all that it needs.
    drop(started);
    let at = |port: u16| format!("127.0.0.1:{}", new.ports.base + 70 + port);
    let directory = new.folder.path().join("0");
    let again = elsewhere(&directory, [at(0), at(1), at(2)]);
    eventually("the node is reached elsewhere", || {
        let ring = ring(&dev);
        let mut nodes = ring["nodes"].as_array().expect("nodes").iter();
        nodes.any(|n| n["label"] == "new-0" && n["peer"] == at(2) && n["heard"] == true)
    });
    well(&dev.run(&["node", "remove", "new-0"]));
    let mut ended = again;
    eventually(
        "who is out ends",
        || matches!(ended.0.try_wait(), Ok(Some(status)) if status.code() == Some(5)),
    );
    let (exit, said) = new.refused(0, "elsewhere");
    // It may have heard that itself, durably, or hears it from the others.
    let known = exit == 3 && said.contains("was in the cluster and has left it");
    let told = exit == 5 && said.contains("has taken this node out");
    assert!(known || told, "{exit}: {said}");
}

/// The node of a directory, started with nothing but addresses.
fn elsewhere(directory: &Path, [grpc, rest, peer]: [String; 3]) -> ByHand {
    let mut server = fermata();
    server
        .arg("server")
        .arg("--data-dir")
        .arg(directory)
        .args([
            "--listen-grpc",
            &grpc,
            "--listen-rest",
            &rest,
            "--listen-peer",
            &peer,
        ])
        .stderr(Stdio::null());
    ByHand(server.spawn().expect("a node starts"))
}
