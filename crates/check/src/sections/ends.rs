//! From when on a section may be over without anybody's fault: it has left, was released, resumed
//! by somebody, or its lease has run out by its client's own account.

use super::chains::{Chain, Life};
use super::history::{History, What};
use super::{Found, Promise};
use fermata_protocol::base::KeyId;
use fermata_protocol::request::Held;
use std::collections::BTreeMap;

/// The ends of the sections of one key.
#[derive(Default)]
pub(super) struct Ends {
    /// Until when each ref is leased, in any generation.
    leases: BTreeMap<u64, u64>,
    /// The earliest leave or release that was asked for.
    asked: BTreeMap<u64, u64>,
    /// The earliest request to resume from this life.
    resumed: BTreeMap<Life, u64>,
}

fn life(held: &Held) -> Life {
    (held.lock_ref.0, held.generation)
}

fn on<'a>(key: &KeyId, held: &'a [Held]) -> Option<&'a Held> {
    held.iter().find(|held| held.key == *key)
}

impl Ends {
    /// Those of `key`.
    pub(super) fn of(key: &KeyId, chain: &Chain<'_>, history: &History) -> Ends {
        let mut ends = Ends::default();
        for (link, until) in chain.links.iter().filter_map(|l| Some((l, l.lease?))) {
            let last = ends.leases.entry(link.life.0).or_insert(until);
            *last = until.max(*last);
        }
        // What was certainly not done has ended nothing.
        for op in history.ops.iter().filter(|op| !op.failed()) {
            let section = op.section.map(|ix| &history.sections[ix.0].held[..]);
            match &op.what {
                What::Leave | What::Put { leave: true, .. } => {
                    if let Some(held) = section.and_then(|held| on(key, held)) {
                        ends.asked.entry(held.lock_ref.0).or_insert(op.invoked);
                    }
                }
                What::Release(of, lock_ref) if of == key => {
                    ends.asked.entry(lock_ref.0).or_insert(op.invoked);
                }
                What::Enter { resumes, .. } => {
                    if let Some(held) = on(key, resumes) {
                        ends.resumed.entry(life(held)).or_insert(op.invoked);
                    }
                }
                _ => {}
            }
        }
        ends
    }

    /// Whether the life may have ended at this time.
    pub(super) fn may_have_ended(&self, life: Life, at: u64) -> bool {
        let before = |time: Option<&u64>| time.is_some_and(|time| *time < at);
        self.leases.get(&life.0).is_none_or(|until| *until <= at)
            || before(self.asked.get(&life.0))
            || before(self.resumed.get(&life))
    }

    /// Nobody is told that its ref is past whose section cannot have ended.
    pub(super) fn check_told(&self, key: &KeyId, history: &History, found: &mut Found) {
        for op in history.ops.iter().filter(|op| op.told_past()) {
            let section = op.section.map(|ix| &history.sections[ix.0].held[..]);
            let held = match &op.what {
                What::Enter { resumes, .. } => on(key, resumes),
                what if what.key() == Some(key) => section.and_then(|held| on(key, held)),
                _ => None,
            };
            if let Some(life) = held
                .map(life)
                .filter(|l| !self.may_have_ended(*l, op.end()))
            {
                let text = format!("section {life:?} was told that it is past: {:?}", op.what);
                found.add(Promise::ToldPast, text);
            }
        }
    }
}
