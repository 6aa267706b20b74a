//! Durations on which nodes rely across each other: the cluster's, not a node's.
//!
//! **Problem.** A primary answers from its memory while it believes that a quorum is bound to it
//! (F10). How long that is, each of the two counts for itself. Where one counts longer than the
//! other, another primary may begin while the first one still answers, with what is old by then.
//! So it is, too, if an acceptor starts again with a shorter lease than it has granted, since it
//! waits for that alone before it listens to others.
//!
//! **Idea.** The lease is in the registry, which every node has, durably, and takes from the
//! cluster file for its first nodes alone. It changes in two steps. From the first, `Settle`, a
//! node counts the *shorter* of both where it relies, and the longer where it is bound. The second,
//! `Settled`, follows when every node that is in the cluster has said that it knows of the first,
//! durably, and one lease has passed since: from then on the new one alone counts. The wait is for
//! whoever is not asked: a node that was given up as lost may live, cut off, and rely on what it
//! was granted; and for what was granted before its giver knew of a longer lease, and is over by
//! then. Until the second step the change can be taken back at once.
//!
//! The time that a request may take ([`Timing::request`]) is such a duration as well: what looks
//! after keys takes an operation for ended when it has passed. It never changes.

use crate::base::{Bug, Config, Micros, Planted, Timing};
use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;
use serde::{Deserialize, Serialize};

/// What all nodes count alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Changes of the lease so far.
    pub version: u64,
    /// See [`Timing::lease`], microseconds.
    pub lease: Micros,
    /// The lease before it, while a node may not know of the change.
    pub before: Option<Micros>,
    /// See [`Timing::request`], microseconds.
    pub request: Micros,
}

impl Settings {
    /// What a lease may be, microseconds: a millisecond to ten minutes.
    pub const LEASE: RangeInclusive<Micros> = 1_000..=600_000_000;

    /// Those of a new cluster, whose first nodes have these durations.
    pub fn beginning(timing: &Timing) -> Settings {
        Settings {
            version: 0,
            lease: timing.lease,
            before: None,
            request: timing.request,
        }
    }

    /// What of a node's own durations is overruled by these, as one sentence; none if nothing is.
    ///
    /// # Errors
    /// One sentence, if no lease could be kept with the beats of this node.
    pub fn check(&self, own: &Timing) -> Result<Option<String>, String> {
        let ms = |micros: Micros| micros / 1_000;
        let lease = self
            .before
            .map_or(self.lease, |before| before.min(self.lease));
        if lease < 2 * own.beat {
            return Err(format!(
                "timing.beat_ms is {}, more than half of the cluster's lease, which is {} ms: no \
                 lease could be kept; choose shorter beats",
                ms(own.beat),
                ms(lease)
            ));
        }
        let pairs = [
            ("lease_ms", own.lease, self.lease),
            ("request_ms", own.request, self.request),
        ];
        let differs = pairs.into_iter().find(|(_, own, cluster)| own != cluster);
        Ok(differs.map(|(what, own, cluster)| {
            format!(
                "timing.{what} is {} here and {} in the cluster: the cluster's holds",
                ms(own),
                ms(cluster)
            )
        }))
    }

    /// The cluster is to have another lease.
    ///
    /// # Errors
    /// One sentence, if that is no lease, or a change is under way; nothing was changed.
    pub(crate) fn settle(&mut self, lease: Micros, planted: Planted) -> Result<(), String> {
        if !Settings::LEASE.contains(&lease) {
            let (least, most) = (Settings::LEASE.start(), Settings::LEASE.end());
            return Err(format!(
                "a lease is {} to {} ms, not {lease} us; choose another",
                least / 1_000,
                most / 1_000
            ));
        }
        if let Some(before) = self.before.filter(|before| *before != lease) {
            let ms = |micros: Micros| micros / 1_000;
            return Err(format!(
                "the lease is being changed, from {} ms to {} ms, until every node of the cluster \
                 knows; try again later, or take that back with a lease of {0} ms",
                ms(before),
                ms(self.lease)
            ));
        }
        // Back to what every node still relies on, or is bound by: that needs no second step.
        let back = self.before.take().is_some();
        let at_once = back || planted.has(Bug::SettledAtOnce);
        self.before = Some(self.lease).filter(|_| !at_once);
        self.lease = lease;
        self.version += 1;
        Ok(())
    }

    /// Every node knows of this many changes; whether that ends one.
    pub(crate) fn settled(&mut self, version: u64) -> bool {
        self.version == version && self.before.take().is_some()
    }

    /// A node goes by these from now on.
    pub(crate) fn rule(&self, config: &mut Config) {
        let (timing, planted) = (&mut config.timing, config.planted);
        let before = self.before.unwrap_or(self.lease);
        let relied = self.lease.min(before);
        timing.lease = relied;
        timing.lease_more = match planted.has(Bug::BoundByTheShorter) {
            true => 0,
            false => self.lease.max(before) - relied,
        };
        timing.request = self.request;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Cluster, Limits, NodeName};

    const NONE: Planted = Planted::NONE;

    /// The durations of a node that goes by a lease of 900 ms, for a while.
    fn settled() -> (Settings, Timing) {
        let timing = Timing::default();
        (Settings::beginning(&timing), timing)
    }

    #[test]
    fn while_a_lease_changes_the_shorter_one_is_relied_on_and_the_longer_one_binds() {
        for lease in [300_000, 2_000_000] {
            let (mut settings, timing) = settled();
            let was = timing.lease;
            let mut config = Config {
                name: NodeName(1),
                cluster: Cluster::default(),
                timing,
                limits: Limits::default(),
                planted: NONE,
            };
            settings.settle(lease, NONE).expect("a lease");
            settings.rule(&mut config);
            let timing = &config.timing;
            assert_eq!(timing.lease, lease.min(was));
            assert_eq!(timing.lease + timing.lease_more, lease.max(was));
            assert!(!settings.settled(0), "of an earlier change");
            assert!(settings.settled(1) && !settings.settled(1), "once");
            settings.rule(&mut config);
            let timing = &config.timing;
            assert_eq!((timing.lease, timing.lease_more), (lease, 0));
        }
    }

    #[test]
    fn what_a_node_has_of_its_own_is_overruled_or_refused() {
        let (settings, mut own) = settled();
        assert_eq!(settings.check(&own), Ok(None));
        own.lease *= 2;
        let told = settings.check(&own).expect("it starts").expect("told");
        assert!(told.contains("lease_ms is 1800 here and 900 in"), "{told}");
        (own.lease, own.request) = (settings.lease, 1_000);
        let told = settings.check(&own).expect("it starts").expect("told");
        assert!(told.contains("request_ms is 1 here"), "{told}");
        own.beat = settings.lease / 2 + 1;
        settings.check(&own).expect_err("no lease could be kept");
    }

    #[test]
    fn one_change_is_under_way_at_a_time_and_can_be_taken_back() {
        let (mut settings, timing) = settled();
        for lease in [0, 999, 600_000_001] {
            settings.settle(lease, NONE).expect_err("no lease");
        }
        settings.settle(2_000_000, NONE).expect("a lease");
        let before = settings;
        let refused = settings.settle(3_000_000, NONE).expect_err("under way");
        assert!(refused.contains("from 900 ms to 2000 ms"), "{refused}");
        assert_eq!(settings, before);
        settings.settle(timing.lease, NONE).expect("taken back");
        assert_eq!((settings.lease, settings.before), (timing.lease, None));
        assert!(!settings.settled(1), "of what was taken back");
    }
}
