//! What kind of world a seed is: its bounds, its names, how far its clocks may drift.
//!
//! **Problem.** Under the bounds of a server no bound is ever met in a simulated minute, and under
//! a drift of a thousandth no duration is ever measured wrongly. Users then find what goes wrong at
//! its bounds (G34, G35).
//!
//! **Idea.** Seeds differ in kind. In a third of them some bounds are so small that logs are
//! truncated and members catch up by snapshots; in another third all are: names are 600 bytes long
//! and frames hold a dozen of them, windows and batches may be of one. In a quarter of the seeds
//! clocks may be wrong by a tenth, and half of them are at the edge of that. And some seeds are
//! calm: primaries change only by hand-over, so that time does not start anew, and sections end in
//! time ([`longest`](crate::checkers::longest)).

use crate::dice::Dice;
use fermata_protocol::base::Limits;

/// Bytes of the longest value that clients write, which every kind's limits hold.
pub const VALUE_MAX: usize = 200;

/// Bytes of long names.
const LONG_NAME: usize = 600;

/// A bound on drift so wide that leases of seconds differ by what clients do meanwhile.
const WIDE_DRIFT: u64 = 100_000;

/// What a seed draws first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Bounds.
    pub limits: Limits,
    /// Bytes of the names of keys, at least.
    pub names: usize,
    /// Bound on the rate error of clocks, parts per million.
    pub drift_ppm: u64,
    /// Whether primaries change by hand-over alone.
    pub calm: bool,
}

impl Kind {
    /// Draws a kind.
    pub fn draw(dice: &mut Dice) -> Kind {
        let (limits, names) = match dice.below(3) {
            0 => (Limits::default(), 0),
            1 => (small(dice), 0),
            _ => (tight(dice), LONG_NAME),
        };
        Kind {
            limits,
            names,
            drift_ppm: if dice.chance(25) { WIDE_DRIFT } else { 1_000 },
            calm: dice.chance(12),
        }
    }
}

/// Some bounds are so small that logs are truncated, and replicas catch up by snapshots.
fn small(dice: &mut Dice) -> Limits {
    let mut limits = Limits::default();
    if dice.chance(75) {
        limits.snapshot_every = dice.between(4, 32);
        limits.chunk = dice.between(64, 2_000) as usize;
    }
    if dice.chance(20) {
        limits.proposals = dice.between(2, 6) as usize;
    }
    if dice.chance(45) {
        limits.window = dice.between(1, 4) as usize;
    }
    limits
}

/// All bounds are so small that a dozen commands are more than a frame holds.
fn tight(dice: &mut Dice) -> Limits {
    let batch_bytes = dice.between(2_000, 5_000) as usize;
    let window_bytes = batch_bytes + dice.below(3_000) as usize;
    let proposals_bytes = dice.between(20_000, 100_000) as usize;
    Limits {
        key: LONG_NAME + 40,
        value: VALUE_MAX,
        section_keys: 4,
        grant: dice.between(200, 2_000) as usize,
        proposals: dice.between(4, 256) as usize,
        proposals_bytes,
        batch: [1, 2, 256][dice.below(3) as usize],
        batch_bytes,
        window: [1, 1, 2, 256][dice.below(4) as usize],
        window_bytes,
        votes_bytes: proposals_bytes + dice.below(100_000) as usize,
        snapshot_every: dice.between(4, 200),
        entries_bytes: dice.between(2_000, 40_000) as usize,
        node_entries_bytes: dice.between(10_000, 100_000) as usize,
        chunk: dice.between(500, 4_000) as usize,
        frame: 12_000,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_every_kind_fit_each_other() {
        let mut dice = Dice::new(1);
        for _ in 0..10_000 {
            let kind = Kind::draw(&mut dice);
            assert_eq!(kind.limits.check(), Ok(()), "{kind:?}");
            assert!(kind.names < kind.limits.key && VALUE_MAX <= kind.limits.value);
        }
    }
}
