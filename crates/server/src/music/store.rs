//! The keyspace behind it all: single operations through the porter, and hosted sessions, those of
//! locks and those of calls that are sections of their own.
//!
//! Everything lives in one Fermata keyspace of sections, [`KEYSPACE`], created when the first MUSIC
//! keyspace is. For other bounds create it before, with the lease and the longest section that
//! suit; it is then used as it is.

use super::answers::Failure;
use super::expiry::Due;
use super::schema::TableName;
use crate::access::Caller;
use crate::hosted::own::Own;
use crate::hosted::{Hosted, Kept, Life, Place};
use crate::porter::{Porter, unexpected};
use bytes::Bytes;
use fermata_access::Right;
use fermata_protocol::base::{
    KeyId, Keyspace, KeyspaceId, Label, Micros, Purpose, SessionId, StoragePolicy, TagRule,
};
use fermata_protocol::client::Options;
use fermata_protocol::request::{Operation, QueueEntry, Request};
use fermata_protocol::{Code, Refusal, Reply};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// The Fermata keyspace that holds schemas, rows and locks.
pub(crate) const KEYSPACE: &str = "music";
/// How long the locks of a node that is silent are kept, and so how long another node waits at most
/// before it goes on with them: the original's `lock.lease.period`.
const LEASE: Duration = Duration::from_secs(6);
/// The longest section. The original has no bound; an active site may stay active for a year.
const SECTION_MAX: Duration = Duration::from_secs(366 * 86_400);
/// How long a section of one's own waits for its key: less than the time that clients wait.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// How long one waits that is to be in nobody's way.
const HARDLY: Duration = Duration::from_millis(200);
/// Keys in one page of a listing.
const PAGE: u32 = 1_000;
/// Rows read at a time for one listing.
const READS_MAX: usize = 32;
/// Bytes of one listing: there is no paging, so that a larger table cannot be shown in one answer.
const LISTED_MAX: usize = 64 << 20;

/// How to reach what is kept.
pub(super) struct MusicStore {
    pub(super) porter: Arc<Porter>,
    pub(super) hosted: Arc<Hosted>,
    /// Units in which something expires.
    pub(super) due: Due,
    /// The keyspace's id and lease, which whoever created it chose.
    keyspace: Mutex<Option<(KeyspaceId, Micros)>>,
}

/// A duration in the protocol's microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a session of this interface is kept with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// How long it lives without a word.
    pub(super) idle: Duration,
    /// What people see in the queue.
    pub(super) label: Label,
}

impl Wish {
    /// Without a label.
    pub(super) fn of(idle: Duration) -> Wish {
        let label = Label::NONE;
        Wish { idle, label }
    }
}

impl MusicStore {
    pub(super) fn new(hosted: Arc<Hosted>) -> MusicStore {
        MusicStore {
            porter: hosted.porter.clone(),
            hosted,
            due: Due::default(),
            keyspace: Mutex::default(),
        }
    }

    /// The keyspace's id and lease; none where there is none yet, and nothing can be in it.
    ///
    /// # Errors
    /// Nobody who would know can be asked.
    async fn keyspace(&self) -> Result<Option<(KeyspaceId, Micros)>, Refusal> {
        // It may have been deleted, and made again, since it was looked up.
        let named = self.porter.names().keyspace(KEYSPACE);
        let known = *self.keyspace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.filter(|known| named == Some(known.0)) {
            return Ok(Some(known));
        }
        // What this node knows, and what the catalogue's keeper does.
        for operation in [Operation::Keyspaces, Operation::Catalogue] {
            match self.porter.ask_self(operation).await? {
                Reply::Keyspaces(all) => {
                    if let Some(found) = all.iter().find(|keyspace| keyspace.name == KEYSPACE) {
                        let found = Some((found.id, found.lease));
                        *self.keyspace.lock().unwrap_or_else(PoisonError::into_inner) = found;
                        return Ok(found);
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
        Ok(None)
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

    /// The id of a key.
    ///
    /// # Errors
    /// There is no keyspace yet, or nobody knows.
    pub(super) async fn key(&self, key: impl Into<Bytes>) -> Result<KeyId, Failure> {
        let keyspace = self.keyspace().await?;
        let (keyspace, _) = keyspace.ok_or_else(|| {
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
        self.porter.draw_secret().session()
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
            site: self.porter.home,
            operation,
        };
        self.porter.ask(&Caller::NODE, request).await
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

    /// How long the locks of a silent node are kept.
    pub(super) fn lease(&self) -> Duration {
        let known = *self.keyspace.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or(LEASE, |(_, lease)| Duration::from_micros(lease))
    }

    /// Whether a caller has these rights over a row, or, without its value, over a table. To a
    /// policy each is a key `KEYSPACE.TABLE.VALUE` of the keyspace `music`.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn may(
        &self,
        caller: &Caller,
        rights: &[Right],
        table: &TableName,
        value: Option<&str>,
    ) -> Result<(), Failure> {
        let (keyspace, table) = (&table.keyspace, &table.table);
        let name = format!("{keyspace}.{table}.{}", value.unwrap_or_default());
        let name = (name.as_bytes(), value.is_none());
        Ok(self
            .porter
            .access
            .judge_named(caller, rights, KEYSPACE, name)?)
    }

    /// Whether a caller has a right over any row of a table, and so may know whether there is one.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn may_know(&self, caller: &Caller, table: &TableName) -> Result<(), Failure> {
        let prefix = format!("{}.{}.", table.keyspace, table.table);
        let access = &self.porter.access;
        Ok(access.judge_known(caller, KEYSPACE, prefix.as_bytes())?)
    }

    /// Whether a caller may make and drop a table, or, without one, a keyspace of MUSIC's.
    ///
    /// # Errors
    /// It may not.
    pub(super) fn may_define(
        &self,
        caller: &Caller,
        keyspace: &str,
        table: Option<&str>,
    ) -> Result<(), Failure> {
        let name = match table {
            Some(table) => format!("{keyspace}.{table}."),
            None => format!("{keyspace}."),
        };
        let (rights, name) = (&[Right::Write], (name.as_bytes(), true));
        Ok(self
            .porter
            .access
            .judge_named(caller, rights, KEYSPACE, name)?)
    }

    /// A session for one section of a [`MusicStore::key`], for a caller that was judged, in a place
    /// of its own if it may outlast a call.
    pub(super) fn host(
        &self,
        caller: &Caller,
        id: SessionId,
        Wish { idle, label }: Wish,
        place: Option<Place>,
    ) -> Kept {
        let lease = micros(self.lease());
        let usual = Options::default();
        let options = Options {
            // One that resumes waits for a lease.
            request: usual.request.saturating_add(lease),
            assumed_lease: lease,
            label,
            ..usual
        };
        let (idle, one) = (micros(idle), true);
        let life = Life { idle, one };
        self.hosted
            .keep(&caller.judged(), (id, options), life, place)
    }

    /// Enters a section of one's own, after [`WAIT`] at most.
    ///
    /// # Errors
    /// [`Code::WaitOver`] where somebody else held the key all the time; nothing was done.
    pub(super) async fn enter(&self, key: KeyId) -> Result<Own, Refusal> {
        let kept = self.host(&Caller::NODE, self.session(), Wish::of(WAIT), None);
        Own::enter(kept, key, micros(WAIT)).await
    }

    /// The same, where nobody holds the key or waits for it: nobody is to find this one in line.
    ///
    /// # Errors
    /// [`Code::WaitOver`] where somebody does; nothing was done.
    pub(super) async fn enter_free(&self, key: KeyId) -> Result<Own, Refusal> {
        if !self.queue(key.clone()).await?.is_empty() {
            let detail = "somebody holds the key, or waits for it";
            return Err(Refusal::definite(Code::WaitOver, detail));
        }
        let kept = self.host(&Caller::NODE, self.session(), Wish::of(WAIT), None);
        Own::enter(kept, key, micros(HARDLY)).await
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
            let (page, more) = self.page(&prefix, after).await?;
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
            if !more {
                found.sort();
                return Ok(found);
            }
        }
    }

    /// One page of a listing of keys, and whether there are more, or may be.
    pub(super) async fn page(
        &self,
        prefix: &Bytes,
        after: Option<Bytes>,
    ) -> Result<(Vec<Bytes>, bool), Failure> {
        let KeyId { keyspace, key } = self.key(prefix.clone()).await?;
        let mut listing = Operation::Keys {
            keyspace,
            prefix: key,
            after,
            limit: PAGE,
        };
        let page = self.porter.page(&mut listing);
        match self.ask(self.session(), 1, listing).await? {
            Reply::Keys(mut keys) => {
                let more = page.is_some_and(|page| page.cut(&mut keys));
                Ok((keys, more))
            }
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
