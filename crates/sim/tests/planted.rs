//! Every wrong rule is caught where the table says, within the stated number of seeds.

use fermata_protocol::base::Bug;
use fermata_sim::planted::{name, spring};

#[test]
fn every_planted_bug_is_caught() {
    let mut escaped = Vec::new();
    for bug in Bug::ALL {
        match spring(bug) {
            Some(how) => println!(
                "{:32} {}",
                name(bug),
                how.chars().take(100).collect::<String>()
            ),
            None => escaped.push(name(bug)),
        }
    }
    assert!(escaped.is_empty(), "not caught: {escaped:?}");
}
