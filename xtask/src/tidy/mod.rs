//! Rules about the tree that no compiler checks, each with a test that it holds here and a test
//! that it can fail.
//!
//! | rule | why |
//! |---|---|
//! | [`rules::sizes`] | a file that a reader cannot hold in mind hides mistakes |
//! | [`rules::widths`] | two files fit side by side |
//! | [`rules::leftovers`] | unfinished, disabled or dead code is taken out, not marked |
//! | [`rules::essays`] | each file says what it is for before it begins |
//! | [`rules::private_paths`] | nothing here works on one machine only |
//! | [`rules::pure_protocol`] | the protocol cannot name a clock, socket, file or thread |
//! | [`arrows::arrows`] | dependencies point one way |
//! | [`pages::links`] | a link in a page leads somewhere |
//! | [`pages::planted_bugs`] | each planted bug is explained to readers |
//! | [`proved::proved`] | what a model proves is kept by code, and checked by a checker, that exist |

use std::path::Path;

mod arrows;
mod pages;
mod proved;
mod rules;

pub(crate) use rules::COLUMNS_MAX;

/// One file of the tree.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// The text files of the workspace.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    /// Reads the workspace this crate belongs to, without build output and binary files.
    pub(crate) fn of_workspace() -> Tree {
        Tree::at(&crate::gate::root())
    }

    /// Reads what is below a folder, as if it were the workspace.
    pub(crate) fn at(root: &Path) -> Tree {
        let mut files = Vec::new();
        read_into(root, root, &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
    }

    /// A tree of given files, to test a rule on.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        Tree {
            files: files.iter().map(file).collect(),
        }
    }

    /// The file at `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Whether there is a file at `path`, or one below it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|f| {
            f.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Files whose names end so.
    pub(crate) fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |f| f.path.ends_with(end))
    }
}

fn read_into(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // Of the hidden folders, only these are the project's.
        let ours = !name.starts_with('.') || [".ci", ".cargo", ".gitignore"].contains(&&*name);
        if !ours || name == "target" {
            continue;
        }
        if path.is_dir() {
            read_into(root, &path, files);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            files.push(File {
                path: relative.to_string_lossy().replace('\\', "/"),
                text,
            });
        }
    }
}

/// A broken rule: where, and what to do.
pub(crate) type Violation = String;

/// A rule: a name for people, and its check.
type Rule = (&'static str, fn(&Tree) -> Vec<Violation>);

/// All rules.
const RULES: [Rule; 10] = [
    ("sizes", rules::sizes),
    ("widths", rules::widths),
    ("leftovers", rules::leftovers),
    ("essays", rules::essays),
    ("private_paths", rules::private_paths),
    ("pure_protocol", rules::pure_protocol),
    ("arrows", arrows::arrows),
    ("links", pages::links),
    ("planted_bugs", pages::planted_bugs),
    ("proved", proved::proved),
];

/// Every violation of every rule.
pub(crate) fn violations(tree: &Tree) -> Vec<Violation> {
    let all = RULES.iter().flat_map(|(name, rule)| {
        let found = rule(tree);
        found.into_iter().map(move |v| format!("{name}: {v}"))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let found = violations(&Tree::of_workspace());
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn the_tree_is_read() {
        let tree = Tree::of_workspace();
        assert!(tree.has("crates/protocol/src"));
        assert!(tree.get("Cargo.toml").is_some());
        assert!(!tree.has("target"));
    }
}
