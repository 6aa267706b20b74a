//! Rules on the pages for people.

use super::{Tree, Violation};

/// Each relative link in a page leads to a file or folder of the tree.
pub(super) fn links(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for page in tree.ending(".md") {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in targets(&page.text) {
            let path = target.split('#').next().unwrap_or(target);
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            if !resolve(folder, path).is_some_and(|path| tree.has(&path)) {
                found.push(format!("{}: nothing at `{target}`", page.path));
            }
        }
    }
    found
}

/// What `](…)` point to, outside fenced text.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (index, part) in text.split("```").enumerate() {
        if index % 2 == 1 {
            continue; // Fenced.
        }
        let mut rest = part;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, tail)) = after.split_once(')') else {
                break;
            };
            found.push(target);
            rest = tail;
        }
    }
    found
}

/// `path` seen from `folder`; none when it leaves the tree.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Each planted bug of the protocol is named in the simulator's page, as the command line does.
pub(super) fn planted_bugs(tree: &Tree) -> Vec<Violation> {
    let source = "crates/protocol/src/base/planted.rs";
    let page = "docs/simulator.md";
    let Some(planted) = tree.get(source) else {
        return vec![format!("{source}: missing")];
    };
    let Some(page) = tree.get(page) else {
        return vec![format!("{page}: missing")];
    };
    let unnamed = bugs(&planted.text)
        .filter(|bug| !page.text.contains(bug.as_str()) && !page.text.contains(&kebab(bug)));
    unnamed
        .map(|bug| format!("{}: says nothing of `{}`", page.path, kebab(&bug)))
        .collect()
}

/// What is listed in `planted_bugs!`.
fn bugs(source: &str) -> impl Iterator<Item = String> {
    let body = source
        .split_once("\nplanted_bugs! {")
        .map_or("", |(_, rest)| rest);
    let body = body.split_once('}').map_or("", |(body, _)| body);
    let variants = body.lines().map(str::trim).filter(|l| !l.starts_with("//"));
    variants
        .map(|l| l.trim_end_matches(',').to_owned())
        .filter(|l| !l.is_empty())
}

/// `LostKeyIgnored` as `lost-key-ignored`.
fn kebab(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found() {
        let good = (
            "docs/a.md",
            "[b](b.md#x) [up](../README.md) [web](https://example.org)",
        );
        let tree = Tree::of(&[good, ("docs/b.md", ""), ("README.md", "[docs](docs/)")]);
        assert!(links(&tree).is_empty());
        assert_eq!(links(&Tree::of(&[good])).len(), 2);
        assert_eq!(links(&Tree::of(&[("a.md", "[x](../../y)")])).len(), 1);
    }

    #[test]
    fn a_bug_that_the_page_forgets_is_found() {
        let source = "\nplanted_bugs! {\n    /// Doc.\n    SkippedFlush,\n    TornRead,\n}\n";
        let source = ("crates/protocol/src/base/planted.rs", source);
        let page = ("docs/simulator.md", "| `skipped-flush` |");
        let found = planted_bugs(&Tree::of(&[source, page]));
        assert_eq!(found, ["docs/simulator.md: says nothing of `torn-read`"]);
    }
}
