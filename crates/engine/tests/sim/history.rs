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
pub(crate) enum Op {
    Enter(Mode),
    Resume(Held),
    Put {
        held: Held,
        number: u64,
        value: Option<Bytes>,
    },
    Get(Held),
    Leave(Held),
    Release(LockRef),
    Renew(Held),
    EventualPut(Option<Bytes>),
    EventualGet,
}

/// What the client knows of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
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
pub(crate) struct Record {
    pub(crate) session: SessionId,
    /// The request's number: a repetition has the same.
    pub(crate) number: u64,
    pub(crate) key: KeyId,
    pub(crate) op: Op,
    /// When it was sent, in the order of all events.
    pub(crate) begun: u64,
    /// When it was answered, or given up.
    pub(crate) ended: Option<u64>,
    /// The same on the clock.
    pub(crate) ended_at: Option<Instant>,
    pub(crate) outcome: Outcome,
}

/// All of it.
pub(crate) struct History {
    world: Arc<World>,
    records: Mutex<Vec<Record>>,
    leases: Mutex<BTreeMap<(KeyId, LockRef), Instant>>,
}

impl History {
    pub(crate) fn new(world: Arc<World>) -> History {
        History {
            world,
            records: Mutex::default(),
            leases: Mutex::default(),
        }
    }

    /// An operation is sent.
    pub(crate) fn begin(&self, session: SessionId, number: u64, key: &KeyId, op: Op) -> usize {
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
    pub(crate) fn end(&self, record: usize, outcome: Outcome) {
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
    pub(crate) fn is_over(&self, session: SessionId, number: u64) -> bool {
        let records = self.records.lock().expect("nobody panics with it");
        let last = records
            .iter()
            .rfind(|r| (r.session, r.number) == (session, number));
        last.is_some_and(|r| matches!(r.outcome, Outcome::Past(_) | Outcome::Refused))
    }

    /// Whether this enter has been answered with a section.
    pub(crate) fn is_entered(&self, session: SessionId, number: u64) -> bool {
        let records = self.records.lock().expect("nobody panics with it");
        let of = |r: &&Record| (r.session, r.number) == (session, number);
        let entered = |r: &Record| matches!(r.outcome, Outcome::Entered(..));
        records.iter().filter(of).any(entered)
    }

    /// The ref that the session was last told to wait with.
    pub(crate) fn place(&self, session: SessionId) -> Option<LockRef> {
        let records = self.records.lock().expect("nobody panics with it");
        records.iter().rev().find_map(|r| match r.outcome {
            Outcome::Waits(lock_ref) if r.session == session => Some(lock_ref),
            _ => None,
        })
    }

    /// The section's lease lasts until then, by its client's account.
    pub(crate) fn lease(&self, key: &KeyId, lock_ref: LockRef, until: Instant) {
        let mut leases = self.leases.lock().expect("nobody panics with it");
        let known = leases.entry((key.clone(), lock_ref)).or_insert(until);
        *known = until.max(*known);
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.records.lock().expect("nobody panics with it").clone()
    }

    /// Until when each section's lease lasts.
    pub(crate) fn leases(&self) -> BTreeMap<(KeyId, LockRef), Instant> {
        self.leases.lock().expect("nobody panics with it").clone()
    }
}
