//! A cluster of processes of `fermata server`: at first one node per site, to be killed, held up or
//! restarted as the system does it; others may join.
//!
//! Their sockets, threads and flushes are those of any server, and so is their death: the system
//! closes the connections of a killed process, and those of a stopped one stay open.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use fermata_client::{Client, Files, Options, Trust};
use fermata_server::config::{JoinConfig, TlsConfig};
use fermata_server::{ClusterConfig, NodeConfig, ServerConfig};
use fermata_tls::Name;
use fermata_tls::authority::{Authority, Span};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::cluster::SEGMENT_BITS;

/// The cluster's id.
const CLUSTER: u128 = 0xbe;
/// How long a node may take until it serves.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a node that is asked to end may take.
const ENDING: Duration = Duration::from_secs(30);
/// Between two attempts to reach one that starts.
const AGAIN: Duration = Duration::from_millis(100);
/// Ports are taken from here to [`PORTS_END`], below those that systems give to connections that
/// go out.
const PORTS: u16 = 20_000;
const PORTS_END: u16 = 30_000;

/// What the nodes are told, if not the server's defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Milliseconds of the nodes' lease.
    pub(crate) lease: Option<u64>,
    /// Delays between sites, as the server's configuration has them.
    pub(crate) rtt: Option<String>,
    /// Whether nodes speak TLS: those that the cluster begins with.
    pub(crate) tls: bool,
}

/// A running cluster. Dropped, its processes are killed and their directories go.
pub(crate) struct Processes {
    nodes: Vec<Process>,
    setup: Setup,
    /// What clients show, and whom they trust; none: all is in clear.
    trust: Option<Trust>,
    folder: tempfile::TempDir,
}

struct Process {
    label: String,
    site: String,
    grpc: String,
    /// None: it has ended, and was waited for.
    child: Option<Child>,
}

impl Processes {
    /// Starts `n` nodes of `program`, each a site of its own and all one group, and waits until
    /// they serve.
    pub(crate) async fn start(program: &Path, n: u16, setup: Setup) -> Result<Processes> {
        let folder = tempfile::Builder::new()
            .prefix("fermata-bench-")
            .tempdir()?;
        let mut nodes = Vec::new();
        for name in 1..=u32::from(n) {
            nodes.push(NodeConfig {
                name,
                label: format!("n{name}"),
                site: format!("s{name}"),
                peer: free()?,
                grpc: free()?,
                rest: free()?,
            });
        }
        let config = ClusterConfig {
            id: format!("{CLUSTER:032x}"),
            segment_bits: SEGMENT_BITS,
            lowest_ref: 1,
            sites: (1..=n).map(|s| format!("s{s}")).collect(),
            nodes,
            groups: vec![],
        };
        let mut cluster = Processes {
            nodes: Vec::new(),
            trust: match setup.tls {
                true => Some(certificates(folder.path(), &config)?),
                false => None,
            },
            setup,
            folder,
        };
        for node in &config.nodes {
            let data = cluster.data(&node.label);
            let mut server = ServerConfig::new(&node.label, data, config.clone());
            server.timing.lease_ms = cluster.setup.lease;
            if cluster.setup.tls {
                server.tls = shown(cluster.folder.path(), &node.label);
            }
            cluster.launch(program, server, node)?;
        }
        for node in &config.nodes {
            cluster.ready(&node.label).await?;
        }
        Ok(cluster)
    }

    /// Starts a node that joins the cluster at the n-th site, from 1 on, and returns its label. It
    /// may not serve yet.
    pub(crate) fn join(&mut self, program: &Path, site: usize) -> Result<String> {
        let name = u32::try_from(self.nodes.len() + 1)?;
        let node = NodeConfig {
            name,
            label: format!("n{name}"),
            site: format!("s{site}"),
            peer: free()?,
            grpc: free()?,
            rest: free()?,
        };
        let join = JoinConfig {
            seeds: self.addresses(),
            label: node.label.clone(),
            site: node.site.clone(),
        };
        let mut server = ServerConfig::joining(join, self.data(&node.label));
        server.listen_peer = Some(node.peer.clone());
        server.listen_grpc = Some(node.grpc.clone());
        server.listen_rest = Some(node.rest.clone());
        self.launch(program, server, &node)?;
        Ok(node.label)
    }

    fn launch(&mut self, program: &Path, server: ServerConfig, node: &NodeConfig) -> Result<()> {
        let mut server = server;
        if let Some(rtt) = &self.setup.rtt {
            server.rtt.clone_from(rtt);
        }
        std::fs::write(self.file(&node.label), toml::to_string(&server)?)?;
        self.nodes.push(Process {
            label: node.label.clone(),
            site: node.site.clone(),
            grpc: node.grpc.clone(),
            child: Some(spawn(program, &self.file(&node.label))?),
        });
        Ok(())
    }

    fn data(&self, label: &str) -> PathBuf {
        self.folder.path().join(label)
    }

    fn file(&self, label: &str) -> PathBuf {
        self.folder.path().join(format!("{label}.toml"))
    }

    /// Starts a node again that has ended, on the data that it has. It may not serve yet.
    pub(crate) fn again(&mut self, program: &Path, label: &str) -> Result<()> {
        let file = self.file(label);
        self.node(label)?.child = Some(spawn(program, &file)?);
        Ok(())
    }

    /// Waits until a node serves.
    pub(crate) async fn ready(&self, label: &str) -> Result<()> {
        let at = self.at(label)?;
        let ready = async {
            while self.is_silent(at).await {
                tokio::time::sleep(AGAIN).await;
            }
        };
        let ready = tokio::time::timeout(PATIENCE, ready).await;
        ready.with_context(|| format!("{label} did not come up"))
    }

    async fn is_silent(&self, at: usize) -> bool {
        match self.client(at).await {
            Ok(client) => client.read("registers", "ready").await.is_err(),
            Err(_) => true,
        }
    }

    /// A client on the site of a node.
    pub(crate) async fn client(&self, at: usize) -> Result<Client> {
        let node = &self.nodes[at];
        let options = match &self.trust {
            Some(trust) => Options::new([format!("https://{}", node.grpc)]).tls(trust.clone()),
            None => Options::new([format!("http://{}", node.grpc)]),
        };
        Ok(Client::connect(options.site(&node.site)).await?)
    }

    /// What clients show, and whom they trust; none: all is in clear.
    pub(crate) fn trust(&self) -> Option<&Trust> {
        self.trust.as_ref()
    }

    /// The nodes that are up, by their labels.
    pub(crate) fn labels(&self) -> Vec<String> {
        let up = self.nodes.iter().filter(|node| node.child.is_some());
        up.map(|node| node.label.clone()).collect()
    }

    /// Where the nodes' directories are, each called by its label.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client on the site of a node.
    pub(crate) async fn client_of(&self, label: &str) -> Result<Client> {
        self.client(self.at(label)?).await
    }

    /// The site of a node, from 1 on.
    pub(crate) fn site(&self, label: &str) -> Result<usize> {
        let site = &self.nodes[self.at(label)?].site;
        let number = site
            .strip_prefix('s')
            .and_then(|number| number.parse().ok());
        number.ok_or_else(|| anyhow!("{label} is at {site}"))
    }

    /// Where clients reach the nodes that are up.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let up = self.nodes.iter().filter(|node| node.child.is_some());
        up.map(|node| node.grpc.clone()).collect()
    }

    /// Ends a node by SIGKILL: the system closes what it had open.
    pub(crate) fn kill(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::KILL)
    }

    /// Holds a node up by SIGSTOP: whatever it had open stays open, and nobody answers.
    pub(crate) fn stop(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::STOP)
    }

    /// Ends a node in order, or waits for one that ends by itself.
    pub(crate) async fn end(&mut self, label: &str) -> Result<()> {
        let at = self.at(label)?;
        // Who has ended by itself cannot be told to.
        let _ = self.signal(at, Signal::TERM);
        if let Some(mut child) = self.nodes[at].child.take() {
            let ended = tokio::time::timeout(ENDING, child.wait()).await;
            ended.with_context(|| format!("{label} does not end"))??;
        }
        Ok(())
    }

    /// Kills a node, and takes its disk away.
    pub(crate) async fn lose(&mut self, label: &str) -> Result<()> {
        let data = self.data(label);
        if let Some(mut child) = self.node(label)?.child.take() {
            child.kill().await?;
        }
        Ok(std::fs::remove_dir_all(data)?)
    }

    /// The place of a node among all that ever were.
    pub(crate) fn at(&self, label: &str) -> Result<usize> {
        let found = self.nodes.iter().position(|node| node.label == label);
        found.ok_or_else(|| anyhow!("there was never a node {label}"))
    }

    fn node(&mut self, label: &str) -> Result<&mut Process> {
        let at = self.at(label)?;
        Ok(&mut self.nodes[at])
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let pid = self.nodes[at].child.as_ref().and_then(Child::id);
        let pid = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or_else(|| anyhow!("the node has ended by itself"))?;
        Ok(kill_process(pid, signal)?)
    }
}

fn spawn(program: &Path, config: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    // What the environment says of other nodes is not meant for these.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERMATA_") {
            command.env_remove(name);
        }
    }
    let log = std::fs::File::create(config.with_extension("log"))?;
    let child = command
        .args(["server", "--until-stdin-closes", "--config"])
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn();
    child.with_context(|| format!("{} cannot be started", program.display()))
}

/// Makes an authority and what it signs for these nodes and a client. What the client shows.
fn certificates(dir: &Path, cluster: &ClusterConfig) -> Result<Trust> {
    let span = Span::lasting(Duration::from_secs(86_400));
    let made = Authority::make("fermata-bench", span).map_err(Error::msg)?;
    made.store(dir, "ca")?;
    let authority = Authority::of(&made).map_err(Error::msg)?;
    let client = "client".to_owned();
    let mut names = vec![Name::Client {
        cluster: CLUSTER,
        name: client.clone(),
    }];
    names.extend(cluster.nodes.iter().map(|node| Name::Node {
        cluster: CLUSTER,
        label: node.label.clone(),
    }));
    for name in &names {
        let hosts = ["127.0.0.1".to_owned()];
        let (Name::Node { label: file, .. } | Name::Client { name: file, .. }) = name;
        let signed = authority.sign(name, &hosts, span).map_err(Error::msg)?;
        signed.store(dir, file)?;
    }
    let own = (dir.join("client.pem"), dir.join("client.key"));
    let files = Files {
        ca: dir.join("ca.pem"),
        own: Some(own),
    };
    Trust::read(files).map_err(Error::msg)
}

/// What a node shows.
fn shown(dir: &Path, label: &str) -> TlsConfig {
    TlsConfig {
        ca: Some(dir.join("ca.pem")),
        certificate: Some(dir.join(format!("{label}.pem"))),
        key: Some(dir.join(format!("{label}.key"))),
        ..TlsConfig::default()
    }
}

/// The program named `fermata` beside this one.
pub(crate) fn beside() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("fermata");
    if !program.is_file() {
        bail!(
            "there is no {}: build it with `cargo build --release -p fermata`, or name it by \
             --fermata",
            program.display()
        );
    }
    Ok(program)
}

/// A HOST:PORT on which nobody listens. Those of one process differ.
fn free() -> Result<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes begin at different ports.
    let start = (std::process::id() % u32::from(PORTS_END - PORTS)) as u16;
    for _ in PORTS..PORTS_END {
        let drawn = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS_END - PORTS);
        let port = PORTS + (start + drawn) % (PORTS_END - PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(format!("127.0.0.1:{port}"));
        }
    }
    bail!("no port from {PORTS} to {PORTS_END} is free")
}
