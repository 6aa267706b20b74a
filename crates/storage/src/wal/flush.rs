//! One write, in as many pieces as there are large values, and one `fdatasync` for all that was
//! appended; then the mark, for which nobody waits.

use super::record::Gathered;
use super::segment::{self, Header};
use super::{RECORDS_START, SECTOR, Spares};
use crate::disk::{Disk, File, Lack};
use crate::store::Persisted;
use std::io;
use std::sync::Arc;

/// Where the next flush may go.
pub(crate) struct Tail {
    pub(crate) segment: u64,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    /// Up to where the segment has been written, records or zeros, or what was there before.
    pub(crate) written: u64,
    /// Length of the segment.
    pub(crate) size: u64,
}

/// Zeros that small flushes write behind themselves, for those that follow. Over blocks that were
/// written before, a sync writes data alone; blocks that are only reserved cost a commit of the
/// file system's journal, too.
const AHEAD: u64 = 1 << 20;
/// A flush of so many bytes writes no zeros: they would cost more than the commit that they save.
const LARGE: u64 = AHEAD / 4;

/// All batches appended since the last flush, with their place in the log. Run it on a thread that
/// may block, then give the result to `Store::flushed`.
#[must_use = "what was taken is durable only after `run`"]
pub struct Flush {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) spares: Arc<Spares>,
    /// `None`: the segment has to be made first.
    pub(crate) file: Option<Arc<dyn File>>,
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// As in [`Tail`].
    pub(crate) written: u64,
    pub(crate) size: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: Gathered,
}

/// What became of a [`Flush`].
#[must_use = "give it to `Store::flushed`"]
pub struct FlushDone {
    pub(crate) flush: Flush,
    pub(crate) outcome: Persisted,
}

impl FlushDone {
    /// What became of it.
    pub fn outcome(&self) -> &Persisted {
        &self.outcome
    }
}

impl Flush {
    /// Number of batches in it.
    pub fn records(&self) -> u64 {
        self.last + 1 - self.first
    }

    /// The last batch in it.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Writes and syncs; blocks.
    ///
    /// A full disk shows where space is asked for: when a segment is made, or, on file systems that
    /// copy on write, when it is written; and a lack of descriptors where a segment is made. Then
    /// the same bytes can be written again at the same place. Anything else, and any failed sync,
    /// is final.
    pub fn run(mut self) -> FlushDone {
        let outcome = match self.write().and_then(|()| self.mark()) {
            Ok(()) => Persisted::Done,
            Err(WriteError::Lack(lack)) => {
                if lack == Lack::Space {
                    self.spares.release(&*self.disk);
                }
                Persisted::Full(lack)
            }
            Err(WriteError::Fatal(error)) => Persisted::Fatal(error),
        };
        FlushDone {
            flush: self,
            outcome,
        }
    }

    fn write(&mut self) -> Result<(), WriteError> {
        assert!(
            self.offset + self.bytes.len() as u64 <= self.size,
            "a flush fits its segment"
        );
        if let Some(file) = self.file.clone() {
            self.write_to(&*file)?;
            return file.sync().map_err(WriteError::Fatal);
        }
        let spare = self.spares.take(self.size);
        let used_before = spare.is_some();
        let header = Header {
            number: self.segment,
            first: self.first,
            size: self.size,
            used_before,
        };
        self.written = if used_before {
            self.size
        } else {
            RECORDS_START
        };
        let disk = self.disk.clone();
        let file = segment::create(&*disk, header, spare, |file| self.write_to(file))?;
        disk.sync_dir().map_err(WriteError::Fatal)?;
        self.file = Some(file);
        Ok(())
    }

    /// Notes in the segment's mark that this flush is durable.
    fn mark(&self) -> Result<(), WriteError> {
        let file = self
            .file
            .as_ref()
            .expect("a flush that is done has its file");
        let end = self.offset + self.bytes.len() as u64;
        match segment::write_mark(&**file, self.segment, end) {
            // Where a write takes new space, the mark before this one stays: the flush is done.
            Err(error) if Lack::of(&error).is_some() => Ok(()),
            other => other.map_err(WriteError::Fatal),
        }
    }

    /// Writes the records, and zeros ahead where it is time for some.
    fn write_to(&mut self, file: &dyn File) -> io::Result<()> {
        self.bytes.write(file, self.offset)?;
        let len = self.bytes.len() as u64;
        let end = self.offset + len;
        let mut written = self.written.max(end);
        if end > self.written && len < LARGE {
            written = (end + AHEAD).next_multiple_of(SECTOR as u64).min(self.size);
            file.write_at(end, &vec![0; (written - end) as usize])?;
        }
        self.written = written;
        Ok(())
    }
}

enum WriteError {
    Lack(Lack),
    Fatal(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        match Lack::of(&error) {
            Some(lack) => Self::Lack(lack),
            None => Self::Fatal(error),
        }
    }
}
