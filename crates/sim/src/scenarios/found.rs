//! The schedules that were found while this system was built (docs/faults.md, G): grants, and who
//! ends what.

use super::stage::{
    A, B, C, LEASE, Stage, accepts_of, answers, grants_to, is_eventual_put, reads_by, spread_to,
    store_of, value,
};
use super::upkeep::tended;
use crate::history::{Heard, OpId, SectionIx};
use crate::network::{ClientId, Parcel};
use fermata_protocol::base::{KeyId, NodeName};
use fermata_protocol::client::Call;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, Operation, lock};

/// An eventual value at one replica alone, until the rule is released.
fn eventual_at_one(stage: &mut Stage, client: ClientId) {
    let (key, value) = (stage.key.clone(), value("e"));
    let put = stage.call(client, Call::Put { key, value });
    stage.wait(put);
}

fn everybody_but(name: NodeName) -> Vec<NodeName> {
    (1..=6).map(NodeName).filter(|n| *n != name).collect()
}

/// Gets again and again, at times without C's answers to the client's coordinator.
fn get_often(stage: &mut Stage, client: ClientId, section: SectionIx, coordinator: u32) {
    let without_c = stage.hold(answers(C, NodeName(coordinator)));
    stage.get(client, section);
    stage.release(without_c);
    for _ in 0..2 {
        stage.pass(200);
        stage.get(client, section);
    }
}

/// A goes down, another leads, and a client enters; A comes back, and the client reads, through the
/// coordinator that it is named with, and leaves.
fn reads_while_another_leads(
    stage: &mut Stage,
    (reader, coordinator): (ClientId, u32),
    enters: impl FnOnce(&mut Stage) -> Option<SectionIx>,
) {
    stage.world.stop(A, true);
    stage.leader_other_than(A);
    let entered = enters(stage);
    stage.world.start(A);
    stage.pass(2_000);
    if let Some(section) = entered {
        get_often(stage, reader, section, coordinator);
        stage.leave(reader, section);
    }
}

/// A's adoption is stored at A alone when A goes down; B leads; A comes back; the holder reads.
fn adoption_and_crash(stage: &mut Stage, reader: ClientId, enter: crate::history::OpId) {
    let stores = stage.hold(store_of("e", &[B, C]));
    stage.until(|w| w.network.held(stores) >= 2);
    stage.pass(50);
    reads_while_another_leads(stage, (reader, 5), |stage| stage.entered(enter));
    stage.world.discard(stores);
}

/// G1: an eventual value is at A alone; A adopts it for a holder that has just come.
pub(super) fn adoption(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[4]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[B, C]));
    eventual_at_one(stage, other);
    let stores = stage.hold(store_of("e", &[B, C]));
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(stores) >= 2);
    stage.discard(stores);
    adoption_and_crash(stage, h2, enter);
    stage.release(spread);
}

/// G2: the same for a holder that waited: the eventual value reaches A while another one holds.
pub(super) fn adoption_for_waiter(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    let to_b = stage.hold(spread_to(&[B]));
    let to_a = stage.hold(spread_to(&[A]));
    let without_c = stage.hold(answers(C, A));
    eventual_at_one(stage, other);
    let Some(s1) = stage.enter(h1) else { return };
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    stage.release(to_a);
    stage.pass(500);
    stage.leave_soon(h1, s1);
    adoption_and_crash(stage, h2, enter);
    stage.release(to_b);
    stage.release(without_c);
}

/// G3: a client gives up while the adoption in its name is at A alone; A goes down.
pub(super) fn gives_up(stage: &mut Stage) {
    let (h1, h2, h3) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let other = stage.client(&[4]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[B, C]));
    eventual_at_one(stage, other);
    let stores = stage.hold(store_of("e", &[B, C]));
    let call = Call::Enter {
        keys: vec![stage.key.clone()],
        mode: Mode::Exclusive,
        wait: 3_000_000,
        lease: Some(LEASE),
    };
    let enter = stage.call(h2, call);
    stage.wait(enter);
    stage.pass(100);
    reads_while_another_leads(stage, (h3, 6), |stage| stage.enter(h3));
    stage.discard(stores);
    stage.release(spread);
}

/// G4: a section is resumed before one that waits behind it.
pub(super) fn resumed_before_waiter(stage: &mut Stage) {
    let (h1, h2, h3) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    stage.world.kill_client(h1);
    stage.world.restart_client(h1);
    let resume = stage.resume(h1, s1);
    let Some(again) = stage.entered(resume) else {
        return;
    };
    stage.put(h1, again, "v2");
    stage.leave(h1, again);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.put(h2, s2, "v3");
    stage.leave(h2, s2);
    stage.section(h3, "v4");
}

/// G5: the push of a grant is slow, an eventual value spreads meanwhile, and the grant is prepared
/// again.
pub(super) fn grant_twice(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    let pushes = stage.hold(grants_to(&[5]));
    stage.cut(C, &[A, B]);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    eventual_at_one(stage, other);
    // From now on A reads at itself and C.
    let without_b = stage.hold(answers(B, A));
    stage.mend();
    stage.pass(5_000);
    stage.release(pushes);
    stage.release(without_b);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    for _ in 0..3 {
        stage.get(h2, s2);
        stage.pass(200);
    }
    stage.leave(h2, s2);
}

/// G6: an enter that was repeated at another node is closed at the first one.
pub(super) fn cancelled_enter(stage: &mut Stage) {
    let (h0, h2) = (stage.client(&[6]), stage.client(&[6]));
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 800_000);
    let Some(s0) = stage.enter(h0) else { return };
    let deaf = stage
        .world
        .network
        .lose(|p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if from.0 == 4));
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(3_000);
    stage.leave(h0, s0);
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(3_000);
    still_holds(stage, h1, s1);
    stage.release(deaf);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.leave(h2, s2);
}

fn still_holds(stage: &mut Stage, client: ClientId, section: SectionIx) {
    let put = stage.put(client, section, "still");
    let acknowledged = matches!(put, Some(Heard::Done(_)));
    stage.expect(acknowledged, "a holder whose section nobody ended puts");
    stage.leave(client, section);
}

/// G7: a living holder that goes on renewing is replaced by force.
pub(super) fn living_holder(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let lock_ref = stage.queue_at(A)[0];
    let key = stage.key.clone();
    let release = stage.call(other, Call::Release { key, lock_ref });
    let done = matches!(stage.wait(release), Heard::Done(_));
    stage.expect(done, "a forced release of a living holder takes effect");
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    stage.get(h1, s1);
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

fn shared(stage: &mut Stage, client: ClientId, keys: Vec<KeyId>) -> OpId {
    stage.enter_keys(client, keys, Mode::Shared)
}

/// A reader is the front of the key's queue, and waits for another key, which a holder has; the
/// eventual value is newer.
struct WaitingFront {
    holder: (ClientId, SectionIx),
    front: (ClientId, OpId),
}

impl WaitingFront {
    fn of(stage: &mut Stage) -> Option<WaitingFront> {
        let [h1, front, other] = stage.clients([4, 5, 4]);
        stage.section(h1, "v0");
        stage.pass(1_000);
        eventual_at_one(stage, other);
        stage.pass(3_000);
        let beside = stage.key_beside("x");
        let holds = stage.enter_keys(h1, vec![beside.clone()], Mode::Exclusive);
        let s1 = stage.entered(holds)?;
        let keys = vec![stage.key.clone(), beside];
        let first = shared(stage, front, keys);
        stage.pass(500);
        Some(WaitingFront {
            holder: (h1, s1),
            front: (front, first),
        })
    }

    /// The holder leaves, and the front enters.
    fn enters(&self, stage: &mut Stage) -> Option<SectionIx> {
        stage.leave(self.holder.0, self.holder.1);
        stage.entered(self.front.1)
    }
}

/// G9: a second reader enters, and then the front.
pub(super) fn front_waits(stage: &mut Stage) {
    let second = stage.client(&[6]);
    let Some(waiting) = WaitingFront::of(stage) else {
        return;
    };
    let keys = vec![stage.key.clone()];
    let op = shared(stage, second, keys);
    let Some(s2) = stage.entered(op) else { return };
    stage.get(second, s2);
    let Some(s3) = waiting.enters(stage) else {
        return;
    };
    stage.get(second, s2);
    stage.get(waiting.front.0, s3);
    stage.leave(second, s2);
    stage.leave(waiting.front.0, s3);
}

/// G9: the same, but a primary begins before the second reader enters, and another one when that
/// has left.
pub(super) fn front_inherited(stage: &mut Stage) {
    let second = stage.client(&[6]);
    let Some(waiting) = WaitingFront::of(stage) else {
        return;
    };
    stage.next_epoch();
    stage.pass(3_000);
    let keys = vec![stage.key.clone()];
    let op = shared(stage, second, keys);
    let Some(s2) = stage.entered(op) else { return };
    stage.get(second, s2);
    stage.leave(second, s2);
    stage.next_epoch();
    stage.pass(3_000);
    if let Some(s3) = waiting.enters(stage) {
        stage.get(waiting.front.0, s3);
        stage.leave(waiting.front.0, s3);
    }
}

/// G9: the front of a batch of readers waits, a second one is inside, and C, which knows of
/// neither, takes an eventual put. Then a primary begins.
pub(super) fn told_reader(stage: &mut Stage) {
    let [h1, front, second, far] = stage.clients([4, 5, 6, 3]);
    stage.section(h1, "v0");
    let (key, beside) = (stage.key.clone(), stage.key_beside("x"));
    let holds = stage.enter_keys(h1, vec![beside.clone()], Mode::Exclusive);
    let Some(s1) = stage.entered(holds) else {
        return;
    };
    stage.pass(1_000);
    stage.cut(C, &[A, B]);
    let first = shared(stage, front, vec![key.clone(), beside]);
    stage.pass(500);
    let op = shared(stage, second, vec![key]);
    let Some(s2) = stage.entered(op) else { return };
    stage.get(second, s2);
    stage.eventual_put(far, "e");
    stage.mend();
    let not_b = stage.lose(reads_by(A, &[B]));
    stage.next_epoch();
    stage.pass(3_000);
    stage.leave(h1, s1);
    let entered = stage.entered(first);
    stage.discard(not_b);
    stage.get(second, s2);
    stage.leave(second, s2);
    if let Some(s3) = entered {
        stage.leave(front, s3);
    }
}

/// G9: the front of a batch of readers dies while its adoption is at A alone; A goes down.
pub(super) fn front_dies(stage: &mut Stage) {
    let (h1, reader, h3) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let other = stage.client(&[4]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[B, C]));
    eventual_at_one(stage, other);
    let stores = stage.hold(store_of("e", &[B, C]));
    stage.begin_enter(reader, Mode::Shared);
    stage.until(|w| w.network.held(stores) >= 2);
    stage.world.kill_client(reader);
    stage.pass(8_000);
    let gone = stage.queue_at(A).is_empty();
    stage.expect(gone, "a dead reader is released");
    reads_while_another_leads(stage, (h3, 6), |stage| stage.enter(h3));
    stage.discard(stores);
    stage.release(spread);
}

/// G10: a waiting ref is released while it becomes head; the news of its end is lost.
pub(super) fn released_waiter(stage: &mut Stage) {
    let (h1, h2, h3) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let other = stage.client(&[4]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let third = stage.begin_enter(h3, Mode::Exclusive);
    stage.pass(500);
    let lock_ref = stage.queue_at(A)[1];
    let accepts = stage.hold(accepts_of(A));
    stage.leave_soon(h1, s1);
    stage.pass(200);
    let key = stage.key.clone();
    stage.call(other, Call::Release { key, lock_ref });
    stage.pass(200);
    let no_news = stage.world.network.lose(|p| {
        matches!(p, Parcel::Peer { to, message: Message::Lock(lock::Message::Lost { .. }), .. }
            if to.0 == 5)
    });
    let mute = stage.mute(h2);
    stage.release(accepts);
    let Some(s3) = stage.entered(third) else {
        return;
    };
    stage.put(h3, s3, "v3");
    stage.leave(h3, s3);
    stage.release(no_news);
    stage.release(mute);
}

/// G11: a key is fenced by a primary of a high round when the epoch changes.
pub(super) fn fenced_key(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    stage.world.kill_client(h1);
    stage.cut(A, &everybody_but(A));
    stage.leader_other_than(A);
    let to_others = store_of("v0", &[A, B, C]);
    let stores = stage.hold(move |p| {
        let from_a = matches!(p, Parcel::Peer { from, .. } if from.name == A);
        !from_a && to_others(p)
    });
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(stores) > 0);
    stage.mend();
    stage.next_epoch();
    let moved = |w: &crate::world::World| {
        let nodes = w.machines.values().filter_map(|m| m.node());
        let mut groups = nodes.flat_map(|n| n.here().groups.values());
        groups.all(|g| g.state.location().epoch().0 > 1)
    };
    let moved = stage.until(moved);
    stage.expect(moved, "the group has changed its view");
    stage.pass(3_000);
    stage.discard(stores);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.put(h2, s2, "v2");
    stage.leave(h2, s2);
}

/// G12: at its first start A and C know everybody, B has not met C; A is cut off, and C loses its
/// disk.
pub(super) fn first_start(stage: &mut Stage) {
    stage.dark();
    stage.audited = false;
    let meets_c = stage.world.network.lose(|p| {
        let Parcel::Peer { from, to, message } = p else {
            return false;
        };
        let knows_c = match message {
            Message::Hello(hello) => hello.registry.get(C).is_some(),
            _ => true,
        };
        *to == B && (from.name == C || (from.name == A && knows_c))
    });
    for name in [A, B, C] {
        stage.world.start(name);
    }
    stage.pass(3_000);
    let (h1, h2) = (stage.client(&[1]), stage.client(&[2]));
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(10_000);
    if let Some(s1) = stage.world.history.ops[enter.0].section {
        stage.put(h1, s1, "v1");
    }
    stage.world.kill_client(h1);
    stage.cut(A, &[B, C]);
    stage.world.stop(C, true);
    stage.world.monitor.wiped(C);
    let machine = stage.world.machines.get_mut(&C);
    machine.expect("a node of this world").wipe();
    stage.discard(meets_c);
    stage.world.start(C);
    stage.pass(5_000);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.wait(enter);
    if let Some(s2) = stage.world.history.ops[enter.0].section {
        stage.get(h2, s2);
        stage.leave(h2, s2);
    }
}

/// G13: an enter's wait ends at a node that was cut off, long after the client has entered
/// elsewhere.
pub(super) fn stale_wait(stage: &mut Stage) {
    let (h0, h2) = (stage.client(&[6]), stage.client(&[6]));
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 1_000_000);
    let Some(s0) = stage.enter(h0) else { return };
    let call = Call::Enter {
        keys: vec![stage.key.clone()],
        mode: Mode::Exclusive,
        wait: 12_000_000,
        lease: Some(LEASE),
    };
    let enter = stage.call(h1, call);
    stage.pass(500);
    stage.cut(NodeName(4), &everybody_but(NodeName(4)));
    let silent = stage
        .world
        .network
        .lose(|p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if from.0 == 4));
    let closes = stage
        .world
        .network
        .lose(|p| matches!(p, Parcel::Cancel { to, .. } if to.0 == 4));
    stage.pass(4_000);
    stage.leave(h0, s0);
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    stage.pass(12_000);
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.mend();
    stage.release(silent);
    stage.release(closes);
    stage.pass(4_000);
    still_holds(stage, h1, s1);
    if let Some(s2) = stage.entered(second) {
        stage.leave(h2, s2);
    }
}

/// G14: a section is taken over while its client, who does not know, still has a lease.
pub(super) fn resume_beside_lease(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h2 = stage.client(&[5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let mute = stage.mute(h1);
    let resume = stage.resume(h2, s1);
    stage.until(|w| *w.outcome(resume) != Heard::Open);
    stage.pass(1);
    stage.get(h1, s1);
    stage.overwrites((h2, resume), (h1, s1));
    stage.release(mute);
}

/// G16: an eventual put is on its way to a node that is cut off; its client hears nothing for a
/// while. Meanwhile a section writes. Then the put arrives, and once more.
pub(super) fn put_twice(stage: &mut Stage) {
    let other = stage.client_with(&[4, 5], |o| o.attempt = 1_000_000);
    let (h1, h2) = (stage.client(&[6]), stage.client(&[6]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    let slow = stage.hold(|p| {
        let put = matches!(p, Parcel::Request { request, .. }
            if matches!(request.operation, Operation::Put { .. }));
        put && matches!(p, Parcel::Request { to, .. } if to.0 == 4)
    });
    let (key, e) = (stage.key.clone(), value("e"));
    let call = Call::Put {
        key,
        value: e.clone(),
    };
    let put = stage.call(other, call);
    stage.pass(5_000);
    stage.section(h1, "v1");
    stage.pass(1_000);
    let copies = stage.world.network.copy(is_eventual_put);
    stage.release(slow);
    stage.wait(put);
    stage.pass(3_000);
    let Some(s2) = stage.enter(h2) else { return };
    let adopted = stage.found(s2) == e;
    stage.expect(adopted, "a put that was late, and came once, is found");
    stage.put(h2, s2, "v2");
    stage.leave(h2, s2);
    stage.pass(1_000);
    stage.release(copies);
    stage.pass(3_000);
    let Some(s3) = stage.enter(h1) else { return };
    let kept = stage.found(s3) == value("v2");
    stage.expect(kept, "a copy of the put is not stored again");
    stage.leave(h1, s3);
}

/// G19: a write of a register is stored, and read, and its answer is lost; another write follows;
/// then the first one is repeated through another node.
pub(super) fn write_twice(stage: &mut Stage) {
    let writer = stage.client_with(&[4, 5], |o| {
        (o.attempt, o.request) = (3_000_000, 10_000_000);
    });
    let [other, reader] = stage.clients([6, 6]);
    let key = stage.register();
    let write = |text: &str| Call::Write {
        key: key.clone(),
        value: value(text),
    };
    let deaf = stage
        .lose(|p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if *from == NodeName(4)));
    let first = stage.call(writer, write("w1"));
    stage.pass(1_000);
    let read = stage.call(reader, Call::Read { key: key.clone() });
    let seen = stage.wait(read);
    stage.pass(1);
    let second = stage.call(other, write("w2"));
    stage.wait(second);
    stage.pass(1);
    let repeated = stage.wait(first);
    let read = stage.call(reader, Call::Read { key: key.clone() });
    stage.wait(read);
    stage.release(deaf);
    let came = seen == Heard::Value(value("w1"));
    stage.expect(came, "the first transmission has taken effect");
    let unknown = matches!(repeated, Heard::Unknown(_));
    stage.expect(unknown, "nobody says what came of the write");
}

/// G24: an eventual put is at A, and a later one at C alone, when a section adopts the first, which
/// it finds at A and B; it writes nothing. Members compare what they hold at the end.
pub(super) fn later_put(stage: &mut Stage) {
    tended(stage);
    let [near, far, h1, h2] = stage.clients([1, 3, 4, 5]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[A, B, C]));
    stage.eventual_put(near, "e1");
    stage.pass(100);
    stage.eventual_put(far, "e2");
    let without_c = stage.hold(answers(C, A));
    let Some(s1) = stage.enter(h1) else { return };
    stage.get(h1, s1);
    stage.leave(h1, s1);
    stage.release(without_c);
    stage.release(spread);
    stage.pass(1_000);
    let Some(s2) = stage.enter(h2) else { return };
    let found = (stage.found(s1), stage.found(s2));
    stage.leave(h2, s2);
    stage.pass(8_000);
    stage.expect(
        found == (value("e1"), value("e2")),
        "the later put is found once it has spread",
    );
}

/// G24: an adoption is stored at A, which alone has the eventual value, when A goes down; the next
/// primary settles what was there before, and nobody writes.
pub(super) fn replaced_adoption(stage: &mut Stage) {
    let [h1, h2, near] = stage.clients([4, 5, 1]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[B, C]));
    eventual_at_one(stage, near);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    adoption_and_crash(stage, h2, enter);
    stage.discard(spread);
    stage.pass(1_000);
    let key = stage.key.clone();
    let get = stage.call(near, Call::Get { key });
    let found = stage.wait(get);
    stage.expect(found == Heard::Value(value("e")), "the put is still there");
}

/// G26: an eventual put is at C alone. A section enters by A and B, and its put reaches C alone; it
/// is forced out, and the next section's synch hears A and B.
pub(super) fn put_at_one(stage: &mut Stage) {
    let [h1, h2, far] = stage.clients([4, 5, 3]);
    stage.section(h1, "v0");
    stage.pass(1_000);
    let spread = stage.hold(spread_to(&[A, B]));
    eventual_at_one(stage, far);
    let without_c = stage.hold(answers(C, A));
    let Some(s1) = stage.enter(h1) else { return };
    let late = stage.hold(store_of("p", &[A, B]));
    stage.begin_put(h1, s1, "p");
    stage.pass(300);
    stage.world.kill_client(h1);
    let Some(s2) = stage.enter(h2) else { return };
    let found = stage.found(s2);
    stage.discard(late);
    stage.discard(spread);
    stage.leave(h2, s2);
    stage.release(without_c);
    stage.pass(1_000);
    let key = stage.key.clone();
    let get = stage.call(far, Call::Get { key });
    let kept = stage.wait(get);
    stage.expect(found == value("v0"), "the put has come to nothing");
    let so = kept == Heard::Value(value("e"));
    stage.expect(so, "the eventual put is still there");
}
