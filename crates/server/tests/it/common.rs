//! A cluster in this process: nodes on ephemeral loopback ports over temporary directories.

use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_server::config::{ClientsConfig, ClockConfig, LimitsConfig, TimingConfig, TlsConfig};
use fermata_server::local::{self, Running};
use fermata_server::{Listeners, Medium, NodeConfig, ServerConfig, StartError};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::Channel;

pub(crate) struct TestCluster {
    pub(crate) configs: Vec<ServerConfig>,
    pub(crate) nodes: Vec<Option<Running>>,
    /// Disks other than files, by node.
    pub(crate) media: HashMap<usize, Medium>,
    _dir: tempfile::TempDir,
}

/// What a node's configuration is to have else.
pub(crate) type Change = Box<dyn Fn(&mut ServerConfig)>;

/// What a test may choose about its cluster.
#[derive(Default)]
pub(crate) struct Choice {
    pub(crate) rtt: Option<&'static str>,
    pub(crate) timing: TimingConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) clients: ClientsConfig,
    pub(crate) media: HashMap<usize, Medium>,
    /// By node; where there is none: no interval clock, whatever this machine's kernel says.
    pub(crate) clocks: Vec<ClockConfig>,
    /// One port for gRPC and REST.
    pub(crate) one_port: bool,
    /// Where certificates are, of each node under its label.
    pub(crate) tls: Option<PathBuf>,
    /// What else is to be different.
    pub(crate) change: Option<Change>,
    /// Where a node (the first) finds another (the second), if not where it listens.
    pub(crate) through: HashMap<(usize, usize), String>,
}

/// A client of the node at this address, which is healthy when this returns.
pub(crate) async fn healthy(address: &str) -> FermataClient<Channel> {
    let channel = Channel::from_shared(format!("http://{address}"));
    let channel = channel.unwrap().connect_lazy();
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
    loop {
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
}

impl TestCluster {
    /// Starts `n` nodes, each a site of its own.
    pub(crate) async fn start(n: u32) -> TestCluster {
        TestCluster::start_with(n, Choice::default()).await
    }

    /// The same, with a choice.
    pub(crate) async fn start_with(n: u32, choice: Choice) -> TestCluster {
        let dir = tempfile::tempdir().unwrap();
        let (mut cluster, mut listeners) = local::cluster(n, 3).await.unwrap();
        if choice.one_port {
            listeners.iter_mut().for_each(|l| l.rest = None);
            for node in &mut cluster.nodes {
                node.rest.clone_from(&node.grpc);
            }
        }
        let honest = ClockConfig {
            bound_us: Some(0),
            ..ClockConfig::default()
        };
        let config = |name: u32| {
            let node = format!("n{name}");
            let data_dir = dir.path().join(&node);
            let clock = choice.clocks.get((name) as usize - 1);
            let through = |(to, other): (usize, &NodeConfig)| {
                let address = choice.through.get(&(name as usize - 1, to))?;
                Some((other.label.clone(), address.clone()))
            };
            ServerConfig {
                reach: cluster
                    .nodes
                    .iter()
                    .enumerate()
                    .filter_map(through)
                    .collect(),
                rtt: choice.rtt.unwrap_or("none").into(),
                timing: choice.timing.clone(),
                limits: choice.limits.clone(),
                clients: choice.clients.clone(),
                clock: clock.unwrap_or(&honest).clone(),
                tls: match &choice.tls {
                    Some(at) => TlsConfig {
                        ca: Some(at.join("ca.pem")),
                        certificate: Some(at.join(format!("{node}.pem"))),
                        key: Some(at.join(format!("{node}.key"))),
                        ..TlsConfig::default()
                    },
                    None => TlsConfig::default(),
                },
                ..ServerConfig::new(node, data_dir, cluster.clone())
            }
        };
        let mut configs: Vec<ServerConfig> = (1..=n).map(config).collect();
        if let Some(change) = &choice.change {
            configs.iter_mut().for_each(change);
        }
        let mut cluster = TestCluster {
            configs,
            nodes: vec![],
            media: choice.media,
            _dir: dir,
        };
        for (at, listeners) in listeners.into_iter().enumerate() {
            let running = cluster.launch(at, listeners);
            cluster.nodes.push(Some(running));
        }
        cluster
    }

    pub(crate) fn node(&self, at: usize) -> &NodeConfig {
        &self.configs[at].cluster.as_ref().unwrap().nodes[at]
    }

    /// A metric, with its labels; zero if the node has none of that name.
    pub(crate) async fn metric(&self, at: usize, name: &str) -> f64 {
        let rest = crate::http::Rest(self.node(at).rest.clone());
        let (_, _, text) = rest.send("GET", "/metrics", &[], b"").await;
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().unwrap())
    }

    /// A client of one node, which is healthy when this returns, however long that takes.
    pub(crate) async fn client(&self, at: usize) -> FermataClient<Channel> {
        let running = self.nodes[at].as_ref().unwrap();
        let ended = async {
            while !running.done.is_finished() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            client = healthy(&self.node(at).grpc) => client,
            () = ended => panic!("node {at} ended before it was healthy"),
        }
    }

    /// Asks through one node for another to drain, or not to, and waits until that one knows.
    pub(crate) async fn drain(&self, through: usize, at: usize, drains: bool) {
        let node = at as u32 + 1;
        let drain = v1::Drain { node, drains };
        let change = v1::ChangeRingRequest {
            header: Session::new(0x0d_0000 + u128::from(node) * 2 + u128::from(drains)).header(),
            change: Some(v1::change_ring_request::Change::Drain(drain)),
        };
        self.client(through)
            .await
            .change_ring(change)
            .await
            .unwrap();
        let mut asked = self.client(at).await;
        eventually!({
            let known = asked.cluster(v1::ClusterRequest {}).await.unwrap();
            let nodes = known.into_inner().nodes;
            nodes.iter().any(|n| n.node == node && n.drains == drains)
        });
    }

    /// Sessions that a node says it keeps for clients.
    pub(crate) async fn sessions(&self, at: usize) -> u64 {
        let status = v1::StatusRequest {
            header: Session::new(0x0e_0000).header(),
        };
        let status = self.client(at).await.status(status).await;
        status.unwrap().into_inner().sessions
    }

    /// Stops a node gracefully.
    pub(crate) async fn stop(&mut self, at: usize) {
        let running = self.nodes[at].take().unwrap();
        running.stop().await.unwrap().unwrap();
    }

    /// Starts a stopped node again over its directory and ports.
    pub(crate) async fn restart(&mut self, at: usize) {
        let resolved = self.configs[at].resolve().unwrap();
        // A node that was killed may let go of its sockets a moment later.
        let listeners = loop {
            match Listeners::bind(&resolved).await {
                Ok(listeners) => break listeners,
                Err(StartError::Listen(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        };
        self.nodes[at] = Some(self.launch(at, listeners));
    }

    /// Ends a node without any word or flush.
    pub(crate) async fn kill(&mut self, at: usize) {
        let running = self.nodes[at].take().unwrap();
        running.done.abort();
        // It was aborted, or had ended.
        let _ = running.done.await;
        // Its threads, which a process would take with it, have the directory a moment longer.
        let lock = self.configs[at].data_dir.join("store").join("LOCK");
        while let Ok(lock) = std::fs::File::open(&lock)
            && lock.try_lock().is_err()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a node to end by itself.
    pub(crate) async fn ended(&mut self, at: usize) -> StartError {
        let running = self.nodes[at].take().unwrap();
        running.done.await.unwrap().unwrap_err()
    }

    fn launch(&self, at: usize, listeners: Listeners) -> Running {
        let resolved = self.configs[at].resolve().unwrap();
        Running::start(resolved, listeners, self.media.get(&at).cloned())
    }
}

/// Asks again until it holds; a test that never gets there hangs, and is killed for it.
macro_rules! eventually {
    ($holds:expr) => {
        loop {
            if $holds {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
}
pub(crate) use eventually;

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
            secret: self.id.to_be_bytes().to_vec().into(),
            number: self.number,
            answered_through: self.number - 1,
            site: String::new(),
            attempt: 0,
        })
    }
}

pub(crate) fn key(name: &str) -> v1::Key {
    v1::Key {
        keyspace: "default".into(),
        key: name.as_bytes().to_vec().into(),
    }
}

pub(crate) fn register(name: &str) -> v1::Key {
    v1::Key {
        keyspace: "registers".into(),
        key: name.as_bytes().to_vec().into(),
    }
}

pub(crate) type Client = FermataClient<Channel>;

/// Enters a section over one key.
pub(crate) async fn enter(
    client: &mut Client,
    session: &mut Session,
    name: &str,
) -> Result<v1::Entered, tonic::Status> {
    use tokio_stream::StreamExt;
    let request = v1::EnterRequest {
        header: session.header(),
        keys: vec![key(name)],
        mode: v1::Mode::Exclusive.into(),
        wait_us: 20_000_000,
        follow: false,
        // As long as the keyspace allows: tests may be slow.
        lease_us: Some(3_600_000_000),
        ..v1::EnterRequest::default()
    };
    let mut events = client.enter(request).await?.into_inner();
    while let Some(event) = events.next().await {
        if let Some(v1::enter_event::Event::Entered(entered)) = event?.event {
            return Ok(entered);
        }
    }
    panic!("the stream ended before the entry");
}

/// Writes a register.
pub(crate) async fn write(
    client: &mut Client,
    session: &mut Session,
    name: &str,
    value: Vec<u8>,
) -> Result<(), tonic::Status> {
    let write = v1::WriteRequest {
        header: session.header(),
        key: Some(register(name)),
        value: Some(value.into()),
    };
    client.write(write).await.map(drop)
}

/// Reads a register.
pub(crate) async fn read(
    client: &mut Client,
    session: &mut Session,
    name: &str,
) -> Option<Vec<u8>> {
    let read = v1::ReadRequest {
        header: session.header(),
        key: Some(register(name)),
    };
    let value = client.read(read).await.unwrap().into_inner().value;
    value.map(|v| v.to_vec())
}
