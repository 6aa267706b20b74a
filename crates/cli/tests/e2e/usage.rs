//! Wrong usage, missing keys, missing servers: what a person runs into first.

use crate::support::{Dev, Ports, eventually, fermata, json, status, text};
use rustix::process::Signal;

#[test]
fn wrong_usage_has_status_2() {
    for args in [
        &["frobnicate"][..],
        &["get"],
        &["put", "k"],
        &["lock", "k"],
        &["lock", "--", "true"],
        &["lock", "k", "--wait", "10", "--", "true"],
        &["lock", "k", "--ttl", "-1s", "--", "true"],
        &["lock", "k", "l", "k", "--", "true"],
        &["release", "k"],
        &["release", "k", "0"],
        &["release", "k", "head"],
        &["check", "--timeout", "1s", "file"],
        &["--site", "ohio", "check", "file"],
        &["--keyspace", "jobs", "status"],
        &["dev", "--sites", "0"],
        &["dev", "--segments", "3"],
        &["dev", "--rtt", "/no/such/file"],
        &["server"],
        &["server", "--config", "/no/such/file"],
        &["server", "--engine", "cassandra"],
        &["server", "--engine", "dynamo", "--contact-points", "h:1"],
        &["server", "--contact-points", "127.0.0.1:1"],
        &["bench", "load", "--clients", "0"],
        &["bench", "load", "--reads", "1.5"],
        &["bench", "load", "--reads", "0.5", "--mode", "put"],
        &["bench", "load", "--record", "x"],
        &[
            "bench", "load", "--reads", "0.5", "--record", "x", "--size", "8",
        ],
        &["get", "k", "--endpoint", "no-port"],
        &["get", "k", "--endpoint", "https://h:1"],
        &["get", "k", "--timeout", "0s"],
        &["get", "k", "--wait", "--eventual"],
        &["put", "k", "v", "--if-absent", "--eventual"],
        &["put", "k", "v", "--if-absent", "--if-value", "w"],
        &["put", "k", "v", "--if-version", "1"],
        &["del", "--prefix", "k", "--if-present"],
        &["keyspace", "create", "x", "--tag-before", "é"],
    ] {
        let output = fermata().args(args).output().expect("it runs");
        assert_eq!(status(&output), 2, "{args:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn the_environment_is_not_shown_as_needed() {
    for args in [&["get"][..], &["put", "k"], &["lock", "k"]] {
        let output = fermata()
            .env("FERMATA_ENDPOINTS", "127.0.0.1:1")
            .env("FERMATA_KEYSPACE", "other")
            .args(args)
            .output()
            .expect("it runs");
        let said = text(&output.stderr);
        assert!(
            said.contains("Usage") && !said.contains("--endpoint"),
            "{said}"
        );
    }
    let output = fermata()
        .env("FERMATA_TIMEOUT", "soon")
        .args(["get", "k"])
        .output()
        .expect("it runs");
    assert_eq!(status(&output), 2);
    assert!(text(&output.stderr).contains("FERMATA_TIMEOUT"));
}

#[test]
fn without_a_quorum_the_nodes_asked_are_named() {
    let dev = Dev::start(&[]);
    assert_eq!(status(&dev.run(&["put", "k", "v"])), 0);
    for node in 1..3 {
        dev.signal(node, Signal::KILL);
    }
    eventually("the nodes are down", || {
        let state = dev.json(&["status"]);
        state["nodes"][0]["health"] == "hears nobody"
    });
    for (args, code) in [
        (&["get", "k"][..], 69),
        (&["lock", "k", "--", "echo", "in"], 69),
        (&["put", "k", "w"], 69),
        (&["put", "--wait", "k", "w"], 76),
    ] {
        let output = dev.run(&[&["--timeout", "3s"], args].concat());
        let said = text(&output.stderr);
        assert_eq!((status(&output), output.stdout.len()), (code, 0), "{said}");
        assert!(
            said.contains("site1-1") && said.contains("no answer"),
            "{said}"
        );
        assert!(
            said.contains("site2-1") && said.contains("connection refused"),
            "{said}"
        );
    }
    // What one replica can do it does.
    assert_eq!(text(&dev.run(&["get", "--eventual", "k"]).stdout), "v");
}

#[test]
fn where_nobody_can_be_reached_a_command_does_not_wait_its_time_out() {
    let dev = Dev::start(&[]);
    let pids: Vec<String> = (0..3)
        .map(|n| dev.pid(n).as_raw_nonzero().to_string())
        .collect();
    let fermata = env!("CARGO_BIN_EXE_fermata");
    let script = format!("kill -9 {}; {fermata} put k v", pids.join(" "));
    let options = ["lock", "k", "--timeout", "1h", "--ttl", "10m"];
    let output = dev
        .client()
        .args(options)
        .args(["--", "sh", "-c", &script])
        .output()
        .expect("it runs");
    let said = text(&output.stderr);
    assert!(matches!(status(&output), 69 | 76), "{said}");
    assert!(said.contains("no node can be reached"), "{said}");
    assert!(said.contains("not confirmed"), "{said}");
}

#[test]
fn changes_are_told_as_json() {
    let dev = Dev::start(&["--sites", "1"]);
    // printf v | sha256sum
    let version = serde_json::json!("4c94485e0c21ae6c41ce1dfe7b6bface");
    let all = [
        (&["put", "k", "v"][..], version),
        (&["del", "k"], ().into()),
    ];
    let how = [&["--json"][..], &["--json", "--wait"]];
    for ((args, version), how) in all.iter().flat_map(|one| how.map(|how| (one, how))) {
        let output = dev.run(&[args, how].concat());
        let told = json(&output.stdout);
        let expected = serde_json::json!({
            "keyspace": "default", "key": "k", "done": true, "version": version
        });
        assert_eq!(told, expected, "{args:?}");
    }
    let output = dev.run(&["--json", "keyspace", "create", "new"]);
    let told = json(&output.stdout);
    assert_eq!(
        (&told["keyspace"], &told["done"]),
        (&"new".into(), &true.into())
    );
    let price = &told["prices"][0];
    assert_eq!(
        (&price["members"], &price["failures"]),
        (&1.into(), &0.into())
    );
    let output = dev.run(&[
        "--json",
        "--keyspace",
        "new",
        "put",
        &"k".repeat(2_000),
        "v",
    ]);
    let told = json(&output.stderr);
    assert_eq!(told["error"]["code"], "too_large");
    let sentence = told["error"]["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("key_bytes"), "{sentence}");
}

#[test]
fn no_node_hears_itself() {
    let dev = Dev::start(&[]);
    let state = dev.json(&["status"]);
    for node in state["nodes"].as_array().expect("nodes") {
        let alive = node["alive"].as_array().expect("peers");
        assert!(!alive.contains(&node["node"]), "{node}");
    }
}

#[test]
fn a_ref_that_is_none_is_refused_in_words() {
    for wrong in ["foo", "0", "-1"] {
        let output = fermata().args(["release", "a", wrong]).output();
        let said = text(&output.expect("it runs").stderr);
        let words = said.contains("whole number from 1") || wrong == "-1";
        assert!(words && !said.contains("digit"), "{said}");
    }
}

#[test]
fn shells_and_man_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = fermata().args(["completions", shell]).output();
        let script = text(&script.expect("it runs").stdout);
        assert!(
            script.contains("keyspace") && script.contains("endpoint"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().expect("a directory");
    let pages = folder.path().join("man");
    let mut man = fermata();
    let output = man.arg("man").arg(&pages).output().expect("it runs");
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    for command in ["fermata", "fermata-lock", "fermata-keyspace-create"] {
        let page = std::fs::read_to_string(pages.join(format!("{command}.1")));
        assert!(page.expect(command).contains(".TH"), "{command}");
    }
}

#[test]
fn where_nothing_is_said_of_a_cluster_programs_are_told_which_it_is() {
    let dev = Dev::start(&["--sites", "1"]);
    let named = dev.run(&["status", "--json"]);
    assert!(named.stderr.is_empty(), "{}", text(&named.stderr));
    // Whether or not there is one at the default ports.
    let mut command = fermata();
    let asked = command
        .args(["get", "k", "--json", "--timeout", "1s"])
        .output();
    let said = text(&asked.expect("it runs").stderr);
    assert!(said.contains("FERMATA_ENDPOINTS"), "{said}");
}

#[test]
fn help_lists_the_exit_statuses() {
    let help = fermata().arg("--help").output().expect("it runs");
    assert_eq!(status(&help), 0);
    for line in ["0  done", "1  the answer is no", "75  the section was lost"] {
        assert!(text(&help.stdout).contains(line), "{line}");
    }
}

#[test]
fn without_a_server_commands_say_so() {
    let ports = Ports::free();
    let endpoint = format!("127.0.0.1:{}", ports.base);
    for args in [&["get", "k"][..], &["lock", "k", "--", "true"], &["status"]] {
        let mut command = fermata();
        let output = command
            .args(["--endpoint", &endpoint])
            .args(args)
            .output()
            .expect("runs");
        assert_eq!(status(&output), 69, "{args:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains(&endpoint) && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_missing_key_prints_nothing_and_has_status_1() {
    let dev = Dev::start(&["--sites", "1"]);
    for how in [&[][..], &["--wait"], &["--eventual"]] {
        let output = dev.run(&[&["get", "missing"], how].concat());
        assert_eq!(status(&output), 1);
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    let json = dev.run(&["get", "missing", "--json"]);
    assert_eq!(status(&json), 1);
    assert!(text(&json.stdout).contains("null"));
}

#[test]
fn keys_are_listed_to_the_last_and_deleted_by_prefix() {
    let dev = Dev::start(&["--sites", "1"]);
    let mut all: Vec<String> = (0..40).map(|number| format!("job/{number}")).collect();
    all.sort();
    for key in all.iter().map(String::as_str).chain(["other"]) {
        assert_eq!(status(&dev.run(&["put", "--eventual", key, key])), 0);
    }
    let list = |args: &[&str]| {
        let output = dev.run(&[&["keys"], args].concat());
        assert_eq!(status(&output), 0, "{}", text(&output.stderr));
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        (lines, text(&output.stderr))
    };
    assert_eq!(list(&["job/"]), (all.clone(), String::new()));
    assert_eq!(list(&[]).0.len(), 41);
    assert_eq!(list(&["none"]).0.len(), 0);
    // Not cut without a word, and gone on with.
    let (some, said) = list(&["job/", "--limit", "15"]);
    assert_eq!(some, all[..15]);
    assert!(said.contains("there are more"), "{said}");
    assert_eq!(list(&["job/", "--after", &all[14]]).0, all[15..]);
    assert_eq!(
        list(&["job/", "--limit", "40"]),
        (all.clone(), String::new())
    );
    assert_eq!(list(&["other", "--values"]).0, ["other\tother"]);
    let told = dev.json(&["keys", "o", "--values"]);
    assert_eq!(
        told,
        serde_json::json!([{"key": "other", "value": "other"}])
    );
    assert_eq!(dev.json(&["keys", "none"]), serde_json::json!([]));
    let del = |args: &[&str]| dev.run(&[&["del", "--prefix"], args].concat());
    assert_eq!(status(&del(&[""])), 2);
    assert_eq!(status(&del(&["job/", "other"])), 2);
    let deleted = del(&["job/1"]);
    assert_eq!(text(&deleted.stdout), "deleted, key by key: 11\n");
    assert_eq!(dev.json(&["del", "--prefix", "job/"])["deleted"], 29);
    assert_eq!(list(&[]).0, ["other"]);
    let put = ["--keyspace", "registers", "put", "r", "v"];
    assert_eq!(status(&dev.run(&put)), 0);
    let registers = ["--keyspace", "registers"];
    assert_eq!(list(&[&registers[..], &["--values"]].concat()).0, ["r\tv"]);
    let deleted = del(&[&["r"], &registers[..]].concat());
    assert_eq!(text(&deleted.stdout), "deleted, key by key: 1\n");
}

#[test]
fn values_are_any_bytes() {
    let dev = Dev::start(&["--sites", "1"]);
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(status(&dev.run_with(&["put", "k", "-"], &bytes)), 0);
    assert_eq!(dev.run(&["get", "k"]).stdout, bytes);
    assert_eq!(status(&dev.run(&["put", "k", ""])), 0);
    let empty = dev.run(&["get", "k"]);
    assert_eq!((status(&empty), empty.stdout.len()), (0, 0));
}

#[test]
fn what_a_node_refuses_has_status_65_and_one_sentence() {
    let dev = Dev::start(&["--sites", "1"]);
    let long = "k".repeat(2_000);
    for args in [
        &["get", "k", "--keyspace", "nowhere"][..],
        &["put", &long, "v"],
        &["put", "", "v"],
        &["get", "k", "--keyspace", "registers", "--eventual"],
        &["lock", "k", "--keyspace", "registers", "--", "true"],
        &["keyspace", "create", "default"],
        &["keyspace", "create", "No Such Name"],
        &["keyspace", "describe", "nowhere"],
    ] {
        let output = dev.run(args);
        assert_eq!(status(&output), 65, "{args:?}: {}", text(&output.stderr));
        assert_eq!(
            text(&output.stderr).lines().count(),
            1,
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn keyspaces_are_created_and_listed() {
    let dev = Dev::start(&["--sites", "1"]);
    let create = [
        "keyspace",
        "create",
        "jobs",
        "--lease",
        "3s",
        "--tag-before",
        ":",
    ];
    assert_eq!(status(&dev.run(&create)), 0);
    assert!(text(&dev.run(&["keyspace", "list"]).stdout).contains("jobs"));
    let described = dev.json(&["keyspace", "describe", "jobs"]);
    assert_eq!(described["lease_us"], 3_000_000);
    assert_eq!(described["tag_before"], 58);
    assert_eq!(
        status(&dev.run(&["put", "k", "v", "--keyspace", "jobs"])),
        0
    );
    assert_eq!(
        text(&dev.run(&["get", "k", "--keyspace", "jobs"]).stdout),
        "v"
    );
    assert_eq!(status(&dev.run(&["get", "k"])), 1);
}

#[test]
fn a_short_load_is_measured() {
    let dev = Dev::start(&["--sites", "1"]);
    for mode in ["section", "put", "get"] {
        let args = [
            "bench",
            "load",
            "--clients",
            "2",
            "--size",
            "10",
            "--seconds",
            "1",
            "--json",
        ];
        let output = dev
            .client()
            .args(args)
            .args(["--mode", mode])
            .output()
            .expect("it runs");
        assert_eq!(status(&output), 0, "{}", text(&output.stderr));
        let rows = json(&output.stdout);
        assert_eq!(rows[0]["errors"], 0, "{rows}");
        assert!(
            rows[0]["p99_ms"].as_f64().is_some_and(|ms| ms > 0.0),
            "{rows}"
        );
    }
}

#[test]
fn a_load_of_which_nothing_succeeds_is_unavailable() {
    let dev = Dev::start(&["--sites", "1"]);
    // More than any cluster takes.
    let load = ["bench", "load", "--clients", "1", "--size", "40000000"];
    let rest = ["--seconds", "1", "--json"];
    for loops in [&["--mode", "put"][..], &["--reads", "0"]] {
        let output = dev.run(&[&load[..], &rest, loops].concat());
        let rows = json(&output.stdout);
        assert_eq!(status(&output), 69, "{rows}");
        let said = text(&output.stderr);
        assert!(said.contains("at most"), "why is said: {said}");
    }
}

#[test]
fn a_lease_of_nothing_is_refused() {
    for bound in ["--lease", "--section-max"] {
        let args = ["keyspace", "create", "jobs", bound, "0s"];
        let output = fermata().args(args).output().expect("it runs");
        assert_eq!(status(&output), 2, "{bound}");
        let said = text(&output.stderr);
        assert!(said.contains("longer than 0"), "{said}");
    }
}

#[test]
fn a_section_that_cannot_be_reached_is_unavailable() {
    for args in [&["get", "k"][..], &["put", "k", "v"], &["del", "k"]] {
        let output = fermata()
            .env("FERMATA_SECTION", "/no/such/socket")
            .args(args)
            .output()
            .expect("it runs");
        let said = text(&output.stderr);
        assert_eq!(status(&output), 69, "{args:?}: {said}");
        assert!(said.contains("FERMATA_SECTION"), "{said}");
    }
}
