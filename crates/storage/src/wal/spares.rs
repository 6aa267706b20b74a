//! Segments that the table covers, kept to be written over.
//!
//! A segment that is made anew costs its blocks, their note in the file system's tables, and, when
//! it goes, giving them back; one that is written over costs what is written. A spare has a name of
//! its own, which is durable before it is offered. A crash in between may give an old name back,
//! whatever the bytes are by then: recovery looks at nothing before the last segment that starts
//! within the table.

use super::SegmentInfo;
use super::segment::{name, spare_name};
use crate::disk::{Disk, final_if_full};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of spares, in segments of ordinary length, whatever a checkpoint covers: they are
/// space that nothing else can have.
const MOST: u64 = 8;

/// The spares of one directory.
#[derive(Debug)]
pub(crate) struct Spares {
    /// Segments whose length is no multiple of this are not kept: no other one is like them.
    unit: u64,
    /// Most bytes of all.
    most: u64,
    /// The number of the segment that each was, and its length; oldest first.
    free: Mutex<VecDeque<(u64, u64)>>,
}

impl Spares {
    /// None yet; later as many as the log needs between two checkpoints, twice.
    pub(crate) fn new(unit: u64, checkpoint_bytes: u64) -> Self {
        Self {
            unit,
            most: checkpoint_bytes.saturating_mul(2).min(MOST * unit),
            free: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of that many bytes, which is the caller's from now on.
    pub(super) fn take(&self, size: u64) -> Option<u64> {
        let mut free = self.lock();
        let at = free.iter().position(|(_, of)| *of == size)?;
        Some(free.remove(at)?.0)
    }

    /// Lets segments go: keeps them in place of older spares, as far as there is room, and removes
    /// the rest. A crash may undo any of it; recovery then removes them.
    pub(crate) fn retire(&self, disk: &dyn Disk, covered: &[SegmentInfo]) -> io::Result<()> {
        let mut kept = VecDeque::new();
        let mut bytes = 0;
        for segment in covered {
            let (number, size) = (segment.number, segment.size);
            let fits = size.is_multiple_of(self.unit) && bytes + size <= self.most;
            // A new name may take space that is not there; a removal takes none.
            if fits && disk.rename(&name(number), &spare_name(number)).is_ok() {
                kept.push_back((number, size));
                bytes += size;
            } else {
                disk.remove(&name(number))?;
            }
        }
        for (number, _) in self.make_room(bytes) {
            disk.remove(&spare_name(number))?;
        }
        disk.sync_dir().map_err(final_if_full)?;
        self.lock().append(&mut kept);
        Ok(())
    }

    /// Takes the oldest spares away until there is room for so many bytes.
    fn make_room(&self, bytes: u64) -> Vec<(u64, u64)> {
        let mut free = self.lock();
        let mut all = free.iter().map(|(_, size)| size).sum::<u64>() + bytes;
        let mut gone = Vec::new();
        while all > self.most
            && let Some(oldest) = free.pop_front()
        {
            all -= oldest.1;
            gone.push(oldest);
        }
        gone
    }

    /// Gives the space of all spares back to a disk that is full.
    pub(crate) fn release(&self, disk: &dyn Disk) {
        for (number, _) in std::mem::take(&mut *self.lock()) {
            // What cannot be removed now is removed at the next start.
            let _ = disk.remove(&spare_name(number));
        }
    }
}
