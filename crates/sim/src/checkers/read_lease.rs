//! Of all nodes one at most believes at a time that a quorum is bound to it in a log, or in one
//! that follows it: the lease under which a primary answers from its memory (F10).

use super::Violation;
use crate::machine::Machine;
use fermata_protocol::Node;
use fermata_protocol::base::{LogId, NodeName, Scope};
use fermata_protocol::paxos::Log;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "read lease";

/// A node was stepped, at this true time: what it believes is compared with what the others do.
pub fn after_step(
    (now, name): (u64, NodeName),
    machines: &BTreeMap<NodeName, Machine>,
    found: &mut Vec<Violation>,
) {
    for log in believes(now, &machines[&name]) {
        let others = machines.iter().filter(|(other, _)| **other != name);
        for (other, machine) in others {
            if believes(now, machine).any(|theirs| of_one_scope(theirs.id(), log.id())) {
                let detail = format!(
                    "nodes {} and {} believe that a quorum of {:?} is bound to them",
                    other.0,
                    name.0,
                    log.id()
                );
                found.push(Violation::new(NAME, detail));
            }
        }
    }
}

/// Whether two logs are the same, or one has followed the other.
fn of_one_scope(a: LogId, b: LogId) -> bool {
    a.scope == b.scope && (a.scope != Scope::Group || a.group == b.group)
}

/// The logs in which a node may answer from its memory, by its own clock.
fn believes(now: u64, machine: &Machine) -> impl Iterator<Item = &Log> {
    let reading = machine.clock.read(now);
    let held = move |node: &Node, log: &Log| log.has_lease(reading, &node.config().timing);
    let node = machine.node().into_iter();
    node.flat_map(move |node| {
        let segments = node.here().segments.values().map(|room| &room.log);
        let groups = node.here().groups.values().map(|room| &room.log);
        segments.chain(groups).filter(move |log| held(node, log))
    })
}
