//! The leader: batches, phase 2, its lease, stopping and handing over.

use super::store::ROUNDS;
use super::{Cx, Declined, Entry, Flight, Leadership, Log, Message, Role};
use crate::base::{Ballot, Epoch, Micros, Now, Seat, Slot, Timing};
use crate::command::Command;
use alloc::vec::Vec;

impl Log {
    /// The ballot that is led here and since when, if one is.
    pub fn leadership(&self) -> Option<Leadership> {
        match &self.role {
            Role::Leading(lead) => Some(Leadership {
                ballot: lead.ballot,
                since: lead.since,
            }),
            _ => None,
        }
    }

    /// Whether this replica is the primary: it leads, and its `Begin` and all before it are chosen.
    /// It is none from the moment it proposes the `Stop`: the successor log must not commit while
    /// somebody still reads in this one.
    pub fn is_primary(&self) -> bool {
        match &self.role {
            Role::Leading(lead) => {
                lead.begin.is_some_and(|begin| begin <= self.chosen) && !lead.ending
            }
            _ => false,
        }
    }

    /// Whether a quorum is bound to this primary now: nothing is chosen without it, so it may
    /// answer from its applied state.
    ///
    /// An acceptor that acknowledged something sent at `t` is bound until at least one lease after
    /// `t`; the holder's clock may be slow, so it counts a shortened lease. Its own acceptor is
    /// always counted: it refuses others while this very function says so.
    pub fn has_lease(&self, now: Now, timing: &Timing) -> bool {
        let Role::Leading(lead) = &self.role else {
            return false;
        };
        if !self.is_primary() {
            return false;
        }
        let lease = timing.shortened(timing.lease);
        let fresh = |sent: &Option<Micros>| sent.is_some_and(|t| now.monotonic < t + lease);
        let own = usize::from(self.seat.0);
        let others = lead
            .acked
            .iter()
            .enumerate()
            .filter(|(i, sent)| *i != own && fresh(sent));
        others.count() + 1 >= self.quorum()
    }

    /// Takes a command for the next batch; it is cut by [`Log::flush`].
    ///
    /// # Errors
    /// The command was not taken and will not take effect: this replica does not lead
    /// ([`Declined::NotPrimary`], with its best guess who does), its queue is full, or the log
    /// ends.
    pub fn propose(&mut self, command: Command, cx: &mut Cx<'_>) -> Result<(), Declined> {
        self.planted = cx.planted;
        let in_flight = match &self.role {
            Role::Leading(lead) if lead.ending => return Err(Declined::Stopping),
            Role::Leading(lead) => lead.commands,
            Role::Candidate(_) if self.planted.has(crate::base::Bug::HoleFilledWithCommand) => 0,
            _ if self.over.is_some() => return Err(Declined::Stopping),
            _ => return Err(Declined::NotPrimary(self.primary_hint())),
        };
        if self.wish.is_some() {
            return Err(Declined::Stopping);
        }
        if self.queue.len() + in_flight >= cx.limits.proposals {
            return Err(Declined::Busy);
        }
        self.queue.push_back(command);
        Ok(())
    }

    /// Cuts batches of what was proposed, as far as the window allows, and tells the others what
    /// was chosen if no proposal does; to be called at the end of a node's step.
    pub fn flush(&mut self, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        self.cut(cx);
        self.announce(cx);
    }

    fn announce(&mut self, cx: &mut Cx<'_>) {
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
                self.send(seat, Message::Chosen { ballot, chosen }, cx);
            }
        }
    }

    pub(super) fn cut(&mut self, cx: &mut Cx<'_>) {
        let window = cx.limits.window as u64;
        while let Role::Leading(lead) = &self.role {
            // Nothing of a client's before the own `Begin` is chosen. In ballot 0 this also keeps
            // every entry back until the log's creation is durable here (see `create`).
            if lead.ending || !self.is_primary() {
                return;
            }
            if self.queue.is_empty() {
                if self.wish.is_some() {
                    self.propose_wished_stop(cx);
                }
                return;
            }
            if lead.next.0 > self.chosen.0 + window {
                return;
            }
            self.cut_batch(cx);
        }
    }

    fn cut_batch(&mut self, cx: &mut Cx<'_>) {
        let size = self.queue.len().min(cx.limits.batch.max(1));
        let commands: Vec<Command> = self.queue.drain(..size).collect();
        let birth = self.promised;
        self.propose_entry(Entry::Commands { birth, commands }, cx);
    }

    pub(super) fn propose_begin(&mut self, cx: &mut Cx<'_>) {
        let ballot = self.promised;
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        lead.begin = Some(lead.next);
        self.propose_entry(Entry::Begin { ballot }, cx);
    }

    pub(super) fn propose_wished_stop(&mut self, cx: &mut Cx<'_>) {
        let Some(next) = self.wish else { return };
        self.set_ending();
        self.propose_entry(Entry::Stop { next }, cx);
    }

    pub(super) fn set_ending(&mut self) {
        if let Role::Leading(lead) = &mut self.role {
            lead.ending = true;
        }
    }

    /// Phase 2 for the next slot. The own vote is written in this very step; its acknowledgement
    /// comes back to this node as a message once it is durable, and counts only then.
    pub(super) fn propose_entry(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let (slot, ballot) = (lead.next, lead.ballot);
        lead.next = slot.next();
        lead.announced = self.chosen;
        if let Entry::Commands { commands, .. } = &entry {
            lead.commands += commands.len();
        }
        let now = cx.now.monotonic;
        lead.flights.insert(
            slot,
            Flight {
                votes: 0,
                sent: now,
                last: now,
            },
        );
        lead.due.get_or_insert(now + cx.timing.retry);
        self.put_held(slot, ballot, entry, cx.fx);
        self.vow(self.seat, Message::Accepted { ballot, slot }, cx);
        for seat in (0..self.view.len() as u8).map(Seat) {
            if seat != self.seat {
                self.send_accept(seat, slot, cx);
            }
        }
    }

    fn send_accept(&mut self, to: Seat, slot: Slot, cx: &mut Cx<'_>) {
        let held = self.held.get(&slot).expect("what is in flight is held");
        let message = Message::Accept {
            ballot: self.promised,
            slot,
            entry: held.entry.clone(),
            chosen: self.chosen,
            upper: self.upper,
        };
        // The first entry of a log leaves only when its creation is durable. Otherwise the owner of
        // ballot 0 could crash, be created once more, and lead ballot 0 a second time.
        if self.promised.round == 0 && matches!(held.entry, Entry::Begin { .. }) {
            self.vow(to, message, cx);
        } else {
            self.send(to, message, cx);
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
        // Whoever voted was asked at or after `sent`, and is bound from then on.
        let acked = &mut lead.acked[usize::from(from.0)];
        *acked = (*acked).max(Some(flight.sent));
        self.count_votes(quorum);
    }

    fn count_votes(&mut self, quorum: usize) {
        while let Role::Leading(lead) = &mut self.role {
            let next = self.chosen.next();
            match lead.flights.get(&next) {
                Some(flight) if flight.votes.count_ones() as usize >= quorum => {}
                _ => return,
            }
            lead.flights.remove(&next);
            if let Some(Entry::Commands { commands, .. }) = self.held.get(&next).map(|h| &h.entry) {
                lead.commands -= commands.len();
            }
            self.note_chosen(next);
        }
    }

    /// Sends again what has no quorum yet, to those that have not voted.
    pub(super) fn tick_leader(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(lead) = &mut self.role else {
            return;
        };
        let now = cx.now.monotonic;
        if lead.due.is_none_or(|due| due > now) {
            return;
        }
        let mut again: Vec<(Slot, u16)> = Vec::new();
        for (slot, flight) in &mut lead.flights {
            if flight.last + cx.timing.retry <= now {
                flight.last = now;
                again.push((*slot, flight.votes));
            }
        }
        lead.due = lead
            .flights
            .values()
            .map(|f| f.last + cx.timing.retry)
            .min();
        let (seat, ballot) = (self.seat, lead.ballot);
        for (slot, votes) in again {
            for to in (0..self.view.len() as u8).map(Seat) {
                if votes & (1 << to.0) != 0 {
                    continue;
                }
                if to == seat {
                    self.vow(to, Message::Accepted { ballot, slot }, cx);
                } else {
                    self.send_accept(to, slot, cx);
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
    pub fn on_beat_ack(&mut self, from: Seat, ballot: Ballot, sent: Micros, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        match &mut self.role {
            Role::Leading(lead) if lead.ballot == ballot && sent <= cx.now.monotonic => {
                let Some(acked) = lead.acked.get_mut(usize::from(from.0)) else {
                    return;
                };
                *acked = (*acked).max(Some(sent));
            }
            _ => self.ignore("beat acknowledged for another ballot"),
        }
    }

    /// A peer answered a beat with the higher ballot that it has promised.
    pub fn on_deposed(&mut self, from: Seat, promised: Ballot, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        if !self.seats(from) || promised.round >= ROUNDS {
            return self.ignore("deposed by nobody");
        }
        if let Role::Leading(lead) = &self.role {
            let ballot = lead.ballot;
            self.on_refused(ballot, promised, cx);
        }
    }

    /// Ends the log above everything taken so far, wherever it is led: here now, or here later. The
    /// decision that it ends was made elsewhere (a chosen `Next` of the group's log).
    pub fn propose_stop(&mut self, next: Epoch, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        self.wish.get_or_insert(next);
        self.flush(cx);
    }

    /// Convergence by whoever wants the log ended: phase 1 over all slots with a higher ballot,
    /// unless this replica leads, then fill, then `Stop`. It waits for read leases like any
    /// candidate.
    pub fn converge(&mut self, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        self.wish.get_or_insert(self.id.epoch.next());
        self.flush(cx);
        self.try_stand(cx);
    }

    /// Gives the log to another seat: proposes what is queued, ceases to lead, ends the lease
    /// everywhere, and names the successor, which runs phase 1 at once. What was proposed is
    /// recovered by it. If it does not come, this or another replica stands after a pause.
    pub fn hand_over(&mut self, to: Seat, cx: &mut Cx<'_>) {
        self.planted = cx.planted;
        let Role::Leading(lead) = &self.role else {
            return;
        };
        if to == self.seat || !self.seats(to) {
            return;
        }
        let ballot = lead.ballot;
        // The window is a bound on what peers hold; the queue is bounded by `limits.proposals`.
        while self.is_primary() && !self.queue.is_empty() {
            self.cut_batch(cx);
        }
        self.step_down(cx);
        self.hint = Some(to);
        let after = cx.now.monotonic + cx.timing.retry + cx.timing.election;
        self.wait_election(after, cx.timing);
        let successor = Some(to);
        for seat in (0..self.view.len() as u8).map(Seat) {
            if seat != self.seat {
                self.send(seat, Message::Release { ballot, successor }, cx);
            }
        }
    }
}
