//! The keyspaces, and who may do what in them: two rows of the lock store, replaced by
//! compare-and-set like every other.

use crate::engine::{Engine, NO_LEDGERS, failed};
use crate::store::{DataStore, LockStore, Row, StoreError, Swapped};
use bytes::Bytes;
use fermata_protocol::Reply;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, Planted, StoragePolicy};
use fermata_protocol::catalogue::{Access, Catalogue as Keyspaces};
use fermata_protocol::request::{Code, Refusal};
use fermata_protocol::wire;
use std::sync::{PoisonError, RwLock};

/// Tries to add one, against others that add some, too.
const TRIES: usize = 32;

/// What this node knows. A keyspace is never changed or removed, so that what is known stays true.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    known: RwLock<Vec<Keyspace>>,
}

/// The catalogue's row.
fn row_key() -> KeyId {
    row_named(b"catalogue")
}

/// The access policy's row.
fn access_key() -> KeyId {
    row_named(b"access")
}

/// A row of the engine's own: no keyspace has the id 0.
fn row_named(name: &'static [u8]) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(0),
        key: Bytes::from_static(name),
    }
}

/// The access policy in its row.
fn access_in(row: Option<&Row>) -> Result<Access, StoreError> {
    let known = row
        .map(|row| wire::decode::<Access>(&row.state))
        .transpose();
    let known = known.map_err(|_| {
        StoreError::Refused("the access policy was not written by this version".into())
    })?;
    Ok(known.unwrap_or_default())
}

impl Catalogue {
    fn get(&self, id: KeyspaceId) -> Option<Keyspace> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|keyspace| keyspace.id == id).cloned()
    }

    fn learn(&self, all: &[Keyspace]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() > known.len() {
            *known = all.to_vec();
        }
    }
}

/// All keyspaces: those that every engine has, and those in the row.
fn all_in(row: Option<&Row>) -> Result<Vec<Keyspace>, StoreError> {
    let mut all = Keyspace::built_in().to_vec();
    if let Some(row) = row {
        let created: Vec<Keyspace> = wire::decode(&row.state).map_err(|_| {
            StoreError::Refused("the catalogue was not written by this version".into())
        })?;
        all.extend(created.into_iter().map(Keyspace::bounded));
    }
    Ok(all)
}

/// Whether it is what was wanted, but for the id that it was given.
fn is_same(known: &Keyspace, wanted: &Keyspace) -> bool {
    let id = known.id;
    *known
        == Keyspace {
            id,
            ..wanted.clone()
        }
}

impl<L: LockStore, D: DataStore> Engine<L, D> {
    /// The keyspace of this id.
    pub(crate) async fn keyspace(&self, id: KeyspaceId) -> Result<Keyspace, Refusal> {
        if let Some(known) = self.catalogue.get(id) {
            return Ok(known);
        }
        self.catalogue_now().await?;
        self.catalogue.get(id).ok_or_else(|| {
            let text = format!("there is no keyspace {}; create it first", id.0);
            Refusal::definite(Code::NoSuchKeyspace, text)
        })
    }

    /// The catalogue as a replica near by knows it.
    pub(crate) async fn keyspaces(&self) -> Result<Reply, Refusal> {
        let row = self.locks.peek(&row_key()).await;
        let all = row.and_then(|row| all_in(row.as_ref()));
        let all = all.map_err(|e| failed("the listing", &e, false))?;
        self.catalogue.learn(&all);
        Ok(Reply::Keyspaces(all))
    }

    /// The catalogue with every keyspace whose creation was answered before.
    pub(crate) async fn catalogue_now(&self) -> Result<Reply, Refusal> {
        let row = self.locks.read(&row_key()).await;
        let all = row.and_then(|row| all_in(row.as_ref()));
        let all = all.map_err(|e| failed("the listing", &e, false))?;
        self.catalogue.learn(&all);
        Ok(Reply::Keyspaces(all))
    }

    /// The access policy, with every change that was answered before.
    pub(crate) async fn access(&self) -> Result<Reply, Refusal> {
        let row = self.locks.read(&access_key()).await;
        let known = row.and_then(|row| access_in(row.as_ref()));
        let known = known.map_err(|e| failed("reading the access policy", &e, false))?;
        Ok(Reply::Access(known))
    }

    /// Replaces the access policy that was made by the change `after`.
    pub(crate) async fn change_access(&self, after: u64, policy: &Bytes) -> Result<Reply, Refusal> {
        let what = "the change of the access policy";
        let mut doubt = false;
        for _ in 0..TRIES {
            let row = self.locks.read(&access_key()).await;
            let row = row.map_err(|e| failed(what, &e, doubt))?;
            let mut access = access_in(row.as_ref()).map_err(|e| failed(what, &e, doubt))?;
            // It is read again where it is not known what became of it.
            if doubt && access.version == after + 1 && access.policy == *policy {
                return Ok(Reply::Done { tag: None });
            }
            access.replace(after, policy, after + 1, Planted::NONE)?;
            let version = row.map(|row| row.version);
            let state = wire::encode(&access);
            match self.locks.swap(&access_key(), version, state).await {
                Ok(Swapped::Applied(_)) => return Ok(Reply::Done { tag: None }),
                Ok(Swapped::Refused(_)) => {}
                Err(StoreError::Unknown(_)) => doubt = true,
                Err(error) => return Err(failed(what, &error, doubt)),
            }
        }
        let text = format!("{what} was not done: too many are made at once; repeat it");
        Err(Refusal {
            may_have_taken_effect: doubt,
            ..Refusal::definite(Code::Busy, text)
        })
    }

    /// Adds a keyspace; its id is given here.
    pub(crate) async fn create_keyspace(&self, wanted: Keyspace) -> Result<Reply, Refusal> {
        if wanted.purpose.is_ledger() {
            return Err(Refusal::definite(Code::BadRequest, NO_LEDGERS));
        }
        if wanted.storage != StoragePolicy::Replicated {
            let text = format!(
                "keyspace `{}` was not created: on this engine the data store keeps the copies, \
                 and there is no storage but `replicated`",
                wanted.name
            );
            return Err(Refusal::definite(Code::BadRequest, text));
        }
        let (mut doubt, mut row) = (false, None);
        let what = "the creation of the keyspace";
        for _ in 0..TRIES {
            let present = match row.take() {
                Some(row) => Some(row),
                None => {
                    let read = self.locks.read(&row_key()).await;
                    read.map_err(|e| failed(what, &e, doubt))?
                }
            };
            let all = all_in(present.as_ref()).map_err(|e| failed(what, &e, doubt))?;
            if doubt && all.iter().any(|known| is_same(known, &wanted)) {
                self.catalogue.learn(&all);
                return Ok(Reply::Done { tag: None });
            }
            let built_in = Keyspace::built_in().len();
            let changes = 1 + (all.len() - built_in) as u64;
            let mut next = Keyspaces::of(all, changes);
            next.create(&wanted, Planted::NONE)?;
            let next = next.all();
            let state = wire::encode(&next[built_in..].to_vec());
            let version = present.map(|row| row.version);
            match self.locks.swap(&row_key(), version, state).await {
                Ok(Swapped::Applied(_)) => {
                    self.catalogue.learn(next);
                    return Ok(Reply::Done { tag: None });
                }
                Ok(Swapped::Refused(now)) => row = now,
                Err(StoreError::Unknown(_)) => doubt = true,
                Err(error) => return Err(failed(what, &error, doubt)),
            }
        }
        let text = format!("{what} was not done: too many are created at once; repeat it");
        Err(Refusal {
            may_have_taken_effect: doubt,
            ..Refusal::definite(Code::Busy, text)
        })
    }
}
