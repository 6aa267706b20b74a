//! Which keys were written since the last flush that is done.
//!
//! A reader that wants to tell what it has read needs only the flush of *that*, not of everything
//! that was appended meanwhile. Keys are kept until the flush with their last write is done; a
//! deleted range counts as a write of every key.

use crate::Lsn;
use crate::batch::{Batch, Op};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

/// See the module text.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// The last batch that wrote a key.
    keys: HashMap<Bytes, Lsn>,
    /// The writes of `keys`, and older ones of the same keys, in order.
    order: VecDeque<(Lsn, Bytes)>,
    /// The last batch that deleted a range.
    range: Lsn,
}

impl Unflushed {
    /// A batch is appended.
    pub(super) fn wrote(&mut self, lsn: Lsn, batch: &Batch) {
        for op in &batch.0 {
            match op {
                Op::Put { key, .. } | Op::Delete { key } => {
                    self.keys.insert(key.clone(), lsn);
                    self.order.push_back((lsn, key.clone()));
                }
                Op::DeleteRange { .. } => self.range = lsn,
            }
        }
    }

    /// Everything through this batch is durable.
    pub(super) fn flushed(&mut self, durable: Lsn) {
        while self.order.front().is_some_and(|(lsn, _)| *lsn <= durable) {
            if let Some((lsn, key)) = self.order.pop_front()
                && self.keys.get(&key) == Some(&lsn)
            {
                self.keys.remove(&key);
            }
        }
    }

    /// Whether a key's last write is durable, where everything through this batch is.
    pub(super) fn is_durable(&self, key: &[u8], durable: Lsn) -> bool {
        self.range <= durable && !self.keys.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_durable_with_its_last_write() {
        let mut unflushed = Unflushed::default();
        unflushed.wrote(1, &Batch::new().put("a", "1").put("b", "1"));
        unflushed.wrote(2, &Batch::new().delete("a"));
        let durable = |of: &Unflushed, through| {
            let keys = ["a", "b", "c"];
            keys.map(|key| of.is_durable(key.as_bytes(), through))
        };
        assert_eq!(durable(&unflushed, 0), [false, false, true]);
        unflushed.flushed(1);
        assert_eq!(durable(&unflushed, 1), [false, true, true]);
        unflushed.wrote(3, &Batch::new().delete_range("x", "y"));
        unflushed.flushed(2);
        assert_eq!(durable(&unflushed, 2), [false, false, false]);
        unflushed.flushed(3);
        assert_eq!(durable(&unflushed, 3), [true, true, true]);
        assert!(unflushed.keys.is_empty() && unflushed.order.is_empty());
    }
}
