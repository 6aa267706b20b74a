//! Rules that no random schedule meets: clocks and disks would have to agree with each other to the
//! microsecond.

use crate::world::{Packet, World};
use fermata_protocol::base::*;
use fermata_protocol::paxos::Message as Paxos;

/// P7: an acceptor follows a leader's beat. How long, by its own clock, it promises nobody else.
fn bound_for(planted: Planted) -> Micros {
    let mut world = World::new(3, 1, planted);
    world.calm(2_000_000);
    assert_eq!(world.primary(), Some(0));
    let (ballot, chosen) = world.log(0).beat().expect("it leads");
    world.isolate(1);
    let bound = world.now(1).monotonic;
    world.deliver(0, 1, Packet::Beat(ballot, chosen, 0));
    let higher = Ballot {
        round: 9,
        seat: Seat(2),
    };
    world.time += world.timing.lease - 10_000;
    for _ in 0..20_000 {
        world.time += 1;
        let (ballot, above) = (higher, Slot(0));
        world.deliver(2, 1, Packet::Paxos(Paxos::Prepare { ballot, above }));
        if world.log(1).ballot() == higher {
            return world.now(1).monotonic - bound;
        }
    }
    panic!("bound for ever");
}

#[test]
fn p7_an_acceptor_is_bound_for_a_lease_by_the_slowest_clock() {
    let timing = Timing::default();
    assert_eq!(bound_for(Planted::NONE), timing.lengthened(timing.lease));
}

/// P2: whether anything of ballot 0 leaves its owner before the log's creation is durable.
fn leaves_before_creation(planted: Planted) -> bool {
    let mut world = World::new(3, 1, planted);
    let accepts = |world: &World| {
        let of_owner = |(from, _, packet): &(usize, usize, Packet)| {
            *from == 0 && matches!(packet, Packet::Paxos(Paxos::Accept { .. }))
        };
        world.net.iter().any(of_owner)
    };
    let before = accepts(&world);
    world.flush(0);
    assert!(accepts(&world), "it leaves then");
    before
}

#[test]
fn p2_nothing_of_the_first_ballot_leaves_before_the_creation_is_durable() {
    assert!(!leaves_before_creation(Planted::NONE));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn each_of_these_rules_can_be_broken() {
    let drift = Planted::only(Bug::AcceptorIgnoresDrift);
    assert_eq!(bound_for(drift), Timing::default().lease);
    let early = Planted::only(Bug::BeginBeforeCreation);
    assert!(leaves_before_creation(early));
}
