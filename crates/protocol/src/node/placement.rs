//! Who should lead what: a policy, apart from the mechanism. The location table spreads the logs of
//! a group over its seats; a log that another seat leads, since its own seat was down, goes back
//! once that seat has been heard steadily for a while. Nothing depends on it: leading is decided by
//! ballots.

use super::{Here, Node, Step};
use crate::base::{LogId, Micros, NodeName, Now, Part, Seat};
use crate::log::ReplicatedLog;
use crate::paxos::Log;
use alloc::vec::Vec;

/// A seat gets its logs back when it has been heard for so many leases.
const STEADY_LEASES: Micros = 4;
/// The pause before a log is given to the same seat once more doubles so often.
const GIVEN_DOUBLINGS_MAX: u32 = 8;

impl Node {
    /// Gives one log back to the seat that should lead it, at most one a beat.
    pub(super) fn place_primaries(&mut self, step: &mut Step<'_>) {
        if !self.here.started || self.here.retiring {
            return;
        }
        self.here.forgive(step.now);
        let Some((id, to)) = self.here.misplaced(step.now) else {
            return;
        };
        let tried = self.here.given.entry(id).or_default();
        tried.0 = step.now.monotonic;
        tried.1 = (tried.1 + 1).min(GIVEN_DOUBLINGS_MAX);
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

    /// The first log that this node leads although another, steady seat should.
    fn misplaced(&self, now: Now) -> Option<(LogId, Seat)> {
        let patience = STEADY_LEASES * self.config.timing.lease;
        self.led_logs().find_map(|log| {
            let number = match log.id().part {
                Part::Group => 0,
                Part::Segment(segment) => segment.0,
            };
            let wished = Here::first_primary(number, log.view().len());
            let name = log.view().node_at(wished)?;
            let since = self.steady.get(&name)?;
            // A seat that did not keep the log, though it is heard, is not tried again soon.
            let (at, times) = self.given.get(&log.id()).copied().unwrap_or_default();
            let again = times == 0 || at + (patience << times) <= now.monotonic;
            let steady = self.is_alive(name, now) && since + patience <= now.monotonic && again;
            (wished != log.seat() && steady).then_some((log.id(), wished))
        })
    }

    /// A seat that has kept its log for a while has earned a fresh count.
    fn forgive(&mut self, now: Now) {
        let patience = STEADY_LEASES * self.config.timing.lease;
        let mut kept = Vec::new();
        for (id, (at, _)) in &self.given {
            let log = match id.part {
                Part::Group => self.groups.get(&id.group).map(|g| &g.log),
                Part::Segment(segment) => self.segments.get(&segment).map(|s| &s.log),
            };
            let elsewhere = log.is_none_or(|log| log.id() != *id || log.leadership().is_none());
            if elsewhere && at + 4 * patience <= now.monotonic {
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
