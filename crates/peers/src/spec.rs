//! What cluster is wanted, and how that is written down for later commands.
//!
//! A cluster started from the command line outlives the command; the next one learns from the file
//! `cluster` in its run folder what the first was told.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Most nodes of one cluster.
pub const NODES_MAX: u8 = 13;

/// A spare's ports are so far above the usual ones, which the node beside it has.
const SPARE_PORTS: u16 = 10_000;

/// A system that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Apache Cassandra 5.0.9.
    Cassandra,
    /// Apache ZooKeeper 3.9.5.
    Zookeeper,
    /// etcd 3.7.3.
    Etcd,
}

/// Cassandra's `paxos_variant`: the protocol of its light-weight transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paxos {
    /// Four round trips a transaction: the server's own default, and what the paper measured.
    V1,
    /// Two round trips a transaction, one for a read.
    V2,
}

/// Cassandra's `paxos_state_purging`: when the state of decided rounds may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purging {
    /// By a time to live, as it always was.
    Legacy,
    /// After the table's `gc_grace_seconds`.
    GcGrace,
    /// After a repair of the Paxos state has seen it.
    Repaired,
}

/// Cassandra's `commitlog_sync`: when a write is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commitlog {
    /// Before it is acknowledged, at once; writes that come together share a flush. This is what
    /// ZooKeeper and etcd do.
    Batch,
    /// Before it is acknowledged, with all writes of 10 ms.
    Group,
    /// Within ten seconds *after* it is acknowledged: what is acknowledged may be lost.
    Periodic,
}

/// The words of an enum, for command lines and files.
macro_rules! words {
    ($type:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($type::$variant => $word),+ })
            }
        }

        impl FromStr for $type {
            type Err = io::Error;

            fn from_str(word: &str) -> io::Result<$type> {
                match word {
                    $($word => Ok($type::$variant),)+
                    _ => {
                        let known = [$($word),+].join(", ");
                        Err(refused(format!("{} is one of {known}, not `{word}`", $what)))
                    }
                }
            }
        }
    };
}

words!(
    System,
    "a system",
    Cassandra = "cassandra",
    Zookeeper = "zookeeper",
    Etcd = "etcd"
);
words!(Paxos, "Paxos", V1 = "v1", V2 = "v2");
words!(
    Purging,
    "purging",
    Legacy = "legacy",
    GcGrace = "gc_grace",
    Repaired = "repaired"
);
words!(
    Commitlog,
    "the commit log",
    Batch = "batch",
    Group = "group",
    Periodic = "periodic"
);

/// A cluster that is wanted. [`Spec::new`] has the defaults; change the fields that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Which servers.
    pub system: System,
    /// How many, from 1 to [`NODES_MAX`].
    pub nodes: u8,
    /// How many are kept beside them, numbered on from the last: they have addresses and folders,
    /// and are neither started nor members before
    /// [`start_spare`](crate::Cluster::start_spare). The first lives beside node 1, at its address
    /// and in its namespace, with ports 10,000 above the usual ones, the second beside node 2, and
    /// so on. Only of ZooKeeper and etcd, whose members then may change.
    pub spares: u8,
    /// Address of node 1; node `i` has the one `i - 1` above it. By default a detached cluster has
    /// 127.0.0.1, an owned one any that is free at the moment, so that tests run at once, and one
    /// in namespaces 10.77.0.1.
    pub base: Option<Ipv4Addr>,
    /// Node `i` lives in the network namespace of this name with `i` appended, which exists, has
    /// the node's address, and its own loopback up.
    pub netns: Option<String>,
    /// Where data, logs and process numbers are. By default a fresh folder for an owned cluster,
    /// and `run/SYSTEM` in [`home`](crate::home) for a detached one.
    pub folder: Option<PathBuf>,
    /// Whether the cluster outlives the process that starts it, as those of the command line do.
    pub detached: bool,
    /// Whether the data of the cluster that was in the folder before stays; it must have had the
    /// same nodes.
    pub keep: bool,
    /// Boots with about half of the work: the first compiler of Java only, and a small heap. For
    /// tests of function, never for measurements.
    pub quick: bool,
    /// Heap of a node, in MiB (systems in Java).
    pub heap_mib: Option<u32>,
    /// Cassandra: node `i` is data centre `dci`; otherwise all are in `dc1`. Racks are all `rack1`.
    pub dcs: bool,
    /// Cassandra's Paxos.
    pub paxos: Paxos,
    /// Cassandra's purging of Paxos state; its own default if none.
    pub purging: Option<Purging>,
    /// Cassandra's commit log.
    pub commitlog: Commitlog,
    /// Lines for `cassandra.yaml` or `zoo.cfg`, flags of etcd (without `--`), as key and value;
    /// they win over ours. A key that begins with `-` is an option of Java (`-Dcassandra.x`,
    /// `-XX:X`).
    pub settings: Vec<(String, String)>,
    /// How long the whole start may take before it fails; by default 600 s for Cassandra and 120 s
    /// for the others. Installing does not count.
    pub patience: Option<Duration>,
}

impl Spec {
    /// `nodes` nodes of a system, owned by this process, on 127.0.0.1 and up, in one data centre,
    /// with Paxos v1, flushing before acknowledging.
    pub fn new(system: System, nodes: u8) -> Spec {
        Spec {
            system,
            nodes,
            spares: 0,
            base: None,
            netns: None,
            folder: None,
            detached: false,
            keep: false,
            quick: false,
            heap_mib: None,
            dcs: false,
            paxos: Paxos::V1,
            purging: None,
            commitlog: Commitlog::Batch,
            settings: Vec::new(),
            patience: None,
        }
    }

    /// Adds one of the [`settings`](Spec::settings).
    pub fn with(mut self, key: &str, value: &str) -> Spec {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// An error that says what of it cannot be.
    pub(crate) fn check(&self) -> io::Result<()> {
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(refused(format!(
                "a cluster has 1 to {NODES_MAX} nodes, not {}",
                self.nodes
            )));
        }
        let first = self.ip(1).octets()[3];
        if first == 0 || u32::from(first) + u32::from(self.nodes) > 255 {
            return Err(refused(format!(
                "{} nodes from {} on do not fit below .255; choose a lower base address",
                self.nodes,
                self.ip(1)
            )));
        }
        self.check_spares()?;
        let lines = |text: &str| text.contains(['\n', '\r']) || text.is_empty();
        match self.settings.iter().find(|(k, v)| lines(k) || lines(v)) {
            Some((key, _)) => Err(refused(format!(
                "setting `{key}` is empty or has two lines"
            ))),
            None => Ok(()),
        }
    }

    fn check_spares(&self) -> io::Result<()> {
        let (spares, nodes) = (self.spares, self.nodes);
        if spares > nodes {
            return Err(refused(format!(
                "{spares} spares have no place beside {nodes} nodes; there is one for each"
            )));
        }
        if spares > 0 && self.system == System::Cassandra {
            return Err(refused("a cluster of cassandra has no spares".to_owned()));
        }
        if spares > 0 && self.keep {
            return Err(refused(
                "a cluster with spares starts on no old data: that may name other members"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// The node whose address and namespace node `i` has: itself, unless it is a spare.
    fn host(&self, i: u8) -> u8 {
        if i > self.nodes { i - self.nodes } else { i }
    }

    /// What `port` is for node `i`.
    pub(crate) fn port(&self, i: u8, port: u16) -> u16 {
        if i > self.nodes {
            port + SPARE_PORTS
        } else {
            port
        }
    }

    /// The address of node `i`, from 1 on.
    pub(crate) fn ip(&self, i: u8) -> Ipv4Addr {
        let namespaces = Ipv4Addr::new(10, 77, 0, 1);
        let base = self.base.unwrap_or(match self.netns {
            Some(_) => namespaces,
            None => Ipv4Addr::LOCALHOST,
        });
        Ipv4Addr::from_bits(base.to_bits() + u32::from(self.host(i)) - 1)
    }

    /// The numbers of all nodes and spares.
    pub(crate) fn all(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.nodes + self.spares
    }

    /// The numbers of the nodes that are members from the start.
    pub(crate) fn numbers(&self) -> std::ops::RangeInclusive<u8> {
        1..=self.nodes
    }

    /// The namespace of node `i`.
    pub(crate) fn namespace(&self, i: u8) -> Option<String> {
        let host = self.host(i);
        self.netns.as_ref().map(|prefix| format!("{prefix}{host}"))
    }

    /// The data centre of node `i`.
    pub(crate) fn dc(&self, i: u8) -> String {
        format!("dc{}", if self.dcs { i } else { 1 })
    }

    /// [`Spec::patience`], or its default.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
            .unwrap_or(Duration::from_secs(match self.system {
                System::Cassandra => 600,
                System::Zookeeper | System::Etcd => 120,
            }))
    }

    /// The settings that are options of Java, as arguments.
    pub(crate) fn java_options(&self) -> impl Iterator<Item = String> {
        let options = self.settings.iter().filter(|(key, _)| key.starts_with('-'));
        options.map(|(key, value)| format!("{key}={value}"))
    }

    /// `ours`, with the settings that are none of Java's: those known are replaced, others come
    /// last.
    pub(crate) fn merged(&self, ours: &[(&str, String)]) -> Vec<(String, String)> {
        let owned = ours
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        let mut merged: Vec<(String, String)> = owned.collect();
        for (key, value) in self.settings.iter().filter(|(k, _)| !k.starts_with('-')) {
            match merged.iter_mut().find(|(known, _)| known == key) {
                Some(line) => line.1.clone_from(value),
                None => merged.push((key.clone(), value.clone())),
            }
        }
        merged
    }

    /// The file `cluster`.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: &dyn fmt::Display| {
            text.push_str(&format!("{key} = {value}\n"));
        };
        line("system", &self.system);
        line("nodes", &self.nodes);
        if self.spares > 0 {
            line("spares", &self.spares);
        }
        line("base", &self.ip(1));
        if let Some(netns) = &self.netns {
            line("netns", netns);
        }
        line("quick", &self.quick);
        if let Some(heap) = self.heap_mib {
            line("heap_mib", &heap);
        }
        line("dcs", &self.dcs);
        line("paxos", &self.paxos);
        if let Some(purging) = self.purging {
            line("purging", &purging);
        }
        line("commitlog", &self.commitlog);
        line("patience", &self.patience().as_secs());
        for (key, value) in &self.settings {
            line(&format!("setting {key}"), value);
        }
        text
    }

    /// Reads the file `cluster`: always a detached one.
    pub(crate) fn of_text(text: &str) -> io::Result<Spec> {
        let mut spec = Spec::new(System::Cassandra, 0);
        spec.detached = true;
        for line in text.lines() {
            let damaged = || refused(format!("the file `cluster` has a strange line: {line}"));
            let (key, value) = line.split_once(" = ").ok_or_else(damaged)?;
            match key {
                "system" => spec.system = value.parse()?,
                "nodes" => spec.nodes = value.parse().map_err(|_| damaged())?,
                "spares" => spec.spares = value.parse().map_err(|_| damaged())?,
                "base" => spec.base = Some(value.parse().map_err(|_| damaged())?),
                "netns" => spec.netns = Some(value.to_owned()),
                "quick" => spec.quick = value.parse().map_err(|_| damaged())?,
                "heap_mib" => spec.heap_mib = Some(value.parse().map_err(|_| damaged())?),
                "dcs" => spec.dcs = value.parse().map_err(|_| damaged())?,
                "paxos" => spec.paxos = value.parse()?,
                "purging" => spec.purging = Some(value.parse()?),
                "commitlog" => spec.commitlog = value.parse()?,
                "patience" => {
                    let seconds = value.parse().map_err(|_| damaged())?;
                    spec.patience = Some(Duration::from_secs(seconds));
                }
                _ => {
                    let key = key.strip_prefix("setting ").ok_or_else(damaged)?;
                    spec.settings.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        spec.check()?;
        Ok(spec)
    }
}

/// What cannot be, in one sentence.
pub(crate) fn refused(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_as_it_was_written() {
        let mut spec = Spec::new(System::Cassandra, 3).with("read_request_timeout", "10s");
        spec.base = Some(Ipv4Addr::new(127, 0, 5, 1));
        spec.netns = Some("site".to_owned());
        spec.detached = true;
        spec.quick = true;
        spec.heap_mib = Some(512);
        spec.dcs = true;
        spec.paxos = Paxos::V2;
        spec.purging = Some(Purging::Repaired);
        spec.commitlog = Commitlog::Group;
        spec.patience = Some(Duration::from_secs(7));
        let read = Spec::of_text(&spec.to_text()).expect("our own text");
        assert_eq!(read, spec);
        let error = Spec::of_text("nodes = many\n").expect_err("no number");
        assert!(error.to_string().contains("nodes = many"));
    }

    #[test]
    fn addresses_count_up_and_must_fit() {
        let mut spec = Spec::new(System::Etcd, 3);
        assert_eq!(spec.ip(3), Ipv4Addr::new(127, 0, 0, 3));
        spec.netns = Some("site".to_owned());
        assert_eq!(spec.ip(2), Ipv4Addr::new(10, 77, 0, 2));
        spec.base = Some(Ipv4Addr::new(127, 0, 0, 253));
        assert!(spec.check().is_err());
        spec.nodes = 2;
        assert!(spec.check().is_ok());
        spec.nodes = 0;
        assert!(spec.check().is_err());
    }

    #[test]
    fn a_spare_is_beside_a_first_node_at_other_ports() {
        let mut spec = Spec::new(System::Etcd, 3);
        spec.netns = Some("site".to_owned());
        spec.spares = 2;
        assert!(spec.check().is_ok());
        assert_eq!(spec.ip(5), spec.ip(2));
        assert_eq!(spec.namespace(4).as_deref(), Some("site1"));
        assert_eq!((spec.port(3, 2379), spec.port(4, 2379)), (2379, 12379));
        assert_eq!((spec.numbers(), spec.all()), (1..=3, 1..=5));
        let read = Spec::of_text(&spec.to_text()).expect("our own text");
        assert_eq!(read.spares, 2);
    }

    #[test]
    fn spares_that_cannot_be_are_refused() {
        let refused = |change: fn(&mut Spec)| {
            let mut spec = Spec::new(System::Zookeeper, 1);
            spec.spares = 1;
            change(&mut spec);
            spec.check().expect_err("refused").to_string()
        };
        assert!(refused(|spec| spec.spares = 2).contains("2 spares"));
        assert!(refused(|spec| spec.system = System::Cassandra).contains("no spares"));
        assert!(refused(|spec| spec.keep = true).contains("no old data"));
    }

    #[test]
    fn settings_win_over_ours_and_options_of_java_are_apart() {
        let spec = Spec::new(System::Zookeeper, 1);
        let spec = spec
            .with("tickTime", "500")
            .with("-Djute.x", "1")
            .with("new", "yes");
        let merged = spec.merged(&[("tickTime", "2000".to_owned()), ("a", "b".to_owned())]);
        let merged: Vec<String> = merged.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(merged, ["tickTime=500", "a=b", "new=yes"]);
        assert_eq!(spec.java_options().collect::<Vec<_>>(), ["-Djute.x=1"]);
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_known_ones() {
        let error = "v3".parse::<Paxos>().expect_err("there is none");
        assert_eq!(error.to_string(), "Paxos is one of v1, v2, not `v3`");
    }
}
