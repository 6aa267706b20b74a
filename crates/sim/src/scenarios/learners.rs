//! R1, R3: nodes follow a group's logs before they have a seat, and a view waits for them.

use super::Scenario;
use super::ring::{D, E, F, FIRST, born, gone, propose};
use super::stage::{A, B, C, Stage};
use crate::nemesis;
use crate::network::{Parcel, RuleId};
use fermata_protocol::base::{Epoch, NodeName, Scope};
use fermata_protocol::{Message, paxos, ring};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "ring-learners",
        about: "nodes that follow begin from what they know, and miss something on the way",
        play: from_what_they_know,
    },
    Scenario {
        name: "ring-learners-led-anew",
        about: "who leads the logs that others follow is cut off, and they follow another",
        play: led_anew,
    },
    Scenario {
        name: "ring-members-unheard",
        about: "a view of which no quorum is heard is not proposed",
        play: unheard,
    },
];

/// Logs whose state takes several messages.
fn large(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.usage = 0;
        setup.limits.chunk = 100;
    });
}

/// Nobody is given a later log by another: whoever has it began from what it knew.
fn no_births(stage: &mut Stage) -> RuleId {
    stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { message: Message::Paxos { log, message }, .. }
            if log.epoch > Epoch::FIRST && matches!(message, paxos::Message::Birth { .. }))
    })
}

/// The word that a node knows the logs does not arrive yet.
fn warm_withheld(stage: &mut Stage) -> RuleId {
    stage.hold(|parcel| {
        let Parcel::Peer { message, .. } = parcel else {
            return false;
        };
        matches!(message, Message::Ring(ring::Message::Warm { .. }))
    })
}

/// D, E and F follow, and are to have all seats. What D is told of one section is lost, and it is
/// told of the next.
fn from_what_they_know(stage: &mut Stage) {
    large(stage);
    let [h1, h2] = stage.clients([5, 6]);
    stage.section(h1, "v1");
    no_births(stage);
    let warm = warm_withheld(stage);
    let before = propose(stage, &[D, E, F]);
    // They have just asked again.
    stage.pass(900);
    let segment = stage.segment();
    let told = stage.lose(move |parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Paxos { log, message }, .. }
            if *to == D && log.scope == Scope::Segment(segment)
                && matches!(message, paxos::Message::Entries { .. }))
    });
    stage.section(h1, "v2");
    stage.discard(told);
    stage.section(h2, "v3");
    stage.release(warm);
    born(stage, &[D, E, F], before);
    gone(stage, &[A, B, C]);
    stage.section(h1, "v4");
}

/// A leads, and is cut off while D, E and F follow; whoever leads then is asked for the same once
/// more.
fn led_anew(stage: &mut Stage) {
    large(stage);
    let [h1, h2] = stage.clients([5, 6]);
    stage.section(h1, "v1");
    no_births(stage);
    let warm = warm_withheld(stage);
    propose(stage, &[D, E, F]);
    stage.pass(500);
    stage.discard(warm);
    stage.isolate(A);
    stage.leader_other_than(A);
    stage.section(h2, "v2");
    let names = [B, D, E, F];
    let before = nemesis::present_view(&stage.world, FIRST).epoch.0;
    for _ in 0..8 {
        if nemesis::present_view(&stage.world, FIRST).epoch.0 == before {
            propose(stage, &names);
            stage.pass(2_000);
        }
    }
    born(stage, &names, before);
    stage.section(h1, "v3");
    stage.mend();
    gone(stage, &[A, C]);
    stage.section(h2, "v4");
}

/// E and F do not run. D, E and F are asked for in vain, and again when all run.
fn unheard(stage: &mut Stage) {
    let [h1, h2] = stage.clients([4, 6]);
    stage.section(h1, "v1");
    for name in [E, F] {
        stage.isolate(name);
    }
    stage.pass(3_000);
    let wanted: [NodeName; 3] = [D, E, F];
    let before = propose(stage, &wanted);
    stage.pass(8_000);
    let present = nemesis::present_view(&stage.world, FIRST).epoch.0;
    stage.expect(
        present == before,
        "a view of which no quorum is heard is not proposed",
    );
    stage.section(h1, "v2");
    stage.mend();
    stage.pass(2_000);
    propose(stage, &wanted);
    born(stage, &wanted, before);
    stage.section(h2, "v3");
}
