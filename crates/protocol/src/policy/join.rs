//! Which group a node without a seat should have one in.

use super::survival::more_than;
use super::{JOIN_MOST, Odds, Survival, quorum_distance};
use crate::base::{GroupId, Micros};
use alloc::vec::Vec;
use core::cmp::Ordering;

/// A group that may be joined, as its leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joinable {
    /// Which.
    pub group: GroupId,
    /// Its seats, as they are.
    pub seats: usize,
    /// Operations that it had lately.
    pub operations: u64,
    /// Round trips from its primary to the other members that are heard, microseconds.
    pub trips: Vec<Micros>,
    /// For how long its members have been known, microseconds.
    pub ages: Vec<Micros>,
}

impl Joinable {
    fn has_room(&self) -> bool {
        self.seats < JOIN_MOST
    }

    /// From its primary to the nearest quorum once a node that is so far away has a seat; nothing
    /// is farther than what is not known.
    fn distance_with(&self, newcomer: Micros) -> Micros {
        let trips = self.trips.iter().copied().chain([newcomer]);
        quorum_distance(trips, self.seats + 1).unwrap_or(Micros::MAX)
    }

    /// The chance that so many members die within a time that the others are no quorum.
    fn ends(&self, known: &Survival, within: Micros) -> Odds {
        let bears = self.seats.saturating_sub(1) / 2;
        let dies = self.ages.iter().map(|age| known.dies(*age, within));
        more_than(bears, &dies.collect::<Vec<_>>())
    }

    /// Whether a seat of this one has more to do than one of another.
    fn load_cmp(&self, other: &Joinable) -> Ordering {
        let of = |one: &Joinable, by: &Joinable| u128::from(one.operations) * by.seats as u128;
        of(self, other).cmp(&of(other, self))
    }
}

fn open(groups: &[Joinable]) -> impl Iterator<Item = &Joinable> {
    groups.iter().filter(|group| group.has_room())
}

/// The group with the most operations per seat lately; of several the one with the fewest seats,
/// then the first. None where no group has room.
pub fn join_load(groups: &[Joinable]) -> Option<GroupId> {
    let later = |one: &&Joinable, other: &&Joinable| {
        let load = other.load_cmp(one);
        load.then((one.seats, one.group).cmp(&(other.seats, other.group)))
    };
    Some(open(groups).min_by(later)?.group)
}

/// The group whose primary has the smallest round trip to its nearest quorum, with a newcomer in
/// it that is `newcomer` microseconds away from the primary and back; of several the first. None
/// where no group has room.
pub fn join_latency(groups: &[Joinable], newcomer: Micros) -> Option<GroupId> {
    let far = |group: &&Joinable| (group.distance_with(newcomer), group.group);
    Some(open(groups).min_by_key(far)?.group)
}

/// The group that is the likeliest to lose its quorum within a time, microseconds, by what is known
/// of how long nodes live; where nothing is, the one with the fewest seats. Of several the one of
/// [`join_latency`]. None where no group has room.
pub fn join_resilient(
    groups: &[Joinable],
    known: &Survival,
    within: Micros,
    newcomer: Micros,
) -> Option<GroupId> {
    let weakest = |group: &&Joinable| {
        let seats = known.is_empty().then_some(group.seats);
        let holds = Odds::ONE - group.ends(known, within).0;
        (holds, seats, group.distance_with(newcomer), group.group)
    };
    Some(open(groups).min_by_key(weakest)?.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(id: u128, operations: u64, trips: &[Micros]) -> Joinable {
        Joinable {
            group: GroupId(id),
            seats: trips.len() + 1,
            operations,
            trips: trips.to_vec(),
            ages: [100].repeat(trips.len() + 1),
        }
    }

    #[test]
    fn the_seats_with_most_to_do_get_help() {
        let (busy, idle) = (group(1, 300, &[1, 1]), group(2, 290, &[1, 1]));
        let wide = group(3, 400, &[1, 1, 1, 1]);
        let first = |groups: &[Joinable]| join_load(groups).map(|group| group.0);
        assert_eq!(first(&[idle.clone(), wide.clone(), busy.clone()]), Some(1));
        let even = group(4, 500, &[1, 1, 1, 1]);
        assert_eq!(first(&[even, busy]), Some(1), "as much each: fewest seats");
        let (one, two) = (group(2, 0, &[1, 1]), group(1, 0, &[1, 1]));
        assert_eq!(first(&[one, two]), Some(1), "then the first");
    }

    #[test]
    fn the_newcomer_goes_where_the_quorum_is_near_then() {
        // Of two members both are a quorum, and of three two are: the newcomer is the nearest.
        let (two, three) = (group(1, 0, &[70]), group(2, 0, &[50, 60]));
        let groups = [two, three];
        assert_eq!(join_latency(&groups, 20), Some(GroupId(1)));
        assert_eq!(join_latency(&groups, 65), Some(GroupId(2)));
        let silent = Joinable {
            trips: Vec::new(),
            ..group(1, 0, &[1, 1])
        };
        let far = group(2, 0, &[900, 900]);
        assert_eq!(join_latency(&[silent, far], 1), Some(GroupId(2)));
    }

    #[test]
    fn the_likeliest_to_end_is_helped() {
        let known = Survival::observed([10, 20, 30, 1_000].into_iter());
        let young = Joinable {
            ages: Vec::from([1, 1, 200]),
            ..group(1, 0, &[5, 5])
        };
        let old = Joinable {
            ages: Vec::from([200, 200, 200]),
            ..group(2, 0, &[1, 1])
        };
        let groups = [old.clone(), young.clone()];
        let wish = |known: &Survival| join_resilient(&groups, known, 20, 3);
        assert_eq!(wish(&known), Some(GroupId(1)));
        let none = Survival::default();
        assert_eq!(wish(&none), Some(GroupId(2)), "as many seats: the nearest");
        let wide = group(3, 0, &[1, 1, 1]);
        let narrow = group(4, 0, &[9, 9]);
        let wish = join_resilient(&[wide, narrow], &none, 20, 3);
        assert_eq!(wish, Some(GroupId(4)), "the fewest seats");
    }

    fn joinable() -> impl Strategy<Value = Joinable> {
        let trips = prop::collection::vec(0u64..200, 0..13);
        let ages = prop::collection::vec(0u64..200, 13);
        (1u128..9, 0u64..500, trips, ages).prop_map(|(id, operations, trips, ages)| {
            let seats = trips.len() + 1;
            Joinable {
                ages: ages[..seats].to_vec(),
                ..group(id, operations, &trips)
            }
        })
    }

    /// Groups of different names.
    fn joinables() -> impl Strategy<Value = Vec<Joinable>> {
        prop::collection::vec(joinable(), 0..6).prop_map(|mut groups| {
            groups.sort_by_key(|group| group.group);
            groups.dedup_by_key(|group| group.group);
            groups
        })
    }

    proptest! {
        #[test]
        fn a_wish_is_one_of_the_groups_that_have_room_and_whatever_their_order(
            groups in joinables(),
            lived in prop::collection::vec(0u64..300, 0..9),
            newcomer in 0u64..200,
            turn in 0usize..6,
        ) {
            let known = Survival::observed(lived.into_iter());
            let wishes = |groups: &[Joinable]| [
                join_load(groups),
                join_latency(groups, newcomer),
                join_resilient(groups, &known, 50, newcomer),
            ];
            let room = groups.iter().filter(|group| group.seats < JOIN_MOST);
            let room: Vec<GroupId> = room.map(|group| group.group).collect();
            for wish in wishes(&groups) {
                prop_assert_eq!(wish.is_some(), !room.is_empty());
                prop_assert!(wish.is_none_or(|wish| room.contains(&wish)));
            }
            let mut turned = groups.clone();
            turned.rotate_left(turn.min(groups.len()));
            prop_assert_eq!(wishes(&turned), wishes(&groups));
        }

        #[test]
        fn no_group_is_better_than_the_one_that_is_wished(
            groups in joinables(),
            lived in prop::collection::vec(0u64..300, 1..9),
            newcomer in 0u64..200,
        ) {
            let known = Survival::observed(lived.into_iter());
            let find = |id: GroupId| groups.iter().find(|group| group.group == id).expect("one");
            for other in open(&groups) {
                let load = find(join_load(&groups).expect("room"));
                let (most, least) = (load.operations * other.seats as u64,
                    other.operations * load.seats as u64);
                prop_assert!(most > least || most == least && load.seats <= other.seats);
                let near = find(join_latency(&groups, newcomer).expect("room"));
                prop_assert!(near.distance_with(newcomer) <= other.distance_with(newcomer));
                let weak = join_resilient(&groups, &known, 50, newcomer).expect("room");
                prop_assert!(find(weak).ends(&known, 50) >= other.ends(&known, 50));
            }
        }
    }
}
