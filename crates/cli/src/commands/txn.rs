//! `fermata txn` and `fermata snapshot`: keys of a ledger keyspace, changed and read at one moment.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use bytes::Bytes;
use fermata_client::Client;
use fermata_client::ledger::{Committed, Done, Found, Is, Relation, Timestamp, Versioned};
use serde_json::{Value, json};

use crate::args::{Global, SnapshotArgs, TxnArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::output;

/// One line of a transaction.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    If(Bytes, Is),
    Then(Act),
    Else(Act),
}

/// What it does.
#[derive(Clone, Debug, PartialEq)]
enum Act {
    Get(Bytes),
    Put(Bytes, Bytes),
    Delete(Bytes),
    Add(Bytes, i64, Option<i64>, Option<i64>),
    Range(Bytes, u32),
    DeletePrefix(Bytes),
}

/// `fermata txn`: 0 where `then` was done, 1 where `else` was.
pub(crate) async fn run(global: &Global, args: TxnArgs) -> Result<u8, Failure> {
    let lines = lines(&args)?;
    let client = connect(global).await?;
    let mut once = client.once(global.keyspace());
    for line in &lines {
        once = match line.clone() {
            Line::If(key, condition) => once.when(key, condition),
            Line::Then(act) => once.then(|acts| act.add_to(acts)),
            Line::Else(act) => once.or_else(|acts| act.add_to(acts)),
        };
    }
    let committed = once.commit().await?;
    let branch = lines.iter().filter_map(|line| match line {
        Line::Then(act) if committed.then => Some(act),
        Line::Else(act) if !committed.then => Some(act),
        _ => None,
    });
    match global.json {
        true => output::json(&as_json(&committed))?,
        false => tell(&committed, branch)?,
    }
    Ok(u8::from(!committed.then))
}

impl Act {
    fn add_to(self, acts: fermata_client::ledger::Acts<'_>) -> fermata_client::ledger::Acts<'_> {
        match self {
            Act::Get(key) => acts.get(key),
            Act::Put(key, value) => acts.put(key, value),
            Act::Delete(key) => acts.delete(key),
            Act::Add(key, by, least, most) => acts.add_within(key, by, least, most),
            Act::Range(prefix, limit) => acts.prefix(prefix, limit),
            Act::DeletePrefix(prefix) => acts.delete_prefix(prefix),
        }
    }
}

fn lines(args: &TxnArgs) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    let wrong = |what: &str, text: &[u8], why: String| {
        let text = String::from_utf8_lossy(text);
        Failure::usage(format!("{what} `{text}`: {why}"))
    };
    for text in &args.compare {
        let text = text.as_bytes();
        lines.push(compare(text).map_err(|why| wrong("--if", text, why))?);
    }
    for (of, texts) in [("--then", &args.then), ("--else", &args.or_else)] {
        for text in texts {
            let act = act(text.as_bytes()).map_err(|why| wrong(of, text.as_bytes(), why))?;
            lines.push(match of {
                "--then" => Line::Then(act),
                _ => Line::Else(act),
            });
        }
    }
    if let Some(file) = &args.file {
        for (n, text) in script(file)?.split(|byte| *byte == b'\n').enumerate() {
            let parsed = line(text)
                .map_err(|why| wrong(&format!("line {} of the script", n + 1), text, why))?;
            lines.extend(parsed);
        }
    }
    if lines.iter().all(|line| matches!(line, Line::If(..))) {
        let why = "a transaction does something: give --then or --else, or a --file";
        return Err(Failure::usage(why));
    }
    Ok(lines)
}

fn script(file: &OsStr) -> Result<Vec<u8>, Failure> {
    let mut script = Vec::new();
    let read = match file.as_bytes() {
        b"-" => std::io::stdin().read_to_end(&mut script).map(drop),
        _ => std::fs::read(file).map(|read| script = read),
    };
    read.map_err(|error| Failure::local(file.to_string_lossy(), error))?;
    Ok(script)
}

/// One line of a script: nothing where it is empty or a comment.
fn line(text: &[u8]) -> Result<Option<Line>, String> {
    let text = text.trim_ascii();
    if text.is_empty() || text.starts_with(b"#") {
        return Ok(None);
    }
    let (word, rest) = word(text);
    Ok(Some(match word {
        b"if" => compare(rest)?,
        b"then" => Line::Then(act(rest)?),
        b"else" => Line::Else(act(rest)?),
        _ => return Err("a line begins with `if`, `then`, `else` or `#`".into()),
    }))
}

/// The first word, and what follows it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace);
    let end = end.unwrap_or(text.len());
    (&text[..end], text[end..].trim_ascii_start())
}

/// A key: a word, or a JSON string where it has spaces.
fn key(text: &[u8]) -> Result<(Bytes, &[u8]), String> {
    let text = text.trim_ascii_start();
    if !text.starts_with(b"\"") {
        let (word, rest) = word(text);
        return match word {
            [] => Err("a key is missing".into()),
            word => Ok((Bytes::copy_from_slice(word), rest)),
        };
    }
    let mut strings = serde_json::Deserializer::from_slice(text).into_iter::<String>();
    match strings.next() {
        Some(Ok(key)) if !key.is_empty() => {
            let rest = &text[strings.byte_offset()..];
            Ok((Bytes::from(key), rest.trim_ascii_start()))
        }
        _ => Err("a key in quotes is a JSON string that is not empty".into()),
    }
}

fn number(text: &[u8]) -> Result<i64, String> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        format!(
            "`{}` is no number of 64 bits",
            String::from_utf8_lossy(text)
        )
    })
}

/// A moment, as results show it.
pub(crate) fn timestamp(text: &str) -> Result<Timestamp, String> {
    let (micros, logical) = text.split_once('.').unwrap_or((text, "0"));
    let parsed = micros.parse().ok().zip(logical.parse().ok());
    let (micros, logical) = parsed.ok_or_else(|| {
        format!("`{text}` is no moment: it is shown as two numbers, such as 1790000000000000.0")
    })?;
    Ok(Timestamp { micros, logical })
}

fn compare(text: &[u8]) -> Result<Line, String> {
    let (key, rest) = key(text)?;
    let (word1, rest) = word(rest);
    let relation = |word: &[u8]| match word {
        b"=" => Some(Relation::Equal),
        b"!=" => Some(Relation::NotEqual),
        b"<" => Some(Relation::Less),
        b"<=" => Some(Relation::AtMost),
        b">" => Some(Relation::Greater),
        b">=" => Some(Relation::AtLeast),
        _ => None,
    };
    let condition = match word1 {
        b"exists" if rest.is_empty() => Is::Exists(true),
        b"absent" if rest.is_empty() => Is::Exists(false),
        b"version" => {
            let (word, rest) = word(rest);
            let relation = relation(word).ok_or("behind `version` comes =, !=, <, <=, > or >=")?;
            let text = String::from_utf8_lossy(rest);
            Is::Version(relation, timestamp(&text)?)
        }
        word => match relation(word) {
            Some(relation @ (Relation::Equal | Relation::NotEqual)) => {
                Is::Value(relation, Bytes::copy_from_slice(rest))
            }
            Some(relation) => Is::Number(relation, number(rest)?),
            None => {
                return Err(
                    "behind the key comes `exists`, `absent`, `version`, = or != and a \
                            value, or <, <=, > or >= and a number"
                        .into(),
                );
            }
        },
    };
    Ok(Line::If(key, condition))
}

fn act(text: &[u8]) -> Result<Act, String> {
    let (what, rest) = word(text);
    let known = [&b"get"[..], b"put", b"del", b"add", b"range", b"del-prefix"];
    if !known.contains(&what) {
        return Err("it begins with get, put, del, add, range or del-prefix".into());
    }
    let (key, rest) = key(rest)?;
    let nothing = |act| match rest.is_empty() {
        true => Ok(act),
        false => Err(format!(
            "`{}` is too much: put a key with spaces into quotes",
            String::from_utf8_lossy(rest)
        )),
    };
    match what {
        b"get" => nothing(Act::Get(key)),
        b"put" => Ok(Act::Put(key, Bytes::copy_from_slice(rest))),
        b"del" => nothing(Act::Delete(key)),
        b"del-prefix" => nothing(Act::DeletePrefix(key)),
        b"range" => {
            let limit = match rest {
                [] => 1_000,
                rest => u32::try_from(number(rest)?).map_err(|_| "that is no limit")?,
            };
            Ok(Act::Range(key, limit))
        }
        _ => {
            let (by, mut rest) = word(rest);
            let by = number(by)?;
            let (mut least, mut most) = (None, None);
            while !rest.is_empty() {
                let (name, after) = word(rest);
                let (bound, after) = word(after);
                match name {
                    b"min" => least = Some(number(bound)?),
                    b"max" => most = Some(number(bound)?),
                    _ => return Err("behind the number comes `min N` or `max N`".into()),
                }
                rest = after;
            }
            Ok(Act::Add(key, by, least, most))
        }
    }
}

fn tell<'a>(committed: &Committed, branch: impl Iterator<Item = &'a Act>) -> Result<(), Failure> {
    let mut text = Vec::new();
    for (act, done) in branch.zip(committed.done.iter().flatten()) {
        match (act, done) {
            (Act::Get(_), Done::Value(value)) => {
                text.extend_from_slice(value.as_ref().map_or(&b""[..], |value| &value.value));
                text.push(b'\n');
            }
            (_, Done::Range(found)) => pairs(&mut text, found),
            (_, Done::Added(sum)) => text.extend_from_slice(format!("{sum}\n").as_bytes()),
            (_, Done::Deleted(count)) => text.extend_from_slice(format!("{count}\n").as_bytes()),
            _ => {}
        }
    }
    output::bytes(&text).map(drop)
}

/// Keys with their values, each pair on a line, with a tab between.
fn pairs(text: &mut Vec<u8>, found: &Found) {
    for (key, value) in &found.keys {
        text.extend_from_slice(key);
        text.push(b'\t');
        text.extend_from_slice(&value.value);
        text.push(b'\n');
    }
}

fn shown(at: Timestamp) -> String {
    format!("{}.{}", at.micros, at.logical)
}

fn versioned(value: &Versioned) -> Value {
    json!({ "value": output::bytes_as_json(&value.value), "version": shown(value.version) })
}

fn found_as_json(found: &Found) -> Value {
    let keys = found.keys.iter().map(|(key, value)| {
        let mut one = versioned(value);
        one["key"] = output::bytes_as_json(key);
        one
    });
    json!({ "keys": keys.collect::<Vec<_>>(), "more": found.more })
}

fn as_json(committed: &Committed) -> Value {
    let done = committed.done.as_ref().map(|done| {
        let one = |done: &Done| match done {
            Done::Value(value) => json!({ "get": value.as_ref().map(versioned) }),
            Done::Range(found) => json!({ "range": found_as_json(found) }),
            Done::Put => json!({ "put": true }),
            Done::Deleted(count) => json!({ "deleted": count }),
            Done::Added(sum) => json!({ "added": sum }),
        };
        done.iter().map(one).collect::<Vec<_>>()
    });
    json!({ "at": shown(committed.at), "then": committed.then, "done": done })
}

/// `fermata snapshot`.
pub(crate) async fn snapshot(global: &Global, args: SnapshotArgs) -> Result<u8, Failure> {
    if args.keys.is_empty() && args.prefix.is_none() {
        let why = "a snapshot is of keys, or of those with a --prefix, which may be empty";
        return Err(Failure::usage(why));
    }
    let client = connect(global).await?;
    let snapshot = reading(&client, global, &args).read_all().await?;
    if global.json {
        let found: Vec<Value> = snapshot.found.iter().map(found_as_json).collect();
        output::json(&json!({ "at": shown(snapshot.at), "found": found }))?;
        return Ok(0);
    }
    let mut text = Vec::new();
    for found in &snapshot.found {
        pairs(&mut text, found);
    }
    output::bytes(&text)?;
    eprintln!("at {}", shown(snapshot.at));
    Ok(0)
}

fn reading<'a>(
    client: &'a Client,
    global: &Global,
    args: &SnapshotArgs,
) -> fermata_client::ledger::Reading<'a> {
    let mut reading = client.snapshot(global.keyspace());
    if let Some(limit) = args.limit {
        reading = reading.limit(limit);
    }
    for key in &args.keys {
        reading = reading.key(key.as_bytes());
    }
    let prefix: Option<&OsString> = args.prefix.as_ref();
    if let Some(prefix) = prefix {
        reading = reading.prefix(prefix.as_bytes());
    }
    if let Some(at) = args.at {
        return reading.at(at);
    }
    if let Some(staleness) = args.max_staleness {
        reading = reading.within(staleness);
    }
    match args.after {
        Some(after) => reading.after(after),
        None => reading,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn comparisons_read_as_they_are_written() {
        let at = Timestamp {
            micros: 17,
            logical: 3,
        };
        let all = [
            ("s/a exists", Is::Exists(true)),
            ("s/a absent", Is::Exists(false)),
            (
                "s/a = open now",
                Is::Value(Relation::Equal, bytes("open now")),
            ),
            ("s/a != ", Is::Value(Relation::NotEqual, bytes(""))),
            ("s/a >= -1", Is::Number(Relation::AtLeast, -1)),
            ("\"s/a\"  < 7", Is::Number(Relation::Less, 7)),
            ("s/a version = 17.3", Is::Version(Relation::Equal, at)),
        ];
        for (text, is) in all {
            assert_eq!(
                compare(text.as_bytes()),
                Ok(Line::If(bytes("s/a"), is)),
                "{text}"
            );
        }
        for wrong in [
            "",
            "s/a",
            "s/a is 3",
            "s/a > x",
            "s/a version 3",
            "\"s/a exists",
        ] {
            assert!(compare(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn acts_read_as_they_are_written() {
        let all = [
            ("get a", Act::Get(bytes("a"))),
            ("put a  x y ", Act::Put(bytes("a"), bytes("x y "))),
            ("put \"a b\" x", Act::Put(bytes("a b"), bytes("x"))),
            ("del a", Act::Delete(bytes("a"))),
            ("add a -1 min 0", Act::Add(bytes("a"), -1, Some(0), None)),
            (
                "add a 2 max 9 min 1",
                Act::Add(bytes("a"), 2, Some(1), Some(9)),
            ),
            ("range t/ 5", Act::Range(bytes("t/"), 5)),
            ("del-prefix t/", Act::DeletePrefix(bytes("t/"))),
        ];
        for (text, right) in all {
            assert_eq!(act(text.as_bytes()), Ok(right), "{text}");
        }
        for wrong in [
            "",
            "got a",
            "get",
            "get a b",
            "add a",
            "add a 1 least 0",
            "range t/ x",
        ] {
            assert!(act(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_has_comments_and_empty_lines() {
        assert_eq!(line(b"  # nothing"), Ok(None));
        assert_eq!(line(b""), Ok(None));
        let then = Line::Then(Act::Get(bytes("a")));
        assert_eq!(line(b"then get a"), Ok(Some(then)));
        assert!(line(b"when a exists").is_err());
    }
}
