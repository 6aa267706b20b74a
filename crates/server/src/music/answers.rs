//! What is answered: the envelopes, the texts and the headers that MUSIC's clients look at.
//!
//! Clients match on little: the status code, `status`, whether there is a `message`, and the words
//! "already exists". A failure is always 400 with an `error` (or, of a lock that has to wait, a
//! `message`), but for who may not call, 401 or 403; only the conditional calls know 401 else. A
//! refusal of Fermata's is told in its own sentence, with a word on whether it may have taken
//! effect.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use fermata_protocol::{Code, Refusal};
use serde_json::{Map, Value, json};

/// The version of MUSIC whose interface this is.
pub(super) const VERSION: &str = "3.2.40";

/// A body as it will be sent.
#[derive(Debug)]
pub(super) enum Body {
    /// An envelope, or rows.
    Json(Value),
    /// What clients of the first generation parse.
    Text(String),
    /// Nothing, with status 204 in the first generation.
    Empty,
    /// What another node answered: its headers and its bytes.
    Relayed(HeaderMap, Bytes),
}

/// An answer of any kind.
#[derive(Debug)]
pub(super) struct MusicAnswer {
    pub(super) status: u16,
    pub(super) body: Body,
}

/// Why a call failed; always told as an envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: u16,
    error: Option<String>,
    message: Option<String>,
    lock: Option<Value>,
    /// Bad syntax is told as text, as the original's parser did.
    text: bool,
    /// It says nothing of what was asked for, only of now: too few can be asked.
    passing: bool,
}

impl MusicAnswer {
    /// 200 with any JSON.
    pub(super) fn json(body: Value) -> MusicAnswer {
        MusicAnswer {
            status: 200,
            body: Body::Json(body),
        }
    }

    /// 200 with `status` and these fields; those that are null are left out.
    pub(super) fn success(fields: Value) -> MusicAnswer {
        let mut map = Map::new();
        map.insert("status".into(), "SUCCESS".into());
        if let Value::Object(fields) = fields {
            map.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        }
        MusicAnswer::json(Value::Object(map))
    }

    /// 200 with a `message`.
    pub(super) fn message(message: impl Into<String>) -> MusicAnswer {
        MusicAnswer::success(json!({ "message": message.into() }))
    }

    /// 200 with text.
    pub(super) fn text(text: impl Into<String>) -> MusicAnswer {
        MusicAnswer {
            status: 200,
            body: Body::Text(text.into()),
        }
    }

    /// 204.
    pub(super) fn empty() -> MusicAnswer {
        MusicAnswer {
            status: 204,
            body: Body::Empty,
        }
    }

    pub(super) fn into_response(self, versions: &[(HeaderName, HeaderValue)]) -> Response {
        let typed = |kind| {
            let kind = (header::CONTENT_TYPE, HeaderValue::from_static(kind));
            versions.iter().cloned().chain([kind]).collect()
        };
        let (headers, bytes) = match self.body {
            Body::Json(value) => (typed("application/json"), value.to_string().into()),
            Body::Text(text) => (typed("text/plain"), text.into()),
            Body::Relayed(headers, bytes) => (headers, bytes),
            Body::Empty => (versions.iter().cloned().collect(), Bytes::new()),
        };
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = Response::new(bytes.into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

impl Failure {
    /// 400 with an `error`.
    pub(super) fn error(error: impl Into<String>) -> Failure {
        Failure {
            status: 400,
            error: Some(error.into()),
            message: None,
            lock: None,
            text: false,
            passing: false,
        }
    }

    /// 400 with a `message`: of a lock, that there is reason to ask again.
    pub(super) fn wait(message: impl Into<String>) -> Failure {
        Failure {
            error: None,
            message: Some(message.into()),
            ..Failure::error("")
        }
    }

    /// 400 with the parser's words.
    pub(super) fn syntax(text: impl Into<String>) -> Failure {
        Failure {
            text: true,
            ..Failure::error(text)
        }
    }

    /// 401, which the conditional calls answer where something is missing.
    pub(super) fn missing(error: impl Into<String>) -> Failure {
        Failure {
            status: 401,
            ..Failure::error(error)
        }
    }

    /// The same with a `lock`.
    pub(super) fn with_lock(self, lock: Value) -> Failure {
        Failure {
            lock: Some(lock),
            ..self
        }
    }

    /// What there is to read.
    pub(super) fn said(&self) -> &str {
        self.error
            .as_deref()
            .or(self.message.as_deref())
            .unwrap_or_default()
    }

    /// The same failure, told by a `message`.
    pub(super) fn into_wait(self) -> Failure {
        Failure {
            message: Some(self.said().to_owned()),
            error: None,
            ..self
        }
    }

    /// The same failure; told by a `message` if it is one of now.
    pub(super) fn or_wait(self) -> Failure {
        match self.passing {
            true => self.into_wait(),
            false => self,
        }
    }

    /// The same with words before it.
    pub(super) fn prefixed(self, before: &str) -> Failure {
        Failure {
            error: self.error.map(|error| format!("{before}{error}")),
            message: self.message.map(|message| format!("{before}{message}")),
            ..self
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let doubt = match refusal.may_have_taken_effect {
            true => " (it may have taken effect)",
            false => "",
        };
        Failure {
            status: match refusal.code {
                Code::Unauthenticated => 401,
                Code::Forbidden => 403,
                _ => 400,
            },
            passing: matches!(
                refusal.code,
                Code::Unavailable | Code::Busy | Code::WaitOver
            ),
            ..Failure::error(format!("{}{doubt}", refusal.detail))
        }
    }
}

impl From<Failure> for MusicAnswer {
    fn from(failure: Failure) -> MusicAnswer {
        if failure.text {
            return MusicAnswer {
                status: failure.status,
                body: Body::Text(failure.error.unwrap_or_default()),
            };
        }
        let mut map = Map::new();
        map.insert("status".into(), "FAILURE".into());
        let fields = [("error", failure.error), ("message", failure.message)];
        for (name, value) in fields {
            if let Some(value) = value {
                map.insert(name.into(), value.into());
            }
        }
        if let Some(lock) = failure.lock {
            map.insert("lock".into(), lock);
        }
        MusicAnswer {
            status: failure.status,
            body: Body::Json(Value::Object(map)),
        }
    }
}

/// The version headers of an answer: those that the client sent come back.
pub(super) fn versions(asked: &HeaderMap, only_latest: bool) -> Vec<(HeaderName, HeaderValue)> {
    let mut all = vec![(
        HeaderName::from_static("x-latestversion"),
        HeaderValue::from_static(VERSION),
    )];
    if !only_latest {
        for (name, own) in [("x-minorversion", "2"), ("x-patchversion", "40")] {
            let sent = asked.get(name).cloned();
            all.push((
                HeaderName::from_static(name),
                sent.unwrap_or(HeaderValue::from_static(own)),
            ));
        }
    }
    all
}
