//! Versions of keys as records, and reading them at a time.
//!
//! ```text
//! 2 <keyspace 4> <key, escaped> 0 1 <not time 8> <not count 2>   1 value, or 0: a delete
//! 3 <session 16> <number 8>                                      what came of that command
//! ```
//!
//! Numbers are big-endian. In a key a zero is followed by 255, so that the order of names is the
//! order of keys, and of each key the newest version comes first: reading at a time is one scan
//! forward to the first record at or below it.

use super::reader::Reader;
use super::{Found, Part, Span, Versioned};
use crate::base::{KeyId, KeyspaceId, SessionId, Timestamp};
use crate::io::Void;
use crate::wire::record;
use alloc::vec::Vec;
use bytes::Bytes;

const VERSIONS: u8 = record::FIRST_PART;
const OUTCOMES: u8 = record::FIRST_PART + 1;

fn begin(keyspace: KeyspaceId, key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len() + 20);
    name.push(VERSIONS);
    name.extend_from_slice(&keyspace.0.to_be_bytes());
    for byte in key {
        name.push(*byte);
        if *byte == 0 {
            name.push(u8::MAX);
        }
    }
    name
}

/// The names of all versions of a key that are not newer than this, and of one that is as old.
fn from_newest(key: &KeyId, at: Timestamp) -> (Vec<u8>, Vec<u8>) {
    let mut from = begin(key.keyspace, &key.key);
    from.extend_from_slice(&[0, 1]);
    let mut to = from.clone();
    *to.last_mut().expect("two bytes were put") = 2;
    from.extend_from_slice(&(!at.micros).to_be_bytes());
    from.extend_from_slice(&(!at.logical).to_be_bytes());
    (from, to)
}

/// The record of a version.
pub(super) fn name(key: &KeyId, at: Timestamp) -> Bytes {
    from_newest(key, at).0.into()
}

/// What a version's record has; none: a delete.
pub(super) fn content(value: Option<&Bytes>) -> Bytes {
    let Some(value) = value else {
        return Bytes::from_static(&[0]);
    };
    let mut content = Vec::with_capacity(1 + value.len());
    content.push(1);
    content.extend_from_slice(value);
    content.into()
}

/// The record of what came of a command.
pub(crate) fn outcome_name(session: SessionId, number: u64) -> Bytes {
    let mut name = Vec::with_capacity(25);
    name.push(OUTCOMES);
    name.extend_from_slice(&session.0.to_be_bytes());
    name.extend_from_slice(&number.to_be_bytes());
    name.into()
}

/// The key and the timestamp in the name of a version.
fn parse(name: &Bytes) -> Result<(Bytes, Timestamp), Void> {
    let (mut key, mut rest) = (Vec::new(), name.get(5..).ok_or(Void)?);
    loop {
        match rest {
            [0, u8::MAX, after @ ..] => {
                key.push(0);
                rest = after;
            }
            [0, 1, time @ ..] => {
                let micros = time.get(..8).and_then(|b| b.try_into().ok()).ok_or(Void)?;
                let logical = time.get(8..).and_then(|b| b.try_into().ok()).ok_or(Void)?;
                let at = Timestamp {
                    micros: !u64::from_be_bytes(micros),
                    logical: !u16::from_be_bytes(logical),
                };
                return Ok((key.into(), at));
            }
            [byte, after @ ..] if *byte != 0 => {
                key.push(*byte);
                rest = after;
            }
            _ => return Err(Void),
        }
    }
}

/// The key and the timestamp of a version, by the name of its record: for checkers. None: it is no
/// version's.
pub fn version_of(name: &Bytes) -> Option<(KeyId, Timestamp)> {
    let keyspace: [u8; 4] = name.get(1..5)?.try_into().ok()?;
    if name.first() != Some(&VERSIONS) {
        return None;
    }
    let (key, at) = parse(name).ok()?;
    let keyspace = KeyspaceId(u32::from_be_bytes(keyspace));
    Some((KeyId { keyspace, key }, at))
}

fn value_of(content: &Bytes) -> Result<Option<Bytes>, Void> {
    match content.first() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(content.slice(1..))),
        _ => Err(Void),
    }
}

/// A version: when, and the value; no value: a delete.
pub(super) type Version = (Timestamp, Option<Bytes>);

/// The newest version of a key that is not above this.
pub(super) fn at(
    key: &KeyId,
    when: Timestamp,
    reader: &Reader<'_>,
) -> Result<Option<Version>, Void> {
    let (from, to) = from_newest(key, when);
    let Some((name, content)) = reader.first(&from, &to)? else {
        return Ok(None);
    };
    Ok(Some((parse(&name)?.1, value_of(&content)?)))
}

/// Of each key of a range its newest version that is not above `when`, key by key, until `take`
/// has enough. It is told of versions above as well.
pub(super) fn walk(
    span: &Span,
    when: Timestamp,
    reader: &Reader<'_>,
    mut take: impl FnMut(&Bytes, Seen) -> bool,
) -> Result<(), Void> {
    let mut from = Bytes::from(begin(span.keyspace, &span.from));
    let to = match &span.to {
        Some(to) => begin(span.keyspace, to),
        None => match span.keyspace.0.checked_add(1) {
            Some(next) => begin(KeyspaceId(next), &[]),
            None => Vec::from([VERSIONS + 1]),
        },
    };
    let mut last: Option<Bytes> = None;
    loop {
        let (records, next) = reader.next(&from, &to)?;
        for (name, content) in records {
            let (key, at) = parse(&name)?;
            if last.as_ref() == Some(&key) {
                continue;
            }
            let seen = match at > when {
                true => Seen::Above,
                false => {
                    last = Some(key.clone());
                    Seen::Is((at, value_of(&content)?))
                }
            };
            if !take(&key, seen) {
                return Ok(());
            }
        }
        let Some(next) = next else {
            return Ok(());
        };
        // Older versions of the last key are passed over at once.
        let passed = last.as_ref().map(|key| {
            let key = key.clone();
            let keyspace = span.keyspace;
            Bytes::from(from_newest(&KeyId { keyspace, key }, Timestamp::MAX).1)
        });
        from = passed.map_or(next.clone(), |passed| passed.max(next));
    }
}

/// What a walk over a range meets.
pub(super) enum Seen {
    /// A version that is too new.
    Above,
    /// The newest one that is not.
    Is(Version),
}

/// The first keys of a range as they were at a time: so many at most, and values of so many bytes
/// in all, but one. With whether there are newer versions up to the last of them.
pub(super) fn range(
    span: &Span,
    limit: u32,
    when: Timestamp,
    room: &mut usize,
    reader: &Reader<'_>,
) -> Result<(Found, bool), Void> {
    let (mut found, mut above) = (Found::default(), false);
    walk(span, when, reader, |key, seen| {
        above |= matches!(seen, Seen::Above);
        let Seen::Is((version, Some(value))) = seen else {
            return true;
        };
        let bytes = size_of::<(Bytes, Versioned)>() + key.len() + value.len();
        let fits = bytes <= *room || found.keys.is_empty();
        if found.keys.len() >= limit as usize || !fits {
            found.more = true;
            return false;
        }
        *room = room.saturating_sub(bytes);
        found.keys.push((key.clone(), Versioned { value, version }));
        true
    })?;
    Ok((found, above))
}

/// These parts as they were at a time, one after the other as long as they fit so many bytes: the
/// first one does, at least in part.
pub(crate) fn answer(
    parts: &[Part],
    when: Timestamp,
    mut room: usize,
    reader: &Reader<'_>,
) -> Result<Vec<Found>, Void> {
    let mut answers = Vec::new();
    for part in parts {
        if room == 0 && !answers.is_empty() {
            break;
        }
        let found = match part {
            Part::Key(key) => {
                let version = at(key, when, reader)?;
                let value = version.and_then(|(version, value)| {
                    let value = value?;
                    Some((key.key.clone(), Versioned { value, version }))
                });
                let keys: Vec<_> = value.into_iter().collect();
                let bytes: usize = keys.iter().map(|(_, v)| v.value.len()).sum();
                if bytes > room && !answers.is_empty() {
                    break;
                }
                room = room.saturating_sub(bytes + size_of::<Found>());
                Found { keys, more: false }
            }
            Part::Range { span, limit } => range(span, *limit, when, &mut room, reader)?.0,
        };
        let more = found.more;
        answers.push(found);
        if more && room == 0 {
            break;
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::collections::BTreeMap;

    #[test]
    fn the_order_of_names_is_the_order_of_keys_and_of_time_backwards() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"ab"];
        let times = [Timestamp::MAX, Timestamp::of(7).next(), Timestamp::of(7)];
        let mut names = Vec::new();
        for key in keys {
            for at in times {
                let key = KeyId {
                    keyspace: KeyspaceId(3),
                    key: Bytes::copy_from_slice(key),
                };
                let name = name(&key, at);
                assert_eq!(parse(&name), Ok((key.key.clone(), at)));
                names.push(name);
            }
        }
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(names, sorted);
    }

    #[test]
    fn what_no_version_is_named_is_void() {
        for name in [
            &b"\x02\0\0\0\x03a"[..],
            b"\x02",
            b"\x02\0\0\0\x03a\0\x01\0\0",
        ] {
            assert_eq!(parse(&Bytes::copy_from_slice(name)), Err(Void));
        }
        assert_eq!(value_of(&Bytes::from_static(b"")), Err(Void));
        let parsed: BTreeMap<u8, _> = [(0, None), (1, Some(Bytes::from_static(b"x")))].into();
        assert_eq!(value_of(&content(None)), Ok(parsed[&0].clone()));
        assert_eq!(value_of(&vec![1, b'x'].into()), Ok(parsed[&1].clone()));
    }
}
