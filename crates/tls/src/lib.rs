//! TLS between nodes, and between nodes and clients: which certificates there are, whom they name,
//! and who is let in.
//!
//! **Problem.** Whoever reaches a node may end anybody's section, and whoever reaches its port for
//! peers may vote. Connections must be private, and both ends must know with whom they talk, for as
//! long as a cluster runs: certificates expire and authorities are replaced, and nothing is stopped
//! for that.
//!
//! **Idea.** One authority, or several, for each cluster. A node's certificate says in a URI which
//! node of which cluster it is ([`Name`]); so one machine's key is worth nothing in the place of
//! another's, nor in another cluster's. Nodes judge each other by that name, wherever they are
//! reached; clients know a host name, and judge a node by that. [`Keeper`] has what a node needs of
//! all this, [`Trust`] what a client needs; both look at their files again while they run, and what
//! cannot be used does not replace what can.
//!
//! **Invariants.** T1: TLS 1.3 or nothing; nobody falls back to plain text. T2: each connection is
//! judged by the certificates of its own handshake: no session is resumed. T3: between nodes both
//! show a certificate that names a node of the cluster.
//!
//! Ciphers, certificates' paths and signatures are [`rustls`]'s and its provider's.

#[cfg(feature = "authority")]
pub mod authority;
mod client;
mod ending;
mod error;
mod files;
mod keeper;
mod name;
mod verify;

pub use client::{Pem, Trust};
pub use ending::Ending;
pub use error::{refused, why};
pub use files::Files;
pub use keeper::{Admits, Keeper, Own, PEERS_PROTOCOL};
pub use name::Name;
pub use rustls;

use rustls::ProtocolVersion;
use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// What computes: the ciphers of TLS 1.3.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    (provider.cipher_suites).retain(|suite| suite.version().version == ProtocolVersion::TLSv1_3);
    Arc::new(provider)
}

/// Makes it what computes for libraries that make their own configuration, so that they speak
/// TLS 1.3 alone, too. Whatever the process has chosen before stays.
pub fn install() {
    let _ = CryptoProvider::clone(&provider()).install_default();
}

/// When a certificate is over, seconds since 1970; none: it cannot be read.
pub fn until(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<u64> {
    Some(files::not_after(certificate)?.try_into().unwrap_or(0))
}

/// The versions that are spoken.
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
