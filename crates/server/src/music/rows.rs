//! Rows: units, and what a write makes of one.
//!
//! A *unit* is all rows whose first key column has one value: one Fermata value, the JSON of its
//! rows, under one key. So a lock, which names the first key column's value, is the lock of all
//! that it guards; and conditions, updates and deletes of any of its rows are one write. In a table
//! without a clustering a unit is a row. A unit is bounded by the largest value of the cluster (16
//! MiB unless configured), and what goes beyond is refused.

use super::answers::Failure;
use super::schema::{Table, column_name};
use super::values::compare;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A row as it is kept: what is not null.
pub(super) type Row = Map<String, Value>;
/// Columns and what they are set to; none is null.
pub(super) type Columns = BTreeMap<String, Option<Value>>;

/// Reads a unit.
///
/// # Errors
/// It is none.
pub(super) fn decode(unit: Option<&Bytes>) -> Result<Vec<Row>, Failure> {
    let Some(bytes) = unit else {
        return Ok(vec![]);
    };
    serde_json::from_slice(bytes)
        .map_err(|_| Failure::error("the rows cannot be read: somebody else wrote their key"))
}

/// A unit without rows is no value.
pub(super) fn encode(rows: &[Row]) -> Option<Bytes> {
    // Maps with text keys always have a JSON.
    let bytes = || serde_json::to_vec(rows).unwrap_or_default().into();
    (!rows.is_empty()).then(bytes)
}

/// Converts a call's columns.
///
/// # Errors
/// Unknown, named twice, or of another type.
pub(super) fn columns(table: &Table, given: &Map<String, Value>) -> Result<Columns, Failure> {
    let mut set = Columns::new();
    for (name, value) in given {
        let column = known(table, name)?;
        let kind = &table.columns[&column];
        let value = kind
            .convert(value)
            .map_err(|why| Failure::error(format!("Invalid value of column {name} : {why}")))?;
        if set.insert(column, value).is_some() {
            return Err(Failure::error(format!("the column {name} is named twice")));
        }
    }
    Ok(set)
}

/// A column of the table, by any spelling.
pub(super) fn known(table: &Table, name: &str) -> Result<String, Failure> {
    let column = column_name(name).ok();
    column
        .filter(|column| table.columns.contains_key(column))
        .ok_or_else(|| Failure::error(format!("Invalid column name : {name}")))
}

/// Which rows of a unit are meant: key columns and their values.
pub(super) type Key = BTreeMap<String, Value>;

/// The columns of a query, converted.
pub(super) fn query(table: &Table, given: &[(String, String)]) -> Result<Key, Failure> {
    let mut given_once = Map::new();
    for (name, value) in given {
        given_once
            .entry(name.clone())
            .or_insert_with(|| Value::from(value.clone()));
    }
    let mut key = Key::new();
    for (column, value) in columns(table, &given_once)? {
        if let Some(value) = value {
            key.insert(column, value);
        }
    }
    Ok(key)
}

/// Takes the whole primary key out of the columns that are set.
pub(super) fn take_key(table: &Table, set: &mut Columns) -> Result<Key, Failure> {
    let mut key = Key::new();
    let mut missing: Vec<&str> = Vec::new();
    for (at, column) in table.key.iter().enumerate() {
        match set.remove(column).flatten() {
            Some(value) => {
                key.insert(column.clone(), value);
            }
            None if at < table.partition || missing.is_empty() => missing.push(column),
            None => {}
        }
    }
    match missing.first() {
        None => not_empty(table, key),
        Some(first)
            if table.key[..table.partition]
                .iter()
                .any(|column| column == first) =>
        {
            Err(Failure::error(format!(
                "Some required partition key parts are missing: {}",
                missing.join(", ")
            )))
        }
        Some(first) => Err(Failure::error(format!(
            "Some clustering keys are missing: {first}"
        ))),
    }
}

/// A key's first column is never empty: as in CQL, and a lock could not name it.
fn not_empty(table: &Table, key: Key) -> Result<Key, Failure> {
    if key
        .get(table.unit_column())
        .is_some_and(|value| value == "")
    {
        return Err(Failure::error("Key may not be empty"));
    }
    Ok(key)
}

/// The key of an update or a delete: of the primary key, at least its partition's part and no gap.
pub(super) fn where_key(
    table: &Table,
    asked: &[(String, String)],
    whole: bool,
) -> Result<Key, Failure> {
    if asked.is_empty() {
        return Err(Failure::error(
            "Mandatory WHERE clause is missing. Please check the input request.",
        ));
    }
    let key = query(table, asked)?;
    if let Some(other) = key.keys().find(|column| !table.key.contains(column)) {
        return Err(Failure::error(format!(
            "Invalid WHERE clause : {other} is no column of the primary key"
        )));
    }
    let least = if whole {
        table.key.len()
    } else {
        table.partition
    };
    let given = table
        .key
        .iter()
        .take_while(|column| key.contains_key(*column))
        .count();
    if given < least || given < key.len() {
        let missing = &table.key[given];
        return Err(Failure::error(format!(
            "Some required partition key parts are missing: {missing}"
        )));
    }
    not_empty(table, key)
}

/// Whether a row has these values.
pub(super) fn matches(row: &Row, key: &Key) -> bool {
    key.iter()
        .all(|(column, value)| row.get(column) == Some(value))
}

/// What a write does to a unit's rows.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// Sets columns of one row, which need not be there.
    Upsert { key: Key, set: Columns },
    /// Removes columns of one row, or, with none, all rows of the key.
    Delete {
        key: Key,
        columns: Option<Vec<String>>,
    },
}

impl Write {
    pub(super) fn key(&self) -> &Key {
        match self {
            Write::Upsert { key, .. } | Write::Delete { key, .. } => key,
        }
    }

    /// Whether it decides the whole unit, whatever is there: then nothing has to be read before.
    pub(super) fn covers(&self, table: &Table) -> bool {
        table.is_single()
            && match self {
                Write::Upsert { set, .. } => set.len() + 1 == table.columns.len(),
                Write::Delete { columns, .. } => columns.is_none(),
            }
    }

    /// Applies it.
    pub(super) fn apply(&self, table: &Table, rows: &mut Vec<Row>) {
        match self {
            Write::Upsert { key, set } => {
                let at = rows.iter().position(|row| matches(row, key));
                let at = at.unwrap_or_else(|| {
                    rows.push(key.clone().into_iter().collect());
                    rows.len() - 1
                });
                for (column, value) in set {
                    match value {
                        Some(value) => rows[at].insert(column.clone(), value.clone()),
                        None => rows[at].remove(column),
                    };
                }
                rows.sort_by(|a, b| clustered(table, a, b));
            }
            Write::Delete { key, columns: None } => rows.retain(|row| !matches(row, key)),
            Write::Delete {
                key,
                columns: Some(columns),
            } => {
                for row in rows.iter_mut().filter(|row| matches(row, key)) {
                    row.retain(|column, _| !columns.contains(column));
                }
            }
        }
    }
}

/// The order of a unit's rows.
fn clustered(table: &Table, a: &Row, b: &Row) -> Ordering {
    for column in &table.key {
        let null = &Value::Null;
        let order = compare(a.get(column).unwrap_or(null), b.get(column).unwrap_or(null));
        let order = match table.descending.contains(column) {
            true => order.reverse(),
            false => order,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// Checks `conditions` against the one row of the key.
///
/// # Errors
/// They do not hold, or there is no row.
pub(super) fn check(rows: &[Row], key: &Key, conditions: &Columns) -> Result<(), Failure> {
    if conditions.is_empty() {
        return Ok(());
    }
    let row = rows.iter().find(|row| matches(row, key)).ok_or_else(|| {
        Failure::error(
            "Exception thrown while checking the condition, check its sanctity:\n No data found \
             to update",
        )
    })?;
    let holds = |(column, wanted): (&String, &Option<Value>)| row.get(column) == wanted.as_ref();
    match conditions.iter().all(holds) {
        true => Ok(()),
        false => Err(Failure::error(
            "Lock acquired but the condition is not true",
        )),
    }
}

/// Rows as they are shown: all columns, in the envelope's numbering.
pub(super) fn shown(table: &Table, rows: &[Row]) -> Value {
    let mut all = Map::new();
    for (at, row) in rows.iter().enumerate() {
        let column = |(name, kind): (&String, &super::values::Type)| {
            let value = row.get(name).cloned();
            (name.clone(), value.unwrap_or_else(|| kind.unset()))
        };
        let row: Map<String, Value> = table.columns.iter().map(column).collect();
        all.insert(format!("row {at}"), json!(row));
    }
    Value::Object(all)
}
