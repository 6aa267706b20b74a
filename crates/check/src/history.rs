//! The history of many registers, each checked alone.

use crate::{Bound, Operation, Verdict, check_register};
use std::collections::BTreeMap;
use std::hash::Hash;

/// What clients did to many registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<K, V> {
    registers: BTreeMap<K, Vec<Operation<V>>>,
    operations: u64,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Operations of the registers that are checked.
    pub done: u64,
    /// All operations.
    pub of: u64,
    /// Registers found not linearizable so far.
    pub violations: u64,
}

/// What was found in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<K> {
    /// Registers that are not linearizable, or undecided, in the order of their keys. The places
    /// of a part are those in [`History::register`].
    pub findings: Vec<(K, Verdict)>,
    /// Registers checked.
    pub registers: u64,
    /// Operations checked.
    pub operations: u64,
}

impl<K> Report<K> {
    /// Registers that are not linearizable.
    pub fn violations(&self) -> u64 {
        self.count(|verdict| matches!(verdict, Verdict::Violation(_)))
    }

    /// Registers that were not decided within the bound.
    pub fn undecided(&self) -> u64 {
        self.count(|verdict| matches!(verdict, Verdict::Undecided))
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> u64 {
        self.findings.iter().filter(|(_, v)| which(v)).count() as u64
    }
}

impl<K: Ord, V> Default for History<K, V> {
    fn default() -> History<K, V> {
        History {
            registers: BTreeMap::new(),
            operations: 0,
        }
    }
}

impl<K: Ord, V> History<K, V> {
    /// An empty history.
    pub fn new() -> History<K, V> {
        History::default()
    }

    /// Adds an operation, in any order.
    pub fn push(&mut self, key: K, operation: Operation<V>) {
        self.registers.entry(key).or_default().push(operation);
        self.operations += 1;
    }

    /// Operations of all registers.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The operations of one register, in the order of [`History::push`]; none: no such register.
    pub fn register(&self, key: &K) -> Option<&[Operation<V>]> {
        self.registers.get(key).map(Vec::as_slice)
    }

    /// All registers by key.
    pub fn registers(&self) -> impl Iterator<Item = (&K, &[Operation<V>])> {
        self.registers
            .iter()
            .map(|(key, all)| (key, all.as_slice()))
    }
}

impl<K: Ord + Clone, V: Eq + Hash> History<K, V> {
    /// Checks every register, each within the bound, and tells the progress after each.
    ///
    /// # Panics
    ///
    /// As [`check_register`].
    pub fn check(&self, bound: Bound, mut progress: impl FnMut(Progress)) -> Report<K> {
        let mut report = Report {
            findings: Vec::new(),
            registers: 0,
            operations: 0,
        };
        let mut violations = 0;
        for (key, operations) in &self.registers {
            let verdict = check_register(operations, bound);
            violations += u64::from(matches!(verdict, Verdict::Violation(_)));
            if verdict != Verdict::Linearizable {
                report.findings.push((key.clone(), verdict));
            }
            report.registers += 1;
            report.operations += operations.len() as u64;
            progress(Progress {
                done: report.operations,
                of: self.operations,
                violations,
            });
        }
        report
    }
}
