//! The sending half of a connection: a [queue](fermata_driver::outgoing), and a task that empties
//! it. While the task has nothing to write, whoever has little to send writes it without the task,
//! which would have to be woken for it.

use super::ending::{BEAT, Ended, Patience};
use super::incoming::TWIN;
use super::places::Places;
use super::wire::Wire;
use super::{GREETING_MAX, Greeting, MAGIC, NOBODY};
use crate::clock::Clock;
use crate::mailbox::{Event, Mailbox};
use crate::metrics::Metrics;
use fermata_driver::outgoing::{Bounds, FRAME_MAX, Queue, frames};
use fermata_protocol::{Message, wire};
use fermata_tls::rustls::pki_types::ServerName;
use fermata_tls::{Keeper, Name, PEERS_PROTOCOL};
use metrics::{Counter, Gauge};
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// A frame that carries nothing but the news that this end lives.
const EMPTY: [u8; wire::frame::LENGTH] = [0; wire::frame::LENGTH];
/// First and longest pause between attempts to connect.
const BACKOFF: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// The first two bytes of a handshake and of an alert of TLS (RFC 8446, section 5.1), where a
/// length is expected.
const OF_TLS: [usize; 2] = [0x1603, 0x1503];

/// Bytes of messages, by weight, that are little.
const LITTLE: usize = 16 << 10;

/// What waits for one peer.
pub(super) struct Outgoing {
    clock: Arc<Clock>,
    greeting: Greeting,
    /// What people call the peer.
    label: String,
    /// What this node shows; none: it speaks in clear.
    tls: Option<Arc<Keeper>>,
    /// Who is connected to this node.
    places: Places,
    /// Where the peer may be, tried in turn.
    addresses: Mutex<Vec<String>>,
    line: Mutex<Line>,
    arrived: Notify,
    waiting: Gauge,
    dropped: Counter,
}

/// What waits, and where it may be written.
struct Line {
    queue: Queue,
    /// The connection, while the task writes nothing.
    free: Option<Arc<Wire>>,
    /// What found no room of a frame that was written without the task.
    rest: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(
        (greeting, places): (Greeting, Places),
        (label, addresses): (String, Vec<String>),
        tls: Option<Arc<Keeper>>,
        clock: Arc<Clock>,
        (waiting, dropped): (Gauge, Counter),
    ) -> Outgoing {
        let line = Mutex::new(Line {
            queue: Queue::new(Bounds::SERVER),
            free: None,
            rest: Vec::new(),
        });
        Outgoing {
            clock,
            greeting,
            label,
            tls,
            places,
            addresses: Mutex::new(addresses),
            line,
            arrived: Notify::new(),
            waiting,
            dropped,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the peer is looked for there. A connection that there is goes on.
    pub(super) fn reach_at(&self, addresses: Vec<String>) {
        *self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Where it is looked for at an attempt to connect.
    fn address(&self, attempt: usize) -> String {
        let addresses = self.addresses.lock();
        let addresses = addresses.unwrap_or_else(PoisonError::into_inner);
        let at = attempt.checked_rem(addresses.len()).unwrap_or(0);
        addresses.get(at).cloned().unwrap_or_default()
    }

    /// Messages to this peer were given up.
    pub(super) fn count_lost(&self, messages: usize) {
        self.dropped.increment(messages as u64);
    }

    /// Adds messages; never waits.
    pub(super) fn push(&self, messages: Vec<Message>) {
        let mut line = self.lock();
        self.count_lost(line.queue.push(messages).len());
        let flushed = self.write_little(&mut line);
        self.waiting.set(line.queue.len() as f64);
        let left = !line.queue.is_empty() || !line.rest.is_empty() || !flushed;
        drop(line);
        if left {
            self.arrived.notify_one();
        }
    }

    /// Writes what waits, if that is little and the connection is free; whether the system has all
    /// that was written. What fails here will fail where the task writes the rest.
    fn write_little(&self, line: &mut Line) -> bool {
        let little = line.queue.bytes() <= LITTLE && line.rest.is_empty();
        let Some(stream) = line.free.clone().filter(|_| little) else {
            return true;
        };
        for frame in self.seal(line.queue.take()) {
            let written = match line.rest.is_empty() {
                true => stream.try_write(&frame).unwrap_or(0),
                false => 0,
            };
            line.rest.extend_from_slice(&frame[written..]);
        }
        stream.is_flushed()
    }

    fn seal(&self, messages: Vec<Message>) -> Vec<Vec<u8>> {
        if messages.is_empty() {
            return Vec::new();
        }
        // Only now: after all that the messages say has been.
        let interval = self.clock.now().interval;
        frames(self.greeting.from, interval, messages, FRAME_MAX)
    }

    /// What is to be written next, in order. If that is nothing, and no beat is due, the connection
    /// is free until this is asked again.
    fn take(&self, stream: &Arc<Wire>, beats: bool) -> Vec<Vec<u8>> {
        let mut line = self.lock();
        let rest = std::mem::take(&mut line.rest);
        let messages = line.queue.take();
        let nothing = rest.is_empty() && messages.is_empty();
        line.free = (nothing && !beats).then(|| stream.clone());
        self.waiting.set(line.queue.len() as f64);
        drop(line);
        if nothing {
            return Vec::from_iter(beats.then(|| EMPTY.to_vec()));
        }
        let mut next = self.seal(messages);
        next.insert(0, rest);
        next
    }

    /// The connection is over, and what was written for it is lost with it.
    fn hang_up(&self) {
        let mut line = self.lock();
        line.free = None;
        line.rest.clear();
    }
}

/// Connects, greets, sends, and does so again whenever the connection ends; never ends itself.
pub(super) async fn run(
    peer: Arc<Outgoing>,
    patience: Patience,
    mailbox: Arc<Mailbox>,
    metrics: Arc<Metrics>,
) {
    let [first, longest] = BACKOFF;
    let mut backoff = first;
    let mut complaint = String::new();
    let to = peer.greeting.to.0;
    let mut attempt = 0;
    let mut twin: Option<Instant> = None;
    loop {
        let address = peer.address(attempt);
        match connect(&peer, &address, patience).await {
            Ok(stream) => {
                tracing::info!(peer = to, %address, "connected");
                (backoff, complaint, twin) = (first, String::new(), None);
                let stream = Arc::new(stream);
                let ended = serve(&peer, &stream, patience).await;
                peer.hang_up();
                ended.settle(Some(stream.socket()), format!("node {to}"), &metrics);
                tracing::info!(peer = to, why = %ended, "connection lost");
            }
            Err(error) => {
                attempt = attempt.wrapping_add(1);
                let refusal = error.get_ref().and_then(|why| why.downcast_ref());
                match refusal {
                    Some(Refusal::Disowned) => mailbox.put(Event::Disowned(peer.greeting.to)),
                    Some(Refusal::Twin) => {
                        let since = twin.get_or_insert_with(Instant::now);
                        if since.elapsed() >= patience.with_a_twin() {
                            mailbox.put(Event::Twin(peer.greeting.to));
                        }
                    }
                    None => twin = None,
                }
                if error.kind() == ErrorKind::ConnectionRefused {
                    mailbox.put(Event::Gone(peer.greeting.to));
                }
                // Said once, not at every attempt.
                let said = error.to_string();
                if said != complaint {
                    tracing::info!(peer = to, %address, error = %said, "no connection");
                    complaint = said;
                }
            }
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(longest);
    }
}

async fn connect(peer: &Outgoing, address: &str, patience: Patience) -> Result<Wire, Error> {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(keeper) = &peer.tls else {
            greet(peer, &mut stream).await?;
            return Ok::<_, Error>(Wire::plain(stream));
        };
        // The certificate is judged by the node that it names, wherever that is reached.
        let host = ServerName::try_from("node").map_err(Error::other)?;
        let connector = TlsConnector::from(keeper.to_peers());
        let mut stream = connector.connect(host, stream).await?;
        let far = stream.get_ref().1;
        speaks(Some(far.alpn_protocol()))?;
        named(&peer.label, far.peer_certificates())?;
        greet(peer, &mut stream).await?;
        let (stream, connection) = stream.into_inner();
        Ok(Wire::tls(stream, connection))
    };
    match timeout(patience.to_connect(), attempt).await {
        Ok(Err(error)) => Err(match fermata_tls::why(&error) {
            Some(why) => Error::new(error.kind(), why),
            None => error,
        }),
        Ok(done) => done,
        Err(_) => Err(Error::from(ErrorKind::TimedOut)),
    }
}

/// Whether the other end of a connection over TLS, if it is one, says that it speaks what peers do.
pub(super) fn speaks(protocol: Option<Option<&[u8]>>) -> Result<(), Error> {
    match protocol {
        None => Ok(()),
        Some(Some(word)) if word == PEERS_PROTOCOL => Ok(()),
        Some(_) => {
            let why = "it does not speak the protocol of this port";
            Err(Error::new(ErrorKind::InvalidData, why))
        }
    }
}

/// Whether a certificate, which is good, is that of the node with this label.
pub(super) fn named(
    label: &str,
    shown: Option<&[fermata_tls::rustls::pki_types::CertificateDer<'_>]>,
) -> Result<(), Error> {
    let wrong = |why: String| Error::new(ErrorKind::InvalidData, why);
    let first = shown.and_then(|shown| shown.first());
    let first = first.ok_or_else(|| wrong("it shows no certificate".into()))?;
    match Name::of(first).map_err(wrong)? {
        Name::Node { label: of, .. } if of == label => Ok(()),
        name => Err(wrong(format!(
            "its certificate is that of {name}, and the cluster knows it as {label}"
        ))),
    }
}

/// Says who this is, and hears whether the other end is who it should be.
async fn greet(
    peer: &Outgoing,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), Error> {
    // Whoever refuses this end says why and hangs up, so that a greeting may not get through.
    let written = write_greeting(stream, &peer.greeting).await;
    let theirs = read_greeting(stream).await.map_err(unsaid)?;
    written?;
    let invalid = ErrorKind::InvalidData;
    match (
        misfit(&peer.greeting, &theirs),
        refusal(&peer.greeting, &theirs),
    ) {
        (None, _) if peer.places.twin(theirs.from, theirs.run).is_some() => {
            Err(Error::new(invalid, TWIN))
        }
        (None, _) => Ok(()),
        (_, Some(refusal)) => Err(Error::new(invalid, refusal)),
        (Some(why), None) => Err(Error::new(invalid, why)),
    }
}

/// The end of a connection on which nobody has said who he is.
fn unsaid(error: Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::new(error.kind(), "it hung up before it said who it is"),
        _ => error,
    }
}

/// What a node of the same cluster and version says to one that is not to go on.
fn refusal(mine: &Greeting, theirs: &Greeting) -> Option<Refusal> {
    let same = theirs.magic == MAGIC && theirs.cluster == mine.cluster;
    let refuses = theirs.from.incarnation == NOBODY && theirs.to == mine.from.name;
    if !same || !refuses || !wire::FORMATS.contains(&theirs.version) {
        None
    } else if theirs.from.name == mine.from.name {
        Some(Refusal::Disowned)
    } else {
        (theirs.run != mine.run).then_some(Refusal::Twin)
    }
}

/// Why this node is not to go on.
#[derive(Debug)]
enum Refusal {
    /// The cluster has taken it out.
    Disowned,
    /// Another process runs under its incarnation.
    Twin,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Disowned => "it says that the cluster has taken this node out",
            Refusal::Twin => "it hears another process under this node's identity",
        })
    }
}

impl std::error::Error for Refusal {}

/// Why the answer to a greeting is none of a peer that lets this node in.
fn misfit(mine: &Greeting, theirs: &Greeting) -> Option<String> {
    let (me, to) = (mine.from.name, mine.to);
    if theirs.magic != MAGIC {
        Some("it is no node of Fermata".into())
    } else if !wire::FORMATS.contains(&theirs.version) {
        let (theirs, mine) = (theirs.version, mine.version);
        Some(format!(
            "it speaks version {theirs} between nodes, and this node {mine}"
        ))
    } else if theirs.cluster != mine.cluster {
        Some("it belongs to another cluster".into())
    } else if theirs.from.name != to {
        let (found, to) = (theirs.from.name.0, to.0);
        Some(format!(
            "it is node {found} and not {to}: the cluster files differ"
        ))
    } else if theirs.to != me {
        Some(format!(
            "it knows no node {}: the cluster files differ",
            me.0
        ))
    } else if theirs.from.incarnation == NOBODY {
        Some("it refuses this node".into())
    } else {
        None
    }
}

pub(super) async fn write_greeting(
    stream: &mut (impl AsyncWrite + Unpin),
    greeting: &Greeting,
) -> Result<(), Error> {
    let greeting = wire::encode(greeting);
    stream.write_u32(greeting.len() as u32).await?;
    stream.write_all(&greeting).await?;
    stream.flush().await
}

pub(super) async fn read_greeting(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Greeting, Error> {
    let length = stream.read_u32().await? as usize;
    if OF_TLS.contains(&(length >> 16)) {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "it speaks TLS, and this node does not",
        ));
    }
    if length > GREETING_MAX {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "a greeting that is too long",
        ));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    wire::decode(&bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "not a greeting"))
}

/// Sends until the connection ends. Messages taken for it are not sent again: a peer gets a message
/// once at most.
async fn serve(peer: &Outgoing, stream: &Arc<Wire>, patience: Patience) -> Ended {
    let writing = AtomicBool::new(false);
    tokio::select! {
        ended = send(peer, stream, patience, &writing) => ended,
        ended = watch(stream, patience) => match ended {
            Ended::Silent if writing.load(Ordering::Relaxed) => Ended::Stalled,
            ended => ended,
        },
    }
}

/// Sends, and says in `writing` while the system takes nothing.
async fn send(
    peer: &Outgoing,
    stream: &Arc<Wire>,
    patience: Patience,
    writing: &AtomicBool,
) -> Ended {
    let mut beats = false;
    loop {
        // What was written without this task may not have left yet.
        if !stream.is_flushed() {
            writing.store(true, Ordering::Relaxed);
            if let Err(error) = stream.flush().await {
                return error.into();
            }
            writing.store(false, Ordering::Relaxed);
        }
        let next = peer.take(stream, beats);
        beats = false;
        if next.is_empty() {
            beats = timeout(patience.beat, peer.arrived.notified())
                .await
                .is_err();
            continue;
        }
        for bytes in next {
            writing.store(true, Ordering::Relaxed);
            if let Err(error) = stream.write_all(&bytes).await {
                return error.into();
            }
            writing.store(false, Ordering::Relaxed);
        }
    }
}

/// Listens to the other end's beats.
async fn watch(stream: &Wire, patience: Patience) -> Ended {
    let mut silence = patience.silence();
    let mut beats = [0; 64];
    loop {
        if timeout(patience.beat, stream.readable()).await.is_err() {
            match silence.goes_on() {
                Ok(()) => continue,
                Err(ended) => return ended,
            }
        }
        let heard = match stream.try_read(&mut beats) {
            Ok(0) => return Error::from(ErrorKind::UnexpectedEof).into(),
            Ok(count) => &beats[..count],
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return error.into(),
        };
        if heard.iter().any(|byte| *byte != BEAT) {
            let wrong = "the peer sent where it only beats";
            return Error::new(ErrorKind::InvalidData, wrong).into();
        }
        silence.broken();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClockConfig;
    use crate::transport::Run;
    use fermata_protocol::base::{
        Cluster, ClusterId, Incarnation, Limits, LockRef, NodeId, NodeName, Timing,
    };
    use fermata_protocol::message::Hello;
    use fermata_protocol::registry::Registry;
    use fermata_protocol::settings::Settings;
    use tokio::net::TcpListener;

    fn hello(number: u128) -> Message {
        let file = Cluster {
            id: ClusterId(number),
            lowest_ref: LockRef(1),
            sites: vec!["of eighteen bytes".to_owned(); 500],
            ..Cluster::default()
        };
        Message::Hello(Hello {
            cluster: file.id,
            registry: Registry::beginning(
                &file,
                Settings::beginning(&Timing::default(), &Limits::default(), wire::VERSION),
            ),
            complete: false,
            answer: false,
        })
    }

    #[tokio::test]
    async fn what_finds_no_room_in_the_socket_is_written_before_what_comes_later() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let stream = Arc::new(Wire::plain(stream.unwrap()));
        let (mut reader, _) = listener.accept().await.unwrap();
        let name = |name| NodeId {
            name: NodeName(name),
            incarnation: Incarnation(7),
        };
        let greeting = Greeting {
            magic: MAGIC,
            version: wire::VERSION,
            cluster: ClusterId(1),
            from: name(1),
            to: NodeName(2),
            run: Run(1),
        };
        let clock = Arc::new(Clock::new(&ClockConfig::default()));
        let whom = (greeting, Places::default());
        let nowhere = (String::new(), vec![]);
        let metrics = (Gauge::noop(), Counter::noop());
        let peer = Outgoing::new(whom, nowhere, None, clock, metrics);
        assert!(peer.take(&stream, false).is_empty());
        let mut sent = Vec::new();
        while peer.lock().rest.is_empty() {
            sent.push(hello(sent.len() as u128));
            peer.push(vec![hello(sent.len() as u128 - 1)]);
        }
        assert!(
            sent.len() > 1,
            "the first ones are written where they are pushed"
        );
        sent.push(hello(sent.len() as u128));
        peer.push(vec![hello(sent.len() as u128 - 1)]);
        let writes = async {
            for bytes in peer.take(&stream, false) {
                stream.write_all(&bytes).await.unwrap();
            }
        };
        let reads = async {
            let mut arrived = Vec::new();
            while arrived.len() < sent.len() {
                let mut frame = vec![0; reader.read_u32().await.unwrap() as usize];
                reader.read_exact(&mut frame).await.unwrap();
                arrived.extend(wire::frame::open(&frame).unwrap().messages);
            }
            arrived
        };
        let ((), arrived) = tokio::join!(writes, reads);
        assert_eq!(arrived, sent);
    }

    #[test]
    fn an_answer_that_does_not_fit_says_why() {
        let id = |name| NodeId {
            name: NodeName(name),
            incarnation: Incarnation(7),
        };
        let mine = Greeting {
            magic: MAGIC,
            version: wire::VERSION,
            cluster: ClusterId(1),
            from: id(1),
            to: NodeName(2),
            run: Run(1),
        };
        let theirs = Greeting {
            from: id(2),
            to: NodeName(1),
            run: Run(2),
            ..mine.clone()
        };
        assert_eq!(misfit(&mine, &theirs), None);
        let other = |change: fn(&mut Greeting)| {
            let mut theirs = theirs.clone();
            change(&mut theirs);
            misfit(&mine, &theirs).unwrap()
        };
        for (said, why) in [
            (other(|g| g.magic[0] = 0), "no node of Fermata"),
            (other(|g| g.version = wire::FORMATS.end() + 1), "version"),
            (other(|g| g.cluster = ClusterId(0)), "another cluster"),
            (other(|g| g.from.name = NodeName(3)), "node 3 and not 2"),
            (other(|g| g.to = NodeName(2)), "no node 1"),
            (other(|g| g.from.incarnation = NOBODY), "refuses"),
        ] {
            assert!(said.contains(why), "{said}");
        }
        let says = |name, run| {
            let mut theirs = theirs.clone();
            (theirs.from.name, theirs.from.incarnation) = (NodeName(name), NOBODY);
            theirs.run = Run(run);
            refusal(&mine, &theirs)
        };
        assert!(matches!(says(1, 1), Some(Refusal::Disowned)));
        assert!(matches!(says(2, 3), Some(Refusal::Twin)));
        assert!(says(2, 1).is_none() && refusal(&mine, &theirs).is_none());
    }
}
