//! `cargo xtask deny`: what the product is built from, by `cargo deny` and `deny.toml`: licences,
//! sources, and the advisories of RustSec.
//!
//! The advisories are in a database that is fetched, which a machine without a way out cannot do.
//! Then the rest is judged all the same, and it is said loudly what was not.

use std::process::{Command, ExitCode};

use crate::gate::root;

/// What is judged without asking anybody.
const OWN: [&str; 3] = ["bans", "licenses", "sources"];
/// What is said where the database could not be had, by its fetcher.
const NO_DATABASE: &str = "advisory database";

fn check(what: &[&str]) -> std::io::Result<(bool, String)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let asked = Command::new(cargo)
        .args(["deny", "--color", "never", "check"])
        .args(what)
        .current_dir(root())
        .output()?;
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    Ok((asked.status.success(), said))
}

/// Runs it.
pub(crate) fn run() -> ExitCode {
    match judge() {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn judge() -> Result<ExitCode, String> {
    let failed = |error: std::io::Error| format!("cargo could not be run: {error}");
    let (well, said) = check(&OWN).map_err(failed)?;
    if said.contains("no such command") {
        return Err("cargo deny is missing: cargo install --locked cargo-deny".into());
    }
    print!("{said}");
    let (known, told) = check(&["advisories"]).map_err(failed)?;
    let missing = !known && told.contains(NO_DATABASE);
    if missing {
        println!("{}", "=".repeat(100));
        println!("ADVISORIES WERE NOT CHECKED: their database cannot be fetched from here.");
        println!("Nothing is known of holes in what this is built from. Ask again with a network.");
        println!("{}", "=".repeat(100));
    } else {
        print!("{told}");
    }
    Ok(match well && (known || missing) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
