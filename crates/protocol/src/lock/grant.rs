//! Grants: what must be known of every key before its next holder enters.
//!
//! A ref that has come to hold all its keys is *granted* once each key's latest value is certain:
//!
//! * flag set: a fenced synch (F1: late puts are refused; F4: each attempt has its own tag);
//! * flag clear: the value read while the enqueue was being agreed, if it may be used (F3: nothing
//!   has touched the key since); the local copy, if the last holder left cleanly with exactly its
//!   tag; else a quorum read after the apply;
//! * the eventual cell is newer: it is adopted by a fenced synch (F6: else it is hidden for ever).
//!
//! Five rules beyond these, each with the schedule that breaks its absence:
//!
//! * G1. *An adoption is a fenced synch, and whoever began one for a ref never falls back to a
//!   plain read.* Otherwise: an adoption is stored at A only and its primary dies; the next primary
//!   reads B and C, which show neither the eventual value nor the adoption, and grants the old
//!   value; the holder's second get reads A.
//! * G2. *A new primary that must grant a ref which held before it led runs a synch*, since the
//!   primary before it may have begun an adoption (the same schedule). Not where that one has said
//!   in its last words that it has not (`leases.rs`).
//! * G5. *Only the first grant of a ref, by the primary that saw it become head, adopts.* A grant
//!   that is prepared again, since its push may be lost, reads the critical cell alone: the first
//!   one may have arrived, and its holder must not find another value. The eventual put is then
//!   ordered before the section.
//! * G9. *The front of a batch of readers settles a key for all of them*: it alone synchs or
//!   adopts, and nobody behind it reads before that is done. If the front itself still waits for
//!   another key, or was granted by an earlier primary, its primary settles the key in its name,
//!   and adopts unless some ref of the batch held before: that one may have been told a value.
//!   Otherwise: a second reader enters with the old value, and the front then adopts a newer one
//!   under its feet. And the front may go while its synch is in flight, so that its removal sets
//!   the flag.
//! * G3. *A ref that leaves without having been told of its grant leaves dirty*; a synch or
//!   adoption in its name may be in flight. (The coordinator's rule; the flag then makes the next
//!   holder synch.)

use super::PrimaryEnv;
use super::message::Latest;
use super::state::Queues;
use crate::base::{
    Address, Ballot, Bug, Epoch, KeyId, LockRef, Micros, Now, Planted, SessionId, Tag,
};
use crate::command::LockCommand;
use crate::register::{Errand, Holder, Op, OpEnd, OpId, local_critical};
use crate::request::{EntryValue, Mode};
use crate::segment::Applied;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;

/// A failed read or synch is tried again after so long.
const PAUSE: Micros = 50_000;

/// How many retry times the next holder waits for word of a put beside which the last one left, so
/// that one that was lost once is not fenced while it is repeated.
const PUTS_WAIT: u64 = 2;

/// Why a grant is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The ref has come to hold, before this primary's eyes.
    First,
    /// The push of an earlier grant of this primary may be lost.
    Again,
    /// It held before this primary led, and may or may not have been granted: it is synched (G2).
    Inherited,
    /// Its client goes on in a new generation.
    Resumed,
}

/// How far one key of a grant is.
#[derive(Debug)]
enum Task {
    /// A reader behind the first of its batch: only the first synchs or adopts (F19).
    Behind,
    /// Reading at a quorum without a fence.
    Reading(OpId),
    /// Synching; the flag that it will clear, if one was set.
    Synching(OpId, Option<u64>),
    /// Failed; again from this time on, by a synch if one was begun.
    Paused { until: Micros, synch: bool },
    /// Known. A value beyond the grant's room is not kept.
    Ready(EntryValue, Tag),
}

impl Task {
    /// The operation that it waits for.
    fn op(&self) -> Option<OpId> {
        match self {
            Task::Reading(op) | Task::Synching(op, _) => Some(*op),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Preparation {
    generation: u32,
    /// A newer eventual value is adopted: by the first grant alone (G5).
    adopts: bool,
    /// Keys are synched although no flag is set: the ref held before this primary led (G2).
    synchs: bool,
    /// Keys are read although a flag is set: their synch is complete, only not yet noted.
    reads: bool,
    /// Bytes of values that it may still carry ([`crate::base::Limits::grant`]).
    room: usize,
    tasks: BTreeMap<KeyId, Task>,
}

/// A value read while the enqueue was being agreed.
#[derive(Debug)]
pub(super) struct Speculation {
    reads: BTreeMap<KeyId, SpeculativeRead>,
    /// A command touched one of the keys since the read began, or the leadership changed.
    cancelled: bool,
}

#[derive(Debug)]
enum SpeculativeRead {
    Running(OpId),
    Done(OpEnd),
}

/// All grants in preparation at one primary.
#[derive(Debug)]
pub(super) struct Grants {
    epoch: Epoch,
    ballot: Ballot,
    /// Refs up to this one were queued before this primary began: an earlier one may have granted
    /// them,
    before: LockRef,
    /// but for these, as that one has said.
    untold: BTreeSet<LockRef>,
    /// Refs in whose name a synch was begun under this primary.
    synched: BTreeSet<LockRef>,
    /// Attempts of synchs, over all refs: never repeated within a ballot.
    attempt: u32,
    grants: BTreeMap<LockRef, Preparation>,
    speculations: BTreeMap<(SessionId, u64), Speculation>,
    /// Which of them reads a key; a key that another pending command wants is not read.
    reads: BTreeMap<KeyId, (SessionId, u64)>,
    /// Keys whose last holder left cleanly with this tag, and nothing has happened since.
    left: BTreeMap<KeyId, Tag>,
    /// Keys held by a batch of readers whose value is certain under this primary, each with the
    /// flag that its synch clears: the flag stands until `SynchDone` is applied.
    settled: BTreeMap<KeyId, Option<u64>>,
    /// Keys whose settling in their front's name has failed, and when it may be tried again:
    /// something of it may be in flight, so that the front does not read but synch (G1).
    unsettled: BTreeMap<KeyId, Micros>,
    /// Keys whose flag was set beside a put that was under way: that flag, and whether the put is
    /// known to be at its quorum, which makes the key as good as clear. Not any more once a synch
    /// has begun under the flag: that one clears it.
    words: BTreeMap<KeyId, (u64, bool)>,
    /// Puts that are known to be at their quorum before the leave beside them is applied.
    early: BTreeMap<KeyId, Tag>,
    /// Keys that are being settled in the name of a front that is not being granted.
    settling: BTreeMap<KeyId, OpId>,
    // What the tasks say, in the orders in which it is asked for: a batch of readers may be as long
    // as a queue, and each command and each outcome asks. [`Grants::set`] keeps it so.
    /// Keys with a task that is [`Task::Behind`].
    behind: BTreeSet<(KeyId, LockRef)>,
    /// Keys of which something has changed that whoever is behind waits for.
    stirred: BTreeSet<KeyId>,
    /// Tasks that are [`Task::Paused`].
    paused: BTreeSet<(Micros, LockRef, KeyId)>,
    /// Grants whose tasks are all [`Task::Ready`].
    ready: BTreeSet<LockRef>,
    /// Only for the planted rule that never cancels.
    kept: BTreeMap<LockRef, Speculation>,
}

impl Grants {
    pub(super) fn new(
        (epoch, ballot): (Epoch, Ballot),
        before: LockRef,
        untold: BTreeSet<LockRef>,
    ) -> Grants {
        Grants {
            epoch,
            ballot,
            before,
            untold,
            synched: BTreeSet::new(),
            attempt: 0,
            grants: BTreeMap::new(),
            speculations: BTreeMap::new(),
            reads: BTreeMap::new(),
            left: BTreeMap::new(),
            settled: BTreeMap::new(),
            words: BTreeMap::new(),
            early: BTreeMap::new(),
            settling: BTreeMap::new(),
            behind: BTreeSet::new(),
            stirred: BTreeSet::new(),
            paused: BTreeSet::new(),
            ready: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    pub(super) fn ballot(&self) -> Ballot {
        self.ballot
    }

    pub(super) fn running(&self, lock_ref: LockRef) -> bool {
        self.grants.contains_key(&lock_ref)
    }

    pub(super) fn is_ready(&self, lock_ref: LockRef) -> bool {
        let ready =
            |grant: &Preparation| grant.tasks.values().all(|t| matches!(t, Task::Ready(..)));
        self.grants.get(&lock_ref).is_some_and(ready)
    }

    pub(super) fn untold(&self, lock_ref: LockRef) -> bool {
        self.untold.contains(&lock_ref)
    }

    /// Whether a synch was begun in the name of a ref under this primary.
    pub(super) fn has_synched(&self, lock_ref: LockRef) -> bool {
        self.synched.contains(&lock_ref)
    }

    pub(super) fn ready(&self) -> Vec<LockRef> {
        self.ready.iter().copied().collect()
    }

    /// The values of a grant that is ready; it is then no longer in preparation.
    pub(super) fn take(&mut self, lock_ref: LockRef) -> Vec<Latest> {
        let grant = self.remove(lock_ref).expect("ready");
        let latest = |(key, task)| match task {
            Task::Ready(value, tag) => Latest { key, value, tag },
            _ => unreachable!("all keys of a ready grant are known"),
        };
        grant.tasks.into_iter().map(latest).collect()
    }

    /// Keys without a queue or flag are read while their enqueue is being agreed.
    pub(super) fn speculate(
        &mut self,
        id: (SessionId, u64),
        keys: &[KeyId],
        cx: &mut PrimaryEnv<'_>,
    ) {
        let mut reads = BTreeMap::new();
        for key in keys {
            let read = Op::Entry {
                key: key.clone(),
                holder: None,
            };
            let op = cx.start(read, Errand::Ahead(id));
            reads.insert(key.clone(), SpeculativeRead::Running(op));
            let other = self.reads.insert(key.clone(), id);
            let other = other.filter(|other| *other != id);
            let lax = cx.env.planted.has(Bug::SpeculationHeadOnly);
            let other = other.and_then(|other| self.speculations.get_mut(&other));
            if let Some(other) = other.filter(|_| !lax) {
                // A command that touches the key from here on would cancel only the newer one.
                other.cancelled = true;
            }
        }
        self.speculations.insert(
            id,
            Speculation {
                reads,
                cancelled: false,
            },
        );
    }

    /// The enqueue has its outcome, or was not taken by the log: its read must not serve a later
    /// attempt, which comes under the same number (G23). Reads that are under way end by
    /// themselves, for nobody, unless a grant goes on with them.
    pub(super) fn forget_speculation(&mut self, id: (SessionId, u64)) -> Option<Speculation> {
        let speculation = self.speculations.remove(&id)?;
        for key in speculation.reads.keys() {
            if self.reads.get(key) == Some(&id) {
                self.reads.remove(key);
            }
        }
        Some(speculation)
    }

    /// A read ahead has ended: it counts where that very read is waited for (G23).
    pub(super) fn speculation_read(
        &mut self,
        (id, key): ((SessionId, u64), &KeyId),
        op: OpId,
        outcome: OpEnd,
        planted: Planted,
    ) {
        let speculation = self.speculations.get_mut(&id);
        if let Some(read) = speculation.and_then(|s| s.reads.get_mut(key)) {
            let awaited = matches!(read, SpeculativeRead::Running(own) if *own == op);
            if awaited || planted.has(Bug::SpeculationByName) {
                *read = SpeculativeRead::Done(outcome);
            }
        }
    }

    /// A command was applied: its own speculation, if it has one; every other one that reads a key
    /// which the command touched is cancelled.
    pub(super) fn take_speculation(
        &mut self,
        id: (SessionId, u64),
        touched: &[KeyId],
        repeated: bool,
        planted: Planted,
    ) -> Option<Speculation> {
        let own = self.forget_speculation(id).filter(|_| !repeated);
        let lax =
            planted.has(Bug::SpeculationNeverCancelled) || planted.has(Bug::SpeculationHeadOnly);
        if !lax {
            for key in touched {
                let other = self.reads.get(key);
                if let Some(speculation) = other.and_then(|id| self.speculations.get_mut(id)) {
                    speculation.cancelled = true;
                }
            }
        }
        own.filter(|s| !s.cancelled)
    }

    /// The enqueue did not hold at its apply: its speculation is of no use.
    pub(super) fn keep_speculation(
        &mut self,
        lock_ref: LockRef,
        speculation: Option<Speculation>,
        planted: Planted,
    ) {
        if let Some(speculation) = speculation
            && planted.has(Bug::SpeculationNeverCancelled)
        {
            self.kept.insert(lock_ref, speculation);
        }
    }

    /// What a clean leave said of keys that somebody waits for; anything else makes it void. And
    /// whoever is behind the front of a key is stirred, unless front and flag are the same: they
    /// are where another was behind it, too.
    pub(super) fn note_left(&mut self, applied: &Applied, queues: &Queues) {
        let wanted = |key| queues.queue(key).is_some_and(|q| !q.refs.is_empty());
        let gone = applied.removed.as_ref().map(|(lock_ref, _)| *lock_ref);
        for key in &applied.touched {
            if !matches!(applied.outcome, super::Outcome::Enqueued { .. }) {
                self.left.remove(key);
                let front = queues.queue(key).and_then(|q| q.refs.front());
                if gone.is_none_or(|gone| front.is_none_or(|front| *front > gone)) {
                    self.stir(key);
                }
            }
            if !wanted(key) {
                self.settled.remove(key);
                self.unsettled.remove(key);
            }
        }
        for (key, tag) in &applied.left {
            if let Some(tag) = tag
                && wanted(key)
            {
                self.left.insert(key.clone(), *tag);
            }
        }
    }

    /// Whether this flag of a key was set beside a put that is now known to be at its quorum. Then
    /// nothing that the flag was set for is in flight, and only the command that clears it is.
    pub(super) fn is_done(&self, key: &KeyId, flag: Option<u64>) -> bool {
        flag.is_some_and(|flag| self.words.get(key) == Some(&(flag, true)))
    }

    /// A put beside which its holder leaves, or has left, is at its quorum. Returns the command
    /// that clears the flag. A word that comes when a synch has begun under that flag is too late
    /// (its own clears it), and of another ref or generation it is none.
    pub(super) fn put_done(
        &mut self,
        key: &KeyId,
        tag: Tag,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> Option<LockCommand> {
        let queue = queues.queue(key)?;
        let named = queue.put.is_some_and(|put| put.tag == tag);
        let Some(flag) = queue.flag.filter(|_| named) else {
            if queues.holds_as(key, Holder::of(tag)) {
                self.early.insert(key.clone(), tag);
            }
            return None;
        };
        if self.words.get(key).is_some_and(|(known, _)| *known == flag) {
            return None;
        }
        self.words.insert(key.clone(), (flag, true));
        if let Some(front) = queue.refs.front().copied() {
            self.left.insert(key.clone(), tag);
            let task = self.grants.get(&front).and_then(|g| g.tasks.get(key));
            if matches!(task, Some(Task::Paused { .. })) {
                self.begin_key(front, key, None, false, queues, cx);
            }
        }
        Some(LockCommand::PutDone {
            key: key.clone(),
            flag,
        })
    }

    /// A command was applied: words of other flags are void, and one that came before its leave
    /// counts from now on.
    pub(super) fn note_put(
        &mut self,
        applied: &Applied,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> Option<LockCommand> {
        let mut done = None;
        for key in &applied.touched {
            let flag = queues.queue(key).and_then(|q| q.flag);
            if self.words.get(key).is_some_and(|(of, _)| Some(*of) != flag) {
                self.words.remove(key);
            }
            let early = self.early.get(key).copied();
            if let Some(tag) = early.filter(|tag| !queues.holds_as(key, Holder::of(*tag))) {
                self.early.remove(key);
                done = self.put_done(key, tag, queues, cx).or(done);
            }
        }
        done
    }

    /// Starts to prepare the grant of a ref that holds all its keys.
    pub(super) fn begin(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        speculation: Option<Speculation>,
        occasion: Occasion,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let Some(known) = queues.get(lock_ref) else {
            return;
        };
        let mut speculation = speculation.or_else(|| self.kept.remove(&lock_ref));
        self.grants.insert(
            lock_ref,
            Preparation {
                generation,
                adopts: occasion == Occasion::First || cx.env.planted.has(Bug::ReGrantAdopts),
                synchs: occasion == Occasion::Inherited
                    && !cx.env.planted.has(Bug::InheritedWithoutSynch),
                reads: occasion == Occasion::Again,
                room: cx.env.limits.grant,
                tasks: BTreeMap::new(),
            },
        );
        for key in &known.keys {
            if known.mode == Mode::Exclusive {
                self.settled.remove(key);
            }
            let read = speculation.as_mut().and_then(|s| s.reads.remove(key));
            self.begin_key(lock_ref, key, read, false, queues, cx);
        }
    }

    /// Prepares a key of a grant: by a synch where a flag says that a ref before this one may have
    /// something in flight, which lies below its tag then; and by a read, or the last holder's
    /// word, only where nothing has. So whoever is granted stands above all of it.
    fn begin_key(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        read: Option<SpeculativeRead>,
        synch: bool,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let Some(queue) = queues.queue(key) else {
            return;
        };
        let each = cx.env.planted.has(Bug::SharedSynchEach);
        if !queues.is_front(key, lock_ref) && !each {
            return self.follow_first(lock_ref, key, queues, cx);
        }
        if self.settling.contains_key(key) {
            return self.set(lock_ref, key, Task::Behind);
        }
        let Some(grant) = self.grants.get(&lock_ref) else {
            return;
        };
        let synch = synch || grant.synchs || self.unsettled.contains_key(key);
        // A synch in its name is complete, and only its note is under way (G28).
        let settled = self.settled.get(key);
        let noted = settled == Some(&queue.flag) && !cx.env.planted.has(Bug::FrontSynchedAgain);
        let (settled, done) = (settled.is_some(), noted || self.is_done(key, queue.flag));
        let flagged = queue.flag.is_some() && !grant.reads && !done;
        if flagged && !synch && queue.put.is_some() && !self.words.contains_key(key) {
            // The put may be at its quorum in a moment; a fence before that is its end.
            let until = cx.env.now.monotonic + PUTS_WAIT * cx.env.timing.retry;
            return self.set(lock_ref, key, Task::Paused { until, synch: true });
        }
        if flagged || (synch && !settled) {
            return self.synch(lock_ref, key, queue.flag, queues, cx);
        }
        match read {
            Some(SpeculativeRead::Running(op)) => {
                cx.pass_on(op, key, Errand::Grant(lock_ref));
                self.set(lock_ref, key, Task::Reading(op));
            }
            Some(SpeculativeRead::Done(outcome)) => {
                self.settle(lock_ref, key, outcome, queues, cx);
            }
            None => self.hand_over_or_read(lock_ref, key, cx),
        }
    }

    /// A reader behind the front of its batch reads once the front has settled the key (G9).
    fn follow_first(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let Some(queue) = queues.queue(key) else {
            return;
        };
        if self.is_certain(key, queue.flag, cx.env.planted) {
            return self.read(lock_ref, key, cx);
        }
        self.set(lock_ref, key, Task::Behind);
        let Some(front) = queue.refs.front().copied() else {
            return;
        };
        if self.settling.contains_key(key) || self.grants.contains_key(&front) {
            return;
        }
        let failed = self.unsettled.get(key).copied();
        if let Some(until) = failed.filter(|until| cx.env.now.monotonic < *until) {
            // Nothing else may come that would wake a reader: it waits for the time itself (G30).
            if !cx.env.planted.has(Bug::SettlingNotRepeated) {
                self.set(
                    lock_ref,
                    key,
                    Task::Paused {
                        until,
                        synch: false,
                    },
                );
            }
            return;
        }
        self.begins_synch(key, queue.flag);
        let generation = queues.get(front).map_or(0, |k| k.generation);
        let told = match cx.env.planted.has(Bug::WaitingFrontTold) {
            true => front <= self.before,
            false => self.told_before(key, None, queues, cx.env.planted),
        };
        let adopts = !told && !self.settled.contains_key(key);
        let tag = self.synch_tag(front, generation, cx.env.planted);
        let synch = Op::Synch {
            key: key.clone(),
            tag,
            adopts,
        };
        let op = cx.start(synch, Errand::Front(front, queue.flag));
        self.settling.insert(key.clone(), op);
    }

    /// Whether an earlier primary may have told a ref, other than `but`, the value of a key: one
    /// that came before this primary and holds. One that still waits was told nothing.
    fn told_before(
        &self,
        key: &KeyId,
        but: Option<LockRef>,
        queues: &Queues,
        planted: Planted,
    ) -> bool {
        let queue = queues.queue(key).into_iter();
        let holders = queue.flat_map(|queue| queue.refs.iter().take(queue.holders));
        let mut before = holders.copied().take_while(|r| *r <= self.before);
        let told = before.any(|r| but != Some(r) && queues.holds(r) && !self.untold.contains(&r));
        told && !planted.has(Bug::ToldReaderOverruled)
    }

    /// Whether a reader behind the front may read: the front has settled the key, and it has no
    /// flag, or the one whose synch is complete and only not noted yet. A second synch under that
    /// flag would lose it to the first one's `SynchDone` while it is under way (G28).
    fn is_certain(&self, key: &KeyId, flag: Option<u64>, planted: Planted) -> bool {
        let again = planted.has(Bug::SynchBesideItsDone);
        match self.settled.get(key) {
            Some(cleared) => flag.is_none() || (flag == *cleared && !again),
            None => flag.is_none() && planted.has(Bug::FrontNotSettled),
        }
    }

    fn stir(&mut self, key: &KeyId) {
        if !self.behind.is_empty() {
            self.stirred.insert(key.clone());
        }
    }

    /// A key was settled, or not, in the name of its front. Returns the command that clears the
    /// flag.
    pub(super) fn settled(
        &mut self,
        front: LockRef,
        key: KeyId,
        flag: Option<u64>,
        outcome: &OpEnd,
        queues: &Queues,
        now: Now,
    ) -> Option<LockCommand> {
        self.settling.remove(&key);
        self.stir(&key);
        if !queues.is_front(&key, front) {
            return None;
        }
        if !matches!(outcome, OpEnd::Synched { .. }) {
            self.unsettled.insert(key, now.monotonic + PAUSE);
            return None;
        }
        self.unsettled.remove(&key);
        self.settled.insert(key.clone(), flag);
        flag.map(|flag| LockCommand::SynchDone { key, flag })
    }

    /// The flag that a command clears which is under way, as a put is known to be at its quorum.
    fn clears(&self, key: &KeyId) -> Option<u64> {
        let word = self.words.get(key);
        word.and_then(|(flag, done)| done.then_some(*flag))
    }

    /// From here on the flag is the synch's to clear.
    fn begins_synch(&mut self, key: &KeyId, flag: Option<u64>) {
        if let Some(flag) = flag {
            self.words.insert(key.clone(), (flag, false));
        }
    }

    fn synch_tag(&mut self, lock_ref: LockRef, generation: u32, planted: Planted) -> Tag {
        self.attempt += 1;
        self.synched.insert(lock_ref);
        if planted.has(Bug::SynchTagWithoutAttempt) {
            return Tag::synch(lock_ref, generation, Epoch(0), Ballot::default(), 0);
        }
        let epoch = match planted.has(Bug::SynchTagWithoutEpoch) {
            true => Epoch(0),
            false => self.epoch,
        };
        Tag::synch(lock_ref, generation, epoch, self.ballot, self.attempt)
    }

    fn hand_over_or_read(&mut self, lock_ref: LockRef, key: &KeyId, cx: &mut PrimaryEnv<'_>) {
        let keyspace = cx.catalogue.get(key.keyspace);
        let first_grant = self.grants.get(&lock_ref).is_some_and(|g| g.adopts);
        if first_grant
            && let Some(tag) = self.left.get(key)
            && let Some(address) = keyspace.map(|k| Address::of(k.id, k.tag_rule, &key.key))
            && let Some(value) = local_critical(cx.env.memory, cx.place, address, key, *tag)
        {
            let tag = *tag;
            return self.ready_with(lock_ref, key, (value, tag), cx.env.planted);
        }
        self.read(lock_ref, key, cx);
    }

    /// The key's value is certain. A value that the grant cannot carry is let go at once, so that a
    /// section over many large values costs its primary no more than one grant.
    fn ready_with(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        (value, tag): (Option<Bytes>, Tag),
        planted: Planted,
    ) {
        self.unsettled.remove(key);
        let cleared = self.clears(key);
        let settled = self.settled.entry(key.clone()).or_insert(cleared);
        if cleared.is_some() && !planted.has(Bug::ClearedFlagUntold) {
            // What the holder before has left here is of another flag.
            *settled = cleared;
        }
        self.stir(key);
        if let Some(grant) = self.grants.get_mut(&lock_ref) {
            let value = EntryValue::from(value).within(&mut grant.room);
            self.set(lock_ref, key, Task::Ready(value, tag));
        }
    }

    fn set(&mut self, lock_ref: LockRef, key: &KeyId, task: Task) {
        let grant = self.grants.get_mut(&lock_ref);
        if let Some(before) = grant.and_then(|grant| grant.tasks.remove(key)) {
            self.forget_task(lock_ref, key, &before);
        }
        let Some(grant) = self.grants.get_mut(&lock_ref) else {
            return;
        };
        match task {
            Task::Behind => self.behind.insert((key.clone(), lock_ref)),
            Task::Paused { until, .. } => self.paused.insert((until, lock_ref, key.clone())),
            _ => false,
        };
        grant.tasks.insert(key.clone(), task);
        match self.is_ready(lock_ref) {
            true => self.ready.insert(lock_ref),
            false => self.ready.remove(&lock_ref),
        };
    }

    fn forget_task(&mut self, lock_ref: LockRef, key: &KeyId, task: &Task) {
        match task {
            Task::Behind => self.behind.remove(&(key.clone(), lock_ref)),
            Task::Paused { until, .. } => self.paused.remove(&(*until, lock_ref, key.clone())),
            _ => false,
        };
    }

    /// The grant is no longer in preparation.
    fn remove(&mut self, lock_ref: LockRef) -> Option<Preparation> {
        let grant = self.grants.remove(&lock_ref)?;
        self.ready.remove(&lock_ref);
        for (key, task) in &grant.tasks {
            self.forget_task(lock_ref, key, task);
            self.stir(key);
        }
        Some(grant)
    }

    fn read(&mut self, lock_ref: LockRef, key: &KeyId, cx: &mut PrimaryEnv<'_>) {
        let generation = self.grants.get(&lock_ref).map_or(0, |g| g.generation);
        let holder = Some(Holder {
            lock_ref,
            generation,
        });
        let read = Op::Entry {
            key: key.clone(),
            holder,
        };
        let op = cx.start(read, Errand::Grant(lock_ref));
        self.set(lock_ref, key, Task::Reading(op));
    }

    /// Whether the synch of a key of this grant adopts a newer eventual value: that of a first
    /// grant (G5), and among readers the front's, unless another is inside already (G9).
    fn adopts(&self, lock_ref: LockRef, key: &KeyId, queues: &Queues, planted: Planted) -> bool {
        let lax = planted.has(Bug::ReGrantAdopts) || planted.has(Bug::FrontNotSettled);
        let first_grant = self.grants.get(&lock_ref).is_some_and(|g| g.adopts);
        let told = |but| self.told_before(key, but, queues, planted);
        first_grant && (lax || !self.settled.contains_key(key) && !told(Some(lock_ref)))
    }

    /// The key failed; by a synch again if one was begun.
    fn pause(&mut self, lock_ref: LockRef, key: &KeyId, synch: bool, cx: &PrimaryEnv<'_>) {
        let until = cx.env.now.monotonic + PAUSE;
        self.set(lock_ref, key, Task::Paused { until, synch });
    }

    fn synch(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        flag: Option<u64>,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let Some(grant) = self.grants.get(&lock_ref) else {
            return;
        };
        let generation = grant.generation;
        self.begins_synch(key, flag);
        let adopts = self.adopts(lock_ref, key, queues, cx.env.planted);
        let tag = self.synch_tag(lock_ref, generation, cx.env.planted);
        let synch = Op::Synch {
            key: key.clone(),
            tag,
            adopts,
        };
        let op = cx.start(synch, Errand::Grant(lock_ref));
        self.set(lock_ref, key, Task::Synching(op, flag));
    }

    /// A read or synch of a grant has ended. Returns the command that clears the flag, if one is
    /// due.
    pub(super) fn on_outcome(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        outcome: OpEnd,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) -> Option<LockCommand> {
        let task = self.grants.get(&lock_ref)?.tasks.get(key)?;
        let Task::Synching(_, flag) = task else {
            self.settle(lock_ref, key, outcome, queues, cx);
            return None;
        };
        let flag = *flag;
        match outcome {
            OpEnd::Synched { value, tag } => {
                self.settled.insert(key.clone(), flag.or(self.clears(key)));
                self.ready_with(lock_ref, key, (value, tag), cx.env.planted);
                flag.map(|flag| LockCommand::SynchDone {
                    key: key.clone(),
                    flag,
                })
            }
            _ => {
                // An adoption has no flag to fall back on.
                let synch = flag.is_some() || !cx.env.planted.has(Bug::AdoptionFallsBack);
                self.pause(lock_ref, key, synch, cx);
                None
            }
        }
    }

    /// An unfenced read of a grant has ended.
    fn settle(
        &mut self,
        lock_ref: LockRef,
        key: &KeyId,
        outcome: OpEnd,
        queues: &Queues,
        cx: &mut PrimaryEnv<'_>,
    ) {
        let front = queues.is_front(key, lock_ref);
        let adopts = front && self.adopts(lock_ref, key, queues, cx.env.planted);
        match outcome {
            // A higher ref has written: this primary's state is old, and the ref past.
            OpEnd::Entry { tag, .. } if tag.lock_ref > lock_ref => {
                self.pause(lock_ref, key, false, cx);
            }
            // Only told where it is newer than the critical cell.
            OpEnd::Entry {
                eventual: Some(_), ..
            } if adopts && !cx.env.planted.has(Bug::EnterIgnoresEventual) => {
                self.synch(lock_ref, key, None, queues, cx);
            }
            OpEnd::Entry { value, tag, .. } => {
                self.ready_with(lock_ref, key, (value, tag), cx.env.planted);
            }
            // Its own synch moves it (S4).
            OpEnd::Unmoved if front => self.synch(lock_ref, key, None, queues, cx),
            OpEnd::Unmoved => self.pause(lock_ref, key, true, cx),
            _ => {
                self.pause(lock_ref, key, false, cx);
            }
        }
    }

    /// Readers behind a first one that has now entered, or gone, go on.
    pub(super) fn wake_shared(&mut self, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        let mut due = Vec::new();
        for key in core::mem::take(&mut self.stirred) {
            let refs = (key.clone(), LockRef(0))..=(key, LockRef(u64::MAX));
            let behind = self.behind.range(refs);
            due.extend(behind.map(|(key, lock_ref)| (*lock_ref, key.clone())));
        }
        due.sort_unstable();
        for (lock_ref, key) in due {
            self.begin_key(lock_ref, &key, None, false, queues, cx);
        }
    }

    /// Repeats what failed.
    pub(super) fn tick(&mut self, queues: &Queues, cx: &mut PrimaryEnv<'_>) {
        let now = cx.env.now.monotonic;
        let due = self.paused.iter().take_while(|(until, ..)| *until <= now);
        let mut due: Vec<_> = due.map(|(_, r, key)| (*r, key.clone())).collect();
        due.sort_unstable();
        for (lock_ref, key) in due {
            let task = self.grants.get(&lock_ref).and_then(|g| g.tasks.get(&key));
            if let Some(&Task::Paused { synch, .. }) = task {
                self.begin_key(lock_ref, &key, None, synch, queues, cx);
            }
        }
    }

    /// When something paused is due.
    pub(super) fn wake(&self) -> Option<Micros> {
        self.paused.first().map(|(until, ..)| *until)
    }

    /// The ref is past: nobody waits for its grant.
    pub(super) fn stop(&mut self, lock_ref: LockRef, cx: &mut PrimaryEnv<'_>) {
        self.kept.remove(&lock_ref);
        self.synched.remove(&lock_ref);
        let Some(grant) = self.remove(lock_ref) else {
            return;
        };
        let under_way = grant.tasks.values().filter_map(Task::op);
        under_way.for_each(|op| cx.registers.cancel(op));
    }

    /// The ballot is lost.
    pub(super) fn stop_all(self, cx: &mut PrimaryEnv<'_>) {
        let ahead = self.speculations.values().flat_map(|s| s.reads.values());
        let ahead = ahead.filter_map(|read| match read {
            SpeculativeRead::Running(op) => Some(*op),
            SpeculativeRead::Done(_) => None,
        });
        let tasks = self.grants.values().flat_map(|g| g.tasks.values());
        let under_way = ahead.chain(tasks.filter_map(Task::op));
        for op in under_way.chain(self.settling.values().copied()) {
            cx.registers.cancel(op);
        }
    }
}
