//! Closed loops of sections: each client does one after the other, and everything is timed.
//!
//! **Side by side.** What is compared takes turns: a round gives each system a slice of time, and
//! each round begins with another one (A B C, B C A, …). What else the machine does falls on all of
//! them, and medians over the rounds say more than one long run of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use fermata_protocol::base::Rng;
use indicatif::ProgressBar;
use serde::Serialize;

use super::place::Place;
use super::servers::Servers;
use super::system::{Kind, Section, System};
use crate::cpu::Meter;
use crate::storage::noise;

/// Keys of each client that has some of its own: enough to lie in several segments.
const OWN_KEYS: u64 = 8;

/// How long a slice may go on after its time for what has begun: a section of a thousand puts by
/// lightweight transactions takes minutes.
const GRACE: Duration = Duration::from_secs(600);

/// How long a client may try beyond its time for its first success.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long those who wait for one key may go on.
const QUEUE: Duration = Duration::from_secs(3);

/// Which keys clients use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Keys {
    /// Each its own.
    Own,
    /// All the same one.
    One,
    /// From so many, zipfian as YCSB has it (θ = 0.99).
    Zipf(u32),
}

/// What is done, over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    /// A section with one put; put and leave are timed apart.
    Steps,
    /// A section with one put, in as few messages as the system has it.
    Section,
    /// A section with so many puts, one after the other.
    Batch(u32),
    /// The same, with several in flight where that keeps their order.
    Pipelined(u32),
    /// A plain write.
    Put,
    /// A plain read.
    Get,
    /// A place in a key's queue is taken, and given back without waiting to hold.
    Queue,
    /// YCSB: sections, of which so many of a hundred have a put, the others a get.
    Mix(u8),
}

/// One point of a comparison, but for the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) work: Work,
    pub(crate) keys: Keys,
    /// Bytes of a value.
    pub(crate) size: usize,
    /// Clients at each site; none at a site that has 0.
    pub(crate) clients: [usize; 3],
    /// What is not counted, and what is.
    pub(crate) time: (Duration, Duration),
    pub(crate) rounds: u32,
    /// Whether each client uses all of its keys once before it begins.
    pub(crate) first: bool,
    /// Whether sites are measured together or one after the other.
    pub(crate) sites: Sites,
}

/// Which sites use a system at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sites {
    /// All.
    Together,
    /// One after the other. Before a site is measured, its clients of all systems go on for so
    /// long, uncounted and all at once: a system that moves leadership to whoever uses it has the
    /// time to do so, and those that do not have it, too.
    Apart(Duration),
}

/// What was counted of one system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Milliseconds by site and step.
    pub(crate) steps: BTreeMap<(usize, &'static str), Vec<f64>>,
    /// Rounds: (operations, puts) per second.
    pub(crate) rates: Vec<(f64, f64)>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    /// Sections of keys that another client of the same slice was in, or waited for.
    pub(crate) collisions: u64,
    pub(crate) sections: u64,
    /// Share of the machine's processors that others used meanwhile, from 0 to 1.
    pub(crate) foreign: Vec<f64>,
}

/// The middle of it; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of it is.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => values[((n - 1) as f64 * share).round() as usize],
    }
}

impl Counted {
    /// Milliseconds of a step at a site; all sites where none is given.
    pub(crate) fn of(&self, site: Option<usize>, step: &str) -> Vec<f64> {
        let these = self.steps.iter();
        let these =
            these.filter(|((at, name), _)| *name == step && site.is_none_or(|site| site == *at));
        these
            .flat_map(|(_, values)| values.iter().copied())
            .collect()
    }

    /// The median of a step.
    pub(crate) fn ms(&self, site: Option<usize>, step: &str) -> f64 {
        median(self.of(site, step))
    }

    /// The mean of a step.
    pub(crate) fn mean(&self, site: Option<usize>, step: &str) -> f64 {
        let values = self.of(site, step);
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// Operations per second, the median of the rounds.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.iter().map(|r| r.0))
    }

    /// Puts per second, the median of the rounds.
    pub(crate) fn puts(&self) -> f64 {
        median(self.rates.iter().map(|r| r.1))
    }

    /// Its JSON: what tables are made of.
    pub(crate) fn summary(&self) -> Summary {
        let mut steps = BTreeMap::new();
        for ((site, step), values) in &self.steps {
            let values = values.iter().copied();
            let line = Line {
                count: values.len(),
                p50: median(values.clone()),
                p99: quantile(values, 0.99),
            };
            steps.insert(format!("site {} {step}", site + 1), line);
        }
        Summary {
            steps,
            per_second: self.rate(),
            puts_per_second: self.puts(),
            rounds: self.rates.clone(),
            errors: self.errors,
            first_error: self.first_error.clone(),
            collisions: self.collisions,
            sections: self.sections,
            foreign_cpu: median(self.foreign.iter().copied()),
        }
    }
}

/// One step, milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    count: usize,
    p50: f64,
    p99: f64,
}

/// What JSON has of a system at a point.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    steps: BTreeMap<String, Line>,
    per_second: f64,
    puts_per_second: f64,
    rounds: Vec<(f64, f64)>,
    errors: u64,
    first_error: Option<String>,
    collisions: u64,
    sections: u64,
    foreign_cpu: f64,
}

/// What one client brings back from a slice.
#[derive(Default)]
struct Brought {
    steps: Vec<(&'static str, f64)>,
    operations: u64,
    puts: u64,
    errors: u64,
    first_error: Option<String>,
    collisions: u64,
    sections: u64,
    /// Whether the operation at hand only reads.
    reads: bool,
    /// From its first operation that counts to the end of its last, seconds.
    seconds: f64,
}

/// Clients of one system, connected.
type Clients = Vec<(usize, Arc<dyn System>)>;

/// Compares systems at one point: all have the same load, in turns.
pub(crate) fn compare(
    place: &Place,
    servers: &Servers,
    kinds: &[Kind],
    load: &Load,
    (name, bar): (&str, &ProgressBar),
) -> Result<BTreeMap<Kind, Counted>> {
    let mut clients: Vec<(Kind, Clients)> = Vec::new();
    for kind in kinds {
        let mut of = Vec::new();
        for (site, count) in load.clients.into_iter().enumerate() {
            for _ in 0..count {
                of.push((site, connected(place, servers, *kind, site)?));
            }
        }
        clients.push((*kind, of));
    }
    let mut counted: BTreeMap<Kind, Counted> = BTreeMap::new();
    let parts = match load.sites {
        Sites::Together => vec![None],
        Sites::Apart(_) => (0..place.sites.len()).map(Some).collect(),
    };
    for round in 0..load.rounds {
        let mut of_round: BTreeMap<Kind, (Vec<(usize, Brought)>, Vec<f64>)> = BTreeMap::new();
        for site in &parts {
            if let (Some(site), Sites::Apart(lead)) = (site, load.sites) {
                bar.set_message(format!("{name}: all systems lead in, site {}", site + 1));
                lead_in(place, &clients, load, (name, *site, lead))?;
            }
            for turn in 0..clients.len() {
                let (kind, of) = &clients[(turn + round as usize) % clients.len()];
                bar.set_message(format!("{name}: {}, round {}", kind.name(), round + 1));
                let meter = Meter::start();
                let peers = servers.spent();
                let load = load.for_kind(*kind);
                let running = begin(place, of, &load, (name, round, *site));
                let brought = end(place, running, name)?;
                let spent = meter.spent();
                let ours = spent.own + servers.spent() - peers;
                let processors = crate::cpu::processors() as f64;
                let foreign = (spent.all - ours).max(0.0) / (spent.wall * processors);
                let (all, foreigns) = of_round.entry(*kind).or_default();
                all.extend(brought);
                foreigns.push(foreign);
            }
        }
        for (kind, (brought, foreign)) in of_round {
            bar.inc(1);
            add(
                counted.entry(kind).or_default(),
                brought,
                median(foreign),
                parts.len(),
            );
        }
    }
    Ok(counted)
}

impl Load {
    /// What of it a system gets: `CassaEV` has no sections, a plain write stands for them.
    fn for_kind(&self, kind: Kind) -> Load {
        let mut load = *self;
        if kind == Kind::CassaEv && load.work != Work::Get {
            load.work = Work::Put;
        }
        load
    }
}

/// Clients of a site, of all systems at once; nothing is counted.
fn lead_in(
    place: &Place,
    clients: &[(Kind, Clients)],
    load: &Load,
    (name, site, lead): (&str, usize, Duration),
) -> Result<()> {
    let mut running = Vec::new();
    for (kind, of) in clients {
        let mut load = load.for_kind(*kind);
        load.time = (Duration::ZERO, lead);
        load.first = true;
        running.extend(begin(place, of, &load, (name, 0, Some(site))).tasks);
    }
    let ends = Instant::now() + lead + GRACE;
    end(
        place,
        Running {
            tasks: running,
            ends,
        },
        name,
    )
    .map(drop)
}

/// A client; a machine that is busy for a moment is no reason to leave a figure out.
fn connected(place: &Place, servers: &Servers, kind: Kind, site: usize) -> Result<Arc<dyn System>> {
    let mut tries = 0;
    loop {
        match servers.client(place, kind, site) {
            Err(_) if tries < 3 => tries += 1,
            done => return done,
        }
    }
}

/// Adds a round. Where sites took turns, their rates are those of a turn each.
fn add(all: &mut Counted, brought: Vec<(usize, Brought)>, foreign: f64, turns: usize) {
    let (mut rate, mut puts) = (0.0, 0.0);
    for (site, one) in brought {
        if one.seconds > 0.0 {
            rate += one.operations as f64 / one.seconds;
            puts += one.puts as f64 / one.seconds;
        }
        all.errors += one.errors;
        all.first_error = all.first_error.take().or(one.first_error);
        all.collisions += one.collisions;
        all.sections += one.sections;
        for (step, ms) in one.steps {
            all.steps.entry((site, step)).or_default().push(ms);
        }
    }
    all.rates.push((rate / turns as f64, puts / turns as f64));
    all.foreign.push(foreign);
}

/// Clients that are running, and when they have to be done.
struct Running {
    tasks: Vec<(usize, tokio::task::JoinHandle<Brought>)>,
    ends: Instant,
}

/// Lets all clients of one system run, or those of one site.
fn begin(
    place: &Place,
    clients: &Clients,
    load: &Load,
    (name, round, only): (&str, u32, Option<usize>),
) -> Running {
    let from = Instant::now() + load.time.0;
    let to = from + load.time.1;
    let busy = Arc::<Mutex<HashMap<String, u32>>>::default();
    let mut tasks = Vec::new();
    let mut of_site = vec![0; place.sites.len()];
    for (site, system) in clients {
        let number = (*site as u64) * 1_000 + of_site[*site];
        of_site[*site] += 1;
        if only.is_some_and(|only| only != *site) {
            continue;
        }
        let one = Client {
            system: system.clone(),
            load: *load,
            name: name.replace([' ', '/'], "-"),
            round,
            number,
            rng: Rng::new((u64::from(round) << 32) ^ number ^ 0x5eed),
            busy: busy.clone(),
            zipf: match load.keys {
                Keys::Zipf(keys) => Some(Zipf::new(keys)),
                _ => None,
            },
        };
        tasks.push((*site, place.sites[*site].client(one.run(from, to))));
    }
    let ends = to + GRACE;
    Running { tasks, ends }
}

/// Waits for them.
fn end(place: &Place, running: Running, name: &str) -> Result<Vec<(usize, Brought)>> {
    let mut all = Vec::new();
    let ends = running.ends;
    for (site, task) in running.tasks {
        let waited =
            place.sites[site].wait(async { tokio::time::timeout_at(ends.into(), task).await });
        match waited {
            Ok(brought) => all.push((site, brought?)),
            Err(_) => bail!("{name}: a client did not end"),
        }
    }
    Ok(all)
}

struct Client {
    system: Arc<dyn System>,
    load: Load,
    name: String,
    round: u32,
    /// By its site and its place there: the same client has the same keys at every point.
    number: u64,
    rng: Rng,
    zipf: Option<Zipf>,
    busy: Arc<Mutex<HashMap<String, u32>>>,
}

/// Keeps a client counted at a key.
struct Busy {
    all: Arc<Mutex<HashMap<String, u32>>>,
    key: String,
    collided: bool,
}

impl Busy {
    fn new(all: &Arc<Mutex<HashMap<String, u32>>>, key: &str) -> Busy {
        let mut keys = all.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = keys.entry(key.to_owned()).or_default();
        *clients += 1;
        Busy {
            collided: *clients > 1,
            key: key.to_owned(),
            all: all.clone(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut keys = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = keys.get_mut(&self.key) {
            *clients -= 1;
        }
    }
}

impl Client {
    fn key(&mut self) -> String {
        match (&self.zipf, self.load.keys) {
            (Some(zipf), _) => {
                let chance = (self.rng.draw() >> 11) as f64 / (1_u64 << 53) as f64;
                format!("{}-z{}", self.name, zipf.rank(chance))
            }
            (None, Keys::One) => format!("{}-round-{}", self.name, self.round),
            _ => {
                let one = self.rng.below(OWN_KEYS);
                self.own(one)
            }
        }
    }

    /// A key of this client. Points of the same size share them: the first section of a key costs
    /// more than the others, with every system, and is nobody's question here. Plain writes have
    /// their own: after one, a section would have something to settle.
    fn own(&self, one: u64) -> String {
        let what = match self.load.work {
            Work::Put | Work::Get => "plain",
            _ => "own",
        };
        format!("{what}-{}-{}-{one}", self.load.size, self.number)
    }

    /// An operation counts if it begins after the lead, and then whole.
    async fn run(mut self, from: Instant, to: Instant) -> Brought {
        let mut brought = Brought::default();
        let value: Bytes = noise(&mut self.rng, self.load.size);
        if self.load.work == Work::Get {
            // What is read has to be there.
            for one in 0..OWN_KEYS {
                let key = self.own(one);
                if let Err(error) = self.system.put(&key, value.clone()).await {
                    brought.errors += 1;
                    brought.first_error.get_or_insert(format!("{error:#}"));
                }
            }
        }
        if self.load.first {
            for one in 0..OWN_KEYS {
                let key = self.own(one);
                // What fails here fails again where it counts.
                let _ = self.once(&key, &value, &mut Brought::default()).await;
            }
        }
        let mut first = None;
        let mut last = Instant::now();
        // At least one, however long it takes, but on a key that all want; and not for ever, where
        // none succeeds.
        let more = self.load.keys != Keys::One;
        while last < to || (more && brought.operations == 0 && last < to + PATIENCE) {
            let key = self.key();
            let begun = Instant::now();
            let mut one = Brought::default();
            let once = self.once(&key, &value, &mut one);
            let done = if more {
                once.await
            } else {
                // A queue that moves too slowly is left alone: its key is not used again.
                match tokio::time::timeout_at((to + QUEUE).into(), once).await {
                    Ok(done) => done,
                    Err(_) => break,
                }
            };
            last = Instant::now();
            if let Err(error) = done {
                brought.errors += 1;
                brought.first_error.get_or_insert(format!("{error:#}"));
                tokio::time::sleep(Duration::from_millis(10)).await;
                last = Instant::now();
            } else if begun >= from {
                first.get_or_insert(begun);
                brought.operations += 1;
                brought.puts += one.puts;
                brought.collisions += one.collisions;
                brought.sections += one.sections;
                brought.steps.append(&mut one.steps);
            }
        }
        let end = if more { last } else { last.max(to) };
        brought.seconds = first.map_or(0.0, |first| (end - first).as_secs_f64());
        brought
    }

    async fn once(&mut self, key: &str, value: &Bytes, one: &mut Brought) -> Result<()> {
        if let Work::Mix(updates) = self.load.work {
            one.reads = self.rng.below(100) >= u64::from(updates);
        }
        let begun = Instant::now();
        let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        if self.load.work == Work::Get {
            self.system.get(key).await?;
            one.steps.push(("get", ms(begun)));
            return Ok(());
        }
        if self.load.work == Work::Put {
            self.system.put(key, value.clone()).await?;
            one.steps.push(("put", ms(begun)));
            one.puts = 1;
            return Ok(());
        }
        if self.load.work == Work::Queue {
            self.system.queue(key).await?;
            one.steps.push(("queue", ms(begun)));
            return Ok(());
        }
        let busy = Busy::new(&self.busy, key);
        one.collisions = u64::from(busy.collided);
        let mut section = self.system.enter(key).await?;
        one.steps.push(("enter", ms(begun)));
        one.sections = 1;
        if let Some(created) = section.created() {
            let created = created.as_secs_f64() * 1e3;
            one.steps.push(("create", created));
            one.steps.push(("acquire", ms(begun) - created));
        }
        if self.load.work == Work::Section {
            one.puts = 1;
            section.put_and_leave(value.clone()).await?;
        } else {
            let inside = self.inside(&mut *section, value, one).await;
            one.steps.push(("waited", ms(begun)));
            let since = Instant::now();
            // Whatever went wrong inside, the next one has to come in.
            let left = section.leave().await;
            inside.and(left)?;
            one.steps.push(("leave", ms(since)));
        }
        one.steps.push(("section", ms(begun)));
        Ok(())
    }

    /// What is done inside of a section.
    async fn inside(
        &self,
        section: &mut dyn Section,
        value: &Bytes,
        one: &mut Brought,
    ) -> Result<()> {
        let begun = Instant::now();
        let step = match self.load.work {
            Work::Mix(_) if one.reads => {
                section.get().await?;
                "critical get"
            }
            Work::Batch(puts) => {
                for _ in 0..puts {
                    section.put(value.clone()).await?;
                }
                one.puts = puts.into();
                "puts"
            }
            Work::Pipelined(puts) => {
                section.put_all(vec![value.clone(); puts as usize]).await?;
                one.puts = puts.into();
                "puts"
            }
            _ => {
                section.put(value.clone()).await?;
                one.puts = 1;
                "put"
            }
        };
        one.steps.push((step, begun.elapsed().as_secs_f64() * 1e3));
        Ok(())
    }
}

/// YCSB's zipfian choice, without its scrambling: rank 0 is the favourite.
#[derive(Clone, Debug)]
struct Zipf {
    /// Up to each rank, the share of all.
    up_to: Arc<[f64]>,
}

impl Zipf {
    fn new(keys: u32) -> Zipf {
        let weight = |rank: u32| f64::from(rank + 1).powf(-0.99);
        let all: f64 = (0..keys).map(weight).sum();
        let mut sum = 0.0;
        let up_to = (0..keys).map(|rank| {
            sum += weight(rank) / all;
            sum
        });
        Zipf {
            up_to: up_to.collect(),
        }
    }

    fn rank(&self, chance: f64) -> usize {
        let rank = self.up_to.partition_point(|share| *share < chance);
        rank.min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zipfian_choice_has_its_favourite() {
        let zipf = Zipf::new(100);
        assert_eq!(zipf.rank(0.0), 0);
        assert_eq!(zipf.rank(1.0), 99);
        // 1 of the 100th harmonic number of order 0.99.
        assert_eq!(zipf.rank(0.18), 0);
        assert!(zipf.rank(0.21) > 0);
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile((0..=100).map(f64::from), 0.99), 99.0);
    }
}
