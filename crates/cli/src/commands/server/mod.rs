//! `fermata server`: one node. Every field of the configuration file is a flag and an environment
//! variable, too; a flag wins over the environment, and that over the file.

mod init;
mod join;

use std::future::Future;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fermata_server::config::{ClientCertificates, EngineKind};
use fermata_server::{EngineConfig, Logs, ServerConfig, StartError};
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind};

use crate::exit::{Exit, Failure};
use crate::signals::{Stop, caught};

/// See `fermata server --help`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    action: Option<ServerAction>,
    /// The node's TOML file.
    #[arg(long, env = "FERMATA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which node of the cluster this is: its label, or its number.
    #[arg(long, env = "FERMATA_NODE")]
    node: Option<String>,
    /// Where it keeps its data.
    #[arg(long, env = "FERMATA_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The cluster's TOML file.
    #[arg(long, env = "FERMATA_CLUSTER_FILE", value_name = "FILE")]
    cluster_file: Option<PathBuf>,
    /// Where to listen for peers, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_PEER", value_name = "HOST:PORT")]
    listen_peer: Option<String>,
    /// Where to listen for gRPC, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_GRPC", value_name = "HOST:PORT")]
    listen_grpc: Option<String>,
    /// Where to listen for REST, if not where the cluster says.
    #[arg(long, env = "FERMATA_LISTEN_REST", value_name = "HOST:PORT")]
    listen_rest: Option<String>,
    /// Where this node reaches peers, if not where others do: by their labels.
    #[arg(
        long,
        env = "FERMATA_REACH",
        value_name = "LABEL=HOST:PORT,...",
        value_delimiter = ','
    )]
    reach: Option<Vec<String>>,
    /// Listen beyond loopback in clear, where whoever reaches the node may do anything.
    #[arg(long, env = "FERMATA_INSECURE", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_name = "BOOL")]
    insecure: Option<bool>,
    /// Delay messages between sites: none, l1, lUs, lUsEu, or a file.
    #[arg(long, env = "FERMATA_RTT", value_name = "PROFILE")]
    rtt: Option<String>,
    /// How logs are written: text or json.
    #[arg(long, env = "FERMATA_LOG_FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// What they show: error, warn, info, debug, trace, or besides levels of single targets, as
    /// info,fermata_server=debug. With --config, SIGHUP reads it from the file again.
    #[arg(long, env = "FERMATA_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
    #[command(flatten)]
    join: JoinArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    clients: ClientArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// Stop when standard input closes: for a parent that must leave no node behind.
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// What to do instead.
#[derive(Clone, Debug, Subcommand)]
enum ServerAction {
    /// Write the files of a new cluster: its own, and one for each node.
    Init(init::InitArgs),
}

/// `[join]`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Joining a cluster that exists")]
struct JoinArgs {
    /// gRPC addresses of some of its nodes. Where the data directory is a node's already, it starts
    /// as that.
    #[arg(
        long,
        env = "FERMATA_JOIN",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    join: Option<Vec<String>>,
    /// What people call the node: no other node there has the same.
    #[arg(long, env = "FERMATA_LABEL", value_name = "LABEL")]
    label: Option<String>,
    /// Its site, which may be a new one.
    #[arg(long, env = "FERMATA_SITE", value_name = "NAME")]
    site: Option<String>,
    /// The host at which others reach it, if not at the addresses where it listens.
    #[arg(long, env = "FERMATA_ADDRESS", value_name = "HOST")]
    address: Option<String>,
}

/// `[engine]`. The password is no flag, since everybody on a machine sees those.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Engine, if not the native one (password: --engine-password-file or \
                         FERMATA_ENGINE_PASSWORD)"
)]
pub(crate) struct EngineArgs {
    /// Which engine: native, cassandra, or zookeeper+cassandra.
    #[arg(long, env = "FERMATA_ENGINE", value_parser = EngineKind::NAMES, value_name = "ENGINE",
          hide_possible_values = true)]
    pub(crate) engine: Option<String>,
    /// Some nodes of Cassandra.
    #[arg(
        long,
        env = "FERMATA_CONTACT_POINTS",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    contact_points: Option<Vec<String>>,
    /// Cassandra's data center nearest to this node.
    #[arg(long, env = "FERMATA_DATA_CENTER", value_name = "NAME")]
    data_center: Option<String>,
    /// Cassandra's keyspace for all that Fermata keeps there [default: fermata].
    #[arg(long, env = "FERMATA_ENGINE_KEYSPACE", value_name = "NAME")]
    pub(crate) engine_keyspace: Option<String>,
    /// Copies in each data center, for the keyspace where it is created.
    #[arg(
        long,
        env = "FERMATA_REPLICATION",
        value_name = "CENTER=N,...",
        value_delimiter = ','
    )]
    replication: Option<Vec<String>>,
    /// Some servers of `ZooKeeper`.
    #[arg(
        long,
        env = "FERMATA_ZOOKEEPER",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    zookeeper: Option<Vec<String>>,
    /// Acknowledge critical puts without another look at the lock: a put of a holder that was
    /// taken for dead may then be acknowledged and lost.
    #[arg(long, env = "FERMATA_NO_VERIFY", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_name = "BOOL")]
    no_verify: Option<bool>,
    /// The same, for these keyspaces of Fermata alone.
    #[arg(
        long,
        env = "FERMATA_UNVERIFIED",
        value_name = "KEYSPACE,...",
        value_delimiter = ','
    )]
    unverified: Option<Vec<String>>,
    /// Take a Cassandra that has Paxos v1, which is slower.
    #[arg(long, env = "FERMATA_ALLOW_PAXOS_V1", num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_name = "BOOL")]
    allow_paxos_v1: Option<bool>,
    /// Take fewer than three copies: no node of Cassandra may be down then.
    #[arg(long, env = "FERMATA_ALLOW_FEW_REPLICAS", num_args = 0..=1,
          default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    allow_few_replicas: Option<bool>,
    /// Who connects to Cassandra.
    #[arg(long, env = "FERMATA_ENGINE_USERNAME", value_name = "NAME")]
    engine_username: Option<String>,
    /// A file with the password.
    #[arg(long, env = "FERMATA_ENGINE_PASSWORD_FILE", value_name = "FILE")]
    engine_password_file: Option<PathBuf>,
    /// Certificates of the authorities by which the stores are judged: they are spoken to over TLS.
    #[arg(long, env = "FERMATA_ENGINE_TLS_CA", value_name = "FILE")]
    engine_tls_ca: Option<PathBuf>,
    /// The certificate that the stores are shown.
    #[arg(long, env = "FERMATA_ENGINE_TLS_CERTIFICATE", value_name = "FILE")]
    engine_tls_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, env = "FERMATA_ENGINE_TLS_KEY", value_name = "FILE")]
    engine_tls_key: Option<PathBuf>,
}

/// Where the password of an engine may be, besides files.
const PASSWORD_ENV: &str = "FERMATA_ENGINE_PASSWORD";

/// `[timing]`, in milliseconds.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Durations, in milliseconds")]
struct TimingArgs {
    /// Peers exchange a beat this often.
    #[arg(long, env = "FERMATA_BEAT_MS", value_name = "MS")]
    beat_ms: Option<u64>,
    /// How long a read lease binds.
    #[arg(long, env = "FERMATA_LEASE_MS", value_name = "MS")]
    lease_ms: Option<u64>,
    /// How long after the lease a silent primary is replaced.
    #[arg(long, env = "FERMATA_ELECTION_MS", value_name = "MS")]
    election_ms: Option<u64>,
    /// What each seat adds to that.
    #[arg(long, env = "FERMATA_STAGGER_MS", value_name = "MS")]
    stagger_ms: Option<u64>,
    /// When an unanswered call to a peer is repeated.
    #[arg(long, env = "FERMATA_RETRY_MS", value_name = "MS")]
    retry_ms: Option<u64>,
    /// When a request without a quorum is answered `unavailable`.
    #[arg(long, env = "FERMATA_REQUEST_MS", value_name = "MS")]
    request_ms: Option<u64>,
    /// How often, at most, a node walks over its keys to mend what members lack.
    #[arg(long, env = "FERMATA_UPKEEP_MS", value_name = "MS")]
    upkeep_ms: Option<u64>,
    /// In which time half of what a primary knows of the sites that use its segment is forgotten;
    /// it goes where the segment is used. 0: it stays at its seat.
    #[arg(long, env = "FERMATA_USAGE_MS", value_name = "MS")]
    usage_ms: Option<u64>,
}

/// `[limits]`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Bytes of a key.
    #[arg(long, env = "FERMATA_KEY_BYTES", value_name = "N")]
    key_bytes: Option<u64>,
    /// Bytes of a value.
    #[arg(long, env = "FERMATA_VALUE_BYTES", value_name = "N")]
    value_bytes: Option<u64>,
    /// Keys of one section.
    #[arg(long, env = "FERMATA_SECTION_KEYS", value_name = "N")]
    section_keys: Option<u64>,
    /// Bytes of the values that come with an entry.
    #[arg(long, env = "FERMATA_GRANT_BYTES", value_name = "N")]
    grant_bytes: Option<u64>,
    /// Bytes of one transaction of a ledger, and of what it reads.
    #[arg(long, env = "FERMATA_TRANSACTION_BYTES", value_name = "N")]
    transaction_bytes: Option<u64>,
    /// Keys and ranges that one transaction names.
    #[arg(long, env = "FERMATA_TRANSACTION_KEYS", value_name = "N")]
    transaction_keys: Option<u64>,
    /// Bytes of a value of a ledger.
    #[arg(long, env = "FERMATA_LEDGER_VALUE_BYTES", value_name = "N")]
    ledger_value_bytes: Option<u64>,
    /// Requests open at once.
    #[arg(long, env = "FERMATA_REQUESTS", value_name = "N")]
    requests: Option<u64>,
}

/// `[clients]`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connections of clients")]
struct ClientArgs {
    /// Connections of each face: of gRPC, and of REST.
    #[arg(long, env = "FERMATA_CONNECTIONS", value_name = "N")]
    connections: Option<u64>,
    /// Those from one address [default: no bound].
    #[arg(long, env = "FERMATA_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    connections_per_address: Option<u64>,
    /// Bytes of requests that arrive, and of values in those that are open.
    #[arg(long, env = "FERMATA_REQUEST_BYTES", value_name = "N")]
    request_bytes: Option<u64>,
    /// Sessions that the node keeps for clients which keep none themselves.
    #[arg(long, env = "FERMATA_SESSIONS", value_name = "N")]
    sessions: Option<u64>,
    /// Milliseconds until its first request has begun.
    #[arg(long, env = "FERMATA_HEAD_MS", value_name = "MS")]
    head_ms: Option<u64>,
    /// Milliseconds without anything of a body, or of an answer taken.
    #[arg(long, env = "FERMATA_BODY_MS", value_name = "MS")]
    body_ms: Option<u64>,
    /// Milliseconds without an open request.
    #[arg(long, env = "FERMATA_IDLE_MS", value_name = "MS")]
    idle_ms: Option<u64>,
}

/// `[clock]`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Interval clock")]
struct ClockArgs {
    /// Promise that this machine's clock is never further off than this, microseconds, at most
    /// 990000; 0: no interval clock [default: what the kernel says].
    #[arg(long, env = "FERMATA_CLOCK_BOUND_US", value_name = "US")]
    clock_bound_us: Option<u64>,
}

/// `[tls]`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS, for peers and clients")]
struct TlsArgs {
    /// The authorities that the node trusts.
    #[arg(long, env = "FERMATA_NODE_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The node's certificate, which names cluster and label: `fermata cert node` makes one.
    #[arg(long, env = "FERMATA_NODE_TLS_CERTIFICATE", value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, env = "FERMATA_NODE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Whether clients show a certificate, too: required or optional [default: required].
    #[arg(long, env = "FERMATA_NODE_TLS_CLIENTS", value_parser = ClientCertificates::NAMES,
          hide_possible_values = true, value_name = "WORD")]
    tls_clients: Option<String>,
}

impl EngineArgs {
    /// What they come to without any file.
    ///
    /// # Errors
    /// One sentence.
    pub(crate) fn config(self) -> Result<EngineConfig, String> {
        let mut table = toml::Table::new();
        overlay_engine(&mut table, self, password())?;
        match table.remove("engine") {
            Some(engine) => engine.try_into().map_err(|error: toml::de::Error| {
                format!("the options: {}", error.message().trim())
            }),
            None => Ok(EngineConfig::default()),
        }
    }
}

/// The password of the environment.
fn password() -> Option<String> {
    std::env::var(PASSWORD_ENV).ok().filter(|p| !p.is_empty())
}

/// Runs the node until SIGTERM or SIGINT.
pub(crate) fn run(args: ServerArgs) -> Result<(), Failure> {
    if let Some(ServerAction::Init(args)) = &args.action {
        return init::run(args);
    }
    let until_stdin_closes = args.until_stdin_closes;
    let config = config_of(args.clone(), password()).map_err(Failure::usage)?;
    let runtime = super::runtime(Builder::new_multi_thread())?;
    let ran = runtime.block_on(async {
        let mut stop = Stop::catch()?;
        let shutdown = async move {
            tokio::select! {
                () = stop.asked() => {}
                () = parent_gone(), if until_stdin_closes => {}
            }
        };
        let logs = Logs::begin(config.log_format, &config.log_level);
        // A terminal that goes away sends the same signal, which ends a program in it.
        if args.config.is_some() && !std::io::stderr().is_terminal() {
            tokio::spawn(reread(caught(SignalKind::hangup())?, args, logs));
        }
        serve(config, shutdown).await
    });
    // A reader of standard input may still be blocked in its thread.
    runtime.shutdown_background();
    ran
}

/// How a node ended, or why it did not start.
fn ended(error: StartError) -> Failure {
    let exit = match error {
        StartError::Config(_) => Exit::Usage,
        StartError::Data(_) => Exit::ServerData,
        StartError::Listen(_) => Exit::ServerListen,
        StartError::Halted(_) => Exit::ServerHalted,
    };
    Failure::new(exit, error.to_string())
}

/// Runs the node on the engine that the configuration names.
async fn serve(config: ServerConfig, shutdown: impl Future<Output = ()>) -> Result<(), Failure> {
    let mut shutdown = std::pin::pin!(shutdown);
    if config.engine.kind == EngineKind::Native {
        if !config.join.seeds.is_empty() {
            // Asked again, the cluster gives the same name.
            tokio::select! {
                joined = join::join(&config) => joined?,
                () = &mut shutdown => return Ok(()),
            }
        }
        return fermata_server::run(config, shutdown).await.map_err(ended);
    }
    let resolved = config.resolve().map_err(Failure::usage)?;
    // Stores that are far or down may take long to answer: a stop does not wait for them.
    let service = tokio::select! {
        service = crate::engine::service(&resolved) => service?,
        () = &mut shutdown => return Ok(()),
    };
    let ran = fermata_server::run_engine(resolved, service, shutdown).await;
    ran.map_err(ended)
}

/// At every SIGHUP takes what the log shows from the configuration, which is read again.
async fn reread(mut hangups: Signal, args: ServerArgs, logs: Logs) {
    while hangups.recv().await.is_some() {
        let config = config_of(args.clone(), password());
        let level = config.as_ref().map(|config| &config.log_level);
        logs.change(level.map_err(String::as_str));
    }
}

/// Standard input closes when the parent ends, however it ends.
async fn parent_gone() {
    let mut nothing = [0; 64];
    let mut stdin = tokio::io::stdin();
    while stdin.read(&mut nothing).await.is_ok_and(|bytes| bytes > 0) {}
}

/// The file, and over it what was given besides.
fn config_of(args: ServerArgs, password: Option<String>) -> Result<ServerConfig, String> {
    let mut table = match &args.config {
        Some(path) => load(path)?,
        None => toml::Table::new(),
    };
    if args.cluster_file.is_some() {
        table.remove("cluster");
    }
    let given: [(&str, Option<toml::Value>); 10] = [
        ("node", args.node.map(Into::into)),
        ("data_dir", args.data_dir.map(text)),
        ("cluster_file", args.cluster_file.map(text)),
        ("listen_peer", args.listen_peer.map(Into::into)),
        ("listen_grpc", args.listen_grpc.map(Into::into)),
        ("listen_rest", args.listen_rest.map(Into::into)),
        ("insecure", args.insecure.map(Into::into)),
        ("rtt", args.rtt.map(Into::into)),
        ("log_format", args.log_format.map(Into::into)),
        ("log_level", args.log_level.map(Into::into)),
    ];
    overlay(&mut table, given);
    let address = args.join.address.clone();
    overlay(&mut table, [("address", address.map(Into::into))]);
    overlay_section(&mut table, "join", joining(args.join))?;
    for pair in args.reach.into_iter().flatten() {
        let pair = pair
            .split_once('=')
            .ok_or("--reach is LABEL=HOST:PORT,...")?;
        overlay_section(&mut table, "reach", [(pair.0, Some(pair.1.into()))])?;
    }
    overlay_section(&mut table, "timing", numbers(durations(&args.timing))?)?;
    overlay_section(&mut table, "limits", numbers(bounds(&args.limits))?)?;
    let clients = [
        ("connections", args.clients.connections),
        (
            "connections_per_address",
            args.clients.connections_per_address,
        ),
        ("request_bytes", args.clients.request_bytes),
        ("sessions", args.clients.sessions),
        ("head_ms", args.clients.head_ms),
        ("body_ms", args.clients.body_ms),
        ("idle_ms", args.clients.idle_ms),
    ];
    overlay_section(&mut table, "clients", numbers(clients)?)?;
    let clock = [("bound_us", args.clock.clock_bound_us)];
    overlay_section(&mut table, "clock", numbers(clock)?)?;
    overlay_section(&mut table, "tls", certificates(args.tls))?;
    overlay_engine(&mut table, args.engine, password)?;
    if table.is_empty() {
        return Err(
            "give the node's file with --config, or an engine with --engine and \
             --contact-points, or see `fermata server --help`"
                .to_owned(),
        );
    }
    let source = args.config.map_or_else(
        || "the options".to_owned(),
        |path| path.display().to_string(),
    );
    let one_line = |error: toml::de::Error| format!("{source}: {}", error.message().trim());
    toml::Value::Table(table).try_into().map_err(one_line)
}

/// `[tls]`.
fn certificates(args: TlsArgs) -> [(&'static str, Option<toml::Value>); 4] {
    [
        ("ca", args.tls_ca.map(text)),
        ("certificate", args.tls_certificate.map(text)),
        ("key", args.tls_key.map(text)),
        ("clients", args.tls_clients.map(Into::into)),
    ]
}

/// `[join]`.
fn joining(args: JoinArgs) -> [(&'static str, Option<toml::Value>); 3] {
    [
        ("seeds", args.join.map(Into::into)),
        ("label", args.label.map(Into::into)),
        ("site", args.site.map(Into::into)),
    ]
}

/// `[timing]`.
fn bounds(args: &LimitArgs) -> [(&'static str, Option<u64>); 8] {
    [
        ("key_bytes", args.key_bytes),
        ("value_bytes", args.value_bytes),
        ("section_keys", args.section_keys),
        ("grant_bytes", args.grant_bytes),
        ("transaction_bytes", args.transaction_bytes),
        ("transaction_keys", args.transaction_keys),
        ("ledger_value_bytes", args.ledger_value_bytes),
        ("requests", args.requests),
    ]
}

fn durations(args: &TimingArgs) -> [(&'static str, Option<u64>); 8] {
    [
        ("beat_ms", args.beat_ms),
        ("lease_ms", args.lease_ms),
        ("election_ms", args.election_ms),
        ("stagger_ms", args.stagger_ms),
        ("retry_ms", args.retry_ms),
        ("request_ms", args.request_ms),
        ("upkeep_ms", args.upkeep_ms),
        ("usage_ms", args.usage_ms),
    ]
}

/// Reads the file; what is relative in it is relative to it.
fn load(path: &Path) -> Result<toml::Table, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        let line = before.matches('\n').count() + 1;
        format!(
            "{}, line {line}: {}",
            path.display(),
            error.message().trim()
        )
    })?;
    for field in ["cluster_file", "data_dir"] {
        relative(&mut table, field, path);
    }
    if let Some(toml::Value::Table(engine)) = table.get_mut("engine") {
        for field in ["password_file", "tls_ca", "tls_certificate", "tls_key"] {
            relative(engine, field, path);
        }
    }
    if let Some(toml::Value::Table(tls)) = table.get_mut("tls") {
        for field in ["ca", "certificate", "key"] {
            relative(tls, field, path);
        }
    }
    Ok(table)
}

/// A file or directory named in the file at `path`.
fn relative(table: &mut toml::Table, field: &str, path: &Path) {
    if let Some(toml::Value::String(file)) = table.get_mut(field)
        && !file.is_empty()
    {
        *file = path.with_file_name(&*file).to_string_lossy().into_owned();
    }
}

fn text(path: PathBuf) -> toml::Value {
    path.to_string_lossy().into_owned().into()
}

/// What was given of `[engine]`; a password or its file replaces either in the file.
fn overlay_engine(
    table: &mut toml::Table,
    args: EngineArgs,
    password: Option<String>,
) -> Result<(), String> {
    let replication = args.replication.map(copies).transpose()?;
    let file = args.engine_password_file;
    // A flag wins. A password alone names no engine: it may be meant for another process.
    let named = args.engine.is_some() || table.contains_key("engine");
    let password = password.filter(|_| named && file.is_none());
    if let Some(toml::Value::Table(engine)) = table.get_mut("engine")
        && (password.is_some() || file.is_some())
    {
        engine.remove("password");
        engine.remove("password_file");
    }
    let given = [
        ("kind", args.engine.map(Into::into)),
        ("contact_points", args.contact_points.map(Into::into)),
        ("data_center", args.data_center.map(Into::into)),
        ("keyspace", args.engine_keyspace.map(Into::into)),
        ("replication", replication.map(Into::into)),
        ("zookeeper", args.zookeeper.map(Into::into)),
        ("verify", args.no_verify.map(|no| (!no).into())),
        ("unverified", args.unverified.map(Into::into)),
        ("allow_paxos_v1", args.allow_paxos_v1.map(Into::into)),
        (
            "allow_few_replicas",
            args.allow_few_replicas.map(Into::into),
        ),
        ("username", args.engine_username.map(Into::into)),
        ("password", password.map(Into::into)),
        ("password_file", file.map(text)),
        ("tls_ca", args.engine_tls_ca.map(text)),
        ("tls_certificate", args.engine_tls_certificate.map(text)),
        ("tls_key", args.engine_tls_key.map(text)),
    ];
    overlay_section(table, "engine", given)
}

/// `CENTER=N` each.
fn copies(given: Vec<String>) -> Result<toml::Table, String> {
    let one = |entry: String| {
        let (center, number) = entry.rsplit_once('=')?;
        Some((center.to_owned(), number.parse::<u8>().ok()?.into()))
    };
    let mut copies = toml::Table::new();
    for entry in given {
        let (center, number) = one(entry.clone())
            .ok_or_else(|| format!("--replication: {entry:?} is not CENTER=N"))?;
        if copies.insert(center, number).is_some() {
            return Err(format!(
                "--replication: {entry:?} names a data center again: name each once"
            ));
        }
    }
    Ok(copies)
}

fn overlay<'a>(
    table: &mut toml::Table,
    given: impl IntoIterator<Item = (&'a str, Option<toml::Value>)>,
) {
    for (name, value) in given {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    }
}

fn numbers<'a>(
    given: impl IntoIterator<Item = (&'a str, Option<u64>)>,
) -> Result<Vec<(&'a str, Option<toml::Value>)>, String> {
    let number = |(name, value): (&'a str, Option<u64>)| {
        let value = value.map(i64::try_from).transpose();
        let value = value.map_err(|_| format!("{name} is too large"))?;
        Ok((name, value.map(toml::Value::from)))
    };
    given.into_iter().map(number).collect()
}

fn overlay_section<'a>(
    table: &mut toml::Table,
    section: &str,
    given: impl IntoIterator<Item = (&'a str, Option<toml::Value>)>,
) -> Result<(), String> {
    let mut given = given.into_iter().filter(|(_, value)| value.is_some());
    let Some(first) = given.next() else {
        return Ok(());
    };
    let empty = toml::Value::Table(toml::Table::new());
    let into = table.entry(section).or_insert(empty).as_table_mut();
    overlay(
        into.ok_or_else(|| format!("{section} is not a table"))?,
        std::iter::once(first).chain(given),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use fermata_server::config::{EngineConfig, LimitsConfig, Secret, TimingConfig};

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        server: ServerArgs,
    }

    fn config(flags: &[&str]) -> Result<ServerConfig, String> {
        let args = ["server"].iter().chain(flags);
        let args = Alone::try_parse_from(args).map_err(|e| e.to_string())?;
        config_of(args.server, None)
    }

    #[test]
    fn flags_win_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let file = "node = \"a\"\ndata_dir = \"d\"\ncluster_file = \"c.toml\"\n\
                    [timing]\nbeat_ms = 5\nlease_ms = 7\n";
        std::fs::write(&path, file).unwrap();
        let file = path.to_str().unwrap();
        let read = config(&["--config", file, "--node", "b", "--lease-ms", "9"]).unwrap();
        assert_eq!(read.node, "b");
        assert_eq!(
            (read.timing.beat_ms, read.timing.lease_ms),
            (Some(5), Some(9))
        );
        assert_eq!(read.cluster_file, Some(folder.path().join("c.toml")));
        assert_eq!(read.data_dir, folder.path().join("d"));
        let flag = config(&["--config", file, "--data-dir", "e"]).unwrap();
        assert_eq!(flag.data_dir, PathBuf::from("e"));
        assert_eq!((read.clock.bound_us, read.insecure), (None, false));
        let bound = ["--config", file, "--clock-bound-us", "700"];
        assert_eq!(config(&bound).unwrap().clock.bound_us, Some(700));
        assert!(config(&["--config", file, "--insecure"]).unwrap().insecure);
    }

    #[test]
    fn every_field_of_timing_and_limits_is_a_flag_and_a_variable() {
        // Literals: a new field does not compile here until it is named.
        let timing = TimingConfig {
            beat_ms: Some(1),
            lease_ms: Some(1),
            election_ms: Some(1),
            stagger_ms: Some(1),
            retry_ms: Some(1),
            request_ms: Some(1),
            upkeep_ms: Some(1),
            usage_ms: Some(1),
        };
        let limits = LimitsConfig {
            key_bytes: Some(1),
            value_bytes: Some(1),
            section_keys: Some(1),
            grant_bytes: Some(1),
            transaction_bytes: Some(1),
            transaction_keys: Some(1),
            ledger_value_bytes: Some(1),
            requests: Some(1),
        };
        let fields = toml::Table::try_from(timing).unwrap().into_iter();
        let fields = fields.chain(toml::Table::try_from(limits).unwrap());
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        for (field, _) in fields {
            let flag = command.get_arguments().find(|a| a.get_id() == &field);
            let variable = flag.and_then(|a| a.get_env()).unwrap_or_default();
            let expected = format!("FERMATA_{}", field.to_uppercase());
            assert_eq!(variable, expected.as_str());
        }
    }

    #[test]
    fn every_field_of_an_engine_is_a_flag_or_a_variable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let file = "[engine]\nkind = \"native\"\nkeyspace = \"k\"\npassword_file = \"p\"\n";
        std::fs::write(&path, file).unwrap();
        let flags = [
            "--config",
            path.to_str().unwrap(),
            "--engine=zookeeper+cassandra",
            "--contact-points=a:1,b",
            "--data-center=ohio",
            "--replication=ohio=1,oregon=2",
            "--zookeeper=z",
            "--no-verify",
            "--allow-paxos-v1",
            "--allow-few-replicas",
            "--engine-username=u",
            "--engine-tls-ca=ca",
            "--engine-tls-certificate=c",
            "--engine-tls-key=k",
        ];
        let args = ["server"].iter().chain(&flags);
        let args = Alone::try_parse_from(args).unwrap().server;
        let read = config_of(args, Some("secret".to_owned())).unwrap().engine;
        // A literal: a new field does not compile here until it is named.
        let expected = EngineConfig {
            kind: EngineKind::ZooKeeperCassandra,
            contact_points: vec!["a:1".to_owned(), "b".to_owned()],
            data_center: Some("ohio".to_owned()),
            keyspace: "k".to_owned(),
            replication: [("ohio".to_owned(), 1), ("oregon".to_owned(), 2)].into(),
            username: Some("u".to_owned()),
            password: Some(Secret("secret".to_owned())),
            password_file: None,
            tls_ca: Some("ca".into()),
            tls_certificate: Some("c".into()),
            tls_key: Some("k".into()),
            verify: false,
            unverified: vec![],
            allow_paxos_v1: true,
            allow_few_replicas: true,
            zookeeper: vec!["z".to_owned()],
        };
        assert_eq!(read, expected);
        let more = [
            "--unverified=a,b",
            "--engine-keyspace=l",
            "--no-verify=false",
        ];
        let more = config(&[&flags[..2], &more].concat()).unwrap().engine;
        assert_eq!(more.unverified, ["a", "b"]);
        assert!(more.verify && more.keyspace == "l");
        // Beside the file, unless a flag says where.
        assert_eq!(more.password_file, Some(folder.path().join("p")));
        let flag = config(&[&flags[..2], &["--engine-password-file=q"]].concat());
        assert_eq!(flag.unwrap().engine.password_file, Some("q".into()));
        let args = Alone::try_parse_from(["server", "--node=a"])
            .unwrap()
            .server;
        let native = config_of(args, Some("of another".to_owned())).unwrap();
        assert!(native.engine.is_default());
        let error = config(&["--replication=ohio"]).unwrap_err();
        assert!(error.contains("CENTER=N"), "{error}");
    }

    #[test]
    fn flags_alone_are_enough() {
        let engine = config(&["--engine=cassandra", "--contact-points=127.0.0.1:9042"]);
        let resolved = engine.unwrap().resolve().unwrap();
        assert_eq!(resolved.nodes[0].grpc, "127.0.0.1:7100");
        let flags = ["--node", "a", "--data-dir", "d", "--cluster-file", "c"];
        assert_eq!(config(&flags).unwrap().data_dir, PathBuf::from("d"));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let file = path.to_str().unwrap();
        for (text, word) in [
            ("node = \"a\"\nnode = \"b\"", "line 2"),
            ("nodes = 1", "node"),
            ("log_level = \"loud\"", "TARGET=LEVEL"),
            ("", "--config"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = config(&["--config", file]).unwrap_err();
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
        assert!(
            config(&["--config", "/does/not/exist"])
                .unwrap_err()
                .contains("cannot read")
        );
        assert!(config(&[]).unwrap_err().contains("--config"));
    }
}
