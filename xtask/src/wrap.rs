//! `cargo xtask fix`: what the gate only complains about and a machine can repair: formatting, and
//! comments and pages wider than a line.
//!
//! A paragraph that has a line over the width is filled anew; every other one is left as its author
//! broke it. Tables, fenced text and headings are never touched.

use std::process::{Command, ExitCode};

use crate::tidy::{COLUMNS_MAX, Tree};

/// Rewrites the tree.
pub(crate) fn run() -> ExitCode {
    let tree = Tree::of_workspace();
    let mut changed = 0;
    let sources = tree.ending(".rs").map(|file| (file, wrap(&file.text)));
    let pages = tree.ending(".md").map(|page| (page, wrap_page(&page.text)));
    for (file, wrapped) in sources.chain(pages) {
        if wrapped != file.text {
            changed += 1;
            println!("{}", file.path);
            if let Err(error) = std::fs::write(crate::gate::root().join(&file.path), wrapped) {
                eprintln!("{}: {error}", file.path);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{changed} files rewrapped");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let formatted = Command::new(cargo)
        .args(["fmt", "--all"])
        .current_dir(crate::gate::root())
        .status();
    match formatted {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// A line that is only a comment: its indentation with the marker, and the rest.
fn comment(line: &str) -> Option<(&str, &str)> {
    let start = line.len() - line.trim_start().len();
    let marker = ["//!", "///", "//"]
        .into_iter()
        .find(|m| line[start..].starts_with(m))?;
    let (prefix, rest) = line.split_at(start + marker.len());
    (rest.is_empty() || rest.starts_with(' ')).then_some((prefix, rest))
}

/// A page is all text.
fn whole(line: &str) -> Option<(&str, &str)> {
    Some(("", line))
}

/// The part of a line that is text, and what stands before it; none where the line has no text.
type Text = fn(&str) -> Option<(&str, &str)>;

/// What a line of text is in its paragraph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Goes on with the paragraph before it.
    More,
    /// Begins one; further lines are indented by so many columns.
    Start(usize),
    /// Stands alone, untouched.
    Fixed,
}

fn kind(rest: &str) -> Kind {
    let text = rest.trim_start();
    let indent = rest.len() - text.len();
    let marker = text.find(' ').map_or(text, |end| &text[..end]);
    let numbered = marker.ends_with('.') && marker[..marker.len() - 1].parse::<u32>().is_ok();
    if text.is_empty() || text.starts_with(['#', '|', '>']) || text.starts_with("```") {
        Kind::Fixed
    } else if ["*", "-", "+"].contains(&marker) || numbered {
        Kind::Start(indent + marker.len() + 1)
    } else if indent >= 5 {
        Kind::Fixed
    } else {
        Kind::More
    }
}

/// A source file with every wide paragraph of its comments filled anew.
fn wrap(source: &str) -> String {
    wrap_text(source, comment)
}

/// A page with every wide paragraph filled anew.
pub(crate) fn wrap_page(page: &str) -> String {
    wrap_text(page, whole)
}

fn wrap_text(text: &str, of: Text) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let mut fenced = false;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let Some((prefix, rest)) = of(line) else {
            fenced = false;
            out.push(line.to_owned());
            at += 1;
            continue;
        };
        let fence = rest.trim_start().starts_with("```");
        let first = kind(rest);
        if fence || fenced || first == Kind::Fixed {
            fenced ^= fence;
            out.push(line.to_owned());
            at += 1;
            continue;
        }
        let same = |line: &&&str| of(line).is_some_and(|(p, r)| p == prefix && more(r));
        let rest_of_it = lines[at + 1..].iter().take_while(same).count();
        let paragraph = &lines[at..=at + rest_of_it];
        at += paragraph.len();
        if paragraph
            .iter()
            .all(|line| line.chars().count() <= COLUMNS_MAX)
        {
            out.extend(paragraph.iter().map(|line| (*line).to_owned()));
        } else {
            let paragraph: Vec<&str> = paragraph
                .iter()
                .copied()
                .filter_map(of)
                .map(|p| p.1)
                .collect();
            fill(prefix, first, &paragraph, &mut out);
        }
    }
    let mut text = out.join("\n");
    text.push('\n');
    text
}

fn more(rest: &str) -> bool {
    kind(rest) == Kind::More
}

/// What stands together on a line: a word, code with its spaces, and what would begin an item or a
/// heading at the start of a line with the word before it.
fn units(paragraph: &[&str]) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut open = false;
    for word in paragraph.iter().flat_map(|text| text.split_whitespace()) {
        match units.last_mut() {
            Some(last) if open || kind(word) != Kind::More => {
                last.push(' ');
                last.push_str(word);
            }
            _ => units.push(word.to_owned()),
        }
        open ^= !word.matches('`').count().is_multiple_of(2);
    }
    units
}

fn fill(prefix: &str, first: Kind, paragraph: &[&str], out: &mut Vec<String>) {
    let indent = paragraph[0].len() - paragraph[0].trim_start().len();
    let hanging = match first {
        Kind::Start(columns) => columns,
        Kind::More | Kind::Fixed => indent,
    };
    let mut line = format!("{prefix}{}", " ".repeat(indent));
    let mut empty = true;
    for unit in units(paragraph) {
        let wide = line.chars().count() + 1 + unit.chars().count() > COLUMNS_MAX;
        if wide && !empty {
            out.push(std::mem::replace(
                &mut line,
                format!("{prefix}{}", " ".repeat(hanging)),
            ));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&unit);
        empty = false;
    }
    out.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wide_paragraphs_are_filled() {
        let wide = "word ".repeat(30);
        let text = format!("//! short\n//! lines\n//!\n//! {wide}\n//! end\nfn f() {{}}\n");
        let wrapped = wrap(&text);
        assert!(wrapped.starts_with("//! short\n//! lines\n//!\n//! word"));
        assert!(
            wrapped
                .lines()
                .all(|line| line.chars().count() <= COLUMNS_MAX)
        );
        assert!(wrapped.contains("word end\nfn f() {}\n"));
        assert_eq!(wrap(&wrapped), wrapped);
    }

    #[test]
    fn lists_hang_and_tables_and_code_stay() {
        let wide = "word ".repeat(30);
        let wide = wide.trim_end();
        let item = wrap(&format!("/// * {wide}\n///   end\n/// * next\n"));
        assert!(
            item.lines()
                .nth(1)
                .is_some_and(|line| line.starts_with("///   word"))
        );
        assert!(item.ends_with("word end\n/// * next\n"), "{item}");
        for fixed in [
            format!("/// | {wide} |\n"),
            format!("/// ```\n/// {wide}\n/// ```\n"),
        ] {
            assert_eq!(wrap(&fixed), fixed);
        }
    }

    #[test]
    fn pages_are_filled_and_code_is_kept_together() {
        let words = "word ".repeat(18);
        let page = format!("# Title\n\n{words}`one two three` + more\n\n* {words}item\n");
        let wrapped = wrap_page(&page);
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines[3], "`one two three` + more", "{wrapped}");
        assert_eq!(lines[5], format!("* {}", words.trim_end()) + " item");
        let fixed = format!("| {words}{words} |\n\n```\n{words}{words}\n```\n");
        assert_eq!(wrap_page(&fixed), fixed);
    }
}
