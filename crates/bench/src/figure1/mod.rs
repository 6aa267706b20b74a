//! Figure 1 of CassandrEAS (§V-B): read latency, write latency and throughput of the storage
//! policies, by the share of writes and by the size of values, and what of it was aimed at.
//!
//! **Set-up.** As in the paper: five servers, three clients, each with one operation at a time, and
//! δ = 3. Clients are on the sites of the first three nodes. Values are coded whatever their size.
//! Beside the paper's six sub-figures there are three by the share of writes at 16 KiB.
//!
//! **Side by side.** All policies are keyspaces of one cluster. Every point is measured in rounds;
//! in each round every policy has a slice of time, and each round begins with another policy. Other
//! work of the machine therefore falls on all of them, and ratios to `replicated` mean something
//! where rates on their own do not. Nodes and clients share the processors of one machine, and
//! round trips there cost next to nothing, so that latencies are processing and flushes; the
//! paper's machines were 0.3 ms apart.
//!
//! **A policy's own background.** `coded` drops superseded versions a grace time after their
//! writes. The beginning of a slice, longer than that, is not counted, so that this work falls into
//! the policy's own slice and nobody else's.
//!
//! **Noise.** `again` is a second keyspace with the policy of `replicated`: how far the two are
//! apart is what this run cannot tell. `whole` is `coded` with values of any size kept whole: where
//! `coded` is faster than that, cutting values pays.
//!
//! **Going on.** Every point is saved when it has been measured; `--resume` takes what was saved
//! under the same settings.
//!
//! The paper's four lines are Cassandra-Quorum (`replicated` here), Cassandra-All, OREAS and ARES.

mod page;
mod sample;
mod verdict;
mod ycsb;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fermata_client::Client;
use fermata_protocol::base::{StoragePolicy, Terms};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Disks};
use crate::storage;
use crate::workload::{self, Mix};
use sample::{Measure, Point, Ratio, Sample};

/// See `fermata-bench figure1 --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct Figure1Args {
    /// Where the table, the JSON and the charts go.
    #[arg(long, default_value = "target/figure1")]
    out: PathBuf,
    /// Fewer points, shorter: about three minutes.
    #[arg(long)]
    quick: bool,
    /// Take the points that an earlier run with the same settings has saved in the folder.
    #[arg(long)]
    resume: bool,
    /// Shares of writes. Default: 0.1, 0.3, 0.5, 0.7, 0.9; with --quick 0.1, and 0.5 of 16 KiB.
    #[arg(long, value_delimiter = ',')]
    writes: Option<Vec<f64>>,
    /// Bytes of values. Default: 128 B to 64 KiB; with --quick 128 B, 16 and 64 KiB.
    #[arg(long, value_delimiter = ',')]
    sizes: Option<Vec<usize>>,
    /// Policies beside `replicated`. Default: all.
    #[arg(long, value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// Measure the real YCSB, too: values of 16 KiB, half writes. Needs Java and the binding
    /// (`mvn -q -f bench/ycsb/pom.xml package`), and to be run from the repository's root.
    #[arg(long)]
    ycsb: bool,
    /// f of the coded policies: of five servers so many may fail.
    #[arg(long = "f", default_value_t = 1)]
    faults: u8,
    /// δ of the coded policies.
    #[arg(long, default_value_t = 3)]
    delta: u8,
    /// Servers.
    #[arg(long, default_value_t = 5)]
    nodes: u16,
    /// Clients, on the sites of the first nodes.
    #[arg(long, default_value_t = 3)]
    clients: u16,
    /// Registers per policy and size. Default: 4 MiB of values, but 64 to 1000 of them.
    #[arg(long)]
    keys: Option<u32>,
    /// Rounds per point. Default: 7, with --quick 6; fewer give no intervals.
    #[arg(long)]
    rounds: Option<u32>,
    /// Milliseconds that a policy has in a round, of which 800 are not counted. Default: 1500, with
    /// --quick 1100.
    #[arg(long)]
    slice: Option<u64>,
    /// Where the nodes keep their stores.
    #[arg(long, value_enum, default_value_t = Disks::Files)]
    disks: Disks,
}

/// Size of values where the share of writes varies, bytes: the paper's.
const SMALL: usize = 128;
/// The same once more: from here on coding shall cost nothing.
const LARGE: usize = 16 << 10;
/// Share of writes where the size of values varies.
const WRITES: f64 = 0.1;
/// What is not counted of a slice: longer than superseded versions are kept.
const LEAD: Duration = Duration::from_millis(800);
/// What everything is compared with.
const BASE: &str = "replicated";
/// The base once more.
const AGAIN: &str = "again";
/// `coded` without coding.
const WHOLE: &str = "whole";

/// Everything that a saved point depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    nodes: u16,
    clients: u16,
    faults: u8,
    delta: u8,
    rounds: u32,
    slice_ms: u64,
    keys: Option<u32>,
    disks: String,
    policies: Vec<String>,
}

/// What a run has measured; the file `figure1.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    settings: Settings,
    processors: usize,
    samples: Vec<Sample>,
    /// Half writes of 16 KiB, with YCSB as the generator of load.
    ycsb: Vec<Sample>,
    /// Bytes at rest per replica and byte of value, of values from 16 KiB on.
    at_rest: Vec<(String, f64)>,
}

/// The name of a keyspace, and its policy.
type Named = (&'static str, StoragePolicy);

/// Measures everything and writes the files.
pub(crate) async fn run(args: Figure1Args) -> Result<()> {
    let out = &args.out;
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    if args.slice() <= LEAD {
        bail!("--slice must be above {}", LEAD.as_millis());
    }
    let policies = policies(&args)?;
    let mut results = begin(&args, &policies)?;
    let cluster = Cluster::start(args.nodes, args.disks).await?;
    for (name, policy) in &policies {
        cluster.create(name, *policy).await?;
    }
    let mut clients = Vec::new();
    for at in 0..usize::from(args.clients) {
        clients.push(cluster.client(at % usize::from(args.nodes)).await?);
    }
    let points = points(&args);
    let began = Instant::now();
    let mut loaded: Vec<usize> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let so_far = began.elapsed().as_secs();
        let head = format!("[{}/{}, {so_far} s] {}", at + 1, points.len(), point.name());
        if results.samples.iter().any(|s| s.point == *point) {
            eprintln!("{head}: measured before");
            continue;
        }
        let fresh = !loaded.contains(&point.size);
        loaded.extend(fresh.then_some(point.size));
        let samples = measure(&args, &clients, &policies, *point, fresh).await?;
        eprintln!("{head}: {}", in_short(&samples));
        results.samples.extend(samples);
        save(
            out,
            "figure1.json",
            &serde_json::to_string_pretty(&results)?,
        )?;
    }
    if args.ycsb && results.ycsb.is_empty() {
        results.ycsb = ycsb::run(&args, &cluster, &policies).await?;
    }
    let at_rest = at_rest(&args, cluster, &policies, &loaded).await?;
    if !at_rest.is_empty() {
        results.at_rest = at_rest;
    }
    save(
        out,
        "figure1.json",
        &serde_json::to_string_pretty(&results)?,
    )?;
    page::write(out, &policies, args.nodes, &results)
}

/// What is compared, and first what it is compared with.
fn policies(args: &Figure1Args) -> Result<Vec<Named>> {
    let terms = Terms {
        faults: args.faults,
        delta: args.delta,
        whole_below: 0,
    };
    let whole = Terms {
        whole_below: u32::MAX,
        ..terms
    };
    let all = [
        StoragePolicy::Replicated,
        StoragePolicy::Coded(terms),
        StoragePolicy::TreasOpt(terms),
        StoragePolicy::Oreas(terms),
        StoragePolicy::Ares(terms),
    ];
    let mut named: Vec<Named> = all.map(|policy| (policy.name(), policy)).into();
    named.push((AGAIN, StoragePolicy::Replicated));
    named.push((WHOLE, StoragePolicy::Coded(whole)));
    if let Some(only) = &args.only {
        if let Some(unknown) = only.iter().find(|o| named.iter().all(|(n, _)| n != *o)) {
            let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
            bail!("{unknown} is none of {}", names.join(", "));
        }
        named.retain(|(name, _)| *name == BASE || only.iter().any(|o| o == name));
    }
    Ok(named)
}

/// What was saved under the same settings, or nothing yet.
fn begin(args: &Figure1Args, policies: &[Named]) -> Result<Results> {
    let settings = Settings {
        nodes: args.nodes,
        clients: args.clients,
        faults: args.faults,
        delta: args.delta,
        rounds: args.rounds(),
        slice_ms: args.slice().as_millis() as u64,
        keys: args.keys,
        disks: args.disks.name().to_owned(),
        policies: policies
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect(),
    };
    let path = args.out.join("figure1.json");
    if args.resume && path.exists() {
        let text = std::fs::read_to_string(&path)?;
        let saved: Results = serde_json::from_str(&text)
            .with_context(|| format!("{} is not of this program", path.display()))?;
        if saved.settings != settings {
            bail!(
                "{} was measured with other settings: {:?}",
                path.display(),
                saved.settings
            );
        }
        return Ok(saved);
    }
    Ok(Results {
        settings,
        processors: crate::cpu::processors(),
        samples: vec![],
        ycsb: vec![],
        at_rest: vec![],
    })
}

/// By the share of writes for small and for large values, and by size; each once.
fn points(args: &Figure1Args) -> Vec<Point> {
    let shares = match (&args.writes, args.quick) {
        (Some(shares), _) => shares.clone(),
        (None, true) => vec![0.1, 0.5],
        (None, false) => vec![0.1, 0.3, 0.5, 0.7, 0.9],
    };
    let sizes = match (&args.sizes, args.quick) {
        (Some(sizes), _) => sizes.clone(),
        (None, true) => vec![SMALL, LARGE, 64 << 10],
        (None, false) => [
            128,
            512,
            1_024,
            2_048,
            4_096,
            8_192,
            LARGE,
            32 << 10,
            64 << 10,
        ]
        .into(),
    };
    let by_share = [SMALL, LARGE]
        .into_iter()
        .filter(|size| sizes.contains(size));
    let by_share = by_share.flat_map(|size| shares.iter().map(move |w| (*w, size)));
    let by_size = sizes.iter().map(|size| (WRITES, *size));
    let mut points: Vec<Point> = Vec::new();
    for (writes, size) in by_share.chain(by_size) {
        let point = Point { writes, size };
        if !points.contains(&point) {
            points.push(point);
        }
    }
    points
}

impl Figure1Args {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 6 } else { 7 })
    }

    fn slice(&self) -> Duration {
        let given = self.slice.unwrap_or(if self.quick { 1_100 } else { 1_500 });
        Duration::from_millis(given)
    }

    fn keys(&self, size: usize) -> u32 {
        let fitting = (4 << 20) / size.max(1) as u32;
        self.keys.unwrap_or(fitting.clamp(64, 1_000))
    }
}

/// All policies at one point, in rounds.
async fn measure(
    args: &Figure1Args,
    clients: &[Client],
    policies: &[Named],
    point: Point,
    fresh: bool,
) -> Result<Vec<Sample>> {
    let mix = Mix {
        writes: point.writes,
        size: point.size,
        keys: args.keys(point.size),
    };
    // What coding pays is asked by size alone.
    let used = |name: &str| name != WHOLE || point.writes == WRITES;
    let policies: Vec<&Named> = policies.iter().filter(|(name, _)| used(name)).collect();
    for (name, _) in policies.iter().filter(|_| fresh) {
        workload::load(clients, name, mix).await?;
    }
    let mut slices = vec![Vec::new(); policies.len()];
    let time = (LEAD, args.slice() - LEAD);
    for round in 0..args.rounds() {
        for turn in 0..policies.len() {
            let at = (turn + round as usize) % policies.len();
            let seed = u64::from(round);
            slices[at].push(workload::slice(clients, policies[at].0, mix, time, seed).await?);
        }
    }
    let samples = policies.iter().zip(slices);
    let samples = samples.map(|((name, _), slices)| {
        let sample = Sample::of(name, point, slices, clients.len());
        if let Some(error) = &sample.first_error {
            eprintln!("  {name}: {} errors, the first: {error}", sample.errors);
        }
        sample
    });
    Ok(samples.collect())
}

/// `coded`, or whatever is first beside the base, as a multiple of it.
fn in_short(samples: &[Sample]) -> String {
    let Some([base, one]) = samples.first_chunk() else {
        return String::from("measured");
    };
    let said =
        [Measure::Read, Measure::Write, Measure::Throughput].map(|measure| {
            match Ratio::speed(one, base, measure) {
                Some(ratio) => format!("{} {:.2}", measure.name(), ratio.median),
                None => format!("{} -", measure.name()),
            }
        });
    format!(
        "speed of {} to {}: {}",
        one.policy,
        base.policy,
        said.join(", ")
    )
}

/// Bytes at rest per replica and byte of value, by keyspace, of values from 16 KiB on: with smaller
/// ones the metadata of a part would show. Nothing where none were loaded. The cluster ends.
async fn at_rest(
    args: &Figure1Args,
    cluster: Cluster,
    policies: &[Named],
    sizes: &[usize],
) -> Result<Vec<(String, f64)>> {
    let large = sizes.iter().filter(|size| **size >= LARGE);
    let values: u64 = large
        .map(|size| *size as u64 * u64::from(args.keys(*size)))
        .sum();
    let known = cluster.client(0).await?.keyspaces().await?;
    tokio::time::sleep(LEAD * 3).await;
    let (stores, _folder) = cluster.stop().await?;
    let mut kept = Vec::new();
    for store in &stores {
        let wanted = |key: &[u8]| workload::size_of(key).is_some_and(|size| size >= LARGE);
        kept.push(storage::contents(store, wanted)?);
    }
    let all = values as f64 * stores.len() as f64;
    let of = |(name, _): &Named| {
        let id = known.iter().find(|k| k.name == *name)?.id.0;
        let bytes = kept
            .iter()
            .filter_map(|of| of.get(&id))
            .map(|(_, bytes)| bytes);
        (values > 0).then(|| ((*name).to_owned(), bytes.sum::<u64>() as f64 / all))
    };
    // `whole` does not hold the values of all points.
    let complete = policies.iter().filter(|(name, _)| *name != WHOLE);
    Ok(complete.filter_map(of).collect())
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}
