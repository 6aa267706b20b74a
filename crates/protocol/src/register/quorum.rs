//! Sizes of quorums, from a policy and a view; never from a global n.

use crate::base::{StoragePolicy, View};

/// What a register operation must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// Members of the view, n.
    pub members: usize,
    /// Answers that complete a phase, q.
    pub size: usize,
    /// Members that two quorums share at least, k: the fragments that rebuild a value.
    pub common: usize,
}

impl Quorum {
    /// Members that may fail, f = n − q.
    pub fn faults(&self) -> usize {
        self.members - self.size
    }

    /// Other members that a replica must hear to learn again everything to which it may ever have
    /// contributed: any quorum that it was in has q − 1 others, and n − q + 1 of the n − 1 others
    /// meet them. For one member there is no such set.
    pub fn others_to_repair(&self) -> usize {
        self.members - self.size + self.common
    }
}

/// The quorum of a keyspace's registers in `view`: q = ⌈(n + k) / 2⌉, with k = 1 where every member
/// holds the whole value, which makes q a majority.
pub fn quorum(policy: StoragePolicy, view: &View) -> Quorum {
    assert!(!view.is_empty(), "a view has members");
    match policy {
        StoragePolicy::Replicated => Quorum {
            members: view.len(),
            size: view.majority(),
            common: 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Epoch, GroupId, Member, NodeName, SiteId};

    #[test]
    fn two_quorums_meet_and_a_repair_meets_every_quorum() {
        for n in 1..=13u16 {
            let member = |i| Member {
                name: NodeName(i),
                site: SiteId(0),
                public_key: None,
            };
            let view = View {
                group: GroupId(0),
                epoch: Epoch::FIRST,
                seats: (0..n).map(member).collect(),
            };
            let q = quorum(StoragePolicy::Replicated, &view);
            assert!(2 * q.size >= q.members + q.common);
            assert!(q.others_to_repair() + (q.size - 1) > q.members - 1);
        }
    }
}
