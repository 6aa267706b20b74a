//! Rules that no random schedule meets: clocks and disks would have to agree with each other to the
//! microsecond.

use crate::world::{Packet, World, stop};
use fermata_protocol::base::*;
use fermata_protocol::paxos::{Accepted, Entry, Message as Paxos, Reserved};

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

/// P5: nothing is below the `Begin` of ballot 0, and commands need not wait for the others' votes.
#[test]
fn p5_commands_go_beside_the_begin_of_the_first_ballot() {
    let mut world = World::new(3, 1, Planted::NONE);
    assert!(!world.log(0).is_primary(), "its creation is not durable");
    world.flush(0);
    let own = world
        .net
        .iter()
        .position(|(from, to, _)| (*from, *to) == (0, 0));
    let (from, to, packet) = world.net.remove(own.expect("its own vote"));
    world.deliver(from, to, packet);
    assert!(world.log(0).is_primary());
    assert_eq!(world.log(0).chosen(), Slot(0));
    assert!(!world.log(0).has_lease(world.now(0), &world.timing));
    assert!(world.propose(0));
    world.calm(2_000_000);
    assert_eq!(world.log(1).chosen(), Slot(2));
    assert_eq!(world.fault, None);
}

/// G53: A and B are there, C is not. A's disk is stuck, and A has lost its own vote for an entry,
/// as it may lose whatever else it has to hold by then. Whether the entry is chosen all the same.
pub(crate) fn chosen_without_third(planted: Planted) -> bool {
    let mut world = World::new(3, 1, planted);
    world.calm(2_000_000);
    world.crash(2);
    assert!(world.propose(0));
    world.flush(0);
    world.net.retain(|(from, to, _)| (*from, *to) != (0, 0));
    let before = world.log(0).chosen();
    world.calm(4 * world.timing.retry);
    assert_eq!(world.fault, None);
    assert!(world.log(0).is_primary());
    world.log(0).chosen() > before
}

#[test]
fn g53_a_leader_that_lost_its_own_vote_votes_again() {
    assert!(chosen_without_third(Planted::NONE));
}

/// How often a replica has ignored messages.
fn ignored(world: &World, i: usize) -> u64 {
    world.log(i).ignored().values().sum()
}

/// The least round that nobody may lead: the next one could not be counted.
const NO_ROUND: u32 = u32::MAX - 1;

fn ballot(round: u32, seat: u8) -> Ballot {
    let seat = Seat(seat);
    Ballot { round, seat }
}

#[test]
fn a_ballot_that_is_not_its_senders_is_not_promised() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let follows = world.log(1).ballot();
    world.time += 10 * world.timing.lease;
    for (from, ballot) in [(0, ballot(9, 2)), (2, ballot(NO_ROUND, 2))] {
        let (before, above) = (ignored(&world, 1), Slot(0));
        world.deliver(from, 1, Packet::Paxos(Paxos::Prepare { ballot, above }));
        assert_eq!(ignored(&world, 1), before + 1, "{ballot:?} from {from}");
        assert_eq!(world.log(1).ballot(), follows);
    }
}

#[test]
fn a_beat_that_is_not_its_senders_binds_nobody() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let follows = world.log(1).ballot();
    for (from, ballot) in [
        (0, ballot(7, 2)),
        (2, ballot(NO_ROUND, 2)),
        (1, ballot(7, 1)),
        (3, ballot(7, 3)),
    ] {
        let before = ignored(&world, 1);
        world.deliver(from, 1, Packet::Beat(ballot, Slot(0), 0));
        assert_eq!(ignored(&world, 1), before + 1, "{ballot:?} from {from}");
        assert_eq!(world.log(1).ballot(), follows);
    }
}

/// Two entries are proposed, and nothing else tells B what is chosen: how far it knows it then. Of
/// the first one it may hear nothing.
fn learned_from_an_entry(misses_the_first: bool) -> u64 {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let before = world.log(1).chosen();
    for unheard in [misses_the_first, false] {
        assert!(world.propose(0));
        for _ in 0..10 {
            world.flush_all();
            for (from, to, packet) in std::mem::take(&mut world.net) {
                let news = matches!(packet, Packet::Paxos(Paxos::Chosen { .. }));
                if !(news || unheard && to == 1) {
                    world.deliver(from, to, packet);
                }
            }
        }
    }
    world.log(1).chosen().0 - before.0
}

#[test]
fn an_entry_tells_what_is_chosen_before_it() {
    assert_eq!(learned_from_an_entry(false), 1);
    assert_eq!(learned_from_an_entry(true), 1, "it asks for what it lacks");
}

#[test]
fn a_vote_of_another_ballot_is_not_counted() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    world.isolate(0);
    assert!(world.propose(0));
    hears_itself(&mut world, 0);
    let (led, chosen) = world.log(0).beat().expect("it leads");
    let slot = chosen.next();
    for (ballot, more) in [(ballot(led.round, 1), 0), (led, 1)] {
        world.deliver(1, 0, Packet::Paxos(Paxos::Accepted { ballot, slot }));
        assert_eq!(world.log(0).chosen().0, chosen.0 + more, "{ballot:?}");
    }
}

#[test]
fn who_is_outside_the_view_is_promised_nothing() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    world.time += 10 * world.timing.lease;
    let (ballot, follows) = (
        Ballot {
            round: 9,
            seat: Seat(3),
        },
        world.log(1).ballot(),
    );
    let prepare = Paxos::Prepare {
        ballot,
        above: Slot(0),
    };
    world.deliver(3, 1, Packet::Paxos(prepare));
    assert_eq!(world.log(1).ballot(), follows);
}

/// B has promised C; then the word of A, which led before, that it hands over to B comes.
#[test]
fn a_hand_over_of_a_ballot_that_is_over_makes_nobody_stand() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let led = world.log(0).ballot();
    world.isolate(1);
    world.time += 2 * world.timing.lease;
    let ballot = Ballot {
        round: 9,
        seat: Seat(2),
    };
    let above = Slot(0);
    world.deliver(2, 1, Packet::Paxos(Paxos::Prepare { ballot, above }));
    assert_eq!(world.log(1).ballot(), ballot);
    world.net.clear();
    let release = Paxos::Release {
        ballot: led,
        successor: Some(Seat(1)),
    };
    world.deliver(0, 1, Packet::Paxos(release));
    world.flush_all();
    let stands = |(_, _, packet): &(usize, usize, Packet)| {
        matches!(packet, Packet::Paxos(Paxos::Prepare { .. }))
    };
    assert!(!world.net.iter().any(stands));
    assert_eq!(world.log(1).ballot(), ballot);
}

/// G55: A hands its log over to B and goes. C hears a beat that A sent before later than the word
/// of the hand-over. Whether B leads at once.
fn leads_beside_a_late_beat(planted: Planted) -> bool {
    let mut world = World::new(3, 1, planted);
    world.calm(2_000_000);
    let (ballot, chosen) = world.log(0).beat().expect("it leads");
    world.step(0, |log, cx| log.hand_over(Seat(1), cx));
    world.isolate(0);
    let (to_b, to_c) = std::mem::take(&mut world.net)
        .into_iter()
        .partition::<Vec<_>, _>(|(_, to, _)| *to == 1);
    let late = (0, 2, Packet::Beat(ballot, chosen, 0));
    for (from, to, packet) in to_c.into_iter().chain([late]).chain(to_b) {
        world.deliver(from, to, packet);
    }
    world.settle(true);
    assert_eq!(world.fault, None);
    world.log(1).leadership().is_some()
}

#[test]
fn g55_a_beat_that_a_hand_over_has_overtaken_binds_nobody() {
    assert!(leads_beside_a_late_beat(Planted::NONE));
}

#[test]
fn a_log_is_given_to_nobody_outside_its_view() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    for (to, leads) in [(3, true), (0, true), (1, false)] {
        world.step(0, |log, cx| log.hand_over(Seat(to), cx));
        assert_eq!(world.log(0).leadership().is_some(), leads, "to {to}");
    }
}

#[test]
fn nothing_is_learned_above_the_end_of_a_log() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let next = Epoch::FIRST.next();
    world.step(0, |log, cx| log.propose_stop(stop(next), cx));
    world.calm(1_000_000);
    assert_eq!(world.log(1).stopped(), Some(stop(next)));
    let chosen = world.log(1).chosen();
    let entries = Paxos::Entries {
        from: chosen.next(),
        entries: vec![Entry::Noop],
        chosen: chosen.next(),
    };
    world.deliver(0, 1, Packet::Paxos(entries));
    assert_eq!(world.log(1).chosen(), chosen);
}

/// B has heard that more is chosen, and fetches it of A, which tells it nothing new.
#[test]
fn an_answer_that_tells_nothing_new_is_followed_by_no_question() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    world.isolate(1);
    let (ballot, chosen) = world.log(0).beat().expect("it leads");
    let more = Slot(chosen.0 + 5);
    world.deliver(0, 1, Packet::Beat(ballot, more, 0));
    let fetches = |world: &World| {
        let fetch = |(from, _, packet): &&(usize, usize, Packet)| {
            *from == 1 && matches!(packet, Packet::Paxos(Paxos::Fetch { .. }))
        };
        world.net.iter().filter(fetch).count()
    };
    assert_eq!(fetches(&world), 1);
    let entries = Paxos::Entries {
        from: world.log(1).chosen().next(),
        entries: vec![],
        chosen: more,
    };
    world.deliver(0, 1, Packet::Paxos(entries));
    assert_eq!(fetches(&world), 1);
}

/// What A has sent since it was asked last, of this kind; it arrives nowhere.
fn sent_by_a<T>(world: &mut World, what: impl Fn(&Paxos) -> Option<T>) -> Vec<T> {
    world.flush_all();
    let sent = std::mem::take(&mut world.net).into_iter();
    let of_a = sent.filter_map(|(from, _, packet)| match packet {
        Packet::Paxos(paxos) if from == 0 => what(&paxos),
        _ => None,
    });
    of_a.collect()
}

#[test]
fn an_entry_is_sent_again_when_its_own_time_has_come() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let slots = |world: &mut World| -> Vec<Slot> {
        let mut slots = sent_by_a(world, |paxos| match paxos {
            Paxos::Accept { slot, .. } => Some(*slot),
            _ => None,
        });
        slots.dedup();
        slots
    };
    slots(&mut world);
    let mut first = Vec::new();
    for _ in 0..2 {
        assert!(world.propose(0));
        let sent = slots(&mut world);
        assert_eq!(sent.len(), 1);
        first.extend(sent);
        // No clock is so wrong that it were not this one's time by then, or the other's already.
        world.time += world.timing.retry * 5 / 8;
    }
    world.step(0, |log, cx| log.tick(cx));
    assert_eq!(slots(&mut world), first[..1]);
}

/// A gives its log to B, which does not hear it. When A stands again.
#[test]
fn who_gave_its_log_away_waits_until_its_successor_could_have_led() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    world.step(0, |log, cx| log.hand_over(Seat(1), cx));
    let given = world.now(0).monotonic;
    let asks = |paxos: &Paxos| matches!(paxos, Paxos::Prepare { .. }).then_some(());
    while sent_by_a(&mut world, asks).is_empty() {
        world.time += 1_000;
        world.step(0, |log, cx| log.tick(cx));
        assert!(
            world.now(0).monotonic < given + 60_000_000,
            "it never stands"
        );
    }
    let timing = Timing::default();
    let waited = world.now(0).monotonic - given;
    assert!(waited >= timing.retry + timing.election, "{waited}");
}

/// B cannot hear the others, and stands: its ballot.
fn stands(world: &mut World) -> Ballot {
    world.isolate(1);
    for _ in 0..100 {
        world.pass(world.timing.beat);
        world.flush_all();
        let asks = |(from, _, packet): &(usize, usize, Packet)| match packet {
            Packet::Paxos(Paxos::Prepare { ballot, .. }) if *from == 1 => Some(*ballot),
            _ => None,
        };
        let ballot = world.net.iter().rev().find_map(asks);
        world.net.clear();
        if let Some(ballot) = ballot {
            return ballot;
        }
    }
    panic!("it never stands");
}

#[test]
fn a_candidate_that_is_refused_stands_above_what_refused_it() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let ballot = stands(&mut world);
    let promised = Ballot {
        round: ballot.round + 5,
        seat: Seat(2),
    };
    world.deliver(2, 1, Packet::Paxos(Paxos::Refused { ballot, promised }));
    assert!(stands(&mut world) > promised);
}

/// C promises B, which stands, everything that it has: nothing.
fn promised_by_the_third(world: &mut World, ballot: Ballot, above: Slot, chosen: Slot) {
    let promise = Paxos::Promise {
        ballot,
        above,
        chosen,
        accepted: vec![],
        more: false,
        reserved: Reserved::default(),
    };
    world.deliver(2, 1, Packet::Paxos(promise));
}

/// What one sends to itself comes, and nothing else does.
fn hears_itself(world: &mut World, i: usize) {
    world.flush_all();
    for (from, to, packet) in std::mem::take(&mut world.net) {
        if (from, to) == (i, i) {
            world.deliver(from, to, packet);
        }
    }
}

#[test]
fn a_candidate_asks_itself_again_whose_own_promise_was_lost() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let ballot = stands(&mut world);
    let chosen = world.log(1).chosen();
    promised_by_the_third(&mut world, ballot, chosen, chosen);
    world.flush_all();
    world.net.clear();
    world.pass(world.timing.retry);
    for _ in 0..4 {
        hears_itself(&mut world, 1);
    }
    assert!(world.log(1).leadership().is_some());
}

/// G71: B stands, and is asked by A, which stands with a lower ballot; then C promises B. Whether B
/// leads.
fn leads_beside_a_lower_candidate(planted: Planted) -> bool {
    let mut world = World::new(3, 1, planted);
    world.calm(2_000_000);
    let ballot = stands(&mut world);
    let above = world.log(1).chosen();
    let lower = Ballot {
        seat: Seat(0),
        ..ballot
    };
    let prepare = Paxos::Prepare {
        ballot: lower,
        above,
    };
    world.deliver(0, 1, Packet::Paxos(prepare));
    promised_by_the_third(&mut world, ballot, above, above);
    for _ in 0..4 {
        hears_itself(&mut world, 1);
    }
    world.log(1).leadership().is_some()
}

#[test]
fn g71_a_candidate_does_not_give_way_to_a_lower_one() {
    assert!(leads_beside_a_lower_candidate(Planted::NONE));
    #[cfg(feature = "planted-bugs")]
    {
        let planted = Planted::only(Bug::CandidateGivesWay);
        assert!(!leads_beside_a_lower_candidate(planted));
    }
}

/// F13: whether B leads by the promise of C, which says that so many more slots are chosen than B
/// knows, and reports no vote, for they are truncated.
fn leads_behind_a_truncation(more: u64) -> bool {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let ballot = stands(&mut world);
    let above = world.log(1).chosen();
    promised_by_the_third(&mut world, ballot, above, Slot(above.0 + more));
    for _ in 0..4 {
        hears_itself(&mut world, 1);
    }
    world.log(1).leadership().is_some()
}

#[test]
fn f13_a_candidate_behind_a_truncation_does_not_lead() {
    assert_eq!(
        [0, 1, 5].map(leads_behind_a_truncation),
        [true, false, false]
    );
}

#[test]
fn a_promise_is_taken_up_to_its_horizon() {
    let mut world = World::new(3, 1, Planted::NONE);
    world.calm(2_000_000);
    let ballot = stands(&mut world);
    let (chosen, limits) = (world.log(1).chosen(), &world.limits);
    let top = chosen.0 + 2 * (limits.snapshot_every + 4 * limits.window as u64 + 16);
    for (slot, ignores) in [(top + 1, 1), (top, 0)] {
        let vote = Accepted {
            slot: Slot(slot),
            ballot: Ballot::default(),
            entry: Entry::Noop,
        };
        let promise = Paxos::Promise {
            ballot,
            above: chosen,
            chosen,
            accepted: vec![vote],
            more: true,
            reserved: Reserved::default(),
        };
        let before = ignored(&world, 1);
        world.deliver(2, 1, Packet::Paxos(promise));
        assert_eq!(ignored(&world, 1), before + ignores, "slot {slot} of {top}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn each_of_these_rules_can_be_broken() {
    let drift = Planted::only(Bug::AcceptorIgnoresDrift);
    assert_eq!(bound_for(drift), Timing::default().lease);
    let early = Planted::only(Bug::BeginBeforeCreation);
    assert!(leaves_before_creation(early));
    assert!(!leads_beside_a_late_beat(Planted::only(Bug::LateBeatBinds)));
}
