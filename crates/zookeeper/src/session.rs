//! The connection to the ensemble: always one session, replaced as soon as it is cut.
//!
//! **Idea.** The store keeps nothing that belongs to a session but its watches, and whoever waits
//! on a watch is woken when its session ends. So a session that lost its connection is not resumed:
//! a new one costs a write, as much as resuming does, and requests that nobody waits for any more
//! do not queue up in front of the live ones. What the old session still had on its way is in doubt
//! ([`crate::doubt`]).
//!
//! **Nearest first.** Servers are tried in the order of the settings, so the nearest should be the
//! first: `peek` costs a trip to it. Having had to go further, the process tries the nearer ones
//! again every [`HOMING`], and moves when one takes it.

use fermata_tls::{Pem, Trust};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time;
use zookeeper_client::{Client, Connector, Error, SessionState, TlsOptions};

/// How often servers nearer than the present one are tried.
pub(crate) const HOMING: Duration = Duration::from_secs(20);

/// What came of a request.
pub(crate) enum Tried<T> {
    /// It was done.
    Done(T),
    /// The server refused it: it was not done and never will be.
    Not(Error),
    /// Nobody knows. What happened, as a clause.
    Unknown(String),
}

/// A session and the server that it is with.
struct Live {
    client: Client,
    /// Its place in the settings.
    server: usize,
}

impl Live {
    fn is_connected(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }
}

/// What is known of the sessions.
#[derive(Default)]
struct State {
    live: Option<Live>,
    /// Whether somebody tries the nearer servers.
    homing: bool,
}

impl State {
    fn connected(&self) -> Option<&Live> {
        self.live.as_ref().filter(|live| live.is_connected())
    }
}

/// Keeps one session.
pub(crate) struct Link {
    servers: Vec<String>,
    timeout: Duration,
    tls: Option<Trust>,
    state: Mutex<State>,
}

impl Link {
    pub(crate) fn new(servers: Vec<String>, timeout: Duration, tls: Option<Trust>) -> Arc<Link> {
        if tls.is_some() {
            fermata_tls::install();
        }
        Arc::new(Link {
            servers,
            timeout,
            tls,
            state: Mutex::default(),
        })
    }

    /// The present session, or a new one.
    ///
    /// # Errors
    /// No server took us within the timeout: one sentence. Nothing was sent.
    pub(crate) async fn client(self: &Arc<Link>) -> Result<Client, String> {
        let took = time::timeout(self.timeout, async {
            let mut state = self.state.lock().await;
            if let Some(live) = state.connected() {
                return Ok::<_, Error>(live.client.clone());
            }
            state.live = None;
            let new = self.connect(self.servers.len()).await?;
            let client = new.client.clone();
            if new.server > 0 && !state.homing {
                state.homing = true;
                tokio::spawn(go_home(Arc::downgrade(self)));
            }
            state.live = Some(new);
            Ok(client)
        });
        let none = || format!("no server of {} took a session", self.servers.join(", "));
        match took.await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(format!("{}: {error}", none())),
            Err(_) => Err(format!("{} within {:?}", none(), self.timeout)),
        }
    }

    /// A new session with the first of the `within` nearest servers that takes us.
    async fn connect(&self, within: usize) -> Result<Live, Error> {
        // Long enough for what the client does itself with two fifths of it: give up a connection
        // that says nothing, before the operations on it are given up.
        let session = self.timeout * 2;
        let each = self.timeout / self.servers.len() as u32;
        let mut last = Error::NoHosts;
        for (server, address) in self.servers.iter().take(within).enumerate() {
            let connector = Client::connector()
                .with_session_timeout(session)
                .with_fail_eagerly();
            match time::timeout(each, self.reach(connector, address)).await {
                Ok(Ok(client)) => return Ok(Live { client, server }),
                Ok(Err(error)) => last = error,
                Err(_) => last = Error::Timeout,
            }
        }
        Err(last)
    }

    /// A session with one server.
    async fn reach(&self, connector: Connector, address: &str) -> Result<Client, Error> {
        let Some(trust) = &self.tls else {
            return connector.connect(address).await;
        };
        let Pem { ca, own } = trust.pem();
        let mut options = TlsOptions::new().with_pem_ca(&ca)?;
        if let Some((certificate, key)) = own {
            options = options.with_pem_identity(&certificate, &key)?;
        }
        connector.with_tls(options).secure_connect(address).await
    }

    /// Waits for an answer, at most the timeout.
    pub(crate) async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Tried<T> {
        match time::timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Tried::Done(answer),
            Ok(Err(error)) if is_certain(&error) => Tried::Not(error),
            Ok(Err(error)) => Tried::Unknown(error.to_string()),
            Err(_) => Tried::Unknown(format!("no answer within {:?}", self.timeout)),
        }
    }
}

/// Tries the servers nearer than the present one, until there is none nearer.
async fn go_home(link: Weak<Link>) {
    loop {
        time::sleep(HOMING).await;
        let Some(link) = link.upgrade() else {
            return;
        };
        let nearer = {
            let mut state = link.state.lock().await;
            match state.connected().map(|live| live.server) {
                Some(0) => {
                    state.homing = false;
                    return;
                }
                Some(server) => server,
                // Whoever needs a session next tries the nearest first.
                None => continue,
            }
        };
        if let Ok(new) = link.connect(nearer).await {
            tracing::info!(server = link.servers[new.server], "back at a nearer server");
            // The old session ends with its last request; its watches wake their waiters then.
            link.state.lock().await.live = Some(new);
        }
    }
}

/// Whether an error says that the request was not done and never will be. All others, a lost
/// connection or session among them, say nothing about it.
fn is_certain(error: &Error) -> bool {
    matches!(
        error,
        Error::BadArguments(_)
            | Error::NoNode
            | Error::NoAuth
            | Error::BadVersion
            | Error::NoChildrenForEphemerals
            | Error::NodeExists
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::Unimplemented
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_or_session_says_nothing() {
        for error in [
            Error::ConnectionLoss,
            Error::SessionExpired,
            Error::SessionMoved,
            Error::Timeout,
            Error::ClientClosed,
            Error::MarshallingError,
            Error::UnexpectedErrorCode(-1),
        ] {
            assert!(!is_certain(&error), "{error}");
        }
        assert!(is_certain(&Error::BadVersion));
    }
}
