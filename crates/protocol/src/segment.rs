//! The replicated state of one segment: what every member gets by applying the segment's log.
//!
//! **Problem.** A segment orders commands of several kinds of state, and some things belong to none
//! of them: the number that a command has in the segment's history, the memory of what clients have
//! asked before, the client leases that cross to the next log. Kept inside one kind of state, each
//! further kind would need its own copy, and two copies of a session table can disagree on whether
//! a command has taken effect.
//!
//! **Idea.** [`SegmentState`] has what is the segment's own: the number of commands in the whole
//! history, the session table, the floor, and the client leases that cross from one primary to the
//! next. It counts every command, answers repeated ones from
//! the session table, and gives the others to their *key kind* by [`Body`]. A key kind is a state
//! machine over keys (keyspace id and key) that knows nothing of sessions and positions but what it
//! is told with each command. There is one, [`Queues`].
//!
//! **Records.** What does not fit a snapshot stands beside this state, as records in each member's
//! store ([`crate::records`]), and this state never depends on them, or a log could not be
//! replayed: of them it has the number of the last command that may have changed one. So it has of
//! a ledger the limit of its times ([`LedgerState`]) and who has asked what; what a transaction has
//! come to is a record ([`crate::ledger`], L29), which whoever has the records writes when the
//! command is applied ([`Applied::work`]).
//!
//! **Invariants.**
//! * S1. The state is a function of the log alone, and so are its bytes: no map in hash order, no
//!   clock, no chance. The simulator compares the bytes of all members after every command.
//! * S2. A command's position is its number in the whole history, over all logs of the segment.
//! * S3. A command of a session takes effect once, also across snapshots and epochs (F2).
//!
//! **Departures.** None: the papers have one kind of state per log.

use crate::base::{Bug, Epoch, KeyId, LockRef, Planted, SessionId, Tag};
#[cfg(feature = "planted-bugs")]
use crate::command::LedgerCommand;
use crate::command::{Body, ClientLease, Command, SegmentCommand};
use crate::ledger::{self, LedgerState};
use crate::lock::{Outcome, Queues, Ref};
use crate::paxos::Stop;
use crate::records::{Change, Ordered, Work};
use crate::register::HolderState;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use crate::wire::{self, grown};
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What applying one command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The command's number in the segment's history.
    pub position: u64,
    /// Its outcome.
    pub outcome: Outcome,
    /// It had taken effect before; this time nothing changed.
    pub repeated: bool,
    /// Keys whose queue or flag the command was about.
    pub touched: Vec<KeyId>,
    /// The ref that left or was released, with what it was.
    pub removed: Option<(LockRef, Ref)>,
    /// The refs that have come to hold one of its keys by that, key by key.
    pub next: Vec<LockRef>,
    /// The leave, by session and number, whose put is now known to be at its quorum.
    pub settles: Option<(SessionId, u64)>,
    /// Tags of last writes that a clean leave stated, for hand-overs of exactly that copy (F3).
    pub left: Vec<(KeyId, Option<Tag>)>,
    /// What it does to the records.
    pub work: Work,
}

impl Applied {
    /// Nothing was changed yet by the command with this number.
    pub fn at(position: u64) -> Applied {
        Applied {
            position,
            outcome: Outcome::Gone,
            repeated: false,
            touched: Vec::new(),
            removed: None,
            next: Vec::new(),
            settles: None,
            left: Vec::new(),
            work: Work::default(),
        }
    }
}

/// The state of one segment. It is the whole content of the segment's snapshots, and what the next
/// epoch's log starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentState {
    kept: Kept,
    /// From the format [`wire::LEDGERS`] on.
    ledger: LedgerState,
}

impl Serialize for SegmentState {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let ledger = self.has_ledger().then_some(&self.ledger);
        grown::serialize(&self.kept, ledger, to)
    }
}

impl<'de> Deserialize<'de> for SegmentState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SegmentState, D::Error> {
        let (kept, ledger) = grown::deserialize(from, Kept::has_ledger)?;
        Ok(SegmentState { kept, ledger })
    }
}

/// What a segment's state has in every format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// Commands in the segment's whole history, over all its logs.
    commands: u64,
    /// The epoch of the segment's registers, which changes only when the seats do.
    store: Epoch,
    /// Who asked what.
    sessions: Sessions,
    /// All refs up to here are past, and data replicas may say so (F8f: deletes are forgotten
    /// below).
    floor: LockRef,
    /// The client leases that a primary stated before it ended. As long as they are here nobody has
    /// granted or renewed since (`lock/leases.rs`).
    leases: Option<Vec<ClientLease>>,
    /// The key kind of critical sections.
    queues: Queues,
    /// The format of this log.
    format: u16,
    /// The number of the last command that may have changed a record; 0: there are none.
    recorded: u64,
}

impl Kept {
    fn has_ledger(&self) -> bool {
        self.format >= wire::LEDGERS
    }
}

impl SegmentState {
    /// What a segment's first log starts from: no ref that is given is below `lowest`.
    pub fn beginning(lowest: LockRef, store: Epoch, format: u16) -> SegmentState {
        let kept = Kept {
            commands: lowest.0.saturating_sub(1),
            store,
            format,
            ..Kept::default()
        };
        SegmentState {
            kept,
            ledger: LedgerState::default(),
        }
    }

    /// The next log of this segment starts from this state. Its command numbers go on; its
    /// registers, only where the seats are the same. Others know no fence yet: whoever has left is
    /// past there, also with the put beside its leave, for the next one may have been granted.
    pub fn succeed(mut self, stop: Stop, planted: Planted) -> SegmentState {
        if stop.moves {
            self.kept.store = stop.next;
            if !planted.has(Bug::LeavingPutCrosses) {
                self.kept.queues.forget_puts();
            }
        }
        if planted.has(Bug::RefsRestartWithLog) {
            self.kept.commands = 0;
        }
        self.kept.format = stop.format;
        self.ledger = self.ledger.succeed(planted);
        self
    }

    /// The format of this log.
    pub fn format(&self) -> u16 {
        self.kept.format
    }

    /// Commands in the segment's whole history.
    pub fn commands(&self) -> u64 {
        self.kept.commands
    }

    /// The epoch of the segment's registers.
    pub fn store(&self) -> Epoch {
        self.kept.store
    }

    /// The number of the last command that may have changed a record of this segment's state; 0: it
    /// has none.
    pub fn recorded(&self) -> u64 {
        self.kept.recorded
    }

    /// Whether this is a command that a client may have this segment's log order.
    pub fn takes(&self, body: &Body) -> bool {
        match body {
            Body::Lock(_) => true,
            #[cfg(feature = "planted-bugs")]
            Body::Ledger(LedgerCommand::Puts(_)) => true,
            Body::Ledger(_) => self.has_ledger(),
            Body::Group(_) | Body::Segment(_) => false,
        }
    }

    /// The ledger's small state; nothing before the format [`wire::LEDGERS`].
    pub fn ledger(&self) -> &LedgerState {
        &self.ledger
    }

    /// Whether this log orders a ledger.
    pub fn has_ledger(&self) -> bool {
        self.kept.has_ledger()
    }

    /// All refs up to here are past.
    pub fn floor(&self) -> LockRef {
        self.kept.floor
    }

    /// The highest floor that could be set now: below every ref that waits or holds.
    pub fn highest_floor(&self) -> LockRef {
        let oldest = self.kept.queues.refs().next();
        LockRef(oldest.map_or(self.kept.commands, |(lock_ref, _)| lock_ref.0 - 1))
    }

    /// The lease table of a primary that has ended, if no later one has taken it.
    pub fn leases(&self) -> Option<&[ClientLease]> {
        self.kept.leases.as_deref()
    }

    /// The lock queues.
    pub fn queues(&self) -> &Queues {
        &self.kept.queues
    }

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, session: SessionId, number: u64, planted: Planted) -> Option<Outcome> {
        let known = self.kept.sessions.outcome(session, number)?;
        let forgotten = matches!(&known, Outcome::Refused(why) if why.code == Code::Forgotten);
        let again =
            planted.has(Bug::NoDeduplication) || forgotten && planted.has(Bug::ForgottenRunsAgain);
        (!again).then_some(known)
    }

    /// What this state says of a ref and generation that somebody names as its own for `key`.
    pub fn holder_state(&self, key: &KeyId, lock_ref: LockRef, generation: u32) -> HolderState {
        match self.kept.queues.holder_state(key, lock_ref, generation) {
            Some(state) => state,
            None if lock_ref.0 <= self.kept.commands => HolderState::Past,
            None => HolderState::Unknown,
        }
    }

    /// Applies the next command of the log.
    pub fn apply(&mut self, command: &Command, planted: Planted) -> Applied {
        self.kept.commands += 1;
        let mut applied = Applied::at(self.kept.commands);
        if command.session != Sessions::OWN
            && let Some(outcome) = self.outcome(command.session, command.number, planted)
        {
            applied.outcome = outcome;
            applied.repeated = true;
            return applied;
        }
        match &command.body {
            Body::Lock(body) => self.kept.queues.apply(command, body, planted, &mut applied),
            Body::Group(_) => {
                applied.outcome = refused("a group's command does not belong to a segment");
            }
            #[cfg(feature = "planted-bugs")]
            Body::Ledger(LedgerCommand::Puts(puts)) => {
                (applied.outcome, applied.work.changes) = (Outcome::Done, puts.changes());
            }
            Body::Ledger(_) if !self.has_ledger() => {
                applied.outcome =
                    refused("this segment's log does not order ledgers yet; nothing was changed");
            }
            Body::Ledger(body) => {
                let limit = self.ledger.limit();
                applied.work.ordered = Some(Ordered::new(command, body, limit, planted));
                applied.outcome = Outcome::Ledger;
            }
            Body::Segment(body) => applied.outcome = self.apply_own(body, planted),
        }
        let forgotten = self.kept.sessions.remember(
            command.session,
            command.number,
            command.answered_through,
            applied.position,
            applied.outcome.clone(),
        );
        let gone = |(session, number)| Change {
            name: ledger::outcome_name(session, number),
            value: None,
        };
        applied.work.changes.extend(forgotten.into_iter().map(gone));
        if let Some((session, number)) = applied.settles
            && !planted.has(Bug::LeavingPutNotRecorded)
        {
            self.kept.sessions.left_cleanly(session, number);
        }
        if !applied.work.is_empty() {
            self.kept.recorded = applied.position;
        }
        self.assert_applied(&applied);
        applied
    }

    /// Checks what this command may have broken; in production, too, so that it looks at nothing
    /// that the command has not touched.
    fn assert_applied(&self, applied: &Applied) {
        for key in &applied.touched {
            self.kept.queues.assert_key(key);
        }
        if let Some((oldest, _)) = self.kept.queues.refs().next() {
            assert!(oldest > self.kept.floor, "a ref up to the floor is past");
        }
    }

    fn apply_own(&mut self, body: &SegmentCommand, planted: Planted) -> Outcome {
        match body {
            SegmentCommand::Leases(table) => {
                self.kept.leases = Some(table.clone());
                Outcome::Done
            }
            SegmentCommand::Floor(proposed) => {
                // What the proposer knew may be old; a floor that is raised stays.
                self.kept.floor = self.kept.floor.max(self.highest_floor().min(*proposed));
                Outcome::Done
            }
            SegmentCommand::Limit(limit) => {
                self.ledger.raise(*limit);
                Outcome::Done
            }
            SegmentCommand::Used(used) => {
                self.ledger.lower(*used);
                Outcome::Done
            }
            SegmentCommand::LeasesTaken if self.kept.leases.is_none() => Outcome::Gone,
            SegmentCommand::LeasesTaken => {
                if !planted.has(Bug::LeaseTableKept) {
                    self.kept.leases = None;
                }
                Outcome::Done
            }
        }
    }

    /// Checks all that must hold after every command.
    ///
    /// # Panics
    /// If it does not.
    pub fn assert_invariants(&self) {
        self.kept.queues.assert_invariants();
        for (lock_ref, _) in self.kept.queues.refs() {
            assert!(
                lock_ref.0 <= self.kept.commands,
                "a ref is the number of a command"
            );
            assert!(lock_ref > self.kept.floor, "a ref up to the floor is past");
        }
    }
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused(Refusal::definite(Code::BadRequest, why))
}

/// Where a floor rises to that is `floor`, is wanted at `wanted`, and must stop at `highest`:
/// halfway to where it must stop, since it has to rise once more before a trace goes, and a section
/// may go on (G54). What is wanted may lie beyond, for a key that was deleted later; other keys
/// wait all the same.
pub(crate) fn next_floor(floor: LockRef, wanted: LockRef, highest: LockRef) -> LockRef {
    let left = match highest.0.checked_sub(wanted.0) {
        Some(beyond) => beyond.div_ceil(2),
        None => (highest.0 - floor.0) / 2,
    };
    LockRef(highest.0 - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G54: a key is deleted at 5, a section begins at 10 and goes on, another key is deleted
    /// at 20.
    #[test]
    fn a_floor_that_has_to_stop_can_rise_once_more_above_what_was_deleted_before() {
        for wanted in [5, 20] {
            let next = next_floor(LockRef(3), LockRef(wanted), LockRef(9)).0;
            assert!(next > 5 && next < 9, "{wanted}: {next}");
        }
    }

    #[test]
    fn a_floor_that_is_wanted_rises_and_stops_where_it_must() {
        for (floor, wanted, highest) in [(0, 1, 1), (0, 1, 2), (0, 9, 1), (6, 7, 9), (6, 99, 7)] {
            let next = next_floor(LockRef(floor), LockRef(wanted), LockRef(highest)).0;
            assert!(
                next > floor && next <= highest,
                "{floor}, {wanted}, {highest}: {next}"
            );
            assert!(next >= wanted.min(highest) || wanted > highest);
        }
    }
}
