//! Rules on single files.

use super::{File, Tree, Violation};
use crate::wrap::wrap_page;

/// Lines of a source file, its tests not counted.
const LINES_MAX: usize = 1_000;

/// Columns of a line of source.
pub(crate) const COLUMNS_MAX: usize = 100;

/// Whether a source file holds only tests.
fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("_tests.rs") || path.ends_with("/tests.rs")
}

/// The file's lines up to its own test module, which by custom comes last.
fn without_tests(file: &File) -> impl Iterator<Item = &str> {
    let marker = concat!("#[cfg", "(test)]\nmod tests {");
    let end = file.text.find(marker).unwrap_or(file.text.len());
    file.text[..end].lines()
}

/// At most [`LINES_MAX`] lines per source file, a file of tests too; tests beside the code they
/// test do not count.
pub(super) fn sizes(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.ending(".rs") {
        let lines = without_tests(file).count();
        if lines > LINES_MAX {
            found.push(format!(
                "{}: {lines} lines without tests; split it below {LINES_MAX}",
                file.path
            ));
        }
    }
    found
}

/// At most [`COLUMNS_MAX`] columns in source. Tables in comments and links cannot be broken and are
/// excepted, and fenced text in pages.
pub(super) fn widths(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.ending(".rs") {
        for (index, line) in file.text.lines().enumerate() {
            let bare = line.trim_start();
            let table = bare.starts_with("//! |") || bare.starts_with("/// |");
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !table && !bare.contains("https://") {
                let place = format!("{}:{}", file.path, index + 1);
                found.push(format!(
                    "{place}: {columns} columns (`cargo xtask fix` wraps comments)"
                ));
            }
        }
    }
    for page in tree.ending(".md") {
        if wrap_page(&page.text) != page.text {
            found.push(format!(
                "{}: over {COLUMNS_MAX} columns (`cargo xtask fix` wraps it)",
                page.path
            ));
        }
    }
    found
}

/// No unfinished, disabled or dead code.
pub(super) fn leftovers(tree: &Tree) -> Vec<Violation> {
    // Split, so that this file does not break its own rule.
    let words = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ign", "ore"),
        concat!("allow(dead", "_code"),
        concat!("db", "g!("),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    let mut found = Vec::new();
    for file in tree.ending(".rs") {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{}: `{word}`", file.path, index + 1));
            }
        }
    }
    found
}

/// Each source file opens with a `//!` text; a crate's `lib.rs` with an essay of several lines.
pub(super) fn essays(tree: &Tree) -> Vec<Violation> {
    const ESSAY_LINES_MIN: usize = 5;
    let mut found = Vec::new();
    for file in tree.ending(".rs") {
        let essay = file.text.lines().take_while(|l| l.starts_with("//!"));
        let lines = essay.count();
        let crate_root = file.path.ends_with("src/lib.rs");
        if lines == 0 {
            found.push(format!("{}: open it with `//!`: what it is for", file.path));
        } else if crate_root && lines < ESSAY_LINES_MIN {
            found.push(format!(
                "{}: a crate opens with an essay: problem, idea, invariants, departures",
                file.path
            ));
        }
    }
    found
}

/// No path that exists on one machine only.
pub(super) fn private_paths(tree: &Tree) -> Vec<Violation> {
    let prefixes = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
        concat!("../sha", "red"),
    ];
    let mut found = Vec::new();
    for file in tree.files.iter() {
        for (index, line) in file.text.lines().enumerate() {
            if prefixes.iter().any(|prefix| line.contains(prefix)) {
                found.push(format!("{}:{}: a private path", file.path, index + 1));
            }
        }
    }
    found
}

/// The protocol crate is `no_std` without unsafe code and never takes the standard library back,
/// except in tests.
pub(super) fn pure_protocol(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let root = "crates/protocol/src/lib.rs";
    let Some(lib) = tree.get(root) else {
        return vec![format!("{root}: missing")];
    };
    for needed in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if !lib.text.contains(needed) {
            found.push(format!("{root}: `{needed}` is missing"));
        }
    }
    let sources = tree
        .ending(".rs")
        .filter(|f| f.path.starts_with("crates/protocol/src/") && !is_test(&f.path));
    for file in sources {
        let mut before = "";
        for (index, line) in without_tests(file).enumerate() {
            let code = line.split("//").next().unwrap_or(line);
            let tests_only = before.trim() == concat!("#[cfg", "(test)]");
            let names_std = code.contains("extern crate std") || code.contains("std::");
            if names_std && !tests_only {
                found.push(format!("{}:{}: names `std`", file.path, index + 1));
            }
            before = line;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found_and_the_tests_in_it_are_not_counted() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(sizes(&Tree::of(&[("a.rs", &long)])).len(), 1);
        assert_eq!(sizes(&Tree::of(&[("tests/a.rs", &long)])).len(), 1);
        let tested = format!("x\n{}{long}}}", concat!("#[cfg", "(test)]\nmod tests {\n"));
        assert!(sizes(&Tree::of(&[("a.rs", &tested)])).is_empty());
    }

    #[test]
    fn a_wide_line_is_found_but_not_in_tables() {
        let wide = "w".repeat(COLUMNS_MAX + 1);
        assert_eq!(widths(&Tree::of(&[("a.rs", &wide)])).len(), 1);
        assert!(widths(&Tree::of(&[("a.md", &format!("{wide}\n"))])).is_empty());
        let words = "word ".repeat(30);
        assert_eq!(widths(&Tree::of(&[("a.md", &words)])).len(), 1);
        assert!(widths(&Tree::of(&[("a.rs", &format!("//! | {wide} |"))])).is_empty());
    }

    #[test]
    fn leftovers_are_found() {
        let text = concat!("fn f() { to", "do!() }\n#[ign", "ore]\n");
        assert_eq!(leftovers(&Tree::of(&[("a.rs", text)])).len(), 2);
    }

    #[test]
    fn a_file_without_essay_is_found() {
        assert_eq!(essays(&Tree::of(&[("a.rs", "fn f() {}")])).len(), 1);
        assert!(essays(&Tree::of(&[("a.rs", "//! Why.\n")])).is_empty());
        assert_eq!(essays(&Tree::of(&[("src/lib.rs", "//! Why.\n")])).len(), 1);
    }

    #[test]
    fn a_private_path_is_found() {
        let text = concat!("see /ho", "me/someone/notes");
        assert_eq!(private_paths(&Tree::of(&[("a.md", text)])).len(), 1);
    }

    #[test]
    fn the_standard_library_is_found_in_the_protocol() {
        let lib = "#![no_std]\n#![forbid(unsafe_code)]\n";
        let file = "crates/protocol/src/lib.rs";
        assert!(pure_protocol(&Tree::of(&[(file, lib)])).is_empty());
        assert_eq!(pure_protocol(&Tree::of(&[(file, "")])).len(), 2);
        let clock = ("crates/protocol/src/a.rs", "use std::time::Instant;");
        assert_eq!(pure_protocol(&Tree::of(&[(file, lib), clock])).len(), 1);
    }
}
