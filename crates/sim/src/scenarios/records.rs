//! Parts of a segment's state that are records in its members' stores.

use super::Scenario;
use super::ring::{D, E, F, FIRST, born, gone, press, propose};
use super::rules::rot_record;
use super::stage::{A, B, C, Stage, candidacy_of};
use crate::network::{Parcel, RuleId};
use crate::world::World;
use crate::{nemesis, random};
use bytes::Bytes;
use fermata_protocol::base::{NodeName, SegmentId};
use fermata_protocol::records::{Change, Message as Records, Puts, Standing};
use fermata_protocol::wire::{decode, record};
use fermata_protocol::{Message, ring};
use std::cell::Cell;
use std::rc::Rc;

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
    Scenario {
        name: "records-all-lag",
        about: "one member after the other is away while a leader counts all as complete",
        play: all_lag,
    },
    Scenario {
        name: "records-later-gap",
        about: "a second snapshot comes between a question and its answer, and a command after it",
        play: later_gap,
    },
    Scenario {
        name: "records-two-logs",
        about: "a former member that slept is invited, and looks at its old log",
        play: two_logs,
    },
    Scenario {
        name: "records-retired-follower",
        about: "a former member that follows again is told that its old log may go",
        play: retired_follower,
    },
    Scenario {
        name: "records-split",
        about: "a group splits, the child has new members, and records change",
        play: split,
    },
    Scenario {
        name: "records-refused-twice",
        about: "one of two sources has forgotten and is asked twice; the other's answer is lost",
        play: refused_twice,
    },
    Scenario {
        name: "records-forget-bound",
        about: "logs are truncated for the node's bound alone, and changes are to be forgotten",
        play: forget_bound,
    },
    Scenario {
        name: "records-idle-seen",
        about: "the only member that was filled dies, of which others have a piece",
        play: idle_seen,
    },
    Scenario {
        name: "records-wide",
        about: "one command has changed many records, which have grown since",
        play: wide,
    },
    Scenario {
        name: "records-late-piece",
        about: "a piece of a range further on comes to one that has its first piece",
        play: late_piece,
    },
    Scenario {
        name: "records-late-changes",
        about: "one that lags hears what was changed since a later command than its own",
        play: late_changes,
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

/// C has the first command, and is down while so many follow that nobody remembers them.
fn misses_all_but_one(stage: &mut Stage) {
    small(stage);
    put(stage, &[("first", "v")]);
    stage.pass(500);
    stage.world.stop(C, true);
    stage.leader_other_than(C);
    fill(stage);
}

/// Waits until a node has its first piece of a fill.
fn has_first_piece(stage: &mut Stage, name: NodeName) {
    let segment = stage.segment();
    let begun = stage.until(|w| {
        let filling = standing(w, name, segment).and_then(|at| at.filling);
        filling.is_some_and(|filling| filling.since.is_some())
    });
    stage.expect(begun, "a first piece has come");
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
    has_first_piece(stage, D);
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
    misses_all_but_one(stage);
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

/// Messages of a kind to a node are lost.
fn to_one(stage: &mut Stage, to: NodeName, so: fn(&Message) -> bool) -> RuleId {
    stage.lose(move |parcel| {
        matches!(parcel, Parcel::Peer { to: t, message, .. } if *t == to && so(message))
    })
}

/// What a log's members hear of it.
fn log_news(message: &Message) -> bool {
    matches!(message, Message::Paxos { .. } | Message::Beat(_))
}

/// Waits until a node leads.
fn leads(stage: &mut Stage, name: NodeName) -> bool {
    let segment = stage.segment();
    stage.until(move |w| {
        let node = w.machines[&name].node();
        node.is_some_and(|n| n.here().led().any(|s| s == segment))
    })
}

/// One that may be refused.
fn try_put(stage: &mut Stage, n: u64, key: &'static str) {
    let (name, value) = (format!("{key}-{n:02}"), Bytes::from_static(b"v"));
    let puts = Puts(Vec::from([(Bytes::from(name), Some(value))]));
    let (segment, session) = (stage.segment(), 0xcafe + stage.world.now);
    nemesis::put_records(&mut stage.world, segment, (session, 1), &puts);
    stage.pass(200);
}

/// No disk is lost and nobody crashes: one after the other is cut off, and goes on from a snapshot.
/// A, which leads, has learnt in the beginning that all are complete.
fn all_lag(stage: &mut Stage) {
    small(stage);
    let led = leads(stage, A);
    stage.expect(led, "A leads");
    for value in ["v1", "v2", "v3"] {
        put(stage, &[("k", value)]);
        stage.pass(1_000);
    }
    // What is lacking is not filled in time: say that it is large.
    let slow = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { message: Message::Records(message), .. }
            if matches!(message, Records::Piece { .. } | Records::Changes { .. }))
    });
    stage.isolate(A);
    stage.leader_other_than(A);
    for n in 0..20 {
        try_put(stage, n, "without A");
    }
    stage.mend();
    stage.pass(3_000);
    let quiet = stage.lose(candidacy_of(B));
    stage.isolate(C);
    let led = leads(stage, A);
    stage.expect(led, "A leads again");
    stage.discard(quiet);
    for n in 0..20 {
        try_put(stage, n, "without C");
    }
    stage.mend();
    stage.pass(3_000);
    let led = leads(stage, A);
    stage.expect(led, "A leads still");
    stage.isolate(B);
    for n in 0..20 {
        try_put(stage, n, "without B");
    }
    stage.mend();
    stage.pass(3_000);
    stage.discard(slow);
    random::rest(&mut stage.world);
}

/// C lags, and asks what was changed. The answer is on its way while C misses more, is given
/// another snapshot, and applies one more command.
fn later_gap(stage: &mut Stage) {
    small(stage);
    stage.again(|setup| {
        (setup.limits.chunk, setup.limits.changes) = (64 << 10, 10_000);
        setup.timing.retry = 12_000_000;
        // Nothing is kept for who lags.
        setup.limits.node_entries_bytes = 1_500;
    });
    stage.leader_other_than(C);
    put(stage, &[("first", "v")]);
    stage.pass(1_000);
    let late = to_one(stage, C, log_news);
    for n in 0..30 {
        put(stage, &[(&format!("a{n:02}"), "v")]);
    }
    let asked = Rc::new(Cell::new(0));
    let counted = Rc::clone(&asked);
    let answer = stage.hold(move |parcel| {
        let so = matches!(parcel, Parcel::Peer { to, message: Message::Records(message), .. }
            if *to == C && matches!(message, Records::Changes { .. }));
        if so {
            counted.set(counted.get() + 1);
        }
        so
    });
    stage.discard(late);
    let asked = stage.until(|_| asked.get() > 0);
    stage.expect(asked, "C lags and has asked");
    let late = to_one(stage, C, log_news);
    for n in 0..30 {
        put(stage, &[(&format!("gap{n:02}"), "v")]);
    }
    stage.discard(late);
    stage.pass(1_000);
    put(stage, &[("last", "v")]);
    stage.pass(200);
    stage.release(answer);
    stage.pass(200);
    random::rest(&mut stage.world);
}

/// C sleeps while its seat goes to D, and is invited again before it knows that its log has ended.
fn two_logs(stage: &mut Stage) {
    small(stage);
    for n in 0..5 {
        put(stage, &[(&format!("a{n}"), "v")]);
    }
    stage.pass(1_000);
    stage.isolate(C);
    let before = propose(stage, &[A, B, D]);
    born(stage, &[A, B, D], before);
    fill(stage);
    let retires = to_one(stage, C, |message| {
        matches!(message, Message::Ring(ring::Message::Retire { .. }))
    });
    let unfilled = to_one(stage, C, |message| matches!(message, Message::Records(_)));
    stage.mend();
    let before = propose(stage, &[A, B, C]);
    stage.pass(2_500);
    let present = nemesis::present_view(&stage.world, FIRST).epoch.0;
    stage.expect(
        present == before,
        "a change waits until its members have all records",
    );
    stage.discard(unfilled);
    born(stage, &[A, B, C], before);
    stage.discard(retires);
    random::rest(&mut stage.world);
}

/// C has left, keeps its log, and is invited again; then it is told that the log may go.
fn retired_follower(stage: &mut Stage) {
    small(stage);
    fill(stage);
    stage.pass(1_000);
    let retires = stage.hold(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Ring(message), .. }
            if *to == C && matches!(message, ring::Message::Retire { .. }))
    });
    let before = propose(stage, &[A, B, D]);
    born(stage, &[A, B, D], before);
    put(stage, &[("k00", "changed")]);
    stage.pass(3_000);
    // E never is full in this time.
    let slow = pieces(stage, &[A, B, C, D], E);
    propose(stage, &[A, C, E]);
    let segment = stage.segment();
    let fills = stage.until(|w| {
        let full = standing(w, C, segment).is_some_and(|at| at.filling.is_none());
        let follows = w.machines[&E].node().is_some();
        full && follows && standing(w, E, segment).is_some_and(|at| at.filling.is_some())
    });
    stage.expect(fills, "E has begun to fill");
    stage.pass(600);
    let present = nemesis::present_view(&stage.world, FIRST).epoch.0;
    stage.expect(present == before + 1, "the change waits for E");
    stage.release(retires);
    stage.pass(100);
    let kept = full(stage, &[C]);
    stage.expect(
        kept,
        "C, which follows and has said that it is warm, keeps its records",
    );
    stage.discard(slow);
    random::rest(&mut stage.world);
}

/// Segment 1 goes to a child with other members while its records change.
fn split(stage: &mut Stage) {
    small(stage);
    let put_one = |stage: &mut Stage, n: u64, key: &str| {
        let puts = Puts(Vec::from([(
            Bytes::from(format!("{key}{n:02}")),
            Some(Bytes::from_static(b"value")),
        )]));
        let session = 0xcafe + stage.world.now;
        nemesis::put_records(&mut stage.world, SegmentId(1), (session, 1), &puts);
        stage.pass(150);
    };
    for n in 0..60 {
        put_one(stage, n, "a");
    }
    let unfilled = [D, E, F].map(|to| pieces(stage, &[A, B, C, D, E, F], to));
    let before = press(stage, &[A, B, C, D, E, F]);
    super::ring::goes_on(stage, &[A, B, C, D, E, F], before);
    let session = 0xbeef + stage.world.now;
    nemesis::split_at(
        &mut stage.world,
        FIRST,
        session,
        SegmentId(1),
        &[A, B, C],
        &[D, E, F],
    );
    stage.pass(4_000);
    for rule in unfilled {
        stage.discard(rule);
    }
    for n in 0..80 {
        put_one(stage, n, "b");
    }
    let present = nemesis::present_view(&stage.world, FIRST);
    stage.expect(present.len() == 3, "the group has split");
    random::rest(&mut stage.world);
}

/// B has been filled, and knows what was changed since then alone. C lags less than A remembers.
fn refused_twice(stage: &mut Stage) {
    small(stage);
    stage.again(|setup| {
        setup.limits.changes = 10_000;
        setup.limits.node_entries_bytes = 1_500;
    });
    stage.leader_other_than(C);
    let quiet = stage.lose(candidacy_of(B));
    let silent = stage.lose(candidacy_of(C));
    put(stage, &[("first", "v")]);
    stage.pass(1_000);
    let late = to_one(stage, B, log_news);
    for n in 0..20 {
        put(stage, &[(&format!("b{n:02}"), "v")]);
    }
    let unfilled = to_one(stage, B, |message| matches!(message, Message::Records(_)));
    stage.discard(late);
    stage.pass(3_000);
    let late = to_one(stage, C, log_news);
    for n in 0..20 {
        put(stage, &[(&format!("c{n:02}"), "v")]);
    }
    stage.discard(unfilled);
    stage.pass(5_000);
    let lost = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Records(message), .. }
            if *to == C && matches!(message, Records::Changes { .. }))
    });
    stage.discard(late);
    stage.pass(3_000);
    let segment = stage.segment();
    let anew = |w: &World| {
        let standing = standing(w, C, segment);
        standing.is_some_and(|at| {
            at.filling
                .is_some_and(|f| f.cursor.is_some() || f.since > Some((22, 0)))
        })
    };
    let anew = anew(&stage.world);
    stage.expect(!anew, "C, of whose lag A remembers all, does not fill anew");
    stage.discard(lost);
    stage.discard(quiet);
    stage.discard(silent);
    random::rest(&mut stage.world);
}

/// Logs are truncated because the node keeps too many bytes of them, and not for their lengths.
fn forget_bound(stage: &mut Stage) {
    small(stage);
    stage.again(|setup| {
        (setup.limits.changes, setup.limits.snapshot_every) = (8, 64);
        setup.limits.node_entries_bytes = 1_500;
    });
    fill(stage);
    fill(stage);
    fill(stage);
    let segment = stage.segment();
    let floor = standing(&stage.world, A, segment).map_or(0, |at| at.floor);
    stage.expect(
        floor > 0,
        "what 180 commands changed is not all remembered, where 8 are to be",
    );
    random::rest(&mut stage.world);
}

/// All seats go to D, E and F, unfilled. E is filled; the segment goes on with commands that change
/// no record; D and F have a piece of E, and E is gone. A, B and C still have all, and nothing was
/// changed since.
fn idle_seen(stage: &mut Stage) {
    small(stage);
    fill(stage);
    stage.pass(1_000);
    let client = stage.client(&[1, 2, 4]);
    let former = [D, F].map(|to| pieces(stage, &[A, B, C], to));
    let unfilled = [D, F].map(|to| pieces(stage, &[D, E, F], to));
    let before = press(stage, &[D, E, F]);
    born(stage, &[D, E, F], before);
    let segment = stage.segment();
    let filled = stage
        .until(|w| standing(w, E, segment).is_some_and(|at| at.filling.is_none() && at.at >= 60));
    stage.expect(filled, "E is filled");
    for _ in 0..4 {
        stage.section(client, "v");
    }
    stage.pass(1_000);
    for rule in unfilled {
        stage.discard(rule);
    }
    let mut later = Vec::new();
    for name in [D, F] {
        has_first_piece(stage, name);
        later.push(pieces(stage, &[D, E, F], name));
    }
    stage.world.stop(E, true);
    for rule in former {
        stage.discard(rule);
    }
    for rule in later {
        stage.discard(rule);
    }
    stage.pass(30_000);
    let whole = full(stage, &[D, F]);
    stage.expect(whole, "who still has all fills the others");
    stage.world.start(E);
    gone(stage, &[A, B, C]);
    random::rest(&mut stage.world);
}

/// One command changes forty records a little; others make each of them long.
fn wide(stage: &mut Stage) {
    small(stage);
    stage.again(|setup| {
        setup.limits.changes = 10_000;
        setup.limits.batch_bytes = 4_096;
        setup.limits.window_bytes = 4_096;
    });
    stage.leader_other_than(C);
    put(stage, &[("first", "v")]);
    stage.pass(1_000);
    let late = to_one(stage, C, log_news);
    let names: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    let all: Vec<(&str, &str)> = names.iter().map(|name| (&name[..], "v")).collect();
    put(stage, &all);
    let long = "x".repeat(1_000);
    for name in &names {
        put(stage, &[(name, &long)]);
    }
    let widest = Rc::new(Cell::new(0));
    let seen = Rc::clone(&widest);
    stage.lose(move |parcel| {
        if let Parcel::Peer {
            message: Message::Records(Records::Changes { records, .. }),
            ..
        } = parcel
        {
            let bytes = records
                .iter()
                .map(|c| c.value.as_ref().map_or(0, Bytes::len))
                .sum();
            seen.set(seen.get().max(bytes));
        }
        false
    });
    stage.discard(late);
    random::rest(&mut stage.world);
    let small = widest.get() <= 3_000;
    stage.expect(
        small,
        &format!("an answer is about a chunk of 100 bytes: {}", widest.get()),
    );
}

fn name(key: &str) -> Bytes {
    [&record::first_part()[..], key.as_bytes()].concat().into()
}

/// What A says of its records arrives at a node.
fn says(stage: &mut Stage, to: NodeName, message: Records) {
    let (from, message) = (stage.world.machines[&A].id(), Message::Records(message));
    stage.world.inject(Parcel::Peer { from, to, message });
    stage.pass(500);
}

/// D has its first piece when another one comes that was asked for in an earlier life, perhaps.
fn late_piece(stage: &mut Stage) {
    small(stage);
    fill(stage);
    stage.pass(1_000);
    propose(stage, &[A, B, D]);
    has_first_piece(stage, D);
    let silent = pieces(stage, &[A, B, C], D);
    let segment = stage.segment();
    let piece = Records::Piece {
        segment,
        from: name("k59"),
        to: None,
        records: Vec::from([(name("k59"), Bytes::from_static(b"value-59"))]),
        position: 60,
    };
    says(stage, D, piece);
    stage.discard(silent);
    random::rest(&mut stage.world);
}

/// C lags behind the first command, and hears what was changed since the fortieth.
fn late_changes(stage: &mut Stage) {
    misses_all_but_one(stage);
    let unfilled = to_one(stage, C, |message| matches!(message, Message::Records(_)));
    stage.world.start(C);
    let segment = stage.segment();
    let lags = stage.until(|w| {
        let node = w.machines[&C].node();
        let room = node.and_then(|node| node.here().segments.get(&segment));
        room.is_some_and(|room| room.state.recorded() == 61)
    });
    stage.expect(lags, "C is given a snapshot");
    stage.pass(2_000);
    stage.discard(unfilled);
    let changed = (40..60).map(|n| Change {
        name: name(&format!("k{n:02}")),
        value: Some(Bytes::from(format!("value-{n}"))),
    });
    let changes = Records::Changes {
        segment,
        since: (41, u32::MAX),
        upto: (61, u32::MAX),
        records: changed.collect(),
        position: 61,
    };
    says(stage, C, changes);
    random::rest(&mut stage.world);
}
