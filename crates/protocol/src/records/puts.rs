//! A command for the laboratory that changes records blindly.

use super::Change;
use crate::wire::record;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Records that are set, or removed, by one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Puts(pub Vec<(Bytes, Option<Bytes>)>);

impl Puts {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |(name, value): &(Bytes, Option<Bytes>)| {
            size_of::<(Bytes, Option<Bytes>)>() + name.len() + value.as_ref().map_or(0, Bytes::len)
        };
        self.0.iter().map(bytes).sum()
    }

    /// What it changes.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let change = |(key, value): &(Bytes, Option<Bytes>)| Change {
            name: [&record::first_part()[..], &key[..]].concat().into(),
            value: value.clone(),
        };
        self.0.iter().map(change).collect()
    }
}
