//! The signals that ask a program that runs on to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// SIGINT (Ctrl-C) and SIGTERM. From [`Stop::catch`] on they no longer end this process by
/// themselves.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Begins to catch them. Within a runtime.
    pub(crate) fn catch() -> Result<Stop, Failure> {
        Ok(Stop {
            interrupt: caught(SignalKind::interrupt())?,
            terminate: caught(SignalKind::terminate())?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A signal that is caught from now on.
pub(crate) fn caught(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(cannot_catch)
}

/// Why signals cannot be caught.
pub(crate) fn cannot_catch(error: io::Error) -> Failure {
    Failure::local("catching signals", error)
}
