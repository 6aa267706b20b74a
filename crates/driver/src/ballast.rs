//! Space kept in reserve, so that a full disk is met while some of it is left.
//!
//! **Problem.** A flush that finds no space leaves writes that are visible and not durable.
//! Whatever is read after them has to wait for them, so a node whose log is stuck could not even
//! answer reads, and it would not know when space has returned without trying.
//!
//! **Idea.** A file of about one log segment lies beside the store. When a flush does not fit, the
//! file is removed and the flush is taken again: now it fits, nothing is stuck, and the node, which
//! has been told, refuses writes and goes on reading. Space has returned as soon as the file can be
//! made again, and then the node is told so.
//!
//! **Departure.** Another program may take the space between removal and flush; then the log is
//! stuck until space returns, and the reads of this node wait for other replicas.

use fermata_storage::Disk;
use std::io;
use std::sync::Arc;

/// The file's name, beside the store's.
const NAME: &str = "reserve";
/// What the reserve has beyond one log segment.
const BEYOND: u64 = 1 << 20;

/// The reserve of one disk.
#[derive(Clone)]
pub struct Ballast {
    disk: Arc<dyn Disk>,
    bytes: u64,
}

impl Ballast {
    /// The reserve of a store whose log segments are so long; nothing is done yet.
    pub fn new(disk: Arc<dyn Disk>, segment_bytes: u64) -> Ballast {
        let bytes = segment_bytes + BEYOND;
        Ballast { disk, bytes }
    }

    /// Takes the space, unless it is taken already. Blocks.
    ///
    /// # Errors
    /// What the disk said, that it is full among other things.
    pub fn raise(&self) -> io::Result<()> {
        let file = self.disk.open(NAME)?;
        let taken = file.allocate(self.bytes);
        taken.inspect_err(|_| self.release())
    }

    /// Gives the space back. Blocks.
    pub fn release(&self) {
        // Without the file there is nothing to give back; and a disk that fails says so elsewhere.
        let _ = self.disk.remove(NAME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_storage::{Lack, MemDisk};

    #[test]
    fn the_reserve_tells_when_space_has_returned() {
        let disk = Arc::new(MemDisk::new());
        let ballast = Ballast::new(disk.clone(), 4_096);
        disk.set_full(true);
        let refused = ballast.raise().unwrap_err();
        assert_eq!(Lack::of(&refused), Some(Lack::Space));
        assert!(disk.list().unwrap().is_empty());
        disk.set_full(false);
        ballast.raise().unwrap();
        ballast.raise().unwrap();
        ballast.release();
        ballast.release();
        assert!(disk.list().unwrap().is_empty());
        disk.fail_after(Some(0));
        assert_eq!(Lack::of(&ballast.raise().unwrap_err()), None);
    }
}
