//! The conditional calls: a row, and one entry of a map in it whose text is JSON with a status.
//!
//! Each is one section of its own. As in the original, what fails inside is 200 with FAILURE, and
//! what is missing 401. Unlike there, an update's `tableValues` are written, and a row that has
//! gone is said to have gone.

use super::answers::{Failure, MusicAnswer};
use super::expiry;
use super::rows::{self, Columns, Expiry, Key, Row, Write};
use super::schema::{Table, TableName};
use super::values::Type;
use super::{Call, Music};
use bytes::Bytes;
use fermata_access::Right;
use serde_json::{Map, Value, json};

/// What a conditional call says.
struct Asked {
    key: Key,
    /// The map's column.
    column: String,
    entry: String,
    value: Map<String, Value>,
    set: Columns,
    /// What to add to the value where the row is there, and where it is not.
    exists: Map<String, Value>,
    absent: Map<String, Value>,
}

/// The call's fields; the key's value is any scalar.
fn parts<'a>(body: &'a Map<String, Value>, names: &[&str]) -> Result<Vec<&'a Value>, Failure> {
    let part = |name: &&str| {
        let value = body
            .get(*name)
            .filter(|value| !value.is_null() && *value != "");
        value.ok_or_else(|| {
            Failure::missing(format!(
                "Incomplete Request body: {name} is missing. Please check to make sure all inputs \
                 are valid."
            ))
        })
    };
    names.iter().map(part).collect()
}

fn map(value: Option<&Value>, name: &str) -> Result<Map<String, Value>, Failure> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(Failure::missing(format!("{name} is not a JSON object"))),
    }
}

impl Asked {
    fn parse(table: &Table, body: &Map<String, Value>, insert: bool) -> Result<Asked, Failure> {
        let mut names = vec![
            "primaryKey",
            "primaryKeyValue",
            "casscadeColumnName",
            "casscadeColumnData",
        ];
        if insert {
            names.extend(["tableValues", "conditions"]);
        }
        let found = parts(body, &names)?;
        let text = |value: &Value, name: &str| {
            let text = value.as_str().map(str::to_owned);
            text.ok_or_else(|| Failure::missing(format!("{name} is not text")))
        };
        let primary = rows::known(table, &text(found[0], names[0])?)?;
        if table.key.len() != 1 || primary != table.unit_column() {
            return Err(Failure::error(format!(
                "{primary} is not the primary key of the table"
            )));
        }
        let column = rows::known(table, &text(found[2], names[2])?)?;
        let is_text = |kind: &Type| matches!(kind, Type::Text(_));
        match &table.columns[&column] {
            Type::Map(key, value) if is_text(key) && is_text(value) => {}
            kind => {
                return Err(Failure::error(format!(
                    "{column} is of type {kind}, not map<text, text>"
                )));
            }
        }
        let given = [(primary.clone(), found[1].clone())].into_iter().collect();
        let value = rows::columns(table, &given)?.remove(&primary).flatten();
        let value = value.ok_or_else(|| Failure::missing("primaryKeyValue is missing"))?;
        let data = map(Some(found[3]), names[3])?;
        let conditions = map(body.get("conditions"), "conditions")?;
        let mut set = rows::columns(table, &map(body.get("tableValues"), "tableValues")?)?;
        if set
            .remove(&primary)
            .is_some_and(|set| set.as_ref() != Some(&value))
        {
            return Err(Failure::error(format!(
                "tableValues has another {primary} than primaryKeyValue"
            )));
        }
        set.remove(&column);
        let entry = parts(&data, &["key"])?[0];
        Ok(Asked {
            key: [(primary, value)].into_iter().collect(),
            column,
            entry: text(entry, "casscadeColumnData.key")?,
            value: map(data.get("value"), "casscadeColumnData.value")?,
            set,
            exists: map(conditions.get("exists"), "conditions.exists")?,
            absent: map(conditions.get("nonexists"), "conditions.nonexists")?,
        })
    }

    /// The row's map with one entry changed.
    fn cascade(&self, row: Option<&Row>, value: &Map<String, Value>) -> Option<Value> {
        let now = row.and_then(|row| row.get(&self.column));
        let mut entries = now.and_then(Value::as_object).cloned().unwrap_or_default();
        entries.insert(self.entry.clone(), json!(value).to_string().into());
        Some(Value::Object(entries))
    }

    /// What an insert makes of the row, and its message.
    fn insert(&self, row: Option<&Row>) -> (Columns, String) {
        let mut value = self.value.clone();
        if row.is_some() {
            value.extend(self.exists.clone());
            let set = [(self.column.clone(), self.cascade(row, &value))].into();
            return (set, format!("Update values: {}", json!(value)));
        }
        value.extend(self.absent.clone());
        let mut set = self.set.clone();
        set.insert(self.column.clone(), self.cascade(row, &value));
        (set, "Insert values: ".into())
    }

    /// What an update makes of the row.
    fn update(&self, row: Option<&Row>) -> Result<Columns, Failure> {
        let row =
            row.ok_or_else(|| Failure::error("the row does not exist: nothing was updated"))?;
        let now = row.get(&self.column).and_then(|map| map.get(&self.entry));
        let now = now.and_then(Value::as_str).ok_or_else(|| {
            Failure::error(format!(
                "{} has no entry {}: nothing was updated",
                self.column, self.entry
            ))
        })?;
        let mut value: Map<String, Value> = serde_json::from_str(now).map_err(|_| {
            Failure::error(format!(
                "the entry {} of {} is not a JSON object: nothing was updated",
                self.entry, self.column
            ))
        })?;
        for (field, new) in &self.value {
            if let Some(old) = value.get_mut(field) {
                *old = new.clone();
            }
        }
        let mut set = self.set.clone();
        set.insert(self.column.clone(), self.cascade(Some(row), &value));
        Ok(set)
    }
}

impl Music {
    /// `POST /conditional/insert/...` and `PUT /conditional/update/...`.
    pub(super) async fn conditional(
        &self,
        call: &Call,
        name: &TableName,
        insert: bool,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        if expiry::of(&body)?.is_some() {
            return Err(Failure::error(
                "a conditional call has no ttl: insert the row with one. Nothing was written",
            ));
        }
        self.store.may_know(&call.caller, name)?;
        let table = self.store.find_table(name, |_| true).await?;
        let table = table.ok_or_else(|| {
            Failure::missing("Table name doesn't exists. Please check the table name.")
        })?;
        let asked = Asked::parse(&table, &body, insert)?;
        let asks = (call, &[Right::Read, Right::Write][..]);
        let unit = self.unit_id(asks, name, &table, &asked.key).await?;
        let mut said = "update success".to_owned();
        let act = |now: Option<&Bytes>| {
            let mut rows = rows::decode(now, &table.key, expiry::now())?;
            let set = if insert {
                let (set, message) = asked.insert(rows.first());
                said = message;
                set
            } else {
                asked.update(rows.first())?
            };
            let key = asked.key.clone();
            let expiry = Expiry::default();
            Write::Upsert { key, set, expiry }.apply(&table, &mut rows, expiry::now());
            Ok(Some(rows::encode(&rows)))
        };
        match self.section(unit, &table, &asked.key, act).await {
            Ok(()) => Ok(MusicAnswer::message(said)),
            // As the original: what fails inside is told with 200.
            Err(failure) => Ok(MusicAnswer {
                status: 200,
                ..failure.into_wait().into()
            }),
        }
    }
}
