//! The way into a section: enqueue, wait, synch where it is needed, and the value (MUSIC §IV-B).
//!
//! **Two ways.** Where a peek shows the key free, the value is read beside the compare-and-set that
//! enqueues: if that replaces exactly the row that was peeked at, the key was free from before the
//! value was read until this ref became the head; every section before it had left cleanly, after
//! its puts had their quorums. One trip of the compare-and-set, and the value is there, if both are
//! back soon: who is silent for a lease is followed by others. Otherwise the ref waits; once it is
//! seen to hold, the value is read beside a deciding read, which tells that it still does, and
//! whether the flag is set. A peek alone never grants: a node that slept may look at a replica that
//! did, too (F11.1). That the flag is clear must have been seen *before* the value was read:
//! another node that prepares the same ref's grant may settle the value, and clear the flag,
//! between that read and the deciding one.
//!
//! **Synch.** Where the flag is set, or an eventual value is the newer one, the value is written
//! back under the ref. The row allots a number to each attempt, and only the attempt that was begun
//! last settles the value ([`Step::Settle`]): an earlier one may still write, below it (M3, F4).
//!
//! **Adoption.** Only the node that has enqueued the ref adopts an eventual value for it (G5,
//! [`crate::firsts`]): any other cannot know whether the section has begun with what the critical
//! cell says. A client that repeats its enter elsewhere finds its ref, and has it settled in the
//! row without an adoption. Of readers, the first settles the value for its whole batch (F19, G9).
//!
//! **Several keys** are locked one after the other, in one order for all.

use crate::cells::Critical;
use crate::critical::renewed;
use crate::engine::{Engine, failed};
use crate::keyed::{Haste, Keyed, Seen};
use crate::planted::Bug;
use crate::scalar::Scalar;
use crate::service::Answers;
use crate::state::{Done, KeyState, Step, this_key};
use crate::store::{Cells, DataStore, LockStore, StoreError};
use bytes::Bytes;
use fermata_protocol::base::{
    EventualTag, KeyId, Keyspace, Label, LockRef, Micros, Purpose, SessionId, Tag,
};
use fermata_protocol::command::{Body, Command, LockCommand, Origin};
use fermata_protocol::lock::Outcome;
use fermata_protocol::request::{Code, Entered, EntryValue, Held, Mode, Refusal};
use fermata_protocol::sessions::Sessions;
use fermata_protocol::{Reply, Request, base};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// A decision is good for one of so many parts of a lease: a later grant is decided again.
const DECISION_AGE: Micros = 4;

/// Renewals of a ref of the node's own in its lease.
const RENEWALS: Micros = 3;

/// A client that waits for the lease of another is told so often that somebody is at work.
const AT_WORK: Duration = Duration::from_secs(1);

/// The value of a key as a read found it.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    pub(crate) value: Option<Bytes>,
    /// Where it stands among eventual values.
    origin: EventualTag,
    /// It is an eventual value: no section has it yet.
    pub(crate) eventual: bool,
    /// Of the critical cell.
    pub(crate) scalar: Option<Scalar>,
}

impl Latest {
    /// The newer of the two cells (F6), by where its value came from (G24).
    pub(crate) fn of(cells: Cells) -> Latest {
        let scalar = cells.critical.as_ref().map(|(scalar, _)| *scalar);
        let critical = cells.critical.map(|(_, critical)| critical);
        let origin = critical
            .as_ref()
            .map_or_else(Default::default, |c| c.origin);
        match cells.eventual {
            Some(eventual) if eventual.tag > origin => Latest {
                value: eventual.value,
                origin: eventual.tag,
                eventual: true,
                scalar,
            },
            _ => Latest {
                value: critical.and_then(|c| c.value),
                origin,
                eventual: false,
                scalar,
            },
        }
    }

    /// What the critical cell says, whatever else there is.
    pub(crate) fn of_sections(cells: Cells) -> Latest {
        Latest::of(Cells {
            eventual: None,
            ..cells
        })
    }
}

/// What an enter asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) keys: Vec<KeyId>,
    pub(crate) mode: Mode,
    /// Microseconds; 0: answer with the place in the queue.
    pub(crate) wait: Micros,
    pub(crate) follow: bool,
    pub(crate) lease: Option<Micros>,
    /// Whether the request may be repeated although its transmission is closed (G47).
    pub(crate) may_return: bool,
    pub(crate) label: Label,
}

/// One key on its way into a section.
struct Way<L: LockStore> {
    session: SessionId,
    key: KeyId,
    row: Arc<Keyed<L>>,
    lock_ref: LockRef,
    generation: u32,
    mode: Mode,
    lease: Micros,
    /// When the node was asked.
    since: Instant,
}

/// How a wait goes on.
enum Next {
    /// It holds, with this value.
    Granted(Latest),
    /// It waits behind so many.
    Waits(u32),
}

impl<L: LockStore> Way<L> {
    fn held(&self) -> Held {
        Held {
            key: self.key.clone(),
            lock_ref: self.lock_ref,
            generation: self.generation,
        }
    }

    fn name(&self) -> (KeyId, LockRef, u32) {
        (self.key.clone(), self.lock_ref, self.generation)
    }

    /// Says again and again that the request waits here, so that it is not sent elsewhere.
    async fn says_that_it_waits(&self, answers: &Answers) -> Infallible {
        loop {
            sleep(AT_WORK).await;
            let newest = self.row.newest();
            let ahead = newest.state().map_or(0, |state| state.ahead(self.lock_ref));
            let held = Vec::new();
            let _ = answers.send(Reply::Queued { held, ahead });
        }
    }

    /// How long a decision about it is good for: a client that was silent for a lease by then may
    /// have been followed by another.
    fn good_for(&self) -> Duration {
        Duration::from_micros(self.lease / DECISION_AGE)
    }
}

/// A section of the node's own. Dropped before it was left, as with a request that nobody waits for
/// any more, it is left then, as one with a put in doubt: nobody else can go on in it, and whoever
/// comes next need not wait for its lease.
pub(crate) struct Alone<L: LockStore> {
    way: Way<L>,
    left: bool,
}

impl<L: LockStore> Alone<L> {
    fn of(way: Way<L>, planted: crate::planted::Planted) -> Alone<L> {
        Alone {
            way,
            left: planted.has(Bug::AbandonedStays),
        }
    }

    pub(crate) fn held(&self) -> Held {
        self.way.held()
    }

    /// The caller leaves the section.
    pub(crate) fn leaves(mut self) {
        self.left = true;
    }
}

impl<L: LockStore> Drop for Alone<L> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let leave = leave_of((self.way.lock_ref, self.way.generation), Vec::new(), false);
        let row = self.way.row.clone();
        // A node that stops has no tasks any more; the ref's lease ends it then.
        if let Ok(tasks) = tokio::runtime::Handle::try_current() {
            tasks.spawn(async move { row.apply(leave).await });
        }
    }
}

/// The place of one that waits. Dropped before the wait is over, as with a request whose caller has
/// hung up and does not come back, it is given up, as far as its ref only waits (G47).
struct Place<'a, L: LockStore> {
    way: &'a Way<L>,
    stays: bool,
}

impl<L: LockStore> Drop for Place<'_, L> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let (row, lock_ref) = (self.way.row.clone(), self.way.lock_ref);
        let generation = self.way.generation;
        // A node that stops has no tasks any more; the ref's lease ends it then.
        if let Ok(tasks) = tokio::runtime::Handle::try_current() {
            tasks.spawn(async move { give_up(&row, lock_ref, generation).await });
        }
    }
}

/// Takes a ref out of its queue unless it holds: then the client may be in the section by now,
/// through another node.
async fn give_up<L: LockStore>(
    row: &Arc<Keyed<L>>,
    lock_ref: LockRef,
    generation: u32,
) -> Result<Outcome, StoreError> {
    let leave = leave_of((lock_ref, generation), Vec::new(), true);
    match row.apply(leave).await?.done {
        Done::Command(outcome) => Ok(outcome),
        _ => Ok(Outcome::Gone),
    }
}

/// A command that nobody repeats: it says the same of a ref however often it comes.
pub(crate) fn own(body: LockCommand) -> Step {
    let session = SessionId(0);
    Step::Command(Command::new(
        session,
        0,
        0,
        base::Epoch::FIRST,
        Body::Lock(body),
    ))
}

/// A leave that nobody repeats, with the last puts of the keys that are left clean.
pub(crate) fn leave_of(
    (lock_ref, generation): (LockRef, u32),
    clean: Vec<(KeyId, Option<Tag>)>,
    waiting_only: bool,
) -> Step {
    own(LockCommand::Leave {
        lock_ref,
        generation,
        of: Sessions::OWN,
        clean,
        put: None,
        waiting_only,
    })
}

/// A client's command.
pub(crate) fn command(request: &Request, body: LockCommand) -> Step {
    Step::Command(Command::new(
        request.session,
        request.number,
        request.answered_through,
        base::Epoch::FIRST,
        Body::Lock(body),
    ))
}

impl<L: LockStore, D: DataStore> Engine<L, D> {
    /// Enters a section; the last answer is returned.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        request: &Request,
        wish: Wish,
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        let keyspaces = self.admitted(&wish).await?;
        let mut keys: Vec<(KeyId, Keyspace)> = wish.keys.iter().cloned().zip(keyspaces).collect();
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        let until = Instant::now() + Duration::from_micros(wish.wait);
        let mut ways: Vec<Way<L>> = Vec::new();
        let mut held: Vec<Held> = Vec::new();
        let mut entered: Vec<(Instant, Entered)> = Vec::new();
        let mut lease = Micros::MAX;
        for (key, keyspace) in &keys {
            let (way, latest) = self.enqueue(request, &wish, key, keyspace).await?;
            held.push(way.held());
            lease = lease.min(way.lease);
            let latest = match latest {
                Some(latest) => latest,
                None if wish.wait == 0 => match self.look(&way, way.since).await? {
                    Next::Granted(latest) => latest,
                    Next::Waits(ahead) => {
                        way.row.watch();
                        return Ok(Reply::Queued { held, ahead });
                    }
                },
                None => {
                    let stays = wish.may_return || self.settings.planted.has(Bug::GoneCallerStays);
                    let mut place = Place { way: &way, stays };
                    let waited = self.wait(&way, until, (&held, &ways), answers).await;
                    place.stays = true;
                    waited?
                }
            };
            let key = Entered {
                held: way.held(),
                value: latest.value.into(),
            };
            entered.push((Instant::now(), key));
            ways.push(way);
        }
        // The first may have been followed by others while the last was waited for.
        for (way, (granted, _)) in ways.iter().zip(&entered) {
            let old = granted.elapsed() > way.good_for();
            if old && !self.settings.planted.has(Bug::FirstKeyOld) {
                self.look(way, Instant::now()).await?;
            }
        }
        let entered = entered.into_iter().map(|(_, key)| key).collect();
        let reply = Reply::Entered {
            keys: self.within_grant(entered),
            lease,
        };
        match wish.follow {
            true => Ok(self.follow(&held, reply, answers).await),
            false => Ok(reply),
        }
    }

    /// Enters a section of the node's own over one key, for one operation of `request`.
    pub(crate) async fn enter_alone(
        self: &Arc<Self>,
        request: &Request,
        key: &KeyId,
        keyspace: &Keyspace,
        answers: &Answers,
    ) -> Result<(Alone<L>, Latest), Refusal> {
        let wish = Wish {
            keys: vec![key.clone()],
            mode: Mode::Exclusive,
            wait: self.settings.timing.request,
            follow: false,
            lease: None,
            may_return: true,
            label: Label::NONE,
        };
        let until = Instant::now() + self.settings.patience();
        let joins = {
            let (engine, request) = (self.clone(), request.clone());
            let (key, keyspace) = (key.clone(), keyspace.clone());
            async move {
                let joined = engine.enqueue(&request, &wish, &key, &keyspace).await;
                joined.map(|(way, latest)| (Alone::of(way, engine.settings.planted), latest))
            }
        };
        // A task of its own: if nobody waits for it any more, what it has joined is left.
        let joined = tokio::spawn(joins).await;
        let (alone, latest) = joined.map_err(|_| {
            let ends = StoreError::Refused("the node is stopping".into());
            failed("the request", &ends, false)
        })??;
        let latest = match latest {
            Some(latest) => latest,
            None => {
                // Nobody else keeps it alive, and who is before it may take as long as a lease.
                tokio::select! {
                    waited = self.wait(&alone.way, until, (&[], &[]), answers) => waited?,
                    never = self.keep(&alone.way) => match never {},
                    never = alone.way.says_that_it_waits(answers) => match never {},
                }
            }
        };
        Ok((alone, latest))
    }

    /// Renews a ref of the node's own.
    async fn keep(&self, way: &Way<L>) -> Infallible {
        let held = way.held();
        loop {
            sleep(Duration::from_micros(way.lease / RENEWALS)).await;
            // If it is gone, whoever waits with it is told.
            renewed(&way.row, (way.session, &held), self.settings.wall_micros()).await;
        }
    }

    /// What may be entered: the keyspaces, in the order of the keys.
    async fn admitted(&self, wish: &Wish) -> Result<Vec<Keyspace>, Refusal> {
        let most = self.settings.limits.section_keys;
        if wish.keys.is_empty() || wish.keys.len() > most {
            let text = format!(
                "a section has 1 to {most} keys (limits.section_keys), this one {}",
                wish.keys.len()
            );
            return Err(Refusal::definite(Code::TooLarge, text));
        }
        let mut keyspaces = Vec::with_capacity(wish.keys.len());
        for key in &wish.keys {
            let keyspace = self.checked(key, Some(Purpose::Sections)).await?;
            let lease = Keyspace::lease_of(wish.lease, (keyspace.lease, keyspace.section_max));
            lease.map_err(|why| Refusal::definite(Code::BadRequest, why))?;
            keyspaces.push(keyspace);
        }
        let mut sorted: Vec<&KeyId> = wish.keys.iter().collect();
        sorted.sort();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            let text = "a section names each of its keys once";
            return Err(Refusal::definite(Code::BadRequest, text));
        }
        Ok(keyspaces)
    }

    fn origin(
        &self,
        request: &Request,
        keyspace: &Keyspace,
        (lease, label): (Micros, Label),
    ) -> Origin {
        Origin {
            node: self.settings.node,
            site: request.site,
            since: self.next_stamp(),
            lease,
            section_max: keyspace.section_max,
            label,
        }
    }

    /// Joins the queue of one key; with the value if it was free.
    async fn enqueue(
        &self,
        request: &Request,
        wish: &Wish,
        key: &KeyId,
        keyspace: &Keyspace,
    ) -> Result<(Way<L>, Option<Latest>), Refusal> {
        let what = "the enter";
        let since = Instant::now();
        let row = self.row(key);
        let lease = wish.lease.unwrap_or(keyspace.lease);
        let origin = self.origin(request, keyspace, (lease, wish.label));
        let (keys, mode) = (vec![this_key()], wish.mode);
        let step = command(request, LockCommand::Enqueue { keys, mode, origin });
        let early = match self.settings.planted.has(Bug::ValueBeforePeek) {
            true => Some(self.data.read(key).await),
            false => None,
        };
        let peeked = row.peek().await.map_err(|e| failed(what, &e, false))?;
        let begun = Instant::now();
        let (applied, read) = if peeked.is_idle() && wish.mode == Mode::Exclusive {
            let reading = async {
                match early {
                    Some(read) => read,
                    None => self.data.read(key).await,
                }
            };
            let (applied, read) = tokio::join!(row.apply(step), reading);
            (applied, Some(read))
        } else {
            // A writer behind others is served when they have left.
            let haste = match peeked.is_idle() || wish.mode == Mode::Shared || wish.wait == 0 {
                true => Haste::Now,
                false => Haste::Soon,
            };
            (row.apply_with(step, haste).await, None)
        };
        let applied = applied.map_err(|e| failed(what, &e, false))?;
        let lock_ref = match &applied.done {
            Done::Command(Outcome::Enqueued { lock_ref }) => *lock_ref,
            Done::Command(Outcome::Refused(refusal)) => return Err(refusal.clone()),
            _ => return Err(Refusal::past(what)),
        };
        let state = applied.after.state().ok_or_else(|| Refusal::past(what))?;
        // A client that has resumed it since has a generation that is not this request's to enter.
        let id = (request.session, request.number);
        let known = state.get(lock_ref);
        let anybodys = self.settings.planted.has(Bug::EntersAnothers);
        let known = known.filter(|known| (known.session, known.number) == id || anybodys);
        let known = known.ok_or_else(|| Refusal::past(what))?;
        let way = Way {
            session: request.session,
            key: key.clone(),
            row,
            lock_ref,
            generation: known.generation,
            mode: known.mode,
            lease: known.origin.lease,
            since,
        };
        if known.origin == origin {
            self.firsts.enqueued(way.name());
        }
        let alone = applied.replaced == Some(peeked.version) && state.is_front(lock_ref);
        // It is the head for as long as that at most: others may have followed it since.
        let fresh =
            begun.elapsed() <= way.good_for() || self.settings.planted.has(Bug::FirstReadOld);
        let granted = match read.map(|read| read.map(Latest::of)) {
            Some(Ok(latest))
                if alone && fresh && !latest.eventual && self.firsts.grant(&way.name()) =>
            {
                Some(latest)
            }
            _ => None,
        };
        Ok((way, granted))
    }

    /// Waits until the ref holds and its value is settled; `before` are the keys that the section
    /// has already. A task that is dropped meanwhile leaves its refs where the client may go on
    /// waiting at another node: if it does not, their leases end them (G6).
    async fn wait(
        &self,
        way: &Way<L>,
        until: Instant,
        (held, before): (&[Held], &[Way<L>]),
        answers: &Answers,
    ) -> Result<Latest, Refusal> {
        let mut watch = way.row.watch();
        let mut told = None;
        let mut pause = Duration::from_millis(100);
        let mut since = way.since;
        loop {
            watch.seen();
            let ahead = match self.look(way, since).await {
                Ok(Next::Granted(latest)) => return Ok(latest),
                Ok(Next::Waits(ahead)) => ahead,
                Err(refusal) if refusal.code == Code::Unavailable && Instant::now() < until => {
                    // As things are it cannot be granted; that may change.
                    let why = refusal.detail.clone();
                    let _ = answers.send(Reply::Stalled { why });
                    told = None;
                    since = Instant::now();
                    sleep(pause).await;
                    // Each try may take one of the attempts that a ref has.
                    pause = (2 * pause).min(AT_WORK);
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            if told != Some(ahead) {
                told = Some(ahead);
                let held = held.to_vec();
                let _ = answers.send(Reply::Queued { held, ahead });
            }
            if timeout_at(until, watch.changed()).await.is_err() {
                let gave_up = give_up(&way.row, way.lock_ref, way.generation).await;
                if matches!(gave_up, Ok(Outcome::Left { .. })) {
                    self.give_back(before).await;
                } else if let Ok(Next::Granted(latest)) = self.look(way, Instant::now()).await {
                    // It was granted at the last moment.
                    return Ok(latest);
                }
                return Err(Refusal::wait_over(ahead, None));
            }
        }
    }

    /// Ends the refs of an enter that was not granted all its keys: nobody can be in this section.
    async fn give_back(&self, ways: &[Way<L>]) {
        for way in ways {
            let leave = leave_of((way.lock_ref, way.generation), Vec::new(), false);
            // If it fails, the ref's lease ends it.
            let _ = way.row.apply(leave).await;
        }
    }

    /// Looks whether a ref holds by now, and settles its value if it does. The row before `since`
    /// decides nothing.
    async fn look(&self, way: &Way<L>, mut since: Instant) -> Result<Next, Refusal> {
        let what = "the enter";
        let planted = self.settings.planted;
        let reads = way.mode == Mode::Shared && !planted.has(Bug::SharedUnsettled);
        let settled = |state: &KeyState| match reads {
            true => state.is_settled(),
            false => state.flag().is_none(),
        };
        loop {
            // Either the ref holds already, and the reads below come after that, or it is not
            // granted.
            let newest = way.row.newest();
            let known = self.in_queue(way, &newest)?;
            if !known.holds(way.lock_ref, way.generation) {
                return Ok(Next::Waits(known.ahead(way.lock_ref)));
            }
            // The swap that let this ref in was made here, most often: no need to ask again.
            let decided = newest.is_from_after(since) || planted.has(Bug::GrantByPeek);
            let begun = newest.decided().filter(|_| decided);
            let begun = begun.unwrap_or_else(Instant::now);
            let deciding = async {
                match decided {
                    true => Ok(None),
                    false => way.row.decide().await.map(Some),
                }
            };
            let (seen, cells) = tokio::join!(deciding, self.data.read(&way.key));
            let seen = seen.map_err(|e| failed(what, &e, true))?;
            let seen = match seen {
                None if planted.has(Bug::GrantByPeek) => newest.clone(),
                Some(seen) if planted.has(Bug::DecisionAlone) => seen,
                // Whatever was decided: what is known by now counts.
                _ => way.row.newest(),
            };
            self.in_queue(way, &seen)?;
            let cells = cells.map_err(|e| failed(what, &e, true))?;
            let seen = match begun.elapsed() > way.good_for() && !planted.has(Bug::OldDecision) {
                false => seen,
                // The read has taken long: what it has found is as good as the key is held since.
                true => {
                    let begun = Instant::now();
                    let seen = way.row.decide().await.map_err(|e| failed(what, &e, true))?;
                    if begun.elapsed() > Duration::from_micros(way.lease) {
                        since = Instant::now();
                        continue;
                    }
                    seen
                }
            };
            let state = self.in_queue(way, &seen)?;
            if settled(state) && !settled(known) && !planted.has(Bug::SettledTooLate) {
                // Another node has settled the value for this ref, perhaps after it was read here.
                continue;
            }
            let adoptable = !reads && Latest::of(cells.clone()).eventual;
            if settled(state) && !adoptable && (self.firsts.grant(&way.name()) || reads) {
                return Ok(Next::Granted(Latest::of_sections(cells)));
            }
            return match reads && !state.is_front(way.lock_ref) {
                true => Ok(Next::Waits(0)),
                false => self.synch(way).await,
            };
        }
    }

    /// The state, in which the ref has to be in the queue.
    fn in_queue<'a>(&self, way: &Way<L>, seen: &'a Seen) -> Result<&'a KeyState, Refusal> {
        let state = seen.state().ok_or_else(|| Refusal::past("the enter"))?;
        match state.get(way.lock_ref) {
            Some(known) if known.generation == way.generation => Ok(state),
            _ => Err(Refusal::past("the enter")),
        }
    }

    /// Writes the latest value back under the ref, and settles it.
    async fn synch(&self, way: &Way<L>) -> Result<Next, Refusal> {
        let what = "the enter";
        let (lock_ref, generation) = (way.lock_ref, way.generation);
        let unsure = |e: StoreError| failed(what, &e, true);
        loop {
            let begun = way.row.apply(Step::Attempt {
                lock_ref,
                generation,
            });
            let begun = begun.await.map_err(unsure)?;
            let attempt = match begun.done {
                Done::Yes(attempt) => attempt,
                Done::No => return Ok(Next::Waits(1)),
                Done::Exhausted => {
                    let text = "the enter was refused: its value was not settled in 1,023 tries; \
                                leave and enter again";
                    return Err(Refusal::definite(Code::Busy, text));
                }
                _ => return Err(Refusal::past(what)),
            };
            let state = self.in_queue(way, &begun.after)?;
            let flag = state.flag();
            let adopts = !state.is_settled() && self.firsts.adopt(&way.name())
                || self.settings.planted.has(Bug::SecondAdoption);
            let cells = self.data.read(&way.key).await.map_err(unsure)?;
            let latest = match adopts {
                true => Latest::of(cells),
                false => Latest::of_sections(cells),
            };
            // Only where no other synch can have written is there nothing to outrank.
            if flag.is_some() || latest.eventual || attempt > 1 {
                let origin = match self.settings.planted.has(Bug::AdoptionOutranks) {
                    true => EventualTag::of_section(lock_ref),
                    false => latest.origin,
                };
                let value = latest.value.clone();
                let scalar = Scalar::of_attempt(lock_ref, generation, attempt);
                let written = Critical { origin, value };
                let stored = self.data.write(&way.key, scalar, &written).await;
                stored.map_err(unsure)?;
            }
            let settled = way.row.apply(Step::Settle {
                lock_ref,
                generation,
                attempt,
                flag,
            });
            match settled.await.map_err(unsure)?.done {
                Done::Yes(_) => {
                    self.firsts.settled(way.name());
                    return Ok(Next::Granted(latest));
                }
                // Another synch of this ref was begun: it may have read before this one wrote.
                Done::No => {}
                _ => return Err(Refusal::past(what)),
            }
        }
    }

    /// Leaves out what does not fit one answer.
    fn within_grant(&self, mut entered: Vec<Entered>) -> Vec<Entered> {
        let mut room = self.settings.limits.grant;
        for key in &mut entered {
            if let EntryValue::Value(value) = &key.value {
                match room.checked_sub(value.len()) {
                    Some(left) => room = left,
                    None => key.value = EntryValue::Omitted,
                }
            }
        }
        entered
    }

    /// Says that the section is entered, and at last that it is over.
    async fn follow(self: &Arc<Self>, held: &[Held], reply: Reply, answers: &Answers) -> Reply {
        if answers.send(reply).is_err() {
            return Reply::Lost {
                held: held[0].clone(),
            };
        }
        let mut ends = tokio::task::JoinSet::new();
        for held in held.iter().cloned() {
            let row = self.row(&held.key);
            ends.spawn(async move {
                let mut watch = row.watch();
                loop {
                    let seen = watch.seen();
                    let live = seen.state().is_none_or(|state| {
                        let known = state.get(held.lock_ref);
                        state.position() < held.lock_ref.0
                            || known.is_some_and(|known| known.generation == held.generation)
                    });
                    if !live {
                        return held;
                    }
                    watch.changed().await;
                }
            });
        }
        match ends.join_next().await {
            Some(Ok(held)) => Reply::Lost { held },
            _ => Reply::Lost {
                held: held[0].clone(),
            },
        }
    }

    /// Goes on in a section in a new generation (F16), once nobody relies on a lease of the old one
    /// any more (G14).
    pub(crate) async fn resume(
        self: &Arc<Self>,
        request: &Request,
        (of, held): (SessionId, &[Held]),
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        let mut entered = Vec::with_capacity(held.len());
        let mut lease = Micros::MAX;
        let mut sorted = held.to_vec();
        sorted.sort();
        let (mut ways, mut free) = (Vec::with_capacity(held.len()), Instant::now());
        for held in &sorted {
            let keyspace = self.checked(&held.key, Some(Purpose::Sections)).await?;
            let (way, leased) = self.resume_one(request, (of, held), &keyspace).await?;
            // Renewals of the old generation came before this; so did what they promised.
            if !self.settings.planted.has(Bug::ResumeBesideLease) {
                // A repetition waits for what the first time has begun to wait for.
                free = free.max(self.waits.until(way.name(), leased));
            }
            ways.push(way);
        }
        let resumed: Vec<Held> = ways.iter().map(Way::held).collect();
        let shortest = ways.iter().map(|way| way.lease).min().unwrap_or_default();
        let pause = AT_WORK.min(Duration::from_micros(shortest / RENEWALS));
        while Instant::now() < free {
            // Whoever asks does not ask elsewhere.
            let (held, ahead) = (resumed.clone(), 0);
            let _ = answers.send(Reply::Queued { held, ahead });
            sleep_until(free.min(Instant::now() + pause)).await;
            if !self.settings.planted.has(Bug::ResumedUnrenewed) {
                self.keep_once(&ways);
            }
        }
        for way in ways {
            lease = lease.min(way.lease);
            let until = Instant::now() + self.settings.patience();
            let mut watch = way.row.watch();
            let latest = loop {
                watch.seen();
                match self.look(&way, way.since).await? {
                    Next::Granted(latest) => break latest,
                    Next::Waits(ahead) => {
                        if timeout_at(until, watch.changed()).await.is_err() {
                            let text = format!(
                                "the section is resumed, but waits behind {ahead} others; repeat \
                                 the request under the same number, here or at another node"
                            );
                            return Err(Refusal::unknown(Code::Unavailable, text));
                        }
                    }
                }
            };
            entered.push(Entered {
                held: way.held(),
                value: latest.value.into(),
            });
        }
        let keys = self.within_grant(entered);
        Ok(Reply::Entered { keys, lease })
    }

    /// Renews refs that somebody resumes: the wait is as long as the lease after which others would
    /// end them. Nobody waits for it.
    fn keep_once(&self, ways: &[Way<L>]) {
        for way in ways {
            let (row, held, session) = (way.row.clone(), way.held(), way.session);
            let wall = self.settings.wall_micros();
            tokio::spawn(async move { renewed(&row, (session, &held), wall).await });
        }
    }

    /// Begins the new generation; and how long the holder of the old one may rely on its lease.
    async fn resume_one(
        &self,
        request: &Request,
        (of, held): (SessionId, &Held),
        keyspace: &Keyspace,
    ) -> Result<(Way<L>, Duration), Refusal> {
        let what = "the resumption";
        let since = Instant::now();
        let row = self.row(&held.key);
        let before = row.newest();
        let origin = self.origin(request, keyspace, (keyspace.lease, Label::NONE));
        let resume = LockCommand::Resume {
            lock_ref: held.lock_ref,
            generation: held.generation,
            of,
            origin,
        };
        let applied = row.apply(command(request, resume)).await;
        let applied = applied.map_err(|e| failed(what, &e, false))?;
        let generation = match applied.done {
            Done::Command(Outcome::Resumed { generation }) => generation,
            Done::Command(Outcome::Refused(refusal)) => return Err(refusal),
            _ => {
                let text = "the section cannot be resumed: this generation of it is gone, since \
                            the section was left, ended, or resumed by somebody else; enter a new \
                            section";
                return Err(Refusal::definite(Code::NoLongerHolder, text));
            }
        };
        let known = applied
            .after
            .state()
            .and_then(|state| state.get(held.lock_ref));
        let (mode, lease) = known.map_or((Mode::Exclusive, origin.lease), |known| {
            (known.mode, known.origin.lease)
        });
        // What waits has no lease. The row keeps the longer of both: the old one, if it is known.
        let old = before.state().and_then(|state| state.get(held.lock_ref));
        let old = old.filter(|old| old.generation == held.generation);
        let after = applied.after.state();
        let leased = match after.is_some_and(|state| state.holds(held.lock_ref, generation)) {
            true => old.map_or(lease, |old| old.origin.lease),
            false => 0,
        };
        let way = Way {
            session: request.session,
            key: held.key.clone(),
            row,
            lock_ref: held.lock_ref,
            generation,
            mode,
            lease,
            since,
        };
        Ok((way, self.settings.lengthened(leased)))
    }
}
