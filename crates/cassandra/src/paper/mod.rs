//! MUSIC's own layout on Cassandra, as published (§VI, §X-A4), to measure and to test against.
//!
//! **Never serve anybody with it**: it loses acknowledged updates, and lets two clients into one
//! section, in the ways that docs/faults.md lists. It is here so that figures beside the paper's
//! are taken on the same servers, and so that tests can show what the engine's layout cures.
//!
//! ```text
//! paper_lock (key blob, lockref bigint, guard bigint static, starttime bigint,
//!             PRIMARY KEY (key, lockref))                   a row per lock ref; the lowest is head
//! paper_data (key blob PRIMARY KEY, value blob, synchflag boolean)
//! ```
//!
//! | operation | what it does | known faults |
//! | --- | --- | --- |
//! | `createLockRef` | guard read at ONE; one conditional batch: guard, row | M10: restarts after deletes |
//! | `acquireLock` | local peek; quorum read of the flag, or synch; plain `startTime` | M7, M8, M9 |
//! | `criticalPut` | local peek; quorum write stamped ref · T + time in the section | M2, M6, M12 |
//! | `releaseLock` | local peek; conditional delete of the row | M5 |
//! | `forcedRelease` | local peek; flag at a quorum; conditional delete | M1 as coded in the paper |
//! | `put`, `get` | plain, at one replica, stamped by the servers' clocks | M4 |
//!
//! **Departures.** `forcedRelease` sets the flag to true, as the text of §IV-B says; the
//! pseudo-code says false, and then nothing is ever synchronized (M1). Values are one column, as
//! everywhere in the paper's measurements. A put before `startTime` has reached the local replica
//! is answered like one before the grant has: not yet.
//!
//! MSCP and `CassaEV` of the evaluation (§VIII): [`Paper::critical_put_by_lwt`] is a critical put
//! whose write is a conditional update, and [`Paper::put`] alone is `CassaEV`. A key is used with
//! one kind of critical put only: conditional updates have the clock's stamps, which outrank all of
//! `criticalPut`'s.

mod statements;

use crate::checks;
use crate::driver::{self, Named, What, brief, first, nonsense, store_error};
use crate::schema;
use crate::settings::Settings;
use bytes::Bytes;
use fermata_engine::StoreError;
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use statements::{Statements, TABLES};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PEEK: What = What::Reads("the peek at the lock rows");
const CREATE: What = What::Writes("the creation of a lock ref");
const DEQUEUE: What = What::Writes("the delete of a lock row");
const START: What = What::Writes("the write of a start time");
const READ: What = What::Reads("the read of the data row");
const WRITE: What = What::Writes("the write of the data row");

/// δ: how much higher a forced release stamps the flag than the section would, in microseconds: the
/// paper's own choice (§IV-B).
const DELTA: i64 = 1;

/// A client of MUSIC: what the paper calls a MUSIC replica, linked into its client.
pub struct Paper {
    session: Session,
    statements: Statements,
    /// T: the longest section, in microseconds.
    section_max: i64,
    attempts: u32,
}

/// What came of an operation that only the lockholder may carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held<T> {
    /// Done.
    Done(T),
    /// The paper's `false`: the lock ref is not first, or the local replica does not know yet.
    NotYet,
    /// The paper's `youAreNoLongerLockHolder`.
    NoLongerHolder,
    /// The section has lasted longer than T.
    ExceededDuration,
    /// A conditional put was not applied: a forced release has set the flag (MSCP only).
    Fenced,
}

/// The head of the queue, as the nearest replica has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The lowest lock ref.
    pub lock_ref: i64,
    /// When its section began, in microseconds since 1970; none: not granted, or not known here.
    pub start_time: Option<i64>,
}

impl Paper {
    /// Connects, and creates the two tables where they are absent. Any Paxos will do: the paper ran
    /// on v1. `section_max` is T; `attempts` is how often a lock ref is tried to be created.
    ///
    /// # Errors
    /// One sentence.
    pub async fn connect(
        settings: Settings,
        section_max: Duration,
        attempts: u32,
    ) -> Result<Paper, String> {
        settings.check()?;
        let session = driver::open(&settings).await?;
        let cluster = checks::survey(&session, &settings).await?;
        schema::ensure(&session, &settings, &TABLES, &cluster).await?;
        schema::check_keyspace(&session, &settings, &cluster.centers).await?;
        let statements = Statements::prepare(&session, &settings.keyspace)
            .await
            .map_err(|error| {
                let error = brief(&error.into());
                format!("the statements could not be prepared: {error}")
            })?;
        let section_max = i64::try_from(section_max.as_micros())
            .map_err(|_| "the longest section is longer than Cassandra can stamp".to_owned())?;
        Ok(Paper {
            session,
            statements,
            section_max,
            attempts,
        })
    }

    /// `createLockRef`: a lock ref of one's own, at the end of the key's queue.
    ///
    /// # Errors
    /// [`StoreError`]; also when every attempt was overtaken by others.
    pub async fn create_lock_ref(&self, key: &[u8]) -> Result<i64, StoreError> {
        for attempt in 0..self.attempts {
            let mut row = self.run(PEEK, &self.statements.guard, (key,)).await?;
            let previous = row.as_mut().and_then(|row| row.number("guard"));
            let lock_ref = previous.unwrap_or(0) + 1;
            let values = ((lock_ref, key, previous), (key, lock_ref));
            let result = self.session.batch(&self.statements.enqueue, values).await;
            let result = result.map_err(|error| store_error(CREATE, &error))?;
            let mut answer =
                first(CREATE, result)?.ok_or_else(|| nonsense(CREATE, "it is empty"))?;
            if answer.applied(CREATE)? {
                return Ok(lock_ref);
            }
            // Others were faster; or the nearest replica is behind, which only time cures.
            let spread = now().unsigned_abs() % 1_000;
            let pause = Duration::from_micros(spread * (1 << attempt.min(6)));
            tokio::time::sleep(pause).await;
        }
        Err(StoreError::Refused(format!(
            "no lock ref could be created in {} attempts: others were always faster",
            self.attempts
        )))
    }

    /// `lsPeek`: the head of the queue at the nearest replica.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn peek(&self, key: &[u8]) -> Result<Option<Head>, StoreError> {
        let row = self.run(PEEK, &self.statements.peek, (key,)).await?;
        Ok(row.and_then(|mut row| {
            let lock_ref = row.number("lockref")?;
            Some(Head {
                lock_ref,
                start_time: row.number("starttime"),
            })
        }))
    }

    /// Where a lock ref stands, by the local peek that every operation begins with.
    async fn standing(&self, key: &[u8], lock_ref: i64) -> Result<Held<Head>, StoreError> {
        Ok(match self.peek(key).await? {
            None => Held::NotYet,
            Some(head) if lock_ref > head.lock_ref => Held::NotYet,
            Some(head) if lock_ref < head.lock_ref => Held::NoLongerHolder,
            Some(head) => Held::Done(head),
        })
    }

    /// `acquireLock`: to be repeated until it is done.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn acquire_lock(&self, key: &[u8], lock_ref: i64) -> Result<Held<()>, StoreError> {
        let standing = self.standing(key, lock_ref).await?;
        let Held::Done(head) = standing else {
            return Ok(standing.without());
        };
        let flag = self.run(READ, &self.statements.flag, (key,)).await?;
        if flag.and_then(|mut row| row.truth("synchflag")) == Some(true) {
            let value = self.value(&self.statements.get, key).await?;
            let stamp = self.stamp(lock_ref, head.start_time.unwrap_or_else(now));
            self.run(WRITE, &self.statements.put_stamped, (stamp, value, key))
                .await?;
            self.run(WRITE, &self.statements.set_flag, (stamp, false, key))
                .await?;
        }
        self.run(START, &self.statements.start, (now(), key, lock_ref))
            .await?;
        Ok(Held::Done(()))
    }

    /// `criticalPut`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn critical_put(
        &self,
        key: &[u8],
        lock_ref: i64,
        value: &[u8],
    ) -> Result<Held<()>, StoreError> {
        let start = match self.within(key, lock_ref).await? {
            Held::Done(start) => start,
            other => return Ok(other.without()),
        };
        let values = (self.stamp(lock_ref, start), Some(value), key);
        self.run(WRITE, &self.statements.put_stamped, values)
            .await?;
        Ok(Held::Done(()))
    }

    /// MSCP's critical put: the same section, but the write is a conditional update.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn critical_put_by_lwt(
        &self,
        key: &[u8],
        lock_ref: i64,
        value: &[u8],
    ) -> Result<Held<()>, StoreError> {
        match self.within(key, lock_ref).await? {
            Held::Done(_) => {}
            other => return Ok(other.without()),
        }
        let answer = self
            .run(WRITE, &self.statements.put_by_lwt, (value, key))
            .await?;
        let mut answer = answer.ok_or_else(|| nonsense(WRITE, "it is empty"))?;
        Ok(if answer.applied(WRITE)? {
            Held::Done(())
        } else {
            Held::Fenced
        })
    }

    /// `criticalGet`; none: no value.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn critical_get(
        &self,
        key: &[u8],
        lock_ref: i64,
    ) -> Result<Held<Option<Bytes>>, StoreError> {
        match self.within(key, lock_ref).await? {
            Held::Done(_) => Ok(Held::Done(self.value(&self.statements.get, key).await?)),
            other => Ok(other.without()),
        }
    }

    /// `releaseLock`. True: the lock ref is, or was, out of the queue.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn release_lock(&self, key: &[u8], lock_ref: i64) -> Result<(), StoreError> {
        if self.standing(key, lock_ref).await? == Held::NoLongerHolder {
            return Ok(());
        }
        self.dequeue(key, lock_ref).await
    }

    /// `forcedRelease`: sets the flag, then takes the lock ref out of the queue.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forced_release(&self, key: &[u8], lock_ref: i64) -> Result<(), StoreError> {
        let start = match self.standing(key, lock_ref).await? {
            Held::NoLongerHolder => return Ok(()),
            Held::Done(head) => head.start_time,
            _ => None,
        };
        let stamp = self.stamp(lock_ref, start.unwrap_or_else(now)) + DELTA;
        self.run(WRITE, &self.statements.set_flag, (stamp, true, key))
            .await?;
        self.dequeue(key, lock_ref).await
    }

    async fn dequeue(&self, key: &[u8], lock_ref: i64) -> Result<(), StoreError> {
        self.run(DEQUEUE, &self.statements.dequeue, (key, lock_ref))
            .await
            .map(drop)
    }

    /// `put`, and `CassaEV` of the evaluation: at the nearest replica, with the clock's stamp.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.run(WRITE, &self.statements.put, (value, key))
            .await
            .map(drop)
    }

    /// `get`: at the nearest replica.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.value(&self.statements.get_near, key).await
    }

    /// When the section began, if this is the holder's and it has not lasted too long.
    async fn within(&self, key: &[u8], lock_ref: i64) -> Result<Held<i64>, StoreError> {
        Ok(match self.standing(key, lock_ref).await? {
            Held::Done(Head {
                start_time: None, ..
            }) => Held::NotYet,
            Held::Done(Head {
                start_time: Some(start),
                ..
            }) => {
                if now() - start > self.section_max {
                    Held::ExceededDuration
                } else {
                    Held::Done(start)
                }
            }
            other => other.without(),
        })
    }

    /// `v2s(lockRef, time)`, as §X-A3 has it: ref · T + time within the section, by this machine's
    /// clock.
    fn stamp(&self, lock_ref: i64, start: i64) -> i64 {
        lock_ref * self.section_max + (now() - start)
    }

    async fn value(
        &self,
        statement: &PreparedStatement,
        key: &[u8],
    ) -> Result<Option<Bytes>, StoreError> {
        let row = self.run(READ, statement, (key,)).await?;
        Ok(row.and_then(|mut row| row.blob("value")))
    }

    async fn run(
        &self,
        what: What,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<Named>, StoreError> {
        let result = self.session.execute_unpaged(statement, values).await;
        let result = result.map_err(|error| store_error(what, &error))?;
        if result.is_rows() {
            first(what, result)
        } else {
            Ok(None)
        }
    }
}

impl<T> Held<T> {
    /// The same refusal of another operation.
    ///
    /// # Panics
    /// If it is none.
    fn without<U>(self) -> Held<U> {
        match self {
            Held::Done(_) => panic!("a refusal is passed on, never a success"),
            Held::NotYet => Held::NotYet,
            Held::NoLongerHolder => Held::NoLongerHolder,
            Held::ExceededDuration => Held::ExceededDuration,
            Held::Fenced => Held::Fenced,
        }
    }
}

/// Microseconds since 1970 by this machine's clock, as the paper uses it.
fn now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}
