//! What a node is told at its start: the cluster, its timing, its limits (`limits`).

use super::ids::{ClusterId, GroupId, KeyspaceId, NodeName, SegmentId, SiteId};
use super::key::TagRule;
use super::limits::Limits;
use super::planted::Planted;
use super::storage::StoragePolicy;
use super::tag::LockRef;
use super::time::Micros;
use super::view::View;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use serde::{Deserialize, Serialize};

/// One node of the cluster file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its number.
    pub name: NodeName,
    /// What people call it.
    pub label: String,
    /// Where it is.
    pub site: SiteId,
    /// Where it is reached.
    pub addresses: Addresses,
}

/// Where a node is reached, each `host:port`. The protocol itself reaches nodes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// By its peers.
    pub peer: String,
    /// By clients, for gRPC.
    pub grpc: String,
    /// By clients, for REST.
    pub rest: String,
}

impl Addresses {
    /// Bytes of one of them at most.
    pub const MAX: usize = 256;

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.peer.len() + self.grpc.len() + self.rest.len()
    }

    /// Whether each is short enough, and text of one line.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |text: &String| {
            text.len() <= Addresses::MAX && !text.chars().any(|c| c.is_control() || c == ' ')
        };
        [&self.peer, &self.grpc, &self.rest].into_iter().all(plain)
    }
}

/// One group of the location table: an arc of segments and the view that owns it. The arc of the
/// meta-group is empty: its last segment is before its first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The group.
    pub id: GroupId,
    /// First segment of the arc.
    pub from: SegmentId,
    /// Last segment of the arc, included.
    pub to: SegmentId,
    /// The members. Where two entries claim a segment, the higher epoch wins.
    pub view: View,
}

impl Group {
    /// The segments of its arc, in order.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> + use<> {
        (self.from.0..=self.to.0).map(SegmentId)
    }

    /// Whether a segment is in its arc.
    pub fn owns(&self, segment: SegmentId) -> bool {
        self.from <= segment && segment <= self.to
    }
}

/// The cluster as it starts: a location table with one entry per group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Nodes of another cluster are refused.
    pub id: ClusterId,
    /// The ring has 2^bits segments.
    pub segment_bits: u8,
    /// No ref is below: what another cluster's refs have fenced is fenced by this one's, too.
    pub lowest_ref: LockRef,
    /// Site names, by [`SiteId`].
    pub sites: Vec<String>,
    /// All nodes, by [`NodeName`].
    pub nodes: Vec<NodeInfo>,
    /// Arc → (group, epoch, seats). The members of the first are the first of the meta-group, too.
    pub groups: Vec<Group>,
}

impl Cluster {
    /// The group that owns `segment`; with several claims, the one of the highest epoch.
    pub fn group_of(&self, segment: SegmentId) -> Option<&Group> {
        self.groups
            .iter()
            .filter(|g| g.owns(segment))
            .max_by_key(|g| g.view.epoch)
    }
}

/// All durations that the protocol uses, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node pair exchanges a beat this often.
    pub beat: Micros,
    /// How long a primary relies on a read lease. It is the cluster's
    /// ([`Settings`](crate::settings::Settings)): what is here begins it, or is overruled.
    pub lease: Micros,
    /// By how much longer an acceptor's read lease binds it: 0 but while the cluster changes that.
    pub lease_more: Micros,
    /// A follower that hears nothing of its primary this long after the lease tries to lead; seats
    /// add `stagger` each so that they rarely collide.
    pub election: Micros,
    /// See `election`.
    pub stagger: Micros,
    /// A call to a peer that is not answered within this is sent again.
    pub retry: Micros,
    /// A request that has no quorum after this is answered `Unavailable`.
    pub request: Micros,
    /// A member looks after all keys of its register stores at most this often: see
    /// `register::Upkeep`.
    pub upkeep: Micros,
    /// What a primary has counted of the sites that use its segment halves in this time; it goes
    /// where the segment is used. 0: it stays where the location table puts it.
    pub usage: Micros,
    /// Bound on the rate error of any boot-time clock, parts per million.
    pub drift_ppm: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            beat: 100_000,
            lease: 900_000,
            lease_more: 0,
            election: 500_000,
            stagger: 300_000,
            retry: 700_000,
            request: 10_000_000,
            upkeep: 60_000_000,
            usage: 15_000_000,
            drift_ppm: 1_000,
        }
    }
}

impl Timing {
    /// A duration lengthened by the drift bound: what a granter waits.
    pub fn lengthened(&self, d: Micros) -> Micros {
        let drift = d.saturating_mul(self.drift_ppm) / 1_000_000;
        d.saturating_add(drift).saturating_add(1)
    }

    /// How long an acceptor's read lease binds it, by its own clock.
    pub fn lease_bound(&self) -> Micros {
        self.lengthened(self.lease.saturating_add(self.lease_more))
    }

    /// A duration shortened by the drift bound: what a holder relies on.
    pub fn shortened(&self, d: Micros) -> Micros {
        d - d.saturating_mul(self.drift_ppm) / 1_000_000
    }
}

/// What the keys of a keyspace are for: one of these, never two (F7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Critical sections, eventual `get` and `put`, and `write` as a section of its own.
    Sections,
    /// Linearizable `read` and `write`; no locks.
    Registers,
    /// Transactions and snapshots, from the format [`LEDGERS`](crate::wire::LEDGERS) on.
    Ledger {
        /// How far ahead of the latest possible time its segments close, microseconds, so that
        /// every replica answers strong reads; writers wait so much longer. 0: it does not.
        lead: Micros,
    },
}

impl Purpose {
    /// The longest `lead`, microseconds.
    pub const LEAD_MAX: Micros = 1_000_000;

    /// Whether it is a ledger, on whatever terms.
    pub fn is_ledger(self) -> bool {
        matches!(self, Purpose::Ledger { .. })
    }

    /// Whether both are for the same, on whatever terms.
    pub fn is_like(self, other: Purpose) -> bool {
        core::mem::discriminant(&self) == core::mem::discriminant(&other)
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Sections => "sections",
            Purpose::Registers => "registers",
            Purpose::Ledger { .. } => "ledger",
        }
    }
}

/// A named set of keys with one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyspace {
    /// Never reused.
    pub id: KeyspaceId,
    /// 1 to 64 of `a-z 0-9 - _`.
    pub name: String,
    /// What its keys are for.
    pub purpose: Purpose,
    /// How values are stored.
    pub storage: StoragePolicy,
    /// Which part of a key decides its address.
    pub tag_rule: TagRule,
    /// How long a silent holder keeps its section, microseconds.
    pub lease: Micros,
    /// The longest section, microseconds; MUSIC's T.
    pub section_max: Micros,
}

impl Keyspace {
    /// The keyspace of sections that every cluster has.
    pub const SECTIONS: KeyspaceId = KeyspaceId(1);
    /// The keyspace of registers that every cluster has.
    pub const REGISTERS: KeyspaceId = KeyspaceId(2);

    /// The shortest lease, microseconds: a shorter one ends in transit.
    pub const LEASE_MIN: Micros = 100_000;
    /// The longest lease, a day: for so long a key stays locked whose holder has died.
    pub const LEASE_MAX: Micros = 86_400_000_000;
    /// What the longest section may be at most, ten years: no sum of times overflows.
    pub const SECTION_MAX: Micros = 3_660 * Keyspace::LEASE_MAX;

    /// Whether its lease and its longest section are within their bounds.
    ///
    /// # Errors
    /// One sentence that names the bound.
    pub fn check_times(&self) -> Result<(), String> {
        let ms = |micros: Micros| micros / 1_000;
        if !(Keyspace::LEASE_MIN..=Keyspace::LEASE_MAX).contains(&self.lease) {
            return Err(format!(
                "a keyspace's lease is {} ms to {} ms, a day, not {} us; choose another",
                ms(Keyspace::LEASE_MIN),
                ms(Keyspace::LEASE_MAX),
                self.lease
            ));
        }
        if !(self.lease..=Keyspace::SECTION_MAX).contains(&self.section_max) {
            return Err(format!(
                "a keyspace's longest section is at least its lease ({} ms) and at most {} ms, \
                 ten years, not {} us; choose another",
                ms(self.lease),
                ms(Keyspace::SECTION_MAX),
                self.section_max
            ));
        }
        Ok(())
    }

    /// Whether its purpose goes with its other terms.
    ///
    /// # Errors
    /// One sentence that says what does not.
    pub fn check_purpose(&self) -> Result<(), String> {
        let Purpose::Ledger { lead } = self.purpose else {
            return Ok(());
        };
        if self.storage != StoragePolicy::Replicated {
            return Err("a ledger is replicated: coded storage is for registers".into());
        }
        if lead > Purpose::LEAD_MAX {
            return Err(format!(
                "a ledger's lead is at most {} ms, not {lead} us; choose a shorter one",
                Purpose::LEAD_MAX / 1_000
            ));
        }
        Ok(())
    }

    /// The lease of a section that asks for one, in keyspaces with these as their shortest lease
    /// and longest section; for none the keyspaces' own.
    ///
    /// # Errors
    /// One sentence that names the bound.
    pub fn lease_of(
        asked: Option<Micros>,
        (lease, longest): (Micros, Micros),
    ) -> Result<Micros, String> {
        let most = longest.min(Keyspace::LEASE_MAX);
        match asked {
            None => Ok(lease.min(most)),
            Some(asked) if (Keyspace::LEASE_MIN..=most).contains(&asked) => Ok(asked),
            Some(asked) => {
                let ms = |micros: Micros| micros / 1_000;
                Err(format!(
                    "a lease of {} ms was asked for: one is at least {} ms and at most {} ms, a \
                     day or the keyspace's longest section",
                    ms(asked),
                    ms(Keyspace::LEASE_MIN),
                    ms(most)
                ))
            }
        }
    }

    /// The keyspace with its times within their bounds. One that was made before there were any is
    /// used by the nearest that are.
    pub fn bounded(mut self) -> Keyspace {
        self.lease = self.lease.clamp(Keyspace::LEASE_MIN, Keyspace::LEASE_MAX);
        self.section_max = self.section_max.clamp(self.lease, Keyspace::SECTION_MAX);
        self
    }

    /// Whether a keyspace can have this name: 1 to 64 of a-z, 0-9, - and _.
    pub fn is_name(name: &str) -> bool {
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        (1..=64).contains(&name.len()) && name.bytes().all(letter)
    }

    /// The two keyspaces that every cluster starts with: `default` (sections) and `registers`.
    pub fn built_in() -> [Keyspace; 2] {
        let sections = Keyspace {
            id: Keyspace::SECTIONS,
            name: "default".into(),
            purpose: Purpose::Sections,
            storage: StoragePolicy::Replicated,
            tag_rule: TagRule::Whole,
            lease: 10_000_000,
            section_max: Keyspace::SECTION_MAX,
        };
        let registers = Keyspace {
            id: Keyspace::REGISTERS,
            name: "registers".into(),
            purpose: Purpose::Registers,
            ..sections.clone()
        };
        [sections, registers]
    }
}

/// What a node knows of itself and its cluster when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which node this is.
    pub name: NodeName,
    /// The cluster.
    pub cluster: Cluster,
    /// Durations.
    pub timing: Timing,
    /// Bounds.
    pub limits: Limits,
    /// The formats that its program reads and writes: [`wire::FORMATS`](crate::wire::FORMATS),
    /// outside the simulator.
    pub formats: RangeInclusive<u16>,
    /// What is wrong on purpose: nothing, outside the simulator's tests.
    pub planted: Planted,
}
