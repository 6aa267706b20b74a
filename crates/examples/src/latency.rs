//! Latencies that an example saw.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::stage::locked;

/// Durations by (where, what).
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    samples: Mutex<BTreeMap<(String, &'static str), Vec<Duration>>>,
}

/// One line of the summary.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Where the client was.
    pub site: String,
    /// What it waited for.
    pub step: &'static str,
    /// How often.
    pub count: usize,
    /// Half took no longer.
    pub p50: Duration,
    /// 99 in 100 took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latencies {
    /// Notes how long `step` took at `site`, since `start`.
    pub(crate) fn note(&self, site: &str, step: &'static str, start: Instant) {
        let took = start.elapsed();
        let mut samples = locked(&self.samples);
        samples
            .entry((site.to_owned(), step))
            .or_default()
            .push(took);
    }

    /// A line per place and step, in order.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let samples = locked(&self.samples);
        let line = |((site, step), durations): (&(String, &'static str), &Vec<Duration>)| {
            let mut sorted = durations.clone();
            sorted.sort_unstable();
            Line {
                site: site.clone(),
                step,
                count: sorted.len(),
                p50: percentile(&sorted, 50),
                p99: percentile(&sorted, 99),
                max: percentile(&sorted, 100),
            }
        };
        samples.iter().map(line).collect()
    }
}

/// The smallest sample that `percent` of all are not above; zero without samples.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(percentile(&sorted, 100), Duration::from_millis(200));
        assert_eq!(percentile(&sorted[..1], 50), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
