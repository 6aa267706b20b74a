//! The command under `fermata lock`: how it is started, signalled and ended.
//!
//! Where this process is in the foreground of a terminal, the command shares its process group, so
//! that it can use the terminal, and Ctrl-C reaches both from the terminal itself. Everywhere else
//! (scripts, services, background jobs) the command gets a group of its own, which its [`guard`](super::guard)
//! leads, and a signal or the end of a lost section reaches everything that it started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use super::guard::Guard;
use super::socket::{LOCK_REF_ENV, SECTION_ENV};
use crate::exit::{Exit, Failure};
use crate::signals::caught;

/// What a signal for the command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The command's group, in which its guard is, too.
    Group(Pid),
    /// The command alone.
    Process(Pid),
}

impl Target {
    /// Sends a signal. The command may have ended already, which is no failure.
    pub(super) fn signal(self, signal: Signal) {
        let _ended = match self {
            Target::Group(group) => rustix::process::kill_process_group(group, signal),
            Target::Process(process) => rustix::process::kill_process(process, signal),
        };
    }

    /// Whether anything is there to be signalled. Of a group its guard is.
    pub(super) fn is_there(self) -> bool {
        let found = match self {
            Target::Group(group) => rustix::process::test_kill_process_group(group),
            Target::Process(process) => rustix::process::test_kill_process(process),
        };
        found.is_ok()
    }
}

/// A started command.
pub(super) struct Running {
    child: Child,
    target: Target,
    guard: Guard,
}

impl Running {
    /// Starts `command` with the section's variables.
    ///
    /// # Errors
    /// [`Exit::NotFound`] and [`Exit::CannotRun`], as a shell has them.
    pub(super) fn start(
        command: &[OsString],
        socket: &Path,
        lock_ref: u64,
    ) -> Result<Running, Failure> {
        let own_group = !in_foreground();
        // First, so that no command runs without one.
        let mut guard = Guard::start()?;
        let (program, arguments) = command
            .split_first()
            .expect("the parser requires a command");
        let mut builder = Command::new(program);
        builder
            .args(arguments)
            .env(SECTION_ENV, socket)
            .env(LOCK_REF_ENV, lock_ref.to_string());
        if own_group {
            builder.process_group(guard.group().as_raw_nonzero().get());
        }
        let started = builder.spawn().map_err(|error| {
            let exit = if error.kind() == io::ErrorKind::NotFound {
                Exit::NotFound
            } else {
                Exit::CannotRun
            };
            let sentence = format!("cannot run `{}`: {error}", program.to_string_lossy());
            Failure::new(exit, sentence)
        });
        let child = match started {
            Ok(child) => child,
            Err(failure) => {
                guard.dismiss();
                return Err(failure);
            }
        };
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
        let pid = pid.expect("a child that was not waited for has a process id");
        let target = if own_group {
            Target::Group(guard.group())
        } else {
            guard.watch(pid)?;
            Target::Process(pid)
        };
        Ok(Running {
            child,
            target,
            guard,
        })
    }

    /// Waits for the command's end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Once the command has ended.
    pub(super) fn ended(self) {
        self.guard.dismiss();
    }

    /// Sends a signal to the command.
    pub(super) fn signal(&self, signal: Signal) {
        self.target.signal(signal);
    }

    /// Passes on a signal that this process got. What a terminal sends to its foreground group has
    /// reached the command already.
    pub(super) fn pass_on(&self, signal: Signal) {
        let from_terminal = signal == Signal::INT || signal == Signal::QUIT;
        if matches!(self.target, Target::Group(_)) || !from_terminal {
            self.signal(signal);
        }
    }
}

/// Whether this process is in the foreground group of the terminal at its standard input.
fn in_foreground() -> bool {
    rustix::termios::tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The exit status of `fermata lock` for its command's.
pub(super) fn status_of(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(Exit::Internal as u8)
}

/// The signals that are passed on.
pub(super) struct Signals {
    hangup: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    user1: unix::Signal,
    user2: unix::Signal,
}

impl Signals {
    /// From now on these signals no longer end this process.
    pub(super) fn catch() -> Result<Signals, Failure> {
        Ok(Signals {
            hangup: caught(SignalKind::hangup())?,
            interrupt: caught(SignalKind::interrupt())?,
            quit: caught(SignalKind::quit())?,
            terminate: caught(SignalKind::terminate())?,
            user1: caught(SignalKind::user_defined1())?,
            user2: caught(SignalKind::user_defined2())?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.user1.recv() => Signal::USR1,
            _ = self.user2.recv() => Signal::USR2,
        }
    }
}
