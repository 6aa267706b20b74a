//! What one engine node is told.

use crate::planted::Planted;
use fermata_protocol::base::{Keyspace, Limits, LockRef, Micros, NodeName, SiteId, Timing};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads a wall clock: the time since 1970.
pub type WallClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// What one engine node is told. Nodes of one cluster differ in name, site and seed only.
#[derive(Clone)]
pub struct Settings {
    /// Its number: unique, for eventual values that two nodes take at one moment.
    pub node: NodeName,
    /// What people call it.
    pub label: String,
    /// Its site.
    pub site: SiteId,
    /// Bounds of keys, values and sections.
    pub limits: Limits,
    /// No ref is below, whatever the clock says.
    pub lowest_ref: LockRef,
    /// Durations: how long a request may take, and the drift bound.
    pub timing: Timing,
    /// After a put's quorum, look whether its section still holds the key, and acknowledge it only
    /// then: one more trip, and no acknowledged put is lost (F1).
    pub verify: bool,
    /// Keyspaces that go without, by name: MUSIC's price, and MUSIC's guarantee.
    pub unverified: BTreeSet<String>,
    /// 128 random bits: the node's own session, and its dice.
    pub seed: u128,
    /// The wall clock: stamps for people, and the order of eventual values.
    pub wall: WallClock,
    /// Which rule is wrong.
    pub planted: Planted,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Settings");
        shown.field("node", &self.node).field("label", &self.label);
        shown
            .field("site", &self.site)
            .field("verify", &self.verify);
        shown.finish_non_exhaustive()
    }
}

impl Settings {
    /// A node with the default for all else; `seed` is 128 random bits.
    pub fn new(node: NodeName, label: impl Into<String>, site: SiteId, seed: u128) -> Settings {
        Settings {
            node,
            label: label.into(),
            site,
            limits: Limits::default(),
            lowest_ref: LockRef(1),
            timing: Timing::default(),
            verify: true,
            unverified: BTreeSet::new(),
            seed,
            // A clock before 1970 reads as 1970: refs then start low, and stay unique.
            wall: Arc::new(|| {
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default()
            }),
            planted: Planted::NONE,
        }
    }

    /// The wall clock, since 1970.
    pub(crate) fn wall(&self) -> Duration {
        (self.wall)()
    }

    /// The wall clock in microseconds since 1970.
    pub(crate) fn wall_micros(&self) -> Micros {
        self.wall().as_micros() as Micros
    }

    /// How long stores may fail before a request does.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(self.timing.request)
    }

    /// What an observer waits for a lease to run out.
    pub(crate) fn lengthened(&self, lease: Micros) -> Duration {
        Duration::from_micros(self.timing.lengthened(lease))
    }

    /// Whether puts of this keyspace are verified.
    pub(crate) fn verifies(&self, keyspace: &Keyspace) -> bool {
        self.verify && !self.unverified.contains(&keyspace.name)
    }
}
