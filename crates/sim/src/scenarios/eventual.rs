//! Eventual gets beside earlier stores: who is asked, and what one member's answer is worth.

use super::Scenario;
use super::coded::terms;
use super::early::begin_long_put;
use super::ring::{D, E, F, closed, comes, lists_to, next};
use super::stage::{A, B, C, Stage, long, value};
use crate::history::Heard;
use crate::network::{ClientId, Parcel};
use fermata_protocol::Message;
use fermata_protocol::base::{KeyId, NodeName, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::register::{Ask, Message as Register};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "eventual-get-of-parts",
        about: "a coded value is written where all members are new, and got through every node",
        play: of_parts,
    },
    Scenario {
        name: "eventual-get-closed",
        about: "the only node that is reached says that the earlier store is closed",
        play: closed_elsewhere,
    },
    Scenario {
        name: "eventual-get-one-dead",
        about: "the only member that was there before dies, with a key that has not moved",
        play: one_dead,
    },
    Scenario {
        name: "eventual-get-dead-first",
        about: "the only member that was there before dies, with a key that has moved",
        play: dead_first,
    },
    Scenario {
        name: "eventual-get-one-present",
        about: "one new member is reached, and a quorum of those that were there before",
        play: one_present,
    },
    Scenario {
        name: "eventual-get-mark-alone",
        about: "the only node that is reached has the mark of a key, and not its value",
        play: mark_alone,
    },
    Scenario {
        name: "eventual-get-mark-later",
        about: "a member has the mark of a key and not its value, and the others are silent",
        play: mark_later,
    },
];

fn long_section(stage: &mut Stage, client: ClientId, text: &str) {
    let Some(section) = stage.enter(client) else {
        return;
    };
    if let Some(put) = begin_long_put(stage, client, section, text) {
        stage.wait(put);
    }
    stage.leave(client, section);
}

/// What an eventual get gives, and after how many milliseconds.
fn get(stage: &mut Stage, client: ClientId) -> (Heard, u64) {
    let (key, began) = (stage.key.clone(), stage.world.now);
    let get = stage.call(client, Call::Get { key });
    let heard = stage.wait(get);
    (heard, (stage.world.now - began) / 1_000)
}

/// Asks of this key, if any, that move a value or store one are lost on their way to this member,
/// if any; marks are not.
fn no_values(stage: &mut Stage, of: Option<KeyId>, to: Option<NodeName>) {
    stage.lose(move |parcel| {
        let Parcel::Peer {
            to: at,
            message: Message::Register(Register::Ask { key, ask, .. }),
            ..
        } = parcel
        else {
            return false;
        };
        let stores = matches!(
            ask,
            Ask::Carry { .. } | Ask::Store { .. } | Ask::Repair { .. }
        );
        stores && to.is_none_or(|to| to == *at) && of.as_ref().is_none_or(|of| of == key)
    });
}

/// Some key of the segment does not move, so that its source stays open; the stage's own does.
fn stays_open(stage: &mut Stage, client: ClientId) {
    let (own, beside) = (stage.key.clone(), stage.key_beside("x"));
    stage.key = beside.clone();
    stage.section(client, "w");
    stage.key = own;
    no_values(stage, Some(beside), None);
}

/// Requests end after four seconds.
fn short_requests(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = 4_000_000);
}

/// One member has a part of v2, which decodes alone to nothing; the source has v1.
fn of_parts(stage: &mut Stage) {
    stage.key = stage.keyspace(5, Purpose::Sections, StoragePolicy::Coded(terms(1)));
    let clients: Vec<ClientId> = (1..=8).map(|n| stage.client(&[n])).collect();
    long_section(stage, clients[0], "v1");
    let (Some(x), Some(y)) = (comes(stage), comes(stage)) else {
        return;
    };
    let unlisted = stage.lose(lists_to(&[A, B, C, D, E, F]));
    next(stage, &[F, NodeName(7), NodeName(8), x, y]);
    long_section(stage, clients[0], "v2");
    stage.pass(3_000);
    for client in clients {
        let (heard, _) = get(stage, client);
        stage.expect(heard == Heard::Value(long("v2")), "every node gives v2");
    }
    stage.discard(unlisted);
}

/// A does not know that the source is closed, and reaches D alone.
fn closed_elsewhere(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client(&[1]);
    stage.section(client, "v1");
    next(stage, &[D, E, F]);
    let deaf = stage.lose(
        |parcel| matches!(parcel, Parcel::Peer { to, message: Message::Ring(_), .. } if *to == A),
    );
    let shut = closed(stage, 40_000_000);
    stage.expect(shut, "the source is closed");
    stage.pass(2_000);
    stage.cut(A, &[B, C, E, F]);
    let (heard, _) = get(stage, client);
    stage.expect(heard == Heard::Value(value("v1")), "D alone tells");
    stage.mend();
    stage.discard(deaf);
}

/// A was there before, and dies. Every store has its quorum.
fn one_dead(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client(&[6]);
    stage.section(client, "v1");
    let unlisted = stage.lose(lists_to(&[A, B, C, D, E, F]));
    next(stage, &[A, D, E]);
    stage.world.stop(A, true);
    // It is asked first while it is taken to live, and not later.
    for most in [1_500, 1_500, 400] {
        let (heard, took) = get(stage, client);
        let told = heard == Heard::Value(value("v1")) && took < most;
        stage.expect(told, "who is left tells");
        stage.pass(3_000);
    }
    stage.leader_other_than(A);
    stage.section(client, "v2");
    stage.discard(unlisted);
    stage.world.start(A);
}

/// A was there before, and dies. D and E have the value, and are asked first.
fn dead_first(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client(&[6]);
    stage.section(client, "v1");
    stays_open(stage, client);
    next(stage, &[A, D, E]);
    stage.pass(12_000);
    stage.world.stop(A, true);
    stage.leader_other_than(A);
    stage.pass(6_000);
    let (heard, took) = get(stage, client);
    let told = heard == Heard::Value(value("v1")) && took < 400;
    stage.expect(told, "a member that lives is asked first");
    stage.world.start(A);
}

/// A reaches D alone of the new members: with the source's quorum that is enough.
fn one_present(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client(&[1]);
    stage.section(client, "v1");
    let unlisted = stage.lose(lists_to(&[A, B, C, D, E, F]));
    next(stage, &[D, E, F]);
    stage.cut(A, &[E, F]);
    let (heard, _) = get(stage, client);
    stage.expect(heard == Heard::Value(value("v1")), "D and the source tell");
    stage.mend();
    stage.discard(unlisted);
}

/// E has the mark and no value, and is the only one that A reaches: nobody can say that there is no
/// value any more.
fn mark_alone(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client_with(&[1], |o| o.attempt = 8_000_000);
    stage.section(client, "v1");
    stays_open(stage, client);
    no_values(stage, None, Some(E));
    next(stage, &[D, E, F]);
    stage.pass(12_000);
    stage.cut(A, &[D, F]);
    let key = stage.key.clone();
    stage.call(client, Call::Get { key });
    stage.pass(6_000);
    stage.mend();
    let (heard, _) = get(stage, client);
    stage.expect(heard == Heard::Value(value("v1")), "the others have it");
}

/// F has the mark and no value, and is asked when A and B, which were there before, are silent.
fn mark_later(stage: &mut Stage) {
    short_requests(stage);
    let client = stage.client_with(&[4], |o| o.attempt = 8_000_000);
    stage.section(client, "v1");
    stays_open(stage, client);
    no_values(stage, None, Some(F));
    next(stage, &[A, B, F]);
    stage.pass(12_000);
    stage.cut(D, &[A, B]);
    let key = stage.key.clone();
    let get = stage.call(client, Call::Get { key });
    stage.pass(2_500);
    stage.mend();
    let heard = stage.wait(get);
    stage.expect(heard == Heard::Value(value("v1")), "who has it tells");
}
