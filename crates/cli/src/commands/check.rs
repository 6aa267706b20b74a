//! `fermata check`: decides whether a recorded history is linearizable, or strictly serializable if
//! it is of transactions.

mod transactions;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Instant;

use fermata_check::file::{self, Bytes, Recorded};
use fermata_check::{Action, Bound, Core, Ending, History, Operation, Report, Verdict, diagram};
use indicatif::{HumanCount, ProgressBar};
use serde_json::{Value, json};

use crate::args::{CheckArgs, Global};
use crate::exit::Failure;
use crate::output;

/// Exit status: no key is known not to be linearizable, but some were not decided.
const UNDECIDED: u8 = 3;

/// Values in a diagram are cut after this many characters.
const SHOWN_MAX: usize = 24;

/// Lines between two looks at the progress bar.
const LINES_PER_TICK: u64 = 1_000;

/// Reads and checks. Exit status 0: the promise was kept, 1: not, 3: undecided.
pub(crate) fn run(global: &Global, args: CheckArgs) -> Result<u8, Failure> {
    let start = Instant::now();
    match read(&args.history)? {
        Recorded::Registers(history) => registers(global, &args, &history, start),
        Recorded::Transactions(history) => transactions::run(global, &history, start),
    }
}

fn registers(
    global: &Global,
    args: &CheckArgs,
    history: &History<Bytes, Bytes>,
    start: Instant,
) -> Result<u8, Failure> {
    let bound = Bound {
        states: args.states,
        ..Bound::default()
    };
    let bar = bar(
        history.operations(),
        "{human_pos} of {human_len} operations {msg}",
    );
    let report = history.check(bound, |progress| {
        bar.set_position(progress.done);
        if progress.violations > 0 {
            bar.set_message(format!("{} not linearizable", keys(progress.violations)));
        }
    });
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    if global.json {
        output::json(&as_json(history, &report, seconds))?;
    } else {
        output::text(in_words(history, &report, seconds))?;
    }
    Ok(match (report.violations(), report.undecided()) {
        (0, 0) => 0,
        (0, _) => UNDECIDED,
        _ => 1,
    })
}

fn read(path: &Path) -> Result<Recorded, Failure> {
    let refuse = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{} cannot be read as a history: {error}",
            path.display()
        ))
    };
    let (from, length): (Box<dyn Read>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(path).map_err(|error| refuse(&error))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), length)
    };
    let bar = bar(length, "{bytes} of {total_bytes} read {msg}");
    let mut lines = 0;
    let history = file::read(BufReader::with_capacity(1 << 20, from), |bytes| {
        lines += 1;
        if lines % LINES_PER_TICK == 0 {
            bar.set_position(bytes);
        }
    });
    bar.finish_and_clear();
    history.map_err(|error| refuse(&error))
}

fn bar(length: u64, after: &str) -> ProgressBar {
    output::progress_bar(length, &format!("{{bar:30}} {after} {{elapsed}}"))
}

fn in_words(history: &History<Bytes, Bytes>, report: &Report<Bytes>, seconds: f64) -> String {
    let mut text = String::new();
    for (key, verdict) in &report.findings {
        let key_shown = shown(key, usize::MAX);
        match verdict {
            Verdict::Linearizable => {}
            Verdict::Undecided => {
                text += &format!("key {key_shown}: undecided; more --states may decide it\n\n");
            }
            Verdict::Violation(part) => {
                let operations = operations(history, key);
                text += &format!("key {key_shown}: not linearizable; {}:\n", about(part));
                let value = |value: &Bytes| shown(value, SHOWN_MAX);
                for line in diagram(operations, &part.operations, value).lines() {
                    text += &format!("  {line}\n");
                }
                text += "\n";
            }
        }
    }
    let (wrong, undecided) = (report.violations(), report.undecided());
    let verdict = match (wrong, undecided) {
        (0, 0) => "linearizable".to_owned(),
        (0, _) => format!("undecided: {}", keys(undecided)),
        (_, 0) => format!("not linearizable: {}", keys(wrong)),
        (_, _) => format!("not linearizable: {}, undecided: {undecided}", keys(wrong)),
    };
    let operations = number_of(report.operations, "operation");
    let all = keys(report.registers);
    text += &format!("{verdict}; {operations} on {all} in {seconds:.1} s");
    text
}

fn keys(count: u64) -> String {
    number_of(count, "key")
}

fn number_of(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {what}{ending}", HumanCount(count))
}

fn about(part: &Core) -> &'static str {
    match part.minimal {
        true => "no order explains these operations, and each is needed to show it",
        false => "no order explains these operations; fewer may show it",
    }
}

fn as_json(history: &History<Bytes, Bytes>, report: &Report<Bytes>, seconds: f64) -> Value {
    let findings: Vec<Value> = (report.findings.iter())
        .map(|(key, verdict)| match verdict {
            Verdict::Violation(part) => {
                let all = operations(history, key);
                let part_operations = part.operations.iter().map(|place| operation(&all[*place]));
                json!({
                    "key": output::bytes_as_json(key),
                    "verdict": "not_linearizable",
                    "minimal": part.minimal,
                    "operations": part_operations.collect::<Vec<Value>>(),
                })
            }
            _ => json!({ "key": output::bytes_as_json(key), "verdict": "undecided" }),
        })
        .collect();
    let verdict = match (report.violations(), report.undecided()) {
        (0, 0) => "linearizable",
        (0, _) => "undecided",
        _ => "not_linearizable",
    };
    json!({
        "verdict": verdict,
        "operations": report.operations,
        "keys": report.registers,
        "findings": findings,
        "seconds": seconds,
    })
}

/// The fields of a line of the history, without the key.
fn operation(operation: &Operation<Bytes>) -> Value {
    let (op, value) = match &operation.action {
        Action::Write(Some(value)) => ("write", Some(value)),
        Action::Write(None) => ("delete", None),
        Action::Read(value) => ("read", value.as_ref()),
    };
    let (outcome, returned) = match operation.outcome {
        Ending::Ok { returned } => ("ok", Some(returned)),
        Ending::Failed => ("failed", None),
        Ending::Unknown => ("unknown", None),
    };
    json!({
        "client": operation.client,
        "op": op,
        "value": value.map(|value| output::bytes_as_json(value)),
        "call": operation.call,
        "return": returned,
        "outcome": outcome,
    })
}

fn operations<'a>(history: &'a History<Bytes, Bytes>, key: &Bytes) -> &'a [Operation<Bytes>] {
    let operations = history.register(key);
    operations.expect("a finding is about a register of the history")
}

/// Quoted, or in hexadecimal; cut after `most` characters.
fn shown(bytes: &[u8], most: usize) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    match text.char_indices().nth(most) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"format":"fermata-history","version":1}"#;

    fn status_of(lines: &[&str], states: u64) -> Result<u8, Failure> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let history = folder.path().join("history.jsonl");
        std::fs::write(&history, lines.join("\n")).expect("it can be written to");
        run(&Global::default(), CheckArgs { history, states })
    }

    fn line(op: &str, value: &str, call: u64, returned: u64) -> String {
        let text = json!({
            "key": "k", "client": 1, "op": op, "value": value,
            "call": call, "return": returned, "outcome": "ok",
        });
        text.to_string()
    }

    #[test]
    fn the_exit_status_is_the_verdict() {
        let (write, read) = (line("write", "a", 0, 1), line("read", "a", 2, 3));
        assert_eq!(status_of(&[HEAD, &write, &read], 10).unwrap(), 0);
        assert_eq!(status_of(&[HEAD, &read], 10).unwrap(), 1);
        let refused = status_of(&[&write], 10).unwrap_err();
        assert_eq!(refused.exit as u8, 2);
        assert!(refused.sentence.contains("line 1: "), "{refused}");
    }

    #[test]
    fn transactions_have_the_same_exit_status() {
        let head = r#"{"format":"fermata-transactions","version":1}"#;
        let line = |timestamp: &str, call: u64, acts: &str| {
            let times = format!(r#""client":1,"call":{call},"return":{}"#, call + 5);
            format!(r#"{{{times},{timestamp}"outcome":"ok","transaction":[{acts}]}}"#)
        };
        let append = line("", 0, r#"{"append":["x",1]}"#);
        let fresh = line("", 10, r#"{"list":["x",[1]]}"#);
        let stale = line("", 10, r#"{"list":["x",[]]}"#);
        assert_eq!(status_of(&[head, &append, &fresh], 10).unwrap(), 0);
        assert_eq!(status_of(&[head, &append, &stale], 10).unwrap(), 1);
        let write = line("", 0, r#"{"write":["x",1]}"#);
        let stamped = line(r#""timestamp":[5,0],"#, 0, r#"{"write":["x",1]}"#);
        assert_eq!(status_of(&[head, &write], 10).unwrap(), UNDECIDED);
        assert_eq!(status_of(&[head, &stamped], 10).unwrap(), 0);
        let refused = status_of(&[head, &append, &append], 10).unwrap_err();
        assert!(refused.sentence.contains("line 3: "), "{refused}");
    }

    #[test]
    fn without_states_what_is_ambiguous_is_undecided() {
        let lines: Vec<String> = (0..40)
            .map(|number| {
                line(
                    ["write", "read"][number % 2],
                    ["a", "b"][number / 2 % 2],
                    0,
                    9,
                )
            })
            .collect();
        let lines: Vec<&str> = [HEAD]
            .into_iter()
            .chain(lines.iter().map(String::as_str))
            .collect();
        assert_eq!(status_of(&lines, 0).unwrap(), UNDECIDED);
        assert_eq!(status_of(&lines, 1_000).unwrap(), 0);
    }

    #[test]
    fn values_are_shown_short() {
        assert_eq!(shown(b"a\n", 24), "\"a\\n\"");
        assert_eq!(shown(&[0xff, 1], 24), "ff01");
        assert_eq!(shown(b"abcdef", 4), "\"abc…");
    }
}
