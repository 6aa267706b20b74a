//! The worked examples behind `fermata demo`: the two production services of MUSIC §VII, on a fresh
//! cluster of real processes, with faults, and with a verdict that is proved from the history.
//!
//! **Problem.** A demonstration that only shows that things work proves nothing about the moment
//! when they break.
//!
//! **Idea.** [`homing`] and [`portal`] use the client library as any service would. While they run,
//! faults are injected at stated points of their progress; an observer outside of the cluster
//! records what each worker did and was told. At the end pure functions judge that history.
//!
//! **Invariant.** The exit status is 0 only if every check held; an interrupted run has 130.

pub(crate) mod homing;
pub(crate) mod latency;
pub(crate) mod portal;
pub(crate) mod stage;

use std::time::Duration;

use crate::args::{DemoArgs, Example, Global};
use crate::dev::cluster::Cluster;
use crate::dev::plan::Wishes;
use crate::dev::{self, Folder};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals::cannot_catch;
use stage::Report;

/// Where the search for free ports begins: clear of a running `fermata dev`.
const BASE_PORT: u16 = 7400;

/// An example that takes longer has failed.
const RUN_MAX: Duration = Duration::from_secs(180);

/// The same, where every step is as fast as somebody else's servers on this machine.
const RUN_ON_ENGINE_MAX: Duration = Duration::from_secs(300);

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
        Ok(report) if global.json => output::json(&report.as_json())?,
        Ok(report) => output::text(report)?,
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
            Example::Homing => homing::run::run(cluster).await,
            Example::Portal => portal::run(cluster).await,
        }
    };
    let most = match args.engine.engine {
        Some(_) => RUN_ON_ENGINE_MAX,
        None => RUN_MAX,
    };
    let over = |_| {
        let sentence = format!("the example was not done within {} s", most.as_secs());
        Failure::new(Exit::No, sentence)
    };
    tokio::time::timeout(most, run).await.map_err(over)?
}
