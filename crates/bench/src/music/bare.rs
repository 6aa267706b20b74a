//! What a machine can do at most: values through sockets into flushed files at three nodes, and
//! nothing else. No locks, no order between clients, no checksums, nothing that could be read back.
//!
//! **Problem.** All nodes and clients share one machine. Where values are large, its memory, disk
//! and processors bound every system alike, and a ratio of two systems says nothing about how much
//! there was left to win.
//!
//! **Idea.** The same movement of bytes as a replicated put needs: a client sends the value to its
//! node, that one sends it to the two others, each appends it to a file, one flush serves all that
//! came meanwhile, and the client is answered when two of three have flushed. It is measured in
//! turns with the systems, as one of them, and shown as the limit that they can be held against.
//!
//! All counters are of values in order: connections keep it, and so do the files.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;

use anyhow::{Result, bail};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::system::{Boxed, Section, System};

/// Puts that are in flight at once, as with the systems.
const WINDOW: usize = 32;

/// Bytes of a file that is written over and over: made before, so that no flush makes it longer.
const FILE: usize = 64 << 20;

/// The first byte of a connection: of a client, or of a node that sends copies.
const CLIENT: u8 = 1;
const COPIES: u8 = 2;

/// A value, and whom to tell when it is in the file.
type Stored = (Arc<Vec<u8>>, Arc<dyn Fn() + Send + Sync>);

/// Starts the nodes; they end with the process.
pub(crate) fn start(folder: &Path, nodes: usize) -> Result<Vec<SocketAddr>> {
    let listeners: Vec<TcpListener> = (0..nodes)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<_, _>>()?;
    for (at, listener) in listeners.into_iter().enumerate() {
        let file = File::create(folder.join(format!("bare-{at}")))?;
        for megabyte in 0..FILE as u64 >> 20 {
            file.write_all_at(&[0; 1 << 20], megabyte << 20)?;
        }
        file.sync_all()?;
        let (log, stored) = channel();
        spawn(move || keep(&file, &stored));
        let others: Vec<SocketAddr> = addresses
            .iter()
            .copied()
            .filter(|other| *other != addresses[at])
            .collect();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, others) = (log.clone(), others.clone());
                // Whoever ends a connection ends its threads.
                spawn(move || serve(stream, &log, &others));
            }
        });
    }
    Ok(addresses)
}

/// The thread of a file: one flush for all that came meanwhile.
fn keep(file: &File, stored: &Receiver<Stored>) {
    let mut at = 0;
    while let Ok(first) = stored.recv() {
        let all: Vec<Stored> = std::iter::once(first).chain(stored.try_iter()).collect();
        for (value, _) in &all {
            if at + value.len() > FILE {
                at = 0;
            }
            file.write_all_at(value, at as u64)
                .expect("the file was made as long as this");
            at += value.len();
        }
        file.sync_data().expect("a disk that is measured works");
        for (_, tell) in all {
            tell();
        }
    }
}

/// One connection: values, each behind its length, until it ends.
fn serve(mut stream: TcpStream, log: &Sender<Stored>, others: &[SocketAddr]) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut what = [0];
    stream.read_exact(&mut what).ok()?;
    let back = Mutex::new(stream.try_clone().ok()?);
    if what[0] == COPIES {
        let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(move || answer(&back, 1));
        loop {
            let value = read(&mut stream)?;
            log.send((value, tell.clone())).ok()?;
        }
    }
    let quorum = Arc::new(Quorum {
        counts: Mutex::default(),
        back,
    });
    let mut copies = Vec::new();
    for (number, other) in others.iter().enumerate() {
        let mut to = TcpStream::connect(other).ok()?;
        to.set_nodelay(true).ok()?;
        to.write_all(&[COPIES]).ok()?;
        let mut from = to.try_clone().ok()?;
        let counted = quorum.clone();
        spawn(move || {
            let mut answers = [0; 256];
            while let Ok(some @ 1..) = from.read(&mut answers) {
                counted.add(number + 1, some);
            }
        });
        let (sender, values) = channel::<Arc<Vec<u8>>>();
        spawn(move || {
            for value in values {
                if send(&mut to, &value).is_none() {
                    return;
                }
            }
        });
        copies.push(sender);
    }
    let own = quorum.clone();
    let tell: Arc<dyn Fn() + Send + Sync> = Arc::new(move || own.add(0, 1));
    loop {
        let value = read(&mut stream)?;
        for copy in &copies {
            copy.send(value.clone()).ok()?;
        }
        log.send((value, tell.clone())).ok()?;
    }
}

/// How many values each of the nodes has flushed, of one client.
struct Quorum {
    counts: Mutex<[usize; 3]>,
    back: Mutex<TcpStream>,
}

impl Quorum {
    fn add(&self, node: usize, some: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let middle = |counts: &[usize; 3]| {
            let mut sorted = *counts;
            sorted.sort_unstable();
            sorted[1]
        };
        let before = middle(&counts);
        counts[node] += some;
        answer(&self.back, middle(&counts) - before);
    }
}

/// A byte per value that is answered for; a task that does not listen any more is not told.
fn answer(back: &Mutex<TcpStream>, values: usize) {
    let mut back = back.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = back.write_all(&vec![0; values]);
}

fn send(stream: &mut TcpStream, value: &[u8]) -> Option<()> {
    let length = u32::try_from(value.len()).ok()?;
    stream.write_all(&length.to_be_bytes()).ok()?;
    stream.write_all(value).ok()
}

fn read(stream: &mut TcpStream) -> Option<Arc<Vec<u8>>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut value = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut value).ok()?;
    Some(Arc::new(value))
}

/// A client of one node.
pub(crate) struct Bare(tokio::sync::Mutex<tokio::net::TcpStream>);

impl Bare {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Bare> {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_u8(CLIENT).await?;
        Ok(Bare(tokio::sync::Mutex::new(stream)))
    }

    async fn put_all(&self, values: &[Bytes]) -> Result<()> {
        let mut stream = self.0.lock().await;
        let mut open = 0;
        let mut answers = [0; WINDOW];
        for value in values {
            while open == WINDOW {
                open -= answered(&mut stream, &mut answers).await?;
            }
            stream.write_u32(u32::try_from(value.len())?).await?;
            stream.write_all(value).await?;
            open += 1;
        }
        while open > 0 {
            open -= answered(&mut stream, &mut answers).await?;
        }
        Ok(())
    }
}

/// How many values more are flushed.
async fn answered(stream: &mut tokio::net::TcpStream, answers: &mut [u8]) -> Result<usize> {
    match stream.read(answers).await? {
        0 => bail!("a node of sockets and files ended the connection"),
        some => Ok(some),
    }
}

impl System for Bare {
    fn enter<'a>(&'a self, _key: &'a str) -> Boxed<'a, Box<dyn Section + 'a>> {
        Box::pin(async move {
            let section: Box<dyn Section + 'a> = Box::new(Inside(self));
            Ok(section)
        })
    }

    fn put<'a>(&'a self, _key: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(async move { self.put_all(&[value]).await })
    }

    fn get<'a>(&'a self, _key: &'a str) -> Boxed<'a, ()> {
        Box::pin(async { bail!("nothing can be read back") })
    }
}

struct Inside<'s>(&'s Bare);

impl Section for Inside<'_> {
    fn get(&mut self) -> Boxed<'_, ()> {
        self.0.get("")
    }

    fn put(&mut self, value: Bytes) -> Boxed<'_, ()> {
        self.0.put("", value)
    }

    fn put_all(&mut self, values: Vec<Bytes>) -> Boxed<'_, ()> {
        Box::pin(async move { self.0.put_all(&values).await })
    }

    fn leave<'a>(self: Box<Self>) -> Boxed<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async { Ok(()) })
    }
}
