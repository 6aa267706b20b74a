//! Disks that are full, and nodes that drain, beside each other: whoever has room leads. And the
//! dead beside nodes that drain, or have a seat elsewhere.
//!
//! Who leads breaks no promise, nor does who has which seat: these schedules say themselves what
//! they expect.

use super::policies::{LEAVING, SPARE, decide, seats, settle};
use super::ring::FIRST;
use super::stage::{A, B, C, Stage};
use crate::history::Heard;
use crate::network::ClientId;
use crate::{cluster, nemesis};
use fermata_protocol::base::NodeName;
use fermata_protocol::command::GroupCommand;
use fermata_protocol::request::Mode;
use fermata_protocol::settings::Setting;

/// C's fellow in the second group of [`cluster::spared`].
pub(super) const SIXTH: NodeName = NodeName(6);

fn drain(stage: &mut Stage, name: NodeName, drains: bool) {
    decide(stage, GroupCommand::Drain { name, drains });
}

/// Makes an end of the room on a node's disk, which it meets at its next write; or makes room
/// again.
pub(super) fn set_full(stage: &mut Stage, name: NodeName, full: bool) {
    let machine = stage.world.machines.get_mut(&name);
    let disk = &mut machine.expect("a node of this world").disk;
    (disk.copies, disk.greedy) = (true, true);
    disk.set_full(full);
}

/// Rounds of sections; the longest took so many milliseconds.
pub(super) fn slowest(stage: &mut Stage, user: ClientId, rounds: u32, tag: &str) -> u64 {
    let mut longest = 0;
    for round in 0..rounds {
        let begin = stage.world.now;
        stage.section(user, &format!("{tag}{round}"));
        longest = longest.max((stage.world.now - begin) / 1_000);
        stage.pass(500);
    }
    longest
}

/// B's disk is full, C's is not; A drains.
pub(super) fn drain_beside_full(stage: &mut Stage) {
    let user = stage.client(&[4]);
    stage.section(user, "v1");
    set_full(stage, B, true);
    slowest(stage, user, 6, "w");
    let before = slowest(stage, user, 4, "b");
    drain(stage, A, true);
    let after = slowest(stage, user, 20, "d");
    stage.expect(
        after < 4 * before + 1_000,
        "a drain beside a full disk costs no pause",
    );
    set_full(stage, B, false);
    drain(stage, A, false);
    stage.pass(5_000);
    stage.section(user, "v2");
}

/// B and C drain; then A's disk is full.
pub(super) fn full_beside_drained(stage: &mut Stage) {
    let user = stage.client(&[4]);
    stage.section(user, "v1");
    for name in [B, C] {
        drain(stage, name, true);
        stage.pass(3_000);
    }
    set_full(stage, A, true);
    let refused = |heard: &Heard| matches!(heard, Heard::Failed(_));
    let mut served = false;
    for _ in 0..10 {
        let op = stage.begin_enter(user, Mode::Exclusive);
        let heard = stage.wait(op);
        if !refused(&heard) && heard != Heard::Open {
            if let Some(section) = stage.entered(op) {
                stage.leave(user, section);
            }
            served = true;
            break;
        }
        stage.pass(1_000);
    }
    stage.expect(
        served,
        "with two disks that have room the segment is served",
    );
    set_full(stage, A, false);
    stage.pass(5_000);
    stage.section(user, "v2");
}

/// B's disk is full, and then that of A, which leads: of five members three have room.
pub(super) fn full_beside_full(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::schedule(5));
    let user = stage.client(&[6]);
    stage.section(user, "v1");
    let before = slowest(stage, user, 4, "a");
    set_full(stage, B, true);
    slowest(stage, user, 6, "b");
    set_full(stage, A, true);
    let op = stage.begin_enter(user, Mode::Exclusive);
    if stage.wait(op) != Heard::Open
        && let Some(section) = stage.entered(op)
    {
        stage.leave(user, section);
    }
    stage.pass(2_000);
    let after = slowest(stage, user, 20, "e");
    stage.expect(
        after < 4 * before + 1_000,
        "two full disks of five cost no pause for long",
    );
    for name in [A, B] {
        set_full(stage, name, false);
    }
    stage.pass(5_000);
    stage.section(user, "v2");
}

/// Two groups lose a member each, one a while after the other, and there is one spare.
pub(super) fn replaced_once(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::spared());
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    drain(stage, LEAVING, true);
    settle(stage, Setting::DeadAfter(20_000_000));
    stage.pass(3_000);
    stage.world.stop(C, true);
    stage.pass(15_000);
    stage.world.stop(SIXTH, true);
    stage.pass(60_000);
    let one = seats(&stage.world, SPARE) == 1;
    stage.expect(one, "a spare takes the seat of one dead node");
    stage.world.start(C);
    stage.world.start(SIXTH);
    stage.pass(10_000);
    stage.section(user, "v2");
}

/// C is dead while B drains, and so do the spares; then one of them does not any more.
pub(super) fn replaced_beside_drains(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::spared());
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    settle(stage, Setting::DeadAfter(20_000_000));
    stage.pass(3_000);
    drain(stage, B, true);
    stage.world.stop(C, true);
    stage.pass(10_000);
    drain(stage, SPARE, true);
    drain(stage, LEAVING, true);
    stage.pass(19_000);
    let none = seats(&stage.world, SPARE) + seats(&stage.world, LEAVING) == 0;
    stage.expect(none, "who drains takes no dead node's seat");
    nemesis::next_members(&mut stage.world, FIRST, 21, &[A, SPARE, C]);
    drain(stage, LEAVING, false);
    slowest(stage, user, 10, "a");
    stage.pass(20_000);
    stage.world.start(C);
    stage.pass(20_000);
    stage.section(user, "v2");
}
