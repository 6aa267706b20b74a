//! The store: a session with checked servers, and what both of its sides need.

use crate::checks::{self, Cluster};
use crate::driver::{self, AGAIN, Named, What, brief, pin, store_error};
use crate::levels::Levels;
use crate::probe::{self, PROBE};
use crate::schema;
use crate::settings::Settings;
use crate::statements::Statements;
use crate::unresolved::Unresolved;
use bytes::{BufMut, Bytes, BytesMut};
use fermata_engine::StoreError;
use fermata_protocol::base::{KeyId, KeyspaceId};
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lock rows and data cells in one Cassandra cluster. Clones share their connections.
#[derive(Clone, Debug)]
pub struct CassandraStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    pub(crate) unresolved: Unresolved,
    /// How long peeks take of late, in microseconds.
    peek: AtomicU64,
    pub(crate) keyspace: String,
    /// How long it may take to come to know the servers.
    pub(crate) patience: Duration,
    /// The largest value that every server takes, in bytes.
    value_max: usize,
    about: String,
}

impl CassandraStore {
    /// Connects, creates keyspace and tables where they are absent (several servers may do so at
    /// once), and checks on every node what critical sections rely on: version, Paxos, stamps,
    /// replication, tables; then by trial, on a row that belongs to nobody. What is merely worth
    /// knowing goes to the log as warnings, and into [`fermata_engine::LockStore::describe`].
    ///
    /// # Errors
    /// One sentence: what is wrong, where, and what to set. Nothing but the schema and the row of
    /// the trial was written.
    pub async fn connect(mut settings: Settings) -> Result<CassandraStore, String> {
        settings.check()?;
        if settings.data_center.is_empty() {
            settings.data_center = driver::only_center(&settings).await?;
        }
        let session = driver::open(&settings).await?;
        let cluster = checks::survey(&session, &settings).await?;
        let verdict = cluster.judge(&settings)?;
        schema::ensure(&session, &settings, &schema::TABLES, &cluster).await?;
        let replication = schema::check_keyspace(&session, &settings, &cluster.centers).await?;
        for table in &schema::TABLES {
            schema::check_table(&session, &settings.keyspace, table).await?;
        }
        let statements = prepared(&session, &settings, verdict.levels).await?;
        warm(&session, &statements, &cluster).await;
        probe::probe(&session, &statements, &settings, &cluster).await?;
        for warning in &verdict.warnings {
            tracing::warn!("{warning}");
        }
        let mut about = format!(
            "Cassandra {}, nodes: {} in {}, asked first in {}; keyspace {}, replicated {}; values \
             of at most {} bytes; {}",
            cluster.versions(),
            cluster.nodes.len() + cluster.down.len(),
            schema::join(cluster.centers.keys()),
            settings.data_center,
            settings.keyspace,
            schema::replication_brief(&replication),
            verdict.value_max,
            verdict.levels
        );
        for warning in &verdict.warnings {
            about.push_str("; warning: ");
            about.push_str(warning);
        }
        tracing::info!("{about}");
        Ok(CassandraStore {
            inner: Arc::new(Inner {
                session,
                statements,
                unresolved: Unresolved::default(),
                peek: AtomicU64::new(0),
                keyspace: settings.keyspace,
                patience: settings.timeouts.start,
                value_max: verdict.value_max,
                about,
            }),
        })
    }
}

impl CassandraStore {
    /// The largest value that every server takes, in bytes: by its settings `max_mutation_size` and
    /// `native_transport_max_frame_size`.
    pub fn value_max(&self) -> usize {
        self.inner.value_max
    }
}

/// The statements. A table that another server has made just now is in the schema before every node
/// knows it, so what fails is tried again for a while.
async fn prepared(
    session: &Session,
    settings: &Settings,
    levels: Levels,
) -> Result<Statements, String> {
    let until = Instant::now() + settings.timeouts.start;
    loop {
        match Statements::prepare(session, &settings.keyspace, levels).await {
            Ok(statements) => return Ok(statements),
            Err(_) if Instant::now() < until => tokio::time::sleep(AGAIN).await,
            Err(error) => {
                let error = brief(&error.into());
                return Err(format!("the statements could not be prepared: {error}"));
            }
        }
    }
}

/// The first conditional statement on a connection to a cold server can take a second: made here,
/// no client waits for it. A node that fails it is no worse than one that is down.
async fn warm(session: &Session, statements: &Statements, cluster: &Cluster) {
    for node in &cluster.nodes {
        let mut read = statements.resolve.clone();
        read.set_load_balancing_policy(pin(&node.id));
        if let Err(error) = session.execute_unpaged(&read, (PROBE,)).await {
            tracing::debug!(
                "the node {} is slow to warm up: {}",
                node.address,
                brief(&error)
            );
        }
    }
}

impl Inner {
    /// Runs one statement.
    pub(crate) async fn run(
        &self,
        what: What,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<Named>, StoreError> {
        let result = self
            .session
            .execute_unpaged(statement, values)
            .await
            .map_err(|error| store_error(what, &error))?;
        if result.is_rows() {
            driver::first(what, result)
        } else {
            Ok(None)
        }
    }

    /// Whether a quorum of the replicas of one row answers `statement`.
    pub(crate) async fn quorum(&self, statement: &PreparedStatement) -> Result<(), String> {
        let what = What::Reads("a read of the probe row");
        match self.run(what, statement, (PROBE,)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "no quorum of the replicas of keyspace {} answers: {error}",
                self.keyspace
            )),
        }
    }

    /// How long peeks take of late.
    pub(crate) fn peek_time(&self) -> Duration {
        Duration::from_micros(self.peek.load(Ordering::Relaxed))
    }

    /// A peek took so long. Lost updates of this average do no harm.
    pub(crate) fn note_peek(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX / 16);
        let old = self.peek.load(Ordering::Relaxed);
        let new = if old == 0 {
            took
        } else {
            (7 * (old / 8)).saturating_add(took / 8)
        };
        self.peek.store(new, Ordering::Relaxed);
    }

    /// One line for people.
    pub(crate) fn about(&self) -> String {
        self.about.clone()
    }
}

/// The key of a row: the keyspace first, so that keyspaces do not meet.
pub(crate) fn row_key(key: &KeyId) -> Bytes {
    let mut bytes = BytesMut::with_capacity(4 + key.key.len());
    bytes.put_u32(key.keyspace.0);
    bytes.put_slice(&key.key);
    bytes.freeze()
}

/// The key that a row is of, in this keyspace; none: it is of another one, or the probe's.
pub(crate) fn key_of(row: &Bytes, keyspace: KeyspaceId) -> Option<Bytes> {
    let rest = row.strip_prefix(&keyspace.0.to_be_bytes()[..])?;
    Some(row.slice_ref(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_rows_come_back() {
        for key in [&b""[..], b"k", b"\0", b"a/b.c'd\"$e"] {
            let id = KeyId {
                keyspace: KeyspaceId(7),
                key: Bytes::copy_from_slice(key),
            };
            let row = row_key(&id);
            assert_eq!(key_of(&row, KeyspaceId(7)).as_deref(), Some(key));
            assert_eq!(key_of(&row, KeyspaceId(8)), None);
        }
        assert_eq!(key_of(&Bytes::from_static(PROBE), KeyspaceId(0)), None);
    }
}
