//! What an operator tells one node: a TOML file, and the same as plain structs for the command
//! line, which adds flags and environment variables.
//!
//! ```toml
//! node = "ohio-1"                      # which node of the cluster this process is
//! data_dir = "/var/lib/fermata"
//! rtt = "none"                         # none, l1, lUs, lUsEu, or a profile file (see wan.rs)
//! insecure = false                     # listen beyond loopback in clear
//!
//! [cluster]                            # or: cluster_file = "cluster.toml"
//! id = "00000000000000000000000000000001"
//! segment_bits = 6
//! sites = ["ohio", "california", "oregon"]
//!
//! [[cluster.nodes]]
//! name = 1
//! label = "ohio-1"
//! site = "ohio"
//! peer = "127.0.0.1:7101"
//! grpc = "127.0.0.1:7201"
//! rest = "127.0.0.1:7301"              # the same address as `grpc` serves both on one port
//! ```
//!
//! A table `[tls]` names its certificates ([`TlsConfig`]).
//!
//! A node on another engine has a table `[engine]` besides ([`EngineConfig`]); it needs neither
//! `data_dir` nor `peer`, and without a cluster it is one of its own.
//!
//! [`ServerConfig::resolve`] checks all of it once; behind it nothing is checked again.

mod access;
mod clients;
mod engine;
mod limits;
mod tls;

use crate::wan::Profile;
use crate::{LogLevel, identity, join};
pub use access::{AuditConfig, JwtConfig};
pub use clients::{Clients, ClientsConfig};
pub use engine::{EngineConfig, EngineKind, Secret};
use fermata_protocol::base::{
    Addresses, Cluster, ClusterId, Config, Epoch, Group, GroupId, LockRef, Member, NodeInfo,
    NodeName, PROMISE_MAX, Planted, SegmentId, SiteId, Timing, View,
};
pub use limits::LimitsConfig;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
pub use tls::{ClientCertificates, Tls, TlsConfig};

/// Everything one node is told. On the native engine every field but `node`, `data_dir` and the
/// cluster has a default; on another one `engine` is enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Which node of the cluster this is: its label, or its number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Where it keeps its data; created if absent. Refused on another engine.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub data_dir: PathBuf,
    /// Where to listen for peers, `host:port`; none: the node's address in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_peer: Option<String>,
    /// Where to listen for gRPC; none: the node's address in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_grpc: Option<String>,
    /// Where to listen for REST; none: the node's address in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_rest: Option<String>,
    /// The host at which others reach this node, if not at the addresses where it listens. Of use
    /// to a node that has joined; one of the cluster file has its addresses there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Allow to listen beyond loopback in clear, where whoever reaches the node may do anything.
    #[serde(default)]
    pub insecure: bool,
    /// Emulated delays between sites: a name or a file, see [`Profile::named`].
    #[serde(default = "no_delay")]
    pub rtt: String,
    /// How logs are written.
    #[serde(default)]
    pub log_format: LogFormat,
    /// What they show.
    #[serde(default)]
    pub log_level: LogLevel,
    /// A file with the cluster, relative to the working directory; or `cluster` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_file: Option<PathBuf>,
    /// Durations.
    #[serde(default)]
    pub timing: TimingConfig,
    /// Bounds.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Connections of clients.
    #[serde(default)]
    pub clients: ClientsConfig,
    /// The interval clock.
    #[serde(default)]
    pub clock: ClockConfig,
    /// Certificates; without, everything is said in clear.
    #[serde(default, skip_serializing_if = "TlsConfig::is_default")]
    pub tls: TlsConfig,
    /// Whose word says who asks, beside the cluster's own tokens and certificates.
    #[serde(default, skip_serializing_if = "JwtConfig::is_default")]
    pub jwt: JwtConfig,
    /// Where it is written who did what.
    #[serde(default, skip_serializing_if = "AuditConfig::is_default")]
    pub audit: AuditConfig,
    /// The engine, if not the native one.
    #[serde(default, skip_serializing_if = "EngineConfig::is_default")]
    pub engine: EngineConfig,
    /// Where this node reaches peers, by their labels, if not where others do: `host:port`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reach: BTreeMap<String, String>,
    /// How it comes to a cluster that exists.
    #[serde(default, skip_serializing_if = "JoinConfig::is_default")]
    pub join: JoinConfig,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterConfig>,
}

/// How a node comes to a cluster that exists. Looked at until its data directory has a name there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinConfig {
    /// gRPC addresses of some of the cluster's nodes, `host:port`; empty: it does not join.
    pub seeds: Vec<String>,
    /// What people call the node: no other node there has the same.
    pub label: String,
    /// Its site, which may be a new one.
    pub site: String,
}

impl JoinConfig {
    fn is_default(&self) -> bool {
        *self == JoinConfig::default()
    }
}

impl ServerConfig {
    /// A node of this cluster with its data in `data_dir`, and with the default for all else.
    pub fn new(node: impl Into<String>, data_dir: PathBuf, cluster: ClusterConfig) -> ServerConfig {
        ServerConfig {
            node: node.into(),
            cluster: Some(cluster),
            ..ServerConfig::joining(JoinConfig::default(), data_dir)
        }
    }

    /// A node that joins a cluster, with its data in `data_dir`, and with the default for all else.
    pub fn joining(join: JoinConfig, data_dir: PathBuf) -> ServerConfig {
        ServerConfig {
            node: String::new(),
            data_dir,
            listen_peer: None,
            listen_grpc: None,
            listen_rest: None,
            insecure: false,
            rtt: no_delay(),
            log_format: LogFormat::default(),
            log_level: LogLevel::default(),
            cluster_file: None,
            timing: TimingConfig::default(),
            limits: LimitsConfig::default(),
            clients: ClientsConfig::default(),
            clock: ClockConfig::default(),
            tls: TlsConfig::default(),
            jwt: JwtConfig::default(),
            audit: AuditConfig::default(),
            engine: EngineConfig::default(),
            address: None,
            reach: BTreeMap::new(),
            join,
            cluster: None,
        }
    }
}

fn no_delay() -> String {
    "none".into()
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// How logs are written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One readable line per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// The cluster file: what a cluster's first nodes begin with, the same for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// 32 hexadecimal digits, drawn at random when the file is made.
    pub id: String,
    /// The ring has 2^bits segments: 0 to 16.
    #[serde(default = "default_bits")]
    pub segment_bits: u8,
    /// No ref that the cluster gives is below, so that what another cluster's refs have fenced goes
    /// on: 1 to 2^47, on Cassandra to 2^42. It is looked at when a segment, or a key on Cassandra,
    /// is used for the first time.
    #[serde(default = "default_ref", skip_serializing_if = "is_default_ref")]
    pub lowest_ref: u64,
    /// Site names, in the order of the delay profile.
    pub sites: Vec<String>,
    /// The nodes.
    pub nodes: Vec<NodeConfig>,
    /// The location table. Empty: one group of all nodes owns the whole ring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupConfig>,
}

fn default_bits() -> u8 {
    6
}

fn default_ref() -> u64 {
    1
}

fn is_default_ref(lowest_ref: &u64) -> bool {
    *lowest_ref == default_ref()
}

/// One node of the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its number, unique.
    pub name: u32,
    /// What people call it, unique.
    pub label: String,
    /// Its site.
    pub site: String,
    /// Where peers reach it, `host:port`. Not of use on another engine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
    /// Where clients reach its gRPC.
    pub grpc: String,
    /// Where clients reach its REST.
    pub rest: String,
}

impl NodeConfig {
    /// Where it is reached.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            peer: self.peer.clone(),
            grpc: self.grpc.clone(),
            rest: self.rest.clone(),
        }
    }
}

/// One group of the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// 32 hexadecimal digits, unique.
    pub id: String,
    /// First segment of its arc.
    pub from: u32,
    /// Last segment, included.
    pub to: u32,
    /// Numbers of its members, 1 to 13.
    pub members: Vec<u32>,
}

/// [`Timing`], each field in milliseconds; absent fields take the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimingConfig {
    /// See [`Timing::beat`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beat_ms: Option<u64>,
    /// See [`Timing::lease`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// See [`Timing::election`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub election_ms: Option<u64>,
    /// See [`Timing::stagger`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stagger_ms: Option<u64>,
    /// See [`Timing::retry`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
    /// See [`Timing::request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_ms: Option<u64>,
    /// See [`Timing::upkeep`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upkeep_ms: Option<u64>,
    /// See [`Timing::usage`]; may be 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_ms: Option<u64>,
}

/// How far the machine's wall clock may be from true time, and who says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockConfig {
    /// The operator's promise that the wall clock is never further off than this, microseconds, at
    /// most 990,000. Where it is broken, acknowledged writes of coded keyspaces may be outranked
    /// until another node notices. 0: no interval clock. Absent: what the kernel says, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_us: Option<u64>,
    /// For tests alone: added to the wall clock, microseconds, to make a clock that is wrong.
    #[serde(skip_serializing_if = "is_zero")]
    pub test_offset_us: i64,
}

fn is_zero(offset: &i64) -> bool {
    *offset == 0
}

/// Everything checked: what the node is made of.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What the protocol is told.
    pub config: Config,
    /// This node, and where it is reached.
    pub own: NodeConfig,
    /// What the cluster began with.
    pub file: ClusterConfig,
    /// The nodes of the file that this node was given, or of what it began with.
    pub nodes: Vec<NodeConfig>,
    /// Where it reaches peers, by label, if not where others do.
    pub reach: BTreeMap<String, String>,
    /// This node's site.
    pub site: SiteId,
    /// Emulated delays.
    pub profile: Profile,
    /// The engine, checked; none: the native one.
    pub engine: Option<EngineConfig>,
    /// Where to listen for peers; none on another engine.
    pub listen_peer: Option<SocketAddr>,
    /// Where to listen for gRPC.
    pub listen_grpc: SocketAddr,
    /// Where to listen for REST.
    pub listen_rest: SocketAddr,
    /// Where the data lies; empty on another engine.
    pub data_dir: PathBuf,
    /// What connections of clients are granted.
    pub clients: Clients,
    /// The interval clock.
    pub clock: ClockConfig,
    /// Where its certificates are, and who is let in; none: it speaks in clear.
    pub tls: Option<Tls>,
    /// Whose word says who asks; none: nobody's.
    pub jwt: Option<JwtConfig>,
    /// Where it is written who did what.
    pub audit: AuditConfig,
}

impl Resolved {
    /// Whether it listens beyond loopback in clear.
    pub(crate) fn is_exposed(&self) -> bool {
        let faces = [self.listen_grpc, self.listen_rest];
        let mut all = faces.into_iter().chain(self.listen_peer);
        self.tls.is_none() && all.any(|address| !address.ip().is_loopback())
    }
}

impl ServerConfig {
    /// Reads a TOML file. A relative `cluster_file`, `data_dir`, or file of `[engine]`, `[tls]`,
    /// `[jwt]` or `[audit]` is taken relative to it.
    ///
    /// # Errors
    /// One sentence that names the file, line and field.
    pub fn load(path: &Path) -> Result<ServerConfig, String> {
        let mut config: ServerConfig = parse(path)?;
        let data = Some(&mut config.data_dir).filter(|data| !is_empty(data));
        for file in [config.cluster_file.as_mut(), data]
            .into_iter()
            .flatten()
            .chain(config.engine.files())
            .chain(config.tls.files())
            .chain(config.jwt.ca.as_mut())
            .chain(config.audit.file.as_mut())
        {
            *file = path.with_file_name(&*file);
        }
        if !config.jwt.keys.is_empty() && !config.jwt.is_fetched() {
            let keys = path.with_file_name(&config.jwt.keys);
            config.jwt.keys = keys.display().to_string();
        }
        Ok(config)
    }

    /// Checks everything.
    ///
    /// # Errors
    /// One sentence: what is wrong and what to do.
    pub fn resolve(&self) -> Result<Resolved, String> {
        let engine = self.engine.resolve()?;
        let native = engine.is_none();
        self.check_native(native)?;
        self.audit.check()?;
        let given = match (&self.cluster, &self.cluster_file) {
            (Some(cluster), None) => Some(cluster.clone()),
            (None, Some(path)) => Some(parse(path)?),
            (None, None) if !native => Some(self.alone()?),
            (None, None) => None,
            (Some(_), Some(_)) => return Err(ONE_CLUSTER.into()),
        };
        let kept = match native {
            true => identity::read_file(&self.data_dir, join::CLUSTER)?,
            false => None,
        };
        // What a cluster began with is read once; another cluster's file is refused with the
        // directory.
        let same = |kept: &ClusterConfig| given.as_ref().is_none_or(|given| given.id == kept.id);
        let kept: Option<ClusterConfig> = kept.filter(same);
        let file = kept.or_else(|| given.clone()).ok_or(ONE_CLUSTER)?;
        let nodes = given.map_or_else(|| file.nodes.clone(), |given| given.nodes);
        let cluster = file.resolve()?;
        file.check_lowest_ref(native)?;
        let own = self.own(&nodes)?;
        let site = cluster.sites.iter().position(|site| *site == own.site);
        let site = SiteId(site.ok_or_else(|| format!("there is no site {:?}", own.site))? as u16);
        let profile = self.profile(cluster.sites.len())?;
        let tls = self.tls.resolve(cluster.id.0, &own.label)?;
        let listen = |own: &Option<String>, given: &String| {
            self.listen_address(own.as_ref().unwrap_or(given))
        };
        let peer = native.then(|| listen(&self.listen_peer, &own.peer));
        Ok(Resolved {
            engine,
            listen_peer: peer.transpose()?,
            listen_grpc: listen(&self.listen_grpc, &own.grpc)?,
            listen_rest: listen(&self.listen_rest, &own.rest)?,
            config: Config {
                name: NodeName(own.name),
                timing: self.timing.resolve()?,
                limits: self.limits.resolve()?,
                formats: fermata_protocol::wire::FORMATS,
                planted: Planted::NONE,
                cluster,
            },
            own,
            file,
            nodes,
            reach: self.reach.clone(),
            site,
            profile,
            data_dir: self.data_dir.clone(),
            clients: self.clients.resolve()?,
            clock: self.clock.resolve()?,
            tls,
            jwt: self.jwt.resolve()?,
            audit: self.audit.clone(),
        })
    }

    /// What the native engine needs, and what only it can do.
    fn check_native(&self, native: bool) -> Result<(), String> {
        let missing = |field| format!("{field} is missing: see `fermata server --help`");
        match native {
            // A data directory may know whose it is.
            true if is_empty(&self.data_dir) && self.node.is_empty() => Err(missing("node")),
            true if is_empty(&self.data_dir) => Err(missing("data_dir")),
            false if self.rtt != no_delay() => Err(format!(
                "rtt {:?} delays messages between nodes, and those of engine {} send none to each \
                 other: leave it out",
                self.rtt,
                self.engine.kind.name()
            )),
            false if !is_empty(&self.data_dir) => Err(format!(
                "data_dir is given, and a node on engine {} keeps nothing on its own disk: leave \
                 it out",
                self.engine.kind.name()
            )),
            _ => Ok(()),
        }
    }

    /// This node in the cluster; where it was not said, the only one.
    fn own(&self, nodes: &[NodeConfig]) -> Result<NodeConfig, String> {
        let native = self.engine.kind == EngineKind::Native;
        if native
            && let Some(joined) = identity::read_file::<NodeConfig>(&self.data_dir, join::NODE)?
        {
            return self.own_joined(joined);
        }
        let known = match native && self.node.is_empty() {
            true => identity::read(&self.data_dir)?.map(|known| known.node().0.to_string()),
            false => None,
        };
        let own = match (self.node.as_str(), known) {
            ("", Some(known)) => known,
            ("", None) => match nodes {
                [only] if !native => return Ok(only.clone()),
                _ => return Err("node is missing: see `fermata server --help`".into()),
            },
            (given, _) => given.to_owned(),
        };
        let is_own = |n: &&NodeConfig| n.label == own || n.name.to_string() == own;
        nodes.iter().find(is_own).cloned().ok_or_else(|| {
            let labels: Vec<&str> = nodes.iter().map(|n| n.label.as_str()).collect();
            format!(
                "node {own:?} is not in the cluster: its nodes are {}",
                labels.join(", ")
            )
        })
    }

    /// The node that has joined with this data directory, which may be reached elsewhere by now.
    fn own_joined(&self, joined: NodeConfig) -> Result<NodeConfig, String> {
        let named = [joined.label.as_str(), &joined.name.to_string()].contains(&self.node.as_str());
        if !self.node.is_empty() && !named {
            return Err(format!(
                "{} is the data directory of node {}, not of {}: give the node its own",
                self.data_dir.display(),
                joined.label,
                self.node
            ));
        }
        let or = |given: &Option<String>, before| match given {
            Some(given) => self.reached_at(given),
            None => Ok(before),
        };
        Ok(NodeConfig {
            peer: or(&self.listen_peer, joined.peer)?,
            grpc: or(&self.listen_grpc, joined.grpc)?,
            rest: or(&self.listen_rest, joined.rest)?,
            ..joined
        })
    }

    /// The node as it asks to be admitted; it has no name yet.
    ///
    /// # Errors
    /// One sentence: what is missing.
    pub fn newcomer(&self) -> Result<NodeConfig, String> {
        let missing = |field: &str| format!("{field} is missing: a node that joins has it");
        let text = |text: &str, field| match text.is_empty() {
            true => Err(missing(field)),
            false => Ok(text.to_owned()),
        };
        if is_empty(&self.data_dir) {
            return Err(missing("data_dir"));
        }
        let reached = |listen: &Option<String>, field| match listen {
            Some(listen) => self.reached_at(listen),
            None => Err(missing(field)),
        };
        let grpc = reached(&self.listen_grpc, "listen_grpc")?;
        Ok(NodeConfig {
            name: 0,
            label: text(&self.join.label, "label")?,
            site: text(&self.join.site, "site")?,
            peer: reached(&self.listen_peer, "listen_peer")?,
            rest: match &self.listen_rest {
                Some(listen) => self.reached_at(listen)?,
                None => grpc.clone(),
            },
            grpc,
        })
    }

    /// Where others reach what listens there.
    fn reached_at(&self, listen: &str) -> Result<String, String> {
        let address = self.listen_address(listen)?;
        match &self.address {
            Some(host) => Ok(format!("{host}:{}", address.port())),
            None if address.ip().is_unspecified() => Err(format!(
                "others do not reach {listen}: say by --address at which host they do"
            )),
            None => Ok(listen.to_owned()),
        }
    }

    /// The delays between so many sites.
    fn profile(&self, sites: usize) -> Result<Profile, String> {
        let profile = Profile::named(&self.rtt)?;
        if profile.sites().is_some_and(|described| described < sites) {
            return Err(format!(
                "rtt profile {:?} describes fewer sites than the cluster's {sites}: use a file \
                 that describes them all",
                self.rtt,
            ));
        }
        Ok(profile)
    }

    /// An address to listen on: loopback, unless over TLS or `insecure`.
    fn listen_address(&self, given: &str) -> Result<SocketAddr, String> {
        let address = given.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| format!("{given:?} is not an address host:port"))?;
        if self.insecure && !self.tls.is_default() {
            return Err(
                "insecure is for a node without certificates, and tls names some: leave \
                        one of both out"
                    .into(),
            );
        }
        if address.ip().is_loopback() || self.insecure || !self.tls.is_default() {
            return Ok(address);
        }
        Err(format!(
            "refusing to listen on {address}, beyond loopback, in clear: give the node \
             certificates (--tls-ca, --tls-certificate, --tls-key; `fermata cert` makes them), \
             listen on 127.0.0.1, or say --insecure if the network is trusted"
        ))
    }
}

const ONE_CLUSTER: &str = "give the cluster as [cluster] or as cluster_file, one of them; a node \
                           that joins one needs neither, but --join";

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn id_of(hex: &str, what: &str) -> Result<u128, String> {
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let id = digits.then(|| u128::from_str_radix(hex, 16).ok()).flatten();
    id.filter(|id| *id != 0)
        .ok_or_else(|| format!("{what} {hex:?} is not 32 hexadecimal digits, not all 0"))
}

impl ClusterConfig {
    /// What a cluster began with, as its file says it; with all sites that it has had since.
    pub(crate) fn of(cluster: &Cluster, sites: &[String]) -> ClusterConfig {
        let site = |site: SiteId| sites.get(usize::from(site.0)).cloned().unwrap_or_default();
        let node = |node: &NodeInfo| NodeConfig {
            name: node.name.0,
            label: node.label.clone(),
            site: site(node.site),
            peer: node.addresses.peer.clone(),
            grpc: node.addresses.grpc.clone(),
            rest: node.addresses.rest.clone(),
        };
        let group = |group: &Group| GroupConfig {
            id: format!("{:032x}", group.id.0),
            from: group.from.0,
            to: group.to.0,
            members: group.view.nodes().map(|name| name.0).collect(),
        };
        ClusterConfig {
            id: format!("{:032x}", cluster.id.0),
            segment_bits: cluster.segment_bits,
            lowest_ref: cluster.lowest_ref.0,
            sites: sites.to_vec(),
            nodes: cluster.nodes.iter().map(node).collect(),
            groups: cluster.groups.iter().map(group).collect(),
        }
    }

    fn resolve(&self) -> Result<Cluster, String> {
        self.check_names()?;
        let site_of = |node: &NodeConfig| {
            let at = self.sites.iter().position(|s| *s == node.site);
            at.map(|at| SiteId(at as u16)).ok_or_else(|| {
                format!(
                    "node {} is at {:?}, which is not in sites",
                    node.label, node.site
                )
            })
        };
        let mut nodes = Vec::new();
        for node in &self.nodes {
            nodes.push(NodeInfo {
                name: NodeName(node.name),
                label: node.label.clone(),
                site: site_of(node)?,
                addresses: node.addresses(),
            });
        }
        let all = GroupConfig {
            id: format!("{:032x}", 1),
            from: 0,
            to: ((1u64 << self.segment_bits) - 1) as u32,
            members: self.nodes.iter().map(|n| n.name).collect(),
        };
        let given = if self.groups.is_empty() {
            std::slice::from_ref(&all)
        } else {
            &self.groups
        };
        let groups: Vec<Group> = given
            .iter()
            .map(|g| self.group(g, &nodes))
            .collect::<Result<_, _>>()?;
        self.check_groups(&groups)?;
        Ok(Cluster {
            id: ClusterId(id_of(&self.id, "cluster id")?),
            segment_bits: self.segment_bits,
            lowest_ref: LockRef(self.lowest_ref),
            sites: self.sites.clone(),
            nodes,
            groups,
        })
    }

    /// A ref is lower than 2^48, or 2^43 on Cassandra, and most of them are for this cluster.
    fn check_lowest_ref(&self, native: bool) -> Result<(), String> {
        let bits = if native { 47 } else { 42 };
        if (1..=1 << bits).contains(&self.lowest_ref) {
            return Ok(());
        }
        Err(format!(
            "lowest_ref is {}, not 1 to 2^{bits}",
            self.lowest_ref
        ))
    }

    fn check_names(&self) -> Result<(), String> {
        if self.segment_bits > 16 {
            return Err(format!("segment_bits {} is above 16", self.segment_bits));
        }
        if self.nodes.is_empty() || self.nodes.len() > 1_000 || self.sites.len() > 1_000 {
            return Err("a cluster has 1 to 1,000 nodes and at most 1,000 sites".into());
        }
        let sites: BTreeSet<&str> = self.sites.iter().map(String::as_str).collect();
        let names: BTreeSet<u32> = self.nodes.iter().map(|n| n.name).collect();
        let labels: BTreeSet<&str> = self.nodes.iter().map(|n| n.label.as_str()).collect();
        if sites.len() < self.sites.len() || sites.contains("") {
            return Err("every site has a name of its own".into());
        }
        if names.len() < self.nodes.len() || labels.len() < self.nodes.len() {
            return Err("every node has a name (number) and a label of its own".into());
        }
        Ok(())
    }

    fn group(&self, group: &GroupConfig, nodes: &[NodeInfo]) -> Result<Group, String> {
        let id = GroupId(id_of(&group.id, "group id")?);
        if group.members.is_empty() || group.members.len() > 13 {
            return Err(format!(
                "group {} has {} members, not 1 to 13",
                group.id,
                group.members.len()
            ));
        }
        let mut seats = Vec::new();
        for member in &group.members {
            let node = nodes.iter().find(|n| n.name.0 == *member);
            let node = node.ok_or_else(|| format!("group {}: no node {member}", group.id))?;
            if seats.iter().any(|m: &Member| m.name == node.name) {
                return Err(format!("group {} names node {member} twice", group.id));
            }
            seats.push(Member {
                name: node.name,
                site: node.site,
                public_key: None,
            });
        }
        let view = View {
            group: id,
            epoch: Epoch::FIRST,
            seats,
        };
        Ok(Group {
            id,
            from: SegmentId(group.from),
            to: SegmentId(group.to),
            view,
        })
    }

    /// The arcs cover the ring, each segment once.
    fn check_groups(&self, groups: &[Group]) -> Result<(), String> {
        let mut arcs: Vec<(u64, u64)> = groups
            .iter()
            .map(|g| (g.from.0.into(), g.to.0.into()))
            .collect();
        arcs.sort_unstable();
        let mut next = 0;
        for (from, to) in arcs {
            if from != next || to < from {
                return Err(format!(
                    "the groups' arcs leave a gap or overlap at segment {next}"
                ));
            }
            next = to + 1;
        }
        if next != 1 << self.segment_bits {
            return Err(format!(
                "the groups' arcs end at segment {next}, the ring has {}",
                1u64 << self.segment_bits
            ));
        }
        let ids: BTreeSet<GroupId> = groups.iter().map(|g| g.id).collect();
        if ids.len() < groups.len() {
            return Err("every group has an id of its own".into());
        }
        Ok(())
    }
}

impl TimingConfig {
    fn resolve(&self) -> Result<Timing, String> {
        let default = Timing::default();
        let micros = |ms: Option<u64>, default: u64, name: &str| match ms {
            None => Ok(default),
            Some(ms) if (1..=600_000).contains(&ms) => Ok(ms * 1_000),
            Some(ms) => Err(format!("timing.{name}_ms is {ms}, not 1 to 600,000")),
        };
        let timing = Timing {
            beat: micros(self.beat_ms, default.beat, "beat")?,
            lease: micros(self.lease_ms, default.lease, "lease")?,
            election: micros(self.election_ms, default.election, "election")?,
            stagger: micros(self.stagger_ms, default.stagger, "stagger")?,
            retry: micros(self.retry_ms, default.retry, "retry")?,
            request: micros(self.request_ms, default.request, "request")?,
            upkeep: micros(self.upkeep_ms, default.upkeep, "upkeep")?,
            usage: match self.usage_ms {
                Some(0) => 0,
                some => micros(some, default.usage, "usage")?,
            },
            ..default
        };
        if timing.lease < 2 * timing.beat {
            return Err("timing.lease_ms is below twice beat_ms: no lease could be kept".into());
        }
        Ok(timing)
    }
}

impl ClockConfig {
    fn resolve(&self) -> Result<ClockConfig, String> {
        match self.bound_us {
            Some(bound) if bound > PROMISE_MAX => Err(format!(
                "clock.bound_us is {bound}, not 0 to {PROMISE_MAX}: a clock that may be further \
                 off is of no use, leave it out"
            )),
            _ => Ok(self.clone()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config() -> ServerConfig {
        let node = |name: u32, site: &str| NodeConfig {
            name,
            label: format!("{site}-{name}"),
            site: site.into(),
            peer: "127.0.0.1:7101".into(),
            grpc: "127.0.0.1:7201".into(),
            rest: "127.0.0.1:7301".into(),
        };
        let cluster = ClusterConfig {
            id: format!("{:032x}", 7),
            segment_bits: 4,
            lowest_ref: 1,
            sites: vec!["ohio".into(), "oregon".into()],
            nodes: vec![node(1, "ohio"), node(2, "oregon")],
            groups: vec![],
        };
        ServerConfig::new("1", "data".into(), cluster)
    }

    #[test]
    fn a_file_says_what_the_struct_says() {
        let text = toml::to_string(&config()).unwrap();
        assert_eq!(toml::from_str::<ServerConfig>(&text).unwrap(), config());
        let resolved = config().resolve().unwrap();
        assert_eq!(resolved.config.cluster.groups.len(), 1);
        assert_eq!(resolved.config.cluster.groups[0].to, SegmentId(15));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        type Spoil = fn(&mut ServerConfig);
        fn cluster(c: &mut ServerConfig) -> &mut ClusterConfig {
            c.cluster.as_mut().unwrap()
        }
        fn group(from: u32, to: u32, members: &[u32]) -> GroupConfig {
            GroupConfig {
                id: format!("{:032x}", from + 1),
                from,
                to,
                members: members.to_vec(),
            }
        }
        let spoils: [(&str, Spoil); 17] = [
            ("bound_us", |c| c.clock.bound_us = Some(PROMISE_MAX + 1)),
            ("not in the cluster", |c| c.node = "nobody".into()),
            ("--insecure", |c| c.listen_grpc = Some("0.0.0.0:1".into())),
            ("host:port", |c| c.listen_peer = Some("here".into())),
            ("one of them", |c| c.cluster = None),
            ("32 hexadecimal", |c| cluster(c).id = "7".into()),
            ("lowest_ref is 0", |c| cluster(c).lowest_ref = 0),
            ("not 1 to 2^47", |c| cluster(c).lowest_ref = (1 << 47) + 1),
            ("above 16", |c| cluster(c).segment_bits = 17),
            ("not in sites", |c| {
                cluster(c).nodes[0].site = "atlantis".into()
            }),
            ("of its own", |c| cluster(c).nodes[1].name = 1),
            ("gap", |c| cluster(c).groups = vec![group(1, 15, &[1])]),
            ("end at segment", |c| {
                cluster(c).groups = vec![group(0, 14, &[1])]
            }),
            ("no node 9", |c| {
                cluster(c).groups = vec![group(0, 15, &[9])]
            }),
            ("clients.idle_ms", |c| c.clients.idle_ms = Some(0)),
            ("value_bytes", |c| c.limits.value_bytes = Some(1 << 40)),
            ("beat_ms", |c| c.timing.beat_ms = Some(1_000)),
        ];
        for (word, spoil) in spoils {
            let mut config = config();
            spoil(&mut config);
            let error = config.resolve().unwrap_err();
            assert!(
                error.contains(word) && !error.contains('\n'),
                "{word}: {error}"
            );
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = format!("tls = true\n{}", toml::to_string(&config()).unwrap());
        assert!(toml::from_str::<ServerConfig>(&text).is_err());
    }
}
