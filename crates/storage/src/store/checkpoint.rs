//! Moving a frozen memtable into the table, and the log segments it covers away.
//!
//! The memtable is frozen when a flush is taken, because then it ends exactly where the flush ends:
//! as soon as that flush is durable, the table may hold all of it without getting ahead of the log.

use super::{Frozen, Lsn, Persisted, Store};
use crate::disk::{Disk, Lack};
use crate::memtable::Memtable;
use crate::table::{Table, Written};
use crate::wal;
use std::io;
use std::sync::Arc;

/// A frozen memtable to be written to the table. Run it on a thread that may block for long;
/// flushes go on beside it. Then give the result to `Store::checkpointed`.
#[must_use = "the log grows until it has run"]
pub struct Checkpoint {
    disk: Arc<dyn Disk>,
    table: Arc<Table>,
    memtable: Arc<Memtable>,
    last: Lsn,
    stalled: bool,
    /// Numbers of the segments it covers.
    covered: Vec<u64>,
}

/// What became of a [`Checkpoint`].
#[must_use = "give it to `Store::checkpointed`"]
pub struct CheckpointDone {
    outcome: Persisted,
    covered: Vec<u64>,
}

impl CheckpointDone {
    /// What became of it. After [`Persisted::Full`] the store offers it again.
    pub fn outcome(&self) -> &Persisted {
        &self.outcome
    }
}

impl Checkpoint {
    /// The last batch in it.
    pub fn last(&self) -> Lsn {
        self.last
    }

    /// Writes the table durably and removes the log segments that it covers; blocks.
    pub fn run(self) -> CheckpointDone {
        let result = if self.stalled {
            self.table.drain()
        } else {
            self.table
                .write(&self.memtable, self.last)
                .map_err(io::Error::other)
        };
        let outcome = match result {
            Ok(Written::Done) => match self.remove_covered() {
                Ok(()) => Persisted::Done,
                Err(error) => Persisted::Fatal(error),
            },
            Ok(Written::Full) => Persisted::Full(Lack::Space),
            Err(error) => Persisted::Fatal(error),
        };
        CheckpointDone {
            outcome,
            covered: self.covered,
        }
    }

    /// A crash may undo any of the removals; recovery then repeats them.
    fn remove_covered(&self) -> io::Result<()> {
        for number in &self.covered {
            self.disk.remove(&wal::name(*number))?;
        }
        self.disk.sync_dir()
    }
}

impl Store {
    /// Puts the active memtable aside for a checkpoint, unless one is under way. All of it must
    /// have been taken by a flush.
    pub(super) fn freeze(&mut self) {
        if self.frozen.is_some() {
            return;
        }
        self.frozen = Some(Frozen {
            memtable: Arc::new(std::mem::take(&mut self.active)),
            last: self.taken,
            bytes: std::mem::take(&mut self.active_bytes),
            writing: false,
            stalled: false,
        });
    }

    /// Takes the checkpoint that is due: when the log since the last one exceeds
    /// `options.checkpoint_bytes` and is durable. `None` if none is due or one is outstanding.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        if self.failure.get().is_some() {
            return None;
        }
        let due = self.active_bytes > 0 && self.active_bytes >= self.options.checkpoint_bytes;
        if self.frozen.is_none() && due && self.durable == self.last {
            self.freeze();
        }
        let frozen = self.frozen.as_mut()?;
        if frozen.writing || frozen.last > self.durable {
            return None;
        }
        frozen.writing = true;
        // A segment goes only when the next one is durable: the log is never without a segment.
        let closed = self.segments.len().saturating_sub(1);
        let covered = self.segments.iter().take(closed);
        Some(Checkpoint {
            disk: self.disk.clone(),
            table: self.table.clone(),
            memtable: frozen.memtable.clone(),
            last: frozen.last,
            stalled: frozen.stalled,
            covered: covered
                .filter(|s| s.last <= frozen.last)
                .map(|s| s.number)
                .collect(),
        })
    }

    /// Takes the result of the outstanding checkpoint.
    ///
    /// # Panics
    ///
    /// If none is outstanding.
    pub fn checkpointed(&mut self, done: CheckpointDone) {
        let frozen = self.frozen.as_mut().filter(|frozen| frozen.writing);
        let frozen = frozen.expect("a checkpoint result without an outstanding checkpoint");
        frozen.writing = false;
        match done.outcome {
            Persisted::Done => match self.table.snapshot() {
                Ok(snapshot) => {
                    self.snapshot = snapshot;
                    self.frozen = None;
                    self.segments
                        .retain(|segment| !done.covered.contains(&segment.number));
                    self.stats.checkpoints += 1;
                }
                Err(error) => self.fail(&error),
            },
            Persisted::Full(_) => {
                frozen.stalled = true;
                self.stats.full += 1;
            }
            Persisted::Fatal(error) => self.fail(&error),
        }
    }
}
