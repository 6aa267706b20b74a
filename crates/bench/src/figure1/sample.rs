//! What was measured of one policy at one point, and ratios of two policies.
//!
//! A ratio is taken within each round, whose slices lie next to each other in time, and the median
//! of the rounds is told with the interval that holds the true median in 95 of 100 runs. A stall
//! of the machine that falls into one slice thus moves a ratio by one rank, not by its length.

use serde::{Deserialize, Serialize};

use crate::cpu::Spent;
use crate::workload::{Counted, Latency};

/// A point: share of the operations that are writes, and bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) writes: f64,
    pub(crate) size: usize,
}

impl Point {
    /// For people.
    pub(crate) fn name(&self) -> String {
        format!(
            "{:.0} % writes of {}",
            self.writes * 100.0,
            bytes(self.size)
        )
    }
}

/// Bytes for people.
pub(crate) fn bytes(size: usize) -> String {
    if size >= 1_024 && size.is_multiple_of(1_024) {
        format!("{} KiB", size / 1_024)
    } else {
        format!("{size} B")
    }
}

/// What was measured in one slice. Zero where nothing was.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Mean latency, milliseconds.
    pub(crate) read_ms: f64,
    pub(crate) write_ms: f64,
    /// Operations per second of all clients together.
    pub(crate) throughput: f64,
}

/// One policy at one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) policy: String,
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) read_ms: Latency,
    pub(crate) write_ms: Latency,
    /// Operations per second of all clients together.
    pub(crate) throughput: f64,
    /// Milliseconds of processors per operation, nodes and clients together.
    pub(crate) cpu_ms: f64,
    pub(crate) spent: Spent,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) rounds: Vec<Round>,
}

impl Sample {
    /// Of the slices of one policy.
    pub(crate) fn of(policy: &str, point: Point, slices: Vec<Counted>, clients: usize) -> Sample {
        let rounds = slices.iter().map(|slice| Round {
            read_ms: Latency::of(slice.reads.clone()).mean,
            write_ms: Latency::of(slice.writes.clone()).mean,
            throughput: slice.throughput(clients),
        });
        let rounds = rounds.collect();
        let mut all = Counted::default();
        for slice in slices {
            all.add(slice);
        }
        let done = (all.reads.len() + all.writes.len()).max(1) as f64;
        Sample {
            policy: policy.to_owned(),
            point,
            throughput: all.throughput(clients),
            cpu_ms: all.spent.own * 1e3 / done,
            spent: all.spent,
            read_ms: Latency::of(all.reads),
            write_ms: Latency::of(all.writes),
            errors: all.errors,
            first_error: all.first_error,
            rounds,
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Read,
    Write,
    Throughput,
}

impl Measure {
    fn of(self, round: &Round) -> f64 {
        match self {
            Measure::Read => round.read_ms,
            Measure::Write => round.write_ms,
            Measure::Throughput => round.throughput,
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Read => "reads",
            Measure::Write => "writes",
            Measure::Throughput => "throughput",
        }
    }
}

/// A ratio: its median over the rounds, and an interval of 95 %, which begins at zero and has no
/// end where the rounds are too few for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Rounds that an interval of 95 % takes.
const ROUNDS_MIN: usize = 6;

impl Ratio {
    /// What `one` is as a multiple of `base`; none where either has measured nothing.
    pub(crate) fn between(one: &Sample, base: &Sample, measure: Measure) -> Option<Ratio> {
        let pairs = one.rounds.iter().zip(&base.rounds);
        let ratios = pairs.filter_map(|(a, b)| {
            let (a, b) = (measure.of(a), measure.of(b));
            (a > 0.0 && b > 0.0).then_some(a / b)
        });
        Ratio::of(ratios.collect())
    }

    /// How fast `one` is as a multiple of `base`: more is better, whatever is measured.
    pub(crate) fn speed(one: &Sample, base: &Sample, measure: Measure) -> Option<Ratio> {
        match measure {
            Measure::Throughput => Ratio::between(one, base, measure),
            Measure::Read | Measure::Write => Ratio::between(base, one, measure),
        }
    }

    fn of(mut ratios: Vec<f64>) -> Option<Ratio> {
        let n = ratios.len();
        ratios.sort_by(f64::total_cmp);
        let median = match n {
            0 => return None,
            // Of two in the middle the geometric mean: a ratio's inverse has the inverse median.
            _ => (ratios[(n - 1) / 2] * ratios[n / 2]).sqrt(),
        };
        // The largest rank j such that fewer than j of n fall below the median by a chance of at
        // most 2.5 %.
        let (mut below, mut chance, mut rank) = (0.0, 0.5_f64.powi(n as i32), 0);
        for j in 0..n / 2 {
            below += chance;
            if below > 0.025 {
                break;
            }
            rank = j;
            chance *= (n - j) as f64 / (j + 1) as f64;
        }
        let (low, high) = match n {
            ..ROUNDS_MIN => (0.0, f64::INFINITY),
            _ => (ratios[rank], ratios[n - 1 - rank]),
        };
        Some(Ratio { median, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median() {
        let of = |n: usize| Ratio::of((1..=n).map(|i| i as f64).collect()).expect("a ratio");
        assert_eq!(Ratio::of(vec![]), None);
        assert_eq!(
            (of(5).median, of(5).low, of(5).high),
            (3.0, 0.0, f64::INFINITY)
        );
        assert_eq!((of(6).low, of(6).high), (1.0, 6.0));
        // Known tables: of 8 the least and the greatest; of 12 the third; of 24 the seventh.
        assert_eq!(
            (of(8).median, of(8).low, of(8).high),
            (20_f64.sqrt(), 1.0, 8.0)
        );
        assert_eq!((of(12).low, of(12).high), (3.0, 10.0));
        assert_eq!((of(24).low, of(24).high), (7.0, 18.0));
    }
}
