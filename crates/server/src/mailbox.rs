//! The driver's one input queue.
//!
//! Many tasks put events in, one thread takes all that wait at once: under load a batch of inputs
//! costs one lock, and becomes one flush and one frame per peer. The queue itself has no bound;
//! whoever puts in holds a permit (of requests, of bytes from peers) that travels with the event
//! and is given back when the event has been handled.

use fermata_protocol::base::{Micros, NodeId};
use fermata_protocol::{CallId, Message, Reply, Request};
use fermata_storage::{CheckpointDone, FlushDone};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Where the answers of a call go, under the asker's own number for it.
pub(crate) type Sink = mpsc::Sender<(u64, Reply)>;

/// An open request, as the driver remembers it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) sink: Sink,
    /// `Entered` does not end it.
    pub(crate) follow: bool,
    /// `Queued` ends it.
    pub(crate) poll: bool,
    pub(crate) operation: crate::metrics::OperationName,
    pub(crate) since: Micros,
    /// One request, and the bytes it carries.
    pub(crate) _permits: [OwnedSemaphorePermit; 2],
}

/// What may happen to a driver.
pub(crate) enum Event {
    /// A frame from a peer, with the permit for its bytes.
    Frame(NodeId, Vec<Message>, OwnedSemaphorePermit),
    /// A client's request.
    Request(CallId, Box<Request>, Call),
    /// Nobody waits for this call any more.
    Cancel(CallId),
    /// A flush came back.
    Flushed(FlushDone, Duration),
    /// A checkpoint came back.
    Checkpointed(CheckpointDone),
    /// Flush and stop.
    Stop,
}

#[derive(Default)]
pub(crate) struct Mailbox {
    events: Mutex<Vec<Event>>,
    arrived: Condvar,
}

impl Mailbox {
    pub(crate) fn put(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        if events.len() == 1 {
            self.arrived.notify_one();
        }
    }

    /// Swaps everything that waits into `into`, which is empty; waits at most `patience` for it.
    pub(crate) fn take(&self, into: &mut Vec<Event>, patience: Duration) {
        debug_assert!(into.is_empty());
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.is_empty() && !patience.is_zero() {
            let waited = self
                .arrived
                .wait_timeout_while(events, patience, |e| e.is_empty());
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut *events, into);
    }
}
