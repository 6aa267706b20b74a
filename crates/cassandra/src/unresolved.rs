//! Updates whose answers were lost, by key.
//!
//! **Problem.** An update that timed out, or that nobody waits for any more, may be applied later.
//! A serial read finishes what replicas have accepted, but it does not stop an update whose
//! coordinator still lives: one that has not begun waits in a buffer, and one that the read got in
//! the way of is tried again by the coordinator itself, until `cas_contention_timeout`. Either
//! finds the version that it expects after the read, and is applied.
//!
//! **Idea.** Only the version can stop it. Once the row has a version above the one that the lost
//! update expects, it either is in the row's history or never will be. So a read of a key with a
//! lost update raises the version itself, if nobody else has (`lock.rs`). i64s never fall, so
//! any sight of a higher one settles the matter for good.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys that are remembered. With so many, one is settled before the next update is sent.
const KEYS_MAX: usize = 16_384;

/// Keys that have lost updates, with the highest version that one of them expects; none: that there
/// is no row.
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    keys: Mutex<HashMap<Bytes, Option<i64>>>,
}

/// An update on its way. Dropped without [`Pending::answered`], its answer is lost.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    unresolved: &'a Unresolved,
    key: &'a Bytes,
    expected: Option<i64>,
    answered: bool,
}

impl Unresolved {
    fn keys(&self) -> MutexGuard<'_, HashMap<Bytes, Option<i64>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An update of this key, which expects this version, is about to be sent.
    pub(crate) fn begin<'a>(&'a self, key: &'a Bytes, expected: Option<i64>) -> Pending<'a> {
        Pending {
            unresolved: self,
            key,
            expected,
            answered: false,
        }
    }

    /// The highest version that a lost update of the key expects, if it has any.
    pub(crate) fn of(&self, key: &Bytes) -> Option<Option<i64>> {
        self.keys().get(key).copied()
    }

    /// A key to settle before anything else is sent, if there are too many.
    pub(crate) fn surplus(&self) -> Option<Bytes> {
        let keys = self.keys();
        (keys.len() >= KEYS_MAX).then(|| keys.keys().next().cloned())?
    }

    /// The row has this version, or has had it.
    pub(crate) fn seen(&self, key: &Bytes, version: Option<i64>) {
        let mut keys = self.keys();
        if keys.get(key).is_some_and(|expected| version > *expected) {
            keys.remove(key);
        }
    }
}

impl Pending<'_> {
    /// It is sent again, and expects another version.
    pub(crate) fn expects(&mut self, version: i64) {
        self.expected = Some(version);
    }

    /// The outcome is known, and with it a version of the row, perhaps.
    pub(crate) fn answered(mut self, version: Option<i64>) {
        self.answered = true;
        self.unresolved.seen(self.key, version);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut keys = self.unresolved.keys();
            let lost = keys.entry(self.key.clone()).or_insert(self.expected);
            *lost = self.expected.max(*lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KEY: Bytes = Bytes::from_static(b"key");

    #[test]
    fn a_lost_update_is_remembered_until_a_higher_version_is_seen() {
        let unresolved = Unresolved::default();
        unresolved.begin(&KEY, Some(3)).answered(Some(4));
        assert_eq!(unresolved.of(&KEY), None);

        drop(unresolved.begin(&KEY, Some(4)));
        drop(unresolved.begin(&KEY, None));
        for version in [None, Some(3), Some(4)] {
            unresolved.seen(&KEY, version);
            assert_eq!(unresolved.of(&KEY), Some(Some(4)));
        }
        unresolved.begin(&KEY, Some(4)).answered(Some(5));
        assert_eq!(unresolved.of(&KEY), None);
    }

    #[test]
    fn a_lost_first_update_is_settled_by_any_row() {
        let unresolved = Unresolved::default();
        drop(unresolved.begin(&KEY, None));
        unresolved.seen(&KEY, None);
        assert_eq!(unresolved.of(&KEY), Some(None));
        unresolved.seen(&KEY, Some(1));
        assert_eq!(unresolved.of(&KEY), None);
    }

    #[test]
    fn with_too_many_one_is_to_be_settled() {
        let unresolved = Unresolved::default();
        for i in 0..KEYS_MAX {
            assert_eq!(unresolved.surplus(), None);
            drop(unresolved.begin(&Bytes::from(i.to_be_bytes().to_vec()), None));
        }
        assert!(unresolved.surplus().is_some());
    }
}
