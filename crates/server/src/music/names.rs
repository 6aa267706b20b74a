//! What locks are called: names, ids, and the sessions that say whose they are.
//!
//! The lock of `keyspace.table.value` is the Fermata lock of exactly the unit of rows whose first
//! key column has that value. Where the keyspace has no such table, it is a lock of its name alone,
//! as clients have it that only want to be one at a time. Its id is `$keyspace.table.value$N` with
//! N the lock ref. Both are taken apart by their first two dots and their last dollar, so that
//! values may have any letters.
//!
//! A lock's session is 8 bits that say what it is, 32 bits of the home, 24 random bits, 24 of a
//! digest of its owner's name, zeros where it has none, and 40 more random ones; or, for the ref
//! that a promotion waits with, the number in the lock's id. A number that is longer takes the
//! owner's place, too. So whoever takes a lock over from a home that is gone can be told from its
//! owner. Its highest bit is clear, as it is in no client's session ([`SessionId::drawn`]).

use super::Call;
use super::answers::Failure;
use super::locks::{Locks, locked};
use super::schema::{Table, TableName, rows_prefix};
use super::values::shown;
use fermata_access::Right;
use fermata_protocol::base::{KeyId, LockRef, SessionId};
use fermata_protocol::request::QueueEntry;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

/// How long it is known that a lock's name has no table.
const FREE_KNOWN: Duration = Duration::from_secs(2);
/// Such names.
const FREE_MAX: usize = 1_024;
/// Sessions of locks begin so.
pub(super) const PLAIN: u128 = 0x55;
/// Sessions of promotions begin so.
const PROMOTED: u128 = 0x51;
/// Those of a number that leaves no room for an owner.
const PROMOTED_LONG: u128 = 0x50;
/// The last 40 bits.
const LOW: u64 = (1 << OWNER) - 1;
/// How far up an owner's digest is.
const OWNER: u32 = 40;

/// A lock's name, in a keyspace that there is.
#[derive(Clone, Debug)]
pub(super) struct Name {
    /// As it was given.
    pub(super) given: String,
    pub(super) table: TableName,
    /// None where there is no such table: then it is the lock of the name alone.
    pub(super) definition: Option<Table>,
    /// The value, as its column keeps it.
    pub(super) value: Value,
    pub(super) key: KeyId,
}

impl Name {
    /// The id of a ref.
    pub(super) fn id(&self, number: u64) -> String {
        format!("${}${number}", self.given)
    }
}

/// An id in two: the lock's name and the number.
///
/// # Errors
/// It is no id.
pub(super) fn split_id(id: &str) -> Result<(&str, u64), Failure> {
    let parts = id.strip_prefix('$').and_then(|rest| rest.rsplit_once('$'));
    let number = parts.and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
    number.ok_or_else(|| {
        let shown: String = id.chars().take(128).collect();
        Failure::error(format!(
            "'{shown}' is no lock id: one is $keyspaceName.tableName.primaryKey$number, as \
             locks/create gives it"
        ))
    })
}

/// A lock's name in its parts: keyspace, table, value.
pub(super) fn split_name(name: &str) -> Result<(&str, &str, &str), Failure> {
    let parts = name
        .split_once('.')
        .and_then(|(keyspace, rest)| Some((keyspace, rest.split_once('.')?)));
    match parts {
        Some((keyspace, (table, value))) if !value.is_empty() => Ok((keyspace, table, value)),
        _ => Err(Failure::error(
            "Invalid lock. Please make sure lock is of the type keyspaceName.tableName.primaryKey",
        )),
    }
}

/// The key of a lock that is of no table's rows.
pub(super) fn free_key(name: &TableName, value: &str) -> Vec<u8> {
    format!("l\0{}\0{}\0{value}", name.keyspace, name.table).into_bytes()
}

/// The key of the list of owners of a table's locks.
pub(super) fn owners_key(name: &Name) -> Vec<u8> {
    let id = name
        .definition
        .as_ref()
        .map_or("", |table| table.id.as_str());
    format!("o\0{}\0{}\0{id}", name.table.keyspace, name.table.table).into_bytes()
}

/// The key of the unit whose first key column is `value`.
pub(super) fn unit_key(name: &TableName, table: &Table, value: &Value) -> Vec<u8> {
    [&rows_prefix(name, table)[..], shown(value).as_bytes()].concat()
}

/// The digest of an owner's name: never zero.
fn digest(owner: Option<&str>) -> u64 {
    let digest = |owner: &str| {
        let digest = Sha256::digest(owner.as_bytes());
        u64::from(u32::from_be_bytes([0, digest[0], digest[1], digest[2]]).max(1))
    };
    owner.map_or(0, digest)
}

/// A lock's session, at this home.
pub(super) fn plain_session(node: u32, random: u128, owner: Option<&str>) -> SessionId {
    let payload = digest(owner) << OWNER | random as u64 & LOW;
    session_of(PLAIN, node, random, payload)
}

/// The session of the promotion of lock `number`.
pub(super) fn promoted_session(
    node: u32,
    random: u128,
    owner: Option<&str>,
    number: u64,
) -> SessionId {
    match number <= LOW {
        true => session_of(PROMOTED, node, random, digest(owner) << OWNER | number),
        false => session_of(PROMOTED_LONG, node, random, number),
    }
}

/// Whether a lock with these refs is the owner's; none: they do not say.
pub(super) fn is_owned<'a>(
    mut entries: impl Iterator<Item = &'a QueueEntry>,
    owner: Option<&str>,
) -> Option<bool> {
    let says = |entry: &&QueueEntry| [PLAIN, PROMOTED].contains(&(entry.session.0 >> 120));
    let found = entries.find(says)?;
    Some((found.session.0 as u64) >> OWNER == digest(owner))
}

fn session_of(kind: u128, node: u32, random: u128, payload: u64) -> SessionId {
    let random = (random >> 64) & 0xff_ffff;
    SessionId(kind << 120 | u128::from(node) << 88 | random << 64 | u128::from(payload))
}

/// The home that a session names, if it is a lock's.
pub(super) fn home_of(session: SessionId) -> Option<u32> {
    let kinds = [PLAIN, PROMOTED, PROMOTED_LONG];
    let is_lock = kinds.contains(&(session.0 >> 120));
    is_lock.then_some((session.0 >> 88) as u32)
}

/// The number of the lock of whose promotion a session is.
fn promoted(session: SessionId) -> Option<u64> {
    match session.0 >> 120 {
        PROMOTED => Some(session.0 as u64 & LOW),
        PROMOTED_LONG => Some(session.0 as u64),
        _ => None,
    }
}

/// Whether a session is of the promotion of lock `number`, or, with none, of any.
pub(super) fn promotes(session: SessionId, number: Option<u64>) -> bool {
    promoted(session).is_some_and(|of| number.is_none_or(|number| of == number))
}

/// The number that a queue's entry has in its lock's id.
pub(super) fn number_of(entry: &QueueEntry) -> u64 {
    promoted(entry.session).unwrap_or(entry.lock_ref.0)
}

/// Whether `entry` is the ref of lock `number`.
pub(super) fn is_of(entry: &QueueEntry, number: u64) -> bool {
    (entry.lock_ref == LockRef(number) && !promotes(entry.session, None))
        || promotes(entry.session, Some(number))
}

impl Locks {
    /// The lock of this name.
    ///
    /// # Errors
    /// It is no name, there is no such keyspace, or the caller may not lock it.
    pub(super) async fn name(&self, call: &Call, given: &str) -> Result<Name, Failure> {
        let (keyspace, table, value) = split_name(given)?;
        let table = TableName::parse(keyspace, table)?;
        let rights = &[Right::Lock];
        self.store.may(&call.caller, rights, &table, Some(value))?;
        if let Some((at, name)) = locked(&self.free).get(given)
            && at.elapsed() < FREE_KNOWN
        {
            return Ok(name.clone());
        }
        let Some(definition) = self.store.find_table(&table, |_| true).await? else {
            return self.free_name(given, table, value).await;
        };
        let column = definition.unit_column();
        let kind = definition.columns.get(column);
        let value = kind.and_then(|kind| kind.convert(&Value::from(value)).transpose());
        let value = match value {
            Some(Ok(value)) => value,
            Some(Err(why)) => return Err(Failure::error(format!("Invalid lock. {column}: {why}"))),
            None => return Err(Failure::error("Invalid lock. It has no key")),
        };
        // As the row has it, which is judged by that.
        let row = shown(&value);
        self.store.may(&call.caller, rights, &table, Some(&row))?;
        let key = self
            .store
            .key(unit_key(&table, &definition, &value))
            .await?;
        Ok(Name {
            given: given.into(),
            table,
            definition: Some(definition),
            value,
            key,
        })
    }

    /// The lock of a name whose table there is not. That takes a linearizable read to know, so it
    /// is known for a moment: a client that polls such a lock does not read every time.
    async fn free_name(&self, given: &str, table: TableName, value: &str) -> Result<Name, Failure> {
        if !self.store.has_keyspace(&table.keyspace).await? {
            return Err(Failure::error(format!(
                "Invalid lock. Keyspace '{}' doesn't exist",
                table.keyspace
            )));
        }
        let key = self.store.key(free_key(&table, value)).await?;
        let name = Name {
            given: given.into(),
            table,
            definition: None,
            value: value.into(),
            key,
        };
        let mut free = locked(&self.free);
        if free.len() >= FREE_MAX {
            free.clear();
        }
        free.insert(given.into(), (Instant::now(), name.clone()));
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_protocol::base::{Label, SiteId};
    use fermata_protocol::request::Mode;

    #[test]
    fn names_and_ids_of_any_value() {
        for value in [
            "joe", "a.b", "$", "a$1", "$a.b$2", "o'hara", "a/b", "é", " ",
        ] {
            let name = format!("ks.t.{value}");
            assert_eq!(split_name(&name), Ok(("ks", "t", value)));
            let id = format!("${name}$17");
            assert_eq!(split_id(&id), Ok((name.as_str(), 17)));
        }
        for wrong in ["", "ks", "ks.t", "ks.t.", "."] {
            assert!(split_name(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "",
            "$",
            "junk",
            "ks.t.k$1",
            "$ks.t.k",
            "$ks.t.k$",
            "$ks.t.k$x",
        ] {
            assert!(split_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_session_tells_its_owner() {
        let entry = |session| QueueEntry {
            lock_ref: LockRef(1),
            generation: 0,
            session,
            mode: Mode::Exclusive,
            site: SiteId(0),
            since: 0,
            holds: true,
            label: Label::default(),
        };
        for owner in [None, Some("app"), Some("é")] {
            let own = entry(plain_session(7, u128::MAX, owner));
            let promoted = entry(promoted_session(7, 5, owner, 9));
            let long = entry(promoted_session(7, 5, owner, u64::MAX));
            assert_eq!(home_of(own.session), Some(7));
            for entries in [
                &[&promoted, &own][..],
                &[&promoted],
                &[&own],
                &[&long, &own],
            ] {
                let entries = || entries.iter().copied();
                assert_eq!(is_owned(entries(), owner), Some(true));
                assert_eq!(is_owned(entries(), Some("other")), Some(false));
            }
            assert_eq!(is_owned([&long].into_iter(), owner), None);
            for bit in [0, 39, 64, 87] {
                let other = plain_session(7, u128::MAX ^ (1 << bit), owner);
                assert_ne!(other, own.session, "every random bit counts");
            }
        }
    }

    #[test]
    fn a_session_tells_its_home_and_its_promotion() {
        let plain = plain_session(7, u128::MAX, None);
        assert_eq!(home_of(plain), Some(7));
        assert!(!promotes(plain, None));
        for number in [12, LOW, LOW + 1, u64::MAX] {
            let promoted = promoted_session(u32::MAX, 1 << 64, Some("app"), number);
            assert_eq!(home_of(promoted), Some(u32::MAX));
            assert!(promotes(promoted, Some(number)) && !promotes(promoted, Some(13)));
            for lock in [plain, promoted] {
                let clients = SessionId::drawn(lock.0);
                assert!(home_of(clients).is_none() && !promotes(clients, None));
            }
        }
    }
}
