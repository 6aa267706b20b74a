//! At a replica, the tag of a cell and its fence never go backwards, and one tag names
//! one value everywhere (F8h).

use super::Violation;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{EventualTag, KeyId, LockRef, NodeName, Tag};
use fermata_protocol::io::Write;
use fermata_protocol::wire::{decode, record};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "tags";

/// Where a register record says which part of a cell it is: after `r`, segment and epoch.
const PART_AT: usize = 13;

/// What a replica holds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of the critical or register cell.
    pub tag: Tag,
    /// Names the value.
    pub digest: u64,
    /// Below it writes are refused.
    pub fence: Tag,
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

/// The heads among the writes of a step.
pub fn heads(writes: &[Write]) -> Vec<Head> {
    let mut out = Vec::new();
    for write in writes {
        if let Write::Put { key, value } = write
            && let Some(head) = head(key, value)
        {
            out.push(head);
        }
    }
    out
}

/// The layout of a head: see `register::cell` in the protocol crate.
type Layout = (
    Tag,
    LockRef,
    u64,
    Option<u64>,
    Tag,
    Option<EventualTag>,
    bool,
    Option<Tag>,
);

/// A head, if the record is one.
pub fn head(record: &Bytes, value: &[u8]) -> Option<Head> {
    if record.first() != Some(&b'r') || record.get(PART_AT) != Some(&0) {
        return None;
    }
    let key = record::key_of(record)?;
    let (tag, _, digest, _, fence, ..) = decode::<Layout>(value).expect("the layout of a head");
    let record = record.clone();
    let seen = Seen { tag, digest, fence };
    Some(Head { record, key, seen })
}

/// The watcher.
#[derive(Debug, Default)]
pub struct Tags {
    at: BTreeMap<NodeName, BTreeMap<Bytes, Seen>>,
    values: BTreeMap<(KeyId, Tag), u64>,
}

impl Tags {
    /// A node wrote heads.
    pub fn wrote(&mut self, name: NodeName, heads: &[Head], found: &mut Vec<Violation>) {
        let at = self.at.entry(name).or_default();
        for head in heads {
            let Seen { tag, digest, fence } = head.seen;
            if let Some(before) = at.insert(head.record.clone(), head.seen)
                && (tag < before.tag || fence < before.fence)
            {
                let detail = format!(
                    "key {} at node {}: from {} (fence {}) back to {} (fence {})",
                    show::key(&head.key),
                    name.0,
                    show::tag(&before.tag),
                    show::tag(&before.fence),
                    show::tag(&tag),
                    show::tag(&fence)
                );
                found.push(Violation::new(NAME, detail));
            }
            let known = self.values.entry((head.key.clone(), tag)).or_insert(digest);
            if *known != digest {
                let (key, tag) = (show::key(&head.key), show::tag(&tag));
                found.push(Violation::new(
                    NAME,
                    format!("key {key}: two values under {tag}"),
                ));
            }
        }
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
