//! The client: where every operation begins.

use crate::account::{self, Account, SharedAccount};
use crate::credentials::Credentials;
use crate::dial::Dial;
use crate::discovery::{self, Node, SharedNodes};
use crate::driver::{self, Command, Driver, Ended, SharedNames};
use crate::error::Error;
use crate::section::Section;
use bytes::Bytes;
use fermata_api::condition::{Change, Condition};
use fermata_api::convert::label_from;
use fermata_api::{Names, Secret, v1};
use fermata_protocol::base::{ClusterId, KeyId, Keyspace, LockRef, SiteId};
use fermata_protocol::catalogue::Access;
use fermata_protocol::client::{self as machine, Call, Endpoint, Session, Success, Ticket};
use fermata_protocol::registry::Newcomer;
use fermata_protocol::request::{
    Admitted, Held, Inspection, Mode, NodeStatus, QueueEntry, RingChange, RingStatus,
};
use fermata_protocol::settings::Setting;
use fermata_protocol::{Code, Refusal};
use fermata_tls::Trust;
use std::future::Future;
use std::io::Read;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// How a client connects and how patient it is.
#[derive(Clone, Debug)]
pub struct Options {
    /// At least one node, as `http://host:port`, or `https://host:port` over TLS. Other nodes are
    /// found through these.
    pub endpoints: Vec<String>,
    /// Whom the client trusts over TLS, and which certificate it shows, if any. None: it speaks in
    /// clear, and never so where this is given. None is the default.
    pub tls: Option<Trust>,
    /// What it shows to say who it is, where the cluster controls access and its certificate does
    /// not say it already. None is the default.
    pub credentials: Option<Credentials>,
    /// The client's site by name: its nodes are preferred. None: the order of `endpoints`.
    pub site: Option<String>,
    /// An operation that has no final answer after this fails as `Unavailable`; 30 s. An enter that
    /// has a place in the queue may take its `wait` in addition.
    pub request_timeout: Duration,
    /// A node that does not answer for this long is replaced by another; 3 s.
    pub attempt_timeout: Duration,
    /// Where every node has refused or failed to connect for this long, operations fail at once as
    /// `Unavailable`, before their time is over. None: they go on trying, as a service wants it
    /// whose cluster restarts. None is the default.
    pub unreachable_timeout: Option<Duration>,
    /// How long [`Client::connect`] waits for a node that knows the cluster; 2 s.
    pub discovery_timeout: Duration,
    /// Whether [`SectionHandle::get`](crate::SectionHandle::get) under a valid lease is answered
    /// from memory. It relies on this machine's clock rate being right to 0.1 % (F10);
    /// nothing else does.
    pub cached_gets: bool,
    /// How long a leave waits for the section's puts in flight before it gives them up; 1 s.
    pub leave_grace: Duration,
    /// What people see of this client's sections in the queues, such as `user@host:pid`: at most 64
    /// bytes on one line. Empty is the default.
    pub label: String,
}

impl Options {
    /// The defaults, with these endpoints.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Options {
        Options {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            credentials: None,
            site: None,
            request_timeout: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(3),
            unreachable_timeout: None,
            discovery_timeout: Duration::from_secs(2),
            cached_gets: true,
            leave_grace: Duration::from_secs(1),
            label: String::new(),
        }
    }

    /// Speaks TLS: the endpoints are `https://` then.
    #[must_use]
    pub fn tls(self, trust: Trust) -> Options {
        let tls = Some(trust);
        Options { tls, ..self }
    }

    /// Shows this to say who it is.
    #[must_use]
    pub fn credentials(self, credentials: Credentials) -> Options {
        let credentials = Some(credentials);
        Options {
            credentials,
            ..self
        }
    }

    /// Prefers the nodes of this site.
    #[must_use]
    pub fn site(self, site: impl Into<String>) -> Options {
        let site = Some(site.into());
        Options { site, ..self }
    }
}

/// How a client connects, if these endpoints and what it shows make sense.
fn dial_of(options: &Options) -> Result<Dial, Error> {
    let dial = Dial {
        tls: options.tls.clone(),
        credentials: options.credentials.clone(),
    };
    if let Some(credentials) = &options.credentials {
        credentials.bearer().map_err(Error::Options)?;
    }
    for uri in &options.endpoints {
        dial.endpoint(uri)?;
    }
    Ok(dial)
}

/// How to enter a section.
#[derive(Clone, Debug)]
pub struct Enter {
    /// Exclusive, or shared: any number of readers, no writes.
    pub mode: Mode,
    /// Give up with `WaitOver` after this long, at most a day; none waits for a day, zero enters
    /// only where nobody else holds or waits.
    pub wait: Option<Duration>,
    /// How long the section survives this client's silence; none takes the keyspace's lease.
    pub lease: Option<Duration>,
}

impl Default for Enter {
    fn default() -> Enter {
        Enter {
            mode: Mode::Exclusive,
            wait: Some(Duration::from_secs(60)),
            lease: None,
        }
    }
}

/// Microseconds of a duration; more than half a million years read as that.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

const DAY: Duration = Duration::from_secs(86_400);

/// What all handles of one client share.
pub(crate) struct Shared {
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) names: SharedNames,
    next_ticket: AtomicU64,
    nodes: SharedNodes,
    dial: Dial,
    secret: Secret,
    account: SharedAccount,
    pub(crate) patience: Duration,
    /// The background task, until somebody waits for its end.
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Shared {
    /// Hands an operation to the background task now, and waits for its end when polled.
    pub(crate) fn begin(&self, call: Call) -> Pending {
        let enters = matches!(call, Call::Enter { .. });
        self.begun(enters, |ticket, tell| Command::Call(ticket, call, tell))
    }

    fn begun(
        &self,
        enters: bool,
        command: impl FnOnce(Ticket, oneshot::Sender<Ended>) -> Command,
    ) -> Pending {
        let ticket = Ticket(self.next_ticket.fetch_add(1, Ordering::Relaxed));
        let (tell, ended) = oneshot::channel();
        // Without the task the other half of the channel is gone too, and the wait ends at once.
        let _ = self.commands.send(command(ticket, tell));
        let commands = self.commands.clone();
        Pending {
            ticket,
            enters,
            commands,
            ended: Some(ended),
        }
    }

    pub(crate) async fn call(&self, call: Call) -> Result<Success, Error> {
        self.begin(call).end().await.map(|(answer, _)| answer)
    }
}

/// An operation in flight. Dropped before its end it goes on, but an enter is given up.
#[derive(Debug)]
pub(crate) struct Pending {
    ticket: Ticket,
    enters: bool,
    commands: UnboundedSender<Command>,
    ended: Option<oneshot::Receiver<Ended>>,
}

type Fates = Option<tokio::sync::watch::Receiver<driver::Fate>>;

impl Pending {
    pub(crate) async fn end(mut self) -> Result<(Success, Fates), Error> {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }

    pub(crate) fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Success, Fates), Error>> {
        let Some(ended) = self.ended.as_mut() else {
            return Poll::Ready(Err(Error::Closed));
        };
        let result = ready!(Pin::new(ended).poll(cx));
        self.ended = None;
        Poll::Ready(match result {
            Ok((result, fate)) => result.map(|answer| (answer, fate)).map_err(Error::from),
            Err(_) => Err(Error::Closed),
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.ended.take().is_some() && self.enters {
            // Without the task there is nothing to cancel.
            let _ = self.commands.send(Command::Cancel(self.ticket));
        }
    }
}

/// A client of one cluster: one session, one background task, one connection per node in use.
/// Clones share all of it. Must be made within a tokio runtime.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("nodes", &self.nodes())
            .finish_non_exhaustive()
    }
}

/// A node on an engine other than the native one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineStatus {
    /// The engine, its stores and their settings, in one line for people.
    pub engine: String,
    /// Why the node is not healthy, in a sentence; none: it is.
    pub ailment: Option<String>,
}

impl Client {
    /// Makes a client. Waits a little for a node that tells of the others; if none answers, the
    /// client tries the given endpoints again with every operation.
    ///
    /// # Errors
    /// [`Error::Options`] if there is no endpoint, one is not an `http://` URI (over TLS an
    /// `https://` one), or the label is too long.
    pub async fn connect(options: Options) -> Result<Client, Error> {
        if options.endpoints.is_empty() {
            let what = "A client needs at least one endpoint, for example http://127.0.0.1:7100.";
            return Err(Error::Options(what.into()));
        }
        let dial = dial_of(&options)?;
        let site = options.site.clone().unwrap_or_default();
        let wait = options.discovery_timeout;
        let (mut nodes, failed) =
            discovery::nodes(&dial, &options.endpoints, options.site.as_deref(), wait).await;
        // Nodes that others name badly are of no use.
        nodes.retain(|node| dial.endpoint(&node.endpoint).is_ok());
        nodes.truncate(usize::from(u16::MAX));
        let uris: Vec<_> = nodes
            .iter()
            .map(|node| dial.endpoint(&node.endpoint))
            .collect::<Result<_, _>>()?;
        let preferred: Vec<Endpoint> = (0..uris.len() as u32).map(Endpoint).collect();
        let patience = machine::Options {
            request: micros(options.request_timeout),
            attempt: micros(options.attempt_timeout),
            cached_gets: options.cached_gets,
            leave_grace: micros(options.leave_grace),
            label: label_from(&options.label).map_err(|e| Error::Options(e.detail))?,
            keyspaces_are_looked_up: true,
            ..machine::Options::default()
        };
        let secret = new_secret()?;
        let session = Session::new(secret.session(), SiteId(0), &preferred, patience);
        let names = Arc::new(Mutex::new(Names::default()));
        let account = account_of(&nodes, &failed);
        let give_up = driver::GiveUp {
            request: options.request_timeout,
            unreachable: options.unreachable_timeout,
        };
        let nodes: SharedNodes = Arc::new(Mutex::new(nodes));
        let known = driver::Nodes {
            known: nodes.clone(),
            dial: dial.clone(),
            site: options.site.clone(),
            patience: options.discovery_timeout,
        };
        let (driver, news) = Driver::new(
            (session, secret),
            names.clone(),
            (site, known),
            uris,
            (account.clone(), give_up),
        );
        let (commands, taken) = unbounded_channel();
        let task = Mutex::new(Some(tokio::spawn(driver.run(taken, news))));
        let shared = Shared {
            commands,
            names,
            next_ticket: AtomicU64::new(1),
            nodes,
            dial,
            secret,
            account,
            patience: options.request_timeout,
            task,
        };
        Ok(Client {
            shared: Arc::new(shared),
        })
    }

    /// How this client connects.
    pub(crate) fn dial(&self) -> &Dial {
        &self.shared.dial
    }

    /// The nodes that this client knows: at first in its order of preference, then those that have
    /// come since. Who has left keeps its place.
    pub fn nodes(&self) -> Vec<Node> {
        discovery::locked(&self.shared.nodes).clone()
    }

    /// The secret of this client's session. Its owner may act in the client's sections, and needs
    /// no other to resume them: a program that writes down what it holds writes it down, too, where
    /// only it can read.
    pub fn secret(&self) -> Secret {
        self.shared.secret
    }

    /// What the nodes that were asked lately said last, as errors tell it: `ohio-1 at
    /// 10.0.0.1:7100: connection refused; …`. Empty if none was asked.
    pub fn heard(&self) -> String {
        account::locked(&self.shared.account).sentence(self.shared.patience, "")
    }

    /// Ends the use of the client, for a program that is about to: waits, but not longer than
    /// `patience`, until what goes on in the background is done, as the leave of a section that was
    /// dropped or could not be entered. It waits for its clones and sections, too.
    pub async fn close(self, patience: Duration) {
        let task = self
            .shared
            .task
            .lock()
            .ok()
            .and_then(|mut task| task.take());
        drop(self);
        if let Some(task) = task {
            // Not done by then, it is left to the lease.
            let _ended = tokio::time::timeout(patience, task).await;
        }
    }

    /// The name of a site in a [`NodeStatus`] or a [`QueueEntry`] of this client.
    pub fn site_name(&self, site: SiteId) -> String {
        driver::names(&self.shared.names).site_name(site)
    }

    /// The name of the keyspace of a key in a [`Held`] of this client. The number itself means
    /// nothing outside of it.
    pub fn keyspace_name(&self, key: &KeyId) -> String {
        driver::names(&self.shared.names).keyspace_name(key.keyspace)
    }

    /// A key as this client's sections name it, for [`Client::resume`].
    pub fn key(&self, keyspace: &str, key: impl AsRef<[u8]>) -> KeyId {
        KeyId {
            keyspace: driver::names(&self.shared.names).add_keyspace(keyspace),
            key: Bytes::copy_from_slice(key.as_ref()),
        }
    }

    /// Eventual read at one replica (MUSIC `get`, §III-B): no wide-area round trip, may be stale.
    ///
    /// # Errors
    /// `WrongPurpose` in a register keyspace; and what every operation can get: `Unavailable`,
    /// `Busy`, `NoSuchKeyspace`, `BadRequest`.
    pub async fn get(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        let key = self.key(keyspace, key);
        value(self.shared.call(Call::Get { key }).await?)
    }

    /// Eventual write at one replica (MUSIC `put`): the last writer wins; never changes what the
    /// holder of a section reads.
    ///
    /// # Errors
    /// `Locked` while somebody holds or waits for the key; `DiskFull`, `TooLarge`, and as
    /// [`Client::get`].
    pub async fn put(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<(), Error> {
        let key = self.key(keyspace, key);
        let value = Some(value.into());
        self.shared.call(Call::Put { key, value }).await.map(drop)
    }

    /// Eventual delete: a [`Client::put`] of nothing.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub async fn delete(&self, keyspace: &str, key: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (self.key(keyspace, key), None);
        self.shared.call(Call::Put { key, value }).await.map(drop)
    }

    /// Linearizable read.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn read(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Bytes>, Error> {
        let key = self.key(keyspace, key);
        value(self.shared.call(Call::Read { key }).await?)
    }

    /// Linearizable write, or delete; in a section keyspace it is a section of its own (MUSIC's CP
    /// put). It is not repeated once it may have reached a node, so that it takes effect at most
    /// once.
    ///
    /// # Errors
    /// As [`Client::put`], without `Locked`.
    pub async fn write(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
        value: Option<Bytes>,
    ) -> Result<(), Error> {
        let key = self.key(keyspace, key);
        self.shared.call(Call::Write { key, value }).await.map(drop)
    }

    /// Linearizable write, or delete, of a key of a section keyspace if `condition` is so of it
    /// (compare-and-set): a section of its own, in two round trips where nobody is in line. Behind
    /// a holder it waits for `wait`, at most a day.
    ///
    /// # Errors
    /// `WaitOver` where others held the key all the time; `WrongPurpose` in a register keyspace,
    /// which has no sections; and as [`Client::write`].
    pub async fn write_if(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
        value: Option<Bytes>,
        condition: &Condition,
        wait: Duration,
    ) -> Result<Change, Error> {
        let (key, wait) = (key.as_ref(), Some(wait));
        let enter = Enter {
            wait,
            ..Enter::default()
        };
        let entered = self.enter(keyspace, &[key], enter).await;
        let section = entered.map_err(|error| error.of_change(false))?;
        section.change_at_entry(key, value, condition).await
    }

    /// Up to `limit` keys of a keyspace in order, 1 to 10,000 (0: 1,000), or fewer although there
    /// are more ([`Client::pages`] has all): those that start with `prefix` and are above `after`.
    /// May be stale.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn keys(
        &self,
        keyspace: &str,
        prefix: impl AsRef<[u8]>,
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<Vec<Bytes>, Error> {
        let keyspace = driver::names(&self.shared.names).add_keyspace(keyspace);
        let call = Call::Keys {
            keyspace,
            prefix: Bytes::copy_from_slice(prefix.as_ref()),
            after: after.map(Bytes::copy_from_slice),
            limit,
        };
        match self.shared.call(call).await? {
            Success::Keys(keys) => Ok(keys),
            other => Err(surprised(&other)),
        }
    }

    /// A key's lock queue, head first, and whether its next holder must synch (MUSIC's `synchFlag`,
    /// §IV-B).
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn queue(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<(Vec<QueueEntry>, bool), Error> {
        let key = self.key(keyspace, key);
        match self.shared.call(Call::Queue { key }).await? {
            Success::Queue { entries, flag } => Ok((entries, flag.is_some())),
            other => Err(surprised(&other)),
        }
    }

    /// What one replica holds of a key, at a node of [`Client::nodes`] or any: for support.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn inspect(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
        node: Option<usize>,
    ) -> Result<Inspection, Error> {
        let key = self.key(keyspace, key);
        let at = self.endpoint(node)?;
        match self.shared.call(Call::Inspect { key, at }).await? {
            Success::Inspect(inspection) => Ok(inspection),
            other => Err(surprised(&other)),
        }
    }

    /// The state of a node of [`Client::nodes`], or of any: for support.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn status(&self, node: Option<usize>) -> Result<NodeStatus, Error> {
        let at = self.endpoint(node)?;
        match self.shared.call(Call::Status { at }).await? {
            Success::Status(status) => Ok(*status),
            other => Err(surprised(&other)),
        }
    }

    /// The boot-time clock of a node of [`Client::nodes`], microseconds, at some moment of this
    /// call.
    ///
    /// # Errors
    /// `Unavailable`: it did not answer within the client's time for one operation.
    pub async fn boot_clock(&self, node: usize) -> Result<u64, Error> {
        Ok(self.told(node).await?.boot_us)
    }

    /// The cluster of a node of [`Client::nodes`], as the node says.
    ///
    /// # Errors
    /// `Unavailable`: it did not answer within the client's time for one operation, or said no
    /// name.
    pub async fn cluster(&self, node: usize) -> Result<ClusterId, Error> {
        let said = self.told(node).await?.cluster;
        let name: Result<[u8; 16], _> = said[..].try_into();
        let no_name = |_| Refusal::definite(Code::Unavailable, "the node says no cluster's name");
        Ok(ClusterId(u128::from_be_bytes(name.map_err(no_name)?)))
    }

    /// What a node says of itself and its cluster.
    async fn told(&self, node: usize) -> Result<v1::ClusterInfo, Error> {
        let node = discovery::locked(&self.shared.nodes).get(node).cloned();
        let node = node.ok_or_else(|| Error::Options("There is no node of that index.".into()))?;
        let patience = self.shared.patience;
        let ask = discovery::ask(&self.shared.dial, &node.endpoint);
        let asked = tokio::time::timeout(patience, ask).await;
        let said = asked.unwrap_or_else(|_| Err(account::no_answer(patience)));
        said.map_err(|why| Refusal::definite(Code::Unavailable, why).into())
    }

    /// The engine of a node of [`Client::nodes`], and whether it is healthy: none on the native
    /// one, whose [`Client::status`] says more.
    ///
    /// # Errors
    /// `Unavailable`: it did not answer within the client's time for one operation.
    pub async fn engine(&self, node: usize) -> Result<Option<EngineStatus>, Error> {
        let said = self.told(node).await?;
        let ailment = Some(said.ailment).filter(|why| !why.is_empty());
        Ok(Some(said.engine)
            .filter(|engine| !engine.is_empty())
            .map(|engine| EngineStatus { engine, ailment }))
    }

    /// The keyspaces, as one node knows them.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn keyspaces(&self) -> Result<Vec<Keyspace>, Error> {
        match self.shared.call(Call::Keyspaces).await? {
            Success::Keyspaces(keyspaces) => Ok(keyspaces),
            other => Err(surprised(&other)),
        }
    }

    /// Creates a keyspace; its `id` is ignored.
    ///
    /// # Errors
    /// `KeyspaceExists`, and as [`Client::get`].
    pub async fn create_keyspace(&self, keyspace: Keyspace) -> Result<(), Error> {
        let call = Call::CreateKeyspace(keyspace);
        self.shared.call(call).await.map(drop)
    }

    /// Changes the lease, or the longest section, of a keyspace; none: as it is. Who is in a
    /// section, or waits for one, keeps the terms with which it asked.
    ///
    /// # Errors
    /// `NoSuchKeyspace`, `BadRequest` for one that every cluster has or for times out of bounds;
    /// and as [`Client::get`].
    pub async fn change_keyspace(
        &self,
        keyspace: &str,
        lease: Option<Duration>,
        section_max: Option<Duration>,
    ) -> Result<(), Error> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let call = Call::ChangeKeyspace {
            keyspace: driver::names(&self.shared.names).add_keyspace(keyspace),
            lease: lease.map(micros),
            section_max: section_max.map(micros),
        };
        self.shared.call(call).await.map(drop)
    }

    /// Deletes a keyspace and all that is in it: nothing of it comes back, and a new one of the
    /// same name begins empty. Sections in it are lost.
    ///
    /// # Errors
    /// `NoSuchKeyspace`, `BadRequest` for one that every cluster has; and as [`Client::get`].
    pub async fn delete_keyspace(&self, keyspace: &str) -> Result<(), Error> {
        let keyspace = driver::names(&self.shared.names).add_keyspace(keyspace);
        let call = Call::DeleteKeyspace { keyspace };
        self.shared.call(call).await.map(drop)
    }

    /// Who may do what: the policy that docs/security.md describes, with every change that was
    /// answered before.
    ///
    /// # Errors
    /// `Forbidden` for who is no administrator; and as [`Client::get`].
    pub async fn access(&self) -> Result<Access, Error> {
        match self.shared.call(Call::Access).await? {
            Success::Access(access) => Ok(access),
            other => Err(surprised(&other)),
        }
    }

    /// Replaces that policy, if it is the one of version `after` still.
    ///
    /// # Errors
    /// `Conflict` where it is not; `BadRequest` for one that is malformed, or that leaves nobody
    /// who could change it; `Forbidden` for who is no administrator; and as [`Client::get`].
    pub async fn change_access(&self, after: u64, policy: Bytes) -> Result<(), Error> {
        let call = Call::ChangeAccess { after, policy };
        self.shared.call(call).await.map(drop)
    }

    /// Changes the read lease, or the format, of all nodes of the cluster. It is begun once this
    /// returns, and over when every node knows: [`NodeStatus::settings`] says so.
    ///
    /// # Errors
    /// `BadRequest` for a lease below twice a beat or above ten minutes, for a format but the next
    /// one, while another change is under way, and with another engine than the native one; and as
    /// [`Client::get`].
    pub async fn change_settings(&self, setting: Setting) -> Result<(), Error> {
        self.shared
            .call(Call::ChangeSettings(setting))
            .await
            .map(drop)
    }

    /// Who is in the cluster, and where its groups are, as one node knows it.
    ///
    /// # Errors
    /// `BadRequest` with another engine than the native one; and as [`Client::get`].
    pub async fn ring(&self) -> Result<RingStatus, Error> {
        match self.shared.call(Call::Ring).await? {
            Success::Ring(ring) => Ok(*ring),
            other => Err(surprised(&other)),
        }
    }

    /// Changes who is in the cluster, or the members of a group. It is begun once this returns, and
    /// over when [`Client::ring`] shows it.
    ///
    /// # Errors
    /// `BadRequest` where it is not possible now, `Unavailable` where too few of a group's next
    /// members are heard; and as [`Client::get`].
    pub async fn change_ring(&self, change: RingChange) -> Result<(), Error> {
        self.shared.call(Call::ChangeRing(change)).await.map(drop)
    }

    /// Gives a new data directory its name in the cluster, or tells which it has. For a node that
    /// joins, whose program reads these formats.
    ///
    /// # Errors
    /// `BadRequest` for a label that another node has, or a program that does not read the
    /// cluster's format; and as [`Client::get`].
    pub async fn admit(
        &self,
        newcomer: Newcomer,
        formats: RangeInclusive<u16>,
    ) -> Result<Admitted, Error> {
        match self.shared.call(Call::Admit { newcomer, formats }).await? {
            Success::Admitted(admitted) => Ok(*admitted),
            other => Err(surprised(&other)),
        }
    }

    /// Ends somebody's section, or removes a waiting ref (MUSIC `forcedRelease`, §IV-B). May take
    /// one lease, which the holder may still be using.
    ///
    /// # Errors
    /// `NoLongerHolder` where the ref was past already, `NotHolder` where it was never given; and
    /// as [`Client::get`].
    pub async fn release(
        &self,
        keyspace: &str,
        key: impl AsRef<[u8]>,
        lock_ref: LockRef,
    ) -> Result<(), Error> {
        let key = self.key(keyspace, key);
        let call = Call::Release { key, lock_ref };
        self.shared.call(call).await.map(drop)
    }

    /// Enters a section over one or more keys of one keyspace (MUSIC `createLockRef` and
    /// `acquireLock`, §III-A), all or none. Dropped before it ends, it gives its place in the queue
    /// up.
    ///
    /// # Errors
    /// `WaitOver`; `NoLongerHolder` when the place in the queue was lost; `WrongPurpose` in a
    /// register keyspace; and as [`Client::get`].
    pub async fn enter<K: AsRef<[u8]>>(
        &self,
        keyspace: &str,
        keys: &[K],
        enter: Enter,
    ) -> Result<Section, Error> {
        let keys = keys.iter().map(|key| self.key(keyspace, key)).collect();
        self.enter_keys(keys, enter).await
    }

    /// [`Client::enter`] over keys of several keyspaces, made by [`Client::key`].
    ///
    /// # Errors
    /// As [`Client::enter`].
    pub async fn enter_keys(&self, keys: Vec<KeyId>, enter: Enter) -> Result<Section, Error> {
        let call = Call::Enter {
            keys,
            mode: enter.mode,
            wait: micros(enter.wait.unwrap_or(DAY).min(DAY)),
            lease: enter.lease.map(micros),
        };
        self.entered(self.shared.begin(call)).await
    }

    /// Goes on in a section whose client was lost, or takes it over, under a new generation
    /// (F16). `secret` is the former client's ([`Client::secret`]), whose operations fail from then
    /// on.
    ///
    /// # Errors
    /// `NoLongerHolder` if the section is over or was resumed by another, `NotHolder` if it is of
    /// another session than the secret's; and as [`Client::get`].
    pub async fn resume(&self, held: Vec<Held>, secret: Secret) -> Result<Section, Error> {
        let command = |ticket, tell| Command::Resume(ticket, held, secret, tell);
        self.entered(self.shared.begun(true, command)).await
    }

    async fn entered(&self, pending: Pending) -> Result<Section, Error> {
        match pending.end().await? {
            (Success::Entered { section, keys }, Some(fate)) => {
                Ok(Section::new(self.clone(), section, keys, fate))
            }
            // Not to wait at all is the machine's word for polling: it would keep the place.
            (Success::Waiting { section, .. }, _) => {
                let wait = true;
                // Not confirmed, it goes on in the background, and the lease ends it at worst.
                let _left = self.shared.call(Call::Leave { section, wait }).await;
                let detail = "The lock is held or waited for by somebody else.";
                Err(Refusal::definite(Code::WaitOver, detail).into())
            }
            (other, _) => Err(surprised(&other)),
        }
    }

    fn endpoint(&self, node: Option<usize>) -> Result<Option<Endpoint>, Error> {
        let Some(at) = node else {
            return Ok(None);
        };
        if at >= discovery::locked(&self.shared.nodes).len() {
            return Err(Error::Options("There is no node of that index.".into()));
        }
        Ok(u32::try_from(at).ok().map(Endpoint))
    }
}

/// The account of a new client: so far only its discovery has asked.
fn account_of(nodes: &[Node], failed: &[(String, String)]) -> SharedAccount {
    let mut account = Account::new(nodes.iter().map(account::who));
    for (uri, why) in failed {
        let of = |node: &Node| node.endpoint == uri.trim_end_matches('/');
        if let Some(at) = nodes.iter().position(of) {
            account.note(at, why.clone());
        }
    }
    Arc::new(Mutex::new(account))
}

/// The value of an answer that is one.
pub(crate) fn value(answer: Success) -> Result<Option<Bytes>, Error> {
    match answer {
        Success::Value { value, .. } => Ok(value),
        other => Err(surprised(&other)),
    }
}

/// A node answered a question that was not asked.
pub(crate) fn surprised(answer: &Success) -> Error {
    let detail = format!("A node gave an answer that does not fit the question: {answer:?}.");
    Error::Refused(Refusal::unknown(Code::Unavailable, detail))
}

/// 128 random bits that nobody else knows.
pub(crate) fn new_secret() -> Result<Secret, Error> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| {
            Error::Options(format!("This machine gives no random numbers: {error}."))
        })?;
    Ok(Secret::new(u128::from_be_bytes(bytes)))
}
