//! `fermata-lab`: what the project needs and its users do not.
//!
//! **Problem.** The simulator plays wrong versions of the protocol's rules, which the checkers must
//! catch, and looks into the state of nodes after every command. Both are compiled into the
//! protocol that is built with it. None of that belongs into the binary that people run.
//!
//! **Idea.** The laboratory is a binary of its own. `fermata` does not depend on the simulator, and
//! a test of `xtask` asks cargo whether that is so.
//!
//! **Invariants.** Standard output carries only what was asked for. Exit statuses: 0 nothing was
//! violated, 1 a promise was broken, 2 wrong usage, 70 a panic in the simulation, 71 no progress
//! after all faults were healed, 74 a file or standard output failed. Those that `fermata` has,
//! too, mean the same there.

use std::fmt;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod idle;
mod pause;
mod rtt;
mod sim;

/// The laboratory of Fermata: its simulator, and what that measures.
#[derive(Debug, Parser)]
#[command(name = "fermata-lab", version, after_help = EXIT_STATUSES, propagate_version = true)]
struct Cli {
    /// Print JSON.
    #[arg(long, global = true, display_order = 100)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUSES: &str = "\
Exit status:
    0  done: nothing was violated
    1  sim: a promise was broken
    2  wrong usage
   70  sim: a panic
   71  sim: no progress after all faults were healed
   74  a file or standard output failed";

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the deterministic simulator: every scenario, or random schedules with --seeds or --seed.
    Sim(sim::SimArgs),
    /// Exact latencies in virtual time on the profiles of the papers.
    Rtt {
        /// Only this profile: l1, lUs or lUsEu.
        #[arg(long)]
        profile: Option<String>,
    },
    /// How much longer clients wait while a group changes its members, in virtual time.
    Pause {
        /// Only this profile: l1, lUs or lUsEu.
        #[arg(long)]
        profile: Option<String>,
    },
    /// What a cluster sends and does that nobody uses, per second and node, by its size.
    Idle,
}

/// Why a command could not do its work.
#[derive(Debug)]
enum Failure {
    /// Wrong usage that the parser could not see, in a sentence.
    Usage(String),
    /// A file, by its name, or standard output.
    Local(String, io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(sentence) => f.write_str(sentence),
            Failure::Local(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

fn main() -> ExitCode {
    // Prints help and version itself, and exits with status 2 on wrong usage.
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Sim(args) => sim::run(cli.json, &args),
        Command::Rtt { profile } => rtt::run(cli.json, profile.as_deref()).map(|()| 0),
        Command::Pause { profile } => pause::run(cli.json, profile.as_deref()).map(|()| 0),
        Command::Idle => idle::run(cli.json).map(|()| 0),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("fermata-lab: {failure}");
            ExitCode::from(match failure {
                Failure::Usage(_) => 2,
                Failure::Local(..) => 74,
            })
        }
    }
}

/// Prints text and a newline. A reader that has gone away is no failure of ours.
fn print(text: impl fmt::Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Local("standard output".into(), error))
        }
        _ => Ok(()),
    }
}
