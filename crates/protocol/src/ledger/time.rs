//! The cluster's time (L36).
//!
//! **Problem.** External consistency needs a timeline of which every coordinator knows bounds: one
//! that is said to have passed, and one that has certainly not. Clocks that are set by NTP have no
//! bound that anybody promises.
//!
//! **Idea.** The timeline need not be that of the world. One node, the *reference*, reads its own
//! boot-time clock, and whoever asks it knows that the reading was taken between question and
//! answer. The reference is the primary of the meta-group's log, which has a lease; its readings go
//! on from above all earlier ones, since they never pass a limit that is in that log.
//!
//! **Rules.** A node whose question left at `a` and was answered at `b`, by its own clock, knows at
//! `b` that the timeline is in `[reading, reading + (b - a)]`, and widens that by the drift of both
//! clocks from then on; intervals of one reference are intersected. Nothing is used after
//! `a + valid`, where `valid` is what is left of the reference's lease; and a new reference reads
//! nothing before one full lease has passed since it began to lead, also after a graceful
//! hand-over. So no two timelines are in use at once, and the second starts above the first.
//!
//! Neither symmetric delays nor synchronised clocks are assumed: only that boot-time clocks drift
//! within the bound on which leases rest already.

use crate::base::{Ballot, Bug, Epoch, Interval, Micros, Now, Planted, Timing};

/// Whose time: the epoch and ballot of the meta-group's log.
type Term = (Epoch, Ballot);

/// The reference, while this node is it.
#[derive(Clone, Copy, Debug)]
struct Led {
    term: Term,
    /// When it began to lead.
    since: Micros,
    /// The timeline then.
    base: u64,
    /// Nobody has read anything before it.
    first: bool,
}

/// What is known of the timeline.
#[derive(Clone, Copy, Debug)]
struct Known {
    term: Term,
    earliest: u64,
    latest: u64,
    /// When that was so.
    at: Micros,
    /// It is used before this.
    until: Micros,
}

/// One node's knowledge of the cluster's time.
#[derive(Debug, Default)]
pub struct ClusterTime {
    led: Option<Led>,
    known: Option<Known>,
}

impl ClusterTime {
    /// This node leads the meta-group's log in this term, with everything recovered applied and
    /// this limit in it; or it leads it no more.
    pub fn lead(&mut self, term: Option<Term>, limit: u64, now: Now, planted: Planted) {
        let Some(term) = term else {
            self.led = None;
            return;
        };
        if self.led.is_some_and(|led| led.term == term) {
            return;
        }
        let least = match planted.has(Bug::TimelineFromWall) {
            true => 0,
            false => limit.saturating_add(1),
        };
        self.led = Some(Led {
            term,
            since: now.monotonic,
            base: now.wall.max(least),
            first: limit == 0,
        });
    }

    /// The reference's reading now, and for how long nobody else reads anything: its lease ends at
    /// `lease`, and the applied log states `limit`. None: this is not the reference, or it may not
    /// read now.
    pub fn reading(
        &self,
        (lease, limit): (Option<Micros>, u64),
        now: Now,
        timing: &Timing,
        planted: Planted,
    ) -> Option<(Term, u64, Micros)> {
        let led = self.led?;
        let left = lease?.checked_sub(now.monotonic).filter(|left| *left > 0)?;
        let waits = led.since + timing.lease_bound();
        if now.monotonic < waits && !led.first && !planted.has(Bug::ReferenceReadsAtOnce) {
            return None;
        }
        let reading = led.base + (now.monotonic - led.since);
        let within = reading <= limit || planted.has(Bug::ReadingAboveLimit);
        within.then_some((led.term, reading, left))
    }

    /// Where the timeline of this reference is now, whether or not it may be read: for the limit
    /// that is stated next. None: this node is not the reference.
    pub fn runs_at(&self, now: Now) -> Option<u64> {
        let led = self.led?;
        Some(led.base + (now.monotonic - led.since))
    }

    /// The answer to a question that left at `sent` has come.
    pub fn heard(
        &mut self,
        (term, reading, valid): (Term, u64, Micros),
        sent: Micros,
        now: Now,
        timing: &Timing,
        planted: Planted,
    ) {
        let Some(trip) = now.monotonic.checked_sub(sent) else {
            return;
        };
        let until = sent.saturating_add(shortened(valid, timing));
        let mut fresh = Known {
            term,
            earliest: reading,
            latest: reading.saturating_add(lengthened(trip, timing)),
            at: now.monotonic,
            until,
        };
        if let Some(known) = self.known {
            if known.term > term {
                return;
            }
            if known.term == term {
                let (earliest, latest) = grown(&known, now.monotonic, timing, planted);
                fresh.earliest = fresh.earliest.max(earliest);
                fresh.latest = fresh.latest.min(latest);
                fresh.until = fresh.until.max(known.until);
            }
        }
        self.known = Some(fresh);
    }

    /// The cluster's time at this node.
    pub fn now(&self, now: Now, timing: &Timing, planted: Planted) -> Option<Interval> {
        let known = self.known?;
        if now.monotonic >= known.until && !planted.has(Bug::ReadingUsedForEver) {
            return None;
        }
        let (earliest, latest) = grown(&known, now.monotonic, timing, planted);
        (earliest <= latest).then_some(Interval { earliest, latest })
    }

    /// The reference's own knowledge: its reading, exactly.
    pub fn read_here(&mut self, (term, reading, valid): (Term, u64, Micros), now: Now) {
        if self.known.is_some_and(|known| known.term > term) {
            return;
        }
        self.known = Some(Known {
            term,
            earliest: reading,
            latest: reading,
            at: now.monotonic,
            until: now.monotonic.saturating_add(valid),
        });
    }
}

/// Both clocks drift, each within the bound.
fn drift(elapsed: Micros, timing: &Timing) -> Micros {
    2 * (elapsed.saturating_mul(timing.drift_ppm) / 1_000_000 + 1)
}

fn lengthened(elapsed: Micros, timing: &Timing) -> Micros {
    elapsed.saturating_add(drift(elapsed, timing))
}

fn shortened(elapsed: Micros, timing: &Timing) -> Micros {
    elapsed.saturating_sub(drift(elapsed, timing))
}

/// What was known, as it is by now.
fn grown(known: &Known, now: Micros, timing: &Timing, planted: Planted) -> (u64, u64) {
    let elapsed = now.saturating_sub(known.at);
    if planted.has(Bug::TimeNotWidened) {
        return (known.earliest + elapsed, known.latest + elapsed);
    }
    (
        known.earliest.saturating_add(shortened(elapsed, timing)),
        known.latest.saturating_add(lengthened(elapsed, timing)),
    )
}
