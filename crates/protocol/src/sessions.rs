//! The session table of a replicated state: a command takes effect once (F2).
//!
//! A client retries a command until it has the answer, at any node, and two primaries may both get
//! it chosen. The state therefore keeps, per session, the outcomes that the client may still ask
//! for. The table is part of the state: it is in the snapshots, and the next epoch's log starts
//! with it.

use crate::base::SessionId;
use crate::lock::Outcome;
use crate::request::{Code, Refusal};
use alloc::collections::{BTreeMap, BTreeSet};
use serde::{Deserialize, Serialize};

/// Sessions that a state remembers. Part of the state's definition: equal on all replicas.
pub const SESSIONS_MAX: usize = 100_000;
/// Outcomes that a state keeps for one session.
pub const OUTCOMES_MAX: usize = 1_024;

/// What is known of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    /// Outcomes of commands that the client may retry.
    outcomes: BTreeMap<u64, Outcome>,
    /// Commands up to here have been answered; nobody retries them.
    forgotten: u64,
    /// When it last did something: a command number of this state's history.
    last: u64,
}

/// All sessions of one replicated state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    table: BTreeMap<SessionId, Session>,
    /// The same sessions, longest silent first.
    order: BTreeSet<(u64, SessionId)>,
}

impl Sessions {
    /// Commands of the protocol itself change nothing when repeated and are not remembered.
    pub const OWN: SessionId = SessionId(0);

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, session: SessionId, number: u64) -> Option<Outcome> {
        let known = self.table.get(&session)?;
        match known.outcomes.get(&number) {
            Some(outcome) => Some(outcome.clone()),
            None if number <= known.forgotten => Some(Outcome::Refused(Refusal::unknown(
                Code::Forgotten,
                "this request was answered before and its answer is forgotten; \
                 ask for the state instead of repeating it",
            ))),
            None => None,
        }
    }

    /// Remembers the outcome of the command that is number `position` of the history.
    pub fn remember(
        &mut self,
        session: SessionId,
        number: u64,
        answered_through: u64,
        position: u64,
        outcome: Outcome,
    ) {
        if session == Sessions::OWN {
            return;
        }
        let known = self.table.entry(session).or_default();
        self.order.remove(&(known.last, session));
        known.last = position;
        self.order.insert((position, session));
        known.outcomes.insert(number, outcome);
        if answered_through > known.forgotten {
            known.forgotten = answered_through;
            known.outcomes = known.outcomes.split_off(&(answered_through + 1));
        }
        while known.outcomes.len() > OUTCOMES_MAX {
            let (oldest, _) = known.outcomes.pop_first().expect("more than the bound");
            known.forgotten = known.forgotten.max(oldest);
        }
        if self.table.len() > SESSIONS_MAX
            && let Some((_, silent)) = self.order.pop_first()
        {
            self.table.remove(&silent);
        }
    }

    /// Sessions remembered.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no session is remembered.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}
