//! The little that the store asks of a disk, and the real one.
//!
//! [`Disk`] is one flat directory of files, [`File`] one of them. [`FileDisk`] is a directory of
//! the operating system; [`crate::MemDisk`] is one in memory that can lose power. The store relies
//! on exactly what is written here and in "Assumptions about the medium" of `docs/formats/wal.md`.

use std::fmt;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Unit of zeros written at a time where space cannot be reserved without writing.
const ZEROS: usize = 1 << 20;
/// Name of the file that carries the exclusive lock of a [`FileDisk`].
const LOCK: &str = "LOCK";

/// A flat directory of files.
pub trait Disk: Send + Sync {
    /// Opens a file, which is created empty if absent. The name lasts only after `sync_dir`.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// All names, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a name; open handles keep working. It lasts only after `sync_dir`.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file over `to`, atomically. It lasts only after `sync_dir`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes all creations, removals and renames so far durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// One file. Methods take `&self`: reads may run beside a write to another place.
#[expect(
    clippy::len_without_is_empty,
    reason = "a length in bytes, not a collection"
)]
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data`, growing the file if need be. Durable only after `sync`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or grows it with zeros for which space need not be reserved.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Grows the file to at least `len` with zeros, so that later writes below `len` need no more
    /// space.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes contents and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// The same for what nobody waits for. A real disk then is left to others for as long as that
    /// took.
    fn sync_behind(&self) -> io::Result<()> {
        self.sync()
    }
}

/// What a machine may run out of without anything being broken: the same can be done later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Space on the disk, or of a quota.
    Space,
    /// Descriptors, of this process or of the machine. Only what opens a file runs out of them.
    Files,
}

impl Lack {
    /// What is lacking, if that is why something failed.
    pub fn of(error: &io::Error) -> Option<Lack> {
        let files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Lack::Space),
            _ if files
                .map(|e| Some(e.raw_os_error()))
                .contains(&error.raw_os_error()) =>
            {
                Some(Lack::Files)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Space => "the disk is full",
            Lack::Files => "too many files are open to open one more (ulimit -n)",
        })
    }
}

/// True for "no space left" and "quota exceeded".
pub(crate) fn is_full(error: &io::Error) -> bool {
    Lack::of(error) == Some(Lack::Space)
}

/// A sync that fails is final whatever its reason, so its error must not look like a full disk.
pub(crate) fn final_if_full(error: io::Error) -> io::Error {
    if is_full(&error) {
        io::Error::other(error)
    } else {
        error
    }
}

/// Real files in one directory, which this process holds under an exclusive lock.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    directory: fs::File,
    // Held for its advisory lock, which the system drops with the handle or the process.
    _lock: fs::File,
}

impl FileDisk {
    /// Opens a directory, which is created if absent, and locks it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` with a sentence that names the directory if another process, or another
    /// `FileDisk` of this one, holds it; nothing was changed then. Else what the system said.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        fs::create_dir_all(&path)?;
        // The directory's own name has to last as well.
        if let Some(parent) = path.canonicalize()?.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let sentence = format!(
                    "data directory {} is in use by another process: stop it or choose another \
                     directory; nothing was changed",
                    path.display()
                );
                return Err(io::Error::new(ErrorKind::WouldBlock, sentence));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let directory = fs::File::open(&path)?;
        Ok(Self {
            path,
            directory,
            _lock: lock,
        })
    }
}

impl Disk for FileDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is not ours.
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut at = self.len()?;
        if at >= len {
            return Ok(());
        }
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&self.0, flags, at, len - at) {
            // Where nothing can be reserved, only what is written has its space.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            reserved => return Ok(reserved?),
        }
        let zeros = vec![0; ZEROS];
        while at < len {
            let n = (len - at).min(ZEROS as u64);
            self.0.write_all_at(&zeros[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_behind(&self) -> io::Result<()> {
        let begun = Instant::now();
        self.0.sync_data()?;
        std::thread::sleep(begun.elapsed());
        Ok(())
    }
}
