//! Whether this node's interval clock may be relied on.
//!
//! **Problem.** A write of one round takes the latest that the true time can be as its tag, and
//! ends when that time has certainly passed (Tribune §III). Where a machine's clock is further off
//! than it says, nothing becomes garbage, but acknowledged writes are silently outranked: those of
//! others by a clock that is fast, its own by one that is slow (F9). No node can tell by itself
//! that its clock is wrong; two nodes that compare readings can tell that one of theirs is.
//!
//! **Idea.** Every frame carries its sender's interval, read after all that the frame says. True
//! time was not below the sender's `earliest` then, and has not gone back since; so a receiver
//! whose `latest` is below that proves, with it, that one of the two clocks lies. The other way
//! round the trip must be known: an answer to this node's beat was sent after the beat was, so the
//! answerer's `latest` must not be below this node's `earliest` at the sending. And two readings of
//! one clock must differ by what the boot-time clock says has gone by, or it was stepped.
//!
//! A node that finds such a proof gives its interval up: the protocol sees none, and does without
//! (two rounds, which outrank every tag seen). It need not know which of the two clocks is wrong.
//!
//! **Why pairs are enough.** Let a write of one round at X have ended before one at Y begins. The
//! first ended when X's `earliest` had passed its tag; the second's tag is Y's `latest`. They are
//! in order if Y's `latest` is not below what X's `earliest` was before: which is what Y, or X, has
//! found no proof against. A third clock's word does not matter.
//!
//! **Invariants.** W1: no interval is handed on that is wider than [`BOUND_MAX`] allows, or while a
//! proof is younger than [`QUIET`]. W2: `earliest` does not go back while intervals are handed on.
//! W3: readings are compared, and told to others, also while they are not relied on; the quiet time
//! is thus one in which the clocks have agreed or were not heard.
//!
//! **Departures.** Tribune assumes that the bound holds. Nothing here is durable: a restart takes
//! the clock to be right until somebody proves the contrary, within one beat.

use crate::base::{BOUND_MAX, Bug, Interval, Micros, NodeName, Now, Planted, Timing, WALL_BOUND};
use crate::request::{ClockState, ClockStatus};
use alloc::collections::{BTreeMap, VecDeque};

/// How long after the last proof of a violation a node takes its clock to be right again: by then
/// the times that were taken for tags meanwhile have passed.
pub const QUIET: Micros = WALL_BOUND + 2 * BOUND_MAX;
/// Beats whose sending is remembered: more than are under way over the longest round trip.
const BEATS: usize = 64;

/// A node's judgement of its own interval clock.
#[derive(Debug, Default)]
pub struct ClockWatch {
    /// The latest reading and the boot time of it; none: there is none, or it is too wide.
    own: Option<(Micros, Interval)>,
    /// When the latest beats were sent, and the `earliest` of then; in order.
    beats: VecDeque<(Micros, u64)>,
    /// What each peer's latest frame said.
    heard: BTreeMap<NodeName, Interval>,
    /// The last proof: when, and whose clock contradicts this node's; none: its own, earlier.
    violation: Option<(Micros, Option<NodeName>)>,
    /// Proofs found, at most one per beat.
    violations: u64,
    /// The bound of the latest reading, trusted or not.
    bound: Option<Micros>,
}

impl ClockWatch {
    /// Looks at a reading of this node's clocks, and returns it as the protocol may rely on it.
    pub fn read(&mut self, mut now: Now, timing: &Timing, planted: Planted) -> Now {
        let interval = now.interval.filter(|i| i.earliest <= i.latest);
        self.bound = interval.map(bound_of);
        let own = interval.filter(|i| bound_of(*i) <= BOUND_MAX);
        if let (Some(own), Some(before)) = (own, self.own)
            && was_stepped(before, (now.monotonic, own), timing)
        {
            self.own = None;
            self.found(None, now.monotonic, timing);
        }
        self.own = own.map(|own| {
            // Having been true once, it is true ever after.
            let least = self.own.map_or(0, |(_, before)| before.earliest);
            let earliest = own.earliest.max(least).min(own.latest);
            (now.monotonic, Interval { earliest, ..own })
        });
        if own.is_none() {
            self.beats.clear();
        }
        if let Some((at, _)) = self.violation
            && now.monotonic.saturating_sub(at) >= QUIET
        {
            self.violation = None;
        }
        let ignored = planted.has(Bug::ClockViolationIgnored);
        let trusted = self.own.filter(|_| self.violation.is_none() || ignored);
        now.interval = trusted.map(|(_, own)| own);
        now
    }

    /// A beat goes out to all peers.
    pub fn on_beat(&mut self, sent: Micros) {
        if let Some((_, own)) = self.own {
            self.beats.push_back((sent, own.earliest));
            if self.beats.len() > BEATS {
                self.beats.pop_front();
            }
        }
    }

    /// A frame of `from` has come, and this is what it says of its sender's clock.
    pub fn on_frame(&mut self, from: NodeName, theirs: Option<Interval>, now: Now, t: &Timing) {
        let theirs = theirs.filter(|i| i.earliest <= i.latest && bound_of(*i) <= BOUND_MAX);
        let Some(theirs) = theirs else {
            self.heard.remove(&from);
            return;
        };
        self.heard.insert(from, theirs);
        if self
            .own
            .is_some_and(|(_, own)| own.latest < theirs.earliest)
        {
            self.found(Some(from), now.monotonic, t);
        }
    }

    /// The frame of `from` that has just come answers the beat sent at `sent`.
    pub fn on_answer(&mut self, from: NodeName, sent: Micros, now: Now, timing: &Timing) {
        let beat = self.beats.iter().find(|(at, _)| *at == sent);
        let (Some((_, earliest)), Some(theirs)) = (beat, self.heard.get(&from)) else {
            return;
        };
        if theirs.latest < *earliest {
            self.found(Some(from), now.monotonic, timing);
        }
    }

    fn found(&mut self, against: Option<NodeName>, at: Micros, timing: &Timing) {
        let last = self.violation.map(|(at, _)| at);
        if last.is_none_or(|last| at.saturating_sub(last) >= timing.beat) {
            self.violations += 1;
            self.violation = Some((at, against));
        }
    }

    /// What it has come to.
    pub fn status(&self) -> ClockStatus {
        let state = match (self.own, self.bound) {
            _ if self.violation.is_some() => ClockState::Violated,
            (Some(_), _) => ClockState::Trusted,
            (None, Some(_)) => ClockState::TooWide,
            (None, None) => ClockState::Absent,
        };
        ClockStatus {
            state,
            bound: self.bound,
            violations: self.violations,
            against: self.violation.and_then(|(_, against)| against),
        }
    }
}

fn bound_of(interval: Interval) -> Micros {
    (interval.latest - interval.earliest).div_ceil(2)
}

/// Whether two readings of one clock cannot both be right, after what the boot-time clock says has
/// gone by between them.
fn was_stepped(before: (Micros, Interval), after: (Micros, Interval), timing: &Timing) -> bool {
    let elapsed = after.0.saturating_sub(before.0);
    let least = before.1.earliest.saturating_add(timing.shortened(elapsed));
    let most = before.1.latest.saturating_add(timing.lengthened(elapsed));
    after.1.latest < least || after.1.earliest > most
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Micros = 1_000_000;
    /// True time at boot time 0.
    const TRUE: u64 = 1_790_000_000_000_000;

    /// A node whose clock is off by `offset` and says that it is by at most `bound`.
    struct Machine {
        watch: ClockWatch,
        timing: Timing,
        offset: i64,
        bound: u64,
    }

    impl Machine {
        fn new(offset: i64, bound: u64) -> Machine {
            Machine {
                watch: ClockWatch::default(),
                timing: Timing::default(),
                offset,
                bound,
            }
        }

        fn raw(&self, at: Micros) -> Now {
            let wall = (TRUE + at).saturating_add_signed(self.offset);
            let interval = Some(Interval {
                earliest: wall - self.bound,
                latest: wall + self.bound,
            });
            Now {
                monotonic: at,
                wall,
                interval,
            }
        }

        fn read(&mut self, at: Micros) -> Option<Interval> {
            let raw = self.raw(at);
            self.watch.read(raw, &self.timing, Planted::NONE).interval
        }

        /// A frame that `other` sent at `sent` arrives at `at`.
        fn hears(&mut self, other: &Machine, sent: Micros, at: Micros) {
            self.read(at);
            let (theirs, now) = (other.raw(sent).interval, self.raw(at));
            self.watch.on_frame(NodeName(2), theirs, now, &self.timing);
        }

        /// The same, and it answers this node's beat of `beat`.
        fn is_answered(&mut self, other: &Machine, beat: Micros, sent: Micros, at: Micros) {
            self.hears(other, sent, at);
            let now = self.raw(at);
            self.watch.on_answer(NodeName(2), beat, now, &self.timing);
        }

        fn state(&self) -> ClockState {
            self.watch.status().state
        }
    }

    #[test]
    fn clocks_within_their_bounds_are_never_suspected() {
        for (mine, theirs) in [(5_000, -5_000), (-5_000, 5_000), (0, 0)] {
            let (mut me, other) = (Machine::new(mine, 5_000), Machine::new(theirs, 5_000));
            for beat in (ME..ME + 3_000_000).step_by(100_000) {
                me.read(beat);
                me.watch.on_beat(beat);
                me.is_answered(&other, beat, beat, beat);
                me.is_answered(&other, beat, beat + 40_000, beat + 80_000);
            }
            assert_eq!((me.state(), me.watch.violations), (ClockState::Trusted, 0));
        }
    }

    #[test]
    fn a_sender_ahead_of_all_that_the_receiver_takes_for_possible_is_a_violation() {
        let (mut me, other) = (Machine::new(0, 5_000), Machine::new(60_000, 5_000));
        me.hears(&other, ME, ME + 50_001);
        assert_eq!(
            me.state(),
            ClockState::Trusted,
            "the trip may have taken that long"
        );
        me.hears(&other, ME + 60_000, ME + 100_000);
        assert_eq!(me.state(), ClockState::Violated);
        assert_eq!(me.watch.status().against, Some(NodeName(2)));
        assert_eq!(me.read(ME + 100_001), None, "the protocol sees no interval");
    }

    #[test]
    fn an_answer_from_before_its_question_is_a_violation() {
        let (mut me, other) = (Machine::new(0, 5_000), Machine::new(-60_000, 5_000));
        me.hears(&other, ME, ME + 1);
        assert_eq!(
            me.state(),
            ClockState::Trusted,
            "it may have been under way"
        );
        me.read(ME + 100);
        me.watch.on_beat(ME + 100);
        me.is_answered(&other, ME + 100, ME + 50_200, ME + 90_000);
        assert_eq!(
            me.state(),
            ClockState::Trusted,
            "the way there may have taken that"
        );
        me.is_answered(&other, ME + 100, ME + 40_000, ME + 90_000);
        assert_eq!(me.state(), ClockState::Violated);
    }

    #[test]
    fn a_frame_without_an_interval_answers_nothing() {
        let (mut me, other) = (Machine::new(0, 5_000), Machine::new(0, 5_000));
        me.hears(&other, ME, ME);
        me.read(ME + 90_000);
        me.watch.on_beat(ME + 90_000);
        let now = me.raw(ME + 95_000);
        me.watch.on_frame(NodeName(2), None, now, &me.timing);
        me.watch
            .on_answer(NodeName(2), ME + 90_000, now, &me.timing);
        assert_eq!(
            me.state(),
            ClockState::Trusted,
            "what it said before is too old"
        );
    }

    #[test]
    fn a_step_beyond_the_bound_shows_without_any_peer() {
        for step in [-30_000, 30_000] {
            let mut me = Machine::new(0, 5_000);
            me.read(ME);
            me.offset += step / 10;
            assert!(me.read(ME + 10).is_some(), "within the bound");
            me.offset += step;
            assert_eq!(me.read(ME + 20), None);
            let status = me.watch.status();
            assert_eq!((status.against, status.violations), (None, 1));
        }
    }

    #[test]
    fn earliest_does_not_go_back() {
        let mut me = Machine::new(0, 5_000);
        let before = me.read(ME).expect("trusted");
        me.offset = -3_000;
        let after = me.read(ME + 10).expect("trusted");
        assert_eq!(after.earliest, before.earliest);
        assert_eq!(after.latest, before.latest + 10 - 3_000);
    }

    #[test]
    fn what_is_too_wide_or_upside_down_is_not_trusted() {
        let mut me = Machine::new(0, BOUND_MAX);
        assert!(me.read(ME).is_some());
        me.bound += 1;
        assert_eq!((me.read(ME + 1), me.state()), (None, ClockState::TooWide));
        let mut absurd = me.raw(ME + 2);
        absurd.interval = Some(Interval {
            earliest: 2,
            latest: 1,
        });
        assert_eq!(
            me.watch.read(absurd, &me.timing, Planted::NONE).interval,
            None
        );
        assert_eq!(me.state(), ClockState::Absent);
        // Nor does a peer's prove anything.
        let (mut me, far) = (Machine::new(0, 5_000), Machine::new(1 << 40, BOUND_MAX + 1));
        me.hears(&far, ME, ME);
        me.watch
            .on_frame(NodeName(3), absurd.interval, me.raw(ME), &me.timing);
        assert_eq!(me.state(), ClockState::Trusted);
    }

    #[test]
    fn a_proof_is_forgotten_after_a_quiet_time_and_found_again() {
        let (mut me, other) = (Machine::new(0, 5_000), Machine::new(60_000, 5_000));
        me.hears(&other, ME, ME);
        me.hears(&other, ME + 1, ME + 1);
        assert_eq!(me.watch.violations, 1, "once per beat");
        me.hears(&other, ME + 100_000, ME + 100_000);
        assert_eq!(me.watch.violations, 2);
        assert_eq!(me.read(ME + 100_000 + QUIET - 1), None);
        assert!(me.read(ME + 100_000 + QUIET).is_some());
        me.hears(&other, ME + QUIET + 200_000, ME + QUIET + 200_000);
        assert_eq!(me.state(), ClockState::Violated);
    }
}
