//! One machine's disk: the real store and the real log format on a disk in memory.
//!
//! A flush takes virtual time, and only at its end is the data durable. A crash in between leaves
//! what a power loss leaves: some of the write, in sectors, in any order.

use crate::dice::Dice;
use bytes::Bytes;
use fermata_protocol::base::Incarnation;
use fermata_protocol::io::{Memory, Void, Write};
use fermata_storage::{Batch, Flush, Lsn, MemDisk, Op, Options, Persisted, Store};
use std::sync::Arc;

/// The disk of one machine, and the store on it while a process runs.
pub struct Disk {
    medium: Arc<MemDisk>,
    store: Option<Store>,
    flush: Option<Flush>,
    options: Options,
    /// Which data directory this is.
    pub incarnation: Incarnation,
    /// How long a flush takes, microseconds: from and to.
    pub latency: (u64, u64),
    /// The last flush met a full disk.
    pub full: bool,
    /// A planted bug: the last flush has not reached the medium when the power fails.
    pub skips_flush: bool,
    before_flush: Option<MemDisk>,
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything up to here is durable.
    Through(Lsn),
    /// No room: try again later.
    Full,
    /// The process must stop.
    Broken,
}

impl Disk {
    /// An empty disk; `checkpoint_bytes` as of the store's options.
    pub fn new(incarnation: Incarnation, checkpoint_bytes: u64) -> Disk {
        Disk {
            medium: Arc::new(MemDisk::new()),
            store: None,
            flush: None,
            options: Options {
                segment_bytes: 256 << 10,
                checkpoint_bytes,
                table_cache_bytes: 1 << 20,
                verify_table: true,
            },
            incarnation,
            latency: (0, 0),
            full: false,
            skips_flush: false,
            before_flush: None,
        }
    }

    /// Opens the store, as a starting process does.
    ///
    /// # Errors
    /// The store's own sentence, when it refuses the directory.
    pub fn open(&mut self) -> Result<(), String> {
        assert!(self.store.is_none(), "a process opens its directory once");
        let opened = Store::open(self.medium.clone(), self.options);
        let (store, _recovery) = opened.map_err(|e| e.to_string())?;
        self.store = Some(store);
        self.full = false;
        Ok(())
    }

    /// The durable memory, as the running process reads it.
    pub fn memory(&self) -> Option<Recall<'_>> {
        self.store.as_ref().map(Recall)
    }

    /// Appends the writes of one step; the number after which they are durable.
    pub fn append(&mut self, writes: Vec<Write>) -> Lsn {
        let store = self.store.as_mut().expect("only a running process writes");
        if !writes.is_empty() {
            store.append(Batch(writes.into_iter().map(op).collect()));
        }
        store.last()
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Lsn {
        self.store.as_ref().map_or(0, Store::durable)
    }

    /// Starts a flush if there is something to flush and none is under way: how long it takes.
    pub fn start_flush(&mut self, dice: &mut Dice) -> Option<u64> {
        let store = self.store.as_mut()?;
        if self.flush.is_some() {
            return None;
        }
        self.flush = store.take_flush();
        self.flush.as_ref()?;
        Some(dice.between(self.latency.0, self.latency.1))
    }

    /// Ends the flush under way.
    pub fn end_flush(&mut self) -> Flushed {
        let store = self.store.as_mut().expect("only a running process flushes");
        let flush = self.flush.take().expect("a flush that ends has begun");
        let flush_last = flush.last();
        if self.skips_flush {
            self.before_flush = Some(MemDisk::clone(&self.medium));
        }
        let done = flush.run();
        let result = match done.outcome() {
            Persisted::Done => Flushed::Through(flush_last),
            Persisted::Full(_) => Flushed::Full,
            Persisted::Fatal(_) => Flushed::Broken,
        };
        store.flushed(done);
        if result != Flushed::Full
            && let Some(checkpoint) = store.take_checkpoint()
        {
            store.checkpointed(checkpoint.run());
        }
        result
    }

    /// The process is killed and the power fails: what was not flushed is lost, some of it perhaps
    /// not, and the last write perhaps torn.
    pub fn crash(&mut self, dice: &mut Dice) {
        if let Some(flush) = self.flush.take() {
            // The flush had begun: a part of its changes has reached the medium's cache.
            self.medium.fail_after(Some(dice.below(3)));
            drop(flush.run());
        }
        self.store = None;
        let medium = self.before_flush.take();
        let medium = medium.as_ref().unwrap_or(&*self.medium);
        self.medium = Arc::new(medium.crash(dice.draw()));
    }

    /// The process stops in an orderly way and everything is flushed first.
    pub fn close(&mut self) {
        while self.flush.is_some() || self.start_flush(&mut Dice::new(0)).is_some() {
            if self.end_flush() != Flushed::Full {
                continue;
            }
            break;
        }
        self.flush = None;
        self.store = None;
    }

    /// The disk is replaced by an empty one.
    pub fn wipe(&mut self, incarnation: Incarnation) {
        self.store = None;
        self.flush = None;
        self.medium = Arc::new(MemDisk::new());
        self.incarnation = incarnation;
    }

    /// A copy of the directory, as an operator makes one while no process runs.
    pub fn copy(&self) -> Disk {
        assert!(self.store.is_none(), "the process has stopped");
        Disk {
            medium: Arc::new(MemDisk::clone(&self.medium)),
            store: None,
            flush: None,
            options: self.options,
            incarnation: self.incarnation,
            latency: self.latency,
            full: false,
            skips_flush: self.skips_flush,
            before_flush: None,
        }
    }

    /// From now on there is no room, or there is again.
    pub fn set_full(&mut self, full: bool) {
        self.medium.set_full(full);
    }

    /// One bit of the directory rots: somewhere in what is used of a log segment, or in the table.
    pub fn rot(&mut self, dice: &mut Dice) {
        use fermata_storage::Disk as _;
        let names = self.medium.list().unwrap_or_default();
        let holds = |n: &&String| n.starts_with("wal-") || n.starts_with("table.");
        let files: Vec<&String> = names.iter().filter(holds).collect();
        let used = self.store.as_ref().map_or(4_096, |s| s.stats().wal_bytes);
        let used = used.clamp(1, 64 << 10);
        if let Some(name) = dice.pick(&files) {
            let file = self.medium.open(name);
            let length = file.and_then(|f| f.len()).unwrap_or(0);
            let used = if name.starts_with("wal-") {
                used
            } else {
                length
            };
            if length > 0 {
                self.medium.corrupt(name, dice.below(used.min(length)));
            }
        }
    }

    /// One bit of the newest copy of a value in the log rots: whether there is one.
    pub fn rot_value(&mut self, value: &[u8]) -> bool {
        use fermata_storage::Disk as _;
        let mut newest = None;
        let mut names = self.medium.list().unwrap_or_default();
        names.retain(|n| n.starts_with("wal-"));
        for name in names {
            let Ok(file) = self.medium.open(&name) else {
                continue;
            };
            let mut bytes = vec![0; file.len().unwrap_or(0) as usize];
            if file.read_at(0, &mut bytes).is_ok() {
                let at = bytes.windows(value.len()).rposition(|w| w == value);
                newest = at.map(|at| (name, at as u64)).or(newest);
            }
        }
        let Some((name, at)) = newest else {
            return false;
        };
        self.medium.corrupt(&name, at);
        true
    }
}

fn op(write: Write) -> Op {
    match write {
        Write::Put { key, value } => Op::Put { key, value },
        Write::Delete { key } => Op::Delete { key },
        Write::DeleteRange { from, to } => Op::DeleteRange { from, to },
    }
}

/// The store as the protocol reads it.
#[derive(Clone, Copy)]
pub struct Recall<'a>(&'a Store);

impl Memory for Recall<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Void> {
        self.0.get(key).map_err(|_| Void)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Vec<(Bytes, Result<Bytes, Void>)> {
        let found = self.0.scan(from, to).take(limit);
        found
            .map(|(key, value)| (key, value.map_err(|_| Void)))
            .collect()
    }

    fn is_durable(&self, key: &[u8]) -> bool {
        self.0.is_durable(key)
    }
}
