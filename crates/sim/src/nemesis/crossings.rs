//! Macro-steps that cross two rules: each alone is well tried, and what fails is the second one
//! while the first is under way.

use super::faults::{cut, down, isolate, living, lose_for, present_view, write};
use crate::dice::Dice;
use crate::history::{Heard, OpId, Section, SectionIx};
use crate::network::{ClientId, End, Parcel, RuleId};
use crate::workload::segment_of;
use crate::world::World;
use fermata_protocol::base::{KeyId, Keyspace, NodeName};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, Command, LockCommand};
use fermata_protocol::request::Mode;
use fermata_protocol::{Message, paxos, register};

/// The lease of a section of a crossing, microseconds: its client may be silent for longer.
const LEASE: u64 = 2_000_000;

/// Two rules, one beside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// A section is resumed while the primary of its segment changes.
    ResumeAndPrimary,
    /// A section is resumed while its client leaves.
    ResumeAndLeave,
    /// A primary states its leases and hands over; its successor dies, perhaps before it has taken
    /// them.
    TableAndCrash,
    /// A key is deleted while what was stored before is still on its way to a member.
    DeleteAndSpread,
    /// A primary whose window is full is outbid, and outbids, while the client of a section is
    /// silent for longer than its lease, and comes back.
    OutbidAndSilence,
    /// Readers come behind a client that has died, and the word that their synch is complete is on
    /// its way through the log when the primary goes.
    ReadersAndNote,
    /// A member lags behind much that is written, and comes back as the primary dies or hands over.
    HandOverAndLag,
}

/// All of them.
pub(super) const ALL: &[Crossing] = &[
    Crossing::ResumeAndPrimary,
    Crossing::ResumeAndLeave,
    Crossing::TableAndCrash,
    Crossing::DeleteAndSpread,
    Crossing::OutbidAndSilence,
    Crossing::ReadersAndNote,
    Crossing::HandOverAndLag,
];

/// Makes it happen, where there is something to make it happen with.
pub(super) fn strike(world: &mut World, crossing: Crossing, dice: &mut Dice) {
    world.note(|| format!("! {crossing:?}"));
    match crossing {
        Crossing::ResumeAndPrimary => resume(world, dice, false),
        Crossing::ResumeAndLeave => resume(world, dice, true),
        Crossing::TableAndCrash => table_and_crash(world, dice),
        Crossing::DeleteAndSpread => delete_and_spread(world, dice),
        Crossing::OutbidAndSilence => outbid_and_silence(world, dice),
        Crossing::ReadersAndNote => readers_and_note(world, dice),
        Crossing::HandOverAndLag => hand_over_and_lag(world, dice),
    }
}

/// One of the last sections that its client is still in.
fn open_section(world: &World, dice: &mut Dice) -> Option<Section> {
    let last = world.history.sections.iter().rev().take(8);
    let open: Vec<&Section> = last.filter(|section| section.over.is_none()).collect();
    dice.pick(&open).copied().cloned()
}

/// Somebody who believes the client of an open section dead resumes it. Within a few round trips
/// its client leaves, or the primary changes.
fn resume(world: &mut World, dice: &mut Dice, leaves: bool) {
    let heir = dice.pick(&living(world)).copied();
    let (Some(section), Some(heir)) = (open_section(world, dice), heir) else {
        return;
    };
    let (at, stays) = (world.now + dice.below(300_000), dice.below(4_000_000));
    let beside = dice.draw();
    let (held, of) = (section.held.clone(), section.session);
    world.at(at, move |w| {
        if w.clients[heir.0 as usize].alive {
            let resumed = w.call(heir, Call::Resume { held, of });
            w.at(w.now + stays, move |w| leave_entered(w, heir, resumed));
        }
    });
    let at = world.now + dice.below(300_000);
    world.at(at, move |w| {
        let mut dice = Dice::new(beside);
        if leaves {
            leave(w, &section);
        } else if let Some(primary) = primary_of(w, &section.held[0].key) {
            change(w, primary, &mut dice);
        }
    });
}

/// The client of a section leaves it, if it is still in it.
fn leave(world: &mut World, section: &Section) {
    let mut known = world.history.sections.iter();
    let same = |s: &Section| (s.session, &s.held) == (section.session, &section.held);
    if let Some(index) = known.position(same) {
        leave_one(world, section.client, SectionIx(index));
    }
}

/// A client leaves what it has entered by an operation, as soon as that has ended.
fn leave_entered(world: &mut World, client: ClientId, entered: OpId) {
    once_entered(world, entered, move |w, section| {
        leave_one(w, client, section)
    });
}

/// Does something as soon as an operation has entered a section; nothing where it fails.
fn once_entered(
    world: &mut World,
    entered: OpId,
    then: impl FnOnce(&mut World, SectionIx) + 'static,
) {
    let op = &world.history.ops[entered.0];
    match (&op.outcome, op.section) {
        (Heard::Open, _) => world.at(world.now + 100_000, move |w| {
            once_entered(w, entered, then);
        }),
        (_, Some(section)) => then(world, section),
        _ => {}
    }
}

/// What a client of a crossing asks for, to be in a section as long as it takes.
fn enter(key: &KeyId, mode: Mode) -> Call {
    Call::Enter {
        keys: vec![key.clone()],
        mode,
        wait: 20_000_000,
        lease: Some(LEASE),
    }
}

/// A key that nobody uses but who crosses two rules: what that leaves, stays.
fn own_key(dice: &mut Dice) -> KeyId {
    KeyId {
        keyspace: Keyspace::SECTIONS,
        key: format!("x{}", dice.below(1_000)).into(),
    }
}

fn leave_one(world: &mut World, client: ClientId, section: SectionIx) {
    let of = &world.clients[client.0 as usize];
    if let Some(section) = of.name_of(section).filter(|_| of.alive) {
        let wait = true;
        world.call(client, Call::Leave { section, wait });
    }
}

/// A primary dies, or hands over and then stops.
fn change(world: &mut World, primary: NodeName, dice: &mut Dice) {
    let duration = dice.between(500_000, 4_000_000);
    if dice.chance(50) {
        return down(world, primary, true, duration);
    }
    world.retire(primary);
    let stops = world.now + dice.between(50_000, 1_000_000);
    world.at(stops, move |w| down(w, primary, false, duration));
}

fn table_and_crash(world: &mut World, dice: &mut Dice) {
    let Some(key) = dice.pick(&world.sections).cloned() else {
        return;
    };
    let Some(first) = primary_of(world, &key) else {
        return;
    };
    world.retire(first);
    let (pause, lasts) = (dice.below(800_000), dice.between(500_000, 4_000_000));
    world.at(world.now + dice.between(500_000, 2_000_000), move |w| {
        down(w, first, false, lasts);
    });
    let (polled, until) = (20_000, world.now + 3_000_000);
    await_successor(world, (first, key), (polled, until), move |w, next| {
        w.at(w.now + pause, move |w| down(w, next, true, lasts));
    });
}

/// Does something to whoever leads a key's segment next, as soon as it does.
fn await_successor(
    world: &mut World,
    (first, key): (NodeName, KeyId),
    (pause, until): (u64, u64),
    then: impl FnOnce(&mut World, NodeName) + 'static,
) {
    world.at(world.now + pause, move |w| match primary_of(w, &key) {
        Some(next) if next != first => then(w, next),
        _ if w.now < until => await_successor(w, (first, key), (pause, until), then),
        _ => {}
    });
}

/// What one writer stores is late at one member, by as much as upkeep needs to remove the key.
fn delete_and_spread(world: &mut World, dice: &mut Dice) {
    let keys = match dice.chance(50) {
        true => &world.registers,
        false => &world.sections,
    };
    let all: Vec<NodeName> = world.machines.keys().copied().collect();
    let (Some(key), Some(client), Some(member)) = (
        dice.pick(keys).cloned(),
        dice.pick(&living(world)).copied(),
        dice.pick(&all).copied(),
    ) else {
        return;
    };
    let about = key.clone();
    let late = world.network.hold(move |parcel| {
        let Parcel::Peer { to, message, .. } = parcel else {
            return false;
        };
        matches!(message, Message::Register(register::Message::Ask { key, ask, .. })
            if *key == about && matches!(ask, register::Ask::Store { .. }))
            && *to == member
    });
    write(world, client, key.clone(), dice);
    world.at(world.now + dice.between(200_000, 1_500_000), move |w| {
        delete(w, client, key);
    });
    let lasts = dice.between(1_000_000, 20_000_000);
    world.at(world.now + lasts, move |w| w.release(late));
}

fn delete(world: &mut World, client: ClientId, key: KeyId) {
    if world.clients[client.0 as usize].alive {
        world.call(client, Call::Write { key, value: None });
    }
}

/// The client of a section is silent for longer than its lease while a queue fills behind slots
/// that nobody answers: the release waits in it. Then the client is back, and the primary no more
/// one: it outbids what another member has been promised by one that answers nobody, or another one
/// leads for a while.
fn outbid_and_silence(world: &mut World, dice: &mut Dice) {
    let Some(client) = dice.pick(&living(world)).copied() else {
        return;
    };
    let (key, stays) = (own_key(dice), dice.between(8_000_000, 20_000_000));
    let entered = world.call(client, enter(&key, Mode::Exclusive));
    let mut dice = dice.fork();
    once_entered(world, entered, move |w, section| {
        silence(w, (client, key), &mut dice);
        w.at(w.now + stays, move |w| leave_one(w, client, section));
    });
}

fn silence(world: &mut World, (client, key): (ClientId, KeyId), dice: &mut Dice) {
    let Some(primary) = primary_of(world, &key) else {
        return;
    };
    let nodes: Vec<NodeName> = world.machines.keys().copied().collect();
    let unheard = LEASE + dice.between(300_000, 2_000_000);
    let end = End::Client(client);
    let both = |name: &NodeName| [(End::Node(*name), end), (end, End::Node(*name))];
    cut(world, nodes.iter().flat_map(both).collect(), unheard);
    let outbids = dice.chance(50);
    let deaf = unheard + dice.below(1_500_000);
    lose_for(world, deaf, move |parcel| {
        let Parcel::Peer { from, message, .. } = parcel else {
            return false;
        };
        let stays = |m: &paxos::Message| match m {
            paxos::Message::Accept { .. } => from.name == primary,
            paxos::Message::Promise { .. } => outbids && from.name != primary,
            _ => false,
        };
        matches!(message, Message::Paxos { message, .. } if stays(message))
    });
    let mut writes = dice.fork();
    let about = key.clone();
    world.at(world.now + dice.below(LEASE), move |w| {
        for other in living(w).into_iter().filter(|other| *other != client) {
            (0..3).for_each(|_| write(w, other, about.clone(), &mut writes));
        }
    });
    let (from, lasts) = (
        dice.between(LEASE, unheard),
        dice.between(1_500_000, 3_000_000),
    );
    let others = nodes.into_iter().filter(|name| *name != primary);
    let ways = others.map(|name| (End::Node(primary), End::Node(name)));
    let ways = ways.collect();
    world.at(world.now + from, move |w| cut(w, ways, lasts));
    let mut change_dice = dice.fork();
    let goes = from + lasts + dice.between(200_000, 2_000_000);
    world.at(world.now + goes, move |w| {
        let next = primary_of(w, &key).filter(|next| *next != primary);
        if let Some(next) = next {
            change(w, next, &mut change_dice);
        }
    });
}

/// The client of an exclusive section dies with a put under way. Readers come. From the moment at
/// which the word of their synch is proposed, that word is late, and what is stored of the key
/// stays at its primary, until it dies soon, or for as long as an operation lives.
fn readers_and_note(world: &mut World, dice: &mut Dice) {
    let key = own_key(dice);
    let Some(writer) = dice.pick(&living(world)).copied() else {
        return;
    };
    let entered = world.call(writer, enter(&key, Mode::Exclusive));
    let mut dice = dice.fork();
    once_entered(world, entered, move |w, section| {
        let of = &w.clients[writer.0 as usize];
        let value = Some(format!("n{}", w.history.ops.len()).into());
        if let Some(section) = of.name_of(section).filter(|_| of.alive) {
            let key = key.clone();
            w.call(
                writer,
                Call::CriticalPut {
                    section,
                    key,
                    value,
                },
            );
        }
        let (dies, back) = (dice.below(300_000), dice.between(4_000_000, 8_000_000));
        w.at(w.now + dies, move |w| w.kill_client(writer));
        w.at(w.now + back, move |w| w.restart_client(writer));
        let all = living(w).into_iter().filter(|reader| *reader != writer);
        for reader in dice.subset(&all.collect::<Vec<_>>(), 3) {
            let (comes, stays) = (dice.below(1_000_000), dice.below(1_000_000));
            let key = key.clone();
            w.at(w.now + comes, move |w| {
                if w.clients[reader.0 as usize].alive {
                    let entered = w.call(reader, enter(&key, Mode::Shared));
                    w.at(w.now + stays, move |w| leave_entered(w, reader, entered));
                }
            });
        }
        hold_note(w, key, &mut dice);
    });
}

fn hold_note(world: &mut World, key: KeyId, dice: &mut Dice) {
    let Some(primary) = primary_of(world, &key) else {
        return;
    };
    let note = world.network.hold(move |parcel| {
        let Parcel::Peer { from, message, .. } = parcel else {
            return false;
        };
        let Message::Paxos { message, .. } = message else {
            return false;
        };
        let noted = |c: &Command| matches!(&c.body, Body::Lock(LockCommand::SynchDone { .. }));
        from.name == primary
            && matches!(message, paxos::Message::Accept { entry, .. }
                if matches!(entry, paxos::Entry::Commands { commands, .. }
                    if commands.iter().any(noted)))
    });
    let late = dice.between(50_000, 1_000_000);
    let dies = dice.chance(50).then(|| dice.between(200_000, 2_000_000));
    let lasts = world.setup.timing.request + dice.between(500_000, 3_000_000);
    let until = world.now + LEASE + 6_000_000;
    await_note(world, (note, until), move |w| {
        lose_for(w, lasts, move |parcel| {
            let Parcel::Peer { to, message, .. } = parcel else {
                return false;
            };
            matches!(message, Message::Register(register::Message::Ask { key: of, ask, .. })
                if *of == key && matches!(ask, register::Ask::Store { .. }))
                && *to != primary
        });
        w.at(w.now + late, move |w| w.release(note));
        if let Some(dies) = dies {
            w.at(w.now + dies, move |w| down(w, primary, false, lasts));
        }
    });
}

/// Does something as soon as a rule holds a parcel; ends the rule where that does not come.
fn await_note(
    world: &mut World,
    (note, until): (RuleId, u64),
    then: impl FnOnce(&mut World) + 'static,
) {
    world.at(world.now + 5_000, move |w| match w.network.held(note) {
        0 if w.now < until => await_note(w, (note, until), then),
        0 => w.discard(note),
        _ => then(w),
    });
}

/// A member is cut off while all write keys of its segment; as it comes back, what it fetches may
/// be lost for a while, and the primary may go.
fn hand_over_and_lag(world: &mut World, dice: &mut Dice) {
    let Some(key) = dice.pick(&world.sections).cloned() else {
        return;
    };
    let segment = segment_of(&key, world.setup.cluster.segment_bits);
    let groups = &world.setup.cluster.groups;
    let Some(group) = groups.iter().find(|g| g.owns(segment)).map(|g| g.id) else {
        return;
    };
    let members: Vec<NodeName> = present_view(world, group).nodes().collect();
    let Some(member) = dice.pick(&members).copied() else {
        return;
    };
    let (lasts, rounds) = (dice.between(2_000_000, 8_000_000), dice.between(1, 3));
    isolate(world, member, lasts);
    for round in 0..rounds {
        let seed = dice.draw();
        world.at(world.now + round * lasts / rounds, move |w| {
            burst(w, &mut Dice::new(seed));
        });
    }
    if dice.chance(50) {
        // It hears who leads, and nothing of what it missed.
        let deaf = lasts + dice.between(0, 4_000_000);
        lose_for(world, deaf, move |parcel| {
            let Parcel::Peer { from, message, .. } = parcel else {
                return false;
            };
            let fetch = |m: &paxos::Message| matches!(m, paxos::Message::Fetch { .. });
            from.name == member
                && matches!(message, Message::Paxos { message, .. } if fetch(message))
        });
    }
    let (goes, seed) = (dice.chance(70), dice.draw());
    let soon = world.now + lasts - dice.below(lasts / 2) + dice.below(1_000_000);
    world.at(soon, move |w| {
        let primary = primary_of(w, &key).filter(|name| goes && *name != member);
        if let Some(primary) = primary {
            change(w, primary, &mut Dice::new(seed));
        }
    });
}

/// Every client writes keys of sections, several times at once: each write is an entry into a queue
/// and a leave.
pub(super) fn burst(world: &mut World, dice: &mut Dice) {
    for client in living(world) {
        for _ in 0..dice.between(1, 4) {
            if let Some(key) = dice.pick(&world.sections).cloned() {
                write(world, client, key, dice);
            }
        }
    }
}

/// Who leads the segment of a key, by its own word.
pub(super) fn primary_of(world: &World, key: &KeyId) -> Option<NodeName> {
    let segment = segment_of(key, world.setup.cluster.segment_bits);
    let mut all = world.machines.values();
    let leads = all.find(|machine| {
        let node = machine.node();
        node.is_some_and(|node| node.here().led().any(|led| led == segment))
    });
    leads.map(|machine| machine.name())
}
