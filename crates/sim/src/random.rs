//! One seed: a cluster, its clients and its misfortunes, all drawn from a number.
//!
//! Two phases. In the first everything goes wrong that the plan knows, and only safety counts. Then
//! all is healed, and everybody who is alive must come to an end within a stated virtual time, and
//! every key must be entered and every register read once more.

use crate::checkers::{self, Kind, Violation};
use crate::cluster;
use crate::dice::Dice;
use crate::nemesis::{self, Plan};
use crate::network::ClientId;
use crate::profile;
use crate::workload::{Audit, Ground, Worker};
use crate::world::{Setup, World};
use fermata_protocol::base::{Bug, Keyspace, Limits, NodeName, Planted, Timing};
use fermata_protocol::client::Options;
use fermata_protocol::command::GroupCommand;

/// All who live must end within this virtual time after healing, microseconds.
pub const PROGRESS_MAX: u64 = 180_000_000;

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was violated.
    pub violations: Vec<Violation>,
    /// Virtual time, microseconds.
    pub virtual_time: u64,
    /// Lines of the trace.
    pub events: u64,
    /// The text, if it was asked for.
    pub trace: Option<String>,
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
        drift_ppm: 1_000,
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

/// Runs one seed.
pub fn run(seed: u64, planted: Option<Bug>, trace: bool) -> Run {
    let mut world = World::new(setup(seed, planted, trace));
    let mut dice = world.dice.fork();
    let bits = world.setup.cluster.segment_bits;
    let keys = dice.between(1, 4) as usize;
    let mut ground = Ground::new(bits, keys, dice.between(1, 2) as usize, 2_000_000);
    vary(&mut world, &mut ground, &mut dice);
    equip(&mut world, &mut dice);
    let length = dice.between(8_000_000, 40_000_000);
    let plan = Plan::draw(&mut dice, length);
    let mut options = patience(world.setup.planted);
    options.cached_gets = !plan.wild_clocks;
    world.monitor.trust_clocks(!plan.wild_clocks);
    let mut workers = Vec::new();
    for i in 0..dice.between(2, 6) {
        let client = world.add_client((i % 3) as u16, options.clone());
        let rounds = dice.between(2, 8);
        workers.push(Worker::new(client, rounds, ground.clone(), dice.fork()));
    }
    nemesis::schedule(&mut world, &plan);
    drive(&mut world, &mut workers, &plan);
    let auditor = world.add_client(dice.below(3) as u16, options);
    audit(&mut world, auditor, &ground, plan.until + PROGRESS_MAX);
    finish(world, Vec::new())
}

/// Everything is healed, and somebody cannot go on.
pub fn no_progress(detail: String) -> Violation {
    Violation {
        kind: Kind::Liveness,
        property: checkers::PROGRESS,
        detail,
    }
}

/// Kinds of machines: a disk that is slow until all is healed; interval clocks, whose width bounds
/// the error of the wall clocks that [`World`] draws, or does not. No rule rests on them yet.
fn equip(world: &mut World, dice: &mut Dice) {
    let names: Vec<NodeName> = world.machines.keys().copied().collect();
    let slow = dice.pick(&names).copied().filter(|_| dice.chance(10));
    if let Some(machine) = slow.and_then(|name| world.machines.get_mut(&name)) {
        machine.disk.latency = (30_000, 300_000);
    }
    let widths = [(1_000_001, 2_000_000), (1_000, 500_000)];
    if let Some((from, to)) = dice.pick(&widths).copied().filter(|_| dice.chance(40)) {
        for machine in world.machines.values_mut() {
            machine.clock.interval_width = Some(dice.between(from, to));
        }
    }
}

/// Kinds of ground: keys that share a segment, many readers, sections that may not last.
fn vary(world: &mut World, ground: &mut Ground, dice: &mut Dice) {
    if dice.chance(35) {
        ground.crowd(world.setup.cluster.segment_bits);
    }
    ground.shared_percent = [15, 15, 60][dice.below(3) as usize];
    if dice.chance(20) {
        ground.hurry();
        let keyspace = Keyspace {
            name: "hurried".into(),
            section_max: 2_500_000,
            ..Keyspace::built_in()[0].clone()
        };
        let session = dice.draw();
        // Again and again, since it may be lost; it takes effect once.
        for at in (500_000..50_000_000).step_by(1_500_000) {
            let body = GroupCommand::CreateKeyspace(keyspace.clone());
            world.at(at, move |w| nemesis::propose(w, session, body));
        }
    }
}

fn setup(seed: u64, planted: Option<Bug>, trace: bool) -> Setup {
    let mut dice = Dice::new(seed ^ 0x5e7_0000);
    let profile = &profile::ALL[dice.below(3) as usize];
    Setup {
        seed,
        profile,
        cluster: cluster::smallest(),
        timing: timing(),
        limits: limits(&mut dice),
        planted: planted.map_or(Planted::NONE, Planted::only),
        flush: [(0, 0), (100, 2_000), (500, 20_000)][dice.below(3) as usize],
        checkpoint_bytes: if dice.chance(10) { 20_000 } else { 64 << 20 },
        drift_ppm: 900,
        trace,
        watch: true,
    }
}

/// At times so small that logs are truncated and replicas catch up by snapshots.
fn limits(dice: &mut Dice) -> Limits {
    let mut limits = Limits::default();
    if dice.chance(50) {
        limits.snapshot_every = dice.between(4, 32);
        limits.chunk = dice.between(64, 2_000) as usize;
    }
    if dice.chance(15) {
        limits.proposals = dice.between(2, 6) as usize;
    }
    if dice.chance(30) {
        limits.window = dice.between(1, 4) as usize;
    }
    limits
}

/// Runs until all workers are done and the faults are over, or the time for progress has passed.
fn drive(world: &mut World, workers: &mut [Worker], plan: &Plan) {
    let deadline = plan.until + PROGRESS_MAX;
    loop {
        // Before they act: an operation that ends at once counts as ended since.
        for client in &mut world.clients {
            client.ended.clear();
        }
        for worker in workers.iter_mut() {
            worker.act(world);
        }
        let rest = workers
            .iter()
            .filter(|w| !w.is_done())
            .map(Worker::rests_until);
        let next = rest.filter(|t| *t > world.now).min().unwrap_or(u64::MAX);
        let done = workers.iter().all(Worker::is_done);
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
    let stuck: Vec<String> = workers
        .iter()
        .filter(|w| !w.is_done())
        .map(Worker::state)
        .collect();
    if !stuck.is_empty() {
        let detail = format!("{PROGRESS_MAX} us after healing: {}", stuck.join("; "));
        world.violations.push(no_progress(detail));
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
            let detail = format!("after healing nobody can read {}", audit.missing());
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
    world.violations.extend(also);
    for violation in world.violations.clone() {
        world.note(|| format!("VIOLATION {}: {}", violation.property, violation.detail));
    }
    Run {
        violations: world.violations,
        virtual_time: world.now,
        events: world.trace.events(),
        trace: world.trace.into_text(),
    }
}
