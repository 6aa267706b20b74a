//! `[engine]`: what a node is told of an engine other than the native one.
//!
//! ```toml
//! [engine]
//! kind = "cassandra"                   # or "zookeeper+cassandra"; absent: native
//! contact_points = ["10.0.0.1:9042"]   # port 9042 where none is said
//! data_center = "ohio"                 # the local one, of eventual reads and writes
//! keyspace = "fermata"                 # of Cassandra: where all tables are
//! replication = { ohio = 1, oregon = 1, california = 1 }   # when the keyspace is created
//! username = "fermata"
//! password_file = "secret"             # or password; relative to the node's file
//! tls_ca = "stores.pem"                # TLS to the stores; so are these
//! tls_certificate = "node.pem"         # what the node shows them, and its key
//! tls_key = "node.key"
//! verify = true
//! unverified = ["caches"]
//! allow_paxos_v1 = false
//! allow_few_replicas = false
//! zookeeper = ["10.0.0.1:2181"]        # port 2181 where none is said
//! ```
//!
//! The engine checks when it connects what it takes the stores to know (whether there is such a
//! data center, which Paxos they run); here only what is wrong in itself.

use super::ServerConfig;
use fermata_tls::Files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Cassandra's port for clients.
const CASSANDRA_PORT: u16 = 9042;
/// `ZooKeeper`'s port for clients.
const ZOOKEEPER_PORT: u16 = 2181;

/// Which engine a node runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// Fermata's own logs and registers.
    #[default]
    #[serde(rename = "native")]
    Native,
    /// Locks and data in Cassandra.
    #[serde(rename = "cassandra")]
    Cassandra,
    /// Locks in `ZooKeeper`, data in Cassandra.
    #[serde(rename = "zookeeper+cassandra")]
    ZooKeeperCassandra,
}

impl EngineKind {
    /// All, as configurations spell them.
    pub const NAMES: [&str; 3] = ["native", "cassandra", "zookeeper+cassandra"];

    /// As configurations spell it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A password; it is neither shown nor written.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The table `[engine]`. Every field has a default; an engine other than the native one needs
/// `contact_points`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Which engine.
    pub kind: EngineKind,
    /// Some nodes of Cassandra, `host:port`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contact_points: Vec<String>,
    /// The data center nearest to this node; none: that of the first contact point that answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_center: Option<String>,
    /// Cassandra's keyspace in which the engine has its tables.
    pub keyspace: String,
    /// Copies by data center, for the keyspace where it is created; empty: it must be there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replication: BTreeMap<String, u8>,
    /// Who connects; none: no authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Its password. Once resolved it is here, wherever it came from.
    #[serde(skip_serializing)]
    pub password: Option<Secret>,
    /// A file with the password, but for a line end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Certificates of the authorities by which the stores are judged, PEM. With it they are spoken
    /// to over TLS alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    /// The certificate that they are shown, PEM; none: they ask for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Whether a critical put is acknowledged only after a look at the lock showed that its holder
    /// still holds it. Without that look, a put of a holder that was taken for dead may be
    /// acknowledged and lost (fault F1): the paper's price and the paper's guarantee.
    pub verify: bool,
    /// Keyspaces of Fermata that get no such look although the others do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
    /// Take a Cassandra whose lightweight transactions are Paxos v1: correct, and slower.
    pub allow_paxos_v1: bool,
    /// Take fewer than three copies: no node of Cassandra may be down then.
    pub allow_few_replicas: bool,
    /// Some servers of `ZooKeeper`, `host:port`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zookeeper: Vec<String>,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            kind: EngineKind::Native,
            contact_points: vec![],
            data_center: None,
            keyspace: "fermata".into(),
            replication: BTreeMap::new(),
            username: None,
            password: None,
            password_file: None,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            verify: true,
            unverified: vec![],
            allow_paxos_v1: false,
            allow_few_replicas: false,
            zookeeper: vec![],
        }
    }
}

impl EngineConfig {
    /// Whether nothing is said, or `native` alone.
    pub fn is_default(&self) -> bool {
        *self == EngineConfig::default()
    }

    /// Checks it, and reads the password's file: none for the native engine.
    pub(super) fn resolve(&self) -> Result<Option<EngineConfig>, String> {
        if self.kind == EngineKind::Native {
            return if self.is_default() {
                Ok(None)
            } else {
                Err(
                    "engine.kind is missing, or native, which has no settings: say cassandra or \
                     zookeeper+cassandra, or leave out all else of [engine]"
                        .into(),
                )
            };
        }
        let mut resolved = self.clone();
        resolved.contact_points = hosts(&self.contact_points, "contact_points", CASSANDRA_PORT)?;
        resolved.zookeeper = match self.kind {
            EngineKind::ZooKeeperCassandra => hosts(&self.zookeeper, "zookeeper", ZOOKEEPER_PORT)?,
            _ if self.zookeeper.is_empty() => vec![],
            _ => {
                return Err(
                    "engine.zookeeper is given, but engine.kind is cassandra, which keeps the \
                     locks, too: say zookeeper+cassandra, or leave it out"
                        .into(),
                );
            }
        };
        self.check_names()?;
        self.tls()?;
        resolved.password = self.secret()?;
        resolved.password_file = None;
        Ok(Some(resolved))
    }

    /// The files that are named.
    pub fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let tls = [
            &mut self.tls_ca,
            &mut self.tls_certificate,
            &mut self.tls_key,
        ];
        [&mut self.password_file].into_iter().chain(tls).flatten()
    }

    /// Where the certificates are for talking to the stores; none: in clear.
    ///
    /// # Errors
    /// One sentence: some are missing.
    pub fn tls(&self) -> Result<Option<Files>, String> {
        let own = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            _ => {
                return Err(
                    "engine.tls_certificate and engine.tls_key go together: give both, or none"
                        .into(),
                );
            }
        };
        match (&self.tls_ca, own) {
            (Some(ca), own) => Ok(Some(Files {
                ca: ca.clone(),
                own,
            })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(
                "engine.tls_certificate is given without engine.tls_ca: name \
                                    the authorities by which the stores are judged"
                    .into(),
            ),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if !self
            .keyspace
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_lowercase)
            || !self.keyspace.bytes().all(plain)
            || self.keyspace.len() > 48
        {
            return Err(format!(
                "engine.keyspace {:?} is not a name of 1 to 48 small letters, digits and _ that \
                 begins with a letter",
                self.keyspace
            ));
        }
        if self.keyspace.starts_with("system") {
            return Err(format!(
                "engine.keyspace {:?} is a name of Cassandra's own: choose one that does not begin \
                 with system",
                self.keyspace
            ));
        }
        let copies = self.replication.iter();
        if let Some((center, _)) = copies.clone().find(|(name, n)| name.is_empty() || **n == 0) {
            return Err(format!(
                "engine.replication gives data center {center:?} no copy or no name: leave it out"
            ));
        }
        if let Some(center) = &self.data_center
            && (center.is_empty()
                || !copies
                    .clone()
                    .all(|_| self.replication.contains_key(center)))
        {
            return Err(format!(
                "engine.data_center {center:?} is empty, or has no copies in engine.replication: \
                 name one that has"
            ));
        }
        if !self.verify && !self.unverified.is_empty() {
            return Err(
                "engine.verify is false, so that no keyspace is verified: leave \
                 engine.unverified out"
                    .into(),
            );
        }
        if self.unverified.iter().any(String::is_empty) {
            return Err("engine.unverified has an empty name: leave it out".into());
        }
        Ok(())
    }

    /// The password, from where it is.
    fn secret(&self) -> Result<Option<Secret>, String> {
        let secret = match (&self.password, &self.password_file) {
            (None, None) => None,
            (Some(secret), None) => Some(secret.clone()),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|e| {
                    format!("cannot read engine.password_file {}: {e}", path.display())
                })?;
                Some(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            (Some(_), Some(_)) => {
                return Err(
                    "engine.password and engine.password_file are both given: leave one out".into(),
                );
            }
        };
        match (&self.username, &secret) {
            (Some(_), None) => Err("engine.username is given without a password: give \
                                    engine.password_file or FERMATA_ENGINE_PASSWORD"
                .into()),
            (None, Some(_)) => Err("a password is given without engine.username: give both".into()),
            _ => Ok(secret),
        }
    }
}

/// `host:port` each, the port completed.
fn hosts(given: &[String], field: &str, port: u16) -> Result<Vec<String>, String> {
    if given.is_empty() {
        return Err(format!(
            "engine.{field} is missing: name at least one server, host:port"
        ));
    }
    let whole = |host: &String| match host.rsplit_once(':') {
        _ if host.contains(|c: char| c.is_whitespace() || c == '/' || c == ',') => None,
        // An address of IPv6 has brackets where a port follows.
        _ if host.starts_with('[') && host.ends_with(']') => Some(format!("{host}:{port}")),
        None if !host.is_empty() => Some(format!("{host}:{port}")),
        Some((name, port)) => {
            let bare = !name.is_empty() && (!name.contains(':') || name.ends_with(']'));
            (bare && port.parse().is_ok_and(|port: u16| port > 0)).then(|| host.clone())
        }
        None => None,
    };
    let wrong = |host: &String| format!("engine.{field}: {host:?} is not host:port");
    let whole = |host| whole(host).ok_or_else(|| wrong(host));
    given.iter().map(whole).collect()
}

impl ServerConfig {
    /// The cluster of a node that was told of an engine and of no cluster: itself, at the site of
    /// its data center, where clients look that were told of no address.
    pub(super) fn alone(&self) -> Result<super::ClusterConfig, String> {
        let given = |listen: &Option<String>, default: &str| {
            let address = listen.clone().unwrap_or_else(|| default.to_owned());
            if self.listen_address(&address)?.ip().is_unspecified() {
                return Err(format!(
                    "clients would be told to connect to {address}: give a cluster (cluster_file) \
                     with the address at which they reach this node"
                ));
            }
            Ok(address)
        };
        let site = self.engine.data_center.clone();
        let site = site.unwrap_or_else(|| "local".into());
        let label = if self.node.is_empty() {
            "fermata"
        } else {
            self.node.as_str()
        };
        Ok(super::ClusterConfig {
            id: format!("{:032x}", 1),
            segment_bits: super::default_bits(),
            lowest_ref: 1,
            sites: vec![site.clone()],
            nodes: vec![super::NodeConfig {
                name: 1,
                label: label.to_owned(),
                site,
                peer: String::new(),
                grpc: given(&self.listen_grpc, "127.0.0.1:7100")?,
                rest: given(&self.listen_rest, "127.0.0.1:7101")?,
            }],
            groups: vec![],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Resolved;
    use super::*;

    fn config(engine: &str) -> ServerConfig {
        toml::from_str(&format!("[engine]\n{engine}")).unwrap()
    }

    const PLAIN: &str = "kind = \"cassandra\"\ncontact_points = [\"db\"]\n";

    fn resolve(more: &str) -> Result<Resolved, String> {
        config(&format!("{PLAIN}{more}")).resolve()
    }

    #[test]
    fn an_engine_and_where_it_is_are_enough() {
        let resolved = resolve("").unwrap();
        let engine = resolved.engine.unwrap();
        assert_eq!(engine.contact_points, ["db:9042"]);
        assert!(engine.verify && engine.keyspace == "fermata");
        assert_eq!(resolved.config.cluster.sites, ["local"]);
        assert_eq!(resolved.listen_peer, None);
        assert_eq!(resolved.nodes[0].grpc, "127.0.0.1:7100");
        assert_eq!(resolved.listen_rest.port(), 7101);
        let resolved = resolve("data_center = \"ohio\"").unwrap();
        assert_eq!(resolved.config.cluster.sites, ["ohio"]);
    }

    #[test]
    fn a_file_says_what_the_struct_says_but_for_the_password() {
        let mut told = config(
            "kind = \"zookeeper+cassandra\"\ncontact_points = [\"a:1\", \"[::1]\"]\n\
             zookeeper = [\"z\"]\nreplication = { a = 3 }\nusername = \"u\"\npassword = \"hidden\"",
        );
        let text = toml::to_string(&told).unwrap();
        let shown = format!("{told:?} {:?} {text}", told.resolve().unwrap());
        assert!(!shown.contains("hidden"), "{shown}");
        let resolved = told.resolve().unwrap().engine.unwrap();
        assert_eq!(resolved.contact_points, ["a:1", "[::1]:9042"]);
        assert_eq!(resolved.zookeeper, ["z:2181"]);
        told.engine.password = None;
        assert_eq!(toml::from_str::<ServerConfig>(&text).unwrap(), told);
    }

    #[test]
    fn a_password_comes_from_a_file_beside_the_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.toml");
        let text = format!("[engine]\n{PLAIN}username = \"u\"\npassword_file = \"secret\"");
        std::fs::write(&path, text).unwrap();
        let config = ServerConfig::load(&path).unwrap();
        let error = config.resolve().unwrap_err();
        assert!(error.contains("password_file"), "{error}");
        std::fs::write(folder.path().join("secret"), "s3\n").unwrap();
        let engine = config.resolve().unwrap().engine.unwrap();
        assert_eq!(engine.password, Some(Secret("s3".into())));
        assert_eq!(engine.password_file, None);
    }

    fn is_told(refused: Result<Resolved, String>, word: &str) {
        let error = refused.unwrap_err();
        assert!(
            error.contains(word) && !error.contains('\n'),
            "{word}: {error}"
        );
    }

    #[test]
    fn what_is_wrong_with_an_engine_is_said_in_one_line() {
        for (engine, word) in [
            ("contact_points = [\"db\"]", "engine.kind"),
            ("kind = \"cassandra\"", "contact_points is missing"),
            (
                "kind = \"zookeeper+cassandra\"\ncontact_points = [\"db\"]",
                "zookeeper is missing",
            ),
            (
                "kind = \"cassandra\"\ncontact_points = [\"db:0\"]",
                "host:port",
            ),
            (
                "kind = \"cassandra\"\ncontact_points = [\"::1\"]",
                "host:port",
            ),
            ("kind = \"cassandra\"\ncontact_points = [\"\"]", "host:port"),
            (
                "kind = \"cassandra\"\ncontact_points = [\"a b:1\"]",
                "host:port",
            ),
        ] {
            is_told(config(engine).resolve(), word);
        }
        for (more, word) in [
            ("zookeeper = [\"z\"]", "keeps the locks, too"),
            ("keyspace = \"Fermata\"", "engine.keyspace"),
            ("keyspace = \"1st\"", "engine.keyspace"),
            ("keyspace = \"\"", "engine.keyspace"),
            ("keyspace = \"system_auth\"", "Cassandra's own"),
            ("replication = { ohio = 0 }", "no copy"),
            (
                "data_center = \"a\"\nreplication = { b = 3 }",
                "no copies in",
            ),
            ("data_center = \"\"", "is empty"),
            ("verify = false\nunverified = [\"k\"]", "engine.verify"),
            ("unverified = [\"\"]", "empty name"),
            ("username = \"u\"", "without a password"),
            ("password = \"p\"", "without engine.username"),
            ("password = \"p\"\npassword_file = \"f\"", "both given"),
            ("tls_certificate = \"c\"", "go together"),
            ("tls_ca = \"a\"\ntls_key = \"k\"", "go together"),
            (
                "tls_certificate = \"c\"\ntls_key = \"k\"",
                "without engine.tls_ca",
            ),
            (
                "password_file = \"/does/not/exist\"\nusername = \"u\"",
                "cannot read",
            ),
        ] {
            is_told(resolve(more), word);
        }
    }

    #[test]
    fn what_does_not_fit_an_engine_is_said_in_one_line() {
        type Spoil = fn(&mut ServerConfig);
        let spoils: [(&str, Spoil); 6] = [
            ("nothing on its own disk", |c| c.data_dir = "d".into()),
            ("delays messages", |c| c.rtt = "lUs".into()),
            ("clients would be told", |c| {
                c.insecure = true;
                c.listen_grpc = Some("0.0.0.0:7201".into());
            }),
            ("--insecure", |c| c.listen_rest = Some("0.0.0.0:1".into())),
            ("node is missing", |c| c.engine = EngineConfig::default()),
            ("data_dir is missing", |c| {
                c.engine = EngineConfig::default();
                c.node = "1".into();
            }),
        ];
        for (word, spoil) in spoils {
            let mut config = config(PLAIN);
            spoil(&mut config);
            is_told(config.resolve(), word);
        }
        let unknown = toml::from_str::<ServerConfig>("[engine]\nkind = \"dynamo\"");
        assert!(
            unknown
                .unwrap_err()
                .to_string()
                .contains("zookeeper+cassandra")
        );
    }
}
