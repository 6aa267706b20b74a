//! Runs, and an ordered walk over several of them.
//!
//! A run is a sequence of files that follow one another in the order of keys. Of all of them a read
//! needs one block of one file, and none if that file's filter excludes the key.

use super::file::{Block, Sorted};
use crate::memtable::{Entry, Memtable};
use bytes::Bytes;
use std::io;
use std::sync::Arc;

/// What came from one memtable, or was merged together; see the text of `table`.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) id: u64,
    /// How often what it has was merged.
    pub(super) tier: u32,
    /// The run that this one is being merged into.
    pub(super) into: Option<u64>,
    pub(super) files: Vec<Slice>,
}

/// A file's part of a run: from a key to that of the next slice.
#[derive(Clone)]
pub(super) struct Slice {
    pub(super) from: Bytes,
    pub(super) file: Arc<Sorted>,
}

impl Run {
    fn file_of(&self, key: &[u8]) -> Option<&Sorted> {
        let after = self.files.partition_point(|slice| &slice.from[..] <= key);
        Some(&self.files[after.checked_sub(1)?].file)
    }

    /// What this run knows of a key; `None` means: ask an older one.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Entry>> {
        self.file_of(key).map_or(Ok(None), |file| file.get(key))
    }

    /// False if no entry of this run has the key.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        self.file_of(key).is_some_and(|file| file.may_have(key))
    }

    /// Some of its keys, evenly spread.
    pub(super) fn sample(&self) -> io::Result<Vec<Bytes>> {
        let files = self.files.iter().map(|slice| slice.file.sample());
        Ok(files.collect::<io::Result<Vec<_>>>()?.concat())
    }

    /// Up to where a range deletion hides this key, and all that follow, in what is older; the
    /// inner `None` is no bound.
    fn covered(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let after = self.files.partition_point(|slice| &slice.from[..] <= key);
        let end = self.files[after.checked_sub(1)?].file.covered(key)?;
        let next = self.files.get(after).map(|next| &next.from);
        Some([end, next].into_iter().flatten().min().cloned())
    }

    /// Length of its files in bytes.
    pub(super) fn len(&self) -> u64 {
        self.files.iter().map(|slice| slice.file.len).sum()
    }

    pub(super) fn entries(&self) -> u64 {
        self.files.iter().map(|slice| slice.file.entries).sum()
    }

    /// Adds the ranges that it deletes from what is older to those of a memtable.
    pub(super) fn add_ranges(&self, out: &mut Memtable) {
        for (at, slice) in self.files.iter().enumerate() {
            let next = self.files.get(at + 1).map(|next| &next.from);
            for (from, to) in &slice.file.ranges {
                let from = from.max(&slice.from).clone();
                let to = [to.as_ref(), next].into_iter().flatten().min();
                // An empty end is none, and `delete_range` passes over what is empty otherwise.
                out.delete_range(from, to.cloned().unwrap_or_default());
            }
        }
    }

    /// Forgets everything before a key.
    pub(super) fn cut(&mut self, key: &Bytes) {
        let after = self.files.partition_point(|slice| slice.from <= *key);
        if let Some(first) = after.checked_sub(1) {
            self.files.drain(..first);
            self.files[0].from = key.clone();
        }
    }
}

/// T1, as far as runs show it without their keys.
pub(super) fn are_in_order(runs: &[Run]) -> bool {
    let follows = |pair: &[Run]| {
        let (newer, older) = (&pair[0], &pair[1]);
        let into = |id| older.into == Some(id) || older.id == id;
        newer.tier <= older.tier && newer.into.is_none_or(into)
    };
    runs.windows(2).all(follows) && runs.last().is_none_or(|run| run.into.is_none())
}

/// One run with the place of the walk in it.
struct Cursor {
    run: Run,
    slice: usize,
    block: usize,
    loaded: Option<Block>,
    at: usize,
}

impl Cursor {
    fn new(run: Run, from: &[u8]) -> io::Result<Cursor> {
        let after = run.files.partition_point(|slice| &slice.from[..] <= from);
        let slice = after.saturating_sub(1);
        let mut cursor = Cursor {
            run,
            slice,
            block: 0,
            loaded: None,
            at: 0,
        };
        cursor.begin(from)?;
        Ok(cursor)
    }

    /// Goes to the first entry of this slice, or the one at `from`, or one behind.
    fn begin(&mut self, from: &[u8]) -> io::Result<()> {
        if let Some(slice) = self.run.files.get(self.slice) {
            let from = from.max(&slice.from[..]);
            self.block = slice.file.block_of(from);
            self.loaded = slice.file.block(self.block)?;
            self.at = self.loaded.as_ref().map_or(0, |block| block.seek(from));
        }
        self.settle()
    }

    /// Goes on until there is an entry here, or nothing more.
    fn settle(&mut self) -> io::Result<()> {
        while self
            .loaded
            .as_ref()
            .is_none_or(|block| self.at >= block.len())
        {
            self.at = 0;
            let Some(slice) = self.run.files.get(self.slice) else {
                return Ok(());
            };
            self.block += 1;
            self.loaded = slice.file.block(self.block)?;
            if self.loaded.is_none() {
                self.slice += 1;
                return match self.run.files.get(self.slice) {
                    Some(_) => self.begin(&[]),
                    None => Ok(()),
                };
            }
        }
        Ok(())
    }

    fn key(&self) -> Option<&[u8]> {
        self.loaded.as_ref().map(|block| block.key(self.at))
    }

    /// Goes to the first entry at `to` or behind it, if that is ahead; without one behind the last.
    /// What lies between is not read.
    fn skip_to(&mut self, to: Option<&[u8]>) -> io::Result<()> {
        let Some(key) = self.key() else {
            return Ok(());
        };
        let Some(to) = to else {
            (self.slice, self.loaded) = (self.run.files.len(), None);
            return Ok(());
        };
        if key >= to {
            return Ok(());
        }
        let here = self
            .loaded
            .as_ref()
            .map(|block| (block.seek(to), block.len()));
        if let Some((at, _)) = here.filter(|(at, len)| at < len) {
            self.at = at;
            return Ok(());
        }
        let after = self
            .run
            .files
            .partition_point(|slice| &slice.from[..] <= to);
        self.slice = after.saturating_sub(1);
        self.begin(to)
    }

    fn take(&mut self) -> io::Result<Option<(Bytes, Entry)>> {
        let taken = self.loaded.as_ref().map(|block| block.entry(self.at));
        self.at += 1;
        self.settle()?;
        Ok(taken)
    }
}

/// The entries of several runs, newest first, in order: of each key the newest one.
pub(super) struct Walk {
    cursors: Vec<Cursor>,
    /// Empty: no bound.
    to: Bytes,
}

impl Walk {
    pub(super) fn new(runs: &[Run], from: &[u8], to: &[u8]) -> io::Result<Walk> {
        let cursors = runs.iter().map(|run| Cursor::new(run.clone(), from));
        Ok(Walk {
            cursors: cursors.collect::<io::Result<_>>()?,
            to: Bytes::copy_from_slice(to),
        })
    }

    /// The key that comes next.
    pub(super) fn key(&self) -> Option<&[u8]> {
        let key = self.cursors.iter().filter_map(Cursor::key).min()?;
        (self.to.is_empty() || key < &self.to[..]).then_some(key)
    }

    /// The next key with its newest entry. Entries share the memory of their blocks. Of what a
    /// range deletion hides there is one entry at most: where a million keys were deleted at once,
    /// a walk does not go through all of them.
    pub(super) fn step(&mut self) -> io::Result<Option<(Bytes, Entry)>> {
        let Some(key) = self.key().map(Bytes::copy_from_slice) else {
            return Ok(None);
        };
        let (mut found, mut hidden) = (None, None);
        for cursor in &mut self.cursors {
            // Once hidden, up to there it is so in all that are older.
            if let Some(end) = &hidden {
                cursor.skip_to(Option::as_deref(end))?;
                continue;
            }
            let here = match cursor.key() == Some(&key[..]) {
                true => cursor.take()?,
                false => None,
            };
            if found.is_none() {
                found = here.map(|(_, entry)| entry);
                if found.is_none() {
                    hidden = cursor.run.covered(&key);
                }
            }
        }
        let found = found.or(hidden.map(|_| Entry::Deleted));
        Ok(found.map(|entry| (key, entry)))
    }

    /// Goes on at `to`, if that is ahead; without one there is nothing more.
    pub(super) fn skip_to(&mut self, to: Option<&[u8]>) -> io::Result<()> {
        self.cursors
            .iter_mut()
            .try_for_each(|cursor| cursor.skip_to(to))
    }
}
