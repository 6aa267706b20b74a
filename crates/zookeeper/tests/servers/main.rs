//! The store against real servers. Where these cannot run, each test says so on stderr and passes.
#![cfg(target_os = "linux")]

mod common;
mod leader;
mod refusals;
mod rows;
