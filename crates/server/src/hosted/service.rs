//! The gRPC face of hosted sessions: `fermata.v1.Sessions`.

use super::{Command, Hosted, Kept, Life, Told};
use crate::access::Caller;
use crate::grpc::taken;
use crate::porter::{Porter, unexpected};
use bytes::Bytes;
use fermata_api::condition::{Change, Condition, Version};
use fermata_api::convert::{label_from, reply_to_proto};
use fermata_api::v1::section_event::Event;
use fermata_api::v1::session_reply::Reply as WireReply;
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::v1::sessions_server::{Sessions, SessionsServer};
use fermata_api::v1::write_if_request::Condition as Wanted;
use fermata_api::{Secret, errors, v1};
use fermata_protocol::base::{KeyId, Label, Micros, SessionId};
use fermata_protocol::client::{Call, Options, SectionId, Success, Ticket};
use fermata_protocol::request::Operation;
use fermata_protocol::{Code, Refusal, Reply};
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// The shortest, the usual and the longest idle time.
const IDLE: [Micros; 3] = [1_000_000, 10_000_000, 3_600_000_000];

/// How long an enter waits that does not say, microseconds: a day.
const WAIT: u64 = 86_400_000_000;
/// News that a stream may have unread.
const UNREAD_MAX: usize = 16;

/// The service.
pub(crate) struct Service(Arc<Hosted>);

/// The service of a node.
pub(crate) fn service(hosted: Arc<Hosted>) -> SessionsServer<Service> {
    let largest = crate::grpc::LARGEST_MESSAGE;
    SessionsServer::new(Service(hosted))
        .max_decoding_message_size(largest)
        .max_encoding_message_size(usize::MAX)
}

/// What happens to one who entered. Dropped before the entry was read, it gives up.
pub(crate) struct Events {
    porter: Arc<Porter>,
    ticket: Ticket,
    kept: Kept,
    told: mpsc::Receiver<Result<Told, Refusal>>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.told.close();
        // A grant that was not read was not told (G47).
        while let Ok(told) = self.told.try_recv() {
            if let Ok(Told::Entered(section, _)) = told {
                let wait = false;
                drop(self.kept.begin(Call::Leave { section, wait }));
            }
        }
        // A keeper that has ended has given up everything.
        let _ = self.kept.commands.send(Command::Gone(self.ticket));
    }
}

impl Stream for Events {
    type Item = Result<v1::SectionEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(told) = ready!(self.told.poll_recv(cx)) else {
            return Poll::Ready(None);
        };
        let event = match told {
            Ok(Told::Queued(ahead)) => Event::QueuedAhead(ahead),
            Ok(Told::Lost) => Event::Lost(v1::Nothing {}),
            Ok(Told::Entered(section, keys)) => {
                let entered = Reply::Entered { keys, lease: 0 };
                let keys = match reply_to_proto(entered, &self.porter.names()) {
                    WireReply::Event(v1::EnterEvent {
                        event: Some(v1::enter_event::Event::Entered(entered)),
                    }) => entered.keys,
                    _ => vec![],
                };
                let section = section.0;
                Event::Entered(v1::EnteredSection { section, keys })
            }
            Err(refusal) => return Poll::Ready(Some(Err(errors::to_status(&refusal)))),
        };
        Poll::Ready(Some(Ok(v1::SectionEvent { event: Some(event) })))
    }
}

fn session_of(secret: &[u8]) -> Result<SessionId, Refusal> {
    let secret = Secret::from_bytes(secret).ok_or_else(|| {
        Refusal::definite(Code::BadRequest, "a secret has 16 bytes, as Open answered")
    })?;
    Ok(secret.session())
}

impl Service {
    /// What a message of the other service asks for, checked as there.
    async fn operation(&self, caller: &Caller, wire: Wire) -> Result<Operation, Refusal> {
        Ok(self.0.porter.parse(caller, wire).await?.operation)
    }

    async fn key(
        &self,
        caller: &Caller,
        secret: &Bytes,
        key: Option<v1::Key>,
    ) -> Result<KeyId, Refusal> {
        let header = Some(header(secret));
        let get = Wire::Get(v1::GetRequest { header, key });
        match self.operation(caller, get).await? {
            Operation::Get { key } => Ok(key),
            _ => Err(unexpected(&Reply::Left)),
        }
    }

    /// A new session, with its secret and idle time.
    fn open_session(
        &self,
        caller: &Caller,
        idle: Micros,
        label: Label,
    ) -> Result<(Secret, Micros), Refusal> {
        let idle = match idle {
            0 => IDLE[1],
            given if (IDLE[0]..=IDLE[2]).contains(&given) => given,
            _ => {
                let detail = "idle_us is 1 s to 1 h, or 0 for 10 s; no session was opened";
                return Err(Refusal::definite(Code::BadRequest, detail));
            }
        };
        if self.0.porter.hands_over() {
            return Err(self.0.porter.draining());
        }
        let place = self.0.place(caller)?;
        let secret = self.0.porter.draw_secret();
        let (id, life) = (secret.session(), Life { idle, one: false });
        let options = Options {
            label,
            ..Options::default()
        };
        let kept = self.0.keep(caller, (id, options), life, Some(place));
        self.0.open().insert(id, kept);
        Ok((secret, idle))
    }

    async fn ask(&self, caller: &Caller, secret: &[u8], call: Call) -> Result<Success, Refusal> {
        self.0.find(caller, session_of(secret)?)?.ask(call).await
    }

    async fn close_session(&self, caller: &Caller, secret: &[u8]) -> Result<Success, Refusal> {
        let kept = self.0.find(caller, session_of(secret)?)?;
        kept.told(kept.command(Command::Close).await)
    }

    fn follow(&self, caller: &Caller, secret: &[u8], call: Call) -> Result<Events, Refusal> {
        let kept = self.0.find(caller, session_of(secret)?)?;
        let (tell, told) = mpsc::channel(UNREAD_MAX);
        let ticket = self.0.ticket();
        let follow = kept.commands.send(Command::Follow(ticket, call, tell));
        follow.map_err(|_| super::not_kept(&self.0.porter))?;
        let porter = self.0.porter.clone();
        Ok(Events {
            porter,
            ticket,
            kept,
            told,
        })
    }

    async fn enter_section(
        &self,
        caller: &Caller,
        m: v1::EnterSectionRequest,
    ) -> Result<Events, Refusal> {
        let wait_us = if m.wait_us == 0 { WAIT } else { m.wait_us };
        let wire = Wire::Enter(v1::EnterRequest {
            header: Some(header(&m.secret)),
            keys: m.keys,
            mode: m.mode,
            wait_us,
            lease_us: m.lease_us,
            ..v1::EnterRequest::default()
        });
        match self.operation(caller, wire).await? {
            Operation::Enter {
                keys,
                mode,
                wait,
                lease,
                ..
            } => {
                let call = Call::Enter {
                    keys,
                    mode,
                    wait,
                    lease,
                };
                self.follow(caller, &m.secret, call)
            }
            _ => Err(unexpected(&Reply::Left)),
        }
    }

    async fn resume_section(
        &self,
        caller: &Caller,
        m: v1::ResumeSectionRequest,
    ) -> Result<Events, Refusal> {
        let wire = Wire::Resume(v1::ResumeRequest {
            header: Some(header(&m.secret)),
            held: m.held,
            secret: m.former,
        });
        match self.operation(caller, wire).await? {
            Operation::Resume { held, of } => {
                self.follow(caller, &m.secret, Call::Resume { held, of })
            }
            _ => Err(unexpected(&Reply::Left)),
        }
    }

    async fn changed(
        &self,
        caller: &Caller,
        m: v1::WriteIfRequest,
    ) -> Result<v1::WrittenIf, Refusal> {
        let condition = condition_of(m.condition)?;
        let secret = Bytes::copy_from_slice(&self.0.porter.draw_secret().to_bytes());
        let write = Wire::Write(v1::WriteRequest {
            header: Some(header(&secret)),
            key: m.key,
            value: m.value,
        });
        let write = self.operation(caller, write).await?;
        let holds = |value: Option<&Bytes>| condition.holds(value);
        Ok(
            match self.0.change_if(caller, write, m.wait_us, holds).await? {
                Change::Done(version) => v1::WrittenIf {
                    done: true,
                    version: version.map(|version| version.to_string()),
                    found: None,
                },
                Change::Failed(found) => v1::WrittenIf {
                    done: false,
                    version: (found.as_deref()).map(|value| Version::of(value).to_string()),
                    found,
                },
            },
        )
    }

    /// The next write of a section.
    async fn write(
        &self,
        caller: &Caller,
        m: v1::SectionPutRequest,
        value: Option<Bytes>,
    ) -> Result<v1::Done, Refusal> {
        let key = self.key(caller, &m.secret, m.key).await?;
        let section = SectionId(m.section);
        let call = match m.leave {
            true => Call::PutAndLeave {
                section,
                key,
                value,
            },
            false => Call::CriticalPut {
                section,
                key,
                value,
            },
        };
        done(self.ask(caller, &m.secret, call).await?)
    }
}

/// What must be so of a key.
fn condition_of(given: Option<Wanted>) -> Result<Condition, Refusal> {
    let bad = |detail| Refusal::definite(Code::BadRequest, detail);
    match given {
        Some(Wanted::Absent(_)) => Ok(Condition::Absent),
        Some(Wanted::Present(_)) => Ok(Condition::Present),
        Some(Wanted::Equal(value)) => Ok(Condition::Value(value)),
        Some(Wanted::Version(text)) => {
            let version = Version::from_hex(&text).map(Condition::Version);
            version.ok_or_else(|| bad("a version is 32 hexadecimal digits"))
        }
        None => Err(bad(
            "a condition is missing: absent, present, equal or version",
        )),
    }
}

/// The header of a request that is parsed alone: the session numbers what it sends.
fn header(secret: &Bytes) -> v1::Header {
    v1::Header {
        secret: secret.clone(),
        number: 1,
        ..v1::Header::default()
    }
}

fn done(answer: Success) -> Result<v1::Done, Refusal> {
    let tag = |tag: fermata_protocol::base::Tag| v1::Tag {
        lock_ref: tag.lock_ref.0,
        sequence: tag.sequence,
        writer: Bytes::copy_from_slice(&tag.writer.to_be_bytes()),
    };
    match answer {
        Success::Done { tag: made } => Ok(v1::Done {
            tag: made.map(tag),
            left: false,
        }),
        Success::Left => Ok(v1::Done {
            tag: None,
            left: true,
        }),
        _ => Err(unexpected(&Reply::Left)),
    }
}

type Answered<T> = Result<Response<T>, Status>;

fn answered<T>(result: Result<T, Refusal>) -> Answered<T> {
    result
        .map(Response::new)
        .map_err(|refusal| errors::to_status(&refusal))
}

#[tonic::async_trait]
impl Sessions for Service {
    type EnterStream = Events;
    type ResumeStream = Events;

    async fn open(&self, r: Request<v1::OpenSessionRequest>) -> Answered<v1::OpenedSession> {
        let (caller, asked) = taken(r);
        let label = label_from(&asked.label);
        let opened = label.and_then(|label| self.open_session(&caller, asked.idle_us, label));
        answered(opened.map(|(secret, idle_us)| v1::OpenedSession {
            session: Bytes::copy_from_slice(&secret.session().0.to_be_bytes()),
            secret: Bytes::copy_from_slice(&secret.to_bytes()),
            idle_us,
        }))
    }

    async fn enter(&self, r: Request<v1::EnterSectionRequest>) -> Answered<Events> {
        let (caller, m) = taken(r);
        answered(self.enter_section(&caller, m).await)
    }

    async fn resume(&self, r: Request<v1::ResumeSectionRequest>) -> Answered<Events> {
        let (caller, m) = taken(r);
        answered(self.resume_section(&caller, m).await)
    }

    async fn get(&self, r: Request<v1::SectionKeyRequest>) -> Answered<v1::Value> {
        let (caller, m) = taken(r);
        let get = async {
            let key = self.key(&caller, &m.secret, m.key).await?;
            let section = SectionId(m.section);
            let call = Call::CriticalGet { section, key };
            match self.ask(&caller, &m.secret, call).await? {
                Success::Value { value, .. } => Ok(v1::Value { value, tag: None }),
                _ => Err(unexpected(&Reply::Left)),
            }
        };
        answered(get.await)
    }

    async fn put(&self, r: Request<v1::SectionPutRequest>) -> Answered<v1::Done> {
        let (caller, m) = taken(r);
        let value = Some(m.value.clone());
        answered(self.write(&caller, m, value).await)
    }

    async fn delete(&self, r: Request<v1::SectionKeyRequest>) -> Answered<v1::Done> {
        let (caller, m) = taken(r);
        let delete = v1::SectionPutRequest {
            secret: m.secret,
            section: m.section,
            key: m.key,
            ..v1::SectionPutRequest::default()
        };
        answered(self.write(&caller, delete, None).await)
    }

    async fn leave(&self, r: Request<v1::SectionRequest>) -> Answered<v1::Done> {
        let (caller, m) = taken(r);
        let (section, wait) = (SectionId(m.section), true);
        let left = self
            .ask(&caller, &m.secret, Call::Leave { section, wait })
            .await;
        answered(left.and_then(done))
    }

    async fn write_if(&self, r: Request<v1::WriteIfRequest>) -> Answered<v1::WrittenIf> {
        let (caller, m) = taken(r);
        answered(self.changed(&caller, m).await)
    }

    async fn close(&self, r: Request<v1::CloseSessionRequest>) -> Answered<v1::Done> {
        let (caller, m) = taken(r);
        let closed = self.close_session(&caller, &m.secret).await;
        answered(closed.and_then(done))
    }
}
