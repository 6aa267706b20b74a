//! Parts of a segment's state that are records in its members' stores.

use super::Scenario;
use super::ring::{D, E, F, FIRST, born, gone, press, propose};
use super::rules::rot_record;
use super::stage::{A, B, C, Stage};
use crate::network::{Parcel, RuleId};
use crate::world::World;
use crate::{nemesis, random};
use bytes::Bytes;
use fermata_protocol::Message;
use fermata_protocol::base::{NodeName, SegmentId};
use fermata_protocol::records::{Message as Records, Puts, Standing};
use fermata_protocol::wire::{decode, record};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "records-follow",
        about: "nodes that are to have a seat are given records that change meanwhile",
        play: follow,
    },
    Scenario {
        name: "records-laggard",
        about: "who fills from one member is given the next piece by one that lags",
        play: laggard,
    },
    Scenario {
        name: "records-again",
        about: "a member starts again and knows less to be chosen than its records have",
        play: again,
    },
    Scenario {
        name: "records-behind",
        about: "a member that was away is given a snapshot, and records go on changing",
        play: behind,
    },
    Scenario {
        name: "records-pressed",
        about: "all seats go to nodes that have nothing yet",
        play: pressed,
    },
    Scenario {
        name: "records-damaged",
        about: "a record rots at a member from which another one fills",
        play: damaged,
    },
];

/// Messages with few records each, and short memories.
fn small(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.usage = 0;
        setup.limits.chunk = 100;
        (setup.limits.snapshot_every, setup.limits.changes) = (8, 8);
        (setup.limits.batch_bytes, setup.limits.window_bytes) = (1_024, 1_024);
    });
}

/// One command changes these, and somebody has applied it.
fn put(stage: &mut Stage, puts: &[(&str, &str)]) {
    let segment = stage.segment();
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let set = |value: &str| (!value.is_empty()).then(|| bytes(value));
    let all = puts.iter().map(|(key, value)| (bytes(key), set(value)));
    let all = Puts(all.collect());
    // A session of its own.
    stage.pass(1);
    let session = 0xfeed + stage.world.now;
    let last = puts.last().map(|(key, value)| (bytes(key), set(value)));
    let (key, value) = last.expect("something is put");
    let name = [&record::first_part()[..], &key[..]].concat();
    let at = record::part(segment, &name);
    let is_so = |w: &World| {
        let mut running = w.machines.values().filter(|m| m.node().is_some());
        running.any(|machine| machine.recall(&at) == value)
    };
    let mut done = false;
    for _ in 0..40 {
        if done {
            break;
        }
        nemesis::put_records(&mut stage.world, segment, (session, 1), &all);
        let until = stage.world.now + 500_000;
        done = stage.world.run_until(until, is_so);
    }
    stage.expect(done, "a command changes records");
}

/// Many records, and so many commands that nobody remembers what the first have changed.
fn fill(stage: &mut Stage) {
    for n in 0..60 {
        let (key, value) = (format!("k{n:02}"), format!("value-{n}"));
        put(stage, &[(&key, &value)]);
    }
}

fn standing(world: &World, name: NodeName, segment: SegmentId) -> Option<Standing> {
    let bytes = world.machines[&name].recall(&record::standing(segment))?;
    decode(&bytes).ok()
}

/// Whether these have all records, as far as they know.
fn full(stage: &Stage, names: &[NodeName]) -> bool {
    let segment = stage.segment();
    names.iter().all(|name| {
        let standing = standing(&stage.world, *name, segment);
        standing.is_some_and(|at| at.filling.is_none())
    })
}

/// Pieces of records on their way to a node, from any of these.
fn pieces(stage: &mut Stage, from: &[NodeName], to: NodeName) -> RuleId {
    let from = from.to_vec();
    stage.lose(move |parcel| {
        matches!(parcel, Parcel::Peer { from: f, to: t, message: Message::Records(message) }
            if from.contains(&f.name) && *t == to && matches!(message, Records::Piece { .. }))
    })
}

/// D, E and F are to have all seats. What the first pieces have is changed while the last ones are
/// under way.
fn follow(stage: &mut Stage) {
    small(stage);
    fill(stage);
    let unfilled = [D, E, F].map(|to| pieces(stage, &[A, B, C], to));
    let before = propose(stage, &[D, E, F]);
    stage.pass(2_000);
    let present = nemesis::present_view(&stage.world, FIRST).epoch.0;
    stage.expect(
        present == before,
        "a change waits until its members have all records",
    );
    for rule in unfilled {
        stage.discard(rule);
    }
    for n in 0..12 {
        let value = format!("changed-{n}");
        put(stage, &[("k00", &value), ("k07", "")]);
        put(stage, &[("k07", &value), ("k59", &value)]);
        stage.pass(20);
    }
    born(stage, &[D, E, F], before);
    let all = full(stage, &[D, E, F]);
    stage.expect(all, "who was waited for has all records");
    gone(stage, &[A, B, C]);
    put(stage, &[("k00", "last")]);
    random::rest(&mut stage.world);
}

/// C lags behind what A and B have. D is given the first piece by one of them, and then they fall
/// silent.
fn laggard(stage: &mut Stage) {
    small(stage);
    stage.leader_other_than(C);
    fill(stage);
    stage.pass(1_000);
    let late = stage.lose(|parcel| {
        let Parcel::Peer { to, message, .. } = parcel else {
            return false;
        };
        *to == C && matches!(message, Message::Paxos { .. } | Message::Beat(_))
    });
    for (key, value) in [("k57", "new"), ("k58", "new"), ("k59", "new")] {
        put(stage, &[(key, value)]);
    }
    let ahead = pieces(stage, &[C], D);
    propose(stage, &[A, B, D]);
    let segment = stage.segment();
    let begun = stage.until(|w| {
        let standing = standing(w, D, segment);
        let filling = standing.and_then(|at| at.filling);
        filling.is_some_and(|filling| filling.since.is_some())
    });
    stage.expect(begun, "D has its first piece");
    let silent = pieces(stage, &[A, B], D);
    stage.discard(ahead);
    stage.pass(4_000);
    stage.discard(silent);
    stage.discard(late);
    random::rest(&mut stage.world);
}

/// A starts again after a loss of power, and hears nobody: of its last votes it does not know that
/// they are chosen.
fn again(stage: &mut Stage) {
    for value in ["v1", "v2", "v3"] {
        put(stage, &[("k", value)]);
    }
    stage.pass(500);
    stage.isolate(A);
    stage.world.stop(A, true);
    stage.world.start(A);
    stage.pass(2_000);
    stage.mend();
    put(stage, &[("k", "v4")]);
    random::rest(&mut stage.world);
}

/// C is away for so long that nobody has the entries any more that it lacks.
fn behind(stage: &mut Stage) {
    small(stage);
    put(stage, &[("first", "v")]);
    stage.pass(500);
    stage.world.stop(C, true);
    stage.leader_other_than(C);
    fill(stage);
    stage.world.start(C);
    let unfilled = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Records(_), .. } if *to == C)
    });
    for n in 0..30 {
        let value = format!("beside-{n}");
        put(stage, &[("k30", &value)]);
        stage.pass(50);
    }
    stage.discard(unfilled);
    random::rest(&mut stage.world);
}

/// Nobody asks whether D, E and F have anything. They hear no records until the others would be
/// rid of theirs.
fn pressed(stage: &mut Stage) {
    small(stage);
    fill(stage);
    let unfilled = [D, E, F].map(|to| pieces(stage, &[A, B, C, D, E, F], to));
    let before = press(stage, &[D, E, F]);
    born(stage, &[D, E, F], before);
    let segment = stage.segment();
    let beside = Puts(Vec::from([(Bytes::from_static(b"k01"), None)]));
    for number in 0..6 {
        nemesis::put_records(&mut stage.world, segment, (0xbead, number), &beside);
        stage.pass(1_000);
    }
    for rule in unfilled {
        stage.discard(rule);
    }
    gone(stage, &[A, B, C]);
    random::rest(&mut stage.world);
}

/// One of A's records rots, and A starts again. D fills from A and from others.
fn damaged(stage: &mut Stage) {
    small(stage);
    fill(stage);
    stage.pass(1_000);
    let name = [&record::first_part()[..], b"k20"].concat();
    let key = record::part(stage.segment(), &name);
    rot_record(stage, A, &key);
    stage.pass(8_000);
    let others = pieces(stage, &[B, C], D);
    propose(stage, &[A, B, D]);
    stage.pass(3_000);
    stage.discard(others);
    gone(stage, &[C]);
    random::rest(&mut stage.world);
    let whole = full(stage, &[A, B, D]);
    stage.expect(whole, "what has rotted is filled again");
}
