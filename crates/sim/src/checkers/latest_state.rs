//! Latest-State (MUSIC §V): a holder reads the true value, and a holder's reads agree.
//!
//! The true value at the entry of a section follows from the section before it on the key, by lock
//! ref: its last acknowledged put, or one of its puts in flight with a higher tag, or, where it put
//! nothing that was acknowledged, also what it found itself (F17). Beside that only an
//! eventual put that no later writing section has outranked may be found (F6), and a `write` whose
//! outcome nobody knows. An eventual put acts at most once (G16): one that was acknowledged, or
//! found, has acted. Inside a section a get returns what was found, or an own put that is not
//! outranked by an acknowledged own one.

use super::sections::{Chain, Link};
use super::{Violation, show};
use crate::history::{Op, Outcome, Value, What};
use fermata_protocol::base::KeyId;
use std::collections::BTreeMap;

const NAME: &str = "latest-state";
const NOTHING: Value = None;

/// Checks all keys.
pub fn check(chains: &BTreeMap<&KeyId, Chain<'_>>, found: &mut Vec<Violation>) {
    for (key, chain) in chains {
        check_key(key, chain, found);
    }
}

fn check_key(key: &KeyId, chain: &Chain<'_>, found: &mut Vec<Violation>) {
    let name = String::from_utf8_lossy(&key.key);
    let mut candidates: Vec<&Value> = vec![&NOTHING];
    let mut floating: Vec<&Op> = chain.floating.clone();
    for (i, link) in chain.links.iter().enumerate() {
        let before = &chain.links[..i];
        if let Some(view) = link.view {
            let known = candidates.contains(&view) || is_adoptable(chain, before, link, view);
            // A write explains what nothing else does: one whose value was there anyhow may still
            // come.
            let drifted = floating
                .iter()
                .position(|op| !known && op.invoked < link.entered && written(op) == view);
            if let Some(at) = drifted {
                floating.remove(at);
            } else if !known {
                let expected: Vec<String> = candidates.iter().map(|v| show(v)).collect();
                found.push(Violation::new(
                    NAME,
                    format!(
                        "key {name}: section {:?} found {}, expected one of {expected:?}",
                        link.position,
                        show(view)
                    ),
                ));
            }
            candidates = vec![view];
        }
        check_gets(&name, link, found);
        let acknowledged = link.acknowledged();
        if acknowledged > 0 {
            candidates.clear();
        }
        let alive = link.puts.iter().filter(|p| p.place >= acknowledged);
        candidates.extend(alive.map(|p| p.value));
    }
    for (op, value) in &chain.failed {
        check_failed(&name, chain, op, value, found);
    }
}

/// The value that an operation writes.
fn written(op: &Op) -> &Value {
    match &op.what {
        What::Write(_, value) | What::EventualPut(_, value) | What::Put { value, .. } => value,
        _ => &NOTHING,
    }
}

/// Whether `view` is an eventual put that `link` may adopt: made before the grant, and without a
/// section that wrote between its effect and `link`. It has acted when it is acknowledged, and when
/// a section finds it; as long as neither is so, it may act at any time after its call.
fn is_adoptable(chain: &Chain<'_>, before: &[Link<'_>], link: &Link<'_>, view: &Value) -> bool {
    // A delete may be somebody else's: only values are unique.
    let finds = |l: &Link<'_>| view.is_some() && l.view == Some(view);
    let found = before.iter().position(finds);
    let outranked_since = |at: usize| before[at..].iter().any(|l| l.acknowledged() > 0);
    if found.is_some_and(outranked_since) {
        return false;
    }
    chain.eventual.iter().any(|put| {
        let acted = |l: &&Link<'_>| put.succeeded() && put.end() < l.invoked;
        let outranked = before.iter().filter(acted).any(|l| l.acknowledged() > 0);
        written(put) == view && put.invoked < link.entered && !outranked
    })
}

fn check_gets(name: &str, link: &Link<'_>, found: &mut Vec<Violation>) {
    for get in &link.gets {
        let Outcome::Value(value) = &get.outcome else {
            continue;
        };
        let acked = |p: &&super::sections::Put<'_>| p.acknowledged() && p.op.end() <= get.invoked;
        let lowest = link
            .puts
            .iter()
            .filter(acked)
            .map(|p| p.place)
            .max()
            .unwrap_or(0);
        let own = link
            .puts
            .iter()
            .any(|p| p.place >= lowest && p.op.invoked <= get.end() && p.value == value);
        // Where it put before its first get, what it has found is not known.
        let found_at_entry = lowest == 0 && link.view.is_none_or(|view| view == value);
        if !own && !found_at_entry {
            found.push(Violation::new(
                NAME,
                format!(
                    "key {name}: section {:?} found {} at entry and later read {}",
                    link.position,
                    link.view.map_or("?".to_owned(), show),
                    show(value)
                ),
            ));
        }
    }
}

/// A write that was refused for certain must never be seen.
fn check_failed(name: &str, chain: &Chain<'_>, op: &Op, value: &Value, found: &mut Vec<Violation>) {
    if value.is_none() {
        return;
    }
    let seen = |l: &Link<'_>| {
        l.view == Some(value)
            || l.gets
                .iter()
                .any(|g| matches!(&g.outcome, Outcome::Value(v) if v == value))
    };
    if chain.links.iter().any(seen) {
        found.push(Violation::new(
            "outcomes",
            format!(
                "key {name}: {} was refused ({:?}) as having changed nothing, and was found later",
                show(value),
                op.outcome
            ),
        ));
    }
}
