//! Cuts of a register's history at points of quiescence where its value is certain, so that each
//! segment can be decided alone, and the search stays small.
//!
//! **Idea.** Nothing may run across a cut: every step called before it has returned. The last write
//! before it must be certain: it was called after all other writes before it had returned. Then the
//! register holds its value at the cut in every order, and the history is linearizable if and only
//! if both sides are, the later one with that write in front.
//!
//! A write of unknown outcome runs to the end of time, but may as well never take effect if nobody
//! reads it, and otherwise takes effect just before a read of its value. So it belongs to the
//! segment with the reads of its value, cuts between such reads are not made, and a write is
//! certain only if it was called after all such reads before it had returned.

use crate::steps::Step;

/// What is known of the steps before a place.
#[derive(Default)]
struct Before {
    /// The greatest return of a known step.
    until: Option<u64>,
    /// The known write with the latest call.
    last: Option<usize>,
    /// The greatest return of other known writes and of reads of values written with unknown
    /// outcome.
    doubt: Option<u64>,
}

impl Before {
    fn add(&mut self, index: usize, steps: &[Step], unknown_value: bool) {
        let step = &steps[index];
        if !step.known {
            return;
        }
        self.until = self.until.max(Some(step.ret));
        if step.writes {
            let previous = self.last.map(|write| steps[write].ret);
            self.doubt = self.doubt.max(previous);
            self.last = Some(index);
        } else if unknown_value {
            self.doubt = self.doubt.max(Some(step.ret));
        }
    }

    /// Whether a cut may be made before `next`.
    fn allows_cut(&self, next: &Step, steps: &[Step]) -> bool {
        let quiet = self.until < Some(next.call);
        quiet && self.doubt < self.last.map(|write| steps[write].call).or(Some(0))
    }
}

/// The segments of `steps`, each sorted as they are.
pub(crate) fn of(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut unknown_values: Vec<u32> = (steps.iter().filter(|s| s.is_unknown_write()))
        .map(|step| step.value)
        .collect();
    unknown_values.sort_unstable();
    unknown_values.dedup();
    let row = |value: u32| unknown_values.binary_search(&value).ok();
    let mut last_read: Vec<usize> = vec![0; unknown_values.len()];
    for (index, step) in steps.iter().enumerate().filter(|(_, s)| !s.writes) {
        if let Some(row) = row(step.value) {
            last_read[row] = index;
        }
    }
    // The segments as ranges, each with the certain write in front; value -> its reads' segment.
    let mut segments: Vec<Vec<Step>> = vec![Vec::new()];
    let mut home: Vec<Option<usize>> = vec![None; unknown_values.len()];
    let mut before = Before::default();
    let mut no_cut_until = 0;
    for (index, step) in steps.iter().enumerate() {
        if index > no_cut_until && before.allows_cut(step, steps) {
            let certain = before.last.map(|write| steps[write]);
            segments.push(certain.into_iter().collect());
        }
        let here = segments.len() - 1;
        let row = row(step.value);
        if let (Some(row), false) = (row, step.writes) {
            no_cut_until = no_cut_until.max(last_read[row]);
            home[row] = Some(here);
        }
        before.add(index, steps, row.is_some());
        if step.known {
            segments[here].push(*step);
        }
    }
    for step in steps.iter().filter(|step| step.is_unknown_write()) {
        if let Some(home) = row(step.value).and_then(|row| home[row]) {
            segments[home].push(*step);
        }
    }
    for segment in &mut segments {
        crate::steps::sort(segment);
    }
    segments
}
