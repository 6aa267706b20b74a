//! The records of one segment as a command that is being applied sees them.

use crate::base::SegmentId;
use crate::io::{Memory, Void};
use crate::records::Change;
use crate::wire::record;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

/// Records read at once.
const PAGE: usize = 64;

/// What earlier commands of the same step have changed, which the store does not show yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fresh(BTreeMap<Bytes, Option<Bytes>>);

impl Fresh {
    /// A command has changed these.
    pub(crate) fn note(&mut self, changes: &[Change]) {
        let changes = changes.iter().cloned();
        self.0
            .extend(changes.map(|change| (change.name, change.value)));
    }
}

/// Reads the records of one segment.
pub(crate) struct Reader<'a> {
    pub(crate) segment: SegmentId,
    pub(crate) memory: &'a dyn Memory,
    pub(crate) fresh: Option<&'a Fresh>,
}

/// Some records in order, and where to go on; none: these were the last.
pub(crate) type Page = (Vec<(Bytes, Bytes)>, Option<Bytes>);

impl Reader<'_> {
    /// The record of this name.
    pub(crate) fn get(&self, name: &[u8]) -> Result<Option<Bytes>, Void> {
        if let Some(value) = self.fresh.and_then(|fresh| fresh.0.get(name)) {
            return Ok(value.clone());
        }
        self.memory.get(&record::part(self.segment, name))
    }

    /// The first record of `from .. to`.
    pub(crate) fn first(&self, from: &[u8], to: &[u8]) -> Result<Option<(Bytes, Bytes)>, Void> {
        let mut from = Bytes::copy_from_slice(from);
        loop {
            let (records, next) = self.page(&from, to, 1)?;
            match (records.into_iter().next(), next) {
                (Some(first), _) => return Ok(Some(first)),
                (None, Some(next)) => from = next,
                (None, None) => return Ok(None),
            }
        }
    }

    /// The next records of `from .. to`: about a page of them, perhaps none although there are
    /// more.
    pub(crate) fn next(&self, from: &[u8], to: &[u8]) -> Result<Page, Void> {
        self.page(from, to, PAGE)
    }

    fn page(&self, from: &[u8], to: &[u8], most: usize) -> Result<Page, Void> {
        if from >= to {
            return Ok((Vec::new(), None));
        }
        let place = |name: &[u8]| record::part(self.segment, name);
        let stored = self.memory.scan(&place(from), &place(to), most);
        let last = stored.last().filter(|_| stored.len() == most);
        let next = last.map(|(key, _)| {
            let mut next = record::name_of(key).to_vec();
            next.push(0);
            Bytes::from(next)
        });
        let mut records = BTreeMap::new();
        for (key, value) in stored {
            records.insert(record::name_of(&key), value?);
        }
        let end = next.as_deref().unwrap_or(to);
        let fresh = self.fresh.into_iter().flat_map(|fresh| {
            fresh
                .0
                .range(Bytes::copy_from_slice(from)..)
                .take_while(|(name, _)| &name[..] < end)
        });
        for (name, value) in fresh {
            match value {
                Some(value) => records.insert(name.clone(), value.clone()),
                None => records.remove(name),
            };
        }
        Ok((records.into_iter().collect(), next))
    }
}
