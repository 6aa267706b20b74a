//! Keys of a ledger keyspace, changed and read at one moment by real processes.

use crate::newcomers::well;
use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};
use rustix::process::Signal;
use std::process::{Output, Stdio};

/// A cluster of three sites with a ledger, whose time is known.
fn ledger() -> Dev {
    let dev = Dev::start(&["--sites", "3"]);
    let create = [
        "keyspace",
        "create",
        "books",
        "--purpose",
        "ledger",
        "--tag-before",
        "/",
    ];
    well(&dev.run(&create));
    dev
}

fn txn(dev: &Dev, args: &[&str]) -> Output {
    let with = [&["--keyspace", "books", "txn"], args].concat();
    dev.run(&with)
}

fn snapshot(dev: &Dev, args: &[&str]) -> Output {
    let with = [&["--keyspace", "books", "snapshot"], args].concat();
    dev.run(&with)
}

#[test]
fn several_keys_change_at_one_moment_or_none_does() {
    let dev = ledger();
    let begin = txn(
        &dev,
        &["--json", "--then", "put s/stock 2", "put s/name a pen"],
    );
    well(&begin);
    let first = json(&begin.stdout)["at"]
        .as_str()
        .expect("a moment")
        .to_owned();
    let sell = [
        "--if",
        "s/stock >= 1",
        "--then",
        "add s/stock -1",
        "put s/last sold",
        "--else",
        "get s/name",
    ];
    for left in ["1\n", "0\n"] {
        let sold = txn(&dev, &sell);
        assert_eq!(
            (status(&sold), text(&sold.stdout)),
            (0, left.to_owned()),
            "{sold:?}"
        );
    }
    let out = txn(&dev, &sell);
    assert_eq!((status(&out), text(&out.stdout)), (1, "a pen\n".to_owned()));
    // Nothing of one that is refused is done.
    let refused = txn(&dev, &["--then", "put s/name gone", "add s/stock -1 min 0"]);
    assert_eq!(status(&refused), 65, "{refused:?}");
    let told = text(&refused.stderr);
    assert!(
        told.contains("leave the bounds") && told.contains("`s/stock` is 0"),
        "{told}"
    );
    // The present, and the past.
    let now = snapshot(&dev, &["s/name", "s/stock", "s/none"]);
    assert_eq!(text(&now.stdout), "s/name\ta pen\ns/stock\t0\n");
    let then = snapshot(&dev, &["--at", &first, "--prefix", "s/"]);
    assert_eq!(
        text(&then.stdout),
        "s/name\ta pen\ns/stock\t2\n",
        "{then:?}"
    );
    let late = snapshot(
        &dev,
        &["--max-staleness", "1m", "--after", &first, "s/last"],
    );
    assert!(text(&late.stderr).contains("at "), "{late:?}");
    well(&late);
}

#[test]
fn wrong_transactions_are_refused_in_a_sentence_and_change_nothing() {
    let dev = ledger();
    let cases: [(&[&str], i32, &str); 9] = [
        (
            &["--then", "put a/1 x", "put b/1 y"],
            65,
            "lie in one segment",
        ),
        (
            &["--then", "put a/1 x", "put a/1 y"],
            65,
            "writes `a/1` twice",
        ),
        (&["--then", "range a 5"], 65, "lies in one tag"),
        (&["--then", "range a/ 0"], 65, "a limit of 1 to 1000"),
        (&["--if", "a/1 exists"], 2, "does something"),
        (&["--then", "put"], 2, "a key is missing"),
        (
            &["--if", "a/1 > much", "--then", "get a/1"],
            2,
            "no number of 64 bits",
        ),
        (
            &["--keyspace", "default", "--then", "put a x"],
            65,
            "ledger keyspaces",
        ),
        (
            &["--keyspace", "none", "--then", "put a x"],
            65,
            "no keyspace `none`",
        ),
    ];
    for (args, exit, why) in cases {
        let refused = txn(&dev, args);
        let told = text(&refused.stderr);
        assert_eq!(status(&refused), exit, "{args:?}: {told}");
        assert!(told.contains(why), "{args:?}: {told}");
    }
    let future = snapshot(&dev, &["--at", "9990000000000000.0", "a/1"]);
    assert_eq!(status(&future), 65);
    assert!(text(&future.stderr).contains("in the future"), "{future:?}");
    for (verb, key) in [("put", "a/1"), ("get", "a/1")] {
        let value: &[&str] = if verb == "put" { &["x"] } else { &[] };
        let args = [&["--keyspace", "books", verb, key][..], value].concat();
        let refused = dev.run(&args);
        assert_eq!(status(&refused), 65, "{refused:?}");
        assert!(text(&refused.stderr).contains("ledger"), "{refused:?}");
    }
    let nothing = snapshot(&dev, &["--prefix", ""]);
    assert_eq!(text(&nothing.stdout), "", "nothing was changed");
}

/// A tree of keys is loaded by a script, and changed at one moment by tag from all sites, while
/// nodes die; each change is there whole or not at all, and what was is there at its moment.
#[test]
fn a_tree_of_keys_is_changed_whole_while_nodes_die() {
    let dev = ledger();
    let (tags, keys) = (20, 25);
    for tag in 0..tags {
        let lines = (0..keys).map(|n| format!("then put t{tag}/k{n:02} 0\n"));
        let script: String = lines.collect();
        let with = ["--keyspace", "books", "txn", "--file", "-"];
        well(&dev.run_with(&with, script.as_bytes()));
    }
    let loaded = dev.json(&["--keyspace", "books", "snapshot", "--prefix", ""]);
    let at = loaded["at"].as_str().expect("a moment").to_owned();
    let count =
        |snapshot: &serde_json::Value| snapshot["found"][0]["keys"].as_array().map(Vec::len);
    assert_eq!(count(&loaded), Some(tags * keys));
    let mut restarted: Vec<ByHand> = Vec::new();
    for round in 1..=3_usize {
        let node = round % 3;
        dev.signal(node, Signal::KILL);
        for tag in 0..tags {
            let lines = (0..keys).map(|n| format!("then add t{tag}/k{n:02} 1\n"));
            let script: String = lines.collect();
            let with = ["--keyspace", "books", "txn", "--file", "-"];
            let changed = dev.run_with(&with, script.as_bytes());
            well(&changed);
        }
        let mut again = fermata();
        again.arg("server").arg("--config").arg(dev.config(node));
        again.stdout(Stdio::null()).stderr(Stdio::null());
        restarted.push(ByHand(again.spawn().expect("fermata runs")));
        eventually("the node is back", || {
            let shown = dev.json(&["status"]);
            let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
            nodes.iter().all(|node| node["health"] == "well")
        });
        let now = dev.json(&["--keyspace", "books", "snapshot", "--prefix", ""]);
        let values = now["found"][0]["keys"].as_array().expect("keys").iter();
        let values: Vec<String> = values.map(|one| one["value"].to_string()).collect();
        assert_eq!(values.len(), tags * keys);
        let right = format!("\"{round}\"");
        assert!(values.iter().all(|value| *value == right), "{values:?}");
    }
    let past = dev.json(&[
        "--keyspace",
        "books",
        "snapshot",
        "--prefix",
        "",
        "--at",
        &at,
    ]);
    assert_eq!(past["found"], loaded["found"], "the past is as it was");
}
