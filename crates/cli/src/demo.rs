//! `fermata demo`: the worked examples ([`fermata_examples`]) on a fresh cluster of real processes.
//!
//! **Invariant.** The exit status is 0 only if every check held; an interrupted run has 130.

use std::pin::Pin;
use std::time::Duration;

use fermata_examples::{Error, Line, Node, Report, homing, portal};
use serde_json::json;

use crate::args::{DemoArgs, Example, Global};
use crate::dev::cluster::Cluster;
use crate::dev::plan::Wishes;
use crate::dev::{self, Folder};
use crate::exit::{Exit, Failure};
use crate::output::{self, Table};
use crate::signals::cannot_catch;

/// Where the search for free ports begins: clear of a running `fermata dev`.
const BASE_PORT: u16 = 7400;

/// An example ends of itself once nothing goes on in it. Should it not, it has failed after this.
const RUN_MAX: Duration = Duration::from_secs(1_800);

/// Runs an example on a fresh cluster.
pub(crate) async fn run(global: &Global, args: DemoArgs) -> Result<u8, Failure> {
    let folder = Folder::at(None)?;
    let named = args.engine.engine_keyspace.is_some();
    let mut engine = dev::engine(args.engine.clone())?;
    let wishes = if engine.is_default() {
        Wishes {
            rtt: Some("lUs".to_owned()),
            ..Wishes::default()
        }
    } else {
        // What the example finds in its stores it takes for its own.
        if !named {
            engine.keyspace = format!("demo_{:08x}", dev::random_id()? as u32);
        }
        Wishes {
            engine,
            ..Wishes::default()
        }
    };
    let plan = dev::plan_in(folder.path(), &wishes)?;
    let base_port = match args.base_port {
        Some(port) => port,
        None => dev::cluster::free_base(&plan, BASE_PORT),
    };
    let mut cluster = Cluster::start(&plan, folder.path(), base_port)?;
    let outcome = tokio::select! {
        outcome = perform(&args, &mut cluster) => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::new(Exit::Interrupted, "interrupted")),
    };
    match &outcome {
        Ok(report) if global.json => output::json(&as_json(report))?,
        Ok(report) => output::text(in_words(report))?,
        Err(_) => {}
    }
    if args.keep && outcome.is_ok() {
        output::text(dev::table(&cluster))?;
        output::text("the cluster stays up until Ctrl-C")?;
        tokio::signal::ctrl_c().await.map_err(cannot_catch)?;
    }
    for trouble in cluster.stop().await {
        eprintln!("fermata: {trouble}");
    }
    let report = match outcome {
        Ok(report) => report,
        Err(failure) => {
            eprintln!("the logs are kept in {}", folder.path().display());
            folder.keep();
            return Err(failure);
        }
    };
    Ok(if report.all_held() { 0 } else { Exit::No as u8 })
}

async fn perform(args: &DemoArgs, cluster: &mut Cluster) -> Result<Report, Failure> {
    cluster.wait_ready().await?;
    let run = async {
        match args.example {
            Example::Homing => homing::run(cluster).await,
            Example::Portal => portal::run(cluster).await,
        }
    };
    let over = |_| {
        let sentence = format!("the example was not done within {} s", RUN_MAX.as_secs());
        Failure::new(Exit::No, sentence)
    };
    Ok(tokio::time::timeout(RUN_MAX, run).await.map_err(over)??)
}

impl fermata_examples::Cluster for Cluster {
    fn nodes(&self) -> Vec<Node> {
        let node = |node: &dev::cluster::Node| Node {
            label: node.planned.label.clone(),
            site: node.site.clone(),
            endpoint: crate::connect::uri(&node.endpoint(), false),
        };
        self.nodes().iter().map(node).collect()
    }

    fn kill(&mut self, node: usize) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self.kill(node))
    }

    fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.restart(node)
            .map_err(|failure| Error::Local(failure.sentence))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Client(error) => error.into(),
            Error::Stuck(sentence) => Failure::new(Exit::No, sentence),
            Error::Local(sentence) => Failure::new(Exit::Local, sentence),
            Error::Internal(sentence) => Failure::new(Exit::Internal, sentence),
        }
    }
}

/// For programs.
fn as_json(report: &Report) -> serde_json::Value {
    let ms = |d: Duration| (d.as_secs_f64() * 1e4).round() / 10.0;
    let figures: serde_json::Map<String, serde_json::Value> = (report.figures.iter())
        .map(|(name, value)| ((*name).to_owned(), (*value).into()))
        .collect();
    json!({
        "title": report.title,
        "held": report.all_held(),
        "seconds": report.took.as_secs_f64(),
        "faults": report.faults,
        "figures": figures,
        "checks": report.checks.iter().map(|check| json!({
            "claim": check.claim,
            "held": check.violations.is_empty(),
            "violations": check.violations,
        })).collect::<Vec<_>>(),
        "latencies": report.latencies.iter().map(|line| json!({
            "site": line.site, "step": line.step, "count": line.count,
            "p50_ms": ms(line.p50), "p99_ms": ms(line.p99), "max_ms": ms(line.max),
        })).collect::<Vec<_>>(),
    })
}

/// For people.
fn in_words(report: &Report) -> String {
    /// A worse run has so many that nobody reads them all.
    const SHOWN_MAX: usize = 5;
    let mut text = format!("{}, {:.1} s\n\n", report.title, report.took.as_secs_f64());
    for (what, count) in &report.figures {
        text += &format!("{count:>8}  {what}\n");
    }
    text += "\n";
    for check in &report.checks {
        let held = if check.violations.is_empty() {
            "held  "
        } else {
            "BROKEN"
        };
        text += &format!("{held}  {}\n", check.claim);
        for violation in check.violations.iter().take(SHOWN_MAX) {
            text += &format!("        {violation}\n");
        }
        if check.violations.len() > SHOWN_MAX {
            text += &format!("        … {} in all\n", check.violations.len());
        }
    }
    let verdict = if report.all_held() {
        "everything held"
    } else {
        "NOT everything held"
    };
    text + &format!("\n{}\nverdict: {verdict}\n", table(&report.latencies))
}

/// The lines as a table.
fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&["site", "step", "count", "p50 ms", "p99 ms", "max ms"]);
    let ms = |d: Duration| format!("{:.1}", d.as_secs_f64() * 1e3);
    for line in lines {
        table.row(vec![
            line.site.clone(),
            line.step.to_owned(),
            line.count.to_string(),
            ms(line.p50),
            ms(line.p99),
            ms(line.max),
        ]);
    }
    table
}
