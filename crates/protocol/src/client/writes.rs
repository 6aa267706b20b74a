//! The account of a section's writes: the numbers that they were given, over all its keys; and of
//! each key which were issued, which may have taken effect, and which were acknowledged. It alone
//! decides whether a key may be left clean (F5).
//!
//! The one that numbers the writes of a section keeps its [`Account`], and nobody else: a
//! [`Session`](super::Session), or the server for clients of its faces that count nothing
//! themselves. One that is lost is not made up: the section is resumed, which begins a generation
//! with an account of its own (F16).
//!
//! A write that was refused for certain has changed nothing. But a clean leave is for ever, and a
//! copy of a message may still be on its way: a put that was sent and refused is left to the next
//! holder's synch, which fences it, unless a higher write was acknowledged (G25).

use crate::base::tag::GENERATION_SPAN;
use crate::base::{Bug, LockRef, Planted, SessionId, Tag};
use crate::request::Leaving;
use alloc::collections::{BTreeMap, BTreeSet};

/// The writes of one generation of a section, whose keys the keeper of the account names as it
/// likes.
#[derive(Clone, Debug)]
pub struct Account<K> {
    /// The last number given; 0: none.
    last: u64,
    /// A leave was tried: what it said of the writes must stay true, so none may follow.
    closed: bool,
    /// The keys that were written.
    keys: BTreeMap<K, Writes>,
}

impl<K> Default for Account<K> {
    fn default() -> Account<K> {
        Account {
            last: 0,
            closed: false,
            keys: BTreeMap::new(),
        }
    }
}

impl<K: Ord> Account<K> {
    /// The number of the next write, which is of `key`: from now on it may take effect. None where
    /// the account is closed, or has given all the numbers that a generation has.
    pub fn issue(&mut self, key: K) -> Option<u64> {
        if self.closed || self.last + 1 >= GENERATION_SPAN {
            return None;
        }
        self.last += 1;
        self.keys.entry(key).or_default().issue(self.last);
        Some(self.last)
    }

    /// The last number given; 0: none.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Gives no more numbers.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The writes of a key; none where it was never written.
    pub fn of(&self, key: &K) -> Option<&Writes> {
        self.keys.get(key)
    }

    /// The same, to be told what became of one.
    pub fn of_mut(&mut self, key: &K) -> Option<&mut Writes> {
        self.keys.get_mut(key)
    }

    /// How a key is left now by `session`, whose ref and generation these are.
    pub fn leaving(
        &self,
        key: &K,
        (lock_ref, generation): (LockRef, u32),
        session: SessionId,
        planted: Planted,
    ) -> Leaving {
        self.of(key).map_or(Leaving::Clean(None), |writes| {
            writes.leaving((lock_ref, generation), session, planted)
        })
    }
}

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
    fn issue(&mut self, number: u64) {
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
    fn settled(&self) -> bool {
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

    fn leaving(
        &self,
        (lock_ref, generation): (LockRef, u32),
        session: SessionId,
        planted: Planted,
    ) -> Leaving {
        let refused = self.refused > self.acknowledged && !planted.has(Bug::RefusedTakenAsUnsent);
        if (refused || !self.settled()) && !planted.has(Bug::DirtyLeaveTakenAsClean) {
            return Leaving::Dirty;
        }
        let tag = |number| Tag::critical(lock_ref, generation, number, session);
        Leaving::Clean((self.acknowledged > 0).then(|| tag(self.acknowledged)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaving(writes: &Writes) -> Leaving {
        writes.leaving((LockRef(9), 0), SessionId(5), Planted::NONE)
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

    #[test]
    fn numbers_grow_over_all_keys_until_a_leave_was_tried() {
        let mut account = Account::default();
        let left = |account: &Account<char>, key| {
            account.leaving(&key, (LockRef(9), 0), SessionId(5), Planted::NONE)
        };
        assert_eq!(account.issue('a'), Some(1));
        assert_eq!(account.issue('b'), Some(2));
        account.of_mut(&'b').expect("written").acknowledge(2);
        assert_eq!(left(&account, 'a'), Leaving::Dirty);
        assert_eq!(left(&account, 'b'), clean(2));
        assert_eq!(left(&account, 'c'), Leaving::Clean(None));
        account.close();
        assert_eq!((account.issue('c'), account.last()), (None, 2));
        account.of_mut(&'a').expect("written").acknowledge(1);
        assert_eq!(left(&account, 'a'), clean(1));
    }

    #[test]
    fn a_generation_has_so_many_numbers_and_no_more() {
        let mut account = Account {
            last: GENERATION_SPAN - 2,
            ..Account::default()
        };
        assert_eq!(account.issue('a'), Some(GENERATION_SPAN - 1));
        assert_eq!(account.issue('a'), None);
    }
}
