//! The invariants of MUSIC §V on the data store, with history variables over all replicas.
//!
//! *Defined*: the highest tag that any replica holds of past sections is held, or outranked, at a
//! quorum of one of the segment's stores, so that every quorum read gives the same value: while
//! keys move, reads go to quorums of all of them.
//!
//! * **SynchFlag**: wherever the flag is clear, the key is defined with respect to all sections
//!   that have left the queue. If it is not, the flag is set, and the next holder synchs
//!   (F5, F18).
//! * **Critical-Section**: when a section has been granted, the key is defined with respect to all
//!   sections before it, the granted one's own synch included (F1, F4).
//!
//! The lock state is that of the replica that has applied most, ever: what was chosen stays chosen.

use super::Violation;
use super::places::{Places, epoch_of};
use super::tags::{Head, Seen, Version, head};
use crate::catalogue::Catalogue;
use crate::history::Section;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{Epoch, KeyId, LockRef, NodeName, SegmentId, Tag, View};
use fermata_protocol::segment::SegmentState;
use std::collections::{BTreeMap, BTreeSet};

/// Digests up to this one name no value: absent, and deleted.
const NOTHING_MAX: u64 = 1;

/// The invariant of the flag.
pub const FLAG: &str = "synch flag invariant";
/// The invariant of the granted section.
pub const SECTION: &str = "critical section invariant";

/// A key's lock state as far as the invariants need it.
#[derive(Clone, Debug, Default)]
struct Lock {
    commands: u64,
    flag: Option<u64>,
    refs: Vec<LockRef>,
}

#[derive(Clone, Debug)]
struct Key {
    segment: SegmentId,
    cells: BTreeMap<(Epoch, NodeName), (Bytes, Seen)>,
    lock: Lock,
}

/// The watcher.
#[derive(Debug, Default)]
pub struct DataStore {
    keys: BTreeMap<KeyId, Key>,
    /// Disks that are gone: what they held counted, and is still at the rest of its quorum.
    lost: BTreeSet<NodeName>,
}

impl DataStore {
    /// A node wrote heads, or some of its segments moved.
    pub fn after_step(
        &mut self,
        heads: &[Head],
        moved: &[SegmentId],
        machine: &Machine,
        world: (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        let (places, catalogue) = world;
        for head in heads.iter().filter(|h| catalogue.has_sections(&h.key)) {
            let key = self.keys.entry(head.key.clone());
            let key = key.or_insert_with(|| Key {
                segment: places.segment(&head.key),
                cells: BTreeMap::new(),
                lock: Lock::default(),
            });
            let cell = (head.record.clone(), head.seen.clone());
            key.cells
                .insert((epoch_of(&head.record), machine.name()), cell);
            check(&head.key, key, &self.lost, world, found);
        }
        let Some(node) = machine.node().filter(|_| !moved.is_empty()) else {
            return;
        };
        for (id, key) in self
            .keys
            .iter_mut()
            .filter(|(id, k)| moved.contains(&k.segment) && !catalogue.is_deleted(id))
        {
            let Some(segment) = node.here().segments.get(&key.segment) else {
                continue;
            };
            if segment.state.commands() > key.lock.commands {
                key.lock = lock_of(&segment.state, id);
                check(id, key, &self.lost, world, found);
            }
        }
    }

    /// A node removed keys, or whole stores: it holds nothing of them.
    pub fn removed(
        &mut self,
        name: NodeName,
        records: &[Bytes],
        stores: &[(Bytes, Bytes)],
        world: (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        if records.is_empty() && stores.is_empty() {
            return;
        }
        let kept = |(id, _): &(&KeyId, &mut Key)| !world.1.is_deleted(id);
        for (id, key) in self.keys.iter_mut().filter(kept) {
            let before = key.cells.len();
            key.cells.retain(|(_, at), (record, _)| {
                let whole = stores
                    .iter()
                    .any(|(from, to)| (from..to).contains(&&*record));
                *at != name || !(whole || records.contains(record))
            });
            if key.cells.len() < before {
                check(id, key, &self.lost, world, found);
            }
        }
    }

    /// A process has started: its cells are what the disk kept.
    pub fn restarted(&mut self, machine: &Machine) {
        for key in self.keys.values_mut() {
            key.cells.retain(|(_, at), (record, seen)| {
                if *at != machine.name() {
                    return true;
                }
                let kept = machine.recall(record);
                let now = kept.and_then(|value| head(record, &value));
                now.map(|head| *seen = head.seen).is_some()
            });
        }
    }

    /// The disk may have lost anything, in single records: what it held still counts.
    pub fn rotten(&mut self, name: NodeName) {
        self.lost.insert(name);
    }

    /// A node is out for good: nobody asks it, whatever it still has.
    pub fn left(&mut self, name: NodeName) {
        for key in self.keys.values_mut() {
            key.cells.retain(|(_, at), _| *at != name);
        }
    }

    /// The disk is gone.
    pub fn forget(&mut self, name: NodeName) {
        self.lost.insert(name);
        self.left(name);
    }

    /// A client was told that it has entered.
    pub fn entered(
        &self,
        section: &Section,
        world: (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        for held in section.held.iter().filter(|h| !world.1.is_deleted(&h.key)) {
            let Some(key) = self.keys.get(&held.key) else {
                continue;
            };
            let first_put = Tag {
                lock_ref: held.lock_ref,
                sequence: Tag::sequence(held.generation, 1),
                writer: 0,
            };
            let counts = |tag| tag < first_put;
            if let Some(lack) = key.undefined(&held.key, &self.lost, world, counts) {
                let detail = format!(
                    "key {}: section {} was granted, and {lack}",
                    show::key(&held.key),
                    held.lock_ref.0
                );
                found.push(Violation::new(SECTION, detail));
            }
        }
    }
}

impl Key {
    /// Why the key is not defined with respect to the tags that count, if so.
    fn undefined(
        &self,
        id: &KeyId,
        lost: &BTreeSet<NodeName>,
        (places, catalogue): (&Places, &Catalogue),
        counts: impl Fn(Tag) -> bool,
    ) -> Option<String> {
        // A cell that was only fenced holds nothing; and what is on a disk that is lost, in a store
        // that nobody waits for any more, is never deleted.
        let at = places.location(self.segment);
        let past = |epoch| {
            at.pasts(self.segment)
                .iter()
                .any(|past| past.epoch == epoch)
        };
        let waits = |epoch| at.store() <= epoch || past(epoch);
        let cells = self
            .cells
            .iter()
            .filter(|((epoch, at), _)| !lost.contains(at) || waits(*epoch));
        let cells = cells.flat_map(|(_, (_, seen))| &seen.versions);
        let cells = cells.filter(|v| counts(v.tag));
        let Version {
            tag: highest,
            digest,
            ..
        } = cells.max_by_key(|v| v.tag)?;
        // A delete says no more than a cell that was never written: a read finds nothing in both.
        let nothing = *digest <= NOTHING_MAX;
        let live = |seen: &Seen| seen.versions.last().is_some_and(|v| v.digest > NOTHING_MAX);
        let holds = |epoch: Epoch, m: NodeName| match self.cells.get(&(epoch, m)) {
            Some((_, seen)) => {
                let known = seen.versions.last().map_or(0, |v| v.digest);
                let here = seen.tag().max(seen.dropped) >= *highest;
                here || known == *digest || (nothing && known <= NOTHING_MAX)
            }
            // An earlier store's value shows through.
            None => {
                let mut earlier = self.cells.range(..(epoch, NodeName(0)));
                nothing && !earlier.any(|(_, (_, seen))| live(seen))
            }
        };
        let lacks = |(epoch, view): (Epoch, &View)| {
            let holders = view.nodes();
            let holders = holders
                .filter(|m| lost.contains(m) || holds(epoch, *m))
                .count();
            let few = holders < places.quorum(id, epoch, catalogue);
            few.then(|| {
                let (tag, of) = (show::tag(highest), view.len());
                format!("tag {tag} is at {holders} of {of}")
            })
        };
        let mut all = places.stores(self.segment).map(lacks);
        let first = all.next().flatten();
        first.filter(|_| all.all(|lack| lack.is_some()))
    }
}

fn check(
    id: &KeyId,
    key: &Key,
    lost: &BTreeSet<NodeName>,
    world: (&Places, &Catalogue),
    found: &mut Vec<Violation>,
) {
    let lock = &key.lock;
    if lock.flag.is_some() || lock.commands == 0 {
        return;
    }
    let past = |tag: Tag| tag.lock_ref.0 <= lock.commands && !lock.refs.contains(&tag.lock_ref);
    if let Some(lack) = key.undefined(id, lost, world, past) {
        let detail = format!(
            "key {}: the flag is clear after {} commands, and {lack}",
            show::key(id),
            lock.commands
        );
        found.push(Violation::new(FLAG, detail));
    }
}

fn lock_of(state: &SegmentState, id: &KeyId) -> Lock {
    let queue = state.queues().queue(id);
    Lock {
        commands: state.commands(),
        flag: queue.and_then(|q| q.flag),
        refs: queue.map_or(Vec::new(), |q| q.refs.iter().copied().collect()),
    }
}
