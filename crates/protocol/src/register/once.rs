//! Eventual puts act at most once (G16).
//!
//! **Problem.** An eventual put has no tag before a replica gives it one, so a second arrival of
//! the same put is a second put: stored again, perhaps above what a section has written meanwhile.
//! Not to repeat a request is not enough, because the network may.
//!
//! **Idea.** Every transmission has a [`PutName`]: the life of the sending process and a number
//! that rises per receiver. A replica takes a name once, durably, in the batch that stores the put
//! or before the answer that refuses it. So no arrival of a name but the first is ever stored, and
//! a refusal is final.
//!
//! **Lives.** A sender that starts again has lost its numbers, so it names its puts under a new
//! life: its wall clock at its first put, and a random number, so that no two processes share one.
//! A replica keeps only the highest life of each sending node. A put of a lower life is refused,
//! taken before or not: that is what bounds the memory, and is sound whatever clocks do. Where the
//! clock has gone back, the refusal says which life is known, and the sender goes on above it: one
//! put has an unknown outcome.
//!
//! **Order.** The network may reorder. Of the present life a replica remembers the highest number
//! and which of the 64 before it were taken; older ones count as taken.
//!
//! **Damage.** A corrupt record may have held any name. Every life up to this replica's wall clock
//! counts as taken then, and the sender goes on above it.

use crate::base::{NodeName, Rng};
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

/// A process that sends eventual puts. Ordered: a later process of one node has, as a rule, the
/// higher life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Life {
    /// The wall clock at the first put, microseconds since 1970, or more.
    pub since: u64,
    /// Tells two processes apart.
    pub draw: u64,
}

/// The name of one transmission of an eventual put to one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutName {
    /// Of the sender.
    pub life: Life,
    /// From 1, rising with every put to the same replica.
    pub number: u64,
}

/// The sender's side: gives names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    draw: u64,
    life: Option<Life>,
    numbers: BTreeMap<NodeName, u64>,
}

impl Names {
    pub(super) fn new(seed: u64) -> Names {
        Names {
            draw: Rng::new(!seed).draw(),
            life: None,
            numbers: BTreeMap::new(),
        }
    }

    /// A name for a put that is sent to `to` when the wall clock says `wall`.
    pub(super) fn next(&mut self, to: NodeName, wall: u64) -> PutName {
        let draw = self.draw;
        let life = *self.life.get_or_insert(Life { since: wall, draw });
        let number = self.numbers.entry(to).or_default();
        *number += 1;
        PutName {
            life,
            number: *number,
        }
    }

    /// A replica knows this life of the node: later puts are named above it.
    pub(super) fn rise_above(&mut self, known: Life) {
        if self.life.is_some_and(|own| own < known) {
            self.life = Some(Life {
                since: known.since.saturating_add(1),
                draw: self.draw,
            });
        }
    }
}

/// The receiver's side: what was taken from one sending node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    pub(super) life: Life,
    highest: u64,
    /// Bit i: the number `highest - 1 - i` was taken.
    before: u64,
}

impl Taken {
    /// Everything up to the later of `life` and `wall` may have been taken.
    pub(super) fn anything(life: Life, wall: u64) -> Taken {
        Taken {
            life: Life {
                since: life.since.max(wall),
                draw: u64::MAX,
            },
            highest: u64::MAX,
            before: u64::MAX,
        }
    }

    /// Takes a name; false: it was taken, or may have been.
    pub(super) fn take(&mut self, name: PutName) -> bool {
        if name.life != self.life {
            if name.life < self.life {
                return false;
            }
            *self = Taken {
                life: name.life,
                highest: name.number,
                before: 0,
            };
            return true;
        }
        if name.number > self.highest {
            let by = name.number - self.highest;
            let shifted =
                |bits: u64, by: u64| u32::try_from(by).ok().and_then(|b| bits.checked_shl(b));
            self.before = shifted(self.before, by).unwrap_or(0) | shifted(1, by - 1).unwrap_or(0);
            self.highest = name.number;
            return true;
        }
        let back = self.highest - name.number;
        if back == 0 || back > u64::from(u64::BITS) {
            return false;
        }
        let bit = 1u64 << (back - 1);
        let new = self.before & bit == 0;
        self.before |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn name(since: u64, number: u64) -> PutName {
        PutName {
            life: Life { since, draw: 1 },
            number,
        }
    }

    #[test]
    fn no_name_is_taken_twice_in_any_order() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let (mut taken, mut seen) = (Taken::default(), BTreeSet::new());
            let mut life = 1;
            for step in 0..400 {
                life += u64::from(rng.below(60) == 0);
                let since = life - rng.below(life.min(2));
                let number = 1 + rng.below(step / 2 + 1) + rng.below(3) * rng.below(90);
                if taken.take(name(since, number)) {
                    assert!(seen.insert((since, number)), "seed {seed}: taken twice");
                }
            }
        }
    }

    #[test]
    fn what_was_reordered_a_little_is_taken() {
        let mut taken = Taken::default();
        for number in [3, 1, 70, 6, 69, 5] {
            assert_eq!(taken.take(name(9, number)), number != 5, "{number}");
        }
        assert!(!taken.take(name(9, 70)) && !taken.take(name(9, 69)) && !taken.take(name(9, 3)));
        assert!(taken.take(name(9, 200)) && !taken.take(name(9, 70)) && taken.take(name(9, 199)));
    }

    #[test]
    fn a_lower_life_is_late_and_its_sender_goes_on_above() {
        let (mut taken, to) = (Taken::default(), NodeName(2));
        let mut before = Names::new(1);
        let old = before.next(to, 500);
        assert!(taken.take(old) && !taken.take(old));
        let mut after = Names::new(2);
        assert!(!taken.take(after.next(to, 400)), "the clock has gone back");
        after.rise_above(taken.life);
        assert!(taken.take(after.next(to, 400)));
        assert!(!taken.take(before.next(to, 600)), "an old life");
    }

    #[test]
    fn a_forgotten_record_takes_nothing_that_may_have_been_taken() {
        let mut names = Names::new(1);
        let first = names.next(NodeName(1), 100);
        let mut taken = Taken::anything(first.life, 900);
        assert!(!taken.take(first) && !taken.take(names.next(NodeName(1), 950)));
        names.rise_above(taken.life);
        assert!(taken.take(names.next(NodeName(1), 950)));
    }
}
