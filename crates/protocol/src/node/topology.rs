//! What this node knows of the cluster, as its coordinator and its register replica ask for it.

use super::Here;
use super::agenda::Room;
use super::carried::Carried;
use crate::base::{
    Address, Bug, Epoch, Group, KeyId, Keyspace, LockRef, Micros, NodeName, Now, Reach, SegmentId,
    StoragePolicy, Timestamp, View,
};
use crate::catalogue::Catalogue;
use crate::coordinator::{self, KeyStore, Target, Topology};
use crate::paxos::Log;
use crate::register::{self, Place, Replica, SegmentView, SegmentViews, Source, StoreId};
use crate::request::{
    HeldStatus, LogStatus, NodeStatus, SecurityStatus, StorageStatus, UpkeepStatus,
};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The node's knowledge at one instant.
pub(crate) struct Known<'a> {
    pub(crate) here: &'a Here,
    pub(crate) replica: &'a Replica,
    pub(super) carried: Carried,
    pub(crate) now: Now,
}

impl Known<'_> {
    /// What is stored of each keyspace; all zero where the first walk has not met it yet.
    fn storage(&self) -> Vec<StorageStatus> {
        let tallies = self.replica.storage();
        let status = |keyspace: &Keyspace| StorageStatus {
            keyspace: keyspace.name.clone(),
            at_rest: tallies.get(&keyspace.id).copied().unwrap_or_default(),
            reach: self.worst_reach(keyspace.storage),
        };
        self.here.catalogue.all().iter().map(status).collect()
    }

    fn upkeep(&self) -> UpkeepStatus {
        let walked = self.replica.walked();
        UpkeepStatus {
            walked: walked.map(|at| self.now.monotonic.saturating_sub(at)),
            upkeep: self.replica.upkeep_counts(),
            rebuilt: self.replica.counts().repairs,
            voids: self.replica.counts().voids,
        }
    }

    /// Who is long in the queues that this node leads, and holds. Refs of a segment grow, so that
    /// its first ones were enqueued first.
    fn held(&self) -> Box<[HeldStatus]> {
        let me = Some(self.here.id.name);
        let led = |room: &&super::Segment| room.log.primary_node() == me;
        let long = |since: u64| since.saturating_add(HeldStatus::LONG) <= self.now.wall;
        let mut held = Vec::new();
        for room in self.here.segments.values().filter(led) {
            let queues = room.state.queues();
            let refs = queues.refs();
            let refs = refs.filter(|(at, known)| long(known.origin.since) && queues.holds(*at));
            held.extend(refs.take(HeldStatus::MOST));
        }
        held.sort_by_key(|(_, known)| known.origin.since);
        held.truncate(HeldStatus::MOST);
        let status = |(lock_ref, known): (LockRef, &crate::lock::Ref)| {
            let key = known.keys.first()?;
            let named = self.here.catalogue.get(key.keyspace);
            Some(HeldStatus {
                keyspace: named.map_or_else(String::new, |keyspace| keyspace.name.clone()),
                key: key.key.clone(),
                lock_ref,
                site: known.origin.site,
                label: known.origin.label,
                since: known.origin.since,
            })
        };
        held.into_iter().filter_map(status).collect()
    }

    /// How many members of a view this node is in touch with, and how many the policy needs.
    fn reach_in(&self, view: &View, storage: StoragePolicy) -> Option<Reach> {
        let needed = storage.shape(view.len()).ok()?.quorum;
        let heard = view.nodes().filter(|name| self.is_fresh(*name)).count();
        // A view has at most 13 members.
        Some(Reach {
            heard: heard as u8,
            members: view.len() as u8,
            needed: needed as u8,
        })
    }

    /// The same in the group that is the nearest to losing its quorum.
    fn worst_reach(&self, storage: StoragePolicy) -> Option<Reach> {
        let groups = self.here.directory.groups();
        let reaches = groups.filter_map(|group| self.reach_in(&group.view, storage));
        reaches.min_by_key(Reach::spare)
    }

    /// The group in whose logs the target is, and the target's log, where this node has a seat in
    /// it.
    fn log_of(&self, target: Target) -> Option<(&Group, Option<&Log>)> {
        let (group, room) = match target {
            Target::Segment(segment) => (
                self.here.directory.group_of(segment)?,
                Room::Segment(segment),
            ),
            Target::Group(id) => (&self.here.directory.location(id)?.group, Room::Group(id)),
        };
        Some((group, self.here.log(room)))
    }

    /// Whether a node has been heard for the last time not longer ago than a lease lasts.
    pub(super) fn is_fresh(&self, name: NodeName) -> bool {
        let heard = self.here.alive.get(&name).copied().unwrap_or(0);
        name == self.here.id.name || heard + self.here.config.timing.lease > self.now.monotonic
    }
}

impl Topology for Known<'_> {
    fn is_newer(&self, format: u16) -> bool {
        format > *self.here.config.formats.end()
    }

    fn me(&self) -> NodeName {
        self.here.id.name
    }

    fn catalogue(&self) -> &Catalogue {
        &self.here.catalogue
    }

    fn address(&self, key: &KeyId) -> Option<Address> {
        self.here.address(key)
    }

    fn segment(&self, key: &KeyId) -> Option<SegmentId> {
        Some(
            self.here
                .address(key)?
                .segment(self.here.directory.segment_bits()),
        )
    }

    fn place(&self, segment: SegmentId, key: &KeyId) -> Option<Place> {
        let storage = self.here.keyspace(key.keyspace)?.storage;
        let mut place = Place {
            storage,
            ..self.here.place(segment)?
        };
        // An eventual put goes to one member and, if that one is silent, to no other (G16): so the
        // first one is a member that has been heard lately, the nearest of them.
        let Place { view, order, .. } = &mut place;
        order.sort_by_key(|seat| !view.node_at(*seat).is_some_and(|name| self.is_fresh(name)));
        Some(place)
    }

    fn reach(&self, key: &KeyId) -> Option<Reach> {
        let storage = self.here.keyspace(key.keyspace)?.storage;
        let place = self.here.place(self.segment(key)?)?;
        self.reach_in(&place.view, storage)
    }

    fn primary(&self, target: Target) -> Option<NodeName> {
        let (group, log) = self.log_of(target)?;
        if let Some(log) = log {
            // Nobody leads a log that has ended; it names who leads the next one.
            let next = log.stopped().map(|stop| stop.first);
            return next.or_else(|| log.primary_node());
        }
        // Nobody has said who leads it: most probably still the seat that it began with.
        let number = match target {
            Target::Segment(segment) => segment.0,
            Target::Group(_) => 0,
        };
        let first = Here::first_primary(number, group.view.len());
        group.view.node_at(first)
    }

    fn hears(&self, node: NodeName) -> bool {
        self.is_fresh(node) || self.here.config.planted.has(Bug::DeadAsked)
    }

    fn has_room(&self, node: NodeName) -> bool {
        self.here.has_room(node)
    }

    fn last_heard(&self, node: NodeName) -> Option<Micros> {
        if node == self.here.id.name {
            return Some(0);
        }
        let heard = self.here.alive.get(&node);
        let heard = heard.or_else(|| self.here.seen.gone.get(&node))?;
        Some(self.now.monotonic.saturating_sub(*heard))
    }

    fn members(&self, target: Target) -> Vec<NodeName> {
        let group = self.log_of(target).map(|(group, _)| group);
        group
            .map(|g| self.here.nearest_first(g.view.nodes()))
            .unwrap_or_default()
    }

    fn epoch(&self, target: Target) -> Epoch {
        match (target, self.log_of(target)) {
            (Target::Segment(_), Some((_, Some(log)))) => log.id().epoch,
            (_, Some((group, _))) => group.view.epoch,
            (_, None) => Epoch::FIRST,
        }
    }

    fn applied_ref(
        &self,
        key: &KeyId,
        lock_ref: LockRef,
        generation: u32,
    ) -> coordinator::AppliedRef {
        let room = self.segment(key).and_then(|s| self.here.segments.get(&s));
        let Some(room) = room else {
            return coordinator::AppliedRef::Unknown;
        };
        match room.state.holder_state(key, lock_ref, generation) {
            register::HolderState::Head => match room.state.queues().get(lock_ref) {
                Some(known) => coordinator::AppliedRef::Head(known.mode, known.session),
                None => coordinator::AppliedRef::Unknown,
            },
            register::HolderState::Waiting => coordinator::AppliedRef::Waiting,
            register::HolderState::Past | register::HolderState::Leaving => {
                coordinator::AppliedRef::Past
            }
            register::HolderState::Unknown => coordinator::AppliedRef::Unknown,
        }
    }

    fn group_sizes(&self) -> Vec<usize> {
        let groups = self.here.directory.groups();
        groups.map(|g| g.view.len()).collect()
    }

    fn head(&self, key: &KeyId) -> Option<(LockRef, u64)> {
        let room = self.here.segments.get(&self.segment(key)?)?;
        let queues = room.state.queues();
        let head = queues.queue(key)?.refs.front().copied()?;
        Some((head, queues.get(head)?.origin.since))
    }

    fn closed(&self, segment: SegmentId) -> Option<Timestamp> {
        self.here.closed(segment)
    }

    fn key_stores(&self) -> Vec<KeyStore> {
        self.stores_of_keys()
    }

    fn ring(&self) -> coordinator::Ring<'_> {
        coordinator::Ring {
            cluster: &self.here.config.cluster,
            registry: &self.here.registry,
            directory: &self.here.directory,
        }
    }

    fn status(&self) -> NodeStatus {
        let here = self.here;
        let fresh = |at: &u64| at + here.config.timing.lease > self.now.monotonic;
        let group_status = |room: &super::GroupLog| LogStatus {
            segment: None,
            epoch: room.log.id().epoch,
            primary: room.log.primary_node(),
            applied: room.log.delivered().0,
            commands: room.state.commands(),
            busy_keys: 0,
        };
        let segment_status = |(id, room): (&SegmentId, &super::Segment)| LogStatus {
            segment: Some(*id),
            epoch: room.log.id().epoch,
            primary: room.log.primary_node(),
            applied: room.log.delivered().0,
            commands: room.state.commands(),
            busy_keys: room.state.queues().keys().count() as u64,
        };
        NodeStatus {
            node: here.id.name,
            label: here.directory.label(here.id.name).to_string(),
            site: here.directory.site_of(here.id.name),
            writable: here.writable,
            clock: here.clocks.status(),
            alive: here
                .alive
                .iter()
                .filter(|(_, at)| fresh(at))
                .map(|(n, _)| *n)
                .collect(),
            logs: here
                .groups
                .values()
                .map(group_status)
                .chain(here.segments.iter().map(segment_status))
                .collect(),
            requests: 0,
            group_sizes: self.group_sizes().iter().map(|n| *n as u8).collect(),
            settings: Some(*here.registry.settings()),
            storage: self.storage(),
            upkeep: Box::new(self.upkeep()),
            moving: self.carried.status(),
            closed: Box::default(),
            sessions: 0,
            security: SecurityStatus::default(),
            version: String::new(),
            held: self.held(),
        }
    }
}

/// One segment as its register replica asks for it.
pub(crate) struct AtSegment<'a> {
    here: &'a Here,
    store: StoreId,
    /// Where the store is not here yet: what is, which its keys move from.
    before: Vec<Source>,
}

impl<'a> AtSegment<'a> {
    pub(super) fn new(here: &'a Here, store: StoreId) -> AtSegment<'a> {
        AtSegment {
            here,
            store,
            before: Vec::new(),
        }
    }

    /// For a get that any replica may answer. One that does not know yet that the segment goes on
    /// in this store has nothing in it, and answers from those that it has.
    pub(super) fn or_before(here: &'a Here, store: StoreId) -> AtSegment<'a> {
        let room = here.segments.get(&store.segment);
        let place = room.map(|room| &room.place);
        let before = place.filter(|place| place.store.epoch < store.epoch);
        let sources = |place: &register::Place| {
            let last = Source {
                store: place.store,
                view: place.view.clone(),
                out: Vec::new(),
            };
            place.sources.iter().cloned().chain([last]).collect()
        };
        AtSegment {
            before: before.map(sources).unwrap_or_default(),
            ..AtSegment::new(here, store)
        }
    }

    fn room(&self) -> Option<&super::Segment> {
        let room = self.here.segments.get(&self.store.segment)?;
        (room.place.store == self.store).then_some(room)
    }
}

impl SegmentView for AtSegment<'_> {
    fn members(&self) -> Option<&View> {
        let before = self.before.last().map(|source| &source.view);
        before.or_else(|| self.room().map(|room| &room.place.view))
    }

    fn sources(&self) -> &[Source] {
        let room = self.room();
        room.map_or(&self.before[..], |room| &room.place.sources)
    }

    fn has_past(&self) -> bool {
        let location = self.here.directory.location_of(self.store.segment);
        location.is_some_and(|at| {
            let pasts = at.pasts(self.store.segment).iter();
            pasts
                .map(|past| past.epoch)
                .any(|epoch| epoch < self.store.epoch)
        })
    }

    fn is_before(&self) -> bool {
        !self.before.is_empty()
    }

    fn applied(&self) -> u64 {
        self.room().map_or(0, |room| room.state.commands())
    }

    fn holder_state(&self, key: &KeyId, holder: register::Holder) -> register::HolderState {
        match self.room() {
            Some(room) => room
                .state
                .holder_state(key, holder.lock_ref, holder.generation),
            None => register::HolderState::Unknown,
        }
    }

    fn busy(&self, key: &KeyId) -> bool {
        self.room()
            .is_some_and(|room| !room.state.queues().is_idle(key))
    }

    fn catalogue(&self) -> &Catalogue {
        &self.here.catalogue
    }

    fn writable(&self) -> bool {
        self.here.writable
    }

    fn floor(&self) -> LockRef {
        self.room().map_or(LockRef(0), |room| room.state.floor())
    }
}

/// All register stores of a node, for their upkeep.
pub(crate) struct Stores<'a>(pub(crate) &'a Here);

impl SegmentViews for Stores<'_> {
    fn stores(&self) -> Vec<StoreId> {
        let rooms = self.0.segments.values();
        rooms.map(|room| room.place.store).collect()
    }

    fn view(&self, store: StoreId) -> Box<dyn SegmentView + '_> {
        let here = self.0;
        Box::new(AtSegment::new(here, store))
    }
}
