//! Listings while members change: as stale as one replica, and no more.

use super::Scenario;
use super::ring::{D, E, F, FIRST, lists_to, next};
use super::stage::{A, B, C, Stage};
use super::upkeep::delete;
use crate::history::{Heard, OpId};
use crate::network::{ClientId, Parcel};
use crate::{nemesis, random};
use bytes::Bytes;
use fermata_protocol::Message;
use fermata_protocol::base::{KeyId, SegmentId};
use fermata_protocol::client::Call;

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "listed-while-moving",
        about: "keys that have not moved, and one that is deleted meanwhile, are listed",
        play: while_moving,
    },
    Scenario {
        name: "listed-by-a-former-member",
        about: "a coordinator that slept through a change asks a member that has left for the keys",
        play: by_a_former_member,
    },
    Scenario {
        name: "listed-after-a-split",
        about: "a coordinator that slept through a split asks a member of one half for all keys",
        play: after_a_split,
    },
];

/// A section puts a value under a key.
fn put_in_section(stage: &mut Stage, client: ClientId, key: KeyId) {
    let own = std::mem::replace(&mut stage.key, key);
    stage.section(client, "v1");
    stage.key = own;
}

fn asks(stage: &mut Stage, client: ClientId) -> OpId {
    let call = Call::Keys {
        keyspace: stage.key.keyspace,
        prefix: Bytes::new(),
        after: None,
        limit: 100,
    };
    stage.call(client, call)
}

/// It is told of these keys and of no others.
fn is_told(stage: &mut Stage, op: OpId, mut keys: Vec<KeyId>, when: &str) {
    keys.sort();
    let keys = keys.into_iter().map(|key| key.key).collect();
    let told = stage.wait(op) == Heard::Keys(keys);
    stage.expect(told, when);
}

/// Each of these is told of this key and of no other.
fn all_are_told(stage: &mut Stage, clients: &[ClientId], key: &KeyId, when: &str) {
    for client in clients {
        let op = asks(stage, *client);
        is_told(stage, op, vec![key.clone()], when);
    }
}

/// The values of two keys stay with the former members for a while, and one of them is deleted.
fn while_moving(stage: &mut Stage) {
    let clients = stage.clients([1, 4, 6]);
    let (kept, deleted) = (stage.key.clone(), stage.other_key());
    for key in [&kept, &deleted] {
        put_in_section(stage, clients[0], key.clone());
    }
    let still = stage.lose(lists_to(&[A, B, C]));
    next(stage, &[D, E, F]);
    stage.key = deleted;
    delete(stage, clients[1]);
    all_are_told(
        stage,
        &clients,
        &kept,
        "a key that has not moved is listed, alone",
    );
    stage.discard(still);
    random::rest(&mut stage.world);
    all_are_told(
        stage,
        &clients,
        &kept,
        "a key that has moved is listed, alone",
    );
}

/// F hears nothing while A and B leave and all has moved; then it hears of everything but where the
/// group is.
fn by_a_former_member(stage: &mut Stage) {
    let [near, sleeper] = stage.clients([1, 6]);
    let key = stage.key.clone();
    stage.section(near, "v1");
    stage.isolate(F);
    next(stage, &[C, D, E]);
    stage.pass(30_000);
    is_told_late(stage, sleeper, vec![key]);
}

/// The group goes on as two, with one member in common, while F hears nothing.
fn after_a_split(stage: &mut Stage) {
    next(stage, &[A, B, C, D, E]);
    let [near, sleeper] = stage.clients([1, 6]);
    let keys = [stage.key.clone(), stage.other_key()];
    for key in &keys {
        put_in_section(stage, near, key.clone());
    }
    stage.isolate(F);
    let session = 0xbeef + stage.world.now;
    nemesis::split_at(
        &mut stage.world,
        FIRST,
        session,
        SegmentId(1),
        &[A, B, C],
        &[C, D, E],
    );
    stage.pass(30_000);
    is_told_late(stage, sleeper, keys.to_vec());
}

/// A node is heard again, and does not hear for a while where groups are.
fn is_told_late(stage: &mut Stage, sleeper: ClientId, keys: Vec<KeyId>) {
    let deaf = stage.lose(
        |parcel| matches!(parcel, Parcel::Peer { to, message: Message::Ring(_), .. } if *to == F),
    );
    stage.mend();
    let op = asks(stage, sleeper);
    stage.pass(2_000);
    stage.discard(deaf);
    is_told(
        stage,
        op,
        keys,
        "who was asked last lists all that there is",
    );
}
