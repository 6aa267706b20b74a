//! Everything that is measured, running: the peers as processes of their own, and a node of Fermata
//! per site and engine in this process, on its site's own threads and sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fermata_cassandra::paper::Paper;
use fermata_cassandra::{CassandraStore, Settings as CassandraSettings};
use fermata_client::{Client, Keyspace, Options, Purpose};
use fermata_engine::{Engine, Service};
use fermata_peers::{Cluster, Commitlog, Paxos, Purging, Spec};
use fermata_protocol::base::{NodeName, SiteId};
use fermata_server::config::{EngineConfig, EngineKind};
use fermata_server::{
    ClusterConfig, Faces, Listeners, NodeConfig, ServerConfig, run_engine_on, run_on,
};
use tokio::net::TcpListener;

use super::bare::{self, Bare};
use super::etcd::{Etcd, Transactions};
use super::fermata::Fermata;
use super::paper::Music;
use super::place::{Place, SITES, Site};
use super::system::{Kind, System};
use super::zookeeper::Zookeeper;
use crate::cpu;

/// A keyspace of sections that the engines do not verify.
const UNVERIFIED: &str = "unverified";
/// The one that they do.
const VERIFIED: &str = "default";

/// MUSIC's T, the longest section.
const SECTION_MAX: Duration = Duration::from_secs(600);

/// How often MUSIC tries to create a lock ref.
const ATTEMPTS: u32 = 1_000;

/// What peers may take to serve where other programs want the processors, too.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is measured in a run, running.
pub(crate) struct Servers {
    peers: BTreeMap<&'static str, Cluster>,
    /// Clients' addresses by site: native, engine on Cassandra, engine on both.
    native: Vec<String>,
    engines: BTreeMap<Kind, Vec<String>>,
    bare: Vec<SocketAddr>,
    /// Sessions with Cassandra, one a site, as a MUSIC replica has.
    papers: Mutex<BTreeMap<usize, Arc<Paper>>>,
    /// One sentence for each system: when a write is on disk.
    pub(crate) durability: Vec<(String, String)>,
    processes: Vec<u32>,
    /// What the native nodes, and those of sockets and files, have on disk.
    folders: Vec<tempfile::TempDir>,
}

/// Which peers a kind needs.
fn needs(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Native | Kind::Bare => &[],
        Kind::Engine | Kind::Unverified | Kind::Paper | Kind::Mscp | Kind::CassaEv => {
            &["cassandra"]
        }
        Kind::Split => &["cassandra", "zookeeper"],
        Kind::Zookeeper => &["zookeeper"],
        Kind::Etcd | Kind::EtcdTxn => &["etcd"],
    }
}

/// How the peers are set up.
fn spec(name: &str, place: &Place) -> Result<Spec> {
    let system = name.parse()?;
    let mut spec = Spec::new(system, u8::try_from(SITES)?);
    spec.netns = place.netns();
    spec.patience = Some(PATIENCE);
    Ok(match name {
        "cassandra" => {
            spec.dcs = true;
            spec.paxos = Paxos::V2;
            spec.purging = Some(Purging::Repaired);
            spec.commitlog = Commitlog::Batch;
            // The defaults of 1.8 and 2 s run out under contention across a continent; hints are
            // no part of what is compared.
            spec.with("cas_contention_timeout", "5s")
                .with("write_request_timeout", "5s")
                .with("read_request_timeout", "5s")
                .with("hinted_handoff_enabled", "false")
        }
        // Sections of a hundred values of 256 KiB fill the 2 GiB of the default.
        "etcd" => spec.with("quota-backend-bytes", "8589934592"),
        _ => spec,
    })
}

impl Servers {
    /// Starts what these kinds need.
    pub(crate) fn start(place: &Place, kinds: &BTreeSet<Kind>) -> Result<Servers> {
        let names: BTreeSet<&'static str> = kinds
            .iter()
            .flat_map(|k| needs(*k).iter().copied())
            .collect();
        let mut servers = Servers {
            peers: BTreeMap::new(),
            native: Vec::new(),
            bare: Vec::new(),
            engines: BTreeMap::new(),
            papers: Mutex::default(),
            durability: Vec::new(),
            processes: Vec::new(),
            folders: Vec::new(),
        };
        for name in names {
            eprintln!("starting {name}");
            let cluster = Cluster::start(&spec(name, place)?)
                .with_context(|| format!("{name} cannot be started"))?;
            servers
                .durability
                .push((name.to_owned(), cluster.durability()));
            let nodes = cluster.nodes();
            servers
                .processes
                .extend(nodes.iter().filter_map(|n| u32::try_from(n.pid?).ok()));
            servers.peers.insert(name, cluster);
        }
        if kinds.contains(&Kind::Native) {
            servers.start_native(place)?;
        }
        if kinds.contains(&Kind::Bare) {
            let folder = own_folder("bare-")?;
            servers.bare = bare::start(folder.path(), SITES)?;
            servers.folders.push(folder);
        }
        if kinds.contains(&Kind::Engine) || kinds.contains(&Kind::Unverified) {
            servers.start_engine(place, Kind::Engine)?;
        }
        if kinds.contains(&Kind::Split) {
            servers.start_engine(place, Kind::Split)?;
        }
        if [Kind::Paper, Kind::Mscp, Kind::CassaEv]
            .iter()
            .any(|kind| kinds.contains(kind))
        {
            for (at, site) in place.sites.iter().enumerate() {
                servers.paper(site, at)?;
            }
        }
        Ok(servers)
    }

    /// Seconds of processors that the peers' processes have used.
    pub(crate) fn spent(&self) -> f64 {
        self.processes.iter().filter_map(|pid| cpu::of(*pid)).sum()
    }

    fn endpoint(&self, peer: &str, site: usize) -> Result<String> {
        let cluster = self
            .peers
            .get(peer)
            .ok_or_else(|| anyhow!("{peer} was not started"))?;
        Ok(cluster.endpoints()[site].to_string())
    }

    fn start_native(&mut self, place: &Place) -> Result<()> {
        let folder = own_folder("native-")?;
        let mut listeners = Vec::new();
        for site in &place.sites {
            let at = site.any_port();
            let bound = site.serve(async move {
                Ok::<_, std::io::Error>(Listeners {
                    peer: TcpListener::bind(at).await?,
                    grpc: TcpListener::bind(at).await?,
                    rest: Some(TcpListener::bind(at).await?),
                })
            })??;
            listeners.push(bound);
        }
        let addresses = listeners.iter().map(|l| {
            let rest = l.rest.as_ref().unwrap_or(&l.grpc);
            Ok([&l.peer, &l.grpc, rest].map(|l| l.local_addr().map(|a| a.to_string())))
        });
        let addresses: Vec<_> = addresses.collect::<Result<_>>()?;
        let mut nodes = Vec::new();
        for (at, [peer, grpc, rest]) in addresses.into_iter().enumerate() {
            nodes.push(node(at, peer?, grpc?, rest?));
        }
        let cluster = cluster(nodes);
        for ((at, site), listeners) in place.sites.iter().enumerate().zip(listeners) {
            let dir = folder.path().join(format!("n{}", at + 1));
            let mut config = ServerConfig::new(label(at), dir, cluster.clone());
            config.insecure = true;
            config.timing.usage_ms = Some(USAGE_MS);
            let resolved = config.resolve().map_err(|why| anyhow!(why))?;
            site.serving(async move {
                if let Err(error) = run_on(resolved, listeners, None, std::future::pending()).await
                {
                    eprintln!("a native node ended: {error}");
                }
            });
        }
        self.native = cluster.nodes.iter().map(|n| n.grpc.clone()).collect();
        for (at, site) in place.sites.iter().enumerate() {
            let address = self.native[at].clone();
            let ready = site.client(async move { ready(&address, at).await });
            site.wait(ready)??;
        }
        let said = "the log is flushed before a write is acknowledged".to_owned();
        self.durability.push(("native".to_owned(), said));
        self.folders.push(folder);
        Ok(())
    }

    /// A server of the engine at each site, as `fermata server --engine` is one.
    fn start_engine(&mut self, place: &Place, kind: Kind) -> Result<()> {
        let mut faces = Vec::new();
        let mut nodes = Vec::new();
        for (at, site) in place.sites.iter().enumerate() {
            let any = site.any_port();
            let bound = site.serve(async move {
                Ok::<_, std::io::Error>(Faces {
                    grpc: TcpListener::bind(any).await?,
                    rest: Some(TcpListener::bind(any).await?),
                })
            })??;
            let grpc = bound.grpc.local_addr()?.to_string();
            let rest = bound
                .rest
                .as_ref()
                .map_or(Ok(bound.grpc.local_addr()?), TcpListener::local_addr);
            nodes.push(node(at, String::new(), grpc, rest?.to_string()));
            faces.push(bound);
        }
        let cluster = cluster(nodes);
        for ((at, site), faces) in place.sites.iter().enumerate().zip(faces) {
            let contact = self.endpoint("cassandra", at)?;
            let mut config = ServerConfig::new(label(at), PathBuf::new(), cluster.clone());
            config.insecure = true;
            config.engine = EngineConfig {
                kind: EngineKind::Cassandra,
                contact_points: vec![contact.clone()],
                ..EngineConfig::default()
            };
            let resolved = config.resolve().map_err(|why| anyhow!(why))?;
            let keyspace = if kind == Kind::Split {
                "split"
            } else {
                "fermata"
            };
            let settings = cassandra(contact, at, keyspace);
            let zookeeper = match kind {
                Kind::Split => Some(self.endpoint("zookeeper", at)?),
                _ => None,
            };
            let service = site.serve(engine(at, settings, zookeeper))??;
            if at == 0 {
                eprintln!("{}", service.describe());
            }
            site.serving(async move {
                let run = run_engine_on(resolved, faces, service, std::future::pending());
                if let Err(error) = run.await {
                    eprintln!("a server of an engine ended: {error}");
                }
            });
        }
        let addresses: Vec<String> = cluster.nodes.iter().map(|n| n.grpc.clone()).collect();
        let first = addresses[0].clone();
        let site = &place.sites[0];
        site.wait(site.client(async move { unverified(&first).await }))??;
        for (at, site) in place.sites.iter().enumerate() {
            let address = addresses[at].clone();
            site.wait(site.client(async move { ready(&address, at).await }))??;
        }
        self.engines.insert(kind, addresses);
        Ok(())
    }

    /// A new client of a system at a site.
    pub(crate) fn client(&self, place: &Place, kind: Kind, at: usize) -> Result<Arc<dyn System>> {
        let site = &place.sites[at];
        let fermata = |addresses: &[String], keyspace| {
            let address = addresses
                .get(at)
                .ok_or_else(|| anyhow!("it was not started"))?
                .clone();
            on(site, async move {
                Fermata::connect(&address, &site_name(at), keyspace).await
            })
        };
        let engine = |kind| self.engines.get(&kind).map_or(&[][..], Vec::as_slice);
        match kind {
            Kind::Native => fermata(&self.native, VERIFIED),
            Kind::Engine => fermata(engine(Kind::Engine), VERIFIED),
            Kind::Unverified => fermata(engine(Kind::Engine), UNVERIFIED),
            Kind::Split => fermata(engine(Kind::Split), VERIFIED),
            Kind::Paper | Kind::Mscp | Kind::CassaEv => {
                let paper = self.paper(site, at)?;
                Ok(Arc::new(Music { paper, kind }))
            }
            Kind::Zookeeper => {
                let address = self.endpoint("zookeeper", at)?;
                on(site, async move { Zookeeper::connect(&address).await })
            }
            Kind::Etcd => {
                let address = self.endpoint("etcd", at)?;
                on(site, async move { Etcd::connect(&address).await })
            }
            Kind::EtcdTxn => {
                let address = self.endpoint("etcd", at)?;
                on(site, async move { Transactions::connect(&address).await })
            }
            Kind::Bare => {
                let address = *self.bare.get(at).context("it was not started")?;
                on(site, async move { Bare::connect(address).await })
            }
        }
    }

    /// The site's session with Cassandra in MUSIC's layout, made when it is first asked for.
    fn paper(&self, site: &Site, at: usize) -> Result<Arc<Paper>> {
        let mut papers = self.papers.lock().map_err(|_| anyhow!("a thread died"))?;
        if let Some(paper) = papers.get(&at) {
            return Ok(paper.clone());
        }
        let settings = cassandra(self.endpoint("cassandra", at)?, at, "paper");
        let connect = async move { Paper::connect(settings, SECTION_MAX, ATTEMPTS).await };
        let connected = site.wait(site.client(connect))?;
        let paper = Arc::new(connected.map_err(|why| anyhow!(why))?);
        papers.insert(at, paper.clone());
        Ok(paper)
    }
}

/// Connects a client where it will live.
fn on<S: System>(
    site: &Site,
    connect: impl Future<Output = Result<S>> + Send + 'static,
) -> Result<Arc<dyn System>> {
    Ok(Arc::new(site.wait(site.client(connect))??))
}

/// What a node and its site are called.
fn label(at: usize) -> String {
    format!("n{}", at + 1)
}

fn site_name(at: usize) -> String {
    format!("s{}", at + 1)
}

fn node(at: usize, peer: String, grpc: String, rest: String) -> NodeConfig {
    NodeConfig {
        name: u32::try_from(at + 1).expect("there are three"),
        label: label(at),
        site: site_name(at),
        peer,
        grpc,
        rest,
    }
}

/// How fast the native engine's primaries follow who uses them: faster than by default, for leads
/// of seconds.
const USAGE_MS: u64 = 3_000;

fn cluster(nodes: Vec<NodeConfig>) -> ClusterConfig {
    ClusterConfig {
        id: format!("{:032x}", 0xbe),
        segment_bits: 6,
        lowest_ref: 1,
        sites: (0..SITES).map(site_name).collect(),
        nodes,
        groups: vec![],
    }
}

/// Where nodes in this process keep what they store: beside the peers, so on the same disk.
fn own_folder(prefix: &str) -> Result<tempfile::TempDir> {
    let run = fermata_peers::home().join("run");
    std::fs::create_dir_all(&run)?;
    Ok(tempfile::Builder::new().prefix(prefix).tempdir_in(run)?)
}

fn cassandra(contact: String, at: usize, keyspace: &str) -> CassandraSettings {
    let replication = (1..=SITES).map(|i| (format!("dc{i}"), 1));
    let centre = format!("dc{}", at + 1);
    let mut settings = CassandraSettings::new([contact], centre, keyspace, replication);
    // More than the servers' own, and cold servers on a busy machine are slow.
    settings.timeouts.request = Duration::from_secs(8);
    settings.timeouts.connect = Duration::from_secs(20);
    settings.timeouts.start = Duration::from_secs(180);
    settings
}

/// An engine on these stores.
async fn engine(
    at: usize,
    settings: CassandraSettings,
    zookeeper: Option<String>,
) -> Result<Arc<dyn Service>> {
    let number = u16::try_from(at)?;
    // A node's session must be its own: the process, the moment and the node make it so.
    let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let seed = (moment.as_nanos() << 24) ^ (u128::from(std::process::id()) << 4) ^ at as u128;
    let name = NodeName(u32::from(number) + 1);
    let mut told = fermata_engine::Settings::new(name, label(at), SiteId(number), seed);
    told.unverified.insert(UNVERIFIED.to_owned());
    let data = Arc::new(
        CassandraStore::connect(settings)
            .await
            .map_err(|why| anyhow!(why))?,
    );
    Ok(match zookeeper {
        None => Engine::new(told, data.clone(), data),
        Some(server) => {
            let settings = fermata_zookeeper::Settings {
                servers: vec![server],
                root: "/fermata".to_owned(),
                timeout: Duration::from_secs(20),
                tls: None,
            };
            let locks = fermata_zookeeper::ZookeeperStore::connect(settings).await;
            let locks = Arc::new(locks.map_err(|why| anyhow!(why))?);
            Engine::new(told, locks, data)
        }
    })
}

/// Creates the keyspace that is not verified.
async fn unverified(address: &str) -> Result<()> {
    let client = Client::connect(Options::new([format!("http://{address}")])).await?;
    let [template, _] = Keyspace::built_in();
    let keyspace = Keyspace {
        name: UNVERIFIED.to_owned(),
        purpose: Purpose::Sections,
        ..template
    };
    client.create_keyspace(keyspace).await?;
    Ok(())
}

/// Waits until a section can be had at a site.
async fn ready(address: &str, at: usize) -> Result<()> {
    let begun = std::time::Instant::now();
    loop {
        let tried = async {
            let system = Fermata::connect(address, &site_name(at), VERIFIED).await?;
            let key = format!("ready-{at}");
            let section = system.enter(&key).await?;
            section
                .put_and_leave(bytes::Bytes::from_static(b"yes"))
                .await
        };
        match tried.await {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => {
                bail!("the server at {address} does not serve: {error:#}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}
