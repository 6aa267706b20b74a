//! The calls that define: keyspaces, tables, indexes; and the priority queues, which are tables.

use super::answers::{Failure, MusicAnswer};
use super::row_calls::listed;
use super::schema::{
    Change, NewTable, Schema, Table, TableName, column_name, keyspace_name, rows_prefix,
};
use super::{Call, Music};
use fermata_protocol::request::Operation;
use serde_json::{Map, Value};

/// Times that the removal of a dropped table's rows is tried again.
const SWEEPS_MAX: usize = 3;

/// A scalar of a body as text, nothing if it is not there.
fn text(body: &Map<String, Value>, name: &str) -> Result<String, Failure> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(Failure::syntax(format!("{name} is not text"))),
    }
}

/// The words of a table in a body.
pub(super) fn new_table(body: &Map<String, Value>) -> Result<NewTable, Failure> {
    let fields = match body.get("fields") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(fields)) => fields.clone(),
        Some(_) => return Err(Failure::syntax("fields is not a JSON object")),
    };
    let field = |(name, kind): (String, Value)| match kind {
        Value::String(kind) => Ok((name, kind)),
        _ => Err(Failure::syntax(format!("the type of {name} is not text"))),
    };
    Ok(NewTable {
        fields: fields.into_iter().map(field).collect::<Result<_, _>>()?,
        primary_key: text(body, "primaryKey")?,
        partition_key: text(body, "partitionKey")?,
        clustering_key: text(body, "clusteringKey")?,
        filtering_key: text(body, "filteringKey")?,
        clustering_order: text(body, "clusteringOrder")?,
    })
}

impl Music {
    /// `POST /keyspaces/{ks}`. Where its rows are is the cluster's: `replicationInfo` is asked for
    /// and not used.
    pub(super) async fn create_keyspace(
        &self,
        call: &Call,
        given: &str,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        let replication = body.get("replicationInfo").and_then(Value::as_object);
        let consistency = body.get("consistencyInfo").and_then(Value::as_object);
        if replication.is_none_or(Map::is_empty) || consistency.is_none() {
            return Err(Failure::error(
                "Incomplete Request body. Please correct your input request and retry: \
                 replicationInfo and consistencyInfo are required",
            ));
        }
        let keyspace = keyspace_name(given)?;
        self.store.may_define(&call.caller, &keyspace, None)?;
        self.store.ensure().await?;
        let create = |now: Option<Schema>| match now {
            None => Ok(Change::To(Some(Schema::default()))),
            Some(_) => Err(Failure::error(format!(
                "Already Exists Exception: Keyspace {given} already exists"
            ))),
        };
        self.store.change_schema(&keyspace, create).await?;
        Ok(MusicAnswer::message(format!("Keyspace {given} Created")))
    }

    /// `DELETE /keyspaces/{ks}`.
    pub(super) async fn drop_keyspace(
        &self,
        call: &Call,
        given: &str,
    ) -> Result<MusicAnswer, Failure> {
        let keyspace = keyspace_name(given)?;
        self.store.may_define(&call.caller, &keyspace, None)?;
        let mut dropped = Vec::new();
        let drop = |now: Option<Schema>| match now {
            Some(schema) => {
                dropped.extend(schema.tables);
                Ok(Change::To(None))
            }
            None => Err(Failure::error(format!(
                "Error Deleteing Keyspace {given} Query Exception: Keyspace '{given}' doesn't exist"
            ))),
        };
        self.store.change_schema(&keyspace, drop).await?;
        for (table, definition) in dropped {
            let keyspace = keyspace.clone();
            self.sweep(TableName { keyspace, table }, definition);
        }
        Ok(MusicAnswer::message(format!("Keyspace {given} Deleted")))
    }

    /// `POST /keyspaces/{ks}/tables/{t}`.
    pub(super) async fn create_table(
        &self,
        call: &Call,
        (keyspace, table): (&str, &str),
    ) -> Result<MusicAnswer, Failure> {
        let new = new_table(&call.json()?)?;
        let name = TableName::parse(keyspace, table)?;
        let of = Some(name.table.as_str());
        self.store.may_define(&call.caller, &name.keyspace, of)?;
        let id = format!("{:032x}", self.store.session().0);
        let definition = new.define(id)?;
        let create = |now: Option<Schema>| {
            let mut schema = now.ok_or_else(|| no_keyspace(keyspace))?;
            if schema.tables.contains_key(&name.table) {
                return Err(Failure::error(format!(
                    "Already Exists Exception: Table {name} already exists"
                )));
            }
            schema.tables.insert(name.table.clone(), definition);
            Ok(Change::To(Some(schema)))
        };
        self.store.change_schema(&name.keyspace, create).await?;
        Ok(MusicAnswer::message(format!(
            "TableName {table} Created under keyspace {keyspace}"
        )))
    }

    /// `DELETE /keyspaces/{ks}/tables/{t}`.
    pub(super) async fn drop_table(
        &self,
        call: &Call,
        (keyspace, table): (&str, &str),
    ) -> Result<MusicAnswer, Failure> {
        let name = TableName::parse(keyspace, table)?;
        let of = Some(name.table.as_str());
        self.store.may_define(&call.caller, &name.keyspace, of)?;
        let mut dropped = None;
        let drop = |now: Option<Schema>| {
            let mut schema = now.ok_or_else(|| no_keyspace(keyspace))?;
            let removed = schema.tables.remove(&name.table);
            let removed = removed.ok_or_else(|| no_table(&name))?;
            dropped = Some(removed);
            Ok(Change::To(Some(schema)))
        };
        self.store.change_schema(&name.keyspace, drop).await?;
        if let Some(definition) = dropped {
            self.sweep(name, definition);
        }
        Ok(MusicAnswer::success(Value::Null))
    }

    /// `POST .../index/{column}`.
    pub(super) async fn create_index(
        &self,
        call: &Call,
        (keyspace, table): (&str, &str),
        column: &str,
    ) -> Result<MusicAnswer, Failure> {
        let name = TableName::parse(keyspace, table)?;
        let of = Some(name.table.as_str());
        self.store.may_define(&call.caller, &name.keyspace, of)?;
        let known = column_name(column).ok();
        let create = |now: Option<Schema>| {
            let mut schema = now.ok_or_else(|| no_keyspace(keyspace))?;
            let definition = schema.tables.get_mut(&name.table);
            let definition = definition.ok_or_else(|| no_table(&name))?;
            match known.filter(|known| definition.columns.contains_key(known)) {
                None => Err(Failure::error(format!(
                    "Query Exception: Undefined column name {column} in table {name}"
                ))),
                Some(known) if !definition.indexes.insert(known.clone()) => Ok(Change::Nothing),
                Some(_) => Ok(Change::To(Some(schema))),
            }
        };
        self.store.change_schema(&name.keyspace, create).await?;
        Ok(MusicAnswer::message(format!(
            "Index Created on {keyspace}.{table}.{column}"
        )))
    }

    /// Removes a dropped table's rows, in the background: nobody sees them, since no later table
    /// has its id; rows left by a stop of this node take space, nothing else.
    fn sweep(&self, name: TableName, table: Table) {
        let store = self.store.clone();
        tokio::spawn(async move {
            let prefix = rows_prefix(&name, &table);
            for _ in 0..SWEEPS_MAX {
                let mut after = None;
                while let Ok((page, _)) = store.page(&prefix, after).await {
                    after = page.last().cloned();
                    if page.is_empty() {
                        break;
                    }
                    for key in page {
                        let Ok(key) = store.key(key).await else {
                            return;
                        };
                        let write = Operation::Write { key, value: None };
                        // A row that is not removed now is in the next listing.
                        let _ = store.ask(store.session(), 1, write).await;
                    }
                }
            }
        });
    }

    /// `POST /priorityq/keyspaces/{ks}/{q}`: a table with an order.
    pub(super) async fn create_queue(
        &self,
        call: &Call,
        names: (&str, &str),
    ) -> Result<MusicAnswer, Failure> {
        if text(&call.json()?, "clusteringOrder")?.trim().is_empty() {
            return Err(Failure::error(
                "Clustering Order can not be empty: a priority queue is a table with an order",
            ));
        }
        self.create_table(call, names).await
    }

    /// `GET /priorityq/.../peek?key`: the first row.
    pub(super) async fn peek(&self, call: &Call, name: &TableName) -> Result<MusicAnswer, Failure> {
        let (table, mut found) = self.selected(call, name).await?;
        found.truncate(1);
        Ok(listed(call, &table, &found))
    }
}

fn no_keyspace(given: &str) -> Failure {
    Failure::error(format!("Query Exception: Keyspace '{given}' doesn't exist"))
}

fn no_table(name: &TableName) -> Failure {
    Failure::error(format!("Query Exception: Table '{name}' doesn't exist"))
}
