//! Where a client command finds its cluster.

use std::io::{self, IsTerminal};
use std::time::Duration;

use fermata_client::{Client, Files, Options, Trust};

use crate::args::Global;
use crate::dev;
use crate::exit::{self, Exit, Failure};

/// Where no node can be connected to for this long, a command fails. A person who waits learns in
/// time that a name is wrong or a cluster is down; a node that restarts takes longer anyway.
const UNREACHABLE: Duration = Duration::from_millis(1_500);

/// Connects as the global options say; without any, to the ports of `fermata dev`.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    connect_as(global, String::new()).await
}

/// The same, where people see `label` of the client's sections.
pub(crate) async fn connect_as(global: &Global, label: String) -> Result<Client, Failure> {
    let endpoints = endpoints(global);
    for endpoint in &endpoints {
        check(endpoint)?;
    }
    let timeout = global.timeout();
    let defaults = options(&endpoints, global.tls.as_ref())?;
    let options = Options {
        site: global.site.clone(),
        label,
        request_timeout: timeout,
        credentials: global.credentials.clone(),
        // Within the time of one operation there is time for several nodes.
        attempt_timeout: defaults.attempt_timeout.min(timeout / 3),
        discovery_timeout: defaults.discovery_timeout.min(timeout),
        unreachable_timeout: Some(UNREACHABLE.min(timeout)),
        ..defaults
    };
    let client = Client::connect(options).await?;
    // A command is for somebody who waits: where nobody answers now, it does not try for long.
    if client.nodes().iter().all(|node| node.name.is_none()) {
        let heard = client.heard();
        // Then somebody is there.
        let unknown = heard.contains("who asks") || heard.contains("nobody is known");
        if unknown || heard.contains("may not do this") {
            let to_do = match unknown {
                true => ": say who asks with --token-file, FERMATA_TOKEN or a certificate",
                false => "",
            };
            let sentence = format!("every node refuses it ({heard}){to_do}; nothing was changed");
            return Err(Failure::new(Exit::Refused, sentence));
        }
        let to_do = match heard.contains("TLS") || heard.contains("certificate") {
            true => {
                "say whom to trust and what to show with --tls-ca, --tls-certificate and \
                 --tls-key or FERMATA_TLS_CA, _CERTIFICATE and _KEY"
            }
            false => "start one (`fermata dev`), or say where with --endpoint or FERMATA_ENDPOINTS",
        };
        let sentence = format!("no node answers ({heard}): {to_do}; nothing was changed");
        return Err(Failure::new(Exit::Unavailable, sentence));
    }
    if global.endpoints.is_empty() && (global.json || io::stderr().is_terminal()) {
        say_where(global, &client);
    }
    Ok(client)
}

/// Nobody has said which cluster is meant: says which it is.
fn say_where(global: &Global, client: &Client) {
    let nodes = client.nodes();
    let mut nodes = nodes.iter().filter(|node| node.name.is_some());
    let count = nodes.clone().count();
    if let Some(node) = nodes.next() {
        let (label, address) = (&node.label, node.address());
        let sentence = format!(
            "no endpoint was named: this is the cluster of {count} nodes with {label} at \
             {address}; FERMATA_ENDPOINTS or --endpoint names another"
        );
        exit::note(&sentence, global.json);
    }
}

/// How a client connects to these endpoints: over TLS where there are files for that.
///
/// # Errors
/// [`Exit::Usage`], with the file that cannot be used.
pub(crate) fn options(endpoints: &[String], tls: Option<&Files>) -> Result<Options, Failure> {
    let uris = endpoints
        .iter()
        .map(|endpoint| uri(endpoint, tls.is_some()));
    let options = Options::new(uris);
    Ok(match tls {
        Some(files) => options.tls(Trust::read(files.clone()).map_err(Failure::usage)?),
        None => options,
    })
}

/// The endpoint as the client library has it.
pub(crate) fn uri(endpoint: &str, tls: bool) -> String {
    match (endpoint.contains("://"), tls) {
        (true, _) => endpoint.to_owned(),
        (false, true) => format!("https://{endpoint}"),
        (false, false) => format!("http://{endpoint}"),
    }
}

/// Refuses what is no address, before it is looked for in the network.
fn check(endpoint: &str) -> Result<(), Failure> {
    let address = ["http://", "https://"]
        .iter()
        .find_map(|scheme| endpoint.strip_prefix(scheme))
        .unwrap_or(endpoint);
    let address = address.strip_suffix('/').unwrap_or(address);
    let parts = address.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') == host.ends_with(']');
        !host.is_empty() && bracketed && !host.contains('/') && port.parse::<u16>().is_ok()
    });
    if good {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "`{endpoint}` is no endpoint: give HOST:PORT, as in 127.0.0.1:{}",
        dev::BASE_PORT
    )))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_host_and_a_port() {
        for good in [
            "h:1",
            "127.0.0.1:7100",
            "[::1]:7100",
            "http://h:1",
            "http://h:1/",
            "https://h:1",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for wrong in [
            "",
            "h",
            "h:",
            ":1",
            "h:port",
            "h:70000",
            "ftp://h:1",
            "[::1:1",
            "h:1/x",
        ] {
            let failure = check(wrong).expect_err(wrong);
            assert_eq!(failure.exit, Exit::Usage, "{wrong}");
        }
    }
}
