//! How long a site waits after the death of the node that led what it enters.
//!
//! **What is measured.** A cluster of three processes, each a site of its own. A client at the
//! second site has entered a key of each of six segments that the first node leads, once. That node
//! is then killed by SIGKILL, or held up by SIGSTOP, which leaves its sockets open. At once the
//! client enters those keys one after the other; each entry's time counts from the death. The
//! report has the first entry and the last one's distance from it, over all rounds.
//!
//! A second figure is the price of a shorter lease: how often a segment changes its primary
//! although no node died, while busy loops take the processors. Several leases are watched at the
//! same time, each in a cluster of its own, so that they meet the same disturbances.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fermata_client::Client;
use fermata_protocol::base::{Address, Keyspace, NodeName, SegmentId};
use tokio::task::JoinSet;

use crate::cluster::SEGMENT_BITS;
use crate::processes::{Processes, Setup, beside};

/// So many keys are entered, each of another segment.
const KEYS: usize = 6;
/// How often it is looked at who leads.
const LOOK: Duration = Duration::from_millis(100);

/// See `fermata-bench outage --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct OutageArgs {
    /// Deaths for each lease, each in a cluster of its own.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Hold the node up by SIGSTOP instead of killing it.
    #[arg(long)]
    stop: bool,
    /// Milliseconds of the nodes' lease, one value or several [default: the server's].
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    lease: Vec<u64>,
    /// Seconds without a death in which changes of primaries are counted, all leases at once.
    #[arg(long, default_value_t = 0)]
    watch: u64,
    /// Busy loops beside that.
    #[arg(long, default_value_t = 6)]
    loops: usize,
    /// The program to run as the nodes [default: `fermata` beside this one].
    #[arg(long, value_name = "FILE")]
    fermata: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) async fn run(args: OutageArgs) -> Result<()> {
    let program = args.fermata.map_or_else(beside, Ok)?;
    let leases: Vec<Option<u64>> = match args.lease.is_empty() {
        true => vec![None],
        false => args.lease.iter().copied().map(Some).collect(),
    };
    for lease in &leases {
        let (mut first, mut spread) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let after = entries_after_a_death(&program, *lease, args.stop).await?;
            println!("{}: entries after a death, ms: {after:?}", name(*lease));
            first.push(after[0]);
            spread.push(after[after.len() - 1] - after[0]);
        }
        for (what, mut found) in [("first entry", first), ("all segments, after it", spread)] {
            found.sort_unstable();
            if let (Some(median), Some(longest)) = (found.get(found.len() / 2), found.last()) {
                let lease = name(*lease);
                println!("{lease}: {what}: median {median} ms, longest {longest} ms");
            }
        }
    }
    if args.watch > 0 {
        watch_all(
            &program,
            &leases,
            Duration::from_secs(args.watch),
            args.loops,
        )
        .await?;
    }
    Ok(())
}

fn name(lease: Option<u64>) -> String {
    lease.map_or("default lease".into(), |ms| format!("lease {ms} ms"))
}

/// Three nodes with this lease.
async fn three(program: &Path, lease: Option<u64>) -> Result<Processes> {
    let setup = Setup {
        lease,
        ..Setup::default()
    };
    Processes::start(program, 3, setup).await
}

/// Milliseconds from the death to each entry, in order.
async fn entries_after_a_death(program: &Path, lease: Option<u64>, stop: bool) -> Result<Vec<u64>> {
    let cluster = three(program, lease).await?;
    let client = cluster.client(1).await?;
    let dying = NodeName(1);
    let keys = keys_by_segment();
    let led = primaries(&client).await?;
    let led = led.iter().filter(|(_, who)| **who == Some(dying));
    let keys: Vec<&String> = led
        .filter_map(|(segment, _)| keys.get(segment))
        .take(KEYS)
        .collect();
    ensure!(
        keys.len() == KEYS,
        "the first node leads {} segments",
        keys.len()
    );
    for key in &keys {
        enter(&client, key).await?;
    }
    if stop {
        cluster.stop(0)?;
    } else {
        cluster.kill(0)?;
    }
    let death = Instant::now();
    let mut after = Vec::new();
    for key in keys {
        enter(&client, key).await?;
        after.push(death.elapsed().as_millis() as u64);
    }
    Ok(after)
}

async fn enter(client: &Client, key: &str) -> Result<()> {
    let section = client.enter("default", &[key], Default::default()).await?;
    section.leave_and_wait().await?;
    Ok(())
}

/// A key of every segment.
fn keys_by_segment() -> BTreeMap<SegmentId, String> {
    let [sections, _] = Keyspace::built_in();
    let mut keys = BTreeMap::new();
    for number in 0..100 << SEGMENT_BITS {
        let key = format!("k{number}");
        let address = Address::of(Keyspace::SECTIONS, sections.tag_rule, key.as_bytes());
        keys.entry(address.segment(SEGMENT_BITS)).or_insert(key);
    }
    keys
}

/// Who leads each segment, as the client's node knows.
async fn primaries(client: &Client) -> Result<BTreeMap<SegmentId, Option<NodeName>>> {
    let logs = client.status(None).await?.logs;
    let led = logs
        .into_iter()
        .filter_map(|log| Some((log.segment?, log.primary)));
    Ok(led.collect())
}

/// Watches a cluster of each lease at the same time, and prints what was seen.
async fn watch_all(
    program: &Path,
    leases: &[Option<u64>],
    watch: Duration,
    loops: usize,
) -> Result<()> {
    let mut watched = JoinSet::new();
    for lease in leases.iter().copied() {
        let cluster = three(program, lease).await?;
        watched.spawn(async move { Ok::<_, anyhow::Error>((lease, seen(cluster, watch).await?)) });
    }
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..loops {
        let over = over.clone();
        std::thread::spawn(move || while !over.load(Ordering::Relaxed) {});
    }
    let mut all = BTreeMap::new();
    while let Some(done) = watched.join_next().await {
        let (lease, seen) = done??;
        all.insert(lease, seen);
    }
    over.store(true, Ordering::Relaxed);
    for (lease, seen) in all {
        println!(
            "{}: in {} s under {loops} busy loops: {} changes of primaries, {} times none was \
             known, over {} looks and {} without an answer",
            name(lease),
            watch.as_secs(),
            seen.changes,
            seen.none,
            seen.looks,
            seen.unanswered
        );
    }
    Ok(())
}

/// What was seen of a cluster in which nobody died.
#[derive(Default)]
struct Seen {
    /// How often another node led a segment than the one known before.
    changes: usize,
    /// How often a segment had a primary at one look, and none at the next.
    none: usize,
    looks: usize,
    unanswered: usize,
}

async fn seen(cluster: Processes, watch: Duration) -> Result<Seen> {
    let client = cluster.client(1).await?;
    let (start, mut seen) = (Instant::now(), Seen::default());
    let mut last = primaries(&client).await?;
    let mut known = last.clone();
    while start.elapsed() < watch {
        tokio::time::sleep(LOOK).await;
        seen.looks += 1;
        let Ok(now) = primaries(&client).await else {
            seen.unanswered += 1;
            continue;
        };
        for (segment, who) in &now {
            let before = known.entry(*segment).or_default();
            if who.is_some() && before.is_some() && before != who {
                seen.changes += 1;
            }
            if who.is_none() && last.get(segment).copied().flatten().is_some() {
                seen.none += 1;
            }
            *before = who.or(*before);
        }
        last = now;
    }
    Ok(seen)
}
