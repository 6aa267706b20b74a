//! Puts that are acknowledged, or are not, around the end of a section.

use super::stage::{A, B, C, Stage, answers, candidacy_of, fence_to, news_of, store_of, value};
use crate::history::Heard;
use crate::network::Parcel;
use fermata_protocol::base::{Epoch, NodeName, SegmentId, SessionId};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::request::{Code, Critical, Mode, Operation};
use fermata_protocol::{Message, lock};

/// F1: H1 is taken for dead while its put is under way; the put reaches B and C, which have not
/// heard yet that H1 is past, between the synch's read of A and B and the synch's write.
pub(super) fn suspected_holder(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let held = [A, B, C].map(|n| stage.hold(store_of("v1", &[n])));
    let Some(put) = stage.begin_put(h1, s1, "v1") else {
        return;
    };
    stage.pass(300);
    let news = stage.hold(news_of(A));
    stage.mute(h1);
    let c_unfenced = stage.hold(fence_to(&[C]));
    let b_answers = stage.hold(answers(B, A));
    stage.until(|w| w.network.held(b_answers) > 0);
    stage.release(held[1]);
    stage.release(held[2]);
    stage.pass(300);
    stage.release(b_answers);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.release(news);
    stage.release(c_unfenced);
    stage.release(held[0]);
    stage.get(h2, s2);
    stage.wait(put);
    stage.leave(h2, s2);
}

/// F4: the put of a dead holder is at A alone. A's synch reads it, writes it at A, and is cut off;
/// the next primary's synch reads B and C; then A's writes arrive there.
pub(super) fn two_synchs(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some((s1, late)) = stage.half_put(h1, &[B, C]) else {
        return;
    };
    stage.mute(h1);
    stage.gone(s1);
    let before = stage.world.network.held(late);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(late) >= before + 2);
    stage.isolate(A);
    stage.leader_other_than(A);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.release(late);
    stage.pass(500);
    stage.mend();
    stage.get(h2, s2);
    stage.pass(3_000);
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F5: the last put is at C alone when its holder leaves; the next one is answered by A and B
/// first.
pub(super) fn dirty_leave(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some((s1, late)) = stage.half_put(h1, &[A, B]) else {
        return;
    };
    stage.pass(300);
    stage.leave(h1, s1);
    next_holder_without_c(stage, h2);
    stage.release(late);
}

/// A holder enters while C's answers to A are late, and reads again when they are not.
fn next_holder_without_c(stage: &mut Stage, client: crate::network::ClientId) {
    let without_c = stage.hold(answers(C, A));
    let entered = stage.enter(client);
    stage.release(without_c);
    let Some(section) = entered else { return };
    for _ in 0..3 {
        stage.get(client, section);
        stage.pass(100);
    }
    stage.leave(client, section);
}

/// M1: the same, by the holder's death.
pub(super) fn forced_release(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some((s1, late)) = stage.half_put(h1, &[A, B]) else {
        return;
    };
    stage.pass(300);
    stage.world.kill_client(h1);
    stage.gone(s1);
    next_holder_without_c(stage, h2);
    stage.release(late);
}

/// M5: the put has failed for its client before it leaves.
pub(super) fn leave_after_failed_put(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.request = 3_000_000);
    let h2 = stage.client(&[5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[A, B]));
    let put = stage.put(h1, s1, "v1");
    let unknown = matches!(put, Some(Heard::Unknown(_)));
    stage.expect(unknown, "a put without a quorum has an unknown outcome");
    stage.leave(h1, s1);
    next_holder_without_c(stage, h2);
    stage.release(late);
}

/// M6: the put of a holder that was forced out arrives when the next one has put.
pub(super) fn past_put(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[A, B, C]));
    let Some(put) = stage.begin_put(h1, s1, "v1") else {
        return;
    };
    stage.mute(h1);
    stage.gone(s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    stage.release(late);
    stage.wait(put);
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// M6: a put is on its way to its coordinator until its section has been taken for dead, which the
/// coordinator has not heard.
pub(super) fn put_comes_late(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(move |p| {
        let Parcel::Request {
            client, request, ..
        } = p
        else {
            return false;
        };
        let Operation::Critical { operation, .. } = &request.operation else {
            return false;
        };
        *client == h1 && matches!(operation, Critical::Put { .. })
    });
    let Some(put) = stage.begin_put(h1, s1, "v1") else {
        return;
    };
    stage.mute(h1);
    stage.cut(NodeName(4), &[A, B, C]);
    stage.gone(s1);
    stage.release(late);
    stage.pass(10);
    stage.mend();
    stage.wait(put);
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// M2: the answer of a put is lost; it is retried at a node whose wall clock is behind; another put
/// follows.
pub(super) fn retry_elsewhere(stage: &mut Stage) {
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 1_000_000);
    let Some(s1) = stage.enter(h1) else { return };
    let fast = stage
        .world
        .machines
        .get_mut(&fermata_protocol::base::NodeName(4));
    fast.expect("a node of this world").clock.jump(5_000_000);
    let deaf =
        stage.lose(|p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if from.0 == 4));
    stage.put(h1, s1, "v1");
    stage.put(h1, s1, "v2");
    let got = stage.get(h1, s1);
    let newest = got == Some(Heard::Value(super::stage::value("v2")));
    stage.expect(newest, "the second put is read");
    stage.leave(h1, s1);
    stage.release(deaf);
}

/// M3: an enter is retried at another coordinator while the synch of the first one stalls.
pub(super) fn enter_twice(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    let h2 = stage.client_with(&[5, 6], |o| o.attempt = 800_000);
    let Some((s1, late)) = stage.half_put(h1, &[A, C]) else {
        return;
    };
    stage.pass(300);
    stage.world.kill_client(h1);
    stage.gone(s1);
    let stalled = [B, C].map(|n| stage.hold(answers(n, A)));
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(2_500);
    stage.release(stalled[1]);
    let entered = stage.entered(enter);
    stage.release(stalled[0]);
    let Some(s2) = entered else { return };
    stage.get(h2, s2);
    stage.put(h2, s2, "v2");
    stage.pass(1_000);
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.release(late);
}

/// F16: a client puts three times, dies, and its next process, which knows the ref alone, goes on.
pub(super) fn restarted_client(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    for text in ["v1", "v2", "v3"] {
        stage.put(h1, s1, text);
    }
    stage.world.kill_client(h1);
    stage.world.restart_client(h1);
    let resume = stage.resume(h1, s1);
    let Some(again) = stage.entered(resume) else {
        return;
    };
    let put = stage.put(h1, again, "w");
    let acknowledged = matches!(put, Some(Heard::Done(_)));
    stage.expect(acknowledged, "a resumed section puts");
    stage.get(h1, again);
    stage.leave(h1, again);
    stage.section(h2, "x");
}

/// F17: one put acknowledged, one below it late, two above it at one replica each.
pub(super) fn pipelined_puts(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    let first = stage.hold(store_of("p1", &[A, B, C]));
    let third = stage.hold(store_of("p3", &[A, C]));
    let fourth = stage.hold(store_of("p4", &[A, B]));
    stage.begin_put(h1, s1, "p1");
    stage.put(h1, s1, "p2");
    stage.begin_put(h1, s1, "p3");
    stage.begin_put(h1, s1, "p4");
    stage.pass(300);
    stage.world.kill_client(h1);
    stage.gone(s1);
    let without_c = stage.hold(answers(C, A));
    let entered = stage.enter(h2);
    stage.release(without_c);
    for rule in [first, third, fourth] {
        stage.release(rule);
    }
    let Some(s2) = entered else { return };
    stage.pass(500);
    stage.get(h2, s2);
    stage.leave(h2, s2);
    let Some(s3) = stage.enter(h3) else { return };
    stage.get(h3, s3);
    stage.leave(h3, s3);
}

/// F18: the conclusion of a synch is late: in the meantime its holder was forced out, with a put at
/// one replica.
pub(super) fn late_synch_done(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    stage.world.kill_client(h1);
    stage.gone(s1);
    let flag = stage.flag();
    let Some(s2) = stage.enter(h2) else { return };
    let late = stage.hold(store_of("v2", &[A, B]));
    stage.begin_put(h2, s2, "v2");
    stage.pass(300);
    stage.world.kill_client(h2);
    stage.gone(s2);
    // The repetition of a conclusion by a node that was cut off since.
    let (key, flag) = (stage.key.clone(), flag.unwrap_or(0));
    let command = Command::new(
        SessionId(0xdead),
        1,
        0,
        Epoch::FIRST,
        Body::Lock(LockCommand::SynchDone { key, flag }),
    );
    let from = stage.world.machines[&B].id();
    let submit = lock::Message::Submit {
        call: 1,
        segment: SegmentId(0),
        command,
    };
    stage.world.inject(Parcel::Peer {
        from,
        to: A,
        message: Message::Lock(submit),
    });
    stage.pass(1_000);
    next_holder_without_c(stage, h3);
    stage.release(late);
}

/// ABD: a write is at B alone when one reader returns it; another reader, later, is answered by A
/// and C.
pub(super) fn read_writes_back(stage: &mut Stage) {
    let [writer, first, second] = stage.clients([4, 5, 6]);
    let key = stage.register();
    let write = |text: &str| Call::Write {
        key: key.clone(),
        value: super::stage::value(text),
    };
    let before = stage.call(writer, write("w1"));
    stage.wait(before);
    let to_a_and_c = store_of("w2", &[A, C]);
    // Only of the write itself: a reader that stores what it saw gets through.
    let by_write = |p: &Parcel| matches!(p, Parcel::Peer { from, .. } if from.name.0 == 4);
    let late = stage.hold(move |p| by_write(p) && to_a_and_c(p));
    stage.call(writer, write("w2"));
    stage.until(|w| w.network.held(late) > 0);
    stage.pass(200);
    let read = stage.call(first, Call::Read { key: key.clone() });
    stage.wait(read);
    stage.pass(1);
    let without_b = stage.hold(answers(B, fermata_protocol::base::NodeName(6)));
    let read = stage.call(second, Call::Read { key: key.clone() });
    stage.wait(read);
    stage.release(without_b);
    stage.release(late);
    stage.pass(500);
}

/// G25: all disks are full when a put comes, of which the network keeps a copy for C.
pub(super) fn refused_copy(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    // Whoever leads when the disks are full may give the segment away.
    let c_is_modest = stage.lose(candidacy_of(C));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "one");
    stage.pass(500);
    full_disks(stage, true);
    let copies = stage.world.network.copy(store_of("two", &[C]));
    let Some(put) = stage.begin_put(h1, s1, "two") else {
        return;
    };
    // The refusals leave when what waits for the disks has been written, and nobody is asked again.
    stage.pass(150);
    full_disks(stage, false);
    let refused = stage.wait(put);
    // Until all have found out that there is room.
    stage.pass(1_000);
    stage.release(copies);
    stage.pass(500);
    stage.leave(h1, s1);
    let from_c = [A, B].map(|leader| stage.hold(answers(C, leader)));
    let entered = stage.enter(h2);
    for rule in from_c {
        stage.release(rule);
    }
    let Some(s2) = entered else { return };
    let without_a = stage.hold(answers(A, NodeName(5)));
    stage.get(h2, s2);
    stage.release(without_a);
    stage.release(c_is_modest);
    stage.leave(h2, s2);
    let definite = refused == Heard::Failed(Code::DiskFull);
    stage.expect(definite, "the put is refused for certain");
}

/// All disks are full for a while, and little may wait for them; then there is room, and everybody
/// goes on.
pub(super) fn full_disk(stage: &mut Stage) {
    stage.again(|setup| setup.shell.held_max = 2);
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "one");
    full_disks(stage, true);
    let refused = stage.begin_put(h1, s1, "two");
    stage.pass(2_000);
    full_disks(stage, false);
    if let Some(put) = refused {
        stage.wait(put);
    }
    stage.pass(1_500);
    stage.put(h1, s1, "three");
    stage.leave(h1, s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// Makes an end of the room on all members' disks, what their reserves give back included, and has
/// each find out: its log needs the next segment. Or makes room again.
fn full_disks(stage: &mut Stage, full: bool) {
    for name in [A, B, C] {
        let machine = stage.world.machines.get_mut(&name);
        let disk = &mut machine.expect("a node of this world").disk;
        disk.greedy = true;
        disk.set_full(full);
        let client = stage.client(&[name.0]);
        for text in ["y", "z"].iter().filter(|_| full) {
            let (key, value) = (stage.key_beside("z"), value(&text.repeat(200 << 10)));
            stage.call(client, Call::Put { key, value });
        }
    }
    stage.pass(if full { 200 } else { 0 });
}

/// F16: a put is at C alone when its section is taken over, by A and B; then A and C are read.
pub(super) fn resumed_over_a_put(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some((s1, late)) = stage.half_put(h1, &[A, B]) else {
        return;
    };
    stage.pass(300);
    stage.world.kill_client(h1);
    let without_c = stage.hold(answers(C, A));
    let resume = stage.resume(h2, s1);
    let resumed = stage.entered(resume);
    stage.release(without_c);
    let Some(s2) = resumed else { return };
    let without_b = stage.hold(answers(B, NodeName(5)));
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.release(without_b);
    stage.discard(late);
}
