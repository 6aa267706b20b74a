//! The sending half of a connection: a [queue](fermata_driver::outgoing), and a task that empties
//! it.

use super::ending::{BEAT, Ended, Patience};
use super::{GREETING_MAX, Greeting, MAGIC, NOBODY};
use crate::clock::Clock;
use crate::mailbox::{Event, Mailbox};
use crate::metrics::Metrics;
use fermata_driver::outgoing::{Bounds, FRAME_MAX, Queue, frames};
use fermata_protocol::{Message, wire};
use metrics::{Counter, Gauge};
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A frame that carries nothing but the news that this end lives.
const EMPTY: [u8; wire::frame::LENGTH] = [0; wire::frame::LENGTH];
/// First and longest pause between attempts to connect.
const BACKOFF: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// What waits for one peer.
pub(super) struct Outgoing {
    clock: Arc<Clock>,
    greeting: Greeting,
    queue: Mutex<Queue>,
    arrived: Notify,
    waiting: Gauge,
    dropped: Counter,
}

impl Outgoing {
    pub(super) fn new(
        greeting: Greeting,
        clock: Arc<Clock>,
        (waiting, dropped): (Gauge, Counter),
    ) -> Outgoing {
        let queue = Mutex::new(Queue::new(Bounds::SERVER));
        Outgoing {
            clock,
            greeting,
            queue,
            arrived: Notify::new(),
            waiting,
            dropped,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages to this peer were given up.
    pub(super) fn count_lost(&self, messages: usize) {
        self.dropped.increment(messages as u64);
    }

    /// Adds messages; never waits.
    pub(super) fn push(&self, messages: Vec<Message>) {
        let mut queue = self.lock();
        self.count_lost(queue.push(messages).len());
        self.waiting.set(queue.len() as f64);
        drop(queue);
        self.arrived.notify_one();
    }

    /// The next frame's messages, in order; empty if nothing waits.
    fn take(&self) -> Vec<Message> {
        let mut queue = self.lock();
        let taken = queue.take();
        self.waiting.set(queue.len() as f64);
        taken
    }
}

/// Connects, greets, sends, and does so again whenever the connection ends; never ends itself.
pub(super) async fn run(
    peer: Arc<Outgoing>,
    address: String,
    patience: Patience,
    mailbox: Arc<Mailbox>,
    metrics: Arc<Metrics>,
) {
    let [first, longest] = BACKOFF;
    let mut backoff = first;
    let mut complaint = String::new();
    let to = peer.greeting.to.0;
    loop {
        match connect(&peer, &address, patience).await {
            Ok(mut stream) => {
                tracing::info!(peer = to, %address, "connected");
                (backoff, complaint) = (first, String::new());
                let ended = serve(&peer, &mut stream, patience).await;
                ended.settle(&stream, format!("node {to}"), &metrics);
                tracing::info!(peer = to, why = %ended, "connection lost");
            }
            Err(error) => {
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

async fn connect(peer: &Outgoing, address: &str, patience: Patience) -> Result<TcpStream, Error> {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        write_greeting(&mut stream, &peer.greeting).await?;
        let theirs = read_greeting(&mut stream).await.map_err(unsaid)?;
        match misfit(&peer.greeting, &theirs) {
            None => Ok(stream),
            Some(why) => Err(Error::new(ErrorKind::InvalidData, why)),
        }
    };
    match timeout(patience.to_connect(), attempt).await {
        Ok(done) => done,
        Err(_) => Err(Error::from(ErrorKind::TimedOut)),
    }
}

/// The end of a connection on which nobody has said who he is.
fn unsaid(error: Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::new(error.kind(), "it hung up before it said who it is"),
        _ => error,
    }
}

/// Why the answer to a greeting is none of a peer that lets this node in.
fn misfit(mine: &Greeting, theirs: &Greeting) -> Option<String> {
    let (me, to) = (mine.from.name, mine.to);
    if theirs.magic != MAGIC {
        Some("it is no node of Fermata".into())
    } else if theirs.version != mine.version {
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
    stream: &mut TcpStream,
    greeting: &Greeting,
) -> Result<(), Error> {
    let greeting = wire::encode(greeting);
    stream.write_u32(greeting.len() as u32).await?;
    stream.write_all(&greeting).await
}

pub(super) async fn read_greeting(stream: &mut TcpStream) -> Result<Greeting, Error> {
    let length = stream.read_u32().await? as usize;
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
async fn serve(peer: &Outgoing, stream: &mut TcpStream, patience: Patience) -> Ended {
    let (read, write) = stream.split();
    let writing = AtomicBool::new(false);
    tokio::select! {
        ended = send(peer, write, patience, &writing) => ended,
        ended = watch(read, patience) => match ended {
            Ended::Silent if writing.load(Ordering::Relaxed) => Ended::Stalled,
            ended => ended,
        },
    }
}

/// Sends, and says in `writing` while the system takes nothing.
async fn send(
    peer: &Outgoing,
    mut write: WriteHalf<'_>,
    patience: Patience,
    writing: &AtomicBool,
) -> Ended {
    loop {
        let messages = peer.take();
        let frames = if !messages.is_empty() {
            // Only now: after all that the messages say has been.
            let interval = peer.clock.now().interval;
            frames(peer.greeting.from, interval, messages, FRAME_MAX)
        } else if timeout(patience.beat, peer.arrived.notified())
            .await
            .is_err()
        {
            vec![EMPTY.to_vec()]
        } else {
            continue;
        };
        for frame in frames {
            writing.store(true, Ordering::Relaxed);
            if let Err(error) = write.write_all(&frame).await {
                return error.into();
            }
            writing.store(false, Ordering::Relaxed);
        }
    }
}

/// Listens to the other end's beats.
async fn watch(mut read: ReadHalf<'_>, patience: Patience) -> Ended {
    let mut silence = patience.silence();
    let mut beats = [0; 64];
    loop {
        let heard = match timeout(patience.beat, read.read(&mut beats)).await {
            Ok(Ok(0)) => return Error::from(ErrorKind::UnexpectedEof).into(),
            Ok(Ok(count)) => &beats[..count],
            Ok(Err(error)) => return error.into(),
            Err(_) => match silence.goes_on() {
                Ok(()) => continue,
                Err(ended) => return ended,
            },
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
    use fermata_protocol::base::{ClusterId, Incarnation, NodeId, NodeName};

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
        };
        let theirs = Greeting {
            from: id(2),
            to: NodeName(1),
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
            (other(|g| g.version += 1), "version"),
            (other(|g| g.cluster = ClusterId(0)), "another cluster"),
            (other(|g| g.from.name = NodeName(3)), "node 3 and not 2"),
            (other(|g| g.to = NodeName(2)), "no node 1"),
            (other(|g| g.from.incarnation = NOBODY), "refuses"),
        ] {
            assert!(said.contains(why), "{said}");
        }
    }
}
