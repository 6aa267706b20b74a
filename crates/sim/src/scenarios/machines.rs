//! Nodes that are deposed, restarted, wiped, and change their view.

use super::stage::{A, B, C, Stage, answers, store_of};
use crate::history::{Heard, SectionIx};
use crate::network::{ClientId, End, Parcel};
use crate::world::World;
use fermata_protocol::base::NodeName;
use fermata_protocol::client::Call;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, paxos};

/// F2: the group goes on under the next epoch with the same members; sections before and after.
pub(super) fn change_of_view(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    for text in ["v1", "v2", "v3"] {
        stage.section(h1, text);
    }
    stage.next_epoch();
    stage.pass(10_000);
    let epochs = stage.world.machines.values().filter_map(|m| m.node());
    let moved = epochs
        .flat_map(|n| n.here().groups.values())
        .all(|g| g.state.location().epoch().0 > 1);
    stage.expect(moved, "the group has changed its view");
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "w");
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// G46: A is dead, and others lead in its place. A node enters whose only word of the segment's
/// primary is that it was A.
pub(super) fn dead_primary(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    stage.section(h1, "v1");
    stage.world.stop(A, true);
    stage.leader_other_than(A);
    stage.pass(stage.world.setup.timing.lease / 1_000);
    let begun = stage.world.now;
    let Some(s1) = stage.enter(h1) else { return };
    let took = stage.world.now - begun;
    stage.put(h1, s1, "v2");
    stage.leave(h1, s1);
    let asked = took >= stage.world.setup.timing.retry;
    stage.expect(!asked, "nobody waits for an answer of the dead");
}

/// G17: C is cut off while its group goes on under the next epoch, twice. It comes back; then A is
/// cut off, and B serves with C.
pub(super) fn late_member(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    stage.section(h1, "v1");
    let rest: Vec<_> = [1, 2, 4, 5, 6].map(NodeName).to_vec();
    stage.cut(C, &rest);
    for (text, epoch) in [("v2", 2), ("v3", 3)] {
        stage.section(h1, text);
        stage.next_epoch();
        let there = stage.until(|w| epoch_at(w, B) == epoch);
        stage.expect(
            there,
            "the group goes on without the member that is cut off",
        );
        stage.pass(6_000);
    }
    stage.section(h1, "v4");
    stage.mend();
    let there = stage.until(|w| epoch_at(w, C) == 3);
    stage.expect(there, "a member that was away for two epochs comes back");
    stage.pass(6_000);
    let rest: Vec<_> = [2, 3, 4, 5, 6].map(NodeName).to_vec();
    stage.cut(A, &rest);
    stage.leader_other_than(A);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.put(h2, s2, "w");
    stage.leave(h2, s2);
    stage.mend();
    stage.pass(6_000);
}

/// The lowest epoch of all logs of a node.
fn epoch_at(world: &World, name: NodeName) -> u64 {
    let Some(node) = world.machines[&name].node() else {
        return 0;
    };
    let groups = node.here().groups.values().map(|g| g.log.id().epoch);
    let segments = node.here().segments.values().map(|s| s.log.id().epoch);
    groups.chain(segments).map(|e| e.0).min().unwrap_or(0)
}

/// F10: A leads with B's lease alone. B restarts, and A is cut off but for one node that still
/// reads lock queues from it; C leads with B.
pub(super) fn restarted_acceptor(stage: &mut Stage) {
    let (h1, h2, reader) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = stage.enter(h1) else { return };
    // C hears nothing of A for longer than a lease, and wants to lead.
    stage.cut(A, &[C]);
    stage.pass(6_000);
    let names: Vec<_> = [2, 3, 4, 5].map(NodeName).to_vec();
    stage.cut(A, &names);
    stage.world.stop(B, true);
    stage.world.start(B);
    leave_and_enter_elsewhere(stage, (h1, s1), h2, reader);
}

/// The holder leaves and another enters, through whoever leads on their side; then somebody on the
/// other side reads the queue.
fn leave_and_enter_elsewhere(
    stage: &mut Stage,
    (h1, s1): (ClientId, SectionIx),
    h2: ClientId,
    reader: ClientId,
) {
    let key = stage.key.clone();
    stage
        .world
        .note(|| "! the holder leaves through the new primary, and another enters".into());
    if let Some(section) = stage.world.clients[h1.0 as usize].name_of(s1) {
        stage.call(
            h1,
            Call::Leave {
                section,
                wait: true,
            },
        );
    }
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| *w.outcome(enter) != Heard::Open);
    stage.pass(1);
    let read = stage.call(reader, Call::Queue { key });
    stage.pass(1_500);
    let _ended = stage.world.outcome(read);
    stage.mend();
}

/// G45: A is cut off but for one node that still reads lock queues from it, and all others are told
/// that its process is gone.
pub(super) fn rumour(stage: &mut Stage) {
    let (h1, h2, reader) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = stage.enter(h1) else { return };
    let others: Vec<_> = [2, 3, 4, 5].map(NodeName).to_vec();
    stage.cut(A, &others);
    for other in others {
        stage.world.rumour(other, A);
    }
    leave_and_enter_elsewhere(stage, (h1, s1), h2, reader);
}

/// G41: A synchs for the next holder, and is cut off before the others have answered; the synch
/// fails when A has no lease any more.
pub(super) fn cut_off_primary(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = 6_000_000);
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    if stage.enter(h1).is_none() {
        return;
    }
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    let late = [B, C].map(|name| stage.hold(answers(name, A)));
    stage.world.kill_client(h1);
    stage.until(|w| late.iter().all(|rule| w.network.held(*rule) > 0));
    stage.isolate(A);
    stage.pass(12_000);
    stage.mend();
    for rule in late {
        stage.discard(rule);
    }
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.leave(h2, s2);
}

/// F13: a command is accepted by A and C, chosen, and acted upon; A is cut off; B leads with C.
pub(super) fn deposed_leader(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    stage.section(h1, "v0");
    let not_b = stage.world.network.lose(|p| {
        matches!(p, Parcel::Peer { to, message: Message::Paxos { message, .. }, .. }
            if *to == B && matches!(message, paxos::Message::Accept { .. }))
    });
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let rest: Vec<_> = stage
        .world
        .machines
        .keys()
        .copied()
        .filter(|n| *n != A)
        .collect();
    stage.cut(A, &rest);
    stage.release(not_b);
    let c_is_modest = stage.world.network.lose(|p| {
        matches!(p, Parcel::Peer { from, message: Message::Paxos { message, .. }, .. }
            if from.name == C && matches!(message, paxos::Message::Prepare { .. }))
    });
    stage.leader_other_than(A);
    let mute = stage.mute(h1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.mend();
    stage.release(c_is_modest);
    stage.release(mute);
    stage.pass(3_000);
}

/// A put is at A and B; B's disk is replaced by an empty one; A is down.
pub(super) fn lost_disk(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    // Only of the put itself, not of the synch that will find it.
    let to_c = store_of("v1", &[C]);
    let by_put = |p: &Parcel| matches!(p, Parcel::Peer { from, .. } if from.name.0 == 4);
    let late = stage.hold(move |p| by_put(p) && to_c(p));
    stage.put(h1, s1, "v1");
    stage.world.kill_client(h1);
    stage.world.stop(B, true);
    stage
        .world
        .machines
        .get_mut(&B)
        .expect("a node of this world")
        .wipe();
    stage.world.monitor.wiped(B);
    stage.world.start(B);
    stage.pass(2_000);
    stage.world.stop(A, true);
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(20_000);
    stage.world.start(A);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.world.discard(late);
}

/// A creates its log behind a flush that takes long, and loses power; H1's enqueue was on its way
/// to B alone. A creates the log once more, and owns its first ballot again.
pub(super) fn created_twice(stage: &mut Stage) {
    stage.dark();
    let (h1, h2) = (stage.client(&[2]), stage.client(&[3]));
    flush_takes(stage, A, 3_000_000);
    for name in [A, B, C] {
        stage.world.start(name);
    }
    let to_c = stage.lose(commands_to(C));
    stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(5_000);
    stage.world.kill_client(h1);
    stage.world.stop(A, true);
    flush_takes(stage, A, 500);
    stage.world.start(A);
    let started = stage.world.machines[&A].node().map(|n| n.here().started);
    stage.expect(started == Some(false), "A has lost the log that it created");
    stage.release(to_c);
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    stage.leave(h2, s2);
}

/// What carries commands of a log to a node.
fn commands_to(name: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Paxos { message, .. }, .. }
        if *to == name && matches!(message, paxos::Message::Accept {
            entry: paxos::Entry::Commands { .. }, ..
        }))
    }
}

/// A put is stored at one replica of three, which then goes down.
pub(super) fn quorum(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[B, C]));
    let Some(put) = stage.begin_put(h1, s1, "v1") else {
        return;
    };
    stage.pass(2_000);
    let open = *stage.world.outcome(put) == Heard::Open;
    stage.world.kill_client(h1);
    stage.world.stop(A, true);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.expect(open, "a put at one replica of three is not acknowledged");
    stage.world.discard(late);
}

/// Flushes take long; right after a put is acknowledged everything loses power.
pub(super) fn flush(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    flushes_take(stage, 700_000);
    // Behind a flush that has begun: what was not flushed does not survive by luck.
    stage.begin_put(h1, s1, "w");
    stage.pass(50);
    stage.put(h1, s1, "v1");
    power_fails(stage);
    stage.world.kill_client(h1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// Flushes take long; a write is at all members and at no disk when somebody reads, and then
/// everything loses power.
pub(super) fn read_before_flush(stage: &mut Stage) {
    let [writer, reader] = stage.clients([4, 5]);
    let key = stage.register();
    stage.write(writer, &key, "v0");
    flushes_take(stage, 700_000);
    // Behind a flush that has begun, of another key.
    let Some(section) = stage.enter(reader) else {
        return;
    };
    stage.begin_put(reader, section, "w");
    stage.pass(50);
    stage.begin_write(writer, &key, "v1");
    stage.pass(150);
    stage.begin_read(reader, &key);
    stage.pass(200);
    power_fails(stage);
    stage.read(reader, &key);
}

fn flushes_take(stage: &mut Stage, micros: u64) {
    for name in [A, B, C] {
        flush_takes(stage, name, micros);
    }
}

fn flush_takes(stage: &mut Stage, name: NodeName, micros: u64) {
    let machine = stage.world.machines.get_mut(&name);
    let disk = &mut machine.expect("a node of this world").disk;
    disk.latency = (micros, micros);
}

/// All three lose power, and start again on disks that are quick.
fn power_fails(stage: &mut Stage) {
    for name in [A, B, C] {
        stage.world.stop(name, true);
    }
    stage.pass(500);
    flushes_take(stage, 500);
    for name in [A, B, C] {
        stage.world.network.mend(End::Node(name), End::Node(name));
        stage.world.start(name);
    }
}
