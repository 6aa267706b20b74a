//! The guard: a process that ends COMMAND should `fermata lock` be killed.
//!
//! **Problem.** SIGKILL, or the kernel short of memory, ends `fermata lock` with no chance to say a
//! word. Its section is over when the lease has run out, and COMMAND's puts are refused then; but
//! COMMAND would go on, and do to other systems what only a holder may.
//!
//! **Idea.** This program once more, under a name that no help shows, reads a pipe of which only
//! `fermata lock` has the other end. It is told COMMAND's process, and then hears nothing: the
//! pipe's end is the end of `fermata lock`, and COMMAND gets SIGTERM and [`GRACE`] later SIGKILL,
//! as after the loss of a section. Where the lease is longer than that, COMMAND has ended before
//! anybody else is let in. When COMMAND has ended by itself, the guard is killed first.
//!
//! **Invariants.**
//! * It never signals a process before `fermata lock` is dead: nothing else closes the pipe.
//! * It is told COMMAND's process before that turns into COMMAND.
//! * It is no child of COMMAND, nor COMMAND of it: COMMAND sees nothing of it.
//! * Signals for all of a group, or for all processes of this name, do not end it, SIGKILL
//!   excepted. If both are killed at once, the lease and the fencing are left.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use super::GRACE;
use super::child::{Signals, Target};
use crate::exit::Failure;
use rustix::process::Signal;

/// The name of the guard's command.
pub(crate) const GUARD: &str = "guard-lock";

/// Between two looks whether COMMAND has ended: only its parent is told.
const LOOK: Duration = Duration::from_millis(50);

/// A running guard. Dropped, it ends COMMAND.
pub(super) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts it; it guards nothing yet.
    pub(super) fn start() -> Result<Guard, Failure> {
        let start = || {
            Command::new(std::env::current_exe()?)
                .arg(GUARD)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
        };
        let mut process = start().map_err(cannot_guard)?;
        let pipe = process.stdin.take().expect("stdin is piped");
        Ok(Guard { process, pipe })
    }

    /// Tells it what to guard.
    pub(super) fn watch(&mut self, target: Target) -> Result<(), Failure> {
        let told = writeln!(self.pipe, "{target}");
        told.map_err(cannot_guard)
    }

    /// COMMAND has ended: there is nothing to guard any more.
    pub(super) fn dismiss(mut self) {
        // Before the pipe closes. A failure means that it has ended already.
        let _gone = self.process.kill();
        let _status = self.process.wait();
    }
}

fn cannot_guard(error: io::Error) -> Failure {
    Failure::local("guarding COMMAND against the end of this process", error)
}

/// The guard itself.
pub(crate) async fn run() -> Result<u8, Failure> {
    let _caught = Signals::catch()?;
    let told = tokio::task::spawn_blocking(|| {
        let mut told = String::new();
        io::stdin().read_to_string(&mut told).map(|_| told)
    });
    let told = told.await.map_err(io::Error::other).and_then(|told| told);
    let told = told.map_err(cannot_guard)?;
    // Nothing was told where COMMAND was never started.
    if let Some(target) = Target::parse(&told) {
        end(target).await;
    }
    Ok(0)
}

/// Ends COMMAND, whose parent is dead.
async fn end(target: Target) {
    target.signal(Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while target.is_there() {
        if Instant::now() >= deadline {
            target.signal(Signal::KILL);
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}
