//! Histories in which it is known for each read which write it read: decided in `O(n log n)` by
//! the zones of Gibbons and Korach ("Testing Shared Memories", SIAM Journal on Computing 26(4),
//! 1997, §3).
//!
//! **Idea.** A write and the reads of it are a *cluster*. In any order that explains the reads a
//! cluster stands together, so a cluster must stand before another as soon as one of its operations
//! returned before one of the other's was called, that is: if its first return is before the
//! other's last call. An order exists if and only if no two clusters must each stand before the
//! other. (A longer circle contains such a pair: the cluster of the circle with the latest last
//! call must stand after all others of the circle, and before its successor.)
//!
//! The *zone* of a cluster lies between its first return and its last call. If the first return
//! comes first the zone is *forward*: the register held this value all through it. Otherwise it is
//! *backward*: one point in it suffices. Two clusters are in each other's way if and only if their
//! zones are forward and overlap, or one is backward and lies inside the other, which is forward.
//!
//! **Departures.** A write of unknown outcome returns at the end of time; if nobody read it, it is
//! left out. The register's initial state is a cluster whose write returned before all time. Values
//! need not be unique: it suffices that the writes before a read rule out all but one. Where they
//! do not, the read is left out: what remains may show a violation, but not that there is none.

use crate::steps::{Step, Writes};

/// A cluster's zone.
struct Zone {
    /// The first return and whose it is; none: before all time.
    first: Option<(u64, usize)>,
    /// The last call and whose it is; none: before all time.
    last: Option<(u64, usize)>,
    /// The write; none: the initial state.
    write: Option<usize>,
}

impl Zone {
    fn start(&self) -> Option<u64> {
        self.first.map(|(at, _)| at)
    }

    fn end(&self) -> Option<u64> {
        self.last.map(|(at, _)| at)
    }

    fn add(&mut self, step: &Step, index: usize) {
        if self.first.is_some_and(|(at, _)| step.ret < at) {
            self.first = Some((step.ret, index));
        }
        if self.last.is_none_or(|(at, _)| at < step.call) {
            self.last = Some((step.call, index));
        }
    }

    fn is_forward(&self) -> bool {
        self.start() < self.end()
    }
}

/// What the zones say.
pub(crate) enum Zoned {
    /// An order exists.
    Linearizable,
    /// No order exists, not even of these steps alone: a closed part (see [`crate::shrink`]).
    Violation(Vec<usize>),
    /// Some read may have read one of several writes: another algorithm must decide.
    Ambiguous,
}

/// Decides, if it can.
pub(crate) fn decide(steps: &[Step], writes: &Writes<'_>) -> Zoned {
    let mut zones: Vec<Zone> = Vec::new();
    // Step -> its zone, for writes; the initial state's is the first.
    let mut zone_of: Vec<u32> = vec![0; steps.len()];
    zones.push(Zone {
        first: None,
        last: None,
        write: None,
    });
    for (index, step) in steps.iter().enumerate().filter(|(_, step)| step.writes) {
        zone_of[index] = zones.len() as u32;
        zones.push(Zone {
            first: Some((step.ret, index)),
            last: Some((step.call, index)),
            write: Some(index),
        });
    }
    let mut ambiguous = false;
    for (read, step) in steps.iter().enumerate().filter(|(_, step)| !step.writes) {
        let mut candidates = writes.candidates(read);
        let zone = match (writes.may_be_initial(read), candidates.next()) {
            (true, None) => 0,
            (false, Some(write)) if candidates.next().is_none() => zone_of[write],
            (false, None) => return Zoned::Violation(unreadable(read, writes)),
            _ => {
                ambiguous = true;
                continue;
            }
        };
        zones[zone as usize].add(step, read);
    }
    // A write of unknown outcome that nobody read never returns and need not stand anywhere.
    zones.retain(|zone| {
        let alone = zone.first.is_some_and(|(_, step)| Some(step) == zone.write);
        !(alone && zone.write.is_some_and(|write| !steps[write].known))
    });
    match conflict(&zones) {
        None if ambiguous => Zoned::Ambiguous,
        None => Zoned::Linearizable,
        Some((a, b)) => Zoned::Violation(part(&zones[a], &zones[b], steps, writes)),
    }
}

/// Two clusters of which each must stand before the other.
fn conflict(zones: &[Zone]) -> Option<(usize, usize)> {
    let mut forward: Vec<usize> = (0..zones.len())
        .filter(|zone| zones[*zone].is_forward())
        .collect();
    forward.sort_by_key(|zone| zones[*zone].start());
    let overlap = |pair: &&[usize]| zones[pair[1]].start() < zones[pair[0]].end();
    if let Some(pair) = forward.windows(2).find(overlap) {
        return Some((pair[0], pair[1]));
    }
    // The forward zones follow each other, so only the last that starts before can be around.
    for (index, zone) in zones.iter().enumerate().filter(|(_, z)| !z.is_forward()) {
        let before = forward.partition_point(|other| zones[*other].start() < zone.end());
        let around = before.checked_sub(1).map(|last| forward[last]);
        if let Some(around) = around.filter(|other| zone.start() < zones[*other].end()) {
            return Some((around, index));
        }
    }
    None
}

/// The steps that keep two clusters from standing in any order, with all that decides what they
/// read.
fn part(a: &Zone, b: &Zone, steps: &[Step], writes: &Writes<'_>) -> Vec<usize> {
    let mut part: Vec<usize> = [a, b]
        .into_iter()
        .flat_map(|zone| {
            let ends = [zone.first, zone.last].into_iter().flatten();
            ends.map(|(_, step)| step).chain(zone.write)
        })
        .collect();
    let rulers: Vec<usize> = (part.iter())
        .filter(|step| !steps[**step].writes)
        .filter_map(|read| writes.ruler(*read))
        .collect();
    part.extend(rulers);
    part.sort_unstable();
    part.dedup();
    part
}

/// A read that can have read no write, with what shows it.
fn unreadable(read: usize, writes: &Writes<'_>) -> Vec<usize> {
    let witnesses = writes.namesake(read).into_iter().chain(writes.ruler(read));
    let mut part: Vec<usize> = witnesses.chain([read]).collect();
    part.sort_unstable();
    part.dedup();
    part
}
