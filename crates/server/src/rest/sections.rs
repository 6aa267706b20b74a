//! Sections as resources. See [`super::token`] for their names and for who counts their writes.

use super::json::{Counting, Done, ModeIn, NewSection, Section, SectionKey};
use super::keys::value_answer;
use super::token::Token;
use super::{Asked, Asking, Body, Handled, Problem, header_number, micros, parse, query};
use super::{segment, text_segment, unexpected};
use crate::access::Caller;
use crate::porter::Porter;
use axum::Json;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fermata_api::convert::GENERATION_SPAN;
use fermata_api::v1::session_request::Operation as Wire;
use fermata_api::{Secret, v1};
use fermata_protocol::base::{LockRef, Tag};
use fermata_protocol::request::{Entered, Held, Leaving, Operation, RefState, Request};
use fermata_protocol::{Code, Refusal, Reply};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How long an event stream waits for the entry unless told otherwise, ms.
const EVENTS_WAIT: u64 = 60_000;
/// The longest time for which a resume is repeated, ms: no lease is longer than a day.
const RESUME_WAIT_MAX: u64 = 86_400_000;
/// The pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a resumed section is asked after for its event stream.
const LOOK: Duration = Duration::from_millis(500);

/// The query of a section.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionQuery {
    /// How long to wait for the entry, or for a resume.
    wait_ms: Option<u64>,
}

/// The query of a section's key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionKeyQuery {
    /// Needed where the section holds the key in two keyspaces.
    keyspace: Option<String>,
    /// Leave the section once the write has its quorum.
    #[serde(default)]
    leave: bool,
}

fn token_of(uri: &Uri) -> Result<Token, Problem> {
    Token::parse(&text_segment(uri, 2, "section id")?)
}

/// The request that enters, or asks again, in the words it was asked first. A client that asks
/// again has a place in the queue that is kept by asking, and may ask once more after it has hung
/// up.
fn enter_request(
    token: &Token,
    header: v1::Header,
    wait_us: u64,
    (follow, may_return): (bool, bool),
    label: String,
) -> Wire {
    let secret = Bytes::copy_from_slice(&token.secret.to_bytes());
    let mode = if token.shared {
        v1::Mode::Shared
    } else {
        v1::Mode::Exclusive
    };
    let key = |(keyspace, key): &(String, Bytes)| v1::Key {
        keyspace: keyspace.clone(),
        key: key.clone(),
    };
    Wire::Enter(v1::EnterRequest {
        header: Some(v1::Header {
            secret,
            number: token.number,
            ..header
        }),
        keys: token.keys.iter().map(key).collect(),
        mode: mode.into(),
        wait_us,
        follow,
        lease_us: token.lease_us,
        may_return,
        label,
    })
}

/// How long it is tried to leave what was entered for nobody; its lease may end sooner.
const UNTOLD: Duration = Duration::from_secs(60);

/// A section that is entered for a caller which was told nothing of it yet, and whose secret was
/// drawn here, so that nobody else can be in it. If the caller hangs up, it is left: also where it
/// holds by now (G47).
struct Untold {
    porter: Arc<Porter>,
    /// None once it is told.
    request: Option<Request>,
}

impl Drop for Untold {
    fn drop(&mut self) {
        let porter = self.porter.clone();
        // A node that stops has no tasks any more.
        if let (Some(request), Ok(tasks)) = (self.request.take(), Handle::try_current()) {
            tasks.spawn(leave_untold(porter, request));
        }
    }
}

/// Finds the refs by the same request, and leaves them.
async fn leave_untold(porter: Arc<Porter>, mut request: Request) {
    if let Operation::Enter { wait, .. } = &mut request.operation {
        *wait = 0;
    }
    let until = Instant::now() + UNTOLD;
    let held: Vec<Held> = match ask_until((&porter, &Caller::NODE), &request, until).await {
        Ok(Reply::Entered { keys, .. }) => keys.into_iter().map(|key| key.held).collect(),
        Ok(Reply::Queued { held, .. }) => held,
        _ => return,
    };
    let dirty = |held| (held, Leaving::Dirty);
    request.number += LEAVE_NUMBER;
    request.operation = Operation::Leave {
        keys: held.into_iter().map(dirty).collect(),
    };
    // A section that cannot be left ends by its lease.
    let _ = ask_until((&porter, &Caller::NODE), &request, until).await;
}

/// Asks again until somebody answers.
async fn ask_until(
    (porter, caller): (&Porter, &Caller),
    request: &Request,
    until: Instant,
) -> Result<Reply, Refusal> {
    loop {
        let reply = porter.ask(caller, request.clone()).await;
        let again = reply.as_ref().is_err_and(|r| r.code == Code::Unavailable);
        if !again || Instant::now() >= until || porter.is_closing() {
            return reply;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is added to the number of the request that entered a section, for the number of its leave.
/// A client's own numbers and those drawn here (microseconds since 1970) stay far below it.
const LEAVE_NUMBER: u64 = 1 << 60;

impl Asking {
    /// Who leaves, where the client does not number its requests: every leave of a section is the
    /// same request, at whichever node and however often, so that a repeated one has the answer of
    /// the first, and so that [`Rest::was_left`] can ask for it.
    fn leave_header(&self, headers: &HeaderMap, token: &Token) -> Result<v1::Header, Problem> {
        let header = self.header_in(headers, token.secret)?;
        let number = match token.number.checked_add(LEAVE_NUMBER) {
            Some(number) if !headers.contains_key("fermata-number") => number,
            _ => header.number,
        };
        Ok(v1::Header { number, ..header })
    }

    /// Whether a section that is over was left, rather than ended by somebody else: its leave,
    /// repeated, says again that it was done. One that never took effect does not now, since the
    /// section is over.
    async fn was_left(&self, token: &Token, headers: &HeaderMap) -> Result<bool, Problem> {
        let mut plain = headers.clone();
        plain.remove("fermata-number");
        let header = Some(self.leave_header(&plain, token)?);
        let keys = self.leaving(token, &vec![Leaving::Dirty; token.keys.len()])?;
        let again = Wire::Leave(v1::LeaveRequest { header, keys });
        let request = self.parse(again).await?;
        match self.submit(request).await {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.code == Code::NoLongerHolder => Ok(false),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// How a section that is over ended.
    async fn over(&self, token: &Token, headers: &HeaderMap) -> Result<Section, Problem> {
        Ok(Section {
            id: token.name(),
            state: if self.was_left(token, headers).await? {
                "left"
            } else {
                "lost"
            },
            ..Section::default()
        })
    }

    /// The section that a reply to entering or resuming describes.
    fn section(&self, token: &Token, reply: Reply) -> Result<Section, Problem> {
        match reply {
            Reply::Queued { ahead, .. } => Ok(Section {
                id: token.name(),
                state: "queued",
                ahead: Some(ahead),
                ..Section::default()
            }),
            Reply::Stalled { why } => Ok(Section {
                id: token.name(),
                state: "queued",
                ahead: Some(0),
                why: Some(why),
                ..Section::default()
            }),
            Reply::Entered { keys, lease } => {
                let names = self.porter.names();
                Ok(Section {
                    id: self.entered(token, &keys)?.name(),
                    state: "entered",
                    lease_ms: Some(lease / 1_000),
                    keys: keys.iter().map(|k| SectionKey::new(k, &names)).collect(),
                    ..Section::default()
                })
            }
            Reply::Lost { .. } => Ok(Section {
                id: token.name(),
                state: "lost",
                ..Section::default()
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// The token with the refs that the entry gave, in the order of its keys.
    fn entered(&self, token: &Token, entered: &[Entered]) -> Result<Token, Problem> {
        let names = self.porter.names();
        let held = token.keys.iter().map(|(keyspace, key)| {
            let id = names.keyspace(keyspace);
            let of = |e: &&Entered| Some(e.held.key.keyspace) == id && e.held.key.key == *key;
            entered
                .iter()
                .find(of)
                .map(|e| (e.held.lock_ref.0, e.held.generation))
        });
        match held.collect::<Option<Vec<_>>>() {
            Some(held) => Ok(Token {
                held,
                ..token.clone()
            }),
            None => Err(unexpected(&Reply::Left)),
        }
    }

    /// How each key is left, as the messages say it.
    fn leaving(&self, token: &Token, left: &[Leaving]) -> Result<Vec<v1::Leaving>, Problem> {
        let leave = |(held, left): (v1::Held, &Leaving)| v1::Leaving {
            held: Some(held),
            clean: matches!(left, Leaving::Clean(_)),
            tag: match left {
                Leaving::Clean(Some(tag)) => Some(v1::Tag {
                    lock_ref: tag.lock_ref.0,
                    sequence: tag.sequence,
                    writer: Bytes::copy_from_slice(&tag.writer.to_be_bytes()),
                }),
                _ => None,
            },
        };
        Ok(token.all_held()?.into_iter().zip(left).map(leave).collect())
    }

    async fn renewed(&self, token: &Token, headers: &HeaderMap) -> Result<Section, Problem> {
        let header = Some(self.header_in(headers, token.secret)?);
        let held = token.all_held()?;
        let reply = self
            .ask(Wire::Renew(v1::RenewRequest {
                header,
                held,
                relinquish: false,
            }))
            .await?;
        let Reply::Renewed { states } = reply else {
            return Err(unexpected(&reply));
        };
        let mut section = Section {
            id: token.name(),
            state: "entered",
            ..Section::default()
        };
        for state in states {
            // The worst key decides.
            match state {
                RefState::Denied => {
                    section.state = "lost";
                    return Ok(section);
                }
                RefState::Gone | RefState::Deleted => return self.over(token, headers).await,
                RefState::Unknown => section.state = "unknown",
                RefState::Queued { ahead } if section.state != "unknown" => {
                    (section.state, section.ahead) = ("queued", Some(ahead));
                }
                RefState::Queued { .. } => {}
                RefState::Holding { lease } => {
                    let ms = lease / 1_000;
                    section.lease_ms = Some(section.lease_ms.map_or(ms, |least| least.min(ms)));
                }
            }
        }
        Ok(section)
    }
}

pub(super) async fn enter(rest: Asking, headers: HeaderMap, given: Body) -> Handled {
    let new: NewSection = parse(&rest.body(given)?)?;
    let counted = new.counting == Counting::Server;
    if counted && headers.contains_key("fermata-secret") {
        return Err(Problem::bad(
            "a section entered with Fermata-Secret is counted by its client: say \
             \"counting\": \"client\"",
        ));
    }
    let header = rest.header(&headers)?;
    let keys = new
        .keys
        .into_iter()
        .map(|k| k.parse().map(|k| (k.keyspace, k.key)));
    let secret = Secret::from_bytes(&header.secret);
    let token = Token {
        secret: secret.ok_or_else(|| unexpected(&Reply::Left))?,
        number: header.number,
        shared: new.mode == ModeIn::Shared,
        lease_us: new.lease_ms.map(micros).transpose()?,
        keys: keys.collect::<Result<_, _>>()?,
        held: vec![],
        counted,
    };
    let wire = enter_request(
        &token,
        header,
        micros(new.wait_ms)?,
        (false, false),
        new.label,
    );
    let request = rest.parse(wire).await?;
    if counted {
        rest.counters.begin(&token);
    }
    let drawn = !headers.contains_key("fermata-secret");
    let mut untold = Untold {
        porter: rest.porter.clone(),
        request: drawn.then(|| request.clone()),
    };
    let reply = rest.submit(request).await;
    // From here to the answer nothing is waited for.
    untold.request = None;
    let reply = reply.inspect_err(|_| rest.counters.end(&token))?;
    let section = rest.section(&token, reply)?;
    let status = if section.state == "entered" {
        StatusCode::CREATED
    } else {
        StatusCode::ACCEPTED
    };
    let location = [(header::LOCATION, format!("/v1/sections/{}", section.id))];
    Ok((status, location, Json(section)).into_response())
}

/// Polls: a waiting section for its entry, an entered one for its state.
pub(super) async fn look(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<SectionQuery>,
) -> Handled {
    let token = token_of(&uri)?;
    let wait = micros(query(asked)?.wait_ms.unwrap_or(0))?;
    if !token.held.is_empty() {
        return Ok(Json(rest.renewed(&token, &headers).await?).into_response());
    }
    let header = rest.header_in(&headers, token.secret)?;
    let again = enter_request(&token, header, wait, (false, true), String::new());
    let reply = rest.ask(again).await?;
    Ok(Json(rest.section(&token, reply)?).into_response())
}

pub(super) async fn renew(rest: Asking, uri: Uri, headers: HeaderMap) -> Handled {
    Ok(Json(rest.renewed(&token_of(&uri)?, &headers).await?).into_response())
}

/// A new generation of the section, with a counter of its own.
pub(super) async fn resume(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<SectionQuery>,
) -> Handled {
    let wait = query(asked)?.wait_ms.unwrap_or(EVENTS_WAIT);
    let old = token_of(&uri)?;
    let header = rest.header_in(&headers, old.secret)?;
    let token = Token {
        number: header.number,
        ..old.clone()
    };
    let wire = Wire::Resume(v1::ResumeRequest {
        secret: header.secret.clone(),
        header: Some(header),
        held: old.all_held()?,
    });
    let request = rest.parse(wire).await?;
    if token.counted {
        rest.counters.begin(&token);
    }
    // The grant waits for the lease that the old generation was told, which may be longer than a
    // request waits: the same request again goes on where it was.
    let until = Instant::now() + Duration::from_millis(wait.min(RESUME_WAIT_MAX));
    let reply = ask_until((&rest.porter, &rest.caller), &request, until).await;
    let reply = reply.inspect_err(|_| rest.counters.end(&token))?;
    Ok(Json(rest.section(&token, reply)?).into_response())
}

/// Leaves: clean where the counter, or the client's list, says so.
pub(super) async fn leave(rest: Asking, uri: Uri, headers: HeaderMap, given: Body) -> Handled {
    let token = token_of(&uri)?;
    let bytes = rest.body(given)?;
    let told: super::json::Leave = if bytes.is_empty() {
        super::json::Leave::default()
    } else {
        parse(&bytes)?
    };
    let left = if token.counted {
        if !told.acknowledged.is_empty() {
            return Err(Problem::bad(
                "this section's writes are counted by its node: send no list",
            ));
        }
        rest.counters.leaving(&token)
    } else {
        told_left(&token, told)?
    };
    let header = Some(rest.leave_header(&headers, &token)?);
    let keys = rest.leaving(&token, &left)?;
    match rest
        .ask(Wire::Leave(v1::LeaveRequest { header, keys }))
        .await?
    {
        Reply::Done { .. } | Reply::Left => {
            rest.counters.end(&token);
            Ok(Json(Done::new(None, None)).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

/// How a client that counts leaves each key: dirty, unless it lists its last acknowledged write.
fn told_left(token: &Token, told: super::json::Leave) -> Result<Vec<Leaving>, Problem> {
    token.all_held()?;
    let mut left = vec![Leaving::Dirty; token.keys.len()];
    for key in told.acknowledged {
        let sequence = key.sequence.filter(|s| *s < GENERATION_SPAN);
        let sequence = sequence.ok_or_else(|| {
            Problem::bad("every key of acknowledged has the sequence of its last write, 0 for none")
        })?;
        let key = key.parse()?;
        let at = token.find(Some(&key.keyspace), &key.key)?;
        let (lock_ref, generation) = token.held[at];
        let session = token.secret.session();
        let tag = || Tag::critical(LockRef(lock_ref), generation, sequence, session);
        left[at] = Leaving::Clean((sequence > 0).then(tag));
    }
    Ok(left)
}

pub(super) async fn get(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<SectionKeyQuery>,
) -> Handled {
    let token = token_of(&uri)?;
    let at = token.find(query(asked)?.keyspace.as_deref(), &segment(&uri, 4))?;
    let held = Some(token.all_held()?.swap_remove(at));
    let header = Some(rest.header_in(&headers, token.secret)?);
    match rest
        .ask(Wire::CriticalGet(v1::CriticalGetRequest { header, held }))
        .await?
    {
        Reply::Value { value, tag } => value_answer(&headers, None, (value, tag)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn change(
    rest: Asking,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<SectionKeyQuery>,
    given: Body,
) -> Handled {
    let value = rest.value_of(&method, &headers, given)?;
    let query = query(asked)?;
    let token = token_of(&uri)?;
    let at = token.find(query.keyspace.as_deref(), &segment(&uri, 4))?;
    let held = Some(token.all_held()?.swap_remove(at));
    let header = Some(if query.leave {
        rest.leave_header(&headers, &token)?
    } else {
        rest.header_in(&headers, token.secret)?
    });
    let (sequence, left) = number_of(&rest, &token, at, query.leave, &headers).await?;
    let leave = rest.leaving(&token, &left)?;
    let put = v1::CriticalPutRequest {
        header,
        held,
        sequence,
        value,
        leave,
    };
    match rest.ask(Wire::CriticalPut(put)).await? {
        Reply::Left => {
            rest.counters.end(&token);
            Ok(Json(Done::new(None, Some(sequence))).into_response())
        }
        Reply::Done { tag } => {
            rest.counters.acknowledged(&token, at, sequence);
            Ok(Json(Done::new(tag, Some(sequence))).into_response())
        }
        other => Err(unexpected(&other)),
    }
}

/// The number of the section's next write, and how its keys are left if it is the last.
async fn number_of(
    rest: &Asking,
    token: &Token,
    at: usize,
    leave: bool,
    headers: &HeaderMap,
) -> Result<(u64, Vec<Leaving>), Problem> {
    match (header_number(headers, "fermata-sequence")?, token.counted) {
        (Some(number), false) => {
            let keys = if leave { token.keys.len() } else { 0 };
            Ok((number, vec![Leaving::Dirty; keys]))
        }
        (None, true) => match rest.counters.next(token, at, leave) {
            Some(next) => Ok(next),
            None => Err(rest.not_counted(token, headers).await),
        },
        (None, false) => Err(Problem::bad(
            "this section's writes are counted by its client: send Fermata-Sequence, from 1",
        )),
        (Some(_), true) => Err(Problem::bad(
            "this section's writes are counted by its node: send no Fermata-Sequence, or enter \
             with \
             \"counting\": \"client\"",
        )),
    }
}

impl Asking {
    /// Why a write that no counter here can number is refused: most often its section is over.
    async fn not_counted(&self, token: &Token, headers: &HeaderMap) -> Problem {
        let state = match self.renewed(token, headers).await {
            Ok(section) => section.state,
            Err(_) => "unknown",
        };
        let over = |how: &str| {
            let detail = format!("the write was refused: the section {how}; enter a new one");
            Refusal::definite(Code::NoLongerHolder, detail).into()
        };
        match state {
            "left" => over("was left"),
            "lost" => over("is lost"),
            _ => {
                let detail = "this node does not count this section's writes any more: ask the \
                              node through which it was entered, or resume the section here; after \
                              a leave was tried, only leaving is left";
                Refusal::definite(Code::StaleSequence, detail).into()
            }
        }
    }
}

/// Pushes `queued`, `entered`, and `lost` or `left` as server-sent events, or `refused` with a
/// problem; the stream ends after the last three.
pub(super) async fn events(
    rest: Asking,
    uri: Uri,
    headers: HeaderMap,
    asked: Asked<SectionQuery>,
) -> Result<Response, Problem> {
    let token = token_of(&uri)?;
    // At least 1, since 0 asks for the place in the queue only.
    let wait = micros(query(asked)?.wait_ms.unwrap_or(EVENTS_WAIT).max(1))?;
    let (sink, stream) = mpsc::channel(64);
    if token.held.iter().any(|(_, generation)| *generation > 0) {
        tokio::spawn(watch_resumed(rest, token, headers, sink));
    } else {
        let header = rest.header_in(&headers, token.secret)?;
        let request = rest
            .parse(enter_request(
                &token,
                header,
                wait,
                (true, true),
                String::new(),
            ))
            .await?;
        let (answers_in, answers) = mpsc::channel(64);
        let open = rest.porter.submit(&rest.caller, request, 0, answers_in)?;
        tokio::spawn(watch_entry(rest, (token, headers), open, answers, sink));
    }
    let stream = Sse::new(ReceiverStream::new(stream)).keep_alive(KeepAlive::default());
    Ok(stream.into_response())
}

type Events = mpsc::Sender<Result<Event, Infallible>>;

/// Sends one event; false when nobody listens any more, or when it was the last.
async fn push(sink: &Events, told: Result<Section, Problem>) -> bool {
    let (name, data, last) = match &told {
        Ok(section) => (
            section.state,
            serde_json::to_string(section),
            matches!(section.state, "lost" | "left"),
        ),
        Err(problem) => ("refused", serde_json::to_string(problem), true),
    };
    let event = Event::default().event(name).data(data.unwrap_or_default());
    sink.send(Ok(event)).await.is_ok() && !last
}

async fn watch_entry(
    rest: Asking,
    (token, headers): (Token, HeaderMap),
    _open: crate::porter::Open,
    mut answers: mpsc::Receiver<(u64, Reply)>,
    sink: Events,
) {
    let mut entered = token.clone();
    loop {
        let reply = tokio::select! {
            reply = answers.recv() => reply,
            () = sink.closed() => return, // dropping `_open` cancels
        };
        let told = match reply {
            Some((_, Reply::Refused(refusal))) => Err(refusal.into()),
            Some((_, Reply::Lost { .. })) => rest.over(&entered, &headers).await,
            Some((_, reply)) => {
                if let Reply::Entered { keys, .. } = &reply
                    && let Ok(held) = rest.entered(&token, keys)
                {
                    entered = held;
                }
                rest.section(&token, reply)
            }
            None => Err(crate::porter::stopping().into()),
        };
        if !push(&sink, told).await {
            return; // cancels, unless that was the last answer
        }
    }
}

async fn watch_resumed(rest: Asking, token: Token, headers: HeaderMap, sink: Events) {
    let mut before = "";
    loop {
        let told = rest.renewed(&token, &headers).await;
        let state = told.as_ref().map_or("refused", |section| section.state);
        if state != before && !push(&sink, told).await {
            return;
        }
        before = state;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = sink.closed() => return,
        }
    }
}
