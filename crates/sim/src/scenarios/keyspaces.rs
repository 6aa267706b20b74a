//! Keyspaces that are deleted, or changed, under those who use them (G59, G60).

use super::stage::{A, B, C, Stage, store_of, value};
use crate::catalogue;
use crate::history::Heard;
use crate::nemesis;
use crate::random;
use crate::world::World;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, NodeName, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::command::GroupCommand;
use fermata_protocol::request::{Code, Mode};

/// Begins again with a keyspace of sections, and members that look after what they store quickly.
fn furnished(stage: &mut Stage) {
    stage.key = stage.keyspace(3, Purpose::Sections, StoragePolicy::Replicated);
}

/// Deletes the keyspace of the key; waits until these nodes know.
fn delete(stage: &mut Stage, nodes: &[NodeName]) {
    let id = stage.key.keyspace;
    catalogue::delete(&mut stage.world, id);
    let known = stage.until(|w| nodes.iter().all(|name| is_dead(w, *name, id)));
    stage.expect(known, "a keyspace can be deleted");
}

fn is_dead(world: &World, name: NodeName, id: KeyspaceId) -> bool {
    let node = world.machines[&name].node();
    node.is_some_and(|node| node.here().catalogue().is_dead(id))
}

fn is_refused(heard: Option<Heard>) -> bool {
    matches!(heard, Some(Heard::Failed(Code::NoSuchKeyspace)))
}

/// A section holds the key, another one waits, a put is late, and C is down. When C is back, and
/// the put arrives, nothing is left anywhere.
pub(super) fn deleted(stage: &mut Stage) {
    furnished(stage);
    let [holder, waiter] = stage.clients([4, 5]);
    stage.section(holder, "v1");
    let Some(section) = stage.enter(holder) else {
        return;
    };
    let late = stage.hold(store_of("v2", &[B]));
    let put = stage.begin_put(holder, section, "v2");
    let muted = stage.mute(holder);
    let waits = stage.begin_enter(waiter, Mode::Exclusive);
    stage.pass(500);
    stage.world.stop(C, true);
    delete(stage, &[A, B, NodeName(4), NodeName(5)]);
    let refused = stage.wait(waits);
    stage.expect(
        is_refused(Some(refused)),
        "who waits is told why it waits in vain",
    );
    stage.release(late);
    stage.pass(500);
    let get = stage.get(holder, section);
    stage.expect(
        get.is_none_or(|get| is_refused(Some(get))),
        "who holds is told",
    );
    if let Some(put) = put {
        stage.wait(put);
    }
    stage.discard(muted);
    // Of a group that does not keep the catalogue, and out of reach of all others.
    let far = NodeName(5);
    stage.world.stop(far, true);
    stage.isolate(far);
    stage.world.start(far);
    let knows = is_dead(&stage.world, far, stage.key.keyspace);
    stage.expect(knows, "a node that starts again knows what was deleted");
    stage.mend();
    stage.world.start(C);
    random::rest(&mut stage.world);
}

/// C is down when the keyspace is deleted, and made again under its name. It comes back with what
/// it had, and the new one begins empty.
pub(super) fn made_again(stage: &mut Stage) {
    furnished(stage);
    let [writer, reader] = stage.clients([4, 3]);
    stage.section(writer, "v1");
    stage.eventual_put(writer, "v2");
    stage.pass(1_000);
    stage.world.stop(C, true);
    let before = stage.key.clone();
    delete(stage, &[A, B]);
    let [template, _] = Keyspace::built_in();
    let again = Keyspace {
        name: format!("ks{}", before.keyspace.0),
        ..template
    };
    let name = again.name.clone();
    nemesis::propose(
        &mut stage.world,
        0xa9a1,
        GroupCommand::CreateKeyspace(again),
    );
    let named = |w: &World, node: NodeName| {
        let node = w.machines[&node].node()?;
        let mut all = node.here().catalogue().all().iter();
        all.find(|known| known.name == name).cloned()
    };
    let made = stage.until(|w| named(w, A).is_some() && named(w, B).is_some());
    stage.expect(made, "a keyspace can be made again");
    stage.world.start(C);
    stage.until(|w| named(w, C).is_some() && named(w, C) == named(w, A));
    if let Some(made) = named(&stage.world, C) {
        let keyspace = made.id;
        let key = KeyId { keyspace, ..before };
        stage.world.history.catalogue.learn(made);
        let get = stage.call(reader, Call::Get { key });
        let found = stage.wait(get);
        stage.expect(found == Heard::Value(None), "a keyspace begins empty");
    }
    random::rest(&mut stage.world);
}

/// The longest section becomes shorter under a section: it keeps its own, the next one does not.
pub(super) fn changed(stage: &mut Stage) {
    furnished(stage);
    let [holder] = stage.clients([4]);
    let Some(section) = stage.enter(holder) else {
        return;
    };
    let (id, times) = (stage.key.keyspace, (1_000_000, 3_000_000));
    catalogue::change(&mut stage.world, id, times);
    let known = stage.until(|w| {
        let mut nodes = w.machines.values().filter_map(|m| m.node());
        nodes.all(|node| {
            let known = node.here().keyspace(id);
            known.is_some_and(|k| (k.lease, k.section_max) == times)
        })
    });
    stage.expect(known, "a keyspace can be changed");
    stage.pass(12_000);
    let put = stage.put(holder, section, "v1");
    stage.expect(
        matches!(put, Some(Heard::Done(_))),
        "who holds keeps its terms",
    );
    stage.leave(holder, section);
    let Some(section) = stage.enter(holder) else {
        return;
    };
    stage.pass(12_000);
    let put = stage.put(holder, section, "v2");
    stage.expect(
        !matches!(put, Some(Heard::Done(_))),
        "the next one has the new terms",
    );
    stage.expect(
        value("v1") == stage.found(section),
        "and finds what there was",
    );
}
