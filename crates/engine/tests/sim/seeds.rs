//! Random runs: clients that do everything, a world in which everything goes wrong, and at the end
//! a calm in which everything must work. A seed replays exactly.
//!
//! `SIM_SEEDS=first..last` says which seeds are run, `SIM_BUG=name` plants a wrong rule.

use crate::clients::{Client, Cluster, LEASE, Section, key, value};
use crate::scenarios::{Under, cluster};
use crate::world::{Call, Faults, SITES, Step, World, on};
use fermata_engine::check::{Promise, Violation};
use fermata_engine::{Bug, Planted};
use fermata_protocol::base::KeyId;
use fermata_protocol::request::Mode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long things go wrong.
const CHAOS: Duration = Duration::from_secs(90);
const CLIENTS: usize = 6;
const KEYS: [&str; 2] = ["a", "b"];

const CALLS: [Call; 8] = [
    Call::Peek,
    Call::Read,
    Call::Swap,
    Call::Propose,
    Call::Changed,
    Call::DataRead,
    Call::Write,
    Call::Offer,
];

struct Worker {
    client: Client,
    cluster: Arc<Cluster>,
    sections: usize,
    /// Makes eventual puts: in the runs of odd seeds.
    offers: bool,
}

impl Worker {
    async fn work(mut self, until: Instant) -> usize {
        while Instant::now() < until {
            let k = key(KEYS[self.client.below(KEYS.len() as u64) as usize]);
            let node = self.client.some_node();
            match self.client.below(10) {
                0 | 1 if self.offers => {
                    let value = self.client.fresh();
                    self.client.offer_at(node, &k, value).await;
                }
                2 => {
                    self.client.look_at(node, &k).await;
                }
                3 => self.reads(&k).await,
                _ => self.section(&k).await,
            }
            self.client.nap(400).await;
        }
        self.sections
    }

    async fn reads(&mut self, k: &KeyId) {
        let Some(section) = self.client.enter(k, Mode::Shared).await else {
            return;
        };
        self.sections += 1;
        let node = self.client.some_node();
        self.client.get_at(node, &section).await;
        if self.client.below(8) > 0 {
            self.client.leave_at(node, section).await;
        }
    }

    async fn section(&mut self, k: &KeyId) {
        if self.client.below(3) == 0 {
            self.repeats(k);
        }
        let Some(mut section) = self.client.enter(k, Mode::Exclusive).await else {
            return;
        };
        self.sections += 1;
        for _ in 0..self.client.below(4) {
            section = match self.step(section).await {
                Some(section) => section,
                None => return,
            };
        }
        if self.client.below(8) > 0 {
            let node = self.client.some_node();
            self.client.leave_at(node, section).await;
        }
        // Else it dies: nobody renews any more.
    }

    /// The enter that comes next is sent to a second node, a little later.
    fn repeats(&self, k: &KeyId) {
        let (node, wait) = (
            self.client.some_node(),
            Duration::from_millis(self.client.below(1_500)),
        );
        let (repeats, mut enter) = self.client.repeats();
        let (history, number) = (Arc::clone(&self.cluster.history), enter.number());
        let k = k.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            if !history.is_entered(repeats.session, number) {
                repeats.enter_at(node, &k, &mut enter, 5 * LEASE).await;
            }
        });
    }

    async fn step(&mut self, mut section: Section) -> Option<Section> {
        let node = self.client.some_node();
        match self.client.below(12) {
            0 => {
                // It is paused, and taken for dead; then it goes on.
                section.falls_silent();
                let leases = LEASE.as_millis() as u64;
                sleep(Duration::from_millis(
                    leases / 2 + self.client.below(2 * leases),
                ))
                .await;
                let value = self.client.fresh();
                self.client.put_at(node, &mut section, value).await;
            }
            1 => {
                let held = section.held.clone();
                return self.client.resume_at(node, &held).await;
            }
            2 => {
                // A put that reaches one replica.
                let only = self.client.below(SITES as u64) as usize;
                let others: Vec<usize> = (0..SITES).filter(|r| *r != only).collect();
                let to = on(&[Call::Write]).node(node).step(Step::To).peers(&others);
                let partial = self.cluster.world.lose(to);
                let value = self.client.fresh();
                self.client.put_at(node, &mut section, value).await;
                self.cluster.world.end(partial);
            }
            3..=6 => {
                self.client.get_at(node, &section).await;
            }
            _ => {
                let value = self.client.fresh();
                self.client.put_at(node, &mut section, value).await;
            }
        }
        self.client.nap(300).await;
        Some(section)
    }
}

/// Stalls, kills, cuts.
async fn nemesis(cluster: Arc<Cluster>, until: Instant) {
    let world = Arc::clone(&cluster.world);
    while Instant::now() < until {
        sleep(Duration::from_millis(500 + world.below(3_000))).await;
        let site = world.below(SITES as u64) as usize;
        let long = Duration::from_millis(200 + world.below(7_000));
        match world.below(10) {
            0 => {
                world.say(format!("node {site} stalls"));
                world.stall_node(site, true);
                sleep(long).await;
                world.stall_node(site, false);
            }
            1 => {
                world.say(format!("replica {site} stalls"));
                world.stall_replica(site, true);
                sleep(long).await;
                world.stall_replica(site, false);
            }
            2 => {
                world.say(format!("node {site} dies"));
                cluster.restart(site);
            }
            3 => {
                world.say(format!("replica {site} is down"));
                world.down_replica(site, true);
                sleep(long).await;
                world.down_replica(site, false);
            }
            4 => {
                world.say(format!("site {site} is cut off"));
                let others = [(site + 1) % SITES, (site + 2) % SITES];
                others
                    .iter()
                    .for_each(|other| world.cut(site, *other, true));
                sleep(long).await;
                others
                    .iter()
                    .for_each(|other| world.cut(site, *other, false));
            }
            5..=8 => {
                // One kind of call of one node stands still where it is.
                let call = CALLS[world.below(CALLS.len() as u64) as usize];
                let step = [Step::Begin, Step::End, Step::To][world.below(3) as usize];
                world.say(format!(
                    "{call:?} of node {site} stands still at its {step:?}"
                ));
                let times = 1 + world.below(3) as usize;
                let rule = world.hold(on(&[call]).node(site).step(step).times(times));
                sleep(long).await;
                world.end(rule);
            }
            _ => {
                let other = (site + 1) % SITES;
                world.say(format!("sites {site} and {other} are cut"));
                world.cut(site, other, true);
                sleep(long).await;
                world.cut(site, other, false);
            }
        }
        world.say("all is up");
    }
}

/// When all is calm: every key can be entered, an eventual put is seen by the next section, and a
/// section's put by everybody.
async fn calm(cluster: &Arc<Cluster>, seed: u64) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wrong = |promise, sentence: String| found.push(Violation { promise, sentence });
    // Until the last repetition of an enter has been given up, and its ref is gone.
    sleep(10 * LEASE).await;
    cluster.world.repair_all();
    for (number, name) in KEYS.iter().enumerate() {
        let (k, node) = (key(name), (number + seed as usize) % SITES);
        let mut client = cluster.client(100 + number, node);
        let Some(section) = client.enter(&k, Mode::Exclusive).await else {
            wrong(
                Promise::Refs,
                format!("{name} cannot be entered, though all is calm"),
            );
            continue;
        };
        client.leave_at(node, section).await;
        sleep(Duration::from_secs(2)).await;
        let eventual = value(&format!("e{number}"));
        if !client.offer_at(node, &k, eventual.clone()).await {
            wrong(
                Promise::Eventual,
                format!("{name} takes no put, though it is free"),
            );
        }
        sleep(Duration::from_secs(1)).await;
        let other = (node + 1) % SITES;
        let mut client = cluster.client(200 + number, other);
        let entered = client.enter(&k, Mode::Exclusive).await;
        let Some(mut section) = entered else {
            wrong(Promise::Refs, format!("{name} cannot be entered again"));
            continue;
        };
        if section.entry != Some(eventual) {
            let text = format!(
                "the put of {name} is hidden: the entry is {:?}",
                section.entry
            );
            wrong(Promise::Eventual, text);
        }
        let last = value(&format!("w{number}"));
        client.put_at(other, &mut section, last.clone()).await;
        client.leave_at(other, section).await;
        sleep(Duration::from_secs(1)).await;
        for node in 0..SITES {
            let seen = client.look_at(node, &k).await;
            if seen != Some(last.clone()) {
                wrong(
                    Promise::Eventual,
                    format!("node {node} shows {seen:?} of {name}"),
                );
            }
        }
    }
    found
}

struct RunEnd {
    sections: usize,
    found: Vec<Violation>,
    trace: Vec<String>,
}

fn run(seed: u64, planted: Planted) -> RunEnd {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread");
    runtime.block_on(async move {
        let world = World::new(seed, Faults::default());
        let faults = Faults {
            lost: world.below(3) * 4,
            late: world.below(3) * 4,
            unknown: world.below(3) * 30,
            uncommitted: world.below(3) * 60,
            jitter: 50,
        };
        world.set_faults(faults);
        let cluster = cluster(Under::Ours(planted), &world);
        let until = Instant::now() + CHAOS;
        let workers = (1..=CLIENTS).map(|who| {
            let worker = Worker {
                client: cluster.client(who, who % SITES),
                cluster: Arc::clone(&cluster),
                sections: 0,
                offers: seed % 2 == 1,
            };
            tokio::spawn(worker.work(until))
        });
        let workers: Vec<_> = workers.collect();
        nemesis(Arc::clone(&cluster), until).await;
        world.heal();
        let mut sections = 0;
        for worker in workers {
            sections += worker.await.expect("no worker panics");
        }
        let mut found = calm(&cluster, seed).await;
        found.extend(cluster.history.wrong());
        RunEnd {
            sections,
            found,
            trace: world.trace(),
        }
    })
}

fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("SIM_SEEDS").unwrap_or_default();
    let ends = asked.split_once("..").map(|(a, b)| (a.parse(), b.parse()));
    match ends {
        Some((Ok(first), Ok(last))) => first..last,
        _ => 1..13,
    }
}

fn planted() -> Planted {
    let bug = std::env::var("SIM_BUG").ok();
    let bug = bug.map(|name| Bug::named(&name).expect("a planted bug"));
    bug.map_or(Planted::NONE, Planted::only)
}

#[test]
fn random_runs_find_nothing() {
    let mut wrong = 0;
    for seed in seeds() {
        let outcome = run(seed, planted());
        println!("seed {seed}: {} sections", outcome.sections);
        for violation in &outcome.found {
            println!("  {:?}: {}", violation.promise, violation.sentence);
        }
        if !outcome.found.is_empty() && wrong == 0 {
            println!("{}", outcome.trace.join("\n"));
        }
        wrong += outcome.found.len();
    }
    assert_eq!(wrong, 0, "see above");
}

#[test]
fn a_seed_replays_exactly() {
    assert_eq!(run(3, Planted::NONE).trace, run(3, Planted::NONE).trace);
}
