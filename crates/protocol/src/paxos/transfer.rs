//! A snapshot on its way to a replica that lags, or that has none.
//!
//! **Problem.** A snapshot takes many round trips, and the log goes on meanwhile: it is truncated
//! behind a newer snapshot. A sender of that one begins again, for ever (G36); and one that has
//! dropped the entries between the two leaves the receiver with a snapshot of no use (G37).
//!
//! **Idea.** A snapshot that a peer has begun to fetch is *lent* to it, with the entries above it
//! in memory, until the peer has gone past them, or has been silent for a while. The receiver has a
//! window of parts in flight. It asks for each by its offset, so that the sender remembers nothing
//! of them; parts may come in any order, and what is lost is asked for again.

use super::store::SnapshotRecord;
use super::{Chunk, Reserved};
use crate::base::{Ballot, Bug, Limits, Micros, NodeName, Slot};
use crate::io::Env;
use crate::wire::{decode, encode};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use fermata_codec::checksum;

/// Bytes of the largest snapshot that is taken from a peer.
const SNAPSHOT_MAX: u64 = 1 << 30;
/// Retry times after which a peer that fetches and is silent has gone.
pub(super) const SILENCE: u64 = 8;

/// Against torn or mixed transfers, not against forgery.
fn digest(bytes: &[u8]) -> u64 {
    checksum(0, bytes)
}

/// A snapshot on offer to lagging peers, encoded.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) slot: Slot,
    pub(super) begin: Ballot,
    pub(super) raw: Bytes,
    pub(super) digest: u64,
}

impl Snapshot {
    pub(super) fn new(record: &SnapshotRecord, raw: Bytes) -> Snapshot {
        Snapshot {
            slot: record.slot,
            begin: record.begin,
            digest: digest(&raw),
            raw,
        }
    }

    /// The initial state.
    pub(super) fn initial(state: Bytes) -> Snapshot {
        let record = SnapshotRecord {
            slot: Slot(0),
            begin: Ballot::default(),
            stopped: None,
            reserved: Reserved::default(),
            state,
        };
        Snapshot::new(&record, encode(&record))
    }

    /// The part that follows what the asker has.
    fn chunk(&self, resume: Option<(Slot, u64)>, limits: &Limits) -> Chunk {
        let total = self.raw.len() as u64;
        let offset = match resume {
            Some((slot, have)) if slot == self.slot && have <= total => have,
            _ => 0,
        };
        let end = total.min(offset + limits.chunk as u64);
        Chunk {
            slot: self.slot,
            offset,
            total,
            digest: self.digest,
            data: self.raw.slice(offset as usize..end as usize),
        }
    }
}

/// What a peer is fetching.
#[derive(Debug)]
struct Loan {
    /// None: it has the snapshot, and fetches entries.
    snapshot: Option<Snapshot>,
    /// The entries above stay in memory.
    above: Slot,
    until: Micros,
}

/// What is lent, by whom it is lent to.
#[derive(Debug, Default)]
pub(super) struct Loans(BTreeMap<NodeName, Loan>);

impl Loans {
    /// The part of a snapshot that a peer asks for: of the one that it has begun to fetch, or
    /// of the present one, which it begins.
    pub(super) fn chunk(
        &mut self,
        to: NodeName,
        resume: Option<(Slot, u64)>,
        present: &Snapshot,
        env: &Env<'_>,
    ) -> Chunk {
        let until = due(env);
        let wanted = resume.map(|(slot, _)| slot);
        let lent = self.0.get_mut(&to).filter(|loan| {
            let slot = loan.snapshot.as_ref().map(|snapshot| snapshot.slot);
            slot.is_some() && slot == wanted && !env.planted.has(Bug::SnapshotNotKept)
        });
        if let Some(loan) = lent {
            loan.until = until;
            let snapshot = loan.snapshot.as_ref().expect("just looked at");
            return snapshot.chunk(resume, env.limits);
        }
        let loan = Loan {
            snapshot: Some(present.clone()),
            above: present.slot,
            until,
        };
        self.0.insert(to, loan);
        present.chunk(resume, env.limits)
    }

    /// A peer fetches entries from `first` on. It no longer needs what it was lent below that, and
    /// nothing at all when it has come to what is kept for everybody, `truncated`.
    pub(super) fn went_on(&mut self, to: NodeName, first: Slot, truncated: Slot, env: &Env<'_>) {
        if first > truncated {
            self.0.remove(&to);
        } else if let Some(loan) = self.0.get_mut(&to) {
            loan.snapshot = None;
            loan.above = loan.above.max(Slot(first.0 - 1));
            loan.until = due(env);
        }
    }

    /// Whether a peer is fetching a snapshot, or what lies above it.
    pub(super) fn has(&self, node: NodeName) -> bool {
        self.0.contains_key(&node)
    }

    /// The slot above which entries must stay in memory, if any must.
    pub(super) fn above(&self, env: &Env<'_>) -> Option<Slot> {
        let lowest = self.0.values().map(|loan| loan.above).min();
        lowest.filter(|_| !env.planted.has(Bug::LentEntriesDropped))
    }

    /// A peer that has been silent for long gets nothing more of what was lent.
    pub(super) fn end(&mut self, env: &Env<'_>) {
        self.0.retain(|_, loan| loan.until > env.now.monotonic);
    }

    /// There is no room for any.
    pub(super) fn end_all(&mut self) {
        self.0.clear();
    }
}

fn due(env: &Env<'_>) -> Micros {
    env.now.monotonic + SILENCE * env.timing.retry
}

/// A snapshot that is being fetched.
#[derive(Debug)]
pub(super) struct Partial {
    slot: Slot,
    total: u64,
    digest: u64,
    /// From the beginning, without a gap.
    data: Vec<u8>,
    /// Parts beyond a gap, by where they begin: a window of them.
    ahead: BTreeMap<u64, Bytes>,
    /// Where the next part begins that nobody was asked for.
    asked: u64,
    /// Bytes of a part, as the sender cuts them.
    stride: u64,
    /// Bytes that may be under way: a part at first, and twice as many with each that comes.
    window: u64,
}

/// What became of a part of a snapshot.
pub(super) enum Taken {
    /// It belongs to another snapshot, or is here.
    Useless,
    /// More is to come.
    More,
    /// It was the last one.
    Whole(Partial),
}

impl Partial {
    /// Adds a part to what is there. Another snapshot's first part replaces what is there where
    /// `anew`: it comes from the peer that was asked.
    pub(super) fn collect(
        partial: &mut Option<Partial>,
        chunk: Chunk,
        anew: bool,
        limits: &Limits,
    ) -> Taken {
        let stride = chunk.data.len() as u64;
        if chunk.total > SNAPSHOT_MAX || (stride == 0 && chunk.total > 0) {
            return Taken::Useless;
        }
        let named = (chunk.slot, chunk.total, chunk.digest);
        let same = |p: &Partial| (p.slot, p.total, p.digest) == named;
        let here = partial.as_ref();
        if chunk.offset == 0 && !here.is_some_and(same) && (anew || here.is_none()) {
            *partial = Some(Partial {
                slot: chunk.slot,
                total: chunk.total,
                digest: chunk.digest,
                data: Vec::new(),
                ahead: BTreeMap::new(),
                asked: stride,
                stride,
                window: stride,
            });
        }
        let Some(into) = partial.as_mut().filter(|p| same(p)) else {
            return Taken::Useless;
        };
        let have = into.data.len() as u64;
        let near = (have..=have + limits.window_bytes as u64).contains(&chunk.offset);
        if !near || into.ahead.contains_key(&chunk.offset) {
            return Taken::Useless;
        }
        into.window = (2 * into.window)
            .min(limits.window_bytes as u64)
            .max(into.stride);
        into.ahead.insert(chunk.offset, chunk.data);
        while let Some(next) = into.ahead.remove(&(into.data.len() as u64)) {
            into.data.extend_from_slice(&next);
        }
        match partial.take_if(|p| p.data.len() as u64 >= p.total) {
            Some(whole) => Taken::Whole(whole),
            None => Taken::More,
        }
    }

    /// Asks again for the parts that have not come, one part at first: the new source may have
    /// another snapshot by now.
    pub(super) fn again(&mut self) {
        self.asked = self.data.len() as u64;
        self.window = self.stride;
    }

    /// The snapshot is the state after this slot.
    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// The next part to ask for, while a window is not full.
    fn next_part(&mut self) -> Option<(Slot, u64)> {
        let have = self.data.len() as u64;
        self.asked = self.asked.max(have);
        while self.ahead.contains_key(&self.asked) {
            self.asked += self.stride;
        }
        let last = self.total.min(have + self.window);
        let part = (self.asked < last).then_some((self.slot, self.asked));
        if part.is_some() {
            self.asked += self.stride;
        }
        part
    }

    /// The record, and its bytes.
    pub(super) fn open(self) -> Result<(SnapshotRecord, Bytes), &'static str> {
        let raw = Bytes::from(self.data);
        match decode::<SnapshotRecord>(&raw) {
            Ok(record) if digest(&raw) == self.digest && record.slot == self.slot => {
                Ok((record, raw))
            }
            _ => Err("snapshot with a wrong digest or slot"),
        }
    }
}

/// What to ask a peer for: a window of parts of what has begun to come, or the beginning.
pub(super) fn parts(partial: &mut Option<Partial>) -> Vec<Option<(Slot, u64)>> {
    match partial {
        None => Vec::from([None]),
        Some(partial) => {
            let next = core::iter::from_fn(|| partial.next_part());
            next.map(Some).collect()
        }
    }
}
