//! One replicated log: multi-Paxos.

pub mod message;
pub use message::{Accepted, Entry, Message};
