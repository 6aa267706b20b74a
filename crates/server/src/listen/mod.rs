//! Where clients connect: one way in for every face.
//!
//! **Problem.** A connection costs a descriptor and memory for as long as its client likes, also if
//! it never asks for anything, stops in the middle, or has vanished without a word. Nobody who
//! connects may take the node from the others, or its own files from the node.
//!
//! **Idea.** Every face is served by [`serve`]. The places of a face are bounded ([`room`]), below
//! what the limit of open files leaves. When all are taken, whoever has been quiet for longest
//! goes; if nobody is quiet, the newcomer is told so and closed, as Redis does, and not left to
//! wait, as in a queue of the system. A body counts while it arrives ([`arrival`]).
//!
//! **Who goes.** A client that has vanished shows by TCP's keepalive, or by a ping of HTTP/2. One
//! that takes no bytes shows by TCP's time-out for what is not acknowledged. Without a request a
//! connection has [`Clients::head`], and later [`Clients::idle`], which needs no notion of bytes:
//! half a head is no request. A body has a clock of its own.
//!
//! **TLS.** Hands are shaken in the connection's own place and time, so that whoever does not get
//! on with that goes as one who never asks.
//!
//! **Invariants.** L1: no descriptor that the node keeps for itself is a client's. L2: a connection
//! with an open request is closed for nobody else. L3: a place is free when its connection is
//! closed.

mod arrival;
mod room;

use crate::access::{Caller, Certificate};
use crate::closings::Cause;
use crate::config::Clients;
use crate::descriptors::Descriptors;
use crate::metrics::Connections;
use crate::porter::Porter;
use crate::rest::Problem;
use crate::stream::Stream;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fermata_api::errors;
use fermata_protocol::{Code, Refusal};
use fermata_tls::Keeper;
use http_body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use room::{Asking, Place, Refused, Room};
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tower::Service;

/// After so long without a word the system asks a client whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long an answer may take, of TCP or of HTTP/2.
const PONG: Duration = Duration::from_secs(20);
/// Most requests open on one connection of HTTP/2, which opens more as these are done.
const STREAMS_MAX: u32 = 1_024;
/// How long a connection that is told to end may take where it has no request open.
const LEAVING: Duration = Duration::from_secs(1);
/// Most connections that are told that there is no place, each for [`LEAVING`] at most. Beyond
/// that they are closed without a word.
const TURNED_AWAY_MAX: usize = 64;
/// After the system has refused to accept, it is asked again after this long.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Reasons that are told apart in the log.
const REASONS_MAX: usize = 32;
/// A reason for refusals is logged once in this time.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// HTTP/2 alone.
    Grpc,
    /// HTTP/1 and HTTP/2: REST, and gRPC where both have one port.
    Http,
}

impl Face {
    fn name(self) -> &'static str {
        match self {
            Face::Grpc => "grpc",
            Face::Http => "rest",
        }
    }

    /// How its connections are spoken to.
    fn builder(self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        if self == Face::Grpc {
            builder = builder.http2_only();
        }
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(PONG)
            .max_concurrent_streams(STREAMS_MAX)
            // In pieces of 16 KiB, the default, a large value takes dozens of writes and reads.
            .max_frame_size(1 << 20)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        builder
    }
}

/// What all listeners of one node share.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) porter: Arc<Porter>,
    pub(crate) clients: Clients,
    pub(crate) descriptors: Descriptors,
    /// How many faces the node has.
    pub(crate) faces: usize,
    /// What the node shows; none: it speaks in clear.
    pub(crate) tls: Option<Arc<Keeper>>,
}

/// A listener at work.
struct Listening {
    face: Face,
    builder: Builder<TokioExecutor>,
    routes: Router,
    porter: Arc<Porter>,
    clients: Clients,
    room: Arc<Room>,
    metrics: Connections,
    turned_away: Arc<Semaphore>,
    tls: Option<Arc<Keeper>>,
    told: Mutex<HashMap<String, Told>>,
}

/// Serves one face until the porter closes, and then the requests that are open to their end.
pub(crate) async fn serve(listener: TcpListener, face: Face, routes: Router, terms: Terms) {
    let Terms {
        porter,
        clients,
        descriptors,
        faces,
        tls,
    } = terms;
    let metrics = porter.metrics.connections(face.name());
    let listening = Arc::new(Listening {
        face,
        builder: face.builder(),
        routes: arrival::counted(routes, face.name(), &porter, clients.body),
        room: Arc::new(Room::new(clients, descriptors, faces, metrics.open.clone())),
        metrics,
        turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        tls,
        told: Mutex::default(),
        porter,
        clients,
    });
    let mut connections = JoinSet::new();
    let closed = listening.porter.closed();
    tokio::pin!(closed);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // They are many, and each has told what there was to tell.
            Some(_) = connections.join_next() => continue,
            () = &mut closed => break,
        };
        match accepted {
            Ok((stream, address)) => listening.admit(stream, address.ip(), &mut connections),
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                listening.tell(&error.to_string(), None);
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether accepting failed for what happened to one connection.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

impl Listening {
    /// Serves a connection, if there is a place for it.
    fn admit(
        self: &Arc<Listening>,
        stream: TcpStream,
        address: IpAddr,
        connections: &mut JoinSet<()>,
    ) {
        let listening = self.clone();
        let why = match self.room.enter(address, stream.as_raw_fd() as u64) {
            Ok(place) => {
                connections.spawn(async move { listening.attend(stream, place).await });
                return;
            }
            Err(why) => why,
        };
        self.metrics.refused.increment(1);
        let (face, cause) = (self.face.name(), why.cause());
        self.porter.metrics.closed(face, cause, address.to_string());
        self.tell(cause.sentence(), Some(address));
        // The node lends none of the descriptors that it keeps for a word.
        if why != Refused::Descriptors
            && let Ok(permit) = self.turned_away.clone().try_acquire_owned()
        {
            connections.spawn(async move {
                listening.turn_away(stream, why).await;
                drop(permit);
            });
        }
    }

    /// Tells of refusals in the log, of each reason once in a while, and how many there were.
    fn tell(&self, why: &str, from: Option<IpAddr>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let why = match told.contains_key(why) || told.len() < REASONS_MAX {
            true => why,
            false => "for more reasons than are told apart",
        };
        let of = told.entry(why.to_owned()).or_default();
        of.refused += 1;
        if of.last.is_none_or(|last| last.elapsed() >= TELL_EVERY) {
            let (face, refused) = (self.face.name(), of.refused);
            let from = from.map(tracing::field::display);
            tracing::warn!(face, refused, from, "connections are refused: {why}");
            *of = Told {
                last: Some(Instant::now()),
                refused: 0,
            };
        }
    }

    /// Serves one connection to its end.
    async fn attend(&self, stream: TcpStream, place: Place) {
        self.watch(&stream);
        let accepted = tokio::select! {
            accepted = self.accept(stream) => accepted,
            () = self.porter.closed() => return,
            cause = place.over() => return self.ended(&place, cause),
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(why) => return self.unfit(&place, why),
        };
        let place = Arc::new(place);
        let service = TowerToHyperService::new(Counted {
            routes: self.routes.clone(),
            porter: self.porter.clone(),
            certificate: shown(&stream),
            place: place.clone(),
        });
        let serving = self.builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(serving);
        tokio::select! {
            // However a connection ends is its client's affair.
            _ = &mut serving => return,
            () = self.porter.closed() => {}
            cause = place.over() => self.ended(&place, cause),
        }
        serving.as_mut().graceful_shutdown();
        // A request that is open is answered; nothing else is waited for.
        while timeout(LEAVING, &mut serving).await.is_err() && place.is_asking() {}
    }

    /// Shakes hands, where the node speaks TLS.
    async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let tls = self.tls.as_ref().map(|keeper| match self.face {
            Face::Grpc => keeper.grpc(),
            Face::Http => keeper.faces(),
        });
        Stream::accept(stream, tls).await
    }

    /// A connection is closed by this node.
    fn ended(&self, place: &Place, cause: Cause) {
        self.metrics.ended.increment(1);
        let (face, who) = (self.face.name(), place.address().to_string());
        self.porter.metrics.closed(face, cause, who);
    }

    /// A handshake has failed, by what the client has shown or not. One that has only hung up has
    /// shown nothing.
    fn unfit(&self, place: &Place, error: io::Error) {
        if let Some(why) = fermata_tls::why(&error) {
            self.ended(place, Cause::Handshake);
            self.tell(&why, Some(place.address()));
        }
    }

    /// Lets the system find out who has vanished, and who takes nothing. Where it cannot, only the
    /// times of [`Place::over`] are left.
    fn watch(&self, stream: &TcpStream) {
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(PONG / 4)
            .with_retries(4);
        let set = [
            socket.set_tcp_nodelay(true),
            socket.set_tcp_keepalive(&keepalive),
            socket.set_tcp_user_timeout(Some(self.clients.body)),
        ];
        for error in set.into_iter().filter_map(Result::err) {
            tracing::debug!(%error, "a connection is not watched by the system");
        }
    }

    /// Says that there is no place, in the words of whatever the client speaks.
    async fn turn_away(&self, stream: TcpStream, why: Refused) {
        let routes =
            Router::new().fallback(async move |headers: HeaderMap| no_place(why, &headers));
        let service = TowerToHyperService::new(routes);
        let answered = async {
            let stream = self.accept(stream).await.ok()?;
            let serving = self.builder.serve_connection(TokioIo::new(stream), service);
            serving.await.ok()
        };
        // A client that asks for nothing misses it.
        let _ = timeout(LEAVING, answered).await;
    }
}

/// The refusal of a request whose connection has no place.
fn no_place(why: Refused, headers: &HeaderMap) -> Response {
    let why = why.cause().sentence();
    let detail = format!("{why}: try again later, or at another node");
    let refusal = Refusal::definite(Code::Busy, detail);
    if is_grpc(headers) {
        return errors::to_status(&refusal).into_http();
    }
    let later = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let answer = Problem::from(refusal).with_status(StatusCode::SERVICE_UNAVAILABLE);
    (later, answer).into_response()
}

/// A refusal in the words of whatever is asked.
fn refused(refusal: &Refusal, headers: &HeaderMap, uri: &Uri) -> Response {
    if is_grpc(headers) {
        return errors::to_status(refusal).into_http();
    }
    if uri.path().starts_with(crate::music::ROOT) {
        return crate::music::refused(refusal, headers);
    }
    Problem::from(refusal.clone()).into_response()
}

/// Whether a request with these headers is a call of gRPC.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// What the log was told of refusals for one reason.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
    /// How many there were since.
    refused: u64,
}

/// Whom a connection's certificate names, if it has one: the handshake has judged it.
fn shown(stream: &Stream) -> Option<Certificate> {
    let certificate = stream.certificates()??.first()?;
    Some(match fermata_tls::Name::of(certificate).ok()? {
        fermata_tls::Name::Node { label, .. } => Certificate::Node(label.into()),
        fermata_tls::Name::Client { name, .. } => {
            Certificate::Client(name, fermata_tls::until(certificate)?)
        }
    })
}

/// The routes, for one connection: its requests count as open until their answers are gone, and
/// each is told who asks.
#[derive(Clone)]
struct Counted {
    routes: Router,
    porter: Arc<Porter>,
    certificate: Option<Certificate>,
    place: Arc<Place>,
}

impl Counted {
    /// Who asks.
    fn who<B>(&self, request: &Request<B>) -> Result<Caller, Refusal> {
        let roster = &self.porter.roster;
        let (headers, from) = (request.headers(), self.place.address());
        let access = &self.porter.access;
        let certificate = self.certificate.as_ref();
        // Nodes send calls of MUSIC's on, and nothing else.
        let forwarded = request.uri().path().starts_with(crate::music::ROOT);
        let may_forward = |label: &str| forwarded && roster.has(label);
        access.who(headers, certificate, from, may_forward)
    }
}

impl<B> Service<Request<B>> for Counted
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routes are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let who = self.who(&request);
        // Nobody holds a place, nor does who watches what everybody may: health, and descriptions.
        let in_passing = match &who {
            Ok(caller) => caller.is_stranger(&self.porter.access),
            Err(_) => true,
        };
        let asking = match in_passing || request.uri().path().starts_with("/grpc.") {
            true => {
                self.place.ask_in_passing();
                None
            }
            false => Some(self.place.ask()),
        };
        match who {
            Ok(caller) => drop(request.extensions_mut().insert(caller)),
            Err(refusal) => {
                let answer = refused(&refusal, request.headers(), request.uri());
                return Box::pin(async move { Ok(answer) });
            }
        }
        let answer = self.routes.call(request);
        Box::pin(async move {
            let body = |body| {
                Body::new(Answering {
                    body,
                    _asking: asking,
                })
            };
            Ok(answer.await?.map(body))
        })
    }
}

/// The body of an answer; while it is on its way, its request is open.
struct Answering {
    body: Body,
    _asking: Option<Asking>,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
