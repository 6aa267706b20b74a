//! Time as an input. The protocol never reads a clock.

use serde::{Deserialize, Serialize};

/// Microseconds of a node's boot-time clock: monotonic, counting suspension, of bounded rate error.
pub type Micros = u64;

/// A physical time of an interval clock: microseconds since 1970, and 16 bits that make it unique.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Microseconds since 1970.
    pub micros: u64,
    /// Distinguishes timestamps within one microsecond.
    pub logical: u16,
}

impl Timestamp {
    /// The highest of all: later than everything.
    pub const MAX: Timestamp = Timestamp {
        micros: u64::MAX,
        logical: u16::MAX,
    };

    /// The first of a microsecond.
    pub const fn of(micros: u64) -> Timestamp {
        Timestamp { micros, logical: 0 }
    }

    /// The next one.
    #[must_use]
    pub const fn next(self) -> Timestamp {
        match self.logical.checked_add(1) {
            Some(logical) => Timestamp { logical, ..self },
            None => Timestamp::of(self.micros.saturating_add(1)),
        }
    }

    /// Whether it has certainly passed, by a clock that reads so.
    pub const fn has_passed(self, interval: Interval) -> bool {
        interval.earliest > self.micros
    }
}

/// True time lies in `earliest ..= latest` (Tribune §III), both in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// True time is not below this.
    pub earliest: u64,
    /// True time is not above this.
    pub latest: u64,
}

/// What the error of an interval clock may be, half its width. A wider one is not trusted: a
/// replica takes tags that are ahead of its own clock by as much as two such clocks may differ.
pub const BOUND_MAX: Micros = 1_000_000;

/// The largest bound that an operator may promise: what is added to a bound between two readings
/// of the clock must not make it too wide to be trusted.
pub const PROMISE_MAX: Micros = BOUND_MAX - 10_000;

/// What the wall clock of a machine without an interval clock may be behind: daemons that keep the
/// time stop at an error of 1,000 s, for a person to look at it.
pub const WALL_BOUND: Micros = 1_000_000_000;

/// The time of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The boot-time clock: all timers and leases.
    pub monotonic: Micros,
    /// The wall clock, microseconds since 1970, without any promise: for people and
    /// last-writer-wins.
    pub wall: u64,
    /// The interval clock, where the machine has one. The shell gives what the machine says; within
    /// a node it is there only as long as it is trusted (`node::clock_watch`).
    pub interval: Option<Interval>,
}
