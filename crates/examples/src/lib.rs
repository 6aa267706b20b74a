//! Examples to be read: the two production services of MUSIC §VII, with faults, and with a verdict
//! that is proved from the history. `fermata demo` runs them on a fresh cluster of real processes.
//!
//! **Problem.** A demonstration that only shows that things work proves nothing about the moment
//! when they break.
//!
//! **Idea.** [`homing`] and [`portal`] use the client library as any service would, and know
//! nothing else of Fermata. While they run, faults are injected at stated points of their progress;
//! an observer outside of the cluster records what each worker did and was told. At the end pure
//! functions judge that history. Where the cluster runs, and how its nodes are killed, is the
//! caller's ([`Cluster`]).

pub mod homing;
mod latency;
pub mod portal;
mod stage;

pub use latency::{Line, percentile};
pub use stage::{Check, Report};

use std::fmt;
use std::pin::Pin;

/// A running cluster.
pub trait Cluster {
    /// Its nodes, always in the same order.
    fn nodes(&self) -> Vec<Node>;

    /// Kills a node, by its place among the nodes, without a warning, and waits for its end.
    fn kill(&mut self, node: usize) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Starts a node that was killed.
    ///
    /// # Errors
    /// One sentence: it cannot be started.
    fn restart(&mut self, node: usize) -> Result<(), Error>;
}

/// A node of a cluster.
#[derive(Clone, Debug)]
pub struct Node {
    /// What people call it.
    pub label: String,
    /// Its site.
    pub site: String,
    /// Where it serves clients, as [`fermata_client::Options`] take it.
    pub endpoint: String,
}

/// Why an example came to no verdict.
#[derive(Debug)]
pub enum Error {
    /// The cluster refused something, or did not answer.
    Client(fermata_client::Error),
    /// Nothing went on any more, in a sentence.
    Stuck(String),
    /// A thread or a process could not be started, in a sentence.
    Local(String),
    /// Something that should not happen, in a sentence.
    Internal(String),
}

impl Error {
    fn internal(error: impl fmt::Display) -> Error {
        Error::Internal(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Client(error) => error.fmt(f),
            Error::Stuck(sentence) | Error::Local(sentence) | Error::Internal(sentence) => {
                f.write_str(sentence)
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<fermata_client::Error> for Error {
    fn from(error: fermata_client::Error) -> Error {
        Error::Client(error)
    }
}
