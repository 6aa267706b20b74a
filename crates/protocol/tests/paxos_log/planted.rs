//! Each planted bug of this room must be caught by the random schedules.

use crate::random::schedule;
use fermata_protocol::base::{Bug, Planted};

fn caught(bug: Bug, expected: &str) {
    for seed in 0..3_000 {
        let world = schedule(if seed % 2 == 0 { 3 } else { 5 }, seed, Planted::only(bug));
        if world.fault.is_some_and(|fault| fault.contains(expected)) {
            return;
        }
    }
    panic!("{bug:?} was not caught");
}

#[test]
fn a_noop_over_an_accepted_entry_is_caught() {
    caught(Bug::NoopOverAccepted, "applied");
}

#[test]
fn a_quorum_one_too_small_is_caught() {
    caught(Bug::LogQuorumTooSmall, "applied");
}

#[test]
fn a_forgotten_lease_is_caught() {
    caught(Bug::LeaseForgottenAtRestart, "two read leases");
}

#[test]
fn a_hole_filled_with_a_command_is_caught() {
    caught(Bug::HoleFilledWithCommand, "born");
}

#[test]
fn a_piece_of_a_report_taken_for_the_whole_is_caught() {
    caught(Bug::PieceTakenAsWhole, "applied");
}

#[test]
fn an_outsider_that_skips_a_gap_is_caught() {
    caught(Bug::LearnerSkipsGap, "outsider");
}

#[test]
fn an_outsider_that_obeys_what_is_void_is_caught() {
    caught(Bug::LearnerObeysVoid, "outsider");
}

#[test]
fn a_batch_bounded_by_count_is_caught() {
    let world = crate::bounds::burst(Planted::only(Bug::BatchByCount));
    assert!(
        world
            .fault
            .is_some_and(|fault| fault.contains("longer than a frame"))
    );
}

#[test]
fn a_snapshot_that_is_not_kept_while_it_is_fetched_is_caught() {
    let (_, took) = crate::transfer::comes_back(Planted::only(Bug::SnapshotNotKept));
    assert_eq!(took, None);
}

#[test]
fn entries_that_are_not_kept_while_a_snapshot_is_fetched_are_missed() {
    let (_, took) = crate::transfer::comes_back(Planted::only(Bug::LentEntriesDropped));
    assert_eq!(took, None);
}

#[test]
fn an_own_vote_that_is_not_repeated_is_missed() {
    assert!(!crate::rules::chosen_without_third(Planted::only(
        Bug::OwnVoteNotRepeated
    )));
}

#[test]
fn a_promise_in_one_piece_is_caught() {
    let world = crate::bounds::many_votes(Planted::only(Bug::PromiseInOnePiece));
    assert!(
        world
            .fault
            .is_some_and(|fault| fault.contains("longer than a frame"))
    );
}

#[test]
fn a_queue_that_outlives_its_leadership_is_caught() {
    caught(Bug::QueueOutlivesLeadership, "taken under");
}

#[test]
fn the_named_schedule_catches_a_queue_that_outlives_its_leadership() {
    let planted = Planted::only(Bug::QueueOutlivesLeadership);
    let (world, _) = crate::scenarios::outbids_with_a_queue(planted);
    assert!(
        world
            .fault
            .is_some_and(|fault| fault.contains("taken under"))
    );
}

#[test]
fn the_named_schedule_catches_the_printed_rule_of_convergence() {
    let world = crate::scenarios::chosen_but_seen_once(Planted::only(Bug::NoopOverAccepted));
    assert!(world.fault.is_some());
}
