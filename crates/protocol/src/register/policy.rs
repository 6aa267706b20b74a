//! How a value becomes what each member keeps, and the value again: the only place that knows the
//! codes. Everything else in this room handles opaque [`Content`] and names a value by its tag and
//! digest, so that a coded policy is added here and in [`super::quorum()`] alone.

use super::message::{Coding, Content, Fragment};
use crate::base::{Seat, StoragePolicy};
use bytes::Bytes;

/// A digest of a whole value: eight bytes a step, so that 16 MiB cost a few milliseconds. It tells
/// damage and mixed-up values apart; it is no defence against one who wants a collision.
pub fn digest(value: &[u8]) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(PRIME);
        product ^ (product >> 29)
    };
    let mut hash = mix(0xcbf2_9ce4_8422_2325, value.len() as u64);
    let mut words = value.chunks_exact(8);
    for word in &mut words {
        hash = mix(hash, u64::from_le_bytes(word.try_into().expect("8 bytes")));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(mix(hash, u64::from_le_bytes(last)), PRIME)
}

/// What the member in `seat` keeps of `value`; none is a delete.
pub fn encode(policy: StoragePolicy, seat: Seat, value: Option<&Bytes>) -> Content {
    let Some(value) = value else {
        return Content::Tombstone;
    };
    match policy {
        StoragePolicy::Replicated => Content::Value(Fragment {
            coding: Coding::Whole,
            seat,
            length: value.len() as u64,
            digest: digest(value),
            bytes: value.clone(),
        }),
    }
}

/// The value that `parts`, all of one tag, are made from: none where it is absent or deleted.
///
/// # Errors
/// [`Undecodable`] where the parts do not give one value.
pub fn decode(parts: &[&Content]) -> Result<Option<Bytes>, Undecodable> {
    match parts.first() {
        None => Err(Undecodable),
        Some(Content::Absent | Content::Tombstone) => Ok(None),
        Some(Content::Value(fragment)) => match fragment.coding {
            Coding::Whole => Ok(Some(fragment.bytes.clone())),
        },
    }
}

/// The parts at hand do not give a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

/// Whether a part is what it says. A part that is not voids its sender's whole answer
/// (F8c).
pub fn is_sound(content: &Content) -> bool {
    match content {
        Content::Absent | Content::Tombstone => true,
        Content::Value(fragment) => match fragment.coding {
            Coding::Whole => {
                fragment.length == fragment.bytes.len() as u64
                    && fragment.digest == digest(&fragment.bytes)
            }
        },
    }
}

/// What names the value that `content` is a part of, beside its tag (F8h).
pub fn digest_of(content: &Content) -> u64 {
    match content {
        Content::Absent => 0,
        Content::Tombstone => 1,
        Content::Value(fragment) => fragment.digest,
    }
}

/// A whole copy made for another seat: how an eventual value, which is never coded, is spread.
pub fn reseated(content: &Content, seat: Seat) -> Content {
    match content {
        Content::Value(fragment) => Content::Value(Fragment {
            seat,
            ..fragment.clone()
        }),
        other => other.clone(),
    }
}

/// Bytes of a content as it is stored.
pub fn stored_bytes(content: &Content) -> usize {
    match content {
        Content::Absent | Content::Tombstone => 0,
        Content::Value(fragment) => fragment.bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn digest_sees_every_byte_and_the_length() {
        let base = vec![7u8; 21];
        for i in 0..base.len() {
            let mut other = base.clone();
            other[i] ^= 1;
            assert_ne!(digest(&base), digest(&other), "byte {i}");
        }
        assert_ne!(digest(&[]), digest(&[0]));
        assert_ne!(digest(&[0; 8]), digest(&[0; 9]));
    }

    #[test]
    fn a_value_survives_the_way_through_a_fragment() {
        let value = Bytes::from_static(b"value");
        let content = encode(StoragePolicy::Replicated, Seat(2), Some(&value));
        assert!(is_sound(&content));
        assert_eq!(decode(&[&content]), Ok(Some(value)));
        assert_eq!(
            decode(&[&encode(StoragePolicy::Replicated, Seat(0), None)]),
            Ok(None)
        );
        assert_eq!(decode(&[]), Err(Undecodable));
    }

    #[test]
    fn damage_shows() {
        let value = Bytes::from_static(b"value");
        let Content::Value(mut fragment) = encode(StoragePolicy::Replicated, Seat(0), Some(&value))
        else {
            panic!("a value");
        };
        fragment.bytes = Bytes::from_static(b"vague");
        assert!(!is_sound(&Content::Value(fragment)));
    }
}
