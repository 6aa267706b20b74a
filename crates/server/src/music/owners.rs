//! Locks with an owner, and deadlocks refused.
//!
//! A write lock that is created with an `owner` is listed under a reserved key of its table, in a
//! section: so two creations with owners are one after the other, and each sees the other. Before
//! it joins the queue, the creation looks whether the owner would wait for somebody who (through
//! any number of others) waits for the owner. Locks without an owner are nobody's: no cycle goes
//! through them, and their creation costs no section.
//!
//! An owner who waits behind a lock of its own is not refused: it can still release the first.

use super::answers::Failure;
use super::locks::{Lock, Locks};
use super::names::{Name, number_of, owners_key};
use super::store::Wish;
use super::values::shown;
use crate::access::Caller;
use bytes::Bytes;
use fermata_protocol::Code;
use fermata_protocol::base::KeyId;
use fermata_protocol::request::{Mode, QueueEntry};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Locks with owners in one table: each creation looks at all of them.
const LISTED_MAX: usize = 1_024;

/// A lock with an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owned {
    /// Keys of locks are text.
    key: String,
    number: u64,
    owner: String,
}

/// Who waits for whom.
#[derive(Debug, Default)]
struct Waits(BTreeMap<String, BTreeSet<String>>);

impl Waits {
    /// Everybody who is listed and in this queue waits for all who are before.
    fn add(&mut self, key: &str, queue: &[QueueEntry], listed: &[Owned]) {
        let mut before: Vec<&str> = Vec::new();
        for owner in owners(key, queue, listed) {
            let waits = self.0.entry(owner.into()).or_default();
            waits.extend(
                before
                    .iter()
                    .map(|b| (*b).to_owned())
                    .filter(|b| b != owner),
            );
            before.push(owner);
        }
    }

    /// Whether `from` waits for `to`, through any number of others.
    fn reaches(&self, from: &str, to: &str) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(owner) = open.pop() {
            if owner == to {
                return true;
            }
            if seen.insert(owner) {
                let further = self.0.get(owner).into_iter().flatten();
                open.extend(further.map(String::as_str));
            }
        }
        false
    }
}

/// The owners of a queue's entries, in its order.
fn owners<'a>(
    key: &'a str,
    queue: &'a [QueueEntry],
    listed: &'a [Owned],
) -> impl Iterator<Item = &'a str> {
    queue.iter().filter_map(move |entry| {
        let number = number_of(entry);
        let of = |owned: &&Owned| owned.number == number && owned.key == key;
        listed.iter().find(of).map(|owned| owned.owner.as_str())
    })
}

fn unable(name: &Name, failure: impl Into<Failure>) -> Failure {
    failure.into().prefixed(&format!(
        "Unable to create lock reference for key [{}]. Please try again: ",
        shown(&name.value)
    ))
}

/// Creates a write lock with an owner, unless that owner would wait for ever.
pub(super) async fn create(
    locks: &Locks,
    caller: &Caller,
    name: &Name,
    (owner, wish): (&str, Wish),
) -> Result<Arc<Lock>, Failure> {
    let list = locks.store.key(owners_key(name)).await?;
    let own = locks.store.enter(list).await;
    let own = own.map_err(|refusal| match refusal.code {
        Code::WaitOver => {
            let failure = Failure::error("too many locks with owners are created now");
            unable(name, failure)
        }
        _ => unable(name, refusal),
    })?;
    match create_beside((locks, caller), name, owner, wish, own.value.as_ref()).await {
        Ok((lock, list)) => {
            if let Err(failure) = own.end::<Failure>(Ok(Some(Some(list)))).await {
                // A lock that is not listed would be in no cycle.
                locks.release(&lock).await?;
                return Err(unable(name, failure));
            }
            Ok(lock)
        }
        Err(failure) => {
            own.end::<Failure>(Ok(None)).await?;
            Err(failure)
        }
    }
}

/// The lock, beside those in the list; and the list with it.
async fn create_beside(
    (locks, caller): (&Locks, &Caller),
    name: &Name,
    owner: &str,
    wish: Wish,
    list: Option<&Bytes>,
) -> Result<(Arc<Lock>, Bytes), Failure> {
    let seen = look(locks, name, list).await;
    let (mut listed, waits) = seen.map_err(|failure| unable(name, failure))?;
    let key = String::from_utf8_lossy(&name.key.key).into_owned();
    let queue = locks.store.queue(name.key.clone()).await?;
    let reaches = |other: &str| other != owner && waits.reaches(other, owner);
    let deadlock = owners(&key, &queue, &listed).any(reaches);
    if deadlock {
        return Err(Failure::error(format!(
            "Deadlock detected when {owner} tried to create lock on {}",
            name.given
        )));
    }
    if listed.len() >= LISTED_MAX {
        let detail = "the table has as many locks with owners as are looked after";
        return Err(unable(name, Failure::error(detail)));
    }
    let created = locks.create(caller, name, Mode::Exclusive, wish).await;
    let lock = created.map_err(|refusal| unable(name, refusal))?;
    let number = lock.number;
    let owner = owner.into();
    listed.push(Owned { key, number, owner });
    let list = serde_json::to_vec(&listed).unwrap_or_default();
    Ok((lock, list.into()))
}

/// The listed locks that still are in their queues, and who waits for whom.
async fn look(
    locks: &Locks,
    name: &Name,
    list: Option<&Bytes>,
) -> Result<(Vec<Owned>, Waits), Failure> {
    let listed: Vec<Owned> = match list {
        Some(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
        None => vec![],
    };
    let keys: BTreeSet<&str> = listed.iter().map(|owned| owned.key.as_str()).collect();
    let (mut live, mut waits) = (Vec::new(), Waits::default());
    for key in keys {
        let id = KeyId {
            keyspace: name.key.keyspace,
            key: key.to_owned().into(),
        };
        let queue = locks.store.queue(id).await?;
        waits.add(key, &queue, &listed);
        let numbers: BTreeSet<u64> = queue.iter().map(number_of).collect();
        let here = listed.iter().filter(|owned| owned.key == key);
        live.extend(
            here.filter(|owned| numbers.contains(&owned.number))
                .cloned(),
        );
    }
    Ok((live, waits))
}
