//! The keyspace behind it all, through the gate and nothing else: single operations, and sections
//! of one's own.
//!
//! Everything lives in one Fermata keyspace of sections, [`KEYSPACE`], created when the first MUSIC
//! keyspace is. Whoever wants other bounds creates it before, with the lease and the longest
//! section that suit; it is then used as it is.

use super::answers::Failure;
use crate::gate::{Gate, unexpected};
use bytes::Bytes;
use fermata_protocol::base::{
    KeyId, Keyspace, KeyspaceId, Purpose, SessionId, StoragePolicy, TagRule,
};
use fermata_protocol::request::{
    Critical, EntryValue, Held, Leaving, Mode, Operation, QueueEntry, Request,
};
use fermata_protocol::{Code, Refusal, Reply};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;

/// The Fermata keyspace that holds schemas, rows and locks.
pub(super) const KEYSPACE: &str = "music";
/// How long the locks of a node that is silent are kept, and so how long another node waits at most
/// before it goes on with them: the original's `lock.lease.period`.
const LEASE: Duration = Duration::from_secs(6);
/// The longest section. The original has no bound; an active site may stay active for a year.
const SECTION_MAX: Duration = Duration::from_secs(366 * 86_400);
/// How long a section of one's own waits for its key: less than the time that clients wait.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// Keys in one page of a listing.
const PAGE: u32 = 1_000;
/// Rows read at a time for one listing.
const READS_MAX: usize = 32;
/// Bytes of one listing: there is no paging, so that a larger table cannot be shown in one answer.
const LISTED_MAX: usize = 64 << 20;

/// How to reach what is kept.
pub(super) struct Store {
    pub(super) gate: Arc<Gate>,
    keyspace: OnceLock<KeyspaceId>,
}

/// A duration in the protocol's microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Store {
    pub(super) fn new(gate: Arc<Gate>) -> Store {
        Store {
            gate,
            keyspace: OnceLock::new(),
        }
    }

    /// The keyspace's id; none where there is none yet, and nothing can be in it.
    ///
    /// # Errors
    /// Nobody who would know can be asked.
    async fn keyspace(&self) -> Result<Option<KeyspaceId>, Failure> {
        if let Some(id) = self.keyspace.get() {
            return Ok(Some(*id));
        }
        if let Some(id) = self.gate.names().keyspace(KEYSPACE) {
            return Ok(Some(*self.keyspace.get_or_init(|| id)));
        }
        match self.gate.ask_self(Operation::Catalogue).await? {
            Reply::Keyspaces(all) => {
                let found = all.iter().find(|keyspace| keyspace.name == KEYSPACE);
                Ok(found.map(|found| *self.keyspace.get_or_init(|| found.id)))
            }
            other => Err(unexpected(&other).into()),
        }
    }

    /// Makes sure that there is the keyspace.
    ///
    /// # Errors
    /// It can be neither found nor created.
    pub(super) async fn ensure(&self) -> Result<(), Failure> {
        if self.keyspace().await?.is_some() {
            return Ok(());
        }
        let new = Operation::CreateKeyspace(Keyspace {
            id: KeyspaceId(0),
            name: KEYSPACE.into(),
            purpose: Purpose::Sections,
            storage: StoragePolicy::Replicated,
            tag_rule: TagRule::Whole,
            lease: micros(LEASE),
            section_max: micros(SECTION_MAX),
        });
        match self.ask(self.session(), 1, new).await {
            Ok(_) => {}
            Err(refusal) if refusal.code == Code::KeyspaceExists => {}
            Err(refusal) => return Err(refusal.into()),
        }
        match self.keyspace().await? {
            Some(_) => Ok(()),
            None => Err(Failure::error(
                "the keyspace music was created, but is not known here yet: ask again",
            )),
        }
    }

    /// The keyspace's lease, which whoever created it chose; none where nobody can be asked now.
    pub(super) async fn lease(&self) -> Option<Duration> {
        match self.gate.ask_self(Operation::Catalogue).await {
            Ok(Reply::Keyspaces(all)) => {
                let known = all.into_iter().find(|known| known.name == KEYSPACE)?;
                Some(Duration::from_micros(known.lease))
            }
            _ => None,
        }
    }

    /// The id of a key.
    ///
    /// # Errors
    /// There is no keyspace yet, or nobody knows.
    pub(super) async fn key(&self, key: impl Into<Bytes>) -> Result<KeyId, Failure> {
        let keyspace = self.keyspace().await?;
        let keyspace = keyspace.ok_or_else(|| {
            Failure::error("no keyspace was ever created here: POST /MUSIC/rest/v2/keyspaces/NAME")
        })?;
        let key = key.into();
        Ok(KeyId { keyspace, key })
    }

    /// Whether there can be anything.
    pub(super) async fn exists(&self) -> Result<bool, Failure> {
        Ok(self.keyspace().await?.is_some())
    }

    /// A session for one call.
    pub(super) fn session(&self) -> SessionId {
        self.gate.draw_secret().session()
    }

    /// Asks as somebody.
    pub(super) async fn ask(
        &self,
        session: SessionId,
        number: u64,
        operation: Operation,
    ) -> Result<Reply, Refusal> {
        let request = Request {
            session,
            number,
            attempt: 0,
            answered_through: 0,
            site: self.gate.home,
            operation,
        };
        self.gate.ask(request).await
    }

    /// What the nearest replica has.
    pub(super) async fn get(&self, key: KeyId) -> Result<Option<Bytes>, Refusal> {
        self.value(Operation::Get { key }).await
    }

    /// The latest value, in a section of its own.
    pub(super) async fn read(&self, key: KeyId) -> Result<Option<Bytes>, Refusal> {
        self.value(Operation::Read { key }).await
    }

    async fn value(&self, operation: Operation) -> Result<Option<Bytes>, Refusal> {
        match self.ask(self.session(), 1, operation).await? {
            Reply::Value { value, .. } => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// An eventual put; [`Code::Locked`] where somebody holds the key or waits for it.
    pub(super) async fn put(&self, key: KeyId, value: Option<Bytes>) -> Result<(), Refusal> {
        match self
            .ask(self.session(), 1, Operation::Put { key, value })
            .await?
        {
            Reply::Done { .. } => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Who holds a key and who waits for it, head first.
    pub(super) async fn queue(&self, key: KeyId) -> Result<Vec<QueueEntry>, Refusal> {
        match self
            .ask(self.session(), 1, Operation::Queue { key })
            .await?
        {
            Reply::Queue { entries, .. } => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }

    /// Leaves a ref, in the background of whatever goes on.
    pub(super) fn abandon(self: &Arc<Self>, session: SessionId, held: Held) {
        let store = self.clone();
        tokio::spawn(async move {
            let keys = vec![(held, Leaving::Dirty)];
            let number = store.gate.next_number();
            // What is not left now ends by its lease.
            let _ = store.ask(session, number, Operation::Leave { keys }).await;
        });
    }

    /// Enters a section of one's own, after [`WAIT`] at most.
    ///
    /// # Errors
    /// [`Code::WaitOver`] where somebody else held the key all the time; nothing was done.
    pub(super) async fn enter(self: &Arc<Self>, key: KeyId) -> Result<Own, Refusal> {
        let session = self.session();
        let enter = Operation::Enter {
            keys: vec![key],
            mode: Mode::Exclusive,
            wait: micros(WAIT),
            follow: false,
            lease: None,
            may_return: false,
        };
        let entered = match self.ask(session, 1, enter).await? {
            Reply::Entered { mut keys, .. } if keys.len() == 1 => keys.remove(0),
            other => return Err(unexpected(&other)),
        };
        let held = entered.held;
        let value = match entered.value {
            EntryValue::Absent => None,
            EntryValue::Value(value) => Some(value),
            EntryValue::Omitted => {
                let operation = Operation::Critical {
                    held: held.clone(),
                    operation: Critical::Get,
                    leave: vec![],
                };
                match self.ask(session, 2, operation).await {
                    Ok(Reply::Value { value, .. }) => value,
                    Ok(other) => return Err(unexpected(&other)),
                    Err(refusal) => {
                        self.abandon(session, held);
                        return Err(refusal);
                    }
                }
            }
        };
        Ok(Own {
            store: self.clone(),
            session,
            held: Some(held),
            value,
        })
    }

    /// All keys with a prefix and their values, as the nearest replicas have them.
    ///
    /// # Errors
    /// More than [`LISTED_MAX`] bytes.
    pub(super) async fn list(
        self: &Arc<Self>,
        prefix: Bytes,
    ) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let (mut found, mut bytes, mut after) = (Vec::new(), 0, None);
        loop {
            let page = self.page(&prefix, after).await?;
            let full = page.len() == PAGE as usize;
            after = page.last().cloned();
            for part in page.chunks(READS_MAX) {
                for (key, value) in self.read_all(part).await? {
                    bytes += key.len() + value.len();
                    found.push((key, value));
                }
                if bytes > LISTED_MAX {
                    return Err(Failure::error(
                        "the table has more than 64 MiB and does not fit one answer: ask for rows \
                         by their key",
                    ));
                }
            }
            if !full {
                found.sort();
                return Ok(found);
            }
        }
    }

    /// One page of a listing of keys.
    pub(super) async fn page(
        &self,
        prefix: &Bytes,
        after: Option<Bytes>,
    ) -> Result<Vec<Bytes>, Failure> {
        let KeyId { keyspace, key } = self.key(prefix.clone()).await?;
        let listing = Operation::Keys {
            keyspace,
            prefix: key,
            after,
            limit: PAGE,
        };
        match self.ask(self.session(), 1, listing).await? {
            Reply::Keys(keys) => Ok(keys),
            other => Err(unexpected(&other).into()),
        }
    }

    /// The values of some keys, at the same time.
    async fn read_all(self: &Arc<Self>, keys: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let mut reads = JoinSet::new();
        for key in keys {
            let (store, key) = (self.clone(), key.clone());
            reads.spawn(async move {
                let id = store.key(key.clone()).await?;
                let value = store.get(id).await?;
                Ok::<_, Failure>(value.map(|value| (key, value)))
            });
        }
        let mut found = Vec::new();
        while let Some(read) = reads.join_next().await {
            let read = read.map_err(|_| Failure::error("a row could not be read: ask again"))?;
            found.extend(read?);
        }
        Ok(found)
    }
}

/// A section of one's own: one key, entered, to be ended by [`Own::commit`] or [`Own::leave`];
/// dropped, it is abandoned.
pub(super) struct Own {
    store: Arc<Store>,
    session: SessionId,
    held: Option<Held>,
    /// The key's latest value.
    pub(super) value: Option<Bytes>,
}

impl Own {
    /// Puts (or, with none, deletes) and leaves.
    ///
    /// # Errors
    /// The refusal says whether the put may have taken effect.
    pub(super) async fn commit(mut self, value: Option<Bytes>) -> Result<(), Refusal> {
        let Some(held) = self.held.clone() else {
            return Ok(());
        };
        let put = Operation::Critical {
            held: held.clone(),
            operation: Critical::Put { number: 1, value },
            leave: vec![(held, Leaving::Dirty)],
        };
        match self.store.ask(self.session, 3, put).await? {
            Reply::Left | Reply::Done { .. } => {
                self.held = None;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Leaves without a write.
    pub(super) async fn leave(mut self) {
        if let Some(held) = self.held.take() {
            let keys = vec![(held, Leaving::Clean(None))];
            let leave = Operation::Leave { keys };
            // What is not left now ends by its lease.
            let _ = self.store.ask(self.session, 4, leave).await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.store.abandon(self.session, held);
        }
    }
}
