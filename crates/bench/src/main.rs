//! Measurements of whole clusters.
//!
//! * `storage` is Table I of CassandrEAS: what each storage policy keeps, from running clusters.
//! * `figure1` is its Figure 1: latency and throughput of the policies beside each other.
//! * `outage` is the time without a primary after the death of a process, which it starts.
//! * `ring` changes who is in a cluster under a load, beside etcd and `ZooKeeper`.
//! * `replacement` gives the seat of a node that holds much to another.
//! * `secured` is what TLS costs.
//! * `music` has MUSIC's figures: Fermata beside Cassandra, `ZooKeeper` and etcd.
//!
//! They need a release build (`cargo run --release -p bench -- …`) to mean anything about time;
//! what is stored does not depend on it.

mod chart;
mod cluster;
mod cpu;
mod figure1;
mod music;
mod outage;
mod processes;
mod replacement;
mod report;
mod ring;
mod secured;
mod storage;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measurements of whole clusters.
#[derive(Debug, Parser)]
#[command(name = "fermata-bench")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Table I of CassandrEAS: bytes at rest per replica, measured.
    Storage(storage::StorageArgs),
    /// Figure 1 of CassandrEAS: latency and throughput by write ratio and by size of values.
    Figure1(figure1::Figure1Args),
    /// How long a site waits after the death of the node that led what it enters.
    Outage(outage::OutageArgs),
    /// What clients notice while nodes are added, drained, removed, replaced and restarted.
    Ring(ring::RingArgs),
    /// What it takes to replace a node that holds much.
    Replacement(replacement::ReplacementArgs),
    /// What TLS costs, and a flood of handshakes.
    Secured(secured::SecuredArgs),
    /// MUSIC's figures, beside real Cassandra, ZooKeeper and etcd.
    Music(music::MusicArgs),
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    // They have runtimes of their own, for each site.
    match &cli.what {
        What::Music(args) => return music::run(args),
        What::Ring(args) => return ring::run(args),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match cli.what {
            What::Storage(args) => storage::run(args).await,
            What::Figure1(args) => figure1::run(args).await,
            What::Outage(args) => outage::run(args).await,
            What::Replacement(args) => replacement::run(args).await,
            What::Secured(args) => secured::run(args).await,
            What::Ring(_) | What::Music(_) => unreachable!("they have returned above"),
        }
    })
}
