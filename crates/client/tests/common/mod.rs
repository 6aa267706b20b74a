//! A cluster in this process: one node per site, on ephemeral loopback ports.

use fermata_client::{Client, Options};
use fermata_server::config::{LimitsConfig, Resolved};
use fermata_server::{ClusterConfig, Listeners, NodeConfig, ServerConfig, StartError, run_on};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Running {
    stop: oneshot::Sender<()>,
    done: JoinHandle<Result<(), StartError>>,
}

pub(crate) struct Cluster {
    configs: Vec<ServerConfig>,
    nodes: Vec<Option<Running>>,
    _dir: tempfile::TempDir,
}

async fn free() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

impl Cluster {
    /// Three nodes `n1` … `n3`, on the sites `s1` … `s3`.
    pub(crate) async fn start() -> Cluster {
        Cluster::with(3, LimitsConfig::default()).await
    }

    /// So many nodes, with these bounds.
    pub(crate) async fn with(n: u16, limits: LimitsConfig) -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut nodes, mut listeners) = (Vec::new(), Vec::new());
        for name in 1..=n {
            let ((peer, peer_at), (grpc, grpc_at)) = (free().await, free().await);
            let (rest, rest_at) = free().await;
            let rest = Some(rest);
            listeners.push(Listeners { peer, grpc, rest });
            nodes.push(NodeConfig {
                name,
                label: format!("n{name}"),
                site: format!("s{name}"),
                peer: peer_at,
                grpc: grpc_at,
                rest: rest_at,
            });
        }
        let cluster = ClusterConfig {
            id: format!("{:032x}", 0xc11e),
            segment_bits: 3,
            sites: (1..=n).map(|s| format!("s{s}")).collect(),
            nodes,
            groups: vec![],
        };
        let config = |name: u16| {
            let node = format!("n{name}");
            let data_dir = dir.path().join(&node);
            ServerConfig {
                limits: limits.clone(),
                ..ServerConfig::new(node, data_dir, cluster.clone())
            }
        };
        let configs: Vec<ServerConfig> = (1..=n).map(config).collect();
        let resolved = configs.iter().map(|c| c.resolve().expect("a good config"));
        let nodes = resolved.zip(listeners).map(|(c, l)| Some(launch(c, l)));
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
        running.stop.send(()).expect("it listens");
        running.done.await.expect("no panic").expect("a good end");
    }
}

fn launch(resolved: Resolved, listeners: Listeners) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        // A dropped sender stops the node too.
        let _ = stopped.await;
    };
    Running {
        stop,
        done: tokio::spawn(run_on(resolved, listeners, shutdown)),
    }
}
