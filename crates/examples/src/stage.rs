//! What both examples need around them: progress, workers that can be killed, faults, the report.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Client, Keyspace, Options};
use futures_util::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::oneshot;

use crate::latency::Line;
use crate::{Cluster, Error};

/// Operations that an observer or a front end has open at once.
pub(crate) const OPEN: usize = 16;

/// One thing that had to hold.
#[derive(Debug)]
pub struct Check {
    /// What had to hold.
    pub claim: String,
    /// Where it did not; empty: it held.
    pub violations: Vec<String>,
}

/// What an example found.
#[derive(Debug)]
pub struct Report {
    /// What ran.
    pub title: String,
    /// Faults that were injected, in order.
    pub faults: Vec<String>,
    /// Figures: what, how much.
    pub figures: Vec<(&'static str, u64)>,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// Latencies that the example's clients saw.
    pub latencies: Vec<Line>,
    /// How long it ran.
    pub took: Duration,
}

impl Report {
    /// Whether every check held.
    pub fn all_held(&self) -> bool {
        self.checks.iter().all(|check| check.violations.is_empty())
    }
}

/// Kills a node, and says so.
pub(crate) async fn kill_node(cluster: &mut dyn Cluster, node: usize, progress: &Progress) {
    cluster.kill(node).await;
    let label = &cluster.nodes()[node].label;
    progress.fault(&format!("node {label} killed with SIGKILL"));
}

/// Starts a node that was killed, and says so.
pub(crate) fn restart_node(
    cluster: &mut dyn Cluster,
    node: usize,
    progress: &Progress,
) -> Result<(), Error> {
    cluster.restart(node)?;
    let label = &cluster.nodes()[node].label;
    progress.fault(&format!("node {label} restarted"));
    Ok(())
}

/// Connects, and tries until that is done.
pub(crate) async fn connected(options: Options) -> Client {
    loop {
        match Client::connect(options.clone()).await {
            Ok(client) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// The values of keys in their order, each read in a section of its own, several at a time.
pub(crate) async fn read_all<'a>(
    client: &Client,
    keyspace: &str,
    keys: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Option<Bytes>>, Error> {
    let reads = keys.into_iter();
    let reads = reads.map(|key| client.read(keyspace, key.as_bytes()));
    let values = stream::iter(reads).buffered(OPEN);
    values.map_err(Error::from).try_collect().await
}

/// A lock that a killed worker cannot poison: what it guards is whole after each statement.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A progress bar with a log of faults above it; on standard error. Where that is no terminal, only
/// the faults are printed.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    what: &'static str,
    faults: Arc<Mutex<Vec<String>>>,
    /// When a line was last printed where there is no terminal for the bar.
    told: Arc<Mutex<Instant>>,
    /// How far it is, and since when.
    reached: Arc<Mutex<(u64, Instant)>>,
}

/// An example in which nothing goes on for so long has failed, however slow its cluster is.
pub(crate) const STUCK: Duration = Duration::from_secs(120);

impl Progress {
    /// A bar of so many steps.
    pub(crate) fn new(steps: u64, what: &'static str) -> Progress {
        let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos}/{len} {msg}")
            .expect("the template is well-formed")
            .progress_chars("=> ");
        let bar = ProgressBar::new(steps).with_style(style);
        bar.set_message(what);
        Progress {
            bar,
            started: Instant::now(),
            what,
            faults: Arc::default(),
            told: Arc::new(Mutex::new(Instant::now())),
            reached: Arc::new(Mutex::new((0, Instant::now()))),
        }
    }

    /// Sets how far it is.
    pub(crate) fn set(&self, steps: u64) {
        const BETWEEN_LINES: Duration = Duration::from_secs(5);
        self.bar.set_position(steps);
        let mut reached = locked(&self.reached);
        if steps > reached.0 {
            *reached = (steps, Instant::now());
        }
        let mut told = locked(&self.told);
        if !std::io::stderr().is_terminal() && told.elapsed() >= BETWEEN_LINES {
            *told = Instant::now();
            let (all, seconds) = (self.bar.length().unwrap_or(0), self.started.elapsed());
            eprintln!(
                "{:5.1} s  {steps} of {all} {}",
                seconds.as_secs_f64(),
                self.what
            );
        }
    }

    /// Whether it has not gone on for [`STUCK`].
    pub(crate) fn is_stuck(&self) -> bool {
        locked(&self.reached).1.elapsed() > STUCK
    }

    /// Notes a fault.
    pub(crate) fn fault(&self, what: &str) {
        let line = format!("{:5.1} s  {what}", self.started.elapsed().as_secs_f64());
        if std::io::stderr().is_terminal() {
            self.bar.println(&line);
        } else {
            eprintln!("{line}");
        }
        locked(&self.faults).push(line);
    }

    /// Takes the bar away. Gives the faults, and how long it all took.
    pub(crate) fn finish(self) -> (Vec<String>, Duration) {
        self.bar.finish_and_clear();
        let faults = locked(&self.faults).clone();
        (faults, self.started.elapsed())
    }
}

/// A client at `site`, that knows all nodes.
pub(crate) async fn client_at(cluster: &dyn Cluster, site: &str) -> Result<Client, Error> {
    Ok(Client::connect(options_at(cluster, site)).await?)
}

/// Options of a client at `site`: the nodes there come first.
pub(crate) fn options_at(cluster: &dyn Cluster, site: &str) -> Options {
    let mut nodes = cluster.nodes();
    nodes.sort_by_key(|node| node.site != site);
    Options::new(nodes.into_iter().map(|node| node.endpoint)).site(site)
}

/// A keyspace of sections with a short lease, so that the dead are replaced while people watch.
pub(crate) fn sections_with(name: &str, lease: Duration) -> Keyspace {
    let [sections, _] = Keyspace::built_in();
    Keyspace {
        name: name.to_owned(),
        lease: lease.as_micros() as u64,
        ..sections
    }
}

/// The sites of a cluster, in order.
pub(crate) fn sites(cluster: &dyn Cluster) -> Vec<String> {
    let mut sites: Vec<String> = Vec::new();
    for node in cluster.nodes() {
        if !sites.contains(&node.site) {
            sites.push(node.site);
        }
    }
    sites
}

/// A worker on a thread and a runtime of its own, as a process would be: killed, it stops at once,
/// with everything that its client does in the background, and leaves nothing.
pub(crate) struct Mortal {
    kill: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Mortal {
    /// Starts `work` on its own thread.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(crate) fn start<W, F>(name: &str, work: W) -> Result<Mortal, Error>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let (kill, killed) = oneshot::channel::<()>();
        let failed = |error| Error::Local(format!("starting a worker: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let live = move || {
            let mut work = Box::pin(work());
            let died = runtime.block_on(async {
                tokio::select! {
                    biased;
                    // A dropped sender is no kill: the observer has gone, the worker ends by
                    // itself.
                    Ok(()) = killed => true,
                    () = &mut work => false,
                }
            });
            if died {
                // The dead do not tidy up: no destructor may send a last word.
                runtime.shutdown_background();
                std::mem::forget(work);
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(live);
        Ok(Mortal {
            kill: Some(kill),
            thread: Some(thread.map_err(failed)?),
        })
    }

    /// Ends it without any courtesy.
    pub(crate) fn kill(&mut self) {
        if let Some(kill) = self.kill.take() {
            // It may have ended by itself.
            let _ended = kill.send(());
        }
    }

    /// Waits for its end.
    pub(crate) async fn join(mut self) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err(Error::internal("a worker of the example panicked")),
        }
    }
}
