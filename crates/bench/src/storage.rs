//! Table I of CassandrEAS: what a replica keeps of a value, measured.
//!
//! **What is measured.** A cluster of n nodes has a keyspace per storage policy, f and δ. Each of
//! some registers is written more often than δ, one write after the other; then nothing is written
//! until what was superseded has been dropped. The nodes are stopped, and their stores opened and
//! read: the lengths of all records that hold a register's content, tags, lengths and checksums
//! included, divided by the bytes of the registers' values. Nothing is computed from the policy;
//! the formulas stand beside what was found.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use fermata_protocol::base::{Rng, StoragePolicy, Terms};
use fermata_protocol::wire::record;
use fermata_storage::Store;
use serde::Serialize;

use crate::cluster::{Cluster, Disks};

/// See `fermata-bench storage --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct StorageArgs {
    /// Sizes of clusters.
    #[arg(long, value_delimiter = ',', default_value = "5,7,9,11")]
    nodes: Vec<u16>,
    /// Values of f: members that may fail.
    #[arg(long = "f", value_delimiter = ',', default_value = "1,2")]
    faults: Vec<u8>,
    /// Values of δ: writes under way beside a read.
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    delta: Vec<u8>,
    /// Bytes of a value.
    #[arg(long, default_value_t = 60_000)]
    size: usize,
    /// Registers per keyspace.
    #[arg(long, default_value_t = 4)]
    keys: u32,
    /// Seconds without writes before the stores are read.
    #[arg(long, default_value_t = 3)]
    settle: u64,
    /// Where the nodes keep their stores.
    #[arg(long, value_enum, default_value_t = Disks::Files)]
    disks: Disks,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    nodes: u16,
    faults: u8,
    delta: u8,
    policy: &'static str,
    /// Records with content per register at one replica, the mean over all.
    versions: f64,
    /// Bytes at rest per replica and byte of value, the mean over all replicas.
    measured: f64,
    /// The same at the replica that keeps most.
    most: f64,
    /// `measured` divided by that of replication in the same cluster.
    to_replicated: f64,
    /// What the paper's Table I, or for `coded` this project, says.
    formula: f64,
    /// The formula in letters.
    formula_in_letters: &'static str,
}

/// One keyspace of a cluster.
struct Space {
    name: String,
    policy: StoragePolicy,
    terms: Terms,
}

/// Measures everything and prints it.
pub(crate) async fn run(args: StorageArgs) -> Result<()> {
    let rows = measure(&args).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    print(&args, &rows);
    Ok(())
}

async fn measure(args: &StorageArgs) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &nodes in &args.nodes {
        eprintln!("{nodes} nodes");
        rows.extend(one_cluster(args, nodes).await?);
    }
    Ok(rows)
}

fn spaces(args: &StorageArgs) -> Vec<Space> {
    let mut spaces = Vec::new();
    for &faults in &args.faults {
        for &delta in &args.delta {
            let terms = Terms {
                faults,
                delta,
                whole_below: 0,
            };
            let policies = [
                StoragePolicy::Replicated,
                StoragePolicy::Coded(terms),
                StoragePolicy::TreasOpt(terms),
                StoragePolicy::Oreas(terms),
                StoragePolicy::Ares(terms),
            ];
            for policy in policies {
                let name = format!("{}-{faults}-{delta}", policy.name());
                spaces.push(Space {
                    name,
                    policy,
                    terms,
                });
            }
        }
    }
    spaces
}

async fn one_cluster(args: &StorageArgs, nodes: u16) -> Result<Vec<Row>> {
    let cluster = Cluster::start(nodes, args.disks).await?;
    let client = cluster.client(0).await?;
    let spaces = spaces(args);
    let mut rng = Rng::new(u64::from(nodes));
    for space in &spaces {
        cluster.create(&space.name, space.policy).await?;
        for key in 0..args.keys {
            // More often than any policy keeps versions.
            for _ in 0..=space.terms.delta + 1 {
                let value = noise(&mut rng, args.size);
                let key = format!("{key}");
                client.write(&space.name, key, Some(value)).await?;
            }
        }
    }
    let known = client.keyspaces().await?;
    tokio::time::sleep(Duration::from_secs(args.settle)).await;
    let mut found: Vec<BTreeMap<u32, (u64, u64)>> = Vec::new();
    let (stores, _folder) = cluster.stop().await?;
    for store in &stores {
        found.push(contents(store, |_| true)?);
    }
    let mut rows: Vec<Row> = Vec::new();
    for space in &spaces {
        let Some(keyspace) = known.iter().find(|k| k.name == space.name) else {
            bail!("the keyspace {} is gone", space.name);
        };
        let none = (0, 0);
        let all = found
            .iter()
            .map(|of| *of.get(&keyspace.id.0).unwrap_or(&none));
        rows.push(row(args, nodes, space, &all.collect::<Vec<_>>()));
        let replicated = (rows.iter())
            .rfind(|r| r.policy == "replicated")
            .map(|r| r.measured);
        if let (Some(row), Some(replicated)) = (rows.last_mut(), replicated) {
            row.to_replicated = row.measured / replicated;
        }
    }
    Ok(rows)
}

/// Records with the content of registers in a store, and their bytes, by keyspace: of the keys that
/// are wanted.
pub(crate) fn contents(
    store: &Store,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<BTreeMap<u32, (u64, u64)>> {
    // Where the part stands in a record's key; 0 is a head, 1 an eventual content.
    const PART: usize = 13;
    let mut found: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (key, value) in store.scan(b"r", b"s") {
        let Some(of) = record::key_of(&key) else {
            bail!("a record's key is malformed");
        };
        if key[PART] < 2 || !wanted(&of.key) {
            continue;
        }
        let sum = found.entry(of.keyspace.0).or_default();
        sum.0 += 1;
        sum.1 += value?.len() as u64;
    }
    Ok(found)
}

fn row(args: &StorageArgs, nodes: u16, space: &Space, found: &[(u64, u64)]) -> Row {
    let values = args.size as f64 * f64::from(args.keys);
    let records: u64 = found.iter().map(|(records, _)| records).sum();
    let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
    let most = found.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let (formula, formula_in_letters) = formula(nodes, &space.policy, space.terms);
    Row {
        nodes,
        faults: space.terms.faults,
        delta: space.terms.delta,
        policy: space.policy.name(),
        versions: records as f64 / f64::from(args.keys) / f64::from(nodes),
        measured: bytes as f64 / values / f64::from(nodes),
        most: most as f64 / values,
        to_replicated: 1.0,
        formula,
        formula_in_letters,
    }
}

/// Table I, written down here once more on purpose: what the policies compute is what is tested.
fn formula(nodes: u16, policy: &StoragePolicy, terms: Terms) -> (f64, &'static str) {
    let k = f64::from(nodes) - 2.0 * f64::from(terms.faults);
    let delta = f64::from(terms.delta);
    match policy {
        StoragePolicy::Replicated => (1.0, "1"),
        StoragePolicy::Coded(_) => (1.0 / k, "1/k"),
        StoragePolicy::TreasOpt(_) | StoragePolicy::Oreas(_) => {
            (1.0 / (k / (delta + 1.0)).ceil(), "1/⌈k/(δ+1)⌉")
        }
        StoragePolicy::Ares(_) => ((delta + 1.0) / k, "(δ+1)/k"),
    }
}

/// Bytes that nothing makes shorter.
pub(crate) fn noise(rng: &mut Rng, size: usize) -> Bytes {
    let mut value = Vec::with_capacity(size + 8);
    while value.len() < size {
        value.extend_from_slice(&rng.draw().to_be_bytes());
    }
    value.truncate(size);
    value.into()
}

fn print(args: &StorageArgs, rows: &[Row]) {
    println!(
        "bytes at rest per replica and byte of value; {} registers of {} bytes per line, records' \
         metadata included\n",
        args.keys, args.size
    );
    let head = [
        "n",
        "f",
        "δ",
        "policy",
        "versions",
        "measured",
        "most",
        "to replicated",
        "formula",
        "",
        "",
    ];
    let mut table = vec![head.map(str::to_owned)];
    for row in rows {
        table.push([
            row.nodes.to_string(),
            row.faults.to_string(),
            row.delta.to_string(),
            row.policy.to_owned(),
            format!("{:.2}", row.versions),
            format!("{:.4}", row.measured),
            format!("{:.4}", row.most),
            format!("{:.4}", row.to_replicated),
            format!("{:.4}", row.formula),
            row.formula_in_letters.to_owned(),
            published(row).to_owned(),
        ]);
    }
    print!("{}", crate::report::aligned(&table));
}

/// The configurations that CassandrEAS's introduction works out.
fn published(row: &Row) -> &'static str {
    match (row.nodes, row.faults, row.delta, row.policy) {
        (9, 2, 3, "oreas" | "treas-opt") => "paper's example: 1/2",
        (7, 1, 1, "oreas" | "treas-opt") => "paper's example: 1/3",
        (9, 2, 3, "replicated") | (7, 1, 1, "replicated") => "Cassandra: 1",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once everything superseded has been dropped, which no bound in time is promised for.
    #[tokio::test]
    async fn what_is_at_rest_is_what_the_formulas_say() {
        let wrong = |row: &Row| (row.measured / row.formula - 1.0).abs() > 0.02;
        let mut last = Vec::new();
        for settle in [1, 5, 25] {
            let args = StorageArgs {
                nodes: vec![5],
                faults: vec![1],
                delta: vec![1],
                size: 30_000,
                keys: 2,
                settle,
                disks: Disks::Memory,
                json: false,
            };
            last = measure(&args).await.expect("a cluster");
            if !last.iter().any(wrong) {
                assert_eq!(last.len(), 5);
                return;
            }
        }
        panic!("{last:#?}");
    }
}
