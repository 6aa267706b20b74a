//! `fermata-lab sim`: the deterministic simulator.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fermata_check::{Ending, Operation, file};
use fermata_sim::checkers::Kind;
use fermata_sim::{Options, Progress, Report};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::{Failure, print};

/// Exit statuses of runs that failed.
const BROKEN: u8 = 1;
const PANICKED: u8 = 70;
const NO_PROGRESS: u8 = 71;

/// See `fermata-lab sim --help`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// List the scenarios and the planted bugs.
    #[arg(long)]
    list: bool,
    /// Run this many random schedules, from seed 0, or from --seed.
    #[arg(long, value_name = "N", conflicts_with = "scenario")]
    seeds: Option<u64>,
    /// Run this seed, and print its trace if it fails.
    #[arg(long, value_name = "S", conflicts_with = "scenario")]
    seed: Option<u64>,
    /// Run this scenario instead of random schedules.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Switch one wrong rule on, which must be caught.
    #[arg(long, value_name = "NAME")]
    planted_bug: Option<String>,
    /// Write what was done with each register to this file, for `fermata check`: of the first run
    /// that fails, or else of the last.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    record: Option<PathBuf>,
}

/// Runs seeds or scenarios. Exit status 0 only if nothing was violated.
pub(crate) fn run(as_json: bool, args: &SimArgs) -> Result<u8, Failure> {
    if args.list {
        return list(as_json).map(|()| 0);
    }
    let one_seed = args.seed.is_some() && args.seeds.unwrap_or(0) <= 1;
    let alone = one_seed || args.scenario.is_some();
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos}/{len} {msg}")
            .expect("the template is well-formed")
            .progress_chars("=> "),
    );
    let mut show = |progress: Progress| {
        bar.set_length(progress.of);
        bar.set_position(progress.done);
        let hours = progress.virtual_time as f64 / 3.6e9;
        bar.set_message(format!(
            "{hours:.1} h simulated, {} failed",
            progress.failures
        ));
    };
    let options = Options {
        seeds: args.seeds.unwrap_or(0),
        seed: args.seed,
        scenario: args.scenario.clone(),
        planted_bug: args.planted_bug.clone(),
        trace: args.record.is_some(),
        progress: Some(&mut show),
    };
    let report = fermata_sim::run(options).map_err(Failure::Usage)?;
    bar.finish_and_clear();
    if let Some(path) = &args.record {
        record(path, &report).map_err(|error| Failure::Local(path.display().to_string(), error))?;
    }
    if as_json {
        print(format_args!("{:#}", json_of(&report)))?;
    } else {
        print(in_words(&report, args, alone))?;
    }
    Ok(status(&report))
}

/// Writes the registers' history; its times are nanoseconds.
fn record(path: &Path, report: &Report) -> io::Result<()> {
    let mut to = io::BufWriter::new(std::fs::File::create(path)?);
    file::write_head(&mut to)?;
    for (key, operations) in &report.registers {
        for operation in operations {
            let outcome = match operation.outcome {
                Ending::Ok { returned } => Ending::Ok {
                    returned: returned * 1_000,
                },
                other => other,
            };
            let operation = Operation {
                call: operation.call * 1_000,
                outcome,
                ..operation.clone()
            };
            let name = [
                &key.keyspace.0.to_string().into_bytes(),
                &b"/"[..],
                &key.key,
            ]
            .concat();
            file::write_operation(&mut to, &name, &operation)?;
        }
    }
    to.flush()
}

fn list(as_json: bool) -> Result<(), Failure> {
    let names = fermata_sim::list();
    if as_json {
        let names = json!({
            "scenarios": names.scenarios,
            "planted_bugs": names.planted_bugs,
        });
        return print(format_args!("{names:#}"));
    }
    let lines: Vec<String> = (names.scenarios.into_iter().map(|name| ("scenario", name)))
        .chain(
            names
                .planted_bugs
                .into_iter()
                .map(|name| ("planted-bug", name)),
        )
        .map(|(kind, name)| format!("{kind} {name}"))
        .collect();
    print(lines.join("\n"))
}

/// A broken promise is worse than no progress, and that worse than a panic, which may be the
/// simulator's own.
fn status(report: &Report) -> u8 {
    let violations = report
        .failures
        .iter()
        .flat_map(|failure| &failure.violations);
    match violations.map(|violation| violation.kind).min() {
        None => 0,
        Some(Kind::Correctness) => BROKEN,
        Some(Kind::Liveness) => NO_PROGRESS,
        Some(Kind::Crash) => PANICKED,
    }
}

fn in_words(report: &Report, args: &SimArgs, alone: bool) -> String {
    let mut text = String::new();
    for failure in &report.failures {
        text += &format!("{}\n", failure.run);
        for violation in &failure.violations {
            text += &format!("    {}: {}\n", violation.property, violation.detail);
        }
        let bug = args.planted_bug.as_ref();
        let bug = bug.map_or(String::new(), |bug| format!(" --planted-bug {bug}"));
        let again = match failure.run.strip_prefix("seed ") {
            Some(seed) => format!("--seed {seed}"),
            None => format!("--scenario {}", failure.run),
        };
        text += &format!("    again, with its trace: fermata-lab sim {again}{bug}\n");
    }
    let failed = !report.failures.is_empty();
    if let (true, true, Some(trace)) = (alone, failed, &report.trace) {
        text = format!("{trace}\n{text}");
    }
    if let (Some(bug), true) = (&args.planted_bug, report.failures.is_empty()) {
        text += &format!("the planted bug {bug} was not caught\n");
    }
    let simulated = Duration::from_micros(report.virtual_time);
    let which = match (args.seed, args.seeds) {
        (first, Some(seeds)) if seeds > 1 => {
            let first = first.unwrap_or(0);
            format!(" (seeds {first} to {})", first.saturating_add(seeds - 1))
        }
        _ => String::new(),
    };
    text += &format!(
        "{} runs{which}, {} failed; {:.1} simulated hours in {:.1} s ({:.0} per minute)",
        report.runs,
        report.failures.len(),
        simulated.as_secs_f64() / 3600.0,
        report.wall.as_secs_f64(),
        report.hours_per_minute()
    );
    text
}

fn json_of(report: &Report) -> serde_json::Value {
    let failures: Vec<serde_json::Value> = (report.failures.iter())
        .map(|failure| {
            let violations: Vec<serde_json::Value> = (failure.violations.iter())
                .map(|violation| {
                    json!({ "property": violation.property, "detail": violation.detail })
                })
                .collect();
            json!({ "run": failure.run, "violations": violations })
        })
        .collect();
    json!({
        "runs": report.runs,
        "failures": failures,
        "simulated_seconds": report.virtual_time as f64 / 1e6,
        "seconds": report.wall.as_secs_f64(),
        "hours_per_minute": report.hours_per_minute(),
        "trace": report.trace.as_ref().filter(|_| !report.failures.is_empty()),
    })
}
