//! A disk that loses what was not flushed, and whose records may be damaged.

use bytes::Bytes;
use fermata_protocol::{Memory, Void, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Clone, Default)]
pub(crate) struct Disk {
    /// Shared with every copy: one is taken for each step of a member, and few steps write.
    pub(crate) live: Rc<BTreeMap<Bytes, Bytes>>,
    pub(crate) durable: Rc<BTreeMap<Bytes, Bytes>>,
    pub(crate) damaged: BTreeSet<Bytes>,
}

impl Disk {
    pub(crate) fn append(&mut self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let live = Rc::make_mut(&mut self.live);
        for write in writes {
            match write {
                Write::Put { key, value } => {
                    self.damaged.remove(&key);
                    live.insert(key, value);
                }
                Write::Delete { key } => {
                    self.damaged.remove(&key);
                    live.remove(&key);
                }
                Write::DeleteRange { from, to } => {
                    live.retain(|key, _| *key < from || *key >= to);
                }
            }
        }
    }

    /// Damages every record whose key satisfies `which`; how many there were.
    pub(crate) fn damage(&mut self, which: impl Fn(&[u8]) -> bool) -> usize {
        let hit: Vec<Bytes> = self.live.keys().filter(|k| which(k)).cloned().collect();
        self.damaged.extend(hit.iter().cloned());
        hit.len()
    }

    /// Changes the last byte of every record whose key satisfies `which`; nothing tells.
    pub(crate) fn alter(&mut self, which: impl Fn(&[u8]) -> bool) {
        for (key, value) in Rc::make_mut(&mut self.live) {
            if which(key) {
                let mut bytes = value.to_vec();
                *bytes.last_mut().expect("a record has bytes") ^= 1;
                *value = bytes.into();
            }
        }
    }

    pub(crate) fn is_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.live.iter()
    }
}

impl Memory for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        if self.damaged.contains(key) {
            return Err(Void);
        }
        Ok(self.live.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let range = self
            .live
            .range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
        let value = |(k, v): (&Bytes, &Bytes)| {
            let value = if self.damaged.contains(k) {
                Err(Void)
            } else {
                Ok(v.clone())
            };
            (k.clone(), value)
        };
        range.map(value).take(limit).collect()
    }

    fn is_durable(&self, key: &[u8]) -> bool {
        self.live.get(key) == self.durable.get(key)
    }
}
