//! Leases where two rules cross: with a change of primary, with a new generation, with clocks at
//! the edge of their bound.

use super::Scenario;
use super::locks::{LONG, enter_for_long};
use super::stage::{A, B, C, Stage, reads_by};
use crate::history::{Heard, OpId, SectionIx};
use crate::network::{ClientId, Parcel, RuleId};
use fermata_protocol::base::{LockRef, NodeName};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, SegmentCommand};
use fermata_protocol::paxos::{Entry, Message as Paxos};
use fermata_protocol::request::{Held, Mode};
use fermata_protocol::{Message, lock};

/// Of leases that are given back.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "g14-relinquished",
        about: "a client that has given its section's lease back does nothing more in it",
        play: relinquished,
    },
    Scenario {
        name: "g14-relinquished-late",
        about: "a lease is given back when another has the section already, and a lease of its own",
        play: relinquished_late,
    },
];

/// H1 holds for long, and reads from memory; its heartbeats are lost. H2 takes the section over,
/// which is agreed, and waits for H1's lease.
fn taken_over(stage: &mut Stage) -> Option<([ClientId; 2], SectionIx, OpId, RuleId)> {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h2 = stage.client(&[5]);
    let s1 = enter_for_long(stage, h1)?;
    stage.put(h1, s1, "v1");
    let mute = stage.mute(h1);
    let resume = stage.resume(h2, s1);
    stage.pass(1_000);
    Some(([h1, h2], s1, resume, mute))
}

/// G14: the primary dies while H2 waits; the next one knows nothing of H1's lease.
pub(super) fn resumed_before_primary(stage: &mut Stage) {
    let Some(([h1, h2], s1, resume, mute)) = taken_over(stage) else {
        return;
    };
    stage.world.stop(A, true);
    stage.overwrites((h2, resume), (h1, s1));
    stage.release(mute);
}

/// G14: H2 gives up while it waits, and H3 enters.
pub(super) fn leave_beside_lease(stage: &mut Stage) {
    let Some(([h1, h2], s1, _, mute)) = taken_over(stage) else {
        return;
    };
    let h3 = stage.client(&[6]);
    let waits = stage.world.clients[h2.0 as usize].session().sections();
    for section in waits.into_iter().map(|s| s.id) {
        let wait = true;
        stage.call(h2, Call::Leave { section, wait });
    }
    let Some(s3) = stage.enter(h3) else { return };
    stage.put(h3, s3, "v3");
    stage.get(h1, s1);
    stage.leave(h3, s3);
    stage.release(mute);
}

/// G14: H1 gives its lease back, and H2 resumes at once: H1 does nothing more, not even from
/// memory. Another primary knows nothing of H1's lease, nor of H2's. H2 gives its own back, which
/// says that nobody has H1's, and H3 resumes at once.
pub(super) fn relinquished(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let (h2, h3) = (stage.client(&[5]), stage.client(&[6]));
    let Some(s1) = enter_for_long(stage, h1) else {
        return;
    };
    stage.put(h1, s1, "v1");
    stage.relinquish(h1, s1);
    let Some(s2) = resumed_at_once(stage, h2, s1) else {
        return;
    };
    stage.put(h2, s2, "v2");
    stage.get(h1, s1);
    stage.world.stop(A, true);
    stage.pass(5_000);
    stage.relinquish(h2, s2);
    let Some(s3) = resumed_at_once(stage, h3, s2) else {
        return;
    };
    stage.put(h3, s3, "v3");
    stage.get(h2, s2);
    stage.leave(h3, s3);
}

/// Resumes what another has given the lease of back, and enters in a second.
fn resumed_at_once(stage: &mut Stage, client: ClientId, of: SectionIx) -> Option<SectionIx> {
    let resume = stage.resume(client, of);
    stage.pass(1_000);
    let at_once = *stage.world.outcome(resume) != Heard::Open;
    stage.expect(at_once, "nobody waits for a lease that was given back");
    stage.entered(resume)
}

/// G14: H2 takes the section over from H1, who does not know, and goes on renewing it.
pub(super) fn renewed_after_resume(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h2 = stage.client(&[5]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.put(h1, s1, "v1");
    let resume = stage.resume(h2, s1);
    stage.overwrites((h2, resume), (h1, s1));
}

/// F10: A, with little left of H1's lease, hands its log over. Its successor hears H1, and dies
/// before it has taken A's table, which the next one takes.
pub(super) fn table_not_taken(stage: &mut Stage) {
    let h1 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h2 = stage.client(&[5]);
    let Some(s1) = enter_for_long(stage, h1) else {
        return;
    };
    stage.put(h1, s1, "v1");
    let unheard = stage.lose(renewals_by(NodeName(4), &[A]));
    stage.pass(LONG / 1_000 * 3 / 4);
    let second = stage.begin_enter(h2, Mode::Exclusive);
    let taken = stage.lose(takes_table);
    stage.world.retire(A);
    let Some(next) = stage.leader_other_than(A) else {
        return;
    };
    stage.pass(8_000);
    stage.release(unheard);
    let unheard = stage.lose(renewals_by(NodeName(4), &[A, B, C]));
    stage.world.stop(next, true);
    stage.release(taken);
    stage.overwrites((h2, second), (h1, s1));
    stage.release(unheard);
}

/// Heartbeats by a node, of the clients that use it, on their way to any of `to`.
pub(super) fn renewals_by(by: NodeName, to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer { from, to: at, message: Message::Lock(message) }
            if from.name == by && to.contains(at)
                && matches!(message, lock::Message::Renew { .. }))
    }
}

/// A proposal that removes the lease table from the state.
fn takes_table(parcel: &Parcel) -> bool {
    let Parcel::Peer { message, .. } = parcel else {
        return false;
    };
    let Message::Paxos { message, .. } = message else {
        return false;
    };
    matches!(message, Paxos::Accept { entry: Entry::Commands { commands, .. }, .. }
        if commands.iter().any(|c| c.body == Body::Segment(SegmentCommand::LeasesTaken)))
}

/// What clocks may be wrong by here, parts per million, and a little less than that.
const BOUND: u64 = 200_000;
/// See [`BOUND`].
const WRONG: i64 = 190_000;

/// A node's clock has this rate error from now on.
fn drifts(stage: &mut Stage, name: NodeName, ppm: i64) {
    let now = stage.world.now;
    let machine = stage.world.machines.get_mut(&name);
    machine
        .expect("a node of this world")
        .clock
        .set_rate(now, ppm);
}

/// F10: A is cut off but for one node that still reads lock queues from it. By B's clock its read
/// lease is soon over, by its own it is not.
pub(super) fn drifting_acceptors(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.drift_ppm = BOUND;
        setup.timing.lease = LONG;
        (setup.timing.election, setup.timing.stagger) = (10_000, 100_000);
    });
    for (name, ppm) in [(A, -WRONG), (B, WRONG), (C, WRONG)] {
        drifts(stage, name, ppm);
    }
    let (h1, h2, reader) = (stage.client(&[4]), stage.client(&[5]), stage.client(&[6]));
    // What processes of before may have granted is over.
    stage.pass(2 * LONG / 1_000);
    let Some(s1) = stage.enter(h1) else { return };
    let names = [2, 3, 4, 5].map(NodeName);
    stage.cut(A, &names);
    stage.leave_soon(h1, s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.pass(1);
    let key = stage.key.clone();
    let read = stage.call(reader, Call::Queue { key });
    stage.wait(read);
    stage.mend();
    stage.leave(h2, s2);
}

/// F10: A leads with B's vote alone. B's vote for one proposal is late, and A, whom B hears no
/// more, has repeated the proposal by then. A still reads lock queues for one node.
pub(super) fn late_vote(stage: &mut Stage) {
    let [h1, h2, reader, other] = stage.clients([4, 5, 6, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    stage.cut(A, &[C]);
    stage.pass(6_000);
    let vote = stage.hold(vote_for(A, B));
    let beside = vec![stage.key_beside("x")];
    stage.enter_keys(other, beside, Mode::Exclusive);
    stage.until(|w| w.network.held(vote) > 0);
    stage.cut(A, &[B, C, NodeName(4), NodeName(5)]);
    stage.pass(3_500);
    stage.release(vote);
    stage.leave_soon(h1, s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.pass(1);
    let key = stage.key.clone();
    let read = stage.call(reader, Call::Queue { key });
    stage.pass(1_500);
    let _ended = stage.world.outcome(read);
    stage.leave(h2, s2);
    stage.mend();
}

/// A vote of one node on its way to the leader.
fn vote_for(leader: NodeName, voter: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { from, to, message: Message::Paxos { message, .. } }
            if from.name == voter && *to == leader && matches!(message, Paxos::Accepted { .. }))
    }
}

/// F10: H1's section ends when its lease is over: by its own clock, which is slow, not by A's
/// alone. First since it is silent, then since its release was asked for.
pub(super) fn drifting_holder(stage: &mut Stage) {
    stage.again(|setup| setup.timing.drift_ppm = BOUND);
    drifts(stage, A, WRONG);
    for by_force in [false, true] {
        let h1 = stage.client_with(&[4], |o| {
            (o.cached_gets, o.drift_ppm) = (true, BOUND);
        });
        let (h2, other) = (stage.client(&[5]), stage.client(&[6]));
        let now = stage.world.now;
        stage.world.clients[h1.0 as usize]
            .clock
            .set_rate(now, -WRONG);
        let Some(s1) = enter_for_long(stage, h1) else {
            return;
        };
        stage.put(h1, s1, "v1");
        let mute = match by_force {
            false => Some(stage.mute(h1)),
            true => {
                let (key, lock_ref) = (stage.key.clone(), stage.queue_at(A)[0]);
                stage.call(other, Call::Release { key, lock_ref });
                None
            }
        };
        let second = stage.begin_enter(h2, Mode::Exclusive);
        stage.overwrites((h2, second), (h1, s1));
        if let Some(mute) = mute {
            stage.release(mute);
        }
    }
}

/// F20, G14: A reads the key ahead for H1, and is deposed before B and C have answered. H2 resumes
/// H1's section under the next primary, and puts; then the answers come.
pub(super) fn grant_without_lease(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    stage.section(h2, "v0");
    stage.pass(1_000);
    let slow = stage.hold(reads_by(A, &[B, C]));
    stage.begin_enter(h1, Mode::Exclusive);
    stage.until(|w| w.network.held(slow) > 0);
    stage.pass(500);
    let deposed = stage.lose(|p| {
        let Parcel::Peer { from, to, message } = p else {
            return false;
        };
        let of_a = from.name == A || *to == A;
        of_a && from.name != NodeName(4)
            && *to != NodeName(4)
            && !matches!(message, Message::Register(_))
    });
    stage.cut(NodeName(4), &[B, C]);
    let lock_ref = stage.queue_at(A).first().copied().unwrap_or(LockRef(0));
    stage.leader_other_than(A);
    let held = vec![Held {
        key: stage.key.clone(),
        lock_ref,
        generation: 0,
    }];
    let of = stage.world.clients[h1.0 as usize].session().id();
    let resume = stage.call(h2, Call::Resume { held, of });
    let Some(s2) = stage.entered(resume) else {
        return;
    };
    stage.put(h2, s2, "v1");
    stage.release(slow);
    stage.pass(1_000);
    stage.leave(h2, s2);
    stage.mend();
    stage.release(deposed);
}

/// What says that a lease is given back, on its way to a primary.
fn gives_back(parcel: &Parcel) -> bool {
    matches!(parcel, Parcel::Peer { message: Message::Lock(message), .. }
        if matches!(message, lock::Message::Renew { relinquishes: true, .. }))
}

/// G14: H1 gives its lease back, which is late. H2 has resumed the section by then, and has a lease
/// of its own; somebody asks for its end, and H3 waits.
pub(super) fn relinquished_late(stage: &mut Stage) {
    let [h1, h2] = [4, 5].map(|node| stage.client_with(&[node], |o| o.cached_gets = true));
    let (h3, other) = (stage.client(&[6]), stage.client(&[6]));
    let Some(s1) = enter_for_long(stage, h1) else {
        return;
    };
    stage.put(h1, s1, "v1");
    let late = stage.hold(gives_back);
    if let Some(section) = stage.world.clients[h1.0 as usize].name_of(s1) {
        stage.call(h1, Call::Relinquish { section });
    }
    let resume = stage.resume(h2, s1);
    let Some(s2) = stage.entered(resume) else {
        return;
    };
    stage.put(h2, s2, "v1.1");
    stage.release(late);
    stage.pass(500);
    let third = stage.begin_enter(h3, Mode::Exclusive);
    let (key, lock_ref) = (stage.key.clone(), stage.queue_at(A)[0]);
    stage.call(other, Call::Release { key, lock_ref });
    stage.overwrites((h3, third), (h2, s2));
}
