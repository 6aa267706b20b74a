//! What a state machine sees of a log: this log as a [`ReplicatedLog`].

use super::store::SnapshotRecord;
use super::transfer::Snapshot;
use super::{Entry, Log, Message, Role};
use crate::base::{Bug, Epoch, Limits, LogId, Micros, Now, Seat, Slot, Timing, View};
use crate::command::Command;
use crate::io::Env;
use crate::log::{Declined, Leadership, ReplicatedLog};
use crate::wire::encode;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

impl ReplicatedLog for Log {
    fn id(&self) -> LogId {
        self.id
    }

    fn view(&self) -> &View {
        &self.view
    }

    fn seat(&self) -> Seat {
        self.seat
    }

    fn primary_hint(&self) -> Option<Seat> {
        self.hint
    }

    fn leadership(&self) -> Option<Leadership> {
        match &self.role {
            Role::Leading(lead) => Some(Leadership {
                ballot: lead.ballot,
                since: lead.since,
            }),
            _ => None,
        }
    }

    // Its `Begin` is chosen, hence everything recovered below it.
    fn is_primary(&self) -> bool {
        match &self.role {
            Role::Leading(lead) => {
                lead.begin.is_some_and(|begin| begin <= self.chosen) && !lead.ending
            }
            _ => false,
        }
    }

    // An acceptor that acknowledged something sent at `t` is bound until at least one lease after
    // `t`; the holder's clock may be slow, so it counts a shortened lease. Its own acceptor is
    // always counted: it refuses others while this very function says so.
    fn has_lease(&self, now: Now, timing: &Timing) -> bool {
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

    fn propose(&mut self, command: Command, cx: &mut Env<'_>) -> Result<(), Declined> {
        self.planted = cx.planted;
        let lead = match &mut self.role {
            Role::Leading(lead) if lead.ending => return Err(Declined::Stopping),
            Role::Leading(lead) => lead,
            Role::Candidate(_) if self.planted.has(Bug::HoleFilledWithCommand) => {
                self.kept.push_back(command);
                return Ok(());
            }
            _ if self.over.is_some() => return Err(Declined::Stopping),
            _ => return Err(Declined::NotPrimary(self.primary_hint())),
        };
        if self.wish.is_some() {
            return Err(Declined::Stopping);
        }
        let count = lead.queue.len() + lead.commands;
        let (bytes, more) = (lead.queue.bytes() + lead.bytes, command.bytes());
        let full = count > 0 && bytes + more > cx.limits.proposals_bytes
            || more > cx.limits.command_bytes();
        if count >= cx.limits.proposals || full && !self.planted.has(Bug::BatchByCount) {
            return Err(Declined::Busy);
        }
        lead.queue.push(command);
        Ok(())
    }

    fn take_dropped(&mut self) -> VecDeque<Command> {
        core::mem::take(&mut self.dropped)
    }

    fn take_installed(&mut self) -> Option<(Slot, Bytes)> {
        self.installed.take()
    }

    fn next_commands(&mut self) -> Option<(Slot, Vec<Command>)> {
        let (slot, entry) = self.next_chosen()?;
        let commands = match entry {
            Entry::Commands { commands, .. } => commands,
            Entry::Noop | Entry::Begin { .. } | Entry::Stop { .. } => Vec::new(),
        };
        Some((slot, commands))
    }

    fn delivered(&self) -> Slot {
        self.delivered
    }

    // A follower proposes nothing; should it come to lead, the `Stop` takes the place of its
    // `Begin`.
    fn propose_stop(&mut self, next: Epoch, cx: &mut Env<'_>) {
        self.planted = cx.planted;
        self.wish.get_or_insert(next);
        self.flush(cx);
    }

    fn stopped(&self) -> Option<Epoch> {
        self.over.map(|(_, next)| next)
    }

    fn needs_snapshot(&self, limits: &Limits) -> bool {
        let slots = self.delivered.0 - self.truncated().0;
        slots >= limits.snapshot_every || (slots > 0 && self.entries >= limits.entries_bytes)
    }

    // A few entries stay in memory for peers that lag a little.
    fn truncate(&mut self, slot: Slot, state: Bytes, cx: &mut Env<'_>) {
        assert!(slot <= self.delivered, "only applied slots are truncated");
        if slot <= self.truncated() {
            return;
        }
        let from = self.truncated();
        let mut begin = self.snapshot.begin;
        for (_, held) in self.held.range(from.next()..=slot) {
            if let Entry::Begin { ballot } = held.entry {
                begin = begin.max(ballot);
            }
        }
        let record = SnapshotRecord {
            slot,
            begin,
            stopped: self
                .over
                .and_then(|(s, next): (Slot, Epoch)| (s <= slot).then_some(next)),
            upper: self.upper,
            state,
        };
        let raw = encode(&record);
        self.put_snapshot(raw.clone(), slot, cx.fx);
        self.snapshot = Snapshot::new(&record, raw);
        let keep = self.tail(slot, cx);
        self.held = self.held.split_off(&keep);
        self.weigh();
    }

    // The successor is named in the release and runs phase 1 at once; what was proposed here is
    // recovered by it.
    fn hand_over(&mut self, to: Seat, cx: &mut Env<'_>) {
        self.planted = cx.planted;
        let Role::Leading(lead) = &self.role else {
            return;
        };
        if to == self.seat || !self.seats(to) {
            return;
        }
        let ballot = lead.ballot;
        // Past the window, which keeps peers from holding much: the queue is bounded, too.
        while self.is_primary() && self.waits() {
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

    fn flush(&mut self, cx: &mut Env<'_>) {
        self.planted = cx.planted;
        self.cut(cx);
        self.announce(cx);
    }

    fn tick(&mut self, cx: &mut Env<'_>) {
        self.planted = cx.planted;
        self.loans.end(cx);
        self.fetch_again(cx);
        self.tick_leader(cx);
        self.tick_election(cx);
        self.flush(cx);
    }

    fn wake(&self) -> Option<Micros> {
        let role = match &self.role {
            Role::Leading(lead) => lead.due,
            Role::Candidate(candidate) => Some(candidate.due),
            Role::Follower if self.over.is_some() => None,
            Role::Follower => Some(self.election_at.unwrap_or(self.boot)),
        };
        let fetch = self.fetching.map(|f| f.due);
        match (role, fetch) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
