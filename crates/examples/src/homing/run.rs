//! The run: a front end submits the jobs, workers on all sites do them, faults strike at stated
//! points of the progress, and the history is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fermata_client::{Client, Code, LockRef};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::data::{self, Regions, Request};
use super::history::{self, Event};
use super::job::Job;
use super::worker::{KEYSPACE, Open, SLOW_STEP, Shared, Worker};
use crate::stage::{
    Mortal, OPEN, Progress, Report, STUCK, client_at, kill_node, locked, options_at, read_all,
    restart_node, sections_with, sites,
};
use crate::{Cluster, Error};

/// Workers at each site.
const WORKERS_PER_SITE: usize = 4;

/// How long a dead worker's job waits for the next: the lease of its section.
const LEASE: Duration = Duration::from_secs(2);

// A worker that is taken for dead must still be at its step when its section ends by force.
const _: () = assert!(SLOW_STEP.as_millis() >= 3 * LEASE.as_millis() / 2);

/// How long the killed node stays down.
const NODE_DOWN: Duration = Duration::from_secs(4);

/// A fault, at a percentage of the jobs done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillWorker,
    SuspectWorker,
    KillNode,
}

const FAULTS: [(u64, Fault); 13] = [
    (5, Fault::KillWorker),
    (10, Fault::SuspectWorker),
    (18, Fault::KillWorker),
    (24, Fault::SuspectWorker),
    (30, Fault::KillNode),
    (36, Fault::KillWorker),
    (42, Fault::SuspectWorker),
    (50, Fault::SuspectWorker),
    (56, Fault::KillWorker),
    (62, Fault::SuspectWorker),
    (70, Fault::KillWorker),
    (76, Fault::SuspectWorker),
    (84, Fault::KillWorker),
];

/// Runs the example to its end, on a fresh cluster.
///
/// # Errors
/// One sentence: there is no verdict, since the cluster could not be used.
pub async fn run(cluster: &mut dyn Cluster) -> Result<Report, Error> {
    let regions = Regions::shipped().map_err(Error::internal)?;
    let requests = data::shipped_requests().map_err(Error::internal)?;
    let sites = sites(cluster);
    let front_end = client_at(cluster, &sites[0]).await?;
    let keyspace = sections_with(KEYSPACE, LEASE);
    front_end.create_keyspace(keyspace).await?;
    let progress = Progress::new(requests.len() as u64, "jobs done");
    submit(&front_end, &requests).await?;

    let keys = requests.iter().map(|request| request.job.clone()).collect();
    let shared = Arc::new(Shared::new(regions, keys, progress.clone()));
    let mut crew = Crew::hire(cluster, &sites, &shared)?;
    let observer = client_at(cluster, &sites[sites.len() - 1]).await?;
    struck(cluster, &mut crew, &observer, &progress, &requests).await?;
    shared.stop.store(true, Ordering::Relaxed);
    crew.dismiss().await?;

    let finals = finals(&observer, &requests).await?;
    let events = std::mem::take(&mut *locked(&shared.events));
    let judgement = history::judge(&events, &requests, &finals, &shared.regions);
    let figures = vec![
        ("jobs", requests.len() as u64),
        ("sections entered", judgement.sections),
        ("acknowledged steps", judgement.acknowledged),
        ("takeovers in the middle of a job", judgement.takeovers),
        (
            "of them from a step whose worker never heard of its success",
            judgement.adopted,
        ),
        (
            "living workers whose section ended by force, and whose late put was refused",
            judgement.refused_late,
        ),
    ];
    let (faults, took) = progress.finish();
    Ok(Report {
        title: title(&shared.regions, sites.len()),
        faults,
        figures,
        checks: judgement.checks(),
        latencies: shared.latencies.lines(),
        took,
    })
}

fn title(regions: &Regions, sites: usize) -> String {
    let cities: BTreeSet<&str> = regions.iter().map(|region| region.city.as_str()).collect();
    format!(
        "homing: {} workers on {sites} sites, {} cloud regions in {} cities",
        WORKERS_PER_SITE * sites,
        regions.len(),
        cities.len()
    )
}

/// The front end: an eventual put per job, without any lock.
async fn submit(client: &Client, requests: &[Request]) -> Result<(), Error> {
    let puts = requests.iter().map(|request| async move {
        let job = Job::submitted(request.clone()).map_err(Error::internal)?;
        let value = Bytes::from(job.encode().map_err(Error::internal)?);
        client.put(KEYSPACE, request.job.as_bytes(), value).await?;
        Ok::<(), Error>(())
    });
    stream::iter(puts)
        .buffer_unordered(OPEN)
        .try_collect()
        .await
}

/// Watches the progress and strikes at its marks, until every job is done.
async fn struck(
    cluster: &mut dyn Cluster,
    crew: &mut Crew,
    observer: &Client,
    progress: &Progress,
    requests: &[Request],
) -> Result<(), Error> {
    let mut faults = FAULTS.iter().peekable();
    let mut node_back = None;
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let down = 1.min(cluster.nodes().len() - 1);
    while crew.shared.done() < requests.len() {
        tick.tick().await;
        let done = crew.shared.done() as u64;
        progress.set(done);
        if progress.is_stuck() {
            return Err(stuck(crew, requests));
        }
        let percent = done * 100 / requests.len() as u64;
        if node_back.is_some_and(|at| tokio::time::Instant::now() >= at) {
            node_back = None;
            restart_node(cluster, down, progress)?;
        }
        crew.replace_the_dead(cluster)?;
        let Some((_, fault)) = faults.next_if(|(mark, _)| percent >= *mark) else {
            continue;
        };
        match fault {
            Fault::KillWorker => crew.kill_one(progress, requests),
            Fault::SuspectWorker => suspect_one(crew, observer, progress, requests).await,
            Fault::KillNode => {
                kill_node(cluster, down, progress).await;
                node_back = Some(tokio::time::Instant::now() + NODE_DOWN);
            }
        }
    }
    if node_back.is_some() {
        restart_node(cluster, down, progress)?;
    }
    progress.set(requests.len() as u64);
    Ok(())
}

/// Names the jobs that nobody finishes.
fn stuck(crew: &Crew, requests: &[Request]) -> Error {
    let done = locked(&crew.shared.done);
    let open = requests
        .iter()
        .enumerate()
        .filter(|(index, _)| !done.contains(index));
    let open: Vec<&str> = open.map(|(_, request)| request.job.as_str()).collect();
    let sentence = format!(
        "{} jobs were not finished, and none was for {} s: {}",
        open.len(),
        STUCK.as_secs(),
        open.iter().take(10).copied().collect::<Vec<_>>().join(", ")
    );
    Error::Stuck(sentence)
}

/// Takes a living worker for dead: ends its section by force, from another site. It is slow from
/// now on, since a forced release waits for its lease, and a fast worker would have left by then.
async fn suspect_one(
    crew: &mut Crew,
    observer: &Client,
    progress: &Progress,
    requests: &[Request],
) {
    let Some(open) = crew.slow_down_one().await else {
        return;
    };
    let job = requests[open.job].job.clone();
    progress.fault(&format!(
        "worker {} is slow in {job}, and taken for dead after {} steps: release by force asked",
        open.worker, open.steps
    ));
    let (observer, progress) = (observer.clone(), progress.clone());
    let shared = crew.shared.clone();
    // Beside the watch over the run, whose other faults shall not wait for a lease.
    crew.releases.push(tokio::spawn(async move {
        let lock_ref = LockRef(open.lock_ref);
        let outcome = match observer.release(KEYSPACE, job.as_bytes(), lock_ref).await {
            Ok(()) => "its section was released by force".to_owned(),
            // No lease is renewed once a release was asked for. When that one is over, the primary
            // may end the section before the release is there again, which then finds it past.
            Err(error) if error.code() == Code::NoLongerHolder => {
                format!("its section was ended before the release came again: {error}")
            }
            Err(error) => {
                let why = format!("the release is not known to have succeeded: {error}");
                progress.fault(&format!("worker {} in {job}: {why}", open.worker));
                return;
            }
        };
        shared.see(Event::Released {
            job: open.job,
            lock_ref: open.lock_ref,
        });
        progress.fault(&format!("worker {} in {job}: {outcome}", open.worker));
    }));
}

/// The jobs after the run, each read in a section of its own.
async fn finals(client: &Client, requests: &[Request]) -> Result<Vec<Option<Job>>, Error> {
    let keys = requests.iter().map(|request| request.job.as_str());
    let values = read_all(client, KEYSPACE, keys).await?;
    let job = |value: Option<Bytes>| value.and_then(|value| Job::decode(&value).ok());
    Ok(values.into_iter().map(job).collect())
}

/// The workers that live.
struct Crew {
    shared: Arc<Shared>,
    alive: BTreeMap<String, (Mortal, Place)>,
    /// Places whose worker died, and when their next one comes.
    vacant: Vec<(tokio::time::Instant, Place)>,
    ended: Vec<Mortal>,
    /// Forced releases that were asked for.
    releases: Vec<tokio::task::JoinHandle<()>>,
}

/// Where a worker works; its successor takes the place.
#[derive(Clone, Debug)]
struct Place {
    site: String,
    offset: usize,
    /// How many have worked here.
    worker: u32,
    number: usize,
}

impl Place {
    fn worker_name(&self) -> String {
        // `oregon/2` is followed by `oregon/2b`: people see who came after whom.
        let successor = match self.worker {
            0 => String::new(),
            n => char::from(b'a' + (n % 26) as u8).to_string(),
        };
        let site = self.site.replace(|c: char| !c.is_ascii_graphic(), "-");
        format!("{site}/{}{successor}", self.number)
    }
}

impl Crew {
    fn hire(cluster: &dyn Cluster, sites: &[String], shared: &Arc<Shared>) -> Result<Crew, Error> {
        let mut crew = Crew {
            shared: shared.clone(),
            alive: BTreeMap::new(),
            vacant: Vec::new(),
            ended: Vec::new(),
            releases: Vec::new(),
        };
        let all = sites.len() * WORKERS_PER_SITE;
        for index in 0..all {
            let place = Place {
                site: sites[index % sites.len()].clone(),
                offset: shared.keys.len() * index / all,
                worker: 0,
                number: index / sites.len() + 1,
            };
            crew.start(cluster, place)?;
        }
        Ok(crew)
    }

    fn start(&mut self, cluster: &dyn Cluster, place: Place) -> Result<(), Error> {
        let name = place.worker_name();
        let options = options_at(cluster, &place.site);
        let (shared, site, offset) = (self.shared.clone(), place.site.clone(), place.offset);
        let mortal = Mortal::start(&name.clone(), {
            let name = name.clone();
            move || async move {
                let worker = Worker {
                    name,
                    site,
                    offset,
                    shared: &shared,
                };
                worker.work(options).await;
            }
        })?;
        self.alive.insert(name, (mortal, place));
        Ok(())
    }

    /// Makes a worker slow that is in the middle of a job. Waits a little for one.
    async fn slow_down_one(&self) -> Option<Open> {
        for _ in 0..100 {
            if let Some(open) = self.slow_down_now() {
                return Some(open);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// Under one lock: the worker cannot end its section between the choice and the mark. Only a
    /// worker with two more steps to go, since one may be on its way already.
    fn slow_down_now(&self) -> Option<Open> {
        let mut open = locked(&self.shared.open);
        let chosen = open.iter_mut().find(|open| {
            (1..=2).contains(&open.steps) && !open.slow && self.alive.contains_key(&open.worker)
        })?;
        chosen.slow = true;
        Some(chosen.clone())
    }

    /// A section in which something was acknowledged and something is left to do.
    fn open_now(&self) -> Option<Open> {
        let open = locked(&self.shared.open);
        let mut middle = (open.iter()).filter(|open| (1..=4).contains(&open.steps) && !open.slow);
        middle
            .find(|open| self.alive.contains_key(&open.worker))
            .cloned()
    }

    fn kill_one(&mut self, progress: &Progress, requests: &[Request]) {
        let Some(open) = self.open_now() else {
            return;
        };
        let Some((mut mortal, mut place)) = self.alive.remove(&open.worker) else {
            return;
        };
        mortal.kill();
        self.ended.push(mortal);
        self.shared.close(&open.worker);
        place.worker += 1;
        let back = tokio::time::Instant::now() + Duration::from_secs(1);
        self.vacant.push((back, place));
        let job = &requests[open.job].job;
        progress.fault(&format!(
            "worker {} killed in {job} after {} steps",
            open.worker, open.steps
        ));
    }

    fn replace_the_dead(&mut self, cluster: &dyn Cluster) -> Result<(), Error> {
        let now = tokio::time::Instant::now();
        while let Some(index) = self.vacant.iter().position(|(at, _)| *at <= now) {
            let (_, place) = self.vacant.swap_remove(index);
            self.start(cluster, place)?;
        }
        Ok(())
    }

    /// Waits for all workers, after `stop` was set.
    async fn dismiss(self) -> Result<(), Error> {
        for release in self.releases {
            let ended = release.await;
            ended.map_err(Error::internal)?;
        }
        let alive = self.alive.into_values().map(|(mortal, _)| mortal);
        for mortal in alive.chain(self.ended) {
            mortal.join().await?;
        }
        Ok(())
    }
}
