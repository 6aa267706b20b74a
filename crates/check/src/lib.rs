//! Decides whether recorded histories of registers are linearizable, and shows the part that is
//! not. Histories of transactions and of critical sections have rooms of their own.
//!
//! **Problem.** A store promises that each key behaves like one register that is read and written
//! at single points in time, each between an operation's call and its return. What clients saw is
//! recorded; whether it keeps the promise is to be decided for millions of operations, with
//! operations of which nobody knows whether they took effect, and never wrongly. "No" alone helps
//! nobody: the few operations that show it do.
//!
//! **Idea.** Registers are independent, so each key is checked alone (linearizability is local:
//! Herlihy and Wing, "Linearizability: a correctness condition for concurrent objects", ACM TOPLAS
//! 12(3), 1990). Deciding one register is NP-complete in general and `O(n log n)` if it is known
//! for each read which write it read (Gibbons and Korach, "Testing Shared Memories", SIAM Journal
//! on Computing 26(4), 1997). So [`zones`] decides wherever the writes before a read rule out all
//! but one writer of its value, as in all histories of unique values; otherwise the history is cut
//! where its value is certain ([`segments`]), and what is still ambiguous is searched ([`search`]:
//! Wing and Gong with Lowe's memory) within a bound, after which the answer is
//! [`Verdict::Undecided`]. A violation is made as small as possible without making a new one
//! ([`shrink`]).
//!
//! | module | what it has |
//! |---|---|
//! | [`steps`] | the form that the algorithms work on, and which writes a read may have read |
//! | [`zones`], [`segments`], [`search`] | the three algorithms |
//! | [`shrink`] | the smallest offending part |
//! | [`diagram`](mod@diagram) | that part as a picture in time |
//! | [`history`] | many keys |
//! | [`file`](mod@file) | histories in files (feature `file`) |
//! | [`random`] | random histories, right and wrong, for tests of checkers |
//! | [`transactions`] | histories of transactions, which have checkers of their own |
//! | [`sections`] | histories of critical sections, which have a judge of their own |
//!
//! **Model.** A register is empty at first; a delete writes that back. An operation is concurrent
//! with another unless one returned strictly before the other was called. An operation that failed
//! had no effect. One whose outcome is unknown may have taken effect at any time after its call,
//! after its client gave up as well, or never.
//!
//! **Invariants.** I1: `Linearizable` and `Violation` are proofs, whatever the bound. I2: the
//! operations of a [`Core`] are not linearizable by themselves, and no value in it lacks a writer
//! that it has in the whole. I3: the same history gets the same verdict on every machine.
//!
//! # Example
//!
//! ```
//! use fermata_check::{Action, Bound, Operation, Ending, Verdict, check_register, diagram};
//!
//! let ok = |client, call, returned, action| Operation {
//!     client,
//!     call,
//!     action,
//!     outcome: Ending::Ok { returned },
//! };
//! let history = [
//!     ok(1, 0, 10, Action::Write(Some("a"))),
//!     ok(1, 20, 30, Action::Write(Some("b"))),
//!     ok(2, 40, 50, Action::Read(Some("a"))), // Stale: "b" was there.
//! ];
//! let Verdict::Violation(part) = check_register(&history, Bound::default()) else {
//!     panic!("a stale read is no linearizable history");
//! };
//! assert_eq!(part.operations, [0, 1, 2]);
//! println!("{}", diagram(&history, &part.operations, |value| format!("{value:?}")));
//! ```

#![forbid(unsafe_code)]

use std::hash::Hash;

pub mod diagram;
#[cfg(feature = "file")]
pub mod file;
pub mod history;
pub mod random;
mod search;
pub mod sections;
mod segments;
mod shrink;
mod steps;
pub mod transactions;
mod zones;

pub use diagram::diagram;
pub use history::{History, Progress, Report};

/// What an operation did. No value: the register is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<V> {
    /// Wrote a value, or, with none, deleted it.
    Write(Option<V>),
    /// Read a value, or, with none, found the register empty. Unless the outcome is
    /// [`Ending::Ok`] the value means nothing.
    Read(Option<V>),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Well.
    Ok {
        /// True time of the return, in the unit of the call: from the call on, below `u64::MAX`.
        returned: u64,
    },
    /// It had no effect, and never will.
    Failed,
    /// It may have taken effect, may still, or never.
    Unknown,
}

/// One operation on a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation<V> {
    /// Who called it: for people, the verdict does not depend on it.
    pub client: u64,
    /// True time of the call, in any unit that all operations share, from any moment on.
    pub call: u64,
    /// What was done.
    pub action: Action<V>,
    /// How it ended.
    pub outcome: Ending,
}

/// How much work is done before the answer is [`Verdict::Undecided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// States that a search keeps in memory per register, about 100 bytes each. Histories in which
    /// it is clear which write each read has read need none.
    pub states: u64,
    /// Attempts to make a violation smaller.
    pub attempts: u64,
}

impl Default for Bound {
    /// 4,000,000 states, some 400 MB at worst; 2,000 attempts.
    fn default() -> Bound {
        Bound {
            states: 4_000_000,
            attempts: 2_000,
        }
    }
}

/// Whether a register's history is linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order of the operations explains all that was read.
    Linearizable,
    /// No order does.
    Violation(Core),
    /// No order was found within the bound, nor that there is none.
    Undecided,
}

/// Operations of a history that are not linearizable by themselves.
///
/// It is closed: if the whole had an order that explains what was read, so would the part. For
/// that, with a read the part has each write whose value it may have read, as far as the whole
/// tells. And if the whole has a write of its value at all, so has the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Places in the checked slice, by the time of their call.
    pub operations: Vec<usize>,
    /// No operation can be left out; otherwise the bound on attempts, or on states, was met.
    pub minimal: bool,
}

/// Checks the history of one register, in any order.
///
/// # Panics
///
/// If an operation returns before its call, or at `u64::MAX`, or if there are 2^32 operations or
/// more.
pub fn check_register<V: Eq + Hash>(operations: &[Operation<V>], bound: Bound) -> Verdict {
    let steps = steps::of_operations(operations);
    match decide(&steps, bound.states) {
        Decision::Linearizable => Verdict::Linearizable,
        Decision::Undecided => Verdict::Undecided,
        Decision::Violation(part) => Verdict::Violation(shrink::shrink(part, bound)),
    }
}

/// As [`Verdict`], before anything is made small.
enum Decision {
    Linearizable,
    /// A closed part of the steps.
    Violation(Vec<steps::Step>),
    Undecided,
}

fn decide(steps: &[steps::Step], states: u64) -> Decision {
    if let Some(decision) = by_zones(steps) {
        return decision;
    }
    let mut states = states;
    let mut decision = Decision::Linearizable;
    for segment in segments::of(steps) {
        if let Some(decided) = by_zones(&segment) {
            if let Decision::Violation(part) = decided {
                return Decision::Violation(with_namesakes(part, steps));
            }
            continue;
        }
        match search::search(&segment, &mut states) {
            search::Found::Order => {}
            search::Found::None => {
                return Decision::Violation(with_namesakes(segment, steps));
            }
            search::Found::Undecided => decision = Decision::Undecided,
        }
    }
    decision
}

/// Adds a write of its value for each read that has none in its segment, from another segment. None
/// of these can have been read: those before are ruled out by the certain write in front of the
/// segment, which the part has then, and the others were called after the read.
fn with_namesakes(mut part: Vec<steps::Step>, steps: &[steps::Step]) -> Vec<steps::Step> {
    let mut written: Vec<u32> = (part.iter().filter(|step| step.writes))
        .map(|step| step.value)
        .collect();
    written.sort_unstable();
    let lacks = |step: &&steps::Step| !step.writes && written.binary_search(&step.value).is_err();
    let mut lacking: Vec<u32> = part.iter().filter(lacks).map(|read| read.source).collect();
    lacking.sort_unstable();
    if lacking.is_empty() {
        return part;
    }
    let writes = steps::Writes::of(steps);
    let whole = steps.iter().enumerate();
    let reads =
        whole.filter(|(_, step)| !step.writes && lacking.binary_search(&step.source).is_ok());
    part.extend(reads.filter_map(|(read, _)| writes.namesake(read).map(|write| steps[write])));
    steps::sort(&mut part);
    part.dedup();
    part
}

/// None: the zones cannot tell.
fn by_zones(steps: &[steps::Step]) -> Option<Decision> {
    match zones::decide(steps, &steps::Writes::of(steps)) {
        zones::Zoned::Linearizable => Some(Decision::Linearizable),
        zones::Zoned::Violation(part) => {
            let part = part.into_iter().map(|index| steps[index]);
            Some(Decision::Violation(part.collect()))
        }
        zones::Zoned::Ambiguous => None,
    }
}

#[cfg(test)]
mod tests;
