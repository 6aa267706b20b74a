//! An ordered walk over all layers at once.
//!
//! Three ordered sources, newest first. The smallest key at hand comes next; if several layers have
//! it, the newest speaks and the others step over it. Where a newer layer deletes a range around an
//! entry of an older one, what is older goes on behind that range.

use crate::memtable::{Entry, Memtable};
use crate::store::Void;
use crate::table::{self, Range, Snapshot};
use bytes::Bytes;
use std::io;
use std::iter::Peekable;

type Entries<'a> = Peekable<Box<dyn Iterator<Item = (&'a Bytes, &'a Entry)> + 'a>>;
type Stored = io::Result<table::Stored>;

/// One memtable with the place of the walk in it.
struct Layer<'a> {
    memtable: &'a Memtable,
    entries: Entries<'a>,
}

impl<'a> Layer<'a> {
    fn new(memtable: &'a Memtable, from: &[u8], to: &[u8]) -> Self {
        let entries: Box<dyn Iterator<Item = _>> = Box::new(memtable.range(from, to));
        Self {
            memtable,
            entries: entries.peekable(),
        }
    }

    /// Goes on at `to`, which is ahead; without one there is nothing more.
    fn skip_to(&mut self, to: Option<&[u8]>, end: &[u8]) {
        match to {
            Some(to) => *self = Layer::new(self.memtable, to, end),
            None => while self.entries.next().is_some() {},
        }
    }

    fn key(&mut self) -> Option<&'a Bytes> {
        self.entries.peek().map(|(key, _)| *key)
    }

    /// The entry of `key`, if it comes next.
    fn take(&mut self, key: &[u8]) -> Option<&'a Entry> {
        self.entries
            .next_if(|(next, _)| &next[..] == key)
            .map(|(_, entry)| entry)
    }
}

/// The table with the place of the walk in it.
struct Below {
    entries: Range,
    next: Option<Stored>,
}

impl Below {
    fn peek(&mut self) -> Option<&Stored> {
        if self.next.is_none() {
            self.next = self.entries.next();
        }
        self.next.as_ref()
    }

    fn next_if(&mut self, so: impl FnOnce(&Stored) -> bool) -> Option<Stored> {
        self.peek().is_some_and(so).then(|| self.next.take())?
    }

    /// Goes on at `to`, if that is ahead; without one there is nothing more.
    fn skip_to(&mut self, to: Option<&[u8]>) {
        let is_ahead = |key: &Bytes| to.is_none_or(|to| &key[..] < to);
        // An error is told first.
        if self
            .next
            .as_ref()
            .is_none_or(|next| next.as_ref().is_ok_and(|(key, _)| is_ahead(key)))
        {
            self.next = None;
            self.entries.skip_to(to);
        }
    }
}

/// See the module text.
pub(crate) struct Scan<'a, F> {
    layers: Vec<Layer<'a>>,
    table: Below,
    /// Empty: no bound.
    to: Bytes,
    /// Told that the table cannot be read; the walk then ends with a void key.
    on_error: F,
    /// Where the walk is, for that void key.
    at: Bytes,
    ended: bool,
}

impl<'a, F: Fn(&io::Error)> Scan<'a, F> {
    /// Walks `from..to`, an empty `to` being no bound; `layers` newest first.
    pub(crate) fn new(
        layers: impl Iterator<Item = &'a Memtable>,
        table: &Snapshot,
        from: &[u8],
        to: &[u8],
        on_error: F,
    ) -> Self {
        Self {
            layers: layers
                .map(|memtable| Layer::new(memtable, from, to))
                .collect(),
            table: Below {
                entries: table.range(from, to),
                next: None,
            },
            to: Bytes::copy_from_slice(to),
            on_error,
            at: Bytes::copy_from_slice(from),
            ended: false,
        }
    }

    /// The smallest key that any layer has next; an error is the table's.
    fn next_key(&mut self) -> io::Result<Option<Bytes>> {
        let mut smallest = match self.table.next_if(Result::is_err) {
            Some(Err(error)) => return Err(error),
            _ => match self.table.peek() {
                Some(Ok((key, _))) => Some(key),
                _ => None,
            },
        };
        for layer in &mut self.layers {
            if let Some(key) = layer.key()
                && smallest.is_none_or(|smallest| key < smallest)
            {
                smallest = Some(key);
            }
        }
        Ok(smallest.cloned())
    }

    /// What the newest layer that knows `key` says, all layers being moved past it.
    fn newest(&mut self, key: &Bytes) -> Option<Result<Bytes, Void>> {
        let mut found: Option<Option<Result<Bytes, Void>>> = None;
        for at in 0..self.layers.len() {
            let entry = self.layers[at].take(key);
            if found.is_some() {
                continue;
            }
            found = match entry {
                Some(Entry::Value(value)) => Some(Some(Ok(value.clone()))),
                Some(Entry::Void) => Some(Some(Err(Void))),
                Some(Entry::Deleted) => Some(None),
                None => match self.layers[at].memtable.covered(key) {
                    Some(end) => {
                        self.skip_below(at, end);
                        return None;
                    }
                    None => None,
                },
            };
        }
        let is_next = |next: &Stored| next.as_ref().is_ok_and(|(next, _)| next == key);
        let stored = self.table.next_if(is_next);
        found.unwrap_or_else(|| stored.and_then(Result::ok).map(|(_, value)| value))
    }

    /// What is older than a layer goes on at `end`; without one there is nothing more of it.
    fn skip_below(&mut self, layer: usize, end: Option<&Bytes>) {
        for older in &mut self.layers[layer + 1..] {
            older.skip_to(end.map(|end| &end[..]), &self.to);
        }
        self.table.skip_to(end.map(|end| &end[..]));
    }
}

impl<F: Fn(&io::Error)> Iterator for Scan<'_, F> {
    type Item = (Bytes, Result<Bytes, Void>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.next_key() {
                Ok(Some(key)) => {
                    self.at = key.clone();
                    if let Some(value) = self.newest(&key) {
                        return Some((key, value));
                    }
                }
                Ok(None) => self.ended = true,
                Err(error) => {
                    // Ending in silence would pass for "no more keys".
                    (self.on_error)(&error);
                    self.ended = true;
                    return Some((self.at.clone(), Err(Void)));
                }
            }
        }
        None
    }
}
