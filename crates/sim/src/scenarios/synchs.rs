//! Synchs beside what makes them needless: a note on its way, a leave, a failure. Whatever becomes
//! of one, upkeep must find the members equal, or the key with its flag.

use super::stage::{A, B, C, Stage, candidacy_of, fence_to, grants_to, proposals_of, store_of};
use super::upkeep::tended;
use crate::history::Heard;
use crate::random;
use fermata_protocol::command::LockCommand;
use fermata_protocol::request::Mode;

/// G28: the synch for the first of two readers is complete, and the word of it is on its way
/// through the log, when the second one is looked after; A goes down later.
pub(super) fn beside_its_note(stage: &mut Stage) {
    tended(stage);
    let [h1, r1, r2] = stage.clients([4, 5, 6]);
    let note = stage.hold(proposals_of(A, |c| {
        matches!(c, LockCommand::SynchDone { .. })
    }));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let first = stage.begin_enter(r1, Mode::Shared);
    let second = stage.begin_enter(r2, Mode::Shared);
    stage.pass(500);
    let stores = stage.hold(store_of("v0", &[B, C]));
    stage.world.kill_client(h1);
    stage.until(|w| w.network.held(stores) >= 2);
    stage.release(stores);
    // The synch is complete with these: whatever another one stores stays at A.
    let others = stage.lose(store_of("v0", &[B, C]));
    let first = stage.entered(first);
    stage.pass(500);
    stage.release(note);
    stage.pass(500);
    for (reader, section) in [(r1, first), (r2, stage.entered(second))] {
        if let Some(section) = section {
            stage.leave(reader, section);
        }
    }
    stage.world.stop(A, true);
    stage.release(others);
    stage.world.start(A);
    random::rest(&mut stage.world);
}

/// G29: a grant is on its way when A goes down; B synchs in the name of the ref, which it finds,
/// and its client, whom the grant reaches now, leaves without a word of a put.
pub(super) fn beside_a_leave(stage: &mut Stage) {
    tended(stage);
    let [h1, h2] = stage.clients([4, 5]);
    stage.section(h1, "v0");
    let grant = stage.hold(grants_to(&[5]));
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(grant) > 0);
    stage.world.stop(A, true);
    let c_waits = stage.lose(candidacy_of(C));
    let stores = stage.hold(store_of("v0", &[A, C]));
    stage.leader_other_than(A);
    let begun = stage.until(|w| w.network.held(stores) > 0);
    stage.expect(begun, "the next primary synchs for a ref that it finds");
    stage.release(grant);
    if let Some(section) = stage.entered(enter) {
        stage.leave(h2, section);
    }
    stage.discard(stores);
    stage.release(c_waits);
    stage.world.start(A);
    random::rest(&mut stage.world);
}

/// G30: a reader comes behind one whom A has granted; B leads, and fails to settle the key.
pub(super) fn failed_for_a_reader(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = 3_000_000);
    let [h1, r1, r2] = stage.clients([4, 5, 6]);
    stage.section(h1, "v0");
    let first = stage.begin_enter(r1, Mode::Shared);
    let first = stage.entered(first);
    stage.world.stop(A, true);
    let c_waits = stage.lose(candidacy_of(C));
    stage.leader_other_than(A);
    let fences = stage.lose(fence_to(&[A, C]));
    let second = stage.begin_enter(r2, Mode::Shared);
    stage.pass(4_500);
    stage.release(fences);
    stage.pass(4_000);
    let entered = *stage.world.outcome(second) != Heard::Open;
    stage.expect(entered, "what has failed for a reader is tried again");
    stage.release(c_waits);
    for (reader, section) in [(r2, stage.entered(second)), (r1, first)] {
        if let Some(section) = section {
            stage.leave(reader, section);
        }
    }
}
