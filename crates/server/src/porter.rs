//! The porter between every face (gRPC, REST) and what answers, the driver or an engine: names,
//! admission, answers, cancellation.
//!
//! It passes a well-formed [`Request`] with a permit for itself and for its bytes, so that open
//! requests are bounded in number and in memory; bodies that arrive take theirs from the same
//! bound. An [`Open`] call that is dropped before its last answer is cancelled: a client that hangs
//! up costs nothing.

use crate::access::lasting::{AllLasting, Known, Lasting};
use crate::access::{Access, Audit, Caller, Judgement, Who};
use crate::clock;
use crate::driver::Pulse;
use crate::engine::Engine;
use crate::mailbox::{Call, Event, Mailbox, Sink};
use crate::metrics::{Metrics, operation_name};
use crate::roster::Roster;
use bytes::Bytes;
use fermata_api::convert::{KEYS_MAX, names_keyspace, request_from_proto};
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::{Names, Secret, v1};
use fermata_protocol::base::{ClusterId, Keyspace, NodeInfo, NodeName, SiteId};
use fermata_protocol::request::{Critical, NodeStatus, Operation, StorageStatus};
use fermata_protocol::{CallId, Code, Refusal, Reply, Request};
use fermata_tls::{Keeper, Trust};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

/// How long the keeper of the catalogue may take to tell whether there is a keyspace that this node
/// does not know: another node may just have created it.
const KEEPER: Duration = Duration::from_secs(3);

/// The native node is looked at this often, which costs no message.
const LOOK: Duration = Duration::from_millis(250);
/// How long a node that drains is waited for to hand over its logs, before what it keeps for
/// clients.
const LEADS: Duration = Duration::from_secs(5);
/// How long the next primaries have to begin, once it leads nothing.
const BEGIN: Duration = Duration::from_secs(1);
/// Another engine is asked for its health this often, which may cost a round trip.
const ASK: Duration = Duration::from_secs(1);

/// What answers requests.
pub(crate) enum Backend {
    /// The native engine: its driver takes them here.
    Driver(Arc<Mailbox>),
    /// Another engine.
    Engine(Arc<Engine>),
}

/// What is the same for all requests of one node.
pub(crate) struct Porter {
    pub(crate) metrics: Arc<Metrics>,
    /// Who is in the cluster, and where its groups are.
    pub(crate) roster: Arc<Roster>,
    /// The cluster's.
    pub(crate) cluster: ClusterId,
    pub(crate) segment_bits: u8,
    /// This node.
    pub(crate) node: NodeName,
    /// The engine in one line for people; empty: the native one.
    pub(crate) engine: String,
    /// This node's site.
    pub(crate) home: SiteId,
    /// Bytes of the largest value that another engine takes.
    value_max: usize,
    /// Bytes of the longest keys of one section.
    keys_max: usize,
    /// Most keys that one answer to a listing has.
    listed_max: u32,
    /// Whether a quorum is in reach, as last seen by [`Porter::look`].
    healthy: AtomicBool,
    /// A line for each keyspace that has lost its quorum, or why the engine is not healthy, as last
    /// seen by [`Porter::look`].
    short: RwLock<Vec<String>>,
    /// Logs that it led then.
    led: AtomicUsize,
    /// What the driver shows of itself; of other engines nobody asks.
    pub(crate) pulse: Arc<Pulse>,
    /// True from the moment the node begins to stop; the faces watch it.
    pub(crate) closing: watch::Sender<bool>,
    backend: Backend,
    names: RwLock<Arc<Names>>,
    /// The version of the native catalogue that they are of.
    named: AtomicU64,
    requests: Arc<Semaphore>,
    /// For the bytes of requests that arrive, and of values in those that are open, in KiB.
    kib: Arc<Semaphore>,
    next_call: AtomicU64,
    /// The secret of the node's own session for asking itself, and a counter that grows with the
    /// wall clock, also over restarts.
    own: (Secret, AtomicU64),
    /// What the node shows, and whom it trusts; none: it speaks in clear.
    pub(crate) tls: Option<Arc<Keeper>>,
    /// Secrets drawn for clients without one of their own.
    drawn: AtomicU64,
    /// Who may do what.
    pub(crate) access: Arc<Access>,
    /// Requests that are judged again while they are open.
    lasting: Arc<AllLasting>,
}

/// An open request; dropping it cancels it.
pub(crate) struct Open {
    at: At,
    done: bool,
    _known: Option<Known>,
}

/// Where an open request is.
#[derive(Clone)]
pub(crate) enum At {
    Driver(CallId, Arc<Mailbox>),
    Engine(AbortHandle),
    /// It was answered at once.
    Nowhere,
}

impl At {
    /// Nobody waits for it any more.
    pub(crate) fn cancel(&self) {
        match self {
            At::Driver(call, mailbox) => mailbox.put(Event::Cancel(*call)),
            At::Engine(task) => task.abort(),
            At::Nowhere => {}
        }
    }
}

impl Open {
    /// The last answer is here: nothing to cancel.
    pub(crate) fn finish(&mut self) {
        self.done = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.done {
            self.at.cancel();
        }
    }
}

/// Whether `reply` is the last answer to a request that follows (`follow`) or polls (`poll`).
pub(crate) fn is_last(reply: &Reply, follow: bool, poll: bool) -> bool {
    match reply {
        Reply::Queued { .. } => poll,
        Reply::Stalled { .. } => false,
        Reply::Entered { .. } => !follow,
        _ => true,
    }
}

/// Whether an operation follows and whether it polls; see [`is_last`].
pub(crate) fn kind(operation: &Operation) -> (bool, bool) {
    match operation {
        Operation::Enter { wait, follow, .. } => (*follow, *wait == 0),
        _ => (false, false),
    }
}

/// One page of a listing. One key more than it has is asked for where an answer holds as many, so
/// that it is known whether there are more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    keys: usize,
    asked: usize,
}

impl Page {
    /// Cuts what has come to the page. Says whether there are more, or may be.
    pub(crate) fn cut(self, keys: &mut Vec<Bytes>) -> bool {
        let more = keys.len() >= self.asked;
        keys.truncate(self.keys);
        more
    }
}

impl Porter {
    pub(crate) fn new(
        backend: Backend,
        metrics: Arc<Metrics>,
        resolved: &crate::config::Resolved,
        own: Secret,
        (tls, audit): (Option<Arc<Keeper>>, Audit),
    ) -> Porter {
        let config = &resolved.config;
        let words = (resolved.jwt.clone(), audit);
        let access = match &backend {
            Backend::Driver(mailbox) => {
                let dir = Some(resolved.data_dir.clone());
                Access::new(mailbox.access.subscribe(), dir, words)
            }
            Backend::Engine(engine) => Access::new(engine.access(), None, words),
        };
        let catalogue = fermata_protocol::base::Keyspace::built_in();
        Porter {
            roster: Arc::new(Roster::new(&config.cluster)),
            cluster: config.cluster.id,
            segment_bits: config.cluster.segment_bits,
            node: config.name,
            engine: match &backend {
                Backend::Engine(engine) => engine.describe(),
                Backend::Driver(_) => String::new(),
            },
            home: resolved.site,
            value_max: config.limits.value,
            keys_max: config.limits.section_keys * config.limits.key_most,
            listed_max: u32::try_from(config.limits.listed_keys())
                .map_or(KEYS_MAX, |n| n.min(KEYS_MAX)),
            healthy: AtomicBool::new(false),
            short: RwLock::default(),
            led: AtomicUsize::new(0),
            pulse: Arc::default(),
            closing: watch::Sender::new(false),
            named: AtomicU64::new(0),
            names: RwLock::new(Arc::new(Names::new(
                &catalogue,
                config.cluster.sites.clone(),
            ))),
            requests: Arc::new(Semaphore::new(config.limits.requests)),
            kib: Arc::new(Semaphore::new(
                resolved.clients.request_bytes.div_ceil(1 << 10),
            )),
            next_call: AtomicU64::new(1),
            own: (own, AtomicU64::new(0)),
            tls,
            drawn: AtomicU64::new(0),
            access,
            lasting: Arc::default(),
            backend,
            metrics,
        }
    }

    /// What the stores of its engine are shown, where that is over TLS.
    pub(crate) fn stores(&self) -> Option<&Trust> {
        match &self.backend {
            Backend::Engine(engine) => engine.stores.as_ref(),
            Backend::Driver(_) => None,
        }
    }

    /// Bytes of the largest value: a setting of the cluster, or what the engine takes.
    pub(crate) fn value_max(&self) -> usize {
        match &self.backend {
            Backend::Driver(mailbox) => mailbox.value_max.load(Ordering::Relaxed),
            Backend::Engine(_) => self.value_max,
        }
    }

    /// Bytes of the longest body of a request: a value, or the keys of a section, as text may be
    /// twice as long, and something is beside it.
    pub(crate) fn body_max(&self) -> usize {
        2 * self.value_max().max(self.keys_max) + (64 << 10)
    }

    /// The dictionary of keyspaces and sites.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.names
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The request that a message asks for. A keyspace that is not known is looked for first, for a
    /// caller who may know of it.
    pub(crate) async fn parse(&self, caller: &Caller, wire: Wire) -> Result<Request, Refusal> {
        // A heartbeat is of many sections, and each is judged.
        let admitted = match &wire {
            Wire::Renew(_) => self.access.admit(caller),
            wire => self.access.admit_to(caller, |is| names_keyspace(wire, is)),
        };
        admitted.inspect_err(|refusal| self.metrics.refused("malformed", refusal.code))?;
        if let Backend::Driver(mailbox) = &self.backend {
            // A name may be that of another keyspace by now.
            let version = mailbox.catalogue.load(Ordering::Relaxed);
            if self.named.load(Ordering::Relaxed) != version {
                self.refresh_names().await;
                self.named.store(version, Ordering::Relaxed);
            }
        }
        let mut names = self.names();
        if let Wire::Renew(renew) = &wire {
            // Of what its caller may not know of nobody is asked whether it is there.
            let keys = renew.held.iter().filter_map(|held| held.key.as_ref());
            let foreign = keys
                .map(|key| &key.keyspace)
                .filter(|name| names.keyspace(name).is_none() && !self.access.knows(caller, name));
            let foreign: Vec<String> = foreign.cloned().collect();
            for name in &foreign {
                names = Arc::new(Names::clone(&names).or_deleted(name));
            }
        }
        let parsed = match names_keyspace(&wire, |name| names.keyspace(name).is_none()) {
            false => request_from_proto(wire, &names, self.home),
            true => self.parse_new(wire).await,
        };
        parsed.inspect_err(|refusal| self.metrics.refused("malformed", refusal.code))
    }

    /// A request that names a keyspace which is not known here. The keeper of the catalogue decides
    /// whether there is one: other nodes' knowledge of it may be as old as this one's.
    async fn parse_new(&self, wire: Wire) -> Result<Request, Refusal> {
        let known = |wire| request_from_proto(wire, &self.names(), self.home);
        match known(wire.clone()) {
            Err(refusal) if refusal.code == Code::NoSuchKeyspace => {}
            refused => return refused,
        }
        let asked = tokio::time::timeout(KEEPER, self.ask_self(Operation::Catalogue)).await;
        let Ok(Ok(Reply::Keyspaces(all))) = asked else {
            return Err(Refusal::definite(
                Code::Unavailable,
                "this node does not know the keyspace, and the keeper of the catalogue, which \
                 would know whether there is one, has not answered: try again, or at another node",
            ));
        };
        self.learn_names(&all);
        // A heartbeat is of many sections, and goes on for the others.
        let Wire::Renew(renew) = &wire else {
            return known(wire);
        };
        let keys = renew.held.iter().filter_map(|held| held.key.as_ref());
        let names = Names::clone(&self.names());
        let names = keys.fold(names, |names, key| names.or_deleted(&key.keyspace));
        request_from_proto(wire, &names, self.home)
    }

    /// The page that an operation asks for, if it lists. What comes for it must be [`Page::cut`].
    pub(crate) fn page(&self, operation: &mut Operation) -> Option<Page> {
        let Operation::Keys { limit, .. } = operation else {
            return None;
        };
        let keys = *limit as usize;
        *limit = limit.saturating_add(1).min(self.listed_max);
        let asked = *limit as usize;
        Some(Page { keys, asked })
    }

    /// Hands a caller's request to what answers it; answers come to `sink` under `id`.
    ///
    /// # Errors
    /// [`Code::Unauthenticated`] and [`Code::Forbidden`], see [`Access::judge`]; [`Code::Busy`] if
    /// the node has too many requests or bytes open, or the caller; nothing was done.
    pub(crate) fn submit(
        &self,
        caller: &Caller,
        mut request: Request,
        id: u64,
        sink: Sink,
    ) -> Result<Open, Refusal> {
        let operation = operation_name(&request.operation);
        let mut changes = Vec::new();
        let admitted = self.admitted(caller, &mut request.operation, &mut changes);
        let (judgement, permits) =
            admitted.inspect_err(|refusal| self.refused(caller, operation, refusal))?;
        if let Some(reply) = all_denied(&judgement, &request.operation) {
            // Its reader has room for the first answer.
            let _ = sink.try_send((id, reply));
            return Ok(Open {
                at: At::Nowhere,
                done: true,
                _known: None,
            });
        }
        let (follow, poll) = kind(&request.operation);
        let lasting = matches!(
            request.operation,
            Operation::Enter { .. } | Operation::Resume { .. }
        );
        let told = sink.downgrade();
        let noted = lasting && !matches!(caller.who, Who::Node | Who::For(_));
        let noted = noted.then(|| request.operation.clone());
        let act = (operation, &request.operation);
        let audit = match caller.who {
            Who::Node => None,
            _ => self.access.audit.act(caller, &self.names(), act, &changes),
        };
        let asker = Call {
            id,
            sink,
            audit: audit.map(Mutex::new),
            follow,
            poll,
            lasting,
            operation,
            since: clock::monotonic(),
            view: judgement.view,
            _permits: permits,
            _used: judgement.used,
        };
        let at = match &self.backend {
            Backend::Driver(mailbox) => {
                let call = CallId(self.next_call.fetch_add(1, Ordering::Relaxed));
                mailbox.put(Event::Request(call, Box::new(request), asker));
                At::Driver(call, mailbox.clone())
            }
            Backend::Engine(engine) => At::Engine(engine.start(request, asker)),
        };
        let known = noted.map(|operation| {
            self.lasting.add(Lasting {
                caller: caller.clone(),
                operation,
                id,
                sink: told,
                at: at.clone(),
            })
        });
        Ok(Open {
            at,
            done: false,
            _known: known,
        })
    }

    /// What may be done of an operation, and the places that it takes. What may not is left out.
    fn admitted(
        &self,
        caller: &Caller,
        operation: &mut Operation,
        changes: &mut Vec<String>,
    ) -> Result<(Judgement, [OwnedSemaphorePermit; 2]), Refusal> {
        let (names, bytes) = (self.names(), payload(operation) + 1);
        let judgement = self.access.judge(caller, &names, operation, bytes)?;
        if let (Who::Peer(label), Operation::Admit { newcomer, .. }) = (&caller.who, &*operation)
            && self.access.is_enabled()
            && (newcomer.label != **label || self.roster.had(label))
        {
            let detail = format!(
                "the certificate is that of node {label}, which admits a new node of that label \
                 alone, and of none that was in the cluster before: use another label, or an \
                 administrator's token; nothing was done"
            );
            return Err(Refusal::definite(Code::Forbidden, detail));
        }
        if let Operation::ChangeAccess { after, policy } = operation {
            let (bytes, told) = self.access.prepared(caller, &names, *after, policy)?;
            (*policy, *changes) = (bytes.into(), told);
        }
        if let Operation::Renew { held } | Operation::Relinquish { held } = operation {
            for at in judgement.denied.iter().rev() {
                held.remove(*at);
            }
        }
        let place = self.requests.clone().try_acquire_owned();
        let place = place.map_err(|_| busy("too many requests (limits.requests)"))?;
        Ok((judgement, [place, self.admit_bytes(bytes)?]))
    }

    /// Notes that a caller's request was refused before it was passed on.
    fn refused(&self, caller: &Caller, operation: &'static str, refusal: &Refusal) {
        self.metrics.refused(operation, refusal.code);
        if matches!(refusal.code, Code::Forbidden | Code::Unauthenticated) {
            self.access
                .audit
                .refused(caller, operation, (refusal, None));
        }
    }

    /// Judges again what is open, as the policy is now.
    pub(crate) fn review(&self) {
        self.lasting.review(&self.access, &self.names());
    }

    /// A permit for so many bytes, in whole KiB.
    ///
    /// # Errors
    /// [`Code::Busy`] if they are too many beside those that have one.
    pub(crate) fn admit_bytes(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX);
        let permit = self.kib.clone().try_acquire_many_owned(kib);
        permit.map_err(|_| busy("as many bytes of requests as it may have (clients.request_bytes)"))
    }

    /// Asks for a caller and waits for the last answer; refusals are errors.
    pub(crate) async fn ask(&self, caller: &Caller, request: Request) -> Result<Reply, Refusal> {
        let (follow, poll) = kind(&request.operation);
        let (sink, mut answers) = mpsc::channel(4);
        let mut open = self.submit(caller, request, 0, sink)?;
        while let Some((_, reply)) = answers.recv().await {
            if is_last(&reply, follow, poll) {
                open.finish();
                return match reply {
                    Reply::Refused(refusal) => Err(refusal),
                    reply => Ok(reply),
                };
            }
        }
        Err(stopping())
    }

    /// Tells every face to end; the node is about to.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// The stop begins, and whoever waits for it has not been told yet.
    #[cfg(test)]
    pub(crate) fn close_untold(&self) {
        self.closing.send_if_modified(|closing| {
            *closing = true;
            false
        });
    }

    /// Whether the node has begun to stop.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Ready once the node begins to stop.
    pub(crate) async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        // The sender is here, so this ends by a stop only.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether the node is about to stop, or hands over what it leads: whoever has a stream here
    /// had better go on elsewhere.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_closing() || self.roster.known().drains(self.node)
    }

    /// Whether this node gives what it keeps for clients to others: it drains, and another does
    /// not.
    pub(crate) fn hands_over(&self) -> bool {
        self.roster.known().hands_over(self.node)
    }

    /// Ready once it does, and leads nothing, or has had its time for that: a lease that is given
    /// back is given back to a primary, and the next one counts it anew.
    pub(crate) async fn handing_over(&self) {
        let mut shown = self.roster.subscribe();
        loop {
            // The sender is here, so this ends by that only.
            let _ = shown.wait_for(|known| known.hands_over(self.node)).await;
            let until = Instant::now() + LEADS;
            while self.led.load(Ordering::Relaxed) > 0 && Instant::now() < until {
                tokio::time::sleep(LOOK).await;
            }
            tokio::time::sleep(BEGIN).await;
            if self.hands_over() {
                return;
            }
        }
    }

    /// The refusal of a session that this node hands over, or would have to.
    pub(crate) fn draining(&self) -> Refusal {
        let known = self.roster.known();
        let node = known.node(self.node);
        let label = node.map_or_else(|| self.node.0.to_string(), |node| node.label.clone());
        let detail = format!(
            "node {label} drains and keeps no session any more: open one at another node, and \
             resume there what this one held; nothing was done here"
        );
        Refusal::definite(Code::Unavailable, detail)
    }

    /// A request number above all that this node gave before: microseconds since 1970 or more.
    pub(crate) fn next_number(&self) -> u64 {
        let wall = clock::wall();
        let next = |last: u64| Some(wall.max(last + 1));
        let last = self
            .own
            .1
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        wall.max(last.unwrap_or_default() + 1)
    }

    /// A session's secret for a client without one, which tells nobody another's.
    pub(crate) fn draw_secret(&self) -> Secret {
        self.own
            .0
            .derive(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks in the node's own session.
    pub(crate) async fn ask_self(&self, operation: Operation) -> Result<Reply, Refusal> {
        let number = self.next_number();
        let request = Request {
            session: self.own.0.session(),
            number,
            attempt: 0,
            answered_through: 0,
            site: self.home,
            operation,
        };
        self.ask(&Caller::NODE, request).await
    }

    /// Asks the node for its catalogue and keeps the names.
    pub(crate) async fn refresh_names(&self) {
        if let Ok(Reply::Keyspaces(all)) = self.ask_self(Operation::Keyspaces).await {
            self.learn_names(&all);
        }
    }

    fn learn_names(&self, all: &[Keyspace]) {
        let names = Names::new(all, self.roster.known().sites.clone());
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }

    /// The native node's state.
    async fn status(&self) -> Result<NodeStatus, Refusal> {
        match self.ask_self(Operation::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// Looks at the node's state: health, gauges, names. Says when to look again.
    pub(crate) async fn look(&self) -> Duration {
        self.metrics.upkeep();
        let (found, again) = match &self.backend {
            Backend::Driver(_) => (self.look_at_node().await, LOOK),
            Backend::Engine(engine) => {
                // While it cannot tell, the last policy counts.
                let asked = tokio::time::timeout(KEEPER, self.ask_self(Operation::Access)).await;
                if let Ok(Ok(Reply::Access(access))) = asked {
                    engine.learn(access);
                }
                (engine.health().await.map(|()| (true, vec![])), ASK)
            }
        };
        let known = found.is_ok();
        let (healthy, short) = found.unwrap_or_else(|why| (false, vec![why]));
        *self.short.write().unwrap_or_else(PoisonError::into_inner) = short;
        self.healthy.store(healthy, Ordering::Relaxed);
        if known {
            // Late names are looked for when they are used.
            let _ = tokio::time::timeout(KEEPER, self.refresh_names()).await;
        }
        again
    }

    /// Whether the native node is healthy, and a line for each keyspace that is not.
    async fn look_at_node(&self) -> Result<(bool, Vec<String>), String> {
        let status = self.status().await.map_err(|refusal| refusal.detail)?;
        let led = status
            .logs
            .iter()
            .filter(|l| l.primary == Some(status.node))
            .count();
        self.metrics.logs_led.set(led as f64);
        self.led.store(led, Ordering::Relaxed);
        let alive = status.alive.iter().filter(|n| **n != status.node).count();
        self.metrics.peers_alive.set(alive as f64);
        self.metrics.stores(&status);
        let names = self.names();
        let site = |site| names.site_name(site);
        self.metrics.holders(&status.held, site);
        let healthy = self.pulse.is_started() && self.has_quorums(&status);
        let short = status.storage.iter().filter_map(shortage).collect();
        Ok((healthy, short))
    }

    /// Whether a quorum is in reach, and the node is not about to stop.
    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.is_closing()
    }

    /// Whether what answers here goes on at all, be it healthy or not.
    pub(crate) fn is_alive(&self) -> bool {
        match &self.backend {
            Backend::Driver(_) => self.pulse.is_beating(clock::monotonic()),
            Backend::Engine(_) => true,
        }
    }

    /// Why the node is not healthy, as it was when it was looked at last.
    pub(crate) fn ailment(&self) -> String {
        match &self.backend {
            Backend::Engine(_) => self.short().pop().unwrap_or_else(|| {
                "this node has just started or is about to stop: ask another node".into()
            }),
            Backend::Driver(_) => {
                "this node cannot reach a quorum of every group, or is about to stop: ask another \
                 node"
                    .into()
            }
        }
    }

    /// The cluster as this node was told of it, with what it has to say of itself now.
    pub(crate) fn about(&self) -> v1::ClusterInfo {
        let known = self.roster.known();
        let node = |node: &NodeInfo| v1::NodeAddress {
            node: node.name.0,
            label: node.label.clone(),
            site: known.site(node.site).to_owned(),
            grpc: node.addresses.grpc.clone(),
            rest: node.addresses.rest.clone(),
            drains: known.drains(node.name),
        };
        let mut about = v1::ClusterInfo {
            cluster: Bytes::copy_from_slice(&self.cluster.0.to_be_bytes()),
            node: self.node.0,
            nodes: known.nodes.iter().map(node).collect(),
            sites: known.sites.clone(),
            segment_bits: self.segment_bits.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            engine: self.engine.clone(),
            ailment: String::new(),
            boot_us: clock::monotonic(),
        };
        if !about.engine.is_empty() && !self.healthy.load(Ordering::Relaxed) {
            about.ailment = self.ailment();
        }
        about
    }

    /// A line for each keyspace that had lost its quorum when the node was looked at last.
    pub(crate) fn short(&self) -> Vec<String> {
        let short = self.short.read();
        short.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a majority of every group is alive, as far as this node knows.
    fn has_quorums(&self, status: &NodeStatus) -> bool {
        self.roster.known().groups.iter().all(|group| {
            let alive = |n| n == status.node || status.alive.contains(&n);
            group.view.nodes().filter(|n| alive(*n)).count() >= group.view.majority()
        })
    }
}

/// The line of a keyspace of which too few members are in reach.
fn shortage(storage: &StorageStatus) -> Option<String> {
    let reach = storage.reach.filter(|reach| !reach.suffices())?;
    Some(format!(
        "{}: {} of {} members, needs {}: unavailable",
        storage.keyspace, reach.heard, reach.members, reach.needed
    ))
}

/// The answer to a heartbeat of which nothing may be asked.
fn all_denied(judgement: &Judgement, operation: &Operation) -> Option<Reply> {
    let all = matches!(operation,
        Operation::Renew { held } | Operation::Relinquish { held } if held.is_empty());
    let view = judgement.view.as_ref().filter(|_| all)?;
    Some(view.show(Reply::Renewed { states: vec![] }))
}

/// The refusal of a request beside so many others.
fn busy(what: &str) -> Refusal {
    let detail = format!("this node has {what} open: try again later, or at another node");
    Refusal::definite(Code::Busy, detail)
}

/// The refusal of a node that goes down before it has answered.
pub(crate) fn stopping() -> Refusal {
    Refusal::unknown(
        Code::Unavailable,
        "this node is stopping: ask again at another node",
    )
}

/// The refusal for an answer that does not fit its question: a defect of ours, told, not hidden.
pub(crate) fn unexpected(reply: &impl std::fmt::Debug) -> Refusal {
    tracing::error!(?reply, "an answer does not fit its question");
    Refusal::unknown(
        Code::Unavailable,
        "the node gave an answer that does not fit the question",
    )
}

/// Bytes of keys and values that a request carries.
fn payload(operation: &Operation) -> usize {
    match operation {
        Operation::Put { key, value } | Operation::Write { key, value } => {
            key.key.len() + value.as_ref().map_or(0, Bytes::len)
        }
        Operation::Critical {
            operation: Critical::Put { value, .. },
            leave,
            ..
        } => value.as_ref().map_or(0, Bytes::len) + leave.len() * 128,
        Operation::Enter { keys, .. } => keys.iter().map(|k| k.key.len()).sum(),
        Operation::Leave { keys } => keys.len() * 128,
        Operation::Renew { held }
        | Operation::Relinquish { held }
        | Operation::Resume { held, .. } => held.len() * 128,
        Operation::ChangeAccess { policy, .. } => policy.len(),
        Operation::Transact(transaction) => transaction.bytes(),
        Operation::Snapshot { parts, .. } => parts.iter().map(|p| p.item().longest() + 64).sum(),
        _ => 0,
    }
}
