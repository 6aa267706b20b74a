//! The guard: a process that ends COMMAND should `fermata lock` be killed, or stand still.
//!
//! **Problem.** SIGKILL, or the kernel short of memory, ends `fermata lock` with no chance to say a
//! word; SIGSTOP keeps it from renewing its lease, and from doing anything about it. Its section is
//! over when the lease has run out, and COMMAND's puts are refused then; but COMMAND would go on,
//! and do to other systems what only a holder may.
//!
//! **Idea.** This program once more, under a name that no help shows, reads a pipe of which only
//! `fermata lock` has the other end. It is told COMMAND's process, and with every renewal until
//! when the lease lasts, by the clock that counts suspension. Where that time comes, COMMAND gets
//! SIGTERM a little before it ([`super::lease`]) and SIGKILL at it, whatever `fermata lock` does.
//! The pipe's end is the end of `fermata lock`: COMMAND gets SIGTERM then, and SIGKILL [`GRACE`]
//! later, or with the lease, and the section's folder is removed. When COMMAND has ended by itself,
//! the guard is killed first.
//!
//! **Invariants.**
//! * It never signals a process before `fermata lock` is dead, since nothing else closes the pipe,
//!   or the lease that it was told last is over but for the margin.
//! * It is told COMMAND's process before that turns into COMMAND.
//! * It is no child of COMMAND, nor COMMAND of it: COMMAND sees nothing of it.
//! * Signals for all of a group, or for all processes of this name, do not end it, SIGKILL
//!   excepted. If both are killed at once, the lease and the fencing are left.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::GRACE;
use super::child::{Signals, Target};
use super::lease::{Term, boot_time};
use crate::exit::Failure;

/// The name of the guard's command.
pub(crate) const GUARD: &str = "guard-lock";

/// Between two looks whether COMMAND has ended, or its time: only its parent is told of the one,
/// and timers do not count suspension.
const LOOK: Duration = Duration::from_millis(50);

/// A running guard. Dropped, it ends COMMAND.
pub(super) struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts it; it guards nothing yet but the section's folder.
    pub(super) fn start(folder: &Path) -> Result<Guard, Failure> {
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
        let mut guard = Guard { process, pipe };
        guard.tell(format_args!("folder {}", folder.display()))?;
        Ok(guard)
    }

    /// Tells it what to guard. From then on nothing that it is told waits for it.
    pub(super) fn watch(&mut self, target: Target) -> Result<(), Failure> {
        self.tell(format_args!("command {target}"))?;
        rustix::io::ioctl_fionbio(&self.pipe, true).map_err(|error| cannot_guard(error.into()))
    }

    /// Tells it until when the lease lasts. It may be stopped, and its pipe full: then it has not
    /// read the one before either, and ends COMMAND too soon rather than too late.
    pub(super) fn lease(&mut self, term: Term) {
        let _full = self.tell(format_args!("lease {term}"));
    }

    fn tell(&mut self, what: fmt::Arguments<'_>) -> Result<(), Failure> {
        // One write, which a pipe takes as a whole or not at all.
        let line = format!("{what}\n");
        self.pipe.write_all(line.as_bytes()).map_err(cannot_guard)
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
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    let (mut folder, mut target, mut term) = (None, None, None::<Term>);
    loop {
        let line = tokio::select! {
            line = told.next_line() => line.map_err(cannot_guard)?,
            () = tokio::time::sleep(LOOK) => {
                if let (Some(command), Some(last)) = (target, term)
                    && boot_time() >= last.warns
                {
                    end(command, last.ends).await;
                    target = None;
                }
                continue;
            }
        };
        match line.as_deref().map(|line| line.split_once(' ')) {
            None => break,
            Some(Some(("folder", path))) => folder = Some(path.to_owned()),
            Some(Some(("command", process))) => target = Target::parse(process),
            Some(Some(("lease", until))) => term = Term::parse(until).or(term),
            Some(_) => {}
        }
    }
    // Nothing was told where COMMAND was never started.
    if let Some(target) = target {
        let last = boot_time() + GRACE;
        end(target, term.map_or(last, |term| last.min(term.ends))).await;
    }
    if let Some(folder) = folder {
        // Gone where `fermata lock` has come that far itself.
        let _gone = std::fs::remove_dir_all(folder);
    }
    Ok(0)
}

/// Ends COMMAND, at the latest then.
async fn end(target: Target, last: Duration) {
    target.signal(Signal::TERM);
    while target.is_there() {
        let left = last.saturating_sub(boot_time());
        if left.is_zero() {
            target.signal(Signal::KILL);
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}
