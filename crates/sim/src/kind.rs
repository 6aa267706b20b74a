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
use crate::link::Pace;
use fermata_driver::outgoing::Bounds;
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
    /// What shells have room and time for.
    pub shell: Shell,
}

/// What the shell of a node has room and time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shell {
    /// So many outputs may wait for a stuck log.
    pub held_max: usize,
    /// How long a round of the driver takes, microseconds, from and to.
    pub round: (u64, u64),
    /// Bytes of a segment of the disk's log: a full disk is met at the end of one.
    pub segment_bytes: u64,
    /// How slow connections between nodes are; none: a frame takes no time.
    pub pace: Option<Pace>,
}

impl Default for Shell {
    fn default() -> Shell {
        Shell {
            held_max: fermata_driver::HELD_MAX,
            round: (0, 0),
            segment_bytes: 256 << 10,
            pace: None,
        }
    }
}

impl Shell {
    /// In half of the seeds a round takes so long that what comes meanwhile makes the next one, in
    /// half next to nothing may wait for a stuck log, in half segments are short, and in a third
    /// connections are slow and little may wait for them.
    fn draw(dice: &mut Dice, limits: &Limits) -> Shell {
        let usual = Shell::default();
        // The longest message fits, with others.
        let longest = 2 * limits.frame.min(1 << 20);
        let pace = Pace {
            bounds: Bounds {
                messages: dice.between(4, 60) as usize,
                bytes: dice.between(1, 4) as usize * longest,
                frame: dice.between(200, 4_000) as usize,
            },
            frame: [(0, 5_000), (20_000, 100_000)][dice.below(2) as usize],
        };
        Shell {
            held_max: [usual.held_max, dice.between(1, 40) as usize][dice.below(2) as usize],
            round: [(0, 0), (0, 0), (0, 1_000), (100, 6_000)][dice.below(4) as usize],
            segment_bytes: [usual.segment_bytes, 4 << 10][dice.below(2) as usize],
            pace: dice.chance(33).then_some(pace),
        }
    }
}

impl Kind {
    /// Draws a kind.
    pub fn draw(dice: &mut Dice) -> Kind {
        let (limits, names) = match dice.below(3) {
            0 => (Limits::default(), 0),
            1 => (small(dice), 0),
            _ => (tight(dice), LONG_NAME),
        };
        let drift_ppm = if dice.chance(25) { WIDE_DRIFT } else { 1_000 };
        let calm = dice.chance(12);
        let mut shell = Shell::draw(dice, &limits);
        if calm {
            // Nothing is lost there.
            shell.pace = None;
        }
        Kind {
            limits,
            names,
            drift_ppm,
            calm,
            shell,
        }
    }
}

/// Some bounds are so small that logs are truncated, and replicas catch up by snapshots.
fn small(dice: &mut Dice) -> Limits {
    let mut limits = Limits::default();
    if dice.chance(75) {
        limits.snapshot_every = dice.between(4, 32);
        limits.changes = limits.snapshot_every;
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
    let snapshot_every = dice.between(4, 200);
    Limits {
        key: LONG_NAME + 40,
        value: VALUE_MAX,
        key_most: LONG_NAME + 40,
        value_most: VALUE_MAX,
        section_keys: 4,
        grant: dice.between(200, 2_000) as usize,
        proposals: dice.between(4, 256) as usize,
        proposals_bytes,
        batch: [1, 2, 256][dice.below(3) as usize],
        batch_bytes,
        window: [1, 1, 2, 256][dice.below(4) as usize],
        window_bytes,
        votes_bytes: proposals_bytes + dice.below(100_000) as usize,
        snapshot_every,
        changes: snapshot_every,
        entries_bytes: dice.between(2_000, 40_000) as usize,
        node_entries_bytes: dice.between(10_000, 100_000) as usize,
        moving_bytes: [0, 64 << 20][dice.below(2) as usize],
        transaction: 8_000,
        ledger_value: 4_000,
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
