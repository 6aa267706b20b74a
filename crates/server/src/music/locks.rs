//! Locks: who keeps them, and what is done under them. Their names are in [`super::names`].
//!
//! **Home.** MUSIC's clients number neither requests nor writes; somebody has to, and only one: two
//! nodes that number the writes of one section by their clocks are fault M2. So each lock has a
//! home, the node where it was created. Its name is a part of the lock's session, and the session
//! is in the queue, where every node finds it. A node that is asked with a lock's id sends the call
//! to its home ([`super::forward`]). Where the home cannot be connected to, or has forgotten (it
//! was restarted), the node that was asked *resumes* the section under a session of its own (F16):
//! a new generation, which fences what the old one had in flight, after the lease that the old home
//! was told. It is the home from then on.
//!
//! **Keeping alive.** MUSIC's clients renew nothing, and have no lease. The home renews the lock as
//! long as calls with its id come at least every [`IDLE`], or as often as its creation asked for;
//! then the home leaves it. So a client that died does not hold for ever, neither at the head of
//! the queue without an acquire; and the lease of the keyspace decides only how long a dead home's
//! locks wait for another node.

use super::answers::Failure;
use super::forward::Forward;
use super::names::{Name, PLAIN, PROMOTED, is_of, promotes, session_of};
use super::store::{Store, WAIT, micros};
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Planted, SessionId};
use fermata_protocol::client::writes::Account;
use fermata_protocol::request::{Critical, Held, Leaving, Mode, Operation, QueueEntry, RefState};
use fermata_protocol::{Code, Refusal, Reply};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a lock lives of which nobody speaks, unless its creation says otherwise.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// Locks that one node keeps.
const KEPT_MAX: usize = 65_536;

/// A lock's ref, as it stands in the queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: SessionId,
    pub(super) held: Held,
    pub(super) mode: Mode,
    /// What was asked for it, and is asked again until it is granted.
    asked: Operation,
    /// Its generation is not known until the first answer.
    pub(super) resuming: bool,
}

/// What is done under a lock, one thing at a time.
#[derive(Debug, Default)]
struct Work {
    entered: bool,
    /// Its writes, all of one key.
    account: Account<()>,
    /// The unit, where it is known; nobody else can change it.
    unit: Option<Option<Bytes>>,
    /// Requests so far.
    requests: u64,
}

/// One lock that this node keeps.
#[derive(Debug)]
pub(super) struct Lock {
    key: KeyId,
    pub(super) number: u64,
    idle: Duration,
    touched: Mutex<Instant>,
    /// A leave was tried: no write may follow, and the leave is tried again until it is done.
    closed: AtomicBool,
    place: Mutex<Place>,
    /// The ref that a promotion waits with.
    promotion: Mutex<Option<Place>>,
    work: tokio::sync::Mutex<Work>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lock {
    pub(super) fn place(&self) -> Place {
        locked(&self.place).clone()
    }

    pub(super) fn promotion(&self) -> Option<Place> {
        locked(&self.promotion).clone()
    }

    fn touch(&self) {
        *locked(&self.touched) = Instant::now();
    }

    /// Whether it is to be left.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed() || locked(&self.touched).elapsed() > self.idle
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// How a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Holds,
    Waits,
    /// The lock store cannot be asked now.
    Unknown,
    Gone,
}

/// The locks of one node.
pub(super) struct Locks {
    pub(super) store: Arc<Store>,
    pub(super) forward: Forward,
    me: u16,
    pub(super) kept: Mutex<HashMap<(Bytes, u64), Arc<Lock>>>,
    /// Names without a table, and since when that is known.
    pub(super) free: Mutex<HashMap<String, (Instant, Name)>>,
    keeping: AtomicBool,
}

impl Locks {
    pub(super) fn new(store: Arc<Store>) -> Locks {
        // The gate's node is a `u16` in a wider field.
        let me = u16::try_from(store.gate.info.node).unwrap_or(u16::MAX);
        Locks {
            store,
            forward: Forward::new(),
            me,
            kept: Mutex::default(),
            free: Mutex::default(),
            keeping: AtomicBool::new(false),
        }
    }

    pub(super) fn me(&self) -> u16 {
        self.me
    }

    /// Keeps a lock; the one that is kept already, if two calls find it at a time.
    fn keep(self: &Arc<Self>, lock: Arc<Lock>) -> Arc<Lock> {
        let id = (lock.key.key.clone(), lock.number);
        let kept = locked(&self.kept).entry(id).or_insert(lock).clone();
        if !self.keeping.swap(true, Ordering::Relaxed) {
            tokio::spawn(super::keeper::keep_alive(self.clone()));
        }
        kept
    }

    pub(super) fn forget(&self, lock: &Lock) {
        let id = (lock.key.key.clone(), lock.number);
        let mut kept = locked(&self.kept);
        if kept
            .get(&id)
            .is_some_and(|kept| core::ptr::eq(&**kept, lock))
        {
            kept.remove(&id);
        }
    }

    /// The lock, if this node is its home and knows it.
    pub(super) fn kept(&self, key: &KeyId, number: u64) -> Option<Arc<Lock>> {
        let lock = locked(&self.kept)
            .get(&(key.key.clone(), number))
            .cloned()?;
        lock.touch();
        Some(lock)
    }

    /// Joins the queue.
    pub(super) async fn create(
        self: &Arc<Self>,
        name: &Name,
        mode: Mode,
        idle: Duration,
    ) -> Result<Arc<Lock>, Refusal> {
        if locked(&self.kept).len() >= KEPT_MAX {
            let detail = "this node keeps as many locks as it can: ask another node, or later";
            return Err(Refusal::definite(Code::Busy, detail));
        }
        let random = self.store.session().0;
        let session = session_of(PLAIN, self.me, random, random as u64);
        let (place, unit) = self.join(&name.key, mode, session).await?;
        let lock = self.adopt(name.key.clone(), place.held.lock_ref.0, idle, place);
        let mut work = lock.work.lock().await;
        if let Some(unit) = unit {
            work.entered = true;
            work.unit = unit;
        }
        drop(work);
        Ok(lock)
    }

    /// Enqueues under `session`: the place, and the unit if it is held at once.
    pub(super) async fn join(
        &self,
        key: &KeyId,
        mode: Mode,
        session: SessionId,
    ) -> Result<(Place, Option<Option<Option<Bytes>>>), Refusal> {
        let asked = Operation::Enter {
            keys: vec![key.clone()],
            mode,
            wait: 0,
            follow: false,
            lease: None,
            may_return: true,
        };
        let place = |held| Place {
            session,
            held,
            mode,
            asked: asked.clone(),
            resuming: false,
        };
        match self.store.ask(session, 1, asked.clone()).await? {
            Reply::Entered { mut keys, .. } if keys.len() == 1 => {
                let entered = keys.remove(0);
                let unit = entered.value.known().map(|unit| unit.cloned());
                Ok((place(entered.held), Some(unit)))
            }
            Reply::Queued { mut held, .. } if held.len() == 1 => Ok((place(held.remove(0)), None)),
            other => Err(crate::gate::unexpected(&other)),
        }
    }

    fn adopt(self: &Arc<Self>, key: KeyId, number: u64, idle: Duration, place: Place) -> Arc<Lock> {
        let lock = Arc::new(Lock {
            key,
            number,
            idle,
            touched: Mutex::new(Instant::now()),
            closed: AtomicBool::new(false),
            place: Mutex::new(place),
            promotion: Mutex::new(None),
            work: tokio::sync::Mutex::default(),
        });
        self.keep(lock)
    }

    /// Takes over a lock whose home is gone, or has forgotten it.
    pub(super) fn resume(
        self: &Arc<Self>,
        key: &KeyId,
        number: u64,
        entry: &QueueEntry,
    ) -> Arc<Lock> {
        let random = self.store.session().0;
        let session = match promotes(entry.session, None) {
            true => session_of(PROMOTED, self.me, random, number),
            false => session_of(PLAIN, self.me, random, random as u64),
        };
        let held = Held {
            key: key.clone(),
            lock_ref: entry.lock_ref,
            generation: entry.generation,
        };
        let place = Place {
            session,
            held: held.clone(),
            mode: entry.mode,
            asked: Operation::Resume {
                held: vec![held],
                of: entry.session,
            },
            resuming: true,
        };
        self.adopt(key.clone(), number, IDLE, place)
    }

    /// Joins the queue again, exclusively, for a promotion of `lock`.
    pub(super) async fn promote(&self, lock: &Lock) -> Result<Place, Refusal> {
        let random = self.store.session().0;
        let session = session_of(PROMOTED, self.me, random, lock.number);
        let (place, _) = self.join(&lock.key, Mode::Exclusive, session).await?;
        *locked(&lock.promotion) = Some(place.clone());
        Ok(place)
    }

    /// Gives up a promotion.
    pub(super) fn demote(&self, lock: &Lock) {
        if let Some(place) = locked(&lock.promotion).take() {
            self.store.abandon(place.session, place.held);
        }
    }

    /// The promotion has nobody but its own reader before it: the reader leaves, the writer stays.
    pub(super) async fn promoted(&self, lock: &Lock) -> Result<(), Failure> {
        let Some(place) = lock.promotion() else {
            return Ok(());
        };
        let mut work = lock.work.lock().await;
        let reader = lock.place();
        let leave = Operation::Leave {
            keys: vec![(reader.held, Leaving::Clean(None))],
        };
        work.requests += 1;
        let number = work.requests + 1;
        match self.store.ask(reader.session, number, leave).await {
            Ok(_) => {}
            // An earlier try has left.
            Err(refusal) if refusal.code == Code::NoLongerHolder => {}
            Err(refusal) => return Err(refusal.into()),
        }
        *locked(&lock.place) = place;
        *locked(&lock.promotion) = None;
        *work = Work::default();
        Ok(())
    }

    /// How the lock stands; one that comes to the head is granted.
    ///
    /// # Errors
    /// The lock store refuses for another reason than that it cannot be reached.
    pub(super) async fn standing(&self, lock: &Lock) -> Result<Standing, Failure> {
        let mut work = lock.work.lock().await;
        if lock.is_closed() {
            return Ok(Standing::Gone);
        }
        if !work.entered {
            return self.poll(lock, &mut work).await;
        }
        let place = lock.place();
        let held = vec![place.held];
        work.requests += 1;
        let number = work.requests + 1;
        let renew = Operation::Renew { held };
        let state = match self.store.ask(place.session, number, renew).await {
            Ok(Reply::Renewed { states }) => states.first().copied(),
            Ok(other) => return Err(crate::gate::unexpected(&other).into()),
            Err(refusal) if refusal.code == Code::Unavailable => None,
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(match state {
            Some(RefState::Holding { .. }) => Standing::Holds,
            Some(RefState::Queued { .. }) => Standing::Waits,
            Some(RefState::Gone) => {
                self.forget(lock);
                Standing::Gone
            }
            Some(RefState::Unknown) | None => Standing::Unknown,
        })
    }

    /// Asks again for what was asked first, under the same identity, so that it is one request.
    async fn poll(&self, lock: &Lock, work: &mut Work) -> Result<Standing, Failure> {
        let mut place = lock.place();
        let mut reply = self.store.ask(place.session, 1, place.asked.clone()).await;
        // Who polls is told of the refs before its own, and a reader may hold beside others.
        if let (
            Ok(Reply::Queued { .. }),
            Operation::Enter {
                mode: Mode::Shared,
                wait,
                ..
            },
        ) = (&reply, &mut place.asked)
        {
            let entries = self.store.queue(lock.key.clone()).await?;
            let own = |entry: &&QueueEntry| entry.lock_ref == place.held.lock_ref;
            if entries.iter().find(own).is_some_and(|entry| entry.holds) {
                // It waits for its grant alone; giving that up takes nothing that holds.
                *wait = micros(WAIT);
                reply = self.store.ask(place.session, 1, place.asked).await;
            }
        }
        match reply {
            Ok(Reply::Entered { mut keys, .. }) if keys.len() == 1 => {
                let entered = keys.remove(0);
                work.entered = true;
                work.unit = entered.value.known().map(|unit| unit.cloned());
                let mut place = locked(&lock.place);
                (place.held, place.resuming) = (entered.held, false);
                Ok(Standing::Holds)
            }
            Ok(Reply::Queued { mut held, .. }) => {
                if let (1, mut place) = (held.len(), locked(&lock.place)) {
                    (place.held, place.resuming) = (held.remove(0), false);
                }
                Ok(Standing::Waits)
            }
            Ok(Reply::Lost { .. }) => {
                self.forget(lock);
                Ok(Standing::Gone)
            }
            Ok(other) => Err(crate::gate::unexpected(&other).into()),
            Err(refusal) => match refusal.code {
                Code::NoLongerHolder | Code::NotHolder | Code::Forgotten => {
                    self.forget(lock);
                    // Another node may have resumed it first; who asks again finds out.
                    Ok(match lock.place().resuming {
                        true => Standing::Unknown,
                        false => Standing::Gone,
                    })
                }
                Code::Unavailable | Code::Busy | Code::WaitOver => Ok(Standing::Unknown),
                _ => Err(refusal.into()),
            },
        }
    }

    /// The lock's work, once it holds.
    async fn entered<'a>(
        &self,
        lock: &'a Lock,
        id: &str,
    ) -> Result<tokio::sync::MutexGuard<'a, Work>, Failure> {
        let mut work = lock.work.lock().await;
        let gone = || Failure::error(format!("{id} does not exist."));
        if lock.is_closed() {
            return Err(gone());
        }
        if !work.entered {
            match self.poll(lock, &mut work).await? {
                Standing::Holds => {}
                Standing::Waits => {
                    return Err(Failure::error(format!("{id} is not the lock holder")));
                }
                Standing::Gone => return Err(gone()),
                Standing::Unknown => {
                    return Err(Failure::error(format!(
                        "{id} cannot be granted now: the lock store, or the home of the lock, does \
                         not answer. Nothing was done; ask again"
                    )));
                }
            }
        }
        Ok(work)
    }

    async fn critical(
        &self,
        lock: &Lock,
        work: &mut Work,
        id: &str,
        operation: Critical,
    ) -> Result<Reply, Failure> {
        let place = lock.place();
        let critical = Operation::Critical {
            held: place.held,
            operation,
            leave: vec![],
        };
        work.requests += 1;
        let number = work.requests + 1;
        let asked = self.store.ask(place.session, number, critical).await;
        asked.map_err(|refusal| match refusal.code {
            Code::NoLongerHolder => {
                self.forget(lock);
                let doubt = match refusal.may_have_taken_effect {
                    true => " The write may have taken effect.",
                    false => "",
                };
                Failure::error(format!("{id} does not exist.{doubt}"))
            }
            Code::NotHolder => Failure::error(format!("{id} is not the lock holder")),
            _ => refusal.into(),
        })
    }

    /// The unit, as its holder reads it.
    pub(super) async fn read(&self, lock: &Lock, id: &str) -> Result<Option<Bytes>, Failure> {
        let mut work = self.entered(lock, id).await?;
        match self.critical(lock, &mut work, id, Critical::Get).await? {
            Reply::Value { value, .. } => Ok(value),
            other => Err(crate::gate::unexpected(&other).into()),
        }
    }

    /// Changes the unit under the lock; `act` is given what it is, and says what it becomes, or
    /// none for no change.
    pub(super) async fn write(
        &self,
        lock: &Lock,
        id: &str,
        act: impl FnOnce(Option<&Bytes>) -> Result<Option<Option<Bytes>>, Failure>,
    ) -> Result<(), Failure> {
        let mut work = self.entered(lock, id).await?;
        if lock.place().mode == Mode::Shared {
            return Err(Failure::error(format!(
                "Attempting to do write operation, but {id} is a read lock"
            )));
        }
        if work.unit.is_none() {
            let got = self.critical(lock, &mut work, id, Critical::Get).await;
            let got = got.map_err(|failure| failure.prefixed("Nothing was written: "));
            match got? {
                Reply::Value { value, .. } => work.unit = Some(value),
                other => return Err(crate::gate::unexpected(&other).into()),
            }
        }
        let now = work.unit.clone().flatten();
        let Some(value) = act(now.as_ref())? else {
            return Ok(());
        };
        let number = work.account.issue(()).ok_or_else(|| {
            Failure::error(format!(
                "{id} has made the most writes that a lock can make: release it"
            ))
        })?;
        // Until it is acknowledged, nobody knows what the unit is.
        work.unit = None;
        let put = Critical::Put {
            number,
            value: value.clone(),
        };
        match self.critical(lock, &mut work, id, put).await? {
            Reply::Done { .. } => {
                if let Some(writes) = work.account.of_mut(&()) {
                    writes.acknowledge(number);
                }
                work.unit = Some(value);
                Ok(())
            }
            other => Err(crate::gate::unexpected(&other).into()),
        }
    }

    /// Leaves: cleanly where the last write was acknowledged (F5).
    ///
    /// # Errors
    /// The lock store cannot be reached; a release may be repeated.
    pub(super) async fn release(&self, lock: &Lock) -> Result<(), Failure> {
        self.demote(lock);
        let mut work = lock.work.lock().await;
        let (place, again) = (lock.place(), lock.closed.swap(true, Ordering::Relaxed));
        if place.resuming {
            // Which generation it is, its queue knows.
            let entries = self.store.queue(lock.key.clone()).await?;
            for entry in entries.iter().filter(|entry| is_of(entry, lock.number)) {
                self.evict(&lock.key, entry).await?;
            }
            self.forget(lock);
            return Ok(());
        }
        let own = (place.held.lock_ref, place.held.generation);
        let leaving = match again || !work.entered {
            true => Leaving::Dirty,
            false => work.account.leaving(&(), own, place.session, Planted::NONE),
        };
        work.requests += 1;
        let number = work.requests + 1;
        let leave = Operation::Leave {
            keys: vec![(place.held, leaving)],
        };
        match self.store.ask(place.session, number, leave).await {
            Ok(_) => {}
            Err(refusal) if matches!(refusal.code, Code::NoLongerHolder | Code::Forgotten) => {}
            Err(refusal) => return Err(refusal.into()),
        }
        self.forget(lock);
        Ok(())
    }

    /// Ends a ref of whatever home, as its queue shows it: the next holder's synch fences what it
    /// has in flight.
    pub(super) async fn evict(&self, key: &KeyId, entry: &QueueEntry) -> Result<(), Failure> {
        let held = Held {
            key: key.clone(),
            lock_ref: entry.lock_ref,
            generation: entry.generation,
        };
        let keys = vec![(held, Leaving::Dirty)];
        let leave = Operation::Leave { keys };
        // Only the ref's own session leaves it; its home numbers from 1, and never comes so far.
        let number = self.store.gate.next_number();
        match self.store.ask(entry.session, number, leave).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == Code::NoLongerHolder => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The address of another node's REST face.
    pub(super) fn address(&self, node: u16) -> Option<&str> {
        let nodes = &self.store.gate.info.nodes;
        let found = nodes.iter().find(|n| n.node == u32::from(node));
        found
            .map(|n| n.rest.as_str())
            .filter(|rest| !rest.is_empty())
    }
}
