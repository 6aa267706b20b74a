//! Those who wait: callers that go away, and leases that are short.

use super::leases::renewals_by;
use super::stage::{A, LEASE, Stage};
use crate::history::{OpId, SectionIx};
use crate::network::{ClientId, Parcel};
use fermata_protocol::base::NodeName;
use fermata_protocol::client::Call;
use fermata_protocol::lock;
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, Operation};

/// A coordinator that has no seat.
const D: NodeName = NodeName(4);

/// Begins to enter the key as a caller that does not come back.
fn begin_as_guest(stage: &mut Stage, client: ClientId) -> OpId {
    let enters = |parcel: &Parcel, by| {
        matches!(parcel, Parcel::Request { client, request, .. }
            if *client == by && matches!(request.operation, Operation::Enter { .. }))
    };
    let held = stage.hold(move |parcel| enters(parcel, client));
    let enter = stage.begin_enter(client, Mode::Exclusive);
    stage.until(|w| w.network.held(held) > 0);
    for mut parcel in stage.world.network.release(held) {
        if let Parcel::Request { request, .. } = &mut parcel
            && let Operation::Enter { may_return, .. } = &mut request.operation
        {
            *may_return = false;
        }
        stage.world.inject(parcel);
    }
    enter
}

/// G47: a caller that does not come back hangs up while it waits; so does one whose lock is being
/// granted, which no node takes from it.
pub(super) fn gone_caller(stage: &mut Stage) {
    let [h1, guest, h2] = stage.clients([4, 5, 6]);
    let Some(s1) = stage.enter(h1) else { return };
    begin_as_guest(stage, guest);
    stage.pass(500);
    stage.expect(stage.queue_at(A).len() == 2, "the caller waits");
    stage.world.kill_client(guest);
    stage.pass(LEASE / 4_000);
    stage.expect(
        stage.queue_at(A).len() == 1,
        "a caller that is gone leaves the queue long before its lease ends",
    );
    stage.leave(h1, s1);
    let Some(s2) = stage.enter(h2) else { return };
    stage.leave(h2, s2);
}

/// G6, G47: a caller that said that it does not come back does, and enters at another node; then
/// its first request is closed.
pub(super) fn returned_caller(stage: &mut Stage) {
    let [h0, h1] = stage.clients([6, 5]);
    let Some(s0) = stage.enter(h0) else { return };
    let copies = stage.hold(move |parcel| {
        matches!(parcel, Parcel::Request { client, request, .. }
            if *client == h1 && matches!(request.operation, Operation::Enter { .. }))
    });
    let enter = stage.begin_enter(h1, Mode::Exclusive);
    stage.until(|w| w.network.held(copies) > 0);
    let first = NodeName(4);
    let mut opened = None;
    for parcel in stage.world.network.release(copies) {
        if let Parcel::Request {
            client,
            life,
            exchange,
            mut request,
            ..
        } = parcel.clone()
        {
            if let Operation::Enter { may_return, .. } = &mut request.operation {
                *may_return = false;
            }
            opened = Some(Parcel::Cancel {
                client,
                life,
                exchange,
                to: first,
            });
            stage.world.inject(Parcel::Request {
                client,
                life,
                exchange,
                to: first,
                request,
            });
        }
        stage.world.inject(parcel);
    }
    stage.pass(500);
    let entered_there =
        stage.lose(move |p| matches!(p, Parcel::Reply { from, .. } if *from == first));
    stage.leave(h0, s0);
    let Some(s1) = stage.entered(enter) else {
        return;
    };
    if let Some(close) = opened {
        stage.world.inject(close);
    }
    stage.pass(1_000);
    stage.release(entered_there);
    stage.put(h1, s1, "still");
    stage.leave(h1, s1);
}

/// Begins to enter the key with a quarter of the usual lease, shorter than two retries.
fn begin_short(stage: &mut Stage, client: ClientId) -> OpId {
    let enter = Call::Enter {
        keys: vec![stage.key.clone()],
        mode: Mode::Exclusive,
        wait: 20_000_000,
        lease: Some(LEASE / 4),
    };
    stage.call(client, enter)
}

/// The one before leaves, and who has waited enters and puts.
fn enters_behind(
    stage: &mut Stage,
    (h1, s1): (ClientId, SectionIx),
    (h2, enter): (ClientId, OpId),
) {
    stage.leave(h1, s1);
    if let Some(s2) = stage.entered(enter) {
        stage.put(h2, s2, "v");
        stage.leave(h2, s2);
    }
}

/// G48: a client waits long; its own heartbeats begin with its entry.
pub(super) fn short_lease(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    let mute = stage.mute(h2);
    let enter = begin_short(stage, h2);
    stage.pass(6_000);
    stage.release(mute);
    enters_behind(stage, (h1, s1), (h2, enter));
}

/// G48: for twice its lease nothing is heard of one who waits, and then it is again.
pub(super) fn silent_waiter(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 5]);
    let Some(s1) = stage.enter(h1) else { return };
    let enter = begin_short(stage, h2);
    stage.pass(1_000);
    let unheard = stage.lose(renewals_by(NodeName(5), &[A]));
    stage.pass(LEASE / 2_000);
    stage.release(unheard);
    stage.pass(1_000);
    enters_behind(stage, (h1, s1), (h2, enter));
}

/// Answers of primaries to renewals that a node has sent.
fn states_told(to: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { to: at, message: Message::Lock(message), .. }
            if *at == to && matches!(message, lock::Message::Renewed { .. }))
    }
}

/// G62: coordinator D, which has just started, renews the section of H1, who dies, and loses power.
/// In its next life it renews that of H2, who was taken for dead meanwhile; the answer to the first
/// comes.
pub(super) fn late_renewal(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    let h2 = stage.client_with(&[4], |o| o.cached_gets = true);
    let h3 = stage.client(&[5]);
    let key = stage.key.clone();
    stage.key = stage.key_beside("y");
    stage.enter(h1);
    stage.key = key;
    let Some(s2) = stage.enter(h2) else { return };
    stage.put(h2, s2, "v2");
    let mute = stage.mute(h2);
    stage.world.stop(D, true);
    stage.world.start(D);
    let late = stage.hold(states_told(D));
    let told = stage.until(move |w| w.network.held(late) > 0);
    stage.expect(told, "H1 is told that it holds");
    stage.world.kill_client(h1);
    stage.world.stop(D, true);
    let parcels = stage.world.network.release(late);
    stage.world.start(D);
    stage.section(h3, "v3");
    stage.discard(mute);
    let own = stage.hold(states_told(D));
    let told = stage.until(move |w| w.network.held(own) > 0);
    stage.expect(told, "H2 is told that it holds no more");
    for parcel in parcels {
        stage.world.inject(parcel);
    }
    stage.pass(100);
    stage.get(h2, s2);
    stage.release(own);
}
