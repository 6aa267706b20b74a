//! Random schedules of macro-steps: an operation reaches some, the rest of it arrives late or
//! never; crashes in between.

use crate::world::{World, stop};
use fermata_protocol::base::{Epoch, Planted};

/// One schedule; what went wrong, if anything.
pub(crate) fn schedule(n: usize, seed: u64, planted: Planted) -> World {
    let mut world = World::new(n, seed, planted);
    world.largest = world.limits.key as u64;
    if !seed.is_multiple_of(4) {
        world.follow();
    }
    world.rotten = (seed.is_multiple_of(3) && n > 1).then_some(seed as usize % n);
    let steps = 40 + world.rng.below(60);
    let may_stop = world.rng.below(4) == 0;
    for _ in 0..steps {
        act(&mut world, n, may_stop);
        if world.fault.is_some() {
            return world;
        }
    }
    world.heal_and_check();
    world
}

fn act(world: &mut World, n: usize, may_stop: bool) {
    let i = world.rng.below(n as u64) as usize;
    match world.rng.below(20) {
        0..=5 => {
            let at = world
                .primary()
                .filter(|_| world.rng.below(4) > 0)
                .unwrap_or(i);
            for _ in 0..=world.rng.below(3) {
                world.propose(at);
            }
        }
        6..=8 => links(world, n, i),
        9..=10 => {
            let up = world.hosts.iter().filter(|h| h.log.is_some()).count();
            if up > n / 2 {
                world.crash(i);
            }
            if world.rng.below(2) == 0 {
                world.restart(i);
            }
        }
        11 => power_cut(world, n, i),
        12 => {
            (0..n).for_each(|i| world.restart(i));
            // Nodes may be told other limits than those under which they voted.
            world.limits.window_bytes = [1_500, 4_000][world.rng.below(2) as usize];
        }
        13 => {
            // What is late never comes.
            let keep = world.rng.below(2);
            let cut = world.cut.clone();
            world
                .net
                .retain(|(from, to, _)| keep == 1 || !cut.contains(&(*from, *to)));
        }
        14 if world.rng.below(2) == 0 => {
            if let Some(primary) = world.primary() {
                let to = fermata_protocol::base::Seat(i as u8);
                world.step(primary, |log, cx| log.hand_over(to, cx));
            }
        }
        14 if world.outsider.is_some() => world.follow(),
        15 if may_stop && world.rng.below(4) == 0 => {
            world.step(i, |log, cx| log.propose_stop(stop(Epoch(2)), cx));
        }
        _ => {
            let span = [50_000, 400_000, 1_000_000, 2_500_000][world.rng.below(4) as usize];
            let beats = 1 + world.rng.below(4);
            for _ in 0..beats {
                world.pass(span / beats);
                if world.rng.below(3) > 0 {
                    world.settle(false);
                }
            }
        }
    }
    if world.rng.below(3) > 0 {
        some(world);
    }
}

/// Which links carry anything from now on.
fn links(world: &mut World, n: usize, i: usize) {
    world.cut.clear();
    let odds = 2 + world.rng.below(6);
    for from in 0..n {
        for to in (0..n).filter(|to| *to != from) {
            if world.rng.below(odds) == 0 {
                world.cut.insert((from, to));
            }
        }
    }
    match (world.rng.below(3), world.primary()) {
        (0, _) => world.isolate(i),
        // One replica misses the primary that the others hear.
        (1, Some(primary)) => {
            world.cut.clear();
            world.cut.insert((primary, i));
            world.cut.insert((i, primary));
        }
        _ => {}
    }
}

/// A power cut on one side of a split, over in a moment.
fn power_cut(world: &mut World, n: usize, i: usize) {
    world.isolate(i);
    for j in (0..n).filter(|j| *j != i) {
        world.crash(j);
        world.restart(j);
    }
    for _ in 0..world.rng.below(4) {
        world.pass(350_000);
        world.settle(false);
    }
}

/// Delivers a few packets, whichever, also over links that are cut by now.
fn some(world: &mut World) {
    for _ in 0..world.rng.below(12) {
        if world.net.is_empty() {
            return;
        }
        let k = world.rng.below(world.net.len() as u64) as usize;
        let (from, to, packet) = world.net.remove(k);
        if world.rng.below(4) == 0 && from != to {
            continue;
        }
        world.deliver(from, to, packet);
        if world.rng.below(2) == 0 {
            world.flush(to);
        }
    }
}

fn run(n: usize, seeds: std::ops::Range<u64>) {
    let (mut acknowledged, mut installs, mut leased) = (0, 0, 0);
    for seed in seeds {
        let world = schedule(n, seed, Planted::NONE);
        assert_eq!(world.fault, None, "{n} replicas, seed {seed}");
        acknowledged += world.acknowledged;
        installs += world.installs;
        leased += world.leased;
    }
    // A schedule in which nothing happens proves nothing.
    let enough = acknowledged > 1_000 && installs > 20 && leased > 1_000;
    assert!(
        enough,
        "{acknowledged} acknowledged, {installs} snapshots, {leased} leased"
    );
}

#[test]
fn three_replicas_agree_under_random_schedules() {
    run(3, 0..2_000);
}

#[test]
fn five_replicas_agree_under_random_schedules() {
    run(5, 10_000..11_000);
}

#[test]
fn one_replica_works_alone() {
    for seed in 0..50 {
        assert_eq!(schedule(1, seed, Planted::NONE).fault, None, "seed {seed}");
    }
}
