//! Interval clocks that are wrong by more than they say, and what nodes make of it (F9).
//!
//! As in `coded.rs`: members 1 to 5, of which one may fail, and nodes 6, 7 and 8 without a seat.

use super::stage::{Stage, long, reads_by};
use crate::clock::IntervalClock;
use crate::history::Heard;
use fermata_protocol::base::{KeyId, NodeName, StoragePolicy, Terms};
use fermata_protocol::request::ClockState;

/// What all clocks say that their error is at most, microseconds.
const WIDTH: u64 = 5_000;

fn members() -> Vec<NodeName> {
    (1..=5).map(NodeName).collect()
}

/// A coded register, and clocks at all nodes of which those of `wrong` are off.
fn register(stage: &mut Stage, wrong: &[(u32, i64)]) -> KeyId {
    let key = stage.coded(
        5,
        StoragePolicy::Coded(Terms {
            faults: 1,
            delta: 3,
            whole_below: 32,
        }),
    );
    for machine in stage.world.machines.values_mut() {
        let wrong = wrong.iter().find(|(name, _)| *name == machine.name().0);
        machine.clock.interval = Some(IntervalClock {
            width: WIDTH,
            error: wrong.map_or(0, |(_, error)| *error),
        });
    }
    key
}

/// What a node makes of its clock.
pub(super) fn state(stage: &Stage, name: u32) -> Option<ClockState> {
    let node = stage.world.machines[&NodeName(name)].node();
    node.map(|node| node.clock().state)
}

/// F9: the clock of 6 is ahead by much more than it says. What it writes after a beat or two is
/// outranked by what is written after it, for it has given its one-round writes up.
pub(super) fn wrong_clock(stage: &mut Stage) {
    let key = register(stage, &[(6, 900_000)]);
    let [fast, right] = stage.clients([6, 7]);
    stage.pass(1_500);
    let found = state(stage, 6);
    let first_rounds = stage.world.network.copy(reads_by(NodeName(6), &members()));
    stage.write(fast, &key, "x");
    let asked = stage.world.network.held(first_rounds);
    stage.discard(first_rounds);
    stage.pass(1);
    let written = stage.write(right, &key, "y");
    stage.pass(1);
    let read = stage.read(right, &key);
    stage.expect(found == Some(ClockState::Violated), "6 knows by then");
    stage.expect(asked >= 4, "a write without a clock takes two rounds");
    stage.expect(matches!(written, Heard::Done(_)), "others write");
    stage.expect(read == Heard::Value(long("y")), "the last write is read");
}
