//! Three nodes of a system for all tests that ask nothing special of it.
//!
//! **Problem.** A cluster in Java boots for longer than most tests on it run, and test programs are
//! processes of their own, run one after the other.
//!
//! **Idea.** The gate starts one trio of Cassandra and one of `ZooKeeper` ([`Trios`]) and names
//! their folder to the programs it runs, in `FERMATA_TEST_SERVERS`. A program takes [`trio`], which
//! is the gate's, or where there is none the program's own, and ends with it.
//!
//! **Invariants.** A program that begins finds all nodes serving, whatever the one before has left
//! standing or dead. Two programs at once on the same trio are nobody's business but theirs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cluster::Cluster;
use crate::install::{home, missing, testable};
use crate::process::State;
use crate::spec::{Commitlog, Paxos, Purging, Spec, System};

/// Names the folder of the trios that run already, to the programs that test on them.
pub const TRIOS: &str = "FERMATA_TEST_SERVERS";

/// How long Cassandra's nodes wait for each other, and keep messages that nobody takes. As short as
/// tests can bear that let a node stand still, for they have to wait until what was sent to it is
/// too old; and long enough for a machine that is busy besides.
pub const EXPIRY_MS: u32 = 3_000;

/// By which clock they find that. Their own choice is a sample that a thread takes every 2 ms: a
/// server that has stood still takes old messages for new ones until that thread has had its turn.
const CLOCK: (&str, &str) = (
    "-Dcassandra.monotonic_clock.approx",
    "org.apache.cassandra.utils.MonotonicClock$SystemClock",
);

/// A node that has missed a change of the schema asks for it after so many milliseconds, and not
/// after the minute that is usual, which every `CREATE` waits for meanwhile.
const SCHEMA: [&str; 2] = [
    "-Dcassandra.migration_delay_ms",
    "-Dcassandra.schema_pull_interval_ms",
];

/// Small servers, sure of what they acknowledge. Cassandra's have a data center each.
fn spec(system: System) -> Spec {
    let mut spec = Spec::new(system, 3);
    spec.quick = true;
    if system == System::Cassandra {
        spec.dcs = true;
        // The tables of all programs' keyspaces stay to the end: with the 320 MiB of a quick node
        // one has ended in the middle of the last program.
        spec.heap_mib = Some(768);
        spec.commitlog = Commitlog::Group;
        spec.paxos = Paxos::V2;
        spec.purging = Some(Purging::Repaired);
        let expiry = format!("{EXPIRY_MS}ms");
        for what in ["read_request", "write_request", "cas_contention"] {
            spec = spec.with(&format!("{what}_timeout"), &expiry);
        }
        spec = spec
            .with("range_request_timeout", "20s")
            .with("hinted_handoff_enabled", "false")
            .with(CLOCK.0, CLOCK.1)
            .with(SCHEMA[0], "1000")
            .with(SCHEMA[1], "1000");
    }
    spec
}

fn below(folder: &Path, system: System) -> PathBuf {
    folder.join(system.to_string())
}

/// Trios for the programs that are told of their folder in [`TRIOS`]. They end with this.
#[derive(Debug)]
pub struct Trios {
    folder: PathBuf,
    clusters: Vec<Cluster>,
}

impl Trios {
    /// Starts those of Cassandra and ZooKeeper that can run here, side by side.
    ///
    /// # Errors
    ///
    /// Those of [`Cluster::start`].
    pub fn start() -> io::Result<Trios> {
        let folder = home()
            .join("run")
            .join(format!("trios-{}", std::process::id()));
        let systems = [System::Cassandra, System::Zookeeper];
        let start = &|system: System| {
            let mut spec = spec(system);
            spec.folder = Some(below(&folder, system));
            Cluster::start(&spec)
        };
        let started: Vec<io::Result<Cluster>> = std::thread::scope(|scope| {
            let here = systems.into_iter().filter(|s| missing(*s).is_none());
            let starts: Vec<_> = here.map(|s| scope.spawn(move || start(s))).collect();
            let ends = starts.into_iter();
            ends.map(|start| start.join().expect("no start panics"))
                .collect()
        });
        let clusters = started.into_iter().collect::<io::Result<_>>()?;
        Ok(Trios { folder, clusters })
    }

    /// What [`TRIOS`] is to be.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Trios {
    fn drop(&mut self) {
        self.clusters.clear();
        // Where something is left in it, that has been said.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The trio of a system, all nodes serving when it is asked for first; none, and a loud word, where
/// real servers cannot run. Tests name what they make after their process, since other programs
/// have been here before.
///
/// # Panics
///
/// It does not start, or the one in [`TRIOS`] does not serve.
pub fn trio(system: System) -> Option<&'static Cluster> {
    static CASSANDRA: OnceLock<Option<Cluster>> = OnceLock::new();
    static ZOOKEEPER: OnceLock<Option<Cluster>> = OnceLock::new();
    static ETCD: OnceLock<Option<Cluster>> = OnceLock::new();
    let trio = match system {
        System::Cassandra => &CASSANDRA,
        System::Zookeeper => &ZOOKEEPER,
        System::Etcd => &ETCD,
    };
    let found = || {
        let started = match std::env::var_os(TRIOS) {
            _ if !testable(system) => return None,
            Some(folder) => found(system, Path::new(&folder)),
            None => Cluster::start(&spec(system)),
        };
        Some(started.unwrap_or_else(|why| panic!("three nodes of {system}: {why}")))
    };
    trio.get_or_init(found).as_ref()
}

/// The one that runs already, healed.
fn found(system: System, folder: &Path) -> io::Result<Cluster> {
    let cluster = Cluster::open(system, Some(&below(folder, system)))?;
    for node in cluster.nodes() {
        match node.state {
            State::Up => {}
            State::Stopped => cluster.continue_node(node.number)?,
            State::Down => cluster.start_node(node.number)?,
        }
    }
    Ok(cluster)
}
