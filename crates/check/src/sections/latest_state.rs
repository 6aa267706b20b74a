//! Latest-State (MUSIC §V): a holder reads the true value, and a holder's reads agree.
//!
//! The true value at the entry of a section follows from the section before it on the key, by lock
//! ref: its last acknowledged put, or one of its puts in flight with a higher tag, or, where it put
//! nothing that was acknowledged, also what it found itself (F17). Beside that only an
//! eventual put that no later writing section has outranked may be found (F6), and a `write` whose
//! outcome nobody knows. An eventual put acts at most once (G16): one that was acknowledged, or
//! found, has acted. Inside a section a get returns what was found, or an own put that is not
//! outranked by an acknowledged own one, nor, while it held for certain, by one that was shown.

use super::chains::{Chain, Link, Read};
use super::ends::Ends;
use super::history::{Heard, Op, Value};
use super::{Found, Promise, show};

const NOTHING: Value = None;

/// Checks one key.
pub(super) fn check(chain: &Chain<'_>, ends: &Ends, found: &mut Found) {
    let mut state = State {
        may_be: vec![&NOTHING],
        floating: chain.floating.clone(),
    };
    for place in 0..chain.links.len() {
        state.section(chain, place, ends, found);
    }
    for op in &chain.failed {
        check_failed(chain, op, found);
    }
}

struct State<'a> {
    /// What the true value may be.
    may_be: Vec<&'a Value>,
    /// `write`s without a known ref that nothing has been found of.
    floating: Vec<&'a Op>,
}

impl<'a> State<'a> {
    fn section(&mut self, chain: &Chain<'a>, place: usize, ends: &Ends, found: &mut Found) {
        let link = &chain.links[place];
        // Own puts that were shown, and when.
        let mut shown: Vec<(u64, u64)> = Vec::new();
        let mut first = true;
        for read in &link.reads {
            let least = least(link, read, &shown);
            let mut own = link.puts.iter().filter(|put| put.number >= least);
            let own = own.find(|put| put.op.invoked <= read.end && put.value == read.value);
            if let Some(own) = own {
                // It is the true value from here on if the section held the key all the while.
                if !ends.may_have_ended(link.life, read.end) {
                    shown.push((read.end, own.number));
                }
                continue;
            }
            let known = least == 0
                && (self.may_be.contains(&read.value)
                    || (first && self.came_otherwise(chain, place, read)));
            if !known {
                let due: Vec<String> = match least {
                    0 => self.may_be.iter().map(|value| show(value)).collect(),
                    number => vec![format!("its own put {number} or a later one")],
                };
                let text = format!(
                    "section {:?} found {}, expected one of {due:?}",
                    link.life,
                    show(read.value)
                );
                found.add(Promise::LatestState, text);
            }
            self.may_be = vec![read.value];
            first = false;
        }
        let most = shown.iter().map(|(_, number)| *number).max();
        let least = link.acknowledged().max(most.unwrap_or(0));
        if least > 0 {
            self.may_be.clear();
        }
        let alive = link.puts.iter().filter(|put| put.number >= least);
        self.may_be.extend(alive.map(|put| put.value));
    }

    /// Whether what a section finds is of no section: an eventual put, or a `write` that explains
    /// what nothing else does: one whose value was there anyhow may still come.
    fn came_otherwise(&mut self, chain: &Chain<'a>, place: usize, read: &Read<'_>) -> bool {
        if is_adoptable(chain, place, read) {
            return true;
        }
        let writes = |op: &&Op| op.invoked < read.end && op.what.written() == Some(read.value);
        let drifted = self.floating.iter().position(writes);
        drifted.map(|at| self.floating.remove(at)).is_some()
    }
}

/// The lowest number of an own put that a read may show; 0: any, and what was there before.
fn least(link: &Link<'_>, read: &Read<'_>, shown: &[(u64, u64)]) -> u64 {
    let done = |put: &&super::chains::Put<'_>| put.op.succeeded() && put.op.end() <= read.invoked;
    let acked = link.puts.iter().filter(done).map(|put| put.number).max();
    let seen = shown.iter().filter(|(end, _)| *end < read.invoked);
    let seen = seen.map(|(_, number)| *number).max();
    acked.max(seen).unwrap_or(0)
}

/// Whether a section may adopt an eventual put of what was read: one made before, and without a
/// section that wrote between its effect and this one. It has acted when it is acknowledged, when
/// nobody carries it out any more, and when a section finds it; until then it may act at any time.
/// What it has acted before is the ref of a section, which is given when its enter is sent.
fn is_adoptable(chain: &Chain<'_>, place: usize, read: &Read<'_>) -> bool {
    let before = &chain.links[..place];
    // A delete may be somebody else's: only values are unique.
    let shows = |l: &Link<'_>| l.reads.iter().any(|shown| shown.value == read.value);
    let finds = |l: &Link<'_>| read.value.is_some() && shows(l);
    let outranked_since = |at: usize| before[at..].iter().any(|l| l.acknowledged() > 0);
    if before.iter().position(finds).is_some_and(outranked_since) {
        return false;
    }
    chain.eventual.iter().any(|put| {
        let over = put.succeeded() || put.outcome == Heard::GivenUp;
        let acted = |l: &&Link<'_>| over && put.end() < l.sent;
        let outranked = before.iter().filter(acted).any(|l| l.acknowledged() > 0);
        put.what.written() == Some(read.value) && put.invoked < read.end && !outranked
    })
}

/// A write that was refused for certain must never be seen, unless it was sent once more.
fn check_failed(chain: &Chain<'_>, op: &Op, found: &mut Found) {
    let Some(value) = op.what.written().filter(|value| value.is_some()) else {
        return;
    };
    let puts = |l: &Link<'_>| l.puts.iter().any(|put| put.value == value);
    let shows = |l: &Link<'_>| l.reads.iter().any(|read| read.value == value);
    if chain.links.iter().any(shows) && !chain.links.iter().any(puts) {
        let text = format!(
            "{} was refused ({:?}) as having changed nothing, and was found later",
            show(value),
            op.outcome
        );
        found.add(Promise::Outcomes, text);
    }
}
