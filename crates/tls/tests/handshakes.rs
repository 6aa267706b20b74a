//! Handshakes between nodes and clients with all kinds of certificates: who gets through, and what
//! both are told.

use fermata_tls::authority::{Authority, Made, Span};
use fermata_tls::rustls::pki_types::ServerName;
use fermata_tls::rustls::{ClientConfig, ServerConfig};
use fermata_tls::{Admits, Files, Keeper, Name, Own, Trust, why};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const DAY: Duration = Duration::from_secs(86_400);
const CLUSTER: u128 = 7;

fn node(cluster: u128, label: &str) -> Name {
    let label = label.to_owned();
    Name::Node { cluster, label }
}

fn client(name: &str) -> Name {
    client_of(CLUSTER, name)
}

fn client_of(cluster: u128, name: &str) -> Name {
    let name = name.to_owned();
    Name::Client { cluster, name }
}

fn days(from: i64, until: i64) -> Span {
    let at = |days: i64| match days < 0 {
        true => SystemTime::now() - DAY * days.unsigned_abs() as u32,
        false => SystemTime::now() + DAY * days as u32,
    };
    Span {
        from: at(from),
        until: at(until),
    }
}

/// A directory with an authority, and what it has signed.
struct Desk {
    dir: tempfile::TempDir,
    authority: Authority,
}

impl Desk {
    fn new() -> Desk {
        let made = Authority::make("test", days(-1, 100)).unwrap();
        let desk = Desk {
            dir: tempfile::tempdir().unwrap(),
            authority: Authority::of(&made).unwrap(),
        };
        desk.write("ca", &made);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, made: &Made) {
        made.store(self.dir.path(), name).unwrap();
    }

    fn sign(&self, file: &str, name: &Name, span: Span) {
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let hosts = match name {
            Name::Node { .. } => &hosts[..],
            Name::Client { .. } => &[],
        };
        self.write(file, &self.authority.sign(name, hosts, span).unwrap());
    }

    fn files(&self, file: &str) -> Files {
        let own = (
            self.path(&format!("{file}.pem")),
            self.path(&format!("{file}.key")),
        );
        Files {
            ca: self.path("ca.pem"),
            own: Some(own),
        }
    }

    fn keeper(&self, file: &str, label: &str) -> Keeper {
        keeper(self.files(file), CLUSTER, label, Admits::Certified).unwrap()
    }

    fn trust(&self, file: &str) -> Arc<ClientConfig> {
        Trust::read(self.files(file)).unwrap().config()
    }
}

fn keeper(files: Files, cluster: u128, label: &str, admits: Admits) -> Result<Keeper, String> {
    let label = label.to_owned();
    Keeper::read(files, Own { cluster, label }, admits)
}

/// What each end says in the end: none where all went well.
type Said = Option<String>;

fn said(result: std::io::Result<()>) -> Said {
    let error = result.err()?;
    Some(why(&error).unwrap_or_else(|| error.to_string()))
}

/// Both shake hands and say a word.
async fn meet(server: Arc<ServerConfig>, client: Arc<ClientConfig>, host: &str) -> (Said, Said) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let serves = async {
        let mut stream = TlsAcceptor::from(server).accept(far).await?;
        stream.write_all(b"s").await?;
        stream.flush().await?;
        stream.read_u8().await.map(drop)
    };
    let connects = async {
        let mut stream = TlsConnector::from(client).connect(host, near).await?;
        stream.write_all(b"c").await?;
        stream.flush().await?;
        stream.read_u8().await.map(drop)
    };
    let (served, connected) = tokio::join!(serves, connects);
    (said(served), said(connected))
}

fn assert_said(said: &Said, word: &str) {
    let said = said.as_deref().unwrap_or("all is well");
    assert!(
        said.contains(word) && !said.contains('\n'),
        "{word}: {said}"
    );
}

#[tokio::test]
async fn nodes_of_one_cluster_meet_wherever_they_are_reached() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    desk.sign("b", &node(CLUSTER, "b"), days(-1, 1));
    let (a, b) = (desk.keeper("a", "a"), desk.keeper("b", "b"));
    let met = meet(a.peers(), b.to_peers(), "10.0.0.1").await;
    assert_eq!(met, (None, None));
    let met = meet(a.faces(), b.to_faces(), "elsewhere").await;
    assert_eq!(met, (None, None));
}

#[tokio::test]
async fn only_nodes_of_the_cluster_are_peers() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    desk.sign("foreign", &node(8, "a"), days(-1, 1));
    desk.sign("app", &client("app"), days(-1, 1));
    let a = desk.keeper("a", "a");
    let foreign = keeper(desk.files("foreign"), 8, "a", Admits::Certified).unwrap();
    let (served, connected) = meet(a.peers(), foreign.to_peers(), "x").await;
    assert_said(&served, "refuses this end");
    assert_said(&connected, "another cluster");
    let (served, connected) = meet(foreign.peers(), a.to_peers(), "x").await;
    assert!(served.is_some());
    assert_said(&connected, "another cluster");
    // It does not look at whom it meets.
    let mut blind = (*desk.trust("foreign")).clone();
    blind.alpn_protocols = vec![fermata_tls::PEERS_PROTOCOL.to_vec()];
    let (served, connected) = meet(a.peers(), Arc::new(blind), "localhost").await;
    assert_said(&served, "another cluster");
    assert_said(&connected, "refuses this end's certificate");
    // A client that says what peers say.
    let mut app = (*desk.trust("app")).clone();
    app.alpn_protocols = vec![fermata_tls::PEERS_PROTOCOL.to_vec()];
    let (served, connected) = meet(a.peers(), Arc::new(app), "localhost").await;
    assert_said(&served, "and no node");
    assert_said(&connected, "refuses this end's certificate");
    // What clients say is nothing for this port.
    let mut plain = (*a.to_peers()).clone();
    plain.alpn_protocols = vec![b"h2".to_vec()];
    let (served, connected) = meet(a.peers(), Arc::new(plain), "x").await;
    assert_said(&served, "the protocol of this port");
    assert_said(&connected, "protocol at that port");
}

#[tokio::test]
async fn clients_know_a_node_by_its_host_and_show_a_certificate_or_need_not() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    desk.sign("app", &client("app"), days(-1, 1));
    let a = desk.keeper("a", "a");
    let app = desk.trust("app");
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(meet(a.faces(), app.clone(), host).await, (None, None));
    }
    // Where gRPC alone is served nobody speaks an older HTTP.
    let mut older = (*app).clone();
    older.alpn_protocols = vec![b"http/1.1".to_vec()];
    let older = Arc::new(older);
    assert_eq!(
        meet(a.faces(), older.clone(), "localhost").await,
        (None, None)
    );
    let (served, connected) = meet(a.grpc(), older, "localhost").await;
    assert_said(&served, "the protocol of this port");
    assert_said(&connected, "protocol at that port");
    let (served, connected) = meet(a.faces(), app, "elsewhere").await;
    assert_said(&connected, "another host");
    assert!(served.is_some());
    let nobody = Files {
        own: None,
        ..desk.files("a")
    };
    let nobody = Trust::read(nobody).unwrap().config();
    let (served, connected) = meet(a.faces(), nobody.clone(), "localhost").await;
    assert_said(&served, "shows no certificate");
    assert_said(&connected, "asks for a certificate");
    // One authority may have several clusters.
    for name in [node(8, "a"), client_of(8, "app")] {
        desk.sign("foreign", &name, days(-1, 1));
        let (served, connected) = meet(a.faces(), desk.trust("foreign"), "localhost").await;
        assert_said(&served, "of another cluster");
        assert_said(&connected, "refuses this end's certificate");
    }
    let open = keeper(desk.files("a"), CLUSTER, "a", Admits::Anybody).unwrap();
    let met = meet(open.faces(), nobody, "localhost").await;
    assert_eq!(met, (None, None));
}

#[tokio::test]
async fn certificates_that_are_over_or_not_yet_valid_or_of_others_are_refused() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    let a = desk.keeper("a", "a");
    desk.sign("over", &client("app"), days(-3, -1));
    desk.sign("early", &client("app"), days(1, 3));
    for (file, ours, theirs) in [
        ("over", "expired", "expired"),
        ("early", "not valid yet", "not valid yet"),
    ] {
        let (served, connected) = meet(a.faces(), desk.trust(file), "localhost").await;
        assert_said(&served, ours);
        assert_said(&connected, theirs);
    }
    let other = Desk::new();
    other.sign("app", &client("app"), days(-1, 1));
    // It trusts this authority, and shows what another one has signed.
    std::fs::copy(desk.path("ca.pem"), other.path("ca.pem")).unwrap();
    let (served, connected) = meet(a.faces(), other.trust("app"), "localhost").await;
    assert_said(&served, "authority that is not trusted");
    assert_said(&connected, "not trust the authority");
    // It does not trust this authority.
    let made = Authority::make("yet another", days(-1, 1)).unwrap();
    other.write("ca", &made);
    let (_, connected) = meet(a.faces(), other.trust("app"), "localhost").await;
    assert_said(&connected, "authority that is not trusted");
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_so() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    let a = desk.keeper("a", "a");
    let (mut near, far) = tokio::io::duplex(64 << 10);
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let accepted = TlsAcceptor::from(a.faces()).accept(far).await;
    assert_said(&said(accepted.map(drop)), "does not speak TLS");
}

#[test]
fn a_node_that_others_would_not_take_does_not_start() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    desk.sign("over", &node(CLUSTER, "a"), days(-3, -1));
    desk.sign("app", &client("app"), days(-1, 1));
    let other = Desk::new();
    other.sign("a", &node(CLUSTER, "a"), days(-1, 1));
    std::fs::copy(desk.path("ca.pem"), other.path("ca.pem")).unwrap();
    std::fs::copy(desk.path("a.pem"), desk.path("mixed.pem")).unwrap();
    std::fs::copy(desk.path("app.key"), desk.path("mixed.key")).unwrap();
    std::fs::write(desk.path("empty.pem"), "").unwrap();
    std::fs::create_dir(desk.path("folder.pem")).unwrap();
    std::fs::copy(desk.path("a.key"), desk.path("empty.key")).unwrap();
    let start = |files: Files, label: &str| {
        let kept = keeper(files, CLUSTER, label, Admits::Certified);
        Some(kept.expect_err("it is refused"))
    };
    for (said, word) in [
        (start(desk.files("a"), "b"), "and this node is"),
        (start(desk.files("app"), "a"), "and this node is"),
        (start(desk.files("over"), "a"), "expired"),
        (start(other.files("a"), "a"), "not trusted"),
        (
            start(desk.files("mixed"), "a"),
            "not that of the certificate",
        ),
        (start(desk.files("empty"), "a"), "no certificate in it"),
        (start(desk.files("nothing"), "a"), "cannot read"),
        (start(desk.files("folder"), "a"), "no regular file"),
    ] {
        assert_said(&said, word);
    }
    let leaf = Files {
        ca: desk.path("a.pem"),
        ..desk.files("a")
    };
    assert_said(&start(leaf, "a"), "none of an authority");
}

#[tokio::test]
async fn files_are_taken_as_they_change_and_not_where_they_are_of_no_use() {
    let desk = Desk::new();
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 2));
    desk.sign("b", &node(CLUSTER, "b"), days(-1, 9));
    let (a, b) = (desk.keeper("a", "a"), desk.keeper("b", "b"));
    assert_eq!(a.reread(), Ok(false));
    let day = DAY.as_secs() as i64;
    let left = |keeper: &Keeper| (keeper.endings()[0].left() + day / 2) / day;
    assert_eq!(left(&a), 2);
    std::fs::write(desk.path("a.pem"), "half of a").unwrap();
    assert!(a.reread().is_err());
    assert!(a.reread().is_err(), "it is said at each look");
    assert_eq!(meet(a.peers(), b.to_peers(), "x").await, (None, None));
    desk.sign("a", &node(CLUSTER, "a"), days(-1, 5));
    assert_eq!(a.reread(), Ok(true));
    assert_eq!(left(&a), 5);
    assert_eq!(meet(a.peers(), b.to_peers(), "x").await, (None, None));
}

/// First everybody trusts both, then shows what the new one has signed, then trusts that alone: at
/// no step are there two who do not meet.
#[tokio::test]
async fn an_authority_is_replaced_without_a_stop() {
    let (desk, next) = (Desk::new(), Desk::new());
    let both = |authorities: &[&Path]| {
        let read = authorities.iter().map(std::fs::read_to_string);
        read.collect::<Result<Vec<_>, _>>().unwrap().concat()
    };
    for label in ["a", "b"] {
        desk.sign(label, &node(CLUSTER, label), days(-1, 1));
    }
    // Each node has its own copy of whom it trusts.
    let own = |label: &str| Files {
        ca: desk.path(&format!("{label}-ca.pem")),
        ..desk.files(label)
    };
    for label in ["a", "b"] {
        std::fs::copy(desk.path("ca.pem"), own(label).ca).unwrap();
    }
    let (old, new) = (desk.path("ca.pem"), next.path("ca.pem"));
    let keep = |label| keeper(own(label), CLUSTER, label, Admits::Certified).unwrap();
    let (a, b) = (keep("a"), keep("b"));
    let step = async |keeper: &Keeper| {
        assert_eq!(keeper.reread(), Ok(true));
        assert_eq!(meet(a.peers(), b.to_peers(), "x").await, (None, None));
        assert_eq!(meet(b.peers(), a.to_peers(), "x").await, (None, None));
    };
    for (label, keeper) in [("a", &a), ("b", &b)] {
        std::fs::write(own(label).ca, both(&[&old, &new])).unwrap();
        step(keeper).await;
    }
    for (label, keeper) in [("a", &a), ("b", &b)] {
        let made = next
            .authority
            .sign(&node(CLUSTER, label), &[], days(-1, 1))
            .unwrap();
        desk.write(label, &made);
        step(keeper).await;
    }
    for (label, keeper) in [("a", &a), ("b", &b)] {
        std::fs::write(own(label).ca, both(&[&new])).unwrap();
        step(keeper).await;
    }
}

/// A library that takes one configuration for its life: what it shows, and whom it believes, is
/// what the files say by then.
#[tokio::test]
async fn one_configuration_follows_the_files() {
    let (old, new) = (Desk::new(), Desk::new());
    for desk in [&old, &new] {
        desk.sign("a", &node(CLUSTER, "a"), days(-1, 1));
        desk.sign("app", &client("app"), days(-1, 1));
    }
    let follows = Trust::read(old.files("app")).unwrap().following();
    let served = |desk: &Desk| desk.keeper("a", "a").faces();
    let meets = async |desk: &Desk| meet(served(desk), follows.clone(), "127.0.0.1").await;
    assert_eq!(meets(&old).await, (None, None));
    let (_, refused) = meets(&new).await;
    assert_said(&refused, "authority");
    let elsewhere = meet(served(&old), follows.clone(), "elsewhere").await;
    assert!(elsewhere.1.is_some(), "a host that the certificate lacks");
    for file in ["ca.pem", "app.pem", "app.key"] {
        std::fs::copy(new.path(file), old.path(file)).unwrap();
    }
    let alone = new;
    while meets(&alone).await != (None, None) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn a_key_is_readable_for_its_owner_alone_also_where_it_replaces_one() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    std::fs::write(desk.path("app.key"), "readable").unwrap();
    std::fs::write(desk.path("app.key.new"), "left by somebody").unwrap();
    desk.sign("app", &client("app"), days(-1, 1));
    let mode = |file| {
        let found = std::fs::metadata(desk.path(file)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("app.key"), mode("ca.key")), (0o600, 0o600));
    desk.trust("app");
}

#[test]
fn an_authority_signs_for_no_longer_than_it_lives_and_has_its_own_key() {
    let made = Authority::make("short", days(-1, 2)).unwrap();
    let authority = Authority::of(&made).unwrap();
    let signed = authority.sign(&client("app"), &[], days(-1, 3));
    assert!(signed.err().unwrap().contains("longer"));
    let other = Authority::make("other", days(-1, 2)).unwrap();
    let mixed = Made {
        key: other.key,
        ..made.clone()
    };
    let mixed = Authority::of(&mixed).err().unwrap();
    assert!(mixed.contains("not that of the certificate"), "{mixed}");
    let leaf = authority.sign(&client("app"), &[], days(-1, 1)).unwrap();
    assert!(
        Authority::of(&leaf)
            .err()
            .unwrap()
            .contains("none of an authority")
    );
}
