//! The driver's one input queue.
//!
//! Many tasks put events in, one thread takes all that wait at once: under load a batch of inputs
//! costs one lock, and becomes one flush and one frame per peer. The queue itself has no bound; a
//! sender holds a permit (of requests, of bytes from peers) that travels with the event and is
//! given back when the event has been handled.

use crate::access::{Entry, Used, View};
use crate::clock;
use crate::metrics::Metrics;
use crate::porter::is_last;
use fermata_protocol::base::{Interval, Micros, NodeId, NodeName};
use fermata_protocol::catalogue::Access;
use fermata_protocol::{CallId, Message, Reply, Request};
use fermata_storage::{CheckpointDone, FlushDone};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// Where the answers of a call go, under the asker's own number for it.
pub(crate) type Sink = mpsc::Sender<(u64, Reply)>;

/// An open request, as whoever answers it remembers it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) sink: Sink,
    /// `Entered` does not end it.
    pub(crate) follow: bool,
    /// `Queued` ends it.
    pub(crate) poll: bool,
    /// It may be open for long: a stop does not wait for it.
    pub(crate) lasting: bool,
    pub(crate) operation: crate::metrics::OperationName,
    pub(crate) since: Micros,
    /// Where it is told how it ended, of an administrative act.
    pub(crate) audit: Option<Mutex<Entry>>,
    /// What its caller is not shown of the answers.
    pub(crate) view: Option<View>,
    /// One request, and the bytes it carries.
    pub(crate) _permits: [OwnedSemaphorePermit; 2],
    /// The same against its caller's quota.
    pub(crate) _used: Option<Used>,
}

impl Call {
    /// Passes an answer on and counts the last one; says whether it was that.
    pub(crate) fn tell(&self, mut reply: Reply, metrics: &Metrics) -> bool {
        if let Reply::Status(status) = &mut reply {
            status.closed = metrics.closings();
            status.sessions = metrics.sessions();
            status.security = metrics.security();
        }
        if let Some(view) = &self.view {
            reply = view.show(reply);
        }
        let last = is_last(&reply, self.follow, self.poll);
        if last {
            if let Some(entry) = &self.audit {
                let mut entry = entry.lock().unwrap_or_else(PoisonError::into_inner);
                entry.end(&reply);
            }
            let took = Duration::from_micros(clock::monotonic().saturating_sub(self.since));
            metrics.answered(self.operation, &reply, took);
        } else if matches!(reply, Reply::Queued { .. } | Reply::Stalled { .. })
            && self.sink.capacity() < self.sink.max_capacity() / 2
        {
            return false; // a slow reader: its place is told again
        }
        if let Err(TrySendError::Full(_)) = self.sink.try_send((self.id, reply)) {
            let operation = self.operation;
            tracing::warn!(operation, "an answer found no room: its reader is too slow");
        }
        last
    }
}

/// What may happen to a driver.
pub(crate) enum Event {
    /// A frame from a peer.
    Frame {
        from: NodeId,
        /// The peer's clock when it closed the frame.
        interval: Option<Interval>,
        messages: Vec<Message>,
        /// For its bytes.
        permit: OwnedSemaphorePermit,
    },
    /// A peer's machine answers that nobody listens on the peer's port.
    Gone(NodeName),
    /// A peer says that the cluster has taken this node out.
    Disowned(NodeName),
    /// A peer has heard another process under this node's identity for longer than one that died
    /// can be heard.
    Twin(NodeName),
    /// A client's request.
    Request(CallId, Box<Request>, Call),
    /// Nobody waits for this call any more.
    Cancel(CallId),
    /// A flush came back.
    Flushed(FlushDone, Duration),
    /// A checkpoint came back.
    Checkpointed(CheckpointDone),
    /// The reserve was made, or not.
    Ballast(std::io::Result<()>),
    /// Hand over what the node leads, flush, and end.
    Retire,
    /// End at once and flush nothing, as if the process had died.
    Abandon,
}

#[derive(Default)]
pub(crate) struct Mailbox {
    events: Mutex<Events>,
    arrived: Condvar,
    /// How new the catalogue is that the node knows: names are looked up again when it changes.
    pub(crate) catalogue: AtomicU64,
    /// Bytes of the largest value, as the node knows the cluster's settings.
    pub(crate) value_max: AtomicUsize,
    /// The access policy, as the node knows it.
    pub(crate) access: watch::Sender<Option<Access>>,
}

#[derive(Default)]
struct Events {
    waiting: Vec<Event>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn put(&self, event: Event) {
        let mut events = self.lock();
        if events.closed {
            drop(events);
            return; // the event goes with its sink, which tells the asker
        }
        events.waiting.push(event);
        if events.waiting.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// Nobody takes events any more: drops what waits and whatever comes.
    pub(crate) fn close(&self) {
        let mut events = self.lock();
        events.closed = true;
        let dropped = std::mem::take(&mut events.waiting);
        drop(events);
        // Only now: a permit that is given back may wake somebody who puts.
        drop(dropped);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Swaps everything that waits into `into`, which is empty; waits at most `patience` for it.
    pub(crate) fn take(&self, into: &mut Vec<Event>, patience: Duration) {
        assert!(into.is_empty(), "what was taken before is handled");
        let mut events = self.lock();
        if events.waiting.is_empty() && !patience.is_zero() {
            let waited = self
                .arrived
                .wait_timeout_while(events, patience, |e| e.waiting.is_empty());
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut events.waiting, into);
    }
}
