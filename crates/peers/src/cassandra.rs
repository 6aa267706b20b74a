//! Cassandra: configuration, command, readiness.
//!
//! All nodes start at once. That is not how a ring grows: a node that joins would stream its range
//! from the others, one after the other. Here each has one token, spread evenly and written down
//! beforehand, and is a seed, so nobody joins and nothing waits for gossip to settle.
//!
//! What differs from the configuration that Cassandra comes with: the commit log is flushed before
//! a write is acknowledged, as the other two systems do it (its own default answers first, and
//! flushes within ten seconds); and caches, pools and heap are those of a machine that has several
//! nodes. Both can be set.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{LOGBACK, Place, Server};
use crate::cql::{Consistency, Cql};
use crate::install::{Artifact, class_path, jars, java};
use crate::net;
use crate::spec::{Commitlog, Spec, System};

/// What is installed.
pub(crate) const VERSION: &str = "5.0.9";

pub(crate) const ARTIFACTS: &[Artifact] = &[("org.apache.cassandra", "cassandra-all", VERSION)];

/// What `nodetool` logs is nobody's business but its own.
const QUIET: &str = "<configuration><root level=\"OFF\"/></configuration>\n";

const CLIENTS: u16 = 9042;
const PEERS: u16 = 7000;

/// Packages that Cassandra uses from inside of Java 17, as its own `jvm17-server.options` opens
/// them.
const EXPORTS: [&str; 7] = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
];
const OPENS: [&str; 17] = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
];

/// Cassandra.
pub(crate) struct Cassandra;

impl Server for Cassandra {
    fn ports(&self) -> &'static [u16] {
        &[CLIENTS, PEERS]
    }

    fn files(&self, place: &Place, i: u8, _: &[u8]) -> Vec<(&'static str, String)> {
        let rack = format!("dc={}\nrack=rack1\n", place.spec.dc(i));
        vec![
            ("cassandra.yaml", yaml(place, i)),
            ("rackdc.properties", rack),
            ("logback.xml", LOGBACK.to_owned()),
            ("quiet.xml", QUIET.to_owned()),
        ]
    }

    fn command(&self, place: &Place, i: u8, _: &[u8]) -> io::Result<Vec<String>> {
        let jars = jars(&place.installed)?;
        let mut command = vec![java()];
        command.extend(inside_of_java());
        command.extend(machine(&place.spec));
        let archive = archive(&place.installed);
        if place.spec.quick && archive.exists() {
            command.push(format!("-XX:SharedArchiveFile={}", archive.display()));
        }
        // It measures objects. Java makes no archive beside an agent, and Cassandra can guess.
        let agent = jars
            .iter()
            .find(|jar| jar.to_string_lossy().contains("/jamm-"));
        if let Some(agent) = agent.filter(|_| !is_rehearsal(&place.spec)) {
            command.push(format!("-javaagent:{}", agent.display()));
        }
        let folder = place.node(i);
        let folder = folder.display();
        command.extend([
            format!("-Dcassandra.config=file://{folder}/cassandra.yaml"),
            format!("-Dcassandra-rackdc.properties=file://{folder}/rackdc.properties"),
            format!("-Dlogback.configurationFile={folder}/logback.xml"),
            format!("-Dcassandra.logdir={folder}"),
            format!("-Dcassandra.storagedir={folder}/data"),
            format!("-Djava.io.tmpdir={folder}/tmp"),
            format!("-Djna.tmpdir={folder}/tmp"),
            format!(
                "-Dcassandra.jmx.local.port={}",
                management_port(&place.spec, i)
            ),
        ]);
        command.extend(place.spec.java_options());
        command.extend(["-cp".to_owned(), class_path(&jars)]);
        command.push("org.apache.cassandra.service.CassandraDaemon".to_owned());
        Ok(command)
    }

    fn serves(&self, place: &Place, i: u8) -> io::Result<String> {
        let mut cql = connect(place, i)?;
        let peers = cql.query("SELECT tokens FROM system.peers_v2", Consistency::One)?;
        let known = 1 + peers.rows.iter().filter(|row| row[0].is_some()).count();
        let nodes = place.spec.nodes;
        match known >= usize::from(nodes) {
            true => Ok(place.spec.dc(i)),
            false => Err(io::Error::other(format!(
                "node {i} knows {known} of {nodes}"
            ))),
        }
    }

    fn together(&self, place: &Place) -> io::Result<()> {
        for i in place.spec.numbers() {
            self.serves(place, i)?;
            let mut cql = connect(place, i)?;
            if !cql.agreed()? {
                let error = format!("node {i} waits for the others' schema");
                return Err(io::Error::other(error));
            }
            // A scan at ALL of a table that every node has a part of succeeds when this node
            // takes all the others for alive, and needs no schema of ours.
            let table = match place.spec.nodes {
                1 => continue,
                2 => "system_traces.sessions", // Two replicas.
                _ => "system_distributed.view_build_status", // Three.
            };
            let scan = format!("SELECT * FROM {table}");
            cql.query(&scan, Consistency::All).map_err(|error| {
                io::Error::other(format!("node {i} does not reach the others: {error}"))
            })?;
        }
        Ok(())
    }

    fn durability(&self, spec: &Spec) -> String {
        let when = match spec.commitlog {
            Commitlog::Batch | Commitlog::Group => "flushed before a write is acknowledged",
            Commitlog::Periodic => "flushed up to 10 s AFTER a write is acknowledged",
        };
        format!("commitlog_sync {}: {when}", spec.commitlog)
    }

    fn quorumless(&self) -> bool {
        true
    }
}

/// Where the classes are that a node loads while it boots, in the form in which Java has them in
/// memory. With them a boot costs about a third less.
pub(crate) fn archive(installed: &Path) -> PathBuf {
    installed.join("classes.jsa")
}

/// Java's option that makes such an archive of what was loaded, when it ends.
const REHEARSAL: &str = "-XX:ArchiveClassesAtExit";

/// Whether a cluster is started only to make the archive.
pub(crate) fn is_rehearsal(spec: &Spec) -> bool {
    spec.settings.iter().any(|(key, _)| key == REHEARSAL)
}

/// A node that makes the archive.
pub(crate) fn rehearsal(archive: &Path) -> Spec {
    let mut spec = Spec::new(System::Cassandra, 1);
    spec.quick = true;
    spec.with(REHEARSAL, &archive.to_string_lossy())
}

/// A connection to node `i`, opened where it lives.
pub(crate) fn connect(place: &Place, i: u8) -> io::Result<Cql> {
    let address = place.address(i, CLIENTS);
    net::within(place.spec.namespace(i).as_deref(), || Cql::connect(address))?
}

/// Cassandra's own tool, asking node `i`.
pub(crate) fn nodetool(place: &Place, i: u8, arguments: &[String]) -> io::Result<Command> {
    let mut tool = Command::new(java());
    tool.args(inside_of_java());
    tool.args(["-Xmx64m", "-XX:TieredStopAtLevel=1"]);
    tool.args(["-XX:+UseSerialGC", "-XX:+PerfDisableSharedMem"]);
    tool.arg("-Dlogback.configurationFile=quiet.xml");
    tool.arg("-cp").arg(class_path(&jars(&place.installed)?));
    tool.arg("org.apache.cassandra.tools.NodeTool")
        .args(["-h", "127.0.0.1", "-p"]);
    tool.arg(management_port(&place.spec, i).to_string());
    tool.args(arguments).current_dir(place.node(i));
    Ok(tool)
}

/// Where a node's management listens. It does so on 127.0.0.1 whatever its own address is, so the
/// port tells the nodes apart: by the last octet and the lower six bits of the third, below the
/// ports that the machine gives to clients.
pub(crate) fn management_port(spec: &Spec, i: u8) -> u16 {
    let [_, _, c, d] = spec.ip(i).octets();
    16384 + u16::from(c % 64) * 256 + u16::from(d)
}

fn inside_of_java() -> Vec<String> {
    let exports = EXPORTS.iter().map(|one| ("--add-exports", one));
    let opens = OPENS.iter().map(|one| ("--add-opens", one));
    let all = exports.chain(opens);
    all.flat_map(|(option, one)| [option.to_owned(), format!("{one}=ALL-UNNAMED")])
        .collect()
}

/// How Java runs it.
fn machine(spec: &Spec) -> Vec<String> {
    let (heap, direct) = if spec.quick { (320, 128) } else { (768, 512) };
    let heap = spec.heap_mib.unwrap_or(heap);
    let mut options = vec![
        format!("-Xms{heap}m"),
        format!("-Xmx{heap}m"),
        format!("-XX:MaxDirectMemorySize={direct}m"),
    ];
    let speed: &[&str] = match spec.quick {
        true => &[
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            // What Cassandra finds out on Java 17, by building a hundred thousand rows.
            "-Dcassandra.memtable.row_overhead_size=180",
        ],
        false => &[
            "-XX:+UseG1GC",
            "-XX:+ParallelRefProcEnabled",
            "-XX:MaxGCPauseMillis=300",
        ],
    };
    let others = [
        "-ea",
        "-da:net.openhft...",
        "-Xss256k",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
        "-Djava.net.preferIPv4Stack=true",
        "-Djdk.attach.allowAttachSelf=true",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.useCacheForAllThreads=true",
        "-Dcassandra-foreground=yes",
        // Nobody joins, so there is nothing to wait for.
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        "-Dcassandra.ring_delay_ms=1000",
        // Who is heard, and does not say its token within half of this, is forgotten, as a seed
        // too. Two that start slowly, and forget each other, never ask each other again.
        "-Dcassandra.gossip_quarantine_delay_ms=1200000",
        "-Dcassandra.consistent.rangemovement=false",
    ];
    options.extend(
        speed
            .iter()
            .chain(&others)
            .map(|option| (*option).to_owned()),
    );
    options
}

/// The token of node `i`: the ring of 2^64 in as many equal arcs as there are nodes.
fn token(i: u8, nodes: u8) -> i64 {
    let arc = (1_i128 << 64) / i128::from(nodes);
    let token = i128::from(i64::MIN) + arc * i128::from(i - 1);
    i64::try_from(token).expect("below the ring's end")
}

/// What is the same for every node of every cluster.
const FIXED: [(&str, &str); 15] = [
    ("cluster_name", "peers"),
    ("num_tokens", "1"),
    ("auto_bootstrap", "false"),
    ("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner"),
    ("endpoint_snitch", "GossipingPropertyFileSnitch"),
    ("disk_failure_policy", "stop"),
    ("commit_failure_policy", "stop"),
    ("concurrent_reads", "16"),
    ("concurrent_writes", "32"),
    ("concurrent_counter_writes", "4"),
    ("concurrent_compactors", "1"),
    ("key_cache_size", "8MiB"),
    ("counter_cache_size", "0MiB"),
    ("auto_snapshot", "false"),
    ("internode_compression", "none"),
];

fn yaml(place: &Place, i: u8) -> String {
    let spec = &place.spec;
    let ip = spec.ip(i).to_string();
    let data = place.node(i).join("data");
    let data = |name: &str| format!("{:?}", data.join(name).to_string_lossy());
    let seeds = spec.numbers().map(|j| format!("{}:{PEERS}", spec.ip(j)));
    let seeds = format!(
        "[{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
         parameters: [{{seeds: \"{}\"}}]}}]",
        seeds.collect::<Vec<_>>().join(",")
    );
    let [segment, memtable, cache] = if spec.quick {
        [16, 48, 16]
    } else {
        [32, 128, 64]
    };
    let mib = |n: u32| format!("{n}MiB");
    let fixed = FIXED.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let mut ours: Vec<(&str, String)> = fixed.collect();
    ours.extend([
        ("initial_token", format!("\"{}\"", token(i, spec.nodes))),
        ("seed_provider", seeds),
        ("listen_address", ip.clone()),
        ("rpc_address", ip),
        ("storage_port", PEERS.to_string()),
        ("native_transport_port", CLIENTS.to_string()),
        ("data_file_directories", format!("[{}]", data("data"))),
        ("commitlog_directory", data("commitlog")),
        ("saved_caches_directory", data("saved_caches")),
        ("hints_directory", data("hints")),
        ("cdc_raw_directory", data("cdc_raw")),
        ("commitlog_sync", spec.commitlog.to_string()),
        ("commitlog_segment_size", mib(segment)),
        ("commitlog_total_space", mib(segment * 16)),
        ("paxos_variant", spec.paxos.to_string()),
        ("memtable_heap_space", mib(memtable)),
        ("memtable_offheap_space", mib(memtable)),
        ("file_cache_size", mib(cache)),
        ("networking_cache_size", mib(cache)),
    ]);
    match spec.commitlog {
        Commitlog::Batch => {}
        Commitlog::Group => ours.push(("commitlog_sync_group_window", "10ms".to_owned())),
        Commitlog::Periodic => ours.push(("commitlog_sync_period", "10000ms".to_owned())),
    }
    if let Some(purging) = spec.purging {
        ours.push(("paxos_state_purging", purging.to_string()));
    }
    let lines = spec.merged(&ours);
    lines
        .iter()
        .map(|(key, value)| format!("{key}: {value}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::spec::{Paxos, Purging};

    fn place(spec: Spec) -> Place {
        Place {
            spec,
            folder: "/run folder".into(),
            installed: "/nowhere".into(),
        }
    }

    #[test]
    fn tokens_are_spread_evenly() {
        assert_eq!([1, 2].map(|i| token(i, 2)), [i64::MIN, 0]);
        for nodes in 1..=crate::spec::NODES_MAX {
            let tokens: Vec<i128> = (1..=nodes).map(|i| token(i, nodes).into()).collect();
            let arc = (1_i128 << 64) / i128::from(nodes);
            assert!(tokens.windows(2).all(|pair| pair[1] - pair[0] == arc));
            let last = tokens[0] + (1 << 64) - tokens[tokens.len() - 1];
            assert!((last - arc).unsigned_abs() < u128::from(nodes));
        }
    }

    #[test]
    fn the_configuration_says_what_the_spec_does() {
        let mut spec = Spec::new(System::Cassandra, 3).with("paxos_variant", "v1");
        spec.base = Some(Ipv4Addr::new(127, 0, 5, 1));
        spec.paxos = Paxos::V2;
        spec.purging = Some(Purging::GcGrace);
        let yaml = yaml(&place(spec.clone()), 2);
        let has = |line: &str| assert!(yaml.lines().any(|l| l == line), "{line}\n{yaml}");
        has("listen_address: 127.0.5.2");
        has("initial_token: \"-3074457345618258603\"");
        has("commitlog_sync: batch");
        has("paxos_variant: v1");
        has("paxos_state_purging: gc_grace");
        has("hints_directory: \"/run folder/node2/data/hints\"");
        assert!(yaml.contains("seeds: \"127.0.5.1:7000,127.0.5.2:7000,127.0.5.3:7000\""));
        assert!(
            Cassandra
                .durability(&spec)
                .contains("before a write is acknowledged")
        );
        spec.commitlog = Commitlog::Periodic;
        assert!(Cassandra.durability(&spec).contains("AFTER"));
    }

    #[test]
    fn each_node_has_its_data_centre_and_its_port_for_management() {
        let mut spec = Spec::new(System::Cassandra, 3);
        assert_eq!(spec.dc(3), "dc1");
        spec.dcs = true;
        let files = Cassandra.files(&place(spec.clone()), 3, &[1, 2, 3]);
        assert!(files.iter().any(|(_, text)| text == "dc=dc3\nrack=rack1\n"));
        assert_eq!(management_port(&spec, 1), 16385);
        spec.base = Some(Ipv4Addr::new(127, 0, 63, 1));
        assert_eq!(management_port(&spec, 3), 32515);
    }
}
