//! Durations on which nodes rely across each other, the format that they write, and how long keys
//! and values may be: the cluster's, not a node's.
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
//! The format that nodes write for each other changes in the same two steps: every node that is in
//! the cluster has said, durably, that it reads the next one before anybody writes it. A node whose
//! program does not read the next one does not say that it knows, and one that has said so does not
//! start again with such a program. A log is of one format from its beginning to its end, so that
//! all members apply alike: a group goes on in new logs once the format is raised.
//!
//! The time that a request may take ([`Timing::request`]) is such a duration as well: what looks
//! after keys takes an operation for ended when it has passed. It never changes.
//!
//! How long keys and values may be is asked of clients alone, by the node that coordinates, as it
//! knows it. What has been taken is kept, moved and read however short they have to be since:
//! nodes take from each other, and log, what any cluster may be set to
//! ([`Limits::key_most`], [`Limits::value_most`]). So neither raising nor lowering waits for
//! anybody.

use crate::base::{Bug, Config, Limits, Micros, Planted, Timing};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
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
    /// The format that nodes write for each other: a log that begins is of it for good, and every
    /// node that is in the cluster reads it.
    pub format: u16,
    /// The one after it, while a node may not read it.
    pub raising: Option<u16>,
    /// How long a node is silent before another has its seats, microseconds; 0: nobody has them
    /// unasked.
    pub dead_after: Micros,
    /// How a node without a seat is given one unasked; none: it is not.
    pub join: Option<Join>,
    /// Whether the logs of groups are led by the member that is the nearest to a quorum, and not
    /// by their first seats.
    pub nearest_leads: bool,
    /// See [`Limits::key`], bytes.
    pub key_bytes: u64,
    /// See [`Limits::value`], bytes.
    pub value_bytes: u64,
    /// Bytes that a node moves in a second from earlier stores of the segments that it leads, a key
    /// counted as [`Settings::MOVE_LEAST`] at least; 0: as fast as it can.
    pub move_rate: u64,
}

/// Which group gives a node a seat that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Join {
    /// See [`join_load`](crate::policy::join_load).
    Load,
    /// See [`join_latency`](crate::policy::join_latency).
    Latency,
    /// See [`join_resilient`](crate::policy::join_resilient).
    Resilient,
}

/// What is to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// [`Settings::lease`], microseconds.
    Lease(Micros),
    /// [`Settings::format`].
    Format(u16),
    /// [`Settings::dead_after`], microseconds.
    DeadAfter(Micros),
    /// [`Settings::join`].
    Join(Option<Join>),
    /// [`Settings::nearest_leads`].
    NearestLeads(bool),
    /// [`Settings::key_bytes`].
    KeyBytes(u64),
    /// [`Settings::value_bytes`].
    ValueBytes(u64),
    /// [`Settings::move_rate`], bytes per second.
    MoveRate(u64),
}

impl Settings {
    /// What a lease may be, microseconds: a millisecond to ten minutes.
    pub const LEASE: RangeInclusive<Micros> = 1_000..=600_000_000;

    /// How long a node may be silent before it is replaced, microseconds: ten seconds, in which a
    /// process starts again, to thirty days.
    pub const DEAD_AFTER: RangeInclusive<Micros> = 10_000_000..=2_592_000_000_000;

    /// Bytes that a key counts for at least where moves are slowed down: what moving it costs
    /// beside its value.
    pub const MOVE_LEAST: u64 = 1 << 10;

    /// What moves may be slowed down to, bytes per second: sixteen keys to a tebibyte.
    pub const MOVE_RATE: RangeInclusive<u64> = 16 << 10..=1 << 40;

    /// Those of a new cluster, whose first nodes have these durations and limits and write this
    /// format.
    pub fn beginning(timing: &Timing, limits: &Limits, format: u16) -> Settings {
        Settings {
            version: 0,
            lease: timing.lease,
            before: None,
            request: timing.request,
            format,
            raising: None,
            dead_after: 0,
            join: None,
            nearest_leads: false,
            key_bytes: limits.key as u64,
            value_bytes: limits.value as u64,
            move_rate: 0,
        }
    }

    /// Whether a change has begun, and is not over.
    pub fn is_changing(&self) -> bool {
        self.before.is_some() || self.raising.is_some()
    }

    /// Whether a program that reads these formats can take part.
    ///
    /// # Errors
    /// One sentence, if it cannot.
    pub(crate) fn admit(&self, formats: &RangeInclusive<u16>) -> Result<(), String> {
        if formats.contains(&self.format) {
            return Ok(());
        }
        Err(format!(
            "the cluster goes by format {}, and this program reads {}: start the node with another \
             version of it",
            self.format,
            told(formats)
        ))
    }

    /// Whether a node may start with a program that reads these formats: one that has said that it
    /// reads the next one, `said`, has to.
    ///
    /// # Errors
    /// One sentence, if it may not.
    pub(crate) fn start(&self, formats: &RangeInclusive<u16>, said: u16) -> Result<(), String> {
        self.admit(formats)?;
        match self.raising {
            Some(next) if said >= next && !formats.contains(&next) => Err(format!(
                "this node has said that it reads format {next}, by which the cluster is about to \
                 go, and this program reads {}: start the node with the newer version of it that \
                 it had",
                told(formats)
            )),
            _ => Ok(()),
        }
    }

    /// What a node's own file says, and these do not: one sentence, which is none if they agree.
    ///
    /// # Errors
    /// One sentence, if no lease could be kept with the beats of this node.
    pub fn check(&self, own: &Timing, limits: &Limits) -> Result<Option<String>, String> {
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
        let (key, value) = (limits.key as u64, limits.value as u64);
        let pairs = [
            ("timing.lease_ms", ms(own.lease), ms(self.lease)),
            ("timing.request_ms", ms(own.request), ms(self.request)),
            ("limits.key_bytes", key, self.key_bytes),
            ("limits.value_bytes", value, self.value_bytes),
        ];
        let differ = pairs.into_iter().filter(|(_, own, cluster)| own != cluster);
        let differ = differ.map(|(what, own, cluster)| {
            format!("{what} is {own} here and {cluster} in the cluster")
        });
        let differ: Vec<String> = differ.collect();
        let told = format!("{}: the cluster's holds", differ.join(", "));
        Ok((!differ.is_empty()).then_some(told))
    }

    /// The cluster is to have another lease, or to go by another format.
    ///
    /// # Errors
    /// One sentence, if there is no such, or a change is under way; nothing was changed.
    pub(crate) fn settle(&mut self, change: Setting, planted: Planted) -> Result<(), String> {
        match change {
            Setting::Lease(lease) => self.settle_lease(lease, planted)?,
            Setting::Format(format) => self.raise(format, planted)?,
            Setting::DeadAfter(after) => self.settle_dead_after(after)?,
            // Nobody relies on these, either.
            Setting::Join(join) => self.join = join,
            Setting::NearestLeads(so) => self.nearest_leads = so,
            Setting::KeyBytes(bytes) => {
                self.key_bytes = bounded("a key", bytes, Limits::KEY_MAX)?;
            }
            Setting::ValueBytes(bytes) => {
                self.value_bytes = bounded("a value", bytes, Limits::VALUE_MAX)?;
            }
            Setting::MoveRate(rate) => self.settle_move_rate(rate)?,
        }
        self.version += 1;
        Ok(())
    }

    fn settle_lease(&mut self, lease: Micros, planted: Planted) -> Result<(), String> {
        if !Settings::LEASE.contains(&lease) {
            let (least, most) = (Settings::LEASE.start(), Settings::LEASE.end());
            return Err(format!(
                "a lease is {} to {} ms, not {lease} us; choose another",
                least / 1_000,
                most / 1_000
            ));
        }
        if self.raising.is_some() || self.before.is_some_and(|before| before != lease) {
            return Err(self.under_way());
        }
        // Back to what every node still relies on, or is bound by: that needs no second step.
        let back = self.before.take().is_some();
        let at_once = back || planted.has(Bug::SettledAtOnce);
        self.before = Some(self.lease).filter(|_| !at_once);
        self.lease = lease;
        Ok(())
    }

    /// Nobody relies on it: whoever leads a group goes by what it knows.
    fn settle_dead_after(&mut self, after: Micros) -> Result<(), String> {
        let (least, most) = (Settings::DEAD_AFTER.start(), Settings::DEAD_AFTER.end());
        if after != 0 && !Settings::DEAD_AFTER.contains(&after) {
            return Err(format!(
                "a silent node is replaced after {} s to {} s, or never (0), not after {after} us; \
                 choose another",
                least / 1_000_000,
                most / 1_000_000
            ));
        }
        self.dead_after = after;
        Ok(())
    }

    /// Nobody relies on it, either.
    fn settle_move_rate(&mut self, rate: u64) -> Result<(), String> {
        if rate != 0 && !Settings::MOVE_RATE.contains(&rate) {
            let (least, most) = (Settings::MOVE_RATE.start(), Settings::MOVE_RATE.end());
            return Err(format!(
                "a node moves {least} to {most} bytes per second, or as many as it can (0), not \
                 {rate}; choose another"
            ));
        }
        self.move_rate = rate;
        Ok(())
    }

    /// A format is raised by one at a time, since a build reads the one before its own. Nothing is
    /// written in it before the second step, so that the first can be taken back.
    fn raise(&mut self, format: u16, planted: Planted) -> Result<(), String> {
        let back = self.raising.is_some() && format == self.format;
        if self.is_changing() && !back {
            return Err(self.under_way());
        }
        let next = self.format.saturating_add(1);
        if format != next && !back {
            return Err(format!(
                "the cluster goes by format {}, which is raised by one at a time and never \
                 lowered; choose {next}",
                self.format
            ));
        }
        match planted.has(Bug::RaisedAtOnce) {
            true => self.format = format,
            false => self.raising = Some(format).filter(|_| !back),
        }
        Ok(())
    }

    fn under_way(&self) -> String {
        let ms = |micros: Micros| micros / 1_000;
        match (self.before, self.raising) {
            (Some(before), _) => format!(
                "the lease is being changed, from {} ms to {} ms, until every node of the cluster \
                 knows; try again later, or take that back with a lease of {0} ms",
                ms(before),
                ms(self.lease)
            ),
            (None, next) => format!(
                "the format is being raised, from {} to {}, until every node of the cluster has \
                 said that it reads that; try again later, or take that back with format {0}",
                self.format,
                next.unwrap_or(self.format)
            ),
        }
    }

    /// Every node knows of these, and reads the next format if there is one; whether that ends a
    /// change.
    pub(crate) fn settled(&mut self) -> bool {
        if !self.is_changing() {
            return false;
        }
        self.before = None;
        self.format = self.raising.take().unwrap_or(self.format);
        true
    }

    /// A node goes by these from now on.
    pub(crate) fn rule(&self, config: &mut Config) {
        config.limits.key = self.key_bytes as usize;
        config.limits.value = self.value_bytes as usize;
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

/// How long something may be at most.
fn bounded(what: &str, bytes: u64, most: usize) -> Result<u64, String> {
    match (1..=most as u64).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!(
            "the bound of {what} is 1 to {most} bytes, not {bytes}; choose another"
        )),
    }
}

fn told(formats: &RangeInclusive<u16>) -> String {
    match formats.start() == formats.end() {
        true => format!("{} alone", formats.start()),
        false => format!("{} to {}", formats.start(), formats.end()),
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
        (Settings::beginning(&timing, &Limits::default(), 9), timing)
    }

    /// A node with these durations in its file.
    fn with(timing: Timing) -> Config {
        Config {
            name: NodeName(1),
            cluster: Cluster::default(),
            timing,
            limits: Limits::default(),
            formats: 9..=9,
            planted: NONE,
        }
    }

    #[test]
    fn while_a_lease_changes_the_shorter_one_is_relied_on_and_the_longer_one_binds() {
        for lease in [300_000, 2_000_000] {
            let (mut settings, timing) = settled();
            let was = timing.lease;
            let mut config = with(timing);
            settings
                .settle(Setting::Lease(lease), NONE)
                .expect("a lease");
            settings.rule(&mut config);
            let timing = &config.timing;
            assert_eq!(timing.lease, lease.min(was));
            assert_eq!(timing.lease + timing.lease_more, lease.max(was));
            assert!(settings.settled() && !settings.settled(), "once");
            settings.rule(&mut config);
            let timing = &config.timing;
            assert_eq!((timing.lease, timing.lease_more), (lease, 0));
        }
    }

    #[test]
    fn what_a_node_has_of_its_own_is_overruled_or_refused() {
        let (settings, mut own) = settled();
        let mut limits = Limits::default();
        assert_eq!(settings.check(&own, &limits), Ok(None));
        own.lease *= 2;
        limits.value = 7;
        let told = settings.check(&own, &limits).expect("it starts");
        let told = told.expect("told");
        assert!(told.contains("lease_ms is 1800 here and 900 in"), "{told}");
        assert!(
            told.contains("value_bytes is 7 here and 16777216"),
            "{told}"
        );
        (own.lease, own.request) = (settings.lease, 1_000);
        let told = settings.check(&own, &limits).expect("it starts");
        let told = told.expect("told");
        assert!(told.contains("request_ms is 1 here"), "{told}");
        own.beat = settings.lease / 2 + 1;
        settings
            .check(&own, &limits)
            .expect_err("no lease could be kept");
    }

    #[test]
    fn limits_and_the_rate_of_moves_have_bounds_of_their_own() {
        let (mut settings, timing) = settled();
        let refused = [
            (Setting::KeyBytes(0), "1 to 32768 bytes"),
            (Setting::KeyBytes(32_769), "1 to 32768 bytes"),
            (Setting::ValueBytes(0), "1 to 33554432 bytes"),
            (Setting::ValueBytes(u64::MAX), "1 to 33554432 bytes"),
            (Setting::MoveRate(1), "as many as it can (0)"),
            (Setting::MoveRate(u64::MAX), "as many as it can (0)"),
        ];
        for (change, word) in refused {
            let before = settings;
            let why = settings.settle(change, NONE).expect_err(word);
            assert!(why.contains(word), "{why}");
            assert_eq!(settings, before);
        }
        let taken = [
            Setting::KeyBytes(32_768),
            Setting::ValueBytes(1),
            Setting::MoveRate(16 << 10),
            Setting::MoveRate(0),
        ];
        for change in taken {
            settings.settle(change, NONE).expect("within the bounds");
            assert!(!settings.is_changing(), "nobody is waited for");
        }
        let mut config = with(timing);
        settings.rule(&mut config);
        assert_eq!((config.limits.key, config.limits.value), (32_768, 1));
    }

    #[test]
    fn one_change_is_under_way_at_a_time_and_can_be_taken_back() {
        let (mut settings, timing) = settled();
        for lease in [0, 999, 600_000_001] {
            settings
                .settle(Setting::Lease(lease), NONE)
                .expect_err("no lease");
        }
        settings
            .settle(Setting::Lease(2_000_000), NONE)
            .expect("a lease");
        let before = settings;
        let refused = settings
            .settle(Setting::Lease(3_000_000), NONE)
            .expect_err("under way");
        assert!(refused.contains("from 900 ms to 2000 ms"), "{refused}");
        assert_eq!(settings, before);
        settings
            .settle(Setting::Lease(timing.lease), NONE)
            .expect("taken back");
        assert_eq!((settings.lease, settings.before), (timing.lease, None));
        assert!(!settings.settled(), "what was taken back");
    }

    #[test]
    fn a_format_is_raised_by_one_once_every_node_reads_it_and_until_then_taken_back() {
        let (mut settings, _) = settled();
        let raise =
            |settings: &mut Settings, format| settings.settle(Setting::Format(format), NONE);
        for format in [0, 8, 9, 11] {
            let refused = raise(&mut settings, format).expect_err("not the next");
            assert!(refused.contains("choose 10"), "{refused}");
        }
        raise(&mut settings, 10).expect("the next");
        assert_eq!((settings.format, settings.raising), (9, Some(10)));
        settings.admit(&(9..=9)).expect("it goes on");
        settings.start(&(9..=9), 0).expect("it has not said so");
        let refused = settings.start(&(9..=9), 10).expect_err("it has said so");
        assert!(refused.contains("reads 9 alone"), "{refused}");
        settings.start(&(9..=10), 10).expect("it reads both");
        for change in [Setting::Format(10), Setting::Lease(2_000_000)] {
            let refused = settings.settle(change, NONE).expect_err("under way");
            assert!(refused.contains("from 9 to 10"), "{refused}");
        }
        raise(&mut settings, 9).expect("taken back");
        assert!(!settings.settled());
        raise(&mut settings, 10).expect("the next");
        assert!(settings.settled() && settings.format == 10);
        let refused = settings.admit(&(9..=9)).expect_err("it cannot");
        assert!(refused.contains("goes by format 10"), "{refused}");
    }
}
