//! R11: a group goes on as two.

use super::Scenario;
use super::ring::{
    D, E, F, FIRST, each_crash, is_found_at_rest, lists_to, loses_disk, next, put_beside,
};
use super::stage::{A, B, C, Stage, spread_to};
use crate::checkers::places::Places;
use crate::nemesis;
use crate::world::World;
use fermata_protocol::base::{GroupId, Location, NodeName, SegmentId};
use fermata_protocol::request::Mode;

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "ring-split",
        about: "a group of six goes on as two of three; then a member of each is cut off",
        play: halves,
    },
    Scenario {
        name: "ring-split-child-at-one",
        about: "the only member with the child's log loses its disk before it gives it to others",
        play: child_at_one,
    },
    Scenario {
        name: "ring-split-each-crash",
        about: "a node loses power at each step of a split, in each role",
        play: split_each_crash,
    },
    Scenario {
        name: "ring-split-asleep",
        about: "a coordinator that slept while a group split hears of one half before the other",
        play: asleep,
    },
];

const ALL: [NodeName; 6] = [A, B, C, D, E, F];

/// The first segment of the child.
const AT: SegmentId = SegmentId(1);

/// Somebody proposes that the group goes on with A, B and C, and a child with D, E and F, which is
/// named.
fn split(stage: &mut Stage) -> GroupId {
    let epoch = nemesis::present_view(&stage.world, FIRST).epoch;
    let session = 0xbeef + stage.world.now;
    nemesis::split_at(&mut stage.world, FIRST, session, AT, &[A, B, C], &[D, E, F]);
    FIRST.child(epoch.next())
}

fn location(world: &World, group: GroupId) -> Option<Location> {
    let places = Places::of(&world.setup.cluster, &world.machines);
    let mut all = places.locations();
    all.find(|at| at.id() == group).cloned()
}

/// Both halves have begun.
fn has_split(stage: &mut Stage, child: GroupId) {
    let both = stage.until(|w| {
        let begun = |group| location(w, group).is_some_and(|at| at.unstarted().is_empty());
        begun(FIRST) && begun(child)
    });
    stage.expect(both, "each segment starts in its half of the group");
}

/// Nobody has logs of a group in which it has no seat.
fn apart(stage: &mut Stage, child: GroupId) {
    let apart = stage.until(|w| {
        let logs = |names: [NodeName; 3], group| {
            let here = |name: &NodeName| w.machines[name].node().map(|n| n.here().logs_of(group));
            names.iter().all(|name| here(name) == Some(0))
        };
        logs([D, E, F], FIRST) && logs([A, B, C], child)
    });
    stage.expect(apart, "logs of the other half go");
}

/// A holder, a register that has not moved since the members last changed, and an eventual put that
/// one member has go through a split.
fn halves(stage: &mut Stage) {
    let (near, holder, h2) = (stage.client(&[6]), stage.client(&[1]), stage.client(&[4]));
    let register = stage.register();
    stage.write(h2, &register, "r1");
    let still = stage.lose(lists_to(&ALL));
    next(stage, &ALL);
    let alone = stage.lose(spread_to(&ALL));
    let other = put_beside(stage, near);
    let Some(section) = stage.enter(holder) else {
        return;
    };
    stage.put(holder, section, "v1");
    let child = split(stage);
    stage.put(holder, section, "v2");
    stage.get(holder, section);
    has_split(stage, child);
    stage.read(h2, &register);
    stage.discard(still);
    stage.discard(alone);
    apart(stage, child);
    stage.put(holder, section, "v3");
    stage.leave(holder, section);
    for away in [C, F] {
        stage.isolate(away);
    }
    stage.section(h2, "v4");
    stage.read(h2, &register);
    stage.write(holder, &register, "r2");
    stage.mend();
    is_found_at_rest(stage, h2, other);
}

/// E and F are cut off while D and the others split; D is lost before they are back.
fn child_at_one(stage: &mut Stage) {
    next(stage, &ALL);
    let [h1, h2] = stage.clients([1, 5]);
    stage.section(h1, "v1");
    for name in [E, F] {
        stage.isolate(name);
    }
    let child = split(stage);
    let born = stage.until(|w| {
        let logs = |name| w.machines[&name].node().map(|n| n.here().logs_of(child));
        let parent = location(w, FIRST).is_some_and(|at| at.unstarted().is_empty());
        logs(D) > Some(1) && parent
    });
    stage.expect(born, "a member of the child's creates its logs");
    loses_disk(stage, D);
    stage.mend();
    has_split(stage, child);
    stage.section(h2, "v2");
    stage.section(h1, "v3");
}

/// A node loses power at each step: who leads, a member that stays, and two of the child's, of
/// which one begins it.
fn split_each_crash(stage: &mut Stage) {
    let victims = [A, B, D, E];
    let grown = |stage: &mut Stage| next(stage, &ALL);
    let change = |stage: &mut Stage| {
        split(stage);
    };
    each_crash(stage, (&victims, "a split"), grown, change);
}

/// A coordinator without a seat sleeps; the group splits, and goes on with other members.
fn asleep(stage: &mut Stage) {
    next(stage, &[A, B, C, D, E]);
    let [h1, h2] = stage.clients([1, 6]);
    stage.section(h1, "v1");
    stage.isolate(F);
    let epoch = nemesis::present_view(&stage.world, FIRST).epoch;
    let session = 0xbeef + stage.world.now;
    nemesis::split_at(&mut stage.world, FIRST, session, AT, &[A, B, C], &[C, D, E]);
    let child = FIRST.child(epoch.next());
    has_split(stage, child);
    nemesis::change_members(&mut stage.world, FIRST, &[A, B, D]);
    let goes_on = stage.until(|w| {
        let at = location(w, FIRST);
        at.is_some_and(|at| at.group.view.seat_of(D).is_some() && at.unstarted().is_empty())
    });
    stage.expect(goes_on, "the group that has split changes its members");
    stage.mend();
    // One is the child's, and one is not.
    for key in [stage.key.clone(), stage.other_key()] {
        let op = stage.enter_keys(h2, vec![key], Mode::Exclusive);
        if let Some(section) = stage.entered(op) {
            stage.leave(h2, section);
        }
    }
}
