//! What TLS costs: sections and puts over it beside the same in clear, and what others notice of a
//! flood of handshakes.
//!
//! **What is measured.** Two clusters of three processes on this machine, one in clear and one over
//! TLS between nodes and to clients. Clients in closed loops, each with a key of its own, enter and
//! put and leave, and then put inside one section each; the clusters have their turns one after the
//! other, several times, so that both have the machine's good and bad moments. Then the cluster
//! with TLS has a steady load, whose latencies are taken without and with a flood of handshakes at
//! one of its nodes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fermata_client::{Client, Enter};
use fermata_tls::Trust;
use fermata_tls::rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::processes::{Processes, Setup, beside};
use crate::replacement::Steady;

/// How long latencies are taken, each time.
const FLOOD: Duration = Duration::from_secs(10);
/// Registers that the steady load touches.
const REGISTERS: u64 = 1_000;

/// See `fermata-bench secured --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct SecuredArgs {
    /// Clients in closed loops.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Turns of each cluster and load.
    #[arg(long, default_value_t = 5)]
    turns: u32,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Handshakes per second of the flood.
    #[arg(long, default_value_t = 500)]
    handshakes: u64,
    /// The program to run as the nodes [default: `fermata` beside this one].
    #[arg(long, value_name = "FILE")]
    fermata: Option<PathBuf>,
}

/// What the clients do.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Enter, put and leave.
    Sections,
    /// Put, in one section.
    Puts,
}

/// Measures and prints.
pub(crate) async fn run(args: SecuredArgs) -> Result<()> {
    let program = args.fermata.clone().map_or_else(beside, Ok)?;
    let mut clusters = Vec::new();
    for tls in [false, true] {
        let setup = Setup {
            tls,
            ..Setup::default()
        };
        clusters.push(Processes::start(&program, 3, setup).await?);
    }
    for load in [Load::Sections, Load::Puts] {
        let mut done = [0, 0];
        for _ in 0..args.turns {
            for (cluster, done) in clusters.iter().zip(&mut done) {
                *done += turn(cluster, load, &args).await?;
            }
        }
        let seconds = (u64::from(args.turns) * args.seconds) as f64;
        let [clear, tls] = done.map(|done| done as f64 / seconds);
        println!(
            "{load:?} per second, {} clients: {clear:.0} in clear, {tls:.0} over TLS, {:.2} of \
             that",
            args.clients,
            tls / clear
        );
    }
    flood(&clusters[1], args.handshakes).await
}

/// How much was done in one turn.
async fn turn(cluster: &Processes, load: Load, args: &SecuredArgs) -> Result<u64> {
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let mut clients = JoinSet::new();
    for number in 0..args.clients {
        let client = cluster.client(number % 3).await?;
        clients.spawn(work(client, format!("secured/{number}"), load, until));
    }
    let mut done = 0;
    while let Some(ended) = clients.join_next().await {
        done += ended??;
    }
    Ok(done)
}

async fn work(client: Client, key: String, load: Load, until: Instant) -> Result<u64> {
    let mut done = 0;
    match load {
        Load::Sections => {
            while Instant::now() < until {
                let section = client.enter("default", &[&key], Enter::default()).await?;
                section.put_and_leave(&key, "a value").await?;
                done += 1;
            }
        }
        Load::Puts => {
            let section = client.enter("default", &[&key], Enter::default()).await?;
            while Instant::now() < until {
                section.put(&key, "a value").await?;
                done += 1;
            }
            section.leave_and_wait().await?;
        }
    }
    Ok(done)
}

/// Latencies of a steady load without and with a flood of handshakes.
async fn flood(cluster: &Processes, per_second: u64) -> Result<()> {
    let mut clients = Vec::new();
    for at in 0..3 {
        clients.push(cluster.client(at).await?);
    }
    let steady = Steady::begin(clients, REGISTERS);
    tokio::time::sleep(FLOOD).await;
    steady.p99();
    tokio::time::sleep(FLOOD).await;
    let calm = steady.p99();
    let trust = cluster.trust().context("the cluster speaks TLS")?;
    let address = cluster.addresses().swap_remove(0);
    let done = Arc::new(AtomicU64::new(0));
    let mut every = tokio::time::interval(Duration::from_micros(1_000_000 / per_second));
    let (mut hands, until) = (JoinSet::new(), Instant::now() + FLOOD);
    while Instant::now() < until {
        every.tick().await;
        let (trust, address, done) = (trust.clone(), address.clone(), done.clone());
        hands.spawn(async move {
            // What the node does not take is not counted.
            if shake(&trust, &address).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        while hands.try_join_next().is_some() {}
    }
    let during = steady.p99();
    let failed = steady.end().await?;
    println!(
        "beside {:.0} handshakes per second at one node: p99 {:.1} ms, {:.1} times the {:.1} ms \
         before; {failed} operations failed",
        done.load(Ordering::Relaxed) as f64 / FLOOD.as_secs_f64(),
        during.as_secs_f64() * 1e3,
        during.as_secs_f64() / calm.as_secs_f64(),
        calm.as_secs_f64() * 1e3
    );
    Ok(())
}

async fn shake(trust: &Trust, address: &str) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    let host = ServerName::try_from("127.0.0.1")?;
    TlsConnector::from(trust.config())
        .connect(host, stream)
        .await?;
    Ok(())
}
