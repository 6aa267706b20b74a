//! The invariants of MUSIC §V on the data store, with history variables over all replicas.
//!
//! *Defined*: the highest tag that any replica holds of past sections is held, or outranked, at a
//! quorum, so that every quorum read gives the same value.
//!
//! * **SynchFlag**: wherever the flag is clear, the key is defined with respect to all sections
//!   that have left the queue. If it is not, the flag is set, and the next holder synchs
//!   (F5, F18).
//! * **Critical-Section**: when a section has been granted, the key is defined with respect to all
//!   sections before it, the granted one's own synch included (F1, F4).
//!
//! The lock state is that of the replica that has applied most, ever: what was chosen stays chosen.

use super::Violation;
use super::tags::{Head, Seen, Version, head};
use crate::catalogue::Catalogue;
use crate::history::Section;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{Cluster, KeyId, LockRef, NodeName, SegmentId, Tag};
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
    members: Vec<NodeName>,
    quorum: usize,
    cells: BTreeMap<NodeName, (Bytes, Seen)>,
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
        name: NodeName,
        heads: &[Head],
        moved: &[SegmentId],
        machines: &BTreeMap<NodeName, Machine>,
        catalogue: &Catalogue,
        found: &mut Vec<Violation>,
    ) {
        let machine = &machines[&name];
        for head in heads.iter().filter(|h| catalogue.has_sections(&h.key)) {
            let cluster = &machine.config.cluster;
            let key = self
                .keys
                .entry(head.key.clone())
                .or_insert_with(|| fresh(cluster, catalogue, head));
            let cell = (head.record.clone(), head.seen.clone());
            key.cells.insert(name, cell);
            check(&head.key, key, &self.lost, found);
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
                check(id, key, &self.lost, found);
            }
        }
    }

    /// A node removed keys: it holds nothing of them.
    pub fn removed(&mut self, name: NodeName, records: &[Bytes], found: &mut Vec<Violation>) {
        for (id, key) in &mut self.keys {
            let of = |cell: &(Bytes, Seen)| records.contains(&cell.0);
            if key.cells.get(&name).is_some_and(of) {
                key.cells.remove(&name);
                check(id, key, &self.lost, found);
            }
        }
    }

    /// A process has started: its cells are what the disk kept.
    pub fn restarted(&mut self, machine: &Machine) {
        for key in self.keys.values_mut() {
            let Some(cell) = key.cells.get_mut(&machine.name()) else {
                continue;
            };
            let kept = machine
                .recall(&cell.0)
                .and_then(|value| head(&cell.0, &value));
            match kept {
                Some(head) => cell.1 = head.seen,
                None => {
                    key.cells.remove(&machine.name());
                }
            }
        }
    }

    /// The disk may have lost anything, in single records: what it held still counts.
    pub fn rotten(&mut self, name: NodeName) {
        self.lost.insert(name);
    }

    /// The disk is gone.
    pub fn forget(&mut self, name: NodeName) {
        self.lost.insert(name);
        for key in self.keys.values_mut() {
            key.cells.remove(&name);
        }
    }

    /// A client was told that it has entered.
    pub fn entered(&self, section: &Section, catalogue: &Catalogue, found: &mut Vec<Violation>) {
        for held in section
            .held
            .iter()
            .filter(|h| !catalogue.is_deleted(&h.key))
        {
            let Some(key) = self.keys.get(&held.key) else {
                continue;
            };
            let first_put = Tag {
                lock_ref: held.lock_ref,
                sequence: Tag::sequence(held.generation, 1),
                writer: 0,
            };
            if let Some(lack) = key.undefined(&self.lost, |tag| tag < first_put) {
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
    fn undefined(&self, lost: &BTreeSet<NodeName>, counts: impl Fn(Tag) -> bool) -> Option<String> {
        // A cell that was only fenced holds nothing.
        let cells = self.cells.values().flat_map(|c| &c.1.versions);
        let cells = cells.filter(|v| counts(v.tag));
        let Version {
            tag: highest,
            digest,
            ..
        } = cells.max_by_key(|v| v.tag)?;
        // A delete says no more than a cell that was never written: a read finds nothing in both.
        let nothing = *digest <= NOTHING_MAX;
        let holds = |m: &&NodeName| match self.cells.get(m) {
            Some((_, seen)) => {
                let known = seen.versions.last().map_or(0, |v| v.digest);
                let here = seen.tag().max(seen.dropped) >= *highest;
                here || known == *digest || (nothing && known <= NOTHING_MAX)
            }
            None => nothing,
        };
        let counts = |m: &&NodeName| lost.contains(m) || holds(m);
        let holders = self.members.iter().filter(counts).count();
        (holders < self.quorum).then(|| {
            format!(
                "tag {} is at {holders} of {}",
                show::tag(highest),
                self.members.len()
            )
        })
    }
}

fn check(id: &KeyId, key: &Key, lost: &BTreeSet<NodeName>, found: &mut Vec<Violation>) {
    let lock = &key.lock;
    if lock.flag.is_some() || lock.commands == 0 {
        return;
    }
    let past = |tag: Tag| tag.lock_ref.0 <= lock.commands && !lock.refs.contains(&tag.lock_ref);
    if let Some(lack) = key.undefined(lost, past) {
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

fn fresh(cluster: &Cluster, catalogue: &Catalogue, head: &Head) -> Key {
    // Segment, in the record after the first byte.
    let number = head
        .record
        .get(1..5)
        .and_then(|b| b.try_into().ok())
        .map(u32::from_be_bytes);
    let segment = SegmentId(number.expect("a head's record names its segment"));
    let group = cluster
        .group_of(segment)
        .expect("every segment has a group");
    let shape = catalogue.storage(&head.key).shape(group.view.len());
    let shape = shape.expect("keyspaces fit their groups");
    Key {
        segment,
        members: group.view.nodes().collect(),
        quorum: shape.quorum,
        cells: BTreeMap::new(),
        lock: Lock::default(),
    }
}
