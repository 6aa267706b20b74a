//! Random runs: nine clients do everything on three keys, while servers stall, die and come back.

use crate::barriers::Call;
use crate::servers::{Servers, alone};
use crate::sites::{Locks, Options, Sites};
use fermata_engine::check::clients::{Client, Network, SITES, Section, value};
use fermata_engine::check::{Heard, What};
use fermata_peers::Cluster;
use fermata_protocol::base::KeyId;
use fermata_protocol::request::{Code, Mode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// A run is not over before.
const LENGTH: Duration = Duration::from_secs(25);
const CLIENTS: usize = 9;
const KEYS: [&str; 3] = ["a", "b", "c"];
/// Shorter than most: a third of a run is waited for those who died.
const LEASE: Duration = Duration::from_millis(1_500);
/// How long servers stand still: longer than messages live.
const STALL: Duration = Duration::from_millis(3_500);

struct Worker {
    client: Client,
    sites: Arc<Sites>,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn work(mut self) {
        while !self.over.load(Relaxed) {
            let k = self
                .sites
                .key(KEYS[self.client.below(KEYS.len() as u64) as usize]);
            let node = self.client.some_node();
            match self.client.below(10) {
                0 => {
                    let value = self.client.fresh();
                    self.client.offer_at(node, &k, value).await;
                }
                1 => {
                    self.client.look_at(node, &k).await;
                }
                2 => self.reads(&k).await,
                _ => self.section(&k).await,
            }
            self.client.nap(30).await;
        }
    }

    /// Enters, at one node after another, unless the run ends before.
    async fn enter(&mut self, k: &KeyId, mode: Mode) -> Option<Section> {
        let mut enter = self.client.wants(mode);
        let mut node = self.client.site;
        while !self.over.load(Relaxed) {
            let wait = Duration::from_secs(3);
            let entered = self.client.enter_at(node, k, &mut enter, wait).await;
            if entered.is_some() {
                return entered;
            }
            if self
                .sites
                .history
                .is_over(self.client.session, enter.number())
            {
                enter = self.client.wants(mode);
            }
            node = (node + 1) % SITES;
            self.client.nap(100).await;
        }
        None
    }

    async fn reads(&mut self, k: &KeyId) {
        let Some(section) = self.enter(k, Mode::Shared).await else {
            return;
        };
        let node = self.client.some_node();
        self.client.get_at(node, &section).await;
        self.client.leave_at(node, section).await;
    }

    async fn section(&mut self, k: &KeyId) {
        let Some(mut section) = self.enter(k, Mode::Exclusive).await else {
            return;
        };
        for _ in 0..self.client.below(4) {
            section = match self.step(section).await {
                Some(section) => section,
                None => return,
            };
        }
        // Else it dies: nobody renews any more.
        if self.client.below(24) > 0 {
            let node = self.client.some_node();
            self.client.leave_at(node, section).await;
        }
    }

    async fn step(&mut self, mut section: Section) -> Option<Section> {
        let node = self.client.some_node();
        match self.client.below(48) {
            0 => {
                // It is paused, and taken for dead; then it goes on.
                section.falls_silent();
                let leases = LEASE.as_millis() as u64;
                sleep(LEASE + Duration::from_millis(self.client.below(leases))).await;
                let value = self.client.fresh();
                self.client.put_at(node, &mut section, value).await;
            }
            1 => {
                // It is paused between the check of its put and the write.
                section.falls_silent();
                let hold = self.sites.barriers[node].hold(Call::Write);
                let leases = LEASE.as_millis() as u64;
                let pause = LEASE + Duration::from_millis(self.client.below(leases));
                let value = self.client.fresh();
                let put = self.client.put_at(node, &mut section, value);
                let goes_on = async {
                    sleep(pause).await;
                    hold.end();
                };
                tokio::join!(put, goes_on);
            }
            2 => {
                let held = section.held.clone();
                return self.client.resume_at(node, &held).await;
            }
            3..=19 => {
                self.client.get_at(node, &section).await;
            }
            _ => {
                let value = self.client.fresh();
                self.client.put_at(node, &mut section, value).await;
            }
        }
        Some(section)
    }
}

/// A section whose put reaches one replica only, and which then is silent, or left.
async fn plants(sites: &Arc<Sites>, servers: &'static Servers, leaves: bool) {
    let site = sites.below(SITES as u64) as usize;
    let mut client = sites.client_with(20 + usize::from(leaves), site, LEASE);
    let k = sites.key(KEYS[sites.below(KEYS.len() as u64) as usize]);
    let mut enter = client.wants(Mode::Exclusive);
    let wait = Duration::from_secs(5);
    let Some(mut section) = client.enter_at(site, &k, &mut enter, wait).await else {
        return;
    };
    let others = [(site + 1) % SITES, (site + 2) % SITES];
    sites.say(format!(
        "all but {site} stall, for a put that one replica has"
    ));
    servers.stop(&others);
    let put = client.put_at(site, &mut section, value(&format!("planted {leaves}")));
    tokio::join!(put, servers.go_on(&others));
    sites.say("all is up");
    if leaves {
        client.leave_at(site, section).await;
    }
}

async fn kill(sites: &Sites, cluster: &'static Cluster, node: u8) {
    sites.say(format!("node {node} dies"));
    cluster.kill_node(node).expect("it is up");
    sleep(Duration::from_secs(1)).await;
    let starts = spawn_blocking(move || cluster.start_node(node));
    starts.await.expect("no panic").expect("it comes back");
    sites.say(format!("node {node} is back"));
}

async fn stalls(sites: &Sites, cluster: &'static Cluster, node: u8) {
    sites.say(format!("node {node} stalls"));
    cluster.stop_node(node).expect("it is up");
    sleep(STALL).await;
    cluster.continue_node(node).expect("it is up");
    sites.say(format!("node {node} goes on"));
}

async fn nemesis(sites: &Arc<Sites>, servers: &'static Servers, locks: Locks) {
    let since = Instant::now();
    sleep(Duration::from_secs(2)).await;
    for node in 1..=3 {
        stalls(sites, servers.cassandra, node).await;
        if locks == Locks::Zookeeper {
            stalls(sites, servers.zookeeper, node).await;
        }
        sleep(Duration::from_millis(500)).await;
    }
    plants(sites, servers, false).await;
    plants(sites, servers, true).await;
    let node = 1 + sites.below(SITES as u64) as u8;
    match locks {
        Locks::Cassandra => kill(sites, servers.cassandra, node).await,
        Locks::Zookeeper => {
            // One of them leads.
            for node in 1..=3 {
                kill(sites, servers.zookeeper, node).await;
            }
        }
    }
    sleep(LENGTH.saturating_sub(since.elapsed())).await;
}

/// When all is calm every key can be entered, from every site.
async fn calm(sites: &Arc<Sites>) {
    for (site, name) in KEYS.iter().enumerate() {
        let mut client = sites.client_with(30 + site, site, 10 * LEASE);
        let k = sites.key(name);
        let section = client.enter(&k, Mode::Exclusive).await;
        let Some(mut section) = section else {
            panic!("{name} cannot be entered\n{}", sites.report(&[]));
        };
        let last = value(&format!("last {name}"));
        assert!(client.put_at(site, &mut section, last.clone()).await);
        assert!(client.leave_at(site, section).await);
        let mut reader = sites.client_with(40 + site, (site + 1) % SITES, 10 * LEASE);
        let section = reader.enter(&k, Mode::Shared).await;
        let section = section.expect("it is free");
        assert_eq!(section.entry, Some(last));
        reader.leave_at(site, section).await;
    }
}

/// What became of what was asked, counted.
fn counts(sites: &Sites) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for op in sites.history.seen().ops {
        let what = match op.what {
            What::Enter { resumes, .. } if resumes.is_empty() => "enter",
            What::Enter { .. } => "resume",
            What::Put { .. } => "put",
            What::Get(_) => "get",
            What::Leave => "leave",
            What::EventualPut(..) => "eventual put",
            What::EventualGet(_) => "eventual get",
            _ => continue,
        };
        let outcome = match op.outcome {
            Heard::Waits => "waited",
            Heard::Failed(Code::NoLongerHolder) => "past",
            Heard::Failed(_) => "refused",
            Heard::Done(_) | Heard::Value(_) => "done",
            _ => "unknown",
        };
        *counts.entry(format!("{what} {outcome}")).or_default() += 1;
    }
    counts
}

fn run(locks: Locks) {
    alone(async |servers| {
        let options = Options {
            patience: Duration::from_secs(5),
            ..Options::new(locks)
        };
        let sites = Sites::new("random", servers.stores().await, options);
        let since = Instant::now();
        let over = Arc::new(AtomicBool::new(false));
        let workers = (1..=CLIENTS).map(|who| {
            let worker = Worker {
                client: sites.client_with(who, who % SITES, LEASE),
                sites: Arc::clone(&sites),
                over: Arc::clone(&over),
            };
            tokio::spawn(worker.work())
        });
        let workers: Vec<_> = workers.collect();
        nemesis(&sites, servers, locks).await;
        over.store(true, Relaxed);
        for worker in workers {
            worker.await.expect("no client panics");
        }
        calm(&sites).await;
        let counts = counts(&sites);
        let took = since.elapsed().as_secs();
        println!("random, locks in {locks:?}, {took} s: {counts:?}");
        let entered = counts.get("enter done").copied().unwrap_or_default();
        let found = sites.wrong();
        assert!(found.is_empty(), "{}", sites.report(&found));
        assert!(entered > CLIENTS, "too little was done: {counts:?}");
    });
}

#[test]
fn random_sections_with_locks_in_cassandra() {
    run(Locks::Cassandra);
}

#[test]
fn random_sections_with_locks_in_zookeeper() {
    run(Locks::Zookeeper);
}
