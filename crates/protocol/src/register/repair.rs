//! Repair: how a replica learns a damaged record again.
//!
//! A damaged head is amnesia for one key. Others may be counting right now on what the replica had
//! answered: a synch that has its fence, a put that has its store. Copying the others' state at
//! once would let the replica break that promise while the operation is still collecting. So it
//! first answers `Void` for as long as any operation may live (invariant I5 of this room), and only
//! then reads the others. An operation that completed has left its tag and fence at q − 1 of them;
//! the replica hears enough to meet those ([`crate::base::Shape::others_to_repair`]). One that did
//! not complete has ended, and binds nobody.
//!
//! But its messages outlive it. The stores of a dead sweep complete what it carried on once they
//! arrive, and it passed over whatever lay below its fence because the members that it had fenced
//! would never take it: this replica, too, which has forgotten that. So in a register keyspace it
//! takes one version alone, which q *others* hold, and only where none of those that it has heard
//! shows a tag above it; until that is so the others are swept. One of those q has met that version
//! before any fence that this replica has forgotten. In a section keyspace the next synch fences
//! again before anybody relies on anything.

use super::cell::{At, Cell, Head};
use super::message::{Answer, Ask, Content, Message, StoreId, Version};
use super::replica::{PIPELINED_MAX, Replica, SWEEPS_MAX};
use super::{SegmentView, policy};
use crate::base::{
    Bug, EventualTag, Kept, KeyId, Micros, NodeName, Purpose, Rng, Seat, Shape, StoragePolicy, Tag,
    View,
};
use crate::io::Env;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Set in the calls of repairs, clear in those of callers.
pub(super) const MARK: u64 = 1 << 63;

/// Repairs under way at once; a key beyond is repaired when it is next found damaged.
const REPAIRS_MAX: usize = 1_024;

/// Records of versions that a damaged head may have used.
pub(super) const SLOTS: u8 =
    crate::base::storage::DELTA_MAX + 2 + (PIPELINED_MAX + SWEEPS_MAX) as u8;

#[derive(Clone, Debug)]
pub(super) struct Repairs {
    next_call: u64,
    open: BTreeMap<(StoreId, KeyId), Repair>,
}

#[derive(Clone, Debug)]
struct Repair {
    at: At,
    policy: StoragePolicy,
    members: View,
    call: u64,
    due: Micros,
    heard: BTreeMap<NodeName, Learnt>,
}

#[derive(Clone, Debug)]
struct Learnt {
    versions: Vec<Version>,
    dropped: Tag,
    fence: Tag,
    eventual: Option<(EventualTag, Content)>,
    moved: Option<Tag>,
}

impl Repairs {
    pub(super) fn new(seed: u64) -> Repairs {
        // A random start keeps late answers to an earlier life of this node apart.
        Repairs {
            next_call: (Rng::new(seed ^ MARK).draw() >> 2) | MARK,
            open: BTreeMap::new(),
        }
    }

    /// Nothing is written into this store any more.
    pub(super) fn forget(&mut self, store: StoreId) {
        self.open.retain(|(of, _), _| *of != store);
    }

    /// Nothing is left of a key.
    pub(super) fn forget_key(&mut self, place: &(StoreId, KeyId)) {
        self.open.remove(place);
    }

    pub(super) fn owns(call: u64) -> bool {
        call & MARK != 0
    }

    pub(super) fn wake(&self) -> Option<Micros> {
        self.open.values().map(|repair| repair.due).min()
    }

    pub(super) fn begin(
        &mut self,
        at: &At,
        policy: StoragePolicy,
        members: Option<&View>,
        env: &Env<'_>,
    ) {
        let place = (at.store, at.key.clone());
        let Some(members) = members else { return };
        if self.open.len() >= REPAIRS_MAX || self.open.contains_key(&place) {
            return;
        }
        let wait = match env.planted.has(Bug::RepairAtOnce) {
            true => 0,
            false => env.timing.lengthened(env.timing.request),
        };
        let repair = Repair {
            at: at.clone(),
            policy,
            members: members.clone(),
            call: self.next_call,
            due: env.now.monotonic + wait,
            heard: BTreeMap::new(),
        };
        self.next_call = self.next_call.wrapping_add(1) | MARK;
        self.open.insert(place, repair);
    }
}

impl Replica {
    /// Asks the others where a repair is due, and drops what final writes have outlived.
    pub fn tick(&mut self, env: &mut Env<'_>) {
        self.settled.tick(env);
        for repair in self.repairs.open.values_mut() {
            if repair.due > env.now.monotonic {
                continue;
            }
            repair.due = env.now.monotonic + env.timing.retry;
            for node in repair.members.nodes() {
                if node != self.name && !repair.heard.contains_key(&node) {
                    let message = Message::Ask {
                        call: repair.call,
                        store: repair.at.store,
                        key: repair.at.key.clone(),
                        ask: Ask::cells(true),
                    };
                    env.fx.send(node, message);
                }
            }
        }
    }

    /// Takes another member's answer to a repair; writes the record once enough have answered.
    /// `view` is of the answer's segment and epoch.
    pub fn on_answer(
        &mut self,
        from: NodeName,
        call: u64,
        store: StoreId,
        answer: Answer,
        view: &dyn SegmentView,
        env: &mut Env<'_>,
    ) {
        if super::upkeep::owns(call) {
            return self.on_upkeep_answer(from, call, store, answer, view, env);
        }
        let found = self.repairs.open.iter_mut().find(|(_, r)| r.call == call);
        let Some((place, repair)) = found else { return };
        let place = place.clone();
        if view.members() != Some(&repair.members) || view.keyspace(place.1.keyspace).is_none() {
            self.repairs.open.remove(&place);
            return;
        }
        let Answer::Cells {
            versions,
            dropped,
            fence,
            eventual,
            moved,
            ..
        } = answer
        else {
            return;
        };
        let key = &repair.at.key;
        let sound = versions
            .iter()
            .all(|v| policy::is_sound(&v.content, key, v.tag))
            && eventual
                .as_ref()
                .is_none_or(|(_, e)| policy::is_sound(e, key, Tag::ZERO));
        if store != repair.at.store || from == self.name || !sound {
            return;
        }
        if repair.members.seat_of(from).is_none() {
            return;
        }
        let learnt = Learnt {
            versions,
            dropped,
            fence,
            eventual,
            moved: moved.mark(),
        };
        repair.heard.insert(from, learnt);
        let shape = super::shape_in(repair.policy, &repair.members);
        let sweeps =
            repair.sweeps(shape.quorum, view) && !env.planted.has(Bug::RepairWithoutQuorum);
        let enough = match sweeps {
            true => shape.quorum,
            false => shape.others_to_repair(),
        };
        if repair.heard.len() >= enough && view.writable() {
            let alone = match (sweeps, repair.complete(shape.quorum)) {
                (true, None) => {
                    repair.heard.clear();
                    repair.due = env.now.monotonic + env.timing.request;
                    let at = repair.at.clone();
                    return self.upkeep.wish_sweep(&at);
                }
                (true, complete) => complete,
                (false, _) => None,
            };
            let seat = view.members().and_then(|m| m.seat_of(self.name));
            let repair = self.repairs.open.remove(&place);
            if let (Some(repair), Some(seat)) = (repair, seat)
                && repair.install(seat, alone, env)
            {
                self.counts.repairs += 1;
            }
        }
    }
}

impl Repair {
    /// Whether the others are swept until q of them agree. Fewer than q cannot be swept: then what
    /// they have must do.
    fn sweeps(&self, quorum: usize, view: &dyn SegmentView) -> bool {
        let keyspace = view.keyspace(self.at.key.keyspace);
        let registers = keyspace.is_some_and(|k| k.purpose == Purpose::Registers);
        registers && self.members.len() > quorum
    }

    /// The tag that q of the others hold, if none of them shows one above it. A fence above it is
    /// none against it: whoever has set that has found the tag at one of the q, or one above it.
    fn complete(&self, quorum: usize) -> Option<Tag> {
        let highest = |learnt: &Learnt| learnt.versions.last().map_or(Tag::ZERO, |v| v.tag);
        let top = self.heard.values().map(highest).max()?;
        let holders = self.heard.values().filter(|l| highest(l) == top).count();
        (holders >= quorum).then_some(top)
    }

    /// Writes what was learnt over what is damaged, of the others' versions only the one of tag
    /// `alone` where that is given; false where a later write has healed it already.
    fn install(self, seat: Seat, alone: Option<Tag>, env: &mut Env<'_>) -> bool {
        let shape = super::shape_in(self.policy, &self.members);
        let fence = self.heard.values().map(|l| l.fence).max();
        let dropped = self.heard.values().map(|l| l.dropped).max();
        let mut head = Head::with(fence.unwrap_or_default(), Tag::ZERO);
        let mut known: Vec<(Tag, EventualTag, Content)> = Vec::new();
        // A value kept here stays, also where it is hidden (G26); others' values are offers.
        let (mut own, mut offered) = (None, None);
        if let Ok(cell) = Cell::load(env.memory, &self.at) {
            // The head is sound: only a content may be damaged, and the fence here still holds.
            head.fence = head.fence.max(cell.head.fence);
            head.dropped = cell.head.dropped;
            head.moved = cell.head.moved;
            if cell.is_sound() {
                return false;
            }
            let sound = |content: &Content, tag| policy::is_sound(content, &self.at.key, tag);
            let contents = cell.head.versions().iter().filter_map(|trace| {
                let content = cell.content_of(trace).ok()?;
                sound(&content, trace.tag).then_some((trace.tag, trace.origin, content))
            });
            known = contents.collect();
            let second = cell.eventual().unwrap_or_default();
            own = second.filter(|(_, content)| sound(content, Tag::ZERO));
        }
        for learnt in self.heard.values() {
            head.moved = head.moved.max(learnt.moved);
            let theirs = learnt.eventual.clone();
            offered = offered.into_iter().chain(theirs).max_by_key(|e| e.0);
        }
        let mut versions: BTreeMap<Tag, (EventualTag, Content)> = self.rebuilt(shape, seat);
        if let Some(alone) = alone {
            versions.retain(|tag, _| *tag == alone);
            if matches!(shape.kept, Kept::FromFinal(_)) {
                // What is below it was outlived.
                head.dropped = head.dropped.max(alone);
                known.retain(|(tag, ..)| *tag >= alone);
            }
        }
        versions.extend(
            known
                .into_iter()
                .map(|(tag, at, content)| (tag, (at, content))),
        );
        // What is below, nobody asks this replica for: it goes when that tag is told final again.
        head.dropped = head.dropped.max(dropped.unwrap_or_default());
        if versions.len() > usize::from(SLOTS) {
            // No honest members have so many. None may be left out, so nothing is written.
            return false;
        }
        let mut cell = Cell::replacing(env.memory, &self.at, head);
        cell.clear(env.fx, 0..SLOTS);
        let count = match shape.kept {
            Kept::Highest => 1,
            Kept::Several(count) => count,
            Kept::FromFinal(_) => usize::MAX,
        };
        let surplus = versions.len().saturating_sub(count);
        for (tag, (origin, content)) in versions.into_iter().skip(surplus) {
            cell.put_version(env.fx, (tag, origin), &content, shape.kept);
        }
        let offered = offered.filter(|(tag, _)| !cell.head.outranks(*tag));
        let eventual = own.into_iter().chain(offered).max_by_key(|e| e.0);
        if let Some((tag, content)) = eventual {
            let content = policy::reseated(&self.at.key, Tag::ZERO, &content, seat);
            cell.put_eventual(env.fx, tag, &content);
        }
        true
    }

    /// This seat's parts of every value that the others' parts give. A tag that they do not give
    /// was not complete while this replica counted, and whoever had counted it has ended.
    fn rebuilt(&self, shape: Shape, seat: Seat) -> BTreeMap<Tag, (EventualTag, Content)> {
        let mut found: BTreeMap<Tag, (EventualTag, Vec<&Content>)> = BTreeMap::new();
        for version in self.heard.values().flat_map(|learnt| &learnt.versions) {
            let entry = found.entry(version.tag).or_default();
            entry.0 = entry.0.max(version.origin);
            entry.1.push(&version.content);
        }
        let mut rebuilt = BTreeMap::new();
        for (tag, (origin, contents)) in found {
            if contents.contains(&&Content::Undecodable) {
                rebuilt.insert(tag, (origin, Content::Undecodable));
                continue;
            }
            let Ok(value) = policy::decode(&contents) else {
                continue;
            };
            let absent = matches!(contents[0], Content::Absent);
            let key = &self.at.key;
            let mut parts = policy::encode(self.policy, shape, key, tag, value.as_ref());
            let part = parts.swap_remove(usize::from(seat.0));
            let part = if absent { Content::Absent } else { part };
            rebuilt.insert(tag, (origin, part));
        }
        rebuilt
    }
}
