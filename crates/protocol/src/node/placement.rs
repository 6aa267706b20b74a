//! Who should lead what: a policy, apart from the mechanism. Nothing depends on it: leading is
//! decided by ballots.
//!
//! The location table spreads the logs of a group over its seats: each has a *home*. A group's own
//! log that another seat leads, since its home was down, goes back once the home has been heard
//! steadily for a while. A segment's log goes to the site that uses the segment, and else home; what
//! a site's use is, and where a segment is wished, is [`usage`](super::usage)'s to say. Both go
//! by the same way: at most one log a beat is handed over, to a seat that is heard steadily, and
//! whoever has given a log away and leads it again waits twice as long before the next time. So a
//! log that a seat does not keep, or that two sites win in turns, moves ever more rarely.

use super::usage::{self, Seats};
use super::{Here, Node, Step};
use crate::base::{Bug, KeyId, LogId, Micros, NodeName, Now, Part, Seat, SegmentId, SiteId};
use crate::command::{Body, Command, LockCommand};
use crate::log::ReplicatedLog;
use crate::paxos::Log;
use alloc::vec::Vec;

/// A seat gets its logs back when it has been heard for so many leases.
const STEADY_LEASES: Micros = 4;
/// The pause before a log is given away once more doubles so often.
const GIVEN_DOUBLINGS_MAX: u32 = 8;

impl Node {
    /// Gives one log to the seat that should lead it, at most one a beat.
    pub(super) fn place_primaries(&mut self, step: &mut Step<'_>) {
        if !self.here.started || self.here.retiring {
            return;
        }
        self.here.forgive(step.now);
        self.here.fade(step.now);
        let Some((id, to)) = self.here.misplaced(step.now) else {
            return;
        };
        let tried = self.here.given.entry(id).or_default();
        tried.0 = step.now.monotonic;
        tried.1 = (tried.1 + 1).min(GIVEN_DOUBLINGS_MAX);
        self.here.moves += 1;
        self.here.hand_over(id, to, step);
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
            .filter_map(|log| Some((log.id(), self.here.successor(log, step.now)?)))
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
        let lease = self.config.timing.lease;
        if last.is_none_or(|last| last + lease < now.monotonic) {
            self.steady.insert(peer, now.monotonic);
        }
    }

    /// Gives a log that is led here to another seat. A segment's client leases go with it: they are
    /// sent ahead of the word that releases the log, so the successor recovers them where nothing
    /// is lost, and else waits a full lease.
    fn hand_over(&mut self, id: LogId, to: Seat, step: &mut Step<'_>) {
        if let Part::Segment(segment) = id.part {
            self.close_leases(segment, step);
        }
        self.with_log(id, step, |log, cx| log.hand_over(to, cx));
    }

    fn led_logs(&self) -> impl Iterator<Item = &Log> {
        let groups = self.groups.values().map(|g| &g.log);
        groups
            .chain(self.segments.values().map(|s| &s.log))
            .filter(|log| log.is_primary())
    }

    /// Somebody asks something of a segment that this node leads: see [`usage`](super::usage).
    pub(super) fn count_use(
        &mut self,
        segment: SegmentId,
        from: NodeName,
        command: &Command,
        now: Now,
    ) {
        let counts = match &command.body {
            Body::Lock(LockCommand::Enqueue { keys, .. }) => {
                from != self.id.name || !self.is_upkeep(segment, keys)
            }
            Body::Lock(LockCommand::Resume { .. } | LockCommand::Release { .. }) => true,
            _ => false,
        };
        let site = self.site_of(from);
        if let Some(room) = self.segments.get_mut(&segment).filter(|_| counts) {
            room.usage.count(site, now.monotonic);
        }
    }

    /// Whether an entry of this node itself is one for a key that is flagged and wanted by nobody
    /// (F18): a client that wants just that key now, through this node, is not counted, either.
    fn is_upkeep(&self, segment: SegmentId, keys: &[KeyId]) -> bool {
        let ([key], Some(room)) = (keys, self.segments.get(&segment)) else {
            return false;
        };
        let queue = room.state.queues().queue(key);
        queue.is_some_and(|queue| queue.flag.is_some() && queue.refs.is_empty())
    }

    fn fade(&mut self, now: Now) {
        let led = self.segments.values_mut().filter(|s| s.primary.is_some());
        for room in led {
            room.usage.fade(now.monotonic);
        }
    }

    /// The first log that this node leads although another, steady seat should.
    fn misplaced(&self, now: Now) -> Option<(LogId, Seat)> {
        self.led_logs().find_map(|log| {
            let id = log.id();
            let wished = match id.part {
                Part::Group => self.home(log, 0, now),
                Part::Segment(segment) => self.wished(log, segment, now),
            };
            // A log that has come back is not given away again soon.
            let (at, times) = self.given.get(&id).copied().unwrap_or_default();
            let again = times == 0 || at + (self.pause(id) << times) <= now.monotonic;
            (wished != log.seat() && again).then_some((id, wished))
        })
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

    /// What doubles whenever a log is given away: no less than it takes to say that it should be.
    fn pause(&self, id: LogId) -> Micros {
        match id.part {
            Part::Group => self.patience(),
            Part::Segment(_) => (usage::TENURE * self.config.timing.usage).max(self.patience()),
        }
    }

    /// Whether a seat has been heard for long enough to be given a log.
    fn is_steady(&self, log: &Log, seat: Seat, now: Now) -> bool {
        log.view().node_at(seat).is_some_and(|name| {
            let since = self.steady.get(&name);
            let long = since.is_some_and(|since| since + self.patience() <= now.monotonic);
            long && self.is_alive(name, now)
        })
    }

    /// A seat that has kept its log for a while has earned a fresh count.
    fn forgive(&mut self, now: Now) {
        let mut kept = Vec::new();
        for (id, (at, times)) in &self.given {
            let log = match id.part {
                Part::Group => self.groups.get(&id.group).map(|g| &g.log),
                Part::Segment(segment) => self.segments.get(&segment).map(|s| &s.log),
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

    fn is_alive(&self, name: NodeName, now: Now) -> bool {
        let heard = self.alive.get(&name);
        heard.is_some_and(|at| at + self.config.timing.lease > now.monotonic)
    }

    /// A seat that is alive, other than this node's.
    fn successor(&self, log: &Log, now: Now) -> Option<Seat> {
        let seats = (0..log.view().len() as u8).map(Seat);
        let other = |seat: &Seat| *seat != log.seat();
        seats.filter(other).find(|seat| {
            let name = log.view().node_at(*seat);
            name.is_some_and(|name| self.is_alive(name, now))
        })
    }
}
