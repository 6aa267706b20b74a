//! Figure 1 of CassandrEAS (§V-B): read latency, write latency and throughput of the storage
//! policies, by the share of writes (values of 128 B) and by the size of values (a tenth writes).
//!
//! **Set-up.** As in the paper: five servers, three clients, each with one operation at a time, and
//! δ = 3. Clients are on the sites of the first three nodes. Values are coded whatever their size.
//!
//! **Side by side.** All policies are keyspaces of one cluster. Every point is measured in rounds;
//! in each round every policy has a slice of time, and each round begins with another policy. What
//! else the machine does therefore falls on all of them, and ratios to `replicated` mean something
//! where rates on their own do not. Round trips on one machine cost next to nothing, so that
//! latencies here are processing and flushes; the paper's machines were 0.3 ms apart.
//!
//! **Noise.** `again` is a second keyspace with the policy of `replicated`: how far the two are
//! apart is what this run cannot tell.
//!
//! The paper's four lines are Cassandra-Quorum (`replicated` here), Cassandra-All, OREAS and ARES.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use fermata_client::Client;
use fermata_protocol::base::{StoragePolicy, Terms};
use serde::Serialize;

use crate::chart::{Chart, Line};
use crate::cluster::{Cluster, Disks};
use crate::report;
use crate::workload::{self, Counted, Latency, Mix};

/// See `fermata-bench figure1 --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct Figure1Args {
    /// Where the table, the JSON and the charts go.
    #[arg(long, default_value = "target/figure1")]
    out: PathBuf,
    /// Fewer points, shorter: under three minutes.
    #[arg(long)]
    quick: bool,
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
    /// Registers per policy and size. Default: 1000, with --quick 60.
    #[arg(long)]
    keys: Option<u32>,
    /// Rounds per point. Default: 24, with --quick 8.
    #[arg(long)]
    rounds: Option<u32>,
    /// Milliseconds that a policy has in a round. Default: 500, with --quick 300.
    #[arg(long)]
    slice: Option<u64>,
    /// Where the nodes keep their stores.
    #[arg(long, value_enum, default_value_t = Disks::Files)]
    disks: Disks,
}

/// Size of values where the share of writes varies, bytes.
const SIZE: usize = 128;
/// Share of writes where the size of values varies.
const WRITES: f64 = 0.1;

/// One policy at one point.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    policy: &'static str,
    /// Share of the operations that are writes.
    writes: f64,
    /// Bytes of a value.
    size: usize,
    read_ms: Latency,
    write_ms: Latency,
    /// Operations per second of all clients together.
    throughput: f64,
    errors: u64,
    first_error: Option<String>,
}

/// Measures everything and writes the files.
pub(crate) async fn run(args: Figure1Args) -> Result<()> {
    let out = &args.out;
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let cluster = Cluster::start(args.nodes, args.disks).await?;
    let policies = policies(&args);
    for (name, policy) in &policies {
        cluster.create(name, *policy).await?;
    }
    let mut clients = Vec::new();
    for at in 0..usize::from(args.clients) {
        clients.push(cluster.client(at % usize::from(args.nodes)).await?);
    }
    let (ratios, sizes) = points(args.quick);
    let mut by_ratio = Vec::new();
    for writes in ratios {
        by_ratio.extend(point(&args, &clients, &policies, (writes, SIZE)).await?);
    }
    let mut by_size = Vec::new();
    for size in sizes {
        // The point that both halves share is measured once.
        let known = by_ratio
            .iter()
            .filter(|s| s.size == size && s.writes == WRITES);
        let known: Vec<Sample> = known.cloned().collect();
        by_size.extend(if known.is_empty() {
            point(&args, &clients, &policies, (WRITES, size)).await?
        } else {
            known
        });
    }
    write(&args, &by_ratio, &by_size)
}

/// The name of a keyspace, and its policy.
type Named = (&'static str, StoragePolicy);

/// What is compared, and first what it is compared with.
fn policies(args: &Figure1Args) -> Vec<Named> {
    let terms = Terms {
        faults: args.faults,
        delta: args.delta,
        whole_below: 0,
    };
    let all = [
        StoragePolicy::Replicated,
        StoragePolicy::Coded(terms),
        StoragePolicy::TreasOpt(terms),
        StoragePolicy::Oreas(terms),
        StoragePolicy::Ares(terms),
    ];
    let mut named: Vec<Named> = all.map(|policy| (policy.name(), policy)).into();
    named.push(("again", StoragePolicy::Replicated));
    named
}

fn points(quick: bool) -> (Vec<f64>, Vec<usize>) {
    if quick {
        (vec![0.1, 0.5, 0.9], vec![SIZE, 4 << 10, 64 << 10])
    } else {
        let sizes = vec![SIZE, 512, 2 << 10, 8 << 10, 32 << 10, 64 << 10];
        (vec![0.1, 0.3, 0.5, 0.7, 0.9], sizes)
    }
}

/// All policies at one point, in rounds.
async fn point(
    args: &Figure1Args,
    clients: &[Client],
    policies: &[Named],
    (writes, size): (f64, usize),
) -> Result<Vec<Sample>> {
    let (keys, rounds, slice) = if args.quick {
        (60, 8, 300)
    } else {
        (1_000, 24, 500)
    };
    let mix = Mix {
        writes,
        size,
        keys: args.keys.unwrap_or(keys),
    };
    for (name, _) in policies {
        workload::load(clients, name, mix).await?;
    }
    let mut counted: Vec<Counted> = policies.iter().map(|_| Counted::default()).collect();
    let time = Duration::from_millis(args.slice.unwrap_or(slice));
    for round in 0..args.rounds.unwrap_or(rounds) {
        for turn in 0..policies.len() {
            let at = (turn + round as usize) % policies.len();
            let name = policies[at].0;
            let seed = u64::from(round);
            counted[at].add(workload::slice(clients, name, mix, time, seed).await?);
        }
    }
    let samples = policies
        .iter()
        .zip(counted)
        .map(|((name, _), counted)| Sample {
            policy: name,
            writes,
            size,
            throughput: counted.throughput(clients.len()),
            read_ms: Latency::of(counted.reads),
            write_ms: Latency::of(counted.writes),
            errors: counted.errors,
            first_error: counted.first_error,
        });
    let samples: Vec<Sample> = samples.collect();
    eprintln!("{:.0} % writes, {size} B: measured", writes * 100.0);
    for sample in &samples {
        if let Some(error) = &sample.first_error {
            eprintln!(
                "  {}: {} errors, the first: {error}",
                sample.policy, sample.errors
            );
        }
    }
    Ok(samples)
}

/// What one sub-figure shows, and what the paper says of it.
struct Part {
    letter: char,
    title: &'static str,
    up: &'static str,
    of: fn(&Sample) -> f64,
    paper: &'static str,
}

/// Figures 1a to 1c.
const BY_RATIO: [Part; 3] = [
    Part {
        letter: 'a',
        title: "read latency by share of writes, 128 B",
        up: "mean, ms",
        of: |s| s.read_ms.mean,
        paper: "The paper: read latency is comparable across all four algorithms.",
    },
    Part {
        letter: 'b',
        title: "write latency by share of writes, 128 B",
        up: "mean, ms",
        of: |s| s.write_ms.mean,
        paper: "The paper: ARES has poor write latency, since logical timestamps cost a round trip \
                more; OREAS has a moderate penalty.",
    },
    Part {
        letter: 'c',
        title: "throughput by share of writes, 128 B",
        up: "operations per second, all clients",
        of: |s| s.throughput,
        paper: "The paper: throughput is comparable at a write ratio of 0.1.",
    },
];

/// Figures 1d to 1f.
const BY_SIZE: [Part; 3] = [
    Part {
        letter: 'd',
        title: "read latency by size of values, 10 % writes",
        up: "mean, ms",
        of: |s| s.read_ms.mean,
        paper: "The paper shows averages for these sizes and says no more of reads than that they \
                are comparable at 128 B.",
    },
    Part {
        letter: 'e',
        title: "write latency by size of values, 10 % writes",
        up: "mean, ms",
        of: |s| s.write_ms.mean,
        paper: "The paper shows averages for these sizes; as with 128 B, ARES pays for a round \
                trip more.",
    },
    Part {
        letter: 'f',
        title: "throughput by size of values, 10 % writes",
        up: "operations per second, all clients",
        of: |s| s.throughput,
        paper: "The paper: a moderate penalty on throughput (with 7, 9 and 11 servers OREAS has 77 \
                to 80 % of Cassandra's).",
    },
];

fn write(args: &Figure1Args, by_ratio: &[Sample], by_size: &[Sample]) -> Result<()> {
    let mut page = heading(args);
    let ratio = |s: &Sample| format!("{:.1}", s.writes);
    let size = |s: &Sample| bytes(s.size);
    for part in &BY_RATIO {
        page += &figure(args, part, by_ratio, "share of writes", &ratio)?;
    }
    for part in &BY_SIZE {
        page += &figure(args, part, by_size, "bytes of a value", &size)?;
    }
    let shared = |s: &&Sample| s.size == SIZE;
    let all: Vec<&Sample> = by_ratio
        .iter()
        .chain(by_size.iter().filter(|s| !shared(s)))
        .collect();
    let rows = table(&all);
    page += &format!("\n## All figures\n\n{}", report::markdown(&rows));
    print!("{}", report::aligned(&rows));
    save(&args.out, "figure1.md", &page)?;
    let json = serde_json::to_string_pretty(&all)?;
    save(&args.out, "figure1.json", &json)?;
    println!(
        "\nwritten: {}/figure1.md, .json and six charts",
        args.out.display()
    );
    Ok(())
}

fn heading(args: &Figure1Args) -> String {
    let mut text = format!(
        "# CassandrEAS, Figure 1: one run\n\n{} servers and {} clients in one process, stores in \
         {}, f = {}, δ = {}. One run on one machine: compare lines with each other, not with other \
         runs.\n",
        args.nodes,
        args.clients,
        args.disks.name(),
        args.faults,
        args.delta
    );
    for (name, policy) in policies(args) {
        if let Ok(price) = policy.price(usize::from(args.nodes)) {
            text += &format!(
                "* `{}`: {}/{} of a value per server at rest\n",
                name, price.fragments, price.parts
            );
        }
    }
    text
}

/// Writes one chart, and gives its part of the page.
fn figure(
    args: &Figure1Args,
    part: &Part,
    samples: &[Sample],
    across: &'static str,
    place: &dyn Fn(&Sample) -> String,
) -> Result<String> {
    let of = |name: &'static str| samples.iter().filter(move |s| s.policy == name);
    let names: Vec<&'static str> = policies(args).iter().map(|(name, _)| *name).collect();
    let saw = saw(part, samples, &names);
    let chart = Chart {
        title: format!("1{}: {}", part.letter, part.title),
        across,
        up: part.up,
        places: of(names[0]).map(place).collect(),
        lines: (names.iter())
            .map(|name| Line {
                name,
                dashed: [names[0], "again"].contains(name),
                values: of(name)
                    .map(|s| Some((part.of)(s)).filter(|v| *v > 0.0))
                    .collect(),
            })
            .collect(),
        notes: vec![part.paper.to_owned(), saw.clone()],
    };
    let file = format!("figure1{}.svg", part.letter);
    save(&args.out, &file, &chart.svg())?;
    Ok(format!(
        "\n## {}\n\n![]({file})\n\n{}\n\n{saw}\n",
        chart.title, part.paper
    ))
}

/// What this run saw: each policy as a multiple of `replicated`, over all places.
fn saw(part: &Part, samples: &[Sample], names: &[&'static str]) -> String {
    let mut said = Vec::new();
    for name in &names[1..] {
        let ratios = samples
            .iter()
            .filter(|s| s.policy == *name)
            .filter_map(|s| {
                let base = samples
                    .iter()
                    .find(|b| b.policy == names[0] && b.writes == s.writes && b.size == s.size)?;
                let (value, base) = ((part.of)(s), (part.of)(base));
                (value > 0.0 && base > 0.0).then_some(value / base)
            });
        let ratios: Vec<f64> = ratios.collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        if ratios.is_empty() {
            said.push(format!("{name} nothing"));
        } else {
            said.push(format!("{name} {least:.2} to {most:.2}"));
        }
    }
    format!(
        "This run, as multiples of {}: {}. How far `again`, the same policy once more, is from 1 \
         is what this run cannot tell.",
        names[0],
        said.join(", ")
    )
}

fn table(samples: &[&Sample]) -> Vec<[String; 11]> {
    let head = [
        "writes",
        "bytes",
        "policy",
        "read ms",
        "p95",
        "of replicated",
        "write ms",
        "p95",
        "of replicated",
        "ops/s",
        "of replicated",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for sample in samples {
        let base = samples.iter().find(|b| {
            b.policy == "replicated" && b.writes == sample.writes && b.size == sample.size
        });
        let ratio = |of: fn(&Sample) -> f64| {
            let base = base.map_or(0.0, |base| of(base));
            if base > 0.0 {
                format!("{:.2}", of(sample) / base)
            } else {
                String::new()
            }
        };
        rows.push([
            format!("{:.1}", sample.writes),
            sample.size.to_string(),
            sample.policy.to_owned(),
            format!("{:.2}", sample.read_ms.mean),
            format!("{:.2}", sample.read_ms.p95),
            ratio(|s| s.read_ms.mean),
            format!("{:.2}", sample.write_ms.mean),
            format!("{:.2}", sample.write_ms.p95),
            ratio(|s| s.write_ms.mean),
            format!("{:.0}", sample.throughput),
            ratio(|s| s.throughput),
        ]);
    }
    rows
}

fn bytes(size: usize) -> String {
    if size >= 1_024 {
        format!("{} KiB", size / 1_024)
    } else {
        format!("{size} B")
    }
}

fn save(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}
