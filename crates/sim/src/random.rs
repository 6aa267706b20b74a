//! One seed: a cluster, its clients and its misfortunes, all drawn from a number.
//!
//! Two phases. In the first everything goes wrong that the plan knows, and only safety counts. Then
//! all is healed, and everybody who is alive must come to an end within a stated virtual time; the
//! members' upkeep must bring everything to rest; and every key must be entered and every register
//! read once more.

use crate::catalogue;
use crate::checkers::places::Places;
use crate::checkers::{self, Violation, at_rest, gone, linearizable, records};
use crate::clock::IntervalClock;
use crate::cluster;
use crate::dice::Dice;
use crate::kind::Kind;
use crate::ledger::{Books, Teller};
use crate::model::Observer;
use crate::nemesis::{self, Plan};
use crate::network::ClientId;
use crate::profile;
use crate::workload::{Audit, Ground, WHOLE_BELOW, Worker, segment_of};
use crate::world::{OLDER, Setup, World};
use bytes::Bytes;
use fermata_protocol::base::{
    Bug, KeyId, Keyspace, KeyspaceId, Limits, NodeName, Planted, Purpose, SegmentId, StoragePolicy,
    Terms, Timing,
};
use fermata_protocol::client::Options;
use fermata_protocol::records::Puts;
use fermata_protocol::wire;
use std::collections::{BTreeMap, BTreeSet};

/// All who live must end within this virtual time after healing, microseconds.
pub const PROGRESS_MAX: u64 = 180_000_000;

/// Mixed into the seed for who keeps the clients' sessions: in a quarter of the seeds nodes keep
/// most.
const HOSTS: u64 = 0x686f_7374;

/// Mixed into the seed for whether groups change their members: in half of the seeds, calm ones
/// left out.
const MEMBERS: u64 = 0x6d65_6d62;

/// Mixed into the seed for whether records of segments' states change: in half of the seeds.
const RECORDS: u64 = 0x7265_636f;

/// Mixed into the seed for whether clients use a ledger: in half of the seeds. In the others the
/// nodes run the program before this one at first.
const LEDGER: u64 = 0x6c65_6467;

fn has_ledger(seed: u64) -> bool {
    Dice::new(seed ^ LEDGER).chance(50)
}

/// Clients that use a ledger.
fn tellers(world: &mut World, kind: &Kind, options: &Options) -> Vec<Teller> {
    if !has_ledger(world.setup.seed) {
        return Vec::new();
    }
    let mut dice = Dice::new(!world.setup.seed ^ LEDGER);
    let lead = [0, 0, 150_000][dice.below(3) as usize];
    let purpose = Purpose::Ledger { lead };
    let forever = Keyspace::SECTION_MAX;
    let catalogue = &mut world.history.catalogue;
    let id = catalogue.add(purpose, StoragePolicy::Replicated, forever);
    let books = Books::new(id, dice.between(1, 3), kind.names);
    let mut tellers = Vec::new();
    for i in 0..dice.between(2, 4) {
        let client = world.add_client((i % 3) as u16, options.clone());
        let rounds = dice.between(4, 30);
        tellers.push(Teller::new(client, rounds, books.clone(), dice.fork()));
    }
    tellers
}

/// All must be at rest within this virtual time after everybody has ended, microseconds.
pub const REST_MAX: u64 = 180_000_000;

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was violated.
    pub violations: Vec<Violation>,
    /// Virtual time, microseconds.
    pub virtual_time: u64,
    /// Lines of the trace.
    pub events: u64,
    /// Logs that the nodes, as they run at the end, have given to the seats that should lead them.
    pub moves: u64,
    /// The text, if it was asked for.
    pub trace: Option<String>,
    /// What happened, for the model, if it was asked for.
    pub observer: Option<Box<Observer>>,
    /// With the text: what was done with each register, times in microseconds.
    pub registers: BTreeMap<KeyId, Vec<fermata_check::Operation<Bytes>>>,
}

/// The protocol's durations in the simulator: slower beats than a server's, since beats are most of
/// what an idle cluster does, and shorter leases, so that they run out often.
pub fn timing() -> Timing {
    Timing {
        beat: 400_000,
        lease: 1_600_000,
        election: 400_000,
        stagger: 300_000,
        retry: 500_000,
        request: 6_000_000,
        upkeep: 15_000_000,
        usage: 10_000_000,
        ..Timing::default()
    }
}

/// How patient the simulator's clients are.
pub fn patience(planted: Planted) -> Options {
    Options {
        request: 12_000_000,
        attempt: 1_500_000,
        planted,
        ..Options::default()
    }
}

/// From time to time a command changes records of a segment's state: few names, so that they
/// change while they are under way.
fn change_records(world: &mut World, ground: &Ground, length: u64) {
    let mut dice = Dice::new(!world.setup.seed ^ RECORDS);
    let bits = world.setup.cluster.segment_bits;
    let keys = ground.sections.iter().chain(&ground.registers);
    let segments: Vec<SegmentId> = keys.map(|key| segment_of(key, bits)).collect();
    for number in 1..=dice.between(20, 400) {
        let Some(segment) = dice.pick(&segments).copied() else {
            return;
        };
        let mut puts = Puts::default();
        for _ in 0..dice.between(1, 3) {
            let name = Bytes::from(format!("record-{}", dice.below(24)));
            let value = Bytes::from(vec![dice.below(256) as u8; dice.below(200) as usize]);
            puts.0.push((name, (!dice.chance(20)).then_some(value)));
        }
        let session = dice.between(1, 3);
        world.at(dice.below(length), move |w| {
            nemesis::put_records(w, segment, (RECORDS + session, number), &puts);
        });
    }
}

/// Runs one seed.
pub fn run(seed: u64, planted: Option<Bug>, trace: bool) -> Run {
    let (setup, kind) = setup(seed, planted, trace);
    played(setup, &kind, None)
}

/// As [`run`], and what happened is written down for the model. Of a hundred sections so many only
/// read, if it is said.
pub fn observed(seed: u64, planted: Option<Bug>, shared_percent: Option<u64>, trace: bool) -> Run {
    let (setup, kind) = setup(seed, planted, trace);
    let setup = Setup {
        model: true,
        ..setup
    };
    played(setup, &kind, shared_percent)
}

fn played(setup: Setup, kind: &Kind, shared_percent: Option<u64>) -> Run {
    let mut world = World::new(setup);
    let mut dice = world.dice.fork();
    let bits = world.setup.cluster.segment_bits;
    let keys = dice.between(1, 4) as usize;
    let registers = dice.between(1, 2) as usize;
    let mut ground = Ground::new(bits, keys, registers, 2_000_000, kind.names);
    // Where all primaries change by hand-over, none changes members: a log that no former member
    // leads is no hand-over.
    let moves = Dice::new(world.setup.seed ^ MEMBERS).chance(57) && !kind.calm;
    vary(&mut world, &mut ground, (kind, moves), &mut dice);
    ground.shared_percent = shared_percent.unwrap_or(ground.shared_percent);
    let length = dice.between(8_000_000, 40_000_000);
    let mut plan = match kind.calm {
        true => Plan::calm(&mut dice, length),
        false => Plan::draw(&mut dice, length),
    };
    if moves {
        plan.move_members();
    }
    equip(&mut world, &plan, &mut dice);
    world.registers = ground.registers.clone();
    world.sections = ground.sections.clone();
    world.history.false_intervals = plan.false_intervals;
    world.history.calm = kind.calm;
    let mut options = patience(world.setup.planted);
    options.drift_ppm = kind.drift_ppm;
    options.cached_gets = !plan.wild_clocks;
    world.monitor.trust_clocks(!plan.wild_clocks);
    let mut workers = Vec::new();
    let mut hosts = Dice::new(world.setup.seed ^ HOSTS);
    let hosted_percent = [0, 0, 0, 60][hosts.below(4) as usize];
    for i in 0..dice.between(2, 6) {
        let site = (i % 3) as u16;
        let client = match hosts.chance(hosted_percent) {
            true => world.add_hosted(site, options.clone()),
            false => world.add_client(site, options.clone()),
        };
        let rounds = dice.between(2, 8);
        workers.push(Worker::new(client, rounds, ground.clone(), dice.fork()));
    }
    let mut tellers = tellers(&mut world, kind, &options);
    revise(&mut world, &ground, length);
    nemesis::schedule(&mut world, &plan);
    if Dice::new(world.setup.seed ^ RECORDS).chance(50) {
        change_records(&mut world, &ground, length);
    }
    if kind.calm {
        world.at(2_000_000, |w| nemesis::watch_calm(w, true));
    }
    drive(&mut world, (&mut workers, &mut tellers), &plan);
    rest(&mut world);
    let auditor = world.add_client(dice.below(3) as u16, options);
    let deadline = world.now + PROGRESS_MAX;
    audit(&mut world, auditor, &ground, deadline);
    finish(world, Vec::new())
}

/// Everything is healed, and somebody cannot go on.
pub fn no_progress(detail: String) -> Violation {
    Violation {
        kind: checkers::Kind::Liveness,
        property: checkers::PROGRESS,
        detail,
    }
}

/// Kinds of machines: a disk that is slow until all is healed; interval clocks on some machines or
/// on all, within their bound or, where the plan says so, beyond it.
fn equip(world: &mut World, plan: &Plan, dice: &mut Dice) {
    let names: Vec<NodeName> = world.machines.keys().copied().collect();
    let slow = dice.pick(&names).copied().filter(|_| dice.chance(10));
    if let Some(machine) = slow.and_then(|name| world.machines.get_mut(&name)) {
        machine.disk.latency = (30_000, 300_000);
    }
    if !dice.chance(45) && !plan.false_intervals {
        return;
    }
    // All machines, or about half of them.
    let percent = [100, 100, 50][dice.below(3) as usize];
    for machine in world.machines.values_mut() {
        let mut clock = IntervalClock::honest(dice.between(500, 60_000), dice);
        if plan.false_intervals && dice.chance(50) {
            clock.error = dice.below(4_000_000) as i64 - 2_000_000;
        }
        machine.clock.interval = dice.chance(percent).then_some(clock);
    }
    slow_time(world, dice);
}

/// Slow time, in a quarter of the seeds with interval clocks: messages take a tenth of the clocks'
/// bound, so that many orders of events lie within one interval. At most 50 ms: the protocol's
/// durations are made for that.
fn slow_time(world: &mut World, dice: &mut Dice) {
    let clocks = world.machines.values().filter_map(|m| m.clock.interval);
    let bound = clocks.map(|clock| clock.width).min().unwrap_or(0);
    if dice.chance(25) && bound > 0 {
        world.network.pace = Some((bound / 10).min(50_000));
    }
}

/// Kinds of ground: keys that share a segment, many readers, sections that may not last.
fn vary(world: &mut World, ground: &mut Ground, (kind, moves): (&Kind, bool), dice: &mut Dice) {
    if dice.chance(35) {
        ground.crowd(world.setup.cluster.segment_bits);
    }
    ground.shared_percent = [15, 15, 60][dice.below(3) as usize];
    if kind.calm || dice.chance(20) {
        let (purpose, storage) = (Purpose::Sections, StoragePolicy::Replicated);
        let id = world.history.catalogue.add(purpose, storage, 2_500_000);
        ground.hurry(id);
    }
    if dice.chance(60) {
        code(world, ground, moves, dice);
    }
    world.at(500_000, catalogue::furnish);
}

/// Mixed into the seed for what becomes of the keyspaces.
const REVISED: u64 = 0x7265_7669;

/// Keyspaces that somebody changes, or deletes, while they are used.
fn revise(world: &mut World, ground: &Ground, length: u64) {
    let mut dice = Dice::new(world.setup.seed ^ REVISED);
    let keys = ground.sections.iter().chain(&ground.registers);
    let of_their_own = |id: &KeyspaceId| Keyspace::built_in().iter().all(|k| k.id != *id);
    let ids: BTreeSet<KeyspaceId> = keys.map(|key| key.keyspace).filter(of_their_own).collect();
    for id in ids {
        if dice.chance(30) {
            let lease = dice.between(500_000, 3_000_000);
            // As long as the lease that the workers ask for, at least.
            let times = (lease, 3_000_000 + dice.below(4_000_000));
            let at = dice.between(2_000_000, length);
            world.at(at, move |world| catalogue::change(world, id, times));
        }
        if dice.chance(30) {
            let at = dice.between(2_000_000, length);
            world.at(at, move |world| catalogue::delete(world, id));
        }
    }
}

/// Keyspaces with storage policies, and keys of theirs: registers mostly. Where members change, of
/// those policies alone whose values can always be read, and so can always move.
fn code(world: &mut World, ground: &mut Ground, moves: bool, dice: &mut Dice) {
    let groups = &world.setup.cluster.groups;
    let smallest = groups.iter().map(|g| g.view.len()).min().unwrap_or(1);
    let bits = world.setup.cluster.segment_bits;
    let section_max = Keyspace::built_in()[0].section_max;
    for _ in 0..dice.between(1, 3) {
        let terms = Terms {
            faults: dice.between(1, (smallest as u64 - 1) / 2) as u8,
            delta: dice.between(1, 4) as u8,
            whole_below: WHOLE_BELOW,
        };
        let policies = [
            StoragePolicy::Coded(terms),
            StoragePolicy::Coded(terms),
            StoragePolicy::TreasOpt(terms),
            StoragePolicy::Oreas(terms),
            StoragePolicy::Ares(terms),
        ];
        let drawn = dice.pick(&policies).copied();
        let Some(storage) = drawn.map(|policy| if moves { policies[0] } else { policy }) else {
            return;
        };
        let purpose = match dice.chance(60) {
            true => Purpose::Registers,
            false => Purpose::Sections,
        };
        let id = world.history.catalogue.add(purpose, storage, section_max);
        ground.extend(purpose, id, bits, 1);
    }
}

fn setup(seed: u64, planted: Option<Bug>, trace: bool) -> (Setup, Kind) {
    let mut dice = Dice::new(seed ^ 0x5e7_0000);
    let profile = &profile::ALL[dice.below(3) as usize];
    let cluster = match dice.below(5) {
        0 => cluster::broad(),
        1 => cluster::seven(),
        _ => cluster::smallest(),
    };
    let formats = match has_ledger(seed) {
        true => wire::FORMATS,
        false => OLDER,
    };
    let upkeep = [2, 2, 3, 5, 8, 15][dice.below(6) as usize] * 1_000_000;
    let flush = [(0, 0), (100, 2_000), (500, 20_000)][dice.below(3) as usize];
    let checkpoint_bytes = if dice.chance(10) { 20_000 } else { 64 << 20 };
    // So short a memory of so little use that primaries move although runs are short.
    let usage = [0, 500, 1_000, 3_000][dice.below(4) as usize] * 1_000;
    let usage_lead = dice.between(1, 3) as u32;
    let kind = Kind::draw(&mut dice);
    let setup = Setup {
        seed,
        profile,
        cluster,
        formats,
        timing: Timing {
            upkeep,
            usage,
            drift_ppm: kind.drift_ppm,
            ..timing()
        },
        limits: Limits {
            usage_lead,
            ..kind.limits.clone()
        },
        planted: planted.map_or(Planted::NONE, Planted::only),
        flush,
        checkpoint_bytes,
        shell: kind.shell,
        drift_ppm: kind.drift_ppm,
        trace,
        watch: true,
        model: false,
    };
    (setup, kind)
}

/// Runs until all workers are done and the faults are over, or the time for progress has passed.
fn drive(world: &mut World, (workers, tellers): (&mut [Worker], &mut [Teller]), plan: &Plan) {
    let deadline = plan.until + PROGRESS_MAX;
    loop {
        // Before they act: an operation that ends at once counts as ended since.
        for client in &mut world.clients {
            client.ended.clear();
        }
        for worker in workers.iter_mut() {
            worker.act(world);
        }
        for teller in tellers.iter_mut() {
            teller.act(world);
        }
        let working = workers.iter().filter(|w| !w.is_done());
        let telling = tellers.iter().filter(|t| !t.is_done());
        let rest = working.map(Worker::rests_until);
        let rest = rest.chain(telling.map(Teller::rests_until));
        let next = rest.filter(|t| *t > world.now).min().unwrap_or(u64::MAX);
        let done = workers.iter().all(Worker::is_done) && tellers.iter().all(Teller::is_done);
        if (done && world.now >= plan.until) || world.now >= deadline {
            break;
        }
        if !world.violations.is_empty() {
            return;
        }
        let lives: u32 = world.clients.iter().map(|c| c.life).sum();
        let stop = next
            .min(deadline)
            .min(if done { plan.until } else { u64::MAX });
        world.run_until(stop, |w| {
            !w.violations.is_empty()
                || w.clients.iter().any(|c| !c.ended.is_empty())
                || w.clients.iter().map(|c| c.life).sum::<u32>() != lives
        });
    }
    let working = workers
        .iter()
        .filter(|w| !w.is_done() && !w.is_excused(world))
        .map(Worker::state);
    let telling = tellers.iter().filter(|t| !t.is_done());
    let stuck: Vec<String> = working.chain(telling.map(Teller::state)).collect();
    if !stuck.is_empty() {
        let detail = format!("{PROGRESS_MAX} us after healing: {}", stuck.join("; "));
        world.violations.push(no_progress(detail));
    }
}

/// Nobody asks anything more: waits until the members' upkeep has brought everything to rest.
pub fn rest(world: &mut World) {
    let deadline = world.now + REST_MAX;
    while world.violations.is_empty() {
        let catalogue = &world.history.catalogue;
        let places = Places::of(&world.setup.cluster, &world.machines);
        let mut left = at_rest::unrest(&world.machines, &places, catalogue);
        let restless: Vec<KeyId> = left.iter().map(|unrest| unrest.key.clone()).collect();
        left.retain(|unrest| !world.monitor.is_excused(&unrest.key, catalogue));
        let gone = gone::left(&world.machines, catalogue);
        let stays = at_rest::left(&world.machines, &places);
        let lacking = world.monitor.records_left(&world.machines);
        let rests = left.is_empty() && gone.is_none() && stays.is_none() && lacking.is_none();
        if world.now >= deadline || rests {
            let (machines, found) = (&world.machines, &mut world.violations);
            let monitor = &world.monitor;
            monitor.at_rest(machines, catalogue, &restless, found);
            let idle = left.iter().find(|unrest| !unrest.busy);
            let told = idle.map(|unrest| Violation::new(at_rest::NAME, unrest.what.clone()));
            world.violations.extend(told);
            let told = stays.map(|what| Violation::new(at_rest::NAME, what));
            world.violations.extend(told);
            let told = lacking.map(|what| Violation::new(records::NAME, what));
            world.violations.extend(told);
            let told = gone.map(|what| Violation::new(gone::NAME, what));
            world.violations.extend(told);
            return;
        }
        world.run_until(world.now + 1_000_000, |w| !w.violations.is_empty());
    }
}

/// Reads everything once more.
pub fn audit(world: &mut World, client: ClientId, ground: &Ground, deadline: u64) {
    if !world.violations.is_empty() {
        return;
    }
    let mut audit = Audit::new(client, ground);
    while !audit.act(world) {
        let before = world.clients[client.0 as usize].ended.len();
        let ended = |w: &World| {
            w.clients[client.0 as usize].ended.len() > before || !w.violations.is_empty()
        };
        if !world.run_until(deadline, ended) {
            let detail = format!("after healing nobody can use {}", audit.missing());
            world.violations.push(no_progress(detail));
            return;
        }
        if !world.violations.is_empty() {
            return;
        }
    }
}

/// Checks the history and ends the world; `also` is reported behind what the checkers found.
pub fn finish(mut world: World, also: Vec<Violation>) -> Run {
    world.violations.extend(checkers::check(&world.history));
    checkers::ledger::check(
        &world.history,
        world.monitor.written(),
        &mut world.violations,
    );
    world.violations.extend(also);
    for violation in world.violations.clone() {
        world.note(|| format!("VIOLATION {}: {}", violation.property, violation.detail));
    }
    let events = world.trace.events();
    let nodes = world.machines.values().filter_map(|m| m.node());
    let moves = nodes.map(|node| node.moves()).sum();
    let trace = world.trace.into_text();
    let registers = match &trace {
        Some(_) => linearizable::registers(&world.history),
        None => BTreeMap::new(),
    };
    let observer = world.observer.map(|mut observer| {
        observer.catalogue = world.history.catalogue;
        observer.places = Some(world.monitor.places);
        observer
    });
    Run {
        violations: world.violations,
        virtual_time: world.now,
        events,
        moves,
        trace,
        observer,
        registers,
    }
}
