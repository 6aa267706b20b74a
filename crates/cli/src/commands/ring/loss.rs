//! What goes with a disk that is lost: told before the node is given up, and after.
//!
//! What was acknowledged at quorums is at others. What one member took alone is not, and nobody can
//! list it: so it is said what counted on the disk, and where such puts are made.

use std::time::Duration;

use fermata_protocol::base::{GroupId, NodeName, Purpose};
use fermata_protocol::registry::Standing;
use fermata_protocol::request::{RingGroup, RingNode, RingSource, RingStatus};

use super::plan::{self, Wish};
use super::{Task, segments_left};
use crate::duration;
use crate::exit::{Exit, Failure};

impl Task<'_> {
    /// Says what goes with the disk of the first node. If that is agreed to, gives the node up, has
    /// the second take its seats, and says what became of it.
    pub(super) async fn give_up(
        &mut self,
        ring: &RingStatus,
        (old, new): (&RingNode, &RingNode),
        agreed: bool,
    ) -> Result<(), Failure> {
        if old.heard && old.standing == Standing::Present {
            let why = format!(
                "{} is heard: its disk is not lost; replace it without --lost, or stop it for good \
                 first",
                old.label
            );
            return Err(Failure::new(Exit::Refused, why));
        }
        let counted = counts_on(ring, old.name);
        self.note(&unheard(ring, old));
        self.note(&counting(old, &counted));
        self.note(&eventual(old, &self.eventual_keyspaces().await?));
        if !agreed {
            return Err(Failure::usage(format!(
                "{0} was not given up, since --yes is missing: if its disk is gone for good, say \
                 `fermata node replace {0} {1} --lost --yes`",
                old.label, new.label
            )));
        }
        self.dismiss(old, true).await?;
        self.bring_about(Wish::InPlaceOf(old.name, new.name))
            .await?;
        let after = self.client.ring().await?;
        self.note(&written_off(old, &counted));
        self.note(&outcome(&after, old, new));
        Ok(())
    }

    /// The keyspaces in which one member alone may take a put.
    async fn eventual_keyspaces(&self) -> Result<Vec<String>, Failure> {
        let keyspaces = self.client.keyspaces().await?.into_iter();
        let eventual = keyspaces.filter(|keyspace| keyspace.purpose == Purpose::Sections);
        Ok(eventual.map(|keyspace| keyspace.name).collect())
    }
}

/// What counts on a node's disk in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    group: String,
    /// It has a seat there.
    seated: bool,
    /// Segments of the group; the meta-group has none.
    segments: u64,
    /// Segments with an earlier store that somebody still needs, of which it is a member.
    earlier: u64,
    /// Of these, those of which it has not given on what it alone may have.
    owed: u64,
}

/// What counts on a node's disk, by group.
fn counts_on(ring: &RingStatus, name: NodeName) -> Vec<Counted> {
    let of = |group: &RingGroup| {
        let needed = group.sources.iter().map(|source| needed_of(source, name));
        let (earlier, owed) = needed.fold((0, 0), |sum, (open, owed)| {
            (sum.0 + u64::from(open.max(owed)), sum.1 + u64::from(owed))
        });
        Counted {
            group: plan::told(group),
            seated: group.members.contains(&name),
            segments: match group.id {
                GroupId::META => 0,
                _ => u64::from(group.to.0 - group.from.0) + 1,
            },
            earlier,
            owed,
        }
    };
    let counted = ring.groups.iter().map(of);
    counted
        .filter(|counted| counted.seated || counted.earlier > 0)
        .collect()
}

/// Segments of an earlier store that may need a node: whose keys have not all moved, and in which
/// it has not given on what it alone may have.
fn needed_of(source: &RingSource, name: NodeName) -> (u32, u32) {
    let owed = source.owed.iter().find(|(owes, _)| *owes == name);
    let open = match source.members.contains(&name) {
        true => source.open,
        false => 0,
    };
    (open, owed.map_or(0, |(_, segments)| *segments))
}

fn unheard(ring: &RingStatus, node: &RingNode) -> String {
    let label = &node.label;
    let asked = ring.nodes.iter().find(|known| known.name == ring.node);
    let asked = asked.map_or("the node that was asked", |known| &known.label);
    match node.last_heard {
        Some(micros) => {
            let ago = duration::show(Duration::from_micros(micros));
            format!("{label} was heard by {asked} for the last time {ago} ago")
        }
        None => format!("{label} was not heard by {asked} since {asked} started"),
    }
}

fn counting(node: &RingNode, counted: &[Counted]) -> String {
    let label = &node.label;
    let of = |at: &Counted| {
        let mut clauses = Vec::new();
        if at.seated {
            clauses.push(match at.segments {
                0 => format!("in {}", at.group),
                1 => format!("in {}, 1 segment", at.group),
                segments => format!("in {}, {segments} segments", at.group),
            });
        }
        if at.earlier > 0 {
            let owed = match at.owed {
                0 => String::new(),
                owed => format!(", and has not given on what it alone may have in {owed} of them"),
            };
            let earlier = segments(at.earlier);
            clauses.push(format!(
                "in earlier stores of {earlier} of {}{owed}",
                at.group
            ));
        }
        clauses.join(", and ")
    };
    let counted: Vec<String> = counted.iter().map(of).collect();
    match counted.is_empty() {
        true => format!("no group counts on the disk of {label} any more"),
        false => format!(
            "groups count on the disk of {label}: {}",
            counted.join("; ")
        ),
    }
}

fn eventual(node: &RingNode, keyspaces: &[String]) -> String {
    let where_made = match keyspaces {
        [] => return "no keyspace takes eventual puts: nothing acknowledged is lost".to_owned(),
        [one] => format!("the keyspace {one}"),
        several => format!("the keyspaces {}", several.join(", ")),
    };
    format!(
        "eventual puts in {where_made} that {} alone had go with its disk; whatever was \
         acknowledged otherwise is at others",
        node.label
    )
}

fn written_off(node: &RingNode, counted: &[Counted]) -> String {
    let seats: u64 = counted
        .iter()
        .map(|at| at.segments * u64::from(at.seated))
        .sum();
    let owed: u64 = counted.iter().map(|at| at.owed).sum();
    let label = &node.label;
    let mut sentence = match seats {
        0 => format!("no segment had a seat for {label} any more"),
        _ => format!("{} went on without the store of {label}", segments(seats)),
    };
    if owed > 0 {
        sentence += &format!("; what it owed in {} is written off", segments(owed));
    }
    sentence
}

/// What is so in the end.
fn outcome(ring: &RingStatus, old: &RingNode, new: &RingNode) -> String {
    let moved = match segments_left(ring) {
        0 => format!(
            "{} has got everything that others had, and no earlier store is open",
            new.label
        ),
        left => format!(
            "earlier stores of {} are still needed, `fermata ring` shows them",
            segments(left)
        ),
    };
    format!(
        "{moved}; eventual puts that {} alone had are gone, whatever was acknowledged otherwise is \
         at others",
        old.label
    )
}

fn segments(count: u64) -> String {
    match count {
        1 => "1 segment".to_owned(),
        _ => format!("{count} segments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Addresses, Epoch, SegmentId};

    fn node(name: u32) -> RingNode {
        RingNode {
            name: NodeName(name),
            label: format!("n{name}"),
            site: "here".to_owned(),
            standing: Standing::Present,
            drains: false,
            addresses: Addresses::default(),
            heard: name != 3,
            full: false,
            last_heard: (name != 3).then_some(0),
        }
    }

    fn group(id: u128, to: u32, members: &[u32], sources: Vec<RingSource>) -> RingGroup {
        RingGroup {
            id: GroupId(id),
            from: SegmentId(u32::from(id == 0)),
            to: SegmentId(to),
            epoch: Epoch(3),
            members: members.iter().copied().map(NodeName).collect(),
            leader: None,
            unstarted: 0,
            sources,
        }
    }

    /// Four nodes; the third is silent, and has not given on what it has of two segments.
    fn ring(members: &[u32]) -> RingStatus {
        let source = RingSource {
            epoch: Epoch(2),
            members: [1, 2, 3].map(NodeName).to_vec(),
            open: 1,
            owed: vec![(NodeName(1), 9), (NodeName(3), 2)],
        };
        RingStatus {
            node: NodeName(1),
            version: 4,
            least: 3,
            nodes: (1..=4).map(node).collect(),
            groups: vec![
                group(0, 0, &[1, 2, 3], vec![]),
                group(1, 15, members, vec![source]),
            ],
        }
    }

    #[test]
    fn what_counts_on_a_disk_is_told_by_group() {
        let (ring, lost) = (ring(&[1, 2, 3]), node(3));
        let counted = counts_on(&ring, lost.name);
        let said = "groups count on the disk of n3: in the meta-group; in the group of segments \
                    0 to 15, 16 segments, and in earlier stores of 2 segments of the group of \
                    segments 0 to 15, and has not given on what it alone may have in 2 of them";
        assert_eq!(counting(&lost, &counted), said);
        let written = "16 segments went on without the store of n3; what it owed in 2 segments is \
                       written off";
        assert_eq!(written_off(&lost, &counted), written);
        // A spare has nothing.
        let none = counts_on(&ring, NodeName(4));
        assert_eq!(
            counting(&node(4), &none),
            "no group counts on the disk of n4 any more"
        );
    }

    #[test]
    fn how_long_a_node_is_silent_is_told_where_it_is_known() {
        let (ring, mut lost) = (ring(&[1, 2, 3]), node(3));
        let never = "n3 was not heard by n1 since n1 started";
        assert_eq!(unheard(&ring, &lost), never);
        lost.last_heard = Some(32_000_000);
        let said = "n3 was heard by n1 for the last time 32.00 s ago";
        assert_eq!(unheard(&ring, &lost), said);
    }

    #[test]
    fn what_is_still_needed_is_told_in_the_end() {
        let mut after = ring(&[1, 2, 4]);
        let said = outcome(&after, &node(3), &node(4));
        assert!(
            said.starts_with("earlier stores of 9 segments are"),
            "{said}"
        );
        after.groups[1].sources.clear();
        let said = outcome(&after, &node(3), &node(4));
        assert!(said.starts_with("n4 has got everything"), "{said}");
        assert!(said.contains("puts that n3 alone had are gone"), "{said}");
        let keyspaces = ["default".to_owned(), "music".to_owned()];
        let said = eventual(&node(3), &keyspaces);
        assert!(
            said.contains("in the keyspaces default, music that n3"),
            "{said}"
        );
        assert!(eventual(&node(3), &[]).contains("no keyspace takes"));
    }
}
