//! Schedules made for one rule each: a step of the protocol that nothing else defends.

use super::stage::{
    A, B, C, Stage, accepts_of, answers, candidacy_of, news_of, spread_to, store_of,
};
use crate::checkers::tags;
use crate::history::Heard;
use crate::network::Parcel;
use fermata_protocol::base::{KeyId, NodeName};
use fermata_protocol::client::Call;
use fermata_protocol::io::Memory as _;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, lock};

/// F1: a holder that was taken for dead reads when the next one has entered, and has put nothing
/// yet: only the refusal tells it.
pub(super) fn past_get(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let mute = stage.mute(h1);
    let no_news = stage.lose(|p| {
        matches!(
            p,
            Parcel::Peer {
                message: Message::Lock(lock::Message::Lost { .. }),
                ..
            }
        )
    });
    stage.gone(s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.pass(1);
    stage.get(h1, s1);
    stage.leave(h2, s2);
    stage.release(no_news);
    stage.release(mute);
}

/// F10: A is cut off right after it has prolonged a lease, and B leads while that lease runs.
pub(super) fn new_primary(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h2 = stage.client(&[5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    stage.cut(A, &[B, C, NodeName(5), NodeName(6)]);
    // A's lease ends first, and H1's, which A has prolonged to the last, runs on.
    stage.pass(3_400);
    let mute = stage.mute(h1);
    stage.leader_other_than(A);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.put(h2, s2, "v2");
    stage.leave(h2, s2);
    stage.release(mute);
    stage.mend();
}

/// F13: an enqueue is accepted by A and C, chosen, and acted upon; C does not know that it is
/// chosen when A goes down, and B has heard nothing of it; B leads with C.
pub(super) fn accepted_entry(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let to_b = accepts_of(A);
    let not_b = stage.lose(move |p| matches!(p, Parcel::Peer { to, .. } if *to == B) && to_b(p));
    let no_news = stage.lose(news_of(A));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    stage.world.stop(A, true);
    let c_is_modest = stage.lose(candidacy_of(C));
    stage.release(not_b);
    stage.release(no_news);
    stage.leader_other_than(A);
    let mute = stage.mute(h1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.world.start(A);
    stage.release(c_is_modest);
    stage.release(mute);
    stage.pass(3_000);
}

/// An enqueue is accepted by A alone, which is then cut off: nobody was told of it.
pub(super) fn log_quorum(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let alone = stage.lose(accepts_of(A));
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(1_000);
    let waits = *stage.world.outcome(enter) == Heard::Open;
    stage.world.kill_client(h1);
    stage.isolate(A);
    stage.release(alone);
    stage.leader_other_than(A);
    stage.section(h2, "v2");
    stage.mend();
    stage.pass(3_000);
    stage.expect(
        waits,
        "what one replica of three has accepted is not chosen",
    );
}

/// G1: an adoption is stored at A alone when its time is over; it is tried again without A.
pub(super) fn adoption_repeated(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = 3_000_000);
    let [h1, h2, other] = stage.clients([4, 5, 4]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[B, C]));
    stage.eventual_put(other, "e");
    let stores = stage.hold(store_of("e", &[B, C]));
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(stores) >= 2);
    stage.pass(100);
    let without_a = stage.hold(answers(A, A));
    let entered = stage.entered(enter);
    stage.discard(stores);
    stage.release(without_a);
    let Some(s2) = entered else { return };
    for _ in 0..3 {
        stage.get(h2, s2);
        stage.pass(200);
    }
    stage.leave(h2, s2);
    stage.release(spread);
}

/// G6: an `enter` is closed at a node that was cut off while it waited, when its client has entered
/// through another node.
pub(super) fn late_close(stage: &mut Stage) {
    let h0 = stage.client(&[6]);
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 1_000_000);
    let Some(s0) = stage.enter(h0) else { return };
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(500);
    let first = NodeName(4);
    stage.isolate(first);
    let silent = stage
        .lose(move |p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if *from == first));
    let closes = stage.hold(move |p| matches!(p, Parcel::Cancel { to, .. } if *to == first));
    stage.pass(4_000);
    stage.leave(h0, s0);
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    // Its lease is renewed through the other node.
    stage.pass(1_500);
    stage.mend();
    stage.release(closes);
    stage.pass(1_000);
    stage.release(silent);
    stage.put(h1, s1, "still");
    stage.leave(h1, s1);
}

/// G8: a put is stored at B, which says so; then the record rots, and B starts again; only then the
/// put is stored at C.
pub(super) fn damaged_record(stage: &mut Stage) {
    let [h1, h2, reader] = stage.clients([4, 5, 2]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let to_a = stage.hold(store_of("v1", &[A]));
    let to_c = stage.hold(store_of("v1", &[C]));
    let Some(put) = stage.begin_put(h1, s1, "v1") else {
        return;
    };
    stage.pass(300);
    rot_and_restart(stage, B, &stage.key.clone());
    // Whoever reads there finds the damage.
    let key = stage.key.clone();
    stage.call(reader, Call::Get { key });
    stage.pass(700);
    stage.release(to_c);
    stage.wait(put);
    stage.leave(h1, s1);
    let without_c = stage.hold(answers(C, A));
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(3_000);
    stage.release(without_c);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.release(to_a);
}

/// The newest record of a key at a node rots, and the node loses power and starts again.
pub(super) fn rot_and_restart(stage: &mut Stage, name: NodeName, key: &KeyId) {
    let memory = stage.world.machines[&name].memory();
    let memory = memory.expect("the node runs");
    let records = memory.scan(b"r", b"s", usize::MAX).into_iter();
    let heads = records.filter_map(|(record, value)| {
        let head = tags::head(&record, &value.ok()?)?;
        (head.key == *key).then_some(record)
    });
    let found = heads.last().expect("there is a head");
    rot_record(stage, name, &found);
}

/// A record at a node rots, and the node loses power and starts again.
pub(super) fn rot_record(stage: &mut Stage, name: NodeName, key: &[u8]) {
    let machine = stage.world.machines.get_mut(&name);
    let machine = machine.expect("a node of this world");
    let value = machine.recall(key);
    let rotten = value.is_some_and(|value| machine.disk.rot_record(key, &value));
    stage.expect(rotten, "the record is in the log");
    stage.world.monitor.rotten(name);
    stage.world.stop(name, true);
    stage.world.start(name);
}

/// A put is at A alone when its client is told that nobody knows what came of it; the next holder
/// finds it.
pub(super) fn unknown_outcome(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.request = 3_000_000);
    let h2 = stage.client(&[5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[B, C]));
    stage.put(h1, s1, "v1");
    stage.world.kill_client(h1);
    stage.gone(s1);
    stage.discard(late);
    let without_b = stage.hold(answers(B, A));
    let entered = stage.enter(h2);
    stage.release(without_b);
    let Some(s2) = entered else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}
