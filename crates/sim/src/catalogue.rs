//! The keyspaces of a world as whoever drives it knows them: what the checkers need to judge a key
//! by its purpose and its storage policy.
//!
//! A cluster starts with two keyspaces. Others are proposed one after the other, each again and
//! again until some node has it (proposals may be lost), so that their ids are known beforehand.

use crate::nemesis;
use crate::world::World;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, Purpose, StoragePolicy};
use fermata_protocol::command::GroupCommand;

/// How often the next keyspace is proposed, microseconds.
const AGAIN: u64 = 700_000;

/// All keyspaces, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue(Vec<Keyspace>);

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue(Keyspace::built_in().into())
    }
}

impl Catalogue {
    /// The keyspace of that id.
    ///
    /// # Panics
    /// Where there is none: nothing in a world uses an id that was not added.
    pub fn keyspace(&self, id: KeyspaceId) -> &Keyspace {
        let found = self.0.iter().find(|k| k.id == id);
        found.expect("keys are of keyspaces of the world")
    }

    /// Whether the keys of `key`'s keyspace are locked.
    pub fn has_sections(&self, key: &KeyId) -> bool {
        self.keyspace(key.keyspace).purpose == Purpose::Sections
    }

    /// How the values of `key` are stored.
    pub fn storage(&self, key: &KeyId) -> StoragePolicy {
        self.keyspace(key.keyspace).storage
    }

    /// Parts that give a value of `length` bytes back among `members`; none: a delete.
    pub fn parts(&self, key: &KeyId, length: Option<u64>, members: usize) -> usize {
        let storage = self.storage(key);
        let whole = |below: u32| length.is_none_or(|length| length < u64::from(below));
        match storage.terms() {
            Some(terms) if !whole(terms.whole_below) => {
                storage.shape(members).map_or(1, |shape| shape.parts)
            }
            _ => 1,
        }
    }

    /// Adds a keyspace like the built-in one of its purpose; its id.
    pub fn add(
        &mut self,
        purpose: Purpose,
        storage: StoragePolicy,
        section_max: u64,
    ) -> KeyspaceId {
        let id = KeyspaceId(self.0.len() as u32 + 1);
        let [built_in, _] = Keyspace::built_in();
        self.0.push(Keyspace {
            id,
            name: format!("ks{}", id.0),
            purpose,
            storage,
            // A lease beyond the longest section is refused.
            lease: built_in.lease.min(section_max),
            section_max,
            ..built_in
        });
        id
    }
}

/// Proposes all keyspaces of the world that are not built in, in order, until each exists.
pub fn furnish(world: &mut World) {
    let known = |k: &Keyspace| {
        let mut nodes = world.machines.values().filter_map(|m| m.node());
        nodes.any(|node| node.here().keyspace(k.id).is_some())
    };
    let all = &world.history.catalogue.0;
    let Some(next) = all.iter().find(|k| !known(k)).cloned() else {
        return;
    };
    // The same command each time: it has its effect once, whatever becomes of a proposal.
    let session = 0xfca0_0000_0000 + u64::from(next.id.0);
    nemesis::propose(world, session, GroupCommand::CreateKeyspace(next));
    world.at(world.now + AGAIN, furnish);
}
