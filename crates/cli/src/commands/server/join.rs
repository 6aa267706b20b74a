//! How a node comes to a cluster that exists: asks it for a name, once.

use std::time::Duration;

use fermata_client::{Client, Options};
use fermata_protocol::base::{ClusterId, Incarnation, Micros, NodeId, Timing};
use fermata_protocol::registry::Newcomer;
use fermata_protocol::request::Admitted;
use fermata_protocol::wire::FORMATS;
use fermata_server::config::NodeConfig;
use fermata_server::join::{Begun, boot_clock};
use fermata_server::{ServerConfig, StartError};
use fermata_tls::{Admits, Keeper, Own};
use tokio::time::Instant;

use super::ended;
use crate::connect::options;
use crate::exit::{Exit, Failure};

/// How long the cluster may take to admit the node, and the seeds to know of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long the rates of two clocks are compared, and by how many readings at each end.
const RATES: Duration = Duration::from_secs(2);
const READINGS: usize = 5;
/// Between two questions whether the seeds know of it.
const AGAIN: Duration = Duration::from_millis(100);

/// Has the node admitted, unless its data directory has a name already.
pub(super) async fn join(config: &ServerConfig) -> Result<(), Failure> {
    let own = config.newcomer().map_err(Failure::usage)?;
    let dir = &config.data_dir;
    let incarnation = match fermata_server::join::begin(dir).map_err(ended)? {
        Begun::Asks(incarnation) => incarnation,
        Begun::Named(cluster) => return same_cluster(config, cluster).await,
    };
    let admitted = admitted(config, incarnation, &own).await?;
    let name = admitted.name.0;
    let own = NodeConfig { name, ..own };
    fermata_server::join::finish(dir, incarnation, &admitted, &own).map_err(ended)
}

/// Refuses to start the node of one cluster where `--join` names nodes of another: somebody has
/// taken the wrong directory, or the wrong address. Where nobody answers the node starts.
async fn same_cluster(config: &ServerConfig, own: ClusterId) -> Result<(), Failure> {
    let client = Client::connect(seeds(config)?).await?;
    for (at, node) in client.nodes().iter().enumerate() {
        if node.name.is_none() {
            continue;
        }
        let Ok(cluster) = client.cluster(at).await else {
            continue;
        };
        if cluster == own {
            break;
        }
        let why = format!(
            "{} is the directory of a node of cluster {:032x}, and --join names {} of cluster \
             {:032x}: start it without --join, or choose an empty directory; nothing was changed",
            config.data_dir.display(),
            own.0,
            node.label,
            cluster.0
        );
        return Err(ended(StartError::Data(why)));
    }
    Ok(())
}

/// How the nodes are asked that `--join` names: with what this node has to show.
fn seeds(config: &ServerConfig) -> Result<Options, Failure> {
    let tls = config.tls.named().map_err(Failure::usage)?;
    // A node's certificate is enough; without one somebody has to ask for it.
    let credentials = crate::args::credentials(|name| std::env::var_os(name));
    Ok(Options {
        credentials: credentials.map_err(Failure::usage)?,
        ..options(&config.join.seeds, tls.as_ref())?
    })
}

/// Refuses to join with a certificate with which this node could not be in that cluster.
async fn check_certificate(
    config: &ServerConfig,
    client: &Client,
    own: &NodeConfig,
) -> Result<(), Failure> {
    let Some(files) = config.tls.named().map_err(Failure::usage)? else {
        return Ok(());
    };
    let nodes = client.nodes();
    let known = nodes.iter().position(|node| node.name.is_some());
    let cluster = client.cluster(known.unwrap_or_default()).await?.0;
    let label = own.label.clone();
    let read = Keeper::read(files, Own { cluster, label }, Admits::Certified);
    let refused = |why| Failure::usage(format!("{why}; nothing was changed"));
    read.map(drop).map_err(refused)
}

/// A reading of another machine's clock, between two of this one's.
#[derive(Clone, Copy)]
struct Reading {
    before: Micros,
    theirs: Micros,
    after: Micros,
}

/// Refuses to join where this machine's clock certainly has another rate than a node's of the
/// cluster: leases rest on it.
async fn compare_rates(client: &Client) -> Result<(), Failure> {
    let nodes = client.nodes();
    let Some(at) = nodes.iter().position(|node| node.name.is_some()) else {
        return Ok(());
    };
    let first = reading(client, at).await?;
    tokio::time::sleep(RATES).await;
    let last = reading(client, at).await?;
    // Each of both may be off by the bound.
    let bound = 2 * Timing::default().drift_ppm;
    let apart = apart_ppm(first, last);
    if apart <= bound {
        return Ok(());
    }
    let why = format!(
        "this machine's clock and that of {} go apart by {apart} parts per million at least, and \
         nodes rest on {bound} at most: mend the clocks; nothing was changed",
        nodes[at].label
    );
    Err(ended(StartError::Data(why)))
}

/// The best of some readings.
async fn reading(client: &Client, node: usize) -> Result<Reading, Failure> {
    let mut best: Option<Reading> = None;
    for _ in 0..READINGS {
        let before = boot_clock();
        let theirs = client.boot_clock(node).await?;
        let after = boot_clock();
        let new = Reading {
            before,
            theirs,
            after,
        };
        best = match best {
            Some(best) if best.after - best.before <= new.after - new.before => Some(best),
            _ => Some(new),
        };
    }
    best.ok_or_else(|| Failure::internal("no reading"))
}

/// By how much the rates of two clocks differ at least, as two readings prove.
fn apart_ppm(first: Reading, last: Reading) -> u64 {
    let theirs = last.theirs.saturating_sub(first.theirs);
    let most = last.after.saturating_sub(first.before);
    let least = last.before.saturating_sub(first.after);
    let beyond = theirs
        .saturating_sub(most)
        .max(least.saturating_sub(theirs));
    beyond.saturating_mul(1_000_000) / most.max(1)
}

async fn admitted(
    config: &ServerConfig,
    incarnation: Incarnation,
    own: &NodeConfig,
) -> Result<Admitted, Failure> {
    let options = Options {
        request_timeout: PATIENCE,
        ..seeds(config)?
    };
    let client = Client::connect(options).await?;
    if client.nodes().iter().all(|node| node.name.is_none()) {
        let sentence = format!(
            "no node of a cluster answers where --join says ({}): name the gRPC address of a node \
             that runs; nothing was changed",
            client.heard()
        );
        return Err(Failure::new(Exit::Unavailable, sentence));
    }
    check_certificate(config, &client, own).await?;
    compare_rates(&client).await?;
    let newcomer = Newcomer {
        incarnation,
        label: own.label.clone(),
        site: own.site.clone(),
        addresses: own.addresses(),
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let admitted = client.admit(newcomer.clone(), FORMATS).await?;
        let name = admitted.name;
        if admitted.registry.knows(NodeId { name, incarnation }) {
            return Ok(admitted);
        }
        if Instant::now() >= deadline {
            let why = "the cluster has admitted this node, but the nodes that were asked do not \
                       know of it yet: start it again";
            return Err(ended(StartError::Halted(why.to_owned())));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(before: Micros, theirs: Micros, after: Micros) -> Reading {
        Reading {
            before,
            theirs,
            after,
        }
    }

    #[test]
    fn rates_differ_where_no_moment_of_reading_explains_it() {
        let first = reading(1_000, 500_000, 1_400);
        let last = |theirs| reading(2_001_000, theirs, 2_001_400);
        for theirs in [2_499_600, 2_500_000, 2_500_400] {
            assert_eq!(apart_ppm(first, last(theirs)), 0, "{theirs}");
        }
        assert_eq!(apart_ppm(first, last(2_510_000)), 4_799);
        assert_eq!(apart_ppm(first, last(2_490_000)), 4_799);
        assert!(apart_ppm(first, last(500_000)) > 900_000, "it stands");
    }
}
