//! The account of one key's writes in one section: which were issued, which may have taken effect,
//! and which were acknowledged. It alone decides whether the key may be left clean (F5).
//!
//! A write that was refused for certain has changed nothing. But a clean leave is for ever, and a
//! copy of a message may still be on its way: what was sent and refused is left to the next
//! holder's synch, which fences it, unless a higher write was acknowledged (G25).

use crate::base::{Bug, Planted, SessionId, Tag};
use crate::request::{Held, Leaving};
use alloc::collections::BTreeSet;

/// The writes of one key, by their sequence numbers in the section.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    /// The highest acknowledged one; 0: none.
    acknowledged: u64,
    /// Those above `acknowledged` that are in flight or ended with an unknown outcome.
    doubtful: BTreeSet<u64>,
    /// The highest one that was sent and certainly refused; 0: none.
    refused: u64,
}

impl Writes {
    /// A write was given its number: from now on it may take effect.
    pub fn issue(&mut self, number: u64) {
        self.doubtful.insert(number);
    }

    /// A quorum has it. Lower ones do not matter any more: they are outranked.
    pub fn acknowledge(&mut self, number: u64) {
        self.acknowledged = self.acknowledged.max(number);
        self.doubtful = self.doubtful.split_off(&(self.acknowledged + 1));
    }

    /// It was never sent.
    pub fn withdraw(&mut self, number: u64) {
        self.doubtful.remove(&number);
    }

    /// It was sent, and has certainly changed nothing.
    pub fn refuse(&mut self, number: u64) {
        self.doubtful.remove(&number);
        self.refused = self.refused.max(number);
    }

    /// Whether the highest write that may have taken effect was acknowledged, or none was made.
    pub fn settled(&self) -> bool {
        self.doubtful.is_empty()
    }

    /// The same, seen from the operations issued before the write `number`.
    pub fn settled_before(&self, number: u64) -> bool {
        self.doubtful.range(..number).next().is_none()
    }

    /// The number of the highest acknowledged write; 0: none.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Whether a write with a higher number may have taken effect.
    pub fn outranked(&self, number: u64) -> bool {
        self.acknowledged > number || self.doubtful.last().is_some_and(|top| *top > number)
    }

    /// How the key is left now.
    pub fn leaving(&self, held: &Held, session: SessionId, planted: Planted) -> Leaving {
        let refused = self.refused > self.acknowledged && !planted.has(Bug::RefusedTakenAsUnsent);
        if (refused || !self.settled()) && !planted.has(Bug::DirtyLeaveTakenAsClean) {
            return Leaving::Dirty;
        }
        let tag = |number| Tag::critical(held.lock_ref, held.generation, number, session);
        Leaving::Clean((self.acknowledged > 0).then(|| tag(self.acknowledged)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyId, KeyspaceId, LockRef};
    use bytes::Bytes;

    fn leaving(writes: &Writes) -> Leaving {
        let key = KeyId {
            keyspace: KeyspaceId(1),
            key: Bytes::from_static(b"k"),
        };
        let held = Held {
            key,
            lock_ref: LockRef(9),
            generation: 0,
        };
        writes.leaving(&held, SessionId(5), Planted::NONE)
    }

    fn clean(number: u64) -> Leaving {
        Leaving::Clean(Some(Tag::critical(LockRef(9), 0, number, SessionId(5))))
    }

    #[test]
    fn only_the_highest_write_matters() {
        let mut writes = Writes::default();
        assert_eq!(leaving(&writes), Leaving::Clean(None));
        writes.issue(1);
        writes.issue(2);
        writes.issue(3);
        writes.acknowledge(2);
        assert_eq!(leaving(&writes), Leaving::Dirty);
        writes.acknowledge(3);
        assert_eq!(leaving(&writes), clean(3));
        writes.acknowledge(1);
        assert_eq!(leaving(&writes), clean(3));
    }

    #[test]
    fn a_write_that_was_never_sent_does_not_count() {
        let mut writes = Writes::default();
        writes.issue(1);
        writes.acknowledge(1);
        writes.issue(2);
        writes.withdraw(2);
        assert_eq!(leaving(&writes), clean(1));
    }

    #[test]
    fn a_copy_of_a_write_that_was_refused_is_left_to_the_next_synch() {
        let mut writes = Writes::default();
        writes.issue(1);
        writes.acknowledge(1);
        writes.issue(2);
        writes.refuse(2);
        assert!(writes.settled(), "gets go on");
        assert_eq!(leaving(&writes), Leaving::Dirty);
        writes.issue(3);
        writes.acknowledge(3);
        assert_eq!(leaving(&writes), clean(3));
    }
}
