//! Which keys a store has.

use super::SegmentView;
use super::cell::Head;
use super::message::{Answer, StoreId};
use super::replica::Replica;
use super::status::beyond;
use crate::base::KeyspaceId;
use crate::io::Memory;
use crate::wire::decode;
use crate::wire::record::{self, CellRecord};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Heads read at once.
const CHUNK: usize = 1_024;

/// A key of which a store has something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The key.
    pub key: Bytes,
    /// It has a value, or a head that is damaged and may have one. Else it has been deleted, and
    /// whatever an earlier store has of it is over.
    pub live: bool,
}

/// Which keys are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// Of this keyspace.
    pub keyspace: KeyspaceId,
    /// Only keys that start so.
    pub prefix: Bytes,
    /// Only keys above this.
    pub after: Option<Bytes>,
    /// At most so many.
    pub limit: u32,
    /// Those that have been deleted, too, as far as a trace of that is left.
    pub deleted: bool,
}

impl KeyRange {
    /// Keeps the lowest of these, in order.
    pub(crate) fn lowest(&self, found: &mut Vec<Listed>) {
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found.truncate(self.limit as usize);
    }
}

/// What a replica can say of the keys of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// It is a member, or was one until the store was sealed.
    Cells,
    /// It has deleted them all: they have moved.
    Nothing,
    /// It has never been a member, or does not know any more what has become of the store.
    Unknown,
}

impl Replica {
    /// What there is here of a store's keys. `view` is of the store's segment and epoch.
    pub(crate) fn keeps(&self, store: StoreId, view: &dyn SegmentView) -> Keeps {
        match self.standing(store, view) {
            None | Some(Answer::Sealed { .. }) => Keeps::Cells,
            Some(Answer::Moved { .. }) => Keeps::Nothing,
            Some(_) => Keeps::Unknown,
        }
    }
}

/// The keys of a range in one store, in order, the lowest ones if there are more. Reads every head
/// of the store: bounded by the number of its keys.
pub fn keys(memory: &dyn Memory, store: StoreId, range: &KeyRange) -> Vec<Listed> {
    let (mut from, to) = record::cells_of(store, CellRecord::Head);
    let after = range.after.as_deref();
    let mut found = Vec::new();
    loop {
        let chunk = memory.scan(&from, &to, CHUNK);
        for (record, head) in &chunk {
            let Some(id) = record::key_of(record) else {
                continue;
            };
            let wanted = id.keyspace == range.keyspace
                && id.key.starts_with(&range.prefix)
                && after.is_none_or(|after| id.key[..] > *after);
            if !wanted {
                continue;
            }
            let head = head.as_ref().ok();
            let head = head.and_then(|bytes| decode::<Head>(bytes).ok());
            let live = head.as_ref().is_none_or(Head::is_live);
            let deleted = range.deleted && head.is_some_and(|head| head.is_deleted());
            if live || deleted {
                let key = id.key;
                found.push(Listed { key, live });
            }
        }
        if found.len() > range.limit as usize + CHUNK {
            range.lowest(&mut found);
        }
        let Some((last, _)) = chunk.last().filter(|_| chunk.len() == CHUNK) else {
            break;
        };
        from = beyond(last);
    }
    range.lowest(&mut found);
    found
}
