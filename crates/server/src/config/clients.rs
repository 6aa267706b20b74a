//! What a node grants the connections of its clients.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most connections that may be allowed.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Most sessions that a node may be told to keep.
const SESSIONS_MAX: usize = 1_000_000;

/// Table `[clients]`; absent fields take the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientsConfig {
    /// Most connections of each face; 10,000 by default, or what the limit of open files leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Most of them from one address; no bound by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_per_address: Option<usize>,
    /// Most bytes of requests that arrive, and of values in those that are open; 512 MiB by
    /// default. A body that is longer is never taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<usize>,
    /// Most sessions that the node keeps for clients which keep none themselves, and for locks of
    /// MUSIC's interface; 10,000 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<usize>,
    /// How long a connection may take until its first request has begun; 10 s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_ms: Option<u64>,
    /// How long nothing may come of a body, or nobody may take an answer; 30 s by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_ms: Option<u64>,
    /// How long a connection may have no request open; 5 minutes by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

/// The same, checked.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Most connections of each face.
    pub connections: usize,
    /// Most of them from one address, if that is bounded.
    pub per_address: Option<usize>,
    /// Bytes of requests that arrive, and of values in those that are open.
    pub request_bytes: usize,
    /// Sessions that the node keeps.
    pub sessions: usize,
    /// Until the first request has begun.
    pub head: Duration,
    /// Between two pieces of a body.
    pub body: Duration,
    /// Without an open request.
    pub idle: Duration,
}

impl ClientsConfig {
    pub(crate) fn resolve(&self) -> Result<Clients, String> {
        let count = |given: Option<usize>, most: usize, name: &str| match given {
            Some(n) if !(1..=most).contains(&n) => {
                Err(format!("clients.{name} is {n}, not 1 to {most}"))
            }
            within => Ok(within),
        };
        let duration = |given: Option<u64>, default: u64, name: &str| match given.unwrap_or(default)
        {
            ms if (1..=86_400_000).contains(&ms) => Ok(Duration::from_millis(ms)),
            ms => Err(format!("clients.{name}_ms is {ms}, not 1 to 86,400,000")),
        };
        Ok(Clients {
            connections: count(self.connections, CONNECTIONS_MAX, "connections")?.unwrap_or(10_000),
            per_address: count(
                self.connections_per_address,
                CONNECTIONS_MAX,
                "connections_per_address",
            )?,
            request_bytes: count(self.request_bytes, 1 << 40, "request_bytes")?
                .unwrap_or(512 << 20),
            sessions: count(self.sessions, SESSIONS_MAX, "sessions")?.unwrap_or(10_000),
            head: duration(self.head_ms, 10_000, "head")?,
            body: duration(self.body_ms, 30_000, "body")?,
            idle: duration(self.idle_ms, 300_000, "idle")?,
        })
    }
}
