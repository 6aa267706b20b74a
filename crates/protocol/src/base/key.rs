//! Keys and their addresses on the ring.

use super::ids::{KeyspaceId, SegmentId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A key: queues and cells are keyed by this, never by the address, which two keys may share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// At most the keyspace's key limit, 1 KiB by default.
    pub key: Bytes,
}

/// Which part of a key decides its address, so that related keys can share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TagRule {
    /// The whole key.
    #[default]
    Whole,
    /// The bytes before the first such byte (the whole key where there is none).
    Before(u8),
}

impl TagRule {
    /// The part of `key` that decides its address.
    pub fn tag(self, key: &[u8]) -> &[u8] {
        match self {
            TagRule::Whole => key,
            TagRule::Before(mark) => key.split(|b| *b == mark).next().unwrap_or(key),
        }
    }
}

/// A place on the ring: a 64-bit hash, version 1, of the keyspace id and the key's tag.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Address(pub u64);

impl Address {
    /// The address of `key`. FNV-1a over the keyspace id and the tag, then the finalizer of
    /// splitmix64. Fixed for ever: data lies where it says.
    pub fn of(keyspace: KeyspaceId, rule: TagRule, key: &[u8]) -> Address {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in keyspace.0.to_be_bytes().iter().chain(rule.tag(key)) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Address(hash ^ (hash >> 31))
    }

    /// The segment that holds this address in a ring of 2^`bits` segments, `bits` in 0 ..= 32.
    pub fn segment(self, bits: u8) -> SegmentId {
        if bits == 0 {
            SegmentId(0)
        } else {
            SegmentId((self.0 >> (64 - u32::from(bits))) as u32)
        }
    }
}
