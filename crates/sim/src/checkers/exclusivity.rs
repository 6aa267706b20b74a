//! Exclusivity (MUSIC §V): only the lockholder's operations succeed. Once a section has been granted,
//! no operation that an earlier, conflicting section on the key begins afterwards succeeds
//! (PROTOCOL F1, corollary; F10 for gets from memory; F19 for sections of several keys).

use super::Violation;
use super::sections::{Chain, Link};
use fermata_protocol::base::KeyId;
use fermata_protocol::request::Mode;
use std::collections::BTreeMap;

const NAME: &str = "exclusivity";

/// Checks all keys.
pub fn check(chains: &BTreeMap<&KeyId, Chain<'_>>, found: &mut Vec<Violation>) {
    for (key, chain) in chains {
        let name = String::from_utf8_lossy(&key.key);
        for (i, earlier) in chain.links.iter().enumerate() {
            let later = chain.links[i + 1..].iter();
            let conflicting = later.filter(|l| conflict(earlier, l) && l.section.is_some());
            let Some(first) = conflicting.map(|l| l.entered).min() else { continue };
            let gets = earlier.gets.iter().copied();
            let puts = earlier.puts.iter().filter(|p| p.acknowledged()).map(|p| p.op);
            for op in gets.chain(puts).filter(|op| op.invoked > first) {
                found.push(Violation::new(
                    NAME,
                    format!(
                        "key {name}: section {:?} began {:?} at {} and it succeeded, though a later \
                         section had been granted at {first}",
                        earlier.position, op.what, op.invoked
                    ),
                ));
            }
        }
    }
}

fn conflict(a: &Link<'_>, b: &Link<'_>) -> bool {
    a.position < b.position && !(a.mode == Mode::Shared && b.mode == Mode::Shared)
}
