//! What to ask of the groups of a ring so that a node gets seats, or has none any more. Pure
//! functions of the ring as it is: whoever was interrupted goes on from there.

use fermata_protocol::base::{Epoch, GroupId, NodeName};
use fermata_protocol::registry::Standing;
use fermata_protocol::request::{RingGroup, RingNode, RingSource, RingStatus};

/// Members of a group at most.
const MEMBERS_MAX: usize = 13;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// That node has a seat in that group.
    Seat(NodeName, GroupId),
    /// That node has no seat.
    NoSeat(NodeName),
    /// The second has each seat of the first.
    InPlaceOf(NodeName, NodeName),
}

/// One change of members to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) group: GroupId,
    pub(super) after: Epoch,
    pub(super) members: Vec<NodeName>,
}

/// The node of a label or number, which is in the cluster, or was it last under that label: whoever
/// gives a command again means the same one.
pub(super) fn node<'a>(ring: &'a RingStatus, named: &str) -> Result<&'a RingNode, String> {
    let former = || ring.nodes.iter().rev().find(|node| is(node, named));
    present(ring, named).or_else(|why| former().ok_or(why))
}

/// The node of a label or number, which is in the cluster.
pub(super) fn present<'a>(ring: &'a RingStatus, named: &str) -> Result<&'a RingNode, String> {
    let mut present = ring.nodes.iter().filter(|node| is_present(node));
    let found = present.clone().find(|node| is(node, named));
    found.ok_or_else(|| {
        let labels: Vec<&str> = present.by_ref().map(|node| &*node.label).collect();
        format!(
            "there is no node {named:?} in this cluster: its nodes are {}",
            labels.join(", ")
        )
    })
}

fn is(node: &RingNode, named: &str) -> bool {
    node.label == named || node.name.0.to_string() == named
}

fn is_present(node: &RingNode) -> bool {
    node.standing == Standing::Present
}

/// Refuses a wish that cannot come true, before anything is asked for: its steps, and that the node
/// that is to have seats answers.
///
/// # Errors
/// One sentence.
pub(super) fn check(ring: &RingStatus, wish: &Wish) -> Result<(), String> {
    let steps = steps(ring, wish)?;
    let (Wish::Seat(new, _) | Wish::InPlaceOf(_, new)) = *wish else {
        return Ok(());
    };
    let found = ring.nodes.iter().find(|node| node.name == new);
    match found {
        Some(node) if !node.heard && !steps.is_empty() => Err(format!(
            "{} is not heard, and who has a seat is counted on: start it first",
            node.label
        )),
        _ => Ok(()),
    }
}

/// The group that a node is to have a seat in: the one with a segment, or with the fewest members.
pub(super) fn group_for(ring: &RingStatus, segment: Option<u32>) -> Result<&RingGroup, String> {
    let mut owners = ring.groups.iter().filter(|group| group.id != GroupId::META);
    let found = match segment {
        Some(at) => owners.find(|group| (group.from.0..=group.to.0).contains(&at)),
        None => owners.min_by_key(|group| (group.members.len(), group.from)),
    };
    found.ok_or_else(|| "no group has that segment: see `fermata ring`".to_owned())
}

/// What to ask next, of one group after the other; nothing where the wish is fulfilled. The
/// meta-group comes last: of two commands at once the groups that own keys let one go first, and
/// the other has changed nothing by then.
///
/// # Errors
/// One sentence, where it cannot be.
pub(super) fn steps(ring: &RingStatus, wish: &Wish) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let (meta, owners): (Vec<_>, Vec<_>) = ring
        .groups
        .iter()
        .partition(|group| group.id == GroupId::META);
    for group in owners.into_iter().chain(meta) {
        let members = match *wish {
            Wish::Seat(name, of) if of == group.id => with(ring, group, name)?,
            Wish::Seat(..) => continue,
            Wish::NoSeat(name) => without(ring, group, name)?,
            Wish::InPlaceOf(old, new) => replaced(ring, group, (old, new))?,
        };
        if members != group.members {
            steps.push(Step {
                group: group.id,
                after: group.epoch,
                members,
            });
        }
    }
    Ok(steps)
}

fn with(ring: &RingStatus, group: &RingGroup, name: NodeName) -> Result<Vec<NodeName>, String> {
    let mut members = group.members.clone();
    if !members.contains(&name) {
        may_sit(ring, name)?;
        members.push(name);
    }
    if members.len() > MEMBERS_MAX {
        return Err(format!(
            "{} has {MEMBERS_MAX} members, the most",
            told(group)
        ));
    }
    Ok(members)
}

/// The meta-group keeps its size as long as there is somebody to take the seat: first a node of the
/// same site, which has none there.
fn without(ring: &RingStatus, group: &RingGroup, name: NodeName) -> Result<Vec<NodeName>, String> {
    let mut members = group.members.clone();
    let Some(seat) = members.iter().position(|member| *member == name) else {
        return Ok(members);
    };
    let spare = |node: &&RingNode| {
        let takes = node.heard && may_sit(ring, node.name).is_ok();
        takes && !group.members.contains(&node.name)
    };
    let site = ring
        .nodes
        .iter()
        .find(|node| node.name == name)
        .map(|node| &node.site);
    let spares = ring.nodes.iter().filter(spare);
    let instead = spares.min_by_key(|node| (Some(&node.site) != site, node.name));
    match instead {
        Some(node) if group.id == GroupId::META => members[seat] = node.name,
        _ => drop(members.remove(seat)),
    }
    match members.len() < usize::from(ring.least) {
        true => Err(format!(
            "{}: replace the node instead, or add another first",
            too_few(ring, group)
        )),
        false => Ok(members),
    }
}

fn replaced(
    ring: &RingStatus,
    group: &RingGroup,
    (old, new): (NodeName, NodeName),
) -> Result<Vec<NodeName>, String> {
    let mut members = group.members.clone();
    let Some(seat) = members.iter().position(|member| *member == old) else {
        return Ok(members);
    };
    if !members.contains(&new) {
        may_sit(ring, new)?;
        members[seat] = new;
        return Ok(members);
    }
    members.remove(seat);
    match members.len() < usize::from(ring.least) {
        true => Err(format!(
            "{}, since the node that comes has a seat there already: replace the node by one that \
             has none, or add another first",
            too_few(ring, group)
        )),
        false => Ok(members),
    }
}

/// That a group would have one member less than it has to.
fn too_few(ring: &RingStatus, group: &RingGroup) -> String {
    format!(
        "{} would have {} members, and no group of this cluster has fewer than {}",
        told(group),
        group.members.len() - 1,
        ring.least
    )
}

/// Refuses a seat to a node that is on its way out.
fn may_sit(ring: &RingStatus, name: NodeName) -> Result<(), String> {
    let node = ring.nodes.iter().find(|node| node.name == name);
    match node.filter(|node| is_present(node)) {
        Some(node) if node.drains => Err(format!("{} drains: undrain it first", node.label)),
        Some(node) if node.full => Err(format!(
            "{} has no room on its disk: make room there first",
            node.label
        )),
        Some(_) => Ok(()),
        None => Err(format!("node {} is not in the cluster any more", name.0)),
    }
}

/// A group as people call it.
pub(super) fn told(group: &RingGroup) -> String {
    match group.id {
        GroupId::META => "the meta-group".to_owned(),
        _ => format!("the group of segments {} to {}", group.from.0, group.to.0),
    }
}

/// Segments of a group of which something is still to be done before it has gone on: not started,
/// and with values that have not moved.
pub(super) fn left(group: &RingGroup) -> (u32, u32) {
    let moving = group.sources.iter().map(|source| {
        let owed = source.owed.iter().map(|(_, segments)| *segments).max();
        source.open.max(owed.unwrap_or(0))
    });
    (group.unstarted, moving.sum())
}

/// Whether a wish is about a node that is lost: nobody waits for the values of two earlier epochs.
pub(super) fn is_pressing(ring: &RingStatus, wish: &Wish) -> bool {
    let (Wish::NoSeat(old) | Wish::InPlaceOf(old, _)) = *wish else {
        return false;
    };
    let known = ring.nodes.iter().find(|node| node.name == old);
    known.is_none_or(|known| known.standing == Standing::Lost)
}

/// Whether some group still needs something of a node: a seat, or a store that it had.
pub(super) fn is_needed(ring: &RingStatus, name: NodeName) -> bool {
    ring.groups.iter().any(|group| {
        let owes = |owed: &(NodeName, u32)| owed.0 == name;
        let sources = &group.sources;
        let open = |s: &RingSource| s.open > 0 && s.members.contains(&name);
        group.members.contains(&name) || sources.iter().any(|s| open(s) || s.owed.iter().any(owes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Addresses, SegmentId};

    fn node_at(name: u32, site: &str) -> RingNode {
        RingNode {
            name: NodeName(name),
            label: format!("n{name}"),
            site: site.to_owned(),
            standing: Standing::Present,
            drains: false,
            addresses: Addresses::default(),
            heard: true,
            full: false,
            last_heard: Some(0),
        }
    }

    fn names(names: &[u32]) -> Vec<NodeName> {
        names.iter().copied().map(NodeName).collect()
    }

    fn group_of(id: u128, (from, to): (u32, u32), members: &[u32]) -> RingGroup {
        RingGroup {
            id: GroupId(id),
            from: SegmentId(from),
            to: SegmentId(to),
            epoch: Epoch(3),
            members: names(members),
            leader: None,
            unstarted: 0,
            sources: vec![],
        }
    }

    /// Three nodes on three sites, and a spare on the second; one group beside the meta-group.
    fn ring(members: &[u32]) -> RingStatus {
        let sites = [(1, "a"), (2, "b"), (3, "c"), (4, "b")];
        RingStatus {
            node: NodeName(1),
            version: 4,
            least: 3,
            nodes: sites.map(|(name, site)| node_at(name, site)).to_vec(),
            groups: vec![
                group_of(0, (1, 0), &[1, 2, 3]),
                group_of(1, (0, 15), members),
            ],
        }
    }

    fn wanted(ring: &RingStatus, wish: &Wish) -> Vec<(u128, Vec<NodeName>)> {
        let steps = steps(ring, wish).expect("it can be");
        assert!(steps.iter().all(|step| step.after == Epoch(3)));
        let step = |step: Step| (step.group.0, step.members);
        steps.into_iter().map(step).collect()
    }

    #[test]
    fn a_seat_is_asked_for_once() {
        let wish = Wish::Seat(NodeName(4), GroupId(1));
        let few = ring(&[1, 2, 3]);
        assert_eq!(wanted(&few, &wish), [(1, names(&[1, 2, 3, 4]))]);
        assert_eq!(wanted(&ring(&[1, 2, 3, 4]), &wish), []);
        let full = ring(&(5..18).collect::<Vec<_>>());
        assert!(steps(&full, &wish).is_err_and(|why| why.contains("13 members")));
    }

    #[test]
    fn nobody_who_goes_or_is_silent_or_full_is_given_a_seat() {
        let wishes = [
            Wish::Seat(NodeName(4), GroupId(1)),
            Wish::InPlaceOf(NodeName(2), NodeName(4)),
        ];
        let refused = |change: fn(&mut RingNode), why: &str| {
            let (mut few, mut all) = (ring(&[1, 2, 3]), ring(&[1, 2, 3, 4]));
            change(&mut few.nodes[3]);
            change(&mut all.nodes[3]);
            for wish in &wishes {
                let said = check(&few, wish).expect_err("no seat");
                assert!(said.contains(why), "{said}");
            }
            // It has that seat already.
            assert_eq!(check(&all, &wishes[0]), Ok(()));
        };
        refused(|node| node.drains = true, "n4 drains");
        refused(|node| node.heard = false, "n4 is not heard");
        refused(|node| node.full = true, "n4 has no room on its disk");
        refused(|node| node.standing = Standing::Gone, "node 4 is not in");
        assert_eq!(check(&ring(&[1, 2, 3]), &wishes[0]), Ok(()));
    }

    #[test]
    fn who_goes_is_followed_in_the_meta_group_by_a_node_of_its_site() {
        let four = ring(&[1, 2, 3, 4]);
        let wish = Wish::NoSeat(NodeName(2));
        let both = [(1, names(&[1, 3, 4])), (0, names(&[1, 4, 3]))];
        assert_eq!(wanted(&four, &wish), both);
        let why = steps(&ring(&[1, 2, 3]), &wish).expect_err("too few");
        assert!(
            why.contains("segments 0 to 15 would have 2 members"),
            "{why}"
        );
        let mut alone = four;
        alone.nodes[3].drains = true;
        let why = steps(&alone, &wish).expect_err("nobody follows");
        assert!(why.contains("meta-group would have 2 members"), "{why}");
    }

    #[test]
    fn who_comes_has_each_seat_of_who_goes() {
        let wish = Wish::InPlaceOf(NodeName(2), NodeName(4));
        let both = [(1, names(&[1, 4, 3])), (0, names(&[1, 4, 3]))];
        assert_eq!(wanted(&ring(&[1, 2, 3]), &wish), both);
        assert_eq!(
            wanted(&ring(&[1, 2, 3, 4]), &wish)[0],
            (1, names(&[1, 3, 4]))
        );
        // A seat that it has already is none to come.
        let seated = Wish::InPlaceOf(NodeName(2), NodeName(3));
        let why = steps(&ring(&[1, 2, 3]), &seated).expect_err("too few");
        assert!(why.contains("has a seat there already"), "{why}");
    }

    #[test]
    fn a_node_is_needed_until_what_it_has_is_elsewhere() {
        let mut ring = ring(&[1, 3, 4]);
        ring.groups[0].members = names(&[1, 4, 3]);
        let gone = NodeName(2);
        assert!(!is_needed(&ring, gone));
        let source = RingSource {
            epoch: Epoch(2),
            members: names(&[1, 2, 3]),
            open: 0,
            owed: vec![(NodeName(2), 4)],
        };
        ring.groups[1].sources = vec![source.clone()];
        assert!(is_needed(&ring, gone) && !is_needed(&ring, NodeName(9)));
        assert_eq!(left(&ring.groups[1]), (0, 4));
        ring.groups[1].sources = vec![RingSource {
            open: 7,
            owed: vec![],
            ..source
        }];
        assert!(is_needed(&ring, gone));
        assert_eq!(left(&ring.groups[1]), (0, 7));
    }

    #[test]
    fn nodes_are_found_by_label_or_number() {
        let ring = ring(&[1, 2, 3]);
        for named in ["n4", "4"] {
            assert_eq!(node(&ring, named).map(|node| node.name), Ok(NodeName(4)));
        }
        assert!(node(&ring, "n9").is_err_and(|why| why.contains("n1, n2, n3, n4")));
        let mut given_up = ring.clone();
        given_up.nodes[3].standing = Standing::Lost;
        assert!(node(&given_up, "n4").is_ok() && present(&given_up, "n4").is_err());
        assert_eq!(group_for(&ring, None).map(|group| group.id), Ok(GroupId(1)));
        assert!(group_for(&ring, Some(16)).is_err());
    }
}
