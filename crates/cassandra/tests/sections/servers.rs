//! The servers of this program, and whose turn it is with them.

use crate::common::{self, RUNTIME};
use fermata_cassandra::CassandraStore as Cassandra;
use fermata_cassandra::paper::Paper;
use fermata_peers::{Cluster, Consistency, EXPIRY_MS, Rows, System, trio};
use fermata_zookeeper::{Reads, Settings, ZookeeperStore as Zookeeper};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio::time::sleep;

/// When a message that was sent to a server that stands still is certain to be thrown away.
const EXPIRED: Duration = Duration::from_millis(EXPIRY_MS as u64 + 500);
/// How long servers may take that are busy with others.
const PATIENCE: Duration = Duration::from_secs(60);
/// MUSIC's T: the longest section, microseconds.
pub(crate) const T: i64 = 3_600_000_000;

/// Three nodes of each system.
pub(crate) struct Servers {
    pub(crate) cassandra: &'static Cluster,
    pub(crate) zookeeper: &'static Cluster,
    stores: OnceCell<Stores>,
    papers: OnceCell<[Paper; 3]>,
}

/// What the engines of the three sites have below them.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) cassandra: [Arc<Cassandra>; 3],
    pub(crate) zookeeper: [Arc<Zookeeper>; 3],
}

fn servers() -> Option<&'static Servers> {
    static SERVERS: OnceLock<Option<Servers>> = OnceLock::new();
    let servers = SERVERS.get_or_init(|| {
        // Both are asked, so that both are named.
        let (cassandra, zookeeper) = (trio(System::Cassandra), trio(System::Zookeeper));
        Some(Servers {
            cassandra: cassandra?,
            zookeeper: zookeeper?,
            stores: OnceCell::new(),
            papers: OnceCell::new(),
        })
    });
    servers.as_ref()
}

/// Tests that stop servers run alone, others beside each other.
static TURN: RwLock<()> = RwLock::new(());

/// Runs a test that leaves the servers alone.
pub(crate) fn beside<F: Future<Output = ()>>(test: impl FnOnce(&'static Servers) -> F) {
    if let Some(servers) = servers() {
        let _turn = TURN.read().unwrap_or_else(PoisonError::into_inner);
        RUNTIME.block_on(test(servers));
    }
}

/// Runs a test that stops servers. Whatever it has left standing goes on afterwards.
pub(crate) fn alone<F: Future<Output = ()>>(test: impl FnOnce(&'static Servers) -> F) {
    struct Afterwards(&'static Servers);

    impl Drop for Afterwards {
        fn drop(&mut self) {
            for node in 1..=3 {
                // One that is down cannot go on.
                let _ = self.0.cassandra.continue_node(node);
                let _ = self.0.zookeeper.continue_node(node);
            }
        }
    }

    if let Some(servers) = servers() {
        let _turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
        let _afterwards = Afterwards(servers);
        RUNTIME.block_on(test(servers));
    }
}

/// A whole section of MUSIC's: what a server does for the first time can take longer than the
/// answers of the tests may.
async fn warm(site: usize, paper: &Paper) {
    let key = format!("warm {site}");
    let since = Instant::now();
    loop {
        let section = async {
            let lock_ref = paper.create_lock_ref(key.as_bytes()).await?;
            paper.acquire_lock(key.as_bytes(), lock_ref).await?;
            paper.critical_put(key.as_bytes(), lock_ref, b"v").await?;
            paper.forced_release(key.as_bytes(), lock_ref).await
        };
        match section.await {
            Ok(()) => return,
            Err(why) => assert!(since.elapsed() < PATIENCE, "site {site}: {why:?}"),
        }
    }
}

/// The Cassandra keyspace of this run.
pub(crate) fn keyspace() -> String {
    format!("sections_{}", std::process::id())
}

/// Settings of the engine at `site`.
pub(crate) fn settings(points: &[SocketAddr], site: usize) -> fermata_cassandra::Settings {
    let mut settings = common::settings(points, points.len() as u8, &keyspace());
    settings.data_center = format!("dc{}", site + 1);
    settings.timeouts.request = Duration::from_secs(6);
    settings
}

impl Servers {
    async fn cassandra_at(&self, site: usize) -> Arc<Cassandra> {
        let settings = settings(&self.cassandra.endpoints(), site);
        Arc::new(Cassandra::connect(settings).await.expect("a store"))
    }

    async fn zookeeper_at(&self, site: usize) -> Arc<Zookeeper> {
        let mut servers: Vec<String> = self
            .zookeeper
            .endpoints()
            .iter()
            .map(ToString::to_string)
            .collect();
        servers.rotate_left(site);
        let settings = Settings {
            servers,
            root: format!("/{}", keyspace()),
            timeout: Duration::from_secs(4),
            tls: None,
        };
        let store = Zookeeper::connect(settings).await.expect("a store");
        Arc::new(store.with_reads(Reads::Quorum))
    }

    pub(crate) async fn stores(&self) -> &Stores {
        let connect = async || Stores {
            cassandra: [
                self.cassandra_at(0).await,
                self.cassandra_at(1).await,
                self.cassandra_at(2).await,
            ],
            zookeeper: [
                self.zookeeper_at(0).await,
                self.zookeeper_at(1).await,
                self.zookeeper_at(2).await,
            ],
        };
        self.stores.get_or_init(connect).await
    }

    /// MUSIC's own clients, one per site.
    pub(crate) async fn papers(&self) -> &[Paper; 3] {
        let at = async |site| {
            let settings = settings(&self.cassandra.endpoints(), site);
            let most = Duration::from_micros(T.unsigned_abs());
            Paper::connect(settings, most, 50).await.expect("a client")
        };
        let connect = async || {
            let papers = [at(0).await, at(1).await, at(2).await];
            for (site, paper) in papers.iter().enumerate() {
                warm(site, paper).await;
            }
            papers
        };
        self.papers.get_or_init(connect).await
    }

    /// What the node of a site says to a statement that may be said twice.
    pub(crate) fn say(&self, site: usize, statement: &str, level: Consistency) -> Rows {
        let since = Instant::now();
        loop {
            let answer = self.cassandra.cql(site as u8 + 1);
            match answer.and_then(|mut cql| cql.query(statement, level)) {
                Ok(rows) => return rows,
                Err(why) => assert!(since.elapsed() < PATIENCE, "{statement}: {why}"),
            }
        }
    }

    /// The Cassandra nodes of these sites stand still.
    pub(crate) fn stop(&self, sites: &[usize]) {
        for site in sites {
            let stopped = self.cassandra.stop_node(*site as u8 + 1);
            stopped.expect("it is up");
        }
    }

    /// They go on, when whatever was sent to them meanwhile is too old.
    pub(crate) async fn go_on(&self, sites: &[usize]) {
        sleep(EXPIRED).await;
        for site in sites {
            let goes_on = self.cassandra.continue_node(*site as u8 + 1);
            goes_on.expect("it is up");
        }
        // What is asked after it is answered when it has been thrown away.
        let ask = format!("SELECT v FROM {}.lock WHERE k = 0x00", keyspace());
        for site in 0..3 {
            self.say(site, &ask, Consistency::All);
        }
    }
}
