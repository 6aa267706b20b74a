//! Members change: the group goes on with others, who begin with what the former ones had.

use super::coded::{dead_write, terms};
use super::parting;
use super::stage::{
    A, B, C, Stage, answers, candidacy_of, grants_to, long, news_of, parts_of, proposals_of,
    spread_to, store_of, value,
};
use super::upkeep::{delete, has, tended};
use crate::checkers::places::Places;
use crate::history::Heard;
use crate::network::{ClientId, End, Parcel};
use crate::world::World;
use crate::{catalogue, nemesis, random};
use fermata_protocol::base::{
    Addresses, GroupId, KeyId, Location, LogId, NodeName, Scope, StoragePolicy,
};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, Command, GroupCommand, LockCommand};
use fermata_protocol::paxos::Entry;
use fermata_protocol::register::{Ask, Message as Register, StoreAsk};
use fermata_protocol::registry::Newcomer;
use fermata_protocol::request::{Code, Mode};
use fermata_protocol::{Message, paxos, ring};

pub(super) const D: NodeName = NodeName(4);
pub(super) const E: NodeName = NodeName(5);
pub(super) const F: NodeName = NodeName(6);

/// The group that owns the segments of a stage.
pub(super) const FIRST: GroupId = GroupId(1);

/// The group goes on with these members: each of them has its logs, and each segment has started.
pub(super) fn next(stage: &mut Stage, names: &[NodeName]) {
    let before = propose(stage, names);
    goes_on(stage, names, before);
}

/// Each of these has the logs of an epoch after that one, and each segment has started.
pub(super) fn goes_on(stage: &mut Stage, names: &[NodeName], before: u64) {
    born(stage, names, before);
    let started = stage.until(|w| {
        let places = Places::of(&w.setup.cluster, &w.machines);
        let mut groups = places.locations();
        groups.all(|at| at.unstarted().is_empty())
    });
    stage.expect(started, "each segment starts in the next epoch");
}

/// Somebody proposes these members; the epoch that they are to follow.
pub(super) fn propose(stage: &mut Stage, names: &[NodeName]) -> u64 {
    // A session of its own: one that was refused is asked again anew.
    let session = 0xbeef + stage.world.now;
    let before = nemesis::present_view(&stage.world, FIRST).epoch;
    nemesis::next_members(&mut stage.world, FIRST, session, names);
    before.0
}

/// The same, and nobody asks whether they are there.
pub(super) fn press(stage: &mut Stage, names: &[NodeName]) -> u64 {
    let session = 0xbeef + stage.world.now;
    let before = nemesis::present_view(&stage.world, FIRST).epoch;
    nemesis::next_members_pressing(&mut stage.world, FIRST, session, names);
    before.0
}

/// Each of these has the logs of an epoch after that one.
pub(super) fn born(stage: &mut Stage, names: &[NodeName], before: u64) {
    let names = names.to_vec();
    let born = stage.until(move |w| {
        let at = |name: &NodeName| {
            let here = w.machines[name].node().map(|n| n.here());
            here.is_some_and(|here| {
                let segments = here.segments.values().map(|s| s.log.id().epoch.0);
                here.segments.len() == 2 && segments.min() > Some(before)
            })
        };
        names.iter().all(at)
    });
    stage.expect(born, "each new member has the logs of the next epoch");
}

/// What tells any of `to` where groups are, and what may go.
fn ring_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| match parcel {
        Parcel::Peer {
            to: at,
            message: Message::Ring(_),
            ..
        } => to.contains(at),
        _ => false,
    }
}

/// What asks any of `to` which keys it has in an earlier store.
pub(super) fn lists_to(to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let to = to.to_vec();
    move |parcel| {
        matches!(parcel, Parcel::Peer { to: at, message: Message::Register(message), .. }
            if to.contains(at)
                && matches!(message, Register::AskStore { ask: StoreAsk::List { .. }, .. }))
    }
}

/// Waits until no node that knows of an earlier store of the segment takes it for open.
pub(super) fn closed(stage: &mut Stage, patience: u64) -> bool {
    let (segment, until) = (stage.segment(), stage.world.now + patience);
    let closed = move |w: &World| {
        let places = Places::of(&w.setup.cluster, &w.machines);
        let pasts = places.location(segment).pasts(segment);
        !pasts.is_empty() && pasts.iter().all(|past| !past.open)
    };
    stage.world.run_until(until, closed)
}

/// The same, or that it is gone, since all that was owed of it has been given, too.
pub(super) fn closed_or_gone(stage: &mut Stage, patience: u64) -> bool {
    let (segment, until) = (stage.segment(), stage.world.now + patience);
    let over = move |w: &World| {
        let places = Places::of(&w.setup.cluster, &w.machines);
        let mut pasts = places.location(segment).pasts(segment).iter();
        pasts.all(|past| !past.open)
    };
    stage.world.run_until(until, over)
}

/// The segment has nothing left at these nodes, nor the group.
pub(super) fn gone(stage: &mut Stage, names: &[NodeName]) {
    let none = |w: &World| {
        let node = |name: &NodeName| {
            let here = w.machines[name].node().map(|n| n.here());
            here.is_some_and(|here| here.logs_of(FIRST) == 0)
        };
        names.iter().all(node)
    };
    let none = stage.until(none);
    stage.expect(
        none,
        "a log that is followed by another goes where nobody needs it",
    );
}

/// C's seat goes to D while sections go on; then A is cut off, and B serves with D alone.
pub(super) fn member_replaced(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    let register = stage.register();
    stage.section(h1, "v1");
    stage.write(h1, &register, "r1");
    next(stage, &[A, B, D]);
    gone(stage, &[C]);
    stage.read(h2, &register);
    stage.section(h2, "v2");
    stage.write(h1, &register, "r2");
    let rest: Vec<_> = [2, 3, 4, 5, 6].map(NodeName).to_vec();
    stage.cut(A, &rest);
    stage.leader_other_than(A);
    stage.section(h1, "v3");
    stage.read(h2, &register);
    stage.mend();
    stage.pass(6_000);
}

/// No member stays. Clients know the former ones alone; so do their coordinators.
pub(super) fn all_seats_new(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    let register = stage.register();
    stage.section(h1, "v1");
    stage.write(h1, &register, "r1");
    next(stage, &[D, E, F]);
    gone(stage, &[A, B, C]);
    stage.read(h2, &register);
    stage.section(h2, "v2");
    stage.write(h1, &register, "r2");
    stage.section(h1, "v3");
    stage.read(h2, &register);
    next(stage, &[A, E, F]);
    stage.read(h1, &register);
    stage.section(h2, "v4");
}

/// A and C vote for the end of B's log, and do not know that it is chosen. B goes on with D and E,
/// to whom the holder puts; then it asks F, who knows the former members alone.
pub(super) fn stale_coordinator(stage: &mut Stage) {
    stage.key = stage.other_key();
    let h = stage.client_with(&[4, 6], |options| options.attempt = 1_000_000);
    let Some(section) = stage.enter(h) else {
        return;
    };
    stage.put(h, section, "v1");
    stage.lose(ring_to(&[A, C, F]));
    stage.lose(news_of(B));
    stage.lose(lists_to(&[A, C]));
    stage.lose(answers(B, F));
    let segment = stage.segment();
    stage.lose(move |parcel| {
        let Parcel::Peer {
            from,
            to,
            message: Message::Paxos { log, message },
        } = parcel
        else {
            return false;
        };
        let votes = matches!(message, paxos::Message::Accept { .. });
        let of = log.scope == Scope::Segment(segment) && from.name != A && from.name != C;
        of && [A, C].contains(to) && !votes
    });
    for name in [A, C] {
        stage.lose(candidacy_of(name));
    }
    let before = press(stage, &[B, D, E]);
    goes_on(stage, &[B, D, E], before);
    stage.put(h, section, "v2");
    stage.world.network.cut(End::Client(h), End::Node(D));
    let key = stage.key.clone();
    let name = stage.world.clients[h.0 as usize].name_of(section);
    let Some(section) = name else { return };
    let get = stage.call(h, Call::CriticalGet { section, key });
    stage.pass(2_500);
    stage.world.free_links();
    nemesis::heal(&mut stage.world);
    stage.wait(get);
}

/// D alone has been given the next log when its disk is lost; E and F have seats there, too.
pub(super) fn closing_logs(stage: &mut Stage) {
    let h1 = stage.client(&[5]);
    stage.section(h1, "v1");
    for name in [E, F] {
        stage.isolate(name);
    }
    let before = press(stage, &[D, E, F]);
    born(stage, &[D], before);
    stage.pass(3_000);
    stage.world.stop(D, true);
    let machine = stage
        .world
        .machines
        .get_mut(&D)
        .expect("a machine of this world");
    machine.wipe();
    stage.world.monitor.wiped(D);
    stage.mend();
    born(stage, &[E, F], before);
    stage.section(h1, "v2");
}

/// A machine comes to A's site; its name once it runs.
pub(super) fn comes(stage: &mut Stage) -> Option<NodeName> {
    let before = stage.world.machines.len();
    nemesis::join(&mut stage.world, 0, |_, _| ());
    let came = stage.until(|w| {
        let newest = w.machines.last_key_value();
        let node = newest.and_then(|(_, machine)| machine.node());
        w.machines.len() > before && node.is_some_and(|node| node.is_started())
    });
    stage.expect(came, "a node that was admitted takes part");
    let newest = stage.world.machines.last_key_value();
    newest.map(|(name, _)| *name).filter(|_| came)
}

/// A node with an empty directory is admitted, twice; it gets C's seat. Then A is cut off, and B
/// serves with it alone.
pub(super) fn newcomer(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v1");
    let Some(name) = comes(stage) else { return };
    let again = GroupCommand::Admit(Newcomer {
        incarnation: stage.world.machines[&name].id().incarnation,
        label: "again".to_owned(),
        site: stage.world.setup.cluster.sites[0].clone(),
        addresses: Addresses::default(),
    });
    nemesis::propose(&mut stage.world, 0xfeed, again);
    stage.pass(1_000);
    next(stage, &[A, B, name]);
    gone(stage, &[C]);
    stage.section(h2, "v2");
    stage.cut(A, &[B, C, D, E, F, name]);
    stage.leader_other_than(A);
    stage.section(h1, "v3");
    stage.mend();
    stage.pass(3_000);
}

/// A node's disk is lost, and the node stays away.
pub(super) fn loses_disk(stage: &mut Stage, name: NodeName) {
    stage.world.stop(name, true);
    let machine = stage.world.machines.get_mut(&name);
    machine.expect("a machine of this world").wipe();
    stage.world.monitor.wiped(name);
}

/// C's disk is lost, with an eventual put that was there alone. A node with an empty directory
/// takes its seat; what C owes is written off, and C's name is given to nobody.
pub(super) fn lost_disk(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v1");
    loses_disk(stage, C);
    let Some(name) = comes(stage) else { return };
    nemesis::give_up(&mut stage.world, C, name);
    let settled = stage.until(move |w| {
        let view = nemesis::present_view(w, FIRST);
        let places = Places::of(&w.setup.cluster, &w.machines);
        let mut places = places.locations();
        let settled = places.all(|at| at.all_pasts().next().is_none());
        view.nodes().any(|at| at == name) && settled
    });
    stage.section(h2, "v2");
    comes(stage);
    stage.section(h1, "v3");
    stage.expect(settled, "what a lost member owes is not waited for");
}

/// S2: a holder leaves beside its put, which has come to nobody; the next one is granted, and that
/// its synch is done is not decided when A is cut off and the others go on with D.
pub(super) fn left_beside(stage: &mut Stage) {
    let [h1, h2, h3] = stage.clients([5, 6, 4]);
    stage.section(h1, "v0");
    let Some(s1) = stage.enter(h1) else { return };
    let second = stage.begin_enter(h2, Mode::Exclusive);
    stage.pass(500);
    let late = stage.hold(store_of("v1", &[A, B, C]));
    parting::begin(stage, h1, s1, "v1");
    let undecided = stage.lose(proposals_of(A, |c| {
        matches!(c, LockCommand::SynchDone { .. })
    }));
    let Some(s2) = stage.entered(second) else {
        return;
    };
    stage.isolate(A);
    let before = nemesis::present_view(&stage.world, FIRST).epoch.0;
    nemesis::change_members(&mut stage.world, FIRST, &[B, C, D]);
    born(stage, &[B, C, D], before);
    stage.discard(late);
    stage.pass(3_000);
    stage.get(h2, s2);
    stage.leave(h2, s2);
    stage.mend();
    stage.discard(undecided);
    stage.section(h3, "v3");
}

/// V7: a key has moved to A and B, and is marked there; nothing has come to D, and another key has
/// moved to A alone. B's disk is lost, and whoever leads next begins anew, with A and D.
pub(super) fn moved_at_one(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    stage.section(h1, "v1");
    let beside = stage.key_beside("x");
    stage.write(h1, &beside, "w");
    let missed = stage.lose(move |parcel| {
        let Parcel::Peer { to, message, .. } = parcel else {
            return false;
        };
        match message {
            Message::Register(_) if *to == D => true,
            Message::Register(Register::Ask { key, ask, .. }) if *to == B => {
                *key == beside && matches!(ask, Ask::Carry { .. })
            }
            _ => false,
        }
    });
    next(stage, &[A, B, D]);
    stage.pass(8_000);
    loses_disk(stage, B);
    stage.world.stop(A, true);
    stage.world.start(A);
    stage.discard(missed);
    let segment = stage.segment();
    let closed = stage.until(move |w| {
        let places = Places::of(&w.setup.cluster, &w.machines);
        let pasts = places.location(segment).pasts(segment);
        pasts.iter().all(|past| !past.open)
    });
    stage.section(h2, "v2");
    stage.expect(
        closed,
        "what one member has of a key that has moved is given to the others",
    );
}

/// A value is at A and B; when D, E and F look for what there is they hear C alone.
pub(super) fn few_lists(stage: &mut Stage) {
    let h1 = stage.client(&[4]);
    let register = stage.register();
    stage.lose(parts_of("r1", &[C]));
    stage.write(h1, &register, "r1");
    let before = propose(stage, &[D, E, F]);
    born(stage, &[D], before);
    for name in [A, B] {
        stage.cut(name, &[D, E, F]);
    }
    stage.pass(12_000);
    stage.mend();
    let read = stage.read(h1, &register);
    stage.expect(
        read == Heard::Value(long("r1")),
        "a value of an earlier epoch is read",
    );
}

/// An eventual put is at A alone, which is away while the others' values move.
pub(super) fn eventual_at_one(stage: &mut Stage) {
    let (near, h2) = (stage.client(&[1]), stage.client(&[5]));
    stage.lose(spread_to(&[B, C]));
    stage.eventual_put(near, "e1");
    let deaf = stage.lose(lists_to(&[A]));
    let before = propose(stage, &[D, E, F]);
    born(stage, &[D], before);
    stage.cut(A, &[B, C, D, E, F]);
    born(stage, &[E, F], before);
    let closed = closed(stage, 30_000_000);
    stage.expect(closed, "a source is closed although one member is away");
    stage.mend();
    gone(stage, &[A]);
    stage.pass(1_000);
    stage.discard(deaf);
    random::rest(&mut stage.world);
    let Some(section) = stage.enter(h2) else {
        return;
    };
    let found = stage.found(section) == value("e1");
    stage.expect(
        found,
        "an eventual put that one member had is found after it has left",
    );
}

/// A key is deleted while the store that has its value is still read through.
pub(super) fn delete_beside_source(stage: &mut Stage) {
    tended(stage);
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    stage.section(h1, "v1");
    let unlisted = stage.lose(lists_to(&[A, B, C]));
    next(stage, &[D, E, F]);
    delete(stage, h1);
    // What was applied since lets the floor rise.
    let beside = stage.key_beside("b");
    for _ in 0..3 {
        let op = stage.enter_keys(h1, vec![beside.clone()], Mode::Exclusive);
        if let Some(section) = stage.entered(op) {
            stage.leave(h1, section);
        }
        stage.pass(6_000);
    }
    stage.section(h2, "v2");
    stage.discard(unlisted);
    random::rest(&mut stage.world);
    let old = [A, B, C].iter().any(|name| has(stage, *name, &stage.key));
    stage.expect(!old, "a store that is a source no more is deleted");
}

/// Coded values, of which a quorum is more than a majority, in groups of five, six and seven: each
/// store has its own parts, and its own quorum.
pub(super) fn coded_sizes(stage: &mut Stage) {
    let key = stage.coded(5, StoragePolicy::Coded(terms(3)));
    let [h1, h2] = stage.clients([6, 7]);
    stage.lose(parts_of("r1", &[A]));
    stage.write(h1, &key, "r1");
    let views: [(u32, &[u32], &str); 3] = [
        (5, &[1, 2, 3, 6, 7, 8], "r2"),
        (8, &[1, 2, 3, 4, 5, 6, 7], "r3"),
        (2, &[1, 4, 5, 6, 8], "r4"),
    ];
    let mut before = "r1";
    for (away, names, value) in views {
        let names: Vec<NodeName> = names.iter().map(|name| NodeName(*name)).collect();
        // A member that goes does not hear of it.
        stage.isolate(NodeName(away));
        next(stage, &names);
        let read = stage.read(h2, &key);
        stage.expect(
            read == Heard::Value(long(before)),
            "a value moves with its group",
        );
        stage.write(h1, &key, value);
        stage.mend();
        random::rest(&mut stage.world);
        before = value;
    }
}

/// V12: more writers of a register have died than `treas-opt` bears, and its group gets another
/// member, while one that has a part is away.
pub(super) fn undecodable(stage: &mut Stage) {
    let key = stage.coded(5, StoragePolicy::TreasOpt(terms(1)));
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    for (text, at) in [("d1", 1), ("d2", 2), ("d3", 3), ("d4", 4)] {
        dead_write(stage, 6, &key, text, &[at]);
    }
    stage.isolate(E);
    next(stage, &[A, B, C, D, NodeName(7)]);
    stage.pass(5_000);
    let places = Places::of(&stage.world.setup.cluster, &stage.world.machines);
    let mut pasts = places.locations().flat_map(Location::all_pasts);
    let waits = pasts.any(|(_, past)| past.open);
    stage.expect(waits, "a member that is away may have what is missing");
    stage.mend();
    random::rest(&mut stage.world);
    let read = stage.read(reader, &key);
    stage.expect(
        read == Heard::Failed(Code::Undecodable),
        "it is not taken for something else",
    );
    stage.write(writer, &key, "v2");
    let read = stage.read(reader, &key);
    stage.expect(read == Heard::Value(long("v2")), "a write ends that");
}

/// While the values of two epochs move nothing further is decided, but for a pressing reason.
pub(super) fn two_sources(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[5]), stage.client(&[6]));
    let register = stage.register();
    stage.section(h1, "v1");
    stage.write(h1, &register, "r1");
    let unlisted = stage.lose(lists_to(&[A, B, C, D]));
    next(stage, &[A, B, D]);
    next(stage, &[A, D, E]);
    stage.pass(2_000);
    let refused = propose(stage, &[D, E, F]);
    stage.pass(3_000);
    let epoch = nemesis::present_view(&stage.world, FIRST).epoch.0;
    stage.expect(
        epoch == refused,
        "a third change waits for the values of the first",
    );
    stage.section(h2, "v2");
    let read = stage.read(h2, &register);
    stage.expect(
        read == Heard::Value(long("r1")),
        "a value of two epochs before is read",
    );
    stage.write(h2, &register, "r2");
    stage.discard(unlisted);
    random::rest(&mut stage.world);
    next(stage, &[D, E, F]);
    stage.section(h1, "v3");
    stage.read(h1, &register);
}

/// A holder dies; while it is dead all members are replaced. Another client resumes its section.
pub(super) fn resume_through_move(stage: &mut Stage) {
    let (h1, h2) = (stage.client(&[4]), stage.client(&[5]));
    let Some(section) = stage.enter(h1) else {
        return;
    };
    stage.put(h1, section, "v1");
    stage.world.kill_client(h1);
    let before = propose(stage, &[D, E, F]);
    let resumed = stage.resume(h2, section);
    born(stage, &[D, E, F], before);
    let Some(section) = stage.entered(resumed) else {
        return;
    };
    stage.put(h2, section, "v2");
    stage.get(h2, section);
    stage.leave(h2, section);
    gone(stage, &[A, B, C]);
    stage.section(h2, "v3");
}

/// Whether a message is a step of a change of members, by which a crash is set off.
type Moment = (&'static str, fn(&Message) -> bool);

fn is_entry(message: &Message, so: fn(&Entry) -> bool) -> bool {
    match message {
        Message::Paxos {
            message: paxos::Message::Accept { entry, .. },
            ..
        } => so(entry),
        _ => false,
    }
}

fn decides(entry: &Entry) -> bool {
    let next = |c: &Command| {
        matches!(
            c.body,
            Body::Group(GroupCommand::Next { .. } | GroupCommand::Split { .. })
        )
    };
    matches!(entry, Entry::Commands { commands, .. } if commands.iter().any(next))
}

pub(super) fn is_ask(message: &Message, so: fn(&Ask) -> bool) -> bool {
    matches!(message, Message::Register(Register::Ask { ask, .. }) if so(ask))
}

/// What is sent in the course of a change, in order.
const MOMENTS: [Moment; 11] = [
    ("a view is proposed", |m| is_entry(m, decides)),
    ("the group's log ends", |m| {
        let group = |log: &LogId| log.scope == Scope::Group;
        matches!(m, Message::Paxos { log, .. } if group(log)) && is_entry(m, is_stop)
    }),
    ("a segment's log ends", |m| {
        let group = |log: &LogId| log.scope == Scope::Group;
        matches!(m, Message::Paxos { log, .. } if !group(log)) && is_entry(m, is_stop)
    }),
    ("a log is given", |m| {
        matches!(
            m,
            Message::Paxos {
                message: paxos::Message::Birth { .. },
                ..
            }
        )
    }),
    ("a segment has begun", |m| {
        matches!(m, Message::Ring(ring::Message::Started { .. }))
    }),
    ("a log may go", |m| {
        matches!(m, Message::Ring(ring::Message::Retire { .. }))
    }),
    ("a store is listed", |m| {
        matches!(
            m,
            Message::Register(Register::AskStore {
                ask: StoreAsk::List { .. },
                ..
            })
        )
    }),
    ("a key is marked", |m| {
        is_ask(m, |ask| matches!(ask, Ask::MarkMoved { .. }))
    }),
    ("a source is closed", |m| {
        matches!(m, Message::Ring(ring::Message::Moved { .. }))
    }),
    ("a value is given", |m| {
        is_ask(m, |ask| matches!(ask, Ask::Harvest { .. }))
    }),
    ("a seat is harvested", |m| {
        matches!(m, Message::Ring(ring::Message::Harvested { .. }))
    }),
];

fn is_stop(entry: &Entry) -> bool {
    matches!(entry, Entry::Stop(_))
}

/// A node loses power at each step of a change, in each role: who leads and stays or goes, a member
/// that stays, one that goes, and one that is new. A holder goes on through it all.
pub(super) fn next_each_crash(stage: &mut Stage) {
    let changes: [(&[NodeName], &[NodeName]); 2] =
        [(&[A, B, D], &[A, B, C, D]), (&[D, E, F], &[A, D])];
    for (names, victims) in changes {
        let what = format!("members {names:?}");
        let change = |stage: &mut Stage| {
            propose(stage, names);
        };
        each_crash(stage, (victims, &what), |_| {}, change);
    }
}

/// Each of these nodes loses power at each step of a change, all else being `before`.
pub(super) fn each_crash(
    stage: &mut Stage,
    (victims, what): (&[NodeName], &str),
    before: impl Fn(&mut Stage),
    change: impl Fn(&mut Stage),
) {
    for victim in victims {
        for moment in MOMENTS {
            stage.again(|_| {});
            before(stage);
            crash_at(stage, &change, *victim, moment);
            if !stage.is_well() {
                let (name, step) = (victim.0, moment.0);
                stage.expect(false, &format!("{what}: node {name} dies as {step}"));
                return;
            }
        }
    }
}

fn crash_at(
    stage: &mut Stage,
    change: impl Fn(&mut Stage),
    victim: NodeName,
    (_, is_moment): Moment,
) {
    let (near, holder, h2) = (
        stage.client(&[3, 6]),
        stage.client(&[4, 5]),
        stage.client(&[5, 6]),
    );
    let register = stage.register();
    stage.write(h2, &register, "r1");
    stage.lose(spread_to(&[A, B]));
    let other = put_beside(stage, near);
    let Some(section) = stage.enter(holder) else {
        return;
    };
    stage.put(holder, section, "v1");
    let seen = stage
        .world
        .network
        .copy(move |parcel| matches!(parcel, Parcel::Peer { message, .. } if is_moment(message)));
    change(stage);
    let met = stage.until(move |w| w.network.held(seen) > 0);
    stage.expect(met, "each step of a change is taken");
    stage.discard(seen);
    stage.world.stop(victim, true);
    stage.put(holder, section, "v2");
    stage.pass(3_000);
    stage.world.start(victim);
    stage.put(holder, section, "v3");
    stage.get(holder, section);
    stage.leave(holder, section);
    stage.section(h2, "v4");
    stage.read(h2, &register);
    stage.write(h2, &register, "r2");
    is_found_at_rest(stage, h2, other);
}

/// Puts an eventual value under the second key, which is returned.
pub(super) fn put_beside(stage: &mut Stage, client: ClientId) -> KeyId {
    let key = stage.other_key();
    let (put, value) = (key.clone(), value("e1"));
    let put = stage.call(client, Call::Put { key: put, value });
    stage.wait(put);
    key
}

/// Once everything is at rest, a section finds that value.
pub(super) fn is_found_at_rest(stage: &mut Stage, client: ClientId, key: KeyId) {
    random::rest(&mut stage.world);
    let op = stage.enter_keys(client, vec![key], Mode::Exclusive);
    let Some(section) = stage.entered(op) else {
        return;
    };
    let found = &stage.world.history.sections[section.0].values;
    let found = found.values().any(|found| *found == value("e1"));
    stage.expect(found, "an eventual put is found after its member has gone");
    stage.leave(client, section);
}

/// Reads of an eventual value for the harvest of a member.
fn gift_reads(from: NodeName, to: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { from: f, to: t, message: Message::Register(message) }
            if f.name == from && *t == to
                && matches!(message, Register::Ask { call, ask: Ask::SealedRead { .. }, .. }
                    if *call >> 61 == 1))
    }
}

/// D harvests A, loses power, leads again and harvests again; what its first process has
/// asked arrives late.
pub(super) fn late_gift(stage: &mut Stage) {
    let (near, h2) = (stage.client(&[1]), stage.client(&[5]));
    stage.lose(spread_to(&[B, C]));
    // As many as the calls of the two lives are not apart by.
    let beside = ["x", "y", "z"].map(|letter| stage.key_beside(letter));
    let keys = [stage.key.clone()].into_iter().chain(beside);
    let keys: Vec<KeyId> = keys.collect();
    let texts = ["e1", "e2", "e3", "e4"];
    for (key, text) in keys.iter().zip(texts) {
        stage.key = key.clone();
        stage.eventual_put(near, text);
    }
    for name in [E, F] {
        stage.lose(candidacy_of(name));
    }
    let late = stage.hold(gift_reads(D, A));
    let before = propose(stage, &[D, E, F]);
    born(stage, &[D, E, F], before);
    let met = stage.until(move |w| w.network.held(late) >= 24);
    stage.expect(met, "D harvests A");
    stage.world.stop(D, true);
    let parcels = stage.world.network.release(late);
    let unread = stage.lose(gift_reads(D, A));
    stage.world.start(D);
    stage.leader_other_than(A);
    for _ in 0..400 {
        for parcel in &parcels {
            stage.world.inject(parcel.clone());
        }
        stage.pass(50);
    }
    stage.discard(unread);
    stage.mend();
    random::rest(&mut stage.world);
    for (key, text) in keys.iter().zip(texts) {
        stage.key = key.clone();
        let Some(section) = stage.enter(h2) else {
            return;
        };
        let found = stage.found(section);
        stage.expect(
            found == value(text),
            &format!("{text} is found, not {found:?}"),
        );
        stage.leave(h2, section);
    }
}

/// D alone is given what A had of eventual puts, and then D's disk is lost.
pub(super) fn gift_at_one(stage: &mut Stage) {
    let (near, h2) = (stage.client(&[1]), stage.client(&[5]));
    stage.lose(spread_to(&[B, C]));
    stage.eventual_put(near, "e1");
    let given = stage.lose(|parcel| {
        let Parcel::Peer { to, message, .. } = parcel else {
            return false;
        };
        *to != D && is_ask(message, |ask| matches!(ask, Ask::Harvest { .. }))
    });
    next(stage, &[D, E, F]);
    stage.pass(8_000);
    loses_disk(stage, D);
    stage.discard(given);
    stage.world.start(D);
    stage.leader_other_than(D);
    // If A owes it still, it is given on now.
    random::rest(&mut stage.world);
    let Some(section) = stage.enter(h2) else {
        return;
    };
    let found = stage.found(section) == value("e1");
    stage.expect(found, "an eventual put survives the loss of one disk");
    stage.leave(h2, section);
}

/// a keyspace is deleted while an eventual value of it is harvested.
pub(super) fn dead_gift(stage: &mut Stage) {
    let key = stage.short_sections(2_500_000);
    stage.key = key.clone();
    let near = stage.client(&[1]);
    stage.lose(spread_to(&[B, C]));
    stage.eventual_put(near, "e1");
    let given = stage.hold(|parcel| {
        let Parcel::Peer { message, .. } = parcel else {
            return false;
        };
        is_ask(message, |ask| matches!(ask, Ask::Harvest { .. }))
    });
    let before = propose(stage, &[D, E, F]);
    born(stage, &[D, E, F], before);
    let met = stage.until(move |w| w.network.held(given) > 0);
    stage.expect(met, "an eventual value is given on");
    catalogue::delete(&mut stage.world, key.keyspace);
    stage.pass(3_000);
    stage.discard(given);
    random::rest(&mut stage.world);
}

/// A holder's put 2 is acknowledged, put 1 is still on its way; F does not know of the grant, and
/// asks the primary of the next epoch for it, who has not heard the last words of the one before,
/// and synchs the key for the holder's ref.
pub(super) fn low_synch(stage: &mut Stage) {
    let h = stage.client_with(&[6, 5], |options| options.attempt = 3_000_000);
    let h2 = stage.client(&[4]);
    stage.lose(grants_to(&[6]));
    let op = stage.begin_enter(h, Mode::Exclusive);
    stage.pass(300);
    stage.world.network.cut(End::Client(h), End::Node(F));
    let Some(section) = stage.entered(op) else {
        return;
    };
    let slow = stage.lose(store_of("v1", &[A, B, C, D]));
    let first = stage.begin_put(h, section, "v1");
    stage.pass(100);
    stage.put(h, section, "v2");
    let unlisted = stage.lose(lists_to(&[A, B, C]));
    stage.lose(|parcel| {
        let words = |m: &Message| matches!(m, Message::Ring(ring::Message::LastWords { .. }));
        matches!(parcel, Parcel::Peer { message, .. } if words(message))
    });
    next(stage, &[D, B, C]);
    stage.pass(8_000);
    stage.discard(slow);
    if let Some(first) = first {
        stage.wait(first);
    }
    stage.leave(h, section);
    stage.discard(unlisted);
    let Some(section) = stage.enter(h2) else {
        return;
    };
    let found = stage.found(section);
    stage.expect(
        found == value("v2"),
        &format!("put 2 is found, not {found:?}"),
    );
    stage.leave(h2, section);
}
