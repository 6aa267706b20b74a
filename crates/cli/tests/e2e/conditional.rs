//! `fermata put` and `del` under a condition: compare-and-set from a shell.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;

use fermata_client::{Change, Client, Condition, Options};
use rustix::process::Signal;

use crate::music::call;
use crate::support::{ByHand, Dev, eventually, fermata, json, status, text};

fn said(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn a_change_is_done_under_its_condition_alone() {
    let dev = Dev::start(&["--sites", "1"]);
    let version = |key: &str| {
        let output = dev.run(&["get", key, "--only-version"]);
        text(&output.stdout).trim_end().to_owned()
    };
    let run = |args: &[&str], exit: i32, value: &str| {
        let output = dev.run(args);
        assert_eq!(status(&output), exit, "{args:?}: {}", said(&output));
        assert_eq!(text(&dev.run(&["get", "k"]).stdout), value, "{args:?}");
        said(&output)
    };
    let none = run(&["put", "k", "1", "--if-present"], 1, "");
    assert!(
        none.contains("nothing was changed: the key has no value"),
        "{none}"
    );
    run(&["put", "k", "1", "--if-absent"], 0, "1");
    let one = version("k");
    let other = run(&["put", "k", "2", "--if-absent"], 1, "1");
    assert!(other.contains(&one), "{other}");
    run(&["put", "k", "2", "--if-value", "-1"], 1, "1");
    run(&["put", "k", "-2", "--if-version", &one], 0, "-2");
    run(&["put", "k", "3", "--if-version", &one], 1, "-2");
    run(&["put", "k", "3", "--wait", "--if-value", "-2"], 0, "3");
    run(&["del", "k", "--if-value", "-2"], 1, "3");
    let told = dev.run(&["put", "k", "4", "--if-absent", "--json"]);
    let (exit, told) = (status(&told), json(&told.stdout));
    let expected = serde_json::json!({
        "keyspace": "default", "key": "k", "done": false, "value": "3", "version": version("k")
    });
    assert_eq!((exit, told), (1, expected));
    let get = dev.json(&["get", "k"]);
    assert_eq!(get["version"], version("k").as_str(), "{get}");
    run(&["del", "k", "--if-version", &version("k")], 0, "");
    assert_eq!(status(&dev.run(&["get", "k", "--only-version"])), 1);
    assert_eq!(dev.lock_refs("k"), [0; 0], "nobody is left in the queue");
}

#[test]
fn where_a_key_cannot_be_compared_it_is_not_changed() {
    let dev = Dev::start(&["--sites", "1"]);
    let put = ["put", "k", "v", "--if-absent"];
    let register = dev.run(&[&put[..], &["--keyspace", "registers"]].concat());
    assert_eq!(status(&register), 65);
    assert!(
        said(&register).contains("no section in which"),
        "{}",
        said(&register)
    );
    // Somebody holds it: from outside, and from within, where it would wait for ever.
    let script = format!(
        "{0} put k v --if-absent; echo $?; {0} put other w --if-absent; echo $?; \
         env -u FERMATA_SECTION {0} put k v --if-absent; echo $?; \
         env -u FERMATA_SECTION {0} put k v --if-absent --wait --timeout 1s; echo $?",
        env!("CARGO_BIN_EXE_fermata")
    );
    let held = dev.run(&["lock", "k", "--", "sh", "-c", &script]);
    assert_eq!(text(&held.stdout), "65\n0\n65\n65\n", "{}", said(&held));
    for sentence in ["nobody else changes it", "--wait", "longer with --timeout"] {
        assert!(said(&held).contains(sentence), "{}", said(&held));
    }
    assert_eq!(status(&dev.run(&["get", "k"])), 1, "nothing was put");
}

/// Adds one to the counter so many times; how many of those are done, and how many perhaps.
fn count(dev: &Dev, site: &str, most: usize) -> (usize, usize) {
    let (mut done, mut unknown) = (0, 0);
    while done < most {
        let got = dev.run(&["get", "counter", "--json", "--site", site]);
        let Ok(got) = serde_json::from_slice::<serde_json::Value>(&got.stdout) else {
            continue;
        };
        let now = got["value"]
            .as_str()
            .map_or(0, |now| now.parse::<u64>().expect("a number"));
        let next = (now + 1).to_string();
        let mut put = vec!["put", "counter", &next, "--site", site];
        match got["version"].as_str() {
            Some(version) => put.extend(["--if-version", version]),
            None => put.push("--if-absent"),
        }
        let put = dev.run(&put);
        match status(&put) {
            0 => done += 1,
            76 => unknown += 1,
            // Somebody else was sooner, or certainly nothing was changed.
            1 | 65 | 69 => {}
            other => panic!("status {other}: {}", said(&put)),
        }
    }
    (done, unknown)
}

#[test]
fn no_increment_is_lost_or_done_twice_although_a_node_is_killed() {
    let dev = Dev::start(&[]);
    let counted = std::thread::scope(|scope| {
        let sites = ["site1", "site2", "site3", "site2"];
        let dev = &dev;
        let counters = sites.map(|site| scope.spawn(move || count(dev, site, 4)));
        eventually("the first increment", || {
            !dev.run(&["get", "counter"]).stdout.is_empty()
        });
        dev.signal(1, Signal::KILL);
        let mut server = fermata();
        server.arg("server").arg("--config").arg(dev.config(1));
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let _node = ByHand(server.spawn().expect("it starts"));
        counters.map(|counter| counter.join().expect("it counts"))
    });
    let done: usize = counted.iter().map(|(done, _)| done).sum();
    let unknown: usize = counted.iter().map(|(_, unknown)| unknown).sum();
    let value = text(&dev.run(&["get", "counter"]).stdout);
    let value: usize = value.parse().expect("a number");
    assert_eq!(done, 16);
    assert!(
        (done..=done + unknown).contains(&value),
        "{value}, {unknown} unknown"
    );
}

/// What clients have asked of the only node so far. Left out is what nobody waits for: renewals,
/// and what the node asks itself.
fn asked(dev: &Dev) -> BTreeMap<String, u64> {
    let rest = dev.nodes[0]["rest"].as_str().expect("announced");
    let (_, metrics) = call(rest, "GET /metrics", "", "").expect("it answers");
    let lines = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("fermata_requests_total{operation=\"")?;
        let (operation, rest) = rest.split_once('"')?;
        let count: u64 = rest.rsplit(' ').next()?.parse().ok()?;
        let own = matches!(operation, "status" | "list_keyspaces" | "renew");
        (!own).then(|| (operation.to_owned(), count))
    });
    let mut asked = BTreeMap::new();
    for (operation, count) in lines {
        *asked.entry(operation).or_default() += count;
    }
    asked
}

/// From beside a key's primary each of both is one round trip to a quorum, as the laboratory counts
/// them in virtual time.
#[test]
fn a_change_under_a_condition_is_an_enter_and_a_put_that_leaves() {
    let dev = Dev::start(&["--sites", "1"]);
    let uri = format!(
        "http://{}",
        dev.nodes[0]["grpc"].as_str().expect("announced")
    );
    let by_command = |value: &str, condition: &[&str]| {
        let put = dev.run(&[&["put", "k", value], condition].concat());
        assert_eq!(status(&put), 0, "{}", said(&put));
    };
    let by_library = |value: Option<&'static str>, condition: Condition| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let client = Client::connect(Options::new([uri.clone()])).await?;
            let (value, wait) = (value.map(Into::into), Duration::from_secs(20));
            let change = client
                .write_if("default", "k", value, &condition, wait)
                .await?;
            assert!(matches!(change, Change::Done(_)), "{change:?}");
            Ok::<_, fermata_client::Error>(())
        })
    };
    let mut changes: Vec<Box<dyn Fn()>> = vec![
        Box::new(|| by_command("1", &["--if-absent"])),
        Box::new(|| by_command("2", &["--if-value", "1"])),
        Box::new(|| by_library(Some("3"), Condition::Present).expect("it is done")),
        Box::new(|| by_library(None, Condition::Value("3".into())).expect("it is done")),
    ];
    let mut before = asked(&dev);
    assert_eq!(before, BTreeMap::new());
    for change in changes.drain(..) {
        change();
        let after = asked(&dev);
        for operation in ["enter", "put_and_leave"] {
            *before.entry(operation.to_owned()).or_default() += 1;
        }
        assert_eq!(after, before);
    }
}
