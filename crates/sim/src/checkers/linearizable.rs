//! Linearizability of read/write registers: the search of Wing and Gong with Lowe's memory of
//! states already seen. Keys are independent, so each is checked alone.
//!
//! A write whose outcome is unknown may take effect at any time after its call, or never. A read
//! whose outcome is unknown says nothing.

use super::sections::is_section_key;
use super::{Violation, show};
use crate::history::{History, Outcome, Value, What};
use fermata_protocol::base::KeyId;
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "linearizability";

/// Operations of one key that a search bears; a longer history is cut at a quiet moment or skipped.
const SEARCH_MAX: usize = 128;

/// One operation of one register.
#[derive(Clone, Debug)]
pub struct Step {
    /// True time of the call.
    pub invoked: u64,
    /// True time of the answer; none: it may take effect at any time, or never.
    pub returned: Option<u64>,
    /// A write, or else a read.
    pub writes: bool,
    /// Written, or read.
    pub value: Value,
}

/// Checks all register keys.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    let mut registers: BTreeMap<&KeyId, Vec<Step>> = BTreeMap::new();
    for op in &history.ops {
        let (key, step) = match (&op.what, &op.outcome) {
            (What::Write(_, _), Outcome::Failed(_)) => continue,
            (What::Write(key, value), outcome) => {
                let known = matches!(outcome, Outcome::Done(_));
                let returned = op.returned.filter(|_| known);
                (
                    key,
                    Step {
                        invoked: op.invoked,
                        returned,
                        writes: true,
                        value: value.clone(),
                    },
                )
            }
            (What::Read(key), Outcome::Value(value)) => {
                let (invoked, returned) = (op.invoked, op.returned);
                (
                    key,
                    Step {
                        invoked,
                        returned,
                        writes: false,
                        value: value.clone(),
                    },
                )
            }
            _ => continue,
        };
        if !is_section_key(key) {
            registers.entry(key).or_default().push(step);
        }
    }
    for (key, steps) in registers {
        if steps.len() <= SEARCH_MAX && !is_linearizable(&steps) {
            found.push(Violation::new(NAME, explain(key, &steps)));
        }
    }
}

fn explain(key: &KeyId, steps: &[Step]) -> String {
    let mut out = format!(
        "register {}: no order explains",
        String::from_utf8_lossy(&key.key)
    );
    for step in steps {
        let what = if step.writes { "write" } else { "read" };
        let end = step.returned.map_or("?".to_owned(), |t| t.to_string());
        out.push_str(&format!(
            " [{what} {} {}..{end}]",
            show(&step.value),
            step.invoked
        ));
    }
    out
}

/// Whether some order of the steps explains what was read.
pub fn is_linearizable(steps: &[Step]) -> bool {
    assert!(
        steps.len() <= SEARCH_MAX,
        "the search keeps a set of steps in 128 bits"
    );
    let must: u128 = steps
        .iter()
        .enumerate()
        .filter(|(_, s)| s.returned.is_some())
        .fold(0, |set, (i, _)| set | (1 << i));
    // The state is what has taken effect and which write was the last; none: the register is empty.
    let mut seen: BTreeSet<(u128, Option<usize>)> = BTreeSet::new();
    let mut stack: Vec<(u128, Option<usize>)> = vec![(0, None)];
    while let Some((done, last)) = stack.pop() {
        if done & must == must {
            return true;
        }
        if !seen.insert((done, last)) {
            continue;
        }
        let open = |i: &usize| done & (1 << i) == 0;
        let horizon = (0..steps.len())
            .filter(open)
            .filter_map(|i| steps[i].returned)
            .min()
            .unwrap_or(u64::MAX);
        for i in (0..steps.len())
            .filter(open)
            .filter(|i| steps[*i].invoked <= horizon)
        {
            let step = &steps[i];
            if step.writes {
                stack.push((done | (1 << i), Some(i)));
            } else if last.map_or(&None, |w| &steps[w].value) == &step.value {
                stack.push((done | (1 << i), last));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn step(writes: bool, value: &'static str, invoked: u64, returned: u64) -> Step {
        Step {
            invoked,
            returned: (returned > 0).then_some(returned),
            writes,
            value: (!value.is_empty()).then(|| Bytes::from_static(value.as_bytes())),
        }
    }

    #[test]
    fn a_read_may_not_go_back() {
        let mut steps = vec![
            step(true, "a", 1, 10),
            step(true, "b", 11, 40),
            step(false, "b", 12, 20),
            step(false, "a", 21, 30),
        ];
        assert!(!is_linearizable(&steps));
        steps.swap_remove(2);
        assert!(is_linearizable(&steps));
    }

    #[test]
    fn an_unknown_write_may_take_effect_late_or_never() {
        let unknown = step(true, "x", 1, 0);
        let reads = [step(false, "", 5, 6), step(false, "x", 8, 9)];
        assert!(is_linearizable(&[
            unknown.clone(),
            reads[0].clone(),
            reads[1].clone()
        ]));
        assert!(is_linearizable(&[unknown.clone(), reads[0].clone()]));
        let back = step(false, "", 10, 11);
        assert!(!is_linearizable(&[unknown, reads[1].clone(), back]));
    }
}
