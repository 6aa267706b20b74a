//! What one replica of a log keeps durably, record by record.
//!
//! A vote (`Accepted`) also says how far this replica knew the log to be chosen when it voted:
//! after a restart that prefix is applied at once, and phase 1 need not report it again.

use super::{Entry, Log, Reserved, Stop, Void};
use crate::base::{Ballot, LogId, NodeName, Seat, Slot, View};
use crate::io::{Effects, Memory};
use crate::wire::record::{self, LogRecord};
use crate::wire::{decode, encode};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The ballot under which a replica keeps an entry that it was told to be chosen. It is above every
/// ballot that is ever led: nothing outvotes a chosen entry.
pub(super) const CHOSEN: Ballot = Ballot {
    round: u32::MAX,
    seat: Seat(u8::MAX),
};

/// Rounds from here on are refused, so that a round can always be outbid.
pub(super) const ROUNDS: u32 = u32::MAX - 1;

/// Records read per scan at recovery.
const PAGE: usize = 1_024;

/// That the log exists.
#[derive(Serialize, Deserialize)]
pub(super) struct CreatedRecord {
    pub(super) view: View,
    pub(super) first: Seat,
    pub(super) start: Bytes,
}

/// The promise, and the highest round that this seat ever stood for: a ballot is led by one
/// process.
#[derive(Serialize, Deserialize)]
struct PromiseRecord {
    promised: Ballot,
    used: u32,
}

/// One vote.
#[derive(Serialize, Deserialize)]
struct AcceptedRecord {
    ballot: Ballot,
    chosen: Slot,
    reserved: Reserved,
    entry: Entry,
}

#[derive(Serialize)]
struct AcceptedRecordRef<'a> {
    ballot: Ballot,
    chosen: Slot,
    reserved: Reserved,
    entry: &'a Entry,
}

/// The state after a slot, with what the log itself must know of the slots below.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    /// The last slot whose effect is included.
    pub(super) slot: Slot,
    /// The highest `Begin` up to there.
    pub(super) begin: Ballot,
    /// Whether the log had ended there.
    pub(super) stopped: Option<Stop>,
    /// Nothing.
    pub(super) reserved: Reserved,
    /// The caller's state, opaque.
    pub(super) state: Bytes,
}

/// A vote in memory.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) ballot: Ballot,
    pub(super) entry: Entry,
    /// Of the entry.
    pub(super) bytes: usize,
}

impl Held {
    pub(super) fn new(ballot: Ballot, entry: Entry) -> Held {
        let bytes = entry.bytes();
        Held {
            ballot,
            entry,
            bytes,
        }
    }
}

/// Everything that one replica has on disk.
pub(super) struct Disk {
    pub(super) created: CreatedRecord,
    pub(super) promised: Ballot,
    pub(super) used: u32,
    pub(super) snapshot: Option<(SnapshotRecord, Bytes)>,
    pub(super) held: BTreeMap<Slot, Held>,
    pub(super) void: BTreeSet<Slot>,
    pub(super) chosen: Slot,
}

fn read<T: DeserializeOwned>(
    id: LogId,
    kind: LogRecord,
    memory: &dyn Memory,
) -> Result<Option<(T, Bytes)>, Unrecoverable> {
    let Some(raw) = memory
        .get(&record::log(id, kind))
        .map_err(|Void| Unrecoverable::Void(kind))?
    else {
        return Ok(None);
    };
    let value = decode(&raw).map_err(|_| Unrecoverable::Void(kind))?;
    Ok(Some((value, raw)))
}

/// Why a replica of a log cannot be rebuilt. It must not take part in the log: its promises and
/// votes are unknown, which is not the same as never promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecoverable {
    /// There is no such log here.
    Missing,
    /// This node has no seat in the log's view.
    NotMember,
    /// A record that exists once per log is corrupt.
    Void(LogRecord),
}

impl core::fmt::Display for Unrecoverable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Unrecoverable::Missing => f.write_str("there is no record of this log on this node"),
            Unrecoverable::NotMember => f.write_str("this node has no seat in the log's view"),
            Unrecoverable::Void(kind) => write!(
                f,
                "the log's {kind:?} record is corrupt, so this replica must not vote: replace it \
                 by a new incarnation; the log is unharmed while a majority of it is intact"
            ),
        }
    }
}

/// Reads a replica back.
pub(super) fn load(id: LogId, memory: &dyn Memory) -> Result<Disk, Unrecoverable> {
    let created: CreatedRecord = read(id, LogRecord::Created, memory)?
        .ok_or(Unrecoverable::Missing)?
        .0;
    let zero = Ballot {
        round: 0,
        seat: created.first,
    };
    let promise = read::<PromiseRecord>(id, LogRecord::Promise, memory)?;
    let snapshot = read::<SnapshotRecord>(id, LogRecord::Snapshot, memory)?;
    let base = snapshot.as_ref().map_or(Slot(0), |(s, _)| s.slot);
    let mut disk = Disk {
        created,
        promised: promise.as_ref().map_or(zero, |(p, _)| p.promised),
        used: promise.as_ref().map_or(0, |(p, _)| p.used),
        snapshot,
        held: BTreeMap::new(),
        void: BTreeSet::new(),
        chosen: base,
    };
    let mut from = record::accepted(id, base.next());
    let to = record::log(id, LogRecord::Snapshot);
    loop {
        let page = memory.scan(&from, &to, PAGE);
        let full = page.len() == PAGE;
        let Some((last, _)) = page.last() else { break };
        let mut following = last.to_vec();
        following.push(0);
        for (key, value) in page {
            let Some(slot) = record::slot_of(&key) else {
                continue;
            };
            disk.take(slot, value);
        }
        if !full {
            break;
        }
        from = following.into();
    }
    disk.settle(base);
    Ok(disk)
}

impl Disk {
    fn take(&mut self, slot: Slot, value: Result<Bytes, Void>) {
        match value.map(|raw| decode::<AcceptedRecord>(&raw)) {
            Ok(Ok(vote)) => {
                self.chosen = self.chosen.max(vote.chosen);
                self.held.insert(slot, Held::new(vote.ballot, vote.entry));
            }
            // Neither "voted for nothing" nor any guess: see `Log::muted`.
            _ => {
                self.void.insert(slot);
            }
        }
    }

    /// The chosen prefix ends where an entry is missing. (Votes for learned entries are `CHOSEN`
    /// themselves and extend it.)
    fn settle(&mut self, base: Slot) {
        let mut chosen = base;
        while let Some(held) = self.held.get(&chosen.next()) {
            if chosen.next() > self.chosen && held.ballot != CHOSEN {
                break;
            }
            chosen = chosen.next();
            if matches!(held.entry, Entry::Stop(_)) {
                break;
            }
        }
        self.chosen = chosen;
    }

    pub(super) fn seat_of(&self, me: NodeName) -> Result<Seat, Unrecoverable> {
        self.created
            .view
            .seat_of(me)
            .ok_or(Unrecoverable::NotMember)
    }
}

/// Puts all records of a log of this node under another name, with these members, and the states
/// rewritten; one that cannot be rewritten is as corrupt.
///
/// # Errors
/// What is wrong with the log's records.
pub(crate) fn rename(
    from: LogId,
    (to, view): (LogId, &View),
    memory: &dyn Memory,
    state: impl Fn(&Bytes) -> Option<Bytes>,
    fx: &mut Effects,
) -> Result<(), Unrecoverable> {
    let void = |_| Unrecoverable::Void(LogRecord::Promise);
    let promise = memory.get(&record::log(from, LogRecord::Promise));
    let mut kept = Vec::new();
    if let Some(promise) = promise.map_err(void)? {
        kept.push((record::log(to, LogRecord::Promise), promise));
    }
    let (first, last) = (
        record::accepted(from, Slot(0)),
        record::log(from, LogRecord::Snapshot),
    );
    for (key, vote) in memory.scan(&first, &last, usize::MAX) {
        let slot = record::slot_of(&key);
        let (Some(slot), Ok(vote)) = (slot, vote) else {
            return Err(Unrecoverable::Void(LogRecord::Accepted));
        };
        kept.push((record::accepted(to, slot), vote));
    }
    Log::delete(from, fx);
    rewrite(from, (to, Some(view)), memory, state, fx)?;
    for (key, value) in kept {
        fx.put(key, value);
    }
    Ok(())
}

/// Puts the states of a log of this node, rewritten, under a name, which may be its own, with other
/// members, if any are given. Its votes are left as they are, damaged ones too.
///
/// # Errors
/// What is wrong with the log's records.
pub(crate) fn rewrite(
    from: LogId,
    (to, view): (LogId, Option<&View>),
    memory: &dyn Memory,
    state: impl Fn(&Bytes) -> Option<Bytes>,
    fx: &mut Effects,
) -> Result<(), Unrecoverable> {
    let created = read::<CreatedRecord>(from, LogRecord::Created, memory)?;
    let (created, _) = created.ok_or(Unrecoverable::Missing)?;
    let snapshot = read::<SnapshotRecord>(from, LogRecord::Snapshot, memory)?;
    let rewritten = |kind, old: &Bytes| state(old).ok_or(Unrecoverable::Void(kind));
    let start = match created.start.is_empty() {
        // The log began here with a snapshot.
        true => Bytes::new(),
        false => rewritten(LogRecord::Created, &created.start)?,
    };
    let created = CreatedRecord {
        view: view.cloned().unwrap_or(created.view),
        first: created.first,
        start,
    };
    put_created(to, &created, fx);
    if let Some((snapshot, _)) = snapshot {
        let state = rewritten(LogRecord::Snapshot, &snapshot.state)?;
        let snapshot = SnapshotRecord { state, ..snapshot };
        fx.put(record::log(to, LogRecord::Snapshot), encode(&snapshot));
    }
    Ok(())
}

pub(super) fn put_created(id: LogId, created: &CreatedRecord, fx: &mut Effects) {
    fx.put(record::log(id, LogRecord::Created), encode(created));
}

impl Log {
    /// Puts the records of a log of this node that begins with its group, as all members have it.
    pub(crate) fn found(id: LogId, view: &View, start: Bytes, fx: &mut Effects) {
        let created = CreatedRecord {
            view: view.clone(),
            first: Seat(0),
            start,
        };
        put_created(id, &created, fx);
    }

    pub(super) fn put_promise(&self, fx: &mut Effects) {
        let value = encode(&PromiseRecord {
            promised: self.promised,
            used: self.used,
        });
        fx.put(record::log(self.id, LogRecord::Promise), value);
    }

    /// Votes, or learns, in memory and on disk.
    pub(super) fn put_held(&mut self, slot: Slot, ballot: Ballot, entry: Entry, fx: &mut Effects) {
        let value = encode(&AcceptedRecordRef {
            ballot,
            chosen: self.chosen,
            reserved: Reserved::default(),
            entry: &entry,
        });
        fx.put(record::accepted(self.id, slot), value);
        self.void.remove(&slot);
        if let Entry::Stop(stop) = entry {
            self.ending = Some(stop);
        }
        let held = Held::new(ballot, entry);
        let more = held.bytes;
        let less = self.held.insert(slot, held).map_or(0, |old| old.bytes);
        if slot > self.chosen {
            self.votes = self.votes - less + more;
        }
    }

    /// Replaces everything up to the snapshot's slot by the snapshot, in one batch.
    pub(super) fn put_snapshot(&mut self, raw: Bytes, slot: Slot, fx: &mut Effects) {
        fx.put(record::log(self.id, LogRecord::Snapshot), raw);
        fx.delete_range(
            record::accepted(self.id, Slot(0)),
            record::accepted(self.id, slot.next()),
        );
        self.void.retain(|s| *s > slot);
    }

    /// Removes every record of a log, in the batch that creates its successor with its initial
    /// state: a node that asks for the old log gets the new one.
    pub fn delete(id: LogId, fx: &mut Effects) {
        let mut to = record::log(id, LogRecord::Snapshot).to_vec();
        to.push(0);
        fx.delete_range(record::log(id, LogRecord::Created), to.into());
    }
}
