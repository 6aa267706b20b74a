//! What Fermata says to its clients over gRPC: the package `fermata.v1`, and the one place where
//! its messages are turned into the protocol's types and back.
//!
//! **Problem.** Two sides speak the API, the server and the client library, and both think in the
//! types of [`fermata_protocol::request`]. If each had its own translation they would drift apart,
//! and a malformed message would be noticed somewhere deep inside.
//!
//! **Idea.** [`convert`] is total in both directions: a message either is a request, or there is a
//! [`fermata_protocol::Refusal`] that says what is wrong with it; after it nobody checks again.
//! [`errors`] maps the stable codes to gRPC and HTTP statuses, once for every face. [`Names`]
//! stands between the API, which names keyspaces and sites by strings, and the protocol, which
//! numbers them. A [`Secret`] is what a client proves its session by, a [`condition`] what a change
//! may depend on.
//!
//! ```text
//!  bytes ── prost ──► v1::… ── convert ──► protocol::Request ──► Node
//!                                              protocol::Reply ── convert ──► v1::… ──► bytes
//! ```

pub mod condition;
pub mod convert;
pub mod errors;
mod names;
mod secret;

pub use names::Names;
pub use secret::Secret;

/// Bytes that a frame of a `Session` stream takes, encoded.
pub fn encoded_len(frame: &v1::SessionRequest) -> usize {
    prost::Message::encoded_len(frame)
}

/// The generated messages, client and server of `fermata.v1`.
#[expect(
    missing_docs,
    reason = "generated; the documentation is in the .proto file"
)]
#[allow(
    clippy::all,
    clippy::too_many_lines,
    unreachable_pub,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("fermata.v1");
}

/// The encoded descriptors of `fermata.v1`, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fermata.v1.bin"));
