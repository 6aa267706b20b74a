//! Dependencies between our crates point one way: `cli → server, examples, client`, `lab → sim`,
//! and `server, sim → driver → protocol, storage`; storage knows nobody. Nothing but the laboratory
//! and tests imports the simulator.

use super::{Tree, Violation};

/// What each crate may name in `[dependencies]`; a crate that is not listed needs a decision.
const ALLOWED: [(&str, &[&str]); 22] = [
    ("fermata-codec", &[]),
    ("fermata-check", &["fermata-protocol"]),
    ("fermata-protocol", &["fermata-codec"]),
    ("fermata-storage", &[]),
    ("fermata-driver", &["fermata-protocol", "fermata-storage"]),
    ("fermata-api", &["fermata-protocol"]),
    ("fermata-tls", &[]),
    ("fermata-access", &[]),
    (
        "fermata-client",
        &["fermata-protocol", "fermata-api", "fermata-tls"],
    ),
    (
        "fermata-server",
        &[
            "fermata-driver",
            "fermata-protocol",
            "fermata-storage",
            "fermata-api",
            "fermata-engine",
            "fermata-tls",
            "fermata-access",
        ],
    ),
    (
        "fermata-sim",
        &[
            "fermata-driver",
            "fermata-protocol",
            "fermata-storage",
            "fermata-check",
        ],
    ),
    (
        "fermata",
        &[
            "fermata-protocol",
            "fermata-client",
            "fermata-server",
            "fermata-check",
            "fermata-examples",
            "fermata-engine",
            "fermata-cassandra",
            "fermata-zookeeper",
            "fermata-tls",
            "fermata-access",
        ],
    ),
    (
        "bench",
        &[
            "fermata-protocol",
            "fermata-storage",
            "fermata-check",
            "fermata-client",
            "fermata-server",
            "fermata-engine",
            "fermata-cassandra",
            "fermata-zookeeper",
            "fermata-peers",
            "fermata-tls",
        ],
    ),
    ("fermata-examples", &["fermata-client"]),
    ("leader", &["fermata-client"]),
    ("fermata-lab", &["fermata-sim", "fermata-check"]),
    ("fermata-engine", &["fermata-protocol", "fermata-check"]),
    (
        "fermata-cassandra",
        &["fermata-protocol", "fermata-engine", "fermata-tls"],
    ),
    (
        "fermata-zookeeper",
        &["fermata-protocol", "fermata-engine", "fermata-tls"],
    ),
    ("fermata-peers", &[]),
    ("fermata-fuzz", &["fermata-server"]),
    ("xtask", &["fermata-peers"]),
];

/// No arrow but the allowed ones. Dependencies of tests are free.
pub(super) fn arrows(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in tree.ending("Cargo.toml") {
        let manifest: toml::Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                found.push(format!("{}: {error}", file.path));
                continue;
            }
        };
        let Some(name) = package_name(&manifest) else {
            continue; // The workspace's own.
        };
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            found.push(format!("{}: `{name}` has no place in the map", file.path));
            continue;
        };
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let names = dependencies.into_iter().flat_map(|table| table.keys());
        for dependency in names.filter(|d| d.starts_with("fermata")) {
            if !allowed.contains(&dependency.as_str()) {
                found.push(format!("{}: {name} → {dependency}", file.path));
            }
        }
    }
    found
}

fn package_name(manifest: &toml::Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> usize {
        arrows(&Tree::of(&[("crates/x/Cargo.toml", text)])).len()
    }

    #[test]
    fn a_forbidden_arrow_is_found() {
        let server = "[package]\nname = \"fermata-server\"\n[dependencies]\n";
        assert_eq!(
            check(&format!("{server}fermata-storage.workspace = true")),
            0
        );
        assert_eq!(check(&format!("{server}fermata-sim.workspace = true")), 1);
        let tests = "[dev-dependencies]\nfermata-sim.workspace = true";
        assert_eq!(check(&format!("{server}{tests}")), 0);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        assert_eq!(check("[package]\nname = \"fermata-extra\"\n"), 1);
    }
}
