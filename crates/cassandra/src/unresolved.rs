//! Keys whose last update got no answer, where a quorum read does not settle what became of it.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Keys that are remembered one by one; with more, every key counts as unresolved.
const KEYS_MAX: usize = 16_384;

/// Which keys need a serial read before anything is decided about them.
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the losses of answers.
    losses: u64,
    /// By key, the number of its last loss.
    keys: HashMap<Bytes, u64>,
    /// There were too many; there is no way back.
    all: bool,
}

/// An update on its way. Dropped without [`Pending::answered`], its answer is lost.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    unresolved: &'a Unresolved,
    key: &'a Bytes,
    /// Losses when it began.
    began: u64,
    answered: bool,
}

impl Unresolved {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An update of this key is about to be sent.
    pub(crate) fn begin<'a>(&'a self, key: &'a Bytes) -> Pending<'a> {
        let began = self.state().losses;
        Pending {
            unresolved: self,
            key,
            began,
            answered: false,
        }
    }

    /// Whether the key has a lost update; then, a token for [`Unresolved::settled`].
    pub(crate) fn of(&self, key: &Bytes) -> Option<u64> {
        let state = self.state();
        (state.all || state.keys.contains_key(key)).then_some(state.losses)
    }

    /// A serial read, or another update, of the key succeeded that began at `token`: what was lost
    /// before that has happened by now or never will.
    pub(crate) fn settled(&self, key: &Bytes, token: u64) {
        let mut state = self.state();
        if state.keys.get(key).is_some_and(|lost| *lost <= token) {
            state.keys.remove(key);
        }
    }
}

impl Pending<'_> {
    /// The outcome is known.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        self.unresolved.settled(self.key, self.began);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut state = self.unresolved.state();
        state.losses += 1;
        let number = state.losses;
        if state.keys.len() >= KEYS_MAX && !state.keys.contains_key(self.key) {
            state.all = true;
            state.keys.clear();
        }
        if !state.all {
            state.keys.insert(self.key.clone(), number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KEY: Bytes = Bytes::from_static(b"key");

    #[test]
    fn a_lost_answer_is_remembered_until_something_later_settles_it() {
        let unresolved = Unresolved::default();
        unresolved.begin(&KEY).answered();
        assert_eq!(unresolved.of(&KEY), None);

        let earlier = unresolved.begin(&KEY);
        drop(unresolved.begin(&KEY));
        let token = unresolved.of(&KEY).expect("lost");
        earlier.answered();
        assert!(
            unresolved.of(&KEY).is_some(),
            "what began before the loss says nothing of it"
        );
        unresolved.settled(&KEY, token);
        assert_eq!(unresolved.of(&KEY), None);
    }

    #[test]
    fn a_read_settles_nothing_that_was_lost_after_it_began() {
        let unresolved = Unresolved::default();
        drop(unresolved.begin(&KEY));
        let token = unresolved.of(&KEY).expect("lost");
        drop(unresolved.begin(&KEY));
        unresolved.settled(&KEY, token);
        assert!(unresolved.of(&KEY).is_some());
    }

    #[test]
    fn with_too_many_every_key_is_unresolved() {
        let unresolved = Unresolved::default();
        for i in 0..=KEYS_MAX {
            drop(unresolved.begin(&Bytes::from(i.to_be_bytes().to_vec())));
        }
        assert!(unresolved.of(&KEY).is_some());
        assert!(unresolved.state().keys.is_empty());
    }
}
