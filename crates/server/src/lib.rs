//! The shell.

mod clock;
pub mod config;
mod driver;
mod identity;
mod mailbox;
mod metrics;
mod transport;
pub mod wan;
