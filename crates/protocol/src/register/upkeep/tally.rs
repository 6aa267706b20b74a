//! Storage at rest: what a replica stores of each keyspace, and what the formula of its policy
//! says that it should.

use super::super::cell::Head;
use super::super::policy;
use crate::base::{Kept, KeyspaceId, Seat, Shape, StoragePolicy};
use crate::wire::decode;
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

/// What one node stores of one keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Keys that have a value.
    pub keys: u64,
    /// Keys that are deleted, or have nothing but a fence.
    pub dead: u64,
    /// Keys whose record is damaged; nothing else of them is counted.
    pub damaged: u64,
    /// Versions of critical and register cells; at rest one per key, under `ares` δ + 1.
    pub versions: u64,
    /// Bytes of values, or parts of values, that are stored.
    pub bytes: u64,
    /// Bytes that the formula gives: of every key's latest value 1/l, or all of it where it is kept
    /// whole, times the versions that the policy keeps at rest.
    pub expected: u64,
}

impl Tally {
    /// Of one key, from its head as it is stored at `seat`; none where that is damaged.
    pub fn of(head: &[u8], policy: StoragePolicy, shape: Shape, seat: Seat) -> Option<Tally> {
        let head = decode::<Head>(head).ok()?;
        let mut tally = Tally::default();
        tally.count(&head, policy, shape, seat);
        Some(tally)
    }

    /// Adds what another store has.
    pub fn add(&mut self, other: &Tally) {
        self.keys += other.keys;
        self.dead += other.dead;
        self.damaged += other.damaged;
        self.versions += other.versions;
        self.bytes += other.bytes;
        self.expected += other.expected;
    }

    fn count(&mut self, head: &Head, policy: StoragePolicy, shape: Shape, seat: Seat) {
        match head.is_live() {
            true => self.keys += 1,
            false => self.dead += 1,
        }
        self.versions += head.versions().len() as u64;
        self.bytes += head.stored();
        let most = match shape.kept {
            Kept::Several(count) => count,
            Kept::Highest | Kept::FromFinal(_) => 1,
        };
        let times = head.versions().len().min(most) as u64;
        let part = head
            .length()
            .map(|l| policy::part_length(policy, shape, l, seat));
        self.expected += part.unwrap_or(0) * times + head.eventual_stored;
    }
}

/// The tallies of one store, by keyspace.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(pub(super) BTreeMap<KeyspaceId, Tally>);

impl Tallies {
    pub(super) fn count(
        &mut self,
        keyspace: KeyspaceId,
        head: &Head,
        policy: StoragePolicy,
        shape: Shape,
        seat: Seat,
    ) {
        let tally = self.0.entry(keyspace).or_default();
        tally.count(head, policy, shape, seat);
    }

    pub(super) fn damaged(&mut self, keyspace: KeyspaceId) {
        self.0.entry(keyspace).or_default().damaged += 1;
    }
}
