//! Keys outside of sections.

use super::conditions::{Conditions, Unmet, entity_tag};
use super::{Asked, Body, Handled, Problem, header_text, json, key_of, parse, query};
use super::{Asking, micros, text_segment, unexpected};
use axum::Json;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use fermata_api::condition::{Change, Version};
use fermata_api::v1;
use fermata_api::v1::session_request::Operation as Wire;
use fermata_protocol::Reply;
use fermata_protocol::base::Tag;
use fermata_protocol::register::policy::part_length;
use fermata_protocol::request::{Inspection, Operation};
use serde::Deserialize;

/// `?consistency=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Consistency {
    #[default]
    Eventual,
    Linearizable,
}

/// The query of a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyQuery {
    consistency: Option<Consistency>,
    /// How long a change under a condition waits for its key.
    wait_ms: Option<u64>,
}

impl KeyQuery {
    /// How strong a request without a condition is.
    fn consistency(&self) -> Result<Consistency, Problem> {
        if self.wait_ms.is_some() {
            let why =
                "wait_ms is for a PUT or DELETE with If-Match or If-None-Match: leave it away";
            return Err(Problem::bad(why));
        }
        Ok(self.consistency.unwrap_or_default())
    }
}

/// A value as JSON, or as its bytes where the client asks for them, unless that is not to be told.
pub(super) fn value_answer(
    headers: &HeaderMap,
    conditions: Option<&Conditions>,
    (value, tag): (Option<Bytes>, Tag),
) -> Handled {
    let version = value.as_deref().map(Version::of);
    let unmet = conditions.and_then(|conditions| conditions.unmet(version));
    if unmet == Some(Unmet::Match) {
        return Err(Problem::unmet(version));
    }
    let (Some(value), Some(version)) = (value, version) else {
        return Err(Problem::no_value());
    };
    let told = [
        (header::ETAG, entity_tag(version)),
        (header::VARY, header::ACCEPT.to_string()),
    ];
    if unmet.is_some() {
        return Ok((StatusCode::NOT_MODIFIED, told).into_response());
    }
    if header_text(headers, "accept")?.is_some_and(|a| a.contains("application/octet-stream")) {
        let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
        return Ok((told, kind, value).into_response());
    }
    Ok((told, Json(json::Value::new(&value, tag))).into_response())
}

pub(super) async fn get(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<KeyQuery>,
) -> Handled {
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    let conditions = Conditions::of(&headers)?;
    let wire = match query(asked)?.consistency()? {
        Consistency::Eventual => Wire::Get(v1::GetRequest { header, key }),
        Consistency::Linearizable => Wire::Read(v1::ReadRequest { header, key }),
    };
    match rest.ask(wire).await? {
        Reply::Value { value, tag } => value_answer(&headers, conditions.as_ref(), (value, tag)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn change(
    rest: Asking,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<KeyQuery>,
    given: Body,
) -> Handled {
    let value = rest.value_of(&method, &headers, given)?;
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    let query = query(asked)?;
    if let Some(conditions) = Conditions::of(&headers)? {
        let write = v1::WriteRequest { header, key, value };
        return rest.change_if(&headers, conditions, (write, query)).await;
    }
    let wire = match query.consistency()? {
        Consistency::Eventual => Wire::Put(v1::PutRequest { header, key, value }),
        Consistency::Linearizable => Wire::Write(v1::WriteRequest { header, key, value }),
    };
    match rest.ask(wire).await? {
        Reply::Done { tag } => Ok(Json(json::Done::new(tag, None)).into_response()),
        other => Err(unexpected(&other)),
    }
}

impl Asking {
    /// Compare-and-set: a section of its own, in a session that this node keeps for it.
    async fn change_if(
        &self,
        headers: &HeaderMap,
        conditions: Conditions,
        (write, query): (v1::WriteRequest, KeyQuery),
    ) -> Handled {
        if query.consistency == Some(Consistency::Eventual) {
            let why = "a change under a condition is linearizable: leave consistency away";
            return Err(Problem::bad(why));
        }
        // Its session numbers it, and would not know a number of the client's again.
        if headers.contains_key("fermata-secret") {
            return Err(Problem::bad(
                "a change under a condition has a session of its own: leave Fermata-Secret and \
                 Fermata-Number away; with If-Match a repetition does nothing that is done",
            ));
        }
        let wait = query.wait_ms.map(micros).transpose()?;
        let write = self.parse(Wire::Write(write)).await?.operation;
        let version = |value: Option<&Bytes>| value.map(|value| Version::of(value));
        let holds = |value: Option<&Bytes>| conditions.unmet(version(value)).is_none();
        match self
            .hosted
            .change_if(&self.caller, write, wait, holds)
            .await?
        {
            Change::Done(version) => Ok(Json(json::Done::under(version)).into_response()),
            Change::Failed(found) => Err(Problem::unmet(version(found.as_ref()))),
        }
    }
}

/// The query of a listing. Prefix and position are percent-encoded bytes or, as base64, any bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    prefix: Option<String>,
    prefix_base64: Option<String>,
    after: Option<String>,
    after_base64: Option<String>,
    /// Instead of `after`: what the page before has told.
    cursor: Option<String>,
    limit: Option<u32>,
}

impl ListQuery {
    /// Above which key the page of a list begins.
    pub(super) fn after(&mut self, list: &str) -> Result<Option<Bytes>, Problem> {
        let after = json::bytes_of(self.after.take(), self.after_base64.take(), "after")?;
        match (self.cursor.take(), after) {
            (None, after) => Ok(after),
            (Some(cursor), None) => json::key_of_cursor(&cursor, list).map(Some),
            (Some(_), Some(_)) => Err(Problem::bad("give cursor or after, one of them")),
        }
    }
}

pub(super) async fn list(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<ListQuery>,
) -> Handled {
    let mut q = query(asked)?;
    if q.limit == Some(0) {
        return Err(Problem::bad(
            "limit is at least 1; without it a page has 1,000 keys",
        ));
    }
    let keyspace = text_segment(&uri, 2, "keyspace")?;
    let prefix = json::bytes_of(q.prefix.take(), q.prefix_base64.take(), "prefix")?;
    let prefix = prefix.unwrap_or_default();
    let list = json::list_of(&keyspace, &prefix);
    let wire = Wire::Keys(v1::KeysRequest {
        header: Some(rest.header(&headers)?),
        keyspace,
        prefix,
        after: q.after(&list)?,
        limit: q.limit.unwrap_or(0),
    });
    let mut request = rest.parse(wire).await?;
    let page = rest.porter.page(&mut request.operation);
    match rest.submit(request).await? {
        Reply::Keys(mut keys) => {
            let more = page.is_some_and(|page| page.cut(&mut keys));
            Ok(Json(json::Keys::new(keys, more, &list)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn queue(rest: Asking, uri: Uri, headers: HeaderMap) -> Handled {
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    match rest
        .ask(Wire::Queue(v1::QueueRequest { header, key }))
        .await?
    {
        Reply::Queue { entries, flag } => {
            Ok(Json(json::Queue::new(entries, flag, &rest.porter.names())).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn release(rest: Asking, uri: Uri, headers: HeaderMap, given: Body) -> Handled {
    let lock_ref = parse::<json::Release>(&rest.body(given)?)?.lock_ref;
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    match rest
        .ask(Wire::Release(v1::ReleaseRequest {
            header,
            key,
            lock_ref,
        }))
        .await?
    {
        Reply::Done { .. } => Ok(Json(json::Done::new(None, None)).into_response()),
        other => Err(unexpected(&other)),
    }
}

impl Asking {
    /// Bytes that the inspected replica keeps of its value, by the keyspace's storage.
    async fn kept(&self, keyspace: &str, inspection: &Inspection) -> Option<u64> {
        let bytes = inspection.bytes?;
        let Ok(Reply::Keyspaces(all)) = self.porter.ask_self(Operation::Keyspaces).await else {
            return None;
        };
        let storage = all.iter().find(|k| k.name == keyspace)?.storage;
        let known = self.porter.roster.known();
        let view = &known.group_of(inspection.segment)?.view;
        let shape = storage.shape(view.len()).ok()?;
        let seat = view.seat_of(inspection.node)?;
        Some(part_length(storage, shape, bytes, seat))
    }
}

pub(super) async fn inspect(rest: Asking, uri: Uri, headers: HeaderMap) -> Handled {
    let (header, key) = (rest.header(&headers)?, key_of(&uri)?);
    let keyspace = key.keyspace.clone();
    let (header, key) = (Some(header), Some(key));
    match rest
        .ask(Wire::Inspect(v1::InspectRequest { header, key }))
        .await?
    {
        Reply::Inspect(inspection) => {
            let kept = rest.kept(&keyspace, &inspection).await;
            Ok(Json(json::Cells::new(inspection, kept)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}
