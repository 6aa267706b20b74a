//! The `fermata` command line: server, development cluster, client commands, benchmarks and the
//! demonstration, in one binary.
//!
//! | module | what it has |
//! |---|---|
//! | [`args`] | every command and option, as `--help` shows them |
//! | [`exit`] | exit statuses and the one sentence of a failure |
//! | [`commands`] | one file per command |
//! | [`engine`] | the engines besides the native one |
//! | [`dev`] | a cluster of real processes on this machine |
//! | [`demo`] | the worked examples of `fermata demo` |
//!
//! **Invariants.** Standard output carries only what was asked for; everything else goes to
//! standard error. A failure is one sentence and an exit status from the table in `docs/cli.md`.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod certs;
mod commands;
mod connect;
mod demo;
mod dev;
mod duration;
mod engine;
mod exit;
mod output;
mod signals;

fn main() -> ExitCode {
    // Prints help and version itself, and exits with status 2 on wrong usage.
    let cli = args::Cli::parse();
    let json = cli.json;
    let global = cli.global();
    match global.and_then(|global| commands::run(&global, cli.command)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            exit::report(&failure, json);
            ExitCode::from(failure.exit as u8)
        }
    }
}
