//! Keyspaces, tables, columns and indexes: what they are and where they are kept.
//!
//! A MUSIC keyspace is one value, the JSON of its tables, under a reserved key; it is changed in a
//! section, so that two definitions at a time are one after the other and "already exists" is true.
//! It is read at the nearest replica by every call, which costs no trip, and again by a
//! linearizable read where something is missing there (a table, a column, an index): so a
//! definition that was answered is known everywhere. Only a drop may be seen late, at a node that
//! has not heard of it; rows written meanwhile go with the table, since the rows of a table have
//! its random id in their keys.

use super::answers::Failure;
use super::store::MusicStore;
use super::values::Type;
use bytes::Bytes;
use fermata_protocol::Code;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Letters of a keyspace's or a table's name, as in CQL.
const NAME_MAX: usize = 48;
/// Letters of a column's name.
const COLUMN_MAX: usize = 128;
/// Columns of a table.
const COLUMNS_MAX: usize = 1_000;

/// A MUSIC keyspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Schema {
    pub(super) tables: BTreeMap<String, Table>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Table {
    /// Never the same for two tables, dropped ones included.
    pub(super) id: String,
    pub(super) columns: BTreeMap<String, Type>,
    /// The primary key's columns: those of the partition key, then those of the clustering.
    pub(super) key: Vec<String>,
    /// How many of them are the partition key's.
    pub(super) partition: usize,
    /// Columns of the clustering that are sorted downwards.
    pub(super) descending: BTreeSet<String>,
    pub(super) indexes: BTreeSet<String>,
}

impl Table {
    /// The column that names the unit, and the lock.
    pub(super) fn unit_column(&self) -> &str {
        self.key.first().map_or("", String::as_str)
    }

    /// Whether a unit has one row at most.
    pub(super) fn is_single(&self) -> bool {
        self.key.len() == 1
    }
}

/// A table by its names: as they are kept, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) keyspace: String,
    pub(super) table: String,
}

impl TableName {
    /// The names as calls give them.
    ///
    /// # Errors
    /// Not names of CQL.
    pub(super) fn parse(keyspace: &str, table: &str) -> Result<TableName, Failure> {
        Ok(TableName {
            keyspace: name_of(keyspace, "keyspace", NAME_MAX)?,
            table: name_of(table, "table", NAME_MAX)?,
        })
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.table)
    }
}

/// A name in lower case: letters, digits and `_`, beginning with a letter or `_`.
fn name_of(name: &str, what: &str, max: usize) -> Result<String, Failure> {
    let first = name.bytes().next();
    let begins = first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if begins && letters && name.len() <= max {
        return Ok(name.to_ascii_lowercase());
    }
    let shown: String = name.chars().take(64).collect();
    Err(Failure::error(format!(
        "Invalid {what} name : {shown}. A name is 1 to {max} of letters, digits and _, and begins \
         with a letter or _"
    )))
}

/// A keyspace's name in lower case.
pub(super) fn keyspace_name(name: &str) -> Result<String, Failure> {
    name_of(name, "keyspace", NAME_MAX)
}

/// A column's name in lower case.
pub(super) fn column_name(name: &str) -> Result<String, Failure> {
    name_of(name.trim(), "column", COLUMN_MAX)
}

/// The reserved key of a keyspace. No row's key begins so.
fn schema_key(keyspace: &str) -> Bytes {
    [b"k\0", keyspace.as_bytes()].concat().into()
}

/// The prefix of all keys of a table's rows. Names and ids have no zero byte, so no two tables
/// share one, and whatever follows is the key's value alone.
pub(super) fn rows_prefix(name: &TableName, table: &Table) -> Bytes {
    let TableName {
        keyspace,
        table: named,
    } = name;
    format!("r\0{keyspace}\0{named}\0{}\0", table.id).into()
}

fn decode(bytes: &Bytes) -> Result<Schema, Failure> {
    serde_json::from_slice(bytes).map_err(|_| {
        Failure::error("the keyspace's definition cannot be read: somebody else wrote its key")
    })
}

fn encode(schema: &Schema) -> Bytes {
    // Maps with text keys always have a JSON.
    serde_json::to_vec(schema).unwrap_or_default().into()
}

/// What a change of a schema comes to.
pub(super) enum Change {
    /// This instead; none drops the keyspace.
    To(Option<Schema>),
    /// Leave it.
    Nothing,
}

impl MusicStore {
    /// The definition of a keyspace; asks on where `need` is not met at the nearest replica.
    async fn schema(
        &self,
        keyspace: &str,
        need: impl Fn(&Schema) -> bool,
    ) -> Result<Option<Schema>, Failure> {
        if !self.exists().await? {
            return Ok(None);
        }
        let key = self.key(schema_key(keyspace)).await?;
        if let Some(bytes) = self.get(key.clone()).await? {
            let schema = decode(&bytes)?;
            if need(&schema) {
                return Ok(Some(schema));
            }
        }
        let latest = self.read(key).await?;
        latest.as_ref().map(decode).transpose()
    }

    /// Whether there is a keyspace.
    pub(super) async fn has_keyspace(&self, keyspace: &str) -> Result<bool, Failure> {
        Ok(self.schema(keyspace, |_| true).await?.is_some())
    }

    /// A table's definition, if there is one; the latest one where `need` asks for more than the
    /// nearest replica knows.
    ///
    /// # Errors
    /// Nobody can be asked.
    pub(super) async fn find_table(
        &self,
        name: &TableName,
        need: impl Fn(&Table) -> bool,
    ) -> Result<Option<Table>, Failure> {
        let known = |schema: &Schema| schema.tables.get(&name.table).is_some_and(&need);
        let schema = self.schema(&name.keyspace, known).await?;
        Ok(schema.and_then(|mut schema| schema.tables.remove(&name.table)))
    }

    /// Changes a keyspace's definition in a section.
    ///
    /// # Errors
    /// Those of `act`, and that it cannot be done now.
    pub(super) async fn change_schema(
        self: &Arc<Self>,
        keyspace: &str,
        act: impl FnOnce(Option<Schema>) -> Result<Change, Failure>,
    ) -> Result<(), Failure> {
        if !self.exists().await? {
            // Nothing is there: what is changed is nothing. A creation has made it before.
            return act(None).map(|_| ());
        }
        let key = self.key(schema_key(keyspace)).await?;
        let own = self
            .enter(key)
            .await
            .map_err(|refusal| match refusal.code {
                Code::WaitOver => Failure::error(
                    "somebody else changes this keyspace: nothing was done, ask again",
                ),
                _ => Failure::from(refusal),
            })?;
        let now = own.value.as_ref().map(decode).transpose();
        let to = now.and_then(act).map(|change| match change {
            Change::To(schema) => Some(schema.as_ref().map(encode)),
            Change::Nothing => None,
        });
        own.end(to).await
    }
}

/// The words of a `CREATE TABLE`, as a call gives them.
#[derive(Debug, Default)]
pub(super) struct NewTable {
    pub(super) fields: Vec<(String, String)>,
    pub(super) primary_key: String,
    pub(super) partition_key: String,
    pub(super) clustering_key: String,
    pub(super) filtering_key: String,
    pub(super) clustering_order: String,
}

/// Comma-separated columns, with or without brackets around them.
fn columns_of(text: &str) -> Result<Vec<String>, Failure> {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let names = inner.unwrap_or(text).split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(column_name).collect()
}

/// `name`, `(a, b)` or `((a, b), c)`: the partition key's columns and the clustering's.
fn primary_key(text: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
    let count = |bracket: char| text.matches(bracket).count();
    if count('(') != count(')') {
        return Err(Failure::error(format!(
            "Create Table Error: primary key '(' and ')' do not match, primary key={text}"
        )));
    }
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let inner = inner.unwrap_or(text).trim();
    if let Some(rest) = inner.strip_prefix('(') {
        let (partition, clustering) = rest.split_once(')').unwrap_or((rest, ""));
        return Ok((columns_of(partition)?, columns_of(clustering)?));
    }
    let mut all = columns_of(inner)?;
    let clustering = all.split_off(all.len().min(1));
    Ok((all, clustering))
}

impl NewTable {
    /// The definition.
    ///
    /// # Errors
    /// In the words of a failed creation.
    pub(super) fn define(mut self, id: String) -> Result<Table, Failure> {
        let wrong = |why: String| Failure::error(format!("Create Table Error: {why}"));
        let named = |(name, _): &(String, String)| {
            let words: Vec<&str> = name.split_whitespace().collect();
            words.join(" ").eq_ignore_ascii_case("primary key")
        };
        if let Some(at) = self.fields.iter().position(named) {
            let (_, key) = self.fields.remove(at);
            if self.primary_key.trim().is_empty() {
                self.primary_key = key;
            }
        }
        if self.fields.is_empty() {
            return Err(wrong("No fields in request".into()));
        }
        if self.fields.len() > COLUMNS_MAX {
            return Err(wrong(format!("a table has at most {COLUMNS_MAX} columns")));
        }
        let mut columns = BTreeMap::new();
        for (name, kind) in &self.fields {
            let column = column_name(name)?;
            let kind = Type::parse(kind).map_err(|why| wrong(format!("{why}, column={name}")))?;
            if columns.insert(column, kind).is_some() {
                return Err(wrong(format!("the column {name} is named twice")));
            }
        }
        let (key, partition) = self.key(&columns)?;
        let descending = order(&self.clustering_order, &key[partition..])?;
        Ok(Table {
            id,
            columns,
            key,
            partition,
            descending,
            indexes: BTreeSet::new(),
        })
    }

    /// The primary key's columns, and how many of them are the partition key's.
    fn key(&self, columns: &BTreeMap<String, Type>) -> Result<(Vec<String>, usize), Failure> {
        let wrong = |why: String| Failure::error(format!("Create Table Error: {why}"));
        let (partition, clustering) = if self.primary_key.trim().is_empty() {
            let mut clustering = columns_of(&self.clustering_key)?;
            clustering.extend(columns_of(&self.filtering_key)?);
            (columns_of(&self.partition_key)?, clustering)
        } else {
            let (partition, mut clustering) = primary_key(&self.primary_key)?;
            if clustering.is_empty() {
                clustering = columns_of(&self.clustering_key)?;
                clustering.retain(|column| !partition.contains(column));
            }
            (partition, clustering)
        };
        if partition.is_empty() {
            return Err(wrong("No primary key in request".into()));
        }
        let length = partition.len();
        let key: Vec<String> = partition.into_iter().chain(clustering).collect();
        for (at, column) in key.iter().enumerate() {
            match columns.get(column) {
                None => return Err(wrong(format!("Unknown column {column} in the primary key"))),
                Some(kind) if !kind.is_scalar() => {
                    return Err(wrong(format!("the key column {column} cannot be a {kind}")));
                }
                Some(_) if key[..at].contains(column) => {
                    return Err(wrong(format!("the key column {column} is named twice")));
                }
                Some(_) => {}
            }
        }
        Ok((key, length))
    }
}

/// The columns of a clustering order that go downwards.
fn order(text: &str, clustering: &[String]) -> Result<BTreeSet<String>, Failure> {
    let mut descending = BTreeSet::new();
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    for part in inner.unwrap_or(text).split(',').map(str::trim) {
        if part.is_empty() {
            continue;
        }
        let words: Vec<&str> = part.split_whitespace().collect();
        let known = match words[..] {
            [column, way] => column_name(column).ok().zip(match way {
                _ if way.eq_ignore_ascii_case("asc") => Some(false),
                _ if way.eq_ignore_ascii_case("desc") => Some(true),
                _ => None,
            }),
            _ => None,
        };
        match known {
            Some((column, down)) if clustering.contains(&column) => {
                if down {
                    descending.insert(column);
                }
            }
            _ => {
                return Err(Failure::error(format!(
                    "createTable/Clustering Order vlaue ERROR: valid clustering order is ASC or \
                     DESC of a clustering column, this is: {part}"
                )));
            }
        }
    }
    Ok(descending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(primary_key: &str, order: &str) -> Result<Table, Failure> {
        let field = |name: &str, kind: &str| (name.to_owned(), kind.to_owned());
        let new = NewTable {
            fields: vec![
                field("A", "text"),
                field("b", "int"),
                field("c", "int"),
                field("m", "map<text,text>"),
                field("PRIMARY KEY", primary_key),
            ],
            clustering_order: order.into(),
            ..NewTable::default()
        };
        new.define("1".into())
    }

    #[test]
    fn primary_keys_of_every_form() {
        for (text, key, partition) in [
            ("(a)", vec!["a"], 1),
            ("a", vec!["a"], 1),
            ("( A , b )", vec!["a", "b"], 1),
            ("((a,b),c)", vec!["a", "b", "c"], 2),
            ("((a))", vec!["a"], 1),
        ] {
            let table = define(text, "").unwrap();
            assert_eq!(
                (table.key, table.partition),
                (key.iter().map(|k| k.to_string()).collect(), partition),
                "{text}"
            );
        }
        for wrong in ["(a", "", "(x)", "(m)", "(a, a)", "(a;b)"] {
            assert!(define(wrong, "").is_err(), "{wrong}");
        }
        let table = define("(a, b)", "b DESC").unwrap();
        assert!(table.descending.contains("b"));
        for wrong in ["b SIDEWAYS", "a DESC", "b", "x ASC"] {
            assert!(define("(a, b)", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_of_rows_are_injective() {
        let table = |id: &str| Table {
            id: id.into(),
            ..define("a", "").unwrap()
        };
        let name = |keyspace: &str, named: &str| TableName::parse(keyspace, named).unwrap();
        let prefixes = [
            rows_prefix(&name("a", "b_c"), &table("1")),
            rows_prefix(&name("a_b", "c"), &table("1")),
            rows_prefix(&name("a", "b_c"), &table("2")),
        ];
        for (at, one) in prefixes.iter().enumerate() {
            for other in &prefixes[at + 1..] {
                assert!(!one.starts_with(other) && !other.starts_with(one));
            }
        }
        for wrong in ["", "a.b", "a b", "1a", "a'b", "a\0b", &"a".repeat(49)] {
            assert!(TableName::parse(wrong, "t").is_err(), "{wrong}");
        }
    }
}
