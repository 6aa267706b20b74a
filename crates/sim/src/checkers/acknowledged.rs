//! No acknowledged put is ever lost, even that of a holder wrongly taken for dead (F1):
//! what any later section finds at entry is that put or one with a higher tag.

use super::sections::{Chain, Rank};
use super::{Violation, show};
use crate::history::{Outcome, Value, What};
use fermata_protocol::base::KeyId;
use std::collections::BTreeMap;

/// What the checker calls itself in a violation.
pub const NAME: &str = "acknowledged put lost";

/// Checks all keys.
pub fn check(chains: &BTreeMap<&KeyId, Chain<'_>>, found: &mut Vec<Violation>) {
    for (key, chain) in chains {
        check_key(key, chain, found);
    }
}

fn check_key(key: &KeyId, chain: &Chain<'_>, found: &mut Vec<Violation>) {
    let name = String::from_utf8_lossy(&key.key);
    let mut ranks: BTreeMap<&Value, Rank> = BTreeMap::new();
    for link in &chain.links {
        for put in &link.puts {
            // Values are unique but for deletes, of which the highest counts.
            let rank = link.rank(put.place);
            let known = ranks.entry(put.value).or_insert(rank);
            *known = rank.max(*known);
        }
    }
    // Values of eventual puts and of writes without a known ref have no rank and are left to the
    // Latest-State checker.
    let unranked = |value: &Value| {
        let wrote = |op: &&crate::history::Op| match &op.what {
            What::EventualPut(_, v) | What::Write(_, v) => v == value,
            _ => false,
        };
        chain.eventual.iter().chain(&chain.floating).any(wrote)
    };
    let mut highest: Option<(Rank, &Value)> = None;
    for link in &chain.links {
        if let (Some(view), Some((rank, lost))) = (link.view, highest)
            && !unranked(view)
            && ranks.get(view).copied().unwrap_or((0, 0, 0)) < rank
        {
            found.push(Violation::new(
                NAME,
                format!(
                    "key {name}: {} was acknowledged in section {:?}, and section {:?} found {}",
                    show(lost),
                    (rank.0, rank.1),
                    link.position,
                    show(view)
                ),
            ));
        }
        for put in link.puts.iter().filter(|p| p.acknowledged()) {
            let rank = link.rank(put.place);
            if highest.is_none_or(|(h, _)| rank > h) {
                highest = Some((rank, put.value));
            }
        }
    }
    check_reads(&name, chain, &ranks, &unranked, found);
}

/// A linearizable read of a section key sees every put acknowledged before it was called.
fn check_reads(
    name: &str,
    chain: &Chain<'_>,
    ranks: &BTreeMap<&Value, Rank>,
    unranked: &dyn Fn(&Value) -> bool,
    found: &mut Vec<Violation>,
) {
    for read in &chain.reads {
        let Outcome::Value(value) = &read.outcome else {
            continue;
        };
        if unranked(value) {
            continue;
        }
        let seen = ranks.get(value).copied().unwrap_or((0, 0, 0));
        for link in &chain.links {
            for put in link.puts.iter().filter(|p| p.acknowledged()) {
                if put.op.end() < read.invoked && link.rank(put.place) > seen {
                    found.push(Violation::new(
                        NAME,
                        format!(
                            "key {name}: {} was acknowledged before a read that returned {}",
                            show(put.value),
                            show(value)
                        ),
                    ));
                    return;
                }
            }
        }
    }
}
