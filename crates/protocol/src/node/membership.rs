//! Who is who: names and the incarnations behind them (PROTOCOL F8c).
//!
//! A quorum argument counts memories, not names. A node whose disk was lost or replaced is another
//! memory under a known name; if it answered, two quorums might no longer meet. Therefore a new
//! cluster starts only once every node has heard of every other's incarnation; what it heard is
//! durable; and from then on another incarnation under a known name is refused by all and told why.
//! Without the first rule a node that never met the lost memory would believe the new one.

use super::{Here, Node, Step};
use crate::base::{Bug, Incarnation, NodeId, NodeName};
use crate::message::{Hello, Message};
use crate::wire::{self, record};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// Names and incarnations.
pub(crate) type Registry = BTreeMap<NodeName, Incarnation>;

impl Node {
    pub(super) fn say_hello(&self, to: NodeName, answer: bool, step: &mut Step<'_>) {
        let registry: Vec<_> = self.here.registry.iter().map(|(n, i)| (*n, *i)).collect();
        let cluster = self.here.config.cluster.id;
        step.fx.send(
            to,
            Message::Hello(Hello {
                cluster,
                registry,
                answer,
            }),
        );
    }

    pub(super) fn on_hello(&mut self, from: NodeId, hello: Hello, step: &mut Step<'_>) {
        if hello.cluster != self.here.config.cluster.id {
            return self.ignore("hello of another cluster");
        }
        let rejoins = self.here.config.planted.has(Bug::LostDiskRejoins);
        let known_as = hello
            .registry
            .iter()
            .find(|(name, _)| *name == self.here.id.name);
        if let Some((_, incarnation)) = known_as
            && *incarnation != self.here.id.incarnation
            && !rejoins
        {
            step.fx.halt = Some(format!(
                "the cluster knows {} with another data directory: this one is new, older or foreign; \
                 start the node with the directory it had",
                self.here.label(self.here.id.name),
            ));
            return;
        }
        if rejoins {
            self.here.registry.insert(from.name, from.incarnation);
        }
        for (name, incarnation) in hello.registry {
            if self.here.is_node(name) {
                self.here.registry.entry(name).or_insert(incarnation);
            }
        }
        if hello.answer {
            self.say_hello(from.name, false, step);
        }
        if !self.here.knows(from) {
            return self.ignore("unknown incarnation");
        }
        self.here.hear(from.name, step.now);
        self.start_when_complete(step);
    }

    /// A new node takes part once it knows every node's incarnation.
    pub(super) fn start_when_complete(&mut self, step: &mut Step<'_>) {
        let complete = self.here.registry.len() == self.here.config.cluster.nodes.len();
        if self.here.started || !complete {
            return;
        }
        let registry: Vec<_> = self.here.registry.iter().map(|(n, i)| (*n, *i)).collect();
        step.fx
            .put(record::node("registry"), wire::encode(&registry));
        self.here.create_logs(step);
        self.here.started = true;
        self.next_beat = step.now.monotonic;
    }
}

impl Here {
    /// Whether this is the memory that the node's name stands for.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.registry.get(&node.name) == Some(&node.incarnation)
    }

    pub(super) fn is_node(&self, name: NodeName) -> bool {
        self.config.cluster.nodes.iter().any(|n| n.name == name)
    }

    /// What people call a node.
    pub(crate) fn label(&self, name: NodeName) -> &str {
        let known = self.config.cluster.nodes.iter().find(|n| n.name == name);
        known.map_or("?", |n| n.label.as_str())
    }
}
