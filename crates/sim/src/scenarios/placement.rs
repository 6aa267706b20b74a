//! Where a segment's primary goes: to the site that uses the segment, and nowhere else (policy).
//!
//! A leads the segment first, at site one. A primary that moves too often breaks no promise, so
//! that these schedules say themselves what they expect.

use super::full::slowest;
use super::stage::{A, B, C, Stage, value};
use crate::history::Heard;
use crate::nemesis;
use crate::network::{ClientId, Parcel, RuleId};
use crate::world::World;
use fermata_protocol::base::{Ballot, NodeName, SegmentId};
use fermata_protocol::command::GroupCommand;
use fermata_protocol::{Message, paxos};

/// A client's pause after each section, milliseconds.
const PAUSE: u64 = 300;

/// Who leads a segment, by its own word.
fn leads(world: &World, segment: SegmentId, name: NodeName) -> bool {
    let node = world.machines[&name].node();
    node.is_some_and(|n| n.here().led().any(|s| s == segment))
}

/// How often logs have been given to the seat that should lead them.
fn moves(stage: &Stage) -> u64 {
    let nodes = stage.world.machines.values().filter_map(|m| m.node());
    nodes.map(|node| node.moves()).sum()
}

/// Sections of a client, one after another, for so many milliseconds.
fn use_it(stage: &mut Stage, client: ClientId, text: &str, millis: u64) {
    let until = stage.world.now + millis * 1_000;
    for round in 0.. {
        if stage.world.now >= until {
            return;
        }
        stage.section(client, &format!("{text}{round}"));
        stage.pass(PAUSE);
    }
}

/// What a section with one put takes a client, microseconds.
fn section_takes(stage: &mut Stage, client: ClientId, text: &str) -> u64 {
    let begin = stage.world.now;
    let Some(section) = stage.enter(client) else {
        return u64::MAX;
    };
    stage.put(client, section, text);
    let took = stage.world.now - begin;
    stage.leave(client, section);
    took
}

/// A client at C's site uses the segment, while another one is in a section of a key beside it: C
/// leads, both go on, and C keeps what it was given.
pub(super) fn user(stage: &mut Stage) {
    let [user, holder] = stage.clients([3, 5]);
    let key = stage.key.clone();
    let far = section_takes(stage, user, "far");
    stage.key = stage.key_beside("held");
    let held = stage.enter(holder);
    if let Some(section) = held {
        stage.put(holder, section, "before");
    }
    stage.key = key.clone();
    use_it(stage, user, "a", 60_000);
    let segment = stage.segment();
    let there = leads(&stage.world, segment, C);
    stage.expect(there, "the primary goes to the site that uses the segment");
    stage.expect(moves(stage) == 1, "it goes there once, and stays");
    let near = section_takes(stage, user, "near");
    // The trip to A and back, but for what waits for the quorum, which is at B.
    let nearest = stage.world.setup.profile.rtt(1, 2);
    stage.expect(
        far > 2 * nearest + 40_000,
        "a section far from the primary takes more",
    );
    stage.expect(
        near < 2 * nearest + 4_000,
        "beside it, two trips to the quorum",
    );
    stage.key = stage.key_beside("held");
    if let Some(section) = held {
        let put = stage.put(holder, section, "after");
        let kept = matches!(put, Some(Heard::Done(_)));
        stage.expect(
            kept,
            "a section is not lost when its segment's primary moves",
        );
        stage.leave(holder, section);
    }
    let Some(section) = stage.enter(user) else {
        return;
    };
    let found = stage.found(section) == value("after");
    stage.expect(found, "what the section has put is there");
    stage.leave(user, section);
    stage.key = key;
}

/// Asks for a node to drain, or not to, and gives it time.
fn drain(stage: &mut Stage, name: NodeName, drains: bool) {
    let session = stage.world.dice.draw();
    nemesis::propose(
        &mut stage.world,
        session,
        GroupCommand::Drain { name, drains },
    );
    stage.pass(6_000);
}

/// A drains, which leads the segment and the meta-group: it leads nothing until it is to drain no
/// more, although its site uses the segment. Then the others drain, too, and whoever leads then
/// keeps that.
pub(super) fn drains(stage: &mut Stage) {
    let user = stage.client(&[1]);
    stage.section(user, "v1");
    let leads_any = |w: &World, name| {
        let node = w.machines[&name].node();
        node.is_some_and(|n| n.here().led().next().is_some())
    };
    drain(stage, A, true);
    let none = !leads_any(&stage.world, A);
    stage.expect(none, "who drains leads nothing");
    use_it(stage, user, "a", 60_000);
    let none = !leads_any(&stage.world, A);
    stage.expect(none, "who drains is given nothing");
    for name in [B, C] {
        drain(stage, name, true);
    }
    stage.section(user, "v2");
    let ballot = ballot_at(stage, A);
    stage.pass(20_000);
    let same = ballot_at(stage, A) == ballot;
    stage.expect(
        same,
        "of those who drain none gives the others what it leads",
    );
    for name in [A, B, C] {
        drain(stage, name, false);
    }
    stage.pass(60_000);
    let home = leads_any(&stage.world, A);
    stage.expect(home, "who drains no more leads again");
    stage.section(user, "v3");
}

/// Two sites, of which none is A's, take turns of some seconds, for minutes.
pub(super) fn even(stage: &mut Stage) {
    let users = stage.clients([2, 3]);
    for turn in 0..40 {
        use_it(stage, users[turn % 2], &format!("{turn}."), 4_000);
    }
    let so = moves(stage) <= 1;
    stage.expect(so, "turns of a few seconds do not move the primary");
}

/// C leads for its site, which goes down, and comes back when others have gone on.
pub(super) fn site_dies(stage: &mut Stage) {
    let [user, other] = stage.clients([3, 5]);
    use_it(stage, user, "a", 30_000);
    let segment = stage.segment();
    let there = leads(&stage.world, segment, C);
    stage.expect(there, "the primary goes to the site that uses the segment");
    stage.section(user, "last");
    for name in [C, NodeName(6)] {
        stage.world.stop(name, true);
    }
    let Some(section) = stage.enter(other) else {
        return;
    };
    let found = stage.found(section) == value("last");
    stage.expect(
        found,
        "what was acknowledged at the site that is gone is there",
    );
    stage.put(other, section, "elsewhere");
    stage.leave(other, section);
    // Seldom: nobody has a majority of next to nothing, and A is as good as B.
    for round in 0..4 {
        stage.pass(10_000);
        stage.section(other, &format!("b{round}"));
    }
    let elsewhere = [A, B]
        .iter()
        .any(|name| leads(&stage.world, segment, *name));
    stage.expect(elsewhere, "another site leads");
    for name in [C, NodeName(6)] {
        stage.world.start(name);
    }
    stage.pass(5_000);
    let Some(section) = stage.enter(user) else {
        return;
    };
    let found = stage.found(section) == value("b3");
    stage.expect(found, "the site finds what was put while it was away");
    stage.leave(user, section);
    use_it(stage, user, "c", 60_000);
    let back = leads(&stage.world, segment, C);
    stage.expect(
        back,
        "the primary comes back to the site that uses the segment",
    );
}

/// G32: A, the home of the segment, comes back far behind: it is heard, and the snapshot that it
/// fetches does not arrive. Who leads keeps the segment until A has come so far.
pub(super) fn lagging_home(stage: &mut Stage) {
    let Some((leader, ballot)) = far_behind(stage, 64) else {
        return;
    };
    let parts = stage.lose(|p| part(p).is_some());
    stage.world.start(A);
    // A seat is given a log when it has been heard for four leases.
    stage.pass(20_000);
    caught_up_first(stage, (leader, ballot), &[parts]);
}

/// G32: A, the home of the segment, comes back far behind, and its primary's first parts of the
/// snapshot are lost. So A fetches it from another, which takes longer than the primary remembers.
pub(super) fn lagging_elsewhere(stage: &mut Stage) {
    let Some((leader, ballot)) = far_behind(stage, 2) else {
        return;
    };
    let lost = stage.lose(move |p| part(p).is_some_and(|(from, _)| from == leader));
    stage.world.start(A);
    for come in 1..=25 {
        let late = stage.lose(move |p| part(p).is_some_and(|(_, at)| at >= 2 * come));
        stage.pass(800);
        stage.release(late);
    }
    caught_up_first(stage, (leader, ballot), &[lost]);
}

/// Of a part of a snapshot for A: from whom, and where it begins.
fn part(parcel: &Parcel) -> Option<(NodeName, u64)> {
    match parcel {
        Parcel::Peer {
            from,
            to: A,
            message:
                Message::Paxos {
                    message: paxos::Message::Chunk(chunk),
                    ..
                },
        } => Some((from.name, chunk.offset)),
        _ => None,
    }
}

/// A is away until it has to fetch a snapshot, in parts of so many bytes; who leads then, and in
/// which ballot.
fn far_behind(stage: &mut Stage, chunk: usize) -> Option<(NodeName, Option<Ballot>)> {
    stage.again(|setup| {
        setup.timing.usage = 0;
        // A few entries alone stay in memory behind a snapshot.
        let few = 1_000;
        let limits = &mut setup.limits;
        (limits.batch_bytes, limits.window_bytes) = (few, few);
        (limits.snapshot_every, limits.chunk) = (8, chunk);
    });
    let client = stage.client(&[5]);
    stage.world.stop(A, true);
    let leader = stage.leader_other_than(A)?;
    let ballot = ballot_at(stage, leader);
    for round in 0..8 {
        stage.section(client, &format!("a{round}"));
    }
    Some((leader, ballot))
}

/// The segment stays where it is, until the rules no longer stand between A and its snapshot.
fn caught_up_first(
    stage: &mut Stage,
    (leader, ballot): (NodeName, Option<Ballot>),
    rules: &[RuleId],
) {
    let client = stage.client(&[5]);
    stage.section(client, "meanwhile");
    let kept = ballot_at(stage, leader) == ballot;
    stage.expect(
        kept,
        "no log is given to a seat that lags behind a snapshot",
    );
    for rule in rules {
        stage.release(*rule);
    }
    stage.pass(60_000);
    let segment = stage.segment();
    let back = leads(&stage.world, segment, A);
    stage.expect(back, "the home has its segment when it has caught up");
}

/// The ballot that a node knows of the key's segment.
fn ballot_at(stage: &Stage, name: NodeName) -> Option<Ballot> {
    let node = stage.world.machines[&name].node();
    let segment = node.and_then(|node| node.here().segments.get(&stage.segment()));
    segment.map(|segment| segment.log.ballot())
}

/// G33: A, at whose site the segment is used, gives it away, for it is about to stop. Others hear
/// it as they always did, and give the segment back.
pub(super) fn retiring(stage: &mut Stage) {
    let user = stage.client(&[4]);
    use_it(stage, user, "a", 20_000);
    let segment = stage.segment();
    let before = leads(&stage.world, segment, A);
    stage.expect(before, "the primary stays where the segment is used");
    stage.world.retire(A);
    use_it(stage, user, "b", 20_000);
    stage.pass(2_000);
    let after = leads(&stage.world, segment, A);
    stage.expect(!after, "a node that is about to stop leads nothing");
}

/// B and C drain when A, the only other one, comes back far behind.
pub(super) fn drained_to_laggard(stage: &mut Stage) {
    if far_behind(stage, 64).is_none() {
        return;
    }
    let parts = stage.lose(|p| part(p).is_some());
    stage.world.start(A);
    stage.pass(20_000);
    for name in [B, C] {
        drain(stage, name, true);
    }
    let client = stage.client(&[5]);
    let round = |stage: &Stage| ballot_at(stage, B).map_or(0, |ballot| ballot.round);
    let before = round(stage);
    slowest(stage, client, 10, "l");
    let after = round(stage);
    stage.expect(
        after <= before + 1,
        "nobody gives a log to a seat that lags because it drains",
    );
    stage.release(parts);
    for name in [B, C] {
        drain(stage, name, false);
    }
    stage.pass(30_000);
    stage.section(client, "v2");
}
