//! The receiving half: listens, checks who connects, reads frames.
//!
//! What frames take in memory is bounded, also for a peer that says wrong things: one frame by its
//! length ([`frame::memory_max`]), all that wait for the driver by permits for what they take
//! decoded. A frame is decoded before it is known how many permits it wants; so only one is at a
//! time, and holds up the others until it has them.

use super::outgoing::read_greeting;
use super::{FRAME_MAX, GREETING_PATIENCE, Greeting, MAGIC};
use crate::mailbox::{Event, Mailbox};
use crate::metrics::Metrics;
use fermata_protocol::base::{ClusterId, NodeId, NodeName};
use fermata_protocol::wire::{self, frame};
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Most bytes of memory that decoded frames take which wait for the driver, in units of [`UNIT`].
const WAITING_MAX: usize = 256 << 10;
/// Bytes per permit.
const UNIT: usize = 1 << 10;
/// What is read of a frame before its length is believed.
const STEP: usize = 64 << 10;
/// How many times as much as has arrived of a frame is made room for.
const GROWTH: usize = 8;

// The largest frame gets its permits.
const _: () = assert!(frame::memory_max(FRAME_MAX) / UNIT < WAITING_MAX);

/// What all connections share.
struct Shared {
    incoming: Incoming,
    /// For what frames take in memory.
    room: Arc<Semaphore>,
    /// Held while a frame is decoded, until it has its permits.
    decoding: tokio::sync::Mutex<()>,
}

/// What every connection needs to know.
pub(crate) struct Incoming {
    pub(crate) cluster: ClusterId,
    pub(crate) id: NodeId,
    pub(crate) known: Vec<NodeName>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Accepts connections for ever. At most four per node of the cluster are open at once.
pub(crate) async fn listen(listener: TcpListener, incoming: Incoming) {
    let slots = Arc::new(Semaphore::new(4 * incoming.known.len() + 4));
    let shared = Arc::new(Shared {
        incoming,
        room: Arc::new(Semaphore::new(WAITING_MAX)),
        decoding: tokio::sync::Mutex::new(()),
    });
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let shared = shared.clone();
        connections.spawn(async move {
            let _slot = slot;
            let peer = stream.peer_addr().ok();
            let error = receive(stream, &shared).await;
            if error.kind() == ErrorKind::InvalidData {
                shared.incoming.metrics.frames_refused.increment(1);
                tracing::warn!(?peer, %error, "refused a peer");
            } else {
                tracing::debug!(?peer, %error, "a peer's connection ended");
            }
        });
    }
}

/// Reads one connection until it ends or says something wrong.
async fn receive(mut stream: TcpStream, shared: &Shared) -> Error {
    let greeting = greet(&mut stream, &shared.incoming);
    let greeted = tokio::time::timeout(GREETING_PATIENCE, greeting).await;
    let from = match greeted {
        Ok(Ok(from)) => from,
        Ok(Err(error)) => return error,
        Err(_) => return Error::from(ErrorKind::TimedOut),
    };
    let (read, _write) = stream.split();
    let mut read = BufReader::with_capacity(STEP, read);
    loop {
        if let Err(error) = receive_frame(&mut read, from, shared).await {
            return error;
        }
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

async fn greet(stream: &mut TcpStream, incoming: &Incoming) -> Result<NodeId, Error> {
    stream.set_nodelay(true)?;
    let theirs = read_greeting(stream).await?;
    if theirs.magic != MAGIC || theirs.version != wire::VERSION {
        return Err(wrong("it speaks another protocol or version"));
    }
    if theirs.cluster != incoming.cluster {
        return Err(wrong("it belongs to another cluster"));
    }
    let from = theirs.from;
    if theirs.to != incoming.id.name {
        return Err(wrong("it looks for another node"));
    }
    if from.name == incoming.id.name || !incoming.known.contains(&from.name) {
        return Err(wrong("it is no other node of this cluster"));
    }
    let mine = Greeting {
        from: incoming.id,
        to: from.name,
        ..theirs
    };
    let mine = wire::encode(&mine);
    stream.write_u32(mine.len() as u32).await?;
    stream.write_all(&mine).await?;
    Ok(from)
}

async fn receive_frame(
    read: &mut (impl AsyncRead + Unpin),
    from: NodeId,
    shared: &Shared,
) -> Result<(), Error> {
    let length = read.read_u32().await? as usize;
    if length > FRAME_MAX {
        return Err(wrong("a frame longer than any frame may be"));
    }
    // The buffer grows with what arrives, not with what is announced: to several times as much,
    // since whatever has arrived is copied whenever it grows.
    let mut bytes = Vec::with_capacity(length.min(STEP));
    let mut rest = read.take(length as u64);
    while bytes.len() < length {
        if bytes.len() == bytes.capacity() {
            let more = (GROWTH * bytes.len()).min(length) - bytes.len();
            bytes.reserve_exact(more);
        }
        if rest.read_buf(&mut bytes).await? == 0 {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
    }
    let decoding = shared.decoding.lock().await;
    let opened = frame::measure(&bytes);
    let (envelope, memory) = opened.map_err(|_| wrong("a frame that is no envelope"))?;
    drop(bytes);
    if envelope.from != from {
        return Err(wrong("an envelope of somebody else"));
    }
    let permits = (memory / UNIT + 1) as u32;
    let permit = shared.room.clone().acquire_many_owned(permits).await;
    let permit = permit.map_err(|_| Error::from(ErrorKind::BrokenPipe))?;
    drop(decoding);
    shared.incoming.mailbox.put(Event::Frame {
        from,
        interval: envelope.interval,
        messages: envelope.messages,
        permit,
    });
    Ok(())
}
