//! What members do for their registers while nobody asks (F8 f, g): each schedule ends, without a
//! client's help, in storage at rest.
//!
//! Walks are 2 s apart here, and an operation lives for 4 s.

use super::coded::{dead_write, rot, terms};
use super::stage::{A, B, C, Stage, answers, long, spread_to, store_of};
use crate::checkers::at_rest;
use crate::checkers::places::Places;
use crate::checkers::tags::{Seen, head};
use crate::history::{Heard, SectionIx};
use crate::network::{ClientId, Parcel};
use crate::random;
use fermata_protocol::Message;
use fermata_protocol::base::{Ballot, Epoch, KeyId, NodeName, Purpose, StoragePolicy, Tag};
use fermata_protocol::client::Call;
use fermata_protocol::io::Memory as _;
use fermata_protocol::register::{Ask, Message as Register, StoreId};
use fermata_protocol::request::Mode;

/// Members of the coded register's group; one may fail.
const MEMBERS: u32 = 5;

/// Begins again where upkeep is quick.
pub(super) fn tended(stage: &mut Stage) {
    stage.again(|setup| {
        setup.timing.request = 4_000_000;
        setup.timing.upkeep = 2_000_000;
    });
}

/// The same, with a coded register.
fn tended_register(stage: &mut Stage) -> KeyId {
    tended(stage);
    stage.coded(MEMBERS, StoragePolicy::Coded(terms(3)))
}

/// What a member holds of a key.
fn held(stage: &Stage, name: NodeName, key: &KeyId) -> Option<Seen> {
    let memory = stage.world.machines[&name].memory()?;
    let records = memory.scan(b"r", b"s", usize::MAX).into_iter();
    let mut heads = records.filter_map(|(record, value)| head(&record, &value.ok()?));
    heads.find(|head| head.key == *key).map(|head| head.seen)
}

/// Whether a member holds a value of the key, or a part of one.
pub(super) fn has(stage: &Stage, name: NodeName, key: &KeyId) -> bool {
    let seen = held(stage, name, key);
    seen.is_some_and(|seen| seen.versions.iter().any(|v| v.length.is_some()))
}

/// Repairs of a value on their way to a node.
fn repairs_to(to: NodeName) -> impl Fn(&Parcel) -> bool + 'static {
    move |parcel| {
        matches!(parcel, Parcel::Peer {
            to: target, message: Message::Register(Register::Ask { ask, .. }), .. }
            if matches!(ask, Ask::Repair { .. }) && *target == to)
    }
}

/// Enters, deletes and leaves.
pub(super) fn delete(stage: &mut Stage, client: ClientId) {
    let Some(section) = stage.enter(client) else {
        return;
    };
    let key = stage.key.clone();
    let name = stage.world.clients[client.0 as usize].name_of(section);
    let Some(section_name) = name else { return };
    let put = stage.call(
        client,
        Call::CriticalPut {
            section: section_name,
            key,
            value: None,
        },
    );
    stage.wait(put);
    stage.leave(client, section);
}

/// Enters: what is found.
fn found(stage: &mut Stage, client: ClientId) -> Option<SectionIx> {
    let section = stage.enter(client)?;
    stage.get(client, section);
    stage.leave(client, section);
    Some(section)
}

/// A part of a register's value, and a copy of a section's, while member 3 is down.
pub(super) fn missed(stage: &mut Stage) {
    let key = tended_register(stage);
    let [writer, holder] = stage.clients([7, 8]);
    stage.world.stop(C, true);
    stage.write(writer, &key, "v1");
    stage.section(holder, "w");
    stage.world.start(C);
    random::rest(&mut stage.world);
    let section_key = stage.key.clone();
    let both = has(stage, C, &key) && has(stage, C, &section_key);
    stage.expect(both, "the member has what it missed");
}

/// A part rots where nobody reads it: the walk finds it, and rebuilds it from the others'.
pub(super) fn damaged_part(stage: &mut Stage) {
    let key = tended_register(stage);
    let [writer] = stage.clients([7]);
    stage.write(writer, &key, "v1");
    random::rest(&mut stage.world);
    rot(stage, C, &key, b"v1.");
    let world = &stage.world;
    let places = Places::of(&world.setup.cluster, &world.machines);
    let left = at_rest::unrest(&world.machines, &places, &world.history.catalogue);
    stage.expect(!left.is_empty(), "the damage is seen");
    random::rest(&mut stage.world);
}

/// Of three dead writers one has left enough parts to be completed; the last one is a fragment.
pub(super) fn dead_writers(stage: &mut Stage) {
    let key = tended_register(stage);
    let [writer, reader] = stage.clients([7, 8]);
    stage.write(writer, &key, "v1");
    dead_write(stage, 6, &key, "d1", &[1, 2]);
    dead_write(stage, 6, &key, "d2", &[1, 3, 4]);
    dead_write(stage, 6, &key, "d3", &[5]);
    random::rest(&mut stage.world);
    let read = stage.read(reader, &key);
    let one = ["v1", "d1", "d2", "d3"].map(|text| Heard::Value(long(text)));
    stage.expect(one.contains(&read), "one of the writes is what remains");
}

/// The eventual put is at one member, and what spreads it is lost.
pub(super) fn eventual(stage: &mut Stage) {
    tended(stage);
    let [writer] = stage.clients([4]);
    let lost = stage.lose(spread_to(&[A, B, C]));
    stage.eventual_put(writer, "e");
    let key = stage.key.clone();
    let with = |stage: &Stage| {
        let all = [A, B, C].into_iter();
        let seen = all.filter_map(|name| held(stage, name, &key));
        seen.filter(|seen| seen.eventual_live).count()
    };
    let before = with(stage);
    random::rest(&mut stage.world);
    stage.discard(lost);
    let after = with(stage);
    stage.expect((before, after) == (1, 3), "one had it, and all have it now");
}

/// A value, then a delete, then a floor above it: nothing is left, and a section finds nothing.
pub(super) fn deleted_key(stage: &mut Stage) {
    tended(stage);
    let [client] = stage.clients([4]);
    stage.section(client, "v1");
    delete(stage, client);
    random::rest(&mut stage.world);
    let key = stage.key.clone();
    let empty = [A, B, C]
        .into_iter()
        .all(|name| held(stage, name, &key).is_none());
    stage.expect(empty, "no member has a record of the key");
    let section = found(stage, client);
    let nothing = section.is_some_and(|section| stage.found(section).is_none());
    stage.expect(nothing, "a deleted key has no value");
    stage.section(client, "v2");
    stage.section(client, "v3");
}

/// G54: the same beside a section of another key of the segment, which begins later and goes on.
pub(super) fn deleted_beside_a_section(stage: &mut Stage) {
    tended(stage);
    let [client, holder] = stage.clients([4, 5]);
    stage.section(client, "v1");
    delete(stage, client);
    let beside = stage.key_beside("x");
    let enter = stage.enter_keys(holder, vec![beside], Mode::Exclusive);
    let section = stage.entered(enter);
    random::rest(&mut stage.world);
    if let Some(section) = section {
        stage.leave(holder, section);
    }
}

/// The same of a key in the segment that B leads, while A, the first of the seats, sees nothing
/// until the floor has risen. For A it has to rise once more; B sees no reason why it should.
pub(super) fn floor_elsewhere(stage: &mut Stage) {
    tended(stage);
    let [client] = stage.clients([4]);
    stage.key = stage.other_key();
    stage.section(client, "v1");
    let unheard = stage.lose(answers(B, A));
    delete(stage, client);
    let (segment, name) = (stage.segment(), B);
    let risen = stage.until(|w| {
        let node = w.machines[&name].node();
        let room = node.and_then(|node| node.here().segments.get(&segment));
        room.is_some_and(|room| room.state.floor().0 > 0)
    });
    stage.expect(risen, "the floor rises for a key that is deleted");
    stage.pass(8_000);
    stage.discard(unheard);
    random::rest(&mut stage.world);
}

/// Where several versions are kept at rest, a deleted key leaves none of them.
pub(super) fn deleted_of_several(stage: &mut Stage) {
    tended(stage);
    let storage = StoragePolicy::Ares(terms(1));
    stage.key = stage.keyspace(MEMBERS, Purpose::Sections, storage);
    let [client] = stage.clients([7]);
    stage.section(client, "v1");
    delete(stage, client);
    random::rest(&mut stage.world);
}

/// C goes down with a value, and the key is deleted.
fn deleted_while_away(stage: &mut Stage) -> ClientId {
    tended(stage);
    let [client] = stage.clients([4]);
    stage.section(client, "v1");
    stage.pass(1_000);
    stage.world.stop(C, true);
    delete(stage, client);
    client
}

/// C is down with a value, while the key is deleted. It comes back much later, and is needed.
pub(super) fn absent_member(stage: &mut Stage) {
    let client = deleted_while_away(stage);
    stage.pass(40_000);
    stage.world.start(C);
    stage.cut(B, &[A, C, NodeName(4)]);
    found(stage, client);
    stage.mend();
    random::rest(&mut stage.world);
}

/// G22: the same, and C has the fence of a synch that was given up, which hides that it lacks the
/// delete: what lies below it can be given to nobody who has it.
pub(super) fn fenced_member(stage: &mut Stage) {
    let client = deleted_while_away(stage);
    let Some(section) = found(stage, client) else {
        return;
    };
    let lock_ref = stage.world.history.sections[section.0].held[0].lock_ref;
    let fence = Tag::synch(lock_ref, 0, Epoch::FIRST, Ballot::default(), 1);
    stage.world.start(C);
    stage.pass(200);
    fence_off(stage, C, fence);
    stage.pass(100);
    let key = stage.key.clone();
    let fenced = held(stage, C, &key).is_some_and(|seen| seen.fence == fence);
    stage.expect(fenced, "C has a fence above what it holds");
    stage.pass(40_000);
    stage.cut(B, &[A, C, NodeName(4)]);
    found(stage, client);
    stage.mend();
}

/// The fenced read of the key by a synch of A's that nothing more comes of.
fn fence_off(stage: &mut Stage, to: NodeName, fence: Tag) {
    let ask = Ask::Read {
        holder: None,
        entering: true,
        fence: Some(fence),
        eventual: true,
        values: true,
    };
    let (epoch, segment) = (Epoch::FIRST, stage.segment());
    let message = Register::Ask {
        call: 1,
        store: StoreId { segment, epoch },
        key: stage.key.clone(),
        ask,
    };
    let from = stage.world.machines[&A].id();
    stage.world.inject(Parcel::Peer {
        from,
        to,
        message: Message::Register(message),
    });
}

/// C lacks v1, and the repair that brings it is on its way for so long that the key is deleted
/// meanwhile, and every trace of it removed.
pub(super) fn late_repair(stage: &mut Stage) {
    tended(stage);
    let [client] = stage.clients([4]);
    let missed = stage.lose(store_of("v1", &[C]));
    stage.section(client, "v1");
    let repair = stage.hold(repairs_to(C));
    let sent = stage.until(|w| w.network.held(repair) > 0);
    stage.expect(sent, "what C lacks is sent to it");
    stage.discard(missed);
    delete(stage, client);
    random::rest(&mut stage.world);
    stage.release(repair);
    stage.pass(500);
    stage.cut(B, &[A, C, NodeName(4)]);
    found(stage, client);
    stage.mend();
}

/// An eventual value is on its way to C for so long that a section adopts it from the others, and
/// deletes it, and every trace of that is removed.
pub(super) fn late_spread(stage: &mut Stage) {
    tended(stage);
    let [client, other] = stage.clients([4, 4]);
    let spread = stage.hold(spread_to(&[C]));
    stage.eventual_put(other, "e");
    stage.pass(500);
    delete(stage, client);
    random::rest(&mut stage.world);
    stage.release(spread);
    stage.pass(500);
    stage.cut(B, &[A, C, NodeName(4)]);
    found(stage, client);
    stage.mend();
}

/// C lacks v1, and before the repair comes a synch has fenced C, but not stored there.
pub(super) fn repair_below_fence(stage: &mut Stage) {
    tended(stage);
    let [first, second] = stage.clients([4, 5]);
    let missed = stage.lose(store_of("v1", &[C]));
    stage.section(first, "v1");
    let repair = stage.hold(repairs_to(C));
    let sent = stage.until(|w| w.network.held(repair) > 0);
    stage.expect(sent, "what C lacks is sent to it");
    let section = stage.enter(second);
    if let Some(section) = section {
        stage.world.kill_client(second);
        stage.gone(section);
    }
    let key = stage.key.clone();
    let fenced = |stage: &Stage| {
        let seen = held(stage, C, &key);
        seen.is_some_and(|seen| seen.fence > seen.tag() && seen.versions.is_empty())
    };
    for _ in 0..100 {
        if fenced(stage) {
            break;
        }
        stage.pass(200);
    }
    let below = fenced(stage);
    stage.expect(below, "C has a fence and no value");
    stage.release(repair);
    stage.pass(500);
    stage.discard(missed);
    random::rest(&mut stage.world);
}
