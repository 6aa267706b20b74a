//! How often a waiter peeks.
//!
//! Cassandra tells nobody of changes, so a waiter asks, at the nearest replica, where it costs no
//! trip. It asks often at first, since most sections are short, and ever more seldom then.

use std::time::Duration;

/// Nobody asks more often.
const SHORTEST: Duration = Duration::from_millis(5);
/// Nobody asks less often.
const LONGEST: Duration = Duration::from_millis(100);
/// Every so many peeks one is a read at a quorum instead: a replica that was down misses an update
/// until somebody repairs it, and such a read does.
const REFRESH: u32 = 20;

/// The pauses of one waiter.
#[derive(Debug)]
pub(crate) struct Polls {
    pause: Duration,
    made: u32,
}

impl Polls {
    /// For peeks that take so long.
    pub(crate) fn new(peek: Duration) -> Polls {
        Polls {
            pause: (peek / 2).clamp(SHORTEST, LONGEST),
            made: 0,
        }
    }

    /// Whether the next one has to be at a quorum.
    pub(crate) fn is_refresh(&mut self) -> bool {
        self.made += 1;
        self.made.is_multiple_of(REFRESH)
    }

    /// How long to wait before the next one.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause + pause / 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        for peek in [
            Duration::ZERO,
            Duration::from_millis(60),
            Duration::from_secs(9),
        ] {
            let mut polls = Polls::new(peek);
            let pauses: Vec<Duration> = (0..20).map(|_| polls.pause()).collect();
            assert!(pauses.is_sorted());
            assert!(pauses[0] >= SHORTEST && pauses[0] <= LONGEST.max(peek / 2));
            assert_eq!(pauses[19], LONGEST);
        }
    }

    #[test]
    fn one_in_twenty_is_at_a_quorum() {
        let mut polls = Polls::new(Duration::ZERO);
        assert_eq!((0..100).filter(|_| polls.is_refresh()).count(), 5);
    }
}
