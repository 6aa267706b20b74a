//! One node of an engine: it takes requests, and has a task for each.

use crate::catalogue::Catalogue;
use crate::firsts::{Firsts, Waits};
use crate::keyed::Keyed;
use crate::service::{Answers, Boxed, Service};
use crate::settings::Settings;
use crate::store::{DataStore, LockStore, StoreError};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Keyspace, Purpose, SessionId};
use fermata_protocol::request::{Code, Critical, Operation, Refusal};
use fermata_protocol::{Reply, Request};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Rows known here before those that nobody uses are looked for.
const ROWS: usize = 1_024;
/// How long a row that nobody uses is remembered: a client that was told that its section is over
/// must not be let in again by a replica that has not heard of it yet.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Rows that are remembered so at most; beyond that the oldest are forgotten earlier.
const RECENT: usize = 16_384;

/// One node of an engine. Nodes do not know each other: all that they agree on is in the stores.
#[derive(Debug)]
pub struct Engine<L: LockStore, D> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) locks: Arc<L>,
    pub(crate) data: Arc<D>,
    pub(crate) catalogue: Catalogue,
    rows: Mutex<Rows<L>>,
    /// Request numbers of the node's own session, for sections of single reads and writes.
    numbers: AtomicU64,
    /// The last stamp given.
    stamp: AtomicU64,
    /// Refs for which this node may adopt.
    pub(crate) firsts: Firsts,
    pub(crate) waits: Waits,
}

struct Rows<L> {
    known: HashMap<KeyId, Weak<Keyed<L>>>,
    /// When as many are known, those that nobody uses are forgotten.
    most: usize,
    /// Those used of late, the oldest first.
    recent: VecDeque<(Instant, Arc<Keyed<L>>)>,
}

impl<L> std::fmt::Debug for Rows<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows", self.known.len())
    }
}

/// The refusal of a change of keyspaces that are there.
const KEYSPACES_STAY: &str =
    "on this engine keyspaces can neither be changed nor deleted; create another one";
/// The refusal of what only nodes have that keep values and locks themselves.
const NATIVE_ALONE: &str = "on this engine there is no read lease, and no node has a seat: values \
                            and locks are in other stores; nothing was changed";

/// Why it has no ledgers.
pub(crate) const NO_LEDGERS: &str = "ledgers are the native engine's: this one keeps keys in other \
                                     stores; nothing was changed";

impl<L: LockStore, D: DataStore> Engine<L, D> {
    /// A node on these stores.
    pub fn new(settings: Settings, locks: Arc<L>, data: Arc<D>) -> Arc<Engine<L, D>> {
        let rows = Rows {
            known: HashMap::new(),
            most: ROWS,
            recent: VecDeque::new(),
        };
        Arc::new(Engine {
            settings: Arc::new(settings),
            locks,
            data,
            catalogue: Catalogue::default(),
            rows: Mutex::new(rows),
            numbers: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            firsts: Firsts::default(),
            waits: Waits::default(),
        })
    }

    /// The room of a key's row.
    pub(crate) fn row(&self, key: &KeyId) -> Arc<Keyed<L>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while rows.recent.len() > RECENT
            || rows
                .recent
                .front()
                .is_some_and(|(since, _)| *since + REMEMBERED < now)
        {
            rows.recent.pop_front();
        }
        if let Some(known) = rows.known.get(key).and_then(Weak::upgrade) {
            return known;
        }
        if rows.known.len() >= rows.most {
            rows.known.retain(|_, row| row.strong_count() > 0);
            rows.most = (rows.known.len() * 2).max(ROWS);
        }
        let seed = self.settings.seed as u64 ^ rows.known.len() as u64;
        let row = Keyed::new(key.clone(), self.locks.clone(), self.settings.clone(), seed);
        let row = Arc::new(row);
        rows.known.insert(key.clone(), Arc::downgrade(&row));
        rows.recent.push_back((now, row.clone()));
        row
    }

    /// A stamp above all that this node gave before: microseconds since 1970, or more.
    pub(crate) fn next_stamp(&self) -> u64 {
        self.stamp_above(0)
    }

    /// A stamp above all that this node gave before, and above `known`.
    pub(crate) fn stamp_above(&self, known: u64) -> u64 {
        let least = self.settings.wall_micros().max(known.saturating_add(1));
        let next = |last: u64| Some(least.max(last + 1));
        let order = Ordering::Relaxed;
        let last = self.stamp.fetch_update(order, order, next);
        least.max(last.unwrap_or_default() + 1)
    }

    /// A request in the node's own name, as part of `request`.
    pub(crate) fn own_request(&self, request: &Request, operation: Operation) -> Request {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        Request {
            session: SessionId::drawn(self.settings.seed),
            number,
            attempt: 0,
            answered_through: 0,
            site: request.site,
            operation,
        }
    }

    /// The keyspace of a key that is fit for `purpose`.
    pub(crate) async fn checked(
        &self,
        key: &KeyId,
        purpose: Option<Purpose>,
    ) -> Result<Keyspace, Refusal> {
        let most = self.settings.limits.key;
        if key.key.is_empty() || key.key.len() > most {
            let text = format!(
                "a key has 1 to {most} bytes (limits.key_bytes), this one {}",
                key.key.len()
            );
            return Err(Refusal::definite(Code::TooLarge, text));
        }
        let keyspace = self.keyspace(key.keyspace).await?;
        if purpose.is_some_and(|p| p != keyspace.purpose) {
            let text = match keyspace.purpose {
                Purpose::Sections => "keys of a section keyspace are not for this operation",
                Purpose::Registers => {
                    "keys of a register keyspace have no locks: use read and write"
                }
                Purpose::Ledger { .. } => NO_LEDGERS,
            };
            return Err(Refusal::definite(Code::WrongPurpose, text));
        }
        Ok(keyspace)
    }

    /// Refuses a value over the limit.
    pub(crate) fn value_fits(&self, value: Option<&Bytes>) -> Result<(), Refusal> {
        let most = self.settings.limits.value;
        match value {
            Some(value) if value.len() > most => {
                let text = format!(
                    "a value has at most {most} bytes (limits.value_bytes, or less where the \
                     engine's stores take less), this one {}",
                    value.len()
                );
                Err(Refusal::definite(Code::TooLarge, text))
            }
            _ => Ok(()),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request,
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        match request.operation.clone() {
            Operation::Enter {
                keys,
                mode,
                wait,
                follow,
                lease,
                may_return,
                label,
            } => {
                let wish = crate::enter::Wish {
                    keys,
                    mode,
                    wait,
                    follow,
                    lease,
                    may_return,
                    label,
                };
                self.enter(&request, wish, answers).await
            }
            Operation::Resume { held, of } => self.resume(&request, (of, &held), answers).await,
            Operation::Critical {
                held,
                operation: Critical::Get,
                ..
            } => self.critical_get(request.session, &held).await,
            Operation::Critical {
                held,
                operation: Critical::Put { number, value },
                leave,
            } => {
                self.critical_put(&request, &held, number, value, leave)
                    .await
            }
            Operation::Leave { keys } => self.leave(&request, &keys).await,
            // Who resumes waits for the lease here: that it was given back is not kept.
            Operation::Renew { held } | Operation::Relinquish { held } => {
                Ok(self.renew(request.session, &held).await)
            }
            Operation::Release { key, lock_ref } => self.release(&key, lock_ref, answers).await,
            Operation::Get { key } => self.get(&key).await,
            Operation::Put { key, value } => self.put(&key, value).await,
            Operation::Read { key } => self.read(&request, &key, answers).await,
            Operation::Write { key, value } => self.write(&request, &key, value, answers).await,
            Operation::Keys {
                keyspace,
                prefix,
                after,
                limit,
            } => self.keys(keyspace, &prefix, after.as_deref(), limit).await,
            Operation::Queue { key } => self.queue(&key).await,
            Operation::Inspect { key } => self.inspect(&key).await,
            Operation::CreateKeyspace(keyspace) => self.create_keyspace(keyspace).await,
            Operation::ChangeKeyspace { .. }
            | Operation::DeleteKeyspace { .. }
            | Operation::Transact(_)
            | Operation::Resolve { .. }
            | Operation::Snapshot { .. }
            | Operation::ChangeSettings(_)
            | Operation::Admit { .. }
            | Operation::ChangeRing(_)
            | Operation::Ring => Err(not_here(&request.operation)),
            Operation::Keyspaces => self.keyspaces().await,
            Operation::Catalogue => self.catalogue_now().await,
            Operation::Access => self.access().await,
            Operation::ChangeAccess { after, policy } => self.change_access(after, &policy).await,
            Operation::Status => Ok(self.status()),
        }
    }
}

/// What stores as they are do not offer.
fn not_here(operation: &Operation) -> Refusal {
    let (code, text) = match operation {
        Operation::ChangeKeyspace { .. } | Operation::DeleteKeyspace { .. } => {
            (Code::BadRequest, KEYSPACES_STAY)
        }
        Operation::Transact(_) | Operation::Resolve { .. } | Operation::Snapshot { .. } => {
            (Code::WrongPurpose, NO_LEDGERS)
        }
        _ => (Code::BadRequest, NATIVE_ALONE),
    };
    Refusal::definite(code, text)
}

impl<L: LockStore, D: DataStore> Service for Engine<L, D> {
    fn serve(self: Arc<Self>, request: Request, answers: Answers) -> Boxed<'static, ()> {
        Box::pin(async move {
            let replied = self.answer(request, &answers).await;
            let reply = replied.unwrap_or_else(Reply::Refused);
            // Whoever is gone needs no answer.
            let _ = answers.send(reply);
        })
    }

    fn health(&self) -> Boxed<'_, Result<(), String>> {
        Box::pin(async move {
            self.locks.health().await?;
            self.data.health().await
        })
    }

    fn describe(&self) -> String {
        let (locks, data) = (self.locks.describe(), self.data.describe());
        match locks == data {
            true => data,
            false => format!("locks: {locks}; data: {data}"),
        }
    }
}

/// The refusal for a failed store: `what` was to be done, `doubt` says that a part of it may have
/// been.
pub(crate) fn failed(what: &str, error: &StoreError, doubt: bool) -> Refusal {
    match error {
        StoreError::Refused(why) if !doubt => {
            let text = format!("{what} was not done: {why}; repeat it, here or at another node");
            Refusal::definite(Code::Unavailable, text)
        }
        StoreError::Refused(why) => {
            let text = format!(
                "{what} has no confirmation: its first steps were done, and the last one was not \
                 ({why}); it may have taken effect; repeat it, here or at another node"
            );
            Refusal::unknown(Code::Unavailable, text)
        }
        StoreError::Unknown(why) => {
            let text = format!(
                "{what} has no confirmation: {why}; it may have taken effect; repeat it, here or \
                 at another node"
            );
            Refusal::unknown(Code::Unavailable, text)
        }
    }
}
