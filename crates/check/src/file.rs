//! Histories in files: JSON lines, the first of which names the format, and one operation or one
//! transaction on each other. The fields are documented in `docs/formats/history.md`.
//!
//! A line that is not exactly what that page says is refused with its number: a history that is
//! read in part, or in another sense than it was written, would get a verdict that means nothing.

use crate::{Action, Ending, History, Operation, transactions};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

mod transaction;

pub use transaction::write_transaction;

/// The format's name in the first line, of operations on registers.
const FORMAT: &str = "fermata-history";

/// The same of transactions.
const TRANSACTIONS: &str = "fermata-transactions";

/// The version in the first line.
const VERSION: u32 = 1;

/// A line is at most this long, in bytes, its newline included.
pub const LINE_MAX: usize = 64 << 20;

/// A key or a value: text, or bytes in hexadecimal.
pub type Bytes = Arc<[u8]>;

/// Why a history could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// Reading itself failed.
    Io(io::Error),
    /// A line is not what it should be.
    Line {
        /// Counted from 1.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Line { number, reason } => write!(f, "line {number}: {reason}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Head<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    client: u64,
    op: Op,
    #[serde(
        borrow,
        default,
        deserialize_with = "field",
        skip_serializing_if = "Option::is_none"
    )]
    value: Option<Field<'a>>,
    call: u64,
    #[serde(rename = "return", default, skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    outcome: Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Read,
    Write,
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ended {
    Ok,
    Failed,
    Unknown,
}

/// A field that may be `null`, which is not the same as missing.
struct Field<'a>(Option<Text<'a>>);

/// Called only where the field is there.
fn field<'de: 'a, 'a, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Field<'a>>, D::Error> {
    Option::deserialize(from).map(|text| Some(Field(text)))
}

impl Serialize for Field<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// Text, or bytes in hexadecimal where they are none.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Text<'a> {
    #[serde(borrow)]
    Utf8(Cow<'a, str>),
    Hex(Hex),
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Hex {
    hex: String,
}

impl Text<'_> {
    fn of(bytes: &[u8]) -> Text<'_> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Text::Utf8(text.into()),
            Err(_) => Text::Hex(Hex {
                hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            }),
        }
    }

    fn into_bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Text::Utf8(text) => Ok(text.into_owned().into_bytes()),
            Text::Hex(Hex { hex }) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let pair = |pair: &[u8]| match pair {
                    [high, low] => Some((digit(*high)? * 16 + digit(*low)?) as u8),
                    _ => None,
                };
                let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(pair).collect();
                bytes.ok_or_else(|| "`hex` is not an even number of hexadecimal digits".to_owned())
            }
        }
    }
}

/// What a file has recorded.
#[derive(Debug)]
pub enum Recorded {
    /// Operations on registers.
    Registers(History<Bytes, Bytes>),
    /// Transactions.
    Transactions(transactions::History<Bytes>),
}

/// Reads a history, one line at a time. `progress` is told the number of bytes read so far after
/// each line.
///
/// # Errors
///
/// The first line that is not as documented in `docs/formats/history.md`, with its number, or an
/// error of the reader. Nothing is skipped and nothing is guessed.
pub fn read(mut from: impl BufRead, mut progress: impl FnMut(u64)) -> Result<Recorded, ReadError> {
    let mut history = History::new();
    let mut all = Vec::new();
    let mut keys: BTreeSet<Bytes> = BTreeSet::new();
    let mut line = Vec::new();
    let (mut number, mut bytes) = (0, 0);
    let mut of_transactions = false;
    loop {
        line.clear();
        let limit = LINE_MAX as u64 + 1;
        let length = io::Read::take(&mut from, limit).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        number += 1;
        bytes += length as u64;
        let refuse = |reason| ReadError::Line { number, reason };
        if length > LINE_MAX {
            return Err(refuse(format!("longer than {LINE_MAX} bytes")));
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.trim_ascii().is_empty() {
            return Err(refuse("the line is empty; remove it".to_owned()));
        }
        if number == 1 {
            of_transactions = head(&line).map_err(refuse)?;
        } else if of_transactions {
            all.push(transaction::parse(&line, &mut keys).map_err(refuse)?);
        } else {
            let (key, operation) = operation(&line, &mut keys).map_err(refuse)?;
            history.push(key, operation);
        }
        progress(bytes);
    }
    if number == 0 {
        let reason = "the file is empty; its first line must name the format".to_owned();
        return Err(ReadError::Line { number: 1, reason });
    }
    if !of_transactions {
        return Ok(Recorded::Registers(history));
    }
    let history = transactions::History::new(all).map_err(|unusable| ReadError::Line {
        // Transactions begin on the second line.
        number: unusable.transaction as u64 + 2,
        reason: unusable.reason.to_owned(),
    })?;
    Ok(Recorded::Transactions(history))
}

/// Whether the file is of transactions.
fn head(line: &[u8]) -> Result<bool, String> {
    let head: Head<'_> = serde_json::from_slice(line)
        .map_err(|error| format!("the first line must name the format: {}", short(&error)))?;
    let known = [FORMAT, TRANSACTIONS].contains(&&*head.format);
    if !known || head.version != VERSION {
        return Err(format!(
            "the format is `{}` version {}; only `{FORMAT}` and `{TRANSACTIONS}` version {VERSION} \
             are known",
            head.format, head.version
        ));
    }
    Ok(head.format == TRANSACTIONS)
}

/// One allocation for each key.
fn share(key: Text<'_>, keys: &mut BTreeSet<Bytes>) -> Result<Bytes, String> {
    let key = key.into_bytes()?;
    Ok(match keys.get(&key[..]) {
        Some(key) => key.clone(),
        None => {
            let key = Bytes::from(key);
            keys.insert(key.clone());
            key
        }
    })
}

/// The operation on a line. Keys are shared.
fn operation(line: &[u8], keys: &mut BTreeSet<Bytes>) -> Result<(Bytes, Operation<Bytes>), String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| short(&error))?;
    let outcome = ended(line.outcome, line.call, line.returned)?;
    let value = match line.value {
        None => None,
        Some(Field(None)) => Some(None),
        Some(Field(Some(text))) => Some(Some(Bytes::from(text.into_bytes()?))),
    };
    let action = match (line.op, value, line.outcome) {
        (Op::Write, Some(Some(value)), _) => Action::Write(Some(value)),
        (Op::Write, _, _) => return Err("`write` needs a `value` that is not null".to_owned()),
        (Op::Delete, None, _) => Action::Write(None),
        (Op::Delete, Some(_), _) => return Err("`delete` has no `value`".to_owned()),
        (Op::Read, Some(value), Ended::Ok) => Action::Read(value),
        (Op::Read, None, Ended::Ok) => {
            return Err("`read` with outcome `ok` needs a `value`; null is absent".to_owned());
        }
        (Op::Read, None, _) => Action::Read(None),
        (Op::Read, Some(_), _) => {
            return Err("a `read` has a `value` only with outcome `ok`".to_owned());
        }
    };
    let key = share(line.key, keys)?;
    let operation = Operation {
        client: line.client,
        call: line.call,
        action,
        outcome,
    };
    Ok((key, operation))
}

fn ended(outcome: Ended, call: u64, returned: Option<u64>) -> Result<Ending, String> {
    Ok(match (outcome, returned) {
        (Ended::Ok, None) => return Err("outcome `ok` needs a `return`".to_owned()),
        (_, Some(at)) if at < call => {
            return Err(format!("`return` {at} is before `call` {call}"));
        }
        (_, Some(u64::MAX)) => return Err(format!("`return` must be below {}", u64::MAX)),
        (Ended::Ok, Some(returned)) => Ending::Ok { returned },
        (Ended::Failed, _) => Ending::Failed,
        (Ended::Unknown, _) => Ending::Unknown,
    })
}

fn ending(outcome: Ending) -> (Ended, Option<u64>) {
    match outcome {
        Ending::Ok { returned } => (Ended::Ok, Some(returned)),
        Ending::Failed => (Ended::Failed, None),
        Ending::Unknown => (Ended::Unknown, None),
    }
}

/// Without the parser's line, which is always 1.
fn short(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.replace(" at line 1 column", " at column")
}

/// Writes the first line of a history of registers. One [`write_operation`] per operation follows.
///
/// # Errors
///
/// Those of the writer.
pub fn write_head(to: &mut impl Write) -> io::Result<()> {
    write_format(to, FORMAT)
}

/// Writes the first line of a history of transactions. One [`write_transaction`] each follows.
///
/// # Errors
///
/// Those of the writer.
pub fn write_head_of_transactions(to: &mut impl Write) -> io::Result<()> {
    write_format(to, TRANSACTIONS)
}

fn write_format(to: &mut impl Write, format: &str) -> io::Result<()> {
    let head = Head {
        format: format.into(),
        version: VERSION,
    };
    serde_json::to_writer(&mut *to, &head)?;
    to.write_all(b"\n")
}

/// Writes an operation as a line.
///
/// # Errors
///
/// Those of the writer.
pub fn write_operation<V: AsRef<[u8]>>(
    to: &mut impl Write,
    key: &[u8],
    operation: &Operation<V>,
) -> io::Result<()> {
    let (outcome, returned) = ending(operation.outcome);
    let text = |value: &'_ V| -> Vec<u8> { value.as_ref().to_vec() };
    let (op, value) = match &operation.action {
        Action::Write(None) => (Op::Delete, None),
        Action::Write(Some(value)) => (Op::Write, Some(Some(text(value)))),
        Action::Read(_) if outcome != Ended::Ok => (Op::Read, None),
        Action::Read(value) => (Op::Read, Some(value.as_ref().map(text))),
    };
    let line = Line {
        key: Text::of(key),
        client: operation.client,
        op,
        value: (value.as_ref()).map(|value| Field(value.as_deref().map(Text::of))),
        call: operation.call,
        returned,
        outcome,
    };
    serde_json::to_writer(&mut *to, &line)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "{\"format\":\"fermata-history\",\"version\":1}\n";

    fn read_text(text: &str) -> Result<History<Bytes, Bytes>, String> {
        match read(text.as_bytes(), |_| {}).map_err(|error| error.to_string())? {
            Recorded::Registers(history) => Ok(history),
            Recorded::Transactions(_) => Err("transactions".to_owned()),
        }
    }

    #[test]
    fn a_written_history_is_read_back() {
        let ok = Ending::Ok { returned: 9 };
        let operations = [
            (Action::Write(Some(&b"a \"quoted\" one"[..])), ok),
            (Action::Write(Some(&[0xff, 0x00][..])), Ending::Unknown),
            (Action::Write(None), ok),
            (Action::Write(Some(&b""[..])), Ending::Failed),
            (Action::Read(None), ok),
            (Action::Read(Some(&b"x"[..])), ok),
            (Action::Read(None), Ending::Unknown),
        ];
        let operations = operations.map(|(action, outcome)| Operation {
            client: 7,
            call: 3,
            action,
            outcome,
        });
        let mut text = Vec::new();
        write_head(&mut text).unwrap();
        for operation in &operations {
            write_operation(&mut text, b"key", operation).unwrap();
        }
        let text = String::from_utf8(text).unwrap();
        let history = read_text(&text).unwrap();
        let key: Bytes = (*b"key").into();
        let back = history.register(&key).unwrap();
        assert_eq!(back.len(), operations.len());
        for (back, operation) in back.iter().zip(&operations) {
            let own = |value: &Option<&[u8]>| value.map(Bytes::from);
            let action = match &operation.action {
                Action::Read(value) => Action::Read(own(value)),
                Action::Write(value) => Action::Write(own(value)),
            };
            assert_eq!((&back.action, back.outcome), (&action, operation.outcome));
            assert_eq!((back.client, back.call), (7, 3));
        }
    }

    #[test]
    fn the_first_line_names_the_format() {
        assert!(
            read_text("")
                .unwrap_err()
                .starts_with("line 1: the file is empty")
        );
        assert!(
            read_text("{}\n")
                .unwrap_err()
                .starts_with("line 1: the first line must name")
        );
        let other = HEAD.replace(":1}", ":2}");
        assert!(read_text(&other).unwrap_err().contains("version 2; only"));
        assert_eq!(read_text(HEAD).unwrap().operations(), 0);
    }

    #[test]
    fn other_lines_are_refused_with_number_and_reason() {
        let good =
            r#"{"key":"k","client":1,"op":"read","value":null,"call":1,"return":2,"outcome":"ok"}"#;
        assert_eq!(read_text(&format!("{HEAD}{good}")).unwrap().operations(), 1);
        let bad = [
            ("", "the line is empty"),
            ("{", "EOF"),
            (&good.replace("\"call\":1,", ""), "missing field `call`"),
            (&good.replace("\"call\":1", "\"call\":-1"), "invalid value"),
            (&good.replace("\"call\":1", "\"call\":1.5"), "invalid type"),
            (
                &good.replace("\"call\":1", "\"call\":3"),
                "is before `call`",
            ),
            (&good.replace("\"return\":2,", ""), "needs a `return`"),
            (&good.replace("\"value\":null,", ""), "needs a `value`"),
            (&good.replace("read", "write"), "not null"),
            (&good.replace("read", "delete"), "`delete` has no `value`"),
            (&good.replace("read", "cas"), "unknown variant"),
            (&good.replace("\"ok\"", "\"unknown\""), "only with outcome"),
            (&good.replace("null", "{\"hex\":\"abc\"}"), "hexadecimal"),
            (&good.replace("null", "{\"hex\":\"é!\"}"), "hexadecimal"),
            (&good.replace("null", "17"), "did not match"),
            (&good.replace("\"client\"", "\"process\""), "unknown field"),
            (
                &good.replace("\"op\"", "\"key\":\"k\",\"op\""),
                "duplicate field",
            ),
            (&format!("{good} {good}"), "trailing characters"),
        ];
        for (line, reason) in bad {
            let text = format!("{HEAD}{good}\n{line}\n");
            let error = read_text(&text).unwrap_err();
            assert!(error.starts_with("line 3: "), "{line}: {error}");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
