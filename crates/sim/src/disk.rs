//! One machine's disk: the real store and the real log format on a disk in memory.
//!
//! A flush takes virtual time, and only at its end is the data durable. A crash in between leaves
//! what a power loss leaves: some of the write, in sectors, in any order. A full disk has room for
//! one flush more where the process gives its reserve back, unless another program takes that.

use crate::dice::Dice;
use fermata_driver::ballast::Ballast;
use fermata_protocol::base::Incarnation;
use fermata_storage::{Flush, FlushDone, Lack, Lsn, MemDisk, Options, Persisted, Store};
use std::io;
use std::sync::Arc;

/// The disk of one machine.
pub struct Disk {
    medium: Arc<MemDisk>,
    /// The flush under way.
    flush: Option<Flush>,
    options: Options,
    /// Which data directory this is.
    pub incarnation: Incarnation,
    /// How long a flush takes, microseconds: from and to.
    pub latency: (u64, u64),
    /// Every write takes new space, so that a full disk is met at once.
    pub copies: bool,
    /// Another program takes what the process gives back of a full disk.
    pub greedy: bool,
    /// There is no room, but for `room` flushes.
    full: bool,
    room: u32,
    /// The process keeps a reserve.
    reserve: bool,
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
    /// An empty disk; `segment_bytes` and `checkpoint_bytes` as of the store's options.
    pub fn new(incarnation: Incarnation, (segment_bytes, checkpoint_bytes): (u64, u64)) -> Disk {
        Disk {
            medium: Arc::new(MemDisk::new()),
            flush: None,
            options: Options {
                segment_bytes,
                checkpoint_bytes,
                verify_table: false,
            },
            incarnation,
            latency: (0, 0),
            copies: false,
            greedy: false,
            full: false,
            room: 0,
            reserve: false,
            skips_flush: false,
            before_flush: None,
        }
    }

    /// Opens the store, as a starting process does.
    ///
    /// # Errors
    /// The store's own sentence, when it refuses the directory.
    pub fn open(&mut self) -> Result<Store, String> {
        let opened = Store::open(self.medium.clone(), self.options);
        let (store, _recovery) = opened.map_err(|e| e.to_string())?;
        Ok(store)
    }

    fn ballast(&self) -> Ballast {
        Ballast::new(self.medium.clone(), self.options.segment_bytes)
    }

    /// The process makes its reserve.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn raise(&mut self) -> io::Result<()> {
        let raised = self.ballast().raise();
        self.reserve = raised.is_ok();
        raised
    }

    /// A flush begins: how long it takes.
    ///
    /// # Panics
    /// If there is one under way (D2).
    pub fn begin_flush(&mut self, flush: Flush, dice: &mut Dice) -> u64 {
        let before = self.flush.replace(flush);
        assert!(before.is_none(), "one flush at a time");
        dice.between(self.latency.0, self.latency.1)
    }

    /// Whether a flush is under way.
    pub fn is_flushing(&self) -> bool {
        self.flush.is_some()
    }

    /// Ends the flush under way: what became of it, and what the process is told.
    pub fn end_flush(&mut self) -> (Flushed, FlushDone) {
        let flush = self.flush.take().expect("a flush that ends has begun");
        let last = flush.last();
        if self.skips_flush {
            self.before_flush = Some(MemDisk::clone(&self.medium));
        }
        let fits = self.room > 0;
        self.room = 0;
        self.medium.set_full(self.full && !fits);
        let done = flush.run();
        self.medium.set_full(self.full);
        let result = match done.outcome() {
            Persisted::Done => Flushed::Through(last),
            Persisted::Full(lack) => {
                if *lack == Lack::Space && std::mem::take(&mut self.reserve) {
                    self.ballast().release();
                    self.room = u32::from(!self.greedy);
                }
                Flushed::Full
            }
            Persisted::Fatal(_) => Flushed::Broken,
        };
        (result, done)
    }

    /// The process is killed and the power fails: what was not flushed is lost, some of it perhaps
    /// not, and the last write perhaps torn.
    pub fn crash(&mut self, dice: &mut Dice) {
        if let Some(flush) = self.flush.take() {
            // The flush had begun: a part of its changes has reached the medium's cache.
            self.medium.fail_after(Some(dice.below(3)));
            drop(flush.run());
        }
        let medium = self.before_flush.take();
        let medium = medium.as_ref().unwrap_or(&*self.medium);
        self.medium = Arc::new(medium.crash(dice.draw()));
        (self.full, self.reserve, self.room) = (false, false, 0);
    }

    /// The process has stopped in an orderly way.
    pub fn close(&mut self) {
        self.flush = None;
    }

    /// The disk is replaced by an empty one.
    pub fn wipe(&mut self, incarnation: Incarnation) {
        self.flush = None;
        self.medium = Arc::new(MemDisk::new());
        self.incarnation = incarnation;
    }

    /// A copy of the directory, as an operator makes one while no process runs.
    pub fn copy(&self) -> Disk {
        assert!(self.flush.is_none(), "the process has stopped");
        Disk {
            medium: Arc::new(MemDisk::clone(&self.medium)),
            flush: None,
            options: self.options,
            incarnation: self.incarnation,
            latency: self.latency,
            copies: self.copies,
            greedy: self.greedy,
            full: self.full,
            room: 0,
            reserve: false,
            skips_flush: self.skips_flush,
            before_flush: None,
        }
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// From now on there is no room, or there is again.
    pub fn set_full(&mut self, full: bool) {
        (self.full, self.room) = (full, 0);
        self.medium.set_full(full);
        self.medium.set_copies(self.copies);
    }

    /// One bit of the directory rots: somewhere in what is used of a log segment, or in the table.
    /// `used` is how much of the log a running process has written, as far as that is known.
    pub fn rot(&mut self, used: Option<u64>, dice: &mut Dice) {
        use fermata_storage::Disk as _;
        let names = self.medium.list().unwrap_or_default();
        let holds = |n: &&String| n.starts_with("wal-") || n.starts_with("table.");
        let files: Vec<&String> = names.iter().filter(holds).collect();
        let used = used.unwrap_or(4_096).clamp(1, 64 << 10);
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

    /// One bit of a record's value rots in the log, where it was written last: whether it was
    /// found. Keys are written ahead of the values of a batch.
    pub fn rot_record(&mut self, key: &[u8], value: &[u8]) -> bool {
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
                let put = bytes.windows(key.len()).rposition(|w| w == key);
                let at = put.and_then(|put| {
                    let from = put + key.len();
                    let mut values = bytes[from..].windows(value.len());
                    Some((from + values.position(|w| w == value)?) as u64)
                });
                newest = at.map(|at| (name, at)).or(newest);
            }
        }
        let Some((name, at)) = newest else {
            return false;
        };
        self.medium.corrupt(&name, at);
        true
    }
}
