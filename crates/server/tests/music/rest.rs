//! A client of a node's HTTP interface.

use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, Request};

/// What came back: status, content type, body.
pub(crate) type Answered = (u16, String, Vec<u8>);

/// The same with all headers; none, if nothing came back.
pub(crate) type Whole = Option<(u16, HeaderMap, Vec<u8>)>;

pub(crate) struct Rest(pub(crate) String);

impl Rest {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answered {
        let answer = self.whole(method, path, headers, body).await;
        let (status, headers, body) = answer.unwrap();
        let kind = headers.get("content-type");
        let kind = kind.map_or(String::new(), |k| k.to_str().unwrap().to_owned());
        (status, kind, body)
    }

    pub(crate) async fn whole(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Whole {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.0));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let (head, body) = client.request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some((head.status.as_u16(), head.headers, body.to_vec()))
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let bytes = if body.is_null() {
            vec![]
        } else {
            body.to_string().into_bytes()
        };
        let (status, kind, body) = self.send(method, path, &[], &bytes).await;
        if status >= 400 {
            assert_eq!(kind, "application/problem+json", "{method} {path}");
        }
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}
