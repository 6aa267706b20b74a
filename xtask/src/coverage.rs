//! Whether the gate has run every test that a manifest declares.
//!
//! **Problem.** Cargo leaves a test target out, without a word, where a feature that it requires is
//! off; and a test behind a feature is not compiled where nobody turns the feature on. A suite that
//! is never run looks like one that always passes.
//!
//! **Idea.** Cargo says what there is (`cargo metadata`), and what a command of the gate builds and
//! runs (the same command with `--no-run --message-format=json`, which builds nothing anew).
//! Whatever is declared and was not run fails the gate: targets, and features that no test was
//! built with. The deep sections' own arguments excuse what only they run.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Something that tests are compiled from, or with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// A target of a package: its kind and its name.
    Target(String, String, String),
    /// A feature of a package.
    Feature(String, String),
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thing::Target(package, kind, name) => write!(f, "{kind} {name} of {package}"),
            Thing::Feature(package, feature) => {
                write!(f, "whatever {package} tests with its feature {feature}")
            }
        }
    }
}

/// What is declared, and what has been run of it.
#[derive(Debug)]
pub(crate) struct Coverage {
    declared: BTreeSet<Thing>,
    packages: BTreeMap<String, String>,
}

impl Coverage {
    /// Asks cargo what is declared.
    ///
    /// # Errors
    /// One sentence, if cargo cannot say it.
    pub(crate) fn ask() -> Result<Coverage, String> {
        let told = cargo(&["metadata", "--no-deps", "--format-version", "1"])?;
        let told: Value = serde_json::from_str(&told)
            .map_err(|error| format!("cargo metadata was not understood: {error}"))?;
        Ok(Coverage::of(&told))
    }

    fn of(metadata: &Value) -> Coverage {
        let mut coverage = Coverage {
            declared: BTreeSet::new(),
            packages: BTreeMap::new(),
        };
        for package in list(&metadata["packages"]) {
            let name = text(&package["name"]);
            coverage.packages.insert(text(&package["id"]), name.clone());
            let targets = list(&package["targets"]);
            let tested = targets.iter().filter(|t| t["test"] == Value::Bool(true));
            coverage
                .declared
                .extend(tested.map(|target| target_of(&name, target)));
            let features = package["features"].as_object();
            let features = features.into_iter().flat_map(|map| map.keys());
            let features = features.map(|feature| Thing::Feature(name.clone(), feature.clone()));
            coverage.declared.extend(features);
        }
        coverage
    }

    /// A command of the gate has been run: strikes out what it has run.
    ///
    /// # Errors
    /// One sentence, if cargo cannot say what that was.
    pub(crate) fn strike(&mut self, section: &[&str]) -> Result<(), String> {
        for message in artifacts(section)? {
            self.strike_built(&message);
        }
        Ok(())
    }

    fn strike_built(&mut self, message: &Value) {
        let run =
            message["profile"]["test"] == Value::Bool(true) && message["executable"].is_string();
        let Some(name) = self.packages.get(&text(&message["package_id"])) else {
            return;
        };
        if run {
            self.declared.remove(&target_of(name, &message["target"]));
            for feature in list(&message["features"]) {
                let feature = Thing::Feature(name.clone(), text(feature));
                self.declared.remove(&feature);
            }
        }
    }

    /// Strikes out what a command of the deep sections names: `--package P --features F --test T`.
    pub(crate) fn excuse(&mut self, section: &[&str]) {
        let after = |flag| {
            let at = section.iter().position(|word| *word == flag)?;
            section.get(at + 1).copied()
        };
        let Some(package) = after("--package").filter(|_| section.first() == Some(&"test")) else {
            return;
        };
        if let Some(test) = after("--test") {
            let target = Thing::Target(package.into(), "test".into(), test.into());
            self.declared.remove(&target);
        }
        for feature in after("--features").into_iter().flat_map(|f| f.split(',')) {
            let feature = Thing::Feature(package.into(), feature.into());
            self.declared.remove(&feature);
        }
    }

    /// What is declared, and nothing has run.
    pub(crate) fn missing(&self) -> Vec<String> {
        self.declared.iter().map(Thing::to_string).collect()
    }
}

/// What cargo has built for a command of the gate, as it tells it: nothing, unless programs of
/// tests are run.
///
/// # Errors
/// One sentence, if cargo cannot say it.
pub(crate) fn artifacts(section: &[&str]) -> Result<Vec<Value>, String> {
    // Cargo builds the examples in pages while it runs them.
    if section.first() != Some(&"test") || section.contains(&"--doc") {
        return Ok(Vec::new());
    }
    let own = section.iter().take_while(|word| **word != "--");
    let mut args: Vec<&str> = own.copied().collect();
    args.extend(["--no-run", "--message-format=json", "--quiet"]);
    let told = cargo(&args)?;
    let messages = told
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let built = |message: &Value| message["reason"] == "compiler-artifact";
    Ok(messages.filter(built).collect())
}

fn target_of(package: &str, target: &Value) -> Thing {
    let kind = text(&target["kind"][0]);
    Thing::Target(package.into(), kind, text(&target["name"]))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn cargo(args: &[&str]) -> Result<String, String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(args)
        .current_dir(crate::gate::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("`cargo {}` failed", args.join(" ")));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("cargo printed no text: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Coverage {
        Coverage::of(&serde_json::json!({ "packages": [{
            "id": "path+file:///p#0.1.0",
            "name": "p",
            "features": { "paper": [], "namespaces": [] },
            "targets": [
                { "kind": ["lib"], "name": "p", "test": true },
                { "kind": ["test"], "name": "sim", "test": true },
                { "kind": ["test"], "name": "cut", "test": true },
                { "kind": ["bench"], "name": "core", "test": false },
            ],
        }] }))
    }

    fn built(kind: &str, name: &str, features: &[&str]) -> Value {
        serde_json::json!({
            "package_id": "path+file:///p#0.1.0",
            "target": { "kind": [kind], "name": name },
            "profile": { "test": true },
            "features": features,
            "executable": "p-0",
        })
    }

    #[test]
    fn a_target_that_cargo_left_out_is_missed() {
        let mut coverage = some();
        coverage.strike_built(&built("lib", "p", &["paper"]));
        coverage.excuse(&[
            "test",
            "--package",
            "p",
            "--features",
            "namespaces",
            "--test",
            "cut",
        ]);
        assert_eq!(coverage.missing(), ["test sim of p"]);
        coverage.strike_built(&built("test", "sim", &["paper"]));
        assert!(coverage.missing().is_empty());
    }

    #[test]
    fn a_feature_that_no_test_was_built_with_is_missed() {
        let mut coverage = some();
        for target in ["lib p", "test sim", "test cut"] {
            let (kind, name) = target.split_once(' ').unwrap();
            coverage.strike_built(&built(kind, name, &["paper"]));
        }
        assert_eq!(
            coverage.missing(),
            ["whatever p tests with its feature namespaces"]
        );
    }
}
