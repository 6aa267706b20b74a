//! The client library's checks on the engines.

use crate::nodes::Nodes;
use fermata_client::{Client, Options};
use fermata_server::config::LimitsConfig;
use std::time::Duration;

/// Nodes on the stores, each at a site of its own.
pub(crate) struct Cluster(Nodes);

impl Cluster {
    /// Three nodes, at the sites `s1` … `s3`.
    pub(crate) async fn start() -> Cluster {
        Cluster::with(3, LimitsConfig::default()).await
    }

    /// So many nodes, with these bounds.
    pub(crate) async fn with(nodes: u32, limits: LimitsConfig) -> Cluster {
        Cluster(Nodes::start(nodes, limits).await)
    }

    pub(crate) fn endpoint(&self, at: usize) -> String {
        format!("http://{}", self.0.node(at).grpc)
    }

    /// A client on site `s<at + 1>`, which knows one node at first.
    pub(crate) async fn client(&self, at: usize) -> Client {
        let options = Options {
            attempt_timeout: Duration::from_secs(4),
            ..Options::new([self.endpoint(0)]).site(format!("s{}", at + 1))
        };
        Client::connect(options).await.expect("good options")
    }

    pub(crate) async fn stop(&mut self, at: usize) {
        assert_eq!(self.0.stop(at), Some(0), "{}", self.0.said(at));
    }
}

mod cassandra {
    every_client_check!(crate::nodes::on_cassandra);
}

mod zookeeper {
    every_client_check!(crate::nodes::on_zookeeper);
}
