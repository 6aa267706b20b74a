//! The tags that a replica knows to be final, and the versions that it may drop therefore.
//!
//! A write's tag is final once q replicas hold its parts, durably; its writer, or a reader that has
//! completed it, then tells all. Versions below a final tag serve nobody that begins to read now,
//! but a reader that has begun before may still need them: they go after a grace time. The final
//! tags that it was told are in memory only. A replica that forgets it keeps more than it must; a
//! *drop* is noted durably in the same record (F8b).
//!
//! The grace time is also why a reader never starves (F8e). It must not return less than the
//! highest tag for which any of its answers has dropped something. If it collects its answers
//! within one grace time, that tag was final before it began, so that every quorum has enough parts
//! of it, and none of those has been dropped unless a higher tag says so.

use super::cell::{At, Cell};
use super::message::StoreId;
use crate::base::{Bug, KeyId, Micros, Tag};
use crate::io::Env;
use alloc::collections::{BTreeMap, BTreeSet};

/// Keys with versions to drop that are remembered at once; beyond, they are dropped without grace.
const PENDING_MAX: usize = 65_536;
/// Keys whose versions are dropped in one step at most: a step should be short.
const DROPS_MAX: usize = 256;

/// Final tags told to one replica whose lower versions are still here.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    pending: BTreeMap<(StoreId, KeyId), Pending>,
    due: BTreeSet<(Micros, StoreId, KeyId)>,
}

#[derive(Clone, Debug)]
struct Pending {
    at: At,
    /// What lies below this goes at `due`.
    ripe: Tag,
    due: Micros,
    /// The highest tag told.
    highest: Tag,
}

impl Settled {
    /// A tag of the key is final.
    pub(super) fn note(&mut self, at: &At, tag: Tag, env: &mut Env<'_>) {
        let place = (at.store, at.key.clone());
        if let Some(pending) = self.pending.get_mut(&place) {
            pending.highest = pending.highest.max(tag);
            return;
        }
        let Ok(mut cell) = Cell::load(env.memory, at) else {
            return;
        };
        // One version, and nothing is below it: the ordinary case, once a write has settled.
        if cell.head.versions().len() < 2 && cell.head.tag() >= tag {
            return;
        }
        if self.pending.len() >= PENDING_MAX {
            cell.drop_below(env.fx, tag, notes(env));
            return;
        }
        let due = due(env);
        self.due.insert((due, place.0, place.1.clone()));
        let pending = Pending {
            at: at.clone(),
            ripe: tag,
            due,
            highest: tag,
        };
        self.pending.insert(place, pending);
    }

    /// The highest tag of the key that was told to be final.
    pub(super) fn known(&self, at: &At) -> Tag {
        let pending = self.pending.get(&(at.store, at.key.clone()));
        pending.map_or(Tag::ZERO, |p| p.highest)
    }

    /// Forgets a store: it is sealed or gone, and never changes any more.
    pub(super) fn forget(&mut self, store: StoreId) {
        self.pending.retain(|(of, _), _| *of != store);
        self.due.retain(|(_, of, _)| *of != store);
    }

    /// Forgets a key: nothing is left of it.
    pub(super) fn forget_key(&mut self, place: &(StoreId, KeyId)) {
        self.pending.remove(place);
    }

    /// When [`Settled::tick`] has something to do.
    pub(super) fn wake(&self) -> Option<Micros> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// Drops what is ripe, or as much of it as one step should.
    pub(super) fn tick(&mut self, env: &mut Env<'_>) {
        for _ in 0..DROPS_MAX {
            let first = self.due.first().cloned();
            let Some((_, store, key)) = first.filter(|(due, ..)| *due <= env.now.monotonic) else {
                return;
            };
            self.due.pop_first();
            let Some(mut pending) = self.pending.remove(&(store, key.clone())) else {
                continue;
            };
            if let Ok(mut cell) = Cell::load(env.memory, &pending.at) {
                cell.drop_below(env.fx, pending.ripe, notes(env));
            }
            if pending.highest > pending.ripe {
                pending.ripe = pending.highest;
                pending.due = due(env);
                self.due.insert((pending.due, store, key.clone()));
                self.pending.insert((store, key), pending);
            }
        }
    }
}

/// When the grace time of what is told now is over. On the beat, so that the drops of many keys are
/// one batch: a replica's answer waits for the flush of every drop before it.
fn due(env: &Env<'_>) -> Micros {
    let over = env.now.monotonic + env.timing.retry;
    over.next_multiple_of(env.timing.beat.max(1))
}

/// Whether a drop is noted in the record that it changes: it is (F8b).
pub(super) fn notes(env: &Env<'_>) -> bool {
    !env.planted.has(Bug::DropNotNoted)
}
