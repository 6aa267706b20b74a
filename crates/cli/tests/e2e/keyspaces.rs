//! Keyspaces by name: wrong ones, new ones, what they cost, and what their replicas keep.

use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Dev, eventually, fermata, json, status, text};

#[test]
fn a_wrong_name_is_refused_and_a_new_one_is_known_everywhere_at_once() {
    let dev = Dev::start(&[]);
    for (name, code) in [("nosuch", "no_such_keyspace"), ("No Such", "bad_request")] {
        let refused = dev.run(&["--json", "--keyspace", name, "get", "k"]);
        assert_eq!(status(&refused), 65, "{name}");
        assert_eq!(json(&refused.stderr)["error"]["code"], code);
    }
    for number in 0..8 {
        let name = format!("new-{number}");
        let node = |index: usize| dev.nodes[index % 3]["grpc"].as_str().expect("announced");
        let create = ["keyspace", "create", &name, "--purpose", "registers"];
        let created = dev.run(&[&create[..], &["--endpoint", node(number)]].concat());
        assert_eq!(status(&created), 0, "{}", text(&created.stderr));
        // A site of its own, so that the other node is the one that is asked.
        let write = ["--keyspace", &name, "put", "k", "v"];
        for other in [1, 2] {
            let wrote = dev.run(&[&write[..], &["--endpoint", node(number + other)]].concat());
            assert_eq!(status(&wrote), 0, "{}", text(&wrote.stderr));
        }
    }
    // The keeper of the catalogue is not to be had: nobody knows whether there is one.
    dev.signal(0, Signal::KILL);
    dev.signal(1, Signal::KILL);
    eventually("nobody leads any more", || {
        let unknown = dev.run(&["--timeout", "4s", "--keyspace", "nosuch", "get", "k"]);
        let said = text(&unknown.stderr);
        status(&unknown) == 69 && said.contains("keeper of the catalogue")
    });
}

#[test]
fn a_keyspace_that_exists_says_whether_its_terms_are_the_wanted_ones() {
    let dev = Dev::start(&[]);
    let create = ["keyspace", "create", "jobs", "--lease", "5s"];
    assert_eq!(status(&dev.run(&create)), 0);
    let again = dev.run(&create);
    assert_eq!(status(&again), 65);
    let said = text(&again.stderr);
    assert!(said.contains("with the same terms"), "{said}");
    let other = dev.run(&["keyspace", "create", "jobs", "--purpose", "registers"]);
    assert_eq!(status(&other), 65);
    let said = text(&other.stderr);
    assert!(said.contains("(purpose, lease)"), "{said}");
}

#[test]
fn a_deleted_keyspace_is_gone_with_its_sections_and_its_name_begins_empty() {
    let dev = Dev::start(&[]);
    let node = |index: usize| dev.nodes[index]["grpc"].as_str().expect("announced");
    let at = |index, args: &[&str]| dev.run(&[args, &["--endpoint", node(index)]].concat());
    let create = ["keyspace", "create", "jobs", "--lease", "5s"];
    assert_eq!(status(&at(0, &create)), 0);
    let change = ["keyspace", "change", "jobs", "--lease", "1s"];
    assert_eq!(status(&at(1, &change)), 0);
    let described = at(1, &["--json", "keyspace", "describe", "jobs"]);
    assert_eq!(json(&described.stdout)["lease_us"], 1_000_000);
    let get = ["--keyspace", "jobs", "get", "k"];
    assert_eq!(status(&at(1, &["--keyspace", "jobs", "put", "k", "v"])), 0);
    let mut lock = dev
        .client()
        .args(["--keyspace", "jobs", "lock", "k", "--"])
        .args(["sh", "-c", "echo in; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let held_open = lock.stdin.take();
    let mut said = [0; 3];
    let out = lock.stdout.as_mut().expect("stdout is piped");
    out.read_exact(&mut said).expect("it is in");
    let delete = ["keyspace", "delete", "jobs"];
    assert_eq!(status(&at(2, &delete)), 2, "nobody can be asked");
    let deleted = at(2, &["keyspace", "delete", "jobs", "--yes"]);
    assert_eq!(status(&deleted), 0, "{}", text(&deleted.stderr));
    let ended = lock.wait_with_output().expect("it ends");
    drop(held_open);
    assert_eq!(status(&ended), 75, "{}", text(&ended.stderr));
    let said = text(&ended.stderr);
    assert!(said.contains("its keyspace was deleted"), "{said}");
    for index in 0..3 {
        eventually("a node has heard", || status(&at(index, &get)) == 65);
    }
    let again = at(0, &["keyspace", "delete", "jobs", "--yes"]);
    assert_eq!(status(&again), 65, "{}", text(&again.stderr));
    assert_eq!(status(&at(1, &create)), 0);
    for index in [1, 2, 0] {
        eventually("a node knows the new one, which is empty", || {
            let found = status(&at(index, &get));
            assert_ne!(found, 0);
            found == 1
        });
    }
    let built_in = at(0, &["keyspace", "delete", "default", "--yes"]);
    assert_eq!(status(&built_in), 65);
    let said = text(&built_in.stderr);
    assert!(said.contains("every cluster has"), "{said}");
}

#[test]
fn prices_are_whole_sentences_and_hint_where_nothing_is_coded() {
    let dev = Dev::start(&["--sites", "5"]);
    let create = |name: &str, options: &[&str]| {
        let create = [
            "keyspace",
            "create",
            name,
            "--purpose",
            "registers",
            "--storage",
        ];
        let created = dev.run(&[&create[..], options].concat());
        assert_eq!(status(&created), 0, "{}", text(&created.stderr));
        text(&created.stdout)
    };
    let coded = create("coded", &["coded", "--f", "1", "--whole-below", "100"]);
    assert!(
        coded.contains("beside a read of it: any number\n"),
        "{coded}"
    );
    assert!(
        coded.contains("shorter than 100 bytes are kept whole"),
        "{coded}"
    );
    assert!(
        coded.contains("above 3 writes of one key at once"),
        "{coded}"
    );
    assert!(!coded.contains("hint"), "{coded}");
    let oreas = create("oreas", &["oreas", "--f", "1"]);
    assert!(
        oreas.contains("hint: with delta = 3") && oreas.contains("--delta 0"),
        "{oreas}"
    );
    let most = create("most", &["coded", "--f", "2"]);
    assert!(most.contains("--f 1 makes it 1/3"), "{most}");
    let priced = dev.json(&[
        "keyspace",
        "create",
        "told",
        "--storage",
        "coded",
        "--f",
        "1",
        "--whole-below",
        "7",
    ]);
    assert_eq!(priced["prices"][0]["whole_below"], 7);
    assert_eq!(priced["prices"][0]["read_round_trips"], 1);
}

/// A third of a large value, all of a small one; a register has no queue, and that is no error.
#[test]
fn replicas_show_what_they_keep_of_a_value() {
    let dev = Dev::start(&["--sites", "5"]);
    let create = ["keyspace", "create", "coded", "--purpose", "registers"];
    let terms = ["--storage", "coded", "--f", "1", "--whole-below", "100"];
    let created = dev.run(&[&create[..], &terms].concat());
    assert_eq!(status(&created), 0, "{}", text(&created.stderr));
    let value = "x".repeat(3_000);
    for (key, value) in [("large", value.as_str()), ("small", "x")] {
        let wrote = dev.run(&["--keyspace", "coded", "put", key, value]);
        assert_eq!(status(&wrote), 0, "{}", text(&wrote.stderr));
    }
    let locks = |key: &str| {
        let shown = dev.run(&["--keyspace", "coded", "locks", "--replicas", key]);
        assert_eq!(status(&shown), 0, "{}", text(&shown.stderr));
        text(&shown.stdout)
    };
    let large = locks("large");
    assert!(
        large.contains("3000") && large.contains("1000 (1/3)"),
        "{large}"
    );
    assert!(large.contains("have no locks"), "{large}");
    assert!(locks("small").contains("1 (all)"));
    let told = dev.json(&["--keyspace", "coded", "locks", "--replicas", "large"]);
    let parts = told["replicas"].as_array().expect("an array");
    let is_part = |replica: &&serde_json::Value| replica["is_part"] == true;
    assert!(parts.iter().filter(is_part).count() >= 4, "{told}");
    // Without --replicas the queue was asked for, which there is not.
    assert_eq!(
        status(&dev.run(&["--keyspace", "coded", "locks", "large"])),
        65
    );
}

#[test]
fn a_load_that_does_not_fit_its_keyspace_is_refused_before_it_runs() {
    let dev = Dev::start(&[]);
    let load = [
        "bench",
        "load",
        "--clients",
        "1",
        "--size",
        "64",
        "--seconds",
        "1",
    ];
    let wrong = dev.run(&[&load[..], &["--keyspace", "nosuch", "--reads", "0.5"]].concat());
    assert_eq!(status(&wrong), 65, "{}", text(&wrong.stderr));
    assert!(wrong.stdout.is_empty(), "no table");
    let said = text(&wrong.stderr);
    assert!(said.contains("there is no keyspace `nosuch`"), "{said}");
    assert!(!said.contains("0 errors"), "{said}");
    let registers = dev.run(&[&load[..], &["--keyspace", "registers"]].concat());
    assert_eq!(status(&registers), 65);
    let said = text(&registers.stderr);
    assert!(said.contains("use --reads"), "{said}");
}

#[test]
fn a_bound_that_would_never_be_trusted_is_refused() {
    let refused = fermata().args(["dev", "--clock-bound", "1s"]).output();
    let refused = refused.expect("it runs");
    assert_eq!(status(&refused), 2);
    let said = text(&refused.stderr);
    assert!(said.contains("at most 990ms"), "{said}");
    let dev = Dev::start(&["--sites", "1", "--clock-bound", "990ms"]);
    eventually("the clock has been read", || {
        let clock = &dev.json(&["status"])["nodes"][0]["clock"];
        clock["state"] == "trusted"
    });
}
