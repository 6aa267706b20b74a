//! One connection: a `Session` stream to one node, from the first request until it breaks.

use crate::dial::Dial;
use fermata_api::v1;
use fermata_api::v1::fermata_client::FermataClient;
use fermata_api::v1::session_request::Operation;
use fermata_protocol::client::Endpoint;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_stream::Stream;
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
}

impl Why {
    /// What to say of it.
    pub(crate) fn sentence(&self) -> &str {
        match self {
            Why::NotReached(why) | Why::Broken(why) => why,
            Why::TooLong => "a message was too long for it",
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

/// A client over a connected channel, with room for large values.
pub(crate) fn stub(channel: Channel) -> FermataClient<Channel> {
    FermataClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(MESSAGE_MAX)
}

/// Connects, and carries requests and replies until the connection breaks.
pub(crate) async fn run(
    link: LinkId,
    (dial, endpoint): (Dial, tonic::transport::Endpoint),
    requests: UnboundedReceiver<v1::SessionRequest>,
    news: UnboundedSender<News>,
) {
    let why = match dial.connect(&endpoint).await {
        Err(why) => Why::NotReached(why),
        Ok((channel, noted)) => {
            let ended = match stub(channel).session(Outgoing(requests)).await {
                Err(status) => Some(status),
                Ok(response) => {
                    let mut replies = response.into_inner();
                    loop {
                        match replies.message().await {
                            Ok(Some(reply)) => {
                                if news.send(News::Reply(link, reply)).is_err() {
                                    return;
                                }
                            }
                            Ok(None) => break None,
                            Err(status) => break Some(status),
                        }
                    }
                }
            };
            match (noted.said(), ended) {
                (Some(said), _) => Why::NotReached(said),
                (_, Some(status)) if fermata_api::errors::says_too_long(&status) => Why::TooLong,
                (_, Some(status)) => {
                    Why::Broken(format!("the connection broke: {}", status.message()))
                }
                (_, None) => Why::Broken("the connection broke".to_owned()),
            }
        }
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
