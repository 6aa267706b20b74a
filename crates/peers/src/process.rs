//! A node's process: how it is started so that nobody is left behind, and how it is found again.
//!
//! A process number alone is no name: once its process is gone the machine may give it to somebody
//! else. So a node is written down with the time its process started, and signals go through a file
//! descriptor of the process (`pidfd`), opened before that time is compared.
//!
//! A node's command is run by a shell that waits for a word on its input. By then it is written
//! down, for the guard, too; where whoever starts it dies before, the shell ends by itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::net;

/// How a node's process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs. Whether it serves is another question.
    Up,
    /// It stands still (SIGSTOP): its connections are open, and it says nothing.
    Stopped,
    /// There is none.
    Down,
}

/// Waits for a word, then becomes the command. A terminal that closes is none of a server's
/// concerns.
const LAUNCH: &str = r#"trap '' HUP; read -r go || exit 1; exec "$@" </dev/null"#;

/// A process that is told apart from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number.
    pub(crate) pid: i32,
    /// When it started, in clock ticks since the machine did.
    pub(crate) start: u64,
}

impl Process {
    /// The one that has this number now.
    fn of_pid(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, start) = state_and_start(&stat)?;
        Some(Process { pid, start })
    }

    /// Reads the file that [`Process::write`] wrote.
    pub(crate) fn read(path: &Path) -> Option<Process> {
        let text = fs::read_to_string(path).ok()?;
        let (pid, start) = text.trim().split_once(' ')?;
        Some(Process {
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        })
    }

    fn write(self, path: &Path) -> io::Result<()> {
        fs::write(path, format!("{} {}\n", self.pid, self.start))
    }

    /// How it is doing.
    pub(crate) fn state(self) -> State {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return State::Down;
        };
        match state_and_start(&stat) {
            Some((_, start)) if start != self.start => State::Down,
            Some(('Z' | 'X', _)) | None => State::Down,
            Some(('T' | 't', _)) => State::Stopped,
            Some(_) => State::Up,
        }
    }

    /// Sends a signal, if it is still this process; whether it was.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(false);
        };
        // From here on the descriptor names one process, whatever its number may come to mean.
        let Ok(open) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(false);
        };
        if self.state() == State::Down {
            return Ok(false);
        }
        match pidfd_send_signal(&open, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is gone within `limit`.
    pub(crate) fn gone_within(self, limit: Duration) -> bool {
        let start = Instant::now();
        while self.state() != State::Down {
            if start.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Memory that it occupies, in MiB.
    pub(crate) fn resident_mib(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib / 1024)
    }
}

/// The state and the time of start in a line of `/proc/PID/stat`. The program's name in it may hold
/// blanks and parentheses, so the fields count from its end.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    // Field 22 of proc(5); the state is field 3.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// A node's command.
pub(crate) struct Launch<'a> {
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// The namespace to live in.
    pub(crate) namespace: Option<String>,
    /// Where it runs; its output goes to `log` there, its number to `pid`.
    pub(crate) folder: &'a Path,
}

impl Launch<'_> {
    /// Starts it; it is written down before it does anything.
    pub(crate) fn start(self) -> io::Result<(Child, Process)> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", LAUNCH, "node"]).args(&self.command);
        shell.current_dir(self.folder).process_group(0);
        shell
            .stdin(Stdio::piped())
            .stderr(log.try_clone()?)
            .stdout(log);
        // A process is born in the namespace of the thread that starts it.
        let mut child = net::within(self.namespace.as_deref(), move || shell.spawn())??;
        let pid = i32::try_from(child.id()).expect("process numbers are below 2^22");
        let told = Process::of_pid(pid)
            .ok_or_else(|| io::Error::other("a process was gone as soon as it was there"))
            .and_then(|process| {
                process.write(&self.folder.join("pid"))?;
                let mut input = child.stdin.take().expect("stdin is piped");
                input.write_all(b"go\n")?;
                Ok(process)
            });
        match told {
            Ok(process) => Ok((child, process)),
            Err(error) => {
                // Without its word the shell ends; if it has, there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

/// The last lines of a log.
pub(crate) fn end_of(log: &Path, lines: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_read_behind_a_strange_name() {
        let stat = "77 (a) b (c) S 1 77 77 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4711 9 9 9";
        assert_eq!(state_and_start(stat), Some(('S', 4711)));
        assert_eq!(state_and_start("77 (a"), None);
    }

    #[test]
    fn a_number_in_use_again_is_not_the_process_that_had_it() {
        let pid = i32::try_from(std::process::id()).expect("small");
        let own = Process::of_pid(pid).expect("this one runs");
        assert_eq!(own.state(), State::Up);
        let earlier = Process {
            pid,
            start: own.start - 1,
        };
        assert_eq!(earlier.state(), State::Down);
        // Were it taken for ours, this test would end here.
        assert!(!earlier.signal(Signal::KILL).expect("nobody to refuse it"));
        assert!(earlier.gone_within(Duration::ZERO));
    }

    #[test]
    fn a_process_is_started_stopped_continued_and_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let launch = Launch {
            command: ["sh", "-c", "echo begun; sleep 100"]
                .map(str::to_owned)
                .into(),
            namespace: None,
            folder: folder.path(),
        };
        let (mut child, process) = launch.start().expect("a shell");
        assert_eq!(Process::read(&folder.path().join("pid")), Some(process));
        assert!(process.signal(Signal::STOP).expect("ours"));
        while process.state() != State::Stopped {
            std::thread::yield_now();
        }
        assert!(process.signal(Signal::CONT).expect("ours"));
        while end_of(&folder.path().join("log"), 1) != "begun" {
            std::thread::yield_now();
        }
        assert!(process.signal(Signal::KILL).expect("ours"));
        child.wait().expect("a child");
        assert!(process.gone_within(Duration::from_secs(10)));
    }

    #[test]
    fn a_process_that_could_not_be_written_down_does_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("pid")).expect("a folder");
        let launch = Launch {
            command: ["touch", "ran"].map(str::to_owned).into(),
            namespace: None,
            folder: folder.path(),
        };
        launch.start().expect_err("a folder is no file");
        assert!(!folder.path().join("ran").exists());
    }
}
