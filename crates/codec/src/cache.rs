//! Coefficients of recent decodings, for all codes and threads, without a lock.
//!
//! **Problem.** Working out how the lost rows come from the given ones costs more than decoding a
//! small value. The losses hardly change from one value to the next: they are members that are down
//! or far away.
//!
//! **Idea.** A table of fixed size; a pattern of losses has one place in it and drives out what is
//! there. A place is a *seqlock* of atomic words: its first word is the key of what it holds and a
//! version; a writer makes the version odd, writes, and makes it even again; a reader that sees the
//! same even version before and after has read one whole entry, and otherwise computes for itself.
//! Readers write nothing, so they do not slow each other down.
//!
//! **Invariant.** A hit gives what the computation would: the cache changes no result.

use crate::field::COEFFICIENTS_MAX;
use core::sync::atomic::{AtomicU64, Ordering, fence};

const WORDS: usize = COEFFICIENTS_MAX / 8;
const PLACES: usize = 256;
/// Bits of the first word that are the version; the key is above.
const VERSION_BITS: u32 = 32;

struct Place {
    /// Key and version.
    state: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Entries by key; one place for each key.
pub(crate) struct Cache {
    places: [Place; PLACES],
}

/// The cache that all codes of this process share.
pub(crate) static SHARED: Cache = Cache::new();

/// What a decoding depends on: l, and which fragments are used. (The matrices of all n are one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u32);

impl Key {
    /// `used` has a bit for each fragment that is used.
    pub(crate) fn new(l: usize, used: u16) -> Key {
        Key(((l as u32) << 16) | u32::from(used))
    }

    fn place(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9) >> 24) as usize % PLACES
    }
}

impl Cache {
    const fn new() -> Cache {
        Cache {
            places: [const {
                Place {
                    state: AtomicU64::new(0),
                    words: [const { AtomicU64::new(0) }; WORDS],
                }
            }; PLACES],
        }
    }

    /// The coefficients kept under `key`.
    pub(crate) fn get(&self, key: Key) -> Option<[u8; COEFFICIENTS_MAX]> {
        let place = &self.places[key.place()];
        let before = place.state.load(Ordering::Acquire);
        if before >> VERSION_BITS != u64::from(key.0) || before & 1 == 1 {
            return None;
        }
        let mut coefficients = [0; COEFFICIENTS_MAX];
        for (bytes, word) in coefficients.chunks_exact_mut(8).zip(&place.words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        // Nothing above is read after what is below.
        fence(Ordering::Acquire);
        (place.state.load(Ordering::Relaxed) == before).then_some(coefficients)
    }

    /// Keeps `coefficients` under `key`, unless another thread is writing in the same place.
    pub(crate) fn put(&self, key: Key, coefficients: &[u8; COEFFICIENTS_MAX]) {
        let place = &self.places[key.place()];
        let before = place.state.load(Ordering::Relaxed);
        let version = before as u32;
        if version & 1 == 1 {
            return;
        }
        let state = |version: u32| (u64::from(key.0) << VERSION_BITS) | u64::from(version);
        let writing = state(version.wrapping_add(1));
        let taken =
            place
                .state
                .compare_exchange(before, writing, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        // Nobody sees the words below without the odd version above.
        fence(Ordering::Release);
        for (word, bytes) in place.words.iter().zip(coefficients.chunks_exact(8)) {
            let mut eight = [0; 8];
            eight.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        let done = state(version.wrapping_add(2));
        place.state.store(done, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_found_and_nothing_else() {
        let cache = Cache::new();
        let (key, other) = (Key::new(3, 0b1110), Key::new(3, 0b1101));
        assert_eq!(cache.get(key), None);
        let coefficients = core::array::from_fn(|i| i as u8);
        cache.put(key, &coefficients);
        assert_eq!(cache.get(key), Some(coefficients));
        assert_eq!(cache.get(other), None);
        cache.put(key, &[9; COEFFICIENTS_MAX]);
        assert_eq!(cache.get(key), Some([9; COEFFICIENTS_MAX]));
    }

    /// Each entry is 64 times one byte of its key: an entry of two writers would show.
    #[test]
    fn an_entry_is_never_a_mix() {
        static CACHE: Cache = Cache::new();
        std::thread::scope(|scope| {
            for start in 0..4u16 {
                scope.spawn(move || {
                    for i in 0..20_000u16 {
                        let used = (i ^ start) % 1_000;
                        let key = Key::new(3, used);
                        if let Some(found) = CACHE.get(key) {
                            assert_eq!(found, [used as u8; COEFFICIENTS_MAX]);
                        }
                        CACHE.put(key, &[used as u8; COEFFICIENTS_MAX]);
                    }
                });
            }
        });
    }
}
