//! How fast a node moves keys, where the cluster's settings slow that down: what one costs the next
//! ones wait for. And how much it moves at once, whatever the settings.

use crate::base::Micros;
use crate::settings::Settings;

/// Keys begin together that would begin within so long, microseconds: not each is waited for alone.
const BURST: Micros = 5_000;

/// Of so many values the largest is remembered.
const REMEMBERED: u32 = 64;
/// Who knows of no value takes them for as large as one may be, until it knows so many.
const UNKNOWN: u32 = 8;

/// How large the values are that move.
#[derive(Debug)]
pub(super) struct Load {
    /// Bytes of the largest value since so many, and of the largest before these.
    largest: [u64; 2],
    since: u32,
}

impl Load {
    /// Nothing has moved, and a value may have so many bytes.
    pub(super) fn new(value_most: usize) -> Load {
        Load {
            largest: [0, value_most as u64],
            since: REMEMBERED - UNKNOWN,
        }
    }

    /// Whether another value may begin to move beside so many, where so many bytes may be under way
    /// together.
    pub(super) fn fits(&self, under_way: usize, most: u64) -> bool {
        let [now, before] = self.largest;
        now.max(before).saturating_mul(under_way as u64 + 1) <= most
    }

    /// A value has moved that has so many bytes.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.since += 1;
        self.largest[0] = self.largest[0].max(bytes);
        if self.since == REMEMBERED {
            self.largest = [0, self.largest[0]];
            self.since = 0;
        }
    }
}

/// What has been spent.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes per second; 0: as fast as they can.
    rate: u64,
    /// When all that has begun would have moved at that rate.
    spent: Micros,
    /// A key waits until then.
    waits: bool,
}

impl Pace {
    /// Whether another key may begin; one that may not waits. Another rate begins anew.
    pub(super) fn takes(&mut self, rate: u64, now: Micros) -> bool {
        if self.rate != rate {
            *self = Pace {
                rate,
                ..Pace::default()
            };
        }
        let takes = rate == 0 || self.spent <= now.saturating_add(BURST);
        // That one may does not say that the one before does not wait any more.
        self.waits |= !takes;
        takes
    }

    /// A key begins to move.
    pub(super) fn begin(&mut self, now: Micros) {
        self.spend(Settings::MOVE_LEAST, now);
    }

    /// Its value turns out to have so many bytes.
    pub(super) fn moved(&mut self, bytes: u64, now: Micros) {
        self.spend(bytes.saturating_sub(Settings::MOVE_LEAST), now);
    }

    /// When a key that waits may begin; none: none waits.
    pub(super) fn wake(&self) -> Option<Micros> {
        Some(self.spent).filter(|_| self.waits)
    }

    /// Whether one has waited, and need not any more.
    pub(super) fn goes_on(&mut self, now: Micros) -> bool {
        let goes_on = self.wake().is_some_and(|at| at <= now);
        self.waits &= !goes_on;
        goes_on
    }

    fn spend(&mut self, bytes: u64, now: Micros) {
        if self.rate > 0 {
            // Rounded up: at no rate a key costs nothing.
            let micros = (u128::from(bytes) * 1_000_000).div_ceil(u128::from(self.rate));
            let takes = Micros::try_from(micros).unwrap_or(Micros::MAX);
            self.spent = self.spent.max(now).saturating_add(takes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins keys of so many bytes whenever one may; how many have begun within a second.
    fn in_a_second(rate: u64, bytes: u64) -> u64 {
        let (mut pace, mut now, mut begun) = (Pace::default(), 0, 0);
        while now < 1_000_000 {
            if pace.takes(rate, now) {
                pace.begin(now);
                pace.moved(bytes, now);
                begun += 1;
            } else {
                now = pace.wake().expect("it waits");
                assert!(pace.goes_on(now) && !pace.goes_on(now), "once");
            }
            if rate == 0 {
                now += 100_000;
            }
        }
        begun
    }

    #[test]
    fn keys_move_at_the_rate_and_small_ones_count_as_a_kibibyte() {
        let kib = 1 << 10;
        for (rate, bytes, keys) in [
            (16 * kib, 0, 16),
            (16 * kib, kib, 16),
            (16 * kib, 4 * kib, 4),
            (4_096 * kib, 10, 4_096),
            (1 << 30, 1 << 20, 1 << 10),
        ] {
            let begun = in_a_second(rate, bytes);
            let about = 1 + keys / 100;
            assert!(begun.abs_diff(keys) <= about, "{rate} {bytes}: {begun}");
        }
        assert_eq!(in_a_second(0, 1 << 30), 10, "nothing waits");
    }

    #[test]
    fn large_values_move_few_at_once() {
        let mut load = Load::new(32 << 20);
        let fits = |load: &Load, beside| load.fits(beside, 64 << 20);
        assert!(fits(&load, 1) && !fits(&load, 2), "nothing is known");
        for _ in 0..UNKNOWN {
            assert!(!fits(&load, 2), "too few are known");
            load.moved(16 << 20);
        }
        assert!(fits(&load, 3) && !fits(&load, 4));
        for _ in 1..REMEMBERED {
            load.moved(1 << 10);
        }
        assert!(!fits(&load, 4), "it is remembered");
        for _ in 0..=REMEMBERED {
            load.moved(1 << 10);
        }
        assert!(fits(&load, 4) && !fits(&load, 64 << 10), "and forgotten");
        load.moved(64 << 20);
        assert!(fits(&load, 0) && !fits(&load, 1));
    }

    #[test]
    fn who_waits_is_not_forgotten_for_who_comes_later() {
        let mut pace = Pace::default();
        assert!(pace.takes(1 << 20, 0));
        pace.begin(0);
        pace.moved(10 << 10, 0);
        assert!(!pace.takes(1 << 20, 0), "the first waits");
        let soon = pace.wake().expect("it waits") - 1;
        assert!(pace.takes(1 << 20, soon), "the second need not");
        assert!(pace.goes_on(soon + 1), "the first goes on");
    }

    #[test]
    fn another_rate_owes_nothing_of_the_one_before() {
        let mut pace = Pace::default();
        assert!(pace.takes(16 << 10, 0));
        pace.begin(0);
        pace.moved(1 << 30, 0);
        assert!(!pace.takes(16 << 10, 1_000_000));
        assert!(pace.takes(1 << 20, 1_000_000));
        assert_eq!(pace.wake(), None);
    }
}
