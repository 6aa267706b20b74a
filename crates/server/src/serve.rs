//! Start, run and stop of one node.

use crate::access::Audit;
use crate::clock::Clock;
use crate::config::{Clients, Resolved, ServerConfig};
use crate::descriptors::Descriptors;
use crate::driver::{DriverThread, Parts};
use crate::engine::Engine;
use crate::grpc::GOODBYE;
use crate::hosted::Hosted;
use crate::listen::{self, Face, Terms};
use crate::mailbox::{Event, Mailbox};
use crate::metrics::Metrics;
use crate::porter::{Backend, Porter};
use crate::transport::{self, Incoming, Peers, Places, Run};
use crate::{clock, identity, join};
use fermata_api::Secret;
use fermata_engine::Service;
use fermata_protocol::base::Addresses;
use fermata_protocol::request::{Operation, Reply, RingChange};
use fermata_storage::{Disk, Options};
use fermata_tls::{Keeper, Trust};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How long the last answers may take to leave once the node has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What is open is judged again this often, at least.
const ACCESS_LOOK: Duration = Duration::from_secs(1);
/// How often a node looks whether its certificates have changed.
const CERTIFICATES_LOOK: Duration = Duration::from_secs(10);
/// Certificates that are over so soon are told of, in seconds.
const ENDS_SOON: i64 = 30 * 86_400;
/// How often they are told of.
const ENDS_TOLD: Duration = Duration::from_secs(86_400);

/// How often a node looks whether the cluster knows where it is reached.
const ADDRESS_LOOK: Duration = Duration::from_secs(2);

/// Why a node did not start, or could not go on: one sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The configuration is wrong: nothing was touched. Exit status 2.
    Config(String),
    /// The data directory is not this node's or cannot be read. Exit status 3.
    Data(String),
    /// An address cannot be listened on. Exit status 4.
    Listen(String),
    /// The node ran and had to stop: its disk failed, or it found that it must not go on. Exit
    /// status 5.
    Halted(String),
}

impl StartError {
    /// The exit status of a process that ends so.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) => 2,
            StartError::Data(_) => 3,
            StartError::Listen(_) => 4,
            StartError::Halted(_) => 5,
        }
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (StartError::Config(line)
        | StartError::Data(line)
        | StartError::Listen(line)
        | StartError::Halted(line)) = self;
        f.write_str(line)
    }
}

impl std::error::Error for StartError {}

/// The sockets of one node, bound before it starts; `rest` is none where gRPC's port serves both.
#[derive(Debug)]
pub struct Listeners {
    /// For peers.
    pub peer: TcpListener,
    /// For gRPC.
    pub grpc: TcpListener,
    /// For REST.
    pub rest: Option<TcpListener>,
}

impl Listeners {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// [`StartError::Listen`] with the address.
    pub async fn bind(resolved: &Resolved) -> Result<Listeners, StartError> {
        let peer = resolved.listen_peer.ok_or_else(|| not_native(resolved))?;
        let peer = bind(peer, "peers").await?;
        let Faces { grpc, rest } = Faces::bind(resolved).await?;
        Ok(Listeners { peer, grpc, rest })
    }
}

/// The sockets of a node on another engine than the native one: it has no peers.
#[derive(Debug)]
pub struct Faces {
    /// For gRPC.
    pub grpc: TcpListener,
    /// For REST; none where gRPC's port serves both.
    pub rest: Option<TcpListener>,
}

impl Faces {
    /// Binds what the configuration names.
    ///
    /// # Errors
    /// [`StartError::Listen`] with the address.
    pub async fn bind(resolved: &Resolved) -> Result<Faces, StartError> {
        let shared = resolved.listen_rest == resolved.listen_grpc;
        Ok(Faces {
            grpc: bind(resolved.listen_grpc, "gRPC").await?,
            rest: if shared {
                None
            } else {
                Some(bind(resolved.listen_rest, "REST").await?)
            },
        })
    }
}

/// The refusal to run the native engine where another one was named.
fn not_native(resolved: &Resolved) -> StartError {
    let kind = resolved.engine.as_ref().map_or("native", |e| e.kind.name());
    StartError::Config(format!(
        "the configuration names engine {kind}, and this program runs the native one alone"
    ))
}

async fn bind(address: SocketAddr, who: &str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|e| StartError::Listen(format!("cannot listen on {address} for {who}: {e}")))
}

/// Where a node keeps its store, if not in files of its data directory.
#[derive(Clone)]
pub struct Medium {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The store's layout on it.
    pub options: Options,
}

/// Runs one node until `shutdown` is ready; then stops gracefully: it takes no new calls, hands
/// over what it leads, answers brief calls that are open (at most 3 s), and flushes. Dropping the
/// future ends the node at once, as if its process had died.
///
/// # Errors
/// [`StartError`]: one sentence.
pub async fn run(
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let resolved = config.resolve().map_err(StartError::Config)?;
    let listeners = Listeners::bind(&resolved).await?;
    run_on(resolved, listeners, None, shutdown).await
}

/// Runs the faces over another engine than the native one until `shutdown` is ready: without peers,
/// driver, disk or data directory. Then stops gracefully: it takes no new calls, and brief calls
/// that are open may be answered (at most 3 s). Dropping the future ends it at once.
///
/// # Errors
/// [`StartError`]: one sentence.
pub async fn run_engine(
    resolved: Resolved,
    service: Arc<dyn Service>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let faces = Faces::bind(&resolved).await?;
    run_engine_on(resolved, faces, service, shutdown).await
}

/// [`run_engine`] on sockets that are bound already.
///
/// # Errors
/// [`StartError`]: one sentence.
pub async fn run_engine_on(
    resolved: Resolved,
    listeners: Faces,
    service: Arc<dyn Service>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let kept = Descriptors::reserve(0).map_err(StartError::Config)?;
    let own = Secret::new(random()?);
    let metrics = Arc::new(Metrics::of_engine());
    let tls = read_certificates(&resolved)?;
    let stores = resolved.engine.as_ref().map(|engine| engine.tls());
    let stores = stores.transpose().map_err(StartError::Config)?.flatten();
    let stores = stores.map(Trust::read).transpose();
    let stores = stores.map_err(StartError::Config)?;
    let engine = Arc::new(Engine::new(service, metrics.clone(), stores));
    let _abandon = AbandonEngine(engine.clone());
    let backend = Backend::Engine(engine.clone());
    let audit = start_audit(&resolved)?;
    let porter = Porter::new(backend, metrics, &resolved, own, (tls, audit));
    let porter = Arc::new(porter);
    let mut tasks = JoinSet::new();
    let faces = serve_faces(
        listeners,
        porter.clone(),
        (resolved.clients, resolved.is_exposed()),
        kept,
        &mut tasks,
    )
    .await;
    tracing::info!(
        engine = %engine.describe(), grpc = %resolved.listen_grpc, rest = %resolved.listen_rest,
        "started"
    );
    shutdown.await;
    porter.close();
    tracing::info!("stopping");
    engine.end().await;
    last_answers(faces).await;
    tasks.shutdown().await;
    Ok(())
}

/// Ends the requests on an engine when the future that runs the node is dropped.
struct AbandonEngine(Arc<Engine>);

impl Drop for AbandonEngine {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Ends the driver when the future that runs the node is dropped; afterwards it is gone anyway.
struct Abandon(Arc<Mailbox>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.put(Event::Abandon);
    }
}

fn random() -> Result<u128, StartError> {
    clock::random().map_err(|e| StartError::Data(format!("no randomness: {e}")))
}

/// [`run`] on sockets that are bound already; with the store on `medium`, if there is one, and the
/// identity alone in the data directory: for tests of what a disk can do.
///
/// # Errors
/// [`StartError`]: one sentence.
pub async fn run_on(
    resolved: Resolved,
    listeners: Listeners,
    medium: Option<Medium>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    if resolved.engine.is_some() {
        return Err(not_native(&resolved));
    }
    let kept = Descriptors::reserve(resolved.nodes.len()).map_err(StartError::Config)?;
    let tls = read_certificates(&resolved)?;
    let opened = open_store(&resolved, medium).await?;
    let id = opened.id;
    // What the driver draws with shows in its session: the porter's secret is another number.
    let (seed, own) = (random()?, Secret::new(random()?));
    let mailbox = Arc::new(Mailbox::default());
    let metrics = Arc::new(Metrics::new());
    let mut tasks = JoinSet::new();
    // Dropped before the tasks are, whose end cancels requests: a process that dies cancels none.
    let _abandon = Abandon(mailbox.clone());
    let clock = Arc::new(Clock::new(&resolved.clock));
    let (run, places) = (Run(random()? as u64), Places::default());
    let whom = (id, run, &places);
    let peers = Peers::new(&resolved, whom, tls.clone(), &clock, &mailbox, &metrics);
    let peers = peers.map_err(no_thread)?;
    let backend = Backend::Driver(mailbox.clone());
    let shown = (tls.clone(), start_audit(&resolved)?);
    let porter = Porter::new(backend, metrics.clone(), &resolved, own, shown);
    let porter = Arc::new(porter);
    let driver_end = start_driver(Parts {
        config: resolved.config.clone(),
        id,
        seed: seed as u64,
        store: opened.store,
        ballast: opened.ballast,
        mailbox: mailbox.clone(),
        peers,
        roster: porter.roster.clone(),
        metrics: metrics.clone(),
        clock,
        pulse: porter.pulse.clone(),
    })
    .await?;
    let incoming = Incoming {
        cluster: resolved.config.cluster.id,
        id,
        run,
        places,
        roster: porter.roster.clone(),
        timing: resolved.config.timing.clone(),
        mailbox: mailbox.clone(),
        metrics,
        tls,
    };
    tasks.spawn(transport::listen(listeners.peer, incoming));
    tasks.spawn(keep_address(porter.clone(), resolved.own.addresses()));
    let Listeners { grpc, rest, .. } = listeners;
    let faces = Faces { grpc, rest };
    let terms = (resolved.clients, resolved.is_exposed());
    let faces = serve_faces(faces, porter.clone(), terms, kept, &mut tasks).await;
    tracing::info!(
        node = id.name.0, grpc = %resolved.listen_grpc, rest = %resolved.listen_rest, "started"
    );
    let ended = until_stopped(shutdown, driver_end, &mailbox, faces, &porter).await;
    tasks.shutdown().await;
    ended
}

/// Where it is written who did what.
fn start_audit(resolved: &Resolved) -> Result<Audit, StartError> {
    let started = Audit::start(&resolved.audit, &resolved.own.label);
    started.map_err(StartError::Config)
}

/// What the node shows and whom it trusts, where it speaks TLS.
fn read_certificates(resolved: &Resolved) -> Result<Option<Arc<Keeper>>, StartError> {
    let keeper = resolved.tls.clone().map(|tls| tls.read()).transpose();
    Ok(keeper.map_err(StartError::Config)?.map(Arc::new))
}

/// Judges again what is open, whenever the access policy changes, and since tokens are over.
async fn keep_access(porter: Arc<Porter>) {
    let mut news = porter.access.news();
    loop {
        let _ = tokio::time::timeout(ACCESS_LOOK, news.changed()).await;
        porter.review();
    }
}

/// Takes certificates as they change, and tells of those that are over soon.
async fn keep_certificates(porter: Arc<Porter>, exposed: bool) {
    let (mut told, mut complaint) = (None, (String::new(), false));
    loop {
        let looking = porter.clone();
        let looked = tokio::task::spawn_blocking(move || {
            // Those for the stores are read again by whoever asks.
            let stores = looking.stores().map(Trust::endings).unwrap_or_default();
            let changed = looking.tls.as_ref().map(|keeper| keeper.reread());
            changed.transpose().map(|changed| (changed, stores))
        });
        let mut endings = Vec::new();
        match looked.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok((changed, stores)) => {
                complaint = (String::new(), false);
                endings = stores;
                if changed == Some(true) {
                    tracing::info!("certificates have changed, and count from now on");
                }
            }
            // Files are replaced one by one: between two looks they may not fit each other.
            Err(why) if why != complaint.0 => complaint = (why, false),
            Err(why) if !complaint.1 => {
                tracing::error!("certificates have changed and do not count: {why}");
                complaint.1 = true;
            }
            Err(_) => {}
        }
        endings.extend(porter.tls.iter().flat_map(|keeper| keeper.endings()));
        let is_tls = porter.tls.is_some();
        porter.metrics.secured(is_tls, exposed, &endings);
        let soon = endings.iter().filter(|ending| ending.left() < ENDS_SOON);
        let over = endings.iter().filter(|ending| ending.left() <= 0).count();
        let again = told.is_none_or(|(at, before): (Instant, usize)| {
            at.elapsed() >= ENDS_TOLD || over > before
        });
        for ending in soon.filter(|_| again) {
            match (ending.what, ending.left()) {
                (what, ..=0) => tracing::error!("the {what} of this node is over: renew it"),
                (what, left) => {
                    let days = left / 86_400;
                    tracing::warn!("the {what} of this node is over in {days} days: renew it");
                }
            }
            told = Some((Instant::now(), over));
        }
        tokio::time::sleep(CERTIFICATES_LOOK).await;
    }
}

/// Tells the cluster where this node is reached, where it knows otherwise.
async fn keep_address(porter: Arc<Porter>, own: Addresses) {
    loop {
        tokio::time::sleep(ADDRESS_LOOK).await;
        let known = porter.roster.known();
        let told = known
            .node(porter.node)
            .is_some_and(|node| node.addresses == own);
        if told || !porter.pulse.is_started() {
            continue;
        }
        let (name, addresses) = (porter.node, own.clone());
        let change = RingChange::Readdress { name, addresses };
        match porter.ask_self(Operation::ChangeRing(change)).await {
            Ok(Reply::Refused(why)) | Err(why) => {
                tracing::warn!("the cluster reaches this node elsewhere: {}", why.detail);
            }
            Ok(_) => tracing::info!(peer = %own.peer, "the cluster reaches this node here now"),
        }
    }
}

/// Opens the data directory, on a thread that may block.
async fn open_store(
    resolved: &Resolved,
    medium: Option<Medium>,
) -> Result<identity::Opened, StartError> {
    let dir = resolved.data_dir.clone();
    let (config, file) = (resolved.config.clone(), resolved.file.clone());
    let open = move || {
        let opened = identity::open(&dir, &config, medium)?;
        identity::keep_file(&dir, join::CLUSTER, &file)?;
        Ok(opened)
    };
    let opened = tokio::task::spawn_blocking(open).await;
    let opened = opened.map_err(|e| StartError::Data(e.to_string()))?;
    opened.map_err(StartError::Data)
}

fn no_thread(error: std::io::Error) -> StartError {
    StartError::Data(format!("cannot start a thread: {error}"))
}

/// How the driver's thread ended: asked to, with a reason, or, when nothing comes, by a panic.
type DriverEnd = oneshot::Receiver<Result<(), String>>;

/// Starts the driver's thread, where the node lives and dies, and waits until it has recovered.
async fn start_driver(parts: Parts) -> Result<DriverEnd, StartError> {
    let (recovered, recovery) = oneshot::channel();
    let (ended, driver_end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("fermata-driver".into());
    let thread = thread.spawn(move || {
        // The receivers may be gone; then nobody asks.
        match DriverThread::recover(parts) {
            Ok(driver) => {
                let _ = recovered.send(Ok(()));
                let _ = ended.send(driver.run());
            }
            Err(why) => {
                let _ = recovered.send(Err(why));
            }
        }
    });
    thread.map_err(no_thread)?;
    match recovery.await {
        Ok(Ok(())) => Ok(driver_end),
        Ok(Err(why)) => Err(StartError::Data(why)),
        Err(_) => Err(StartError::Halted(
            "the node could not be recovered; see the log".into(),
        )),
    }
}

/// Waits for the stop or for the driver's own end. A stop closes the faces, gives clients time to
/// go on elsewhere, lets the node retire, and gives the last answers time to leave.
async fn until_stopped(
    shutdown: impl Future<Output = ()>,
    mut driver_end: DriverEnd,
    mailbox: &Mailbox,
    mut faces: JoinSet<()>,
    porter: &Porter,
) -> Result<(), StartError> {
    let defect =
        || StartError::Halted("the node stopped by a defect of its own; see the log".into());
    let early = tokio::select! {
        () = shutdown => None,
        end = &mut driver_end => Some(end),
    };
    porter.close();
    if let Some(end) = early {
        return match end {
            Ok(Err(why)) => Err(StartError::Halted(why)),
            _ => Err(defect()),
        };
    }
    tracing::info!("stopping");
    // Who has a stream is told, and what was sent meanwhile is still done.
    let leaving = async { while faces.join_next().await.is_some() {} };
    let _late = tokio::time::timeout(GOODBYE, leaving).await;
    mailbox.put(Event::Retire);
    let end = driver_end.await;
    last_answers(faces).await;
    match end {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(StartError::Halted(why)),
        Err(_) => Err(defect()),
    }
}

/// Gives the last answers time to leave.
async fn last_answers(mut faces: JoinSet<()>) {
    let leaving = async { while faces.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, leaving).await.is_err() {
        tracing::info!("open connections were cut off");
    }
}

/// Serves gRPC and REST, and looks after the node's health.
async fn serve_faces(
    listeners: Faces,
    porter: Arc<Porter>,
    (clients, exposed): (Clients, bool),
    kept: Descriptors,
    tasks: &mut JoinSet<()>,
) -> JoinSet<()> {
    let Faces { grpc, rest } = listeners;
    let (reporter, health) = tonic_health::server::health_reporter();
    // The reporter begins with "serving".
    report(&reporter, false).await;
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(fermata_api::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let made = "the compiler made the descriptors";
    let reflection = described().build_v1().expect(made);
    // Older tools ask for it by this name alone.
    let older = described().build_v1alpha().expect(made);
    let looker = porter.clone();
    tasks.spawn(async move {
        let mut told = false;
        loop {
            let again = looker.look().await;
            let healthy = looker.is_healthy();
            // Whoever watches is told of changes.
            if std::mem::replace(&mut told, healthy) != healthy {
                report(&reporter, healthy).await;
            }
            tokio::time::sleep(again).await;
        }
    });
    tasks.spawn(keep_access(porter.clone()));
    if let Some(issuer) = porter.access.issuer.clone() {
        tasks.spawn(issuer.keep());
    }
    tasks.spawn(crate::memory::returned());
    porter.metrics.secured(porter.tls.is_some(), exposed, &[]);
    if porter.tls.is_some() || porter.stores().is_some() {
        tasks.spawn(keep_certificates(porter.clone(), exposed));
    }
    let hosted = Arc::new(Hosted::new(porter.clone(), clients.sessions));
    let mut routes = tonic::service::Routes::new(crate::grpc::service(porter.clone()));
    routes = routes
        .add_service(crate::hosted::service::service(hosted.clone()))
        .add_service(health)
        .add_service(reflection)
        .add_service(older);
    let mut faces = JoinSet::new();
    let rest_routes = crate::rest::router(hosted, tasks);
    let terms = Terms {
        tls: porter.tls.clone(),
        porter,
        clients,
        descriptors: kept,
        faces: 1 + usize::from(rest.is_some()),
    };
    let calls = routes.into_axum_router();
    match rest {
        Some(rest) => {
            faces.spawn(listen::serve(rest, Face::Http, rest_routes, terms.clone()));
            faces.spawn(listen::serve(grpc, Face::Grpc, calls, terms));
        }
        None => {
            // REST answers what is no path of either.
            let both = rest_routes.merge(calls.reset_fallback());
            faces.spawn(listen::serve(grpc, Face::Http, both, terms));
        }
    }
    faces
}

async fn report(reporter: &tonic_health::server::HealthReporter, healthy: bool) {
    let status = if healthy {
        tonic_health::ServingStatus::Serving
    } else {
        tonic_health::ServingStatus::NotServing
    };
    reporter.set_service_status("", status).await;
    reporter
        .set_service_status("fermata.v1.Fermata", status)
        .await;
}
