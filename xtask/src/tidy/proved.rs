//! What the page about the formal models says of the code is there, and so is what the models say
//! of their own rules.
//!
//! **Problem.** A table that leads from an invariant to the line that keeps it is worth its
//! reader's trust only as long as the names in it exist, and names change. And a rule that no run
//! takes away may be idle, with nobody to notice.
//!
//! **Idea.** The rows of tables with the columns "kept by" and "check…" are read. In the first of
//! these a name in backquotes is the end of a file's path, which one file has, or what that file
//! must define: `TYPE::FUNCTION`, a function, or another word of it. One in the second is a checker
//! of the simulator, or a promise of sections. Every name of a model's `Rule` has a command
//! `without_NAME…` or `needs_NAME…`.

use super::{File, Tree, Violation};

/// The page that has such tables.
const PAGE: &str = "docs/formal.md";

/// Rules that no run takes away: a switch between two sets of events.
const SWITCHES: [&str; 1] = ["FlagInLog"];

/// Names in the tables that the code or the simulator has not, and rules that are never taken away.
pub(super) fn proved(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in tree.get(PAGE).iter().flat_map(|page| page.text.lines()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, _, kept, checked, _] = cells[..] else {
            inside = false;
            continue;
        };
        if kept == "kept by" {
            inside = true;
        } else if inside {
            let wrong = missing(tree, kept).into_iter();
            found.extend(wrong.map(|what| format!("{PAGE}: {what}")));
            let wrong = quoted(checked).filter(|name| !is_checker(tree, name));
            found.extend(wrong.map(|name| format!("{PAGE}: no checker `{name}`")));
        }
    }
    for model in tree.ending(".als") {
        let idle = rules(&model.text).filter(|rule| !is_taken_away(tree, model, rule));
        found.extend(idle.map(|rule| format!("{}: no run without `{rule}`", model.path)));
    }
    found
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What is wrong with the names of a cell: files, each with what is in it.
fn missing(tree: &Tree, cell: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut file: Option<&File> = None;
    for name in quoted(cell) {
        if name.ends_with(".rs") {
            let end = format!("/{name}");
            let sources = tree.ending(".rs").filter(|f| f.path.starts_with("crates/"));
            let files: Vec<&File> = sources.filter(|f| f.path.ends_with(&end)).collect();
            file = files.first().copied();
            if files.len() != 1 {
                wrong.push(format!("{} files are called `{name}`", files.len()));
            }
        } else if let Some(file) = file {
            if !defines(&file.text, name) {
                wrong.push(format!("no `{name}` in {}", file.path));
            }
        } else {
            wrong.push(format!("no file is named before `{name}`"));
        }
    }
    wrong
}

/// Whether a file has the function, or the other word, that is the last part of a path, and the
/// word before it.
fn defines(text: &str, name: &str) -> bool {
    let apart = |c: char| !c.is_alphanumeric() && c != '_';
    let word = |name: &str| text.split(apart).any(|word| word == name);
    name.split("::").all(word) && {
        let last = name.rsplit("::").next().unwrap_or(name);
        let function = last.starts_with(|c: char| c.is_lowercase());
        let start = format!("fn {last}");
        !function
            || text
                .split(&start)
                .skip(1)
                .any(|rest| rest.starts_with(apart))
    }
}

/// The names of a model's `enum Rule { … }`, or of its `sig … extends Rule {}`.
fn rules(model: &str) -> impl Iterator<Item = &str> {
    let listed = model
        .split_once("\nenum Rule {")
        .and_then(|(_, rest)| rest.split_once('}'));
    let sigs = model.split_once("\nabstract sig Rule {}\none sig");
    let sigs = sigs.and_then(|(_, rest)| rest.split_once("extends Rule"));
    let names = listed.or(sigs).map_or("", |(names, _)| names);
    let bare = names.lines().filter_map(|line| line.split("//").next());
    bare.flat_map(|line| line.split([' ', ',']))
        .filter(|name| !name.is_empty())
}

/// Whether a command of the model's folder is called after the rule, and names it.
fn is_taken_away(tree: &Tree, model: &File, rule: &str) -> bool {
    let folder = model.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut models = tree.ending(".als").filter(|f| f.path.starts_with(folder));
    SWITCHES.contains(&rule)
        || models.any(|model| {
            let mut called = ["without", "needs"].iter().flat_map(|without| {
                let start = format!("\n{without}_{rule}");
                let after = model.text.split_once(&start).map(|(_, after)| after);
                after.and_then(|after| after.split("\n\n").next())
            });
            called.any(|body| body.starts_with([':', '_']) && body.contains(rule))
        })
}

/// Whether a checker has this name.
fn is_checker(tree: &Tree, name: &str) -> bool {
    let names = ["=", "=>"].map(|is| format!(" {is} \"{name}\""));
    let rooms = ["crates/sim/src/checkers/", "crates/check/src/sections/"];
    let mut sources = tree.ending(".rs");
    sources.any(|f| {
        let names = names.iter().any(|name| f.text.contains(name));
        names && rooms.iter().any(|room| f.path.starts_with(room))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_WITH: &str = "| conjunct | says | kept by | checked |\n| --- | --- | --- | --- |\n\
                             | `A` | x | `lock/a.rs`: `keep`, `State::new` | `tags` |\n\n\
                             | a | b | `other` | `table` |\n";

    #[test]
    fn a_name_that_is_gone_is_found() {
        let code = (
            "crates/p/src/lock/a.rs",
            "impl State {\nfn keep() {}\nfn new() {}\n}",
        );
        let checker = (
            "crates/sim/src/checkers/t.rs",
            "const NAME: &str = \"tags\";",
        );
        let page = (PAGE, PAGE_WITH);
        assert!(proved(&Tree::of(&[page, code, checker])).is_empty());
        // The right words in another file are not enough, nor is a word that is no function's.
        let changed = (
            "crates/p/src/lock/a.rs",
            "fn keeper() {}\nlet keep = State;",
        );
        let elsewhere = ("crates/p/src/b.rs", code.1);
        let found = proved(&Tree::of(&[page, changed, elsewhere]));
        let names = [
            "no `keep` in crates/p/src/lock/a.rs",
            "no `State::new` in crates/p/src/lock/a.rs",
            "no checker `tags`",
        ];
        assert_eq!(found, names.map(|name| format!("{PAGE}: {name}")));
    }

    #[test]
    fn a_name_without_one_file_is_found() {
        let row = |kept| format!("| c | s | kept by | checked |\n| `A` | x | {kept} | all |\n");
        let twice = row("`a.rs`: `keep`");
        let none = row("`keep`");
        let code =
            ["crates/p/src/x/a.rs", "crates/p/src/y/a.rs"].map(|path| (path, "fn keep() {}"));
        let found = proved(&Tree::of(&[(PAGE, &twice), code[0], code[1]]));
        assert_eq!(found, [format!("{PAGE}: 2 files are called `a.rs`")]);
        let found = proved(&Tree::of(&[(PAGE, &none), code[0]]));
        assert_eq!(found, [format!("{PAGE}: no file is named before `keep`")]);
    }

    #[test]
    fn a_rule_that_is_never_taken_away_is_found() {
        let state = [
            "\nabstract sig Rule {}\none sig",
            "  Fence, // F1: why, and when",
            "  FlagInLog,",
            "  Early // last",
            "  extends Rule {}",
        ];
        let planted = [
            "\nwithout_Fence: run {",
            "  fermataWithout[Fence]",
            "}",
            "\nwithout_Early_deep: run { fermata }",
        ];
        let (state, planted) = (state.join("\n"), planted.join("\n"));
        let models = [
            ("formal/c/state.als", state.as_str()),
            ("formal/c/planted.als", planted.as_str()),
        ];
        let found = proved(&Tree::of(&models));
        assert_eq!(found, ["formal/c/state.als: no run without `Early`"]);
        let model = "\nenum Rule {\n  Waits, // one\n  Sweeps // two\n}\n\n\
                     needs_Waits: check { without[Waits] }\n";
        let found = proved(&Tree::of(&[("formal/r/m.als", model)]));
        assert_eq!(found, ["formal/r/m.als: no run without `Sweeps`"]);
    }
}
