//! What clients notice while the members of a cluster change, beside etcd and `ZooKeeper`.
//!
//! **Problem.** A change of members must not be seen by whoever uses the cluster: no error, no
//! outcome that nobody knows, and no operation that waits for longer than the protocol needs.
//!
//! **Idea.** A load goes on at three sites ([`load`]) while an operator adds a node, drains one,
//! removes one, replaces one that lives and one whose disk is lost, replaces all that are left of
//! the first three, and restarts all ([`nodes`]). The report has, for each of these, the longest
//! time that an operation took, by its kind, beside those of a calm time before; then what the
//! checker says of all registers, and what loops of `fermata lock` have counted ([`counters`]).
//! etcd and `ZooKeeper` get the same load while their leader moves, and while a member is added and
//! removed ([`peers`]).
//!
//! **Where.** Fermata's nodes are processes on the loopback, and delay their own messages (`rtt` in
//! their configuration); its clients ask the node of their site. The peers live where
//! [`place`](crate::music::place) can put them: in namespaces with the delays of the profile lUs,
//! or all on the loopback, without any.

mod counters;
mod load;
mod nodes;
mod peers;
mod subject;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::music::place::{Delays, LOOPBACK, LUS, Place, SITES};
use crate::report;
use load::{Done, Load, Record};
use peers::{Etcd, Peer, Zookeeper};
use subject::Kind;

/// See `fermata-bench ring --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct RingArgs {
    /// What to measure.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "fermata,etcd,zookeeper"
    )]
    systems: Vec<System>,
    /// Delays between Fermata's three sites, as the servers' configuration has them.
    #[arg(long, default_value = "lUs")]
    rtt: String,
    /// Seconds without a change before the first one, and between two.
    #[arg(long, default_value_t = 10)]
    calm: u64,
    /// Loops of `fermata lock` beside the load, each adding to one number.
    #[arg(long, default_value_t = 0)]
    counters: usize,
    /// The program to run as the nodes [default: `fermata` beside this one].
    #[arg(long, value_name = "FILE")]
    fermata: Option<PathBuf>,
    /// Print each operation that took longer than this, milliseconds.
    #[arg(long, value_name = "MS")]
    slow: Option<u64>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum System {
    /// This.
    Fermata,
    /// See <https://etcd.io>.
    Etcd,
    /// See <https://zookeeper.apache.org>.
    Zookeeper,
}

/// Measures and prints.
pub(crate) fn run(args: &RingArgs) -> Result<()> {
    if args.systems.contains(&System::Fermata) {
        println!("Fermata, delays {}:", args.rtt);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(nodes::measure(args))?;
    }
    if args.systems == [System::Fermata] {
        return Ok(());
    }
    let delays = Delays::found()?;
    println!("etcd and ZooKeeper, delays {}:", delays.describe());
    let profile = match delays {
        Delays::None => LOOPBACK,
        _ => LUS,
    };
    let place = Place::new(delays, profile)?;
    if args.systems.contains(&System::Etcd) {
        measure_peer("etcd", args, &place, &mut Etcd::start(&place)?)?;
    }
    if args.systems.contains(&System::Zookeeper) {
        measure_peer("ZooKeeper", args, &place, &mut Zookeeper::start(&place)?)?;
    }
    Ok(())
}

fn measure_peer(name: &str, args: &RingArgs, place: &Place, peer: &mut dyn Peer) -> Result<()> {
    println!("{name}, {}:", peer.durability());
    let mut subjects = Vec::new();
    for site in 0..SITES {
        subjects.push(peer.client(site)?);
    }
    let load = Load::begin(&subjects, |site, work| place.sites[site].client(work));
    let calm = Duration::from_secs(args.calm);
    let mut phases = Phases::default();
    type Change = fn(&mut dyn Peer) -> Result<()>;
    let changes: [(&str, Change); 5] = [
        ("calm", |_| Ok(())),
        ("move the leader", |peer| peer.move_leader()),
        ("add", |peer| peer.add()),
        ("remove the leader", |peer| peer.remove_leader()),
        ("remove", |peer| peer.remove()),
    ];
    for (change, does) in changes {
        let begun = Instant::now();
        does(peer)?;
        // What a change does to clients may come after its end.
        std::thread::sleep(calm);
        phases.add(change, begun);
    }
    let record = place.sites[0].wait(load.end())?;
    phases.report(&record, args.slow);
    record.judge()
}

/// Times in which something was changed, or nothing.
#[derive(Default)]
struct Phases(Vec<Phase>);

struct Phase {
    name: String,
    from: Instant,
    to: Instant,
}

impl Phases {
    /// What began then is over.
    fn add(&mut self, name: &str, from: Instant) {
        let to = Instant::now();
        eprintln!("{name}: {:.1} s", (to - from).as_secs_f64());
        self.0.push(Phase {
            name: name.to_owned(),
            from,
            to,
        });
    }

    /// Prints the longest operations by phase and kind, and each that took longer than `slow` ms.
    fn report(&self, record: &Record, slow: Option<u64>) {
        print!("{}", self.table(&record.all));
        let Some(first) = self.0.first().map(|phase| phase.from) else {
            return;
        };
        let slow = slow.map_or(Duration::MAX, Duration::from_millis);
        let since = |at: Instant| at.saturating_duration_since(first).as_secs_f64();
        for phase in self.0.iter().filter(|_| slow < Duration::MAX) {
            println!(
                "{:.3} to {:.3} s: {}",
                since(phase.from),
                since(phase.to),
                phase.name
            );
        }
        for done in record.all.iter().filter(|done| done.took > slow) {
            println!(
                "{:.3} s: {} at site {} took {} ms {}",
                since(done.start),
                done.kind.name(),
                done.site + 1,
                done.took.as_millis(),
                done.failed.as_ref().map_or("", |(said, _)| said)
            );
        }
    }

    /// The longest operation of each kind that was under way in each phase.
    fn table(&self, all: &[Done]) -> String {
        let [read, write, section, put] = Kind::ALL.map(|kind| format!("{}, ms", kind.name()));
        let [change, seconds, operations] = ["", "s", "operations"].map(str::to_owned);
        let mut rows = vec![[change, seconds, operations, read, write, section, put]];
        for phase in &self.0 {
            let in_it = |done: &&Done| done.start < phase.to && done.start + done.took > phase.from;
            let longest = |kind: Kind| {
                let of_kind = all.iter().filter(in_it).filter(|done| done.kind == kind);
                let longest = of_kind.map(|done| done.took).max();
                longest.map_or("-".into(), |took| took.as_millis().to_string())
            };
            let [read, write, section, put] = Kind::ALL.map(longest);
            let seconds = format!("{:.1}", (phase.to - phase.from).as_secs_f64());
            let operations = all.iter().filter(in_it).count().to_string();
            let name = phase.name.clone();
            rows.push([name, seconds, operations, read, write, section, put]);
        }
        report::aligned(&rows)
    }
}

impl Record {
    /// Prints what did not end well and what the checker says.
    ///
    /// # Errors
    /// The registers are not what was promised.
    fn judge(&self) -> Result<()> {
        let failed = self.all.iter().filter_map(|done| done.failed.as_ref());
        let (unknown, errors): (Vec<_>, Vec<_>) = failed.partition(|(_, unknown)| *unknown);
        println!(
            "{} operations: {} with an error, {} with an unknown outcome",
            self.all.len(),
            errors.len(),
            unknown.len()
        );
        for (said, _) in errors.iter().chain(&unknown).take(5) {
            println!("  {said}");
        }
        let (said, holds) = self.verdict();
        println!("{said}");
        ensure!(holds, "the registers are not what was promised");
        Ok(())
    }
}
