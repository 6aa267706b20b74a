//! A call that another node must answer, sent there.
//!
//! A lock's writes are numbered by one node, its home ([`super::locks`]), so that whoever is asked
//! with a lock's id sends the call on as it is. One exchange of HTTP/1.0 over a connection of its
//! own: the answer ends with the connection, and nothing is kept. A home that cannot be connected
//! to has not seen the call, and the node that was asked may go on in its place; one that falls
//! silent afterwards may have done it, and the client is told so.

use super::Call;
use super::answers::{Answer, Body, Failure};
use axum::http::header;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the answer may take: longer than any call that is answered at once.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const ANSWER_MAX: u64 = 128 << 20;
/// Marks a call that was sent on, so that it is not sent on again.
pub(super) const MARK: &str = "fermata-forwarded";
/// Headers that matter to a call.
const PASSED: [&str; 5] = [
    "content-type",
    "accept",
    "owner",
    "x-minorversion",
    "x-patchversion",
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

/// Sends `call` to the node at `address` and relays what it answers.
pub(super) async fn send(address: &str, call: &Call) -> Result<Answer, Silent> {
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let Ok(Ok(stream)) = connected else {
        return Err(Silent::Unreached);
    };
    let exchange = exchange(stream, request(address, call));
    let raw = tokio::time::timeout(ANSWER, exchange).await;
    let Ok(Ok(raw)) = raw else {
        return Err(Silent::Unknown);
    };
    parse(&raw).ok_or(Silent::Unknown)
}

fn request(address: &str, call: &Call) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.0\r\nHost: {address}\r\n{MARK}: 1\r\nContent-Length: {}\r\n",
        call.method,
        call.target,
        call.raw.len()
    )
    .into_bytes();
    for name in PASSED {
        if let Some(value) = call.headers.get(name) {
            head.extend(name.as_bytes());
            head.extend(b": ");
            head.extend(value.as_bytes());
            head.extend(b"\r\n");
        }
    }
    head.extend(b"\r\n");
    head.extend(&call.raw);
    head
}

async fn exchange(mut stream: TcpStream, request: Vec<u8>) -> std::io::Result<Vec<u8>> {
    stream.write_all(&request).await?;
    let mut raw = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut raw).await?;
    Ok(raw)
}

fn parse(raw: &[u8]) -> Option<Answer> {
    let end = raw.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut kind = String::new();
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case(header::CONTENT_TYPE.as_str()) {
            kind = value.trim().to_owned();
        }
        if name.eq_ignore_ascii_case(header::CONTENT_LENGTH.as_str()) {
            length = value.trim().parse::<usize>().ok();
        }
    }
    let body = &raw[end + 4..];
    // A connection that broke looks like one that ended.
    if length.is_some_and(|length| length != body.len()) {
        return None;
    }
    Some(Answer {
        status,
        body: Body::Relayed(kind, body.to_vec()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let whole = b"HTTP/1.0 400 Bad Request\r\ncontent-length: 2\r\ncontent-type: a/b\r\n\r\n{}";
        let answer = parse(whole).unwrap();
        assert_eq!(answer.status, 400);
        assert!(matches!(answer.body, Body::Relayed(kind, body) if kind == "a/b" && body == b"{}"));
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_none(), "{cut}");
        }
    }
}
