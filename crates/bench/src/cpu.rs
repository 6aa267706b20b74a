//! Processor time, as Linux counts it for programs. Elsewhere nothing is known.

use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Linux counts processor time for programs in hundredths of a second, whatever its own clock.
const TICKS: f64 = 100.0;

/// Seconds of processors since a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Seconds that passed.
    pub(crate) wall: f64,
    /// Of this process and all its threads: every node and every client.
    pub(crate) own: f64,
    /// Of everything on the machine.
    pub(crate) all: f64,
}

impl Spent {
    /// Adds what was spent at another time.
    pub(crate) fn add(&mut self, other: Spent) {
        self.wall += other.wall;
        self.own += other.own;
        self.all += other.all;
    }
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    at: Instant,
    own: Option<f64>,
    all: Option<f64>,
}

impl Meter {
    /// Now.
    pub(crate) fn start() -> Meter {
        Meter {
            at: Instant::now(),
            own: own(),
            all: all(),
        }
    }

    /// What was spent since; zero where nothing is known.
    pub(crate) fn spent(&self) -> Spent {
        let since = |now: Option<f64>, then: Option<f64>| now.zip(then).map_or(0.0, |(n, t)| n - t);
        Spent {
            wall: self.at.elapsed().as_secs_f64(),
            own: since(own(), self.own),
            all: since(all(), self.all),
        }
    }
}

/// Processors of this machine that the process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn own() -> Option<f64> {
    times("/proc/self/stat")
}

fn times(path: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name, in brackets, may hold anything; user and system time are fields 14 and 15.
    let fields = text.rsplit_once(')')?.1;
    let times = fields.split_whitespace().skip(11).take(2);
    Some(times.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / TICKS)
}

fn all() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu")?;
    let times: Vec<f64> = line
        .split_whitespace()
        .filter_map(|t| t.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq: all but the two that wait.
    let busy = |at: usize| times.get(at).copied().unwrap_or(0.0);
    Some([0, 1, 2, 5, 6].map(busy).iter().sum::<f64>() / TICKS)
}

/// Seconds of processors that a process has used; none: it is gone.
pub(crate) fn of(process: u32) -> Option<f64> {
    times(&format!("/proc/{process}/stat"))
}
