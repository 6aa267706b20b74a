//! MUSIC's figures (§VIII, §X-B, and 11 and 12 of its earlier version), beside real peers: Fermata
//! native and on Cassandra, MUSIC's own layout, MSCP, `CassaEV`, `ZooKeeper` and etcd, all in one
//! run, under the same load, in turns.
//!
//! **Problem.** Figures of other machines say nothing here, and those of two runs on one machine
//! little. Every comparison has to be taken at once, with the same durability, by clients that do
//! the same.
//!
//! **Idea.** A figure says which [`Point`]s it needs: a load, and the systems that get it. All
//! points are measured once, whatever number of figures show them, then each figure draws itself
//! ([`figures`], [`targets`]). Systems are behind one trait ([`system`]), a file each.
//!
//! **Set-up.** One node of each system per site. A site is a network namespace with delays between
//! it and the others ([`place`]); points of the profile *loopback* have everything on 127.0.0.1.
//! Clients live in their site and use its node. A Fermata server, native or on an engine, runs per
//! site, in this process on threads of its own, with sockets, files and flushes as the command
//! `fermata server` has them.
//!
//! **Departures from the paper.** Its machines are eight cores each; here all servers and clients
//! share one machine, so peak throughputs are those of its processors. Cassandra is 5.0.9 with
//! Paxos v2 (the paper's 3.11 has v1 alone), which makes MUSIC's own layout faster than the paper
//! saw it. CockroachDB is replaced by etcd with the same structure of transactions (Figure 7).
//! Figure 4(b), nine nodes, is left out.

mod bare;
pub(crate) mod etcd;
mod fermata;
mod figures;
mod load;
mod page;
mod paper;
pub(crate) mod place;
mod servers;
pub(crate) mod system;
mod targets;
mod zookeeper;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use figures::Figure;
use load::{Counted, Keys, Load, Sites, Summary, Work};
use page::Page;
use place::{Delays, LOOPBACK, PROFILES, Place, Profile};
use servers::Servers;
use system::Kind;

/// See `fermata-bench music --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct MusicArgs {
    /// What to measure; everything if nothing is named.
    #[arg(value_enum)]
    figures: Vec<Figure>,
    /// Fewer points, shorter: six minutes of measuring, and what servers take to start.
    #[arg(long)]
    quick: bool,
    /// Where report.md, music.json and the charts go.
    #[arg(long, default_value = "target/music")]
    out: PathBuf,
    /// Rounds of every comparison. Default: 5 or 3, with --quick 1 or 2.
    #[arg(long)]
    rounds: Option<u32>,
    /// Only points whose name has this in it: what is not measured is left out of the figures.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only these systems: what is not measured is left out of the figures.
    #[arg(long, value_enum, value_name = "SYSTEM", num_args = 1..)]
    systems: Vec<Kind>,
    /// Measure without delays, whatever this machine has.
    #[arg(long)]
    no_delays: bool,
}

impl Point {
    /// How long it is measured for, leads and all: what has begun is waited for beyond that.
    fn planned(&self) -> Duration {
        let turns = self.kinds.len() as u32 * (self.load.time.0 + self.load.time.1);
        let round = match self.load.sites {
            Sites::Together => turns,
            Sites::Apart(lead) => place::SITES as u32 * (lead + turns),
        };
        self.load.rounds * round
    }
}

/// A load, and the systems that get it in turns.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// What figures know it by; also the beginning of its keys.
    pub(crate) name: String,
    pub(crate) profile: Profile,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) load: Load,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) quick: bool,
    rounds: Option<u32>,
}

impl Effort {
    /// A slice's time before counting begins, its counted time, and the number of rounds.
    pub(crate) fn of(self, quick: (f64, u32), full: (f64, u32)) -> ((Duration, Duration), u32) {
        let (seconds, rounds) = if self.quick { quick } else { full };
        let lead = if self.quick { 0.4 } else { 2.0 };
        let time = (
            Duration::from_secs_f64(lead),
            Duration::from_secs_f64(seconds),
        );
        (time, self.rounds.unwrap_or(rounds))
    }
}

/// What was measured, by the points' names.
#[derive(Default)]
pub(crate) struct Measured {
    points: BTreeMap<String, BTreeMap<Kind, Counted>>,
    /// How long each system was counted at a point, in seconds.
    seconds: BTreeMap<String, f64>,
    /// There are delays between the sites.
    pub(crate) delayed: bool,
    failed: Vec<String>,
}

impl Measured {
    /// How much a system did at a point, also where that is nothing; none: not measured.
    pub(crate) fn rate(&self, point: &str, kind: Kind) -> Option<f64> {
        self.points.get(point)?.get(&kind).map(Counted::rate)
    }

    /// What one operation in the time of a point is per second.
    pub(crate) fn one_in_time(&self, point: &str) -> Option<f64> {
        self.seconds.get(point).map(|seconds| seconds.recip())
    }

    /// A system at a point; none: not measured, or it did nothing.
    pub(crate) fn of(&self, point: &str, kind: Kind) -> Option<&Counted> {
        self.points
            .get(point)?
            .get(&kind)
            .filter(|c| c.sections > 0 || !c.steps.is_empty())
    }
}

/// All of a run, for programs.
#[derive(Serialize)]
struct Json {
    quick: bool,
    delays: String,
    set_up: Vec<String>,
    points: BTreeMap<String, BTreeMap<&'static str, Summary>>,
    failed: Vec<String>,
}

/// Measures, and writes the report.
pub(crate) fn run(args: &MusicArgs) -> Result<()> {
    let begun = Instant::now();
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("{} cannot be made", args.out.display()))?;
    let figures = if args.figures.is_empty() {
        Figure::all()
    } else {
        args.figures.clone()
    };
    let effort = Effort {
        quick: args.quick,
        rounds: args.rounds,
    };
    let delays = if args.no_delays {
        Delays::None
    } else {
        Delays::found()?
    };
    let mut points = plan(&figures, effort);
    if let Some(only) = &args.only {
        points.retain(|point| point.name.contains(only));
    }
    if !args.systems.is_empty() {
        for point in &mut points {
            point.kinds.retain(|kind| args.systems.contains(kind));
        }
        points.retain(|point| !point.kinds.is_empty());
    }
    let slices: usize = points
        .iter()
        .map(|p| p.kinds.len() * p.load.rounds as usize)
        .sum();
    let mut seen = Run {
        delays: delays.clone(),
        bar: bar(slices),
        set_up: vec![format!("delays: {}", delays.describe())],
        measured: Measured {
            delayed: delays != Delays::None,
            ..Measured::default()
        },
        warming: match args.quick {
            true => (6, Duration::from_secs(12)),
            false => (12, Duration::from_secs(180)),
        },
    };
    let planned: Duration = points.iter().map(Point::planned).sum();
    println!(
        "delays: {}; {:.0} s of measuring, and what servers take to start and sections to end",
        delays.describe(),
        planned.as_secs_f64()
    );
    let (near, far): (Vec<Point>, Vec<Point>) = points
        .into_iter()
        .partition(|p| p.profile == LOOPBACK || delays == Delays::None);
    seen.phase(Delays::None, &near)?;
    seen.phase(delays, &far)?;
    seen.bar.finish_and_clear();
    seen.set_up.push(format!(
        "the whole run took {:.0} s",
        begun.elapsed().as_secs_f64()
    ));
    seen.write(args, &figures)
}

/// All points that these figures show, once each, those of a profile together.
fn plan(figures: &[Figure], effort: Effort) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for point in figures.iter().flat_map(|figure| figure.points(effort)) {
        match points.iter_mut().find(|known| known.name == point.name) {
            Some(known) => {
                let more = point.kinds.into_iter();
                let more: Vec<Kind> = more.filter(|k| !known.kinds.contains(k)).collect();
                known.kinds.extend(more);
            }
            None => points.push(point),
        }
    }
    let order = |p: &Point| PROFILES.iter().position(|known| *known == p.profile);
    points.sort_by_key(order);
    points
}

fn bar(slices: usize) -> ProgressBar {
    let bar = ProgressBar::new(slices as u64);
    let style = "{bar:30} {pos}/{len} {elapsed_precise} (about {eta_precise} more) {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// What a run has come to.
struct Run {
    delays: Delays,
    bar: ProgressBar,
    /// Sentences for the beginning of the report.
    set_up: Vec<String>,
    measured: Measured,
    /// By how many clients a site, and how long, all systems are warmed.
    warming: (usize, Duration),
}

impl Run {
    /// Measures these points on one set of servers.
    fn phase(&mut self, delays: Delays, points: &[Point]) -> Result<()> {
        if points.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        // Servers boot, and agree on tables, without delays: nobody measures that.
        let mut place = Place::new(delays, LOOPBACK)?;
        let kinds: BTreeSet<Kind> = points
            .iter()
            .flat_map(|p| p.kinds.iter().copied())
            .collect();
        let servers = Servers::start(&place, &kinds)?;
        for (system, when) in &servers.durability {
            let line = format!("{system}: {when}");
            if !self.set_up.contains(&line) {
                self.bar.suspend(|| println!("{line}"));
                self.set_up.push(line);
            }
        }
        self.warm(&place, &servers, &kinds)?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("all servers run, and are warm, after {seconds:.0} s");
        let mut announced = None;
        for point in points {
            if announced != Some(point.profile) {
                place.become_profile(point.profile)?;
                announced = Some(point.profile);
                let found = place.measured()?;
                let line = format!(
                    "{}: round trips of {:?} ms between sites 1-2, 1-3 and 2-3, of which TCP sees \
                     {:.2}, {:.2} and {:.2}",
                    point.profile.name, point.profile.rtt, found[0], found[1], found[2]
                );
                self.bar.suspend(|| println!("{line}"));
                self.set_up.push(line);
            }
            let named = (point.name.as_str(), &self.bar);
            let begun = Instant::now();
            match load::compare(&place, &servers, &point.kinds, &point.load, named) {
                Ok(counted) => {
                    let took = begun.elapsed();
                    self.bar.suspend(|| say(point, took, &counted));
                    self.measured.points.insert(point.name.clone(), counted);
                    let counted = point.load.time.1 * point.load.rounds;
                    let counted = counted.as_secs_f64();
                    self.measured.seconds.insert(point.name.clone(), counted);
                }
                Err(error) => {
                    let line = format!("{}: not measured: {error:#}", point.name);
                    self.bar.suspend(|| println!("{line}"));
                    self.measured.failed.push(line);
                }
            }
        }
        Ok(())
    }

    /// Sections and writes that nobody counts: servers in Java become several times faster in their
    /// first minutes, and the first section of a key costs more than the others. All systems are
    /// warmed at once: what they take from each other does not matter here.
    fn warm(&self, place: &Place, servers: &Servers, kinds: &BTreeSet<Kind>) -> Result<()> {
        let kinds: Vec<Kind> = kinds.iter().copied().collect();
        let load = Load {
            work: Work::Steps,
            keys: Keys::Own,
            size: figures::SMALL,
            clients: [self.warming.0; 3],
            time: (Duration::ZERO, self.warming.1),
            rounds: 1,
            first: true,
            sites: Sites::Together,
        };
        load::warm(place, servers, &kinds, &load)
    }

    fn write(&self, args: &MusicArgs, figures: &[Figure]) -> Result<()> {
        let mut page = Page::new(&args.out);
        page.text("# MUSIC's figures, beside the peers\n\n");
        if self.delays == Delays::None {
            page.text(
                "**Without delays**: what is said of sites and profiles is of one machine.\n\n",
            );
        }
        for line in self.set_up.iter().chain(&self.measured.failed) {
            page.text(&format!("* {line}\n"));
        }
        for figure in figures {
            figure.draw(&self.measured, &mut page)?;
        }
        page.write()?;
        let points = self.measured.points.iter().map(|(name, of)| {
            let of = of.iter().map(|(kind, c)| (kind.name(), c.summary()));
            (name.clone(), of.collect())
        });
        let json = Json {
            quick: args.quick,
            delays: self.delays.describe(),
            set_up: self.set_up.clone(),
            points: points.collect(),
            failed: self.measured.failed.clone(),
        };
        let path = args.out.join("music.json");
        std::fs::write(path, serde_json::to_string_pretty(&json)? + "\n")?;
        println!("written to {}", args.out.display());
        Ok(())
    }
}

/// One line per system, as soon as it is known.
fn say(point: &Point, took: Duration, counted: &BTreeMap<Kind, Counted>) {
    println!(
        "{} ({:.0} s, {:.0} s of it measuring)",
        point.name,
        took.as_secs_f64(),
        point.planned().as_secs_f64()
    );
    for (kind, c) in counted {
        let mut line = format!(
            "  {:<22} {:>9.1}/s {:>9.1} puts/s",
            kind.name(),
            c.rate(),
            c.puts()
        );
        for step in ["get", "queue", "enter", "put", "waited", "section"] {
            let [a, b, d] = [0, 1, 2].map(|site| c.ms(Some(site), step));
            if a + b + d > 0.0 {
                line += &format!("  {step} {a:.1}/{b:.1}/{d:.1}");
            }
        }
        if c.errors > 0 {
            let first = c.first_error.as_deref().unwrap_or_default();
            line += &format!("  {} errors, first: {first}", c.errors);
        }
        println!(
            "{line}  foreign cpu {:.0} %",
            100.0 * load::median(c.foreign.iter().copied())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_leaves_time_for_the_start_of_the_servers() {
        let effort = Effort {
            quick: true,
            rounds: None,
        };
        let points = plan(&Figure::all(), effort);
        for point in &points {
            println!("{:>6.1} s  {}", point.planned().as_secs_f64(), point.name);
        }
        let planned: Duration = points.iter().map(Point::planned).sum();
        println!("{:.0} s in all", planned.as_secs_f64());
        assert!(planned <= Duration::from_secs(360), "{planned:?}");
    }
}
