//! A trial of everything the engine relies on, with the servers as they are and the role that is
//! used: settings can be read wrongly, and guards that act on some roles only are seen by no one
//! else.

use crate::checks::Cluster;
use crate::driver::{Named, What, brief, first, of_database, store_error};
use crate::settings::Settings;
use crate::statements::Statements;
use bytes::Bytes;
use fermata_engine::StoreError;
use scylla::client::session::Session;
use scylla::errors::DbError;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The row of the trial in both tables. Keys of keyspaces are at least four bytes long.
pub(crate) const PROBE: &[u8] = b"\0";

/// The state that the probe's lock row has.
const STATE: &[u8] = b"probe";

/// Scalars of one lock ref: the least step between the stamps of two sections.
const SPAN: i64 = 1 << 20;

/// Ten years, in microseconds: as far as the stamps of a busy key may run ahead of the clock.
const AHEAD: i64 = 10 * 365 * 86_400 * 1_000_000;

/// A start that waits for servers says so once pauses are as long.
const ANNOUNCED: Duration = Duration::from_millis(500);

const TRIAL: What = What::Writes("the trial");

struct Trial<'a> {
    session: &'a Session,
    statements: &'a Statements,
    settings: &'a Settings,
    down: &'a [String],
    until: Instant,
}

/// Tries updates of a lock row and stamped writes of a data row.
///
/// # Errors
/// One sentence.
pub(crate) async fn probe(
    session: &Session,
    statements: &Statements,
    settings: &Settings,
    cluster: &Cluster,
) -> Result<(), String> {
    let until = Instant::now() + settings.timeouts.start;
    let trial = Trial {
        session,
        statements,
        settings,
        down: &cluster.down,
        until,
    };
    let version = trial.lock_row().await?;
    trial.data_row(version).await
}

impl Trial<'_> {
    /// Runs a statement until its outcome is known: servers that have just started are slow, and
    /// others may try the same row.
    async fn run(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Option<Named>, String> {
        let mut pause = Duration::from_millis(20);
        let mut announced = false;
        loop {
            let error = match self.session.execute_unpaged(statement, &values).await {
                Ok(result) if !result.is_rows() => return Ok(None),
                Ok(result) => return first(TRIAL, result).map_err(|error| error.to_string()),
                Err(error) => error,
            };
            let table = statement.get_table_name().unwrap_or("(unknown)");
            let keyspace = &self.settings.keyspace;
            if let StoreError::Refused(why) = store_error(TRIAL, &error) {
                return Err(format!(
                    "the trial on {keyspace}.{table} was refused: {why}"
                ));
            }
            if Instant::now() + pause >= self.until {
                return Err(
                    self.no_quorum(of_database(&error).map(|(kind, _)| kind), &brief(&error))
                );
            }
            if pause > ANNOUNCED && !std::mem::replace(&mut announced, true) {
                let most = self.until.saturating_duration_since(Instant::now());
                let why = brief(&error);
                tracing::warn!("waiting for Cassandra, {most:.0?} at most: {why}");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    fn no_quorum(&self, kind: Option<&DbError>, why: &str) -> String {
        let down = match self.down {
            [] => "all its nodes are connected".to_owned(),
            down => format!("these nodes are down: {}", down.join(", ")),
        };
        let keyspace = &self.settings.keyspace;
        match kind {
            Some(DbError::Unavailable { .. }) => format!(
                "the keyspace {keyspace} has no quorum of its replicas ({why}; {down}): start the \
                 nodes that are missing"
            ),
            _ => format!(
                "the trial on keyspace {keyspace} has not succeeded within {:?} ({why}; {down}): \
                 see the logs of Cassandra, and give it more time or longer timeouts",
                self.settings.timeouts.start
            ),
        }
    }

    /// S1 and S2 until one is applied, then what a decision would read. The version of the row.
    async fn lock_row(&self) -> Result<i64, String> {
        let state = Bytes::from_static(STATE);
        let version = loop {
            let row = self.run(&self.statements.resolve, (PROBE,)).await?;
            let found = row.map(|mut row| row.number("v"));
            let (new, answer) = match found {
                None => (1, self.run(&self.statements.insert, (PROBE, &state)).await?),
                Some(None) => return Err(self.hidden("has lost its version")),
                Some(Some(old)) => {
                    let values = (old + 1, &state, PROBE, old);
                    (old + 1, self.run(&self.statements.update, values).await?)
                }
            };
            if answer.is_some_and(|mut row| row.truth("[applied]") == Some(true)) {
                break new;
            }
            if Instant::now() >= self.until {
                return Err(self.hidden("refuses every update"));
            }
            // Others try the same row: not in step with them.
            tokio::time::sleep(Duration::from_micros(
                u64::from(std::process::id()) % 50_000,
            ))
            .await;
        };
        let text = format!(
            "SELECT v, ttl(v) AS life FROM {}.lock WHERE k = ?",
            self.settings.keyspace
        );
        let read = self
            .prepare(text, self.statements.decide.get_consistency())
            .await?;
        let row = self.run(&read, (PROBE,)).await?;
        let mut row = row.ok_or_else(|| self.hidden("is absent after an update"))?;
        if row.number("v").is_none_or(|found| found < version) {
            return Err(self.hidden("does not show an update that was applied"));
        }
        if row.number("life").is_some() {
            return Err(self.hidden("was written with a time to live"));
        }
        Ok(version)
    }

    async fn prepare(
        &self,
        text: String,
        level: Option<Consistency>,
    ) -> Result<PreparedStatement, String> {
        let mut statement = self.session.prepare(text).await.map_err(|error| {
            let error = brief(&error.into());
            format!("the statements of the trial could not be prepared: {error}")
        })?;
        statement.set_consistency(level.unwrap_or(Consistency::Quorum));
        Ok(statement)
    }

    fn hidden(&self, what: &str) -> String {
        let keyspace = &self.settings.keyspace;
        format!(
            "the probe row of {keyspace}.lock {what}: something else writes the table with stamps, \
             times to live or deletes of its own; set another keyspace"
        )
    }

    /// A critical write far in the past and an eventual one far ahead: whatever keys do later lies
    /// between. Each writes its own stamp as its value, so that others that try at the same time do
    /// no harm: the stamp of what is read has to be its value, and no lower than what was written.
    async fn data_row(&self, version: i64) -> Result<(), String> {
        let past = version.saturating_mul(SPAN).min(AHEAD);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let ahead = i64::try_from(now.as_micros()).unwrap_or(0) + AHEAD;
        let value = |stamp: i64| Bytes::copy_from_slice(&stamp.to_be_bytes());
        self.run(&self.statements.put, (past, value(past), PROBE))
            .await?;
        self.run(&self.statements.offer, (ahead, value(ahead), PROBE))
            .await?;
        let text = format!(
            "SELECT c, writetime(c) AS past, e, writetime(e) AS ahead FROM {}.data WHERE k = ?",
            self.settings.keyspace
        );
        let read = self.prepare(text, Some(Consistency::Quorum)).await?;
        let mut row = self.run(&read, (PROBE,)).await?;
        let mut kept = |cell: &str, stamp: &str, least: Option<i64>| {
            let Some(row) = row.as_mut() else {
                return false;
            };
            match (row.blob(cell), row.number(stamp)) {
                (Some(found), Some(at)) => {
                    least.is_none_or(|least| at >= least) && found == value(at)
                }
                (None, None) => least.is_none(),
                _ => false,
            }
        };
        // The eventual write has reached one replica only, perhaps none of the quorum's.
        if kept("c", "past", Some(past)) && kept("e", "ahead", None) {
            return Ok(());
        }
        Err(format!(
            "the table {0}.data does not keep the stamps that writes bring: something between here \
             and the replicas, or something else that writes {0}.data, sets its own",
            self.settings.keyspace
        ))
    }
}
