//! How long a site waits after the death of the node that led what it enters.
//!
//! **What is measured.** A cluster of three nodes, each a site of its own. The second site has
//! entered a key of each segment that the first node leads, once. That node then ends without a
//! word, as if its process had been killed: its sockets are closed and its port refuses. At once
//! the second site enters those keys one after the other; each entry's time counts from the death.
//! Reported are the first entry and the last one's distance from it, over all rounds.
//!
//! What a shorter lease would cost is another figure: how often somebody else leads although nobody
//! died, while busy loops take the processors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fermata_client::Client;
use fermata_protocol::base::{Address, Keyspace, NodeName, SegmentId};

use crate::cluster::{Cluster, Disks, SEGMENT_BITS};

/// See `fermata-bench outage --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct OutageArgs {
    /// Deaths, each in a cluster of its own.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Seconds without a death in which changes of primaries are counted.
    #[arg(long, default_value_t = 0)]
    watch: u64,
    /// Busy loops beside that.
    #[arg(long, default_value_t = 6)]
    loops: usize,
    /// Where the nodes keep their stores.
    #[arg(long, value_enum, default_value_t = Disks::Files)]
    disks: Disks,
}

/// Measures and prints.
pub(crate) async fn run(args: OutageArgs) -> Result<()> {
    let (mut first, mut spread) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        let after = entries_after_a_death(args.disks).await?;
        println!("entries after a death, ms: {after:?}");
        first.push(after[0]);
        spread.push(after[after.len() - 1] - after[0]);
    }
    for (what, mut found) in [("first entry", first), ("all segments, after it", spread)] {
        found.sort_unstable();
        if let (Some(median), Some(longest)) = (found.get(found.len() / 2), found.last()) {
            println!("{what}: median {median} ms, longest {longest} ms");
        }
    }
    if args.watch > 0 {
        let (watch, loops) = (Duration::from_secs(args.watch), args.loops);
        let changes = changes_without_a_death(args.disks, watch, loops).await?;
        println!("changes of primaries in {watch:?} under {loops} busy loops: {changes}");
    }
    Ok(())
}

/// Milliseconds from the death to each entry, in order.
async fn entries_after_a_death(disks: Disks) -> Result<Vec<u64>> {
    let mut cluster = Cluster::start(3, disks).await?;
    let client = cluster.client(1).await?;
    let dying = NodeName(1);
    let keys = keys_by_segment();
    let led = primaries(&client).await?;
    let keys: Vec<&String> = led
        .iter()
        .filter(|(_, primary)| **primary == Some(dying))
        .filter_map(|(segment, _)| keys.get(segment))
        .collect();
    ensure!(!keys.is_empty(), "the first node leads no segment");
    for key in &keys {
        enter(&client, key).await?;
    }
    cluster.kill(0).await;
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

/// How often another node leads a segment than a moment before.
async fn changes_without_a_death(disks: Disks, watch: Duration, loops: usize) -> Result<usize> {
    let cluster = Cluster::start(3, disks).await?;
    let client = cluster.client(1).await?;
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..loops {
        let over = over.clone();
        std::thread::spawn(move || while !over.load(Ordering::Relaxed) {});
    }
    let (start, mut changes) = (Instant::now(), 0);
    let mut before = primaries(&client).await?;
    while start.elapsed() < watch {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = primaries(&client).await?;
        changes += now.iter().filter(|(s, p)| before.get(s) != Some(p)).count();
        before = now;
    }
    over.store(true, Ordering::Relaxed);
    Ok(changes)
}
