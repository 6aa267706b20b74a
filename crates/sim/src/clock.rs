//! A machine's clocks: a boot-time clock with a rate error, a wall clock with an offset that jumps,
//! and an interval clock that is right or, beyond its bound, wrong.
//!
//! True time is the simulator's own, in microseconds from 0. Leases rest on the *rate* of boot-time
//! clocks alone (F10); nothing else may matter to safety, and the nemesis tries.

use crate::dice::Dice;
use fermata_protocol::base::{Interval, Now};

/// True time 0 in microseconds since 1970.
pub const EPOCH: u64 = 1_790_000_000_000_000;

/// The clocks of one machine. They survive the restart of a process.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Rate error of the boot-time clock, parts per million.
    rate_ppm: i64,
    /// True time and boot-time reading at the last change of rate.
    anchor: (u64, u64),
    /// Wall clock minus true time, microseconds.
    wall_offset: i64,
    /// The interval clock, if the machine has one. It knows the true time by other means than the
    /// wall clock, which jumps.
    pub interval: Option<IntervalClock>,
}

/// An interval clock: it says that the true time is within `width` of its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalClock {
    /// Half the width of what it says, microseconds.
    pub width: u64,
    /// Its reading minus the true time, microseconds: within the bound while it is at most `width`
    /// either way.
    pub error: i64,
}

impl IntervalClock {
    /// A clock within its bound: an error that is drawn, of at most `width`.
    pub fn honest(width: u64, dice: &mut Dice) -> IntervalClock {
        let error = dice.below(2 * width + 1) as i64 - width as i64;
        IntervalClock { width, error }
    }

    fn read(self, now: u64) -> Interval {
        let reading = (EPOCH as i64 + now as i64 + self.error) as u64;
        Interval {
            earliest: reading.saturating_sub(self.width),
            latest: reading + self.width,
        }
    }
}

impl Clock {
    /// A clock whose machine has run for `uptime` microseconds at true time 0.
    pub fn new(uptime: u64, rate_ppm: i64, wall_offset: i64) -> Clock {
        Clock {
            rate_ppm,
            anchor: (0, uptime),
            wall_offset,
            interval: None,
        }
    }

    /// The boot-time clock at a true time.
    pub fn monotonic(&self, now: u64) -> u64 {
        let elapsed = (now - self.anchor.0) as i64;
        (self.anchor.1 as i64 + elapsed + elapsed * self.rate_ppm / 1_000_000) as u64
    }

    /// The first true time, not before `now`, at which the boot-time clock reads at least
    /// `reading`.
    pub fn true_time_of(&self, now: u64, reading: u64) -> u64 {
        if self.monotonic(now) >= reading {
            return now;
        }
        let ahead = (reading - self.anchor.1) as i64;
        let mut guess = self.anchor.0 + (ahead - ahead * self.rate_ppm / 1_000_000) as u64;
        guess = guess.saturating_sub(2).max(now);
        while self.monotonic(guess) < reading {
            guess += 1 + (reading - self.monotonic(guess)) / 2;
        }
        guess
    }

    /// What the machine's programs read at a true time.
    pub fn read(&self, now: u64) -> Now {
        let wall = (EPOCH as i64 + now as i64 + self.wall_offset) as u64;
        let interval = self.interval.map(|clock| clock.read(now));
        Now {
            monotonic: self.monotonic(now),
            wall,
            interval,
        }
    }

    /// Changes the rate of the boot-time clock; its reading does not jump.
    pub fn set_rate(&mut self, now: u64, rate_ppm: i64) {
        self.anchor = (now, self.monotonic(now));
        self.rate_ppm = rate_ppm;
    }

    /// Makes the wall clock jump.
    pub fn jump(&mut self, by: i64) {
        self.wall_offset += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_of_a_drifting_clock_is_exact() {
        for rate in [-900, 0, 37, 900] {
            let mut clock = Clock::new(5_000, rate, 0);
            clock.set_rate(1_000, -rate);
            for reading in [6_500, 77_777, 9_000_001] {
                let at = clock.true_time_of(2_000, reading);
                assert!(clock.monotonic(at) >= reading);
                assert!(at == 2_000 || clock.monotonic(at - 1) < reading);
            }
        }
    }
}
