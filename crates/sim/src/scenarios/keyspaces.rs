//! Keyspaces that are deleted, or changed, under those who use them (G59, G60); the access policy
//! (G75).

use super::Scenario;
use super::stage::{A, B, C, Stage, store_of, value};
use crate::catalogue;
use crate::history::{Heard, OpId};
use crate::nemesis;
use crate::network::{ClientId, Parcel};
use crate::random;
use crate::world::World;
use bytes::Bytes;
use fermata_protocol::base::{KeyId, Keyspace, KeyspaceId, NodeName, Purpose, StoragePolicy};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, GroupCommand};
use fermata_protocol::request::{Code, Mode};
use fermata_protocol::{Message, coordinator};

/// All of this room.
pub(super) const LIST: &[Scenario] = &[
    Scenario {
        name: "g59-deleted-keyspace",
        about: "a keyspace is deleted under a holder, a waiter, a late put and a node that is down",
        play: deleted,
    },
    Scenario {
        name: "g59-made-again",
        about: "a node comes back with a keyspace that was deleted and made again under its name",
        play: made_again,
    },
    Scenario {
        name: "g60-changed-terms",
        about: "a keyspace's longest section becomes shorter under a section",
        play: changed,
    },
    Scenario {
        name: "g75-two-administrators",
        about: "two change the access policy that both have read, at once and across primaries",
        play: two_administrators,
    },
    Scenario {
        name: "g75-late-keeper",
        about: "who has led is asked for the access policy, which has changed without it",
        play: late_keeper,
    },
];

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
fn deleted(stage: &mut Stage) {
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
fn made_again(stage: &mut Stage) {
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
fn changed(stage: &mut Stage) {
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

/// The next policy, by whoever has read that of change `after`.
fn replace(stage: &mut Stage, client: ClientId, after: u64) -> OpId {
    let policy = Bytes::from(format!("after {after}"));
    stage.call(client, Call::ChangeAccess { after, policy })
}

/// The change that the policy is of.
fn access(stage: &mut Stage, client: ClientId) -> Option<u64> {
    let read = stage.call(client, Call::Access);
    let heard = stage.wait(read);
    let version = match heard {
        Heard::Access(version) => Some(version),
        _ => None,
    };
    stage.expect(version.is_some(), "the access policy can be read");
    version
}

fn is_change(message: &Message) -> bool {
    let Message::Coordinator(coordinator::Message::Propose { command, .. }) = message else {
        return false;
    };
    matches!(command.body, Body::Group(GroupCommand::ChangeAccess { .. }))
}

/// Two change the policy that both have read: at once, and so that the second one's change waits at
/// a primary that is deposed. Each time one is told that the other was before it.
fn two_administrators(stage: &mut Stage) {
    let [first, second] = stage.clients([4, 5]);
    let Some(version) = access(stage, first) else {
        return;
    };
    let both = [first, second].map(|client| replace(stage, client, version));
    let heard = both.map(|op| stage.wait(op));
    let done = |heard: &Heard| matches!(heard, Heard::Done(_));
    let busy = |heard: &Heard| *heard == Heard::Failed(Code::Conflict);
    stage.expect(
        heard.iter().any(done) && heard.iter().any(busy),
        "one of two changes at once takes effect, and the other changes nothing",
    );
    let Some(version) = access(stage, second) else {
        return;
    };
    let late = stage.hold(|parcel| match parcel {
        Parcel::Peer { from, message, .. } => from.name == NodeName(5) && is_change(message),
        _ => false,
    });
    let change = replace(stage, second, version);
    stage.until(|w| w.network.held(late) > 0);
    stage.isolate(A);
    let sooner = replace(stage, first, version);
    let sooner = stage.wait(sooner);
    stage.expect(done(&sooner), "a change takes effect beside a node cut off");
    stage.mend();
    stage.release(late);
    let change = stage.wait(change);
    stage.expect(busy(&change), "a change that comes late changes nothing");
    access(stage, second);
}

/// A, which has led, is cut off while the policy changes: it is asked, and cannot tell.
fn late_keeper(stage: &mut Stage) {
    let [first, cut_off] = stage.clients([4, 1]);
    let Some(version) = access(stage, cut_off) else {
        return;
    };
    stage.isolate(A);
    let change = replace(stage, first, version);
    let change = stage.wait(change);
    stage.expect(
        matches!(change, Heard::Done(_)),
        "a change takes effect beside a node cut off",
    );
    stage.pass(100);
    let read = stage.call(cut_off, Call::Access);
    stage.pass(20_000);
    stage.mend();
    let read = stage.wait(read);
    stage.expect(
        matches!(read, Heard::Access(now) if now > version),
        "who was cut off learns of the change",
    );
}
