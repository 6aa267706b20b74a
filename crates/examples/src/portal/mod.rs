//! Portal: active replication with owner failover, MUSIC §VII(b).
//!
//! **Problem.** A portal keeps users' roles at several sites. Each user's updates must go through
//! one owner at a time; an owner that dies, or seems to, must be replaced at once; and no update
//! that was acknowledged to a user may be lost in the change.
//!
//! **Idea.** Front ends at all sites send each update to the back-end replica that owns the user
//! ([`replica`]). If it does not answer in time, they send it to another one, which ends the old
//! owner's section by force and goes on from the latest roles. The same update may thus be sent
//! twice; its id in the user's value makes the second time harmless.
//!
//! **Departure from the paper.** The portal of the paper keeps who owns whom in MUSIC; here each
//! front end remembers whom it asked last, and the lock queue says who owns.

mod replica;
mod state;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::replica::{KEYSPACE, Request};
use self::state::{Roles, Seen, Update};
use crate::latency::Latencies;
use crate::stage::{
    Mortal, Progress, Report, STUCK, client_at, kill_node, locked, options_at, read_all,
    restart_node, sections_with, sites,
};
use crate::{Cluster, Error};

const FRONT_ENDS: usize = 12;
const USERS_PER_FRONT_END: usize = 8;
const UPDATES_PER_USER: u64 = 20;

/// An owner that does not answer in this time is taken for dead. A front end that has taken one for
/// dead gives the next ones twice as long, for all may be slow, until they answer in a quarter of
/// that: else every owner of a slow cluster would be replaced by another that is as slow.
const SUSPICION: Duration = Duration::from_millis(1_500);

/// No owner gets longer.
const SUSPICION_MAX: Duration = Duration::from_secs(24);

/// A new owner gets longer: a living old one may go on until its lease runs out.
const TAKE_OVER_MAX: Duration = Duration::from_secs(8);

/// How long a dead replica keeps its users from one that does not suspect it.
const LEASE: Duration = Duration::from_secs(3);

/// A front end gives an update up after so many owners, its outcome unknown.
const TRIES_MAX: usize = 20;

const NODE_DOWN: Duration = Duration::from_secs(4);

/// What the front ends share with the observer.
struct Shared {
    /// Where requests go, by site; replaced with the replica.
    replicas: Mutex<Vec<mpsc::Sender<Request>>>,
    seen: Mutex<BTreeMap<String, Seen>>,
    settled: AtomicU64,
    /// The next so many updates take their living owner for dead.
    false_suspicions: AtomicU64,
    failovers: AtomicU64,
    latencies: Arc<Latencies>,
}

/// Runs the example to its end, on a fresh cluster.
///
/// # Errors
/// One sentence: there is no verdict, since the cluster could not be used.
pub async fn run(cluster: &mut dyn Cluster) -> Result<Report, Error> {
    let sites = sites(cluster);
    let observer = client_at(cluster, &sites[0]).await?;
    observer
        .create_keyspace(sections_with(KEYSPACE, LEASE))
        .await?;
    let shared = Arc::new(Shared {
        replicas: Mutex::default(),
        seen: Mutex::default(),
        settled: AtomicU64::new(0),
        false_suspicions: AtomicU64::new(0),
        failovers: AtomicU64::new(0),
        latencies: Arc::default(),
    });
    let mut replicas = Vec::new();
    for site in &sites {
        let (sender, mortal) = start_replica(cluster, site, &shared)?;
        locked(&shared.replicas).push(sender);
        replicas.push(mortal);
    }
    let all = (FRONT_ENDS * USERS_PER_FRONT_END) as u64 * UPDATES_PER_USER;
    let progress = Progress::new(all, "updates settled");
    let mut front_ends = JoinSet::new();
    for number in 0..FRONT_ENDS {
        front_ends.spawn(front_end(number, sites.len(), shared.clone()));
    }
    let mut target = Target {
        cluster,
        sites: &sites,
        shared: &shared,
        replicas: &mut replicas,
        progress: &progress,
    };
    strike(&mut target, &mut front_ends, all).await?;
    // The replicas leave their users once nobody can ask them any more.
    locked(&shared.replicas).clear();
    for replica in replicas {
        replica.join().await?;
    }
    let users: Vec<String> = locked(&shared.seen).keys().cloned().collect();
    let finals = finals(&observer, &users).await?;
    let seen = std::mem::take(&mut *locked(&shared.seen));
    let acknowledged = (seen.values().flat_map(|seen| &seen.updates))
        .filter(|(_, acknowledged)| *acknowledged)
        .count() as u64;
    let (faults, took) = progress.finish();
    Ok(Report {
        title: format!("portal: {FRONT_ENDS} front ends, {} replicas", sites.len()),
        faults,
        figures: vec![
            ("users", users.len() as u64),
            ("updates acknowledged", acknowledged),
            ("updates of unknown outcome", all - acknowledged),
            (
                "failovers of an owner",
                shared.failovers.load(Ordering::Relaxed),
            ),
        ],
        checks: state::judge(&seen, &finals),
        latencies: shared.latencies.lines(),
        took,
    })
}

fn start_replica(
    cluster: &dyn Cluster,
    site: &str,
    shared: &Shared,
) -> Result<(mpsc::Sender<Request>, Mortal), Error> {
    const REQUESTS_WAITING_MAX: usize = 256;
    let (sender, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
    let options = options_at(cluster, site);
    let (site, latencies) = (site.to_owned(), shared.latencies.clone());
    let work = move || replica::serve(site, options, requests, latencies);
    Ok((sender, Mortal::start("replica", work)?))
}

/// Sends the updates of its users, one after the other.
async fn front_end(number: usize, sites: usize, shared: Arc<Shared>) {
    let mut owners = [number % sites; USERS_PER_FRONT_END];
    let mut suspicion = SUSPICION;
    for round in 0..UPDATES_PER_USER {
        for (index, owner) in owners.iter_mut().enumerate() {
            let user = format!("user-{:03}", number * USERS_PER_FRONT_END + index);
            let update = Update {
                id: round,
                role: format!("role-{}", round % 5),
                grant: round % 3 != 2,
            };
            let entry = (update.clone(), false);
            locked(&shared.seen)
                .entry(user.clone())
                .or_default()
                .updates
                .push(entry);
            let owner = (owner, &mut suspicion);
            let acknowledged = send(&user, &update, owner, sites, &shared).await;
            if let Some(seen) = locked(&shared.seen).get_mut(&user)
                && let Some(last) = seen.updates.last_mut()
            {
                last.1 = acknowledged;
            }
            shared.settled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends one update to its owner, and to the next replica if that does not answer. Whether it was
/// acknowledged; if not, nobody knows whether it took effect.
async fn send(
    user: &str,
    update: &Update,
    (owner, suspicion): (&mut usize, &mut Duration),
    sites: usize,
    shared: &Shared,
) -> bool {
    let suspect = |count: u64| count.checked_sub(1);
    let suspected = &shared.false_suspicions;
    let mut take_over = suspected
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, suspect)
        .is_ok();
    if take_over {
        *owner = (*owner + 1) % sites;
    }
    let start = std::time::Instant::now();
    for _ in 0..TRIES_MAX {
        if take_over {
            shared.failovers.fetch_add(1, Ordering::Relaxed);
        }
        let (done, answered) = oneshot::channel();
        let request = Request {
            user: user.to_owned(),
            update: update.clone(),
            take_over,
            done,
        };
        let replica = locked(&shared.replicas)[*owner].clone();
        let exchange = async {
            replica.send(request).await.ok()?;
            answered.await.ok()
        };
        let patience = match take_over {
            true => TAKE_OVER_MAX.max(*suspicion),
            false => *suspicion,
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(Some(())) => {
                if start.elapsed() < *suspicion / 4 {
                    *suspicion = (*suspicion / 2).max(SUSPICION);
                }
                shared.latencies.note("(front ends)", "update", start);
                return true;
            }
            // A refusal says nothing of how slow owners are.
            Ok(None) => {}
            Err(_) => *suspicion = (*suspicion * 2).min(SUSPICION_MAX),
        }
        // Dead, or so it seems. A refusal that came at once is not repeated at once.
        tokio::time::sleep(Duration::from_millis(50)).await;
        *owner = (*owner + 1) % sites;
        take_over = true;
    }
    false
}

/// A fault.
#[derive(Clone, Copy)]
enum Fault {
    /// The next so many updates take their living owner for dead.
    Suspect(u64),
    /// The replica of that site dies; a new one starts.
    KillReplica(usize),
    /// The node dies.
    KillNode(usize),
    /// The node comes back.
    RestartNode(usize),
}

/// What can be struck.
struct Target<'a> {
    cluster: &'a mut dyn Cluster,
    sites: &'a [String],
    shared: &'a Shared,
    replicas: &'a mut [Mortal],
    progress: &'a Progress,
}

impl Target<'_> {
    /// Injects one fault.
    async fn suffer(&mut self, fault: Fault) -> Result<(), Error> {
        let what = match fault {
            Fault::Suspect(count) => {
                let suspicions = &self.shared.false_suspicions;
                suspicions.fetch_add(count, Ordering::Relaxed);
                format!("{count} living owners will be taken for dead")
            }
            Fault::KillReplica(index) => {
                let site = &self.sites[index];
                let (sender, mortal) = start_replica(self.cluster, site, self.shared)?;
                std::mem::replace(&mut self.replicas[index], mortal).kill();
                locked(&self.shared.replicas)[index] = sender;
                format!("replica at {site} killed, a new one started")
            }
            Fault::KillNode(node) => {
                kill_node(self.cluster, node, self.progress).await;
                return Ok(());
            }
            Fault::RestartNode(node) => {
                return restart_node(self.cluster, node, self.progress);
            }
        };
        self.progress.fault(&what);
        Ok(())
    }
}

/// Injects faults at marks of the progress until the front ends have ended.
async fn strike(
    target: &mut Target<'_>,
    front_ends: &mut JoinSet<()>,
    all: u64,
) -> Result<(), Error> {
    let last = target.sites.len() - 1;
    let faults = [
        (10, Fault::Suspect(10)),
        (25, Fault::KillReplica(0)),
        (40, Fault::KillNode(last)),
        (60, Fault::Suspect(20)),
        (75, Fault::KillReplica(last)),
    ];
    let mut faults = faults.into_iter().peekable();
    let mut restart: Option<tokio::time::Instant> = None;
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    while !front_ends.is_empty() {
        tokio::select! {
            _ = tick.tick() => {}
            Some(ended) = front_ends.join_next() => {
                ended.map_err(Error::internal)?;
            }
        }
        let settled = target.shared.settled.load(Ordering::Relaxed);
        target.progress.set(settled);
        if target.progress.is_stuck() {
            let sentence = format!(
                "{settled} of {all} updates were settled, and none for {} s",
                STUCK.as_secs()
            );
            return Err(Error::Stuck(sentence));
        }
        if restart.is_some_and(|at| tokio::time::Instant::now() >= at) {
            restart = None;
            target.suffer(Fault::RestartNode(last)).await?;
        }
        if let Some((_, fault)) = faults.next_if(|(mark, _)| settled * 100 / all >= *mark) {
            target.suffer(fault).await?;
            if matches!(fault, Fault::KillNode(_)) {
                restart = Some(tokio::time::Instant::now() + NODE_DOWN);
            }
        }
    }
    if restart.is_some() {
        target.suffer(Fault::RestartNode(last)).await?;
    }
    Ok(())
}

/// The users' roles after the run, each read in a section of its own.
async fn finals(
    client: &fermata_client::Client,
    users: &[String],
) -> Result<BTreeMap<String, Roles>, Error> {
    let values = read_all(client, KEYSPACE, users.iter().map(String::as_str)).await?;
    let roles = |value: Option<Bytes>| {
        let roles = value.and_then(|value| serde_json::from_slice(&value).ok());
        roles.unwrap_or_default()
    };
    Ok(users
        .iter()
        .cloned()
        .zip(values.into_iter().map(roles))
        .collect())
}
