//! Where a client command finds its cluster.

use fermata_client::{Client, Options};

use crate::args::Global;
use crate::dev;
use crate::exit::Failure;

/// Connects as the global options say; without any, to the ports of `fermata dev`.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    let options = Options {
        endpoints: endpoints(global),
        site: global.site.clone(),
        ..Options::default()
    };
    Ok(Client::connect(options).await?)
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
