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
//! is told with each command. There is one, [`Queues`]; versions and log keys will stand beside it.
//!
//! **Records.** What does not fit a snapshot stands beside this state, as records in each member's
//! store ([`crate::records`]). A command changes them blindly, and this state never depends on
//! them: of them it has the number of the last command that changed one.
//!
//! **Holds and votes** of transactions belong to the segment as well, not to a key kind: a
//! transaction may hold lock refs, versions and log keys at once, a check of a lock ref has to see
//! them, and a participant's vote is about all its keys together. They will be fields of
//! [`SegmentState`] beside the session table, and [`SegmentState::apply`] will ask them before it
//! gives a command to a key kind. [`Body::Transaction`] is reserved for their commands.
//!
//! **Invariants.**
//! * S1. The state is a function of the log alone, and so are its bytes: no map in hash order, no
//!   clock, no chance. The simulator compares the bytes of all members after every command.
//! * S2. A command's position is its number in the whole history, over all logs of the segment.
//! * S3. A command of a session takes effect once, also across snapshots and epochs (F2).
//!
//! **Departures.** None: the papers have one kind of state per log.

use crate::base::{Bug, Epoch, KeyId, LockRef, Planted, SessionId, Tag};
use crate::command::{Body, ClientLease, Command, SegmentCommand};
use crate::lock::{Outcome, Queues, Ref};
use crate::paxos::Stop;
use crate::records::Change;
#[cfg(feature = "planted-bugs")]
use crate::records::Puts;
use crate::register::HolderState;
use crate::request::{Code, Refusal};
use crate::sessions::Sessions;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

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
    /// The records that it changes, blindly: the last change of one stands.
    pub changes: Vec<Change>,
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
            changes: Vec::new(),
        }
    }
}

/// The state of one segment. It is the whole content of the segment's snapshots, and what the next
/// epoch's log starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentState {
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
    /// The number of the last command that has changed a record; 0: there are none.
    recorded: u64,
}

impl SegmentState {
    /// What a segment's first log starts from: no ref that is given is below `lowest`.
    pub fn beginning(lowest: LockRef, store: Epoch, format: u16) -> SegmentState {
        SegmentState {
            commands: lowest.0.saturating_sub(1),
            store,
            format,
            ..SegmentState::default()
        }
    }

    /// The next log of this segment starts from this state. Its command numbers go on; its
    /// registers, only where the seats are the same. Others know no fence yet: whoever has left is
    /// past there, also with the put beside its leave, for the next one may have been granted.
    pub fn succeed(mut self, stop: Stop, planted: Planted) -> SegmentState {
        if stop.moves {
            self.store = stop.next;
            if !planted.has(Bug::LeavingPutCrosses) {
                self.queues.forget_puts();
            }
        }
        if planted.has(Bug::RefsRestartWithLog) {
            self.commands = 0;
        }
        self.format = stop.format;
        self
    }

    /// The format of this log.
    pub fn format(&self) -> u16 {
        self.format
    }

    /// Commands in the segment's whole history.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// The epoch of the segment's registers.
    pub fn store(&self) -> Epoch {
        self.store
    }

    /// The number of the last command that has changed a record of this segment's state; 0: it has
    /// none.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Whether this is a command that a client may have this segment's log order.
    pub fn takes(body: &Body) -> bool {
        let laboratory = cfg!(feature = "planted-bugs");
        matches!(body, Body::Lock(_)) || laboratory && matches!(body, Body::Transaction(_))
    }

    /// All refs up to here are past.
    pub fn floor(&self) -> LockRef {
        self.floor
    }

    /// The highest floor that could be set now: below every ref that waits or holds.
    pub fn highest_floor(&self) -> LockRef {
        let oldest = self.queues.refs().next();
        LockRef(oldest.map_or(self.commands, |(lock_ref, _)| lock_ref.0 - 1))
    }

    /// The lease table of a primary that has ended, if no later one has taken it.
    pub fn leases(&self) -> Option<&[ClientLease]> {
        self.leases.as_deref()
    }

    /// The lock queues.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The outcome of a command that has taken effect already.
    pub fn outcome(&self, session: SessionId, number: u64, planted: Planted) -> Option<Outcome> {
        let known = self.sessions.outcome(session, number)?;
        let forgotten = matches!(&known, Outcome::Refused(why) if why.code == Code::Forgotten);
        let again =
            planted.has(Bug::NoDeduplication) || forgotten && planted.has(Bug::ForgottenRunsAgain);
        (!again).then_some(known)
    }

    /// What this state says of a ref and generation that somebody names as its own for `key`.
    pub fn holder_state(&self, key: &KeyId, lock_ref: LockRef, generation: u32) -> HolderState {
        match self.queues.holder_state(key, lock_ref, generation) {
            Some(state) => state,
            None if lock_ref.0 <= self.commands => HolderState::Past,
            None => HolderState::Unknown,
        }
    }

    /// Applies the next command of the log.
    pub fn apply(&mut self, command: &Command, planted: Planted) -> Applied {
        self.commands += 1;
        let mut applied = Applied::at(self.commands);
        if command.session != Sessions::OWN
            && let Some(outcome) = self.outcome(command.session, command.number, planted)
        {
            applied.outcome = outcome;
            applied.repeated = true;
            return applied;
        }
        match &command.body {
            Body::Lock(body) => self.queues.apply(command, body, planted, &mut applied),
            Body::Group(_) => {
                applied.outcome = refused("a group's command does not belong to a segment");
            }
            #[cfg(feature = "planted-bugs")]
            Body::Transaction(body) if let Some(changes) = Puts::of(body) => {
                (applied.outcome, applied.changes) = (Outcome::Done, changes);
            }
            Body::Transaction(_) => {
                applied.outcome =
                    refused("this segment does not know such a command; nothing was changed");
            }
            Body::Segment(body) => applied.outcome = self.apply_own(body, planted),
        }
        self.sessions.remember(
            command.session,
            command.number,
            command.answered_through,
            applied.position,
            applied.outcome.clone(),
        );
        if let Some((session, number)) = applied.settles
            && !planted.has(Bug::LeavingPutNotRecorded)
        {
            self.sessions.left_cleanly(session, number);
        }
        if !applied.changes.is_empty() {
            self.recorded = applied.position;
        }
        self.assert_applied(&applied);
        applied
    }

    /// Checks what this command may have broken; in production, too, so that it looks at nothing
    /// that the command has not touched.
    fn assert_applied(&self, applied: &Applied) {
        for key in &applied.touched {
            self.queues.assert_key(key);
        }
        if let Some((oldest, _)) = self.queues.refs().next() {
            assert!(oldest > self.floor, "a ref up to the floor is past");
        }
    }

    fn apply_own(&mut self, body: &SegmentCommand, planted: Planted) -> Outcome {
        match body {
            SegmentCommand::Leases(table) => {
                self.leases = Some(table.clone());
                Outcome::Done
            }
            SegmentCommand::Floor(proposed) => {
                // What the proposer knew may be old; a floor that is raised stays.
                self.floor = self.floor.max(self.highest_floor().min(*proposed));
                Outcome::Done
            }
            SegmentCommand::LeasesTaken if self.leases.is_none() => Outcome::Gone,
            SegmentCommand::LeasesTaken => {
                if !planted.has(Bug::LeaseTableKept) {
                    self.leases = None;
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
        self.queues.assert_invariants();
        for (lock_ref, _) in self.queues.refs() {
            assert!(
                lock_ref.0 <= self.commands,
                "a ref is the number of a command"
            );
            assert!(lock_ref > self.floor, "a ref up to the floor is past");
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
