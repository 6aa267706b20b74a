//! The learner: what is chosen, handing it out in order, catching up, truncation.

use super::store::{CHOSEN, Held, SnapshotRecord};
use super::{Chunk, Cx, Entry, Log, Message, Role};
use crate::base::{Ballot, Limits, Micros, Seat, Slot, Timestamp};
use crate::wire::{decode, encode};
use alloc::collections::btree_map;
use alloc::vec::Vec;
use bytes::Bytes;
use fermata_codec::checksum;

/// Bytes of the largest snapshot that is taken from a peer.
const SNAPSHOT_MAX: u64 = 1 << 30;

/// A snapshot that is being fetched.
#[derive(Debug)]
pub(super) struct Partial {
    slot: Slot,
    total: u64,
    digest: u64,
    data: Vec<u8>,
}

/// What became of a part of a snapshot.
pub(super) enum Taken {
    /// It belongs to another snapshot, or comes out of order.
    Useless,
    /// More is to come.
    More,
    /// It was the last one.
    Whole(Partial),
}

impl Partial {
    /// Adds a part to what is there. Another snapshot's first part replaces what is there.
    pub(super) fn collect(partial: &mut Option<Partial>, chunk: Chunk) -> Taken {
        if chunk.total > SNAPSHOT_MAX {
            return Taken::Useless;
        }
        let same =
            |p: &Partial| (p.slot, p.total, p.digest) == (chunk.slot, chunk.total, chunk.digest);
        if !partial.as_ref().is_some_and(same) && chunk.offset == 0 {
            *partial = Some(Partial {
                slot: chunk.slot,
                total: chunk.total,
                digest: chunk.digest,
                data: Vec::new(),
            });
        }
        let into = match partial.as_mut() {
            Some(p) if same(p) && p.data.len() as u64 == chunk.offset => p,
            _ => return Taken::Useless,
        };
        into.data.extend_from_slice(&chunk.data);
        match partial.take_if(|p| p.data.len() as u64 >= p.total) {
            Some(whole) => Taken::Whole(whole),
            None if chunk.data.is_empty() => Taken::Useless,
            None => Taken::More,
        }
    }

    /// What a peer needs to know to go on where this ends.
    pub(super) fn resume(partial: Option<&Partial>) -> Option<(Slot, u64)> {
        partial.map(|p| (p.slot, p.data.len() as u64))
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

/// An open question to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetching {
    peer: Seat,
    /// When it is asked again, elsewhere.
    pub(super) due: Micros,
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
            upper: Timestamp::default(),
            state,
        };
        Snapshot::new(&record, encode(&record))
    }

    /// The part that follows what the asker has.
    pub(super) fn chunk(&self, resume: Option<(Slot, u64)>, limits: &Limits) -> Chunk {
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

/// Against torn or mixed transfers, not against forgery.
fn digest(bytes: &[u8]) -> u64 {
    checksum(0, bytes)
}

impl Log {
    /// One more slot is chosen, and its entry is held.
    pub(super) fn note_chosen(&mut self, slot: Slot) {
        assert_eq!(slot, self.chosen.next(), "chosen slots are noted in order");
        self.chosen = slot;
        let held = self.held.get(&slot).expect("a chosen entry is held");
        self.votes -= held.bytes;
        self.entries += held.bytes;
        if let Entry::Stop { next } = held.entry {
            self.over = Some((slot, next));
            self.known = slot;
        }
        self.known = self.known.max(slot);
    }

    /// The leader of `ballot` says that everything up to `chosen` is chosen. What this replica
    /// voted for *in that ballot* is then what was chosen there: the leader proposed one entry per
    /// slot, and knew of nothing chosen against it. A vote of another ballot may be another entry:
    /// fetch.
    pub(super) fn learn(&mut self, from: Seat, ballot: Ballot, chosen: Slot, cx: &mut Cx<'_>) {
        self.hear(ballot, chosen);
        if self.over.is_none() && chosen > self.chosen {
            self.known = self.known.max(chosen);
            self.want(from, cx);
        }
    }

    /// The part of [`Log::learn`] that asks nobody.
    pub(super) fn hear(&mut self, ballot: Ballot, chosen: Slot) {
        match &mut self.heard {
            Some((b, c)) if *b == ballot => *c = chosen.max(*c),
            Some((b, _)) if *b > ballot => {}
            heard => *heard = Some((ballot, chosen)),
        }
        self.settle();
    }

    /// Extends the chosen prefix by all that is known of it.
    fn settle(&mut self) {
        let (ballot, upto) = self.heard.unwrap_or((CHOSEN, Slot(0)));
        while self.over.is_none() {
            let next = self.chosen.next();
            match self.held.get(&next) {
                Some(h) if h.ballot == CHOSEN || (h.ballot == ballot && next <= upto) => {
                    self.note_chosen(next);
                }
                _ => break,
            }
        }
    }

    /// Asks a peer for what is missing, unless somebody is asked already.
    pub(super) fn want(&mut self, peer: Seat, cx: &mut Cx<'_>) {
        if self.fetching.is_none() && self.known > self.chosen && !self.leads() {
            self.fetch(peer, cx);
        }
    }

    fn fetch(&mut self, peer: Seat, cx: &mut Cx<'_>) {
        if peer == self.seat {
            return;
        }
        self.fetching = Some(Fetching {
            peer,
            due: cx.now.monotonic + cx.timing.retry,
        });
        let resume = Partial::resume(self.partial.as_ref());
        let from = self.chosen.next();
        self.send(peer, Message::Fetch { from, resume }, cx);
    }

    /// Asks the next seat when the one asked is silent.
    pub(super) fn fetch_again(&mut self, cx: &mut Cx<'_>) {
        if self.known <= self.chosen || self.leads() || self.over.is_some() {
            self.fetching = None;
            return;
        }
        // Nobody is asked: only after a restart with unreadable votes.
        let (last, due) = self.fetching.map_or((self.seat, 0), |f| (f.peer, f.due));
        if cx.now.monotonic >= due {
            let n = self.view.len() as u8;
            let mut peer = Seat((last.0 + 1) % n);
            if peer == self.seat {
                peer = Seat((peer.0 + 1) % n);
            }
            self.fetch(peer, cx);
        }
    }

    /// Something came from the peer that was asked: go on, or be done.
    fn fetched(&mut self, from: Seat, cx: &mut Cx<'_>) {
        self.fetching = None;
        self.want(from, cx);
        self.try_lead(cx);
    }

    pub(super) fn on_fetch(
        &mut self,
        from: Seat,
        first: Slot,
        resume: Option<(Slot, u64)>,
        cx: &mut Cx<'_>,
    ) {
        if first > self.chosen || first.0 == 0 {
            return self.ignore("fetch of what is not chosen here");
        }
        if !self.held.contains_key(&first) {
            let chunk = self.snapshot.chunk(resume, cx.limits);
            return self.send(from, Message::Chunk(chunk), cx);
        }
        let mut bytes = 0;
        let mut entries = Vec::new();
        for (_, held) in self.held.range(first..=self.chosen) {
            bytes += held.bytes;
            if bytes > cx.limits.chunk && !entries.is_empty() {
                break;
            }
            entries.push(held.entry.clone());
        }
        let answer = Message::Entries {
            from: first,
            entries,
            chosen: self.chosen,
        };
        // What is chosen by votes elsewhere is chosen; nothing here needs to be durable for that.
        self.send(from, answer, cx);
    }

    pub(super) fn on_entries(
        &mut self,
        from: Seat,
        first: Slot,
        entries: Vec<Entry>,
        chosen: Slot,
        cx: &mut Cx<'_>,
    ) {
        if self.leads() || self.over.is_some() {
            return;
        }
        if first.0 == 0 || first > self.chosen.next() {
            return self.ignore("entries above a gap");
        }
        let known_here = (self.chosen.0 + 1 - first.0) as usize;
        let before = self.chosen;
        for entry in entries.into_iter().skip(known_here) {
            let slot = self.chosen.next();
            self.put_held(slot, CHOSEN, entry, cx.fx);
            self.note_chosen(slot);
            if self.over.is_some() {
                break;
            }
        }
        self.settle();
        if self.over.is_none() {
            self.known = self.known.max(chosen);
        }
        if self.chosen > before {
            self.fetched(from, cx);
        }
    }

    pub(super) fn on_chunk(&mut self, from: Seat, chunk: Chunk, cx: &mut Cx<'_>) {
        if self.leads() || chunk.slot <= self.chosen {
            return self.ignore("chunk of a snapshot that is not wanted");
        }
        let slot = chunk.slot;
        match Partial::collect(&mut self.partial, chunk) {
            Taken::Useless => self.ignore("chunk out of order"),
            Taken::More => {
                self.fetching = None;
                self.known = self.known.max(slot);
                self.want(from, cx);
            }
            Taken::Whole(whole) => {
                self.install(whole, cx);
                self.fetched(from, cx);
            }
        }
    }

    fn install(&mut self, whole: Partial, cx: &mut Cx<'_>) {
        let (record, raw) = match whole.open() {
            Ok(opened) => opened,
            Err(why) => return self.ignore(why),
        };
        let slot = record.slot;
        self.put_snapshot(raw.clone(), slot, cx.fx);
        self.adopt(&record, Snapshot::new(&record, raw));
        self.installed = Some((slot, record.state));
        self.settle();
    }

    /// Goes on after a snapshot.
    pub(super) fn adopt(&mut self, record: &SnapshotRecord, snapshot: Snapshot) {
        let slot = record.slot;
        self.held = self.held.split_off(&slot.next());
        self.snapshot = snapshot;
        self.chosen = slot;
        self.delivered = slot;
        self.begin = record.begin;
        self.upper = self.upper.max(record.upper);
        self.known = self.known.max(slot);
        self.over = record.stopped.map(|next| (slot, next));
        self.weigh();
    }

    /// The first of the slots up to this one that stay in memory for peers that lag a little: a
    /// window of them.
    pub(super) fn tail(&self, slot: Slot, limits: &Limits) -> Slot {
        let lowest = slot.0.saturating_sub(limits.window as u64) + 1;
        let (mut keep, mut bytes) = (slot.next(), 0);
        for (at, held) in self.held.range(Slot(lowest)..=slot).rev() {
            bytes += held.bytes;
            if bytes > limits.window_bytes {
                break;
            }
            keep = *at;
        }
        keep
    }

    /// Counts anew what is held: the prefix, or where it begins, has changed at once.
    pub(super) fn weigh(&mut self) {
        (self.votes, self.entries) = self.weights();
    }

    /// Bytes of what is held above the chosen prefix, and of it above the snapshot.
    pub(super) fn weights(&self) -> (usize, usize) {
        let all = |held: btree_map::Range<'_, Slot, Held>| held.map(|(_, h)| h.bytes).sum();
        let votes = self.held.range(self.chosen.next()..);
        let entries = self.held.range(self.truncated().next()..self.chosen.next());
        (all(votes), all(entries))
    }

    /// The next chosen entry, in order and once per process. Entries that a later ballot made void
    /// come out as no-ops, and nothing comes after a `Stop`.
    pub fn next_chosen(&mut self) -> Option<(Slot, Entry)> {
        if self.delivered == self.chosen {
            return None;
        }
        let slot = self.delivered.next();
        self.delivered = slot;
        let entry = self
            .held
            .get(&slot)
            .expect("a chosen entry is held")
            .entry
            .clone();
        Some((slot, effective(entry, &mut self.begin)))
    }

    /// The slot up to which everything is chosen, as far as this replica knows.
    pub fn chosen(&self) -> Slot {
        self.chosen
    }

    /// The slots up to and including this one exist as a snapshot only.
    pub fn truncated(&self) -> Slot {
        self.snapshot.slot
    }

    /// Whether this replica leads, phase 1 done.
    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }
}

/// What an entry means after the highest `Begin` so far: commands born below it are void, and so is
/// an older `Begin` that surfaces late.
fn effective(entry: Entry, begin: &mut Ballot) -> Entry {
    match entry {
        Entry::Begin { ballot } if ballot < *begin => Entry::Noop,
        Entry::Begin { ballot } => {
            *begin = ballot;
            entry
        }
        Entry::Commands { birth, .. } if birth < *begin => Entry::Noop,
        _ => entry,
    }
}
