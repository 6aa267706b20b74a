//! The seat of a node that is silent for long.

use super::Candidate;
use crate::base::{NodeName, SiteId};
use alloc::vec::Vec;

/// The members of a group once the seat of one that is dead was given to another: to the candidate
/// with the fewest seats, of the dead one's site if there is one. Candidates are those that are
/// heard and have no seat in the group. Without any the group goes on without the seat, if it has
/// more than `least` members, and else as it is: none.
pub fn replace_dead(
    members: &[(NodeName, SiteId)],
    dead: NodeName,
    candidates: &[Candidate],
    least: usize,
) -> Option<Vec<NodeName>> {
    let seat = members.iter().position(|(name, _)| *name == dead)?;
    let (_, site) = members[seat];
    let elsewhere = |c: &&Candidate| (c.site != site, c.seats, c.name);
    let instead = candidates.iter().min_by_key(elsewhere);
    let mut names: Vec<NodeName> = members.iter().map(|(name, _)| *name).collect();
    match instead {
        Some(candidate) => names[seat] = candidate.name,
        None if members.len() > least => drop(names.remove(seat)),
        None => return None,
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn candidate(name: u32, site: u16, seats: usize) -> Candidate {
        Candidate {
            name: NodeName(name),
            site: SiteId(site),
            seats,
        }
    }

    fn members(names: &[(u32, u16)]) -> Vec<(NodeName, SiteId)> {
        let member = |(name, site): &(u32, u16)| (NodeName(*name), SiteId(*site));
        names.iter().map(member).collect()
    }

    #[test]
    fn a_spare_of_the_same_site_has_the_seat_of_the_dead() {
        let group = members(&[(1, 0), (2, 1), (3, 2)]);
        let dead = NodeName(2);
        let spares = [candidate(4, 0, 0), candidate(5, 1, 2), candidate(6, 1, 0)];
        let next = |spares: &[Candidate], least| replace_dead(&group, dead, spares, least);
        let names = |names: &[u32]| Some(names.iter().copied().map(NodeName).collect::<Vec<_>>());
        assert_eq!(next(&spares, 3), names(&[1, 6, 3]));
        assert_eq!(next(&spares[..1], 3), names(&[1, 4, 3]));
        assert_eq!(next(&[], 3), None);
        assert_eq!(next(&[], 2), names(&[1, 3]));
        assert_eq!(
            replace_dead(&group, NodeName(9), &spares, 3),
            None,
            "no member"
        );
    }

    proptest! {
        #[test]
        fn the_others_keep_their_seats_and_nobody_has_two(
            sites in prop::collection::vec(0u16..3, 1..8),
            at in any::<prop::sample::Index>(),
            spares in prop::collection::vec((0u16..3, 0usize..3), 0..4),
            least in 1usize..8,
        ) {
            let group: Vec<_> = (1..).zip(sites).collect();
            let group = members(&group);
            let dead = group[at.index(group.len())].0;
            let spares: Vec<Candidate> = (100..)
                .zip(spares)
                .map(|(name, (site, seats))| candidate(name, site, seats))
                .collect();
            let Some(next) = replace_dead(&group, dead, &spares, least) else {
                prop_assert!(spares.is_empty() && group.len() <= least);
                return Ok(());
            };
            prop_assert!(!next.contains(&dead));
            let all: BTreeSet<_> = next.iter().collect();
            prop_assert_eq!(all.len(), next.len());
            let kept: Vec<_> = group.iter().map(|(n, _)| *n).filter(|n| *n != dead).collect();
            let still: Vec<_> = next.iter().copied().filter(|n| kept.contains(n)).collect();
            prop_assert_eq!(still, kept);
            prop_assert!(next.len() == group.len() || next.len() >= least);
        }
    }
}
