//! The laboratory's commands, as people use them.

use std::fs::File;
use std::io::BufReader;
use std::process::{Command, Output};

use fermata_check::Bound;
use fermata_check::file::{self, Recorded};
use serde_json::Value;

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fermata-lab"));
    command.args(args).output().expect("it runs")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&lab(args).stdout).expect("JSON")
}

#[test]
fn wrong_usage_has_status_2() {
    for args in [
        &["frobnicate"][..],
        &["sim", "--timeout", "1s"],
        &["sim", "--seed", "1", "--scenario", "x"],
        &["sim", "--scenario", "no-such-scenario"],
        &["sim", "--planted-bug", "no-such-bug"],
        &["rtt", "--profile", "mars"],
    ] {
        let output = lab(args);
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn scenarios_and_planted_bugs_are_listed() {
    let list = json(&["sim", "--list", "--json"]);
    for names in ["scenarios", "planted_bugs"] {
        assert!(list[names].as_array().is_some_and(|all| !all.is_empty()));
    }
}

#[test]
fn a_seed_runs_and_counts_its_hours() {
    let run = json(&["sim", "--seed", "3", "--json"]);
    assert_eq!(
        (&run["runs"], &run["failures"]),
        (&1.into(), &Value::Array(vec![]))
    );
    assert!(run["simulated_seconds"].as_f64().is_some_and(|s| s > 0.0));
}

#[test]
fn a_planted_bug_is_told_with_the_command_that_repeats_it() {
    let args = [
        "sim",
        "--scenario",
        "f1-suspected-holder",
        "--planted-bug",
        "synch-without-fence",
    ];
    let output = lab(&args);
    assert_eq!(status(&output), 1);
    let said = String::from_utf8_lossy(&output.stdout);
    let again = format!("fermata-lab {}", args.join(" "));
    assert!(said.contains(&again), "{said}");
    assert!(said.contains("VIOLATION"), "the trace is there: {said}");
}

#[test]
fn latencies_are_those_of_distance() {
    let rows = json(&["rtt", "--profile", "lUs", "--json"]);
    let section = rows.as_array().expect("an array").iter().find(|row| {
        row["client"] == "Ohio"
            && row["primary"] == "Ohio"
            && row["step"] == "section"
            && row["puts"] == 1
    });
    let section = section.expect("it is measured");
    let ms = section["ms"].as_f64().expect("a number");
    // Virtual time: exact, so a bound on it is no timed assertion.
    assert!(ms <= 110.0, "a section with one put takes {ms} ms");
}

#[test]
fn a_recorded_history_can_be_decided() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("run.jsonl");
    let path = file.to_str().expect("a path of ASCII");
    let violations = |rest: &[&str]| {
        let sim = ["sim", "--scenario", "register-write-back", "--record", path];
        let ran = lab(&[&sim[..], rest].concat());
        let from = BufReader::new(File::open(&file).expect("it was written"));
        let Recorded::Registers(history) = file::read(from, |_| ()).expect("a history") else {
            panic!("a history of registers");
        };
        let report = history.check(Bound::default(), |_| ());
        (status(&ran), report.violations() > 0)
    };
    assert_eq!(violations(&[]), (0, false));
    let wrong = violations(&["--planted-bug", "read-without-write-back"]);
    assert_eq!(wrong, (1, true));
}
