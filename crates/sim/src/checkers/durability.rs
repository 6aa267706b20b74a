//! Two promises about disks.
//!
//! *What a flush made durable is there after every restart*, and what is there was written: the
//! memory after a restart is that after some prefix of the batches, no shorter than what was
//! flushed.
//!
//! *What is acknowledged is on a quorum of disks.* At the moment at which a client is told that
//! its write is done, a quorum of the key's replicas hold its tag, or a higher one, in what they
//! have flushed: any crash may follow. A quorum that merely remembers it is none (F8c). Where
//! values are coded, the parts of one tag that is no lower must be on enough disks to give a value
//! back; and where versions are kept until one is final, a quorum must hold this very tag's, or
//! have dropped them for a higher final one. A delete of which every trace was removed was at all
//! members. Disks that were lost or that rot count as holding it,
//! since the rest of the quorum does.

use super::places::{Places, epoch_of};
use super::{Violation, tags};
use crate::catalogue::Catalogue;
use crate::history::{Heard, Op, What};
use crate::machine::{Machine, Stepped};
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{Epoch, KeyId, NodeName, Tag, View};
use fermata_protocol::io::Write;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the checker calls itself in a violation.
pub const NAME: &str = "durability";
/// The second promise.
pub const ACKNOWLEDGED: &str = "acknowledged before durable";

#[derive(Debug, Default)]
struct Node {
    durable: BTreeMap<Bytes, Bytes>,
    /// The highest tag of each key of which every trace was removed.
    buried: BTreeMap<KeyId, Tag>,
    pending: VecDeque<(u64, Vec<Write>)>,
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Durability {
    nodes: BTreeMap<NodeName, Node>,
    /// Disks that may have lost anything.
    gone: BTreeSet<NodeName>,
}

impl Durability {
    /// A node wrote.
    pub fn wrote(&mut self, name: NodeName, done: &Stepped) {
        if !done.writes.is_empty() {
            let node = self.nodes.entry(name).or_default();
            node.pending.push_back((done.written, done.writes.clone()));
        }
    }

    /// Everything up to here is durable; the heads that are so now.
    pub fn flushed(&mut self, name: NodeName, lsn: u64) -> Vec<tags::Head> {
        let node = self.nodes.entry(name).or_default();
        let mut heads = Vec::new();
        while node.pending.front().is_some_and(|(at, _)| *at <= lsn) {
            if let Some((_, writes)) = node.pending.pop_front() {
                heads.extend(tags::heads(&writes));
                node.keep(&writes);
            }
        }
        heads
    }

    /// A process has started on the disk, and has done its first step.
    pub fn restarted(&mut self, machine: &Machine, first: &Stepped, found: &mut Vec<Violation>) {
        let Some(node) = self.nodes.get_mut(&machine.name()) else {
            return;
        };
        // What is there of all that may be, but for what the first step has written since.
        let pending = std::mem::take(&mut node.pending);
        let written = pending.iter().flat_map(|(_, writes)| writes);
        let put = written.filter_map(|write| match write {
            Write::Put { key, .. } => Some(key),
            Write::Delete { .. } | Write::DeleteRange { .. } => None,
        });
        let records: BTreeSet<&Bytes> = node.durable.keys().chain(put).collect();
        let kept = records.into_iter().filter(|k| !touches(&first.writes, k));
        let kept: Vec<_> = kept.map(|k| (k.clone(), machine.recall(k))).collect();
        // What a disk had before it rotted is not known here, until it is written again.
        let unknown = self.gone.contains(&machine.name());
        let lost = |state: &BTreeMap<Bytes, Bytes>| {
            let other = |(k, v): &&(Bytes, Option<Bytes>)| match state.get(k) {
                None => v.is_some() && !unknown,
                known => known != v.as_ref(),
            };
            kept.iter().find(other).map(|(k, _)| k)
        };
        // The longest prefix that may have survived is what is there.
        let mut state = node.durable.clone();
        let mut survived = lost(&state).is_none().then_some(0);
        for (batches, (_, writes)) in (1..).zip(&pending) {
            apply(&mut state, writes);
            if lost(&state).is_none() {
                survived = Some(batches);
            }
        }
        if survived.is_none() {
            let record = lost(&state).map(|key| String::from_utf8_lossy(key));
            let detail = format!(
                "node {} lost what it had flushed of record {:?}",
                machine.name().0,
                record.unwrap_or_default()
            );
            found.push(Violation::new(NAME, detail));
        }
        let survived = survived.unwrap_or(pending.len());
        for (_, writes) in pending.iter().take(survived) {
            node.keep(writes);
        }
    }

    /// The disk may have lost anything.
    pub fn forget(&mut self, name: NodeName) {
        self.nodes.remove(&name);
        self.gone.insert(name);
    }

    /// A client was told that its write of a tag is done. `promised`: a value must be readable;
    /// false where more writes are unfinished than the key's policy bears.
    pub fn acknowledged(
        &self,
        op: &Op,
        promised: bool,
        (places, catalogue): (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        let (What::Put { key, .. } | What::Write(key, _), Heard::Done(Some(tag))) =
            (&op.what, &op.outcome)
        else {
            return;
        };
        let stores: Vec<_> = places.stores(places.segment(key)).collect();
        let (last, stores) = stores.split_last().expect("a segment has a store");
        let lack = |store: &(Epoch, &View), first| {
            let state = (first, promised);
            self.lack(key, *tag, *store, state, catalogue)
        };
        let later = stores.iter().map(|store| lack(store, false));
        let mut lacks = later.chain([lack(last, true)]);
        // Where it was complete once it is, or has moved on from there.
        let first = lacks.next().expect("a segment has a store");
        if let Some(lack) = first
            && lacks.all(|lack| lack.is_some())
        {
            let (key, tag) = (show::key(key), show::tag(tag));
            let detail = format!("key {key}: {tag} is acknowledged, and {lack}");
            found.push(Violation::new(ACKNOWLEDGED, detail));
        }
    }

    /// What is wrong with a tag in a store, if it is not on a quorum of its disks. In one that is
    /// not the segment's `first` a higher tag may have come from an earlier store.
    fn lack(
        &self,
        key: &KeyId,
        tag: Tag,
        (epoch, view): (Epoch, &View),
        (first, promised): (bool, bool),
        catalogue: &Catalogue,
    ) -> Option<String> {
        let storage = catalogue.storage(key);
        let shape = storage.shape(view.len()).expect("keyspaces fit groups");
        let mut holders = 0;
        let mut gone = 0;
        let mut parts: BTreeMap<Tag, (usize, usize)> = BTreeMap::new();
        for name in view.nodes() {
            if self.gone.contains(&name) {
                (holders, gone) = (holders + 1, gone + 1);
                continue;
            }
            let Some(node) = self.nodes.get(&name) else {
                continue;
            };
            if node.buried.get(key).is_some_and(|buried| *buried >= tag) {
                // A delete that all had.
                (holders, gone) = (holders + 1, gone + 1);
                continue;
            }
            let Some(seen) = node.seen(key, epoch) else {
                continue;
            };
            holders += usize::from(match storage.finalizes() && first {
                true => seen.version(tag).is_some() || seen.dropped > tag,
                false => seen.tag() >= tag,
            });
            for version in seen.versions.iter().filter(|v| v.tag >= tag) {
                let needed = catalogue.parts(key, version.length, view.len());
                parts.entry(version.tag).or_insert((0, needed)).0 += 1;
            }
        }
        let decodable = parts.values().any(|(have, needed)| have + gone >= *needed);
        let lacks = holders < shape.quorum || (promised && !decodable);
        lacks.then(|| {
            let parts = parts.values().collect::<Vec<_>>();
            format!(
                "on the disks of {holders} of {}, with parts {parts:?}",
                view.len()
            )
        })
    }
}

impl Node {
    /// These writes are on the disk.
    fn keep(&mut self, writes: &[Write]) {
        for record in tags::removed(writes) {
            let value = self.durable.get(&record);
            if let Some(head) = value.and_then(|value| tags::head(&record, value)) {
                self.buried.insert(head.key, head.seen.tag());
            }
        }
        apply(&mut self.durable, writes);
    }

    /// What was flushed of the key in a store.
    fn seen(&self, key: &KeyId, epoch: Epoch) -> Option<tags::Seen> {
        let cells = self
            .durable
            .range(Bytes::from_static(b"r")..Bytes::from_static(b"s"));
        let heads = cells.filter_map(|(record, value)| tags::head(record, value));
        let mut mine = heads.filter(|h| h.key == *key && epoch_of(&h.record) == epoch);
        mine.next().map(|head| head.seen)
    }
}

/// Whether any of these writes changes a record.
fn touches(writes: &[Write], record: &Bytes) -> bool {
    writes.iter().any(|write| match write {
        Write::Put { key, .. } | Write::Delete { key } => key == record,
        Write::DeleteRange { from, to } => (from..to).contains(&record),
    })
}

fn apply(state: &mut BTreeMap<Bytes, Bytes>, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put { key, value } => {
                state.insert(key.clone(), value.clone());
            }
            Write::Delete { key } => {
                state.remove(key);
            }
            Write::DeleteRange { from, to } => {
                let inside = state
                    .range(from.clone()..to.clone())
                    .map(|(k, _)| k.clone());
                for key in inside.collect::<Vec<_>>() {
                    state.remove(&key);
                }
            }
        }
    }
}
