//! A node's memory that is durable at once.

use bytes::Bytes;
use fermata_protocol::{Memory, Void, Write};
use std::collections::BTreeMap;

/// All records.
#[derive(Default)]
pub(crate) struct Ram(BTreeMap<Bytes, Bytes>);

impl Memory for Ram {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let range = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
        self.0
            .range(range)
            .take(limit)
            .map(|(k, v)| (k.clone(), Ok(v.clone())))
            .collect()
    }

    fn is_durable(&self, _: &[u8]) -> bool {
        true
    }
}

impl Ram {
    /// Takes a step's writes.
    pub(crate) fn append(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put { key, value } => drop(self.0.insert(key, value)),
                Write::Delete { key } => drop(self.0.remove(&key)),
                Write::DeleteRange { from, to } => self.0.retain(|k, _| *k < from || *k >= to),
            }
        }
    }
}
