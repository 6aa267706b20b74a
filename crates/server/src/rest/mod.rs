//! The REST face: JSON over HTTP, `docs/api.md` explains it, `/openapi.json` describes it.
//!
//! A handler parses a path, a query and a body into a message of `fermata.v1` and goes through the
//! same [`Porter`] as gRPC: malformed requests are refused in one place. Keys in paths are
//! percent-encoded bytes, any bytes; errors are [`Problem`]s.

mod conditions;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod json;
mod keys;
mod problem;
mod sections;
#[cfg(test)]
mod tests;
mod token;

use crate::access::Caller;
use crate::hosted::Hosted;
use crate::porter::Porter;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Json, Router};
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::{Secret, v1};
use fermata_protocol::request::Operation;
use fermata_protocol::{Code, Refusal, Reply};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz;
pub(crate) use problem::Problem;
use serde::Deserialize;
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;
use token::Counters;
use tokio::task::JoinSet;

/// The description of this face.
const OPENAPI: &str = include_str!("openapi.json");

/// What all handlers share.
pub(crate) struct Rest {
    porter: Arc<Porter>,
    hosted: Arc<Hosted>,
    counters: Counters,
}

/// A request's own view of them, in its caller's name.
#[derive(Clone)]
pub(crate) struct Asking {
    rest: Arc<Rest>,
    caller: Caller,
}

impl Deref for Asking {
    type Target = Rest;

    fn deref(&self) -> &Rest {
        &self.rest
    }
}

impl FromRequestParts<Arc<Rest>> for Asking {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, rest: &Arc<Rest>) -> Result<Asking, Infallible> {
        Ok(Asking {
            rest: rest.clone(),
            caller: Caller::taken(&mut parts.extensions),
        })
    }
}

impl Asking {
    async fn ask(&self, wire: Wire) -> Result<Reply, Problem> {
        let request = self.parse(wire).await?;
        Ok(self.submit(request).await?)
    }

    async fn parse(&self, wire: Wire) -> Result<fermata_protocol::Request, Refusal> {
        self.porter.parse(&self.caller, wire).await
    }

    /// Whether the caller may see the state of the node.
    fn may_look(&self) -> Result<(), Refusal> {
        let (porter, status) = (&self.porter, &Operation::Status);
        porter
            .access
            .judge(&self.caller, &porter.names(), status, 0)?;
        Ok(())
    }

    async fn submit(&self, request: fermata_protocol::Request) -> Result<Reply, Refusal> {
        self.porter.ask(&self.caller, request).await
    }
}
type Handled = Result<Response, Problem>;
type Body = Result<Bytes, BytesRejection>;
type Asked<T> = Result<Query<T>, QueryRejection>;

/// One route: its path, its methods, and what handles them.
type Route = (&'static str, Vec<&'static str>, MethodRouter<Arc<Rest>>);

/// Spells routes once, for the router and for the test of the description.
macro_rules! routes {
    ($($path:literal: $($method:ident $handler:path),+;)+) => {
        vec![$((
            $path,
            vec![$(stringify!($method)),+],
            MethodRouter::new()$(.$method($handler))+,
        )),+]
    };
}

/// All routes.
fn routes() -> Vec<Route> {
    routes! {
        "/v1/keyspaces": get list_keyspaces, post create_keyspace;
        "/v1/keyspaces/{keyspace}": patch change_keyspace, delete delete_keyspace;
        "/v1/keyspaces/{keyspace}/keys": get keys::list;
        "/v1/keyspaces/{keyspace}/keys/{key}": get keys::get, put keys::change, delete keys::change;
        "/v1/keyspaces/{keyspace}/keys/{key}/queue": get keys::queue;
        "/v1/keyspaces/{keyspace}/keys/{key}/release": post keys::release;
        "/v1/keyspaces/{keyspace}/keys/{key}/inspect": get keys::inspect;
        "/v1/sections": post sections::enter;
        "/v1/sections/{id}": get sections::look, delete sections::leave;
        "/v1/sections/{id}/events": get sections::events;
        "/v1/sections/{id}/renew": post sections::renew;
        "/v1/sections/{id}/resume": post sections::resume;
        "/v1/sections/{id}/keys/{key}":
            get sections::get, put sections::change, delete sections::change;
        "/v1/settings": patch change_settings;
        "/v1/access": get get_access, put change_access;
        "/v1/status": get status;
        "/": get index;
        "/healthz": get healthz;
        "/livez": get livez;
        "/readyz": get healthz;
        "/metrics": get metrics;
        "/openapi.json": get openapi;
    }
}

/// The service.
pub(crate) fn router(hosted: Arc<Hosted>, tasks: &mut JoinSet<()>) -> Router {
    let porter = hosted.porter.clone();
    let mut router = Router::new();
    for (path, _, methods) in routes() {
        router = router.route(path, methods);
    }
    router
        .fallback(async |uri: Uri| no_route(&uri))
        .method_not_allowed_fallback(async || Problem::no_method())
        .layer(from_fn_with_state(porter.clone(), well_formed))
        .layer(from_fn_with_state(porter.clone(), bounded))
        .with_state(Arc::new(Rest {
            porter,
            hosted: hosted.clone(),
            counters: Counters::default(),
        }))
        .merge(crate::music::router(hosted, tasks))
}

/// Reads no longer bodies than a value needs, as the cluster's settings are now.
pub(crate) async fn bounded(
    State(porter): State<Arc<Porter>>,
    mut request: Request,
    next: Next,
) -> Response {
    DefaultBodyLimit::max(porter.body_max()).apply(&mut request);
    next.run(request).await
}

/// What is wrong with a request whoever handles it.
///
/// A body must say what it is. Otherwise any page in a browser on this machine could lock keys
/// here: a form or text needs no leave to be sent across origins, JSON does.
async fn well_formed(State(porter): State<Arc<Porter>>, request: Request, next: Next) -> Response {
    if !is_escaped(request.uri()) {
        return Problem::bad(NOT_ESCAPED).into_response();
    }
    let caller = request.extensions().get::<Caller>();
    // Of what a stranger sends no more is read than this.
    if request.uri().path().starts_with("/v1/")
        && let Err(refusal) = porter.access.admit(caller.unwrap_or(&Caller::NOBODY))
    {
        return Problem::from(refusal).into_response();
    }
    if request.uri().path().starts_with("/v1/")
        && let Some(why) = conditional(request.headers(), understood(request.uri()))
    {
        return Problem::bad(why).into_response();
    }
    // At once, and not when so much has arrived.
    let largest = porter.body_max();
    if request.body().size_hint().lower() > largest as u64 {
        return too_long(largest).into_response();
    }
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).map(|v| v.as_bytes());
    let empty =
        length.is_none_or(|n| n == b"0") && !headers.contains_key(header::TRANSFER_ENCODING);
    let kind = headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes());
    let known = kind.is_some_and(|kind| {
        kind.starts_with(b"application/json") || kind.starts_with(b"application/octet-stream")
    });
    let writes = matches!(*request.method(), Method::POST | Method::PUT);
    if writes && !known && (kind.is_some() || !empty) {
        return Problem::no_kind().into_response();
    }
    next.run(request).await
}

/// The refusal of what [`is_escaped`] is not.
pub(crate) const NOT_ESCAPED: &str = "a percent sign in the path or the query is not followed by \
                                      two hexadecimal digits: write %25 for the sign itself";

/// Whether every percent sign stands for a byte.
pub(crate) fn is_escaped(uri: &Uri) -> bool {
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let byte = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    target.split('%').skip(1).all(byte)
}

/// The conditions that are understood at a path: those of a key outside of sections.
fn understood(uri: &Uri) -> &'static [HeaderName] {
    let path: Vec<&str> = uri.path().split('/').collect();
    match path[..] {
        ["", "v1", "keyspaces", _, "keys", _] => &conditions::UNDERSTOOD,
        _ => &[],
    }
}

/// The refusal of a request that is to be done under a condition which is not understood: one that
/// is not looked at would be taken for one that holds.
pub(crate) fn conditional(headers: &HeaderMap, understood: &[HeaderName]) -> Option<String> {
    let mut names = headers.keys().filter(|name| !understood.contains(name));
    let name = names.find(|name| *name == "if" || name.as_str().starts_with("if-"))?;
    Some(format!(
        "the header {name} sets a condition that is not understood here, and nothing was done: \
         keys outside of sections take If-Match and If-None-Match; decide in a section, and send \
         the request without it"
    ))
}

/// The `at`-th segment of a path, decoded: any bytes.
fn segment(uri: &Uri, at: usize) -> Vec<u8> {
    let raw = uri.path().split('/').skip(1).nth(at).unwrap_or_default();
    percent_encoding::percent_decode_str(raw).collect()
}

/// The same, as text.
fn text_segment(uri: &Uri, at: usize, what: &str) -> Result<String, Problem> {
    let wrong = |_| Problem::bad(format!("the {what} in the path is not UTF-8"));
    String::from_utf8(segment(uri, at)).map_err(wrong)
}

/// Keyspace and key of `/v1/keyspaces/{keyspace}/keys/{key}`.
fn key_of(uri: &Uri) -> Result<v1::Key, Problem> {
    let keyspace = text_segment(uri, 2, "keyspace")?;
    Ok(v1::Key {
        keyspace,
        key: segment(uri, 4).into(),
    })
}

fn query<T>(asked: Asked<T>) -> Result<T, Problem> {
    let Query(query) = asked.map_err(|e| Problem::bad(format!("the query: {}", e.body_text())))?;
    Ok(query)
}

fn too_long(largest: usize) -> Problem {
    let detail = format!(
        "the body is longer than {largest} bytes, more than the largest value (value_bytes) and \
         the keys of a section take: send less, or the value as application/octet-stream"
    );
    Refusal::definite(Code::TooLarge, detail).into()
}

/// What there is nothing at, and why.
fn no_route(uri: &Uri) -> Problem {
    let path: Vec<&str> = uri.path().split('/').collect();
    match path[..] {
        ["", "v1", "keyspaces" | "sections", _, "keys", "", ..] => Problem::bad(
            "the key in the path is empty: a key has at least one byte, and a list of keys no \
             slash at its end",
        ),
        _ => Problem::no_route(),
    }
}

fn parse<T: for<'a> Deserialize<'a>>(bytes: &Bytes) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|e| Problem::bad(format!("the body: {e}")))
}

fn micros(ms: u64) -> Result<u64, Problem> {
    ms.checked_mul(1_000)
        .ok_or_else(|| Problem::bad("a duration is too long"))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let text = headers.get(name).map(|v| v.to_str());
    text.transpose()
        .map_err(|_| Problem::bad(format!("the header {name} is not text")))
}

fn header_number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let number = header_text(headers, name)?.map(str::parse);
    number
        .transpose()
        .map_err(|_| Problem::bad(format!("the header {name} is not a number")))
}

impl Rest {
    fn body(&self, given: Body) -> Result<Bytes, Problem> {
        given.map_err(|e| {
            if e.status() == StatusCode::PAYLOAD_TOO_LARGE {
                too_long(self.porter.body_max())
            } else {
                Problem::bad(format!("the body cannot be read: {}", e.body_text()))
            }
        })
    }

    /// What a key is to have: the value in a body, which is JSON, or the bytes themselves as
    /// `application/octet-stream`; none, if it is deleted.
    fn value_of(
        &self,
        method: &Method,
        headers: &HeaderMap,
        given: Body,
    ) -> Result<Option<Bytes>, Problem> {
        if *method == Method::DELETE {
            return Ok(None);
        }
        let bytes = self.body(given)?;
        let kind = headers.get(header::CONTENT_TYPE).map(|v| v.as_bytes());
        if kind.is_some_and(|kind| kind.starts_with(b"application/octet-stream")) {
            return Ok(Some(bytes));
        }
        let new: json::NewValue = parse(&bytes)?;
        let value = json::bytes_of(new.value, new.value_base64, "value")?;
        let missing = "the body has neither value nor value_base64; DELETE deletes";
        value.map(Some).ok_or_else(|| Problem::bad(missing))
    }

    /// Who asks: headers `Fermata-Secret`, `Fermata-Number` and `Fermata-Site`, or drawn here. With
    /// the first two, a repeated request takes effect once; a repetition says so by
    /// `Fermata-Attempt`, from 1.
    ///
    /// One of the first two without the other is refused: it would look as if repetitions were
    /// known again, and they would not be.
    fn header(&self, headers: &HeaderMap) -> Result<v1::Header, Problem> {
        let given = |name: &str| headers.contains_key(name);
        if given("fermata-secret") != given("fermata-number") {
            return Err(Problem::bad(
                "Fermata-Secret and Fermata-Number belong together: give both or neither",
            ));
        }
        self.any_header(headers)
    }

    fn any_header(&self, headers: &HeaderMap) -> Result<v1::Header, Problem> {
        let secret = match header_text(headers, "fermata-secret")?.map(Secret::from_hex) {
            None => self.porter.draw_secret(),
            Some(Some(secret)) => secret,
            Some(None) => {
                return Err(Problem::bad("Fermata-Secret is not 32 hexadecimal digits"));
            }
        };
        let number = header_number(headers, "fermata-number")?;
        let attempt = header_number(headers, "fermata-attempt")?;
        Ok(v1::Header {
            secret: Bytes::copy_from_slice(&secret.to_bytes()),
            number: number.unwrap_or_else(|| self.porter.next_number()),
            answered_through: 0,
            site: header_text(headers, "fermata-site")?
                .unwrap_or_default()
                .to_owned(),
            attempt: u32::try_from(attempt.unwrap_or(0)).unwrap_or(u32::MAX),
        })
    }

    /// The same, in the session of a section, which a number alone may be given for.
    fn header_in(&self, headers: &HeaderMap, secret: Secret) -> Result<v1::Header, Problem> {
        let secret = Bytes::copy_from_slice(&secret.to_bytes());
        let mut plain = headers.clone();
        plain.remove("fermata-secret");
        Ok(v1::Header {
            secret,
            ..self.any_header(&plain)?
        })
    }
}

fn unexpected(reply: &Reply) -> Problem {
    crate::porter::unexpected(reply).into()
}

async fn list_keyspaces(rest: Asking, headers: HeaderMap) -> Handled {
    let header = Some(rest.header(&headers)?);
    match rest
        .ask(Wire::ListKeyspaces(v1::ListKeyspacesRequest { header }))
        .await?
    {
        Reply::Keyspaces(all) => {
            let keyspaces = all.iter().map(json::KeyspaceJson::from).collect();
            Ok(Json(json::Keyspaces { keyspaces }).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

async fn create_keyspace(rest: Asking, headers: HeaderMap, given: Body) -> Handled {
    let keyspace = parse::<json::KeyspaceJson>(&rest.body(given)?)?.parse()?;
    let header = Some(rest.header(&headers)?);
    let name = keyspace.name.clone();
    let create = v1::CreateKeyspaceRequest {
        header,
        keyspace: Some(keyspace),
    };
    rest.ask(Wire::CreateKeyspace(create)).await?;
    rest.porter.refresh_names().await;
    let location = [(header::LOCATION, format!("/v1/keyspaces/{name}/keys"))];
    Ok((
        StatusCode::CREATED,
        location,
        Json(json::Done::new(None, None)),
    )
        .into_response())
}

async fn change_keyspace(rest: Asking, headers: HeaderMap, uri: Uri, given: Body) -> Handled {
    let times = parse::<json::TimesJson>(&rest.body(given)?)?;
    let change = v1::ChangeKeyspaceRequest {
        header: Some(rest.header(&headers)?),
        keyspace: text_segment(&uri, 2, "keyspace")?,
        lease_us: times.lease_ms.map(micros).transpose()?,
        section_max_us: times.section_max_ms.map(micros).transpose()?,
    };
    rest.ask(Wire::ChangeKeyspace(change)).await?;
    Ok(Json(json::Done::new(None, None)).into_response())
}

async fn change_settings(rest: Asking, headers: HeaderMap, given: Body) -> Handled {
    let wanted = parse::<json::SettingsJson>(&rest.body(given)?)?;
    let change = v1::ChangeSettingsRequest {
        header: Some(rest.header(&headers)?),
        setting: Some(wanted.change()?),
    };
    rest.ask(Wire::ChangeSettings(change)).await?;
    Ok(Json(json::Done::new(None, None)).into_response())
}

async fn get_access(rest: Asking, headers: HeaderMap) -> Handled {
    let header = Some(rest.header(&headers)?);
    let ask = Wire::GetAccess(v1::GetAccessRequest { header });
    match rest.ask(ask).await? {
        Reply::Access(access) => {
            let policy = match access.policy[..] {
                // That of a new cluster, as it can be given back.
                [] => serde_json::json!(fermata_access::Policy::default()),
                ref bytes => parse(&Bytes::copy_from_slice(bytes))?,
            };
            let version = access.version;
            Ok(Json(json::Access { version, policy }).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

async fn change_access(rest: Asking, headers: HeaderMap, given: Body) -> Handled {
    let wanted = parse::<json::Access>(&rest.body(given)?)?;
    let change = v1::ChangeAccessRequest {
        header: Some(rest.header(&headers)?),
        after: wanted.version,
        policy: wanted.policy.to_string().into(),
    };
    rest.ask(Wire::ChangeAccess(change)).await?;
    Ok(Json(json::Done::new(None, None)).into_response())
}

async fn delete_keyspace(rest: Asking, headers: HeaderMap, uri: Uri) -> Handled {
    let delete = v1::DeleteKeyspaceRequest {
        header: Some(rest.header(&headers)?),
        keyspace: text_segment(&uri, 2, "keyspace")?,
    };
    rest.ask(Wire::DeleteKeyspace(delete)).await?;
    Ok(Json(json::Done::new(None, None)).into_response())
}

async fn status(rest: Asking) -> Handled {
    let header = Some(rest.header(&HeaderMap::new())?);
    match rest.ask(Wire::Status(v1::StatusRequest { header })).await? {
        Reply::Status(status) => {
            let healthy = rest.porter.is_healthy();
            Ok(Json(json::Status::new(*status, &rest.porter, healthy)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

/// What there is, for who begins here.
async fn index(rest: Asking) -> Response {
    let paths: Vec<&str> = routes().into_iter().map(|(path, ..)| path).collect();
    let index = serde_json::json!({
        "name": "Fermata",
        "version": env!("CARGO_PKG_VERSION"),
        "node": rest.porter.node.0,
        "description": "/openapi.json",
        "paths": paths,
        "music": crate::music::ROOT,
    });
    Json(index).into_response()
}

/// Whether the process is to be left alone: starting it again would not make a node that has no
/// quorum any better.
async fn livez(rest: Asking) -> Handled {
    match rest.porter.is_alive() {
        true => Ok("ok\n".into_response()),
        false => Err(Problem::stuck()),
    }
}

/// Whether the node is of use: that is what a balancer asks. A keyspace that has lost its quorum
/// has lost it through every node, so it is told and changes nothing.
async fn healthz(rest: Asking) -> Handled {
    if rest.porter.is_healthy() {
        let short = rest.may_look().map(|()| rest.porter.short());
        let lines = core::iter::once("ok".to_owned()).chain(short.unwrap_or_default());
        let body: String = lines.map(|line| line + "\n").collect();
        Ok(body.into_response())
    } else {
        let why = match rest.may_look() {
            Ok(()) => rest.porter.ailment(),
            Err(_) => "this node is not of use now: ask another".into(),
        };
        Err(Problem::unhealthy(why))
    }
}

async fn metrics(rest: Asking) -> Handled {
    // They name keyspaces, and keys that are held.
    rest.may_look()?;
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    Ok((kind, rest.porter.metrics.render()).into_response())
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
