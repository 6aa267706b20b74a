//! R9, R10: the cluster gets another read lease or format, while some nodes do not know of it,
//! forget it, or cannot read it.

use super::ring::{D, E, F, FIRST, closed, closed_or_gone, lists_to, next};
use super::stage::{A, B, C, Stage, spread_to, value};
use super::{Scenario, policies};
use crate::checkers::places::Places;
use crate::history::Heard;
use crate::network::Parcel;
use crate::world::{NEWER, OLDER, World};
use crate::{nemesis, random};
use fermata_protocol::base::{Epoch, GroupId, KeyId, Micros, NodeName, Seat};
use fermata_protocol::client::Call;
use fermata_protocol::command::GroupCommand;
use fermata_protocol::register::{Ask, Message as Register};
use fermata_protocol::settings::{Setting, Settings};
use fermata_protocol::{Message, ring, wire};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "lease-grows",
        about: "the read lease grows, and those who grant it know that late",
        play: lease_grows,
    },
    Scenario {
        name: "lease-kept",
        about: "who has granted a lease that has grown starts again",
        play: lease_kept,
    },
    Scenario {
        name: "lease-granted-before",
        about: "the read lease grows behind those who have granted a shorter one",
        play: lease_granted_before,
    },
    Scenario {
        name: "lease-forgotten",
        about: "who knows of a longer lease loses power before that is durable",
        play: lease_forgotten,
    },
    Scenario {
        name: "lease-told-in-vain",
        about: "who knows of another lease tells former members of the meta-group",
        play: lease_told_in_vain,
    },
    Scenario {
        name: "lease-shrinks",
        about: "the read lease shrinks, and its holder does not know",
        play: lease_shrinks,
    },
    Scenario {
        name: "lease-of-the-given-up",
        about: "the read lease shrinks, and its holder is given up as lost while it lives",
        play: lease_of_the_given_up,
    },
    Scenario {
        name: "lease-awaits-all",
        about: "a read lease does not change before every node knows, or is out",
        play: lease_awaits_all,
    },
    Scenario {
        name: "limits-lowered",
        about: "what has been written is longer than clients may write by now, and moves",
        play: limits_lowered,
    },
    Scenario {
        name: "moves-paced",
        about: "keys move as fast as the settings say, and no faster",
        play: moves_paced,
    },
    Scenario {
        name: "moves-bounded",
        about: "no more is under way at once than a node may have, whoever moves it, and all moves",
        play: moves_bounded,
    },
    Scenario {
        name: "given-beside-the-silent",
        about: "a member is asked for a value and falls silent, and another has one, too",
        play: given_beside_the_silent,
    },
    Scenario {
        name: "dead-is-replaced",
        about: "who is silent for long is replaced, and who is back in time is not",
        play: dead_is_replaced,
    },
    Scenario {
        name: "format-raised",
        about: "the format is raised once every node reads the next one, and logs go on in it",
        play: format_raised,
    },
    Scenario {
        name: "format-older-starts",
        about: "a node that has said it reads the next format starts again with an older program",
        play: format_older_starts,
    },
    Scenario {
        name: "format-twice",
        about: "the format is to be raised again while a member has logs of the first one",
        play: format_twice,
    },
    Scenario {
        name: "format-twice-beside-ended-logs",
        about: "the same while a former member keeps logs of the first one for others",
        play: beside_ended_logs,
    },
];

const ALL: [NodeName; 6] = [A, B, C, D, E, F];
/// A stage's lease is four seconds.
const LONG: Micros = 20_000_000;
const SHORT: Micros = 1_000_000;

/// The lease is to be long.
fn settle(stage: &mut Stage) {
    settle_to(stage, LONG);
}

fn settle_to(stage: &mut Stage, lease: Micros) {
    let session = 0xfeed + stage.world.now;
    nemesis::propose(
        &mut stage.world,
        session,
        GroupCommand::Settle(Setting::Lease(lease)),
    );
}

/// What a node goes by.
fn settings(world: &World, name: NodeName) -> Option<Settings> {
    let node = world.machines[&name].node();
    node.map(|node| *node.here().registry().settings())
}

/// Each of these has heard of a change to this lease.
fn heard(stage: &mut Stage, lease: Micros, names: &'static [NodeName]) {
    let has = move |w: &World, name| settings(w, name).is_some_and(|at| at.lease == lease);
    let heard = stage.until(move |w| names.iter().all(|name| has(w, *name)));
    stage.expect(heard, "members hear of another lease");
}

/// B and C lose power, and start again.
fn others_restart(stage: &mut Stage) {
    for name in [B, C] {
        stage.world.stop(name, true);
        stage.world.start(name);
    }
}

/// Each of these knows of a change, which is over.
fn settled(stage: &mut Stage, names: &[NodeName]) {
    settled_to(stage, LONG, names);
}

fn settled_to(stage: &mut Stage, lease: Micros, names: &[NodeName]) {
    let names = names.to_vec();
    let over = move |at: Settings| at.lease == lease && at.before.is_none();
    let all = move |w: &World| {
        names
            .iter()
            .all(|name| settings(w, *name).is_some_and(over))
    };
    let settled = stage.until(all);
    stage.expect(settled, "another lease is settled once everybody knows");
}

/// Nodes that are members of A's group are not members of the meta-group.
fn meta_elsewhere(stage: &mut Stage) {
    meta_at(stage, [D, E, F]);
}

fn meta_at(stage: &mut Stage, names: [NodeName; 3]) {
    nemesis::change_members(&mut stage.world, GroupId::META, &names);
    let changed = stage.until(move |w| {
        names.iter().all(|name| {
            let here = w.machines[name].node().map(|node| node.here());
            here.is_some_and(|here| here.logs_of(GroupId::META) == 1)
        })
    });
    stage.expect(changed, "the meta-group goes on elsewhere");
}

fn registry_to(names: &'static [NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Registry(_), .. }
            if names.contains(to))
    }
}

/// A is heard by no other member, and goes on answering those without a seat.
fn depose(stage: &mut Stage) {
    stage.cut(A, &[B, C]);
    let h1 = stage.client(&[5]);
    stage.section(h1, "v2");
}

/// B and C hear of a longer lease late; A, which leads, at once.
pub(super) fn lease_grows(stage: &mut Stage) {
    meta_elsewhere(stage);
    let deaf = stage.lose(registry_to(&[B, C]));
    settle(stage);
    heard(stage, LONG, &[A]);
    // Its beats are answered once more.
    stage.pass(1_000);
    depose(stage);
    stage.discard(deaf);
    stage.mend();
    settled(stage, &ALL);
    random::rest(&mut stage.world);
}

/// The lease has grown, and B and C start again: they have granted it.
pub(super) fn lease_kept(stage: &mut Stage) {
    settle(stage);
    settled(stage, &ALL);
    stage.pass(1_000);
    others_restart(stage);
    depose(stage);
    stage.mend();
    random::rest(&mut stage.world);
}

/// B and C are bound to A for the lease as it was when they last heard A; then they know of the
/// longer one, and so does A.
pub(super) fn lease_granted_before(stage: &mut Stage) {
    meta_elsewhere(stage);
    stage.cut(A, &[B, C]);
    settle(stage);
    settled(stage, &ALL);
    let h1 = stage.client(&[5]);
    stage.section(h1, "v2");
    stage.mend();
    random::rest(&mut stage.world);
}

/// B and C know of the longer lease, and lose power before their slow disks have it. Nobody tells
/// them again; they grant A the one that they have.
pub(super) fn lease_forgotten(stage: &mut Stage) {
    meta_elsewhere(stage);
    let flush = stage.world.setup.flush;
    for name in [B, C] {
        let machine = stage.world.machines.get_mut(&name);
        machine.expect("a node of this world").disk.latency = (9_000_000, 9_000_000);
    }
    settle(stage);
    heard(stage, LONG, &[A, B, C]);
    stage.pass(2_000);
    let deaf = stage.lose(registry_to(&[B, C]));
    for name in [B, C] {
        stage.world.stop(name, true);
        let machine = stage.world.machines.get_mut(&name);
        machine.expect("a node of this world").disk.latency = flush;
        stage.world.start(name);
    }
    // One lease after they have said that they know.
    stage.pass(30_000);
    depose(stage);
    stage.discard(deaf);
    stage.mend();
    settled(stage, &ALL);
    random::rest(&mut stage.world);
}

/// A holds a lease that shrinks, and hears of it late; B and C start again while it does.
pub(super) fn lease_shrinks(stage: &mut Stage) {
    stage.again(|setup| setup.timing.lease = LONG);
    meta_elsewhere(stage);
    let deaf = stage.lose(registry_to(&[A]));
    settle_to(stage, SHORT);
    heard(stage, SHORT, &[B, C]);
    stage.pass(1_000);
    stage.cut(A, &[B, C]);
    others_restart(stage);
    stage.pass(15_000);
    stage.discard(deaf);
    stage.mend();
    settled_to(stage, SHORT, &ALL);
    let h1 = stage.client(&[5]);
    stage.section(h1, "v2");
    random::rest(&mut stage.world);
}

/// A holds a lease that shrinks, is cut off from all, and is given up; then B and C start again.
pub(super) fn lease_of_the_given_up(stage: &mut Stage) {
    stage.again(|setup| setup.timing.lease = LONG);
    meta_elsewhere(stage);
    stage.pass(1_000);
    stage.isolate(A);
    settle_to(stage, SHORT);
    let lost = true;
    let command = GroupCommand::Dismiss { name: A, lost };
    nemesis::propose(&mut stage.world, 0xdead, command);
    let out = |w: &World| {
        let node = w.machines[&B].node();
        node.is_some_and(|node| !node.here().registry().knows(w.machines[&A].id()))
    };
    let out = stage.until(out);
    stage.expect(out, "A is given up");
    stage.pass(3_000);
    others_restart(stage);
    stage.pass(10_000);
    settled_to(stage, SHORT, &[B, C, D, E, F]);
    let h1 = stage.client(&[5]);
    stage.section(h1, "v2");
}

/// E knows the meta-group's former members, of whom C is one still, and does not lead.
pub(super) fn lease_told_in_vain(stage: &mut Stage) {
    meta_at(stage, [D, F, C]);
    stage.isolate(C);
    stage.pass(15_000);
    stage.mend();
    settle(stage);
    stage.pass(1_000);
    random::rest(&mut stage.world);
    settled(stage, &ALL);
}

/// A node sleeps while the lease is to change: that is taken back, and changes when the node is
/// out.
pub(super) fn lease_awaits_all(stage: &mut Stage) {
    stage.world.stop(F, true);
    settle(stage);
    stage.pass(30_000);
    let open = settings(&stage.world, A).is_some_and(|at| at.before.is_some());
    stage.expect(open, "a node that is in the cluster does not know");
    let (first, rest) = (stage.world.setup.timing.lease, [A, B, C, D, E]);
    settle_to(stage, first);
    settled_to(stage, first, &rest);
    settle(stage);
    nemesis::leave(&mut stage.world, F);
    settled(stage, &rest);
}

const NEXT: u16 = wire::VERSION + 1;

pub(super) fn raise(stage: &mut Stage, format: u16) {
    let session = 0xfeed + stage.world.now;
    let command = GroupCommand::Settle(Setting::Format(format));
    nemesis::propose(&mut stage.world, session, command);
}

pub(super) fn all_go_by(stage: &mut Stage, format: u16) {
    let by_it = move |w: &World, name| settings(w, name).is_some_and(|at| at.format == format);
    let raised = stage.until(move |w| ALL.iter().all(|name| by_it(w, *name)));
    stage.expect(raised, "the next format is the cluster's");
}

/// Every node goes by the next format, and all goes on.
fn raised(stage: &mut Stage, format: u16) {
    all_go_by(stage, format);
    let h1 = stage.client(&[5]);
    stage.section(h1, "v2");
    random::rest(&mut stage.world);
}

fn all_have(stage: &mut Stage, change: Setting, so: fn(&Settings) -> bool) {
    policies::settle(stage, change);
    let known = stage.until(move |w| {
        let knows = |name: &NodeName| settings(w, *name).is_some_and(|at| so(&at));
        ALL.iter().all(knows)
    });
    stage.expect(known, "every node has another setting");
}

/// A section's value and a register's are longer than the bounds by now, and their keys; so is what
/// a holder has put. All seats change, and everything moves.
fn limits_lowered(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    let register = stage.register();
    stage.section(h1, "v1");
    stage.write(h1, &register, "r1");
    let Some(section) = stage.enter(h1) else {
        return;
    };
    stage.put(h1, section, "v2");
    all_have(stage, Setting::ValueBytes(1), |at| at.value_bytes == 1);
    all_have(stage, Setting::KeyBytes(1), |at| at.key_bytes == 1);
    let write = Call::Write {
        key: register.clone(),
        value: value("r2"),
    };
    let refused = stage.call(h2, write);
    let refused = stage.wait(refused);
    stage.expect(
        matches!(refused, Heard::Failed(_)),
        "a value that is too long is refused",
    );
    stage.get(h1, section);
    stage.leave(h1, section);
    next(stage, &[D, E, F]);
    stage.read(h2, &register);
    let moved = closed(stage, 60_000_000);
    stage.expect(moved, "what is longer than the bounds moves");
    all_have(stage, Setting::ValueBytes(100), |at| at.value_bytes == 100);
    all_have(stage, Setting::KeyBytes(100), |at| at.key_bytes == 100);
    stage.section(h2, "v3");
    stage.write(h1, &register, "r3");
    stage.read(h2, &register);
}

/// Sixteen keys per second; then as many as can.
fn moves_paced(stage: &mut Stage) {
    let user = stage.client(&[5]);
    let register = stage.register();
    for n in 0..100 {
        let key = KeyId {
            keyspace: register.keyspace,
            key: format!("paced {n}").into(),
        };
        stage.write(user, &key, "v");
    }
    all_have(stage, Setting::MoveRate(16 << 10), |at| at.move_rate > 0);
    next(stage, &[A, B, D]);
    let early = closed(stage, 1_500_000);
    stage.expect(!early, "what is slowed down takes its time");
    let moved = closed(stage, 60_000_000);
    stage.expect(moved, "what is slowed down moves");
    all_have(stage, Setting::MoveRate(0), |at| at.move_rate == 0);
    next(stage, &[A, B, E]);
    let moved = closed(stage, 1_500_000);
    stage.expect(moved, "what is not slowed down any more has moved");
    stage.section(user, "v1");
}

/// No node may have more than one key under way, and one gift. They move, slowed down and not,
/// while whoever moves them loses power, one after the other.
fn moves_bounded(stage: &mut Stage) {
    stage.again(|setup| setup.limits.moving_bytes = 0);
    let user = stage.client(&[5]);
    let (register, key) = (stage.register(), stage.key.clone());
    for n in 0..20 {
        let paced = |of: &KeyId| KeyId {
            keyspace: of.keyspace,
            key: format!("bounded {n}").into(),
        };
        stage.write(user, &paced(&register), "v");
        stage.key = paced(&key);
        stage.eventual_put(user, "e");
    }
    stage.key = key;
    let crowded = |w: &World| {
        let mut nodes = w.machines.values().filter_map(|machine| machine.node());
        nodes.any(|node| node.moving() > 2)
    };
    next(stage, &[D, B, E]);
    for (rate, micros) in [(0, 300_000), (16 << 10, 300_000), (0, 300_000)] {
        policies::settle(stage, Setting::MoveRate(rate));
        let until = stage.world.now + micros;
        let many = stage.world.run_until(until, crowded);
        stage.expect(!many, "one key moves at a time");
    }
    let early = closed_or_gone(stage, 1);
    stage.expect(!early, "not all has moved");
    for name in [D, B, E] {
        stage.world.stop(name, true);
        let until = stage.world.now + 10_000_000;
        let many = stage.world.run_until(until, crowded);
        stage.expect(!many, "one key moves at a time, whoever leads");
        stage.world.start(name);
    }
    let moved = closed_or_gone(stage, 120_000_000);
    stage.expect(moved, "what moves one by one has moved");
    stage.section(user, "v1");
}

/// A and C have an eventual value each that nobody else has. A is asked for its own, falls silent,
/// and comes back once C's has been given on.
fn given_beside_the_silent(stage: &mut Stage) {
    stage.again(|setup| setup.limits.moving_bytes = 0);
    let h2 = stage.client(&[5]);
    let (key, other) = (stage.key.clone(), stage.key_beside("c"));
    stage.key = stage.key_beside("w");
    stage.section(h2, "v1");
    stage.key = key.clone();
    let spreads = stage.lose(spread_to(&[A, B, C]));
    let near = stage.client(&[1]);
    stage.eventual_put(near, "e1");
    stage.key = other;
    let near = stage.client(&[3]);
    stage.eventual_put(near, "e2");
    stage.key = key;
    let untold = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Register(message), .. }
            if *to == A && matches!(message, Register::Ask { ask: Ask::SealedRead { .. }, .. }))
    });
    next(stage, &[D, B, E]);
    let closed = closed(stage, 30_000_000);
    stage.expect(closed, "what is known to most is moved");
    stage.pass(2_000);
    // What it is asked for keeps no key of a later store waiting, which is listed after that.
    let unlisted = stage.lose(lists_to(&[B, E]));
    next(stage, &[D, E, F]);
    stage.pass(2_000);
    stage.discard(unlisted);
    let closed = closed_or_gone(stage, 30_000_000);
    stage.expect(closed, "keys move beside a gift that is awaited");
    stage.world.stop(A, true);
    let segment = stage.segment();
    let owes = move |w: &World, seat| {
        let places = Places::of(&w.setup.cluster, &w.machines);
        let mut pasts = places.location(segment).pasts(segment).iter();
        pasts.any(|past| past.epoch == Epoch::FIRST && past.owed.contains(&seat))
    };
    // By their seats in the first view.
    let (silent, other) = (Seat(0), Seat(2));
    stage.expect(owes(&stage.world, other), "another is still to be asked");
    let given = stage.until(move |w| !owes(w, other));
    stage.expect(
        given,
        "what another had is given on beside one that is silent",
    );
    stage.expect(owes(&stage.world, silent), "who is silent owes what it has");
    stage.discard(untold);
    stage.discard(spreads);
    stage.world.start(A);
    let given = stage.until(move |w| !owes(w, silent));
    stage.expect(given, "what one had that was silent is owed no more");
    let Some(section) = stage.enter(h2) else {
        return;
    };
    let found = stage.found(section) == value("e1");
    stage.expect(
        found,
        "what one had that was silent is given on once it is back",
    );
}

/// Whoever is silent for 20 seconds is to be replaced. C starts again within five and keeps its
/// seat; then it is away for good, and F, of its site, has the seat. C comes back to a group that
/// has gone on.
fn dead_is_replaced(stage: &mut Stage) {
    let user = stage.client(&[1]);
    stage.section(user, "v1");
    let after = GroupCommand::Settle(Setting::DeadAfter(20_000_000));
    let session = stage.world.dice.draw();
    nemesis::propose(&mut stage.world, session, after);
    stage.pass(1_000);
    let members =
        |w: &World, group| -> Vec<NodeName> { nemesis::present_view(w, group).nodes().collect() };
    stage.world.stop(C, true);
    stage.pass(5_000);
    stage.world.start(C);
    stage.pass(25_000);
    for group in [GroupId::META, FIRST] {
        let kept = members(&stage.world, group) == [A, B, C];
        stage.expect(kept, "who is back within the time keeps its seat");
    }
    stage.world.stop(C, true);
    let replaced = stage.until(move |w| {
        [GroupId::META, FIRST]
            .into_iter()
            .all(|group| members(w, group) == [A, B, F])
    });
    stage.expect(
        replaced,
        "the seat of who is silent for long goes to a node of its site",
    );
    stage.section(user, "v2");
    stage.world.start(C);
    stage.pass(5_000);
    stage.section(user, "v3");
}

/// All nodes but F have a newer program when the format is to be raised, and F gets it later.
pub(super) fn format_raised(stage: &mut Stage) {
    for name in [A, B, C, D, E] {
        stage.world.upgrade(name);
        stage.pass(5_000);
    }
    raise(stage, NEXT);
    stage.pass(30_000);
    let open = settings(&stage.world, A).is_some_and(|at| at.raising == Some(NEXT));
    stage.expect(open, "a node does not read the next format");
    // It has not said so, and may start again.
    stage.world.stop(F, true);
    stage.world.start(F);
    let up = stage.world.machines[&F].is_up();
    stage.expect(up, "an older node starts while the format is raised");
    stage.world.upgrade(F);
    raised(stage, NEXT);
}

/// F says that it reads the next format while E is down, and then starts again with an older
/// program, before E comes back.
pub(super) fn format_older_starts(stage: &mut Stage) {
    for name in ALL {
        stage.world.upgrade(name);
        stage.pass(5_000);
    }
    stage.world.stop(E, true);
    raise(stage, NEXT);
    stage.pass(5_000);
    let formats = |stage: &mut Stage, formats| {
        let machine = stage.world.machines.get_mut(&F);
        let machine = machine.expect("a node of this world");
        machine.config.formats = formats;
        // It was refused, and nothing was lost.
        machine.lost = None;
    };
    stage.world.stop(F, true);
    formats(stage, OLDER);
    stage.world.start(F);
    stage.world.start(E);
    stage.pass(10_000);
    formats(stage, NEWER);
    stage.world.start(F);
    raised(stage, NEXT);
}

/// C hears nothing of the logs when the format is raised, and goes on so while it is to be raised
/// once more.
pub(super) fn format_twice(stage: &mut Stage) {
    for name in ALL {
        stage.world.upgrade(name);
        stage.pass(5_000);
    }
    let deaf = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Paxos { .. }, .. } if *to == C)
    });
    raise_twice(stage);
    stage.discard(deaf);
    raised(stage, NEXT + 1);
}

/// A, B and C leave the group, and are not told that what they have of it may go.
fn beside_ended_logs(stage: &mut Stage) {
    for name in ALL {
        stage.world.upgrade(name);
        stage.pass(5_000);
    }
    let kept = stage.lose(|parcel| {
        matches!(
            parcel,
            Parcel::Peer {
                message: Message::Ring(ring::Message::Retire { .. }),
                ..
            }
        )
    });
    next(stage, &[D, E, F]);
    raise_twice(stage);
    stage.discard(kept);
    raised(stage, NEXT + 1);
}

/// The format is raised, and is to be raised once more, which somebody's logs forbid.
fn raise_twice(stage: &mut Stage) {
    raise(stage, NEXT);
    all_go_by(stage, NEXT);
    stage.pass(5_000);
    raise(stage, NEXT + 1);
    stage.pass(30_000);
    let open = settings(&stage.world, D).is_some_and(|at| at.raising == Some(NEXT + 1));
    stage.expect(open, "a node has logs of the format before the present one");
}
