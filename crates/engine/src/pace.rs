//! How long steps that are in no hurry wait for company.
//!
//! **Problem.** Two nodes that update one row at the same moment get into each other's way: on
//! Cassandra both may be told that nothing is known of their updates, and whoever holds the key
//! waits with them. Most such updates are in no hurry: a ref that joins a queue is served when
//! those before it have left; a renewal has a third of a lease.
//!
//! **Idea.** Each node learns by itself how crowded a row is: a node that was overtaken doubles its
//! patience twice, one that was not halves it. Steps that are in no hurry wait a random part of
//! that patience, and go at once where one comes that is: the leave that lets the next one in takes
//! along all that waited here. While one node's refs have the key, one after the other, only that
//! node updates the row. Where nobody is in the way, nobody waits.

use fermata_protocol::base::Rng;
use std::time::Duration;

/// How often the patience is doubled at most.
const DOUBLINGS: u32 = 5;
/// Nobody waits longer: a small part of any sensible lease.
const LONGEST: Duration = Duration::from_millis(500);

/// What one node knows of the crowd at one row.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    crowd: u32,
    /// How long updates take of late.
    took: Duration,
}

impl Pace {
    /// An update was overtaken, or nothing is known of it.
    pub(crate) fn met(&mut self, took: Duration) {
        self.crowd = (self.crowd + 2).min(DOUBLINGS);
        self.note(took);
    }

    /// An update was done at once.
    pub(crate) fn alone(&mut self, took: Duration) {
        self.crowd = self.crowd.saturating_sub(1);
        self.note(took);
    }

    /// Whether others have been met of late.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd > 0
    }

    fn note(&mut self, took: Duration) {
        self.took = (self.took * 3 + took) / 4;
    }

    /// The longest that steps in no hurry should wait now; `company` is on its way.
    fn patience(&self, company: bool) -> Duration {
        match self.crowd {
            0 if !company => Duration::ZERO,
            _ if company => (self.took * (1 << DOUBLINGS)).min(LONGEST),
            crowd => (self.took * (1 << crowd)).min(LONGEST),
        }
    }

    /// How long they should wait this time.
    pub(crate) fn drawn(&self, company: bool, dice: &mut Rng) -> Duration {
        let half = self.patience(company).as_micros() as u64 / 2;
        Duration::from_micros(half + dice.below(half + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(4);

    #[test]
    fn nobody_waits_where_nobody_is_met() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.alone(TOOK);
            assert_eq!(pace.drawn(false, &mut Rng::new(1)), Duration::ZERO);
        }
    }

    #[test]
    fn patience_grows_with_the_crowd_is_bounded_and_ends() {
        let mut pace = Pace::default();
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            pace.met(TOOK);
            assert!(pace.patience(false) >= last);
            last = pace.patience(false);
        }
        assert!(last > 8 * TOOK && last <= LONGEST, "{last:?}");
        for _ in 0..10 {
            pace.met(Duration::from_secs(5));
        }
        assert_eq!(pace.patience(false), LONGEST);
        for _ in 0..=DOUBLINGS {
            pace.alone(TOOK);
        }
        assert_eq!(pace.patience(false), Duration::ZERO);
    }
}
