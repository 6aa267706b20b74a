//! The product is not the laboratory: what `fermata` is built from.
//!
//! **Problem.** The simulator switches on wrong versions of single rules, which its checkers must
//! catch, and notes of what each command did. One dependency too many, and both are compiled into
//! the binary that people run; nothing would be seen of it but its speed.
//!
//! **Idea.** Cargo says what it builds `fermata` from, as it does it for the README's first
//! command.

use std::process::Command;

/// What must be in no line of cargo's answer.
const FORBIDDEN: [&str; 3] = ["planted-bugs", "fermata-sim", "fermata-lab"];

#[test]
fn the_product_has_no_planted_bugs_and_no_simulator() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args([
            "tree",
            "--package",
            "fermata",
            "--edges",
            "features",
            "--locked",
        ])
        .current_dir(crate::gate::root())
        .output()
        .expect("cargo runs");
    let told = String::from_utf8(asked.stdout).expect("cargo prints text");
    let errors = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{errors}");
    assert!(
        told.contains("fermata-protocol"),
        "the question is right: {told}"
    );
    for line in told.lines() {
        let found = FORBIDDEN.iter().find(|word| line.contains(**word));
        assert_eq!(found, None, "the product is built with it: {line}");
    }
}
