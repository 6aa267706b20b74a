//! Why connections between nodes end, and how long each end of one bears silence.
//!
//! A kernel takes minutes to give up a connection whose packets are lost, and after a cut waits
//! longer and longer before it tries again. So the ends judge for themselves: the connecting end
//! sends at least an empty frame per beat, the accepting end a byte per beat in which it got on
//! with reading, and whoever gets nothing for a lease ends the connection. A dead process, a cut in
//! either direction and a peer that has stopped to read all show in that one way.

use crate::closings::Cause;
use crate::metrics::Metrics;
use fermata_protocol::base::Timing;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::net::TcpStream;

/// What the accepting end says: it has read on.
pub(super) const BEAT: u8 = 1;
/// No attempt to connect is given up earlier: a kernel sends a lost first packet again after this.
const CONNECT_MIN: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The other side, or the system underneath; also by what the other side said wrong.
    Broken(Error),
    /// The other side is none that this one talks to, and was told so.
    Refused(&'static str),
    /// Nothing was heard for a lease.
    Silent,
    /// The same, while it took nothing of what was being sent.
    Stalled,
    /// It did not say in time who it is.
    Late,
    /// There were too many that had not said who they are, or too many in one name.
    Crowded,
    /// The same incarnation has connected again.
    Replaced,
}

impl Ended {
    /// Why this end has given it up; none: the other side did, or the system.
    pub(super) fn cause(&self) -> Option<Cause> {
        match self {
            Ended::Refused(_) => Some(Cause::Foreign),
            Ended::Broken(error) if error.kind() == ErrorKind::InvalidData => Some(Cause::Foreign),
            Ended::Broken(_) => None,
            Ended::Silent => Some(Cause::Silent),
            Ended::Stalled => Some(Cause::Stalled),
            Ended::Late => Some(Cause::Late),
            Ended::Crowded => Some(Cause::Crowded),
            Ended::Replaced => Some(Cause::Replaced),
        }
    }

    /// Counts what this end has given up of a connection with `who`, and leaves nothing of it to
    /// the kernel, which would go on sending what nobody waits for.
    pub(super) fn settle(&self, stream: Option<&TcpStream>, who: String, metrics: &Metrics) {
        if let Some(cause) = self.cause() {
            metrics.connection_ended(cause, who);
            if matches!(self, Ended::Refused(_)) {
                return; // what it was told is on its way
            }
            // Without it the kernel needs memory for longer, and nothing else is different.
            let _ = stream.map(TcpStream::set_zero_linger);
        }
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Broken(error)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.cause()) {
            (Ended::Broken(error), _) => error.fmt(f),
            (Ended::Refused(why), _) => f.write_str(why),
            (_, cause) => f.write_str(cause.map_or("", Cause::sentence)),
        }
    }
}

/// What an end of a connection does in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Something is sent at least this often.
    pub(super) beat: Duration,
    /// So many beats without a word are silence.
    beats: u32,
    lease: Duration,
}

impl Patience {
    pub(super) fn new(timing: &Timing) -> Patience {
        Patience {
            beat: Duration::from_micros(timing.beat),
            beats: timing.lease.div_ceil(timing.beat.max(1)) as u32,
            lease: Duration::from_micros(timing.lease),
        }
    }

    /// For an attempt to connect and to be greeted.
    pub(super) fn to_connect(self) -> Duration {
        self.lease.max(CONNECT_MIN)
    }

    /// How long a node asks again whose peer hears another process under its identity: of a former
    /// run of its own nothing is left by then.
    pub(super) fn with_a_twin(self) -> Duration {
        3 * self.to_connect()
    }

    pub(super) fn silence(self) -> Silence {
        let beats = self.beats;
        Silence { beats, quiet: 0 }
    }
}

/// How long the other end has said nothing, in beats that this end has waited through: a process
/// that was itself stopped for a while does not take its peers for silent.
pub(super) struct Silence {
    beats: u32,
    quiet: u32,
}

impl Silence {
    pub(super) fn broken(&mut self) {
        self.quiet = 0;
    }

    /// A beat without a word.
    ///
    /// # Errors
    /// [`Ended::Silent`]: it was one too many.
    pub(super) fn goes_on(&mut self) -> Result<(), Ended> {
        self.quiet += 1;
        if self.quiet < self.beats {
            Ok(())
        } else {
            Err(Ended::Silent)
        }
    }
}
