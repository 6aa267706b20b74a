//! The demonstrations hold, faults and all. One after the other, since each is a load of its own.

mod common;
#[path = "common/ports.rs"]
mod ports;

fn holds(example: &str) {
    let ports = ports::Ports::free();
    let output = common::fermata()
        .args(["demo", example, "--json", "--base-port"])
        .arg(ports.base.to_string())
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
    holds("homing");
    holds("portal");
}
