//! `fermata bench load --reads`: a mix of linearizable reads and writes of registers.
//!
//! Each client takes a register by chance and reads it, or writes it with the rest of the chance,
//! one operation after the other. Reads and writes are counted apart. With `--record` everything
//! that was done, the warm-up included, goes to a file from which `fermata check` decides whether
//! it was linearizable (`recorded.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fermata_client::{Client, Error, Purpose};
use fermata_protocol::base::Rng;
use serde::Serialize;

use super::loops::{self, Pace, ms};
use super::recorded::{self, Diary, History};
use crate::args::{Distribution, Global, LoadArgs};
use crate::exit::Failure;
use crate::output::{self, Table};

/// Registers unless told otherwise.
const KEYS: u32 = 1_000;

/// The exponent of the Zipfian distribution: YCSB's.
const SKEW: f64 = 0.99;

/// One combination's figures.
#[derive(Debug, Serialize)]
struct Figures {
    keyspace: String,
    clients: u16,
    value_bytes: u32,
    /// Share of the operations that were to be reads.
    reads: f64,
    seconds: f64,
    reads_per_s: f64,
    writes_per_s: f64,
    read_p50_ms: f64,
    read_p99_ms: f64,
    write_p50_ms: f64,
    write_p99_ms: f64,
    /// Operations that failed; they are not in the other figures.
    errors: u64,
    /// What the first of them said.
    first_error: Option<String>,
}

/// Which register comes next.
enum Picker {
    Uniform(u64),
    /// Sums of the weights up to each key.
    Zipfian(Arc<[f64]>),
}

impl Picker {
    fn new(distribution: Distribution, keys: u32) -> Picker {
        match distribution {
            Distribution::Uniform => Picker::Uniform(u64::from(keys)),
            Distribution::Zipfian => {
                let mut sum = 0.0;
                let sums = (1..=keys).map(|rank| {
                    sum += f64::from(rank).powf(-SKEW);
                    sum
                });
                Picker::Zipfian(sums.collect())
            }
        }
    }

    fn pick(&self, rng: &mut Rng) -> u32 {
        match self {
            Picker::Uniform(keys) => rng.below(*keys) as u32,
            Picker::Zipfian(sums) => {
                let all = sums.last().copied().unwrap_or(0.0);
                let at = chance(rng) * all;
                sums.partition_point(|sum| *sum <= at).min(sums.len() - 1) as u32
            }
        }
    }
}

/// A number from 0 to 1, without 1.
fn chance(rng: &mut Rng) -> f64 {
    (rng.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Runs every combination.
pub(super) async fn run(global: &Global, args: &LoadArgs, reads: f64) -> Result<u8, Failure> {
    if !(0.0..=1.0).contains(&reads) {
        return Err(Failure::usage("--reads is a share: 0 to 1"));
    }
    let too_small = |size: &u32| (*size as usize) < recorded::NAME_MAX;
    if args.record.is_some() && args.size.iter().any(too_small) {
        let least = recorded::NAME_MAX;
        return Err(Failure::usage(format!(
            "--record needs values of at least {least} bytes, which tell who wrote them: see --size"
        )));
    }
    loops::fits(global, global.keyspace_of_registers(), Purpose::Registers).await?;
    let mut history = args.record.as_deref().map(History::create).transpose()?;
    let mut outcomes = Vec::new();
    for &clients in &args.clients {
        for &size in &args.size {
            let mix = Mix::new(global, args, reads, (clients, size));
            let outcome = mix.run(global, args, history.as_mut()).await?;
            // Progress, where the table comes only at the end.
            eprintln!(
                "{} clients, {size} B: {:.0} reads/s, {:.0} writes/s",
                clients, outcome.reads_per_s, outcome.writes_per_s
            );
            if let Some(said) = loops::failures(outcome.errors, outcome.first_error.as_deref()) {
                eprintln!("{said}");
            }
            outcomes.push(outcome);
        }
    }
    if let Some(history) = history {
        history.finish()?;
    }
    let done = |o: &Figures| o.reads_per_s + o.writes_per_s;
    let status = loops::status(outcomes.iter().map(done));
    show(global, &outcomes).map(|()| status)
}

fn show(global: &Global, outcomes: &[Figures]) -> Result<(), Failure> {
    if global.json {
        return output::json(&outcomes);
    }
    let mut table = Table::new(&[
        "keyspace", "clients", "bytes", "reads/s", "p50 ms", "p99 ms", "writes/s", "p50 ms",
        "p99 ms", "errors",
    ]);
    for outcome in outcomes {
        table.row(vec![
            outcome.keyspace.clone(),
            outcome.clients.to_string(),
            outcome.value_bytes.to_string(),
            format!("{:.0}", outcome.reads_per_s),
            format!("{:.2}", outcome.read_p50_ms),
            format!("{:.2}", outcome.read_p99_ms),
            format!("{:.0}", outcome.writes_per_s),
            format!("{:.2}", outcome.write_p50_ms),
            format!("{:.2}", outcome.write_p99_ms),
            outcome.errors.to_string(),
        ]);
    }
    output::text(table)
}

/// One combination.
#[derive(Clone)]
struct Mix {
    keyspace: String,
    clients: u16,
    size: u32,
    reads: f64,
    prefix: String,
}

impl Mix {
    fn new(global: &Global, args: &LoadArgs, reads: f64, (clients, size): (u16, u32)) -> Mix {
        // A history begins with empty registers: a run that is recorded has its own.
        let own = match &args.record {
            None => String::new(),
            Some(_) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                format!("{:x}/{clients}/", now.map_or(0, |now| now.as_micros()))
            }
        };
        Mix {
            keyspace: global.keyspace_of_registers().to_owned(),
            clients,
            size,
            reads,
            prefix: format!("bench/{own}{size}"),
        }
    }

    fn key(&self, number: u32) -> String {
        format!("{}/{number}", self.prefix)
    }

    async fn run(
        &self,
        global: &Global,
        args: &LoadArgs,
        history: Option<&mut History>,
    ) -> Result<Figures, Failure> {
        let origin = Instant::now();
        let recorded = history.is_some();
        let one = |number, client, pace| {
            let one = Loop {
                client,
                number,
                mix: self.clone(),
                picker: Picker::new(args.distribution, args.keys.unwrap_or(KEYS)),
                pace,
                diary: recorded.then(|| Diary::new(number, origin)),
            };
            one.run()
        };
        let (ended, took) = loops::run(global, (self.clients, args.seconds), one).await?;
        let (mut all, mut diaries) = (Counted::default(), Vec::new());
        for (counted, diary) in ended {
            all.add(counted);
            diaries.extend(diary);
        }
        if let Some(history) = history {
            for diary in &diaries {
                history.add(diary, |key| self.key(key))?;
            }
        }
        Ok(self.outcome(all, took))
    }

    fn outcome(&self, mut all: Counted, seconds: f64) -> Figures {
        all.reads.sort_unstable();
        all.writes.sort_unstable();
        Figures {
            keyspace: self.keyspace.clone(),
            clients: self.clients,
            value_bytes: self.size,
            reads: self.reads,
            seconds,
            reads_per_s: all.reads.len() as f64 / seconds,
            writes_per_s: all.writes.len() as f64 / seconds,
            read_p50_ms: ms(&all.reads, 50),
            read_p99_ms: ms(&all.reads, 99),
            write_p50_ms: ms(&all.writes, 50),
            write_p99_ms: ms(&all.writes, 99),
            errors: all.errors,
            first_error: all.first_error,
        }
    }
}

/// What one client counted, or all of them.
#[derive(Default)]
struct Counted {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
    errors: u64,
    first_error: Option<String>,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }
}

/// One client's loop.
struct Loop {
    client: Client,
    number: u32,
    mix: Mix,
    picker: Picker,
    pace: Pace,
    diary: Option<Diary>,
}

impl Loop {
    async fn run(mut self) -> Result<(Counted, Option<Diary>), Failure> {
        let mut rng = Rng::new(u64::from(self.number));
        let (mut counted, mut writes) = (Counted::default(), 0);
        let pace = self.pace.clone();
        pace.ready().await;
        while let Some(turn) = pace.turn() {
            let key = self.picker.pick(&mut rng);
            let reads = chance(&mut rng) < self.mix.reads;
            let done = if reads {
                self.read(key).await
            } else {
                writes += 1;
                self.write(key, writes).await
            };
            let counts = turn.counts();
            match done {
                Ok(took) if counts && reads => counted.reads.push(took),
                Ok(took) if counts => counted.writes.push(took),
                Ok(_) => {}
                Err(error) => {
                    counted.errors += u64::from(counts);
                    counted.first_error.get_or_insert(error.to_string());
                    pace.rest().await;
                }
            }
        }
        Ok((counted, self.diary))
    }

    async fn read(&mut self, key: u32) -> Result<Duration, Error> {
        let name = self.mix.key(key);
        let start = Instant::now();
        let seen = self.client.read(&self.mix.keyspace, name).await;
        let end_at = Instant::now();
        if let Some(diary) = &mut self.diary {
            diary.read(key, (start, end_at), &seen);
        }
        seen.map(|_| end_at - start)
    }

    async fn write(&mut self, key: u32, number: u64) -> Result<Duration, Error> {
        let value = recorded::value(self.number, number, self.mix.size as usize);
        let name = self.mix.key(key);
        let start = Instant::now();
        let end = self
            .client
            .write(&self.mix.keyspace, name, Some(value))
            .await;
        let end_at = Instant::now();
        if let Some(diary) = &mut self.diary {
            diary.write(key, (start, end_at), number, &end);
        }
        end.map(|()| end_at - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zipfian_picker_prefers_its_first_keys() {
        let hits = |distribution| {
            let (picker, mut rng) = (Picker::new(distribution, 100), Rng::new(1));
            let mut hits = [0; 100];
            for _ in 0..10_000 {
                hits[picker.pick(&mut rng) as usize] += 1;
            }
            hits
        };
        let uniform = hits(Distribution::Uniform);
        assert!(uniform.iter().all(|count| (50..200).contains(count)));
        let zipfian = hits(Distribution::Zipfian);
        assert!(zipfian[0] > 1_500 && zipfian[99] < 100, "{zipfian:?}");
        assert!(zipfian.iter().all(|count| *count > 0));
    }
}
