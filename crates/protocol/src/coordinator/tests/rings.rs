//! What a coordinator refuses of changes of the ring, before any log is asked.

use super::*;
use crate::base::{Addresses, Group, Incarnation, NodeInfo};
use crate::registry::Registry;
use crate::request::RingChange;
use crate::settings::Settings;
use crate::wire::{self, VERSION};

const OWNER: GroupId = GroupId(1);
const FIRST: NodeName = NodeName(1);
const SPARE: NodeName = NodeName(4);

/// Three nodes of a file, in one group, and a fourth.
pub(super) fn known() -> Known {
    let info = |name: u32| NodeInfo {
        name: NodeName(name),
        label: format!("n{name}"),
        site: SiteId(0),
        addresses: Addresses::default(),
    };
    let seat = |name: u32| Member {
        name: NodeName(name),
        site: SiteId(0),
        public_key: None,
    };
    let cluster = base::Cluster {
        segment_bits: BITS,
        sites: vec!["here".into()],
        nodes: (1..=4).map(info).collect(),
        groups: vec![Group {
            id: OWNER,
            from: SegmentId(0),
            to: SegmentId((1 << BITS) - 1),
            view: View {
                group: OWNER,
                epoch: Epoch::FIRST,
                seats: (1..=3).map(seat).collect(),
            },
        }],
        ..base::Cluster::default()
    };
    let mut registry = Registry::beginning(
        &cluster,
        Settings::beginning(&Timing::default(), &Limits::default(), VERSION),
    );
    for node in &cluster.nodes {
        registry.meet(node, Incarnation(node.name.0.into()));
    }
    Known {
        directory: Directory::from(&cluster),
        registry,
        cluster,
        silent: Vec::new(),
        full: Vec::new(),
    }
}

/// Refused at once, for that reason, and certainly nothing was changed.
fn refused(bench: &mut Bench, number: u64, change: RingChange, why: &str) {
    bench.ask(number, Operation::ChangeRing(change));
    let refusal = bench.refusal();
    assert_eq!(refusal.code, Code::BadRequest, "{}", refusal.detail);
    assert!(!refusal.may_have_taken_effect, "{}", refusal.detail);
    assert!(refusal.detail.contains(why), "{}", refusal.detail);
    assert!(refusal.detail.contains("nothing was changed"));
}

/// Goes to a log, which decides.
fn asked(bench: &mut Bench, number: u64, change: RingChange) {
    bench.ask(number, Operation::ChangeRing(change));
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
    assert!(!bench.sent.is_empty());
}

fn members(names: &[NodeName]) -> RingChange {
    RingChange::Members {
        group: OWNER,
        after: Epoch::FIRST,
        members: names.to_vec(),
        pressing: false,
    }
}

fn drain(name: NodeName) -> RingChange {
    let drains = true;
    RingChange::Drain { name, drains }
}

fn dismiss(name: NodeName, lost: bool) -> RingChange {
    RingChange::Dismiss { name, lost }
}

#[test]
fn a_seat_is_for_who_is_there_has_room_and_does_not_drain() {
    let [b, c] = [2, 3].map(NodeName);
    let mut bench = Bench::new();
    asked(&mut bench, 1, members(&[FIRST, b, c, SPARE]));
    refused(
        &mut bench,
        2,
        members(&[FIRST, b, NodeName(9)]),
        "no node 9",
    );
    bench.cluster.known.full.push(SPARE);
    let why = "node 4, n4, has no room on its disk";
    refused(&mut bench, 3, members(&[FIRST, b, c, SPARE]), why);
    bench.cluster.known.full.clear();
    bench.drains(SPARE);
    refused(&mut bench, 4, members(&[FIRST, b, c, SPARE]), "drains");
    // Who has a seat keeps it.
    bench.drains(b);
    bench.cluster.known.full.push(c);
    asked(&mut bench, 5, members(&[b, c, FIRST]));
    let nowhere = RingChange::Members {
        group: GroupId(7),
        after: Epoch::FIRST,
        members: vec![FIRST],
        pressing: false,
    };
    refused(&mut bench, 6, nowhere, "there is no group");
}

#[test]
fn a_node_drains_where_another_can_lead() {
    let [b, c] = [2, 3].map(NodeName);
    let mut bench = Bench::new();
    asked(&mut bench, 1, drain(FIRST));
    bench.cluster.known.silent.push(b);
    asked(&mut bench, 2, drain(FIRST));
    bench.drains(c);
    let why = "nobody else could lead";
    refused(&mut bench, 3, drain(FIRST), why);
    bench.cluster.known.silent.clear();
    bench.cluster.known.full.push(b);
    refused(&mut bench, 7, drain(FIRST), why);
    bench.cluster.known.full.clear();
    // It has no seat, or drains already.
    asked(&mut bench, 4, drain(SPARE));
    asked(&mut bench, 5, drain(c));
    asked(&mut bench, 6, drain(FIRST));
}

#[test]
fn a_node_is_dismissed_that_nobody_needs_or_nobody_hears() {
    let mut bench = Bench::new();
    refused(&mut bench, 1, dismiss(FIRST, false), "is needed");
    refused(&mut bench, 2, dismiss(FIRST, true), "is heard");
    asked(&mut bench, 3, dismiss(SPARE, false));
    refused(&mut bench, 4, dismiss(SPARE, true), "is heard");
    bench.cluster.known.silent.push(FIRST);
    refused(&mut bench, 5, dismiss(FIRST, false), "is needed");
    asked(&mut bench, 6, dismiss(FIRST, true));
}

#[test]
fn who_may_have_been_heard_before_is_told_that() {
    let mut bench = Bench::new();
    let change = Operation::ChangeRing(dismiss(FIRST, true));
    bench.ask_again(1, 1, change);
    let refusal = bench.refusal();
    assert!(refusal.may_have_taken_effect, "{}", refusal.detail);
    assert!(!refusal.detail.contains("nothing was changed"));
}

#[test]
fn a_newcomer_reads_what_the_cluster_writes() {
    let admit = |formats| Operation::Admit {
        newcomer: crate::registry::Newcomer {
            incarnation: Incarnation(9),
            label: "n5".into(),
            site: "here".into(),
            addresses: Addresses::default(),
        },
        formats,
    };
    let mut bench = Bench::new();
    let newer = VERSION + 1..=VERSION + 2;
    bench.ask(1, admit(newer));
    assert!(bench.refusal().detail.contains("goes by format"));
    bench.ask(2, admit(wire::FORMATS));
    assert!(bench.replies.is_empty(), "{:?}", bench.replies);
}
