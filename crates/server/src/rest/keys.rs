//! Keys outside of sections.

use super::{Asked, Body, Handled, Problem, Shared, header_text, json, key_of, parse, query};
use super::{Rest, text_segment, unexpected};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::IntoResponse;
use bytes::Bytes;
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
    #[serde(default)]
    consistency: Consistency,
}

/// A value as JSON, or as its bytes where the client asks for them.
pub(super) fn value_answer(headers: &HeaderMap, value: Option<Bytes>, tag: Tag) -> Handled {
    let value = value.ok_or_else(Problem::no_value)?;
    if header_text(headers, "accept")?.is_some_and(|a| a.contains("application/octet-stream")) {
        return Ok(([(header::CONTENT_TYPE, "application/octet-stream")], value).into_response());
    }
    Ok(Json(json::Value::new(&value, tag)).into_response())
}

pub(super) async fn get(
    State(rest): Shared,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<KeyQuery>,
) -> Handled {
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    let wire = match query(asked)?.consistency {
        Consistency::Eventual => Wire::Get(v1::GetRequest { header, key }),
        Consistency::Linearizable => Wire::Read(v1::ReadRequest { header, key }),
    };
    match rest.ask(wire).await? {
        Reply::Value { value, tag } => value_answer(&headers, value, tag),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn change(
    State(rest): Shared,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<KeyQuery>,
    given: Body,
) -> Handled {
    let value = rest.value_of(&method, &headers, given)?;
    let (header, key) = (Some(rest.header(&headers)?), Some(key_of(&uri)?));
    let wire = match query(asked)?.consistency {
        Consistency::Eventual => Wire::Put(v1::PutRequest { header, key, value }),
        Consistency::Linearizable => Wire::Write(v1::WriteRequest { header, key, value }),
    };
    match rest.ask(wire).await? {
        Reply::Done { tag } => Ok(Json(json::Done::new(tag, None)).into_response()),
        other => Err(unexpected(&other)),
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
    #[serde(default)]
    limit: u32,
}

impl ListQuery {
    /// Above which key the page begins.
    fn after(&mut self) -> Result<Option<Bytes>, Problem> {
        let after = json::bytes_of(self.after.take(), self.after_base64.take(), "after")?;
        match (self.cursor.take(), after) {
            (None, after) => Ok(after),
            (Some(cursor), None) => json::key_of_cursor(&cursor).map(Some),
            (Some(_), Some(_)) => Err(Problem::bad("give cursor or after, one of them")),
        }
    }
}

pub(super) async fn list(
    State(rest): Shared,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<ListQuery>,
) -> Handled {
    let mut q = query(asked)?;
    let wire = Wire::Keys(v1::KeysRequest {
        header: Some(rest.header(&headers)?),
        keyspace: text_segment(&uri, 2, "keyspace")?,
        prefix: json::bytes_of(q.prefix.take(), q.prefix_base64.take(), "prefix")?
            .unwrap_or_default(),
        after: q.after()?,
        limit: q.limit,
    });
    let mut request = rest.porter.parse(wire).await?;
    let page = rest.porter.page(&mut request.operation);
    match rest.porter.ask(request).await? {
        Reply::Keys(mut keys) => {
            let more = page.is_some_and(|page| page.cut(&mut keys));
            Ok(Json(json::Keys::new(keys, more)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn queue(State(rest): Shared, uri: Uri, headers: HeaderMap) -> Handled {
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

pub(super) async fn release(
    State(rest): Shared,
    uri: Uri,
    headers: HeaderMap,
    given: Body,
) -> Handled {
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

impl Rest {
    /// Bytes that the inspected replica keeps of its value, by the keyspace's storage.
    async fn kept(&self, keyspace: &str, inspection: &Inspection) -> Option<u64> {
        let bytes = inspection.bytes?;
        let Ok(Reply::Keyspaces(all)) = self.porter.ask_self(Operation::Keyspaces).await else {
            return None;
        };
        let storage = all.iter().find(|k| k.name == keyspace)?.storage;
        let view = &self.porter.cluster.group_of(inspection.segment)?.view;
        let shape = storage.shape(view.len()).ok()?;
        let seat = view.seat_of(inspection.node)?;
        Some(part_length(storage, shape, bytes, seat))
    }
}

pub(super) async fn inspect(State(rest): Shared, uri: Uri, headers: HeaderMap) -> Handled {
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
