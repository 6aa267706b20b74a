//! Inside a section: gets, puts, and the ways out.
//!
//! **Verify.** No store here refuses a write because its section is over, as the native engine's
//! fence does. A holder that was taken for dead between the look at its lock and the write's quorum
//! would be told that its put is safe, after the next holder's synch has read the value that it
//! replaces (F1). So the lock row is looked at once more after the quorum, and only a put whose
//! section still holds the key then is acknowledged: the next holder, whoever it is, reads after
//! that. Puts that come to their quorums together share the look. A put that leaves its section
//! needs none: the leave itself says whether the ref was still there.

use crate::cells::Critical;
use crate::engine::{Engine, failed};
use crate::enter::{Latest, command, leave_of};
use crate::keyed::{Haste, Keyed};
use crate::planted::{Bug, Planted};
use crate::scalar::{PUTS, Scalar};
use crate::service::Answers;
use crate::state::{Done, KeyState, Step, this_key};
use crate::store::{DataStore, LockStore, StoreError};
use bytes::Bytes;
use fermata_protocol::base::{EventualTag, KeyId, Keyspace, LockRef, Purpose, SessionId, Tag};
use fermata_protocol::command::LockCommand;
use fermata_protocol::lock::Outcome;
use fermata_protocol::request::{Code, Held, Leaving, Mode, RefState, Refusal};
use fermata_protocol::{Reply, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// A pause before a failed write is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// Where others are in the way, a renewal waits for company for one of so many parts of the lease.
const RENEWALS_WAIT: u64 = 12;

/// What a lock row says of somebody who names a ref as its own.
enum Standing {
    Holds(Mode),
    Waits,
    Past,
    /// It is another session's, which alone acts in it (G49).
    Anothers,
    /// The row as it was seen does not tell.
    Unknown,
}

fn standing(
    state: Option<&KeyState>,
    held: &Held,
    session: SessionId,
    planted: Planted,
) -> Standing {
    let Some(state) = state.filter(|state| state.position() >= held.lock_ref.0) else {
        return Standing::Unknown;
    };
    match state.get(held.lock_ref) {
        None => Standing::Past,
        Some(known) if known.generation > held.generation => Standing::Past,
        Some(known) if known.generation < held.generation => Standing::Unknown,
        Some(_)
            if state.is_anothers((held.lock_ref, held.generation), session)
                && !planted.has(Bug::AnybodyActs) =>
        {
            Standing::Anothers
        }
        Some(known) if state.holds(held.lock_ref, held.generation) => Standing::Holds(known.mode),
        Some(_) => Standing::Waits,
    }
}

/// The tag of a critical cell, as other engines have it; without the writer, which no store tells.
pub(crate) fn tag_of(latest: &Latest) -> Tag {
    let Some(scalar) = latest.scalar.filter(|_| !latest.eventual) else {
        return Tag::ZERO;
    };
    let (generation, number) = scalar.within();
    Tag {
        lock_ref: scalar.lock_ref(),
        sequence: Tag::sequence(generation, number),
        writer: 0,
    }
}

impl<L: LockStore, D: DataStore> Engine<L, D> {
    /// The latest value, for the holder of the key.
    pub(crate) async fn critical_get(&self, of: SessionId, held: &Held) -> Result<Reply, Refusal> {
        let what = "the get";
        let keyspace = self.checked(&held.key, Some(Purpose::Sections)).await?;
        let row = self.row(&held.key);
        let looked = async {
            match self.settings.verifies(&keyspace) {
                true => row.decide().await,
                false => row.peek().await,
            }
        };
        let (seen, cells) = tokio::join!(looked, self.data.read(&held.key));
        let seen = seen.map_err(|e| failed(what, &e, false))?;
        match standing(seen.state(), held, of, self.settings.planted) {
            Standing::Holds(_) => {}
            Standing::Past => return Err(Refusal::past(what)),
            Standing::Anothers => return Err(Refusal::anothers(what)),
            Standing::Waits | Standing::Unknown => return Err(Refusal::not_holder(what)),
        }
        let cells = cells.map_err(|e| failed(what, &e, false))?;
        let latest = Latest::of_sections(cells);
        let later = |scalar: Scalar| {
            let generation = match self.settings.planted.has(Bug::LaterGenerationRead) {
                true => held.generation,
                false => scalar.within().0,
            };
            (scalar.lock_ref(), generation) > (held.lock_ref, held.generation)
        };
        if latest.scalar.is_some_and(later) {
            // Somebody later has written: the section was over before this read had ended.
            return Err(Refusal::past(what));
        }
        let tag = tag_of(&latest);
        let value = latest.value;
        Ok(Reply::Value { value, tag })
    }

    /// Whether the ref may write, as far as can be told before.
    async fn may_write(
        &self,
        row: &Arc<Keyed<L>>,
        of: SessionId,
        held: &Held,
    ) -> Result<(), Refusal> {
        let what = "the put";
        // A replica near by may not have heard that the section is over: what is not known here is
        // decided.
        let mut seen = row.newest();
        if !matches!(
            standing(seen.state(), held, of, self.settings.planted),
            Standing::Holds(_) | Standing::Past | Standing::Anothers
        ) {
            seen = row.decide().await.map_err(|e| failed(what, &e, false))?;
        }
        match standing(seen.state(), held, of, self.settings.planted) {
            Standing::Holds(Mode::Exclusive) => Ok(()),
            Standing::Holds(Mode::Shared) => Err(Refusal::definite(
                Code::ReadOnlySection,
                "the put was refused: a shared section only reads; enter an exclusive one to write",
            )),
            Standing::Past => Err(Refusal::past(what)),
            Standing::Anothers => Err(Refusal::anothers(what)),
            Standing::Waits | Standing::Unknown => Err(Refusal::not_holder(what)),
        }
    }

    /// Writes a put to a quorum, under its own scalar however often it takes.
    pub(crate) async fn store(
        &self,
        key: &KeyId,
        scalar: Scalar,
        cell: &Critical,
    ) -> Result<(), StoreError> {
        let since = Instant::now();
        let mut doubt = false;
        loop {
            match self.data.write(key, scalar, cell).await {
                Ok(()) => return Ok(()),
                Err(error) if since.elapsed() > self.settings.patience() => {
                    return Err(match doubt {
                        true => StoreError::Unknown(error.sentence().to_owned()),
                        false => error,
                    });
                }
                Err(error) => doubt |= matches!(error, StoreError::Unknown(_)),
            }
            sleep(PAUSE).await;
        }
    }

    /// A critical put; leaves the keys of `leave` afterwards, if there are any.
    pub(crate) async fn critical_put(
        &self,
        request: &Request,
        held: &Held,
        number: u64,
        value: Option<Bytes>,
        leave: Vec<(Held, Leaving)>,
    ) -> Result<Reply, Refusal> {
        let what = "the put";
        let keyspace = self.checked(&held.key, Some(Purpose::Sections)).await?;
        self.value_fits(value.as_ref())?;
        let mut scalar = Scalar::of_put(held.lock_ref, held.generation, number)?;
        if self.settings.planted.has(Bug::ClockStamps) {
            let stamp = self.settings.wall_micros() % PUTS + 1;
            scalar = Scalar::of_put(held.lock_ref, held.generation, stamp)?;
        }
        let row = self.row(&held.key);
        if let Err(refusal) = self.may_write(&row, request.session, held).await {
            // A repetition whose first time has left the section is answered as that was.
            let id = (request.session, request.number);
            let outcome = row.newest().state().and_then(|state| state.outcome(id));
            return match outcome {
                Some(Outcome::Left { clean: true }) if !leave.is_empty() => Ok(Reply::Left),
                Some(Outcome::Left { .. }) if !leave.is_empty() => Err(Refusal::past_unsure(what)),
                _ => Err(refusal),
            };
        }
        let cell = Critical {
            origin: EventualTag::of_section(held.lock_ref),
            value,
        };
        let tag = Tag::critical(held.lock_ref, held.generation, number, request.session);
        let stored = self.store(&held.key, scalar, &cell).await;
        if leave.is_empty() {
            stored.map_err(|e| failed(what, &e, false))?;
            self.verify(&keyspace, &row, (request.session, held))
                .await?;
            return Ok(Reply::Done { tag: Some(tag) });
        }
        let own = match stored {
            Ok(()) => Leaving::Clean(Some(tag)),
            Err(_) => Leaving::Dirty,
        };
        let mut keys = vec![(held.clone(), own)];
        keys.extend(leave.into_iter().filter(|(other, _)| other.key != held.key));
        let left = self.leave_all(request, &keys, what).await;
        stored.map_err(|e| failed(what, &e, false))?;
        match left {
            Ok(true) => Ok(Reply::Left),
            Ok(false) => Err(Refusal::past_unsure(what)),
            Err(refusal) => Err(Refusal {
                may_have_taken_effect: true,
                ..refusal
            }),
        }
    }

    /// Whether a put that has its quorum may be acknowledged.
    async fn verify(
        &self,
        keyspace: &Keyspace,
        row: &Arc<Keyed<L>>,
        (of, held): (SessionId, &Held),
    ) -> Result<(), Refusal> {
        if !self.settings.verifies(keyspace) || self.settings.planted.has(Bug::VerifyOff) {
            return Ok(());
        }
        let seen = row.decide().await;
        let seen = seen.map_err(|e| failed("the put", &e, true))?;
        match standing(seen.state(), held, of, self.settings.planted) {
            Standing::Holds(_) => Ok(()),
            _ => Err(Refusal::past_unsure("the put")),
        }
    }

    /// Leaves a section.
    pub(crate) async fn leave(
        &self,
        request: &Request,
        keys: &[(Held, Leaving)],
    ) -> Result<Reply, Refusal> {
        let what = "leaving the section";
        for (held, _) in keys {
            self.checked(&held.key, Some(Purpose::Sections)).await?;
        }
        match self.leave_all(request, keys, what).await? {
            true => Ok(Reply::Done { tag: None }),
            false => Err(Refusal::past(what)),
        }
    }

    /// Leaves all keys at the same time; false if the section was over on one of them, or was left
    /// there by an earlier transmission that did not find it clean.
    async fn leave_all(
        &self,
        request: &Request,
        keys: &[(Held, Leaving)],
        what: &str,
    ) -> Result<bool, Refusal> {
        let mut leaves = JoinSet::new();
        for (held, leaving) in keys {
            let clean = match leaving {
                Leaving::Clean(tag) => vec![(this_key(), *tag)],
                Leaving::Dirty if self.settings.planted.has(Bug::DirtyAsClean) => {
                    vec![(this_key(), None)]
                }
                Leaving::Dirty => Vec::new(),
            };
            let leave = LockCommand::Leave {
                lock_ref: held.lock_ref,
                generation: held.generation,
                of: request.session,
                clean,
                put: None,
                waiting_only: false,
            };
            let (row, step) = (self.row(&held.key), command(request, leave));
            let said_clean = *leaving != Leaving::Dirty;
            leaves.spawn(async move { (said_clean, row.apply(step).await) });
        }
        let any = self.settings.planted.has(Bug::LeftAnyhow);
        let (mut all, mut refused) = (true, None);
        while let Some(left) = leaves.join_next().await {
            match left {
                Ok((said_clean, Ok(ack))) => match ack.done {
                    Done::Command(Outcome::Left { clean }) => all &= clean || !said_clean || any,
                    Done::Command(Outcome::Refused(refusal)) => refused = Some(refusal),
                    _ => all = false,
                },
                Ok((_, Err(error))) => refused = Some(failed(what, &error, true)),
                Err(_) => {
                    let stops = StoreError::Unknown("the node is stopping".into());
                    refused = Some(failed(what, &stops, true));
                }
            }
        }
        refused.map_or(Ok(all), Err)
    }

    /// Keeps the refs of a session alive.
    pub(crate) async fn renew(&self, of: SessionId, held: &[Held]) -> Reply {
        let wall = self.settings.wall_micros();
        let mut renewals = JoinSet::new();
        for (place, held) in held.iter().cloned().enumerate() {
            let row = self.row(&held.key);
            renewals.spawn(async move { (place, renewed(&row, (of, &held), wall).await) });
        }
        let mut states = vec![RefState::Unknown; held.len()];
        while let Some(renewed) = renewals.join_next().await {
            if let Ok((place, state)) = renewed {
                states[place] = state;
            }
        }
        Reply::Renewed { states }
    }

    /// Ends somebody's ref (MUSIC `forcedRelease`). One that holds has a lease, which its client
    /// relies on: it is not renewed any more, and ends when it has run out (F10).
    pub(crate) async fn release(
        &self,
        key: &KeyId,
        lock_ref: LockRef,
        answers: &Answers,
    ) -> Result<Reply, Refusal> {
        let what = "the forced release";
        self.checked(key, Some(Purpose::Sections)).await?;
        let row = self.row(key);
        let mut watch = row.watch();
        let end = row.apply(Step::End { lock_ref });
        let ended = end.await.map_err(|e| failed(what, &e, false))?;
        if ended.done == Done::Gone {
            return Err(nothing_to_release(ended.after.state(), lock_ref));
        }
        let known = ended.after.state().and_then(|state| state.get(lock_ref));
        let lease = known.map_or(0, |known| known.origin.lease);
        let until = Instant::now() + self.settings.lengthened(lease) + self.settings.patience();
        // It may take as long as the lease: the asker is told that somebody is at work.
        let _ = answers.send(Reply::Queued {
            held: Vec::new(),
            ahead: 0,
        });
        loop {
            let seen = watch.seen();
            let state = seen.state();
            let known = state.and_then(|state| state.get(lock_ref));
            let Some(known) = known else {
                return Ok(Reply::Done { tag: None });
            };
            let generation = known.generation;
            let waiting_only = !self.settings.planted.has(Bug::ReleaseEndsHolder);
            if !state.is_some_and(|state| state.holds(lock_ref, generation)) {
                let leave = leave_of((lock_ref, generation), Vec::new(), waiting_only);
                let left = row.apply(leave);
                left.await.map_err(|e| failed(what, &e, true))?;
                continue;
            }
            if timeout_at(until, watch.changed()).await.is_err() {
                let text = "the forced release must wait for the holder's lease, which is not \
                            renewed any more; the section ends when it has run out, as soon as \
                            somebody waits for the key or asks for the release again";
                return Err(Refusal::unknown(Code::Unavailable, text));
            }
        }
    }
}

/// One renewal, and where the ref stands.
pub(crate) async fn renewed<L: LockStore>(
    row: &Arc<Keyed<L>>,
    (of, held): (SessionId, &Held),
    wall: u64,
) -> RefState {
    let (lock_ref, generation) = (held.lock_ref, held.generation);
    let renew = Step::Renew {
        lock_ref,
        generation,
        of,
        wall,
    };
    let known = row.newest();
    let lease = known
        .state()
        .and_then(|state| state.get(lock_ref))
        .map_or(0, |known| known.origin.lease);
    let haste = Haste::Within(Duration::from_micros(lease / RENEWALS_WAIT));
    let renewal = row.apply_with(renew, haste);
    let Ok(ack) = renewal.await else {
        return RefState::Unknown;
    };
    let state = ack.after.state();
    match (
        ack.done,
        state.and_then(|state| state.get(lock_ref)).zip(state),
    ) {
        (Done::Yes(_), Some((known, state))) if state.holds(lock_ref, generation) => {
            RefState::Holding {
                lease: known.origin.lease,
            }
        }
        (Done::Yes(_), Some((_, state))) => RefState::Queued {
            ahead: state.ahead(lock_ref),
        },
        (Done::No, _) => RefState::Holding { lease: 0 },
        _ => RefState::Gone,
    }
}

fn nothing_to_release(state: Option<&KeyState>, lock_ref: LockRef) -> Refusal {
    match state.is_some_and(|state| state.position() >= lock_ref.0) {
        true => Refusal::definite(
            Code::NoLongerHolder,
            "there is nothing left to release: the lock ref is past, it was left, released or \
             expired before, or it was never given",
        ),
        false => Refusal::definite(
            Code::NotHolder,
            "there is nothing to release: no queue has this lock ref, and none has given it yet; \
             the key's queue shows those that live",
        ),
    }
}
