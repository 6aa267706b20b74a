//! The statements, prepared once.
//!
//! `AND s != null` in S2 makes a refused update tell the present row, so that whoever tries again
//! needs no read. A first insert tells it anyway.

use crate::levels::Levels;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

/// Everything that is ever said to the two tables.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    /// S1. Values: key, state.
    pub(crate) insert: PreparedStatement,
    /// S2. Values: new version, new state, key, old version.
    pub(crate) update: PreparedStatement,
    /// S3 at the nearest replica. Value: key.
    pub(crate) peek: PreparedStatement,
    /// S3 where something is decided. Value: key.
    pub(crate) decide: PreparedStatement,
    /// S3 where it has to be found out what became of an update. Value: key.
    pub(crate) resolve: PreparedStatement,
    /// S3 at a quorum, which repairs replicas that miss something. Value: key.
    pub(crate) refresh: PreparedStatement,
    /// The critical cell at a quorum. Values: stamp, cell, key.
    pub(crate) put: PreparedStatement,
    /// The eventual cell at the nearest replica. Values: stamp, cell, key.
    pub(crate) offer: PreparedStatement,
    /// Both cells at a quorum. Value: key.
    pub(crate) get: PreparedStatement,
    /// Both cells at the nearest replica. Value: key.
    pub(crate) get_near: PreparedStatement,
    /// All rows of the data table, as replicas near by know them.
    pub(crate) scan: PreparedStatement,
}

impl Statements {
    /// Prepares them; the tables exist.
    pub(crate) async fn prepare(
        session: &Session,
        keyspace: &str,
        levels: Levels,
    ) -> Result<Statements, PrepareError> {
        let at = async |text: String, level: Consistency, idempotent: bool| {
            let mut statement = session.prepare(text).await?;
            statement.set_consistency(level);
            statement.set_serial_consistency(Some(SerialConsistency::Serial));
            statement.set_is_idempotent(idempotent);
            Ok::<_, PrepareError>(statement)
        };
        let insert =
            format!("INSERT INTO {keyspace}.lock (k, v, s) VALUES (?, 1, ?) IF NOT EXISTS");
        let update =
            format!("UPDATE {keyspace}.lock SET v = ?, s = ? WHERE k = ? IF v = ? AND s != null");
        let row = format!("SELECT v, s FROM {keyspace}.lock WHERE k = ?");
        let put = format!("UPDATE {keyspace}.data USING TIMESTAMP ? SET c = ? WHERE k = ?");
        let offer = format!("UPDATE {keyspace}.data USING TIMESTAMP ? SET e = ? WHERE k = ?");
        let cells = format!("SELECT c, writetime(c) AS stamp, e FROM {keyspace}.data WHERE k = ?");
        let scan = format!("SELECT k, c, writetime(c) AS stamp, e FROM {keyspace}.data");
        Ok(Statements {
            insert: at(insert, levels.commit(), false).await?,
            update: at(update, levels.commit(), false).await?,
            peek: at(row.clone(), Consistency::LocalOne, true).await?,
            decide: at(row.clone(), levels.decide(), true).await?,
            resolve: at(row.clone(), Consistency::Serial, true).await?,
            refresh: at(row, Consistency::Quorum, true).await?,
            put: at(put, Consistency::Quorum, true).await?,
            offer: at(offer, Consistency::LocalOne, true).await?,
            get: at(cells.clone(), Consistency::Quorum, true).await?,
            get_near: at(cells, Consistency::LocalOne, true).await?,
            scan: at(scan, Consistency::LocalOne, true).await?,
        })
    }
}
