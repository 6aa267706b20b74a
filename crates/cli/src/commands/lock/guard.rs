//! The guard: a process that ends COMMAND should `fermata lock` be killed.
//!
//! **Problem.** SIGKILL, or the kernel short of memory, ends `fermata lock` with no chance to say a
//! word. Its section is over when the lease has run out, and COMMAND's puts are refused then; but
//! COMMAND would go on, and do to other systems what only a holder may.
//!
//! **Idea.** This program once more, under a name that no help shows, reads a pipe of which only
//! `fermata lock` has the other end: the pipe's end is the end of `fermata lock`. Then COMMAND gets
//! SIGTERM and [`GRACE`] later SIGKILL, as after the loss of a section. Where the lease is longer
//! than that, COMMAND has ended before anybody else is let in. When COMMAND has ended by itself, the
//! guard is killed first.
//!
//! The guard leads a process group, and COMMAND is started in it: so the guard knows from COMMAND's
//! first instant whom to end, and its number cannot become another's. Only in the foreground of a
//! terminal COMMAND must stay in the terminal's group; there the guard is told the process over the
//! pipe, an instant after it was started.
//!
//! **Invariants.**
//! * It signals nobody before `fermata lock` is dead: nothing else closes the pipe.
//! * It is no child of COMMAND, nor COMMAND of it: COMMAND sees nothing of it.
//! * Before COMMAND is started it has caught the signals that are passed on to its group; they, and
//!   those for all processes of this name, do not end it, SIGKILL excepted. Who kills both at once is
//!   left with the lease and the fencing.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::GRACE;
use super::child::{Signals, Target};
use crate::exit::Failure;

/// The name of the guard's command.
pub(crate) const GUARD: &str = "guard-lock";

/// What it says once it has caught the signals.
const READY: &[u8] = b"r";

/// Between two looks whether COMMAND has ended: only its parent is told.
const LOOK: Duration = Duration::from_millis(50);

/// A running guard. Dropped, it ends COMMAND.
pub(super) struct Guard {
    process: Child,
    pipe: ChildStdin,
    group: Pid,
}

impl Guard {
    /// Starts it and waits until it guards its group.
    pub(super) fn start() -> Result<Guard, Failure> {
        let start = || {
            let mut process = Command::new(std::env::current_exe()?)
                .arg(GUARD)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()?;
            let pipe = process.stdin.take().expect("stdin is piped");
            let mut ready = [0; READY.len()];
            let out = process.stdout.as_mut().expect("stdout is piped");
            out.read_exact(&mut ready)?;
            let group = Pid::from_child(&process);
            Ok(Guard {
                process,
                pipe,
                group,
            })
        };
        start().map_err(cannot_guard)
    }

    /// The group in which COMMAND is guarded.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Guards this process instead.
    pub(super) fn watch(&mut self, process: Pid) -> Result<(), Failure> {
        let told = writeln!(self.pipe, "{}", process.as_raw_nonzero());
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
    let group = rustix::process::getpgrp();
    if group != rustix::process::getpid() {
        let sentence = "this command is for `fermata lock`, which gives it a process group";
        return Err(Failure::usage(sentence));
    }
    let _caught = Signals::catch()?;
    crate::output::bytes(READY)?;
    let told = tokio::task::spawn_blocking(|| {
        let mut told = String::new();
        io::stdin().read_to_string(&mut told).map(|_| told)
    });
    let told = told.await.map_err(io::Error::other).and_then(|told| told);
    let target = match process_of(&told.map_err(cannot_guard)?) {
        Some(process) => Target::Process(process),
        None => Target::Group(group),
    };
    end(target).await;
    Ok(0)
}

/// The process that [`Guard::watch`] has told, if it told one and came to the end of it: cut short,
/// the number would be another's.
fn process_of(told: &str) -> Option<Pid> {
    let number = told.strip_suffix('\n')?.parse().ok()?;
    Pid::from_raw(number).filter(|_| number > 0)
}

/// Ends COMMAND, whose parent is dead. This process ends with its group.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_told_whole_is_guarded() {
        assert_eq!(process_of("4711\n"), Pid::from_raw(4711));
        for wrong in ["", "47", "0\n", "-1\n", "x\n"] {
            assert_eq!(process_of(wrong), None, "{wrong:?}");
        }
    }
}
