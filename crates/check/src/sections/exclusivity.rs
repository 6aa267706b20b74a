//! Exclusivity (MUSIC §V): only the lockholder's operations succeed. Once a section has been
//! granted, nothing that an earlier, conflicting section on the key begins afterwards succeeds, be
//! it a put (F1, corollary), a get from memory (F10) or its own grant; and none is granted before
//! that section may have ended, nor beside the lease of a generation that it replaces (G14).

use super::chains::{Chain, Link};
use super::ends::Ends;
use super::history::{History, SectionIx, What};
use super::{Found, Promise};
use std::collections::BTreeMap;

/// Checks one key.
pub(super) fn check(chain: &Chain<'_>, ends: &Ends, found: &mut Found) {
    for (i, earlier) in chain.links.iter().enumerate() {
        for later in chain.links[i + 1..].iter().filter(|l| l.section.is_some()) {
            two(earlier, later, ends, found);
        }
        let later = chain.links[i + 1..].iter();
        let conflicting = later.filter(|l| earlier.excludes(l) && l.section.is_some());
        let Some(first) = conflicting.map(|l| l.entered).min() else {
            continue;
        };
        let gets = earlier.reads.iter().filter_map(|read| read.get);
        let puts = earlier.puts.iter().map(|put| put.op);
        let grants = earlier.grants.iter().copied();
        let all = gets.chain(puts).chain(grants);
        for op in all.filter(|op| op.succeeded() && op.invoked > first) {
            let text = format!(
                "section {:?} began {:?} at {} and it succeeded, though a later section had been \
                 granted at {first}",
                earlier.life, op.what, op.invoked
            );
            found.add(Promise::Exclusivity, text);
        }
    }
}

fn two(earlier: &Link<'_>, later: &Link<'_>, ends: &Ends, found: &mut Found) {
    if later.entered == u64::MAX {
        return;
    }
    let over = ends.may_have_ended(earlier.life, later.entered);
    if earlier.excludes(later) && earlier.entered < later.entered && !over {
        let text = format!(
            "section {:?} was granted while {:?} held, alive and not released",
            later.life, earlier.life
        );
        found.add(Promise::Exclusivity, text);
    }
    // Whoever was the holder before may read from memory as long as its lease lasts.
    let replaces = earlier.life.0 == later.life.0 && earlier.life.1 < later.life.1;
    if replaces && earlier.lease > Some(later.entered) {
        let text = format!(
            "section {:?} was granted beside the lease of {:?}",
            later.life, earlier.life
        );
        found.add(Promise::Exclusivity, text);
    }
    let owners = (earlier.request.0, later.request.0);
    if earlier.life == later.life && owners.0 != owners.1 && earlier.entered < u64::MAX {
        let text = format!("section {:?} was granted to two sessions", later.life);
        found.add(Promise::Exclusivity, text);
    }
}

/// A section has one end (F19): once an operation on one of its keys was refused because
/// the ref is past, none that begins afterwards succeeds, on whichever key.
pub(super) fn check_ends(history: &History, found: &mut Found) {
    let mut ends: BTreeMap<SectionIx, u64> = BTreeMap::new();
    for op in history.ops.iter().filter(|op| op.told_past()) {
        if let Some(section) = op.section {
            let end = ends.entry(section).or_insert(op.end());
            *end = op.end().min(*end);
        }
    }
    for op in history.ops.iter().filter(|op| op.succeeded()) {
        let end = op.section.and_then(|section| ends.get(&section));
        if let (What::Get(key) | What::Put { key, .. }, Some(end)) = (&op.what, end)
            && op.invoked > *end
        {
            found.key = super::show_key(key);
            let text = format!("{:?} succeeded after its section had lost a key", op.what);
            found.add(Promise::OneEnd, text);
        }
    }
}
