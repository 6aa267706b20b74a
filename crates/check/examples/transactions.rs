//! How long a hundred thousand transactions take:
//! `cargo run --release -p fermata-check --example transactions`.

use fermata_check::transactions::random::{Shape, serial};
use fermata_check::transactions::{Action, History, Verdict, by_timestamp, by_versions};
use fermata_protocol::base::Rng;
use std::time::Instant;

fn main() {
    let shape = Shape {
        transactions: 100_000,
        keys: 16,
        appends: 100,
        actions: 6,
        overlap: 200,
        unknown: 1,
        failed: 5,
        snapshots: 20,
        registers: false,
    };
    let mut all = serial(&mut Rng::new(1), shape);
    time("right", &all);
    // Somebody misses what was there long before.
    let last = all.iter_mut().rev().filter(|t| !t.snapshot);
    let mut actions = last.flat_map(|t| &mut t.actions);
    let missed = actions.find_map(|action| match action {
        Action::List { values, .. } if values.len() > 40 => {
            values.truncate(1);
            Some(())
        }
        _ => None,
    });
    assert!(missed.is_some(), "lists grow");
    time("one stale read", &all);
}

fn time(name: &str, all: &[fermata_check::transactions::Transaction<u64>]) {
    let history = History::new(all.to_vec()).expect("it is well recorded");
    let tell = |how: &str, check: &dyn Fn() -> Verdict<u64>| {
        let start = Instant::now();
        let verdict = check();
        let seconds = start.elapsed().as_secs_f64();
        let verdict = match verdict {
            Verdict::Serializable => "strictly serializable".to_owned(),
            Verdict::Violation(v) => {
                format!(
                    "{}, shown by {} transactions",
                    v.kind.name(),
                    v.transactions.len()
                )
            }
            Verdict::Undecided(why) => why,
        };
        println!(
            "{name}, {how}: {} transactions, {seconds:.2} s, {verdict}",
            all.len()
        );
    };
    tell("by timestamps", &|| by_timestamp(&history));
    tell("by versions", &|| by_versions(&history));
}
