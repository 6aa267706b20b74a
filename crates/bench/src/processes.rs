//! A cluster of processes of `fermata server`: one node per site, to be killed or held up as the
//! system does it.
//!
//! Their sockets, threads and flushes are those of any server, and so is their death: the system
//! closes the connections of a killed process, and those of a stopped one stay open.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fermata_client::{Client, Options};
use fermata_server::{ClusterConfig, NodeConfig, ServerConfig};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::cluster::SEGMENT_BITS;

/// How long a node may take until it serves.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two attempts to reach one that starts.
const AGAIN: Duration = Duration::from_millis(100);
/// Ports are taken from here to [`PORTS_END`], below those that systems give to connections that
/// go out.
const PORTS: u16 = 20_000;
const PORTS_END: u16 = 30_000;

/// A running cluster. Dropped, its processes are killed and their directories go.
pub(crate) struct Processes {
    nodes: Vec<Child>,
    config: ClusterConfig,
    _folder: tempfile::TempDir,
}

impl Processes {
    /// Starts `n` nodes of `program`, each a site of its own and all one group, and waits until
    /// they serve. `lease`: milliseconds, if not the server's default.
    pub(crate) async fn start(program: &Path, n: u16, lease: Option<u64>) -> Result<Processes> {
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
            id: format!("{:032x}", 0xbe),
            segment_bits: SEGMENT_BITS,
            lowest_ref: 1,
            sites: (1..=n).map(|s| format!("s{s}")).collect(),
            nodes,
            groups: vec![],
        };
        let mut nodes = Vec::new();
        for node in &config.nodes {
            let data = folder.path().join(&node.label);
            let mut server = ServerConfig::new(&node.label, data, config.clone());
            server.timing.lease_ms = lease;
            let file = folder.path().join(format!("{}.toml", node.label));
            std::fs::write(&file, toml::to_string(&server)?)?;
            nodes.push(spawn(program, &file)?);
        }
        let cluster = Processes {
            nodes,
            config,
            _folder: folder,
        };
        let ready = async {
            for at in 0..usize::from(n) {
                while cluster.is_silent(at).await {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        let ready = tokio::time::timeout(PATIENCE, ready).await;
        ready.context("the cluster did not come up")?;
        Ok(cluster)
    }

    async fn is_silent(&self, at: usize) -> bool {
        match self.client(at).await {
            Ok(client) => client.read("registers", "ready").await.is_err(),
            Err(_) => true,
        }
    }

    /// A client on the site of a node.
    pub(crate) async fn client(&self, at: usize) -> Result<Client> {
        let node = &self.config.nodes[at];
        let options = Options::new([format!("http://{}", node.grpc)]).site(&node.site);
        Ok(Client::connect(options).await?)
    }

    /// Ends a node by SIGKILL: the system closes what it had open.
    pub(crate) fn kill(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::KILL)
    }

    /// Holds a node up by SIGSTOP: whatever it had open stays open, and nobody answers.
    pub(crate) fn stop(&self, at: usize) -> Result<()> {
        self.signal(at, Signal::STOP)
    }

    fn signal(&self, at: usize, signal: Signal) -> Result<()> {
        let pid = self.nodes[at].id();
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
