//! The MUSIC REST face: the interface of ONAP's MUSIC 3.2, and of its first generation.
//!
//! **Problem.** There are clients of MUSIC, written for a server that lost their writes, never
//! granted some of their locks, and is not maintained any more. They should find here what they
//! call, unchanged, with the guarantees that MUSIC's papers promise. `docs/music-rest.md` lists the
//! calls, and what differs from the original and why.
//!
//! **Idea.** The face speaks to the node's porter and to its hosted sessions alone, so that it runs
//! on whatever engine is behind them. Everything is in *one* Fermata keyspace of sections: MUSIC's
//! keyspaces come and go, a Fermata keyspace stays, and one schema value per MUSIC keyspace,
//! changed in a section, makes "already exists" true ([`schema`]). All rows with one first key
//! column are one value, the *unit* ([`rows`]), and the lock `keyspace.table.value` is the Fermata
//! lock of exactly that value's key ([`locks`]): a critical put is one critical put of Fermata, and
//! whatever the original did in several statements (conditions, partial updates, the conditional
//! calls) is one write. Keys are made of names without zero bytes and of the value as it is:
//! nothing is concatenated into a language, and every value has its own key.
//!
//! **Writes** ([`row_calls`]). A critical write is made under the client's lock, at the lock's
//! home. Every other write is a section of its own, or, if it decides a whole row and nobody is
//! near its key, an eventual put. A write of some columns always reads the others in the same
//! section.
//!
//! **Invariants.**
//! * R1. No SUCCESS of a write that is dropped: not beside a holder, not after one, not for a value
//!   that does not convert. An eventual put alone is known at one replica when it is answered: a
//!   section that begins elsewhere before it has arrived there comes after it, and does not see it.
//! * R2. A section's writes are numbered by one session: of the lock's home, or of the node that
//!   has resumed the section (F16).
//! * R3. A lock of which no call speaks ends.
//! * R4. A call that was begun is done to its end, also if its client hangs up: it runs in a task
//!   of its own.

mod answers;
mod conditional;
mod definitions;
mod expiry;
mod forward;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod health;
mod lenient;
mod lock_calls;
mod locks;
mod moves;
mod names;
mod owners;
mod row_calls;
mod rows;
mod schema;
mod store;
mod values;

use crate::access::{Caller, Used};
use crate::hosted::Hosted;
use crate::rest::{NOT_ESCAPED, bounded, conditional, is_escaped};
use answers::{Failure, MusicAnswer};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use fermata_protocol::Refusal;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz;
use locks::Locks;
use schema::TableName;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use store::KEYSPACE;
use store::MusicStore;
use tokio::task::JoinSet;

/// Where it is served.
pub(crate) const ROOT: &str = "/MUSIC/rest";

/// What all calls share.
struct Music {
    store: Arc<MusicStore>,
    locks: Arc<Locks>,
}

/// One call.
struct Call {
    caller: Caller,
    method: Method,
    /// Path and query, as they came.
    target: String,
    /// Whether it is of the first generation: without a version in its path.
    v1: bool,
    path: Vec<String>,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    raw: Bytes,
    /// So often it was sent on by a node.
    hops: u8,
    /// The former home of the lock that it has the receiver take over, and how long that lives of
    /// which nobody speaks.
    moved: Option<(u32, Duration)>,
}

/// Decodes a part of a path or a query.
fn decoded(raw: &str, plus: bool) -> Result<String, Failure> {
    let spaced = if plus {
        raw.replace('+', " ")
    } else {
        raw.to_owned()
    };
    let bytes = percent_encoding::percent_decode_str(&spaced);
    let text = bytes.decode_utf8().map_err(|_| {
        Failure::error("the path or the query is not UTF-8 once its percent signs are decoded")
    })?;
    Ok(text.into_owned())
}

/// How often a call was sent on, as its header says.
fn hops_of(headers: &HeaderMap) -> u8 {
    let told = headers.get(forward::MARK);
    let hops = told.map(|told| told.to_str().ok().and_then(|told| told.parse().ok()));
    hops.map_or(0, |hops| hops.unwrap_or(forward::HOPS_MAX))
}

/// The former home and the idle time of a lock that is given away, as a header says.
fn moved_of(headers: &HeaderMap) -> Option<(u32, Duration)> {
    let told = headers.get(forward::MOVED)?.to_str().ok()?;
    let (home, idle) = told.split_once(' ')?;
    let idle = Duration::from_millis(idle.parse().ok()?);
    Some((home.parse().ok()?, idle.min(lock_calls::IDLE_MAX)))
}

impl Call {
    fn parse(
        caller: Caller,
        method: Method,
        uri: &Uri,
        (headers, raw): (HeaderMap, Bytes),
    ) -> Result<Call, Failure> {
        if !is_escaped(uri) {
            return Err(Failure::error(NOT_ESCAPED));
        }
        if let Some(why) = conditional(&headers, &[]) {
            return Err(Failure::error(why));
        }
        let path = uri.path().strip_prefix(ROOT).unwrap_or_default();
        let mut path = path
            .split('/')
            .skip(1)
            .map(|part| decoded(part, false))
            .collect::<Result<Vec<_>, _>>()?;
        if path.last().is_some_and(String::is_empty) {
            path.pop();
        }
        let digits = |v: &str| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit());
        let version = path.first().and_then(|first| first.strip_prefix('v'));
        let v1 = !version.is_some_and(digits);
        if !v1 {
            path.remove(0);
        }
        let mut query = Vec::new();
        for part in uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.is_empty())
        {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            query.push((decoded(name, true)?, decoded(value, true)?));
        }
        let target = uri
            .path_and_query()
            .map_or(uri.path(), |target| target.as_str());
        Ok(Call {
            caller,
            method,
            target: target.into(),
            v1,
            path,
            query,
            hops: hops_of(&headers),
            moved: moved_of(&headers),
            headers,
            raw,
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether its locks are answered as text: the first generation, or who asks for it.
    fn speaks_text(&self) -> bool {
        let accepted = self.header("accept").unwrap_or_default();
        self.v1 || (accepted.contains("text/plain") && !accepted.contains("application/json"))
    }

    /// The body's object; no body, or `null`, is an empty one. Fields that nobody knows are fine.
    fn json(&self) -> Result<Map<String, Value>, Failure> {
        if self.raw.iter().all(u8::is_ascii_whitespace) {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.raw) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(Value::Null) => Ok(Map::new()),
            Ok(_) => Err(Failure::syntax("the body is not a JSON object")),
            Err(error) => Err(Failure::syntax(format!("the body is not JSON: {error}"))),
        }
    }

    /// A body must say that it is JSON; the first generation sends `null` as text to `/locks`.
    ///
    /// A page in a browser can send text or a form across origins without leave, and then says
    /// where it comes from: it is not listened to.
    fn typed(&self) -> Result<(), Failure> {
        let kind = self.header(header::CONTENT_TYPE.as_str());
        let json = kind.is_some_and(|kind| kind.starts_with("application/json"));
        if json || self.method == Method::GET {
            return Ok(());
        }
        let locks = self.path.first().is_some_and(|first| first == "locks");
        let bare = kind.is_none() || locks && self.speaks_text();
        let page = self.headers.contains_key(header::ORIGIN);
        match bare && !page || kind.is_none() && self.raw.is_empty() && !page {
            true => Ok(()),
            false => Err(Failure::error("HTTP 415 Unsupported Media Type")),
        }
    }
}

/// The routes of this face, beside the node's own. What it does unasked is one of the `tasks`.
pub(crate) fn router(hosted: Arc<Hosted>, tasks: &mut JoinSet<()>) -> Router {
    let porter = hosted.porter.clone();
    let store = Arc::new(MusicStore::new(hosted));
    let locks = Arc::new(Locks::new(store.clone()));
    tasks.spawn(moves::hand_over(locks.clone()));
    tasks.spawn(locks::review(locks.clone()));
    tasks.spawn(expiry::sweep(store.clone()));
    Router::new()
        .route("/MUSIC/rest", any(serve))
        .route("/MUSIC/rest/", any(serve))
        .route("/MUSIC/rest/{*rest}", any(serve))
        .layer(from_fn_with_state(porter, bounded))
        .with_state(Arc::new(Music { store, locks }))
}

/// Answers one call, in a task of its own: a client that hangs up ends nothing in the middle.
async fn serve(
    State(music): State<Arc<Music>>,
    caller: Option<Extension<Caller>>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    request: Request,
) -> Response {
    let versionless = |part: &str| part == "version" || part == "test";
    let only_latest = uri.path().split('/').any(versionless);
    let versions = answers::versions(&headers, only_latest);
    let caller = caller.map_or(Caller::NOBODY, |Extension(caller)| caller);
    let call = taken(&music, caller, (method, &uri, headers), request).await;
    let answer = match call {
        Err(failure) => Err(failure),
        Ok((call, _used)) => match tokio::spawn(async move { music.dispatch(&call).await }).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::error(
                "the call was broken off by a defect or a stop; it may have taken effect",
            )),
        },
    };
    answer
        .unwrap_or_else(MusicAnswer::from)
        .into_response(&versions)
}

/// A call, counted against its caller's quota. Nothing is read of it for who is nobody here.
async fn taken(
    music: &Music,
    caller: Caller,
    (method, uri, headers): (Method, &Uri, HeaderMap),
    request: Request,
) -> Result<(Call, Option<Used>), Failure> {
    let access = &music.store.porter.access;
    access.admit(&caller)?;
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|error: BytesRejection| {
        Failure::error(match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                "the body is longer than the largest value (value_bytes) takes"
            }
            _ => "the body cannot be read",
        })
    })?;
    let used = access.count(&caller, body.len())?;
    let by_node = caller.is_by_node() || !access.is_enabled();
    let mut call = Call::parse(caller, method, uri, (headers, body))?;
    // Only a node gives a lock away.
    call.moved = call.moved.filter(|_| by_node);
    Ok((call, used))
}

/// The answer to a call whose caller is refused before it is looked at.
pub(crate) fn refused(refusal: &Refusal, headers: &HeaderMap) -> Response {
    let failure = Failure::from(refusal.clone());
    MusicAnswer::from(failure).into_response(&answers::versions(headers, false))
}

fn no_path() -> Failure {
    Failure::error("HTTP 404 Not Found")
}

fn no_method() -> Failure {
    Failure::error("HTTP 405 Method Not Allowed")
}

impl Music {
    async fn dispatch(&self, call: &Call) -> Result<MusicAnswer, Failure> {
        call.typed()?;
        let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
        match path[..] {
            ["keyspaces", ref rest @ ..] => self.data(call, rest).await,
            ["locks", ref rest @ ..] => self.lock(call, rest).await,
            ["conditional", what, "keyspaces", keyspace, "tables", table] => {
                let name = TableName::parse(keyspace, table)?;
                match (call.method.as_str(), what) {
                    ("POST", "insert") => self.conditional(call, &name, true).await,
                    ("PUT", "update") => self.conditional(call, &name, false).await,
                    (_, "insert" | "update") => Err(no_method()),
                    _ => Err(no_path()),
                }
            }
            // Any segment is taken for its version.
            ["priorityq", ref rest @ ..] | [_, "priorityq", ref rest @ ..] => {
                self.queue(call, rest).await
            }
            _ => self.about(call, &path).await,
        }
    }

    async fn data(&self, call: &Call, path: &[&str]) -> Result<MusicAnswer, Failure> {
        let method = call.method.as_str();
        match *path {
            [keyspace] => match method {
                "POST" => self.create_keyspace(call, keyspace).await,
                "DELETE" => self.drop_keyspace(call, keyspace).await,
                _ => Err(no_method()),
            },
            [keyspace, "tables", table] => match method {
                "POST" => self.create_table(call, (keyspace, table)).await,
                "DELETE" => self.drop_table(call, (keyspace, table)).await,
                _ => Err(no_method()),
            },
            [keyspace, "tables", table, "index", column] => match method {
                "POST" => self.create_index(call, (keyspace, table), column).await,
                _ => Err(no_method()),
            },
            [keyspace, "tables", table, "rows"] => {
                let name = TableName::parse(keyspace, table)?;
                self.rows(call, &name).await
            }
            [keyspace, "tables", table, "rows", "criticalget"] => match method {
                "PUT" => {
                    let name = TableName::parse(keyspace, table)?;
                    self.critical_get(call, &name).await
                }
                _ => Err(no_method()),
            },
            _ => Err(no_path()),
        }
    }

    async fn rows(&self, call: &Call, name: &TableName) -> Result<MusicAnswer, Failure> {
        match call.method.as_str() {
            "POST" => self.insert(call, name).await,
            "PUT" => self.update(call, name).await,
            "DELETE" => self.delete(call, name).await,
            "GET" => {
                let version = |name| call.header(name).map(str::trim);
                let (minor, patch) = (version("x-minorversion"), version("x-patchversion"));
                if let (Some(minor), Some(patch)) = (minor, patch)
                    && (minor.parse::<u32>().is_err() || patch.parse::<u32>().is_err())
                {
                    return Err(Failure::error(
                        "X-minorVersion and X-patchVersion are numbers",
                    ));
                }
                // Version 2.1.0 had no criticalget: a GET with a body was one.
                match (minor, patch) == (Some("1"), Some("0")) && !call.json()?.is_empty() {
                    true => self.critical_get(call, name).await,
                    false => self.select(call, name).await,
                }
            }
            _ => Err(no_method()),
        }
    }

    async fn lock(&self, call: &Call, path: &[&str]) -> Result<MusicAnswer, Failure> {
        let [what, ref name @ ..] = *path else {
            return Err(no_path());
        };
        let locks = &self.locks;
        if name.is_empty() {
            return match call.method {
                Method::GET => lock_calls::enquire(locks, call, what).await,
                _ => Err(no_method()),
            };
        }
        // A value may have slashes, encoded or not.
        let name = &name.join("/");
        match (call.method.as_str(), what) {
            ("POST", "create") => lock_calls::create(locks, call, name).await,
            ("GET", "acquire") => lock_calls::acquire(locks, call, name).await,
            ("POST", "acquire-with-lease") => {
                lock_calls::acquire_with_lease(locks, call, name).await
            }
            ("GET", "enquire") => lock_calls::enquire(locks, call, name).await,
            ("GET", "holders") => lock_calls::holders(locks, call, name).await,
            ("DELETE", "release") => lock_calls::release(locks, call, name).await,
            ("DELETE", "delete") => lock_calls::delete(locks, call, name).await,
            ("POST", "promote") => lock_calls::promote(locks, call, name).await,
            (
                _,
                "create" | "acquire" | "acquire-with-lease" | "enquire" | "holders" | "release"
                | "delete" | "promote",
            ) => Err(no_method()),
            _ => Err(no_path()),
        }
    }

    async fn queue(&self, call: &Call, path: &[&str]) -> Result<MusicAnswer, Failure> {
        let ["keyspaces", keyspace, queue, ref rest @ ..] = *path else {
            return Err(no_path());
        };
        let name = TableName::parse(keyspace, queue)?;
        match (call.method.as_str(), rest) {
            ("POST", []) => self.create_queue(call, (keyspace, queue)).await,
            ("DELETE", []) => self.drop_table(call, (keyspace, queue)).await,
            ("POST" | "PUT" | "DELETE", ["rows"]) => self.rows(call, &name).await,
            ("GET", ["filter"]) => self.select(call, &name).await,
            ("GET", ["peek"]) => self.peek(call, &name).await,
            (_, [] | ["rows"] | ["filter"] | ["peek"]) => Err(no_method()),
            _ => Err(no_path()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str, headers: HeaderMap) -> Result<Call, Failure> {
        let uri = format!("{ROOT}{target}").parse().unwrap();
        Call::parse(Caller::NODE, Method::GET, &uri, (headers, Bytes::new()))
    }

    #[test]
    fn a_condition_is_refused() {
        for name in ["If-Match", "if-none-match"] {
            let name = header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(name, "*".parse().unwrap())]);
            let refused = MusicAnswer::from(parse("/v2/locks/a", headers).err().unwrap());
            assert_eq!(refused.status, 400);
        }
    }

    #[test]
    fn a_percent_sign_stands_for_a_byte() {
        let parse = |target: &str| parse(target, HeaderMap::new());
        let call = parse("/v2/locks/a%2Fb?x=%25").ok().unwrap();
        assert_eq!(call.path, ["locks", "a/b"]);
        assert_eq!(call.query, [("x".to_owned(), "%".to_owned())]);
        for wrong in ["/v2/locks/%zz", "/v2/locks/a%", "/v2/locks/a?x=%2"] {
            let refused = MusicAnswer::from(parse(wrong).err().unwrap());
            assert_eq!(refused.status, 400, "{wrong}");
        }
    }
}
