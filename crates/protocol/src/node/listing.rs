//! Which keys this node has, and who has others.

use super::topology::{AtSegment, Known};
use super::{Here, Node, Step};
use crate::base::{Bug, Epoch, Location, NodeName, SegmentId};
use crate::coordinator::{self, KeyStore};
use crate::register::{self, Keeps, KeyRange, Listed, StoreId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// The stores whose keys are asked for.
pub(super) struct Wanted {
    pub(super) segments: RangeInclusive<SegmentId>,
    pub(super) store: Epoch,
    pub(super) past: bool,
}

impl Known<'_> {
    /// All stores that may have keys: of each segment the present one, and earlier ones that are
    /// open.
    pub(super) fn stores_of_keys(&self) -> Vec<KeyStore> {
        let mut stores = Vec::new();
        for (run, at) in self.here.directory.runs() {
            let mut pasts: BTreeMap<Epoch, Vec<SegmentId>> = BTreeMap::new();
            for (segment, past) in at.all_pasts() {
                if past.open && run.contains(&segment) {
                    pasts.entry(past.epoch).or_default().push(segment);
                }
            }
            let segments = (run.start().0..=run.end().0).map(SegmentId).collect();
            let present = core::iter::once((at.store(), segments));
            let oldest = pasts.keys().next().copied();
            for (epoch, segments) in present.chain(pasts) {
                stores.extend(at.view_of(epoch).map(|view| {
                    let mut members = self.here.nearest_first(view.nodes());
                    members.sort_by_key(|name| !self.is_fresh(*name));
                    KeyStore {
                        epoch,
                        segments,
                        past: epoch != at.store(),
                        over_past: oldest.is_some_and(|oldest| oldest < epoch),
                        members,
                    }
                }));
            }
        }
        stores
    }
}

impl Here {
    /// Where the wanted segments are, by what is known here.
    fn locations_in<'a>(
        &'a self,
        wanted: &'a Wanted,
    ) -> impl Iterator<Item = (RangeInclusive<SegmentId>, &'a Location)> {
        let (from, to) = (*wanted.segments.start(), *wanted.segments.end());
        let runs = self.directory.runs();
        let common = runs.map(move |(run, at)| (from.max(*run.start())..=to.min(*run.end()), at));
        common.filter(|(run, _)| !run.is_empty())
    }
}

impl Node {
    /// Answers which keys there are in stores of this node. Who takes stores for the present ones
    /// that are not is told where they are; and it gets no answer, nor does who asks for a store of
    /// which nothing is known here: that there is nothing would be a lie.
    pub(super) fn list_keys(
        &self,
        (from, call): (NodeName, u64),
        wanted: &Wanted,
        mut range: KeyRange,
        step: &mut Step<'_>,
    ) {
        range.limit = coordinator::bounded(range.limit, &self.here.config.limits);
        let later = |at: &&Location| !wanted.past && at.store() > wanted.store;
        let runs = self.here.locations_in(wanted);
        for location in runs.map(|(_, at)| at).filter(later) {
            self.here.tell_location(from, location, step);
        }
        let mut found: Vec<Listed> = Vec::new();
        for (run, at) in self.here.locations_in(wanted) {
            for segment in (run.start().0..=run.end().0).map(SegmentId) {
                let epoch = wanted.store;
                let store = StoreId { segment, epoch };
                match self.keeps(store, at, wanted) {
                    Keeps::Unknown => return,
                    Keeps::Nothing => {}
                    Keeps::Cells => {
                        found.extend(register::keys(step.memory, store, &range));
                        range.lowest(&mut found);
                    }
                }
            }
        }
        let answer = coordinator::Message::KeysAre { call, keys: found };
        step.fx.send(from, answer);
    }

    /// What can be said here of a store's keys.
    fn keeps(&self, store: StoreId, at: &Location, wanted: &Wanted) -> Keeps {
        let here = &self.here;
        let former = !wanted.past && at.store() > store.epoch;
        let keeps = self.replica.keeps(store, &AtSegment::new(here, store));
        let mut pasts = at.pasts(store.segment).iter();
        let open = pasts.any(|past| past.open && past.epoch == store.epoch);
        // Where no log of the store is known to have begun, all that there is is in earlier ones;
        // and a store that is not open has nothing that the present one lacks.
        let nothing = match at.store() == store.epoch {
            true => at.unstarted().contains(&store.segment),
            false => at.store() > store.epoch && !open,
        };
        let lies = here.config.planted.has(Bug::FormerMemberLists);
        match keeps {
            _ if former && !lies => Keeps::Unknown,
            Keeps::Unknown if nothing => Keeps::Nothing,
            known => known,
        }
    }
}
