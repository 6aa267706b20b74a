//! The keyspaces of a world as whoever drives it knows them: what the checkers need to judge a key
//! by its purpose and its storage policy.
//!
//! A cluster starts with two keyspaces. Others are proposed one after the other, each again and
//! again until some node has it (proposals may be lost), so that their ids are known beforehand.

use crate::nemesis;
use crate::world::World;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, Purpose, StoragePolicy, TagRule};
use fermata_protocol::catalogue;
use fermata_protocol::command::GroupCommand;
use std::collections::BTreeSet;

/// How often the next keyspace is proposed, microseconds.
const AGAIN: u64 = 700_000;

/// All keyspaces, by id, those that were deleted among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    all: Vec<Keyspace>,
    deleted: BTreeSet<KeyspaceId>,
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue {
            all: Keyspace::built_in().into(),
            deleted: BTreeSet::new(),
        }
    }
}

impl Catalogue {
    /// The keyspace of that id.
    ///
    /// # Panics
    /// Where there is none: nothing in a world uses an id that was not added.
    pub fn keyspace(&self, id: KeyspaceId) -> &Keyspace {
        let found = self.all.iter().find(|k| k.id == id);
        found.expect("keys are of keyspaces of the world")
    }

    /// Whether somebody has asked for the deletion of the keyspace of `key`: nothing is promised of
    /// its keys since then, but that nothing of them comes back.
    pub fn is_deleted(&self, key: &KeyId) -> bool {
        self.deleted.contains(&key.keyspace)
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

    /// A keyspace was made without being asked for here.
    pub fn learn(&mut self, made: Keyspace) {
        if self.all.iter().all(|known| known.id != made.id) {
            self.all.push(made);
        }
    }

    /// Adds a keyspace like the built-in one of its purpose; its id.
    pub fn add(
        &mut self,
        purpose: Purpose,
        storage: StoragePolicy,
        section_max: u64,
    ) -> KeyspaceId {
        let id = KeyspaceId(self.all.len() as u32 + 1);
        let [built_in, _] = Keyspace::built_in();
        let tag_rule = match purpose {
            Purpose::Ledger { .. } => TagRule::Before(b'/'),
            Purpose::Sections | Purpose::Registers => TagRule::Whole,
        };
        self.all.push(Keyspace {
            id,
            name: format!("ks{}", id.0),
            purpose,
            tag_rule,
            storage,
            // A lease beyond the longest section is refused.
            lease: built_in.lease.min(section_max),
            section_max,
        });
        id
    }
}

/// Proposes all keyspaces of the world that are not built in, in order, until each exists.
pub fn furnish(world: &mut World) {
    let Some(next) = lacking(world) else {
        return;
    };
    // The same command each time: it has its effect once, whatever becomes of a proposal.
    let session = 0xfca0_0000_0000 + u64::from(next.id.0);
    nemesis::propose(world, session, GroupCommand::CreateKeyspace(next));
    world.at(world.now + AGAIN, furnish);
}

/// A keyspace that no node has and that nobody has deleted.
fn lacking(world: &World) -> Option<Keyspace> {
    let Catalogue { all, deleted } = &world.history.catalogue;
    let wanted =
        |k: &&Keyspace| !deleted.contains(&k.id) && !somebody(world, |c| c.get(k.id).is_some());
    all.iter().find(wanted).cloned()
}

/// Whether some node's catalogue is so.
fn somebody(world: &World, so: impl Fn(&catalogue::Catalogue) -> bool) -> bool {
    let mut nodes = world.machines.values().filter_map(|m| m.node());
    nodes.any(|node| so(node.here().catalogue()))
}

/// Deletes a keyspace, once there are all; proposes it until some node knows.
pub fn delete(world: &mut World, id: KeyspaceId) {
    if lacking(world).is_none() {
        world.history.catalogue.deleted.insert(id);
        if somebody(world, |c| c.is_dead(id)) {
            return;
        }
        let session = 0xdea0_0000_0000 + u64::from(id.0);
        nemesis::propose(world, session, GroupCommand::DeleteKeyspace(id));
    }
    world.at(world.now + AGAIN, move |world| delete(world, id));
}

/// Changes the lease and the longest section of a keyspace likewise. What lasts no longer than
/// either longest section is in time, for who is in a section keeps the one that it has.
pub fn change(world: &mut World, id: KeyspaceId, (lease, section_max): (u64, u64)) {
    let is_so = |known: &Keyspace| (known.lease, known.section_max) == (lease, section_max);
    if somebody(world, |c| c.is_dead(id) || c.get(id).is_some_and(is_so)) {
        return;
    }
    if lacking(world).is_none() {
        for known in world
            .history
            .catalogue
            .all
            .iter_mut()
            .filter(|k| k.id == id)
        {
            known.section_max = known.section_max.max(section_max);
        }
        let session = 0xc4a0_0000_0000 + u64::from(id.0);
        let command = GroupCommand::ChangeKeyspace {
            id,
            lease: Some(lease),
            section_max: Some(section_max),
        };
        nemesis::propose(world, session, command);
    }
    world.at(world.now + AGAIN, move |world| {
        change(world, id, (lease, section_max))
    });
}
