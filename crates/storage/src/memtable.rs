//! One layer in memory: the newest entry of each key, and ranges deleted from the layers below.
//!
//! No sequence numbers are needed. A range deletion removes the entries it covers at once and is
//! then remembered only for the layers below; an entry written later lies on top of it. Hence
//! within one memtable an entry always wins over a range. Ranges are kept disjoint and not
//! touching, so that at most one has to be looked at.

use crate::batch::{Batch, Op};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a layer knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Its value.
    Value(Bytes),
    /// It was deleted here.
    Deleted,
    /// It was written here, and what was written is lost.
    Void,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    entries: BTreeMap<Bytes, Entry>,
    /// First key → first key after, or `None` for no bound.
    ranges: BTreeMap<Bytes, Option<Bytes>>,
}

/// A range of keys as `BTreeMap` takes it.
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The bounds of `from..to`, where an empty `to` is no bound; `None` if nothing lies between.
fn bounds<'a>(from: &'a [u8], to: &'a [u8]) -> Option<Range<'a>> {
    if to.is_empty() {
        return Some((Bound::Included(from), Bound::Unbounded));
    }
    (from < to).then_some((Bound::Included(from), Bound::Excluded(to)))
}

impl Memtable {
    /// Applies all changes of a batch in order.
    pub(crate) fn apply(&mut self, batch: Batch) {
        for op in batch.0 {
            match op {
                Op::Put { key, value } => self.set(key, Entry::Value(value)),
                Op::Delete { key } => self.set(key, Entry::Deleted),
                Op::DeleteRange { from, to } => self.delete_range(from, to),
            }
        }
    }

    /// Sets the entry of one key.
    pub(crate) fn set(&mut self, key: Bytes, entry: Entry) {
        self.entries.insert(key, entry);
    }

    /// Deletes `from..to`; an empty `to` is no bound.
    pub(crate) fn delete_range(&mut self, from: Bytes, to: Bytes) {
        let Some(range) = bounds(&from, &to) else {
            return;
        };
        let covered: Vec<Bytes> = self
            .entries
            .range::<[u8], _>(range)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &covered {
            self.entries.remove(key);
        }
        let mut start = from.clone();
        let mut end = (!to.is_empty()).then_some(to);
        // Melt with every range that overlaps or touches the new one. Those start at or before the
        // new end; walking down from there, the first that ends before `from` ends the search.
        loop {
            let upper = match &end {
                Some(end) => Bound::Included(&end[..]),
                None => Bound::Unbounded,
            };
            let below = self
                .ranges
                .range::<[u8], _>((Bound::Unbounded, upper))
                .next_back();
            let Some((other, other_end)) = below else {
                break;
            };
            if other_end
                .as_ref()
                .is_some_and(|other_end| *other_end < from)
            {
                break;
            }
            let (other, other_end) = (other.clone(), other_end.clone());
            self.ranges.remove(&other);
            start = start.min(other);
            end = match (end, other_end) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
        }
        self.ranges.insert(start, end);
    }

    /// What this layer knows of a key; `None` means: ask the layer below.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        match self.entries.get(key) {
            Some(entry) => Some(entry),
            None => self.covered(key).map(|_| &Entry::Deleted),
        }
    }

    /// Up to where a range deletion hides this key, and all that follow, in the layers below; the
    /// inner `None` is no bound.
    pub(crate) fn covered(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        let upper = (Bound::Unbounded, Bound::Included(key));
        let (_, end) = self.ranges.range::<[u8], _>(upper).next_back()?;
        end.as_ref()
            .is_none_or(|end| key < &end[..])
            .then_some(end.as_ref())
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries within `from..to` in order.
    pub(crate) fn range<'a>(
        &'a self,
        from: &[u8],
        to: &[u8],
    ) -> impl Iterator<Item = (&'a Bytes, &'a Entry)> + use<'a> {
        bounds(from, to)
            .map(|range| self.entries.range::<[u8], _>(range))
            .into_iter()
            .flatten()
    }

    /// All entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.entries.iter()
    }

    /// All deleted ranges in order, disjoint; `None` is no bound.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.ranges.iter().map(|(from, to)| (from, to.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(table: &Memtable) -> Vec<(&[u8], Option<&[u8]>)> {
        table
            .ranges()
            .map(|(from, to)| (&from[..], to.map(|to| &to[..])))
            .collect()
    }

    #[test]
    fn ranges_melt_and_stay_disjoint() {
        let mut table = Memtable::default();
        table.apply(Batch::new().delete_range("b", "d").delete_range("f", "h"));
        assert_eq!(
            ranges(&table),
            [(&b"b"[..], Some(&b"d"[..])), (b"f", Some(b"h"))]
        );
        table.apply(Batch::new().delete_range("d", "f"));
        assert_eq!(ranges(&table), [(&b"b"[..], Some(&b"h"[..]))]);
        table.apply(Batch::new().delete_range("a", "z").delete_range("c", "d"));
        assert_eq!(ranges(&table), [(&b"a"[..], Some(&b"z"[..]))]);
        table.apply(Batch::new().delete_range("x", ""));
        assert_eq!(ranges(&table), [(&b"a"[..], None)]);
        let covers = |key: &[u8]| table.covered(key).is_some();
        assert!(covers(b"zzz") && covers(b"a") && !covers(b"A"));
    }

    #[test]
    fn a_later_entry_lies_on_top_of_a_range() {
        let mut table = Memtable::default();
        table.apply(
            Batch::new()
                .put("b", "1")
                .put("x", "1")
                .delete_range("a", "c")
                .put("bb", "2"),
        );
        assert_eq!(table.get(b"b"), Some(&Entry::Deleted));
        assert_eq!(table.get(b"bb"), Some(&Entry::Value("2".into())));
        assert_eq!(table.get(b"x"), Some(&Entry::Value("1".into())));
        assert_eq!(table.get(b"c"), None);
        assert_eq!(table.range(b"a", b"c").count(), 1);
        assert_eq!(table.range(b"c", b"a").count(), 0);
    }
}
