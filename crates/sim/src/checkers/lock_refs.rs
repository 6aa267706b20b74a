//! Lock refs (MUSIC §III-B): unique on a key, and increasing in the order in which sections were
//! asked for and granted, over all logs of a segment (F2).

use super::Violation;
use crate::history::History;
use fermata_protocol::base::KeyId;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "lock refs";

/// Checks all keys.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    let mut by_key: BTreeMap<&KeyId, Vec<(u64, u32, usize)>> = BTreeMap::new();
    for (i, section) in history.sections.iter().enumerate() {
        for held in &section.held {
            let refs = by_key.entry(&held.key).or_default();
            refs.push((held.lock_ref.0, held.generation, i));
        }
    }
    for (key, refs) in by_key {
        let name = String::from_utf8_lossy(&key.key);
        for (r, generation, i) in &refs {
            for (r2, generation2, j) in &refs {
                let (a, b) = (&history.sections[*i], &history.sections[*j]);
                if i < j && (r, generation) == (r2, generation2) {
                    found.push(Violation::new(
                        NAME,
                        format!("key {name}: ref {r} was granted to two sections"),
                    ));
                }
                // A resumed section keeps its ref and is asked for anew: only first lives count.
                if *generation2 == 0 && a.entered < b.invoked && r2 < r {
                    found.push(Violation::new(
                        NAME,
                        format!("key {name}: ref {r2} was asked for after {r} was granted"),
                    ));
                }
            }
        }
    }
}
