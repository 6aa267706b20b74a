//! Storage policies of keyspaces: how a value is spread over the members of its key's group, how
//! many of them an operation must reach, and what that costs (CassandrEAS §III, §IV, Table I).
//!
//! Notation, for a view of n members and a policy with f: any f members may fail; an operation
//! needs answers of q = n − f, so two quorums share at least k = n − 2f members. A value is coded
//! into n parts of which any l (*parts*) give it back; each is 1/l of the value.

use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Members of a view at most; codes are made for no more.
pub const MEMBERS_MAX: usize = 13;
/// The largest δ: fragments that a replica may have to keep for one key.
pub const DELTA_MAX: u8 = 32;
/// The δ of a policy for which none is given.
pub const DELTA: u8 = 3;
/// Values shorter than this are kept whole where none is given, bytes: below, parts were slower
/// than whole values, measured as `docs/performance.md` says.
pub const WHOLE_BELOW: u32 = 2_048;

/// What a coded policy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// f: members of a key's group that may fail, of those that are up when a value is written.
    pub faults: u8,
    /// δ: writes of one key that may be under way at once, dead ones that nobody has swept
    /// included. Under `coded` a bound on what is kept (further writes are refused as `Busy` until
    /// a sweep); under the others a promise of the user's, on which their reads depend.
    pub delta: u8,
    /// Values shorter than this many bytes are kept whole at every member.
    pub whole_below: u32,
}

impl Terms {
    /// The terms for `faults` with everything else as where nothing is said.
    pub const fn new(faults: u8) -> Terms {
        Terms {
            faults,
            delta: DELTA,
            whole_below: WHOLE_BELOW,
        }
    }
}

/// How values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoragePolicy {
    /// A whole copy at every member, majority quorums (ABD).
    Replicated,
    /// *Finalize*: l = k; a replica keeps the fragment of the highest tag known to be final and
    /// all above it. No bound on concurrent writes; nothing acknowledged is lost to f crashes and
    /// any number of dying writers (F8: a version goes only below a final one).
    Coded(Terms),
    /// TREAS-OPT as published: l = ⌈k/(δ+1)⌉, one fragment per replica, logical tags. With more
    /// than δ writes concurrent with a read, dead writers included, the read may find no value,
    /// for ever.
    TreasOpt(Terms),
    /// OREAS as published, with readers that wait for the time of a tag to pass (F9): as
    /// `TreasOpt`, with physical tags and one round per write where there is an interval clock.
    Oreas(Terms),
    /// ARES, the paper's baseline: l = k, the fragments of the δ + 1 highest tags per replica,
    /// logical tags. Stuck reads beyond δ as with `TreasOpt`.
    Ares(Terms),
}

/// Which fragments of a key a replica keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The highest tag's alone.
    Highest,
    /// Those of so many highest tags.
    Several(usize),
    /// That of the highest final tag and all above it, of which there may be so many.
    FromFinal(usize),
}

/// What a policy amounts to for a view of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Members of the view, n.
    pub members: usize,
    /// Answers that complete a phase, q.
    pub quorum: usize,
    /// Members that two quorums share at least, k.
    pub common: usize,
    /// Distinct parts that give a value back, l.
    pub parts: usize,
    /// What a replica keeps.
    pub kept: Kept,
}

impl Shape {
    /// Members that may fail, f = n − q.
    pub fn faults(&self) -> usize {
        self.members - self.quorum
    }

    /// Other members that a replica must hear to learn again everything to which it may ever have
    /// contributed: any quorum that it was in has q − 1 others, and n − q + l of the n − 1 others
    /// meet them in l, enough to rebuild a value.
    pub fn others_to_repair(&self) -> usize {
        self.members - self.quorum + self.parts
    }
}

/// How many members of a group a node is in touch with, and how many a keyspace needs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Members heard within the last lease, the node itself included where it is one.
    pub heard: u8,
    /// Members of the group, n.
    pub members: u8,
    /// Members that an operation needs, q; see [`Shape::quorum`].
    pub needed: u8,
}

impl Reach {
    /// Whether there is a quorum, as far as the node knows.
    pub fn suffices(&self) -> bool {
        self.heard >= self.needed
    }

    /// Members that may still fall silent; below zero, as many must come back.
    pub fn spare(&self) -> i16 {
        i16::from(self.heard) - i16::from(self.needed)
    }
}

/// What a policy costs and promises, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Fragments that a replica keeps at rest per key.
    pub fragments: usize,
    /// One fragment is this fraction of the value: 1/`parts`.
    pub parts: usize,
    /// Failures tolerated.
    pub faults: usize,
    /// Writes concurrent with a read that are tolerated; none: any number.
    pub concurrent: Option<u8>,
    /// Round trips of a linearizable write without an interval clock.
    pub write_rounds: u8,
    /// Round trips of a linearizable write with an interval clock.
    pub write_rounds_with_clock: u8,
}

impl Price {
    /// Bytes at rest per replica for a value of one byte; the sum over replicas is n times this.
    pub fn stored(&self) -> f64 {
        self.fragments as f64 / self.parts as f64
    }
}

impl StoragePolicy {
    /// Its name in configurations, on the command line and on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            StoragePolicy::Replicated => "replicated",
            StoragePolicy::Coded(_) => "coded",
            StoragePolicy::TreasOpt(_) => "treas-opt",
            StoragePolicy::Oreas(_) => "oreas",
            StoragePolicy::Ares(_) => "ares",
        }
    }

    /// Its name and what decides its quorums, for people: `coded, f = 1`.
    pub fn in_words(&self) -> String {
        match self.terms() {
            None => self.name().into(),
            Some(terms) => format!("{}, f = {}", self.name(), terms.faults),
        }
    }

    /// The terms of a coded policy.
    pub fn terms(&self) -> Option<Terms> {
        match self {
            StoragePolicy::Replicated => None,
            StoragePolicy::Coded(t)
            | StoragePolicy::TreasOpt(t)
            | StoragePolicy::Oreas(t)
            | StoragePolicy::Ares(t) => Some(*t),
        }
    }

    /// The same policy with other terms; none for one without terms.
    pub fn with(&self, terms: Terms) -> Option<StoragePolicy> {
        Some(match self {
            StoragePolicy::Replicated => return None,
            StoragePolicy::Coded(_) => StoragePolicy::Coded(terms),
            StoragePolicy::TreasOpt(_) => StoragePolicy::TreasOpt(terms),
            StoragePolicy::Oreas(_) => StoragePolicy::Oreas(terms),
            StoragePolicy::Ares(_) => StoragePolicy::Ares(terms),
        })
    }

    /// Whether a write takes one round trip where there is an interval clock: its tag is a time,
    /// which must have passed before it is acknowledged or read (F9).
    pub fn has_one_round_writes(&self) -> bool {
        matches!(self, StoragePolicy::Coded(_) | StoragePolicy::Oreas(_))
    }

    /// Whether a replica is told which tags are final.
    pub fn finalizes(&self) -> bool {
        matches!(self, StoragePolicy::Coded(_))
    }

    /// What it amounts to for a view of `members`.
    ///
    /// # Errors
    /// One sentence that says which bound is broken.
    pub fn shape(&self, members: usize) -> Result<Shape, String> {
        if !(1..=MEMBERS_MAX).contains(&members) {
            return Err(format!(
                "a group has 1 to {MEMBERS_MAX} members, not {members}"
            ));
        }
        let Some(terms) = self.terms() else {
            let quorum = members / 2 + 1;
            return Ok(Shape {
                members,
                quorum,
                common: 2 * quorum - members,
                parts: 1,
                kept: Kept::Highest,
            });
        };
        let (f, delta) = (usize::from(terms.faults), usize::from(terms.delta));
        if 2 * f >= members {
            return Err(format!(
                "k = n - 2f must be at least 1: with n = {members} members, f = {f} is more \
                 than {}",
                (members - 1) / 2
            ));
        }
        if terms.delta > DELTA_MAX || (terms.delta == 0 && self.finalizes()) {
            let least = u8::from(self.finalizes());
            return Err(format!(
                "delta must be {least} to {DELTA_MAX}, not {delta}: so many fragments per key \
                 are kept"
            ));
        }
        let common = members - 2 * f;
        let (parts, kept) = match self {
            StoragePolicy::Replicated => unreachable!("it has no terms"),
            StoragePolicy::Coded(_) => (common, Kept::FromFinal(delta)),
            StoragePolicy::TreasOpt(_) | StoragePolicy::Oreas(_) => {
                (common.div_ceil(delta + 1), Kept::Highest)
            }
            StoragePolicy::Ares(_) => (common, Kept::Several(delta + 1)),
        };
        Ok(Shape {
            members,
            quorum: members - f,
            common,
            parts,
            kept,
        })
    }

    /// What it costs and promises for a view of `members`.
    ///
    /// # Errors
    /// As [`StoragePolicy::shape`].
    pub fn price(&self, members: usize) -> Result<Price, String> {
        let shape = self.shape(members)?;
        Ok(Price {
            fragments: match shape.kept {
                Kept::Several(count) => count,
                Kept::Highest | Kept::FromFinal(_) => 1,
            },
            parts: shape.parts,
            faults: shape.faults(),
            concurrent: match self {
                StoragePolicy::Replicated | StoragePolicy::Coded(_) => None,
                _ => self.terms().map(|terms| terms.delta),
            },
            write_rounds: 2,
            write_rounds_with_clock: if self.has_one_round_writes() { 1 } else { 2 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(terms: Terms) -> [StoragePolicy; 4] {
        [
            StoragePolicy::Coded(terms),
            StoragePolicy::TreasOpt(terms),
            StoragePolicy::Oreas(terms),
            StoragePolicy::Ares(terms),
        ]
    }

    #[test]
    fn quorums_meet_in_enough_members_to_rebuild_a_value() {
        for members in 1..=MEMBERS_MAX {
            for faults in 0..=7 {
                for delta in 1..=4 {
                    let terms = Terms {
                        delta,
                        ..Terms::new(faults)
                    };
                    for policy in all(terms) {
                        let Ok(shape) = policy.shape(members) else {
                            assert!(2 * usize::from(faults) >= members);
                            continue;
                        };
                        assert!(2 * shape.quorum - members >= shape.common);
                        assert_eq!(shape.faults(), usize::from(faults));
                        assert!((1..=shape.common).contains(&shape.parts));
                    }
                }
            }
        }
    }

    #[test]
    fn a_repair_meets_every_quorum() {
        for n in 1..=MEMBERS_MAX {
            let q = StoragePolicy::Replicated.shape(n).expect("possible");
            assert!(2 * q.quorum >= q.members + q.common);
            assert!(q.others_to_repair() + (q.quorum - 1) > q.members - 1);
        }
    }

    /// CassandrEAS §III: n = 9, quorums of 6, δ = 1: ARES 2/3, TREAS-OPT 1/2; quorums of 7, δ = 3:
    /// ARES 4/5, TREAS-OPT 1/2.
    #[test]
    fn the_published_examples() {
        let stored = |policy: StoragePolicy| policy.price(9).expect("possible").stored();
        let with = |faults, delta| Terms {
            delta,
            ..Terms::new(faults)
        };
        assert_eq!(stored(StoragePolicy::Ares(with(3, 1))), 2.0 / 3.0);
        assert_eq!(stored(StoragePolicy::TreasOpt(with(3, 1))), 1.0 / 2.0);
        assert_eq!(stored(StoragePolicy::Ares(with(2, 3))), 4.0 / 5.0);
        assert_eq!(stored(StoragePolicy::TreasOpt(with(2, 3))), 1.0 / 2.0);
        assert_eq!(stored(StoragePolicy::Coded(with(2, 3))), 1.0 / 5.0);
        assert_eq!(stored(StoragePolicy::Replicated), 1.0);
    }

    #[test]
    fn what_is_impossible_says_which_bound_is_broken() {
        let coded = StoragePolicy::Coded(Terms::new(2));
        let why = coded.shape(4).expect_err("k = 0");
        assert!(why.contains("k = n - 2f"), "{why}");
        let endless = StoragePolicy::Ares(Terms {
            delta: DELTA_MAX + 1,
            ..Terms::new(1)
        });
        assert!(endless.shape(5).expect_err("delta").contains("delta"));
        assert!(coded.shape(0).is_err() && coded.shape(14).is_err());
    }
}
