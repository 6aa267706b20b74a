//! With the right rules no scenario violates anything.

use fermata_sim::scenarios;

#[test]
fn every_scenario_holds() {
    for scenario in scenarios::ALL {
        let run = scenarios::run(scenario, None, false);
        assert!(
            run.violations.is_empty(),
            "{}: {:?}",
            scenario.name,
            run.violations
        );
    }
}
