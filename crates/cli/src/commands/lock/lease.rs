//! What `fermata lock` knows of its section's time: the lease that runs out unless it is renewed,
//! and the longest time that its keyspace allows.
//!
//! **Problem.** A holder that is cut off, or whose process stood still, hears of no loss. When its
//! lease is over another holder may be let in, and COMMAND must have ended.
//!
//! **Idea.** The library renews the lease, and says until when it lasts by the clock that counts
//! suspension. This looks several times a second, tells the [guard](super::guard) what is new, and
//! says when the time has come. Should it not come to that, the guard does.

use std::fmt;
use std::time::Duration;

use fermata_client::{Client, Code, LostReason, Section};
use rustix::time::{ClockId, clock_gettime};

use super::GRACE;

/// Between two looks at most.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// A gap between two looks from which this process is said to have stood still.
const STOOD_STILL: Duration = Duration::from_secs(1);

/// What is left of a lease at most when its command is killed.
const LATE_MAX: Duration = Duration::from_millis(500);

/// How long the question is waited for that tells one loss from another.
const ASK: Duration = Duration::from_millis(500);

/// The time since the machine's start, suspension included.
pub(super) fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The end of a lease, by [`boot_time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// COMMAND gets SIGTERM.
    pub(super) warns: Duration,
    /// Nobody may act any more: SIGKILL.
    pub(super) ends: Duration,
}

impl Term {
    /// Of a lease that was found to last from `now` until then: a quarter of it, or [`GRACE`], is
    /// COMMAND's to end by itself, and a little is left for a machine that is late with a signal.
    fn of(now: Duration, ends: Duration) -> Term {
        let left = ends.saturating_sub(now);
        let margin = (left / 4).min(GRACE);
        let ends = ends.saturating_sub((left / 20).min(LATE_MAX));
        Term {
            warns: ends.saturating_sub(margin),
            ends,
        }
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub(super) fn parse(text: &str) -> Option<Term> {
        let micros = |text: &str| text.parse().ok().map(Duration::from_micros);
        let (warns, ends) = text.split_once(' ')?;
        Some(Term {
            warns: micros(warns)?,
            ends: micros(ends)?,
        })
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.warns.as_micros(), self.ends.as_micros())
    }
}

/// Why a section is over although it was not left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its lease ran out, and was not renewed.
    Lease,
    /// It has lasted the keyspace's longest time.
    Longest(Duration),
    /// Somebody ended it by force, or took it over.
    Released,
    /// Its keyspace was deleted.
    Deleted,
    /// Who asks may not hold it any more.
    Denied,
}

/// The times of one section.
pub(super) struct Times {
    entered: Duration,
    looked: Duration,
    stood_still: bool,
    lease_until: Option<Duration>,
    term: Option<Term>,
    longest: Option<Duration>,
    warned: bool,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing new.
    Nothing,
    /// The lease lasts until then.
    Renewed(Term),
    /// The section ends so soon, since its keyspace allows no longer one.
    EndsIn(Duration, Duration),
    /// The lease is over, but for the margin; COMMAND has until then.
    Over(Term),
}

impl Times {
    /// Of a section that was just entered.
    pub(super) async fn of(client: &Client, keyspace: &str) -> Times {
        let now = boot_time();
        let known = tokio::time::timeout(ASK, client.keyspaces()).await;
        let known = known.ok().and_then(Result::ok).unwrap_or_default();
        let found = known.into_iter().find(|known| known.name == keyspace);
        Times {
            entered: now,
            looked: now,
            stood_still: false,
            lease_until: None,
            term: None,
            longest: found.map(|known| Duration::from_micros(known.section_max)),
            warned: false,
        }
    }

    /// Looks, and says one thing that is new.
    pub(super) async fn look(&mut self, section: &Section) -> Seen {
        let ends = section.lease_until().await;
        let now = boot_time();
        self.stood_still |= now.saturating_sub(self.looked) > STOOD_STILL;
        self.looked = now;
        let known = std::mem::replace(&mut self.lease_until, ends);
        if let Some(ends) = ends.filter(|ends| *ends > now && Some(*ends) != known) {
            let term = Term::of(now, ends);
            self.term = Some(term);
            self.stood_still = false;
            return Seen::Renewed(term);
        }
        if let Some(term) = self.term.filter(|term| now >= term.warns) {
            return Seen::Over(term);
        }
        let Some(longest) = self.longest else {
            return Seen::Nothing;
        };
        let left = (self.entered + longest).saturating_sub(now);
        if !self.warned && left <= longest / 10 {
            self.warned = true;
            return Seen::EndsIn(left, longest);
        }
        Seen::Nothing
    }

    /// How long until the next look.
    pub(super) fn pause(&self) -> Duration {
        pause(
            self.lease_until
                .unwrap_or_default()
                .saturating_sub(boot_time()),
        )
    }

    /// Whether the lease was over, but for the margin, when this process looked last.
    pub(super) fn is_over(&self) -> bool {
        self.term.is_some_and(|term| boot_time() >= term.warns)
    }

    /// Why the section is lost, as far as one can tell: a node that answers would have renewed the
    /// lease, had it not been for one of the other two.
    pub(super) async fn loss(
        &self,
        reason: Option<LostReason>,
        client: &Client,
        (keyspace, key): (&str, &[u8]),
    ) -> Loss {
        match reason {
            Some(LostReason::Deleted) => return Loss::Deleted,
            Some(LostReason::Denied) => return Loss::Denied,
            Some(LostReason::Gone | LostReason::Refused) | None => {}
        }
        let now = boot_time();
        if self.stood_still || now.saturating_sub(self.looked) > STOOD_STILL {
            return Loss::Lease;
        }
        // What is left of the last lease is over sooner than the longest time.
        let lease = self
            .term
            .map_or(Duration::ZERO, |term| term.ends - term.warns)
            * 4;
        if let Some(longest) = self.longest
            && now.saturating_sub(self.entered) + lease >= longest
        {
            return Loss::Longest(longest);
        }
        match tokio::time::timeout(ASK, client.queue(keyspace, key)).await {
            Ok(Ok(_)) => Loss::Released,
            Ok(Err(why)) if matches!(why.code(), Code::Forbidden | Code::Unauthenticated) => {
                Loss::Denied
            }
            _ => Loss::Lease,
        }
    }
}

/// How long until the next look, where so much of a lease is left: the guard must hear of a
/// renewal, which comes three times in a lease, long before the lease that it knows of is over.
fn pause(left: Duration) -> Duration {
    (left / 64).clamp(Duration::from_millis(2), LOOK_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_is_read_as_it_was_written_and_leaves_time_to_end() {
        let seconds = Duration::from_secs;
        let term = Term::of(seconds(100), seconds(110));
        assert_eq!(term.ends - term.warns, Duration::from_millis(2_500));
        assert_eq!(Term::parse(&term.to_string()), Some(term));
        assert_eq!(term.ends, Duration::from_millis(109_500));
        let long = Term::of(seconds(0), seconds(3_600));
        assert_eq!(
            (long.ends - long.warns, seconds(3_600) - long.ends),
            (GRACE, LATE_MAX)
        );
        for wrong in ["", "1", "1 x", "x 1"] {
            assert_eq!(Term::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_guard_hears_of_a_renewal_before_the_lease_that_it_knows_of_is_over() {
        for lease in [100, 300, 1_000, 10_000, 3_600_000] {
            let lease = Duration::from_millis(lease);
            let known = Term::of(Duration::ZERO, lease);
            // Renewed after a third of it, just when a look is over, and once in vain.
            let told = lease * 2 / 3 + pause(lease);
            assert!(told < known.warns, "{lease:?}");
        }
    }
}
