//! What the clients saw: all that the checker judges.

use crate::world::World;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, LockRef, SessionId};
use fermata_protocol::request::{Held, Mode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Enter(Mode),
    Resume(Held),
    Put { held: Held, number: u64, value: Option<Bytes> },
    Get(Held),
    Leave(Held),
    Release(LockRef),
    Renew(Held),
    EventualPut(Option<Bytes>),
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
    Value(Option<Bytes>),
    /// The ref is past; whether the operation may have taken effect.
    Past(bool),
    /// Certainly not done.
    Refused,
}

/// One operation, or one transmission of an enter.
#[derive(Clone, Debug)]
pub struct Record {
    pub session: SessionId,
    /// The request's number: a repetition has the same.
    pub number: u64,
    pub key: KeyId,
    pub op: Op,
    /// When it was sent, in the order of all events.
    pub begun: u64,
    /// When it was answered, or given up.
    pub ended: Option<u64>,
    /// The same on the clock.
    pub ended_at: Option<Instant>,
    pub outcome: Outcome,
}

/// All of it.
pub struct History {
    world: Arc<World>,
    records: Mutex<Vec<Record>>,
    leases: Mutex<BTreeMap<(KeyId, LockRef), Instant>>,
}

impl History {
    pub fn new(world: Arc<World>) -> History {
        History {
            world,
            records: Mutex::default(),
            leases: Mutex::default(),
        }
    }

    /// An operation is sent.
    pub fn begin(&self, session: SessionId, number: u64, key: &KeyId, op: Op) -> usize {
        let begun = self.world.tick();
        self.world.say(format!("s{} #{number} {op:?}", session.0));
        let mut records = self.records.lock().expect("nobody panics with it");
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
        let tick = self.world.tick();
        let mut records = self.records.lock().expect("nobody panics with it");
        let record = &mut records[record];
        let line = format!("s{} #{} -> {outcome:?}", record.session.0, record.number);
        record.ended = Some(tick);
        record.ended_at = Some(Instant::now());
        record.outcome = outcome;
        drop(records);
        self.world.say(line);
    }

    /// Whether the last answer to this enter says that its place in the queue is gone.
    pub fn is_over(&self, session: SessionId, number: u64) -> bool {
        let records = self.records.lock().expect("nobody panics with it");
        let last = records
            .iter()
            .rfind(|r| (r.session, r.number) == (session, number));
        last.is_some_and(|r| matches!(r.outcome, Outcome::Past(_) | Outcome::Refused))
    }

    /// The section's lease lasts until then, by its client's account.
    pub fn lease(&self, key: &KeyId, lock_ref: LockRef, until: Instant) {
        let mut leases = self.leases.lock().expect("nobody panics with it");
        let known = leases.entry((key.clone(), lock_ref)).or_insert(until);
        *known = until.max(*known);
    }

    pub fn records(&self) -> Vec<Record> {
        self.records.lock().expect("nobody panics with it").clone()
    }

    /// Until when each section's lease lasts.
    pub fn leases(&self) -> BTreeMap<(KeyId, LockRef), Instant> {
        self.leases.lock().expect("nobody panics with it").clone()
    }
}
