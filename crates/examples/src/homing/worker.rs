//! A worker: the loop of MUSIC §VII(a), with the client library alone.
//!
//! ```text
//! for ever:  for each key:  get it (eventual); skip it if DONE or held by another
//!                           enter; from the state found: step, put, until DONE; leave
//! ```

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Client, Enter, Mode, Options};

use super::data::Regions;
use super::history::Event;
use super::job::{self, Job, Phase};
use crate::latency::Latencies;
use crate::stage::{Progress, connected, locked};

/// The keyspace of the jobs.
pub(crate) const KEYSPACE: &str = "homing";

/// What a real step would take: calls to inventories and solvers. It makes sections long enough for
/// faults to fall into them.
const STEP_WORK: Duration = Duration::from_millis(30);

/// What a step of a worker takes that is to be wrongly taken for dead: it lives and its client goes
/// on renewing its lease, but it is so slow that a forced release, which waits out the lease, is
/// over before its next put.
pub(crate) const SLOW_STEP: Duration = Duration::from_secs(4);

/// A job whose holder does not give way in this time is left to it. It covers the entry itself,
/// which takes several round trips after a fault.
const WAIT: Duration = Duration::from_secs(2);

/// What all workers share with the observer: what a person watching all of them would know.
pub(crate) struct Shared {
    /// The regions.
    pub(crate) regions: Regions,
    /// The keys of the jobs, by index.
    pub(crate) keys: Vec<String>,
    /// Everything seen, in order.
    pub(crate) events: Mutex<Vec<Event>>,
    /// Sections that workers believe to hold.
    pub(crate) open: Mutex<Vec<Open>>,
    /// Jobs whose last step was acknowledged or found.
    pub(crate) done: Mutex<std::collections::BTreeSet<usize>>,
    /// What steps took.
    pub(crate) latencies: Latencies,
    /// Where people are told of what happens.
    progress: Progress,
    /// No more work.
    pub(crate) stop: AtomicBool,
    puts: AtomicU64,
}

/// A section that a worker believes to hold.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The worker.
    pub(crate) worker: String,
    /// The job.
    pub(crate) job: usize,
    /// Its ref.
    pub(crate) lock_ref: u64,
    /// Steps acknowledged in it.
    pub(crate) steps: u32,
    /// Somebody is about to take its worker for dead: the next step takes [`SLOW_STEP`].
    pub(crate) slow: bool,
}

impl Shared {
    /// Nothing seen yet.
    pub(crate) fn new(regions: Regions, keys: Vec<String>, progress: Progress) -> Shared {
        Shared {
            regions,
            keys,
            events: Mutex::default(),
            open: Mutex::default(),
            done: Mutex::default(),
            latencies: Latencies::default(),
            progress,
            stop: AtomicBool::new(false),
            puts: AtomicU64::new(0),
        }
    }

    /// Notes what somebody saw.
    pub(crate) fn see(&self, event: Event) {
        locked(&self.events).push(event);
    }

    /// How many jobs are known to be done.
    pub(crate) fn done(&self) -> usize {
        locked(&self.done).len()
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Forgets what a worker held: it left, was told of the loss, or died.
    pub(crate) fn close(&self, worker: &str) {
        locked(&self.open).retain(|open| open.worker != worker);
    }
}

/// How far a job is, by its value.
fn phase_of(value: Option<&Bytes>) -> Option<Phase> {
    let job = Job::decode(value?).ok()?;
    Some(job.state.phase)
}

/// A worker.
pub(crate) struct Worker<'a> {
    /// Its name, unique in the run.
    pub(crate) name: String,
    /// Its site.
    pub(crate) site: String,
    /// Where it starts in the list of jobs, so that workers rarely meet.
    pub(crate) offset: usize,
    /// Shared with the observer.
    pub(crate) shared: &'a Shared,
}

impl Worker<'_> {
    /// Works until told to stop.
    pub(crate) async fn work(&self, options: Options) {
        let client = connected(options).await;
        while !self.shared.stopping() {
            if self.round(&client).await.is_err() {
                // No node answers or no quorum is there: look again in a moment.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        // The last leave is on its way.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// Looks at every job once.
    async fn round(&self, client: &Client) -> Result<(), fermata_client::Error> {
        let start = Instant::now();
        let mut pages = client.pages(KEYSPACE, b"", None);
        let mut listed = Vec::new();
        loop {
            let page = pages.next(1_000).await?;
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        self.shared.latencies.note(&self.site, "keys", start);
        let mut worked = false;
        for turn in 0..listed.len() {
            if self.shared.stopping() {
                return Ok(());
            }
            let key = &listed[(turn + self.offset) % listed.len()];
            let Some(job) = self.index_of(key) else {
                continue;
            };
            let start = Instant::now();
            let value = client.get(KEYSPACE, key).await?;
            self.shared
                .latencies
                .note(&self.site, "get (eventual)", start);
            match phase_of(value.as_ref()) {
                // Perhaps by a worker that never heard of its last put's success.
                Some(Phase::Done) => {
                    locked(&self.shared.done).insert(job);
                }
                Some(_) if !self.is_taken(client, key).await? => {
                    worked |= self.take(client, job, key).await?;
                }
                _ => {}
            }
        }
        if !worked {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn index_of(&self, key: &[u8]) -> Option<usize> {
        let mut keys = self.shared.keys.iter();
        keys.position(|known| known.as_bytes() == key)
    }

    /// Whether somebody has the job. Only saves a wait: what decides is the lock.
    async fn is_taken(&self, client: &Client, key: &[u8]) -> Result<bool, fermata_client::Error> {
        Ok(!client.queue(KEYSPACE, key).await?.0.is_empty())
    }

    /// Enters the job's section and works on it to its end. Whether it had the job.
    async fn take(
        &self,
        client: &Client,
        index: usize,
        key: &[u8],
    ) -> Result<bool, fermata_client::Error> {
        let shared = self.shared;
        let start = Instant::now();
        let enter = Enter {
            mode: Mode::Exclusive,
            wait: Some(WAIT),
            lease: None,
        };
        let section = match client.enter(KEYSPACE, &[key], enter).await {
            Ok(section) => section,
            Err(error) if error.code() == fermata_client::Code::WaitOver => return Ok(false),
            Err(error) => return Err(error),
        };
        shared
            .latencies
            .note(&self.site, "enter, with the value", start);
        let lock_ref = section.lock_ref(key).map_or(0, |lock_ref| lock_ref.0);
        // From memory, unless it was too large to come with the entry.
        let found = section.get(key).await?;
        let Some(mut job) = found.and_then(|value| Job::decode(&value).ok()) else {
            // The front end's put has not reached the quorum yet, which no worker waits for.
            section.leave();
            return Ok(false);
        };
        shared.see(Event::Entered {
            job: index,
            lock_ref,
            worker: self.name.clone(),
            state: job.state.clone(),
        });
        locked(&shared.open).push(Open {
            worker: self.name.clone(),
            job: index,
            lock_ref,
            steps: 0,
            slow: false,
        });
        let worked = self.steps(&section, index, key, &mut job).await;
        shared.close(&self.name);
        if job.state.phase == Phase::Done {
            locked(&shared.done).insert(index);
        }
        match worked {
            Ok(()) => {
                let start = Instant::now();
                section.leave(); // In the background.
                shared.latencies.note(&self.site, "leave", start);
                Ok(true)
            }
            // Suspected, or cut off: the job is another's now, and its state is safe.
            Err(_) => Ok(true),
        }
    }

    /// Whether the section that it holds is one in which it shall be slow.
    fn is_slow(&self) -> bool {
        let open = locked(&self.shared.open);
        open.iter()
            .any(|open| open.worker == self.name && open.slow)
    }

    /// Steps until DONE, each in a critical put.
    async fn steps(
        &self,
        section: &fermata_client::Section,
        index: usize,
        key: &[u8],
        job: &mut Job,
    ) -> Result<(), String> {
        let shared = self.shared;
        let lock_ref = section.lock_ref(key).map_or(0, |lock_ref| lock_ref.0);
        while job.state.phase != Phase::Done {
            tokio::time::sleep(STEP_WORK).await;
            let slow = self.is_slow();
            if slow {
                tokio::time::sleep(SLOW_STEP).await;
            }
            let next = job::step(&job.state, &job.request, &shared.regions, &self.name);
            let next = Job {
                state: next.map_err(|why| why.to_string())?,
                request: job.request.clone(),
            };
            let value = next.encode().map_err(|why| why.to_string())?;
            let put = shared.puts.fetch_add(1, Ordering::Relaxed);
            shared.see(Event::Issued {
                put,
                job: index,
                lock_ref,
                state: next.state.clone(),
            });
            let start = Instant::now();
            let done = section.put(key, Bytes::from(value)).await;
            if let Err(error) = done {
                let code = error.code();
                shared.see(Event::Refused { put, code });
                if slow {
                    let (name, job) = (&self.name, &shared.keys[index]);
                    let told = format!("worker {name} lives, and puts late in {job}: {error}");
                    shared.progress.fault(&told);
                }
                return Err(error.to_string());
            }
            shared.latencies.note(&self.site, "put (critical)", start);
            shared.see(Event::Acknowledged { put });
            *job = next;
            let mut open = locked(&shared.open);
            let mine = open.iter_mut().find(|open| open.worker == self.name);
            if let Some(mine) = mine {
                mine.steps += 1;
            }
        }
        Ok(())
    }
}
