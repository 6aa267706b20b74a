//! Project tasks, run as `cargo xtask TASK`.
//!
//! **Problem.** A newcomer should have one command that says whether everything holds, and the same
//! command should be all that the build service runs.
//!
//! **Idea.** `cargo xtask test` is that command ([`gate`]). The rules about the tree itself, which
//! no compiler checks, are ordinary tests of this crate ([`tidy`]), so `cargo test` runs them too.
//!
//! **Invariant.** Only `fix` ([`wrap`]) and `porcupine --record` ([`porcupine`]) write to the tree;
//! the gate never does.

use std::process::ExitCode;

mod coverage;
mod deny;
mod formal;
mod gate;
mod java;
mod mutants;
mod passed;
mod peers;
mod porcupine;
#[cfg(test)]
mod product;
mod tidy;
mod traces;
mod wrap;

const HELP: &str = "\
usage: cargo xtask TASK

  test    everything: formatting, lints, documentation, tidy rules, tests of all crates and of
          real processes, the simulator with its planted bugs, the short part of the formal
          models, `formal traces` with and without --planted; needs a JDK, and Maven the first
          time
  test --deep
          what takes long, needs more rights, or prints figures, and so is not in `test`
  tidy    the rules about the tree alone
  deny    licences, sources and known holes of what the product is built from; needs
          `cargo install --locked cargo-deny`, and a network for the holes
  fix     formats, and rewraps comments that are too wide
  porcupine [--record]
          asks another checker of linearizability about random histories, and compares its
          verdicts with the recorded ones, or records them; needs Go
  formal [--short] [WORD]...
          asks Alloy about the models below formal/, or about those checks whose file or name
          contains a word; --short leaves out what takes long; needs Java, and Maven the first
          time
  formal traces [--seeds N | --seed N | --planted]
          judges what the simulator does by the text of the model of critical sections, or shows
          that what is wrong is refused; needs a JDK, and Maven the first time
  mutants [--one-in N] [--survivors | --list]
          breaks rules of the protocol's rooms one at a time, one site in N (24), and prints what
          no test noticed; goes on where it was interrupted. --survivors asks again about those
          alone, --list prints the sites and whether each is chosen. Takes a good hour
  peers SYSTEM COMMAND
          Cassandra, ZooKeeper or etcd on this machine, for comparisons and for what runs on them;
          `peers help` says more; needs Java and Maven, or Go
";

fn main() -> ExitCode {
    let task: Vec<String> = std::env::args().skip(1).collect();
    let task: Vec<&str> = task.iter().map(String::as_str).collect();
    let asks = |word: &&str| ["--help", "-h"].contains(word);
    if task.first() != Some(&"peers") && task.iter().any(asks) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match task[..] {
        ["test"] => gate::run(),
        ["test", "--deep"] => gate::run_deep(),
        ["tidy"] => tidy_alone(),
        ["deny"] => deny::run(),
        ["fix"] => wrap::run(),
        ["porcupine"] => porcupine::run(false),
        ["porcupine", "--record"] => porcupine::run(true),
        ["formal", "traces", ref words @ ..] => traces::run(words),
        ["formal", ref choice @ ..] => match formal::Choice::of(choice) {
            Some(choice) => formal::run(&choice),
            None => usage(),
        },
        ["mutants", ref words @ ..] => match mutants::Choice::of(words) {
            Some(choice) => mutants::run(&choice),
            None => usage(),
        },
        ["peers", "help" | "--help" | "-h"] => {
            print!("{}", peers::HELP);
            ExitCode::SUCCESS
        }
        ["peers", ref words @ ..] => peers::run(words),
        ["help"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprint!("{HELP}");
    ExitCode::from(2)
}

fn tidy_alone() -> ExitCode {
    let tree = tidy::Tree::of_workspace();
    let found = tidy::violations(&tree);
    for violation in &found {
        println!("{violation}");
    }
    println!("{} files, {} violations", tree.files.len(), found.len());
    if found.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
