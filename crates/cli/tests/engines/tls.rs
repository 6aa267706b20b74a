//! TLS to the stores: it is spoken where it is configured, and nothing else is.

use crate::nodes::{Nodes, address, fermata, fresh, run, says};
use fermata_peers::{Cluster, Spec, System, testable};
use fermata_server::config::{EngineConfig, EngineKind, LimitsConfig};
use fermata_tls::Name;
use fermata_tls::authority::{Authority, Made, Span};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// An authority, and what servers read of it.
struct Desk {
    folder: PathBuf,
    authority: Authority,
}

impl Desk {
    fn new(folder: PathBuf) -> Desk {
        std::fs::create_dir(&folder).expect("a folder");
        let made = Authority::make("stores", Span::lasting(DAY * 2)).expect("an authority");
        std::fs::write(folder.join("ca.pem"), &made.certificate).expect("a file");
        let authority = Authority::of(&made).expect("an authority");
        let desk = Desk { folder, authority };
        let app = Name::Client {
            cluster: 1,
            name: "fermata".into(),
        };
        let app = desk.sign(&app, &[]);
        app.store(&desk.folder, "app").expect("files");
        desk
    }

    fn sign(&self, name: &Name, hosts: &[String]) -> Made {
        let made = self.authority.sign(name, hosts, Span::lasting(DAY));
        made.expect("a certificate")
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// A server's certificate and key in one file, as servers in Java read them.
    fn store(&self, host: Ipv4Addr) -> String {
        let name = Name::Node {
            cluster: 1,
            label: "store".into(),
        };
        let made = self.sign(&name, &[host.to_string()]);
        let file = self.path(&format!("{host}.pem"));
        std::fs::write(&file, made.key + &made.certificate).expect("a file");
        file
    }

    /// A store that speaks TLS, and, to who starts it, in clear.
    fn serve(&self, system: System, host: Ipv4Addr) -> Cluster {
        let mut spec = Spec::new(system, 1);
        spec.quick = true;
        spec.base = Some(host);
        let (keys, trust) = (self.store(host), self.path("ca.pem"));
        let spec = match system {
            System::Cassandra => spec.with(
                "client_encryption_options",
                &format!(
                    "{{enabled: true, optional: true, require_client_auth: true, \
                     ssl_context_factory: {{class_name: \
                     org.apache.cassandra.security.PEMBasedSslContextFactory}}, \
                     keystore: '{keys}', truststore: '{trust}'}}"
                ),
            ),
            _ => spec
                .with(
                    "serverCnxnFactory",
                    "org.apache.zookeeper.server.NettyServerCnxnFactory",
                )
                .with("client.portUnification", "true")
                // A port for TLS alone would bring it.
                .with(
                    "authProvider.x509",
                    "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                )
                .with("ssl.keyStore.location", &keys)
                .with("ssl.trustStore.location", &trust),
        };
        Cluster::start(&spec).expect("it serves")
    }
}

fn point(cluster: &Cluster) -> String {
    cluster.endpoints()[0].to_string()
}

/// A server of Fermata that has to refuse these.
fn refused(kind: &str, points: &[String; 2], more: &[&str]) -> String {
    let own = address(96);
    let mut command = fermata();
    command.args(["server", "--engine", kind, "--contact-points", &points[0]]);
    command.args(["--allow-few-replicas", "--replication", "dc1=1"]);
    if kind != "cassandra" {
        command.args(["--zookeeper", &points[1]]);
    }
    command.args(["--engine-keyspace", &fresh("tls"), "--data-center", "dc1"]);
    command.args(["--listen-grpc", &format!("{own}:7100")]);
    command.args(["--listen-rest", &format!("{own}:7101")]);
    let Output { status, stderr, .. } = command.args(more).output().expect("it runs");
    let said = String::from_utf8(stderr).expect("text");
    let code = status.code().expect("it ends by itself");
    assert!(code == 69 || code == 2, "{code} {said}");
    said
}

async fn nodes_serve_over_tls(engine: EngineConfig) {
    let nodes = Nodes::on(engine, 2, LimitsConfig::default()).await;
    says(&nodes, &["put", "k", "v"]);
    assert_eq!(says(&nodes, &["get", "k"]), "v");
    let script = format!("{} put k w", env!("CARGO_BIN_EXE_fermata"));
    says(&nodes, &["lock", "k", "--", "sh", "-c", &script]);
    assert_eq!(says(&nodes, &["get", "k"]), "w");
    assert_eq!(run(&nodes, &["get", "none"]).status.code(), Some(1));
    // When what the stores are shown is over is known.
    let rest = crate::http::Rest(nodes.node(0).rest.clone());
    let (_, _, metrics) = rest.send("GET", "/metrics", &[], b"").await;
    let metrics = String::from_utf8(metrics).expect("text");
    let ends = "fermata_certificate_not_after_seconds{of=\"certificate for the stores\"}";
    assert!(metrics.contains(ends), "{metrics}");
}

/// With an authority that has not signed for the stores, or nothing to show, nothing goes through.
fn others_are_refused(points: &[String; 2], desk: &Desk, stranger: &Desk) {
    let own = ["--engine-tls-certificate", "--engine-tls-key"];
    let shown = |of: &Desk| [of.path("app.pem"), of.path("app.key")];
    for kind in ["cassandra", "zookeeper+cassandra"] {
        let with = |trusts: &Desk, shows: Option<&Desk>| {
            let ca = trusts.path("ca.pem");
            let mut args = vec!["--engine-tls-ca", &ca];
            let files = shows.map(shown);
            if let Some(files) = &files {
                args.extend([own[0], files[0].as_str(), own[1], files[1].as_str()]);
            }
            refused(kind, points, &args)
        };
        let said = with(stranger, Some(desk));
        assert!(
            said.contains("certificate") || said.contains("UnknownIssuer"),
            "{kind}: {said}"
        );
        for shows in [None, Some(stranger)] {
            let said = with(desk, shows);
            assert!(!said.is_empty(), "{kind}");
        }
        let said = refused(kind, points, &["--engine-tls-ca", "/no/such/file"]);
        assert!(said.contains("/no/such/file"), "{kind}: {said}");
    }
}

#[test]
fn stores_are_spoken_to_over_tls_alone() {
    if ![System::Cassandra, System::Zookeeper]
        .into_iter()
        .all(testable)
    {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let beside = |name: &str| -> PathBuf { Path::join(folder.path(), name) };
    let (desk, stranger) = (Desk::new(beside("own")), Desk::new(beside("other")));
    let (cassandra, zookeeper) = std::thread::scope(|scope| {
        let other = scope.spawn(|| desk.serve(System::Zookeeper, address(122)));
        let one = desk.serve(System::Cassandra, address(121));
        (one, other.join().expect("it serves"))
    });
    let points = [point(&cassandra), point(&zookeeper)];
    others_are_refused(&points, &desk, &stranger);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for kind in [EngineKind::Cassandra, EngineKind::ZooKeeperCassandra] {
        let engine = EngineConfig {
            kind,
            contact_points: vec![points[0].clone()],
            data_center: Some("dc1".into()),
            keyspace: fresh(&format!("tls_{}", kind as u8)),
            replication: [("dc1".into(), 1)].into(),
            allow_few_replicas: true,
            allow_paxos_v1: true,
            tls_ca: Some(desk.path("ca.pem").into()),
            tls_certificate: Some(desk.path("app.pem").into()),
            tls_key: Some(desk.path("app.key").into()),
            zookeeper: match kind {
                EngineKind::ZooKeeperCassandra => vec![points[1].clone()],
                _ => vec![],
            },
            ..EngineConfig::default()
        };
        runtime.block_on(nodes_serve_over_tls(engine));
    }
}
