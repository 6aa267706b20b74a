//! How a node comes to a cluster that exists: asks it for a name, once.

use std::time::Duration;

use fermata_client::{Client, Options};
use fermata_protocol::base::{Incarnation, NodeId};
use fermata_protocol::registry::Newcomer;
use fermata_protocol::request::Admitted;
use fermata_protocol::wire::FORMATS;
use fermata_server::config::NodeConfig;
use fermata_server::{ServerConfig, StartError};
use tokio::time::Instant;

use super::ended;
use crate::connect::uri;
use crate::exit::Failure;

/// How long the cluster may take to admit the node, and the seeds to know of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two questions whether the seeds know of it.
const AGAIN: Duration = Duration::from_millis(100);

/// Has the node admitted, unless its data directory has a name already.
pub(super) async fn join(config: &ServerConfig) -> Result<(), Failure> {
    let own = config.newcomer().map_err(Failure::usage)?;
    let dir = &config.data_dir;
    let Some(incarnation) = fermata_server::join::begin(dir).map_err(ended)? else {
        return Ok(());
    };
    let admitted = admitted(&config.join.seeds, incarnation, &own).await?;
    let name = admitted.name.0;
    let own = NodeConfig { name, ..own };
    fermata_server::join::finish(dir, incarnation, &admitted, &own).map_err(ended)
}

async fn admitted(
    seeds: &[String],
    incarnation: Incarnation,
    own: &NodeConfig,
) -> Result<Admitted, Failure> {
    let options = Options {
        request_timeout: PATIENCE,
        ..Options::new(seeds.iter().map(|seed| uri(seed)))
    };
    let client = Client::connect(options).await?;
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
