//! What the primary of a segment does beyond applying its log: it submits commands, reads or synchs
//! the values of the next holder, pushes grants and losses, and keeps the leases of clients. All of
//! it is volatile: a new primary starts empty, waits one client lease before it releases anybody,
//! unless the one before has stated its leases (`leases.rs`), and learns whom to push to from
//! renewals.

use super::grant::{Grants, Occasion};
use super::idle::Idle;
use super::leases::{
    LastWords, Leasing, Told, counted, leased_until, longest, patient_until, waiting_lease,
};
use super::message::{Message, Outcome, Rejection};
use super::state::{Queues, Ref};
use crate::base::{
    Ballot, Bug, Config, Epoch, KeyId, LockRef, Micros, NodeName, Now, Planted, SegmentId,
    SessionId, StoragePolicy, Tag,
};
use crate::catalogue::Catalogue;
use crate::command::{Body, Command, LockCommand, SegmentCommand};
use crate::io::{Effects, Env};
use crate::register::{self, Caller, Errand, OpId, Owner, Place};
use crate::request::{QueueEntry, RefState};
use crate::segment::{Applied, SegmentState, next_floor};
use crate::sessions::Sessions;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What a primary works with during one step.
pub struct PrimaryEnv<'a> {
    /// What every machine is given.
    pub env: Env<'a>,
    /// Quorum operations.
    pub registers: &'a mut Caller,
    /// Where the segment's registers are.
    pub place: &'a Place,
    /// The keyspaces, as this node knows them.
    pub catalogue: &'a Catalogue,
    /// Whether a quorum is bound to this primary: only then may it answer for the present.
    pub leased: bool,
    /// Which segment this is.
    pub segment: SegmentId,
}

impl PrimaryEnv<'_> {
    pub(super) fn start(&mut self, op: register::Op, errand: Errand) -> OpId {
        // Keys of a keyspace that is not known here yet have no queue.
        let known = self.catalogue.get(op.key().keyspace);
        let place = Place {
            storage: known.map_or(StoragePolicy::Replicated, |k| k.storage),
            ..self.place.clone()
        };
        let deadline = self.env.now.monotonic + self.env.timing.request;
        let owner = Owner::Primary(self.segment, op.key().clone(), errand);
        self.registers
            .start(op, owner, &place, deadline, &mut self.env)
    }

    /// An operation goes on for another errand.
    pub(super) fn pass_on(&mut self, op: OpId, key: &KeyId, errand: Errand) {
        let owner = Owner::Primary(self.segment, key.clone(), errand);
        self.registers.pass_on(op, owner);
    }
}

/// Who waits for the outcome of a command in flight.
#[derive(Debug, Default)]
pub(super) struct Pending {
    askers: Vec<(NodeName, u64)>,
    keys: Vec<KeyId>,
    /// The ref that it releases, counted in [`Holding::releases`].
    releases: Option<LockRef>,
}

impl Pending {
    /// The node that asked last: grants and losses go there.
    pub(super) fn waiter(&self) -> Option<NodeName> {
        self.askers.last().map(|(node, _)| *node)
    }
}

/// The volatile side of one ref.
#[derive(Debug)]
pub(super) struct Holding {
    /// Where grants and losses are pushed.
    pub(super) waiter: Option<NodeName>,
    /// That is the coordinator which has enqueued it, as an earlier primary has noted.
    guessed: bool,
    /// When its client was last heard; for a new primary, when it began to lead.
    pub(super) heard: Micros,
    /// When it was first seen to hold, by this primary.
    pub(super) entered: Option<Micros>,
    /// How long its section has lasted under the primaries before.
    pub(super) before: Micros,
    /// This primary, or one before it, has granted it, as far as is known.
    pub(super) granted: bool,
    /// What an earlier primary's table says of its lease, until it is heard.
    pub(super) told: Told,
    /// Not granted before this: until then an older generation's client may hold a lease.
    pub(super) free_at: Micros,
    /// It held when this primary began.
    pub(super) held: bool,
    /// So it did, and an earlier primary may or may not have granted it, or have a synch in flight.
    pub(super) inherited: bool,
    /// A forced release was asked for, and told to come again when the lease has run out, which is
    /// not renewed any more (F10).
    pub(super) ending: bool,
    /// The coordinators that were told so, each with its call and command: one of these commands
    /// ends the ref when its time is over, and all of them are told when it is past.
    enders: BTreeMap<NodeName, (u64, Command)>,
    /// Forced releases in flight. One that the log declines counts no more, so that it has changed
    /// nothing.
    releases: usize,
    /// When a forced release was proposed; it is proposed again if nothing comes of it.
    released: Option<Micros>,
}

impl Holding {
    /// Of a ref that nobody has seen to hold.
    fn new(waiter: Option<NodeName>, heard: Micros) -> Holding {
        Holding {
            waiter,
            guessed: false,
            heard,
            entered: None,
            before: 0,
            granted: false,
            told: Told::Nothing,
            free_at: 0,
            held: false,
            inherited: false,
            ending: false,
            enders: BTreeMap::new(),
            releases: 0,
            released: None,
        }
    }

    /// How long its section has lasted.
    pub(super) fn spent(&self, now: Now) -> Micros {
        let here = self
            .entered
            .map_or(0, |at| now.monotonic.saturating_sub(at));
        self.before + here
    }

    /// Whether its section has lasted its longest time, MUSIC's T: nothing that is said of it keeps
    /// it any longer (G58).
    pub(super) fn is_over(&self, known: &Ref, now: Now, planted: Planted) -> bool {
        self.spent(now) >= known.origin.section_max && !planted.has(Bug::OverByRenewalAlone)
    }

    /// Whether the ref gets no lease any more, neither by a renewal nor by a grant: a release of it
    /// waits (G7), or is being agreed (G10).
    pub(super) fn ends(&self) -> bool {
        self.ending || self.releases > 0 || self.released.is_some()
    }
}

/// A release of a ref that was not given yet, as far as is applied here, is agreed as one that
/// names none: the ref may be enqueued, granted and leased below it in the log, and nothing would
/// then wait for that lease (G18).
fn release_no_later(body: &mut Body, state: &SegmentState) {
    if let Body::Lock(LockCommand::Release { lock_ref, .. }) = body
        && lock_ref.0 > state.commands()
    {
        *lock_ref = LockRef(0);
    }
}

/// A ref that held under an earlier primary, and was not granted by this one, is dirty where it has
/// written nothing: a synch that was begun for it may be at one member, and without a flag nobody
/// would complete it (G29). A write of its own stands above that, and the key stays clean.
fn leave_no_cleaner(clean: &mut Vec<(KeyId, Option<Tag>)>, planted: Planted) {
    if !planted.has(Bug::InheritedLeavesClean) {
        clean.retain(|(_, written)| written.is_some());
    }
}

/// Tells a coordinator that its command was not taken.
fn reject(to: NodeName, call: u64, why: Rejection, fx: &mut Effects) {
    let answer = Message::Submitted {
        call,
        result: Err(why),
        ahead: 0,
    };
    fx.send(to, answer);
}

/// Tells a coordinator what its command has done, once that is durable.
fn answer(to: NodeName, call: u64, outcome: Outcome, ahead: u32, fx: &mut Effects) {
    let answer = Message::Submitted {
        call,
        result: Ok(outcome),
        ahead,
    };
    fx.promise(to, answer);
}

/// The primary of one segment, for one ballot.
#[derive(Debug)]
pub struct Primary {
    pub(super) segment: SegmentId,
    pending: BTreeMap<(SessionId, u64), Pending>,
    /// The keys that pending commands enqueue for, each with the number of such commands.
    wanted: BTreeMap<KeyId, usize>,
    pub(super) holdings: BTreeMap<LockRef, Holding>,
    pub(super) grants: Grants,
    /// Keys that nobody wants, to be synched.
    pub(super) idle: Idle,
    pub(super) proposals: Vec<Command>,
    /// Commands that nobody waits for: they travel before the next one, or with the next beat.
    unhurried: Vec<Command>,
    /// Whether it grants and renews.
    pub(super) leasing: Leasing,
    /// When it began.
    pub(super) since: Micros,
    pub(super) planted: Planted,
}

impl Primary {
    /// A node has begun to lead: `state` is the segment's with everything recovered applied. The
    /// `words` are those of the last primary of the log before, if this is the first one since.
    pub fn new(
        segment: SegmentId,
        (epoch, ballot): (Epoch, Ballot),
        state: &SegmentState,
        (now, words): (Now, Option<LastWords>),
        config: &Config,
    ) -> Primary {
        let queues = state.queues();
        let since = now.monotonic;
        let heard = if config.planted.has(Bug::NewPrimaryReleasesAtOnce) {
            0
        } else {
            since
        };
        let words = words.unwrap_or_default();
        let holding = |(lock_ref, known): (LockRef, &Ref)| {
            let held = queues.holds(lock_ref);
            let waits = !config.planted.has(Bug::ResumedGrantedAtOnce);
            let resumed = known.generation > 0 && waits;
            let granted = held && words.granted.contains(&lock_ref);
            let holding = Holding {
                free_at: u64::from(resumed)
                    * (since + counted(known.origin.lease, &config.timing, config.planted)),
                held,
                granted,
                inherited: held && !granted && !words.untold.contains(&lock_ref),
                guessed: true,
                ..Holding::new(Some(known.origin.node), heard)
            };
            (lock_ref, holding)
        };
        let holdings = queues.refs().map(holding).collect();
        let last = LockRef(state.commands());
        let mut primary = Primary {
            segment,
            pending: BTreeMap::new(),
            wanted: BTreeMap::new(),
            holdings,
            grants: Grants::new((epoch, ballot), last, words.untold),
            idle: Idle::new(queues, since, config.timing.request),
            proposals: Vec::new(),
            unhurried: Vec::new(),
            leasing: Leasing::new(state, now),
            since,
            planted: config.planted,
        };
        primary.propose_taking();
        primary
    }

    /// The ballot that it leads.
    pub fn ballot(&self) -> Ballot {
        self.grants.ballot()
    }

    /// A command was not taken by the log: it has no effect, and whoever asked is told so.
    pub fn declined(&mut self, id: (SessionId, u64), why: Rejection, fx: &mut Effects) {
        if !self.planted.has(Bug::SpeculationHeadOnly) {
            self.grants.forget_speculation(id);
        }
        let Some(pending) = self.take_pending(id) else {
            return;
        };
        for (node, call) in pending.askers {
            reject(node, call, why.clone(), fx);
        }
    }

    /// Whether a command of this identity is under way.
    pub fn awaits(&self, id: (SessionId, u64)) -> bool {
        self.pending.contains_key(&id)
    }

    /// Raises the floor, if it is below what somebody waits for (F8f: a deleted key's trace goes
    /// only below it).
    pub fn raise_floor(&mut self, wanted: LockRef, state: &SegmentState, planted: Planted) {
        let highest = state.highest_floor();
        if state.floor() < wanted && highest > state.floor() && self.leasing.is_open() {
            let floor = match planted.has(Bug::FloorRisesAtOnce) {
                true => highest,
                false => next_floor(state.floor(), wanted, highest),
            };
            let floor = self.own(Body::Segment(SegmentCommand::Floor(floor)));
            self.proposals.push(floor);
        }
    }

    /// Commands to propose.
    pub fn take_proposals(&mut self) -> Vec<Command> {
        if !self.proposals.is_empty() {
            self.proposals.splice(0..0, self.unhurried.drain(..));
        }
        core::mem::take(&mut self.proposals)
    }

    /// A coordinator submits a command. It is proposed unless it has taken effect already, is in
    /// flight, or must wait.
    pub fn on_submit(
        &mut self,
        from: NodeName,
        call: u64,
        mut command: Command,
        state: &SegmentState,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let queues = state.queues();
        let id = (command.session, command.number);
        if let Some(outcome) = state.outcome(command.session, command.number, cx.env.planted) {
            return self.answer_again(from, call, &command, outcome, queues, cx);
        }
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.askers.retain(|(node, _)| *node != from);
            pending.askers.push((from, call));
            return;
        }
        if !state.takes(&command.body) {
            return reject(from, call, Rejection::Elsewhere(None), cx.env.fx);
        }
        if self.pending.len() >= cx.env.limits.proposals {
            return reject(from, call, Rejection::Busy, cx.env.fx);
        }
        let mut releases = None;
        release_no_later(&mut command.body, state);
        let keys = match &mut command.body {
            Body::Lock(LockCommand::Enqueue { keys, .. }) if cx.catalogue.has_dead(keys) => {
                return reject(from, call, Rejection::NoSuchKeyspace, cx.env.fx);
            }
            Body::Lock(LockCommand::Enqueue { keys, .. }) => keys.clone(),
            // No ref on that key: the command is agreed all the same, and changes nothing.
            Body::Lock(LockCommand::Release { lock_ref, key })
                if !queues.is_on(*lock_ref, key.as_ref()) =>
            {
                Vec::new()
            }
            Body::Lock(LockCommand::Release { lock_ref, .. }) => {
                let lock_ref = *lock_ref;
                let left = self.lease_left(lock_ref, queues, cx);
                if left > 0 {
                    self.end_with_lease(lock_ref, from, call, command, cx);
                    return reject(from, call, Rejection::Leased(left), cx.env.fx);
                }
                releases = self.count_release(lock_ref, cx);
                Vec::new()
            }
            Body::Lock(LockCommand::Leave {
                lock_ref, clean, ..
            }) => {
                let holding = self.holdings.get(lock_ref);
                let free_at = holding.map_or(0, |h| h.free_at);
                let left = free_at.saturating_sub(cx.env.now.monotonic);
                if left > 0 && !cx.env.planted.has(Bug::LeaveBesideLease) {
                    return reject(from, call, Rejection::Leased(left), cx.env.fx);
                }
                if holding.is_some_and(|h| h.inherited && !h.granted) {
                    leave_no_cleaner(clean, cx.env.planted);
                }
                Vec::new()
            }
            _ => Vec::new(),
        };
        if self.are_free(&keys, queues) {
            self.grants.speculate(id, &keys, cx);
        }
        for key in &keys {
            *self.wanted.entry(key.clone()).or_default() += 1;
        }
        self.pending.insert(
            id,
            Pending {
                askers: alloc::vec![(from, call)],
                keys,
                releases,
            },
        );
        self.proposals.push(self.stamped(command, cx.env.now));
    }

    /// A forced release must wait for the lease. From here on the ref gets none any more, and
    /// `Leased` says so; every other refusal says that nothing has changed, and then nothing has.
    fn end_with_lease(
        &mut self,
        lock_ref: LockRef,
        from: NodeName,
        call: u64,
        command: Command,
        cx: &PrimaryEnv<'_>,
    ) {
        if let Some(holding) = self.holdings.get_mut(&lock_ref) {
            holding.ending |= !cx.env.planted.has(Bug::ReleasedRefLeased);
            holding.enders.insert(from, (call, command));
        }
    }

    /// A forced release is about to be proposed: while it is in flight the ref gets no lease.
    fn count_release(&mut self, lock_ref: LockRef, cx: &PrimaryEnv<'_>) -> Option<LockRef> {
        let holding = self.holdings.get_mut(&lock_ref)?;
        if cx.env.planted.has(Bug::ReleasedRefLeased) {
            return None;
        }
        holding.releases += 1;
        Some(lock_ref)
    }

    /// The lease of these has run out. A ref that somebody wants released is ended by that
    /// command, so that its outcome is known again when the request is repeated (F2). If nothing
    /// comes of it, since its session has gone on and forgotten it, the primary's own does it.
    fn propose_releases(&mut self, expired: Vec<(LockRef, bool)>, cx: &PrimaryEnv<'_>) {
        for (lock_ref, first) in expired {
            let holding = self.holdings.get(&lock_ref).filter(|_| first);
            let enders = holding.map(|h| h.enders.clone()).unwrap_or_default();
            if enders.is_empty() {
                let key = None;
                let release = self.own(Body::Lock(LockCommand::Release { lock_ref, key }));
                self.proposals.push(release);
            }
            for (node, (call, command)) in enders {
                let id = (command.session, command.number);
                if self.pending.contains_key(&id) {
                    continue;
                }
                let pending = Pending {
                    askers: alloc::vec![(node, call)],
                    keys: Vec::new(),
                    releases: self.count_release(lock_ref, cx),
                };
                self.pending.insert(id, pending);
                self.proposals.push(command);
            }
        }
    }

    /// Tells the client of a ref, and whoever wants it released, that it is past.
    fn tell_lost(&mut self, lock_ref: LockRef, removed: &Ref, cx: &mut PrimaryEnv<'_>) {
        let Some(holding) = self.holdings.remove(&lock_ref) else {
            return;
        };
        let waiter = holding.waiter;
        let enders = holding.enders.into_keys().filter(|n| Some(*n) != waiter);
        for node in waiter.into_iter().chain(enders) {
            let lost = Message::Lost {
                session: removed.session,
                segment: self.segment,
                lock_ref,
                generation: removed.generation,
            };
            cx.env.fx.promise(node, lost);
        }
    }

    /// Whether these are keys for which nobody waits, here or in flight: their values may be read
    /// ahead.
    fn are_free(&self, keys: &[KeyId], queues: &Queues) -> bool {
        // With a planted rule about speculation the second test is left out: it would hide it.
        let lax = self.planted.has(Bug::SpeculationNeverCancelled)
            || self.planted.has(Bug::SpeculationHeadOnly);
        let idle = |k| match queues.queue(k) {
            Some(queue) => queue.refs.is_empty() && self.grants.is_done(k, queue.flag),
            None => true,
        };
        let free = |k| idle(k) && (lax || !self.wanted.contains_key(k));
        !keys.is_empty() && keys.iter().all(free)
    }

    /// The command as it is proposed: with the primary's wall clock, for people.
    fn stamped(&self, mut command: Command, now: Now) -> Command {
        if let Body::Lock(
            LockCommand::Enqueue { origin, .. } | LockCommand::Resume { origin, .. },
        ) = &mut command.body
        {
            origin.since = now.wall;
        }
        command
    }

    /// How long a forced release of this ref must wait for the lease last granted (F10).
    fn lease_left(&self, lock_ref: LockRef, queues: &Queues, cx: &PrimaryEnv<'_>) -> Micros {
        if !queues.holds(lock_ref) {
            return 0;
        }
        let (Some(known), Some(holding)) = (queues.get(lock_ref), self.holdings.get(&lock_ref))
        else {
            return 0;
        };
        let counted = counted(known.origin.lease, cx.env.timing, cx.env.planted);
        let until = leased_until(holding.told, holding.heard, counted);
        until.saturating_sub(cx.env.now.monotonic)
    }

    /// A command is repeated that has taken effect: its outcome again, and the grant if it holds.
    fn answer_again(
        &mut self,
        from: NodeName,
        call: u64,
        command: &Command,
        outcome: Outcome,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let id = (command.session, command.number);
        let lock_ref = match (&outcome, &command.body) {
            (Outcome::Enqueued { lock_ref }, _) => Some(*lock_ref),
            (Outcome::Resumed { .. }, Body::Lock(LockCommand::Resume { lock_ref, .. })) => {
                // A later resumption has taken it over: its grant is not this command's.
                let known = queues.get(*lock_ref);
                known.and_then(|k| ((k.session, k.number) == id).then_some(*lock_ref))
            }
            _ => None,
        };
        let mut ahead = 0;
        if let Some(lock_ref) = lock_ref {
            // A ref that was resumed since is not this command's any more: a command that comes
            // late, or of the session before, neither keeps it nor turns its grants this way (G49).
            let own = |known: &&Ref| {
                (known.session, known.number) == id || cx.env.planted.asks_no_session()
            };
            let Some(known) = queues.get(lock_ref).filter(own) else {
                return answer(from, call, Outcome::Gone, 0, cx.env.fx);
            };
            ahead = queues.ahead(lock_ref);
            let generation = known.generation;
            self.attend((lock_ref, known), from, true, cx.env.now);
            if queues.holds(lock_ref) {
                self.grant_again(lock_ref, generation, queues, cx);
            }
        }
        answer(from, call, outcome, ahead, cx.env.fx);
    }

    /// The client behind a ref is alive, and its coordinator is `from`.
    ///
    /// A heartbeat may come through any node: grants go to the one that waits for them.
    fn attend(&mut self, known: (LockRef, &Ref), from: NodeName, waits: bool, now: Now) {
        let (lock_ref, known) = known;
        if let Some(holding) = self.holdings.get_mut(&lock_ref) {
            // The client of one that holds may have gone on elsewhere since it was enqueued.
            if waits || holding.waiter.is_none() || (holding.guessed && holding.held) {
                holding.waiter = Some(from);
                holding.guessed = false;
            }
            let lax = self.planted.has(Bug::ReleaseWaitsForever);
            let over = holding.is_over(known, now, self.planted);
            if lax || !(holding.ending || holding.releases > 0 || over) {
                holding.heard = now.monotonic;
                holding.told = Told::Nothing;
            }
        }
    }

    /// A command of the log was applied to `queues`, which is the state after it.
    pub fn applied(
        &mut self,
        command: &Command,
        applied: &Applied,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let id = (command.session, command.number);
        let own = command.session == Sessions::OWN;
        // That a put is at its quorum changes nothing of what is read: whoever reads ahead began
        // after that was known, or with the flag clear.
        let touched = match command.body {
            Body::Lock(LockCommand::PutDone { .. }) => &[][..],
            _ => &applied.touched[..],
        };
        let speculation =
            self.grants
                .take_speculation(id, touched, applied.repeated, cx.env.planted);
        if let Some((lock_ref, removed)) = &applied.removed {
            self.grants.stop(*lock_ref, cx);
            self.tell_lost(*lock_ref, removed, cx);
        }
        self.grants.note_left(applied, queues);
        let done = self.grants.note_put(applied, queues, cx);
        self.propose_clearing(done, queues);
        for key in &applied.touched {
            let (now, grace) = (cx.env.now.monotonic, cx.env.timing.request);
            self.idle.look(key, queues, now, grace);
        }
        let taken = matches!(command.body, Body::Segment(SegmentCommand::LeasesTaken));
        if taken && applied.outcome == Outcome::Done {
            self.take_table(queues, cx);
            self.push_all_ready(queues, cx);
        }
        let pending = if own { None } else { self.take_pending(id) };
        let mut told = false;
        match applied.outcome {
            Outcome::Enqueued { lock_ref } if !applied.repeated => {
                let waiter = pending.as_ref().and_then(Pending::waiter);
                let holding = Holding::new(waiter, cx.env.now.monotonic);
                self.holdings.insert(lock_ref, holding);
                if queues.holds(lock_ref) {
                    self.grants
                        .begin(lock_ref, 0, speculation, Occasion::First, queues, cx);
                    told = self.push_ready(lock_ref, queues, cx);
                } else {
                    self.grants
                        .keep_speculation(lock_ref, speculation, cx.env.planted);
                }
            }
            Outcome::Resumed { generation } if !applied.repeated => {
                if let Body::Lock(LockCommand::Resume { lock_ref, .. }) = &command.body {
                    told = self.resumed(*lock_ref, generation, pending.as_ref(), queues, cx);
                }
            }
            _ => {}
        }
        if !told && let Some(pending) = pending {
            let ahead = match applied.outcome {
                Outcome::Enqueued { lock_ref } => queues.ahead(lock_ref),
                _ => 0,
            };
            for (node, call) in pending.askers {
                answer(node, call, applied.outcome.clone(), ahead, cx.env.fx);
            }
        }
        self.grant_heads(&applied.next, queues, cx);
    }

    fn take_pending(&mut self, id: (SessionId, u64)) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        for key in &pending.keys {
            let wanted = self.wanted.get_mut(key).expect("counted when it came");
            *wanted -= 1;
            if *wanted == 0 {
                self.wanted.remove(key);
            }
        }
        let ended = pending.releases.and_then(|r| self.holdings.get_mut(&r));
        if let Some(holding) = ended {
            holding.releases -= 1;
        }
        Some(pending)
    }

    /// Whether a flagged key is as good as clear, and only the command that says so was lost.
    pub(super) fn clears_again(&mut self, key: &KeyId, queues: &Queues) -> bool {
        let flag = queues.queue(key).and_then(|q| q.flag);
        let done = flag.filter(|_| self.grants.is_done(key, flag));
        let command = |flag| LockCommand::PutDone {
            key: key.clone(),
            flag,
        };
        self.propose_own(done.map(command));
        done.is_some()
    }

    /// A flag is to be cleared that is taken for clear already. Where somebody comes in behind it
    /// nobody waits for that: proposed at once, it would keep the grant waiting for the disk.
    pub(super) fn propose_clearing(&mut self, done: Option<LockCommand>, queues: &Queues) {
        let Some(LockCommand::PutDone { key, .. }) = &done else {
            return;
        };
        if queues.queue(key).is_some_and(|q| !q.refs.is_empty()) {
            let command = done.map(|body| self.own(Body::Lock(body)));
            self.unhurried.extend(command);
        } else {
            self.propose_own(done);
        }
    }

    pub(super) fn propose_own(&mut self, body: Option<LockCommand>) {
        let command = body.map(|body| self.own(Body::Lock(body)));
        self.proposals.extend(command);
    }

    pub(super) fn own(&self, body: Body) -> Command {
        Command::new(Sessions::OWN, 0, 0, Epoch::FIRST, body)
    }

    /// Keeps the refs of a session alive and says how they stand; another's are none of it (G49).
    pub fn on_renew(
        &mut self,
        from: NodeName,
        session: SessionId,
        (refs, again): (&[(LockRef, u32)], &[LockRef]),
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> Vec<RefState> {
        let mut states = Vec::with_capacity(refs.len());
        for (lock_ref, generation) in refs {
            let anothers = queues.is_anothers((*lock_ref, *generation), session, cx.env.planted);
            states.push(match anothers {
                true => RefState::Gone,
                false => self.renew_one(from, *lock_ref, *generation, again, queues, cx),
            });
        }
        states
    }

    /// These refs, which are the session's own where they hold, have no lease any more: whoever
    /// resumes them waits for none (G14). That their client has entered says that it is past what
    /// the present generation had to wait for, whether this primary has granted it or not.
    pub fn relinquished(&mut self, refs: &[(LockRef, u32)], states: &[RefState]) {
        for ((lock_ref, _), state) in refs.iter().zip(states) {
            if matches!(state, RefState::Holding { .. })
                && let Some(holding) = self.holdings.get_mut(lock_ref)
            {
                (holding.told, holding.free_at) = (Told::NoLease, 0);
            }
        }
    }

    fn renew_one(
        &mut self,
        from: NodeName,
        lock_ref: LockRef,
        generation: u32,
        again: &[LockRef],
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> RefState {
        let Some(known) = queues.get(lock_ref) else {
            return RefState::Gone;
        };
        let lax = cx.env.planted.has(Bug::AnyGenerationRenewed);
        if known.generation != generation && !lax {
            return RefState::Gone;
        }
        if !queues.holds(lock_ref) {
            self.attend(
                (lock_ref, known),
                from,
                again.contains(&lock_ref),
                cx.env.now,
            );
            return RefState::Queued {
                ahead: queues.ahead(lock_ref),
            };
        }
        let Some(holding) = self.holdings.get_mut(&lock_ref) else {
            return RefState::Gone;
        };
        if holding.ends() && !cx.env.planted.has(Bug::ReleaseWaitsForever) {
            return RefState::Holding { lease: 0 };
        }
        holding.entered.get_or_insert(cx.env.now.monotonic);
        if holding.spent(cx.env.now) >= longest(known, cx) {
            // The lease runs out from here on; then the section ends (MUSIC's T).
            return RefState::Holding { lease: 0 };
        }
        self.attend(
            (lock_ref, known),
            from,
            again.contains(&lock_ref),
            cx.env.now,
        );
        if again.contains(&lock_ref) {
            self.grant_again(lock_ref, generation, queues, cx);
            return RefState::Queued { ahead: 0 };
        }
        // It holds, but by whose leave is not settled while the primary begins or ends.
        let open = self.leasing.is_open() || cx.env.planted.has(Bug::LeasesBeforeTable);
        RefState::Holding {
            lease: Micros::from(open) * known.origin.lease,
        }
    }

    /// A key's queue, head first, and its flag.
    pub fn listing(&self, key: &KeyId, queues: &Queues) -> (Vec<QueueEntry>, Option<u64>) {
        let Some(queue) = queues.queue(key) else {
            return (Vec::new(), None);
        };
        let entry = |lock_ref: &LockRef| {
            let known = queues.get(*lock_ref)?;
            Some(QueueEntry {
                lock_ref: *lock_ref,
                generation: known.generation,
                session: known.session,
                mode: known.mode,
                site: known.origin.site,
                since: known.origin.since,
                holds: queues.holds(*lock_ref),
                label: known.origin.label,
            })
        };
        (queue.refs.iter().filter_map(entry).collect(), queue.flag)
    }

    /// Releases refs whose client has been silent for a lease, and repeats reads that failed.
    pub fn tick(&mut self, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        if !cx.leased {
            return;
        }
        if !cx.env.planted.has(Bug::PutDoneUnhurriedForEver) {
            self.proposals.append(&mut self.unhurried);
        }
        let now = cx.env.now.monotonic;
        let mut expired = Vec::new();
        for (lock_ref, holding) in &mut self.holdings {
            let Some(known) = queues.get(*lock_ref) else {
                continue;
            };
            let short = cx.env.planted.has(Bug::RenewedWhateverLease)
                || cx.env.planted.has(Bug::ShortWaitReleased);
            let lease = match holding.granted || holding.inherited || short {
                true => known.origin.lease,
                false => waiting_lease(known.origin.lease, cx.env.timing),
            };
            let counted = counted(lease, cx.env.timing, cx.env.planted);
            let until = patient_until(holding.told, holding.heard, counted);
            // Once a release was proposed, nothing that is heard keeps the ref: it gets no lease
            // any more, so that its client, which resumes it, would wait for ever.
            let due = match holding.released {
                Some(proposed) => now >= proposed + 4 * cx.env.timing.retry,
                None => now >= until,
            };
            if due {
                let first = holding.released.replace(now).is_none();
                expired.push((*lock_ref, first));
            }
        }
        self.propose_releases(expired, cx);
        self.take_again(cx);
        self.grants.tick(queues, cx);
        self.push_all_ready(queues, cx);
    }

    /// When it wants to be stepped next; leases are looked at once per beat.
    pub fn wake(&self) -> Option<Micros> {
        self.grants.wake()
    }

    /// The ballot is lost: the waiters must ask the next primary. `dropped` was never proposed, so
    /// that it certainly has no effect.
    pub fn step_down(mut self, dropped: &[(SessionId, u64)], cx: &mut PrimaryEnv<'_>) {
        for (id, pending) in core::mem::take(&mut self.pending) {
            let why = match dropped.contains(&id) {
                true => Rejection::NotPrimary(None),
                false => Rejection::Overtaken,
            };
            for (node, call) in pending.askers {
                reject(node, call, why.clone(), cx.env.fx);
            }
        }
        self.grants.stop_all(cx);
    }
}
