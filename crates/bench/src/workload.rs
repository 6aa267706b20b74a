//! Closed loops of reads and writes on registers: each client does one thing after the other.

use std::time::{Duration, Instant};

use anyhow::Result;
use fermata_client::Client;
use fermata_protocol::base::Rng;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::cpu::{Meter, Spent};
use crate::storage::noise;

/// What all clients of a slice do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Share of the operations that are writes, 0 to 1.
    pub(crate) writes: f64,
    /// Bytes of a value.
    pub(crate) size: usize,
    /// Registers, taken uniformly.
    pub(crate) keys: u32,
}

impl Mix {
    fn key(&self, number: u64) -> String {
        format!("{}/{number}", self.size)
    }
}

/// Bytes of the value of a register that a mix has named.
pub(crate) fn size_of(key: &[u8]) -> Option<usize> {
    let name = str::from_utf8(key).ok()?;
    name.split_once('/')?.0.parse().ok()
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) reads: Vec<Duration>,
    pub(crate) writes: Vec<Duration>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    /// That clients spent on what was counted, all clients together.
    pub(crate) client_seconds: f64,
    /// Of processors, while it was counted.
    pub(crate) spent: Spent,
}

/// Latencies of one kind of operation, milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) p95: f64,
}

impl Latency {
    /// Of these samples.
    pub(crate) fn of(mut samples: Vec<Duration>) -> Latency {
        if samples.is_empty() {
            return Latency::default();
        }
        samples.sort_unstable();
        let sum: Duration = samples.iter().sum();
        let at = (samples.len() * 95).div_ceil(100) - 1;
        Latency {
            count: samples.len(),
            mean: sum.as_secs_f64() * 1e3 / samples.len() as f64,
            p95: samples[at].as_secs_f64() * 1e3,
        }
    }
}

impl Counted {
    /// Operations per second of so many clients together.
    pub(crate) fn throughput(&self, clients: usize) -> f64 {
        let done = (self.reads.len() + self.writes.len()) as f64;
        if self.client_seconds > 0.0 {
            done * clients as f64 / self.client_seconds
        } else {
            0.0
        }
    }

    /// Adds what was counted in another slice, or by another client at the same time.
    pub(crate) fn add(&mut self, other: Counted) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.client_seconds += other.client_seconds;
        self.spent.add(other.spent);
    }
}

/// Writes every register of a mix once, the clients sharing them.
pub(crate) async fn load(clients: &[Client], keyspace: &str, mix: Mix) -> Result<()> {
    let mut loops = JoinSet::new();
    let count = clients.len() as u64;
    for (number, client) in clients.iter().cloned().enumerate() {
        let keyspace = keyspace.to_owned();
        loops.spawn(async move {
            let mut rng = Rng::new(number as u64);
            for key in (number as u64..u64::from(mix.keys)).step_by(count as usize) {
                let value = noise(&mut rng, mix.size);
                client.write(&keyspace, mix.key(key), Some(value)).await?;
            }
            Ok::<(), fermata_client::Error>(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// Runs all clients at once, for a lead that is not counted and a time that is.
pub(crate) async fn slice(
    clients: &[Client],
    keyspace: &str,
    mix: Mix,
    (lead, time): (Duration, Duration),
    seed: u64,
) -> Result<Counted> {
    let mut loops = JoinSet::new();
    let from = Instant::now() + lead;
    let to = from + time;
    for (number, client) in clients.iter().cloned().enumerate() {
        let one = Loop {
            client,
            keyspace: keyspace.to_owned(),
            mix,
            rng: Rng::new(seed.wrapping_mul(1_000).wrapping_add(number as u64)),
        };
        loops.spawn(one.run(from, to));
    }
    tokio::time::sleep_until(from.into()).await;
    let meter = Meter::start();
    let mut all = Counted::default();
    while let Some(counted) = loops.join_next().await {
        all.add(counted?);
    }
    all.spent = meter.spent();
    Ok(all)
}

struct Loop {
    client: Client,
    keyspace: String,
    mix: Mix,
    rng: Rng,
}

impl Loop {
    /// An operation counts if it begins within the time, and then whole: one that is stalled beyond
    /// the end is not left out, nor is the time that it took.
    async fn run(mut self, from: Instant, to: Instant) -> Counted {
        let mut counted = Counted::default();
        let value = noise(&mut self.rng, self.mix.size);
        let mut first = None;
        let mut last = Instant::now();
        while last < to {
            let key = self.mix.key(self.rng.below(u64::from(self.mix.keys)));
            let chance = (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64;
            let writes = chance < self.mix.writes;
            let start = Instant::now();
            let done = if writes {
                let value = Some(value.clone());
                self.client.write(&self.keyspace, key, value).await
            } else {
                self.client.read(&self.keyspace, key).await.map(drop)
            };
            let end = Instant::now();
            last = end;
            let counts = start >= from;
            if counts {
                first.get_or_insert(start);
            }
            if let Err(error) = done {
                counted.errors += 1;
                counted.first_error.get_or_insert(error.to_string());
                tokio::time::sleep(Duration::from_millis(10)).await;
            } else if counts {
                let of = if writes {
                    &mut counted.writes
                } else {
                    &mut counted.reads
                };
                of.push(end - start);
            }
        }
        counted.client_seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
        counted
    }
}
