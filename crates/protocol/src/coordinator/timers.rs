//! One point in time per identity, and the earliest of all.

use crate::base::Micros;
use alloc::collections::{BTreeMap, BTreeSet};

/// At most one alarm for each of many machines.
#[derive(Debug, Default)]
pub(super) struct Timers {
    of: BTreeMap<u64, Micros>,
    due: BTreeSet<(Micros, u64)>,
}

impl Timers {
    /// Replaces the alarm of `id`; none: no alarm.
    pub(super) fn set(&mut self, id: u64, at: Option<Micros>) {
        if let Some(old) = self.of.remove(&id) {
            self.due.remove(&(old, id));
        }
        if let Some(at) = at {
            self.of.insert(id, at);
            self.due.insert((at, id));
        }
    }

    /// Takes one alarm that is due.
    pub(super) fn take_due(&mut self, now: Micros) -> Option<u64> {
        let (at, id) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.set(id, None);
        Some(id)
    }

    /// The earliest alarm.
    pub(super) fn next(&self) -> Option<Micros> {
        self.due.first().map(|(at, _)| *at)
    }
}
