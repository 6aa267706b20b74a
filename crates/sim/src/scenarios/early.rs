//! What is asked of members that do not know yet that the store is to be theirs.

use super::Scenario;
use super::coded::terms;
use super::ring::{D, F, goes_on, press};
use super::stage::{A, B, C, Stage, accepts_of, answers, is_eventual_put, long, parts_of, value};
use crate::history::{Heard, OpId, SectionIx};
use crate::network::{ClientId, Parcel, RuleId};
use fermata_protocol::base::{NodeName, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, lock, paxos, ring};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "ring-asked-early",
        about: "two puts of a holder reach members that have yet to hear of the end of their log",
        play: asked_early,
    },
    Scenario {
        name: "ring-many-asked-early",
        about: "a member that hears nothing of the store to be its own is asked by a crowd",
        play: many_asked_early,
    },
    Scenario {
        name: "ring-many-put-early",
        about: "eventual puts reach a member that has yet to hear of its store, and copies of them",
        play: many_put_early,
    },
    Scenario {
        name: "ring-put-early-copied",
        about: "a copy of an eventual put comes while the put waits for its store",
        play: put_early_copied,
    },
    Scenario {
        name: "ring-put-early-two-epochs",
        about: "an eventual put waits for a store that has ended when its member hears of it",
        play: put_early_two_epochs,
    },
    Scenario {
        name: "ring-put-early-restart",
        about: "a member that keeps an eventual put loses its memory, and a copy comes later",
        play: put_early_restart,
    },
    Scenario {
        name: "asked-before-it-leads",
        about: "who has asked nodes for a primary before there was one is told of it",
        play: asked_before_it_leads,
    },
];

/// What tells any of these that a log has ended, or what follows it.
fn end_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        let Parcel::Peer {
            to: at, message, ..
        } = parcel
        else {
            return false;
        };
        let tells = match message {
            Message::Beat(_) => true,
            Message::Ring(message) => matches!(message, ring::Message::Location(_)),
            Message::Paxos { message, .. } => !matches!(message, paxos::Message::Accept { .. }),
            _ => false,
        };
        tells && to.contains(at)
    }
}

pub(super) fn begin_long_put(
    stage: &mut Stage,
    client: ClientId,
    section: SectionIx,
    text: &str,
) -> Option<OpId> {
    let call = Call::CriticalPut {
        section: stage.world.clients[client.0 as usize].name_of(section)?,
        key: stage.key.clone(),
        value: long(text),
    };
    Some(stage.call(client, call))
}

/// A learns that a log of this epoch has ended.
fn ends_at_a(stage: &mut Stage, epoch: u64) {
    let ended = stage.until(|w| {
        let here = w.machines[&A].node().map(fermata_protocol::Node::here);
        here.is_some_and(|here| here.segments.values().any(|s| s.log.id().epoch.0 > epoch))
    });
    stage.expect(ended, "the log ends");
}

/// Five vote for the end of the log, which B and C do not learn of. A node without a seat takes
/// both puts to A and D, which are in the next epoch, to B and C, which are not, and to a new
/// member, which hears nothing; the second one reaches B and C alone. They answer once they have
/// heard.
fn asked_early(stage: &mut Stage) {
    stage.key = stage.keyspace(5, Purpose::Sections, StoragePolicy::Coded(terms(1)));
    let h = stage.client(&[7]);
    let Some(section) = stage.enter(h) else {
        return;
    };
    let late = stage.hold(end_to(&[B, C]));
    let unborn = stage.hold(end_to(&[F]));
    let before = press(stage, &[A, B, C, D, F]);
    ends_at_a(stage, before);
    let lost = stage.lose(parts_of("v2", &[A, D, F]));
    let puts = ["v1", "v2"].map(|text| begin_long_put(stage, h, section, text));
    stage.pass(150);
    stage.release(late);
    if let [Some(first), Some(second)] = puts {
        let done = stage.wait(first);
        stage.expect(
            matches!(done, Heard::Done(_)),
            "four of five have the first put",
        );
        stage.discard(lost);
        stage.release(unborn);
        stage.wait(second);
    }
    goes_on(stage, &[A, B, C, D, F], before);
}

/// F is to have a seat, and hears nothing of it. It keeps the asks of a crowd as far as it has
/// room, and refuses those beyond at once, and after a while all.
fn many_asked_early(stage: &mut Stage) {
    stage.key = stage.keyspace(5, Purpose::Registers, StoragePolicy::Replicated);
    let (key, readers) = (stage.key.clone(), 80);
    let clients: Vec<ClientId> = (0..readers).map(|_| stage.client(&[7])).collect();
    stage.write(clients[0], &key, "v1");
    let unborn = stage.hold(end_to(&[F]));
    let before = press(stage, &[A, B, C, D, F]);
    ends_at_a(stage, before);
    stage.read(clients[0], &key);
    let told = stage.hold(answers(F, NodeName(7)));
    let reads: Vec<OpId> = clients.iter().map(|c| stage.begin_read(*c, &key)).collect();
    stage.pass(100);
    let refused = stage.world.network.held(told);
    stage.expect(
        (1..readers).contains(&refused),
        "what there is no room for is refused at once",
    );
    stage.pass(400);
    let refused = stage.world.network.held(told);
    stage.expect(refused >= readers, "all is refused after a while");
    stage.release(told);
    for read in reads {
        stage.wait(read);
    }
    stage.release(unborn);
    goes_on(stage, &[A, B, C, D, F], before);
}

/// F takes the seat of C, and hears nothing of it; copies of eventual puts are kept. What keeps the
/// news from F, the copies, and the epoch before.
fn unborn(stage: &mut Stage, client: ClientId) -> (RuleId, RuleId, u64) {
    stage.section(client, "v0");
    stage.pass(1_000);
    let unborn = stage.hold(end_to(&[F]));
    let epoch = press(stage, &[A, B, F]);
    ends_at_a(stage, epoch);
    stage.pass(200);
    let copies = stage.world.network.copy(is_eventual_put);
    (unborn, copies, epoch)
}

/// C, now without a seat, sends F more eventual puts than it keeps, and more than those of which it
/// knows each name. Those that it has kept end well once it has heard; copies that arrive later are
/// nothing (G16).
fn many_put_early(stage: &mut Stage) {
    let clients: Vec<ClientId> = (0..100).map(|_| stage.client(&[3])).collect();
    let (unborn, copies, epoch) = unborn(stage, clients[0]);
    let put = |stage: &mut Stage, (text, client): (usize, &ClientId)| {
        let (key, value) = (stage.key.clone(), value(&format!("e{text}")));
        stage.call(*client, Call::Put { key, value })
    };
    let puts: Vec<OpId> = clients.iter().enumerate().map(|c| put(stage, c)).collect();
    stage.pass(200);
    let open = |stage: &Stage| {
        let puts = puts.iter();
        puts.filter(|put| *stage.world.outcome(**put) == Heard::Open)
            .count()
    };
    let kept = open(stage);
    stage.expect(
        (1..100).contains(&kept),
        "some are kept, and for some there is no room",
    );
    stage.release(unborn);
    for put in &puts {
        let heard = stage.wait(*put);
        stage.expect(matches!(heard, Heard::Done(_)), "each put is done");
    }
    stage.section(clients[0], "v1");
    stage.pass(1_000);
    stage.release(copies);
    stage.pass(1_000);
    let Some(section) = stage.enter(clients[1]) else {
        return;
    };
    let found = stage.found(section) == value("v1");
    stage.expect(found, "a copy of a put is nothing");
    stage.leave(clients[1], section);
    goes_on(stage, &[A, B, F], epoch);
}

/// C, now without a seat, sends F an eventual put.
fn put_early(stage: &mut Stage, client: ClientId) -> (OpId, RuleId, RuleId, u64) {
    let (unborn, copies, epoch) = unborn(stage, client);
    let (key, value) = (stage.key.clone(), value("e1"));
    let put = stage.call(client, Call::Put { key, value });
    stage.pass(100);
    (put, unborn, copies, epoch)
}

fn put_early_copied(stage: &mut Stage) {
    let client = stage.client(&[3]);
    let (put, unborn, copies, epoch) = put_early(stage, client);
    stage.release(copies);
    stage.pass(50);
    stage.release(unborn);
    let heard = stage.wait(put);
    stage.expect(matches!(heard, Heard::Done(_)), "the put is done");
    goes_on(stage, &[A, B, F], epoch);
}

/// Sections have written when a copy comes: it is nothing.
fn copies_are_nothing(stage: &mut Stage, copies: RuleId) {
    let client = stage.client(&[5]);
    stage.section(client, "v2");
    stage.pass(1_000);
    stage.release(copies);
    stage.pass(2_000);
    let Some(section) = stage.enter(client) else {
        return;
    };
    let found = stage.found(section) == value("v2");
    stage.expect(found, "a copy of a put is nothing");
    stage.leave(client, section);
}

/// Nothing is refused for being kept too long; and C does not hear of the second change.
fn put_early_two_epochs(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.retry = 20_000_000;
        setup.timing.request = 40_000_000;
    });
    let client = stage.client(&[3]);
    let (put, unborn, copies, _) = put_early(stage, client);
    let deaf = stage.hold(
        |parcel| matches!(parcel, Parcel::Peer { to, message: Message::Ring(_), .. } if *to == C),
    );
    let waits = *stage.world.outcome(put) == Heard::Open;
    stage.expect(waits, "the put is kept");
    let second = press(stage, &[A, B, F, D]);
    stage.pass(3_000);
    let other = stage.client(&[5]);
    stage.section(other, "v1");
    stage.release(unborn);
    stage.release(deaf);
    stage.wait(put);
    copies_are_nothing(stage, copies);
    goes_on(stage, &[A, B, D, F], second);
}

fn put_early_restart(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = 4_000_000);
    let client = stage.client_with(&[3], |o| o.attempt = 8_000_000);
    let (put, unborn, copies, epoch) = put_early(stage, client);
    stage.world.stop(F, true);
    stage.world.start(F);
    stage.release(unborn);
    stage.wait(put);
    copies_are_nothing(stage, copies);
    goes_on(stage, &[A, B, F], epoch);
}

/// A dies, and a node without a seat asks B and C, neither of which leads yet. It is told of the
/// one that is elected before that one's first entry is chosen.
fn asked_before_it_leads(stage: &mut Stage) {
    let client = stage.client(&[5]);
    stage.section(client, "v1");
    let told = stage.hold(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Lock(message), .. }
            if *to == NodeName(5) && matches!(message, lock::Message::Leads { .. }))
    });
    stage.world.stop(A, true);
    let begins = [B, C].map(|n| stage.hold(accepts_of(n)));
    let enter = stage.begin_enter(client, Mode::Exclusive);
    let elected = stage.until(|w| w.network.held(told) > 0);
    stage.expect(elected, "who was refused is told who is elected");
    begins.into_iter().for_each(|begin| stage.release(begin));
    stage.leader_other_than(A);
    stage.release(told);
    if let Some(section) = stage.entered(enter) {
        stage.leave(client, section);
    }
}
