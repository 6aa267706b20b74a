//! Coded registers: the schedules that break what is nearly the rule (F8, F9), with one register in
//! a keyspace of its own.
//!
//! Five members, nodes 1 to 5, of which one may fail: quorums are four, and three parts give a
//! value back. Nodes 6, 7 and 8 have no seat; each client talks to one of them.

use super::rules::rot_record;
use super::stage::{A, C, Stage, final_to, long, parts_of, reads_by};
use crate::clock::IntervalClock;
use crate::history::{Heard, OpId};
use crate::network::{ClientId, Parcel};
use bytes::Bytes;
use fermata_protocol::Message;
use fermata_protocol::base::{KeyId, NodeName, StoragePolicy, Terms};
use fermata_protocol::io::Memory as _;
use fermata_protocol::register::{Answer, Content, Message as Register};
use fermata_protocol::request::{ClockState, Code};
use fermata_protocol::wire::record;

const MEMBERS: u32 = 5;

pub(super) fn terms(delta: u8) -> Terms {
    Terms {
        faults: 1,
        delta,
        whole_below: 32,
    }
}

pub(super) fn members(numbers: &[u32]) -> Vec<NodeName> {
    numbers.iter().copied().map(NodeName).collect()
}

/// A write whose parts reach `at` alone, and whose coordinator, node `by`, dies with it.
pub(super) fn dead_write(stage: &mut Stage, by: u32, key: &KeyId, text: &str, at: &[u32]) {
    let client = stage.client(&[by]);
    let missed: Vec<u32> = (1..=MEMBERS).filter(|m| !at.contains(m)).collect();
    let lost = stage.lose(parts_of(text, &members(&missed)));
    stage.begin_write(client, key, text);
    stage.pass(400);
    stage.world.kill_client(client);
    stage.world.stop(NodeName(by), true);
    stage.pass(100);
    stage.world.start(NodeName(by));
    stage.discard(lost);
    stage.pass(1_000);
}

fn is(outcome: &Heard, text: &str) -> bool {
    *outcome == Heard::Value(long(text))
}

/// F8a: a write has died with its parts at three members. A reader returns it, and completes it
/// first: were the members only told that it is final, they would drop what was before it, and one
/// more death would leave too few parts of both.
pub(super) fn final_before_parts(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    dead_write(stage, 6, &key, "v2", &[1, 2, 3]);
    let without_5 = stage.lose(reads_by(NodeName(8), &members(&[5])));
    stage.read(reader, &key);
    stage.discard(without_5);
    stage.pass(2_000);
    stage.world.stop(NodeName(1), true);
    let read = stage.read(reader, &key);
    stage.expect(is(&read, "v2"), "what was read is read again");
    stage.world.start(NodeName(1));
}

/// F8b: 4 is at 2, 3, 4, 5, and 5 at 1, 2, 3, 4. A reader has heard 2, 3 and 5 when 7 completes; 1
/// is told that 7 is final, drops 5, restarts, and answers.
pub(super) fn lost_mark(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    let [writer, reader] = stage.clients([7, 8]);
    old_and_new(stage, writer, &key);
    let late = stage.hold(reads_by(NodeName(8), &members(&[1, 4])));
    let read = stage.begin_read(reader, &key);
    stage.pass(400);
    let untold = stage.lose(final_to(&members(&[2, 3, 4, 5])));
    stage.write(writer, &key, "v7");
    stage.pass(1_500);
    stage.world.stop(NodeName(1), true);
    stage.world.start(NodeName(1));
    stage.pass(200);
    let without_4 = stage.lose(reads_by(NodeName(8), &members(&[4])));
    stage.release(late);
    stage.pass(300);
    stage.discard(without_4);
    stage.wait(read);
    stage.discard(untold);
}

/// "v4" is at 2, 3, 4, 5, then "v5" at 1, 2, 3, 4, both acknowledged, and no member knows that
/// either is final.
fn old_and_new(stage: &mut Stage, writer: ClientId, key: &KeyId) {
    let untold = stage.lose(final_to(&members(&[1, 2, 3, 4, 5])));
    let not_1 = stage.lose(parts_of("v4", &members(&[1])));
    stage.write(writer, key, "v4");
    stage.pass(1_000);
    let not_5 = stage.lose(parts_of("v5", &members(&[5])));
    stage.write(writer, key, "v5");
    stage.pass(1_000);
    for rule in [untold, not_1, not_5] {
        stage.discard(rule);
    }
}

/// F8c: the part of "v5" at 3 is corrupt, and 4 is slow: of the answers of 1, 2, 3, 5 three have a
/// part of "v4".
pub(super) fn corrupt_part(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    let [writer, reader] = stage.clients([7, 8]);
    old_and_new(stage, writer, &key);
    rot(stage, NodeName(3), &key, b"v5.");
    let without_4 = stage.hold(reads_by(NodeName(8), &members(&[4])));
    let read = stage.begin_read(reader, &key);
    stage.pass(1_200);
    stage.release(without_4);
    stage.wait(read);
}

/// The record at a member whose content has `part` in it rots, and the member restarts.
pub(super) fn rot(stage: &mut Stage, name: NodeName, key: &KeyId, part: &[u8]) {
    let memory = stage.world.machines[&name].memory();
    let memory = memory.expect("the node runs");
    let mut records = memory.scan(b"r", b"s", usize::MAX).into_iter();
    let content = records.find(|(record, value)| {
        let has = |value: &Bytes| value.windows(part.len()).any(|w| w == part);
        record::key_of(record).as_ref() == Some(key) && value.as_ref().is_ok_and(has)
    });
    let (record, _) = content.expect("somebody has the part");
    rot_record(stage, name, &record);
    stage.pass(200);
}

/// F8g: "d" has died at 1, 2, 3, where no more is taken. A writer finds that out and sweeps: it
/// reads without 3, so that "v1" is the highest that it can decode. Before it stores that, a reader
/// has heard 1, 2, 3 and returns "d".
pub(super) fn sweep(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(1)));
    let [first, writer, reader] = stage.clients([6, 7, 8]);
    let untold = stage.lose(final_to(&members(&[1, 2, 3, 4, 5])));
    stage.write(first, &key, "v1");
    dead_write(stage, 6, &key, "d", &[1, 2, 3]);
    let not_stored = stage.lose(parts_of("v3", &members(&[4, 5])));
    let swept = stage.hold(parts_of("v1", &members(&[1, 2, 3, 4, 5])));
    let without_3 = stage.lose(reads_by(NodeName(7), &members(&[3])));
    let write = stage.begin_write(writer, &key, "v3");
    let sweeps = stage.until(|w| w.network.held(swept) >= 4);
    stage.expect(sweeps, "a key that is full is swept");
    // What is read is told to be final now, and makes room.
    stage.discard(untold);
    let without_5 = stage.lose(reads_by(NodeName(8), &members(&[5])));
    stage.read(reader, &key);
    for rule in [not_stored, without_3, without_5] {
        stage.discard(rule);
    }
    stage.release(swept);
    stage.wait(write);
    stage.pass(1_000);
    stage.read(reader, &key);
}

/// F9: the writer's clock is ahead, by less than its bound; a second writer's is behind. A reader
/// that returns the first one's value before its time has passed may see the second one's outranked
/// although it began later.
pub(super) fn reader_waits(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    for machine in stage.world.machines.values_mut() {
        let error = match machine.name().0 {
            6 => 400_000,
            7 => -400_000,
            _ => 0,
        };
        let width = 500_000;
        machine.clock.interval = Some(IntervalClock { width, error });
    }
    let [fast, slow, reader] = stage.clients([6, 7, 8]);
    let first = stage.begin_write(fast, &key, "x");
    stage.pass(120);
    let read = stage.begin_read(reader, &key);
    let before_second = |stage: &Stage, op: OpId| *stage.world.outcome(op) != Heard::Open;
    stage.pass(180);
    let early = before_second(stage, read);
    let second = stage.begin_write(slow, &key, "y");
    for op in [first, read, second] {
        stage.wait(op);
    }
    stage.read(reader, &key);
    stage.expect(!early, "a value is returned when its time has passed");
    let trusted = |n| super::clocks::state(stage, n) == Some(ClockState::Trusted);
    let all = (1..=8).all(trusted);
    stage.expect(all, "no clock within its bound is suspected");
}

/// One writer dies, and the value is there; as many as leave no two parts of any value, and it is
/// not, as was agreed; and it is there again once somebody has written.
pub(super) fn treas_opt_stuck(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::TreasOpt(terms(1)));
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    dead_write(stage, 6, &key, "d1", &[1]);
    let read = stage.read(reader, &key);
    stage.expect(is(&read, "v1"), "one dead writer is within delta");
    for (text, at) in [("d2", 2), ("d3", 3), ("d4", 4)] {
        dead_write(stage, 6, &key, text, &[at]);
    }
    let read = stage.read(reader, &key);
    stage.expect(
        read == Heard::Failed(Code::Undecodable),
        "four dead writers are beyond delta",
    );
    let counted = stage.world.monitor.beyond_delta();
    stage.expect(counted > 0, "a read beyond delta is counted");
    stage.write(writer, &key, "v2");
    let read = stage.read(reader, &key);
    stage.expect(is(&read, "v2"), "a write is complete, and read");
}

/// Three times as many writers die as a member keeps versions; between them every read finds the
/// value, and the sweeps make room for the last writer.
pub(super) fn dying_writers(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(1)));
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    for (i, at) in [[1, 2], [3, 4], [5, 1], [2, 3], [4, 5], [1, 3]]
        .iter()
        .enumerate()
    {
        dead_write(stage, 6, &key, &format!("d{i}"), at);
        let read = stage.read(reader, &key);
        stage.expect(is(&read, "v1"), "dead writers hide nothing");
    }
    let mut written = stage.write(writer, &key, "v2");
    for _ in 0..5 {
        if matches!(written, Heard::Done(_)) {
            break;
        }
        stage.pass(1_000);
        written = stage.write(writer, &key, "v3");
    }
    stage.expect(matches!(written, Heard::Done(_)), "a sweep makes room");
    let read = stage.read(reader, &key);
    stage.expect(
        is(&read, "v2") || is(&read, "v3"),
        "what is written is read",
    );
}

/// G51: a member keeps parts of one unfinished write. Those of "left" fill two members, and those
/// of "right" the others; both writers live.
pub(super) fn crowd(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(1)));
    let [first, one, other] = stage.clients([6, 7, 8]);
    stage.write(first, &key, "v1");
    let held = [
        stage.hold(parts_of("left", &members(&[3, 4, 5]))),
        stage.hold(parts_of("right", &members(&[1, 2]))),
    ];
    let writes = [
        stage.begin_write(one, &key, "left"),
        stage.begin_write(other, &key, "right"),
    ];
    stage.pass(300);
    for rule in held {
        stage.release(rule);
    }
    for write in writes {
        stage.wait(write);
    }
    let done = |write: OpId| matches!(stage.world.outcome(write), Heard::Done(_));
    let all = writes.into_iter().all(done);
    stage.expect(
        all,
        "of writers that meet, one goes first, and then the other",
    );
}

/// A value's parts are at three members of five.
pub(super) fn quorum(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    let lost = stage.lose(parts_of("v2", &members(&[4, 5])));
    let write = stage.begin_write(writer, &key, "v2");
    stage.pass(1_000);
    let open = *stage.world.outcome(write) == Heard::Open;
    stage.world.stop(NodeName(1), true);
    stage.world.kill_client(writer);
    stage.world.stop(NodeName(7), true);
    stage.read(reader, &key);
    stage.expect(
        open,
        "what is at a majority, and no quorum, is not acknowledged",
    );
    stage.world.start(NodeName(1));
    stage.world.start(NodeName(7));
    stage.discard(lost);
}

/// F8c: a member's memory has changed a byte of what it answers with; nothing but the part's own
/// sum tells.
pub(super) fn changed_bytes(stage: &mut Stage) {
    let [writer, reader] = stage.clients([4, 5]);
    let key = stage.register();
    stage.write(writer, &key, "v1");
    stage.world.lie(A, |mut parcel| {
        if let Parcel::Peer { message, .. } = &mut parcel
            && let Message::Register(Register::Answer { answer, .. }) = message
            && let Answer::Cells { versions, .. } = answer
        {
            for version in versions {
                if let Content::Value(part) = &mut version.content {
                    let mut bytes = part.bytes.to_vec();
                    bytes[0] ^= 1;
                    part.bytes = bytes.into();
                }
            }
        }
        vec![parcel]
    });
    let without_c = stage.lose(reads_by(NodeName(5), &[C]));
    let read = stage.begin_read(reader, &key);
    stage.pass(1_200);
    stage.discard(without_c);
    let read = stage.wait(read);
    stage.expect(is(&read, "v1"), "the others' copies suffice");
    stage.world.honest(A);
}

/// F8h: a client's machine goes on from an old image of its memory: with its session's name, and
/// its counter of requests. So its next write has the name of an earlier one.
pub(super) fn name_twice(stage: &mut Stage) {
    let key = stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)));
    let [writer, reader] = stage.clients([6, 7]);
    let client = writer.0 as usize;
    let session = stage.world.clients[client].session().id();
    stage.write(writer, &key, "v1");
    stage.world.kill_client(writer);
    stage.world.clients[client].restart(session);
    // What a node remembers of a request is not what keeps values apart.
    stage.world.stop(NodeName(6), true);
    stage.world.start(NodeName(6));
    stage.pass(2_000);
    let again = stage.write(writer, &key, "v2");
    stage.expect(!matches!(again, Heard::Done(_)), "a tag names one value");
    stage.read(reader, &key);
}
