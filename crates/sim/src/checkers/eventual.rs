//! An eventual put that has taken effect is found, unless a section has written after it (F6, G24,
//! G26).
//!
//! * At a replica an eventual value is *hidden* only by what a section has written after the put:
//!   not by an adoption, nor by what is carried on from before it.
//! * It *goes* from a replica for a later eventual value only, or where such a write is complete: a
//!   quorum has stored it. One that is at fewer may come to nothing.
//! * Once all is at rest, every member of a key holds what any member had durably, or a later one,
//!   unless a complete write of a section is after it: every quorum read finds it.
//!
//! A section's writes are known by their tags and values, not by what replicas say of origins.
//! Disks that were lost, or that rot, may have held anything.

use super::Violation;
use super::places::{Places, epoch_of};
use super::tags::{Head, Seen, Version};
use crate::catalogue::Catalogue;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::tag::GENERATION_SPAN;
use fermata_protocol::base::{Epoch, EventualTag, KeyId, LockRef, NodeName, Tag};
use fermata_protocol::wire::record;
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "eventual put lost";

/// A version that some replica has stored.
#[derive(Debug)]
struct Written {
    /// Of its value.
    digest: u64,
    /// Where it was stored at any time.
    at: BTreeSet<(Epoch, NodeName)>,
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Eventual {
    at: BTreeMap<NodeName, BTreeMap<Bytes, Seen>>,
    written: BTreeMap<(KeyId, Tag), Written>,
    /// The latest eventual value of each key that a disk has kept.
    kept: BTreeMap<KeyId, EventualTag>,
    /// The latest one that was removed with its key.
    buried: BTreeMap<KeyId, EventualTag>,
    /// Disks of which single records may be damaged.
    rotten: BTreeSet<NodeName>,
}

impl Eventual {
    /// A node wrote heads.
    pub fn wrote(
        &mut self,
        machine: &Machine,
        heads: &[Head],
        (places, catalogue): (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        let name = machine.name();
        for head in heads.iter().filter(|h| catalogue.has_sections(&h.key)) {
            let (key, seen) = (&head.key, &head.seen);
            for version in &seen.versions {
                let written = self.written.entry((key.clone(), version.tag));
                let written = written.or_insert_with(|| Written {
                    digest: version.digest,
                    at: BTreeSet::new(),
                });
                written.at.insert((epoch_of(&head.record), name));
            }
            let at = self.at.entry(name).or_default();
            let before = at.insert(head.record.clone(), seen.clone());
            if self.rotten.contains(&name) {
                continue;
            }
            let before = before.and_then(|b| b.eventual);
            let lost = before.filter(|put| seen.eventual < Some(*put));
            let what = match (lost, hidden(seen)) {
                (Some(put), _) if !self.outlived(key, put, (places, catalogue)) => {
                    format!("{put:?} goes, and nothing that was written after it is complete")
                }
                (_, Some((put, version))) if !self.writes(key, version, put) => {
                    let tag = show::tag(&version.tag);
                    format!("{put:?} is hidden by {tag}, which nobody has written after it")
                }
                _ => continue,
            };
            let (key, node) = (show::key(key), name.0);
            let detail = format!("key {key} at node {node}: {what}");
            found.push(Violation::new(NAME, detail));
        }
    }

    /// Heads are durable.
    pub fn flushed(&mut self, name: NodeName, heads: &[Head], catalogue: &Catalogue) {
        let sound = !self.rotten.contains(&name);
        for head in heads
            .iter()
            .filter(|h| sound && catalogue.has_sections(&h.key))
        {
            let buried = self.buried.get(&head.key).copied();
            if let Some(put) = head.seen.eventual.filter(|put| Some(*put) > buried) {
                let kept = self.kept.entry(head.key.clone()).or_insert(put);
                *kept = put.max(*kept);
            }
        }
    }

    /// A node removed keys, which were deletes that all members held.
    pub fn removed(&mut self, name: NodeName, records: &[Bytes]) {
        for record in records {
            let seen = self.at.get_mut(&name).and_then(|at| at.remove(record));
            let Some(key) = record::key_of(record) else {
                continue;
            };
            self.kept.remove(&key);
            if let Some(put) = seen.and_then(|seen| seen.eventual) {
                let buried = self.buried.entry(key).or_default();
                *buried = put.max(*buried);
            }
        }
    }

    /// A node removed whole stores: what was in them is kept elsewhere.
    pub fn emptied(&mut self, name: NodeName, ranges: &[(Bytes, Bytes)]) {
        let at = self.at.entry(name).or_default();
        for (from, to) in ranges {
            at.retain(|record, _| record < from || record >= to);
        }
    }

    /// These keys are at rest: every quorum read finds what is kept.
    pub fn at_rest(
        &self,
        machines: &BTreeMap<NodeName, Machine>,
        (places, catalogue): (&Places, &Catalogue),
        rests: impl Fn(&KeyId) -> bool,
        found: &mut Vec<Violation>,
    ) {
        for (key, put) in self.kept.iter().filter(|(key, _)| rests(key)) {
            let location = places.location(places.segment(key));
            let members = location.group.view.nodes();
            let present = |record: &Bytes| {
                record::key_of(record).as_ref() == Some(key) && epoch_of(record) == location.store()
            };
            let lacks = |name: &NodeName| {
                let at = self.at.get(name).into_iter().flatten();
                let mut has = at.filter(|(record, _)| present(record));
                !has.any(|(_, seen)| seen.eventual >= Some(*put))
            };
            let mut living = members.filter(|name| machines[name].lost.is_none());
            if let Some(name) = living.find(lacks)
                && !self.outlived(key, *put, (places, catalogue))
            {
                let (key, node) = (show::key(key), name.0);
                let detail = format!("key {key}: node {node} lacks {put:?} at rest");
                found.push(Violation::new(NAME, detail));
            }
        }
    }

    /// A disk rots, and what it alone kept may be gone.
    pub fn rotten(&mut self, name: NodeName) {
        self.rotten.insert(name);
        self.kept.clear();
    }

    /// The disk is gone, and what it alone kept.
    pub fn forget(&mut self, name: NodeName) {
        self.at.remove(&name);
        self.kept.clear();
    }

    /// A process has started: what its disk has is what counts.
    pub fn restarted(&mut self, machine: &Machine) {
        let at = self.at.entry(machine.name()).or_default();
        at.retain(|record, seen| {
            let value = machine.recall(record);
            let now = value.and_then(|v| super::tags::head(record, &v));
            now.map(|h| *seen = h.seen).is_some()
        });
    }

    /// Whether a quorum of a store has stored what a section has written after the put.
    fn outlived(
        &self,
        key: &KeyId,
        put: EventualTag,
        (places, catalogue): (&Places, &Catalogue),
    ) -> bool {
        let is_complete = |written: &Written| {
            let mut stores = places.stores(places.segment(key));
            stores.any(|(epoch, _)| {
                let at = written.at.iter().filter(|(store, _)| *store == epoch);
                at.count() >= places.quorum(key, epoch, catalogue)
            })
        };
        let from = (key.clone(), first_after(put));
        let later = self
            .written
            .range(from..)
            .take_while(|((k, _), _)| k == key);
        let mut complete = later.filter(|(_, written)| is_complete(written));
        complete.any(|((_, tag), written)| self.is_written(key, *tag, written.digest, put))
    }

    fn writes(&self, key: &KeyId, version: &Version, put: EventualTag) -> bool {
        self.is_written(key, version.tag, version.digest, put)
    }

    /// Whether a version's value was written by a section after the put: not adopted, or carried on
    /// from before it. Whoever carries a value on, its first tag is its writer's.
    fn is_written(&self, key: &KeyId, tag: Tag, digest: u64, put: EventualTag) -> bool {
        let first = first_after(put);
        if tag < first {
            return false;
        }
        let by_section = |tag: Tag| !tag.sequence.is_multiple_of(GENERATION_SPAN);
        let mut known = self
            .written
            .range((key.clone(), first)..=(key.clone(), tag));
        by_section(tag) || known.any(|((_, t), w)| by_section(*t) && w.digest == digest)
    }
}

/// The lowest tag of a section that is after the put.
fn first_after(put: EventualTag) -> Tag {
    Tag {
        lock_ref: LockRef(put.applied + 1),
        ..Tag::ZERO
    }
}

/// The eventual value that the highest version here outranks, and that version.
pub(super) fn hidden(seen: &Seen) -> Option<(EventualTag, &Version)> {
    let (put, top) = (seen.eventual?, seen.versions.last()?);
    let hides = top.origin.is_of_section() && put < top.origin;
    hides.then_some((put, top))
}
