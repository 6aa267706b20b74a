//! `fermata bench crowd`: what clients that only hold connections cost those that work.
//!
//! **What is measured.** A cluster of its own, of real processes on this machine. Some clients work
//! at one node in closed loops: one writes a register over the connection that it has, one asks for
//! the node's health over a new one. First they are alone. Then a crowd comes to the same node: the
//! *silent* connect and say nothing, the *half-open* stop in the middle of a head, the *slow* send
//! a body of 30 MiB a little each second, the *bodies* send 2 MiB of one at once and no more. A
//! client whose connection is closed comes again a second later. The figures are latencies with the
//! crowd beside those without, and the node's memory and descriptors before, with, and after the
//! crowd.
//!
//! The crowd lives in this process and takes its share of the processors: the ratio is for both.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Client, Options};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::loops::ms;
use crate::args::{CrowdArgs, Global};
use crate::connect::uri;
use crate::dev::cluster::Cluster;
use crate::dev::plan::{PlannedNode, Wishes};
use crate::dev::{self, Folder};
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};

/// Where the search for free ports begins.
const BASE_PORT: u16 = 7600;
/// Clients that work, of each kind.
const WORKERS: usize = 4;
/// How long a worker rests between two turns: a crowd is compared, not the machine's limit.
const PAUSE: Duration = Duration::from_millis(5);
/// A client whose connection was closed connects again after this, and a slow one sends some bytes
/// this often.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the crowd has until it is there, and the node until all of it is gone.
const SETTLE: Duration = Duration::from_secs(15);

/// A body that never comes to its end.
const BODY: usize = 30 << 20;
/// What is sent of it at a time.
const PIECE: usize = 1 << 10;
/// What is sent of it at once by those that have begun with zeal.
const BEGUN: usize = 2 << 20;

/// The figures of one kind of worker, or of the node.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    before: f64,
    with: f64,
    after: f64,
}

/// What was seen of the node and by the workers in one span of time.
struct Seen {
    writes_p99_ms: f64,
    asked_p99_ms: f64,
    rss_mib: f64,
    descriptors: f64,
}

/// Measures, and prints.
pub(crate) async fn run(global: &Global, args: CrowdArgs) -> Result<u8, Failure> {
    fermata_server::raise_open_files();
    let folder = Folder::at(None)?;
    let plan = dev::plan_in(folder.path(), &Wishes::default())?;
    let base_port = dev::cluster::free_base(&plan, BASE_PORT);
    let mut cluster = Cluster::start(&plan, folder.path(), base_port)?;
    let lines = measure(&mut cluster, &args).await;
    for trouble in cluster.stop().await {
        eprintln!("fermata: {trouble}");
    }
    let lines = lines?;
    if global.json {
        return output::json(&lines).map(|()| 0);
    }
    let mut table = Table::new(&["what", "before", "with", "after", "with/before"]);
    for line in &lines {
        let cell = |value: f64| format!("{value:.1}");
        let cells = [line.before, line.with, line.after, line.with / line.before];
        let cells = cells.map(cell);
        table.row([vec![line.what.to_owned()], cells.to_vec()].concat());
    }
    output::text(table).map(|()| 0)
}

async fn measure(cluster: &mut Cluster, args: &CrowdArgs) -> Result<Vec<Line>, Failure> {
    cluster.wait_ready().await?;
    let node = &cluster.nodes()[0];
    let pid = node
        .pid()
        .ok_or_else(|| Failure::new(Exit::Local, "the node has ended"))?;
    let span = Duration::from_secs(args.seconds.into());
    let before = look(&node.planned, pid, span).await?;
    let mut crowd = JoinSet::new();
    let faces = [node.planned.grpc, node.planned.rest];
    for (at, face) in (0..args.silent).zip(faces.into_iter().cycle()) {
        crowd.spawn(silent(face, at));
    }
    for (at, face) in (0..args.half_open).zip(faces.into_iter().cycle()) {
        let begun: &[u8] = match face == node.planned.grpc {
            true => b"PRI * HTTP/2.0\r\n\r\nS",
            false => b"PUT /v1/keyspaces/registers/keys/k HTTP/1.1\r\nhost:",
        };
        crowd.spawn(half_open(face, begun, at));
    }
    for at in 0..args.slow {
        crowd.spawn(slow(node.planned.rest, at, PIECE));
    }
    for at in 0..args.bodies {
        crowd.spawn(slow(node.planned.rest, args.slow + at, BEGUN));
    }
    tokio::time::sleep(SETTLE).await;
    let with = look(&node.planned, pid, span).await?;
    crowd.shutdown().await;
    tokio::time::sleep(SETTLE).await;
    let after = look(&node.planned, pid, span).await?;
    let line = |what, of: fn(&Seen) -> f64| Line {
        what,
        before: of(&before),
        with: of(&with),
        after: of(&after),
    };
    Ok(vec![
        line("p99 of a write, ms", |seen| seen.writes_p99_ms),
        line("p99 of a new connection, ms", |seen| seen.asked_p99_ms),
        line("memory, MiB", |seen| seen.rss_mib),
        line("descriptors", |seen| seen.descriptors),
    ])
}

/// Works at a node for so long, then looks at its process.
async fn look(node: &PlannedNode, pid: u32, span: Duration) -> Result<Seen, Failure> {
    let until = Instant::now() + span;
    let (mut writers, mut askers) = (JoinSet::new(), JoinSet::new());
    for worker in 0..WORKERS {
        writers.spawn(write(node.grpc, worker, until));
        askers.spawn(ask(node.rest, until));
    }
    let writes = sorted(writers).await?;
    let asked = sorted(askers).await?;
    let failed = |error| Failure::local(format_args!("looking at process {pid}"), error);
    Ok(Seen {
        writes_p99_ms: ms(&writes, 99),
        asked_p99_ms: ms(&asked, 99),
        rss_mib: memory(pid).map_err(failed)?,
        descriptors: descriptors(pid).map_err(failed)?,
    })
}

type Latencies = Result<Vec<Duration>, Failure>;

async fn sorted(mut workers: JoinSet<Latencies>) -> Latencies {
    let mut all = Vec::new();
    while let Some(one) = workers.join_next().await {
        all.extend(one.map_err(Failure::internal)??);
    }
    all.sort_unstable();
    Ok(all)
}

/// Writes a register of its own, over and over.
async fn write(grpc: SocketAddr, worker: usize, until: Instant) -> Latencies {
    let client = Client::connect(Options::new([uri(&grpc.to_string(), false)])).await?;
    let (key, value) = (format!("crowd/{worker}"), Bytes::from(vec![b'x'; 100]));
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        client.write("registers", &key, Some(value.clone())).await?;
        latencies.push(begun.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(latencies)
}

/// Asks for the node's health over a new connection, over and over, until each time it is told.
async fn ask(rest: SocketAddr, until: Instant) -> Latencies {
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        while !is_healthy(rest).await.unwrap_or(false) {}
        latencies.push(begun.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(latencies)
}

async fn is_healthy(rest: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(rest).await?;
    let asked = b"GET /healthz HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
    stream.write_all(asked).await?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await?;
    Ok(said.starts_with(b"HTTP/1.1 200"))
}

/// Waits for its turn among those who come, so that they do not come at once.
async fn arrive(at: u32) {
    tokio::time::sleep(Duration::from_millis((at % 1_000).into())).await;
}

/// Says nothing, whatever happens.
async fn silent(face: SocketAddr, at: u32) {
    half_open(face, b"", at).await;
}

/// Begins a head and stops.
async fn half_open(face: SocketAddr, begun: &'static [u8], at: u32) {
    arrive(at).await;
    loop {
        // However it ends, it begins again.
        let _ = async {
            let mut stream = TcpStream::connect(face).await?;
            stream.write_all(begun).await?;
            stream.read_to_end(&mut Vec::new()).await
        }
        .await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sends a large body: so much at once, and then a little at a time.
async fn slow(rest: SocketAddr, at: u32, first: usize) {
    let head = format!(
        "PUT /v1/keyspaces/registers/keys/slow{at}?consistency=linearizable HTTP/1.1\r\nhost: h\r\n\
         content-type: application/octet-stream\r\ncontent-length: {BODY}\r\n\r\n"
    );
    arrive(at).await;
    loop {
        // However it ends, it begins again.
        let _ = async {
            let mut stream = TcpStream::connect(rest).await?;
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&vec![b'x'; first]).await?;
            for _ in 0..(BODY - first) / PIECE {
                tokio::time::sleep(AGAIN).await;
                stream.write_all(&[b'x'; PIECE]).await?;
            }
            stream.read_to_end(&mut Vec::new()).await
        }
        .await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Memory of a process that is in use, in MiB.
fn memory(pid: u32) -> std::io::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib: f64 = kib.and_then(|kib| kib.trim().parse().ok()).unwrap_or(0.0);
    Ok(kib / 1_024.0)
}

/// How many descriptors a process has open.
fn descriptors(pid: u32) -> std::io::Result<f64> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as f64)
}
