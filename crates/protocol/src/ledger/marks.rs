//! Up to which time keys were used, within a bound of memory.

use super::{Item, Span};
use crate::base::{KeyId, Timestamp};
use alloc::collections::{BTreeMap, BTreeSet};

/// Keys that are known one by one.
const KEYS: usize = 4_096;
/// Ranges that are.
const SPANS: usize = 256;

/// For each key a timestamp that is not below any with which it was used. What is forgotten is the
/// lowest, and holds for all keys from then on: to ask for too high a timestamp costs a wait, to
/// ask for one too low an order.
#[derive(Debug, Default)]
pub struct Marks {
    keys: BTreeMap<KeyId, Timestamp>,
    by_time: BTreeSet<(Timestamp, KeyId)>,
    spans: BTreeSet<(Timestamp, Span)>,
    /// That of every other key.
    floor: Timestamp,
}

impl Marks {
    /// With this for all keys.
    pub fn new(floor: Timestamp) -> Marks {
        Marks {
            floor,
            ..Marks::default()
        }
    }

    /// Something is used at a time.
    pub fn raise(&mut self, item: &Item<'_>, at: Timestamp) {
        if at <= self.floor {
            return;
        }
        match item {
            Item::Key(key) => self.raise_key(key, at),
            Item::Span(span) => {
                self.spans.insert((at, (*span).clone()));
                if self.spans.len() > SPANS
                    && let Some((lowest, _)) = self.spans.pop_first()
                {
                    self.floor = self.floor.max(lowest);
                }
            }
        }
    }

    fn raise_key(&mut self, key: &KeyId, at: Timestamp) {
        match self.keys.get_mut(key) {
            Some(known) if *known >= at => return,
            Some(known) => {
                self.by_time.remove(&(*known, key.clone()));
                *known = at;
            }
            None => {
                self.keys.insert(key.clone(), at);
            }
        }
        self.by_time.insert((at, key.clone()));
        if self.keys.len() > KEYS
            && let Some((lowest, forgotten)) = self.by_time.pop_first()
        {
            self.keys.remove(&forgotten);
            self.floor = self.floor.max(lowest);
        }
    }

    /// No use of any of these is above this.
    pub fn of(&self, item: &Item<'_>) -> Timestamp {
        let keys = match item {
            Item::Key(key) => self.keys.get(*key).copied(),
            Item::Span(span) => {
                let (keyspace, key) = (span.keyspace, span.from.clone());
                let above = self.keys.range(KeyId { keyspace, key }..);
                let within = above.take_while(|(key, _)| span.has(key));
                within.map(|(_, at)| *at).max()
            }
        };
        // The highest that meets it is the first from behind.
        let mut spans = self.spans.iter().rev();
        let span = spans.find(|(_, span)| item.meets(&Item::Span(span)));
        let known = [keys, span.map(|(at, _)| *at)];
        known.into_iter().flatten().fold(self.floor, Timestamp::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::KeyspaceId;
    use alloc::format;
    use bytes::Bytes;

    fn key(n: usize) -> KeyId {
        KeyId {
            keyspace: KeyspaceId(3),
            key: Bytes::from(format!("{n:06}")),
        }
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::of(micros)
    }

    #[test]
    fn what_is_forgotten_counts_for_all_keys() {
        let mut marks = Marks::new(at(5));
        for n in 0..=KEYS {
            marks.raise(&Item::Key(&key(n)), at(10 + n as u64));
        }
        assert_eq!(marks.of(&Item::Key(&key(KEYS))), at(10 + KEYS as u64));
        assert_eq!(marks.of(&Item::Key(&key(0))), at(10), "the lowest");
        assert_eq!(marks.of(&Item::Key(&key(KEYS + 7))), at(10));
        assert_eq!(marks.keys.len(), marks.by_time.len());
    }

    #[test]
    fn ranges_and_keys_meet() {
        let mut marks = Marks::new(at(1));
        let span = Span::prefix(KeyspaceId(3), &Bytes::from_static(b"00000"));
        marks.raise(&Item::Span(&span), at(20));
        marks.raise(&Item::Key(&key(10)), at(30));
        assert_eq!(marks.of(&Item::Key(&key(3))), at(20));
        assert_eq!(marks.of(&Item::Key(&key(10))), at(30));
        assert_eq!(marks.of(&Item::Span(&span)), at(20), "000010 is outside");
        let wide = Span::prefix(KeyspaceId(3), &Bytes::from_static(b"0000"));
        assert_eq!(marks.of(&Item::Span(&wide)), at(30));
        let other = Span::prefix(KeyspaceId(4), &Bytes::new());
        assert_eq!(marks.of(&Item::Span(&other)), at(1));
    }

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        let of =
            |prefix: &'static [u8]| Span::prefix(KeyspaceId(1), &Bytes::from_static(prefix)).to;
        assert_eq!(of(b"a/"), Some(Bytes::from_static(b"a0")));
        assert_eq!(of(b"a\xff\xff"), Some(Bytes::from_static(b"b")));
        assert_eq!((of(b"\xff"), of(b"")), (None, None));
    }
}
