//! `fermata cert`: an authority of one's own, and certificates for nodes and clients.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fermata_access::is_principal;
use fermata_server::config::ClusterConfig;
use fermata_tls::Name;
use fermata_tls::rustls::pki_types::ServerName;

use crate::certs::{AUTHORITY_DAYS, Desk};
use crate::exit::Failure;
use crate::output;

/// See `fermata cert --help`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make an authority: DIR/ca.pem, which nodes and clients trust, and DIR/ca.key, which signs.
    Ca {
        /// Where its files go; created if absent.
        #[arg(long, value_name = "DIR", default_value = "tls")]
        dir: PathBuf,
        /// What people call it.
        #[arg(long, value_name = "NAME", default_value = "Fermata")]
        name: String,
        /// For how many days it counts.
        #[arg(long, value_name = "N", default_value_t = AUTHORITY_DAYS, value_parser = days())]
        days: u32,
    },
    /// Sign for a node: DIR/LABEL.pem and DIR/LABEL.key.
    Node {
        #[command(flatten)]
        of: OfCluster,
        /// The node's label.
        #[arg(long, value_name = "LABEL")]
        label: String,
        /// At which hosts clients reach it: names and addresses. Default: those of the cluster's
        /// file.
        #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
        hosts: Vec<String>,
    },
    /// Sign for a client: DIR/NAME.pem and DIR/NAME.key.
    Client {
        #[command(flatten)]
        of: OfCluster,
        /// What the client is called.
        #[arg(long, value_name = "NAME")]
        name: String,
    },
}

/// What is signed, and with what.
#[derive(Debug, Args)]
pub(crate) struct OfCluster {
    /// Where the authority is, and the files go.
    #[arg(long, value_name = "DIR", default_value = "tls")]
    dir: PathBuf,
    /// The cluster's file, which says its id.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "cluster",
        conflicts_with = "cluster"
    )]
    cluster_file: Option<PathBuf>,
    /// The cluster's id, 32 hexadecimal digits: `fermata ring` shows it.
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// For how many days it counts. Default: 365, or as long as the authority does.
    #[arg(long, value_name = "N", value_parser = days())]
    days: Option<u32>,
    /// Replace what is there under that name: a node or a client that runs takes it within ten
    /// seconds.
    #[arg(long)]
    replace: bool,
}

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

/// Makes what is asked for.
pub(crate) fn run(command: CertCommand) -> Result<u8, Failure> {
    let (dir, file) = match command {
        CertCommand::Ca { dir, name, days } => {
            Desk::make(&dir, &name, days)?;
            (dir, "ca".to_owned())
        }
        CertCommand::Node { of, label, hosts } => {
            let (cluster, known) = of.cluster()?;
            let hosts = match (hosts.is_empty(), known) {
                (false, _) => hosts,
                (true, Some(file)) => hosts_of(&file, &label)?,
                (true, None) => {
                    return Err(Failure::usage(
                        "--host is missing: say at which hosts clients reach the node".to_owned(),
                    ));
                }
            };
            let no_host = |host: &&String| ServerName::try_from(host.as_str()).is_err();
            if let Some(host) = hosts.iter().find(no_host) {
                return Err(Failure::usage(format!(
                    "--host: {host:?} is neither a host's name nor an address"
                )));
            }
            let name = Name::Node {
                cluster,
                label: label.clone(),
            };
            Desk::open(&of.dir)?.sign(&name, &hosts, of.days, of.replace)?;
            (of.dir, label)
        }
        CertCommand::Client { of, name } => {
            if !is_principal(&name) {
                let why = "--name: a principal's name has 1 to 128 bytes on one line, without a \
                           colon";
                return Err(Failure::usage(why));
            }
            let (cluster, _) = of.cluster()?;
            let named = Name::Client {
                cluster,
                name: name.clone(),
            };
            Desk::open(&of.dir)?.sign(&named, &[], of.days, of.replace)?;
            (of.dir, name)
        }
    };
    let [_, certificate, key] = crate::certs::paths(&dir, &file);
    output::text(format!(
        "wrote {} and {}",
        certificate.display(),
        key.display()
    ))?;
    Ok(0)
}

impl OfCluster {
    /// The cluster's id, and its file, if that was given.
    fn cluster(&self) -> Result<(u128, Option<ClusterConfig>), Failure> {
        let file = self.cluster_file.as_deref().map(read).transpose()?;
        let given = self.cluster.as_ref();
        let id = given.or(file.as_ref().map(|file| &file.id));
        let id = id.map_or("", |id| id.as_str());
        let digits = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(id, 16).ok()).flatten();
        let number = number.ok_or_else(|| {
            Failure::usage(format!("{id:?} is no cluster's id: 32 hexadecimal digits"))
        })?;
        Ok((number, file))
    }
}

fn read(path: &Path) -> Result<ClusterConfig, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::local(path.display(), error))?;
    let read = toml::from_str(&text);
    read.map_err(|error| Failure::usage(format!("{}: {}", path.display(), error.message())))
}

/// At which hosts a node of the file is reached.
fn hosts_of(cluster: &ClusterConfig, label: &str) -> Result<Vec<String>, Failure> {
    let node = cluster.nodes.iter().find(|node| node.label == label);
    let node = node.ok_or_else(|| {
        Failure::usage(format!(
            "the cluster's file has no node {label:?}: say at which hosts it is reached, --host"
        ))
    })?;
    Ok(hosts([&node.grpc, &node.rest]))
}

/// The hosts of some addresses, each once; of loopback its name, too.
pub(crate) fn hosts<'a>(addresses: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for address in addresses {
        let host = address
            .rsplit_once(':')
            .map_or(address.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let local = host
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        for host in [Some(host), local.then_some("localhost")]
            .into_iter()
            .flatten()
        {
            if !hosts.iter().any(|known| known == host) {
                hosts.push(host.to_owned());
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_those_of_addresses_each_once() {
        let addresses = ["a.example:1", "a.example:2", "[::1]:3", "127.0.0.2:4"];
        let addresses = addresses.map(str::to_owned);
        assert_eq!(
            hosts(&addresses),
            ["a.example", "::1", "localhost", "127.0.0.2"]
        );
    }
}
