//! Exact schedules, each with the wrong rules that it catches.
//!
//! Every schedule is played against the engine as it is, which has to pass; against the engine with
//! each wrong rule that the table names, which the checker has to catch; and, where the fault is
//! one of the paper's layout, against that.

use crate::clients::Cluster;
use crate::conditions::*;
use crate::paper::{Paper, Refs};
use crate::schedules::*;
use crate::store::SimStore;
use crate::world::{Faults, World};
use fermata_engine::check::{Promise, Violation};
use fermata_engine::{Engine, Service};

use fermata_engine::planted::{Bug, Planted};
use fermata_engine::settings::Settings;
use fermata_protocol::base::{NodeName, SiteId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Which engine is under test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Under {
    Ours(Planted),
    /// The paper's: what a forced release writes to the flag, whether an empty queue's partition is
    /// deleted, how many value columns.
    Paper {
        forced: u64,
        housekeeping: bool,
        columns: u8,
    },
}

/// The paper's engine, word by word.
const LITERAL: Under = Under::Paper {
    forced: 0,
    housekeeping: false,
    columns: 1,
};
/// With a forced release that sets the flag.
const FLAGGED: Under = Under::Paper {
    forced: 1,
    housekeeping: false,
    columns: 1,
};

/// Three nodes of it.
pub(crate) fn cluster(under: Under, world: &Arc<World>) -> Arc<Cluster> {
    let refs = Refs::default();
    let at = Arc::clone(world);
    let build = move |node: usize, incarnation: u64| -> Arc<dyn Service> {
        let store = SimStore {
            world: Arc::clone(&at),
            node,
            incarnation,
            tells: node != 1,
            lost: Arc::default(),
        };
        match under {
            Under::Ours(planted) => {
                let seed = (u128::from(incarnation) << 64) | (0xfe00 + node as u128);
                let name = NodeName(node as u32 + 1);
                let site = SiteId(node as u16);
                let mut settings = Settings::new(name, format!("n{node}"), site, seed);
                let clock = Arc::clone(&at);
                settings.wall = Arc::new(move || clock.wall(node));
                settings.planted = planted;
                let store = Arc::new(store);
                Engine::new(settings, Arc::clone(&store), store)
            }
            Under::Paper {
                forced,
                housekeeping,
                columns,
            } => {
                let refs = Arc::clone(&refs);
                Arc::new(Paper::new(store, refs, forced, housekeeping, columns))
            }
        }
    };
    Cluster::new(Arc::clone(world), Box::new(build))
}

type Schedule = fn(Arc<Cluster>) -> Played;

/// What one schedule found in one engine, and the trace.
fn play(under: Under, schedule: Schedule) -> (Vec<Violation>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
    runtime.block_on(async move {
        let world = World::new(1, Faults::default());
        world.settle_by(Some(false));
        let cluster = cluster(under, &world);
        let mut found = schedule(Arc::clone(&cluster)).await;
        world.heal();
        sleep(Duration::from_secs(1)).await;
        found.extend(cluster.history.wrong());
        (found, world.trace())
    })
}

fn text(found: &[Violation], trace: &[String]) -> String {
    let found: Vec<String> = found
        .iter()
        .map(|v| format!("{:?}: {}", v.promise, v.sentence))
        .collect();
    format!("{}\n{}", found.join("\n"), trace.join("\n"))
}

fn passes(schedule: Schedule) {
    let (found, trace) = play(Under::Ours(Planted::NONE), schedule);
    assert!(found.is_empty(), "{}", text(&found, &trace));
}

fn caught(under: Under, schedule: Schedule, by: &[Promise]) {
    let (found, trace) = play(under, schedule);
    let hit = found.iter().any(|v| by.contains(&v.promise));
    assert!(
        hit,
        "{under:?} was not caught by {by:?}\n{}",
        text(&found, &trace)
    );
}

/// Every schedule, the wrong rules that it catches, the paper's layouts that it breaks, and who
/// says so.
type Line = (
    &'static str,
    Schedule,
    &'static [Bug],
    &'static [Under],
    &'static [Promise],
);

const TABLE: &[Line] = &[
    (
        "F1, M6",
        false_suspicion,
        &[Bug::VerifyOff],
        &[LITERAL, FLAGGED],
        &[Promise::Acknowledged],
    ),
    (
        "M1",
        forced_over_a_partial_put,
        &[Bug::FlagForgotten],
        &[LITERAL],
        &[Promise::LatestState],
    ),
    (
        "M5, F5",
        dirty_leave,
        &[Bug::DirtyAsClean],
        &[LITERAL, FLAGGED],
        &[Promise::LatestState],
    ),
    (
        "M2",
        coordinators_clocks,
        &[Bug::ClockStamps],
        &[LITERAL, FLAGGED],
        &[Promise::LatestState],
    ),
    (
        "M3, F4",
        two_synchs,
        &[Bug::SynchWithoutAttempt, Bug::OvertakenSettles],
        &[FLAGGED],
        &[Promise::LatestState],
    ),
    (
        "M4",
        wall_clock_put,
        &[],
        &[LITERAL, FLAGGED],
        &[Promise::LatestState],
    ),
    (
        "M7, F11.1",
        peek_of_no_prefix,
        &[],
        &[LITERAL, FLAGGED],
        &[Promise::Exclusivity],
    ),
    (
        "M8, F11.2",
        late_sign_of_life,
        &[],
        &[LITERAL, FLAGGED],
        &[Promise::Exclusivity],
    ),
    (
        "M9",
        repeated_enter,
        &[],
        &[LITERAL, FLAGGED],
        &[Promise::LatestState],
    ),
    (
        "M10, F11.3",
        idle_between,
        &[],
        &[Under::Paper {
            forced: 0,
            housekeeping: true,
            columns: 1,
        }],
        &[Promise::Exclusivity],
    ),
    (
        "M11, F11.8",
        late_column,
        &[],
        &[Under::Paper {
            forced: 1,
            housekeeping: false,
            columns: 2,
        }],
        &[Promise::LatestState],
    ),
    (
        "F3",
        section_before_the_peek,
        &[Bug::ValueBeforePeek],
        &[],
        &[Promise::Acknowledged],
    ),
    (
        "F11.1",
        grant_after_a_pause,
        &[Bug::GrantByPeek],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.1, within one node",
        grant_long_in_coming,
        &[Bug::OldDecision],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.1, a free key",
        first_read_long_in_coming,
        &[Bug::FirstReadOld],
        &[],
        &[Promise::LatestState],
    ),
    (
        "F11.7",
        resumption_of_unknown_outcome,
        &[Bug::UnknownAsRefused],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "G24",
        adoption_is_no_write,
        &[Bug::AdoptionOutranks],
        &[],
        &[Promise::Eventual],
    ),
    (
        "G5",
        second_grant,
        &[Bug::SecondAdoption],
        &[],
        &[Promise::LatestState],
    ),
    ("G5", adoption_overtaken, &[], &[], &[]),
    (
        "F19, G9",
        two_readers,
        &[Bug::SharedUnsettled],
        &[],
        &[Promise::LatestState, Promise::ToldPast],
    ),
    (
        "F10",
        renewals_unseen,
        &[Bug::ExpireUnconditional],
        &[],
        &[Promise::ToldPast],
    ),
    ("F5, F17", clean_by_a_later_put, &[], &[], &[]),
    (
        "F4, two nodes",
        settled_after_the_read,
        &[Bug::SettledTooLate],
        &[],
        &[Promise::LatestState],
    ),
    ("G6", broken_connection, &[], &[], &[]),
    (
        "F6, clocks",
        clock_ahead,
        &[Bug::StampsByWall],
        &[],
        &[Promise::Eventual],
    ),
    (
        "G15",
        last_put_repeated,
        &[Bug::LeftAnyhow],
        &[],
        &[Promise::Acknowledged],
    ),
    (
        "F16, two sessions",
        taken_over_unanswered,
        &[Bug::EntersAnothers],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "G14",
        resumed_beside_a_lease,
        &[Bug::ResumeBesideLease],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.1, two keys",
        second_key_long_in_coming,
        &[Bug::FirstKeyOld],
        &[],
        &[Promise::Exclusivity],
    ),
    ("slow reads", slow_reads, &[], &[], &[]),
    ("F11.7, the version raised", version_raised, &[], &[], &[]),
    ("G9, the first gone", third_reader, &[], &[], &[]),
    ("G5, of readers", reader_repeats, &[], &[], &[]),
    (
        "ended after a decision",
        ended_after_a_decision,
        &[Bug::DecisionAlone],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "ended after its own update",
        ended_after_its_own_update,
        &[],
        &[],
        &[],
    ),
    ("two at once", two_at_once, &[], &[], &[]),
    ("G5, one node", second_grant_at_one_node, &[], &[], &[]),
    ("G13", wait_over_late, &[], &[], &[]),
    ("first key given back", first_key_given_back, &[], &[], &[]),
    ("renewed elsewhere", renewed_elsewhere, &[], &[], &[]),
    ("who does not hold", who_does_not_hold, &[], &[], &[]),
    ("read after the leave", read_after_the_leave, &[], &[], &[]),
    ("last put done before", last_put_done_before, &[], &[], &[]),
    ("F10, a release", released_while_leased, &[], &[], &[]),
    ("G19", write_repeated, &[], &[], &[]),
    ("put while locked", put_while_locked, &[], &[], &[]),
    (
        "granted after an error",
        granted_after_an_error,
        &[],
        &[],
        &[],
    ),
    (
        "polled behind the dead",
        polled_behind_the_dead,
        &[],
        &[],
        &[],
    ),
    (
        "looked at behind the dead",
        looked_at_behind_the_dead,
        &[Bug::QueueUnwatched],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "given up while it waits",
        given_up_while_it_waits,
        &[Bug::AbandonedStays],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "hangs up while it waits",
        hangs_up_while_it_waits,
        &[Bug::GoneCallerStays],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "resumed under watch",
        resumed_under_watch,
        &[Bug::ResumedUnrenewed],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "taken over while it waits",
        taken_over_while_it_waits,
        &[],
        &[],
        &[],
    ),
    (
        "joins a refused swap",
        joins_a_refused_swap,
        &[Bug::JoinedUndecided],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "seen again as it was",
        seen_again_as_it_was,
        &[Bug::OlderReplaces],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.1, a swap",
        late_word_of_a_leave,
        &[Bug::DecidedLate],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.1, a refused swap",
        late_word_of_a_refusal,
        &[Bug::DecidedLate],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F11.7, two renewals",
        renewals_of_unknown_outcome,
        &[Bug::PeekAfterUnknown],
        &[],
        &[Promise::ToldPast],
    ),
    (
        "F10, let in meanwhile",
        let_in_while_released,
        &[Bug::ReleaseEndsHolder],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "F16, a get",
        get_beside_a_resumption,
        &[Bug::LaterGenerationRead],
        &[],
        &[Promise::Exclusivity],
    ),
    (
        "G49",
        anothers_section,
        &[Bug::AnybodyActs],
        &[],
        &[Promise::Exclusivity],
    ),
];

#[test]
fn the_engine_passes_every_schedule() {
    let only = std::env::var("SIM_SCHEDULE").unwrap_or_default();
    for (name, schedule, ..) in TABLE {
        if name.contains(&only) {
            println!("{name}");
            passes(*schedule);
        }
    }
}

#[test]
fn every_wrong_rule_is_caught() {
    let mut missed: Vec<Bug> = Bug::ALL.to_vec();
    for (name, schedule, bugs, _, checks) in TABLE {
        for bug in *bugs {
            println!("{name}: {bug:?}");
            caught(Under::Ours(Planted::only(*bug)), *schedule, checks);
            missed.retain(|b| b != bug);
        }
    }
    assert!(missed.is_empty(), "no schedule is for {missed:?}");
}

#[test]
fn the_papers_layout_breaks() {
    for (name, schedule, _, papers, checks) in TABLE {
        for paper in *papers {
            println!("{name}: {paper:?}");
            caught(*paper, *schedule, checks);
        }
    }
}

#[test]
fn a_schedule_replays_exactly() {
    let under = || Under::Ours(Planted::NONE);
    for (name, schedule, ..) in TABLE {
        let first = play(under(), *schedule).1;
        assert_eq!(first, play(under(), *schedule).1, "{name}");
    }
}
