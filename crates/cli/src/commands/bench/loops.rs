//! Closed loops: what `bench load` does with sections and with registers alike.
//!
//! Every client runs one loop. Once all are ready they warm up, count, and stop together; a turn
//! that begins or ends outside of the time that is counted belongs to nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use fermata_client::{Client, Code, Purpose};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::args::Global;
use crate::connect::connect;
use crate::exit::{Exit, Failure};
use fermata_examples::percentile;

const WARM_UP: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

/// How long a loop rests after an error.
const REST: Duration = Duration::from_millis(10);

/// When the loops of one combination begin, count and stop.
#[derive(Clone)]
pub(super) struct Pace {
    phase: Arc<AtomicU8>,
    ready: Arc<Barrier>,
}

/// One turn of a loop.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    began_counted: bool,
}

impl Pace {
    /// Waits until all loops are ready.
    pub(super) async fn ready(&self) {
        self.ready.wait().await;
    }

    /// The next turn; none: stop.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let phase = self.phase.load(Ordering::Relaxed);
        (phase != STOP).then_some(Turn {
            pace: self,
            began_counted: phase == COUNT,
        })
    }

    /// After an error, before the next turn.
    pub(super) async fn rest(&self) {
        tokio::time::sleep(REST).await;
    }
}

impl Turn<'_> {
    /// Whether it counts, now that it has ended.
    pub(super) fn counts(self) -> bool {
        self.began_counted && self.pace.phase.load(Ordering::Relaxed) == COUNT
    }
}

/// Refuses a keyspace that no load can be put on, before any clock runs: what is wrong with it is
/// wrong with every operation. Whatever else fails, the load itself tells.
pub(super) async fn fits(global: &Global, keyspace: &str, wants: Purpose) -> Result<(), Failure> {
    let client = connect(global).await?;
    let key = "bench/none";
    let asked = match wants {
        // Only keys of sections have a queue.
        Purpose::Sections => client.queue(keyspace, key).await.map(drop),
        Purpose::Registers => client.inspect(keyspace, key, None).await.map(drop),
        Purpose::Ledger { .. } => client.snapshot(keyspace).key(key).read().await.map(drop),
    };
    match asked {
        Err(error) if error.code() == Code::WrongPurpose => Err(Failure {
            code: error.code().name().to_owned(),
            ..Failure::new(
                Exit::Refused,
                format!(
                    "`{keyspace}` is a register keyspace, which has no sections: use --reads SHARE \
                     to read and write it"
                ),
            )
        }),
        Err(error) if matches!(error.code(), Code::NoSuchKeyspace | Code::BadRequest) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// What is said of operations that failed; nothing where none did.
pub(super) fn failures(errors: u64, first: Option<&str>) -> Option<String> {
    let first = first?;
    Some(match errors {
        0 => format!("an error outside of the time that is counted: {first}"),
        1 => format!("1 error: {first}"),
        _ => format!("{errors} errors, the first: {first}"),
    })
}

/// Runs a loop for each of so many clients, and counts for so many seconds, after a warm-up of a
/// tenth of it. Gives what the loops counted, and for how many seconds they did.
pub(super) async fn run<L, T>(
    global: &Global,
    (clients, seconds): (u16, u32),
    one: impl Fn(u32, Client, Pace) -> L,
) -> Result<(Vec<T>, f64), Failure>
where
    L: Future<Output = Result<T, Failure>> + Send + 'static,
    T: Send + 'static,
{
    let pace = Pace {
        phase: Arc::new(AtomicU8::new(WARM_UP)),
        ready: Arc::new(Barrier::new(usize::from(clients) + 1)),
    };
    let mut loops = JoinSet::new();
    for number in 0..u32::from(clients) {
        loops.spawn(one(number, connect(global).await?, pace.clone()));
    }
    pace.ready().await;
    let seconds = Duration::from_secs(u64::from(seconds));
    tokio::time::sleep(seconds / 10).await;
    pace.phase.store(COUNT, Ordering::Relaxed);
    let start = Instant::now();
    tokio::time::sleep(seconds).await;
    pace.phase.store(STOP, Ordering::Relaxed);
    let took = start.elapsed().as_secs_f64();
    let mut counted = Vec::with_capacity(usize::from(clients));
    while let Some(ended) = loops.join_next().await {
        counted.push(ended.map_err(Failure::internal)??);
    }
    Ok((counted, took))
}

/// A percentile of sorted latencies, in milliseconds.
pub(super) fn ms(sorted: &[Duration], percent: usize) -> f64 {
    percentile(sorted, percent).as_secs_f64() * 1e3
}

/// The exit status for what each combination did per second: where nothing was done at all, nobody
/// has answered, or not in time.
pub(super) fn status(mut per_s: impl Iterator<Item = f64>) -> u8 {
    match per_s.all(|per_s| per_s == 0.0) {
        true => Exit::Unavailable as u8,
        false => 0,
    }
}
