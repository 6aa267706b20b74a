//! One sentence for everything that can go wrong: what was refused, what to do, whether it may have
//! taken effect.

use super::Cx;
use super::submit::PrimaryAnswer;
use crate::base::{KeyId, Keyspace, Purpose};
use crate::catalogue;
use crate::lock::Rejection;
use crate::register;
use crate::request::{Code, Refusal};
use alloc::format;
use alloc::string::String;
use bytes::Bytes;

/// The generation that was to be resumed is past.
pub(super) fn generation_past() -> Refusal {
    let text = "the section cannot be resumed: this generation of it is gone, since the section \
                was left, ended, or resumed by somebody else; enter a new section";
    Refusal::definite(Code::NoLongerHolder, text)
}

/// A resume is agreed, and waits for the lease that the former generation was given.
pub(super) fn resume_waits() -> Refusal {
    let text = "the section is resumed, but the lease of its former generation has not run out \
                yet; repeat the request under the same number, here or at another node";
    Refusal::unknown(Code::Unavailable, text)
}

/// Nobody with a say was reached.
pub(super) fn unavailable(what: &str, unsure: bool) -> Refusal {
    if unsure {
        let text = format!(
            "{what} has no confirmation: no quorum answered in time; it may have taken effect; \
             repeat it, here or at another node"
        );
        Refusal::unknown(Code::Unavailable, text)
    } else {
        let text = format!(
            "{what} was not done: no quorum answered in time; repeat it, here or at another node"
        );
        Refusal::definite(Code::Unavailable, text)
    }
}

/// An eventual put has left for a replica, and nothing certain has come back.
pub(super) fn put_unsure() -> Refusal {
    let text = "the put has no confirmation: the replica that it was sent to has not answered in \
                time; it may have taken effect, or may still: get the key before you put it again";
    Refusal::unknown(Code::Unavailable, text)
}

/// A write of a register has left for replicas, and no quorum has confirmed it.
pub(super) fn write_unsure(key: &KeyId, cx: &Cx<'_>) -> Refusal {
    let text = format!(
        "the write has no confirmation: {}; it may have taken effect, or may still: read the key \
         before you write it again",
        no_quorum(key, cx)
    );
    Refusal::unknown(Code::Unavailable, text)
}

/// An operation outside sections was fenced by a sweep, which settles what unfinished writes have
/// left.
pub(super) fn swept_out(what: &str, may_have: bool) -> Refusal {
    let why = "unfinished writes of this key were settled while it was one of them";
    match may_have {
        true => unsure(what, Code::Busy, why),
        false => Refusal::definite(Code::Busy, format!("{what} was refused: {why}; try again")),
    }
}

/// The sent command may be done, and must be looked for before it is done again.
fn unsure(what: &str, code: Code, why: &str) -> Refusal {
    let text = format!(
        "{what} has no confirmation: {why}; it may have taken effect: read the key before you \
         write it again"
    );
    Refusal::unknown(code, text)
}

/// A write of a register is repeated, and nothing tells what came of it before (G19: done
/// twice, an old value would return).
pub(super) fn write_repeated(key: &KeyId, cx: &Cx<'_>) -> Refusal {
    if shortage(key, cx).is_some() {
        return write_unsure(key, cx);
    }
    let text = "the write has no confirmation: it was sent before, and is never done twice; it may \
                have taken effect, or may still: read the key before you write it again";
    Refusal::unknown(Code::Unavailable, text)
}

/// That too few members are in reach for any operation on the key; none: they are enough, as far as
/// this node knows.
pub(super) fn shortage(key: &KeyId, cx: &Cx<'_>) -> Option<String> {
    let reach = cx.topology.reach(key).filter(|reach| !reach.suffices())?;
    let keyspace = cx.topology.keyspace(key.keyspace)?;
    Some(format!(
        "{} of the key's {} members are in reach, and keyspace `{}` ({}) needs {}",
        reach.heard,
        reach.members,
        keyspace.name,
        keyspace.storage.in_words(),
        reach.needed
    ))
}

/// Why no quorum answered, as far as this node knows.
fn no_quorum(key: &KeyId, cx: &Cx<'_>) -> String {
    let known = cx
        .topology
        .reach(key)
        .zip(cx.topology.keyspace(key.keyspace));
    match (shortage(key, cx), known) {
        (Some(shortage), _) => shortage,
        (None, Some((reach, keyspace))) => format!(
            "not {} of the key's {} members have answered in time, as keyspace `{}` ({}) needs, \
             although {} are in reach",
            reach.needed,
            reach.members,
            keyspace.name,
            keyspace.storage.in_words(),
            reach.heard
        ),
        (None, None) => "no quorum answered in time".into(),
    }
}

/// What cannot be done as things are.
pub(super) fn stalled(what: &str, shortage: &str) -> String {
    format!("{what} cannot be done as things are: {shortage}; try again when more of them are up")
}

/// A register operation that no quorum answered.
fn unanswered_by(what: &str, unsure: bool, key: &KeyId, cx: &Cx<'_>) -> Refusal {
    let why = no_quorum(key, cx);
    if unsure {
        let text = format!(
            "{what} has no confirmation: {why}; it may have taken effect; repeat it, here or at \
             another node"
        );
        return Refusal::unknown(Code::Unavailable, text);
    }
    let text = format!("{what} was not done: {why}; repeat it, here or at another node");
    Refusal::definite(Code::Unavailable, text)
}

/// Nothing can be ordered in time: this node does not know the cluster's time.
pub(super) fn no_time(what: &str) -> Refusal {
    let text = format!(
        "{what} was not done: this node has not heard the cluster's time in time; repeat it, here \
         or at another node"
    );
    Refusal::definite(Code::NoTime, text)
}

/// It is done, and may not be told yet.
pub(super) fn not_passed(what: &str) -> Refusal {
    let text = format!(
        "{what} was done, and this node cannot tell whether its time has passed, since it has not \
         heard the cluster's time; repeat it under the same number, here or at another node"
    );
    Refusal::unknown(Code::NoTime, text)
}

/// The disk takes no writes.
pub(super) fn disk_full(what: &str, unsure: bool) -> Refusal {
    let text = format!("{what} was refused: too few disks take writes; free some space");
    Refusal {
        may_have_taken_effect: unsure,
        ..Refusal::definite(Code::DiskFull, text)
    }
}

/// A peer's answer that fits no question.
pub(super) fn nonsense(what: &str) -> Refusal {
    let text = format!("{what} got an answer that this version does not understand");
    Refusal::unknown(Code::Unavailable, text)
}

/// How a question to a primary ended without an answer.
pub(super) fn unanswered(what: &str, answer: &PrimaryAnswer) -> Refusal {
    match answer {
        PrimaryAnswer::Rejected { rejection, unsure } => match rejection {
            Rejection::Busy if *unsure => {
                let text = format!(
                    "{what} has no confirmation: the queue is full, and it may have taken effect; \
                     repeat it later"
                );
                Refusal::unknown(Code::Busy, text)
            }
            Rejection::Busy => {
                let text = format!("{what} was refused: the queue is full; try again later");
                Refusal::definite(Code::Busy, text)
            }
            Rejection::DiskFull => disk_full(what, *unsure),
            Rejection::NotReady => not_ready(what, *unsure),
            Rejection::NoRoom => no_room(what, *unsure),
            Rejection::ClockSkew => {
                let text = format!(
                    "{what} was refused: this node's time is further ahead of the primary's than \
                     any clocks may differ; look at their drift, and ask another node"
                );
                Refusal {
                    may_have_taken_effect: *unsure,
                    ..Refusal::definite(Code::ClockSkew, text)
                }
            }
            Rejection::NoSuchKeyspace => {
                let text = format!("{what} was refused: the keyspace was deleted");
                Refusal {
                    may_have_taken_effect: *unsure,
                    ..Refusal::definite(Code::NoSuchKeyspace, text)
                }
            }
            _ => unavailable(what, *unsure),
        },
        PrimaryAnswer::Silent {
            last: Some(Rejection::Leased(_)),
            ..
        } => {
            let text = format!(
                "{what} must wait for the holder's lease, which is not renewed any more; \
                 the section ends when it has run out"
            );
            Refusal::unknown(Code::Unavailable, text)
        }
        PrimaryAnswer::Silent {
            unsure,
            last: Some(rejection @ (Rejection::Busy | Rejection::DiskFull)),
        } => {
            let rejected = PrimaryAnswer::Rejected {
                rejection: rejection.clone(),
                unsure: *unsure,
            };
            unanswered(what, &rejected)
        }
        PrimaryAnswer::Silent { unsure, .. } => unavailable(what, *unsure),
        PrimaryAnswer::Outcome { .. }
        | PrimaryAnswer::States(_)
        | PrimaryAnswer::Queue(..)
        | PrimaryAnswer::Found(_)
        | PrimaryAnswer::Leased => nonsense(what),
    }
}

/// A change of members of whom one could take nothing.
fn no_room(what: &str, unsure: bool) -> Refusal {
    let why = "a node that is to have a seat has no room on its disk";
    let text = format!("{what} was refused: {why}; make room there first");
    Refusal {
        may_have_taken_effect: unsure,
        ..Refusal::definite(Code::BadRequest, text)
    }
}

/// A change of members that nobody brought about.
fn not_ready(what: &str, unsure: bool) -> Refusal {
    let why = "too few of the members that are to come are heard, or know the group's logs";
    match unsure {
        true => self::unsure(what, Code::Unavailable, why),
        false => {
            let text = format!("{what} was refused: {why}; start them, then ask again");
            Refusal::definite(Code::Unavailable, text)
        }
    }
}

/// How a register operation on `key` failed.
pub(super) fn failed(what: &str, outcome: &register::OpEnd, key: &KeyId, cx: &Cx<'_>) -> Refusal {
    match outcome {
        register::OpEnd::Past {
            may_have_taken_effect: true,
        } => Refusal::past_unsure(what),
        register::OpEnd::Past { .. } => Refusal::past(what),
        register::OpEnd::NotHolder {
            may_have_taken_effect,
        } => Refusal {
            may_have_taken_effect: *may_have_taken_effect,
            ..Refusal::not_holder(what)
        },
        register::OpEnd::StaleSequence => {
            let text = format!(
                "{what} was refused: the section has already made a write with a higher number; \
                 resume the section if its counter was lost"
            );
            Refusal::definite(Code::StaleSequence, text)
        }
        register::OpEnd::DiskFull {
            may_have_taken_effect,
        } => disk_full(what, *may_have_taken_effect),
        register::OpEnd::Busy {
            may_have_taken_effect,
        } => {
            let why = "too many writes of this key are unfinished (delta of its keyspace)";
            match may_have_taken_effect {
                true => unsure(what, Code::Busy, why),
                false => {
                    let text = format!("{what} was refused: {why}; try again");
                    Refusal::definite(Code::Busy, text)
                }
            }
        }
        register::OpEnd::Undecodable => {
            let text = format!(
                "{what} failed: more writes of this key are unfinished than its keyspace's delta \
                 allows, and the parts that are left give no value; write the key anew, or choose \
                 the storage `coded`"
            );
            Refusal::definite(Code::Undecodable, text)
        }
        register::OpEnd::Locked => {
            // A key without a holder is refused, too, while its value is not settled.
            let text = format!(
                "{what} was refused: the key is locked, or its last section was not left cleanly; \
                 write in a section, or put again after a read"
            );
            Refusal::definite(Code::Locked, text)
        }
        register::OpEnd::Unavailable {
            may_have_taken_effect,
        }
        | register::OpEnd::Moved {
            may_have_taken_effect,
            ..
        } => unanswered_by(what, *may_have_taken_effect, key, cx),
        _ => nonsense(what),
    }
}

/// The keyspace of a key that is fit for `purpose`. It may be longer than the cluster's settings
/// say by now.
pub(super) fn checked<'a>(
    key: &KeyId,
    purpose: Option<Purpose>,
    cx: &'a Cx<'_>,
) -> Result<&'a Keyspace, Refusal> {
    key_within(key, cx.env.limits.key_most, "as any key may have")?;
    let Some(keyspace) = cx.topology.keyspace(key.keyspace) else {
        return Err(catalogue::unknown(key.keyspace));
    };
    if purpose.is_some_and(|p| !p.is_like(keyspace.purpose)) {
        let text = match keyspace.purpose {
            Purpose::Sections => "keys of a section keyspace are not for this operation",
            Purpose::Registers => "keys of a register keyspace have no locks: use read and write",
            Purpose::Ledger { .. } => {
                "keys of a ledger keyspace are changed by transactions and read by snapshots"
            }
        };
        return Err(Refusal::definite(Code::WrongPurpose, text));
    }
    Ok(keyspace)
}

fn key_within(key: &KeyId, most: usize, why: &str) -> Result<(), Refusal> {
    let bytes = key.key.len();
    match (1..=most).contains(&bytes) {
        true => Ok(()),
        false => {
            let text = format!("a key has 1 to {most} bytes ({why}), this one {bytes}");
            Err(Refusal::definite(Code::TooLarge, text))
        }
    }
}

/// Refuses a key over the limit where it would come to be.
pub(super) fn key_fits(key: &KeyId, cx: &Cx<'_>) -> Result<(), Refusal> {
    key_within(key, cx.env.limits.key, "the setting key_bytes")
}

/// Refuses what is over the limits, and a value that no member of the smallest group could keep of
/// this keyspace and still read: the limit may have been raised since the keyspace was created.
/// What is longer by now may be deleted.
pub(super) fn write_fits(key: &KeyId, value: Option<&Bytes>, cx: &Cx<'_>) -> Result<(), Refusal> {
    let Some(value) = value else {
        return Ok(());
    };
    key_fits(key, cx)?;
    let (limits, bytes) = (cx.env.limits, value.len());
    let too_large = |text| Err(Refusal::definite(Code::TooLarge, text));
    if bytes > limits.value {
        return too_large(format!(
            "a value has at most {} bytes (the setting value_bytes), this one {bytes}",
            limits.value
        ));
    }
    let Some(keyspace) = cx.topology.keyspace(key.keyspace) else {
        return Err(catalogue::unknown(key.keyspace));
    };
    let least = usize::from(cx.topology.ring().directory.least());
    match limits.fits(bytes, &keyspace.storage, least) {
        Err(why) => too_large(format!(
            "a value of {bytes} bytes is too long for how keyspace {} is stored: {why}; write it \
             to a keyspace with a lower delta or f",
            keyspace.name
        )),
        Ok(()) => Ok(()),
    }
}

/// Refuses a request that names no keys of a section, or more than one may have.
pub(super) fn section_fits(keys: usize, cx: &Cx<'_>) -> Result<(), Refusal> {
    if keys == 0 {
        return Err(bad(
            "a section has at least one key, this request names none",
        ));
    }
    if keys > cx.env.limits.section_keys {
        let text = format!(
            "a section has at most {} keys (limits.section_keys), this one {keys}",
            cx.env.limits.section_keys
        );
        return Err(Refusal::definite(Code::TooLarge, text));
    }
    Ok(())
}

/// A request that makes no sense.
pub(super) fn bad(text: &str) -> Refusal {
    Refusal::definite(Code::BadRequest, text)
}
