//! The driver: sessions, rows by the names of their columns, errors by what they leave open.

use crate::settings::Settings;
use bytes::Bytes;
use fermata_engine::StoreError;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    BadQuery, DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError,
};
use scylla::policies::load_balancing::{
    DefaultPolicy, LoadBalancingPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Between two trials of what fails while servers start.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// Names a statement for the reader of an error, and says whether it can have an effect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// It reads: `the read of the lock row`.
    Reads(&'static str),
    /// It writes: `the update of the lock row`.
    Writes(&'static str),
}

/// A session as all statements here need it: C3 and C4 of the crate's essay.
///
/// # Errors
/// One sentence: no contact point answers, or none lets this role in.
pub(crate) async fn open(settings: &Settings) -> Result<Session, String> {
    // Without shuffling, a key's statements go to the same replica of this data center, as long as
    // that one is up: two coordinators that update one row get into each other's way.
    let policy = DefaultPolicy::builder()
        .prefer_datacenter(settings.data_center.clone())
        .permit_dc_failover(true)
        .token_aware(true)
        .enable_shuffling_replicas(false)
        .build();
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(settings.timeouts.request))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .load_balancing_policy(policy)
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.contact_points)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(settings.timeouts.connect)
        .keyspaces_to_fetch([settings.keyspace.clone()])
        .tcp_nodelay(true);
    if let Some(trust) = &settings.tls {
        builder = builder.tls_context(Some(trust.following()));
    }
    if let Some(name) = &settings.username {
        builder = builder.user(name, settings.password.clone().unwrap_or_default());
    }
    let points = settings.contact_points.join(", ");
    match tokio::time::timeout(settings.timeouts.start, builder.build()).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(not_opened(&points, &error)),
        Err(_) => Err(format!(
            "none of the contact points {points} of Cassandra has answered within {:?}: check that \
             its nodes run and that contact_points names them",
            settings.timeouts.start
        )),
    }
}

/// The data center, where there is one only.
///
/// # Errors
/// One sentence: nobody answers, or there are several.
pub(crate) async fn only_center(settings: &Settings) -> Result<String, String> {
    let session = open(settings).await?;
    let state = session.get_cluster_state();
    let named = |node: &Arc<scylla::cluster::Node>| node.datacenter.clone();
    let centers: BTreeSet<String> = state.get_nodes_info().iter().filter_map(named).collect();
    let mut all = centers.iter();
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only.clone()),
        _ => Err(format!(
            "Cassandra has the data centers {}, and none is set: set data_center to the one that \
             is nearest",
            centers.into_iter().collect::<Vec<_>>().join(", ")
        )),
    }
}

fn not_opened(points: &str, error: &NewSessionError) -> String {
    let text = error.to_string();
    let lower = text.to_lowercase();
    if lower.contains("authenticat") || lower.contains("credentials") {
        return format!(
            "Cassandra at {points} asks for a role and did not accept the one that is configured: \
             set username and password ({text})"
        );
    }
    format!(
        "none of the contact points {points} of Cassandra answers: check that its nodes run and \
         that contact_points names them ({text})"
    )
}

/// Sends everything to one node.
pub(crate) fn pin(node: &NodeIdentifier) -> Option<Arc<dyn LoadBalancingPolicy>> {
    Some(SingleTargetLoadBalancingPolicy::new(node.clone(), None))
}

/// A statement without values for one node alone, or for any.
pub(crate) fn statement(text: &str, node: Option<&NodeIdentifier>) -> Statement {
    let mut statement = Statement::new(text);
    statement.set_consistency(Consistency::One);
    if let Some(node) = node {
        statement.set_load_balancing_policy(pin(node));
    }
    statement
}

/// The error as an engine has to know it: C5.
pub(crate) fn store_error(what: What, error: &ExecutionError) -> StoreError {
    let (What::Reads(name) | What::Writes(name)) = what;
    let error_text = brief(error);
    match what {
        _ if is_definite(error) => StoreError::Refused(format!(
            "{name} was refused: {error_text}; nothing was changed"
        )),
        What::Reads(_) => StoreError::Unknown(format!("{name} failed: {error_text}")),
        What::Writes(_) => StoreError::Unknown(format!(
            "{name} failed: {error_text}; it may have taken effect"
        )),
    }
}

/// An answer that makes no sense: whatever was asked for may have been done.
pub(crate) fn nonsense(what: What, why: &str) -> StoreError {
    let (What::Reads(name) | What::Writes(name)) = what;
    StoreError::Unknown(format!("the answer to {name} was not understood: {why}"))
}

/// Whether the statement was certainly not carried out, and never will be. A conditional update
/// that fails with anything else, `Unavailable` too, may have been accepted by replicas before, and
/// then someone else finishes it later.
pub(crate) fn is_definite(error: &ExecutionError) -> bool {
    match error {
        // The driver goes on to the next node as long as it has no connection, and ends at the
        // first answer or failure of a statement that it has sent: these were never sent.
        ExecutionError::BadQuery(BadQuery::SerializationError(_))
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => true,
        ExecutionError::LastAttemptError(error) => match error {
            RequestAttemptError::SerializationError(_)
            | RequestAttemptError::CqlRequestSerialization(_)
            | RequestAttemptError::UnableToAllocStreamId => true,
            RequestAttemptError::DbError(error, _) => matches!(
                error,
                DbError::SyntaxError
                    | DbError::Invalid
                    | DbError::Unauthorized
                    | DbError::AuthenticationError
                    | DbError::ConfigError
            ),
            _ => false,
        },
        _ => false,
    }
}

/// The database's own kind of error, if it is one, and its message.
pub(crate) fn of_database(error: &ExecutionError) -> Option<(&DbError, &str)> {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, message)) => {
            Some((error, message))
        }
        ExecutionError::PrepareError(PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(error, message),
        }) => Some((error, message)),
        _ => None,
    }
}

/// The error in a few words.
pub(crate) fn brief(error: &ExecutionError) -> String {
    match of_database(error) {
        Some((
            DbError::Unavailable {
                consistency,
                required,
                alive,
            },
            _,
        )) => format!(
            "{consistency} needs {required} replicas and Cassandra's coordinator sees {alive}"
        ),
        Some((
            DbError::WriteTimeout {
                consistency,
                received,
                required,
                ..
            }
            | DbError::ReadTimeout {
                consistency,
                received,
                required,
                ..
            },
            _,
        )) => format!(
            "Cassandra timed out with {received} of {required} replicas' answers ({consistency})"
        ),
        Some((kind, "")) => format!("Cassandra says: {kind}"),
        Some((_, message)) => format!("Cassandra says: {message}"),
        None => match error {
            ExecutionError::RequestTimeout(after) => {
                format!("Cassandra has not answered within {after:?}")
            }
            ExecutionError::ConnectionPoolError(_) => {
                "no node of Cassandra is connected".to_owned()
            }
            other => other.to_string(),
        },
    }
}

/// One row of an answer. Its columns are found by name: statements answer with columns of their own
/// choice and order.
#[derive(Debug)]
pub(crate) struct Named {
    columns: Vec<(String, Option<CqlValue>)>,
}

/// All rows of an answer.
pub(crate) fn rows(what: What, result: QueryResult) -> Result<Vec<Named>, StoreError> {
    let rows = result
        .into_rows_result()
        .map_err(|error| nonsense(what, &error.to_string()))?;
    let names: Vec<String> = rows
        .column_specs()
        .iter()
        .map(|spec| spec.name().to_owned())
        .collect();
    let rows = rows
        .rows::<Row>()
        .map_err(|error| nonsense(what, &error.to_string()))?;
    rows.map(|row| {
        let row = row.map_err(|error| nonsense(what, &error.to_string()))?;
        Ok(Named {
            columns: names.iter().cloned().zip(row.columns).collect(),
        })
    })
    .collect()
}

/// The only row of an answer, or none.
pub(crate) fn first(what: What, result: QueryResult) -> Result<Option<Named>, StoreError> {
    Ok(rows(what, result)?.into_iter().next())
}

impl Named {
    fn take(&mut self, name: &str) -> Option<CqlValue> {
        let column = self.columns.iter_mut().find(|(column, _)| column == name)?;
        column.1.take()
    }

    /// A blob; none: null, or no such column.
    pub(crate) fn blob(&mut self, name: &str) -> Option<Bytes> {
        match self.take(name)? {
            CqlValue::Blob(bytes) => Some(Bytes::from(bytes)),
            CqlValue::Empty => Some(Bytes::new()),
            _ => None,
        }
    }

    /// A number of any width.
    pub(crate) fn number(&mut self, name: &str) -> Option<i64> {
        match self.take(name)? {
            CqlValue::BigInt(number) => Some(number),
            CqlValue::Int(number) => Some(i64::from(number)),
            _ => None,
        }
    }

    /// A truth value.
    pub(crate) fn truth(&mut self, name: &str) -> Option<bool> {
        self.take(name)?.as_boolean()
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            CqlValue::Text(text) | CqlValue::Ascii(text) => Some(text),
            _ => None,
        }
    }

    /// A map of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        let CqlValue::Map(pairs) = self.take(name)? else {
            return None;
        };
        let text = |value: CqlValue| value.into_string();
        pairs
            .into_iter()
            .map(|(k, v)| Some((text(k)?, text(v)?)))
            .collect()
    }

    /// Bytes of its blobs that were not taken.
    pub(crate) fn weight(&self) -> usize {
        let blobs = self
            .columns
            .iter()
            .filter_map(|(_, value)| value.as_ref()?.as_blob());
        blobs.map(Vec::len).sum()
    }

    /// Whether a conditional update was applied.
    pub(crate) fn applied(&mut self, what: What) -> Result<bool, StoreError> {
        self.truth("[applied]")
            .ok_or_else(|| nonsense(what, "it does not say whether the update was applied"))
    }
}

/// A time as Cassandra's settings write it: `1800ms`, `2s`, `3h`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text.get(..digits)?.parse().ok()?;
    Some(match text.get(digits..)? {
        "ns" => Duration::from_nanos(number),
        "us" | "µs" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3_600)),
        "d" => Duration::from_secs(number.saturating_mul(86_400)),
        _ => return None,
    })
}

/// A number of bytes as Cassandra's settings write it: `16MiB`, `64KiB`, `512B`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit = match text.get(digits..)? {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;

    fn db(error: DbError) -> ExecutionError {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, "text".into()))
    }

    #[test]
    fn only_what_was_never_done_is_called_refused() {
        let what = What::Writes("the update");
        for error in [
            DbError::Invalid,
            DbError::SyntaxError,
            DbError::Unauthorized,
        ] {
            let error = store_error(what, &db(error));
            assert!(matches!(error, StoreError::Refused(_)), "{error}");
        }
        let timeout = DbError::WriteTimeout {
            consistency: Consistency::Quorum,
            received: 0,
            required: 2,
            write_type: WriteType::Cas,
        };
        let down = DbError::Unavailable {
            consistency: Consistency::Serial,
            required: 2,
            alive: 1,
        };
        for error in [
            timeout,
            down,
            DbError::Overloaded,
            DbError::ServerError,
            DbError::Other(7),
        ] {
            let error = store_error(what, &db(error));
            assert!(matches!(error, StoreError::Unknown(_)), "{error}");
            assert!(
                error.sentence().contains("may have taken effect"),
                "{error}"
            );
        }
        let late = ExecutionError::RequestTimeout(Duration::from_secs(6));
        assert!(matches!(store_error(what, &late), StoreError::Unknown(_)));
        assert!(matches!(
            store_error(what, &ExecutionError::EmptyPlan),
            StoreError::Refused(_)
        ));
    }

    #[test]
    fn durations_of_settings_are_understood() {
        assert_eq!(duration("1800ms"), Some(Duration::from_millis(1800)));
        assert_eq!(duration("3h"), Some(Duration::from_secs(10_800)));
        assert_eq!(duration("2s"), Some(Duration::from_secs(2)));
        for text in ["", "12", "ms", "1 s", "2x"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_of_settings_are_understood() {
        assert_eq!(bytes("16MiB"), Some(16 << 20));
        assert_eq!(bytes("32768KiB"), Some(32 << 20));
        assert_eq!(bytes("1B"), Some(1));
        for text in ["", "12", "MiB", "1 KiB", "2MB", "99999999999GiB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
