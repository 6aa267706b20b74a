//! Lock queues, grants and leases.

pub mod message;
pub mod primary;
pub mod state;
pub use primary::Primary;
pub use state::{Applied, HolderState, Queue, Queues, Ref};
pub use message::{Latest, Message, Outcome, Rejection};
