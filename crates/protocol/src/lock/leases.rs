//! Client leases across a change of primary.
//!
//! **Problem.** A primary that begins does not know which leases the one before it has granted, so
//! it takes every ref as heard at that moment and waits one full lease before it releases anybody
//! (F10). Where the change was planned, a dead holder keeps its key for up to a lease more than it
//! should.
//!
//! **Idea.** A primary that is about to end, since its log stops or since it hands the log over,
//! states its leases as the last command that it proposes: the *lease table*, in the segment's
//! state from there on. From that very step it renews nothing, and grants nothing to whom the table
//! names. A primary that begins and finds a table proposes `LeasesTaken`, which removes it, and
//! only when that is applied does it grant, renew, and use what the table says: a ref in it keeps
//! its lease for the time that was left, lengthened by the drift bound and counted from when this
//! primary began. One that held, and that it does not name, may have been granted since. Without a
//! table it waits the full lease.
//!
//! Who ends a log *goes on* to grant until it knows that the end is chosen: a ref that was enqueued
//! just before does not wait for the next log. When it knows, it says in its *last words*, in a
//! message to whoever leads the next log first, which of the refs that hold it has granted, so that
//! nothing is in flight in their names but what they put, and which nobody has granted, nor begun a
//! synch for. The first are granted again by a read, and leave cleanly; the second are granted like
//! those that the next primary has seen come to hold, without the synch of G2. Where the words are
//! lost, or come late, all that hold are synched.
//!
//! **Invariants.**
//! * *A table in the state is true.* Let primary P with ballot b have proposed it. P has granted
//!   nothing since to whom it names. Primaries of lower ballots have lost their read lease before P
//!   began. A leader of a higher ballot, or of the successor log, has recovered every entry that
//!   was or can still be chosen below its own `Begin`: so it either finds the table applied when it
//!   begins, and grants nothing before its own `LeasesTaken` is applied, or the table is never
//!   chosen. So as long as the table is there, nobody has granted or renewed what it names since it
//!   was proposed.
//! * *A table is used once.* `LeasesTaken` removes it from the state, in the log, before its
//!   proposer grants anything. A later primary finds none and waits the full lease. If the one that
//!   took it dies before `LeasesTaken` is chosen, it has granted nothing, and the next one takes
//!   it.
//! * *Who has a lease is named, or holds when the next primary begins.* A primary leases only refs
//!   that hold in its applied state, and a ref holds until it is removed. Refs that were enqueued
//!   behind them, or after, have no lease.
//! * *Last words are true.* Who says them knows that the end is chosen, and has applied everything
//!   below: nobody leads that log any more, and it itself grants nothing and begins nothing. They
//!   are used by the primary of ballot 0 of the next log alone, when it begins: nobody was primary
//!   between.
//!
//! The table says as well how long each section has lasted, so that its longest time (MUSIC's T)
//! does not start anew with each primary (G31): a duration, since the clocks of two nodes have
//! nothing in common. A primary that dies states none, and T starts anew once.
//!
//! The time that passes between the two primaries is counted for nobody: the holder may be silent
//! for it. Time left on the old primary's clock is the longer for its drift already; it is
//! lengthened once more, and never beyond the full lease.
//!
//! **Departures.** MUSIC has no leases.

use super::primary::{Primary, PrimaryEnv};
use super::state::{Queues, Ref};
use crate::base::{Ballot, Bug, LockRef, LogId, Micros, Now, Planted, Timing};
use crate::command::{Body, ClientLease, Command, SegmentCommand};
use crate::request::Mode;
use crate::segment::SegmentState;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The longest time of a section: the enqueue's, whatever its keyspace says by now (G60).
pub(super) fn longest(known: &Ref, cx: &PrimaryEnv<'_>) -> Micros {
    let key = known.keys.first();
    match key.and_then(|key| cx.catalogue.get(key.keyspace)) {
        Some(now) if cx.env.planted.has(Bug::ChangedTermsAtOnce) => now.section_max,
        _ => known.origin.section_max,
    }
}

/// A table is at most so long; with more holders none is stated. Nor is more said in last words.
const LEASES_MAX: usize = 10_000;

/// What a primary says of the refs that hold when the end of its log is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWords {
    /// It has granted these: nothing is in flight in their names but what their clients put.
    pub granted: BTreeSet<LockRef>,
    /// Nobody has granted these, nor begun a synch in their names.
    pub untold: BTreeSet<LockRef>,
}

impl LastWords {
    /// What was said of a log, as far as the primary of this ballot may believe it: that of ballot
    /// 0, before which there was none.
    pub fn believed(
        said: Option<(LogId, LastWords)>,
        (log, ballot): (LogId, Ballot),
        planted: Planted,
    ) -> Option<LastWords> {
        let (of, words) = said?;
        let first = ballot.round == 0 || planted.has(Bug::WordsOfAnother);
        (of == log && first).then_some(words)
    }

    /// Whether they say nothing.
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.untold.is_empty()
    }
}

/// Whether a primary grants and renews.
#[derive(Debug)]
pub(super) enum Leasing {
    /// It has found a table, and has not taken it yet: nothing.
    Taking {
        /// The table.
        table: Vec<ClientLease>,
        /// When `LeasesTaken` was proposed last.
        proposed: Micros,
    },
    /// It does.
    Open,
    /// It has stated its table and ends the log: it grants to whom the table does not name.
    Ending {
        /// Whom it names.
        named: BTreeSet<LockRef>,
    },
    /// It has stated its table, or tried to: nothing any more.
    Closed,
}

impl Leasing {
    /// For a primary that begins in this state.
    pub(super) fn new(state: &SegmentState, now: Now) -> Leasing {
        match state.leases() {
            Some(table) => Leasing::Taking {
                table: table.to_vec(),
                proposed: now.monotonic,
            },
            None => Leasing::Open,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Leasing::Open)
    }

    /// Whether this ref may be granted.
    pub(super) fn grants(&self, lock_ref: LockRef) -> bool {
        match self {
            Leasing::Open => true,
            Leasing::Ending { named } => !named.contains(&lock_ref),
            Leasing::Taking { .. } | Leasing::Closed => false,
        }
    }

    /// The command that takes the table, where there is one to take.
    pub(super) fn taking(&self) -> Option<Body> {
        let taking = matches!(self, Leasing::Taking { .. });
        taking.then_some(Body::Segment(SegmentCommand::LeasesTaken))
    }
}

/// What a table has told of a ref that this primary has not heard of since.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    /// Nothing, or it was heard.
    Nothing,
    /// Its lease runs out then.
    Until(Micros),
    /// It has no lease.
    NoLease,
}

/// How long a lease counts for a primary: by its own clock, which may be fast, and the client's may
/// be slow.
pub(super) fn counted(lease: Micros, timing: &Timing, planted: Planted) -> Micros {
    match planted.has(Bug::ReleaseIgnoresDrift) {
        true => lease,
        false => timing.lengthened(lease),
    }
}

/// When the lease that a ref may have runs out: no forced release before.
pub(super) fn leased_until(told: Told, heard: Micros, counted: Micros) -> Micros {
    match told {
        Told::Nothing => heard + counted,
        Told::Until(until) => until,
        Told::NoLease => 0,
    }
}

/// When a ref that stays silent is released. A ref without a lease may still have a client.
pub(super) fn patient_until(told: Told, heard: Micros, counted: Micros) -> Micros {
    match told {
        Told::Until(until) => until,
        Told::Nothing | Told::NoLease => heard + counted,
    }
}

/// How long one who waits may be silent: a lease shorter than the way of a renewal is asked for
/// once one holds, not before (G48).
pub(super) fn waiting_lease(lease: Micros, timing: &Timing) -> Micros {
    lease.max(4 * timing.retry)
}

/// When a ref counts as heard that is granted now. Its lease runs since it was heard as a waiter,
/// and may end before the grant and the first renewal have gone their way (G48).
pub(super) fn granted_at(heard: Micros, now: Now, lease: Micros, timing: &Timing) -> Micros {
    let least_left = lease.min(4 * timing.retry);
    heard.max((now.monotonic + least_left).saturating_sub(lease))
}

impl Primary {
    /// The primary hands its log over. From now on it grants and renews nothing; returned is the
    /// command that states its leases, to be proposed in this very step as its last. None where
    /// nobody holds, or the holders are too many. A primary that has found a table, and has not
    /// taken it yet, states the same one (G31).
    pub fn close(&mut self, queues: &Queues, now: Now, timing: &Timing) -> Option<Command> {
        let holders = queues.refs().filter(|(r, _)| queues.holds(*r));
        let lease = |(r, known)| self.lease_of(r, known, now, timing);
        let table = holders.filter_map(lease).collect();
        self.state_leases(Leasing::Closed, table)
    }

    /// The same where the primary ends its log. It goes on to grant until the end is known to be
    /// chosen, but to nobody who may have been granted so far; and it names those alone.
    pub fn end(&mut self, queues: &Queues, now: Now, timing: &Timing) -> Option<Command> {
        let holders = queues.refs().filter(|(r, _)| queues.holds(*r));
        let told = holders.filter(|(r, known)| self.may_be_told(*r, known));
        let lease = |(r, known)| self.lease_of(r, known, now, timing);
        let table: Vec<ClientLease> = told.filter_map(lease).collect();
        let named = table.iter().map(|lease| lease.lock_ref).collect();
        self.state_leases(Leasing::Ending { named }, table)
    }

    fn state_leases(&mut self, next: Leasing, table: Vec<ClientLease>) -> Option<Command> {
        match core::mem::replace(&mut self.leasing, Leasing::Closed) {
            Leasing::Open => {}
            // The table that it has found stays true, for it has granted nothing; and the word that
            // takes it may be on its way already.
            Leasing::Taking { table, .. } => {
                let stated = !self.planted.has(Bug::TableStatedOnce);
                return stated.then(|| self.own(Body::Segment(SegmentCommand::Leases(table))));
            }
            ended @ (Leasing::Ending { .. } | Leasing::Closed) => {
                self.leasing = ended;
                return None;
            }
        }
        self.leasing = next;
        let stated = !table.is_empty() && table.len() <= LEASES_MAX;
        stated.then(|| self.own(Body::Segment(SegmentCommand::Leases(table))))
    }

    /// What the primary knows of those that hold, once the end of its log is known to be chosen.
    /// Of no more than fit a frame: a ref takes ten bytes at most.
    pub fn last_words(&self, queues: &Queues, frame: usize) -> LastWords {
        let mut words = LastWords::default();
        let holders = queues.refs().filter(|(r, _)| queues.holds(*r));
        for (lock_ref, known) in holders.take(LEASES_MAX.min(frame / 20)) {
            let Some(holding) = self.holdings.get(&lock_ref) else {
                continue;
            };
            let omits = self.planted.has(Bug::WordsOmitSynchs);
            let synched = self.grants.has_synched(lock_ref) && !omits;
            match holding.granted {
                // The front of a batch of readers is synched for whenever one comes behind it.
                true if known.mode == Mode::Shared => false,
                true => words.granted.insert(lock_ref),
                false if self.may_be_told(lock_ref, known) || synched => false,
                false => words.untold.insert(lock_ref),
            };
        }
        words
    }

    /// Whether a ref that holds may have been told so, by this primary or one before it.
    fn may_be_told(&self, lock_ref: LockRef, known: &Ref) -> bool {
        let holding = self.holdings.get(&lock_ref);
        known.generation > 0 || holding.is_some_and(|h| h.granted || h.inherited)
    }

    fn lease_of(
        &self,
        lock_ref: LockRef,
        known: &Ref,
        now: Now,
        timing: &Timing,
    ) -> Option<ClientLease> {
        let holding = self.holdings.get(&lock_ref)?;
        // A holder without a lease may be alive all the same: it is not released the sooner.
        // The grant of a resumed ref waits for nothing later, but where this primary, when it
        // began, counted a whole lease for want of a better knowledge, as the next one will.
        let counted = counted(known.origin.lease, timing, self.planted);
        let until = patient_until(holding.told, holding.heard, counted);
        Some(ClientLease {
            lock_ref,
            left: until.saturating_sub(now.monotonic),
            spent: holding.spent(now),
        })
    }

    /// `LeasesTaken` has removed the table from the state: it is this primary's alone.
    pub(super) fn take_table(&mut self, queues: &Queues, cx: &PrimaryEnv<'_>) {
        let Leasing::Taking { table, .. } = &self.leasing else {
            return;
        };
        let lax = cx.env.planted.has(Bug::UnnamedHasNoLease);
        let table: BTreeMap<LockRef, ClientLease> =
            table.iter().map(|lease| (lease.lock_ref, *lease)).collect();
        self.leasing = Leasing::Open;
        for (lock_ref, holding) in &mut self.holdings {
            let Some(known) = queues.get(*lock_ref) else {
                continue;
            };
            let spent = table.get(lock_ref).map_or(0, |lease| lease.spent);
            if spent > 0 && !cx.env.planted.has(Bug::SectionTimeRestarts) {
                holding.before = spent;
                holding.entered = Some(self.since);
            }
            // A ref that was heard since, or came since, is counted from then, but for a section
            // whose longest time is over: it was given no lease, and gets none (G58).
            let over = holding.is_over(known, cx.env.now, cx.env.planted);
            if holding.heard > self.since && !over {
                continue;
            }
            // A generation that is younger than the table has no lease: nobody could give it one.
            // The one before it has what the table says.
            let counted = counted(known.origin.lease, cx.env.timing, cx.env.planted);
            holding.told = match table.get(lock_ref) {
                Some(lease) => {
                    Told::Until(self.since + counted.min(cx.env.timing.lengthened(lease.left)))
                }
                // It may have been granted after the table was stated.
                None if holding.held && !lax => Told::Nothing,
                None => Told::NoLease,
            };
        }
    }

    /// `LeasesTaken` was not taken by the log, or its proposal was lost: once more.
    pub(super) fn take_again(&mut self, cx: &PrimaryEnv<'_>) {
        let now = cx.env.now.monotonic;
        if let Leasing::Taking { proposed, .. } = &mut self.leasing
            && *proposed + 4 * cx.env.timing.retry <= now
        {
            *proposed = now;
            self.propose_taking();
        }
    }

    pub(super) fn propose_taking(&mut self) {
        let taking = self.leasing.taking().map(|body| self.own(body));
        self.proposals.extend(taking);
    }
}
