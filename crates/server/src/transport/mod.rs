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
//! ([`places`]). `docs/formats/wire.md` has the bytes.
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

pub(crate) use incoming::{Incoming, listen};

use crate::clock::Clock;
use crate::config::Resolved;
use crate::mailbox::Mailbox;
use crate::metrics::Metrics;
use delay::Delayer;
use ending::Patience;
use fermata_protocol::Message;
use fermata_protocol::base::{ClusterId, Incarnation, NodeId, NodeName};
use outgoing::Outgoing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A greeting is at most this long.
const GREETING_MAX: usize = 256;
/// A greeting that takes longer than this is given up.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
/// First bytes of every greeting.
const MAGIC: [u8; 8] = *b"FERMATA\n";

/// In the greeting of a node that refuses the other one, which is not to know who it is.
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
}

/// The outgoing half: where the driver leaves messages.
pub(crate) struct Peers {
    out: BTreeMap<NodeName, Arc<Outgoing>>,
    delayer: Option<Delayer>,
}

impl Peers {
    /// Queues to all peers, and a task for each that empties it; aborted with the runtime.
    pub(crate) fn start(
        resolved: &Resolved,
        id: NodeId,
        clock: &Arc<Clock>,
        mailbox: &Arc<Mailbox>,
        metrics: &Arc<Metrics>,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> std::io::Result<Peers> {
        let cluster = &resolved.config.cluster;
        let patience = Patience::new(&resolved.config.timing);
        let mut out = BTreeMap::new();
        let mut delays = BTreeMap::new();
        for (node, info) in resolved.nodes.iter().zip(&cluster.nodes) {
            let to = NodeName(node.name);
            if to == id.name {
                continue;
            }
            let version = fermata_protocol::wire::VERSION;
            let greeting = Greeting {
                magic: MAGIC,
                version,
                cluster: cluster.id,
                from: id,
                to,
            };
            let peer = Arc::new(Outgoing::new(
                greeting,
                clock.clone(),
                metrics.peer(&node.label),
            ));
            let address = node.peer.clone();
            let (mailbox, metrics) = (mailbox.clone(), metrics.clone());
            let run = outgoing::run(peer.clone(), address, patience, mailbox, metrics);
            tasks.spawn(run);
            let delay = resolved.profile.one_way(resolved.site, info.site);
            if !delay.is_zero() {
                delays.insert(to, (delay, peer.clone()));
            }
            out.insert(to, peer);
        }
        let delayer = if delays.is_empty() {
            None
        } else {
            Some(Delayer::start(delays)?)
        };
        Ok(Peers { out, delayer })
    }

    /// Sends messages, in order, once the delay to that peer is over; never waits.
    pub(crate) fn send(&self, to: NodeName, messages: Vec<Message>) {
        if let Some(delayer) = &self.delayer
            && delayer.holds(to)
        {
            delayer.send(to, messages);
        } else if let Some(peer) = self.out.get(&to) {
            peer.push(messages);
        }
    }
}
