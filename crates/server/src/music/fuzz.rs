//! A stranger's call, for fuzzing: a line of path and query, one of a type, and a body.

use super::schema::{NewTable, Table, TableName};
use super::values::Type;
use super::{Call, ROOT, definitions, names, row_calls, rows};
use crate::access::Caller;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method};

pub(crate) fn fuzz(bytes: &[u8]) {
    let mut parts = bytes
        .splitn(3, |byte| *byte == b'\n')
        .map(Bytes::copy_from_slice);
    let mut part = || parts.next().unwrap_or_default();
    let (target, kind, body) = (part(), part(), part());
    if let Ok(kind) = std::str::from_utf8(&kind)
        && let Ok(read) = Type::parse(kind)
    {
        assert_eq!(Type::parse(&read.to_string()).ok(), Some(read));
    }
    let _rows = rows::decode(Some(&body), &["k".to_owned()], 0);
    let _first = rows::earliest(Some(&body));
    let target = format!("{ROOT}/{}", String::from_utf8_lossy(&target));
    let Ok(uri) = target.parse() else {
        return;
    };
    let given = (HeaderMap::new(), body);
    let Ok(call) = Call::parse(Caller::NODE, Method::PUT, &uri, given) else {
        return;
    };
    let _typed = call.typed();
    for part in &call.path {
        let _lock = names::split_name(part);
        let _id = names::split_id(part);
    }
    if let [keyspace, table, ..] = &call.path[..] {
        let _name = TableName::parse(keyspace, table);
    }
    let Ok(body) = call.json() else {
        return;
    };
    let _consistency = row_calls::Consistency::parse(&body);
    let made = definitions::new_table(&body).and_then(|new| new.define("made".into()));
    for table in [Some(some_table()), made.ok()].iter().flatten() {
        let _key = rows::query(table, &call.query);
        let _row = rows::where_key(table, &call.query, true);
        if let Ok(mut columns) = rows::columns(table, &body) {
            let _key = rows::take_key(table, &mut columns);
        }
    }
}

/// A table with a column of each kind.
fn some_table() -> Table {
    let kinds = [
        "text",
        "int",
        "varint",
        "double",
        "decimal",
        "boolean",
        "uuid",
        "timestamp",
        "blob",
    ];
    let kinds = kinds
        .into_iter()
        .chain(["map<text, int>", "list<blob>", "set<text>"]);
    let named = ('a'..='z').zip(kinds);
    let new = NewTable {
        fields: named
            .map(|(name, kind)| (name.into(), kind.into()))
            .collect(),
        primary_key: "(a, b)".into(),
        ..NewTable::default()
    };
    new.define("some".into()).expect("a table")
}
