//! What a server needs of an engine, whatever its stores are.

use fermata_protocol::{Reply, Request};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A future whose type is not told.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where the answers to one request go, in order.
pub type Answers = mpsc::UnboundedSender<Reply>;

/// Something that answers requests.
pub trait Service: Send + Sync + 'static {
    /// Serves one request: ends with its last answer. Dropped before, the request is forgotten, not
    /// undone: a lock ref that waits is found by the client's repetition, here or at another node,
    /// and else ended by its lease (G6).
    fn serve(self: Arc<Self>, request: Request, answers: Answers) -> Boxed<'static, ()>;

    /// Whether its stores have their quorums now; if not, one sentence that says which has none.
    fn health(&self) -> Boxed<'_, Result<(), String>>;

    /// One line for people: the engine, its stores, their versions and settings.
    fn describe(&self) -> String;
}
