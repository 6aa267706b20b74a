//! Which sections of the gate have passed, and with what.
//!
//! **Problem.** After a change in one crate most of the gate asks the same programs the same
//! questions as the time before.
//!
//! **Idea.** A section's *ground* is the bytes of all programs that cargo has built for it, those
//! that its tests start among them, and of all files of the tree that are neither Rust nor pages. A
//! section that has passed on a ground is not run again on the same one. `go test` does the same.
//! Examples in the documentation, which leave nothing in programs, are always run.
//!
//! **Invariants.** Only what was run to its end without a failure is noted. The notes lie in the
//! target folder, so that a fresh clone runs everything. Where the ground cannot be told, the
//! section runs.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

use crate::coverage::artifacts;
use crate::gate::{LABORATORY, Tally, root};

/// A section on the ground on which it would run now.
#[derive(Debug)]
pub(crate) struct Passed {
    note: PathBuf,
}

impl Passed {
    /// The section of these arguments of cargo's; none, if its ground cannot be told.
    pub(crate) fn of(words: &[&str]) -> Option<Passed> {
        if words.contains(&"--doc") {
            return None;
        }
        let mut ground = DefaultHasher::new();
        words.hash(&mut ground);
        for file in programs(words)?.into_iter().chain(files()?) {
            file.hash(&mut ground);
            fs::read(root().join(file)).ok()?.hash(&mut ground);
        }
        let note = format!("target/passed/{:016x}", ground.finish());
        Some(Passed {
            note: root().join(note),
        })
    }

    /// The tests that have passed on this ground, if they have.
    pub(crate) fn recall(&self) -> Option<Tally> {
        let passed = fs::read_to_string(&self.note).ok()?.trim().parse().ok()?;
        Some(Tally { passed, failed: 0 })
    }

    /// It has passed. That it could not be written down costs another run.
    pub(crate) fn note(&self, tally: Tally) {
        let folder = self.note.parent().map_or(Ok(()), fs::create_dir_all);
        let _ = folder.and_then(|()| fs::write(&self.note, tally.passed.to_string()));
    }
}

/// What is run: programs of tests and what they start. Of the tasks of this program those about
/// traces run the simulator's, and the others nothing but itself.
fn programs(words: &[&str]) -> Option<BTreeSet<PathBuf>> {
    let built = match words.contains(&"traces") {
        true => artifacts(LABORATORY),
        false => artifacts(words),
    };
    let built = built.ok()?;
    let built = built.iter().filter_map(|a| a["executable"].as_str());
    let own = (words[0] != "test").then(std::env::current_exe);
    let own = own.transpose().ok()?;
    Some(built.map(PathBuf::from).chain(own).collect())
}

/// All files of the tree but Rust's and pages.
fn files() -> Option<BTreeSet<PathBuf>> {
    let words = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let told = Command::new("git").args(words).current_dir(root()).output();
    let told = String::from_utf8(told.ok().filter(|o| o.status.success())?.stdout).ok()?;
    let data = |file: &&str| !file.ends_with(".rs") && !file.ends_with(".md");
    let files = told.lines().filter(data).map(PathBuf::from);
    Some(files.filter(|file| root().join(file).is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_recalled_on_its_own_ground_alone() {
        let folder = root().join("target/passed");
        let at = |name: &str| Passed {
            note: folder.join(format!("test-{name}-{}", std::process::id())),
        };
        let tally = Tally {
            passed: 7,
            failed: 0,
        };
        at("a").note(tally);
        assert_eq!(at("a").recall(), Some(tally));
        assert_eq!(at("b").recall(), None);
        fs::remove_file(at("a").note).expect("it is there");
    }

    #[test]
    fn models_are_no_matter_of_the_simulators_programs() {
        let own = std::env::current_exe().expect("it runs");
        let models = programs(&["xtask", "formal", "--short"]);
        assert_eq!(models, Some(BTreeSet::from([own])));
    }

    #[test]
    fn data_is_part_of_the_ground_and_pages_are_not() {
        let files = files().expect("a work tree");
        let has = |name: &str| files.contains(&PathBuf::from(name));
        assert!(has("Cargo.lock") && has("formal/critical/state.als"));
        assert!(!has("README.md") && !has("xtask/src/main.rs"));
    }
}
