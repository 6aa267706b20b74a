//! Locks: who keeps them, and what is done under them. Their names are in [`super::names`].
//!
//! **Home.** MUSIC's clients number neither requests nor writes; somebody has to, and only one: two
//! nodes that number the writes of one section by their clocks are fault M2. So each lock has a
//! home, the node where it was created: it keeps a session for the lock ([`crate::hosted`]), whose
//! id has the home in it, and is in the queue, where every node finds it. A node that is asked with
//! a lock's id sends the call to its home ([`super::forward`]). Where the home cannot be connected
//! to, or has forgotten (it was restarted), the node that was asked *resumes* the section in a
//! session of its own (F16): a new generation, which fences what the old one had in flight, after
//! the lease that the old home was told. It is the home from then on. A node that drains has others
//! resume the locks that it keeps ([`super::moves`]).
//!
//! **Keeping alive.** MUSIC's clients renew nothing, and have no lease. The session does, as long
//! as calls with the lock's id come at least every [`IDLE`], or as often as its creation asked for;
//! then it leaves. So a client that died does not hold for ever, neither at the head of the queue
//! without an acquire; and the lease of the keyspace decides only how long a dead home's locks wait
//! for another node.
//!
//! **A write in doubt.** A put that has no answer may have taken effect. The next call under the
//! lock takes it for done, and first makes it true by the same put again: so a condition or a read
//! never sees what was there before a put that comes later (M5).

use super::answers::Failure;
use super::forward::Forward;
use super::names::{Name, is_of, plain_session, promoted_session, promotes, split_name};
use super::schema::TableName;
use super::store::KEYSPACE;
use super::store::{MusicStore, WAIT, Wish};
use crate::access::{Caller, Entry, Who};
use crate::hosted::own::{ask, get, known};
use crate::hosted::{Awaited, Kept};
use crate::porter::unexpected;
use bytes::Bytes;
use fermata_access::Right;
use fermata_protocol::base::{KeyId, LockRef, NodeName, SessionId};
use fermata_protocol::client::{Call, SectionId, Success};
use fermata_protocol::request::{Held, Leaving, Mode, Operation, QueueEntry};
use fermata_protocol::{Code, Refusal, Reply};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long a lock lives of which nobody speaks, unless its creation says otherwise.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// How long an acquire waits for a lock to be taken over from its former home: a client that asks
/// for its locks one after the other would lose the last ones by then (G56).
const MOMENT: Duration = Duration::from_millis(100);

/// A lock's ref, as it stands in the queue: its session.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) kept: Kept,
    pub(super) mode: Mode,
}

/// What is done under a lock, one thing at a time.
#[derive(Debug, Default)]
struct Work {
    /// None until the session has begun with it.
    section: Option<SectionId>,
    /// The answer of the session that is waited for: to a poll, or to the resumption.
    awaited: Option<Awaited>,
    entered: bool,
    /// A leave was tried.
    left: bool,
    /// The unit, where it is known; nobody else can change it.
    unit: Option<Option<Bytes>>,
    /// Whether the put that made it may not have taken effect.
    doubt: bool,
}

/// One lock that this node keeps.
pub(super) struct Lock {
    /// Its name, as it was given.
    given: String,
    key: KeyId,
    pub(super) number: u64,
    wish: Wish,
    /// Whether another node was asked to be its home: nothing is done with it here any more.
    pub(super) moved: Arc<tokio::sync::RwLock<bool>>,
    /// It is being given away, its session may have ended, and whoever asks for it waits.
    pub(super) moves: AtomicBool,
    place: Mutex<Place>,
    /// The ref that a promotion waits with.
    promotion: Mutex<Option<(Place, Work)>>,
    work: tokio::sync::Mutex<Work>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lock {
    /// What its clients call it.
    pub(super) fn id(&self) -> String {
        format!("${}${}", self.given, self.number)
    }

    pub(super) fn key(&self) -> &KeyId {
        &self.key
    }

    /// Its name, as it was given, and its key.
    pub(super) fn name(&self) -> (&str, &KeyId) {
        (&self.given, &self.key)
    }

    /// How long it lives of which nobody speaks.
    pub(super) fn idle(&self) -> Duration {
        self.wish.idle
    }

    /// Whether its section is known and not being left, and nothing is in doubt.
    pub(super) async fn is_settled(&self) -> bool {
        let work = self.work.lock().await;
        work.section.is_some() && !work.doubt && !work.left
    }

    pub(super) fn place(&self) -> Place {
        locked(&self.place).clone()
    }

    pub(super) fn is_promoting(&self) -> bool {
        locked(&self.promotion).is_some()
    }

    /// Gives up a promotion: its session leaves.
    pub(super) fn demote(&self) {
        *locked(&self.promotion) = None;
    }

    pub(super) fn lives(&self) -> bool {
        self.moves.load(Ordering::Acquire) || !self.place().kept.is_over()
    }

    /// Whoever may has spoken of it.
    pub(super) fn touch(&self) {
        self.place().kept.touch();
        if let Some((place, _)) = &*locked(&self.promotion) {
            place.kept.touch();
        }
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
    pub(super) store: Arc<MusicStore>,
    pub(super) forward: Forward,
    me: u32,
    kept: Mutex<HashMap<(Bytes, u64), Arc<Lock>>>,
    /// Names without a table, and since when that is known.
    pub(super) free: Mutex<HashMap<String, (Instant, Name)>>,
}

impl Locks {
    pub(super) fn new(store: Arc<MusicStore>) -> Locks {
        let me = store.porter.node.0;
        let forward = Forward::new(store.porter.tls.clone());
        Locks {
            store,
            forward,
            me,
            kept: Mutex::default(),
            free: Mutex::default(),
        }
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// All that live.
    pub(super) fn all(&self) -> Vec<Arc<Lock>> {
        let kept = locked(&self.kept);
        kept.values().filter(|lock| lock.lives()).cloned().collect()
    }

    /// Once nobody works with it any more, its session ends.
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

    /// The lock, if this node is its home and knows it. It lives no longer for being asked for.
    pub(super) fn kept(&self, key: &KeyId, number: u64) -> Option<Arc<Lock>> {
        let kept = locked(&self.kept)
            .get(&(key.key.clone(), number))
            .cloned()?;
        kept.lives().then_some(kept)
    }

    /// Joins the queue.
    pub(super) async fn create(
        &self,
        caller: &Caller,
        name: &Name,
        mode: Mode,
        wish: Wish,
    ) -> Result<Arc<Lock>, Refusal> {
        let random = self.store.session().0;
        let session = plain_session(self.me, random, caller.principal());
        let (place, held, work) = self.join(caller, (&name.key, mode), session, wish).await?;
        let named = (&*name.given, &name.key, held.lock_ref.0);
        let lock = keep(&mut locked(&self.kept), named, wish, (place, work));
        // A policy that came meanwhile has not found it.
        if self.has_lost(&lock) && caller.principal().is_some() {
            let _ = self.release(&lock).await;
        }
        Ok(lock)
    }

    /// Enqueues under `session`.
    async fn join(
        &self,
        caller: &Caller,
        (key, mode): (&KeyId, Mode),
        session: SessionId,
        wish: Wish,
    ) -> Result<(Place, Held, Work), Refusal> {
        let place = self.store.hosted.place(caller)?;
        let kept = self.store.host(caller, session, wish, Some(place));
        let enter = Call::Enter {
            keys: vec![key.clone()],
            mode,
            wait: 0,
            lease: None,
        };
        let (section, held, value) = match ask(&kept, enter).await? {
            Success::Entered { section, mut keys } if keys.len() == 1 => {
                let entered = keys.remove(0);
                (section, entered.held, Some(entered.value))
            }
            Success::Waiting {
                section, mut held, ..
            } if held.len() == 1 => (section, held.remove(0), None),
            other => return Err(unexpected(&other)),
        };
        let work = Work {
            section: Some(section),
            entered: value.is_some(),
            unit: value.as_ref().and_then(known),
            ..Work::default()
        };
        Ok((Place { kept, mode }, held, work))
    }

    /// Takes over a lock whose home is gone, has forgotten it, or gives it away; or finds that
    /// another call has. It lives for `idle` without a word.
    ///
    /// # Errors
    /// [`Code::Busy`] where the node keeps as many sessions as it may.
    pub(super) fn resume(
        &self,
        caller: &Caller,
        (given, key): (&str, &KeyId),
        number: u64,
        (entry, idle): (&QueueEntry, Duration),
    ) -> Result<Arc<Lock>, Refusal> {
        let mut kept = locked(&self.kept);
        if let Some(lock) = kept.get(&(key.key.clone(), number))
            && lock.lives()
        {
            return Ok(lock.clone());
        }
        let random = self.store.session().0;
        let session = match promotes(entry.session, None) {
            true => promoted_session(self.me, random, caller.principal(), number),
            false => plain_session(self.me, random, caller.principal()),
        };
        let wish = Wish {
            idle,
            label: entry.label,
        };
        let place = Place {
            kept: {
                let place = Some(self.store.hosted.place(caller)?);
                self.store.host(caller, session, wish, place)
            },
            mode: entry.mode,
        };
        let resume = Call::Resume {
            held: vec![held_of(key, entry)],
            of: entry.session,
        };
        let work = Work {
            awaited: Some(place.kept.begin(resume)?),
            ..Work::default()
        };
        let names = (given, key, number);
        Ok(keep(&mut kept, names, wish, (place, work)))
    }

    /// Joins the queue again, exclusively, for a promotion of `lock`.
    pub(super) async fn promote(&self, caller: &Caller, lock: &Lock) -> Result<(), Refusal> {
        let random = self.store.session().0;
        let session = promoted_session(self.me, random, caller.principal(), lock.number);
        let joined = self.join(caller, (&lock.key, Mode::Exclusive), session, lock.wish);
        let (place, _, work) = joined.await?;
        *locked(&lock.promotion) = Some((place, work));
        Ok(())
    }

    /// The promotion has nobody but its own reader before it: the reader leaves, the writer stays.
    pub(super) async fn promoted(&self, lock: &Lock) -> Result<(), Failure> {
        let mut work = lock.work.lock().await;
        leave(&lock.place().kept, &work).await?;
        if let Some(writer) = locked(&lock.promotion).take() {
            (*locked(&lock.place), *work) = writer;
        }
        Ok(())
    }

    /// How the lock stands; one that comes to the head is granted.
    ///
    /// # Errors
    /// The lock store refuses for another reason than that it cannot be reached.
    pub(super) async fn standing(&self, lock: &Lock) -> Result<Standing, Failure> {
        let mut work = lock.work.lock().await;
        if work.left {
            return Ok(Standing::Gone);
        }
        if !work.entered {
            return self.poll(lock, &mut work, MOMENT).await;
        }
        // The session's knowledge may be as old as its last renewal.
        let entries = match self.store.queue(lock.key.clone()).await {
            Err(refusal) if refusal.code == Code::Unavailable => return Ok(Standing::Unknown),
            entries => entries?,
        };
        let session = lock.place().kept.id();
        let own = entries.iter().find(|entry| entry.session == session);
        Ok(match own.map(|entry| entry.holds) {
            Some(true) => Standing::Holds,
            Some(false) => Standing::Waits,
            None => {
                self.forget(lock);
                Standing::Gone
            }
        })
    }

    /// Asks the session again for what it was asked first. A resumption, which waits for a lease,
    /// is waited for as long as `patience`, and goes on.
    async fn poll(
        &self,
        lock: &Lock,
        work: &mut Work,
        patience: Duration,
    ) -> Result<Standing, Failure> {
        let kept = lock.place().kept;
        let mut awaited = match (work.awaited.take(), work.section) {
            (Some(awaited), _) => awaited,
            (None, Some(section)) => kept.begin(Call::Poll { section })?,
            (None, None) => return Ok(Standing::Gone),
        };
        let wait = match work.section {
            Some(_) => WAIT,
            None => patience,
        };
        let Ok(came) = timeout(wait, &mut awaited).await else {
            work.awaited = Some(awaited);
            return Ok(Standing::Unknown);
        };
        let refusal = match kept.told(came) {
            Ok(Success::Entered { section, mut keys }) if keys.len() == 1 => {
                (work.section, work.entered) = (Some(section), true);
                work.unit = known(&keys.remove(0).value);
                return Ok(Standing::Holds);
            }
            Ok(Success::Waiting { .. }) => return Ok(Standing::Waits),
            Ok(other) => return Err(unexpected(&other).into()),
            Err(refusal) => refusal,
        };
        let resumed = work.section.is_none();
        if resumed || !lock.lives() {
            self.forget(lock);
        }
        match refusal.code {
            // Another node may have resumed it first; a client that asks again finds out.
            _ if is_past(&refusal) => Ok(match resumed {
                true => Standing::Unknown,
                false => Standing::Gone,
            }),
            Code::Unavailable | Code::Busy | Code::WaitOver => Ok(Standing::Unknown),
            _ => Err(refusal.into()),
        }
    }

    /// The lock's work and its section, once it holds, and nothing is in doubt.
    async fn entered<'a>(
        &self,
        lock: &'a Lock,
        id: &str,
    ) -> Result<(tokio::sync::MutexGuard<'a, Work>, SectionId), Failure> {
        let mut work = lock.work.lock().await;
        let standing = match work.entered && !work.left {
            true => Standing::Holds,
            false if work.left => Standing::Gone,
            false => {
                let patience = WAIT + self.store.lease();
                self.poll(lock, &mut work, patience).await?
            }
        };
        match (standing, work.section) {
            (Standing::Holds, Some(section)) => {
                if work.doubt {
                    let unit = work.unit.clone().flatten();
                    let put = self.put(lock, &mut work, (id, section), unit).await;
                    put.map_err(|failure| failure.prefixed("Nothing was done: "))?;
                }
                Ok((work, section))
            }
            (Standing::Waits, _) => Err(Failure::error(format!("{id} is not the lock holder"))),
            (Standing::Unknown, _) => Err(Failure::error(format!(
                "{id} cannot be granted now: the lock store, or the home of the lock, does not \
                 answer. Nothing was done; ask again"
            ))),
            _ => Err(Failure::error(format!("{id} does not exist."))),
        }
    }

    /// Makes a put in doubt true, if there is one; whether the lock is settled then.
    pub(super) async fn settle(&self, lock: &Lock) -> bool {
        if lock.work.lock().await.doubt {
            // The put that it makes again is all that is wanted; the guard is let go of.
            let _ = self.entered(lock, &lock.id()).await;
        }
        lock.is_settled().await
    }

    /// What a critical operation's refusal means to its lock.
    fn refused(&self, lock: &Lock, id: &str, refusal: Refusal) -> Failure {
        if !is_past(&refusal) {
            return refusal.into();
        }
        self.forget(lock);
        let doubt = match refusal.may_have_taken_effect {
            true => " The write may have taken effect.",
            false => "",
        };
        Failure::error(format!("{id} does not exist.{doubt}"))
    }

    /// The unit, as its holder reads it.
    pub(super) async fn read(&self, lock: &Lock, id: &str) -> Result<Option<Bytes>, Failure> {
        let (_work, section) = self.entered(lock, id).await?;
        let got = get(&lock.place().kept, section, lock.key.clone()).await;
        got.map_err(|refusal| self.refused(lock, id, refusal))
    }

    /// Changes the unit under the lock; `act` is given what it is, and says what it becomes, or
    /// none for no change.
    pub(super) async fn write(
        &self,
        lock: &Lock,
        id: &str,
        act: impl FnOnce(Option<&Bytes>) -> Result<Option<Option<Bytes>>, Failure>,
    ) -> Result<(), Failure> {
        let (mut work, section) = self.entered(lock, id).await?;
        let place = lock.place();
        if place.mode == Mode::Shared {
            return Err(Failure::error(format!(
                "Attempting to do write operation, but {id} is a read lock"
            )));
        }
        let now = match work.unit.clone() {
            Some(unit) => unit,
            None => {
                let got = get(&place.kept, section, lock.key.clone()).await;
                let got = got.map_err(|refusal| self.refused(lock, id, refusal));
                got.map_err(|failure| failure.prefixed("Nothing was written: "))?
            }
        };
        work.unit = Some(now.clone());
        match act(now.as_ref()) {
            Ok(Some(value)) => self.put(lock, &mut work, (id, section), value).await,
            // Without a put nobody has said that the lock still holds: the unit may be another's.
            said => {
                let got = get(&place.kept, section, lock.key.clone()).await;
                got.map_err(|refusal| self.refused(lock, id, refusal))?;
                said.map(drop)
            }
        }
    }

    async fn put(
        &self,
        lock: &Lock,
        work: &mut Work,
        (id, section): (&str, SectionId),
        value: Option<Bytes>,
    ) -> Result<(), Failure> {
        let put = Call::CriticalPut {
            section,
            key: lock.key.clone(),
            value: value.clone(),
        };
        let put = ask(&lock.place().kept, put).await;
        let unknown = put.as_ref().is_err_and(|r| r.may_have_taken_effect);
        if put.is_ok() || unknown {
            (work.unit, work.doubt) = (Some(value), unknown);
        }
        put.map(drop)
            .map_err(|refusal| self.refused(lock, id, refusal))
    }

    /// Leaves: cleanly where the last write was acknowledged (F5).
    ///
    /// # Errors
    /// The lock store cannot be reached; a release may be repeated.
    pub(super) async fn release(&self, lock: &Lock) -> Result<(), Failure> {
        lock.demote();
        let mut work = lock.work.lock().await;
        let again = core::mem::replace(&mut work.left, true);
        if again || work.section.is_none() {
            // Which generation it is, its queue knows.
            let entries = self.store.queue(lock.key.clone()).await?;
            for entry in entries.iter().filter(|entry| is_of(entry, lock.number)) {
                self.evict(&Caller::NODE, &lock.key, entry).await?;
            }
        } else {
            leave(&lock.place().kept, &work).await?;
        }
        self.forget(lock);
        Ok(())
    }

    /// Ends a ref of whatever home, as its queue shows it: the next holder's synch fences what it
    /// has in flight.
    pub(super) async fn evict(
        &self,
        caller: &Caller,
        key: &KeyId,
        entry: &QueueEntry,
    ) -> Result<(), Failure> {
        let mut told = self.forced(caller, key, entry.lock_ref);
        let keys = vec![(held_of(key, entry), Leaving::Dirty)];
        let leave = Operation::Leave { keys };
        // Only the ref's own session leaves it; its home numbers from 1, and never comes so far.
        let number = self.store.porter.next_number();
        let left = match self.store.ask(entry.session, number, leave).await {
            Err(refusal) if refusal.code == Code::NoLongerHolder => Ok(Reply::Left),
            left => left,
        };
        if let Some(told) = &mut told {
            told.end(&left.clone().unwrap_or_else(Reply::Refused));
        }
        left.map(drop).map_err(Failure::from)
    }

    /// Whether a lock's owner may not lock its row any more.
    fn has_lost(&self, lock: &Lock) -> bool {
        let access = &self.store.porter.access;
        let owner = lock.place().kept.owner();
        if owner.principal().is_none() {
            return access.is_enabled() && !access.is_closed();
        }
        // As the policy has it: MUSIC's names of keyspaces and tables have no capitals.
        let Ok((keyspace, table, value)) = split_name(&lock.given) else {
            return false;
        };
        let Ok(table) = TableName::parse(keyspace, table) else {
            return false;
        };
        let name = format!("{}.{}.{value}", table.keyspace, table.table);
        let named = (KEYSPACE, name.as_bytes());
        access.has_lost(&owner.unjudged(), Right::Lock, named)
    }

    /// The line of the audit log for a lock that somebody else ends than its owner.
    pub(super) fn forced(&self, caller: &Caller, key: &KeyId, lock_ref: LockRef) -> Option<Entry> {
        if matches!(caller.who, Who::Node) {
            return None;
        }
        let porter = &self.store.porter;
        let key = key.clone();
        let release = Operation::Release { key, lock_ref };
        let act = ("release", &release);
        porter.access.audit.act(caller, &porter.names(), act, &[])
    }

    /// Where locks are to be created that this node would not be the home of for long: the REST
    /// faces of nodes that do not drain, if this one does; else nowhere.
    pub(super) fn other_homes(&self) -> Vec<String> {
        if !self.store.porter.is_leaving() {
            return Vec::new();
        }
        let known = self.store.porter.roster.known();
        let stays = known.nodes.iter().filter(|node| !known.drains(node.name));
        let others = stays.filter(|node| node.name != self.store.porter.node);
        let faces = others.map(|node| node.addresses.rest.clone());
        faces.filter(|rest| !rest.is_empty()).collect()
    }

    /// The address of another node's REST face.
    pub(super) fn address(&self, node: u32) -> Option<String> {
        let known = self.store.porter.roster.known();
        let found = known.node(NodeName(node))?;
        Some(found.addresses.rest.clone()).filter(|rest| !rest.is_empty())
    }
}

/// Ends the locks of those who may not hold them any more, as the policy changes, until the node
/// stops; and of those who were nobody when nobody had to be known, and would be refused.
pub(super) async fn review(locks: Arc<Locks>) {
    let mut news = locks.store.porter.access.news();
    while news.changed().await.is_ok() {
        for lock in locks.all() {
            if locks.has_lost(&lock) && locks.release(&lock).await.is_err() {
                // Its idle time ends it, since nobody may speak of it.
                tracing::warn!(lock = %lock.id(), "a lock stays whose owner may not hold it");
            }
        }
    }
}

/// Keeps a lock, and those no longer whose sessions have ended.
fn keep(
    kept: &mut HashMap<(Bytes, u64), Arc<Lock>>,
    (given, key, number): (&str, &KeyId, u64),
    wish: Wish,
    (place, work): (Place, Work),
) -> Arc<Lock> {
    if kept.len() == kept.capacity() {
        kept.retain(|_, lock| lock.lives());
        kept.reserve(kept.len());
    }
    let lock = Arc::new(Lock {
        given: given.into(),
        key: key.clone(),
        number,
        wish,
        moved: Arc::default(),
        moves: AtomicBool::new(false),
        place: Mutex::new(place),
        promotion: Mutex::default(),
        work: work.into(),
    });
    kept.insert((key.key.clone(), number), lock.clone());
    lock
}

/// A queue's entry, as its holder names it.
fn held_of(key: &KeyId, entry: &QueueEntry) -> Held {
    Held {
        key: key.clone(),
        lock_ref: entry.lock_ref,
        generation: entry.generation,
    }
}

/// Whether a refusal says that the section, or its session, is over.
fn is_past(refusal: &Refusal) -> bool {
    matches!(
        refusal.code,
        Code::NoLongerHolder | Code::NotHolder | Code::Forgotten
    )
}

/// Leaves the section of a session, unless it is over.
async fn leave(kept: &Kept, work: &Work) -> Result<(), Refusal> {
    let Some(section) = work.section else {
        return Ok(());
    };
    let wait = true;
    match ask(kept, Call::Leave { section, wait }).await {
        Err(refusal) if !is_past(&refusal) => Err(refusal),
        _ => Ok(()),
    }
}
