//! A command for the laboratory that changes records, as those of a ledger will.

use super::Change;
use crate::wire::{decode, encode, record};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Records that are set, or removed, by one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Puts(pub Vec<(Bytes, Option<Bytes>)>);

impl Puts {
    /// The body of a command.
    pub fn body(&self) -> Vec<u8> {
        encode(self).to_vec()
    }

    /// What a command changes; none: it is none of these.
    pub(crate) fn of(body: &[u8]) -> Option<Vec<Change>> {
        let Puts(puts) = decode(body).ok()?;
        let change = |(key, value): (Bytes, Option<Bytes>)| Change {
            name: [&record::first_part()[..], &key[..]].concat().into(),
            value,
        };
        Some(puts.into_iter().map(change).collect())
    }
}
