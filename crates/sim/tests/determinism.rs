//! The same seed gives the same run, byte for byte.

use fermata_sim::{random, scenarios};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 41, 592] {
        let once = random::run(seed, None, true)
            .trace
            .expect("the text was asked for");
        let again = random::run(seed, None, true)
            .trace
            .expect("the text was asked for");
        assert!(once == again, "seed {seed} did not repeat itself");
        assert!(
            once.lines().count() > 1_000,
            "seed {seed} did next to nothing"
        );
    }
}

#[test]
fn a_run_without_text_is_the_same_run() {
    for seed in [5, 77] {
        let silent = random::run(seed, None, false);
        let told = random::run(seed, None, true);
        assert_eq!(silent.events, told.events);
        assert_eq!(silent.virtual_time, told.virtual_time);
    }
}

#[test]
fn scenarios_repeat_themselves() {
    for scenario in scenarios::all() {
        let once = scenarios::run(scenario, None, true).trace;
        assert!(
            once == scenarios::run(scenario, None, true).trace,
            "{}",
            scenario.name
        );
    }
}
