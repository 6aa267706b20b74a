//! How a value becomes what each member keeps, and the value again: the only place that knows the
//! codes. Everything else in this room handles opaque [`Content`] and names a value by its tag and
//! digest.
//!
//! A value is kept whole where the policy says so or where it is short; a whole copy gives the
//! value back alone. Otherwise each seat of the view keeps one part of a systematic [n, l] code
//! (CassandrEAS §III), and any l parts of one value give it back. Both kinds may lie side by side
//! in one keyspace, since each part says how it was made (F8i).
//!
//! A part carries a sum over itself, its key and its tag. A part whose bytes have changed, that
//! belongs to another key, tag or seat, or that says something else about its value than when it
//! was made, is not sound, and voids the whole answer of who sent it (F8c).

use super::message::{Coding, Content, Fragment};
use crate::base::{KeyId, Seat, Shape, StoragePolicy, Tag};
use alloc::vec::Vec;
use bytes::Bytes;
use fermata_codec::{Code, Mds, checksum};

/// A digest of a whole value. It tells damage and mixed-up values apart; it is no defence against
/// one who wants a collision.
pub fn digest(value: &[u8]) -> u64 {
    checksum(0, value)
}

/// Bytes that a seat keeps of a value of `length` bytes.
pub fn part_length(policy: StoragePolicy, shape: Shape, length: u64, seat: Seat) -> u64 {
    let terms = policy.terms();
    let whole = terms.is_none_or(|terms| length < u64::from(terms.whole_below));
    match whole {
        true => length,
        false => code(shape.members, shape.parts).fragment_length(length, seat.0.into()),
    }
}

/// What every seat keeps of `value`, by seat; none is a delete. `tag` is the write's.
pub fn encode(
    policy: StoragePolicy,
    shape: Shape,
    key: &KeyId,
    tag: Tag,
    value: Option<&Bytes>,
) -> Vec<Content> {
    let seats = (0..shape.members as u8).map(Seat);
    let Some(value) = value else {
        return seats.map(|_| Content::Tombstone).collect();
    };
    let whole = policy
        .terms()
        .is_none_or(|terms| value.len() < terms.whole_below as usize);
    if whole || shape.parts == 1 {
        let copy = whole_copy(key, tag, value);
        return seats.map(|seat| reseated(key, tag, &copy, seat)).collect();
    }
    let coding = Coding::Parts {
        members: shape.members as u8,
        needed: shape.parts as u8,
    };
    let (length, digest) = (value.len() as u64, digest(value));
    let part = |(seat, bytes): (Seat, Bytes)| {
        let fragment = Fragment {
            coding,
            seat,
            length,
            digest,
            sum: 0,
            bytes,
        };
        Content::Value(summed(key, tag, fragment))
    };
    let parts = code(shape.members, shape.parts).encode_all(value);
    seats.zip(parts).map(part).collect()
}

/// A whole copy of `value`, for the first seat. Eventual values are always kept so, under the zero
/// tag: each is durable at one replica alone.
pub fn whole_copy(key: &KeyId, tag: Tag, value: &Bytes) -> Content {
    let fragment = Fragment {
        coding: Coding::Whole,
        seat: Seat(0),
        length: value.len() as u64,
        digest: digest(value),
        sum: 0,
        bytes: value.clone(),
    };
    Content::Value(summed(key, tag, fragment))
}

/// A whole copy made for another seat. A part of a code stays what it is: it is of its own seat.
pub fn reseated(key: &KeyId, tag: Tag, content: &Content, seat: Seat) -> Content {
    match content {
        Content::Value(fragment) if fragment.coding == Coding::Whole => {
            let fragment = Fragment {
                seat,
                ..fragment.clone()
            };
            Content::Value(summed(key, tag, fragment))
        }
        other => other.clone(),
    }
}

fn code(members: usize, parts: usize) -> Code {
    Code::new(members, parts).expect("a shape's code exists")
}

fn summed(key: &KeyId, tag: Tag, fragment: Fragment) -> Fragment {
    let sum = sum(key, tag, &fragment);
    Fragment { sum, ..fragment }
}

/// Binds a part's bytes to everything that is said about them.
fn sum(key: &KeyId, tag: Tag, fragment: &Fragment) -> u64 {
    let bytes = match fragment.coding {
        Coding::Whole => fragment.digest,
        Coding::Parts { .. } => digest(&fragment.bytes),
    };
    let (members, needed) = match fragment.coding {
        Coding::Whole => (0, 0),
        Coding::Parts { members, needed } => (members, needed),
    };
    let mut said = [0; 55];
    said[..8].copy_from_slice(&fragment.digest.to_le_bytes());
    said[8..16].copy_from_slice(&fragment.length.to_le_bytes());
    said[16..24].copy_from_slice(&tag.lock_ref.0.to_le_bytes());
    said[24..32].copy_from_slice(&tag.sequence.to_le_bytes());
    said[32..48].copy_from_slice(&tag.writer.to_le_bytes());
    said[48..52].copy_from_slice(&key.keyspace.0.to_le_bytes());
    said[52..].copy_from_slice(&[members, needed, fragment.seat.0]);
    checksum(checksum(bytes, &said), &key.key)
}

/// The value that `parts`, all of one tag, are made from: none where it is absent or deleted.
///
/// # Errors
/// [`Undecodable`] where the parts are too few, or do not give the value that they name.
pub fn decode(parts: &[&Content]) -> Result<Option<Bytes>, Undecodable> {
    let mut tried: Vec<u64> = Vec::new();
    for part in parts {
        let fragment = match part {
            Content::Value(fragment) => fragment,
            Content::Absent | Content::Tombstone => return Ok(None),
            Content::Undecodable => continue,
        };
        // A tag names one value. Should parts of two be here, either is decoded, never a mixture.
        if !tried.contains(&fragment.digest) {
            tried.push(fragment.digest);
            if let Ok(value) = decode_like(fragment, parts) {
                return Ok(Some(value));
            }
        }
    }
    Err(Undecodable)
}

/// The value that `first` is a part of.
fn decode_like(first: &Fragment, parts: &[&Content]) -> Result<Bytes, Undecodable> {
    let Coding::Parts { members, needed } = first.coding else {
        return Ok(first.bytes.clone());
    };
    let mut chosen: Vec<(usize, Bytes)> = Vec::with_capacity(usize::from(needed));
    for part in parts {
        let Content::Value(fragment) = part else {
            continue;
        };
        let index = usize::from(fragment.seat.0);
        let alike = fragment.coding == first.coding
            && fragment.digest == first.digest
            && fragment.length == first.length;
        if alike && chosen.iter().all(|(known, _)| *known != index) {
            chosen.push((index, fragment.bytes.clone()));
        }
    }
    chosen.truncate(usize::from(needed));
    let code = Code::new(members.into(), needed.into()).map_err(|_| Undecodable)?;
    let decoded = code.decode(first.length, &chosen);
    let value = decoded.map_err(|_| Undecodable)?;
    match digest(&value) == first.digest {
        true => Ok(value),
        false => Err(Undecodable),
    }
}

/// The parts at hand do not give a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

/// Whether `content` is what it says, under `tag` of `key`; see the module's essay. Eventual values
/// are made under the zero tag.
pub fn is_sound(content: &Content, key: &KeyId, tag: Tag) -> bool {
    let Content::Value(fragment) = content else {
        return true;
    };
    let fits = match fragment.coding {
        Coding::Whole => {
            fragment.length == fragment.bytes.len() as u64
                && fragment.digest == digest(&fragment.bytes)
        }
        Coding::Parts { members, needed } => {
            let (code, seat) = (Code::new(members.into(), needed.into()), fragment.seat);
            let stored = fragment.bytes.len() as u64;
            let long = |code: Code| code.fragment_length(fragment.length, seat.0.into()) == stored;
            seat.0 < members && code.is_ok_and(long)
        }
    };
    fits && fragment.sum == sum(key, tag, fragment)
}

/// What names the value that `content` is a part of, beside its tag (F8h: parts of two values never
/// mix).
pub fn digest_of(content: &Content) -> u64 {
    match content {
        Content::Absent => 0,
        Content::Tombstone => 1,
        Content::Undecodable => 2,
        Content::Value(fragment) => fragment.digest,
    }
}

/// Bytes of a content as it is stored.
pub fn stored_bytes(content: &Content) -> usize {
    match content {
        Content::Absent | Content::Tombstone | Content::Undecodable => 0,
        Content::Value(fragment) => fragment.bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyspaceId, LockRef, Terms};
    use alloc::vec;

    fn key() -> KeyId {
        KeyId {
            keyspace: KeyspaceId(3),
            key: Bytes::from_static(b"k"),
        }
    }

    fn tag(sequence: u64) -> Tag {
        Tag {
            lock_ref: LockRef(0),
            sequence,
            writer: 9,
        }
    }

    /// n = 5, f = 1: any 3 of 5 parts.
    fn coded(whole_below: u32, value: &Bytes) -> Vec<Content> {
        let terms = Terms {
            whole_below,
            ..Terms::new(1)
        };
        let policy = StoragePolicy::Coded(terms);
        let shape = policy.shape(5).expect("possible");
        encode(policy, shape, &key(), tag(1), Some(value))
    }

    #[test]
    fn any_three_of_five_parts_give_the_value_and_two_do_not() {
        for length in [0, 1, 2, 3, 100, 4_097] {
            let value = Bytes::from(vec![7; length]);
            let parts = coded(0, &value);
            for a in 0..5 {
                for b in 0..a {
                    assert_eq!(decode(&[&parts[a], &parts[b], &parts[a]]), Err(Undecodable));
                    for c in 0..b {
                        let three = [&parts[a], &parts[b], &parts[c]];
                        assert_eq!(decode(&three), Ok(Some(value.clone())));
                    }
                }
            }
        }
    }

    #[test]
    fn a_whole_copy_goes_to_any_seat_and_a_part_stays_what_it_is() {
        let value = Bytes::from_static(b"value");
        let (whole, parts) = (coded(6, &value), coded(0, &value));
        assert_eq!(reseated(&key(), tag(1), &whole[0], Seat(3)), whole[3]);
        assert_eq!(reseated(&key(), tag(1), &parts[0], Seat(3)), parts[0]);
    }

    #[test]
    fn a_short_value_is_whole_everywhere_and_a_delete_is_a_tombstone() {
        let value = Bytes::from_static(b"short");
        let parts = coded(6, &value);
        assert_eq!(decode(&[&parts[4]]), Ok(Some(value)));
        let shape = StoragePolicy::Replicated.shape(3).expect("possible");
        let gone = encode(StoragePolicy::Replicated, shape, &key(), tag(1), None);
        assert_eq!(decode(&[&gone[0]]), Ok(None));
        assert_eq!(decode(&[]), Err(Undecodable));
    }

    #[test]
    fn a_part_that_is_changed_or_mislabelled_is_not_sound() {
        let value = Bytes::from(vec![1; 64]);
        for whole_below in [0, 65] {
            let part = coded(whole_below, &value).swap_remove(1);
            assert!(is_sound(&part, &key(), tag(1)));
            assert!(!is_sound(&part, &key(), tag(2)), "of another write");
            let other = KeyId {
                key: Bytes::from_static(b"l"),
                ..key()
            };
            assert!(!is_sound(&part, &other, tag(1)), "of another key");
            let Content::Value(sound) = part else {
                panic!("a value");
            };
            let mut flipped = sound.bytes.to_vec();
            flipped[3] ^= 1;
            let short = sound.bytes.slice(1..);
            let changed = [
                Fragment {
                    bytes: flipped.into(),
                    ..sound.clone()
                },
                Fragment {
                    bytes: short,
                    ..sound.clone()
                },
                Fragment {
                    seat: Seat(2),
                    ..sound.clone()
                },
                Fragment {
                    length: 63,
                    ..sound.clone()
                },
                Fragment {
                    coding: Coding::Parts {
                        members: 200,
                        needed: 0,
                    },
                    ..sound
                },
            ];
            for fragment in changed {
                assert!(!is_sound(&Content::Value(fragment), &key(), tag(1)));
            }
        }
    }

    /// Two values under one tag: their parts are not mixed.
    #[test]
    fn parts_of_two_values_do_not_decode_together() {
        let one = coded(0, &Bytes::from(vec![1; 64]));
        let two = coded(0, &Bytes::from(vec![2; 64]));
        assert_eq!(decode(&[&one[0], &two[1], &one[2]]), Err(Undecodable));
    }
}
