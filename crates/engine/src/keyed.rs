//! What one node knows and does about one key's lock row.
//!
//! **Problem.** Compare-and-set of one row by many collapses: each success refuses all others, and
//! on Cassandra those that meet time out (65 updates per second by 32 clients, against 4,500 when
//! each node has one in flight). And a hundred waiters need not ask a hundred times who is first.
//!
//! **Idea.** Per key and node there is one task that updates, one that reads, one that watches; a
//! call that comes while a task is at work goes into its next round. Steps that are in no hurry
//! wait for company where the row is crowded ([`crate::pace`]). Each task publishes to all what it
//! learns.
//!
//! **Invariants.**
//! * At most one swap of a row is in flight here. After one of unknown outcome nothing is swapped
//!   before a deciding read, which finishes or buries it.
//! * An answer is given from a state that was current after the question was asked: that of the
//!   swap that carried it, or of a deciding read that began later.
//! * This node judges by its own clock alone who is silent, from what it has seen itself: a ref
//!   whose renewals have not grown for its lease. Clocks of nodes are never compared (F10).

use crate::pace::Pace;
use crate::planted::Bug;
use crate::settings::Settings;
use crate::state::{Done, KeyState, Step};
use crate::store::{LockStore, Row, StoreError, Swapped, Version};
use fermata_protocol::base::{KeyId, LockRef, Rng};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Steps in one swap.
const BATCH: usize = 512;
/// The watcher looks at the row at least this often.
const LOOK: Duration = Duration::from_millis(500);
/// The first pause after a second refusal, or after an unknown outcome; doubled each time.
const PAUSE: Duration = Duration::from_millis(2);
/// How often it is doubled.
const DOUBLINGS: u32 = 6;

/// A row as it was seen; neither version nor state where there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) version: Option<Version>,
    state: Option<Arc<KeyState>>,
    /// It was the row's state at some moment after this; none: a replica's word for it is all there
    /// is.
    decided: Option<Instant>,
}

impl Seen {
    /// The state, where there is a row.
    pub(crate) fn state(&self) -> Option<&KeyState> {
        self.state.as_deref()
    }

    /// Nobody holds or waits, and the value is defined.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().is_none_or(KeyState::is_idle)
    }

    /// The row was like this at some moment after that; none: no deciding call has said so.
    pub(crate) fn decided(&self) -> Option<Instant> {
        self.decided
    }

    /// Whether the row was like this at some moment after `since`.
    pub(crate) fn is_from_after(&self, since: Instant) -> bool {
        self.decided.is_some_and(|decided| decided >= since)
    }

    fn of(row: Option<Row>, decided: Option<Instant>) -> Result<Seen, StoreError> {
        let mut seen = Seen {
            decided,
            ..Seen::default()
        };
        if let Some(row) = row {
            let state = KeyState::decode(&row.state).map_err(StoreError::Refused)?;
            seen.version = Some(row.version);
            seen.state = Some(Arc::new(state));
        }
        Ok(seen)
    }
}

/// What became of a step, and in which state.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    pub(crate) done: Done,
    /// The state in which it is done.
    pub(crate) after: Seen,
    /// The swap that did it replaced this version; none: it was done before.
    pub(crate) replaced: Option<Option<Version>>,
}

/// Those who wait for the next round of a task.
struct Line<T> {
    waiting: Vec<T>,
    at_work: bool,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line {
            waiting: Vec::new(),
            at_work: false,
        }
    }
}

impl<T> Line<T> {
    /// Puts one in; true if a task has to be started.
    fn join(&mut self, one: T) -> bool {
        self.waiting.push(one);
        !std::mem::replace(&mut self.at_work, true)
    }

    /// The next round: the first of those who come along, at most so many.
    fn next(&mut self, most: usize, comes: impl Fn(&T) -> bool) -> Vec<T> {
        let mut room = most;
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (next, stays) = all.partition(|one| {
            let comes = room > 0 && comes(one);
            room -= usize::from(comes);
            comes
        });
        self.waiting = stays;
        next
    }
}

/// How soon a step has to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Somebody waits for it.
    Now,
    /// With the last of this node's refs that leaves, or soon: refs of one node that follow each
    /// other let each other in without a trip.
    Soon,
    /// With any other step, or after so long.
    Within(Duration),
}

/// A step that waits for its swap.
struct Asked {
    step: Step,
    /// It waits for company until then; none: not at all.
    latest: Option<Instant>,
    /// Any company will do.
    rides: bool,
    tell: oneshot::Sender<Result<Ack, StoreError>>,
}

/// What became of one swap.
enum Swap {
    Applied(Seen),
    /// Not applied; the row as it is now, as far as that can be told.
    Refused(Result<Seen, StoreError>),
    Unknown,
}

/// One key's lock row, as this node knows it.
pub(crate) struct Keyed<L> {
    key: KeyId,
    store: Arc<L>,
    settings: Arc<Settings>,
    steps: Mutex<Line<Asked>>,
    /// A step has come.
    came: Notify,
    pace: Mutex<Pace>,
    reads: Mutex<Line<oneshot::Sender<Result<Seen, StoreError>>>>,
    watchers: Mutex<Watchers>,
    newest: Mutex<Seen>,
    /// There is a newer one. Unlike a watch channel's, its order of waking is no chance.
    moved: Notify,
    dice: Mutex<Rng>,
}

#[derive(Default)]
struct Watchers {
    count: usize,
    at_work: bool,
    /// When the last of them has gone, the row is watched until then.
    lingers: Option<Instant>,
}

/// As long as it lives, and for a lease afterwards, the row is watched and silent refs are
/// released. Without that lease nobody would ever end a dead holder whose key is only polled, or
/// whose queue is only looked at.
pub(crate) struct Watch<L: LockStore> {
    keyed: Arc<Keyed<L>>,
    revision: Option<u64>,
}

impl<L: LockStore> Watch<L> {
    /// The newest state known.
    pub(crate) fn seen(&mut self) -> Seen {
        let seen = self.keyed.newest();
        self.revision = seen.state().map(KeyState::revision);
        seen
    }

    /// Ends when a newer state is known.
    pub(crate) async fn changed(&mut self) {
        loop {
            let moved = self.keyed.moved.notified();
            if self.keyed.newest().state().map(KeyState::revision) != self.revision {
                return;
            }
            moved.await;
        }
    }
}

impl<L: LockStore> Drop for Watch<L> {
    fn drop(&mut self) {
        let newest = self.keyed.newest();
        let refs = newest.state().into_iter().flat_map(KeyState::refs);
        let longest = refs.map(|(_, known, _)| known.origin.lease).max();
        let linger = self.keyed.settings.lengthened(longest.unwrap_or(0)) + 2 * LOOK;
        let mut watchers = lock(&self.keyed.watchers);
        watchers.count -= 1;
        watchers.lingers = Some(Instant::now() + linger);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: LockStore> Keyed<L> {
    pub(crate) fn new(key: KeyId, store: Arc<L>, settings: Arc<Settings>, seed: u64) -> Keyed<L> {
        Keyed {
            key,
            store,
            settings,
            steps: Mutex::default(),
            came: Notify::new(),
            pace: Mutex::default(),
            reads: Mutex::default(),
            watchers: Mutex::default(),
            newest: Mutex::default(),
            moved: Notify::new(),
            dice: Mutex::new(Rng::new(seed)),
        }
    }

    /// The newest state that this node has seen; nothing if it has not looked yet.
    pub(crate) fn newest(&self) -> Seen {
        lock(&self.newest).clone()
    }

    /// A state that the row has or had: the newest that is known here, or at the nearest replica.
    pub(crate) async fn peek(&self) -> Result<Seen, StoreError> {
        let peeked = Seen::of(self.store.peek(&self.key).await?, None)?;
        self.publish(&peeked);
        Ok(self.newest())
    }

    /// The row as it is at some moment after this call.
    pub(crate) async fn decide(self: &Arc<Self>) -> Result<Seen, StoreError> {
        let (tell, told) = oneshot::channel();
        if lock(&self.reads).join(tell) {
            tokio::spawn(self.clone().read_all());
        }
        told.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Makes a change now, together with all others that wait.
    pub(crate) async fn apply(self: &Arc<Self>, step: Step) -> Result<Ack, StoreError> {
        self.apply_with(step, Haste::Now).await
    }

    /// Makes a change, together with others.
    pub(crate) async fn apply_with(
        self: &Arc<Self>,
        step: Step,
        haste: Haste,
    ) -> Result<Ack, StoreError> {
        let (tell, told) = oneshot::channel();
        let wait = match haste {
            Haste::Now => None,
            Haste::Soon => {
                let company = self.own_refs() > 0;
                Some(lock(&self.pace).drawn(company, &mut lock(&self.dice)))
            }
            Haste::Within(wait) => lock(&self.pace).is_crowded().then_some(wait),
        };
        let latest = wait.map(|wait| Instant::now() + wait);
        if lock(&self.steps).join(Asked {
            step,
            latest,
            rides: haste != Haste::Soon,
            tell,
        }) {
            tokio::spawn(self.clone().apply_all());
        }
        self.came.notify_waiters();
        told.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Watches the row from now on.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch<L> {
        let mut watchers = lock(&self.watchers);
        watchers.count += 1;
        if !std::mem::replace(&mut watchers.at_work, true) {
            tokio::spawn(self.clone().look_after());
        }
        Watch {
            keyed: self.clone(),
            revision: self.newest().state().map(KeyState::revision),
        }
    }

    fn publish(&self, seen: &Seen) {
        let revision = |seen: &Seen| seen.state().map(KeyState::revision);
        let mut newest = lock(&self.newest);
        let anyhow = self.settings.planted.has(Bug::OlderReplaces);
        if revision(seen) > revision(&newest) || anyhow {
            *newest = seen.clone();
            self.moved.notify_waiters();
        } else if revision(seen) == revision(&newest) {
            newest.decided = newest.decided.max(seen.decided);
            // A store may give a state a higher version, and says nothing of what came first.
            newest.version = seen.version;
        }
    }

    /// A random pause, longer with each try.
    async fn pause(&self, tries: u32) {
        let most = PAUSE * (1 << tries.min(DOUBLINGS));
        let drawn = lock(&self.dice).below(most.as_micros() as u64 + 1);
        sleep(Duration::from_micros(drawn)).await;
    }

    async fn read_all(self: Arc<Self>) {
        loop {
            let asked = {
                let mut line = lock(&self.reads);
                line.at_work = !line.waiting.is_empty();
                line.next(usize::MAX, |_| true)
            };
            if asked.is_empty() {
                return;
            }
            let seen = self.read().await;
            for tell in asked {
                // Whoever is gone needs no answer.
                let _ = tell.send(seen.clone());
            }
        }
    }

    /// A deciding read, repeated while it fails, for as long as a request may take.
    async fn read(&self) -> Result<Seen, StoreError> {
        let since = Instant::now();
        let mut tries = 0;
        loop {
            let begun = Instant::now();
            match self.store.read(&self.key).await {
                Ok(row) => {
                    let seen = Seen::of(row, Some(begun))?;
                    self.publish(&seen);
                    return Ok(seen);
                }
                Err(error) if since.elapsed() > self.settings.patience() => return Err(error),
                Err(_) => {
                    tries += 1;
                    self.pause(tries).await;
                }
            }
        }
    }

    async fn apply_all(self: Arc<Self>) {
        loop {
            self.gather(&[]).await;
            let asked = {
                let mut line = lock(&self.steps);
                line.at_work = !line.waiting.is_empty();
                if !line.at_work {
                    return;
                }
                self.round(&mut line, BATCH)
            };
            if asked.is_empty() {
                continue;
            }
            self.carry_out(asked).await;
        }
    }

    /// Waits as long as all steps that wait, and those of `asked`, may wait for company.
    async fn gather(&self, asked: &[Asked]) {
        loop {
            let came = self.came.notified();
            let until = {
                let line = lock(&self.steps);
                let all = asked.iter().chain(&line.waiting);
                // Nobody, or one that does not wait at all.
                all.map(|asked| asked.latest).min().flatten()
            };
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            // Whichever it is, it is looked at again.
            let _ = timeout_at(until, came).await;
        }
    }

    /// Swaps until all that were asked for are in the row, or it is known that they will not be.
    async fn carry_out(&self, mut asked: Vec<Asked>) {
        let since = Instant::now();
        let mut doubt = false;
        let mut tries = 0;
        let mut base = self.peek().await;
        // The base is from after everything that is asked.
        let mut current = false;
        loop {
            let seen = match &base {
                Ok(seen) => seen.clone(),
                Err(error) => {
                    if matches!(error, StoreError::Refused(_)) && !doubt
                        || since.elapsed() > self.settings.patience()
                    {
                        return fail(asked, error, doubt);
                    }
                    base = self.read().await;
                    current = base.is_ok();
                    continue;
                }
            };
            let mut state = match seen.state() {
                Some(state) => state.clone(),
                None => KeyState::new(self.settings.wall(), self.settings.lowest_ref),
            };
            let before = state.clone();
            let planted = self.settings.planted;
            let done: Vec<Done> = asked
                .iter()
                .map(|a| state.apply(&a.step, planted))
                .collect();
            if state == before {
                if current {
                    return answer(asked, done, &seen, None);
                }
                base = self.read().await;
                current = base.is_ok();
                continue;
            }
            state.assert_invariants();
            state.revise();
            base = match self.swap(&seen, state, tries).await {
                Swap::Applied(after) => return answer(asked, done, &after, Some(seen.version)),
                Swap::Refused(now) => now,
                Swap::Unknown if planted.has(Bug::UnknownAsRefused) => {
                    let error = StoreError::Refused("planted".into());
                    return fail(asked, &error, false);
                }
                Swap::Unknown => {
                    doubt = true;
                    match planted.has(Bug::PeekAfterUnknown) {
                        true => self.peek().await,
                        false => self.read().await,
                    }
                }
            };
            current = base.is_ok();
            self.breathe(&mut asked, tries).await;
            tries += 1;
            let more = self.steps_meanwhile(asked.len());
            current &= more.is_empty() || planted.has(Bug::JoinedUndecided);
            asked.extend(more);
        }
    }

    /// One swap.
    async fn swap(&self, seen: &Seen, state: KeyState, tries: u32) -> Swap {
        let mut begun = Instant::now();
        let swapped = self.store.swap(&self.key, seen.version, state.encode());
        let swapped = swapped.await;
        self.note(&swapped, begun.elapsed());
        if self.settings.planted.has(Bug::DecidedLate) {
            begun = Instant::now();
        }
        match swapped {
            Ok(Swapped::Applied(version)) => {
                let after = Seen {
                    version: Some(version),
                    state: Some(Arc::new(state)),
                    decided: Some(begun),
                };
                self.publish(&after);
                Swap::Applied(after)
            }
            Ok(Swapped::Refused(Some(row))) => {
                let now = Seen::of(Some(row), Some(begun));
                Swap::Refused(now.inspect(|now| self.publish(now)))
            }
            Ok(Swapped::Refused(None)) => Swap::Refused(self.read().await),
            Err(StoreError::Unknown(_)) => {
                self.pause(tries).await;
                Swap::Unknown
            }
            Err(error) => Swap::Refused(Err(error)),
        }
    }

    /// A pause after a swap that was not applied: none after the first, if somebody waits.
    async fn breathe(&self, asked: &mut [Asked], tries: u32) {
        if asked.iter().all(|asked| asked.latest.is_some()) {
            let wait = lock(&self.pace).drawn(false, &mut lock(&self.dice));
            let latest = Some(Instant::now() + wait);
            asked.iter_mut().for_each(|asked| asked.latest = latest);
            self.gather(asked).await;
        } else if tries > 0 {
            self.pause(tries).await;
        }
    }

    /// Learns from a swap how crowded the row is.
    fn note(&self, swapped: &Result<Swapped, StoreError>, took: Duration) {
        let mut pace = lock(&self.pace);
        match swapped {
            Ok(Swapped::Applied(_)) => pace.alone(took),
            _ => pace.met(took),
        }
    }

    /// How many refs this node has enqueued, as far as is known.
    fn own_refs(&self) -> usize {
        let newest = self.newest();
        let refs = newest.state().into_iter().flat_map(KeyState::refs);
        refs.filter(|(_, waits, _)| waits.origin.node == self.settings.node)
            .count()
    }

    /// The steps of the next round.
    fn round(&self, line: &mut Line<Asked>, most: usize) -> Vec<Asked> {
        let now = Instant::now();
        let hurried = line.waiting.iter().filter(|a| a.latest.is_none()).count();
        let last = self.own_refs() <= hurried;
        line.next(most, |asked| {
            last || asked.rides || asked.latest.is_some_and(|latest| latest <= now)
        })
    }

    /// Steps asked for since the round began go along; the task stays at work.
    fn steps_meanwhile(&self, asked: usize) -> Vec<Asked> {
        self.round(&mut lock(&self.steps), BATCH.saturating_sub(asked))
    }

    /// Watches the row and releases who is silent, as long as anybody watches and a lease more.
    async fn look_after(self: Arc<Self>) {
        let mut silence = Silence::default();
        loop {
            {
                let mut watchers = lock(&self.watchers);
                let lingers = watchers.lingers.is_some_and(|until| Instant::now() < until);
                let waits = self
                    .newest()
                    .state()
                    .is_some_and(|s| s.refs().next().is_some());
                if watchers.count == 0 && !(lingers && waits) {
                    watchers.at_work = false;
                    return;
                }
            }
            let seen = self.newest();
            for step in silence.of(seen.state(), |lease| self.settings.lengthened(lease)) {
                let keyed = self.clone();
                tokio::spawn(async move { keyed.apply_with(step, Haste::Soon).await });
            }
            let patience = silence.next().unwrap_or(LOOK).min(LOOK);
            self.store.changed(&self.key, seen.version, patience).await;
            // A peek that fails is repeated soon.
            let peeked = timeout(self.settings.patience(), self.peek()).await;
            if !matches!(peeked, Ok(Ok(_))) {
                self.pause(DOUBLINGS).await;
            }
        }
    }
}

fn ended() -> StoreError {
    StoreError::Unknown("the node is stopping".into())
}

fn answer(asked: Vec<Asked>, done: Vec<Done>, after: &Seen, replaced: Option<Option<Version>>) {
    for (Asked { tell, .. }, done) in asked.into_iter().zip(done) {
        let after = after.clone();
        // Whoever is gone needs no answer.
        let _ = tell.send(Ok(Ack {
            done,
            after,
            replaced,
        }));
    }
}

fn fail(asked: Vec<Asked>, error: &StoreError, doubt: bool) {
    let error = match doubt {
        true => StoreError::Unknown(error.sentence().to_owned()),
        // A read that failed has changed nothing.
        false => StoreError::Refused(error.sentence().to_owned()),
    };
    for Asked { tell, .. } in asked {
        let _ = tell.send(Err(error.clone()));
    }
}

/// Since when which ref has not been renewed, as this node has seen it.
#[derive(Default)]
struct Silence {
    refs: BTreeMap<LockRef, Quiet>,
}

struct Quiet {
    generation: u32,
    renewals: u32,
    since: Instant,
    ends: Instant,
}

impl Silence {
    /// Takes note of a state; the steps that release who has been silent for its lease.
    fn of(&mut self, state: Option<&KeyState>, lease: impl Fn(u64) -> Duration) -> Vec<Step> {
        let now = Instant::now();
        let mut known = std::mem::take(&mut self.refs);
        let mut silent = Vec::new();
        for (lock_ref, waits, extra) in state.into_iter().flat_map(KeyState::refs) {
            let (generation, renewals) = (waits.generation, extra.renewals);
            let same = known
                .remove(&lock_ref)
                .filter(|q| (q.generation, q.renewals) == (generation, renewals));
            let mut quiet = same.unwrap_or(Quiet {
                generation,
                renewals,
                since: now,
                ends: now + lease(waits.origin.lease),
            });
            if quiet.ends <= now {
                silent.push(Step::Expire {
                    lock_ref,
                    generation,
                    renewals,
                });
                // If it was not done, it is tried again, at leisure.
                quiet.ends = now + lease(waits.origin.lease).max(quiet.since.elapsed() / 4);
            }
            self.refs.insert(lock_ref, quiet);
        }
        silent
    }

    /// How long until the next ref could be released.
    fn next(&self) -> Option<Duration> {
        let first = self.refs.values().map(|quiet| quiet.ends).min()?;
        Some(first.saturating_duration_since(Instant::now()).max(PAUSE))
    }
}
