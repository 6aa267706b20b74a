//! Why something is not done, in a stable code and one sentence.

use crate::base::{LockRef, Micros};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Why a request was refused or failed: the stable codes of every face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// The lock ref is past: left, expired, or released by force.
    NoLongerHolder,
    /// The lock ref waits, is another session's, or was never given.
    NotHolder,
    /// No quorum, or no primary, within the time allowed.
    Unavailable,
    /// The wait for a lock was over before it was granted.
    WaitOver,
    /// An eventual put on a key that somebody holds or waits for.
    Locked,
    /// A critical write numbered below one that the section has already made (F16: its client
    /// has restarted without its counter).
    StaleSequence,
    /// A shared section may not write.
    ReadOnlySection,
    /// Over a limit that the sentence names.
    TooLarge,
    /// The queue or the node is full; try again later.
    Busy,
    /// The node's disk is full: reads go on.
    DiskFull,
    /// No such keyspace.
    NoSuchKeyspace,
    /// There is a keyspace of that name.
    KeyspaceExists,
    /// The keyspace's keys are not for this operation.
    WrongPurpose,
    /// Malformed.
    BadRequest,
    /// A coded value of which too few parts are left: more writes were unfinished than its
    /// keyspace's storage policy bears.
    Undecodable,
    /// The session's request was answered long ago and its answer forgotten.
    Forgotten,
    /// Nobody knows who asks: no credentials, or such as are not valid.
    Unauthenticated,
    /// Who asks may not do this.
    Forbidden,
    /// What the change was made of has changed since it was read.
    Conflict,
    /// A number would leave its bounds.
    OutOfBounds,
    /// Nobody who was asked knows the cluster's time.
    NoTime,
    /// Two clocks contradict each other.
    ClockSkew,
    /// What was there at that moment is not kept any more.
    SnapshotGone,
}

impl Code {
    /// The code as every face spells it.
    pub fn name(self) -> &'static str {
        match self {
            Code::NoLongerHolder => "no_longer_holder",
            Code::NotHolder => "not_holder",
            Code::Unavailable => "unavailable",
            Code::WaitOver => "wait_over",
            Code::Locked => "locked",
            Code::StaleSequence => "stale_sequence",
            Code::ReadOnlySection => "read_only_section",
            Code::TooLarge => "too_large",
            Code::Busy => "busy",
            Code::DiskFull => "disk_full",
            Code::NoSuchKeyspace => "no_such_keyspace",
            Code::KeyspaceExists => "keyspace_exists",
            Code::WrongPurpose => "wrong_purpose",
            Code::BadRequest => "bad_request",
            Code::Undecodable => "undecodable",
            Code::Forgotten => "forgotten",
            Code::Unauthenticated => "unauthenticated",
            Code::Forbidden => "forbidden",
            Code::Conflict => "conflict",
            Code::OutOfBounds => "out_of_bounds",
            Code::NoTime => "no_time",
            Code::ClockSkew => "clock_skew",
            Code::SnapshotGone => "snapshot_gone",
        }
    }
}

/// A refusal or a failure. `may_have_taken_effect` is the definite / unknown distinction: false
/// promises that the request changed nothing and never will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// Whether the operation may have taken effect, or may still.
    pub may_have_taken_effect: bool,
    /// One sentence: what was refused and what to do.
    pub detail: String,
}

impl Refusal {
    /// A refusal that certainly changed nothing.
    pub fn definite(code: Code, detail: impl Into<String>) -> Refusal {
        Refusal {
            code,
            may_have_taken_effect: false,
            detail: detail.into(),
        }
    }

    /// A failure after which the outcome is unknown.
    pub fn unknown(code: Code, detail: impl Into<String>) -> Refusal {
        Refusal {
            code,
            may_have_taken_effect: true,
            detail: detail.into(),
        }
    }

    /// The ref is past, and this operation certainly changed nothing.
    pub fn past(what: &str) -> Refusal {
        let text = format!("{what} was refused: the lock ref is past; enter a new section");
        Refusal::definite(Code::NoLongerHolder, text)
    }

    /// The ref is past, and the operation may have been adopted by the next holder's synch.
    pub fn past_unsure(what: &str) -> Refusal {
        let text = format!(
            "{what} has no confirmation: the lock ref is past, and the next holder may have \
             adopted it; enter a new section and read"
        );
        Refusal::unknown(Code::NoLongerHolder, text)
    }

    /// The ref waits.
    pub fn not_holder(what: &str) -> Refusal {
        let text =
            format!("{what} was refused: the lock ref does not hold the key yet; wait for it");
        Refusal::definite(Code::NotHolder, text)
    }

    /// Somebody acts, by its lock ref, in a section of another session (G49): nothing is changed.
    pub fn anothers(what: &str) -> Refusal {
        let text = format!(
            "{what} was refused: the section is of another session; act with the secret of the \
             session that entered or resumed it last, or enter a section of your own"
        );
        Refusal::definite(Code::NotHolder, text)
    }

    /// The wait for a lock is over; `ahead` refs are before it, `head` is the first of them and how
    /// long ago it was enqueued, where that is known.
    pub fn wait_over(ahead: u32, head: Option<(LockRef, Micros)>) -> Refusal {
        let line = match (head, ahead) {
            (Some((head, since)), 1..) => format!(
                "the key is held by lock ref {}, enqueued {} s ago, and {} before this request",
                head.0,
                since / 1_000_000,
                match ahead - 1 {
                    1 => "1 more waits".to_owned(),
                    more => format!("{more} more wait"),
                }
            ),
            (None, 1..) => before_this(ahead),
            (_, 0) => "it is the first in the queue, but the key's value is not settled yet".into(),
        };
        let text = format!(
            "the lock was not granted within the time to wait: {line}; the place in the queue was \
             given up, try again"
        );
        Refusal::definite(Code::WaitOver, text)
    }
}

/// Who is before a request in a key's queue: `ahead` refs, 1 or more.
pub(crate) fn before_this(ahead: u32) -> String {
    match ahead {
        1 => "one lock ref holds the key, or waits for it, before this request".to_owned(),
        _ => format!("{ahead} lock refs hold the key, or wait for it, before this request"),
    }
}
