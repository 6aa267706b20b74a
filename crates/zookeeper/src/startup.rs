//! The checks before the store is used: each thing that would otherwise show up as a timeout in the
//! middle of the night.

use crate::path::{self, COMPONENT_LIMIT};
use crate::session::{Link, Tried};
use crate::store::{OPEN, STATE_LIMIT, Settings, nothing};
use fermata_tls::Trust;
use fermata_tls::rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time;
use tokio_rustls::TlsConnector;
use zookeeper_client::{Client, Error};

/// The first version with all that is used here (creation that tells the node's stat, removal of
/// watches).
const OLDEST: (u32, u32) = (3, 5);

/// A server's status is short; whoever sends more is not `ZooKeeper`.
const STATUS_LIMIT: u64 = 16 * 1024;

/// Checks the settings. Returns the servers.
pub(crate) fn check(settings: &Settings) -> Result<Vec<String>, String> {
    path::check_root(&settings.root)?;
    if settings.timeout < Duration::from_millis(100) {
        return Err(format!(
            "a timeout of {:?} is too short for ZooKeeper; give 100 ms or more",
            settings.timeout
        ));
    }
    if settings.servers.is_empty() {
        return Err("no ZooKeeper server is named; name at least one as HOST:PORT".to_owned());
    }
    let good = |server: &&String| {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        !matches!(port, Some(Ok(1..))) || server.contains(['/', ',', ' '])
    };
    if let Some(bad) = settings.servers.iter().find(good) {
        return Err(format!(
            "`{bad}` is not the address of a ZooKeeper server; write HOST:PORT"
        ));
    }
    let judged = |server: &&String| server_name(server).is_none();
    if settings.tls.is_some()
        && let Some(bad) = settings.servers.iter().find(judged)
    {
        return Err(format!(
            "`{bad}` has no host that a certificate could name; write HOST:PORT as its certificate \
             has it"
        ));
    }
    Ok(settings.servers.clone())
}

/// By what a server's certificate is judged.
fn server_name(server: &str) -> Option<ServerName<'static>> {
    let (host, _) = server.rsplit_once(':')?;
    ServerName::try_from(host.to_owned()).ok()
}

/// What the servers said of themselves.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The oldest version among those that told it.
    pub(crate) version: Option<String>,
    /// Servers that say that they do not serve: they have no quorum.
    idle: Vec<String>,
}

/// What one server said.
enum Status {
    Unreachable(String),
    /// It was reached, and said this.
    Said(String),
}

/// The node below the root that is written to see whether it can be; never deleted.
pub(crate) const PROBE: &str = "probe";

/// Asks every server for its status (the command `srvr`, which operators may forbid).
pub(crate) async fn survey(settings: &Settings) -> Result<Survey, String> {
    let (servers, timeout) = (&settings.servers, settings.timeout);
    let mut asked = JoinSet::new();
    for server in servers {
        let (server, tls) = (server.clone(), settings.tls.clone());
        asked.spawn(async move {
            let status = match time::timeout(timeout, status(&server, tls)).await {
                Ok(status) => status,
                Err(_) => Status::Unreachable(format!("no answer within {timeout:?}")),
            };
            (server, status)
        });
    }
    let mut survey = Survey::default();
    let mut oldest = None;
    let mut unreachable = Vec::new();
    while let Some(Ok((server, status))) = asked.join_next().await {
        match status {
            Status::Unreachable(why) => unreachable.push(format!("{server}: {why}")),
            Status::Said(said) => {
                if said.contains("not currently serving") {
                    survey.idle.push(server.clone());
                }
                let Some((version, text)) = version(&said) else {
                    continue;
                };
                if version < OLDEST {
                    return Err(format!(
                        "the ZooKeeper server at {server} is version {text}; 3.5 or later is needed"
                    ));
                }
                if oldest.is_none_or(|oldest| version < oldest) {
                    oldest = Some(version);
                    survey.version = Some(text);
                }
            }
        }
    }
    if unreachable.len() == servers.len() {
        return Err(format!(
            "no ZooKeeper server can be reached ({}); check the addresses and that they run",
            unreachable.join("; ")
        ));
    }
    Ok(survey)
}

/// One server's status.
async fn status(server: &str, tls: Option<Trust>) -> Status {
    let stream = match TcpStream::connect(server).await {
        Ok(stream) => stream,
        Err(error) => return Status::Unreachable(error.to_string()),
    };
    let (Some(trust), Some(name)) = (tls, server_name(server)) else {
        return said(stream).await;
    };
    match TlsConnector::from(trust.config())
        .connect(name, stream)
        .await
    {
        Ok(stream) => said(stream).await,
        Err(error) => {
            let why = fermata_tls::why(&error);
            Status::Unreachable(why.unwrap_or_else(|| error.to_string()))
        }
    }
}

/// What a server says that was reached.
async fn said(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Status {
    let mut said = Vec::new();
    // Whatever goes wrong now, somebody is there.
    if stream.write_all(b"srvr").await.is_ok() {
        let _ = stream.take(STATUS_LIMIT).read_to_end(&mut said).await;
    }
    Status::Said(String::from_utf8_lossy(&said).into_owned())
}

/// The version in a status, for comparison and as it reads.
fn version(status: &str) -> Option<((u32, u32), String)> {
    let rest = status
        .lines()
        .find_map(|l| l.strip_prefix("Zookeeper version: "))?;
    let text = rest.split(['-', ',', ' ']).next()?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some(((major, minor), text.to_owned())),
        _ => None,
    }
}

/// Tries all that is used: a session, a write of nothing, the root, a large state.
pub(crate) async fn probe(link: &Arc<Link>, root: &str, found: &Survey) -> Result<(), String> {
    let client = link.client().await.map_err(|why| no_quorum(&why, found))?;
    let probe = format!("{root}/{PROBE}");
    match link.within(client.mkdir(&probe, &OPEN)).await {
        Tried::Done(()) => {}
        Tried::Not(Error::Unimplemented) => return Err(too_old()),
        Tried::Not(error) => return Err(not_writable(root, &error)),
        Tried::Unknown(why) => return Err(no_quorum(&why, found)),
    }
    match link.within(nothing(&client, root)).await {
        Tried::Done(()) => {}
        Tried::Not(Error::Unimplemented) => return Err(too_old()),
        Tried::Not(error) => return Err(not_writable(root, &error)),
        Tried::Unknown(why) => return Err(no_quorum(&why, found)),
    }
    small(&client, link, root, &probe, found).await?;
    drop(client);
    large(link, root, &probe, found).await
}

/// A write of a byte, which everybody takes who may write at all.
async fn small(
    client: &Client,
    link: &Arc<Link>,
    root: &str,
    probe: &str,
    found: &Survey,
) -> Result<(), String> {
    match link.within(client.set_data(probe, b"0", None)).await {
        Tried::Done(_) => Ok(()),
        Tried::Not(error) => Err(not_writable(root, &error)),
        Tried::Unknown(why) => Err(no_quorum(&why, found)),
    }
}

/// A write and a read of the largest state, with room for the longest path. A server that finds it
/// too large cuts the connection without a word, so a second try, between small ones that pass,
/// tells it from a bad moment.
async fn large(link: &Arc<Link>, root: &str, probe: &str, found: &Survey) -> Result<(), String> {
    let state = vec![b'0'; STATE_LIMIT + COMPONENT_LIMIT + path::KEY_LIMIT];
    for _ in 0..2 {
        let client = link.client().await.map_err(|why| no_quorum(&why, found))?;
        let wrote = link.within(client.set_data(probe, &state, None)).await;
        let read = match wrote {
            Tried::Done(_) => link.within(client.get_data(probe)).await,
            Tried::Not(error) => return Err(not_writable(root, &error)),
            Tried::Unknown(why) => Tried::Unknown(why),
        };
        // A connection that was cut is a new one here.
        let client = link.client().await.map_err(|why| no_quorum(&why, found))?;
        small(&client, link, root, probe, found).await?;
        if matches!(read, Tried::Done(_)) {
            return Ok(());
        }
    }
    Err(format!(
        "ZooKeeper does not take a state of {} KiB; set jute.maxbuffer to 1 MiB or more on every \
         server",
        STATE_LIMIT / 1024
    ))
}

fn too_old() -> String {
    "the ZooKeeper servers do not know a request that is needed; 3.5 or later is needed".to_owned()
}

fn not_writable(root: &str, error: &Error) -> String {
    format!(
        "ZooKeeper's node {root} cannot be written ({error}); let everybody who may reach the \
         servers create, read and write below it, or choose another root"
    )
}

fn no_quorum(why: &str, found: &Survey) -> String {
    let idle = match found.idle.as_slice() {
        [] => String::new(),
        idle => format!(", and {} said that it does not serve", idle.join(", ")),
    };
    format!(
        "ZooKeeper's servers can be reached but have no quorum ({why}{idle}); start a majority of \
         them"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_servers_tell_them() {
        let new = "Zookeeper version: 3.9.5-293c895, built on 2026-02-11 20:18 UTC\nLatency: 0\n";
        assert_eq!(version(new), Some(((3, 9), "3.9.5".to_owned())));
        let old = "Zookeeper version: 3.4.14-4c25d48, built on 03/06/2019 16:18 GMT\n";
        assert_eq!(version(old), Some(((3, 4), "3.4.14".to_owned())));
        assert!((3, 10) > OLDEST);
        assert_eq!(
            version("srvr is not executed because it is not in the whitelist."),
            None
        );
        assert_eq!(version("Zookeeper version: x"), None);
    }

    #[test]
    fn settings_that_cannot_be() {
        let refused = |servers: &[&str], root: &str, millis: u64| {
            check(&Settings {
                servers: servers.iter().map(|s| (*s).to_owned()).collect(),
                root: root.to_owned(),
                timeout: Duration::from_millis(millis),
                tls: None,
            })
            .unwrap_err()
        };
        assert!(refused(&[], "/f", 1000).contains("no ZooKeeper server is named"));
        assert!(refused(&["a"], "/f", 1000).contains("HOST:PORT"));
        assert!(refused(&["a:2181/x"], "/f", 1000).contains("HOST:PORT"));
        assert!(refused(&["a:0"], "/f", 1000).contains("HOST:PORT"));
        assert!(refused(&["a:2181"], "f", 1000).contains("root"));
        assert!(refused(&["a:2181"], "/f", 1).contains("too short"));
    }
}
