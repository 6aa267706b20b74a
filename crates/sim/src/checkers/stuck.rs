//! What coded registers promise: a read finds a value, and no value is ever lost.
//!
//! `coded` always finds one; `treas-opt`, `ares` and `oreas` do while at most δ writes are
//! concurrent with the read (CassandrEAS §III), dead ones included, since nobody sweeps them. Here
//! the writes concurrent with a read are the tags that were sent to replicas before it ended and
//! lie above the highest tag that was complete, on the disks of a quorum, when it began: with at
//! most δ of those, the k answers from that tag's quorum show δ + 1 tags at most, and one of them
//! has k/(δ+1) parts. Beyond δ an `Undecodable` is no violation; it is counted.
//!
//! *Lost*: under `coded`, at every moment, the parts of one tag that is no lower than the highest
//! that was ever complete are on the disks of a quorum, so that f deaths leave enough to read
//! (F8a). Disks that were lost or that rot count as holding them: the rest of the quorum does. That
//! every such value is found, too, is what the end of a run demands, when everybody reads again.

use super::Violation;
use super::places::{Places, epoch_of};
use super::tags::{Head, Seen, head};
use crate::catalogue::Catalogue;
use crate::history::{Heard, Op, OpId};
use crate::machine::Machine;
use crate::network::Parcel;
use crate::show;
use bytes::Bytes;
use fermata_protocol::Message;
use fermata_protocol::base::{Epoch, KeyId, NodeName, StoragePolicy, Tag};
use fermata_protocol::register::{Ask, Message as Register};
use fermata_protocol::request::Code;
use fermata_protocol::wire::record;
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "stuck read";
/// The second promise.
pub const LOST: &str = "lost value";

#[derive(Debug, Default)]
struct Key {
    /// Tags under which something was sent to a replica.
    sent: BTreeSet<Tag>,
    /// Who has flushed what, in which store.
    stored: BTreeMap<(Tag, Epoch), BTreeSet<NodeName>>,
    /// The highest tag on the disks of a quorum.
    complete: Tag,
    /// What is on the disks, by node and record.
    disks: BTreeMap<(NodeName, Bytes), Seen>,
    /// What is not above this tag was deleted, and removed with every trace.
    buried: Tag,
}

impl Key {
    fn check(
        &self,
        id: &KeyId,
        quorum: impl Fn(Epoch) -> usize,
        gone: &BTreeSet<NodeName>,
        found: &mut Vec<Violation>,
    ) {
        let mut holders: BTreeMap<(Tag, Epoch), BTreeSet<NodeName>> = BTreeMap::new();
        for ((name, record), seen) in self.disks.iter().filter(|((n, _), _)| !gone.contains(n)) {
            let epoch = epoch_of(record);
            for version in seen.versions.iter().filter(|v| v.tag >= self.complete) {
                holders
                    .entry((version.tag, epoch))
                    .or_default()
                    .insert(*name);
            }
        }
        let mut enough = holders.iter();
        let enough = enough.any(|((_, epoch), at)| at.len() + gone.len() >= quorum(*epoch));
        if self.complete > self.buried && !enough {
            let most = holders.values().map(BTreeSet::len).max().unwrap_or(0);
            let (key, tag) = (show::key(id), show::tag(&self.complete));
            let detail = format!(
                "key {key}: {tag} was complete, and {most} disks have it now, or any one above it"
            );
            found.push(Violation::new(LOST, detail));
        }
    }
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Stuck {
    keys: BTreeMap<KeyId, Key>,
    /// What was complete when an operation on a key began.
    began: BTreeMap<OpId, Tag>,
    /// Disks that may have lost anything.
    gone: BTreeSet<NodeName>,
    /// Operations that ended as `Undecodable` with more than δ writes unfinished.
    pub beyond_delta: u64,
}

impl Stuck {
    /// Something was sent.
    pub fn sent(&mut self, parcel: &Parcel) {
        if let Parcel::Peer {
            message: Message::Register(Register::Ask { key, ask, .. }),
            ..
        } = parcel
            && let Ask::Store { tag, .. } = ask
        {
            let known = self.keys.entry(key.clone()).or_default();
            known.sent.insert(*tag);
        }
    }

    /// Heads are on a node's disk.
    pub fn flushed(
        &mut self,
        name: NodeName,
        heads: &[Head],
        (places, catalogue): (&Places, &Catalogue),
        found: &mut Vec<Violation>,
    ) {
        for head in heads {
            let epoch = epoch_of(&head.record);
            let quorum = |epoch| places.quorum(&head.key, epoch, catalogue);
            let known = self.keys.entry(head.key.clone()).or_default();
            for version in head.seen.versions.iter().filter(|v| v.is_known()) {
                if version.tag <= known.complete {
                    continue;
                }
                let at = known.stored.entry((version.tag, epoch)).or_default();
                at.insert(name);
                if at.len() >= quorum(epoch) {
                    known.complete = version.tag;
                }
            }
            let complete = known.complete;
            known.stored.retain(|(tag, _), _| *tag > complete);
            let place = (name, head.record.clone());
            known.disks.insert(place, head.seen.clone());
            if catalogue.storage(&head.key).finalizes() {
                known.check(&head.key, quorum, &self.gone, found);
            }
        }
    }

    /// A node has removed keys, which were deleted: nothing of them must be found any more.
    pub fn removed(&mut self, records: &[Bytes]) {
        let keys = records.iter().filter_map(|record| record::key_of(record));
        for key in keys {
            if let Some(known) = self.keys.get_mut(&key) {
                known.buried = known.complete;
            }
        }
    }

    /// A node has removed whole stores.
    pub fn emptied(&mut self, name: NodeName, ranges: &[(Bytes, Bytes)]) {
        for (from, to) in ranges {
            for known in self.keys.values_mut() {
                let inside = |record: &Bytes| from <= record && record < to;
                known
                    .disks
                    .retain(|(at, record), _| *at != name || !inside(record));
            }
        }
    }

    /// A process has started: what the disk kept is what counts.
    pub fn restarted(&mut self, machine: &Machine) {
        for known in self.keys.values_mut() {
            known.disks.retain(|(name, record), seen| {
                if *name != machine.name() {
                    return true;
                }
                let value = machine.recall(record);
                let now = value.and_then(|value| head(record, &value));
                now.map(|head| *seen = head.seen).is_some()
            });
        }
    }

    /// The disk may have lost anything.
    pub fn forget(&mut self, name: NodeName) {
        self.gone.insert(name);
    }

    /// An operation begins.
    pub fn began(&mut self, id: OpId, op: &Op) {
        if let Some(key) = op.what.key() {
            let known = self.keys.get(key);
            let complete = known.map_or(Tag::ZERO, |k| k.complete);
            self.began.insert(id, complete);
        }
    }

    /// An operation has ended.
    pub fn ended(&mut self, id: OpId, op: &Op, catalogue: &Catalogue, found: &mut Vec<Violation>) {
        let before = self.began.remove(&id);
        let (Some(key), Some(before)) = (op.what.key(), before) else {
            return;
        };
        let (Heard::Failed(Code::Undecodable) | Heard::Unknown(Code::Undecodable)) = op.outcome
        else {
            return;
        };
        if self.is_beyond(key, before, catalogue) {
            self.beyond_delta += 1;
            return;
        }
        let storage = catalogue.storage(key).name();
        let detail = format!(
            "key {} ({storage}): client {} was told that there is no value, with {} writes \
             unfinished",
            show::key(key),
            op.client.0,
            self.unfinished(key, before)
        );
        found.push(Violation::new(NAME, detail));
    }

    /// Whether more writes of the key are unfinished now than its policy bears, so that reads may
    /// find no value.
    pub fn is_excused(&self, key: &KeyId, catalogue: &Catalogue) -> bool {
        let known = self.keys.get(key);
        known.is_some_and(|k| self.is_beyond(key, k.complete, catalogue))
    }

    fn is_beyond(&self, key: &KeyId, before: Tag, catalogue: &Catalogue) -> bool {
        match catalogue.storage(key) {
            StoragePolicy::Replicated | StoragePolicy::Coded(_) => false,
            StoragePolicy::TreasOpt(terms)
            | StoragePolicy::Oreas(terms)
            | StoragePolicy::Ares(terms) => self.unfinished(key, before) > terms.delta.into(),
        }
    }

    /// Tags sent so far above `before`.
    fn unfinished(&self, key: &KeyId, before: Tag) -> usize {
        let known = self.keys.get(key);
        known.map_or(0, |k| {
            k.sent.iter().rev().take_while(|t| **t > before).count()
        })
    }
}
