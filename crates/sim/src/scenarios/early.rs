//! What is asked of members that do not know yet that the store is to be theirs.

use super::Scenario;
use super::coded::terms;
use super::ring::{D, F, goes_on, press};
use super::stage::{A, B, C, Stage, long, parts_of};
use crate::history::{Heard, OpId, SectionIx};
use crate::network::{ClientId, Parcel};
use fermata_protocol::base::{NodeName, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::{Message, paxos, ring};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[Scenario {
    name: "ring-asked-early",
    about: "two puts of a holder reach members that have yet to hear of the end of their log",
    play: asked_early,
}];

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

fn begin_long_put(
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
    let ended = stage.until(|w| {
        let here = w.machines[&A].node().map(fermata_protocol::Node::here);
        here.is_some_and(|here| here.segments.values().any(|s| s.log.id().epoch.0 > before))
    });
    stage.expect(ended, "the log ends");
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
