//! The store as the protocol reads and writes it.

use bytes::Bytes;
use fermata_protocol::io::{Memory, Void, Write};
use fermata_storage::{Batch, Op, Store};

/// The store as the protocol reads it.
#[derive(Clone, Copy)]
pub struct Recall<'a>(pub &'a Store);

impl Memory for Recall<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        self.0.get(key).map_err(|_| Void)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let found = self.0.scan(from, to).take(limit);
        found
            .map(|(key, value)| (key, value.map_err(|_| Void)))
            .collect()
    }

    fn is_durable(&self, key: &[u8]) -> bool {
        self.0.is_durable(key)
    }
}

/// The writes of one step.
pub fn batch(writes: Vec<Write>) -> Batch {
    let op = |write| match write {
        Write::Put { key, value } => Op::Put { key, value },
        Write::Delete { key } => Op::Delete { key },
        Write::DeleteRange { from, to } => Op::DeleteRange { from, to },
    };
    Batch(writes.into_iter().map(op).collect())
}
