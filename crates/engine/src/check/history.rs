//! What the clients saw: all that the checker judges.

use bytes::Bytes;
use fermata_protocol::base::{KeyId, LockRef, SessionId};
use fermata_protocol::request::{Held, Mode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Where a history is made: a simulated world, or the real one.
pub trait Notes: Send + Sync + 'static {
    /// Orders the events of a history: grows with every call.
    fn tick(&self) -> u64;

    /// A line for whoever reads what happened.
    fn say(&self, line: String);
}

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A section.
    Enter(Mode),
    /// The same section, in its next generation.
    Resume(Held),
    /// A critical put.
    Put {
        /// Whose.
        held: Held,
        /// The section's number of it.
        number: u64,
        /// The value; none: a delete.
        value: Option<Bytes>,
    },
    /// A critical get.
    Get(Held),
    /// The way out.
    Leave(Held),
    /// A forced release.
    Release(LockRef),
    /// A sign of life.
    Renew(Held),
    /// A put outside sections.
    EventualPut(Option<Bytes>),
    /// A get outside sections.
    EventualGet,
}

/// What the client knows of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// No answer, or one that says that it may have taken effect.
    Unknown,
    /// In the section, with the value; none: left out.
    Entered(Held, Option<Option<Bytes>>),
    /// In the queue.
    Waits(LockRef),
    /// Done for certain.
    Done,
    /// The value.
    Value(Option<Bytes>),
    /// The ref is past; whether the operation may have taken effect.
    Past(bool),
    /// Certainly not done.
    Refused,
}

/// One operation, or one transmission of an enter.
#[derive(Clone, Debug)]
pub struct Record {
    /// Whose.
    pub session: SessionId,
    /// The request's number: a repetition has the same.
    pub number: u64,
    /// Of which key.
    pub key: KeyId,
    /// What was asked.
    pub op: Op,
    /// When it was sent, in the order of all events.
    pub begun: u64,
    /// When it was answered, or given up.
    pub ended: Option<u64>,
    /// The same on the clock.
    pub ended_at: Option<Instant>,
    /// What is known of it.
    pub outcome: Outcome,
}

/// All of it.
pub struct History {
    notes: Arc<dyn Notes>,
    records: Mutex<Vec<Record>>,
    leases: Mutex<BTreeMap<(KeyId, LockRef, u32), Instant>>,
}

impl History {
    /// An empty one.
    pub fn new(notes: Arc<dyn Notes>) -> History {
        History {
            notes,
            records: Mutex::default(),
            leases: Mutex::default(),
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation is sent.
    pub fn begin(&self, session: SessionId, number: u64, key: &KeyId, op: Op) -> usize {
        let begun = self.notes.tick();
        self.notes.say(format!("s{} #{number} {op:?}", session.0));
        let mut records = self.all();
        records.push(Record {
            session,
            number,
            key: key.clone(),
            op,
            begun,
            ended: None,
            ended_at: None,
            outcome: Outcome::Unknown,
        });
        records.len() - 1
    }

    /// It has ended.
    pub fn end(&self, record: usize, outcome: Outcome) {
        let tick = self.notes.tick();
        let mut records = self.all();
        let record = &mut records[record];
        let line = format!("s{} #{} -> {outcome:?}", record.session.0, record.number);
        record.ended = Some(tick);
        record.ended_at = Some(Instant::now());
        record.outcome = outcome;
        drop(records);
        self.notes.say(line);
    }

    /// Whether the last answer to this enter says that its place in the queue is gone.
    pub fn is_over(&self, session: SessionId, number: u64) -> bool {
        let records = self.all();
        let last = records
            .iter()
            .rfind(|r| (r.session, r.number) == (session, number));
        last.is_some_and(|r| matches!(r.outcome, Outcome::Past(_) | Outcome::Refused))
    }

    /// Whether this enter has been answered with a section.
    pub fn is_entered(&self, session: SessionId, number: u64) -> bool {
        let records = self.all();
        let of = |r: &&Record| (r.session, r.number) == (session, number);
        let entered = |r: &Record| matches!(r.outcome, Outcome::Entered(..));
        records.iter().filter(of).any(entered)
    }

    /// The ref that the session was last told to wait with.
    pub fn place(&self, session: SessionId) -> Option<LockRef> {
        let records = self.all();
        records.iter().rev().find_map(|r| match r.outcome {
            Outcome::Waits(lock_ref) if r.session == session => Some(lock_ref),
            _ => None,
        })
    }

    /// The session that a section is of, as far as clients were told; else whose ref it is.
    pub fn session_of(&self, held: &Held) -> Option<SessionId> {
        let records = self.all();
        let entered = records.iter().find(|r| match &r.outcome {
            Outcome::Entered(of, _) => of == held,
            Outcome::Waits(lock_ref) => *lock_ref == held.lock_ref && r.key == held.key,
            _ => false,
        });
        entered.map(|record| record.session)
    }

    /// The section's lease lasts until then, by its client's account.
    pub fn lease(&self, held: &Held, until: Instant) {
        let name = (held.key.clone(), held.lock_ref, held.generation);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let known = leases.entry(name).or_insert(until);
        *known = until.max(*known);
    }

    /// All records, in the order in which they were begun.
    pub fn records(&self) -> Vec<Record> {
        self.all().clone()
    }

    /// Until when the lease of each generation of each section lasts.
    pub fn leases(&self) -> BTreeMap<(KeyId, LockRef, u32), Instant> {
        self.leases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
