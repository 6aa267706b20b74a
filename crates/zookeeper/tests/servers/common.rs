//! Real servers for the tests, and a way to hold back what is on its way to them.

use bytes::Bytes;
use fermata_peers::{Cluster, System, trio};
use fermata_protocol::base::{KeyId, KeyspaceId};
use fermata_zookeeper::{Settings, ZookeeperStore};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc, watch};

/// How long an operation waits here.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

/// Tests that kill servers, count what these hold, or start others run alone.
static TURN: RwLock<()> = RwLock::const_new(());

/// The ensemble of most tests, and whose turn it is with it.
pub(crate) struct Ensemble<T> {
    pub(crate) cluster: &'static Cluster,
    pub(crate) servers: Vec<String>,
    _turn: T,
}

/// For a test that leaves the servers alone; none, and a loud word, where real ones cannot run.
pub(crate) async fn beside() -> Option<Ensemble<RwLockReadGuard<'static, ()>>> {
    ensemble(TURN.read().await)
}

/// For a test that has the machine for itself.
pub(crate) async fn alone() -> Option<Ensemble<RwLockWriteGuard<'static, ()>>> {
    ensemble(TURN.write().await)
}

fn ensemble<T>(turn: T) -> Option<Ensemble<T>> {
    let cluster = trio(System::Zookeeper)?;
    Some(Ensemble {
        cluster,
        servers: servers(cluster),
        _turn: turn,
    })
}

/// A node of this name that no other run has made.
pub(crate) fn fresh(name: &str) -> String {
    format!("/{name}-{}", std::process::id())
}

/// The addresses of a cluster's servers.
pub(crate) fn servers(cluster: &Cluster) -> Vec<String> {
    cluster
        .endpoints()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// A store on these servers, below a [`fresh`] root of the test's own.
pub(crate) async fn store(servers: &[String], root: &str, timeout: Duration) -> ZookeeperStore {
    let settings = Settings {
        servers: servers.to_vec(),
        root: fresh(root),
        timeout,
        tls: None,
    };
    ZookeeperStore::connect(settings)
        .await
        .expect("the store connects")
}

pub(crate) fn key(name: &[u8]) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(3),
        key: Bytes::copy_from_slice(name),
    }
}

/// Stands between clients and a server. While it holds, nothing passes; what clients have sent
/// passes later, even if they have gone.
pub(crate) struct Dam {
    pub(crate) address: String,
    hold: watch::Sender<bool>,
}

impl Dam {
    pub(crate) async fn before(server: String) -> Dam {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (hold, held) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, held.clone()));
                tokio::spawn(pass(from_server, to_client, held.clone()));
            }
        });
        Dam { address, hold }
    }

    pub(crate) fn hold(&self, hold: bool) {
        self.hold.send_replace(hold);
    }
}

/// Passes on bytes, one way, whenever the dam is open.
async fn pass(
    mut from: impl AsyncReadExt + Unpin + Send + 'static,
    mut to: impl AsyncWriteExt + Unpin,
    mut held: watch::Receiver<bool>,
) {
    let (send, mut waiting) = mpsc::unbounded_channel::<Vec<u8>>();
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if send.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(bytes) = waiting.recv().await {
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    if held.wait_for(|held| !held).await.is_ok() {
        let _ = to.shutdown().await;
    }
}
