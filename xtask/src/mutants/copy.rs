//! The copy of the workspace into which all mutants are compiled together.
//!
//! A site's text becomes a choice between what stands there and its change, by the number of the
//! mutant that the environment names when the program starts. So one build serves all mutants, and
//! costs each run a comparison.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::sites::{Change, Site};
use crate::tidy::Tree;

/// Names the mutant that a program is to run with, by its number.
pub(super) const CHOICE: &str = "FERMATA_MUTANT";

/// Of the copy: what asks for the mutant. The protocol itself can name no environment.
const ASKED: &str = "\
//! Which mutant was chosen.
extern crate std;
use self::std::sync::LazyLock;
/// Whether the mutant of this number was chosen.
pub fn is(number: usize) -> bool {
    static CHOSEN: LazyLock<usize> = LazyLock::new(|| {
        let chosen = self::std::env::var(\"FERMATA_MUTANT\").ok();
        chosen.and_then(|text| text.parse().ok()).unwrap_or(0)
    });
    *CHOSEN == number
}
";

/// Where the rooms are.
pub(super) const PROTOCOL: &str = "crates/protocol/src";

/// The text of a file with those of its sites in it that have a number.
pub(super) fn with_mutants(text: &str, sites: &[(usize, &Site)]) -> String {
    let mut out = String::new();
    write_range(text, 0..text.len(), sites, &mut out);
    out
}

/// Writes a part of the text. Sites are in the order of their text, outer ones first; those that
/// reach out of the part are of an outer text.
fn write_range(text: &str, part: Range<usize>, sites: &[(usize, &Site)], out: &mut String) {
    let mut at = part.start;
    for (index, (number, site)) in sites.iter().enumerate() {
        let range = site.range.clone();
        if range.start < at || range.end > part.end {
            continue;
        }
        out.push_str(&text[at..range.start]);
        at = range.end;
        let chosen = format!("crate::mutant::is({number})");
        let mut inner = |before: &str, range: &Range<usize>, after: &str| {
            out.push_str(before);
            write_range(text, range.clone(), &sites[index + 1..], out);
            out.push_str(after);
        };
        inner(&format!("/*<{number}*/"), &(0..0), "");
        match &site.change {
            Change::True => inner(&format!("({chosen} || ("), &range, "))"),
            Change::False if text[range.clone()].contains("let ") => {
                inner(&format!("!{chosen} && "), &range, "");
            }
            Change::False => inner(&format!("(!{chosen} && ("), &range, "))"),
            Change::Gone => inner(&format!("if !{chosen} {{ "), &range, " }"),
            Change::Falls => inner(&format!("{{ if !{chosen} {{ "), &range, " } }"),
            Change::Swap {
                left,
                right,
                from,
                to,
            } => {
                inner(&format!("(if {chosen} {{ ("), left, &format!(") {to} ("));
                inner("", right, ") } else { (");
                inner("", left, &format!(") {from} ("));
                inner("", right, ") })");
            }
        }
        inner(&format!("/*>{number}*/"), &(0..0), "");
    }
    out.push_str(&text[at..part.end]);
}

/// The mutants to which what the compiler says of a part of a text belongs: the innermost one
/// around its begin, or else those in it.
fn mutants_at(text: &str, part: Range<usize>) -> Vec<usize> {
    let (mut open, mut within) = (Vec::new(), Vec::new());
    for (place, _) in text
        .match_indices("/*")
        .take_while(|(at, _)| *at < part.end)
    {
        let mark = text[place + 2..]
            .split_once("*/")
            .map_or("", |(mark, _)| mark);
        let before = place < part.start;
        match mark
            .strip_prefix('<')
            .and_then(|number| number.parse().ok())
        {
            Some(number) if before => open.push(number),
            Some(number) => within.push(number),
            None if before && mark.starts_with('>') => drop(open.pop()),
            None => {}
        }
    }
    open.pop().map_or(within, |innermost| vec![innermost])
}

/// The copy on the disk.
pub(super) struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

/// A program that was compiled: its name, its file, and the folder of its package.
#[derive(Clone)]
pub(super) struct Built {
    pub(super) name: String,
    pub(super) file: PathBuf,
    pub(super) folder: PathBuf,
}

impl Copy {
    /// The copy below `folder`.
    pub(super) fn below(folder: &Path) -> Copy {
        Copy {
            tree: folder.join("tree"),
            target: folder.join("target"),
        }
    }

    /// Brings the copy to the state of the tree, with mutants. What is equal stays untouched, so
    /// that cargo compiles what differs alone.
    ///
    /// # Errors
    /// One sentence, if a file cannot be written.
    pub(super) fn write(&self, tree: &Tree, mutants: &[(usize, &Site)]) -> Result<(), String> {
        let mut files: Vec<(String, String)> = Vec::new();
        for file in tree.files.iter().filter(|file| belongs(&file.path)) {
            let own = file
                .path
                .strip_prefix(PROTOCOL)
                .and_then(|path| path.strip_prefix('/'));
            let sites = (mutants.iter()).filter(|(_, site)| Some(&*site.file) == own);
            let sites: Vec<(usize, &Site)> = sites.copied().collect();
            let mut text = with_mutants(&file.text, &sites);
            if own == Some("lib.rs") {
                text.push_str("#[allow(missing_docs)]\npub mod mutant;\n");
            }
            files.push((file.path.clone(), text));
        }
        files.push((format!("{PROTOCOL}/mutant.rs"), ASKED.to_owned()));
        for old in Tree::at(&self.tree).files {
            if !files.iter().any(|(path, _)| *path == old.path) {
                let gone = fs::remove_file(self.tree.join(&old.path));
                gone.map_err(|error| format!("{} could not be removed: {error}", old.path))?;
            }
        }
        for (path, text) in files {
            write_if_other(&self.tree.join(&path), &text)
                .map_err(|error| format!("{path} could not be copied: {error}"))?;
        }
        Ok(())
    }

    /// Compiles the protocol alone: the numbers of the mutants that do not compile, none if all do.
    ///
    /// # Errors
    /// One sentence, if something else does not compile.
    pub(super) fn refused(&self) -> Result<Vec<usize>, String> {
        let (ok, messages) = self.cargo(&["check", "--package", "fermata-protocol"])?;
        let mut refused = Vec::new();
        for message in messages.iter().map(|message| &message["message"]) {
            if message["level"] == "error" {
                refused.extend(self.refused_by(message)?);
            }
        }
        if !ok && refused.is_empty() {
            return Err("the copy does not compile, and cargo does not say where".to_owned());
        }
        Ok(refused)
    }

    /// The mutants to which an error of the compiler belongs.
    fn refused_by(&self, error: &Value) -> Result<Vec<usize>, String> {
        let spans = error["spans"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(first) = spans.first() else {
            return Ok(Vec::new());
        };
        let file = &first["file_name"];
        let path = self.tree.join(file.as_str().unwrap_or_default());
        let text = fs::read_to_string(path).unwrap_or_default();
        let of = |spans: &[&Value]| {
            let bytes = |end: &'static str| spans.iter().filter_map(move |span| span[end].as_u64());
            let begin = bytes("byte_start").min().unwrap_or(0) as usize;
            mutants_at(&text, begin..bytes("byte_end").max().unwrap_or(0) as usize)
        };
        let here: Vec<&Value> = spans
            .iter()
            .filter(|span| span["file_name"] == *file)
            .collect();
        let primary: Vec<&Value> = (here.iter().copied())
            .filter(|span| span["is_primary"] == true)
            .collect();
        // Where a jump is gone, a borrow outlives it: the two ends are told, the jump is between.
        let found = [of(&primary), of(&here)]
            .into_iter()
            .find(|found| !found.is_empty());
        found.ok_or_else(|| {
            let told = error["rendered"].as_str().unwrap_or_default();
            format!("the copy does not compile: {told}")
        })
    }

    /// Compiles the programs that are asked about mutants: the protocol's and the simulator's
    /// tests, and the laboratory.
    ///
    /// # Errors
    /// One sentence, if they do not compile.
    pub(super) fn build(&self) -> Result<Vec<Built>, String> {
        let packages = ["fermata-protocol", "fermata-sim", "fermata-lab"];
        let mut args = vec!["test", "--no-run"];
        args.extend(packages.iter().flat_map(|package| ["--package", package]));
        let (ok, messages) = self.cargo(&args)?;
        if !ok {
            return Err("the copy's tests do not compile".to_owned());
        }
        let built = messages.iter().filter_map(|message| {
            let file = PathBuf::from(message["executable"].as_str()?);
            let manifest = PathBuf::from(message["manifest_path"].as_str()?);
            let folder = manifest.parent()?.to_path_buf();
            let package = folder.file_name()?.to_str()?;
            let target = &message["target"];
            let name = match target["kind"][0].as_str()? {
                "lib" => format!("{package}'s own tests"),
                _ => target["name"].as_str()?.to_owned(),
            };
            // Of the laboratory its binary, of the others their tests.
            let wanted = (package == "lab") != (message["profile"]["test"] == true);
            wanted.then_some(Built { name, file, folder })
        });
        Ok(built.collect())
    }

    /// Runs cargo in the copy, without its warnings: whether it succeeded, and its messages.
    fn cargo(&self, args: &[&str]) -> Result<(bool, Vec<Value>), String> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(program)
            .args(args)
            .args(["--message-format=json", "--quiet"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo could not be run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let messages = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        Ok((output.status.success(), messages.collect()))
    }
}

/// Whether a file is of what is compiled.
fn belongs(path: &str) -> bool {
    let members = ["crates/", "examples/", "xtask/"];
    members.iter().any(|member| path.starts_with(member))
        || ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"].contains(&path)
}

fn write_if_other(path: &Path, text: &str) -> std::io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::super::sites;
    use super::*;

    fn all_of(text: &str) -> String {
        let sites = sites::of_file("a.rs", text).unwrap();
        let numbered: Vec<(usize, &Site)> = (1..).zip(&sites).collect();
        with_mutants(text, &numbered)
    }

    #[test]
    fn mutants_within_mutants_are_rust() {
        let text = "fn f() -> u64 { while let Some(x) = g() && x < 1 + y { h(x + 1); return 2; }
                    match z { a if a == b || c => {} _ => return 3 } self.d += e - 1; 4 }";
        let mutated = all_of(text);
        syn::parse_file(&mutated).unwrap_or_else(|error| panic!("{error}: {mutated}"));
        let sites = sites::of_file("a.rs", text).unwrap();
        for number in 1..=sites.len() {
            assert!(
                mutated.contains(&format!("is({number})")),
                "{number}: {mutated}"
            );
        }
    }

    #[test]
    fn every_member_of_the_workspace_belongs() {
        let tree = Tree::at(&crate::gate::root());
        let mut manifests = tree.ending("Cargo.toml").peekable();
        assert!(manifests.peek().is_some());
        // One that is no member has a workspace of its own.
        let other = |text: &str| text.contains("\n[workspace]\n");
        assert!(manifests.all(|manifest| {
            belongs(&manifest.path) || other(&manifest.text) && manifest.path.contains('/')
        }));
    }

    #[test]
    fn what_does_not_compile_is_the_innermost_mutant() {
        let text = all_of("fn f() { if a == b { c(); } }");
        let of = |word: &str| {
            let at = text.find(word).unwrap();
            mutants_at(&text, at..at + word.len())
        };
        assert_eq!(of("a) "), [3]);
        assert_eq!(of("c()"), [4]);
        assert!(of("fn f").is_empty());
        assert_eq!(of(&text), [1, 2, 3, 4]);
    }
}
