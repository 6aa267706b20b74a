//! MUSIC's own layout, step by step: its clients' operations, and those of their statements that a
//! schedule has to send by itself.

use crate::servers::{Servers, T, keyspace};
use bytes::Bytes;
use fermata_cassandra::paper::{Head, Held, Paper};
use fermata_engine::StoreError;
use fermata_engine::check::clients::value;
use fermata_peers::Consistency;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep};

/// How long replicas may take to hear of what a quorum has.
const SPREAD: Duration = Duration::from_secs(20);

/// Repeats what may be repeated until a server that is busy with others has done it.
async fn until_done<T>(what: &str, mut once: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let since = Instant::now();
    loop {
        match once().await {
            Ok(done) => return done,
            Err(why) => assert!(since.elapsed() < SPREAD, "{what}: {why:?}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// One key in MUSIC's layout, and its clients at three sites.
#[derive(Clone)]
pub(crate) struct Literal {
    servers: &'static Servers,
    papers: &'static [Paper; 3],
    pub(crate) key: Vec<u8>,
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

/// Microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_micros() as i64
}

impl Literal {
    pub(crate) async fn new(servers: &'static Servers, key: &str) -> Literal {
        Literal {
            servers,
            papers: servers.papers().await,
            key: key.as_bytes().to_vec(),
        }
    }

    /// The client of a site.
    pub(crate) fn at(&self, site: usize) -> &'static Paper {
        &self.papers[site]
    }

    // ---- the clients' operations ----------------------------------------------------------------

    pub(crate) async fn create(&self, site: usize) -> i64 {
        let created = self.at(site).create_lock_ref(&self.key).await;
        created.expect("a lock ref")
    }

    /// `acquireLock` until it is done.
    pub(crate) async fn acquire(&self, site: usize, lock_ref: i64) {
        let since = Instant::now();
        loop {
            let acquired = self.at(site).acquire_lock(&self.key, lock_ref).await;
            if acquired == Ok(Held::Done(())) {
                return;
            }
            assert!(since.elapsed() < SPREAD, "ref {lock_ref}: {acquired:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// `criticalPut` until the local replica knows of the grant: it must be acknowledged.
    pub(crate) async fn put(&self, site: usize, lock_ref: i64, text: &str) {
        let since = Instant::now();
        loop {
            let put = self
                .at(site)
                .critical_put(&self.key, lock_ref, text.as_bytes());
            let put = put.await;
            if put == Ok(Held::Done(())) {
                return;
            }
            assert!(since.elapsed() < SPREAD, "ref {lock_ref}: {put:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// `criticalGet`.
    pub(crate) async fn get(&self, site: usize, lock_ref: i64) -> Option<Bytes> {
        let since = Instant::now();
        loop {
            let got = self.at(site).critical_get(&self.key, lock_ref).await;
            if let Ok(Held::Done(value)) = got {
                return value;
            }
            assert!(since.elapsed() < SPREAD, "ref {lock_ref}: {got:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A whole section that puts `text`.
    pub(crate) async fn base(&self, text: &str) {
        let lock_ref = self.create(1).await;
        self.acquire(1, lock_ref).await;
        self.put(1, lock_ref, text).await;
        self.release(1, lock_ref).await;
    }

    /// `releaseLock`.
    pub(crate) async fn release(&self, site: usize, lock_ref: i64) {
        let paper = self.at(site);
        until_done("a release", async || {
            paper.release_lock(&self.key, lock_ref).await
        })
        .await;
    }

    /// `forcedRelease`.
    pub(crate) async fn force(&self, site: usize, lock_ref: i64) {
        let paper = self.at(site);
        until_done("a release", async || {
            paper.forced_release(&self.key, lock_ref).await
        })
        .await;
    }

    /// The first in the queue, as the replica of `site` knows it.
    pub(crate) async fn head(&self, site: usize) -> Option<Head> {
        let paper = self.at(site);
        until_done("a peek", async || paper.peek(&self.key).await).await
    }

    /// A section that goes on: created and acquired at `site`.
    pub(crate) async fn enter(&self, site: usize) -> i64 {
        let lock_ref = self.create(site).await;
        self.acquire(site, lock_ref).await;
        lock_ref
    }

    /// The head's start time, as the replica of `site` knows it.
    pub(crate) async fn started(&self, site: usize) -> Option<i64> {
        self.head(site).await.and_then(|head| head.start_time)
    }

    /// When the replica of `site` says that this lock ref is the head, and has started.
    pub(crate) async fn hears(&self, site: usize, lock_ref: i64) {
        let since = Instant::now();
        loop {
            let head = self.head(site).await;
            if head.is_some_and(|h| h.lock_ref == lock_ref && h.start_time.is_some()) {
                return;
            }
            assert!(since.elapsed() < SPREAD, "site {site} knows {head:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    // ---- single statements ----------------------------------------------------------------------

    /// All of them may be said twice.
    fn say(&self, site: usize, statement: &str, level: Consistency) {
        let statement = statement.replace("KS", &keyspace());
        let statement = statement.replace("KEY", &hex(&self.key));
        self.servers.say(site, &statement, level);
    }

    /// The write of a critical put, or of a synch, `elapsed` microseconds into the section of
    /// `lock_ref`.
    pub(crate) fn write(
        &self,
        site: usize,
        (lock_ref, elapsed): (i64, i64),
        text: &str,
        level: Consistency,
    ) {
        let (stamp, text) = (lock_ref * T + elapsed, hex(text.as_bytes()));
        let write = format!(
            "UPDATE KS.paper_data USING TIMESTAMP {stamp} SET value = {text} WHERE key = KEY"
        );
        self.say(site, &write, level);
    }

    /// The write of a flag.
    pub(crate) fn flag(&self, site: usize, (lock_ref, elapsed): (i64, i64), flag: bool) {
        let stamp = lock_ref * T + elapsed;
        let write = format!(
            "UPDATE KS.paper_data USING TIMESTAMP {stamp} SET synchflag = {flag} WHERE key = KEY"
        );
        self.say(site, &write, Consistency::Quorum);
    }

    /// The delete of a lock row.
    pub(crate) fn dequeue(&self, site: usize, lock_ref: i64) {
        let delete =
            format!("DELETE FROM KS.paper_lock WHERE key = KEY AND lockref = {lock_ref} IF EXISTS");
        self.say(site, &delete, Consistency::Quorum);
    }

    /// The write of a start time.
    pub(crate) fn start(&self, site: usize, lock_ref: i64) {
        let time = now();
        let write = format!(
            "UPDATE KS.paper_lock SET starttime = {time} WHERE key = KEY AND lockref = {lock_ref}"
        );
        self.say(site, &write, Consistency::Quorum);
    }

    /// What a clean-up of idle keys deletes.
    pub(crate) fn clean_up(&self) {
        self.say(
            0,
            "DELETE FROM KS.paper_lock WHERE key = KEY",
            Consistency::All,
        );
    }

    /// The value at a quorum.
    pub(crate) fn read(&self, site: usize) -> Option<Bytes> {
        let read = format!(
            "SELECT value FROM {}.paper_data WHERE key = {}",
            keyspace(),
            hex(&self.key)
        );
        let rows = self.servers.say(site, &read, Consistency::Quorum);
        let cell = rows.rows.first().and_then(|row| row[0].clone());
        cell.map(Bytes::from)
    }
}

/// A value of the paper's is what was written.
pub(crate) fn is(found: &Option<Bytes>, text: &str) -> bool {
    *found == value(text)
}
