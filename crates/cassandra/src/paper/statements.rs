//! The paper's statements, prepared once.

use crate::schema::Table;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

/// The two tables.
pub(crate) const TABLES: [Table; 2] = [
    Table {
        name: "paper_lock",
        columns: "key blob, lockref bigint, guard bigint static, starttime bigint, PRIMARY KEY \
                  (key, lockref)",
        found: &[
            ("guard", "static", "bigint"),
            ("key", "partition_key", "blob"),
            ("lockref", "clustering", "bigint"),
            ("starttime", "regular", "bigint"),
        ],
    },
    Table {
        name: "paper_data",
        columns: "key blob PRIMARY KEY, value blob, synchflag boolean",
        found: &[
            ("key", "partition_key", "blob"),
            ("synchflag", "regular", "boolean"),
            ("value", "regular", "blob"),
        ],
    },
];

/// Everything that is ever said to them.
pub(crate) struct Statements {
    /// The guard at one replica. Value: key.
    pub(crate) guard: PreparedStatement,
    /// Guard and row at once. Values: (new guard, key, old guard), (key, lock ref).
    pub(crate) enqueue: Batch,
    /// The lowest lock ref at the nearest replica. Value: key.
    pub(crate) peek: PreparedStatement,
    /// The start time, plainly. Values: time, key, lock ref.
    pub(crate) start: PreparedStatement,
    /// The delete of a lock row. Values: key, lock ref.
    pub(crate) dequeue: PreparedStatement,
    /// The flag at a quorum. Value: key.
    pub(crate) flag: PreparedStatement,
    /// Writes the flag at a quorum. Values: stamp, flag, key.
    pub(crate) set_flag: PreparedStatement,
    /// The value at a quorum. Value: key.
    pub(crate) get: PreparedStatement,
    /// The value at the nearest replica. Value: key.
    pub(crate) get_near: PreparedStatement,
    /// Writes the value at a quorum. Values: stamp, value, key.
    pub(crate) put_stamped: PreparedStatement,
    /// Writes the value conditionally. Values: value, key.
    pub(crate) put_by_lwt: PreparedStatement,
    /// Writes the value at one replica, by the clock. Values: value, key.
    pub(crate) put: PreparedStatement,
}

impl Statements {
    pub(crate) async fn prepare(
        session: &Session,
        keyspace: &str,
    ) -> Result<Statements, PrepareError> {
        let at = async |text: &str, level: Consistency, idempotent: bool| {
            let text = text.replace("LOCK", &format!("{keyspace}.paper_lock"));
            let text = text.replace("DATA", &format!("{keyspace}.paper_data"));
            let mut statement = session.prepare(text).await?;
            statement.set_consistency(level);
            statement.set_serial_consistency(Some(SerialConsistency::Serial));
            statement.set_is_idempotent(idempotent);
            Ok::<_, PrepareError>(statement)
        };
        let (near, quorum) = (Consistency::LocalOne, Consistency::Quorum);
        let raise = at(
            "UPDATE LOCK SET guard = ? WHERE key = ? IF guard = ?",
            quorum,
            false,
        );
        let append = at(
            "INSERT INTO LOCK (key, lockref) VALUES (?, ?) IF NOT EXISTS",
            quorum,
            false,
        );
        let mut enqueue = Batch::new(BatchType::Logged);
        enqueue.append_statement(raise.await?);
        enqueue.append_statement(append.await?);
        enqueue.set_consistency(quorum);
        enqueue.set_serial_consistency(Some(SerialConsistency::Serial));
        enqueue.set_is_idempotent(false);
        let by_lwt = "UPDATE DATA SET value = ? WHERE key = ? IF synchflag != true";
        let put_stamped = "UPDATE DATA USING TIMESTAMP ? SET value = ? WHERE key = ?";
        let set_flag = "UPDATE DATA USING TIMESTAMP ? SET synchflag = ? WHERE key = ?";
        let start = "UPDATE LOCK SET starttime = ? WHERE key = ? AND lockref = ?";
        let dequeue = "DELETE FROM LOCK WHERE key = ? AND lockref = ? IF EXISTS";
        let peek = "SELECT lockref, starttime FROM LOCK WHERE key = ? LIMIT 1";
        let value = "SELECT value FROM DATA WHERE key = ?";
        Ok(Statements {
            guard: at("SELECT guard FROM LOCK WHERE key = ? LIMIT 1", near, true).await?,
            enqueue,
            peek: at(peek, near, true).await?,
            start: at(start, near, true).await?,
            dequeue: at(dequeue, quorum, false).await?,
            flag: at("SELECT synchflag FROM DATA WHERE key = ?", quorum, true).await?,
            set_flag: at(set_flag, quorum, true).await?,
            get: at(value, quorum, true).await?,
            get_near: at(value, near, true).await?,
            put_stamped: at(put_stamped, quorum, true).await?,
            put_by_lwt: at(by_lwt, quorum, false).await?,
            put: at("UPDATE DATA SET value = ? WHERE key = ?", near, true).await?,
        })
    }
}
