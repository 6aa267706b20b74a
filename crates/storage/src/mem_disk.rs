//! A disk in memory that can lose power, rot, and fill up.
//!
//! Each file is kept twice: as a reader sees it, and as it would be after power loss, with the
//! list of changes in between. `sync` plays the list into the second copy; [`MemDisk::crash`] plays
//! a random part of it, as a page cache would have. Names are treated alike, with `sync_dir`.
//! Contents are sparse blocks shared between copies, so that a preallocated log segment costs
//! nothing and a clone of a disk is cheap.
//!
//! What a crash may do: every unsynced write is kept, lost, or torn (each 512-byte sector kept or
//! lost for itself), every unsynced length change and directory change is kept or lost, all
//! independently. This is harsher than journaling file systems are. What it never does: change a
//! synced byte, or tear a sector.

use crate::disk::{Disk, File};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;

type Block = [u8; BLOCK as usize];

/// See the module text. All methods take `&self`; share it in an [`Arc`]. `clone` copies deeply:
/// the copy is another disk.
#[derive(Debug, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced_names: Vec<NameChange>,
    /// So many changes that take space still fit; `None`: any number.
    room: Option<u64>,
    /// After so many syncs of the directory one fails with "full".
    dir_syncs: Option<u64>,
    copies: bool,
    crowded: bool,
    changes: u64,
    fail_after: Option<u64>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, usize),
    Remove(String),
    /// The file that was renamed goes with it: no crash gives its new name to another one.
    Rename(String, String, usize),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Content,
    durable: Content,
    unsynced: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Allocate(u64),
}

/// Bytes of a file: absent blocks are zeros. Space below `reserved` was asked for by `allocate`.
#[derive(Clone, Debug, Default)]
struct Content {
    blocks: BTreeMap<u64, Arc<Block>>,
    len: u64,
    reserved: u64,
}

impl Content {
    fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let skip = (at % BLOCK) as usize;
            let n = (buf.len() - done).min(BLOCK as usize - skip);
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => buf[done..done + n].copy_from_slice(&block[skip..skip + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let skip = (at % BLOCK) as usize;
            let n = (data.len() - done).min(BLOCK as usize - skip);
            let fresh = || Arc::new([0; BLOCK as usize]);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(fresh);
            Arc::make_mut(block)[skip..skip + n].copy_from_slice(&data[done..done + n]);
            done += n;
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.blocks.split_off(&len.div_ceil(BLOCK));
            let skip = (len % BLOCK) as usize;
            if skip > 0
                && let Some(block) = self.blocks.get_mut(&(len / BLOCK))
            {
                Arc::make_mut(block)[skip..].fill(0);
            }
            self.reserved = self.reserved.min(len);
        }
        self.len = len;
    }

    /// True if writing there takes space that the file does not have yet.
    fn grows(&self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        let mut blocks = offset / BLOCK..end.div_ceil(BLOCK);
        end > self.len
            || (end > self.reserved && blocks.any(|block| !self.blocks.contains_key(&block)))
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write(offset, data) => self.write(*offset, data),
            Change::SetLen(len) => self.set_len(*len),
            Change::Allocate(len) => {
                self.len = self.len.max(*len);
                self.reserved = self.reserved.max(*len);
            }
        }
    }

    /// Applies what a power loss leaves of a change.
    fn apply_some(&mut self, change: &Change, dice: &mut Dice) {
        match (dice.below(3), change) {
            (0, _) => {}
            (1, Change::Write(offset, data)) => {
                let end = offset + data.len() as u64;
                let mut at = *offset;
                while at < end {
                    let next = ((at / SECTOR + 1) * SECTOR).min(end);
                    if dice.below(2) == 0 {
                        self.write(at, &data[(at - offset) as usize..(next - offset) as usize]);
                    }
                    at = next;
                }
            }
            _ => self.apply(change),
        }
    }
}

/// SplitMix64: a seeded sequence good enough for tests, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

impl State {
    /// Counts a change, and fails if the power is out by [`MemDisk::fail_after`].
    fn change(&mut self) -> io::Result<()> {
        match &mut self.fail_after {
            Some(0) => return Err(io::Error::other("simulated power loss")),
            Some(left) => *left -= 1,
            None => {}
        }
        self.changes += 1;
        Ok(())
    }

    fn space(&mut self, grows: bool) -> io::Result<()> {
        match &mut self.room {
            Some(0) if grows => lacks_space(),
            Some(left) if grows => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("no file {name}")))
    }
}

impl Clone for MemDisk {
    fn clone(&self) -> Self {
        let state = self.state();
        let copy = State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            unsynced_names: state.unsynced_names.clone(),
            room: state.room,
            dir_syncs: state.dir_syncs,
            copies: state.copies,
            crowded: state.crowded,
            changes: state.changes,
            fail_after: state.fail_after,
        };
        Self {
            state: Arc::new(Mutex::new(copy)),
        }
    }
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The disk as found after power loss now: synced data is kept, and of the rest what the
    /// module text says, drawn from `seed`. This disk itself is left as it is. Faults set by
    /// [`Self::set_full`] and [`Self::fail_after`] are off on the new one.
    pub fn crash(&self, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let state = self.state();
        let mut names = state.durable_names.clone();
        for change in &state.unsynced_names {
            if dice.below(2) == 0 {
                continue;
            }
            match change {
                NameChange::Create(name, id) => {
                    names.insert(name.clone(), *id);
                }
                NameChange::Remove(name) => {
                    names.remove(name);
                }
                NameChange::Rename(from, to, id) => {
                    names.remove(from);
                    names.insert(to.clone(), *id);
                }
            }
        }
        let mut after = State::default();
        for (name, id) in names {
            let inode = &state.files[id];
            let mut content = inode.durable.clone();
            for change in &inode.unsynced {
                content.apply_some(change, &mut dice);
            }
            let id = after.files.len();
            after.files.push(Inode {
                now: content.clone(),
                durable: content,
                unsynced: Vec::new(),
            });
            after.names.insert(name.clone(), id);
            after.durable_names.insert(name, id);
        }
        Self {
            state: Arc::new(Mutex::new(after)),
        }
    }

    /// Flips one bit of a byte of a file, as a medium that rots: for readers and after power loss.
    ///
    /// # Panics
    ///
    /// If there is no such file or byte.
    pub fn corrupt(&self, name: &str, offset: u64) {
        let mut state = self.state();
        let id = *state
            .names
            .get(name)
            .expect("the file to corrupt must exist");
        let inode = &mut state.files[id];
        assert!(offset < inode.now.len, "the byte to corrupt must exist");
        for content in [&mut inode.now, &mut inode.durable] {
            if offset < content.len {
                let mut byte = [0];
                content.read(offset, &mut byte);
                content.write(offset, &[byte[0] ^ 0x10]);
            }
        }
    }

    /// While `full`, whatever takes more space fails with `StorageFull` and changes nothing.
    pub fn set_full(&self, full: bool) {
        self.state().room = full.then_some(0);
    }

    /// The disk gets full after so many changes that take more space.
    pub fn full_after(&self, changes: u64) {
        self.state().room = Some(changes);
    }

    /// After so many more syncs of the directory one fails, and says that there is no space.
    pub fn full_at_dir_sync(&self, syncs: Option<u64>) {
        self.state().dir_syncs = syncs;
    }

    /// While it `copies`, every write takes new space, as on file systems that copy on write.
    pub fn set_copies(&self, copies: bool) {
        self.state().copies = copies;
    }

    /// While `crowded`, no file can be opened, as when a process has too many open.
    pub fn set_crowded(&self, crowded: bool) {
        self.state().crowded = crowded;
    }

    /// After `left` more changes (writes, syncs, creations, ...) every change fails, as if the
    /// power were out; `None` turns it off.
    pub fn fail_after(&self, left: Option<u64>) {
        self.state().fail_after = left;
    }

    /// Changes made so far: the unit of [`Self::fail_after`].
    pub fn changes(&self) -> u64 {
        self.state().changes
    }
}

fn lacks_space() -> io::Result<()> {
    Err(io::Error::new(
        ErrorKind::StorageFull,
        "simulated full disk",
    ))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // No method panics between two changes, so a poisoned state is whole.
    state
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Disk for MemDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        if state.crowded {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let id = match state.names.get(name) {
            Some(id) => *id,
            None => {
                state.space(true)?;
                state.change()?;
                let id = state.files.len();
                state.files.push(Inode::default());
                state.names.insert(name.to_owned(), id);
                state
                    .unsynced_names
                    .push(NameChange::Create(name.to_owned(), id));
                id
            }
        };
        Ok(Arc::new(MemFile {
            state: self.state.clone(),
            id,
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.id(name)?;
        state.change()?;
        state.names.remove(name);
        state
            .unsynced_names
            .push(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let id = state.id(from)?;
        state.change()?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), id);
        state
            .unsynced_names
            .push(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        match state.dir_syncs.take() {
            Some(0) => return lacks_space(),
            left => state.dir_syncs = left.map(|left| left - 1),
        }
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }
}

/// An open file: an index into the disk's inodes, which outlive their names.
struct MemFile {
    state: Arc<Mutex<State>>,
    id: usize,
}

impl MemFile {
    fn change(&self, grows: impl FnOnce(&Content) -> bool, change: Change) -> io::Result<()> {
        let mut state = lock(&self.state);
        let copies = state.copies && matches!(change, Change::Write(..));
        let takes = copies || grows(&state.files[self.id].now);
        state.space(takes)?;
        state.change()?;
        let inode = &mut state.files[self.id];
        inode.now.apply(&change);
        inode.unsynced.push(change);
        Ok(())
    }
}

impl File for MemFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.state);
        let content = &state.files[self.id].now;
        if offset + buf.len() as u64 > content.len {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "read past the end of a file",
            ));
        }
        content.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(
            |now| now.grows(offset, data.len()),
            Change::Write(offset, data.to_vec()),
        )
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.state).files[self.id].now.len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|now| len > now.len, Change::SetLen(len))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(|now| len > now.len, Change::Allocate(len))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.change()?;
        let inode = &mut state.files[self.id];
        for change in std::mem::take(&mut inode.unsynced) {
            inode.durable.apply(&change);
        }
        Ok(())
    }
}
