//! Members that come and go under load. A trial of the peers.

pub(crate) mod peers;
pub(crate) mod subject;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::music::place::{Delays, LOOPBACK, LUS, Place, SITES};
use peers::{Etcd, Peer, Zookeeper};
use subject::Subject;

/// How long is written before and after each change.
const AROUND: Duration = Duration::from_secs(4);

/// See `fermata-bench ring --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct RingArgs {
    /// Only this system.
    #[arg(long)]
    system: Option<String>,
    /// Everybody on the loopback.
    #[arg(long)]
    no_delays: bool,
}

struct Done {
    kind: &'static str,
    site: usize,
    took: Duration,
    error: Option<String>,
}

/// Starts each, changes its members, and prints the longest operations.
pub(crate) fn run(args: &RingArgs) -> Result<()> {
    let delays = match args.no_delays {
        true => Delays::None,
        false => Delays::found()?,
    };
    println!("delays: {}", delays.describe());
    let profile = if delays == Delays::None {
        LOOPBACK
    } else {
        LUS
    };
    let place = Place::new(delays, profile)?;
    let is_wanted = |name| args.system.as_deref().is_none_or(|wanted| wanted == name);
    for lasts in [true, false] {
        if is_wanted("etcd") {
            trial("etcd", &place, &mut Etcd::start(&place)?, lasts)?;
        }
        if is_wanted("zookeeper") {
            trial("zookeeper", &place, &mut Zookeeper::start(&place)?, lasts)?;
        }
    }
    Ok(())
}

fn trial(name: &str, place: &Place, peer: &mut dyn Peer, leads: bool) -> Result<()> {
    println!(
        "{name}: {}; member {} leads",
        peer.durability(),
        peer.leader()?
    );
    let ends = Arc::new(AtomicBool::new(false));
    let (tell, mut told) = unbounded_channel();
    let mut tasks = Vec::new();
    for site in 0..SITES {
        let client = peer.client(site)?;
        for kind in ["read", "write", "section"] {
            let (client, ends, tell) = (client.clone(), ends.clone(), tell.clone());
            tasks.push(place.sites[site].client(async move {
                while !ends.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let error = once(&*client, kind, site).await.err();
                    let took = begun.elapsed();
                    let error = error.map(|error| format!("{error:#}"));
                    let done = Done {
                        kind,
                        site,
                        took,
                        error,
                    };
                    let _ = tell.send(done);
                }
            }));
        }
    }
    type Change = fn(&mut dyn Peer) -> Result<()>;
    let mut changes: Vec<(&str, Change)> = vec![
        ("nothing", |_| Ok(())),
        ("move", |peer| peer.move_leader()),
        ("add", |peer| peer.add()),
    ];
    match leads {
        true => changes.push(("remove leader", |peer| peer.remove_leader())),
        false => changes.push(("remove", |peer| peer.remove())),
    }
    for (change, does) in changes {
        let begun = Instant::now();
        let done = does(peer);
        let took = begun.elapsed();
        std::thread::sleep(AROUND);
        println!(
            "{name} {change}: {took:?} {:?}; {} leads",
            done.err(),
            peer.leader()?
        );
        print(&mut told);
    }
    ends.store(true, Ordering::Relaxed);
    for (site, task) in tasks.into_iter().enumerate() {
        place.sites[site / 3].wait(task)?;
    }
    Ok(())
}

async fn once(client: &dyn Subject, kind: &str, site: usize) -> Result<()> {
    match kind {
        "read" => client.read(&format!("k{site}")).await.map(drop),
        "write" => client.write(&format!("k{site}"), vec![7; 100]).await,
        _ => client.section("shared").await,
    }
}

fn print(told: &mut UnboundedReceiver<Done>) {
    let mut all = Vec::new();
    while let Ok(done) = told.try_recv() {
        all.push(done);
    }
    for kind in ["read", "write", "section"] {
        for site in 0..SITES {
            let some = all.iter().filter(|d| d.kind == kind && d.site == site);
            let mut took: Vec<Duration> = some.clone().map(|done| done.took).collect();
            took.sort();
            let wrong: Vec<&String> = some.filter_map(|done| done.error.as_ref()).collect();
            println!(
                "    {kind:8} site {}: {:6} done, median {:9.1?}, longest {:9.1?}, {} errors {:?}",
                site + 1,
                took.len(),
                took.get(took.len() / 2).copied().unwrap_or_default(),
                took.last().copied().unwrap_or_default(),
                wrong.len(),
                wrong.first(),
            );
        }
    }
}
