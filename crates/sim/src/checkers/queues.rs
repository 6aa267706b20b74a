//! Lock queues as clients see them: linearizable reads from the primary's memory under its lease.
//! A queue read begun after a section was granted does not show that an earlier,
//! exclusive one holds the key, nor one whose leave was agreed.

use super::Violation;
use crate::history::{Heard, History, What};
use fermata_protocol::request::Mode;

/// What the checker calls itself in a violation.
pub const NAME: &str = "queue reads";

/// Checks all queue reads.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    for op in &history.ops {
        let (What::Queue(key), Heard::Queue(entries)) = (&op.what, &op.outcome) else {
            continue;
        };
        let granted = history
            .sections
            .iter()
            .filter(|s| s.mode == Mode::Exclusive && s.entered < op.invoked)
            .flat_map(|s| s.held.iter().filter(|h| h.key == *key))
            .map(|h| h.lock_ref)
            .max();
        let Some(granted) = granted else { continue };
        if let Some(stale) = entries.iter().find(|e| e.lock_ref < granted) {
            found.push(Violation::new(
                NAME,
                format!(
                    "key {}: ref {} is shown in the queue, though {} had been granted before",
                    String::from_utf8_lossy(&key.key),
                    stale.lock_ref.0,
                    granted.0
                ),
            ));
        }
    }
}
