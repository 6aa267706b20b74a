//! What is counted of a system, and what of it is said.

use std::collections::BTreeMap;

use serde::Serialize;

/// What was counted of one system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Milliseconds by site and step.
    pub(crate) steps: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// Rounds: (operations, puts) per second.
    pub(crate) rates: Vec<(f64, f64)>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    /// Sections of keys that another client of the same slice was in, or waited for.
    pub(crate) collisions: u64,
    pub(crate) sections: u64,
    /// Share of the machine's processors that others used meanwhile, from 0 to 1.
    pub(crate) foreign: Vec<f64>,
}

/// The middle of it; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of it is.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => values[((n - 1) as f64 * share).round() as usize],
    }
}

impl Counted {
    /// Milliseconds of a step at a site; all sites where none is given.
    pub(crate) fn of(&self, site: Option<usize>, step: &str) -> Vec<f64> {
        let these = self.steps.iter();
        let these =
            these.filter(|((at, name), _)| *name == step && site.is_none_or(|site| site == *at));
        these
            .flat_map(|(_, values)| values.iter().copied())
            .collect()
    }

    /// The median of a step.
    pub(crate) fn ms(&self, site: Option<usize>, step: &str) -> f64 {
        median(self.of(site, step))
    }

    /// The mean of a step.
    pub(crate) fn mean(&self, site: Option<usize>, step: &str) -> f64 {
        let values = self.of(site, step);
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// Operations per second, the median of the rounds.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.iter().map(|r| r.0))
    }

    /// Puts per second, the median of the rounds.
    pub(crate) fn puts(&self) -> f64 {
        median(self.rates.iter().map(|r| r.1))
    }

    /// Its JSON: what tables are made of.
    pub(crate) fn summary(&self) -> Summary {
        let mut steps = BTreeMap::new();
        for ((site, step), values) in &self.steps {
            let values = values.iter().copied();
            let line = Line {
                count: values.len(),
                p50: median(values.clone()),
                p99: quantile(values, 0.99),
            };
            steps.insert(format!("site {} {step}", site + 1), line);
        }
        Summary {
            steps,
            per_second: self.rate(),
            puts_per_second: self.puts(),
            rounds: self.rates.clone(),
            errors: self.errors,
            first_error: self.first_error.clone(),
            collisions: self.collisions,
            sections: self.sections,
            foreign_cpu: median(self.foreign.iter().copied()),
        }
    }
}

/// One step, milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    count: usize,
    p50: f64,
    p99: f64,
}

/// What JSON has of a system at a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    steps: BTreeMap<String, Line>,
    per_second: f64,
    puts_per_second: f64,
    rounds: Vec<(f64, f64)>,
    errors: u64,
    first_error: Option<String>,
    collisions: u64,
    sections: u64,
    foreign_cpu: f64,
}

/// What one client brings back from a slice.
#[derive(Default)]
pub(super) struct Brought {
    pub(super) steps: Vec<(&'static str, f64)>,
    pub(super) operations: u64,
    pub(super) puts: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) collisions: u64,
    pub(super) sections: u64,
    /// Whether the operation at hand only reads.
    pub(super) reads: bool,
    /// From its first operation that counts to the end of its last, seconds.
    pub(super) seconds: f64,
}

/// What a system did in a round.
#[derive(Default)]
pub(super) struct Round {
    pub(super) brought: Vec<(usize, Brought)>,
    pub(super) foreign: Vec<f64>,
}

impl Counted {
    /// Adds a round. Where sites took turns, their rates are those of a turn each.
    pub(super) fn add(&mut self, round: Round, turns: usize) {
        let (mut rate, mut puts) = (0.0, 0.0);
        for (site, one) in round.brought {
            if one.seconds > 0.0 {
                rate += one.operations as f64 / one.seconds;
                puts += one.puts as f64 / one.seconds;
            }
            self.errors += one.errors;
            self.first_error = self.first_error.take().or(one.first_error);
            self.collisions += one.collisions;
            self.sections += one.sections;
            for (step, ms) in one.steps {
                self.steps.entry((site, step)).or_default().push(ms);
            }
        }
        self.rates.push((rate / turns as f64, puts / turns as f64));
        self.foreign.push(median(round.foreign));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile((0..=100).map(f64::from), 0.99), 99.0);
    }
}
