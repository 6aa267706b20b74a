//! Primaries move in random runs, too, so that everything else is tested beside their moves.

use fermata_protocol::base::Bug;
use fermata_sim::{Options, planted, run, scenarios};

/// Seeds; the test `seeds` runs more.
const SEEDS: u64 = 40;

#[test]
fn primaries_move_in_random_runs() {
    let options = Options {
        seed: Some(0),
        seeds: SEEDS,
        ..Options::default()
    };
    let report = run(options).expect("seeds need no name");
    println!("{} moves in {} seeds", report.moves, report.runs);
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert!(report.moves >= SEEDS, "{}", report.moves);
}

#[test]
fn a_primary_follows_its_user_once() {
    for name in ["placement-user", "placement-even", "placement-site-dies"] {
        let scenario = scenarios::named(name).expect("a scenario of that name");
        let run = scenarios::run(scenario, None, false);
        println!("{name}: {} moves", run.moves);
        assert!(run.violations.is_empty(), "{name}: {:?}", run.violations);
    }
}

/// With each turn followed there would be as many moves as turns.
#[test]
fn sites_that_take_long_turns_move_a_primary_ever_more_rarely() {
    let mut stage = scenarios::Stage::new(None, false, false);
    let users = [stage.client(&[1]), stage.client(&[3])];
    let moves = |stage: &scenarios::Stage| -> u64 {
        let nodes = stage.world.machines.values().filter_map(|m| m.node());
        nodes.map(|node| node.moves()).sum()
    };
    let mut after = Vec::new();
    for turn in 0..24 {
        let until = stage.world.now + 40_000_000;
        while stage.world.now < until {
            stage.section(users[turn % 2], "v");
            stage.pass(500);
        }
        after.push(moves(&stage));
    }
    println!("moves after each turn: {after:?}");
    assert!((4..=6).contains(&after[6]), "{after:?}");
    assert!(after[23] <= 11 && after[23] > after[11], "{after:?}");
    let run = stage.end();
    assert!(run.violations.is_empty(), "{:?}", run.violations);
}

#[test]
fn a_primary_that_forgets_who_uses_it_is_seen() {
    let catch = planted::spring(Bug::UsageForgotten).expect("it is seen");
    assert_eq!(catch.by, "placement-user");
}
