//! What the log is told of connections that this node has refused or given up.
//!
//! A peer that is refused dials again, several times a second, for as long as it runs. So the log
//! is told of a kind, which is an address and a reason, at once, and afterwards once in a while and
//! how often it was. The kinds are bounded: whoever comes from many addresses is counted in the
//! metrics and in the status, where nothing is left out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Of one kind the log is told once in this time.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Kinds that are known at a time.
const KINDS_MAX: usize = 64;

/// The kinds that were told.
#[derive(Default)]
pub(super) struct Told(Mutex<HashMap<(Option<IpAddr>, String), Kind>>);

struct Kind {
    last: Instant,
    /// How often it has happened since.
    times: u64,
}

impl Told {
    /// How often this has happened since it was told last, if it is to be told now.
    pub(super) fn again(&self, from: Option<IpAddr>, why: &str, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |kind: &Kind| now.duration_since(kind.last) < TELL_EVERY;
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|_, kind| is_recent(kind));
        }
        let full = kinds.len() >= KINDS_MAX;
        match kinds.entry((from, why.to_owned())) {
            Entry::Occupied(mut kind) => {
                let kind = kind.get_mut();
                kind.times += 1;
                if is_recent(kind) {
                    return None;
                }
                kind.last = now;
                Some(std::mem::take(&mut kind.times))
            }
            Entry::Vacant(_) if full => None,
            Entry::Vacant(free) => {
                free.insert(Kind {
                    last: now,
                    times: 0,
                });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_at_once_and_then_once_in_a_while() {
        let (told, begun) = (Told::default(), Instant::now());
        let from = |last| Some(IpAddr::from([127, 0, 0, last]));
        assert_eq!(told.again(from(1), "foreign", begun), Some(1));
        for _ in 0..9 {
            assert_eq!(told.again(from(1), "foreign", begun), None);
        }
        assert_eq!(told.again(from(1), "silent", begun), Some(1));
        assert_eq!(told.again(from(2), "foreign", begun), Some(1));
        let later = begun + TELL_EVERY;
        assert_eq!(told.again(from(1), "foreign", later), Some(10));
        assert_eq!(told.again(from(1), "foreign", later), None);
    }

    #[test]
    fn kinds_are_bounded_and_make_room_when_they_are_old() {
        let (told, begun) = (Told::default(), Instant::now());
        let from = |last: usize| Some(IpAddr::from([127, 0, 0, last as u8]));
        for at in 0..KINDS_MAX {
            assert_eq!(told.again(from(at), "foreign", begun), Some(1));
        }
        assert_eq!(told.again(from(KINDS_MAX), "foreign", begun), None);
        let later = begun + TELL_EVERY;
        assert_eq!(told.again(from(KINDS_MAX), "foreign", later), Some(1));
    }
}
