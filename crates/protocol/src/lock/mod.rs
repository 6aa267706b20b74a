//! Lock queues, grants and leases.

pub mod message;
pub use message::{Latest, Message, Outcome, Rejection};
