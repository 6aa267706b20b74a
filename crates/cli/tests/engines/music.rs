//! The native engine's checks of the MUSIC interface, on the engines over other stores.

#[path = "../../../server/tests/music/better.rs"]
mod better;
#[path = "../../../server/tests/music/clients.rs"]
mod clients;
#[macro_use]
#[path = "../../../server/tests/music/list.rs"]
mod list;

use crate::nodes::Nodes;
use fermata_server::config::LimitsConfig;

/// Nodes on the stores, which serve.
pub(crate) struct Stage(Nodes);

impl Stage {
    pub(crate) async fn start(nodes: u32) -> Stage {
        Stage(Nodes::start(nodes, LimitsConfig::default()).await)
    }

    /// One node that takes values of so many bytes.
    pub(crate) async fn limited(value_bytes: usize) -> Stage {
        let limits = LimitsConfig {
            value_bytes: Some(value_bytes),
            ..LimitsConfig::default()
        };
        Stage(Nodes::start(1, limits).await)
    }

    /// Where a node's REST is.
    pub(crate) fn rest(&self, at: usize) -> String {
        self.0.node(at).rest.clone()
    }

    /// Kills a node with SIGKILL.
    pub(crate) async fn kill(&mut self, at: usize) {
        self.0.kill(at);
    }

    /// Stops a node as its operator does, and starts it again.
    pub(crate) async fn restart(&mut self, at: usize) {
        assert_eq!(self.0.stop(at), Some(0), "{}", self.0.said(at));
        self.0.restart(at).await;
    }
}

mod cassandra {
    every_music_check!(crate::nodes::on_cassandra);
}

mod zookeeper {
    every_music_check!(crate::nodes::on_zookeeper);
}
