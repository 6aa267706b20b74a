//! Total conversions between `fermata.v1` and the protocol's requests and replies.
//!
//! Requests come from anybody. [`request_from_proto`] yields a [`Request`] that keeps every promise
//! the protocol's types make (a sequence number that fits its tag, a generation that fits, keys
//! that are not empty) or a refusal with [`Code::BadRequest`]; nothing behind it checks the form
//! again. Limits that a node configures (length of keys and values, keys per section) are the
//! node's to enforce.
//!
//! Replies come from a server, which a client trusts little more: [`reply_from_proto`] is as
//! strict.

mod ledger;
mod reply;
mod request;
mod ring;
#[cfg(test)]
mod tests;

pub use reply::{reply_from_proto, reply_to_proto};
pub use request::{label_from, names_keyspace, operation_to_proto, request_from_proto};

use crate::{Names, Secret, v1};
use bytes::Bytes;
pub use fermata_protocol::base::tag::GENERATION_SPAN;
use fermata_protocol::base::{KeyId, Keyspace, LockRef, SessionId, Tag};
use fermata_protocol::request::{Held, Leaving, Mode};
use fermata_protocol::settings::Join;
use fermata_protocol::{Code, Refusal};

#[cfg(doc)]
use fermata_protocol::Request;

/// Generations are below this, so that every tag of a section fits 64 bits.
pub const GENERATIONS: u32 = 1 << 24;
/// Most keys one `Keys` request asks for.
pub const KEYS_MAX: u32 = 10_000;
/// What a `Keys` request without a limit asks for.
pub const KEYS_DEFAULT: u32 = 1_000;
/// Most refs that one request names; a node's own limit on keys per section is lower.
pub const REFS_MAX: usize = 4_096;

/// A refusal of something malformed.
fn format(number: u32) -> Result<u16, Refusal> {
    u16::try_from(number).map_err(|_| bad("there is no format above 65535"))
}

fn join_from(policy: i32) -> Result<Option<Join>, Refusal> {
    match v1::JoinPolicy::try_from(policy) {
        Ok(v1::JoinPolicy::Unspecified) => Ok(None),
        Ok(v1::JoinPolicy::Load) => Ok(Some(Join::Load)),
        Ok(v1::JoinPolicy::Latency) => Ok(Some(Join::Latency)),
        Ok(v1::JoinPolicy::Resilient) => Ok(Some(Join::Resilient)),
        Err(_) => Err(bad(format!("there is no join policy {policy}"))),
    }
}

fn join_to(join: Option<Join>) -> i32 {
    let policy = match join {
        None => v1::JoinPolicy::Unspecified,
        Some(Join::Load) => v1::JoinPolicy::Load,
        Some(Join::Latency) => v1::JoinPolicy::Latency,
        Some(Join::Resilient) => v1::JoinPolicy::Resilient,
    };
    policy.into()
}

fn bad(detail: impl Into<String>) -> Refusal {
    Refusal::definite(Code::BadRequest, detail)
}

/// How keyspace names are looked up: strictly by a server, adding by a client.
trait Lookup {
    fn key(&mut self, name: &str, key: Bytes) -> Result<KeyId, Refusal>;
}

struct Strict<'a>(&'a Names);
struct Adding<'a>(&'a mut Names);

impl Lookup for Strict<'_> {
    fn key(&mut self, name: &str, key: Bytes) -> Result<KeyId, Refusal> {
        Ok(KeyId {
            keyspace: keyspace(self.0, name)?,
            key,
        })
    }
}

impl Lookup for Adding<'_> {
    fn key(&mut self, name: &str, key: Bytes) -> Result<KeyId, Refusal> {
        Ok(KeyId {
            keyspace: self.0.add_keyspace(name),
            key,
        })
    }
}

/// The keyspace of that name.
///
/// # Errors
/// [`Code::BadRequest`] for what can be no name, [`Code::NoSuchKeyspace`] for an unknown one.
pub fn keyspace(names: &Names, name: &str) -> Result<fermata_protocol::base::KeyspaceId, Refusal> {
    if name.is_empty() {
        return Err(bad(
            "the request names no keyspace: name one, for example \"default\"",
        ));
    }
    names.keyspace(name).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        if !Keyspace::is_name(name) {
            return bad(format!(
                "{shown:?} can be no keyspace's name, which is 1 to 64 of a-z, 0-9, - and _: \
                 correct it"
            ));
        }
        Refusal::definite(
            Code::NoSuchKeyspace,
            format!("there is no keyspace `{shown}`: create it, or list those there are"),
        )
    })
}

fn key_from(lookup: &mut impl Lookup, key: Option<v1::Key>) -> Result<KeyId, Refusal> {
    let key = key.ok_or_else(|| bad("the request has no key"))?;
    if key.key.is_empty() {
        return Err(bad("the key is empty: a key has at least one byte"));
    }
    lookup.key(&key.keyspace, key.key)
}

fn key_to(names: &Names, key: &KeyId) -> v1::Key {
    v1::Key {
        keyspace: names.keyspace_name(key.keyspace),
        key: key.key.clone(),
    }
}

fn held_from(lookup: &mut impl Lookup, held: Option<v1::Held>) -> Result<Held, Refusal> {
    let held = held.ok_or_else(|| bad("the request names no held key"))?;
    if held.lock_ref == 0 {
        return Err(bad("lock_ref is 0: lock refs begin at 1"));
    }
    if held.generation >= GENERATIONS {
        return Err(bad(format!(
            "generation {} is not below 2^24",
            held.generation
        )));
    }
    Ok(Held {
        key: key_from(lookup, held.key)?,
        lock_ref: LockRef(held.lock_ref),
        generation: held.generation,
    })
}

fn held_to(names: &Names, held: &Held) -> v1::Held {
    v1::Held {
        key: Some(key_to(names, &held.key)),
        lock_ref: held.lock_ref.0,
        generation: held.generation,
    }
}

fn all_held(lookup: &mut impl Lookup, held: Vec<v1::Held>) -> Result<Vec<Held>, Refusal> {
    bounded(held.len())?;
    held.into_iter()
        .map(|h| held_from(lookup, Some(h)))
        .collect()
}

fn bounded(refs: usize) -> Result<(), Refusal> {
    if refs <= REFS_MAX {
        return Ok(());
    }
    let detail = format!("the request names {refs} keys, more than {REFS_MAX}: use fewer");
    Err(Refusal::definite(Code::TooLarge, detail))
}

fn leaving_from(
    lookup: &mut impl Lookup,
    leaving: Vec<v1::Leaving>,
) -> Result<Vec<(Held, Leaving)>, Refusal> {
    bounded(leaving.len())?;
    let one = |l: v1::Leaving| {
        let held = held_from(lookup, l.held)?;
        let how = if l.clean {
            Leaving::Clean(l.tag.map(tag_from).transpose()?)
        } else if l.tag.is_some() {
            return Err(bad(
                "a key left dirty has no tag: leave it clean, or without a tag",
            ));
        } else {
            Leaving::Dirty
        };
        Ok((held, how))
    };
    leaving.into_iter().map(one).collect()
}

fn leaving_to(names: &Names, leaving: &[(Held, Leaving)]) -> Vec<v1::Leaving> {
    let one = |(held, how): &(Held, Leaving)| v1::Leaving {
        held: Some(held_to(names, held)),
        clean: matches!(how, Leaving::Clean(_)),
        tag: match how {
            Leaving::Clean(tag) => tag.map(tag_to),
            Leaving::Dirty => None,
        },
    };
    leaving.iter().map(one).collect()
}

fn tag_from(tag: v1::Tag) -> Result<Tag, Refusal> {
    let writer = <[u8; 16]>::try_from(&tag.writer[..]);
    Ok(Tag {
        lock_ref: LockRef(tag.lock_ref),
        sequence: tag.sequence,
        writer: u128::from_be_bytes(writer.map_err(|_| bad("a tag's writer is 16 bytes"))?),
    })
}

fn tag_to(tag: Tag) -> v1::Tag {
    v1::Tag {
        lock_ref: tag.lock_ref.0,
        sequence: tag.sequence,
        writer: Bytes::copy_from_slice(&tag.writer.to_be_bytes()),
    }
}

/// The session that a secret in a message proves.
fn proved(secret: &[u8]) -> Result<SessionId, Refusal> {
    let secret = Secret::from_bytes(secret);
    let secret = secret.ok_or_else(|| {
        bad("a session's secret is 16 random bytes: draw them once, and send them each time")
    })?;
    Ok(secret.session())
}

fn secret_to(secret: Secret) -> Bytes {
    Bytes::copy_from_slice(&secret.to_bytes())
}

/// The session that a reply names.
fn session_from(session: &[u8]) -> Result<SessionId, Refusal> {
    <[u8; 16]>::try_from(session)
        .map(|bytes| SessionId(u128::from_be_bytes(bytes)))
        .map_err(|_| bad("a session's id is 16 bytes"))
}

fn session_to(session: SessionId) -> Bytes {
    Bytes::copy_from_slice(&session.0.to_be_bytes())
}

fn sequence_from(sequence: u64) -> Result<u64, Refusal> {
    if (1..GENERATION_SPAN).contains(&sequence) {
        Ok(sequence)
    } else {
        Err(bad(
            "a sequence number is at least 1 and below 2^40: count the section's writes",
        ))
    }
}

fn mode_to(mode: Mode) -> v1::Mode {
    match mode {
        Mode::Exclusive => v1::Mode::Exclusive,
        Mode::Shared => v1::Mode::Shared,
    }
}

fn mode_from(mode: i32) -> Result<Mode, Refusal> {
    match v1::Mode::try_from(mode) {
        Ok(v1::Mode::Unspecified | v1::Mode::Exclusive) => Ok(Mode::Exclusive),
        Ok(v1::Mode::Shared) => Ok(Mode::Shared),
        Err(_) => Err(bad(format!(
            "there is no mode {mode}: it is 1 (exclusive) or 2 (shared)"
        ))),
    }
}
