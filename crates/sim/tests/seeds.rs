//! With the right rules no seed violates anything.

use fermata_sim::{Options, run};

/// Seeds of the test; `fermata sim --seeds N` runs more.
const SEEDS: u64 = 2_000;

#[test]
fn seeds_hold() {
    let options = Options {
        seeds: SEEDS,
        ..Options::default()
    };
    let report = run(options).expect("seeds need no name");
    println!(
        "{} seeds, {:.1} simulated hours in {:.0} s: one minute covers {:.1} simulated hours",
        report.runs,
        report.virtual_time as f64 / 3_600e6,
        report.wall.as_secs_f64(),
        report.hours_per_minute()
    );
    if let Some(first) = report.failures.first() {
        println!("{}", report.trace.unwrap_or_default());
        let failed: Vec<&str> = report.failures.iter().map(|f| f.run.as_str()).collect();
        panic!(
            "{}: {:?}; all that failed: {failed:?}",
            first.run, first.violations
        );
    }
}
