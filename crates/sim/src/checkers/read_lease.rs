//! Of all nodes one at most believes at a time that a quorum is bound to it in a log: the lease
//! under which a primary answers from its memory (F10).

use super::Violation;
use crate::machine::Machine;
use fermata_protocol::Node;
use fermata_protocol::base::{LogId, NodeName, Now};
use fermata_protocol::paxos::Log;
use std::collections::{BTreeMap, BTreeSet};

/// What the checker calls itself in a violation.
pub const NAME: &str = "read lease";

/// Who believes in which lease. Nodes are compared when one begins to.
#[derive(Debug, Default)]
pub struct ReadLease {
    believes: BTreeMap<NodeName, BTreeSet<LogId>>,
}

impl ReadLease {
    /// A node was stepped, at this true time.
    pub fn after_step(
        &mut self,
        (now, name): (u64, NodeName),
        machines: &BTreeMap<NodeName, Machine>,
        found: &mut Vec<Violation>,
    ) {
        let machine = &machines[&name];
        let reading = machine.clock.read(now);
        let believes = machine.node().into_iter().flat_map(logs);
        let believes = believes.filter(|log| has_lease(machine, log, reading));
        let believes: BTreeSet<LogId> = believes.map(Log::id).collect();
        let before = self.believes.entry(name).or_default();
        for id in believes.difference(before) {
            let others = machines.iter().filter(|(other, _)| **other != name);
            for (other, machine) in others {
                let reading = machine.clock.read(now);
                let mut theirs = machine.node().into_iter().flat_map(logs);
                if theirs.any(|log| log.id() == *id && has_lease(machine, log, reading)) {
                    let detail = format!(
                        "nodes {} and {} believe that a quorum of {id:?} is bound to them",
                        other.0, name.0
                    );
                    found.push(Violation::new(NAME, detail));
                }
            }
        }
        *before = believes;
    }
}

fn logs(node: &Node) -> impl Iterator<Item = &Log> {
    let segments = node.here().segments.values().map(|room| &room.log);
    segments.chain(node.here().groups.values().map(|room| &room.log))
}

fn has_lease(machine: &Machine, log: &Log, now: Now) -> bool {
    let node = machine.node();
    node.is_some_and(|node| log.has_lease(now, &node.config().timing))
}
