//! One connection: a `Session` stream to one node, from the first request until it breaks.

use crate::credentials::Bearer;
use crate::dial::{Dial, Noted};
use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_api::v1::session_request::Operation;
use fermata_protocol::client::Endpoint;
use fermata_protocol::{Code, Refusal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_stream::Stream;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

/// The largest message taken from a server: a full section's values are larger than one value.
pub(crate) const MESSAGE_MAX: usize = 256 << 20;

/// Names one connection: those to the same endpoint differ in the second part.
pub(crate) type LinkId = (Endpoint, u64);

/// What a connection has to say.
#[derive(Debug)]
pub(crate) enum News {
    /// A reply has come.
    Reply(LinkId, v1::SessionReply),
    /// It is over.
    Down { link: LinkId, why: Why },
    /// What a node knows of the cluster; none where none of those asked has answered.
    Cluster(Option<v1::ClusterInfo>),
}

/// Why a connection is over, with what to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There never was one: the node has had nothing of it.
    NotReached(String),
    /// It broke, or the node ended it.
    Broken(String),
    /// The node does not read messages as long as one that was sent.
    TooLong,
    /// The node knows that it is not for this client: what was sent last was not looked at.
    Refused(Refusal),
}

impl Why {
    /// What to say of it.
    pub(crate) fn sentence(&self) -> &str {
        match self {
            Why::NotReached(why) | Why::Broken(why) => why,
            Why::TooLong => "a message was too long for it",
            Why::Refused(refusal) => &refusal.detail,
        }
    }
}

/// The requests on their way into the stream.
///
/// The queue needs no bound of its own: the session bounds the operations that are open.
struct Outgoing(UnboundedReceiver<v1::SessionRequest>);

impl Stream for Outgoing {
    type Item = v1::SessionRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<v1::SessionRequest>> {
        self.0.poll_recv(cx)
    }
}

/// What calls a node.
pub(crate) type Stub = FermataClient<InterceptedService<Channel, Bearer>>;

/// A client over a connected channel, with room for large values.
pub(crate) fn stub(channel: Channel, bearer: Bearer) -> Stub {
    FermataClient::with_interceptor(channel, bearer)
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(MESSAGE_MAX)
}

async fn connect(
    dial: &Dial,
    endpoint: &tonic::transport::Endpoint,
) -> Result<(Stub, Noted, Bearer), String> {
    let bearer = dial.bearer()?;
    let (channel, noted) = dial.connect(endpoint).await?;
    Ok((stub(channel, bearer.clone()), noted, bearer))
}

/// How a stream ended.
enum Ended {
    /// Nobody listens any more.
    Unheard,
    /// Without a word.
    Plainly,
    With(Status),
}

async fn carry(
    mut stub: Stub,
    link: LinkId,
    requests: UnboundedReceiver<v1::SessionRequest>,
    news: &UnboundedSender<News>,
) -> Ended {
    let mut replies = match stub.session(Outgoing(requests)).await {
        Err(status) => return Ended::With(status),
        Ok(response) => response.into_inner(),
    };
    loop {
        match replies.message().await {
            Ok(Some(reply)) => {
                if news.send(News::Reply(link, reply)).is_err() {
                    return Ended::Unheard;
                }
            }
            Ok(None) => return Ended::Plainly,
            Err(status) => return Ended::With(status),
        }
    }
}

/// Why a stream has ended with this. What was shown may have been replaced since: then the next
/// connection shows that.
fn ended(dial: &Dial, shown: &Bearer, status: &Status) -> Why {
    if fermata_api::errors::says_too_long(status) {
        return Why::TooLong;
    }
    let refusal = fermata_api::errors::from_status(status);
    let again = || dial.bearer().is_ok_and(|now| now != *shown);
    match refusal.code {
        Code::Unauthenticated if !again() => Why::Refused(refusal),
        Code::Forbidden => Why::Refused(refusal),
        _ => Why::Broken(format!("the connection broke: {}", status.message())),
    }
}

/// Connects, and carries requests and replies until the connection breaks.
pub(crate) async fn run(
    link: LinkId,
    (dial, endpoint): (Dial, tonic::transport::Endpoint),
    requests: UnboundedReceiver<v1::SessionRequest>,
    news: UnboundedSender<News>,
) {
    let why = match connect(&dial, &endpoint).await {
        Err(why) => Why::NotReached(why),
        Ok((stub, noted, bearer)) => match carry(stub, link, requests, &news).await {
            Ended::Unheard => return,
            _ if noted.said().is_some() => Why::NotReached(noted.said().unwrap_or_default()),
            Ended::Plainly => Why::Broken("the connection broke".to_owned()),
            Ended::With(status) => ended(&dial, &bearer, &status),
        },
    };
    // Nobody listens when the client is gone; then nothing is lost.
    let _ = news.send(News::Down { link, why });
}

/// Tells the node that nobody waits for a request any more.
pub(crate) fn cancel(id: u64) -> v1::SessionRequest {
    v1::SessionRequest {
        id,
        operation: Some(Operation::Cancel(v1::Nothing {})),
    }
}
