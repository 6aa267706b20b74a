//! Storage at rest: once all is healed and nobody asks, the members' upkeep makes every member hold
//! exactly what the storage policy of a key says, and nothing else.
//!
//! * All members that are alive show the same highest tag, and the same eventual cell.
//! * Nobody else has anything, nor anybody of an earlier store; no log is left with a node that has
//!   no seat in its group, and no source is left but for what a member owes that is lost and was
//!   not given up.
//! * No eventual value is kept that a complete write of a section hides (G26).
//! * One version under `replicated`, `coded`, `treas-opt` and `oreas`; at most δ + 1 under `ares`.
//! * The bytes of the values are those of the formula; under `ares`, whose versions may differ in
//!   length, they are not compared.
//! * There is one record for each version and eventual value, none is damaged, and no other.
//! * A register has no fence above its tag: the sweep that set it is over.
//! * A deleted key of sections has left nothing, if no member was lost for ever.
//!
//! Not demanded: that what a synch's fence alone has left of a key goes (only a member that has it
//! wants the floor to rise, and only the primary can raise it), nor an eventual delete in a segment
//! without commands, whose floor is 0. And where a member was lost, a section's value may be at
//! fewer than a quorum of those that live: none of them can tell that it is complete.
//!
//! It takes a while, so whoever drives the world waits ([`crate::random::rest`]). Keys that nobody
//! can settle are not held to it: those of a policy that may be stuck with more writes unfinished
//! than it bears, and, at the end of the wait, those of a section that somebody still holds.

use super::eventual;
use super::formats;
use super::places::{Places, epoch_of};
use super::tags::{Seen, head, is_head};
use crate::catalogue::Catalogue;
use crate::machine::Machine;
use crate::show;
use bytes::Bytes;
use fermata_protocol::base::{Epoch, EventualTag, Kept, KeyId, Location, NodeName, Seat, Tag};
use fermata_protocol::io::Memory as _;
use fermata_protocol::register::Tally;
use fermata_protocol::registry::Standing;
use fermata_protocol::wire::record;
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "storage at rest";

/// Something that is not at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrest {
    /// Of which key.
    pub key: KeyId,
    /// Somebody holds the key or waits for it, or it is owed a synch.
    pub busy: bool,
    /// One sentence.
    pub what: String,
}

/// What one member holds of a key.
#[derive(Debug, Default)]
struct Holding {
    /// The head; none where there is none, or where it is damaged.
    head: Option<(Seen, Bytes)>,
    /// Contents of versions, and of the eventual cell.
    contents: usize,
    damaged: bool,
}

/// All that is not at rest.
pub fn unrest(
    machines: &BTreeMap<NodeName, Machine>,
    places: &Places,
    catalogue: &Catalogue,
) -> Vec<Unrest> {
    let mut keys: BTreeMap<KeyId, BTreeMap<NodeName, Holding>> = BTreeMap::new();
    let mut left: BTreeMap<KeyId, (NodeName, Epoch)> = BTreeMap::new();
    for (name, machine) in machines {
        let Some(memory) = machine.memory() else {
            continue;
        };
        for (place, value) in memory.scan(b"r", b"s", usize::MAX) {
            let Some(key) = record::key_of(&place) else {
                continue;
            };
            let location = places.location(places.segment(&key));
            let present = location.store() == epoch_of(&place);
            if !present || location.group.view.seat_of(*name).is_none() {
                left.entry(key).or_insert((*name, epoch_of(&place)));
                continue;
            }
            let holding = keys.entry(key).or_default().entry(*name).or_default();
            holding.take(&place, value.ok());
        }
    }
    let mut all = Vec::new();
    for (key, at) in keys
        .into_iter()
        .filter(|(key, _)| !catalogue.is_deleted(key))
    {
        if let Some(what) = judge(&key, &at, machines, places, catalogue) {
            let busy = is_busy(&key, machines, places);
            let what = format!("key {}: {what}", show::key(&key));
            all.push(Unrest { key, busy, what });
        }
    }
    let owes = |key: &KeyId| {
        let segment = places.segment(key);
        !places.location(segment).pasts(segment).is_empty()
    };
    for (key, (name, epoch)) in left
        .into_iter()
        .filter(|(key, _)| !catalogue.is_deleted(key))
    {
        // What a source still owes is told of the source.
        if !owes(&key) {
            let (what, busy) = (show::key(&key), is_busy(&key, machines, places));
            let what = format!("key {what}: node {} has it of epoch {}", name.0, epoch.0);
            all.push(Unrest { key, busy, what });
        }
    }
    all
}

/// Settings, sources and logs that are left, as one sentence; none if there are none but for what
/// is owed by members that are lost.
pub fn left(machines: &BTreeMap<NodeName, Machine>, places: &Places) -> Option<String> {
    for (name, machine) in machines {
        let registry = machine.node().map(|node| node.here().registry());
        let lost = |(name, _)| machines.get(&name).is_none_or(|m| m.lost.is_some());
        let awaited = registry.filter(|registry| !registry.present().any(lost));
        if awaited.is_some_and(|registry| registry.settings().is_changing()) {
            return Some(format!(
                "node {} does not know the settings for good",
                name.0
            ));
        }
        let format = registry.map_or(0, |registry| registry.settings().format);
        let mut logs = machine.node().into_iter().flat_map(formats::of_logs);
        if let Some((id, _)) = logs.find(|(_, of)| *of < format) {
            return Some(format!("node {} has {id:?} in a former format", name.0));
        }
    }
    for location in places.locations() {
        let view = &location.group.view;
        for (segment, past) in location.all_pasts() {
            let members = location.view_of(past.epoch)?;
            let lost = |seat: &Seat| {
                let name = members.node_at(*seat);
                name.is_some_and(|name| {
                    machines[&name].lost.is_some() && !is_given_up(machines, name)
                })
            };
            if past.open || !past.owed.iter().all(lost) {
                return Some(format!("segment {} has {past:?}", segment.0));
            }
        }
        if !location.unstarted().is_empty() {
            return Some(format!("{:?} have not started", location.unstarted()));
        }
        for (name, machine) in machines {
            let Some(here) = machine.node().map(|node| node.here()) else {
                continue;
            };
            let name = *name;
            let of = |at: &Location| here.directory.location(at.id()).is_some_and(|k| k == at);
            if view.seat_of(name).is_none() && here.logs_of(location.id()) > 0 {
                return Some(format!("node {} has logs of {:?}", name.0, location.id()));
            }
            if view.seat_of(name).is_some() && !of(location) {
                return Some(format!("node {} does not know where its group is", name.0));
            }
        }
    }
    None
}

/// Whether the cluster knows that a disk is lost, and waits for nothing that was there alone.
fn is_given_up(machines: &BTreeMap<NodeName, Machine>, name: NodeName) -> bool {
    let nodes = machines.values().filter_map(Machine::node);
    let known = nodes.filter_map(|node| node.here().registry().get(name));
    known
        .into_iter()
        .any(|known| known.standing == Standing::Lost)
}

impl Holding {
    fn take(&mut self, place: &Bytes, value: Option<Bytes>) {
        match value {
            None => self.damaged = true,
            Some(value) if is_head(place) => {
                self.head = head(place, &value).map(|head| (head.seen, value));
            }
            Some(_) => self.contents += 1,
        }
    }
}

fn is_busy(key: &KeyId, machines: &BTreeMap<NodeName, Machine>, places: &Places) -> bool {
    let segment = places.segment(key);
    let mut nodes = machines.values().filter_map(Machine::node);
    nodes.any(|node| {
        let room = node.here().segments.get(&segment);
        room.is_some_and(|room| !room.state.queues().is_idle(key))
    })
}

/// Why a key is not at rest, if it is not.
fn judge(
    key: &KeyId,
    at: &BTreeMap<NodeName, Holding>,
    machines: &BTreeMap<NodeName, Machine>,
    places: &Places,
    catalogue: &Catalogue,
) -> Option<String> {
    let group = &places.location(places.segment(key)).group;
    let none = Holding::default();
    let members: Vec<(Seat, NodeName, &Holding)> = group
        .view
        .nodes()
        .enumerate()
        .filter(|(_, name)| machines[name].lost.is_none())
        .map(|(i, name)| (Seat(i as u8), name, at.get(&name).unwrap_or(&none)))
        .collect();
    for (seat, name, holding) in &members {
        if let Some(what) = alone(key, *seat, holding, group.view.len(), catalogue) {
            return Some(format!("node {} {what}", name.0));
        }
    }
    let all = members.len() == group.view.len();
    let tags: BTreeSet<_> = members.iter().map(|(_, _, h)| h.tags()).collect();
    let top = tags.iter().map(|(tag, _)| *tag).max().unwrap_or_default();
    let holders = members.iter().filter(|(_, _, h)| h.tags().0 == top);
    let shape = catalogue.storage(key).shape(group.view.len());
    let quorum = shape.expect("keyspaces fit groups").quorum;
    let unclear = !all && catalogue.has_sections(key) && holders.count() < quorum;
    if tags.len() > 1 && !unclear {
        let each = members.iter().map(|(_, name, holding)| {
            let (tag, eventual) = holding.tags();
            format!("{}: {} {eventual:?}", name.0, show::tag(&tag))
        });
        return Some(format!(
            "members differ, {}",
            each.collect::<Vec<_>>().join(", ")
        ));
    }
    let hides = |holding: &Holding| {
        let seen = holding.head.as_ref().map(|(seen, _)| seen);
        seen.and_then(eventual::hidden).is_some()
    };
    if let Some((_, name, _)) = members.iter().find(|(_, _, h)| all && hides(h)) {
        return Some(format!("node {} keeps a hidden eventual value", name.0));
    }
    // While a source is owed something, a delete is what keeps it out.
    let segment = places.segment(key);
    let settled = places.location(segment).pasts(segment).is_empty();
    let deleted = all && settled && catalogue.has_sections(key);
    let floor = floor(key, machines, places);
    let traces = members
        .iter()
        .filter(|(_, _, h)| deleted && h.is_trace(floor));
    let mut traces = traces.filter_map(|(_, name, h)| Some((name, &h.head.as_ref()?.0)));
    if let Some((name, seen)) = traces.next() {
        return Some(format!(
            "node {} has a trace, with floor {floor}: {seen:?}",
            name.0
        ));
    }
    None
}

/// The highest floor of the key's segment that any node has applied.
fn floor(key: &KeyId, machines: &BTreeMap<NodeName, Machine>, places: &Places) -> u64 {
    let segment = places.segment(key);
    let nodes = machines.values().filter_map(Machine::node);
    let rooms = nodes.filter_map(|node| node.here().segments.get(&segment));
    let floors = rooms.map(|room| room.state.floor().0);
    floors.max().unwrap_or(0)
}

/// What is wrong with what one member holds, whatever the others do.
fn alone(
    key: &KeyId,
    seat: Seat,
    holding: &Holding,
    members: usize,
    catalogue: &Catalogue,
) -> Option<String> {
    if holding.damaged {
        return Some("has a damaged record".to_owned());
    }
    let Some((seen, bytes)) = &holding.head else {
        return (holding.contents > 0).then(|| "has contents without a head".to_owned());
    };
    let policy = catalogue.storage(key);
    let shape = policy.shape(members).expect("keyspaces fit groups");
    let versions = seen.versions.len();
    let most = match shape.kept {
        Kept::Several(count) => count,
        Kept::Highest | Kept::FromFinal(_) => 1,
    };
    if versions > most {
        return Some(format!("keeps {versions} versions"));
    }
    if holding.contents != versions + usize::from(seen.eventual.is_some()) {
        let contents = holding.contents;
        return Some(format!("has {contents} contents of {versions} versions"));
    }
    if seen.fence > seen.tag() && !catalogue.has_sections(key) {
        return Some(format!("has a fence {}", show::tag(&seen.fence)));
    }
    let Some(tally) = Tally::of(bytes, policy, shape, seat) else {
        return Some("has a head that says nothing".to_owned());
    };
    let formula = most > 1 || tally.bytes == tally.expected;
    (!formula).then(|| format!("stores {} bytes of {}", tally.bytes, tally.expected))
}

impl Holding {
    fn tags(&self) -> (Tag, Option<EventualTag>) {
        let head = self.head.as_ref();
        head.map_or_else(Default::default, |(seen, _)| (seen.tag(), seen.eventual))
    }

    /// Whether there is a record, and no value in it but a delete that can go.
    fn is_trace(&self, floor: u64) -> bool {
        self.head.as_ref().is_some_and(|(seen, _)| {
            let live = seen.versions.last().is_some_and(|v| v.length.is_some());
            let delete = !seen.versions.is_empty() || (seen.eventual.is_some() && floor > 0);
            delete && !live && !seen.eventual_live
        })
    }
}
