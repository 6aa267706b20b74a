//! With the right rules no seed violates anything.

use fermata_sim::{Options, Report, run};
use std::time::Instant;

/// Seeds of the test; `cargo sim --seeds N` runs more.
const SEEDS: u64 = 1_000;

/// Threads: each runs worlds of its own.
const THREADS: u64 = 2;

fn run_part(part: u64) -> Report {
    let options = Options {
        seed: Some(part * SEEDS / THREADS),
        seeds: SEEDS / THREADS,
        ..Options::default()
    };
    run(options).expect("seeds need no name")
}

#[test]
fn seeds_hold() {
    let begin = Instant::now();
    let parts: Vec<_> = (0..THREADS)
        .map(|part| std::thread::spawn(move || run_part(part)))
        .collect();
    let reports = parts.into_iter().map(|p| p.join().expect("no panic"));
    let reports: Vec<Report> = reports.collect();
    let runs: u64 = reports.iter().map(|r| r.runs).sum();
    let hours = reports.iter().map(|r| r.virtual_time).sum::<u64>() as f64 / 3_600e6;
    let seconds = begin.elapsed().as_secs_f64().max(1e-9);
    println!(
        "{runs} seeds, {hours:.1} simulated hours in {seconds:.0} s: one minute covers {:.1}",
        hours / (seconds / 60.0)
    );
    let failed: Vec<&str> = reports
        .iter()
        .flat_map(|r| r.failures.iter().map(|f| f.run.as_str()))
        .collect();
    for report in &reports {
        if let Some(first) = report.failures.first() {
            println!("{}", report.trace.as_deref().unwrap_or_default());
            panic!(
                "{}: {:?}; all that failed: {failed:?}",
                first.run, first.violations
            );
        }
    }
    assert_eq!(runs, SEEDS);
}
