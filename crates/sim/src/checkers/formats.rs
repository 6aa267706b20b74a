//! Every node that takes part reads the format that the cluster goes by, all members of a log take
//! it for one of the same format, and no log is two formats behind (ring R10).

use super::Violation;
use crate::machine::Machine;
use fermata_protocol::Node;
use fermata_protocol::base::{LogId, NodeName};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "formats";

/// The watcher.
#[derive(Debug, Default)]
pub struct Formats {
    /// By which the cluster began.
    beginning: Option<u16>,
    /// Of logs, once the cluster goes by another format than it began with.
    logs: BTreeMap<LogId, u16>,
}

impl Formats {
    /// A node was stepped: what it goes by is compared with what the others read.
    pub fn after_step(
        &mut self,
        name: NodeName,
        machines: &BTreeMap<NodeName, Machine>,
        found: &mut Vec<Violation>,
    ) {
        let Some(node) = machines[&name].node() else {
            return;
        };
        let here = node.here();
        let format = here.registry().settings().format;
        if format == *self.beginning.get_or_insert(format) {
            return;
        }
        for (other, _) in here.registry().present() {
            let machine = machines.get(&other).and_then(|machine| machine.node());
            let misreads = |node: &&Node| !node.config().formats.contains(&format);
            if machine
                .filter(|node| node.is_started())
                .filter(misreads)
                .is_some()
            {
                let (other, name) = (other.0, name.0);
                let detail =
                    format!("node {name} goes by {format}, which node {other} cannot read");
                found.push(Violation::new(NAME, detail));
            }
        }
        for (id, of) in of_logs(node) {
            if of + 1 < format && found.is_empty() {
                let detail = format!("node {} goes by {format}, and has {id:?} of {of}", name.0);
                found.push(Violation::new(NAME, detail));
            }
            let known = *self.logs.entry(id).or_insert(of);
            if known != of {
                let detail = format!("{id:?} is of format {known} and, at node {}, {of}", name.0);
                found.push(Violation::new(NAME, detail));
            }
        }
    }
}

/// The formats of a node's logs.
pub(super) fn of_logs(node: &Node) -> impl Iterator<Item = (LogId, u16)> {
    let segments = node.here().segments.values();
    let segments = segments.map(|room| (room.log.id(), room.state.format()));
    let groups = node.here().groups.values();
    segments.chain(groups.map(|room| (room.log.id(), room.state.format())))
}
