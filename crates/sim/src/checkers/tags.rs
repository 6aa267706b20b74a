//! At a replica, the tag of a cell, its fence and its mark of what was dropped never go backwards,
//! and nothing is stored below the fence that stands (F1); where versions are kept until one is
//! final, none goes but below a durable mark (F8b); and one tag names one value everywhere (F8h). A
//! key that is removed was a delete, and nothing that it had outlived is stored again, at any
//! replica (F8f).

use super::Violation;
use crate::catalogue::Catalogue;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{EventualTag, KeyId, NodeName, StoragePolicy, Tag};
use fermata_protocol::io::Write;
use fermata_protocol::register::{Content, policy};
use fermata_protocol::wire::{decode, record};
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "tags";

/// Where a register record says which part of a cell it is: after `r`, segment and epoch.
const PART_AT: usize = 13;

/// One version that a replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Of the write.
    pub tag: Tag,
    /// Where the value stands among eventual puts, as the replica has it.
    pub origin: EventualTag,
    /// Names the value.
    pub digest: u64,
    /// Bytes of the whole value; none: absent or deleted.
    pub length: Option<u64>,
}

impl Version {
    /// Whether it is of a value, and not what goes on in place of one that nobody can decode (V12).
    pub fn is_known(&self) -> bool {
        self.digest != policy::digest_of(&Content::Undecodable)
    }
}

/// What a replica holds of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of the critical or register cell, by tag, lowest first.
    pub versions: Vec<Version>,
    /// Versions below this tag may have been here and are gone.
    pub dropped: Tag,
    /// Below it writes are refused.
    pub fence: Tag,
    /// Of the eventual cell.
    pub eventual: Option<EventualTag>,
    /// Whether it holds a value.
    pub eventual_live: bool,
}

impl Seen {
    /// The highest tag; zero where never written.
    pub fn tag(&self) -> Tag {
        self.versions.last().map_or(Tag::ZERO, |v| v.tag)
    }

    /// The version of exactly this tag.
    pub fn version(&self, tag: Tag) -> Option<&Version> {
        self.versions.iter().find(|v| v.tag == tag)
    }
}

/// One head that was written.
#[derive(Clone, Debug)]
pub struct Head {
    /// The record's key.
    pub record: Bytes,
    /// The key it belongs to.
    pub key: KeyId,
    /// What it says.
    pub seen: Seen,
}

/// The records of the keys that a step removed.
pub fn removed(writes: &[Write]) -> Vec<Bytes> {
    let record = |write: &Write| match write {
        Write::Delete { key } if is_head(key) => Some(key.clone()),
        _ => None,
    };
    writes.iter().filter_map(record).collect()
}

/// The ranges of registers' records that a step removed: whole stores.
pub fn emptied(writes: &[Write]) -> Vec<(Bytes, Bytes)> {
    let range = |write: &Write| match write {
        Write::DeleteRange { from, to } if from.first() == Some(&b'r') => {
            Some((from.clone(), to.clone()))
        }
        _ => None,
    };
    writes.iter().filter_map(range).collect()
}

/// Whether a record is a head.
pub fn is_head(record: &Bytes) -> bool {
    record.first() == Some(&b'r') && record.get(PART_AT) == Some(&0)
}

/// The heads among the writes of a step: of each record the last one, since they are one batch.
pub fn heads(writes: &[Write]) -> Vec<Head> {
    let mut out: Vec<Head> = Vec::new();
    for write in writes {
        if let Write::Put { key, value } = write
            && let Some(head) = head(key, value)
        {
            out.retain(|before| before.record != head.record);
            out.push(head);
        }
    }
    out
}

/// The layout of one version in a head: tag, origin, digest, length, bytes stored, slot.
type Trace = (Tag, EventualTag, u64, Option<u64>, u64, u8);

/// The layout of a head: see `register::cell` in the protocol crate.
type Layout = (
    Vec<Trace>,
    Tag,
    Tag,
    Option<EventualTag>,
    bool,
    u64,
    Option<Tag>,
);

/// A head, if the record is one.
pub fn head(record: &Bytes, value: &[u8]) -> Option<Head> {
    if !is_head(record) {
        return None;
    }
    let key = record::key_of(record)?;
    let layout = decode::<Layout>(value).expect("the layout of a head");
    let (traces, dropped, fence, eventual, eventual_live, ..) = layout;
    let version = |(tag, origin, digest, length, ..): Trace| Version {
        tag,
        origin,
        digest,
        length,
    };
    let seen = Seen {
        versions: traces.into_iter().map(version).collect(),
        dropped,
        fence,
        eventual,
        eventual_live,
    };
    let record = record.clone();
    Some(Head { record, key, seen })
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Tags {
    at: BTreeMap<NodeName, BTreeMap<Bytes, Seen>>,
    values: BTreeMap<(KeyId, Tag), u64>,
    /// Disks of which single records may be damaged, and are learnt again.
    rotten: BTreeSet<NodeName>,
    /// Deletes of which some replica has removed every trace.
    buried: BTreeMap<KeyId, (Tag, Option<EventualTag>)>,
}

impl Tags {
    /// A node wrote heads.
    pub fn wrote(
        &mut self,
        name: NodeName,
        heads: &[Head],
        catalogue: &Catalogue,
        found: &mut Vec<Violation>,
    ) {
        let at = self.at.entry(name).or_default();
        for head in heads {
            let seen = &head.seen;
            let before = at.insert(head.record.clone(), seen.clone());
            let buried = self.buried.get(&head.key).copied().unwrap_or_default();
            let had = |tag| before.as_ref().is_some_and(|b| b.version(tag).is_some());
            let mut back = seen.versions.iter().map(|v| v.tag);
            if let Some(tag) = back.find(|tag| *tag < buried.0 && !had(*tag)) {
                let (key, node) = (show::key(&head.key), name.0);
                let (tag, delete) = (show::tag(&tag), show::tag(&buried.0));
                let detail =
                    format!("key {key} at node {node}: {tag} comes after {delete} was removed");
                found.push(Violation::new(NAME, detail));
            }
            let put = before.as_ref().and_then(|b| b.eventual);
            if let Some(back) = seen
                .eventual
                .filter(|now| put.is_none() && Some(*now) < buried.1)
            {
                let (key, node) = (show::key(&head.key), name.0);
                let detail = format!(
                    "key {key} at node {node}: {back:?} comes after its delete was removed"
                );
                found.push(Violation::new(NAME, detail));
            }
            if let Some(before) = before {
                let finalizes = catalogue.storage(&head.key).finalizes();
                let strict = finalizes && !self.rotten.contains(&name);
                let below = below_fence(&before, seen).filter(|_| !self.rotten.contains(&name));
                if let Some(what) = backwards(&before, seen, strict).or(below) {
                    let (key, node) = (show::key(&head.key), name.0);
                    let detail = format!("key {key} at node {node}: {what}");
                    found.push(Violation::new(NAME, detail));
                }
            }
            for version in seen.versions.iter().filter(|v| v.is_known()) {
                let place = (head.key.clone(), version.tag);
                let known = self.values.entry(place).or_insert(version.digest);
                if *known != version.digest {
                    let (key, tag) = (show::key(&head.key), show::tag(&version.tag));
                    let detail = format!("key {key}: two values under {tag}");
                    found.push(Violation::new(NAME, detail));
                }
            }
        }
    }

    /// A node removed keys.
    pub fn removed(
        &mut self,
        name: NodeName,
        records: &[Bytes],
        catalogue: &Catalogue,
        found: &mut Vec<Violation>,
    ) {
        let at = self.at.entry(name).or_default();
        for record in records {
            let Some(before) = at.remove(record) else {
                continue;
            };
            // Where several versions are kept at rest, what a delete has outlived is among them.
            let key = record::key_of(record);
            let several = key.is_some_and(|key| {
                let storage = catalogue.storage(&key);
                matches!(storage, StoragePolicy::Ares(_))
            });
            let live = before.versions.last().is_some_and(|v| v.length.is_some());
            if live || (before.versions.len() > 1 && !several) {
                let tag = show::tag(&before.tag());
                let detail = format!("node {} removed {tag}, which is no delete alone", name.0);
                found.push(Violation::new(NAME, detail));
            }
            if let Some(key) = record::key_of(record) {
                let known = self.buried.entry(key).or_default();
                known.0 = before.tag().max(known.0);
                known.1 = before.eventual.max(known.1);
            }
        }
    }

    /// A disk rots.
    pub fn rotten(&mut self, name: NodeName) {
        self.rotten.insert(name);
    }

    /// A process has started: what it remembers is what counts; that nothing durable is missing is
    /// another checker's business.
    pub fn restarted(&mut self, machine: &Machine) {
        let at = self.at.entry(machine.name()).or_default();
        at.retain(|record, seen| {
            let value = machine.recall(record);
            let now = value.and_then(|v| head(record, &v));
            now.map(|h| *seen = h.seen).is_some()
        });
    }

    /// The disk is gone.
    pub fn forget(&mut self, name: NodeName) {
        self.at.remove(&name);
    }
}

/// What was stored although the fence that stood is above it (F1).
fn below_fence(before: &Seen, now: &Seen) -> Option<String> {
    let new = |v: &&Version| v.tag < before.fence && before.version(v.tag).is_none();
    let version = now.versions.iter().find(new)?;
    let (tag, fence) = (show::tag(&version.tag), show::tag(&before.fence));
    Some(format!("{tag} is stored below the fence {fence}"))
}

/// What went backwards, if anything did. `strict`: versions go below a mark only.
fn backwards(before: &Seen, now: &Seen, strict: bool) -> Option<String> {
    let pairs = [
        ("the tag", before.tag(), now.tag()),
        ("the fence", before.fence, now.fence),
        ("the mark of what was dropped", before.dropped, now.dropped),
    ];
    for (what, from, to) in pairs {
        if to < from {
            let (from, to) = (show::tag(&from), show::tag(&to));
            return Some(format!("{what} goes from {from} back to {to}"));
        }
    }
    let mut gone = before.versions.iter();
    let gone = gone.find(|v| now.version(v.tag).is_none() && v.tag >= now.dropped)?;
    let (tag, mark) = (show::tag(&gone.tag), show::tag(&now.dropped));
    strict.then(|| format!("{tag} is gone, and only what is below {mark} may be"))
}
