//! Nothing of a deleted keyspace comes back: a node that knows of the deletion stores nothing of
//! its keys, whatever arrives and however late (G59); and when all is healed, no node that lives
//! has anything of them, in no store and in no queue. What a node does that has not heard of it,
//! nobody promises.

use super::Violation;
use super::tags::is_head;
use crate::catalogue::Catalogue;
use crate::machine::Machine;
use crate::show;
use fermata_protocol::base::NodeName;
use fermata_protocol::io::{Memory as _, Write};
use fermata_protocol::wire::record;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "deleted keyspaces";

/// A node wrote.
pub fn wrote(machine: &Machine, writes: &[Write], found: &mut Vec<Violation>) {
    let Some(node) = machine.node() else { return };
    let catalogue = node.here().catalogue();
    for write in writes {
        if let Write::Put { key: place, .. } = write
            && place.first() == Some(&b'r')
            // What is dropped of several versions is a new head, and brings nothing.
            && !is_head(place)
            && let Some(key) = record::key_of(place)
            && catalogue.is_dead(key.keyspace)
        {
            let (name, key) = (machine.name().0, show::key(&key));
            let detail =
                format!("node {name} stores key {key}, of a keyspace that it knows is gone");
            return found.push(Violation::new(NAME, detail));
        }
    }
}

/// What is left of deleted keyspaces, if anything is.
pub fn left(machines: &BTreeMap<NodeName, Machine>, catalogue: &Catalogue) -> Option<String> {
    machines.values().find_map(|machine| {
        let (node, memory) = (machine.node()?, machine.memory()?);
        let cells = memory.scan(b"r", b"s", usize::MAX).into_iter();
        let mut cells = cells.filter_map(|(place, _)| record::key_of(&place));
        if let Some(key) = cells.find(|key| catalogue.is_deleted(key)) {
            return Some(format!(
                "node {} has key {}",
                machine.name().0,
                show::key(&key)
            ));
        }
        let rooms = node.here().segments.values();
        let mut queues = rooms.flat_map(|room| room.state.queues().keys());
        let (key, queue) = queues.find(|(key, _)| catalogue.is_deleted(key))?;
        let (name, key) = (machine.name().0, show::key(key));
        Some(format!(
            "node {name} has key {key} in its queues: {queue:?}"
        ))
    })
}
