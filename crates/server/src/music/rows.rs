//! Rows: units, and what a write makes of one.
//!
//! A *unit* is all rows whose first key column has one value: one Fermata value, the JSON of its
//! rows, under one key. So a lock, which names the first key column's value, is the lock of all
//! that it guards; and conditions, updates and deletes of any of its rows are one write. In a table
//! without a clustering a unit is a row. A unit is bounded by the largest value of the cluster (16
//! MiB unless configured), and what goes beyond is refused.

use super::answers::Failure;
use super::expiry::Millis;
use super::schema::{Table, column_name};
use super::values::compare;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Beside a row's columns, under a name that none has: when those are over that expire, and, under
/// this name again, when the row is that was inserted so.
const UNTIL: &str = "";

/// A row as it is kept: what is not null, and [`UNTIL`].
pub(super) type Row = Map<String, Value>;
/// Columns and what they are set to; none is null.
pub(super) type Columns = BTreeMap<String, Option<Value>>;

/// Reads what is in a unit now: columns that are over are not, nor is a row that is, unless a
/// column of it beside its `key` lives on.
///
/// # Errors
/// It is none.
pub(super) fn decode(
    unit: Option<&Bytes>,
    key: &[String],
    now: Millis,
) -> Result<Vec<Row>, Failure> {
    let Some(bytes) = unit else {
        return Ok(vec![]);
    };
    let rows: Result<Vec<Row>, _> = serde_json::from_slice(bytes);
    let mut rows =
        rows.map_err(|_| Failure::error("the rows cannot be read: somebody else wrote their key"))?;
    rows.retain_mut(|row| lives(row, key, now));
    Ok(rows)
}

/// When the first of what expires in a unit is over, whether it is already or not.
pub(super) fn earliest(unit: Option<&Bytes>) -> Option<Millis> {
    let unit = unit?;
    // As it is written. Most units have no such field, and are not read twice.
    let field = format!("{UNTIL:?}:{{");
    if !unit
        .windows(field.len())
        .any(|part| part == field.as_bytes())
    {
        return None;
    }
    let rows: Vec<Row> = serde_json::from_slice(unit).ok()?;
    let times = rows.iter().filter_map(|row| row.get(UNTIL)?.as_object());
    times.flat_map(Map::values).filter_map(Value::as_u64).min()
}

/// Takes out of a row what is over; whether anything of it lives.
fn lives(row: &mut Row, key: &[String], now: Millis) -> bool {
    let Some(until) = row.get(UNTIL).and_then(Value::as_object).cloned() else {
        return true;
    };
    let is_over = |at: &Value| at.as_u64().is_some_and(|at| at <= now);
    for (column, _) in until.iter().filter(|(_, at)| is_over(at)) {
        if column != UNTIL {
            row.remove(column);
            set_until(row, column, None);
        }
    }
    let lives_on = |column: &String| column != UNTIL && !key.contains(column);
    !until.get(UNTIL).is_some_and(is_over) || row.keys().any(lives_on)
}

/// Notes when a column is over, or the row itself: never, where there is no such time.
fn set_until(row: &mut Row, column: &str, at: Option<Millis>) {
    let mut until = match row.remove(UNTIL) {
        Some(Value::Object(until)) => until,
        _ => Map::new(),
    };
    match at {
        Some(at) => drop(until.insert(column.to_owned(), at.into())),
        None => drop(until.remove(column)),
    }
    if !until.is_empty() {
        row.insert(UNTIL.to_owned(), Value::Object(until));
    }
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

/// When what is set is over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expiry {
    /// None: never.
    pub(super) until: Option<Millis>,
    /// So is the row itself, also where it was there; else only one that was not.
    pub(super) of_row: bool,
}

/// What a write does to a unit's rows.
#[derive(Clone, Debug)]
pub(super) enum Write {
    /// Sets columns of one row, which need not be there.
    Upsert {
        key: Key,
        set: Columns,
        expiry: Expiry,
    },
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

    /// When something of what it writes is over, if ever.
    pub(super) fn until(&self) -> Option<Millis> {
        match self {
            Write::Upsert { expiry, .. } => expiry.until,
            Write::Delete { .. } => None,
        }
    }

    /// Whether it decides the whole unit, whatever is there: then nothing has to be read before.
    pub(super) fn covers(&self, table: &Table) -> bool {
        table.is_single()
            && match self {
                // With a time an update leaves the row's own as it is.
                Write::Upsert { set, expiry, .. } => {
                    set.len() + 1 == table.columns.len()
                        && (expiry.of_row || expiry.until.is_none())
                }
                Write::Delete { columns, .. } => columns.is_none(),
            }
    }

    /// Applies it, and leaves nothing that is over by then.
    pub(super) fn apply(&self, table: &Table, rows: &mut Vec<Row>, now: Millis) {
        self.change(table, rows);
        rows.retain_mut(|row| lives(row, &table.key, now));
    }

    fn change(&self, table: &Table, rows: &mut Vec<Row>) {
        match self {
            Write::Upsert { key, set, expiry } => {
                let there = rows.iter().position(|row| matches(row, key));
                let at = there.unwrap_or_else(|| {
                    rows.push(key.clone().into_iter().collect());
                    rows.len() - 1
                });
                let row = &mut rows[at];
                if expiry.of_row || there.is_none() {
                    set_until(row, UNTIL, expiry.until);
                }
                for (column, value) in set {
                    match value {
                        Some(value) => row.insert(column.clone(), value.clone()),
                        None => row.remove(column),
                    };
                    set_until(row, column, expiry.until.filter(|_| value.is_some()));
                }
                rows.sort_by(|a, b| clustered(table, a, b));
            }
            Write::Delete { key, columns: None } => rows.retain(|row| !matches(row, key)),
            Write::Delete {
                key,
                columns: Some(columns),
            } => {
                for row in rows.iter_mut().filter(|row| matches(row, key)) {
                    for column in columns {
                        row.remove(column);
                        set_until(row, column, None);
                    }
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

#[cfg(test)]
mod tests {
    use super::super::values::Type;
    use super::*;

    fn table() -> Table {
        let text = || Type::parse("text").unwrap();
        let columns = ["k", "a", "b"].map(|name| (name.to_owned(), text()));
        Table {
            id: "1".into(),
            columns: columns.into_iter().collect(),
            key: vec!["k".into()],
            partition: 1,
            descending: Default::default(),
            indexes: Default::default(),
        }
    }

    fn upsert(set: &[(&str, &str)], until: Option<Millis>, of_row: bool) -> Write {
        let value = |(name, value): &(&str, &str)| ((*name).to_owned(), Some(json!(value)));
        Write::Upsert {
            key: [("k".to_owned(), json!("1"))].into(),
            set: set.iter().map(value).collect(),
            expiry: Expiry { until, of_row },
        }
    }

    /// What these writes leave, at a time.
    fn seen(writes: &[Write], now: Millis) -> Value {
        let (table, mut unit) = (table(), None);
        for write in writes {
            let mut rows = decode(unit.as_ref(), &table.key, 0).unwrap();
            write.apply(&table, &mut rows, 0);
            unit = encode(&rows);
        }
        let rows = decode(unit.as_ref(), &table.key, now).unwrap();
        json!(
            rows.iter()
                .map(|row| [row.get("a"), row.get("b")])
                .collect::<Vec<_>>()
        )
    }

    #[test]
    fn what_is_inserted_to_expire_is_there_until_then() {
        let insert = upsert(&[("a", "1"), ("b", "2")], Some(10), true);
        assert_eq!(seen(std::slice::from_ref(&insert), 9), json!([["1", "2"]]));
        assert_eq!(seen(std::slice::from_ref(&insert), 10), json!([]));
        // A column that is set for good keeps the row, and is alone then.
        let update = upsert(&[("b", "3")], None, false);
        assert_eq!(seen(&[insert.clone(), update], 10), json!([[null, "3"]]));
        // What is inserted again for good stays.
        let again = upsert(&[("a", "4")], None, true);
        assert_eq!(seen(&[insert, again], 10), json!([["4", null]]));
    }

    #[test]
    fn a_column_expires_alone_and_a_row_that_an_update_has_made_with_its_last_one() {
        let insert = upsert(&[("a", "1")], None, true);
        let update = upsert(&[("b", "2")], Some(10), false);
        let both = [insert, update.clone()];
        assert_eq!(seen(&both, 9), json!([["1", "2"]]));
        assert_eq!(seen(&both, 10), json!([["1", null]]));
        let longer = upsert(&[("a", "3")], Some(20), false);
        let made = [update, longer];
        assert_eq!(seen(&made, 10), json!([["3", null]]));
        assert_eq!(seen(&made, 20), json!([]));
    }

    #[test]
    fn who_deletes_a_column_deletes_its_time_and_no_time_is_shown() {
        let insert = upsert(&[("a", "1")], None, true);
        let update = upsert(&[("b", "2")], Some(10), false);
        let delete = Write::Delete {
            key: [("k".to_owned(), json!("1"))].into(),
            columns: Some(vec!["b".into()]),
        };
        let table = table();
        let mut rows = vec![];
        for write in [insert, update] {
            write.apply(&table, &mut rows, 0);
        }
        let row = json!({"k": "1", "a": "1", "b": "2"});
        assert_eq!(shown(&table, &rows)["row 0"], row);
        delete.apply(&table, &mut rows, 0);
        assert_eq!(json!(rows), json!([{"k": "1", "a": "1"}]));
        // Of a row that is over, and lived by that column alone, nothing is left.
        let insert = upsert(&[], Some(5), true);
        let mut rows = vec![];
        for (write, now) in [
            (insert, 0),
            (upsert(&[("b", "2")], None, false), 0),
            (delete, 5),
        ] {
            write.apply(&table, &mut rows, now);
        }
        assert!(rows.is_empty(), "{rows:?}");
    }

    #[test]
    fn the_first_time_of_a_unit_is_known_and_an_update_with_one_reads_first() {
        let table = table();
        let all = |until, of_row| upsert(&[("a", "1"), ("b", "2")], until, of_row);
        assert!(all(Some(9), true).covers(&table) && all(None, false).covers(&table));
        assert!(
            !all(Some(9), false).covers(&table),
            "the row may be for good"
        );
        let mut rows = vec![];
        all(Some(9), true).apply(&table, &mut rows, 0);
        upsert(&[("b", "3")], Some(7), false).apply(&table, &mut rows, 0);
        assert_eq!(earliest(encode(&rows).as_ref()), Some(7));
        all(None, true).apply(&table, &mut rows, 0);
        assert_eq!(earliest(encode(&rows).as_ref()), None);
    }
}
