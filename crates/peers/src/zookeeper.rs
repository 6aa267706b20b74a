//! ZooKeeper: configuration, command, readiness.
//!
//! It flushes its log before it acknowledges a write (`forceSync`, its default).

use std::io;

use crate::cluster::{LOGBACK, Place, Server};
use crate::install::{Artifact, class_path, jars, java};
use crate::net;
use crate::spec::Spec;

/// What is installed.
pub(crate) const VERSION: &str = "3.9.5";

/// The server, and what its own package of files adds to it: its artifact calls these `provided`.
pub(crate) const ARTIFACTS: &[Artifact] = &[
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("ch.qos.logback", "logback-classic", "1.3.15"),
];

const CLIENTS: u16 = 2181;
const PEERS: u16 = 2888;
const ELECTION: u16 = 3888;

/// ZooKeeper.
pub(crate) struct Zookeeper;

impl Server for Zookeeper {
    fn ports(&self) -> &'static [u16] {
        &[CLIENTS, PEERS, ELECTION]
    }

    fn files(&self, place: &Place, i: u8, members: &[u8]) -> Vec<(&'static str, String)> {
        vec![
            ("zoo.cfg", configuration(place, i, members)),
            ("data/myid", format!("{i}\n")),
            ("logback.xml", LOGBACK.to_owned()),
        ]
    }

    fn command(&self, place: &Place, i: u8, _: &[u8]) -> io::Result<Vec<String>> {
        let spec = &place.spec;
        let heap = spec.heap_mib.unwrap_or(if spec.quick { 128 } else { 512 });
        let folder = place.node(i);
        let folder = folder.display();
        let mut command = vec![java(), format!("-Xms{heap}m"), format!("-Xmx{heap}m")];
        let speed: &[&str] = match spec.quick {
            true => &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            false => &["-XX:+UseG1GC"],
        };
        let others = [
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:+PerfDisableSharedMem",
            "-Djava.net.preferIPv4Stack=true",
            "-Dzookeeper.jmx.log4j.disable=true",
        ];
        command.extend(
            speed
                .iter()
                .chain(&others)
                .map(|option| (*option).to_owned()),
        );
        command.push(format!("-Djava.io.tmpdir={folder}/tmp"));
        command.push(format!("-Dlogback.configurationFile={folder}/logback.xml"));
        command.extend(spec.java_options());
        command.extend(["-cp".to_owned(), class_path(&jars(&place.installed)?)]);
        command.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".to_owned());
        command.push(format!("{folder}/zoo.cfg"));
        Ok(command)
    }

    fn member(&self, place: &Place, i: u8) -> String {
        let [peers, election, clients] =
            [PEERS, ELECTION, CLIENTS].map(|port| place.spec.port(i, port));
        let ip = place.spec.ip(i);
        match changeable(&place.spec) {
            true => format!("server.{i}={ip}:{peers}:{election}:participant;{ip}:{clients}"),
            false => format!("server.{i}={ip}:{peers}:{election}"),
        }
    }

    fn serves(&self, place: &Place, i: u8) -> io::Result<String> {
        let said = ask(place, i, "srvr")?;
        let mode = said.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned)
            .ok_or_else(|| io::Error::other(format!("node {i} says `{}`", said.trim())))
    }

    fn together(&self, place: &Place) -> io::Result<()> {
        let mut leader = None;
        for i in place.spec.numbers() {
            match self.serves(place, i)?.as_str() {
                "leader" | "standalone" => leader = Some(i),
                _ => {}
            }
        }
        let leader = leader.ok_or_else(|| io::Error::other("nobody leads"))?;
        let others = u64::from(place.spec.nodes - 1);
        // Before the followers have what the leader has, a session may be refused.
        match others == 0 || synced(&ask(place, leader, "mntr")?) == Some(others) {
            true => Ok(()),
            false => Err(io::Error::other(format!("not all follow node {leader}"))),
        }
    }

    fn durability(&self, spec: &Spec) -> String {
        let off = spec
            .settings
            .iter()
            .any(|(k, v)| k == "forceSync" && v == "no");
        match off {
            true => "forceSync no: NOT flushed before a write is acknowledged".to_owned(),
            false => "forceSync yes: flushed before a write is acknowledged".to_owned(),
        }
    }
}

fn ask(place: &Place, i: u8, word: &str) -> io::Result<String> {
    let address = place.address(i, CLIENTS);
    let namespace = place.spec.namespace(i);
    net::within(namespace.as_deref(), || net::four_letters(address, word))?
}

/// How many followers are in step, as a leader says it.
fn synced(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("zk_synced_followers"))?;
    // A number that the server prints as a fraction in some versions.
    line.trim().split('.').next()?.parse().ok()
}

/// Whether the members may change. Then each line of them says where clients are served, too.
fn changeable(spec: &Spec) -> bool {
    spec.spares > 0
}

fn configuration(place: &Place, i: u8, members: &[u8]) -> String {
    let spec = &place.spec;
    let word = str::to_owned;
    let mut ours = vec![
        ("tickTime", word("2000")),
        ("initLimit", word("20")),
        ("syncLimit", word("10")),
        ("dataDir", place.node(i).join("data").display().to_string()),
        ("maxClientCnxns", word("0")),
        ("admin.enableServer", word("false")),
        (
            "4lw.commands.whitelist",
            word("srvr,ruok,mntr,conf,cons,stat"),
        ),
    ];
    if changeable(spec) {
        // Whoever asks may change the members, as in a laboratory.
        ours.extend([
            ("reconfigEnabled", word("true")),
            ("standaloneEnabled", word("false")),
            ("skipACL", word("yes")),
        ]);
    } else {
        ours.extend([
            ("clientPort", CLIENTS.to_string()),
            ("clientPortAddress", spec.ip(i).to_string()),
        ]);
    }
    let lines: Vec<String> = members
        .iter()
        .map(|j| Zookeeper.member(place, *j))
        .collect();
    // Alone, a server is no ensemble, unless others may come.
    if spec.nodes > 1 || changeable(spec) {
        let members = lines.iter().filter_map(|line| line.split_once('='));
        ours.extend(members.map(|(key, value)| (key, value.to_owned())));
    }
    let lines = spec.merged(&ours);
    lines
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::System;

    fn place(spec: Spec) -> Place {
        Place {
            spec,
            folder: "/run".into(),
            installed: "/nowhere".into(),
        }
    }

    #[test]
    fn the_configuration_names_all_members() {
        let spec = Spec::new(System::Zookeeper, 3).with("tickTime", "500");
        let configuration = configuration(&place(spec), 2, &[1, 2, 3]);
        let has = |line: &str| {
            assert!(
                configuration.lines().any(|l| l == line),
                "{line}\n{configuration}"
            );
        };
        has("tickTime=500");
        has("clientPortAddress=127.0.0.2");
        has("dataDir=/run/node2/data");
        has("server.3=127.0.0.3:2888:3888");
    }

    #[test]
    fn a_server_alone_is_no_ensemble() {
        let spec = Spec::new(System::Zookeeper, 1);
        assert!(!configuration(&place(spec), 1, &[1]).contains("server.1"));
    }

    #[test]
    fn where_members_may_change_their_lines_say_all() {
        let mut spec = Spec::new(System::Zookeeper, 3);
        spec.spares = 1;
        let configuration = configuration(&place(spec), 4, &[2, 4]);
        let has = |line: &str| {
            assert!(
                configuration.lines().any(|l| l == line),
                "{line}\n{configuration}"
            );
        };
        has("reconfigEnabled=true");
        has("server.2=127.0.0.2:2888:3888:participant;127.0.0.2:2181");
        has("server.4=127.0.0.1:12888:13888:participant;127.0.0.1:12181");
        assert!(!configuration.contains("clientPort"), "{configuration}");
        assert!(!configuration.contains("server.1"), "{configuration}");
    }

    #[test]
    fn followers_in_step_are_counted() {
        assert_eq!(synced("zk_followers\t2\nzk_synced_followers\t2\n"), Some(2));
        assert_eq!(synced("zk_synced_followers\t2.0"), Some(2));
        assert_eq!(synced("zk_avg_latency\t0"), None);
    }

    #[test]
    fn what_is_not_flushed_is_said() {
        let spec = Spec::new(System::Zookeeper, 1);
        assert!(Zookeeper.durability(&spec).starts_with("forceSync yes"));
        assert!(
            Zookeeper
                .durability(&spec.with("forceSync", "no"))
                .contains("NOT")
        );
    }
}
