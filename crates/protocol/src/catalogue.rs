//! The keyspaces of a cluster: made, changed and deleted by commands in the log of one group, and
//! known to every node, which takes over whatever is newer.
//!
//! **An id is never used again.** It is drawn from the number of changes, which only grows, so that
//! nothing is kept of the dead: an id that is below the next one, and not here, was deleted
//! ([`Catalogue::is_dead`]). Whatever comes for it, however late, is refused by who knows this.
//!
//! **The access policy** is in it as well: it belongs to the keyspaces that it names, reaches every
//! node as they do, and is there for whoever keeps another node out. It is replaced as a whole, by
//! whoever has read the one before it.
//!
//! **What a change holds for.** Lease and longest section travel with the enqueue of each section,
//! and nobody asks the catalogue again: who is in a section, or waits for one, keeps the terms with
//! which it asked, whatever the nodes know of the catalogue by then.

use crate::base::{Bug, KeyId, Keyspace, KeyspaceId, Micros, Planted};
use crate::request::{Code, Refusal};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Keyspaces of one cluster at most.
pub const KEYSPACES_MAX: usize = 1_024;

/// Bytes of the longest policy.
pub const POLICY_MAX: usize = 512 << 10;

/// Who may do what, in the words of whoever judges requests. The protocol keeps the policy, and
/// gives it to every node, and never reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The number of the change that made it; 0: there is none, and everybody may do everything.
    pub version: u64,
    /// At most [`POLICY_MAX`] bytes.
    pub policy: Bytes,
}

impl Access {
    /// Replaces the policy that was made by the change `after`, as change `version`.
    ///
    /// # Errors
    /// A definite refusal: it is too long, or another one has replaced that policy.
    pub fn replace(
        &mut self,
        after: u64,
        policy: &Bytes,
        version: u64,
        planted: Planted,
    ) -> Result<(), Refusal> {
        if policy.len() > POLICY_MAX {
            let why = format!("the access policy is longer than {POLICY_MAX} bytes: make it short");
            return Err(Refusal::definite(Code::TooLarge, why));
        }
        if after != self.version && !planted.has(Bug::PolicyOverwritten) {
            let why = "the access policy has changed since it was read, and nothing was done: read \
                       it again, and repeat the change";
            return Err(Refusal::definite(Code::Conflict, why));
        }
        *self = Access {
            version,
            policy: policy.clone(),
        };
        Ok(())
    }
}

/// All keyspaces, and who may do what in them, as of some number of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    version: u64,
    keyspaces: Vec<Keyspace>,
    access: Access,
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue {
            keyspaces: Keyspace::built_in().to_vec(),
            version: 1,
            access: Access::default(),
        }
    }
}

impl Catalogue {
    /// These keyspaces, after so many changes, none of them of the access policy.
    pub fn of(keyspaces: Vec<Keyspace>, version: u64) -> Catalogue {
        Catalogue {
            keyspaces,
            version,
            access: Access::default(),
        }
    }

    /// The number of changes, from 1.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All keyspaces there are.
    pub fn all(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    /// Who may do what.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Replaces the access policy that was made by the change `after` (compare-and-set).
    ///
    /// # Errors
    /// See [`Access::replace`].
    pub fn change_access(
        &mut self,
        after: u64,
        policy: &Bytes,
        planted: Planted,
    ) -> Result<(), Refusal> {
        let next = self.version + 1;
        self.access.replace(after, policy, next, planted)?;
        self.version = next;
        Ok(())
    }

    /// The keyspace of that id.
    pub fn get(&self, id: KeyspaceId) -> Option<&Keyspace> {
        self.keyspaces.iter().find(|known| known.id == id)
    }

    /// The id of the next keyspace: above all that were ever given.
    fn next(&self) -> u64 {
        self.version + Keyspace::built_in().len() as u64
    }

    /// Whether the keyspace of that id was deleted; not so of one that is not known here yet.
    pub fn is_dead(&self, id: KeyspaceId) -> bool {
        u64::from(id.0) < self.next() && self.get(id).is_none()
    }

    /// Whether that is so of a keyspace of these keys.
    pub fn has_dead(&self, keys: &[KeyId]) -> bool {
        keys.iter().any(|key| self.is_dead(key.keyspace))
    }

    /// The catalogue with all times within their bounds.
    pub fn bounded(mut self) -> Catalogue {
        let keyspaces = self.keyspaces.into_iter();
        self.keyspaces = keyspaces.map(Keyspace::bounded).collect();
        self
    }

    /// Adds a keyspace; its id is given here.
    ///
    /// # Errors
    /// A definite refusal: it cannot have that name or those times, the name is taken, or there is
    /// no room.
    pub fn create(&mut self, wanted: &Keyspace, planted: Planted) -> Result<(), Refusal> {
        let refuse = |code, why: String| Err(Refusal::definite(code, why));
        if !Keyspace::is_name(&wanted.name) {
            let why = "a keyspace's name has 1 to 64 of a-z, 0-9, - and _; choose another";
            return refuse(Code::BadRequest, why.into());
        }
        if let Err(why) = wanted.check_times().and_then(|()| wanted.check_purpose()) {
            return refuse(Code::BadRequest, why);
        }
        if let Some(known) = self.keyspaces.iter().find(|k| k.name == wanted.name) {
            return refuse(Code::KeyspaceExists, exists(known, wanted));
        }
        if self.keyspaces.len() >= KEYSPACES_MAX {
            let why = format!("the cluster has {KEYSPACES_MAX} keyspaces, which is the most");
            return refuse(Code::Busy, why);
        }
        let last = self.keyspaces.last().map_or(0, |last| last.id.0);
        let id = match planted.has(Bug::KeyspaceIdReused) {
            true => Some(last + 1),
            false => u32::try_from(self.next()).ok(),
        };
        let Some(id) = id.map(KeyspaceId) else {
            let why = "the cluster's keyspaces were changed too often for one more";
            return refuse(Code::Busy, why.into());
        };
        let wanted = wanted.clone();
        self.keyspaces.push(Keyspace { id, ..wanted });
        self.version += 1;
        Ok(())
    }

    /// Changes the lease, or the longest section, of a keyspace: for whoever enters from then on.
    ///
    /// # Errors
    /// A definite refusal: there is no such keyspace, every cluster has it, or it cannot have those
    /// times.
    pub fn change(
        &mut self,
        id: KeyspaceId,
        (lease, section_max): (Option<Micros>, Option<Micros>),
    ) -> Result<(), Refusal> {
        let at = self.own(id, "changed")?;
        let known = &self.keyspaces[at];
        let changed = Keyspace {
            lease: lease.unwrap_or(known.lease),
            section_max: section_max.unwrap_or(known.section_max),
            ..known.clone()
        };
        let refused = |why: String| Refusal::definite(Code::BadRequest, why);
        changed.check_times().map_err(refused)?;
        if changed != *known {
            self.keyspaces[at] = changed;
            self.version += 1;
        }
        Ok(())
    }

    /// Takes a keyspace away, and its id with it for ever.
    ///
    /// # Errors
    /// A definite refusal: there is no such keyspace, or every cluster has it.
    pub fn delete(&mut self, id: KeyspaceId) -> Result<(), Refusal> {
        let at = self.own(id, "deleted")?;
        self.keyspaces.remove(at);
        self.version += 1;
        Ok(())
    }

    /// Where a keyspace is that was created by somebody.
    fn own(&self, id: KeyspaceId, what: &str) -> Result<usize, Refusal> {
        let Some(at) = self.keyspaces.iter().position(|known| known.id == id) else {
            return Err(unknown(id));
        };
        if Keyspace::built_in().iter().any(|known| known.id == id) {
            let name = &self.keyspaces[at].name;
            let why = format!("every cluster has the keyspace `{name}`: it cannot be {what}");
            return Err(Refusal::definite(Code::BadRequest, why));
        }
        Ok(at)
    }
}

/// The refusal of whatever is for a keyspace that is not there.
pub fn unknown(id: KeyspaceId) -> Refusal {
    let why = format!(
        "there is no keyspace {}: it was deleted, or never created; create one first",
        id.0
    );
    Refusal::definite(Code::NoSuchKeyspace, why)
}

/// The refusal's sentence for a name that is taken: in which terms the existing keyspace differs
/// from the wanted one.
fn exists(known: &Keyspace, wanted: &Keyspace) -> String {
    let terms = [
        ("purpose", known.purpose == wanted.purpose),
        ("storage", known.storage == wanted.storage),
        ("tag rule", known.tag_rule == wanted.tag_rule),
        ("lease", known.lease == wanted.lease),
        ("longest section", known.section_max == wanted.section_max),
    ];
    let differ: Vec<&str> = terms
        .iter()
        .filter(|(_, same)| !same)
        .map(|(term, _)| *term)
        .collect();
    let name = &known.name;
    match differ[..] {
        [] => format!("there is a keyspace `{name}` already, with the same terms: use it"),
        _ => format!(
            "there is a keyspace `{name}` already, with other terms ({}): use it as it is, or \
             choose another name",
            differ.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Keyspace {
        let [template, _] = Keyspace::built_in();
        let name = name.into();
        Keyspace { name, ..template }
    }

    #[test]
    fn an_id_is_never_used_again_and_one_that_is_not_given_yet_is_not_dead() {
        let mut catalogue = Catalogue::default();
        assert!(catalogue.is_dead(KeyspaceId(0)) && !catalogue.is_dead(KeyspaceId(3)));
        let mut given = Vec::new();
        for round in 0..3 * KEYSPACES_MAX {
            assert_eq!(catalogue.create(&named("jobs"), Planted::NONE), Ok(()));
            let id = catalogue.all()[2].id;
            assert!(given.last().is_none_or(|last| *last < id), "{id:?}");
            given.push(id);
            if round % 2 == 0 {
                let changed = catalogue.change(id, (Some(200_000), None));
                assert_eq!(changed, Ok(()));
            }
            assert!(!catalogue.is_dead(id));
            assert_eq!(catalogue.delete(id), Ok(()));
            assert!(given.iter().all(|id| catalogue.is_dead(*id)));
            let next = u32::try_from(catalogue.next()).map(KeyspaceId);
            assert!(next.is_ok_and(|id| !catalogue.is_dead(id)), "not given yet");
        }
        assert_eq!(catalogue.all(), Keyspace::built_in());
    }

    #[test]
    fn a_policy_follows_the_one_that_its_author_has_read() {
        let mut catalogue = Catalogue::default();
        let [first, second] = [&b"1"[..], b"2"].map(Bytes::from_static);
        assert_eq!(catalogue.access(), &Access::default());
        assert_eq!(catalogue.change_access(0, &first, Planted::NONE), Ok(()));
        let made = catalogue.access().version;
        assert_eq!((made, catalogue.version()), (2, 2));
        assert_eq!(catalogue.create(&named("jobs"), Planted::NONE), Ok(()));
        let code = |result: Result<(), Refusal>| result.map_err(|refusal| refusal.code);
        let before = catalogue.clone();
        for after in [0, 1, catalogue.version()] {
            let late = catalogue.change_access(after, &second, Planted::NONE);
            assert_eq!(code(late), Err(Code::Conflict), "{after}");
        }
        let long = Bytes::from(alloc::vec![0; POLICY_MAX + 1]);
        let long = catalogue.change_access(made, &long, Planted::NONE);
        assert_eq!(code(long), Err(Code::TooLarge));
        assert_eq!(catalogue, before, "what is refused changes nothing");
        assert_eq!(
            catalogue.change_access(made, &second, Planted::NONE),
            Ok(())
        );
        assert_eq!(catalogue.access().policy, second);
        assert!(catalogue.is_dead(KeyspaceId(2)) || catalogue.get(KeyspaceId(2)).is_some());
    }

    #[test]
    fn there_are_so_many_at_most_and_one_goes_for_the_next() {
        let mut catalogue = Catalogue::default();
        for number in 2..KEYSPACES_MAX {
            let wanted = named(&format!("ks{number}"));
            assert_eq!(catalogue.create(&wanted, Planted::NONE), Ok(()));
        }
        let one_more = |catalogue: &mut Catalogue| catalogue.create(&named("more"), Planted::NONE);
        let refused = one_more(&mut catalogue).map_err(|refusal| refusal.code);
        assert_eq!(refused, Err(Code::Busy));
        assert_eq!(catalogue.delete(KeyspaceId(7)), Ok(()));
        assert_eq!(one_more(&mut catalogue), Ok(()));
    }

    #[test]
    fn what_every_cluster_has_stays_as_it_is_and_what_is_not_there_is_said_to_be_so() {
        let mut catalogue = Catalogue::default();
        let code = |result: Result<(), Refusal>| result.map_err(|refusal| refusal.code);
        let times = (Some(200_000), None);
        for id in [Keyspace::SECTIONS, Keyspace::REGISTERS] {
            assert_eq!(code(catalogue.delete(id)), Err(Code::BadRequest));
            assert_eq!(code(catalogue.change(id, times)), Err(Code::BadRequest));
        }
        let other = KeyspaceId(3);
        assert_eq!(code(catalogue.delete(other)), Err(Code::NoSuchKeyspace));
        let changed = catalogue.change(other, times);
        assert_eq!(code(changed), Err(Code::NoSuchKeyspace));
        assert_eq!(catalogue, Catalogue::default());
        assert_eq!(catalogue.create(&named("jobs"), Planted::NONE), Ok(()));
        let lease = catalogue.all()[2].lease;
        let beyond = catalogue.change(other, (None, Some(lease - 1)));
        assert_eq!(code(beyond), Err(Code::BadRequest));
        let before = catalogue.version();
        assert_eq!(catalogue.change(other, (Some(lease), None)), Ok(()));
        assert_eq!(catalogue.version(), before, "nothing has changed");
    }
}
