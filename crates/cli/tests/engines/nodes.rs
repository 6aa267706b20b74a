//! Real stores, and nodes of Fermata on them: processes of the one binary.

pub(crate) use crate::common::fermata;
use fermata_peers::{Cluster, System, trio};
use fermata_server::config::{EngineConfig, EngineKind, LimitsConfig};
use fermata_server::{ClusterConfig, NodeConfig, ServerConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::{Mutex, MutexGuard};

/// The stores of this program.
pub(crate) struct Stores {
    pub(crate) cassandra: &'static Cluster,
    pub(crate) zookeeper: &'static Cluster,
}

/// Addresses of this process alone, so that two runs at a time do not meet.
pub(crate) fn address(last: u8) -> Ipv4Addr {
    let own = std::process::id();
    Ipv4Addr::new(127, 64 + (own >> 8) as u8 % 128, own as u8, last)
}

/// The stores; none, and loud words, where this machine lacks what they need.
pub(crate) fn stores() -> Option<Stores> {
    // Both are asked, so that both are named.
    let (cassandra, zookeeper) = (trio(System::Cassandra), trio(System::Zookeeper));
    Some(Stores {
        cassandra: cassandra?,
        zookeeper: zookeeper?,
    })
}

/// A name of a keyspace that no other run has used.
pub(crate) fn fresh(name: &str) -> String {
    format!("{name}_{}", std::process::id())
}

tokio::task_local! {
    /// The engine of the check that runs.
    static KIND: EngineKind;
}

/// Runs a check on an engine, where there are stores for it.
pub(crate) fn on(kind: EngineKind, check: impl Future<Output = ()>) {
    if stores().is_some() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(KIND.scope(kind, check));
    }
}

pub(crate) fn on_cassandra(check: impl Future<Output = ()>) {
    on(EngineKind::Cassandra, check);
}

pub(crate) fn on_zookeeper(check: impl Future<Output = ()>) {
    on(EngineKind::ZooKeeperCassandra, check);
}

/// Nodes `n1` … at sites `s1` …, all on the same stores, in a keyspace of their own.
pub(crate) struct Nodes {
    configs: Vec<ServerConfig>,
    processes: Vec<Option<Child>>,
    folder: tempfile::TempDir,
    /// A small machine has nodes of four tests at a time, each with addresses of its own.
    _turn: MutexGuard<'static, ()>,
}

/// What a check's engine is told of the stores, with a keyspace that nobody has used.
pub(crate) fn engine(kind: EngineKind) -> EngineConfig {
    static KEYSPACES: AtomicU32 = AtomicU32::new(0);
    let stores = stores().expect("they were asked for before");
    let names = |points: Vec<SocketAddr>| points.iter().map(ToString::to_string).collect();
    let number = KEYSPACES.fetch_add(1, Ordering::Relaxed);
    EngineConfig {
        kind,
        contact_points: names(stores.cassandra.endpoints()),
        data_center: Some("dc1".into()),
        keyspace: fresh(&format!("engines_{number}")),
        replication: [("dc1".into(), 1)].into(),
        allow_few_replicas: true,
        zookeeper: match kind {
            EngineKind::ZooKeeperCassandra => names(stores.zookeeper.endpoints()),
            _ => vec![],
        },
        ..EngineConfig::default()
    }
}

impl Nodes {
    /// Starts nodes, the first one before the others: a table that one node has just created may
    /// not serve another one yet. All serve when this returns.
    pub(crate) async fn start(nodes: u32, limits: LimitsConfig) -> Nodes {
        Nodes::on(engine(KIND.get()), nodes, limits).await
    }

    /// The same, on these stores.
    pub(crate) async fn on(engine: EngineConfig, nodes: u32, limits: LimitsConfig) -> Nodes {
        static TURNS: [Mutex<()>; 4] = [const { Mutex::const_new(()) }; 4];
        let (first, turn) = tokio::select! {
            turn = TURNS[0].lock() => (2, turn),
            turn = TURNS[1].lock() => (32, turn),
            turn = TURNS[2].lock() => (62, turn),
            turn = TURNS[3].lock() => (92, turn),
        };
        let node = |name: u32| NodeConfig {
            name,
            label: format!("n{name}"),
            site: format!("s{name}"),
            peer: String::new(),
            grpc: format!("{}:7100", address(first + name as u8 - 1)),
            rest: format!("{}:7101", address(first + name as u8 - 1)),
        };
        let cluster = ClusterConfig {
            id: format!("{:032x}", 0xe9),
            segment_bits: 3,
            lowest_ref: 1,
            sites: (1..=nodes).map(|site| format!("s{site}")).collect(),
            nodes: (1..=nodes).map(node).collect(),
            groups: vec![],
        };
        let folder = tempfile::tempdir().expect("a directory");
        let config = |name: u32| ServerConfig {
            limits: limits.clone(),
            engine: engine.clone(),
            ..ServerConfig::new(format!("n{name}"), PathBuf::new(), cluster.clone())
        };
        let mut nodes = Nodes {
            configs: (1..=nodes).map(config).collect(),
            processes: (0..nodes).map(|_| None).collect(),
            folder,
            _turn: turn,
        };
        nodes.restart(0).await;
        for at in 1..nodes.configs.len() {
            nodes.launch(at);
        }
        for at in 1..nodes.configs.len() {
            nodes.serves(at).await;
        }
        nodes
    }

    /// The keyspace in Cassandra.
    pub(crate) fn keyspace(&self) -> &str {
        &self.configs[0].engine.keyspace
    }

    pub(crate) fn node(&self, at: usize) -> &NodeConfig {
        let cluster = self.configs[at].cluster.as_ref();
        &cluster.expect("it is in the node's own file").nodes[at]
    }

    /// A command that talks to these nodes.
    pub(crate) fn client(&self) -> Command {
        let mut command = fermata();
        let nodes = (0..self.configs.len()).map(|at| self.node(at).grpc.as_str());
        command.env("FERMATA_ENDPOINTS", nodes.collect::<Vec<_>>().join(","));
        command
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.path().join(format!("n{}.log", at + 1))
    }

    /// What a node has said.
    pub(crate) fn said(&self, at: usize) -> String {
        std::fs::read_to_string(self.log(at)).unwrap_or_default()
    }

    fn launch(&mut self, at: usize) {
        let config = self.folder.path().join(format!("n{}.toml", at + 1));
        let text = toml::to_string(&self.configs[at]).expect("it can be written");
        std::fs::write(&config, text).expect("room for a file");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log(at))
            .expect("room for a log");
        // It ends with its standard input, which closes when this process ends.
        let process = fermata()
            .args(["server", "--until-stdin-closes", "--config"])
            .arg(config)
            .stdin(Stdio::piped())
            .stderr(log)
            .spawn();
        self.processes[at] = Some(process.expect("it starts"));
    }

    /// Waits until a node is healthy.
    pub(crate) async fn serves(&mut self, at: usize) {
        let rest = crate::http::Rest(self.node(at).rest.clone());
        loop {
            if tokio::net::TcpStream::connect(&rest.0).await.is_ok()
                && rest.send("GET", "/healthz", &[], b"").await.0 == 200
            {
                return;
            }
            let process = self.processes[at].as_mut().expect("it was launched");
            if let Ok(Some(status)) = process.try_wait() {
                panic!("node {at} ended with {status}: {}", self.said(at));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, at: usize) {
        self.signal(at, Signal::KILL);
    }

    /// Stops a node as its operator does; its exit status.
    pub(crate) fn stop(&mut self, at: usize) -> Option<i32> {
        self.signal(at, Signal::TERM)
    }

    fn signal(&mut self, at: usize, signal: Signal) -> Option<i32> {
        let mut process = self.processes[at].take().expect("it runs");
        if let Some(pid) = Pid::from_raw(process.id() as i32) {
            kill_process(pid, signal).expect("it runs");
        }
        process.wait().expect("a child").code()
    }

    /// Starts a node that does not run; it serves when this returns.
    pub(crate) async fn restart(&mut self, at: usize) {
        self.launch(at);
        self.serves(at).await;
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for at in 0..self.processes.len() {
            if let Some(process) = &mut self.processes[at] {
                // It may have ended, which is another one's failure.
                let _ended = process.kill();
                let _status = process.wait();
            }
            if std::thread::panicking() {
                eprintln!("node {at} said:\n{}", self.said(at));
            }
        }
    }
}

/// Runs a command to its end.
pub(crate) fn run(nodes: &Nodes, args: &[&str]) -> Output {
    nodes.client().args(args).output().expect("it runs")
}

/// What a command that must succeed printed.
pub(crate) fn says(nodes: &Nodes, args: &[&str]) -> String {
    let output = run(nodes, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn json(nodes: &Nodes, args: &[&str]) -> Value {
    let said = says(nodes, &[args, &["--json"]].concat());
    serde_json::from_str(&said).expect("JSON")
}
