//! Changes of members that cannot be, or that meet something else: each is refused in a sentence,
//! or done when it is asked for again; nothing stays half done.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::newcomers::{Newcomers, hears, ring, run, run_at, well};
use crate::support::{ByHand, Dev, eventually, json, status, text};

/// The nodes of `dev`, by label.
fn labels(dev: &Dev) -> Vec<String> {
    let list = json(&dev.run(&["node", "list", "--json"]).stdout);
    let nodes = list.as_array().expect("nodes").iter();
    let labels = nodes.map(|node| node["label"].as_str().expect("a label").to_owned());
    labels.collect()
}

/// Of a ring what a command may have changed: who is a member, and who drains.
fn changes(ring: &Value) -> Vec<Value> {
    let groups = ring["groups"].as_array().expect("groups").iter();
    let nodes = ring["nodes"].as_array().expect("nodes").iter();
    let groups = groups.map(|group| serde_json::json!([group["epoch"], group["members"]]));
    let nodes =
        nodes.map(|node| serde_json::json!([node["label"], node["standing"], node["drains"]]));
    groups.chain(nodes).collect()
}

/// The labels of the members of the group that owns keys.
fn members(dev: &Dev) -> Vec<String> {
    members_of(&ring(dev))
}

fn members_of(ring: &Value) -> Vec<String> {
    let label = |name: &Value| {
        let mut nodes = ring["nodes"].as_array().expect("nodes").iter();
        let node = nodes.find(|node| node["node"] == *name).expect("a node");
        node["label"].as_str().expect("a label").to_owned()
    };
    let members = ring["groups"][1]["members"].as_array().expect("members");
    let mut labels: Vec<String> = members.iter().map(label).collect();
    labels.sort();
    labels
}

/// Refused with this status and reason, and no other ring than before.
fn refused(dev: &Dev, command: &[&str], exit: i32, why: &str) {
    let before = changes(&ring(dev));
    let refused = dev.run(command);
    let said = text(&refused.stderr);
    assert_eq!(status(&refused), exit, "{command:?}: {said}");
    assert!(said.contains(why), "{command:?}: {said}");
    assert!(!said.contains("was begun"), "{command:?}: {said}");
    assert!(
        said.matches("nothing was changed").count() <= 1,
        "{command:?}: {said}"
    );
    assert_eq!(changes(&ring(dev)), before, "{command:?}");
}

/// Starts a command, which goes on beside others.
fn begin(dev: &Dev, args: &[&str]) -> Child {
    let mut command = dev.client();
    command
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().expect("fermata runs")
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_asked() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let first = labels(&dev);
    let [a, b] = [&first[0][..], &first[1]];
    let spare = new.join(&dev, 0, "here");
    let refused = |command: &[&str], exit, why| refused(&dev, command, exit, why);
    refused(&["node", "add", "nobody"], 2, "no node \"nobody\"");
    refused(
        &["node", "add", a, "--segment", "64"],
        2,
        "no group has that segment",
    );
    refused(&["node", "replace", a, a], 2, "cannot replace itself");
    refused(&["node", "replace", a, b], 65, "has a seat there already");
    refused(
        &["node", "replace", b, "new-0", "--lost", "--yes"],
        65,
        "is heard",
    );
    well(&dev.run(&["node", "drain", "new-0"]));
    refused(
        &["node", "add", "new-0"],
        65,
        "new-0 drains: undrain it first",
    );
    refused(
        &["node", "replace", a, "new-0"],
        65,
        "new-0 drains: undrain it first",
    );
    refused(&["node", "remove", a], 65, "replace the node instead");
    well(&dev.run(&["node", "undrain", "new-0"]));
    // Of all members somebody has to lead.
    well(&dev.run(&["node", "drain", a]));
    well(&dev.run(&["node", "drain", b]));
    well(&dev.run(&["node", "drain", b]));
    refused(&["node", "drain", &first[2]], 65, "nobody else could lead");
    refused(
        &["node", "replace", &first[2], "new-0"],
        65,
        "nobody else could lead",
    );
    well(&dev.run(&["node", "undrain", a]));
    // A node that has stopped is not counted on.
    drop(spare);
    eventually("the node is missed", || !hears(&dev, "new-0"));
    refused(
        &["node", "replace", &first[2], "new-0"],
        65,
        "start it first",
    );
    well(&dev.run(&["put", "k", "v"]));
}

#[test]
fn who_comes_where_it_does_not_belong_is_refused_at_once() {
    let dev = Dev::start(&[]);
    let mut new = Newcomers::of(&dev);
    let before = changes(&ring(&dev));
    // A label that another node has.
    let mut taken = new.command(0, "here");
    taken
        .args(["--label", &labels(&dev)[0]])
        .stderr(Stdio::piped());
    assert_ne!(status(&taken.output().expect("it runs")), 0);
    // A directory that is none.
    std::fs::create_dir(new.folder.path().join("1")).expect("a folder");
    std::fs::write(new.folder.path().join("1/letters.txt"), "x").expect("a file");
    let (exit, said) = new.refused(1, "here");
    assert_eq!(exit, 3, "{said}");
    assert!(said.contains("no data directory"), "{said}");
    // An address where somebody else listens, and one of this block of ports where nobody does.
    let seeds = new.seed.clone();
    let rest = dev.nodes[0]["rest"].as_str().expect("an address");
    let closed = format!("127.0.0.1:{}", new.ports.base + 75);
    for (address, why) in [(rest, "not as a node does"), (&closed, "refused")] {
        address.clone_into(&mut new.seed);
        let (exit, said) = new.refused(2, "here");
        assert_eq!(exit, 69, "{said}");
        assert!(said.contains(why), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
    }
    assert_eq!(changes(&ring(&dev)), before);
    // The directory of a node of another cluster.
    new.seed = seeds;
    drop(new.start(3, "here"));
    let started = new.join(&dev, 3, "here");
    drop(started);
    let other = Dev::start(&[]);
    let seed = other.nodes[0]["grpc"].as_str().expect("an address");
    seed.clone_into(&mut new.seed);
    let (exit, said) = new.refused(3, "here");
    assert_eq!(exit, 3, "{said}");
    assert!(
        said.contains("is the directory of a node of cluster"),
        "{said}"
    );
    assert_eq!(labels(&other).len(), 3);
}

#[test]
fn of_two_changes_at_once_each_is_done_or_changes_nothing() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let first = labels(&dev);
    let _nodes: Vec<ByHand> = (0..3)
        .map(|number| new.join(&dev, number, "here"))
        .collect();
    well(&dev.run(&["put", "k", "v"]));
    // Both may be.
    let both = [
        begin(&dev, &["node", "replace", &first[0], "new-0"]),
        begin(&dev, &["node", "replace", &first[1], "new-1"]),
    ];
    for change in both {
        well(&change.wait_with_output().expect("it ends"));
    }
    let mut wanted = vec![first[2].clone(), "new-0".into(), "new-1".into()];
    wanted.sort();
    assert_eq!(members(&dev), wanted);
    // Of four members one may go; the other two are asked.
    let asked = || new.client(&[1, 2]);
    well(&run(asked(), &["node", "add", "new-2"]));
    let both = [&first[2][..], "new-0"].map(|label| {
        let mut remove = asked();
        remove
            .args(["node", "remove", label])
            .stderr(Stdio::piped());
        remove.spawn().expect("fermata runs")
    });
    let ended = both.map(|change| change.wait_with_output().expect("it ends"));
    let mut exits = ended.each_ref().map(status);
    exits.sort_unstable();
    let said = ended.map(|ended| text(&ended.stderr));
    assert_eq!(exits, [0, 65], "{said:?}");
    let ring = json(&run(asked(), &["ring", "--json"]).stdout);
    assert_eq!(members_of(&ring).len(), 3);
    let mut nodes = ring["nodes"].as_array().expect("nodes").iter();
    assert!(nodes.all(|node| node["drains"] == false), "{ring:#}");
    well(&run(asked(), &["get", "k"]));
}

#[test]
fn a_change_without_a_quorum_is_unknown_and_done_when_it_is_asked_for_again() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let _spare = new.join(&dev, 0, "here");
    well(&dev.run(&["put", "k", "v"]));
    for node in [1, 2] {
        dev.signal(node, Signal::STOP);
    }
    let mut add = run_at(&dev, 0);
    add.args(["--timeout", "3s"]);
    let ended = run(add, &["node", "add", "new-0", "--patience", "3s"]);
    let said = text(&ended.stderr);
    assert_eq!(status(&ended), 76, "{said}");
    assert!(
        said.contains("what was begun goes on") || said.contains("taken effect"),
        "{said}"
    );
    for node in [1, 2] {
        dev.signal(node, Signal::CONT);
    }
    eventually("it is done", || {
        status(&dev.run(&["node", "add", "new-0"])) == 0
    });
    assert_eq!(members(&dev).len(), 4);
    let value = dev.run(&["get", "k"]);
    assert_eq!(text(&value.stdout).trim(), "v");
}

#[test]
fn a_member_that_is_lost_while_another_is_replaced_is_replaced_too() {
    let dev = Dev::start(&[]);
    let new = Newcomers::of(&dev);
    let first = labels(&dev);
    let _nodes: Vec<ByHand> = (0..2)
        .map(|number| new.join(&dev, number, "here"))
        .collect();
    for key in 0..200 {
        well(&dev.run(&["put", &format!("k{key}"), "v"]));
    }
    let mut change = begin(
        &dev,
        &["node", "replace", &first[0], "new-0", "--patience", "5s"],
    );
    eventually("it has begun", || {
        members(&dev).contains(&"new-0".to_owned()) || matches!(change.try_wait(), Ok(Some(_)))
    });
    dev.signal(1, Signal::KILL);
    // What it says depends on how far it was: whatever it is, the same command does the rest.
    let _exit = change.wait_with_output().expect("it ends");
    let lost = ["node", "replace", &first[1], "new-1", "--lost", "--yes"];
    eventually("the lost one is replaced", || {
        status(&run(run_at(&dev, 2), &lost)) == 0
    });
    let left = |dev: &Dev| labels_at(dev, 2);
    if left(&dev).contains(&first[0]) {
        let again = ["node", "replace", &first[0], "new-0"];
        well(&run(run_at(&dev, 2), &again));
    }
    let mut wanted = vec![first[2].clone(), "new-0".into(), "new-1".into()];
    wanted.sort();
    let mut now = left(&dev);
    now.sort();
    assert_eq!(now, wanted);
    for key in 0..200 {
        let value = run(run_at(&dev, 2), &["get", &format!("k{key}")]);
        assert_eq!(text(&value.stdout).trim(), "v");
    }
}

/// The nodes as one of them knows it.
fn labels_at(dev: &Dev, node: usize) -> Vec<String> {
    let list = json(&run(run_at(dev, node), &["node", "list", "--json"]).stdout);
    let nodes = list.as_array().expect("nodes").iter();
    let labels = nodes.map(|node| node["label"].as_str().expect("a label").to_owned());
    labels.collect()
}
