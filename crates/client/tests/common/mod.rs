//! A cluster in this process: one node per site, on ephemeral loopback ports.

use fermata_client::{Client, Options};
use fermata_server::ServerConfig;
use fermata_server::config::LimitsConfig;
use fermata_server::local::{self, Running};
use std::time::Duration;

pub(crate) struct Cluster {
    configs: Vec<ServerConfig>,
    nodes: Vec<Option<Running>>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Three nodes `n1` … `n3`, on the sites `s1` … `s3`.
    pub(crate) async fn start() -> Cluster {
        Cluster::with(3, LimitsConfig::default()).await
    }

    /// So many nodes, with these bounds.
    pub(crate) async fn with(n: u32, limits: LimitsConfig) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let (cluster, listeners) = local::cluster(n, 3).await.expect("free ports");
        let config = |name: u32| {
            let node = format!("n{name}");
            let data_dir = dir.path().join(&node);
            ServerConfig {
                limits: limits.clone(),
                ..ServerConfig::new(node, data_dir, cluster.clone())
            }
        };
        let configs: Vec<ServerConfig> = (1..=n).map(config).collect();
        let resolved = configs.iter().map(|c| c.resolve().expect("a good config"));
        let nodes = resolved
            .zip(listeners)
            .map(|(c, l)| Some(Running::start(c, l, None)));
        Cluster {
            nodes: nodes.collect(),
            configs,
            _dir: dir,
        }
    }

    pub(crate) fn endpoint(&self, at: usize) -> String {
        let cluster = self.configs[at].cluster.as_ref().expect("a cluster");
        format!("http://{}", cluster.nodes[at].grpc)
    }

    /// A client on site `s<at + 1>`, which knows one node at first, once the cluster serves it.
    pub(crate) async fn client(&self, at: usize) -> Client {
        let options = Options {
            attempt_timeout: Duration::from_secs(1),
            ..Options::new([self.endpoint(0)]).site(format!("s{}", at + 1))
        };
        let client = Client::connect(options).await.expect("good options");
        client.read("registers", "warm-up").await.expect("a quorum");
        client
    }

    pub(crate) async fn stop(&mut self, at: usize) {
        let running = self.nodes[at].take().expect("a running node");
        let end = running.stop().await;
        end.expect("no panic").expect("a good end");
    }
}
