//! Quorum registers.

pub mod message;
pub use message::{Answer, Ask, Coding, Content, Fragment, Holder, Message, Store};
