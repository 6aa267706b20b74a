//! The code that runs one client request against primaries and replicas.

pub mod message;
pub use message::Message;
