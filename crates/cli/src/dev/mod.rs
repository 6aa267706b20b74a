//! `fermata dev`: a cluster on this machine, one real process per node.
//!
//! **Problem.** Trying a system for several sites should take one command and no preparation, and
//! show the real thing: processes that can be killed, disks that survive it, delays between sites.
//!
//! **Idea.** A pure [`plan`] says which nodes, groups and ports there are; [`files`] writes the
//! configuration that anybody could have written by hand; [`cluster`] runs `fermata server` on it.
//!
//! **Invariants.**
//! * D1 The directory alone makes a cluster resume: its identity and shape are in `dev.json`, and
//!   everything else is written anew at each start.
//! * D2 A node that dies is reported and stays down; the cluster goes on without it.
//! * D3 No node outlives this process.

pub(crate) mod cluster;
mod files;
pub(crate) mod plan;

pub(crate) use files::random_id;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_server::EngineConfig;

use crate::args::{DevArgs, Global};
use crate::commands::server::EngineArgs;
use crate::exit::Failure;
use crate::output::{self, Table};
use crate::signals::Stop;
use cluster::Cluster;
use plan::{Plan, Wishes};

/// Where `fermata dev` listens unless told otherwise, and clients look.
pub(crate) const BASE_PORT: u16 = 7100;

/// Runs the cluster until Ctrl-C or SIGTERM.
pub(crate) async fn run(global: &Global, args: DevArgs) -> Result<u8, Failure> {
    let mut signals = Stop::catch()?;
    let wishes = Wishes {
        sites: args.sites,
        nodes_per_site: args.nodes_per_site,
        segments: args.segments,
        rtt: args.rtt.clone(),
        clock_bound_us: args.clock_bound.map(|bound| bound.as_micros() as u64),
        tls: args.tls,
        engine: engine(args.engine)?,
    };
    let folder = Folder::at(args.data.as_deref())?;
    let plan = plan_in(folder.path(), &wishes)?;
    let mut cluster = Cluster::start(&plan, folder.path(), args.base_port)?;
    let ready = tokio::select! {
        ready = cluster.wait_ready() => ready,
        () = signals.asked() => return stop(cluster).await,
    };
    if let Err(failure) = ready {
        cluster.stop().await;
        folder.keep(); // For the log that the sentence names.
        return Err(failure);
    }
    announce(global, &cluster)?;
    let mut watch = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            _ = watch.tick() => report_deaths(&mut cluster),
            () = signals.asked() => break,
        }
    }
    stop(cluster).await
}

/// The engine that the options name, with files that are found from anywhere.
///
/// # Errors
/// One sentence.
pub(crate) fn engine(args: EngineArgs) -> Result<EngineConfig, Failure> {
    let mut engine = args.config().map_err(Failure::usage)?;
    for file in engine.files() {
        *file =
            std::path::absolute(&*file).map_err(|error| Failure::local(file.display(), error))?;
    }
    Ok(engine)
}

async fn stop(cluster: Cluster) -> Result<u8, Failure> {
    eprintln!("stopping");
    for trouble in cluster.stop().await {
        eprintln!("fermata: {trouble}");
    }
    Ok(0)
}

fn report_deaths(cluster: &mut Cluster) {
    for death in cluster.deaths() {
        eprintln!("fermata: {death}");
    }
    // A node that somebody started by hand is not ours to watch.
}

/// Prints what listens where, and `ready`.
fn announce(global: &Global, cluster: &Cluster) -> Result<(), Failure> {
    if global.json {
        let nodes: Vec<serde_json::Value> = (cluster.nodes().iter())
            .map(|node| {
                serde_json::json!({
                    "node": node.planned.label,
                    "site": node.site,
                    "pid": node.pid(),
                    "peer": node.planned.peer,
                    "grpc": node.planned.grpc,
                    "rest": node.planned.rest,
                    "config": node.config,
                    "data": node.data,
                    "log": node.log,
                })
            })
            .collect();
        let tls = cluster.tls().map(|files| {
            let (certificate, key) = files.own.clone().unzip();
            serde_json::json!({ "ca": files.ca, "certificate": certificate, "key": key })
        });
        let all = serde_json::json!({ "ready": true, "nodes": nodes, "tls": tls });
        return output::json(&all);
    }
    output::text(table(cluster))?;
    let grpc = cluster.nodes().iter();
    let grpc: Vec<String> = grpc.map(|node| node.planned.grpc.to_string()).collect();
    output::text(format!(
        "\nTo bring a node back that died: fermata server --config <its directory>.toml\n\
         To talk to this cluster: export FERMATA_ENDPOINTS={}{}\nready",
        grpc.join(","),
        shown(cluster)
    ))
}

/// What clients of a cluster that speaks TLS are told in addition.
fn shown(cluster: &Cluster) -> String {
    let Some(files) = cluster.tls() else {
        return String::new();
    };
    let mut all = format!(" FERMATA_TLS_CA={}", files.ca.display());
    if let Some((certificate, key)) = &files.own {
        let (certificate, key) = (certificate.display(), key.display());
        all += &format!(" FERMATA_TLS_CERTIFICATE={certificate} FERMATA_TLS_KEY={key}");
    }
    all
}

/// What listens where.
pub(crate) fn table(cluster: &Cluster) -> Table {
    let mut table = Table::new(&["node", "site", "pid", "gRPC", "REST", "peers", "directory"]);
    for node in cluster.nodes() {
        table.row(vec![
            node.planned.label.clone(),
            node.site.clone(),
            node.pid().map_or("-".to_owned(), |pid| pid.to_string()),
            node.planned.grpc.to_string(),
            node.planned.rest.to_string(),
            node.planned.peer.to_string(),
            node.data.display().to_string(),
        ]);
    }
    table
}

/// The plan stored in `folder`, or a new one, stored.
pub(crate) fn plan_in(folder: &Path, wishes: &Wishes) -> Result<Plan, Failure> {
    let plan = match files::load_plan(folder)? {
        Some(stored) => stored.resumed(wishes).map_err(Failure::usage)?,
        None => {
            let names = files::profile_sites(wishes.rtt.as_deref())?;
            Plan::new(wishes, &names, files::random_id()?).map_err(Failure::usage)?
        }
    };
    files::store_plan(folder, &plan)?;
    Ok(plan)
}

/// Where the cluster lives.
pub(crate) enum Folder {
    /// The user's, kept.
    Given(PathBuf),
    /// Removed at the end.
    Temporary(tempfile::TempDir),
}

impl Folder {
    /// The given directory, created if it is missing, or a temporary one.
    pub(crate) fn at(given: Option<&Path>) -> Result<Folder, Failure> {
        match given {
            Some(path) => {
                std::fs::create_dir_all(path).map_err(|error| {
                    Failure::local(format_args!("creating {}", path.display()), error)
                })?;
                let path = std::path::absolute(path)
                    .map_err(|error| Failure::local(path.display(), error))?;
                Ok(Folder::Given(path))
            }
            None => tempfile::Builder::new()
                .prefix("fermata-dev-")
                .tempdir()
                .map(Folder::Temporary)
                .map_err(|error| Failure::local("creating a temporary directory", error)),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }

    /// Leaves a temporary directory where it is.
    pub(crate) fn keep(self) {
        if let Folder::Temporary(folder) = self {
            let _path = folder.keep();
        }
    }
}
