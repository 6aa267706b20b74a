//! The learner: what is chosen, handing it out in order, catching up, truncation.

use super::store::{CHOSEN, Held, SnapshotRecord};
use super::transfer::{self, Partial, Snapshot, Taken};
use super::{Chunk, Entry, Log, Message, Role};
use crate::base::{Ballot, Limits, Micros, Seat, Slot};
use crate::io::Env;
use alloc::collections::btree_map;
use alloc::vec::Vec;

/// How often a peer that sends a snapshot is asked again before another one is.
const PATIENCE: u32 = 3;

/// An open question to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetching {
    peer: Seat,
    /// When it is asked again, or another one.
    pub(super) due: Micros,
    /// How often it was asked again in vain.
    silent: u32,
}

impl Log {
    /// One more slot is chosen, and its entry is held.
    pub(super) fn note_chosen(&mut self, slot: Slot) {
        assert_eq!(slot, self.chosen.next(), "chosen slots are noted in order");
        self.chosen = slot;
        let held = self.held.get(&slot).expect("a chosen entry is held");
        self.votes -= held.bytes;
        self.entries += held.bytes;
        if let Entry::Stop(stop) = held.entry {
            self.over = Some((slot, stop));
            self.known = slot;
        }
        self.known = self.known.max(slot);
    }

    /// The leader of `ballot` says that everything up to `chosen` is chosen. The entry that this
    /// replica voted for *in that ballot* is then the one chosen there: the leader proposed one
    /// entry per slot, and knew of nothing chosen against it. A vote of another ballot may be
    /// another entry: fetch.
    pub(super) fn learn(&mut self, from: Seat, ballot: Ballot, chosen: Slot, env: &mut Env<'_>) {
        self.hear(ballot, chosen);
        if self.over.is_none() && chosen > self.chosen {
            self.known = self.known.max(chosen);
            self.want(from, env);
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
    pub(super) fn want(&mut self, peer: Seat, env: &mut Env<'_>) {
        if self.fetching.is_none() && self.known > self.chosen && !self.leads() {
            self.fetch(peer, env);
        }
    }

    fn fetch(&mut self, peer: Seat, env: &mut Env<'_>) {
        if peer == self.seat {
            return;
        }
        self.fetching = Some(Fetching {
            peer,
            due: env.now.monotonic + env.timing.retry,
            silent: 0,
        });
        let from = self.chosen.next();
        self.partial
            .take_if(|partial| partial.slot() <= self.chosen);
        for resume in transfer::parts(&mut self.partial) {
            self.send(peer, Message::Fetch { from, resume }, env);
        }
    }

    /// Asks the next seat when the one asked is silent.
    pub(super) fn fetch_again(&mut self, env: &mut Env<'_>) {
        if self.known <= self.chosen || self.leads() || self.over.is_some() {
            self.fetching = None;
            return;
        }
        // Nobody is asked: only after a restart with unreadable votes.
        let none = Fetching {
            peer: self.seat,
            due: 0,
            silent: PATIENCE,
        };
        let asked = self.fetching.unwrap_or(none);
        if env.now.monotonic < asked.due {
            return;
        }
        if let Some(partial) = &mut self.partial {
            partial.again();
        }
        // Another one has another snapshot, and the transfer would begin anew.
        let stays = self.partial.is_some() && asked.silent < PATIENCE;
        let (peer, silent) = match stays {
            true => (asked.peer, asked.silent + 1),
            false => (self.seat_after(asked.peer), 0),
        };
        self.fetch(peer, env);
        if let Some(fetching) = &mut self.fetching {
            fetching.silent = silent;
        }
    }

    /// The next other seat in turn.
    fn seat_after(&self, seat: Seat) -> Seat {
        let next = |seat: Seat| Seat((seat.0 + 1) % self.view.len() as u8);
        match next(seat) {
            own if own == self.seat => next(own),
            other => other,
        }
    }

    /// Something came from the peer that was asked: go on, or be done.
    fn fetched(&mut self, from: Seat, env: &mut Env<'_>) {
        self.fetching = None;
        self.want(from, env);
        self.try_lead(env);
    }

    pub(super) fn on_fetch(
        &mut self,
        from: Seat,
        first: Slot,
        resume: Option<(Slot, u64)>,
        env: &mut Env<'_>,
    ) {
        if first > self.chosen || first.0 == 0 {
            return self.ignore("fetch of what is not chosen here");
        }
        let Some(node) = self.view.node_at(from) else {
            return;
        };
        if !self.held.contains_key(&first) {
            let chunk = self.loans.chunk(node, resume, &self.snapshot, env);
            return self.send(from, Message::Chunk(chunk), env);
        }
        self.loans.went_on(node, first, self.snapshot.slot, env);
        let answer = self.entries_from(first, env.limits);
        // An entry chosen by votes elsewhere is chosen; nothing here needs to be durable for that.
        self.send(from, answer, env);
    }

    /// The chosen entries from a slot on that one message takes; the first is held, or none is
    /// chosen yet.
    pub(super) fn entries_from(&self, first: Slot, limits: &Limits) -> Message {
        let mut bytes = 0;
        let mut entries = Vec::new();
        let held = self.held.range(first..);
        for (_, held) in held.take_while(|(slot, _)| **slot <= self.chosen) {
            bytes += held.bytes;
            if bytes > limits.window_bytes && !entries.is_empty() {
                break;
            }
            entries.push(held.entry.clone());
        }
        Message::Entries {
            from: first,
            entries,
            chosen: self.chosen,
        }
    }

    pub(super) fn on_entries(
        &mut self,
        from: Seat,
        first: Slot,
        entries: Vec<Entry>,
        chosen: Slot,
        env: &mut Env<'_>,
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
            self.put_held(slot, CHOSEN, entry, env.fx);
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
            self.fetched(from, env);
        }
    }

    pub(super) fn on_chunk(&mut self, from: Seat, chunk: Chunk, env: &mut Env<'_>) {
        if self.leads() || chunk.slot <= self.chosen {
            return self.ignore("chunk of a snapshot that is not wanted");
        }
        self.known = self.known.max(chunk.slot);
        let asked = self.fetching.is_some_and(|f| f.peer == from);
        match Partial::collect(&mut self.partial, chunk, asked, env.limits) {
            Taken::Useless => self.ignore("chunk of no use"),
            Taken::More if asked => self.fetch(from, env),
            Taken::More => {}
            Taken::Whole(whole) => {
                self.install(whole, env);
                self.fetched(from, env);
            }
        }
    }

    fn install(&mut self, whole: Partial, env: &mut Env<'_>) {
        let (record, raw) = match whole.open() {
            Ok(opened) => opened,
            Err(why) => return self.ignore(why),
        };
        let slot = record.slot;
        self.put_snapshot(raw.clone(), slot, env.fx);
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
        self.known = self.known.max(slot);
        self.over = record.stopped.map(|stop| (slot, stop));
        self.weigh();
    }

    /// The first of the slots up to this one that stay in memory: those above what is lent, and for
    /// peers that lag a little a window of them.
    pub(super) fn tail(&self, slot: Slot, env: &Env<'_>) -> Slot {
        let (limits, lent) = (env.limits, self.loans.above(env));
        let lowest = slot.0.saturating_sub(limits.window as u64) + 1;
        let (mut keep, mut bytes) = (slot.next(), 0);
        for (at, held) in self.held.range(Slot(lowest)..=slot).rev() {
            bytes += held.bytes;
            if bytes > limits.window_bytes {
                break;
            }
            keep = *at;
        }
        lent.map_or(keep, |above| keep.min(above.next()))
    }

    /// Bytes of what is held of the chosen prefix.
    pub fn kept_bytes(&self) -> usize {
        self.entries + self.behind
    }

    /// Holds nothing of the applied prefix that is truncated, not even for peers that lag.
    pub fn shed(&mut self) {
        self.loans.end_all();
        self.held = self.held.split_off(&self.truncated().next());
        self.weigh();
    }

    /// Counts anew what is held: the prefix, or where it begins, has changed at once.
    pub(super) fn weigh(&mut self) {
        (self.votes, self.entries, self.behind) = self.weights();
    }

    /// Bytes of what is held above the chosen prefix, of it above the snapshot, and behind that.
    pub(super) fn weights(&self) -> (usize, usize, usize) {
        let all = |held: btree_map::Range<'_, Slot, Held>| held.map(|(_, h)| h.bytes).sum();
        let votes = self.held.range(self.chosen.next()..);
        let entries = self.held.range(self.truncated().next()..self.chosen.next());
        let behind = self.held.range(..self.truncated().next());
        (all(votes), all(entries), all(behind))
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
pub(super) fn effective(entry: Entry, begin: &mut Ballot) -> Entry {
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
