//! `cargo xtask test`: all checks in one order, cheap ones first, stopping at the first failure.
//!
//! The last line is `N passed, 0 failed`, summed over all test binaries, for people and for
//! scripts; before it stands how long each section took. Every section is one cargo command that is
//! printed before it runs, so that a failure can be repeated by hand. A test target that a manifest
//! declares and that no section has run is a failure, too ([`crate::coverage`]).

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::coverage::Coverage;
use crate::java;

/// One command of the gate.
struct Section {
    title: &'static str,
    /// Arguments of cargo.
    cargo: &'static [&'static str],
    /// Environment added.
    env: &'static [(&'static str, &'static str)],
}

/// What is built with planted bugs. The simulator and the protocol are compiled once for all that
/// asks cargo with these words behind its command.
pub(crate) const LABORATORY: &[&str] = &[
    "test",
    "--package",
    "fermata-protocol",
    "--package",
    "fermata-sim",
    "--package",
    "fermata-lab",
    "--package",
    "fermata-engine",
    "--features",
    "fermata-engine/check,fermata-engine/planted-bugs",
];

/// The gate, in order. Tests are built in two sets, the product and the laboratory: each further
/// set of packages or features would compile most of the tree again (docs/decisions).
const SECTIONS: &[Section] = &[
    Section {
        title: "formatting",
        cargo: &["fmt", "--all", "--check"],
        env: &[],
    },
    Section {
        title: "tidy rules",
        cargo: &["test", "--package", "xtask"],
        env: &[],
    },
    Section {
        title: "lints",
        cargo: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ],
        env: &[],
    },
    Section {
        title: "documentation",
        cargo: &["doc", "--workspace", "--no-deps", "--all-features"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    Section {
        // The engines' tests are loud, and empty, where real servers cannot run.
        title: "the product: all crates, end to end, engines on Cassandra and ZooKeeper",
        cargo: &[
            "test",
            "--workspace",
            "--no-fail-fast",
            "--exclude",
            "xtask",
            "--exclude",
            "fermata-sim",
            "--exclude",
            "fermata-lab",
            "--features",
            "fermata-check/file,fermata-engine/check",
        ],
        env: &[],
    },
    Section {
        title: "the laboratory: the simulator, and all that has planted bugs",
        cargo: LABORATORY,
        env: &[],
    },
    Section {
        title: "formal models, those checks that take seconds",
        cargo: &["xtask", "formal", "--short"],
        env: &[],
    },
    Section {
        title: "traces of the simulator, judged by the model",
        cargo: &["xtask", "formal", "traces"],
        env: &[],
    },
    Section {
        title: "wrong rules and words, refused by the judge",
        cargo: &["xtask", "formal", "traces", "--planted"],
        env: &[],
    },
];

/// What takes long, needs rights that a build service lacks, or prints figures: not in the gate.
const DEEP: &[Section] = &[
    Section {
        title: "simulator, many random schedules",
        // Those before are the laboratory's.
        cargo: &["sim", "--seed", "2000", "--seeds", "10000"],
        env: &[],
    },
    Section {
        title: "what idle clients cost the others",
        cargo: &[
            "run",
            "--release",
            "--package",
            "fermata",
            "--",
            "bench",
            "crowd",
        ],
        env: &[],
    },
    Section {
        title: "sites whose packets are lost, in network namespaces",
        cargo: &[
            "test",
            "--package",
            "fermata",
            "--features",
            "namespaces",
            "--test",
            "namespaces",
            "--",
            "--nocapture",
        ],
        env: &[],
    },
];

/// Runs the gate.
pub(crate) fn run() -> ExitCode {
    // At once, and not when half of the gate has run.
    if let Err(error) = java::programs(true) {
        eprintln!("the models could not be checked: {error}");
        return ExitCode::FAILURE;
    }
    let coverage = match Coverage::ask() {
        Ok(mut coverage) => {
            DEEP.iter()
                .for_each(|section| coverage.excuse(section.cargo));
            coverage
        }
        Err(error) => {
            eprintln!("what there is to run is not known: {error}");
            return ExitCode::FAILURE;
        }
    };
    run_sections(SECTIONS, Some(coverage))
}

/// Runs what is not in the gate.
pub(crate) fn run_deep() -> ExitCode {
    run_sections(DEEP, None)
}

/// Runs sections in order. Fails with the first that fails, and where something is left that none
/// has run.
fn run_sections(sections: &[Section], mut coverage: Option<Coverage>) -> ExitCode {
    let mut done: Vec<(&str, u64, Tally)> = Vec::new();
    for section in sections {
        println!(
            "\n== {} ==\n$ cargo {}",
            section.title,
            section.cargo.join(" ")
        );
        let start = Instant::now();
        let ran = run_section(section).and_then(|(ok, tally)| {
            if let Some(coverage) = coverage.as_mut().filter(|_| ok) {
                coverage.strike(section.cargo)?;
            }
            Ok((ok, tally))
        });
        let (ok, tally) = match ran {
            Ok(outcome) => outcome,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        done.push((section.title, start.elapsed().as_secs(), tally));
        if !ok {
            println!("\n== {} failed ==", section.title);
            let total = Tally::sum(&done);
            println!("{} passed, {} failed", total.passed, total.failed.max(1));
            return ExitCode::FAILURE;
        }
    }
    let missing = coverage.map_or(Vec::new(), |coverage| coverage.missing());
    for what in &missing {
        println!("never run: {what}");
    }
    close(&done, missing.len() as u64)
}

/// The table of sections, and the closing line.
fn close(done: &[(&str, u64, Tally)], missing: u64) -> ExitCode {
    println!("\n{:>8} {:>8}  section", "seconds", "tests");
    for (title, seconds, tally) in done {
        println!("{seconds:>8} {:>8}  {title}", tally.passed);
    }
    let total = Tally::sum(done);
    let seconds: u64 = done.iter().map(|(_, seconds, _)| seconds).sum();
    println!("{seconds:>8} {:>8}  all sections", total.passed);
    println!("{} passed, {} failed", total.passed, total.failed + missing);
    match missing {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Runs one section, passing its output on and counting its tests.
fn run_section(section: &Section) -> Result<(bool, Tally), String> {
    run_cargo(section).map_err(|error| format!("cargo could not be run: {error}"))
}

fn run_cargo(section: &Section) -> std::io::Result<(bool, Tally)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(section.cargo)
        .envs(section.env.iter().copied())
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut tally = Tally::default();
    let output = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        if let Some(one) = Tally::of_line(&line) {
            tally.add(one);
        }
    }
    Ok((child.wait()?.success(), tally))
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).unwrap_or(own)
}

/// Tests counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    fn sum(sections: &[(&str, u64, Tally)]) -> Tally {
        let mut total = Tally::default();
        for (_, _, tally) in sections {
            total.add(*tally);
        }
        total
    }

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Reads `test result: ok. 3 passed; 0 failed; …`.
    fn of_line(line: &str) -> Option<Tally> {
        let rest = line.strip_prefix("test result: ")?;
        let (_, counts) = rest.split_once(". ")?;
        let count = |what| {
            let entry = counts.split("; ").find(|c| c.ends_with(what))?;
            entry.split(' ').next()?.parse().ok()
        };
        Some(Tally {
            passed: count(" passed")?,
            failed: count(" failed")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered \
                    out; finished in 0.02s";
        let counted = Tally {
            passed: 12,
            failed: 3,
        };
        assert_eq!(Tally::of_line(line), Some(counted));
    }

    #[test]
    fn another_line_is_not() {
        assert_eq!(Tally::of_line("test tidy::tests::widths ... ok"), None);
        assert_eq!(Tally::of_line("test result: odd"), None);
    }
}
