//! A random schedule of faults, drawn from the seed.

use super::coming;
use super::crossings::{self, Crossing};
use crate::checkers::places::Places;
use crate::clock::IntervalClock;
use crate::dice::Dice;
use crate::history::History;
use crate::machine::Machine;
use crate::network::{ClientId, End, Parcel, Weather};
use crate::workload::padded;
use crate::world::{NEWER, World, rate};
use fermata_protocol::base::{
    Directory, Epoch, GroupId, KeyId, Member, NodeId, NodeName, SegmentId, SessionId, SiteId,
    Split, View,
};
use fermata_protocol::client::Call;
use fermata_protocol::command::{Body, Command, GroupCommand, LedgerCommand};
use fermata_protocol::records::Puts;
use fermata_protocol::settings::Setting;
use fermata_protocol::{Message, coordinator, lock, register};

/// Between one node's getting a newer program and the next one's, microseconds.
const UPGRADE_EVERY: u64 = 700_000;

/// Nodes that come in one run, at most.
const COMERS_MAX: usize = 3;

/// What may go wrong in one run, drawn once: seeds differ in kind, not only in detail.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Faults are drawn until this true time; then all is healed.
    pub until: u64,
    /// Mean time between faults, microseconds.
    pub pace: u64,
    /// The kinds that this run knows, some more than once.
    pub kinds: Vec<Fault>,
    /// Background weather.
    pub weather: Weather,
    /// Operations in a thousand that a macro-step picks.
    pub per_mille: u64,
    /// Clocks may leave their stated bound: nothing that rests on leases is promised then.
    pub wild_clocks: bool,
    /// Interval clocks are wrong by more than they say: linearizability of registers whose tags are
    /// times is not promised then (F9). All else is: values, tags, progress.
    pub false_intervals: bool,
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node loses power and comes back.
    Crash,
    /// A node stops in an orderly way and comes back.
    Stop,
    /// A process is paused.
    Pause,
    /// A node is cut off from the other nodes, but not from clients: a deposed primary goes on.
    Isolate,
    /// One direction between two nodes is cut.
    OneWay,
    /// A site is cut off.
    SiteCut,
    /// A client is cut off and so looks dead.
    Suspect,
    /// A client dies, and comes back later.
    KillClient,
    /// Somebody ends a section by force.
    Force,
    /// Macro-steps come thick for a while.
    Storm,
    /// A clock drifts or jumps.
    Clock,
    /// The largest minority of one group loses power at once: no fewer than any policy bears.
    CrashFaults,
    /// Writers of a register die with their parts at some members only.
    DyingWriters,
    /// All clients write and read one register at once.
    Crowd,
    /// All clients write keys of sections at once, several times each.
    Burst,
    /// Two rules cross.
    Cross(Crossing),
    /// A disk is slow.
    SlowDisk,
    /// A disk is full.
    FullDisk,
    /// A bit rots, and then the power fails.
    Rot,
    /// A disk is lost.
    Wipe,
    /// Everything loses power.
    Blackout,
    /// A node hands over what it leads, stops, and comes back.
    Retire,
    /// As that, and it has handed everything over when it stops.
    HandOver,
    /// A group goes on under the next epoch, with the same seats; perhaps twice, perhaps while a
    /// member is cut off.
    NextView,
    /// A group goes on with other members: some are added, some go, some are replaced; perhaps
    /// twice in a row, perhaps while a member is cut off.
    NextMembers,
    /// A new node comes, and gets a seat in a group.
    Join,
    /// A node that came leaves for good.
    Leave,
    /// A disk is lost, and a new node comes in the place of that one.
    Replace,
    /// The cluster gets another read lease.
    Settle,
    /// All nodes get a newer version of their program, and the cluster the next format.
    Upgrade,
}

impl Plan {
    /// Draws the kind of run that a seed is.
    pub fn draw(dice: &mut Dice, length: u64) -> Plan {
        use Fault::*;
        let common = [
            Crash,
            Stop,
            Pause,
            Isolate,
            OneWay,
            SiteCut,
            Suspect,
            KillClient,
            Force,
            Force,
            Storm,
            Suspect,
            Clock,
            SlowDisk,
            Retire,
            NextView,
            CrashFaults,
            DyingWriters,
            Crowd,
            DyingWriters,
            Crowd,
        ];
        let rare = [FullDisk, Rot, Wipe, Blackout, NextView, NextView, FullDisk];
        let count = dice.between(2, 6) as usize;
        let mut kinds = dice.subset(&common, count);
        if dice.chance(35) {
            kinds.push(Burst);
        }
        if dice.chance(50) {
            kinds.extend(dice.pick(crossings::ALL).copied().map(Cross));
        }
        if dice.chance(40) {
            kinds.extend(dice.pick(&rare).copied());
        }
        if dice.chance(25) {
            kinds.push(FullDisk);
        }
        let weather = Weather {
            loss_ppm: [0, 0, 2_000, 20_000][dice.below(4) as usize],
            twice_ppm: [0, 5_000, 20_000][dice.below(3) as usize],
            late_ppm: [0, 5_000, 30_000][dice.below(3) as usize],
            late_max: 3_000_000,
            jitter_percent: [5, 30, 100][dice.below(3) as usize],
        };
        Plan {
            until: length,
            pace: dice.between(500_000, 3_000_000),
            kinds,
            weather,
            per_mille: [0, 20, 60, 150][dice.below(4) as usize],
            wild_clocks: dice.chance(8),
            false_intervals: dice.chance(8),
        }
    }

    /// Groups change their members as well.
    pub fn move_members(&mut self) {
        self.kinds.extend([Fault::NextMembers; 2]);
        self.kinds
            .extend([Fault::Join, Fault::Leave, Fault::Settle, Fault::Upgrade]);
        for kind in &mut self.kinds {
            if *kind == Fault::Wipe {
                *kind = Fault::Replace;
            }
        }
    }

    /// A run in which primaries change by hand-over alone, and nothing is lost or late.
    pub fn calm(dice: &mut Dice, length: u64) -> Plan {
        use Fault::*;
        let kinds = [HandOver, Force, Burst, KillClient, Crowd];
        let count = dice.between(0, 3) as usize;
        let mut kinds = dice.subset(&kinds, count);
        kinds.push(HandOver);
        Plan {
            until: length,
            pace: dice.between(1_000_000, 3_000_000),
            kinds,
            weather: Weather {
                jitter_percent: [5, 30][dice.below(2) as usize],
                ..Weather::default()
            },
            per_mille: 0,
            wild_clocks: false,
            false_intervals: false,
        }
    }
}

/// Puts the plan's faults into the world's future, and the healing after them.
pub fn schedule(world: &mut World, plan: &Plan) {
    world.network.weather = plan.weather;
    world.fates.per_mille = plan.per_mille;
    let mut at = 2_000_000;
    let mut dice = world.dice.fork();
    let mut wiped = false;
    loop {
        at += dice.below(2 * plan.pace);
        if at >= plan.until {
            break;
        }
        let Some(fault) = dice.pick(&plan.kinds).copied() else {
            break;
        };
        // One lost disk is what three replicas bear for good.
        let loses = matches!(fault, Fault::Rot | Fault::Wipe | Fault::Replace);
        if loses && std::mem::replace(&mut wiped, true) {
            continue;
        }
        let (seed, wild) = (dice.draw(), plan.wild_clocks);
        world.at(at, move |world| strike(world, fault, Dice::new(seed), wild));
    }
    world.at(plan.until, heal);
}

/// Heals everything that can be healed.
pub fn heal(world: &mut World) {
    world.note(|| "! all is healed".to_owned());
    world.network.mend_all();
    for parcel in world.network.release_all() {
        drop(parcel);
    }
    world.network.weather = Weather::default();
    world.fates.end();
    world.free_links();
    let names: Vec<NodeName> = world.machines.keys().copied().collect();
    for name in names {
        let latency = world.setup.flush;
        let machine = world
            .machines
            .get_mut(&name)
            .expect("a machine of this world");
        machine.disk.set_full(false);
        machine.disk.latency = latency;
        if let Some(interval) = &mut machine.clock.interval
            && interval.error.unsigned_abs() > interval.width
        {
            interval.error = 0;
        }
        world.start(name);
    }
    for client in 0..world.clients.len() {
        world.restart_client(ClientId(client as u32));
    }
}

fn strike(world: &mut World, fault: Fault, mut dice: Dice, wild: bool) {
    let names: Vec<NodeName> = world.machines.keys().copied().collect();
    let Some(name) = dice.pick(&names).copied() else {
        return;
    };
    let duration = dice.between(200_000, 6_000_000);
    match fault {
        Fault::Crash => down(world, name, true, duration),
        Fault::Stop => down(world, name, false, duration),
        Fault::Pause => world.pause(name, duration),
        Fault::Isolate => isolate(world, name, duration),
        Fault::OneWay => {
            let Some(other) = dice.pick(&names).copied() else {
                return;
            };
            cut(world, vec![(End::Node(name), End::Node(other))], duration);
        }
        Fault::SiteCut => cut_site(world, dice.below(3) as u16, duration),
        Fault::Suspect | Fault::KillClient => strike_client(world, fault, &mut dice, duration),
        Fault::Force => force(world, &mut dice),
        Fault::CrashFaults => crash_faults(world, &mut dice, duration),
        Fault::DyingWriters => dying_writers(world, &mut dice),
        Fault::Crowd => crowd(world, &mut dice),
        Fault::Burst => crossings::burst(world, &mut dice),
        Fault::Cross(crossing) => crossings::strike(world, crossing, &mut dice),
        Fault::Storm => storm(world, duration),
        Fault::Clock => turn_clock(world, name, &mut dice, wild),
        Fault::SlowDisk => set_latency(world, name, (20_000, 400_000), duration),
        Fault::FullDisk => {
            world.note(|| format!("! disk of node {} is full for {duration}", name.0));
            let disk = &mut machine(world, name).disk;
            (disk.greedy, disk.copies) = (dice.chance(50), dice.chance(75));
            disk.set_full(true);
            world.at(world.now + duration, move |w| {
                machine(w, name).disk.set_full(false)
            });
        }
        Fault::Rot => {
            world.note(|| format!("! disk of node {} rots", name.0));
            machine(world, name).rot(&mut dice);
            world.monitor.rotten(name);
            down(world, name, true, duration);
        }
        Fault::Wipe => wipe(world, name, duration),
        Fault::Join => join(world, &mut dice),
        Fault::Leave => leave(world, &mut dice),
        Fault::Replace => replace(world, name, duration),
        Fault::Upgrade => upgrade(world, dice.draw()),
        Fault::Settle => {
            let setting = match dice.chance(50) {
                true => Setting::Lease(dice.between(900_000, 4_000_000)),
                false => Setting::MoveRate([0, 16 << 10, 1 << 20][dice.below(3) as usize]),
            };
            propose(world, dice.draw(), GroupCommand::Settle(setting));
        }
        Fault::Retire => {
            world.retire(name);
            end_when_it_may(world, name, duration);
        }
        Fault::HandOver => hand_over(world, &mut dice, duration),
        Fault::NextView => next_views(world, dice, duration, false),
        Fault::NextMembers => next_views(world, dice, duration, true),
        Fault::Blackout => {
            for name in names {
                down(world, name, true, dice.between(100_000, 2_000_000));
            }
        }
    }
}

/// Macro-steps come thick for a while.
fn storm(world: &mut World, duration: u64) {
    let before = world.fates.per_mille;
    world.note(|| format!("! macro-steps for {duration}"));
    world.fates.per_mille = 400;
    world.at(world.now + duration, move |w| {
        w.fates.per_mille = before.min(w.fates.per_mille)
    });
}

/// A new node comes, and seats of a group change.
fn join(world: &mut World, dice: &mut Dice) {
    let (site, mut dice) = (dice.below(3) as u16, dice.fork());
    if world.machines.len() < world.setup.cluster.nodes.len() + COMERS_MAX {
        coming::join(world, site, move |w, _| {
            let group = any_group(w, &mut dice);
            move_seats(w, group, &mut dice);
        });
    }
}

/// A node that has come leaves.
fn leave(world: &mut World, dice: &mut Dice) {
    let file = &world.setup.cluster.nodes;
    let came = |name: &&NodeName| !file.iter().any(|node| node.name == **name);
    let came: Vec<NodeName> = world.machines.keys().filter(came).copied().collect();
    if let Some(name) = dice.pick(&came) {
        coming::leave(world, *name);
    }
}

/// A node's disk is lost; its machine starts with an empty one.
fn wipe(world: &mut World, name: NodeName, duration: u64) {
    world.stop(name, true);
    world.note(|| format!("! disk of node {} is lost", name.0));
    machine(world, name).wipe();
    world.monitor.wiped(name);
    world.at(world.now + duration, move |w| w.start(name));
}

fn machine(world: &mut World, name: NodeName) -> &mut crate::machine::Machine {
    world
        .machines
        .get_mut(&name)
        .expect("a machine of this world")
}

/// The primary of a section key goes. A hand-over takes a few round trips; one at a time, so that
/// there is somebody to take it.
fn hand_over(world: &mut World, dice: &mut Dice, duration: u64) {
    let key = dice.pick(&world.sections);
    let Some(name) = key.and_then(|key| crossings::primary_of(world, key)) else {
        return;
    };
    if world.machines.values().any(|m| !m.is_up() || m.retiring) {
        return;
    }
    world.retire(name);
    world.at(world.now + 2_000_000, move |w| {
        let node = w.machines[&name].node();
        // It has something back, and dies with it without a word.
        w.history.calm &= node.is_none_or(|node| node.here().led().next().is_none());
        down(w, name, false, duration);
    });
}

/// A world is calm as long as its segments are led: where a hand-over fails, the next primary comes
/// when a lease is over, and that time counts for no section. Looks at it again and again.
pub fn watch_calm(world: &mut World, was_led: bool) {
    let led = world
        .sections
        .iter()
        .all(|key| crossings::primary_of(world, key).is_some());
    world.history.calm &= led || was_led;
    if world.history.calm {
        world.at(world.now + 300_000, move |w| watch_calm(w, led));
    }
}

/// A process that retires ends when its driver says so.
fn end_when_it_may(world: &mut World, name: NodeName, duration: u64) {
    let now = world.now;
    let machine = machine(world, name);
    if machine.may_end(now) {
        down(world, name, false, duration);
    } else if machine.retiring {
        world.at(now + 50_000, move |w| end_when_it_may(w, name, duration));
    }
}

pub(super) fn down(world: &mut World, name: NodeName, power: bool, duration: u64) {
    world.stop(name, power);
    world.at(world.now + duration, move |w| w.start(name));
}

/// Cuts ways for a while.
pub fn cut(world: &mut World, ways: Vec<(End, End)>, duration: u64) {
    world.note(|| format!("! cut for {duration}: {ways:?}"));
    for (from, to) in &ways {
        world.network.cut(*from, *to);
    }
    world.at(world.now + duration, move |w| {
        for (from, to) in ways {
            w.network.mend(from, to);
        }
    });
}

pub(super) fn isolate(world: &mut World, name: NodeName, duration: u64) {
    let others = world.machines.keys().filter(|n| **n != name);
    let both = |other: &NodeName| {
        let (a, b) = (End::Node(*other), End::Node(name));
        [(a, b), (b, a)]
    };
    let ways = others.flat_map(both).collect();
    cut(world, ways, duration);
}

fn cut_site(world: &mut World, site: u16, duration: u64) {
    let ends = |inside: bool| -> Vec<End> {
        let nodes = world
            .machines
            .iter()
            .filter(|(_, m)| (m.site == site) == inside);
        let clients = world.clients.iter().filter(|c| (c.site == site) == inside);
        let nodes = nodes.map(|(n, _)| End::Node(*n));
        nodes.chain(clients.map(|c| End::Client(c.id))).collect()
    };
    let (inside, outside) = (ends(true), ends(false));
    let mut ways = Vec::new();
    for a in &inside {
        for b in &outside {
            ways.push((*a, *b));
            ways.push((*b, *a));
        }
    }
    cut(world, ways, duration);
}

/// What matches is lost for a while.
pub(super) fn lose_for(
    world: &mut World,
    duration: u64,
    filter: impl Fn(&Parcel) -> bool + 'static,
) {
    let rule = world.network.lose(filter);
    world.at(world.now + duration, move |w| w.discard(rule));
}

fn strike_client(world: &mut World, fault: Fault, dice: &mut Dice, duration: u64) {
    let Some(client) = world
        .clients
        .get(dice.below(world.clients.len() as u64) as usize)
    else {
        return;
    };
    let id = client.id;
    if fault == Fault::KillClient {
        world.kill_client(id);
        world.at(world.now + duration, move |w| w.restart_client(id));
        return;
    }
    let nodes: Vec<NodeName> = world.machines.keys().copied().collect();
    let ways = nodes
        .iter()
        .flat_map(|n| {
            [
                (End::Node(*n), End::Client(id)),
                (End::Client(id), End::Node(*n)),
            ]
        })
        .collect();
    cut(world, ways, duration);
}

fn turn_clock(world: &mut World, name: NodeName, dice: &mut Dice, wild: bool) {
    let bound = if wild { 400_000 } else { world.setup.drift_ppm };
    let rate = rate(dice, bound);
    let jump = dice.below(20_000_000) as i64 - 10_000_000;
    let now = world.now;
    world.note(|| format!("! clock of node {}: rate {rate} ppm, wall {jump:+}", name.0));
    let clock = &mut machine(world, name).clock;
    clock.set_rate(now, rate);
    clock.jump(jump);
    // Within the bound it drifts, too; one that is beyond it stays so.
    if let Some(interval) = &mut clock.interval
        && interval.error.unsigned_abs() <= interval.width
    {
        *interval = IntervalClock::honest(interval.width, dice);
    }
}

fn set_latency(world: &mut World, name: NodeName, latency: (u64, u64), duration: u64) {
    world.note(|| format!("! disk of node {} is slow for {duration}", name.0));
    machine(world, name).disk.latency = latency;
    world.at(world.now + duration, move |w| {
        machine(w, name).disk.latency = w.setup.flush;
    });
}

/// A minority of one group, as large as there is, loses power at once: at least as many as any
/// policy bears there.
fn crash_faults(world: &mut World, dice: &mut Dice, duration: u64) {
    let group = any_group(world, dice);
    let members: Vec<NodeName> = present_view(world, group).nodes().collect();
    let faults = members.len().div_ceil(2) - 1;
    for name in dice.subset(&members, faults) {
        down(world, name, true, duration);
    }
}

/// One to four clients write a register; what they store reaches some members only; then their
/// coordinators die, and at times the clients.
fn dying_writers(world: &mut World, dice: &mut Dice) {
    let Some(key) = dice.pick(&world.registers).cloned() else {
        return;
    };
    let nodes: Vec<NodeName> = world.machines.keys().copied().collect();
    let count = dice.between(1, nodes.len() as u64 - 1) as usize;
    let reached = dice.subset(&nodes, count);
    let about = key.clone();
    let rule = world.network.lose(move |parcel| {
        let Parcel::Peer { to, message, .. } = parcel else {
            return false;
        };
        matches!(message, Message::Register(register::Message::Ask { key, ask, .. })
            if *key == about && matches!(ask, register::Ask::Store { .. }))
            && !reached.contains(to)
    });
    let count = dice.between(1, 4) as usize;
    let writers = dice.subset(&living(world), count);
    for client in &writers {
        write(world, *client, key.clone(), dice);
    }
    let end = world.now + dice.between(50_000, 1_000_000);
    let deaf = end + dice.between(0, 300_000);
    let dead = if dice.chance(50) {
        writers.clone()
    } else {
        Vec::new()
    };
    let back = end + dice.between(200_000, 3_000_000);
    let wait = back - end;
    world.at(end, move |w| {
        let sites: Vec<u16> = writers
            .iter()
            .map(|c| w.clients[c.0 as usize].site)
            .collect();
        let near = |m: &&crate::machine::Machine| sites.contains(&m.site);
        // The nearest node of a client is its coordinator.
        let name = w.machines.values().find(near).map(|m| m.name());
        if let Some(name) = name {
            down(w, name, true, wait);
        }
        for client in dead {
            w.kill_client(client);
            w.at(back, move |w| w.restart_client(client));
        }
    });
    world.at(deaf, move |w| w.discard(rule));
}

/// Writes and reads of one register, all at once.
fn crowd(world: &mut World, dice: &mut Dice) {
    let Some(key) = dice.pick(&world.registers).cloned() else {
        return;
    };
    for client in living(world) {
        for _ in 0..dice.between(1, 3) {
            let (key, mut dice) = (key.clone(), dice.fork());
            world.at(world.now + dice.below(400_000), move |w| {
                if !w.clients[client.0 as usize].alive {
                    return;
                }
                if dice.chance(60) {
                    write(w, client, key, &mut dice);
                } else {
                    w.call(client, Call::Read { key });
                }
            });
        }
    }
}

pub(super) fn write(world: &mut World, client: ClientId, key: KeyId, dice: &mut Dice) {
    // The history grows with every call, so the value is unique.
    let name = format!("n{}", world.history.ops.len());
    let value = Some(padded(name, dice));
    world.call(client, Call::Write { key, value });
}

/// A group goes on under the next epoch, at times twice in a row, at times while a member is cut
/// off: for one change or for both.
fn next_views(world: &mut World, mut dice: Dice, duration: u64, moves: bool) {
    let group = any_group(world, &mut dice);
    if dice.chance(40) {
        let names: Vec<NodeName> = present_view(world, group).nodes().collect();
        if let Some(name) = dice.pick(&names).copied() {
            isolate(world, name, duration.max(3_000_000));
        }
    }
    let change = move |world: &mut World, mut dice: Dice| match moves {
        _ if known_view(world, group).is_none() => {}
        true if dice.chance(20) => split(world, group, &mut dice),
        true => move_seats(world, group, &mut dice),
        false => next_view(world, group, dice.draw()),
    };
    change(world, dice.fork());
    if dice.chance(50) {
        let (pause, dice) = (dice.between(50_000, 3_000_000), dice.fork());
        world.at(world.now + pause, move |w| change(w, dice));
    }
}

/// Proposes a view in which one to three seats are others': a node that has none takes over a seat
/// or a new one, or a member goes. Half of such changes are pressing, so that nobody asks who is
/// there: a node that is down, or cut off, may get a seat. Not one that has lost its disk.
fn move_seats(world: &mut World, group: GroupId, dice: &mut Dice) {
    let least = least(world);
    let mut names: Vec<NodeName> = present_view(world, group).nodes().collect();
    for _ in 0..dice.between(1, 3) {
        let machines = world.machines.iter();
        let spare = machines.filter(|(name, m)| {
            !coming::is_out(world, **name) && m.lost.is_none() && !names.contains(name)
        });
        let spare: Vec<NodeName> = spare.map(|(name, _)| *name).collect();
        let seat = dice.below(names.len() as u64) as usize;
        match (dice.pick(&spare).copied(), dice.below(4)) {
            (Some(name), 0 | 1) => names[seat] = name,
            (Some(name), 2) => names.push(name),
            _ if names.len() > least => drop(names.remove(seat)),
            _ => {}
        }
    }
    propose_members(world, group, dice.draw(), &names, dice.chance(50));
}

/// A group goes on as two, each with some of its members, if it has a segment for each.
fn split(world: &mut World, group: GroupId, dice: &mut Dice) {
    let places = Places::of(&world.setup.cluster, &world.machines);
    let present = places.locations().find(|at| at.id() == group);
    let Some(arc) = present.map(|at| at.group.clone()) else {
        return;
    };
    if arc.segments().count() < 2 {
        return;
    }
    let least = least(world);
    let names: Vec<NodeName> = arc.view.nodes().collect();
    let mut half = || {
        let size = dice.between(least.min(names.len()) as u64, names.len() as u64);
        dice.subset(&names, size as usize)
    };
    let (own, child) = (half(), half());
    let at = dice.between(u64::from(arc.from.0) + 1, u64::from(arc.to.0));
    let at = SegmentId(u32::try_from(at).expect("a segment"));
    split_at(world, group, dice.draw(), at, &own, &child);
}

/// Somebody proposes that a group goes on as two: these members keep the segments before `at`, and
/// those get the others.
pub fn split_at(
    world: &mut World,
    group: GroupId,
    session: u64,
    at: SegmentId,
    own: &[NodeName],
    child: &[NodeName],
) {
    let present = present_view(world, group);
    let epoch = present.epoch.next();
    let view = |group: GroupId, names: &[NodeName]| View {
        group,
        epoch,
        seats: names.iter().map(|name| member(world, *name)).collect(),
    };
    let split = Split {
        view: view(group, own),
        at,
        child: view(group.child(epoch), child),
    };
    world.note(|| {
        let [own, child] = [own, child].map(|half| half.iter().map(|n| n.0).collect::<Vec<_>>());
        format!(
            "! epoch {} with {own:?}, and from {} on {child:?}",
            epoch.0, at.0
        )
    });
    let wanted = world.wanted.entry((group, epoch)).or_default();
    wanted.extend(own.iter().chain(child));
    let (format, split) = (format_of(world), Box::new(split));
    let command = GroupCommand::Split { split, format };
    propose_to(world, group, (session, epoch.0), command);
}

/// The cluster's format, by the latest registry; where no node is up, nobody lowers it.
fn format_of(world: &World) -> u16 {
    coming::newest(world).map_or(0, |registry| registry.settings().format)
}

fn member(world: &World, name: NodeName) -> Member {
    Member {
        name,
        site: SiteId(world.machines[&name].site),
        public_key: None,
    }
}

/// No view has fewer members.
fn least(world: &World) -> usize {
    let sizes = world.setup.cluster.groups.iter().map(|g| g.view.len());
    sizes.min().unwrap_or(1)
}

/// One of the groups, the meta-group among them.
fn any_group(world: &World, dice: &mut Dice) -> GroupId {
    let mut groups = coming::groups(world);
    // The meta-group last.
    groups.rotate_left(1);
    *dice.pick(&groups).expect("a group")
}

/// The present view of a group, as far as any node has applied it.
pub fn present_view(world: &World, group: GroupId) -> View {
    known_view(world, group).expect("a group of this cluster, and of a node that is up")
}

/// The same; none: it has split off from another, and no node that is up knows of it.
pub(super) fn known_view(world: &World, group: GroupId) -> Option<View> {
    let first = Directory::from(&world.setup.cluster);
    let nodes = world.machines.values().filter_map(|m| m.node());
    let places = nodes.filter_map(|n| n.here().directory.location(group));
    let newest = places.max_by_key(|at| at.epoch());
    let newest = newest.or(first.location(group));
    newest.map(|at| at.group.view.clone())
}

/// Somebody proposes the next epoch of a group to all its members.
pub fn next_view(world: &mut World, group: GroupId, session: u64) {
    let view = present_view(world, group);
    propose_view(world, group, session, view, false);
}

/// The same with other members.
pub fn next_members(world: &mut World, group: GroupId, session: u64, names: &[NodeName]) {
    propose_members(world, group, session, names, false);
}

/// The same, and nobody waits for the values of two earlier epochs, or asks whether new members are
/// there.
pub fn next_members_pressing(world: &mut World, group: GroupId, session: u64, names: &[NodeName]) {
    propose_members(world, group, session, names, true);
}

fn propose_members(
    world: &mut World,
    group: GroupId,
    session: u64,
    names: &[NodeName],
    pressing: bool,
) {
    let present = present_view(world, group);
    // Whoever proposes knows who is in the cluster, and whom it was asked to dismiss.
    let out = |name: &NodeName| coming::is_out(world, *name);
    let mut newcomers = names
        .iter()
        .filter(|name| present.seat_of(**name).is_none());
    if newcomers.any(out) {
        return;
    }
    let view = View {
        seats: names.iter().map(|name| member(world, *name)).collect(),
        ..present
    };
    propose_view(world, group, session, view, pressing);
}

fn propose_view(world: &mut World, group: GroupId, session: u64, mut view: View, pressing: bool) {
    view.epoch = view.epoch.next();
    let epoch = view.epoch.0;
    world.note(|| {
        let names: Vec<u32> = view.nodes().map(|name| name.0).collect();
        let id = view.group.0;
        format!("! epoch {epoch} with {names:?} is proposed to group {id}")
    });
    let wanted = world.wanted.entry((group, view.epoch)).or_default();
    wanted.extend(view.nodes());
    // The epoch makes it another command when the same session proposes once more.
    let format = format_of(world);
    let next = GroupCommand::Next {
        view,
        pressing,
        format,
    };
    propose_to(world, group, (session, epoch), next);
}

/// A node's disk is lost, and another node comes in its place.
fn replace(world: &mut World, name: NodeName, duration: u64) {
    wipe(world, name, duration);
    let site = world.machines[&name].site;
    world.at(world.now + duration, move |w| {
        coming::join(w, site, move |w, by| coming::give_up(w, name, by));
    });
}

/// Nodes get a newer version of the program, one after the other; once all have it, the cluster
/// gets the next format.
fn upgrade(world: &mut World, session: u64) {
    let older = |m: &&Machine| m.lost.is_none() && m.config.formats != NEWER;
    if let Some(machine) = world.machines.values().find(older) {
        let name = machine.config.name;
        world.upgrade(name);
        world.at(world.now + UPGRADE_EVERY, move |w| upgrade(w, session));
        return;
    }
    let known = coming::newest(world).map(|registry| registry.settings().format + 1);
    if let Some(next) = known.filter(|next| NEWER.contains(next)) {
        let raise = GroupCommand::Settle(Setting::Format(next));
        propose(world, session, raise);
    }
}

/// Proposes a command to the meta-group, at whichever of its members leads.
pub fn propose(world: &mut World, session: u64, body: GroupCommand) {
    propose_to(world, GroupId::META, (session, 1), body);
}

fn propose_to(world: &mut World, group: GroupId, id: (u64, u64), body: GroupCommand) {
    let (session, number) = (SessionId(u128::from(id.0)), id.1);
    let command = Command::new(session, number, 0, Epoch::FIRST, Body::Group(body));
    let members: Vec<NodeName> = present_view(world, group).nodes().collect();
    // One that has lost its disk is not heard any more.
    let heard = |name: &&NodeName| world.machines[*name].lost.is_none();
    let from = members.iter().find(heard).unwrap_or(&members[0]);
    let from = world.machines[from].id();
    for to in members {
        let command = command.clone();
        let message = Message::Coordinator(coordinator::Message::Propose { call: 1, command });
        world.inject(Parcel::Peer { from, to, message });
    }
}

/// Asks whoever leads a segment to have its records changed by one command.
pub fn put_records(world: &mut World, segment: SegmentId, id: (u64, u64), puts: &Puts) {
    let (session, number) = (SessionId(u128::from(id.0)), id.1);
    let body = Body::Ledger(LedgerCommand::Puts(puts.clone()));
    let command = Command::new(session, number, 0, Epoch::FIRST, body);
    let primaries = world.machines.values().filter(|machine| {
        let here = machine.node().map(|node| node.here());
        here.is_some_and(|here| here.led().any(|led| led == segment))
    });
    let primaries: Vec<NodeId> = primaries.map(Machine::id).collect();
    for from in primaries {
        let (call, command) = (1, command.clone());
        let message = Message::Lock(lock::Message::Submit {
            call,
            segment,
            command,
        });
        let to = from.name;
        world.inject(Parcel::Peer { from, to, message });
    }
}

/// A bystander ends the last section granted on some key.
fn force(world: &mut World, dice: &mut Dice) {
    let held = last_grants(&world.history);
    let (Some((key, lock_ref)), Some(client)) = (
        dice.pick(&held).cloned(),
        dice.pick(&living(world)).copied(),
    ) else {
        return;
    };
    world.call(client, Call::Release { key, lock_ref });
}

type KeyAndRef = (
    fermata_protocol::base::KeyId,
    fermata_protocol::base::LockRef,
);

/// The last grants of the history, a few.
fn last_grants(history: &History) -> Vec<KeyAndRef> {
    let last = history.sections.iter().rev().take(4);
    last.flat_map(|s| s.held.iter().map(|h| (h.key.clone(), h.lock_ref)))
        .collect()
}

pub(super) fn living(world: &World) -> Vec<ClientId> {
    world
        .clients
        .iter()
        .filter(|c| c.alive)
        .map(|c| c.id)
        .collect()
}
