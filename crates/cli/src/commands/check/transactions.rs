//! Histories of transactions.

use std::time::Instant;

use fermata_check::file::Bytes;
use fermata_check::transactions::{History, Transaction, Verdict, Violation, check};
use serde_json::{Value, json};

use super::{UNDECIDED, number_of, shown};
use crate::args::Global;
use crate::exit::Failure;
use crate::output;

/// Checks in every way that the history was recorded for.
pub(super) fn run(
    global: &Global,
    history: &History<Bytes>,
    start: Instant,
) -> Result<u8, Failure> {
    let verdict = check(history);
    let seconds = start.elapsed().as_secs_f64();
    if global.json {
        output::json(&as_json(history, &verdict, seconds))?;
    } else {
        output::text(in_words(history, &verdict, seconds))?;
    }
    Ok(match verdict {
        Verdict::Serializable => 0,
        Verdict::Violation(_) => 1,
        Verdict::Undecided(_) => UNDECIDED,
    })
}

fn in_words(history: &History<Bytes>, verdict: &Verdict<Bytes>, seconds: f64) -> String {
    let mut text = String::new();
    let in_short = match verdict {
        Verdict::Serializable => "strictly serializable".to_owned(),
        Verdict::Undecided(why) => format!("undecided: {why}"),
        Verdict::Violation(violation) => {
            text += &format!("{}:\n", violation.kind.name());
            for place in &violation.transactions {
                let transaction = &history.transactions()[*place];
                text += &format!("  T{place}: {}\n", about(*place, transaction));
            }
            for line in facts(violation) {
                text += &format!("  {line}\n");
            }
            text += "\n";
            "not strictly serializable".to_owned()
        }
    };
    let transactions = number_of(history.transactions().len() as u64, "transaction");
    let keys = number_of(history.keys() as u64, "key");
    text + &format!("{in_short}; {transactions} on {keys} in {seconds:.1} s")
}

/// Where a transaction is found again: transactions begin on the second line of a file.
fn about(place: usize, transaction: &Transaction<Bytes>) -> String {
    let (line, client, begin) = (place + 2, transaction.client, transaction.begin);
    format!("line {line}, client {client}, called at {begin}")
}

fn facts(violation: &Violation<Bytes>) -> Vec<String> {
    let told = violation.tell(&|key| shown(key, usize::MAX));
    told.lines().map(str::to_owned).collect()
}

fn as_json(history: &History<Bytes>, verdict: &Verdict<Bytes>, seconds: f64) -> Value {
    let (verdict, finding) = match verdict {
        Verdict::Serializable => ("strictly_serializable", Value::Null),
        Verdict::Undecided(why) => ("undecided", json!({ "reason": why })),
        Verdict::Violation(violation) => {
            let lines = violation.transactions.iter().map(|place| place + 2);
            let finding = json!({
                "kind": violation.kind.name(),
                "minimal": violation.minimal,
                "transactions": violation.transactions,
                "lines": lines.collect::<Vec<usize>>(),
                "because": facts(violation),
            });
            ("not_strictly_serializable", finding)
        }
    };
    json!({
        "verdict": verdict,
        "transactions": history.transactions().len(),
        "keys": history.keys(),
        "finding": finding,
        "seconds": seconds,
    })
}
