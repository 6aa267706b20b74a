//! Puts beside which their holder leaves: the leave is agreed, and the put is not at its quorum
//! yet.

use super::stage::{A, B, C, LEASE, Stage, answers, candidacy_of, proposals_of, store_of, value};
use super::upkeep::tended;
use crate::history::{Heard, OpId, SectionIx};
use crate::network::{ClientId, Parcel};
use crate::random;
use fermata_protocol::base::{Epoch, SegmentId, SessionId};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, lock};

/// Begins to put and to leave.
pub(super) fn begin(
    stage: &mut Stage,
    client: ClientId,
    section: SectionIx,
    text: &str,
) -> Option<OpId> {
    let (key, value) = (stage.key.clone(), value(text));
    let section = stage.world.clients[client.0 as usize].name_of(section)?;
    Some(stage.call(
        client,
        Call::PutAndLeave {
            section,
            key,
            value,
        },
    ))
}

/// The words that a put is at its quorum, on their way to a primary.
fn words(parcel: &Parcel) -> bool {
    matches!(parcel, Parcel::Peer { message: Message::Lock(message), .. }
        if matches!(message, lock::Message::PutDone { .. }))
}

fn is_put_done(command: &LockCommand) -> bool {
    matches!(command, LockCommand::PutDone { .. })
}

/// F5: the put is at C alone when the leave beside it is agreed; the next holder is answered by A
/// and B first, and the put goes on.
pub(super) fn put_at_one(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[A, B]));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.gone(s1);
    stage.pass(300);
    let without_c = stage.hold(answers(C, A));
    let entered = stage.enter(h2);
    stage.release(without_c);
    let Some(s2) = entered else { return };
    for _ in 0..3 {
        stage.get(h2, s2);
        stage.pass(100);
    }
    stage.release(late);
    let put = stage.wait(put);
    let past = matches!(put, Heard::Failed(_) | Heard::Unknown(_));
    stage.expect(past, "a put that a later section has fenced is said to be");
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F5: no replica has heard of the put when the leave beside it is applied everywhere; nobody else
/// enters, and the put goes on.
pub(super) fn leave_first(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let late = stage.hold(store_of("v1", &[A, B, C]));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.gone(s1);
    stage.pass(1_000);
    let flagged = stage.flag().is_some();
    stage.release(late);
    let put = stage.wait(put);
    stage.expect(flagged, "a leave beside a put that is under way is dirty");
    stage.expect(
        matches!(put, Heard::Done(_)),
        "a put that nobody has fenced is done after its leave",
    );
    stage.pass(500);
    let clear = stage.flag().is_none();
    stage.expect(clear, "the flag goes when the put is known to be done");
    let found = stage.enter(h2).map(|s2| (s2, stage.found(s2)));
    let Some((s2, found)) = found else { return };
    stage.expect(found == value("v1"), "the next holder finds it");
    stage.leave(h2, s2);
}

/// F5: somebody waits when the leave is agreed; the put was lost once on its way, and is repeated.
pub(super) fn lost_once(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let lost = stage.lose(store_of("v1", &[A, B, C]));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.gone(s1);
    stage.release(lost);
    let put = stage.wait(put);
    stage.expect(
        matches!(put, Heard::Done(_)),
        "the next holder waits for a put that is repeated",
    );
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F5: all is done, and the answer is lost; the next holder has put when the request is repeated at
/// another node.
pub(super) fn repeated(stage: &mut Stage) {
    twice(stage, false);
}

/// The same, and the next holder stays: nothing else is agreed that could take the note along.
pub(super) fn repeated_beside_holder(stage: &mut Stage) {
    twice(stage, true);
}

fn twice(stage: &mut Stage, stays: bool) {
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 3_000_000);
    let h2 = stage.client(&[6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let waits = stays.then(|| stage.begin_enter(h2, Mode::Exclusive));
    stage.pass(500);
    let deaf =
        stage.lose(|p| matches!(p, Parcel::Reply { from, reply: Some(_), .. } if from.0 == 4));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.gone(s1);
    let entered = match waits {
        Some(enter) => stage.entered(enter),
        None => stage.enter(h2),
    };
    let Some(s2) = entered else { return };
    stage.put(h2, s2, "v2");
    if !stays {
        stage.leave(h2, s2);
    }
    let put = stage.wait(put);
    stage.expect(
        matches!(put, Heard::Done(_)),
        "the record of a leave knows that the put beside it was done",
    );
    if stays {
        stage.leave(h2, s2);
    }
    stage.release(deaf);
}

/// F5: the coordinator dies when the leave is agreed and the put is at C alone; the request is
/// repeated at another node, when nobody has entered since.
pub(super) fn dead_coordinator(stage: &mut Stage) {
    let h1 = stage.client_with(&[4, 5], |o| o.attempt = 2_000_000);
    let h2 = stage.client(&[6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let from_4 = store_of("v1", &[A, B]);
    let lost = stage
        .lose(move |p| matches!(p, Parcel::Peer { from, .. } if from.name.0 == 4) && from_4(p));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.gone(s1);
    stage.world.stop(fermata_protocol::base::NodeName(4), true);
    let put = stage.wait(put);
    stage.expect(
        matches!(put, Heard::Done(_)),
        "another node completes a put whose leave is agreed",
    );
    stage.release(lost);
    let Some(s2) = stage.enter(h2) else { return };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F5: the word that the put is done reaches A alone, which is cut off before anybody has heard of
/// it; the next one enters where B leads, beside what A has read for it.
pub(super) fn word_to_one(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let note = stage.lose(proposals_of(A, is_put_done));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.wait(put);
    stage.pass(200);
    let granted = *stage.world.outcome(enter) != Heard::Open && stage.flag().is_some();
    stage.expect(
        granted,
        "the word of a put grants before the flag is cleared",
    );
    stage.isolate(A);
    stage.release(note);
    stage.leader_other_than(A);
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    stage.get(h2, s2);
    stage.put(h2, s2, "v2");
    stage.mend();
    stage.pass(3_000);
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// A client that enters.
type Entering = (ClientId, OpId);

/// H1 holds v0, and two readers wait behind it.
fn readers_behind(stage: &mut Stage) -> Option<(ClientId, SectionIx, [Entering; 2])> {
    tended(stage);
    let [h1, r1, r2] = stage.clients([4, 5, 6]);
    let s1 = stage.enter(h1)?;
    stage.put(h1, s1, "v0");
    let readers = [r1, r2].map(|reader| (reader, stage.begin_enter(reader, Mode::Shared)));
    stage.pass(500);
    Some((h1, s1, readers))
}

/// F5: the word comes when a synch has begun under the flag, which is then given up.
pub(super) fn word_beside_synch(stage: &mut Stage) {
    let Some((h1, s1, [(r1, first), (r2, second)])) = readers_behind(stage) else {
        return;
    };
    let word = stage.hold(words);
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.wait(put);
    let stores = stage.hold(store_of("v1", &[B, C]));
    let begun = stage.until(|w| w.network.held(stores) >= 2);
    stage.expect(begun, "without a word the next holder is synched");
    stage.release(word);
    stage.pass(300);
    stage.discard(stores);
    for (reader, section) in [(r1, stage.entered(first)), (r2, stage.entered(second))] {
        if let Some(section) = section {
            stage.leave(reader, section);
        }
    }
    stage.world.stop(A, true);
    stage.pass(1_000);
    stage.world.start(A);
    random::rest(&mut stage.world);
}

/// G28 beside such a put: readers enter by the word, while the command that clears the flag is on
/// its way through the log; A goes down later.
pub(super) fn readers_by_word(stage: &mut Stage) {
    by_word(stage, false);
}

/// The same, and the command arrives between the first reader's entry and the second's.
pub(super) fn readers_beside_note(stage: &mut Stage) {
    by_word(stage, true);
}

fn by_word(stage: &mut Stage, between: bool) {
    let Some((h1, s1, [(r1, first), (r2, second)])) = readers_behind(stage) else {
        return;
    };
    let note = stage.hold(proposals_of(A, is_put_done));
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    stage.wait(put);
    let stores = stage.lose(|p: &Parcel| store_of("v1", &[B, C])(p) && is_from(p, A));
    let first = stage.entered(first);
    if between {
        stage.pass(300);
        stage.release(note);
    }
    let second = stage.entered(second);
    stage.pass(300);
    if !between {
        stage.release(note);
        stage.pass(300);
    }
    for (reader, section) in [(r1, first), (r2, second)] {
        if let Some(section) = section {
            stage.expect(
                stage.found(section) == value("v1"),
                "readers find what was put beside the leave",
            );
            stage.leave(reader, section);
        }
    }
    stage.pass(300);
    let clear = stage.flag().is_none();
    stage.expect(clear, "no flag stands");
    stage.world.stop(A, true);
    stage.release(stores);
    let c_waits = stage.lose(candidacy_of(C));
    stage.leader_other_than(A);
    stage.release(c_waits);
    stage.world.start(A);
    random::rest(&mut stage.world);
}

fn is_from(parcel: &Parcel, name: fermata_protocol::base::NodeName) -> bool {
    matches!(parcel, Parcel::Peer { from, .. } if from.name == name)
}

/// F18: the word of a put comes late: in the meantime the next holder was forced out, with a put at
/// one replica.
pub(super) fn late_word(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    let note = stage.hold(proposals_of(A, is_put_done));
    let Some(put) = begin(stage, h1, s1, "v0") else {
        return;
    };
    stage.wait(put);
    let flag = stage.flag();
    stage.release(note);
    let Some(s2) = stage.enter(h2) else { return };
    let late = stage.hold(store_of("v2", &[A, B]));
    stage.begin_put(h2, s2, "v2");
    stage.pass(300);
    stage.world.kill_client(h2);
    stage.gone(s2);
    // The repetition by a node that was cut off since.
    let (key, flag) = (stage.key.clone(), flag.unwrap_or(0));
    let body = Body::Lock(LockCommand::PutDone { key, flag });
    let command = Command::new(SessionId(0xdead), 1, 0, Epoch::FIRST, body);
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
    stage.pass(LEASE / 2_000);
    let without_c = stage.hold(answers(C, A));
    let entered = stage.enter(h3);
    stage.release(without_c);
    if let Some(s3) = entered {
        stage.get(h3, s3);
        stage.pass(100);
        stage.get(h3, s3);
        stage.leave(h3, s3);
    }
    stage.release(late);
}

/// Only A hears that v1 is done, and grants H2, which puts v2 at A and C and leaves clean
/// where B leads: the flag of H1's leave stands. The second word, for the leave was answered by B,
/// comes to B when H3 waits.
pub(super) fn word_after_the_next(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v0");
    let enter = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let note = stage.lose(proposals_of(A, is_put_done));
    let deaf = stage.lose(|p| {
        let Parcel::Peer { from, to, message } = p else {
            return false;
        };
        let answer = matches!(message, Message::Lock(lock::Message::Submitted { .. }));
        answer && from.name == A && to.0 == 4
    });
    let Some(put) = begin(stage, h1, s1, "v1") else {
        return;
    };
    let Some(s2) = stage.entered(enter) else {
        return;
    };
    let b_lacks = stage.lose(store_of("v2", &[B]));
    let done = stage.put(h2, s2, "v2");
    stage.expect(matches!(done, Some(Heard::Done(_))), "v2 is acknowledged");
    let third = stage.begin_enter(h3, Mode::Exclusive);
    stage.pass(200);
    let word = stage.hold(|p| words(p) && matches!(p, Parcel::Peer { to, .. } if *to == B));
    let c_waits = stage.lose(candidacy_of(C));
    stage.isolate(A);
    stage.release(note);
    let leader = stage.leader_other_than(A);
    stage.expect(leader == Some(B), "B leads");
    let told = stage.until(|w| w.network.held(word) >= 1);
    stage.expect(told, "the second word goes to B");
    stage.leave(h2, s2);
    let flagged = stage.flag().is_some();
    stage.expect(flagged, "the flag of the first leave stands");
    stage.pass(100);
    stage.release(word);
    let Some(s3) = stage.entered(third) else {
        return;
    };
    stage.expect(stage.found(s3) == value("v2"), "H3 finds v2");
    stage.get(h3, s3);
    stage.release(b_lacks);
    stage.release(deaf);
    stage.release(c_waits);
    stage.wait(put);
    stage.mend();
    stage.leave(h3, s3);
}
