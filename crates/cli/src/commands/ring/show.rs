//! How a ring is shown.

use fermata_protocol::base::{GroupId, NodeName};
use fermata_protocol::registry::Standing;
use fermata_protocol::request::{RingGroup, RingNode, RingSource, RingStatus};
use serde_json::{Value, json};

use super::moves::{self, Look};
use super::plan;
use crate::args::Global;
use crate::output::Table;

/// The ring, for people or programs; in one line, where it is shown again and again.
pub(super) fn ring(global: &Global, ring: &RingStatus, look: &Look, one_line: bool) -> String {
    match (global.json, one_line) {
        (true, true) => format!("{}\n", as_json(ring, look)),
        (true, false) => format!("{:#}\n", as_json(ring, look)),
        (false, _) => format!(
            "{}\n{}{}",
            groups(ring),
            nodes_table(ring),
            left_lines(ring, look)
        ),
    }
}

/// The nodes, for people or programs.
pub(super) fn nodes(global: &Global, ring: &RingStatus) -> String {
    match global.json {
        true => format!("{:#}\n", json!(shown(ring).map(node).collect::<Vec<_>>())),
        false => nodes_table(ring).to_string(),
    }
}

/// Nodes in the order in which to restart them, each with how many segments it leads.
pub(super) fn restart_order(global: &Global, order: &[(u64, &RingNode)]) -> String {
    if global.json {
        let labels: Vec<&str> = order.iter().map(|(_, node)| &*node.label).collect();
        return format!("{:#}\n", json!(labels));
    }
    let mut table = Table::new(&["label", "leads"]);
    for (led, node) in order {
        table.row(vec![node.label.clone(), format!("{led} segments")]);
    }
    table.to_string()
}

/// What is left to be done, in words.
pub(super) fn left(ring: &RingStatus) -> String {
    let of = |group: &RingGroup| match plan::left(group) {
        (0, 0) => None,
        (0, moving) => Some(format!("{}: {moving} segments to move", plan::told(group))),
        (unstarted, _) => Some(format!(
            "{}: {unstarted} segments to start in epoch {}",
            plan::told(group),
            group.epoch.0
        )),
    };
    let left: Vec<String> = ring.groups.iter().filter_map(of).collect();
    match left.is_empty() {
        true => "waiting for the groups to go on".to_owned(),
        false => left.join("; "),
    }
}

/// What is left to be done, and what has been; nothing where nothing is left.
fn left_lines(ring: &RingStatus, look: &Look) -> String {
    if ring.groups.iter().all(|group| plan::left(group) == (0, 0)) {
        return String::new();
    }
    let mut lines = format!("\n{}\n{}\n", sources(ring), look.told(ring));
    let unfinished = ring
        .groups
        .iter()
        .filter(|group| plan::left(group) != (0, 0));
    for group in unfinished {
        lines += &format!("{}\n", finisher(ring, group));
    }
    if let Some(moved) = moves::moved(&look.moves) {
        lines += &format!("{moved}\n");
    }
    lines
}

/// Who finishes a change, whatever becomes of the command that asked for it.
fn finisher(ring: &RingStatus, group: &RingGroup) -> String {
    let group_is = plan::told(group);
    match group.leader {
        Some(name) => format!(
            "{group_is} goes on by itself: {} leads it",
            label(ring, name)
        ),
        None if group.members.contains(&ring.node) => {
            format!("{group_is} goes on once a majority of its members hear each other")
        }
        None => format!("{group_is} goes on by itself"),
    }
}

/// Earlier stores, with the segments whose keys have yet to move out of them, and whoever has yet
/// to give on eventual puts that it alone may have.
fn sources(ring: &RingStatus) -> Table {
    let mut table = Table::new(&["segments", "earlier epoch", "open", "owed by"]);
    for group in &ring.groups {
        for source in &group.sources {
            let owed = |(name, segments): &(NodeName, u32)| {
                let label = label(ring, *name);
                format!("{label} ({segments})")
            };
            let owed: Vec<String> = source.owed.iter().map(owed).collect();
            table.row(vec![
                arc(group),
                source.epoch.0.to_string(),
                source.open.to_string(),
                match owed.is_empty() {
                    true => "-".to_owned(),
                    false => owed.join(" "),
                },
            ]);
        }
    }
    table
}

fn arc(group: &RingGroup) -> String {
    match group.id {
        GroupId::META => "meta".to_owned(),
        _ => format!("{} to {}", group.from.0, group.to.0),
    }
}

fn label(ring: &RingStatus, name: NodeName) -> String {
    let known = ring.nodes.iter().find(|node| node.name == name);
    match known.map(|node| node.label.as_str()) {
        None | Some("") => format!("node {}", name.0),
        Some(label) => label.to_owned(),
    }
}

fn groups(ring: &RingStatus) -> Table {
    let mut table = Table::new(&["segments", "epoch", "members", "leads", "to move"]);
    for group in &ring.groups {
        let members: Vec<String> = group
            .members
            .iter()
            .map(|name| label(ring, *name))
            .collect();
        let moving = match plan::left(group) {
            (0, 0) => "-".to_owned(),
            (0, moving) => format!("{moving} segments"),
            (unstarted, _) => format!("{unstarted} to start"),
        };
        table.row(vec![
            arc(group),
            group.epoch.0.to_string(),
            members.join(" "),
            group
                .leader
                .map_or_else(|| "-".to_owned(), |name| label(ring, name)),
            moving,
        ]);
    }
    table
}

/// The nodes that are there, and those that were given up and are still needed.
fn shown(ring: &RingStatus) -> impl Iterator<Item = &RingNode> {
    let is =
        |node: &&RingNode| node.standing == Standing::Present || plan::is_needed(ring, node.name);
    ring.nodes.iter().filter(is)
}

fn nodes_table(ring: &RingStatus) -> Table {
    let mut table = Table::new(&[
        "node", "label", "site", "standing", "seats", "gRPC", "peers",
    ]);
    for node in shown(ring) {
        let seats = ring
            .groups
            .iter()
            .filter(|group| group.members.contains(&node.name));
        let seats = seats.count();
        let standing = match node.standing {
            Standing::Gone => "gone, and still needed",
            Standing::Lost => "lost, and still needed",
            Standing::Present if node.drains => "drains",
            Standing::Present if !node.heard => "silent",
            Standing::Present if node.full => "disk full",
            Standing::Present if seats == 0 => "spare",
            Standing::Present => "seated",
        };
        table.row(vec![
            node.name.0.to_string(),
            node.label.clone(),
            node.site.clone(),
            standing.to_owned(),
            seats.to_string(),
            node.addresses.grpc.clone(),
            node.addresses.peer.clone(),
        ]);
    }
    table
}

fn as_json(ring: &RingStatus, look: &Look) -> Value {
    json!({
        "version": ring.version,
        "least": ring.least,
        "groups": ring.groups.iter().map(group).collect::<Vec<_>>(),
        "nodes": shown(ring).map(node).collect::<Vec<_>>(),
        "moving": moves::as_json(ring, &look.moves),
    })
}

fn node(node: &RingNode) -> Value {
    let standing = match node.standing {
        Standing::Present => "present",
        Standing::Gone => "gone",
        Standing::Lost => "lost",
    };
    json!({
        "node": node.name.0,
        "label": node.label,
        "site": node.site,
        "standing": standing,
        "drains": node.drains,
        "heard": node.heard,
        "full": node.full,
        "silent_us": node.last_heard.filter(|_| !node.heard),
        "peer": node.addresses.peer,
        "grpc": node.addresses.grpc,
        "rest": node.addresses.rest,
    })
}

fn group(group: &RingGroup) -> Value {
    let names = |names: &[NodeName]| names.iter().map(|name| name.0).collect::<Vec<_>>();
    let owed = |(name, segments): &(NodeName, u32)| json!({ "node": name.0, "segments": segments });
    let source = |source: &RingSource| {
        json!({
            "epoch": source.epoch.0,
            "members": names(&source.members),
            "open": source.open,
            "owed": source.owed.iter().map(owed).collect::<Vec<_>>(),
        })
    };
    json!({
        "id": format!("{:032x}", group.id.0),
        "from": group.from.0,
        "to": group.to.0,
        "epoch": group.epoch.0,
        "members": names(&group.members),
        "leader": group.leader.map(|name| name.0),
        "unstarted": group.unstarted,
        "sources": group.sources.iter().map(source).collect::<Vec<_>>(),
    })
}
