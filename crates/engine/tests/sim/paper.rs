//! MUSIC as the paper lays it out on Cassandra (§VI, X-A): a guard and a row per lock ref in the
//! lock table, `startTime` by a plain update, the synch flag beside the value in the data row,
//! local peeks, and stamps made of the lock ref and of the time since `startTime` on the clock of
//! whoever coordinates.
//!
//! It is built to be broken: each schedule that our layout survives has to break this one, or the
//! schedule proves nothing.

use crate::store::SimStore;
use crate::world::{Call, Cell, Changes, Column, Row};
use bytes::Bytes;
use fermata_engine::{Answers, Boxed, Service};
use fermata_protocol::base::{KeyId, LockRef, SessionId, Tag};
use fermata_protocol::request::{Critical, Entered, EntryValue, Held, Operation, RefState};
use fermata_protocol::{Code, Refusal, Reply, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest section, microseconds: MUSIC's T.
const T: i64 = 1_000_000_000;
/// A holder that is silent for so long is released; whoever waits sees to it.
const SILENCE: Duration = Duration::from_millis(4_000);
/// Between two polls of who waits.
const POLL: Duration = Duration::from_millis(100);

/// What the paper's client would hold: which ref its request has. One for all nodes.
pub(crate) type Refs = Arc<Mutex<BTreeMap<(SessionId, u64), LockRef>>>;

/// One MUSIC replica (a process beside a Cassandra node).
pub(crate) struct Paper {
    store: SimStore,
    refs: Refs,
    heard: Arc<Mutex<BTreeMap<LockRef, Instant>>>,
    /// What a forced release writes to the flag: the paper's text says 0.
    forced: u64,
    /// The partition of an empty queue is deleted, as ONAP's clean-up does.
    housekeeping: bool,
    /// Value columns: a put writes all that it names.
    columns: u8,
}

fn number(cell: Option<&Cell>) -> Option<u64> {
    let bytes = cell?.1.as_ref()?;
    Some(u64::from_be_bytes(bytes.as_ref().try_into().ok()?))
}

fn bytes(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn data(column: &Column) -> bool {
    matches!(column, Column::Value(_) | Column::Flag)
}

/// The first ref that has a row: any live cell makes one.
fn head(row: &Row) -> Option<u64> {
    let refs = row.iter().filter_map(|(column, cell)| match column {
        Column::Entry(lock_ref) | Column::Start(lock_ref) => cell.1.as_ref().map(|_| *lock_ref),
        _ => None,
    });
    refs.min()
}

fn unavailable() -> Reply {
    Reply::Refused(Refusal::unknown(Code::Unavailable, "no quorum in time"))
}

fn past() -> Reply {
    Reply::Refused(Refusal::definite(
        Code::NoLongerHolder,
        "the lock ref is past",
    ))
}

impl Paper {
    pub(crate) fn new(
        store: SimStore,
        refs: Refs,
        forced: u64,
        housekeeping: bool,
        columns: u8,
    ) -> Paper {
        Paper {
            store,
            refs,
            heard: Arc::default(),
            forced,
            housekeeping,
            columns,
        }
    }

    fn node(&self) -> usize {
        self.store.node
    }

    /// This machine's clock, microseconds.
    fn clock(&self) -> i64 {
        self.store.world.wall(self.node()).as_micros() as i64
    }

    /// `v2s`: the scalar of a write of this ref, now.
    fn stamp(&self, lock_ref: LockRef, started: u64) -> i64 {
        lock_ref.0 as i64 * T + (self.clock() - started as i64)
    }

    async fn peek(&self, key: &KeyId) -> Option<Row> {
        self.store.near(Call::Peek, key).await
    }

    /// `createLockRef`: a batch that takes the guard and inserts the row.
    async fn create(&self, key: &KeyId, id: (SessionId, u64)) -> Option<LockRef> {
        if let Some(known) = self.refs.lock().expect("nobody panics with it").get(&id) {
            return Some(*known);
        }
        let decided = self
            .store
            .world
            .decide(Call::Swap, self.node(), key, |row, ballot| {
                let next = number(row.get(&Column::Guard)).unwrap_or(0) + 1;
                let changes: Changes = vec![
                    (Column::Guard, (ballot, bytes(next))),
                    (Column::Entry(next), (ballot, bytes(0))),
                ];
                (LockRef(next), changes)
            });
        let lock_ref = decided.await?;
        let mut refs = self.refs.lock().expect("nobody panics with it");
        Some(*refs.entry(id).or_insert(lock_ref))
    }

    /// Removes the row: an LWT delete of the row, which leaves tombstones.
    async fn dequeue(&self, key: &KeyId, lock_ref: LockRef) -> Option<()> {
        self.store
            .world
            .decide(Call::Swap, self.node(), key, |row, ballot| {
                let mut changes: Changes = vec![(Column::Entry(lock_ref.0), (ballot, None))];
                changes.push((Column::Start(lock_ref.0), (ballot, None)));
                let mut left = row.clone();
                left.remove(&Column::Entry(lock_ref.0));
                left.remove(&Column::Start(lock_ref.0));
                if self.housekeeping && head(&left).is_none() {
                    changes.push((Column::Guard, (ballot, None)));
                }
                ((), changes)
            })
            .await
    }

    /// `forcedRelease`: writes the flag at `lockRef·T + δ`, then dequeues. The paper's text writes
    /// false.
    async fn force(&self, key: &KeyId, lock_ref: LockRef) -> Option<()> {
        let stamp = lock_ref.0 as i64 * T + T / 2;
        let flag = vec![(Column::Flag, (stamp, bytes(self.forced)))];
        self.store
            .turn(Call::Flag, crate::world::Step::Begin, key)
            .await;
        self.store.put(Call::Flag, key, flag, 2).await?;
        self.dequeue(key, lock_ref).await
    }

    /// `acquireLock`: none: not the first; else the row of values.
    async fn acquire(&self, key: &KeyId, lock_ref: LockRef) -> Result<Option<Row>, Reply> {
        let row = self.peek(key).await.ok_or_else(unavailable)?;
        match head(&row) {
            Some(first) if first == lock_ref.0 => {}
            Some(first) if first > lock_ref.0 => return Err(past()),
            _ => return Ok(None),
        }
        let columns = data;
        let read = self.store.quorum(key, columns).await;
        let read = read.ok_or_else(unavailable)?;
        if number(read.get(&Column::Flag)) == Some(1) {
            self.store
                .turn(Call::Write, crate::world::Step::Begin, key)
                .await;
            let started = number(row.get(&Column::Start(lock_ref.0)));
            let stamp = self.stamp(lock_ref, started.unwrap_or(self.clock() as u64));
            let mut cells: Vec<(Column, Cell)> = Vec::new();
            for (column, (_, value)) in &read {
                if matches!(column, Column::Value(_)) && value.is_some() {
                    cells.push((*column, (stamp, value.clone())));
                }
            }
            cells.push((Column::Flag, (stamp, bytes(0))));
            let written = self.store.put(Call::Write, key, cells, 2).await;
            written.ok_or_else(unavailable)?;
        }
        // The start of the section, by a plain update at a quorum, stamped by this clock.
        self.store
            .turn(Call::Start, crate::world::Step::Begin, key)
            .await;
        let now = self.clock();
        let start = vec![(Column::Start(lock_ref.0), (now, bytes(now as u64)))];
        let written = self.store.put(Call::Start, key, start, 2).await;
        written.ok_or_else(unavailable)?;
        Ok(Some(read))
    }

    fn value(&self, row: &Row) -> Option<Bytes> {
        let cells = (0..self.columns).filter_map(|n| row.get(&Column::Value(n))?.1.clone());
        let parts: Vec<Bytes> = cells.collect();
        (!parts.is_empty()).then(|| parts.concat().into())
    }

    async fn enter(&self, key: KeyId, id: (SessionId, u64), wait: Duration, answers: Answers) {
        let since = Instant::now();
        let Some(lock_ref) = self.create(&key, id).await else {
            let _ = answers.send(unavailable());
            return;
        };
        let held = Held {
            key: key.clone(),
            lock_ref,
            generation: 0,
        };
        let mut first: Option<(u64, Instant)> = None;
        let reply = loop {
            match self.acquire(&key, lock_ref).await {
                Err(reply) => break reply,
                Ok(Some(row)) => {
                    let value = EntryValue::from(self.value(&row));
                    let entered = Entered { held, value };
                    let lease = SILENCE.as_micros() as u64;
                    let keys = vec![entered];
                    break Reply::Entered { keys, lease };
                }
                Ok(None) => {}
            }
            let queued = Reply::Queued {
                held: vec![held.clone()],
                ahead: 1,
            };
            // Whoever asked may be gone.
            let _ = answers.send(queued);
            if since.elapsed() > wait {
                return;
            }
            if let Some(row) = self.peek(&key).await
                && let Some(now_first) = head(&row)
            {
                let heard = self.heard.lock().expect("nobody panics with it");
                let heard = heard.get(&LockRef(now_first)).copied();
                let seen = match first {
                    Some((lock_ref, at)) if lock_ref == now_first => at,
                    _ => Instant::now(),
                };
                first = Some((now_first, seen.max(heard.unwrap_or(seen))));
            }
            if let Some((silent, at)) = first
                && at.elapsed() > SILENCE
                && silent < lock_ref.0
            {
                self.force(&key, LockRef(silent)).await;
                first = None;
            }
            sleep(POLL).await;
        };
        let _ = answers.send(reply);
    }

    /// `criticalPut` and `criticalGet`: guarded by a local peek.
    async fn critical(&self, held: Held, operation: Critical) -> Reply {
        let Some(row) = self.peek(&held.key).await else {
            return unavailable();
        };
        match head(&row) {
            Some(first) if first == held.lock_ref.0 => {}
            Some(first) if first < held.lock_ref.0 => {
                return Reply::Refused(Refusal::definite(Code::NotHolder, "not the first"));
            }
            _ => return past(),
        }
        match operation {
            Critical::Get => match self.store.quorum(&held.key, data).await {
                None => unavailable(),
                Some(row) => Reply::Value {
                    value: self.value(&row),
                    tag: Tag::ZERO,
                },
            },
            Critical::Put { value, .. } => {
                let started = number(row.get(&Column::Start(held.lock_ref.0)));
                let stamp = self.stamp(held.lock_ref, started.unwrap_or(self.clock() as u64));
                let cells = self.cells(stamp, value);
                self.store
                    .turn(Call::Write, crate::world::Step::Begin, &held.key)
                    .await;
                match self.store.put(Call::Write, &held.key, cells, 2).await {
                    None => unavailable(),
                    Some(()) => Reply::Done { tag: None },
                }
            }
        }
    }

    /// A value is one column, or, where the table has more, `a|b`: the parts of the columns.
    fn cells(&self, stamp: i64, value: Option<Bytes>) -> Vec<(Column, Cell)> {
        let Some(value) = value else {
            return (0..self.columns)
                .map(|n| (Column::Value(n), (stamp, None)))
                .collect();
        };
        if self.columns == 1 {
            return vec![(Column::Value(0), (stamp, Some(value)))];
        }
        let parts = value.split(|b| *b == b'|').enumerate();
        let named = parts.filter(|(_, part)| !part.is_empty());
        let cell = |part: &[u8]| (stamp, Some(Bytes::copy_from_slice(part)));
        named
            .map(|(n, part)| (Column::Value(n as u8), cell(part)))
            .collect()
    }

    async fn renew(&self, held: Vec<Held>) -> Reply {
        let mut states = Vec::new();
        for held in held {
            let state = match self.peek(&held.key).await.map(|row| head(&row)) {
                None => RefState::Unknown,
                Some(Some(first)) if first <= held.lock_ref.0 => {
                    let mut heard = self.heard.lock().expect("nobody panics with it");
                    heard.insert(held.lock_ref, Instant::now());
                    let lease = SILENCE.as_micros() as u64;
                    RefState::Holding { lease }
                }
                Some(_) => RefState::Gone,
            };
            states.push(state);
        }
        Reply::Renewed { states }
    }

    async fn answer(&self, operation: Operation) -> Reply {
        match operation {
            Operation::Critical {
                held, operation, ..
            } => self.critical(held, operation).await,
            Operation::Leave { keys } => {
                for (held, _) in keys {
                    if self.dequeue(&held.key, held.lock_ref).await.is_none() {
                        return unavailable();
                    }
                }
                Reply::Done { tag: None }
            }
            Operation::Renew { held } => self.renew(held).await,
            Operation::Release { key, lock_ref } => match self.force(&key, lock_ref).await {
                Some(()) => Reply::Done { tag: None },
                None => unavailable(),
            },
            // `put`: by the wall clock.
            Operation::Put { key, value } => {
                let cells = self.cells(self.clock(), value);
                match self.store.put(Call::Offer, &key, cells, 1).await {
                    Some(()) => Reply::Done { tag: None },
                    None => unavailable(),
                }
            }
            Operation::Get { key } => match self.store.near(Call::DataNear, &key).await {
                Some(row) => Reply::Value {
                    value: self.value(&row),
                    tag: Tag::ZERO,
                },
                None => unavailable(),
            },
            _ => Reply::Refused(Refusal::definite(Code::BadRequest, "the paper has none")),
        }
    }
}

impl Service for Paper {
    fn serve(self: Arc<Self>, request: Request, answers: Answers) -> Boxed<'static, ()> {
        Box::pin(async move {
            let id = (request.session, request.number);
            match request.operation {
                Operation::Enter { mut keys, wait, .. } => {
                    let Some(key) = keys.pop() else { return };
                    self.enter(key, id, Duration::from_micros(wait), answers)
                        .await;
                }
                operation => {
                    let reply = self.answer(operation).await;
                    // Whoever asked may be gone.
                    let _ = answers.send(reply);
                }
            }
        })
    }

    fn health(&self) -> Boxed<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn describe(&self) -> String {
        "the paper's layout".into()
    }
}
