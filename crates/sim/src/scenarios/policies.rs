//! R14, R15: what groups do unasked. A node without a seat is given one, and a group's own log goes
//! to the member that is the nearest to a quorum.
//!
//! A seat too many, or a leader that is farther than another, breaks no promise: these schedules
//! say themselves what they expect.

use super::full::set_full;
use super::ring::FIRST;
use super::stage::{A, B, C, Stage, candidacy_of};
use super::{Scenario, full, placement};
use crate::network::Parcel;
use crate::world::World;
use crate::{cluster, nemesis};
use fermata_protocol::base::{GroupId, NodeName};
use fermata_protocol::command::GroupCommand;
use fermata_protocol::settings::{Join, Setting};
use fermata_protocol::{Message, ring};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "spare-joins",
        about: "nodes without a seat are given one each, whoever leads, unless they drain",
        play: spare_joins,
    },
    Scenario {
        name: "spare-fills",
        about: "a disk is full between the invitation and the seat: there is no seat",
        play: spare_fills,
    },
    Scenario {
        name: "spare-full",
        about: "a node without room is given no seat; one that is full in its seat is done without",
        play: spare_full,
    },
    Scenario {
        name: "drain-beside-full",
        about: "a node drains, and gives what it leads to whoever has room on the disk",
        play: full::drain_beside_full,
    },
    Scenario {
        name: "full-beside-drained",
        about: "a disk is full, and those drain who have room on theirs",
        play: full::full_beside_drained,
    },
    Scenario {
        name: "full-beside-full",
        about: "a disk is full beside another one, and the rest is a quorum",
        play: full::full_beside_full,
    },
    Scenario {
        name: "drained-to-laggard",
        about: "nodes drain while the only other one lags behind a snapshot",
        play: placement::drained_to_laggard,
    },
    Scenario {
        name: "replaced-once",
        about: "two groups lose a member each, and there is one spare",
        play: full::replaced_once,
    },
    Scenario {
        name: "replaced-beside-drains",
        about: "a member is dead beside nodes that drain, and is replaced by none of them",
        play: full::replaced_beside_drains,
    },
    Scenario {
        name: "leader-moves",
        about: "a group is led by the member that is the nearest to a quorum, after three looks",
        play: leader_moves,
    },
];

const SECOND: GroupId = GroupId(2);
const FOURTH: NodeName = NodeName(4);
const FIFTH: NodeName = NodeName(5);
/// The nodes without a seat of [`cluster::spared`].
pub(super) const SPARE: NodeName = NodeName(7);
pub(super) const LEAVING: NodeName = NodeName(8);

pub(super) fn decide(stage: &mut Stage, command: GroupCommand) {
    let session = stage.world.dice.draw();
    nemesis::propose(&mut stage.world, session, command);
}

pub(super) fn settle(stage: &mut Stage, setting: Setting) {
    decide(stage, GroupCommand::Settle(setting));
}

/// In how many groups that own segments a node has a seat.
pub(super) fn seats(world: &World, name: NodeName) -> usize {
    let has = |group: &GroupId| nemesis::present_view(world, *group).seat_of(name).is_some();
    [FIRST, SECOND].iter().filter(|group| has(group)).count()
}

/// Waits until something is so, for some rounds of looking.
fn in_time(stage: &mut Stage, so: impl FnMut(&World) -> bool) -> bool {
    let until = stage.world.now + 120_000_000;
    stage.world.run_until(until, so)
}

/// The spare says to a leader that it follows its group's logs.
fn follows(parcel: &Parcel, leader: NodeName) -> bool {
    matches!(
        parcel,
        Parcel::Peer { from, to, message: Message::Ring(ring::Message::Warm { .. }) }
            if from.name == SPARE && *to == leader
    )
}

/// Nobody gives spares a seat until the settings say so. Then one of the groups' leaders invites
/// one, does not hear that it follows, and loses power; the other spare drains. Another leads, and
/// the spare has one seat, in either group. Who drains no more has one, too.
fn spare_joins(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::spared());
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    stage.pass(30_000);
    let none = seats(&stage.world, SPARE) + seats(&stage.world, LEAVING) == 0;
    stage.expect(none, "nobody is given a seat unasked");
    let (name, drains) = (LEAVING, true);
    decide(stage, GroupCommand::Drain { name, drains });
    stage.pass(2_000);
    let [to_a, to_fourth] = [A, FOURTH].map(|to| stage.hold(move |p| follows(p, to)));
    settle(stage, Setting::Join(Some(Join::Latency)));
    let heard = move |w: &World, rule| w.network.held(rule) > 0;
    let invited = stage.until(move |w| heard(w, to_a) || heard(w, to_fourth));
    stage.expect(invited, "a spare follows who has invited it");
    let leader = match heard(&stage.world, to_a) {
        true => A,
        false => FOURTH,
    };
    stage.world.stop(leader, true);
    stage.discard(to_a);
    stage.discard(to_fourth);
    let joined = in_time(stage, |w| seats(w, SPARE) > 0);
    stage.expect(joined, "a spare is given a seat, whoever leads");
    stage.section(user, "v2");
    stage.world.start(leader);
    stage.pass(60_000);
    let none = seats(&stage.world, LEAVING) == 0;
    stage.expect(none, "who drains is given no seat");
    let (name, drains) = (LEAVING, false);
    decide(stage, GroupCommand::Drain { name, drains });
    let joined = in_time(stage, |w| seats(w, LEAVING) > 0);
    stage.expect(joined, "who drains no more is given a seat");
    stage.pass(60_000);
    let one = seats(&stage.world, SPARE) == 1 && seats(&stage.world, LEAVING) == 1;
    stage.expect(one, "who has a seat in one group is given none in another");
    stage.section(user, "v3");
}

/// The spare has no room, and is given no seat; with room it is, and has no room again before it
/// has written what it begins with. The others go on without it. When it has room it serves.
fn spare_full(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::spared());
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    set_full(stage, SPARE, true);
    // The others hear of it with the first thing that it cannot write.
    let (name, drains) = (LEAVING, true);
    decide(stage, GroupCommand::Drain { name, drains });
    settle(stage, Setting::Join(Some(Join::Latency)));
    stage.pass(60_000);
    let none = seats(&stage.world, SPARE) == 0;
    stage.expect(none, "who has no room is given no seat");
    set_full(stage, SPARE, false);
    let joined = in_time(stage, |w| seats(w, SPARE) > 0);
    stage.expect(joined, "who has room is given a seat");
    set_full(stage, SPARE, true);
    stage.section(user, "v2");
    stage.pass(5_000);
    stage.section(user, "v3");
    set_full(stage, SPARE, false);
    stage.pass(5_000);
    stage.section(user, "v4");
}

/// The spare's disk is full, as it notices with the first thing that it cannot write: another
/// setting. The others hear of that.
fn fill_spare(stage: &mut Stage, dead_after: u64) {
    set_full(stage, SPARE, true);
    settle(stage, Setting::DeadAfter(dead_after));
    stage.pass(1_000);
}

/// A spare follows for a change that waits for somebody else, and has no room any more when it is
/// asked for alone. Then it is invited, and has none when whoever invited it hears that it follows.
fn spare_fills(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::spared());
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    let (name, drains) = (LEAVING, true);
    decide(stage, GroupCommand::Drain { name, drains });
    stage.pass(2_000);
    let deaf = stage.lose(|p| {
        matches!(
            p,
            Parcel::Peer {
                to: FIFTH,
                message: Message::Ring(ring::Message::Invite(_)),
                ..
            }
        )
    });
    let told = stage.hold(|p| follows(p, A));
    let wants = |stage: &mut Stage, names: &[NodeName]| {
        let session = stage.world.dice.draw();
        nemesis::next_members(&mut stage.world, FIRST, session, names);
    };
    wants(stage, &[A, B, C, SPARE, FIFTH]);
    let follows_all = stage.until(move |w| w.network.held(told) > 0);
    stage.expect(follows_all, "a spare follows who has invited it");
    stage.release(told);
    stage.pass(200);
    fill_spare(stage, 500_000_000);
    wants(stage, &[A, B, C, SPARE]);
    stage.pass(10_000);
    let none = seats(&stage.world, SPARE) == 0;
    stage.expect(
        none,
        "who has no room is given no seat, whatever it follows",
    );
    stage.release(deaf);
    set_full(stage, SPARE, false);
    stage.pass(5_000);
    let held = [A, FOURTH].map(|to| stage.hold(move |p| follows(p, to)));
    settle(stage, Setting::Join(Some(Join::Latency)));
    let invited = stage.until(move |w| held.iter().any(|rule| w.network.held(*rule) > 0));
    stage.expect(invited, "a spare follows who has invited it");
    fill_spare(stage, 600_000_000);
    for rule in held {
        stage.release(rule);
    }
    stage.pass(20_000);
    let none = seats(&stage.world, SPARE) == 0;
    stage.expect(none, "who has no room any more is given no seat");
    set_full(stage, SPARE, false);
    let joined = in_time(stage, |w| seats(w, SPARE) > 0);
    stage.expect(joined, "who has room again is given a seat");
    stage.section(user, "v2");
}

/// Whether a node leads the group.
fn leads(world: &World, name: NodeName) -> bool {
    let node = world.machines[&name].node();
    let room = node.and_then(|node| node.here().groups.get(&FIRST));
    room.is_some_and(|room| room.log.is_primary())
}

/// Two of five members are at A's site, far from the others, and A leads. When it has been beaten
/// in one look or two it loses power, and the other one there leads, which counts anew; then the
/// group is led from one of the other sites, and stays there when A is back. Without the setting it
/// goes home to A.
fn leader_moves(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::schedule(5));
    let user = stage.client(&[2]);
    stage.section(user, "v1");
    settle(stage, Setting::NearestLeads(true));
    stage.pass(95_000);
    let stays = leads(&stage.world, A);
    stage.expect(
        stays,
        "a leader stays until another was nearer in three looks",
    );
    let silent = [B, C, FIFTH].map(|name| stage.lose(candidacy_of(name)));
    stage.world.stop(A, true);
    let led = stage.until(|w| leads(w, FOURTH));
    stage.expect(led, "another member of the site leads");
    for rule in silent {
        stage.release(rule);
    }
    stage.pass(60_000);
    let stays = leads(&stage.world, FOURTH);
    stage.expect(stays, "a later leader counts anew");
    let near = |w: &World| [B, C, FIFTH].iter().any(|name| leads(w, *name));
    let moved = in_time(stage, near);
    stage.expect(moved, "the group is led by who is the nearest to a quorum");
    stage.section(user, "v2");
    stage.world.start(A);
    stage.pass(60_000);
    let stays = near(&stage.world);
    stage.expect(stays, "who is the nearest to a quorum goes on leading");
    settle(stage, Setting::NearestLeads(false));
    let home = in_time(stage, |w| leads(w, A));
    stage.expect(
        home,
        "without the setting the group is led by its first seat",
    );
    stage.section(user, "v3");
}
