//! A cluster in this process: one node per site, on ephemeral loopback ports, each over a directory
//! of its own or over memory.
//!
//! Nodes are those of `fermata server`, with their sockets, threads and flushes. What differs from
//! separate processes: they share this one's runtime and its allocator.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use fermata_client::{Client, Keyspace, Options, Purpose};
use fermata_protocol::base::StoragePolicy;
use fermata_server::config::ClockConfig;
use fermata_server::local::{self, Running};
use fermata_server::{ClusterConfig, Listeners, Medium, ServerConfig};
use fermata_storage::{Disk, FileDisk, MemDisk, Options as Layout, Store};

/// Where nodes keep their stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Disks {
    /// Files, flushed to the disk before anything is acknowledged.
    Files,
    /// Memory: what disks cost is left out.
    Memory,
}

impl Disks {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Disks::Files => "files",
            Disks::Memory => "memory",
        }
    }
}

/// The ring has two to this many segments.
pub(crate) const SEGMENT_BITS: u8 = 4;

/// A running cluster. Dropped, its nodes end at once and their directories go.
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    config: ClusterConfig,
    folder: tempfile::TempDir,
}

struct Node {
    running: Running,
    disk: Arc<dyn Disk>,
}

impl Cluster {
    /// Starts `n` nodes, each a site of its own and all one group, and waits until they serve.
    pub(crate) async fn start(n: u16, disks: Disks) -> Result<Cluster> {
        let folder = tempfile::Builder::new()
            .prefix("fermata-bench-")
            .tempdir()?;
        let (cluster, listeners) = local::cluster(u32::from(n), SEGMENT_BITS).await?;
        let mut running = Vec::new();
        for (name, listeners) in (1..=u32::from(n)).zip(listeners) {
            let dir = folder.path().join(format!("n{name}"));
            let disk: Arc<dyn Disk> = match disks {
                Disks::Memory => Arc::new(MemDisk::new()),
                Disks::Files => Arc::new(FileDisk::open(dir.join("store"))?),
            };
            let config = config(name, dir, cluster.clone());
            running.push(launch(&config, listeners, disk)?);
        }
        let cluster = Cluster {
            nodes: running,
            config: cluster,
            folder,
        };
        for at in 0..usize::from(n) {
            let client = cluster.client(at).await?;
            client
                .read("registers", "ready")
                .await
                .context("the cluster did not come up")?;
        }
        Ok(cluster)
    }

    /// A client on the site of a node.
    pub(crate) async fn client(&self, at: usize) -> Result<Client> {
        let node = &self.config.nodes[at];
        let options = Options::new([format!("http://{}", node.grpc)]).site(&node.site);
        Ok(Client::connect(options).await?)
    }

    /// HOST:PORT of the REST face of a node.
    pub(crate) fn rest(&self, at: usize) -> &str {
        &self.config.nodes[at].rest
    }

    /// Creates a keyspace of registers.
    pub(crate) async fn create(&self, name: &str, storage: StoragePolicy) -> Result<()> {
        let [_, template] = Keyspace::built_in();
        let keyspace = Keyspace {
            name: name.to_owned(),
            purpose: Purpose::Registers,
            storage,
            ..template
        };
        self.client(0).await?.create_keyspace(keyspace).await?;
        Ok(())
    }

    /// Stops all nodes and hands out their stores, as the next start would find them, with the
    /// directory that they need.
    pub(crate) async fn stop(self) -> Result<(Vec<Store>, tempfile::TempDir)> {
        let mut stores = Vec::new();
        let stopped = self.nodes.into_iter().map(|n| (n.running.stop(), n.disk));
        let stopped: Vec<_> = stopped.collect();
        for (done, disk) in stopped {
            done.await??;
            let layout = Layout::default();
            let opened = tokio::task::spawn_blocking(move || Store::open(disk, layout)).await?;
            stores.push(opened?.0);
        }
        Ok((stores, self.folder))
    }
}

fn config(name: u32, data_dir: std::path::PathBuf, cluster: ClusterConfig) -> ServerConfig {
    // All nodes read the clock of one machine.
    let clock = ClockConfig {
        bound_us: Some(50),
        ..ClockConfig::default()
    };
    ServerConfig {
        clock,
        ..ServerConfig::new(format!("n{name}"), data_dir, cluster)
    }
}

fn launch(config: &ServerConfig, listeners: Listeners, disk: Arc<dyn Disk>) -> Result<Node> {
    let resolved = config.resolve().map_err(|why| anyhow!(why))?;
    let medium = Medium {
        disk: disk.clone(),
        options: Layout::default(),
    };
    let running = Running::start(resolved, listeners, Some(medium));
    Ok(Node { running, disk })
}
