//! `cargo xtask formal traces`: checks that what the simulator does is what the model of critical
//! sections says.
//!
//! **Problem.** The model is proved and the code is tested, and nothing says that the one is a
//! model of the other: each can be changed alone.
//!
//! **Idea.** The simulator writes down, for each key of each seed, which event of the model each
//! step is (`crates/sim/src/model`); `formal/trace` evaluates the model's own text over every step.
//! This task runs both, on as many seeds as it is told and on every scenario, and says what was
//! judged, how often each event occurred and each case (`formal/critical/cases.als`) was met,
//! and what was left out and why.
//!
//! **Invariant.** A judge that never refuses proves nothing: `--planted` shows that it refuses,
//! each time at a named event, runs of the simulator with one wrong rule, and runs with the right
//! rules under a text with one wrong word. Neither does a mapping that maps nothing: an event, or a
//! case, that is met by no step is a failure, and `--planted` shows that, too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Instant;

use crate::gate::{LABORATORY, root};
use crate::java::{self, Scratch, at, complaint, is_stack, shown};

/// Seeds, unless told otherwise.
const SEEDS: u64 = 200;

/// Parts that are played and judged at the same time.
const PARTS: u64 = 2;

/// What is told at most of each kind of failure.
const SHOWN: usize = 5;

/// A wrong rule, the scenario in which it shows, and the event that the judge refuses.
const PLANTED: [(&str, &str, &str); 35] = [
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
    (
        "leaving-put-taken-as-done",
        "f5-put-beside-leave",
        "leaveDirty",
    ),
    ("leaving-put-said-early", "f5-put-beside-leave", "putDone"),
    ("put-done-unconditional", "f18-late-word", "putDone"),
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
    ("flush-skipped", "flush", "attemptRead"),
    ("lost-disk-rejoins", "lost-disk", "attemptRead"),
    ("register-quorum-too-small", "quorum", "ack"),
    ("no-deduplication", "f2-command-twice", "handOver"),
    ("reader-leaves-no-flag", "g9-front-dies", "release"),
    (
        "eventual-put-in-critical-cell",
        "f6-eventual-put-under-lock",
        "getEnd",
    ),
    ("repair-at-once", "g8-damaged-record", "entryEnd"),
    ("fenced-taken-as-holder", "g22-fenced-member", "entryEnd"),
    ("tombstone-buried-early", "f8f-absent-member", "entryEnd"),
    ("repair-without-floor", "f8f-late-repair", "entryEnd"),
    ("stop-without-seal", "ring-stale-coordinator", "getEnd"),
    ("buried-beside-source", "ring-delete", "entryEnd"),
    ("synch-below-source", "ring-low-synch", "attemptRead"),
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
        "  e.reader in heads\n",
        "  e.reader in heads - head\n",
        "entryBegin",
    ),
    ("  some handed[r]\n", "  no handed[r]\n", "handOver"),
];

/// A case that runs with the right rules meet, and what is added to the text: one that none can.
const CASE: &str = "enqueue_waits";
/// See [`CASE`].
const NO_CASE: (&str, &str) = (
    "enqueue_never",
    "pred enqueue_never[r: Ref] { some queued and no queued }\n",
);

/// Runs `[--seeds N | --seed N | --planted]`.
pub(crate) fn run(arguments: &[&str]) -> ExitCode {
    let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n > 0);
    let what = match arguments {
        [] => What::Seeds(SEEDS),
        ["--seeds", count] => match number(count) {
            Some(count) => What::Seeds(count),
            None => return usage(),
        },
        ["--seed", seed] => match seed.parse() {
            Ok(seed) => What::Seed(seed),
            Err(_) => return usage(),
        },
        ["--planted"] => What::Planted,
        _ => return usage(),
    };
    match judged(&what) {
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

/// What is judged.
enum What {
    /// So many seeds, from the first; and every scenario, unless they are few.
    Seeds(u64),
    /// One, to look at.
    Seed(u64),
    Planted,
}

/// Whether all is as it should be. Where it is not, the traces stay.
fn judged(what: &What) -> io::Result<bool> {
    let start = Instant::now();
    let tools = Tools::ready()?;
    let result = match *what {
        What::Seeds(count) => seeds(&tools, count),
        What::Seed(seed) => one(&tools, seed),
        What::Planted => planted(&tools),
    };
    let kept = match (&result, what) {
        (Ok(_), What::Planted) => Some("planted".to_owned()),
        (Ok(true), _) => None,
        _ => Some(format!("traces-failed-{}", std::process::id())),
    };
    if let Some(name) = kept {
        println!("its traces: {}", shown(&tools.scratch.keep(&name)));
    }
    println!("{} s", start.elapsed().as_secs());
    result
}

/// The two programs and the text.
struct Tools {
    traces: PathBuf,
    /// Where Java finds Alloy and the judge.
    classes: OsString,
    scratch: Scratch,
}

impl Tools {
    fn ready() -> io::Result<Tools> {
        java::programs(true)?;
        let scratch = Scratch::new("traces")?;
        let alloy = java::fetched_jar(&scratch)?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .arg("build")
            .args(&LABORATORY[1..])
            .args(["--example", "traces"])
            .current_dir(root())
            .status()?;
        if !status.success() {
            let error = format!("the simulator was not built: {status}");
            return Err(io::Error::other(error));
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| root().join("target"));
        let traces = target.join("debug").join("examples").join("traces");
        let classes = compiled(&alloy, &scratch.path.join("judge"))?;
        Ok(Tools {
            traces,
            classes,
            scratch,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path.join(format!("{name}.txt"))
    }

    /// Plays, and writes the traces to a file.
    fn play(&self, file: &Path, what: &[&str], into: &mut Told) -> io::Result<()> {
        let mut command = java::child(&self.traces);
        command.arg(file).args(what).stderr(Stdio::inherit());
        let output = command.output()?;
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
        let mut java = java::java();
        java.arg("-cp").arg(&self.classes).arg("Validate");
        java.arg(model).args(files);
        let output = java.stderr(Stdio::piped()).output()?;
        into.hear(&text_of(&output)?);
        // 1: some step was refused. Anything else is no judgement.
        if !matches!(output.status.code(), Some(0 | 1)) || !into.judged {
            let said = complaint(&String::from_utf8_lossy(&output.stderr));
            let error = format!("the judge: {}: {said}", output.status);
            return Err(io::Error::other(error));
        }
        Ok(())
    }
}

/// Compiles the judge into a folder; the class path.
fn compiled(alloy: &Path, into: &Path) -> io::Result<OsString> {
    let from = root().join("formal").join("trace");
    let mut sources = Vec::new();
    for entry in fs::read_dir(&from).map_err(at(&from))? {
        sources.push(entry?.path());
    }
    sources.retain(|path| path.extension().is_some_and(|e| e == "java"));
    fs::create_dir_all(into).map_err(at(into))?;
    let mut javac = Command::new("javac");
    javac.arg("-cp").arg(alloy).arg("-d").arg(into);
    let output = javac.args(sources).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = match said.contains("zip END header") {
            true => complaint(&said),
            false => said
                .lines()
                .filter(|line| !is_stack(line))
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let error = format!("the judge was not compiled: {said}");
        return Err(io::Error::other(error));
    }
    std::env::join_paths([alloy, into]).map_err(io::Error::other)
}

fn text_of(output: &Output) -> io::Result<String> {
    String::from_utf8(output.stdout.clone()).map_err(io::Error::other)
}

/// The text by which traces are judged: the cases, and all that they open.
fn model() -> PathBuf {
    root().join("formal/critical/cases.als")
}

/// What the two programs said.
#[derive(Default)]
struct Told {
    /// Runs, keys, steps, disagreements of the mapping; traces, steps, invariants and comparisons
    /// of the judge.
    sums: BTreeMap<String, u64>,
    events: BTreeMap<String, u64>,
    /// How many steps have met each case.
    cases: BTreeMap<String, u64>,
    /// Keys and facts left out, by what is left out (`whole`, `rest`, `fact`) and why.
    left_out: BTreeMap<(String, String), (u64, u64)>,
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
                "event" | "case" => {
                    let counts = match words[0] {
                        "event" => &mut self.events,
                        _ => &mut self.cases,
                    };
                    *counts.entry(words[1].to_owned()).or_default() += number(2).unwrap_or(0);
                }
                "left" => {
                    let why = (words[1].to_owned(), words[4..].join(" "));
                    let left = self.left_out.entry(why).or_default();
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
        for (name, count) in other.cases {
            *self.cases.entry(name).or_default() += count;
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

    /// Events and cases that no step has met: nobody would see that the code does it no more, that
    /// the mapping has lost it, or that the model has a new one.
    fn never(&self) -> Vec<&str> {
        let counts = self.events.iter().chain(&self.cases);
        let never = counts.filter(|(_, count)| **count == 0);
        never.map(|(name, _)| name.as_str()).collect()
    }
}

/// Judges seeds with the right rules, and all scenarios unless the seeds are few: what seeds come
/// upon rarely is in them.
fn seeds(tools: &Tools, count: u64) -> io::Result<bool> {
    let all = count >= SEEDS;
    let mut parts = Vec::new();
    for index in 0..PARTS {
        let (from, to) = (index * count / PARTS, (index + 1) * count / PARTS);
        if from < to {
            parts.push(format!("seeds {from} {}", to - from));
        }
    }
    parts.extend(all.then(|| "scenarios".to_owned()));
    let play = |part: &str| {
        let mut told = Told::default();
        let words: Vec<&str> = part.split(' ').collect();
        play_and_judge(tools, &tools.file(&words.join("-")), &words, &mut told)?;
        Ok(told)
    };
    let parts: Vec<io::Result<Told>> = std::thread::scope(|scope| {
        let play = &play;
        let threads = parts.iter().map(|part| scope.spawn(move || play(part)));
        let threads: Vec<_> = threads.collect();
        let parts = threads.into_iter();
        parts.map(|t| t.join().expect("no part panics")).collect()
    });
    let mut told = Told::default();
    for part in parts {
        told.add(part?);
    }
    let what = match all {
        true => format!("seeds 0 to {}, and every scenario", count - 1),
        false => format!("seeds 0 to {}", count - 1),
    };
    Ok(print(&told, &what, all))
}

/// Judges one seed, whose trace and readable log stay under a name of its own.
fn one(tools: &Tools, seed: u64) -> io::Result<bool> {
    let folder = java::folder().join("traces");
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    let file = folder.join(format!("seed-{seed}.txt"));
    let mut told = Told::default();
    play_and_judge(tools, &file, &["seeds", &seed.to_string(), "1"], &mut told)?;
    let holds = print(&told, &format!("seed {seed}"), false);
    let file = shown(&file);
    println!("its trace: {file}\nwhat happened in it: {file}.log");
    Ok(holds)
}

fn play_and_judge(tools: &Tools, file: &Path, what: &[&str], into: &mut Told) -> io::Result<()> {
    tools.play(file, what, into)?;
    tools.judge(&model(), &[file.to_owned()], into)
}

/// Says what was judged; whether all holds. `all`: whether every event and case is to occur.
fn print(told: &Told, what: &str, all: bool) -> bool {
    for failure in told.failures.iter().take(SHOWN) {
        println!("{failure}");
    }
    if told.failures.len() > SHOWN {
        println!("… and {} failures more", told.failures.len() - SHOWN);
    }
    println!(
        "runs of the simulator: {}, {what}\n{} traces, one for each key of sections in a run; {} \
         steps in them\n{} conjuncts of the invariant after these; {} steps put to Alloy's \
         evaluator, too",
        told.sum("mapped runs"),
        told.sum("judged traces"),
        told.sum("judged steps"),
        told.sum("judged invariants"),
        told.sum("judged compared"),
    );
    for (name, count) in &told.events {
        println!("  {name:14} {count:6}");
    }
    println!("  learn            none: what it moves is looked at by the published rules alone");
    println!("cases of these:");
    for (name, count) in &told.cases {
        println!("  {name:24} {count:6}");
    }
    for ((what, why), (keys, facts)) in &told.left_out {
        match what.as_str() {
            "whole" => println!("no trace: {keys} keys, with {facts} facts: {why}"),
            "rest" => println!("trace ends early: {keys} keys, {facts} facts after it: {why}"),
            _ => println!("no event: {facts} facts: {why}"),
        }
    }
    println!("(A fact is one thing that the simulator has written down of a run.)");
    let mut failed = told.failures.len();
    if told.sum("mapped traces") != told.sum("judged traces") {
        println!(
            "WRONG: the simulator wrote {} traces, and {} were judged",
            told.sum("mapped traces"),
            told.sum("judged traces")
        );
        failed += 1;
    }
    let never = told.never();
    if all && !never.is_empty() {
        println!("never seen: {}", never.join(", "));
        failed += never.len();
    }
    let passed = told.sum("judged traces").saturating_sub(failed as u64);
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed");
    failed == 0
}

/// Shows that the judge refuses what is wrong.
fn planted(tools: &Tools) -> io::Result<bool> {
    let missed = wrong_rules(tools)? + wrong_words(tools)?;
    let all = PLANTED.len() + WRONG_WORDS.len() + 1;
    let word = if missed == 0 { "ok" } else { "FAILED" };
    let passed = all - missed;
    println!("test result: {word}. {passed} passed; {missed} failed");
    Ok(missed == 0)
}

/// How many wrong rules are not refused at their event.
fn wrong_rules(tools: &Tools) -> io::Result<usize> {
    let mut files = Vec::new();
    let mut told = Told::default();
    head("wrong rule of the code");
    for (bug, scenario, _) in PLANTED {
        let file = tools.file(bug);
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

/// How many wrong words are not seen; and whether a case is not that nothing meets.
fn wrong_words(tools: &Tools) -> io::Result<usize> {
    let file = tools.file("right");
    println!();
    head("wrong word of the model: right -> wrong");
    tools.play(&file, &["seeds", "0", "8"], &mut Told::default())?;
    let text = fs::read_to_string(root().join("formal/critical/events.als"))?;
    let cases = fs::read_to_string(model())?;
    let judge = |told: &mut Told, events: &str, cases: &str| {
        let folder = tools.scratch.path.join("wrong");
        fs::create_dir_all(&folder)?;
        for module in ["state.als", "invariants.als"] {
            let from = root().join("formal/critical").join(module);
            fs::copy(from, folder.join(module))?;
        }
        fs::write(folder.join("events.als"), events)?;
        let model = folder.join("cases.als");
        fs::write(&model, cases)?;
        tools.judge(&model, std::slice::from_ref(&file), told)
    };
    let mut missed = 0;
    for (right, wrong, event) in WRONG_WORDS {
        let name = format!("{} -> {}", right.trim(), wrong.trim());
        if !text.contains(right) {
            println!(
                "{name}: NOT REFUSED: the model has no `{}` any more",
                right.trim()
            );
            missed += 1;
            continue;
        }
        let mut told = Told::default();
        judge(&mut told, &text.replacen(right, wrong, 1), &cases)?;
        let says = format!("event {event}[");
        let failure = told.failures.iter().find(|f| f.contains(&says));
        missed += usize::from(!refused(&name, event, failure));
    }
    let mut told = Told::default();
    let (name, case) = NO_CASE;
    judge(&mut told, &text, &(cases + case))?;
    let never = told.never();
    let seen = never.contains(&name) && !never.contains(&CASE) && told.failures.is_empty();
    let word = if seen { "never seen" } else { "NOT REFUSED" };
    println!("{word}: {name}, a case that no step can meet");
    Ok(missed + usize::from(!seen))
}

fn head(what: &str) {
    println!(
        "{:14} {:14} {:29} {what}",
        "refused at", "by the text of", "in"
    );
}

/// Says whether a wrong thing was refused at its event, and what the judge says of it.
fn refused(name: &str, event: &str, failure: Option<&String>) -> bool {
    let first = failure.and_then(|f| f.lines().next()).unwrap_or_default();
    if !first.contains(&format!("event {event}[")) {
        println!("{event:14} NOT REFUSED: {name}: {first}");
        return false;
    }
    // `FAIL scenario NAME with BUG key K step N: event … not `TEXT` (FILE line N)`
    let run = first.trim_start_matches("FAIL ");
    let run = run.trim_start_matches("scenario ");
    let run = run
        .split([' ', ':'])
        .take(if run.starts_with("seed") { 2 } else { 1 });
    let run = run.collect::<Vec<_>>().join(" ");
    let (text, place) = first.rsplit_once(" (").unwrap_or((first, ""));
    let place = place.trim_end_matches(')').replace(" line ", ":");
    let text = text.split_once(": not ").map_or(text, |(_, text)| text);
    println!("{event:14} {place:14} {run:29} {name}");
    println!("{:14} not {text}", "");
    true
}
