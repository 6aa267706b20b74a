//! A data directory of the version before this one becomes one of this version, in one batch.
//!
//! **Problem.** The version before had no meta-group: the log of the first group kept the keyspace
//! catalogue beside the group's own state, and each node a table of incarnations alone.
//!
//! **Idea.** What that log orders *is* the catalogue, and nobody ever changed the members of a
//! group. So it becomes the meta-group's, with all its votes and promises, and the first group gets
//! a log of its own that begins as that of a new cluster does. No two nodes have to agree on
//! anything for that: each renames what it has, and a log that has a new name has no history. All
//! else stays as it is: a number of 16 bits is encoded as one of 32.
//!
//! Nodes of two versions do not talk. While some are converted and some are not, each majority is
//! of one version, as around a restart.

use crate::base::{
    Cluster, Config, Directory, GroupId, Incarnation, Location, LogId, NodeName, Scope, View,
};
use crate::catalogue::Catalogue;
use crate::group::GroupState;
use crate::io::{Effects, Memory, Write};
use crate::paxos::{self, Log};
use crate::registry::Registry;
use crate::sessions::Sessions;
use crate::wire::{self, record};
use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The version that [`directory`] converts, to [`wire::VERSION`].
pub const FROM: u16 = 7;

/// A group's state in that version.
#[derive(Serialize, Deserialize)]
struct OldGroupState {
    commands: u64,
    location: Location,
    least: u8,
    next: Option<View>,
    catalogue: Catalogue,
    sessions: Sessions,
}

/// The writes that make this version's directory of one of version [`FROM`], all in one batch.
///
/// # Errors
/// One sentence for the operator; nothing is to be written then.
pub fn directory(config: &Config, memory: &dyn Memory) -> Result<Vec<Write>, String> {
    let mut fx = Effects::new();
    let Some(registry) = registry(&config.cluster, memory, &mut fx)? else {
        // It has never taken part.
        return Ok(fx.writes);
    };
    let known = Directory::from(&config.cluster);
    let meta = known.meta().clone();
    for id in record::logs(memory) {
        if id.scope != Scope::Group {
            continue;
        }
        let location = known.location(id.group);
        let group = location
            .map(|at| &at.group)
            .filter(|group| group.view.epoch == id.epoch);
        let group =
            group.ok_or("a group of it has changed its members, which that version cannot")?;
        let first = config
            .cluster
            .groups
            .first()
            .is_some_and(|first| first.id == id.group);
        let to = match first {
            true => LogId {
                group: GroupId::META,
                ..id
            },
            false => id,
        };
        let state = |old: &Bytes| -> Option<Bytes> {
            let old: OldGroupState = wire::decode(old)
                .ok()
                .filter(|o: &OldGroupState| o.next.is_none())?;
            let begin = if first { &meta } else { group };
            let history = (old.commands, old.sessions);
            let new = GroupState::start(begin, old.least, &registry);
            Some(wire::encode(&new.after(history, old.catalogue)))
        };
        let view = if first { &meta.view } else { &group.view };
        let moved = paxos::rename(id, (to, view), memory, state, &mut fx);
        moved.map_err(|why| format!("the log of group {:x}: {why}", id.group.0))?;
        if first {
            let start = GroupState::start(group, known.least(), &registry);
            Log::found(id, &group.view, wire::encode(&start), &mut fx);
        }
    }
    taken(memory, &mut fx);
    Ok(fx.writes)
}

/// The registry, once all nodes of the cluster file have met; none before.
fn registry(
    file: &Cluster,
    memory: &dyn Memory,
    fx: &mut Effects,
) -> Result<Option<Registry>, String> {
    let kept = |name| memory.get(&record::node(name));
    let Some(old) = kept("registry").map_err(damaged)? else {
        return Ok(None);
    };
    let old: Vec<(NodeName, Incarnation)> = wire::decode(&old).map_err(damaged)?;
    let mut registry = Registry::beginning(file);
    for (name, incarnation) in old {
        if let Some(node) = file.nodes.iter().find(|node| node.name == name) {
            registry.meet(node, incarnation);
        }
    }
    let started = kept("started").map_err(damaged)?.is_some();
    if started {
        registry.found();
    }
    fx.put(record::node("registry"), wire::encode(&registry));
    Ok(Some(registry))
}

fn damaged<E>(_: E) -> String {
    "a record of the node's own is corrupt: replace this node".to_owned()
}

/// The names of nodes in keys are longer.
fn taken(memory: &dyn Memory, fx: &mut Effects) {
    let (from, to) = (Bytes::from_static(b"p"), Bytes::from_static(b"q"));
    for (key, value) in memory.scan(&from, &to, usize::MAX) {
        if let (&[_, a, b], Ok(value)) = (&key[..], value) {
            let name = NodeName(u16::from_be_bytes([a, b]).into());
            fx.put(record::taken(name), value);
        }
        fx.delete(key);
    }
}
