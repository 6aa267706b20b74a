//! With the right rules no scenario violates anything.

use fermata_sim::scenarios;

#[test]
fn every_scenario_holds() {
    for scenario in scenarios::all() {
        let run = scenarios::run(scenario, None, false);
        assert!(
            run.violations.is_empty(),
            "{}: {:?}",
            scenario.name,
            run.violations
        );
    }
}

#[test]
fn what_is_outside_of_the_fault_model_is_seen() {
    for scenario in scenarios::LIMITS {
        let run = scenarios::run(scenario, None, false);
        let first = run.violations.first().map(|v| v.property);
        assert_eq!(first, Some("linearizability"), "{}", scenario.name);
    }
}
