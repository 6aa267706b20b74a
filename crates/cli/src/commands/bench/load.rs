//! `fermata bench load`: so many clients, each in a closed loop, against a running cluster.
//!
//! **What is measured.** A client does one thing after the other and never waits in between. Each
//! combination of clients and value size runs for the same time, after a warm-up of a tenth of it
//! that is not counted. Latencies are the client library's, from call to answer; throughput counts
//! what was done within the time. Clients live in this process: on the machine of the servers they
//! take their share of its processors, so the figures are for both together.
//!
//! With `--reads` the loop is one of reads and writes of registers: `registers.rs`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_client::{Client, Enter, Error, Purpose, Section};
use serde::Serialize;

use super::loops::{self, Pace, ms};
use crate::args::{Global, LoadArgs, LoadMode};
use crate::exit::Failure;
use crate::output::{self, Table};

/// One combination's figures.
#[derive(Debug, Serialize)]
struct Figures {
    mode: &'static str,
    clients: u16,
    value_bytes: u32,
    seconds: f64,
    /// Whole sections done.
    sections_per_s: f64,
    /// Critical puts done.
    puts_per_s: f64,
    /// Critical gets done.
    gets_per_s: f64,
    /// Of one turn of the loop.
    p50_ms: f64,
    p99_ms: f64,
    /// Turns that failed; they are not in the other figures.
    errors: u64,
    /// What the first of them said, or the first beside the time that is counted.
    first_error: Option<String>,
}

/// Runs every combination.
pub(crate) async fn run(global: &Global, args: LoadArgs) -> Result<u8, Failure> {
    if args.clients.contains(&0) {
        return Err(Failure::usage("--clients is at least 1"));
    }
    if args.keys == Some(0) {
        return Err(Failure::usage("--keys is at least 1"));
    }
    if let Some(reads) = args.reads {
        return super::registers::run(global, &args, reads).await;
    }
    loops::fits(global, global.keyspace(), Purpose::Sections).await?;
    let mut outcomes = Vec::new();
    for &clients in &args.clients {
        for &size in &args.size {
            let outcome = combination(global, &args, clients, size).await?;
            // Progress, where the table comes only at the end.
            eprintln!(
                "{} clients, {size} B: {:.0} sections/s, {:.0} puts/s",
                clients, outcome.sections_per_s, outcome.puts_per_s
            );
            if let Some(said) = loops::failures(outcome.errors, outcome.first_error.as_deref()) {
                eprintln!("{said}");
            }
            outcomes.push(outcome);
        }
    }
    let done = |o: &Figures| o.sections_per_s + o.puts_per_s + o.gets_per_s;
    let status = loops::status(outcomes.iter().map(done));
    if global.json {
        return output::json(&outcomes).map(|()| status);
    }
    let mut table = Table::new(&[
        "loop",
        "clients",
        "bytes",
        "sections/s",
        "puts/s",
        "gets/s",
        "p50 ms",
        "p99 ms",
        "errors",
    ]);
    for outcome in &outcomes {
        table.row(vec![
            outcome.mode.to_owned(),
            outcome.clients.to_string(),
            outcome.value_bytes.to_string(),
            format!("{:.0}", outcome.sections_per_s),
            format!("{:.0}", outcome.puts_per_s),
            format!("{:.0}", outcome.gets_per_s),
            format!("{:.2}", outcome.p50_ms),
            format!("{:.2}", outcome.p99_ms),
            outcome.errors.to_string(),
        ]);
    }
    output::text(table).map(|()| status)
}

/// One client's loop.
struct Loop {
    client: Client,
    keyspace: String,
    key: Vec<u8>,
    value: Bytes,
    mode: LoadMode,
    pace: Pace,
}

/// What one client counted.
#[derive(Default)]
struct Counted {
    latencies: Vec<Duration>,
    errors: u64,
    first_error: Option<String>,
}

async fn combination(
    global: &Global,
    args: &LoadArgs,
    clients: u16,
    size: u32,
) -> Result<Figures, Failure> {
    let keys = args.keys.unwrap_or(u32::from(clients));
    let one = |number: u32, client, pace| {
        let one = Loop {
            client,
            keyspace: global.keyspace().to_owned(),
            key: format!("bench/{size}/{}", number % keys).into_bytes(),
            value: Bytes::from(vec![b'x'; size as usize]),
            mode: args.mode,
            pace,
        };
        one.run()
    };
    let (counted, took) = loops::run(global, (clients, args.seconds), one).await?;
    let mut all = Counted::default();
    for counted in counted {
        all.latencies.extend(counted.latencies);
        all.errors += counted.errors;
        all.first_error = all.first_error.take().or(counted.first_error);
    }
    all.latencies.sort_unstable();
    let turns = all.latencies.len() as f64 / took;
    let per_s = |counts: bool| if counts { turns } else { 0.0 };
    Ok(Figures {
        mode: match args.mode {
            LoadMode::Section => "section",
            LoadMode::Put => "put",
            LoadMode::Get => "get",
        },
        clients,
        value_bytes: size,
        seconds: took,
        sections_per_s: per_s(args.mode == LoadMode::Section),
        puts_per_s: per_s(args.mode != LoadMode::Get),
        gets_per_s: per_s(args.mode == LoadMode::Get),
        p50_ms: ms(&all.latencies, 50),
        p99_ms: ms(&all.latencies, 99),
        errors: all.errors,
        first_error: all.first_error,
    })
}

impl Loop {
    async fn run(self) -> Result<Counted, Failure> {
        let mut counted = Counted::default();
        let mut section = self.long_section().await;
        self.pace.ready().await;
        while let Some(turn) = self.pace.turn() {
            let start = Instant::now();
            let done = self.turn(section.as_ref().ok()).await;
            let counts = turn.counts();
            match done {
                Ok(()) if counts => counted.latencies.push(start.elapsed()),
                Ok(()) => {}
                Err(error) => {
                    counted.errors += u64::from(counts);
                    counted.first_error.get_or_insert(error.to_string());
                    self.pace.rest().await;
                    // Left first: the next one would wait for it, in its own queue.
                    drop(section);
                    section = self.long_section().await;
                }
            }
        }
        if let Ok(section) = section {
            section.leave_and_wait().await?;
        }
        Ok(counted)
    }

    /// The section of the loops that need one.
    async fn long_section(&self) -> Result<Section, Option<Error>> {
        match self.mode {
            LoadMode::Section => Err(None),
            LoadMode::Put | LoadMode::Get => self.enter().await.map_err(Some),
        }
    }

    async fn enter(&self) -> Result<Section, Error> {
        let keys = [self.key.as_slice()];
        let how = Enter::default();
        self.client.enter(&self.keyspace, &keys, how).await
    }

    async fn turn(&self, section: Option<&Section>) -> Result<(), Error> {
        let value = self.value.clone();
        match (self.mode, section) {
            (LoadMode::Put, Some(section)) => section.put(&self.key, value).await,
            (LoadMode::Get, Some(section)) => section.get(&self.key).await.map(drop),
            _ => self.enter().await?.put_and_leave(&self.key, value).await,
        }
    }
}
