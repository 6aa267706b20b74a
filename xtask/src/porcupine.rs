//! `cargo xtask porcupine`: asks porcupine, a checker of linearizability in Go, for its verdicts on
//! random histories, and compares them with the recorded ones, with which the tests of
//! `crates/check` compare our own.
//!
//! Go is needed here alone, and the first run loads the module; so the gate does without.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::gate::root;

const RECORDED: &str = "crates/check/tests/porcupine.txt";

/// Compares, or with `record` writes down what porcupine says.
pub(crate) fn run(record: bool) -> ExitCode {
    let folder = root().join("target").join("porcupine");
    match verdicts(&folder).and_then(|verdicts| settle(&verdicts, record)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("porcupine could not be asked: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What porcupine says of each history, one line each.
fn verdicts(folder: &Path) -> io::Result<String> {
    // Histories of an earlier version of the generator are none of ours.
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let example = ["--features", "file", "--example", "histories", "--"];
    let mut generate = Command::new(cargo);
    generate.args(["run", "--package", "fermata-check"]);
    generate.args(example).arg(folder).current_dir(root());
    output(generate)?;
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    let mut ask = Command::new("go");
    ask.args(["run", "."]).args(files);
    ask.current_dir(root().join("crates/check/porcupine"));
    output(ask)
}

fn output(mut command: Command) -> io::Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        let program = command.get_program().to_string_lossy();
        return Err(io::Error::other(format!("{program}: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// Whether the verdicts are the recorded ones, or are now.
fn settle(verdicts: &str, record: bool) -> io::Result<bool> {
    let path = root().join(RECORDED);
    if record {
        fs::write(&path, verdicts)?;
    }
    let recorded = fs::read_to_string(&path)?;
    let count = |what| verdicts.lines().filter(|line| line.ends_with(what)).count();
    let same = recorded == verdicts;
    let word = if same {
        "as recorded"
    } else {
        "not as recorded"
    };
    let (right, wrong) = (count(" ok"), count(" wrong"));
    println!("porcupine: {right} histories linearizable, {wrong} not; {word} in {RECORDED}");
    Ok(same)
}
