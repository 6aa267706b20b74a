//! What is wished of a ring, as pure functions: no clock, no input or output. Whoever leads a group
//! fires them, and nothing unsafe follows from what they wish (Harmony §6).
//!
//! What they are told may be old, wrong or missing: then the wish is a poor one. Groups decide in
//! their own logs, which refuse what they may not do.

mod join;
mod leader;
mod replace;
mod survival;

pub use self::join::{Joinable, join_latency, join_load, join_resilient};
pub use self::leader::{Leading, leader_latency};
pub use self::replace::replace_dead;
pub use self::survival::{Odds, Survival};

use crate::base::{Micros, NodeName, SiteId};
use alloc::vec::Vec;

/// A group of so many seats is given no more by a policy: one below the 13 that a view may have,
/// so that there is room for whoever replaces a member beside it.
pub const JOIN_MOST: usize = 12;

/// A node that may be given a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub name: NodeName,
    /// Where it is.
    pub site: SiteId,
    /// Seats that it has in groups.
    pub seats: usize,
}

/// The round trip, in microseconds, from a member of a group of so many to its nearest quorum,
/// itself among it, where these are the round trips to the other members that it hears; none where
/// it hears too few.
pub fn quorum_distance(trips: impl Iterator<Item = Micros>, members: usize) -> Option<Micros> {
    let mut trips: Vec<Micros> = trips.chain([0]).collect();
    trips.sort_unstable();
    trips.get(members / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_quorum_has_this_node_in_it() {
        let distance = |trips: &[Micros], members| quorum_distance(trips.iter().copied(), members);
        assert_eq!(distance(&[70, 50], 3), Some(50));
        assert_eq!(distance(&[70, 50, 20], 4), Some(50), "three of four");
        assert_eq!(distance(&[], 1), Some(0));
        assert_eq!(distance(&[70], 4), None, "two of four are no quorum");
    }

    proptest! {
        #[test]
        fn so_many_are_as_near_as_the_quorum(
            trips in prop::collection::vec(0u64..1_000, 0..12),
            silent in 0usize..3,
        ) {
            let members = trips.len() + 1 + silent;
            let quorum = members / 2 + 1;
            match quorum_distance(trips.iter().copied(), members) {
                None => prop_assert!(trips.len() + 1 < quorum),
                Some(distance) => {
                    let within = |most: u64| 1 + trips.iter().filter(|t| **t <= most).count();
                    prop_assert!(within(distance) >= quorum);
                    let nearer = trips.iter().filter(|t| **t < distance).count();
                    prop_assert!(distance == 0 || nearer + 1 < quorum);
                }
            }
        }
    }
}
