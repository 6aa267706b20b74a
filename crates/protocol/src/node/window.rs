//! How many keys a node moves at once: as many as do not wait for each other.
//!
//! **Problem.** Whatever is under way waits somewhere: in a network, for a round trip, which is no
//! loss, or in a queue for processors and disks, where clients stand behind it. Across an ocean a
//! few keys at once would take days; in one room, hundreds at once make every client wait for them.
//!
//! **Idea.** As TCP Vegas does (Brakmo and Peterson, 1995): a key that takes longer than the
//! quickest of its store has taken has waited in a queue. After as many keys as the window is wide
//! it narrows by a quarter if most of them have waited, and else widens by an eighth.

use crate::base::Micros;

/// Keys at once, at the beginning and at least, and at most.
const LEAST: usize = 4;
const MOST: usize = 512;
/// Bytes of values at once, as far as the latest ones tell.
const BYTES_MOST: u64 = 64 << 20;
/// A key has not waited that takes so much longer than the quickest: microseconds, and one part of
/// so many of that time.
const JITTER: Micros = 2_000;
const JITTER_PART: u64 = 8;

/// A window over all that a node moves.
#[derive(Debug)]
pub(super) struct Window {
    width: usize,
    /// Keys that have moved since its width was last looked at, and how many of them had waited.
    moved: usize,
    waited: usize,
    /// Bytes of the largest value of these, and of those before.
    largest: [u64; 2],
    /// A store waits for room.
    waits: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            width: LEAST,
            moved: 0,
            waited: 0,
            largest: [0; 2],
            waits: false,
        }
    }
}

impl Window {
    /// Whether there is room for another key beside so many. The first always has room.
    pub(super) fn has_room(&self, under_way: usize) -> bool {
        let [now, before] = self.largest;
        let bytes = now.max(before).saturating_mul(under_way as u64 + 1);
        under_way == 0 || under_way < self.width && bytes <= BYTES_MOST
    }

    /// The same for a store that waits where there is none.
    pub(super) fn takes(&mut self, under_way: usize) -> bool {
        let takes = self.has_room(under_way);
        self.waits |= !takes;
        takes
    }

    /// Whether a store has waited and need not any more, beside so many keys.
    pub(super) fn goes_on(&mut self, under_way: usize) -> bool {
        let goes_on = self.waits && self.has_room(under_way);
        self.waits &= !goes_on;
        goes_on
    }

    /// A key has moved: how long it took, beside the quickest of its store, and its value's bytes.
    pub(super) fn moved(&mut self, took: Micros, quickest: Micros, bytes: u64) {
        let undisturbed = quickest.saturating_add(quickest / JITTER_PART + JITTER);
        self.moved += 1;
        self.waited += usize::from(took > undisturbed);
        self.largest[0] = self.largest[0].max(bytes);
        if self.moved >= self.width {
            self.width = match 2 * self.waited > self.moved {
                true => (self.width - self.width / 4).max(LEAST),
                false => (self.width + self.width / 8 + 1).min(MOST),
            };
            self.largest = [0, self.largest[0]];
            (self.moved, self.waited) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The width after so many keys that each take as long as `took` says of the width.
    fn after(keys: usize, took: impl Fn(usize) -> Micros) -> usize {
        let mut window = Window::default();
        let mut quickest = Micros::MAX;
        for _ in 0..keys {
            let took = took(window.width);
            quickest = quickest.min(took);
            window.moved(took, quickest, 0);
        }
        window.width
    }

    #[test]
    fn it_widens_while_none_waits_and_narrows_while_most_do() {
        assert_eq!(after(1_000_000, |_| 150_000), MOST, "an ocean");
        // A queue that serves one in a millisecond.
        let served = after(1_000_000, |width| 1_000 * width as Micros);
        assert!((LEAST..10).contains(&served), "{served}");
        // The same across an ocean: about what is under way in a round trip, and what may wait.
        let across = after(1_000_000, |width| 150_000.max(1_000 * width as Micros));
        assert!((120..200).contains(&across), "{across}");
    }

    #[test]
    fn few_that_wait_narrow_nothing() {
        let mut window = Window::default();
        for at in 0..10 * MOST * MOST {
            let took = if at % 3 == 0 { 90_000 } else { 1_000 };
            window.moved(took, 1_000, 0);
        }
        assert_eq!(window.width, MOST);
    }

    #[test]
    fn large_values_move_few_at_once_and_always_one() {
        let mut window = Window::default();
        for _ in 0..2 * LEAST {
            window.moved(1_000, 1_000, 16 << 20);
        }
        assert!(window.takes(3) && !window.takes(4), "64 MiB");
        assert!(
            !window.goes_on(4) && window.goes_on(3) && !window.goes_on(3),
            "once"
        );
        for _ in 0..10 * LEAST {
            window.moved(1_000, 1_000, BYTES_MOST + 1);
        }
        assert!(window.takes(0) && !window.takes(1));
        for _ in 0..30 * LEAST {
            window.moved(1_000, 1_000, 1 << 10);
        }
        assert!(window.takes(2 * LEAST), "they are forgotten");
    }
}
