//! What a cluster costs that nobody uses: messages, bytes and events per second and node, and how
//! they grow with the cluster.

use crate::cluster;
use crate::network::Parcel;
use crate::profile::Profile;
use crate::world::{Setup, World};
use fermata_protocol::Message;
use fermata_protocol::base::Timing;
use fermata_protocol::wire;
use std::cell::Cell;
use std::rc::Rc;

/// Sizes of clusters, in groups of five: see [`cluster::of_fives`].
const GROUPS: [u32; 4] = [1, 5, 10, 20];

/// How long clusters begin, and how long they are watched, microseconds of virtual time.
const BEGIN: u64 = 5_000_000;
const WATCHED: u64 = 10_000_000;

/// What one node does per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Its groups, without the meta-group.
    pub groups: u32,
    /// Messages sent to other nodes.
    pub messages: f64,
    /// Of these, those that are neither a beat nor the answer to one.
    pub others: f64,
    /// Bytes of all messages.
    pub bytes: f64,
    /// Bytes of them for each other node of the cluster.
    pub bytes_per_peer: f64,
    /// Times that something happens to it: a message, a wake.
    pub events: f64,
    /// Batches that all nodes together have written to their disks.
    pub batches: u64,
}

/// Counts of one world.
#[derive(Default)]
struct Counts {
    messages: Cell<u64>,
    others: Cell<u64>,
    bytes: Cell<u64>,
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

/// Watches one cluster of each size.
pub fn bench(profile: &'static Profile) -> Vec<Row> {
    let row = |groups: &u32| watch(profile, *groups);
    GROUPS.iter().map(row).collect()
}

/// Watches a cluster of so many groups.
pub fn watch(profile: &'static Profile, groups: u32) -> Row {
    let setup = Setup::measured(profile, cluster::of_fives(groups), Timing::default());
    let mut world = World::new(setup);
    world.run_for(BEGIN);
    let counts = Rc::new(Counts::default());
    let counted = counts.clone();
    let rule = world.network.lose(move |parcel| {
        if let Parcel::Peer { from, to, message } = parcel
            && from.name != *to
        {
            add(&counted.messages, 1);
            add(&counted.bytes, wire::size(message) as u64);
            let beats = matches!(message, Message::Beat(_) | Message::BeatAck(_));
            add(&counted.others, u64::from(!beats));
        }
        false
    });
    let written = |world: &World| -> u64 {
        let memories = world.machines.values().filter_map(|m| m.memory());
        memories.map(|memory| memory.0.durable()).sum()
    };
    let before = written(&world);
    let (end, mut events) = (world.now + WATCHED, 0_u64);
    while world.now < end && world.step() {
        events += 1;
    }
    world.discard(rule);
    let nodes = world.machines.len();
    let each = |count: u64| count as f64 / nodes as f64 / (WATCHED as f64 / 1e6);
    Row {
        nodes,
        groups,
        messages: each(counts.messages.get()),
        others: each(counts.others.get()),
        bytes: each(counts.bytes.get()),
        bytes_per_peer: each(counts.bytes.get()) / (nodes - 1) as f64,
        events: each(events),
        batches: written(&world) - before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    /// A cluster that nobody uses, and that never changes, sends a beat to each other node and the
    /// answer to each of theirs, and writes nothing.
    #[test]
    fn a_cluster_at_rest_sends_beats_alone_and_writes_nothing() {
        for groups in [1, 5] {
            let row = watch(&profile::ALL[1], groups);
            let beats = 1e6 / Timing::default().beat as f64;
            let least = 2.0 * beats * (row.nodes - 1) as f64;
            assert_eq!((row.others, row.batches), (0.0, 0), "{row:?}");
            assert!(row.messages <= 1.02 * least, "{row:?}");
        }
    }
}
