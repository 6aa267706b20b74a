//! A data directory of an earlier version becomes one of this version, in one batch.
//!
//! **Problem.** Version 7 had no meta-group: the log of the first group kept the keyspace catalogue
//! beside the group's own state, and each node a table of incarnations alone. The registry of
//! version 8 had no settings: each node had its file's; and no log said of which format it is.
//!
//! **Idea.** What that log orders *is* the catalogue, and nobody ever changed the members of a
//! group. So it becomes the meta-group's, with all its votes and promises, and the first group gets
//! a log of its own that begins as that of a new cluster does. No two nodes have to agree on
//! anything for that: each renames what it has, and a log that has a new name has no history. All
//! else stays as it is: a number of 16 bits is encoded as one of 32. The settings are those of the
//! node's own file, which operators were told to have alike.
//!
//! Nodes of two versions do not talk. While some are converted and some are not, each majority is
//! of one version, as around a restart.

use crate::base::{
    Config, Directory, Epoch, Group, GroupId, Incarnation, Keyspace, LogId, NodeName, Past, Scope,
    SegmentId, SiteId, View,
};
use crate::catalogue::Catalogue;
use crate::group::GroupState;
use crate::io::{Effects, Memory, Write};
use crate::paxos::{self, Log};
use crate::registry::{Registered, Registry, Standing};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::wire::{self, record};
use alloc::borrow::ToOwned as _;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::RangeInclusive;
use serde::{Deserialize, Serialize};

/// The versions that [`directory`] converts, to [`wire::VERSION`].
pub const FROM: RangeInclusive<u16> = 7..=8;

/// A registry in version 8.
type OldRegistry = (
    u64,
    u64,
    NodeName,
    NodeName,
    Vec<String>,
    BTreeMap<NodeName, OldRegistered>,
);

/// A node of a registry in version 8: what there is now, but for its addresses.
type OldRegistered = (Incarnation, String, SiteId, Standing);

/// A location in versions 7 and 8: what there is now, but for the format of its logs.
type OldLocation = (
    Group,
    u64,
    Epoch,
    BTreeSet<SegmentId>,
    Vec<View>,
    BTreeMap<SegmentId, Vec<Past>>,
);

/// A catalogue in versions 7 and 8: what there is now, but for the access policy.
#[derive(Serialize, Deserialize)]
struct OldCatalogue(u64, Vec<Keyspace>);

impl OldCatalogue {
    fn now(self) -> Catalogue {
        Catalogue::of(self.1, self.0)
    }
}

/// A group's state in version 8.
#[derive(Deserialize)]
struct NearGroupState(
    u64,
    OldLocation,
    u8,
    Option<View>,
    Option<(OldRegistry, OldCatalogue)>,
    Sessions,
);

/// A group's state in version 7.
#[derive(Serialize, Deserialize)]
struct OldGroupState {
    commands: u64,
    location: OldLocation,
    least: u8,
    next: Option<View>,
    catalogue: OldCatalogue,
    sessions: Sessions,
}

/// The writes that make this version's directory of one of a version in [`FROM`], all in one batch.
///
/// # Errors
/// One sentence for the operator; nothing is to be written then.
pub fn directory(version: u16, config: &Config, memory: &dyn Memory) -> Result<Vec<Write>, String> {
    match version {
        7 => from_7(config, memory),
        _ => from_8(config, memory),
    }
}

/// Those of a node's file, which a directory of an earlier version takes.
fn settings_of(config: &Config) -> Settings {
    Settings::beginning(&config.timing, &config.limits, wire::VERSION)
}

fn from_8(config: &Config, memory: &dyn Memory) -> Result<Vec<Write>, String> {
    let mut fx = Effects::new();
    let beginning = Registry::beginning(&config.cluster, settings_of(config));
    let registry = memory.get(&record::node("registry")).map_err(damaged)?;
    if let Some(registry) = registry {
        let now = wire::decode::<OldRegistry>(&registry).map_err(damaged)?;
        fx.put(
            record::node("registry"),
            wire::encode(&settled(now, config, &beginning)),
        );
    }
    if let Some(known) = memory.get(&record::node("locations")).map_err(damaged)? {
        let known = wire::decode::<Vec<OldLocation>>(&known).map_err(damaged)?;
        if known.iter().any(|(_, changes, ..)| *changes > 0) {
            return Err(CHANGED.into());
        }
        fx.delete(record::node("locations"));
    }
    catalogue(memory, &mut fx)?;
    let format = beginning.settings().format;
    let group = |old: &Bytes| {
        let NearGroupState(commands, location, least, next, meta, sessions) = wire::decode(old)
            .ok()
            .filter(|old: &NearGroupState| old.3.is_none())?;
        let now = |registry| settled(registry, config, &beginning);
        let meta = meta.map(|(registry, catalogue)| (now(registry), catalogue.now()));
        Some(wire::encode(&(
            (commands, (location, 0_u16), least, next, meta, sessions),
            (format, 0_u16),
        )))
    };
    for id in record::logs(memory) {
        let own = (id, None);
        let done = match id.scope {
            Scope::Group => paxos::rewrite(id, own, memory, group, &mut fx),
            Scope::Segment(_) => {
                let state = |old: &Bytes| Some(formatted(old, format));
                paxos::rewrite(id, own, memory, state, &mut fx)
            }
        };
        done.map_err(|why| format!("the log {id:?}: {why}"))?;
    }
    Ok(fx.writes)
}

/// Nothing in a server of these versions could propose that.
const CHANGED: &str = "a group of it has changed its members, which that version cannot";

/// A segment's state of an earlier version, which had neither a format behind it nor records.
fn formatted(old: &Bytes, format: u16) -> Bytes {
    let recorded = 0_u64;
    [&old[..], &wire::encode(&(format, recorded))]
        .concat()
        .into()
}

/// A registry of version 8 as this version encodes it. The addresses of its nodes are those of the
/// node's own file.
fn settled(old: OldRegistry, config: &Config, beginning: &Registry) -> impl Serialize + use<> {
    let (version, _, first, next, sites, nodes) = old;
    let (file, settings) = (beginning.digest(), *beginning.settings());
    let now = |(name, (incarnation, label, site, standing)): (NodeName, OldRegistered)| {
        let known = config.cluster.nodes.iter().find(|node| node.name == name);
        let now = Registered {
            incarnation,
            label,
            site,
            standing,
            addresses: known.map(|node| node.addresses.clone()).unwrap_or_default(),
            drains: false,
        };
        (name, now)
    };
    let nodes: BTreeMap<NodeName, Registered> = nodes.into_iter().map(now).collect();
    (version, file, first, next, sites, nodes, settings)
}

fn from_7(config: &Config, memory: &dyn Memory) -> Result<Vec<Write>, String> {
    let mut fx = Effects::new();
    let Some(registry) = registry(config, memory, &mut fx)? else {
        // It has never taken part.
        return Ok(fx.writes);
    };
    let known = Directory::from(&config.cluster);
    let meta = known.meta().clone();
    for id in record::logs(memory) {
        if let Scope::Segment(_) = id.scope {
            let state = |old: &Bytes| Some(formatted(old, registry.settings().format));
            let done = paxos::rewrite(id, (id, None), memory, state, &mut fx);
            done.map_err(|why| format!("the log {id:?}: {why}"))?;
            continue;
        }
        let location = known.location(id.group);
        let group = location
            .map(|at| &at.group)
            .filter(|group| group.view.epoch == id.epoch);
        let group = group.ok_or(CHANGED)?;
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
            Some(wire::encode(&new.after(history, old.catalogue.now())))
        };
        let view = if first { &meta.view } else { &group.view };
        let moved = match first {
            true => paxos::rename(id, (to, view), memory, state, &mut fx),
            false => paxos::rewrite(id, (id, None), memory, state, &mut fx),
        };
        moved.map_err(|why| format!("the log of group {:x}: {why}", id.group.0))?;
        if first {
            let start = GroupState::start(group, known.least(), &registry);
            Log::found(id, &group.view, wire::encode(&start), &mut fx);
        }
    }
    taken(memory, &mut fx);
    catalogue(memory, &mut fx)?;
    Ok(fx.writes)
}

/// The registry, once all nodes of the cluster file have met; none before.
fn registry(
    config: &Config,
    memory: &dyn Memory,
    fx: &mut Effects,
) -> Result<Option<Registry>, String> {
    let kept = |name| memory.get(&record::node(name));
    let Some(old) = kept("registry").map_err(damaged)? else {
        return Ok(None);
    };
    let old: Vec<(NodeName, Incarnation)> = wire::decode(&old).map_err(damaged)?;
    let file = &config.cluster;
    let mut registry = Registry::beginning(file, settings_of(config));
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

/// The node's copy of the catalogue has an access policy.
fn catalogue(memory: &dyn Memory, fx: &mut Effects) -> Result<(), String> {
    let record = record::node("catalogue");
    if let Some(kept) = memory.get(&record).map_err(damaged)? {
        let kept = wire::decode::<OldCatalogue>(&kept).map_err(damaged)?;
        fx.put(record, wire::encode(&kept.now()));
    }
    Ok(())
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
