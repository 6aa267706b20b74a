//! Decides whether a recorded history of transactions is strictly serializable.
//!
//! **Problem.** A transaction reads and writes several keys at what must look like one moment
//! between its begin and its end. Keys can no longer be checked one by one: each may be right and
//! the whole wrong (write skew, long fork). Deciding it is NP-complete in general (Papadimitriou,
//! "The serializability of concurrent database updates", Journal of the ACM 26(4), 1979).
//!
//! **Idea.** Record more, and it is easy, in two ways that know nothing of each other, so that each
//! checks the other:
//!
//! 1. [`by_timestamp`]: the store says at which timestamp each transaction took effect. It remains
//!    to see that each read is the state at that timestamp, and that the timestamps are in the
//!    order of real time. `O(n log n)`.
//! 2. [`by_versions`]: values are lists to which unique numbers are appended, so that a read of a
//!    key shows the order of its versions (Kingsbury and Alvaro, "Elle: Inferring Isolation
//!    Anomalies from Experimental Observations", PVLDB 14(3), 2020). From it follow the
//!    dependencies of Adya ("Weak Consistency", MIT 1999): *ww* from a version's writer to the
//!    next one's, *wr* from a writer to who read its version, *rw* from who read a version to the
//!    writer of the next. A history is strictly serializable if and only if these and the order of
//!    real time have no cycle. No timestamp is needed: histories of other stores can be decided.
//!
//! **Model.** A version is named by a number that is written to its key once in the whole history.
//! A key is a list or a register, empty at first. A transaction sees its own writes. One that
//! failed had no effect, and what it read says nothing. One of unknown outcome took effect if and
//! only if somebody saw what it wrote; nobody can tell otherwise. Two transactions are concurrent
//! unless one returned strictly before the other began. A *snapshot* is a transaction that only
//! reads, and that may read the past: it must fit into the serial order, but not into real time.
//!
//! **Invariants.** T1: [`Verdict::Violation`] is a proof: it shows something impossible, whatever
//! the rest of the history is. T2: where [`by_versions`] finds a violation, no timestamps satisfy
//! [`by_timestamp`]; the opposite does not hold, since transactions may be in a right order that is
//! not the one that the store claims. T3: for lists [`by_versions`] is exact (tested against all
//! orders of small histories).
//!
//! # Example
//!
//! ```
//! use fermata_check::Ending;
//! use fermata_check::transactions::{Action, History, Transaction, Verdict, by_versions};
//!
//! // Both read that nobody has booked, and both book: write skew.
//! let book = |mine, other, value| Transaction {
//!     client: value,
//!     begin: 0,
//!     outcome: Ending::Ok { returned: 10 },
//!     timestamp: None,
//!     snapshot: false,
//!     actions: vec![
//!         Action::List { key: other, values: vec![] },
//!         Action::Append { key: mine, value },
//!     ],
//! };
//! let history = History::new(vec![book("a", "b", 1), book("b", "a", 2)]).unwrap();
//! let Verdict::Violation(violation) = by_versions(&history) else {
//!     panic!("write skew is not serializable");
//! };
//! assert_eq!(violation.transactions, [0, 1]);
//! println!("{}", violation.tell(&|key| key.to_string()));
//! ```

mod evidence;
mod graph;
mod known;
pub mod random;
mod timestamps;
mod versions;

pub use evidence::{Because, Kind, Violation};

use crate::Ending;
use known::Known;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// A timestamp: microseconds, or any other number that the store orders by, and a count that
/// orders what has the same.
pub type Timestamp = (u64, u16);

/// One thing that a transaction did, in the order in which it did them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K> {
    /// Appended a number to a list.
    Append {
        /// The list.
        key: K,
        /// Written to this key once in the whole history.
        value: u64,
    },
    /// Read a list.
    List {
        /// The list.
        key: K,
        /// All of it, its first element first.
        values: Vec<u64>,
    },
    /// Wrote a number to a register.
    Write {
        /// The register.
        key: K,
        /// Written to this key once in the whole history.
        value: u64,
    },
    /// Read a register.
    Read {
        /// The register.
        key: K,
        /// What was in it; none: nothing yet.
        value: Option<u64>,
    },
}

impl<K> Action<K> {
    fn key(&self) -> &K {
        match self {
            Action::Append { key, .. }
            | Action::List { key, .. }
            | Action::Write { key, .. }
            | Action::Read { key, .. } => key,
        }
    }

    fn written(&self) -> Option<u64> {
        match self {
            Action::Append { value, .. } | Action::Write { value, .. } => Some(*value),
            Action::List { .. } | Action::Read { .. } => None,
        }
    }

    fn of_list(&self) -> bool {
        matches!(self, Action::Append { .. } | Action::List { .. })
    }
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction<K> {
    /// Who began it: for people, the verdict does not depend on it.
    pub client: u64,
    /// True time of its begin, in any unit that all share.
    pub begin: u64,
    /// How it ended, and when. [`Ending::Failed`] stands for a definite failure.
    pub outcome: Ending,
    /// At which timestamp it took effect, or would have: its reads are the state just below it if
    /// it writes, and the state at it if it only reads. None: the store did not say.
    pub timestamp: Option<Timestamp>,
    /// It only read, and was allowed to read the past.
    pub snapshot: bool,
    /// What it did. Reads whose answer nobody saw are left out.
    pub actions: Vec<Action<K>>,
}

/// Why a history cannot be decided at all: the fault is the recorder's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The place of the transaction that is wrong.
    pub transaction: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}: {}", self.transaction, self.reason)
    }
}

impl std::error::Error for Unusable {}

/// What many transactions did to many keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<K> {
    transactions: Vec<Transaction<K>>,
    /// Whether a key is a list, and what it is called inside.
    keys: BTreeMap<K, (bool, u32)>,
    /// Who wrote a number to a key.
    writers: HashMap<(u32, u64), u32>,
}

impl<K: Ord + Clone> History<K> {
    /// A history of transactions, in any order.
    ///
    /// # Errors
    ///
    /// If a transaction returns before it begins, a number is written to a key twice, a key is used
    /// as a list and as a register, or a snapshot writes.
    ///
    /// # Panics
    ///
    /// At 2^32 transactions.
    pub fn new(transactions: Vec<Transaction<K>>) -> Result<History<K>, Unusable> {
        let mut keys: BTreeMap<K, (bool, u32)> = BTreeMap::new();
        let mut writers = HashMap::new();
        for (place, transaction) in transactions.iter().enumerate() {
            let refuse = |reason| {
                Err(Unusable {
                    transaction: place,
                    reason,
                })
            };
            let outcome = &transaction.outcome;
            if matches!(outcome, Ending::Ok { returned } if *returned < transaction.begin) {
                return refuse("it returns before it begins");
            }
            for action in &transaction.actions {
                let (next, list) = (keys.len() as u32, action.of_list());
                let known = match keys.get(action.key()) {
                    Some(known) => *known,
                    None => *keys.entry(action.key().clone()).or_insert((list, next)),
                };
                if known.0 != list {
                    return refuse("it uses a list as a register, or a register as a list");
                }
                let Some(value) = action.written() else {
                    continue;
                };
                if transaction.snapshot {
                    return refuse("a snapshot does not write");
                }
                let writer = u32::try_from(place).expect("transactions are numbered in 32 bits");
                if writers.insert((known.1, value), writer).is_some() {
                    return refuse("it writes a number to a key to which it was written before");
                }
            }
        }
        Ok(History {
            transactions,
            keys,
            writers,
        })
    }

    /// All transactions, in the order in which they were given.
    pub fn transactions(&self) -> &[Transaction<K>] {
        &self.transactions
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether [`by_timestamp`] can be asked: some transaction has a timestamp.
    pub fn has_timestamps(&self) -> bool {
        self.transactions.iter().any(|t| t.timestamp.is_some())
    }

    /// Whether [`by_versions`] can be asked: all keys are lists.
    pub fn has_lists_only(&self) -> bool {
        self.keys.values().all(|(list, _)| *list)
    }
}

/// Whether a history is strictly serializable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<K> {
    /// It is.
    Serializable,
    /// It is not, and this shows it.
    Violation(Violation<K>),
    /// It was not recorded well enough: the sentence says what is missing.
    Undecided(String),
}

impl<K> Verdict<K> {
    /// Whether a violation was found.
    pub fn is_violation(&self) -> bool {
        matches!(self, Verdict::Violation(_))
    }
}

/// Checks a history by the timestamps of its transactions, `O(n log n)`: each read is the state at
/// its transaction's timestamp, and a transaction that began after another had returned has the
/// higher one.
pub fn by_timestamp<K: Ord + Clone>(history: &History<K>) -> Verdict<K> {
    timestamps::check(&Known::of(history))
}

/// Checks a history of lists by the order of versions that its reads show, and reports the shortest
/// cycle found. The time is linear in the numbers read but for sorting by time.
pub fn by_versions<K: Ord + Clone>(history: &History<K>) -> Verdict<K> {
    if !history.has_lists_only() {
        let why = "without timestamps only lists can be decided: a register does not show the \
                   order of its versions";
        return Verdict::Undecided(why.to_owned());
    }
    versions::check(&Known::of(history))
}

/// Checks a history in every way that it was recorded for. A violation that either way finds is
/// one.
pub fn check<K: Ord + Clone>(history: &History<K>) -> Verdict<K> {
    let by_versions = by_versions(history);
    if by_versions.is_violation() || !history.has_timestamps() {
        return by_versions;
    }
    match by_timestamp(history) {
        Verdict::Undecided(_) => by_versions,
        decided => decided,
    }
}

#[cfg(test)]
mod tests;
