//! The Fermata client library: critical sections, registers and eventual operations over gRPC.
//!
//! ```no_run
//! use fermata_client::{Client, Enter, Options};
//!
//! # async fn increment() -> Result<(), fermata_client::Error> {
//! let client = Client::connect(Options::new(["http://127.0.0.1:7100"])).await?;
//! let section = client.enter("default", &["counter"], Enter::default()).await?;
//! let old: u64 = match section.get("counter").await? {
//!     Some(bytes) => String::from_utf8_lossy(&bytes).parse().unwrap_or(0),
//!     None => 0,
//! };
//! section.put_and_leave("counter", (old + 1).to_string()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Problem.** A client of MUSIC has duties (§III-A): to find a node that answers, to repeat what
//! was not answered, to number its writes, to leave only what it knows, to stop when it is told
//! that it no longer holds the lock. Users must not have to think of them.
//!
//! **Idea.** All of that is in [`fermata_protocol::client::Session`], which is pure and which the
//! simulator runs too. This crate adds what it lacks: one background task per [`Client`] that owns
//! the session, the boot-time clock, and one bidirectional gRPC stream per node in use. An
//! operation is a message to that task and a wait for its answer.
//!
//! **What holds.**
//! * Every error says whether the operation may have taken effect
//!   ([`Error::may_have_taken_effect`]).
//! * A section ends once: by a leave, by its [`Section`] being dropped, or by being lost
//!   ([`SectionHandle::lost`]). After a loss nothing that it does succeeds.
//! * Operations of one section on one key take effect in the order in which they were issued; puts
//!   are pipelined. Different keys of a section are not one transaction: when the holder dies, any
//!   subset of the puts in flight may survive (F17: of one key; F19: of several).
//! * A client keeps working while it can reach one node that can reach a quorum.
//!
//! Durations are [`std::time::Duration`]s, precise to the microsecond. Keys are 1 byte to 1 KiB,
//! values at most 16 MiB, unless the servers are configured otherwise.

mod account;
mod beside;
mod client;
mod clock;
mod credentials;
mod dial;
mod discovery;
mod driver;
mod error;
pub mod ledger;
mod link;
mod pages;
mod section;

pub use client::{Client, EngineStatus, Enter, Options};
pub use credentials::Credentials;
pub use discovery::Node;
pub use error::Error;
pub use pages::Pages;
pub use section::{Acknowledgement, Section, SectionHandle};

pub use bytes::Bytes;
pub use fermata_api::Secret;
pub use fermata_api::condition::{Change, Condition, Version};
pub use fermata_protocol::base::{Keyspace, LockRef, Purpose, SiteId, Tag};
pub use fermata_protocol::client::LostReason;
pub use fermata_protocol::request::{
    Code, EntryValue, Held, Inspection, Mode, NodeStatus, QueueEntry, Refusal,
};
pub use fermata_tls::{Files, Trust};
