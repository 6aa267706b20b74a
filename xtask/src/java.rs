//! Java, Alloy, and the folders that both write to.
//!
//! **Problem.** Java, Maven and Alloy are foreign programs: missing, too old, damaged or fetched in
//! half, they fail with words that blame something else. And what they leave behind, or go on
//! doing when this task has ended, is in the way of the next run.
//!
//! **Idea.** They are looked at before anything is asked, and each fault is one sentence that says
//! what to do. Alloy comes from Maven, at its pinned version, into `target/formal`, by a rename:
//! it is there whole or not at all. A child ends with its parent, where the system can do that.
//!
//! **Invariant.** Two runs at once write to no common place: each has a folder that bears its
//! process's number, and the next run takes away those of processes that are gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::gate::root;

/// Where Maven finds Alloy.
const ARTIFACT: &str = "org.alloytools:org.alloytools.alloy.dist";
const VERSION: &str = "6.2.0";

/// The oldest Java that runs Alloy.
const OLDEST: u32 = 17;

/// Where to get Java.
const INSTALL_JAVA: &str =
    "install a JDK, 17 or later (on Debian: apt-get install openjdk-17-jdk-headless)";

/// What Java is told. Any check of the short run gets by with 500 MiB; left alone, each process
/// would take a quarter of the machine before it cleans up, and then be the one that is ended when
/// memory is short. Its collector's threads would only wait for each other here.
const OPTIONS: &[&str] = &["-Xmx2g", "-XX:+UseSerialGC"];

/// What is said of a file that was not fetched whole.
pub(crate) const DAMAGED: &str = "is damaged: delete it and run again";

/// Where everything is that these tasks fetch or write.
pub(crate) fn folder() -> PathBuf {
    root().join("target").join("formal")
}

/// The one file that Alloy is: its Analyzer, too.
pub(crate) fn jar() -> PathBuf {
    folder().join(format!("org.alloytools.alloy.dist-{VERSION}.jar"))
}

/// An error that says which path it is about.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A path as people type it: from the root of the workspace.
pub(crate) fn shown(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

/// An error that says what to install, unless all programs are there that these tasks need;
/// `compiler`: also the one that compiles the judge of traces.
pub(crate) fn programs(compiler: bool) -> io::Result<()> {
    let version = there("java", "-version", INSTALL_JAVA)?;
    if let Some(major) = major(&version).filter(|major| *major < OLDEST) {
        let error = format!("`java` is version {major}; {INSTALL_JAVA}");
        return Err(io::Error::other(error));
    }
    if compiler {
        let advice = format!("the Java here has no compiler (a JRE); {INSTALL_JAVA}");
        there("javac", "-version", &advice)?;
    }
    if jar().exists() {
        return Ok(());
    }
    let advice = "install Maven 3, which fetches Alloy once (on Debian: apt-get install maven)";
    there("mvn", "--version", advice).map(drop)
}

/// What `program` says of its version, or an error that says what to do about it.
fn there(program: &str, version: &str, advice: &str) -> io::Result<String> {
    let output = Command::new(program)
        .arg(version)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = [output.stdout, output.stderr].concat();
            Ok(String::from_utf8_lossy(&said).into_owned())
        }
        _ => {
            let error = format!("`{program}` does not run; {advice}");
            Err(io::Error::new(io::ErrorKind::NotFound, error))
        }
    }
}

/// The main version in `openjdk version "17.0.15" …`, or in the older `"1.8.0_292"`.
fn major(version: &str) -> Option<u32> {
    let number = version.split('"').nth(1)?;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    match parts.next()?.parse().ok()? {
        1 => parts.next()?.parse().ok(),
        major => Some(major),
    }
}

/// A program that ends with this one, also where that is killed. The system offers it to the child
/// alone, so another program asks for it in the child's name; where there is none, a child may go
/// on until it is done.
pub(crate) fn child(program: &Path) -> Command {
    static WRAPS: OnceLock<bool> = OnceLock::new();
    const WRAPPER: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];
    let wrapper = || {
        let mut command = Command::new(WRAPPER[0]);
        command.args(&WRAPPER[1..]).stdin(Stdio::null());
        command
    };
    let wraps = *WRAPS.get_or_init(|| {
        let mut test = wrapper();
        test.arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        test.status().is_ok_and(|status| status.success())
    });
    if wraps {
        let mut command = wrapper();
        command.arg(program);
        return command;
    }
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

/// Java.
pub(crate) fn java() -> Command {
    let mut java = child(Path::new("java"));
    java.args(OPTIONS);
    java
}

/// A folder of this process alone below [`folder`], empty.
pub(crate) struct Scratch {
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// Makes `NAME-PID`, and removes those of processes that are gone.
    pub(crate) fn new(name: &str) -> io::Result<Scratch> {
        let folder = folder();
        let path = folder.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(at(&path))?;
        let processes = Path::new("/proc");
        for entry in fs::read_dir(&folder).map_err(at(&folder))?.flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let number = file.strip_prefix(name).and_then(|n| n.strip_prefix('-'));
            let Some(Ok(number)) = number.map(str::parse::<u32>) else {
                continue;
            };
            // Where the system does not say who lives, nobody is taken for dead.
            if processes.join("self").exists() && !processes.join(number.to_string()).exists() {
                // Another run may do the same just now.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(Scratch { path })
    }

    /// Gives the folder a name that stays, in the place of what has that name.
    pub(crate) fn keep(self, name: &str) -> PathBuf {
        let kept = folder().join(name);
        let _ = fs::remove_dir_all(&kept);
        match fs::rename(&self.path, &kept) {
            Ok(()) => kept,
            Err(_) => {
                let path = self.path.clone();
                std::mem::forget(self);
                path
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the target folder, and is in nobody's way.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Alloy, fetched through Maven unless it is there.
pub(crate) fn fetched_jar(scratch: &Scratch) -> io::Result<PathBuf> {
    let jar = jar();
    if jar.exists() {
        return Ok(jar);
    }
    let into = scratch.path.join("fetched");
    fs::create_dir_all(&into).map_err(at(&into))?;
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-Dstyle.color=never", "dependency:copy"]);
    maven.arg(format!("-Dartifact={ARTIFACT}:{VERSION}"));
    maven.arg(format!("-DoutputDirectory={}", into.display()));
    let status = maven.current_dir(&into).status()?;
    let name = jar.file_name().unwrap_or_default();
    let fetched = into.join(name);
    if !status.success() || !fetched.exists() {
        let error = format!("Maven did not fetch {ARTIFACT}:{VERSION}: {status}");
        return Err(io::Error::other(error));
    }
    fs::rename(&fetched, &jar).map_err(at(&jar))?;
    Ok(jar)
}

/// What Java's complaint comes to, in one line: a mistake in a model as `FILE:LINE:COLUMN: TEXT`.
pub(crate) fn complaint(said: &str) -> String {
    let damaged = said.contains("corrupt jarfile") || said.contains("zip END header");
    if damaged {
        return format!("{} {DAMAGED}", shown(&jar()));
    }
    let mut lines = said.lines().filter(|line| !line.contains("INFO"));
    // `Syntax error in FILE at line L column C:`, and the text below it.
    for line in lines.by_ref() {
        let Some((_, place)) = line.split_once(" error in ") else {
            continue;
        };
        let Some((file, rest)) = place.split_once(" at line ") else {
            continue;
        };
        let (position, first) = rest.split_once(':').unwrap_or((rest, ""));
        let position = position.replace(" column ", ":");
        let below = lines.take_while(|line| !is_stack(line) && !line.contains(" error in "));
        let text: Vec<&str> = std::iter::once(first).chain(below).collect();
        let text = text.join(" ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        return format!("{}:{position}: {text}", shown(Path::new(file)));
    }
    let mut lines = said
        .lines()
        .filter(|line| !is_stack(line) && !line.contains("INFO"));
    lines.next().unwrap_or("it said nothing").to_owned()
}

/// Whether a line is one of a stack trace.
pub(crate) fn is_stack(line: &str) -> bool {
    line.trim_start().starts_with("at ") || line.starts_with("Caused by:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15"), Some(17));
        assert_eq!(major("java version \"1.8.0_292\""), Some(8));
        assert_eq!(major("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(major("something else"), None);
    }

    #[test]
    fn a_mistake_in_a_model_is_one_line() {
        let said = "[main] ERROR alloy - excuting sub command error Syntax error in m/a.als at \
                    line 3 column 15:\nThe name \"B\" cannot be found.\nSyntax error in m/a.als at \
                    line 3 column 15:\n\tat edu.mit.X(X.java:1)\n";
        assert_eq!(
            complaint(said),
            "m/a.als:3:15: The name \"B\" cannot be found."
        );
        let damaged = complaint("Error: Invalid or corrupt jarfile x.jar");
        assert!(damaged.ends_with(DAMAGED));
        assert_eq!(complaint("\tat x.Y\nno room"), "no room");
    }
}
