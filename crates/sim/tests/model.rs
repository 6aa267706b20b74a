//! What is mapped to the model's events, as far as it can be judged without the model's text: that
//! of is for `cargo xtask formal traces`.

use fermata_protocol::base::Bug;
use fermata_sim::model::{state::Event, trace};
use fermata_sim::random::{self, Run};
use fermata_sim::scenarios;
use std::collections::BTreeSet;

/// Seeds; `cargo xtask formal traces` maps more.
const SEEDS: u64 = 60;

/// What the mapping of all keys says of a run: the traces, and what is wrong.
fn mapped(run: &Run) -> (String, Vec<String>) {
    let observer = run.observer.as_ref().expect("the run was observed");
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for key in observer.keys.keys() {
        let traced = trace("run", key, observer);
        text.push_str(&traced.text);
        wrong.extend(traced.wrong);
    }
    (text, wrong)
}

/// The names of the events in a text.
fn events(text: &str) -> BTreeSet<&str> {
    let steps = text.lines().filter_map(|line| line.strip_prefix("step "));
    steps.filter_map(|step| step.split(' ').next()).collect()
}

fn scenario(name: &str, bug: Option<Bug>) -> Run {
    let scenario = scenarios::named(name).expect("a scenario of that name");
    scenarios::observed(scenario, bug)
}

#[test]
fn every_event_occurs_and_nothing_disagrees() {
    let mut text = String::new();
    for seed in 0..SEEDS {
        let run = random::observed(seed, None, (seed % 2 == 0).then_some(0), false);
        let (mapped, wrong) = mapped(&run);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        text.push_str(&mapped);
    }
    let seen = events(&text);
    let missing = Event::NAMES.iter().filter(|name| !seen.contains(*name));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// Where nothing of the model can be named, the mapping itself says so.
#[test]
fn a_flag_that_nobody_synchs_is_not_mapped() {
    let right = scenario("f18-idle-key", None);
    assert_eq!(mapped(&right).1, Vec::<String>::new());
    let wrong = scenario("f18-idle-key", Some(Bug::IdleKeyNotSynched));
    let (_, wrong) = mapped(&wrong);
    assert!(
        wrong.iter().any(|w| w.contains("without a synch")),
        "{wrong:?}"
    );
}

/// An observed run is the same run.
#[test]
fn to_watch_changes_nothing() {
    let plain = random::run(3, None, false);
    let watched = random::observed(3, None, None, false);
    assert_eq!(
        (plain.events, plain.virtual_time),
        (watched.events, watched.virtual_time)
    );
}
