//! A stranger's request, for fuzzing: a line of path and query, one of a precondition, and a body.

use super::conditions::Conditions;
use super::json::{self, KeyspaceJson};
use super::keys::{KeyQuery, ListQuery};
use super::sections::{SectionKeyQuery, SectionQuery};
use super::token::Token;
use super::{is_escaped, key_of, no_route, parse, text_segment};
use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderValue, Uri, header};

pub(crate) fn fuzz(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (target, condition, body) = (part(), part(), Bytes::copy_from_slice(part()));
    if let Ok(uri) = Uri::try_from(target) {
        path(&uri);
    }
    if let Ok(value) = HeaderValue::from_bytes(condition) {
        let headers = HeaderMap::from_iter([
            (header::IF_MATCH, value.clone()),
            (header::IF_NONE_MATCH, value),
        ]);
        let _conditions = Conditions::of(&headers);
    }
    let _value = parse::<json::NewValue>(&body)
        .and_then(|new| json::bytes_of(new.value, new.value_base64, "value"));
    if let Ok(section) = parse::<json::NewSection>(&body) {
        for key in section.keys {
            let _key = key.parse();
        }
    }
    let _keyspace = parse::<KeyspaceJson>(&body).and_then(KeyspaceJson::parse);
    let _times = parse::<json::TimesJson>(&body);
    let _setting = parse::<json::SettingsJson>(&body).and_then(json::SettingsJson::change);
    let _leave = parse::<json::Leave>(&body);
    let _release = parse::<json::Release>(&body);
    let _policy = parse::<json::Access>(&body);
}

fn path(uri: &Uri) {
    if !is_escaped(uri) {
        return;
    }
    let _key = key_of(uri);
    let _none = no_route(uri);
    let _query = Query::<KeyQuery>::try_from_uri(uri);
    let _query = Query::<SectionQuery>::try_from_uri(uri);
    let _query = Query::<SectionKeyQuery>::try_from_uri(uri);
    if let Ok(Query(mut list)) = Query::<ListQuery>::try_from_uri(uri) {
        let _after = list.after("");
    }
    if let Ok(token) = text_segment(uri, 2, "section id").and_then(|name| Token::parse(&name)) {
        assert_eq!(Token::parse(&token.name()).ok(), Some(token));
    }
}
