//! A member that lags comes back beside full use, where the way to it takes time (G36, G37).

use crate::world::{Packet, World};
use fermata_protocol::base::*;
use fermata_protocol::paxos::Message as Paxos;
use std::collections::BTreeMap;

const SECOND: Micros = 1_000_000;
/// Half of a round trip of 150 ms.
const ONE_WAY: Micros = 75_000;
const STEP: Micros = 5_000;

/// What travels, by when it arrives.
#[derive(Default)]
struct Ways {
    under_way: BTreeMap<(Micros, u64), (usize, usize, Packet)>,
    sent: u64,
}

impl Ways {
    /// Time passes under full load: whatever the primary takes is proposed. Until something is so;
    /// when it was.
    fn run(
        &mut self,
        world: &mut World,
        span: Micros,
        so: impl Fn(&World) -> bool,
    ) -> Option<Micros> {
        let (begin, end) = (world.time, world.time + span);
        while world.time < end {
            if so(world) {
                return Some(world.time - begin);
            }
            while world.propose(0) {}
            world.pass(STEP);
            self.carry(world);
        }
        None
    }

    fn carry(&mut self, world: &mut World) {
        loop {
            world.flush_all();
            for (from, to, packet) in std::mem::take(&mut world.net) {
                if !world.cut.contains(&(from, to)) {
                    let way = if from == to { 0 } else { ONE_WAY };
                    self.sent += 1;
                    let arrives = (world.time + way, self.sent);
                    self.under_way.insert(arrives, (from, to, packet));
                }
            }
            let next = self
                .under_way
                .first_entry()
                .filter(|e| e.key().0 <= world.time);
            let Some(due) = next else { return };
            let (from, to, packet) = due.remove();
            world.deliver(from, to, packet);
        }
    }
}

/// C is away while A and B truncate their logs, and comes back. The state is 100 MB, and
/// everything here a 16th of that; a truncation comes every 1.2 s, and a transfer takes longer.
fn lagging(planted: Planted) -> (World, Ways) {
    let mut world = World::new(3, 1, planted);
    world.limits = Limits {
        window: 64,
        batch: 4,
        proposals: 512,
        snapshot_every: 512,
        batch_bytes: 64 << 10,
        window_bytes: 512 << 10,
        proposals_bytes: 1 << 20,
        votes_bytes: 2 << 20,
        entries_bytes: 2 << 20,
        node_entries_bytes: 16 << 20,
        chunk: 16 << 10,
        ..Limits::default()
    };
    world.limits.check().expect("bounds that fit each other");
    world.state_bytes = 100_000_000 / 16;
    world.calm(2 * SECOND);
    let mut ways = Ways::default();
    world.isolate(2);
    ways.run(&mut world, 4 * SECOND, |_| false);
    world.cut.clear();
    (world, ways)
}

/// How long C takes to have all but what is in flight; none: it does not within a minute.
pub(crate) fn comes_back(planted: Planted) -> (World, Option<Micros>) {
    let (mut world, mut ways) = lagging(planted);
    let there = |world: &World| world.log(2).chosen().0 + 128 >= world.log(0).chosen().0;
    assert!(!there(&world), "C lags");
    let took = ways.run(&mut world, 60 * SECOND, there);
    (world, took)
}

#[test]
fn g36_a_member_that_lags_comes_back_beside_full_use() {
    let (world, took) = comes_back(Planted::NONE);
    assert_eq!(world.fault, None);
    let took = took.expect("it has come back within a minute");
    println!("back after {took} us, by {} snapshots", world.installs);
    assert_eq!(world.installs, 1, "by the snapshot that it began to fetch");
}

#[test]
fn a_member_whose_source_falls_silent_asks_another_one() {
    let (mut world, mut ways) = lagging(Planted::NONE);
    ways.run(&mut world, SECOND / 2, |_| false);
    assert_eq!(world.installs, 0, "it is still fetching");
    world.cut.extend([(0, 2), (2, 0)]);
    let chosen = world.log(0).chosen();
    let there = |world: &World| world.log(2).chosen() >= chosen;
    let took = ways.run(&mut world, 60 * SECOND, there);
    assert_eq!(world.fault, None);
    assert!(took.is_some(), "B has it, too");
}

#[test]
fn a_source_that_is_silent_is_asked_three_times_more() {
    let (mut world, mut ways) = lagging(Planted::NONE);
    ways.run(&mut world, SECOND / 2, |_| false);
    assert_eq!(world.installs, 0, "it is still fetching");
    let mut asked = Vec::new();
    for _ in 0..8 {
        world.net.clear();
        world.pass(world.timing.retry);
        let fetches = world.net.iter().filter(|(from, _, packet)| {
            *from == 2 && matches!(packet, Packet::Paxos(Paxos::Fetch { .. }))
        });
        asked.extend(fetches.map(|(_, to, _)| *to));
    }
    let first = asked.iter().take_while(|to| **to == asked[0]);
    assert_eq!(first.count(), 3, "{asked:?}");
}
