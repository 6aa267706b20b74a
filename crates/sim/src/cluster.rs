//! The clusters that worlds are made of.

use fermata_protocol::base::{
    Addresses, Cluster, ClusterId, Epoch, Group, GroupId, LockRef, Member, NodeInfo, NodeName,
    SegmentId, SiteId, View,
};

/// The smallest cluster of the simulator: seven nodes on three sites, two groups of three and of
/// four members, four segments. Nothing may assume one group, or an odd one.
pub fn smallest() -> Cluster {
    let sites = [0, 1, 2, 0, 1, 2, 0];
    let groups: [(u128, (u32, u32), &[u32]); 2] =
        [(1, (0, 1), &[1, 2, 3]), (2, (2, 3), &[4, 5, 6, 7])];
    build(2, &sites, &groups)
}

/// Seven nodes in groups of five and of four that share two of them: a value is coded into as many
/// parts, of which three, or two, give it back after one failure.
pub fn broad() -> Cluster {
    let sites = [0, 1, 2, 0, 1, 2, 0];
    let groups: [(u128, (u32, u32), &[u32]); 2] =
        [(1, (0, 1), &[1, 2, 3, 4, 5]), (2, (2, 3), &[4, 5, 6, 7])];
    build(2, &sites, &groups)
}

/// One group of seven, which bears two failures with three parts, and one with five.
pub fn seven() -> Cluster {
    let sites = [0, 1, 2, 0, 1, 2, 0];
    build(1, &sites, &[(1, (0, 1), &[1, 2, 3, 4, 5, 6, 7])])
}

/// One group of some replicas, one per site, and two segments: what schedules are told about, with
/// one more node per site that has no seat, so that a coordinator need not be a replica.
pub fn schedule(replicas: u32) -> Cluster {
    let sites: Vec<u16> = (0..replicas as u16 + 3).map(|i| i % 3).collect();
    let members: Vec<u32> = (1..=replicas).collect();
    build(1, &sites, &[(1, (0, 1), &members)])
}

/// Two groups of three, which own a segment each, and two nodes without a seat.
pub fn spared() -> Cluster {
    let sites = [0, 1, 2, 0, 1, 2, 0, 1];
    let groups: [(u128, (u32, u32), &[u32]); 2] =
        [(1, (0, 0), &[1, 2, 3]), (2, (1, 1), &[4, 5, 6])];
    build(1, &sites, &groups)
}

/// Groups of five, which own four to eight segments each; nobody has two seats but in the
/// meta-group.
pub fn of_fives(groups: u32) -> Cluster {
    let sites: Vec<u16> = (0..5 * groups).map(|i| (i % 3) as u16).collect();
    let segments = (4 * groups).next_power_of_two();
    let bits = segments.trailing_zeros();
    let members: Vec<Vec<u32>> = (0..groups)
        .map(|g| (1..=5).map(|i| 5 * g + i).collect())
        .collect();
    let begin = |g: u32| g * segments / groups;
    let arcs = (0..groups).map(|g| (begin(g), begin(g + 1) - 1));
    let named = (1..).zip(arcs).zip(&members);
    let named: Vec<(u128, (u32, u32), &[u32])> = named
        .map(|((id, arc), members)| (id, arc, &members[..]))
        .collect();
    // At most 2^24 groups, so that the bits are few.
    build(bits as u8, &sites, &named)
}

/// One node per site, one group, one segment: the cluster of the paper's experiments.
pub fn paper() -> Cluster {
    build(0, &[0, 1, 2], &[(1, (0, 0), &[1, 2, 3])])
}

/// Like [`paper`], with the ballot-0 primary at another site: seats are rotated.
pub fn paper_led_by(site: u16) -> Cluster {
    let members: Vec<u32> = (0..3).map(|i| 1 + (u32::from(site) + i) % 3).collect();
    build(0, &[0, 1, 2], &[(1, (0, 0), &members)])
}

fn build(bits: u8, sites: &[u16], groups: &[(u128, (u32, u32), &[u32])]) -> Cluster {
    let site_of = |name: u32| SiteId(sites[name as usize - 1]);
    let nodes = (1..=sites.len() as u32).map(|name| NodeInfo {
        name: NodeName(name),
        label: format!("n{name}"),
        site: site_of(name),
        addresses: Addresses::default(),
    });
    let group = |(id, (from, to), members): &(u128, (u32, u32), &[u32])| {
        let seat = |name: &u32| Member {
            name: NodeName(*name),
            site: site_of(*name),
            public_key: None,
        };
        let view = View {
            group: GroupId(*id),
            epoch: Epoch::FIRST,
            seats: members.iter().map(seat).collect(),
        };
        let (from, to) = (SegmentId(*from), SegmentId(*to));
        Group {
            id: GroupId(*id),
            from,
            to,
            view,
        }
    };
    Cluster {
        id: ClusterId(0xfe),
        segment_bits: bits,
        lowest_ref: LockRef(1),
        sites: vec!["one".into(), "two".into(), "three".into()],
        nodes: nodes.collect(),
        groups: groups.iter().map(group).collect(),
    }
}
