//! What rots at a member whose store has ended, before or after its values have moved.

use super::Scenario;
use super::coded::rot;
use super::ring::{D, E, F, born, closed, is_ask, lists_to, next, propose};
use super::stage::{A, B, C, Stage, spread_to, value};
use crate::network::Parcel;
use crate::random;
use crate::world::World;
use bytes::Bytes;
use fermata_protocol::base::{LogId, NodeName, Scope};
use fermata_protocol::register::Ask;
use fermata_protocol::wire::record;
use fermata_protocol::{Memory, Message};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "ring-rotten-seal",
        about: "what became of a store is not known where an eventual value is",
        play: rotten_seal,
    },
    Scenario {
        name: "ring-rotten-end",
        about: "what became of a store is not known where it was deleted",
        play: rotten_end,
    },
    Scenario {
        name: "ring-rotten-stranger",
        about: "a seal rots where an eventual value is, and nothing is known of what was chosen",
        play: rotten_stranger,
    },
    Scenario {
        name: "ring-rotten-gift",
        about: "an eventual value rots at a member that is harvested",
        play: rotten_gift,
    },
];

/// What a member can read of what became of its stores.
fn statuses(world: &World, name: NodeName) -> Vec<(Bytes, Bytes)> {
    let memory = world.machines[&name].memory().expect("it runs");
    let (from, to) = record::all_statuses();
    let all = memory.scan(&from, &to, usize::MAX).into_iter();
    all.filter_map(|(key, value)| Some((key, value.ok()?)))
        .collect()
}

/// All of it rots, and the member starts again.
fn rot_statuses(stage: &mut Stage, name: NodeName) {
    let statuses = statuses(&stage.world, name);
    let machine = stage.world.machines.get_mut(&name).expect("a member");
    let mut rot = statuses.iter();
    let rotten = rot.all(|(key, value)| machine.disk.rot_record(key, value));
    stage.expect(rotten && !statuses.is_empty(), "a status is in the log");
    stage.world.monitor.rotten(name);
    stage.world.stop(name, true);
    stage.world.start(name);
}

/// A has deleted the store that it has given on, while C is down and owes; then the record rots by
/// which A knows that. Taken for sealed, the store would be read as one that was never written.
fn rotten_end(stage: &mut Stage) {
    let near = stage.client(&[1]);
    stage.section(near, "v1");
    stage.world.stop(C, true);
    let unlisted = stage.lose(lists_to(&[A, B]));
    next(stage, &[D, E, F]);
    let seals = statuses(&stage.world, A);
    stage.discard(unlisted);
    let deletes = |w: &World| statuses(w, A).iter().all(|status| !seals.contains(status));
    let ended = stage.until(deletes) && !seals.is_empty();
    stage.expect(ended, "A deletes what it owes nothing of");
    stage.pass(100);
    rot_statuses(stage, A);
    stage.pass(3_000);
    let unread = statuses(&stage.world, A).is_empty();
    stage.expect(unread, "nobody knows what became of A's store");
    stage.world.start(C);
    random::rest(&mut stage.world);
    let told = statuses(&stage.world, A)
        .iter()
        .all(|status| !seals.contains(status));
    stage.expect(told, "A's store was deleted");
}

/// Values have yet to move when the record rots by which A knows that it has sealed their store.
fn rotten_seal(stage: &mut Stage) {
    let (near, far) = (stage.client(&[1]), stage.client(&[5]));
    stage.lose(spread_to(&[B, C]));
    stage.eventual_put(near, "e1");
    let unlisted = stage.lose(lists_to(&[A, B, C]));
    next(stage, &[D, E, F]);
    rot_statuses(stage, A);
    stage.discard(unlisted);
    random::rest(&mut stage.world);
    let Some(section) = stage.enter(far) else {
        return;
    };
    let found = stage.found(section) == value("e1");
    stage.expect(found, "what A alone has is given on");
    stage.leave(far, section);
}

/// A has sealed its store by its vote and knows nothing of what was chosen when the seal rots; it
/// alone has an eventual value, and is asked for it.
fn rotten_stranger(stage: &mut Stage) {
    let (near, far) = (stage.client(&[1]), stage.client(&[5]));
    stage.lose(spread_to(&[B, C]));
    stage.eventual_put(near, "e1");
    stage.world.stop(A, true);
    stage.leader_other_than(A);
    stage.world.start(A);
    stage.pass(8_000);
    let group = |log: &LogId| log.scope == Scope::Group;
    let news = stage.lose(move |parcel| match parcel {
        Parcel::Peer { to: A, message, .. } => match message {
            Message::Paxos { log, .. } => group(log),
            message => matches!(message, Message::Ring(_)),
        },
        _ => false,
    });
    let before = propose(stage, &[D, E, F]);
    let sealed = stage.until(|w| !statuses(w, A).is_empty());
    stage.expect(sealed, "A votes for the end");
    let asked = stage.hold(|parcel| {
        matches!(parcel, Parcel::Peer { to: A, message, .. }
            if is_ask(message, |ask| matches!(ask, Ask::SealedRead { .. })))
    });
    born(stage, &[D, E, F], before);
    let all_moved = closed(stage, 30_000_000);
    stage.expect(all_moved, "what is complete has moved");
    let before = stage.world.network.held(asked);
    let harvested = stage.until(|w| w.network.held(asked) > before);
    stage.expect(harvested, "A is asked for what it owes");
    rot_statuses(stage, A);
    stage.pass(1_000);
    stage.release(asked);
    stage.pass(3_000);
    stage.discard(news);
    random::rest(&mut stage.world);
    let Some(section) = stage.enter(far) else {
        return;
    };
    let found = stage.found(section) == value("e1");
    stage.expect(found, "what A alone has is given on");
    stage.leave(far, section);
}

/// The record of an eventual value rots at A; B and C have the value, too.
fn rotten_gift(stage: &mut Stage) {
    let (near, h2) = (stage.client(&[1]), stage.client(&[5]));
    stage.eventual_put(near, "eventual-one");
    stage.pass(1_000);
    let key = stage.key.clone();
    rot(stage, A, &key, b"eventual-one");
    stage.leader_other_than(F);
    stage.pass(8_000);
    next(stage, &[D, E, F]);
    random::rest(&mut stage.world);
    stage.section(h2, "v");
}
