//! How long a million operations take: `cargo run --release -p fermata-check --example speed`.

use fermata_check::random::{self, Shape};
use fermata_check::{Bound, Verdict, check_register};
use fermata_protocol::base::Rng;
use std::time::Instant;

fn main() {
    let unique = Shape {
        operations: 1_000_000,
        clients: 16,
        values: None,
        writes: 50,
        deletes: 0,
        unknown: 0,
        failed: 1,
        pause: 20,
    };
    let unknown = Shape {
        unknown: 1,
        deletes: 5,
        ..unique
    };
    let hundred = Shape {
        values: Some(100),
        ..unique
    };
    let ten = Shape {
        values: Some(10),
        clients: 8,
        ..unique
    };
    let shapes = [
        ("unique values", unique),
        ("unique values, deletes, 1 % unknown", unknown),
        ("100 values", hundred),
        ("10 values, 8 clients", ten),
    ];
    for (name, shape) in shapes {
        let mut random = Rng::new(1);
        let mut history = random::linearizable(&mut random, shape);
        time(name, &history);
        for _ in 0..10 {
            random::change(&mut random, &mut history);
        }
        time("  the same with 10 changes", &history);
    }
}

fn time(name: &str, history: &[fermata_check::Operation<u64>]) {
    let start = Instant::now();
    let verdict = check_register(history, Bound::default());
    let seconds = start.elapsed().as_secs_f64();
    let verdict = match verdict {
        Verdict::Linearizable => "linearizable".to_owned(),
        Verdict::Violation(part) => format!("not, shown by {} operations", part.operations.len()),
        Verdict::Undecided => "undecided".to_owned(),
    };
    println!(
        "{name}: {} operations, {seconds:.2} s, {verdict}",
        history.len()
    );
}
