//! The calls under `/locks`.
//!
//! A client that polls looks at two things: `status`, and whether there is a `message`. A lock that
//! waits, and one of which nothing is known now, has a message: ask again. One that is past has an
//! error: make another.

use super::answers::{Failure, MusicAnswer};
use super::forward::{self, Silent};
use super::locks::{IDLE, Lock, Locks, Standing};
use super::moves::{self, Used};
use super::names::{Name, home_of, is_of, is_owned, number_of, promotes, split_id, split_name};
use super::owners;
use super::store::Wish;
use super::{Call, lenient};
use crate::access::Caller;
use fermata_access::Right;
use fermata_protocol::Reply;
use fermata_protocol::base::{Label, LockRef};
use fermata_protocol::request::{Mode, QueueEntry};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The longest time for which a lock may be left unspoken of.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(86_400);

/// Where a lock is answered for.
pub(super) enum Found {
    /// Here.
    Here(Used),
    /// At its home, which has answered.
    Elsewhere(MusicAnswer),
    /// Nowhere: it is past, or was never given.
    Gone,
}

impl Locks {
    /// Finds a lock by its id. See [`super::locks`] for homes. Where the home is gone, the lock is
    /// resumed; or, for a call that `ends` it, ended, which takes no lease.
    pub(super) async fn find(
        &self,
        call: &Call,
        name: &Name,
        number: u64,
        ends: bool,
    ) -> Result<Found, Failure> {
        if let Some(lock) = self.kept(&name.key, number)
            && let Some(lock) = moves::used(lock).await
        {
            self.owned(call, name, &lock, ends)?;
            lock.touch();
            return Ok(Found::Here(lock));
        }
        let entries = self.store.queue(name.key.clone()).await?;
        let own = || entries.iter().filter(|entry| is_of(entry, number));
        let Some(entry) = own().next() else {
            return Ok(Found::Gone);
        };
        let Some(home) = home_of(entry.session) else {
            return Err(not_a_lock(name, number));
        };
        let idle = call.moved.filter(|moved| moved.0 == home);
        let elsewhere = self
            .address(home)
            .filter(|_| home != self.me() && idle.is_none());
        let far = call.hops >= forward::HOPS_MAX;
        match elsewhere {
            Some(_) if far && !ends => return Err(forward::unknown()),
            Some(address) if !far => match self.forward.send(&address, call).await {
                Ok(answer) => return Ok(Found::Elsewhere(answer)),
                // To end it twice is to end it.
                Err(Silent::Unknown) if !ends => return Err(forward::unknown()),
                Err(_) => {}
            },
            _ => {}
        }
        let judged = self.store.porter.access.is_enabled();
        let owned = is_owned(own(), call.caller.principal()).filter(|_| judged);
        if ends {
            let by = match owned {
                Some(true) => &Caller::NODE,
                _ => {
                    self.may_release(call, name)?;
                    &call.caller
                }
            };
            for entry in own() {
                self.evict(by, &name.key, entry).await?;
            }
            return Ok(Found::Gone);
        }
        if owned == Some(false) {
            return Err(not_a_lock(name, number));
        }
        tracing::info!(lock = %name.id(number), home, "a lock's home is gone: resumed here");
        let idle = idle.map_or(IDLE, |(_, idle)| idle);
        let names = (name.given.as_str(), &name.key);
        let lock = self.resume(&call.caller, names, number, (entry, idle))?;
        let lock = moves::used(lock).await.ok_or_else(|| {
            Failure::wait("the lock moves to another node; nothing was done: ask again")
        })?;
        Ok(Found::Here(lock))
    }

    /// A lock is worked with by the principal that made it, and ended by whoever may release.
    fn owned(&self, call: &Call, name: &Name, lock: &Lock, ends: bool) -> Result<(), Failure> {
        match lock.place().kept.is_of(&call.caller) {
            true => Ok(()),
            false if ends => self.may_release(call, name),
            false => Err(not_a_lock(name, lock.number)),
        }
    }

    fn may_release(&self, call: &Call, name: &Name) -> Result<(), Failure> {
        let (_, _, value) = split_name(&name.given)?;
        let rights = &[Right::Release];
        self.store
            .may(&call.caller, rights, &name.table, Some(value))
    }

    /// The name and the number of an id.
    pub(super) async fn id(&self, call: &Call, id: &str) -> Result<(Name, u64), Failure> {
        let (name, number) = split_id(id)?;
        Ok((self.name(call, name).await?, number))
    }
}

/// The ref of that number is no lock's: nothing is done to it.
fn not_a_lock(name: &Name, number: u64) -> Failure {
    Failure::error(format!(
        "{} is the section of another call or client, not a lock of this interface",
        name.id(number)
    ))
}

/// A body's mode: `lockType` or `locktype`, in any case; WRITE unless said.
fn mode_of(call: &Call) -> Result<Mode, Failure> {
    let body = call.json()?;
    let given = body.get("lockType").or_else(|| body.get("locktype"));
    match given.and_then(Value::as_str) {
        None if given.is_none_or(Value::is_null) => Ok(Mode::Exclusive),
        Some(mode) if mode.trim().is_empty() || mode.eq_ignore_ascii_case("write") => {
            Ok(Mode::Exclusive)
        }
        Some(mode) if mode.eq_ignore_ascii_case("read") => Ok(Mode::Shared),
        _ => Err(Failure::syntax(format!(
            "lockType is READ or WRITE, not {}",
            given.unwrap_or(&Value::Null)
        ))),
    }
}

/// A body's `leasePeriod` in milliseconds.
fn lease_of(call: &Call) -> Result<Option<Duration>, Failure> {
    let Some(given) = call.json()?.get("leasePeriod").cloned() else {
        return Ok(None);
    };
    let wrong = || Failure::error("leasePeriod is a number of milliseconds, 1 to 86400000");
    let ms = match lenient::number(&given).map_err(|()| wrong())? {
        None => return Ok(None),
        Some(ms) => Duration::from_millis(ms),
    };
    if ms.is_zero() || ms > IDLE_MAX {
        return Err(wrong());
    }
    Ok(Some(ms))
}

/// `POST /locks/create/{name}`.
pub(super) async fn create(
    locks: &Arc<Locks>,
    call: &Call,
    name: &str,
) -> Result<MusicAnswer, Failure> {
    let (_, _, value) = split_name(name)?;
    let others = match call.hops {
        0 => locks.other_homes(),
        _ => Vec::new(),
    };
    for address in others {
        match locks.forward.send(&address, call).await {
            Ok(answer) => return Ok(answer),
            Err(Silent::Unknown) => return Err(forward::unknown()),
            Err(Silent::Unreached) => {}
        }
    }
    let mode = mode_of(call)?;
    let idle = lease_of(call)?.unwrap_or(IDLE);
    let name = locks.name(call, name).await?;
    let owner = call
        .header("owner")
        .filter(|owner| !owner.trim().is_empty());
    let label = owner.and_then(Label::new).unwrap_or_default();
    let wish = Wish { idle, label };
    let created = match (owner, mode) {
        (Some(owner), Mode::Exclusive) => {
            owners::create(locks, &call.caller, &name, (owner, wish)).await?
        }
        _ => locks
            .create(&call.caller, &name, mode, wish)
            .await
            .map_err(|refusal| {
                Failure::from(refusal).prefixed(&format!(
                    "Unable to create lock reference for key [{value}]. Please try again: "
                ))
            })?,
    };
    let id = name.id(created.number);
    if call.speaks_text() {
        return Ok(MusicAnswer::text(id));
    }
    Ok(MusicAnswer::success(json!({ "lock": { "lock": id } })))
}

/// How an acquire ends, in the words of either generation.
fn acquired(
    call: &Call,
    id: &str,
    number: u64,
    standing: Standing,
) -> Result<MusicAnswer, Failure> {
    if call.speaks_text() {
        return Ok(MusicAnswer::text((standing == Standing::Holds).to_string()));
    }
    let lock = json!({ "lock": id });
    match standing {
        Standing::Holds => Ok(MusicAnswer::success(json!({
            "lock": lock,
            "message": format!("{number} is the lock holder for the key"),
        }))),
        Standing::Waits => Err(Failure::wait(format!("{id} is not a lock holder")).with_lock(lock)),
        Standing::Unknown => {
            let message = format!(
                "{id}: the lock store, or the home of the lock, does not answer now; ask again"
            );
            Err(Failure::wait(message).with_lock(lock))
        }
        // Without a message: the client makes another.
        Standing::Gone => Err(Failure::error("Unable to aquire lock")),
    }
}

/// `GET /locks/acquire/{id}`.
pub(super) async fn acquire(
    locks: &Arc<Locks>,
    call: &Call,
    id: &str,
) -> Result<MusicAnswer, Failure> {
    // A missing answer is no reason to make another lock.
    let (name, number) = locks.id(call, id).await.map_err(Failure::or_wait)?;
    let found = locks.find(call, &name, number, false).await;
    match found.map_err(Failure::or_wait)? {
        Found::Elsewhere(answer) => Ok(answer),
        Found::Gone => acquired(call, id, number, Standing::Gone),
        Found::Here(lock) => {
            let standing = locks.standing(&lock).await.map_err(Failure::or_wait)?;
            acquired(call, id, number, standing)
        }
    }
}

/// `POST /locks/acquire-with-lease/{id}`: evicts a holder older than the period first.
pub(super) async fn acquire_with_lease(
    locks: &Arc<Locks>,
    call: &Call,
    id: &str,
) -> Result<MusicAnswer, Failure> {
    let lease = lease_of(call)?;
    let lease = lease.ok_or_else(|| Failure::error("leasePeriod is missing"))?;
    let (name, number) = locks.id(call, id).await?;
    let entries = locks.store.queue(name.key.clone()).await?;
    let own = |entry: &&QueueEntry| is_of(entry, number);
    if !entries.iter().any(|entry| own(&entry)) {
        return acquired(call, id, number, Standing::Gone);
    }
    let now = crate::clock::wall();
    let old = |entry: &&QueueEntry| {
        Duration::from_micros(now.saturating_sub(entry.since)) > lease
            && home_of(entry.session).is_some()
    };
    for entry in entries.iter().take_while(|entry| !own(entry)).filter(old) {
        if entry.holds {
            locks.may_release(call, &name)?;
            locks.evict(&call.caller, &name.key, entry).await?;
        }
    }
    let answer = acquire(locks, call, id).await?;
    if call.speaks_text() || answer.status != 200 {
        return Ok(answer);
    }
    Ok(MusicAnswer::success(json!({
        "lock": { "lock": name.given, "lock-lease": lease.as_millis().to_string() },
        "message": format!("{number} is the lock holder for the key"),
    })))
}

/// `GET /locks/enquire/{name}` and `GET /locks/{name}`.
pub(super) async fn enquire(
    locks: &Arc<Locks>,
    call: &Call,
    name: &str,
) -> Result<MusicAnswer, Failure> {
    let name = locks.name(call, name).await?;
    let entries = locks.store.queue(name.key.clone()).await?;
    let holder = entries.iter().find(|entry| entry.holds);
    let holder = holder.map(|entry| name.id(number_of(entry)));
    if call.speaks_text() {
        return Ok(MusicAnswer::text(holder.unwrap_or_default()));
    }
    match holder {
        Some(holder) => Ok(MusicAnswer::success(json!({
            "lock": { "lock": name.given, "lock-holder": holder },
        }))),
        None => Err(
            Failure::error("There was a problem getting the lock holder")
                .with_lock(json!({ "lock": name.given, "lock-holder": null })),
        ),
    }
}

/// `GET /locks/holders/{name}`: the one writer, or all leading readers.
pub(super) async fn holders(
    locks: &Arc<Locks>,
    call: &Call,
    name: &str,
) -> Result<MusicAnswer, Failure> {
    let name = locks.name(call, name).await?;
    let entries = locks.store.queue(name.key.clone()).await?;
    let holders = entries.iter().filter(|entry| entry.holds);
    let mut holders: Vec<String> = holders.map(|entry| name.id(number_of(entry))).collect();
    // A promotion under way is the reader and the writer of one id.
    holders.dedup();
    if holders.is_empty() {
        return Err(Failure::error("No lock holders for the key")
            .with_lock(json!({ "lock": name.given, "lock-holder": [] })));
    }
    Ok(MusicAnswer::success(json!({
        "lock": { "lock": name.given, "lock-holder": holders },
    })))
}

/// `DELETE /locks/release/{id}`: of whoever's lock, as the original; one that is past is released.
pub(super) async fn release(
    locks: &Arc<Locks>,
    call: &Call,
    id: &str,
) -> Result<MusicAnswer, Failure> {
    let (name, number) = locks.id(call, id).await?;
    match locks.find(call, &name, number, true).await? {
        Found::Elsewhere(answer) => return Ok(answer),
        Found::Here(lock) => {
            let own = lock.place().kept.is_of(&call.caller);
            let told = (!own).then(|| locks.forced(&call.caller, &name.key, LockRef(number)));
            let released = locks.release(&lock).await;
            if let Some(mut told) = told.flatten()
                && released.is_ok()
            {
                told.end(&Reply::Left);
            }
            released?;
        }
        Found::Gone => {}
    }
    if call.speaks_text() {
        return Ok(MusicAnswer::empty());
    }
    Ok(MusicAnswer::success(json!({
        "lock": { "lock": id, "lock-status": "UNLOCKED" },
    })))
}

/// `DELETE /locks/delete/{x}`: of a lock, by its id; or, by a name, of all locks of that name.
pub(super) async fn delete(
    locks: &Arc<Locks>,
    call: &Call,
    given: &str,
) -> Result<MusicAnswer, Failure> {
    let done = |call: &Call| match call.v1 {
        true => MusicAnswer::empty(),
        false => MusicAnswer::success(json!({})),
    };
    // No keyspace's name begins with a dollar.
    if given.starts_with('$') {
        let released = release(locks, call, given).await?;
        return Ok(if released.status < 300 {
            done(call)
        } else {
            released
        });
    }
    let name = locks.name(call, given).await?;
    locks.may_release(call, &name)?;
    for entry in locks.store.queue(name.key.clone()).await? {
        // Calls that are sections of their own end by themselves.
        if home_of(entry.session).is_some() {
            locks.evict(&call.caller, &name.key, &entry).await?;
            if let Some(lock) = locks.kept(&name.key, number_of(&entry)) {
                locks.forget(&lock);
            }
        }
    }
    Ok(done(call))
}

/// `POST /locks/promote/{id}`: a read lock becomes a write lock, with no writer in between.
///
/// The promotion is a second ref, exclusive, behind the reader's own: once nobody else is before
/// it, the reader leaves, and the writer follows. That is no promotion if another writer stands
/// between the two, so it is given up then, and refused.
pub(super) async fn promote(
    locks: &Arc<Locks>,
    call: &Call,
    id: &str,
) -> Result<MusicAnswer, Failure> {
    let (name, number) = locks.id(call, id).await?;
    let absent = || Failure::error("Lockref does not exist.");
    let lock = match locks.find(call, &name, number, false).await? {
        Found::Elsewhere(answer) => return Ok(answer),
        Found::Gone => return Err(absent()),
        Found::Here(lock) => lock,
    };
    match locks.standing(&lock).await? {
        Standing::Gone => return Err(absent()),
        Standing::Unknown => return Err(Failure::wait("The lock store does not answer now.")),
        Standing::Waits => return Err(Failure::wait(format!("{id} is not a lock holder"))),
        Standing::Holds if lock.place().mode == Mode::Exclusive => {
            return Err(Failure::error("Lockref is already write."));
        }
        Standing::Holds => {}
    }
    if !lock.is_promoting() {
        let entries = locks.store.queue(name.key.clone()).await?;
        if entries.iter().any(|entry| promotes(entry.session, None)) {
            return Err(Failure::error(
                "Can't promote, already promoting another lockref.",
            ));
        }
        locks.promote(&call.caller, &lock).await?;
    }
    let entries = locks.store.queue(name.key.clone()).await?;
    let at = |entry: &QueueEntry| promotes(entry.session, Some(number));
    let before: Vec<&QueueEntry> = entries.iter().take_while(|entry| !at(entry)).collect();
    if before.len() == entries.len() {
        lock.demote();
        return Err(Failure::error("The promotion was lost: try again."));
    }
    if before.iter().any(|entry| entry.mode == Mode::Exclusive) {
        lock.demote();
        return Err(Failure::error(
            "Can't promote, a write lock already waits behind this lockref: release it and create \
             a WRITE lock.",
        ));
    }
    if before.iter().any(|entry| !is_of(entry, number)) {
        return Err(Failure::wait(
            "Your lock upgrade is in progress. Check again to see if successful.",
        ));
    }
    locks.promoted(&lock).await?;
    match locks.standing(&lock).await? {
        Standing::Holds => Ok(MusicAnswer::success(json!({
            "lock": { "lock": id },
            "message": "Lock has successfully been upgraded.",
        }))),
        Standing::Gone => Err(absent()),
        Standing::Waits | Standing::Unknown => Err(Failure::wait(
            "Your lock upgrade is in progress. Check again to see if successful.",
        )),
    }
}
