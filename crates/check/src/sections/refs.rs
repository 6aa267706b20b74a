//! Lock refs (MUSIC §III-B, §IV-A): one section has one, and they increase in the order in which
//! sections were asked for and told of, over all logs of a segment (F2).

use super::chains::Chain;
use super::{Found, Promise};

/// Checks one key.
pub(super) fn check(chain: &Chain<'_>, found: &mut Found) {
    for (i, lower) in chain.links.iter().enumerate() {
        for higher in &chain.links[i + 1..] {
            let (r, other) = (lower.life.0, higher.life.0);
            if lower.life == higher.life && lower.entered.max(higher.entered) < u64::MAX {
                found.add(
                    Promise::Refs,
                    format!("ref {r} was granted to two sections"),
                );
            }
            if r < other && lower.request == higher.request {
                found.add(
                    Promise::Refs,
                    format!("one enter has the refs {r} and {other}"),
                );
            }
            // A resumed section keeps its ref.
            if r < other && lower.life.1 == 0 && higher.told < lower.sent {
                let text = format!("ref {r} was asked for after {other} was told");
                found.add(Promise::Refs, text);
            }
        }
    }
}
