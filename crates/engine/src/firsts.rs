//! Who may still adopt an eventual value for a ref (G5: the first grant alone).
//!
//! A section must begin with one value, whichever node its client asks. Only the node that has
//! enqueued a ref may adopt, and only as long as it has granted nothing for it: after that the
//! critical cell says what the section began with. A node that knows nothing of a ref settles it in
//! the row without an adoption, which ends everybody's.

use fermata_protocol::base::{KeyId, LockRef};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Refs remembered; a forgotten ref is settled in the row.
const MOST: usize = 65_536;

type Name = (KeyId, LockRef, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Enqueued here, nothing was granted.
    Open,
    /// The value is what the critical cell says.
    Granted,
    /// A synch that adopts is under way.
    Adopting,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct Firsts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    states: HashMap<Name, State>,
    order: VecDeque<Name>,
}

impl Known {
    fn set(&mut self, name: Name, state: State) {
        if self.states.insert(name.clone(), state).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.states.remove(&oldest);
        }
    }
}

/// Until when resumed refs wait for the lease that they replace (G14), by their new names.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<HashMap<Name, Instant>>);

impl Waits {
    /// The end of the wait of `name`, which takes `wait` from when it was first asked about.
    pub(crate) fn until(&self, name: Name, wait: Duration) -> Instant {
        let now = Instant::now();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.len() >= MOST {
            // A forgotten one waits once more.
            waits.retain(|_, until| *until > now);
        }
        *waits.entry(name).or_insert(now + wait)
    }
}

impl Firsts {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ref was enqueued here, just now.
    pub(crate) fn enqueued(&self, name: Name) {
        let mut known = self.known();
        if !known.states.contains_key(&name) {
            known.set(name, State::Open);
        }
    }

    /// Whether the ref may be granted with what the critical cell says; from then on nothing is
    /// adopted for it.
    pub(crate) fn grant(&self, name: &Name) -> bool {
        let mut known = self.known();
        match known.states.get_mut(name) {
            Some(state @ (State::Open | State::Granted)) => {
                *state = State::Granted;
                true
            }
            _ => false,
        }
    }

    /// Whether the caller may adopt for the ref; from then on nothing else is granted here before
    /// it is settled.
    pub(crate) fn adopt(&self, name: &Name) -> bool {
        let mut known = self.known();
        match known.states.get_mut(name) {
            Some(state @ (State::Open | State::Adopting)) => {
                *state = State::Adopting;
                true
            }
            _ => false,
        }
    }

    /// The ref's value is settled in the row.
    pub(crate) fn settled(&self, name: Name) {
        self.known().set(name, State::Granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use fermata_protocol::base::KeyspaceId;

    fn name(lock_ref: u64) -> Name {
        let key = KeyId {
            keyspace: KeyspaceId(1),
            key: Bytes::from_static(b"k"),
        };
        (key, LockRef(lock_ref), 0)
    }

    #[test]
    fn nothing_is_adopted_after_a_grant_nor_granted_beside_an_adoption() {
        let firsts = Firsts::default();
        assert!(
            !firsts.grant(&name(1)) && !firsts.adopt(&name(1)),
            "unknown"
        );
        firsts.enqueued(name(1));
        assert!(firsts.grant(&name(1)) && firsts.grant(&name(1)));
        assert!(!firsts.adopt(&name(1)));
        firsts.enqueued(name(1));
        assert!(!firsts.adopt(&name(1)), "a repeated enqueue opens nothing");
        firsts.enqueued(name(2));
        assert!(firsts.adopt(&name(2)) && !firsts.grant(&name(2)));
        firsts.settled(name(2));
        assert!(firsts.grant(&name(2)) && !firsts.adopt(&name(2)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let firsts = Firsts::default();
        for lock_ref in 0..=MOST as u64 {
            firsts.enqueued(name(lock_ref));
        }
        assert!(!firsts.grant(&name(0)) && firsts.grant(&name(1)));
    }
}
