//! Names of nodes: one stands for one memory, for ever, and a memory has one; who is out stays out,
//! and does nothing once it knows. There is one registry of each version.

use super::Violation;
use crate::machine::Machine;
use fermata_protocol::base::{Incarnation, NodeName};
use fermata_protocol::registry::{Registry, Standing};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "names";

/// All that was ever given.
#[derive(Debug, Default)]
pub struct Names {
    given: BTreeMap<NodeName, (Incarnation, u64, Standing)>,
    memories: BTreeMap<Incarnation, NodeName>,
    /// By version.
    tables: BTreeMap<u64, Registry>,
    /// By node: the version of its registry.
    seen: BTreeMap<NodeName, u64>,
}

impl Names {
    /// A node was stepped.
    pub fn after_step(&mut self, machine: &Machine, found: &mut Vec<Violation>) {
        let Some(node) = machine.node() else { return };
        let (me, registry) = (machine.name(), node.here().registry());
        let version = registry.version();
        if version == 0 || self.seen.insert(me, version) == Some(version) {
            return;
        }
        let mut say = |detail: String| found.push(Violation::new(NAME, detail));
        let table = self
            .tables
            .entry(version)
            .or_insert_with(|| registry.clone());
        if table != registry {
            say(format!("node {} has another registry {version}", me.0));
        }
        for (name, known) in registry.all() {
            let now = (known.incarnation, version, known.standing);
            let (first, at, standing) = *self.given.entry(name).or_insert(now);
            if first != known.incarnation {
                say(format!("node {} is two memories", name.0));
            }
            if *self.memories.entry(first).or_insert(name) != name {
                say(format!("node {} is a memory that has a name", name.0));
            }
            if at < version {
                if known.standing < standing {
                    say(format!("node {} was {standing:?}, and is back", name.0));
                }
                self.given.insert(name, (first, version, known.standing));
            }
        }
        let own = registry.get(me).map(|known| known.standing);
        if own.is_some_and(|own| own != Standing::Present) && machine.lost.is_none() {
            say(format!("node {} knows that it is out, and goes on", me.0));
        }
    }
}
