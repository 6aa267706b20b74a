//! Commands that stay where they should not: in a queue, in a hole, at a deposed primary.

use super::stage::{
    A, B, C, Stage, accepts_of, answers, candidacy_of, grants_to, news_of, proposals_of, value,
};
use crate::network::{ClientId, Parcel, RuleId};
use crate::world::World;
use fermata_protocol::base::{NodeName, Scope};
use fermata_protocol::client::Call;
use fermata_protocol::command::LockCommand;
use fermata_protocol::register::Message as Register;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, lock, paxos};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Two clients, and a log with no room: two releases by the primary itself wait in it for messages
/// that are held back.
fn full_log(stage: &mut Stage) -> ([ClientId; 2], RuleId) {
    stage.again(|setup| setup.limits.proposals = 2);
    let clients = stage.clients([4, 5]);
    for key in [stage.key_beside("x"), stage.key_beside("y")] {
        let dies = stage.client(&[6]);
        let enter = stage.enter_keys(dies, vec![key], Mode::Exclusive);
        stage.entered(enter);
        stage.world.kill_client(dies);
    }
    let accepts = stage.hold(accepts_of(A));
    stage.until(|w| w.network.held(accepts) >= 4);
    stage.pass(500);
    (clients, accepts)
}

/// F3b: an enqueue whose key was read ahead is declined, since the log is full; a whole section
/// runs; the enqueue is submitted again behind the leave of that section.
pub(super) fn declined_enqueue(stage: &mut Stage) {
    let ([h1, h2], accepts) = full_log(stage);
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(50);
    let again = stage.hold(submit_of(NodeName(5)));
    stage.pass(200);
    stage.release(accepts);
    stage.pass(500);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let accepts = stage.hold(accepts_of(A));
    stage.leave_soon(h1, s1);
    stage.pass(200);
    stage.release(again);
    stage.pass(200);
    stage.release(accepts);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// G23: as F3b, but the read of the declined attempt is slow: it ends when the second attempt is
/// being read ahead, and has seen nothing of the section between them.
pub(super) fn forgotten_read(stage: &mut Stage) {
    let ([h1, h2], accepts) = full_log(stage);
    // The first read hears A at once, B late, and C never.
    let from_c = stage.lose(answers(C, A));
    let slow = stage.hold(answers(B, A));
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.until(|w| w.network.held(slow) > 0);
    let again = stage.hold(submit_of(NodeName(5)));
    let first = Rc::new(RefCell::new(BTreeSet::new()));
    let early = stage.world.network.release(slow);
    first.borrow_mut().extend(early.iter().filter_map(call_of));
    let calls = Rc::clone(&first);
    let repeated =
        stage.lose(move |p| call_of(p).is_some_and(|call| calls.borrow().contains(&call)));
    stage.release(from_c);
    stage.release(accepts);
    stage.pass(500);
    stage.section(h1, "v1");
    let accepts = stage.hold(accepts_of(A));
    stage.release(again);
    stage.until(|w| w.network.held(accepts) > 0);
    stage.pass(500);
    stage.release(repeated);
    for parcel in early {
        stage.world.inject(parcel);
    }
    stage.pass(500);
    stage.release(accepts);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// What a node submits to a primary.
fn submit_of(name: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |p| {
        matches!(p, Parcel::Peer { from, message: Message::Lock(lock::Message::Submit { .. }), .. }
            if from.name == name)
    }
}

/// The call of a question about a register, or of its answer.
fn call_of(parcel: &Parcel) -> Option<u64> {
    match parcel {
        Parcel::Peer {
            message: Message::Register(message),
            ..
        } => match message {
            Register::Ask { call, .. } | Register::Answer { call, .. } => Some(*call),
            Register::AskStore { .. } => None,
        },
        _ => None,
    }
}

/// G27: a release by A, whose window is full, waits in an outage that H1 seems dead in. C promises
/// B, which does not hear of it, and A outbids that with its lease; H1 is back before the release
/// could be chosen.
pub(super) fn queued_release(stage: &mut Stage) {
    stage.again(|setup| setup.limits.window = 1);
    let [h1, h2, beside] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let mute = stage.mute(h1);
    let accepts = stage.hold(accepts_of(A));
    let key = stage.key_beside("x");
    stage.enter_keys(beside, vec![key], Mode::Exclusive);
    stage.until(|w| w.network.held(accepts) >= 2);
    stage.cut(A, &[B, C]);
    let c_waits = stage.lose(candidacy_of(C));
    let part = Scope::Segment(stage.segment());
    let promise = stage.hold(move |p| {
        matches!(p, Parcel::Peer { from, to, message: Message::Paxos { log, message } }
            if (from.name, *to, log.scope) == (C, B, part)
                && matches!(message, paxos::Message::Promise { .. }))
    });
    stage.until(|w| w.network.held(promise) > 0);
    stage.discard(promise);
    stage.mend();
    let segment = stage.segment();
    let round = move |w: &World| {
        let room = w.machines[&A].node()?.here().segments.get(&segment)?;
        Some(room.primary.as_ref()?.ballot().round)
    };
    stage.until(|w| round(w).is_none());
    stage.discard(accepts);
    let releases = stage.hold(proposals_of(A, |c| {
        matches!(c, LockCommand::Release { .. })
    }));
    let again = stage.until(|w| round(w).is_some_and(|round| round > 0));
    stage.expect(again, "A outbids what C has promised, and leads again");
    stage.release(mute);
    stage.pass(1_000);
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.release(releases);
    stage.release(c_waits);
    stage.pass(1_000);
    stage.get(h1, s1);
    stage.leave(h1, s1);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F4: A's synch is stored at A alone when A is cut off; B's synch settles another value; then A's
/// writes arrive, and A grants before it hears of B.
pub(super) fn stale_attempt(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some((s1, late)) = stage.half_put(h1, &[B, C]) else {
        return;
    };
    stage.mute(h1);
    stage.gone(s1);
    // The put itself stays at A for ever; the synch's stores come later.
    let before = stage.world.network.held(late);
    // A lease so long that A, cut off, does not release it.
    let enter = stage.call(
        h2,
        Call::Enter {
            keys: vec![stage.key.clone()],
            mode: Mode::Exclusive,
            wait: 60_000_000,
            lease: Some(30_000_000),
        },
    );
    stage.until(|w| w.network.held(late) >= before + 2);
    stage.isolate(A);
    let grant = stage
        .hold(|p| grants_to(&[5])(p) && !matches!(p, Parcel::Peer { from, .. } if from.name == A));
    stage.leader_other_than(A);
    stage.until(|w| w.network.held(grant) > 0);
    // A hears answers alone, and nothing of who leads.
    let deaf = stage.lose(|p| {
        let answer = |m: &Message| matches!(m, Message::Register(Register::Answer { .. }));
        matches!(p, Parcel::Peer { to, message, .. } if *to == A && !answer(message))
    });
    stage.mend();
    stage.release(late);
    stage.pass(2_000);
    stage.release(grant);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.release(deaf);
    stage.pass(1_000);
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F20: A has had H1's leave chosen, and does not hear so before H2, behind it, has been inside and
/// is gone under the next primary: then A takes H2 for the holder, and reads for it. Before that,
/// it takes a key for free that H2 holds, and reads ahead for H3.
pub(super) fn deposed_primary(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([5, 6, 4]);
    let Some(s1) = stage.enter(h1) else { return };
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let accepted = |p: &Parcel| {
        matches!(p, Parcel::Peer { to, message: Message::Paxos { message, .. }, .. }
            if *to == A && matches!(message, paxos::Message::Accepted { .. }))
    };
    let late = stage.hold(accepted);
    stage.leave_soon(h1, s1);
    stage.pass(200);
    let others = [B, C, NodeName(5), NodeName(6)];
    stage.cut(A, &others);
    stage.cut(NodeName(4), &others);
    stage.leader_other_than(A);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.leave(h2, s2);
    let beside = stage.key_beside("x");
    let enter = stage.enter_keys(h2, vec![beside.clone()], Mode::Exclusive);
    let Some(held) = stage.entered(enter) else {
        return;
    };
    let third = stage.enter_keys(h3, vec![beside], Mode::Exclusive);
    stage.pass(500);
    // A hears answers alone, and nothing of who leads.
    let deaf = stage.lose(move |p| {
        let answer = |m: &Message| matches!(m, Message::Register(Register::Answer { .. }));
        matches!(p, Parcel::Peer { to, message, .. }
            if *to == A && !answer(message) && !accepted(p))
    });
    stage.mend();
    stage.release(late);
    stage.pass(1_000);
    stage.release(deaf);
    stage.leave(h2, held);
    if let Some(s3) = stage.entered(third) {
        stage.leave(h3, s3);
    }
}

/// F3f: B has led and has a command that was not chosen; C has led and has left a hole; B leads
/// again.
pub(super) fn hole(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([5, 6, 6]);
    stage.isolate(A);
    let c_waits = stage.lose(candidacy_of(C));
    stage.leader_other_than(A);
    // A command of B's that nobody else gets.
    let alone = stage.lose(accepts_of(B));
    stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(2_000);
    stage.release(c_waits);
    stage.mend();
    stage.isolate(B);
    let a_waits = stage.lose(candidacy_of(A));
    let segment = stage.segment();
    let c_leads = move |w: &World| {
        let node = w.machines[&C].node();
        node.is_some_and(|n| n.here().led().any(|s| s == segment))
    };
    stage.until(c_leads);
    stage.release(alone);
    // Of C's next two entries only the second one is accepted by anybody else.
    let session = stage.world.clients[h2.0 as usize].session().id();
    let hole = stage.lose(move |p| {
        let Parcel::Peer { from, message, .. } = p else {
            return false;
        };
        let Message::Paxos { message, .. } = message else {
            return false;
        };
        let paxos::Message::Accept { entry, .. } = message else {
            return false;
        };
        let theirs = matches!(entry, paxos::Entry::Commands { commands, .. }
            if commands.iter().any(|c| c.session == session));
        from.name == C && theirs
    });
    stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(300);
    stage.mend();
    stage.begin_enter(h3, Mode::Exclusive);
    stage.pass(500);
    stage.world.stop(C, true);
    stage.release(hole);
    let leads = stage.leader_other_than(C);
    stage.expect(leads.is_some(), "somebody leads after C");
    stage.pass(3_000);
    stage.release(a_waits);
    stage.world.start(C);
    for client in [h1, h2, h3] {
        stage.world.kill_client(client);
    }
    stage.pass(10_000);
    let last = stage.client(&[4]);
    stage.section(last, "v");
}

/// F2: H1's first write is on its way to a node that is cut off when another one does it; H1 writes
/// once more, and what came of the first is forgotten. Then the request arrives.
pub(super) fn forgotten_request(stage: &mut Stage) {
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 1_000_000);
    let h2 = stage.client(&[6]);
    let slow = stage.hold(|p| matches!(p, Parcel::Request { to, .. } if *to == NodeName(4)));
    for text in ["w1", "w2"] {
        let (key, value) = (stage.key.clone(), value(text));
        let write = stage.call(h1, Call::Write { key, value });
        stage.wait(write);
    }
    stage.pass(1_000);
    stage.release(slow);
    stage.pass(3_000);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// P5: B has voted for the leave of the first holder, and does not know that it is chosen. It leads
/// once A, which has granted the next one, is gone, and nobody takes what it proposes.
pub(super) fn early_primary(stage: &mut Stage) {
    let [h1, h2, other] = stage.clients([4, 5, 6]);
    let c_waits = stage.lose(candidacy_of(C));
    let Some(s1) = stage.enter(h1) else { return };
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let unheard = stage.lose(news_of(A));
    stage.leave_soon(h1, s1);
    stage.entered(second);
    stage.world.stop(A, true);
    let alone = stage.lose(accepts_of(B));
    stage.pass(12_000);
    let key = stage.key.clone();
    let queue = stage.call(other, Call::Queue { key });
    stage.pass(2_000);
    for rule in [alone, unheard, c_waits] {
        stage.discard(rule);
    }
    stage.wait(queue);
    stage.world.start(A);
}
