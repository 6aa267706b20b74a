//! What shows that a history is not strictly serializable, in words.

use super::Timestamp;

/// What is wrong, in the terms of the field (Adya, "Weak Consistency", MIT 1999).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A transaction did not see its own writes.
    Internal,
    /// What was read nobody wrote.
    Unwritten,
    /// What was read was written by a transaction that failed (G1a).
    FailedRead,
    /// A read shows some but not all writes of another transaction to the key (G1b).
    IntermediateRead,
    /// A list has an element twice.
    Duplicate,
    /// Two reads of a list, neither of which begins with the other.
    PrefixMismatch,
    /// A cycle of writes alone (G0).
    WriteCycle,
    /// A cycle of writes and reads of them (G1c).
    InformationCycle,
    /// A cycle with one read of what was overwritten: lost update, read skew (G-single).
    SingleAntiDependency,
    /// A cycle with several: write skew, long fork (G2).
    AntiDependency,
    /// There is a serial order, but none in the order of real time: a stale read, for instance.
    RealTime,
    /// A read is not the state at its transaction's timestamp.
    WrongVersion,
    /// Two transactions that conflict have the same timestamp.
    SameTimestamp,
    /// A transaction began after another had returned, and has no higher timestamp.
    TimestampOrder,
}

impl Kind {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Internal => "a transaction does not see its own writes",
            Kind::Unwritten => "read of what nobody wrote",
            Kind::FailedRead => "read of a failed write (G1a)",
            Kind::IntermediateRead => "read of a part of a transaction (G1b)",
            Kind::Duplicate => "an element twice in a list",
            Kind::PrefixMismatch => "two reads that contradict each other",
            Kind::WriteCycle => "cycle of writes (G0)",
            Kind::InformationCycle => "cycle of writes and reads (G1c)",
            Kind::SingleAntiDependency => "lost update or read skew (G-single)",
            Kind::AntiDependency => "write skew or long fork (G2)",
            Kind::RealTime => "serializable, but not in real time",
            Kind::WrongVersion => "a read is not the state at its timestamp",
            Kind::SameTimestamp => "one timestamp for transactions that conflict",
            Kind::TimestampOrder => "timestamps are not in the order of real time",
        }
    }
}

/// One fact of a violation. Transactions are named by their places in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because<K> {
    /// *ww*: `to` wrote the version behind `from`'s.
    WriteWrite {
        /// Comes before.
        from: usize,
        /// Comes after.
        to: usize,
        /// The key.
        key: K,
        /// What `from` wrote.
        before: u64,
        /// What `to` wrote.
        after: u64,
    },
    /// *wr*: `to` read what `from` wrote.
    WriteRead {
        /// Comes before.
        from: usize,
        /// Comes after.
        to: usize,
        /// The key.
        key: K,
        /// What was read.
        value: u64,
    },
    /// *rw*: `from` read the key without what `to` wrote.
    ReadWrite {
        /// Comes before.
        from: usize,
        /// Comes after.
        to: usize,
        /// The key.
        key: K,
        /// What was not read.
        value: u64,
    },
    /// `from` returned before `to` began.
    RealTime {
        /// Comes before.
        from: usize,
        /// Comes after.
        to: usize,
        /// When `from` returned.
        returned: u64,
        /// When `to` began.
        begin: u64,
    },
    /// A transaction read this.
    Read {
        /// The transaction.
        reader: usize,
        /// The key.
        key: K,
        /// A register has one value or none. Long lists are cut: their last elements.
        values: Vec<u64>,
    },
    /// A transaction wrote this.
    Wrote {
        /// The transaction.
        writer: usize,
        /// The key.
        key: K,
        /// What it wrote.
        value: u64,
        /// It failed.
        failed: bool,
    },
    /// At the reader's timestamp this was the newest version.
    Newest {
        /// The key.
        key: K,
        /// None: no version yet.
        value: Option<u64>,
    },
    /// A transaction's timestamp.
    At {
        /// The transaction.
        transaction: usize,
        /// The timestamp.
        timestamp: Timestamp,
    },
}

impl<K> Because<K> {
    fn tell(&self, shown: &dyn Fn(&K) -> String) -> String {
        match self {
            Because::WriteWrite {
                from,
                to,
                key,
                before,
                after,
            } => format!(
                "T{from} is before T{to}: on {} version {before} of T{from} is before {after} of \
                 T{to} (ww)",
                shown(key)
            ),
            Because::WriteRead {
                from,
                to,
                key,
                value,
            } => format!(
                "T{from} is before T{to}: on {} T{to} read {value}, which T{from} wrote (wr)",
                shown(key)
            ),
            Because::ReadWrite {
                from,
                to,
                key,
                value,
            } => format!(
                "T{from} is before T{to}: on {} T{from} read a state without {value}, which T{to} \
                 wrote (rw)",
                shown(key)
            ),
            Because::RealTime {
                from,
                to,
                returned,
                begin,
            } => format!(
                "T{from} is before T{to}: it had returned at {returned}, and T{to} began at {begin}"
            ),
            Because::Read {
                reader,
                key,
                values,
            } => format!("T{reader} read {values:?} on {}", shown(key)),
            Because::Wrote {
                writer,
                key,
                value,
                failed,
            } => {
                let ending = if *failed { ", and failed" } else { "" };
                format!("T{writer} wrote {value} to {}{ending}", shown(key))
            }
            Because::Newest {
                key,
                value: Some(value),
            } => format!("the newest version of {} was {value} then", shown(key)),
            Because::Newest { key, value: None } => {
                format!("{} had no version then", shown(key))
            }
            Because::At {
                transaction,
                timestamp: (micros, count),
            } => format!("T{transaction} has timestamp {micros}.{count}"),
        }
    }
}

/// Transactions that no serial order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation<K> {
    /// What is wrong.
    pub kind: Kind,
    /// The transactions that show it, by their places in the history; those of a cycle in its
    /// order.
    pub transactions: Vec<usize>,
    /// How they show it.
    pub because: Vec<Because<K>>,
    /// No shorter cycle of this kind is in the history; otherwise the bound on the search was met.
    pub minimal: bool,
}

impl<K> Violation<K> {
    /// The facts, one per line, `shown` shows a key. T3 is the transaction at place 3.
    pub fn tell(&self, shown: &dyn Fn(&K) -> String) -> String {
        let lines: Vec<String> = self.because.iter().map(|b| b.tell(shown)).collect();
        lines.join("\n")
    }
}
