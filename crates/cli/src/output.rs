//! What goes to standard output: tables for people, JSON for programs, raw values.
//!
//! Colours are for terminals alone, and not where `NO_COLOR` says so: [`coloured`] writes what has
//! some, and nothing else does, since keys and values are any bytes.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::Failure;

/// A table with a head; columns of numbers are set right.
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    judged: Option<Judged>,
}

/// Of which column cells are green where they are well, and red otherwise.
type Judged = (usize, fn(&str) -> bool);

/// Draws the eye to something that is wrong.
pub(crate) const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
pub(crate) const PLAIN: &str = "\x1b[0m";

impl Table {
    /// An empty table.
    pub(crate) fn new(head: &[&'static str]) -> Table {
        Table {
            head: head.to_vec(),
            rows: Vec::new(),
            judged: None,
        }
    }

    /// The same with colours: green where a cell of this column is well, and else red.
    pub(crate) fn judged(self, column: &str, is_well: fn(&str) -> bool) -> Table {
        let at = self.head.iter().position(|head| *head == column);
        Table {
            judged: at.map(|at| (at, is_well)),
            ..self
        }
    }

    /// Adds a row, which has a cell per column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a cell per column");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells
                .max()
                .unwrap_or(0)
                .max(self.head[column].chars().count())
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let numeric: Vec<bool> = (0..self.head.len())
            .map(|column| {
                let mut cells = self.rows.iter().map(|row| row[column].as_str());
                cells.all(|c| c.starts_with(|c: char| c.is_ascii_digit()) && !c.contains(':'))
            })
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>, judged: Option<Judged>| {
            let mut text = String::new();
            for (column, cell) in cells.enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let (width, right) = (widths[column], numeric[column]);
                let padded = if right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                };
                text += gap;
                text += &match judged {
                    Some((at, is_well)) if at == column => {
                        let colour = if is_well(cell) { GREEN } else { RED };
                        format!("{colour}{padded}{PLAIN}")
                    }
                    _ => padded,
                };
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(&mut self.head.iter().copied(), None)?;
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str), self.judged)?;
        }
        Ok(())
    }
}

/// Prints bytes as they are, flushed. A reader that has gone away is no failure of ours.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::local("standard output", error))
        }
        _ => Ok(()),
    }
}

/// Prints text that may have colours. Says whether anybody reads it.
pub(crate) fn coloured(text: &str) -> Result<bool, Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::local("standard output", error)),
    }
}

/// Prints text and a newline, unless it ends with one.
pub(crate) fn text(text: impl fmt::Display) -> Result<(), Failure> {
    let mut text = text.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    bytes(text.as_bytes())
}

/// Prints a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
    text(line)
}

/// Prints a stored value: its bytes and nothing else, so that pipes get what was put; on a terminal
/// a newline follows, so that the prompt does not stick to it.
pub(crate) fn value(value: &[u8]) -> Result<(), Failure> {
    bytes(value)?;
    if io::stdout().is_terminal() && !value.ends_with(b"\n") {
        bytes(b"\n")?;
    }
    Ok(())
}

/// What takes no longer needs no word.
const SOON: Duration = Duration::from_secs(1);

/// A progress bar of so many steps, on standard error where that is a terminal.
pub(crate) fn progress_bar(steps: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::new(steps).with_style(style.progress_chars("=> "))
}

/// On a terminal says, from a second on, what is being done and for how long.
pub(crate) async fn while_it_lasts<T>(what: &str, done: impl Future<Output = T>) -> T {
    let mut done = std::pin::pin!(done);
    if let Ok(done) = tokio::time::timeout(SOON, done.as_mut()).await {
        return done;
    }
    let line = progress_bar(0, "{spinner} {msg}, {elapsed}");
    let line = line.with_message(what.to_owned()).with_elapsed(SOON);
    line.enable_steady_tick(SOON / 10);
    let done = done.await;
    line.finish_and_clear();
    done
}

/// Bytes in JSON: a string where they are UTF-8, otherwise `{"hex": "…"}`.
pub(crate) fn bytes_as_json(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            serde_json::json!({ "hex": hex })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new(&["site", "ms", "at"]);
        table.row(vec!["ohio".into(), "5.2".into(), "127.0.0.1:7100".into()]);
        table.row(vec!["é".into(), "100".into(), "x".into()]);
        let lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "site   ms  at");
        assert_eq!(lines[1], "ohio  5.2  127.0.0.1:7100");
        assert_eq!(lines[2], "é     100  x");
    }

    #[test]
    fn what_is_wrong_is_red_and_lines_up() {
        let mut table = Table::new(&["node", "health", "ms"]).judged("health", |h| h == "well");
        table.row(vec!["a".into(), "well".into(), "1".into()]);
        table.row(vec!["b".into(), "no answer".into(), "2".into()]);
        let lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], "node  health     ms");
        assert_eq!(lines[1], "a     \x1b[32mwell     \x1b[0m   1");
        assert_eq!(lines[2], "b     \x1b[31mno answer\x1b[0m   2");
    }

    #[test]
    fn bytes_that_are_no_text_become_hex() {
        assert_eq!(bytes_as_json(b"abc"), serde_json::json!("abc"));
        assert_eq!(
            bytes_as_json(&[0xff, 0x01]),
            serde_json::json!({ "hex": "ff01" })
        );
    }
}
