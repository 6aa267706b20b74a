//! The leader: batches, phase 2, its lease, stopping and handing over.

use super::store::ROUNDS;
use super::{Entry, Flight, Log, Message, Reserved, Role};
use crate::base::{Ballot, Bug, Limits, Micros, Seat, Slot};
use crate::io::Env;
use alloc::vec::Vec;

impl Log {
    /// Tells the others what was chosen if no proposal did.
    pub(super) fn announce(&mut self, env: &mut Env<'_>) {
        let chosen = self.chosen;
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        if lead.announced >= chosen {
            return;
        }
        lead.announced = chosen;
        let ballot = lead.ballot;
        for seat in (0..self.view.len() as u8).map(Seat) {
            if seat != self.seat {
                self.send(seat, Message::Chosen { ballot, chosen }, env);
            }
        }
    }

    /// Proposes what is to be proposed, as far as the window allows: what was recovered, with
    /// no-ops in its holes; the own `Begin`, or straight away the `Stop` that is wished for; then
    /// commands. Above a `Stop` nothing is proposed.
    pub(super) fn cut(&mut self, env: &mut Env<'_>) {
        while let Role::Leading(lead) = &self.role {
            let next = lead.next;
            if lead.ending {
                return;
            } else if !lead.recovered.is_empty() {
                let bytes = lead.recovered.get(&next).map_or(0, Entry::bytes);
                if !self.has_window(bytes, env.limits) {
                    return;
                }
                self.propose_recovered(next, env);
            } else if lead.begin.is_none() && self.wish.is_none() {
                self.propose_begin(env);
            } else if lead.begin.is_some() && !self.is_primary() {
                // Nothing of a client's before the own `Begin` is chosen. In ballot 0, which has
                // nothing to recover, not before the log's creation is durable here (see `create`).
                return;
            } else if lead.begin.is_none() || lead.queue.is_empty() {
                return self.propose_wished_stop(env);
            } else if self.has_window(lead.queue.batch(env.limits, self.planted).1, env.limits) {
                self.cut_batch(env);
            } else {
                return;
            }
        }
    }

    /// Whether the next slot may be in flight, too, with so many bytes.
    fn has_window(&self, bytes: usize, limits: &Limits) -> bool {
        let Role::Leading(lead) = &self.role else {
            return false;
        };
        let fits = lead.flights.is_empty()
            || lead.bytes + bytes <= limits.window_bytes
            || self.planted.has(Bug::BatchByCount);
        fits && lead.next.0 <= self.chosen.0 + limits.window.max(1) as u64
    }

    /// Proposes again what was recovered for a slot. A hole gets no client's command: one proposed
    /// here would take effect before commands that were proposed long ago, by a leader that may
    /// have answered upon them.
    fn propose_recovered(&mut self, slot: Slot, env: &mut Env<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let entry = match lead.recovered.remove(&slot) {
            Some(entry) => entry,
            None => self.filler(),
        };
        if matches!(entry, Entry::Stop(_)) {
            self.set_ending();
        }
        self.propose_entry(entry, env);
    }

    fn filler(&mut self) -> Entry {
        match &mut self.role {
            Role::Leading(lead)
                if self.planted.has(Bug::HoleFilledWithCommand) && !lead.queue.is_empty() =>
            {
                Entry::Commands {
                    birth: lead.ballot,
                    commands: lead.queue.take(lead.queue.len()),
                }
            }
            _ => Entry::Noop,
        }
    }

    /// Whether a command waits to be proposed.
    pub(super) fn waits(&self) -> bool {
        matches!(&self.role, Role::Leading(lead) if !lead.queue.is_empty())
    }

    pub(super) fn cut_batch(&mut self, env: &mut Env<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let (count, _) = lead.queue.batch(env.limits, self.planted);
        let commands = lead.queue.take(count);
        let birth = lead.ballot;
        self.propose_entry(Entry::Commands { birth, commands }, env);
    }

    pub(super) fn propose_begin(&mut self, env: &mut Env<'_>) {
        let ballot = self.promised;
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        lead.begin = Some(lead.next);
        self.propose_entry(Entry::Begin { ballot }, env);
    }

    pub(super) fn propose_wished_stop(&mut self, env: &mut Env<'_>) {
        let Some(stop) = self.wish else { return };
        self.set_ending();
        self.propose_entry(Entry::Stop(stop), env);
    }

    pub(super) fn set_ending(&mut self) {
        if let Role::Leading(lead) = &mut self.role {
            lead.ending = true;
        }
    }

    /// Phase 2 for the next slot. The own vote is written in this very step; its acknowledgement
    /// comes back to this node as a message once it is durable, and counts only then.
    pub(super) fn propose_entry(&mut self, entry: Entry, env: &mut Env<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let (slot, ballot) = (lead.next, lead.ballot);
        lead.next = slot.next();
        lead.announced = self.chosen;
        if let Entry::Commands { commands, .. } = &entry {
            lead.commands += commands.len();
        }
        let bytes = entry.bytes();
        lead.bytes += bytes;
        let now = env.now.monotonic;
        lead.flights.insert(
            slot,
            Flight {
                votes: 0,
                sent: now,
                last: now,
                bytes,
            },
        );
        lead.due.get_or_insert(now + env.timing.retry);
        self.put_held(slot, ballot, entry, env.fx);
        self.vow(self.seat, Message::Accepted { ballot, slot }, env);
        for seat in (0..self.view.len() as u8).map(Seat) {
            if seat != self.seat {
                self.send_accept(seat, slot, env);
            }
        }
    }

    fn send_accept(&mut self, to: Seat, slot: Slot, env: &mut Env<'_>) {
        let held = self.held.get(&slot).expect("what is in flight is held");
        let message = Message::Accept {
            ballot: self.promised,
            slot,
            entry: held.entry.clone(),
            chosen: self.chosen,
            reserved: Reserved::default(),
        };
        // The first entry of a log leaves only when its creation is durable. Otherwise the owner of
        // ballot 0 could crash, be created once more, and lead ballot 0 a second time.
        let early = self.planted.has(Bug::BeginBeforeCreation);
        if self.promised.round == 0 && matches!(held.entry, Entry::Begin { .. }) && !early {
            self.vow(to, message, env);
        } else {
            self.send(to, message, env);
        }
    }

    pub(super) fn on_accepted(&mut self, from: Seat, ballot: Ballot, slot: Slot) {
        let quorum = self.quorum();
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        if lead.ballot != ballot {
            return;
        }
        let Some(flight) = lead.flights.get_mut(&slot) else {
            return;
        };
        flight.votes |= 1 << from.0;
        // A voter was asked at or after `sent`, and is bound from then on.
        let acked = &mut lead.acked[usize::from(from.0)];
        let asked = match self.planted.has(Bug::VoteCountsFromLast) {
            true => flight.last,
            false => flight.sent,
        };
        *acked = (*acked).max(Some(asked));
        self.count_votes(quorum);
    }

    fn count_votes(&mut self, quorum: usize) {
        while let Role::Leading(lead) = &mut self.role {
            let next = self.chosen.next();
            match lead.flights.get(&next) {
                Some(flight) if flight.votes.count_ones() as usize >= quorum => {}
                _ => return,
            }
            let flight = lead.flights.remove(&next).expect("just found");
            lead.bytes -= flight.bytes;
            if let Some(Entry::Commands { commands, .. }) = self.held.get(&next).map(|h| &h.entry) {
                lead.commands -= commands.len();
            }
            self.note_chosen(next);
        }
    }

    /// Sends again what has no quorum yet, to those that have not voted.
    pub(super) fn tick_leader(&mut self, env: &mut Env<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let now = env.now.monotonic;
        if lead.due.is_none_or(|due| due > now) {
            return;
        }
        let mut again: Vec<(Slot, u16)> = Vec::new();
        for (slot, flight) in &mut lead.flights {
            if flight.last + env.timing.retry <= now {
                flight.last = now;
                again.push((*slot, flight.votes));
            }
        }
        lead.due = lead
            .flights
            .values()
            .map(|f| f.last + env.timing.retry)
            .min();
        let (seat, ballot) = (self.seat, lead.ballot);
        for (slot, votes) in again {
            for to in (0..self.view.len() as u8).map(Seat) {
                if votes & (1 << to.0) != 0 {
                    continue;
                }
                if to != seat {
                    self.send_accept(to, slot, env);
                } else if !env.planted.has(Bug::OwnVoteNotRepeated) {
                    // A node whose disk is stuck loses what it tells itself, too (G53).
                    self.vow(to, Message::Accepted { ballot, slot }, env);
                }
            }
        }
    }

    /// What a leader says in its node's beat: its ballot and how far its log is chosen. It goes on
    /// after a `Stop`, for those that have not heard of it.
    pub fn beat(&self) -> Option<(Ballot, Slot)> {
        match &self.role {
            Role::Leading(lead) => Some((lead.ballot, self.chosen)),
            _ => None,
        }
    }

    /// A peer follows `ballot`; `sent` is when the beat left here, on this node's clock.
    pub fn on_beat_ack(&mut self, from: Seat, ballot: Ballot, sent: Micros, env: &mut Env<'_>) {
        self.planted = env.planted;
        match &mut self.role {
            Role::Leading(lead) if lead.ballot == ballot && sent <= env.now.monotonic => {
                let Some(acked) = lead.acked.get_mut(usize::from(from.0)) else {
                    return;
                };
                *acked = (*acked).max(Some(sent));
                self.voted.entry(from).or_insert(env.now.monotonic);
            }
            _ => self.ignore("beat acknowledged for another ballot"),
        }
    }

    /// A peer answered a beat with the higher ballot that it has promised.
    pub fn on_deposed(&mut self, from: Seat, promised: Ballot, env: &mut Env<'_>) {
        self.planted = env.planted;
        if !self.seats(from) || promised.round >= ROUNDS {
            return self.ignore("deposed by nobody");
        }
        if let Role::Leading(lead) = &self.role {
            let ballot = lead.ballot;
            self.on_refused(ballot, promised, env);
        }
    }
}
