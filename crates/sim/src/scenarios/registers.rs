//! Schedules of registers that the formal model of them has found (docs/faults.md, G20 and G21).
//!
//! As in `coded.rs`: members 1 to 5, of which one may fail, so that quorums are four and three
//! parts give a value back, and nodes 6, 7 and 8 without a seat. Upkeep does not walk meanwhile.

use super::coded::{dead_write, members, terms};
use super::rules::rot_and_restart;
use super::stage::{Stage, final_to, parts_of, reads_by};
use super::upkeep::has;
use crate::history::OpId;
use crate::network::{ClientId, RuleId};
use fermata_protocol::base::{KeyId, NodeName, StoragePolicy};

const ALL: [u32; 5] = [1, 2, 3, 4, 5];

/// A register of which "v1" is at all members, and "d", which has died, at these, where nothing
/// more is taken: nobody was told that "v1" is final.
fn full(stage: &mut Stage, first: ClientId, key: &KeyId, at: &[u32]) {
    let untold = stage.lose(final_to(&members(&ALL)));
    stage.write(first, key, "v1");
    dead_write(stage, 6, key, "d", at);
    stage.discard(untold);
}

fn register(stage: &mut Stage) -> KeyId {
    stage.again(|setup| setup.timing.upkeep = 600_000_000);
    stage.coded(5, StoragePolicy::Coded(terms(1)))
}

/// Node 7 writes "v3", finds the key full at one member, and sweeps without 3: of "d" it finds two
/// parts, and carries "v1" on. What it loses until it is let go of.
fn begin_sweep(stage: &mut Stage, writer: ClientId, key: &KeyId, full: u32) -> (OpId, [RuleId; 2]) {
    let others: Vec<u32> = ALL.into_iter().filter(|m| *m != full).collect();
    let not_stored = stage.lose(parts_of("v3", &members(&others)));
    let without_3 = stage.lose(reads_by(NodeName(7), &members(&[3])));
    let write = stage.begin_write(writer, key, "v3");
    (write, [not_stored, without_3])
}

/// G20: "d" has died at 1, 2, 3. A reader has heard those when a sweep passes "d" over, which is
/// then final under a higher tag; 4 tells so.
pub(super) fn passed_over(stage: &mut Stage) {
    let key = register(stage);
    let [first, writer, reader] = stage.clients([6, 7, 8]);
    full(stage, first, &key, &[1, 2, 3]);
    let late = stage.hold(reads_by(NodeName(8), &members(&[4, 5])));
    let read = stage.begin_read(reader, &key);
    stage.pass(400);
    let told = stage.world.network.copy(final_to(&members(&[4])));
    let (write, lost) = begin_sweep(stage, writer, &key, 1);
    let swept = stage.until(|w| w.network.held(told) > 0);
    stage.expect(swept, "a key that is full is swept");
    stage.discard(told);
    stage.pass(200);
    stage.release(late);
    stage.wait(read);
    stage.read(reader, &key);
    for rule in lost {
        stage.discard(rule);
    }
    stage.wait(write);
}

/// G21: "d" has died at 2, 3, 4. A sweep has fenced 1, 2, 4, 5 and found "v1", and dies; its stores
/// come late. 1 forgets its fence, and must not take "d" from 2, 3 and 4.
pub(super) fn forgotten_fence(stage: &mut Stage) {
    let key = register(stage);
    let [first, writer, reader] = stage.clients([6, 7, 8]);
    full(stage, first, &key, &[2, 3, 4]);
    let stores = stage.hold(parts_of("v1", &members(&ALL)));
    let (_, lost) = begin_sweep(stage, writer, &key, 2);
    let sweeps = stage.until(|w| w.network.held(stores) >= 4);
    stage.expect(sweeps, "a key that is full is swept");
    stage.world.kill_client(writer);
    stage.world.stop(NodeName(7), true);
    for rule in lost {
        stage.discard(rule);
    }
    rot_and_restart(stage, NodeName(1), &key);
    // Whoever reads there finds the damage; nobody completes anything meanwhile.
    let alone = stage.lose(reads_by(NodeName(6), &members(&[2, 3, 4, 5])));
    stage.begin_read(first, &key);
    stage.pass(6_000);
    stage.world.kill_client(first);
    stage.pass(6_000);
    stage.discard(alone);
    stage.pass(6_000);
    let learnt = has(stage, NodeName(1), &key);
    stage.expect(learnt, "1 has its record again");
    let without_5 = stage.lose(reads_by(NodeName(8), &members(&[5])));
    stage.read(reader, &key);
    stage.discard(without_5);
    stage.release(stores);
    stage.pass(1_000);
    stage.read(reader, &key);
    stage.world.start(NodeName(7));
}
