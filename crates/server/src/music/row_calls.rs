//! The calls under `/rows`.
//!
//! * `critical` (and, with a `lockId`, `atomic`, as clients of the first generation say it): one
//!   critical put under that lock, at its home; one trip.
//! * `atomic`: a section of the call's own, which waits up to five seconds for its turn; two trips.
//! * `eventual`, `eventual_nb`: where the write decides the whole row and nobody holds or waits for
//!   its key, an eventual put, no trip. Otherwise, since a write of some columns that does not read
//!   the others would lose them, and one beside a holder would be lost: a section of its own, as
//!   `atomic`. No answer SUCCESS is ever of a write that is dropped.

use super::answers::{Failure, MusicAnswer};
use super::expiry;
use super::lock_calls::Found;
use super::names::unit_key;
use super::rows::{self, Columns, Expiry, Key, Row, Write};
use super::schema::{Table, TableName, rows_prefix};
use super::values::shown;
use super::{Call, Music, lenient};
use bytes::Bytes;
use fermata_access::Right;
use fermata_protocol::base::KeyId;
use fermata_protocol::{Code, Refusal};
use serde_json::{Map, Value, json};

/// Levels that `consistency` may name; all are met.
const LEVELS: [&str; 11] = [
    "ALL",
    "EACH_QUORUM",
    "QUORUM",
    "LOCAL_QUORUM",
    "ONE",
    "TWO",
    "THREE",
    "LOCAL_ONE",
    "ANY",
    "SERIAL",
    "LOCAL_SERIAL",
];

/// How a call wants to be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Consistency {
    Eventual,
    Atomic,
    Critical(String),
}

impl Consistency {
    /// A body's `consistencyInfo`.
    pub(super) fn parse(body: &Map<String, Value>) -> Result<Consistency, Failure> {
        let missing = || {
            Failure::error(
                "consistencyInfo is missing. Please check to make sure all inputs are valid.",
            )
        };
        let info = body.get("consistencyInfo").and_then(Value::as_object);
        let info = info.ok_or_else(missing)?;
        let text = |name: &str| info.get(name).and_then(Value::as_str).map(str::trim);
        let lock = text("lockId").filter(|id| !id.is_empty());
        let kind = text("type").ok_or_else(missing)?.to_ascii_lowercase();
        match kind.as_str() {
            "eventual" | "eventual_nb" => {
                if let Some(level) = text("consistency").filter(|level| !level.is_empty()) {
                    let level = level.to_ascii_uppercase();
                    if !LEVELS.contains(&level.as_str()) {
                        return Err(Failure::error("Invalid Consistency type"));
                    }
                }
                Ok(Consistency::Eventual)
            }
            "critical" => lock
                .map(|id| Consistency::Critical(id.into()))
                .ok_or_else(|| {
                    Failure::error(
                        "LockId cannot be null. Create lock and acquire lock or use ATOMIC \
                         instead of CRITICAL",
                    )
                }),
            "atomic" => Ok(match lock {
                Some(id) => Consistency::Critical(id.into()),
                None => Consistency::Atomic,
            }),
            other => Err(Failure::error(format!(
                "Invalid consistencyInfo type {other}: eventual, eventual_nb, critical or atomic"
            ))),
        }
    }
}

/// A `timestamp` is not kept: a write that would do without it says so.
fn refuse_timestamp(body: &Map<String, Value>) -> Result<(), Failure> {
    let given = body.get("timestamp").unwrap_or(&Value::Null);
    match lenient::number(given) {
        Ok(None | Some(0)) => Ok(()),
        _ => Err(Failure::error(
            "timestamp is not supported: writes are ordered as they are done, not by their \
             clients' clocks. Nothing was written",
        )),
    }
}

/// A body's object, or an empty one.
fn object(body: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, Failure> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(Failure::syntax(format!("{name} is not a JSON object"))),
    }
}

impl Music {
    /// The table that a write is to; asks on where the columns that it names are not known here.
    async fn table_for_write(
        &self,
        call: &Call,
        name: &TableName,
        names: &[String],
    ) -> Result<Table, Failure> {
        self.store.may_know(&call.caller, name)?;
        let known = |table: &Table| {
            let has = |column: &String| rows::known(table, column).is_ok();
            names.iter().all(has)
        };
        let table = self.store.find_table(name, known).await?;
        table.ok_or_else(|| {
            Failure::error("Table name doesn't exists. Please check the table name.")
        })
    }

    /// The id of a unit over which the caller has these rights.
    pub(super) async fn unit_id(
        &self,
        (call, rights): (&Call, &[Right]),
        name: &TableName,
        table: &Table,
        key: &Key,
    ) -> Result<KeyId, Failure> {
        let value = key.get(table.unit_column()).unwrap_or(&Value::Null);
        let named = Some(shown(value));
        self.store
            .may(&call.caller, rights, name, named.as_deref())?;
        self.store.key(unit_key(name, table, value)).await
    }

    /// Does a write as its consistency asks; the answer is another node's where the lock's home is
    /// elsewhere.
    pub(super) async fn write(
        &self,
        call: &Call,
        name: &TableName,
        table: &Table,
        write: Write,
        (consistency, conditions): (&Consistency, Columns),
    ) -> Result<Option<MusicAnswer>, Failure> {
        let asks = (call, &[Right::Write][..]);
        let unit = self.unit_id(asks, name, table, write.key()).await?;
        if let Some(until) = write.until() {
            self.store.due.note(&unit.key, &table.key, until);
        }
        let act = |now: Option<&Bytes>| {
            let mut rows = rows::decode(now, &table.key, expiry::now())?;
            rows::check(&rows, write.key(), &conditions)?;
            write.apply(table, &mut rows, expiry::now());
            let new = rows::encode(&rows);
            Ok((new.as_ref() != now).then_some(new))
        };
        match consistency {
            Consistency::Critical(id) => {
                let lock = match self.lock_of(call, id, name, table, write.key()).await? {
                    Found::Elsewhere(answer) => return Ok(Some(answer)),
                    Found::Gone => return Err(Failure::error(format!("{id} does not exist."))),
                    Found::Here(lock) => lock,
                };
                self.locks.write(&lock, id, act).await?;
            }
            Consistency::Eventual if write.covers(table) && conditions.is_empty() => {
                let mut rows = Vec::new();
                write.apply(table, &mut rows, expiry::now());
                match self.store.put(unit.clone(), rows::encode(&rows)).await {
                    Ok(()) => {}
                    Err(refusal) if refusal.code == Code::Locked => {
                        self.section(unit, table, write.key(), act).await?;
                    }
                    Err(refusal) => return Err(refusal.into()),
                }
            }
            // Conditions are of critical and atomic writes; to ignore them would be worse.
            Consistency::Eventual | Consistency::Atomic => {
                self.section(unit, table, write.key(), act).await?;
            }
        }
        Ok(None)
    }

    /// Changes a unit in a section of its own.
    pub(super) async fn section(
        &self,
        unit: KeyId,
        table: &Table,
        key: &Key,
        act: impl FnOnce(Option<&Bytes>) -> Result<Option<Option<Bytes>>, Failure>,
    ) -> Result<(), Failure> {
        let contended = |refusal: Refusal| match refusal.code {
            Code::WaitOver => {
                let value = key.get(table.unit_column()).map(shown);
                Failure::error(format!(
                    "Unable to create lock reference for key [{}]. Please try again. Somebody \
                     else held its lock for 5 s; nothing was written",
                    value.unwrap_or_default()
                ))
            }
            _ => refusal.into(),
        };
        let own = self.store.enter(unit).await.map_err(contended)?;
        let to = act(own.value.as_ref());
        own.end(to).await
    }

    /// The lock that a call names, which must be of the row that it means.
    pub(super) async fn lock_of(
        &self,
        call: &Call,
        id: &str,
        table: &TableName,
        definition: &Table,
        key: &Key,
    ) -> Result<Found, Failure> {
        let (lock, number) = self.locks.id(call, id).await?;
        let value = key.get(definition.unit_column()).unwrap_or(&Value::Null);
        if lock.definition.is_none() || lock.table != *table || lock.value != *value {
            return Err(Failure::error(format!(
                "Lock value '{}' and key value '{}' not match. Please check your values: {id} .",
                shown(&lock.value),
                shown(value)
            )));
        }
        self.locks.find(call, &lock, number, false).await
    }

    /// `POST rows`.
    pub(super) async fn insert(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        let mut given = object(&body, "values")?;
        given.extend(object(&body, "objectMap")?);
        if given.is_empty() {
            return Err(Failure::error(
                "Nothing to insert. No values provided in request.",
            ));
        }
        refuse_timestamp(&body)?;
        let consistency = Consistency::parse(&body)?;
        let names: Vec<String> = given.keys().cloned().collect();
        let table = self.table_for_write(call, name, &names).await?;
        let mut set = rows::columns(&table, &given)?;
        let key = rows::take_key(&table, &mut set)?;
        let expiry = Expiry {
            until: expiry::of(&body)?,
            of_row: true,
        };
        let write = Write::Upsert { key, set, expiry };
        let done = self
            .write(call, name, &table, write, (&consistency, Columns::new()))
            .await?;
        Ok(done.unwrap_or_else(|| MusicAnswer::message("Insert Successful")))
    }

    /// `PUT rows?key`.
    pub(super) async fn update(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        let mut given = object(&body, "values")?;
        given.extend(object(&body, "objectMap")?);
        let conditions = object(&body, "conditions")?;
        refuse_timestamp(&body)?;
        let consistency = Consistency::parse(&body)?;
        let asked = call.query.iter().map(|(column, _)| column);
        let names: Vec<String> = given
            .keys()
            .chain(conditions.keys())
            .chain(asked)
            .cloned()
            .collect();
        let table = self.table_for_write(call, name, &names).await?;
        let key = rows::where_key(&table, &call.query, true)?;
        let mut set = rows::columns(&table, &given)?;
        for (column, value) in &key {
            if set
                .remove(column)
                .is_some_and(|set| set.as_ref() != Some(value))
            {
                return Err(Failure::error(format!(
                    "PRIMARY KEY part {column} found in SET part"
                )));
            }
        }
        if set.is_empty() {
            return Err(Failure::error(
                "Nothing to update. No values provided in request.",
            ));
        }
        let conditions = rows::columns(&table, &conditions)?;
        let expiry = Expiry {
            until: expiry::of(&body)?,
            of_row: false,
        };
        let write = Write::Upsert { key, set, expiry };
        let done = self
            .write(call, name, &table, write, (&consistency, conditions))
            .await?;
        Ok(done.unwrap_or_else(|| performed(&consistency)))
    }

    /// `DELETE rows?key`.
    pub(super) async fn delete(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        refuse_timestamp(&body)?;
        let consistency = Consistency::parse(&body)?;
        let conditions = object(&body, "conditions")?;
        let columns = match body.get("columns") {
            None | Some(Value::Null) => vec![],
            Some(Value::Array(columns)) => columns
                .iter()
                .map(|column| column.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
                .ok_or_else(|| Failure::syntax("columns is not a list of names"))?,
            Some(_) => return Err(Failure::syntax("columns is not a list of names")),
        };
        let asked = call.query.iter().map(|(column, _)| column);
        let names: Vec<String> = columns
            .iter()
            .chain(conditions.keys())
            .chain(asked)
            .cloned()
            .collect();
        let table = self.table_for_write(call, name, &names).await?;
        let whole = !columns.is_empty() || !conditions.is_empty();
        let key = rows::where_key(&table, &call.query, whole)?;
        let mut removed = Vec::new();
        for column in &columns {
            let column = rows::known(&table, column)?;
            if table.key.contains(&column) {
                return Err(Failure::error(format!(
                    "Invalid identifier {column} for deletion (should not be a PRIMARY KEY part)"
                )));
            }
            removed.push(column);
        }
        let conditions = rows::columns(&table, &conditions)?;
        let columns = (!removed.is_empty()).then_some(removed);
        let write = Write::Delete { key, columns };
        let done = self
            .write(call, name, &table, write, (&consistency, conditions))
            .await;
        let done = done.map_err(|failure| match consistency {
            Consistency::Atomic => failure.prefixed("Unable to perform Delete operation. "),
            _ => failure,
        })?;
        Ok(done.unwrap_or_else(|| performed(&consistency)))
    }

    /// `GET rows`, and `filter` of the queues.
    pub(super) async fn select(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<MusicAnswer, Failure> {
        let (table, found) = self.selected(call, name).await?;
        Ok(listed(call, &table, &found))
    }

    /// The rows that a query means, as the nearest replicas have them.
    pub(super) async fn selected(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<(Table, Vec<Row>), Failure> {
        let served = |table: &Table| {
            let known = rows::query(table, &call.query);
            known.is_ok_and(|key| is_served(table, &key))
        };
        self.store.may_know(&call.caller, name)?;
        let table = self.store.find_table(name, served).await?;
        let table = table.ok_or_else(|| {
            Failure::error(format!(
                "Table information not found. Please check input for table name= {name}: table \
                 does not exist"
            ))
        })?;
        let key = rows::query(&table, &call.query)
            .map_err(|failure| failure.prefixed("Execute Get Error"))?;
        if !is_served(&table, &key) {
            return Err(Failure::error(
                "Execute Get ErrorCannot execute this query as it might involve data filtering \
                 and thus may have unpredictable performance: ask by the key or by an indexed \
                 column",
            ));
        }
        let mut found = Vec::new();
        let rights = &[Right::Read][..];
        if key.contains_key(table.unit_column()) {
            let unit = self.unit_id((call, rights), name, &table, &key).await?;
            let kept = self.store.get(unit.clone()).await?;
            found = self.rows_of(&table, &unit.key, kept.as_ref())?;
        } else {
            self.store.may(&call.caller, rights, name, None)?;
            for (unit, kept) in self.store.list(rows_prefix(name, &table)).await? {
                found.extend(self.rows_of(&table, &unit, Some(&kept))?);
            }
        }
        found.retain(|row| rows::matches(row, &key));
        Ok((table, found))
    }

    /// The rows of a unit now. What expires in it is remembered.
    fn rows_of(
        &self,
        table: &Table,
        unit: &Bytes,
        kept: Option<&Bytes>,
    ) -> Result<Vec<Row>, Failure> {
        if let Some(until) = rows::earliest(kept) {
            self.store.due.note(unit, &table.key, until);
        }
        rows::decode(kept, &table.key, expiry::now())
    }

    /// `PUT rows/criticalget?key`: the latest rows, by the holder or in a section of its own.
    pub(super) async fn critical_get(
        &self,
        call: &Call,
        name: &TableName,
    ) -> Result<MusicAnswer, Failure> {
        let body = call.json()?;
        if body
            .get("consistencyInfo")
            .and_then(Value::as_object)
            .is_none_or(Map::is_empty)
        {
            return Err(Failure::error(
                "Incomplete Request body. Please correct your input request and retry. Missing \
                 Body or Consistency type.",
            ));
        }
        if call.query.is_empty() {
            return Err(Failure::error(
                "Missing Row Identifier. Please provide the parameter of key=value for the row \
                 being selected.",
            ));
        }
        let consistency = Consistency::parse(&body)?;
        let names: Vec<String> = call
            .query
            .iter()
            .map(|(column, _)| column.clone())
            .collect();
        let table = self.table_for_write(call, name, &names).await?;
        let key = rows::query(&table, &call.query)?;
        if !key.contains_key(table.unit_column()) {
            return Err(Failure::error(format!(
                "Some required partition key parts are missing: {}",
                table.unit_column()
            )));
        }
        let asks = (call, &[Right::Read][..]);
        let unit_id = self.unit_id(asks, name, &table, &key).await?;
        let unit = match &consistency {
            Consistency::Eventual => {
                return Err(Failure::error(
                    "Invalid consistencyInfo type: a criticalget is critical or atomic",
                ));
            }
            Consistency::Atomic => self.store.read(unit_id).await?,
            Consistency::Critical(id) => match self.lock_of(call, id, name, &table, &key).await? {
                Found::Elsewhere(answer) => return Ok(answer),
                Found::Gone => return Err(Failure::error(format!("{id} does not exist."))),
                Found::Here(lock) => self.locks.read(&lock, id).await?,
            },
        };
        let mut found = rows::decode(unit.as_ref(), &table.key, expiry::now())?;
        found.retain(|row| rows::matches(row, &key));
        Ok(listed(call, &table, &found))
    }
}

/// Whether a query can be answered: of everything, by the key, or by an index.
fn is_served(table: &Table, key: &Key) -> bool {
    let by_key = |column: &String| table.key.contains(column);
    let by_index = |column: &String| table.indexes.contains(column);
    let begins = key.contains_key(table.unit_column()) || key.keys().any(by_index);
    key.is_empty() || begins && key.keys().all(|column| by_key(column) || by_index(column))
}

fn performed(consistency: &Consistency) -> MusicAnswer {
    MusicAnswer::message(match consistency {
        Consistency::Eventual => "Eventual Operation Successfully performed",
        Consistency::Atomic | Consistency::Critical(_) => "Update performed",
    })
}

/// Rows in either generation's envelope.
pub(super) fn listed(call: &Call, table: &Table, found: &[Row]) -> MusicAnswer {
    let result = rows::shown(table, found);
    if call.v1 {
        return MusicAnswer::json(result);
    }
    let error = found.is_empty().then_some("No data found");
    MusicAnswer::success(json!({ "result": result, "error": error }))
}
