//! What the command line offers: list, run, report.

use crate::checkers::{Kind, Violation};
use crate::random::Run;
use crate::{planted, random, scenarios, trace};
use bytes::Bytes;
use fermata_protocol::base::{Bug, KeyId};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Seeds that are tried for a planted bug that no scenario catches. Some wrong rules show only in a
/// coincidence that nobody has staged; every one that is known shows within so many seeds.
const SEEDS_FOR_A_BUG: u64 = 500;

/// What can be run by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Scenarios, in the order of the faults that they play.
    pub scenarios: Vec<String>,
    /// Wrong rules that can be switched on.
    pub planted_bugs: Vec<String>,
}

/// The names of all scenarios and of all planted bugs.
pub fn list() -> Listing {
    Listing {
        scenarios: scenarios::all().map(|s| s.name.to_owned()).collect(),
        planted_bugs: planted::all().map(|bug| bug.to_string()).collect(),
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Seeds or scenarios done.
    pub done: u64,
    /// Of so many.
    pub of: u64,
    /// Failures so far.
    pub failures: u64,
    /// Virtual time so far, microseconds.
    pub virtual_time: u64,
}

/// What to run.
#[derive(Default)]
pub struct Options<'a> {
    /// So many seeds, from 0, or from `seed` if that is given; 0 with a `seed`: that seed alone; 0
    /// without: all scenarios and no seed, unless a `planted_bug` is given that no scenario
    /// catches: then seeds from 0 until one does, at most 500.
    pub seeds: u64,
    /// The first seed.
    pub seed: Option<u64>,
    /// One scenario by name, instead of seeds.
    pub scenario: Option<String>,
    /// A wrong rule that is switched on.
    pub planted_bug: Option<String>,
    /// Keep the trace and the registers even of runs that do not fail (of the last run).
    pub trace: bool,
    /// Called after every run.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

/// One run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `seed 17` or the scenario's name: what to give to the command to see it again.
    pub run: String,
    /// What was violated, worst first.
    pub violations: Vec<Violation>,
}

/// What was run and what came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seeds or scenarios run.
    pub runs: u64,
    /// Those that failed.
    pub failures: Vec<Failure>,
    /// Virtual time of all runs, microseconds.
    pub virtual_time: u64,
    /// Of all runs, see [`Run::moves`].
    pub moves: u64,
    /// Real time.
    pub wall: Duration,
    /// The readable trace of the first run that failed, or, if asked for, of the last run.
    pub trace: Option<String>,
    /// What was done with each register in the run of the trace, times in microseconds.
    pub registers: BTreeMap<KeyId, Vec<fermata_check::Operation<Bytes>>>,
}

impl Report {
    /// How many simulated hours one minute of running covered.
    pub fn hours_per_minute(&self) -> f64 {
        let hours = self.virtual_time as f64 / 3_600e6;
        hours / (self.wall.as_secs_f64().max(1e-9) / 60.0)
    }
}

/// One thing to run.
#[derive(Clone, Copy)]
enum Job {
    Seed(u64),
    Scenario(&'static scenarios::Scenario),
}

impl Job {
    fn name(self) -> String {
        match self {
            Job::Seed(seed) => format!("seed {seed}"),
            Job::Scenario(scenario) => scenario.name.to_owned(),
        }
    }

    /// Runs it; a panic of the code under test is a violation of its own kind.
    fn run(self, bug: Option<Bug>, keep: bool) -> Run {
        let run = || match self {
            Job::Seed(seed) => random::run(seed, bug, keep),
            Job::Scenario(scenario) => scenarios::run(scenario, bug, keep),
        };
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            let detail = text.unwrap_or_else(|| "a panic without a message".to_owned());
            let violation = Violation {
                kind: Kind::Crash,
                property: "crash",
                detail,
            };
            Run {
                violations: vec![violation],
                virtual_time: 0,
                events: 0,
                moves: 0,
                trace: trace::take_stashed(),
                observer: None,
                registers: BTreeMap::new(),
            }
        })
    }
}

/// Runs seeds or scenarios.
///
/// # Errors
/// One sentence, when there is no scenario or bug of that name; nothing was run.
pub fn run(options: Options<'_>) -> Result<Report, String> {
    let bug = options
        .planted_bug
        .as_deref()
        .map(planted::named)
        .transpose()?;
    let (jobs, until_caught) = jobs(&options)?;
    let begin = Instant::now();
    let mut report = Report {
        runs: 0,
        failures: Vec::new(),
        virtual_time: 0,
        moves: 0,
        wall: Duration::ZERO,
        trace: None,
        registers: BTreeMap::new(),
    };
    let mut progress = options.progress;
    let of = jobs.len() as u64;
    for job in jobs {
        let searching = until_caught && matches!(job, Job::Seed(_));
        if searching && !report.failures.is_empty() {
            break;
        }
        let run = job.run(bug, options.trace);
        report.runs += 1;
        report.virtual_time += run.virtual_time;
        report.moves += run.moves;
        if report.failures.is_empty() && options.trace {
            report.trace = run.trace;
            report.registers = run.registers;
        }
        if !run.violations.is_empty() {
            if report.failures.is_empty() && report.trace.is_none() {
                // The same again, byte for byte, with its text.
                let again = job.run(bug, true);
                (report.trace, report.registers) = (again.trace, again.registers);
            }
            let mut violations = run.violations;
            violations.sort_by_key(|v| v.kind);
            report.failures.push(Failure {
                run: job.name(),
                violations,
            });
        }
        if let Some(progress) = &mut progress {
            progress(Progress {
                done: report.runs,
                of,
                failures: report.failures.len() as u64,
                virtual_time: report.virtual_time,
            });
        }
    }
    report.wall = begin.elapsed();
    Ok(report)
}

/// What to run, and whether seeds among it are only run until something is violated.
fn jobs(options: &Options<'_>) -> Result<(Vec<Job>, bool), String> {
    if let Some(name) = &options.scenario {
        let scenario = scenarios::named(name).ok_or_else(|| {
            format!("There is no scenario {name}: `--list` names them. Nothing was run.")
        })?;
        return Ok((vec![Job::Scenario(scenario)], false));
    }
    if options.seeds == 0 && options.seed.is_none() {
        let mut jobs: Vec<Job> = scenarios::all().map(Job::Scenario).collect();
        let until_caught = options.planted_bug.is_some();
        if until_caught {
            jobs.extend((0..SEEDS_FOR_A_BUG).map(Job::Seed));
        }
        return Ok((jobs, until_caught));
    }
    let first = options.seed.unwrap_or(0);
    let last = first.saturating_add(options.seeds.max(1));
    Ok(((first..last).map(Job::Seed).collect(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plan of a run with this planted bug: scenarios, seeds, and whether to stop early.
    fn plan(bug: Option<&str>, seeds: u64) -> (usize, usize, bool) {
        let options = Options {
            seeds,
            planted_bug: bug.map(str::to_owned),
            ..Options::default()
        };
        let (jobs, until_caught) = jobs(&options).expect("it can be run");
        let seeds = jobs.iter().filter(|j| matches!(j, Job::Seed(_))).count();
        (jobs.len() - seeds, seeds, until_caught)
    }

    #[test]
    fn a_planted_bug_alone_is_looked_for_in_seeds_too() {
        let all = scenarios::all().count();
        assert_eq!(plan(None, 0), (all, 0, false));
        let searched = SEEDS_FOR_A_BUG as usize;
        assert_eq!(plan(Some("noop-over-accepted"), 0), (all, searched, true));
        assert_eq!(plan(Some("noop-over-accepted"), 7), (0, 7, false));
    }
}
