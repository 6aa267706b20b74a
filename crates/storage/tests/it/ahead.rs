//! What a flush writes beyond its own records.

use crate::common::{flush, log_only, put};
use fermata_storage::{Disk, File, MemDisk, Options, Store};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk that counts the bytes written to it.
struct Counting {
    disk: MemDisk,
    written: Arc<AtomicU64>,
}

struct Counted {
    file: Arc<dyn File>,
    written: Arc<AtomicU64>,
}

impl Disk for Counting {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let (file, written) = (self.disk.open(name)?, self.written.clone());
        Ok(Arc::new(Counted { file, written }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

impl File for Counted {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.file.write_at(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[test]
fn small_flushes_write_zeros_ahead_now_and_then_and_large_ones_never() {
    const MIB: u64 = 1 << 20;
    let written = Arc::new(AtomicU64::new(0));
    let disk = Counting {
        disk: MemDisk::new(),
        written: written.clone(),
    };
    let options = Options {
        segment_bytes: 16 * MIB,
        ..log_only()
    };
    let (mut store, _) = Store::open(Arc::new(disk), options).expect("opens");
    let mut flushes = |count: usize, len: usize| {
        written.store(0, Ordering::Relaxed);
        for _ in 0..count {
            put(&mut store, "k", vec![7; len]);
            flush(&mut store);
        }
        written.load(Ordering::Relaxed)
    };
    let first = flushes(1, 100);
    assert!((MIB..MIB + 4096).contains(&first), "{first}");
    let next = flushes(1_000, 100);
    assert!((100_000..MIB / 2).contains(&next), "{next}");
    let large = flushes(4, 1 << 20);
    assert!((4 * MIB..4 * MIB + 4096).contains(&large), "{large}");
    let ahead = flushes(1, 100);
    assert!((MIB..MIB + 4096).contains(&ahead), "{ahead}");
}
