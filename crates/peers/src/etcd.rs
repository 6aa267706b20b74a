//! etcd: command and readiness.
//!
//! It flushes its log before it acknowledges a write, unless `unsafe-no-fsync` is set.

use std::io;

use crate::cluster::{Place, Server};
use crate::net;
use crate::spec::Spec;

/// What is installed.
pub(crate) const VERSION: &str = "3.7.3";

const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

/// etcd.
pub(crate) struct Etcd;

impl Server for Etcd {
    fn ports(&self) -> &'static [u16] {
        &[CLIENTS, PEERS]
    }

    fn files(&self, _: &Place, _: u8, _: &[u8]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn command(&self, place: &Place, i: u8, members: &[u8]) -> io::Result<Vec<String>> {
        let spec = &place.spec;
        let url = |port: u16| format!("http://{}", place.address(i, port));
        let members: Vec<String> = members.iter().map(|j| self.member(place, *j)).collect();
        let state = if i > spec.nodes { "existing" } else { "new" };
        let word = str::to_owned;
        let ours = [
            ("name", format!("n{i}")),
            ("data-dir", place.node(i).join("data").display().to_string()),
            ("listen-client-urls", url(CLIENTS)),
            ("advertise-client-urls", url(CLIENTS)),
            ("listen-peer-urls", url(PEERS)),
            ("initial-advertise-peer-urls", url(PEERS)),
            ("initial-cluster", members.join(",")),
            ("initial-cluster-state", word(state)),
            ("initial-cluster-token", word("peers")),
            ("log-level", word("warn")),
            ("quota-backend-bytes", (8_u64 << 30).to_string()),
        ];
        let flags = spec.merged(&ours);
        let mut command = vec![place.installed.join("etcd").display().to_string()];
        command.extend(flags.iter().map(|(key, value)| format!("--{key}={value}")));
        Ok(command)
    }

    fn member(&self, place: &Place, i: u8) -> String {
        format!("n{i}=http://{}", place.address(i, PEERS))
    }

    fn serves(&self, place: &Place, i: u8) -> io::Result<String> {
        let address = place.address(i, CLIENTS);
        let namespace = place.spec.namespace(i);
        // The server answers this with a read that a quorum confirms.
        let said = net::within(namespace.as_deref(), || net::get(address, "/health"))??;
        match said.contains("\"health\":\"true\"") {
            true => Ok("healthy".to_owned()),
            false => Err(io::Error::other(format!("node {i} says `{}`", said.trim()))),
        }
    }

    fn together(&self, place: &Place) -> io::Result<()> {
        place
            .spec
            .numbers()
            .try_for_each(|i| self.serves(place, i).map(drop))
    }

    fn durability(&self, spec: &Spec) -> String {
        let off = |(k, v): &(String, String)| k == "unsafe-no-fsync" && v != "false";
        match spec.settings.iter().any(off) {
            true => "unsafe-no-fsync: NOT flushed before a write is acknowledged".to_owned(),
            false => "flushed before a write is acknowledged".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::System;

    #[test]
    fn the_command_names_all_members_and_the_settings() {
        let spec = Spec::new(System::Etcd, 2).with("heartbeat-interval", "200");
        let place = Place {
            spec: spec.with("log-level", "info"),
            folder: "/run".into(),
            installed: "/etcd".into(),
        };
        let command = Etcd.command(&place, 2, &[1, 2]).expect("no file is read");
        let has = |flag: &str| assert!(command.iter().any(|f| f == flag), "{flag}: {command:?}");
        assert_eq!(command[0], "/etcd/etcd");
        has("--initial-cluster=n1=http://127.0.0.1:2380,n2=http://127.0.0.2:2380");
        has("--listen-client-urls=http://127.0.0.2:2379");
        has("--heartbeat-interval=200");
        has("--log-level=info");
    }

    #[test]
    fn a_spare_joins_the_members_that_there_are() {
        let mut spec = Spec::new(System::Etcd, 3);
        spec.spares = 1;
        let place = Place {
            spec,
            folder: "/run".into(),
            installed: "/etcd".into(),
        };
        let command = Etcd.command(&place, 4, &[1, 3, 4]);
        let command = command.expect("no file is read");
        let has = |flag: &str| assert!(command.iter().any(|f| f == flag), "{flag}: {command:?}");
        has("--initial-cluster-state=existing");
        has(
            "--initial-cluster=n1=http://127.0.0.1:2380,n3=http://127.0.0.3:2380,\
             n4=http://127.0.0.1:12380",
        );
        has("--listen-client-urls=http://127.0.0.1:12379");
    }

    #[test]
    fn what_is_not_flushed_is_said() {
        let spec = Spec::new(System::Etcd, 1);
        assert!(!Etcd.durability(&spec).contains("NOT"));
        assert!(
            Etcd.durability(&spec.with("unsafe-no-fsync", "true"))
                .contains("NOT")
        );
    }
}
