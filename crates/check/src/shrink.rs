//! The smallest offending part of a violation: delta debugging (Zeller and Hildebrandt,
//! "Simplifying and isolating failure-inducing input", IEEE Transactions on Software Engineering
//! 28(2), 2002) over closed parts.
//!
//! **Problem.** Without the write that it read, any read is a violation. A part is worth showing
//! only if it is not linearizable because the whole is not.
//!
//! **Idea.** A part is *closed* if with each of its reads it has every write of the whole that the
//! read may have read. Then it is linearizable if the whole is: take an order that explains the
//! whole and leave out what is not in the part; the write last before a read is still the one that
//! it read. Which writes a read may have read is told by the writes before it, so that a long
//! history of few values has small closed parts as well. If there is no such write, the part keeps
//! one of the read's value and what rules it out, if the whole has any.
//!
//! A write that reads need is left out together with these reads. Being closed passes on from part
//! to part, so each attempt is judged against the last one that succeeded.

use crate::steps::{Step, Writes};
use crate::{Bound, Core, Decision, decide};

/// Parts of up to this many steps are made smaller step by step at once.
const SMALL: usize = 48;

/// States of one attempt at most: most parts of a violation are easier than the whole.
const ATTEMPT_STATES: u64 = 200_000;

struct Shrinking {
    part: Vec<Step>,
    attempts: u64,
    states: u64,
    /// Some attempt was not decided or not made.
    incomplete: bool,
}

/// Makes a closed part that is not linearizable as small as the bound allows.
pub(crate) fn shrink(part: Vec<Step>, bound: Bound) -> Core {
    let mut shrinking = Shrinking {
        part,
        attempts: bound.attempts,
        states: bound.states.min(ATTEMPT_STATES),
        incomplete: false,
    };
    if shrinking.part.len() > SMALL {
        shrinking.cut_back();
        shrinking.cut_front();
    }
    let mut chunk = shrinking.part.len().div_ceil(2);
    loop {
        let smaller = shrinking.without_chunks(chunk);
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !smaller {
            break;
        }
    }
    let operations = shrinking.part.iter().map(|step| step.source as usize);
    Core {
        operations: operations.collect(),
        minimal: !shrinking.incomplete,
    }
}

impl Shrinking {
    /// Tries the part with the steps that `keep` keeps, less the reads that then lack a write.
    /// Whether it is a violation, and is the part now.
    fn attempt(&mut self, keep: impl Fn(usize) -> bool) -> bool {
        if self.attempts == 0 {
            self.incomplete = true;
            return false;
        }
        self.attempts -= 1;
        let smaller = close(&self.part, keep);
        if smaller.is_empty() || smaller.len() == self.part.len() {
            return false;
        }
        match decide(&smaller, self.states) {
            Decision::Violation(part) => self.part = part,
            Decision::Linearizable => return false,
            Decision::Undecided => {
                self.incomplete = true;
                return false;
            }
        }
        true
    }

    /// Leaves out the steps called last, as many as can be.
    fn cut_back(&mut self) {
        let (mut too_few, mut enough) = (0, self.part.len());
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if self.attempt(|index| index < middle) {
                enough = middle.min(self.part.len());
                too_few = too_few.min(enough.saturating_sub(1));
            } else {
                too_few = middle;
            }
        }
    }

    /// Leaves out the steps called first, as many as can be.
    fn cut_front(&mut self) {
        let mut drop = self.part.len() / 2;
        while drop > 0 {
            if !self.attempt(|index| index >= drop) {
                drop /= 2;
            }
            drop = drop.min(self.part.len() / 2);
        }
    }

    /// Tries to leave out each run of `chunk` steps, the last first. Whether any could be.
    fn without_chunks(&mut self, chunk: usize) -> bool {
        let mut any = false;
        let mut end = self.part.len();
        while end > 0 {
            let start = end.saturating_sub(chunk);
            any |= self.attempt(|index| index < start || index >= end);
            end = start.min(self.part.len());
        }
        any
    }
}

/// The steps that `keep` keeps, less the reads without which they are a closed part of `whole`.
fn close(whole: &[Step], keep: impl Fn(usize) -> bool) -> Vec<Step> {
    let writes = Writes::of(whole);
    let kept = |index: &usize| keep(*index);
    let mut values: Vec<u32> = (0..whole.len())
        .filter(|index| keep(*index) && whole[*index].writes)
        .map(|index| whole[index].value)
        .collect();
    values.sort_unstable();
    let may_stay = |read: usize| {
        let has_namesake = values.binary_search(&whole[read].value).is_ok();
        (writes.namesake(read).is_none() || has_namesake) && writes.candidates(read).all(&keep)
    };
    (0..whole.len())
        .filter(kept)
        .filter(|index| whole[*index].writes || may_stay(*index))
        .map(|index| whole[index])
        .collect()
}
