//! What one append writes.

use bytes::Bytes;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// Longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// Most bytes of keys and values in one batch.
pub const MAX_BATCH_BYTES: usize = 1 << 30;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the value of a key. A void key becomes readable again.
    Put {
        /// At most [`MAX_KEY_BYTES`].
        key: Bytes,
        /// At most [`MAX_VALUE_BYTES`]; may be empty.
        value: Bytes,
    },
    /// Removes a key, void or not; nothing happens if it is absent.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// Removes all keys `k` with `from <= k < to`, void or not. An empty `to` means no upper bound.
    DeleteRange {
        /// The first key removed.
        from: Bytes,
        /// The first key not removed; empty: none.
        to: Bytes,
    },
}

/// Changes that become visible and durable together or not at all, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch(pub Vec<Op>);

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds [`Op::Put`].
    pub fn put(mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.0.push(Op::Put {
            key: key.into(),
            value: value.into(),
        });
        self
    }

    /// Adds [`Op::Delete`].
    pub fn delete(mut self, key: impl Into<Bytes>) -> Self {
        self.0.push(Op::Delete { key: key.into() });
        self
    }

    /// Adds [`Op::DeleteRange`].
    pub fn delete_range(mut self, from: impl Into<Bytes>, to: impl Into<Bytes>) -> Self {
        self.0.push(Op::DeleteRange {
            from: from.into(),
            to: to.into(),
        });
        self
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
