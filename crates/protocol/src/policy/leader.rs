//! Which member should lead a group's own log: the nearest to a quorum.

use crate::base::{Micros, NodeName};

/// A leader is beaten so many times in a row before another leads: what one look finds may be the
/// network's mood.
const TIMES: u32 = 3;
/// Another is better if it is nearer by so many percent: two that are equally near take no turns.
const BETTER_PERCENT: u64 = 20;

/// What a look at a group's members says of its leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leading {
    /// For how many looks in a row another member has been better, until now.
    pub beaten: u32,
    /// Who should lead instead; none: the leader stays.
    pub wish: Option<NodeName>,
}

/// Of a group's members the one that is the nearest to a quorum, where it is nearer than the
/// present leader by a fifth at least, for the third look in a row; `beaten` looks before this one
/// said so. `distances` are round trips to the nearest quorum, microseconds, of the members that
/// may lead and whose distance is known; the leader without one stays.
pub fn leader_latency(leader: NodeName, distances: &[(NodeName, Micros)], beaten: u32) -> Leading {
    let own = distances.iter().find(|(name, _)| *name == leader);
    let best = distances.iter().min_by_key(|(name, far)| (*far, *name));
    let (Some((_, own)), Some((name, far))) = (own, best) else {
        return Leading::default();
    };
    let most = u128::from(*own) * u128::from(100 - BETTER_PERCENT);
    if far >= own || u128::from(*far) * 100 > most {
        return Leading::default();
    }
    let beaten = beaten.saturating_add(1);
    Leading {
        beaten,
        wish: (beaten >= TIMES).then_some(*name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const A: NodeName = NodeName(1);
    const B: NodeName = NodeName(2);

    #[test]
    fn who_is_nearer_by_a_fifth_three_times_leads() {
        let look = |far, beaten| leader_latency(A, &[(A, 100), (B, far)], beaten);
        assert_eq!(look(81, 2), Leading::default(), "not by a fifth");
        let beaten = |beaten, wish| Leading { beaten, wish };
        assert_eq!(look(80, 0), beaten(1, None));
        assert_eq!(look(80, 1), beaten(2, None));
        assert_eq!(look(80, 2), beaten(3, Some(B)));
        assert_eq!(look(80, 3), beaten(4, Some(B)), "until it leads");
        let unknown = leader_latency(A, &[(B, 1)], 2);
        assert_eq!(unknown, Leading::default(), "the leader knows nothing");
    }

    proptest! {
        #[test]
        fn it_moves_to_a_member_that_is_better_and_stays_there(
            far in prop::collection::vec(0u64..1_000, 1..13),
            at in any::<prop::sample::Index>(),
            beaten in 0u32..5,
        ) {
            let known: Vec<(NodeName, u64)> = (1..).map(NodeName).zip(far).collect();
            let (leader, own) = known[at.index(known.len())];
            let look = leader_latency(leader, &known, beaten);
            prop_assert!(look.beaten == 0 || look.beaten == beaten + 1);
            let Some(wish) = look.wish else { return Ok(()) };
            prop_assert!(beaten >= 2);
            let wished = known.iter().find(|(name, _)| *name == wish).expect("a member");
            prop_assert!(wished.1 * 100 <= own * 80 && wished.1 < own);
            let next = leader_latency(wish, &known, u32::MAX);
            prop_assert_eq!(next, Leading::default());
        }
    }
}
