//! The shell.

mod clock;
pub mod config;
mod identity;
pub mod wan;
