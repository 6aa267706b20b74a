//! `fermata bench load` on registers, and the histories that it records.

use crate::support::{Dev, json, status, text};

/// Few registers and many clients, on a coded keyspace: what was recorded is linearizable.
#[test]
fn a_recorded_run_is_linearizable() {
    let dev = Dev::start(&["--sites", "5"]);
    let create = [
        "keyspace",
        "create",
        "coded",
        "--purpose",
        "registers",
        "--storage",
        "coded",
        "--f",
        "1",
        "--whole-below",
        "0",
    ];
    let created = dev.run(&create);
    assert_eq!(status(&created), 0, "{}", text(&created.stderr));
    let history = dev.folder().join("history.jsonl");
    let history = history.to_str().expect("a path of ASCII");
    for keyspace in ["registers", "coded"] {
        let load = [
            "bench",
            "load",
            "--json",
            "--keyspace",
            keyspace,
            "--reads",
            "0.5",
            "--clients",
            "6",
            "--keys",
            "3",
            "--size",
            "128,65536",
            "--seconds",
            "1",
            "--distribution",
            "zipfian",
            "--record",
            history,
        ];
        let ran = dev.run(&load);
        assert_eq!(status(&ran), 0, "{}", text(&ran.stderr));
        let outcomes = json(&ran.stdout);
        let outcomes = outcomes.as_array().expect("an array");
        assert_eq!(outcomes.len(), 2);
        for outcome in outcomes {
            assert_eq!(outcome["keyspace"], keyspace);
            assert_eq!(outcome["errors"], 0, "{outcome}");
        }
        let checked = dev.run(&["check", history, "--json"]);
        let report = json(&checked.stdout);
        assert_eq!(status(&checked), 0, "{report}");
        assert!(report["operations"].as_u64() > Some(0), "{report}");
    }
}

/// A history with one read that nobody's write explains is found out.
#[test]
fn a_damaged_value_in_a_history_is_a_violation() {
    let dev = Dev::start(&[]);
    let history = dev.folder().join("history.jsonl");
    let path = history.to_str().expect("a path of ASCII");
    let load = ["bench", "load", "--reads", "0.5", "--clients", "2"];
    let rest = ["--size", "128", "--seconds", "1", "--record", path];
    let ran = dev.run(&[&load[..], &rest].concat());
    assert_eq!(status(&ran), 0, "{}", text(&ran.stderr));
    let recorded = std::fs::read_to_string(&history).expect("it was recorded");
    let read = recorded.lines().find(|line| line.contains("\"read\""));
    let key = read
        .and_then(|line| line.split('"').nth(3))
        .expect("a read");
    let read = r#""op":"read","value":"damaged, 128 bytes","call":0,"return":1,"outcome":"ok""#;
    let false_read = format!("{{\"key\":\"{key}\",\"client\":9,{read}}}");
    std::fs::write(&history, format!("{recorded}{false_read}\n")).expect("it is ours");
    assert_eq!(status(&dev.run(&["check", path])), 1);
}
