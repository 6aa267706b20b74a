//! How many replicas an acknowledged update has, and how decisions are read.
//!
//! ```text
//! found on every node                        updates commit at   decisions are read by
//! Paxos v2, purging of its state: repaired   ANY                 SERIAL
//! Paxos v2, otherwise                        QUORUM              SERIAL
//! Paxos v1, where it is allowed              QUORUM              QUORUM
//! ```
//!
//! An update that was *accepted* by a quorum is as good as done: every later conditional statement
//! and every serial read finishes it first. So `ANY`, which does not wait for the commit, loses
//! nothing, and saves a trip, as long as nobody decides by a plain quorum read, which may miss it,
//! and as long as no server throws Paxos state away by age (purging `repaired`).
//!
//! With v1 a serial read costs three trips instead of one, so there a quorum read decides: it sees
//! every committed update.
//!
//! None of this says anything of an update whose answer was lost: see [`crate::unresolved`].

use scylla::statement::Consistency;
use std::fmt;

/// Which of the three lines above is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Levels {
    /// Two trips per update.
    Repaired,
    /// Three.
    Legacy,
    /// Four.
    V1,
}

impl Levels {
    /// At which level S1 and S2 commit.
    pub(crate) fn commit(self) -> Consistency {
        match self {
            Levels::Repaired => Consistency::Any,
            Levels::Legacy | Levels::V1 => Consistency::Quorum,
        }
    }

    /// At which level a row is read to decide something.
    pub(crate) fn decide(self) -> Consistency {
        match self {
            Levels::Repaired | Levels::Legacy => Consistency::Serial,
            Levels::V1 => Consistency::Quorum,
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Levels::Repaired => "Paxos v2, updates commit at ANY, serial reads decide",
            Levels::Legacy => "Paxos v2, updates commit at QUORUM, serial reads decide",
            Levels::V1 => "Paxos v1, updates commit at QUORUM, quorum reads decide",
        })
    }
}
