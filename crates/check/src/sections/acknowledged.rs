//! No acknowledged put is ever lost, even that of a holder wrongly taken for dead (F1):
//! what any later section finds at entry is that put or one with a higher tag.

use super::chains::{Chain, Rank};
use super::history::{Heard, Value};
use super::{Found, Promise, show};
use std::collections::BTreeMap;

/// Checks one key.
pub(super) fn check(chain: &Chain<'_>, found: &mut Found) {
    let mut ranks: BTreeMap<&Value, Rank> = BTreeMap::new();
    for link in &chain.links {
        for put in &link.puts {
            // Values are unique but for deletes, of which the highest counts.
            let rank = link.rank(put.number);
            let known = ranks.entry(put.value).or_insert(rank);
            *known = rank.max(*known);
        }
    }
    // Values of eventual puts and of writes without a known ref have no rank and are left to the
    // judge of Latest-State.
    let unranked = |value: &Value| {
        let mut others = chain.eventual.iter().chain(&chain.floating);
        others.any(|op| op.what.written() == Some(value))
    };
    let rank_of = |value: &Value| ranks.get(value).copied().unwrap_or_default();
    let mut highest: Option<(Rank, &Value)> = None;
    for link in &chain.links {
        if let (Some(view), Some((rank, lost))) = (link.view(), highest)
            && !unranked(view)
            && rank_of(view) < rank
        {
            let text = format!(
                "{} was acknowledged in section {:?}, and section {:?} found {}",
                show(lost),
                (rank.0, rank.1),
                link.life,
                show(view)
            );
            found.add(Promise::Acknowledged, text);
        }
        for put in link.puts.iter().filter(|put| put.op.succeeded()) {
            highest = highest.max(Some((link.rank(put.number), put.value)));
        }
    }
    // A linearizable read sees every put that was acknowledged before it was called.
    for read in &chain.reads {
        let Heard::Value(value) = &read.outcome else {
            continue;
        };
        let puts = chain
            .links
            .iter()
            .flat_map(|l| l.puts.iter().map(move |p| (l, p)));
        let mut lost = puts.filter(|(link, put)| {
            let before = put.op.succeeded() && put.op.end() < read.invoked;
            before && link.rank(put.number) > rank_of(value)
        });
        if let Some((_, put)) = lost.find(|_| !unranked(value)) {
            let text = format!(
                "{} was acknowledged before a read that returned {}",
                show(put.value),
                show(value)
            );
            found.add(Promise::Acknowledged, text);
        }
    }
}
