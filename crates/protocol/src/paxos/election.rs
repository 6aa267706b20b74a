//! Who leads: timers, candidacy, phase 1, and what a new leader makes of what it hears.

use super::report::{Piece, Report};
use super::store::ROUNDS;
use super::{Entry, Leading, Log, Message, Role};
use crate::base::{Ballot, Bug, Micros, Seat, Slot, Timing};
use crate::io::Env;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Phase 1 under way.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) ballot: Ballot,
    reports: BTreeMap<Seat, Report>,
    /// Whether this seat's own acceptor was asked; it is asked last.
    own: bool,
    /// When those that have not answered are asked again.
    pub(super) due: Micros,
}

impl Candidate {
    /// Those that have reported everything.
    fn whole(&self) -> impl Iterator<Item = (Seat, &Report)> {
        let all = self.reports.iter().map(|(seat, report)| (*seat, report));
        all.filter(|(_, report)| report.whole)
    }

    fn has_whole(&self, seat: Seat) -> bool {
        self.reports.get(&seat).is_some_and(|report| report.whole)
    }

    /// What is asked of a seat: what follows what it has reported.
    fn question(&self, seat: Seat, chosen: Slot) -> Message {
        let got = self.reports.get(&seat);
        Message::Prepare {
            ballot: self.ballot,
            above: got.map_or(chosen, |report| report.above(chosen)),
        }
    }
}

impl Log {
    /// The next election is due when `from` has come, the election pause has passed, and the seats
    /// before this one had their chance.
    pub(super) fn wait_election(&mut self, from: Micros, timing: &Timing) {
        let stagger = timing.stagger * Micros::from(self.seat.0);
        self.election_at = Some(from + timing.election + stagger);
    }

    /// Stands for election if nothing binds this node's own acceptor.
    pub(super) fn try_stand(&mut self, env: &mut Env<'_>) {
        if !matches!(self.role, Role::Follower) || self.over.is_some() {
            return;
        }
        if self.muted() {
            // It could not promise itself. It asks the others for what it lacks instead.
            return self.wait_election(env.now.monotonic, env.timing);
        }
        if self.bound(self.seat, env.now, env.timing).is_some() {
            let over = self.grant.as_ref().map_or(0, |g| g.until);
            let over = over.max(self.boot_over(env.timing));
            self.election_at = Some(over + env.timing.election);
            return;
        }
        self.stand(env);
    }

    /// The process that leads this log from that seat is gone, says somebody who may be wrong. Its
    /// lease binds this acceptor all the same, and nothing is waited for beyond it but the seats
    /// that come first.
    pub fn on_gone(&mut self, gone: Seat, env: &mut Env<'_>) {
        self.planted = env.planted;
        if self.hint != Some(gone) || gone == self.seat {
            return;
        }
        self.hint = None;
        if self.planted.has(Bug::GoneMeansReleased) {
            self.grant = None;
        }
        if matches!(self.role, Role::Follower) {
            let over = self.grant.as_ref().map_or(0, |grant| grant.until);
            let over = over.max(self.boot_over(env.timing)).max(env.now.monotonic);
            let before = self.seat.0 - u8::from(gone < self.seat);
            self.election_at = Some(over + env.timing.stagger * Micros::from(before));
        }
    }

    /// An acceptor is bound by the lease of another ballot, which is soon over if its holder is
    /// dead: it is asked again before an answer that was lost would be.
    pub(super) fn on_leased(&mut self, ballot: Ballot, env: &Env<'_>) {
        self.ignore("bound by a lease");
        if let Role::Candidate(candidate) = &mut self.role
            && candidate.ballot == ballot
        {
            let soon = env.now.monotonic + env.timing.retry / 8;
            candidate.due = candidate.due.min(soon);
        }
    }

    /// Phase 1 for all slots, with a ballot that no process ever led: the round is durable before
    /// anybody hears of it.
    ///
    /// Leading needs the own promise, durable, and that alone keeps a ballot from being led twice;
    /// the durable round also keeps late answers to an earlier process from counting for this one.
    ///
    /// The own acceptor promises last, when the others make a quorum with it. A candidate that
    /// nobody supports thus goes on following the leader whom the others hear.
    pub(super) fn stand(&mut self, env: &mut Env<'_>) {
        let top = self.promised.max(self.seen);
        let round = top.round.max(self.used);
        if round + 1 >= ROUNDS {
            self.wait_election(env.now.monotonic, env.timing);
            return self.ignore("no round is left to stand with");
        }
        self.used = round + 1;
        self.put_promise(env.fx);
        let ballot = Ballot {
            round: self.used,
            seat: self.seat,
        };
        self.take_role(Role::Candidate(Candidate {
            ballot,
            reports: BTreeMap::new(),
            own: false,
            due: env.now.monotonic + env.timing.retry,
        }));
        self.election_at = None;
        self.ask_promises(env);
        self.ask_own(env);
    }

    fn ask_promises(&mut self, env: &mut Env<'_>) {
        let Role::Candidate(candidate) = &mut self.role else {
            return;
        };
        candidate.due = env.now.monotonic + env.timing.retry;
        let questions: Vec<(Seat, Message)> = (0..self.view.len() as u8)
            .map(Seat)
            .filter(|s| *s != self.seat && !candidate.has_whole(*s))
            .map(|s| (s, candidate.question(s, self.chosen)))
            .collect();
        for (seat, question) in questions {
            self.vow(seat, question, env);
        }
    }

    fn ask_own(&mut self, env: &mut Env<'_>) {
        let quorum = self.quorum();
        let Role::Candidate(candidate) = &mut self.role else {
            return;
        };
        if candidate.own || candidate.whole().count() + 1 < quorum {
            return;
        }
        candidate.own = true;
        let (seat, ballot, above) = (self.seat, candidate.ballot, self.chosen);
        self.on_prepare(seat, ballot, above, env);
    }

    /// The time of a candidate or follower has come.
    pub(super) fn tick_election(&mut self, env: &mut Env<'_>) {
        match &mut self.role {
            Role::Candidate(candidate) if env.now.monotonic >= candidate.due => {
                // This seat's promise to itself is sent again, too, should it have been lost.
                if !candidate.has_whole(self.seat) {
                    candidate.own = false;
                }
                self.ask_promises(env);
                self.ask_own(env);
            }
            Role::Follower if self.over.is_none() => match self.election_at {
                Some(at) if env.now.monotonic < at => {}
                Some(_) => self.try_stand(env),
                None => {
                    let stagger = env.timing.stagger * Micros::from(self.seat.0);
                    self.election_at = Some(self.boot_over(env.timing) + stagger);
                }
            },
            _ => {}
        }
    }

    pub(super) fn on_promise(
        &mut self,
        from: Seat,
        ballot: Ballot,
        mut piece: Piece,
        env: &mut Env<'_>,
    ) {
        let chosen = piece.chosen;
        // A restart may have forgotten part of `chosen`, not of the votes: hence twice the reach.
        let top = chosen
            .0
            .saturating_add(2 * super::acceptor::reach(env.limits));
        if piece.accepted.iter().any(|a| a.slot.0 > top) {
            return self.ignore("promise with a slot beyond the horizon");
        }
        piece.more &= !self.planted.has(Bug::PieceTakenAsWhole);
        let candidate = match &mut self.role {
            Role::Candidate(candidate) if candidate.ballot == ballot => candidate,
            _ => return self.ignore("promise for another ballot"),
        };
        let report = candidate.reports.entry(from).or_default();
        if !report.add(piece, self.chosen) {
            return self.ignore("promise that says nothing new, or leaves a gap");
        }
        if !report.whole {
            // The round is durable, or nobody had answered.
            let question = candidate.question(from, self.chosen);
            self.send(from, question, env);
        }
        self.known = self.known.max(chosen);
        self.ask_own(env);
        if chosen > self.chosen {
            self.want(from, env);
        }
        self.try_lead(env);
    }

    /// Leads if a quorum has promised, this seat among it, and everything that anyone of that
    /// quorum knows to be chosen is here. A proposer behind somebody's truncation would take
    /// "nothing reported" for "free", and propose a no-op over a chosen entry.
    ///
    /// A seat that promised, knows more, and died does not hold this up when a quorum without it is
    /// there: that quorum reports every slot above our own prefix vote by vote.
    pub(super) fn try_lead(&mut self, env: &mut Env<'_>) {
        let quorum = self.quorum();
        let Role::Candidate(candidate) = &self.role else {
            return;
        };
        if self.over.is_some() {
            // Somebody ended the log. There is nothing left to lead.
            return self.take_role(Role::Follower);
        }
        let usable = candidate.whole().filter(|(_, r)| r.chosen <= self.chosen);
        let ready = usable.count() >= quorum && candidate.has_whole(self.seat);
        if !ready {
            return;
        }
        let candidate = match core::mem::replace(&mut self.role, Role::Follower) {
            Role::Candidate(candidate) => candidate,
            _ => unreachable!("matched above"),
        };
        let merged = self.merge(&candidate);
        self.lead(candidate.ballot, merged);
        self.cut(env);
    }

    /// Per slot, the entry of the highest ballot reported: if any was chosen, it is that one.
    fn merge(&self, candidate: &Candidate) -> BTreeMap<Slot, Entry> {
        let mut merged: BTreeMap<Slot, (Ballot, usize, &Entry)> = BTreeMap::new();
        let usable = candidate.whole().filter(|(_, r)| r.chosen <= self.chosen);
        for (_, report) in usable {
            for (slot, (ballot, entry)) in report.votes.range(self.chosen.next()..) {
                let best = merged.entry(*slot).or_insert((*ballot, 0, entry));
                if *ballot > best.0 {
                    *best = (*ballot, 1, entry);
                } else if *ballot == best.0 {
                    best.1 += 1;
                }
            }
        }
        let quorum = self.quorum();
        let timid = self.planted.has(Bug::NoopOverAccepted);
        merged
            .into_iter()
            .map(|(slot, (_, votes, entry))| match entry {
                // The printed rule of convergence: "accepted, not chosen, hence free".
                _ if timid && votes < quorum => (slot, Entry::Noop),
                entry => (slot, entry.clone()),
            })
            .collect()
    }

    /// Begins to lead `ballot`, with what is to be proposed again.
    pub(super) fn lead(&mut self, ballot: Ballot, recovered: BTreeMap<Slot, Entry>) {
        assert_eq!(
            self.promised, ballot,
            "a leader has promised its own ballot"
        );
        self.hint = Some(self.seat);
        self.grant = None;
        self.fetching = None;
        self.partial = None;
        self.election_at = None;
        let queue = core::mem::take(&mut self.kept).into();
        self.take_role(Role::Leading(Leading {
            ballot,
            next: self.chosen.next(),
            flights: BTreeMap::new(),
            begin: None,
            ending: false,
            recovered,
            queue,
            commands: 0,
            bytes: 0,
            announced: self.chosen,
            acked: alloc::vec![None; self.view.len()],
            due: None,
        }));
    }

    /// Follows, stands or leads from here on. The queue of a leadership ends with it: its commands
    /// were taken by a primary that is no more, and the next one, be it this very node's, knows
    /// nothing of them (P11).
    fn take_role(&mut self, role: Role) {
        let ended = core::mem::replace(&mut self.role, role);
        let Role::Leading(ended) = ended else { return };
        let outlives = self.planted.has(Bug::QueueOutlivesLeadership)
            || self.planted.has(Bug::HoleFilledWithCommand);
        match outlives {
            true => self.kept.extend(ended.queue.into_commands()),
            false => self.dropped.extend(ended.queue.into_commands()),
        }
    }

    pub(super) fn on_refused(&mut self, ballot: Ballot, promised: Ballot, env: &mut Env<'_>) {
        if promised.round >= ROUNDS {
            return self.ignore("refusal with an absurd round");
        }
        self.seen = self.seen.max(promised);
        match &self.role {
            Role::Candidate(candidate) if candidate.ballot == ballot && promised > ballot => {
                self.take_role(Role::Follower);
                self.wait_election(env.now.monotonic, env.timing);
            }
            Role::Leading(lead) if lead.ballot == ballot && promised > ballot => {
                let leased = self.has_lease(env.now, env.timing);
                if leased && !self.muted() && self.over.is_none() {
                    // A seat that was cut off has promised somebody nobody else supports. The
                    // leader outbids it, for it is the one that the others follow.
                    self.stand(env);
                } else {
                    self.step_down(env);
                }
            }
            _ => {}
        }
    }

    /// Neither leads nor stands any more.
    pub(super) fn step_down(&mut self, env: &mut Env<'_>) {
        if matches!(self.role, Role::Follower) {
            return;
        }
        if self.planted.has(Bug::HoleFilledWithCommand) {
            // Commands proposed and not chosen wait for the next term, too: it fills a hole.
            let unchosen = self.held.range(self.chosen.next()..);
            let commands = unchosen.flat_map(|(_, held)| match &held.entry {
                Entry::Commands { commands, .. } => commands.clone(),
                _ => Vec::new(),
            });
            self.kept.extend(commands.collect::<Vec<_>>());
        }
        self.take_role(Role::Follower);
        self.wait_election(env.now.monotonic, env.timing);
    }
}
