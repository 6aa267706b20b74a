//! Where the servers come from: Maven's and Go's ordinary clients, at pinned versions, once.
//!
//! An installation is a folder `SYSTEM-VERSION` in [`home`]. It is made beside its final place and
//! renamed when it is whole, under a lock that the operating system gives back with whoever held
//! it; so two processes do it once, and half an installation is never taken for one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::spec::{System, refused};

/// The Java that Cassandra 5.0 runs on; it knows 11, too, which takes other options.
const CASSANDRA_JAVA: u32 = 17;

/// The least that ZooKeeper gets.
const ZOOKEEPER_JAVA: u32 = 11;

/// The least Go 1.x: from here on, Go itself fetches the version that a module asks for.
const GO_MINOR: u32 = 21;

/// Lines of a failed client's output that are shown.
const OUTPUT_LINES: usize = 15;

/// One Maven artifact.
pub(crate) type Artifact = (&'static str, &'static str, &'static str);

/// Where everything is that this crate installs or runs: the folder in `FERMATA_PEERS`, or
/// `target/peers` of the workspace.
pub fn home() -> PathBuf {
    match std::env::var_os("FERMATA_PEERS") {
        Some(folder) if !folder.is_empty() => {
            let folder = PathBuf::from(folder);
            // Servers run in folders of their own.
            std::path::absolute(&folder).unwrap_or(folder)
        }
        _ => {
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
            workspace
                .expect("below crates/")
                .join("target")
                .join("peers")
        }
    }
}

/// Where a system is once it is installed.
pub(crate) fn folder_of(system: System) -> PathBuf {
    let version = match system {
        System::Cassandra => crate::cassandra::VERSION,
        System::Zookeeper => crate::zookeeper::VERSION,
        System::Etcd => crate::etcd::VERSION,
    };
    home().join(format!("{system}-{version}"))
}

/// A program that is needed, and does not run.
#[derive(Debug)]
struct Missing {
    what: String,
    /// Debian's package.
    package: &'static str,
}

/// What is missing on this machine for a system: one sentence that says what to install; none if
/// nothing is.
pub fn missing(system: System) -> Option<String> {
    let lacking = lacking(system);
    if lacking.is_empty() {
        return None;
    }
    let whats: Vec<&str> = lacking.iter().map(|one| one.what.as_str()).collect();
    let packages: Vec<&str> = lacking.iter().map(|one| one.package).collect();
    Some(format!(
        "{system} needs {}; on Debian: apt-get install {}",
        whats.join(" and "),
        packages.join(" ")
    ))
}

/// For tests: whether real servers of a system can be started here. If not, says so on the standard
/// error, past the capture of what a passing test prints, so that nobody takes it for tested.
pub fn testable(system: System) -> bool {
    let Some(sentence) = missing(system) else {
        return true;
    };
    // Where even this cannot be written, nobody reads it.
    let _ = writeln!(io::stderr(), "NOT TESTED, {sentence}");
    false
}

fn lacking(system: System) -> Vec<Missing> {
    let mut lacking = Vec::new();
    let installed = folder_of(system).exists();
    let least = match system {
        System::Cassandra => CASSANDRA_JAVA,
        System::Zookeeper => ZOOKEEPER_JAVA,
        System::Etcd => {
            let found = go_version();
            if !installed && found.is_none_or(|minor| minor < GO_MINOR) {
                let found = match found {
                    Some(minor) => format!("`go` is 1.{minor}, take it from go.dev"),
                    None => "`go` does not run".to_owned(),
                };
                let what = format!("Go 1.{GO_MINOR} or later, once ({found})");
                let package = "golang-go";
                lacking.push(Missing { what, package });
            }
            return lacking;
        }
    };
    let found = java_version();
    let fits = match system {
        System::Cassandra => found == Some(least),
        _ => found.is_some_and(|found| found >= least),
    };
    if !fits {
        let exact = if system == System::Cassandra {
            ""
        } else {
            " or later"
        };
        let found = match found {
            Some(found) => format!("`{}` is {found}, JAVA_HOME may name another", java()),
            None => format!("`{}` does not run", java()),
        };
        lacking.push(Missing {
            what: format!("Java {least}{exact} ({found})"),
            package: "openjdk-17-jdk-headless",
        });
    }
    if !installed && !runs("mvn", "--version") {
        let what = "Maven 3, once (`mvn` does not run)".to_owned();
        lacking.push(Missing {
            what,
            package: "maven",
        });
    }
    lacking
}

/// The program that is Java: that of `JAVA_HOME`, if it is set.
pub(crate) fn java() -> String {
    match std::env::var("JAVA_HOME") {
        Ok(home) if !home.is_empty() => format!("{home}/bin/java"),
        _ => "java".to_owned(),
    }
}

/// The major version of [`java`].
fn java_version() -> Option<u32> {
    let output = Command::new(java()).arg("-version").output().ok()?;
    major(&String::from_utf8_lossy(&output.stderr))
}

/// Reads `openjdk version "17.0.15" 2025-04-15`, or `"1.8.0_402"`.
fn major(said: &str) -> Option<u32> {
    let (_, version) = said.split_once("version \"")?;
    let mut parts = version.split(['.', '"', '_', '-']);
    match parts.next()?.parse().ok()? {
        1 => parts.next()?.parse().ok(),
        major => Some(major),
    }
}

/// The minor version of Go 1.
fn go_version() -> Option<u32> {
    let output = Command::new("go").arg("version").output().ok()?;
    go_minor(&String::from_utf8_lossy(&output.stdout))
}

/// Reads `go version go1.26.8 linux/amd64`.
fn go_minor(said: &str) -> Option<u32> {
    let (_, version) = said.split_once(" go1.")?;
    version.split(['.', ' ', 'r']).next()?.parse().ok()
}

fn runs(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs a system, unless it is there; with `tools`, Debian's packages that it needs, too
/// (`apt-get`, so as root). Takes minutes the first time, and the network. Returns where it is.
///
/// # Errors
///
/// One sentence that says what is missing, or the end of what Maven or Go said.
pub fn install(system: System, tools: bool) -> io::Result<PathBuf> {
    if tools {
        install_tools(system)?;
    }
    if let Some(sentence) = missing(system) {
        return Err(io::Error::new(io::ErrorKind::NotFound, sentence));
    }
    let folder = folder_of(system);
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(home())?;
    let lock = File::create(beside(&folder, "lock"))?;
    lock.lock()?;
    // Whoever had the lock before may have done it.
    if folder.exists() {
        return Ok(folder);
    }
    eprintln!("installing {system} in {}", folder.display());
    let part = beside(&folder, "part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    match system {
        System::Cassandra => from_maven(&part, crate::cassandra::ARTIFACTS)?,
        System::Zookeeper => from_maven(&part, crate::zookeeper::ARTIFACTS)?,
        System::Etcd => etcd_from_go(&part)?,
    }
    fs::rename(&part, &folder)?;
    Ok(folder)
}

/// `cassandra-5.0.9.part`, beside `cassandra-5.0.9`.
fn beside(folder: &Path, word: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".");
    name.push(word);
    name.into()
}

fn install_tools(system: System) -> io::Result<()> {
    let lacking = lacking(system);
    if lacking.is_empty() {
        return Ok(());
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["-qq", "-y"]).args(arguments);
        run(command)
    };
    apt(&["update"])?;
    for one in lacking {
        eprintln!("installing {}", one.package);
        apt(&["install", "--no-install-recommends", one.package])?;
    }
    Ok(())
}

/// Jars of some artifacts, and of all that they need at run time, into `lib` of a folder.
fn from_maven(folder: &Path, artifacts: &[Artifact]) -> io::Result<()> {
    let pom = folder.join("pom.xml");
    fs::write(&pom, pom_of(artifacts))?;
    let lib = folder.join("lib");
    let mut maven = Command::new("mvn");
    maven
        .args(["-q", "-B", "-Dstyle.color=never", "-f"])
        .arg(&pom);
    maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", lib.display()));
    run(maven)?;
    if jars(folder)?.is_empty() {
        return Err(io::Error::other("Maven fetched nothing"));
    }
    Ok(())
}

fn pom_of(artifacts: &[Artifact]) -> String {
    let mut pom = String::from(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
         <modelVersion>4.0.0</modelVersion>\n\
         <groupId>fermata</groupId><artifactId>peers</artifactId><version>1</version>\n\
         <packaging>pom</packaging>\n<dependencies>\n",
    );
    for (group, artifact, version) in artifacts {
        pom.push_str(&format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>\n"
        ));
    }
    pom.push_str("</dependencies>\n</project>\n");
    pom
}

/// The jars of an installed system, sorted, without those for other machines.
pub(crate) fn jars(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut jars = Vec::new();
    for entry in fs::read_dir(folder.join("lib"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let foreign = ["-osx-", "-windows-"].iter().any(|os| name.contains(os));
        if name.ends_with(".jar") && !foreign {
            jars.push(path);
        }
    }
    jars.sort();
    Ok(jars)
}

/// The class path of some folders and jars.
pub(crate) fn class_path(jars: &[PathBuf]) -> String {
    let paths: Vec<_> = jars.iter().map(|jar| jar.to_string_lossy()).collect();
    paths.join(":")
}

/// etcd's module cannot be installed by its name (`go install` refuses modules with `replace`
/// lines), but another module can require it, and then build it.
fn etcd_from_go(folder: &Path) -> io::Result<()> {
    let version = crate::etcd::VERSION;
    let module = format!(
        "module fermata/peers\n\ngo 1.26\n\nrequire go.etcd.io/etcd/server/v3 v{version}\n"
    );
    fs::write(folder.join("go.mod"), module)?;
    let mut go = Command::new("go");
    // The sums come from Go's own data base of them as the modules do.
    go.args([
        "build",
        "-mod=mod",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags=-s -w",
    ]);
    go.args(["-o", "etcd", "go.etcd.io/etcd/server/v3"]);
    go.env("GOWORK", "off").current_dir(folder);
    run(go)
}

/// Runs a client to its end; an error has the end of what it said.
fn run(mut command: Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        io::Error::new(error.kind(), format!("`{program}` does not run: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let end = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n");
    Err(io::Error::other(format!(
        "`{program}` failed ({status}), saying:\n{end}"
    )))
}

/// An error that says that something is not this system's.
pub(crate) fn only(system: System, what: &str) -> io::Error {
    refused(format!("only {system} has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_java_is_read() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15"), Some(17));
        assert_eq!(major("java version \"1.8.0_402\""), Some(8));
        assert_eq!(major("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(major("command not found"), None);
    }

    #[test]
    fn a_version_of_go_is_read() {
        assert_eq!(go_minor("go version go1.26.8 linux/amd64"), Some(26));
        assert_eq!(go_minor("go version go1.21rc2 linux/amd64"), Some(21));
        assert_eq!(go_minor("go: no such tool"), None);
    }

    #[test]
    fn a_pom_names_what_is_wanted() {
        let pom = pom_of(&[("org.example", "thing", "1.2")]);
        assert!(pom.contains("<artifactId>thing</artifactId><version>1.2</version>"));
        assert!(pom.ends_with("</project>\n"));
    }

    #[test]
    fn jars_are_sorted_and_those_of_other_machines_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let lib = folder.path().join("lib");
        fs::create_dir(&lib).expect("a folder");
        for name in ["b.jar", "a.jar", "netty-osx-x86_64.jar", "notes.txt"] {
            fs::write(lib.join(name), "").expect("a file");
        }
        let jars = jars(folder.path()).expect("a folder");
        let path = class_path(&jars);
        let expected = format!("{0}/a.jar:{0}/b.jar", lib.display());
        assert_eq!(path, expected);
    }

    #[test]
    fn what_a_client_said_last_is_in_the_error() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo first; echo no such module >&2; exit 3"]);
        let error = run(shell).expect_err("it failed").to_string();
        assert!(
            error.contains("`sh` failed") && error.ends_with("no such module"),
            "{error}"
        );
        let error = run(Command::new("no-such-client")).expect_err("there is none");
        assert!(
            error
                .to_string()
                .starts_with("`no-such-client` does not run")
        );
    }
}
