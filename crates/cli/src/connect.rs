//! Where a client command finds its cluster.

use fermata_client::{Client, Options};

use crate::args::Global;
use crate::dev;
use crate::exit::{Exit, Failure};

/// Connects as the global options say; without any, to the ports of `fermata dev`.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    let endpoints = endpoints(global);
    let options = Options {
        site: global.site.clone(),
        ..Options::new(endpoints.iter().map(|endpoint| uri(endpoint)))
    };
    let client = Client::connect(options).await?;
    // A command is for somebody who waits: where nobody answers now, it does not try for long.
    if client.nodes().iter().all(|node| node.name.is_none()) {
        return Err(Failure::new(
            Exit::Unavailable,
            format!(
                "no node answers at {}: start one (`fermata dev`), or say where with --endpoint or \
                 FERMATA_ENDPOINTS",
                endpoints.join(", ")
            ),
        ));
    }
    Ok(client)
}

/// The endpoint as the client library has it.
pub(crate) fn uri(endpoint: &str) -> String {
    if endpoint.contains("://") {
        endpoint.to_owned()
    } else {
        format!("http://{endpoint}")
    }
}

/// The addresses to try. Any node leads to all others; of a `dev` cluster with one site only the
/// first one exists.
fn endpoints(global: &Global) -> Vec<String> {
    if !global.endpoints.is_empty() {
        return global.endpoints.clone();
    }
    (0..3)
        .map(|node| format!("127.0.0.1:{}", dev::BASE_PORT + 10 * node))
        .collect()
}
