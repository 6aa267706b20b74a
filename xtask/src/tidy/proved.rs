//! What the pages about the formal models say of the code is there.
//!
//! **Problem.** A table that leads from an invariant to the line that keeps it is worth its
//! reader's trust only as long as the names in it exist, and names change.
//!
//! **Idea.** The rows of tables with the columns "kept by" and "check…" are read. A name in
//! backquotes in the first of these is a file, or the last part of a path that is a word of the
//! sources; one in the second is a checker of the simulator.

use super::{Tree, Violation};

/// The pages that have such tables.
const PAGES: [&str; 3] = [
    "docs/formal.md",
    "formal/registers/README.md",
    "formal/epochs/README.md",
];

/// Names in the tables that neither the code nor the simulator has.
pub(super) fn proved(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for page in PAGES.iter().filter_map(|page| tree.get(page)) {
        let mut inside = false;
        for line in page.text.lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, _, _, kept, checked, _] = cells[..] else {
                inside = false;
                continue;
            };
            if kept == "kept by" {
                inside = true;
            } else if inside {
                let missing = quoted(kept).filter(|name| !in_code(tree, name));
                found.extend(missing.map(|name| format!("{}: no `{name}`", page.path)));
                let missing = quoted(checked).filter(|name| !is_checker(tree, name));
                found.extend(missing.map(|name| format!("{}: no checker `{name}`", page.path)));
            }
        }
    }
    found
}

/// What stands between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a file of the crates ends so, or a word of theirs is the last part of this path.
fn in_code(tree: &Tree, name: &str) -> bool {
    let mut sources = tree.ending(".rs").filter(|f| f.path.starts_with("crates/"));
    if name.ends_with(".rs") {
        let end = format!("/{name}");
        return sources.any(|f| f.path.ends_with(&end));
    }
    let last = name.rsplit("::").next().unwrap_or(name);
    let apart = |c: char| !c.is_alphanumeric() && c != '_';
    sources.any(|f| f.text.split(apart).any(|word| word == last))
}

/// Whether a checker has this name.
fn is_checker(tree: &Tree, name: &str) -> bool {
    let name = format!("\"{name}\";");
    let mut sources = tree.ending(".rs");
    sources.any(|f| f.path.starts_with("crates/sim/src/checkers/") && f.text.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_gone_is_found() {
        let page = "| conjunct | says | kept by | checked in |\n| --- | --- | --- | --- |\n\
                    | `A` | x | `lock/a.rs`: `keep`, `State::new` | `tags` |\n\n\
                    | a | b | `other` | `table` |\n";
        let code = ("crates/p/src/lock/a.rs", "fn keep() {}\nfn new() {}");
        let checker = (
            "crates/sim/src/checkers/t.rs",
            "const NAME: &str = \"tags\";",
        );
        let page = ("docs/formal.md", page);
        assert!(proved(&Tree::of(&[page, code, checker])).is_empty());
        let found = proved(&Tree::of(&[
            page,
            ("crates/p/src/lock/a.rs", "fn keeper() {}"),
        ]));
        let names = ["no `keep`", "no `State::new`", "no checker `tags`"];
        assert_eq!(found, names.map(|name| format!("docs/formal.md: {name}")));
    }
}
