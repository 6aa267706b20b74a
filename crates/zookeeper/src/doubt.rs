//! Updates that were sent and got no answer, until it is certain that they cannot come any more.
//!
//! **Invariant.** From the moment an update is handed to the client until its outcome is known or
//! excluded, somebody answers for it: the [`Attempt`] while it runs, this memory afterwards. A
//! future that is dropped half way counts as one without an answer.

use fermata_protocol::base::KeyId;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What an update wants of the node: a version, or none at all.
pub(crate) type Wanted = Option<i32>;

/// The updates in doubt, by key. A key is here from an update's loss to the next read.
#[derive(Default)]
pub(crate) struct Doubts {
    keys: Mutex<HashMap<KeyId, Vec<Wanted>>>,
}

impl Doubts {
    fn keys(&self) -> MutexGuard<'_, HashMap<KeyId, Vec<Wanted>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers for an update that is about to be sent.
    pub(crate) fn attempt<'a>(&'a self, key: &'a KeyId, wanted: Wanted) -> Attempt<'a> {
        Attempt {
            doubts: self,
            key,
            wanted,
            settled: false,
        }
    }

    /// What is in doubt about a key now.
    pub(crate) fn of(&self, key: &KeyId) -> Vec<Wanted> {
        self.keys().get(key).cloned().unwrap_or_default()
    }

    /// Forgets those: they cannot come any more.
    pub(crate) fn excluded(&self, key: &KeyId, wanted: &[Wanted]) {
        if wanted.is_empty() {
            return;
        }
        let mut keys = self.keys();
        let Some(left) = keys.get_mut(key) else {
            return;
        };
        // Whoever wants the same version is excluded with it.
        left.retain(|w| !wanted.contains(w));
        if left.is_empty() {
            keys.remove(key);
        }
    }
}

/// One update on its way.
pub(crate) struct Attempt<'a> {
    doubts: &'a Doubts,
    key: &'a KeyId,
    wanted: Wanted,
    settled: bool,
}

impl Attempt<'_> {
    /// Its outcome is known.
    pub(crate) fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let mut keys = self.doubts.keys();
            let of = keys.entry(self.key.clone()).or_default();
            if !of.contains(&self.wanted) {
                of.push(self.wanted);
            }
        }
    }
}

/// Whether an update that wants `wanted` can never apply to a node of version `present` or to what
/// comes of it. Right also where `present` is an old version of the node.
pub(crate) fn is_past(present: Wanted, wanted: Wanted) -> bool {
    match (present, wanted) {
        // Any node at all keeps out whoever would create it: nodes stay.
        (Some(_), None) => true,
        (Some(present), Some(wanted)) => present.wrapping_sub(wanted) > 0,
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::KeyspaceId;

    fn key() -> KeyId {
        KeyId {
            keyspace: KeyspaceId(1),
            key: bytes::Bytes::from_static(b"k"),
        }
    }

    #[test]
    fn an_attempt_that_is_dropped_stays_in_doubt_and_one_that_is_settled_does_not() {
        let (doubts, key) = (Doubts::default(), key());
        doubts.attempt(&key, Some(1)).settle();
        assert!(doubts.of(&key).is_empty());
        drop(doubts.attempt(&key, Some(2)));
        drop(doubts.attempt(&key, Some(2)));
        drop(doubts.attempt(&key, None));
        assert_eq!(doubts.of(&key), [Some(2), None]);
        doubts.excluded(&key, &[Some(2)]);
        assert_eq!(doubts.of(&key), [None]);
        doubts.excluded(&key, &[None]);
        assert!(doubts.keys().is_empty());
    }

    #[test]
    fn past_goes_round_with_the_versions() {
        assert!(is_past(Some(0), None));
        assert!(!is_past(None, None));
        assert!(!is_past(None, Some(3)));
        assert!(is_past(Some(4), Some(3)));
        assert!(!is_past(Some(3), Some(3)));
        assert!(!is_past(Some(2), Some(3)));
        assert!(is_past(Some(i32::MIN), Some(i32::MAX)));
        assert!(is_past(Some(0), Some(-2)));
        assert!(!is_past(Some(-2), Some(0)));
    }
}
