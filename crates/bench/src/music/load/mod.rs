//! Closed loops of sections: each client does one after the other, and everything is timed.
//!
//! **Side by side.** What is compared takes turns: a round gives each system a slice of time, and
//! each round begins with another one (A B C, B C A, …). Other work of the machine falls on all of
//! them, and medians over the rounds say more than one long run of each.

mod client;
mod counted;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fermata_protocol::base::Rng;
use indicatif::ProgressBar;

use super::place::Place;
use super::servers::Servers;
use super::system::{Kind, System};
use crate::cpu::Meter;
use client::{Client, Zipf};
use counted::{Brought, Round};

pub(crate) use counted::{Counted, Summary, median, quantile};

/// How long a slice may go on after its time for what has begun: a section of a thousand puts by
/// lightweight transactions takes minutes.
const GRACE: Duration = Duration::from_secs(600);

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
    let clients = connect(place, servers, kinds, load)?;
    let mut all: BTreeMap<Kind, Counted> = BTreeMap::new();
    let parts = match load.sites {
        Sites::Together => vec![None],
        Sites::Apart(_) => (0..place.sites.len()).map(Some).collect(),
    };
    for round in 0..load.rounds {
        let mut of_round: BTreeMap<Kind, Round> = BTreeMap::new();
        for site in &parts {
            if let (Some(site), Sites::Apart(lead)) = (site, load.sites) {
                bar.set_message(format!("{name}: all systems lead in, site {}", site + 1));
                lead_in(place, &clients, load, (name, Some(*site), lead))?;
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
                let of = of_round.entry(*kind).or_default();
                of.brought.extend(brought);
                of.foreign.push(foreign);
            }
        }
        for (kind, round) in of_round {
            bar.inc(1);
            all.entry(kind).or_default().add(round, parts.len());
        }
    }
    Ok(all)
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

/// Lets all systems be used at once; nothing is counted.
pub(crate) fn warm(place: &Place, servers: &Servers, kinds: &[Kind], load: &Load) -> Result<()> {
    let clients = connect(place, servers, kinds, load)?;
    lead_in(place, &clients, load, ("warming", None, load.time.1))
}

/// The clients of all systems. They are connected side by side: a session with `ZooKeeper` alone
/// costs a trip over the ocean.
fn connect(
    place: &Place,
    servers: &Servers,
    kinds: &[Kind],
    load: &Load,
) -> Result<Vec<(Kind, Clients)>> {
    let sites: Vec<usize> = (0..place.sites.len())
        .flat_map(|site| std::iter::repeat_n(site, load.clients[site]))
        .collect();
    let mut clients = Vec::new();
    for kind in kinds {
        let of = std::thread::scope(|scope| {
            let one = |site: &usize| {
                let site = *site;
                scope.spawn(move || Ok((site, connected(place, servers, *kind, site)?)))
            };
            let threads: Vec<_> = sites.iter().map(one).collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(client) => client,
                Err(_) => bail!("a thread that connects a client of {} died", kind.name()),
            });
            joined.collect::<Result<Clients>>()
        });
        clients.push((*kind, of?));
    }
    Ok(clients)
}

/// Clients of a site, or of all, of all systems at once; nothing is counted.
fn lead_in(
    place: &Place,
    clients: &[(Kind, Clients)],
    load: &Load,
    (name, site, lead): (&str, Option<usize>, Duration),
) -> Result<()> {
    let mut running = Vec::new();
    for (kind, of) in clients {
        let mut load = load.for_kind(*kind);
        load.time = (Duration::ZERO, lead);
        load.first = true;
        running.extend(begin(place, of, &load, (name, 0, site)).tasks);
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
