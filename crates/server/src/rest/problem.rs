//! Errors as `application/problem+json` (RFC 9457), with the stable code of every face.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fermata_api::condition::Version;
use fermata_api::errors::face;
use fermata_protocol::{Code, Refusal};
use serde::Serialize;

/// An error as REST tells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    /// `urn:fermata:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    may_have_taken_effect: bool,
    /// Of a condition that was not met: the version of the key's value, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Problem {
    fn new(code: &'static str, status: u16, title: &'static str, detail: String) -> Problem {
        let kind = format!("urn:fermata:problem:{code}");
        Problem {
            kind,
            title,
            status,
            detail,
            code,
            may_have_taken_effect: false,
            version: None,
        }
    }

    /// Malformed, in a way that only REST can be.
    pub(crate) fn bad(detail: impl Into<String>) -> Problem {
        Refusal::definite(Code::BadRequest, detail).into()
    }

    /// The key has no value.
    pub(crate) fn no_value() -> Problem {
        Problem::new("no_value", 404, "No value", "the key has no value".into())
    }

    /// A condition is not so of the key, whose value has this version.
    pub(crate) fn unmet(version: Option<Version>) -> Problem {
        let version = version.map(|version| version.to_string());
        let has = match &version {
            Some(version) => format!("a value of version \"{version}\""),
            None => "no value".into(),
        };
        let detail = format!("the condition is not met: the key has {has}; nothing was changed");
        Problem {
            version,
            ..Problem::new("condition_failed", 412, "Condition failed", detail)
        }
    }

    /// No such path.
    pub(crate) fn no_route() -> Problem {
        let detail = "there is nothing at this path: see /openapi.json".into();
        Problem::new("no_such_path", 404, "No such path", detail)
    }

    /// The body does not say what it is, or is what nobody here reads.
    pub(crate) fn no_kind() -> Problem {
        let detail = "the body's Content-Type is neither application/json nor \
                      application/octet-stream: send one of them";
        Problem::new(
            "unsupported_media_type",
            415,
            "Unsupported media type",
            detail.into(),
        )
    }

    /// The path has no such method.
    pub(crate) fn no_method() -> Problem {
        let detail = "this path does not take this method: see /openapi.json".into();
        Problem::new("no_such_method", 405, "No such method", detail)
    }

    /// The body of the request did not come.
    pub(crate) fn late() -> Problem {
        let detail = "the body did not arrive in time (clients.body_ms): send the request again";
        Problem::new(
            "body_timeout",
            408,
            "The body did not arrive",
            detail.into(),
        )
    }

    /// The node does not go on.
    pub(crate) fn stuck() -> Problem {
        let detail = "the node's driver is stuck: its process has to be started again";
        Refusal::definite(Code::Unavailable, detail).into()
    }

    /// The node cannot reach its quorums.
    pub(crate) fn unhealthy(detail: String) -> Problem {
        Refusal::definite(Code::Unavailable, detail).into()
    }
}

impl Problem {
    /// The same with another status than its code has elsewhere.
    pub(crate) fn with_status(self, status: StatusCode) -> Problem {
        let status = status.as_u16();
        Problem { status, ..self }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let face = face(refusal.code);
        Problem {
            may_have_taken_effect: refusal.may_have_taken_effect,
            ..Problem::new(refusal.code.name(), face.http, face.title, refusal.detail)
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut answer = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}
