//! The demonstrations hold, faults and all. One after the other, since each is a load of its own.

use std::process::{Command, Stdio};

/// Runs an example on ports that no other test uses.
fn holds(example: &str, base_port: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_fermata"))
        .args(["demo", example, "--json", "--base-port", base_port])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{errors}");
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["held"], true);
    assert!(
        report["faults"]
            .as_array()
            .is_some_and(|faults| faults.len() > 4),
        "{said}"
    );
}

#[test]
fn both_examples_hold() {
    holds("homing", "9400");
    holds("portal", "9500");
}
