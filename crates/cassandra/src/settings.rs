//! What an operator says about the Cassandra to use.

use fermata_tls::Trust;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The longest name of a keyspace that Cassandra takes.
const KEYSPACE_NAME_MAX: usize = 48;

/// Where Cassandra is and how it is to be used.
#[derive(Clone)]
pub struct Settings {
    /// Nodes to begin with, `HOST` or `HOST:PORT` (9042 if not said): one that answers is enough.
    pub contact_points: Vec<String>,
    /// The data center whose nodes are asked first: the one of this site. Empty: the only one.
    pub data_center: String,
    /// Cassandra's keyspace: lower-case letters, digits and `_`, a letter first, at most 48.
    pub keyspace: String,
    /// Replicas per data center: what the keyspace has, or is created with. Empty: whatever an
    /// existing keyspace has; none is created then.
    pub replication: BTreeMap<String, u32>,
    /// Whether keyspace and tables are created where they are absent.
    pub create_schema: bool,
    /// The role to log in as, where the servers ask for one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// With it, TLS 1.3 alone is spoken to the servers, whose certificates name the address at
    /// which each is reached.
    pub tls: Option<Trust>,
    /// Whether servers with Paxos v1 will do: every update then costs a trip more, a refused one
    /// two; and v1 is not safe while replicas of a key are added or replaced.
    pub allow_paxos_v1: bool,
    /// Whether fewer than three replicas will do: nothing survives the loss of a node then.
    pub allow_few_replicas: bool,
    /// How long to wait.
    pub timeouts: Timeouts,
}

/// How long to wait for Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection to a node.
    pub connect: Duration,
    /// For the answer to a statement. At least a second more than the servers' own
    /// `write_request_timeout` and `cas_contention_timeout`, so that it is they who give up first
    /// and say why.
    pub request: Duration,
    /// For the start-up checks as a whole, on servers that are still warming up.
    pub start: Duration,
}

impl Default for Timeouts {
    /// 5, 6 and 60 seconds.
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(6),
            start: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// Settings with nothing allowed that is off by default, schema created where it is absent.
    pub fn new(
        contact_points: impl IntoIterator<Item = impl Into<String>>,
        data_center: impl Into<String>,
        keyspace: impl Into<String>,
        replication: impl IntoIterator<Item = (impl Into<String>, u32)>,
    ) -> Settings {
        Settings {
            contact_points: contact_points.into_iter().map(Into::into).collect(),
            data_center: data_center.into(),
            keyspace: keyspace.into(),
            replication: replication
                .into_iter()
                .map(|(dc, copies)| (dc.into(), copies))
                .collect(),
            create_schema: true,
            username: None,
            password: None,
            tls: None,
            allow_paxos_v1: false,
            allow_few_replicas: false,
            timeouts: Timeouts::default(),
        }
    }

    /// Refuses what no server need be asked about.
    ///
    /// # Errors
    /// One sentence that says what to change.
    pub fn check(&self) -> Result<(), String> {
        if self.contact_points.is_empty() {
            return Err("no contact points are set: name at least one node of Cassandra".into());
        }
        let name = self.keyspace.as_bytes();
        let letters = name
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
        let begins = name.first().is_some_and(u8::is_ascii_lowercase);
        if !letters || !begins || name.len() > KEYSPACE_NAME_MAX {
            return Err(format!(
                "'{}' is no name of a keyspace that is used here: take lower-case letters, digits \
                 and _, a letter first, at most {KEYSPACE_NAME_MAX}",
                self.keyspace
            ));
        }
        if let Some((dc, _)) = self.replication.iter().find(|(_, copies)| **copies == 0) {
            return Err(format!(
                "the replication names data center '{dc}' with no replicas: leave it out, or give \
                 it at least 1"
            ));
        }
        let copies: u32 = self.replication.values().sum();
        if copies > 0 && copies < 3 && !self.allow_few_replicas {
            return Err(format!(
                "the replication asks for {copies} replicas in all, and no node of Cassandra could \
                 be lost without losing the quorum: ask for at least 3, or set allow_few_replicas"
            ));
        }
        Ok(())
    }

    /// Refuses more replicas than a data center has nodes: `centers` says how many.
    ///
    /// # Errors
    /// One sentence that says what to change.
    pub(crate) fn check_nodes(&self, centers: &BTreeMap<String, u32>) -> Result<(), String> {
        let has = |center: &str| centers.get(center).copied().unwrap_or(0);
        let mut asked = self.replication.iter();
        match asked.find(|(center, copies)| **copies > has(center)) {
            Some((center, copies)) => Err(format!(
                "the keyspace {} was not created: its replication asks for {copies} replicas in \
                 data center '{center}', which has {} nodes: ask for no more than that, or start \
                 more nodes first",
                self.keyspace,
                has(center)
            )),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("contact_points", &self.contact_points)
            .field("data_center", &self.data_center)
            .field("keyspace", &self.keyspace)
            .field("replication", &self.replication)
            .field("create_schema", &self.create_schema)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "(not shown)"))
            .field("tls", &self.tls)
            .field("allow_paxos_v1", &self.allow_paxos_v1)
            .field("allow_few_replicas", &self.allow_few_replicas)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Settings {
        Settings::new(["127.0.0.1"], "dc1", "fermata", [("dc1", 3)])
    }

    #[test]
    fn names_that_would_need_quotes_are_refused() {
        for name in ["", "Fermata", "1st", "_x", "a-b", "a\"b", &"a".repeat(49)] {
            let settings = Settings {
                keyspace: name.into(),
                ..some()
            };
            assert!(settings.check().is_err(), "{name}");
        }
        assert_eq!(some().check(), Ok(()));
    }

    #[test]
    fn few_replicas_have_to_be_allowed() {
        let few = Settings {
            replication: [("dc1".into(), 2)].into(),
            ..some()
        };
        assert!(few.check().unwrap_err().contains("allow_few_replicas"));
        assert_eq!(
            Settings {
                allow_few_replicas: true,
                ..few
            }
            .check(),
            Ok(())
        );
    }

    #[test]
    fn no_center_has_more_replicas_than_nodes() {
        let centers = [("dc1".to_owned(), 2)].into();
        let refused = some().check_nodes(&centers).unwrap_err();
        assert!(refused.contains("'dc1', which has 2 nodes"), "{refused}");
        assert_eq!(some().check_nodes(&[("dc1".into(), 3)].into()), Ok(()));
    }

    #[test]
    fn passwords_are_not_shown() {
        let secret = Settings {
            password: Some("sesame".into()),
            ..some()
        };
        assert!(!format!("{secret:?}").contains("sesame"));
    }
}
