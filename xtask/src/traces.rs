//! `cargo xtask formal traces`: checks that what the simulator does is what the model of critical
//! sections says.
//!
//! **Problem.** The model is proved and the code is tested, and nothing says that the one is a
//! model of the other: each can be changed alone.
//!
//! **Idea.** The simulator writes down, for each key of each seed, which event of the model each
//! step is (`crates/sim/src/model`); `formal/trace` evaluates the model's own text over every step.
//! This task runs both, on as many seeds as it is told and on every scenario, and says what was
//! judged, how often each event occurred, and what was left out and why.
//!
//! **Invariant.** A judge that never refuses proves nothing: `--planted` shows that it refuses,
//! each time at a named event, runs of the simulator with one wrong rule, and runs with the right
//! rules under a text with one wrong word.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use crate::formal;
use crate::gate::root;

/// Seeds, unless told otherwise.
const SEEDS: u64 = 200;

/// Parts that are played and judged at the same time.
const PARTS: u64 = 2;

/// What is told at most of each kind of failure.
const SHOWN: usize = 5;

/// A wrong rule, the scenario in which it shows, and the event that the judge refuses.
const PLANTED: [(&str, &str, &str); 19] = [
    ("synch-without-fence", "f1-suspected-holder", "attemptRead"),
    ("past-read-answered", "f1-past-get", "getBegin"),
    (
        "speculation-never-cancelled",
        "f3-pipelined-enters",
        "enter",
    ),
    ("speculation-head-only", "f3-declined-enqueue", "enter"),
    ("synch-tag-without-attempt", "f4-two-synchs", "attemptBegin"),
    ("fence-on-ref-only", "f4-stale-attempt", "attemptGrant"),
    (
        "dirty-leave-taken-as-clean",
        "f5-dirty-leave",
        "sayLeaveClean",
    ),
    ("resume-reuses-numbers", "f16-restarted-client", "enter"),
    (
        "synch-done-unconditional",
        "f18-late-synch-done",
        "synchDone",
    ),
    ("adoption-falls-back", "g1-adoption-repeated", "entryBegin"),
    (
        "inherited-without-synch",
        "g2-adoption-for-waiter",
        "entryBegin",
    ),
    ("never-entered-leaves-clean", "g3-gives-up", "release"),
    ("re-grant-adopts", "g5-grant-twice", "attemptRead"),
    ("speculation-by-name", "g23-forgotten-read", "entryEnd"),
    ("adoption-outranks", "g24-later-put", "drop"),
    (
        "refused-taken-as-unsent",
        "g25-refused-copy",
        "sayLeaveClean",
    ),
    ("forced-release-clears-flag", "m1-forced-release", "release"),
    ("past-write-accepted", "m6-past-put", "ack"),
    ("ack-before-flush", "flush", "ack"),
];

/// A wrong word in the text: what stands there, what is put in its place, and the event that then
/// does not hold of runs with the right rules.
const WRONG_WORDS: [(&str, &str, &str); 6] = [
    (
        "  all u: used | earlier[u, r]\n",
        "  all u: used | earlier[r, u]\n",
        "enqueue",
    ),
    ("  upTo[g.floor, w]\n", "  below[g.floor, w]\n", "getEnd"),
    (
        "    flag' = (on[HeadFlags] => r else flag)\n",
        "    flag' = flag\n",
        "release",
    ),
    ("  p in succeeded\n", "  p = top\n", "ack"),
    (
        "  e.reader in head + clean + dirty\n",
        "  e.reader in clean + dirty\n",
        "entryBegin",
    ),
    (
        "  handed' = (some queued - r => highest",
        "  handed' = (no queued => highest",
        "leaveClean",
    ),
];

/// Runs `[--seeds N] [--first N]`, or `--planted`.
pub(crate) fn run(arguments: &[&str]) -> ExitCode {
    let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
    let result = match arguments {
        [] => seeds(0, SEEDS),
        ["--seeds", count] => match number(count) {
            Some(count) => seeds(0, count),
            None => return usage(),
        },
        ["--seed", seed] => match seed.parse() {
            Ok(seed) => seeds(seed, 1),
            Err(_) => return usage(),
        },
        ["--planted"] => planted(),
        _ => return usage(),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the traces could not be judged: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask formal traces [--seeds N | --seed N | --planted]");
    ExitCode::from(2)
}

/// The two programs and the text.
struct Tools {
    traces: PathBuf,
    /// Where Java finds Alloy and the judge.
    classes: OsString,
    folder: PathBuf,
}

impl Tools {
    fn ready() -> io::Result<Tools> {
        let alloy = formal::fetched_jar()?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "--package", "fermata-sim", "--example", "traces"];
        let status = Command::new(cargo)
            .args(build)
            .current_dir(root())
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!(
                "the simulator was not built: {status}"
            )));
        }
        let folder = root().join("target").join("formal").join("traces");
        fs::create_dir_all(&folder)?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| root().join("target"));
        let traces = target.join("debug").join("examples").join("traces");
        let classes = compiled(&alloy)?;
        Ok(Tools {
            traces,
            classes,
            folder,
        })
    }

    /// Plays, and writes the traces to a file.
    fn play(&self, file: &Path, what: &[&str], into: &mut Told) -> io::Result<()> {
        let mut command = Command::new(&self.traces);
        let output = command
            .arg(file)
            .args(what)
            .stderr(Stdio::inherit())
            .output()?;
        into.hear(&text_of(&output)?);
        match output.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "the simulator: {}",
                output.status
            ))),
        }
    }

    /// Judges files of traces by a model.
    fn judge(&self, model: &Path, files: &[PathBuf], into: &mut Told) -> io::Result<()> {
        let mut java = Command::new("java");
        java.args(["-Xmx2g", "-XX:+UseSerialGC", "-cp"]);
        java.arg(&self.classes).arg("Validate");
        java.arg(model).args(files).stdin(Stdio::null());
        let output = java.stderr(Stdio::piped()).output()?;
        into.hear(&text_of(&output)?);
        // 1: some step was refused. Anything else is no judgement.
        if !matches!(output.status.code(), Some(0 | 1)) || !into.judged {
            let error = String::from_utf8_lossy(&output.stderr);
            let error: Vec<&str> = error.lines().filter(|l| !l.contains("INFO")).collect();
            let error = error.join("\n");
            return Err(io::Error::other(format!(
                "the judge: {}\n{error}",
                output.status
            )));
        }
        Ok(())
    }
}

/// Compiles the judge; the class path.
fn compiled(alloy: &Path) -> io::Result<OsString> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("formal").join("trace"))? {
        sources.push(entry?.path());
    }
    sources.retain(|path| path.extension().is_some_and(|e| e == "java"));
    let into = root().join("target").join("formal").join("judge");
    fs::create_dir_all(&into)?;
    let mut javac = Command::new("javac");
    javac
        .arg("-cp")
        .arg(alloy)
        .arg("-d")
        .arg(&into)
        .args(sources);
    let output = javac.output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!(
            "the judge was not compiled:\n{error}"
        )));
    }
    std::env::join_paths([alloy, into.as_path()]).map_err(io::Error::other)
}

fn text_of(output: &Output) -> io::Result<String> {
    String::from_utf8(output.stdout.clone()).map_err(io::Error::other)
}

fn model() -> PathBuf {
    root().join("formal/critical/invariants.als")
}

/// What the two programs said.
#[derive(Default)]
struct Told {
    /// Runs, keys, steps, disagreements of the mapping; traces, steps, invariants and comparisons
    /// of the judge.
    sums: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
    /// Keys and facts left out, by why.
    left_out: BTreeMap<String, (u64, u64)>,
    /// Disagreements and refusals, with the lines that belong to them.
    failures: Vec<String>,
    judged: bool,
}

impl Told {
    fn hear(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok());
            match words[0] {
                "WRONG" | "FAIL" => self.failures.push(line.to_owned()),
                "mapped" | "judged" => {
                    self.judged |= words[0] == "judged";
                    for pair in words[1..].chunks(2) {
                        let name = format!("{} {}", words[0], pair[0]);
                        let count = pair.get(1).and_then(|w| w.parse::<u64>().ok());
                        *self.sums.entry(name).or_default() += count.unwrap_or(0);
                    }
                }
                "event" => {
                    *self.events.entry(words[1].to_owned()).or_default() += number(2).unwrap_or(0);
                }
                "left" => {
                    let left = self.left_out.entry(words[4..].join(" ")).or_default();
                    left.0 += number(2).unwrap_or(0);
                    left.1 += number(3).unwrap_or(0);
                }
                // What belongs to the failure before it.
                _ => {
                    if let Some(failure) = self.failures.last_mut() {
                        failure.push('\n');
                        failure.push_str(line);
                    }
                }
            }
        }
    }

    fn add(&mut self, other: Told) {
        for (name, count) in other.sums {
            *self.sums.entry(name).or_default() += count;
        }
        for (name, count) in other.events {
            *self.events.entry(name).or_default() += count;
        }
        for (why, (keys, facts)) in other.left_out {
            let left = self.left_out.entry(why).or_default();
            left.0 += keys;
            left.1 += facts;
        }
        self.failures.extend(other.failures);
    }

    fn sum(&self, name: &str) -> u64 {
        self.sums.get(name).copied().unwrap_or(0)
    }
}

/// Judges seeds with the right rules.
fn seeds(first: u64, count: u64) -> io::Result<bool> {
    let tools = Tools::ready()?;
    let start = Instant::now();
    let part = |index: u64| {
        let from = first + index * count / PARTS;
        let to = first + (index + 1) * count / PARTS;
        let mut told = Told::default();
        if from < to {
            let file = tools.folder.join(format!("part{index}.txt"));
            let words = ["seeds", &from.to_string(), &(to - from).to_string()];
            tools.play(&file, &words, &mut told)?;
            tools.judge(&model(), &[file], &mut told)?;
        }
        Ok(told)
    };
    let parts: Vec<io::Result<Told>> = std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..PARTS).map(|i| scope.spawn(move || part(i))).collect();
        let parts = threads
            .into_iter()
            .map(|t| t.join().expect("no part panics"));
        parts.collect()
    });
    let mut told = Told::default();
    for part in parts {
        told.add(part?);
    }
    let all = count >= SEEDS;
    if all {
        scenarios(&tools, &mut told)?;
    }
    let holds = print(&told, all);
    if count == 1 {
        println!(
            "its trace, and what happened: {}/part*",
            tools.folder.display()
        );
    }
    println!("{} s", start.elapsed().as_secs());
    Ok(holds)
}

/// Judges the scenarios with the right rules: what seeds come upon rarely is in them.
fn scenarios(tools: &Tools, into: &mut Told) -> io::Result<()> {
    let file = tools.folder.join("scenarios.txt");
    let mut told = Told::default();
    tools.play(&file, &["scenarios"], &mut told)?;
    tools.judge(&model(), &[file], &mut told)?;
    into.add(told);
    Ok(())
}

/// Says what was judged; whether all holds.
fn print(told: &Told, all: bool) -> bool {
    for failure in told.failures.iter().take(SHOWN) {
        println!("{failure}");
    }
    println!(
        "{} runs, {} keys, {} steps judged, {} conjuncts of the invariant after them, {} compared \
         with Alloy's evaluator",
        told.sum("mapped runs"),
        told.sum("mapped keys"),
        told.sum("judged steps"),
        told.sum("judged invariants"),
        told.sum("judged compared"),
    );
    for (name, count) in &told.events {
        println!("  {name:14} {count:6}");
    }
    for (why, (keys, facts)) in &told.left_out {
        match keys {
            0 => println!("no event: {facts} facts: {why}"),
            _ => println!("left out: {keys} keys, with {facts} facts from there on: {why}"),
        }
    }
    // Nobody would see that the code does it no more, or that the model has a new one.
    let missing = told.events.iter().filter(|(_, count)| **count == 0);
    let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
    if !missing.is_empty() {
        println!("never seen: {}", missing.join(", "));
    }
    let failed = told.failures.len() + if all { missing.len() } else { 0 };
    let passed = told.sum("judged traces").saturating_sub(failed as u64);
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed");
    failed == 0
}

/// Shows that the judge refuses what is wrong.
fn planted() -> io::Result<bool> {
    let tools = Tools::ready()?;
    let start = Instant::now();
    let mut missed = wrong_rules(&tools)?;
    missed += wrong_words(&tools)?;
    let all = PLANTED.len() + WRONG_WORDS.len();
    println!(
        "{all} wrong rules and words in {} s",
        start.elapsed().as_secs()
    );
    let word = if missed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {word}. {} passed; {missed} failed",
        all - missed
    );
    Ok(missed == 0)
}

/// How many wrong rules are not refused at their event.
fn wrong_rules(tools: &Tools) -> io::Result<usize> {
    let mut files = Vec::new();
    let mut told = Told::default();
    for (bug, scenario, _) in PLANTED {
        let file = tools.folder.join(format!("{bug}.txt"));
        tools.play(&file, &["scenario", scenario, bug], &mut Told::default())?;
        files.push(file);
    }
    tools.judge(&model(), &files, &mut told)?;
    let mut missed = 0;
    for (bug, scenario, event) in PLANTED {
        let run = format!("FAIL scenario {scenario} with {bug} ");
        let failure = told.failures.iter().find(|f| f.starts_with(&run));
        missed += usize::from(!refused(bug, event, failure));
    }
    Ok(missed)
}

/// How many wrong words are not seen.
fn wrong_words(tools: &Tools) -> io::Result<usize> {
    let file = tools.folder.join("right.txt");
    tools.play(&file, &["seeds", "0", "8"], &mut Told::default())?;
    let text = fs::read_to_string(root().join("formal/critical/events.als"))?;
    let mut missed = 0;
    for (right, wrong, event) in WRONG_WORDS {
        let name = wrong.trim();
        if !text.contains(right) {
            println!("{name:36} the text has no `{}` any more", right.trim());
            missed += 1;
            continue;
        }
        let folder = tools.folder.join("wrong");
        fs::create_dir_all(&folder)?;
        for module in ["state.als", "invariants.als"] {
            let from = root().join("formal/critical").join(module);
            fs::copy(from, folder.join(module))?;
        }
        fs::write(folder.join("events.als"), text.replacen(right, wrong, 1))?;
        let mut told = Told::default();
        let model = folder.join("invariants.als");
        tools.judge(&model, std::slice::from_ref(&file), &mut told)?;
        let says = format!("event {event}[");
        let failure = told.failures.iter().find(|f| f.contains(&says));
        missed += usize::from(!refused(name, event, failure));
    }
    Ok(missed)
}

/// Says whether a wrong thing was refused at its event.
fn refused(name: &str, event: &str, failure: Option<&String>) -> bool {
    let says = format!("event {event}[");
    let first = failure.and_then(|f| f.lines().next()).unwrap_or_default();
    let found = first.contains(&says);
    let what = first.split_once(": ").map_or(first, |(_, what)| what);
    let short: String = what.chars().take(120).collect();
    match found {
        true => println!("{name:36} {short}"),
        false => println!("{name:36} NOT REFUSED at {event}: {short}"),
    }
    found
}
