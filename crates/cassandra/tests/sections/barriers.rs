//! Stores whose calls can be made to wait before they are sent: an engine that stands still between
//! two steps, as a process does that is paused.

use bytes::Bytes;
use fermata_engine::cells::{Critical, Eventual};
use fermata_engine::scalar::Scalar;
use fermata_engine::{Cells, DataStore, LockStore, Page, Row, StoreError, Swapped, Version};
use fermata_protocol::base::{KeyId, KeyspaceId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Calls that may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// An update of a lock row.
    Swap,
    /// A write of a critical cell.
    Write,
}

/// The barriers of one site.
#[derive(Default)]
pub(crate) struct Barriers(Mutex<Vec<Arc<Rule>>>);

struct Rule {
    call: Call,
    caught: watch::Sender<bool>,
    over: watch::Sender<bool>,
}

/// The next call of its kind waits until this ends.
pub(crate) struct Hold(Arc<Rule>);

impl Hold {
    /// When the call has come.
    pub(crate) async fn caught(&self) {
        let mut caught = self.0.caught.subscribe();
        let caught = caught.wait_for(|caught| *caught);
        let caught = tokio::time::timeout(Duration::from_secs(30), caught).await;
        assert!(caught.is_ok(), "no {:?} came", self.0.call);
    }

    /// Nothing waits any more.
    pub(crate) fn end(&self) {
        self.0.over.send_replace(true);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.end();
    }
}

impl Barriers {
    /// Holds the next call of this kind.
    pub(crate) fn hold(&self, call: Call) -> Hold {
        let rule = Arc::new(Rule {
            call,
            caught: watch::Sender::new(false),
            over: watch::Sender::new(false),
        });
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rules.push(Arc::clone(&rule));
        Hold(rule)
    }

    async fn pass(&self, call: Call) {
        let rule = {
            let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let place = rules.iter().position(|rule| rule.call == call);
            place.map(|place| rules.remove(place))
        };
        if let Some(rule) = rule {
            rule.caught.send_replace(true);
            let mut over = rule.over.subscribe();
            // The sender lives as long as the rule.
            let _ = over.wait_for(|over| *over).await;
        }
    }
}

/// A store behind barriers.
pub(crate) struct Barred<S> {
    pub(crate) store: Arc<S>,
    pub(crate) barriers: Arc<Barriers>,
}

impl<S: LockStore> LockStore for Barred<S> {
    async fn peek(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.store.peek(key).await
    }

    async fn read(&self, key: &KeyId) -> Result<Option<Row>, StoreError> {
        self.store.read(key).await
    }

    async fn swap(
        &self,
        key: &KeyId,
        expected: Option<Version>,
        state: Bytes,
    ) -> Result<Swapped, StoreError> {
        self.barriers.pass(Call::Swap).await;
        self.store.swap(key, expected, state).await
    }

    async fn changed(&self, key: &KeyId, seen: Option<Version>, patience: Duration) {
        self.store.changed(key, seen, patience).await;
    }

    async fn health(&self) -> Result<(), String> {
        self.store.health().await
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

impl<S: DataStore> DataStore for Barred<S> {
    async fn read(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.store.read(key).await
    }

    async fn read_near(&self, key: &KeyId) -> Result<Cells, StoreError> {
        self.store.read_near(key).await
    }

    async fn write(&self, key: &KeyId, scalar: Scalar, value: &Critical) -> Result<(), StoreError> {
        self.barriers.pass(Call::Write).await;
        self.store.write(key, scalar, value).await
    }

    async fn offer(&self, key: &KeyId, value: &Eventual) -> Result<(), StoreError> {
        self.store.offer(key, value).await
    }

    async fn keys(
        &self,
        keyspace: KeyspaceId,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.keys(keyspace, prefix, after, limit).await
    }

    async fn health(&self) -> Result<(), String> {
        self.store.health().await
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}
