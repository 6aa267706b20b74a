//! Whole nodes of a small cluster: one group, each node at a site of its own, and memory that is
//! durable at once.

#[path = "ram.rs"]
mod ram;

use fermata_protocol::Node;
use fermata_protocol::base::{
    Addresses, Cluster, ClusterId, Config, Epoch, Group, GroupId, Incarnation, Limits, LockRef,
    Member, NodeId, NodeInfo, NodeName, Now, Planted, SegmentId, SiteId, Timing, View,
};
pub(crate) use ram::Ram;

/// This time on every clock.
pub(crate) fn at(monotonic: u64) -> Now {
    Now {
        monotonic,
        wall: 1_700_000_000_000_000 + monotonic,
        interval: None,
    }
}

fn cluster(n: u32, bits: u8) -> Cluster {
    let member = |i| Member {
        name: NodeName(i),
        site: SiteId(i as u16),
        public_key: None,
    };
    let view = View {
        group: GroupId(1),
        epoch: Epoch::FIRST,
        seats: (0..n).map(member).collect(),
    };
    let node = |i| NodeInfo {
        name: NodeName(i),
        label: format!("n{i}"),
        site: SiteId(i as u16),
        addresses: Addresses::default(),
    };
    Cluster {
        id: ClusterId(7),
        segment_bits: bits,
        lowest_ref: LockRef(1),
        sites: (0..n).map(|i| format!("s{i}")).collect(),
        nodes: (0..n).map(node).collect(),
        groups: vec![Group {
            id: GroupId(1),
            from: SegmentId(0),
            to: SegmentId((1 << bits) - 1),
            view,
        }],
    }
}

/// How node `i` of `n` is configured, in a ring of 2^`bits` segments.
pub(crate) fn config(i: u32, n: u32, bits: u8) -> Config {
    Config {
        name: NodeName(i),
        cluster: cluster(n, bits),
        timing: Timing::default(),
        limits: Limits::default(),
        formats: fermata_protocol::wire::FORMATS,
        planted: Planted::NONE,
    }
}

/// A node that starts for the first time.
pub(crate) fn fresh(config: Config) -> (Node, Ram) {
    let name = config.name;
    let id = NodeId {
        name,
        incarnation: Incarnation(100 + u128::from(name.0)),
    };
    let ram = Ram::default();
    let node = Node::recover(config, id, &ram, at(0), 42 + u64::from(name.0));
    (node.expect("fresh"), ram)
}
