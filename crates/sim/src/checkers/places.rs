//! Where keys are, and were, as far as anything of it was decided: what checkers count over.
//!
//! Of each group the latest location that any node has applied is kept, and the members of every
//! store that there ever was: what is acknowledged may be at a quorum of an earlier store until it
//! has moved.

use crate::catalogue::Catalogue;
use crate::machine::Machine;
use crate::workload::segment_of;
use fermata_protocol::base::{
    Cluster, Directory, Epoch, KeyId, Location, NodeName, SegmentId, View,
};
use fermata_protocol::wire::record;
use std::collections::BTreeMap;

/// What was decided so far.
#[derive(Clone, Debug)]
pub struct Places {
    segment_bits: u8,
    latest: Directory,
    /// By segment and the epoch of the store.
    views: BTreeMap<(SegmentId, Epoch), View>,
}

impl Places {
    /// Where everything begins.
    pub fn new(cluster: &Cluster) -> Places {
        let latest = Directory::from(cluster);
        let first = latest.locations().map(stores).collect::<Vec<_>>();
        Places {
            segment_bits: cluster.segment_bits,
            views: first.into_iter().flatten().collect(),
            latest,
        }
    }

    /// What the nodes know at this moment.
    pub fn of(cluster: &Cluster, machines: &BTreeMap<NodeName, Machine>) -> Places {
        let mut places = Places::new(cluster);
        for machine in machines.values() {
            places.learn(machine);
        }
        places
    }

    /// A node was stepped.
    pub fn learn(&mut self, machine: &Machine) {
        let Some(node) = machine.node() else { return };
        for location in node.here().directory.locations() {
            if self.latest.learn(location) {
                self.views.extend(stores(location));
            }
        }
    }

    /// The segment of a key.
    pub fn segment(&self, key: &KeyId) -> SegmentId {
        segment_of(key, self.segment_bits)
    }

    /// Where the group of a segment is.
    pub fn location(&self, segment: SegmentId) -> &Location {
        let location = self.latest.location_of(segment);
        location.expect("every segment has a group")
    }

    /// Where all groups are.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        self.latest.locations()
    }

    /// The members of a store.
    pub fn view(&self, segment: SegmentId, store: Epoch) -> &View {
        &self.views[&(segment, store)]
    }

    /// All stores that a segment ever had, latest first, with their members.
    pub fn stores(&self, segment: SegmentId) -> impl Iterator<Item = (Epoch, &View)> {
        let (first, last) = ((segment, Epoch(0)), (segment, Epoch(u64::MAX)));
        let all = self.views.range(first..=last);
        all.rev().map(|((_, epoch), view)| (*epoch, view))
    }

    /// How many of a store's members complete an operation on a key.
    pub fn quorum(&self, key: &KeyId, store: Epoch, catalogue: &Catalogue) -> usize {
        let members = self.view(self.segment(key), store).len();
        let shape = catalogue.storage(key).shape(members);
        shape.expect("keyspaces fit their groups").quorum
    }
}

/// The epoch of the store that a record of registers belongs to.
pub fn epoch_of(record: &[u8]) -> Epoch {
    let store = record::store_of(record);
    store.expect("a record of registers names its store").epoch
}

fn stores(location: &Location) -> Vec<((SegmentId, Epoch), View)> {
    let of = |segment: SegmentId| {
        let pasts = location.pasts(segment).iter().map(|past| past.epoch);
        let epochs = pasts.chain([location.store()]);
        epochs.filter_map(move |epoch| Some(((segment, epoch), location.view_of(epoch)?)))
    };
    location.group.segments().flat_map(of).collect()
}
