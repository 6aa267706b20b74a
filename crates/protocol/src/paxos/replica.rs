//! What the state machine above sees of a log, and all that it sees: see the module's essay for
//! what it may rely on.

use super::store::SnapshotRecord;
use super::transfer::Snapshot;
use super::{Entry, Flight, Leading, Log, Message, Reserved, Role, Stop};
use crate::base::{Ballot, Bug, Limits, LogId, Micros, NodeName, Now, Seat, Slot, Timing, View};
use crate::command::Command;
use crate::io::Env;
use crate::wire::encode;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

/// Why a command was not taken. It did not and will not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// This replica does not lead; perhaps that seat does.
    NotPrimary(Option<Seat>),
    /// Too many commands wait or are in flight here: try again later.
    Busy,
    /// The log ends or has ended: go to its successor.
    Stopping,
}

impl Log {
    /// Which log.
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Its members; they never change.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The seat of this replica.
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// The node that probably leads; a hint for whom to ask.
    pub fn primary_node(&self) -> Option<NodeName> {
        self.view.node_at(self.hint?)
    }

    /// The ballot that is led here, if one is; perhaps before everything recovered is decided.
    pub fn leadership(&self) -> Option<Ballot> {
        match &self.role {
            Role::Leading(lead) => Some(lead.ballot),
            _ => None,
        }
    }

    /// Whether this replica is the primary: it leads, everything that was decided before its term
    /// has been handed out or waits to be, and it has not proposed the end.
    pub fn is_primary(&self) -> bool {
        self.has_begun() && matches!(&self.role, Role::Leading(lead) if !lead.ending)
    }

    /// Whether this replica is the primary, or was until it proposed the end, which is not known to
    /// be chosen. It still reads here then: nobody learns of that end but from this replica, as
    /// long as it has a lease, and the successor does not commit before.
    ///
    /// Its `Begin` is chosen, hence everything recovered below it. In ballot 0 nothing is below it
    /// but the initial state, and its own durable vote is enough.
    pub fn has_begun(&self) -> bool {
        match &self.role {
            Role::Leading(lead) => {
                let begun = |begin| begin <= self.chosen || self.is_first(lead, begin);
                lead.begin.is_some_and(begun) && self.over.is_none()
            }
            _ => false,
        }
    }

    /// Whether nothing can be below this `Begin`, which is durable here, and so is the log.
    fn is_first(&self, lead: &Leading, begin: Slot) -> bool {
        let early = self.planted.has(Bug::CommandsBeforeBegin);
        let own = 1 << self.seat.0;
        let voted = |flight: &Flight| flight.votes & own != 0;
        (lead.ballot.round == 0 || early) && lead.flights.get(&begin).is_some_and(voted)
    }

    /// Whether this primary may answer from its applied state now, on its own clock: nothing is
    /// decided without it.
    ///
    /// An acceptor that acknowledged something sent at `t` is bound until at least one lease after
    /// `t`; the holder's clock may be slow, so it counts a shortened lease. Its own acceptor is
    /// always counted: it refuses others while this very function says so.
    pub fn has_lease(&self, now: Now, timing: &Timing) -> bool {
        let Role::Leading(lead) = &self.role else {
            return false;
        };
        if !self.has_begun() {
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

    /// Until when this primary has its lease at least, on its own clock; none: it has none.
    pub fn lease_until(&self, now: Now, timing: &Timing) -> Option<Micros> {
        let Role::Leading(lead) = &self.role else {
            return None;
        };
        if !self.has_lease(now, timing) {
            return None;
        }
        let own = usize::from(self.seat.0);
        let others = lead.acked.iter().enumerate().filter(|(i, _)| *i != own);
        let mut sent: Vec<Micros> = others.filter_map(|(_, sent)| *sent).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        // With one member nobody else could lead.
        let last = match self.quorum().checked_sub(2) {
            None => now.monotonic,
            Some(last) => *sent.get(last)?,
        };
        Some(last + timing.shortened(timing.lease))
    }

    /// Takes a command for the next batch; [`Log::flush`] sends it.
    ///
    /// # Errors
    /// The command was not taken and will not take effect: this replica does not lead
    /// ([`Declined::NotPrimary`], with its best guess who does), its queue is full
    /// (`Limits::proposals`), or the log ends.
    pub fn propose(&mut self, command: Command, env: &mut Env<'_>) -> Result<(), Declined> {
        self.planted = env.planted;
        let lead = match &mut self.role {
            Role::Leading(lead) if lead.ending => return Err(Declined::Stopping),
            Role::Leading(lead) => lead,
            Role::Candidate(_) if self.planted.has(Bug::HoleFilledWithCommand) => {
                self.kept.push_back(command);
                return Ok(());
            }
            _ if self.over.is_some() => return Err(Declined::Stopping),
            _ => return Err(Declined::NotPrimary(self.hint)),
        };
        if self.wish.is_some() {
            return Err(Declined::Stopping);
        }
        let count = lead.queue.len() + lead.commands;
        let (bytes, more) = (lead.queue.bytes() + lead.bytes, command.bytes());
        let full = count > 0 && bytes + more > env.limits.proposals_bytes
            || more > env.limits.command_bytes();
        if count >= env.limits.proposals || full && !self.planted.has(Bug::BatchByCount) {
            return Err(Declined::Busy);
        }
        lead.queue.push(command);
        Ok(())
    }

    /// Commands that were taken and never proposed by terms that have ended here, since they were
    /// last asked for: they did not and will not take effect. What was proposed may have.
    pub fn take_dropped(&mut self) -> VecDeque<Command> {
        core::mem::take(&mut self.dropped)
    }

    /// A snapshot that came from a peer: the caller replaces its state by it. Commands continue
    /// after its slot; ask for this first.
    pub fn take_installed(&mut self) -> Option<(Slot, Bytes)> {
        self.installed.take()
    }

    /// The next decided slot, in order and once per process, with its commands in order: none for a
    /// slot that is the protocol's own, or void.
    pub fn next_commands(&mut self) -> Option<(Slot, Vec<Command>)> {
        let (slot, entry) = self.next_chosen()?;
        let commands = match entry {
            Entry::Commands { commands, .. } => commands,
            Entry::Noop | Entry::Begin { .. } | Entry::Stop(_) => Vec::new(),
        };
        Some((slot, commands))
    }

    /// The slot up to which commands were handed out, or a snapshot was.
    pub fn delivered(&self) -> Slot {
        self.delivered
    }

    /// Wants the log ended, above everything taken so far, by `stop`. The
    /// decision that it ends was made elsewhere. Every member may want it, and repeat it: the one
    /// that leads, now or later, ends the log.
    ///
    /// A follower proposes nothing; should it come to lead, the `Stop` takes the place of its
    /// `Begin`.
    pub fn propose_stop(&mut self, stop: Stop, env: &mut Env<'_>) {
        self.planted = env.planted;
        self.wish.get_or_insert(stop);
        self.flush(env);
    }

    /// How the log ends, once that is decided. Whether everything before it was handed
    /// out says [`Log::next_commands`].
    pub fn stopped(&self) -> Option<Stop> {
        self.over.map(|(_, stop)| stop)
    }

    /// The end that this replica voted for last, or knows to be chosen: nobody else's vote is
    /// needed for what it asks of the segment's registers.
    pub fn ending(&self) -> Option<Stop> {
        self.stopped().or(self.ending)
    }

    /// Whether anything is chosen in this log, as far as is known here.
    pub fn has_entries(&self) -> bool {
        self.chosen > Slot(0)
    }

    /// Whether enough was handed out since the last snapshot for a new one.
    pub fn needs_snapshot(&self, limits: &Limits) -> bool {
        let slots = self.delivered.0 - self.truncated().0;
        slots >= limits.snapshot_every || (slots > 0 && self.entries >= limits.entries_bytes)
    }

    /// Replaces everything up to `slot` by `state`, the caller's state after it, durably and in one
    /// batch. A few entries stay in memory for peers that lag a little.
    ///
    /// # Panics
    /// If `slot` was not handed out yet: the state would not be its.
    pub fn truncate(&mut self, slot: Slot, state: Bytes, env: &mut Env<'_>) {
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
                .and_then(|(s, stop): (Slot, Stop)| (s <= slot).then_some(stop)),
            reserved: Reserved::default(),
            state,
        };
        let raw = encode(&record);
        self.put_snapshot(raw.clone(), slot, env.fx);
        self.snapshot = Snapshot::new(&record, raw);
        let keep = self.tail(slot, env);
        self.held = self.held.split_off(&keep);
        self.weigh();
    }

    /// Gives the log to another seat at once: proposes what is queued, ceases to lead, and ends its
    /// lease everywhere. If the other does not come, somebody leads after a pause.
    ///
    /// The successor is named in the release and runs phase 1 at once; what was proposed here is
    /// recovered by it.
    pub fn hand_over(&mut self, to: Seat, env: &mut Env<'_>) {
        self.planted = env.planted;
        let Role::Leading(lead) = &self.role else {
            return;
        };
        if to == self.seat || !self.seats(to) {
            return;
        }
        let ballot = lead.ballot;
        // Past the window, which keeps peers from holding much: the queue is bounded, too.
        while self.is_primary() && self.waits() {
            self.cut_batch(env);
        }
        self.step_down(env);
        self.hint = Some(to);
        let after = env.now.monotonic + env.timing.retry + env.timing.election;
        self.wait_election(after, env.timing);
        let successor = Some(to);
        for seat in (0..self.view.len() as u8).map(Seat) {
            if seat != self.seat {
                self.send(seat, Message::Release { ballot, successor }, env);
            }
        }
    }

    /// Sends what was proposed, as far as the bounds allow, and what was decided; to be called at
    /// the end of a node's step.
    pub fn flush(&mut self, env: &mut Env<'_>) {
        self.planted = env.planted;
        self.cut(env);
        self.announce(env);
        self.tell_followers(env);
    }

    /// The time of [`Log::wake`] has come, or any other time.
    pub fn tick(&mut self, env: &mut Env<'_>) {
        self.planted = env.planted;
        self.loans.end(env);
        self.followers.end(env);
        self.fetch_again(env);
        self.tick_leader(env);
        self.tick_election(env);
        self.flush(env);
    }

    /// When this replica wants to be ticked, on the node's boot-time clock; a time that has passed
    /// means now.
    pub fn wake(&self) -> Option<Micros> {
        let role = match &self.role {
            Role::Leading(lead) => lead.due,
            Role::Candidate(candidate) => Some(candidate.due),
            Role::Follower if self.over.is_some() => None,
            Role::Follower => Some(self.election_at.unwrap_or(self.boot)),
        };
        let fetch = self.fetching.map(|f| f.due);
        [role, fetch].into_iter().flatten().min()
    }
}
