//! The lines of transactions.

use super::{Bytes, Ended, Text, ended, ending, share, short};
use crate::transactions::{Action, Timestamp, Transaction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Write};

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    client: u64,
    call: u64,
    #[serde(rename = "return", default, skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    outcome: Ended,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    snapshot: bool,
    #[serde(borrow)]
    transaction: Vec<Act<'a>>,
}

/// One action; reads whose answer nobody saw have none.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Act<'a> {
    Append(#[serde(borrow)] Text<'a>, u64),
    List(#[serde(borrow)] Text<'a>, Vec<u64>),
    Write(#[serde(borrow)] Text<'a>, u64),
    Read(#[serde(borrow)] Text<'a>, Option<u64>),
}

/// The transaction on a line. Keys are shared.
pub(super) fn parse(line: &[u8], keys: &mut BTreeSet<Bytes>) -> Result<Transaction<Bytes>, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| short(&error))?;
    let acts = line.transaction.into_iter();
    let actions: Result<_, String> = acts.map(|act| action(act, keys)).collect();
    let actions = actions?;
    Ok(Transaction {
        client: line.client,
        begin: line.call,
        outcome: ended(line.outcome, line.call, line.returned)?,
        timestamp: line.timestamp,
        snapshot: line.snapshot,
        actions,
    })
}

fn action(act: Act<'_>, keys: &mut BTreeSet<Bytes>) -> Result<Action<Bytes>, String> {
    match act {
        Act::Append(text, value) => share(text, keys).map(|key| Action::Append { key, value }),
        Act::List(text, values) => share(text, keys).map(|key| Action::List { key, values }),
        Act::Write(text, value) => share(text, keys).map(|key| Action::Write { key, value }),
        Act::Read(text, value) => share(text, keys).map(|key| Action::Read { key, value }),
    }
}

/// Writes a transaction as a line.
///
/// # Errors
///
/// Those of the writer.
pub fn write_transaction<K: AsRef<[u8]>>(
    to: &mut impl Write,
    transaction: &Transaction<K>,
) -> io::Result<()> {
    let (outcome, returned) = ending(transaction.outcome);
    let acts = transaction.actions.iter().map(|action| match action {
        Action::Append { key, value } => Act::Append(Text::of(key.as_ref()), *value),
        Action::List { key, values } => Act::List(Text::of(key.as_ref()), values.clone()),
        Action::Write { key, value } => Act::Write(Text::of(key.as_ref()), *value),
        Action::Read { key, value } => Act::Read(Text::of(key.as_ref()), *value),
    });
    let line = Line {
        client: transaction.client,
        call: transaction.begin,
        returned,
        outcome,
        timestamp: transaction.timestamp,
        snapshot: transaction.snapshot,
        transaction: acts.collect(),
    };
    serde_json::to_writer(&mut *to, &line)?;
    to.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use crate::file::{Recorded, read, write_head_of_transactions, write_transaction};
    use crate::transactions::{Action, History, Transaction, random};
    use fermata_protocol::base::Rng;

    const HEAD: &str = "{\"format\":\"fermata-transactions\",\"version\":1}\n";

    fn read_text(text: &str) -> Result<History<super::Bytes>, String> {
        match read(text.as_bytes(), |_| {}).map_err(|error| error.to_string())? {
            Recorded::Transactions(history) => Ok(history),
            Recorded::Registers(_) => Err("registers".to_owned()),
        }
    }

    #[test]
    fn written_transactions_are_read_back() {
        for registers in [false, true] {
            let shape = random::Shape {
                transactions: 50,
                keys: 3,
                appends: 5,
                actions: 4,
                overlap: 20,
                unknown: 10,
                failed: 10,
                snapshots: 20,
                registers,
            };
            let named = |key: u64| super::Bytes::from([b'k', key as u8, 0xff * (key as u8 % 2)]);
            let all = random::serial(&mut Rng::new(7), shape);
            let all = all.into_iter().map(|t| rename(t, named));
            let all: Vec<_> = all.collect();
            let mut text = Vec::new();
            write_head_of_transactions(&mut text).unwrap();
            for transaction in &all {
                write_transaction(&mut text, transaction).unwrap();
            }
            let back = read_text(std::str::from_utf8(&text).unwrap()).unwrap();
            assert_eq!(back.transactions(), all);
        }
    }

    fn rename<K>(t: Transaction<u64>, named: impl Fn(u64) -> K) -> Transaction<K> {
        let actions = t.actions.into_iter().map(|action| match action {
            Action::Append { key, value } => Action::Append {
                key: named(key),
                value,
            },
            Action::List { key, values } => Action::List {
                key: named(key),
                values,
            },
            Action::Write { key, value } => Action::Write {
                key: named(key),
                value,
            },
            Action::Read { key, value } => Action::Read {
                key: named(key),
                value,
            },
        });
        Transaction {
            client: t.client,
            begin: t.begin,
            outcome: t.outcome,
            timestamp: t.timestamp,
            snapshot: t.snapshot,
            actions: actions.collect(),
        }
    }

    #[test]
    fn lines_that_are_not_as_documented_are_refused() {
        let good = concat!(
            r#"{"client":1,"call":0,"return":9,"outcome":"ok","timestamp":[5,0],"#,
            r#""transaction":[{"list":["x",[]]},{"append":["x",1]},{"read":["r",null]}]}"#
        );
        assert_eq!(read_text(&format!("{HEAD}{good}")).unwrap().keys(), 2);
        let bad = [
            (&good.replace("\"return\":9,", ""), "needs a `return`"),
            (
                &good.replace("\"call\":0", "\"call\":10"),
                "is before `call`",
            ),
            (&good.replace("append", "cas"), "unknown variant"),
            (&good.replace("[5,0]", "[5]"), "invalid length"),
            (&good.replace("[5,0]", "[5,70000]"), "invalid value"),
            (&good.replace("\"client\"", "\"process\""), "unknown field"),
            (&good.replace("\"r\",null", "\"x\",null"), "as a register"),
            (
                &good.replace(",\"tran", ",\"snapshot\":true,\"tran"),
                "a snapshot",
            ),
            (
                &good.replace("read\":[\"r\",null", "append\":[\"x\",1"),
                "written before",
            ),
        ];
        for (line, reason) in bad {
            let error = read_text(&format!("{HEAD}{line}\n")).unwrap_err();
            assert!(error.starts_with("line 2: "), "{line}: {error}");
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
