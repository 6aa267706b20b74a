//! Nodes that were away while the group went on with others: they come back to members that have
//! retired, to strangers, or to nobody that they know.

use super::ring::{D, E, F, born, comes, gone, next, propose};
use super::stage::{A, B, C, Stage};
use crate::network::{End, Parcel};
use crate::world::World;
use crate::{cluster, nemesis, random};
use fermata_protocol::base::{Epoch, GroupId, KeyspaceId, NodeName, SessionId};
use fermata_protocol::command::{Body, Command, GroupCommand};
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, coordinator, ring};

/// D has voted for the end of a log, and has dropped it. F has slept through that end, and stands.
pub(super) fn retired_member(stage: &mut Stage) {
    let (h1, stale) = (stage.client(&[1]), stage.client(&[6]));
    stage.section(h1, "v1");
    next(stage, &[D, E, F]);
    gone(stage, &[A, B, C]);
    stage.section(h1, "v2");
    stage.isolate(F);
    next(stage, &[A, B, C]);
    gone(stage, &[D, E]);
    for name in [D, F] {
        let (from, to) = (End::Node(name), End::Node(if name == D { F } else { D }));
        stage.world.network.mend(from, to);
    }
    let late = stage.begin_enter(stale, Mode::Exclusive);
    stage.section(h1, "v3");
    stage.pass(15_000);
    stage.section(h1, "v4");
    stage.mend();
    stage.entered(late);
}

/// C has a seat in the next log and has slept through the end of the former one, whose other
/// members have retired. They are what it hears first, and cannot give it the next log.
pub(super) fn retired_asked(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    stage.section(h1, "v1");
    stage.isolate(C);
    let before = propose(stage, &[C, D, E]);
    born(stage, &[D, E], before);
    stage.section(h1, "v2");
    gone(stage, &[A, B]);
    for (from, to) in [(A, C), (C, A), (B, C), (C, B)] {
        stage.world.network.mend(End::Node(from), End::Node(to));
    }
    stage.pass(3_750);
    stage.mend();
    stage.section(h1, "v3");
    random::rest(&mut stage.world);
    born(stage, &[C], before);
}

/// C sleeps through the ends of two logs of the meta-group. Those whom it knows there have retired,
/// and know of the first end alone, after which C still had a seat.
pub(super) fn left_behind(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    stage.section(h1, "v1");
    stage.isolate(C);
    for (goes_on, retires) in [([C, D, E], &[A, B][..]), ([D, E, F], &[])] {
        // Asked once: those who ask again would change it back.
        let session = 0xbeef + stage.world.now;
        nemesis::next_members(&mut stage.world, GroupId::META, session, &goes_on);
        let logs = |w: &World, name: &NodeName| {
            let here = w.machines[name].node().map(|node| node.here());
            here.map_or(0, |here| here.logs_of(GroupId::META))
        };
        let changed = stage.until(move |w| {
            let mut has = goes_on.iter().filter(|name| **name != C);
            has.all(|name| logs(w, name) == 1) && retires.iter().all(|name| logs(w, name) == 0)
        });
        stage.expect(
            changed,
            "the meta-group goes on without a member that is away",
        );
    }
    stage.mend();
    stage.section(h1, "v2");
    random::rest(&mut stage.world);
}

/// C sleeps while all that it knows are replaced and leave, but for D, which has no seat and sleeps
/// too. They come back to strangers, and another node comes that knows the file's alone.
pub(super) fn all_strangers(stage: &mut Stage) {
    let h1 = stage.client(&[1]);
    stage.section(h1, "v1");
    for name in [C, D] {
        stage.world.stop(name, true);
    }
    let (Some(x), Some(y)) = (comes(stage), comes(stage)) else {
        return;
    };
    let before = propose(stage, &[x, y, C]);
    born(stage, &[x, y], before);
    nemesis::change_members(&mut stage.world, GroupId::META, &[x, y, C]);
    let rest = [A, B, E, F];
    for name in rest {
        nemesis::leave(&mut stage.world, name);
    }
    let gone = stage.until(move |w| rest.iter().all(|name| w.machines[name].lost.is_some()));
    stage.expect(gone, "who has no seat can leave");
    for name in [C, D] {
        stage.world.start(name);
    }
    born(stage, &[C], before);
    let Some(z) = comes(stage) else { return };
    let [h2, h3] = [D, z].map(|name| stage.client(&[name.0]));
    stage.section(h2, "v2");
    stage.section(h3, "v3");
    random::rest(&mut stage.world);
}

/// D, which has no seat, sleeps while all members are replaced and leave. Nobody whom it takes for
/// one is there to tell it more.
pub(super) fn out_of_sight(stage: &mut Stage) {
    let h1 = stage.client(&[1]);
    stage.section(h1, "v1");
    stage.world.stop(D, true);
    let (Some(x), Some(y), Some(z)) = (comes(stage), comes(stage), comes(stage)) else {
        return;
    };
    next(stage, &[x, y, z]);
    nemesis::change_members(&mut stage.world, GroupId::META, &[x, y, z]);
    for name in [A, B, C] {
        nemesis::leave(&mut stage.world, name);
    }
    let gone = |w: &World| [A, B, C].iter().all(|name| w.machines[name].lost.is_some());
    let gone = stage.until(gone);
    stage.world.start(D);
    let h2 = stage.client(&[4]);
    stage.section(h2, "v2");
    stage.expect(gone, "former members leave once all has moved");
}

/// F has no seat, and has heard nothing of where the meta-group has gone. It asks those whom it
/// takes for its members, who have retired.
pub(super) fn meta_asked(stage: &mut Stage) {
    let h1 = stage.client(&[6]);
    let Some(g) = comes(stage) else { return };
    let untold = stage.lose(|parcel| {
        let tells =
            |message: &Message| matches!(message, Message::Ring(ring::Message::Location(_)));
        matches!(parcel, Parcel::Peer { to, message, .. } if *to == F && tells(message))
    });
    nemesis::change_members(&mut stage.world, GroupId::META, &[D, E, g]);
    let knows = move |w: &World, name: NodeName| {
        let node = w.machines[&name].node();
        let at = node.and_then(|node| node.here().directory.location(GroupId::META));
        at.is_some_and(|at| at.group.view.seat_of(g).is_some())
    };
    let gone = stage.until(move |w| {
        let retired = |name: &NodeName| {
            let node = w.machines[name].node();
            node.is_some_and(|node| node.here().logs_of(GroupId::META) == 0)
        };
        [A, B, C].iter().all(retired)
    });
    stage.discard(untold);
    let missed = !knows(&stage.world, F);
    stage.expect(gone && missed, "a node without a seat misses the change");
    let body = Body::Group(GroupCommand::DeleteKeyspace(KeyspaceId(77)));
    let command = Command::new(SessionId(1), 1, 0, Epoch::FIRST, body);
    let from = stage.world.machines[&F].id();
    let message = Message::Coordinator(coordinator::Message::Propose { call: 1, command });
    let to = A;
    stage.world.inject(Parcel::Peer { from, to, message });
    let told = stage.until(move |w| knows(w, F));
    stage.expect(told, "who asks a former member is told where its group is");
    stage.section(h1, "v1");
}

/// At its first start A has met everybody, and dies before it hears that they have, too. The others
/// start, and F leaves.
pub(super) fn late_founder(stage: &mut Stage) {
    stage.dark_with(cluster::schedule(3));
    stage.audited = false;
    let deaf = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Hello(hello), .. }
            if *to == A && hello.complete)
    });
    for name in [A, B, C, D, E, F] {
        stage.world.start(name);
    }
    let rest = [B, C, D, E, F];
    let started = stage.until(move |w| {
        let node = |name: &NodeName| w.machines[name].node().is_some_and(|n| n.is_started());
        rest.iter().all(node)
    });
    stage.expect(
        started,
        "five nodes start, of whom all know that the sixth is complete",
    );
    stage.world.stop(A, true);
    nemesis::leave(&mut stage.world, F);
    let told = stage.until(|w| w.machines[&F].lost.is_some());
    stage.discard(deaf);
    stage.world.start(A);
    let started = stage.until(|w| w.machines[&A].node().is_some_and(|node| node.is_started()));
    stage.expect(
        told && started,
        "a node of the file starts although another has left",
    );
    let h1 = stage.client(&[1]);
    stage.section(h1, "v1");
}

/// D, which has no seat, is dismissed while it is cut off from all but A; it is told so there.
pub(super) fn dismissed(stage: &mut Stage) {
    let h1 = stage.client(&[5]);
    stage.section(h1, "v1");
    stage.cut(D, &[B, C, E, F]);
    let command = GroupCommand::Dismiss {
        name: D,
        lost: false,
    };
    nemesis::propose(&mut stage.world, 0xfeed, command);
    let told = stage.until(|w| w.machines[&D].lost.is_some());
    stage.section(h1, "v2");
    stage.expect(told, "a node that was dismissed stops");
}
