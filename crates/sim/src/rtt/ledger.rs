//! What transactions and snapshots cost. The cluster's time is read beside the primary: there leads
//! the meta-group, too.

use super::{Bench, Row};
use crate::catalogue;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Keyspace, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::ledger::{Act, Part, Transaction, When};

/// By how much longer than the longest round trip a keyspace closes ahead, microseconds: one way
/// until it is heard, and as much that a node may take the present to be later than it is.
const AHEAD: u64 = 30_000;

/// How old a recent snapshot may be, microseconds.
const STALENESS: u64 = 1_000_000;

impl Bench {
    /// A ledger, which closes so far ahead.
    pub(super) fn run_ledger(&mut self, leads: bool, rows: &mut Vec<Row>) {
        self.row.storage = if leads { "lead" } else { "ledger" };
        let lead = if leads { self.longest() + AHEAD } else { 0 };
        let known = &mut self.world.history.catalogue;
        let purpose = Purpose::Ledger { lead };
        let keyspace = known.add(purpose, StoragePolicy::Replicated, Keyspace::SECTION_MAX);
        catalogue::furnish(&mut self.world);
        self.settle();
        let key = KeyId {
            keyspace,
            key: Bytes::from_static(b"tag/key"),
        };
        // From then on the segment has a limit, and closes times.
        self.time(self.me, put(&key));
        self.settle();
        let at = self.time(self.me, put(&key));
        self.push(rows, "transact", 0, at);
        self.settle();
        let at = self.time(self.me, look(&key, When::Now));
        self.push(rows, "snapshot", 0, at);
        let recent = When::Recent {
            staleness: STALENESS,
            after: Default::default(),
        };
        let at = self.time(self.me, look(&key, recent));
        self.push(rows, "recent", 0, at);
    }

    /// The longest round trip of the profile.
    fn longest(&self) -> u64 {
        let profile = self.profile;
        let pairs = (0..3).flat_map(|a| (0..3).map(move |b| (a, b)));
        let longest = pairs.map(|(a, b)| profile.rtt(a, b)).max();
        longest.unwrap_or_default()
    }
}

fn put(key: &KeyId) -> Call {
    let (key, value) = (key.clone(), Bytes::from_static(b"0123456789"));
    Call::Transact(Transaction {
        then: vec![Act::Put { key, value }],
        ..Transaction::default()
    })
}

fn look(key: &KeyId, when: When) -> Call {
    let parts = vec![Part::Key(key.clone())];
    Call::Snapshot { parts, when }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;

    /// The client's own trip, and what clocks may drift meanwhile, microseconds.
    const SLACK: u64 = 1_000;

    /// From all sites to all primaries: R is the trip to the primary, q that from there to its
    /// nearest other site. Commit wait is hidden behind them.
    #[test]
    fn a_transaction_waits_for_the_primary_and_its_quorum_and_a_read_for_nothing_more() {
        for profile in &profile::ALL {
            for (site, primary) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
                let nearest = (0..3).filter(|s| *s != primary);
                let nearest = nearest.map(|s| profile.rtt(primary, s)).min().unwrap();
                let there = match site == primary {
                    true => 0,
                    false => profile.rtt(site, primary),
                };
                let mut rows = Vec::new();
                Bench::new(profile, site, primary).run_ledger(false, &mut rows);
                Bench::new(profile, site, primary).run_ledger(true, &mut rows);
                let of = |storage, step| {
                    let mut found = rows.iter();
                    let found = found.find(|r| (r.storage, r.step) == (storage, step));
                    (found.expect("measured").ms * 1_000.0) as u64
                };
                let case = format!("{}, {site} to {primary}", profile.name);
                let most = (there + nearest) * 102 / 100 + SLACK;
                let took = of("ledger", "transact");
                assert!(took <= most, "{case}: {took} of {most}");
                let took = of("ledger", "snapshot");
                assert!(took <= there + SLACK, "{case}: {took} of {there}");
                for (storage, step) in [
                    ("ledger", "recent"),
                    ("lead", "snapshot"),
                    ("lead", "recent"),
                ] {
                    let took = of(storage, step);
                    assert!(took <= SLACK, "{case}: {storage} {step} {took}");
                }
            }
        }
    }
}
