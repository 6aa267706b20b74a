//! The command under `fermata lock`: how it is started, signalled and ended.
//!
//! Where this process is in the foreground of a terminal, the command shares its process group, so
//! that it can use the terminal, and Ctrl-C reaches both from the terminal itself. Everywhere else
//! (scripts, services, background jobs) the command gets a group of its own, and a signal or the
//! end of a lost section reaches everything that it started.
//!
//! No instant of the command is unguarded: its process is this program first, which asks over the
//! section's socket whether it may begin. It is answered only when the [`guard`](super::guard) has
//! been told of it, and ends where nobody is left to answer.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

use super::guard::Guard;
use super::lease::Term;
use super::socket::{self, Action, LOCK_REF_ENV, SECTION_ENV};
use crate::exit::{Exit, Failure};
use crate::signals::caught;

/// The name of the command that [`begin`]s.
pub(crate) const BEGIN: &str = "begin-locked";

/// What a signal for the command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pid: Pid,
    /// Whether it leads a process group of its own, which then is meant.
    own_group: bool,
}

impl Target {
    /// Sends a signal. The command may have ended already, which is no failure.
    pub(super) fn signal(self, signal: Signal) {
        let _ended = match self.own_group {
            true => rustix::process::kill_process_group(self.pid, signal),
            false => rustix::process::kill_process(self.pid, signal),
        };
    }

    /// Whether anything is there to be signalled.
    pub(super) fn is_there(self) -> bool {
        let found = match self.own_group {
            true => rustix::process::test_kill_process_group(self.pid),
            false => rustix::process::test_kill_process(self.pid),
        };
        found.is_ok()
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub(super) fn parse(line: &str) -> Option<Target> {
        let (kind, pid) = line.split_once(' ')?;
        Some(Target {
            pid: Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 0)?)?,
            own_group: match kind {
                "group" => true,
                "process" => false,
                _ => return None,
            },
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.own_group {
            true => "group",
            false => "process",
        };
        write!(f, "{kind} {}", self.pid.as_raw_nonzero())
    }
}

/// A started command.
pub(super) struct Running {
    child: Child,
    target: Target,
    guard: Guard,
}

impl Running {
    /// Starts `command` with the section's variables; it [begins](begin) once the socket is served.
    ///
    /// # Errors
    /// [`Exit::Local`], where no process can be started.
    pub(super) fn start(
        command: &[OsString],
        socket: &Path,
        (keyspace, lock_ref): (&str, u64),
        json: bool,
    ) -> Result<Running, Failure> {
        let own_group = !in_foreground();
        let mut guard = Guard::start(socket.parent().unwrap_or(socket))?;
        let start = || {
            let mut builder = Command::new(std::env::current_exe()?);
            builder
                .args(json.then_some("--json"))
                .args([BEGIN, "--"])
                .args(command)
                .env(SECTION_ENV, socket)
                .env(LOCK_REF_ENV, lock_ref.to_string())
                .env("FERMATA_KEYSPACE", keyspace);
            if own_group {
                builder.process_group(0);
            }
            builder.spawn()
        };
        let child = start().map_err(|error| Failure::local("starting COMMAND", error))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
        let pid = pid.expect("a child that was not waited for has a process id");
        let target = Target { pid, own_group };
        guard.watch(target)?;
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

    /// The lease lasts until then: the guard ends the command with it.
    pub(super) fn lease(&mut self, term: Term) {
        self.guard.lease(term);
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
        if self.target.own_group || !from_terminal {
            self.signal(signal);
        }
    }
}

/// The command's process before it is the command: waits until it is guarded, then turns into it.
///
/// # Errors
/// [`Exit::NotFound`] and [`Exit::CannotRun`], as a shell has them; as [`socket::ask`], where the
/// `fermata lock` is dead already.
pub(crate) async fn begin(command: &[OsString]) -> Result<u8, Failure> {
    let (program, arguments) = command
        .split_first()
        .expect("the parser requires a command");
    let Some(path) = crate::commands::surrounding_section() else {
        return Err(Failure::usage("this command is for `fermata lock` alone"));
    };
    // It may be stopped meanwhile, and this process with it.
    const DAY: Duration = Duration::from_secs(86_400);
    socket::ask(&path, Action::Begin, ("", b""), &[], DAY).await?;
    let error = std::process::Command::new(program).args(arguments).exec();
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::CannotRun,
    };
    let sentence = format!("cannot run `{}`: {error}", program.to_string_lossy());
    Err(Failure::new(exit, sentence))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_reads_what_it_was_told_or_nothing() {
        for own_group in [true, false] {
            let pid = Pid::from_raw(4711).unwrap();
            let target = Target { pid, own_group };
            assert_eq!(Target::parse(&target.to_string()), Some(target));
        }
        for wrong in ["", "group 0", "group -1", "all 1", "4711"] {
            assert_eq!(Target::parse(wrong), None, "{wrong:?}");
        }
    }
}
