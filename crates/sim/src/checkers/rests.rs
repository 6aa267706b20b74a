//! A node that has done what was due rests: it does not ask to be stepped again at once, on and on,
//! with nothing that it could do. Real time would pass; here none does, so that only counting shows
//! it.

use super::Violation;
use fermata_protocol::base::NodeName;

/// What the checker calls itself in a violation.
pub const NAME: &str = "node rests";

/// Ticks in a row after each of which something is due already: more than a node has reasons for.
const TICKS_MAX: u32 = 100;

/// A node was ticked, for the so many-th time in a row without rest.
pub fn ticked(name: NodeName, restless: u32, found: &mut Vec<Violation>) {
    if restless == TICKS_MAX {
        let detail = format!(
            "node {} wants a tick again after {restless} in a row",
            name.0
        );
        found.push(Violation::new(NAME, detail));
    }
}
