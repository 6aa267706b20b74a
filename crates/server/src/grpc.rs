//! The gRPC face: `fermata.v1`, with health and reflection.
//!
//! Every call becomes a [`Wire`] operation and goes through the [`Porter`]; a call of its own waits
//! for the last answer, a stream passes all of them on. On a `Session` stream many requests are
//! open at once and are answered as they are done.

use crate::access::{Caller, Used};
use crate::porter::{Open, Page, Porter, is_last, kind, stopping, unexpected};
use fermata_api::convert::reply_to_proto;
use fermata_api::v1::fermata_server::{Fermata, FermataServer};
use fermata_api::v1::session_reply::Reply as WireReply;
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::{errors, v1};
use fermata_protocol::base::Limits;
use fermata_protocol::{Code, Refusal, Reply};
use futures_core::Stream;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::{Request, Response, Status, Streaming};

/// How long clients with a stream have to go on elsewhere once they were told that the node stops.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);

/// Most requests open on one stream.
const STREAM_OPEN_MAX: usize = 4_096;

/// The service.
pub(crate) struct Service(Arc<Porter>);

/// Bytes of the longest message that is read.
///
/// A request is one value and a little more, and twice what any cluster takes may come, so that a
/// value which is a little too large is refused by name, not by the end of the connection.
pub(crate) const LARGEST_MESSAGE: usize = 2 * Limits::VALUE_MAX + (1 << 20);

/// The service, its limits set.
pub(crate) fn service(porter: Arc<Porter>) -> FermataServer<Service> {
    FermataServer::new(Service(porter))
        .max_decoding_message_size(LARGEST_MESSAGE)
        .max_encoding_message_size(usize::MAX)
}

impl Service {
    /// One request, one answer.
    async fn ask(&self, caller: &Caller, wire: Wire) -> Result<WireReply, Status> {
        let refused = |refusal| errors::to_status(&refusal);
        let mut request = self.0.parse(caller, wire).await.map_err(refused)?;
        let page = self.0.page(&mut request.operation);
        let reply = self.0.ask(caller, request).await.map_err(refused)?;
        Ok(wire_reply(reply, page, &self.0))
    }

    /// One request, a stream of answers.
    async fn follow(&self, caller: &Caller, wire: Wire) -> Result<Response<Events>, Status> {
        let refused = |refusal: Refusal| errors::to_status(&refusal);
        let request = self.0.parse(caller, wire).await.map_err(refused)?;
        let kind = kind(&request.operation);
        let (sink, answers) = mpsc::channel(64);
        let open = self.0.submit(caller, request, 0, sink).map_err(refused)?;
        Ok(Response::new(Events {
            porter: self.0.clone(),
            answers,
            open: Some(open),
            kind,
        }))
    }
}

/// A reply as it travels; of a listing, its page.
fn wire_reply(reply: Reply, page: Option<Page>, porter: &Porter) -> WireReply {
    let mut wire = reply_to_proto(reply, &porter.names());
    if let (WireReply::Keys(list), Some(page)) = (&mut wire, page) {
        list.more = page.cut(&mut list.keys);
    }
    wire
}

/// The answers of `Enter` and `Resume`. Dropped early, it cancels the request.
pub(crate) struct Events {
    porter: Arc<Porter>,
    answers: mpsc::Receiver<(u64, Reply)>,
    open: Option<Open>,
    kind: (bool, bool),
}

impl Stream for Events {
    type Item = Result<v1::EnterEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.open.is_none() {
            return Poll::Ready(None);
        }
        let Some((_, reply)) = ready!(self.answers.poll_recv(cx)) else {
            self.open = None;
            return Poll::Ready(Some(Err(errors::to_status(&stopping()))));
        };
        if is_last(&reply, self.kind.0, self.kind.1)
            && let Some(mut open) = self.open.take()
        {
            open.finish();
        }
        Poll::Ready(Some(match reply_to_proto(reply, &self.porter.names()) {
            WireReply::Event(event) => Ok(event),
            WireReply::Refusal(r) => Err(errors::to_status(&errors::refusal_from_proto(r))),
            _ => Err(Status::internal("an answer that is no event")),
        }))
    }
}

/// One request open on a `Session` stream, with its [`kind`] and its place among those open.
struct Entry {
    call: Open,
    kind: (bool, bool),
    /// It has entered, and follows what becomes of the section.
    watches: bool,
    page: Option<Page>,
    _place: OwnedSemaphorePermit,
}

/// The requests open on one `Session` stream, by the client's id.
type OpenCalls = Arc<Mutex<HashMap<u64, Entry>>>;

/// Why a `Session` stream's requests cannot be read any further.
type Broken = Arc<Mutex<Option<Status>>>;

/// The answers of a `Session` stream.
pub(crate) struct SessionReplies {
    porter: Arc<Porter>,
    answers: mpsc::Receiver<(u64, Reply)>,
    open: OpenCalls,
    /// Why no more requests are read, if not because the client has none.
    broken: Broken,
    reader: tokio::task::JoinHandle<()>,
    /// What this node has to say of itself.
    notices: mpsc::Receiver<WireReply>,
    /// Against the caller's quota.
    _used: Option<Used>,
}

impl Drop for SessionReplies {
    fn drop(&mut self) {
        // The client is gone: stop reading, and cancel what is open.
        self.reader.abort();
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl Stream for SessionReplies {
    type Item = Result<v1::SessionReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(Some(notice)) = self.notices.poll_recv(cx) {
            let reply = Some(notice);
            return Poll::Ready(Some(Ok(v1::SessionReply { id: 0, reply })));
        }
        let Some((id, reply)) = ready!(self.answers.poll_recv(cx)) else {
            let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
            return Poll::Ready(broken.take().map(Err));
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = None;
        if open
            .get(&id)
            .is_some_and(|entry| is_last(&reply, entry.kind.0, entry.kind.1))
            && let Some(mut entry) = open.remove(&id)
        {
            entry.call.finish();
            page = entry.page;
        } else if let Some(entry) = open.get_mut(&id) {
            entry.watches |= matches!(reply, Reply::Entered { .. });
        }
        drop(open);
        let reply = Some(wire_reply(reply, page, &self.porter));
        Poll::Ready(Some(Ok(v1::SessionReply { id, reply })))
    }
}

/// Reads requests of a `Session` stream until it ends or breaks, or the node has stopped for as
/// long as clients have to end it ([`GOODBYE`]), or what its caller has shown counts no more. While
/// [`STREAM_OPEN_MAX`] are open it reads no further, and the client feels it.
async fn read_session(
    (porter, caller): (Arc<Porter>, Caller),
    mut requests: Streaming<v1::SessionRequest>,
    sink: mpsc::Sender<(u64, Reply)>,
    open: OpenCalls,
    broken: Broken,
) {
    let places = Arc::new(Semaphore::new(STREAM_OPEN_MAX));
    let over = async {
        porter.closed().await;
        tokio::time::sleep(GOODBYE).await;
    };
    tokio::pin!(over);
    let counts_for_nothing = porter.access.over(&caller);
    tokio::pin!(counts_for_nothing);
    loop {
        let next = tokio::select! {
            next = requests.message() => next,
            () = &mut over => Err(errors::to_status(&stopping())),
            why = &mut counts_for_nothing => Err(errors::to_status(&why)),
        };
        let v1::SessionRequest { id, operation } = match next {
            Ok(Some(request)) => request,
            Ok(None) => {
                drop(sink);
                if porter.is_leaving() {
                    // Of a client that goes on elsewhere. Whoever is about to enter is let in
                    // first, and told of what it holds as long as this node runs.
                    porter.closed().await;
                    keep(&open, |entry| !entry.watches);
                    over.await;
                    keep(&open, |entry| !entry.kind.0);
                }
                return;
            }
            Err(status) => {
                // Open brief requests are answered before the client is told. Nothing more comes of
                // those that follow: they would keep the stream, of which nobody reads.
                keep(&open, |entry| !entry.kind.0);
                *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                return;
            }
        };
        let refused = match operation {
            Some(Wire::Cancel(_)) => {
                open.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&id);
                continue;
            }
            Some(wire) => {
                let Ok(place) = places.clone().acquire_owned().await else {
                    return;
                };
                open_one((&porter, &caller), wire, id, &sink, &open, place).await
            }
            None => Err(Refusal::definite(
                Code::BadRequest,
                "the frame has no operation that this version knows",
            )),
        };
        if let Err(refusal) = refused
            && sink.send((id, Reply::Refused(refusal))).await.is_err()
        {
            return;
        }
    }
}

/// Tells a client, as long as it has its stream, who is in the cluster whenever that changes; and
/// that this node begins to hand over what it leads, or to stop.
async fn give_notice(porter: Arc<Porter>, tell: mpsc::Sender<WireReply>) {
    let mut shown = porter.roster.subscribe();
    let mut known = porter.about().nodes;
    let (mut drains, mut stops) = (porter.is_leaving(), porter.is_closing());
    loop {
        tokio::select! {
            _ = shown.changed() => {}
            () = porter.closed(), if !stops => {}
            () = tell.closed() => return,
        }
        let about = porter.about();
        if known != about.nodes {
            known.clone_from(&about.nodes);
            if tell.send(WireReply::Cluster(about)).await.is_err() {
                return;
            }
        }
        let before = (drains, stops);
        (drains, stops) = (porter.is_leaving(), porter.is_closing());
        let begins = (drains && !before.0) || (stops && !before.1);
        if begins && tell.send(WireReply::Leaving(v1::Nothing {})).await.is_err() {
            return;
        }
    }
}

/// Cancels all open requests but those.
fn keep(open: &OpenCalls, which: impl Fn(&Entry) -> bool) {
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|_, entry| which(entry));
}

async fn open_one(
    (porter, caller): (&Porter, &Caller),
    wire: Wire,
    id: u64,
    sink: &mpsc::Sender<(u64, Reply)>,
    open: &OpenCalls,
    place: OwnedSemaphorePermit,
) -> Result<(), Refusal> {
    let mut request = porter.parse(caller, wire).await?;
    let page = porter.page(&mut request.operation);
    let kind = kind(&request.operation);
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    if open.contains_key(&id) {
        return Err(Refusal::definite(
            Code::BadRequest,
            "a request with this id is open on this stream: choose another id",
        ));
    }
    // Under the lock, so that an answer finds its entry.
    let call = porter.submit(caller, request, id, sink.clone())?;
    open.insert(
        id,
        Entry {
            call,
            kind,
            watches: false,
            page,
            _place: place,
        },
    );
    Ok(())
}

macro_rules! unary {
    ($self:ident, $operation:ident($request:ident) -> $reply:ident) => {
        match {
            let (caller, asked) = taken($request);
            $self.ask(&caller, Wire::$operation(asked)).await?
        } {
            WireReply::$reply(reply) => Ok(Response::new(reply)),
            _ => Err(errors::to_status(&unexpected(&Reply::Left))),
        }
    };
}

type Handled<T> = Result<Response<T>, Status>;

/// Who asks, and what.
pub(crate) fn taken<T>(request: Request<T>) -> (Caller, T) {
    let (_, mut extensions, asked) = request.into_parts();
    (Caller::taken(&mut extensions), asked)
}

#[tonic::async_trait]
impl Fermata for Service {
    type EnterStream = Events;
    type ResumeStream = Events;
    type SessionStream = SessionReplies;

    async fn enter(&self, r: Request<v1::EnterRequest>) -> Handled<Events> {
        let (caller, asked) = taken(r);
        self.follow(&caller, Wire::Enter(asked)).await
    }

    async fn resume(&self, r: Request<v1::ResumeRequest>) -> Handled<Events> {
        let (caller, asked) = taken(r);
        self.follow(&caller, Wire::Resume(asked)).await
    }

    async fn critical_get(&self, r: Request<v1::CriticalGetRequest>) -> Handled<v1::Value> {
        unary!(self, CriticalGet(r) -> Value)
    }

    async fn critical_put(&self, r: Request<v1::CriticalPutRequest>) -> Handled<v1::Done> {
        unary!(self, CriticalPut(r) -> Done)
    }

    async fn leave(&self, r: Request<v1::LeaveRequest>) -> Handled<v1::Done> {
        unary!(self, Leave(r) -> Done)
    }

    async fn renew(&self, r: Request<v1::RenewRequest>) -> Handled<v1::Renewed> {
        unary!(self, Renew(r) -> Renewed)
    }

    async fn release(&self, r: Request<v1::ReleaseRequest>) -> Handled<v1::Done> {
        unary!(self, Release(r) -> Done)
    }

    async fn get(&self, r: Request<v1::GetRequest>) -> Handled<v1::Value> {
        unary!(self, Get(r) -> Value)
    }

    async fn put(&self, r: Request<v1::PutRequest>) -> Handled<v1::Done> {
        unary!(self, Put(r) -> Done)
    }

    async fn read(&self, r: Request<v1::ReadRequest>) -> Handled<v1::Value> {
        unary!(self, Read(r) -> Value)
    }

    async fn write(&self, r: Request<v1::WriteRequest>) -> Handled<v1::Done> {
        unary!(self, Write(r) -> Done)
    }

    async fn keys(&self, r: Request<v1::KeysRequest>) -> Handled<v1::KeyList> {
        unary!(self, Keys(r) -> Keys)
    }

    async fn transact(&self, r: Request<v1::TransactRequest>) -> Handled<v1::Transacted> {
        unary!(self, Transact(r) -> Transacted)
    }

    async fn resolve(&self, r: Request<v1::ResolveRequest>) -> Handled<v1::Resolved> {
        unary!(self, Resolve(r) -> Resolved)
    }

    async fn snapshot(&self, r: Request<v1::SnapshotRequest>) -> Handled<v1::SnapshotReply> {
        unary!(self, Snapshot(r) -> Snapshot)
    }

    async fn queue(&self, r: Request<v1::QueueRequest>) -> Handled<v1::LockQueue> {
        unary!(self, Queue(r) -> Queue)
    }

    async fn inspect(&self, r: Request<v1::InspectRequest>) -> Handled<v1::Inspection> {
        unary!(self, Inspect(r) -> Inspection)
    }

    async fn create_keyspace(&self, r: Request<v1::CreateKeyspaceRequest>) -> Handled<v1::Done> {
        let done = unary!(self, CreateKeyspace(r) -> Done);
        self.0.refresh_names().await;
        done
    }

    async fn change_keyspace(&self, r: Request<v1::ChangeKeyspaceRequest>) -> Handled<v1::Done> {
        unary!(self, ChangeKeyspace(r) -> Done)
    }

    async fn delete_keyspace(&self, r: Request<v1::DeleteKeyspaceRequest>) -> Handled<v1::Done> {
        unary!(self, DeleteKeyspace(r) -> Done)
    }

    async fn change_settings(&self, r: Request<v1::ChangeSettingsRequest>) -> Handled<v1::Done> {
        unary!(self, ChangeSettings(r) -> Done)
    }

    async fn get_access(&self, r: Request<v1::GetAccessRequest>) -> Handled<v1::Access> {
        unary!(self, GetAccess(r) -> Access)
    }

    async fn change_access(&self, r: Request<v1::ChangeAccessRequest>) -> Handled<v1::Done> {
        unary!(self, ChangeAccess(r) -> Done)
    }

    async fn list_keyspaces(
        &self,
        r: Request<v1::ListKeyspacesRequest>,
    ) -> Handled<v1::KeyspaceList> {
        unary!(self, ListKeyspaces(r) -> Keyspaces)
    }

    async fn status(&self, r: Request<v1::StatusRequest>) -> Handled<v1::NodeStatus> {
        let status: Handled<Box<v1::NodeStatus>> = unary!(self, Status(r) -> Status);
        status.map(|status| status.map(|status| *status))
    }

    async fn ring(&self, r: Request<v1::RingRequest>) -> Handled<v1::RingStatus> {
        unary!(self, Ring(r) -> Ring)
    }

    async fn change_ring(&self, r: Request<v1::ChangeRingRequest>) -> Handled<v1::Done> {
        unary!(self, ChangeRing(r) -> Done)
    }

    async fn admit(&self, r: Request<v1::AdmitRequest>) -> Handled<v1::Admitted> {
        unary!(self, Admit(r) -> Admitted)
    }

    async fn cluster(&self, r: Request<v1::ClusterRequest>) -> Handled<v1::ClusterInfo> {
        let admitted = self.0.access.admit(&taken(r).0);
        admitted.map_err(|refusal| errors::to_status(&refusal))?;
        Ok(Response::new(self.0.about()))
    }

    async fn session(&self, r: Request<Streaming<v1::SessionRequest>>) -> Handled<SessionReplies> {
        let (caller, requests) = taken(r);
        let used = self.0.access.session(&caller);
        let used = used.map_err(|refusal| errors::to_status(&refusal))?;
        let (sink, answers) = mpsc::channel(2 * STREAM_OPEN_MAX + 64);
        let open = OpenCalls::default();
        let broken = Broken::default();
        let (known, noted) = (open.clone(), broken.clone());
        let reader = read_session((self.0.clone(), caller), requests, sink, known, noted);
        let reader = tokio::spawn(reader);
        let (tell, notices) = mpsc::channel(4);
        tokio::spawn(give_notice(self.0.clone(), tell));
        Ok(Response::new(SessionReplies {
            notices,
            porter: self.0.clone(),
            answers,
            open,
            broken,
            reader,
            _used: used,
        }))
    }
}
