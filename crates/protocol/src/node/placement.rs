//! Who should lead what: a policy, apart from the mechanism. Nothing depends on it: leading is
//! decided by ballots.
//!
//! The location table spreads the logs of a group over its seats: each has a *home*. A group's own
//! log that another seat leads, since its home was down, goes back once the home has been heard
//! steadily for a while, or to the member that is the nearest to a quorum, where the cluster's
//! settings say so ([`distances`](super::distances)). A segment's log goes to the site that uses
//! the segment, and else home; [`usage`](super::usage) says what a site's use is, and where a
//! segment is wished. Both go by the same way: at most one log a beat is handed over, to a seat
//! that is heard steadily and does not lag behind a snapshot, which it would have to fetch before
//! anybody is served (G32); a node that has given a log away and leads it again waits twice as long
//! before the next time. So a log that a seat does not keep, or that two sites win in turns, moves
//! ever more rarely.

use super::usage::{self, Seats};
use super::{Here, Node, Step};
use crate::base::{Bug, KeyId, LogId, Micros, NodeName, Now, Scope, Seat, SegmentId, SiteId};
use crate::command::{Body, Command, LockCommand};
use crate::lock::Rejection;
use crate::paxos::Log;
use crate::register::Owner;
use crate::request::Mode;
use alloc::vec::Vec;

/// A seat gets its logs back when it has been heard for so many leases.
const STEADY_LEASES: Micros = 4;
/// A log that is to be given away waits for a good moment so many retry times.
const MOMENT_RETRIES: Micros = 2;
/// Logs that wait for it at once.
const DUE_MAX: usize = 16;
/// The pause before a log is given away once more doubles so often.
const GIVEN_DOUBLINGS_MAX: u32 = 8;

impl Node {
    /// Gives one log to the seat that should lead it, at most one a beat. A node that is about to
    /// stop, or drains, or whose disk is full, gives away all that it leads: what it has given away
    /// may have come back, since others hear it as they always did (G33).
    pub(super) fn place_primaries(&mut self, step: &mut Step<'_>) {
        if self.here.retiring && !self.here.config.planted.has(Bug::RetiringKeeps) {
            return self.give_away(step);
        }
        if !self.here.started || self.here.retiring {
            return;
        }
        if self.here.drains(self.here.id.name) || !self.here.writable {
            return self.give_away(step);
        }
        self.here.forgive(step.now);
        self.here.fade(step.now);
        let misplaced = self.here.misplaced(step.now);
        let Some((id, to)) = self.ready(misplaced, step.now) else {
            return;
        };
        let tried = self.here.given.entry(id).or_default();
        tried.0 = step.now.monotonic;
        tried.1 = (tried.1 + 1).min(GIVEN_DOUBLINGS_MAX);
        self.here.moves += 1;
        self.here.hand_over(id, to, step);
    }

    /// The first of these logs for which this is a good moment. The next primary would find a ref
    /// that is about to enter, its value being read, only with a renewal: a log waits until there
    /// is nobody, but not for long.
    fn ready(&mut self, misplaced: Vec<(LogId, Seat)>, now: Now) -> Option<(LogId, Seat)> {
        let Here { due, config, .. } = &mut self.here;
        due.retain(|id, _| misplaced.iter().any(|(of, _)| of == id));
        let entering = |id: &LogId| {
            let mut owners = self.caller.under_way().map(|(_, owner)| owner);
            owners.any(|owner| match owner {
                Owner::Primary(segment, ..) => id.scope == Scope::Segment(*segment),
                _ => false,
            })
        };
        misplaced.into_iter().find(|(id, _)| {
            let since = *due.entry(*id).or_insert(now.monotonic);
            !entering(id) || since + MOMENT_RETRIES * config.timing.retry <= now.monotonic
        })
    }

    /// The node is about to stop.
    pub(super) fn retire(&mut self, step: &mut Step<'_>) {
        self.here.retiring = true;
        self.give_away(step);
    }

    /// Hands everything over to whoever is there to take it.
    pub(super) fn give_away(&mut self, step: &mut Step<'_>) {
        let led: Vec<(LogId, Seat)> = self
            .here
            .led_logs()
            .filter_map(|log| {
                let to = self.here.successor(log, step.now)?;
                let takes = self.here.takes(log, to, step.now);
                takes.then_some((log.id(), to))
            })
            .collect();
        for (id, to) in led {
            self.here.hand_over(id, to, step);
        }
    }
}

impl Here {
    /// A peer was heard.
    pub(super) fn hear(&mut self, peer: NodeName, now: Now) {
        let last = self.alive.insert(peer, now.monotonic);
        self.seen.gone.remove(&peer);
        let lease = self.config.timing.lease;
        if last.is_none_or(|last| last + lease < now.monotonic) {
            self.steady.insert(peer, now.monotonic);
        }
    }

    /// Gives a log that is led here to another seat. A segment's client leases go with it: they are
    /// sent ahead of the word that releases the log, so the successor recovers them where nothing
    /// is lost, and else waits a full lease.
    fn hand_over(&mut self, id: LogId, to: Seat, step: &mut Step<'_>) {
        if let Scope::Segment(segment) = id.scope {
            self.close_leases(segment, false, step);
        }
        self.with_log(id, step, |log, cx| log.hand_over(to, cx));
    }

    fn led_logs(&self) -> impl Iterator<Item = &Log> {
        let groups = self.groups.values().map(|g| &g.log);
        groups
            .chain(self.segments.values().map(|s| &s.log))
            .filter(|log| log.is_primary())
    }

    /// An entry has been applied, for the first time: see [`usage`](super::usage). Entries, unlike
    /// submissions, are not repeated, and their number says nothing of how the cluster does.
    pub(super) fn count_use(&mut self, segment: SegmentId, command: &Command, now: Now) {
        let (origin, upkeep) = match &command.body {
            Body::Lock(LockCommand::Enqueue { keys, mode, origin }) => {
                let own = *mode == Mode::Shared && origin.node == self.id.name;
                (origin, own && self.is_neglected(segment, keys))
            }
            Body::Lock(LockCommand::Resume { origin, .. }) => (origin, false),
            _ => return,
        };
        let site = self.directory.site_of(origin.node);
        let room = self.segments.get_mut(&segment);
        if let Some(room) = room.filter(|r| r.primary.is_some() && !upkeep) {
            room.usage.count(site, now.monotonic);
        }
    }

    /// Whether these are a flagged key that one ref wants, the last one that was applied: the
    /// primary's own reads of such keys are upkeep, which clears flags (F18). A client's is not
    /// counted then, either.
    fn is_neglected(&self, segment: SegmentId, keys: &[KeyId]) -> bool {
        let ([key], Some(room)) = (keys, self.segments.get(&segment)) else {
            return false;
        };
        let queue = room.state.queues().queue(key);
        queue.is_some_and(|queue| queue.flag.is_some() && queue.refs.len() == 1)
    }

    fn fade(&mut self, now: Now) {
        let led = self.segments.values_mut().filter(|s| s.primary.is_some());
        for room in led {
            room.usage.fade(now.monotonic);
        }
    }

    /// Logs that this node leads although another, steady seat should: the first ones.
    fn misplaced(&self, now: Now) -> Vec<(LogId, Seat)> {
        let misplaced = self.led_logs().filter_map(|log| {
            let id = log.id();
            let wished = match id.scope {
                Scope::Group => self.group_wished(log, now),
                Scope::Segment(segment) => self.wished(log, segment, now),
            };
            // A log that has come back is not given away again soon.
            let (at, times) = self.given.get(&id).copied().unwrap_or_default();
            let again = times == 0 || at + (self.pause(id) << times) <= now.monotonic;
            (wished != log.seat() && again).then_some((id, wished))
        });
        misplaced.take(DUE_MAX).collect()
    }

    /// The seat that should lead a group's own log, or else the present one.
    fn group_wished(&self, log: &Log, now: Now) -> Seat {
        if !self.registry.settings().nearest_leads {
            return self.home(log, 0, now);
        }
        let wished = self.seen.distances.wished(log.id().group);
        let seat = wished.and_then(|name| log.view().seat_of(name));
        let able = seat.filter(|seat| self.is_steady(log, *seat, now));
        able.unwrap_or_else(|| log.seat())
    }

    /// The seat that leads a log by number, if it is there, or else the present one.
    fn home(&self, log: &Log, number: u32, now: Now) -> Seat {
        let home = Here::first_primary(number, log.view().len());
        match self.is_steady(log, home, now) {
            true => home,
            false => log.seat(),
        }
    }

    /// The seat that should lead a segment, or else the present one.
    fn wished(&self, log: &Log, segment: SegmentId, now: Now) -> Seat {
        let home = Here::first_primary(segment.0, log.view().len());
        let room = self.segments.get(&segment);
        let Some(usage) = room
            .map(|s| &s.usage)
            .filter(|_| self.config.timing.usage > 0)
        else {
            return self.home(log, segment.0, now);
        };
        if log.seat() == home && usage.is_unused() {
            return home;
        }
        if usage.is_young(now.monotonic) && self.config.planted.has(Bug::UsageForgotten) {
            return self.home(log, segment.0, now);
        }
        let sites = log.view().seats.iter().map(|member| member.site);
        let all = (0..).map(Seat).zip(sites);
        let all = all.map(|(seat, site)| (site, self.is_steady(log, seat, now)));
        let all: Vec<(SiteId, bool)> = all.collect();
        let seats = Seats {
            number: segment.0,
            home,
            current: log.seat(),
            all: &all,
        };
        usage::wished(usage, &seats, self.config.limits.usage_lead, now.monotonic)
    }

    /// How long a seat must be heard before it is given a log.
    fn patience(&self) -> Micros {
        STEADY_LEASES * self.config.timing.lease
    }

    /// The first pause between two hand-overs of a log, doubled by each: at least as long as it
    /// takes to find out that the log should move.
    fn pause(&self, id: LogId) -> Micros {
        match id.scope {
            Scope::Group => self.patience(),
            Scope::Segment(_) => (usage::TENURE * self.config.timing.usage).max(self.patience()),
        }
    }

    /// Whether a seat has been heard for long enough to be given a log, and does not lag far.
    pub(super) fn is_steady(&self, log: &Log, seat: Seat, now: Now) -> bool {
        let behind = log.is_behind(seat, now, &self.config.timing);
        if behind && !self.config.planted.has(Bug::LaggardIsSteady) {
            return false;
        }
        log.view().node_at(seat).is_some_and(|name| {
            if self.drains(name) {
                return false;
            }
            let since = self.steady.get(&name);
            let long = since.is_some_and(|since| since + self.patience() <= now.monotonic);
            long && self.is_alive(name, now)
        })
    }

    /// A seat that has kept its log for a while has earned a fresh count.
    fn forgive(&mut self, now: Now) {
        let mut kept = Vec::new();
        for (id, (at, times)) in &self.given {
            let log = match id.scope {
                Scope::Group => self.groups.get(&id.group).map(|g| &g.log),
                Scope::Segment(segment) => self.segments.get(&segment).map(|s| &s.log),
            };
            let elsewhere = log.is_none_or(|log| log.id() != *id || log.leadership().is_none());
            if elsewhere && at + 2 * (self.pause(*id) << times) <= now.monotonic {
                kept.push(*id);
            }
        }
        for id in kept {
            self.given.remove(&id);
        }
    }

    pub(super) fn is_alive(&self, name: NodeName, now: Now) -> bool {
        let heard = self.alive.get(&name);
        heard.is_some_and(|at| at + self.config.timing.lease > now.monotonic)
    }

    /// Whether a log is given to that seat because this node is to lead no more. Of two that drain
    /// neither gives the other what it would give back, unless its own disk is full and the other's
    /// is not; nobody who has no room is given anything, nor one who lags behind a snapshot (G32).
    /// One that stops gives to whoever there is.
    fn takes(&self, log: &Log, to: Seat, now: Now) -> bool {
        let planted = self.config.planted;
        let name = log.view().node_at(to);
        let drains = name.is_some_and(|name| self.drains(name)) && self.writable;
        let room = name.is_some_and(|name| self.has_room(name)) || planted.has(Bug::GivenToFull);
        let lags = log.is_behind(to, now, &self.config.timing);
        self.retiring
            || room
                && (!drains || planted.has(Bug::DrainedInTurns))
                && (!lags || planted.has(Bug::GivenToLaggard))
    }

    /// A seat that is alive, other than this node's: one that has room, does not drain and does not
    /// lag, if there is one.
    fn successor(&self, log: &Log, now: Now) -> Option<Seat> {
        let seats = (0..log.view().len() as u8).map(Seat);
        let others = seats.filter(|seat| *seat != log.seat());
        let living = others.filter(|seat| {
            let name = log.view().node_at(*seat);
            name.is_some_and(|name| self.is_alive(name, now))
        });
        living.min_by_key(|seat| {
            let name = log.view().node_at(*seat);
            let has_room = name.is_none_or(|name| self.has_room(name));
            let full = !has_room && !self.config.planted.has(Bug::GivenToFull);
            let drains = name.is_some_and(|name| self.drains(name));
            (full, drains, log.is_behind(*seat, now, &self.config.timing))
        })
    }

    /// Whether a node is to lead nothing, as far as this one knows.
    fn drains(&self, name: NodeName) -> bool {
        let known = self.registry.get(name);
        known.is_some_and(|known| known.drains) && !self.config.planted.has(Bug::DrainIgnored)
    }

    /// Why this node cannot take a command for a segment.
    pub(super) fn why_not_primary(&self, segment: SegmentId) -> Option<Rejection> {
        let Some(room) = self.segments.get(&segment) else {
            return Some(Rejection::Elsewhere(None));
        };
        let elsewhere = room.primary.is_none().then(|| self.not_primary(&room.log));
        // Its own disk is no matter where another leads.
        let leads_elsewhere = matches!(elsewhere, Some(Rejection::NotPrimary(Some(_))))
            && !self.config.planted.has(Bug::FullAnswersForPrimary);
        match self.writable || leads_elsewhere {
            true => elsewhere,
            false => Some(Rejection::DiskFull),
        }
    }

    /// Another leads this log: perhaps that one.
    fn not_primary(&self, log: &Log) -> Rejection {
        let hint = log.primary_node();
        Rejection::NotPrimary(hint.filter(|n| *n != self.id.name))
    }

    /// Why this node cannot answer for the present of a segment.
    pub(super) fn why_not_leased(&self, segment: SegmentId, step: &Step<'_>) -> Option<Rejection> {
        match self.segments.get(&segment) {
            None => Some(Rejection::Elsewhere(None)),
            // One that has proposed the end renews nothing any more: the next one does.
            Some(room) if !room.log.is_primary() => Some(self.not_primary(&room.log)),
            Some(room) if !room.log.has_lease(step.now, &self.config.timing) => {
                Some(Rejection::NotPrimary(None))
            }
            Some(_) => None,
        }
    }
}
