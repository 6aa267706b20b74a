//! Exclusivity (MUSIC §V): only the lockholder's operations succeed. Once a section has been
//! granted, no operation that an earlier, conflicting section on the key begins afterwards succeeds
//! (F1, corollary; F10 for gets from memory; F19 for sections of several keys).

use super::Violation;
use super::sections::{Chain, Link};
use crate::history::{History, Outcome, SectionIx, What};
use fermata_protocol::base::KeyId;
use fermata_protocol::request::{Code, Mode};
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "exclusivity";
/// The second property, see [`check_ends`].
pub const ENDS: &str = "one section, one end";

/// Checks all keys.
pub fn check(chains: &BTreeMap<&KeyId, Chain<'_>>, found: &mut Vec<Violation>) {
    for (key, chain) in chains {
        let name = String::from_utf8_lossy(&key.key);
        for (i, earlier) in chain.links.iter().enumerate() {
            let later = chain.links[i + 1..].iter();
            let conflicting = later.filter(|l| conflict(earlier, l) && l.section.is_some());
            let Some(first) = conflicting.map(|l| l.entered).min() else {
                continue;
            };
            let gets = earlier.gets.iter().copied();
            let puts = earlier
                .puts
                .iter()
                .filter(|p| p.acknowledged())
                .map(|p| p.op);
            for op in gets.chain(puts).filter(|op| op.invoked > first) {
                found.push(Violation::new(
                    NAME,
                    format!(
                        "key {name}: section {:?} began {:?} at {} and it succeeded, though a \
                         later section had been granted at {first}",
                        earlier.position, op.what, op.invoked
                    ),
                ));
            }
        }
    }
}

/// A section has one end (F19): once an operation on one of its keys was refused because
/// the ref is past, none that begins afterwards succeeds, on whichever key.
pub fn check_ends(history: &History, found: &mut Vec<Violation>) {
    let refused = |o: &Outcome| {
        matches!(
            o,
            Outcome::Failed(Code::NoLongerHolder) | Outcome::Unknown(Code::NoLongerHolder)
        )
    };
    let mut ends: BTreeMap<SectionIx, u64> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| refused(&op.outcome)) {
        if let Some(section) = op.section {
            let end = ends.entry(section).or_insert(op.end());
            *end = op.end().min(*end);
        }
    }
    for op in history.ops.iter().filter(|op| op.succeeded()) {
        let critical = matches!(op.what, What::Get(_) | What::Put { .. });
        let end = op
            .section
            .and_then(|s| ends.get(&s))
            .copied()
            .unwrap_or(u64::MAX);
        if critical && op.invoked > end {
            let detail = format!("{:?} succeeded after its section had lost a key", op.what);
            found.push(Violation::new(ENDS, detail));
        }
    }
}

fn conflict(a: &Link<'_>, b: &Link<'_>) -> bool {
    a.position < b.position && !(a.mode == Mode::Shared && b.mode == Mode::Shared)
}
