//! Wrong usage, missing keys, missing servers: what a person runs into first.

use crate::support::{Dev, fermata, free_base_port, status, text};

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
        &["dev", "--sites", "0"],
        &["dev", "--segments", "3"],
        &["dev", "--rtt", "/no/such/file"],
        &["server"],
        &["server", "--config", "/no/such/file"],
        &["sim", "--scenario", "no-such-scenario"],
        &["sim", "--planted-bug", "no-such-bug"],
        &["bench", "rtt", "--profile", "mars"],
        &["bench", "load", "--clients", "0"],
    ] {
        let output = fermata().args(args).output().expect("it runs");
        assert_eq!(status(&output), 2, "{args:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
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
    let endpoint = format!("127.0.0.1:{}", free_base_port());
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
    for command in ["get", "read"] {
        let output = dev.run(&[command, "missing"]);
        assert_eq!(status(&output), 1);
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    let json = dev.run(&["get", "missing", "--json"]);
    assert_eq!(status(&json), 1);
    assert!(text(&json.stdout).contains("null"));
}

#[test]
fn values_are_any_bytes() {
    let dev = Dev::start(&["--sites", "1"]);
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(status(&dev.run_with(&["put", "k", "-"], &bytes)), 0);
    assert_eq!(dev.run(&["get", "k"]).stdout, bytes);
    assert_eq!(dev.run(&["read", "k"]).stdout, bytes);
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
        &["get", "k", "--keyspace", "registers"],
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
    let described = dev.run(&["keyspace", "describe", "jobs", "--json"]);
    let described: serde_json::Value = serde_json::from_slice(&described.stdout).expect("JSON");
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
fn the_simulator_and_its_figures_are_there() {
    let list = fermata()
        .args(["sim", "--list", "--json"])
        .output()
        .expect("it runs");
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert!(
        list["scenarios"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    );
    assert!(
        list["planted_bugs"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    );
    let rows = fermata()
        .args(["bench", "rtt", "--profile", "lUs", "--json"])
        .output();
    let rows: serde_json::Value =
        serde_json::from_slice(&rows.expect("runs").stdout).expect("JSON");
    let section = rows.as_array().expect("an array").iter().find(|row| {
        row["client"] == "Ohio"
            && row["primary"] == "Ohio"
            && row["step"] == "section"
            && row["puts"] == 1
    });
    let ms = section.expect("it is measured")["ms"]
        .as_f64()
        .expect("a number");
    // Virtual time: exact, so a bound on it is no timed assertion.
    assert!(ms <= 110.0, "a section with one put takes {ms} ms");
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
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(rows[0]["errors"], 0, "{rows}");
        assert!(
            rows[0]["p99_ms"].as_f64().is_some_and(|ms| ms > 0.0),
            "{rows}"
        );
    }
}
