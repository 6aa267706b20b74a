//! The receiving half: listens, checks who connects, reads frames.
//!
//! What frames take in memory is bounded, also for a peer that says wrong things: one frame by its
//! length ([`frame::memory_max`]), all that wait for the driver by permits for what they take
//! decoded. A frame is decoded before it is known how many permits it wants; so only one is at a
//! time, and holds up the others until it has them.

use super::ending::{BEAT, Ended, Patience};
use super::outgoing::{named, read_greeting, speaks, write_greeting};
use super::places::{Leave, Place, Places};
use super::told::Told;
use super::{GREETING_PATIENCE, Greeting, MAGIC, NOBODY, Run};
use crate::closings::Cause;
use crate::mailbox::{Event, Mailbox};
use crate::metrics::Metrics;
use crate::roster::Roster;
use crate::stream::Stream;
use fermata_driver::outgoing::FRAME_MAX;
use fermata_protocol::base::{ClusterId, NodeId, NodeName, Timing};
use fermata_protocol::wire::{self, frame};
use fermata_tls::Keeper;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, WriteHalf};
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

/// Why the second of two processes is refused.
pub(super) const TWIN: &str =
    "another process of that node is connected: one of both has a copy of the other's directory";

/// What all connections share.
struct Shared {
    incoming: Incoming,
    /// For what frames take in memory.
    room: Arc<Semaphore>,
    /// Held while a frame is decoded, until it has its permits.
    decoding: tokio::sync::Mutex<()>,
    told: Told,
}

/// What every connection needs to know.
pub(crate) struct Incoming {
    pub(crate) cluster: ClusterId,
    pub(crate) id: NodeId,
    pub(crate) run: Run,
    pub(crate) places: Places,
    pub(crate) roster: Arc<Roster>,
    pub(crate) timing: Timing,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) metrics: Arc<Metrics>,
    /// What this node shows; none: it speaks in clear.
    pub(crate) tls: Option<Arc<Keeper>>,
}

/// Accepts connections for ever.
pub(crate) async fn listen(listener: TcpListener, incoming: Incoming) {
    let places = incoming.places.clone();
    let shared = Arc::new(Shared {
        incoming,
        room: Arc::new(Semaphore::new(WAITING_MAX)),
        decoding: tokio::sync::Mutex::new(()),
        told: Told::default(),
    });
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(attend(stream, places.admit(), shared.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a peer");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads one connection until it ends, is silent, says something wrong, or must make room.
async fn attend(stream: TcpStream, (place, leave): (Place, Leave), shared: Arc<Shared>) {
    let address = stream.peer_addr().ok();
    let (mut opened, mut greeted) = (None, None);
    let ended = tokio::select! {
        ended = converse(stream, &place, &shared, (&mut opened, &mut greeted)) => ended,
        Ok(ended) = leave => ended,
    };
    let who = match (greeted, address) {
        (Some(NodeId { name, .. }), _) => format!("node {}", name.0),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    };
    let socket = opened.as_ref().map(Stream::socket);
    ended.settle(socket, who, &shared.incoming.metrics);
    let (shown, why) = (address.map(tracing::field::display), ended.to_string());
    let Some(cause) = ended.cause() else {
        tracing::debug!(address = shown, why, "a peer's connection ended");
        return;
    };
    if cause == Cause::Foreign {
        shared.incoming.metrics.frames_refused.increment(1);
    }
    let from = address.map(|address| address.ip());
    if let Some(times) = shared.told.again(from, &why, Instant::now()) {
        tracing::warn!(
            address = shown,
            why,
            times,
            "refused a peer's connection, or gave it up"
        );
    }
}

/// The same, but for its place; leaves in `opened` what is spoken over, once hands are shaken, and
/// tells in `greeted` who it is.
async fn converse(
    stream: TcpStream,
    place: &Place,
    shared: &Shared,
    (opened, greeted): (&mut Option<Stream>, &mut Option<NodeId>),
) -> Ended {
    let incoming = &shared.incoming;
    let greeting = async {
        stream.set_nodelay(true)?;
        let tls = incoming.tls.as_ref().map(|keeper| keeper.peers());
        let accepted = Stream::accept(stream, tls).await.map_err(unfit)?;
        let stream = opened.insert(accepted);
        speaks(stream.protocol())?;
        let from = greet(stream, place, incoming).await?;
        Ok::<_, Ended>((stream, from))
    };
    match tokio::time::timeout(GREETING_PATIENCE, greeting).await {
        Ok(Ok((stream, from))) => {
            *greeted = Some(from);
            receive(stream, from, shared).await
        }
        Ok(Err(ended)) => ended,
        Err(_) => Ended::Late,
    }
}

/// A handshake that has failed by what the other end did, in words.
fn unfit(error: Error) -> Error {
    match fermata_tls::why(&error) {
        Some(why) => wrong(&why),
        None => error,
    }
}

/// Whether a connection gets on, as the task that reads it tells the one that beats.
#[derive(Default)]
struct Progress {
    /// Something was read since the last beat.
    read: AtomicBool,
    /// A frame that was read waits for this node, which is no fault of the peer's.
    held_up: AtomicBool,
}

/// Reads one greeted connection, and beats as long as that gets on.
async fn receive(stream: &mut Stream, from: NodeId, shared: &Shared) -> Ended {
    let progress = Progress::default();
    let (read, write) = tokio::io::split(stream);
    let mut read = BufReader::with_capacity(STEP, read);
    let frames = async {
        loop {
            if let Err(error) = receive_frame(&mut read, from, shared, &progress).await {
                return Ended::Broken(error);
            }
        }
    };
    tokio::select! {
        ended = frames => ended,
        ended = beat(write, &progress, Patience::new(&shared.incoming.timing)) => ended,
    }
}

async fn beat(mut write: WriteHalf<&mut Stream>, progress: &Progress, patience: Patience) -> Ended {
    let mut silence = patience.silence();
    loop {
        tokio::time::sleep(patience.beat).await;
        let read = progress.read.swap(false, Ordering::Relaxed);
        if !read && !progress.held_up.load(Ordering::Relaxed) {
            if let Err(ended) = silence.goes_on() {
                return ended;
            }
            continue;
        }
        silence.broken();
        let sent = async {
            write.write_all(&[BEAT]).await?;
            write.flush().await
        };
        tokio::select! {
            biased;
            sent = sent => if let Err(error) = sent {
                return error.into();
            },
            // A beat that finds no room is not missed: many are under way.
            () = std::future::ready(()) => {}
        }
    }
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

async fn greet(stream: &mut Stream, place: &Place, incoming: &Incoming) -> Result<NodeId, Ended> {
    let theirs = read_greeting(stream).await?;
    if theirs.magic != MAGIC {
        return Err(Ended::Refused("it speaks another protocol"));
    }
    if let Some(why) = incoming.misfit(&theirs) {
        write_greeting(stream, &incoming.refusal(theirs)).await?;
        return Err(Ended::Refused(why));
    }
    let from = theirs.from;
    // It may say it is another node than its certificate says.
    if let Some(shown) = stream.certificates() {
        let known = incoming.roster.known();
        let label = known.node(from.name).map_or("", |node| node.label.as_str());
        named(label, shown)?;
    }
    if let Err(run) = place.take(from, theirs.run) {
        let refusal = Greeting {
            run,
            ..incoming.refusal(theirs)
        };
        write_greeting(stream, &refusal).await?;
        return Err(Ended::Refused(TWIN));
    }
    let mine = Greeting {
        from: incoming.id,
        to: from.name,
        run: incoming.run,
        ..theirs
    };
    write_greeting(stream, &mine).await?;
    Ok(from)
}

impl Incoming {
    /// Why whoever greets so is none that this node talks to.
    fn misfit(&self, theirs: &Greeting) -> Option<&'static str> {
        if !wire::FORMATS.contains(&theirs.version) {
            Some("it speaks another version")
        } else if theirs.cluster != self.cluster {
            Some("it belongs to another cluster")
        } else if theirs.to != self.id.name {
            Some("it looks for another node")
        } else if self.roster.known().is_out(theirs.from.name) {
            Some("the cluster has taken it out: to come back it joins with a new data directory")
        } else if !self.knows(theirs.from.name) {
            Some("it is no other node of this cluster")
        } else {
            None
        }
    }

    fn knows(&self, name: NodeName) -> bool {
        name != self.id.name && self.roster.known().node(name).is_some()
    }

    /// What such a one is told: in which field this node differs, and nothing that it does not know
    /// already.
    fn refusal(&self, theirs: Greeting) -> Greeting {
        let own = self.id.name;
        let is_out = self.roster.known().is_out(theirs.from.name);
        Greeting {
            version: wire::VERSION,
            cluster: match theirs.cluster == self.cluster {
                true => self.cluster,
                false => ClusterId(0),
            },
            from: NodeId {
                name: match is_out {
                    true => theirs.from.name,
                    false => own,
                },
                incarnation: NOBODY,
            },
            to: match is_out || self.knows(theirs.from.name) {
                true => theirs.from.name,
                false => own,
            },
            ..theirs
        }
    }
}

async fn receive_frame(
    read: &mut (impl AsyncRead + Unpin),
    from: NodeId,
    shared: &Shared,
    progress: &Progress,
) -> Result<(), Error> {
    let length = read.read_u32().await? as usize;
    progress.read.store(true, Ordering::Relaxed);
    if length == 0 {
        return Ok(()); // a beat
    }
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
        progress.read.store(true, Ordering::Relaxed);
    }
    progress.held_up.store(true, Ordering::Relaxed);
    let decoding = shared.decoding.lock().await;
    let opened = frame::measure(&bytes);
    let (envelope, memory) = opened.map_err(|_| wrong("a frame that is no envelope"))?;
    drop(bytes);
    if envelope.from != from {
        return Err(wrong("an envelope of somebody else"));
    }
    // Dialling again it is told.
    if shared.incoming.roster.known().is_out(from.name) {
        return Err(wrong("the cluster has taken it out"));
    }
    let permits = (memory / UNIT + 1) as u32;
    let permit = shared.room.clone().acquire_many_owned(permits).await;
    let permit = permit.map_err(|_| Error::from(ErrorKind::BrokenPipe))?;
    drop(decoding);
    progress.held_up.store(false, Ordering::Relaxed);
    shared.incoming.mailbox.put(Event::Frame {
        from,
        interval: envelope.interval,
        messages: envelope.messages,
        permit,
    });
    Ok(())
}
