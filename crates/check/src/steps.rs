//! The form of a register's history that the algorithms work on: what says nothing is gone, values
//! are small numbers, steps are sorted by call, and for each read it is known which writes it may
//! have read.

use crate::{Action, Ending, Operation};
use std::collections::HashMap;
use std::hash::Hash;

/// The value of an empty register.
pub(crate) const ABSENT: u32 = 0;

/// The return of a step that may take effect at any time after its call.
pub(crate) const NEVER: u64 = u64::MAX;

/// A read that ended well, or a write that took effect or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// True time of the call.
    pub(crate) call: u64,
    /// True time of the return; [`NEVER`] for a write of unknown outcome.
    pub(crate) ret: u64,
    /// Read or written.
    pub(crate) value: u32,
    /// A write, or else a read.
    pub(crate) writes: bool,
    /// It took effect; otherwise it may have, at any time after its call.
    pub(crate) known: bool,
    /// Its place in the caller's slice.
    pub(crate) source: u32,
}

impl Step {
    pub(crate) fn is_unknown_write(&self) -> bool {
        self.writes && !self.known
    }
}

/// The steps of `operations`, sorted by call. Failed operations and reads without an answer say
/// nothing and are left out.
pub(crate) fn of_operations<V: Eq + Hash>(operations: &[Operation<V>]) -> Vec<Step> {
    assert!(
        operations.len() < u32::MAX as usize,
        "steps are numbered in 32 bits"
    );
    let mut ids: HashMap<&V, u32> = HashMap::new();
    let mut steps = Vec::with_capacity(operations.len());
    for (source, operation) in operations.iter().enumerate() {
        let (writes, value) = match &operation.action {
            Action::Write(value) => (true, value),
            Action::Read(value) => (false, value),
        };
        let (ret, known) = match operation.outcome {
            Ending::Ok { returned } => (returned, true),
            Ending::Unknown if writes => (NEVER, false),
            Ending::Unknown | Ending::Failed => continue,
        };
        assert!(
            operation.call <= ret,
            "an operation returns after it was called"
        );
        let next = ids.len() as u32 + 1;
        let value = value
            .as_ref()
            .map_or(ABSENT, |value| *ids.entry(value).or_insert(next));
        steps.push(Step {
            call: operation.call,
            ret,
            value,
            writes,
            known,
            source: source as u32,
        });
    }
    sort(&mut steps);
    steps
}

/// The order of all slices of steps here.
pub(crate) fn sort(steps: &mut [Step]) {
    steps.sort_by_key(|step| (step.call, step.ret, step.source));
}

/// The writes of a history, by value, and what rules them out for a read.
pub(crate) struct Writes<'a> {
    steps: &'a [Step],
    /// All values, sorted; a value's place is its row.
    values: Vec<u32>,
    /// Row -> the first of its writes in `known`, and one past the last at the next row.
    known_from: Vec<u32>,
    /// Known writes by row, then call.
    known: Vec<u32>,
    /// For each place in `known`: the greatest return up to there in its row.
    known_until: Vec<u64>,
    /// As `known_from`, for writes of unknown outcome.
    unknown_from: Vec<u32>,
    /// Writes of unknown outcome by row, then call.
    unknown: Vec<u32>,
    /// For each read, the known write with the latest call among those that returned before the
    /// read was called: no write that returned before that call can have been read.
    ruler: Vec<Option<u32>>,
}

impl<'a> Writes<'a> {
    pub(crate) fn of(steps: &'a [Step]) -> Writes<'a> {
        let mut values: Vec<u32> = steps.iter().map(|step| step.value).collect();
        values.sort_unstable();
        values.dedup();
        let (known_from, known) = by_row(steps, &values, |step| step.writes && step.known);
        let (unknown_from, unknown) = by_row(steps, &values, Step::is_unknown_write);
        let mut known_until = vec![0; known.len()];
        for row in known_from.windows(2) {
            let mut until = 0;
            for place in row[0] as usize..row[1] as usize {
                until = until.max(steps[known[place] as usize].ret);
                known_until[place] = until;
            }
        }
        Writes {
            steps,
            values,
            known_from,
            known,
            known_until,
            unknown_from,
            unknown,
            ruler: rulers(steps),
        }
    }

    /// See the field.
    pub(crate) fn ruler(&self, read: usize) -> Option<usize> {
        self.ruler[read].map(|write| write as usize)
    }

    /// Whether a read may have seen the register before its first write.
    pub(crate) fn may_be_initial(&self, read: usize) -> bool {
        self.steps[read].value == ABSENT && self.ruler[read].is_none()
    }

    /// The writes that a read may have read, as far as other writes rule them out.
    pub(crate) fn candidates(&self, read: usize) -> impl Iterator<Item = usize> + '_ {
        let step = self.steps[read];
        let bound = self.ruler(read).map_or(0, |write| self.steps[write].call);
        let called_in_time = |write: &u32| self.steps[*write as usize].call <= step.ret;
        let row = self.row(step.value);
        let first = self.known_from[row] as usize;
        let known = &self.known[first..self.known_from[row + 1] as usize];
        let known = known.partition_point(called_in_time) + first;
        let unknown =
            &self.unknown[self.unknown_from[row] as usize..self.unknown_from[row + 1] as usize];
        let unknown = &unknown[..unknown.partition_point(called_in_time)];
        (first..known)
            .rev()
            .take_while(move |place| self.known_until[*place] >= bound)
            .map(|place| self.known[place] as usize)
            .filter(move |write| self.steps[*write].ret >= bound)
            .chain(unknown.iter().map(|write| *write as usize))
    }

    /// Some write of a read's value, although it cannot be the one read: the latest before it, or
    /// else any.
    pub(crate) fn namesake(&self, read: usize) -> Option<usize> {
        let step = self.steps[read];
        let row = self.row(step.value);
        let row = self.known_from[row] as usize..self.known_from[row + 1] as usize;
        let row = &self.known[row];
        let before = row.partition_point(|write| self.steps[*write as usize].call <= step.ret);
        let known = before.checked_sub(1).map(|last| row[last]);
        let any = known.or_else(|| row.first().copied());
        any.or_else(|| self.late_namesake(step.value))
            .map(|write| write as usize)
    }

    fn late_namesake(&self, value: u32) -> Option<u32> {
        let row = self.row(value);
        let row = self.unknown_from[row] as usize..self.unknown_from[row + 1] as usize;
        self.unknown[row].first().copied()
    }

    fn row(&self, value: u32) -> usize {
        let found = self.values.binary_search(&value);
        found.expect("each value of a step has a row")
    }
}

/// Steps that `take` takes, by the row of their value, in the order of their calls.
fn by_row(steps: &[Step], values: &[u32], take: impl Fn(&Step) -> bool) -> (Vec<u32>, Vec<u32>) {
    let mut taken: Vec<u32> = (0..steps.len() as u32)
        .filter(|i| take(&steps[*i as usize]))
        .collect();
    taken.sort_by_key(|i| steps[*i as usize].value);
    let mut from = Vec::with_capacity(values.len() + 1);
    let mut at = 0;
    for value in values {
        from.push(at as u32);
        while at < taken.len() && steps[taken[at] as usize].value == *value {
            at += 1;
        }
    }
    from.push(at as u32);
    (from, taken)
}

fn rulers(steps: &[Step]) -> Vec<Option<u32>> {
    let mut by_return: Vec<u32> = (0..steps.len() as u32)
        .filter(|i| steps[*i as usize].writes && steps[*i as usize].known)
        .collect();
    by_return.sort_by_key(|i| steps[*i as usize].ret);
    let mut rulers = vec![None; steps.len()];
    let mut returned = by_return.into_iter().peekable();
    let mut latest: Option<u32> = None;
    for (read, step) in steps.iter().enumerate().filter(|(_, s)| !s.writes) {
        while let Some(write) = returned.next_if(|w| steps[*w as usize].ret < step.call) {
            let later = |old: u32| steps[old as usize].call < steps[write as usize].call;
            if latest.is_none_or(later) {
                latest = Some(write);
            }
        }
        rulers[read] = latest;
    }
    rulers
}
