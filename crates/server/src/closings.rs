//! Which connections this node has refused or ended, by face and cause: for its status.
//!
//! Metrics have the counts over time, and the log each case or some of them. The state of a node
//! has to show at once that peers fall silent or clients find no place, since when not any more,
//! and who it was.

use crate::clock;
use fermata_protocol::base::Micros;
use fermata_protocol::request::ClosedStatus;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The face of connections between nodes.
pub(crate) const PEER: &str = "peer";

/// Why a connection was refused or ended by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// A peer: nothing was heard for a lease.
    Silent,
    /// A peer: it has taken nothing of what was being sent for a lease.
    Stalled,
    /// At the peer port: it did not say in time who it is.
    Late,
    /// At the peer port: others needed its place.
    Crowded,
    /// A peer: its incarnation has connected again.
    Replaced,
    /// At the peer port: what it said is not of this cluster or protocol.
    Foreign,
    /// A client: all places are taken, and everybody has asked for something.
    Full,
    /// A client: its address has as many connections as it may.
    Address,
    /// A client: its descriptor is of those that the node keeps for itself.
    Descriptors,
    /// A client: it has never asked for anything.
    Mute,
    /// A client: it has asked for nothing any more.
    Idle,
    /// A client: it was quiet, and another needed its place.
    Displaced,
    /// A client: its message did not arrive in time.
    Body,
    /// A client: it speaks no TLS, or shows no certificate that counts here.
    Handshake,
}

impl Cause {
    /// A stable word, also in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cause::Silent => "silent",
            Cause::Stalled => "stalled",
            Cause::Late => "late",
            Cause::Crowded => "crowded",
            Cause::Replaced => "replaced",
            Cause::Foreign => "foreign",
            Cause::Full => "full",
            Cause::Address => "address",
            Cause::Descriptors => "descriptors",
            Cause::Mute => "mute",
            Cause::Idle => "idle",
            Cause::Displaced => "displaced",
            Cause::Body => "body",
            Cause::Handshake => "handshake",
        }
    }

    /// The same for people.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Cause::Silent => "nothing was heard for a lease",
            Cause::Stalled => "it took nothing of what was sent for a lease",
            Cause::Late => "it did not say in time who it is",
            Cause::Crowded => "others needed its place",
            Cause::Replaced => "its node has connected again",
            Cause::Foreign => "what it said is not of this cluster or version",
            Cause::Full => "all places for connections are taken (clients.connections)",
            Cause::Address => {
                "this address has as many connections as it may (clients.connections_per_address)"
            }
            Cause::Descriptors => "too many files are open in this process (ulimit -n)",
            Cause::Mute => "it never asked for anything (clients.head_ms)",
            Cause::Idle => "it asked for nothing any more (clients.idle_ms)",
            Cause::Displaced => "it was quiet, and another needed its place",
            Cause::Body => "a message did not arrive in time (clients.body_ms)",
            Cause::Handshake => "it spoke no TLS, or showed no certificate that counts here",
        }
    }
}

/// All that were closed since the node started.
#[derive(Default)]
pub(crate) struct Closings(Mutex<BTreeMap<(&'static str, Cause), Closed>>);

/// Those of one face and cause.
struct Closed {
    count: u64,
    /// When the last one was.
    last: Micros,
    /// Who was at its other end.
    who: String,
}

impl Closings {
    /// One more. `who` is empty where that is not known.
    pub(crate) fn count(&self, face: &'static str, cause: Cause, who: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry((face, cause)).or_insert(Closed {
            count: 0,
            last: 0,
            who: String::new(),
        });
        *of = Closed {
            count: of.count + 1,
            last: clock::monotonic(),
            who,
        };
    }

    /// For the status.
    pub(crate) fn told(&self) -> Box<[ClosedStatus]> {
        let now = clock::monotonic();
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |((face, cause), of): (&(&str, Cause), &Closed)| ClosedStatus {
            face: (*face).to_owned(),
            cause: cause.name().to_owned(),
            detail: cause.sentence().to_owned(),
            count: of.count,
            last: now.saturating_sub(of.last),
            who: of.who.clone(),
        };
        all.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_told_with_the_count() {
        let closings = Closings::default();
        closings.count(PEER, Cause::Silent, "node 2".into());
        closings.count("rest", Cause::Full, String::new());
        closings.count(PEER, Cause::Silent, "node 3".into());
        let told = closings.told();
        let told: Vec<_> = told
            .iter()
            .map(|c| (c.face.as_str(), c.cause.as_str(), c.count, c.who.as_str()))
            .collect();
        assert_eq!(
            told,
            [("peer", "silent", 2, "node 3"), ("rest", "full", 1, "")]
        );
    }
}
