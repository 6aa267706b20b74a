//! Names, and the incarnations behind them (F8c: a disk that was lost is another memory).
//!
//! A quorum argument counts memories, not names. A node whose disk was lost or replaced is another
//! memory under a known name; if it answered, two quorums might no longer meet. Therefore a new
//! node first learns every other's incarnation, makes that durable and says so; it takes part once
//! all the others have said the same. From then on another incarnation under a known name is
//! refused by all and told why. Without the second half, two nodes could start and acknowledge
//! while the third has not yet met the first; if one of the two then lost its disk, the third would
//! believe the new memory.

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
        let cluster = self.here.directory.cluster();
        let complete = self.here.complete;
        let hello = Hello {
            cluster,
            registry,
            complete,
            answer,
        };
        // That it is complete must not be heard before it is durable.
        step.fx.promise(to, Message::Hello(hello));
    }

    pub(super) fn on_hello(&mut self, from: NodeId, hello: Hello, step: &mut Step<'_>) {
        if hello.cluster != self.here.directory.cluster() {
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
                "the cluster knows {} with another data directory: this one is new, older or \
                 foreign; \
                 start the node with the directory it had",
                self.here.directory.label(self.here.id.name),
            ));
            return;
        }
        if rejoins {
            self.here.registry.insert(from.name, from.incarnation);
        }
        let theirs: Registry = hello.registry.iter().copied().collect();
        for (name, incarnation) in hello.registry {
            if self.here.directory.has(name) {
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
        if hello.complete && (theirs == self.here.registry || rejoins) {
            self.here.ready.insert(from.name);
        }
        self.start_when_ready(step);
    }

    /// A new node takes part once everybody knows everybody, durably.
    pub(super) fn start_when_ready(&mut self, step: &mut Step<'_>) {
        let nodes = self.here.directory.nodes().len();
        if self.here.started || self.here.registry.len() < nodes {
            return;
        }
        if !self.here.complete {
            let registry: Vec<_> = self.here.registry.iter().map(|(n, i)| (*n, *i)).collect();
            step.fx
                .put(record::node("registry"), wire::encode(&registry));
            self.here.complete = true;
            for peer in self.here.peers() {
                self.say_hello(peer, true, step);
            }
        }
        let early = self.here.config.planted.has(Bug::StartWhenSelfKnows);
        if early || self.here.ready.len() + 1 == nodes {
            step.fx.put(record::node("started"), wire::encode(&true));
            self.here.create_logs(step);
            self.here.started = true;
            self.next_beat = step.now.monotonic;
        }
    }
}

impl Here {
    /// Whether this is the memory that the node's name stands for.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        self.registry.get(&node.name) == Some(&node.incarnation)
    }

    /// All other nodes of the cluster.
    pub(super) fn peers(&self) -> Vec<NodeName> {
        let nodes = self.directory.nodes();
        nodes.filter(|n| *n != self.id.name).collect()
    }
}
