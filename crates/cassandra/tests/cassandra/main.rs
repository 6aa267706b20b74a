//! The store on three real nodes of Cassandra, each a data center of its own.

#[path = "../common/mod.rs"]
mod common;
mod data;
mod lock;
#[cfg(feature = "paper")]
mod paper;
mod starts;

use bytes::Bytes;
use fermata_protocol::base::{KeyId, KeyspaceId};

/// A key of the keyspace of most tests.
fn key(key: impl AsRef<[u8]>) -> KeyId {
    KeyId {
        keyspace: KeyspaceId(7),
        key: Bytes::copy_from_slice(key.as_ref()),
    }
}

/// Keys that somebody's quoting, splitting or measuring might not survive.
fn odd_keys(name: &str) -> Vec<KeyId> {
    let mut keys: Vec<Vec<u8>> = [
        "'",
        "\"",
        "''; DROP TABLE lock; --",
        ".",
        "..",
        "/",
        "a/b",
        "$",
        "$$",
        "%",
        "\\",
        " ",
        "ü",
        "\n",
        "\0",
        "a\0b",
        "?",
        ":k",
    ]
    .iter()
    .map(|odd| format!("{name}{odd}").into_bytes())
    .collect();
    keys.push([name.as_bytes(), &[0xff, 0xfe, 0x80]].concat());
    keys.push([name.as_bytes(), &[b'x'; 1_000]].concat());
    keys.iter().map(key).collect()
}
