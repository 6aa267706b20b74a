//! What it takes to give the seat of a node with much data to another one.
//!
//! **What is measured.** Three processes on this machine, filled with registers. A fourth joins and
//! replaces one of the first, by `fermata node replace`, in an operator's hands: once with nothing
//! beside it, once with a steady load whose latencies are compared with those before, and once with
//! that load and slowed down, as an operator would who wants to disturb nobody. Beside the time
//! stands what the disk can do, a file of the same bytes written and flushed just before, and
//! what share of the processors was used. Then a replacement is interrupted by SIGKILL of the node
//! that comes, half way, and goes on when it is back; the report has how much longer it took in
//! all than one alone just before. At the end it says what the directories hold.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use fermata_client::Client;
use tokio::task::JoinSet;

use crate::cpu::Meter;
use crate::processes::{Processes, Setup, beside};

/// Writes that are under way at once while registers are filled.
const AT_ONCE: u64 = 192;
/// Operations per second of the steady load, at each node.
const STEADY: u64 = 50;

/// How long latencies are taken before a move.
const CALM: Duration = Duration::from_secs(20);

/// How long after the end it is looked at again what space has returned.
const SPACE: Duration = Duration::from_secs(120);

/// See `fermata-bench replacement --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplacementArgs {
    /// Registers.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of each.
    #[arg(long, default_value_t = 1_024)]
    bytes: usize,
    /// How fast each node moves where that is slowed down: the setting `move_rate`.
    #[arg(long, default_value = "512KiB")]
    move_rate: String,
    /// The program to run as the nodes [default: `fermata` beside this one].
    #[arg(long, value_name = "FILE")]
    fermata: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) async fn run(args: ReplacementArgs) -> Result<()> {
    let program = args.fermata.clone().map_or_else(beside, Ok)?;
    let cluster = Processes::start(&program, 3, Setup::default()).await?;
    let mut bench = Bench {
        program,
        cluster,
        keys: args.keys,
        bytes: args.bytes,
    };
    let begun = Instant::now();
    bench.fill().await?;
    let filled = begun.elapsed().as_secs_f64();
    println!(
        "{} registers of {} bytes, filled in {filled:.0} s",
        args.keys, args.bytes
    );
    println!("directories: {}", bench.sizes()?);
    let disk = bench.disk()?;
    println!(
        "the disk: {:.0} MB/s, a file of the same bytes",
        bench.mb() / disk
    );
    let alone = bench.alone().await?;
    bench.beside_a_load(alone).await?;
    bench.settle(&args.move_rate).await?;
    print!("at {} per second and node, ", args.move_rate);
    bench.beside_a_load(alone).await?;
    bench.settle("off").await?;
    // What was moved and deleted before counts for both.
    let again = bench.alone().await?;
    bench.interrupted(again).await?;
    println!("directories: {}", bench.sizes()?);
    tokio::time::sleep(SPACE).await;
    println!("{} s later: {}", SPACE.as_secs(), bench.sizes()?);
    Ok(())
}

struct Bench {
    program: PathBuf,
    cluster: Processes,
    keys: u64,
    bytes: usize,
}

impl Bench {
    fn mb(&self) -> f64 {
        self.keys as f64 * self.bytes as f64 / 1e6
    }

    async fn fill(&self) -> Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        let clients = self.clients().await?;
        for at in 0..AT_ONCE {
            let client = clients[at as usize % clients.len()].clone();
            let (next, keys, value) = (next.clone(), self.keys, vec![7; self.bytes]);
            let value = Bytes::from(value);
            writers.spawn(async move {
                loop {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    if key >= keys {
                        return Ok::<(), anyhow::Error>(());
                    }
                    let key = format!("filled/{key}");
                    client.write("registers", key, Some(value.clone())).await?;
                }
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        Ok(())
    }

    async fn clients(&self) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for label in self.cluster.labels() {
            clients.push(self.cluster.client_of(&label).await?);
        }
        Ok(clients)
    }

    /// Seconds to write and flush as many bytes as one node holds.
    fn disk(&self) -> Result<f64> {
        let mut file = tempfile::tempfile_in(self.cluster.folder())?;
        let chunk = vec![7; 1 << 20];
        let begun = Instant::now();
        let mut left = self.keys as usize * self.bytes;
        while left > 0 {
            let some = left.min(chunk.len());
            file.write_all(&chunk[..some])?;
            left -= some;
        }
        file.sync_all()?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// What the directories of the nodes that are up hold, in MB.
    fn sizes(&self) -> Result<String> {
        let mut told = Vec::new();
        for label in self.cluster.labels() {
            let size = size(&self.cluster.folder().join(&label))? as f64 / 1e6;
            told.push(format!("{label} {size:.0} MB"));
        }
        Ok(told.join(", "))
    }

    /// Starts another node that is to replace the first one that is up. Their labels.
    async fn pair(&mut self) -> Result<(String, String)> {
        let old = self.cluster.labels().into_iter().next();
        let old = old.context("no node is up")?;
        let site = self.cluster.site(&old)?;
        let new = self.cluster.join(&self.program, site)?;
        self.cluster.ready(&new).await?;
        Ok((old, new))
    }

    async fn fermata(&self, args: &[&str]) -> Result<()> {
        let output = tokio::process::Command::new(&self.program)
            .args(args)
            .env("FERMATA_ENDPOINTS", self.cluster.addresses().join(","))
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{args:?} failed: {said}");
        Ok(())
    }

    async fn replace(&self, old: &str, new: &str) -> Result<()> {
        self.fermata(&["node", "replace", old, new, "--patience", "1h"])
            .await
    }

    /// How fast nodes move from then on.
    async fn settle(&self, move_rate: &str) -> Result<()> {
        self.fermata(&["settings", "set", "move_rate", move_rate])
            .await
    }

    /// Seconds of a replacement with nothing beside it.
    async fn alone(&mut self) -> Result<f64> {
        let (old, new) = self.pair().await?;
        let (meter, begun) = (Meter::start(), Instant::now());
        self.replace(&old, &new).await?;
        let took = begun.elapsed().as_secs_f64();
        let spent = meter.spent();
        self.cluster.end(&old).await?;
        let cores = std::thread::available_parallelism()?.get() as f64;
        println!(
            "alone: {took:.1} s, {:.0} MB/s, {:.0} keys/s, {:.0} % of {cores} cores",
            self.mb() / took,
            self.keys as f64 / took,
            100.0 * spent.all / spent.wall / cores
        );
        Ok(took)
    }

    async fn beside_a_load(&mut self, alone: f64) -> Result<()> {
        let (old, new) = self.pair().await?;
        let steady = Steady::begin(self.clients().await?, self.keys);
        // What was moved before is put away in the background.
        tokio::time::sleep(CALM).await;
        steady.p99();
        tokio::time::sleep(CALM).await;
        let calm = steady.p99();
        let begun = Instant::now();
        self.replace(&old, &new).await?;
        let took = begun.elapsed().as_secs_f64();
        let during = steady.p99();
        let failed = steady.end().await?;
        self.cluster.end(&old).await?;
        println!(
            "beside {} operations/s: {took:.1} s, {:.1} times as long as alone; p99 {:.1} ms, \
             {:.1} times the {:.1} ms before; {failed} operations failed",
            3 * STEADY,
            took / alone,
            during.as_secs_f64() * 1e3,
            during.as_secs_f64() / calm.as_secs_f64(),
            calm.as_secs_f64() * 1e3
        );
        Ok(())
    }

    /// The node that comes is killed half way, and started again at once.
    async fn interrupted(&mut self, alone: f64) -> Result<()> {
        let (old, new) = self.pair().await?;
        let begun = Instant::now();
        let killed = async {
            tokio::time::sleep(Duration::from_secs_f64(alone / 2.0)).await;
            self.cluster.kill(self.cluster.at(&new)?)
        };
        let (replaced, killed) = tokio::join!(
            tokio::time::timeout(
                Duration::from_secs_f64(alone / 2.0),
                self.replace(&old, &new)
            ),
            killed
        );
        killed?;
        ensure!(
            replaced.is_err(),
            "the replacement was over before it was half way"
        );
        self.cluster.end(&new).await?;
        self.cluster.again(&self.program, &new)?;
        self.cluster.ready(&new).await?;
        self.replace(&old, &new).await?;
        let took = begun.elapsed().as_secs_f64();
        self.cluster.end(&old).await?;
        println!(
            "killed half way: {took:.1} s in all, {:.1} s more than alone",
            took - alone
        );
        Ok(())
    }
}

/// A load at a fixed rate, whose latencies are taken since the last look.
pub(crate) struct Steady {
    over: Arc<AtomicBool>,
    took: Arc<std::sync::Mutex<Vec<Duration>>>,
    clients: JoinSet<u64>,
}

impl Steady {
    /// Begins it, with a share for each client, over so many registers.
    pub(crate) fn begin(clients: Vec<Client>, keys: u64) -> Steady {
        let over = Arc::new(AtomicBool::new(false));
        let took = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut all = JoinSet::new();
        for client in clients {
            let (over, took) = (over.clone(), took.clone());
            all.spawn(async move {
                let mut every = tokio::time::interval(Duration::from_micros(1_000_000 / STEADY));
                let (mut failed, mut count) = (0, 0_u64);
                while !over.load(Ordering::Relaxed) {
                    every.tick().await;
                    count += 1;
                    let key = format!("filled/{}", count.wrapping_mul(7_919) % keys);
                    let begun = Instant::now();
                    let ended = match count % 2 {
                        0 => client.read("registers", key).await.map(drop),
                        _ => {
                            client
                                .write("registers", key, Some(Bytes::from("new")))
                                .await
                        }
                    };
                    match ended {
                        Ok(()) => took.lock().expect("no thread panics").push(begun.elapsed()),
                        Err(_) => failed += 1,
                    }
                }
                failed
            });
        }
        Steady {
            over,
            took,
            clients: all,
        }
    }

    /// Of what was done since the last look.
    pub(crate) fn p99(&self) -> Duration {
        let mut took = std::mem::take(&mut *self.took.lock().expect("no thread panics"));
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// Ends it: how many operations failed.
    pub(crate) async fn end(mut self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        let mut failed = 0;
        while let Some(ended) = self.clients.join_next().await {
            failed += ended?;
        }
        Ok(failed)
    }
}

/// Bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A file may go while it is looked at.
        match entry.metadata() {
            Ok(about) if about.is_dir() => sum += size(&entry.path())?,
            Ok(about) => sum += about.len(),
            Err(_) => {}
        }
    }
    Ok(sum)
}
