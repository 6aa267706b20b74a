//! The lowest layer: sorted files that never change, and one small file that says which count.
//!
//! **Idea.** A checkpoint writes a memtable as one sorted file: a *run*, newer than all others.
//! Runs of one *tier* are merged into one of the next when there are [`FAN`] of them, so that a
//! value is written once per tier, and there are about as many tiers as the table is powers of four
//! long. A merge goes on in steps of one file ([`Table::merge`]), each of which ends at a key: what
//! lies before it is in the new run, what lies behind it still in the old ones, whose files are
//! removed as soon as nothing of them counts. Hence a merge needs little space, may stop anywhere,
//! for as long as it likes, and is found again at a start. In a quiet hour everything is merged
//! into one run where much of it is dead: the space of deleted data comes back.
//!
//! **Invariants.**
//!
//! * **T1, order.** `runs` is ordered by age, newest first, and runs that are being merged are
//!   neighbours, their target right behind them. A key's newest entry is in the first run that
//!   knows it.
//! * **T2, one truth.** The manifest is replaced whole, after all files that it names are durable.
//!   Files that it does not name are leftovers; the next start removes them.
//! * **T3, nothing is missed.** Whatever decides that a key is absent was checked against a
//!   checksum on the way: manifest, index, filter, head of the block. Damage there ends the store's
//!   trust in its disk. A damaged value is void, and stays so when it is merged.
//! * **T4, full is not broken.** A file that does not fit is removed again, and nothing has
//!   changed.

mod fields;
mod file;
mod manifest;
mod runs;

use self::file::{Sorted, Writer};
use self::manifest::Manifest;
use self::runs::{Run, Slice, Walk};
use crate::disk::{Disk, Lack};
use crate::memtable::{Entry, Memtable};
use crate::store::{OpenError, Void};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// So many runs of a tier are merged.
const FAN: usize = 4;
/// Everything is merged, in a quiet hour, where one byte in so many is dead: less than a tenth
/// stays dead, and a byte that dies costs no more than this to be written.
const DEAD: u64 = 12;
/// What an entry counts for in the length of a step, beside its key and value.
const ENTRY: u64 = 64;
/// A step is no shorter than this, however short checkpoints are.
const STEP_MIN: u64 = 4096;

/// The open table.
pub(crate) struct Table {
    disk: Arc<dyn Disk>,
    /// Bytes of input of one step of a merge.
    step: u64,
    manifest: Mutex<Manifest>,
    leftovers: Mutex<Leftovers>,
}

/// What is needed no more as soon as the work that it was needed for has been taken note of. To
/// free a memtable takes tens of milliseconds, to close a large file that has no name as many, and
/// whoever takes note has no time for that: so these go with the next work.
#[derive(Default)]
struct Leftovers {
    memtables: Vec<Arc<Memtable>>,
    files: Vec<Arc<Sorted>>,
}

/// An unchanging view of the table.
#[derive(Clone)]
pub(crate) struct Snapshot(Arc<Vec<Run>>);

/// An entry that is there: its value, or that this is lost.
pub(crate) type Stored = (Bytes, Result<Bytes, Void>);

impl Table {
    /// Opens the table, which is made if the directory has neither table nor log. Returns the last
    /// batch in it, too.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        names: &[String],
        checkpoint_bytes: u64,
    ) -> Result<(Self, u64), OpenError> {
        let manifest = Manifest::open(&**disk, names)?;
        // A process that was killed may have renamed what a power loss now would undo. What was
        // read has to last before anything goes by it.
        disk.sync_dir()?;
        let used: BTreeSet<String> = used(&manifest.runs).into_iter().map(file::name).collect();
        for name in names {
            let left = file::is_name(name) && !used.contains(name);
            if left || name == manifest::UNFINISHED {
                disk.remove(name)?;
            }
        }
        if !names.iter().any(|name| name == manifest::NAME) {
            manifest.write(&**disk)?;
        }
        let lsn = manifest.lsn;
        let table = Self {
            disk: disk.clone(),
            step: checkpoint_bytes.max(STEP_MIN),
            manifest: Mutex::new(manifest),
            leftovers: Mutex::default(),
        };
        Ok((table, lsn))
    }

    fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn leftovers(&self) -> MutexGuard<'_, Leftovers> {
        self.leftovers
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The table as it is now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.manifest().runs.clone())
    }

    /// Length of all files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.manifest().runs.iter().map(Run::len).sum()
    }

    /// Makes a memtable that ends with batch `lsn` the newest run, durably. Where it is `gentle`,
    /// others go before at the disk, here and below.
    pub(crate) fn write(&self, memtable: &Arc<Memtable>, lsn: u64, gentle: bool) -> io::Result<()> {
        let mut manifest = self.manifest().clone();
        manifest.lsn = lsn;
        let id = manifest.number();
        let mut writer = Writer::new(&*self.disk, id, gentle)?;
        let mut entries = memtable.entries();
        let added = entries.try_for_each(|(key, entry)| writer.add(key, entry));
        let file = Arc::new(writer.finish(added, memtable)?);
        let files = vec![Slice {
            from: Bytes::new(),
            file,
        }];
        let mut runs = vec![Run {
            id,
            tier: 0,
            into: None,
            files,
        }];
        runs.extend_from_slice(&manifest.runs);
        self.install(manifest, runs, Some(id))?;
        self.leftovers().memtables.push(memtable.clone());
        Ok(())
    }

    /// How many steps of merges a checkpoint of so many bytes is worth.
    pub(crate) fn steps(&self, bytes: u64) -> u64 {
        let manifest = self.manifest();
        let tiers = manifest.runs.iter().map(|run| u64::from(run.tier)).max();
        // One per tier is what comes in; one more, and what is behind catches up.
        (bytes / self.step).max(1) * (1 + tiers.unwrap_or(0))
    }

    /// Whether a memtable deletes so much that it is worth a checkpoint in a quiet hour.
    pub(crate) fn is_hidden_by(&self, memtable: &Memtable) -> bool {
        let runs = self.manifest().runs.clone();
        let bytes = runs.iter().map(Run::len).sum::<u64>().max(self.step);
        hidden(memtable.len() as u64, memtable, &runs) * DEAD > bytes
    }

    /// One step of the merge that is due, or, where it is `quiet`, one towards a table that is one
    /// run without anything dead. Returns false if nothing is due and little is dead, or if the
    /// disk is full.
    pub(crate) fn merge(&self, quiet: bool, gentle: bool) -> io::Result<bool> {
        let mut manifest = self.manifest().clone();
        let mut runs = manifest.runs.to_vec();
        let target = match due(&mut runs, &mut manifest) {
            Some(target) => target,
            None if !quiet || dead(&runs)? * DEAD <= runs.iter().map(Run::len).sum() => {
                return Ok(false);
            }
            None => {
                // As high as merges of tiers would have brought so much, lest they take it along.
                let total = runs.iter().map(Run::len).sum::<u64>();
                let high = (0..31).find(|tier| total >> (2 * tier) <= self.step);
                let tier = runs.iter().map(|run| run.tier).chain(high).max();
                let all = 0..runs.len();
                begin(&mut runs, &mut manifest, all, tier.unwrap_or(0))
            }
        };
        self.merge_step(manifest, runs, target, gentle)
    }

    /// Moves the entries up to some key from the inputs of a merge to its target. Returns false,
    /// and nothing has changed, if the disk is full.
    fn merge_step(
        &self,
        mut manifest: Manifest,
        mut runs: Vec<Run>,
        id: u64,
        gentle: bool,
    ) -> io::Result<bool> {
        let of =
            |runs: &[Run], place: fn(&Run, u64) -> bool| runs.iter().position(|r| place(r, id));
        let first = of(&runs, |run, id| run.into == Some(id)).expect("a merge has inputs");
        let target = of(&runs, |run, id| run.id == id).expect("a merge has a target");
        // Nothing older is left that a deletion could hide.
        let last = target + 1 == runs.len();
        let inputs = &runs[first..target];
        let number = manifest.number();
        let writer = Writer::new(&*self.disk, number, gentle);
        let (file, end) = match writer.and_then(|writer| self.merge_into(writer, inputs, last)) {
            Err(error) if Lack::of(&error).is_some() => return Ok(false),
            done => done?,
        };
        let begun = inputs
            .iter()
            .flat_map(|run| run.files.first())
            .map(|slice| &slice.from);
        let from = begun.min().cloned().unwrap_or_default();
        let made = file.as_ref().map(|file| file.number);
        runs[target].files.extend(file.map(|file| Slice {
            from,
            file: Arc::new(file),
        }));
        match end {
            Some(end) => runs[first..target].iter_mut().for_each(|run| run.cut(&end)),
            None => {
                let empty = runs[target].files.is_empty();
                runs.drain(first..target + usize::from(empty));
            }
        }
        match self.install(manifest, runs, made) {
            Err(error) if Lack::of(&error).is_some() => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Writes one step's file, if there is anything for it. Returns also the key before which
    /// everything is in it; `None` if that is all.
    fn merge_into(
        &self,
        mut writer: Writer<'_>,
        inputs: &[Run],
        last: bool,
    ) -> io::Result<(Option<Sorted>, Option<Bytes>)> {
        let mut walk = Walk::new(inputs, &[], &[])?;
        let mut passed = 0;
        let mut pass = |writer: &mut Writer<'_>| {
            while passed < self.step
                && let Some((key, entry)) = walk.step()?
            {
                passed += key.len() as u64 + ENTRY;
                match &entry {
                    Entry::Deleted if last => continue,
                    Entry::Value(value) => passed += value.len() as u64,
                    Entry::Deleted | Entry::Void => {}
                }
                writer.add(&key, &entry)?;
            }
            Ok(())
        };
        let added = pass(&mut writer);
        let end = walk.key().map(Bytes::copy_from_slice);
        let mut ranges = Memtable::default();
        for run in inputs.iter().filter(|_| !last) {
            // Those behind the end come again with the next step; until then they change nothing.
            run.add_ranges(&mut ranges);
        }
        if added.is_ok() && writer.len() == 0 && ranges.ranges().next().is_none() {
            writer.abandon()?;
            return Ok((None, end));
        }
        let file = writer.finish(added, &ranges)?;
        Ok((Some(file), end))
    }

    /// Makes runs the table, durably, and removes the files that it no longer needs. Where the disk
    /// is full, the new file goes instead.
    fn install(&self, mut manifest: Manifest, runs: Vec<Run>, made: Option<u64>) -> io::Result<()> {
        assert!(runs::are_in_order(&runs), "runs are in order (T1)");
        let before = std::mem::replace(&mut manifest.runs, Arc::new(runs));
        if let Err(error) = manifest.write(&*self.disk) {
            if let Some(made) = made.filter(|_| Lack::of(&error).is_some()) {
                self.disk.remove(&file::name(made))?;
            }
            return Err(error);
        }
        let after = used(&manifest.runs);
        *self.manifest() = manifest;
        // A crash may undo these; the next start removes the files again.
        for number in used(&before).difference(&after) {
            self.disk.remove(&file::name(*number))?;
        }
        let files = before.iter().flat_map(|run| &run.files);
        let gone = files.filter(|slice| !after.contains(&slice.file.number));
        let gone = gone.map(|slice| slice.file.clone());
        self.leftovers().files.extend(gone);
        Ok(())
    }

    /// Whether there is something to [let go](Self::let_go).
    pub(crate) fn has_leftovers(&self) -> bool {
        let left = self.leftovers();
        !(left.memtables.is_empty() && left.files.is_empty())
    }

    /// Frees what former work has left over.
    pub(crate) fn let_go(&self, gentle: bool) {
        let left = std::mem::take(&mut *self.leftovers());
        // A file that is still read is closed by its last reader.
        for file in left.files.into_iter().filter_map(Arc::into_inner) {
            file.give_back(gentle);
        }
    }
}

/// The numbers of the files of some runs.
fn used(runs: &[Run]) -> BTreeSet<u64> {
    let slices = runs.iter().flat_map(|run| &run.files);
    slices.map(|slice| slice.file.number).collect()
}

/// The target of the merge to go on with, which begins if need be: the lowest one, since the others
/// can wait.
fn due(runs: &mut Vec<Run>, manifest: &mut Manifest) -> Option<u64> {
    let targets: BTreeSet<u64> = runs.iter().filter_map(|run| run.into).collect();
    let under_way = runs.iter().filter(|run| targets.contains(&run.id));
    let under_way = under_way
        .min_by_key(|run| run.tier)
        .map(|run| (run.tier, run.id));
    let below = under_way.map_or(u32::MAX, |(tier, _)| tier);
    let is_free = |run: &Run| run.into.is_none() && !targets.contains(&run.id);
    let tiers: BTreeSet<u32> = runs.iter().map(|run| run.tier).collect();
    for tier in tiers.into_iter().filter(|tier| tier + 1 < below) {
        let here = |run: &Run| run.tier == tier && is_free(run);
        let count = runs.iter().filter(|run| here(run)).count();
        if count >= FAN {
            let first = runs.iter().position(here).expect("there are some");
            return Some(begin(runs, manifest, first..first + count, tier + 1));
        }
    }
    under_way.map(|(_, id)| id)
}

/// Begins a merge of neighbours; returns its target.
fn begin(
    runs: &mut Vec<Run>,
    manifest: &mut Manifest,
    inputs: std::ops::Range<usize>,
    tier: u32,
) -> u64 {
    let id = manifest.number();
    runs[inputs.clone()]
        .iter_mut()
        .for_each(|run| run.into = Some(id));
    let target = Run {
        id,
        tier,
        into: None,
        files: Vec::new(),
    };
    runs.insert(inputs.end, target);
    id
}

/// How many bytes are dead, about: some keys of a run stand for all of it.
fn dead(runs: &[Run]) -> io::Result<u64> {
    let newer = runs.iter().enumerate().map(|(at, run)| {
        let older = &runs[at + 1..];
        let mut ranges = Memtable::default();
        run.add_ranges(&mut ranges);
        let (mut keys, mut again) = (0, 0);
        if !older.is_empty() {
            for key in run.sample()? {
                keys += 1;
                again += u64::from(older.iter().any(|run| run.may_have(&key)));
            }
        }
        Ok(hidden(run.entries() * again / keys.max(1), &ranges, older))
    });
    newer.sum()
}

/// How many bytes of older runs some entries stand for, about, and some deleted ranges.
fn hidden(entries: u64, ranges: &Memtable, older: &[Run]) -> u64 {
    let each = older
        .last()
        .map_or(0, |run| run.len() / run.entries().max(1));
    let ranges = ranges.ranges().map(|(from, to)| {
        let files = older.iter().flat_map(|run| &run.files);
        let bytes = files.map(|slice| slice.file.bytes_between(from, to.map(|to| &to[..])));
        bytes.sum::<u64>()
    });
    entries * each + ranges.sum::<u64>()
}

impl Snapshot {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if there is nothing to merge.
    pub(crate) fn is_one_run(&self) -> bool {
        self.0.len() < 2
    }

    /// The value of a key. The outer error is the disk's.
    pub(crate) fn get(&self, key: &[u8]) -> io::Result<Option<Result<Bytes, Void>>> {
        for run in &*self.0 {
            match run.get(key)? {
                Some(Entry::Deleted) => return Ok(None),
                Some(Entry::Void) => return Ok(Some(Err(Void))),
                // A copy: the value's block shall go.
                Some(Entry::Value(value)) => return Ok(Some(Ok(Bytes::copy_from_slice(&value)))),
                None => {}
            }
        }
        Ok(None)
    }

    /// Entries of `from..to` in order; an empty `to` is no bound.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> Range {
        match Walk::new(&self.0, from, to) {
            Ok(walk) => Range {
                walk: Some(walk),
                error: None,
            },
            Err(error) => Range {
                walk: None,
                error: Some(error),
            },
        }
    }

    /// Reads entries from a key on, about so many bytes. Returns the void ones, and the key to go
    /// on from, if that was not all.
    pub(crate) fn verify(
        &self,
        from: &[u8],
        bytes: u64,
    ) -> io::Result<(Vec<Bytes>, Option<Bytes>)> {
        let (mut void, mut read) = (Vec::new(), 0);
        for entry in self.range(from, &[]) {
            let (key, value) = entry?;
            if read >= bytes {
                return Ok((void, Some(key)));
            }
            read += key.len() as u64 + ENTRY + value.as_ref().map_or(0, |v| v.len() as u64);
            if value.is_err() {
                void.push(key);
            }
        }
        Ok((void, None))
    }
}

/// Entries in order; none follows an error of the disk, which is told once.
pub(crate) struct Range {
    walk: Option<Walk>,
    error: Option<io::Error>,
}

impl Range {
    /// Goes on at `to`, if that is ahead; without one there is nothing more.
    pub(crate) fn skip_to(&mut self, to: Option<&[u8]>) {
        if let Some(walk) = &mut self.walk {
            self.error = walk.skip_to(to).err().or(self.error.take());
        }
    }
}

impl Iterator for Range {
    type Item = io::Result<Stored>;

    fn next(&mut self) -> Option<io::Result<Stored>> {
        loop {
            if let Some(error) = self.error.take() {
                self.walk = None;
                return Some(Err(error));
            }
            match self.walk.as_mut()?.step() {
                Ok(Some((_, Entry::Deleted))) => {}
                Ok(Some((key, Entry::Void))) => return Some(Ok((key, Err(Void)))),
                Ok(Some((key, Entry::Value(value)))) => {
                    return Some(Ok((key, Ok(Bytes::copy_from_slice(&value)))));
                }
                Ok(None) => return None,
                Err(error) => self.error = Some(error),
            }
        }
    }
}
