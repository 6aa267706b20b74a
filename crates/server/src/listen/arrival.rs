//! Bodies while they arrive.
//!
//! **Problem.** A request is admitted by the porter once it is there. Until then nobody has counted
//! its bytes, and a client that sends most of a large body and stops keeps them here for ever.
//!
//! **Idea.** Every body is read through [`Arriving`]. Its bytes take their part of the porter's
//! bound when they come and give it back with the answer; where there is none left, the request is
//! refused as `busy`. A clock runs while something is awaited: from one piece to the next, and so
//! that a body which trickles ends, too ([`RATE_MIN`]).
//!
//! A call of gRPC that streams its requests may be silent for as long as it likes *between*
//! messages, so there the clock runs within one, and a message counts until it has arrived: what
//! it asks for is the porter's from then on.
//!
//! **Strangers.** Where access is controlled, nothing is read from who is nobody, and what arrives
//! of a principal's counts against its quota.
//!
//! **What is left.** A request over HTTP/1 that is refused before its body has come would be cut
//! off with the answer unread, since the client still sends. So some more is read, and forgotten,
//! before it is answered.

use super::{is_grpc, refused};
use crate::access::{Caller, Used};
use crate::closings::Cause;
use crate::porter::Porter;
use crate::rest::Problem;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{Version, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fermata_api::errors;
use fermata_protocol::{Code, Refusal};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, timeout};

/// Bytes per second that a body must reach on average, beside the time that it has at first.
const RATE_MIN: u64 = 16 << 10;
/// Most bytes of a body that are read after its request was refused.
const FORGOTTEN_MAX: u64 = 64 << 20;
/// Bytes of a body that do not count against its caller's quota before all of it is there.
const UNCOUNTED: usize = 64 << 10;
/// How long an answer to who is nobody waits for the rest of what was sent.
const STRANGERS: Duration = Duration::from_secs(1);
/// Where one has to be somebody, once access is controlled.
const FOR_SOMEBODY: [&str; 3] = ["/v1/", "/fermata.v1.", crate::music::ROOT];
/// Length of what stands before each message of gRPC: a flag, and the message's length.
const PREFIX: usize = 5;
/// Calls whose requests are a stream.
const STREAMS: [&str; 3] = [
    "/fermata.v1.Fermata/Session",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// These routes, with the bodies of their requests counted and awaited for so long.
pub(super) fn counted(
    routes: Router,
    face: &'static str,
    porter: &Arc<Porter>,
    patience: Duration,
) -> Router {
    let porter = porter.clone();
    routes.layer(from_fn(move |request: Request, next: Next| {
        let porter = porter.clone();
        async move { arrive(face, porter, patience, request, next).await }
    }))
}

async fn arrive(
    face: &'static str,
    porter: Arc<Porter>,
    patience: Duration,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let headers = request.headers();
    let grpc = is_grpc(headers);
    let caller = request.extensions().get::<Caller>();
    let caller = caller.cloned().unwrap_or(Caller::NOBODY);
    let is_stranger = caller.is_stranger(&porter.access);
    let stranger = match is_stranger {
        true => stranger(&porter, &caller, &request),
        false => None,
    };
    let asks_first = headers.contains_key(header::EXPECT);
    let is_cut = request.version() < Version::HTTP_2;
    let messages = (grpc && STREAMS.contains(&request.uri().path())).then(Messages::default);
    let arrival = Arc::new(Arrival::default());
    let request = request.map(|body| {
        Body::new(Arriving {
            body,
            arrival: arrival.clone(),
            porter,
            caller,
            face,
            grpc,
            messages,
            clock: ArrivalClock::new(patience),
        })
    });
    let answer = match stranger {
        Some(answer) => {
            drop(request);
            answer
        }
        None => next.run(request).await,
    };
    let State { left, verdict, .. } = std::mem::take(&mut *arrival.lock());
    if let Some(left) = left
        && is_cut
        && !(asks_first && left.is_whole())
    {
        let forgotten = left.forget();
        match is_stranger {
            // Whoever has not sent it by then may miss the answer.
            true => drop(timeout(STRANGERS, forgotten).await),
            false => forgotten.await,
        }
    }
    match verdict {
        Some(verdict) if !grpc => verdict.into_response(),
        _ => answer,
    }
}

/// The refusal of who is nobody, where one has to be somebody: before anything is read.
fn stranger(porter: &Porter, caller: &Caller, request: &Request) -> Option<Response> {
    let path = request.uri().path();
    FOR_SOMEBODY.iter().find(|of| path.starts_with(**of))?;
    let refusal = porter.access.admit(caller).err()?;
    Some(refused(&refusal, request.headers(), request.uri()))
}

/// What the handler's side of a body tells the other.
#[derive(Default)]
struct Arrival(Mutex<State>);

#[derive(Default)]
struct State {
    /// What has arrived and counts.
    bytes: usize,
    /// The porter's permit for it.
    permit: Option<OwnedSemaphorePermit>,
    /// The same against its caller's quota, until all is there, and the request counts.
    used: Option<Used>,
    /// Why nothing more is read.
    verdict: Option<Verdict>,
    /// What its handler did not read.
    left: Option<Left>,
}

impl Arrival {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts so many bytes more, against the quota of a caller, too.
    fn count(
        &mut self,
        porter: &Porter,
        caller: Option<&Caller>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        self.bytes += bytes;
        // What keeps or gives up what one has is short, and goes on beyond a quota.
        if let Some(caller) = caller.filter(|_| self.bytes > UNCOUNTED) {
            porter.access.arriving(caller, &mut self.used, bytes)?;
        }
        let counted = self
            .permit
            .as_ref()
            .map_or(0, |permit| permit.num_permits() << 10);
        if self.bytes > counted {
            let more = porter.admit_bytes(self.bytes - counted)?;
            match &mut self.permit {
                Some(permit) => permit.merge(more),
                none => *none = Some(more),
            }
        }
        Ok(())
    }

    /// Nothing counts any more.
    fn clear(&mut self) {
        (self.bytes, self.permit, self.used) = (0, None, None);
    }
}

/// Why a body is not read any further.
enum Verdict {
    /// No bytes are left for it.
    Busy(Refusal),
    /// It did not come.
    Late,
}

impl Verdict {
    /// As the error that ends a body.
    fn error(&self, grpc: bool) -> axum::BoxError {
        let refusal = match self {
            Verdict::Busy(refusal) => refusal,
            Verdict::Late => &late(),
        };
        match grpc {
            true => errors::to_status(refusal).into(),
            false => refusal.detail.clone().into(),
        }
    }
}

fn late() -> Refusal {
    Refusal::definite(
        Code::BadRequest,
        "the message did not arrive in time (clients.body_ms): send it again",
    )
}

impl IntoResponse for Verdict {
    fn into_response(self) -> Response {
        let problem = match self {
            Verdict::Busy(refusal) => Problem::from(refusal),
            Verdict::Late => Problem::late(),
        };
        ([(header::CONNECTION, "close")], problem).into_response()
    }
}

/// A body that is being read.
struct Arriving {
    body: Body,
    arrival: Arc<Arrival>,
    porter: Arc<Porter>,
    caller: Caller,
    face: &'static str,
    grpc: bool,
    /// Where it is a stream of messages.
    messages: Option<Messages>,
    clock: ArrivalClock,
}

impl Arriving {
    /// Counts what has come, or says why it is refused.
    fn take(&mut self, data: &Bytes) -> Result<(), Verdict> {
        if !self.is_awaited() {
            self.clock = self.clock.fresh();
        }
        self.clock.arrived(data.len());
        let mut state = self.arrival.lock();
        // A stream goes on, whatever becomes of one request: each counts once it is there.
        let caller = Some(&self.caller).filter(|_| self.messages.is_none());
        let counted = state.count(&self.porter, caller, data.len());
        counted.map_err(Verdict::Busy)?;
        if self.body.is_end_stream() {
            state.used = None;
        }
        if let Some(messages) = &mut self.messages {
            messages.arrived(data);
            if !messages.is_within() {
                state.clear();
            }
        }
        Ok(())
    }

    /// Whether something has to come.
    fn is_awaited(&self) -> bool {
        self.messages.as_ref().is_none_or(Messages::is_within)
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let verdict = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref() {
                Some(data) => match self.take(data) {
                    Ok(()) => return Poll::Ready(Some(Ok(frame))),
                    Err(verdict) => verdict,
                },
                None => return Poll::Ready(Some(Ok(frame))),
            },
            Poll::Ready(other) => {
                self.arrival.lock().used = None;
                return Poll::Ready(other.map(|end| end.map_err(Into::into)));
            }
            Poll::Pending => {
                if !self.is_awaited() || self.clock.poll_over(cx).is_pending() {
                    return Poll::Pending;
                }
                let metrics = &self.porter.metrics;
                metrics.closed(self.face, Cause::Body, String::new());
                Verdict::Late
            }
        };
        let error = verdict.error(self.grpc);
        self.arrival.lock().verdict = Some(verdict);
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut state = self.arrival.lock();
        let late = matches!(state.verdict, Some(Verdict::Late));
        if !late && !self.body.is_end_stream() {
            let body = std::mem::take(&mut self.body);
            let patience = self.clock.patience;
            let clock = std::mem::replace(&mut self.clock, ArrivalClock::new(patience));
            state.left = Some(Left { body, clock });
        }
    }
}

/// What a handler did not read of a body.
struct Left {
    body: Body,
    clock: ArrivalClock,
}

impl Left {
    /// Whether nothing of it was read.
    fn is_whole(&self) -> bool {
        self.clock.bytes == 0
    }

    /// Reads it, if it is not too much, and forgets it.
    async fn forget(mut self) {
        let announced = self.body.size_hint().exact();
        let mut left = FORGOTTEN_MAX;
        if announced.is_some_and(|announced| announced > left) {
            return;
        }
        loop {
            let next = std::future::poll_fn(|cx| match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => self.clock.poll_over(cx).map(|()| None),
                next => next,
            });
            let Some(Ok(frame)) = next.await else {
                return;
            };
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.clock.arrived(length);
            match left.checked_sub(length as u64) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    }
}

/// Where a stream of gRPC's messages is.
#[derive(Default)]
struct Messages {
    /// The beginning of a prefix.
    prefix: Vec<u8>,
    /// What is missing of the message whose prefix was read.
    missing: u64,
}

impl Messages {
    fn arrived(&mut self, mut data: &[u8]) {
        loop {
            let part = data
                .len()
                .min(usize::try_from(self.missing).unwrap_or(usize::MAX));
            self.missing -= part as u64;
            data = &data[part..];
            if data.is_empty() {
                return;
            }
            let part = data.len().min(PREFIX - self.prefix.len());
            self.prefix.extend_from_slice(&data[..part]);
            data = &data[part..];
            if let [_, a, b, c, d] = self.prefix[..] {
                self.missing = u32::from_be_bytes([a, b, c, d]).into();
                self.prefix.clear();
            }
        }
    }

    /// Whether it is within a message.
    fn is_within(&self) -> bool {
        self.missing > 0 || !self.prefix.is_empty()
    }
}

/// How long a body is waited for.
struct ArrivalClock {
    patience: Duration,
    begun: Instant,
    bytes: u64,
    sleep: Pin<Box<Sleep>>,
}

impl ArrivalClock {
    fn new(patience: Duration) -> ArrivalClock {
        let begun = Instant::now();
        ArrivalClock {
            patience,
            begun,
            bytes: 0,
            sleep: Box::pin(tokio::time::sleep_until(begun + patience)),
        }
    }

    /// One that starts now.
    fn fresh(&self) -> ArrivalClock {
        ArrivalClock::new(self.patience)
    }

    /// So much has come.
    fn arrived(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        let over = self.over(Instant::now());
        self.sleep.as_mut().reset(over);
    }

    /// Until when the next piece may come, after one that came now: it has the same time, unless
    /// the whole is too slow.
    fn over(&self, now: Instant) -> Instant {
        let earned = Duration::from_secs(self.bytes / RATE_MIN);
        now.min(self.begun + earned) + self.patience
    }

    /// Ready when it is over.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_followed_wherever_they_are_cut() {
        let mut stream = Vec::new();
        let mut ends = vec![0];
        for length in [0_u32, 3, 1, 300] {
            stream.push(0);
            stream.extend(length.to_be_bytes());
            stream.extend(vec![7; length as usize]);
            ends.push(stream.len());
        }
        for first in 0..=stream.len() {
            let mut messages = Messages::default();
            messages.arrived(&stream[..first]);
            assert_eq!(messages.is_within(), !ends.contains(&first), "{first}");
            messages.arrived(&stream[first..]);
            assert!(!messages.is_within(), "{first}");
        }
    }

    #[tokio::test]
    async fn a_body_that_trickles_ends_and_one_that_flows_does_not() {
        let patience = Duration::from_secs(30);
        let mut clock = ArrivalClock::new(patience);
        let later = |seconds| clock.begun + Duration::from_secs(seconds);
        assert_eq!(clock.over(later(20)), later(30));
        let (now, over) = (later(1_000), later(1_030));
        clock.bytes = 1_000 * RATE_MIN;
        assert_eq!(clock.over(now), over);
    }
}
