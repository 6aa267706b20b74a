//! A call that another node must answer, sent there.
//!
//! A lock's writes are numbered by one node, its home ([`super::locks`]), so that whoever is asked
//! with a lock's id sends the call on, and sends the answer back, both with all their headers but
//! those that are of one connection (RFC 9110, section 7.6.1). A home that cannot be connected to
//! has not seen the call, and the node that was asked may go on in its place; one that falls silent
//! afterwards may have done it, and the client is told so. So that this is known of each call,
//! each has a connection of its own: one that was kept may lead to a machine that is gone.

use super::Call;
use super::answers::{Body, Failure, MusicAnswer};
use crate::access::{ON_BEHALF, behalf_of};
use axum::body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use fermata_tls::Keeper;
use fermata_tls::rustls::pki_types::ServerName;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::sync::Arc;
use std::time::Duration;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the answer may take: longer than any call that is answered at once.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of an answer's body.
const ANSWER_MAX: usize = 128 << 20;
/// Says how often a call was sent on, so that it is not sent on for ever.
pub(super) const MARK: &str = "fermata-forwarded";
/// So often at most: to a home, and once more where that has moved meanwhile.
pub(super) const HOPS_MAX: u8 = 2;
/// Has the receiver take a lock over: the home that gives it away, and for how many milliseconds it
/// lives of which nobody speaks.
pub(super) const MOVED: &str = "fermata-moved";
/// Headers of one connection, beside those that `Connection` names; and what says how a message is
/// told apart from the next one, or where it goes, which each connection says for itself.
const OF_ONE_CONNECTION: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silent {
    /// The call was not sent.
    Unreached,
    /// It may have been done.
    Unknown,
}

/// The failure of a call that may have been done elsewhere.
pub(super) fn unknown() -> Failure {
    Failure::wait(
        "the node that keeps this lock has not answered: the call may have taken effect; ask again",
    )
}

/// Sends calls to other nodes.
pub(super) struct Forward {
    /// What the node shows; none: it speaks in clear.
    tls: Option<Arc<Keeper>>,
}

impl Forward {
    pub(super) fn new(tls: Option<Arc<Keeper>>) -> Forward {
        Forward { tls }
    }

    /// Sends `call` to the node at `address` and relays what it answers.
    pub(super) async fn send(&self, address: &str, call: &Call) -> Result<MusicAnswer, Silent> {
        // An address or a target that makes no request reaches nobody.
        let request = self.request(address, call).map_err(|_| Silent::Unreached)?;
        let answered = tokio::time::timeout(ANSWER, self.exchange(request)).await;
        answered.unwrap_or(Err(Silent::Unknown))
    }

    async fn exchange(&self, request: Request<body::Body>) -> Result<MusicAnswer, Silent> {
        let mut client = legacy::Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(0);
        let answered = match &self.tls {
            None => client.build(connector()).request(request).await,
            Some(keeper) => client.build(secured(keeper)?).request(request).await,
        };
        let response = answered.map_err(|error| match error.is_connect() {
            true => Silent::Unreached,
            false => Silent::Unknown,
        })?;
        let (head, body) = response.into_parts();
        let read = body::to_bytes(body::Body::new(body), ANSWER_MAX).await;
        let body = read.map_err(|_| Silent::Unknown)?;
        Ok(MusicAnswer {
            status: head.status.as_u16(),
            body: Body::Relayed(passed(head.headers), body),
        })
    }

    fn request(
        &self,
        address: &str,
        call: &Call,
    ) -> Result<Request<body::Body>, axum::http::Error> {
        let scheme = match self.tls.is_some() {
            true => "https",
            false => "http",
        };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{scheme}://{address}{}", call.target))
            .body(body::Body::from(call.raw.clone()))?;
        *request.headers_mut() = passed(call.headers.clone());
        // Only a node says for whom it asks, and only of a caller whom it knows.
        request.headers_mut().remove(ON_BEHALF);
        if !call.headers.contains_key(header::AUTHORIZATION)
            && let Some(principal) = call.caller.principal()
            && let Some(principal) = behalf_of(principal)
        {
            request.headers_mut().insert(ON_BEHALF, principal);
        }
        let mark = HeaderName::from_static(MARK);
        request
            .headers_mut()
            .insert(mark, HeaderValue::from(u16::from(call.hops) + 1));
        Ok(request)
    }
}

/// Connects in clear.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    connector
}

/// Connects over TLS, to whoever shows that he is a node of the cluster, wherever that is.
fn secured(keeper: &Keeper) -> Result<HttpsConnector<HttpConnector>, Silent> {
    let mut inner = connector();
    inner.enforce_http(false);
    let name = ServerName::try_from("node").map_err(|_| Silent::Unreached)?;
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config((*keeper.to_faces()).clone())
        .https_only()
        .with_server_name_resolver(FixedServerNameResolver::new(name))
        .enable_http1()
        .wrap_connector(inner))
}

/// What of a message's headers is for whoever it is for.
fn passed(mut headers: HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).into_iter();
    let named: Vec<HeaderName> = named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OF_ONE_CONNECTION {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_one_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Basic YTpi"),
            ("connection", "close, X-Hop"),
            ("connection", "x-other-hop"),
            ("content-length", "3"),
            ("host", "here"),
            ("te", "trailers"),
            ("x-hop", "1"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("x-other-hop", "1"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let passed = passed(headers);
        let names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(passed["authorization"], "Basic YTpi");
        let many: Vec<&HeaderValue> = passed.get_all("x-many").iter().collect();
        assert_eq!(many, ["1", "2"]);
    }
}
