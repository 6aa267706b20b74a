//! Ledgers: timestamps, promises, closed times, and the cluster's time.
//!
//! A, the first seat, leads segment 0 and is the reference of the cluster's time; B leads
//! segment 1. D, E and F have no seats, and each is at the site of one of A, B and C. A coordinator
//! is *wide* where its knowledge of the time is nearly a second wide: what it asks for is that far
//! ahead.

use super::Scenario;
use super::ring::{D, E, F, FIRST};
use super::stage::{A, B, C, Stage};
use crate::history::{Heard, OpId};
use crate::network::{ClientId, Parcel, RuleId};
use crate::world::World;
use crate::{catalogue, cluster, nemesis, random};
use bytes::Bytes;
use fermata_protocol::base::{
    Address, Epoch, GroupId, KeyId, Keyspace, KeyspaceId, LogId, NodeName, Purpose, Scope,
    SegmentId, StoragePolicy, TagRule,
};
use fermata_protocol::client::Call;
use fermata_protocol::ledger::{Act, Message as Ledger, Part, Transaction, When};
use fermata_protocol::records::Message as Records;
use fermata_protocol::{Message, paxos, wire};
use std::cell::Cell;
use std::rc::Rc;

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "ledger-commit-wait",
        about: "a transaction far ahead, and one that begins after its answer",
        play: commit_wait,
    },
    Scenario {
        name: "ledger-reader-wait",
        about: "a reader finds a version that has not passed, and another one begins after it",
        play: reader_wait,
    },
    Scenario {
        name: "ledger-promise",
        about: "a read far ahead finds nothing, and somebody writes",
        play: promise,
    },
    Scenario {
        name: "ledger-flight",
        about: "a read beside a transaction that is being agreed",
        play: flight,
    },
    Scenario {
        name: "ledger-closed-flight",
        about: "times are closed beside a transaction that is being agreed",
        play: closed_flight,
    },
    Scenario {
        name: "ledger-closed-position",
        about: "a replica that lags hears what is closed",
        play: closed_position,
    },
    Scenario {
        name: "ledger-new-primary",
        about: "a log is handed over whose primary has closed ahead",
        play: new_primary,
    },
    Scenario {
        name: "ledger-epoch",
        about: "the next log of a segment begins whose times were closed ahead",
        play: epoch,
    },
    Scenario {
        name: "ledger-used",
        about: "a primary has said which times it has used, and the end of its log takes long",
        play: used,
    },
    Scenario {
        name: "ledger-stale-limit",
        about: "a primary whose limit cannot be agreed goes on closing, and hands over",
        play: stale_limit,
    },
    Scenario {
        name: "ledger-promise-limit",
        about: "a primary promises, and dies before its limit is agreed",
        play: promise_limit,
    },
    Scenario {
        name: "ledger-timeline",
        about: "the reference changes to a node whose wall clock is behind",
        play: timeline,
    },
    Scenario {
        name: "ledger-hasty-reference",
        about: "the reference changes while readings of the former one are in use",
        play: hasty_reference,
    },
    Scenario {
        name: "ledger-reading-limit",
        about: "the limit of the cluster's time cannot be agreed for long",
        play: reading_limit,
    },
    Scenario {
        name: "ledger-reading-validity",
        about: "a coordinator hears the time no more, and the reference changes",
        play: reading_validity,
    },
    Scenario {
        name: "ledger-drift",
        about: "the clock of a coordinator is slow",
        play: drift,
    },
    Scenario {
        name: "ledger-filler",
        about: "a replica that lacks records is asked what is closed",
        play: filler,
    },
    Scenario {
        name: "ledger-quiet",
        about: "a ledger is used after long, and one member of five says that it has the records",
        play: quiet,
    },
    Scenario {
        name: "ledger-format",
        about: "the cluster is raised to the format that has ledgers, and a ledger is used",
        play: format,
    },
];

/// A ledger with a key in segment 0 and one in segment 1.
struct Books {
    keys: [KeyId; 2],
}

/// Begins with a ledger that closes so many milliseconds ahead.
fn books(stage: &mut Stage, lead: u64) -> Books {
    stage.again(|setup| {
        setup.formats = wire::FORMATS;
        setup.timing.usage = 0;
        setup.timing.request = 30_000_000;
    });
    opened(stage, lead)
}

fn opened(stage: &mut Stage, lead: u64) -> Books {
    let lead = lead * 1_000;
    let purpose = Purpose::Ledger { lead };
    let known = &mut stage.world.history.catalogue;
    let id = known.add(purpose, StoragePolicy::Replicated, Keyspace::SECTION_MAX);
    catalogue::furnish(&mut stage.world);
    let known = stage.until(|w| {
        let mut nodes = w.machines.values().filter_map(|m| m.node());
        nodes.all(|node| node.here().keyspace(id).is_some())
    });
    stage.expect(known, "a ledger can be created");
    stage.pass(5_000);
    Books {
        keys: [0, 1].map(|segment| register_in(id, SegmentId(segment))),
    }
}

/// A register's key in a segment.
fn register_in(keyspace: KeyspaceId, segment: SegmentId) -> KeyId {
    let names = (0..).map(|n| Bytes::from(format!("g{n}/r0")));
    let rule = TagRule::Before(b'/');
    let mut there = names.filter(|key| Address::of(keyspace, rule, key).segment(1) == segment);
    let key = there.next().expect("half of all tags");
    KeyId { keyspace, key }
}

/// Begins to put a number.
fn put(stage: &mut Stage, client: ClientId, key: &KeyId, number: u64) -> OpId {
    let (key, value) = (key.clone(), Bytes::from(number.to_string()));
    let then = vec![Act::Put { key, value }];
    let transaction = Transaction {
        then,
        ..Transaction::default()
    };
    stage.call(client, Call::Transact(transaction))
}

/// Puts a number, and waits.
fn done(stage: &mut Stage, client: ClientId, key: &KeyId, number: u64) -> Heard {
    let op = put(stage, client, key, number);
    ended(stage, op)
}

/// Waits for the end of an operation; what comes next begins after it.
fn ended(stage: &mut Stage, op: OpId) -> Heard {
    let heard = stage.wait(op);
    stage.pass(1);
    heard
}

/// Begins to read the present.
fn look(stage: &mut Stage, client: ClientId, keys: &[&KeyId]) -> OpId {
    let parts = keys.iter().map(|key| Part::Key((*key).clone())).collect();
    let when = When::Now;
    stage.call(client, Call::Snapshot { parts, when })
}

/// Reads the present, and waits.
fn seen(stage: &mut Stage, client: ClientId, key: &KeyId) -> Heard {
    let op = look(stage, client, &[key]);
    ended(stage, op)
}

/// What tells a node the cluster's time.
fn time_to(to: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { to: t, message: Message::Ledger(Ledger::Time { .. }), .. }
            if *t == to)
    }
}

/// From now on a coordinator knows the time within so many milliseconds alone: it starts again, and
/// the only question that reaches A takes that long.
fn widen(stage: &mut Stage, name: NodeName, millis: u64) -> RuleId {
    let asks = move |parcel: &Parcel| {
        matches!(parcel, Parcel::Peer { from, to, message: Message::Beat(_) }
            if from.name == name && *to == A)
    };
    stage.world.stop(name, false);
    stage.pass(200);
    let first = Cell::new(true);
    let slow = stage.hold(move |parcel| asks(parcel) && first.replace(false));
    let lost = stage.lose(asks);
    stage.world.start(name);
    let asked = stage.until(|w| w.network.held(slow) > 0);
    stage.expect(asked, "a node that starts asks for the time");
    stage.pass(millis);
    stage.release(slow);
    stage.pass(160);
    lost
}

/// What belongs to the log of a segment, on its way from or to one of these.
fn log_of(segment: u32, from: &[NodeName], to: &[NodeName]) -> impl Fn(&Parcel) -> bool + 'static {
    let (from, to) = (from.to_vec(), to.to_vec());
    let scope = Scope::Segment(SegmentId(segment));
    move |parcel| {
        matches!(parcel, Parcel::Peer { from: f, to: t, message: Message::Paxos { log, .. } }
            if log.scope == scope && from.contains(&f.name) && to.contains(t))
    }
}

/// Proposals in a log that are on their way to acceptors.
fn proposals(log: impl Fn(&LogId) -> bool + 'static) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer { message: Message::Paxos { log: id, message }, .. }
            if log(id) && matches!(message, paxos::Message::Accept { .. }))
    }
}

fn of_segment(segment: u32) -> impl Fn(&LogId) -> bool + 'static {
    move |log| log.scope == Scope::Segment(SegmentId(segment))
}

/// Waits until another node than this one leads a segment.
fn other_leads(stage: &mut Stage, segment: u32, not: NodeName) {
    let segment = SegmentId(segment);
    let led = stage.until(|w| {
        let mut others = w.machines.iter().filter(|(name, _)| **name != not);
        others.any(|(_, m)| {
            m.node()
                .is_some_and(|n| n.here().led().any(|s| s == segment))
        })
    });
    stage.expect(led, "another node leads");
}

/// Waits until a log of a later epoch has begun in a segment.
fn next_log(stage: &mut Stage, segment: u32) {
    let segment = SegmentId(segment);
    let begun = stage.until(|w| {
        let mut nodes = w.machines.values().filter_map(|m| m.node());
        nodes.any(|node| {
            let room = node.here().segments.get(&segment);
            room.is_some_and(|room| room.log.id().epoch > Epoch::FIRST && room.log.has_begun())
        })
    });
    stage.expect(begun, "the next log of a segment begins");
}

/// F commits far ahead; D begins when it is told, elsewhere.
fn commit_wait(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    widen(stage, F, 900);
    let [far, near] = stage.clients([F.0, D.0]);
    done(stage, far, &x, 1);
    done(stage, near, &y, 2);
}

/// F's transaction is applied, and has not passed. E reads what it wrote; D begins when E is told.
fn reader_wait(stage: &mut Stage) {
    let Books { keys: [x, _] } = books(stage, 0);
    widen(stage, F, 900);
    widen(stage, E, 1_200);
    let [far, reader, near] = stage.clients([F.0, E.0, D.0]);
    let open = put(stage, far, &x, 1);
    stage.pass(150);
    seen(stage, reader, &x);
    seen(stage, near, &x);
    stage.wait(open);
}

/// F reads far ahead and finds nothing.
fn promise(stage: &mut Stage) {
    let Books { keys: [x, _] } = books(stage, 0);
    widen(stage, F, 900);
    let [far, near] = stage.clients([F.0, D.0]);
    seen(stage, far, &x);
    done(stage, near, &x, 1);
}

/// D's transaction has its timestamp, and is not agreed, when F reads far ahead.
fn flight(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    widen(stage, F, 900);
    let [far, near] = stage.clients([F.0, D.0]);
    // So that the limit is stated.
    seen(stage, far, &x);
    seen(stage, near, &y);
    stage.pass(1_500);
    let kept = stage.hold(proposals(of_segment(0)));
    let open = put(stage, near, &x, 1);
    stage.pass(100);
    let read = look(stage, far, &[&x]);
    stage.pass(300);
    stage.release(kept);
    stage.wait(read);
    stage.wait(open);
}

/// What F's transaction writes is not agreed, and times are closed that are later.
fn closed_flight(stage: &mut Stage) {
    let Books { keys: [x, _] } = books(stage, 500);
    let wide = widen(stage, F, 900);
    let [far, beside] = stage.clients([F.0, C.0]);
    seen(stage, beside, &x);
    stage.pass(500);
    let kept = stage.hold(proposals(of_segment(0)));
    let open = put(stage, far, &x, 1);
    stage.pass(1_500);
    let read = look(stage, beside, &[&x]);
    stage.pass(400);
    stage.release(kept);
    stage.discard(wide);
    stage.wait(read);
    stage.wait(open);
}

/// C hears nothing of the log but what is closed.
fn closed_position(stage: &mut Stage) {
    let Books { keys: [x, _] } = books(stage, 500);
    let [near, beside] = stage.clients([D.0, C.0]);
    seen(stage, beside, &x);
    stage.pass(500);
    let deaf = stage.lose(log_of(0, &[A, B], &[C]));
    done(stage, near, &x, 1);
    stage.pass(100);
    seen(stage, beside, &x);
    stage.discard(deaf);
}

/// B has closed a second ahead, and C hears no more of the log. B hands it over.
fn new_primary(stage: &mut Stage) {
    let Books { keys: [_, y] } = books(stage, 1_000);
    let [near, beside] = stage.clients([D.0, C.0]);
    seen(stage, beside, &y);
    stage.pass(500);
    let deaf = stage.lose(log_of(1, &[A, B], &[C]));
    stage.world.retire(B);
    other_leads(stage, 1, B);
    done(stage, near, &y, 1);
    seen(stage, beside, &y);
    stage.discard(deaf);
}

/// The same, and the log goes on in the next epoch.
fn epoch(stage: &mut Stage) {
    let Books { keys: [_, y] } = books(stage, 1_000);
    let [near, beside] = stage.clients([D.0, C.0]);
    seen(stage, beside, &y);
    stage.pass(500);
    let deaf = stage.lose(log_of(1, &[A, B], &[C]));
    nemesis::next_view(&mut stage.world, FIRST, 0xbeef);
    next_log(stage, 1);
    done(stage, near, &y, 1);
    seen(stage, beside, &y);
    stage.discard(deaf);
}

/// B has said which times it has used, since its log is to end, and cannot have that agreed for a
/// while.
fn used(stage: &mut Stage) {
    let Books { keys: [_, y] } = books(stage, 1_000);
    let [near, beside] = stage.clients([D.0, A.0]);
    seen(stage, beside, &y);
    stage.pass(500);
    let deaf = stage.lose(log_of(1, &[B, C], &[A]));
    let kept = stage.hold(proposals(of_segment(1)));
    nemesis::next_view(&mut stage.world, FIRST, 0xbeef);
    stage.pass(900);
    stage.release(kept);
    done(stage, near, &y, 1);
    seen(stage, beside, &y);
    stage.discard(deaf);
}

/// Nothing that B proposes is agreed for so long that its limit is reached. Then it hands over, and
/// is gone.
fn stale_limit(stage: &mut Stage) {
    stage.again(|setup| setup.timing.lease = 1_000_000);
    let Books { keys: [_, y] } = books(stage, 1_000);
    let [near, beside] = stage.clients([D.0, C.0]);
    seen(stage, beside, &y);
    stage.pass(500);
    // C votes for what comes next, and does not hear that it is chosen.
    let deaf = stage.lose(|parcel| {
        let Parcel::Peer { from, to, message } = parcel else {
            return false;
        };
        let news = match message {
            Message::Paxos { log, message } => {
                of_segment(1)(log)
                    && (from.name == B || matches!(message, paxos::Message::Chosen { .. }))
            }
            Message::Beat(_) => from.name == A,
            _ => false,
        };
        *to == C && news
    });
    let lost = stage.lose(proposals(of_segment(1)));
    stage.pass(3_000);
    stage.world.retire(B);
    stage.pass(1);
    stage.world.stop(B, true);
    stage.discard(lost);
    other_leads(stage, 1, B);
    done(stage, near, &y, 1);
    seen(stage, beside, &y);
    stage.discard(deaf);
}

/// B answers F's read, and hands the log over, while nothing that it proposes arrives; then it is
/// gone.
fn promise_limit(stage: &mut Stage) {
    let Books { keys: [_, y] } = books(stage, 0);
    widen(stage, F, 900);
    let [far, near] = stage.clients([F.0, D.0]);
    let kept = stage.lose(proposals(of_segment(1)));
    let read = look(stage, far, &[&y]);
    stage.pass(80);
    stage.world.retire(B);
    stage.pass(1);
    stage.world.stop(B, true);
    stage.discard(kept);
    other_leads(stage, 1, B);
    done(stage, near, &y, 1);
    stage.wait(read);
}

/// All but A's wall clocks are far behind.
fn walls_behind(stage: &mut Stage) {
    for (_, machine) in stage
        .world
        .machines
        .iter_mut()
        .filter(|(name, _)| **name != A)
    {
        machine.clock.jump(-60_000_000);
    }
}

/// The reference hands over to one whose wall clock is behind.
fn timeline(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    walls_behind(stage);
    let [near, next] = stage.clients([D.0, E.0]);
    done(stage, near, &x, 1);
    stage.world.retire(A);
    stage.pass(6_000);
    done(stage, next, &y, 2);
}

/// D still goes by the former reference when E hears the next one, which is ahead.
fn hasty_reference(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    let [behind, ahead] = stage.clients([D.0, E.0]);
    stage.lose(time_to(D));
    stage.world.retire(A);
    let other = stage.until(|w| reference(w).is_some_and(|name| name != A));
    stage.expect(other, "another node is the reference");
    stage.pass(500);
    let first = put(stage, ahead, &x, 1);
    stage.pass(700);
    let second = put(stage, behind, &y, 2);
    stage.wait(first);
    stage.wait(second);
}

/// Who leads the meta-group's log.
fn reference(world: &World) -> Option<NodeName> {
    let leads = |node: &fermata_protocol::Node| {
        let group = node.here().groups.get(&GroupId::META);
        group.is_some_and(|group| group.log.has_begun())
    };
    let mut nodes = world.machines.iter();
    let led = nodes.find(|(_, machine)| machine.node().is_some_and(leads));
    led.map(|(name, _)| *name)
}

/// A keeps its lease, and nothing that it proposes for the meta-group is agreed. Then it is gone.
fn reading_limit(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    walls_behind(stage);
    let [near, next] = stage.clients([D.0, E.0]);
    let kept = stage.lose(proposals(|log| {
        log.scope == Scope::Group && log.group == GroupId::META
    }));
    stage.pass(15_000);
    let first = put(stage, near, &x, 1);
    stage.pass(500);
    stage.discard(kept);
    stage.world.stop(A, true);
    stage.pass(12_000);
    done(stage, next, &y, 2);
    stage.wait(first);
}

/// D hears the time no more; the reference changes.
fn reading_validity(stage: &mut Stage) {
    let Books { keys: [x, y] } = books(stage, 0);
    let [behind, ahead] = stage.clients([D.0, E.0]);
    let deaf = stage.lose(time_to(D));
    stage.world.retire(A);
    stage.pass(7_000);
    done(stage, ahead, &x, 1);
    let second = put(stage, behind, &y, 2);
    stage.pass(500);
    stage.discard(deaf);
    stage.wait(second);
}

/// D's clock is slower than any other, and it has not heard the time for a while.
fn drift(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.drift_ppm = 100_000;
    });
    let Books { keys: [x, y] } = books(stage, 0);
    let now = stage.world.now;
    let machine = stage
        .world
        .machines
        .get_mut(&D)
        .expect("a node of this world");
    machine.clock.set_rate(now, -95_000);
    let [slow, right] = stage.clients([D.0, E.0]);
    // It has one reading alone: two of them would show that its clock is slow.
    stage.world.stop(D, false);
    stage.pass(200);
    let (time, first) = (time_to(D), Cell::new(true));
    stage.lose(move |parcel| time(parcel) && !first.replace(false));
    stage.world.start(D);
    stage.pass(1_700);
    done(stage, right, &x, 1);
    done(stage, slow, &y, 2);
}

/// C was away for so long that it is given a snapshot, and no records yet.
fn filler(stage: &mut Stage) {
    stage.again(|setup| {
        (setup.limits.snapshot_every, setup.limits.changes) = (8, 8);
        (setup.limits.batch_bytes, setup.limits.window_bytes) = (1_024, 1_024);
    });
    let Books { keys: [x, _] } = books(stage, 500);
    let [near, beside] = stage.clients([D.0, C.0]);
    stage.world.stop(C, true);
    for number in 1..=40 {
        done(stage, near, &x, number);
    }
    stage.pass(500);
    let unfilled = stage.lose(|parcel| {
        matches!(parcel, Parcel::Peer { to, message: Message::Records(_), .. } if *to == C)
    });
    stage.world.start(C);
    stage.pass(3_000);
    done(stage, near, &x, 41);
    stage.pass(1_000);
    seen(stage, beside, &x);
    stage.discard(unfilled);
    random::rest(&mut stage.world);
}

/// Nobody has used the ledger for long, so A knows no more who has its records; of the others D
/// alone is heard. What comes waits until more are.
fn quiet(stage: &mut Stage) {
    stage.again(|setup| setup.cluster = cluster::schedule(5));
    let Books { keys: [x, _] } = books(stage, 0);
    let [near] = stage.clients([F.0]);
    done(stage, near, &x, 1);
    stage.pass(15_000);
    let asked = Rc::new(Cell::new(0_u32));
    let count = Rc::clone(&asked);
    let silent = stage.lose(move |parcel| {
        let Parcel::Peer { from, message, .. } = parcel else {
            return false;
        };
        if matches!(message, Message::Records(Records::Complete { .. })) {
            count.set(count.get() + 1);
        }
        from.name != D && matches!(message, Message::Records(Records::IsComplete { .. }))
    });
    let op = put(stage, near, &x, 2);
    stage.pass(500);
    let few = (1..=60).contains(&asked.get());
    stage.expect(few, "each member is asked once a beat");
    stage.discard(silent);
    let heard = ended(stage, op);
    let put = matches!(heard, Heard::Transacted(_));
    stage.expect(put, "what has waited is done");
}

/// Everybody runs the program before this one; then the cluster is raised, and a ledger is made.
fn format(stage: &mut Stage) {
    let [near, far] = stage.clients([D.0, F.0]);
    stage.section(near, "before");
    for name in [A, B, C, D, E, F] {
        stage.world.upgrade(name);
        stage.pass(5_000);
    }
    super::settings::raise(stage, wire::LEDGERS);
    super::settings::all_go_by(stage, wire::LEDGERS);
    stage.pass(8_000);
    let Books { keys: [x, y] } = opened(stage, 0);
    for (number, key) in [(1, &x), (2, &y), (3, &x)] {
        let put = done(stage, near, key, number);
        stage.expect(matches!(put, Heard::Transacted(_)), "a transaction is done");
        let read = look(stage, far, &[key]);
        let read = stage.wait(read);
        let told = matches!(&read, Heard::Snapshot(_, found) if found[0].keys.len() == 1);
        stage.expect(told, "and is read");
    }
    stage.section(far, "after");
}
