//! A cluster in this process: nodes on ephemeral loopback ports over temporary directories.

use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_server::config::{LimitsConfig, Resolved, TimingConfig};
use fermata_server::{
    ClusterConfig, Listeners, LogFormat, NodeConfig, ServerConfig, StartError, run_on,
};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    done: JoinHandle<Result<(), StartError>>,
}

pub(crate) struct TestCluster {
    pub(crate) configs: Vec<ServerConfig>,
    pub(crate) nodes: Vec<Option<Running>>,
    _dir: tempfile::TempDir,
}

async fn free() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl TestCluster {
    /// Starts `n` nodes, each a site of its own.
    pub(crate) async fn start(n: u16) -> TestCluster {
        TestCluster::start_with(n, "none").await
    }

    /// The same, with delays between the sites.
    pub(crate) async fn start_with(n: u16, rtt: &str) -> TestCluster {
        let dir = tempfile::tempdir().unwrap();
        let (mut nodes, mut listeners) = (Vec::new(), Vec::new());
        for name in 1..=n {
            let ((peer, peer_at), (grpc, grpc_at), (rest, rest_at)) =
                (free().await, free().await, free().await);
            listeners.push(Listeners {
                peer,
                grpc,
                rest: Some(rest),
            });
            nodes.push(NodeConfig {
                name,
                label: format!("n{name}"),
                site: format!("s{name}"),
                peer: peer_at.to_string(),
                grpc: grpc_at.to_string(),
                rest: rest_at.to_string(),
            });
        }
        let cluster = ClusterConfig {
            id: format!("{:032x}", 0xfe),
            segment_bits: 3,
            sites: (1..=n).map(|s| format!("s{s}")).collect(),
            nodes,
            groups: vec![],
        };
        let config = |name: u16| ServerConfig {
            node: format!("n{name}"),
            data_dir: dir.path().join(format!("n{name}")),
            listen_peer: None,
            listen_grpc: None,
            listen_rest: None,
            insecure: false,
            rtt: rtt.into(),
            log_format: LogFormat::Text,
            cluster_file: None,
            timing: TimingConfig::default(),
            limits: LimitsConfig::default(),
            cluster: Some(cluster.clone()),
        };
        let configs: Vec<ServerConfig> = (1..=n).map(config).collect();
        let started = configs
            .iter()
            .zip(listeners)
            .map(|(c, l)| launch(c.resolve().unwrap(), l));
        let nodes = started.map(Some).collect();
        TestCluster {
            configs,
            nodes,
            _dir: dir,
        }
    }

    pub(crate) fn node(&self, at: usize) -> &NodeConfig {
        &self.configs[at].cluster.as_ref().unwrap().nodes[at]
    }

    /// A client of one node, which is healthy when this returns.
    pub(crate) async fn client(&self, at: usize) -> FermataClient<Channel> {
        let url = format!("http://{}", self.node(at).grpc);
        let channel = Channel::from_shared(url).unwrap().connect_lazy();
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
        for _ in 0..600 {
            let asked = tonic_health::pb::HealthCheckRequest {
                service: String::new(),
            };
            if let Ok(answer) = health.check(asked).await
                && answer.into_inner().status == 1
            {
                return FermataClient::new(channel);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("node {at} never became healthy");
    }

    /// Stops a node gracefully.
    pub(crate) async fn stop(&mut self, at: usize) {
        let running = self.nodes[at].take().unwrap();
        running.stop.send(()).unwrap();
        running.done.await.unwrap().unwrap();
    }

    /// Starts a stopped node again over its directory and ports.
    pub(crate) async fn restart(&mut self, at: usize) {
        let resolved = self.configs[at].resolve().unwrap();
        let listeners = Listeners::bind(&resolved).await.unwrap();
        self.nodes[at] = Some(launch(resolved, listeners));
    }
}

fn launch(resolved: Resolved, listeners: Listeners) -> Running {
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    Running {
        stop,
        done: tokio::spawn(run_on(resolved, listeners, shutdown)),
    }
}

/// A client's numbers.
pub(crate) struct Session {
    pub(crate) id: u128,
    pub(crate) number: u64,
}

impl Session {
    pub(crate) fn new(id: u128) -> Session {
        Session { id, number: 0 }
    }

    pub(crate) fn header(&mut self) -> Option<v1::Header> {
        self.number += 1;
        Some(v1::Header {
            session: self.id.to_be_bytes().to_vec().into(),
            number: self.number,
            answered_through: self.number - 1,
            site: String::new(),
        })
    }
}

pub(crate) fn key(name: &str) -> v1::Key {
    v1::Key {
        keyspace: "default".into(),
        key: name.as_bytes().to_vec().into(),
    }
}
