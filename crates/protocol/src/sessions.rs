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
use alloc::vec::Vec;
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

    /// Remembers the outcome of the command that is number `position` of the history: the commands
    /// to ledgers that are forgotten for it, whose outcomes are records.
    pub fn remember(
        &mut self,
        session: SessionId,
        number: u64,
        answered_through: u64,
        position: u64,
        outcome: Outcome,
    ) -> Vec<(SessionId, u64)> {
        let mut forgotten = Vec::new();
        if session == Sessions::OWN {
            return forgotten;
        }
        let recorded = |session: SessionId, outcomes: BTreeMap<u64, Outcome>| {
            let of_ledger = |(_, outcome): &(u64, Outcome)| *outcome == Outcome::Ledger;
            let outcomes = outcomes.into_iter().filter(of_ledger);
            outcomes.map(move |(number, _)| (session, number))
        };
        let known = self.table.entry(session).or_default();
        self.order.remove(&(known.last, session));
        known.last = position;
        self.order.insert((position, session));
        known.outcomes.insert(number, outcome);
        if answered_through > known.forgotten {
            known.forgotten = answered_through;
            let kept = known.outcomes.split_off(&(answered_through + 1));
            let gone = core::mem::replace(&mut known.outcomes, kept);
            forgotten.extend(recorded(session, gone));
        }
        while known.outcomes.len() > OUTCOMES_MAX {
            let (oldest, outcome) = known.outcomes.pop_first().expect("more than the bound");
            known.forgotten = known.forgotten.max(oldest);
            forgotten.extend(recorded(session, [(oldest, outcome)].into()));
        }
        if self.table.len() > SESSIONS_MAX
            && let Some((_, silent)) = self.order.pop_first()
            && let Some(gone) = self.table.remove(&silent)
        {
            forgotten.extend(recorded(silent, gone.outcomes));
        }
        forgotten
    }

    /// The put of a leave is known to be at its quorum: whoever asks for the outcome of the leave
    /// is told of a clean one from now on.
    pub fn left_cleanly(&mut self, session: SessionId, number: u64) {
        let known = self.table.get_mut(&session);
        if let Some(Outcome::Left { clean }) = known.and_then(|k| k.outcomes.get_mut(&number)) {
            *clean = true;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_sessions_the_longest_silent_one_is_forgotten() {
        let mut sessions = Sessions::default();
        let mut position = 0;
        let mut acts = |session: u128, number| {
            position += 1;
            sessions.remember(SessionId(session), number, 0, position, Outcome::Done);
            sessions.len()
        };
        for session in 1..=SESSIONS_MAX as u128 {
            acts(session, 1);
        }
        acts(1, 2);
        assert_eq!(acts(SESSIONS_MAX as u128 + 1, 1), SESSIONS_MAX);
        let known = |session| sessions.outcome(SessionId(session), 1);
        assert_eq!(known(1), Some(Outcome::Done));
        assert_eq!(known(2), None);
        assert_eq!(known(3), Some(Outcome::Done));
    }

    #[test]
    fn what_a_client_has_its_answer_to_is_forgotten() {
        let mut sessions = Sessions::default();
        let session = SessionId(1);
        for (number, answered_through) in [(1, 0), (2, 0), (3, 2)] {
            sessions.remember(session, number, answered_through, number, Outcome::Done);
        }
        for number in [1, 2] {
            let told = sessions.outcome(session, number);
            assert!(matches!(told, Some(Outcome::Refused(r)) if r.code == Code::Forgotten));
        }
        assert_eq!(sessions.outcome(session, 3), Some(Outcome::Done));
        assert_eq!(sessions.outcome(session, 4), None);
    }

    #[test]
    fn of_too_many_outcomes_it_is_remembered_that_the_oldest_were() {
        let mut sessions = Sessions::default();
        let session = SessionId(1);
        for number in 1..=OUTCOMES_MAX as u64 + 2 {
            sessions.remember(session, number, 0, number, Outcome::Done);
        }
        let forgotten = |number| match sessions.outcome(session, number) {
            Some(Outcome::Refused(refusal)) => refusal.code == Code::Forgotten,
            other => other.is_none(),
        };
        assert!(forgotten(2) && sessions.outcome(session, 2).is_some());
        assert_eq!(sessions.outcome(session, 3), Some(Outcome::Done));
    }
}
