//! Named schedules: each one broke a rule that was written down wrongly somewhere.

use crate::world::{ID, Packet, World, command, stop};
use fermata_protocol::base::*;
use fermata_protocol::paxos::{Declined, Entry, Message as Paxos, Reserved};
use fermata_protocol::wire::record;

const SECOND: Micros = 1_000_000;

/// Three replicas, seat 0 the primary, slot 1 its `Begin`, nothing else.
fn three(planted: Planted) -> World {
    let mut world = World::new(3, 1, planted);
    world.calm(2 * SECOND);
    assert_eq!(world.primary(), Some(0));
    assert_eq!(world.log(0).chosen(), Slot(1));
    world
}

fn entry(world: &World, slot: u64) -> &Entry {
    &world.truth.get(&Slot(slot)).expect("chosen").0
}

fn commands(entry: &Entry) -> usize {
    match entry {
        Entry::Commands { commands, .. } => commands.len(),
        _ => 0,
    }
}

/// F13, first schedule: x is accepted by A and C, hence chosen and applied; then B hears A ("x")
/// and itself ("nothing"), which makes x "accepted, not chosen".
pub(crate) fn chosen_but_seen_once(planted: Planted) -> World {
    let mut world = three(planted);
    world.cut.insert((0, 1));
    world.propose(0);
    world.settle(true);
    assert_eq!(world.acknowledged, 1);
    world.cut.clear();
    world.crash(0);
    world.isolate(2);
    world.net.clear();
    world.restart(0);
    world.calm(6 * SECOND);
    world
}

#[test]
fn f13_a_chosen_entry_that_one_of_the_quorum_reports_is_proposed_again() {
    let mut world = chosen_but_seen_once(Planted::NONE);
    assert_eq!(world.fault, None);
    assert_eq!(commands(entry(&world, 2)), 1);
    assert!(world.log(1).chosen() > Slot(2), "B learned x and went on");
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn f13_of_two_reported_entries_the_higher_ballot_wins() {
    let mut world = three(Planted::NONE);
    // A holds x of ballot 0 in slot 2, alone; B and C choose another entry there.
    world.isolate(0);
    world.propose(0);
    world.settle(true);
    world.net.clear();
    world.calm(6 * SECOND);
    let chosen = entry(&world, 2).clone();
    assert!(
        matches!(chosen, Entry::Begin { ballot } if ballot.round > 0),
        "{chosen:?}"
    );
    // Now A and the restarted B, without C.
    world.crash(1);
    world.crash(0);
    world.cut.clear();
    world.isolate(2);
    world.net.clear();
    world.restart(0);
    world.restart(1);
    world.calm(6 * SECOND);
    assert_eq!(world.fault, None);
    assert_eq!(entry(&world, 2), &chosen);
    assert!(
        world.log(0).chosen() > Slot(2),
        "A took the entry of the higher ballot"
    );
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn f3f_a_hole_gets_a_noop_and_commands_go_above_the_begin() {
    let mut world = three(Planted::NONE);
    world.isolate(0);
    world.propose(0);
    world.propose(0);
    // Slot 3 reaches B, slot 2 nobody.
    let slot_3 = |p: &Packet| matches!(p, Packet::Paxos(Paxos::Accept { slot, .. }) if slot.0 == 3);
    let found = world
        .net
        .iter()
        .find(|(_, to, p)| *to == 1 && slot_3(p))
        .cloned();
    let (from, to, packet) = found.expect("slot 3 was proposed");
    world.deliver(from, to, packet);
    world.flush(1);
    world.crash(0);
    world.net.clear();
    world.calm(5 * SECOND);
    assert_eq!(world.primary(), Some(1));
    world.propose(1);
    world.settle(true);
    assert_eq!(entry(&world, 2), &Entry::Noop);
    assert_eq!(commands(entry(&world, 3)), 1);
    assert!(matches!(entry(&world, 4), Entry::Begin { .. }));
    assert_eq!(commands(entry(&world, 5)), 1);
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn l5_a_command_that_surfaces_above_a_later_begin_is_void() {
    let mut world = three(Planted::NONE);
    // P: two commands, at A only, slots 2 and 3.
    world.isolate(0);
    world.propose(0);
    world.propose(0);
    world.settle(true);
    world.crash(0);
    world.net.clear();
    // Q: B and C, `Begin` in slot 2.
    world.calm(5 * SECOND);
    assert!(matches!(entry(&world, 2), Entry::Begin { .. }));
    // R: A and B. Slot 3 must be proposed again, for all that R knows it may be chosen.
    world.cut.clear();
    world.crash(1);
    world.isolate(2);
    world.net.clear();
    world.restart(0);
    world.restart(1);
    world.calm(6 * SECOND);
    assert!(world.primary().is_some());
    assert_eq!(
        entry(&world, 3),
        &Entry::Noop,
        "it comes out without effect"
    );
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn a_replica_behind_the_truncation_takes_a_snapshot_in_chunks() {
    let mut world = three(Planted::NONE);
    world.isolate(2);
    for _ in 0..40 {
        world.propose(0);
        world.settle(true);
    }
    assert!(world.log(0).truncated() > Slot(20));
    assert_eq!(world.log(2).chosen(), Slot(1));
    world.cut.clear();
    world.net.clear();
    world.calm(2 * SECOND);
    assert_eq!(world.installs, 1);
    assert_eq!(world.log(2).chosen(), world.log(0).chosen());
    // And it survives a restart.
    world.flush_all();
    world.crash(2);
    world.restart(2);
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

/// A primary and B have a log that C, a member of it, was away for the beginning of.
fn without_c(commands: usize) -> World {
    let mut world = World::new(3, 1, Planted::NONE);
    world.never_had(2);
    world.calm(2 * SECOND);
    for _ in 0..commands {
        world.propose(0);
        world.settle(true);
    }
    world
}

#[test]
fn g17_a_late_replica_begins_with_a_snapshot_and_serves() {
    let mut world = without_c(40);
    assert!(world.log(0).truncated() > Slot(20));
    let parts = world.join(2, 1);
    assert!(parts > 2, "in parts: {parts}");
    assert_eq!(world.log(2).delivered(), world.log(1).truncated());
    // Its memory is that of any replica.
    world.flush_all();
    world.crash(2);
    world.restart(2);
    world.calm(3 * SECOND);
    assert_eq!(world.log(2).chosen(), world.log(0).chosen());
    let last = world.log(0).chosen();
    world.crash(0);
    world.net.clear();
    world.calm(6 * SECOND);
    let primary = world.primary().expect("two of three are up");
    assert!(world.log(primary).chosen() > last);
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn g17_a_late_replica_of_a_young_log_begins_with_its_initial_state() {
    let mut world = without_c(2);
    world.join(2, 0);
    assert_eq!(world.log(2).delivered(), Slot(0));
    // It refuses everybody for one lease: a creation that was lost may have granted one.
    let ballot = Ballot {
        round: 9,
        seat: Seat(1),
    };
    let above = Slot(0);
    world.deliver(1, 2, Packet::Paxos(Paxos::Prepare { ballot, above }));
    assert_ne!(world.log(2).ballot(), ballot);
    world.calm(3 * SECOND);
    assert_eq!(world.log(2).chosen(), world.log(0).chosen());
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn g17_a_late_owner_of_ballot_0_follows_who_leads() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.never_had(0);
    world.calm(6 * SECOND);
    let primary = world.primary().expect("two of three are up");
    world.join(0, primary);
    world.calm(2 * SECOND);
    assert_eq!(world.primary(), Some(primary));
    assert!(world.log(0).leadership().is_none());
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn a_late_owner_of_ballot_0_leads_where_nobody_does() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.never_had(0);
    world.join(0, 1);
    let accepts = |(from, _, packet): &(usize, usize, Packet)| {
        *from == 0 && matches!(packet, Packet::Paxos(Paxos::Accept { .. }))
    };
    assert!(!world.net.iter().any(accepts), "not before it is durable");
    world.calm(world.timing.election / 2);
    assert_eq!(world.primary(), Some(0));
    assert!(world.log(0).chosen() > Slot(0));
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn a_candidate_behind_the_truncation_catches_up_before_it_leads() {
    let mut world = three(Planted::NONE);
    world.isolate(2);
    for _ in 0..40 {
        world.propose(0);
        world.settle(true);
    }
    let last = world.log(0).chosen();
    world.crash(0);
    world.crash(1);
    world.cut.clear();
    world.net.clear();
    // B may promise, but C must lead: B is down when its turn comes.
    world.restart(1);
    world.calm(8 * SECOND);
    assert_eq!(world.fault, None);
    let primary = world.primary().expect("two of three are up");
    assert!(world.log(primary).chosen() > last);
    assert_eq!(world.log(1).chosen(), world.log(2).chosen());
}

#[test]
fn a_member_that_wants_the_end_waits_for_the_lease_and_then_ends_the_log() {
    let mut world = three(Planted::NONE);
    world.step(1, |log, cx| log.propose_stop(stop(Epoch(2)), cx));
    world.calm(3 * SECOND);
    assert_eq!(world.primary(), Some(0), "a lease that lives is not broken");
    // The primary dies with a command that only C has.
    world.cut.insert((0, 1));
    world.propose(0);
    world.settle(true);
    world.crash(0);
    world.net.clear();
    world.cut.clear();
    world.calm(4 * SECOND);
    assert_eq!(world.log(1).stopped(), Some(stop(Epoch(2))));
    assert_eq!(
        commands(entry(&world, 2)),
        1,
        "what was chosen comes before the end"
    );
    let end = Entry::Stop(stop(Epoch(2)));
    assert_eq!(entry(&world, 3), &end, "it takes the place of the `Begin`");
    world.heal_and_check();
    assert_eq!(world.fault, None);
    let all = (0..3).all(|i| world.log(i).stopped() == Some(stop(Epoch(2))));
    assert!(all, "everybody learns it");
}

#[test]
fn a_primary_that_proposes_the_stop_reads_until_it_is_chosen() {
    let mut world = three(Planted::NONE);
    assert!(world.log(0).has_lease(world.now(0), &world.timing));
    world.propose(0);
    world.step(0, |log, cx| log.propose_stop(stop(Epoch(2)), cx));
    assert!(!world.log(0).is_primary() && world.log(0).has_begun());
    assert!(world.log(0).has_lease(world.now(0), &world.timing));
    let late = world.step(0, |log, cx| log.propose(command(9), cx));
    assert_eq!(late, Some(Err(Declined::Stopping)));
    world.settle(true);
    assert_eq!(world.log(0).stopped(), Some(stop(Epoch(2))));
    assert!(!world.log(0).has_lease(world.now(0), &world.timing));
    assert_eq!(world.log(0).chosen(), Slot(3));
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn a_restarted_acceptor_honours_the_lease_that_it_forgot() {
    let mut world = three(Planted::NONE);
    world.flush_all();
    world.isolate(1);
    world.crash(1);
    world.restart(1);
    let ballot = Ballot {
        round: 9,
        seat: Seat(2),
    };
    let prepare = Packet::Paxos(Paxos::Prepare {
        ballot,
        above: Slot(0),
    });
    world.deliver(2, 1, prepare.clone());
    assert_ne!(
        world.log(1).ballot(),
        ballot,
        "the first process may have granted a lease"
    );
    world.time += world.timing.lease * 11 / 10;
    world.deliver(2, 1, prepare);
    assert_eq!(world.log(1).ballot(), ballot);
}

#[test]
fn a_hand_over_takes_no_time_and_keeps_what_was_taken() {
    let mut world = three(Planted::NONE);
    for _ in 0..5 {
        world.propose(0);
    }
    world.step(0, |log, cx| log.hand_over(Seat(2), cx));
    let before = world.time;
    world.settle(true);
    assert_eq!((world.primary(), world.time), (Some(2), before));
    let taken: usize = world.truth.values().map(|(e, _)| commands(e)).sum();
    assert_eq!(taken, 5);
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn an_unreadable_vote_silences_the_acceptor_until_it_has_learned() {
    let mut world = three(Planted::NONE);
    world.propose(0);
    world.settle(true);
    world.calm(SECOND);
    world.flush_all();
    world.isolate(1);
    world.crash(1);
    world.hosts[1]
        .durable
        .void
        .insert(record::accepted(ID, Slot(2)));
    world.restart(1);
    world.time += 3 * SECOND;
    let ballot = Ballot {
        round: 9,
        seat: Seat(2),
    };
    let above = Slot(0);
    world.deliver(2, 1, Packet::Paxos(Paxos::Prepare { ballot, above }));
    assert_ne!(
        world.log(1).ballot(),
        ballot,
        "silence, not 'nothing accepted'"
    );
    world.cut.clear();
    world.net.clear();
    world.calm(2 * SECOND);
    assert!(world.log(1).chosen() >= Slot(2));
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

#[test]
fn queues_are_bounded_and_batches_share_slots() {
    let mut world = three(Planted::NONE);
    world.isolate(0);
    let mut taken = 0;
    let refused = loop {
        match world.step(0, |log, cx| log.propose(command(taken + 100), cx)) {
            Some(Ok(())) => taken += 1,
            other => break other,
        }
    };
    assert_eq!((taken, refused), (16, Some(Err(Declined::Busy))));
    let other = world.step(1, |log, cx| log.propose(command(1), cx));
    assert_eq!(other, Some(Err(Declined::NotPrimary(Some(Seat(0))))));
    world.cut.clear();
    world.calm(3 * SECOND);
    let slots = world
        .truth
        .values()
        .filter(|(e, _)| commands(e) > 0)
        .count();
    let chosen: usize = world.truth.values().map(|(e, _)| commands(e)).sum();
    assert_eq!(chosen, 16);
    assert!(
        slots < 16,
        "what waited for the window came in batches: {slots}"
    );
    assert_eq!(world.fault, None);
}

#[test]
fn senseless_messages_are_counted_and_change_nothing() {
    let mut world = three(Planted::NONE);
    let high = Ballot {
        round: u32::MAX,
        seat: Seat(2),
    };
    let far = Slot(u64::MAX);
    let accept = Paxos::Accept {
        ballot: world.log(1).ballot(),
        slot: far,
        entry: Entry::Noop,
        chosen: Slot(1),
        reserved: Reserved::default(),
    };
    for message in [
        Paxos::Prepare {
            ballot: high,
            above: far,
        },
        Paxos::Prepare {
            ballot: Ballot {
                round: 1,
                seat: Seat(0),
            },
            above: far,
        },
        Paxos::Fetch {
            from: far,
            resume: Some((far, u64::MAX)),
        },
        Paxos::Entries {
            from: far,
            entries: Vec::new(),
            chosen: Slot(1),
        },
        Paxos::Refused {
            ballot: world.log(0).ballot(),
            promised: high,
        },
    ] {
        world.deliver(2, 1, Packet::Paxos(message.clone()));
        world.deliver(2, 0, Packet::Paxos(message));
    }
    world.deliver(0, 1, Packet::Paxos(accept));
    assert_eq!(world.primary(), Some(0));
    assert!(
        world.log(1).ignored().len() >= 4,
        "{:?}",
        world.log(1).ignored()
    );
    world.heal_and_check();
    assert_eq!(world.fault, None);
}

/// G27, the beginning: in an outage C promises B, which does not hear of it and follows A again. A
/// has its lease by B, and no room in its window for the command that it takes then: that waits in
/// its queue when C's promise deposes it, which it outbids. The command, and what is on its way.
fn waits_while_its_leader_outbids(world: &mut World) -> u64 {
    (0..3).for_each(|i| world.isolate(i));
    while world.propose(0) && world.net.iter().filter(|(.., p)| is_accept(p)).count() < 8 {}
    world.net.clear();
    let prepares = |world: &World| world.net.iter().any(|(from, ..)| *from == 1);
    while !prepares(world) {
        world.pass(SECOND / 10);
        world.flush_all();
    }
    deliver_only(world, |from, to, _| (from, to) == (1, 2));
    world.net.clear();
    world.pass(world.timing.beat);
    deliver_only(world, |from, to, p| {
        (from, to) == (0, 1) && matches!(p, Packet::Beat(..))
    });
    deliver_only(world, |from, to, _| (from, to) == (1, 0));
    assert!(world.log(0).has_lease(world.now(0), &world.timing));
    assert!(world.propose(0));
    let waits = world.proposed();
    deliver_only(world, |from, to, p| {
        (from, to) == (0, 2) && matches!(p, Packet::Beat(..))
    });
    deliver_only(world, |from, to, _| (from, to) == (2, 0));
    assert_eq!(world.primary(), None, "it stands again, with a lease");
    waits
}

fn is_accept(packet: &Packet) -> bool {
    matches!(packet, Packet::Paxos(Paxos::Accept { .. }))
}

/// Delivers what is on its way and matches, and makes it durable.
fn deliver_only(world: &mut World, matches: impl Fn(usize, usize, &Packet) -> bool) {
    let all = std::mem::take(&mut world.net);
    for (from, to, packet) in all {
        match matches(from, to, &packet) {
            true => world.deliver(from, to, packet),
            false => world.net.push((from, to, packet)),
        }
    }
    world.flush_all();
}

fn is_chosen(world: &World, number: u64) -> bool {
    let mut entries = world.truth.values();
    entries.any(|(entry, _)| match entry {
        Entry::Commands { commands, .. } => commands.iter().any(|c| c.number == number),
        _ => false,
    })
}

/// The commands that a replica hands back.
fn dropped(world: &mut World, i: usize) -> Vec<u64> {
    let dropped = world.step(i, |log, _| log.take_dropped());
    dropped.iter().flatten().map(|c| c.number).collect()
}

/// G27, first schedule: A leads again by its higher ballot.
pub(crate) fn outbids_with_a_queue(planted: Planted) -> (World, u64) {
    let mut world = three(planted);
    let waits = waits_while_its_leader_outbids(&mut world);
    world.cut.clear();
    world.calm(SECOND);
    assert_eq!(world.primary(), Some(0));
    (world, waits)
}

#[test]
fn g27_a_queue_ends_with_the_leadership_that_is_outbid_by_its_own_leader() {
    let (mut world, waits) = outbids_with_a_queue(Planted::NONE);
    assert_eq!(dropped(&mut world, 0), [waits]);
    world.heal_and_check();
    assert!(!is_chosen(&world, waits));
    assert_eq!(world.fault, None);
}

/// G27, second schedule: A's higher ballot fails, another seat leads, and A again after it.
#[test]
fn g27_a_queue_ends_with_a_candidacy_that_fails() {
    let mut world = three(Planted::NONE);
    let waits = waits_while_its_leader_outbids(&mut world);
    let late = world.net.iter().position(|(_, to, p)| {
        *to == 2 && matches!(p, Packet::Paxos(Paxos::Prepare { ballot, .. }) if ballot.seat.0 == 0)
    });
    let (from, to, prepare) = world.net.remove(late.expect("A stands"));
    world.net.clear();
    world.cut.clear();
    world.isolate(0);
    world.calm(6 * SECOND);
    let leader = world.primary().expect("two of three go on");
    world.net.clear();
    world.cut.clear();
    world.deliver(from, to, prepare);
    world.flush_all();
    deliver_only(&mut world, |from, to, _| (from, to) == (2, 0));
    assert_eq!(dropped(&mut world, 0), [waits]);
    world.calm(SECOND);
    world.step(leader, |log, cx| log.hand_over(Seat(0), cx));
    world.calm(SECOND);
    assert_eq!(world.primary(), Some(0));
    world.heal_and_check();
    assert!(!is_chosen(&world, waits));
    assert_eq!(world.fault, None);
}

/// G27, as the end of an epoch: what the log's last primary stated of its leases is not chosen in
/// a later term than its own.
#[test]
fn g27_a_log_that_ends_ends_without_what_an_earlier_leadership_left_in_its_queue() {
    let mut world = three(Planted::NONE);
    let waits = waits_while_its_leader_outbids(&mut world);
    world.step(0, |log, cx| log.propose_stop(stop(Epoch(2)), cx));
    world.cut.clear();
    world.calm(SECOND);
    assert_eq!(world.log(0).stopped(), Some(stop(Epoch(2))));
    assert!(!is_chosen(&world, waits));
    world.heal_and_check();
    assert_eq!(world.fault, None);
}
