//! Keyspace and tables: made where they are absent, and looked at closely where they are not.
//!
//! Two nodes of Cassandra that are told to create one table at the same time each give it an
//! identity of its own, and the servers then disagree about the rows for ever. So all creators say
//! it to the same node, the one with the lowest identity among those that are up, which carries out
//! one change of the schema after the other; `IF NOT EXISTS` does the rest.

use crate::checks::Cluster;
use crate::driver::{AGAIN, Named, What, brief, is_definite, rows, statement};
use crate::settings::Settings;
use scylla::client::session::Session;
use scylla::policies::load_balancing::NodeIdentifier;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long Paxos state of a table and markers of deletes live at least, in seconds: the default of
/// Cassandra, 10 days. It must be longer than the longest hint and repair.
const GRACE_MIN: i64 = 864_000;

/// Options that both tables are created with, and must have.
const OPTIONS: &str =
    "gc_grace_seconds = 864000 AND default_time_to_live = 0 AND read_repair = 'BLOCKING'";

/// A table: its name, what creates it, its columns (name, kind, type).
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static str,
    pub(crate) found: &'static [(&'static str, &'static str, &'static str)],
}

/// The two tables of the engine.
pub(crate) const TABLES: [Table; 2] = [
    Table {
        name: "lock",
        columns: "k blob PRIMARY KEY, v bigint, s blob",
        found: &[
            ("k", "partition_key", "blob"),
            ("s", "regular", "blob"),
            ("v", "regular", "bigint"),
        ],
    },
    Table {
        name: "data",
        columns: "k blob PRIMARY KEY, c blob, e blob",
        found: &[
            ("c", "regular", "blob"),
            ("e", "regular", "blob"),
            ("k", "partition_key", "blob"),
        ],
    },
];

/// A map of CQL: `{'class': 'NetworkTopologyStrategy', 'dc1': 3}`.
fn replication_text(replication: &BTreeMap<String, u32>) -> String {
    let mut text = String::from("{'class': 'NetworkTopologyStrategy'");
    for (dc, copies) in replication {
        text.push_str(&format!(", '{}': {copies}", dc.replace('\'', "''")));
    }
    text.push('}');
    text
}

async fn select(session: &Session, text: &str) -> Result<Vec<Named>, String> {
    let fail = |why: String| format!("Cassandra's schema could not be read: {why}");
    let result = session
        .query_unpaged(statement(text, None), &[])
        .await
        .map_err(|error| fail(brief(&error)))?;
    let what = What::Reads("the read of the schema");
    rows(what, result).map_err(|error| fail(error.to_string()))
}

/// Has keyspace and tables created where they are absent, and waits until all nodes know them.
///
/// # Errors
/// One sentence.
pub(crate) async fn ensure(
    session: &Session,
    settings: &Settings,
    tables: &[Table],
    cluster: &Cluster,
) -> Result<(), String> {
    let keyspace = &settings.keyspace;
    let create = async |what: String, text: String| {
        if !settings.create_schema {
            return Err(format!(
                "{what} does not exist, and create_schema is off: create it with {text}"
            ));
        }
        created(session, settings, &cluster.nodes[0].id, &what, &text).await
    };
    let found = select(
        session,
        &format!(
            "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'"
        ),
    )
    .await?;
    if found.is_empty() {
        if settings.replication.is_empty() {
            return Err(format!(
                "the keyspace {keyspace} does not exist, and no replication is set to create it \
                 with: set the number of replicas of each data center, 3 or more in all"
            ));
        }
        settings.check_nodes(&cluster.centers)?;
        let replication = replication_text(&settings.replication);
        let text = format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication} AND \
             durable_writes = true"
        );
        create(format!("the keyspace {keyspace}"), text).await?;
    }
    let found = select(
        session,
        &format!("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"),
    )
    .await?;
    let found: BTreeSet<String> = found
        .into_iter()
        .filter_map(|mut row| row.text("table_name"))
        .collect();
    for table in tables.iter().filter(|table| !found.contains(table.name)) {
        let Table { name, columns, .. } = table;
        let text =
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.{name} ({columns}) WITH {OPTIONS}");
        create(format!("the table {keyspace}.{name}"), text).await?;
    }
    agree(session, settings.timeouts.start).await
}

/// Has one thing created that may be there already, however often it takes: servers that have just
/// started can be slow with it.
async fn created(
    session: &Session,
    settings: &Settings,
    creator: &NodeIdentifier,
    what: &str,
    text: &str,
) -> Result<(), String> {
    let until = Instant::now() + settings.timeouts.start;
    loop {
        let create = session.query_unpaged(statement(text, Some(creator)), &[]);
        match create.await {
            Ok(_) => return Ok(()),
            Err(error) if is_definite(&error) => {
                return Err(format!("{what} was not created: {}", brief(&error)));
            }
            Err(_) if Instant::now() < until => tokio::time::sleep(AGAIN).await,
            Err(error) => {
                return Err(format!(
                    "{what} is not known to be created: {}; it may be by now, or later: start \
                     again when Cassandra answers",
                    brief(&error)
                ));
            }
        }
    }
}

/// Waits until all nodes have the same schema.
async fn agree(session: &Session, patience: Duration) -> Result<(), String> {
    let agreed = tokio::time::timeout(patience, session.await_schema_agreement()).await;
    let why = match agreed {
        Ok(Ok(_)) => match session.refresh_metadata().await {
            Ok(()) => return Ok(()),
            Err(error) => error.to_string(),
        },
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("they have not within {patience:?}"),
    };
    Err(format!(
        "the nodes of Cassandra do not agree on the schema: wait, or repair it, and start again \
         ({why})"
    ))
}

/// Looks at the keyspace: the data centers of the cluster are `centers`.
///
/// # Errors
/// One sentence.
pub(crate) async fn check_keyspace(
    session: &Session,
    settings: &Settings,
    centers: &BTreeMap<String, u32>,
) -> Result<BTreeMap<String, u32>, String> {
    let keyspace = &settings.keyspace;
    let text = format!(
        "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = \
         '{keyspace}'"
    );
    let mut row = select(session, &text)
        .await?
        .pop()
        .ok_or_else(|| format!("the keyspace {keyspace} was dropped meanwhile: start again"))?;
    let alter = |replication: &BTreeMap<String, u32>| {
        let replication = replication_text(replication);
        format!("ALTER KEYSPACE {keyspace} WITH replication = {replication}")
    };
    let mut found = BTreeMap::new();
    for (name, value) in row.texts("replication").unwrap_or_default() {
        if name == "class" {
            if !value.ends_with("NetworkTopologyStrategy") {
                return Err(format!(
                    "the keyspace {keyspace} is replicated by {value}, which does not know data \
                     centers: {}, then repair it",
                    alter(&settings.replication)
                ));
            }
        } else {
            let copies = value.parse().map_err(|_| {
                format!(
                    "the keyspace {keyspace} has {value} replicas in {name}, and transient ones \
                     cannot be counted on: {}",
                    alter(&settings.replication)
                )
            })?;
            found.insert(name, copies);
        }
    }
    if row.truth("durable_writes") != Some(true) {
        return Err(format!(
            "the keyspace {keyspace} has durable_writes off, so acknowledged writes are lost when \
             nodes restart: ALTER KEYSPACE {keyspace} WITH durable_writes = true"
        ));
    }
    check_replication(settings, &found, centers, alter)?;
    Ok(found)
}

fn check_replication(
    settings: &Settings,
    found: &BTreeMap<String, u32>,
    centers: &BTreeMap<String, u32>,
    alter: impl Fn(&BTreeMap<String, u32>) -> String,
) -> Result<(), String> {
    let keyspace = &settings.keyspace;
    let wanted = &settings.replication;
    if !wanted.is_empty() && wanted != found {
        return Err(format!(
            "the keyspace {keyspace} is replicated {}, and the configuration says {}: set the one \
             that is meant, by {}, and then repair, or in the configuration",
            replication_brief(found),
            replication_brief(wanted),
            alter(wanted)
        ));
    }
    if let Some(dc) = found.keys().find(|dc| !centers.contains_key(*dc)) {
        return Err(format!(
            "the keyspace {keyspace} has replicas in data center '{dc}', where the cluster has no \
             nodes: replicate it to {}",
            join(centers.keys())
        ));
    }
    let copies: u32 = found.values().sum();
    if copies < 3 && !settings.allow_few_replicas {
        return Err(format!(
            "the keyspace {keyspace} has {copies} replicas in all, and no node of Cassandra could \
             be lost without losing the quorum: replicate it at least three times, or set \
             allow_few_replicas"
        ));
    }
    Ok(())
}

/// `dc1: 1, dc2: 1`.
pub(crate) fn replication_brief(replication: &BTreeMap<String, u32>) -> String {
    let parts: Vec<String> = replication
        .iter()
        .map(|(dc, copies)| format!("{dc}: {copies}"))
        .collect();
    parts.join(", ")
}

/// Names in a row.
pub(crate) fn join<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    names.join(", ")
}

/// Looks at a table: its columns and its options.
///
/// # Errors
/// One sentence.
pub(crate) async fn check_table(
    session: &Session,
    keyspace: &str,
    table: &Table,
) -> Result<(), String> {
    let at = format!(
        "WHERE keyspace_name = '{keyspace}' AND table_name = '{}'",
        table.name
    );
    let text = format!("SELECT column_name, kind, type FROM system_schema.columns {at}");
    let found = select(session, &text).await?;
    check_columns(keyspace, table, found)?;
    let text = format!(
        "SELECT gc_grace_seconds, default_time_to_live, read_repair FROM system_schema.tables {at}"
    );
    let name = format!("{keyspace}.{}", table.name);
    match select(session, &text).await?.pop() {
        Some(row) => check_options(&name, row),
        None => Err(format!(
            "the table {name} was dropped meanwhile: start again"
        )),
    }
}

fn check_columns(keyspace: &str, table: &Table, found: Vec<Named>) -> Result<(), String> {
    let column = |mut row: Named| {
        Some([
            row.text("column_name")?,
            row.text("kind")?,
            row.text("type")?,
        ])
    };
    let mut found: Vec<[String; 3]> = found.into_iter().filter_map(column).collect();
    found.sort();
    let expected = table
        .found
        .iter()
        .map(|(name, kind, of)| [*name, *kind, *of]);
    if found
        .iter()
        .map(|column| column.each_ref().map(String::as_str))
        .eq(expected)
    {
        return Ok(());
    }
    let found: Vec<String> = found
        .iter()
        .map(|[name, kind, of]| format!("{name} {of} {kind}"))
        .collect();
    Err(format!(
        "the table {keyspace}.{} has the columns ({}), and not ({}): another program made it; set \
         another keyspace",
        table.name,
        found.join(", "),
        table.columns
    ))
}

/// Looks at the options of the table `name`.
fn check_options(name: &str, mut row: Named) -> Result<(), String> {
    let alter = |option: &str| format!("ALTER TABLE {name} WITH {option}");
    let (grace, ttl) = (
        row.number("gc_grace_seconds"),
        row.number("default_time_to_live"),
    );
    if ttl != Some(0) {
        return Err(format!(
            "the table {name} has default_time_to_live = {}, so its rows vanish: {}",
            ttl.unwrap_or_default(),
            alter("default_time_to_live = 0")
        ));
    }
    if grace.is_none_or(|grace| grace < GRACE_MIN) {
        return Err(format!(
            "the table {name} has gc_grace_seconds = {}, and Paxos state that is thrown away so \
             early loses updates: {}",
            grace.unwrap_or_default(),
            alter("gc_grace_seconds = 864000")
        ));
    }
    let repair = row.text("read_repair").unwrap_or_default();
    if repair != "BLOCKING" {
        return Err(format!(
            "the table {name} has read_repair = '{repair}', so what one read returns a later one \
             may not: {}",
            alter("read_repair = 'BLOCKING'")
        ));
    }
    Ok(())
}
