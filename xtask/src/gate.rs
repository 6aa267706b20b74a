//! `cargo xtask test`: all checks, cheap ones first, stopping at the first failure.
//!
//! The last line is `N passed, 0 failed`, summed over all test binaries, for people and for
//! scripts; before it stands how long each section took to compile and to run. Every section is one
//! cargo command that is printed before it runs, so that a failure can be repeated by hand. A test
//! target that a manifest declares and that no section has run is a failure, too
//! ([`crate::coverage`]). What failed is shown once more before that table, where it is found.
//!
//! Tests of the product wait for processes, disks and clocks most of the time, those of engines for
//! other servers, and those of the laboratory compute: once all are compiled they run side by side,
//! in three [lanes](LANES), the last with what the others leave of the processors, and the others
//! with twice as many tests at a time as there are processors.
//!
//! A section of a lane that has passed in this target folder is not run again until something that
//! it is made of changes ([`crate::passed`]): a change in one crate costs what depends on it.
//!
//! Programs that test on Cassandra and `ZooKeeper` share one trio of each, which their lane owns
//! and which ends with it, whichever way that is; run by hand, each has a trio of its own.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use fermata_peers::{TRIOS, Trios};

use crate::coverage::Coverage;
use crate::java;
use crate::passed::Passed;

/// One command of the gate.
struct Section {
    title: &'static str,
    /// Arguments of cargo: what is built.
    cargo: &'static [&'static str],
    /// More of them: what of it is run.
    run: &'static [&'static str],
    /// Environment added.
    env: &'static [(&'static str, &'static str)],
    /// Whether its programs share servers.
    servers: bool,
}

impl Section {
    const fn new(title: &'static str, cargo: &'static [&'static str]) -> Section {
        Section {
            title,
            cargo,
            run: &[],
            env: &[],
            servers: false,
        }
    }

    fn words(&self) -> Vec<&'static str> {
        self.cargo.iter().chain(self.run).copied().collect()
    }
}

/// What a lane does for the others.
#[derive(Clone, Copy)]
struct Beside {
    /// By how much it gives way to them.
    nice: u8,
    /// Tests that a program of its runs at a time, for each processor: they wait most of the time,
    /// or not.
    threads: usize,
}

/// What became of a command.
struct Done {
    title: &'static str,
    /// What was done of the section, if not all.
    what: &'static str,
    seconds: u64,
    tally: Tally,
    /// What its failed programs said first.
    failures: String,
}

/// How many tests a program runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";
/// Lines that are shown again of a program that failed, and characters of each.
const SHOWN: (usize, usize) = (60, 400);

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

/// What people run, without planted bugs. The protocol's own tests and the engines' are in the
/// laboratory: they are the same schedules with and without planted bugs.
const PRODUCT: &[&str] = &[
    "test",
    "--workspace",
    "--no-fail-fast",
    "--exclude",
    "xtask",
    "--exclude",
    "fermata-sim",
    "--exclude",
    "fermata-lab",
    "--exclude",
    "fermata-protocol",
    "--exclude",
    "fermata-engine",
    "--features",
    "fermata-check/file",
];

/// What comes before all tests, in order.
const CHECKS: &[Section] = &[
    Section::new("formatting", &["fmt", "--all", "--check"]),
    Section::new("tidy rules", &["test", "--package", "xtask"]),
    Section::new(
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ],
    ),
    Section {
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        ..Section::new(
            "documentation",
            &["doc", "--workspace", "--no-deps", "--all-features"],
        )
    },
];

/// The tests, lane by lane. They are built in two sets, the product and the laboratory: each
/// further set of packages or features would compile most of the tree again (docs/decisions).
const LANES: [&[Section]; 3] = [WAITS, ENGINES, COMPUTES];

/// How each lane runs beside the others.
const BESIDE: [Beside; 3] = [
    Beside {
        nice: 0,
        threads: 2,
    },
    Beside {
        nice: 0,
        threads: 2,
    },
    Beside {
        nice: 19,
        threads: 1,
    },
];

const WAITS: &[Section] = &[
    Section {
        run: &[
            "--lib",
            "--bins",
            "--test",
            "cluster",
            "--test",
            "demo",
            "--test",
            "e2e",
            "--test",
            "handshakes",
            "--test",
            "it",
            "--test",
            "kernels",
            "--test",
            "mds",
            "--test",
            "porcupine",
            "--test",
            "table",
        ],
        ..Section::new("the product: all crates, end to end", PRODUCT)
    },
    Section {
        run: &["--doc"],
        ..Section::new("the product: examples in its documentation", PRODUCT)
    },
];

/// Their programs are loud, and empty, where real servers cannot run.
const ENGINES: &[Section] = &[
    Section {
        run: &[
            "--test",
            "cassandra",
            "--test",
            "nodes",
            "--test",
            "outages",
            "--test",
            "owner",
            "--test",
            "sections",
            "--test",
            "servers",
            "--test",
            "zookeeper",
            "--test",
            "etcd",
        ],
        servers: true,
        ..Section::new("the product: stores of Cassandra and ZooKeeper", PRODUCT)
    },
    Section {
        run: &["--test", "engines"],
        servers: true,
        ..Section::new("the product: nodes on Cassandra and ZooKeeper", PRODUCT)
    },
];

const COMPUTES: &[Section] = &[
    Section {
        run: &["--tests"],
        ..Section::new(
            "the laboratory: the simulator, and all that has planted bugs",
            LABORATORY,
        )
    },
    Section {
        run: &["--doc"],
        ..Section::new("the laboratory: examples in its documentation", LABORATORY)
    },
    Section::new(
        "formal models, those checks that take seconds",
        &["xtask", "formal", "--short"],
    ),
    Section::new(
        "traces of the simulator, judged by the model",
        &["xtask", "formal", "traces"],
    ),
    Section::new(
        "wrong rules and words, refused by the judge",
        &["xtask", "formal", "traces", "--planted"],
    ),
];

/// What takes long, needs rights that a build service lacks, or prints figures: not in the gate.
const DEEP: &[Section] = &[
    Section::new(
        "simulator, many random schedules",
        // Those before are the laboratory's.
        &["sim", "--seed", "1000", "--seeds", "10000"],
    ),
    Section::new(
        "models with a rule taken away",
        &["xtask", "formal", "planted.als"],
    ),
    Section::new(
        "decoders, as those who fuzz them build them",
        &[
            "test",
            "--package",
            "fermata-server",
            "--features",
            "fuzz",
            "--lib",
            "--",
            "fuzz",
        ],
    ),
    Section::new(
        "licences, sources and known holes of dependencies",
        &["xtask", "deny"],
    ),
    Section::new(
        "what idle clients cost the others",
        &[
            "run",
            "--release",
            "--package",
            "fermata",
            "--",
            "bench",
            "crowd",
        ],
    ),
    Section::new(
        "a counter by generated stubs, in Python",
        &[
            "test",
            "--package",
            "fermata",
            "--features",
            "python",
            "--test",
            "e2e",
            "--",
            "--nocapture",
            "python",
        ],
    ),
    Section::new(
        "sites whose packets are lost, in network namespaces",
        &[
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
    ),
];

/// Runs the gate.
pub(crate) fn run() -> ExitCode {
    // At once, and not when half of the gate has run.
    if let Err(error) = java::programs(true) {
        eprintln!("the models could not be checked: {error}");
        return ExitCode::FAILURE;
    }
    let mut coverage = match Coverage::ask() {
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
    let start = Instant::now();
    let mut done = Vec::new();
    let sections: Vec<&Section> = LANES.into_iter().flatten().collect();
    let ok = lane(CHECKS, None, &mut done) && compile(&sections, &mut done);
    if !ok || !side_by_side(&mut done) {
        return close(&done, start, 1);
    }
    for section in CHECKS.iter().chain(sections) {
        if let Err(error) = coverage.strike(&section.words()) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let missing = coverage.missing();
    for what in &missing {
        println!("never run: {what}");
    }
    close(&done, start, missing.len() as u64)
}

/// Runs what is not in the gate.
pub(crate) fn run_deep() -> ExitCode {
    let start = Instant::now();
    let mut done = Vec::new();
    let sections: Vec<&Section> = DEEP.iter().collect();
    let ok = compile(&sections, &mut done) && lane(DEEP, None, &mut done);
    close(&done, start, u64::from(!ok))
}

/// Compiles the tests of sections, each set once; whether all of them compile.
fn compile(sections: &[&Section], done: &mut Vec<Done>) -> bool {
    let mut built: Vec<&[&str]> = Vec::new();
    sections.iter().all(|section| {
        if section.cargo[0] != "test" || built.contains(&section.cargo) {
            return true;
        }
        built.push(section.cargo);
        let own = section.cargo.iter().take_while(|word| **word != "--");
        let words: Vec<&str> = own.copied().chain(["--no-run"]).collect();
        step(section, ", compiled", &words, None, None, done)
    })
}

/// Runs sections in order; whether none fails. `beside`: how, where there are other lanes.
fn lane(sections: &[Section], beside: Option<Beside>, done: &mut Vec<Done>) -> bool {
    let mut trios = None;
    sections.iter().all(|section| {
        let words = section.words();
        let passed = beside.and_then(|_| Passed::of(&words));
        if let Some(tally) = passed.as_ref().and_then(Passed::recall) {
            done.push(Done {
                title: section.title,
                what: ", unchanged since it passed",
                seconds: 0,
                tally,
                failures: String::new(),
            });
            return true;
        }
        if section.servers && trios.is_none() {
            match Trios::start() {
                Ok(started) => trios = Some(started),
                Err(error) => {
                    eprintln!("the servers of the tests did not start: {error}");
                    return false;
                }
            }
        }
        let trios = trios.as_ref().filter(|_| section.servers);
        let ok = step(section, "", &words, beside, trios, done);
        if let (true, Some(passed), Some(done)) = (ok, passed, done.last()) {
            passed.note(done.tally);
        }
        ok
    })
}

/// Runs the lanes at the same time; whether none fails.
fn side_by_side(done: &mut Vec<Done>) -> bool {
    let ends = std::thread::scope(|scope| {
        let lanes = LANES.iter().zip(BESIDE).map(|(sections, beside)| {
            scope.spawn(move || {
                let mut done = Vec::new();
                (lane(sections, Some(beside), &mut done), done)
            })
        });
        let lanes: Vec<_> = lanes.collect();
        let ends = lanes.into_iter();
        ends.map(|lane| lane.join().expect("no lane panics"))
            .collect::<Vec<_>>()
    });
    let ok = ends.iter().all(|(ok, _)| *ok);
    done.extend(ends.into_iter().flat_map(|(_, done)| done));
    ok
}

/// Runs a command of a section's, whose output is passed on; whether it succeeds. `beside`: how,
/// where there are other lanes.
fn step(
    section: &Section,
    what: &'static str,
    words: &[&str],
    beside: Option<Beside>,
    trios: Option<&Trios>,
    done: &mut Vec<Done>,
) -> bool {
    let title = section.title;
    println!("\n== {title}{what} ==\n$ cargo {}", words.join(" "));
    let start = Instant::now();
    let (mut tally, mut failures) = (Tally::default(), String::new());
    let ran = run_cargo(section, words, beside, trios, (&mut tally, &mut failures));
    let ok = ran.unwrap_or_else(|error| {
        eprintln!("cargo could not be run: {error}");
        false
    });
    if !ok {
        println!("\n== {title} failed ==");
    }
    done.push(Done {
        title,
        what,
        seconds: start.elapsed().as_secs(),
        tally,
        failures,
    });
    ok
}

/// What failed once more, the table of sections, and the closing line.
fn close(done: &[Done], start: Instant, failed: u64) -> ExitCode {
    for done in done.iter().filter(|done| !done.failures.is_empty()) {
        println!("\n== what failed in: {} ==\n{}", done.title, done.failures);
    }
    println!("\n{:>8} {:>8}  section", "seconds", "tests");
    for Done {
        title,
        what,
        seconds,
        tally,
        ..
    } in done
    {
        println!("{seconds:>8} {:>8}  {title}{what}", tally.passed);
    }
    let mut total = Tally::default();
    done.iter().for_each(|done| total.add(done.tally));
    let seconds = start.elapsed().as_secs();
    println!("{seconds:>8} {:>8}  all, some side by side", total.passed);
    let failed = total.failed.max(failed);
    println!("{} passed, {failed} failed", total.passed);
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Whether a command of cargo's for a section succeeds. Beside another lane, what it says is passed
/// on in pieces, each of which ends with a test program, so that those of two do not mix.
fn run_cargo(
    section: &Section,
    words: &[&str],
    beside: Option<Beside>,
    trios: Option<&Trios>,
    (tally, failures): (&mut Tally, &mut String),
) -> std::io::Result<bool> {
    let (output, input) = std::io::pipe()?;
    let processors = std::thread::available_parallelism()?.get();
    let threads = beside.map(|beside| (THREADS, (beside.threads * processors).to_string()));
    let mut child = Command::new("nice")
        .args(["-n", &beside.map_or(0, |beside| beside.nice).to_string()])
        .arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(words)
        .envs(section.env.iter().copied())
        .envs(trios.map(|trios| (TRIOS, trios.folder())))
        .envs(threads)
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(input.try_clone()?)
        .stdout(input)
        .spawn()?;
    let (mut piece, mut program) = (String::new(), Vec::new());
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        piece.push_str(&line);
        piece.push('\n');
        let counted = Tally::of_line(&line);
        tally.add(counted.unwrap_or_default());
        program.push(line.into_owned());
        if let Some(counted) = counted {
            if counted.failed > 0 {
                failures.push_str(&excerpt(&program));
            }
            program.clear();
        }
        if counted.is_some() || beside.is_none() {
            print!("{piece}");
            piece.clear();
        }
    }
    print!("{piece}");
    Ok(child.wait()?.success())
}

/// How a program's report of its failures begins.
fn excerpt(program: &[String]) -> String {
    let report = program.iter().skip_while(|line| *line != "failures:");
    let cut = |line: &String| line.chars().take(SHOWN.1).chain(['\n']).collect::<String>();
    report.take(SHOWN.0).map(cut).collect()
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map(PathBuf::from).unwrap_or(own)
}

/// Tests counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
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
    fn what_failed_is_shown_from_its_report_on() {
        let lines = [
            "test a ... FAILED",
            "",
            "failures:",
            "",
            "---- a stdout ----",
        ];
        let mut program: Vec<String> = lines.map(String::from).into();
        program.push("é".repeat(2 * SHOWN.1));
        program.extend((0..SHOWN.0).map(|line| line.to_string()));
        let shown = excerpt(&program);
        let mut shown = shown.lines();
        assert_eq!(shown.next(), Some("failures:"));
        assert_eq!(shown.nth(2).map(|line| line.chars().count()), Some(SHOWN.1));
        assert_eq!(shown.count(), SHOWN.0 - 4);
    }

    #[test]
    fn another_line_is_not() {
        assert_eq!(Tally::of_line("test tidy::tests::widths ... ok"), None);
        assert_eq!(Tally::of_line("test result: odd"), None);
    }
}
