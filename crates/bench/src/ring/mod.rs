//! What clients notice while the members of a cluster change.
//!
//! **Problem.** A change of members must not be seen by whoever uses the cluster: no error, no
//! outcome that nobody knows, and no operation that waits for longer than the protocol needs.
//!
//! **Idea.** A load goes on at three sites ([`load`]) while an operator adds a node, drains one,
//! removes one, replaces one that lives and one whose disk is lost, replaces all that are left of
//! the first three, and restarts all ([`nodes`]). The report has, for each of these, the longest
//! time that an operation took, by its kind, beside those of a calm time before; then what the
//! checker says of all registers, and what loops of `fermata lock` have counted ([`counters`]).

mod counters;
mod load;
mod nodes;
mod subject;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fermata_client::{Client, Options};

use crate::processes::beside;
use crate::report;
use counters::Counters;
use load::{Done, Load, Record};
use nodes::{Fermata, SITES};
use subject::Kind;

/// See `fermata-bench ring --help`.
#[derive(Debug, clap::Args)]
pub(crate) struct RingArgs {
    /// Delays between the three sites, as the servers' configuration has them.
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
}

/// A time in which something was changed, or nothing.
struct Phase {
    name: String,
    from: Instant,
    to: Instant,
}

/// Measures and prints.
pub(crate) async fn run(args: RingArgs) -> Result<()> {
    let program = args.fermata.clone().map_or_else(beside, Ok)?;
    let mut fermata = Fermata::start(&program, &args.rtt).await?;
    let mut subjects = Vec::new();
    for site in 0..SITES {
        subjects.push(fermata.client(site).await?);
    }
    let load = Load::begin(&subjects, |_, work| tokio::spawn(work));
    let first = fermata.cluster.addresses();
    let counters = Counters::begin(&program, &first, args.counters);
    let mut changes = Changes {
        calm: Duration::from_secs(args.calm),
        phases: Vec::new(),
    };
    let changed = changes.all(&mut fermata).await;
    let record = load.end().await?;
    print!("{}", table(&changes.phases, &record.all));
    changed?;
    let counted = counters.end().await?;
    judge(&record, counted, &fermata).await
}

/// Prints what held, and fails where something did not.
async fn judge(record: &Record, counted: (u64, Vec<String>), fermata: &Fermata) -> Result<()> {
    let (said, holds) = record.verdict();
    println!("{said}");
    let failed = record.all.iter().filter_map(|done| done.failed.as_ref());
    let (unknown, errors): (Vec<_>, Vec<_>) = failed.partition(|(_, unknown)| *unknown);
    println!(
        "{} operations: {} with an error, {} with an unknown outcome",
        record.all.len(),
        errors.len(),
        unknown.len()
    );
    for (said, _) in errors.iter().chain(&unknown).take(5) {
        println!("  {said}");
    }
    let (acknowledged, wrong) = counted;
    if acknowledged > 0 || !wrong.is_empty() {
        let endpoints = fermata.cluster.addresses();
        let options = Options::new(endpoints.iter().map(|at| format!("http://{at}")));
        let section = Client::connect(options).await?;
        let section = section.enter("default", &["counter"], Default::default());
        let found = section.await?.get("counter").await?;
        let found = found.map(|value| String::from_utf8_lossy(&value).trim().to_owned());
        let found: u64 = found.context("the counter is empty")?.parse()?;
        println!(
            "the counter is {found}: {acknowledged} increments were acknowledged, {} commands \
             failed",
            wrong.len()
        );
        for said in wrong.iter().take(5) {
            println!("  {said}");
        }
        // A command that failed may have counted.
        let most = acknowledged + wrong.len() as u64;
        ensure!(
            (acknowledged..=most).contains(&found),
            "the counter is wrong"
        );
    }
    ensure!(holds, "the registers are not what was promised");
    Ok(())
}

/// What an operator does, and when.
struct Changes {
    calm: Duration,
    phases: Vec<Phase>,
}

impl Changes {
    async fn all(&mut self, fermata: &mut Fermata) -> Result<()> {
        self.calm("calm").await;
        let added = fermata.join(1).await?;
        self.operate(fermata, "add", &["node", "add", &added])
            .await?;
        self.operate(fermata, "drain", &["node", "drain", "n2"])
            .await?;
        fermata.operate(&["node", "undrain", "n2"]).await?;
        self.operate(fermata, "remove", &["node", "remove", "n1"])
            .await?;
        fermata.cluster.end("n1").await?;
        let lives = fermata.join(2).await?;
        self.operate(fermata, "replace", &["node", "replace", "n2", &lives])
            .await?;
        fermata.cluster.end("n2").await?;
        self.lost(fermata, &lives, 2).await?;
        self.rolling(fermata).await?;
        self.restarts(fermata).await
    }

    /// A node is killed, its disk goes, and another has its seats.
    async fn lost(&mut self, fermata: &mut Fermata, label: &str, site: usize) -> Result<()> {
        let spare = fermata.join(site).await?;
        let death = Instant::now();
        fermata.cluster.lose(label).await?;
        // Nobody gives up a node that is still heard.
        loop {
            let args = ["node", "replace", label, &spare, "--lost", "--yes"];
            match fermata.operate(&args).await {
                Ok(_) => break,
                Err(error) if death.elapsed() > Duration::from_secs(120) => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.end("SIGKILL, replace --lost", death).await;
        Ok(())
    }

    /// All nodes are replaced, one after the other.
    async fn rolling(&mut self, fermata: &mut Fermata) -> Result<()> {
        for old in fermata.restart_order().await? {
            let site = fermata.cluster.site(&old)?;
            let new = fermata.join(site).await?;
            self.operate(
                fermata,
                "replace, one of all",
                &["node", "replace", &old, &new],
            )
            .await?;
            fermata.cluster.end(&old).await?;
        }
        Ok(())
    }

    async fn restarts(&mut self, fermata: &mut Fermata) -> Result<()> {
        for label in fermata.restart_order().await? {
            let begun = Instant::now();
            fermata.restart(&label).await?;
            self.end("restart, one of all", begun).await;
        }
        Ok(())
    }

    async fn calm(&mut self, name: &str) {
        let begun = Instant::now();
        tokio::time::sleep(self.calm).await;
        self.phases.push(Phase {
            name: name.to_owned(),
            from: begun,
            to: Instant::now(),
        });
    }

    /// A command of the operator, and how long it takes.
    async fn operate(&mut self, fermata: &Fermata, name: &str, args: &[&str]) -> Result<()> {
        let begun = Instant::now();
        fermata.operate(args).await?;
        self.end(name, begun).await;
        Ok(())
    }

    /// A change is over; then nothing for a while.
    async fn end(&mut self, name: &str, begun: Instant) {
        let to = Instant::now();
        eprintln!("{name}: {:.1} s", (to - begun).as_secs_f64());
        self.phases.push(Phase {
            name: name.to_owned(),
            from: begun,
            to,
        });
        tokio::time::sleep(self.calm).await;
    }
}

/// The longest operation of each kind that was under way in each phase.
fn table(phases: &[Phase], all: &[Done]) -> String {
    let kinds = Kind::ALL.map(|kind| format!("{}, ms", kind.name()));
    let [read, write, section, put] = kinds;
    let head = ["", "s", "operations"].map(str::to_owned);
    let [change, seconds, operations] = head;
    let mut rows = vec![[change, seconds, operations, read, write, section, put]];
    for phase in phases {
        let in_it = |done: &&Done| done.start < phase.to && done.start + done.took > phase.from;
        let longest = |kind: Kind| {
            let of_kind = all.iter().filter(in_it).filter(|done| done.kind == kind);
            let longest = of_kind.map(|done| done.took).max();
            longest.map_or("-".into(), |took| {
                format!("{:.0}", took.as_secs_f64() * 1e3)
            })
        };
        rows.push([
            phase.name.clone(),
            format!("{:.1}", (phase.to - phase.from).as_secs_f64()),
            all.iter().filter(in_it).count().to_string(),
            longest(Kind::Read),
            longest(Kind::Write),
            longest(Kind::Section),
            longest(Kind::Put),
        ]);
    }
    report::aligned(&rows)
}
