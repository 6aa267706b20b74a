//! Enters, grants, leases, and what else touches a key.

use super::ring::D;
use super::stage::{A, B, C, Stage, answers, store_of, value};
use crate::history::{Heard, SectionIx};
use crate::network::{ClientId, Parcel, RuleId};
use fermata_protocol::base::{Keyspace, NodeName};
use fermata_protocol::client::Call;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, lock};

/// F2: the command that enqueues arrives at the primary twice.
pub(super) fn command_twice(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    let submits = stage.hold(|p| {
        matches!(
            p,
            Parcel::Peer {
                message: Message::Lock(lock::Message::Submit { .. }),
                ..
            }
        )
    });
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.until(|w| w.network.held(submits) > 0);
    let twice = stage.world.network.release(submits);
    for parcel in twice.clone() {
        stage.world.inject(parcel);
    }
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    stage.put(h1, s1, "v1");
    for parcel in twice {
        stage.world.inject(parcel);
    }
    stage.pass(500);
    stage.get(h1, s1);
    stage.leave(h1, s1);
}

/// F3a: two clients enter a free key at the same moment; the first puts and leaves.
pub(super) fn pipelined_enters(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[4]));
    let first = stage.begin_enter(h1, Mode::Exclusive);
    let second = stage.begin_enter(h2, Mode::Exclusive);
    let Some(s1) = stage.entered(first) else {
        return;
    };
    stage.put(h1, s1, "v1");
    stage.leave(h1, s1);
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// A reads ahead for an enqueue that nobody else hears of; another one comes first, at B.
pub(super) fn read_ahead_in_vain(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    stage.cut(A, &[B, C]);
    stage.cut(D, &[B, C]);
    let first = stage.begin_enter(h1, Mode::Exclusive);
    stage.pass(100);
    stage.section(h2, "v1");
    stage.mend();
    let Some(s1) = stage.entered(first) else {
        return;
    };
    stage.get(h1, s1);
    stage.leave(h1, s1);
}

/// F6: C lags behind the enqueue of a holder and accepts an eventual put, which then spreads.
pub(super) fn eventual_put(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    stage.cut(C, &[A, B]);
    let Some(s2) = stage.enter(h2) else { return };
    let (key, value) = (stage.key.clone(), value("e"));
    let put = stage.call(other, Call::Put { key, value });
    stage.pass(1_000);
    stage.mend();
    stage.wait(put);
    stage.pass(3_000);
    for _ in 0..3 {
        stage.get(h2, s2);
        stage.pass(200);
    }
    stage.put(h2, s2, "v2");
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F6: an eventual put that has spread is what the next holder finds.
pub(super) fn enter_adopts(stage: &mut Stage) {
    let (h1, h2, other) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v0");
    stage.pass(1_000);
    let (key, e) = (stage.key.clone(), value("e"));
    let put = stage.call(
        other,
        Call::Put {
            key,
            value: e.clone(),
        },
    );
    stage.wait(put);
    stage.pass(3_000);
    let Some(s2) = stage.enter(h2) else { return };
    let adopted = stage.found(s2) == e;
    stage.expect(
        adopted,
        "a holder finds the eventual put made and spread before it",
    );
    stage.get(h2, s2);
    stage.leave(h2, s2);
}

/// F7: a single `write` of a key that somebody holds.
pub(super) fn write_beside_section(stage: &mut Stage) {
    let (h1, other) = (stage.client(&[4]), stage.client(&[5]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let key = stage.key.clone();
    let write = stage.call(
        other,
        Call::Write {
            key,
            value: value("w"),
        },
    );
    stage.pass(2_000);
    let waits = *stage.world.outcome(write) == Heard::Open;
    stage.expect(waits, "a write waits for the holder");
    stage.put(h1, s1, "v2");
    stage.get(h1, s1);
    stage.leave(h1, s1);
    stage.wait(write);
    let Some(s2) = stage.enter(h1) else { return };
    let written = stage.found(s2) == value("w");
    stage.expect(written, "the next holder finds the write");
    stage.leave(h1, s2);
}

/// F10: H1's site is cut off from the others; its node still answers its heartbeats. H2 enters
/// after the lease; H1 reads from memory.
pub(super) fn lease_at_a_cut_site(stage: &mut Stage) {
    let h1 = stage.client_with(&[6], |o| o.cached_gets = true);
    let h2 = stage.client(&[4]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let rest: Vec<NodeName> = (1..=5).map(NodeName).collect();
    stage.cut(NodeName(6), &rest);
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    let key = stage.key.clone();
    if let Some(section) = stage.world.clients[h1.0 as usize].name_of(s1) {
        stage.call(h1, Call::CriticalGet { section, key });
        stage.pass(1_000);
    }
    stage.leave(h2, s2);
}

/// The longer lease of some scenarios: longer than it takes to elect a primary, microseconds.
pub(super) const LONG: u64 = 20_000_000;

/// Enters with that lease.
pub(super) fn enter_for_long(stage: &mut Stage, client: ClientId) -> Option<SectionIx> {
    let enter = Call::Enter {
        keys: vec![stage.key.clone()],
        mode: Mode::Exclusive,
        wait: LONG,
        lease: Some(LONG),
    };
    let enter = stage.call(client, enter);
    stage.entered(enter)
}

/// F10: H1 dies; once the log goes on in the next epoch, and once its primary hands it over. Both
/// times H2 enters when H1's lease has run out, neither before nor a whole lease later.
pub(super) fn lease_table(stage: &mut Stage) {
    for by_epoch in [true, false] {
        let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
        if enter_for_long(stage, h1).is_none() {
            return;
        }
        // The last heartbeat of H1 is no older than a third of its lease.
        stage.pass(10_000);
        let died = stage.world.now;
        stage.world.kill_client(h1);
        let second = stage.begin_enter(h2, Mode::Exclusive);
        stage.pass(5_000);
        let before = stage.leader_other_than(NodeName(0));
        let changed = stage.world.now;
        match by_epoch {
            true => stage.next_epoch(),
            false => stage.world.retire(A),
        }
        stage.pass(5_000);
        let after = stage.leader_other_than(NodeName(0));
        stage.expect(
            by_epoch == (before == after) && after.is_some(),
            "another leads after a hand-over, and the same in the next epoch",
        );
        let Some(s2) = stage.entered(second) else {
            return;
        };
        let waited = stage.world.now - died;
        stage.expect(
            waited >= LONG - LONG / 3 - 1_000_000,
            "nobody is released before its lease is over",
        );
        stage.expect(
            stage.world.now - changed < LONG - 1_000_000,
            "a change of primary begins no new lease for a dead holder",
        );
        stage.leave(h2, s2);
    }
}

/// F10: a holder is heard once more by the primary that has taken the table, and is cut off; that
/// primary dies. The next one counts a whole lease, whatever was told of leases before.
pub(super) fn lease_table_twice(stage: &mut Stage) {
    let h3 = stage.client(&[5]);
    let h2 = stage.client_with(&[6], |o| o.cached_gets = true);
    let Some(s2) = enter_for_long(stage, h2) else {
        return;
    };
    stage.put(h2, s2, "v1");
    // It is heard at each third of its lease.
    stage.pass(9 * LONG / 30_000);
    stage.next_epoch();
    stage.pass(LONG / 10_000);
    let lock_ref = stage.queue_at(B)[0];
    let rest: Vec<NodeName> = (1..=5).map(NodeName).collect();
    stage.cut(NodeName(6), &rest);
    stage.world.stop(A, true);
    stage.leader_other_than(A);
    stage.pass(500);
    let key = stage.key.clone();
    stage.call(h3, Call::Release { key, lock_ref });
    let Some(s3) = stage.enter(h3) else { return };
    stage.put(h3, s3, "v2");
    let key = stage.key.clone();
    if let Some(section) = stage.world.clients[h2.0 as usize].name_of(s2) {
        stage.call(h2, Call::CriticalGet { section, key });
        stage.pass(1_000);
    }
    stage.leave(h3, s3);
}

/// How long a key is flagged and without a queue, in these scenarios, before it is synched.
const GRACE: u64 = 6_000_000;

/// A holder's put is at C alone when it dies; its section ends by force. The rule returned keeps
/// the put from A and B.
fn dies_putting(stage: &mut Stage, client: ClientId, text: &str) -> Option<RuleId> {
    let section = stage.enter(client)?;
    stage.put(client, section, "v0");
    let late = stage.hold(store_of(text, &[A, B]));
    stage.begin_put(client, section, text);
    stage.pass(300);
    stage.world.kill_client(client);
    stage.gone(section);
    Some(late)
}

/// Waits until somebody is in the key's queue.
fn until_queued(stage: &mut Stage) -> bool {
    let deadline = stage.world.now + 3 * GRACE;
    while stage.queue_at(A).is_empty() && stage.world.now < deadline {
        stage.pass(5);
    }
    !stage.queue_at(A).is_empty()
}

/// An eventual put, and whether it was stored.
fn eventual_put_is(stage: &mut Stage, client: ClientId, text: &str) -> bool {
    let (key, value) = (stage.key.clone(), value(text));
    let put = stage.call(client, Call::Put { key, value });
    matches!(stage.wait(put), Heard::Done(_))
}

/// F18: H1 dies, and nobody enters. The key is synched all the same; H2 dies, too, and H3 enters
/// just then.
pub(super) fn idle_key(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = GRACE);
    let [h1, h2, h3, other] = stage.clients([4, 5, 6, 4]);
    let Some(late) = dies_putting(stage, h1, "v1") else {
        return;
    };
    let refused = !eventual_put_is(stage, other, "e0");
    stage.expect(refused, "a key that is not synched takes no eventual put");
    stage.pass(GRACE / 1_000 + 2_000);
    stage.release(late);
    let stored = eventual_put_is(stage, other, "e1");
    stage.expect(stored, "a key that nobody wants is synched");
    stage.pass(3_000);
    let Some(late) = dies_putting(stage, h2, "v2") else {
        return;
    };
    stage.pass(GRACE / 2_000);
    let synched = until_queued(stage);
    let asked = stage.world.now;
    let Some(s3) = stage.enter(h3) else { return };
    stage.expect(
        synched && stage.world.now - asked < 1_500_000,
        "whoever enters waits for one short section at most",
    );
    stage.get(h3, s3);
    stage.release(late);
    stage.get(h3, s3);
    stage.leave(h3, s3);
}

/// F18: the primary dies with the section in which it synchs an idle key; the next one ends that
/// section when its lease is over, and has its own.
pub(super) fn idle_key_again(stage: &mut Stage) {
    stage.again(|setup| setup.timing.request = GRACE);
    let [h1, other] = stage.clients([4, 5]);
    let Some(late) = dies_putting(stage, h1, "v1") else {
        return;
    };
    let begun = until_queued(stage);
    stage.world.stop(A, true);
    stage.expect(begun, "the first primary synchs the key");
    stage.leader_other_than(A);
    // The first primary's ref keeps the lease of its keyspace, as that of a `read`.
    let lease = Keyspace::built_in()[0].lease;
    stage.pass((lease + GRACE) / 1_000 + 3_000);
    let stored = eventual_put_is(stage, other, "e");
    stage.expect(stored, "the next primary synchs the key");
    stage.release(late);
}

/// G31: a client that would hold for ever has a section of 8 s at most, and its primary ends with
/// its log after 5 of them.
pub(super) fn longest_section(stage: &mut Stage) {
    stage.key = stage.short_sections(8_000_000);
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    stage.pass(5_000);
    // Its log ends with the lease table: nothing else changes who leads.
    stage.world.history.calm = true;
    stage.next_epoch();
    stage.pass(8_000);
    stage.put(h1, s1, "too late");
    let over = stage.queue_at(A).is_empty();
    stage.expect(
        over,
        "a section ends with its longest time, whoever leads by then",
    );
    stage.section(h2, "v2");
}

/// G58: a client that would hold for ever puts, and resumes its section, of 8 s at most, every
/// other second.
pub(super) fn resumed_again_and_again(stage: &mut Stage) {
    stage.key = stage.short_sections(8_000_000);
    let [h1, h2] = stage.clients([4, 5]);
    let Some(mut section) = stage.enter(h1) else {
        return;
    };
    stage.world.history.calm = true;
    for _ in 0..9 {
        stage.put(h1, section, "v1");
        stage.pass(2_000);
        let resume = stage.resume(h1, section);
        stage.wait(resume);
        let Some(again) = stage.world.history.ops[resume.0].section else {
            break;
        };
        section = again;
    }
    let over = stage.queue_at(A).is_empty();
    stage.expect(over, "a section ends with its longest time, resumed or not");
    stage.section(h2, "v2");
}

/// F19: H1 holds two keys of different segments; the heartbeats of one are lost, so that it
/// expires.
pub(super) fn lost_key(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let keys = vec![stage.key.clone(), stage.other_key()];
    let enter = stage.enter_keys(h1, keys, Mode::Exclusive);
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    stage.put(h1, s1, "v1");
    let segment = stage.segment();
    let silent = stage.world.network.lose(move |p| {
        let Parcel::Peer { from, message, .. } = p else {
            return false;
        };
        let renews = |m: &Message| match m {
            Message::Lock(lock::Message::Renew { segment: s, .. }) => *s == segment,
            _ => false,
        };
        renews(message) && from.name.0 == 4
    });
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    stage.put(h1, s1, "v3");
    stage.pass(1);
    let other = stage.other_key();
    if let Some(section) = stage.world.clients[h1.0 as usize].name_of(s1) {
        let put = Call::CriticalPut {
            section,
            key: other,
            value: value("o"),
        };
        let put = stage.call(h1, put);
        stage.wait(put);
    }
    stage.release(silent);
    stage.leave(h2, s2);
}

/// F19: a put is at C alone when its holder dies; two readers wait.
pub(super) fn readers_after_synch(stage: &mut Stage) {
    let (h1, r1, r2) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some((s1, late)) = stage.half_put(h1, &[A, B]) else {
        return;
    };
    stage.pass(300);
    let first = stage.begin_enter(r1, Mode::Shared);
    stage.pass(100);
    let second = stage.begin_enter(r2, Mode::Shared);
    stage.pass(300);
    stage.world.kill_client(h1);
    stage.gone(s1);
    let without_c = stage.hold(answers(C, A));
    let a = stage.entered(first);
    stage.release(without_c);
    let b = stage.entered(second);
    let (Some(a), Some(b)) = (a, b) else { return };
    let same = stage.found(a) == stage.found(b);
    stage.expect(same, "two readers find the same value");
    stage.get(r1, a);
    stage.get(r2, b);
    stage.leave(r1, a);
    stage.leave(r2, b);
    stage.release(late);
}

/// F20: H2's grant is on its way while H2 is forced out, and H3 puts.
pub(super) fn stale_grant(stage: &mut Stage) {
    let (h1, h2, h3) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let third = stage.begin_enter(h3, Mode::Exclusive);
    stage.pass(500);
    let grant = stage.hold(|p| {
        matches!(p, Parcel::Peer { to, message: Message::Lock(lock::Message::Granted(_)), .. }
            if to.0 == 5)
    });
    let mute = stage.mute(h2);
    let also = stage.world.network.lose(|p| {
        matches!(p, Parcel::Peer { from, message: Message::Lock(lock::Message::Renew { .. }), .. }
            if from.name.0 == 5)
    });
    stage.leave(h1, s1);
    let Some(s3) = stage.entered(third) else {
        return;
    };
    let late = stage.hold(store_of("w", &[A, B]));
    stage.begin_put(h3, s3, "w");
    stage.pass(200);
    stage.release(grant);
    stage.pass(500);
    stage.release(late);
    stage.release(mute);
    stage.release(also);
    stage.pass(1_000);
    stage.leave(h3, s3);
    stage.pass(3_000);
    let _ended = stage.world.outcome(second);
}
