//! A section ends in its longest time, whoever leads by then (MUSIC's T; G31): no put of it is
//! acknowledged long after. A primary that dies says nothing of how long its sections have lasted,
//! so that this is promised where primaries change by hand-over alone.

use super::Violation;
use crate::history::{History, SectionIx};
use crate::show;
use fermata_protocol::base::{KeyId, LockRef};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "sections end in time";

/// What may pass beside, microseconds: the last lease runs out, which is two seconds for the
/// simulator's clients, a hand-over counts for nobody, and coordinators learn of the end.
const SLACK: u64 = 3_000_000;

/// Checks a history, if it is calm. Clocks are wrong by a tenth at most.
pub fn check(history: &History, found: &mut Vec<Violation>) {
    if !history.calm {
        return;
    }
    let mut last: BTreeMap<SectionIx, u64> = BTreeMap::new();
    for op in history
        .ops
        .iter()
        .filter(|op| op.is_put() && op.succeeded())
    {
        if let Some(section) = op.section {
            let at = last.entry(section).or_default();
            *at = op.invoked.max(*at);
        }
    }
    // One that is resumed is the same section, which began when it was entered first (G58).
    let mut begun: BTreeMap<(&KeyId, LockRef), u64> = BTreeMap::new();
    for section in &history.sections {
        let held = &section.held[0];
        let name = (&held.key, held.lock_ref);
        begun.entry(name).or_insert(section.entered);
    }
    for (index, put) in last {
        let section = &history.sections[index.0];
        let keyspaces = section.held.iter().map(|held| held.key.keyspace);
        let longest = keyspaces.map(|id| history.catalogue.keyspace(id).section_max);
        let Some(longest) = longest.min() else {
            continue;
        };
        let held = &section.held[0];
        let lasted = put.saturating_sub(begun[&(&held.key, held.lock_ref)]);
        if lasted > longest + longest / 7 + SLACK {
            let detail = format!(
                "key {}: client {} has put {lasted} us after ref {} was granted first, and its \
                 sections last {longest} us",
                show::key(&held.key),
                section.client.0,
                held.lock_ref.0
            );
            found.push(Violation::new(NAME, detail));
        }
    }
}
