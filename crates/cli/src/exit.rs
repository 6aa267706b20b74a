//! How a command ends: exit statuses, and the one sentence that goes with a failure.
//!
//! The numbers are part of the interface (`docs/cli.md`). They follow `sysexits.h` where it has a
//! fitting one, stay clear of 126 and 127 (a shell's "cannot run", "not found") and of 128 and
//! above (ended by a signal), so that `fermata lock` can pass on the status of its command.

use std::fmt;

/// Why a command failed: its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The answer is no: the key has no value, or not what a condition asks for, or a check did not
    /// hold.
    No = 1,
    /// Wrong usage of the command line.
    Usage = 2,
    /// `fermata server`: the data directory is not this node's, or cannot be read.
    ServerData = 3,
    /// `fermata server`: an address cannot be listened on.
    ServerListen = 4,
    /// `fermata server`: the node ran and had to stop.
    ServerHalted = 5,
    /// The request was understood and refused; it changed nothing.
    Refused = 65,
    /// No node or no quorum answered in time; it changed nothing.
    Unavailable = 69,
    /// Something that should not happen.
    Internal = 70,
    /// The wait for a lock was over before it was granted.
    WaitOver = 73,
    /// A file, a socket or a process of this machine failed.
    Local = 74,
    /// The section was lost.
    SectionLost = 75,
    /// Nobody knows whether the operation took effect.
    OutcomeUnknown = 76,
    /// `fermata lock --confirm-leave`: the command did well, but the leave was not confirmed.
    NotLeft = 77,
    /// `fermata lock` could not run its command.
    CannotRun = 126,
    /// `fermata lock` did not find its command.
    NotFound = 127,
    /// `fermata demo` was interrupted, as a shell says it of SIGINT.
    Interrupted = 130,
}

/// The table of exit statuses, for `--help`.
pub(crate) const EXIT_STATUSES: &str = "\
Exit status:
    0  done
    1  the answer is no: the key has no value, or not what --if-... asks for; a check or demo
       found a violation
    2  wrong usage, or a configuration that makes no sense
    3  server: the data directory is not this node's, or cannot be read
    4  server: an address cannot be listened on
    5  server: the node had to stop (its disk failed)
   65  refused: the request itself is at fault (locked, too large, no such keyspace, ...)
   69  unavailable: no node or no quorum answered in time, or disks are full; nothing was changed;
       status: a node does not answer; bench load: nothing succeeded
   70  an internal error
   73  lock: the wait was over before the lock was granted
   74  a file, socket or process of this machine failed; dev, demo: a port is in use, a node died
   75  the section was lost
   76  outcome unknown: the operation may have taken effect
   77  lock --confirm-leave: COMMAND ended with 0, but the leave was not confirmed
  126  lock: COMMAND could not be run
  127  lock: COMMAND was not found
  130  demo: interrupted by SIGINT (Ctrl-C)
128+N  lock: COMMAND was ended by signal N
other  lock: the status of COMMAND";

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) exit: Exit,
    /// A stable code for programs: the server's where it comes from there.
    pub(crate) code: String,
    /// One sentence; empty says nothing (the exit status says all).
    pub(crate) sentence: String,
    /// Whether what was asked for may have been done, or may still be.
    pub(crate) may_have_taken_effect: bool,
}

impl Failure {
    /// A failure with a sentence.
    pub(crate) fn new(exit: Exit, sentence: impl Into<String>) -> Failure {
        let code = match exit {
            Exit::No => "no",
            Exit::Usage => "usage",
            Exit::ServerData => "server_data",
            Exit::ServerListen => "server_listen",
            Exit::ServerHalted => "server_halted",
            Exit::Refused => "refused",
            Exit::Unavailable => "unavailable",
            Exit::Internal => "internal",
            Exit::WaitOver => "wait_over",
            Exit::Local => "local",
            Exit::SectionLost => "no_longer_holder",
            Exit::OutcomeUnknown => "outcome_unknown",
            Exit::NotLeft => "not_left",
            Exit::CannotRun => "cannot_run",
            Exit::NotFound => "not_found",
            Exit::Interrupted => "interrupted",
        };
        Failure {
            exit,
            code: code.to_owned(),
            sentence: sentence.into(),
            may_have_taken_effect: exit == Exit::OutcomeUnknown,
        }
    }

    /// Wrong usage that the parser could not see.
    pub(crate) fn usage(sentence: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, sentence)
    }

    /// Something that should not happen.
    pub(crate) fn internal(error: impl fmt::Display) -> Failure {
        Failure::new(Exit::Internal, error.to_string())
    }

    /// The answer is no, and that says all.
    pub(crate) fn silent_no() -> Failure {
        Failure::new(Exit::No, "")
    }

    /// A local file, socket or process failed while doing `what`.
    pub(crate) fn local(what: impl fmt::Display, error: impl fmt::Display) -> Failure {
        Failure::new(Exit::Local, format!("{what}: {error}"))
    }
}

/// Tells a failure on standard error, unless its exit status says all.
pub(crate) fn report(failure: &Failure, json: bool) {
    if !failure.sentence.is_empty() {
        say("error", "fermata: ", failure, json);
    }
}

/// Tells of something that went wrong without changing the exit status.
pub(crate) fn warn(warning: &Failure, json: bool) {
    say("warning", "fermata: warning: ", warning, json);
}

/// Tells of what somebody may want to know; in JSON as an object of its own.
pub(crate) fn note(sentence: &str, json: bool) {
    let line = match json {
        true => serde_json::json!({ "note": { "sentence": sentence } }).to_string(),
        false => format!("fermata: note: {sentence}"),
    };
    // Where nobody listens any more there is nobody to tell.
    let _gone = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}

fn say(kind: &str, before: &str, failure: &Failure, json: bool) {
    use std::io::Write;
    let line = if json {
        let said = serde_json::json!({
            "code": failure.code,
            "sentence": failure.sentence,
            "may_have_taken_effect": failure.may_have_taken_effect,
        });
        serde_json::json!({ kind: said }).to_string()
    } else {
        // A sentence of somebody else may have line ends; a failure is one line.
        format!("{before}{}", failure.sentence.replace(['\n', '\r'], " "))
    };
    // Where nobody listens any more there is nobody to tell.
    let _gone = writeln!(std::io::stderr(), "{line}");
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// A sentence of the client library as this program writes its own, which follow `fermata:`: it
/// begins small and has no full stop.
pub(crate) fn in_style(sentence: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    let mut letters = sentence.chars();
    match (letters.next(), letters.next()) {
        // Not a name in capitals.
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => first
            .to_lowercase()
            .chain(sentence.chars().skip(1))
            .collect(),
        _ => sentence.to_owned(),
    }
}

impl From<fermata_client::Error> for Failure {
    fn from(error: fermata_client::Error) -> Failure {
        use fermata_protocol::Code;
        if let fermata_client::Error::Options(sentence) = error {
            return Failure::usage(sentence);
        }
        let exit = match error.code() {
            Code::NoLongerHolder | Code::NotHolder => Exit::SectionLost,
            Code::WaitOver => Exit::WaitOver,
            _ if error.may_have_taken_effect() => Exit::OutcomeUnknown,
            Code::Unavailable
            | Code::Busy
            | Code::DiskFull
            | Code::Forgotten
            | Code::NoTime
            | Code::ClockSkew => Exit::Unavailable,
            Code::Locked
            | Code::Undecodable
            | Code::StaleSequence
            | Code::ReadOnlySection
            | Code::TooLarge
            | Code::NoSuchKeyspace
            | Code::KeyspaceExists
            | Code::WrongPurpose
            | Code::Unauthenticated
            | Code::Forbidden
            | Code::Conflict
            | Code::OutOfBounds
            | Code::SnapshotGone
            | Code::BadRequest => Exit::Refused,
        };
        Failure {
            exit,
            code: error.code().name().to_owned(),
            sentence: in_style(&error.to_string()),
            may_have_taken_effect: error.may_have_taken_effect(),
        }
    }
}
