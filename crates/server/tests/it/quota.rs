//! A disk with so much space, which gives back what is removed.

use fermata_storage::{Disk, File, MemDisk};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

/// Counts the lengths of files; what would exceed the limit does not fit and changes nothing.
#[derive(Clone)]
pub(crate) struct Quota {
    disk: Arc<MemDisk>,
    used: Arc<Mutex<Used>>,
}

struct Used {
    limit: u64,
    files: BTreeMap<String, u64>,
}

impl Used {
    fn grow(&mut self, name: &str, len: u64) -> io::Result<()> {
        let old = self.files.get(name).copied().unwrap_or_default();
        let total: u64 = self.files.values().sum();
        if len > old && total + (len - old) > self.limit {
            return Err(ErrorKind::StorageFull.into());
        }
        self.files.insert(name.to_owned(), len.max(old));
        Ok(())
    }
}

impl Quota {
    pub(crate) fn new(limit: u64) -> Quota {
        let used = Used {
            limit,
            files: BTreeMap::new(),
        };
        Quota {
            disk: Arc::new(MemDisk::new()),
            used: Arc::new(Mutex::new(used)),
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap()
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.used().limit = limit;
    }

    /// Removes a file behind the node's back.
    pub(crate) fn disk_without(&self, name: &str) {
        // It may not be there.
        let _ = self.remove(name);
    }

    /// Leaves no space beyond what is used now.
    pub(crate) fn fill(&self) {
        let mut used = self.used();
        used.limit = used.files.values().sum();
    }
}

impl Disk for Quota {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.used().grow(name, 0)?;
        Ok(Arc::new(Counted {
            file: self.disk.open(name)?,
            name: name.to_owned(),
            quota: self.clone(),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)?;
        self.used().files.remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)?;
        let mut used = self.used();
        let len = used.files.remove(from).unwrap_or_default();
        used.files.insert(to.to_owned(), len);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

struct Counted {
    file: Arc<dyn File>,
    name: String,
    quota: Quota,
}

impl File for Counted {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        self.quota.used().grow(&self.name, end)?;
        self.file.write_at(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.quota.used().grow(&self.name, len)?;
        self.file.set_len(len)?;
        self.quota.used().files.insert(self.name.clone(), len);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.quota.used().grow(&self.name, len)?;
        self.file.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
