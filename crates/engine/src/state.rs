//! The state of one key's lock row: the same queue as a segment of the native engine has, of one
//! key, and what else has to be agreed on.
//!
//! **Problem.** On the native engine a log orders commands, and a primary between commands keeps
//! leases and grants in its memory. Here nobody is between: every node reads and replaces the row,
//! and what two nodes must not see differently has to be in it.
//!
//! **Idea.** [`KeyState`] is [`Queues`], the very state machine of the native engine, for one key,
//! and [`KeyState::apply`] gives it the very same commands. Beside it stand, per ref: how often it
//! was renewed, so that whoever has seen a ref silent for its lease can end it *if it still is*;
//! how many synchs were begun for it, which is where their scalars come from; and whether its batch
//! is settled. A few answers are remembered, so that a command whose outcome was unknown is found
//! again.
//!
//! **Invariants.**
//! * A ref is the number of the command that enqueued it, in the row's whole history; rows are
//!   never deleted, so refs only grow (F11.3).
//! * Every change of a flag is the same update as the removal that causes it (M1).
//! * At most one synch of a ref settles at a time: the one that was begun last ([`Step::Settle`]).
//!   Another that is begun later reads what this one has written.
//! * Readers of one batch are granted what the first of them has settled (F19, G9), and after a
//!   settlement nothing is adopted for the same head (G5).

use crate::planted::{Bug, Planted};
use crate::scalar::{ATTEMPTS, GENERATIONS, Scalar};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId, LockRef, SessionId};
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::lock::{Outcome, Queue, Queues, Ref};
use fermata_protocol::request::{Code, Mode, Refusal};
use fermata_protocol::segment::Applied;
use fermata_protocol::sessions::Sessions;
use fermata_protocol::{base, wire};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The layout of a row's state, first in its bytes.
const FORMAT: u8 = 3;
/// Refs that may wait for one key: a row is read and written whole.
pub const QUEUE_MAX: usize = 1_000;
/// Sessions that a row remembers.
const SESSIONS: usize = 64;
/// Answers that it remembers of each.
const ANSWERS: usize = 8;

/// What the commands and queues of a row name instead of its key: a row does not say whose it is.
pub fn this_key() -> KeyId {
    KeyId {
        keyspace: KeyspaceId(0),
        key: Bytes::new(),
    }
}

/// A command of the row's own, which nobody repeats.
fn own(body: LockCommand) -> Command {
    Command::new(Sessions::OWN, 0, 0, base::Epoch::FIRST, Body::Lock(body))
}

/// What a ref has beside its place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// Renewals so far: an observer that sees this number for a whole lease has seen the ref
    /// silent.
    pub renewals: u32,
    /// Synchs begun in the present generation.
    pub attempts: u32,
    /// Wall clock at the first renewal as a holder, microseconds since 1970; 0: none yet.
    pub held_since: u64,
    /// Somebody has asked for its end: it is renewed no more.
    pub ending: bool,
}

/// The state of one key's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyState {
    format: u8,
    /// Updates of the row so far.
    revision: u64,
    /// Commands so far, on top of a number that the first ref was made from.
    position: u64,
    queues: Queues,
    extras: BTreeMap<LockRef, Extra>,
    /// The value is settled of the ref at the head, or of the batch of readers there.
    settled: bool,
    /// The longest silent first.
    sessions: VecDeque<Session>,
}

/// What a row remembers of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    id: SessionId,
    /// Up to here nobody repeats a request.
    answered: u64,
    outcomes: VecDeque<(u64, Outcome)>,
}

/// One change of a row. All are safe to apply twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command as in the native log, to [`this_key`].
    Command(Command),
    /// The ref is alive.
    Renew {
        /// The ref.
        lock_ref: LockRef,
        /// Its generation.
        generation: u32,
        /// Who says so; a ref of another session is not renewed (G49).
        of: SessionId,
        /// The node's wall clock, microseconds since 1970.
        wall: u64,
    },
    /// End the ref, if it is as it was when it was seen to be silent.
    Expire {
        /// The ref.
        lock_ref: LockRef,
        /// Its generation then.
        generation: u32,
        /// Its renewals then.
        renewals: u32,
    },
    /// Renew the ref no more: its end was asked for, and comes when its lease has run out (F10).
    End {
        /// The ref.
        lock_ref: LockRef,
    },
    /// Begin a synch for a ref that holds.
    Attempt {
        /// The ref.
        lock_ref: LockRef,
        /// Its generation.
        generation: u32,
    },
    /// The synch has its quorum: the key's value is settled, unless another synch was begun.
    Settle {
        /// The ref.
        lock_ref: LockRef,
        /// Its generation.
        generation: u32,
        /// What [`Step::Attempt`] gave.
        attempt: u32,
        /// The flag that it has taken care of (F18).
        flag: Option<u64>,
    },
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A command's outcome.
    Command(Outcome),
    /// `Renew`, `Expire`, `End`, `Settle`: it is so. `Attempt`: this is its number.
    Yes(u32),
    /// The ref, or that generation of it, is not in the queue; or it is not as it was.
    Gone,
    /// The ref holds nothing yet; or another synch was begun since.
    No,
    /// No more synchs, or resumptions, in this section.
    Exhausted,
}

impl KeyState {
    /// The state of a key that is used for the first time, now since 1970; no ref is below
    /// `lowest`.
    pub fn new(now: Duration, lowest: LockRef) -> KeyState {
        KeyState {
            format: FORMAT,
            revision: 0,
            position: Scalar::before_first_ref(now).max(lowest.0.saturating_sub(1)),
            queues: Queues::default(),
            extras: BTreeMap::new(),
            settled: false,
            sessions: VecDeque::new(),
        }
    }

    /// The state in a row's bytes.
    ///
    /// # Errors
    /// One sentence where the bytes are none of this version's.
    pub fn decode(bytes: &[u8]) -> Result<KeyState, String> {
        match wire::decode::<KeyState>(bytes) {
            Ok(state) if state.format == FORMAT => Ok(state),
            _ => Err(format!(
                "a lock row of {} bytes was not written by this version: do not change the lock \
                 table by hand, and do not mix versions",
                bytes.len()
            )),
        }
    }

    /// A row's bytes.
    pub fn encode(&self) -> Bytes {
        wire::encode(self)
    }

    /// Updates so far: of two states of one row, the later one has more.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts the update that is about to be made.
    pub(crate) fn revise(&mut self) {
        self.revision += 1;
    }

    /// Commands so far: every ref up to here was given.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Nobody holds or waits, and the value is defined.
    pub fn is_idle(&self) -> bool {
        self.queues.is_idle(&this_key())
    }

    /// The flag: the holder must synch first.
    pub fn flag(&self) -> Option<u64> {
        self.queue().and_then(|queue| queue.flag)
    }

    fn queue(&self) -> Option<&Queue> {
        self.queues.queue(&this_key())
    }

    /// Refs in the queue, head first.
    pub fn refs(&self) -> impl Iterator<Item = (LockRef, &Ref, Extra)> {
        let refs = self.queue().into_iter().flat_map(|queue| queue.refs.iter());
        refs.filter_map(|r| Some((*r, self.queues.get(*r)?, self.extra(*r))))
    }

    /// A ref in the queue.
    pub fn get(&self, lock_ref: LockRef) -> Option<&Ref> {
        self.queues.get(lock_ref)
    }

    /// What a ref has beside.
    pub fn extra(&self, lock_ref: LockRef) -> Extra {
        self.extras.get(&lock_ref).copied().unwrap_or_default()
    }

    /// Refs ahead of this one.
    pub fn ahead(&self, lock_ref: LockRef) -> u32 {
        self.queues.ahead(lock_ref)
    }

    /// Whether the ref holds the key in this generation.
    pub fn holds(&self, lock_ref: LockRef, generation: u32) -> bool {
        let known = self.queues.get(lock_ref);
        known.is_some_and(|known| known.generation == generation) && self.queues.holds(lock_ref)
    }

    /// Whether the ref is the first.
    pub fn is_front(&self, lock_ref: LockRef) -> bool {
        self.queues.is_front(&this_key(), lock_ref)
    }

    /// Whether the value of the ref at the head, or of the batch of readers there, is settled.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Applies a step. The same step a second time changes nothing, and says the same as long as
    /// what it did is there or remembered.
    pub fn apply(&mut self, step: &Step, planted: Planted) -> Done {
        let head = self.head();
        let done = match step {
            Step::Command(command) => Done::Command(self.command(command, planted)),
            Step::Renew {
                lock_ref,
                generation,
                of,
                wall,
            } => self.renew((*lock_ref, *generation), *of, *wall),
            Step::Expire {
                lock_ref,
                generation,
                renewals,
            } => self.expire(*lock_ref, *generation, *renewals, planted),
            Step::End { lock_ref } => self.with(*lock_ref, None, |extra, _| {
                extra.ending = true;
                Done::Yes(0)
            }),
            Step::Attempt {
                lock_ref,
                generation,
            } => self.attempt(*lock_ref, *generation, planted),
            Step::Settle {
                lock_ref,
                generation,
                attempt,
                flag,
            } => self.settle(*lock_ref, *generation, *attempt, *flag, planted),
        };
        self.forget(head);
        done
    }

    fn command(&mut self, command: &Command, planted: Planted) -> Outcome {
        let Body::Lock(body) = &command.body else {
            let text = "a lock row takes lock commands only; nothing was changed";
            return Outcome::Refused(Refusal::definite(Code::BadRequest, text));
        };
        if let Some(outcome) = self.earlier(command, body) {
            return outcome;
        }
        if let Some(refusal) = self.refusal(body) {
            return Outcome::Refused(refusal);
        }
        self.position += 1;
        let mut applied = Applied::at(self.position);
        let exact = fermata_protocol::base::Planted::NONE;
        let flag = self.flag();
        let read = self.settled && self.head().is_some_and(|(_, shared)| shared);
        self.queues.apply(command, body, exact, &mut applied);
        // Readers write nothing: once the value of their batch is settled, nothing that any of them
        // leaves behind is in doubt. A synch that is under way all the same writes that very value.
        let read = read && !matches!(body, LockCommand::Resume { .. });
        if (read || planted.has(Bug::FlagForgotten)) && self.flag() != flag {
            self.clear(self.flag());
        }
        if let Outcome::Resumed { .. } = applied.outcome
            && let LockCommand::Resume { lock_ref, .. } = body
        {
            let extra = self.extras.entry(*lock_ref).or_default();
            extra.attempts = 0;
            extra.renewals = extra.renewals.wrapping_add(1);
            if self.is_front(*lock_ref) {
                self.settled = false;
            }
        }
        if command.session != Sessions::OWN {
            self.remember(command, applied.outcome.clone());
        }
        applied.outcome
    }

    /// The outcome of a command that has been applied before.
    fn earlier(&self, command: &Command, body: &LockCommand) -> Option<Outcome> {
        if command.session == Sessions::OWN {
            return None;
        }
        let id = (command.session, command.number);
        if let Some(outcome) = self.outcome(id) {
            return Some(outcome);
        }
        // One row has one key's queue, which is read as a whole for each command: this is no cost.
        let mut refs = self.queues.refs();
        let (lock_ref, _) = refs.find(|(_, known)| (known.session, known.number) == id)?;
        match body {
            LockCommand::Enqueue { .. } => Some(Outcome::Enqueued { lock_ref }),
            LockCommand::Resume { .. } => Some(Outcome::Resumed {
                generation: self.queues.get(lock_ref)?.generation,
            }),
            _ => None,
        }
    }

    /// What is remembered of a client's command.
    pub fn outcome(&self, (session, number): (SessionId, u64)) -> Option<Outcome> {
        let known = self.sessions.iter().find(|known| known.id == session)?;
        let outcome = known.outcomes.iter().find(|(n, _)| *n == number);
        match outcome {
            Some((_, outcome)) => Some(outcome.clone()),
            // A copy that the network has kept: a second time it would be another request.
            None if number <= known.answered => Some(Outcome::Refused(Refusal::unknown(
                Code::Forgotten,
                "this request was answered before and its answer is forgotten; ask for the state \
                 instead of repeating it",
            ))),
            None => None,
        }
    }

    fn refusal(&self, body: &LockCommand) -> Option<Refusal> {
        let waiting = self.queue().map_or(0, |queue| queue.refs.len());
        match body {
            LockCommand::Enqueue { .. } if waiting >= QUEUE_MAX => Some(Refusal::definite(
                Code::Busy,
                "too many wait for this key already; try again later",
            )),
            LockCommand::Resume { generation, .. } if *generation >= GENERATIONS - 1 => {
                Some(Refusal::definite(
                    Code::BadRequest,
                    "this section was resumed too often; leave it and enter again",
                ))
            }
            LockCommand::Resume {
                lock_ref, origin, ..
            } if self.is_over(*lock_ref, origin.since) => Some(Refusal::definite(
                Code::NoLongerHolder,
                "this section has lasted its keyspace's longest time, and ends with its lease; \
                 enter a new one",
            )),
            _ => None,
        }
    }

    fn remember(&mut self, command: &Command, outcome: Outcome) {
        let id = command.session;
        let place = self.sessions.iter().position(|known| known.id == id);
        let known = place.and_then(|place| self.sessions.remove(place));
        let mut known = known.unwrap_or(Session {
            id,
            answered: 0,
            outcomes: VecDeque::new(),
        });
        known.answered = known.answered.max(command.answered_through);
        known
            .outcomes
            .retain(|(number, _)| *number > known.answered);
        known.outcomes.push_back((command.number, outcome));
        if known.outcomes.len() > ANSWERS {
            known.outcomes.pop_front();
        }
        self.sessions.push_back(known);
        if self.sessions.len() > SESSIONS {
            self.sessions.pop_front();
        }
    }

    /// What `change` makes of a ref that is in the queue, in this generation where one is given.
    fn with(
        &mut self,
        lock_ref: LockRef,
        generation: Option<u32>,
        change: impl FnOnce(&mut Extra, &Ref) -> Done,
    ) -> Done {
        match self.queues.get(lock_ref) {
            Some(known) if generation.is_none_or(|g| g == known.generation) => {
                change(self.extras.entry(lock_ref).or_default(), known)
            }
            _ => Done::Gone,
        }
    }

    /// Whether a ref is another session's (see [`Queues::is_anothers`]).
    pub fn is_anothers(&self, held: (LockRef, u32), of: SessionId) -> bool {
        let exact = fermata_protocol::base::Planted::NONE;
        self.queues.is_anothers(held, of, exact)
    }

    /// Whether a holder's section has lasted its longest time, MUSIC's T: nothing that is said of
    /// it keeps it any longer (G58). The time counts from the first renewal.
    fn is_over(&self, lock_ref: LockRef, wall: u64) -> bool {
        let since = self.extras.get(&lock_ref).map_or(0, |e| e.held_since);
        let longest = self.queues.get(lock_ref).map(|k| k.origin.section_max);
        since > 0
            && self.queues.holds(lock_ref)
            && longest.is_some_and(|longest| wall.saturating_sub(since) > longest)
    }

    fn renew(&mut self, (lock_ref, generation): (LockRef, u32), of: SessionId, wall: u64) -> Done {
        if self.is_anothers((lock_ref, generation), of) {
            return Done::Gone;
        }
        let (holds, over) = (self.queues.holds(lock_ref), self.is_over(lock_ref, wall));
        self.with(lock_ref, Some(generation), |extra, _| {
            if holds && extra.held_since == 0 {
                extra.held_since = wall;
            }
            if extra.ending || over {
                return Done::No;
            }
            extra.renewals = extra.renewals.wrapping_add(1);
            Done::Yes(0)
        })
    }

    fn expire(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        renewals: u32,
        planted: Planted,
    ) -> Done {
        let silent = self.with(lock_ref, Some(generation), |extra, _| {
            match extra.renewals == renewals || planted.has(Bug::ExpireUnconditional) {
                true => Done::Yes(0),
                false => Done::No,
            }
        });
        if silent == Done::Yes(0) {
            let release = LockCommand::Release {
                lock_ref,
                key: None,
            };
            self.command(&own(release), planted);
        }
        silent
    }

    fn attempt(&mut self, lock_ref: LockRef, generation: u32, planted: Planted) -> Done {
        if self.queues.get(lock_ref).is_some() && !self.queues.holds(lock_ref) {
            return Done::No;
        }
        self.with(lock_ref, Some(generation), |extra, _| {
            if planted.has(Bug::SynchWithoutAttempt) && extra.attempts == 1 {
                return Done::Yes(1);
            }
            if extra.attempts >= ATTEMPTS {
                return Done::Exhausted;
            }
            extra.attempts += 1;
            Done::Yes(extra.attempts)
        })
    }

    fn settle(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        attempt: u32,
        flag: Option<u64>,
        planted: Planted,
    ) -> Done {
        let holds = self.holds(lock_ref, generation);
        let done = self.with(lock_ref, Some(generation), |extra, _| {
            let latest = extra.attempts == attempt || planted.has(Bug::OvertakenSettles);
            match holds && latest {
                true => Done::Yes(0),
                false => Done::No,
            }
        });
        if done == Done::Yes(0) {
            self.clear(flag);
            self.settled = true;
        }
        done
    }

    /// Clears the flag if it is still this one (F18).
    fn clear(&mut self, flag: Option<u64>) {
        let Some(flag) = flag else { return };
        let key = this_key();
        let command = own(LockCommand::SynchDone { key, flag });
        let Body::Lock(done) = &command.body else {
            return;
        };
        let exact = fermata_protocol::base::Planted::NONE;
        let mut applied = Applied::at(self.position);
        self.queues.apply(&command, done, exact, &mut applied);
    }

    /// The first ref, and whether it only reads.
    fn head(&self) -> Option<(LockRef, bool)> {
        let (lock_ref, known, _) = self.refs().next()?;
        Some((lock_ref, known.mode == Mode::Shared))
    }

    /// Forgets what belongs to refs that are gone; what was settled is, for the ref that is the
    /// head, or for its batch of readers, unless a flag has been set since.
    fn forget(&mut self, before: Option<(LockRef, bool)>) {
        let queues = &self.queues;
        self.extras
            .retain(|lock_ref, _| queues.get(*lock_ref).is_some());
        let goes_on = match (before, self.head()) {
            (Some((_, true)), Some((_, true))) => true,
            (before, head) => before == head,
        };
        if !goes_on || self.flag().is_some() {
            self.settled = false;
        }
    }

    /// Checks what must hold after every step.
    ///
    /// # Panics
    /// If it does not.
    pub fn assert_invariants(&self) {
        self.queues.assert_invariants();
        for (lock_ref, ..) in self.refs() {
            assert!(lock_ref.0 <= self.position, "a ref is a command's number");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Label, NodeName, SiteId};
    use fermata_protocol::command::Origin;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn origin(lease: u64) -> Origin {
        Origin {
            node: NodeName(1),
            site: SiteId(0),
            since: 1,
            lease,
            section_max: 1_000,
            label: Label::NONE,
        }
    }

    fn command(session: u128, number: u64, body: LockCommand) -> Step {
        let body = Body::Lock(body);
        let epoch = base::Epoch::FIRST;
        Step::Command(Command::new(SessionId(session), number, 0, epoch, body))
    }

    fn enqueue(session: u128, number: u64, mode: Mode) -> Step {
        let keys = vec![this_key()];
        let origin = origin(100);
        command(session, number, LockCommand::Enqueue { keys, mode, origin })
    }

    fn leave(session: u128, number: u64, lock_ref: LockRef, clean: bool) -> Step {
        let clean = clean.then(|| (this_key(), None)).into_iter().collect();
        let leave = LockCommand::Leave {
            lock_ref,
            generation: 0,
            of: SessionId(session),
            clean,
            put: None,
            waiting_only: false,
        };
        command(session, number, leave)
    }

    fn resume(session: u128, number: u64, lock_ref: LockRef, generation: u32, of: u128) -> Step {
        let resume = LockCommand::Resume {
            lock_ref,
            generation,
            of: SessionId(of),
            origin: origin(100),
        };
        command(session, number, resume)
    }

    fn renew(session: u128, lock_ref: LockRef, wall: u64) -> Step {
        Step::Renew {
            lock_ref,
            generation: 0,
            of: SessionId(session),
            wall,
        }
    }

    /// A state to which steps are applied as a node does: encoded, decoded, and twice if its answer
    /// was lost.
    struct Row(KeyState);

    impl Row {
        fn new() -> Row {
            Row(KeyState::new(NOW, LockRef(1)))
        }

        fn step(&mut self, step: &Step) -> Done {
            let done = self.0.apply(step, Planted::NONE);
            self.0.assert_invariants();
            let bytes = self.0.encode();
            assert_eq!(KeyState::decode(&bytes).as_ref(), Ok(&self.0));
            done
        }

        fn enter(&mut self, session: u128, number: u64, mode: Mode) -> LockRef {
            match self.step(&enqueue(session, number, mode)) {
                Done::Command(Outcome::Enqueued { lock_ref }) => lock_ref,
                other => panic!("not enqueued: {other:?}"),
            }
        }
    }

    fn settle(lock_ref: LockRef, attempt: u32, flag: Option<u64>) -> Step {
        Step::Settle {
            lock_ref,
            generation: 0,
            attempt,
            flag,
        }
    }

    fn attempt(lock_ref: LockRef) -> Step {
        Step::Attempt {
            lock_ref,
            generation: 0,
        }
    }

    #[test]
    fn a_command_takes_effect_once() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        assert_eq!(row.enter(1, 1, Mode::Exclusive), first);
        let left = Done::Command(Outcome::Left { clean: true });
        assert_eq!(row.step(&leave(1, 2, first, true)), left);
        assert_eq!(row.step(&leave(1, 2, first, true)), left, "remembered");
        assert_eq!(
            row.step(&leave(1, 3, first, true)),
            Done::Command(Outcome::Gone)
        );
        assert!(row.0.is_idle());
        assert!(row.enter(1, 4, Mode::Exclusive) > first, "refs only grow");
    }

    #[test]
    fn an_entry_is_its_own_memory() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        for session in 2..2 * SESSIONS as u128 {
            let other = row.enter(session, 1, Mode::Exclusive);
            row.step(&leave(session, 2, other, true));
        }
        assert_eq!(row.enter(1, 1, Mode::Exclusive), first);
    }

    #[test]
    fn a_late_copy_of_an_answered_request_is_no_new_one() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        let Step::Command(mut leave) = leave(1, 2, first, true) else {
            unreachable!("a leave is a command");
        };
        leave.answered_through = 1;
        row.step(&Step::Command(leave));
        let late = row.step(&enqueue(1, 1, Mode::Exclusive));
        let forgotten = |refusal: &Refusal| refusal.code == Code::Forgotten;
        assert!(
            matches!(&late, Done::Command(Outcome::Refused(refusal)) if forgotten(refusal)),
            "{late:?}"
        );
        assert!(row.0.is_idle());
    }

    #[test]
    fn a_dirty_head_leaves_its_flag_and_a_dirty_waiter_none() {
        let mut row = Row::new();
        let (first, second) = (
            row.enter(1, 1, Mode::Exclusive),
            row.enter(2, 1, Mode::Exclusive),
        );
        row.step(&leave(2, 2, second, false));
        assert_eq!(row.0.flag(), None);
        row.step(&leave(1, 2, first, false));
        assert_eq!(row.0.flag(), Some(row.0.position()));
        assert!(!row.0.is_idle());
    }

    #[test]
    fn another_session_neither_renews_nor_leaves_nor_resumes() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        assert_eq!(row.step(&renew(2, first, 500)), Done::Gone);
        assert_eq!(row.0.extra(first).renewals, 0);
        for step in [leave(2, 1, first, true), resume(2, 2, first, 0, 2)] {
            let Done::Command(Outcome::Refused(why)) = row.step(&step) else {
                panic!("not refused: {step:?}");
            };
            assert_eq!(why.code, Code::NotHolder);
        }
        assert!(row.0.holds(first, 0));
        let resumed = row.step(&resume(2, 3, first, 0, 1));
        assert_eq!(resumed, Done::Command(Outcome::Resumed { generation: 1 }));
    }

    #[test]
    fn a_section_that_has_lasted_its_longest_time_is_not_resumed() {
        for (since, resumes) in [(1_500, true), (1_501, false)] {
            let mut row = Row::new();
            let first = row.enter(1, 1, Mode::Exclusive);
            row.step(&renew(1, first, 500));
            let resume = LockCommand::Resume {
                lock_ref: first,
                generation: 0,
                of: SessionId(1),
                origin: Origin {
                    since,
                    ..origin(100)
                },
            };
            let resumed = Done::Command(Outcome::Resumed { generation: 1 });
            assert_eq!(row.step(&command(2, 1, resume)) == resumed, resumes);
        }
    }

    #[test]
    fn who_has_renewed_is_not_expired() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        let (generation, renewals) = (0, 0);
        let renew = renew(1, first, 500);
        let expire = |renewals| Step::Expire {
            lock_ref: first,
            generation,
            renewals,
        };
        assert_eq!(row.step(&renew), Done::Yes(0));
        assert_eq!(row.step(&expire(renewals)), Done::No);
        assert!(row.0.holds(first, 0));
        assert_eq!(row.step(&expire(1)), Done::Yes(0));
        assert_eq!(
            (row.0.get(first), row.0.flag()),
            (None, Some(row.0.position()))
        );
        assert_eq!(
            row.step(&renew),
            Done::Gone,
            "a late renewal brings nothing back"
        );
        assert_eq!(row.step(&expire(1)), Done::Gone);
    }

    #[test]
    fn a_section_that_is_too_long_or_ending_is_renewed_no_more() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        assert_eq!(row.step(&renew(1, first, 500)), Done::Yes(0));
        assert_eq!(row.step(&renew(1, first, 1_500)), Done::Yes(0));
        assert_eq!(row.step(&renew(1, first, 1_501)), Done::No);
        let second = row.enter(2, 1, Mode::Exclusive);
        assert_eq!(row.step(&Step::End { lock_ref: second }), Done::Yes(0));
        assert_eq!(row.step(&renew(2, second, 500)), Done::No);
    }

    #[test]
    fn only_the_latest_synch_settles() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        row.step(&leave(1, 2, first, false));
        let flag = row.0.flag();
        let second = row.enter(2, 1, Mode::Exclusive);
        assert_eq!(row.step(&attempt(second)), Done::Yes(1));
        assert_eq!(row.step(&attempt(second)), Done::Yes(2));
        assert_eq!(row.step(&settle(second, 1, flag)), Done::No);
        assert_eq!(row.0.flag(), flag);
        assert_eq!(row.step(&settle(second, 2, flag)), Done::Yes(0));
        assert_eq!(row.0.flag(), None);
        assert_eq!(row.step(&settle(second, 2, flag)), Done::Yes(0), "again");
        row.step(&leave(2, 2, second, false));
        let third = row.enter(3, 1, Mode::Exclusive);
        assert_eq!(row.step(&attempt(third)), Done::Yes(1));
        assert_eq!(row.step(&settle(third, 1, flag)), Done::Yes(0));
        assert_ne!(
            row.0.flag(),
            None,
            "a later flag is not cleared by an earlier synch (F18)"
        );
    }

    #[test]
    fn who_waits_begins_no_synch() {
        let mut row = Row::new();
        row.enter(1, 1, Mode::Exclusive);
        let second = row.enter(2, 1, Mode::Exclusive);
        assert_eq!(row.step(&attempt(second)), Done::No);
        assert_eq!(row.step(&attempt(LockRef(1))), Done::Gone);
    }

    #[test]
    fn no_ref_is_below_the_lowest() {
        let clock = KeyState::new(NOW, LockRef(1)).position;
        for lowest in [1, clock, clock + 2, 1 << 42] {
            let first = KeyState::new(NOW, LockRef(lowest)).position + 1;
            assert_eq!(first, lowest.max(clock + 1));
        }
    }

    #[test]
    fn attempts_and_resumptions_are_bounded() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        for number in 1..=ATTEMPTS {
            assert_eq!(row.step(&attempt(first)), Done::Yes(number));
        }
        assert_eq!(row.step(&attempt(first)), Done::Exhausted);
        for generation in 0..GENERATIONS - 1 {
            let resumed = Outcome::Resumed {
                generation: generation + 1,
            };
            let number = u64::from(generation) + 2;
            let step = resume(1, number, first, generation, 1);
            assert_eq!(row.step(&step), Done::Command(resumed.clone()));
            assert_eq!(row.step(&step), Done::Command(resumed), "again");
        }
        let last = row.step(&resume(1, 99, first, GENERATIONS - 1, 1));
        assert!(
            matches!(last, Done::Command(Outcome::Refused(_))),
            "{last:?}"
        );
        assert_eq!(
            row.step(&attempt(first)),
            Done::Gone,
            "of the first generation"
        );
    }

    #[test]
    fn a_resumed_holder_is_flagged_and_starts_its_synchs_anew() {
        let mut row = Row::new();
        let first = row.enter(1, 1, Mode::Exclusive);
        row.step(&attempt(first));
        row.step(&resume(2, 1, first, 0, 1));
        assert_eq!(row.0.flag(), Some(row.0.position()));
        assert!(!row.0.holds(first, 0) && row.0.holds(first, 1));
        let again = Step::Attempt {
            lock_ref: first,
            generation: 1,
        };
        assert_eq!(row.step(&again), Done::Yes(1));
    }

    #[test]
    fn a_batch_of_readers_is_settled_until_it_ends_or_is_flagged() {
        let mut row = Row::new();
        let (first, second) = (row.enter(1, 1, Mode::Shared), row.enter(2, 1, Mode::Shared));
        assert!(row.0.holds(first, 0) && row.0.holds(second, 0));
        row.step(&attempt(first));
        row.step(&settle(first, 1, None));
        assert!(row.0.is_settled());
        row.step(&leave(1, 2, first, true));
        assert!(row.0.is_settled(), "the others read on");
        let third = row.enter(3, 1, Mode::Shared);
        row.step(&leave(2, 2, second, false));
        assert!(
            row.0.is_settled() && row.0.flag().is_none(),
            "nothing is in doubt"
        );
        row.step(&leave(3, 2, third, false));
        assert!(!row.0.is_settled() && row.0.is_idle());
        let fourth = row.enter(4, 1, Mode::Shared);
        assert!(!row.0.is_settled() && row.0.holds(fourth, 0));
        row.step(&attempt(fourth));
        row.step(&leave(4, 2, fourth, false));
        assert!(row.0.flag().is_some(), "its synch may be under way");
    }

    #[test]
    fn queues_and_bytes_have_bounds() {
        let mut row = Row::new();
        for session in 1..=QUEUE_MAX as u128 {
            row.enter(session, 1, Mode::Exclusive);
        }
        let before = row.0.clone();
        let full = row.step(&enqueue(u128::MAX, 1, Mode::Exclusive));
        assert!(
            matches!(full, Done::Command(Outcome::Refused(_))),
            "{full:?}"
        );
        assert_eq!(row.0, before, "a refusal changes nothing");
        let bytes = row.0.encode();
        assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
        assert!(KeyState::decode(&bytes[1..]).is_err() && KeyState::decode(b"").is_err());
    }
}
