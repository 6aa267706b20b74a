//! Writes the traces of seeds, or of a scenario, for `formal/trace`.
//!
//! ```sh
//! traces FILE seeds FIRST COUNT [BUG]
//! traces FILE scenarios
//! traces FILE scenario NAME [BUG]
//! ```
//!
//! Of one seed alone the readable trace of its run is written beside, to FILE.log.

use fermata_sim::model::trace;
use fermata_sim::planted;
use fermata_sim::random::{self, Run};
use fermata_sim::scenarios;
use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match write(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let bug = |name: Option<&&str>| name.map(|n| planted::named(n)).transpose();
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let mut out = Out::default();
    let file = match words[..] {
        [file, "seeds", first, count, ref rest @ ..] => {
            let (first, count, bug) = (number(first)?, number(count)?, bug(rest.first())?);
            for seed in first..first + count {
                // Readers in batches are not in the model: in one half of the seeds there are none.
                let shared = (seed % 2 == 0).then_some(0);
                let mut run = random::observed(seed, bug, shared, count == 1);
                if let Some(text) = run.trace.take() {
                    let log = format!("{file}.log");
                    fs::write(&log, text).map_err(|e| format!("{log}: {e}"))?;
                }
                out.run(&format!("seed {seed}"), run);
            }
            file
        }
        [file, "scenarios"] => {
            for scenario in scenarios::all() {
                let name = format!("scenario {}", scenario.name);
                out.run(&name, scenarios::observed(scenario, None));
            }
            file
        }
        [file, "scenario", name, ref rest @ ..] => {
            let bug = bug(rest.first())?;
            let scenario = scenarios::named(name).ok_or(format!("no scenario {name}"))?;
            let with = bug.map_or(String::new(), |b| format!(" with {b}"));
            out.run(
                &format!("scenario {name}{with}"),
                scenarios::observed(scenario, bug),
            );
            file
        }
        _ => {
            return Err(
                "usage: traces FILE (seeds FIRST COUNT | scenarios | scenario NAME) [BUG]"
                    .to_owned(),
            );
        }
    };
    fs::write(file, &out.text).map_err(|e| format!("{file}: {e}"))?;
    println!(
        "mapped runs {} keys {} traces {} steps {} disagreements {}",
        out.runs, out.keys, out.traces, out.steps, out.wrong
    );
    for ((what, why), (keys, facts)) in &out.left_out {
        println!("left {what} {keys} {facts} {why}");
    }
    Ok(())
}

#[derive(Default)]
struct Out {
    text: String,
    runs: usize,
    keys: usize,
    /// Keys that have a trace: all that are not left out whole.
    traces: usize,
    steps: usize,
    wrong: usize,
    /// Keys and facts, by what is left out (`whole` keys, the `rest` of one, a `fact`) and why.
    left_out: BTreeMap<(&'static str, &'static str), (usize, usize)>,
}

impl Out {
    fn run(&mut self, name: &str, run: Run) {
        self.runs += 1;
        let Some(observer) = run.observer else { return };
        for key in observer.keys.keys() {
            let traced = trace(name, key, &observer);
            self.keys += 1;
            self.steps += traced.steps;
            self.traces += usize::from(!traced.text.is_empty());
            if let Some((why, facts)) = traced.left_out {
                let what = match traced.text.is_empty() {
                    true => "whole",
                    false => "rest",
                };
                let left = self.left_out.entry((what, why)).or_default();
                left.0 += 1;
                left.1 += facts;
            }
            for (why, facts) in traced.aside {
                self.left_out.entry(("fact", why)).or_default().1 += facts;
            }
            for wrong in &traced.wrong {
                self.wrong += 1;
                println!("WRONG {name} key {}: {wrong}", fermata_sim::show::key(key));
            }
            self.text.push_str(&traced.text);
        }
    }
}
