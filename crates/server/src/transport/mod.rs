//! Messages between nodes: one TCP connection per ordered pair, many messages per frame.
//!
//! **Problem.** The protocol tolerates loss, repetition and reordering; what it needs from the
//! shell is that a message comes from the incarnation it claims, that a batch of messages costs one
//! write, that no peer, slow, gone or hostile, makes memory grow, and that a network that works
//! carries messages, whatever it did before.
//!
//! **Idea.** A node connects to every peer and sends on that connection. The first frame is a
//! [`Greeting`]; the answer to it is one frame too. After it come frames of
//! [`fermata_protocol::wire::frame`], each with everything that waited for the peer. Queues are
//! bounded: towards an unreachable peer the oldest messages are dropped (the protocol sends again),
//! from a fast peer no more is read than the driver has taken, and what a hostile one sends takes
//! little more memory than it takes bytes. Both ends of a connection beat, give it up when they
//! hear nothing for a lease ([`ending`]), and an incarnation has one place at its peer's port
//! ([`places`]). Who is a peer the registry says, and connections are opened and closed as it
//! changes ([`crate::roster`]). `docs/formats/wire.md` has the bytes. All of it runs over TLS where
//! the node is configured so ([`wire`]): then a greeting is believed only from whom the certificate
//! names.
//!
//! **Invariant.** A message is carried once at most: it is taken from its queue before it is
//! written, and a connection that ends takes it along (docs/faults.md, G25, G44).
//!
//! Delays between sites are emulated here, by holding outgoing messages ([`delay`]), so that they
//! need no privileges.

mod delay;
mod ending;
mod incoming;
mod outgoing;
mod places;
mod told;
mod wire;

pub(crate) use incoming::{Incoming, listen};
pub(crate) use places::Places;

use crate::clock::Clock;
use crate::config::{NodeConfig, Resolved};
use crate::mailbox::Mailbox;
use crate::metrics::Metrics;
use crate::roster::Known;
use crate::wan::Profile;
use delay::Delayer;
use ending::Patience;
use fermata_protocol::Message;
use fermata_protocol::base::{ClusterId, Incarnation, NodeId, NodeInfo, NodeName, SiteId};
use fermata_tls::Keeper;
use outgoing::Outgoing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A greeting is at most this long.
const GREETING_MAX: usize = 256;
/// A greeting that takes longer than this is given up.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
/// For so long a node is sent what is meant for it after it has left the cluster: the answer to
/// whoever asked there for that, and that it has left.
const FAREWELL: Duration = Duration::from_secs(2);
/// First bytes of every greeting.
const MAGIC: [u8; 8] = *b"FERMATA\n";

/// In the greeting of a node that refuses the other one, which is not to know who it is. With the
/// other's name before it: the cluster has taken that one out.
const NOBODY: Incarnation = Incarnation(0);

/// The first frame in each direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) magic: [u8; 8],
    /// The format of the frames that follow.
    pub(crate) version: u16,
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeName,
    /// Which run of the sender's process this is. In a refusal: the run that keeps the other out.
    pub(crate) run: Run,
}

/// What a peer greets with.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn fuzz(bytes: &[u8]) {
    use fermata_protocol::wire;
    if let Ok(greeting) = wire::decode::<Greeting>(bytes) {
        assert_eq!(wire::decode(&wire::encode(&greeting)), Ok(greeting));
    }
}

/// One run of a node's process, drawn at its start. Of two that live at the same time under one
/// incarnation, one has a copy of the other's data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run(pub(crate) u64);

/// The outgoing half: where the driver leaves messages.
pub(crate) struct Peers {
    cluster: ClusterId,
    id: NodeId,
    run: Run,
    places: Places,
    site: SiteId,
    profile: Profile,
    patience: Patience,
    /// Where this node's file has others, which is tried, too.
    file: BTreeMap<NodeName, String>,
    /// Where this node reaches those of these labels, whatever others say.
    reach: BTreeMap<String, String>,
    tls: Option<Arc<Keeper>>,
    clock: Arc<Clock>,
    mailbox: Arc<Mailbox>,
    metrics: Arc<Metrics>,
    runtime: Handle,
    out: BTreeMap<NodeName, Peer>,
    /// Some of them have left.
    parting: bool,
    delayer: Option<Delayer>,
}

/// A queue to one peer, and the task that empties it.
struct Peer {
    queue: Arc<Outgoing>,
    task: JoinHandle<()>,
    /// It is in the cluster no more, and is told so until then.
    until: Option<Instant>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peers {
    /// Nobody yet; tasks run on the present runtime.
    pub(crate) fn new(
        resolved: &Resolved,
        (id, run, places): (NodeId, Run, &Places),
        tls: Option<Arc<Keeper>>,
        clock: &Arc<Clock>,
        mailbox: &Arc<Mailbox>,
        metrics: &Arc<Metrics>,
    ) -> std::io::Result<Peers> {
        let delayer = match resolved.profile.is_none() {
            true => None,
            false => Some(Delayer::start()?),
        };
        let address = |node: &NodeConfig| (NodeName(node.name), node.peer.clone());
        Ok(Peers {
            cluster: resolved.config.cluster.id,
            id,
            run,
            places: places.clone(),
            site: resolved.site,
            profile: resolved.profile.clone(),
            patience: Patience::new(&resolved.config.timing),
            file: resolved.nodes.iter().map(address).collect(),
            reach: resolved.reach.clone(),
            tls,
            clock: clock.clone(),
            mailbox: mailbox.clone(),
            metrics: metrics.clone(),
            runtime: Handle::current(),
            out: BTreeMap::new(),
            parting: false,
            delayer,
        })
    }

    /// From now on these are the nodes of the cluster: connections are opened and closed.
    pub(crate) fn update(&mut self, known: &Known) {
        for (name, peer) in &mut self.out {
            let until = peer.until.unwrap_or_else(|| Instant::now() + FAREWELL);
            peer.until = known.node(*name).is_none().then_some(until);
        }
        self.parting = self.out.values().any(|peer| peer.until.is_some());
        let me = self.id.name;
        for node in known.nodes.iter().filter(|node| node.name != me) {
            let addresses = self.addresses_of(node);
            match self.out.get(&node.name) {
                Some(peer) => peer.queue.reach_at(addresses),
                None => self.open(node, addresses),
            }
        }
    }

    /// Closes the connections to those who have left for a while.
    pub(crate) fn part(&mut self) {
        if !self.parting {
            return;
        }
        let now = Instant::now();
        let over = |peer: &Peer| peer.until.is_some_and(|until| until <= now);
        let delayer = &self.delayer;
        self.out.retain(|name, peer| {
            let over = over(peer);
            if let Some(delayer) = delayer.as_ref().filter(|_| over) {
                delayer.forget(*name);
            }
            !over
        });
        self.parting = self.out.values().any(|peer| peer.until.is_some());
    }

    fn addresses_of(&self, node: &NodeInfo) -> Vec<String> {
        if let Some(address) = self.reach.get(&node.label) {
            return vec![address.clone()];
        }
        let mut addresses = vec![node.addresses.peer.clone()];
        addresses.extend(self.file.get(&node.name).cloned());
        addresses.dedup();
        addresses.retain(|address| !address.is_empty());
        addresses
    }

    fn open(&mut self, node: &NodeInfo, addresses: Vec<String>) {
        let greeting = Greeting {
            magic: MAGIC,
            version: fermata_protocol::wire::VERSION,
            cluster: self.cluster,
            from: self.id,
            to: node.name,
            run: self.run,
        };
        let (clock, metrics) = (self.clock.clone(), self.metrics.peer(&node.label));
        let places = self.places.clone();
        let at = (node.label.clone(), addresses);
        let queue = Outgoing::new((greeting, places), at, self.tls.clone(), clock, metrics);
        let queue = Arc::new(queue);
        let delay = self.profile.one_way(self.site, node.site);
        if let Some(delayer) = self.delayer.as_ref().filter(|_| !delay.is_zero()) {
            delayer.hold(node.name, delay, queue.clone());
        }
        let (mailbox, metrics) = (self.mailbox.clone(), self.metrics.clone());
        let run = outgoing::run(queue.clone(), self.patience, mailbox, metrics);
        let task = self.runtime.spawn(run);
        let until = None;
        self.out.insert(node.name, Peer { queue, task, until });
    }

    /// Sends messages, in order, once the delay to that peer is over; never waits.
    pub(crate) fn send(&self, to: NodeName, messages: Vec<Message>) {
        if let Some(delayer) = &self.delayer
            && delayer.holds(to)
        {
            delayer.send(to, messages);
        } else if let Some(peer) = self.out.get(&to) {
            peer.queue.push(messages);
        }
    }
}
