//! `cargo xtask mutants`: rules of the protocol, broken one at a time. Does a test notice?
//!
//! **Problem.** A planted bug proves that a rule which somebody thought of is guarded. A rule that
//! nobody thought of may be broken without any test noticing.
//!
//! **Idea.** Places where the rooms decide something are found in their text ([`sites`]), changed
//! in a copy that is compiled once ([`copy`]), and chosen at run time; tests and random schedules
//! judge each (`run`). A mutant that nobody notices is a missing test, dead code, or no change at
//! all. [`LISTED`] says of the last why, and of which nobody knows yet what they are.
//!
//! **Which.** Of each room's N sites the ⌈N / one in⌉ whose keys have the least FNV-1a hash, and at
//! least [`LEAST`]. So nobody chooses, every room has its part, and what is written elsewhere does
//! not change which.
//!
//! **State.** `target/mutants/verdicts` has a line for each mutant that was judged. Another text of
//! the crates starts it anew, but for `--survivors`, which believes what others were killed by.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::gate::root;
use crate::tidy::Tree;
use copy::Copy;
use run::Verdict;
use sites::Site;

mod copy;
mod run;
mod sites;

/// The rooms: folders, or files, of the protocol.
const ROOMS: [&str; 5] = ["paxos", "lock", "register", "coordinator", "sessions"];
/// Of a room at least so many mutants are made, if it has so many sites.
const LEAST: usize = 4;
/// One site in so many, if nothing else is said.
const ONE_IN: usize = 24;
/// Mutants that no test can notice, and why.
const LISTED: &str = "xtask/mutants.toml";

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    one_in: usize,
    survivors: bool,
    list: bool,
}

impl Choice {
    /// Reads the words behind `mutants`; none, if they are no choice.
    pub(crate) fn of(words: &[&str]) -> Option<Choice> {
        let mut choice = Choice {
            one_in: ONE_IN,
            survivors: false,
            list: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--one-in" => {
                    choice.one_in = words.next()?.parse().ok().filter(|n| *n > 0)?;
                }
                "--survivors" => choice.survivors = true,
                "--list" => choice.list = true,
                _ => return None,
            }
        }
        Some(choice)
    }
}

/// Makes mutants, and prints those that survive. Fails if one survives that is not listed.
pub(crate) fn run(choice: &Choice) -> ExitCode {
    let tree = Tree::of_workspace();
    let done = rooms(&tree).and_then(|rooms| match choice.list {
        true => {
            list(&rooms, choice.one_in);
            Ok(true)
        }
        false => judge_all(choice, &tree, &rooms),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The sites of each room.
fn rooms(tree: &Tree) -> Result<Vec<(&'static str, Vec<Site>)>, String> {
    let mut rooms = Vec::new();
    for room in ROOMS {
        let mut found = Vec::new();
        for file in &tree.files {
            let path = file.path.strip_prefix(copy::PROTOCOL);
            let Some(path) = path.and_then(|path| path.strip_prefix('/')) else {
                continue;
            };
            let own = path.strip_prefix(room);
            let own = own.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'));
            if own && path.ends_with(".rs") && !path.contains("/tests/") {
                found.extend(sites::of_file(path, &file.text)?);
            }
        }
        rooms.push((room, found));
    }
    Ok(rooms)
}

/// Those of a room's sites that are chosen, in their order.
fn chosen(sites: &[Site], one_in: usize) -> Vec<&Site> {
    let count = sites.len().div_ceil(one_in).max(LEAST).min(sites.len());
    let mut hashes: Vec<u64> = sites.iter().map(|site| fnv(&site.key)).collect();
    hashes.sort_unstable();
    let Some(last) = count.checked_sub(1).map(|last| hashes[last]) else {
        return Vec::new();
    };
    sites.iter().filter(|site| fnv(&site.key) <= last).collect()
}

/// FNV-1a, 64 bits.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn list(rooms: &[(&str, Vec<Site>)], one_in: usize) {
    for (room, sites) in rooms {
        let chosen = chosen(sites, one_in);
        for site in sites {
            let is_chosen = chosen.iter().any(|one| one.key == site.key);
            let mark = if is_chosen { '*' } else { ' ' };
            println!("{mark} {}:{}: {}", site.file, site.line, site.key);
        }
        println!(
            "{room}: {} of {} sites are chosen",
            chosen.len(),
            sites.len()
        );
    }
}

/// Judges what is chosen and has no verdict yet. Whether nothing unlisted survived.
fn judge_all(choice: &Choice, tree: &Tree, rooms: &[(&str, Vec<Site>)]) -> Result<bool, String> {
    let listed = listed(tree)?;
    let all: Vec<&Site> = rooms
        .iter()
        .flat_map(|(_, sites)| chosen(sites, choice.one_in))
        .collect();
    let numbered: Vec<(usize, &Site)> = (1..).zip(all).collect();
    let folder = root().join("target").join("mutants");
    let mut state = State::open(&folder, tree, choice.survivors)?;
    let copy = Copy::below(&folder);
    let compiled = compile(&copy, tree, &numbered, &mut state)?;
    let bases = state.bases();
    let programs = run::programs(
        copy.build()?,
        |name| bases.get(name).copied(),
        |name, base| state.add(name, &format!("{BASE}{}", base.as_millis())),
    )?;
    for (number, site) in &compiled {
        if state.verdicts.contains_key(&site.key) {
            continue;
        }
        let room = rooms
            .iter()
            .find(|(_, sites)| sites.iter().any(|one| one.key == site.key));
        let begin = Instant::now();
        let verdict = run::judge(&programs, room.map_or("", |(room, _)| *room), *number)?;
        let words = in_words(&verdict);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{number:>4} of {}, {seconds:.1} s, {words}: {}",
            numbered.len(),
            site.key
        );
        state.add(&site.key, &words)?;
    }
    Ok(report(rooms, &compiled, &state, &listed))
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Killed(by) => format!("killed by {by}"),
        Verdict::OverTime(by) => format!("over time in {by}"),
        Verdict::Survived => SURVIVED.to_owned(),
    }
}

const SURVIVED: &str = "survived";
/// What a program took without a mutant, in milliseconds.
const BASE: &str = "base ";
const REFUSED: &str = "no Rust";

/// Writes the copy with those mutants that compile, and returns them.
fn compile<'a>(
    copy: &Copy,
    tree: &Tree,
    numbered: &[(usize, &'a Site)],
    state: &mut State,
) -> Result<Vec<(usize, &'a Site)>, String> {
    loop {
        let known = |key: &str| {
            state
                .verdicts
                .get(key)
                .is_some_and(|words| words == REFUSED)
        };
        let rest = numbered.iter().filter(|(_, site)| !known(&site.key));
        let rest: Vec<(usize, &Site)> = rest.copied().collect();
        copy.write(tree, &rest)?;
        let refused = copy.refused()?;
        if refused.is_empty() {
            return Ok(rest);
        }
        for (_, site) in rest.iter().filter(|(number, _)| refused.contains(number)) {
            println!("{REFUSED}, and left out: {}", site.key);
            state.add(&site.key, REFUSED)?;
        }
    }
}

/// Prints what became of the mutants. Whether each that survived is listed.
fn report(
    rooms: &[(&str, Vec<Site>)],
    compiled: &[(usize, &Site)],
    state: &State,
    listed: &BTreeMap<String, Why>,
) -> bool {
    println!("\n   sites  mutants  survive    equal  room");
    let (mut mutants, mut survive, mut equal) = (0, 0, 0);
    let mut open = Vec::new();
    for (room, sites) in rooms {
        let own = |key: &&str| sites.iter().any(|site| site.key == **key);
        let made = compiled.iter().map(|(_, site)| &*site.key).filter(own);
        let made: Vec<&str> = made.collect();
        let survivors = made.iter().filter(|key| state.is(key, SURVIVED));
        let survivors: Vec<&str> = survivors.copied().collect();
        let (told, rest): (Vec<&str>, Vec<&str>) =
            (survivors.iter()).partition(|key| listed.get(**key) == Some(&Why::Equal));
        println!(
            "{:>8} {:>8} {:>8} {:>8}  {room}",
            sites.len(),
            made.len(),
            survivors.len(),
            told.len()
        );
        mutants += made.len();
        survive += survivors.len();
        equal += told.len();
        open.extend(rest);
    }
    let share = |count: usize| 100.0 * count as f64 / mutants.max(1) as f64;
    println!(
        "{survive} of {mutants} survive ({:.1} %): {equal} are equal, {} are open ({:.1} %)",
        share(survive),
        open.len(),
        share(open.len())
    );
    for key in &open {
        let known = if listed.contains_key(*key) {
            "open"
        } else {
            "new"
        };
        println!("{known}: {key}");
    }
    open.iter().all(|key| listed.contains_key(*key))
}

/// Why a mutant that survives is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Nothing that a test may see differs.
    Equal,
    /// It is not known.
    Open,
}

/// What is listed, by its key.
fn listed(tree: &Tree) -> Result<BTreeMap<String, Why>, String> {
    let file = tree.get(LISTED);
    let file = file.ok_or_else(|| format!("{LISTED} is missing"))?;
    let table: Result<toml::Table, _> = file.text.parse();
    let table = table.map_err(|error| format!("{LISTED}: {error}"))?;
    let mut listed = BTreeMap::new();
    for (name, why) in [("equivalent", Why::Equal), ("open", Why::Open)] {
        let entries = table.get(name).and_then(toml::Value::as_array);
        for entry in entries.into_iter().flatten() {
            let text = |name: &str| entry.get(name).and_then(toml::Value::as_str);
            let both = text("mutant").zip(text("why"));
            let (key, _) = both.ok_or_else(|| format!("{LISTED}: {entry} is incomplete"))?;
            listed.insert(key.to_owned(), why);
        }
    }
    Ok(listed)
}

/// Verdicts so far, by the mutants' keys.
struct State {
    path: PathBuf,
    verdicts: BTreeMap<String, String>,
}

impl State {
    /// Reads what an interrupted run left, if it was of the same text of the crates; of another
    /// what did not survive, if `survivors` are asked again.
    fn open(folder: &Path, tree: &Tree, survivors: bool) -> Result<State, String> {
        let path = folder.join("verdicts");
        let text: Vec<&str> = (tree.files.iter())
            .filter(|file| file.path.starts_with("crates/"))
            .flat_map(|file| [&*file.path, &*file.text])
            .collect();
        let head = format!("text {:016x}", fnv(&text.concat()));
        let old = fs::read_to_string(&path).unwrap_or_default();
        let (old_head, lines) = old.split_once('\n').unwrap_or_default();
        let mut state = State {
            path,
            verdicts: BTreeMap::new(),
        };
        let kept = (lines.lines().filter_map(|line| line.split_once('\t'))).filter(|(words, _)| {
            if survivors {
                *words != SURVIVED
            } else {
                old_head == head
            }
        });
        let kept = kept.map(|(words, key)| (key.to_owned(), words.to_owned()));
        let kept: BTreeMap<String, String> = kept.collect();
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&state.path, head + "\n"));
        written.map_err(|error| format!("verdicts cannot be kept: {error}"))?;
        for (key, words) in kept {
            state.add(&key, &words)?;
        }
        Ok(state)
    }

    fn add(&mut self, key: &str, words: &str) -> Result<(), String> {
        let mut file = fs::OpenOptions::new().append(true).open(&self.path);
        let written = file.as_mut().map_err(|error| error.to_string());
        let written = written
            .and_then(|file| writeln!(file, "{words}\t{key}").map_err(|error| error.to_string()));
        written.map_err(|error| format!("verdicts cannot be kept: {error}"))?;
        self.verdicts.insert(key.to_owned(), words.to_owned());
        Ok(())
    }

    /// How long programs took without a mutant, by their names.
    fn bases(&self) -> BTreeMap<String, Duration> {
        let told = self.verdicts.iter().filter_map(|(name, words)| {
            let millis = words.strip_prefix(BASE)?.parse().ok()?;
            Some((name.clone(), Duration::from_millis(millis)))
        });
        told.collect()
    }

    fn is(&self, key: &str, words: &str) -> bool {
        self.verdicts.get(key).is_some_and(|known| known == words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_choice_are_refused() {
        let choice = Choice::of(&["--survivors", "--one-in", "8"]).unwrap();
        assert_eq!(
            (choice.one_in, choice.survivors, choice.list),
            (8, true, false)
        );
        assert_eq!(Choice::of(&["--one-in", "0"]), None);
        assert_eq!(Choice::of(&["--one-in"]), None);
        assert_eq!(Choice::of(&["lock"]), None);
    }

    #[test]
    fn every_room_has_its_part_and_keys_are_unlike() {
        for (room, sites) in rooms(&Tree::of_workspace()).unwrap() {
            let part = chosen(&sites, ONE_IN).len();
            assert!(part >= LEAST && part * ONE_IN >= sites.len(), "{room}");
            let mut keys: Vec<&str> = sites.iter().map(|site| &*site.key).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), sites.len(), "{room}");
        }
    }

    #[test]
    fn what_is_listed_is_there() {
        let tree = Tree::of_workspace();
        let rooms = rooms(&tree).unwrap();
        for key in listed(&tree).unwrap().keys() {
            let mut sites = rooms.iter().flat_map(|(_, sites)| sites);
            assert!(
                sites.any(|site| site.key == *key),
                "{LISTED}: no site is {key}"
            );
        }
    }
}
