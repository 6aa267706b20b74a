//! What a node's logs keep together of their applied entries has a bound, and whoever lags behind
//! what they have dropped gets snapshots.

use super::*;
use fermata_protocol::base::Slot;
use fermata_protocol::paxos::Log;

/// Far below what sections leave behind here, and room for a few dozen entries.
const BOUND: usize = 5_000;

fn bounded() -> Limits {
    Limits {
        node_entries_bytes: BOUND,
        ..Limits::default()
    }
}

impl Small {
    /// The bytes that each log of a node keeps.
    fn kept(&self, i: usize) -> Vec<usize> {
        let here = self.nodes[i].0.here();
        let groups = here.groups.values().map(|group| group.log.kept_bytes());
        let segments = here.segments.values().map(|s| s.log.kept_bytes());
        groups.chain(segments).collect()
    }

    /// Enters a key by way of node 1, and leaves it; requests `number` and `number + 1`.
    fn pass_through(&mut self, number: u64, name: &str) {
        let (held, _) = entered(self.ask(1, number, enter(name)));
        let keys = vec![(held, Leaving::Clean(None))];
        self.ask(1, number + 1, Operation::Leave { keys });
    }
}

impl Small {
    fn segment(&self, name: &str) -> SegmentId {
        let here = self.nodes[0].0.here();
        let address = here.address(&key(name)).expect("a keyspace of all nodes");
        address.segment(here.config.cluster.segment_bits)
    }

    /// The log of a key's segment at a node.
    fn log(&self, i: usize, name: &str) -> &Log {
        &self.nodes[i].0.here().segments[&self.segment(name)].log
    }
}

#[test]
fn the_log_that_keeps_most_is_truncated_when_all_keep_too_much() {
    let mut small = Small::with(3, bounded());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let used = "a";
    let other = |name: &&str| small.segment(name) != small.segment(used);
    let others: Vec<&str> = names.into_iter().filter(other).take(2).collect();
    for (number, other) in [1, 3].into_iter().zip(&others) {
        small.pass_through(number, other);
    }
    for number in (5..65).step_by(2) {
        small.pass_through(number, used);
        for i in 0..3 {
            let kept: usize = small.kept(i).iter().sum();
            assert!(kept <= BOUND, "node {i} keeps {kept} bytes");
        }
    }
    for i in 0..3 {
        assert!(small.log(i, used).truncated() > Slot(0));
        for other in &others {
            let log = small.log(i, other);
            assert_eq!(log.truncated(), Slot(0), "{other} keeps less than another");
            assert!(log.kept_bytes() > 0);
        }
    }
}

/// While a member is away the others truncate what it lacks. What they lend it when it is back is
/// within the bound, too: where it is not, they go on without, and lend a newer snapshot.
#[test]
fn a_member_that_lags_behind_what_is_dropped_catches_up() {
    let mut small = Small::with(3, bounded());
    small.dead = Some(2);
    for number in (1..81).step_by(2) {
        small.pass_through(number, "c");
    }
    let lacks = small.log(2, "c").delivered();
    assert!(small.log(0, "c").truncated() > lacks, "it needs a snapshot");
    small.dead = None;
    for number in (81..161).step_by(2) {
        small.pass_through(number, "c");
    }
    assert!(small.log(2, "c").truncated() > lacks);
    for i in 0..3 {
        assert_eq!(small.log(i, "c").delivered(), small.log(0, "c").delivered());
        assert!(small.kept(i).iter().sum::<usize>() <= BOUND);
    }
}
