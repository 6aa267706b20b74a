//! One node: routes inputs to machines; the only place where rooms meet.

use crate::base::{Config, NodeId, Now, Wake};
use crate::io::{Effects, Input, Memory};
use alloc::string::String;

/// One node of a cluster.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    config: Config,
}

impl Node {
    /// A node over its durable memory, which may be empty.
    ///
    /// # Errors
    /// One sentence for the operator, when the memory does not fit the configuration.
    pub fn recover(
        config: Config,
        id: NodeId,
        _memory: &dyn Memory,
        _now: Now,
        _seed: u64,
    ) -> Result<Node, String> {
        Ok(Node { id, config })
    }

    /// Handles one input.
    pub fn step(&mut self, _now: Now, _input: Input, _memory: &dyn Memory, _fx: &mut Effects) {}

    /// When the node wants to be stepped next, although nothing arrives.
    pub fn wake(&self) -> Wake {
        Wake::default()
    }

    /// Who this is.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// How it was configured.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
