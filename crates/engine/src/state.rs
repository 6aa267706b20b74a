//! The state of one key's lock row: the same queue as a segment of the native engine has, of one
//! key, and what else has to be agreed on.
//!
//! **Problem.** On the native engine a log orders commands, and a primary between commands keeps
//! leases and grants in its memory. Here nobody is between: every node reads and replaces the row,
//! and what two nodes must not see differently has to be in it.
//!
//! **Idea.** [`KeyState`] is [`Queues`], the very state machine of the native engine, for one key,
//! and [`KeyState::apply`] gives it the very same commands. Beside it stand, per ref: how often it
//! was renewed, so that whoever has seen a ref silent for its lease can end it *if it still is*; how
//! many synchs were begun for it, which is where their scalars come from; and whether its batch is
//! settled. A few answers are remembered, so that a command whose outcome was unknown is found
//! again.
//!
//! **Invariants.**
//! * A ref is the number of the command that enqueued it, in the row's whole history; rows are never
//!   deleted, so refs only grow (F11.3).
//! * Every change of a flag is the same update as the removal that causes it (M1).
//! * At most one synch of a ref settles at a time: the one that was begun last ([`Step::Settle`]).
//!   Another that is begun later reads what this one has written.
//! * Readers of one batch are granted what the first of them has settled (F19, G9).

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
const FORMAT: u8 = 1;
/// Refs that may wait for one key: a row is read and written whole.
pub const QUEUE_MAX: usize = 1_000;
/// Answers that a row remembers.
const REMEMBERED: usize = 64;

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
    /// Renewals so far: who has seen this number for a whole lease has seen the ref silent.
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
    /// Commands so far, on top of a number that the first ref was made from.
    position: u64,
    queues: Queues,
    extras: BTreeMap<LockRef, Extra>,
    /// The batch of readers at the head has its value.
    settled: bool,
    outcomes: VecDeque<(SessionId, u64, Outcome)>,
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
    /// The state of a key that is used for the first time, now since 1970.
    pub fn new(now: Duration) -> KeyState {
        KeyState {
            format: FORMAT,
            position: Scalar::before_first_ref(now),
            queues: Queues::default(),
            extras: BTreeMap::new(),
            settled: false,
            outcomes: VecDeque::new(),
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

    /// Commands so far: every ref up to here was given.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Nobody holds or waits, and the value is defined.
    pub fn is_idle(&self) -> bool {
        self.queues.is_idle(&this_key())
    }

    /// The flag: who holds must synch first.
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

    /// Whether the value of the batch of readers at the head is settled.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Applies a step. The same step a second time changes nothing, and says the same as long as
    /// what it did is there or remembered.
    pub fn apply(&mut self, step: &Step, planted: Planted) -> Done {
        let done = match step {
            Step::Command(command) => Done::Command(self.command(command, planted)),
            Step::Renew {
                lock_ref,
                generation,
                wall,
            } => self.renew(*lock_ref, *generation, *wall),
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
        self.forget();
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
        self.queues.apply(command, body, exact, &mut applied);
        if planted.has(Bug::FlagForgotten) && self.flag() != flag {
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
        let known = self.outcomes.iter().find(|(s, n, _)| (*s, *n) == id);
        if let Some((_, _, outcome)) = known {
            return Some(outcome.clone());
        }
        let lock_ref = self.queues.by_command(id)?;
        match body {
            LockCommand::Enqueue { .. } => Some(Outcome::Enqueued { lock_ref }),
            LockCommand::Resume { .. } => Some(Outcome::Resumed {
                generation: self.queues.get(lock_ref)?.generation,
            }),
            _ => None,
        }
    }

    fn refusal(&self, body: &LockCommand) -> Option<Refusal> {
        let waiting = self.queue().map_or(0, |queue| queue.refs.len());
        match body {
            LockCommand::Enqueue { .. } if waiting >= QUEUE_MAX => Some(Refusal::definite(
                Code::Busy,
                "too many wait for this key already; try again later",
            )),
            LockCommand::Resume { generation, .. } if generation + 1 >= GENERATIONS => {
                Some(Refusal::definite(
                    Code::BadRequest,
                    "this section was resumed too often; leave it and enter again",
                ))
            }
            _ => None,
        }
    }

    fn remember(&mut self, command: &Command, outcome: Outcome) {
        let (session, answered) = (command.session, command.answered_through);
        self.outcomes
            .retain(|(s, n, _)| *s != session || *n > answered);
        self.outcomes.push_back((session, command.number, outcome));
        if self.outcomes.len() > REMEMBERED {
            self.outcomes.pop_front();
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

    fn renew(&mut self, lock_ref: LockRef, generation: u32, wall: u64) -> Done {
        let holds = self.queues.holds(lock_ref);
        self.with(lock_ref, Some(generation), |extra, known| {
            if holds && extra.held_since == 0 {
                extra.held_since = wall;
            }
            let held = wall.saturating_sub(extra.held_since);
            if extra.ending || (holds && held > known.origin.section_max) {
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

    /// Forgets what belongs to refs that are gone, and the batch that has ended.
    fn forget(&mut self) {
        let queues = &self.queues;
        self.extras
            .retain(|lock_ref, _| queues.get(*lock_ref).is_some());
        let head = self.refs().next().map(|(_, known, _)| known.mode);
        if head != Some(Mode::Shared) || self.flag().is_some() {
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
