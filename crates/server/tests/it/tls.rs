//! Nodes that speak TLS: to whom, and whom they believe.

use crate::common::{Choice, TestCluster, eventually};
use crate::wire::{greeting, peer};
use fermata_protocol::wire;
use fermata_tls::authority::{Authority, Span};
use fermata_tls::rustls::ClientConfig;
use fermata_tls::rustls::pki_types::ServerName;
use fermata_tls::{Admits, Files, Keeper, Name, Own, Trust};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The cluster of `local::cluster`.
pub(crate) const CLUSTER: u128 = 0xfe;

pub(crate) fn files(dir: &Path, name: &str) -> Files {
    Files {
        ca: dir.join("ca.pem"),
        own: Some((
            dir.join(format!("{name}.pem")),
            dir.join(format!("{name}.key")),
        )),
    }
}

/// An authority, and what it signs for nodes `n1` to `n3` and a client.
pub(crate) fn certificates(dir: &Path) {
    let span = Span::lasting(Duration::from_secs(86_400));
    let made = Authority::make("test", span).unwrap();
    made.store(dir, "ca").unwrap();
    let authority = Authority::of(&made).unwrap();
    let cluster = CLUSTER;
    for label in ["n1", "n2", "n3"].map(str::to_owned) {
        let name = Name::Node {
            cluster,
            label: label.clone(),
        };
        let hosts = ["127.0.0.1".to_owned()];
        let signed = authority.sign(&name, &hosts, span).unwrap();
        signed.store(dir, &label).unwrap();
    }
    let name = "app".to_owned();
    let app = Name::Client { cluster, name };
    let signed = authority.sign(&app, &[], span).unwrap();
    signed.store(dir, "app").unwrap();
}

/// What this node says to peers.
fn as_peer(dir: &Path, label: &str) -> Arc<ClientConfig> {
    let own = Own {
        cluster: CLUSTER,
        label: label.to_owned(),
    };
    let keeper = Keeper::read(files(dir, label), own, Admits::Certified);
    keeper.unwrap().to_peers()
}

/// Says `bytes` over TLS; returns what comes back before the node hangs up.
async fn say(address: &str, config: Arc<ClientConfig>, bytes: &[u8]) -> Option<Vec<u8>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let host = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(config)
        .connect(host, stream)
        .await
        .ok()?;
    stream.write_all(bytes).await.ok()?;
    stream.flush().await.ok()?;
    let mut heard = Vec::new();
    // It ends as the node likes: with a word of TLS, or without.
    let _ = stream.read_to_end(&mut heard).await;
    Some(heard)
}

/// Whether a node's REST says that it is healthy.
async fn is_healthy(address: &str, config: Arc<ClientConfig>) -> bool {
    let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let heard = say(address, config, ask).await.unwrap_or_default();
    heard.starts_with(b"HTTP/1.1 200")
}

/// Whether a node's metrics have this line.
async fn counts(address: &str, config: Arc<ClientConfig>, line: &str) -> bool {
    let ask = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let heard = say(address, config, ask).await.unwrap_or_default();
    String::from_utf8_lossy(&heard).contains(line)
}

async fn say_in_clear(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may hang up before everything is said.
    let _ = stream.write_all(bytes).await;
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_speak_tls_alone_and_believe_a_greeting_by_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let choice = Choice {
        tls: Some(dir.path().to_owned()),
        ..Choice::default()
    };
    let mut cluster = TestCluster::start_with(3, choice).await;
    let app = || Trust::read(files(dir.path(), "app")).unwrap().config();
    for at in 0..3 {
        let rest = cluster.node(at).rest.clone();
        eventually!(is_healthy(&rest, app()).await);
    }
    // In clear nobody is answered.
    let (rest, peers) = (cluster.node(0).rest.clone(), cluster.node(0).peer.clone());
    let get = b"GET /healthz HTTP/1.1\r\n\r\n";
    let heard = say_in_clear(&rest, get).await;
    assert!(!heard.starts_with(b"HTTP"), "{heard:?}");
    // Without a certificate nobody is.
    let nobody = Files {
        own: None,
        ..files(dir.path(), "app")
    };
    let nobody = Trust::read(nobody).unwrap().config();
    assert!(!is_healthy(&rest, nobody).await);
    // Who shows a node's certificate is that node, and no other.
    cluster.stop(1).await;
    let as_second = greeting(wire::VERSION, CLUSTER, peer(2), 1);
    let heard = say(&peers, as_peer(dir.path(), "n2"), &as_second).await;
    assert!(!heard.unwrap().is_empty(), "it is greeted");
    let heard = say(&peers, as_peer(dir.path(), "n3"), &as_second).await;
    assert!(heard.unwrap().is_empty(), "it is another node");
    // A client is no node. It hears of that with its first read, if not before.
    let mut client = (*app()).clone();
    client.alpn_protocols = vec![fermata_tls::PEERS_PROTOCOL.to_vec()];
    let heard = say(&peers, Arc::new(client), &as_second).await;
    assert!(heard.unwrap_or_default().is_empty());
    let refused = "fermata_frames_refused_total 2";
    eventually!(counts(&rest, app(), refused).await);
    let heard = say_in_clear(&peers, &as_second).await;
    assert!(heard.len() < as_second.len(), "no greeting: {heard:?}");
    cluster.restart(1).await;
    let rest = cluster.node(1).rest.clone();
    eventually!(is_healthy(&rest, app()).await);
}
