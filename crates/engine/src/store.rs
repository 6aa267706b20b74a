//! What an engine asks of the stores below it: two traits, and what can go wrong.
//!
//! **Idea.** Whatever keeps the locks has to offer one thing only: an opaque state per key with a
//! version, and a compare-and-set on it. The store of the data has to offer reads and writes at a
//! quorum, where the write with the highest scalar wins at every replica, whenever it comes. Both
//! are less than what Cassandra and `ZooKeeper` have, and all that critical sections need.
//!
//! **Errors.** An operation fails for certain ([`StoreError::Refused`]: nothing was done, and
//! nothing will be), or its outcome is unknown ([`StoreError::Unknown`]). There is no third way: a
//! timeout of a compare-and-set may have applied it, and may apply it yet.

use crate::cells::{Critical, Eventual};
use crate::scalar::Scalar;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// Names one state of a key's lock row among those that anybody may still know: two are equal or
/// not, and say nothing of what came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub i64);

/// A key's lock row: an opaque state and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The version.
    pub version: Version,
    /// [`crate::state::KeyState`], encoded.
    pub state: Bytes,
}

/// What came of a compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The row has the new state, under this version.
    Applied(Version),
    /// The row had another version; nothing was changed. The present row, where the store tells it;
    /// a row that it does not tell has to be read.
    Refused(Option<Row>),
}

/// Why an operation of a store failed: one sentence, with what is known of its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// It was not done and never will be.
    Refused(String),
    /// It may have been done, or may still be.
    Unknown(String),
}

impl StoreError {
    /// The sentence.
    pub fn sentence(&self) -> &str {
        match self {
            StoreError::Refused(why) | StoreError::Unknown(why) => why,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for StoreError {}

/// Where lock rows are. All rows are linearizable each for itself; there are no others' updates.
pub trait LockStore: Send + Sync + 'static {
    /// A state that the row has or had: what the nearest replica knows. None: no row, as far as it
    /// knows. Never decides anything.
    ///
    /// # Errors
    /// [`StoreError`].
    fn peek(&self, key: &KeyId) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// The row as of some moment between the call and the answer, with every update in it that was
    /// acknowledged before the call; an update of this process whose outcome was unknown is in it
    /// now, or never will be applied. (What another process does not know of its own update is
    /// judged by the versions, like every update.)
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&self, key: &KeyId) -> impl Future<Output = Result<Option<Row>, StoreError>> + Send;

    /// Replaces the row if it has the version `expected`; none: if there is no row.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] unless it is certain that it was not and never will be applied.
    fn swap(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> impl Future<Output = Result<Swapped, StoreError>> + Send;

    /// Ends when the row may have another version than `seen`, at the latest after `patience`. The
    /// caller peeks, or reads, afterwards.
    fn changed(
        &self,
        key: &KeyId,
        seen: Option<Version>,
        patience: Duration,
    ) -> impl Future<Output = ()> + Send;

    /// Whether a quorum of it answers now; if not, one sentence.
    fn health(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// One line for people: the system, its version, where it is, how it is set.
    fn describe(&self) -> String;
}

/// The two cells of one key, as a read found them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// The critical cell; none: never written.
    pub critical: Option<(Scalar, Critical)>,
    /// The eventual cell; none: never written.
    pub eventual: Option<Eventual>,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys that may have a value, with their cells, in the order of the keys.
    pub keys: Vec<(Bytes, Cells)>,
}

/// Where values are. A write stays below every write of its cell with a higher scalar or tag, at
/// every replica, in whatever order they come.
pub trait DataStore: Send + Sync + 'static {
    /// Reads both cells at a quorum. Later reads return what it returns, or something newer: a
    /// write that was found at one replica is at a quorum when this returns.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&self, key: &KeyId) -> impl Future<Output = Result<Cells, StoreError>> + Send;

    /// Reads both cells at the nearest replica.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read_near(&self, key: &KeyId) -> impl Future<Output = Result<Cells, StoreError>> + Send;

    /// Writes the critical cell at a quorum. The same call twice is the same as once.
    ///
    /// # Errors
    /// [`StoreError`].
    fn write(
        &self,
        key: &KeyId,
        scalar: Scalar,
        value: &Critical,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes the eventual cell at the nearest replica.
    ///
    /// # Errors
    /// [`StoreError`].
    fn offer(
        &self,
        key: &KeyId,
        value: &Eventual,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Keys of a keyspace that start with `prefix` and are above `after`, the `limit` lowest, as
    /// replicas near by know them.
    ///
    /// # Errors
    /// [`StoreError`].
    fn keys(
        &self,
        keyspace: KeyspaceId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Whether a quorum of it answers now; if not, one sentence.
    fn health(&self) -> impl Future<Output = Result<(), String>> + Send;

    /// One line for people: the system, its version, where it is, how it is set.
    fn describe(&self) -> String;
}
