//! The lock queues of one segment: a key kind of the segment's state ([`crate::segment`]), which
//! every member of the group applies.
//!
//! Its input are the lock commands of the segment's log, each once and with its position, the
//! command's number in the segment's whole history; its output is a function of these alone. The
//! position of an enqueue is the lock ref that it gives.

use super::message::Outcome;
use crate::base::{Bug, KeyId, LockRef, Planted, SessionId, Tag};
use crate::command::{Command, LockCommand, Origin};
use crate::register::{Holder, HolderState};
use crate::request::{Code, Mode, Refusal};
use crate::segment::Applied;
use crate::sessions::Sessions;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Ordering;
use serde::{Deserialize, Serialize};

/// Refs that may wait for one key. Part of the state's definition: equal on all replicas.
pub const QUEUE_MAX: usize = 4_096;

/// A section can be resumed so often: its sequence numbers have room for no more generations.
pub const GENERATION_MAX: u32 = 1 << 23;

/// A ref that waits or holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ref {
    /// Whose it is.
    pub session: SessionId,
    /// The command that enqueued or last resumed it.
    pub number: u64,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Its keys in this segment.
    pub keys: Vec<KeyId>,
    /// How often it was resumed.
    pub generation: u32,
    /// Who waits.
    pub origin: Origin,
}

/// The queue of one key. A key without refs and without a flag is not stored at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Refs in increasing order, head first.
    pub refs: VecDeque<LockRef>,
    /// How many of them hold the key: the head, and where that reads, the readers that follow it.
    /// It is counted as refs come and go, since a batch may be as long as the queue, and is not
    /// part of the format, since it follows from the modes.
    #[serde(skip)]
    pub(super) holders: usize,
    /// The position of the command that removed a holder whose last write may be in flight: the
    /// next holder must synch first, which clears this very flag (F18).
    pub flag: Option<u64>,
    /// What was under way when that command, a leave, removed it, if that is known: then this flag
    /// goes, too, when the put is known to be at its quorum (F5).
    pub put: Option<LastPut>,
}

impl Queue {
    /// Lets those hold who may, behind the ones that do, and returns them.
    fn admit(&mut self, known: &BTreeMap<LockRef, Ref>) -> impl Iterator<Item = LockRef> {
        let shares = |r: &LockRef| known.get(r).is_some_and(|k| k.mode == Mode::Shared);
        let before = self.holders;
        while let Some(next) = self.refs.get(self.holders) {
            let last = self.holders.checked_sub(1).map(|last| &self.refs[last]);
            if last.is_some_and(|last| !shares(last) || !shares(next)) {
                break;
            }
            self.holders += 1;
        }
        self.refs.range(before..self.holders).copied()
    }
}

/// The put beside which a holder left, while it was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPut {
    /// Its tag: the highest of that section.
    pub tag: Tag,
    /// The leave, by session and number.
    leave: (SessionId, u64),
}

/// All lock queues of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Queues {
    /// Keys with a queue or a flag.
    keys: BTreeMap<KeyId, Queue>,
    /// Refs in any queue.
    refs: BTreeMap<LockRef, Ref>,
}

/// Queues as they are read back: nobody is counted as a holder yet.
#[derive(Deserialize)]
struct Stored {
    keys: BTreeMap<KeyId, Queue>,
    refs: BTreeMap<LockRef, Ref>,
}

impl From<Stored> for Queues {
    fn from(Stored { mut keys, refs }: Stored) -> Queues {
        for queue in keys.values_mut() {
            let _ = queue.admit(&refs);
        }
        Queues { keys, refs }
    }
}

impl Queues {
    /// Keys with a queue or a flag.
    pub fn keys(&self) -> impl Iterator<Item = (&KeyId, &Queue)> {
        self.keys.iter()
    }

    /// The queue of a key, if it has one.
    pub fn queue(&self, key: &KeyId) -> Option<&Queue> {
        self.keys.get(key)
    }

    /// Refs in any queue, in increasing order.
    pub fn refs(&self) -> impl Iterator<Item = (LockRef, &Ref)> {
        self.refs.iter().map(|(r, known)| (*r, known))
    }

    /// A ref that waits or holds.
    pub fn get(&self, lock_ref: LockRef) -> Option<&Ref> {
        self.refs.get(&lock_ref)
    }

    /// Whether a ref is the head of a key's queue.
    pub fn is_front(&self, key: &KeyId, lock_ref: LockRef) -> bool {
        let queue = self.keys.get(key);
        queue.is_some_and(|q| q.refs.front() == Some(&lock_ref))
    }

    /// Nobody holds or waits for the key, and its data store is defined.
    pub fn is_idle(&self, key: &KeyId) -> bool {
        !self.keys.contains_key(key)
    }

    /// Whether the head of a key's queue is this very ref, in this generation.
    pub(super) fn holds_as(&self, key: &KeyId, holder: Holder) -> bool {
        let known = self.refs.get(&holder.lock_ref);
        let same = known.is_some_and(|known| known.generation == holder.generation);
        same && self.is_front(key, holder.lock_ref)
    }

    /// Refs ahead of this one on the key where most are.
    pub fn ahead(&self, lock_ref: LockRef) -> u32 {
        let Some(known) = self.refs.get(&lock_ref) else {
            return 0;
        };
        let place = |key| {
            let queue = self.keys.get(key)?;
            queue.refs.binary_search(&lock_ref).ok()
        };
        known.keys.iter().filter_map(place).max().unwrap_or(0) as u32
    }

    /// Whether a ref holds one key.
    pub fn holds_key(&self, key: &KeyId, lock_ref: LockRef) -> bool {
        let place = |queue: &Queue| queue.refs.binary_search(&lock_ref).ok();
        let queue = self.keys.get(key);
        queue.is_some_and(|q| place(q).is_some_and(|at| at < q.holders))
    }

    /// Whether a ref holds all its keys of this segment.
    pub fn holds(&self, lock_ref: LockRef) -> bool {
        let Some(known) = self.refs.get(&lock_ref) else {
            return false;
        };
        known.keys.iter().all(|key| self.holds_key(key, lock_ref))
    }

    /// What the queues say of a ref and generation that somebody names as its own for `key`; none
    /// of a ref that is in no queue.
    pub fn holder_state(
        &self,
        key: &KeyId,
        lock_ref: LockRef,
        generation: u32,
    ) -> Option<HolderState> {
        let Some(known) = self.refs.get(&lock_ref) else {
            let put = self.keys.get(key)?.put?;
            let own = Holder {
                lock_ref,
                generation,
            };
            return (Holder::of(put.tag) == own).then_some(HolderState::Leaving);
        };
        Some(match known.generation.cmp(&generation) {
            Ordering::Greater => HolderState::Past,
            Ordering::Less => HolderState::Unknown,
            Ordering::Equal if !known.keys.contains(key) => HolderState::Past,
            Ordering::Equal if self.holds(lock_ref) => HolderState::Head,
            Ordering::Equal => HolderState::Waiting,
        })
    }

    /// Whether a ref is, in this very generation, of another session than `of`, which must not act
    /// in it (G49). A generation that is past is nobody's, and a node's own forced ends are let
    /// through.
    pub fn is_anothers(
        &self,
        (lock_ref, generation): (LockRef, u32),
        of: SessionId,
        planted: Planted,
    ) -> bool {
        let known = self.refs.get(&lock_ref);
        let anothers = known.is_some_and(|k| k.generation == generation && k.session != of);
        anothers && of != Sessions::OWN && !planted.asks_no_session()
    }

    /// Applies a lock command that has not taken effect before. `applied` says its position, and
    /// afterwards what it did.
    pub fn apply(
        &mut self,
        command: &Command,
        body: &LockCommand,
        planted: Planted,
        applied: &mut Applied,
    ) {
        match body {
            LockCommand::Enqueue { keys, mode, origin } => {
                applied.touched = keys.clone();
                applied.outcome = self.enqueue(command, keys, *mode, *origin, applied.position);
            }
            LockCommand::Leave {
                lock_ref,
                generation,
                of,
                clean,
                put,
                waiting_only,
            } => {
                if self.is_anothers((*lock_ref, *generation), *of, planted) {
                    applied.outcome = Outcome::Refused(Refusal::anothers("leaving the section"));
                    return;
                }
                let ends = planted.has(Bug::WaitOverEndsHolder)
                    || planted.has(Bug::ClosedEnterLeaves)
                    || planted.has(Bug::NeverEnteredLeavesClean);
                if *waiting_only && self.holds(*lock_ref) && !ends {
                    return;
                }
                let mut clean = clean.clone();
                if *waiting_only && planted.has(Bug::NeverEnteredLeavesClean) {
                    let keys = self.refs.get(lock_ref).map_or(&[][..], |k| &k.keys);
                    clean = keys.iter().map(|key| (key.clone(), None)).collect();
                }
                self.leave(*lock_ref, *generation, &clean, planted, applied);
                if let Some((key, tag)) = put {
                    let leave = (command.session, command.number);
                    self.note_put(key, LastPut { tag: *tag, leave }, planted, applied);
                }
            }
            LockCommand::Release { lock_ref, key } => {
                if self.is_on(*lock_ref, key.as_ref()) {
                    self.release(*lock_ref, planted, applied);
                }
            }
            LockCommand::SynchDone { key, flag } => {
                let any = planted.has(Bug::SynchDoneUnconditional);
                self.clear(key, |queue| any || queue.flag == Some(*flag), applied);
            }
            LockCommand::PutDone { key, flag } => {
                let any = planted.has(Bug::PutDoneUnconditional);
                let so = |queue: &Queue| any || queue.flag == Some(*flag) && queue.put.is_some();
                let put = self.clear(key, so, applied);
                applied.settles = put.map(|put| put.leave);
            }
            LockCommand::Resume {
                lock_ref,
                generation,
                of,
                origin,
            } => {
                if self.is_anothers((*lock_ref, *generation), *of, planted) {
                    applied.outcome = Outcome::Refused(Refusal::anothers("resuming the section"));
                    return;
                }
                self.resume(command, *lock_ref, *generation, *origin, planted, applied);
            }
        }
    }

    fn enqueue(
        &mut self,
        command: &Command,
        keys: &[KeyId],
        mode: Mode,
        origin: Origin,
        position: u64,
    ) -> Outcome {
        if !origin.is_bounded() {
            return times_refused();
        }
        let full = |key| {
            self.keys
                .get(key)
                .is_some_and(|q| q.refs.len() >= QUEUE_MAX)
        };
        if keys.iter().any(full) {
            return Outcome::Refused(Refusal::definite(
                Code::Busy,
                "too many wait for this key already; try again later",
            ));
        }
        let lock_ref = LockRef(position);
        let known = Ref {
            session: command.session,
            number: command.number,
            mode,
            keys: keys.to_vec(),
            generation: 0,
            origin,
        };
        self.refs.insert(lock_ref, known);
        for key in keys {
            let queue = self.keys.entry(key.clone()).or_default();
            queue.refs.push_back(lock_ref);
            let _ = queue.admit(&self.refs);
        }
        Outcome::Enqueued { lock_ref }
    }

    fn leave(
        &mut self,
        lock_ref: LockRef,
        generation: u32,
        clean: &[(KeyId, Option<Tag>)],
        planted: Planted,
        applied: &mut Applied,
    ) {
        let Some(known) = self.refs.get(&lock_ref) else {
            return;
        };
        if known.generation != generation {
            return;
        }
        let held = known.mode == Mode::Exclusive && self.holds(lock_ref);
        let unflagged = planted.has(Bug::ReaderLeavesNoFlag) && known.mode == Mode::Shared;
        let written = match unflagged {
            true => Vec::new(),
            false => self.written(lock_ref),
        };
        let known = self.refs.remove(&lock_ref).expect("looked up above");
        let mut all_clean = true;
        for key in &known.keys {
            match clean.iter().find(|(k, _)| k == key) {
                Some((_, tag)) if held => applied.left.push((key.clone(), *tag)),
                Some(_) => {}
                None => {
                    // Only what was said to be clean counts as that, also where nothing was
                    // written: a client that repeats the request takes it for done.
                    all_clean = false;
                    if written.contains(key) {
                        self.flag(key, applied.position);
                    }
                }
            }
        }
        applied.outcome = Outcome::Left { clean: all_clean };
        self.remove(lock_ref, known, planted, applied);
    }

    /// The keys to which something may be in flight in a ref's name: a write of its holder, or the
    /// synch by which its grant is prepared. A waiter has nothing; of readers only the first is
    /// synched for.
    fn written(&self, lock_ref: LockRef) -> Vec<KeyId> {
        let Some(known) = self.refs.get(&lock_ref) else {
            return Vec::new();
        };
        let front = |key: &&KeyId| self.is_front(key, lock_ref);
        match known.mode {
            Mode::Exclusive if self.holds(lock_ref) => known.keys.clone(),
            Mode::Exclusive => Vec::new(),
            Mode::Shared => known.keys.iter().filter(front).cloned().collect(),
        }
    }

    fn flag(&mut self, key: &KeyId, position: u64) {
        let queue = self.keys.get_mut(key);
        let queue = queue.expect("a ref's keys have queues");
        queue.flag = Some(position);
        queue.put = None;
    }

    /// Clears a key's flag, if `so`; the put that it has waited for.
    fn clear(
        &mut self,
        key: &KeyId,
        so: impl Fn(&Queue) -> bool,
        applied: &mut Applied,
    ) -> Option<LastPut> {
        applied.touched.push(key.clone());
        applied.outcome = Outcome::Done;
        let queue = self.keys.get_mut(key).filter(|queue| so(queue))?;
        queue.flag = None;
        let put = queue.put.take();
        self.forget_idle(key);
        put
    }

    /// No put that travels beside a leave is waited for any more, nor taken.
    pub fn forget_puts(&mut self) {
        self.keys.values_mut().for_each(|queue| queue.put = None);
    }

    /// A leave has named the put that travels beside it. It counts where the leave has set the flag
    /// and the put is of the generation that has left: then all that this one may have in flight
    /// lies at the put or below it.
    fn note_put(&mut self, key: &KeyId, put: LastPut, planted: Planted, applied: &Applied) {
        let Some((lock_ref, known)) = &applied.removed else {
            return;
        };
        let left = Holder {
            lock_ref: *lock_ref,
            generation: known.generation,
        };
        let own = Holder::of(put.tag) == left && put.tag.writer == known.session.0;
        if let Some(queue) = self.keys.get_mut(key)
            && queue.flag == Some(applied.position)
            && own
        {
            queue.put = Some(put);
            if planted.has(Bug::LeavingPutTakenAsDone) {
                queue.flag = None;
                queue.put = None;
                self.forget_idle(key);
            }
        }
    }

    /// Whether a ref is in the queue of `key`, or in any where none is named.
    pub(super) fn is_on(&self, lock_ref: LockRef, key: Option<&KeyId>) -> bool {
        let known = self.refs.get(&lock_ref);
        known.is_some_and(|known| key.is_none_or(|key| known.keys.contains(key)))
    }

    fn release(&mut self, lock_ref: LockRef, planted: Planted, applied: &mut Applied) {
        let mut written = self.written(lock_ref);
        let Some(known) = self.refs.remove(&lock_ref) else {
            return;
        };
        if planted.has(Bug::ReaderLeavesNoFlag) && known.mode == Mode::Shared {
            written.clear();
        }
        for key in &written {
            self.flag(key, applied.position);
            if planted.has(Bug::ForcedReleaseClearsFlag)
                && let Some(queue) = self.keys.get_mut(key)
            {
                queue.flag = None;
            }
        }
        applied.outcome = Outcome::Done;
        self.remove(lock_ref, known, planted, applied);
    }

    fn resume(
        &mut self,
        command: &Command,
        lock_ref: LockRef,
        generation: u32,
        origin: Origin,
        planted: Planted,
        applied: &mut Applied,
    ) {
        let written = self.written(lock_ref);
        let Some(known) = self.refs.get_mut(&lock_ref) else {
            return;
        };
        if known.generation != generation {
            return;
        }
        if generation >= GENERATION_MAX {
            applied.outcome = Outcome::Refused(Refusal::definite(
                Code::BadRequest,
                "this section was resumed too often; leave it and enter again",
            ));
            return;
        }
        if !origin.is_bounded() {
            applied.outcome = times_refused();
            return;
        }
        // A new ref would stand at the head above the refs that wait behind it, and outrank their
        // writes for ever. The ref therefore stays and its generation grows: tags of the new
        // generation lie above those of the old and below those of every later ref.
        if !planted.has(Bug::ResumeReusesNumbers) {
            known.generation += 1;
        }
        known.session = command.session;
        known.number = command.number;
        // The old generation may hold a lease as long as it was told.
        let lease = known.origin.lease.max(origin.lease);
        let label = known.origin.label;
        known.origin = Origin {
            lease,
            label,
            ..origin
        };
        applied.touched = known.keys.clone();
        applied.outcome = Outcome::Resumed {
            generation: known.generation,
        };
        let lax = planted.has(Bug::ResumeReusesNumbers) || planted.has(Bug::ResumeWithoutFlag);
        if !lax {
            for key in &written {
                self.flag(key, applied.position);
            }
        }
    }

    /// Takes a ref that is known no more out of the queues of its keys.
    fn remove(&mut self, lock_ref: LockRef, known: Ref, planted: Planted, applied: &mut Applied) {
        for key in &known.keys {
            if let Some(queue) = self.keys.get_mut(key)
                && let Ok(place) = queue.refs.binary_search(&lock_ref)
            {
                queue.refs.remove(place);
                if place < queue.holders && !planted.has(Bug::LeavingPutOutlivesNext) {
                    // Who held the key after that put has outlived it: its word says nothing now.
                    queue.put = None;
                }
                queue.holders -= usize::from(place < queue.holders);
                applied.next.extend(queue.admit(&self.refs));
            }
            self.forget_idle(key);
        }
        applied.touched = known.keys.clone();
        applied.removed = Some((lock_ref, known));
    }

    fn forget_idle(&mut self, key: &KeyId) {
        if self
            .keys
            .get(key)
            .is_some_and(|q| q.refs.is_empty() && q.flag.is_none())
        {
            self.keys.remove(key);
        }
    }

    /// Checks of one key what a command that touched it may have broken, at no more cost than the
    /// command's.
    pub(crate) fn assert_key(&self, key: &KeyId) {
        let Some(queue) = self.keys.get(key) else {
            return;
        };
        let len = queue.refs.len();
        assert!(len > 0 || queue.flag.is_some(), "an idle key is not stored");
        assert!(
            queue.put.is_none() || queue.flag.is_some(),
            "a put that was under way is that of a flag"
        );
        assert!(
            len < 2 || queue.refs[len - 2] < queue.refs[len - 1],
            "a queue is in the order of its refs"
        );
        assert!(
            queue.holders <= len && (queue.holders > 0) == (len > 0),
            "the head of a queue holds"
        );
    }

    /// Checks all that must hold after every command.
    pub fn assert_invariants(&self) {
        for (key, queue) in &self.keys {
            self.assert_key(key);
            assert!(
                queue.refs.iter().is_sorted_by(|a, b| a < b),
                "a queue is in the order of its refs"
            );
            let mut counted = Queue {
                holders: 0,
                ..queue.clone()
            };
            let _ = counted.admit(&self.refs);
            assert_eq!(counted, *queue, "holders are counted");
            for lock_ref in &queue.refs {
                let known = self.refs.get(lock_ref).expect("a queued ref is known");
                assert!(known.keys.contains(key), "a ref knows its keys");
            }
        }
    }
}

/// Nobody can wait for such a lease, nor add it to a clock (see [`Origin::is_bounded`]).
fn times_refused() -> Outcome {
    let why = "a section's lease and longest time are at most ten years; nothing was changed";
    Outcome::Refused(Refusal::definite(Code::BadRequest, why))
}
