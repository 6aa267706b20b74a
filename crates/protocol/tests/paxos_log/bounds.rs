//! Bursts and deaths that made messages which no frame held: bounds by bytes (G34, G35).

use crate::world::{Packet, World, large};
use fermata_protocol::base::*;
use fermata_protocol::paxos::{Declined, Entry, Message as Paxos};

const SECOND: Micros = 1_000_000;

/// Three replicas with limits of one 32nd of the largest that a cluster may have.
fn scaled(planted: Planted) -> World {
    let mut world = World::new(3, 1, planted);
    world.limits = Limits {
        key: 65 << 10,
        value: 512 << 10,
        key_most: 65 << 10,
        value_most: 512 << 10,
        grant: 256 << 10,
        transaction: 128 << 10,
        ledger_value: 32 << 10,
        section_keys: 1,
        proposals_bytes: 512 << 10,
        batch_bytes: 64 << 10,
        window_bytes: 256 << 10,
        votes_bytes: 1 << 20,
        chunk: 8 << 10,
        frame: 3 << 20,
        ..Limits::default()
    };
    world.limits.check().expect("bounds that fit each other");
    world.calm(2 * SECOND);
    assert_eq!(world.primary(), Some(0));
    world
}

/// 260 small commands fill the window; then 60 large ones come within the same round trip, each of
/// 64 KiB: 3.75 MiB, and a frame holds 3.
pub(crate) fn burst(planted: Planted) -> World {
    let mut world = scaled(planted);
    for number in 0..260 {
        assert_eq!(offer(&mut world, number, 0), Some(Ok(())));
    }
    let mut taken = 260;
    for number in 0..60 {
        match offer(&mut world, 1_000 + number, 64 << 10) {
            Some(Ok(())) => taken += 1,
            refused => assert_eq!(refused, Some(Err(Declined::Busy))),
        }
    }
    world.calm(SECOND);
    world.check(world.acknowledged == taken, || {
        "a burst stops the log".into()
    });
    world.heal_and_check();
    world
}

fn offer(world: &mut World, number: u64, bytes: usize) -> Option<Result<(), Declined>> {
    world.step(0, |log, cx| log.propose(large(number, bytes), cx))
}

#[test]
fn g34_a_burst_of_large_commands_goes_through_or_is_refused() {
    let world = burst(Planted::NONE);
    assert_eq!(world.fault, None);
    assert!(world.acknowledged > 260 + 3, "what fits the queue is taken");
}

/// A gives its log away, so that all that waits at it is voted for at B and C at once; then A dies,
/// and what it said of that is lost.
pub(crate) fn many_votes(planted: Planted) -> World {
    let mut world = scaled(planted);
    while let Some(Ok(())) = offer(&mut world, 1, 64 << 10) {}
    world.limits.frame = 300 << 10;
    world.step(0, |log, cx| log.hand_over(Seat(1), cx));
    world
        .net
        .retain(|(_, _, packet)| !matches!(packet, Packet::Paxos(Paxos::Release { .. })));
    world.cut.extend([(1, 0), (2, 0)]);
    world.settle(true);
    world.crash(0);
    world.isolate(0);
    world.net.clear();
    world.calm(6 * SECOND);
    world
}

#[test]
fn g35_votes_beyond_a_frame_are_promised_in_pieces() {
    let mut world = many_votes(Planted::NONE);
    assert_eq!(world.fault, None);
    assert!(
        world.primary().is_some(),
        "a leader without the one that died"
    );
    let voted = world
        .truth
        .values()
        .filter(|(entry, _)| entry.bytes() > 64 << 10)
        .count();
    assert!(voted > 6, "what was voted for is chosen: {voted}");
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

/// How many of two commands are in flight at once, if the window is so much smaller than both.
fn in_flight(less: usize) -> usize {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2 * SECOND);
    let (birth, _) = world.log(0).beat().expect("it leads");
    let commands = vec![large(1, 100)];
    let entry = Entry::Commands { birth, commands };
    world.limits.window_bytes = entry.bytes() + large(2, 100).bytes() - less;
    for number in [1, 2] {
        assert_eq!(offer(&mut world, number, 100), Some(Ok(())));
    }
    let proposed = |(_, to, packet): &&(usize, usize, Packet)| {
        *to == 1 && matches!(packet, Packet::Paxos(Paxos::Accept { .. }))
    };
    world.net.iter().filter(proposed).count()
}

#[test]
fn a_window_is_filled_to_its_last_byte() {
    assert_eq!([0, 1].map(in_flight), [2, 1]);
}
