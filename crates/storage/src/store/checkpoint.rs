//! Moving a frozen memtable into the table, and the log segments it covers away.
//!
//! The memtable is frozen when a flush is taken, because then it ends exactly where the flush ends:
//! as soon as that flush is durable, the table may hold all of it without getting ahead of the log.
//!
//! What the table has to merge is done in steps of one file, so that a checkpoint waits for no more
//! than that: so many per checkpoint as keep up with what comes in, and more in quiet hours, when
//! [`Store::take_tidying`] hands them out. So does [`Store::take_check`] with what a start has not
//! read.

use super::{Frozen, Lsn, Persisted, Store};
use crate::disk::{Disk, Lack};
use crate::memtable::Memtable;
use crate::table::{Snapshot, Table};
use crate::wal::{SegmentInfo, Spares};
use bytes::Bytes;
use std::sync::Arc;

/// So many bytes are read by one step of a check.
const CHECK: u64 = 16 << 20;
/// So many steps of merges may be owed while a checkpoint is written first.
const OWED: u64 = 16;

/// Work at the table. Run it on a thread that may block for long; flushes go on beside it. Then
/// give the result to [`Store::checkpointed`].
#[must_use = "the log grows until it has run"]
pub struct Checkpoint {
    disk: Arc<dyn Disk>,
    spares: Arc<Spares>,
    table: Arc<Table>,
    work: Work,
    /// Others go before at the disk.
    gentle: bool,
}

enum Work {
    /// A frozen memtable is written.
    Write {
        memtable: Arc<Memtable>,
        /// The last batch in it, and the bytes of its records.
        last: Lsn,
        bytes: u64,
        /// The segments it covers.
        covered: Vec<SegmentInfo>,
    },
    /// A step of a merge, in a quiet hour or not.
    Merge { quiet: bool },
    /// Entries are read, from a key on.
    Check(Snapshot, Bytes),
    /// Nothing but what every work begins with: what was left over goes.
    LetGo,
}

/// What became of a [`Checkpoint`].
#[must_use = "give it to `Store::checkpointed`"]
pub struct CheckpointDone {
    outcome: Persisted,
    did: Did,
}

/// What is to be known of it where it succeeded.
enum Did {
    /// Segments that it covered, and the steps of merges that it is worth.
    Write {
        covered: Vec<SegmentInfo>,
        steps: u64,
    },
    /// Whether there may be more to do.
    Merge {
        quiet: bool,
        more: bool,
    },
    /// Void keys, and where to go on.
    Check(u64, Option<Bytes>),
    LetGo,
}

impl CheckpointDone {
    /// What became of it. After [`Persisted::Full`] the store offers it again.
    pub fn outcome(&self) -> &Persisted {
        &self.outcome
    }
}

impl Checkpoint {
    /// Writes a memtable durably and lets the log segments go that it covers, or does another step
    /// of work; blocks.
    pub fn run(self) -> CheckpointDone {
        let gentle = self.gentle;
        self.table.let_go(gentle);
        let (result, did) = match self.work {
            Work::Write {
                memtable,
                last,
                bytes,
                covered,
            } => {
                let written = self.table.write(&memtable, last, gentle);
                let written = written.and_then(|()| self.spares.retire(&*self.disk, &covered));
                let steps = self.table.steps(bytes);
                (written, Did::Write { covered, steps })
            }
            Work::Merge { quiet } => {
                let merged = self.table.merge(quiet, gentle);
                let more = matches!(merged, Ok(true));
                (merged.map(drop), Did::Merge { quiet, more })
            }
            Work::Check(snapshot, from) => match snapshot.verify(&from, CHECK) {
                Ok((void, next)) => (Ok(()), Did::Check(void.len() as u64, next)),
                Err(error) => (Err(error), Did::Check(0, None)),
            },
            Work::LetGo => (Ok(()), Did::LetGo),
        };
        let outcome = match result {
            Ok(()) => Persisted::Done,
            Err(error) => match Lack::of(&error) {
                Some(lack) => {
                    if lack == Lack::Space {
                        self.spares.release(&*self.disk);
                    }
                    Persisted::Full(lack)
                }
                None => Persisted::Fatal(error),
            },
        };
        CheckpointDone { outcome, did }
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
        });
    }

    /// Takes the checkpoint that is due, when the log since the last one exceeds
    /// `options.checkpoint_bytes` and is durable, or a step of what is to be merged by then, or
    /// lets go what the last one made useless. `None` if nothing is due or one is outstanding.
    pub fn take_checkpoint(&mut self) -> Option<Checkpoint> {
        let merge = Work::Merge { quiet: false };
        if self.owed > OWED {
            // Reads would have to look into ever more runs.
            return self.hand_out(merge);
        }
        let due = self.active_bytes > 0 && self.active_bytes >= self.options.checkpoint_bytes;
        match self.take(due) {
            None if self.owed > 0 => self.hand_out(merge),
            None if self.table.has_leftovers() => self.hand_out(Work::LetGo),
            checkpoint => checkpoint,
        }
    }

    /// Takes a step of what can be tidied up when little else is to be done, so that the space of
    /// deleted data comes back: a checkpoint of many deletions, or a step of merging everything.
    /// `None` if there is nothing, or a checkpoint is outstanding.
    pub fn take_tidying(&mut self) -> Option<Checkpoint> {
        let due = self.active_bytes > 0 && self.table.is_hidden_by(&self.active);
        let checkpoint = self.take(due);
        if checkpoint.is_some() || self.tidy {
            return checkpoint;
        }
        self.hand_out(Work::Merge { quiet: true })
    }

    /// Takes a step of reading what the table has, where `open` has not done that. No read needs
    /// it: what a check finds is told early, and not when somebody asks for it.
    pub fn take_check(&mut self) -> Option<Checkpoint> {
        let from = self.unchecked.clone()?;
        self.hand_out(Work::Check(self.snapshot.clone(), from))
    }

    fn take(&mut self, due: bool) -> Option<Checkpoint> {
        if self.frozen.is_none() && due && self.durable == self.last {
            self.freeze();
        }
        let frozen = self.frozen.as_ref()?;
        if frozen.last > self.durable {
            return None;
        }
        // A segment goes only when the next one is durable: the log is never without a segment.
        let closed = self.segments.len().saturating_sub(1);
        let covered = self.segments.iter().take(closed);
        self.hand_out(Work::Write {
            memtable: frozen.memtable.clone(),
            last: frozen.last,
            bytes: frozen.bytes,
            covered: covered.filter(|s| s.last <= frozen.last).copied().collect(),
        })
    }

    fn hand_out(&mut self, work: Work) -> Option<Checkpoint> {
        if self.checkpointing || self.failure.get().is_some() {
            return None;
        }
        self.checkpointing = true;
        Some(Checkpoint {
            disk: self.disk.clone(),
            spares: self.spares.clone(),
            table: self.table.clone(),
            work,
            gentle: self.owed <= OWED / 2 && self.active_bytes <= self.options.checkpoint_bytes / 2,
        })
    }

    /// Takes the result of the outstanding checkpoint.
    ///
    /// # Panics
    ///
    /// If none is outstanding.
    pub fn checkpointed(&mut self, done: CheckpointDone) {
        let outstanding = std::mem::take(&mut self.checkpointing);
        assert!(
            outstanding,
            "a checkpoint result without an outstanding checkpoint"
        );
        match done.outcome {
            Persisted::Done => self.learn(done.did),
            Persisted::Full(_) => self.stats.full += 1,
            Persisted::Fatal(error) => self.fail(&error),
        }
    }

    fn learn(&mut self, did: Did) {
        self.snapshot = self.table.snapshot();
        match did {
            Did::Write { covered, steps } => {
                self.frozen = None;
                (self.tidy, self.owed) = (false, self.owed + steps);
                self.segments
                    .retain(|segment| !covered.iter().any(|c| c.number == segment.number));
                self.stats.checkpoints += 1;
            }
            Did::Merge { quiet, more } => {
                self.owed = if more { self.owed.saturating_sub(1) } else { 0 };
                self.tidy = quiet && !more;
            }
            Did::Check(void, next) => {
                self.unchecked = next;
                self.stats.void += void;
            }
            Did::LetGo => {}
        }
    }
}
